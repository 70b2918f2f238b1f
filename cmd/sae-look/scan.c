/* SPDX-License-Identifier: ISC */
/*
 * sae-look scan: one pass over rows makes a RUN.  Rows that do not count are
 * taken out before they are encoded; what is active in whole sequences goes to
 * the pass.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/sae-look/cmd.h"
#include "cmd/sae-look/codes.h"
#include "core/format/look.h"
#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/autoencoder.h"
#include "core/model/look_pass.h"
#include "core/model/row_source.h"
#include "core/model/rows.h"
#include "core/numbers.h"
#include "core/outdir.h"
#include "core/tty.h"

#define BATCH ((size_t)1024) /* rows that are encoded at once */
#define CODES                                                         \
    ((size_t)1 << 17) /* of sequences for the pass, about: a latent's \
                       * numbers are then in the cache for several */

#define CODE_NBYTES 16 /* idx and f of one, here and in the pass */

struct scan {
    const struct look_cmd *cmd;
    struct look l;
    struct look_pass *pass;
    struct autoencoder a;
    struct row_stream rows;
    struct saev_ids ids; /* of the whole; or none */
    struct par *par;
    struct gemm *gemm;
    struct latents_work *work;
    struct codes_out *codes_out; /* --codes, or NULL */
    uint64_t at;                 /* row after the last */
    uint64_t n_bad;
    size_t nbytes; /* memory of all but idx and f */

    float *x;   /* [BATCH, d] rows that count */
    bool *skip; /* [BATCH] those that do not */

    uint64_t first; /* row of those that are collected for the pass: */
    size_t n_rows, cap_rows, cap;
    bool *counts;  /* [cap_rows] */
    size_t *begin; /* [cap_rows + 1] */
    uint32_t *idx; /* [cap] */
    float *f;      /* [cap] */
};

/* ---- what is read ---- */

static int
open_rows(struct scan *s, struct err *err)
{
    const struct look_cmd *cmd = s->cmd;
    const struct row_options o = {
        .paths = cmd->args,
        .n_paths = cmd->n_args,
        .dim = (size_t)cmd->dim,
        .dtype = cmd->x_dtype,
        .input_at = cmd->input_at,
        .hooks = &s->l.hook,
        .n_hooks = 1,
        .all = true,
        .n_threads = cmd->n_threads,
    };
    struct err other;

    if (rows_open(&s->rows, &o, err) < 0 ||
        autoencoder_open(&s->a, cmd->sae, err) < 0)
        return -1;
    for (const struct source_dump *p = s->rows.dumps; p; p = p->next)
        if (p->dir.saev.n_layers > 1)
            return err_data(err, p->dir.path,
                            "has %zu layers (one alone: saev-read --layer N)",
                            p->dir.saev.n_layers);
    if (s->a.sae.hook) {
        if (rows_check_hook(&s->rows, s->a.sae.hook, &other) < 0)
            err_warn("%s: was trained elsewhere: %s", cmd->sae, other.what);
        free(s->l.hook);
        s->l.hook = xstrdup(s->a.sae.hook);
    }
    s->a.centers = autoencoder_centers(&s->a.sae, NULL, rows_family(&s->rows));
    if (s->a.d != s->rows.d)
        return err_data(
            err, s->a.sae.path,
            "is of rows of %zu numbers (expected %zu, as the input's)", s->a.d,
            s->rows.d);
    return rows_room(&s->rows, BATCH, err);
}

/* --acts-ids, or those next to the one dump that is read. */
static int
open_ids(struct scan *s, struct err *err)
{
    const char *path = s->cmd->acts_ids;
    const struct source_dump *dump = s->cmd->n_args == 1 ? s->rows.dumps : NULL;
    char hex[SAEV_HASH_MAX];

    if (path && saev_ids_open(&s->ids, path, NULL, err) < 0)
        return -1;
    if (!path && dump && saev_ids_of(&s->ids, &dump->dir, err) < 0)
        return -1;
    if (!s->ids.ids)
        return 0;
    if (!*s->ids.sha256)
        saev_ids_hash(&s->ids, hex);
    s->l.ids_sha256 = xstrdup(*s->ids.sha256 ? s->ids.sha256 : hex);
    return 0;
}

/* The ids are of other rows than the input, which has, or ends with, n. */
static int
bad_ids(const struct scan *s, const char *has, uint64_t n, struct err *err)
{
    return err_data(err, s->cmd->acts_ids ? s->cmd->acts_ids : s->cmd->args[0],
                    "has ids of %zu rows, but the input %s %llu",
                    s->ids.n_imgs * s->l.n_tokens, has, (unsigned long long)n);
}

/* T, and whether the rows are whole sequences of it. */
static int
set_sequences(struct scan *s, struct err *err)
{
    const struct look_cmd *cmd = s->cmd;
    uint64_t n = s->rows.n_rows, all, tokens = cmd->tokens;
    bool part = opt_given(cmd->line, "input-at");

    for (const struct source_dump *p = s->rows.dumps; p; p = p->next) {
        if (tokens && tokens != p->dir.saev.n_tokens)
            return err_data(err, p->dir.path,
                            "has sequences of %zu tokens (expected %llu)",
                            p->dir.saev.n_tokens, (unsigned long long)tokens);
        tokens = p->dir.saev.n_tokens;
    }
    if (s->ids.ids && tokens && tokens != s->ids.n_tokens)
        return err_data(err, cmd->acts_ids,
                        "has sequences of %zu tokens (expected %llu)",
                        s->ids.n_tokens, (unsigned long long)tokens);
    s->l.n_tokens = s->ids.ids ? s->ids.n_tokens : tokens ? tokens : 1;
    if (s->l.n_tokens == 0 || s->l.n_tokens > LOOK_MAX_TOKENS)
        return err_set(err, EX_DATAERR,
                       "sequences of %zu tokens (expected 1 to %d)",
                       s->l.n_tokens, LOOK_MAX_TOKENS);
    if (cmd->input_at % s->l.n_tokens)
        return err_set(err, TU_USAGE,
                       "--input-at %llu is within a sequence of %zu tokens",
                       (unsigned long long)cmd->input_at, s->l.n_tokens);
    all = (uint64_t)s->ids.n_imgs * s->l.n_tokens;
    if (n && s->ids.ids && (part ? n > all : n != all))
        return bad_ids(s, part ? "ends with row" : "has", n - part, err);
    return 0;
}

/* The mask; which ids are special FILE.json says. */
static int
set_mask(struct scan *s, struct err *err)
{
    const struct look_cmd *cmd = s->cmd;
    struct saev_mask *m = &s->l.mask;

    m->positions = cmd->skip_positions;
    m->max_norm = cmd->max_norm;
    if (cmd->skip_ids && saev_mask_ids(m, cmd->skip_ids, err) < 0)
        return -1;
    if (cmd->skip_ids && !s->ids.ids)
        return err_set(err, TU_USAGE,
                       "--skip-ids needs --acts-ids, or one dump with ids.npy");
    if (m->special && !s->ids.knows_special)
        return err_set(err, EX_DATAERR,
                       "%s.json: does not list special tokens (--skip-ids with "
                       "their ids leaves them out)",
                       cmd->acts_ids ? cmd->acts_ids : "ids.npy");
    saev_mask_special(m, &s->ids);
    if (!sae_without_covered(&s->a.sae.without, m))
        err_warn("%s: was trained without some rows, as its cfg.json says: "
                 "--skip-ids, --skip-positions or --max-norm leaves them out",
                 cmd->sae);
    return 0;
}

/* ---- what is made ---- */

static int
latents_of(const char *name, const char *list, size_t end, int32_t **latent,
           size_t *n, struct err *err)
{
    struct numbers numbers = { 0 };
    int rc = numbers_add(&numbers, name, list, "latent", end, err);

    numbers_sort(&numbers);
    *n = numbers.n;
    *latent = (int32_t *)numbers.v; /* they are below LOOK_MAX_LATENTS */
    numbers.v = NULL;
    numbers_free(&numbers);
    return rc;
}

static int
set_latents(struct scan *s, struct err *err)
{
    const struct look_cmd *cmd = s->cmd;
    struct look *l = &s->l;

    if (s->a.n > LOOK_MAX_LATENTS)
        return err_data(err, s->a.sae.path, "has %zu latents (at most %d)",
                        s->a.n, LOOK_MAX_LATENTS);
    l->n = s->a.n;
    l->d = s->a.d;
    if (latents_of("--latents", cmd->latents, l->n, &l->latent, &l->m, err) < 0)
        return -1;
    return cmd->pairs ? latents_of("--pairs", cmd->pairs, l->n, &l->pair_latent,
                                   &l->p, err)
                      : 0;
}

static int
set_options(struct scan *s, struct err *err)
{
    const struct look_cmd *cmd = s->cmd;
    struct look *l = &s->l;
    char hex[HASH_MAX_HEX];

    if (sae_xxh3(s->a.sae.path, hex, err) < 0)
        return -1;
    l->sae = xstrdup(cmd->sae);
    l->sae_xxh3 = xstrdup(hex);
    l->top.n = cmd->top;
    l->sample.n = cmd->sample;
    l->per_row = cmd->per == LOOK_PER_ROW;
    l->seed = cmd->seed;
    l->context[0] = cmd->context[0];
    l->context[1] = cmd->context[1];
    if (cmd->context_all || (!opt_given(cmd->line, "context") && !s->ids.ids &&
                             l->n_tokens <= 1024))
        l->context[0] = l->context[1] = l->n_tokens - 1;
    l->c = l->context[0] + 1 + l->context[1];
    if (cmd->top + cmd->sample > LOOK_MAX_EXAMPLES)
        return err_set(err, TU_USAGE,
                       "--top %llu and --sample %llu are more than %d examples",
                       (unsigned long long)cmd->top,
                       (unsigned long long)cmd->sample, LOOK_MAX_EXAMPLES);
    return 0;
}

/* Is the memory for 'cap' codes, and all else, within --mem? */
static int
check_memory(const struct scan *s, size_t cap, struct err *err)
{
    size_t need = s->nbytes + cap * CODE_NBYTES;

    if (s->nbytes < SIZE_MAX && need <= s->cmd->mem)
        return 0;
    return err_data(err, s->cmd->output,
                    "needs %zu bytes of memory, but --mem is %zu "
                    "(--latents, --top, --sample or --context make it less)",
                    s->nbytes < SIZE_MAX ? need : SIZE_MAX, s->cmd->mem);
}

static int
grow_codes(struct scan *s, size_t n, struct err *err)
{
    size_t cap;
    uint32_t *idx;
    float *f;

    if (check_memory(s, n, err) < 0)
        return -1;
    cap = (s->cmd->mem - s->nbytes) / CODE_NBYTES;
    cap = larger(n, smaller(s->cap + s->cap / 2, cap));
    idx = mem_try(cap, sizeof(*idx), "active latents", err);
    f = idx ? mem_try(cap, sizeof(*f), "active latents", err) : NULL;
    if (!f) {
        free(idx);
        return -1;
    }
    if (s->cap) {
        memcpy(idx, s->idx, s->begin[s->n_rows] * sizeof(*idx));
        memcpy(f, s->f, s->begin[s->n_rows] * sizeof(*f));
    }
    free(s->idx);
    free(s->f);
    s->idx = idx;
    s->f = f;
    s->cap = cap;
    return 0;
}

static int
open_work(struct scan *s, struct err *err)
{
    size_t t = s->l.n_tokens, d = s->a.d, pass, sae;
    size_t k = s->a.latents.thresholds ? 64 : s->a.latents.k;
    const struct saev_ids *ids = s->ids.ids ? &s->ids : NULL;
    struct latents_sizes sizes = { 0 };

    s->cap_rows =
        larger(larger(CODES, smaller(s->a.n, CODES * 8)) / k / t, 1) * t;
    s->nbytes = SIZE_MAX;
    if (look_pass_nbytes(&s->l, ids, &pass) && size_mul(s->a.n, d * 8, &sae) &&
        size_add(pass, sae, &pass) &&
        size_add(pass, BATCH * d * 2 * sizeof(float), &pass))
        s->nbytes = pass + s->cap_rows * (sizeof(bool) + sizeof(size_t));
    if (check_memory(s, s->cap_rows * k, err) < 0)
        return -1;
    autoencoder_screen(&s->a);
    latents_size(&sizes, &s->a.latents);
    s->x = mem_try(BATCH * d, sizeof(*s->x), "a batch", err);
    s->skip = xcalloc(BATCH, sizeof(*s->skip));
    s->counts = mem_try(s->cap_rows, sizeof(*s->counts), "rows", err);
    s->begin = mem_try(s->cap_rows + 1, sizeof(*s->begin), "rows", err);
    if (!s->x || !s->counts || !s->begin)
        return -1;
    s->begin[0] = 0;
    s->first = s->at = s->cmd->input_at;
    if (par_open(&s->par, s->cmd->n_threads, err) < 0 ||
        gemm_open(&s->gemm, s->par, err) < 0 ||
        latents_work_open(&s->work, s->gemm, &sizes, BATCH, err) < 0)
        return -1;
    return look_pass_open(&s->pass, &s->l, ids, s->par, err);
}

/* ---- rows ---- */

static int
flush(struct scan *s, struct err *err)
{
    const struct look_codes c = { s->first, s->n_rows, s->counts,
                                  s->begin, s->idx,    s->f };

    if (look_pass_add(s->pass, &c, err) < 0 ||
        (s->codes_out && codes_add(s->codes_out, &c, err) < 0))
        return -1;
    s->first += s->n_rows;
    s->n_rows = 0;
    return 0;
}

/* The next row, with what is active in it. */
static int
put_row(struct scan *s, bool counts, const struct latents_row *row,
        struct err *err)
{
    size_t n = s->begin[s->n_rows];

    if (n + row->n > s->cap && grow_codes(s, n + row->n, err) < 0)
        return -1;
    if (row->n) {
        memcpy(s->idx + n, row->idx, row->n * sizeof(*s->idx));
        memcpy(s->f + n, row->v, row->n * sizeof(*s->f));
    }
    s->counts[s->n_rows++] = counts;
    s->begin[s->n_rows] = n + row->n;
    s->at++;
    return s->n_rows == s->cap_rows ? flush(s, err) : 0;
}

static bool
is_long(const struct scan *s, const float *x)
{
    double lane[SAE_NORM_LANES] = { 0 };

    sae_norm_add(lane, x, s->a.d);
    return sae_norm(lane) > s->l.mask.max_norm;
}

/* Which rows of a batch count, side by side: how many, or -1. */
static ssize_t
select_rows(struct scan *s, size_t n, struct err *err)
{
    const float *x = rows_layer(&s->rows, 0);
    const struct saev_mask *m = &s->l.mask;
    size_t d = s->a.d, t = s->l.n_tokens, kept = 0;

    rows_padding(&s->rows, s->skip);
    for (size_t i = 0; i < n; i++) {
        uint64_t row = s->at + i;
        int32_t id = 0;

        if (s->ids.ids && row >= (uint64_t)s->ids.n_imgs * t)
            return bad_ids(s, "has row", row, err);
        if (s->ids.ids)
            id = saev_ids_at(&s->ids, row / t, row % t);
        s->skip[i] |= id < 0 || saev_mask_skips(m, id, row % t) ||
                      (m->max_norm > 0 && is_long(s, x + i * d));
        if (s->skip[i])
            continue;
        if ((s->skip[i] = rows_bad(&s->rows, i))) {
            if (!s->cmd->skip_bad)
                return rows_bad_error(&s->rows, i, err);
            s->n_bad++;
            continue;
        }
        memcpy(s->x + kept++ * d, x + i * d, d * sizeof(*x));
    }
    return (ssize_t)kept;
}

static bool
is_finite(const struct latents_row *row)
{
    for (size_t i = 0; i < row->n; i++)
        if (!isfinite(row->v[i]))
            return false;
    return !row->bad;
}

static int
add_batch(struct scan *s, size_t n, struct err *err)
{
    ssize_t kept = select_rows(s, n, err);
    size_t at = 0, chunk = latents_rows(s->work);

    for (size_t i = 0; kept >= 0 && i < n; i++) {
        struct latents_row row = { 0 };
        bool counts = !s->skip[i];

        if (counts && at % chunk == 0)
            autoencoder_encode(s->work, &s->a, s->x + at * s->a.d,
                               s->x + at * s->a.d,
                               smaller(chunk, (size_t)kept - at));
        if (counts)
            row = latents_row(s->work, at++ % chunk);
        if (!is_finite(&row)) {
            if (!s->cmd->skip_bad)
                return err_data(err, s->cmd->sae,
                                "row %llu has an activation that is NaN or "
                                "infinite (--skip-bad leaves such out)",
                                (unsigned long long)s->at);
            s->n_bad++;
            counts = false;
            row = (struct latents_row){ 0 };
        }
        if (put_row(s, counts, &row, err) < 0)
            return -1;
    }
    return kept < 0 ? -1 : 0;
}

static int
scan_rows(struct scan *s, struct err *err)
{
    const struct look_cmd *cmd = s->cmd;
    uint64_t all = (uint64_t)s->ids.n_imgs * s->l.n_tokens;
    ssize_t n;

    while ((n = rows_batch(&s->rows, err)) > 0)
        if (add_batch(s, (size_t)n, err) < 0)
            return -1;
    if (n < 0)
        return -1;
    if (s->at % s->l.n_tokens)
        return err_set(err, EX_DATAERR,
                       "the input ends with row %llu, within a sequence of %zu "
                       "tokens",
                       (unsigned long long)s->at - 1, s->l.n_tokens);
    if (s->ids.ids && !opt_given(cmd->line, "input-at") && s->at != all)
        return bad_ids(s, "has", s->at, err);
    if (s->n_rows > 0 && flush(s, err) < 0)
        return -1;
    look_pass_end(s->pass);
    s->l.input = xcalloc(1, sizeof(*s->l.input));
    s->l.input[0][0] = cmd->input_at;
    s->l.input[0][1] = s->at;
    s->l.n_input = 1;
    if (s->n_bad)
        err_warn("%llu row%s with NaN or Inf left out",
                 (unsigned long long)s->n_bad, plural(s->n_bad));
    if (s->l.rows == 0)
        err_warn("no row counts: all are left out");
    return 0;
}

static void
close_scan(struct scan *s)
{
    codes_close(s->codes_out);
    look_pass_close(s->pass);
    latents_work_close(s->work);
    gemm_close(s->gemm);
    par_close(s->par);
    autoencoder_close(&s->a);
    rows_close(&s->rows);
    saev_ids_close(&s->ids);
    free(s->l.latent);
    free(s->l.pair_latent);
    look_close(&s->l);
    free(s->x);
    free(s->skip);
    free(s->counts);
    free(s->begin);
    free(s->idx);
    free(s->f);
}

int
scan_main(const struct look_cmd *cmd, struct err *err)
{
    struct scan s = { .cmd = cmd };
    struct outdir_at out = { 0 };
    int rc = -1;

    if (open_rows(&s, err) == 0 && open_ids(&s, err) == 0 &&
        set_sequences(&s, err) == 0 && set_mask(&s, err) == 0 &&
        set_latents(&s, err) == 0 && set_options(&s, err) == 0 &&
        open_work(&s, err) == 0 &&
        outdir_at_open(&out, cmd->output, cmd->out_flags, err) == 0)
        rc = 0;
    if (rc == 0 && cmd->codes)
        rc = codes_open(&s.codes_out, cmd, &s.l, &s.ids, &out, err);
    if (rc == 0)
        rc = scan_rows(&s, err);
    if (rc == 0)
        rc = look_write(&s.l, outdir_path(out.dir), err);
    if (rc == 0 && s.codes_out)
        rc = codes_commit(s.codes_out, err);
    if (rc == 0)
        rc = outdir_at_commit(&out, err);
    outdir_at_abort(&out);
    close_scan(&s);
    return rc;
}
