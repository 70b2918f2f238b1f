/*
 * core/format/sae: what sae_write() writes is what sparsify and SAELens dump,
 * byte for byte of cfg.json, by test/ref/sae_cases.py.
 */
#include "core/format/sae.h"

#include <string.h>
#include <sys/stat.h>

#include "core/map.h"
#include "core/out.h"
#include "test/unit/ref.h"
#include "test/unit/tap.h"

/* As test/ref/sae_cases.py has them. */
enum { N = 37, D = 19, K = 4 };
#define HOOK "layers.1.mlp.gate_proj"

static const char *dir;
static float e_weight[N * D], e_bias[N], d_weight[N * D], d_bias[D];

static void
make_numbers(void)
{
    for (int i = 0; i < N; i++) {
        e_bias[i] = (float)i / 8 - 2;
        for (int j = 0; j < D; j++) {
            e_weight[i * D + j] = (float)i + (float)j / 64;
            d_weight[i * D + j] = (float)-i - (float)j / 128;
        }
    }
    for (int j = 0; j < D; j++)
        d_bias[j] = (float)j / 4;
}

/* An SAE of these numbers, with a threshold and a hook or without. */
static struct sae_write
one(enum sae_format format, bool batchtopk)
{
    return (struct sae_write){
        .n = N,
        .in = D,
        .k = K,
        .encoder_weight = e_weight,
        .encoder_bias = e_bias,
        .decoder_weight = d_weight,
        .decoder_bias = d_bias,
        .activation = batchtopk ? "batchtopk" : "topk",
        .normalize = !batchtopk,
        .threshold = batchtopk ? .375 : -1,
        .hook = batchtopk ? HOOK : NULL,
        .format = format,
    };
}

static const struct written_case {
    const char *name;
    enum sae_format format;
    bool batchtopk;
} written[] = {
    { "sparsify", SAE_SPARSIFY, false },
    { "sparsify-batchtopk", SAE_SPARSIFY, true },
    { "saelens", SAE_SAELENS, false },
    { "saelens-batchtopk", SAE_SAELENS, true },
};
#define N_WRITTEN (sizeof(written) / sizeof(written[0]))

static void
test_written(void)
{
    for (size_t i = 0; i < N_WRITTEN; i++) {
        struct sae_write s = one(written[i].format, written[i].batchtopk);
        const char *path = ref_path(dir, written[i].name);
        struct err err = { 0 };

        mkdir(path, 0777);
        tap_ok(sae_write(path, &s, 0, &err) == 0, "sae: writes %s: %s",
               written[i].name, err.what);
        err = (struct err){ 0 };
        tap_ok(sae_write(path, &s, 0, &err) < 0 && err.status == EX_CANTCREAT &&
                   strstr(err.what, "/cfg.json: exists already"),
               "sae: %s is not written over: %s", written[i].name, err.what);
    }
}

static void
test_order(void)
{
    struct sae_write s = one(SAE_SPARSIFY, false);
    const char *path = ref_path(dir, "half");
    struct err err = { 0 };
    struct str at = { 0 };

    mkdir(path, 0777);
    str_addf(&at, "%s/sae.safetensors", path);
    mkdir(at.s, 0777);
    tap_ok(sae_write(path, &s, OUT_FORCE, &err) < 0 &&
               strstr(err.what, "sae.safetensors"),
           "sae: tensors that cannot be written: %s", err.what);
    str_clear(&at);
    str_addf(&at, "%s/cfg.json", path);
    tap_ok(!file_missing(at.s), "sae: cfg.json comes before them");
    str_free(&at);
    s = one(SAE_SAELENS, true);
    s.threshold = -1;
    err = (struct err){ 0 };
    tap_ok(sae_write(path, &s, OUT_FORCE, &err) < 0 &&
               err.status == EX_SOFTWARE,
           "sae: jumprelu needs a threshold: %s", err.what);
}

int
main(void)
{
    dir = ref_dir();
    make_numbers();
    if (dir) {
        test_written();
        test_order();
        ref_run("sae_cases.py", dir, "numpy");
        ref_remove(dir);
    }
    return tap_done();
}
