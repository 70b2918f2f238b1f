/* SPDX-License-Identifier: ISC */
/*
 * core/format/pth on any bytes as a file: the first and last elements of
 * each tensor are read, together and one by one, for every other size of the
 * file after it was said which ones will be.
 */
#include "core/format/pth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test/fuzz/must.h"

#define MOST 64 /* elements read of a tensor, from either end */

static void
read_window(struct pth *pth, const struct pth_tensor *t, size_t first, size_t n)
{
    size_t size = dtype_size(t->dtype);
    uint8_t *all = malloc(n * size), one[8];
    struct err err = { 0 };

    if (pth_read(pth, t, first, n, all, &err) < 0) {
        MUST(err.status == EX_DATAERR || err.status == EX_IOERR);
        free(all);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        MUST(pth_read(pth, t, first + i, 1, one, &err) == 0);
        MUST(!memcmp(one, all + i * size, size));
    }
    free(all);
}

static void
check(struct pth *pth, const struct pth_value *v, size_t *left)
{
    size_t n_items;
    struct pth_value **items = pth_items(v, &n_items);

    if (*left == 0)
        return;
    --*left;
    if (v->kind == PTH_TENSOR) {
        const struct pth_tensor *t = v->u.tensor;
        size_t n = t->n_elements < MOST ? t->n_elements : MOST;

        read_window(pth, t, 0, n);
        read_window(pth, t, t->n_elements - n, n);
    }
    for (size_t i = 0; i < n_items; i++)
        check(pth, items[i], left);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    char path[64];
    struct err err = { 0 };
    struct pth pth;
    size_t left = 1000;

    if (fd < 0)
        fd = memfd_create("fuzz", 0);
    MUST(ftruncate(fd, (off_t)size) == 0 &&
         pwrite(fd, data, size, 0) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (pth_open(&pth, path, 0, NULL, &err) < 0) {
        MUST(!pth.root && (err.status == EX_DATAERR || err.status == EX_IOERR));
        MUST(strlen(err.what) > 0 && !strncmp(err.what, path, strlen(path)));
    } else {
        MUST(pth.nbytes / 1032 <= size);
        check(&pth, pth.root, &left);
    }
    pth_close(&pth);
    return 0;
}
