/* SPDX-License-Identifier: ISC */
#include "cmd/lut-precompute/target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/compat.h"
#include "core/mem.h"
#include "core/model/autoencoder.h"
#include "core/model/config_file.h"
#include "core/model/linear_file.h"
#include "core/model/names.h"
#include "core/model/places.h"
#include "core/str.h"

char *
base_name(const char *path, struct err *err)
{
    char *real = realpath(path, NULL);
    char *name;

    if (!real) {
        err_sys(err, file_status(errno), "%s", path);
        return NULL;
    }
    name = xstrdup(strrchr(real, '/') + 1);
    free(real);
    return name;
}

void
target_model_close(struct target_model *m)
{
    stdir_close(&m->dir);
    quantization_free(&m->packed);
    json_decref(m->config);
    free(m->name);
    *m = (struct target_model){ 0 };
}

/*
 * The four values of config.json are quoted in metadata.json as they are, those
 * of text_config too, and layers of any model_type can have tables: so it is
 * not config_load() that reads them, which knows a few families and refuses
 * what it cannot run.
 */
int
target_model_open(struct target_model *m, const char *path, struct err *err)
{
    static const char *const keys[][2] = {
        { "model_type", "model_type" },
        { "num_layers", "num_hidden_layers" },
        { "num_attention_heads", "num_attention_heads" },
        { "hidden_size", "hidden_size" },
    };
    struct config_file f = { 0 };
    struct js part;
    int rc = -1;

    *m = (struct target_model){ .name = base_name(path, err) };
    if (!m->name || config_file_open(&f, path, err) < 0)
        goto out;
    m->family = config_file_family(&f);
    part = js_get(&f.root, m->family && m->family->vision ? "vision_config"
                                                          : "text_config");
    rc = js_is(&f.root, JSON_OBJECT) ? 0 : js_bad(&f.root, "an object", err);
    m->config = json_object();
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
        const char *key =
            m->family ? family_key(m->family, keys[i][1]) : keys[i][1];
        struct js js = js_get(&f.root, key);

        if (js_absent(&js)) /* a model of images and text */
            js = js_get(&part, key);
        if (!js_absent(&js))
            json_object_set_new(m->config, keys[i][0], json_deep_copy(js.v));
    }
    if (rc == 0 &&
        (quantization_parse(&m->packed, &f.root, err) < 0 ||
         stdir_open(&m->dir, path, err) < 0 || stdir_map(&m->dir, err) < 0))
        rc = -1;
out:
    config_file_close(&f);
    if (rc < 0)
        target_model_close(m);
    return rc;
}

int
target_open(struct target_layer *t, const struct target_model *m,
            const char *name, struct err *err)
{
    char *names[LUT_MAX_PARTS];
    int found = 1;

    *t = (struct target_layer){ .name = xstrdup(name) };
    t->op = strrchr(t->name, '.') ? strrchr(t->name, '.') + 1 : t->name;
    t->n_parts = linear_file_parts(&m->dir, &m->packed, name, names);
    for (size_t i = 0; i < t->n_parts; i++)
        t->parts[i].name = names[i];
    for (size_t i = 0; i < t->n_parts && found > 0; i++) {
        struct target_part *p = &t->parts[i];
        const struct stdir_tensor *bias;
        const struct linear_dir in = { &m->dir, m->family, &m->packed,
                                       &t->memory };
        struct linear l;

        found = linear_file_find(&l, &bias, &in, p->name, err);
        if (found <= 0)
            break;
        if (i > 0 && l.in != t->in) {
            found =
                err_set(err, EX_DATAERR,
                        "%s: %s.weight has %zu inputs, but %s.weight %zu",
                        m->dir.path, p->name, l.in, t->parts[0].name, t->in);
            break;
        }
        p->w = linear_job(&l, NULL, false).w;
        if (bias)
            p->bias = (struct matrix){ st_data(bias->st, bias->t),
                                       bias->t->dtype, 1, l.out, false };
        t->in = l.in;
        t->out += l.out;
        t->has_bias |= bias != NULL;
    }
    form_memory_rest(&t->memory);
    if (found <= 0)
        target_close(t);
    return found;
}

void
target_close(struct target_layer *t)
{
    for (size_t i = 0; i < t->n_parts; i++)
        free(t->parts[i].name);
    free(t->name);
    form_memory_free(&t->memory);
    *t = (struct target_layer){ 0 };
}

/* ---- the plan ---- */

static int
by_layer(const void *a, const void *b)
{
    return natural_order(((const struct planned_table *)a)->layer,
                         ((const struct planned_table *)b)->layer);
}

static void
plan_add(struct table_plan *plan, char *layer, bool fused)
{
    plan->work = xrealloc(plan->work, plan->n + 1, sizeof(*plan->work));
    plan->work[plan->n++] =
        (struct planned_table){ .layer = layer, .fused = fused };
}

/* Is this the name of a layer's weights? */
static bool
has_weights(const struct target_model *m, const char *name)
{
    return names_tensor(&m->dir, name, "weight") ||
           form_is(&m->packed, &m->dir, name);
}

/* Of a tensor of a layer's weights, how long the layer's name is; else 0.  What
 * is wrong with packed ones target_open() says. */
static size_t
module_of(const struct target_model *m, const struct stdir_tensor *t)
{
    static const char end[] = ".weight";
    const char *found = t->t->n_dims == 2 ? str_ends(t->t->name, end) : NULL;
    enum form_role role;
    struct form_tensors form;
    struct err err;
    size_t n;
    int rc = form_of(&form, &role, &n, &m->packed, &m->dir, t, &err);

    if (rc && role == FORM_CODES && (rc < 0 || form.n == 1))
        return n;
    return found ? (size_t)(found - t->t->name) : 0;
}

/* Every layer with a matrix, and the fused layers whose parts are all there.  A
 * name becomes a file's: others than words with dots are none. */
static void
plan_open(struct table_plan *plan, const struct target_model *m)
{
    const struct stdir *dir = &m->dir;
    size_t n;

    for (size_t i = 0; i < dir->n_tensors; i++) {
        const struct st_tensor *t = dir->tensors[i].t;
        size_t n_name = module_of(m, &dir->tensors[i]);
        char *stem;

        if (n_name == 0 ||
            strspn(t->name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwx"
                            "yz0123456789_-.") != t->name_n)
            continue;
        stem = xstrndup(t->name, n_name);
        plan_add(plan, lut_name(stem), false);
        free(stem);
    }
    n = plan->n;
    for (size_t i = 0; i < n; i++) {
        char *parts[LUT_MAX_PARTS], *fused = lut_fused(plan->work[i].layer);
        size_t n_parts = fused ? lut_parts(fused, parts) : 0;
        bool all = n_parts > 0 && !strcmp(parts[0], plan->work[i].layer);

        for (size_t k = 0; k < n_parts; k++) {
            all = all && has_weights(m, parts[k]);
            free(parts[k]);
        }
        if (all && !has_weights(m, fused))
            plan_add(plan, fused, true);
        else
            free(fused);
    }
    if (plan->n)
        qsort(plan->work, plan->n, sizeof(*plan->work), by_layer);
}

/* The SAE of a layer, or NULL; by its name with "model.", as in the model's
 * file, or without the root. */
static char *
layer_sae(const char *dir, const char *layer, struct err *err)
{
    const char *own = layer + strlen("model."), *name = names_short(layer);
    char *sae = sae_path(dir, layer, own, err);

    return sae || err->status ? sae : sae_path(dir, name, name, err);
}

/* Sets the SAE of a layer that is in the plan; those of fused layers are set
 * before their parts'. */
static int
consider(const struct table_plan *plan, struct planned_table *x,
         const struct precompute_cmd *cmd, const struct globs *globs, bool one,
         struct err *err)
{
    const char *word = strrchr(x->layer, '.') + 1;
    bool selected = !cmd->layers, named = false, requested;
    char *fused, *part, *own;

    /* named: by a pattern that ends in the layer's last word */
    for (size_t i = 0; i < globs->n; i++)
        if (names_match(globs->glob[i], x->layer)) {
            selected = true;
            named |= str_ends(globs->glob[i], word) != NULL;
        }
    if (!selected)
        return 0;
    fused = named ? NULL : lut_fused(x->layer);
    if (fused) {
        const struct planned_table key = { .layer = fused };
        const struct planned_table *whole =
            bsearch(&key, plan->work, plan->n, sizeof(key), by_layer);

        free(fused);
        if (whole && whole->sae) {
            own = one ? NULL : layer_sae(cmd->sae, x->layer, err);
            if (own && strcmp(own, whole->sae) != 0)
                err_warn("%s: not used: %s is made instead of its parts, from "
                         "%s",
                         own, whole->layer, whole->sae);
            free(own);
            return err->status ? -1 : 0;
        }
    }
    requested = !x->fused || named ||
                (cmd->fuse_qkv && !strcmp(word, "qkv_proj")) ||
                (cmd->fuse_gate_up && !strcmp(word, "gate_up_proj"));
    if (one)
        x->sae = requested ? xstrdup(cmd->sae) : NULL;
    else
        x->sae = layer_sae(cmd->sae, x->layer, err);
    part = lut_fused_sae(x->layer);
    if (!one && part && requested && !x->sae && !err->status)
        x->sae = layer_sae(cmd->sae, part, err);
    free(part);
    return x->sae || !err->status ? 0 : -1;
}

/* Is this the name of a layer of the model, or of some together? */
static bool
is_layer(const struct target_model *m, const char *name)
{
    char *parts[LUT_MAX_PARTS];
    size_t n = lut_parts(name, parts);

    for (size_t i = 0; i < n; i++)
        free(parts[i]);
    return n > 1 || has_weights(m, name);
}

/* --layers of one SAE that says where in a model its rows are from, in any
 * name of the place: the layer that reads them, or the fused one that --fuse
 * asks for instead. */
static char *
hook_layer(const struct precompute_cmd *cmd, const struct target_model *m,
           struct err *err)
{
    char *layer = NULL, *fused, *word;
    struct str hook = { 0 };
    struct place place;
    struct sae sae;

    if (sae_open_plain(&sae, cmd->sae, m->family, err) < 0)
        return NULL;
    if (sae.hook && is_layer(m, sae.hook))
        layer = xstrdup(names_short(sae.hook));
    else if (sae.hook && place_find(&place, sae.hook)) {
        place_hook(&hook, &place, m->family, false);
        if (m->family && m->family->has_gdn && !is_layer(m, hook.s)) {
            str_clear(&hook);
            place_hook(&hook, &place, m->family, true);
        }
        layer = hook.s;
    } else if (sae.hook && !strpbrk(sae.hook, "*?[\\,"))
        layer = xstrdup(names_short(sae.hook));
    else
        err_set(err, TU_USAGE,
                "%s: is one SAE: --layers has to name its layers", cmd->sae);
    fused = layer ? lut_fused(layer) : NULL;
    word = fused ? strrchr(fused, '.') + 1 : NULL;
    if (word && ((cmd->fuse_qkv && !strcmp(word, "qkv_proj")) ||
                 (cmd->fuse_gate_up && !strcmp(word, "gate_up_proj")))) {
        free(layer);
        layer = fused;
    } else {
        free(fused);
    }
    sae_close(&sae);
    return layer;
}

int
plan_make(struct table_plan *plan, const struct precompute_cmd *given,
          const struct target_model *m, struct err *err)
{
    struct precompute_cmd own = *given, *cmd = &own;
    char *hook = NULL;
    struct globs globs;
    const char *unused;
    size_t n = 0, kept = 0; /* layers with an SAE; of this shard */
    int rc = 0, one;

    *plan = (struct table_plan){ 0 };
    err->status = 0;
    if (access(cmd->sae, F_OK) < 0)
        return err_sys(err, file_status(errno), "%s", cmd->sae);
    one = sae_is_one(cmd->sae, err);
    if (one < 0)
        return -1;
    if (one && !cmd->layers) {
        cmd->layers = hook = hook_layer(cmd, m, err);
        if (!hook)
            return -1;
    }
    globs_open(&globs, cmd->layers);
    plan_open(plan, m);
    for (int fused = 1; fused >= 0; fused--)
        for (size_t i = 0; i < plan->n && rc == 0; i++)
            if (plan->work[i].fused == fused)
                rc = consider(plan, &plan->work[i], cmd, &globs, one, err);
    for (size_t i = 0; i < plan->n && rc == 0; i++) {
        const struct planned_table x = plan->work[i];

        globs_near(&globs, x.layer);
        if (x.sae)
            globs_use(&globs, x.layer);
        if (x.sae && (!cmd->n_parts || n++ % cmd->n_parts == cmd->part)) {
            plan->work[kept++] = x;
        } else {
            free(x.layer);
            free(x.sae);
        }
    }
    if (rc == 0)
        plan->n = kept;
    unused = globs_unused(&globs);
    if (rc == 0 && cmd->layers && globs.n == 0)
        rc = err_set(err, TU_USAGE, "--layers: \"%s\" has no pattern",
                     cmd->layers);
    else if (rc == 0 && unused && hook)
        rc = err_set(err, EX_DATAERR,
                     "%s: is of %s, which is not a linear layer of %s: "
                     "--layers has to name its layers",
                     cmd->sae, hook, cmd->model);
    else if (rc == 0 && unused)
        rc = err_set(err, EX_DATAERR,
                     "--layers: \"%s\" matches no layer of %s%s", unused,
                     one ? "the model" : cmd->sae, globs_hint(&globs));
    else if (rc == 0 && kept == 0 && n == 0)
        rc = err_set(err, EX_NOINPUT, "%s: has no SAE for any layer of %s",
                     cmd->sae, cmd->model);
    free(hook);
    globs_close(&globs);
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
