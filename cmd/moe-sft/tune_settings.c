/* moe-sft tune: options, from the command line and from a state. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/tune.h"
#include "core/format/st.h"
#include "core/hash.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/opt.h"
#include "core/text/chat.h"

#define DEFAULT_TUNE_RANK 16

static const char *const compute_names[] = { "f32", "bf16", NULL };
static const char *const base_names[] = { "bf16", "int8", NULL };
static const char *const chat_names[] = { "chatml", "llama3", "mistral",
                                          "qwen3", NULL };

enum kind { IS_I64, IS_U64, IS_F64, IS_FLAG, IS_WORD, IS_TEXT };

/* An option that a state has, and what it is there. */
struct setting {
    const char *key;    /* "--lr" */
    const char *option; /* "lr"; NULL: none */
    enum kind kind;
    void *at;
    const char *const *words; /* of IS_WORD */
    bool is_free;             /* a resumed run may change it */
};

#define MAX_SETTINGS 32

/* The settings of a run; returns how many. */
static size_t
settings_of(struct tune *t, struct setting *s)
{
    const struct setting all[] = {
        { "--targets", "targets", IS_TEXT, &t->o.tune.targets, NULL, false },
        { "--rank", "rank", IS_I64, &t->o.rank, NULL, false },
        { "--alpha", "alpha", IS_F64, &t->o.alpha, NULL, false },
        { "use_rslora", NULL, IS_FLAG, &t->lora.rslora, NULL, false },
        { "--seed", "seed", IS_U64, &t->o.seed, NULL, false },
        { "-n", "steps", IS_U64, &t->o.train.steps, NULL,
          t->o.train.schedule == SCHEDULE_CONSTANT },
        { "--batch", "batch", IS_U64, &t->o.tune.batch, NULL, false },
        { "--accumulate", "accumulate", IS_U64, &t->o.train.accumulate, NULL,
          false },
        { "--slices", "slices", IS_U64, &t->o.tune.slices, NULL, false },
        { "--ctx", "ctx", IS_U64, &t->o.tune.ctx, NULL, false },
        { "--pack", "pack", IS_FLAG, &t->o.tune.pack, NULL, false },
        { "--shuffle", "shuffle", IS_FLAG, &t->o.train.shuffle, NULL, false },
        { "--template", "template", IS_WORD, &t->o.tune.chat, chat_names,
          false },
        { "--compute", "compute", IS_WORD, &t->o.tune.compute, compute_names,
          false },
        { "--base", "base", IS_WORD, &t->o.tune.int8, base_names, false },
        { "--lr", "lr", IS_F64, &t->o.train.lr, NULL, false },
        { "--schedule", "schedule", IS_WORD, &t->o.train.schedule,
          schedule_names, false },
        { "--warmup", "warmup", IS_F64, &t->o.train.warmup, NULL, false },
        { "--clip", "clip", IS_F64, &t->o.train.clip, NULL, false },
        { "--weight-decay", "weight-decay", IS_F64, &t->o.train.weight_decay,
          NULL, false },
        { "--eval", "eval", IS_TEXT, &t->o.tune.eval, NULL, true },
        { "--eval-every", "eval-every", IS_U64, &t->o.tune.eval_every, NULL,
          false },
        { "--keep-best", "keep-best", IS_FLAG, &t->o.tune.keep_best, NULL,
          false },
        { "--svg", "svg", IS_TEXT, &t->o.train.svg, NULL, true },
    };
    size_t n = sizeof(all) / sizeof(*all);

    _Static_assert(sizeof(all) / sizeof(*all) <= MAX_SETTINGS, "room for all");
    memcpy(s, all, sizeof(all));
    return n;
}

static void
put_value(struct str *to, const struct setting *s)
{
    str_clear(to);
    str_adds(to, "");
    switch (s->kind) {
    case IS_I64:
        str_addf(to, "%lld", (long long)*(int64_t *)s->at);
        break;
    case IS_U64:
        str_addf(to, "%llu", (unsigned long long)*(uint64_t *)s->at);
        break;
    case IS_F64:
        js_put_f64(to, *(double *)s->at);
        break;
    case IS_FLAG:
        str_adds(to, *(bool *)s->at ? "1" : "0");
        break;
    case IS_WORD: /* -1: not given */
        if (*(int *)s->at >= 0)
            str_adds(to, s->words[*(int *)s->at]);
        break;
    case IS_TEXT:
        if (*(const char **)s->at)
            str_adds(to, *(const char **)s->at);
        break;
    }
}

/* The value of a state, which may be anything. */
static void
take_value(struct tune *t, const struct setting *s, const char *value)
{
    size_t at = t->kept.n;

    switch (s->kind) {
    case IS_I64:
        *(int64_t *)s->at = strtoll(value, NULL, 10);
        break;
    case IS_U64:
        *(uint64_t *)s->at = strtoull(value, NULL, 10);
        break;
    case IS_F64:
        *(double *)s->at = strtod(value, NULL);
        break;
    case IS_FLAG:
        *(bool *)s->at = strcmp(value, "1") == 0;
        break;
    case IS_WORD:
        for (int i = 0; s->words[i]; i++)
            if (!strcmp(value, s->words[i]))
                *(int *)s->at = i;
        break;
    case IS_TEXT:
        str_add(&t->kept, value, strlen(value) + 1);
        *(const char **)s->at = *value ? t->kept.s + at : NULL;
        break;
    }
}

/* ---- the command line ---- */

static int
find_target(const char *name, size_t n)
{
    for (int i = 0; i < LM_N_TARGETS; i++)
        if (strlen(lm_target_names[i]) == n &&
            !memcmp(lm_target_names[i], name, n))
            return i;
    return -1;
}

void
tune_targets(struct str *to, unsigned targets, const char *const *names)
{
    const char *comma = "";

    for (int i = 0; i < LM_N_TARGETS; i++)
        if (targets & (1u << i)) {
            str_addf(to, "%s%s", comma, names[i]);
            comma = ",";
        }
}

static int
parse_targets(const char *list, unsigned *targets, struct err *err)
{
    *targets = 0;
    for (const char *s = list; s; s = *s == ',' ? s + 1 : NULL) {
        size_t n = strcspn(s, ",");
        int i = find_target(s, n);

        if (i < 0)
            return err_set(err, TU_USAGE,
                           "--targets: \"%.*s\" is not one of "
                           "q,k,v,o,gate,up,down",
                           (int)smaller(n, 40), s);
        *targets |= 1u << i;
        s += n;
    }
    return 0;
}

/* Defaults that are not those of train. */
static int
own_defaults(struct tune *t, struct err *err)
{
    const struct opt_line *line = t->o.line;
    struct lm_lora *lora = &t->lora;

    if (t->o.rank == 0)
        t->o.rank = DEFAULT_TUNE_RANK;
    if (!opt_given(line, "alpha"))
        t->o.alpha = 2 * (double)t->o.rank;
    if (!opt_given(line, "clip"))
        t->o.train.clip = 1;
    if (!opt_given(line, "weight-decay"))
        t->o.train.weight_decay = 0;
    lora->targets = LM_ALL_TARGETS;
    if (t->o.tune.targets &&
        parse_targets(t->o.tune.targets, &lora->targets, err) < 0)
        return -1;
    t->o.tune.int8 = t->o.base && !strcmp(t->o.base, base_names[1]);
    if (t->o.base && !t->o.tune.int8 && strcmp(t->o.base, base_names[0]) != 0)
        return err_set(
            err, TU_USAGE,
            "--base %s: of tune it is bf16 or int8 (-m is the model)",
            t->o.base);
    if (t->o.train.svg && !strcmp(t->o.train.svg, "-"))
        return err_set(err, TU_USAGE, "--svg needs a file name, not -");
    return train_check_warmup(&t->o.train, err);
}

/* Are options within what the command line takes?  A state may say anything. */
static bool
is_possible(const struct tune *t)
{
    const uint64_t counts[] = { t->o.tune.batch, t->o.train.accumulate,
                                t->o.tune.ctx, (uint64_t)t->o.rank };
    const double numbers[] = { t->o.train.lr, t->o.train.warmup,
                               t->o.train.clip, t->o.train.weight_decay };

    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        if (counts[i] > INT32_MAX)
            return false;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        if (!(numbers[i] >= 0 && numbers[i] <= 1e15))
            return false;
    return t->o.tune.ctx > 0 && isfinite(t->o.alpha) &&
           t->o.train.steps <= TUNE_MAX_STEPS && t->o.tune.slices > 0 &&
           t->o.tune.slices <= LM_MAX_SLICES;
}

/* By another of these the same lines are other data, which would be what the
 * run is refused for. */
static bool
changes_lines(const char *option)
{
    return !strcmp(option, "ctx") || !strcmp(option, "template");
}

/* Options that are not given come from the state. */
static int
take_state(struct tune *t, const char *path, struct err *err)
{
    struct setting settings[MAX_SETTINGS];
    size_t n = settings_of(t, settings), room = 0;
    struct str text = { 0 };
    const char *value;
    struct st st;
    int rc = 0;

    if (train_state_open(&st, path, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) { /* texts stay where they are */
        value = st_meta(&st, settings[i].key);
        room += value ? strlen(value) + 1 : 0;
    }
    str_reserve(&t->kept, room);
    for (size_t i = 0; i < n; i++) {
        const char *option = settings[i].option;

        value = st_meta(&st, settings[i].key);
        if (!value)
            continue;
        if (option && opt_given(t->o.line, option)) {
            put_value(&text, &settings[i]);
            if (rc == 0 && changes_lines(option) && strcmp(text.s, value) != 0)
                rc = train_state_was(path, settings[i].key, value, text.s, err);
            continue;
        }
        if (option && !strcmp(option, "steps") &&
            opt_given(t->o.line, "epochs"))
            continue;
        take_value(t, &settings[i], value);
        put_value(&text, &settings[i]);
        if (rc == 0 && strcmp(text.s, value) != 0)
            rc = err_set(err, EX_DATAERR, "%s: %s is \"%s\"", path,
                         settings[i].key, value);
    }
    str_free(&text);
    value = st_meta(&st, "adapter");
    snprintf(t->init_digest, sizeof(t->init_digest), "%s", value ? value : "");
    st_close(&st);
    if (rc == 0 && t->o.tune.targets &&
        parse_targets(t->o.tune.targets, &t->lora.targets, err) < 0)
        rc = opt_given(t->o.line, "targets")
                 ? -1
                 : err_set(err, EX_DATAERR, "%s: --targets is \"%s\"", path,
                           t->o.tune.targets);
    if (rc == 0 && !is_possible(t))
        rc = err_set(err, EX_DATAERR, "%s: its options are out of range", path);
    return rc;
}

int
tune_settle(struct tune *t, const char *path, struct err *err)
{
    if (own_defaults(t, err) < 0 || (path && take_state(t, path, err) < 0))
        return -1;
    t->lora.rank = (size_t)t->o.rank;
    t->lora.alpha = t->o.alpha;
    if (path && (t->lora.rank == 0 || t->o.tune.batch == 0 ||
                 t->o.train.accumulate == 0))
        return err_set(err, EX_DATAERR, "%s: %s is 0 (expected 1 or more)",
                       path,
                       t->lora.rank == 0      ? "--rank"
                       : t->o.tune.batch == 0 ? "--batch"
                                              : "--accumulate");
    if (t->o.tune.int8 && t->o.tune.compute == COMPUTE_F32)
        return err_set(err, path ? EX_DATAERR : TU_USAGE,
                       "--base int8 is for --compute bf16");
    if (!t->o.tune.eval && (t->o.tune.keep_best || t->o.tune.eval_every))
        return err_set(err, TU_USAGE, "%s is for --eval",
                       t->o.tune.keep_best ? "--keep-best" : "--eval-every");
    return 0;
}

void
tune_set_settings(struct tune *t)
{
    struct setting settings[MAX_SETTINGS];
    struct str targets = { 0 }, text = { 0 };
    struct train_state *s = &t->state;
    size_t n;

    tune_targets(&targets, t->lm->lora.targets, lm_target_names);
    t->o.tune.targets = targets.s;
    t->o.rank = (int64_t)t->lm->lora.rank;
    t->o.alpha = t->lm->lora.alpha;
    t->lora.rslora = t->lm->lora.rslora;
    t->o.train.steps = t->total;
    t->o.train.warmup = (double)t->schedule.warmup;
    n = settings_of(t, settings);
    train_state_set(s, "base", t->base_digest, t->o.tune.model);
    train_state_set(s, "data", t->data.digest, t->o.tune.data);
    train_state_set(s, "adapter", t->init_digest,
                    t->o.tune.init ? t->o.tune.init : "--init");
    train_state_set(s, "eval", t->eval_data.digest,
                    t->o.tune.eval ? t->o.tune.eval : "--eval");
    for (size_t i = 0; i < n; i++) {
        put_value(&text, &settings[i]);
        train_state_set(s, settings[i].key, text.s, NULL);
        if (settings[i].is_free)
            train_state_may_differ(s);
    }
    t->o.tune.targets = NULL;
    str_free(&targets);
    str_free(&text);
}

/* What the steps begin with. */
static void
digest_numbers(const struct tune *t, char hex[HASH_MAX_HEX])
{
    const struct adamw *a = &t->adamw;
    const struct eval_list *e = &t->state.evals;
    struct hash *hash = hash_new(HASH_XXH3);

    hash_add_numbers(hash, a->master, a->n, sizeof(*a->master));
    hash_add_numbers(hash, a->m, a->n, sizeof(*a->m));
    hash_add_numbers(hash, a->v, a->n, sizeof(*a->v));
    hash_add_numbers(hash, e->list, 2 * e->n, sizeof(double));
    hash_hex(hash, hex);
    hash_free(hash);
}

int
tune_same(struct tune *t, struct err *err)
{
    const struct train_state *s = &t->state;
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
