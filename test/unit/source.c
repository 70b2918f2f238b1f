/* SPDX-License-Identifier: ISC */
/*
 * core/image/source and tar against Python: test/ref/source_cases.py walks
 * directories as torchvision does, and reads the archives that its tarfile
 * writes.  Messages are by the header's words.
 */
#include "core/image/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/image/tar.h"
#include "core/mem.h"
#include "test/unit/ref.h"

static char warned[256];

static void
keep_warning(const char *what)
{
    snprintf(warned, sizeof(warned), "%s", what);
}

/* A line for each image, or at last the message. */
static void
describe(struct str *out, const char *path)
{
    struct image_source *s;
    struct source_image image = { 0 };
    struct err err = { 0 };
    size_t n = 0, count;
    int rc = image_source_open(&s, path, &err);

    str_clear(out);
    warned[0] = '\0';
    while (rc == 0 && (rc = image_source_next(s, &image, &err)) > 0) {
        rc = image_source_read(s, &image, &err);
        if (rc < 0)
            break;
        n++;
        str_addf(out, "%s\t%s\t%lld\t", image.path.s,
                 image.class.n ? image.class.s : "", (long long)image.label);
        for (size_t i = 0; i < image.bytes.n; i++)
            str_addf(out, "%02x", (uint8_t)image.bytes.s[i]);
        str_addc(out, '\n');
    }
    count = s ? image_source_count(s) : 0;
    if (rc < 0)
        str_addf(out, "%d %s", err.status, err.what);
    else if (count && count != n)
        str_addf(out, "%zu counted", count);
    source_image_free(&image);
    image_source_close(s);
}

/* Says what differs. */
static bool
same(const struct str *is, const char *want, const char *name)
{
    bool good = is->n == strlen(want) && !memcmp(is->s, want, is->n);

    tap_ok(good, "%s: is as it should be", name);
    if (!good)
        printf("# is %.200s\n# not %.200s\n", is->n ? is->s : "", want);
    return good;
}

static void
test_case(const char *dir, const char *name)
{
    struct str is = { 0 }, want = { 0 };

    ref_read(dir, name, ".want", &want);
    describe(&is, ref_path(dir, name));
    str_addc(&want, '\0');
    same(&is, want.s, name);
    str_free(&is);
    str_free(&want);
}

/* A file of so many bytes, and what is said of it after its name. */
static void
test_bad(const char *dir, const char *what, const void *bytes, size_t n,
         const char *want)
{
    const char *path = ref_path(dir, "f");
    struct str is = { 0 };
    FILE *f = fopen(path, "wb");
    size_t from;

    if (!f || fwrite(bytes, 1, n, f) < n || fclose(f) != 0)
        exit(1);
    describe(&is, path);
    while (is.n && strchr(is.s, '\n')) { /* images before it */
        from = (size_t)(strchr(is.s, '\n') + 1 - is.s);
        memmove(is.s, is.s + from, is.n - from + 1);
        is.n -= from;
    }
    from = is.n > 3 + strlen(path) && !strncmp(is.s + 3, path, strlen(path))
               ? 3 + strlen(path)
               : 0;
    tap_ok(from && !strncmp(is.s, "65 ", 3) && !strcmp(is.s + from, want),
           "%s: refused with 65 (%s)", what, is.n ? is.s : "nothing");
    str_free(&is);
}

/* A header with another field, and its sum. */
static void
put(uint8_t *header, size_t at, const char *field, size_t n)
{
    unsigned sum = 0;

    memcpy(header + at, field, n);
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
}

static void
test_bad_tars(const char *dir)
{
    struct str small = { 0 };
    uint8_t tar[10240], more[20480];

    if (!ref_read(dir, "small", "", &small) || small.n != sizeof(tar))
        exit(1);
    memcpy(tar, small.s, sizeof(tar));
    test_bad(dir, "cut in the data", tar, 514,
             ": the archive ends after 514 bytes (expected at least 515)");
    test_bad(dir, "cut in the padding", tar, 1000,
             ": the archive ends after 1000 bytes (expected at least 1024)");
    test_bad(dir, "cut in a header", tar, 1030,
             ": the archive ends after 1030 bytes (expected at least 1536)");
    test_bad(dir, "cut in the first header", tar, 511,
             ": is neither a directory, a PNG, a JPEG or a tar archive, nor a "
             "list of paths, one a line");
    memcpy(more, tar, 1024);
    memcpy(more + 1024, tar, sizeof(tar));
    more[1024] ^= 1;
    test_bad(dir, "a wrong sum", more, 11264,
             ": byte 1024: not the header of a member (its checksum differs)");
    more[1024] ^= 1;
    put(more + 1024, 124, "0000000000x", 12);
    test_bad(dir, "a size that is no number", more, 11264,
             ": byte 1024: the size of the member is not a number");
    put(more + 1024, 124, "\200\377\377\377\377\377\377\377\377\377\377\377",
        12);
    test_bad(dir, "a size in base 256", more, 11264,
             ": byte 1024: the size of the member is not a number");
    put(more + 1024, 124, "77777777777", 12);
    test_bad(dir, "an image of 8 GiB that is not there", more, 1536,
             ": the archive ends after 1536 bytes (expected at least "
             "8589936128)");
    put(more + 1024, 124, "00010000000", 12); /* 2 MiB */
    test_bad(dir, "an image of 2 MiB that is not there", more, 1600,
             ": the archive ends after 1600 bytes (expected at least "
             "2098688)");
    put(more + 1024, 156, "L", 1);
    test_bad(dir, "a name of 2 MiB", more, 11264,
             ": byte 1536: a name or its records have 2097152 bytes (expected "
             "at most 65536)");
    put(more + 1024, 124, "00000000003", 12);
    put(more + 1024, 156, "x", 1);
    test_bad(dir, "pax records that are none", more, 11264,
             ": byte 1536: a record of a pax header is not \"LENGTH "
             "KEY=VALUE\"");
    put(more + 1024, 124, "00000000012", 12);
    memcpy(more + 1536, "10 size=1\n", 10);
    test_bad(dir, "a size in pax records", more, 11264,
             ": byte 1536: a size in a pax header is not supported");
    memcpy(more + 1536, "abc\0\0\0\0\0\0", 10);
    put(more + 1024, 124, "00000000003", 12);
    put(more + 1024, 156, "0", 1);
    put(more + 1024, 0, "a.cls\0", 6);
    test_bad(dir, "a label that is a word", more, 11264,
             ": a.cls: is not an integer, a label");
    memcpy(more + 1536, "12 ", 3);
    memcpy(more + 2048, more + 1024, 1024);
    test_bad(dir, "two labels of one key", more, 11264,
             ": a.cls: a second label of one key");
    put(tar, 0, "a.txt\0", 6);
    test_bad(dir, "an archive without an image", tar, sizeof(tar),
             ": there is no image in the archive (.png, .jpg, .jpeg)");
    str_free(&small);
}

static void
test_ends(const char *dir)
{
    struct str is = { 0 }, small = { 0 };
    const char *path;

    ref_read(dir, "small", "", &small);
    path = ref_path(dir, "f");
    for (int joined = 0; joined < 2; joined++) {
        FILE *f = fopen(path, "wb");

        if (!f || fwrite(small.s, 1, joined ? small.n : 1024, f) == 0 ||
            (joined && fwrite(small.s, 1, small.n, f) < small.n) ||
            fclose(f) != 0)
            exit(1);
        describe(&is, path);
        same(&is, "a.png\t\t-1\t616263\n", "an archive");
        tap_ok(strstr(warned, joined ? "what follows the archive's end"
                                     : "it may have been cut") != NULL,
               "an archive %s is warned of",
               joined ? "with another after it" : "without an end");
    }
    str_free(&is);
    str_free(&small);
}

static void
test_bad_others(const char *dir)
{
    struct str is = { 0 }, want = { 0 };
    char path[300];

    test_bad(dir, "an empty file", "", 0, ": there is no image");
    test_bad(dir, "a list of empty lines", "\n\n", 2, ": there is no image");
    test_bad(dir, "a GIF", "GIF89a\0\1\0", 9,
             ": is neither a directory, a PNG, a JPEG or a tar archive, nor a "
             "list of paths, one a line");
    test_bad(dir, "a list with a name of nothing", "/nowhere/x.png\n", 15,
             ": /nowhere/x.png: No such file or directory");
    snprintf(path, sizeof(path), "%s/loop", dir);
    if (mkdir(path, 0700) < 0)
        exit(1);
    describe(&is, path);
    str_addf(&want, "65 %s: there is no image", path);
    same(&is, want.s, "an empty directory");
    snprintf(path, sizeof(path), "%s/loop/a", dir);
    if (mkdir(path, 0700) < 0 || chdir(path) < 0 || symlink("../..", "up") < 0)
        exit(1);
    snprintf(path, sizeof(path), "%s/loop", dir);
    describe(&is, path);
    tap_ok(is.n > 30 && strstr(is.s, "a/up/loop: a link to a directory above"),
           "a loop of links is refused (%s)", is.s);
    snprintf(path, sizeof(path), "%s/loop/a/up", dir);
    if (unlink(path) < 0)
        exit(1);
    snprintf(path, sizeof(path), "%s/loop/a/b.png", dir);
    if (mkfifo(path, 0700) < 0)
        exit(1);
    snprintf(path, sizeof(path), "%s/loop", dir);
    describe(&is, path);
    str_clear(&want);
    str_addf(&want, "65 %s: a/b.png: is not a regular file", path);
    same(&is, want.s, "a FIFO in a directory");
    str_free(&is);
    str_free(&want);
}

/* XXH3 of names and sizes, and with 'bytes' of these: the definition. */
static void
test_hash(const char *dir)
{
    struct str names = { 0 };
    char is[HASH_MAX_HEX], want[HASH_MAX_HEX];
    struct err err = { 0 };
    struct image_source *s;
    struct source_image image = { 0 };

    for (int bytes = 0; bytes < 2; bytes++) {
        struct hash *h = hash_new(HASH_XXH3), *by_hand = hash_new(HASH_XXH3);

        str_clear(&names);
        str_add(&names, "2/a.png\0\7\0\0\0\0\0\0\0", 16);
        str_adds(&names, bytes ? "2/a.png" : "");
        str_add(&names, "c/b.png\0\7\0\0\0\0\0\0\0", 16);
        str_adds(&names, bytes ? "c/b.png" : "");
        hash_add(by_hand, names.s, names.n);
        hash_end(by_hand, want);
        if (image_source_open(&s, dir, &err) < 0 ||
            image_source_hash(s, h, bytes, &err) < 0)
            exit(1);
        hash_end(h, is);
        tap_ok(!strcmp(is, want), "the hash %s is that of its definition",
               bytes ? "with bytes" : "of names and sizes");
        tap_ok(image_source_next(s, &image, &err) == 1 && image.label == 0 &&
                   !strcmp(image.path.s + image.name_at, "2/a.png") &&
                   image_source_next(s, &image, &err) == 1 &&
                   image.label == 1 && image_source_next(s, &image, &err) == 0,
               "and the images begin anew");
        image_source_close(s);
    }
    source_image_free(&image);
    str_free(&names);
}

int
main(void)
{
    char *dir = ref_dir(), path[300];

    err_warn_hook(keep_warning);
    if (!dir)
        return tap_done();
    ref_each(ref_run, "source_cases.py", dir, "tarfile", test_case);
    if (tap_failed == 0) {
        test_bad_tars(dir);
        test_ends(dir);
        snprintf(path, sizeof(path), "%s/hash", dir);
        test_hash(path);
        test_bad_others(dir);
    }
    if (chdir("/") < 0)
        return 1;
    ref_remove(dir);
    return tap_done();
}
