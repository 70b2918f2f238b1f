/* SPDX-License-Identifier: ISC */
/* core/format/stwant: what fits passes, what does not is told as found and
 * expected; the lines are written by hand. */
#include "core/format/stwant.h"

#include <string.h>

#include "test/unit/tap.h"

static const uint64_t shape[] = { 4, 8, 96 };
static const struct st_tensor tensor = {
    .name = "w", .dtype = DT_BF16, .n_dims = 3, .shape = shape
};

static const struct {
    struct st_want want;
    const char *line; /* NULL: it fits */
} cases[] = {
    { { .n_dims = 3, .shape = { 4, 8, 96 } }, NULL },
    { { .n_dims = 3, .shape = { ST_OPEN, 8, ST_OPEN } }, NULL },
    { { .n_dims = 3, .shape = { 4, 8, 95 }, .by = " by config.json" },
      "f: w is [4, 8, 96] (expected [4, 8, 95] by config.json)" },
    { { .n_dims = 2, .shape = { 4, 8 } },
      "f: w is [4, 8, 96] (expected [4, 8])" },
    { { .n_dims = 3, .shape = { 5, ST_OPEN, ST_OPEN }, .open = "e, rank, h" },
      "f: w is [4, 8, 96] (expected [5, rank, h])" },
    { { .n_dims = 1, .shape = { ST_OPEN }, .open = "rows, columns" },
      "f: w is [4, 8, 96] (expected [rows])" },
};

static void
told(int rc, const struct err *err, const char *line, const char *what)
{
    tap_ok(rc == -1 && err->status == EX_DATAERR && !strcmp(err->what, line),
           "%s: %s", what, err->what);
}

int
main(void)
{
    struct st_tensor t = tensor;
    struct err err = { 0 };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int rc = st_want("f", &t, &cases[i].want, &err);

        if (cases[i].line)
            told(rc, &err, cases[i].line, "st_want");
        else
            tap_ok(rc == 0 && !err.status, "st_want: %zu fits", i);
    }
    t.n_dims = 0;
    told(st_want_shape("f", &t, &cases[3].want, &err), &err,
         "f: w is [] (expected [4, 8])", "a scalar");
    t = tensor;
    t.dtype = DT_F64;
    told(st_want("f", &t, &cases[0].want, &err), &err,
         "f: w is F64 (expected BF16, F16 or F32)", "st_want");
    tap_ok(st_want_shape("f", &t, &cases[0].want, &err) == 0,
           "st_want_shape: of any type");
    told(st_missing("f", "w", &err), &err, "f: tensor w is missing",
         "st_missing");
    return tap_done();
}
