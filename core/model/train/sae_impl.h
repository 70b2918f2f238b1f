/* SPDX-License-Identifier: ISC */
/*
 * struct sae_work from inside: what the files of sae.h share.
 */
#ifndef CORE_MODEL_TRAIN_SAE_IMPL_H
#define CORE_MODEL_TRAIN_SAE_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/kernel/gemm.h"
#include "core/kernel/sums.h"
#include "core/model/latents.h"
#include "core/model/train/sae.h"

/* Active latents of rows: those of row r are idx, v [begin[r] .. + n[r]),
 * latents ascending. */
struct sae_active {
    uint32_t *idx;
    float *v;
    size_t *begin; /* [rows] */
    uint32_t *n;   /* [rows] */
};

/* The same by latents: those of latent i are row, h [first[i] - base ..
 * first[i + 1] - base), rows ascending.  As many latents at a time as 'cap' has
 * room for. */
struct sae_by_latent {
    size_t *first; /* [n + 1] */
    size_t base, cap;
    uint32_t *row;   /* [cap] */
    float *h;        /* [cap] */
    uint32_t *taken; /* [rows] of a row's active ones, how many were */
};

/* What the latents that are dead when a step begins take part in. */
struct sae_dead {
    size_t n;
    uint32_t *latent; /* [n], ascending */
    size_t *before;   /* [latents + 1] how many of them are under one */
    size_t k;         /* active ones a row, at most */

    /* memory, when there are some for the first time */
    float *pre; /* [SAE_PRE] of rows of a chunk, or more for many latents */
    size_t n_pre;
    struct sae_active active; /* [rows, aux_k] */
    struct sae_by_latent by;
    double variance; /* sum |e - mean e|^2 */
    float *error;    /* [rows, d]: e^ - e */
    uint64_t *keys;  /* [threads, topk_cap(aux_k)] */
    void *memory;
    size_t nbytes;
};

struct sae_work {
    struct gemm *gemm;
    struct par *par;
    size_t threads;
    struct sae_sizes max;

    /* the batch */
    const float *x;
    size_t rows;
    double *mean;    /* [d] */
    double variance; /* sum |x - mean|^2 */

    struct latents_work *latents;
    size_t chunk;               /* rows encoded at once */
    uint64_t *keys, *room;      /* batchtopk's */
    struct topk_shared all;     /* batchtopk's */
    struct topk_offers *offers; /* [threads] */
    uint64_t *offered;          /* [threads, TOPK_OFFERS] */

    struct sae_active active;
    struct sae_by_latent by;
    struct sae_dead dead;
    float *error;    /* [rows, d]: x^ - x */
    double *part;    /* [blocks of rows, d] */
    double *sums;    /* [d] */
    double *row_sum; /* [rows] */
    float *grads;    /* [threads, 2, d] */
    float *back;     /* [groups of latents, d] */
    double *norm2;   /* [n] of a latent's gradients */
    float *shift;    /* [d] b_dec's gradient */
    void *memory;
    size_t nbytes;
};

#define SAE_SWAPS (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)

#define SAE_ROWS  128 /* of sums in f64 */
#define SAE_GROUP 16  /* latents that one thread moves */
#define SAE_PRE   ((size_t)4 << 20)

/* sae_column_sums() is sums[c] = sum over rows of weight[r] * x[r][c] in f64;
 * weight may be NULL.  x [rows, d]; the order is that of the rows. */
void sae_column_sums(struct sae_work *w, const float *x, const double *weight,
                     size_t rows);

/* sae_distances() is row_sum[r] = |x[r] - mean|^2. */
void sae_distances(struct sae_work *w, const float *x, const double *mean,
                   size_t rows);

/* sae_sum() adds n numbers, in their order. */
double sae_sum(const double *x, size_t n);

/* sae_encode.c: the active latents of the batch, and of the dead ones.  Returns
 * the least that batchtopk kept, or 0. */
double sae_encode(struct sae_work *w, struct sae_trainer *t);

/* sae_dead.c: which are dead; -1 with 'err' set (EX_SOFTWARE). */
int sae_find_dead(struct sae_work *w, const struct sae_trainer *t,
                  struct err *err);
void sae_dead_close(struct sae_work *w);

/* sae_count() counts what is active of each of n latents in 'rows' rows;
 * sae_sort() then sorts those from 'from' on, a multiple of SAE_GROUP, by
 * latents, as far as there is room; returns the first that is not among them.
 */
void sae_count(struct sae_by_latent *by, const struct sae_active *a,
               size_t rows, size_t n);
size_t sae_sort(struct sae_by_latent *by, const struct sae_active *a,
                size_t rows, size_t n, size_t from);

/* sae_grad.c: reconstruction and loss; then gradients, and the parameters'
 * move. */
void sae_reconstruct(struct sae_work *w, struct sae_trainer *t,
                     struct sae_record *r);
void sae_move(struct sae_work *w, struct sae_trainer *t, struct sae_record *r);

#endif
