#include "core/model/train/lm.h"

#include <math.h>
#include <stdlib.h>

#include "core/format/peft.h"
#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/lora.h"
#include "core/model/train/lm_impl.h"
#include "core/rng.h"
#include "core/str.h"

const char *const lm_target_names[LM_N_TARGETS] = { "q",    "k",  "v",   "o",
                                                    "gate", "up", "down" };
const char *const lm_target_modules[LM_N_TARGETS] = {
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"
};

/* ---- the list of tensors ---- */

static struct linear *
linear_of(struct layer *l, size_t target)
{
    struct linear *const of[LM_N_TARGETS] = {
        &l->q, &l->k, &l->v, &l->o, &l->mlp.gate, &l->mlp.up, &l->mlp.down
    };

    return of[target];
}

static int
add_tensor(struct lm *lm, size_t layer, size_t target, char which, size_t rows,
           size_t cols, struct err *err)
{
    struct lm_tensor *t = &lm->tensors[lm->n_tensors++];
    struct str name = { 0 };
    size_t n;

    str_addf(&name, PEFT_ROOT "model.layers.%zu.%s.%s.lora_%c.weight", layer,
             target < LM_GATE ? "self_attn" : "mlp", lm_target_modules[target],
             which);
    *t = (struct lm_tensor){ name.s, rows, cols, lm->n_params };
    if (!size_mul(rows, cols, &n) || !size_add(n, lm->n_params, &n) ||
        n > SIZE_MAX / sizeof(float))
        return err_set(err, EX_DATAERR,
                       "the adapter has more bytes than 64 bits can count");
    lm->n_params = n;
    return 0;
}

static int
list_tensors(struct lm *lm, struct err *err)
{
    size_t n_layers = (size_t)lm->model->config.n_layers;
    size_t n = n_layers * LM_N_TARGETS;
    struct lm_work *w = lm->work;

    w->adapted = xcalloc(n, sizeof(*w->adapted));
    lm->tensors = xcalloc(2 * n, sizeof(*lm->tensors));
    for (size_t i = 0; i < n_layers; i++)
        for (size_t t = 0; t < LM_N_TARGETS; t++) {
            struct linear *l = linear_of(&lm->model->layers[i], t);

            if (!(lm->lora.targets & 1u << t))
                continue;
            w->adapted[w->n_adapted++] =
                (struct lm_adapted){ l, i, t, lm->n_tensors, l->lora };
            if (add_tensor(lm, i, t, 'A', lm->lora.rank, l->in, err) ||
                add_tensor(lm, i, t, 'B', l->out, lm->lora.rank, err))
                return -1;
        }
    return 0;
}

/* ---- an adapter to go on from ---- */

/* The layers must be adapted as the first one is. */
static int
check_init(struct lm *lm, const char *dir, double scale, struct err *err)
{
    struct model *m = lm->model;
    size_t n_layers = (size_t)m->config.n_layers, n_found = 0;

    if (m->lm_head.lora)
        return err_set(err, EX_DATAERR,
                       "%s: an adapter of lm_head is not supported", dir);
    for (size_t t = 0; t < LM_N_TARGETS; t++)
        if (linear_of(&m->layers[0], t)->lora)
            lm->lora.targets |= 1u << t;
    for (size_t i = 0; i < n_layers; i++)
        for (size_t t = 0; t < LM_N_TARGETS; t++) {
            const struct lora *l = linear_of(&m->layers[i], t)->lora;

            if (!l != !(lm->lora.targets & 1u << t))
                return err_set(err, EX_DATAERR,
                               "%s: %s of layer %zu is %san adapted layer, "
                               "unlike that of layer 0 (not supported)",
                               dir, lm_target_modules[t], i, l ? "" : "not ");
            if (!l)
                continue;
            n_found++;
            if (l->a.out != lm->lora.rank || l->scale != (float)scale)
                return err_set(err, EX_DATAERR,
                               "%s: %s of layer %zu has another rank or scale "
                               "than " PEFT_CONFIG " says (not supported)",
                               dir, lm_target_modules[t], i);
        }
    if (n_found == 0 || n_found != lora_count(m))
        return err_set(err, EX_DATAERR,
                       "%s: adapts other layers than q_proj, k_proj, v_proj, "
                       "o_proj, gate_proj, up_proj, down_proj (not supported)",
                       dir);
    return 0;
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
    for (int64_t i = 0; i < lm->model->config.n_layers; i++)
        if (lm->model->config.sparse[i]) {
            err_set(err, EX_DATAERR,
                    "%s: layer %lld has experts, which are not supported yet",
                    dir, (long long)i);
            goto fail;
        }
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

    for (size_t i = 0; i < w->n_adapted; i++) {
        const struct lm_adapted *l = &w->adapted[i];
        const struct lm_tensor *t = &lm->tensors[l->tensor];
        float *a = values + t[0].first, *b = values + t[1].first;
        size_t n_a = t[0].rows * t[0].cols, n_b = t[1].rows * t[1].cols;
        uint64_t stream = l->layer * LM_N_TARGETS + l->target;
        double bound = 1 / sqrt((double)t[0].cols);

        if (l->init) {
            cvt_to_f32(a, l->init->a.w, l->init->a.dtype, n_a);
            cvt_to_f32(b, l->init->b.w, l->init->b.dtype, n_b);
            continue;
        }
        for (size_t k = 0; k < n_a; k++)
            a[k] =
                (float)((2 * rng_f64(w->options.seed, stream, k) - 1) * bound);
        for (size_t k = 0; k < n_b; k++)
            b[k] = 0;
    }
}
