/* SPDX-License-Identifier: ISC */
#include "core/model/train/lm.h"

#include <math.h>
#include <stdlib.h>

#include "core/format/peft.h"
#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/lora.h"
#include "core/model/names.h"
#include "core/model/train/lm_impl.h"
#include "core/rng.h"
#include "core/sig.h"
#include "core/str.h"

/* ---- the list of tensors ---- */

/* The linear layers that may have an adapter, in the order of lm->tensors. */
static void
list_linears(struct lm_work *w, struct model *m)
{
    size_t cap = 0;

    for (size_t i = 0; i < (size_t)m->config.n_layers; i++) {
        bool sparse = m->layers[i].experts;
        size_t n_experts = (size_t)m->config.n_experts;
        size_t n_mlps = sparse ? n_experts + (m->config.shared_size > 0) : 1;

        /* q, k, v and o, then gate, up and down of each expert, and of the one
         * that all tokens have, then q_b and those that follow it */
        for (size_t k = 0; k < LM_N_TARGETS + 3 * (n_mlps - 1); k++) {
            size_t e = k < LM_GATE ? 0 : smaller((k - LM_GATE) / 3, n_mlps - 1);
            enum lm_target target = (enum lm_target)(k - 3 * e);
            bool is_mlp = target >= LM_GATE && target <= LM_DOWN;
            struct part_at at = { lm_target_part(&m->config, target), i,
                                  is_mlp ? e : 0 };

            if (sparse && is_mlp)
                at.part =
                    (e < n_experts ? PART_EXPERT_GATE : PART_SHARED_GATE) +
                    (target - LM_GATE);

            if (at.part == N_PARTS || !part_linear(m, at))
                continue;
            if (w->n_adapted == cap)
                w->adapted = xgrow(w->adapted, cap, &cap, sizeof(*w->adapted));
            w->adapted[w->n_adapted++] = (struct lm_adapted){
                .linear = part_linear(m, at), .at = at, .target = target
            };
        }
    }
}

static int
add_tensor(struct lm *lm, const struct lm_adapted *l, char which, size_t rows,
           size_t cols, struct err *err)
{
    struct lm_tensor *t = &lm->tensors[lm->n_tensors++];
    struct str name = { 0 };
    size_t n;

    str_adds(&name, PEFT_ROOT);
    str_adds(&name, lm->model->root);
    part_module(&name, lm->model->config.family, l->at, 0);
    str_addf(&name, ".lora_%c.weight", which);
    *t = (struct lm_tensor){
        name.s, rows, cols, lm->n_params, l->target, l->at
    };
    if (!size_mul(rows, cols, &n) || !size_add(n, lm->n_params, &n) ||
        n > SIZE_MAX / sizeof(float))
        return err_set(err, EX_DATAERR,
                       "the adapter has more bytes than 64 bits can count");
    lm->n_params = n;
    return 0;
}

/* Of all that may be adapted, what is. */
static int
list_tensors(struct lm *lm, struct err *err)
{
    struct lm_work *w = lm->work;
    size_t n = w->n_adapted;

    w->n_adapted = 0;
    lm->tensors = xcalloc(2 * n, sizeof(*lm->tensors));
    for (size_t i = 0; i < n; i++) {
        struct lm_adapted *l = &w->adapted[w->n_adapted];

        *l = w->adapted[i];
        if (!(lm->lora.targets & 1u << l->target))
            continue;
        l->tensor = lm->n_tensors;
        l->init = l->linear->lora;
        w->n_adapted++;
        if (add_tensor(lm, l, 'A', lm->lora.rank, l->linear->in, err) ||
            add_tensor(lm, l, 'B', l->linear->out, lm->lora.rank, err))
            return -1;
    }
    return 0;
}

/* ---- an adapter to go on from ---- */

/* A target is adapted in all layers as in the first that has it. */
static int
check_linear(const struct lm *lm, const struct lm_adapted *l, const char *dir,
             double scale, struct err *err)
{
    const struct lora *lora = l->linear->lora;
    struct str name = { 0 };
    int rc = 0;

    str_adds(&name, lm->model->root);
    part_module(&name, lm->model->config.family, l->at, 0);
    if (!lora != !(lm->lora.targets & 1u << l->target))
        rc = err_set(err, EX_DATAERR,
                     "%s: %s is %san adapted layer, unlike the first %s (not "
                     "supported)",
                     dir, names_short(name.s), lora ? "" : "not ",
                     part_word(lm->model->config.family, l->at.part));
    else if (lora &&
             (lora->a.out != lm->lora.rank || lora->scale != (float)scale))
        rc = err_set(err, EX_DATAERR,
                     "%s: %s has another rank or scale than " PEFT_CONFIG
                     " says (not supported)",
                     dir, names_short(name.s));
    str_free(&name);
    return rc;
}

static int
check_init(struct lm *lm, const char *dir, double scale, struct err *err)
{
    struct model *m = lm->model;
    const struct lm_adapted *all = lm->work->adapted;
    size_t n_found = 0;
    struct str words = { 0 };
    unsigned seen = 0;
    int rc = 0;

    if (m->lm_head.lora)
        rc = err_set(err, EX_DATAERR,
                     "%s: an adapter of lm_head is not supported", dir);
    for (size_t i = 0; i < lm->work->n_adapted && rc == 0; i++) {
        unsigned bit = 1u << all[i].target;

        if (!(seen & bit) && all[i].linear->lora)
            lm->lora.targets |= bit;
        seen |= bit;
        n_found += all[i].linear->lora != NULL;
        rc = check_linear(lm, &all[i], dir, scale, err);
    }
    lm_target_modules(&words, &m->config, LM_ALL_TARGETS, "");
    if (rc == 0 && (n_found == 0 || n_found != lora_count(m)))
        rc = err_set(err, EX_DATAERR,
                     "%s: adapts other layers than %s (not supported)", dir,
                     words.s);
    str_free(&words);
    return rc;
}

/* Dropout was the training's that made the adapter: without it this one would
 * be another. */
static int
check_dropout(const struct peft *p, struct err *err)
{
    struct js js = js_get(&p->config, "lora_dropout");
    double dropout = 0;

    if (!js_absent(&js) && js_f64(&js, &dropout, err) < 0)
        return -1;
    return dropout == 0 ? 0 : js_bad(&js, "0: dropout is not supported", err);
}

static int
open_init(struct lm *lm, const char *dir, struct err *err)
{
    struct peft p = { 0 };
    int rc = -1;

    if (peft_open(&p, dir, err) == 0 && check_dropout(&p, err) == 0 &&
        lora_open(lm->model, dir, err) == 0) {
        lm->lora = (struct lm_lora){ .rank = (size_t)p.r,
                                     .alpha = p.alpha,
                                     .rslora = p.rslora };
        rc = check_init(lm, dir,
                        p.rslora ? p.alpha / sqrt((double)p.r)
                                 : p.alpha / (double)p.r,
                        err);
    }
    peft_close(&p);
    return rc;
}

/* ---- open ---- */

static int
check_int8(const struct model *m, struct err *err)
{
    const struct config *c = &m->config;

    if (c->n_sparse == 0)
        return err_set(err, EX_DATAERR,
                       "%s: has no experts, whose weights could be int8",
                       m->dir.path);
    for (int64_t i = 0; i < c->n_layers; i++)
        if (c->sparse[i] && m->layers[i].experts->gate.by_k)
            return err_set(err, EX_DATAERR,
                           "%s: has experts whose weights are [in, out], which "
                           "cannot be int8",
                           m->dir.path);
    if (larger((size_t)c->hidden_size, (size_t)c->expert_size) >
        GEMM_INT8_MAX_K)
        return err_set(err, EX_DATAERR,
                       "%s: its experts are too wide for int8 (expected %d at "
                       "most)",
                       m->dir.path, GEMM_INT8_MAX_K);
    return 0;
}

int
lm_open(struct lm **to, const char *dir, const struct lm_options *options,
        struct par *par, struct err *err)
{
    struct lm *lm = xcalloc(1, sizeof(*lm));

    *to = NULL;
    lm->work = xcalloc(1, sizeof(*lm->work));
    lm->work->options = *options;
    lm->work->par = par;
    lm->lora = options->lora;
    if (model_open(&lm->model, dir, err))
        goto fail;
    if (options->int8 && check_int8(lm->model, err))
        goto fail;
    if (lm->model->positions.out) /* a learned position is there, or not */
        lm->work->options.max_tokens =
            smaller(options->max_tokens, lm->model->positions.out);
    list_linears(lm->work, lm->model);
    if ((options->init && open_init(lm, options->init, err)) ||
        list_tensors(lm, err))
        goto fail;
    lm_sizes(lm);
    *to = lm;
    return 0;
fail:
    lm_close(lm);
    return -1;
}

void
lm_close(struct lm *lm)
{
    if (!lm)
        return;
    lm_free(lm);
    free(lm->work->adapted);
    free(lm->work);
    for (size_t i = 0; i < lm->n_tensors; i++)
        free(lm->tensors[i].name);
    free(lm->tensors);
    model_close(lm->model);
    free(lm);
}

void
lm_start(const struct lm *lm, float *values)
{
    const struct lm_work *w = lm->work;

    for (size_t i = 0; i < w->n_adapted && !sig_stop(); i++) {
        const struct lm_adapted *l = &w->adapted[i];
        const struct lm_tensor *t = &lm->tensors[l->tensor];
        float *a = values + t[0].first, *b = values + t[1].first;
        size_t n_a = t[0].rows * t[0].cols, n_b = t[1].rows * t[1].cols;
        uint64_t stream = l->target >= LM_Q_B
                              ? ((uint64_t)1 << 63) +
                                    ((uint64_t)(l->target - LM_Q_B) << 32) +
                                    l->at.layer
                              : ((uint64_t)l->at.expert << 32) +
                                    l->at.layer * LM_Q_B + l->target;
        double bound = 1 / sqrt((double)t[0].cols);

        if (l->init) {
            weight_rows(a, &l->init->a.w, 0, t[0].rows, t[0].cols);
            weight_rows(b, &l->init->b.w, 0, t[1].rows, t[1].cols);
            continue;
        }
        for (size_t k = 0; k < n_a; k++)
            a[k] =
                (float)((2 * rng_f64(w->options.seed, stream, k) - 1) * bound);
        for (size_t k = 0; k < n_b; k++)
            b[k] = 0;
    }
}
