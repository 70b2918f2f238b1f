/* SPDX-License-Identifier: ISC */
/* Experts of one tensor, of hand-made files: numbers by a formula, plain and
 * packed, by rows and by columns, and products with them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/bind.h"
#include "core/model/model.h"
#include "test/unit/tap.h"

enum { E = 2, H = 64, I = 32, X = 5, ROOM = 1 << 18 };

#define EXPERTS "model.layers.0.mlp.experts."

static char dir_path[] = "/tmp/stack.XXXXXX";

/* E2M1, and so exact in every form. */
static const float numbers[] = { 0,  .5f,  1,  1.5f,  2,  3,  4,  6,
                                 -0, -.5f, -1, -1.5f, -2, -3, -4, -6 };

/* The code of a number: part 0 to 2 is gate, up, down. */
static unsigned
code_of(size_t part, size_t e, size_t r, size_t c)
{
    return (unsigned)((part * 5 + e * 3 + r * 7 + c * 11 + r * c) % 16);
}

/* ---- files ---- */

static struct {
    struct str header;
    char data[ROOM];
    size_t n;
} file;

static void
add(const char *name, const char *dtype, const char *shape, const void *data,
    size_t n)
{
    memcpy(file.data + file.n, data, n);
    str_addf(&file.header,
             "%s\"" EXPERTS "%s\":{\"dtype\":\"%s\",\"shape\":%s,"
             "\"data_offsets\":[%zu,%zu]}",
             file.header.n ? "," : "{", name, dtype, shape, file.n, file.n + n);
    file.n += n;
}

static void
put(const char *name, const void *a, size_t n_a, const void *b, size_t n_b)
{
    char path[64];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir_path, name);
    f = fopen(path, "wb");
    if (!f || fwrite(a, 1, n_a, f) != n_a || fwrite(b, 1, n_b, f) != n_b ||
        fclose(f) != 0)
        printf("# %s cannot be written\n", path);
}

static void
write_file(void)
{
    uint8_t size[8] = { 0 };
    struct str all = { 0 };

    str_adds(&file.header, "}");
    size[0] = (uint8_t)file.header.n;
    size[1] = (uint8_t)(file.header.n >> 8);
    str_add(&all, (char *)size, 8);
    str_adds(&all, file.header.s);
    put("model.safetensors", all.s, all.n, file.data, file.n);
    str_free(&all);
    str_free(&file.header);
    file.n = 0;
}

/* A way to store them. */
struct form {
    const char *name;
    bool in_out, has_bias;
    enum dtype dtype;           /* of numbers, or F8_E4M3, or U8: MXFP4 */
    const char *spoilt, *shape; /* a tensor that is left out, or has it */
    int n_experts;              /* by config.json; 0: as many as there are */
    const char *error;
};

/* Rows of gate and up: one's after the other's, or in turns. */
static void
place(const struct form *f, size_t row, size_t *part, size_t *r)
{
    *part = f->in_out ? row % 2 : row / I;
    *r = f->in_out ? row / 2 : row % I;
}

/* A scale of a row's 32 columns, or of 24 rows and 32 columns. */
static unsigned
power(const struct form *f, size_t e, size_t row, size_t c)
{
    return (unsigned)(e + (f->dtype == DT_U8 ? row : row / 24) * 3 + c / 32) %
           5;
}

static void
put_number(const struct form *f, char *to, size_t at, unsigned code)
{
    static const uint8_t e4m3[] = { 0x00, 0x30, 0x38, 0x3c,
                                    0x40, 0x44, 0x48, 0x4c };

    if (f->dtype == DT_U8)
        to[at / 2] = (char)(to[at / 2] | code << at % 2 * 4);
    else if (f->dtype == DT_F8_E4M3)
        to[at] = (char)(e4m3[code & 7] | (code & 8) << 4);
    else
        cvt_from_f32(to + at * dtype_size(f->dtype), f->dtype, &numbers[code],
                     1);
}

/* One of the stacks [E, out, in], of gate and up or of down. */
static void
add_stack(const struct form *f, bool down)
{
    static char data[ROOM], scales[ROOM];
    const size_t out = down ? H : 2 * I, in = down ? I : H, n = E * out * in;
    const size_t n_scales =
        f->dtype == DT_U8 ? E * out * in / 32 : E * ((out + 23) / 24) * in / 32;
    bool by_k = f->in_out && f->dtype != DT_U8, packed = true;
    const char *word = down ? "down_proj" : "gate_up_proj";
    char name[32], shape[48];
    size_t at = 0, part = 2, r;

    memset(data, 0, sizeof(data));
    for (size_t i = 0; i < n; i++) {
        size_t e = i / (out * in), row = i / in % out, c = i % in;

        r = row;
        if (!down)
            place(f, row, &part, &r);
        put_number(f, data, by_k ? (e * in + c) * out + row : i,
                   code_of(part, e, r, c));
    }
    for (size_t e = 0; e < E; e++)
        for (size_t row = 0; row < out; row += f->dtype == DT_U8 ? 1 : 24)
            for (size_t c = 0; c < in; c += 32, at++) {
                unsigned p = power(f, e, row, c);
                float scale = (float)(1 << p);

                if (f->dtype == DT_U8)
                    scales[at] = (char)(127 + p);
                else
                    cvt_from_f32(scales + 4 * at, DT_F32, &scale, 1);
            }
    snprintf(name, sizeof(name), "%s%s", word,
             f->dtype == DT_U8 ? "_blocks" : "");
    snprintf(shape, sizeof(shape),
             f->dtype == DT_U8 ? "[%d,%zu,%zu,16]" : "[%d,%zu,%zu]", E,
             by_k ? in : out,
             f->dtype == DT_U8 ? in / 32
             : by_k            ? out
                               : in);
    if (!f->spoilt || strcmp(f->spoilt, name) != 0 || f->shape)
        add(name, dtype_table[f->dtype].name,
            f->spoilt && !strcmp(f->spoilt, name) ? f->shape : shape, data,
            n * dtype_table[f->dtype].bits / (f->dtype == DT_U8 ? 16 : 8));
    packed = f->dtype == DT_U8 || f->dtype == DT_F8_E4M3;
    snprintf(name, sizeof(name), "%s%s", word,
             f->dtype == DT_U8 ? "_scales" : "_scale_inv");
    snprintf(shape, sizeof(shape), "[%d,%zu,%zu]", E,
             f->dtype == DT_U8 ? out : (out + 23) / 24, in / 32);
    if (packed && (!f->spoilt || strcmp(f->spoilt, name) != 0))
        add(name, f->dtype == DT_U8 ? "U8" : "F32", shape, scales,
            n_scales * (f->dtype == DT_U8 ? 1 : 4));
    for (size_t i = 0; i < E * out; i++) {
        float v = (float)i;

        cvt_from_f32(data + 2 * i, DT_BF16, &v, 1);
    }
    snprintf(name, sizeof(name), "%s_bias", word);
    snprintf(shape, sizeof(shape), "[%d,%zu]", E, out);
    if (f->has_bias && (!f->spoilt || strcmp(f->spoilt, name) != 0))
        add(name, "BF16", shape, data, 2 * E * out);
}

/* ---- checks ---- */

/* Row r of a part in the stack. */
static size_t
row_in_stack(const struct form *f, size_t part, size_t r)
{
    return part == 2 ? r : f->in_out ? 2 * r + part : part * I + r;
}

static float
expected(const struct form *f, size_t part, size_t e, size_t r, size_t c)
{
    float v = numbers[code_of(part, e, r, c)];

    if (f->dtype == DT_U8 || f->dtype == DT_F8_E4M3)
        v *= (float)(1 << power(f, e, row_in_stack(f, part, r), c));
    return v;
}

static bool
is_right(const struct form *f, const struct linear *l, size_t part, size_t e)
{
    const size_t out = part == 2 ? H : I, in = part == 2 ? I : H;
    static float x[X * H], y[X * H], w[H];
    bool good = l->out == out && l->in == in && !l->bias == !f->has_bias;
    struct gemm_job job = linear_job(l, y, false);
    struct gemm *g = NULL;
    struct err err;

    for (size_t r = 0; good && r < (l->by_k ? in : out); r++) {
        size_t n = l->by_k ? out : in;

        weight_read(w, &l->w, r, 0, n);
        for (size_t c = 0; c < n; c++)
            good &= w[c] == (l->by_k ? expected(f, part, e, c, r)
                                     : expected(f, part, e, r, c));
    }
    for (size_t r = 0; good && l->bias && r < out; r++)
        good &= l->bias[r] ==
                (float)(e * (part == 2 ? H : 2 * I) + row_in_stack(f, part, r));
    for (size_t i = 0; i < X * in; i++)
        x[i] = (float)(i * i % 7) - 3;
    if (!good || gemm_open(&g, NULL, &err))
        return false;
    for (size_t m = 1; m <= X; m += X - 1) {
        gemm_exact(g, &job, 1, x, in, m);
        for (size_t i = 0; i < m * out; i++) {
            float sum = 0; /* of halves: exact in any order */

            for (size_t c = 0; c < in; c++)
                sum += x[i / out * in + c] * expected(f, part, e, i % out, c);
            good &= y[i] == sum + (l->bias ? l->bias[i % out] : 0);
        }
    }
    gemm_close(g);
    return good;
}

static void
test(const struct form *f)
{
    const struct family_stack stack = { "gate_up_proj", "down_proj", f->in_out,
                                        f->has_bias };
    const struct family_experts experts = { .stack = &stack };
    const struct model_family family = { .model_type = "x",
                                         .experts = &experts };
    const char *method = f->dtype == DT_U8 ? "mxfp4" : "fp8";
    uint8_t sparse = 1, mixer = MIXER_ATTENTION;
    struct model m = { 0 };
    struct err err = { 0 };
    struct binder b = { .model = &m, .root = "model.", .err = &err };
    struct layer layer = { .experts = xcalloc(E, sizeof(struct mlp)) };
    struct str text = { 0 };
    bool good = true;
    int rc;

    add_stack(f, false);
    add_stack(f, true);
    write_file();
    str_addf(&text, "{\"quantization_config\":{\"quant_method\":\"%s\"%s}}",
             method, f->dtype == DT_U8 ? "" : ",\"weight_block_size\":[24,32]");
    put("config.json", text.s, text.n, "", 0);
    str_free(&text);
    if (stdir_open(&m.dir, dir_path, &err) || stdir_map(&m.dir, &err) ||
        quantization_load(&m.config.quantization, dir_path, &err)) {
        tap_ok(0, "%s: %s", f->name, err.what);
        return;
    }
    m.config.family = &family;
    m.config.n_layers = 1;
    m.config.sparse = (void *)&sparse;
    m.config.mixer = &mixer;
    m.config.n_experts = f->n_experts ? f->n_experts : E;
    m.config.hidden_size = H;
    m.config.expert_size = I;
    m.layers = &layer;
    b.used = xcalloc(m.dir.n_tensors, sizeof(*b.used));
    rc = bind_stacks(&b, 0);
    if (f->error) {
        tap_ok(rc < 0 && err.status == EX_DATAERR && strstr(err.what, f->error),
               "%s: %s", f->name, rc < 0 ? err.what : "not refused");
    } else {
        for (size_t e = 0; rc > 0 && e < E; e++)
            good &= is_right(f, &layer.experts[e].gate, 0, e) &
                    is_right(f, &layer.experts[e].up, 1, e) &
                    is_right(f, &layer.experts[e].down, 2, e);
        for (size_t i = 0; i < m.dir.n_tensors; i++)
            good &= b.used[i];
        tap_ok(rc > 0 && good, "%s%s%s", f->name, rc < 0 ? ": " : "",
               rc < 0 ? err.what : "");
    }
    for (size_t i = 0; i < m.n_owned; i++)
        free(m.owned[i]);
    free(m.owned);
    free(b.used);
    free(layer.experts);
    str_free(&b.name);
    form_memory_free(&m.packed);
    quantization_free(&m.config.quantization);
    stdir_close(&m.dir);
}

int
main(void)
{
    static const struct form forms[] = {
        { .name = "rows, BF16", .dtype = DT_BF16 },
        { .name = "rows, F32, biases", .dtype = DT_F32, .has_bias = true },
        { .name = "rows, FP8 in blocks that gate and up share",
          .dtype = DT_F8_E4M3 },
        { .name = "rows, MXFP4", .dtype = DT_U8 },
        { .name = "columns, BF16, biases",
          .dtype = DT_BF16,
          .in_out = true,
          .has_bias = true },
        { .name = "columns, F32", .dtype = DT_F32, .in_out = true },
        { .name = "rows in turns, MXFP4, biases",
          .dtype = DT_U8,
          .in_out = true,
          .has_bias = true },
        { .name = "another shape is refused",
          .dtype = DT_BF16,
          .spoilt = "gate_up_proj",
          .shape = "[2,32,128]",
          .error = "gate_up_proj is [2, 32, 128] (expected [2, 64, 64] by "
                   "config.json)" },
        { .name = "a stack of numbers without the other is refused",
          .dtype = DT_BF16,
          .spoilt = "down_proj",
          .error = EXPERTS "down_proj is missing" },
        { .name = "biases that are missing are refused",
          .dtype = DT_BF16,
          .has_bias = true,
          .spoilt = "gate_up_proj_bias",
          .error = EXPERTS "gate_up_proj_bias is missing" },
        { .name = "other numbers of packed experts are refused",
          .dtype = DT_U8,
          .n_experts = 3,
          .error = "gate_up_proj_blocks is of 2 experts (expected 3 by "
                   "config.json)" },
        { .name = "packed scales of another shape are refused",
          .dtype = DT_U8,
          .spoilt = "gate_up_proj_blocks",
          .shape = "[2,32,4,16]",
          .error = "gate_up_proj_scales is [2, 64, 2] (expected [2, 32, 4]" },
        { .name = "packed experts without scales are refused",
          .dtype = DT_F8_E4M3,
          .spoilt = "gate_up_proj_scale_inv",
          .error = "gate_up_proj_scale_inv is missing, but" },
        { .name = "FP8 of a family whose matrices are by columns is refused",
          .dtype = DT_F8_E4M3,
          .in_out = true,
          .error = "gate_up_proj is packed, which is not supported of a x, "
                   "whose weights are [inputs, outputs]" },
    };

    char command[64];

    if (!mkdtemp(dir_path))
        return 1;
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++)
        test(&forms[i]);
    snprintf(command, sizeof(command), "rm -r %s", dir_path);
    return system(command) ? 1 : tap_done();
}
