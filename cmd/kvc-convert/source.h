/* SPDX-License-Identifier: ISC */
/*
 * Tensors by name, from a checkpoint or from safetensors, and which names:
 * PREFIX.LAYER.SLOT.weight and .bias.
 */
#ifndef KVC_CONVERT_SOURCE_H
#define KVC_CONVERT_SOURCE_H

#include "cmd/kvc-convert/cmd.h"
#include "core/format/kvc.h"
#include "core/format/pth.h"
#include "core/format/stdir.h"

#define MAX_PREFIXES 16

#define DEFAULT_PREFIXES "compress_tk,compress_tv,compress_ik,compress_iv"
#define DEFAULT_SLOTS    "0,3,6"

/* Which MLPs a file has, and in which order. */
struct order {
    char *prefixes[MAX_PREFIXES];
    size_t n_prefixes;
    char *slots[KVC_SLOTS];
};

/* order_read() reads lists as "a,b": -1 with 'err' set (TU_USAGE), which names
 * the option.  Owner: the caller, until order_free(), also after an error. */
int order_read(struct order *order, const char *prefixes, const char *slots,
               struct err *err);
void order_free(struct order *order); /* a zeroed struct is fine */

struct weight_source {
    const char *path;
    bool is_pth;   /* 'pth', or else 'dir' */
    size_t nbytes; /* of all numbers that are stored */
    struct pth pth;
    const struct pth_value *state; /* the dict of pth with the weights */
    struct stdir dir;
    const char *strip; /* before each name: "module."; "" */
};

struct source_tensor {
    enum dtype dtype;
    size_t n_dims;
    uint64_t shape[2]; /* the first two */
    uint64_t n_elements;
    const struct pth_value *other; /* not a tensor, but it has the name */
    const struct pth_tensor *pth;
    const struct stdir_tensor *st;
};

/* source_open(): -1 with 'err' set: it cannot be opened, or is neither.  Owner:
 * the caller, until source_close(). */
int source_open(struct weight_source *src, const struct convert_cmd *cmd,
                struct err *err);
/* source_settle() finds where in the file names with such prefixes are, and
 * what comes before them: before it only source_meta() may be called.
 * -1 with 'err' set (EX_DATAERR: no dict).  strict: as the engine's script. */
int source_settle(struct weight_source *src, const struct order *order,
                  bool strict, struct err *err);
void source_close(struct weight_source *src); /* a zeroed struct is fine */

size_t source_n(const struct weight_source *src);
/* The i-th name; valid while src is open.  "" for what source_find() cannot
 * find: not a string, or one of over 1024 bytes, of which a pickle may have
 * many equal ones. */
const char *source_name(const struct weight_source *src, size_t i,
                        size_t *nbytes);

/* source_find() finds PREFIX.LAYER.SLOT.KIND; false if there is none or it is
 * not a tensor. */
bool source_find(const struct weight_source *src, const char *name,
                 struct source_tensor *t);
/* source_read() reads n elements from 'first' on, in the file's dtype,
 * little-endian; -1 with 'err' set, as pth_read(). */
int source_read(struct weight_source *src, const struct source_tensor *t,
                size_t first, size_t n, void *to, struct err *err);

/* source_meta() is a value of the safetensors __metadata__, or NULL. */
const char *source_meta(const struct weight_source *src, const char *key);

/* form_of() looks at a file's first bytes. */
enum form { FORM_UNKNOWN, FORM_PTH, FORM_SAFETENSORS, FORM_BIN };
int form_of(const char *path, enum form *form, struct err *err);

/* source_hint() appends a hint at the prefixes that the file's names have, if
 * 'order' has one that none of them has. */
void source_hint(const struct weight_source *src, const struct order *order,
                 struct str *text);

#endif
