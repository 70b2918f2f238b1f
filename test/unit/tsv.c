/* SPDX-License-Identifier: ISC */
/* Tables for people: the columns are laid out by hand. */
#include "core/tsv.h"

#include <string.h>

#include "test/unit/tap.h"

static void
is(struct str *got, const char *want, const char *what)
{
    tap_ok(got->n == strlen(want) &&
               !memcmp(got->s ? got->s : "", want, got->n),
           "%s", what);
    str_free(got);
}

/* All of a table at once. */
static void
whole(bool counts, const char *tsv, const char *want, const char *what)
{
    struct tsv t = { .counts = counts };
    struct str to = { 0 };

    tsv_add(&t, tsv, strlen(tsv), TSV_BLOCK, &to);
    tap_ok(to.n == 0, "%s: no block yet", what);
    tsv_add(&t, NULL, 0, TSV_END, &to);
    is(&to, want, what);
}

/* A line each time: the header waits, and columns only grow. */
static void
at_once(void)
{
    static const char *const lines[][2] = {
        { "step\tloss\n", "" },
        { "1\t1.23456\n", "step     loss\n   1  1.23456\n" },
        { "100000\t1\n", "100000        1\n" },
        { "7\t1\n", "     7        1\n" },
    };
    struct tsv t = { .counts = true };
    struct str to = { 0 };

    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        tsv_add(&t, lines[i][0], strlen(lines[i][0]), TSV_NOW, &to);
        is(&to, lines[i][1], "a line at once");
    }
    tsv_add(&t, NULL, 0, TSV_END, &to);
    is(&to, "", "nothing is left");
}

/* 100 000 rows are not held: some 64 KiB are. */
static void
endless(void)
{
    struct tsv t = { .counts = true };
    struct str to = { 0 };
    size_t most = 0, n = 0, n_wrong = 0;

    tsv_add(&t, "id\ttoken\n", 9, TSV_BLOCK, &to);
    for (int i = 0; i < 100000; i++) {
        tsv_add(&t, "12345\tis\n", 9, TSV_BLOCK, &to);
        most = t.held.n > most ? t.held.n : most;
        if (i == 99999)
            tsv_add(&t, NULL, 0, TSV_END, &to);
        for (const char *p = to.s; p && p < to.s + to.n; p += 10, n++)
            n_wrong += memcmp(p, n ? "12345  is\n" : "   id  token\n",
                              n ? 10 : 13) != 0,
                p += n ? 0 : 3;
        str_clear(&to);
    }
    tap_ok(n == 100001 && n_wrong == 0,
           "an endless table: %zu lines, %zu wrong", n, n_wrong);
    tap_ok(most < 70000, "an endless table holds %zu bytes", most);
    str_free(&to);
}

int
main(void)
{
    whole(false, "dtype\tbytes\tname\nF32\t12345\ta\nBF16\t4\tlong\n",
          "dtype  bytes  name\nF32    12345  a\nBF16       4  long\n",
          "numbers are on the right");
    whole(true, "id\tbytes\tname\n12345\t1234567\t99999\n1\t1234\tx\n",
          "   id      bytes  name\n12345  1,234,567  99999\n"
          "    1       1234  x\n",
          "counts of five digits have separators, ids and names none");
    whole(true, "seed\t123456\nn_imgs\t50000\nmemory: total\t1234567890\n",
          "seed                  123456\nn_imgs                50,000\n"
          "memory: total  1,234,567,890\n",
          "of a name and a value, the name says what counts");
    whole(true, "file\trows/1\nseed\t123456\n", "file  rows/1\nseed  123456\n",
          "a path in the first row is no header");
    whole(true, "a\tb\tc\n1\t\t\n2\tx\t\n", "a  b  c\n1\n2  x\n",
          "no spaces at the ends of lines");
    whole(true, "a\tb\n1\t2\n\n{\"x\": 1}\nlonger\tc\n1\t20000",
          "a  b\n1  2\n\n{\"x\": 1}\nlonger  c\n1\t20000",
          "lines without a tab stay, and another table follows; half a line");
    whole(true, "\xe4\xb8\xad\tn\nb\t1\n", "\xe4\xb8\xad  n\nb   1\n",
          "wide characters have two columns");
    at_once();
    endless();
    return tap_done();
}
