/* SPDX-License-Identifier: ISC */
/* Linear layers of a directory by their names alone: what is found, and what is
 * refused, by messages written by hand. */
#include "core/model/linear_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/le.h"
#include "test/unit/tap.h"

struct tensor {
    const char *name;
    int rows, cols; /* cols -1: a vector */
};

/* A file of zeros, opened; its path is gone. */
static int
open_tensors(struct stdir *dir, const struct tensor *tensors, size_t n)
{
    char path[] = "/tmp/linear_file.XXXXXX", size[8] = { 0 };
    static const char zeros[1024];
    struct str s = { 0 };
    struct err err = { 0 };
    int fd = mkstemp(path), at = 0, rc = -1;

    for (size_t i = 0; i < n; i++) {
        const struct tensor *t = &tensors[i];
        int numbers = t->cols < 0 ? t->rows : t->rows * t->cols;

        str_addf(&s, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%d", i ? "," : "{",
                 t->name, t->rows);
        if (t->cols >= 0)
            str_addf(&s, ",%d", t->cols);
        str_addf(&s, "],\"data_offsets\":[%d,%d]}", at, at + 4 * numbers);
        at += 4 * numbers;
    }
    str_addc(&s, '}');
    put_le32(size, (uint32_t)s.n);
    if (fd >= 0 && write(fd, size, 8) == 8 &&
        write(fd, s.s, s.n) == (ssize_t)s.n &&
        write(fd, zeros, (size_t)at) == at)
        rc = stdir_open(dir, path, &err);
    if (rc == 0)
        rc = stdir_map(dir, &err);
    if (rc)
        printf("# %s\n", err.what);
    close(fd);
    unlink(path);
    str_free(&s);
    return rc;
}

#define OPEN(dir, ...)                                            \
    open_tensors(&dir, (const struct tensor[]){ __VA_ARGS__ },    \
                 sizeof((const struct tensor[]){ __VA_ARGS__ }) / \
                     sizeof(struct tensor))

static int
find_layer(struct linear *l, const struct stdir_tensor **bias,
           const struct stdir *dir, const struct model_family *family,
           const char *name, struct err *err)
{
    const struct linear_dir in = { dir, family, NULL, NULL };

    return linear_file_find(l, bias, &in, name, err);
}

static void
test_found(void)
{
    const struct stdir_tensor *bias;
    struct stdir dir = { 0 };
    struct linear l;
    struct err err = { 0 };

    tap_ok(OPEN(dir, { "x.q.weight", 3, 5 }, { "x.q.bias", 3, -1 },
                { "x.k.weight", 2, 5 }, { "h.1.mlp.c_fc.weight", 3, 5 }) == 0,
           "a file is opened");
    tap_ok(find_layer(&l, &bias, &dir, NULL, "model.x.q", &err) == 1 &&
               l.out == 3 && l.in == 5 && l.w.data && !l.bias && bias &&
               !strcmp(bias->t->name, "x.q.bias"),
           "a layer with its bias, of a file without \"model.\"");
    tap_ok(find_layer(&l, &bias, &dir, NULL, "x.k", &err) == 1 && l.out == 2 &&
               !bias,
           "a layer without a bias");
    tap_ok(find_layer(&l, &bias, &dir, family_find("gpt2"),
                      "model.transformer.h.1.mlp.c_fc", &err) == 1 &&
               l.by_k && l.out == 5 && l.in == 3 &&
               find_layer(&l, &bias, &dir, family_find("gpt2"), "x.k", &err) ==
                   1 &&
               !l.by_k &&
               find_layer(&l, &bias, &dir, family_find("llama"), "h.1.mlp.c_fc",
                          &err) == 1 &&
               !l.by_k && l.out == 3,
           "[in, out] is a layer of a family that stores it so, and no other");
    tap_ok(find_layer(&l, &bias, &dir, NULL, "x.v", &err) == 0,
           "a layer that is not there");
    stdir_close(&dir);
}

static void
test_parts(void)
{
    char *parts[LUT_MAX_PARTS];
    struct stdir dir = { 0 };
    size_t n;

    tap_ok(OPEN(dir, { "model.x.gate_up_proj.weight", 2, 2 }) == 0,
           "a file is opened");
    n = linear_file_parts(&dir, NULL, "model.x.gate_up_proj", parts);
    if (tap_ok(n == 1 && !strcmp(parts[0], "model.x.gate_up_proj"),
               "a layer that is fused in the file stands for itself"))
        free(parts[0]);
    n = linear_file_parts(&dir, NULL, "model.x.qkv_proj", parts);
    tap_ok(n == 3 && !strcmp(parts[0], "model.x.q_proj") &&
               !strcmp(parts[2], "model.x.v_proj"),
           "one that is not stands for its parts");
    for (size_t i = 0; i < n; i++)
        free(parts[i]);
    stdir_close(&dir);
}

static void
test_refused(void)
{
    static const struct {
        const char *name, *what;
    } cases[] = {
        { "vector", "vector.weight is [3] (expected [outputs, inputs])" },
        { "empty", "empty.weight is empty" },
        { "bias", "bias.bias is [2, 2] (expected [outputs])" },
        { "short", "short.bias has 1 numbers (expected 2, the outputs of "
                   "its weight)" },
        { "h.0.mlp.c_fc", "h.0.mlp.c_fc.weight is [inputs, outputs] in a gpt2, "
                          "and no model_type" },
    };
    struct stdir dir = { 0 };

    tap_ok(OPEN(dir, { "vector.weight", 3, -1 }, { "empty.weight", 0, 4 },
                { "bias.weight", 2, 2 }, { "bias.bias", 2, 2 },
                { "short.weight", 2, 2 }, { "short.bias", 1, -1 },
                { "transformer.h.0.mlp.c_fc.weight", 3, 3 }) == 0,
           "a file is opened");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct stdir_tensor *bias;
        struct linear l;
        struct err err = { 0 };

        tap_ok(find_layer(&l, &bias, &dir, NULL, cases[i].name, &err) == -1 &&
                   err.status == EX_DATAERR && strstr(err.what, cases[i].what),
               "refused: %s", err.what);
    }
    stdir_close(&dir);
}

int
main(void)
{
    test_found();
    test_parts();
    test_refused();
    return tap_done();
}
