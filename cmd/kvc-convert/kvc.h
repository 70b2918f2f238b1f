/*
 * kvc-convert's own parts: the command line, where weights come from, and the
 * directions.  A verb returns the exit status of its answer (0, or
 * TU_NEGATIVE), or -1 with 'err' set; only main.c prints errors and exits.
 */
#ifndef KVC_CONVERT_H
#define KVC_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/kvc-convert/pth.h"
#include "core/dtype.h"
#include "core/err.h"
#include "core/format/kvc.h"
#include "core/format/stdir.h"
#include "core/opt_value.h"
#include "core/out.h"

#define MAX_PREFIXES 16

enum form { FORM_AUTO, FORM_PTH, FORM_SAFETENSORS, FORM_BIN };

/* order.c: which MLPs a file has, and in which order. */
struct order {
    char *prefixes[MAX_PREFIXES];
    size_t n_prefixes;
    char *slots[KVC_SLOTS];
};

/* "a,b": -1 with 'err' set (TU_USAGE). */
int order_prefixes(struct order *order, const char *list, struct err *err);
int order_slots(struct order *order, const char *list, struct err *err);
void order_free(struct order *order);

struct cmd {
    const char *input, *output;
    enum form from;
    int dtype; /* of the .bin; -1: not given */
    int64_t factor, min_seq_len, num_heads, head_dim; /* -1: not given */
    const char *prefix_order, *slot_order;            /* as typed, or NULL */
    struct opt_list allowed;                          /* --allow */
    bool strict, allow_views, provenance, if_missing, json, verbose;
    int out_flags;  /* OUT_FORCE or 0 */
    int64_t layers; /* --layers; 0: not known */
    char **args;
    int n_args;
};

/*
 * source.c: tensors by name, from a checkpoint or from safetensors.
 */
struct source {
    const char *path;
    size_t nbytes;                 /* of all numbers that are stored */
    struct pth *pth;               /* one of the two */
    const struct pth_value *state; /* the dict of pth with the weights */
    struct stdir dir;
    const char *strip; /* what stands before names: "module."; "" */
};

struct tensor {
    enum dtype dtype;
    size_t n_dims;
    uint64_t shape[2]; /* the first two */
    uint64_t n_elements;
    const struct pth_value *other; /* no tensor, but it has the name */
    const struct pth_tensor *pth;
    const struct stdir_tensor *st;
};

int source_open(struct source *src, const struct cmd *cmd, struct err *err);
/* source_settle() finds where in the file names with such prefixes are, and
 * what stands before them: of what follows only source_meta() goes without.
 * -1 with 'err' set (EX_DATAERR: no dict).  strict: as the engine's script. */
int source_settle(struct source *src, const struct order *order, bool strict,
                  struct err *err);
void source_close(struct source *src); /* a zeroed struct is fine */

size_t source_n(const struct source *src);
/* The i-th name; valid while src is open.  "" for what source_find() cannot
 * find: no string, or one of over 1024 bytes, of which a pickle may have many
 * that are the same. */
const char *source_name(const struct source *src, size_t i, size_t *nbytes);

/* source_find() finds PREFIX.LAYER.SLOT.KIND; false if there is none or it is
 * no tensor. */
bool source_find(const struct source *src, const char *name, struct tensor *t);
/* source_want(): it will be read; all of them are named so first. */
void source_want(const struct source *src, const struct tensor *t);
/* n elements from 'first' on, in the file's dtype, little-endian */
int source_read(const struct source *src, const struct tensor *t, size_t first,
                size_t n, void *to, struct err *err);

/* source_meta() is a value of the safetensors __metadata__, or NULL. */
const char *source_meta(const struct source *src, const char *key);

/* round.c: n elements of any dtype to f16, bf16 or f32, as torch's to() does;
 * 'scratch' has room for n floats. */
bool round_known(enum dtype from);
void round_to(void *to, enum dtype dtype, const void *from,
              enum dtype from_type, size_t n, float *scratch);

#define DEFAULT_PREFIXES "compress_tk,compress_tv,compress_ik,compress_iv"
#define DEFAULT_SLOTS    "0,3,6"

int convert(const struct cmd *cmd, struct err *err); /* to .bin */
int back(const struct cmd *cmd, struct err *err);    /* to safetensors */

/* The modes. */
typedef int mode_main(const struct cmd *cmd, struct err *err);
mode_main convert_main, info, check, diff;

/* form_of() looks at a file's first bytes; FORM_AUTO: they begin none. */
int form_of(const char *path, enum form *form, struct err *err);

#endif
