/* SPDX-License-Identifier: ISC */
/*
 * core/image/tar and source on any bytes, as a file: no member has more than
 * the file, and what is refused is so by its name.  The sums of headers are set
 * right first, or no mutation of one would get far.
 */
#include "core/image/tar.h"

#include <fcntl.h>

#include "core/image/source.h"
#include "test/fuzz/files.h"

static void
set_sums(uint8_t *data, size_t n)
{
    for (size_t at = 0; at + TAR_BLOCK <= n; at += TAR_BLOCK) {
        uint8_t *h = data + at;
        unsigned sum = 0;

        if (memcmp(h + 257, "ustar", 5) != 0)
            continue;
        memset(h + 148, ' ', 8);
        for (size_t i = 0; i < TAR_BLOCK; i++)
            sum += h[i];
        snprintf((char *)h + 148, 8, "%06o", sum);
    }
}

static void
check_tar(const char *path, size_t size)
{
    struct tar t = { .fd = open(path, O_RDONLY), .name = "f" };
    struct str bytes = { 0 };
    struct err err = { 0 };
    size_t n = 0;
    int rc;

    MUST(t.fd >= 0);
    while ((rc = tar_next(&t, &err)) > 0) {
        MUST(t.path.n > 0 && strlen(t.path.s) == t.path.n);
        str_clear(&bytes);
        if (n++ % 2 == 0 && (rc = tar_read(&t, &bytes, &err)) < 0)
            break;
        MUST(rc < 0 || bytes.n == 0 || bytes.n == t.nbytes);
        MUST(bytes.n <= size && t.at <= size);
    }
    MUST(rc == 0 || (err.status == EX_DATAERR && !strncmp(err.what, "f: ", 3)));
    MUST(rc < 0 || t.at == size);
    str_free(&bytes);
    tar_free(&t);
    close(t.fd);
}

static void
check_source(const char *path, size_t size)
{
    struct source_image image = { 0 };
    struct image_source *s;
    struct err err = { 0 };
    int rc;

    MUST(image_source_open(&s, path, &err) == 0);
    while ((rc = image_source_next(s, &image, &err)) > 0)
        MUST(image.is_read && image.path.n > 0 &&
             (image.bytes.n == image.nbytes || image.bytes.n == 0) &&
             image.bytes.n <= size);
    MUST(rc == 0 || err.status == EX_DATAERR);
    source_image_free(&image);
    image_source_close(s);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    struct bytes file = { copy, size };
    const char *path;

    if (size)
        memcpy(copy, data, size);
    set_sums(copy, size);
    path = fuzz_file("f", file);
    check_tar(path, size);
    if (tar_sniff(copy, size))
        check_source(path, size);
    free(copy);
    return 0;
}
