/* SPDX-License-Identifier: ISC */
#include "cmd/sae-train/plan.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/st.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/autoencoder.h"
#include "core/model/places.h"
#include "core/tty.h"

#define MAX_SAES ((size_t)4096)

/* ---- options that SAEs of a pass, or a resumed run, have ---- */

enum {
    FREE = 1,  /* a resumed run may change it */
    COMMON = 2 /* of all SAEs of a pass */
};

static const struct field {
    const char *key; /* of the state; without dashes a key of --sae */
    int flags;
} fields[] = {
    { "--k", 0 },
    { "--latents", 0 },
    { "--expansion", 0 },
    { "--activation", 0 },
    { "--compute", 0 },
    { "--aux-coef", 0 },
    { "--aux-k", 0 },
    { "--dead-after", 0 },
    { "--lr", 0 },
    { "--warmup", 0 },
    { "--decay", 0 },
    { "--clip", 0 },
    { "--no-normalize", 0 },
    { "--seed", 0 },
    { "--init", FREE },
    { "--hook", FREE },
    { "--batch", COMMON },
    { "--epochs", COMMON },
    { "--format", FREE | COMMON },
    { "--skip-bad", FREE | COMMON },
    { "--log-every", FREE | COMMON },
    { "--skip-ids", COMMON },
    { "--skip-positions", COMMON },
    { "--max-norm", COMMON },
};
#define N_FIELDS (sizeof(fields) / sizeof(*fields))
enum { F_LATENTS = 1, F_EXPANSION = 2, F_HOOK = 15 };
#define BOTH_SIZES (1u << F_LATENTS | 1u << F_EXPANSION)

_Static_assert(offsetof(struct train_cmd, o) == 0,
               "options have the same places in both");

/* ---- the list ---- */

static struct planned *
add_planned(struct sae_plan *plan, const char *name, size_t name_n)
{
    const struct train_cmd *cmd = plan->cmd;
    struct planned *p;

    plan->list = xrealloc(plan->list, plan->n + 1, sizeof(*plan->list));
    p = &plan->list[plan->n++];
    *p = (struct planned){ .o = cmd->o };
    p->name = name ? xstrndup(name, name_n) : NULL;
    for (size_t i = 0; i < N_FIELDS; i++)
        if (opt_given(cmd->line, fields[i].key + 2))
            p->given |= 1u << i;
    str_addf(&p->dir, "%s%s%s", cmd->output, name ? "/" : "",
             name ? p->name : "");
    train_run_init(&p->run, p->dir.s);
    if (cmd->svg)
        str_addf(&p->svg_path, "%s%s%s", name ? p->dir.s : "", name ? "/" : "",
                 cmd->svg);
    return p;
}

/* A name that is one directory in DIR. */
static int
check_name(const struct sae_plan *plan, const char *name, size_t n,
           struct err *err)
{
    if (n == 0 || *name == '.' || memchr(name, '/', n) || n > 200 ||
        utf8_valid(name, n) != n)
        return err_set(err, TU_USAGE,
                       "\"%.*s\" is not a name for a directory in %s", (int)n,
                       name, plan->cmd->output);
    for (size_t i = 0; i < plan->n; i++)
        if (strlen(plan->list[i].name) == n &&
            !memcmp(plan->list[i].name, name, n))
            return err_set(err, TU_USAGE, "the name \"%.*s\" is there twice",
                           (int)n, name);
    return plan->n < MAX_SAES
               ? 0
               : err_set(err, TU_USAGE, "more than %zu SAEs", MAX_SAES);
}

/* --sae NAME:key=value,key=value */
static int
add_sae(struct sae_plan *plan, const char *spec, struct err *err)
{
    size_t name_n = strcspn(spec, ":");
    const char *s = spec + name_n;
    unsigned own = 0; /* bits as in 'given' */
    struct planned *p;

    if (check_name(plan, spec, name_n, err) < 0)
        return -1;
    p = add_planned(plan, spec, name_n);
    for (s += *s == ':'; *s; s += *s == ',') {
        size_t n = strcspn(s, ","), key_n = strcspn(s, "="), i = 0;
        struct str name = { 0 };
        const char *value;
        int rc;

        while (i < N_FIELDS && (strlen(fields[i].key + 2) != key_n ||
                                memcmp(fields[i].key + 2, s, key_n) != 0))
            i++;
        if (i == N_FIELDS || fields[i].flags & COMMON || key_n >= n)
            return err_set(err, TU_USAGE,
                           "--sae %s: \"%.*s\" is not KEY=VALUE of an option "
                           "that SAEs of a pass may differ in",
                           spec, (int)n, s);
        value = opt_keep(&p->kept, s + key_n + 1, n - key_n - 1);
        str_addf(&name, "--sae %s: %s", p->name, fields[i].key + 2);
        rc = opt_load(opt_of(plan->cmd->line->tool, fields[i].key), name.s,
                      value, NULL, &p->o, err);
        str_free(&name);
        if (rc < 0)
            return -1;
        own |= 1u << i;
        s += n;
    }
    if ((own & BOTH_SIZES) == BOTH_SIZES)
        return err_set(err, TU_USAGE,
                       "--sae %s: latents and expansion exclude each other",
                       spec);
    if (own & 1u << F_EXPANSION) { /* of all it may be latents */
        p->o.latents = 0;
        p->given &= ~(1u << F_LATENTS);
    }
    p->given |= own;
    return 0;
}

/* --layer 3, which getopt takes for --layers 3, of a dump?  A number is the
 * name of no layer. */
static int
check_layer(const char *name, struct err *err)
{
    const char *digits = name + (*name == '-');

    if (!*digits || digits[strspn(digits, "0123456789")])
        return 0;
    return err_set(err, TU_USAGE,
                   "--layers %s: is a number, not a name as layers.%s.mlp (one "
                   "layer of a dump: saev-read --layer %s DUMP | sae-train)",
                   name, digits, name);
}

/* --layers NAME,NAME */
static int
add_layers(struct sae_plan *plan, struct err *err)
{
    plan->names = xstrdup(plan->cmd->layers);
    for (char *s = plan->names, *end; s; s = end) {
        struct planned *p;

        end = strchr(s, ',');
        if (end)
            *end++ = '\0';
        if (check_name(plan, s, strlen(s), err) < 0 || check_layer(s, err) < 0)
            return -1;
        p = add_planned(plan, s, strlen(s));
        p->layer = plan->n_layers;
        plan->layers =
            xrealloc(plan->layers, plan->n_layers + 1, sizeof(*plan->layers));
        plan->layers[plan->n_layers++] = s;
    }
    /* after all of them, as the list moves while it grows */
    for (size_t i = 0; i < plan->n; i++)
        if (!plan->list[i].o.hook)
            plan->list[i].o.hook = plan->layers[plan->list[i].layer];
    return 0;
}

/* A short form is not what readers of an SAE know. */
static int
check_hook(const struct planned *p, struct err *err)
{
    struct str hint = { 0 };
    int rc = 0;

    if (p->o.hook)
        place_hint(&hint, p->o.hook);
    if (hint.n)
        rc = err_set(err, TU_USAGE, "\"%s\" is not the name of a hook%s",
                     p->o.hook, hint.s);
    str_free(&hint);
    return rc;
}

/* A run that was killed before all its SAEs had a state does not say which
 * there were. */
static int
check_found(const struct sae_plan *plan, size_t n_dirs, struct err *err)
{
    if (n_dirs == 0 || (plan->n && plan->list[0].saes == plan->n))
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: %zu of its SAEs %s a state: --sae or --layers has to "
                   "name them again, with all options",
                   plan->cmd->output, plan->n, plan->n == 1 ? "has" : "have");
}

/* On --resume alone: the directories in DIR that have a state. */
static int
add_found(struct sae_plan *plan, size_t *n_dirs, struct err *err)
{
    const char *dir = plan->cmd->output;
    struct dirent **list;
    int rc = file_is_dir(dir, err), n;

    if (rc <= 0)
        return rc;
    n = dir_list(&list, dir, err);
    if (n < 0)
        return -1;
    rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        const char *name = list[i]->d_name;
        struct str path = { 0 };

        str_addf(&path, "%s/%s", dir, name);
        *n_dirs += file_is_dir(path.s, err) > 0;
        str_adds(&path, "/state.safetensors");
        if (!file_missing(path.s)) {
            rc = check_name(plan, name, strlen(name), err);
            if (rc == 0)
                add_planned(plan, name, strlen(name));
        }
        str_free(&path);
    }
    dir_list_free(list, n);
    return rc;
}

/* ---- states ---- */

static uint64_t
number_of(const struct st *st, const char *key)
{
    const char *s = st_meta(st, key);

    return s ? strtoull(s, NULL, 10) : 0;
}

/* Options that were not given are the state's; --layers says which layer. */
static int
take_state(struct planned *p, const struct train_cmd *cmd, struct err *err)
{
    struct st st;
    int rc = 0;

    if (train_state_open(&st, p->run.state_path.s, err) < 0)
        return -1;
    p->has_state = true;
    p->total = number_of(&st, "-n");
    p->asked = number_of(&st, "asked");
    p->run.saved = number_of(&st, "step");
    if (!cmd->layers)
        p->layer = (size_t)number_of(&st, "layer");
    p->layers = number_of(&st, "layers");
    p->saes = number_of(&st, "saes");
    for (size_t i = 0; rc >= 0 && i < N_FIELDS; i++)
        if (!(p->given & 1u << i) &&
            !(i == F_LATENTS && p->given & 1u << F_EXPANSION))
            rc = train_state_option(&st, cmd->line->tool, fields[i].key, &p->o,
                                    &p->kept, err);
    st_close(&st);
    return rc < 0 ? -1 : 0;
}

/* Layers differ in nothing but their hooks: one that has no state, as after a
 * kill while the first were written, has the options of the others. */
static void
take_layers(struct sae_plan *plan)
{
    const struct opt_tool *tool = plan->cmd->line->tool;
    size_t k = 0;

    while (k < plan->n && !plan->list[k].has_state)
        k++;
    for (size_t i = 0; i < plan->n && k < plan->n; i++)
        for (size_t f = 0; f < N_FIELDS && !plan->list[i].has_state; f++)
            if (f != F_HOOK && !(plan->list[i].given & 1u << f))
                opt_copy(opt_of(tool, fields[f].key), &plan->list[k].o,
                         &plan->list[i].o);
}

/* Options of the pass: as given, or of the states, to all its SAEs. */
static void
take_common(struct sae_plan *plan)
{
    plan->o = plan->cmd->o;
    plan->steps = plan->cmd->steps;
    for (size_t k = 0; k < plan->n && !plan->cmd->steps && !plan->cmd->o.epochs;
         k++)
        if (plan->list[k].asked && plan->list[k].total > plan->steps)
            plan->steps = plan->list[k].total;
    for (size_t i = 0; i < N_FIELDS; i++) {
        const struct opt *o = opt_of(plan->cmd->line->tool, fields[i].key);

        if (!(fields[i].flags & COMMON))
            continue;
        for (size_t k = 0; k < plan->n; k++)
            if (plan->list[k].has_state)
                opt_copy(o, &plan->list[k].o, &plan->o);
        for (size_t k = 0; k < plan->n; k++)
            opt_copy(o, &plan->o, &plan->list[k].o);
    }
}

int
plan_open(struct sae_plan *plan, const struct train_cmd *cmd, struct err *err)
{
    struct str state = { 0 };
    size_t n_dirs = 0;
    int rc = 0;

    *plan = (struct sae_plan){ .cmd = cmd };
    str_addf(&state, "%s/state.safetensors", cmd->output);
    for (size_t i = 0; i < cmd->saes.n && rc == 0; i++)
        rc = add_sae(plan, cmd->saes.item[i], err);
    if (rc == 0 && cmd->layers)
        rc = add_layers(plan, err);
    if (rc == 0 && plan->n == 0 && cmd->resume && file_missing(state.s))
        rc = add_found(plan, &n_dirs, err);
    if (rc == 0 && plan->n == 0 && n_dirs == 0)
        add_planned(plan, NULL, 0);
    for (size_t i = 0; i < plan->n && rc == 0; i++)
        rc = check_hook(&plan->list[i], err);
    for (size_t i = 0; i < plan->n && rc == 0; i++)
        if (cmd->resume && !file_missing(plan->list[i].run.state_path.s))
            rc = take_state(&plan->list[i], cmd, err);
    if (rc == 0)
        rc = check_found(plan, n_dirs, err);
    if (rc == 0 && cmd->svg && plan->list[0].name && strchr(cmd->svg, '/'))
        rc = err_set(err, TU_USAGE,
                     "--svg %s: of several SAEs it is a name in the directory "
                     "of each",
                     cmd->svg);
    str_free(&state);
    if (cmd->layers)
        take_layers(plan);
    take_common(plan);
    return rc;
}

/* ---- defaults ---- */

/* Where neither --latents nor --expansion says it, as many as --init's. */
static int
take_latents(struct planned *p, struct err *err)
{
    struct sae sae;

    if (p->o.latents || !p->o.init || p->given & BOTH_SIZES)
        return 0;
    if (sae_open_plain(&sae, p->o.init, NULL, err) < 0)
        return -1;
    p->o.latents = sae.n;
    sae_close(&sae);
    return 0;
}

static int
settle(struct sae_plan *plan, struct planned *p, const struct row_stream *rows,
       uint64_t steps, struct err *err)
{
    struct sae_options *o = &p->o;
    struct sae_settings *s = &p->trainer.set;
    uint64_t latents;
    size_t d = rows->d;

    if (take_latents(p, err) < 0)
        return -1;
    latents = o->latents;
    if (!latents && __builtin_mul_overflow(o->expansion, (uint64_t)d, &latents))
        latents = UINT64_MAX;
    if (latents > UINT32_MAX - 1)
        return err_set(err, TU_USAGE, "%llu latents are too many (at most %u)",
                       (unsigned long long)latents, UINT32_MAX - 1);
    if (o->k > latents)
        return err_set(err, TU_USAGE,
                       "%s%s-k %llu is more than the %llu latent%s",
                       p->name ? p->name : "", p->name ? ": " : "",
                       (unsigned long long)o->k, (unsigned long long)latents,
                       plural(latents));
    o->latents = latents;
    if (o->aux_k == UINT64_MAX)
        o->aux_k = d / 2 ? d / 2 : 1;
    if (o->aux_k > latents)
        o->aux_k = latents;
    if (o->activation == ACT_BATCHTOPK &&
        o->batch > SAE_MAX_BATCH_PAIRS / latents)
        return err_set(err, TU_USAGE,
                       "batchtopk: --batch %llu times %llu latents is over "
                       "2^32",
                       (unsigned long long)o->batch,
                       (unsigned long long)latents);
    /* a run that had more arrays than its stream's first does not count again
     */
    if ((!p->has_state || plan->cmd->steps || (!p->asked && steps)) &&
        !(rows->is_stream && p->total && p->run.saved >= p->total &&
          !plan->steps))
        p->total = steps;
    p->asked = plan->steps;
    if (o->warmup == UINT64_MAX)
        o->warmup = default_warmup(p->total);
    if (o->lr < 0)
        o->lr = default_lr(latents, (double)p->total * (double)o->batch);
    p->d = d;
    *s = (struct sae_settings){
        .d = d,
        .n = (size_t)latents,
        .k = (size_t)o->k,
        .batchtopk = o->activation == ACT_BATCHTOPK,
        .bf16 = o->compute == COMPUTE_BF16,
        .normalize = !o->no_normalize,
        .aux_coef = o->aux_coef,
        .aux_k = (size_t)o->aux_k,
        .dead_after = o->dead_after,
        .lr = o->lr,
        .clip = o->clip,
        .warmup = o->warmup,
        .decay = o->decay,
        .total = p->total,
        .seed = o->seed,
    };
    return 0;
}

static int
by_layer(const void *a, const void *b)
{
    const struct planned *p = a, *q = b;

    return p->layer < q->layer ? -1 : p->layer > q->layer;
}

int
plan_settle(struct sae_plan *plan, const struct row_stream *rows,
            struct err *err)
{
    if (plan->n > 1)
        qsort(plan->list, plan->n, sizeof(*plan->list), by_layer);
    for (size_t i = 0; i < plan->n; i++) {
        struct planned *p = &plan->list[i];

        if (p->layer >= rows->n_layers)
            return err_set(err, EX_DATAERR,
                           "%s: is of layer %zu (expected at most %zu: "
                           "--layers names the input's)",
                           p->run.state_path.s, p->layer, rows->n_layers - 1);
        p->layers = rows->n_layers;
        p->saes = plan->n;
        if (settle(plan, p, rows, plan->in_all, err) < 0)
            return -1;
    }
    return 0;
}

void
plan_set_state(struct planned *p, const struct opt_tool *tool)
{
    struct train_state *s = &p->run.state;

    train_state_set_number(s, "d", (double)p->d);
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (i == F_EXPANSION)
            continue;
        train_state_set_option(s, tool, fields[i].key, &p->o);
        if (fields[i].flags & FREE)
            train_state_may_differ(s);
    }
    train_state_set_number(s, "-n", (double)p->total);
    if (p->o.decay == 0) /* then nothing depends on it */
        train_state_may_differ(s);
    train_state_set_number(s, "asked", p->asked);
    train_state_may_differ(s);
    train_state_set_number(s, "layer", (double)p->layer);
    train_state_set_number(s, "layers", (double)p->layers);
    train_state_set_number(s, "saes", (double)p->saes);
    train_state_may_differ(s);
}

void
plan_close(struct sae_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        struct planned *p = &plan->list[i];

        sae_trainer_close(&p->trainer);
        train_run_close(&p->run);
        free(p->name);
        str_free(&p->dir);
        str_free(&p->svg_path);
        opt_drop(&p->kept);
    }
    free(plan->list);
    free(plan->layers);
    free(plan->names);
    *plan = (struct sae_plan){ 0 };
}
