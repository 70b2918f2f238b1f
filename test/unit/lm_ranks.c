/* SPDX-License-Identifier: ISC */
/*
 * A step that several processes share, without MPI: here they are forked, and
 * ranks.h is shared memory.  All get the bytes of one process.
 */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/model/train/lm.h"
#include "core/rng.h"
#include "core/tty.h"
#include "test/unit/tap.h"

enum {
    MAX_RANKS = 7,
    MAX_SEQS = 13,
    MAX_TOKENS = 12,
    CAP = 1200000,
    MAX_SENT = 3 << 20
};

static struct shared {
    pthread_barrier_t barrier;
    size_t n_sent[MAX_RANKS][MAX_RANKS], n_params[MAX_RANKS];
    double sums[MAX_RANKS][MAX_SEQS], loss[MAX_RANKS];
    float sent[MAX_RANKS][MAX_SENT], grad[MAX_RANKS][CAP];
} * shared;

struct ranks {
    int self, n;
};

/* ---- ranks.h ---- */

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

/* No rank of this test fails by itself. */
int
ranks_agree(struct ranks *r, int rc, struct err *err)
{
    (void)r;
    (void)err;
    return rc;
}

static void
wait_for_all(void)
{
    pthread_barrier_wait(&shared->barrier);
}

void
ranks_sum(struct ranks *r, double *x, size_t n)
{
    if (ranks_count(r) == 1)
        return;
    memcpy(shared->sums[r->self], x, n * sizeof(*x));
    wait_for_all();
    for (size_t i = 0; i < n; i++) {
        x[i] = 0;
        for (int k = 0; k < r->n; k++)
            x[i] += shared->sums[k][i];
    }
    wait_for_all();
}

static size_t
sum_of(const size_t *n, int end)
{
    size_t sum = 0;

    for (int i = 0; i < end; i++)
        sum += n[i];
    return sum;
}

void
ranks_swap(struct ranks *r, const float *send, const size_t *n_send,
           float *recv, const size_t *n_recv)
{
    if (sum_of(n_send, r->n) > MAX_SENT)
        _exit(1);
    memcpy(shared->sent[r->self], send, sum_of(n_send, r->n) * sizeof(*send));
    memcpy(shared->n_sent[r->self], n_send, (size_t)r->n * sizeof(*n_send));
    wait_for_all();
    for (int k = 0; k < r->n; k++) {
        if (shared->n_sent[k][r->self] != n_recv[k])
            _exit(1);
        memcpy(recv, shared->sent[k] + sum_of(shared->n_sent[k], r->self),
               n_recv[k] * sizeof(*recv));
        recv += n_recv[k];
    }
    wait_for_all();
}

void
ranks_gather(struct ranks *r, float *all, const size_t *n)
{
    size_t own = sum_of(n, r->self), at = 0;

    memcpy(shared->sent[r->self], all + own, n[r->self] * sizeof(*all));
    wait_for_all();
    for (int k = 0; k < r->n; at += n[k++])
        memcpy(all + at, shared->sent[k], n[k] * sizeof(*all));
    wait_for_all();
}

/* ---- a step ---- */

struct way {
    size_t rank, n_slices, n_seqs;
    bool back;
    bool again; /* after a step of all sequences */
};

/* As one rank: its loss and gradient are in 'shared' then. */
static int
run(const struct way *way, struct ranks *ranks)
{
    static int32_t ids[MAX_SEQS][MAX_TOKENS], labels[MAX_SEQS][MAX_TOKENS];
    const struct lm_options options = { .lora = { LM_ALL_TARGETS, way->rank, 8,
                                                  false },
                                        .compute = COMPUTE_F32,
                                        .max_tokens = MAX_TOKENS,
                                        .chunk = 20,
                                        .n_slices = way->n_slices,
                                        .ranks = ranks };
    struct lm_seq seqs[MAX_SEQS];
    int self = ranks_self(ranks), rc = -1;
    struct err err = { 0 };
    float *values = NULL;
    struct lm *lm;

    for (size_t i = 0; i < MAX_SEQS; i++) {
        seqs[i] = (struct lm_seq){ .ids = ids[i],
                                   .labels = labels[i],
                                   .n = 3 + i * 5 % (MAX_TOKENS - 2) };
        for (size_t t = 0; t < MAX_TOKENS; t++) {
            ids[i][t] = (int32_t)(1000 * rng_f64(1, i, t));
            /* slice 3 of 8 has no target */
            labels[i][t] = i % 8 == 3 ? LM_NO_LABEL : ids[i][t];
        }
    }
    if (lm_open(&lm, "demo/qwen3-tiny", &options, NULL, &err) == 0) {
        values = xcalloc(lm->n_params, sizeof(*values));
        for (size_t i = 0; i < lm->n_params; i++)
            values[i] = (float)(0.1 * rng_f64(2, 0, i) - 0.05);
        if (lm->n_params <= CAP)
            rc = lm_prepare(lm, values, &err);
        for (int i = 0; rc == 0 && i < 1 + way->again; i++)
            rc = (way->back ? lm_grad : lm_loss)(
                lm, seqs, i == way->again ? way->n_seqs : MAX_SEQS,
                &shared->loss[self], &err);
        if (rc == 0)
            memcpy(shared->grad[self], lm->grad,
                   lm->n_params * sizeof(*values));
        shared->n_params[self] = lm->n_params;
    }
    lm_close(lm);
    free(values);
    if (rc)
        printf("# %s\n", err.what);
    return rc;
}

static bool
run_forked(const struct way *way, int n)
{
    pthread_barrierattr_t attr;
    pid_t pids[MAX_RANKS];
    bool good = true;
    int status;

    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attr, (unsigned)n);
    fflush(stdout);
    for (int i = 0; i < n; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            status = run(way, &(struct ranks){ i, n });
            fflush(stdout);
            _exit(status ? 1 : 0);
        }
    }
    for (int i = 0; i < n; i++)
        if (wait(&status) < 0 || status != 0) { /* others would wait for it */
            good = false;
            for (int k = 0; k < n; k++)
                kill(pids[k], SIGKILL);
        }
    return good;
}

static void
test_way(const struct way *way, int most)
{
    static const int counts[] = { 2, 3, 4, MAX_RANKS };
    static float grad[CAP];
    bool same = true;
    double loss;
    size_t n;

    if (!tap_ok(run(way, NULL) == 0, "one process runs"))
        return;
    n = shared->n_params[0];
    memcpy(grad, shared->grad[0], n * sizeof(*grad));
    loss = shared->loss[0];
    for (size_t k = 0; k < sizeof(counts) / sizeof(*counts); k++) {
        if (counts[k] > most)
            break;
        for (int i = 0; i < counts[k]; i++)
            memset(shared->grad[i], 1, n * sizeof(*grad));
        same &= run_forked(way, counts[k]);
        for (int i = 0; i < counts[k]; i++)
            same &= !memcmp(&shared->loss[i], &loss, sizeof(loss)) &&
                    (!way->back ||
                     !memcmp(shared->grad[i], grad, n * sizeof(*grad)));
    }
    tap_ok(same,
           "%s of %zu sequence%s in %zu slice%s, rank %zu: up to %d processes "
           "have the bytes of one",
           way->back ? "gradient" : "loss", way->n_seqs, plural(way->n_seqs),
           way->n_slices, plural(way->n_slices), way->rank, most);
}

int
main(void)
{
    const struct way ways[] = {
        { 2, 1, 3, true, false },
        { 2, 3, 13, true, false },
        { 2, 8, 13, true, false },
        { 2, 8, 5, true, false },
        { 2, 11, 13, true, false },
        { 2, 4096, 7, true, false },
        { 2, 8, 1, true, false },
        { 2, 8, 8, true, true }, /* one of seven ranks has no target */
        { 2, 8, 13, false, false },
        { 2, 8, 2, false, false },
    };

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        tap_ok(0, "memory is shared");
        return tap_done();
    }
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
        test_way(&ways[i], tap_slow() || tap_few() ? 3 : MAX_RANKS);
    /* over a window of 2^20 numbers */
    test_way(&(struct way){ 120, 8, 7, true, false }, 3);
    return tap_done();
}
