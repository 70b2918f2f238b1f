/* SPDX-License-Identifier: ISC */
/* moe-sft tune: options, from the command line and from a state. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/moe-sft/tune.h"
#include "core/format/st.h"
#include "core/hash.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/opt.h"
#include "core/text/chat.h"

#define DEFAULT_TUNE_RANK 16

#define TEMPLATE_VAR "--template-var"
#define NOW          "SOURCE_DATE_EPOCH"

static const char *const base_names[] = { "bf16", "int8" };

/* The options that a state has; "use_rslora" comes after --alpha. */
static const char *const settings[] = {
    "--targets",   "--rank",       "--alpha",        "--seed", "-n",
    "--batch",     "--accumulate", "--slices",       "--ctx",  "--pack",
    "--shuffle",   "--compute",    "--base",         "--lr",   "--schedule",
    "--warmup",    "--clip",       "--weight-decay", "--eval", "--eval-every",
    "--keep-best", "--svg",        "--template",
};
#define N_SETTINGS (sizeof(settings) / sizeof(*settings))

/* ---- the command line ---- */

void
tune_targets(struct str *to, const struct config *c, unsigned targets)
{
    const char *comma = "";

    for (enum lm_target i = LM_Q; i < LM_N_TARGETS; i++)
        if (targets & (1u << i) && lm_target_part(c, i) != N_PARTS) {
            str_addf(to, "%s%s", comma, lm_target_name(c, i));
            comma = ",";
        }
}

static int
unknown_target(const struct tune *t, const char *word, size_t n,
               struct err *err)
{
    struct str names = { 0 }, modules = { 0 };

    tune_targets(&names, &t->config, LM_ALL_TARGETS);
    lm_target_modules(&modules, &t->config, LM_ALL_TARGETS, "");
    err_set(err, TU_USAGE, "--targets: \"%.*s\" is not one of %s, or of %s",
            (int)smaller(n, 40), word, names.s, modules.s);
    str_free(&names);
    str_free(&modules);
    return -1;
}

static int
parse_targets(struct tune *t, struct err *err)
{
    const char *list = t->o.tune.targets;
    unsigned *targets = &t->lora.targets;

    if (!list) {
        *targets = LM_ALL_TARGETS;
        return 0;
    }
    *targets = 0;
    for (const char *s = list; s; s = *s == ',' ? s + 1 : NULL) {
        size_t n = strcspn(s, ",");
        unsigned found = lm_target_find(&t->config, s, n);

        if (!found)
            return unknown_target(t, s, n, err);
        *targets |= found;
        s += n;
    }
    return 0;
}

/* Defaults that are not those of train. */
static void
own_defaults(struct tune *t)
{
    const struct opt_line *line = t->o.line;

    if (t->o.rank == 0)
        t->o.rank = DEFAULT_TUNE_RANK;
    if (!opt_given(line, "alpha"))
        t->o.alpha = 2 * (double)t->o.rank;
    if (!opt_given(line, "clip"))
        t->o.train.clip = 1;
    if (!opt_given(line, "weight-decay"))
        t->o.train.weight_decay = 0;
    if (!t->o.base)
        t->o.base = base_names[0];
}

static int
parse_base(struct tune *t, struct err *err)
{
    const char *base = t->o.base;

    t->o.tune.int8 = strcmp(base, base_names[1]) == 0;
    if (t->o.tune.int8 || strcmp(base, base_names[0]) == 0)
        return 0;
    return err_set(err, TU_USAGE,
                   "--base %s: of tune it is bf16 or int8 (-m is the model)",
                   base);
}

/* By another of these the same lines are other data, which would be what the
 * run is refused for. */
static int
check_lines(const struct tune *t, const char *key, const struct st *st,
            struct err *err)
{
    const char *was = st_meta(st, key);
    struct str now = { 0 };
    int rc = 0;

    if (!was || strcmp(key, "--ctx") != 0)
        return 0;
    opt_save(opt_of(t->o.line->tool, key), &t->o, &now);
    if (strcmp(now.s, was) != 0)
        rc = train_state_was(st->path, key, was, now.s, err);
    str_free(&now);
    return rc;
}

/* The template's variables: of the command line, or of the state. */
static int
take_vars(struct tune *t, const struct st *st, struct err *err)
{
    const struct opt_list *list = &t->o.tune.template_vars;
    const char *was = st ? st_meta(st, TEMPLATE_VAR) : NULL;
    struct str name = { 0 };
    int rc = 0;

    if (list->n) {
        t->vars = json_object();
        for (size_t i = 0; rc == 0 && i < list->n; i++)
            rc = chat_set_var(t->vars, list->item[i], true, err);
        if (rc == 0 && json_object_get(t->vars, "messages"))
            rc = err_set(err, TU_USAGE,
                         "--template-var messages: --data gives these");
    } else if (was && *was) {
        str_addf(&name, "%s: " TEMPLATE_VAR, st->path);
        t->vars = js_parse(was, strlen(was), name.s, err);
        if (t->vars && !json_is_object(t->vars))
            err_set(err, EX_DATAERR, "%s is %.40s (expected a JSON object)",
                    name.s, was);
        rc = json_is_object(t->vars) ? 0 : -1;
        str_free(&name);
    }
    return rc;
}

/* Templates may show the date: that of the first step, also when the run is
 * resumed on another day. */
static void
hold_time(struct tune *t, const struct st *st)
{
    const char *was = st ? st_meta(st, NOW) : NULL;

    snprintf(t->now, sizeof(t->now), "%lld", (long long)time(NULL));
    setenv("SOURCE_DATE_EPOCH", was && *was ? was : t->now, 0);
    snprintf(t->now, sizeof(t->now), "%s", getenv("SOURCE_DATE_EPOCH"));
}

/* Options that are not given come from the state. */
static int
take_state(struct tune *t, const char *path, struct err *err)
{
    const struct opt_line *line = t->o.line;
    const char *value;
    struct st st;
    int rc = 0;

    if (train_state_open(&st, path, err) < 0)
        return -1;
    for (size_t i = 0; rc >= 0 && i < N_SETTINGS; i++) {
        const char *key = settings[i];

        if (opt_given(line, opt_of(line->tool, key)->name))
            rc = check_lines(t, key, &st, err);
        else if (strcmp(key, "-n") != 0 || !opt_given(line, "epochs"))
            rc = train_state_option(&st, line->tool, key, &t->o, &t->kept, err);
    }
    if (rc >= 0)
        rc = take_vars(t, &st, err);
    hold_time(t, &st);
    t->had_no_messages = !st_meta(&st, "template");
    value = st_meta(&st, "use_rslora");
    t->lora.rslora = value && !strcmp(value, "1");
    value = st_meta(&st, "adapter");
    snprintf(t->init_digest, sizeof(t->init_digest), "%s", value ? value : "");
    st_close(&st);
    return rc < 0 ? -1 : 0;
}

int
tune_settle(struct tune *t, const char *path, struct err *err)
{
    own_defaults(t);
    if (t->o.train.svg && !strcmp(t->o.train.svg, "-"))
        return err_set(err, TU_USAGE, "--svg needs a file name, not -");
    if (train_check_warmup(&t->o.train, err) < 0 || parse_targets(t, err) < 0 ||
        parse_base(t, err) < 0)
        return -1;
    if (path && take_state(t, path, err) < 0)
        return -1;
    if (!path && take_vars(t, NULL, err) < 0)
        return -1;
    if (!path)
        hold_time(t, NULL);
    if (path && (parse_targets(t, err) < 0 || parse_base(t, err) < 0)) {
        struct err cause = *err;

        return err_set(err, EX_DATAERR, "%s: %s", path, cause.what);
    }
    t->lora.rank = t->o.rank ? (size_t)t->o.rank : DEFAULT_TUNE_RANK;
    t->lora.alpha = t->o.alpha;
    if (t->o.tune.int8 && t->o.tune.compute == COMPUTE_F32)
        return err_set(err, path ? EX_DATAERR : TU_USAGE,
                       "--base int8 is for --compute bf16");
    if (!t->o.tune.eval && (t->o.tune.keep_best || t->o.tune.eval_every))
        return err_set(err, TU_USAGE, "%s is for --eval",
                       t->o.tune.keep_best ? "--keep-best" : "--eval-every");
    return 0;
}

/* What makes tokens of messages, if there are some. */
static void
set_template(struct tune *t)
{
    struct train_state *s = &t->run.state;
    const struct chat *chat = t->text.chat;
    char *vars =
        t->vars ? json_dumps(t->vars, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

    train_state_set(s, TEMPLATE_VAR, vars ? vars : "", NULL);
    free(vars);
    if (chat && !t->had_no_messages) /* the data are others, if it had none */
        train_state_set(s, "template", chat_digest(chat), chat_name(chat));
    if (chat && chat_mentions(chat, NULL, "strftime_now")) {
        train_state_set(s, NOW, t->now, NULL);
        train_state_may_differ(s);
    }
}

void
tune_set_settings(struct tune *t)
{
    struct str targets = { 0 };
    struct train_state *s = &t->run.state;

    tune_targets(&targets, &t->config, t->lm->lora.targets);
    t->o.tune.targets = targets.s;
    t->o.rank = (int64_t)t->lm->lora.rank;
    t->o.alpha = t->lm->lora.alpha;
    t->lora.rslora = t->lm->lora.rslora;
    t->o.train.steps = t->total;
    t->o.train.warmup = (double)t->schedule.warmup;
    train_state_set(s, "base", t->base_digest, t->o.tune.model);
    set_template(t);
    train_state_set(s, "data", t->data.digest, t->o.tune.data);
    train_state_set(s, "adapter", t->init_digest,
                    t->o.tune.init ? t->o.tune.init : "--init");
    train_state_set(s, "eval", t->eval_data.digest,
                    t->o.tune.eval ? t->o.tune.eval : "--eval");
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const char *key = settings[i];

        train_state_set_option(s, t->o.line->tool, key, &t->o);
        if (!strcmp(key, "--eval") || !strcmp(key, "--svg") ||
            !strcmp(key, "--template") ||
            (!strcmp(key, "-n") && t->o.train.schedule == SCHEDULE_CONSTANT))
            train_state_may_differ(s);
        if (!strcmp(key, "--alpha"))
            train_state_set(s, "use_rslora", t->lora.rslora ? "1" : "0", NULL);
    }
    t->o.tune.targets = NULL;
    str_free(&targets);
}

/* What the steps begin with. */
static void
digest_numbers(const struct tune *t, char hex[HASH_MAX_HEX])
{
    const struct adamw *a = &t->adamw;
    const struct eval_list *e = &t->run.state.evals;
    struct hash *hash = hash_new(HASH_XXH3);

    hash_add_numbers(hash, a->master, a->n, sizeof(*a->master));
    hash_add_numbers(hash, a->m, a->n, sizeof(*a->m));
    hash_add_numbers(hash, a->v, a->n, sizeof(*a->v));
    hash_add_numbers(hash, e->list, 2 * e->n, sizeof(double));
    hash_end(hash, hex);
}

int
tune_same(struct tune *t, struct err *err)
{
    const struct train_state *s = &t->run.state;
    char numbers[HASH_MAX_HEX];
    struct str lines = { 0 };
    int rc;

    if (ranks_count(t->ranks) == 1)
        return 0;
    str_addf(&lines, "version\t%s\narithmetic\t%s\n", VERSION, s->arithmetic);
    for (size_t i = 0; i < s->n_settings; i++)
        if (!s->settings[i].is_free)
            str_addf(&lines, "%s\t%s\n", s->settings[i].name,
                     s->settings[i].value);
    digest_numbers(t, numbers);
    str_addf(&lines, "steps\t%llu\nstep\t%llu\nstate\t%s\n",
             (unsigned long long)t->total, (unsigned long long)s->step,
             numbers);
    rc = ranks_same(t->ranks, lines.s, err);
    str_free(&lines);
    return rc;
}
