/* SPDX-License-Identifier: ISC */
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
#include "core/tty.h"

/* The answer of --json and --ids-out, which is printed at the end. */
static int
print_answer(const struct run *run, const struct sequence *seq, struct err *err)
{
    const int32_t *output = seq->ids.id + seq->n_prompt;
    size_t n = seq->ids.n - seq->n_prompt;
    struct str line = { 0 };
    int rc;

    if (run->ids_out) {
        put_ids(&line, output, n);
        str_addc(&line, '\n');
    } else {
        str_adds(&line, "{\"prompt_ids\":");
        put_json_ids(&line, seq->ids.id, seq->n_prompt);
        str_adds(&line, ",\"ids\":");
        put_json_ids(&line, output, n);
        if (seq->stream) {
            str_adds(&line, ",\"text\":");
            js_put_str(&line, seq->text.s ? seq->text.s : "", seq->text.n);
        }
        sequence_put_logprobs(seq, &line);
        str_addf(&line, ",\"finish_reason\":\"%s\"}\n", seq->finish_reason);
    }
    rc = out_write(run->out, line.s, line.n, err);
    str_free(&line);
    return rc;
}

static int
generate(struct run *run, struct sequence *seq, struct err *err)
{
    size_t vocab_size = (size_t)run->config->vocab_size, n;
    bool as_it_comes = !run->json && !run->ids_out;
    struct sample *sample = sample_new(vocab_size);
    float *logits = xmalloc(vocab_size * sizeof(*logits));
    double t0 = clock_s(), t1 = t0;
    char last = 0;
    int rc = feed_prompt(run, seq->ids.id, seq->n_prompt, logits, err);

    if (rc == 0)
        rc = compress(run, run->session, err);
    t1 = clock_s();
    while (rc == 0) {
        struct feed feed = {
            .session = run->session, .n = 1, .n_logits = 1, .generated = true
        };

        rc = sequence_next(seq, sample, logits, err);
        if (rc == 0 && as_it_comes && seq->text.n > 0) {
            last = seq->text.s[seq->text.n - 1];
            rc = print_text(run, &seq->text, err);
            if (rc == 0)
                rc = out_flush(run->out, err);
            str_clear(&seq->text);
        }
        if (rc < 0 || seq->finish_reason)
            break;
        feed.ids = seq->ids.id + seq->ids.n - 1;
        rc = engine_feed(run->engine, &feed, 1, NULL, logits, err);
    }
    free(logits);
    sample_free(sample);
    if (rc < 0)
        return -1;
    if (strcmp(seq->finish_reason, "context") == 0)
        err_warn("%s: the context of %lld token%s is full: the text ends here",
                 run->dir, (long long)run->config->max_positions,
                 plural(run->config->max_positions));
    if (run->verbose) {
        n = seq->ids.n - seq->n_prompt;
        tool_say("prompt %zu token%s in %.3f s (%.1f tokens/s)", seq->n_prompt,
                 plural(seq->n_prompt), t1 - t0,
                 (double)seq->n_prompt / (t1 - t0));
        tool_say("output %zu token%s in %.3f s (%.1f tokens/s)", n, plural(n),
                 clock_s() - t1, (double)n / (clock_s() - t1));
    }
    if (!as_it_comes)
        return print_answer(run, seq, err);
    /* the bytes are the text's alone, but a shell's prompt needs a new line */
    return last != '\n' && out_is_terminal(run->out)
               ? out_write(run->out, "\n", 1, err)
               : 0;
}

int
run_generate(struct run *run, struct err *err)
{
    struct sequence seq = { 0 };
    int rc;

    if (run->jsonl)
        return run_batch(run, err);
    if (run->converses)
        return run_converse(run, err);
    rc = prompt_ids(run, &seq.ids, err);
    if (rc == 0)
        rc = run_open_model(run, err);
    if (rc == 0)
        rc = prompt_bos(run, &seq.ids, 0, err);
    if (rc == 0 && !run->ids_out && !run->json)
        rc = run_open_tok(run, err);
    sequence_init(&seq, run, prompt_name(run));
    if (rc == 0)
        rc = sequence_plan(&seq, err);
    if (rc == 0)
        rc = run_open_session(run, sequence_positions(&seq), err);
    if (rc == 0)
        rc = generate(run, &seq, err);
    sequence_free(&seq);
    return rc;
}
