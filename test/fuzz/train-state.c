/* SPDX-License-Identifier: ISC */
/* core/model/train/state: a hostile header of a training run's state; what is
 * read can be drawn, and comes back from a file as it was. */
#include "core/model/train/log.h"
#include "core/model/train/state.h"
#include "test/fuzz/files.h"

#define N_TENSORS    6
#define N_PARAMETERS (2 * (2 * 2 + 3 * 2) + (3 * 2 + 2 * 2)) /* of 1 expert */

/* Of an adapter of rank 2 of one expert, 2 x 3. */
static const struct train_tensor tensors[N_TENSORS] = {
    { "gate_lora_a", { 1, 2, 2 }, 3 }, { "gate_lora_b", { 1, 3, 2 }, 3 },
    { "up_lora_a", { 1, 2, 2 }, 3 },   { "up_lora_b", { 1, 3, 2 }, 3 },
    { "down_lora_a", { 1, 2, 3 }, 3 }, { "down_lora_b", { 1, 2, 2 }, 3 },
};

static void
state_new(struct train_state *s, struct adamw *a)
{
    struct err err;

    *a = (struct adamw){ 0 };
    MUST(adamw_open(a, N_PARAMETERS, &err) == 0);
    *s = (struct train_state){ .program = "moe-sft train",
                               .table = &train_step_table,
                               .format = "moe-sft state 1",
                               .arithmetic = "8 lanes",
                               .any_isa = true,
                               .tensors = tensors,
                               .n_tensors = N_TENSORS,
                               .adamw = a };
    train_state_set(s, "--lr", "0.5", NULL);
    train_state_set(s, "base", "00ff", "base");
}

static void
check(const struct train_state *s)
{
    size_t nbytes = N_PARAMETERS * sizeof(float);
    const struct train_log log = {
        .title = "<&>", .unit = "nats", .table = s->table, .evals = &s->evals
    };
    struct str svg = { 0 };
    struct adamw again;
    struct train_state t;
    struct stw *w;
    struct err err;

    train_log_chart(&svg, &log, s->records, s->step, chart_svg);
    train_log_chart(&svg, &log, s->records, s->step, chart_text);
    str_free(&svg);
    w = train_state_write(s, fuzz_path("again"), &err);
    MUST(w && stw_commit(w, &err) == 0);
    stw_free(w);
    state_new(&t, &again);
    MUST(train_state_read(&t, fuzz_path("again"), &err) == 0 &&
         t.step == s->step && t.evals.n == s->evals.n);
    MUST(!memcmp(s->adamw->master, again.master, nbytes) &&
         !memcmp(s->adamw->v, again.v, nbytes));
    adamw_close(&again);
    train_state_close(&t);
}

/* Puts the checksum that the message has in the place of the file's, so that
 * mutations of all else are read. */
static bool
mend(const char *path, const uint8_t *data, size_t n, const struct err *err)
{
    const char *hex = strstr(err->what, "(XXH3 ");
    const char *key =
        strstr(err->what, "settings") ? "\"settings_xxh3\":\"" : "\"xxh3\":\"";
    const uint8_t *at = memmem(data, n, key, strlen(key));
    size_t hex_n = hex ? strcspn(hex += 6, ")") : 0;
    FILE *f;

    if (!hex || !at || (size_t)(data + n - at) < strlen(key) + hex_n)
        return false;
    f = fopen(path, "r+b");
    MUST(f && fseek(f, 8 + (at - data) + (long)strlen(key), SEEK_SET) == 0 &&
         fwrite(hex, 1, hex_n, f) == hex_n && fclose(f) == 0);
    return true;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *path = fuzz_st("state", (struct bytes){ data, n });
    struct err err = { 0 };
    struct adamw adamw;
    struct train_state s;
    int rc = -1;

    state_new(&s, &adamw);
    for (int i = 0; i < 3 && rc < 0; i++) {
        rc = train_state_read(&s, path, &err);
        MUST(rc == 0 || (err.status == EX_DATAERR && *err.what));
        if (rc < 0 && !mend(path, data, n, &err))
            break;
    }
    if (rc == 0)
        check(&s);
    adamw_close(&adamw);
    train_state_close(&s);
    return 0;
}
