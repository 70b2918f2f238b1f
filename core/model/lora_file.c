/* SPDX-License-Identifier: ISC */
#include "core/model/lora_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/stwant.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/family.h"
#include "core/model/linear_file.h"
#include "core/model/moe.h"
#include "core/model/parts.h"
#include "core/str.h"
#include "core/tty.h"

/* ---- PEFT's directories ---- */

#define MAX_WRAPPED \
    4 /* parameters of a module: two matrices and their biases */

static const char *const tails[] = { ".lora_A.weight", ".lora_B.weight",
                                     PEFT_BASE_LAYER };

/* Where in a name its tail begins, and which one that is; NULL: it has none, or
 * is no name of PEFT's. */
static const char *
find_tail(const struct st_tensor *t, size_t *which)
{
    const char *name = t->name;
    size_t n = strlen(name), root = strlen(PEFT_ROOT);

    if (n != t->name_n)
        return NULL;
    for (*which = 0; *which < sizeof(tails) / sizeof(*tails); ++*which) {
        size_t k = strlen(tails[*which]);

        if (n > root + k && !strncmp(name, PEFT_ROOT, root) &&
            !strcmp(name + n - k, tails[*which]))
            return name + n - k;
    }
    return NULL;
}

/* Which expert's matrix a pair is of, if it is one's, or all experts'; in any
 * family's words. */
static void
find_expert(struct lora_pair *p, bool stacks)
{
    struct str all = { 0 };

    str_adds(&all, "experts");
    for (int i = 1; stacks && i <= MAX_WRAPPED; i++) {
        size_t n = all.n;

        str_adds(&all, tails[0]);
        if (names_expert(&p->of, p->tensor[0]->t, all.s) && p->of.layer >= 0) {
            p->of.expert = 0;
            p->stack = i;
        }
        all.s[all.n = n] = 0;
        str_adds(&all, ".base_layer");
    }
    str_free(&all);
    if (p->stack)
        return;
    p->of.expert = -1;
    for (const struct model_family *f = NULL; p->of.expert < 0;) {
        for (int i = 0; i < LORA_N_PROJECTIONS && p->of.expert < 0; i++) {
            struct str tail = { 0 };

            str_addf(&tail, "%s%s", part_word(f, PART_EXPERT_GATE + i),
                     tails[0]);
            if (!names_expert(&p->of, p->tensor[0]->t, tail.s))
                p->of.expert = -1;
            p->projection = i;
            str_free(&tail);
        }
        do
            f = family_next(f);
        while (f && !f->experts);
        if (!f)
            return;
    }
}

/* Adds the pair of an A; a B must have one. */
static int
add_tensor(struct lora_file *f, const struct stdir_tensor *t, struct err *err)
{
    const char *name = t->t->name;
    const struct stdir_tensor *other;
    struct str s = { 0 };
    size_t which, n;
    const char *tail = find_tail(t->t, &which);

    if (!tail)
        return err_set(err, EX_DATAERR,
                       "%s: %s is not supported (" PEFT_ROOT "MODULE%s, %s)",
                       t->st->path, name, tails[0], tails[1]);
    if (which > 1)
        return 0;
    n = (size_t)(tail - name);
    str_addf(&s, "%.*s%s", (int)n, name, tails[!which]);
    other = stdir_find(&f->dir, s.s);
    if (!other)
        st_missing(f->dir.path, s.s, err);
    str_free(&s);
    if (other && which == 0) {
        struct lora_pair *p = &f->pairs[f->n_pairs++];

        *p = (struct lora_pair){ .tensor = { t, other },
                                 .n_tensors = 2,
                                 .of.expert = -1 };
        p->module = xstrndup(name + strlen(PEFT_ROOT), n - strlen(PEFT_ROOT));
        find_expert(p, f->config.parameters.n);
        return p->stack ? 0 : peft_pair(&f->config, p->module, &p->config, err);
    }
    return other ? 0 : -1;
}

static int
open_peft(struct lora_file *f, const char *dir, struct err *err)
{
    struct str file = { 0 };
    int rc = peft_open(&f->config, dir, err);

    str_addf(&file, "%s/" PEFT_MODEL, dir);
    if (rc == 0)
        rc = file_missing(file.s) ? stdir_wrong(dir, "has no " PEFT_MODEL, err)
                                  : stdir_open(&f->dir, file.s, err);
    str_free(&file);
    if (rc == 0)
        rc = stdir_map(&f->dir, err);
    if (rc == 0 && f->dir.n_tensors == 0)
        rc = err_set(err, EX_DATAERR, "%s: has no tensors", f->dir.path);
    f->pairs = xcalloc(f->dir.n_tensors, sizeof(*f->pairs));
    for (size_t i = 0; i < f->dir.n_tensors && rc == 0; i++)
        rc = add_tensor(f, &f->dir.tensors[i], err);
    return rc;
}

/* ---- stacked files ---- */

/* The layer: what is asked for (-1: nothing is), or what the file says. */
static int
open_stack(struct lora_file *f, const char *path, int64_t asked,
           struct err *err)
{
    const struct st *st;
    double v;
    int rc;

    f->is_stack = true;
    if (stdir_open(&f->dir, path, err) || stdir_map(&f->dir, err))
        return -1;
    st = f->dir.files;
    if (st->n_tensors &&
        !strncmp(st->tensors->name, PEFT_ROOT, strlen(PEFT_ROOT)))
        return err_set(err, EX_DATAERR,
                       "%s: is PEFT's, and " PEFT_CONFIG
                       ", which has its rank and alpha, is not next to it",
                       st->path);
    rc = st_meta_f64(st, "layer_idx", &v, err);
    f->layer = rc > 0 && v >= 0 && v < INT32_MAX ? (int64_t)v : -1;
    if (rc >= 0 && asked >= 0 && f->layer >= 0 && f->layer != asked)
        return err_set(
            err, EX_DATAERR,
            "%s: is for layer %lld by its metadata, but @%lld asks for another",
            path, (long long)f->layer, (long long)asked);
    f->layer = asked >= 0 ? asked : f->layer;
    return rc < 0 ? -1 : 0;
}

/* Sizes that the metadata name are those of the tensors; alpha must be there.
 */
static int
read_meta(struct lora_stack *s, const struct st *st, struct err *err)
{
    const struct {
        const char *key;
        size_t size;
    } sizes[] = { { "lora_rank", s->rank },
                  { "expert_num", s->n_experts },
                  { "hidden_size", s->hidden },
                  { "intermediate_size", s->intermediate } };
    int rc;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        double v;

        if ((rc = st_meta_f64(st, sizes[i].key, &v, err)) < 0)
            return -1;
        if (rc > 0 && v != (double)sizes[i].size)
            return err_set(err, EX_DATAERR,
                           "%s: __metadata__ %s is \"%s\", but the tensors "
                           "have %zu",
                           st->path, sizes[i].key, st_meta(st, sizes[i].key),
                           sizes[i].size);
    }
    if ((rc = st_meta_f64(st, "lora_alpha", &s->alpha, err)) < 0)
        return -1;
    if (rc == 0)
        return err_set(err, EX_DATAERR, "%s: __metadata__ has no lora_alpha",
                       st->path);
    if (!isfinite((float)s->alpha))
        return err_set(err, EX_DATAERR,
                       "%s: __metadata__ lora_alpha is \"%s\", more than F32 "
                       "holds",
                       st->path, st_meta(st, "lora_alpha"));
    return 0;
}

/* An expert's matrix [out, in] of a stack. */
static struct linear
matrix_at(const struct stdir_tensor *t, size_t expert)
{
    size_t out = t->t->shape[1], in = t->t->shape[2];

    return (struct linear){
        .w = { st_data(t->st, t->t), t->t->dtype, in, .row = expert * out },
        .out = out,
        .in = in,
    };
}

static int
read_stack(struct lora_stack *s, const struct lora_file *f,
           const struct stdir_tensor *tensors[MOE_N_LORA], struct err *err)
{
    const char *path = f->dir.path;

    for (int m = 0; m < MOE_N_LORA; m++) {
        struct st_want want = { .n_dims = 3,
                                .open = m == MOE_GATE_A
                                            ? "experts, rank, hidden"
                                            : "experts, intermediate, rank" };
        const struct moe_config sizes = { .n_experts = s->n_experts,
                                          .hidden = s->hidden,
                                          .intermediate = s->intermediate,
                                          .lora_rank = s->rank };
        const struct stdir_tensor *t = stdir_find(&f->dir, moe_lora_names[m]);

        /* gate's two have all the sizes, which the others must share */
        moe_lora_shape(&sizes, (enum moe_lora_matrix)m, want.shape);
        for (int d = 0; m <= MOE_GATE_B && d < 3; d++)
            if (want.shape[d] == 0 || (m == MOE_GATE_A && d == 1))
                want.shape[d] = ST_OPEN;
        if (!t)
            return st_missing(path, moe_lora_names[m], err);
        if (st_want(path, t->t, &want, err) < 0)
            return -1;
        if (t->t->n_elements == 0)
            return err_set(err, EX_DATAERR, "%s: %s is empty", path,
                           t->t->name);
        if (t->t->shape[0] > MOE_MAX_EXPERTS)
            return err_set(err, EX_DATAERR,
                           "%s: has %zu experts (expected at most %d)", path,
                           (size_t)t->t->shape[0], MOE_MAX_EXPERTS);
        if (m == MOE_GATE_A) {
            s->n_experts = t->t->shape[0];
            s->rank = t->t->shape[1];
            s->hidden = t->t->shape[2];
        } else if (m == MOE_GATE_B) {
            s->intermediate = t->t->shape[1];
        }
        tensors[m] = t;
    }
    return read_meta(s, f->dir.files, err);
}

int
lora_file_stack(struct lora_file *f, struct lora_stack *s, int64_t layer,
                struct err *err)
{
    const struct stdir_tensor *t[MOE_N_LORA];

    if (read_stack(s, f, t, err))
        return -1;
    if (f->dir.n_tensors != MOE_N_LORA)
        return err_set(err, EX_DATAERR,
                       "%s: has %zu tensor%s (expected gate_lora_a to "
                       "down_lora_b, 6)",
                       f->dir.path, f->dir.n_tensors, plural(f->dir.n_tensors));
    f->pairs = xcalloc(s->n_experts * LORA_N_PROJECTIONS, sizeof(*f->pairs));
    for (size_t e = 0; e < s->n_experts; e++)
        for (int i = 0; i < LORA_N_PROJECTIONS; i++) {
            struct part_at at = { PART_EXPERT_GATE + i,
                                  layer < 0 ? 0 : (size_t)layer, e };
            struct str name = { 0 };

            part_name(&name, s->family, at);
            f->pairs[f->n_pairs++] = (struct lora_pair){
                .module = name.s,
                .of = { 0, layer, (int64_t)e },
                .projection = i,
                .tensor = { t[2 * i], t[2 * i + 1] },
                .a = matrix_at(t[2 * i], e),
                .b = matrix_at(t[2 * i + 1], e),
                .config = { (int64_t)s->rank, s->alpha / (double)s->rank,
                            s->alpha },
            };
        }
    return 0;
}

/* ---- both ---- */

int
lora_file_open(struct lora_file *f, const char *path, int64_t layer,
               struct err *err)
{
    int is_dir = file_is_dir(path, err);

    *f = (struct lora_file){ .layer = -1 };
    if (is_dir > 0 && layer >= 0)
        return err_set(err, TU_USAGE,
                       "%s@%lld: the tensors of a directory name their layers, "
                       "@LAYER is for files",
                       path, (long long)layer);
    return is_dir < 0 ? -1
           : is_dir   ? open_peft(f, path, err)
                      : open_stack(f, path, layer, err);
}

void
lora_file_close(struct lora_file *f)
{
    for (size_t i = 0; i < f->n_pairs; i++)
        free(f->pairs[i].module);
    for (size_t i = 0; i < f->n_owned; i++)
        free(f->owned[i]);
    free(f->owned);
    free(f->pairs);
    peft_close(&f->config);
    stdir_close(&f->dir);
    *f = (struct lora_file){ 0 };
}

int
lora_pair_fit(const struct lora_file *f, struct lora_pair *pair, size_t out,
              size_t in, struct err *err)
{
    size_t r = (size_t)pair->config.r;

    pair->used = true;
    if (f->is_stack || pair->a.w.data) /* of stacks, which are checked */
        return 0;
    return peft_target(&f->config, pair->module, err) ||
                   linear_file_bind(&pair->a, pair->tensor[0], r, in, NULL,
                                    err) ||
                   linear_file_bind(&pair->b, pair->tensor[1], out, r, NULL,
                                    err)
               ? -1
               : 0;
}
