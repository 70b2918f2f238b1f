/* SPDX-License-Identifier: ISC */
/* Lists of numbers and ranges: what they are, by hand, and what is refused. */
#include "core/numbers.h"

#include <stdio.h>
#include <string.h>

#include "core/str.h"
#include "test/unit/tap.h"

/* The list of texts, "" after the last, is 'want'; or its error. */
static void
is(const char *const *texts, size_t end, bool sorted, const char *want)
{
    struct numbers list = { 0 };
    struct str got = { 0 }, said = { 0 };
    struct err err = { 0 };
    int rc = 0;

    for (; *texts && rc == 0; texts++) {
        str_addf(&said, "%s\"%s\"", said.n ? " " : "", *texts);
        rc = numbers_add(&list, "--latents", *texts, "latent", end, &err);
    }
    if (sorted)
        numbers_sort(&list);
    for (size_t i = 0; i < list.n; i++)
        str_addf(&got, "%s%u", i ? " " : "", list.v[i]);
    if (rc < 0) {
        str_clear(&got);
        str_addf(&got, "%d %s", err.status, err.what);
    }
    tap_ok(!strcmp(got.s, want), "%s of %zu%s: %s (got %s)", said.s, end,
           sorted ? ", sorted" : "", want, got.s);
    str_free(&got);
    str_free(&said);
    numbers_free(&list);
}

#define IS(end, sorted, want, ...) \
    is((const char *const[]){ __VA_ARGS__, NULL }, end, sorted, want)

int
main(void)
{
    char text[99];

    IS(200, false, "3 17 100 101 102", "3,17,100-102");
    IS(8, false, "7 0 1 2 5", "7,0-2", "5");
    IS(8, true, "0 1 2 5 7", "7,0-2", "5");
    IS(1, false, "0", "0-0");
    IS(65536, false, "65535 8", "65535", "008");

    IS(8, false, "2 --latents: latent 8, but there are 8 (from 0)", "3,7-8");
    IS(1, false, "2 --latents: latent 1, but there is 1 (from 0)", "1");
    IS(8, false, "2 --latents: latent 4 is there twice", "4,5,3-6");
    IS(8, false, "2 --latents: latent 3 is there twice", "3", "3");
    for (const char *const *bad =
             (const char *const[]){ "", "x", "-1", "+1", "1-", "1-2-3", "3-2",
                                    " 1", "1 ", "1.0", "0x1",
                                    "18446744073709551616", NULL };
         *bad; bad++) {
        snprintf(text, sizeof(text),
                 "2 --latents: \"%s\" is not a number or a range (as in "
                 "3,17,100-120)",
                 *bad);
        IS(8, false, text, *bad);
    }
    IS(8, false,
       "2 --latents: \"\" is not a number or a range (as in 3,17,100-120)",
       "1,,2");
    return tap_done();
}
