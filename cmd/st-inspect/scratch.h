/*
 * Memory of the threads that count and sum for stats, and what the bit patterns
 * of counted types mean.
 */
#ifndef ST_INSPECT_SCRATCH_H
#define ST_INSPECT_SCRATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"

#define COUNT_TABLES 4
#define COUNT_KEYS   65536

/* A value and how often it occurs. */
struct bin {
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
    uint8_t *piece;   /* [PIECE_NBYTES] */
    double *wide;     /* [CHUNK] */
    uint32_t *tables; /* [COUNT_TABLES][COUNT_KEYS], zero between uses */
    uint64_t *totals; /* [COUNT_KEYS] */
    struct bin *bins; /* [COUNT_KEYS] */
    uint64_t *hist;   /* [MAX_BINS], zero between uses */
    struct err err;   /* the first of this thread; status 0: none */
};

/* Memory for each thread, and what each key of a counted type means. */
struct stats_scratch {
    int n_threads;
    struct thread_scratch *threads;
    struct key_order order[DT_COUNT];
};

/* scratch_open(): some 3 MiB a thread.  -1 with 'err' set (EX_SOFTWARE). */
int scratch_open(struct stats_scratch *s, int n_threads, struct err *err);
void scratch_close(struct stats_scratch *s);

/* scratch_prepare() fills order[dtype], before threads use it. */
void scratch_prepare(struct stats_scratch *s, enum dtype dtype);

/* scratch_error() moves a thread's error to 'err': -1 if there was one. */
int scratch_error(struct stats_scratch *s, struct err *err);

bool is_counted(enum dtype dtype); /* by counts_stats(): up to 16 bits */

#endif
