/* SPDX-License-Identifier: ISC */
/*
 * core/image/picture against Pillow, byte by byte, on files of all kinds
 * (test/ref/picture_cases.py), and what it must refuse.
 */
#include "core/image/picture.h"

#include <stdlib.h>
#include <string.h>

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

int
main(void)
{
    const char *dir = ref_dir();

    if (dir) {
        ref_each("picture_cases.py", dir, "PIL", test_case);
        ref_remove(dir);
    }
    return tap_done();
}
