/*
 * --acts: documents become windows of tokens, windows go through the model
 * some at a time, and what the listener saw of each is written in their order:
 * [window, layer, token, dim].
 */
#include "cmd/hf-infer/acts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/npy.h"
#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/tty.h"

/* A window on its way: its first n_ids tokens are real, the rest padding. */
struct window {
    struct session *session;
    struct ids ids;
    float *acts; /* [layers, tokens, dim] */
};

struct acts {
    struct run *run;
    struct docs *docs;
    struct acts_spec spec;
    struct tap tap;
    size_t *place;          /* [model layers + 1] of layer + 1 in spec.layers */
    size_t dim, n_tokens;   /* of a window; n_tokens 0: not yet known */
    struct window *windows; /* [max_windows], the first n_windows in use */
    size_t n_windows, max_windows;
    struct feed *feeds; /* [max_windows] */
    struct out *meta;   /* of --acts-meta, or NULL */
    bool npy;           /* -o FILE.npy */
    size_t head_nbytes; /* its header's room */
    size_t n_written;   /* windows */
    size_t n_real;      /* tokens that were run */
    size_t n_dropped;   /* tokens at the end that fill no window */
    size_t n_cut;       /* documents longer than a window */
    struct progress progress;
    double started;
};

/* ---- what the listener sees ---- */

static void
listen(void *ctx, struct session *session, int64_t layer, size_t first,
       size_t n, const float *rows)
{
    struct acts *a = ctx;
    size_t place = a->place[layer + 1];

    if (place == SIZE_MAX)
        return;
    for (size_t i = 0; i < a->n_windows; i++) {
        struct window *w = &a->windows[i];

        if (w->session == session)
            memcpy(w->acts + (place * a->n_tokens + first) * a->dim, rows,
                   n * a->dim * sizeof(*rows));
    }
}

static void
set_tap(struct acts *a)
{
    size_t n = (size_t)a->run->config->n_layers + 1;

    a->place = xcalloc(n, sizeof(*a->place));
    memset(a->place, 0xff, n * sizeof(*a->place));
    a->tap = (struct tap){ a->spec.point, -1, listen, a };
    for (size_t i = 0; i < a->spec.n_layers; i++) {
        a->place[a->spec.layers[i] + 1] = i;
        if (a->spec.layers[i] > a->tap.last_layer)
            a->tap.last_layer = a->spec.layers[i];
    }
    engine_tap(a->run->engine, &a->tap);
}

/* ---- what is written ---- */

static size_t
window_floats(const struct acts *a)
{
    return a->spec.n_layers * a->n_tokens * a->dim;
}

static const char *
kind_of(const struct run *run)
{
    return run->ctx == 0 ? "whole" : run->pad ? "padded" : "packed";
}

/* The metadata goes before the first activation where a pipe's reader waits
 * for both, and after the last where their number is then known. */
static int
publish_meta(struct acts *a, bool at_end, struct err *err)
{
    struct acts_shape shape = {
        .spec = &a->spec,
        .dim = a->dim,
        .n_tokens = a->n_tokens,
        .n_windows_known = at_end || (docs_count(a->docs) > 0 &&
                                      (a->run->ctx == 0 || a->run->pad)),
        .n_windows = at_end ? a->n_written : docs_count(a->docs),
        .input = docs_input(a->docs),
        .windows = kind_of(a->run),
    };
    struct str s = { 0 };
    struct out *out = a->meta;
    int rc;

    if (!out)
        return 0;
    a->meta = NULL;
    acts_meta(&s, a->run, &shape);
    rc = out_write(out, s.s, s.n, err);
    if (rc == 0)
        rc = out_commit(out, err);
    else
        out_abort(out);
    str_free(&s);
    return rc;
}

/* The header of n windows, spread to the room that was left for it. */
static int
npy_head(const struct acts *a, struct str *head, uint64_t n, struct err *err)
{
    uint64_t shape[4] = { n, a->spec.n_layers, a->n_tokens, a->dim };

    return npy_header(head, DT_F32, 4, shape, err);
}

static int
write_head(struct acts *a, struct err *err)
{
    struct str head = { 0 };
    int rc = npy_head(a, &head, a->n_written, err);

    /* numpy leaves the header room to grow; the first dim never needs more */
    if (rc == 0 && head.n != a->head_nbytes)
        rc = err_set(err, EX_SOFTWARE, "%s: the header has %zu bytes, not %zu",
                     a->run->output, head.n, a->head_nbytes);
    if (rc == 0)
        rc = out_pwrite(a->run->out, head.s, head.n, 0, err);
    str_free(&head);
    return rc;
}

static int
write_window(struct acts *a, const struct window *w, struct err *err)
{
    size_t n = window_floats(a), nbytes = n * sizeof(float);

    if (a->n_written == 0 && !a->run->output && publish_meta(a, false, err) < 0)
        return -1;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    cvt_from_f32(w->acts, DT_F32, w->acts, n);
#endif
    a->n_written++;
    if (a->npy)
        return out_pwrite(a->run->out, w->acts, nbytes,
                          a->head_nbytes + (a->n_written - 1) * nbytes, err);
    return out_write(a->run->out, w->acts, nbytes, err);
}

/* ---- windows through the model ---- */

static int
run_windows(struct acts *a, struct err *err)
{
    size_t n_feeds = 0;

    for (size_t i = 0; i < a->n_windows; i++) {
        struct window *w = &a->windows[i];
        size_t real = w->ids.n;

        for (size_t l = 0; l < a->spec.n_layers && real < a->n_tokens; l++)
            memset(w->acts + (l * a->n_tokens + real) * a->dim, 0,
                   (a->n_tokens - real) * a->dim * sizeof(float));
        if (real > 0)
            a->feeds[n_feeds++] =
                (struct feed){ w->session, w->ids.id, real, 0, false };
        a->n_real += real;
    }
    if (engine_feed(a->run->engine, a->feeds, n_feeds, NULL, err) < 0)
        return -1;
    for (size_t i = 0; i < a->n_windows; i++) {
        if (write_window(a, &a->windows[i], err) < 0)
            return -1;
        session_reset(a->windows[i].session);
        a->windows[i].ids.n = 0;
    }
    a->n_windows = 0;
    progress_at(&a->progress, a->n_real);
    return 0;
}

/* Windows of another length begin: room for them. */
static int
set_length(struct acts *a, size_t n_tokens, struct err *err)
{
    bool one_length = a->run->acts_meta || a->npy;

    if (n_tokens == a->n_tokens)
        return 0;
    if (a->n_tokens > 0 && one_length)
        return err_set(err, EX_DATAERR,
                       "%s: %zu tokens, but those before have %zu (expected "
                       "one length: --ctx makes windows)",
                       docs_where(a->docs), n_tokens, a->n_tokens);
    if (a->n_windows > 0 && run_windows(a, err) < 0)
        return -1;
    for (size_t i = 0; i < a->max_windows; i++)
        mem_big_free(a->windows[i].acts, window_floats(a), sizeof(float));
    for (size_t i = 0; i < a->max_windows; i++)
        a->windows[i].acts = NULL;
    a->n_tokens = n_tokens;
    for (size_t i = 0; i < a->max_windows; i++) {
        a->windows[i].acts = mem_big(window_floats(a), sizeof(float),
                                     "a window's activations", err);
        if (!a->windows[i].acts)
            return -1;
    }
    if (a->npy) {
        struct str head = { 0 };
        int rc = npy_head(a, &head, 0, err);

        a->head_nbytes = head.n;
        str_free(&head);
        return rc;
    }
    return 0;
}

static int
add_window(struct acts *a, const int32_t *ids, size_t n, struct err *err)
{
    struct window *w;

    if (a->n_windows == a->max_windows && run_windows(a, err) < 0)
        return -1;
    w = &a->windows[a->n_windows++];
    for (size_t i = 0; i < n; i++)
        ids_add(&w->ids, ids[i]);
    return 0;
}

/* ---- documents into windows ---- */

/* Documents joined by eos, cut every --ctx tokens. */
static int
pack(struct acts *a, struct err *err)
{
    size_t ctx = (size_t)a->run->ctx, n_docs = 0;
    struct ids doc = { 0 }, stream = { 0 };
    int rc;

    while ((rc = docs_next(a->docs, &doc, err)) > 0) {
        size_t at = 0;

        if (n_docs++ > 0 && a->run->config->n_eos == 0) {
            rc = err_set(err, EX_DATAERR,
                         "%s: config.json names no eos_token_id to join "
                         "documents with (--pad needs none)",
                         a->run->dir);
            break;
        }
        if (n_docs > 1)
            ids_add(&stream, a->run->config->eos[0]);
        for (size_t i = 0; i < doc.n; i++)
            ids_add(&stream, doc.id[i]);
        for (; rc > 0 && stream.n - at >= ctx; at += ctx)
            if (add_window(a, stream.id + at, ctx, err) < 0)
                rc = -1;
        memmove(stream.id, stream.id + at,
                (stream.n - at) * sizeof(*stream.id));
        stream.n -= at;
        if (rc < 0)
            break;
    }
    a->n_dropped = stream.n;
    ids_free(&doc);
    ids_free(&stream);
    return rc;
}

/* A document a window: padded or cut to --ctx, or as long as it is. */
static int
one_each(struct acts *a, struct err *err)
{
    size_t ctx = (size_t)a->run->ctx;
    struct ids doc = { 0 };
    int rc;

    while ((rc = docs_next(a->docs, &doc, err)) > 0) {
        size_t context = (size_t)a->run->config->max_positions;

        if (doc.n == 0) {
            rc = err_set(err, EX_DATAERR, "%s: no tokens (expected at least 1)",
                         docs_where(a->docs));
        } else if (!ctx && doc.n > context) {
            rc = err_set(err, EX_DATAERR,
                         "%s: %zu tokens (expected at most %zu, the model's "
                         "context)",
                         docs_where(a->docs), doc.n, context);
        } else {
            a->n_cut += ctx && doc.n > ctx;
            doc.n = ctx && doc.n > ctx ? ctx : doc.n;
            rc = set_length(a, ctx ? ctx : doc.n, err);
            if (rc == 0)
                rc = add_window(a, doc.id, doc.n, err);
        }
        if (rc < 0)
            break;
    }
    ids_free(&doc);
    return rc;
}

/* ---- from begin to end ---- */

static int
check_ctx(const struct run *run, struct err *err)
{
    if (run->ctx <= run->config->max_positions)
        return 0;
    return err_set(err, TU_USAGE, "--ctx %lld: the model's context is %lld",
                   (long long)run->ctx, (long long)run->config->max_positions);
}

static int
begin(struct acts *a, struct err *err)
{
    struct run *run = a->run;
    size_t chunk = (size_t)run->chunk, ctx = (size_t)run->ctx;
    size_t n = run->output ? strlen(run->output) : 0;

    if (run_open_model(run, 0, err) < 0 ||
        acts_spec_parse(&a->spec, run->acts, run->config, err) < 0 ||
        check_ctx(run, err) < 0 || docs_open(&a->docs, run, err) < 0 ||
        run_open_engine(run, chunk, err) < 0)
        return -1;
    if (run->acts_meta &&
        out_open(&a->meta, run->acts_meta, run->out_flags, false, err) < 0)
        return -1;
    a->npy = n > 4 && !strcmp(run->output + n - 4, ".npy");
    a->dim = tap_dim(run->config, a->spec.point);
    /* As many short windows at once as fill a chunk. */
    a->max_windows = ctx && ctx < chunk ? chunk / ctx : 1;
    a->windows = xcalloc(a->max_windows, sizeof(*a->windows));
    a->feeds = xcalloc(a->max_windows, sizeof(*a->feeds));
    for (size_t i = 0; i < a->max_windows; i++)
        a->windows[i].session =
            session_new(run->engine, (size_t)run->config->max_positions);
    set_tap(a);
    a->started = now();
    a->progress = (struct progress){ .what = "acts",
                                     .unit = "token",
                                     .quiet = run->quiet };
    progress_start(&a->progress);
    if (ctx)
        return set_length(a, ctx, err);
    return docs_length(a->docs) ? set_length(a, docs_length(a->docs), err) : 0;
}

static int
end(struct acts *a, struct err *err)
{
    double seconds = now() - a->started;

    if (a->n_windows > 0 && run_windows(a, err) < 0)
        return -1;
    progress_end(&a->progress);
    if (a->n_written == 0)
        return err_set(err, EX_DATAERR,
                       "%s: %zu tokens, not one window (expected at least %zu)",
                       docs_where(a->docs), a->n_dropped, a->n_tokens);
    if (a->n_dropped)
        err_warn("%s: the last %zu tokens fill no window of %zu, dropped",
                 docs_input(a->docs), a->n_dropped, a->n_tokens);
    if (a->n_cut)
        err_warn("%s: %zu documents are longer than %zu tokens, cut",
                 docs_input(a->docs), a->n_cut, a->n_tokens);
    if (a->run->verbose)
        fprintf(stderr,
                "hf-infer: %zu windows, %zu tokens in %.3f s (%.1f token/s)\n",
                a->n_written, a->n_real, seconds, (double)a->n_real / seconds);
    if (a->npy && write_head(a, err) < 0)
        return -1;
    return 0;
}

static void
acts_free(struct acts *a)
{
    out_abort(a->meta);
    for (size_t i = 0; i < a->max_windows; i++) {
        session_close(a->windows[i].session);
        ids_free(&a->windows[i].ids);
        mem_big_free(a->windows[i].acts, window_floats(a), sizeof(float));
    }
    free(a->windows);
    free(a->feeds);
    free(a->place);
    docs_close(a->docs);
    acts_spec_free(&a->spec);
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
    /* The activations first: metadata of a dump that is not there mislead. */
    if (rc == 0 && a.meta) {
        rc = out_commit(run->out, err);
        run->out = NULL;
        if (rc == 0)
            rc = publish_meta(&a, true, err);
    }
    acts_free(&a);
    return rc;
}
