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
 * A module is known by its output, a linear layer by its input.  Modules
 * without weights are so many levels above a part.  In the order in which a
 * layer computes them.
 */
static const struct {
    const char *word; /* of the short form */
    enum model_part part;
    int up;
    enum tap_point point;
    const char *lens; /* what follows "blocks.N.", or NULL */
} rows[] = {
    { "resid", PART_EMBED, 0, TAP_RESID, "hook_embed" },
    { "in:q_proj", PART_Q, 0, TAP_IN_QKV, NULL },
    { "in:k_proj", PART_K, 0, TAP_IN_QKV, NULL },
    { "in:v_proj", PART_V, 0, TAP_IN_QKV, NULL },
    { "in:o_proj", PART_O, 0, TAP_IN_O, "attn.hook_z" },
    { "attn", PART_O, 1, TAP_ATTN, "hook_attn_out" },
    { "in:gate_proj", PART_GATE, 0, TAP_IN_GATE_UP, NULL },
    { "in:up_proj", PART_UP, 0, TAP_IN_GATE_UP, NULL },
    { "in:down_proj", PART_DOWN, 0, TAP_IN_DOWN, "mlp.hook_post" },
    { "mlp", PART_DOWN, 1, TAP_MLP, "hook_mlp_out" },
    { "resid", PART_DOWN, 2, TAP_RESID, "hook_resid_post" },
};
enum { N_ROWS = sizeof(rows) / sizeof(*rows), EMBED = 0, RESID = N_ROWS - 1 };

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
    for (size_t i = EMBED + 1; i < N_ROWS; i++)
        if (rows[i].lens && strcmp(rest, rows[i].lens) == 0) {
            set(p, i, layer);
            return true;
        }
    set(p, RESID, 0);
    place_set_layer(p, layer - 1);
    return strcmp(rest, "hook_resid_pre") == 0;
}

bool
place_find(struct place *p, const char *name)
{
    char *parts[LUT_MAX_PARTS];
    size_t n;
    bool found = find_lens(p, name);

    for (size_t i = 0; i < N_ROWS && !found; i++) {
        struct part_at at = { .part = rows[i].part };

        found =
            part_is_module(&at, NULL, rows[i].up, name) && at.layer < INT32_MAX;
        if (found)
            set(p, i, i == EMBED ? -1 : (int64_t)at.layer);
    }
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
    for (size_t i = EMBED + 1; i < N_ROWS; i++)
        if (strlen(rows[i].word) == n && !memcmp(rows[i].word, text, n)) {
            set(p, i, 0);
            return true;
        }
    return false;
}

void
place_set_layer(struct place *p, int64_t layer)
{
    p->layer = layer;
    if (p->point == TAP_RESID)
        p->row = layer < 0 ? EMBED : RESID;
}

void
place_hook(struct str *to, const struct place *p)
{
    part_module(to, NULL,
                (struct part_at){ rows[p->row].part,
                                  p->layer < 0 ? 0 : (size_t)p->layer, 0 },
                rows[p->row].up);
}

void
place_short(struct str *to, const struct place *p)
{
    str_addf(to, "%s:%lld", rows[p->row].word, (long long)p->layer);
}

void
place_lens(struct str *to, const struct place *p)
{
    const char *lens = rows[p->row].lens;

    if (lens && p->layer >= 0)
        str_addf(to, "blocks.%lld.", (long long)p->layer);
    str_adds(to, lens ? lens : "-");
}

const char *
place_word(const struct place *p)
{
    return rows[p->row].word;
}

void
place_hint(struct str *to, const char *name)
{
    static const char *const ends[] = { ".weight", ".bias", ".input",
                                        ".output" };
    const char *colon = strrchr(name, ':');
    struct place p;
    bool found = false;

    if (colon && place_point(&p, name, (size_t)(colon - name))) {
        char *end;
        long long layer = strtoll(colon + 1, &end, 10);

        found = end > colon + 1 && !*end && layer < INT32_MAX &&
                layer >= (p.point == TAP_RESID ? -1 : 0);
        place_set_layer(&p, layer);
    }
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends) && !found; i++) {
        const char *end = str_ends(name, ends[i]);
        char *stem = xstrndup(name, end ? (size_t)(end - name) : 0);

        found = place_find(&p, stem);
        free(stem);
    }
    if (!found)
        return;
    str_adds(to, " (expected ");
    place_hook(to, &p);
    str_addc(to, ')');
}

bool
place_split(const struct config *c, const struct place *p)
{
    return p->point == TAP_IN_DOWN && c->sparse && c->sparse[p->layer];
}

bool
place_next(struct place *p, const struct config *c)
{
    do {
        if (p->row == SIZE_MAX)
            set(p, EMBED, -1);
        else if (p->row + 1 == N_ROWS || p->row == EMBED)
            set(p, EMBED + 1, p->layer + 1);
        else
            set(p, p->row + 1, p->layer);
    } while (p->layer < c->n_layers && place_split(c, p));
    return p->layer < c->n_layers;
}

bool
place_of_dump(struct place *p, const struct saev *s, size_t i)
{
    if (!s->acts || !place_point(p, s->acts, strlen(s->acts)) ||
        s->layers[i] < (p->point == TAP_RESID ? -1 : 0))
        return false;
    place_set_layer(p, s->layers[i]);
    return true;
}
