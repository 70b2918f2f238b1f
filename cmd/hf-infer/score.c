/* SPDX-License-Identifier: ISC */
/* --logits, --nll, --top. */
#include "cmd/hf-infer/score.h"

#include <math.h>
#include <stdlib.h>

#include "cmd/hf-infer/jsonl.h"
#include "core/clock.h"
#include "core/format/npy.h"
#include "core/js.h"
#include "core/kernel/cvt.h"
#include "core/kernel/f64.h"
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

/* The text of a token, escaped; nothing where there is no tokenizer. */
static void
put_token(const struct run *run, int32_t id, struct str *to)
{
    struct str bytes = { 0 };

    if (run->tok && tok_bytes(run->tok, id, &bytes))
        str_esc(to, bytes.s, bytes.n);
    str_free(&bytes);
}

/* Reads the prompt, of at least so many tokens, and opens the model. */
static int
read_prompt(struct run *run, size_t min, const char *what, struct ids *ids,
            struct err *err)
{
    if (prompt_ids(run, ids, err) < 0)
        return -1;
    if (ids->n < min)
        return err_set(err, EX_DATAERR,
                       "%s: the prompt has %zu token%s (%s needs at least %zu)",
                       prompt_name(run), ids->n, plural(ids->n), what, min);
    if (run_open_model(run, err) < 0 || prompt_bos(run, ids, 0, err) < 0)
        return -1;
    return ids_check(ids->id, ids->n, run->config->vocab_size, prompt_name(run),
                     err);
}

/* The same, with a session for it. */
static int
start(struct run *run, const char *what, struct ids *ids, struct err *err)
{
    if (read_prompt(run, 1, what, ids, err) < 0)
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
    int rc = start(run, "--logits", &ids, err);
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
            const float *row = logits + k * vocab_size;

            rc = check_logits(run, run->session, run->dir, row, i + k + 1, err);
            if (rc < 0)
                break;
            cvt_from_f32(le, DT_F32, row, vocab_size);
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

static void
score_rows(void *ctx, size_t begin, size_t end)
{
    const struct nll *nll = ctx;
    size_t vocab_size = (size_t)nll->run->config->vocab_size;

    for (size_t i = begin; i < end; i++) {
        const float *row = nll->logits + i * vocab_size;

        nll->of_row[i] =
            f64_log_sum_exp(row, vocab_size) - (double)row[nll->next[i]];
    }
}

int
score_tokens(struct nll *nll, size_t begin, size_t end, size_t first,
             struct err *err)
{
    struct run *run = nll->run;
    size_t vocab_size = (size_t)run->config->vocab_size;
    struct str tsv = { 0 };
    int rc = 0;

    for (size_t i = begin, n, n_scored; rc == 0 && i < end; i += n) {
        /* rows whose next token is not scored come without logits */
        bool scored = i + 1 >= first;

        n = smaller((scored ? end : first - 1) - i, nll->rows);
        n_scored = scored ? smaller(n, nll->n_ids - 1 - i) : 0;
        rc = session_feed(run->session, nll->ids + i, n, nll->logits,
                          scored ? n : 0, err);
        if (rc < 0)
            break;
        nll->next = nll->ids + i + 1;
        par_for(run->par, n_scored, 1, score_rows, nll);
        for (size_t k = 0; rc == 0 && k < n_scored; k++) {
            if (!isfinite(nll->of_row[k])) /* where the logits are not */
                rc = check_logits(run, run->session, nll->where,
                                  nll->logits + k * vocab_size, i + k + 1, err);
            if (rc < 0)
                break;
            nll->n++;
            nll->sum += nll->of_row[k];
            nll->part += nll->of_row[k];
            if (nll->kept)
                nll->kept[nll->n_kept++] = nll->of_row[k];
            if (nll->silent)
                continue;
            str_addf(&tsv, "%zu\t%d\t%.6f\t", i + k + 1, (int)nll->next[k],
                     nll->of_row[k]);
            put_token(run, nll->next[k], &tsv);
            str_addc(&tsv, '\n');
        }
        if (tsv.n && out_write(run->out, tsv.s, tsv.n, err) < 0)
            rc = -1;
        str_clear(&tsv);
        nll->n_fed += n;
        progress_at(&nll->progress, nll->n_fed);
    }
    str_free(&tsv);
    return rc;
}

size_t
score_window(const struct run *run)
{
    return (size_t)(run->ctx ? run->ctx : run->config->max_positions);
}

/* A text longer than the context needs windows that were asked for. */
static int
check_length(const struct run *run, const char *where, size_t n_tokens,
             struct err *err)
{
    if (n_tokens <= score_window(run) || run->ctx || run->stride)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: the prompt has %zu tokens (expected at most %zu, the "
                   "model's context; --stride scores it in windows)",
                   where, n_tokens, score_window(run));
}

/*
 * Scores a text, by windows where it is longer than one: they begin every
 * --stride tokens, and each scores the tokens that the one before it did not
 * have, so that these have at least a window less a stride before them.
 * Source: the perplexity guide of transformers.
 */
static int
score_text(struct nll *nll, const char *where, const struct ids *ids,
           struct err *err)
{
    struct run *run = nll->run;
    size_t window = score_window(run);
    size_t stride = run->stride ? (size_t)run->stride : window;
    int rc = 0;

    if (check_length(run, where, ids->n, err) < 0 ||
        ids_check(ids->id, ids->n, run->config->vocab_size, where, err) < 0)
        return -1;
    nll->where = run->jsonl ? where : run->dir;
    nll->ids = ids->id;
    for (size_t begin = 0, end = 0; rc == 0 && end < ids->n; begin += stride) {
        size_t first = end;

        end = smaller(begin + window, ids->n);
        nll->n_ids = end;
        session_close(run->session);
        run->session = session_new(run->engine, end - begin);
        rc = nll->window
                 ? nll->window(nll, begin, end, first - begin, err)
                 : score_tokens(nll, begin, end, larger(first, begin + 1), err);
    }
    return rc;
}

/* "nll_mean":..,"perplexity":..: null where there are no tokens. */
static void
put_mean(struct str *line, double mean)
{
    str_adds(line, ",\"nll_mean\":");
    js_put_f64(line, mean);
    str_adds(line, ",\"perplexity\":");
    js_put_f64(line, f64_exp(mean));
}

/* --kvc: the first tokens of the text are the prompt whose cache is compressed;
 * 'json' and 'said' get what it costs the tokens after them. */
static int
score_compressed(struct nll *nll, const struct ids *ids, struct str *json,
                 struct str *said, struct err *err)
{
    struct run *run = nll->run;
    size_t n_before = run->kvc_after ? (size_t)run->kvc_after : ids->n / 2;
    size_t n_cached, n_after;
    double mean;

    if (n_before > ids->n - 2)
        return err_set(err, EX_DATAERR,
                       "%s: the text has %zu tokens (expected at least 2 after "
                       "the %zu that --kvc compresses)",
                       prompt_name(run), ids->n, n_before);
    nll->where = run->dir;
    nll->ids = ids->id;
    nll->n_ids = ids->n;
    run->session = session_new(run->engine, ids->n);
    if (score_tokens(nll, 0, n_before, 1, err) < 0 ||
        compress(run, run->session, err) < 0)
        return -1;
    n_cached = run->session->n_cached;
    nll->part = 0;
    if (score_tokens(nll, n_before, ids->n, 1, err) < 0)
        return -1;
    if (n_cached == n_before) {
        err_warn("%s: %zu token%s: too few groups, nothing is compressed",
                 run->kvc, n_before, plural(n_before));
        return 0;
    }
    n_after = ids->n - 1 - n_before;
    mean = nll->part / (double)n_after;
    str_addf(json,
             ",\"kvc\":{\"n_before\":%zu,\"n_cached\":%zu,\"n_tokens\":%zu",
             n_before, n_cached, n_after);
    put_mean(json, mean);
    str_addc(json, '}');
    str_addf(said,
             "after %zu token%s, kept as %zu: %zu token%s, mean nll %.6f nats, "
             "perplexity %.6g",
             n_before, plural(n_before), n_cached, n_after, plural(n_after),
             mean, f64_exp(mean));
    return 0;
}

/* Writes a line of JSON; 'more' is what --kvc adds. */
static int
put_nll(struct run *run, const char *id, size_t n, double sum, const char *more,
        struct err *err)
{
    struct str line = { 0 };
    int rc;

    str_addf(&line, "{%s%s%s\"n_tokens\":%zu,\"nll_sum\":", id ? "\"id\":" : "",
             id ? id : "", id ? "," : "", n);
    js_put_f64(&line, sum);
    put_mean(&line, sum / (double)n);
    str_addf(&line, "%s}\n", more ? more : "");
    rc = out_write(run->out, line.s, line.n, err);
    str_free(&line);
    return rc;
}

/* --jsonl: a document a line, scored one after another. */
static int
score_lines(struct nll *nll, struct err *err)
{
    struct run *run = nll->run;
    struct jsonl in = { .fd = -1 };
    double sum = 0;
    size_t n = 0;
    int rc = jsonl_open(&in, run->prompt_file ? run->prompt_file : "-", err);

    while (rc == 0) {
        struct jsonl_doc doc = { 0 };
        struct ids ids = { 0 };

        rc = jsonl_next(&in, &doc, true, err);
        if (rc == 0)
            break;
        if (rc > 0)
            rc = jsonl_ids(run, &doc, &ids, err);
        nll->n = 0;
        nll->sum = 0;
        if (rc == 0)
            rc = score_text(nll, doc.where, &ids, err);
        if (rc == 0)
            rc = put_nll(run, doc.id.n ? doc.id.s : NULL, nll->n, nll->sum,
                         NULL, err);
        if (rc == 0)
            rc = out_flush(run->out, err);
        n += nll->n;
        sum += nll->sum;
        ids_free(&ids);
        jsonl_doc_free(&doc);
    }
    jsonl_close(&in);
    nll->n = n;
    nll->sum = sum;
    return rc;
}

/* The windows fit the model, and the text, if there is one, them. */
static int
check_windows(const struct run *run, const struct ids *ids, struct err *err)
{
    if (run->ctx > run->config->max_positions)
        return err_set(err, TU_USAGE, "--ctx %lld: the model's context is %lld",
                       (long long)run->ctx,
                       (long long)run->config->max_positions);
    if (run->ctx == 1)
        return err_set(err, TU_USAGE,
                       "--ctx 1: a window's first token has no score, and "
                       "there is no other");
    if (run->stride > (int64_t)score_window(run))
        return err_set(err, TU_USAGE,
                       "--stride %lld: windows have %zu tokens, and some "
                       "tokens would be in none",
                       (long long)run->stride, score_window(run));
    if (run->prepend_bos && ids->n > score_window(run))
        return err_set(err, TU_USAGE,
                       "--prepend-bos: of several windows only the first would "
                       "begin with bos (%zu tokens, windows of %zu)",
                       ids->n, score_window(run));
    return check_length(run, prompt_name(run), ids->n, err);
}

struct nll *
score_open(struct run *run, const char *option, struct err *err)
{
    struct nll *nll = xcalloc(1, sizeof(*nll));
    size_t vocab_size;

    nll->run = run;
    nll->silent = run->json || run->jsonl || run->saes.specs[SPLICE_EACH].n ||
                  run->mode != MODE_NLL;
    if ((run->jsonl ? run_open_model(run, err)
                    : read_prompt(run, 2, option, &nll->text, err)) < 0 ||
        check_windows(run, &nll->text, err) < 0 ||
        run_open_engine(
            run,
            smaller((size_t)run->chunk, run->jsonl ? SIZE_MAX : nll->text.n),
            err) < 0) {
        score_close(nll);
        return NULL;
    }
    vocab_size = (size_t)run->config->vocab_size;
    nll->rows = rows_at_once(run, (size_t)run->chunk);
    nll->of_row = xcalloc(nll->rows, sizeof(*nll->of_row));
    nll->logits = mem_big(nll->rows, vocab_size * sizeof(float), "logits", err);
    if (!nll->logits) {
        score_close(nll);
        return NULL;
    }
    nll->progress = (struct progress){
        .what = "prompt",
        .unit = "token",
        .total =
            nll->text.n <= score_window(run) && !run->saes.specs[SPLICE_EACH].n
                ? nll->text.n
                : 0,
        .quiet = !run->verbose || run->mode == MODE_LUT_AUTO,
    };
    return nll;
}

void
score_close(struct nll *nll)
{
    if (!nll)
        return;
    if (nll->logits)
        mem_big_free(nll->logits, nll->rows,
                     (size_t)nll->run->config->vocab_size * sizeof(float));
    free(nll->of_row);
    ids_free(&nll->text);
    free(nll);
}

int
score_again(struct nll *nll, struct err *err)
{
    nll->n = 0;
    nll->sum = 0;
    return score_text(nll, prompt_name(nll->run), &nll->text, err);
}

int
run_nll(struct run *run, struct err *err)
{
    static const char head[] = "position\tid\tnll\ttoken\n";
    struct nll *nll;
    struct str json = { 0 }, said = { 0 };
    double started;
    int rc = 0;

    if (run->jsonl && run->kvc)
        return err_set(err, TU_USAGE,
                       "--nll --kvc scores one text: not --jsonl");
    nll = score_open(run, run->mode == MODE_NLL ? "--nll" : "--ppl", err);
    if (!nll)
        return -1;
    started = clock_s();
    if (!nll->silent)
        rc = out_write(run->out, head, sizeof(head) - 1, err);
    progress_start(&nll->progress);
    if (rc == 0)
        rc = run->jsonl                       ? score_lines(nll, err)
             : run->saes.specs[SPLICE_EACH].n ? score_each(nll, err)
             : run->compressor
                 ? score_compressed(nll, &nll->text, &json, &said, err)
                 : score_text(nll, prompt_name(run), &nll->text, err);
    progress_end(&nll->progress);
    if (rc == 0)
        say_speed(run, nll->n_fed, started);
    if (rc == 0 && run->json)
        rc = put_nll(run, NULL, nll->n, nll->sum, json.s, err);
    else if (rc == 0 && run->mode == MODE_PPL) {
        str_addf(&json, "%.6g\n", f64_exp(nll->sum / (double)nll->n));
        rc = out_write(run->out, json.s, json.n, err);
    }
    if (rc == 0) /* a terminal shows the rows before what is said of them */
        rc = out_flush(run->out, err);
    if (rc == 0 && !run->quiet && run->mode == MODE_NLL)
        tool_say("%zu token%s, mean nll %.6f nats, perplexity %.6g", nll->n,
                 plural(nll->n), nll->sum / (double)nll->n,
                 f64_exp(nll->sum / (double)nll->n));
    if (rc == 0 && !run->quiet && said.n)
        tool_say("%s", said.s);
    score_close(nll);
    str_free(&said);
    str_free(&json);
    return rc;
}

int
run_top(struct run *run, struct err *err)
{
    struct ids ids = { 0 };
    struct str text = { 0 }, bytes = { 0 };
    uint32_t *idx = NULL;
    float *x = NULL; /* the last logits */
    double mean = 0, var = 0, started;
    size_t n, k, nbytes = 0;
    int rc = start(run, "--top", &ids, err);

    if (rc < 0)
        goto out;
    started = clock_s();
    n = (size_t)run->config->vocab_size;
    k = smaller((size_t)run->top_k_logits, n);
    x = xmalloc(n * sizeof(*x));
    rc = feed_prompt(run, ids.id, ids.n, x, err);
    if (rc == 0)
        say_speed(run, ids.n, started);
    if (rc < 0 ||
        (rc = check_logits(run, run->session, run->dir, x, ids.n, err)) < 0)
        goto out;
    for (size_t i = 0; i < n; i++)
        mean += (double)x[i] / (double)n;
    for (size_t i = 0; i < n; i++) /* torch.std's: of a sample, over n - 1 */
        var += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)(n - 1);
    idx = xmalloc(k * sizeof(*idx));
    vec_topk(idx, k, x, n);
    if (run->json) {
        str_adds(&text, "{\"mean\":");
        js_put_f64(&text, mean);
        str_adds(&text, ",\"std\":");
        js_put_f64(&text, sqrt(var));
        str_adds(&text, ",\"top\":[");
    } else {
        str_addf(&text, "id\tlogit\ttoken\nmean\t%.6f\t\nstd\t%.6f\t\n", mean,
                 sqrt(var));
    }
    for (size_t i = 0; i < k; i++) {
        const char *s =
            run->tok ? tok_text(run->tok, (int32_t)idx[i], &nbytes) : NULL;

        if (run->json) {
            str_addf(&text, "%s{\"id\":%u,\"logit\":", i ? "," : "", idx[i]);
            js_put_f64(&text, (double)x[idx[i]]);
            str_adds(&text, s ? ",\"token\":" : "");
            if (s)
                js_put_str(&text, s, nbytes);
            str_clear(&bytes);
            if (s && tok_bytes(run->tok, (int32_t)idx[i], &bytes)) {
                str_adds(&text, ",\"text\":");
                js_put_str(&text, bytes.s, bytes.n);
            }
            str_addc(&text, '}');
        } else {
            str_addf(&text, "%u\t%.6f\t", idx[i], (double)x[idx[i]]);
            put_token(run, (int32_t)idx[i], &text);
            str_addc(&text, '\n');
        }
    }
    str_adds(&text, run->json ? "]}\n" : "");
    rc = out_write(run->out, text.s, text.n, err);
out:
    str_free(&text);
    str_free(&bytes);
    free(idx);
    free(x);
    ids_free(&ids);
    return rc;
}
