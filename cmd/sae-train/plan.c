#include "cmd/sae-train/plan.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/format/sae.h"
#include "core/format/st.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/opt_value.h"
#include "core/tty.h"

#define DEFAULT_LR   2e-4    /* at */
#define DEFAULT_LR_N 16384.0 /* latents; by the root of their number */
#define MAX_SAES     ((size_t)4096)

/* ---- the fields of struct sae_options ---- */

enum kind { IS_U64, IS_F64, IS_FLAG, IS_WORD, IS_TEXT };
enum {
    FREE = 1,  /* a resumed run may change it */
    COMMON = 2 /* of all SAEs of a pass */
};

static const struct field {
    const char *key; /* an option, and a setting of the state; without dashes
                      * a key of --sae */
    enum kind kind;
    size_t at;
    const char *words;
    double min, max;
    int flags;
} fields[] = {
#define AT(f) offsetof(struct sae_options, f)
    { "--k", IS_U64, AT(k), NULL, 1, 1e9, 0 },
    { "--latents", IS_U64, AT(latents), NULL, 1, UINT32_MAX - 1, 0 },
    { "--expansion", IS_U64, AT(expansion), NULL, 1, 1e6, 0 },
    { "--activation", IS_WORD, AT(activation), "topk|batchtopk", 0, 0, 0 },
    { "--compute", IS_WORD, AT(compute), "f32|bf16", 0, 0, 0 },
    { "--aux-coef", IS_F64, AT(aux_coef), NULL, 0, 1e9, 0 },
    { "--aux-k", IS_U64, AT(aux_k), NULL, 0, 1e9, 0 },
    { "--dead-after", IS_U64, AT(dead_after), NULL, 1, 0x1p63, 0 },
    { "--lr", IS_F64, AT(lr), NULL, 0, 1e9, 0 },
    { "--warmup", IS_U64, AT(warmup), NULL, 0, UINT32_MAX, 0 },
    { "--decay", IS_F64, AT(decay), NULL, 0, 1, 0 },
    { "--clip", IS_F64, AT(clip), NULL, 0, 1e9, 0 },
    { "--no-normalize", IS_FLAG, AT(no_normalize), "0|1", 0, 0, 0 },
    { "--seed", IS_U64, AT(seed), NULL, 0, 0, 0 },
    { "--init", IS_TEXT, AT(init), NULL, 0, 0, FREE },
    { "--hook", IS_TEXT, AT(hook), NULL, 0, 0, FREE },
    { "--batch", IS_U64, AT(batch), NULL, 1, 1 << 30, COMMON },
    { "--format", IS_WORD, AT(format), "sparsify|saelens", 0, 0,
      FREE | COMMON },
    { "--skip-bad", IS_FLAG, AT(skip_bad), "0|1", 0, 0, FREE | COMMON },
    { "--log-every", IS_U64, AT(log_every), NULL, 1, UINT32_MAX,
      FREE | COMMON },
#undef AT
};
#define N_FIELDS (sizeof(fields) / sizeof(*fields))
enum { F_LATENTS = 1, F_EXPANSION = 2, F_HOOK = 15 };
#define BOTH_SIZES (1u << F_LATENTS | 1u << F_EXPANSION)

static void *
field_at(struct sae_options *o, const struct field *f)
{
    return (char *)o + f->at;
}

/* Takes the text of a value to its field. */
static int
put_field(struct planned *p, const struct field *f, const char *name,
          const char *text, struct err *err)
{
    void *at = field_at(&p->o, f);
    uint64_t max = f->max > 0 ? (uint64_t)f->max : UINT64_MAX;
    int word;

    switch (f->kind) {
    case IS_U64:
        return opt_u64(name, text, (uint64_t)f->min, max, at, err);
    case IS_F64:
        return opt_f64(name, text, f->min, f->max, at, err);
    case IS_FLAG:
    case IS_WORD:
        word = opt_choice(name, text, f->words, err);
        if (word < 0)
            return -1;
        if (f->kind == IS_FLAG)
            *(bool *)at = word;
        else
            *(int *)at = word;
        return 0;
    case IS_TEXT:
        p->texts = xrealloc(p->texts, p->n_texts + 1, sizeof(*p->texts));
        p->texts[p->n_texts] = xstrdup(text);
        *(const char **)at = *text ? p->texts[p->n_texts] : NULL;
        p->n_texts++;
        return 0;
    }
    return 0;
}

static void
get_field(const struct sae_options *o, const struct field *f, struct str *to)
{
    const void *at = field_at((struct sae_options *)(uintptr_t)o, f);
    const char *word = f->words;

    str_clear(to);
    str_adds(to, "");
    switch (f->kind) {
    case IS_U64:
        str_addf(to, "%llu", (unsigned long long)*(const uint64_t *)at);
        break;
    case IS_F64:
        js_put_f64(to, *(const double *)at);
        break;
    case IS_FLAG:
        str_addc(to, *(const bool *)at ? '1' : '0');
        break;
    case IS_WORD:
        for (int i = 0; i < *(const int *)at; i++)
            word = strchr(word, '|') + 1;
        str_add(to, word, strcspn(word, "|"));
        break;
    case IS_TEXT:
        if (*(const char *const *)at)
            str_adds(to, *(const char *const *)at);
        break;
    }
}

/* ---- the list ---- */

static struct planned *
add_planned(struct sae_plan *plan, const char *name, size_t name_n)
{
    const struct train_cmd *cmd = plan->cmd;
    struct planned *p;

    plan->list = xrealloc(plan->list, plan->n + 1, sizeof(*plan->list));
    p = &plan->list[plan->n++];
    *p = (struct planned){
        .o = cmd->o, .lock = -1, .log.fd = -1, .n_old = SIZE_MAX
    };
    p->name = name ? xstrndup(name, name_n) : NULL;
    for (size_t i = 0; i < N_FIELDS; i++)
        if (opt_given(cmd->line, fields[i].key + 2))
            p->given |= 1u << i;
    str_addf(&p->dir, "%s%s%s", cmd->output, name ? "/" : "",
             name ? p->name : "");
    str_addf(&p->state_path, "%s/state.safetensors", p->dir.s);
    str_addf(&p->log_path, "%s/log.tsv", p->dir.s);
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
        char *value;
        int rc;

        while (i < N_FIELDS && (strlen(fields[i].key + 2) != key_n ||
                                memcmp(fields[i].key + 2, s, key_n) != 0))
            i++;
        if (i == N_FIELDS || fields[i].flags & COMMON || key_n >= n)
            return err_set(err, TU_USAGE,
                           "--sae %s: \"%.*s\" is not KEY=VALUE of an option "
                           "that SAEs of a pass may differ in",
                           spec, (int)n, s);
        value = xstrndup(s + key_n + 1, n - key_n - 1);
        str_addf(&name, "--sae %s: %s", p->name, fields[i].key + 2);
        rc = put_field(p, &fields[i], name.s, value, err);
        free(value);
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

static int
by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
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
    DIR *d = opendir(plan->cmd->output);
    struct dirent *e;
    char **names = NULL;
    size_t n = 0;
    int rc = 0;

    while (d && (rc = dir_next(d, plan->cmd->output, &e, err)) > 0) {
        struct str path = { 0 };

        str_addf(&path, "%s/%s", plan->cmd->output, e->d_name);
        *n_dirs += *e->d_name != '.' && file_is_dir(path.s, err) > 0;
        str_adds(&path, "/state.safetensors");
        if (*e->d_name != '.' && !file_missing(path.s)) {
            names = xrealloc(names, n + 1, sizeof(*names));
            names[n++] = xstrdup(e->d_name);
        }
        str_free(&path);
    }
    if (d)
        closedir(d);
    if (n)
        qsort(names, n, sizeof(*names), by_name);
    for (size_t i = 0; i < n; i++) {
        if (rc == 0)
            rc = check_name(plan, names[i], strlen(names[i]), err);
        if (rc == 0)
            add_planned(plan, names[i], strlen(names[i]));
        free(names[i]);
    }
    free(names);
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
take_state(struct planned *p, bool by_layers, struct err *err)
{
    struct str name = { 0 };
    struct st st;
    int rc = 0;

    if (train_state_open(&st, p->state_path.s, err) < 0)
        return -1;
    p->has_state = true;
    p->total = number_of(&st, "-n");
    p->asked = number_of(&st, "asked");
    p->saved = number_of(&st, "step");
    if (!by_layers)
        p->layer = (size_t)number_of(&st, "layer");
    p->layers = number_of(&st, "layers");
    p->saes = number_of(&st, "saes");
    for (size_t i = 0; rc == 0 && i < N_FIELDS; i++) {
        const struct field *f = &fields[i];
        const char *value = st_meta(&st, f->key);

        if (!value && i != F_EXPANSION && !(f->flags & FREE))
            rc = err_set(err, EX_DATAERR, "%s: does not say what %s was",
                         p->state_path.s, f->key);
        if ((p->given & 1u << i) || !value)
            continue;
        if (i == F_LATENTS && (p->given & 1u << F_EXPANSION))
            continue;
        str_clear(&name);
        str_addf(&name, "%s: %s", p->state_path.s, f->key);
        rc = put_field(p, f, name.s, value, err);
        if (rc < 0)
            err->status = EX_DATAERR;
    }
    str_free(&name);
    st_close(&st);
    return rc;
}

static void
copy_field(struct sae_options *to, const struct sae_options *from,
           const struct field *f)
{
    static const size_t sizes[] = { [IS_U64] = sizeof(uint64_t),
                                    [IS_F64] = sizeof(double),
                                    [IS_FLAG] = sizeof(bool),
                                    [IS_WORD] = sizeof(int),
                                    [IS_TEXT] = sizeof(char *) };

    memcpy((char *)to + f->at, (const char *)from + f->at, sizes[f->kind]);
}

/* Layers differ in nothing but their hooks: one that has no state, as after a
 * kill while the first were written, has the options of the others. */
static void
take_layers(struct sae_plan *plan)
{
    size_t k = 0;

    while (k < plan->n && !plan->list[k].has_state)
        k++;
    for (size_t i = 0; i < plan->n && k < plan->n; i++)
        for (size_t f = 0; f < N_FIELDS && !plan->list[i].has_state; f++)
            if (f != F_HOOK && !(plan->list[i].given & 1u << f))
                copy_field(&plan->list[i].o, &plan->list[k].o, &fields[f]);
}

/* Options of the pass: as given, or of the states, to all its SAEs. */
static void
take_common(struct sae_plan *plan)
{
    plan->o = plan->cmd->o;
    plan->steps = plan->cmd->steps;
    for (size_t k = 0; k < plan->n && !plan->cmd->steps; k++)
        if (plan->list[k].asked && plan->list[k].total > plan->steps)
            plan->steps = plan->list[k].total;
    for (size_t i = 0; i < N_FIELDS; i++) {
        const struct field *f = &fields[i];

        if (!(f->flags & COMMON))
            continue;
        for (size_t k = 0; k < plan->n; k++)
            if (plan->list[k].has_state)
                copy_field(&plan->o, &plan->list[k].o, f);
        for (size_t k = 0; k < plan->n; k++)
            copy_field(&plan->list[k].o, &plan->o, f);
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
        if (cmd->resume && !file_missing(plan->list[i].state_path.s))
            rc = take_state(&plan->list[i], cmd->layers, err);
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

/* Steps of a run: as asked for, or in so many rows; 0: not known. */
static uint64_t
steps_of(const struct sae_plan *plan, const struct row_stream *rows)
{
    uint64_t n = rows->n_rows / plan->o.batch;

    if (plan->steps)
        return plan->steps;
    return n || !rows->n_rows ? n : 1;
}

/* Where neither --latents nor --expansion says it, as many as --init's. */
static int
take_latents(struct planned *p, struct err *err)
{
    struct sae sae;

    if (p->o.latents || !p->o.init || p->given & BOTH_SIZES)
        return 0;
    if (sae_open(&sae, p->o.init, err) < 0)
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
    if (o->lr < 0)
        o->lr = DEFAULT_LR / sqrt((double)latents / DEFAULT_LR_N);
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
        !(rows->is_stream && p->total && p->saved >= p->total && !plan->steps))
        p->total = steps;
    p->asked = plan->steps;
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
    uint64_t steps = steps_of(plan, rows);

    if (plan->n > 1)
        qsort(plan->list, plan->n, sizeof(*plan->list), by_layer);
    for (size_t i = 0; i < plan->n; i++) {
        struct planned *p = &plan->list[i];

        if (p->layer >= rows->n_layers)
            return err_set(err, EX_DATAERR,
                           "%s: is of layer %zu (expected at most %zu: "
                           "--layers names the input's)",
                           p->state_path.s, p->layer, rows->n_layers - 1);
        p->layers = rows->n_layers;
        p->saes = plan->n;
        if (settle(plan, p, rows, steps, err) < 0)
            return -1;
    }
    return 0;
}

void
plan_set_state(struct planned *p)
{
    struct train_state *s = &p->state;
    struct str text = { 0 };

    train_state_set_number(s, "d", (double)p->d);
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (i == F_EXPANSION)
            continue;
        get_field(&p->o, &fields[i], &text);
        train_state_set(s, fields[i].key, text.s, NULL);
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
    str_free(&text);
}

void
plan_close(struct sae_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        struct planned *p = &plan->list[i];

        sae_trainer_close(&p->trainer);
        train_state_close(&p->state);
        train_log_close(&p->log);
        if (p->lock >= 0)
            close(p->lock);
        free(p->name);
        str_free(&p->dir);
        str_free(&p->state_path);
        str_free(&p->log_path);
        str_free(&p->svg_path);
        for (size_t k = 0; k < p->n_texts; k++)
            free(p->texts[k]);
        free(p->texts);
    }
    free(plan->list);
    free(plan->layers);
    free(plan->names);
    *plan = (struct sae_plan){ 0 };
}
