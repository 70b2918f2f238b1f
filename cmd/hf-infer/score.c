/* --logits, --nll, --top: what the model thinks of a given text. */
#include "cmd/hf-infer/run.h"

#include <math.h>
#include <stdlib.h>

#include "cmd/hf-infer/prompt.h"
#include "core/clock.h"
#include "core/format/npy.h"
#include "core/js.h"
#include "core/kernel/cvt.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/tool.h"

static int
need_ids(const struct run *run, const struct ids *ids, size_t least,
         const char *what, struct err *err)
{
    if (ids->n >= least)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: the prompt has %zu tokens (%s needs at least %zu)",
                   prompt_name(run), ids->n, what, least);
}

/* -v: what was handled since then. */
static void
say_speed(const struct run *run, size_t n_tokens, double started)
{
    double seconds = clock_s() - started;

    if (run->verbose)
        tool_say("%zu tokens in %.3f s (%.1f token/s)", n_tokens, seconds,
                 (double)n_tokens / seconds);
}

/* Prompt and model: what all three begin with.  Nothing is written of a prompt
 * that the model cannot have. */
static int
start(struct run *run, size_t least, const char *what, struct ids *ids,
      struct err *err)
{
    if (prompt_ids(run, ids, err) < 0 ||
        need_ids(run, ids, least, what, err) < 0 ||
        run_open_model(run, 0, err) < 0 ||
        ids_check(ids->id, ids->n, run->config->vocab_size, prompt_name(run),
                  err) < 0)
        return -1;
    return run_open_model(run, ids->n, err);
}

struct npy_sink {
    struct out *out;
    size_t vocab_size;
    char *le; /* one row as it lies in the file */
};

static int
write_rows(void *ctx, const float *logits, size_t first, size_t n,
           struct err *err)
{
    struct npy_sink *sink = ctx;

    (void)first;
    for (size_t i = 0; i < n; i++) {
        cvt_from_f32(sink->le, DT_F32, logits + i * sink->vocab_size,
                     sink->vocab_size);
        if (out_write(sink->out, sink->le, sink->vocab_size * 4, err) < 0)
            return -1;
    }
    return 0;
}

static int
write_npy(struct run *run, const struct ids *ids, struct err *err)
{
    size_t vocab_size = (size_t)run->config->vocab_size;
    uint64_t shape[2] = { ids->n, vocab_size };
    struct npy_sink sink = { run->out, vocab_size, xmalloc(vocab_size * 4) };
    struct str head = { 0 };
    int rc = npy_header(&head, DT_F32, 2, shape, err);

    if (rc == 0)
        rc = out_reserve(run->out, head.n + ids->n * vocab_size * 4, err);
    if (rc == 0)
        rc = out_write(run->out, head.s, head.n, err);
    if (rc == 0)
        rc = feed(run, ids->id, ids->n, NULL, write_rows, &sink, err);
    free(sink.le);
    str_free(&head);
    return rc;
}

int
run_logits(struct run *run, struct err *err)
{
    struct ids ids = { 0 };
    int rc = start(run, 1, "--logits", &ids, err);
    double started = clock_s();

    if (rc == 0)
        rc = write_npy(run, &ids, err);
    if (rc == 0)
        say_speed(run, ids.n, started);
    ids_free(&ids);
    return rc;
}

/* log(sum(exp(x))) in f64: what turns a logit into a log-probability. */
static double
log_sum_exp(const float *x, size_t n)
{
    double max = (double)vec_max(x, n), sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

struct nll_sink {
    struct run *run;
    const struct ids *ids;
    size_t base;         /* position of the first token fed in this call */
    size_t compressed;   /* tokens before --kvc compressed; 0: it did not */
    size_t n_cached;     /* keys after that */
    double sum, after;   /* nats, of all, and of those told after that */
    struct str tsv;      /* of one chunk */
    const float *logits; /* of it, from position 'first' on */
    size_t first;
    double *nll;
};

static void
put_nll(struct nll_sink *sink, size_t position, double nll)
{
    int32_t id = sink->ids->id[position];
    size_t nbytes = 0;
    const char *text =
        sink->run->tok ? tok_text(sink->run->tok, id, &nbytes) : NULL;

    str_addf(&sink->tsv, "%zu\t%d\t%.6f\t", position, (int)id, nll);
    if (text)
        str_esc(&sink->tsv, text, nbytes);
    str_addc(&sink->tsv, '\n');
}

/* The logits at a position are about the token after it. */
static void
score_some(void *ctx, size_t begin, size_t end, int thread)
{
    const struct nll_sink *sink = ctx;
    size_t vocab_size = (size_t)sink->run->config->vocab_size;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const float *row = sink->logits + i * vocab_size;
        int32_t id = sink->ids->id[sink->first + i + 1];

        sink->nll[i] = log_sum_exp(row, vocab_size) - (double)row[id];
    }
}

/* Each row by any thread; what they tell is put together in their order. */
static int
score_rows(void *ctx, const float *logits, size_t first, size_t n,
           struct err *err)
{
    struct nll_sink *sink = ctx;
    size_t vocab_size = (size_t)sink->run->config->vocab_size;
    struct run *run = sink->run;
    int rc = 0;

    first += sink->base;
    if (n > sink->ids->n - 1 - first)
        n = sink->ids->n - 1 - first;
    sink->logits = logits;
    sink->first = first;
    sink->nll = xmalloc((n + 1) * sizeof(*sink->nll));
    par_for(run->par, n, 1, score_some, sink);
    for (size_t i = 0; i < n; i++) {
        double nll = sink->nll[i];

        if (!isfinite(nll)) /* as it is where the logits are not */
            rc = check_logits(run, run->dir, logits + i * vocab_size,
                              first + i + 1, err);
        if (rc < 0)
            break;
        sink->sum += nll;
        if (sink->compressed && first + i >= sink->compressed)
            sink->after += nll;
        put_nll(sink, first + i + 1, nll);
    }
    if (!run->json && sink->tsv.n &&
        out_write(run->out, sink->tsv.s, sink->tsv.n, err) < 0)
        rc = -1;
    str_clear(&sink->tsv);
    free(sink->nll);
    sink->nll = NULL;
    return rc;
}

/* What --kvc cost shows in the tokens after it; n of them, from the one that
 * the first token fed after it tells. */
static size_t
n_after(const struct nll_sink *sink)
{
    return sink->ids->n - 1 - sink->compressed;
}

static void
put_kvc_json(struct str *line, const struct nll_sink *sink)
{
    double mean = sink->after / (double)n_after(sink);

    str_addf(line,
             ",\"kvc\":{\"n_before\":%zu,\"n_cached\":%zu,\"n_tokens\":%zu,"
             "\"nll_mean\":",
             sink->compressed, sink->n_cached, n_after(sink));
    js_put_f64(line, mean);
    str_adds(line, ",\"perplexity\":");
    js_put_f64(line, exp(mean));
    str_addc(line, '}');
}

static void
say_kvc(const struct nll_sink *sink)
{
    double mean = sink->after / (double)n_after(sink);

    tool_say("after %zu tokens, kept as %zu: %zu tokens, mean nll %.6f nats, "
             "perplexity %.6g",
             sink->compressed, sink->n_cached, n_after(sink), mean, exp(mean));
}

static int
report_nll(struct run *run, const struct nll_sink *sink, struct err *err)
{
    size_t n = sink->ids->n - 1;
    double mean = sink->sum / (double)n;
    struct str line = { 0 };
    int rc = 0;

    if (run->json) {
        str_addf(&line, "{\"n_tokens\":%zu,\"nll_sum\":", n);
        js_put_f64(&line, sink->sum);
        str_adds(&line, ",\"nll_mean\":");
        js_put_f64(&line, mean);
        str_adds(&line, ",\"perplexity\":");
        js_put_f64(&line, exp(mean));
        if (sink->compressed)
            put_kvc_json(&line, sink);
        str_adds(&line, "}\n");
        rc = out_write(run->out, line.s, line.n, err);
    }
    if (!run->quiet)
        tool_say("%zu tokens, mean nll %.6f nats, perplexity %.6g", n, mean,
                 exp(mean));
    if (!run->quiet && sink->compressed)
        say_kvc(sink);
    str_free(&line);
    return rc;
}

/* --kvc: the first tokens are the prompt whose cache is compressed. */
static int
feed_compressed(struct nll_sink *sink, struct err *err)
{
    struct run *run = sink->run;
    const struct ids *ids = sink->ids;
    size_t n = run->kvc_after ? (size_t)run->kvc_after : ids->n / 2;

    if (n > ids->n - 2)
        return err_set(err, EX_DATAERR,
                       "%s: the text has %zu tokens (expected at least 2 "
                       "after the %zu that --kvc compresses)",
                       prompt_name(run), ids->n, n);
    if (feed(run, ids->id, n, NULL, score_rows, sink, err) < 0 ||
        compress(run, run->session, err) < 0)
        return -1;
    sink->n_cached = run->session->n_cached;
    if (sink->n_cached == n)
        err_warn("%s: %zu tokens are too few groups: nothing is compressed",
                 run->kvc, n);
    else
        sink->compressed = n;
    sink->base = n;
    return feed(run, ids->id + n, ids->n - n, NULL, score_rows, sink, err);
}

int
run_nll(struct run *run, struct err *err)
{
    static const char head[] = "position\tid\tnll\ttoken\n";
    struct ids ids = { 0 };
    struct nll_sink sink = { .run = run, .ids = &ids };
    int rc = start(run, 2, "--nll", &ids, err);
    double started = clock_s();

    if (rc == 0 && !run->json)
        rc = out_write(run->out, head, sizeof(head) - 1, err);
    if (rc == 0)
        rc = run->compressor
                 ? feed_compressed(&sink, err)
                 : feed(run, ids.id, ids.n, NULL, score_rows, &sink, err);
    if (rc == 0)
        say_speed(run, ids.n, started);
    if (rc == 0)
        rc = report_nll(run, &sink, err);
    str_free(&sink.tsv);
    ids_free(&ids);
    return rc;
}

static void
put_top_json(struct run *run, struct str *text, const float *x,
             const uint32_t *idx, size_t k, double mean, double std)
{
    str_adds(text, "{\"mean\":");
    js_put_f64(text, mean);
    str_adds(text, ",\"std\":");
    js_put_f64(text, std);
    str_adds(text, ",\"top\":[");
    for (size_t i = 0; i < k; i++) {
        size_t nbytes = 0;
        const char *s =
            run->tok ? tok_text(run->tok, (int32_t)idx[i], &nbytes) : NULL;

        str_addf(text, "%s{\"id\":%u,\"logit\":", i ? "," : "", idx[i]);
        js_put_f64(text, (double)x[idx[i]]);
        if (s) {
            str_adds(text, ",\"token\":");
            js_put_str(text, s, nbytes);
        }
        str_addc(text, '}');
    }
    str_adds(text, "]}\n");
}

static void
put_top_tsv(struct run *run, struct str *text, const float *x,
            const uint32_t *idx, size_t k, double mean, double std)
{
    str_addf(text, "id\tlogit\ttoken\nmean\t%.6f\t\nstd\t%.6f\t\n", mean, std);
    for (size_t i = 0; i < k; i++) {
        size_t nbytes = 0;
        const char *s =
            run->tok ? tok_text(run->tok, (int32_t)idx[i], &nbytes) : NULL;

        str_addf(text, "%u\t%.6f\t", idx[i], (double)x[idx[i]]);
        if (s)
            str_esc(text, s, nbytes);
        str_addc(text, '\n');
    }
}

static int
print_top(struct run *run, const float *x, struct err *err)
{
    size_t n = (size_t)run->config->vocab_size;
    size_t k = (size_t)run->top_k_logits < n ? (size_t)run->top_k_logits : n;
    uint32_t *idx = xmalloc(k * sizeof(*idx));
    double mean = 0, var = 0;
    struct str text = { 0 };
    int rc;

    for (size_t i = 0; i < n; i++)
        mean += (double)x[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        var += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
    vec_topk(idx, k, x, n);
    (run->json ? put_top_json : put_top_tsv)(run, &text, x, idx, k, mean,
                                             sqrt(var));
    rc = out_write(run->out, text.s, text.n, err);
    str_free(&text);
    free(idx);
    return rc;
}

int
run_top(struct run *run, struct err *err)
{
    struct ids ids = { 0 };
    float *last = NULL;
    int rc = start(run, 1, "--top", &ids, err);
    double started = clock_s();

    if (rc == 0) {
        last = xmalloc((size_t)run->config->vocab_size * sizeof(*last));
        rc = feed(run, ids.id, ids.n, last, NULL, NULL, err);
    }
    if (rc == 0)
        say_speed(run, ids.n, started);
    if (rc == 0)
        rc = check_logits(run, run->dir, last, ids.n, err);
    if (rc == 0)
        rc = print_top(run, last, err);
    free(last);
    ids_free(&ids);
    return rc;
}
