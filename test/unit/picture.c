/* SPDX-License-Identifier: ISC */
/*
 * core/image/picture against Pillow, byte by byte, on files of all kinds
 * (test/ref/picture_cases.py), and what it must refuse.
 */
#include "core/image/picture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/mem.h"
#include "test/unit/ref.h"
#include "test/unit/tap.h"

/* Decodes a copy of just these bytes, so that ASan sees a read beyond them. */
static int
decode(struct picture *p, const char *data, size_t n, struct err *err)
{
    char *copy = xmalloc(n ? n : 1);
    int rc;

    memcpy(copy, data, n);
    *err = (struct err){ 0 };
    rc = picture_decode(p, copy, n, PICTURE_MAX_PIXELS, err);
    free(copy);
    return rc;
}

/* Whether it is as picture_cases.py's want() describes it. */
static bool
same(const struct picture *p, const struct str *want)
{
    struct str got = { 0 };
    bool good;

    str_addf(&got, "%zu %zu %d %d\n", p->width, p->height, p->orientation,
             p->grey16);
    str_add(&got, p->rgb, 3 * p->width * p->height);
    good = got.n == want->n && !memcmp(got.s, want->s, got.n);
    str_free(&got);
    return good;
}

static void
test_case(const char *dir, const char *name)
{
    struct str file = { 0 }, want = { 0 };
    struct picture p;
    struct err err;

    ref_read(dir, name, "", &file);
    ref_read(dir, name, ".want", &want);
    if (decode(&p, file.s, file.n, &err) < 0) {
        tap_ok(false, "picture: %s: %s", name, err.what);
    } else {
        tap_ok(same(&p, &want), "picture: %s is Pillow's", name);
        if (p.orientation > 1) {
            ref_read(dir, name, ".turned", &want);
            tap_ok(picture_turn(&p, &err) == 0 && same(&p, &want),
                   "picture: %s is turned as by Pillow", name);
        }
    }
    picture_free(&p);
    str_free(&file);
    str_free(&want);
}

/* A reason that ends in "*" goes on in the words of a library. */
static void
test_refused(const char *dir, const char *name, const char *why)
{
    size_t n = strcspn(why, "*");
    struct str file = { 0 };
    struct picture p;
    struct err err;
    int rc;

    ref_read(dir, name, "", &file);
    rc = decode(&p, file.s, file.n, &err);
    tap_ok(rc < 0 && err.status == EX_DATAERR && !p.rgb &&
               !strncmp(err.what, why, n) && !err.what[n] == !why[n],
           "picture: %s is refused: %s", name, rc < 0 ? err.what : "it is not");
    picture_free(&p);
    str_free(&file);
}

static void
test_refusals(const char *dir)
{
    struct str lines = { 0 };
    struct rusage before, after;
    char *save = NULL;

    ref_read(dir, "refused", "", &lines);
    getrusage(RUSAGE_SELF, &before);
    for (char *name = strtok_r(lines.s, "\t", &save); name;
         name = strtok_r(NULL, "\t", &save))
        test_refused(dir, name, strtok_r(NULL, "\n", &save));
    getrusage(RUSAGE_SELF, &after);
    tap_ok(after.ru_maxrss - before.ru_maxrss < 64 << 10,
           "picture: what is refused takes less than 64 MiB");
    str_free(&lines);
}

static void
test_cuts(const char *dir, const char *name)
{
    struct str file = { 0 };
    struct picture p;
    struct err err;
    size_t refused = 0;

    ref_read(dir, name, "", &file);
    for (size_t n = 0; n < file.n; n++) {
        refused += decode(&p, file.s, n, &err) < 0 && err.status == EX_DATAERR;
        picture_free(&p);
    }
    tap_ok(file.n > 0 && refused == file.n,
           "picture: %s cut at any of %zu bytes is refused", name, file.n);
    str_free(&file);
}

static void
test_limit(const char *dir, const char *name)
{
    struct str file = { 0 };
    struct picture p;
    struct err err;

    ref_read(dir, name, "", &file);
    tap_ok(
        picture_decode(&p, file.s, file.n, 62, &err) < 0 &&
            !strcmp(err.what, "7 x 9 = 63 pixels (at most 62: --max-pixels)"),
        "picture: %s is too large by a pixel", name);
    tap_ok(picture_decode(&p, file.s, file.n, 63, &err) == 0,
           "picture: %s is as large as it may be", name);
    picture_free(&p);
    str_free(&file);
}

int
main(void)
{
    const char *dir = ref_dir();

    if (dir) {
        ref_each(ref_kept, "picture_cases.py", dir, "PIL", test_case);
        if (tap_n > 2) {
            test_refusals(dir);
            test_cuts(dir, "png-3-4-1-33x17");
            test_cuts(dir, "jpeg-2-0-17x9");
            test_cuts(dir, "jpeg-2-1-17x9");
            test_limit(dir, "png-2-8-0-7x9");
        }
        ref_remove(dir);
    }
    return tap_done();
}
