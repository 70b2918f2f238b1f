/* SPDX-License-Identifier: ISC */
/* cmd/st-inspect/sums: any bytes as the list of hash --check, and as names in
 * it; written as hash writes it, what was read is read again. */
#include "cmd/st-inspect/sums.h"
#include "test/fuzz/files.h"

static bool
same(const struct str *a, const struct str *b)
{
    return !a->s == !b->s && a->n == b->n &&
           (a->n == 0 || !memcmp(a->s, b->s, a->n));
}

static void
check(const struct sums_line *e)
{
    size_t n = strlen(e->digest);

    MUST(n == (e->kind == HASH_SHA256 ? 64 : 32));
    MUST(strspn(e->digest, "0123456789abcdef") == n);
    MUST(e->file.s && (!e->tensor.s || e->tensor.n > 0));
}

/* As hash writes it. */
static void
put(struct str *to, const struct sums_line *e)
{
    str_addf(to, "%s\t%s\t0\t", hash_name(e->kind), e->digest);
    str_esc(to, e->file.s, e->file.n);
    str_addc(to, '\t');
    str_esc(to, e->tensor.s, e->tensor.n);
    str_addc(to, '\n');
}

static void
check_again(const struct sums_line *v, size_t n)
{
    struct sums_list again = { 0 };
    struct str text = { 0 };
    struct err err;

    for (size_t i = 0; i < n; i++)
        put(&text, &v[i]);
    MUST(sums_parse(&again, text.s, text.n, "f", &err) == 0);
    MUST(again.n == n);
    for (size_t i = 0; i < n; i++)
        MUST(again.v[i].kind == v[i].kind &&
             !strcmp(again.v[i].digest, v[i].digest) &&
             same(&again.v[i].file, &v[i].file) &&
             same(&again.v[i].tensor, &v[i].tensor));
    sums_free(&again);
    str_free(&text);
}

/* Any bytes as names. */
static void
check_names(char *text, size_t n)
{
    struct sums_line e = {
        .kind = HASH_XXH3,
        .digest = "99aa06d3014798d86001c324468d497f",
        .file = { .s = text, .n = n },
        .tensor = { .s = n ? text : NULL, .n = n },
    };

    check_again(&e, 1);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text = malloc(n + 1); /* no more: ASan sees who reads on */
    struct sums_list sums = { 0 };
    struct err err = { 0 };

    MUST(text);
    if (n)
        memcpy(text, data, n);
    text[n] = '\0';
    if (sums_parse(&sums, text, n, "f", &err) == 0) {
        for (size_t i = 0; i < sums.n; i++)
            check(&sums.v[i]);
        check_again(sums.v, sums.n);
    } else {
        MUST(err.status == EX_DATAERR && *err.what);
    }
    sums_free(&sums);
    check_names(text, n);
    free(text);
    return 0;
}
