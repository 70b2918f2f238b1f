/* SPDX-License-Identifier: ISC */
/*
 * st-inspect-speed: what one thread hashes and counts of a cached file of 16
 * BF16 and 4 F32 tensors, in ratio to reading it, in turns in the same run.
 * CPU time, so that a busy neighbour does not count.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/hash.h"
#include "cmd/st-inspect/stats.h"
#include "core/format/stw.h"
#include "core/kernel/cpu.h"
#include "core/mem.h"
#include "core/rng.h"
#include "test/bench/bench.h"

enum { N_BF16 = 16, N_F32 = 4, ROUNDS = 7 };

#define N_ELEMENTS ((size_t)8 << 20) /* of a tensor */

static void
die(const struct err *err)
{
    fprintf(stderr, "st-inspect-speed: %s\n", err->what);
    exit(err->status);
}

/* Sums of four uniform numbers: about as bell-shaped as weights are. */
static void
make_file(const char *path)
{
    uint64_t shape[1] = { N_ELEMENTS };
    uint16_t *bf16 = xcalloc(N_ELEMENTS, sizeof(*bf16));
    float *f32 = xcalloc(N_ELEMENTS, sizeof(*f32));
    struct stw *w = stw_new();
    struct err err;
    char name[16];

    for (size_t i = 0; i < N_ELEMENTS; i++) {
        uint64_t r = rng_u64(1, 0, i);

        f32[i] = ((float)(r & 0xffff) + (float)(r >> 16 & 0xffff) +
                  (float)(r >> 32 & 0xffff) + (float)(r >> 48) - 131070) *
                 0x1p-22f;
        bf16[i] = f32_to_bf16(f32[i]);
    }
    for (int i = 0; i < N_BF16 + N_F32; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        if (stw_add(w, name, i < N_BF16 ? DT_BF16 : DT_F32, 1, shape, &err) < 0)
            die(&err);
    }
    if (stw_open(w, path, 0, &err) < 0)
        die(&err);
    for (int i = 0; i < N_BF16 + N_F32; i++)
        if (stw_write(w, i, i < N_BF16 ? (void *)bf16 : (void *)f32,
                      N_ELEMENTS * (i < N_BF16 ? 2 : 4), 0, &err) < 0)
            die(&err);
    if (stw_commit(w, &err) < 0)
        die(&err);
    stw_free(w);
    free(bf16);
    free(f32);
}

static void
probe(const struct st *st)
{
    static uint8_t piece[PIECE_NBYTES];
    struct err err;

    for (size_t at = 0, n; at < st->file_size; at += n) {
        n = st->file_size - at < sizeof(piece) ? st->file_size - at
                                               : sizeof(piece);
        if (file_pread(st->fd, st->path, piece, n, at, &err) < 0)
            die(&err);
    }
}

static void
hash(const struct st *st, bool tensors)
{
    size_t n = tensors ? st->n_tensors : 0;
    struct hash_range *r = xcalloc(n + 1, sizeof(*r));
    struct err err;

    r[n] = hash_part(st, NULL);
    for (size_t i = 0; i < n; i++)
        r[i] = hash_part(st, &st->tensors[i]);
    if (hash_st(r, n + 1, st, HASH_XXH3, NULL, &err) < 0)
        die(&err);
    free(r);
}

static void
stats(const struct st *st, enum dtype dtype, struct stats_scratch *s)
{
    static const struct inspect_cmd cmd = {
        .n_quantiles = 5, .quantiles = { 0.01, 0.25, 0.5, 0.75, 0.99 }
    };

    for (size_t i = 0; i < st->n_tensors; i++) {
        struct stdir_tensor t = { &st->tensors[i], st };
        struct tensor_stats one = { 0 };
        struct stats_job job = {
            .st = &one, .v = view_of(&t), .cmd = &cmd, .scratch = s
        };

        if (job.v.dtype == dtype)
            stats_of(&job);
    }
    if (s->threads[0].err.status)
        die(&s->threads[0].err);
}

static void
speed_row(const char *what, const char *shape, double speed, double read)
{
    row(what, shape, isa_name(cpu_isa()), 1, speed * 1e-9, "GB/s", speed / read,
        "read(2)");
}

/* The best of the rounds of each, which take turns. */
static void
measure(const struct st *st, struct stats_scratch *s)
{
    double best[5] = { 1e9, 1e9, 1e9, 1e9, 1e9 };
    double bf16 = (double)N_BF16 * N_ELEMENTS * 2;
    double f32 = (double)N_F32 * N_ELEMENTS * 4;
    double all = (double)st->file_size;
    double read;

    for (int r = 0; r < ROUNDS; r++)
        for (int k = 0; k < 5; k++) {
            double t = cpu_s();

            if (k == 0)
                probe(st);
            else if (k < 3)
                hash(st, k == 1);
            else
                stats(st, k == 3 ? DT_BF16 : DT_F32, s);
            t = cpu_s() - t;
            best[k] = t < best[k] ? t : best[k];
        }
    read = all / best[0];
    row("read(2), cached", "0.4 GB", "-", 1, read * 1e-9, "GB/s", 0, "");
    speed_row("hash", "20 tensors", all / best[1], read);
    speed_row("hash --whole", "0.4 GB", all / best[2], read);
    speed_row("stats", "BF16", bf16 / best[3], read);
    speed_row("stats", "F32", f32 / best[4], read);
}

int
main(void)
{
    const char *tmp = getenv("TMPDIR");
    struct str path = { 0 };
    struct stats_scratch s = { 0 };
    struct err err;
    struct st st;

    str_addf(&path, "%s/st-inspect-speed.%d.safetensors", tmp ? tmp : "/tmp",
             (int)getpid());
    make_file(path.s);
    if (st_open(&st, path.s, &err) < 0 || scratch_open(&s, 1, &err) < 0)
        die(&err);
    unlink(path.s);
    counts_prepare(&s, DT_BF16);
    measure(&st, &s);
    scratch_close(&s);
    st_close(&st);
    str_free(&path);
    return 0;
}
