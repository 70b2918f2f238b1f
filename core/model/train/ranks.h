/* SPDX-License-Identifier: ISC */
/*
 * The processes of a training run, ranks 0, 1, .., which mpirun or srun has
 * started on one machine or on several.
 *
 * `make MPI=1` links ranks_mpi.c, the only file that calls MPI, in place of
 * ranks.c, where a run is one process.  NULL is a run of one process, too.
 *
 * All functions but ranks_self() and ranks_count() are called by every rank, in
 * the same order, by the thread that has opened them, and wait for the others.
 * One that MPI fails in ends all ranks with EX_TEMPFAIL.
 */
#ifndef CORE_MODEL_TRAIN_RANKS_H
#define CORE_MODEL_TRAIN_RANKS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

struct ranks;

/*
 * ranks_open() joins the other processes: once in a process.  0, or -1 with
 * 'err' set (EX_SOFTWARE).
 * Owner: the caller, until ranks_close(); NULL is fine.  A rank that ends
 * without having called that ends all of them, with EX_SOFTWARE.
 */
int ranks_open(struct ranks **ranks, struct err *err);
void ranks_close(struct ranks *ranks);

int ranks_self(const struct ranks *ranks);  /* which of them this process is */
int ranks_count(const struct ranks *ranks); /* how many there are */

/*
 * ranks_agree() is the end of what each did by itself, with 'rc' 0 or, and
 * 'err' set, -1: 0 if all succeeded.  Else -1, and 'err' is that of the first
 * that failed, with "rank 2 (HOST): " before the line of any but rank 0.
 * ranks_same() compares lines "NAME\tVALUE\n" with rank 0's: -1 with 'err' set
 * (EX_DATAERR) names the first rank that has others, and what differs.
 */
int ranks_agree(struct ranks *ranks, int rc, struct err *err);
int ranks_same(struct ranks *ranks, const char *lines, struct err *err);

/* ranks_stop(): was sig_stop() true in any of them?  Then it is in all. */
bool ranks_stop(struct ranks *ranks);

/*
 * ranks_sum() adds all ranks' x [n], in an order of its own: exact where all
 * but one are 0. ranks_swap() sends n_send[r] numbers to each rank r, and
 * receives n_recv[r] from it: both arrays have those of rank 0 first, then
 * those of 1, .. ranks_gather() completes 'all' everywhere: rank r has n[r]
 * numbers of it, in their place after those of the ranks before. Not more than
 * INT_MAX numbers in one call of the last two.
 */
void ranks_sum(struct ranks *ranks, double *x, size_t n);
void ranks_swap(struct ranks *ranks, const float *send, const size_t *n_send,
                float *recv, const size_t *n_recv);
void ranks_gather(struct ranks *ranks, float *all, const size_t *n);

#endif
