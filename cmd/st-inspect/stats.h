/* SPDX-License-Identifier: ISC */
/*
 * Statistics of a tensor.  NaN and infinities are counted; everything else is
 * over the finite elements.  stats.c has the verb, and types of 32 and 64 bits;
 * counts.c types of up to 16 bits, ranks.c quantiles of 32-bit types, hist.c
 * histograms.
 */
#ifndef ST_INSPECT_STATS_H
#define ST_INSPECT_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/select.h"

#define COUNT_TABLES 4
#define COUNT_KEYS   65536

struct tensor_stats {
    uint64_t n, n_finite, n_nan, n_inf, n_zero;
    double min, max, mean, std; /* NaN when n_finite is 0; std is over n */
    double quantiles[MAX_QUANTILES];
    bool known; /* false: a type without numbers, and nothing else is set */
    bool has_quantiles;
    double lo, hi;  /* outer edges of the histogram */
    uint64_t *hist; /* [cmd->n_bins]; NULL: none wanted */
};

/* A value and how often it occurs. */
struct value_count {
    double v;
    uint64_t n;
};

/* The bit patterns ("keys") of a counted type in the order of their values:
 * sign and magnitude for floats, with NaNs at both ends; two's complement for
 * integers; or as they are. */
struct key_order {
    double *values;  /* [rank]; NULL: the type is not used */
    uint16_t *keys;  /* [rank] */
    uint16_t *ranks; /* [key] */
};

struct thread_scratch {
    uint8_t *piece;             /* [PIECE_NBYTES] */
    double *f64;                /* [CHUNK] */
    uint32_t *tables;           /* [COUNT_TABLES][COUNT_KEYS], zero between */
    uint64_t *totals;           /* [COUNT_KEYS] */
    struct value_count *values; /* [COUNT_KEYS] */
    uint64_t *hist;             /* [MAX_BINS], zero between uses */
    struct err err;             /* the thread's first; status 0: none */
};

/* Memory for each thread, and what each key of a counted type means. */
struct stats_scratch {
    int n_threads;
    struct thread_scratch *threads;
    struct key_order order[DT_COUNT];
};

/* scratch_open() allocates some 3 MiB a thread: -1 with 'err' set if there is
 * no memory.  's' is zeroed before, and scratch_close() frees it after an error
 * as well. */
int scratch_open(struct stats_scratch *s, int n_threads, struct err *err);
void scratch_close(struct stats_scratch *s);

/* A tensor, and who computes. */
struct stats_job {
    struct tensor_stats *st;
    struct view v;
    const struct inspect_cmd *cmd;
    struct stats_scratch *scratch; /* errors go there */
    struct par *par;               /* NULL: only the thread 'thread' */
    int thread;
    size_t first; /* piece or chunk of the tensor, of those now computed */
};

/* stats_of() fills the job's 'st', zeroed but for 'hist'; the result does not
 * depend on threads. */
void stats_of(struct stats_job *j);

/* stats_for() is par_for_thread() by all threads of the job; stats_thread()
 * says whether the i-th is one. */
void stats_for(const struct stats_job *j, size_t n, size_t grain,
               void (*fn)(void *ctx, size_t begin, size_t end, int thread),
               void *ctx);
bool stats_thread(const struct stats_job *j, int i);

/* is_counted(): a type of 8 or 16 bits, whose statistics counts_stats()
 * computes. */
bool is_counted(enum dtype dtype);
void counts_stats(struct stats_job *j);

/* counts_prepare() fills order[dtype], before threads use it. */
void counts_prepare(struct stats_scratch *s, enum dtype dtype);

/* counts_drain() adds a thread's tables to 'totals' and clears them. */
void counts_drain(uint64_t *totals, uint32_t *tables, size_t n_keys);

/* between() is the value at the place 'at', a and b being those at the whole
 * numbers around it: numpy's linear method, in its formula, for its bits. */
double between(double a, double b, double at);

/* ranks_quantiles() sets the quantiles of a 32-bit type with finite elements,
 * after everything else. */
void ranks_quantiles(struct stats_job *j);

/* hist_range() sets lo and hi from min and max, hist_bin() is the bin of n_bins
 * that v in [lo, hi] falls into: both as numpy. */
void hist_range(struct tensor_stats *st);
size_t hist_bin(const struct tensor_stats *st, size_t n_bins, double v);

/* hist_rows() adds name, edges, count and bar of each bin, hist_plot() a
 * picture of characters; hist_svg() writes a picture of all tensors of 'sel',
 * stats [sel->n]: -1 with 'err' set if that fails.  'out' is still the
 * caller's. */
void hist_rows(struct record *row, const struct tensor_stats *st, size_t n_bins,
               const struct st_tensor *t);
void hist_plot(struct str *to, const struct tensor_stats *st, size_t n_bins,
               const struct st_tensor *t);
int hist_svg(struct out *out, const struct inspect_cmd *cmd,
             const struct selection *sel, const struct tensor_stats *stats,
             struct err *err);

#endif
