/* SPDX-License-Identifier: ISC */
/*
 * What lies behind packed tensors, as the quantization_config of a model's
 * config.json says: which layer's weights each is a part of, and with
 * --dequantize those weights as tensors of numbers, instead of them.
 */
#ifndef ST_INSPECT_PACKED_H
#define ST_INSPECT_PACKED_H

#include "core/format/stdir.h"
#include "core/model/form.h"

extern const char *const packed_roles[FORM_N_ROLES]; /* "codes", .. */

struct packed_part {
    struct form_tensors layer; /* group NULL: the tensor is of none */
    enum form_role role;
    size_t module_n; /* bytes of the tensor's name */
    size_t n_dims;   /* of the layer's weights: [out, in] or [n, out, in] */
    uint64_t shape[3], n_elements;
};

/* packed_part(): 1; 0: the tensor is part of no packed layer; -1 with 'err'
 * set, as form_of(). */
int packed_part(struct packed_part *p, const struct quantization *q,
                const struct stdir *dir, const struct stdir_tensor *t,
                struct err *err);

/* packed_load() is quantization_load(), and maps the files; but if that fails,
 * none of the tensors are packed, and a line on stderr says why with 'say'. */
void packed_load(struct quantization *q, struct stdir *dir, bool say);

/* The weights of a layer: "q_proj.weight", F32; nbytes are its parts'. */
struct packed_tensor {
    struct st_tensor t;
    struct packed_part p;
    struct linear *bound; /* [p.layer.n], between bind and unbind */
    struct form_memory memory;
};

/* A directory that has such in the place of packed tensors. */
struct packed {
    struct quantization q;
    struct stdir whole; /* as it is on disk */
    struct packed_tensor *tensors;
    size_t n;
};

/*
 * packed_open() replaces them.  -1 with 'err' set: EX_NOINPUT, there is no
 * config.json; as packed_part() or stdir_map().  Owner: the caller, until
 * packed_close(), which puts everything back, after an error, too.
 */
int packed_open(struct packed *p, struct stdir *dir, struct err *err);
void packed_close(struct packed *p, struct stdir *dir); /* zeroed is fine */

/* packed_of() is what a tensor of the directory is; NULL: as in its file. */
struct packed_tensor *packed_of(const struct stdir_tensor *t);

/*
 * packed_read() reads elements [first, first + n) as a file would have them,
 * after packed_bind(), before packed_unbind(), which fails if a file has
 * changed meanwhile.  -1 with 'err' set, as form_bind() and st_unchanged();
 * for NULL these do nothing.
 */
int packed_bind(struct packed_tensor *p, struct par *par, struct err *err);
int packed_unbind(struct packed_tensor *p, struct err *err);
void packed_read(const struct packed_tensor *p, void *buf, uint64_t first,
                 size_t n);

#endif
