/* SPDX-License-Identifier: ISC */
#include "core/model/places.h"

#include <stdlib.h>
#include <string.h>

#include "core/format/lut.h"
#include "core/mem.h"
#include "core/model/names.h"
#include "core/model/parts.h"
#include "core/str.h"

/*
 * Names of places.  A module is known by its output, a linear layer by its
 * input.  Modules without weights are so many levels above a part.  In the
 * order in which a layer computes them; what has no module is known by
 * TransformerLens's name.
 */
enum {
    EMBED,
    PRE, /* the residual stream before the first layer */
    IN_Q,
    IN_K,
    IN_V,
    IN_O,
    ATTN,
    ATTN_OUT,
    RESID_MID,
    IN_GATE,
    IN_UP,
    IN_DOWN,
    MLP,
    MLP_OUT,
    RESID,
    NORM, /* of the last layer alone */
    N_LISTED,
    NORMED = N_LISTED, /* a norm after the MLP, whose output is what is added */
    N_ROWS
};
static const struct {
    const char *word; /* of the short form */
    enum model_part part;
    int up;
    enum tap_point point;
    const char *lens, *also; /* what follows "blocks.N.", or NULL */
} rows[N_ROWS] = {
    [EMBED] = { "embed", PART_EMBED, 0, TAP_EMBED, "hook_embed", NULL },
    [PRE] = { "resid", N_PARTS, 0, TAP_RESID, "hook_resid_pre", "hook_in" },
    [IN_Q] = { "in:q_proj", PART_Q, 0, TAP_IN_QKV, NULL, NULL },
    [IN_K] = { "in:k_proj", PART_K, 0, TAP_IN_QKV, NULL, NULL },
    [IN_V] = { "in:v_proj", PART_V, 0, TAP_IN_QKV, NULL, NULL },
    [IN_O] = { "in:o_proj", PART_O, 0, TAP_IN_O, "attn.hook_z", NULL },
    [ATTN] = { "attn", PART_O, 1, TAP_ATTN, "attn.hook_out", NULL },
    [ATTN_OUT] = { "attn_out", N_PARTS, 0, TAP_ATTN_OUT, "hook_attn_out",
                   NULL },
    [RESID_MID] = { "resid_mid", N_PARTS, 0, TAP_RESID_MID, "hook_resid_mid",
                    "ln2.hook_in" },
    [IN_GATE] = { "in:gate_proj", PART_GATE, 0, TAP_IN_GATE_UP, NULL, NULL },
    [IN_UP] = { "in:up_proj", PART_UP, 0, TAP_IN_GATE_UP, "mlp.hook_in", NULL },
    [IN_DOWN] = { "in:down_proj", PART_DOWN, 0, TAP_IN_DOWN, "mlp.hook_post",
                  NULL },
    [MLP] = { "mlp", PART_DOWN, 1, TAP_MLP, "mlp.hook_out", NULL },
    [MLP_OUT] = { "mlp_out", N_PARTS, 0, TAP_MLP_OUT, "hook_mlp_out", NULL },
    [RESID] = { "resid", PART_DOWN, 2, TAP_RESID, "hook_resid_post",
                "hook_out" },
    [NORM] = { "norm", PART_NORM, 0, TAP_NORM, NULL, NULL },
    [NORMED] = { "mlp_out", PART_MLP_POST, 0, TAP_MLP_OUT, "hook_mlp_out",
                 NULL },
};

/* Other names: of fused layers, and of Gated DeltaNet's. */
static const struct {
    size_t row;
    enum model_part part;
    int up;
} others[] = {
    { IN_Q, PART_QKV, 0 },     { IN_Q, PART_Q_A, 0 },
    { IN_Q, PART_KV_A, 0 },    { IN_Q, PART_GDN_QKVZ, 0 },
    { IN_Q, PART_GDN_BA, 0 },  { IN_Q, PART_GDN_QKV, 0 },
    { IN_Q, PART_GDN_Z, 0 },   { IN_Q, PART_GDN_B, 0 },
    { IN_Q, PART_GDN_A, 0 },   { IN_GATE, PART_GATE_UP, 0 },
    { IN_O, PART_GDN_OUT, 0 }, { ATTN, PART_GDN_OUT, 1 },
};
enum { N_OTHERS = sizeof(others) / sizeof(*others) };

static void
set(struct place *p, size_t row, int64_t layer)
{
    *p = (struct place){ rows[row].point, layer, row };
}

static bool
find_lens(struct place *p, const char *name)
{
    const char *rest;
    int64_t layer;

    if (strcmp(name, rows[EMBED].lens) == 0) {
        set(p, EMBED, -1);
        return true;
    }
    if (*name != 'b' || names_layer(name, &layer, &rest) != name ||
        layer >= INT32_MAX || *rest++ != '.')
        return false;
    for (size_t i = PRE; i < N_LISTED; i++)
        if ((rows[i].lens && strcmp(rest, rows[i].lens) == 0) ||
            (rows[i].also && strcmp(rest, rows[i].also) == 0)) {
            set(p, i, layer);
            if (i == PRE)
                place_set_layer(p, layer - 1);
            return true;
        }
    return false;
}

static bool
is_vision(const struct model_family *f)
{
    return f && f->vision;
}

/* ViT adds to the residual stream in the module that should be the MLP. */
static bool
adds_mlp(const struct model_family *f)
{
    return is_vision(f) && f->vision->pool == POOL_TANH;
}

/* A module of any family; names mean the same in all that have them. */
static bool
find_module(struct place *p, const char *name)
{
    const struct model_family *f = NULL;

    do
        for (size_t i = 0; i < N_ROWS + N_OTHERS; i++) {
            bool listed = i < N_ROWS;
            size_t row = listed ? i : others[i - N_ROWS].row;
            int up = listed ? rows[i].up : others[i - N_ROWS].up;
            struct part_at at = { .part = listed ? rows[i].part
                                                 : others[i - N_ROWS].part };

            if (at.part == N_PARTS || (row == MLP && adds_mlp(f)) ||
                !part_is_module(&at, f, up, name) || at.layer >= INT32_MAX)
                continue;
            set(p, row, row == EMBED ? -1 : (int64_t)at.layer);
            return true;
        }
    while ((f = family_next(f)));
    return false;
}

/* With the side of a module that is meant, as in "model.layers.3.output". */
static bool
find_side(struct place *p, const char *name)
{
    const char *output = str_ends(name, ".output");
    const char *end = output ? output : str_ends(name, ".input");
    char *stem = xstrndup(name, end ? (size_t)(end - name) : 0);
    bool found = end && find_module(p, stem), is_layer, is_input;

    free(stem);
    if (!found)
        return false;
    is_layer = p->row == RESID;
    is_input = rows[p->row].up == 0 && p->row != EMBED && p->row != NORMED &&
               p->row != NORM;
    if (is_layer && !output)
        place_set_layer(p, p->layer - 1);
    return is_layer || is_input == !output;
}

bool
place_find(struct place *p, const char *name)
{
    char *parts[LUT_MAX_PARTS];
    size_t n;
    bool found =
        find_lens(p, name) || find_module(p, name) || find_side(p, name);

    if (found)
        return true;
    n = lut_parts(name, parts);
    found = n > 1 && place_find(p, parts[0]);
    for (size_t i = 0; i < n; i++)
        free(parts[i]);
    return found;
}

bool
place_point(struct place *p, const char *text, size_t n)
{
    for (size_t i = 0; i < N_LISTED; i++)
        if (i != PRE && strlen(rows[i].word) == n &&
            !memcmp(rows[i].word, text, n)) {
            set(p, i, i == EMBED ? -1 : 0);
            return true;
        }
    return false;
}

void
place_layers(const struct place *p, int64_t n_layers, int64_t *first,
             int64_t *last)
{
    bool is_embed = p->point == TAP_EMBED;

    *last = is_embed ? -1 : n_layers - 1;
    *first = p->point == TAP_NORM                ? *last
             : is_embed || p->point == TAP_RESID ? -1
                                                 : 0;
}

void
place_set_layer(struct place *p, int64_t layer)
{
    p->layer = layer;
    if (p->point == TAP_RESID)
        p->row = layer < 0 ? PRE : RESID;
}

static void
add_lens(struct str *to, const struct place *p, size_t row)
{
    const char *lens = rows[row].lens;

    if (lens && row != EMBED)
        str_addf(to, "blocks.%lld.", (long long)p->layer + (row == PRE));
    str_adds(to, lens ? lens : "-");
}

/* The row of the same place that has the name of what is added, or of the
 * embedding; or 'row'. */
static size_t
twin(size_t row, const struct config *c)
{
    bool changed = c && (c->residual_scale > 0 ||
                         c->form.norm.places == (NORM_PRE | NORM_POST));

    if (row == PRE)
        return c && (c->form.learned || is_vision(c->family)) ? PRE : EMBED;
    if (row == ATTN && !changed)
        return ATTN_OUT;
    return row == MLP && !changed ? MLP_OUT : row;
}

void
place_settle(struct place *p, const struct config *c)
{
    for (size_t i = PRE; i <= RESID && p->row != NORMED; i++)
        if (twin(i, c) != i && rows[twin(i, c)].point == p->point)
            set(p, i, p->layer);
    if (p->row == NORM && c)
        p->layer = c->n_layers - 1;
}

bool
place_same(const struct place *a, const struct place *b, const struct config *c)
{
    struct place x = *a, y = *b;

    place_settle(&x, c);
    place_settle(&y, c);
    return x.layer == y.layer && x.point == y.point;
}

bool
place_same_in(const struct place *a, const struct place *b,
              const struct model_family *f)
{
    struct config c = { .family = f };

    if (!f)
        return place_same(a, b, NULL);
    c.form = f->form;
    for (const struct family_key *k = f->keys; k && k->key; k++)
        if (k->at == offsetof(struct config, residual_scale))
            c.residual_scale = k->absent;
    return place_same(a, b, &c);
}

void
place_hook(struct str *to, const struct place *p, const struct model_family *f,
           bool linear)
{
    enum model_part part = rows[p->row].part;
    size_t layer = p->layer < 0 ? 0 : (size_t)p->layer;

    if (f && f->form.qkv != FUSED_NOT && p->point == TAP_IN_QKV)
        part = PART_QKV;
    if (f && f->form.mla && p->point == TAP_IN_QKV)
        part = PART_KV_A;
    if (f && f->form.gate_up && p->point == TAP_IN_GATE_UP)
        part = PART_GATE_UP;
    if (linear && p->point == TAP_IN_QKV)
        part = f->form.fused_gdn ? PART_GDN_QKVZ : PART_GDN_QKV;
    if (linear && (p->point == TAP_IN_O || p->row == ATTN))
        part = PART_GDN_OUT;
    if (p->row == PRE && !(f && f->form.learned) && !is_vision(f))
        part = PART_EMBED;
    if (part == N_PARTS || p->row == NORMED || (p->row == MLP && adds_mlp(f)))
        add_lens(to, p, p->row);
    else
        part_module(to, f, (struct part_at){ part, layer, 0 }, rows[p->row].up);
}

bool
place_is_linear(const struct place *p, const struct config *c)
{
    return p->layer >= 0 && p->layer < c->n_layers && c->mixer &&
           c->mixer[p->layer] == MIXER_GDN;
}

void
place_hook_in(struct str *to, const struct place *p, const struct config *c)
{
    place_hook(to, p, c->family, place_is_linear(p, c));
}

void
place_short(struct str *to, const struct place *p)
{
    str_adds(to, rows[p->row].word);
    if (p->row != NORM)
        str_addf(to, ":%lld", (long long)p->layer);
}

void
place_lens(struct str *to, const struct place *p, const struct config *c)
{
    add_lens(to, p, twin(p->row, c));
}

const char *
place_word(const struct place *p)
{
    return rows[p->row].word;
}

void
place_hint(struct str *to, const char *name)
{
    static const char *const ends[] = { ".weight", ".bias" };
    int64_t first, last;
    const char *colon = strrchr(name, ':');
    struct str hook = { 0 };
    struct place p;

    if (colon && place_point(&p, name, (size_t)(colon - name))) {
        char *end;
        long long layer = strtoll(colon + 1, &end, 10);

        place_layers(&p, INT32_MAX, &first, &last);
        place_set_layer(&p, layer);
        if (end > colon + 1 && !*end && layer >= first && layer <= last)
            place_hook(&hook, &p, NULL, false);
    }
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends) && !hook.n; i++) {
        const char *end = str_ends(name, ends[i]);
        char *stem = xstrndup(name, end ? (size_t)(end - name) : 0);

        if (place_find(&p, stem)) /* in its family's words */
            str_adds(&hook, names_short(stem));
        free(stem);
    }
    if (hook.n)
        str_addf(to, " (expected %s)", hook.s);
    str_free(&hook);
}

bool
place_missing(struct str *why, const struct config *c, const struct place *p)
{
    const struct model_form *f = &c->form;
    enum model_part part = p->row < N_ROWS ? rows[p->row].part : N_PARTS;

    if (p->point == TAP_IN_DOWN && c->sparse && c->sparse[p->layer])
        str_addf(why,
                 "layer %lld has experts, and each has its own down_proj "
                 "(in:gate_proj and mlp are of all)",
                 (long long)p->layer);
    else if (p->point == TAP_RESID_MID && f->residual != RESIDUAL_SEQUENTIAL)
        str_addf(why,
                 "blocks.%lld.hook_resid_mid: nothing is between attention and "
                 "the MLP, which are parallel in this model",
                 (long long)p->layer);
    else if (part == PART_GATE && f->plain_mlp)
        str_adds(why, "in:gate_proj: the MLP has none in this model "
                      "(in:up_proj)");
    else if (part == PART_MLP_POST && f->norm.places != (NORM_PRE | NORM_POST))
        str_adds(why, "the output of the norm after the MLP is no place of "
                      "this model");
    else if (p->point == TAP_EMBED && is_vision(c->family))
        str_adds(why, "embed is a place of language models (resid:-1)");
    else if (p->point == TAP_NORM && !is_vision(c->family))
        str_adds(why, "norm is a place of vision encoders");
    else
        return false;
    return true;
}

/* A place with two points is listed by one, a layer that is fused once. */
static bool
is_listed(const struct config *c, const struct place *p)
{
    struct str why = { 0 };
    enum model_part part = rows[p->row].part;
    bool no = place_missing(&why, c, p);
    struct place settled = *p;

    place_settle(&settled, c);
    str_free(&why);
    return !no && settled.point == p->point &&
           !((c->form.qkv != FUSED_NOT || c->form.mla ||
              place_is_linear(p, c)) &&
             (part == PART_K || part == PART_V)) &&
           !(c->form.gate_up && part == PART_GATE) &&
           (p->row != NORM || p->layer == c->n_layers - 1);
}

bool
place_next(struct place *p, const struct config *c)
{
    do {
        if (p->row == SIZE_MAX)
            set(p, EMBED, -1);
        else if (p->row == NORM || p->row == PRE)
            set(p, PRE + 1, p->layer + 1);
        else
            set(p, p->row + 1, p->layer);
    } while (p->layer < c->n_layers && !is_listed(c, p));
    return p->layer < c->n_layers;
}

bool
place_of_dump(struct str *hook, struct place *p, const struct saev *s, size_t i)
{
    const struct model_family *f = family_find(s->family);

    int64_t first, last;

    if (!s->acts || !place_point(p, s->acts, strlen(s->acts)))
        return false;
    place_layers(p, INT64_MAX, &first, &last);
    if (s->layers[i] < first || s->layers[i] > last)
        return false;
    place_set_layer(p, s->layers[i]);
    place_hook(hook, p, f, f && s->linear[i]);
    return true;
}
