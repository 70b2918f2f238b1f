/* SPDX-License-Identifier: ISC */
/* core/format/saev against Python's json and hashlib and numpy's indexing:
 * test/ref/saev_cases.py. */
#include "core/format/saev.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/map.h"
#include "test/unit/ref.h"
#include "test/unit/tap.h"

static const char *dir;

/* "NAME<tab>HASH<tab>SHARDS<tab>IMAGES" */
static void
test_case(const char *name, const char *hash, size_t n_shards,
          size_t shard_imgs)
{
    struct str text = { 0 }, want = { 0 }, got = { 0 };
    char digest[SAEV_HASH_MAX] = "";
    struct saev s;
    struct err err = { 0 };

    ref_read(dir, name, ".json", &text);
    if (!tap_ok(saev_parse(&s, text.s, text.n, name, 0, &err) == 0,
                "saev %s: is read %s", name, err.what))
        return;
    saev_hash(&s, digest, &err);
    tap_ok(!strcmp(digest, *hash == '-' ? "" : hash),
           "saev %s: Python's hash %s", name, hash);
    tap_ok(s.n_shards == n_shards && s.shard_imgs == shard_imgs,
           "saev %s: %zu shards of %zu images", name, n_shards, shard_imgs);
    ref_read(dir, name, ".out", &want);
    tap_ok(saev_json(&s, &got, &err) == 0 && got.n == want.n &&
               !memcmp(got.s, want.s, got.n),
           "saev %s: json.dump's bytes", name);
    if (*hash != '-')
        tap_ok(s.version <= SAEV_1, "saev %s: the version is told", name);
    saev_free(&s);
    str_free(&text);
    str_free(&want);
    str_free(&got);
}

static void
test_cases(void)
{
    struct str text = { 0 };
    char *save = NULL, name[64], hash[80];
    size_t shards, imgs;

    ref_read(dir, "cases", "", &text);
    for (char *line = text.n ? strtok_r(text.s, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save))
        if (sscanf(line, "%63s %79s %zu %zu", name, hash, &shards, &imgs) == 4)
            test_case(name, hash, shards, imgs);
    tap_ok(text.n > 500, "saev: there were cases");
    str_free(&text);
}

/* One line of DIR/rows: does the view say the same, and back? */
static bool
row_agrees(const struct saev *s, const char *line)
{
    char name[64], view[8], layer[24];
    size_t row, img, place, token, shard, offset;
    int64_t patch;
    struct saev_view v;
    struct saev_place p;
    struct err err;
    enum saev_tokens tokens;

    if (sscanf(line, "%63s %7s %23s %zu %zu %zu %zu %" SCNd64 " %zu %zu", name,
               view, layer, &row, &img, &place, &token, &patch, &shard,
               &offset) != 10)
        return false;
    tokens = *view == 'c' ? SAEV_CLS : *view == 'i' ? SAEV_IMAGE : SAEV_ALL;
    if (saev_view_open(&v, s, tokens,
                       *layer == 'a' ? SAEV_ALL_LAYERS : atoll(layer),
                       &err) < 0 ||
        row >= v.n_rows)
        return false;
    p = saev_view_at(&v, row);
    return p.img == img && p.layer == place && p.token == token &&
           p.patch == patch && p.shard == shard && p.offset == offset &&
           saev_view_row(&v, img, place, token) == (int64_t)row;
}

static void
test_rows(void)
{
    struct str text = { 0 }, rows = { 0 };
    char *save = NULL, at[64] = "";
    struct saev s = { 0 };
    struct err err;
    size_t n = 0, wrong = 0;

    ref_read(dir, "rows", "", &rows);
    for (char *line = rows.n ? strtok_r(rows.s, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save)) {
        size_t k = strcspn(line, "\t");

        if (strlen(at) != k || strncmp(at, line, k) != 0) {
            snprintf(at, sizeof(at), "%.*s", (int)k, line);
            saev_free(&s);
            ref_read(dir, at, ".json", &text);
            if (saev_parse(&s, text.s, text.n, at, 0, &err) < 0)
                break;
        }
        n++;
        if (!row_agrees(&s, line) && wrong++ < 5)
            printf("# %s\n", line);
    }
    tap_ok(n > 1000 && wrong == 0,
           "saev: %zu rows of views lie where numpy finds them", n);
    saev_free(&s);
    str_free(&rows);
    str_free(&text);
}

/* A sound document with one member replaced, or left out (value ""). */
static void
document(struct str *text, const char *key, const char *value)
{
    static const char *const members[][2] = {
        { "vit_family", "\"clip\"" },
        { "vit_ckpt", "\"c\"" },
        { "layers", "[1, 2]" },
        { "n_patches_per_img", "3" },
        { "cls_token", "true" },
        { "d_vit", "4" },
        { "seed", "1" },
        { "n_imgs", "7" },
        { "data", "{}" },
        { "max_patches_per_shard", "24" },
    };
    bool found = false;

    str_clear(text);
    for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
        bool here = key && !strcmp(key, members[i][0]);
        const char *v = here ? value : members[i][1];

        found |= here;
        if (*v)
            str_addf(text, "%s\"%s\": %s", text->n ? ", " : "{", members[i][0],
                     v);
    }
    if (key && !found)
        str_addf(text, ", \"%s\": %s", key, value);
    str_addc(text, '}');
}

static void
test_refusals(void)
{
    static const struct {
        const char *key, *value, *what;
    } cases[] = {
        { "vit_family", "", "m: the key vit_family is missing" },
        { "vit_family", "3", "m: vit_family is 3 (expected a string)" },
        { "layers", "", "m: the key layers is missing" },
        { "layers", "[]", "m: layers is [] (expected 1 to 65536 integers)" },
        { "layers", "[1.0]",
          "m: layers is [1.0] (expected 1 to 65536 integers)" },
        { "layers", "[true]",
          "m: layers is [true] (expected 1 to 65536 integers)" },
        { "layers", "[2, 1, 2]",
          "m: layers is [2, 1, 2] (expected each layer once)" },
        { "d_vit", "0", "m: d_vit is 0 (expected an integer of at least 1)" },
        { "d_vit", "true",
          "m: d_vit is true (expected an integer of at least 1)" },
        { "d_vit", "4.0",
          "m: d_vit is 4.0 (expected an integer of at least 1)" },
        { "n_imgs", "-1",
          "m: n_imgs is -1 (expected an integer of at least 0)" },
        { "n_imgs", "99999999999999999999",
          "m: n_imgs is 99999999999999999999 (expected an integer of at least "
          "0)" },
        { "cls_token", "1", "m: cls_token is 1 (expected true or false)" },
        { "seed", "1.5", "m: seed is 1.5 (expected an integer)" },
        { "data", "[]", "m: data is [] (expected a string or an object)" },
        { "max_patches_per_shard", "7",
          "m: max_patches_per_shard is 7, but an image has 2 layers x 4 "
          "tokens (expected at least 8)" },
        { "d_vit", "4611686018427387904",
          "m: images of that shape and number are beyond 2^64 bytes" },
        { "n_patches_per_img", "9223372036854775807",
          "m: images of that shape and number are beyond 2^64 bytes" },
        { "n_imgs", "9223372036854775807",
          "m: images of that shape and number are beyond 2^64 bytes" },
        { "protocol", "\"3.0\"",
          "m: protocol is \"3.0\" (expected \"1.x\" or \"2.x\")" },
        { "max_patches_per_shard", "9223372036854775807",
          "m: images of that shape and number are beyond 2^64 bytes" },
    };
    struct str text = { 0 };
    struct saev s;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct err err = { 0 };

        document(&text, cases[i].key, cases[i].value);
        tap_ok(saev_parse(&s, text.s, text.n, "m", 0, &err) < 0 &&
                   err.status == EX_DATAERR && !strcmp(err.what, cases[i].what),
               "saev: %s", cases[i].what);
        if (strcmp(err.what, cases[i].what) != 0)
            printf("# %s\n", err.what);
    }
    str_free(&text);
}

/* What other versions call the members is no name in this one. */
static void
test_names(void)
{
    static const char *const extra[] = {
        "model",   "n_layers",   "dtype", "family",      "ckpt",
        "d_model", "n_examples", "n_ex",  "model_family"
    };
    static const char later[] =
        "{\"family\": \"clip\", \"ckpt\": \"c\", \"layers\": [1], "
        "\"patches_per_ex\": 3, \"cls_token\": true, \"d_model\": 4, "
        "\"seed\": 1, \"n_examples\": 7, \"data\": {}, "
        "\"max_patches_per_shard\": 24}";
    static const char old[] =
        "{\"width\": 1, \"height\": 1, \"model\": \"m\", \"n_layers\": 1, "
        "\"n_patches_per_img\": 1, \"d_vit\": 1, \"seed\": 1, \"n_imgs\": 1, "
        "\"n_patches_per_shard\": 9, \"data\": \"\", \"vit_ckpt\": \"x\", "
        "\"cls_token\": false}";
    static const char both[] =
        "{\"vit_family\": \"clip\", \"ckpt\": \"c\", \"layers\": [1], "
        "\"patches_per_ex\": 3, \"cls_token\": true, \"d_model\": 4, "
        "\"n_examples\": 7, \"data\": \"\", \"family\": \"x\", "
        "\"max_tokens_per_shard\": 24, \"protocol\": \"2.0\"}";
    static const char dtype[] =
        "{\"family\": \"clip\", \"ckpt\": \"c\", \"layers\": [1], "
        "\"patches_per_ex\": 3, \"cls_token\": true, \"d_model\": 4, "
        "\"n_examples\": 7, \"data\": \"\", \"dtype\": \"float16\", "
        "\"max_tokens_per_shard\": 24, \"protocol\": \"2.0\"}";
    struct str text = { 0 };
    struct err err;
    struct saev s;

    for (size_t i = 0; i < sizeof(extra) / sizeof(*extra); i++) {
        document(&text, extra[i], "[0]");
        if (tap_ok(saev_parse(&s, text.s, text.n, "m", SAEV_INPUT, &err) == 0 &&
                       s.n_imgs == 7 && s.d == 4 && s.n_layers == 2 &&
                       !strcmp(s.ckpt, "c") &&
                       !strcmp(saev_own_key(&s, extra[i]), extra[i]) &&
                       !strcmp(saev_own_key(&s, "d_vit"), "d_vit"),
                   "saev: another %s is a member like others", extra[i]))
            saev_free(&s);
    }
    if (saev_parse(&s, old, strlen(old), "m", 0, &err) == 0) {
        tap_ok(!saev_own_key(&s, "vit_ckpt") &&
                   !saev_own_key(&s, "cls_token") &&
                   !strcmp(saev_own_key(&s, "model"), "vit_ckpt") &&
                   !strcmp(saev_own_key(&s, "x"), "x"),
               "saev: what is taken from elsewhere has no other");
        saev_free(&s);
    }
    tap_ok(saev_parse(&s, later, strlen(later), "m", SAEV_INPUT, &err) < 0 &&
               !strcmp(err.what, "m: the key vit_family is missing"),
           "saev: a later version's names alone are none of this one");
    tap_ok(saev_parse(&s, both, strlen(both), "m", 0, &err) < 0 &&
               !strcmp(err.what, "m: has both vit_family and family "
                                 "(expected one)"),
           "saev: two names for one thing, in a later one");
    tap_ok(
        saev_parse(&s, dtype, strlen(dtype), "m", 0, &err) < 0 &&
            !strcmp(err.what, "m: dtype is \"float16\" (expected \"float32\")"),
        "saev: a protocol's dtype");
    str_free(&text);
}

static void
test_input(void)
{
    struct str text = { 0 };
    char a[SAEV_HASH_MAX], b[SAEV_HASH_MAX];
    struct saev s = { 0 }, counted = { 0 };
    struct saev_view v;
    struct err err = { 0 };

    document(&text, "n_imgs", "");
    tap_ok(saev_parse(&counted, text.s, text.n, "m", 0, &err) < 0 &&
               !strcmp(err.what, "m: the key n_imgs is missing"),
           "saev: on disk n_imgs must be there");
    tap_ok(saev_parse(&counted, text.s, text.n, "m", SAEV_INPUT, &err) == 0 &&
               !counted.n_imgs_known,
           "saev: a writer's input may leave it out");
    saev_set_n_imgs(&counted, 7, &err);
    saev_hash(&counted, a, &err);
    document(&text, NULL, NULL);
    saev_parse(&s, text.s, text.n, "m", SAEV_INPUT, &err);
    saev_hash(&s, b, &err);
    tap_ok(!strcmp(a, b) && strlen(a) == 64,
           "saev: counted or given, n_imgs makes the same hash");
    tap_ok(saev_shard_imgs(&s, 0) == 3 && saev_shard_imgs(&s, 2) == 1 &&
               saev_shard_nbytes(&s, 2) == 2 * 4 * 4 * 4,
           "saev: the last shard is short");
    tap_ok(saev_view_open(&v, &s, SAEV_ALL, 5, &err) < 0 &&
               !strcmp(err.what, "m: layer 5 is not in the dump"),
           "saev: a layer that is not listed");
    document(&text, "protocol", "\"1.1\"");
    saev_free(&s);
    tap_ok(saev_parse(&s, text.s, text.n, "m", SAEV_INPUT, &err) < 0 &&
               strstr(err.what, "has the keys of protocol 1.1"),
           "saev: a writer takes its own protocol alone: %s", err.what);
    document(&text, "cls_token", "false");
    saev_parse(&s, text.s, text.n, "m", 0, &err);
    tap_ok(saev_view_open(&v, &s, SAEV_CLS, 1, &err) < 0 &&
               !strcmp(err.what,
                       "m: the dump has no CLS token (cls_token is false)"),
           "saev: a CLS view of a dump without");
    saev_free(&s);
    *strchr(strstr(text.s, "per_img\""), '3') = '0';
    tap_ok(saev_parse(&s, text.s, text.n, "m", 0, &err) < 0 &&
               strstr(err.what, "expected at least 1 where cls_token is false"),
           "saev: images without tokens: %s", err.what);
    saev_free(&counted);
    str_free(&text);
}

int
main(void)
{
    dir = ref_dir();
    if (dir && ref_kept("saev_cases.py", dir, "numpy")) {
        test_cases();
        test_rows();
    }
    test_refusals();
    test_names();
    test_input();
    if (dir)
        ref_remove(dir);
    return tap_done();
}
