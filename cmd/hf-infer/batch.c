/* SPDX-License-Identifier: ISC */
/*
 * --jsonl: generates from many prompts, --batch of them at once.  When an
 * answer is complete, the next prompt takes its place.  Answers are printed in
 * the order of the prompts: one that is complete waits for those before it.
 * What prompts have in common at their beginning is computed once.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/hf-infer/jsonl.h"
#include "cmd/hf-infer/prompt.h"
#include "cmd/hf-infer/sequence.h"
#include "core/clock.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/tool.h"
#include "core/tty.h"

/* Up to WINDOW * --batch prompts are read and not yet printed: behind one long
 * answer many short ones can be generated, and memory stays bounded. */
#define WINDOW 16

/* Fewer tokens in common are not worth a step that a prompt waits, nor the copy
 * of a block of the cache. */
#define MIN_SHARED 16

struct entry {
    struct jsonl_doc doc;
    struct sequence seq;
    struct session *session; /* while it is active; NULL until it is placed */
    bool failed;             /* 'err' says why */
    bool fatal;              /* --skip-bad does not skip it */
    struct err err;
};

struct prompt_batch {
    struct run *run;
    struct jsonl in;
    bool ended;             /* read no more lines */
    struct entry **waiting; /* [n_waiting] read and not printed, in order */
    size_t n_waiting, max_waiting;
    struct entry **active; /* [n_active] of those: being generated */
    size_t n_active, max_active;
    bool shares;          /* what prompts have in common is fed once */
    struct session *kept; /* of the last prompt that left, or NULL */
    struct ids kept_ids;
    bool prefix_used;        /* --session's */
    struct feed *feeds;      /* [max_active] of one step */
    struct entry **fed;      /* [max_active] the entry of each feed */
    float *logits;           /* [max_active, vocab_size] */
    size_t row_nbytes;       /* of one prompt's */
    struct sample **samples; /* [n_samples] one for each thread */
    size_t n_samples;
    size_t n_done, n_skipped;  /* prompts */
    size_t n_prompt, n_output; /* tokens in, out */
    size_t n_shared;           /* in, and not computed again */
    struct progress progress;
};

static void
entry_free(struct entry *e)
{
    session_close(e->session);
    sequence_free(&e->seq);
    jsonl_doc_free(&e->doc);
    free(e);
}

/*
 * Replaces the run's settings by those that the line has.  A line with "seed"
 * gets the same random numbers as this prompt would alone with --seed; others
 * get their own, by their number.  A line with a temperature is greedy if that
 * is 0; one with other settings of the sampler samples, except with --greedy or
 * --temperature 0.
 */
static void
apply_settings(const struct run *run, struct entry *e, size_t number)
{
    const struct jsonl_doc *doc = &e->doc;
    struct sampler *s = &e->seq.sampler;

    s->sequence = doc->set & SET_SEED ? 0 : number;
    if (doc->set & SET_SEED)
        s->seed = doc->seed;
    if (doc->set & SET_TOP_K)
        s->top_k = doc->top_k;
    if (doc->set & SET_TOP_P)
        s->top_p = doc->top_p;
    if (doc->set & SET_TEMPERATURE)
        s->temperature =
            doc->temperature < SAMPLE_MIN_TEMPERATURE ? 0 : doc->temperature;
    if (doc->set & SET_TEMPERATURE ||
        (doc->set && !(run->sampler_set & SET_GREEDY)))
        s->greedy = s->temperature == 0;
    if (doc->max_tokens >= 0) {
        e->seq.asked = doc->max_tokens;
        e->seq.asked_by = "max_tokens";
    }
    if (doc->n_best >= 0)
        e->seq.n_best = doc->n_best;
    if (doc->n_stop > 0)
        e->seq.stop.n = doc->n_stop;
    for (size_t i = 0; i < doc->n_stop; i++)
        e->seq.stop.string[i] = doc->stop[i];
}

/* Encodes an entry's prompt and makes the entry active. */
static int
begin(struct prompt_batch *b, struct entry *e, struct err *err)
{
    struct run *run = b->run;

    sequence_init(&e->seq, run, e->doc.where);
    apply_settings(run, e, b->n_done + b->n_skipped + b->n_waiting - 1);
    if (e->doc.n_stop > 0 && run_open_tok(run, err) < 0)
        return -1;
    if (jsonl_ids(run, &e->doc, &e->seq.ids, err) < 0 ||
        sequence_plan(&e->seq, err) < 0)
        return -1;
    str_free(&e->doc.text);
    ids_free(&e->doc.ids);
    b->active[b->n_active++] = e;
    return 0;
}

/* Reads and begins prompts until the batch is full.  It waits for input only
 * when there is nothing to generate. */
static void
refill(struct prompt_batch *b)
{
    while (!b->ended && b->n_active < b->max_active &&
           b->n_waiting < b->max_waiting) {
        struct entry *e = xcalloc(1, sizeof(*e));
        size_t n_lines = b->in.n_lines;
        int rc = jsonl_next(&b->in, &e->doc, b->n_active == 0, &e->err);

        if (rc == 0 || rc == JSONL_NOT_YET) {
            entry_free(e);
            b->ended = rc == 0;
            return;
        }
        b->waiting[b->n_waiting++] = e;
        if (rc == 1 && begin(b, e, &e->err) == 0)
            continue;
        e->failed = true;
        /* n_lines unchanged: the line was not read to its end, so the next one
         * cannot be found */
        e->fatal = e->err.status != EX_DATAERR || b->in.n_lines == n_lines;
        if (e->fatal || !b->run->skip_bad)
            b->ended = true;
    }
}

/* Prints the complete answers before the first incomplete one.  -1 if one
 * before that has failed and is not skipped. */
static int
print_ready(struct prompt_batch *b, struct err *err)
{
    const struct err *failed = NULL;
    struct str line = { 0 };
    size_t n = 0, n_printed = 0;
    int rc;

    for (; n < b->n_waiting; n++) {
        struct entry *e = b->waiting[n];
        const struct sequence *seq = &e->seq;
        bool skip = e->failed && b->run->skip_bad && !e->fatal;

        if (e->failed && !skip) {
            failed = &e->err;
            break;
        }
        if (!skip && !seq->finish_reason)
            break;
        if (skip) {
            err_warn("%s: skipped", e->err.what);
            b->n_skipped++;
        } else {
            str_addc(&line, '{');
            if (e->doc.id.n)
                str_addf(&line, "\"id\":%s,", e->doc.id.s);
            if (seq->stream) {
                str_adds(&line, "\"text\":");
                js_put_str(&line, seq->text.s ? seq->text.s : "", seq->text.n);
                str_addc(&line, ',');
            }
            str_adds(&line, "\"ids\":");
            put_json_ids(&line, seq->ids.id + seq->n_prompt,
                         seq->ids.n - seq->n_prompt);
            sequence_put_logprobs(seq, &line);
            str_addf(&line, ",\"finish_reason\":\"%s\"}\n", seq->finish_reason);
            n_printed++;
        }
        entry_free(e);
    }
    rc = out_write(b->run->out, line.s, line.n, err);
    str_free(&line);
    b->n_done += n_printed;
    b->n_waiting -= n;
    memmove(b->waiting, b->waiting + n, b->n_waiting * sizeof(*b->waiting));
    if (n_printed > 0 && rc == 0)
        rc = out_flush(b->run->out, err);
    if (rc == 0 && failed) {
        *err = *failed;
        rc = -1;
    }
    return rc;
}

/* Does another prompt [n] have more of an entry's at its beginning than the
 * '*most' tokens found so far, of which its session can be forked, if it has
 * been fed?  The entry's last token is fed in any case. */
static bool
has_more(const struct entry *e, const struct session *fed, const int32_t *ids,
         size_t n, size_t *most)
{
    const int32_t *own = e->seq.ids.id;
    size_t i = 0;

    n = smaller(n, e->seq.n_prompt - 1);
    if (n <= *most || own[*most] != ids[*most])
        return false;
    while (i < n && own[i] == ids[i])
        i++;
    i = fed ? session_reach(fed, i) : i;
    if (i <= *most || i < MIN_SHARED)
        return false;
    *most = i;
    return true;
}

/* The same of another entry, whose prompt has been fed, or is being fed. */
static bool
entry_has_more(const struct entry *e, const struct entry *o, bool fed,
               size_t *most)
{
    return o->session && (o->session->n >= o->seq.n_prompt) == fed &&
           session_may_fork(o->session, sequence_positions(&e->seq)) &&
           has_more(e, fed ? o->session : NULL, o->seq.ids.id, o->seq.n_prompt,
                    most);
}

/*
 * Gives each new entry its session: one that begins like a prompt that has been
 * fed goes on from there.  One that has more in common with a prompt that is
 * fed in this step waits for the next.
 */
static void
place(struct prompt_batch *b)
{
    const struct run *run = b->run;

    for (size_t i = 0; i < b->n_active; i++) {
        struct entry *e = b->active[i];
        const struct session *from = NULL;
        size_t positions = sequence_positions(&e->seq), most = 0, later;
        bool waits = false;

        if (e->session)
            continue;
        if (run->prefix && session_may_fork(run->prefix, positions) &&
            has_more(e, run->prefix, run->prefix_ids, run->prefix->n, &most))
            from = run->prefix;
        b->prefix_used |= from != NULL;
        if (b->kept && session_may_fork(b->kept, positions) &&
            has_more(e, b->kept, b->kept_ids.id, b->kept->n, &most))
            from = b->kept;
        for (size_t k = 0; b->shares && k < b->n_active; k++)
            if (entry_has_more(e, b->active[k], true, &most))
                from = b->active[k]->session;
        later = most + MIN_SHARED - 1;
        for (size_t k = 0; b->shares && k < i && !waits; k++) {
            const struct entry *o = b->active[k];
            size_t n = e->seq.n_prompt;

            waits = entry_has_more(e, o, false, &later);
            /* unless they are the same, the next ones may have a little less
             * in common */
            if (waits && (n != o->seq.n_prompt || later + 1 != n ||
                          e->seq.ids.id[later] != o->seq.ids.id[later]))
                later -= later % MIN_SHARED;
            if (waits && later >= o->session->n &&
                o->session->n_kept <= o->session->n)
                session_keep(o->session, later);
        }
        if (waits)
            continue;
        e->seq.session = e->session = from
                                          ? session_fork(from, most, positions)
                                          : session_new(run->engine, positions);
        b->n_shared += most;
    }
}

/* A prompt's keys and values are kept for those that come next. */
static void
keep(struct prompt_batch *b, struct entry *e)
{
    session_close(b->kept);
    b->kept = e->session;
    e->session = NULL;
    session_cut(b->kept, e->seq.n_prompt);
    b->kept_ids.n = 0;
    for (size_t i = 0; i < b->kept->n; i++)
        ids_add(&b->kept_ids, e->seq.ids.id[i]);
}

/* Adds the feeds of new entries, whose prompt is fed, or of the others, with
 * the token generated last.  'n' feeds are set already; returns how many are
 * now. */
static size_t
add_feeds(struct prompt_batch *b, size_t n, bool is_new)
{
    for (size_t i = 0; i < b->n_active; i++) {
        struct entry *e = b->active[i];
        const struct ids *ids = &e->seq.ids;
        size_t fed = e->session ? e->session->n : 0;

        if (!e->session || (fed < e->seq.n_prompt) != is_new)
            continue;
        b->feeds[n] = (struct feed){ e->session, ids->id + fed, ids->n - fed, 1,
                                     !is_new };
        b->fed[n++] = e;
        if (is_new)
            b->n_prompt += ids->n;
    }
    return n;
}

static void
select_tokens(void *ctx, size_t begin, size_t end, int thread)
{
    const struct prompt_batch *b = ctx;
    size_t vocab_size = (size_t)b->run->config->vocab_size;

    for (size_t i = begin; i < end; i++) {
        struct entry *e = b->fed[i];

        e->failed = sequence_next(&e->seq, b->samples[thread],
                                  b->logits + i * vocab_size, &e->err) < 0;
    }
}

/* Generates one more token of each active entry; the complete ones leave. */
static int
step(struct prompt_batch *b, struct err *err)
{
    size_t n, n_active = b->n_active;

    place(b);
    n = add_feeds(b, add_feeds(b, 0, false), true);
    if (engine_feed(b->run->engine, b->feeds, n, NULL, b->logits, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (!b->feeds[i].generated &&
            compress(b->run, b->fed[i]->session, err) < 0)
            return -1;
    par_for_thread(b->run->par, n, 1, select_tokens, b);
    b->n_active = 0;
    for (size_t i = 0; i < n_active; i++) {
        struct entry *e = b->active[i];

        if (e->session)
            b->n_output += e->seq.ids.n - e->session->n;
        if (!e->failed && !e->seq.finish_reason) {
            b->active[b->n_active++] = e;
            continue;
        }
        if (!e->failed && b->shares)
            keep(b, e);
        session_close(e->session);
        e->session = NULL;
    }
    progress_at(&b->progress, b->n_prompt + b->n_output);
    return 0;
}

static int
open_batch(struct prompt_batch *b, struct err *err)
{
    struct run *run = b->run;
    size_t n = (size_t)run->batch, chunk = (size_t)run->chunk;

    b->in.settings = true;
    if (run_open_model(run, err) < 0 ||
        run_open_engine(run, chunk > n ? chunk : n, err) < 0 ||
        jsonl_open(&b->in, run->prompt_file ? run->prompt_file : "-", err) < 0)
        return -1;
    /* a compressed cache is not its tokens' alone, and a report counts them */
    b->shares = !run->compressor && !run->lut_report;
    b->max_active = n;
    b->max_waiting = n * WINDOW;
    b->waiting = xcalloc(b->max_waiting, sizeof(struct entry *));
    b->active = xcalloc(n, sizeof(struct entry *));
    b->fed = xcalloc(n, sizeof(struct entry *));
    b->feeds = xcalloc(n, sizeof(*b->feeds));
    b->n_samples = (size_t)par_threads(run->par);
    b->samples = xcalloc(b->n_samples, sizeof(struct sample *));
    for (size_t i = 0; i < b->n_samples; i++)
        b->samples[i] = sample_new((size_t)run->config->vocab_size);
    b->row_nbytes = (size_t)run->config->vocab_size * sizeof(float);
    b->logits = mem_big(n, b->row_nbytes, "logits", err);
    return b->logits ? 0 : -1;
}

/*
 * --resume: copies the answers of FILE.partial to the output and skips their
 * prompts, whose ids must be the same.  Without that file it does nothing.
 */
static int
resume(struct prompt_batch *b, const char *partial, struct err *err)
{
    struct map map = { 0 };
    const char *at, *end, *next;
    int rc = 0;

    if (file_missing(partial))
        return 0;
    if (map_open(&map, partial, err) < 0)
        return -1;
    at = (const char *)map.data;
    end = at + map.size;
    rc = out_write(b->run->out, at, map.size, err);
    for (; rc == 0 && at < end; at = next) {
        struct jsonl_doc doc = { 0 };
        struct str head = { 0 }; /* how an answer to this line begins */

        next = memchr(at, '\n', (size_t)(end - at));
        if (!next) {
            rc = err_set(err, EX_DATAERR, "%s: its last line has no end",
                         partial);
            break;
        }
        next++;
        rc = jsonl_next(&b->in, &doc, true, err);
        if (rc == 0)
            rc = err_set(err, EX_DATAERR,
                         "%s: has more answers than %s has lines", partial,
                         b->in.name);
        if (doc.id.n)
            str_addf(&head, "{\"id\":%s,", doc.id.s);
        else
            str_addc(&head, '{');
        if (rc == 1 &&
            ((size_t)(next - at) < head.n || memcmp(at, head.s, head.n) != 0 ||
             (!doc.id.n && !strncmp(at, "{\"id\":", 6))))
            rc = err_set(err, EX_DATAERR,
                         "%s: answer %zu is not of %s, which has another id",
                         partial, b->n_done + 1, doc.where);
        str_free(&head);
        jsonl_doc_free(&doc);
        b->n_done += rc == 1;
        rc = rc < 0 ? -1 : 0;
    }
    map_close(&map);
    return rc;
}

int
run_batch(struct run *run, struct err *err)
{
    struct prompt_batch b = { .run = run, .in.fd = -1 };
    double started, seconds;
    struct str partial = { 0 };
    struct err cause;
    bool resumed;
    int rc = open_batch(&b, err);

    str_addf(&partial, "%s.partial", run->output ? run->output : "");
    if (rc == 0 && run->resume)
        rc = resume(&b, partial.s, err);
    resumed = rc == 0;
    if (rc == 0) {
        b.progress = (struct progress){ .what = "tokens",
                                        .unit = "token",
                                        .quiet = run->quiet ||
                                                 out_is_terminal(run->out) };
        progress_start(&b.progress);
        started = clock_s();
        while (rc == 0 && (!b.ended || b.n_waiting > 0)) {
            refill(&b);
            if (b.n_active > 0)
                rc = step(&b, err);
            if (rc == 0)
                rc = print_ready(&b, err);
        }
        progress_end(&b.progress);
        seconds = clock_s() - started;
        if (rc == 0 && run->prefix && !b.prefix_used)
            err_warn("%s: no prompt begins with %d or more of its tokens",
                     run->session_file, MIN_SHARED);
        if (run->verbose)
            tool_say("%zu prompt%s, %zu token%s in, %zu of them shared, %zu "
                     "out, in %.3f s (%.1f tokens/s out)",
                     b.n_done, plural(b.n_done), b.n_prompt, plural(b.n_prompt),
                     b.n_shared, b.n_output, seconds,
                     (double)b.n_output / seconds);
    }
    /* after a bad line, the answers so far become FILE.partial */
    if (rc < 0 && resumed && err->status == EX_DATAERR && run->output &&
        b.n_done > 0 && out_rename(run->out, partial.s)) {
        if (out_commit(run->out, &cause) < 0)
            err_warn("%s", cause.what);
        else
            tool_say("%s: %zu answer%s kept: --resume continues after them",
                     partial.s, b.n_done, b.n_done == 1 ? " is" : "s are");
        run->out = NULL;
    }
    if (rc == 0 && run->resume) {
        rc = out_commit(run->out, err);
        run->out = NULL;
        if (rc == 0)
            unlink(partial.s);
    }
    str_free(&partial);
    for (size_t i = 0; i < b.n_waiting; i++)
        entry_free(b.waiting[i]);
    session_close(b.kept);
    ids_free(&b.kept_ids);
    jsonl_close(&b.in);
    mem_big_free(b.logits, b.max_active, b.row_nbytes);
    for (size_t i = 0; i < b.n_samples; i++)
        sample_free(b.samples[i]);
    free(b.samples);
    free(b.feeds);
    free(b.fed);
    free(b.active);
    free(b.waiting);
    return rc;
}
