/* SPDX-License-Identifier: ISC */
/* Packed weights of a directory by names alone: which tensors belong together,
 * and numbers worked out by hand.  test/packed.bats has models of all forms. */
#include "core/model/form.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/hash.h"
#include "core/model/linear_file.h"
#include "test/unit/tap.h"

#define STACK "model.layers.0.mlp.experts.down_proj"
#define FC    "transformer.h.0.mlp.c_fc"

static char dir_path[] = "/tmp/form.XXXXXX";

/* A file in the directory: the header's length before it, if it has one. */
static void
put_file(const char *name, const char *header, const void *data, size_t n)
{
    char path[64],
        size[8] = { (char)strlen(header), (char)(strlen(header) >> 8) };
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir_path, name);
    f = fopen(path, "wb");
    if (!f || (n && fwrite(size, 1, 8, f) != 8) || fputs(header, f) < 0 ||
        (n && fwrite(data, 1, n, f) != n) || fclose(f) != 0)
        printf("# %s cannot be written\n", path);
}

static bool
open_dir(struct stdir *dir, struct quantization *q, struct err *err)
{
    bool fine = !stdir_open(dir, dir_path, err) && !stdir_map(dir, err) &&
                !quantization_load(q, dir_path, err);

    tap_ok(fine, "a directory is opened: %s", fine ? "" : err->what);
    return fine;
}

/* MXFP4 as gpt-oss has it: 2 experts [2, 32], whose bytes say expert and row.
 */
static void
test_stack(void)
{
    const struct stdir_tensor *scales;
    struct form_memory memory = { 0 };
    struct form_tensors t;
    struct quantization q;
    enum form_role role;
    struct str text = { 0 };
    uint8_t data[2 * 2 * 16 + 4] = { 0 };
    struct stdir dir;
    struct linear l;
    struct err err = { 0 };
    float row[32];
    size_t n;

    memset(data + 48, 0xf2, 16); /* expert 1, row 1: 1, -6, 1, -6, .. */
    memcpy(data + 64, (uint8_t[]){ 127, 127, 127, 128 }, 4);
    put_file("config.json",
             "{\"quantization_config\":{\"quant_method\":\"mxfp4\","
             "\"modules_to_not_convert\":[\"model.layers.*.self_attn\"]}}",
             NULL, 0);
    put_file("model.safetensors",
             "{\"" STACK "_blocks\":{\"dtype\":\"U8\",\"shape\":[2,2,1,16],"
             "\"data_offsets\":[0,64]},\"" STACK "_scales\":{\"dtype\":\"U8\","
             "\"shape\":[2,2,1],\"data_offsets\":[64,68]}}",
             data, sizeof(data));
    if (!open_dir(&dir, &q, &err))
        return;
    quantization_text(&text, &q);
    tap_ok(!strcmp(text.s, "mxfp4 (mxfp4)"), "in words: %s", text.s);
    tap_ok(form_look(&t, &q, &dir, "layers.0.mlp.experts.down_proj", &err) ==
                   1 &&
               t.n == 2 && t.out == 2 && t.in == 32,
           "a stack of two experts, without its root");
    tap_ok(form_bind(&l, &t, 1, &memory, &err) == 0 && l.out == 2 && l.in == 32,
           "one of them is bound");
    weight_read(row, &l.w, 1, 0, 32);
    tap_ok(row[0] == 2 && row[1] == -12 && row[31] == -12,
           "its numbers are E2M1 * 2^(scale - 127)");
    tap_ok(form_find(&l, &q, &memory, &dir, STACK, 0, 0, &err) < 0 &&
               strstr(err.what, "is of 2 experts"),
           "as one layer's weights they are refused");
    scales = stdir_find(&dir, STACK "_scales");
    tap_ok(form_of(&t, &role, &n, &q, &dir, scales, &err) == 1 &&
               role == FORM_SCALE && n == strlen(STACK) &&
               t.tensor[FORM_CODES]->t->n_dims == 4 &&
               !strcmp(t.group->type, "mxfp4"),
           "its scales are known by their name");
    tap_ok(form_look(&t, &q, &dir, "layers.0.mlp.experts.up_proj", &err) == 0,
           "another module is not there");
    str_free(&text);
    form_memory_free(&memory);
    quantization_free(&q);
    stdir_close(&dir);
}

static void
test_fp8(void)
{
    /* [2, 2] with one scale in a text_config's form, next to a plain one */
    static const uint8_t data[] = { 0x38, 0xb8, 0x40, 0x00, 0, 0,
                                    0x40, 0x40, 0,    0,    0, 0 };
    struct form_memory memory = { 0 };
    const struct stdir_tensor *bias;
    struct quantization q;
    struct linear_dir in = { .packed = &q, .memory = &memory };
    char *parts[LUT_MAX_PARTS], hex[3][HASH_MAX_HEX];
    struct weight_code code;
    struct stdir dir;
    struct linear l;
    struct err err = { 0 };
    float row[2];

    put_file("config.json",
             "{\"text_config\":{\"quantization_config\":{\"quant_method\":"
             "\"fp8\",\"activation_scheme\":\"static\"}}}",
             NULL, 0);
    put_file("model.safetensors",
             "{\"" FC ".weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,2],"
             "\"data_offsets\":[0,4]},\"" FC ".weight_scale\":{\"dtype\":"
             "\"F32\",\"shape\":[],\"data_offsets\":[4,8]},\"x.weight\":{"
             "\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[8,12]}}",
             data, sizeof(data));
    if (!open_dir(&dir, &q, &err))
        return;
    in.dir = &dir;
    tap_ok(linear_file_find(&l, &bias, &in, FC, &err) == 1 && l.w.code && !bias,
           "a packed layer is found by its name");
    weight_read(row, &l.w, 0, 0, 2);
    tap_ok(row[0] == 3 && row[1] == -3, "1 and -1 times a scale of 3");
    weight_read(row, &l.w, 1, 0, 2);
    tap_ok(row[0] == 6 && row[1] == 0, "2 and 0 times it");
    for (int i = 0; i < 3; i++) {
        struct hash *hash = hash_new(HASH_XXH3);

        form_hash(hash, &l.w, 2);
        hash_end(hash, hex[i]);
        code = *l.w.code;
        if (i == 0)
            code.kind = CODE_I8;
        else
            code.scale = "abcd";
        l.w.code = &code;
    }
    tap_ok(strcmp(hex[0], hex[1]) != 0 && strcmp(hex[1], hex[2]) != 0,
           "its kind and its scale count in its hash");
    tap_ok(linear_file_find(&l, &bias, &in, "x", &err) == 1 && !l.w.code,
           "a plain layer next to it is plain");
    tap_ok(linear_file_parts(&dir, &q, FC, parts) == 1,
           "a packed layer stands for itself");
    free(parts[0]);
    in.family = family_find("gpt2");
    tap_ok(linear_file_find(&l, &bias, &in, FC, &err) == -1 &&
               err.status == EX_DATAERR &&
               strstr(err.what, FC " is packed, which is not supported of a "
                                   "gpt2, whose weights are [inputs, outputs]"),
           "refused: %s", err.what);
    form_memory_free(&memory);
    quantization_free(&q);
    stdir_close(&dir);
}

int
main(void)
{
    char command[64];

    if (!mkdtemp(dir_path))
        return 1;
    test_stack();
    test_fp8();
    snprintf(command, sizeof(command), "rm -r %s", dir_path);
    return system(command) ? 1 : tap_done();
}
