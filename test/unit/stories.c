/* SPDX-License-Identifier: ISC */
/*
 * A trained model of 260K parameters (Llama, BF16, head_dim 8, inner size 172)
 * against logits and greedy continuations that were computed in float64.
 * Skipped where the data are not.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/js.h"
#include "core/kernel/cpu.h"
#include "core/kernel/vec.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/model/model.h"
#include "test/unit/data.h"
#include "test/unit/tap.h"

#define TOLERANCE 2e-4

static const struct model *model;
static struct engine *engine;

/* The ids of a JSON array. */
static size_t
ids_of(const json_t *array, int32_t *ids, size_t max)
{
    size_t n = json_array_size(array);

    for (size_t i = 0; i < n && i < max; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return n < max ? n : max;
}

static void
test_logits(const json_t *expected)
{
    struct map file;
    struct err err = { 0 };
    struct session *s;
    int32_t ids[512];
    size_t n = ids_of(json_object_get(expected, "ids"), ids, 512);
    size_t vocab = (size_t)model->config.vocab_size;
    float *logits = xcalloc(n * vocab, sizeof(*logits));
    double worst = 0;

    s = session_new(engine, n);
    if (map_open(&file, data_path("stories260K/logits.f32"), &err) ||
        file.size != n * vocab * 4 ||
        session_feed(s, ids, n, logits, n, &err)) {
        tap_ok(0, "stories260K runs: %s", err.what);
    } else {
        for (size_t i = 0; i < n * vocab; i++)
            worst = fmax(worst, fabs((double)logits[i] -
                                     (double)le_f32(file.data + 4 * i)));
        tap_ok(worst <= TOLERANCE && logits[0] == logits[0],
               "stories260K: logits are within %g of float64 (%.2g)", TOLERANCE,
               worst);
    }
    session_close(s);
    map_close(&file);
    free(logits);
}

static void
test_greedy(const char *what, const json_t *prompt, const json_t *continuation)
{
    size_t vocab = (size_t)model->config.vocab_size;
    float *logits = xcalloc(vocab, sizeof(*logits));
    struct session *s = session_new(engine, 1024);
    struct err err = { 0 };
    int32_t ids[512], next[512];
    size_t n = ids_of(prompt, ids, 512), same = 0;
    size_t n_next = ids_of(continuation, next, 512);

    if (session_feed(s, ids, n, logits, 1, &err)) {
        tap_ok(0, "%s: %s", what, err.what);
        goto out;
    }
    while (same < n_next) {
        int32_t id = (int32_t)vec_argmax(logits, vocab);

        if (id != next[same] || session_feed(s, &id, 1, logits, 1, &err))
            break;
        same++;
    }
    tap_ok(n_next > 0 && same == n_next,
           "%s: %zu of %zu greedy ids are the reference's", what, same, n_next);
out:
    session_close(s);
    free(logits);
}

static void
test_all(const json_t *expected, const json_t *greedy)
{
    char what[80];

    test_logits(expected);
    test_greedy("expected.json", json_object_get(expected, "greedy_prompt"),
                json_object_get(expected, "greedy"));
    for (size_t i = 0; i < json_array_size(greedy); i++) {
        const json_t *g = json_array_get(greedy, i);

        snprintf(what, sizeof(what), "greedy.json: prompt %zu", i);
        test_greedy(what, json_object_get(g, "prompt_ids"),
                    json_object_get(g, "greedy_ids"));
    }
}

int
main(void)
{
    struct model *m = NULL;
    struct par *par = NULL;
    const struct engine_options options = { .chunk = 64,
                                            .compute = COMPUTE_F32,
                                            .kv = DT_F32 };
    struct err err = { 0 };
    const char *dir = data_path("stories260K");
    json_t *expected, *greedy;

    if (access(dir, F_OK)) {
        tap_skip("stories260K", "no such TEST_DATA");
        return tap_done();
    }
    if (cpu_check(&err)) {
        tap_skip("stories260K", err.what);
        return tap_done();
    }
    expected = js_load(data_path("stories260K/expected.json"), &err);
    greedy = js_load(data_path("stories260K/greedy.json"), &err);
    if (!expected || !greedy || model_open(&m, dir, &err) ||
        par_open(&par, 2, &err) ||
        engine_open(&engine, m, par, &options, &err)) {
        tap_ok(0, "stories260K opens: %s", err.what);
    } else {
        model = m;
        test_all(expected, greedy);
    }
    engine_close(engine);
    par_close(par);
    model_close(m);
    json_decref(greedy);
    json_decref(expected);
    return tap_done();
}
