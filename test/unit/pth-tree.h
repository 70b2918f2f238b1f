/* SPDX-License-Identifier: ISC */
/* The tree of a checkpoint as text, in the notation of test/ref/pth_make.py. */
#ifndef TEST_UNIT_PTH_TREE_H
#define TEST_UNIT_PTH_TREE_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/pth.h"
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
static void tree_describe(struct str *out, struct pth *pth,
                          const struct pth_value *v, const char *path);

static void
describe_tensor(struct str *out, struct pth *pth, const struct pth_tensor *t)
{
    size_t size = dtype_size(t->dtype);
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
describe_items(struct str *out, struct pth *pth, const struct pth_value *v,
               const char *path)
{
    bool dict = v->kind == PTH_DICT;
    size_t n;
    struct pth_value **items = pth_items(v, &n);

    for (size_t i = 0; i < n; i += 1 + dict) {
        const struct pth_value *key = items[i];
        struct str below = { 0 };

        if (dict && key->kind == PTH_STR)
            str_addf(&below, "%s.%.*s", path, (int)key->n, key->u.s);
        else if (dict && (key->kind == PTH_INT || key->kind == PTH_BOOL))
            str_addf(&below, "%s.%" PRId64, path, key->u.i);
        else
            str_addf(&below, "%s[%zu]", path, i / (1 + dict));
        tree_describe(out, pth, items[i + dict], below.s);
        str_free(&below);
    }
}

static void
tree_describe(struct str *out, struct pth *pth, const struct pth_value *v,
              const char *path)
{
    const struct pth_global *g = NULL;
    size_t n;

    str_addf(out, "%s ", *path ? path : ".");
    pth_items(v, &n);
    switch (v->kind) {
    case PTH_DICT:
        str_addf(out, "DICT %zu\n", n / 2);
        describe_items(out, pth, v, path);
        return;
    case PTH_TUPLE:
    case PTH_LIST:
    case PTH_SET:
        str_addf(out, "LIST %zu\n", n);
        describe_items(out, pth, v, path);
        return;
    case PTH_TENSOR:
        describe_tensor(out, pth, v->u.tensor);
        break;
    case PTH_NONE:
        str_adds(out, "NONE");
        break;
    case PTH_STR:
        str_addf(out, "STR %.*s", (int)v->n, v->u.s);
        break;
    case PTH_INT:
    case PTH_BOOL:
        str_addf(out, "%s %" PRId64, v->kind == PTH_INT ? "INT" : "BOOL",
                 v->u.i);
        break;
    case PTH_FLOAT:
        str_addf(out, "FLOAT %016" PRIx64, double_bits(v->u.f));
        break;
    case PTH_GLOBAL:
    case PTH_OPAQUE:
        g = v->u.global;
        /* fall through */
    default:
        str_addf(out, "OPAQUE %s.%s", g ? g->module : "", g ? g->name : "");
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
