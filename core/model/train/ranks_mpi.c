/* SPDX-License-Identifier: ISC */
/* What ranks.h says, by MPI: Open MPI, MPICH, or another with their interface.
 */
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/model/train/ranks.h"
#include "core/sig.h"

/* Numbers of one sum: counts are int. */
#define MAX_SUM ((size_t)1 << 20)

struct ranks {
    int self, n;
    char host[MPI_MAX_PROCESSOR_NAME];
    int *n_sent, *sent_at, *n_received, *received_at; /* [n] */
};

static bool is_closed;

/* ---- the beginning and the end ---- */

/* By default MPI ends the job with a status of its own. */
static void
on_error(MPI_Comm *comm, int *code, ...)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;

    MPI_Error_string(*code, text, &n);
    err_warn("%s: all ranks end", text);
    MPI_Abort(*comm, EX_TEMPFAIL);
}

/* The last messages are out, and no launcher ends the others because one is
 * gone. */
static void
at_end(void)
{
    if (is_closed)
        MPI_Finalize();
    else
        MPI_Abort(MPI_COMM_WORLD, EX_SOFTWARE);
}

int
ranks_open(struct ranks **to, struct err *err)
{
    struct ranks *r = xcalloc(1, sizeof(*r));
    MPI_Errhandler handler;
    int provided, n;

    *to = r;
    /* its threads are not ours: none of ours but this calls it */
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) ||
        atexit(at_end))
        return err_set(err, EX_SOFTWARE, "MPI cannot be started");
    MPI_Comm_create_errhandler(on_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Errhandler_free(&handler);
    MPI_Comm_rank(MPI_COMM_WORLD, &r->self);
    MPI_Comm_size(MPI_COMM_WORLD, &r->n);
    MPI_Get_processor_name(r->host, &n);
    r->n_sent = xcalloc((size_t)r->n * 4, sizeof(*r->n_sent));
    r->sent_at = r->n_sent + r->n;
    r->n_received = r->sent_at + r->n;
    r->received_at = r->n_received + r->n;
    if (provided < MPI_THREAD_FUNNELED)
        return err_set(err, EX_SOFTWARE, "this MPI does not support threads");
    return 0;
}

void
ranks_close(struct ranks *r)
{
    if (!r)
        return;
    is_closed = true;
    free(r->n_sent);
    free(r);
}

int
ranks_self(const struct ranks *r)
{
    return r ? r->self : 0;
}

int
ranks_count(const struct ranks *r)
{
    return r ? r->n : 1;
}

/* ---- agreement ---- */

/* The largest of what each rank failed with, and was stopped by: a signal that
 * only one of them got is all of theirs. */
static int
worst_of(int failed)
{
    int worst[] = { failed, sig_reason() };

    MPI_Allreduce(MPI_IN_PLACE, worst, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (worst[1])
        sig_adopt(worst[1]);
    return worst[0];
}

int
ranks_agree(struct ranks *r, int rc, struct err *err)
{
    int first;

    if (!r)
        return rc;
    first = r->n - worst_of(rc ? r->n - r->self : 0);
    if (first == r->n)
        return 0;
    if (first == r->self && first > 0) {
        struct err own = *err;

        err_set(err, own.status, "rank %d (%s): %s", first, r->host, own.what);
    }
    MPI_Bcast(err, sizeof(*err), MPI_BYTE, first, MPI_COMM_WORLD);
    return -1;
}

/* Where they differ, of the lines of both. */
static int
differs(const char *own, const char *other, struct err *err)
{
    size_t i = 0, line = 0, name;

    for (; own[i] && own[i] == other[i]; i++)
        if (own[i] == '\n')
            line = i + 1;
    own += line;
    other += line;
    name = strcspn(own, "\t\n") + 1;
    if (name > strcspn(own, "\n") || strncmp(own, other, name) != 0)
        return err_set(err, EX_DATAERR, "has other settings than rank 0");
    return err_set(err, EX_DATAERR, "%.*s is \"%.*s\" (rank 0: \"%.*s\")",
                   (int)name - 1, own, (int)strcspn(own + name, "\n"),
                   own + name, (int)strcspn(other + name, "\n"), other + name);
}

int
ranks_same(struct ranks *r, const char *lines, struct err *err)
{
    unsigned long n = strlen(lines) + 1;
    char *first;
    int rc = 0;

    if (!r)
        return 0;
    MPI_Bcast(&n, 1, MPI_UNSIGNED_LONG, 0, MPI_COMM_WORLD);
    first = xcalloc(n, 1);
    if (r->self == 0)
        memcpy(first, lines, n);
    MPI_Bcast(first, (int)n, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (strcmp(lines, first) != 0)
        rc = differs(lines, first, err);
    free(first);
    return ranks_agree(r, rc, err);
}

bool
ranks_stop(struct ranks *r)
{
    if (!r)
        return sig_stop();
    /* what sig_stop() says may be newer than what all know */
    return worst_of(sig_stop()) != 0;
}

/* ---- numbers ---- */

void
ranks_sum(struct ranks *r, double *x, size_t n)
{
    if (!r || r->n == 1)
        return;
    for (size_t i = 0; i < n; i += MAX_SUM)
        MPI_Allreduce(MPI_IN_PLACE, x + i, (int)smaller(n - i, MAX_SUM),
                      MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* 'n' as MPI has it: counts, and where each begins. */
static void
lay_out(const struct ranks *r, const size_t *n, int *count, int *at)
{
    size_t sum = 0;

    for (int i = 0; i < r->n; i++) {
        count[i] = (int)n[i];
        at[i] = (int)sum;
        sum += n[i];
    }
}

void
ranks_swap(struct ranks *r, const float *send, const size_t *n_send,
           float *recv, const size_t *n_recv)
{
    lay_out(r, n_send, r->n_sent, r->sent_at);
    lay_out(r, n_recv, r->n_received, r->received_at);
    MPI_Alltoallv(send, r->n_sent, r->sent_at, MPI_FLOAT, recv, r->n_received,
                  r->received_at, MPI_FLOAT, MPI_COMM_WORLD);
}

void
ranks_gather(struct ranks *r, float *all, const size_t *n)
{
    lay_out(r, n, r->n_received, r->received_at);
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, r->n_received,
                   r->received_at, MPI_FLOAT, MPI_COMM_WORLD);
}
