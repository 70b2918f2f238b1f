/* SPDX-License-Identifier: ISC */
/*
 * Packed weights: the forms in which quantized models are on the Hub, as
 * config.json's quantization_config announces them, and the tensors that one
 * linear layer's weights are made of.  A form is a row of form.c's table.
 * Source: Hugging Face transformers' quantizers, compressed-tensors, AutoAWQ,
 * GPTQModel: man/packed.5 has the layouts.
 */
#ifndef CORE_MODEL_FORM_H
#define CORE_MODEL_FORM_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "core/format/stdir.h"
#include "core/model/linear.h"
#include "core/par.h"
#include "core/str.h"

struct js;
struct regex;

/* What a tensor of a packed layer holds. */
enum form_role {
    FORM_CODES,
    FORM_SCALE,
    FORM_ZERO,
    FORM_SHAPE,
    FORM_INDEX,
    FORM_INPUT, /* an activation's scale, which nothing reads */
    FORM_N_ROLES
};

/* A row of the table. */
struct weight_form {
    const char *method, *format; /* quant_method, and format or NULL */
    enum form_layout {
        LAYOUT_BYTES, /* a number in a byte: F8_E4M3 or I8 */
        LAYOUT_WORDS, /* I32, of a row's numbers */
        LAYOUT_MXFP4, /* U8, two numbers in each */
        LAYOUT_AWQ,   /* I32, of a column's numbers, in its order */
        LAYOUT_GPTQ   /* I32, of a row's numbers, but transposed */
    } layout;
    const char *suffix[FORM_N_ROLES]; /* of tensors' names; NULL: none */
    const char *other_scale;          /* its suffix, where it has two */
    const char *stack[FORM_N_ROLES];  /* the same of a stack [n, rows, cols], of
                                       * all experts; NULL: there is none */
};

/* A name of modules in quantization_config: a module's, a class's ("Linear"),
 * or "re:" and a pattern. */
struct quantized_name {
    char *name;
    struct regex *re;
};

/* Which numbers have one scale. */
enum scale_of { SCALE_TENSOR, SCALE_CHANNEL, SCALE_GROUP, SCALE_BLOCK };

/* Modules whose weights are packed alike. */
struct quantized_group {
    const struct weight_form *form;
    char type[40];                  /* "int4 g128", "fp8 128x128", "mxfp4" */
    struct quantized_name *targets; /* [n_targets]; none: all are */
    size_t n_targets;
    unsigned bits;
    bool is_float, symmetric, by_index; /* actorder, desc_act: see g_idx */
    bool zero_less_1;                   /* GPTQ's first format */
    enum scale_of scale_of;
    size_t rows, cols; /* of a block, cols of a group */
};

/* A quantization_config; zeroed: there is none. */
struct quantization {
    char *file; /* the config.json, for messages */
    struct quantized_group *groups;
    size_t n_groups;
    struct quantized_name *ignored;
    size_t n_ignored;
    bool names_are_exact; /* in 'ignored'; else they are parts of names */
    const char *unused;   /* a key whose rounding of activations or caches is
                           * not done here, or NULL */
};

/*
 * quantization_parse() reads the quantization_config of a config.json's root,
 * or of its text_config or vision_config.  -1 with 'err' set (EX_DATAERR): a
 * method, format or option that is not known is refused by its name.
 * quantization_load() does so with the config.json in a directory or next to a
 * file; where there is none, there is no quantization_config.
 * Owner: the caller, until quantization_free(), after an error, too.
 */
int quantization_parse(struct quantization *q, const struct js *root,
                       struct err *err);
int quantization_load(struct quantization *q, const char *path,
                      struct err *err);
void quantization_free(struct quantization *q); /* a zeroed struct is fine */

/* quantization_text() appends a line's worth for people: "int4 g128
 * (compressed-tensors pack-quantized); input_activations is not applied". */
void quantization_text(struct str *to, const struct quantization *q);

/* Memory of weights that are bound: their struct weight_code, and what has to
 * be laid out in another order.  Starts as { 0 }; weights die with
 * form_memory_free().  It is laid out by threads: 'par', or if that is NULL by
 * threads of its own, until form_memory_rest(). */
struct form_memory {
    struct par *par, *own;
    struct form_block *blocks; /* [n] */
    size_t n, nbytes;
};
void form_memory_rest(struct form_memory *memory);
void form_memory_free(struct form_memory *memory);

/* The tensors of one packed layer. */
struct form_tensors {
    const struct quantized_group *group;
    const struct stdir_tensor *tensor[FORM_N_ROLES]; /* NULL: it has none */
    bool stacked;   /* a layer's experts are in them, with a dimension more */
    size_t out, in; /* as the tensors' shapes say */
    size_t n;       /* such matrices, of experts; else 1 */
};

/*
 * form_look() finds the tensors of a module, "model.layers.0.mlp.up_proj", with
 * or without the root, in a mapped directory, and checks types and shapes.
 * 1; 0: its weights are not packed, or it has none; -1 with 'err' set
 * (EX_DATAERR).
 */
int form_look(struct form_tensors *t, const struct quantization *q,
              const struct stdir *dir, const char *module, struct err *err);

/*
 * form_bind() makes l->w, l->out and l->in those of what form_look() has found,
 * of the matrix 'i' of t->n: in the mapped file, or in 'memory' where they lie
 * in another order there.  The rest of *l is zeroed.  Scales are finite, and
 * zero points and indices in range.  -1 with 'err' set: EX_DATAERR, EX_SOFTWARE
 * (no memory).
 * form_want(): are there n, [out, in], of any sizes where these are 0?  0, or
 * -1 with 'err' set (EX_DATAERR); 'by' is what says so, or NULL. form_find() is
 * form_look(), form_want() of one and form_bind().
 */
int form_want(const struct form_tensors *t, size_t n, size_t out, size_t in,
              const char *by, struct err *err);
int form_find(struct linear *l, const struct quantization *q,
              struct form_memory *memory, const struct stdir *dir,
              const char *module, size_t out, size_t in, struct err *err);
int form_bind(struct linear *l, const struct form_tensors *t, size_t i,
              struct form_memory *memory, struct err *err);

/* form_split() lays out a tensor of numbers, whose columns are an even number,
 * with the even columns of each row before the odd ones: NULL with 'err' set
 * (EX_SOFTWARE). */
const void *form_split(struct form_memory *memory, const struct stdir_tensor *t,
                       struct err *err);

/* form_transpose() lays out matrices of numbers [n, in, out] as [n, out, in],
 * or, 'split', that of form_split(). */
const void *form_transpose(struct form_memory *memory,
                           const struct stdir_tensor *t, bool split,
                           struct err *err);

/* form_is(): are the module's weights packed, in a form that the
 * quantization_config has?  No more of them is checked.
 * form_refuse_in_out(): -1 and EX_DATAERR for a packed module of a family whose
 * matrices are [in, out]. */
struct model_family;
bool form_is(const struct quantization *q, const struct stdir *dir,
             const char *module);
int form_refuse_in_out(const char *path, const char *module,
                       const struct model_family *family, struct err *err);

/* form_hash() adds a sample of weights that are in n rows: of their numbers as
 * stored, or of their codes, scales and zero points, and which kind these are.
 */
struct hash;
void form_hash(struct hash *hash, const struct weight *w, size_t n);

/*
 * form_of(): is a tensor a part of a packed layer?  Then t is as form_look()
 * has it, *role is the tensor's, and the first *module_n bytes of its name are
 * the module's.  1, 0 or -1 as form_look().
 */
int form_of(struct form_tensors *t, enum form_role *role, size_t *module_n,
            const struct quantization *q, const struct stdir *dir,
            const struct stdir_tensor *of, struct err *err);

/* form_row() is the form of a quant_method and a format, which counts where the
 * table has one for the method; NULL: there is none.  form_list() appends the
 * formats of a method, or if it is NULL the methods: "fp8, awq, ..". */
const struct weight_form *form_row(const char *method, const char *format);
void form_list(struct str *to, const char *method);

#endif
