/* SPDX-License-Identifier: ISC */
/*
 * saev-write-speed: a stream of 512 MiB from a pipe into shards, in ratio to dd
 * with its best block size into one file, waiting for the disk and not; in
 * turns in the same run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/str.h"
#include "test/bench/bench.h"

enum { ROUNDS = 3, N_MIB = 512 };

/* %1$s: a directory with "in" and "meta.json"; each leaves "out" behind. */
static const struct {
    const char *what, *shape, *line;
    int of; /* which one is the limit; itself: none */
} runs[] = {
    { "dd", "no fsync",
      "cat '%1$s/in' | dd bs=1M iflag=fullblock of='%1$s/out' 2>/dev/null", 0 },
    { "saev-write", "--no-sync",
      "cat '%1$s/in' | saev-write -q --no-sync -m '%1$s/meta.json' "
      "-o '%1$s/out' >/dev/null",
      0 },
    { "dd", "fsync",
      "cat '%1$s/in' | dd bs=1M iflag=fullblock conv=fsync of='%1$s/out' "
      "2>/dev/null",
      2 },
    { "saev-write", "f32",
      "cat '%1$s/in' | saev-write -q -m '%1$s/meta.json' -o '%1$s/out' "
      ">/dev/null",
      2 },
    { "saev-write", "f32, --manifest",
      "cat '%1$s/in' | saev-write -q --manifest -m '%1$s/meta.json' "
      "-o '%1$s/out' >/dev/null",
      2 },
};
enum { N_RUNS = sizeof(runs) / sizeof(runs[0]) };

static int
shell(const char *fmt, const char *dir)
{
    char line[1024];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(line, sizeof(line), fmt, dir);
#pragma GCC diagnostic pop
    return system(line);
}

static int
make_input(const char *dir)
{
    static const char meta[] =
        "printf '{\"vit_family\":\"x\",\"vit_ckpt\":\"x\",\"layers\":[0],"
        "\"n_patches_per_img\":256,\"cls_token\":false,\"d_vit\":1024,"
        "\"seed\":0,\"n_imgs\":512,\"max_patches_per_shard\":32768,"
        "\"data\":\"\"}' >'%1$s/meta.json'";

    return shell("head -c 512M /dev/zero >'%1$s/in'", dir) || shell(meta, dir);
}

int
main(void)
{
    char *dir = scratch_name("saev-write-speed");
    double best[N_RUNS], bytes = N_MIB * 1048576.0;

    if (!mkdtemp(dir) || make_input(dir) != 0) {
        perror(dir);
        return 1;
    }
    for (int r = 0; r < ROUNDS; r++)
        for (int k = 0; k < N_RUNS; k++) {
            double t;

            shell("rm -rf '%1$s/out'; sync -f '%1$s'", dir);
            t = clock_s();
            if (shell(runs[k].line, dir) != 0)
                fprintf(stderr, "saev-write-speed: %s failed\n", runs[k].what);
            t = clock_s() - t;
            best[k] = r == 0 || t < best[k] ? t : best[k];
        }
    for (int k = 0; k < N_RUNS; k++)
        row(runs[k].what, runs[k].shape, "-", 1, bytes / best[k] * 1e-9, "GB/s",
            runs[k].of == k ? 0 : best[runs[k].of] / best[k], "dd");
    shell("rm -rf '%1$s'", dir);
    free(dir);
    return 0;
}
