/* SPDX-License-Identifier: ISC */
/*
 * Adapters: the models of test/ref/lora_cases.py with theirs, against float64
 * logits of merged weights, on the ISA of TU_ISA; the same bits for any
 * threads, chunk and cut; and those that must be refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/kernel/cpu.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/map.h"
#include "core/model/engine.h"
#include "core/model/lora.h"
#include "test/unit/model-ref.h"

#define TOLERANCE 2e-4

/* Calls fn for each line of DIR/NAME. */
static void
each_line(const char *dir, const char *name,
          void (*fn)(void *ctx, const char *dir, char *line), void *ctx)
{
    struct str path = { 0 }, text = { 0 };
    struct err err = { 0 };
    char *save = NULL;

    str_addf(&path, "%s/%s", dir, name);
    if (file_read_all(path.s, 1 << 20, &text, &err))
        tap_ok(0, "%s", err.what);
    for (char *line = text.s ? strtok_r(text.s, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save))
        fn(ctx, dir, line);
    str_free(&text);
    str_free(&path);
}

/* All logits, 'most' tokens at a time; 0 or -1. */
static int
run(const struct sample *m, enum compute compute, int threads, size_t chunk,
    size_t most, float *logits)
{
    const struct engine_options options = { .chunk = chunk,
                                            .compute = compute,
                                            .kv = DT_F32 };
    struct engine *engine = NULL;
    struct session *s = NULL;
    struct par *par = NULL;
    struct err err = { 0 };
    int rc = -1;

    if (!par_open(&par, threads, &err) &&
        !engine_open(&engine, m->model, par, &options, &err)) {
        s = session_new(engine, m->n);
        rc = 0;
    }
    for (size_t at = 0, n; rc == 0 && at < m->n; at += n) {
        n = most < m->n - at ? most : m->n - at;
        rc = session_feed(s, m->ids + at, n, logits + at * m->vocab, n, &err);
    }
    if (rc)
        printf("# %s: %s\n", m->name, err.what);
    session_close(s);
    engine_close(engine);
    par_close(par);
    return rc;
}

static double
largest_error(const struct sample *m)
{
    double worst = 0;

    for (size_t i = 0; i < m->n * m->vocab; i++) {
        double e = fabs(m->first[i] - m->expected[i]);

        if (!(e <= worst)) /* a NaN counts */
            worst = e;
    }
    return worst;
}

static void
test_bits(struct sample *m, enum compute compute, const char *name)
{
    static const struct {
        int threads;
        size_t chunk, most;
    } ways[] = { { 2, 48, SIZE_MAX }, { 3, 7, 30 }, { 1, 16, 1 }, { 2, 1, 9 } };
    size_t n = m->n * m->vocab;
    float *logits = xcalloc(n, sizeof(*logits));
    int same = !run(m, compute, 1, 48, SIZE_MAX, m->first);

    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
        same &= !run(m, compute, ways[i].threads, ways[i].chunk, ways[i].most,
                     logits) &&
                !memcmp(logits, m->first, n * sizeof(*logits));
    tap_ok(same, "%s, %s: the same bits for any -j, chunk and cut", m->name,
           name);
    free(logits);
}

static void
open_adapter(void *ctx, const char *dir, char *line)
{
    struct sample *m = ctx;
    struct err err = { 0 };

    (void)dir;
    tap_ok(!lora_open(m->model, line, &err), "%s: an adapter opens %s", m->name,
           err.what);
}

static void
test_case(void *ctx, const char *dir, char *name)
{
    struct sample m;

    (void)ctx;
    if (!sample_open(&m, dir, name)) {
        struct str path = { 0 };
        double before, after;

        run(&m, COMPUTE_F32, 1, 48, SIZE_MAX, m.first);
        before = largest_error(&m);
        str_addf(&path, "%s/%s", dir, name);
        each_line(path.s, "adapters", open_adapter, &m);
        test_bits(&m, COMPUTE_F32, "f32");
        after = largest_error(&m);
        tap_ok(before > 1 && after <= TOLERANCE,
               "%s: logits are within %g of merged weights' (%.2g; %.2g "
               "without)",
               name, TOLERANCE, after, before);
        test_bits(&m, COMPUTE_BF16, "bf16");
        str_free(&path);
    }
    sample_close(&m);
}

/* "PATH<tab>MESSAGE" */
static void
test_bad(void *ctx, const char *dir, char *line)
{
    char *message = strchr(line, '\t');
    struct str path = { 0 };
    struct model *model;
    struct err err = { 0 };

    (void)ctx;
    *message++ = '\0';
    str_addf(&path, "%s/moe", dir);
    if (model_open(&model, path.s, &err)) {
        tap_ok(0, "%s", err.what);
    } else {
        tap_ok(lora_open(model, line, &err) && err.status == EX_DATAERR &&
                   !strcmp(err.what, message),
               "refused: %s", err.what);
        model_close(model);
    }
    str_free(&path);
}

/* ---- stacks ---- */

static void
put_file(const char *dir, const char *name, const char *text, const void *data,
         size_t nbytes)
{
    struct str path = { 0 };
    size_t n = strlen(text);
    uint8_t size[8];
    FILE *f;

    str_addf(&path, "%s/%s", dir, name);
    f = fopen(path.s, "w");
    put_le64(size, n);
    if (data)
        fwrite(size, 1, sizeof(size), f);
    fwrite(text, 1, n, f);
    if (data)
        fwrite(data, 1, nbytes, f);
    fclose(f);
    str_free(&path);
}

/* Two experts of [4, 2], rank 1: A's rows are theirs, and B's columns; gate
 * has the even rows of B where they take turns, else the first ones. */
static void
test_turns(const char *parent)
{
    static const float numbers[] = { 1, 2, 3, 4, 0, 1, 10, 11, 20, 21, 30, 31 };
    static const float want[2][4] = { { 1, 11, 21, 31 }, { 1, 21, 11, 31 } };
    uint8_t stored[sizeof(numbers)];
    struct str dir = { 0 };
    struct err err = { 0 };

    cvt_from_f32(stored, DT_F32, numbers, sizeof(numbers) / 4);
    str_addf(&dir, "%s/stack", parent);
    mkdir(dir.s, 0777);
    put_file(dir.s, PEFT_CONFIG,
             "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 1, "
             "\"target_parameters\": [\"gate_up_proj\"]}",
             NULL, 0);
#define NAME "base_model.model.model.layers.0.mlp.experts.lora_"
    put_file(dir.s, PEFT_MODEL,
             "{\"" NAME "A.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],"
             "\"data_offsets\":[0,16]},\"" NAME "B.weight\":{\"dtype\":"
             "\"F32\",\"shape\":[4,2],\"data_offsets\":[16,48]}}",
             stored, sizeof(stored));
    for (int turns = 0; turns < 2; turns++) {
        const struct lora_experts x = { NULL, 2, 2, 2, turns };
        struct lora_file f;
        float a[2] = { 0 }, b[4] = { 0 };

        if (lora_file_open(&f, dir.s, -1, &err) == 0 &&
            lora_file_experts(&f, &x, &err) == 0 && f.n_pairs == 4) {
            weight_rows(a, &f.pairs[2].a.w, 0, 1, 2);
            weight_rows(b, &f.pairs[2].b.w, 0, 2, 1);
            weight_rows(b + 2, &f.pairs[3].b.w, 0, 2, 1);
        }
        tap_ok(a[0] == 3 && a[1] == 4 && !memcmp(b, want[turns], sizeof(b)),
               "stack: gate's and up's rows %s %s",
               turns ? "take turns" : "are in order", err.what);
        lora_file_close(&f);
    }
    str_free(&dir);
}

int
main(void)
{
    char dir[] = "/tmp/hf-infer-lora.XXXXXX";
    struct str command = { 0 };
    struct err err = { 0 };

    if (cpu_check(&err)) {
        tap_skip("the models of test/ref/lora_cases.py", err.what);
        return tap_done();
    }
    if (!mkdtemp(dir) || python("test/ref/lora_cases.py", dir))
        tap_ok(0, "test/ref/lora_cases.py runs");
    each_line(dir, "cases", test_case, NULL);
    each_line(dir, "bad", test_bad, NULL);
    test_turns(dir);
    str_addf(&command, "rm -r '%s'", dir);
    tap_ok(system(command.s) == 0, "the models are removed");
    str_free(&command);
    return tap_done();
}
