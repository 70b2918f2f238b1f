/* Generation: one token after another, printed as they come. */
#include "cmd/hf-infer/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/hf-infer/prompt.h"
#include "core/clock.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/tool.h"

struct generation {
    struct run *run;
    struct sequence seq;
    struct sample *sample;
    float *logits; /* [vocab_size] */
    char last;     /* byte printed */
    double prefill_s, decode_s;
};

/* Prints what is certain; keeps it with --json, which prints at the end. */
static int
show(struct generation *g, struct err *err)
{
    struct str *text = &g->seq.text;
    int rc;

    if (g->run->json || g->run->ids_out || text->n == 0)
        return 0;
    g->last = text->s[text->n - 1];
    rc = print_text(g->run, text, err);
    if (rc == 0)
        rc = out_flush(g->run->out, err);
    str_clear(text);
    return rc;
}

static int
loop(struct generation *g, struct err *err)
{
    struct sequence *seq = &g->seq;

    for (;;) {
        if (sequence_next(seq, g->sample, g->logits, err) < 0 ||
            show(g, err) < 0)
            return -1;
        if (seq->finish_reason)
            return 0;
        if (engine_feed(g->run->engine,
                        &(struct feed){ g->run->session,
                                        seq->ids.id + seq->ids.n - 1, 1, 1,
                                        true },
                        1, NULL, g->logits, err) < 0)
            return -1;
    }
}

/* The bytes are the text's alone, but a person's prompt wants a new line. */
static int
end_line(const struct generation *g, struct err *err)
{
    if (g->last == '\n' || !out_is_terminal(g->run->out))
        return 0;
    return out_write(g->run->out, "\n", 1, err);
}

static void
say_full(const struct generation *g)
{
    if (strcmp(g->seq.finish_reason, "context") == 0)
        err_warn("%s: the context of %lld tokens is full: the text ends here",
                 g->run->dir, (long long)g->run->config->max_positions);
}

static int
print_json(struct generation *g, struct err *err)
{
    struct str line = { 0 };
    int rc;

    str_adds(&line, "{\"prompt_ids\":");
    put_json_ids(&line, g->seq.ids.id, g->seq.n_prompt);
    str_adds(&line, ",\"ids\":");
    put_json_ids(&line, g->seq.ids.id + g->seq.n_prompt,
                 g->seq.ids.n - g->seq.n_prompt);
    if (g->seq.stream) {
        str_adds(&line, ",\"text\":");
        js_put_str(&line, g->seq.text.s ? g->seq.text.s : "", g->seq.text.n);
    }
    str_addf(&line, ",\"finish_reason\":\"%s\"}\n", g->seq.finish_reason);
    rc = out_write(g->run->out, line.s, line.n, err);
    str_free(&line);
    return rc;
}

static int
print_ids(struct generation *g, struct err *err)
{
    struct str line = { 0 };
    int rc;

    put_ids(&line, g->seq.ids.id + g->seq.n_prompt,
            g->seq.ids.n - g->seq.n_prompt);
    str_addc(&line, '\n');
    rc = out_write(g->run->out, line.s, line.n, err);
    str_free(&line);
    return rc;
}

static void
say_speed(const struct generation *g)
{
    size_t n = g->seq.ids.n - g->seq.n_prompt;

    if (!g->run->verbose)
        return;
    tool_say("prompt %zu tokens in %.3f s (%.1f token/s)", g->seq.n_prompt,
             g->prefill_s, (double)g->seq.n_prompt / g->prefill_s);
    tool_say("output %zu tokens in %.3f s (%.1f token/s)", n, g->decode_s,
             (double)n / g->decode_s);
}

static int
generate(struct generation *g, struct err *err)
{
    struct run *run = g->run;
    double t0 = clock_s(), t1;

    if (feed(run, g->seq.ids.id, g->seq.n_prompt, g->logits, NULL, NULL, err) <
            0 ||
        compress(run, run->session, err) < 0)
        return -1;
    t1 = clock_s();
    if (loop(g, err) < 0)
        return -1;
    g->prefill_s = t1 - t0;
    g->decode_s = clock_s() - t1;
    say_full(g);
    say_speed(g);
    if (run->json)
        return print_json(g, err);
    return run->ids_out ? print_ids(g, err) : end_line(g, err);
}

static int
generate_one(struct run *run, struct err *err)
{
    struct generation g = { .run = run,
                            .seq.run = run,
                            .seq.where = prompt_name(run) };
    size_t vocab_size;
    int rc = prompt_ids(run, &g.seq.ids, err);

    if (rc == 0)
        rc = run_open_model(run, 0, err);
    if (rc == 0 && !run->ids_out && !run->tok && !run->json)
        rc = run_open_tok(run, err);
    if (rc == 0)
        rc = sequence_plan(&g.seq, err);
    if (rc == 0)
        rc =
            run_open_model(run, g.seq.n_prompt + (size_t)g.seq.max_tokens, err);
    if (rc == 0) {
        vocab_size = (size_t)run->config->vocab_size;
        g.sample = sample_new(vocab_size);
        g.logits = xmalloc(vocab_size * sizeof(float));
        rc = generate(&g, err);
    }
    sample_free(g.sample);
    free(g.logits);
    sequence_free(&g.seq);
    return rc;
}

int
run_generate(struct run *run, struct err *err)
{
    return run->jsonl ? run_batch(run, err) : generate_one(run, err);
}
