/* SPDX-License-Identifier: ISC */
#include "cmd/hf-infer/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/hf-infer/prompt.h"
#include "core/js.h"
#include "core/kernel/f64.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/tty.h"

#define DEFAULT_TOKENS 256 /* without -n or max_new_tokens */

void
sequence_init(struct sequence *seq, const struct run *run, const char *where)
{
    seq->run = run;
    seq->where = where;
    seq->sampler = run->sampler;
    seq->stop = run->stop;
    seq->asked_by = "-n";
    seq->asked = run->max_tokens;
    seq->n_best = run->n_best;
}

int
sequence_plan(struct sequence *seq, struct err *err)
{
    const struct run *run = seq->run;
    int64_t context = run->config->max_positions, asked = seq->asked;
    int64_t n = (int64_t)seq->ids.n, room = context - n;
    struct str unseen = { 0 };
    int rc = 0;

    seq->n_prompt = seq->ids.n;
    if (n == 0)
        return err_set(err, EX_DATAERR,
                       "%s: the prompt has no tokens (expected at least 1)",
                       seq->where);
    if (room < 0)
        return err_set(err, EX_DATAERR,
                       "%s: the prompt has %lld tokens (expected at most %lld, "
                       "the model's context)",
                       seq->where, (long long)n, (long long)context);
    /* nothing reads the last token: it needs no position */
    if (asked > room + 1)
        return err_set(err, EX_DATAERR,
                       "%s: the prompt has %lld token%s and %s is %lld, "
                       "together %lld (expected at most %lld, one more than "
                       "the model's context)",
                       seq->where, (long long)n, plural(n), seq->asked_by,
                       (long long)asked, (long long)(n + asked),
                       (long long)context + 1);
    if (ids_check(seq->ids.id, seq->n_prompt, run->config->vocab_size,
                  seq->where, err) < 0)
        return -1;
    seq->max_tokens = asked >= 0 ? asked
                      : run->config->max_new_tokens
                          ? run->config->max_new_tokens
                          : DEFAULT_TOKENS;
    seq->to_context = asked < 0 && room < seq->max_tokens;
    if (seq->to_context)
        seq->max_tokens = room;
    if (!run->tok)
        return 0;
    /* the text of a continuation depends on what it continues: the decoder
     * gets the prompt first, whose text is not printed */
    seq->stream = tok_stream_new(run->tok, true);
    for (size_t i = 0; i < seq->n_prompt && rc == 0; i++)
        rc = tok_stream_add(seq->stream, seq->ids.id[i], &unseen, err);
    str_free(&unseen);
    return rc;
}

size_t
sequence_positions(const struct sequence *seq)
{
    return seq->n_prompt +
           (seq->max_tokens > 0 ? (size_t)seq->max_tokens - 1 : 0);
}

/* Adds a piece of text as far as no stop string begins in it; true: one
 * ended the text. */
static bool
add_text(struct sequence *seq, const struct str *piece)
{
    if (seq->stop.n)
        return stop_pass(&seq->stop, piece->s ? piece->s : "", piece->n, true,
                         &seq->text);
    if (piece->n)
        str_add(&seq->text, piece->s, piece->n);
    return false;
}

int
sequence_end(struct sequence *seq, const char *reason, struct err *err)
{
    struct str piece = { 0 };
    int rc;

    seq->finish_reason = reason;
    if (!seq->stream)
        return 0;
    rc = tok_stream_end(seq->stream, &piece, err);
    if (rc == 0 && (add_text(seq, &piece) || stop_end(&seq->stop, &seq->text)))
        seq->finish_reason = "stop";
    str_free(&piece);
    return rc;
}

/* {"id":..,"token":..,"bytes":[..],"logprob":.. of a token whose logit is x;
 * bytes where they are part of a character. */
static void
put_token(struct str *line, const struct run *run, size_t id, double logprob)
{
    struct str text = { 0 };

    js_addf(line, "{\"id\":%zu,", id);
    if (run->tok && tok_bytes(run->tok, (int32_t)id, &text)) {
        const char *s = text.s ? text.s : "";

        str_adds(line, "\"token\":");
        js_put_str(line, s, text.n);
        if (utf8_valid(s, text.n) < text.n)
            for (size_t i = 0; i < text.n; i++)
                str_addf(line, "%s%u%s", i ? "," : ",\"bytes\":[",
                         (unsigned)(unsigned char)s[i],
                         i + 1 < text.n ? "" : "]");
        str_addc(line, ',');
    }
    str_free(&text);
    js_addf(line, "\"logprob\":%g", logprob);
}

/* Adds what the model's own distribution says of a token, and of the best. */
static void
put_logprob(struct sequence *seq, const float *logits, int32_t id)
{
    size_t vocab_size = (size_t)seq->run->config->vocab_size;
    size_t n = smaller((size_t)seq->n_best, vocab_size);
    double sum = f64_log_sum_exp(logits, vocab_size);
    struct str *line = &seq->logprobs;
    uint32_t best[LOGPROBS_MAX];

    vec_topk(best, n, logits, vocab_size);
    str_adds(line, line->n ? "," : "");
    put_token(line, seq->run, (size_t)id, (double)logits[id] - sum);
    str_adds(line, ",\"top_logprobs\":[");
    for (size_t i = 0; i < n; i++) {
        put_token(line, seq->run, best[i], (double)logits[best[i]] - sum);
        str_adds(line, i + 1 < n ? "}," : "}");
    }
    str_adds(line, "]}");
}

void
sequence_put_logprobs(const struct sequence *seq, struct str *line)
{
    if (seq->n_best >= 0)
        str_addf(line, ",\"logprobs\":[%s]",
                 seq->logprobs.n ? seq->logprobs.s : "");
}

int
sequence_next(struct sequence *seq, struct sample *sample, float *logits,
              struct err *err)
{
    const struct run *run = seq->run;
    size_t nbytes = (size_t)run->config->vocab_size * sizeof(*logits);
    int64_t n = (int64_t)(seq->ids.n - seq->n_prompt);

    if (n < seq->max_tokens) {
        struct str piece = { 0 };
        float *own = NULL; /* logits before they are overwritten */
        const char *name;
        int32_t id;
        int rc = 0;

        /* the model's fault, but of many prompts one is named */
        if (check_logits(run, seq->session ? seq->session : run->session,
                         run->jsonl ? seq->where : run->dir, logits, seq->ids.n,
                         err) < 0)
            return -1;
        if (seq->n_best >= 0)
            own = memcpy(xmalloc(nbytes), logits, nbytes);
        id = sample_next(sample, &seq->sampler, logits, seq->ids.id, seq->ids.n,
                         (uint64_t)n++);
        ids_add(&seq->ids, id);
        if (own)
            put_logprob(seq, own, id);
        free(own);
        for (size_t i = 0; i < run->config->n_eos; i++)
            if (run->config->eos[i] == id)
                return sequence_end(seq, "eos", err);
        if (seq->stream && seq->stop.n && tok_is_special(run->tok, id)) {
            name = tok_text(run->tok, id, &nbytes);
            if (stop_pass(&seq->stop, name, nbytes, false, &seq->text)) {
                seq->finish_reason = "stop"; /* after what is not decoded yet */
                return tok_stream_end(seq->stream, &seq->text, err);
            }
        }
        if (seq->stream)
            rc = tok_stream_add(seq->stream, id, &piece, err);
        if (rc == 0 && add_text(seq, &piece))
            seq->finish_reason = "stop";
        str_free(&piece);
        if (rc < 0)
            return -1;
    }
    if (!seq->finish_reason && n >= seq->max_tokens)
        return sequence_end(seq, seq->to_context ? "context" : "length", err);
    return 0;
}

void
sequence_free(struct sequence *seq)
{
    tok_stream_free(seq->stream);
    stop_free(&seq->stop);
    str_free(&seq->text);
    str_free(&seq->logprobs);
    ids_free(&seq->ids);
}
