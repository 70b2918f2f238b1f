/* SPDX-License-Identifier: ISC */
/*
 * engine [DIR]: speed and memory on a random model of Qwen3-0.6B's
 * shape (written to a temporary directory without DIR): decode beside a read of
 * the same bytes, a prompt beside the FMA peak, in the same run; and of those
 * of GPT-2 and, where there is memory, Gemma 2 2B; and of packed weights in
 * turns with BF16's. engine one decode|f32|bf16
 * DIR THREADS  prints tokens a second alone, of decode or of a prompt: what
 * test/bench/peers.py measures others against
 */
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/bench/feed.h"

#define N_BATCH  16
#define N_ROWS   64  /* that begin with .. */
#define N_PREFIX 500 /* .. the same tokens */

static const struct engine_options many = { .chunk = CHUNK, .kv = DT_F32 };

/* The first n CPUs of those that a process may have. */
static void
take_cpus(cpu_set_t *some, const cpu_set_t *all, int n)
{
    CPU_ZERO(some);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(some) < n; i++)
        if (CPU_ISSET(i, all))
            CPU_SET(i, some);
}

/* A process that never rests on one CPU. */
static pid_t
hog(const cpu_set_t *cpu)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sched_setaffinity(0, sizeof(*cpu), cpu);
    for (volatile uint64_t i = 0;; i++)
        continue;
}

/* Two threads on two CPUs, of which the hog has one: they cannot flee. */
static void
neighbour_line(const struct model *model, double alone_s)
{
    cpu_set_t all, two, its;
    struct engine *engine;
    struct par *par;
    struct err err = { 0 };
    struct speed s;
    pid_t pid;

    if (sched_getaffinity(0, sizeof(all), &all) < 0) {
        perror("bench: beside a hog: left out");
        return;
    }
    take_cpus(&two, &all, 2);
    take_cpus(&its, &all, 1);
    pid = hog(&its);
    if (pid < 0) {
        perror("bench: beside a hog: left out");
        return;
    }
    sched_setaffinity(0, sizeof(two), &two); /* the threads will have it, too */
    check(par_open(&par, 2, &err), &err);
    check(engine_open(&engine, model, par, &one, &err), &err);
    s = decode(engine, model, par, 0, 0);
    engine_close(engine);
    row("  beside a hog", shape, isa_name(cpu_isa()), 2, 1 / s.token_s,
        "token/s", alone_s / s.token_s, "1 thread alone");
    par_close(par);
    sched_setaffinity(0, sizeof(all), &all);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* 16 sequences at once, against as many tokens one by one. */
static void
batch_line(const struct model *model, int threads, double token_s)
{
    size_t vocab = (size_t)model->config.vocab_size;
    float *logits = xcalloc(N_BATCH * vocab, sizeof(*logits));
    struct feed feeds[N_BATCH];
    int32_t ids[N_BATCH];
    struct engine *engine;
    struct par *par;
    struct err err = { 0 };
    double v[ROUNDS];

    check(par_open(&par, threads, &err), &err);
    check(engine_open(&engine, model, par, &many, &err), &err);
    for (int i = 0; i < N_BATCH; i++) {
        ids[i] = i;
        feeds[i] = (struct feed){ .session = session_new(engine, 64),
                                  .ids = &ids[i],
                                  .n = 1,
                                  .n_logits = 1,
                                  .generated = true };
    }
    for (int i = 0; i < ROUNDS; i++) {
        double start = clock_s();

        check(engine_feed(engine, feeds, N_BATCH, NULL, logits, &err), &err);
        v[i] = clock_s() - start;
    }
    row("  batch of 16", shape, isa_name(cpu_isa()), threads,
        N_BATCH / median(v, ROUNDS), "token/s",
        N_BATCH * token_s / median(v, ROUNDS), "one by one");
    for (int i = 0; i < N_BATCH; i++)
        session_close(feeds[i].session);
    engine_close(engine);
    par_close(par);
    free(logits);
}

/*
 * 64 prompts that begin with the same 500 tokens, and have 12 of their own, as
 * hf-infer --jsonl feeds them, in turns with one alone, which is each.
 */
static void
prefix_line(const struct model *model, int threads)
{
    double alone[ROUNDS], shared[ROUNDS];
    struct session *forks[N_ROWS - 1];
    struct feed feeds[N_ROWS - 1];
    float *logits = xcalloc(N_ROWS * (size_t)model->config.vocab_size, 4);
    struct prompt p;
    struct par *par;
    struct err err = { 0 };

    check(par_open(&par, threads, &err), &err);
    prompt_open(&p, model, par, COMPUTE_F32);
    for (int i = 0; i < ROUNDS; i++) {
        double start;

        alone[i] = N_PROMPT / prompt_run(&p);
        start = clock_s();
        prompt_run(&p);
        for (size_t k = 0; k < N_ROWS - 1; k++) {
            forks[k] = session_fork(p.session, N_PREFIX, N_PROMPT);
            feeds[k] = (struct feed){ .session = forks[k],
                                      .ids = p.ids + k,
                                      .n = N_PROMPT - N_PREFIX,
                                      .n_logits = 1 };
        }
        check(engine_feed(p.engine, feeds, N_ROWS - 1, NULL, logits, &err),
              &err);
        shared[i] = clock_s() - start;
        for (size_t k = 0; k < N_ROWS - 1; k++)
            session_close(forks[k]);
    }
    row("  64 begin alike", "500 of 512, f32", isa_name(cpu_isa()), threads,
        N_ROWS * N_PROMPT / median(shared, ROUNDS), "token/s",
        N_ROWS * median(alone, ROUNDS) / median(shared, ROUNDS), "each alone");
    prompt_close(&p);
    par_close(par);
    free(logits);
}

/* How much the other threads help a prompt, in turns with one alone. */
static void
threads_line(const struct model *model, int threads, enum compute compute)
{
    double all[ROUNDS], one_alone[ROUNDS], v;
    struct prompt of_all, of_one;
    struct par *par, *par_one;
    struct err err = { 0 };

    check(par_open(&par, threads, &err), &err);
    check(par_open(&par_one, 1, &err), &err);
    prompt_open(&of_all, model, par, compute);
    prompt_open(&of_one, model, par_one, compute);
    for (int i = 0; i < ROUNDS; i++) {
        one_alone[i] = prompt_run(&of_one);
        all[i] = prompt_run(&of_all);
    }
    v = median(all, ROUNDS);
    row("  of threads", compute == COMPUTE_F32 ? "512, f32" : "512, bf16",
        isa_name(cpu_isa()), threads, v, "token/s",
        v / median(one_alone, ROUNDS), "1 thread");
    prompt_close(&of_all);
    prompt_close(&of_one);
    par_close(par);
    par_close(par_one);
}

/* Everything from the directory's name to the first token, files being cached.
 */
static void
start_line(const char *dir, int threads)
{
    double seconds[ROUNDS];
    struct err err = { 0 };

    for (int i = 0; i < ROUNDS; i++) {
        double start = clock_s();
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
        logits = xcalloc((size_t)model->config.vocab_size, 4);
        check(session_feed(s, &id, 1, logits, 1, &err), &err);
        seconds[i] = clock_s() - start;
        free(logits);
        session_close(s);
        engine_close(engine);
        model_close(model);
        par_close(par);
    }
    row("hf-infer start", "to first token", isa_name(cpu_isa()), threads,
        median(seconds, ROUNDS) * 1e3, "ms", 0, "");
}

/* Many tokens at once, after as many one by one. */
static void
many_lines(const struct model *model, int threads, double token_s)
{
    batch_line(model, threads, token_s);
    prompt_line(model, threads, COMPUTE_F32);
    prompt_line(model, threads, COMPUTE_BF16);
    prefix_line(model, threads);
}

/* A token and a prompt of the model with packed weights, lm_head's too, in
 * turns with it. */
static void
packed_line(const struct model *model, const char *dir, const char *form,
            int threads)
{
    double token[ROUNDS], ratio[ROUNDS], speed[ROUNDS], times[ROUNDS];
    const struct model *of[2] = { model };
    struct str command = { 0 }, what = { 0 };
    char *to = scratch_name("engine-packed");
    struct engine *engines[2];
    struct prompt prompts[2];
    struct model *packed;
    struct par *par;
    struct err err = { 0 };

    if (!mkdtemp(to))
        exit(1);
    str_addf(&command,
             "${BUILD:-build}/st-convert -fq --head --weights %s -o %s/m %s "
             ">/dev/null #",
             form, to, dir);
    bench_shell(command.s, "");
    str_clear(&command);
    str_addf(&command, "%s/m", to);
    check(model_open(&packed, command.s, &err), &err);
    of[1] = packed;
    check(par_open(&par, threads, &err), &err);
    for (int i = 0; i < 2; i++) {
        check(engine_open(&engines[i], of[i], par, &one, &err), &err);
        prompt_open(&prompts[i], of[i], par, COMPUTE_F32);
        prompt_run(&prompts[i]);
    }
    for (int i = 0; i < ROUNDS; i++) {
        double plain = decode(engines[0], model, par, 0, 0).token_s;

        token[i] = decode(engines[1], packed, par, 0, 0).token_s;
        ratio[i] = plain / token[i];
        plain = prompt_run(&prompts[0]);
        speed[i] = prompt_run(&prompts[1]);
        times[i] = speed[i] / plain;
    }
    str_addf(&what, "  in %s", form);
    row(what.s, "decode", isa_name(cpu_isa()), threads,
        1 / median(token, ROUNDS), "token/s", median(ratio, ROUNDS), "bf16's");
    row(what.s, "prompt, f32", isa_name(cpu_isa()), threads,
        median(speed, ROUNDS), "token/s", median(times, ROUNDS), "bf16's");
    for (int i = 0; i < 2; i++) {
        engine_close(engines[i]);
        prompt_close(&prompts[i]);
    }
    model_close(packed);
    par_close(par);
    bench_shell("rm -r", to);
    str_free(&command);
    str_free(&what);
    free(to);
}

static void
packed_lines(const struct model *model, const char *dir, int all)
{
    static const char *const forms[] = { "int4", "int8", "fp8" };

    for (size_t i = 0; i < 3; i++) {
        packed_line(model, dir, forms[i], 1);
        if (all > 1)
            packed_line(model, dir, forms[i], all);
    }
}

static void
run(const char *dir, const char *name)
{
    struct model *model;
    struct str path = { 0 };
    struct err err = { 0 };
    double alone_s, token_s;
    int all = par_default();

    shape = name;
    str_addf(&path, "%s/model.safetensors", dir);
    check(map_open(&weights, path.s, &err), &err);
    probe(NULL, weights.size); /* brings the file into memory */
    check(model_open(&model, dir, &err), &err);
    token_s = alone_s = decode_line(model, 1);
    many_lines(model, 1, alone_s);
    if (all > 1) {
        token_s = decode_line(model, 2);
        neighbour_line(model, alone_s);
        threads_line(model, 2, COMPUTE_F32);
        threads_line(model, 2, COMPUTE_BF16);
    }
    if (all > 2) {
        many_lines(model, 2, token_s);
        token_s = decode_line(model, all);
    }
    if (all > 1)
        many_lines(model, all, token_s);
    packed_lines(model, dir, all);
    model_close(model);
    start_line(dir, all);
    map_close(&weights);
    str_free(&path);
}

static int
one_speed(const char *what, const char *dir, int threads)
{
    struct model *model;
    struct engine *engine;
    struct prompt p;
    struct par *par;
    struct err err = { 0 };
    double v[ROUNDS], speed;

    check(par_open(&par, threads, &err), &err);
    check(model_open(&model, dir, &err), &err);
    if (!strcmp(what, "decode")) {
        check(engine_open(&engine, model, par, &one, &err), &err);
        speed = 1 / decode(engine, model, par, 0, 0).token_s;
        engine_close(engine);
    } else {
        prompt_open(&p, model, par,
                    strcmp(what, "f32") ? COMPUTE_BF16 : COMPUTE_F32);
        prompt_run(&p);
        for (int i = 0; i < ROUNDS; i++)
            v[i] = prompt_run(&p);
        speed = median(v, ROUNDS);
        prompt_close(&p);
    }
    printf("%.2f\n", speed);
    model_close(model);
    par_close(par);
    return 0;
}

int
main(int argc, char **argv)
{
    static const struct {
        const char *name, *maker;
        size_t mib; /* of the file */
    } shapes[] = {
        { "Qwen3-0.6B", MAKER "qwen3-0.6b", 2000 },
        { "GPT-2", MAKER "gpt2", 240 },
        { "Gemma 2 2B", MAKER "gemma-2-2b", 5000 },
    };
    char *made;

    if (argc == 5 && !strcmp(argv[1], "one"))
        return one_speed(argv[2], argv[3], atoi(argv[4]));
    if (argc > 1) {
        run(argv[1], argc > 2 ? argv[2] : shapes[0].name);
        return 0;
    }
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        made = scratch_name("engine");
        if (!mkdtemp(made))
            return 1;
        if (room_for_model(made, shapes[i].name, shapes[i].mib)) {
            bench_shell(shapes[i].maker, made);
            (i ? run_other : run)(made, shapes[i].name);
        }
        bench_shell("rm -r", made);
        free(made);
    }
    return 0;
}
