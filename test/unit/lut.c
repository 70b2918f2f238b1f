/* SPDX-License-Identifier: ISC */
/* core/format/lut: what man/lut.5 says metadata.json means, and files that
 * are not as it says. */
#include "core/format/lut.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/format/stw.h"
#include "core/out.h"
#include "test/unit/tap.h"

#define LAYER "\"input_dim\": 4, \"output_dim\": 6, \"file\": \"a\""
#define SAE   "\"sae_config\": {\"num_basis\": 8, \"k_active\": 2}"

static int n_warnings;

static void
on_warning(const char *what)
{
    (void)what;
    n_warnings++;
}

/* A directory "d" with this metadata, opened; 'err' is empty if that worked. */
static int
open_text(struct lut *lut, const char *text, struct err *err)
{
    struct out *out;

    *err = (struct err){ 0 };
    n_warnings = 0;
    mkdir("d", 0777);
    if (out_open(&out, "d/metadata.json", OUT_FORCE | OUT_NO_SYNC, false, err) <
            0 ||
        out_write(out, text, strlen(text), err) < 0 || out_commit(out, err) < 0)
        return -1;
    return lut_open(lut, "d", err);
}

static void
test_ours(void)
{
    static const char text[] =
        "{\"version\": \"1.0\", " SAE ", \"layers\": {"
        "\"model.layers.10.mlp.up_proj\": {" LAYER ", \"num_basis\": 9,"
        " \"k_active\": 9, \"encoder\": {\"input_centering\": true},"
        " \"target_bias\": true, \"activation\": \"threshold\"},"
        "\"layers.2.mlp.gate_up_proj\": {" LAYER ","
        " \"encoder\": {\"input_centering\": false}}},"
        "\"elbow_thresholds\": {\"layer_2/mlp_up_proj\": {\"elbow_p\": 1,"
        " \"elbow_value\": 0.25}, \"model.layers.10.mlp.up_proj\": 3}}";
    const struct lut_layer *l;
    struct lut lut;
    struct err err;

    tap_ok(open_text(&lut, text, &err) == 0 && lut.n_layers == 2,
           "lut: both layers are read: %s", err.what);
    tap_ok(lut.n_layers == 2 &&
               !strcmp(lut.layers[0].name, "model.layers.2.mlp.gate_up_proj"),
           "lut: layer 2 comes before layer 10");
    l = lut_find(&lut, "layers.10.mlp.up_proj");
    tap_ok(l && l == lut_find(&lut, "model.layers.10.mlp.up_proj") &&
               l->n_basis == 9 && l->k == 9 && l->centered && l->target_bias &&
               l->over && l->elbow == 3,
           "lut: a layer's own keys, found by either name");
    l = lut_find(&lut, "model.layers.2.mlp.gate_up_proj");
    tap_ok(l && l->n_basis == 8 && l->k == 2 && !l->centered &&
               !l->target_bias && !l->over && l->in == 4 && l->out == 6 &&
               l->elbow == 0.25,
           "lut: sae_config where it has none, the threshold of up_proj");
    tap_ok(!lut_find(&lut, "layers.3.mlp.up_proj"), "lut: no such layer");
    tap_ok(n_warnings == 0 && !lut.from_exporter, "lut: nothing to warn of");
    lut_close(&lut);
}

static void
test_centering(void)
{
    static const char start[] = "{\"version\": \"1.0\", " SAE ", \"layers\": {"
                                "\"layers.0.mlp.up_proj\": {" LAYER "}}";
    char text[600];
    struct lut lut;
    struct err err;

    snprintf(text, sizeof(text), "%s}", start);
    tap_ok(open_text(&lut, text, &err) == 0 && !lut.layers[0].centered &&
               n_warnings == 1 && isnan(lut.layers[0].elbow),
           "lut: a layer that says nothing is not centred, with a warning");
    lut_close(&lut);
    snprintf(text, sizeof(text),
             "%s, \"creation_info\": {\"script_version\": \"1\"}}", start);
    tap_ok(open_text(&lut, text, &err) == 0 && lut.layers[0].centered &&
               lut.from_exporter && n_warnings == 0,
           "lut: the exporter's is centred");
    lut_close(&lut);
}

static void
test_refused(void)
{
    static const struct {
        const char *text, *what;
    } bad[] = {
        { "[]", "(expected an object)" },
        { "{\"layers\": {}}", "version" },
        { "{\"version\": \"2.0\", \"layers\": {}}",
          "tables of routed experts are not supported" },
        { "{\"version\": \"3\", \"layers\": {}}", "(expected 1.x)" },
        { "{\"version\": \"1.0\"}", "layers" },
        { "{\"version\": \"1.0\", \"layers\": {\"a\": 1}}",
          "layers.a is 1 (expected an object)" },
        { "{\"version\": \"1.0\", \"layers\": {\"a\": {" LAYER "}}}",
          "num_basis" },
        { "{\"version\": \"1.0\", " SAE ", \"layers\": {\"a\": {"
          "\"input_dim\": 0, \"output_dim\": 6, \"file\": \"a\"}}}",
          "input_dim is 0" },
        { "{\"version\": \"1.0\", " SAE ", \"layers\": {\"a\": {" LAYER
          ", \"k_active\": 9}}}",
          "a: k_active is 9 (expected at most num_basis, 8)" },
        { "{\"version\": \"1.0\", " SAE ", \"layers\": {\"a\": {" LAYER
          ", \"encoder\": 1}}}",
          "encoder is 1 (expected an object)" },
        { "{\"version\": \"1.0\", " SAE ", \"layers\": {\"a\": {" LAYER
          ", \"activation\": \"relu\"}}}",
          "activation is \"relu\" (expected \"topk\" or \"threshold\")" },
        { "{\"version\": \"1.0\", " SAE ", \"layers\": {\"layers.0.x\": {" LAYER
          "}, \"model.layers.0.x\": {" LAYER "}}}",
          "has the layer model.layers.0.x twice" },
    };
    static const char *const files[] = { "../a", "/etc/passwd", "",
                                         "..",   "a/b",         ".hidden" };
    struct lut lut;
    struct err err;
    char text[400];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        tap_ok(open_text(&lut, bad[i].text, &err) < 0 &&
                   err.status == EX_DATAERR && strstr(err.what, bad[i].what),
               "lut: refused: %s", bad[i].what);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(text, sizeof(text),
                 "{\"version\": \"1.0\", " SAE ", \"layers\": {\"a\": {"
                 "\"input_dim\": 4, \"output_dim\": 6, \"file\": \"%s\"}}}",
                 files[i]);
        tap_ok(open_text(&lut, text, &err) < 0 && err.status == EX_DATAERR,
               "lut: a file outside of the directory is refused: \"%s\"",
               files[i]);
    }
    tap_ok(lut_open(&lut, "nothing", &err) < 0 && err.status == EX_NOINPUT,
           "lut: no directory");
}

static void
test_names(void)
{
    char *parts[LUT_MAX_PARTS], *name = lut_name("layers.0.mlp.up_proj");
    size_t n;

    tap_ok(!strcmp(name, "model.layers.0.mlp.up_proj"), "lut_name: completed");
    free(name);
    n = lut_parts("model.layers.0.self_attn.qkv_proj", parts);
    tap_ok(n == 3 && !strcmp(parts[0], "model.layers.0.self_attn.q_proj") &&
               !strcmp(parts[1], "model.layers.0.self_attn.k_proj") &&
               !strcmp(parts[2], "model.layers.0.self_attn.v_proj"),
           "lut_parts: q, k, v");
    while (n > 0)
        free(parts[--n]);
    n = lut_parts("x.down_proj", parts);
    tap_ok(n == 1 && !strcmp(parts[0], "x.down_proj"), "lut_parts: itself");
    free(parts[0]);
}

/* The file "d/a" of layer 4 -> 6 with 8 latents; one tensor of another shape
 * or dtype, or left out. */
static void
write_file(const char *odd, uint64_t odd_rows, enum dtype odd_dtype)
{
    static const struct {
        const char *name;
        uint64_t shape[2];
    } tensors[] = {
        { "encoder_weight", { 8, 4 } },       { "encoder_bias", { 8, 0 } },
        { "decoder_weight", { 8, 4 } },       { "decoder_bias", { 4, 0 } },
        { "precomputed_products", { 8, 6 } }, { "bias_product", { 6, 0 } },
    };
    static const char zeros[512];
    struct stw *w = stw_new();
    struct err err;
    int n = 0;
    size_t nbytes[6];

    for (size_t i = 0; i < 6; i++) {
        bool is_odd = !strcmp(odd, tensors[i].name);
        uint64_t shape[] = { is_odd ? odd_rows : tensors[i].shape[0],
                             tensors[i].shape[1] };
        enum dtype dtype = is_odd ? odd_dtype : DT_BF16;

        if (shape[0] == 0)
            continue;
        stw_add(w, tensors[i].name, dtype, shape[1] ? 2 : 1, shape, &err);
        nbytes[n++] = shape[0] * (shape[1] ? shape[1] : 1) * dtype_size(dtype);
    }
    if (stw_open(w, "d/a", OUT_FORCE | OUT_NO_SYNC, &err) == 0) {
        for (int i = 0; i < n; i++)
            stw_write(w, i, zeros, nbytes[i], 0, &err);
        stw_commit(w, &err);
    }
    stw_free(w);
}

static void
test_tables(void)
{
    static const struct {
        const char *odd;
        uint64_t rows;
        enum dtype dtype;
        const char *what; /* NULL: it is sound */
    } cases[] = {
        { "", 0, DT_BF16, NULL },
        { "encoder_weight", 8, DT_F32, NULL },
        { "decoder_bias", 0, DT_BF16, "tensor decoder_bias is missing" },
        { "precomputed_products", 7, DT_BF16,
          "precomputed_products is [7, 6] (expected [8, 6])" },
        { "bias_product", 4, DT_BF16, "bias_product is [4] (expected [6])" },
        { "encoder_weight", 8, DT_I8,
          "encoder_weight is I8 (expected BF16, F16 or F32)" },
        { "bias_product", 6, DT_F64,
          "bias_product is F64 (expected BF16, F16 or F32)" },
    };
    struct lut lut;
    struct lut_table t;
    struct err err;

    open_text(&lut,
              "{\"version\": \"1.0\", " SAE ", \"layers\": {\"a\": {" LAYER
              "}}}",
              &err);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int rc;

        write_file(cases[i].odd, cases[i].rows, cases[i].dtype);
        rc = lut_table_open(&t, &lut, &lut.layers[0], &err);
        tap_ok(cases[i].what
                   ? rc < 0 && strstr(err.what, cases[i].what)
                   : rc == 0 && t.dtypes[LUT_PRODUCTS] == DT_BF16 &&
                         t.dtypes[LUT_ENCODER_WEIGHT] == cases[i].dtype &&
                         !t.compensation_weight_t,
               "lut_table_open: %s", cases[i].what ? cases[i].what : "sound");
        lut_table_close(&t);
    }
    lut_close(&lut);
}

int
main(void)
{
    char dir[] = "/tmp/lut.XXXXXX";

    if (!mkdtemp(dir) || chdir(dir) < 0)
        return 1;
    err_warn_hook(on_warning);
    test_ours();
    test_centering();
    test_refused();
    test_names();
    test_tables();
    unlink("d/a");
    unlink("d/metadata.json");
    rmdir("d");
    if (chdir("/") == 0)
        rmdir(dir);
    return tap_done();
}
