/* SPDX-License-Identifier: ISC */
/*
 * st_open() on headers of 311 and 100 000 tensors, as time, peak memory and
 * in ratio to reading the header's bytes into fresh memory and scanning them
 * once with memchr(); and st-inspect list of them, as a user waits for it, in
 * ratio to st_open() and the start of a process that only says its version.
 *   bench/st [ROUNDS]
 */
#include "core/format/st.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/le.h"
#include "core/mem.h"
#include "core/str.h"
#include "test/bench/bench.h"

static char *path;
static char tool[4096]; /* st-inspect */

static double
now_ms(void)
{
    return 1e3 * clock_s();
}

/* A model of n tensors, 11 a layer; shuffled: header and data in any order. */
static void
write_model(size_t n, int shuffled)
{
    static const char *const parts[11] = {
        "input_layernorm",
        "mlp.down_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
        "post_attention_layernorm",
        "self_attn.k_norm",
        "self_attn.k_proj",
        "self_attn.o_proj",
        "self_attn.q_norm",
        "self_attn.q_proj",
        "self_attn.v_proj",
    };
    size_t *order = xcalloc(n, sizeof(*order));
    struct str s = { 0 };
    uint64_t x = 1;
    int fd;

    for (size_t i = 0; i < n; i++) {
        size_t k;

        x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
        k = shuffled ? (size_t)(x >> 33) % (i + 1) : i;
        order[i] = order[k];
        order[k] = i;
    }
    str_add(&s, "\0\0\0\0\0\0\0", 8);
    str_adds(&s, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < n; i++)
        str_addf(&s,
                 ",\"model.layers.%zu.%s.weight\":{\"dtype\":\"BF16\","
                 "\"shape\":[1,1],\"data_offsets\":[%zu,%zu]}",
                 order[i] / 11, parts[order[i] % 11], 2 * order[i],
                 2 * order[i] + 2);
    str_addc(&s, '}');
    put_le64(s.s, s.n - 8);
    fd = open(path, O_WRONLY | O_TRUNC);
    if (fd < 0 || write(fd, s.s, s.n) != (ssize_t)s.n ||
        ftruncate(fd, (off_t)(s.n + 2 * n)) < 0) {
        perror(path);
        exit(1);
    }
    close(fd);
    str_free(&s);
    free(order);
}

static double
time_open(size_t n)
{
    double start = now_ms();
    struct err err = { 0 };
    struct st st;

    if (st_open(&st, path, &err) < 0 || st.n_tensors != n) {
        printf("%s\n", err.what);
        exit(1);
    }
    start = now_ms() - start;
    st_close(&st);
    return start;
}

static double
time_probe(size_t *nbytes)
{
    double start = now_ms();
    struct err err;
    char *p;
    int fd = file_open(path, nbytes, &err);

    p = xmalloc(*nbytes);
    if (file_pread(fd, path, p, *nbytes, 0, &err) < 0 ||
        memchr(p + 8, '\1', *nbytes - 8))
        exit(1);
    free(p);
    close(fd);
    return now_ms() - start;
}

/* Peak memory of a process that opens the file once, in MiB. */
static double
memory_mib(size_t n)
{
    struct rusage usage;
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        time_open(n);
        _exit(0);
    }
    wait4(pid, &status, 0, &usage);
    return (double)usage.ru_maxrss / 1024;
}

/* From a shell's fork to the end, nothing being shown. */
static double
time_tool(char *verb, char *file)
{
    char *argv[] = { tool, verb, file, NULL };
    posix_spawn_file_actions_t actions;
    double start = now_ms();
    int status = 0;
    pid_t pid;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&pid, tool, &actions, NULL, argv, environ) != 0 ||
        waitpid(pid, &status, 0) < 0 || status != 0) {
        fprintf(stderr, "bench/st: %s %s has failed\n", tool, verb);
        exit(1);
    }
    posix_spawn_file_actions_destroy(&actions);
    return now_ms() - start;
}

static void
bench(const char *name, size_t n, int shuffled, int rounds)
{
    double best = 1e9, probe = 1e9, list = 1e9, begin = 1e9, mib;
    char verb[] = "list", version[] = "-V";
    size_t nbytes = 0;

    write_model(n, shuffled);
    mib = memory_mib(n);
    for (int i = 0; i < rounds; i++) {
        best = min(best, time_open(n));
        probe = min(probe, time_probe(&nbytes));
        list = min(list, time_tool(verb, path));
        begin = min(begin, time_tool(version, NULL));
    }
    row("st_open", name, "-", 1, best, "ms", probe / best, "reading it");
    row("st_open", name, "-", 1, mib, "MiB", (double)nbytes / (mib * 0x1p20),
        "the header's size");
    row("st-inspect list", name, "-", 1, list, "ms", (begin + best) / list,
        "a start and st_open");
}

int
main(int argc, char **argv)
{
    int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 20;
    int fd = mkstemp(path = scratch_name("bench-st"));
    const char *build = getenv("BUILD");

    snprintf(tool, sizeof(tool), "%s/st-inspect", build ? build : "build");
    close(fd);
    bench("311 tensors", 311, 0, rounds);
    bench("100k tensors", 100000, 0, rounds);
    bench("100k shuffled", 100000, 1, rounds);
    unlink(path);
    free(path);
    return 0;
}
