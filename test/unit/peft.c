/* SPDX-License-Identifier: ISC */
/*
 * adapter_config.json: expectations are peft 0.17's rules, by hand:
 * get_pattern_key() takes the first key for which
 * re.match(rf"(.*\.)?({key})$", name) is true, and lora_alpha / r, or
 * lora_alpha / sqrt(r) with use_rslora, is the scale.
 */
#include "core/format/peft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/regex.h"
#include "test/unit/tap.h"

#define LORA "\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 32"

static char dir[] = "/tmp/peft.XXXXXX";

/* Opens a configuration of this text. */
static int
open_text(struct peft *p, const char *text, struct err *err)
{
    char path[64];
    FILE *f;

    snprintf(path, sizeof(path), "%s/" PEFT_CONFIG, dir);
    f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        exit(1);
    *err = (struct err){ 0 };
    return peft_open(p, dir, err);
}

struct refusal {
    const char *text;
    const char *what; /* after "DIR/adapter_config.json: " */
};

static const struct refusal refusals[] = {
    { "[]", "the document is an empty array (expected an object)" },
    { "{\"r\": 8, \"lora_alpha\": 32}",
      "peft_type is missing (expected \"LORA\")" },
    { "{\"peft_type\": \"IA3\"}", "peft_type is \"IA3\" (expected \"LORA\")" },
    { "{\"peft_type\": \"LORA\", \"r\": 0, \"lora_alpha\": 32}",
      "r is 0 (expected a whole number from 1 to 2147483647)" },
    { "{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": null}",
      "lora_alpha is null (expected a number)" },
    { "{" LORA ", \"use_dora\": true}",
      "use_dora is true (expected nothing: it is not supported)" },
    { "{" LORA ", \"target_parameters\": \"x\"}",
      "target_parameters is \"x\" (expected an array of names)" },
    { "{" LORA ", \"bias\": \"all\"}", "bias is \"all\" (expected \"none\")" },
    { "{" LORA ", \"bias\": true}", "bias is true (expected \"none\")" },
    { "{" LORA ", \"init_lora_weights\": \"pissa\"}",
      "init_lora_weights is \"pissa\" (expected one that leaves the base as "
      "it is)" },
    { "{" LORA ", \"use_rslora\": 1}",
      "use_rslora is 1 (expected true or false)" },
    { "{" LORA ", \"rank_pattern\": [1]}",
      "rank_pattern is an array (expected an object)" },
    { "{" LORA ", \"rank_pattern\": {\"q_(\": 3}}",
      "rank_pattern: \"^(?:.*\\.)?(?:q_()$\": regex: missing closing "
      "parenthesis (at byte 18)" },
    { "{" LORA ", \"rank_pattern\": {\"a\": 1, \"b\": 0}}",
      "rank_pattern.b is 0 (expected a whole number from 1 to 2147483647)" },
    { "{" LORA ", \"alpha_pattern\": {\"a\": \"1\"}}",
      "alpha_pattern.a is \"1\" (expected a number)" },
};

static void
test_refusals(void)
{
    size_t root = strlen(dir) + strlen("/" PEFT_CONFIG ": ");

    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct peft p;
        struct err err;
        int rc = open_text(&p, refusals[i].text, &err);

        peft_close(&p);
        if (!tap_ok(rc == -1 && err.status == EX_DATAERR &&
                        strlen(err.what) > root &&
                        !strcmp(err.what + root, refusals[i].what),
                    "refused: %s", refusals[i].what))
            printf("# %d %s\n", rc, err.what);
    }
}

/* What is false, empty or null changes nothing. */
static void
test_nothing(void)
{
    struct peft p;
    struct err err;
    int rc = open_text(&p,
                       "{" LORA ", \"use_dora\": false, \"bias\": \"none\", "
                       "\"modules_to_save\": null, \"layer_replication\": [], "
                       "\"trainable_token_indices\": {}, \"rank_pattern\": {}, "
                       "\"alpha_pattern\": null, "
                       "\"init_lora_weights\": \"gaussian\"}",
                       &err);

    tap_ok(rc == 0 && p.r == 8 && p.alpha == 32 && !p.rslora,
           "keys that say nothing are no reason to refuse");
    peft_close(&p);
}

struct pair_case {
    const char *module;
    int64_t r;
    double alpha, scale;
};

static void
test_pairs(void)
{
    static const struct pair_case cases[] = {
        { "model.layers.0.mlp.up_proj", 8, 32, 4 },
        { "model.layers.0.self_attn.q_proj", 2, 32, 16 },
        { "base_model.model.model.layers.0.self_attn.q_proj", 2, 32, 16 },
        { "q_proj", 2, 32, 16 },
        { "xq_proj", 8, 32, 4 },              /* no dot before it */
        { "a.q_proj.x", 8, 32, 4 },           /* no end of the name */
        { "model.layers.1.q_proj", 2, 6, 3 }, /* the first, not the better */
        { "model.layers.1.k_proj", 5, 6, 1.2 },
        { "z.model.layers.1.v_proj", 8, 32, 4 }, /* ^ is the name's start */
        { "model.layers.1.v_proj", 8, 10, 1.25 },
        { "base_model.model.model.layers.1.v_proj", 8, 10, 1.25 },
    };
    struct peft p;
    struct err err;
    int rc = open_text(
        &p,
        "{" LORA ", \"rank_pattern\": {\"q_proj\": 2, "
        "\"layers\\\\.1\\\\.[qk]_proj\": 5}, \"alpha_pattern\": "
        "{\"layers.1.(q|k)_proj\": 6, \"^model.layers.1.v_proj\": 10}}",
        &err);

    if (!tap_ok(rc == 0, "patterns are read"))
        printf("# %s\n", err.what);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct pair_case *c = &cases[i];
        struct peft_pair pair = { 0 };

        rc = peft_pair(&p, c->module, &pair, &err);
        tap_ok(rc == 0 && pair.r == c->r && pair.alpha == c->alpha &&
                   fabs(pair.scale - c->scale) < 1e-15,
               "%s has rank %d and scale %g", c->module, (int)c->r, c->scale);
    }
    peft_close(&p);
}

static void
test_rslora(void)
{
    struct peft_pair pair = { 0 };
    struct peft p;
    struct err err;
    int rc = open_text(&p,
                       "{\"peft_type\": \"LORA\", \"r\": 16, \"lora_alpha\": "
                       "12, \"use_rslora\": true}",
                       &err);

    rc = rc ? rc : peft_pair(&p, "x", &pair, &err);
    tap_ok(rc == 0 && pair.scale == 3 && pair.alpha == 48,
           "rsLoRA: 12 / sqrt(16) is 3, and 48 / 16");
    peft_close(&p);
}

/* A pattern, with a number for "%zu". */
static void
put_numbered(struct str *text, const char *pattern, size_t number)
{
    const char *at = strstr(pattern, "%zu");

    str_add(text, pattern, at ? (size_t)(at - pattern) : strlen(pattern));
    if (at)
        str_addf(text, "%zu%s", number, at + 3);
}

static void
test_bad_pairs(void)
{
    struct peft_pair pair;
    struct peft p;
    struct err err;
    int rc = open_text(
        &p, "{" LORA ", \"alpha_pattern\": {\"k\": 1.3611294676837539e39}}",
        &err);

    rc = rc ? rc : peft_pair(&p, "x.k", &pair, &err);
    tap_ok(
        rc == -1 && err.status == EX_DATAERR &&
            strstr(
                err.what,
                "alpha_pattern.k is 1.361129467683754e+39 (expected what F32 "
                "holds)"),
        "an alpha beyond F32 is refused");
    peft_close(&p);
}

/* Matching is bounded over all modules and patterns, in steps and memory: an
 * adapter_config.json of 1 KB took 6.7 GB. */
static void
test_bounds(void)
{
    static const struct {
        const char *pattern;
        size_t n_before, n_patterns; /* "()" before it; it and its like */
        const char *what;
    } cases[] = {
        { "((a|a)+)+b", 0, 1, "regex takes more than " },
        { "((?:|q){20})((?1){20})((?2){20})((?3){20})[xy]", 0, 1,
          "bytes of memory for " },
        { "[xy]", 101, 1, "regex has 101 groups that capture (at most 100)" },
        { "(?:(?:(?:a{9}b){99}){99}){99}", 0, 1, "is too large" },
        { "(?:a{9}[^b]){%zu}", 0, 4097,
          "rank_pattern has 4097 patterns that are not names (at most 4096)" },
        { "(?:a{9}[^b]|[^c]d|e[^f]|g[^h]|i[^j]|k[^l]|m[^n]){900}%zu", 0, 999,
          "bytes compiled (at most 16777216)" },
        { "a%zu", 0, 65537, "has 65537 patterns (at most 65536)" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct str text = { 0 };
        struct peft_pair pair;
        struct err err = { 0 };
        struct peft p;
        int rc;

        str_adds(&text, "{" LORA ", \"rank_pattern\": {");
        for (size_t k = 0; k < cases[i].n_patterns; k++) {
            str_adds(&text, k ? ", \"" : "\"");
            for (size_t n = 0; n < cases[i].n_before; n++)
                str_adds(&text, "()");
            put_numbered(&text, cases[i].pattern, k);
            str_adds(&text, "\": 1");
        }
        str_adds(&text, "}}");
        rc = open_text(&p, text.s, &err);
        for (int k = 0; k < 3 && rc == 0; k++)
            rc = peft_pair(&p, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", &pair, &err);
        tap_ok(rc == -1 && err.status == EX_DATAERR &&
                   strstr(err.what, cases[i].what),
               "%zu bytes: %s", text.n,
               strlen(err.what) < 100 ? err.what
                                      : err.what + strlen(err.what) - 100);
        peft_close(&p);
        str_free(&text);
    }
}

/* As many patterns as modules, each a module's whole name: what peft writes
 * after EVA. */
static void
test_whole_names(void)
{
    enum { N_LAYERS = 40, N_NAMES = 7 * N_LAYERS };
    struct str text = { 0 }, name = { 0 };
    struct err err = { 0 };
    struct peft p;
    size_t n_right = 0;
    int rc;

    str_adds(&text, "{" LORA ", \"rank_pattern\": {");
    for (int i = 0; i < N_NAMES; i++)
        str_addf(&text, "%s\"model.layers.%d.mlp.m%d_proj\": %d", i ? ", " : "",
                 i / 7, i % 7, i + 1);
    str_adds(&text, "}}");
    rc = open_text(&p, text.s, &err);
    for (int i = 0; i < N_NAMES && rc == 0; i++) {
        struct peft_pair pair = { 0 };

        str_clear(&name);
        str_addf(&name, "model.layers.%d.mlp.m%d_proj", i / 7, i % 7);
        rc = peft_pair(&p, name.s, &pair, &err);
        n_right += pair.r == i + 1;
    }
    tap_ok(rc == 0 && n_right == N_NAMES, "%d modules with a pattern each %s",
           N_NAMES, err.what);
    peft_close(&p);
    str_free(&name);
    str_free(&text);
}

/* What is looked up takes what peft's regex does, the first of the file before
 * the others; but in a name a dot is a dot. */
static void
test_names(void)
{
    static const struct {
        const char *module;
        int64_t r;
    } cases[] = {
        { "m.q_proj", 1 },
        { "q_proj", 1 },
        { "xq_proj", 8 },
        { "a.mXq_proj", 8 },
        { "a.b", 2 },
        { "x.a.b", 2 },
        { "aXb", 8 },
        { "x.aXb", 8 },
        { "ab", 8 },
        { "x\ny.a.b", 2 },
        { "l1.k", 5 },
        { "l2.k", 4 },
        { "x.a-c", 9 },
        { "b.c", 10 },
        { "u.b.c", 10 },
        { "a-b-c", 8 },
        { "base_model.model.b.c", 10 },
    };
    struct err err;
    struct peft p;
    size_t n_right = 0, n = sizeof(cases) / sizeof(*cases);
    int rc = open_text(&p,
                       "{" LORA ", \"rank_pattern\": {\"q_proj\": 1, "
                       "\"a\\\\.b\": 2, \"a.b\": 3, \"l2.k\": 4, "
                       "\"l[12].k\": 5, \"l1.k\": 7, \"a\\\\-c\": 9, "
                       "\"a-c\": 11, \"b.c\": 10, \".*nothing\": 1}}",
                       &err);

    for (size_t i = 0; i < n && rc == 0; i++) {
        struct peft_pair pair = { 0 };

        rc = peft_pair(&p, cases[i].module, &pair, &err);
        n_right += pair.r == cases[i].r;
        if (pair.r != cases[i].r)
            printf("# %s: %d\n", cases[i].module, (int)pair.r);
    }
    tap_ok(rc == 0 && n_right == n, "%zu of %zu names are found %s", n_right, n,
           err.what);
    peft_close(&p);
}

/* Lists as long as the modules are many: 1 s a hundred million comparisons. */
static void
test_long_lists(void)
{
    enum { N = 100000 };
    static const char *const lists[] = { "target_modules", "exclude_modules",
                                         "layers_to_transform" };
    char name[64];
    struct err err = { 0 };

    for (size_t k = 0; k < 3; k++) {
        struct str text = { 0 };
        struct peft p;
        int rc;

        str_addf(&text, "{" LORA "%s, \"%s\": [",
                 k ? ", \"target_modules\": [\"q\"]" : "", lists[k]);
        for (int i = 0; i < N; i++)
            str_addf(&text, k == 2 ? "%d," : "\"x%d\",", N - i);
        str_adds(&text, k == 2 ? "0]}" : k ? "\"z\"]}" : "\"q\"]}");
        rc = open_text(&p, text.s, &err);
        for (int i = 0; i < N && rc == 0; i++) {
            snprintf(name, sizeof(name), "model.layers.%d.q", i);
            rc = peft_target(&p, name, &err);
        }
        tap_ok(rc == 0, "%d modules, %s as long %s", N, lists[k], err.what);
        peft_close(&p);
        str_free(&text);
    }
}

static void
test_dots(void)
{
    struct str text = { 0 }, name = { 0 };
    struct err err;
    struct peft p;
    int rc = open_text(&p, "{" LORA ", \"target_modules\": [\"a\"]}", &err);

    for (int i = 0; i < 64; i++)
        str_adds(&name, "a.");
    str_adds(&name, "a");
    tap_ok(rc == 0 && !peft_target(&p, name.s, &err), "a name of 64 dots");
    str_adds(&name, ".a");
    tap_ok(peft_target(&p, name.s, &err) < 0 &&
               strstr(err.what, "has 65 dots (at most 64)"),
           "65 are refused: %s", err.what);
    peft_close(&p);
    str_adds(&text, "{" LORA ", \"layers_pattern\": [\"a\"");
    for (int i = 1; i < 64; i++)
        str_adds(&text, ", \"a\"");
    rc = (str_adds(&text, "]}"), open_text(&p, text.s, &err));
    tap_ok(rc == 0, "a layers_pattern of 64 words");
    peft_close(&p);
    text.s[text.n - 2] = '\0';
    text.n -= 2;
    rc = (str_adds(&text, ", \"a\"]}"), open_text(&p, text.s, &err));
    tap_ok(rc < 0 &&
               strstr(err.what, "layers_pattern has 65 words (at most 64)"),
           "65 are refused: %s", err.what);
    peft_close(&p);
    str_free(&name);
    str_free(&text);
}

static void
test_targets(void)
{
    struct peft p;
    struct err err;
    int rc = open_text(&p,
                       "{" LORA ", \"target_modules\": [\"q_proj\", "
                       "\"layers.1.up_proj\"]}",
                       &err);

    tap_ok(rc == 0 && !peft_target(&p, "model.layers.0.q_proj", &err) &&
               !peft_target(&p, "q_proj", &err) &&
               !peft_target(&p, "model.layers.1.up_proj", &err),
           "targets are names, or their ends after a dot");
    tap_ok(peft_target(&p, "model.xq_proj", &err) == -1 &&
               err.status == EX_DATAERR &&
               strstr(err.what, "target_modules has no model.xq_proj"),
           "what is no target is refused");
    peft_close(&p);
    rc = open_text(&p, "{" LORA ", \"target_modules\": \"all-linear\"}", &err);
    tap_ok(rc == 0 && !peft_target(&p, "x", &err), "all-linear takes anything");
    peft_close(&p);
    rc = open_text(&p, "{" LORA ", \"target_modules\": \".*[qk]_proj\"}", &err);
    tap_ok(rc == 0 && !peft_target(&p, "model.q_proj", &err) &&
               peft_target(&p, "model.q_proj.x", &err) == -1 &&
               peft_target(&p, PEFT_ROOT "model.v_proj", &err) == -1 &&
               err.status == EX_DATAERR &&
               strstr(err.what, "target_modules has no model.v_proj, but"),
           "a pattern is that of whole names: %s", err.what);
    peft_close(&p);
}

/* As peft's check_target_module_exists(). */
static void
test_layers(void)
{
#define TARGETS LORA ", \"target_modules\": [\"q_proj\", \"up_proj\"]"
    static const struct {
        const char *more, *module;
        const char *why; /* NULL: it is taken */
    } cases[] = {
        { "\"exclude_modules\": []", "model.layers.1.q_proj", NULL },
        { "\"exclude_modules\": [\"layers.1.q_proj\"]", "model.layers.0.q_proj",
          NULL },
        { "\"exclude_modules\": [\"layers.1.q_proj\"]",
          "base_model.model.model.layers.1.q_proj",
          "exclude_modules has model.layers.1.q_proj, and so do the tensors" },
        { "\"exclude_modules\": \"\"", "model.layers.0.q_proj", NULL },
        { "\"exclude_modules\": \"layers.*\"", "model.layers.0.q_proj", NULL },
        { "\"exclude_modules\": \".*\\\\.1\\\\..*\"",
          "base_model.model.model.layers.0.q_proj", NULL },
        { "\"exclude_modules\": \".*\\\\.1\\\\..*\"",
          "base_model.model.model.layers.1.q_proj", "exclude_modules has" },
        { "\"exclude_modules\": \"(\"", "model.layers.0.q_proj",
          "exclude_modules: \"^(?:()$\": regex: missing closing" },
        { "\"exclude_modules\": \"((a|a)+)+b\"",
          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac",
          "regex takes more than 1049088 steps for 32 bytes of text" },
        { "\"exclude_modules\": \"x\"", "q\xff",
          "module \"q\xff\" is not UTF-8" },
        { "\"layers_to_transform\": [1]", "up_proj", NULL },
        { "\"layers_to_transform\": [10000000001]",
          "model.layers.10000000001.q_proj", NULL },
        { "\"layers_to_transform\": [1]", "model.layers.10000000001.q_proj",
          "does not have the layer of model.layers.10000000001.q_proj" },
        { "\"layers_to_transform\": [1, 9223372036854775807]",
          "model.layers.1.layers.99999999999999999999.q_proj",
          "does not have the layer of model.layers.1.layers.9" },
        { "\"layers_to_transform\": null", "model.layers.1.q_proj", NULL },
        { "\"layers_to_transform\": []", "model.layers.1.q_proj", NULL },
        { "\"layers_to_transform\": 1", "model.layers.1.q_proj", NULL },
        { "\"layers_to_transform\": [0, 12]", "model.layers.12.q_proj", NULL },
        { "\"layers_to_transform\": [0, 12]", "model.layers.2.q_proj",
          "layers_to_transform does not have the layer of" },
        { "\"layers_to_transform\": [1]", "lm.up_proj",
          "layers_to_transform does not have the layer of" },
        /* without a pattern the last number is the layer's */
        { "\"layers_to_transform\": [5]",
          "model.layers.3.mlp.experts.5.up_proj", NULL },
        { "\"layers_to_transform\": [3], \"layers_pattern\": \"layers\"",
          "model.layers.3.mlp.experts.5.up_proj", NULL },
        { "\"layers_to_transform\": [3], \"layers_pattern\": [\"h\", "
          "\"layers\"]",
          "model.layers.3.mlp.experts.5.up_proj", NULL },
        { "\"layers_to_transform\": [3], \"layers_pattern\": [\"h\"]",
          "model.layers.3.up_proj",
          "layers_to_transform does not have the layer of" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct str text = { 0 };
        struct err err = { 0 };
        struct peft p;
        int rc;

        str_addf(&text, "{" TARGETS ", %s}", cases[i].more);
        rc = open_text(&p, text.s, &err);
        rc = rc ? rc : peft_target(&p, cases[i].module, &err);
        tap_ok(cases[i].why ? rc == -1 && strstr(err.what, cases[i].why)
                            : rc == 0,
               "%s, %s %s", cases[i].more, cases[i].module, err.what);
        peft_close(&p);
        str_free(&text);
    }
}

static void
test_missing(void)
{
    struct peft p;
    struct err err = { 0 };

    tap_ok(peft_open(&p, "/nonexistent", &err) == -1 &&
               err.status == EX_NOINPUT,
           "no directory is EX_NOINPUT");
    peft_close(&p);
}

int
main(void)
{
    char path[64];

    if (!mkdtemp(dir))
        return 1;
    test_refusals();
    test_nothing();
    test_pairs();
    test_rslora();
    test_bad_pairs();
    test_bounds();
    test_whole_names();
    test_names();
    test_long_lists();
    test_dots();
    test_targets();
    test_layers();
    test_missing();
    snprintf(path, sizeof(path), "%s/" PEFT_CONFIG, dir);
    unlink(path);
    rmdir(dir);
    return tap_done();
}
