/* SPDX-License-Identifier: ISC */
/*
 * --acts: documents become windows of tokens, windows go through the model
 * some at a time, and what the tap was passed for each is written in their
 * order: [window, layer, token, dim].
 */
#include "cmd/hf-infer/acts.h"
#include "cmd/hf-infer/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/model/block.h"
#include "core/model/engine.h"
#include "core/str.h"
#include "core/tool.h"
#include "core/tty.h"

/* ---- what is written ---- */

/* Writes the activations of all windows, and their ids, as int32 [window,
 * token], -1 where padded; these make a sum, too. */
static int
write_windows(struct acts *a, size_t n_tokens, struct err *err)
{
    uint8_t *le = xmalloc(n_tokens * 4), *to = le;
    int rc = 0;

    for (size_t i = 0; i < a->n_dumps; i++)
        a->dumps[i].array.shape[2] = a->dumps[i].ids.shape[1] = a->n_tokens;
    for (size_t k = 0; k < a->n_windows; k++) {
        const struct acts_window *w = &a->windows[k];

        for (size_t i = 0; i < w->n_tokens; i++, to += 4)
            put_le32(to, i < w->n_ids ? (uint32_t)a->ids.id[w->first + i]
                                      : UINT32_MAX);
    }
    hash_add(a->sum, le, n_tokens * 4);
    for (size_t i = 0; i < a->n_dumps && rc == 0; i++)
        if (a->dumps[i].ids.out)
            rc = array_out_write(&a->dumps[i].ids, a->n_windows, le,
                                 n_tokens * 4, err);
    free(le);
    if (rc == 0)
        rc = acts_write(a, a->n_windows, n_tokens, err);
    a->n_real += a->ids.n;
    if (rc == 0)
        progress_at(&a->progress, a->n_real);
    return rc;
}

/* ---- windows through the model ---- */

/* Keeps what the tap is passed. */
static void
keep(void *ctx, struct session *session, int64_t layer, size_t first, size_t n,
     const float *rows)
{
    const struct acts_tap *tap = ctx;
    const struct acts_window *w = tap->acts->windows;
    size_t place;
    const struct acts_dump *d = acts_place(tap, layer, &place);

    if (!d)
        return;
    while (w->session != session)
        w++;
    cvt_from_f32(d->acts + w->at * d->row_nbytes +
                     (place * w->n_tokens + first) * d->dim * 4,
                 DT_F32, rows, n * d->dim);
}

static int
run_windows(struct acts *a, struct err *err)
{
    struct feed feeds[MAX_WINDOWS] = { 0 };
    size_t n_tokens = 0;
    int rc;

    for (size_t i = 0; i < a->n_windows; i++) {
        a->windows[i].at = n_tokens;
        n_tokens += a->windows[i].n_tokens;
    }
    if (acts_room(a, n_tokens, err) < 0)
        return -1;
    for (size_t i = 0; i < a->n_windows; i++) {
        struct acts_window *w = &a->windows[i];

        for (size_t k = 0; k < a->n_dumps; k++) /* padding is zeros */
            if (w->n_ids < w->n_tokens)
                memset(a->dumps[k].acts + w->at * a->dumps[k].row_nbytes, 0,
                       w->n_tokens * a->dumps[k].row_nbytes);
        w->session = session_new(a->run->engine, w->n_ids);
        feeds[i].session = w->session;
        feeds[i].ids = a->ids.id + w->first;
        feeds[i].n = w->n_ids;
    }
    rc = engine_feed(a->run->engine, feeds, a->n_windows, a->taps, NULL, err);
    for (size_t i = 0; i < a->n_windows; i++)
        session_close(a->windows[i].session);
    if (rc == 0)
        rc = write_windows(a, n_tokens, err);
    a->n_windows = a->ids.n = 0;
    return rc;
}

/* The ids at the end of a->ids, from 'first' on, are a window: all are run when
 * they have a chunk of tokens, or there is no room for one window more. */
static int
add_window(struct acts *a, size_t first, struct err *err)
{
    size_t n = a->ids.n - first;
    size_t ctx = (size_t)a->run->ctx, chunk = (size_t)a->run->chunk;
    size_t n_tokens = ctx ? ctx : n;

    if (a->n_written + a->n_windows == 0)
        a->n_tokens = n_tokens;
    if (n_tokens != a->n_tokens &&
        (a->dumps->array.npy || a->run->acts_meta || a->run->acts_ids))
        return err_set(err, EX_DATAERR,
                       "%s: %zu token%s, but those before have %zu (expected "
                       "one length: --ctx makes windows)",
                       a->docs.where.s, n_tokens, plural(n_tokens),
                       a->n_tokens);
    a->windows[a->n_windows++] = (struct acts_window){ .first = first,
                                                       .n_ids = n,
                                                       .n_tokens = n_tokens };
    return a->n_windows == MAX_WINDOWS || a->ids.n >= chunk ||
                   (a->n_windows + 1) * ctx > chunk
               ? run_windows(a, err)
               : 0;
}

/* ---- documents into windows ---- */

/* Documents joined by eos, cut every --ctx tokens: one without tokens is
 * skipped. */
static int
pack(struct acts *a, struct err *err)
{
    const struct config *c = a->run->config;
    size_t ctx = (size_t)a->run->ctx, n;
    struct ids *s = &a->stream;
    bool last = false, join = false; /* a document ended: eos, the next one */

    for (;;) {
        size_t from = s->n, at = 0;
        int rc;

        if (join)
            ids_add(s, c->n_eos ? c->eos[0] : 0);
        rc = docs_next(&a->docs, s, &last, err);
        if (rc <= 0 || s->n == from + join) {
            s->n = from;
            if (rc <= 0)
                return rc;
            a->n_empty++;
            continue;
        }
        if (join && c->n_eos == 0)
            return err_set(err, EX_DATAERR,
                           "%s: config.json names no eos_token_id to join "
                           "documents with (--pad needs none)",
                           a->run->dir);
        join = last;
        for (;; at += n) {
            size_t first = a->ids.n;

            n = ctx -
                (a->run->prepend_bos && !(s->n > at && s->id[at] == c->bos));
            if (s->n - at < n)
                break;
            for (size_t i = 0; i < n; i++)
                ids_add(&a->ids, s->id[at + i]);
            if (prompt_bos(a->run, &a->ids, first, err) < 0 ||
                add_window(a, first, err) < 0)
                return -1;
        }
        s->n -= at;
        if (s->n > 0)
            memmove(s->id, s->id + at, s->n * sizeof(*s->id));
    }
}

/* A document a window: padded or cut to --ctx, or as long as it is, which the
 * model's context must have room for. */
static int
one_each(struct acts *a, struct err *err)
{
    size_t ctx = (size_t)a->run->ctx;
    size_t most = ctx ? ctx : (size_t)a->run->config->max_positions;

    for (;;) {
        size_t first = a->ids.n;
        bool last = false, cut = false;

        while (!last) {
            bool begins = a->ids.n == first;
            int rc = docs_next(&a->docs, &a->ids, &last, err);

            if (rc > 0 && begins && a->ids.n > first &&
                prompt_bos(a->run, &a->ids, first, err) < 0)
                return -1;
            if (rc <= 0)
                return rc;
            if (a->ids.n - first <= most)
                continue;
            if (!ctx)
                return err_set(err, EX_DATAERR,
                               "%s: more than %zu tokens, the model's context "
                               "(--ctx makes windows)",
                               a->docs.where.s, most);
            a->ids.n = first + most;
            cut = true;
        }
        a->n_cut += cut;
        if (a->ids.n == first && !ctx)
            return err_set(err, EX_DATAERR,
                           "%s: no tokens (expected at least 1)",
                           a->docs.where.s);
        if (a->ids.n == first)
            a->n_empty++;
        else if (add_window(a, first, err) < 0)
            return -1;
    }
}

/* ---- from begin to end ---- */

/* How many windows, and how many tokens to run; 0: unknown. */
static void
count_windows(struct acts *a)
{
    size_t n_docs = a->docs.n, n_joins = n_docs ? n_docs - 1 : 0;
    size_t n_ids = a->docs.n_ids, ctx = (size_t)a->run->ctx;

    a->progress.total = n_ids;
    if (a->run->prepend_bos) /* some may begin with it already */
        return;
    a->n_expected = n_docs;
    if (ctx && a->run->pad && n_docs && n_ids / n_docs > ctx) {
        a->progress.total = n_docs * ctx;
    } else if (ctx && !a->run->pad) {
        a->n_expected = (n_ids + n_joins) / ctx;
        a->progress.total = a->n_expected * ctx;
    }
    if (n_docs && !ctx) /* they have one length */
        a->n_tokens = n_ids / n_docs;
}

static int
begin(struct acts *a, struct err *err)
{
    struct run *run = a->run;

    if (run_open_model(run, err) < 0 || acts_open_output(a, err) < 0)
        return -1;
    if (run->ctx > run->config->max_positions)
        return err_set(err, TU_USAGE, "--ctx %lld: the model's context is %lld",
                       (long long)run->ctx,
                       (long long)run->config->max_positions);
    if (run->prepend_bos && run->ctx == 1)
        return err_set(err, TU_USAGE,
                       "--ctx 1: with --prepend-bos a window is bos alone");
    acts_place_ids(a);
    if ((run->acts_meta || run->acts_ids) &&
        acts_sources(&a->sources, run, err) < 0)
        return -1;
    if (docs_open(&a->docs, run, err) < 0 ||
        run_open_engine(run, (size_t)run->chunk, err) < 0)
        return -1;
    if (run->acts_ids && !run->tok) { /* which ids are special? */
        struct err unknown = { 0 };

        run_open_tok(run, &unknown);
    }
    a->n_tokens = (size_t)run->ctx;
    if (acts_open_dumps(a, keep, err) < 0 ||
        (run->acts_ids && !a->dir.dir && acts_open_ids(a, err) < 0))
        return -1;
    a->progress = (struct progress){ .what = "acts",
                                     .unit = "token",
                                     .quiet = run->quiet };
    count_windows(a);
    a->sum = hash_new(HASH_SHA256);
    return acts_start(a, err);
}

static int
end(struct acts *a, struct err *err)
{
    const char *input = a->docs.name;
    bool tells = a->run->verbose;
    double seconds;

    if (a->n_windows > 0 && run_windows(a, err) < 0)
        return -1;
    seconds = clock_s() - a->started;
    tells |= a->progress.dirty;
    progress_end(&a->progress);
    if (a->n_written == 0 && a->run->ctx && !a->run->pad)
        return err_set(err, EX_DATAERR,
                       "%s: %zu token%s, not one window (expected at least "
                       "%zu)",
                       a->docs.where.s, a->stream.n, plural(a->stream.n),
                       a->n_tokens - a->run->prepend_bos);
    if (a->n_written == 0)
        return err_set(err, EX_DATAERR, "%s: there is no document with tokens",
                       input);
    if (a->stream.n)
        err_warn("%s: the last %zu token%s fill%s no window of %zu, dropped",
                 input, a->stream.n, plural(a->stream.n),
                 a->stream.n == 1 ? "s" : "", a->n_tokens);
    if (a->n_cut)
        err_warn("%s: %zu document%s longer than %zu token%s, cut", input,
                 a->n_cut, plural(a->n_cut), a->n_tokens, plural(a->n_tokens));
    if (a->n_empty)
        err_warn("%s: %zu document%s without tokens, left out", input,
                 a->n_empty, plural(a->n_empty));
    if (tells)
        tool_say("%zu window%s, %zu token%s in %.3f s (%.1f tokens/s)",
                 a->n_written, plural(a->n_written), a->n_real,
                 plural(a->n_real), seconds, (double)a->n_real / seconds);
    hash_end(a->sum, a->sha256);
    a->sum = NULL;
    return 0;
}

int
run_acts(struct run *run, struct err *err)
{
    struct acts a = { .run = run };
    int rc = begin(&a, err);

    if (rc == 0)
        rc = run->ctx && !run->pad ? pack(&a, err) : one_each(&a, err);
    if (rc == 0)
        rc = end(&a, err);
    if (rc == 0)
        rc = acts_publish(&a, err);
    acts_close(&a);
    return rc;
}
