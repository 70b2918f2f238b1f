/* SPDX-License-Identifier: ISC */
/* show: latents one by one, as text for a terminal or as JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/sae-look/cmd.h"
#include "cmd/sae-look/view.h"
#include "core/chart.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/numbers.h"
#include "core/tty.h"

struct show {
    const struct look_cmd *cmd;
    struct look_view v;
    struct numbers which;
    size_t width;
    bool color;
    struct str to; /* a latent */
};

/* ---- text ---- */

/* As much of safe text as so many columns have; the columns that are left. */
static size_t
add_cut(struct str *to, const char *s, size_t n, size_t columns)
{
    size_t used = 0, k = 0;
    uint32_t code;

    while (k < n) {
        int c = utf8_next(s + k, n - k, &code);
        size_t wide = str_columns(s + k, (size_t)c);

        if (used + wide > columns)
            break;
        used += wide;
        k += (size_t)c;
    }
    str_add(to, s, k);
    return columns - used;
}

static void
add_line(struct show *s, const struct str *line)
{
    add_cut(&s->to, line->s, line->n, s->width);
    str_addc(&s->to, '\n');
}

/* A token as it is shown: what it spells, or its id. */
static void
add_token(struct str *to, const struct show *s, int32_t id)
{
    if (s->v.tok)
        tokens_esc(to, s->v.tok, id);
    else
        str_addf(to, "%ld", (long)id);
}

static void
put_facts(struct show *s, size_t i)
{
    const struct look *l = &s->v.l;
    const struct label *label = labels_find(&s->v.labels, l->latent[i]);
    struct str line = { 0 };

    str_addf(&line,
             "latent %ld  max %.6g  mean %.6g  density %.6g  rows %lld of %llu"
             "  sequences %lld of %llu",
             (long)l->latent[i], (double)l->max[i], look_mean(l, i),
             look_density(l, i), (long long)l->rows_active[i],
             (unsigned long long)l->rows, (long long)l->seqs_active[i],
             (unsigned long long)l->sequences);
    add_line(s, &line);
    str_clear(&line);
    if (label && label->n) {
        str_esc(&line, label->s, label->n);
        add_line(s, &line);
    }
    str_free(&line);
}

/* The bins from the first to the last that has rows. */
static void
put_chart(struct show *s, size_t i)
{
    double counts[LOOK_BINS];
    char subtitle[64];
    struct chart c = { .title = "f of active rows",
                       .subtitle = subtitle,
                       .x = "log2 f",
                       .y = "rows",
                       .whole_y = true,
                       .columns = counts };
    size_t first = LOOK_BINS, last = 0;

    for (size_t k = 0; k < LOOK_BINS; k++)
        if (s->v.l.hist[i * LOOK_BINS + k]) {
            first = smaller(first, k);
            last = k;
        }
    if (first > last)
        return;
    for (size_t k = first; k <= last; k++)
        counts[k - first] = (double)s->v.l.hist[i * LOOK_BINS + k];
    snprintf(subtitle, sizeof(subtitle), "f from %g to %g, two bins an octave",
             look_bin_low((int)first), look_bin_low((int)last + 1));
    c.n_columns = last + 1 - first;
    c.left = (double)first / 2 - 16;
    c.right = (double)(last + 1) / 2 - 16;
    chart_text(&s->to, &c);
}

static int
put_lens(struct show *s, size_t latent, enum lens_sign sign, struct err *err)
{
    struct str line = { 0 };
    float value;
    int32_t id;
    int rc = 0;

    str_addf(&line, "%-11s", sign == LENS_PLUS ? "promoted" : "suppressed");
    for (size_t k = 0; k < s->v.lens.n && rc == 0; k++) {
        rc = lens_get(&s->v.lens, latent, sign, k, &id, &value, err);
        str_addc(&line, ' ');
        add_token(&line, s, id);
        str_addf(&line, " (%.3g)", (double)value);
    }
    if (rc == 0 && s->v.lens.n)
        add_line(s, &line);
    str_free(&line);
    return rc;
}

static int
put_pairs(struct show *s, size_t k, struct err *err)
{
    struct str line = { 0 };
    size_t n;
    struct look_pair *p = pick_pairs(&s->v.l, k, s->cmd->pairs_shown, &n, err);

    if (!p)
        return -1;
    str_adds(&line, "active with");
    for (size_t j = 0; j < n; j++)
        str_addf(&line, " %lld (%lld row%s)", (long long)p[j].latent,
                 (long long)p[j].rows, plural((uint64_t)p[j].rows));
    add_line(s, &line);
    str_free(&line);
    free(p);
    return 0;
}

/* One place of an example, with its background and the brackets of the peak. */
static size_t
put_place(struct show *s, const struct look_example *e, const char *token,
          size_t n, size_t k, float max, size_t columns)
{
    static const int shades[] = { 230, 229, 228, 222, 215 };
    int level = pick_level(e->acts[k], max);
    bool shaded = s->color && level > 0, peak = k == e->at;

    if (peak)
        str_adds(&s->to, "[[");
    if (shaded)
        str_addf(&s->to, "\033[30;48;5;%dm", shades[(level - 1) / 2]);
    columns = add_cut(&s->to, token, n, columns);
    if (shaded)
        str_adds(&s->to, "\033[0m");
    if (peak)
        str_adds(&s->to, "]]");
    return columns;
}

/* value row  tokens: as many around the peak as the width has. */
static void
put_example(struct show *s, const struct look_example *e, float max)
{
    struct str text = { 0 }, head = { 0 };
    size_t *end = xcalloc(e->n + 1, sizeof(*end)), first = e->at, last = e->at;
    size_t left, wide, now = 0;

    str_addf(&head, "%9.6g %9lld  ", (double)e->value, (long long)e->row);
    str_add(&s->to, head.s, head.n);
    str_reserve(&text, 1);
    for (size_t k = 0; e->ids && k < e->n; k++) {
        str_adds(&text, !s->v.tok && k > e->at ? " " : "");
        add_token(&text, s, e->ids[k]);
        str_adds(&text, !s->v.tok && k < e->at ? " " : "");
        end[k + 1] = text.n;
    }
    left = head.n + 4 < s->width ? s->width - head.n - 4 : 0;
    if (e->ids)
        now = str_columns(text.s + end[first], end[last + 1] - end[first]);
    for (bool grows = e->ids != NULL; grows;) {
        grows = false;
        for (int side = 0; side < 2; side++) {
            size_t k = side ? last + 1 : first - 1;

            if (side ? last + 1 >= e->n : first == 0)
                continue;
            wide = str_columns(text.s + end[k], end[k + 1] - end[k]);
            if (now + wide > left)
                continue;
            now += wide;
            *(side ? &last : &first) = k;
            grows = true;
        }
    }
    for (size_t k = first; e->ids && k <= last; k++)
        left =
            put_place(s, e, text.s + end[k], end[k + 1] - end[k], k, max, left);
    str_addc(&s->to, '\n');
    free(end);
    str_free(&text);
    str_free(&head);
}

static int
put_text(struct show *s, size_t i, size_t k_pair, struct err *err)
{
    size_t order[LOOK_MAX_EXAMPLES], n = pick_sample(&s->v.l, i, order);
    size_t latent = (size_t)s->v.l.latent[i], q = s->cmd->quantiles;
    struct look_example e;
    int rc = 1;

    put_facts(s, i);
    put_chart(s, i);
    if (put_lens(s, latent, LENS_PLUS, err) < 0 ||
        put_lens(s, latent, LENS_MINUS, err) < 0 ||
        (k_pair < s->v.l.p && put_pairs(s, k_pair, err) < 0))
        return -1;
    for (size_t j = 0; j < s->v.l.top.n && rc > 0; j++) {
        rc = look_example(&s->v.l, &s->v.l.top, i, j, &e, err);
        if (rc > 0)
            put_example(s, &e, s->v.l.max[i]);
    }
    for (size_t j = 0; j < n && rc >= 0; j++) {
        size_t quantile = pick_quantile(j, n, q);

        if (j == 0 || quantile != pick_quantile(j - 1, n, q))
            str_addf(&s->to, "sample, quantile %zu of %zu\n", quantile, q);
        rc = look_example(&s->v.l, &s->v.l.sample, i, order[j], &e, err);
        if (rc > 0)
            put_example(s, &e, s->v.l.max[i]);
    }
    return rc < 0 ? -1 : 0;
}

/* ---- JSON ---- */

static void
json_example(struct show *s, const struct look_example *e)
{
    struct str *to = &s->to;

    str_addf(to, "{\"row\":%lld,\"value\":", (long long)e->row);
    js_put_f64(to, (double)e->value);
    str_addf(to, ",\"at\":%zu,\"acts\":[", e->at);
    for (size_t k = 0; k < e->n; k++) {
        str_adds(to, k ? "," : "");
        js_put_f64(to, (double)e->acts[k]);
    }
    str_addc(to, ']');
    for (size_t k = 0; e->ids && k < e->n; k++)
        str_addf(to, "%s%ld", k ? "," : ",\"ids\":[", (long)e->ids[k]);
    str_adds(to, e->ids ? "]" : "");
    if (e->ids && s->v.tok) {
        str_adds(to, ",\"tokens\":");
        tokens_json(to, s->v.tok, e->ids, e->n);
    }
}

static int
json_lens(struct show *s, size_t latent, enum lens_sign sign, struct err *err)
{
    struct str *to = &s->to;
    float value;
    int32_t id;

    str_adds(to, sign == LENS_PLUS ? ",\"promoted\":[" : ",\"suppressed\":[");
    for (size_t k = 0; k < s->v.lens.n; k++) {
        if (lens_get(&s->v.lens, latent, sign, k, &id, &value, err) < 0)
            return -1;
        str_addf(to, "%s{\"id\":%ld,\"logit\":", k ? "," : "", (long)id);
        js_put_f64(to, (double)value);
        if (s->v.tok) {
            str_adds(to, ",\"token\":");
            tokens_one(to, s->v.tok, id);
        }
        str_addc(to, '}');
    }
    str_addc(to, ']');
    return 0;
}

static int
json_pairs(struct show *s, size_t k, struct err *err)
{
    struct str *to = &s->to;
    size_t n;
    struct look_pair *p = pick_pairs(&s->v.l, k, s->cmd->pairs_shown, &n, err);

    for (size_t j = 0; p && j < n; j++) {
        str_addf(to,
                 "%s{\"latent\":%lld,\"rows\":%lld,\"jaccard\":", j ? "," : "",
                 (long long)p[j].latent, (long long)p[j].rows);
        js_put_f64(to, p[j].jaccard);
        str_addc(to, '}');
    }
    free(p);
    return p ? 0 : -1;
}

static int
put_json(struct show *s, size_t i, size_t k_pair, struct err *err)
{
    size_t order[LOOK_MAX_EXAMPLES], n = pick_sample(&s->v.l, i, order);
    const struct look *l = &s->v.l;
    const struct label *label = labels_find(&s->v.labels, l->latent[i]);
    struct str *to = &s->to;
    struct look_example e;
    int rc = 1;

    str_addf(to, "{\"latent\":%ld,\"density\":", (long)l->latent[i]);
    js_put_f64(to, look_density(l, i));
    str_addf(to,
             ",\"rows_active\":%lld,\"mean\":", (long long)l->rows_active[i]);
    js_put_f64(to, look_mean(l, i));
    str_adds(to, ",\"max\":");
    js_put_f64(to, (double)l->max[i]);
    for (size_t k = 0; k < LOOK_BINS; k++)
        str_addf(to, "%s%lld", k ? "," : ",\"hist\":[",
                 (long long)l->hist[i * LOOK_BINS + k]);
    str_adds(to, "],\"label\":");
    if (label)
        js_put_str(to, label->s, label->n);
    else
        str_adds(to, "null");
    str_adds(to, ",\"top\":[");
    for (size_t j = 0; rc > 0; j++) {
        rc = look_example(l, &l->top, i, j, &e, err);
        if (rc > 0) {
            str_adds(to, j ? "," : "");
            json_example(s, &e);
            str_addc(to, '}');
        }
    }
    str_adds(to, "],\"sample\":[");
    for (size_t j = 0; j < n && rc >= 0; j++) {
        rc = look_example(l, &l->sample, i, order[j], &e, err);
        if (rc > 0) {
            str_adds(to, j ? "," : "");
            json_example(s, &e);
            str_addf(to, ",\"quantile\":%zu}",
                     pick_quantile(j, n, s->cmd->quantiles));
        }
    }
    str_addc(to, ']');
    if (rc < 0 || json_lens(s, (size_t)l->latent[i], LENS_PLUS, err) < 0 ||
        json_lens(s, (size_t)l->latent[i], LENS_MINUS, err) < 0)
        return -1;
    str_adds(to, ",\"pairs\":[");
    if (k_pair < l->p && json_pairs(s, k_pair, err) < 0)
        return -1;
    str_adds(to, "]}\n");
    return 0;
}

/* ---- all of them ---- */

static int
show_one(struct show *s, int64_t latent, struct err *err)
{
    size_t i = look_find(&s->v.l, latent), k_pair = 0;
    int rc;

    if (i == SIZE_MAX)
        return err_set(err, TU_USAGE,
                       "%s: has nothing of latent %lld (scan --latents)",
                       s->v.l.path, (long long)latent);
    while (k_pair < s->v.l.p && s->v.l.pair_latent[k_pair] != latent)
        k_pair++;
    str_clear(&s->to);
    rc = (s->cmd->json ? put_json : put_text)(s, i, k_pair, err);
    if (rc == 0 && fwrite(s->to.s, 1, s->to.n, stdout) < s->to.n)
        return err_sys(err, EX_IOERR, "standard output");
    return rc;
}

int
show_main(const struct look_cmd *cmd, struct err *err)
{
    struct show s = { .cmd = cmd,
                      .width = tty_columns(),
                      .color = tty_has_color() };
    int rc = -1;

    if (cmd->n_args < 2)
        return err_set(err, TU_USAGE, "show takes a RUN and a LATENT");
    if (view_open(&s.v, cmd, 0, err) < 0)
        goto out;
    for (int k = 1; k < cmd->n_args; k++)
        if (numbers_add(&s.which, "LATENT", cmd->args[k], "latent", s.v.l.n,
                        err) < 0)
            goto out;
    rc = 0;
    for (size_t k = 0; k < s.which.n && rc == 0; k++) {
        if (k && !cmd->json)
            putchar('\n');
        rc = show_one(&s, s.which.v[k], err);
    }
out:
    numbers_free(&s.which);
    view_close(&s.v);
    str_free(&s.to);
    return rc;
}
