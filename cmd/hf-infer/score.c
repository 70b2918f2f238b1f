/* --logits, --nll, --top: how the model scores a given text. */
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
#include "core/tty.h"

/* With -v, how fast it was. */
static void
say_speed(const struct run *run, size_t n_tokens, double started)
{
    double seconds = clock_s() - started;

    if (run->verbose)
        tool_say("%zu token%s in %.3f s (%.1f tokens/s)", n_tokens,
                 plural(n_tokens), seconds, (double)n_tokens / seconds);
}

/* Opens the prompt, of at least so many tokens, the model and a session:
 * nothing is written for a prompt that the model cannot have. */
static int
start(struct run *run, size_t min, const char *what, struct ids *ids,
      struct err *err)
{
    if (prompt_ids(run, ids, err) < 0)
        return -1;
    if (ids->n < min)
        return err_set(err, EX_DATAERR,
                       "%s: the prompt has %zu token%s (%s needs at least %zu)",
                       prompt_name(run), ids->n, plural(ids->n), what, min);
    if (run_open_model(run, err) < 0 ||
        ids_check(ids->id, ids->n, run->config->vocab_size, prompt_name(run),
                  err) < 0)
        return -1;
    return run_open_session(run, ids->n, err);
}

int
run_logits(struct run *run, struct err *err)
{
    struct ids ids = { 0 };
    struct str head = { 0 };
    size_t rows = 0, vocab_size = 0;
    float *logits = NULL;
    char *le = NULL; /* one row in little-endian */
    int rc = start(run, 1, "--logits", &ids, err);
    struct progress progress = { .what = "prompt",
                                 .unit = "token",
                                 .total = ids.n,
                                 .quiet = !run->verbose };
    double started = clock_s();

    if (rc < 0)
        goto out;
    vocab_size = (size_t)run->config->vocab_size;
    rows = rows_at_once(run, ids.n);
    le = xmalloc(vocab_size * 4);
    logits = mem_big(rows, vocab_size * sizeof(*logits), "logits", err);
    if (!logits ||
        npy_header(&head, DT_F32, 2, (uint64_t[]){ ids.n, vocab_size }, err) <
            0 ||
        out_reserve(run->out, head.n + ids.n * vocab_size * 4, err) < 0 ||
        out_write(run->out, head.s, head.n, err) < 0)
        rc = -1;
    progress_start(&progress);
    for (size_t i = 0, n; rc == 0 && i < ids.n; i += n) {
        n = smaller(ids.n - i, rows);
        rc = session_feed(run->session, ids.id + i, n, logits, n, err);
        for (size_t k = 0; rc == 0 && k < n; k++) {
            cvt_from_f32(le, DT_F32, logits + k * vocab_size, vocab_size);
            rc = out_write(run->out, le, vocab_size * 4, err);
        }
        progress_at(&progress, i + n);
    }
    progress_end(&progress);
    if (rc == 0)
        say_speed(run, ids.n, started);
out:
    mem_big_free(logits, rows, vocab_size * sizeof(*logits));
    free(le);
    str_free(&head);
    ids_free(&ids);
    return rc;
}

struct nll {
    struct run *run;
    const int32_t *ids; /* [n_ids] the text */
    size_t n_ids;
    size_t rows;         /* positions whose logits are asked for in one call */
    float *logits;       /* [rows, vocab_size] */
    const int32_t *next; /* [rows] what they are about: the token after each */
    double *of_row;      /* [rows] nats */
    double sum, part;    /* nats of all tokens, and since part was set to 0 */
    struct progress progress;
};

static void
score_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct nll *nll = ctx;
    size_t vocab_size = (size_t)nll->run->config->vocab_size;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const float *row = nll->logits + i * vocab_size;
        double max = (double)vec_max(row, vocab_size), sum = 0;

        for (size_t k = 0; k < vocab_size; k++)
            sum += exp((double)row[k] - max);
        nll->of_row[i] = max + log(sum) - (double)row[nll->next[i]];
    }
}

/* Feeds tokens begin .. end - 1 of the text and scores the token after each,
 * the text's last one excepted.  Rows are scored by any thread, and summed in
 * their order. */
static int
feed_scored(struct nll *nll, size_t begin, size_t end, struct err *err)
{
    struct run *run = nll->run;
    size_t vocab_size = (size_t)run->config->vocab_size;
    struct str tsv = { 0 };
    int rc = 0;

    for (size_t i = begin, n, n_scored; rc == 0 && i < end; i += n) {
        n = smaller(end - i, nll->rows);
        n_scored = smaller(n, nll->n_ids - 1 - i);
        rc = session_feed(run->session, nll->ids + i, n, nll->logits, n, err);
        if (rc < 0)
            break;
        nll->next = nll->ids + i + 1;
        par_for(run->par, n_scored, 1, score_rows, nll);
        for (size_t k = 0; rc == 0 && k < n_scored; k++) {
            size_t nbytes = 0;
            const char *text;

            if (!isfinite(nll->of_row[k])) /* where the logits are not */
                rc = check_logits(run, run->dir, nll->logits + k * vocab_size,
                                  i + k + 1, err);
            if (rc < 0)
                break;
            nll->sum += nll->of_row[k];
            nll->part += nll->of_row[k];
            if (run->json)
                continue;
            str_addf(&tsv, "%zu\t%d\t%.6f\t", i + k + 1, (int)nll->next[k],
                     nll->of_row[k]);
            text = run->tok ? tok_text(run->tok, nll->next[k], &nbytes) : NULL;
            if (text)
                str_esc(&tsv, text, nbytes);
            str_addc(&tsv, '\n');
        }
        if (tsv.n && out_write(run->out, tsv.s, tsv.n, err) < 0)
            rc = -1;
        str_clear(&tsv);
        progress_at(&nll->progress, i + n);
    }
    str_free(&tsv);
    return rc;
}

/* ,"nll_mean":..,"perplexity":.. */
static void
put_mean(struct str *line, double mean)
{
    str_adds(line, ",\"nll_mean\":");
    js_put_f64(line, mean);
    str_adds(line, ",\"perplexity\":");
    js_put_f64(line, exp(mean));
}

int
run_nll(struct run *run, struct err *err)
{
    static const char head[] = "position\tid\tnll\ttoken\n";
    struct ids ids = { 0 };
    struct nll nll = { .run = run };
    struct str line = { 0 };
    size_t vocab_size = 0, n_after = 0, n_before = 0, n_cached;
    double mean, started;
    int rc = start(run, 2, "--nll", &ids, err);

    if (rc < 0)
        goto out;
    started = clock_s();
    vocab_size = (size_t)run->config->vocab_size;
    nll.ids = ids.id;
    nll.n_ids = ids.n;
    nll.rows = rows_at_once(run, ids.n);
    nll.of_row = xcalloc(nll.rows, sizeof(*nll.of_row));
    nll.progress = (struct progress){ .what = "prompt",
                                      .unit = "token",
                                      .total = ids.n,
                                      .quiet = !run->verbose };
    nll.logits = mem_big(nll.rows, vocab_size * sizeof(float), "logits", err);
    rc = nll.logits ? 0 : -1;
    if (rc == 0 && !run->json)
        rc = out_write(run->out, head, sizeof(head) - 1, err);
    progress_start(&nll.progress);
    if (rc == 0 && run->compressor) {
        /* the first tokens are the prompt whose cache is compressed */
        n_before = run->kvc_after ? (size_t)run->kvc_after : ids.n / 2;
        if (n_before > ids.n - 2)
            rc = err_set(err, EX_DATAERR,
                         "%s: the text has %zu tokens (expected at least 2 "
                         "after the %zu that --kvc compresses)",
                         prompt_name(run), ids.n, n_before);
        if (rc == 0 && (feed_scored(&nll, 0, n_before, err) < 0 ||
                        compress(run, run->session, err) < 0))
            rc = -1;
        if (rc == 0 && run->session->n_cached == n_before)
            err_warn("%s: %zu token%s: too few groups, nothing is compressed",
                     run->kvc, n_before, plural(n_before));
        else if (rc == 0)
            n_after = ids.n - 1 - n_before;
        nll.part = 0;
    }
    n_cached = run->session->n_cached;
    if (rc == 0)
        rc = feed_scored(&nll, n_before, ids.n, err);
    progress_end(&nll.progress);
    if (rc < 0)
        goto out;
    say_speed(run, ids.n, started);
    mean = nll.sum / (double)(ids.n - 1);
    if (run->json) {
        str_addf(&line, "{\"n_tokens\":%zu,\"nll_sum\":", ids.n - 1);
        js_put_f64(&line, nll.sum);
        put_mean(&line, mean);
        if (n_after) {
            str_addf(&line,
                     ",\"kvc\":{\"n_before\":%zu,\"n_cached\":%zu,"
                     "\"n_tokens\":%zu",
                     n_before, n_cached, n_after);
            put_mean(&line, nll.part / (double)n_after);
            str_addc(&line, '}');
        }
        str_adds(&line, "}\n");
        rc = out_write(run->out, line.s, line.n, err);
    }
    if (!run->quiet)
        tool_say("%zu token%s, mean nll %.6f nats, perplexity %.6g", ids.n - 1,
                 plural(ids.n - 1), mean, exp(mean));
    mean = nll.part / (double)n_after;
    if (!run->quiet && n_after)
        tool_say("after %zu token%s, kept as %zu: %zu token%s, mean nll %.6f "
                 "nats, perplexity %.6g",
                 n_before, plural(n_before), n_cached, n_after, plural(n_after),
                 mean, exp(mean));
out:
    mem_big_free(nll.logits, nll.rows, vocab_size * sizeof(float));
    free(nll.of_row);
    str_free(&line);
    ids_free(&ids);
    return rc;
}

static void
put_top(const struct run *run, struct str *text, const float *x,
        const uint32_t *idx, size_t k, double mean, double std)
{
    size_t nbytes = 0;

    if (run->json) {
        str_adds(text, "{\"mean\":");
        js_put_f64(text, mean);
        str_adds(text, ",\"std\":");
        js_put_f64(text, std);
        str_adds(text, ",\"top\":[");
    } else {
        str_addf(text, "id\tlogit\ttoken\nmean\t%.6f\t\nstd\t%.6f\t\n", mean,
                 std);
    }
    for (size_t i = 0; i < k; i++) {
        const char *s =
            run->tok ? tok_text(run->tok, (int32_t)idx[i], &nbytes) : NULL;

        if (run->json) {
            str_addf(text, "%s{\"id\":%u,\"logit\":", i ? "," : "", idx[i]);
            js_put_f64(text, (double)x[idx[i]]);
            str_adds(text, s ? ",\"token\":" : "");
            if (s)
                js_put_str(text, s, nbytes);
            str_addc(text, '}');
        } else {
            str_addf(text, "%u\t%.6f\t", idx[i], (double)x[idx[i]]);
            if (s)
                str_esc(text, s, nbytes);
            str_addc(text, '\n');
        }
    }
    str_adds(text, run->json ? "]}\n" : "");
}

int
run_top(struct run *run, struct err *err)
{
    struct ids ids = { 0 };
    struct str text = { 0 };
    uint32_t *idx = NULL;
    float *x = NULL; /* the last logits */
    double mean = 0, var = 0, started;
    size_t n, k;
    int rc = start(run, 1, "--top", &ids, err);

    if (rc < 0)
        goto out;
    started = clock_s();
    n = (size_t)run->config->vocab_size;
    k = smaller((size_t)run->top_k_logits, n);
    x = xmalloc(n * sizeof(*x));
    rc = feed_prompt(run, ids.id, ids.n, x, err);
    if (rc == 0)
        say_speed(run, ids.n, started);
    if (rc < 0 || (rc = check_logits(run, run->dir, x, ids.n, err)) < 0)
        goto out;
    for (size_t i = 0; i < n; i++)
        mean += (double)x[i] / (double)n;
    for (size_t i = 0; i < n; i++) /* torch.std's: of a sample, over n - 1 */
        var += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)(n - 1);
    idx = xmalloc(k * sizeof(*idx));
    vec_topk(idx, k, x, n);
    put_top(run, &text, x, idx, k, mean, sqrt(var));
    rc = out_write(run->out, text.s, text.n, err);
out:
    str_free(&text);
    free(idx);
    free(x);
    ids_free(&ids);
    return rc;
}
