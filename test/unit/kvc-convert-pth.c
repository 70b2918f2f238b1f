/*
 * cmd/kvc-convert/pth against trees that Python wrote down: hand-made archives
 * by numpy (test/ref/pth_cases.py), and torch.save()'s own where torch is
 * installed (test/ref/pth_torch.py).
 */
#include "cmd/kvc-convert/pth.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/str.h"
#include "test/unit/tap.h"

/* One line a node: "PATH KIND VALUE". */
static void describe(struct str *out, const struct pth *pth,
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
        describe(out, pth, pth_item(v, i), below.s);
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
        str_addf(out, "FLOAT %a", f);
    else
        str_addf(out, "OPAQUE %s.%s", g ? g->module : "", g ? g->name : "");
}

static void
describe(struct str *out, const struct pth *pth, const struct pth_value *v,
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
test_no_file(void)
{
    struct pth *pth;
    struct err err = { 0 };

    tap_ok(pth_open(&pth, "/nowhere/x.pth", &err) < 0 && !pth &&
               err.status == EX_NOINPUT,
           "pth: a file that is not there: %s", err.what);
    tap_ok(pth_open(&pth, "/dev/null", &err) < 0 && err.status == EX_NOINPUT,
           "pth: a device: %s", err.what);
}

/* With a file as argument: what is in it. */
static int
show(const char *path)
{
    struct str s = { 0 };
    struct err err = { 0 };
    struct pth *pth;

    if (pth_open(&pth, path, &err) < 0) {
        printf("%d %s\n", err.status, err.what);
        return err.status;
    }
    describe(&s, pth, pth_root(pth), "");
    fputs(s.s, stdout);
    for (const struct pth_global *g = pth_globals(pth); g; g = g->next)
        printf("global %s.%s at byte %zu\n", g->module, g->name, g->at);
    str_free(&s);
    pth_close(pth);
    return 0;
}

int
main(int argc, char **argv)
{
    if (argc > 1)
        return show(argv[1]);
    test_no_file();
    return tap_done();
}
