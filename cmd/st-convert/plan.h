/* SPDX-License-Identifier: ISC */
/* What becomes of each tensor: names, types, shapes, and the file it goes to.
 */
#ifndef ST_CONVERT_PLAN_H
#define ST_CONVERT_PLAN_H

#include "cmd/st-convert/cmd.h"
#include "core/err.h"
#include "core/format/stdir.h"
#include "core/kernel/encode.h"
#include "core/model/family.h"
#include "core/model/form.h"
#include "core/str.h"

/* KEPT: the bytes stay; ROUNDED: another type; PACKED: codes and scales;
 * UNPACKED: numbers of these. */
enum change { KEPT, ROUNDED, PACKED, UNPACKED };

/* A tensor that is written. */
struct convert_piece {
    char *name;
    enum dtype dtype;
    size_t n_dims;
    const uint64_t *shape; /* the input's; NULL: 'dims' */
    uint64_t dims[3];
    size_t nbytes;
};
enum { PIECE_CODES, PIECE_SCALE, PIECE_SHAPE, PIECE_ZEROS, N_PIECES };

/* A tensor of the input and what becomes of it. */
struct convert_item {
    const struct stdir_tensor *from;
    bool head; /* the embedding once more, as a tied model's lm_head */
    enum change change;
    struct convert_piece piece[N_PIECES];
    size_t n_pieces; /* but no zeros: PIECE_ZEROS */
    size_t shard;
    struct form_tensors packed; /* UNPACKED: what it is made of */
    bool transposed;            /* .. of [out, in], written [in, out] */
    bool overflow;              /* once it is written: a number is infinite */
    struct encode_error error;  /* PACKED, once it is written */
};

/* An expert's matrix of a stack of all, as if it were a tensor of its own, that
 * owns its name. */
struct convert_expert {
    struct stdir_tensor of;
    struct st_tensor t;
    uint64_t shape[2];
};

/* The texts of an option, and which of them some name has. */
struct name_list {
    const char *option;
    const struct opt_list *of;
    bool *used; /* [of->n] */
};

struct convert_plan {
    const struct st_convert_cmd *cmd;
    struct name_list selected, ignored, renamed;
    struct stdir dir;
    bool is_dir;                       /* the input */
    bool to_dir;                       /* the output */
    const struct model_family *family; /* NULL: not known */
    struct convert_item *items;        /* [n_items], in the files' order */
    struct convert_expert *experts;    /* [n_experts] of some items */
    struct quantization quantization;  /* of the input, where numbers change */
    size_t n_items, n_experts, n_packed, n_weighed, n_shards;
    struct str inputs; /* the file of a layer's that was looked for last */
    size_t group;      /* 0: a scale for each row */
    struct str ignore; /* the array of quantization_config */
    struct str config; /* config.json of the output, or empty */
};

/*
 * plan_open(): -1 with 'err' set, as stdir_open(); EX_DATAERR names a tensor or
 * key that cannot become what the command line asks for; EX_NOINPUT a pattern
 * without a tensor.  Owner: the caller, until plan_close(), after an error,
 * too.
 */
int plan_open(struct convert_plan *plan, const struct st_convert_cmd *cmd,
              struct err *err);
void plan_close(struct convert_plan *plan);

/* plan_matches(): does one of the list match a tensor's name, or a layer's? */
bool plan_matches(const struct name_list *list, const char *name, bool layer);

/* item_nbytes() is how many bytes of the input an item is made of. */
size_t item_nbytes(const struct convert_item *item);

/* plan_word() is what the report calls the form of PACKED items. */
const char *plan_word(const struct convert_plan *plan);

#endif
