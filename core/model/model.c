/* SPDX-License-Identifier: ISC */
#include "core/model/model.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/bind.h"
#include "core/model/config_file.h"
#include "core/model/lora.h"
#include "core/model/names.h"
#include "core/model/parts.h"
#include "core/str.h"
#include "core/tty.h"

#define TIED_ROWS 64 /* compared of two matrices that should be one, twice */

/*
 * Are they not the same?  Some rows tell, as a head that was trained alone has
 * others everywhere: at equal distances, and the last ones, of tokens that were
 * added.  All would be read from a disk for nothing.
 */
static bool
head_differs(const struct linear *embed, const struct linear *head)
{
    size_t rows = embed->out, n = embed->in;
    float *x = xmalloc(2 * n * sizeof(*x));
    bool differs = false;

    for (size_t i = 0; i < 2 * TIED_ROWS && !differs; i++) {
        size_t row = i < TIED_ROWS ? i * rows / TIED_ROWS
                                   : rows - 1 - (i - TIED_ROWS) % rows;

        weight_read(x, &embed->w, row, 0, n);
        weight_read(x + n, &head->w, row, 0, n);
        for (size_t k = 0; k < n; k++)
            differs |= x[k] != x[n + k];
    }
    free(x);
    return differs;
}

/* sqrt(n), rounded to the type of a model's numbers. */
static float
root_of(size_t n, enum dtype dtype)
{
    float root = (float)sqrt((double)n);
    char rounded[4];

    cvt_from_f32(rounded, dtype, &root, 1);
    cvt_to_f32(&root, rounded, dtype, 1);
    return root;
}

/*
 * The matrices from ids and to logits.  Tied, they are one, under either name;
 * two that differ are two all the same, as in transformers 5: 4 took the
 * embedding for both, as all do in a family whose default is tied.
 */
static int
bind_ends(struct binder *b)
{
    const struct part_at at_embed = { .part = PART_EMBED };
    const struct part_at at_head = { .part = PART_HEAD };
    struct model *m = b->model;
    bool tied = m->config.tied;
    int embed, head = 0, found;
    size_t vocab, hidden;

    part_size(&m->config, PART_EMBED, &vocab, &hidden);
    bind_name(b, at_embed, "");
    embed = bind_weights(b, ".weight", &m->embed, vocab, hidden);
    if (embed > 0 && tied && m->config.family->tied) {
        bind_name(b, at_head, ".weight");
        bind_find(b, b->name.s); /* the same, as all do */
    } else if (embed >= 0) {
        bind_name(b, at_head, "");
        head = bind_weights(b, ".weight", &m->lm_head, vocab, hidden);
    }
    if (embed < 0 || head < 0)
        return -1;
    if (!embed && !(head && tied))
        return bind_missing(b, bind_name(b, at_embed, ".weight"), "");
    if (!head && !tied)
        return bind_missing(b, bind_name(b, at_head, ".weight"),
                            ", and tie_word_embeddings is not true");
    if (!embed)
        m->embed = m->lm_head;
    if (part_is_in(&m->config, PART_POSITIONS, 0) &&
        bind_linear(b, (struct part_at){ .part = PART_POSITIONS }))
        return -1;
    if (embed && head && tied && head_differs(&m->embed, &m->lm_head))
        err_warn("%s: lm_head.weight is not the embedding, though "
                 "tie_word_embeddings is true: both are used",
                 m->dir.path);
    else if (tied)
        m->lm_head = m->embed;
    if (m->config.form.head_bias) {
        bind_name(b, at_head, ".bias");
        found = bind_bias(b, vocab, &m->lm_head.bias);
        if (found <= 0)
            return found < 0 ? -1 : bind_missing(b, b->name.s, "");
    }
    m->embed_scale =
        m->config.form.embed_root
            ? root_of(hidden, m->embed.w.code ? DT_BF16 : m->embed.w.dtype)
            : (float)m->config.embed_scale;
    return 0;
}

/* Is it no parameter, a mask or a scale of a cache's numbers?  Or, of a vision
 * encoder, of the text's half, of a head or of training, which images do
 * without? */
static bool
is_left_out(const char *name, bool vision)
{
    static const char *const globs[] = {
        "*attn.bias",
        "*attention.bias",
        "*.masked_bias",
        "*.inv_freq",
        "*?.rotary_emb.???_cached",
        "*.[kv]_scale",
        "*.position_ids",
        "text_*",
        "logit_*",
        "classifier.*",
        "*.mask_token",
    };

    for (size_t i = 0; i < (vision ? 11 : 7); i++)
        if (!fnmatch(globs[i], name, 0))
            return true;
    return false;
}

/* Vision encoders run by one way, models of tokens by the other. */
static int
refuse_other(const struct config *c, const char *path, bool vision,
             struct err *err)
{
    if (!vision)
        return config_refuse_vision(c->family, path, err);
    return c->family->vision
               ? 0
               : err_set(err, EX_DATAERR,
                         "%s/config.json: model_type \"%s\" is no vision "
                         "encoder, and reads no images",
                         path, c->family->model_type);
}

/* Tensors that nothing has bound: refused inside a layer, else a warning. */
static int
check_unused(const struct binder *b)
{
    const struct model *m = b->model;
    const struct stdir *dir = &m->dir;
    const char *first = NULL;
    size_t n_unused = 0;

    for (size_t i = 0; i < dir->n_tensors; i++) {
        const char *name = dir->tensors[i].t->name;
        size_t layer;

        /* a buffer that older files have follows from config.json */
        if (b->used[i] || is_left_out(name, m->config.family->vision))
            continue;
        if ((part_in_layer(m->config.family, b->root, name, &layer) ||
             (b->more &&
              part_in_layer(m->config.family, b->more, name, &layer))) &&
            layer < (size_t)m->config.n_layers) {
            return err_set(
                b->err, EX_DATAERR,
                "%s: tensor %s is in a layer that is computed, but %s has no "
                "such weight: it is another model's",
                dir->path, name, m->config.family->model_type);
        }
        first = first ? first : name;
        n_unused++;
    }
    if (m->config.of)
        err_warn("%s: is a %s: its text model runs, as a %s, and %zu tensor%s "
                 "of other parts %s ignored",
                 dir->path, m->config.of, m->config.family->model_type,
                 n_unused, plural(n_unused), n_unused == 1 ? "is" : "are");
    else if (n_unused == 1)
        err_warn("%s: tensor %s is not a weight of this model, ignored",
                 dir->path, first);
    else if (n_unused > 1)
        err_warn("%s: %zu tensors are not weights of this model, ignored "
                 "(the first is %s)",
                 dir->path, n_unused, first);
    return 0;
}

static int
open_model(struct model **model, const char *path, bool vision, struct err *err)
{
    struct model *m = xcalloc(1, sizeof(*m));
    struct binder b = { .model = m, .err = err };
    const struct stdir *dir = &m->dir;
    size_t half;
    int rc = -1;

    *model = NULL;
    if (stdir_check(path, true, err) || config_load(&m->config, path, err) ||
        refuse_other(&m->config, path, vision, err) ||
        stdir_open(&m->dir, path, err) || stdir_map(&m->dir, err))
        goto out;
    part_module(&b.name, m->config.family,
                (struct part_at){ .part = PART_NORM }, 0);
    str_adds(&b.name, ".weight");
    b.root = names_root(dir, b.name.s);
    if (!b.root && stdir_find(dir, b.name.s))
        b.root = "";
    m->root = m->config.family->root ? m->config.family->root : "model.";
    if (!b.root)
        b.root = m->root;
    if (m->config.of && *b.root)
        m->root = b.root;
    if (vision) {
        b.root = "";
        b.more = m->root;
    }
    b.used = m->used = xcalloc(dir->n_tensors, sizeof(*b.used));
    m->layers = xcalloc((size_t)m->config.n_layers, sizeof(*m->layers));
    if ((part_is_in(&m->config, PART_EMBED, 0) && bind_ends(&b)) ||
        (vision && bind_vision(&b)) ||
        bind_norm(&b, (struct part_at){ .part = PART_NORM }))
        goto out;
    for (size_t i = 0; i < (size_t)m->config.n_layers; i++)
        if (bind_layer(&b, i))
            goto out;
    if (b.twice[0]) {
        bind_refuse_twice(&b);
        goto out;
    }
    if (check_unused(&b))
        goto out;
    half = (size_t)m->config.rotary_dim / 2;
    m->inv_freq = xcalloc(CONFIG_MAX_ROPES * half, sizeof(*m->inv_freq));
    for (size_t i = 0; i < CONFIG_MAX_ROPES; i++)
        rope_inv_freq(m->inv_freq + i * half, &m->config.rope[i], 2 * half);
    *model = m;
    rc = 0;
out:
    form_memory_rest(&m->packed);
    str_free(&b.name);
    if (rc < 0)
        model_close(m);
    return rc;
}

int
model_open(struct model **model, const char *path, struct err *err)
{
    return open_model(model, path, false, err);
}

int
model_open_vision(struct model **model, const char *path, struct err *err)
{
    return open_model(model, path, true, err);
}

void
model_close(struct model *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n_owned; i++)
        free(m->owned[i]);
    free(m->owned);
    free(m->used);
    free(m->inv_freq);
    free(m->rotations);
    for (size_t i = 0; m->layers && i < (size_t)m->config.n_layers; i++)
        free(m->layers[i].experts);
    free(m->layers);
    form_memory_free(&m->packed);
    lora_close(m);
    stdir_close(&m->dir);
    config_free(&m->config);
    free(m);
}

struct linear *
model_linear(struct model *m, const char *name)
{
    struct part_at at;

    return part_find(&at, m->config.family, name) && at.part >= PART_HEAD
               ? part_linear(m, at)
               : NULL;
}
