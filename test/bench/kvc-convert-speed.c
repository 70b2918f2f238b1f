/* SPDX-License-Identifier: ISC */
/*
 * kvc-convert-speed FILE.pth: the whole tool, from start to a synced .bin, in
 * ratio to cp(1) of the checkpoint, in turns in the same run.
 */
#include <unistd.h>

#include "core/str.h"
#include "test/bench/bench.h"

enum { ROUNDS = 7 };

/* Seconds of a command; 'to' is gone afterwards. */
static double
run_s(const char *line, const char *to)
{
    double t = clock_s();

    if (system(line) != 0) {
        fprintf(stderr, "kvc-convert-speed: failed: %s\n", line);
        exit(1);
    }
    t = clock_s() - t;
    unlink(to);
    return t;
}

int
main(int argc, char **argv)
{
    char *to = scratch_name("kvc");
    struct str cp = { 0 }, convert = { 0 };
    double took[2][ROUNDS];
    int fd;

    if (argc != 2)
        return 2;
    fd = mkstemp(to);
    if (fd < 0)
        return 1;
    close(fd);
    unlink(to);
    str_addf(&cp, "cp '%s' '%s'", argv[1], to);
    str_addf(&convert, "kvc-convert --input '%s' --output '%s'", argv[1], to);
    for (int i = 0; i < ROUNDS; i++) {
        took[0][i] = run_s(cp.s, to);
        took[1][i] = run_s(convert.s, to);
    }
    row("cp(1)", "178 MB .pth", "-", 1, median(took[0], ROUNDS) * 1e3, "ms", 0,
        "");
    row("kvc-convert", "178 MB .pth", "-", 1, median(took[1], ROUNDS) * 1e3,
        "ms", median(took[1], ROUNDS) / median(took[0], ROUNDS), "cp(1)");
    str_free(&cp);
    str_free(&convert);
    free(to);
    return 0;
}
