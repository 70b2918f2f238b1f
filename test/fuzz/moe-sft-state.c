/* cmd/moe-sft/state: a hostile header of a training run's state; what is read
 * can be drawn, and comes back from a file as it was. */
#include "cmd/moe-sft/log.h"
#include "cmd/moe-sft/state.h"
#include "test/fuzz/files.h"

#define N_PARAMETERS (2 * (2 * 2 + 3 * 2) + (3 * 2 + 2 * 2)) /* of 1 expert */

static void
state_new(struct state *s, struct adamw *a)
{
    struct err err;

    *a = (struct adamw){ 0 };
    MUST(adamw_open(a, N_PARAMETERS, &err) == 0);
    *s = (struct state){ .settings = { { "--lr", "0.5", NULL },
                                       { "base", "00ff", "base" } },
                         .n_settings = 2,
                         .config = { .n_experts = 1,
                                     .top_k = 1,
                                     .hidden = 2,
                                     .intermediate = 3,
                                     .lora_rank = 2 },
                         .adamw = a };
}

static void
check(const struct state *s)
{
    size_t nbytes = N_PARAMETERS * sizeof(float);
    struct str svg = { 0 };
    struct adamw again;
    struct state t;
    struct stw *w;
    struct err err;

    log_svg(&svg, "<&>", s->records, s->step);
    str_free(&svg);
    w = state_write(s, fuzz_path("again"), &err);
    MUST(w && stw_commit(w, &err) == 0);
    stw_free(w);
    state_new(&t, &again);
    MUST(state_read(&t, fuzz_path("again"), &err) == 0 && t.step == s->step);
    MUST(!memcmp(s->adamw->master, again.master, nbytes) &&
         !memcmp(s->adamw->v, again.v, nbytes));
    adamw_close(&again);
    free(t.records);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *path = fuzz_st("state", (struct bytes){ data, n });
    struct err err = { 0 };
    struct adamw adamw;
    struct state s;

    state_new(&s, &adamw);
    if (state_read(&s, path, &err) < 0)
        MUST(err.status == EX_DATAERR && *err.what);
    else
        check(&s);
    adamw_close(&adamw);
    free(s.records);
    return 0;
}
