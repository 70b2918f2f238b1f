/* SPDX-License-Identifier: ISC */
/* Opening and closing what a run needs: model, session, outputs. */
#include "cmd/hf-infer/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hf-infer/prompt.h"
#include "core/format/stdir.h"
#include "core/format/stw.h"
#include "core/inuse.h"
#include "core/kernel/cpu.h"
#include "core/kernel/vec.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/compressor.h"
#include "core/model/config_file.h"
#include "core/model/engine.h"
#include "core/model/lora.h"
#include "core/model/model.h"
#include "core/model/session_file.h"
#include "core/model/splice.h"
#include "core/model/tables.h"
#include "core/text/chat.h"
#include "core/tool.h"
#include "core/tty.h"

#define LOGITS_BYTES ((size_t)64 << 20) /* at once, where all are wanted */

static bool
is_missing(const char *dir, const char *name)
{
    struct str path = { 0 };
    bool missing;

    str_addf(&path, "%s/%s", dir, name);
    missing = file_missing(path.s);
    str_free(&path);
    return missing;
}

int
run_open_tok(struct run *run, struct err *err)
{
    const struct model_family *family;
    struct str path = { 0 };
    struct err none;
    int rc = 0;

    if (!run->tok && (rc = stdir_check(run->dir, false, err)) == 0) {
        /* what else is wrong there is said later */
        if (config_family(&family, run->dir, &none) == 0 &&
            config_refuse_vision(family, run->dir, err) < 0)
            return -1;
        str_addf(&path, "%s/tokenizer.json", run->dir);
        rc = tok_open(&run->tok, path.s, err);
        str_free(&path);
    }
    return rc;
}

/* The user's settings, else those of generation_config.json, else none. */
static int
settle_sampler(struct run *run, struct err *err)
{
    const unsigned draw = SET_TOP_K | SET_TOP_P | SET_MIN_P | SET_SEED;
    struct sampler *s = &run->sampler;
    const struct config *c = run->config;

    if (c->temperature == 0 && (run->sampler_set & draw) &&
        !(run->sampler_set & (SET_TEMPERATURE | SET_GREEDY)))
        return err_set(err, TU_USAGE,
                       "%s/generation_config.json: temperature is 0: a draw "
                       "needs --temperature",
                       run->dir);
    if (!(run->sampler_set & SET_TEMPERATURE))
        s->temperature = c->temperature;
    if (s->temperature < SAMPLE_MIN_TEMPERATURE)
        s->temperature = 0;
    if (!(run->sampler_set & SET_TOP_K))
        s->top_k = c->top_k;
    if (!(run->sampler_set & SET_TOP_P))
        s->top_p = c->top_p;
    if (!(run->sampler_set & SET_MIN_P))
        s->min_p = c->min_p;
    if (!(run->sampler_set & SET_PENALTY))
        s->repetition_penalty = c->repetition_penalty;
    for (size_t i = 0; run->mode == MODE_GENERATE && i < c->n_passed_over; i++)
        if (run->max_tokens < 0 || strcmp(c->passed_over[i], "max_length") != 0)
            err_warn("%s/generation_config.json: %s is ignored", run->dir,
                     c->passed_over[i]);
    /* do_sample false means argmax, unless the user asks for a draw */
    if (s->temperature == 0 ||
        (!c->do_sample && !(run->sampler_set & ~SET_PENALTY)))
        s->greedy = true;
    return 0;
}

int
run_open_engine(struct run *run, size_t chunk, struct err *err)
{
    const struct sampler *s = &run->sampler;
    const struct config *c = run->config;
    struct str packed = { 0 };

    run->arithmetic.chunk = chunk;
    if (par_open(&run->par, run->n_threads, err) < 0 ||
        engine_open(&run->engine, run->model, run->par, &run->arithmetic, err) <
            0 ||
        (run->session_file &&
         session_file_read(&run->prefix, &run->prefix_ids, run->engine,
                           run->session_file, err) < 0))
        return -1;
    if (!run->verbose)
        return 0;
    tool_say("%s, %lld layer%s, hidden %lld, context %lld; %s, %s, %d thread%s",
             c->family->model_type, (long long)c->n_layers, plural(c->n_layers),
             (long long)c->hidden_size, (long long)c->max_positions,
             tool_host(), isa_name(cpu_isa()), par_threads(run->par),
             plural(par_threads(run->par)));
    quantization_text(&packed, &c->quantization);
    if (packed.n)
        tool_say("packed weights: %s", packed.s);
    str_free(&packed);
    if (run->mode == MODE_GENERATE && s->greedy)
        tool_say("greedy, repetition penalty %g", s->repetition_penalty);
    else if (run->mode == MODE_GENERATE)
        tool_say("repetition penalty %g, temperature %g, top-k %lld, top-p %g, "
                 "min-p %g, seed %llu",
                 s->repetition_penalty, s->temperature, (long long)s->top_k,
                 s->top_p, s->min_p, (unsigned long long)s->seed);
    return 0;
}

/* For SAEs that leave them alone.  A tokenizer that the mode does not have
 * would change what it prints. */
static int
find_special(void *ctx, bool *is_special, size_t n, struct err *err)
{
    struct run *run = ctx;
    bool had = run->tok;

    if (run_open_tok(run, err) < 0)
        return -1;
    for (size_t i = 0; i < n && i < tok_size(run->tok); i++)
        is_special[i] |= tok_is_special(run->tok, (int32_t)i);
    if (!had) {
        tok_close(run->tok);
        run->tok = NULL;
    }
    return 0;
}

/* With -v, what an SAE does where. */
static void
say_splice(const struct run *run, const struct splice *s)
{
    const char *except = sae_without_any(&s->a.sae.without)
                             ? ", except for rows that it was trained without"
                             : "";

    if (s->kind != SPLICE_SAE)
        tool_say("%zu latent%s changed at %s%s", s->steer.n, plural(s->steer.n),
                 s->hook, except);
    else
        tool_say("%s at %s%s",
                 run->saes.zero ? "zeros" : "an SAE's reconstruction", s->hook,
                 except);
}

/* -v: what SAEs and --lut change. */
static void
say_changes(const struct run *run)
{
    const struct tables_options *o = &run->table;
    char number[32];
    size_t n, n_stored;

    for (size_t i = 0; run->splices && i < run->splices->n; i++)
        say_splice(run, &run->splices->list[i]);
    if (!run->lut)
        return;
    n = tables_count(run->tables);
    n_stored = tables_stored(run->tables);
    snprintf(number, sizeof(number), "%g",
             o->tau >= 0    ? o->tau
             : o->ratio > 0 ? o->ratio
                            : 0);
    tool_say("%zu table%s of %s, %s %s", n, plural(n), run->lut,
             o->dims       ? "dims of"
             : o->tau >= 0 ? "tau"
                           : "ratio",
             o->dims ? o->dims : number);
    if (o->ratio > 0 || o->tau >= 0 || o->dims)
        tool_say("compensation by %s%s",
                 n_stored ? "the tables' stored weights"
                          : "the model's weights",
                 n_stored && n_stored < n ? ", else by the model's" : "");
}

/* --lora PATH,PATH */
static int
open_lora(struct run *run, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < run->lora.n; i++)
        for (const char *at = run->lora.item[i]; rc == 0 && at;) {
            size_t n = strcspn(at, ",");
            char *path = xstrndup(at, n);

            rc = lora_open(run->model, path, err);
            free(path);
            at = at[n] ? at + n + 1 : NULL;
        }
    if (rc == 0 && run->lora.n && run->verbose)
        tool_say("adapters for %zu linear layers", lora_count(run->model));
    return rc;
}

/* --kv-latents */
static int
check_latents(const struct run *run, struct err *err)
{
    const struct model *m = run->model;

    if (!m->config.form.mla)
        return err_data(err, run->dir,
                        "--kv-latents is for multi-head latent attention, "
                        "which a %s does not have",
                        m->config.family->model_type);
    for (int64_t i = 0; i < m->config.n_layers; i++)
        if (m->layers[i].kv_b.lora || m->layers[i].kv_b.table)
            return err_data(err, run->dir,
                            "with --kv-latents, kv_b_proj of layer %lld can "
                            "have neither an adapter nor a table",
                            (long long)i);
    return 0;
}

int
run_open_model(struct run *run, struct err *err)
{
    /* --json, --nll and --top show tokens' texts if there is a tokenizer;
     * --stop needs one */
    bool text = run->mode != MODE_LOGITS && run->mode != MODE_ACTS &&
                !run->ids_out &&
                (run->stop.n > 0 || !is_missing(run->dir, "tokenizer.json"));
    bool splices = false;

    for (int kind = 0; kind < N_SPLICE_KINDS; kind++)
        splices |= run->saes.specs[kind].n > 0;
    run->saes.screen = run->table.screen = !run->no_screen;
    run->saes.open_end = run->mode == MODE_GENERATE;
    run->saes.special = find_special;
    run->saes.ctx = run;
    run->table.report = run->lut_report;
    run->table.times = run->mode == MODE_LUT_AUTO;
    if ((text && run_open_tok(run, err) < 0) ||
        model_open(&run->model, run->dir, err) < 0)
        return -1;
    run->config = &run->model->config;
    if (settle_sampler(run, err) < 0 ||
        (run->kvc &&
         compressor_open(&run->compressor, run->kvc, run->config, err) < 0) ||
        (run->lut && tables_open(&run->tables, run->model, run->lut,
                                 &run->table, err) < 0) ||
        (splices &&
         splices_open(&run->splices, run->model, &run->saes, err) < 0))
        return -1;
    if (run->verbose)
        say_changes(run);
    if (open_lora(run, err) < 0)
        return -1;
    return run->arithmetic.latents ? check_latents(run, err) : 0;
}

int
run_open_session(struct run *run, size_t n_tokens, struct err *err)
{
    if (n_tokens > (size_t)run->config->max_positions)
        return err_set(err, EX_DATAERR,
                       "%s: the prompt has %zu tokens (expected at most %lld, "
                       "the model's context)",
                       prompt_name(run), n_tokens,
                       (long long)run->config->max_positions);
    if (run_open_engine(run, smaller((size_t)run->chunk, n_tokens), err) < 0)
        return -1;
    run->session = session_new(run->engine, n_tokens);
    return 0;
}

int
print_text(const struct run *run, const struct str *text, struct err *err)
{
    struct str safe = { 0 };
    int rc;

    if (text->n == 0)
        return 0;
    if (run->raw_text || !out_is_terminal(run->out))
        return out_write(run->out, text->s, text->n, err);
    str_esc_text(&safe, text->s, text->n);
    rc = out_write(run->out, safe.s, safe.n, err);
    str_free(&safe);
    return rc;
}

void
run_close(struct run *run)
{
    session_close(run->session);
    session_close(run->prefix);
    free(run->prefix_ids);
    engine_close(run->engine);
    par_close(run->par);
    compressor_close(run->compressor);
    tables_close(run->tables);
    splices_close(run->splices);
    model_close(run->model);
    tok_close(run->tok);
    chat_close(run->templates);
    json_decref(run->variables);
    json_decref(run->unused);
    stop_free(&run->stop);
}

int
compress(struct run *run, struct session *session, struct err *err)
{
    size_t before = session->n_cached;
    int rc =
        run->compressor ? session_compress(session, run->compressor, err) : 0;

    if (run->verbose && rc > 0)
        tool_say("%zu keys and values became %zu", before, session->n_cached);
    return rc < 0 ? -1 : 0;
}

int
check_logits(const struct run *run, const struct session *session,
             const char *where, const float *logits, size_t n_tokens,
             struct err *err)
{
    const struct stdir_tensor *t;
    int64_t layer;

    if (isfinite(vec_max(logits, (size_t)run->config->vocab_size)))
        return 0;
    if ((t = lora_not_finite(run->model)))
        return err_set(err, EX_DATAERR,
                       "%s: %s has a NaN or an infinity: the logits after %zu "
                       "token%s are not finite",
                       t->st->path, t->t->name, n_tokens, plural(n_tokens));
    if ((layer = kv_overflow(&session->kv, session->n_cached)) >= 0)
        return err_set(err, EX_DATAERR,
                       "%s: --kv-dtype f16: a key or value of layer %lld is "
                       "beyond 65504: the logits after %zu token%s are not "
                       "finite",
                       where,
                       (long long)config_keyed(run->config, (size_t)layer),
                       n_tokens, plural(n_tokens));
    return err_set(err, EX_DATAERR,
                   "%s: the logits after %zu token%s are not finite", where,
                   n_tokens, plural(n_tokens));
}

size_t
rows_at_once(const struct run *run, size_t n)
{
    size_t row = (size_t)run->config->vocab_size * sizeof(float);
    size_t rows = smaller(LOGITS_BYTES / row, (size_t)run->chunk);

    return smaller(larger(rows, 1), n);
}

/* The session goes on from what the prompt and --session have in common. */
static int
take_prefix(struct run *run, const int32_t *ids, size_t n, struct err *err)
{
    size_t max_tokens = run->session->max_tokens, n_prefix = run->prefix->n;
    size_t i = 0;

    while (i < n && i < n_prefix && ids[i] == run->prefix_ids[i])
        i++;
    if (i == 0)
        return err_set(err, EX_DATAERR,
                       "%s: begins with token %d (expected %d, as the prompt)",
                       run->session_file, (int)run->prefix_ids[0], (int)ids[0]);
    if (!session_may_fork(run->prefix, max_tokens))
        return err_set(err, EX_DATAERR,
                       "%s: is of a sequence of %s %lld tokens, and this one "
                       "may have %zu: the model's rotations differ",
                       run->session_file,
                       max_tokens < run->prefix->max_tokens ? "over" : "up to",
                       (long long)run->config->rope->original_max_positions,
                       max_tokens);
    if (i < n_prefix && !run->quiet)
        tool_say("%s: the prompt begins with %zu of its %zu tokens",
                 run->session_file, i, n_prefix);
    i = session_reach(run->prefix, smaller(i, n - 1));
    if (i == 0 && n > 1 && !run->quiet)
        tool_say(
            "%s: this model's state cannot go back: the prompt is fed from "
            "its first token on",
            run->session_file);
    session_close(run->session);
    run->session = session_fork(run->prefix, i, max_tokens);
    session_close(run->prefix); /* nobody else has its blocks now */
    run->prefix = NULL;
    return 0;
}

int
feed_prompt(struct run *run, const int32_t *ids, size_t n, float *last,
            struct err *err)
{
    struct progress progress = {
        .what = "prompt", .unit = "token", .total = n, .quiet = !run->verbose
    };
    struct stw *file = NULL;
    int rc = run->prefix ? take_prefix(run, ids, n, err) : 0;

    if (rc == 0 && run->save_session &&
        !(file = session_file_begin(run->session, ids, n, run->save_session,
                                    run->out_flags, err)))
        rc = -1;
    progress_start(&progress);
    for (size_t i = run->session->n, k; rc == 0 && i < n; i += k) {
        k = smaller(n - i, (size_t)run->chunk);
        rc = session_feed(run->session, ids + i, k, last, i + k == n, err);
        progress_at(&progress, i + k);
    }
    progress_end(&progress);
    if (rc == 0 && file)
        return session_file_end(file, run->session, ids, err);
    stw_free(file);
    return rc;
}

int
outputs_open(struct run *run, struct err *err)
{
    bool binary = run->mode == MODE_LOGITS;
    bool table = run->mode == MODE_NLL || run->mode == MODE_TOP ||
                 run->mode == MODE_LUT_AUTO || run->mode == MODE_PLACES;
    int flags = run->out_flags | (table ? OUT_TABLE : 0);
    const char *path = run->logits_path ? run->logits_path
                       : run->output    ? run->output
                                        : "-";

    if ((run->prompt_file && inuse_will_read(run->prompt_file, err) < 0) ||
        (run->session_file && inuse_will_read(run->session_file, err) < 0))
        return -1;
    if (run->prepend_bos && run->jsonl && run->mode != MODE_ACTS)
        return err_set(err, TU_USAGE,
                       "--prepend-bos: with --jsonl only for --acts");
    /* what --acts writes depends on the model */
    if (run->mode != MODE_ACTS && run->mode != MODE_IMAGES &&
        out_open(&run->out, path, flags, binary, err) < 0)
        return -1;
    return run->lut_report ? out_open(&run->lut_out, run->lut_report,
                                      run->out_flags | OUT_TABLE, false, err)
                           : 0;
}

/* With -v: the report has what does not change from run to run. */
static void
say_times(const struct tables *tables)
{
    for (size_t i = 0; i < tables_count(tables); i++) {
        struct table_times t = tables_times(tables, i);

        if (t.table > 0)
            tool_say("%s: %.1f us a token by its table, %.1f by its weights",
                     tables_layer(tables, i), 1e6 * t.table, 1e6 * t.layer);
    }
}

int
outputs_close(struct run *run, int rc, struct err *err)
{
    struct out *report = run->lut_out;
    struct screen_counts c = { 0 };
    struct str tsv = { 0 };

    tables_screened(run->tables, &c);
    splices_screened(run->splices, &c);
    if (rc == 0 && run->verbose && c.rows > 0)
        tool_say("screening: %llu of %llu rows were computed exactly",
                 (unsigned long long)c.unproved, (unsigned long long)c.rows);
    if (rc == 0 && report && run->verbose)
        say_times(run->tables);
    if (rc == 0 && report) {
        tables_report(run->tables, &tsv);
        rc = out_write(report, tsv.s, tsv.n, err);
        str_free(&tsv);
        if (rc == 0) {
            run->lut_out = NULL;
            rc = out_commit(report, err);
        }
    }
    if (rc == 0 && run->out) /* a mode may have committed it */
        rc = out_commit(run->out, err);
    else
        out_abort(run->out);
    out_abort(run->lut_out);
    return rc;
}
