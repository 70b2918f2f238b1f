/*
 * hf-infer-decode [DIR]: speed and memory on a random model of Qwen3-0.6B's
 * shape (written to a temporary folder without DIR), each speed beside a read
 * of the same bytes in the same run.
 */
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cmd/hf-infer/model.h"
#include "core/kernel/cpu.h"
#include "core/kernel/vec.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/str.h"

#define N_DECODE 24
#define N_PROMPT 512
#define CHUNK    256
#define PIECE    ((size_t)1 << 20)

typedef uint64_t lanes __attribute__((vector_size(64)));

static const struct engine_options one = { 1, COMPUTE_F32, DT_F32 };
static const struct engine_options many = { CHUNK, COMPUTE_F32, DT_F32 };
static struct map weights;
static volatile uint64_t sink; /* keeps the reading alive */

static double
now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void
check(int rc, const struct err *err)
{
    if (!rc)
        return;
    fprintf(stderr, "hf-infer-decode: %s\n", err->what);
    exit(1);
}

static int
by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double
median(double *x, size_t n)
{
    qsort(x, n, sizeof(*x), by_value);
    return x[n / 2];
}

/* Four streams, prefetched 2 KiB ahead: the fastest way to read that was found
 * (test/bench/gemv.c), so that the ratio is to the machine's limit. */
static void
read_pieces(void *ctx, size_t begin, size_t end, int thread)
{
    const char *p = (const char *)weights.data + begin * PIECE;
    size_t n = (end - begin) * PIECE / 4;
    lanes s[4] = { { 0 } };

    (void)ctx;
    (void)thread;
    for (size_t i = 0; i < n; i += sizeof(lanes))
        for (size_t j = 0; j < 4; j++) {
            const char *q = p + j * n + i;

            __builtin_prefetch(q + 2048, 0, 2);
            s[j] ^= *(const lanes *)(const void *)q;
        }
    s[0] ^= s[1] ^ s[2] ^ s[3];
    sink = s[0][0] ^ s[0][1] ^ s[0][2] ^ s[0][3] ^ s[0][4] ^ s[0][5] ^ s[0][6] ^
           s[0][7];
}

/* Seconds to read all weights once. */
static double
probe(struct par *par)
{
    double start = now();

    par_for(par, weights.size / PIECE, 1, read_pieces, NULL);
    return now() - start;
}

static long
anonymous_kib(void)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[200];
    long kib = -1;

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "Anonymous: %ld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

struct speed {
    double token_s, probe_s, worst_s; /* medians; the slowest token */
};

/* Tokens one by one, a probe after each, so that neighbours cost both. */
static struct speed
decode(struct engine *engine, const struct model *model, struct par *par,
       int probes)
{
    double token[N_DECODE], read[N_DECODE];
    float *logits = xcalloc((size_t)model_config(model)->vocab_size, 4);
    struct session *s;
    struct err err = { 0 };
    struct speed speed;
    int32_t id = 1;

    s = session_new(engine, N_DECODE + 1);
    check(session_feed(s, &id, 1, logits, 1, &err), &err);
    for (size_t i = 0; i < N_DECODE; i++) {
        double start = now();

        check(session_step(s, id, logits, &err), &err);
        id = (int32_t)vec_argmax(logits,
                                 (size_t)model_config(model)->vocab_size);
        token[i] = now() - start;
        read[i] = probes ? probe(par) : 0;
    }
    session_close(s);
    free(logits);
    speed.token_s = median(token, N_DECODE);
    speed.worst_s = token[N_DECODE - 1];
    speed.probe_s = median(read, N_DECODE);
    return speed;
}

static double
decode_line(const struct model *model, int threads)
{
    struct engine *engine;
    struct par *par;
    struct err err = { 0 };
    struct speed s;

    check(par_open(&par, threads, &err), &err);
    probe(par);
    check(engine_open(&engine, model, par, &one, &err), &err);
    s = decode(engine, model, par, 1);
    engine_close(engine);
    printf("decode\t-j %d\t%.1f token/s\t%.1f GB/s\tread %.1f GB/s\t"
           "ratio %.2f\n",
           threads, 1 / s.token_s, (double)weights.size / s.token_s * 1e-9,
           (double)weights.size / s.probe_s * 1e-9, s.probe_s / s.token_s);
    fflush(stdout);
    par_close(par);
    return s.token_s;
}

/* A process that never rests on CPU 0. */
static pid_t
hog(void)
{
    pid_t pid = fork();
    cpu_set_t set;

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    sched_setaffinity(0, sizeof(set), &set);
    for (volatile uint64_t i = 0;; i++)
        continue;
}

static void
neighbour_line(const struct model *model, double alone_s)
{
    struct engine *engine;
    struct par *par;
    struct err err = { 0 };
    struct speed s;
    pid_t pid = hog();

    check(par_open(&par, 2, &err), &err);
    check(engine_open(&engine, model, par, &one, &err), &err);
    s = decode(engine, model, par, 0);
    engine_close(engine);
    printf("decode\t-j 2 beside a busy process\t%.1f token/s\t"
           "%.2f of -j 1 alone\tslowest token %.0f ms\n",
           1 / s.token_s, alone_s / s.token_s, s.worst_s * 1e3);
    fflush(stdout);
    par_close(par);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* A prompt, then tokens after it: speeds at that length, and memory. */
static void
prompt_line(const struct model *model, int threads)
{
    int32_t ids[N_PROMPT];
    float *logits = xcalloc((size_t)model_config(model)->vocab_size, 4);
    struct engine *engine;
    struct par *par;
    struct session *s;
    struct err err = { 0 };
    double start, prompt_s, after[8];

    for (int i = 0; i < N_PROMPT; i++)
        ids[i] = i * 7919 % 150000;
    check(par_open(&par, threads, &err), &err);
    check(engine_open(&engine, model, par, &many, &err), &err);
    s = session_new(engine, N_PROMPT + 8);
    start = now();
    check(session_feed(s, ids, N_PROMPT, logits, 1, &err), &err);
    prompt_s = now() - start;
    for (int i = 0; i < 8; i++) {
        start = now();
        check(session_feed(s, ids, 1, logits, 1, &err), &err);
        after[i] = now() - start;
    }
    printf("prompt of %d\t-j %d\t%.0f token/s\tthen %.1f token/s\t"
           "anonymous memory %ld MiB\n",
           N_PROMPT, threads, N_PROMPT / prompt_s, 1 / median(after, 8),
           anonymous_kib() >> 10);
    fflush(stdout);
    session_close(s);
    engine_close(engine);
    par_close(par);
    free(logits);
}

/* Everything from the folder's name to the first token, files being cached. */
static void
start_line(const char *dir, int threads)
{
    double seconds[5], open_s = 0;
    struct err err = { 0 };

    for (int i = 0; i < 5; i++) {
        double start = now();
        struct model *model;
        struct session *s;
        struct engine *engine;
        struct par *par;
        int32_t id = 1;
        float *logits;

        check(par_open(&par, threads, &err), &err);
        check(model_open(&model, dir, &err), &err);
        check(engine_open(&engine, model, par, &many, &err), &err);
        s = session_new(engine, 64);
        open_s = now() - start;
        logits = xcalloc((size_t)model_config(model)->vocab_size, 4);
        check(session_feed(s, &id, 1, logits, 1, &err), &err);
        seconds[i] = now() - start;
        free(logits);
        session_close(s);
        engine_close(engine);
        model_close(model);
        par_close(par);
    }
    printf("first token\t-j %d\t%.0f ms\tof which open %.1f ms\n", threads,
           median(seconds, 5) * 1e3, open_s * 1e3);
    fflush(stdout);
}

static void
run(const char *dir)
{
    struct model *model;
    struct str path = { 0 };
    struct err err = { 0 };
    double alone_s;

    str_addf(&path, "%s/model.safetensors", dir);
    check(map_open(&weights, path.s, &err), &err);
    printf("# %s, %s\n", dir, isa_name(cpu_isa()));
    probe(NULL); /* brings the file into memory */
    check(model_open(&model, dir, &err), &err);
    alone_s = decode_line(model, 1);
    decode_line(model, 2);
    neighbour_line(model, alone_s);
    prompt_line(model, 1);
    prompt_line(model, 2);
    model_close(model);
    start_line(dir, 1);
    start_line(dir, 2);
    map_close(&weights);
    str_free(&path);
}

static void
shell(const char *what, const char *dir)
{
    struct str command = { 0 };

    str_addf(&command, "%s %s", what, dir);
    if (system(command.s)) {
        fprintf(stderr, "hf-infer-decode: failed: %s\n", command.s);
        exit(1);
    }
    str_free(&command);
}

int
main(int argc, char **argv)
{
    char made[] = "/tmp/hf-infer-decode.XXXXXX";

    if (argc > 1) {
        run(argv[1]);
        return 0;
    }
    if (!mkdtemp(made))
        return 1;
    shell("${PYTHON:-python3} scripts/random-model.py --shape qwen3-0.6b",
          made);
    run(made);
    shell("rm -r", made);
    return 0;
}
