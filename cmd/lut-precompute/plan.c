#include "cmd/lut-precompute/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/lut-precompute/sae.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/names.h"
#include "core/str.h"

/* In the order of a layer's computation; a fused one before its parts. */
static const struct op {
    const char *name;
    const char *fused; /* the one it is a part of */
    const char *like;  /* of a fused one: the part whose SAE will do */
} ops[] = {
    { "self_attn.qkv_proj", NULL, "self_attn.q_proj" },
    { "self_attn.q_proj", "qkv_proj", NULL },
    { "self_attn.k_proj", "qkv_proj", NULL },
    { "self_attn.v_proj", "qkv_proj", NULL },
    { "self_attn.o_proj", NULL, NULL },
    { "mlp.gate_up_proj", NULL, "mlp.up_proj" },
    { "mlp.gate_proj", "gate_up_proj", NULL },
    { "mlp.up_proj", "gate_up_proj", NULL },
    { "mlp.down_proj", NULL, NULL },
};
#define N_OPS (sizeof(ops) / sizeof(ops[0]))

static const char *
last_word(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? dot + 1 : name;
}

static bool
ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), n_end = strlen(end);

    return n >= n_end && !strcmp(s + n - n_end, end);
}

struct planner {
    const struct precompute_cmd *cmd;
    const struct target_model *model;
    bool one; /* SAE for all layers */
    struct globs globs;
    uint64_t count; /* layers that --shard deals out */
    struct table_plan *plan;
};

/* Does --layers mean this layer?  'named': by a pattern that ends in its word,
 * not by a wider one alone. */
static bool
is_meant(const struct planner *p, const char *layer, const char *word,
         bool *named)
{
    bool meant = !p->cmd->layers;

    *named = false;
    for (size_t i = 0; i < p->globs.n; i++)
        if (names_match(p->globs.glob[i], layer)) {
            meant = true;
            *named = *named || ends_with(p->globs.glob[i], word);
        }
    return meant;
}

/* The SAE of a layer, or NULL: it is not made.  A fused layer is made where
 * --fuse, --layers or the folder of SAEs names it. */
static char *
find_sae(const struct planner *p, const struct op *op, const char *layer,
         bool named, struct err *err)
{
    const char *word = last_word(op->name);
    bool fused = (p->cmd->fuse_qkv && !strcmp(word, "qkv_proj")) ||
                 (p->cmd->fuse_gate_up && !strcmp(word, "gate_up_proj")) ||
                 (op->like && named);
    struct str like = { 0 };
    char *path;

    if (p->one)
        return op->like && !fused ? NULL : xstrdup(p->cmd->sae);
    path = sae_path(p->cmd->sae, layer, err);
    if (path || !fused || err->status)
        return path;
    str_add(&like, layer, strlen(layer) - strlen(op->name));
    str_adds(&like, op->like);
    path = sae_path(p->cmd->sae, like.s, err);
    str_free(&like);
    return path;
}

/* Is a fused layer made in place of this part of it?  Not where the model lacks
 * another part, as an MLP without a gate does. */
static bool
is_in_fused(const struct planner *p, const char *layer, const struct op *part,
            struct err *err)
{
    struct str name = { 0 };
    struct target_layer t;
    char *sae = NULL;
    bool named, made = false;

    for (const struct op *op = ops; part->fused && op < ops + N_OPS; op++) {
        if (strcmp(last_word(op->name), part->fused) != 0)
            continue;
        str_add(&name, layer, strlen(layer) - strlen(part->name));
        str_adds(&name, op->name);
        if (is_meant(p, name.s, part->fused, &named))
            sae = find_sae(p, op, name.s, named, err);
        made = sae && target_open(&t, p->model, name.s, err) > 0;
        if (made)
            target_close(&t);
    }
    str_free(&name);
    free(sae);
    return made;
}

static int
add(struct planner *p, size_t layer, const struct op *op, struct err *err)
{
    struct table_plan *plan = p->plan;
    struct target_layer t;
    struct str name = { 0 };
    char *sae = NULL;
    bool named;
    int rc = 0;

    str_addf(&name, "model.layers.%zu.%s", layer, op->name);
    if (is_meant(p, name.s, last_word(op->name), &named) &&
        (named || !is_in_fused(p, name.s, op, err)))
        sae = find_sae(p, op, name.s, named, err);
    if (!sae && err->status)
        rc = -1;
    else if (sae)
        rc = target_open(&t, p->model, name.s, err);
    if (rc > 0) {
        target_close(&t);
        globs_use(&p->globs, name.s);
        if (p->cmd->n_parts == 0 ||
            p->count++ % p->cmd->n_parts == p->cmd->part) {
            plan->work = xrealloc(plan->work, plan->n + 1, sizeof(*plan->work));
            plan->work[plan->n++] =
                (struct planned_table){ xstrdup(name.s), xstrdup(sae) };
        }
        rc = 0;
    }
    free(sae);
    str_free(&name);
    return rc;
}

static int
check(const struct planner *p, struct err *err)
{
    const char *what = p->one ? "the model" : p->cmd->sae;
    const char *unused = globs_unused(&p->globs);

    if (p->cmd->layers && p->globs.n == 0)
        return err_set(err, TU_USAGE, "--layers: \"%s\" has no pattern",
                       p->cmd->layers);
    if (unused)
        return err_set(err, EX_DATAERR,
                       "--layers: \"%s\" matches no layer of %s", unused, what);
    if (p->plan->n == 0 && p->count == 0)
        return err_set(err, EX_NOINPUT,
                       "%s: has no SAE for any linear layer of %s", p->cmd->sae,
                       p->cmd->model);
    return 0;
}

int
plan_make(struct table_plan *plan, const struct precompute_cmd *cmd,
          const struct target_model *m, struct err *err)
{
    struct planner p = { .cmd = cmd, .model = m, .plan = plan };
    int rc = 0, one;

    *plan = (struct table_plan){ 0 };
    if (access(cmd->sae, F_OK) < 0)
        return err_sys(err, file_status(errno), "%s", cmd->sae);
    if ((one = sae_is_one(cmd->sae, err)) < 0)
        return -1;
    p.one = one;
    if (p.one && !cmd->layers)
        return err_set(err, TU_USAGE,
                       "%s: is one SAE: --layers has to name its layers",
                       cmd->sae);
    globs_open(&p.globs, cmd->layers);
    for (size_t i = 0; i < m->n_layers && rc == 0; i++)
        for (size_t j = 0; j < N_OPS && rc == 0; j++)
            rc = add(&p, i, &ops[j], err);
    if (rc == 0)
        rc = check(&p, err);
    globs_close(&p.globs);
    return rc;
}

void
plan_free(struct table_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        free(plan->work[i].layer);
        free(plan->work[i].sae);
    }
    free(plan->work);
    *plan = (struct table_plan){ 0 };
}
