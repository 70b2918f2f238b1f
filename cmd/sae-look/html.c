/* SPDX-License-Identifier: ISC */
/* html: a RUN as one page, without scripts and without anything to fetch. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/sae-look/cmd.h"
#include "cmd/sae-look/page.h"
#include "cmd/sae-look/view.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/tty.h"

#define COUNTED 64 /* times --max-bytes: a longer page is not even counted */

#define BAR 8 /* a bar's width and the gap after it, of a picture 40 high */

struct page {
    const struct look_cmd *cmd;
    struct look_view v;
    struct pictures pictures; /* of a list if --images is given */
    struct str to, name;
    size_t n_over; /* bytes of a page over --max-bytes: not kept, but counted */
    int rc;        /* -1: the page failed, and 'err' says why */
    struct err *err;
};

/* May there be more of the page? */
static bool
goes_on(struct page *p)
{
    size_t max_bytes = p->cmd->max_bytes;

    if (p->n_over || p->to.n > max_bytes) {
        p->n_over += p->to.n;
        str_clear(&p->to);
    }
    if (p->rc == 0 && p->n_over / COUNTED > max_bytes)
        p->rc = err_data(p->err, p->v.l.path,
                         "the page has over %zu bytes, but --max-bytes is %zu",
                         p->n_over, max_bytes);
    return p->rc == 0;
}

static void
put_token(struct page *p, int32_t id)
{
    str_clear(&p->name);
    view_token(&p->v, id, &p->name);
    if (p->name.n == 0)
        str_adds(&p->to, "\u00b7"); /* something to see */
    else
        page_text(&p->to, p->name.s, p->name.n);
}

static void put_fact(struct page *p, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void
put_fact(struct page *p, const char *name, const char *fmt, ...)
{
    va_list ap;

    str_clear(&p->name);
    va_start(ap, fmt);
    str_addv(&p->name, fmt, ap);
    va_end(ap);
    str_addf(&p->to, "<div><dt>%s</dt> <dd>", name);
    page_text(&p->to, p->name.s, p->name.n);
    str_adds(&p->to, "</dd></div>\n");
}

static void
put_head(struct page *p)
{
    const struct look *l = &p->v.l;
    struct str *to = &p->to;

    page_begin(to);
    str_adds(to, "Latents of ");
    page_text(to, l->sae, strlen(l->sae));
    page_style(to);
    str_adds(to, "<h1>Latents of ");
    page_text(to, l->sae, strlen(l->sae));
    str_adds(to, "</h1>\n<dl class=\"facts\">\n");
    if (l->hook)
        put_fact(p, "hook", "%s", l->hook);
    put_fact(p, "latents", "%zu of %zu", p->v.n, l->n);
    put_fact(p, "rows", "%llu", (unsigned long long)l->rows);
    if (l->left_out)
        put_fact(p, "left out", "%llu", (unsigned long long)l->left_out);
    put_fact(p, "sequences", "%llu", (unsigned long long)l->sequences);
    str_adds(to, "</dl>\n<div class=\"index\"><table id=\"index\">\n<thead><tr>"
                 "<th>latent</th><th>density</th><th class=\"c\">rows</th>"
                 "<th class=\"c\">mean</th><th>max</th><th>label</th>"
                 "</tr></thead>\n<tbody>\n");
    for (size_t k = 0; k < p->v.n && goes_on(p); k++) {
        size_t i = p->v.picked[k];
        const struct label *label = labels_find(&p->v.labels, l->latent[i]);

        str_addf(to,
                 "<tr><td><a href=\"#l%ld\">%ld</a></td><td>%.4g</td>"
                 "<td class=\"c\">%lld</td><td class=\"c\">%.4g</td>"
                 "<td>%.4g</td><td>",
                 (long)l->latent[i], (long)l->latent[i], look_density(l, i),
                 (long long)l->rows_active[i], look_mean(l, i),
                 (double)l->max[i]);
        if (label)
            page_text(to, label->s, label->n);
        str_adds(to, "</td></tr>\n");
    }
    str_adds(to, "</tbody></table></div>\n");
}

static void
put_hist(struct page *p)
{
    const int64_t *hist = p->v.l.hist + p->v.i * LOOK_BINS;
    int64_t most = 1;
    int first, end;

    view_bins(&p->v, &first, &end);
    for (int bin = first; bin < end; bin++)
        most = hist[bin] > most ? hist[bin] : most;
    if (first == end)
        return;
    str_addf(&p->to, "<div class=\"hist\"><svg viewBox=\"0 0 %d 40\">\n",
             (end - first) * BAR);
    for (int bin = first; bin < end; bin++) {
        double high = fmax(1, 40 * (double)hist[bin] / (double)most);

        if (hist[bin] == 0)
            continue;
        str_addf(&p->to,
                 "<rect data-bin=\"%d\" data-count=\"%lld\" x=\"%d\" "
                 "y=\"%.2f\" width=\"%d\" height=\"%.2f\"><title>%g ",
                 bin, (long long)hist[bin], (bin - first) * BAR, 40 - high,
                 BAR - 1, high, look_bin_low(bin));
        str_addf(&p->to, bin + 1 < LOOK_BINS ? "to %g" : "and more",
                 look_bin_low(bin + 1));
        str_addf(&p->to, ": %lld row%s</title></rect>\n", (long long)hist[bin],
                 plural((uint64_t)hist[bin]));
    }
    str_addf(&p->to, "</svg>f from %g to %.4g, two bars an octave</div>\n",
             look_bin_low(first), (double)p->v.max);
}

static void
put_lens(struct page *p)
{
    str_adds(&p->to, "<div class=\"lens\">\n");
    for (int sign = 0; sign < 2; sign++) {
        str_addf(&p->to, "<ol class=\"%s\">\n", sign ? "minus" : "plus");
        for (size_t k = 0; k < p->v.n_lens && goes_on(p); k++) {
            str_addf(&p->to, "<li data-id=\"%ld\"><span>",
                     (long)p->v.lens[sign][k].id);
            put_token(p, p->v.lens[sign][k].id);
            str_addf(&p->to, "</span> %.6g</li>\n",
                     (double)p->v.lens[sign][k].value);
        }
        str_adds(&p->to, "</ol>\n");
    }
    str_adds(&p->to, "</div>\n");
}

/* Where the data-* of an example end, and its tag. */
static void
put_data(struct page *p, const struct look_example *e, int quantile)
{
    str_addf(&p->to, " data-row=\"%lld\" data-value=\"", (long long)e->row);
    page_f32(&p->to, e->value);
    if (quantile >= 0)
        str_addf(&p->to, "\" data-quantile=\"%d", quantile);
    str_adds(&p->to, "\">");
}

static void
put_tokens(struct page *p, const struct look_example *e, int quantile)
{
    size_t first = (size_t)e->row % p->v.l.n_tokens - e->at;
    bool apart = !e->ids || !p->v.tok; /* numbers, not a text */

    str_adds(&p->to, quantile < 0 ? "<p class=\"x\"" : "<p class=\"x q\"");
    put_data(p, e, quantile);
    for (size_t k = 0; k < e->n && goes_on(p); k++) {
        if (apart && k)
            str_addc(&p->to, ' ');
        str_addf(&p->to, "<span class=\"a%d%s\" title=\"",
                 view_level(&p->v, e->acts[k]), k == e->at ? " p" : "");
        if (e->acts[k] < 0)
            str_adds(&p->to, "left out");
        else
            page_f32(&p->to, e->acts[k]);
        str_adds(&p->to, "\">");
        if (e->ids)
            put_token(p, e->ids[k]);
        else
            str_addf(&p->to, "%zu", first + k);
        str_adds(&p->to, "</span>");
    }
    str_adds(&p->to, "</p>\n");
}

static void
put_picture(struct page *p, const struct look_example *e, int quantile)
{
    const struct pictures *pic = &p->pictures;
    size_t n_tokens = p->v.l.n_tokens, n_cls = n_tokens - pic->w * pic->h;
    size_t first = (size_t)e->row % n_tokens - e->at;

    str_adds(&p->to, quantile < 0 ? "<figure" : "<figure class=\"q\"");
    put_data(p, e, quantile);
    str_addf(&p->to,
             "<svg viewBox=\"0 0 %zu %zu\"><image width=\"%zu\" "
             "height=\"%zu\" preserveAspectRatio=\"none\" href=\"",
             pic->w, pic->h, pic->w, pic->h);
    if (p->rc == 0)
        p->rc = pictures_url(pic, (size_t)e->row / n_tokens, &p->to, p->err);
    str_adds(&p->to, "\"/>\n");
    for (size_t k = first < n_cls ? n_cls - first : 0; k < e->n; k++) {
        size_t patch = first + k - n_cls;

        if (e->acts[k] <= 0)
            continue;
        str_addf(&p->to,
                 "<rect class=\"a%d\" x=\"%zu\" y=\"%zu\" width=\"1\" "
                 "height=\"1\"><title>",
                 view_level(&p->v, e->acts[k]), patch % pic->w, patch / pic->w);
        page_f32(&p->to, e->acts[k]);
        str_adds(&p->to, "</title></rect>\n");
    }
    str_adds(&p->to, "</svg></figure>\n");
}

static void
put_example(struct page *p, const struct look_example *e, int quantile)
{
    if (goes_on(p))
        (p->pictures.list ? put_picture : put_tokens)(p, e, quantile);
}

static void
put_sample(struct page *p)
{
    const char *box = p->pictures.list ? "<div class=\"images\">" : "";
    const char *box_end = p->pictures.list ? "</div>" : "";
    const struct look_view *v = &p->v;
    size_t q = p->cmd->quantiles;

    for (size_t j = 0, end; j < v->n_sample; j = end) {
        size_t quantile = view_quantile(v, j);

        end = view_quantile_end(v, j);
        str_adds(&p->to, "<details><summary>sample, ");
        if (q > 1)
            str_addf(&p->to, "part %zu of %zu, ", quantile + 1, q);
        str_addf(&p->to, "%zu example%s of %.4g to %.4g</summary>%s\n", end - j,
                 plural(end - j), (double)v->sample[j].value,
                 (double)v->sample[end - 1].value, box);
        for (size_t k = j; k < end; k++)
            put_example(p, &v->sample[k], (int)quantile);
        str_addf(&p->to, "%s</details>\n", box_end);
    }
}

static void
put_section(struct page *p, size_t i)
{
    const struct look *l = &p->v.l;
    long latent = p->v.latent;

    str_addf(&p->to,
             "<section id=\"l%ld\">\n<a class=\"up\" href=\"#index\">index</a>"
             "<h2><a href=\"#l%ld\">%ld</a> <span class=\"label\">",
             latent, latent, latent);
    if (p->v.label)
        page_text(&p->to, p->v.label->s, p->v.label->n);
    str_adds(&p->to, "</span></h2>\n<dl class=\"facts\">\n");
    put_fact(p, "density", "%.6g", look_density(l, i));
    put_fact(p, "rows", "%lld", (long long)l->rows_active[i]);
    put_fact(p, "sequences", "%lld", (long long)l->seqs_active[i]);
    put_fact(p, "mean", "%.6g", look_mean(l, i));
    put_fact(p, "max", "%.6g", (double)p->v.max);
    str_adds(&p->to, "</dl>\n<div class=\"top\">\n");
    put_hist(p);
    if (p->v.n_lens > 0)
        put_lens(p);
    str_adds(&p->to, "</div>\n");
    str_addf(&p->to, "<h3>%s</h3>\n%s",
             l->rows_active[i] ? "strongest examples" : "never active",
             p->pictures.list ? "<div class=\"images\">\n" : "");
    for (size_t j = 0; j < p->v.n_top && j < p->cmd->examples; j++)
        put_example(p, &p->v.top[j], -1);
    if (p->pictures.list)
        str_adds(&p->to, "</div>\n");
    put_sample(p);
    str_adds(&p->to, "</section>\n");
}

static int
put_page(struct page *p)
{
    put_head(p);
    for (size_t k = 0; k < p->v.n && goes_on(p); k++) {
        p->rc = view_latent(&p->v, p->v.picked[k], p->err);
        if (p->rc == 0)
            put_section(p, p->v.picked[k]);
    }
    str_adds(&p->to, "</body>\n</html>\n");
    if (goes_on(p) && p->n_over)
        p->rc = err_data(p->err, p->v.l.path,
                         "the page has %zu bytes, but --max-bytes is %zu",
                         p->n_over, p->cmd->max_bytes);
    return p->rc;
}

static int
open_pictures(struct page *p, struct err *err)
{
    struct pictures *pic = &p->pictures;
    const struct look *l = &p->v.l;
    size_t patches = p->cmd->grid[0] * p->cmd->grid[1];
    size_t n = l->input[l->n_input - 1][1] / l->n_tokens;

    pic->w = p->cmd->grid[0];
    pic->h = p->cmd->grid[1];
    if (l->n_tokens != patches && l->n_tokens != patches + 1)
        return err_data(err, l->path,
                        "images have %zu tokens, but --grid has %zu patches "
                        "(expected as many, or one less)",
                        l->n_tokens, patches);
    if (pictures_open(pic, p->cmd->images, err) < 0)
        return -1;
    if (pic->n < n)
        return err_data(err, pic->list, "%zu image%s, but %s has rows of %zu",
                        pic->n, plural(pic->n), l->path, n);
    return 0;
}

int
html_main(const struct look_cmd *cmd, struct err *err)
{
    struct page p = { .cmd = cmd, .err = err };
    int rc = -1;

    if (cmd->n_args != 1)
        return err_set(err, TU_USAGE, "html takes one RUN");
    if (view_open(&p.v, cmd, cmd->n ? cmd->n : 200, err) == 0 &&
        (!cmd->images || open_pictures(&p, err) == 0) && put_page(&p) == 0)
        rc = out_put(cmd->output ? cmd->output : "-", cmd->out_flags, p.to.s,
                     p.to.n, err);
    str_free(&p.to);
    str_free(&p.name);
    pictures_close(&p.pictures);
    view_close(&p.v);
    return rc;
}
