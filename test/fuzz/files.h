/* SPDX-License-Identifier: ISC */
/*
 * For the fuzzers of what reads files: an input cut into pieces, and a
 * directory to lay them in, which is gone at exit.
 */
#ifndef TEST_FUZZ_FILES_H
#define TEST_FUZZ_FILES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/le.h"
#include "test/fuzz/must.h"

struct bytes {
    const uint8_t *data;
    size_t n;
};

/* What stands before the next "\n%%\n", which is taken off 'rest'. */
static inline struct bytes
next_part(struct bytes *rest)
{
    const uint8_t *cut = rest->n ? memmem(rest->data, rest->n, "\n%%\n", 4) : 0;
    struct bytes part = *rest;

    if (cut)
        part.n = (size_t)(cut - rest->data);
    cut = cut ? cut + 4 : rest->data + rest->n;
    rest->n -= (size_t)(cut - rest->data);
    rest->data = cut;
    return part;
}

static char fuzz_dir[128];

static void
fuzz_dir_remove(void)
{
    char command[160];

    snprintf(command, sizeof(command), "rm -r '%s'", fuzz_dir);
    MUST(system(command) == 0);
}

static void
fuzz_dir_make(void)
{
    const char *tmp = getenv("TMPDIR");

    if (*fuzz_dir)
        return;
    snprintf(fuzz_dir, sizeof(fuzz_dir), "%s/fuzz.XXXXXX", tmp ? tmp : "/tmp");
    MUST(mkdtemp(fuzz_dir));
    atexit(fuzz_dir_remove);
}

/* The path of a name in the directory; good for eight more calls. */
static inline const char *
fuzz_path(const char *name)
{
    static char paths[8][256];
    static unsigned turn;
    char *path = paths[turn++ % 8];

    fuzz_dir_make();
    snprintf(path, sizeof(paths[0]), "%s/%s", fuzz_dir, name);
    return path;
}

/* A file of the directory. */
static inline const char *
fuzz_file(const char *name, struct bytes part)
{
    const char *path = fuzz_path(name);
    FILE *f = fopen(path, "wb");

    MUST(f && fwrite(part.data, 1, part.n, f) == part.n && fclose(f) == 0);
    return path;
}

/*
 * A file of safetensors whose header is the part, so that mutations of it get
 * far: its length stands before it, and behind it the data that it asks for
 * (up to FUZZ_MAX_DATA bytes), the header again and again.
 */
#define FUZZ_MAX_DATA ((size_t)1 << 20)

static inline size_t
fuzz_st_nbytes(struct bytes part)
{
    static const char key[] = "data_offsets";
    const uint8_t *p = part.data, *end = p + part.n;
    unsigned long long most = 0;

    while (p < end && (p = memmem(p, (size_t)(end - p), key, sizeof(key) - 1)))
        for (; p < end && *p != ']'; p++) {
            char number[24] = "";
            size_t n = (size_t)(end - p - 1);

            if (*p != ',')
                continue;
            memcpy(number, p + 1, n < 20 ? n : 20);
            if (strtoull(number, NULL, 10) > most)
                most = strtoull(number, NULL, 10);
        }
    return most < FUZZ_MAX_DATA ? (size_t)most : FUZZ_MAX_DATA;
}

static inline const char *
fuzz_st(const char *name, struct bytes part)
{
    size_t n = fuzz_st_nbytes(part);
    struct bytes file = { .n = 8 + part.n + n };
    uint8_t *bytes = malloc(file.n);
    const char *path;

    put_le64(bytes, part.n);
    for (size_t i = 0; i < part.n + n; i++)
        bytes[8 + i] = part.n ? part.data[i % part.n] : 0;
    file.data = bytes;
    path = fuzz_file(name, file);
    free(bytes);
    return path;
}

/* The directory of a model, made once: a seed of model, its config.json
 * and the header of its tensors. */
static inline const char *
fuzz_model(const char *seed)
{
    static uint8_t text[1 << 16];
    struct bytes rest = { .data = text };
    const char *path = fuzz_path("model");
    FILE *f;

    if (mkdir(path, 0700) < 0)
        return path;
    f = fopen(seed, "rb");
    MUST(f && (rest.n = fread(text, 1, sizeof(text), f)) > 0);
    fclose(f);
    fuzz_file("model/config.json", next_part(&rest));
    fuzz_st("model/model.safetensors", next_part(&rest));
    return path;
}

#endif
