/* SPDX-License-Identifier: ISC */
/*
 * saev-read-speed: views of a cached dump down a pipe and what reads all of it
 * in ratio to cat, shuffles in ratio to those, and 4 KiB rows in random order,
 * in ratio to a read(2) of each; in turns in the same run.  With --direct the
 * rows come from the disk: a shuffle has no page cache to map there.
 * SAEV_MIB is the dump's size, default 512, in steps of 128.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/saev-read/cmd.h"
#include "cmd/saev-read/gather.h"
#include "cmd/saev-read/select.h"
#include "core/clock.h"
#include "core/kernel/cpu.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/rng.h"
#include "test/bench/bench.h"

enum { SHARD_IMGS = 256, D = 1024, IMG_ROWS = 128, ROUNDS = 5, FEW = 2 };

#define SHARD_MIB  128 /* SHARD_IMGS images */
#define SHARD_ROWS ((size_t)SHARD_IMGS * IMG_ROWS)
#define N_RAND     ((size_t)256 << 10)
#define BATCH      ((size_t)1024) /* rows */

static const struct {
    const char *what, *shape, *args;
    double part; /* of the dump's bytes */
    int of;      /* which one is the limit */
} pipes[] = {
    { "cat | wc -c", "all", NULL, 1, 0 },
    { "rows | wc -c", "all", "--raw", 1, 0 },
    { "rows | wc -c", "image, 1 layer", "--raw --view image --layer 1",
      63 / 128.0, 0 },
    { "rows | wc -c", "f16 of f32", "--raw --dtype f16", 1, 0 },
    { "shuffle | wc -c", "in memory", "--raw --shuffle --mem 1T", 1, 1 },
    { "shuffle | wc -c", "by disk, 64 MiB", "--raw --shuffle --mem 64M", 1, 1 },
    { "window | wc -c", "4096 rows", "--raw --window 4096", 1, 1 },
    { "verify --deep", "1 thread", "verify --deep -j 1", 1, 0 },
    { "stats", "1 thread, read 2x", "stats -j 1", 1, 0 },
    { "rows --direct", "all", "--raw --direct", 1, 0 },
    { "shuffle --direct", "in memory", "--raw --direct --shuffle --mem 1T", 1,
      9 },
    { "shuffle --direct", "by disk, 64 MiB",
      "--raw --direct --shuffle --mem 64M", 1, 9 },
};
enum { N_PIPES = sizeof(pipes) / sizeof(pipes[0]), FIRST_DIRECT = 9 };

static void
die(const struct err *err)
{
    fprintf(stderr, "saev-read-speed: %s\n", err->what);
    exit(err->status);
}

static void
put(const char *dir, const char *name, const void *data, size_t nbytes,
    size_t times)
{
    struct str path = { 0 };
    struct err err;
    FILE *f;

    str_addf(&path, "%s/%s", dir, name);
    f = fopen(path.s, "w");
    for (size_t i = 0; f && i < times; i++)
        if (fwrite(data, 1, nbytes, f) != nbytes)
            break;
    if (!f || fclose(f) != 0) {
        err_sys(&err, EX_IOERR, "%s", path.s);
        die(&err);
    }
    str_free(&path);
}

static void
make_dump(const char *dir, size_t n_shards)
{
    struct str meta = { 0 };
    size_t n = (size_t)IMG_ROWS * D;
    float *img = xcalloc(n, sizeof(*img));
    char name[32];

    for (size_t i = 0; i < n; i++)
        img[i] = (float)(rng_u64(1, 0, i) >> 40) * 0x1p-24f;
    str_addf(&meta,
             "{\"vit_family\":\"clip\",\"vit_ckpt\":\"c\",\"layers\":[0,1],"
             "\"n_patches_per_img\":63,\"cls_token\":true,\"d_vit\":1024,"
             "\"seed\":0,\"n_imgs\":%zu,\"max_patches_per_shard\":32768,"
             "\"data\":\"\"}",
             n_shards * SHARD_IMGS);
    put(dir, "metadata.json", meta.s, meta.n, 1);
    str_free(&meta);
    for (size_t i = 0; i < n_shards; i++) {
        saev_shard_name(name, i);
        put(dir, name, img, n * sizeof(*img), SHARD_IMGS);
    }
    free(img);
}

static double
run_s(const char *dir, const char *args)
{
    struct str line = { 0 };
    double t;

    if (args)
        str_addf(&line, "saev-read -q %s '%s' | wc -c >/dev/null", args, dir);
    else
        str_addf(&line, "cat '%s'/acts* | wc -c >/dev/null", dir);
    t = clock_s();
    if (system(line.s) != 0)
        fprintf(stderr, "saev-read-speed: failed: %s\n", line.s);
    t = clock_s() - t;
    str_free(&line);
    return t;
}

static void
measure_pipes(const char *dir, size_t n_shards)
{
    double nbytes = (double)(n_shards * SHARD_ROWS * D * 4);
    double best[N_PIPES];

    for (int r = 0; r < ROUNDS; r++)
        for (int k = 0; k < N_PIPES; k++) {
            double t;

            if (k >= FIRST_DIRECT && r >= FEW)
                break; /* a disk takes long, and is the same each time */
            t = run_s(dir, pipes[k].args);
            best[k] = r == 0 || t < best[k] ? t : best[k];
        }
    for (int k = 0; k < N_PIPES; k++) {
        double speed = nbytes * pipes[k].part / best[k];
        int of = pipes[k].of;
        double limit = nbytes * pipes[of].part / best[of];

        row(pipes[k].what, pipes[k].shape, isa_name(cpu_isa()), 1, speed * 1e-9,
            "GB/s", k ? speed / limit : 0, pipes[of].what);
    }
}

static void
read_in_order(struct dump_target *t)
{
    static char piece[256 << 10];
    struct str path = { 0 };
    struct err err;

    for (size_t i = 0; i < t->dir.saev.n_shards; i++) {
        int fd = saevdir_shard(&t->dir, i, &err);

        saevdir_shard_path(&t->dir, i, &path);
        for (size_t at = 0; at < t->dir.saev.shard_nbytes; at += sizeof(piece))
            if (fd < 0 ||
                file_pread(fd, path.s, piece, sizeof(piece), at, &err) < 0)
                die(&err);
        close(fd);
    }
    str_free(&path);
}

/* Each row by a read(2) of its own, in the order in which they are wanted. */
static void
read_rows(struct dump_target *t, const size_t *rows, char *buf)
{
    int *fds = xcalloc(t->dir.saev.n_shards, sizeof(*fds));
    struct err err;

    for (size_t i = 0; i < t->dir.saev.n_shards; i++)
        if ((fds[i] = saevdir_shard(&t->dir, i, &err)) < 0)
            die(&err);
    for (size_t i = 0; i < N_RAND; i++) {
        struct saev_place p = target_at(t, rows[i]);

        if (file_pread(fds[p.shard], t->dir.path, buf + i % BATCH * D * 4,
                       D * 4, p.offset, &err) < 0)
            die(&err);
    }
    for (size_t i = 0; i < t->dir.saev.n_shards; i++)
        close(fds[i]);
    free(fds);
}

static void
gather(struct gather *g, const size_t *rows, char *buf)
{
    struct err err;

    for (size_t i = 0; i < N_RAND; i += BATCH)
        if (gather_rows(g, rows + i, BATCH, buf, &err) < 0)
            die(&err);
}

static void
measure_gather(const char *dir)
{
    struct read_cmd cmd = { .tokens = SAEV_ALL,
                            .layer = SAEV_ALL_LAYERS,
                            .imgs = { 1, 0 } }; /* all of them */
    enum { IN_ORDER, EACH, GATHER, N = 4 }; /* GATHER: one thread, then all */
    int n_threads[N] = { 1, 1, 1, par_default() };
    double best[N], speed[N];
    size_t *rows = xcalloc(N_RAND, sizeof(*rows));
    struct gather g[N] = { 0 };
    struct dump_target t;
    struct err err;
    char *buf = mem_big(BATCH, D * 4, "rows", &err);

    if (!buf || target_open(&t, &cmd, dir, &err) < 0)
        die(&err);
    for (size_t i = 0; i < N_RAND; i++)
        rows[i] = rng_u64(2, 0, i) % t.n_rows;
    for (int k = GATHER; k < N; k++)
        if (gather_open(&g[k], &t, n_threads[k], false, &err) < 0)
            die(&err);
    for (int r = 0; r < ROUNDS; r++)
        for (int k = 0; k < N; k++) {
            double s = clock_s();

            if (k == IN_ORDER)
                read_in_order(&t);
            else if (k == EACH)
                read_rows(&t, rows, buf);
            else
                gather(&g[k], rows, buf);
            s = clock_s() - s;
            best[k] = r == 0 || s < best[k] ? s : best[k];
        }
    for (int k = 0; k < N; k++)
        speed[k] = (double)(k == IN_ORDER ? t.n_rows : N_RAND) / best[k];
    row("read(2) in order", "4 KiB rows", "-", 1, speed[IN_ORDER] * 1e-6,
        "M row/s", 0, "");
    row("read(2) of each", "4 KiB, random", "-", 1, speed[EACH] * 1e-6,
        "M row/s", speed[EACH] / speed[IN_ORDER], "in order");
    for (int k = GATHER; k < N; k++)
        row("random rows", "4 KiB rows", "-", n_threads[k], speed[k] * 1e-6,
            "M row/s", speed[k] / speed[EACH], "read(2) of each");
    for (int k = GATHER; k < N; k++)
        gather_close(&g[k]);
    target_close(&t);
    mem_big_free(buf, BATCH, D * 4);
    free(rows);
}

static void
remove_dump(const char *dir, size_t n_shards)
{
    char name[32] = "metadata.json";
    struct str path = { 0 };

    for (size_t i = 0; i <= n_shards; i++) {
        str_clear(&path);
        str_addf(&path, "%s/%s", dir, name);
        unlink(path.s);
        saev_shard_name(name, i);
    }
    rmdir(dir);
    str_free(&path);
}

int
main(void)
{
    char *dir = scratch_name("saev-read-speed");
    const char *size = getenv("SAEV_MIB");
    size_t n_shards = size ? strtoul(size, NULL, 10) / SHARD_MIB : 4;

    n_shards = n_shards ? n_shards : 1;
    if (!mkdtemp(dir)) {
        perror(dir);
        return 1;
    }
    make_dump(dir, n_shards);
    measure_pipes(dir, n_shards);
    measure_gather(dir);
    remove_dump(dir, n_shards);
    free(dir);
    return 0;
}
