/* SPDX-License-Identifier: ISC */
/* show: latents one by one, as text for a terminal or as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/sae-look/cmd.h"
#include "cmd/sae-look/view.h"
#include "core/chart.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/tty.h"

struct show {
    const struct look_cmd *cmd;
    struct look_view v;
    struct look_pair *pair; /* [n_pairs] */
    size_t n_pairs;
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
    struct str own = { 0 };

    view_token(&s->v, id, &own);
    if (own.n)
        str_esc(to, own.s, own.n);
    str_free(&own);
}

static void
put_facts(struct show *s)
{
    const struct look *l = &s->v.l;
    const struct label *label = s->v.label;
    size_t i = s->v.i;
    struct str line = { 0 };

    str_addf(&line,
             "latent %ld  max %.6g  mean %.6g  density %.6g  rows %lld of %llu"
             "  sequences %lld of %llu",
             s->v.latent, (double)s->v.max, look_mean(l, i), look_density(l, i),
             (long long)l->rows_active[i], (unsigned long long)l->rows,
             (long long)l->seqs_active[i], (unsigned long long)l->sequences);
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
put_chart(struct show *s)
{
    double counts[LOOK_BINS];
    char subtitle[64];
    struct chart c = { .title = "f of active rows",
                       .subtitle = subtitle,
                       .x = "log2 f",
                       .y = "rows",
                       .whole_y = true,
                       .columns = counts };
    int first, end;

    view_bins(&s->v, &first, &end);
    if (first == end)
        return;
    for (int k = first; k < end; k++)
        counts[k - first] = (double)s->v.l.hist[s->v.i * LOOK_BINS + (size_t)k];
    snprintf(subtitle, sizeof(subtitle), "f from %g to %g, two bins an octave",
             look_bin_low(first), look_bin_low(end));
    c.n_columns = (size_t)(end - first);
    c.left = first / 2.0 - 16;
    c.right = end / 2.0 - 16;
    chart_text(&s->to, &c);
}

/* One place of an example, with its background and the brackets of the peak. */
static size_t
put_place(struct show *s, const struct look_example *e, const char *token,
          size_t n, size_t k, size_t columns)
{
    static const int shades[] = { 230, 229, 228, 222, 215 };
    int level = view_level(&s->v, e->acts[k]);
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
put_example(struct show *s, const struct look_example *e)
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
        left = put_place(s, e, text.s + end[k], end[k + 1] - end[k], k, left);
    str_addc(&s->to, '\n');
    free(end);
    str_free(&text);
    str_free(&head);
}

static void
put_text(struct show *s)
{
    const struct look_view *v = &s->v;
    struct str line = { 0 };

    put_facts(s);
    put_chart(s);
    for (int sign = 0; sign < 2; sign++) {
        str_clear(&line);
        str_addf(&line, "%-11s", sign == LENS_PLUS ? "promoted" : "suppressed");
        for (size_t k = 0; k < v->n_lens; k++) {
            str_addc(&line, ' ');
            add_token(&line, s, v->lens[sign][k].id);
            str_addf(&line, " (%.3g)", (double)v->lens[sign][k].value);
        }
        if (v->n_lens)
            add_line(s, &line);
    }
    str_clear(&line);
    str_adds(&line, "active with");
    for (size_t j = 0; j < s->n_pairs; j++)
        str_addf(&line, " %lld (%lld row%s)", (long long)s->pair[j].latent,
                 (long long)s->pair[j].rows, plural((uint64_t)s->pair[j].rows));
    if (s->n_pairs)
        add_line(s, &line);
    str_free(&line);
    for (size_t j = 0; j < v->n_top; j++)
        put_example(s, &v->top[j]);
    for (size_t j = 0, end; j < v->n_sample; j = end) {
        end = view_quantile_end(v, j);
        str_addf(&s->to, "sample, quantile %zu of %zu\n", view_quantile(v, j),
                 (size_t)s->cmd->quantiles);
        for (size_t k = j; k < end; k++)
            put_example(s, &v->sample[k]);
    }
}

/* ---- JSON ---- */

/* What a token spells, or null. */
static void
json_token(struct show *s, const char *before, int32_t id)
{
    struct str own = { 0 };

    str_adds(&s->to, before);
    if (id >= 0 && tok_bytes(s->v.tok, id, &own))
        js_put_str(&s->to, own.s ? own.s : "", own.n);
    else
        str_adds(&s->to, "null");
    str_free(&own);
}

static void
json_example(struct show *s, const struct look_example *e)
{
    struct str *to = &s->to;

    js_addf(to, "{\"row\":%lld,\"value\":%g,\"at\":%zu,\"acts\":[",
            (long long)e->row, (double)e->value, e->at);
    for (size_t k = 0; k < e->n; k++) {
        str_adds(to, k ? "," : "");
        js_put_f64(to, (double)e->acts[k]);
    }
    str_addc(to, ']');
    for (size_t k = 0; e->ids && k < e->n; k++)
        str_addf(to, "%s%ld", k ? "," : ",\"ids\":[", (long)e->ids[k]);
    str_adds(to, e->ids ? "]" : "");
    for (size_t k = 0; e->ids && s->v.tok && k < e->n; k++)
        json_token(s, k ? "," : ",\"tokens\":[", e->ids[k]);
    str_adds(to, e->ids && s->v.tok ? "]" : "");
}

static void
put_json(struct show *s)
{
    const struct look_view *v = &s->v;
    const struct look *l = &v->l;
    struct str *to = &s->to;

    js_addf(to,
            "{\"latent\":%ld,\"density\":%g,\"rows_active\":%lld,\"mean\":%g,"
            "\"max\":%g",
            v->latent, look_density(l, v->i), (long long)l->rows_active[v->i],
            look_mean(l, v->i), (double)v->max);
    for (size_t k = 0; k < LOOK_BINS; k++)
        str_addf(to, "%s%lld", k ? "," : ",\"hist\":[",
                 (long long)l->hist[v->i * LOOK_BINS + k]);
    str_adds(to, "],\"label\":");
    if (v->label)
        js_put_str(to, v->label->s, v->label->n);
    else
        str_adds(to, "null");
    str_adds(to, ",\"top\":[");
    for (size_t j = 0; j < v->n_top; j++) {
        str_adds(to, j ? "," : "");
        json_example(s, &v->top[j]);
        str_addc(to, '}');
    }
    str_adds(to, "],\"sample\":[");
    for (size_t j = 0; j < v->n_sample; j++) {
        str_adds(to, j ? "," : "");
        json_example(s, &v->sample[j]);
        str_addf(to, ",\"quantile\":%zu}", view_quantile(v, j));
    }
    for (int sign = 0; sign < 2; sign++) {
        str_adds(to,
                 sign == LENS_PLUS ? "],\"promoted\":[" : "],\"suppressed\":[");
        for (size_t k = 0; k < v->n_lens; k++) {
            const struct lens_token *t = &v->lens[sign][k];

            str_adds(to, k ? "," : "");
            js_addf(to, "{\"id\":%ld,\"logit\":%g", (long)t->id,
                    (double)t->value);
            if (v->tok)
                json_token(s, ",\"token\":", t->id);
            str_addc(to, '}');
        }
    }
    str_adds(to, "],\"pairs\":[");
    for (size_t j = 0; j < s->n_pairs; j++) {
        str_adds(to, j ? "," : "");
        js_addf(to, "{\"latent\":%lld,\"rows\":%lld,\"jaccard\":%g}",
                (long long)s->pair[j].latent, (long long)s->pair[j].rows,
                s->pair[j].jaccard);
    }
    str_adds(to, "]}\n");
}

int
show_main(const struct look_cmd *cmd, struct err *err)
{
    struct show s = { .cmd = cmd,
                      .width = tty_columns(),
                      .color = tty_has_color() };
    int rc;

    if (cmd->n_args < 2)
        return err_set(err, TU_USAGE, "show takes a RUN and a LATENT");
    rc = view_open(&s.v, cmd, 0, err);
    for (size_t k = 0; k < s.v.n && rc == 0; k++) {
        str_clear(&s.to);
        if (k && !cmd->json)
            str_addc(&s.to, '\n');
        if (view_latent(&s.v, s.v.picked[k], err) < 0 ||
            !(s.pair = view_pairs(&s.v, &s.n_pairs, err)))
            rc = -1;
        else
            (cmd->json ? put_json : put_text)(&s);
        free(s.pair);
        s.pair = NULL;
        if (rc == 0 && fwrite(s.to.s, 1, s.to.n, stdout) < s.to.n)
            rc = err_sys(err, EX_IOERR, "standard output");
    }
    view_close(&s.v);
    str_free(&s.to);
    return rc;
}
