/* SPDX-License-Identifier: ISC */
/*
 * Lookup tables instead of linear layers: a directory with metadata.json and
 * one safetensors file for each layer.  Everything is checked on opening.
 * Source: man/lut.5.
 */
#ifndef CORE_FORMAT_LUT_H
#define CORE_FORMAT_LUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/format/st.h"

#define LUT_VERSION   "1.0"
#define LUT_SUFFIX    ".lut.safetensors"
#define LUT_MAX_PARTS 3 /* layers that a fused one stands for */

/* The tensors of a layer's file, in the order of lut(5); the last is optional.
 * lut_shape() is one's shape for n_basis n: returns its dims, 1 or 2. */
enum lut_tensor {
    LUT_ENCODER_WEIGHT,
    LUT_ENCODER_BIAS,
    LUT_DECODER_WEIGHT,
    LUT_DECODER_BIAS,
    LUT_PRODUCTS,
    LUT_BIAS_PRODUCT,
    LUT_WEIGHT_T,
    LUT_N_TENSORS
};
extern const char *const lut_tensor_names[LUT_N_TENSORS];
size_t lut_shape(enum lut_tensor tensor, size_t n, size_t in, size_t out,
                 uint64_t shape[2]);

/* The tensor of a table whose latents are active over thresholds: one number
 * for each, or for all; not of the others' dtype. */
#define LUT_THRESHOLD "threshold"

/* The hash_sample() of all parts' weights, as in the model, in __metadata__. */
#define LUT_WEIGHTS "weights_sample_xxh3"

/* The encoder's shadow: int8 [n_basis, in], f32 [n_basis] scales and errors.
 * __metadata__ has the XXH3-128 of these and of the encoder's weight, under the
 * keys lut_sums, in this order. */
#define LUT_SHADOW       "encoder_int8"
#define LUT_SHADOW_SCALE "encoder_scale"
#define LUT_SHADOW_ERROR "encoder_error"
enum { LUT_SUM_WEIGHT, LUT_SUM_SHADOW, LUT_SUM_SCALE, LUT_SUM_ERROR, LUT_SUMS };
extern const char *const lut_sums[LUT_SUMS];

/* A layer's entry in metadata.json. */
struct lut_layer {
    char *name; /* always with "model.": "model.layers.0.self_attn.q_proj" */
    char *file; /* within the directory */
    size_t in, out;
    size_t n_basis;   /* N: of the layer, or of sae_config */
    size_t k;         /* active at most, 1 .. N; not if */
    bool over;        /* all over their thresholds are active */
    bool centered;    /* the encoder takes x - decoder_bias, not x */
    bool target_bias; /* bias_product has the layer's own bias */
    double elbow;     /* threshold of the reconstruction error; NaN: none */
};

struct lut {
    char *path;         /* the directory with metadata.json */
    bool from_exporter; /* creation_info.script_version is there */
    size_t n_layers;
    struct lut_layer *layers; /* [n_layers], by name in natural order */
};

/*
 * lut_open() reads DIR/metadata.json, or DIR/lut/metadata.json.  The files of
 * the layers are not opened, but no two layers may share one, by any name.
 * A layer that does not say whether it is centred is, if the Python exporter
 * wrote the directory; else it is not, and err_warn() says so once.
 * 0, or -1 with 'err' set: EX_NOINPUT, EX_DATAERR (a key is missing or wrong,
 * a version other than 1.x, a file outside the directory, or of two layers).
 * Owner: the caller, until lut_close().
 */
int lut_open(struct lut *lut, const char *dir, struct err *err);
void lut_close(struct lut *lut); /* a zeroed struct is fine */

/* lut_find() is a layer by its name, with or without "model." before it, or
 * NULL. */
const struct lut_layer *lut_find(const struct lut *lut, const char *name);

/* lut_name() is a layer's name with "model." before it.  Owner: the caller. */
char *lut_name(const char *name);

/*
 * The parts of a fused layer, by its name's last word: qkv_proj is q_proj,
 * k_proj, v_proj; gate_up_proj is gate_proj, up_proj; of all others itself
 * alone.  Full names, [LUT_MAX_PARTS]; returns how many.  free() each.
 */
size_t lut_parts(const char *name, char *parts[LUT_MAX_PARTS]);

/* lut_fused() is the fused layer that a layer is a part of, and lut_fused_sae()
 * the part of a fused layer whose SAE it can use, or NULL.  free() it. */
char *lut_fused(const char *name);
char *lut_fused_sae(const char *name);

/* lut_elbow_names() lists the keys of elbow_thresholds that can be a layer's,
 * by its full name, in the order in which they are looked up: the last is the
 * exporter's, "layer_0/self_attn_q_proj", where the layer can have one.
 * Returns how many.  free() each. */
#define LUT_ELBOW_NAMES 5
size_t lut_elbow_names(const char *name, char *names[LUT_ELBOW_NAMES]);

/* The tensors of a file, each BF16, F16 or F32; the vectors are widened, and
 * whoever opened the table may change them. */
struct lut_table {
    const struct lut_layer *layer;
    struct st st; /* mapped */
    enum dtype dtypes[LUT_N_TENSORS];
    const void *encoder_weight;        /* [n_basis, in] */
    const void *decoder_weight;        /* [n_basis, in] */
    const void *products;              /* [n_basis, out] */
    const void *compensation_weight_t; /* [in, out], or NULL */
    float *encoder_bias;               /* [n_basis] */
    float *decoder_bias;               /* [in] */
    float *bias_product;               /* [out] */
    float *thresholds;                 /* [n_basis], >= 0; or NULL */
    const void *shadow;                /* [n_basis, in] int8, or NULL: none, or
                                        * none with checksums */
    const void *shadow_scale;          /* [n_basis] F32, as in the file */
    const void *shadow_error;          /* [n_basis] the same */
};

/*
 * lut_table_open() maps a layer's file and checks names, shapes and dtypes
 * against the metadata, and these against the file's description of itself; and
 * of a shadow, on which results depend where it is wrong, its scales and all
 * checksums.  0, or -1 with 'err' set as st_open(); EX_DATAERR names tensor,
 * found, expected.
 * Cost: the shadow and the encoder's weight are read, 0.1 s for each GB.
 * Owner: the caller, until lut_table_close(); the lut lives longer.
 */
int lut_table_open(struct lut_table *table, const struct lut *lut,
                   const struct lut_layer *layer, struct err *err);
void lut_table_close(struct lut_table *table); /* a zeroed struct is fine */

#endif
