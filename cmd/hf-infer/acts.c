/*
 * --acts: documents become windows of tokens, windows go through the model
 * some at a time, and what the tap was passed for each is written in their
 * order: [window, layer, token, dim].
 */
#include "cmd/hf-infer/acts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/hf-infer/acts_array.h"
#include "core/clock.h"
#include "core/format/saev.h"
#include "core/hash.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/model/block.h"
#include "core/model/engine.h"
#include "core/tool.h"
#include "core/tty.h"

#define MAX_WINDOWS 64 /* at once */

/* A window that is run with others. */
struct window {
    struct session *session;
    size_t first, n_ids; /* a->ids: the tokens that are run */
    size_t n_tokens;     /* n_ids, or more: padding */
    uint8_t *acts;       /* [layers, n_tokens, dim] f32, little-endian */
};

struct acts {
    struct run *run;
    struct docs *docs;
    struct acts_spec spec;
    struct tap tap;
    size_t *place;     /* [model layers + 1] of layer + 1 in spec.layers */
    size_t dim;        /* floats of a token in a layer */
    size_t row_nbytes; /* of a token in all layers */
    size_t n_tokens;   /* of a window; the first one's where they differ */
    size_t n_expected; /* windows, or 0: not known before the end */
    struct ids ids;    /* of the windows, one after another */
    uint8_t *acts;     /* room for acts_tokens rows of the windows */
    size_t acts_tokens;
    struct window windows[MAX_WINDOWS];
    size_t n_windows;
    struct ids stream; /* packed documents, in no window yet */
    struct acts_array dump;
    struct out *meta;           /* of --acts-meta, or NULL */
    bool meta_first;            /* it was written before the dump */
    struct acts_array ids_file; /* of --acts-ids; .out NULL without */
    struct out *ids_json;
    struct acts_sources sources;
    struct hash *sum; /* of all ids */
    char sha256[HASH_MAX_HEX];
    size_t n_written; /* windows */
    size_t n_real;    /* tokens that were run */
    size_t n_cut;     /* documents longer than a window */
    size_t n_empty;   /* documents without a token */
    struct progress progress;
    double started;
};

/* ---- what is written ---- */

/* What is known of the dump so far. */
static struct acts_shape
shape_of(const struct acts *a)
{
    return (struct acts_shape){
        .spec = &a->spec,
        .dim = a->dim,
        .n_tokens = a->n_tokens,
        .n_windows = a->n_written ? a->n_written : a->n_expected,
        .input = docs_input(a->docs),
        .windows = a->run->ctx == 0 ? "whole"
                   : a->run->pad    ? "padded"
                                    : "packed",
        .sha256 = a->sha256[0] ? a->sha256 : NULL,
        .sources = &a->sources,
    };
}

static int
publish(struct out **out, const struct str *text, struct err *err)
{
    int rc = out_write(*out, text->s, text->n, err);

    if (rc == 0)
        rc = out_commit(*out, err);
    else
        out_abort(*out);
    *out = NULL;
    return rc;
}

/* The metadata is written before the first activation where a pipe's reader
 * waits for both, else after the last, when all of it is known. */
static int
publish_meta(struct acts *a, struct err *err)
{
    struct acts_shape shape = shape_of(a);
    struct str text = { 0 };
    int rc;

    acts_meta(&text, a->run, &shape);
    rc = publish(&a->meta, &text, err);
    str_free(&text);
    return rc;
}

/* The ids, after what is known of them: with --acts-meta the name of the dump,
 * by the hash of the metadata that are on the disk, but for n_imgs where
 * saev-write counts them. */
static int
publish_ids(struct acts *a, struct err *err)
{
    struct acts_shape shape = shape_of(a);
    struct str text = { 0 }, meta = { 0 };
    char dump[SAEV_HASH_MAX] = "";
    int rc = 0;

    if (a->run->acts_meta) {
        if (a->meta_first)
            shape.sha256 = NULL;
        acts_meta(&meta, a->run, &shape);
        rc = saev_hash_text(meta.s, meta.n, a->run->acts_meta, dump, err);
        shape.sha256 = a->sha256;
    }
    acts_ids_json(&text, &shape, dump);
    if (rc == 0)
        rc = acts_write_head(&a->ids_file, err);
    if (rc == 0)
        rc = publish(&a->ids_json, &text, err);
    if (rc == 0) {
        rc = out_commit(a->ids_file.out, err);
        a->ids_file.out = NULL;
    }
    str_free(&text);
    str_free(&meta);
    return rc;
}

/* Writes the activations of all windows, and their ids, as int32 [window,
 * token], -1 where padded; these make a sum, too. */
static int
write_windows(struct acts *a, size_t n_tokens, struct err *err)
{
    const char *output = a->run->output;
    bool to_stdout = !output || strcmp(output, "-") == 0;
    uint8_t *le = xmalloc(n_tokens * 4), *to = le;
    int rc = 0;

    if (a->n_written == 0 && to_stdout && a->meta) {
        a->meta_first = true;
        rc = publish_meta(a, err);
    }
    a->dump.shape[2] = a->ids_file.shape[1] = a->n_tokens;
    for (size_t k = 0; k < a->n_windows; k++) {
        const struct window *w = &a->windows[k];

        for (size_t i = 0; i < w->n_tokens; i++, to += 4)
            put_le32(to, i < w->n_ids ? (uint32_t)a->ids.id[w->first + i]
                                      : UINT32_MAX);
    }
    hash_add(a->sum, le, n_tokens * 4);
    if (rc == 0 && a->ids_file.out)
        rc =
            acts_write_array(&a->ids_file, a->n_windows, le, n_tokens * 4, err);
    free(le);
    if (rc < 0)
        return -1;
    a->n_written += a->n_windows;
    a->n_real += a->ids.n;
    progress_at(&a->progress, a->n_real);
    return acts_write_array(&a->dump, a->n_windows, a->acts,
                            n_tokens * a->row_nbytes, err);
}

/* ---- windows through the model ---- */

/* Keeps what the tap is passed. */
static void
keep(void *ctx, struct session *session, int64_t layer, size_t first, size_t n,
     const float *rows)
{
    struct acts *a = ctx;
    const struct window *w = a->windows;
    size_t place = a->place[layer + 1];

    if (place == SIZE_MAX)
        return;
    while (w->session != session)
        w++;
    cvt_from_f32(w->acts + (place * w->n_tokens + first) * a->dim * 4, DT_F32,
                 rows, n * a->dim);
}

static int
run_windows(struct acts *a, struct err *err)
{
    struct feed feeds[MAX_WINDOWS] = { 0 };
    size_t n_tokens = 0;
    uint8_t *at;
    int rc;

    for (size_t i = 0; i < a->n_windows; i++)
        n_tokens += a->windows[i].n_tokens;
    if (n_tokens > a->acts_tokens) {
        mem_big_free(a->acts, a->acts_tokens, a->row_nbytes);
        a->acts = mem_big(n_tokens, a->row_nbytes, "the activations", err);
        a->acts_tokens = a->acts ? n_tokens : 0;
        if (!a->acts)
            return -1;
    }
    at = a->acts;
    for (size_t i = 0; i < a->n_windows; i++) {
        struct window *w = &a->windows[i];

        w->acts = at;
        at += w->n_tokens * a->row_nbytes;
        if (w->n_ids < w->n_tokens) /* padding is zeros */
            memset(w->acts, 0, w->n_tokens * a->row_nbytes);
        w->session = session_new(a->run->engine, w->n_ids);
        feeds[i].session = w->session;
        feeds[i].ids = a->ids.id + w->first;
        feeds[i].n = w->n_ids;
    }
    rc = engine_feed(a->run->engine, feeds, a->n_windows, &a->tap, NULL, err);
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
        (a->dump.npy || a->run->acts_meta || a->run->acts_ids))
        return err_set(err, EX_DATAERR,
                       "%s: %zu token%s, but those before have %zu (expected "
                       "one length: --ctx makes windows)",
                       docs_where(a->docs), n_tokens, plural(n_tokens),
                       a->n_tokens);
    a->windows[a->n_windows++] =
        (struct window){ .first = first, .n_ids = n, .n_tokens = n_tokens };
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
    size_t ctx = (size_t)a->run->ctx;
    struct ids *s = &a->stream;
    bool last = false, join = false; /* a document ended: eos, the next one */

    for (;;) {
        size_t from = s->n, at = 0;
        int rc;

        if (join)
            ids_add(s, c->n_eos ? c->eos[0] : 0);
        rc = docs_next(a->docs, s, &last, err);
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
        for (; s->n - at >= ctx; at += ctx) {
            size_t first = a->ids.n;

            for (size_t i = 0; i < ctx; i++)
                ids_add(&a->ids, s->id[at + i]);
            if (add_window(a, first, err) < 0)
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
            int rc = docs_next(a->docs, &a->ids, &last, err);

            if (rc <= 0)
                return rc;
            if (a->ids.n - first <= most)
                continue;
            if (!ctx)
                return err_set(err, EX_DATAERR,
                               "%s: more than %zu tokens, the model's context "
                               "(--ctx makes windows)",
                               docs_where(a->docs), most);
            a->ids.n = first + most;
            cut = true;
        }
        a->n_cut += cut;
        if (a->ids.n == first && !ctx)
            return err_set(err, EX_DATAERR,
                           "%s: no tokens (expected at least 1)",
                           docs_where(a->docs));
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
    size_t n_docs = docs_count(a->docs), n_joins = n_docs ? n_docs - 1 : 0;
    size_t n_ids = docs_n_ids(a->docs), ctx = (size_t)a->run->ctx;

    a->n_expected = n_docs;
    a->progress.total = n_ids;
    if (ctx && a->run->pad && n_docs && n_ids / n_docs > ctx) {
        a->progress.total = n_docs * ctx;
    } else if (ctx && !a->run->pad) {
        a->n_expected = (n_ids + n_joins) / ctx;
        a->progress.total = a->n_expected * ctx;
    }
    if (n_docs && !ctx) /* they have one length */
        a->n_tokens = n_ids / n_docs;
}

/* --acts-ids FILE, and FILE.json. */
static int
open_ids(struct acts *a, struct err *err)
{
    const struct run *run = a->run;
    struct str name = { 0 };
    struct stat st;
    int rc;

    if (strcmp(run->acts_ids, "-") == 0 ||
        (stat(run->acts_ids, &st) == 0 && !S_ISREG(st.st_mode) &&
         !S_ISDIR(st.st_mode)))
        return err_set(err, TU_USAGE,
                       "--acts-ids %s: must be a file, whose header is written "
                       "at the end",
                       run->acts_ids);
    str_addf(&name, "%s.json", run->acts_ids);
    rc = out_open(&a->ids_file.out, run->acts_ids, run->out_flags, true, err);
    if (rc == 0)
        rc = out_open(&a->ids_json, name.s, run->out_flags, false, err);
    str_free(&name);
    return rc;
}

static int
begin(struct acts *a, struct err *err)
{
    struct run *run = a->run;
    size_t n = run->output ? strlen(run->output) : 0;
    size_t n_layers;

    if (run_open_model(run, err) < 0 ||
        acts_spec_parse(&a->spec, run->acts, run->config, err) < 0)
        return -1;
    if (run->ctx > run->config->max_positions)
        return err_set(err, TU_USAGE, "--ctx %lld: the model's context is %lld",
                       (long long)run->ctx,
                       (long long)run->config->max_positions);
    if ((run->acts_meta || run->acts_ids) &&
        acts_sources(&a->sources, run, err) < 0)
        return -1;
    if (docs_open(&a->docs, run, err) < 0 ||
        run_open_engine(run, (size_t)run->chunk, err) < 0)
        return -1;
    if (run->acts_meta &&
        out_open(&a->meta, run->acts_meta, run->out_flags, false, err) < 0)
        return -1;
    if (run->acts_ids && open_ids(a, err) < 0)
        return -1;
    a->n_tokens = (size_t)run->ctx;
    a->progress = (struct progress){ .what = "acts",
                                     .unit = "token",
                                     .quiet = run->quiet };
    count_windows(a);
    if (acts_spec_mixed(run->acts))
        return err_set(err, TU_USAGE,
                       "--acts %s: are places of different points: one array "
                       "has several layers of one point",
                       run->acts);
    a->dim = tap_dim(run->config, a->spec.places->point);
    if (!size_mul(a->dim * 4, a->spec.n, &a->row_nbytes))
        return err_set(err, EX_SOFTWARE,
                       "%s: %zu layers of %zu floats (expected under 2^64 "
                       "bytes)",
                       run->dir, a->spec.n, a->dim);
    a->sum = hash_new(HASH_SHA256);
    n_layers = (size_t)run->config->n_layers;
    a->place = xcalloc(n_layers + 1, sizeof(*a->place));
    memset(a->place, 0xff, (n_layers + 1) * sizeof(*a->place));
    a->tap = (struct tap){ a->spec.places->point, -1, keep, a };
    for (size_t i = 0; i < a->spec.n; i++) {
        int64_t layer = a->spec.places[i].layer;

        a->place[layer + 1] = i;
        if (layer > a->tap.last_layer)
            a->tap.last_layer = layer;
    }
    a->dump = (struct acts_array){
        .out = run->out,
        .npy = n > 4 && !strcmp(run->output + n - 4, ".npy"),
        .dtype = DT_F32,
        .n_dims = 4,
        .shape = { 0, a->spec.n, a->n_tokens, a->dim },
    };
    a->ids_file = (struct acts_array){ .out = a->ids_file.out,
                                       .npy = true,
                                       .dtype = DT_I32,
                                       .n_dims = 2,
                                       .shape = { 0, a->n_tokens } };
    a->started = clock_s();
    progress_start(&a->progress);
    if (run->acts_ids && acts_reserve(&a->ids_file, a->n_expected, err) < 0)
        return -1;
    return acts_reserve(&a->dump, a->n_expected, err);
}

static int
end(struct acts *a, struct err *err)
{
    const char *input = docs_input(a->docs);
    double seconds;

    if (a->n_windows > 0 && run_windows(a, err) < 0)
        return -1;
    seconds = clock_s() - a->started;
    progress_end(&a->progress);
    if (a->n_written == 0 && a->run->ctx && !a->run->pad)
        return err_set(err, EX_DATAERR,
                       "%s: %zu token%s, not one window (expected at least "
                       "%zu)",
                       docs_where(a->docs), a->stream.n, plural(a->stream.n),
                       a->n_tokens);
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
    if (a->run->verbose)
        tool_say("%zu window%s, %zu token%s in %.3f s (%.1f tokens/s)",
                 a->n_written, plural(a->n_written), a->n_real,
                 plural(a->n_real), seconds, (double)a->n_real / seconds);
    hash_hex(a->sum, a->sha256);
    return a->dump.npy ? acts_write_head(&a->dump, err) : 0;
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
    /* The activations first: metadata and ids must not be there without the
     * dump. */
    if (rc == 0 && (a.meta || a.ids_file.out)) {
        rc = out_commit(run->out, err);
        run->out = NULL;
    }
    if (rc == 0 && a.meta)
        rc = publish_meta(&a, err);
    if (rc == 0 && a.ids_file.out)
        rc = publish_ids(&a, err);
    progress_end(&a.progress);
    out_abort(a.meta);
    out_abort(a.ids_json);
    out_abort(a.ids_file.out);
    str_free(&a.sources.text);
    mem_big_free(a.acts, a.acts_tokens, a.row_nbytes);
    hash_free(a.sum);
    ids_free(&a.ids);
    ids_free(&a.stream);
    free(a.place);
    docs_close(a.docs);
    acts_spec_free(&a.spec);
    return rc;
}
