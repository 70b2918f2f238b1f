/* SPDX-License-Identifier: ISC */
/*
 * core/format/zip against archives by Python's zipfile, which is an
 * independent reader of what it finds in them: test/ref/zip_cases.py.
 */
#include "core/format/zip.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/map.h"
#include "core/mem.h"
#include "test/unit/ref.h"
#include "test/unit/tap.h"

/* "NAME METHOD HEX" of a member, or the message. */
static void
describe(struct str *out, const struct zip *z, struct zip_member *m)
{
    struct err err = { 0 };
    struct zip_unpacked u = { 0 };
    const uint8_t *p = zip_data(&u, z, m, &err);

    str_addf(out, "%.*s ", (int)m->name_n, m->name);
    if (!p)
        str_adds(out, err.what);
    for (size_t i = 0; p && i < m->nbytes; i++)
        str_addf(out, "%02x", p[i]);
    str_addc(out, '\n');
    zip_unpacked_free(&u);
}

/* All members, by name. */
static void
describe_all(struct str *out, const struct str *file)
{
    struct zip z;
    struct err err = { 0 };

    str_clear(out);
    if (zip_open(&z, file->s, file->n, "f", &err) < 0)
        str_adds(out, err.what);
    else
        for (size_t i = 0; i < z.n_members; i++)
            describe(out, &z, z.members + i);
    zip_close(&z);
}

static void
test_cuts(const char *name, const struct str *file)
{
    struct err err = { 0 };
    size_t refused = 0;

    for (size_t n = 0; n < file->n; n++) {
        char *copy = xmalloc(n); /* so that ASan sees a read beyond it */
        struct zip z;

        memcpy(copy, file->s, n);
        refused += zip_open(&z, copy, n, "f", &err) < 0 &&
                   err.status == EX_DATAERR && !strncmp(err.what, "f: ", 3);
        zip_close(&z);
        free(copy);
    }
    tap_ok(refused == file->n, "zip: %s cut at any of %zu bytes is refused",
           name, file->n);
}

static void
test_case(const char *dir, const char *name)
{
    struct str file = { 0 }, want = { 0 }, got = { 0 };

    ref_read(dir, name, "", &file);
    ref_read(dir, name, ".want", &want);
    describe_all(&got, &file);
    if (!tap_ok(got.n == want.n && got.n > 0 && !memcmp(got.s, want.s, got.n),
                "zip: members of %s are zipfile's", name))
        printf("# %.200s\n", got.s);
    if (file.n < 4096)
        test_cuts(name, &file);
    str_free(&file);
    str_free(&want);
    str_free(&got);
}

/* By hand, APPNOTE 4.3: "a/b" holds "x", stored, CRC-32 0x8cdc1683. */
#define LOCAL "PK\3\4\24\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\3\0\0\0a/bx"
#define ENTRY(crc)                                                        \
    "PK\1\2\24\0\24\0\0\0\0\0\0\0\0\0" crc "\1\0\0\0\1\0\0\0\3\0\0\0\0\0" \
    "\0\0\0\0\0\0\0\0\0\0\0\0a/b"
#define END "PK\5\6\0\0\0\0\1\0\1\0\61\0\0\0\42\0\0\0\0\0"

static void
test_by_hand(const char *what, const char *bytes, size_t nbytes,
             const char *want)
{
    struct str file = { 0 }, got = { 0 };

    str_add(&file, bytes, nbytes);
    describe_all(&got, &file);
    tap_ok(got.n == strlen(want) && !memcmp(got.s, want, got.n),
           "zip: %s: %.*s", what, (int)strcspn(got.s, "\n"), got.s);
    str_free(&file);
    str_free(&got);
}

static void
test_crc(void)
{
    static const char right[] = LOCAL ENTRY("\x83\x16\xdc\x8c") END;
    static const char none[] = LOCAL ENTRY("\0\0\0\0") END;
    static const char wrong[] = LOCAL ENTRY("\1\0\0\0") END;

    test_by_hand("a right CRC", right, sizeof(right) - 1, "a/b 78\n");
    test_by_hand("a CRC of 0 was not computed", none, sizeof(none) - 1,
                 "a/b 78\n");
    test_by_hand("a wrong CRC", wrong, sizeof(wrong) - 1,
                 "a/b f: zip member a/b is damaged: its CRC is 8cdc1683 "
                 "(expected 00000001)\n");
}

static void
test_find(void)
{
    static const char bytes[] = LOCAL ENTRY("\0\0\0\0") END;
    struct zip z;
    struct err err = { 0 };

    if (!tap_ok(zip_open(&z, bytes, sizeof(bytes) - 1, "f", &err) == 0,
                "zip: one member opens %s", err.what))
        return;
    tap_ok(z.root_n == 1 && zip_find(&z, "b", 1) == z.members,
           "zip: a member is found below the root directory");
    tap_ok(!zip_find(&z, "a/b", 3) && !zip_find(&z, "", 0) &&
               !zip_find(&z, "c", 1) && !zip_find(&z, "ba", 2),
           "zip: no other name is found");
    zip_close(&z);
}

int
main(void)
{
    char *dir = ref_dir();

    test_crc();
    test_find();
    if (dir) {
        ref_each(ref_kept, "zip_cases.py", dir, "numpy", test_case);
        ref_remove(dir);
    }
    return tap_done();
}
