/* The tree of a checkpoint as text, in the notation of test/ref/pth_make.py. */
#ifndef TEST_UNIT_KVC_CONVERT_TREE_H
#define TEST_UNIT_KVC_CONVERT_TREE_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/kvc-convert/pth.h"
#include "core/mem.h"
#include "core/str.h"

static uint64_t
double_bits(double f)
{
    uint64_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

/* One line a node: "PATH KIND VALUE". */
static void tree_describe(struct str *out, const struct pth *pth,
                          const struct pth_value *v, const char *path);

static void
describe_tensor(struct str *out, const struct pth *pth,
                const struct pth_tensor *t)
{
    size_t size = dtype_table[t->dtype].bits / 8;
    uint8_t *data = xmalloc(t->n_elements * size);
    struct err err = { 0 };

    str_addf(out, "TENSOR %s", dtype_table[t->dtype].name);
    for (size_t i = 0; i < t->n_dims; i++)
        str_addf(out, " %" PRId64, t->shape[i]);
    str_adds(out, " :");
    if (pth_read(pth, t, 0, t->n_elements, data, &err) < 0)
        str_adds(out, err.what);
    else
        for (size_t i = 0; i < t->n_elements * size; i++)
            str_addf(out, "%02x", data[i]);
    free(data);
}

static void
describe_items(struct str *out, const struct pth *pth,
               const struct pth_value *v, const char *path)
{
    for (size_t i = 0; i < pth_n(v); i++) {
        struct str below = { 0 };
        int64_t k;
        size_t n;
        const char *s = NULL;

        if (pth_kind(v) == PTH_DICT)
            s = pth_str(pth_key(v, i), &n);
        if (s)
            str_addf(&below, "%s.%.*s", path, (int)n, s);
        else if (pth_kind(v) == PTH_DICT && pth_int(pth_key(v, i), &k))
            str_addf(&below, "%s.%" PRId64, path, k);
        else
            str_addf(&below, "%s[%zu]", path, i);
        tree_describe(out, pth, pth_item(v, i), below.s);
        str_free(&below);
    }
}

static void
describe_plain(struct str *out, const struct pth_value *v)
{
    const struct pth_global *g = pth_global(v);
    int64_t i = 0;
    double f = 0;
    size_t n = 0;
    const char *s = pth_str(v, &n);

    if (pth_kind(v) == PTH_NONE)
        str_adds(out, "NONE");
    else if (s)
        str_addf(out, "STR %.*s", (int)n, s);
    else if (pth_int(v, &i))
        str_addf(out, "%s %" PRId64, pth_kind(v) == PTH_INT ? "INT" : "BOOL",
                 i);
    else if (pth_float(v, &f))
        str_addf(out, "FLOAT %016" PRIx64, double_bits(f));
    else
        str_addf(out, "OPAQUE %s.%s", g ? g->module : "", g ? g->name : "");
}

static void
tree_describe(struct str *out, const struct pth *pth, const struct pth_value *v,
              const char *path)
{
    str_addf(out, "%s ", *path ? path : ".");
    switch (pth_kind(v)) {
    case PTH_DICT:
    case PTH_LIST:
        str_addf(out, "%s %zu\n", pth_kind(v) == PTH_DICT ? "DICT" : "LIST",
                 pth_n(v));
        describe_items(out, pth, v, path);
        return;
    case PTH_TENSOR:
        describe_tensor(out, pth, pth_tensor(v));
        break;
    default:
        describe_plain(out, v);
    }
    str_addc(out, '\n');
}

static void
tree_difference(const struct str *got, const struct str *want)
{
    size_t i = 0, line = 0;

    for (; i < got->n && i < want->n && got->s[i] == want->s[i]; i++)
        if (got->s[i] == '\n')
            line = i + 1;
    if (line < got->n && line < want->n)
        printf("# got  %.*s\n# want %.*s\n", (int)strcspn(got->s + line, "\n"),
               got->s + line, (int)strcspn(want->s + line, "\n"),
               want->s + line);
}

#endif
