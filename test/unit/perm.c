/* SPDX-License-Identifier: ISC */
/* core/perm: orders and draws against numpy, chances, any split. */
#include "core/perm.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "test/unit/tap.h"

/* Runs numpy code; NULL: there is none. */
static FILE *
numpy(const char *script)
{
    const char *python = getenv("PYTHON");
    char command[2048];
    FILE *f;

    snprintf(command, sizeof(command), "%s -c 'import numpy' 2>/dev/null",
             python ? python : "python3");
    if (system(command) != 0)
        return NULL;
    snprintf(command, sizeof(command), "%s -c '%s'",
             python ? python : "python3", script);
    f = popen(command, "r");
    return f;
}

static struct perm_item *
items_of(const struct perm *perm, uint64_t first, size_t n)
{
    struct perm_item *items = xcalloc(n + 1, sizeof(*items));
    uint64_t *keys = xcalloc(n + 1, sizeof(*keys));

    perm_keys(perm, first, n, keys);
    for (size_t i = 0; i < n; i++)
        items[i] = (struct perm_item){ keys[i], first + i };
    free(keys);
    return items;
}

static void
test_order(struct par *par)
{
    static const char script[] =
        "import numpy as np\n"
        "for n in (1, 2, 24, 25, 1000, 100003):\n"
        "    for s, e in ((0, 0), (7, 3), (2**64 - 1, 2**63)):\n"
        "        k = np.random.Philox(key=s | e << 64).random_raw(n)\n"
        "        print(n, s, e, *np.argsort(k))\n";
    FILE *f = numpy(script);
    size_t n, n_cases = 0, n_wrong = 0;
    struct perm perm;
    uint64_t at;

    while (f && fscanf(f, "%zu %" SCNu64 " %" SCNu64, &n, &perm.seed,
                       &perm.epoch) == 3) {
        struct perm_item *items = items_of(&perm, 0, n);

        perm_sort(&perm, items, n, NULL, NULL, n_cases % 2 ? par : NULL);
        for (size_t i = 0; i < n; i++)
            n_wrong += fscanf(f, "%" SCNu64, &at) != 1 || items[i].at != at;
        n_cases++;
        free(items);
    }
    if (!f)
        tap_skip("the order is numpy's argsort", "no numpy");
    else
        tap_ok(pclose(f) == 0 && n_cases == 18 && n_wrong == 0,
               "the order is numpy's argsort: 6 sizes, 3 seeds");
}

static uint64_t
thrice(const void *ctx, uint64_t at)
{
    return *(const uint64_t *)ctx * at;
}

/* Items whose keys are made equal: the next words decide. */
static void
test_equal(void)
{
    static const char script[] =
        "import numpy as np\n"
        "k = np.random.Philox(key=[7, 3], counter=[0, 1, 0, 0])\n"
        "print(*np.argsort(k.random_raw(300)[::3]))\n";
    FILE *f = numpy(script);
    struct perm perm = { 7, 3 };
    struct perm_item items[100];
    size_t n_wrong = 0;
    uint64_t at, three = 3;

    for (size_t i = 0; i < 100; i++)
        items[i] = (struct perm_item){ 5, i };
    perm_sort(&perm, items, 100, thrice, &three, NULL);
    for (size_t i = 0; i < 100; i++)
        n_wrong += f && (fscanf(f, "%" SCNu64, &at) != 1 || items[i].at != at);
    if (!f)
        tap_skip("equal keys are told apart by the next words", "no numpy");
    else
        tap_ok(pclose(f) == 0 && n_wrong == 0,
               "equal keys are told apart by the next words");
    tap_ok(!perm_before(&perm, items, items, NULL, NULL),
           "perm_before: not for the same element");
}

/* Ranges of keys, sorted each for itself, give the whole order. */
static bool
split_equals(const struct perm *perm, size_t n, int bits)
{
    struct perm_item *whole = items_of(perm, 0, n);
    struct perm_item *all = items_of(perm, 0, n);
    struct perm_item *part = xcalloc(n, sizeof(*part));
    size_t done = 0;
    bool good = true;

    perm_sort(perm, whole, n, NULL, NULL, NULL);
    for (uint64_t range = 0; range < 1u << bits; range++) {
        size_t m = 0;

        for (size_t i = 0; i < n; i++)
            if (all[i].key >> (64 - bits) == range)
                part[m++] = all[i];
        perm_sort(perm, part, m, NULL, NULL, NULL);
        good &= !memcmp(part, whole + done, m * sizeof(*part));
        done += m;
    }
    free(whole);
    free(all);
    free(part);
    return good && done == n;
}

/* 5 elements under 12000 seeds: 119 degrees of freedom, 99.9 % lie below 173;
 * the seeds are fixed. */
static void
test_chances(void)
{
    static int count[55555];
    double chi2 = 0;
    int n_orders = 0;

    for (uint64_t seed = 0; seed < 12000; seed++) {
        struct perm perm = { seed, 0 };
        struct perm_item *items = items_of(&perm, 0, 5);
        size_t name = 0;

        perm_sort(&perm, items, 5, NULL, NULL, NULL);
        for (int i = 0; i < 5; i++)
            name = 10 * name + items[i].at;
        count[name]++;
        free(items);
    }
    for (size_t i = 0; i < 55555; i++)
        if (count[i]) {
            n_orders++;
            chi2 += (count[i] - 100.0) * (count[i] - 100.0) / 100;
        }
    tap_ok(n_orders == 120 && chi2 > 73 && chi2 < 173,
           "all 120 orders of 5 are as likely: chi-square %.1f of 119", chi2);
}

/* m = 3 2^62 refuses a quarter of the words: numpy's, by Python's integers. */
static void
test_below(void)
{
    static const char script[] =
        "import numpy as np\n"
        "x = [np.random.Philox(key=[7, 3], counter=[0, t, 1, 0])"
        ".random_raw(200).tolist() for t in range(40)]\n"
        "for m in (1, 2, 3, 1000, 2**32, 2**63 + 1, 3 * 2**62, 2**64 - 1):\n"
        "    for i in range(200):\n"
        "        ok = [x[t][i] * m for t in range(40)\n"
        "              if x[t][i] * m % 2**64 >= 2**64 % m]\n"
        "        print(m, i, ok[0] >> 64)\n";
    FILE *f = numpy(script);
    struct perm perm = { 7, 3 };
    uint64_t m, i, want;
    size_t n = 0, n_wrong = 0;

    while (f &&
           fscanf(f, "%" SCNu64 " %" SCNu64 " %" SCNu64, &m, &i, &want) == 3) {
        n++;
        n_wrong += perm_below(&perm, i, m) != want;
    }
    if (!f)
        tap_skip("perm_below: by the book", "no numpy");
    else
        tap_ok(pclose(f) == 0 && n == 1600 && n_wrong == 0,
               "perm_below: by the book, refused words too");
}

int
main(void)
{
    struct perm perm = { 1, 2 };
    struct par *par;
    struct err err;

    if (par_open(&par, 3, &err) < 0)
        return 1;
    test_order(par);
    test_equal();
    tap_ok(split_equals(&perm, 5000, 1) && split_equals(&perm, 5000, 7) &&
               split_equals(&perm, 300, 10),
           "ranges of keys, each sorted for itself, give the same order");
    test_chances();
    test_below();
    par_close(par);
    return tap_done();
}
