/* SPDX-License-Identifier: ISC */
/*
 * core/format/sae: what sae_write() writes is what sparsify and SAELens dump,
 * byte for byte of cfg.json, by test/ref/sae_cases.py, and sae_open() reads it
 * and what that makes.
 */
#include "core/format/sae.h"

#include <string.h>
#include <sys/stat.h>

#include "core/map.h"
#include "core/model/autoencoder.h"
#include "core/out.h"
#include "test/unit/ref.h"
#include "test/unit/tap.h"

/* As test/ref/sae_cases.py has them. */
enum { N = 37, D = 19, K = 4 };
#define HOOK  "layers.1.mlp.gate_proj"
#define LAYER "model.layers.1"

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
                   strstr(err.what, ".safetensors: exists already"),
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
    tap_ok(file_missing(at.s), "sae: nor is there a cfg.json then");
    str_free(&at);
    s = one(SAE_SAELENS, true);
    s.threshold = -1;
    err = (struct err){ 0 };
    tap_ok(sae_write(path, &s, OUT_FORCE, &err) < 0 &&
               err.status == EX_SOFTWARE,
           "sae: jumprelu needs a threshold: %s", err.what);
}

/* Are all four matrices those numbers? */
static bool
same_numbers(const struct sae *s)
{
    bool same = s->n == N && s->in == D;

    for (size_t i = 0; same && i < N; i++) {
        same = matrix_get(&s->encoder_bias, 0, i) == (double)e_bias[i];
        for (size_t j = 0; same && j < D; j++)
            same = matrix_get(&s->encoder_weight, i, j) ==
                       (double)e_weight[i * D + j] &&
                   matrix_get(&s->decoder_weight, i, j) ==
                       (double)d_weight[i * D + j];
    }
    for (size_t j = 0; same && j < D; j++)
        same = matrix_get(&s->decoder_bias, 0, j) == (double)d_bias[j];
    return same;
}

/* What sae_cases.py gives the latents of JumpReLU; below 0 ReLU does. */
static float
jump(size_t i)
{
    return i > 16 ? (float)i / 16 - 1 : 0;
}

enum { NONE, JUMPS, ZERO }; /* or 1000 times the threshold of all */

static const struct read_case {
    const char *name;
    size_t k;
    int thresholds;
    bool batchtopk, centered;
    const char *hook;
    enum sae_activation activation;
} reads[] = {
    { "sparsify", K, NONE, false, true, NULL, SAE_TOPK },
    { "sparsify-batchtopk", K, 375, true, true, HOOK, SAE_JUMPRELU },
    { "saelens", K, NONE, false, true, NULL, SAE_TOPK },
    { "saelens-batchtopk", 0, 375, false, true, HOOK, SAE_JUMPRELU },
    { "jumprelu", 0, JUMPS, false, true, HOOK, SAE_JUMPRELU },
    { "batchtopk", K, 625, true, true, NULL, SAE_JUMPRELU },
    { "unset", K, NONE, true, true, NULL, SAE_BATCHTOPK },
    { "jumprelu-columns", K, JUMPS, false, false, NULL, SAE_JUMPRELU },
    { "matryoshka", K, 625, true, true, NULL, SAE_JUMPRELU },
    { "pt-topk", K, NONE, false, true, NULL, SAE_TOPK },
    { "pt-relu", K, NONE, false, true, NULL, SAE_RELU },
    { "pt-batchtopk", K, 625, true, true, NULL, SAE_JUMPRELU },
    { "pt-matryoshka", K, 625, true, true, NULL, SAE_JUMPRELU },
    { "pt-jumprelu", K, JUMPS, false, false, NULL, SAE_JUMPRELU },
    { "saev-topk", K, NONE, false, false, NULL, SAE_TOPK },
    { "saev-relu", 0, NONE, false, false, NULL, SAE_RELU },
    { "saev-batchtopk", K, 625, true, false, NULL, SAE_JUMPRELU },
    { "saev-below", K, ZERO, true, false, NULL, SAE_JUMPRELU },
    { "saev-unset", K, NONE, true, false, NULL, SAE_BATCHTOPK },
    { "gemma", 0, JUMPS, false, false, NULL, SAE_JUMPRELU },
    { "scope-2", 0, JUMPS, false, false, LAYER, SAE_JUMPRELU },
    { "qwen/layer1.sae.pt", K, NONE, false, false, "layers.1", SAE_TOPK },
    { "ones", K, NONE, false, true, HOOK, SAE_TOPK },
    { "zero-latents", K, NONE, false, true, NULL, SAE_TOPK },
};

static bool
same_thresholds(const struct sae *s, int thresholds)
{
    double all = thresholds > ZERO ? thresholds / 1000. : 0;
    bool same = !s->thresholds == (thresholds == NONE);

    for (size_t i = 0; same && s->thresholds && i < s->n; i++)
        same = s->thresholds[i] == (thresholds == JUMPS ? jump(i) : (float)all);
    return same && s->threshold == (thresholds >= ZERO ? all : -1);
}

static void
test_reads(void)
{
    for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++) {
        const struct read_case *c = &reads[i];
        const char *path = ref_path(dir, c->name);
        struct err err = { 0 };
        struct sae s;

        if (tap_ok(sae_open_plain(&s, path, NULL, &err) == 0,
                   "sae: reads %s: %s", c->name, err.what)) {
            tap_ok(same_numbers(&s), "sae: %s: weights and biases", c->name);
            tap_ok(same_thresholds(&s, c->thresholds), "sae: %s: thresholds",
                   c->name);
            tap_ok(s.k == c->k && s.batchtopk == c->batchtopk &&
                       s.activation == c->activation &&
                       s.centered == c->centered &&
                       (c->hook ? s.hook && !strcmp(s.hook, c->hook) : !s.hook),
                   "sae: %s: k, activation, centring, hook", c->name);
            sae_close(&s);
        }
    }
}

static const struct read_refusal {
    const char *name, *what; /* after "DIR/NAME/", the beginning */
} refusals[] = {
    { "no-threshold", "sae_weights.safetensors: tensor threshold is missing" },
    { "nan", "sae_weights.safetensors: threshold[5] is NaN or infinite" },
    { "short", "sae_weights.safetensors: threshold is [36] (expected [37])" },
    { "rescaled", "cfg.json: rescale_acts_by_decoder_norm is true (expected "
                  "off, as architecture is \"jumprelu\")" },
    { "unsaid", "sae_weights.safetensors: has threshold, but its "
                "configuration does not say that it is used" },
    { "negative", "ae.safetensors: threshold is -0.5 (expected a float from "
                  "0 on, or -1)" },
    { "no-class", "ae.safetensors: has threshold, but its configuration does "
                  "not say that it is used" },
    { "no-class-columns",
      "config.json: trainer.dict_class is missing (expected a class)" },
    { "sparsify-topk", "cfg.json: threshold is 0.5 (expected none, as "
                       "activation is \"topk\")" },
    { "sparsify-negative",
      "cfg.json: threshold is -0.5 (expected a float from 0 on)" },
    { "sparsify-huge",
      "cfg.json: threshold is 1e+39 (expected a float from 0 on)" },
    { "sparsify-hook", "cfg.json: hook is an array (expected a string)" },
    { "cut", "params.npz: zip archive without an end record (cut short at" },
    { "damaged",
      "params.npz: zip member threshold.npy is damaged: its CRC is" },
    { "npz-nan", "params.npz: threshold[5] is NaN or infinite" },
    { "npz-f64", "params.npz: W_dec is F64 (expected BF16, F16 or F32)" },
    { "npz-transposed", "params.npz: W_dec is [19, 37] (expected [37, 19])" },
    { "npz-unknown", "params.npz: has affine, whose meaning is not known" },
    { "npz-affine", "params.npz: has affine_skip_connection: a transcoder's "
                    "skip connection is not supported" },
    { "npz-twice", "params.npz: has W_dec, whose meaning is not known" },
    { "unpacks", "params.npz: unpacks to 134" },
    { "tuned", "sae_weights.safetensors: scaling_factor[3] is 1.25 (expected "
               "1: a fine-tuned SAE is not supported)" },
    { "turned",
      "sae_weights.safetensors: W_enc is [37, 19] (expected [19, 37" },
    { "bos-word", "cfg.json: prepend_bos is \"x\" (expected" },
    { "wide", "cfg.json: d_in is 32 (expected 19, as the tensors have)" },
    { "many-latents", "cfg.json: d_sae is 38 (expected 37, as the tensors" },
    { "out", "cfg.json: d_out is 7 (expected 19, as the tensors have: "
             "transcoders are not supported)" },
    { "two-k",
      "cfg.json: activation_fn_kwargs.k is 5 (expected 4, as it says before)" },
    { "all-k", "sae_weights.safetensors: k is 38, but it has 37 latents" },
    { "signed", "cfg.json: activation_fn_kwargs.signed is true (expected off" },
    { "other-hook", "cfg.json: metadata.hook_name is \"layers.1\" (expected "
                    "\"" HOOK "\", as it says before)" },
    { "hook-out", "cfg.json: hook_name_out is \"blocks.1.hook_mlp_out\" "
                  "(expected where the inputs are: transcoders are" },
    { "head", "cfg.json: metadata.hook_head_index is 0 (expected null: one "
              "head is not supported)" },
    { "centred", "cfg.json: metadata.model_from_pretrained_kwargs.center_"
                 "writing_weights is true (expected off: the model's weights" },
    { "folded", "cfg.json: model_from_pretrained_kwargs.fold_ln is true" },
    { "unembed", "cfg.json: metadata.model_from_pretrained_kwargs.center_"
                 "unembed is true" },
    { "nan-weight", "sae_weights.safetensors: W_enc[2, 7] is NaN or infinite" },
    { "inf-bias", "sae_weights.safetensors: b_dec[2] is NaN or infinite" },
    { "pt-inf", "ae.pt: encoder.weight[7, 2] is NaN or infinite" },
    { "latents", "cfg.json: num_latents is 38 (expected 37, as the tensors" },
    { "k", "ae.pt: k is 4 (expected 5, as its configuration says)" },
    { "k-half", "ae.pt: k is 0.5 (expected a whole number from 1 to " },
    { "dict-size", "config.json: trainer.dict_size is 38 (expected 37, as" },
    { "scope-width", "config.json: width is 38 (expected 37, as the tensors" },
    { "scope-type", "config.json: type is \"crosscoder\" (expected \"sae\")" },
    { "scope-out", "config.json: hf_hook_point_out is \"model.layers.1.post_"
                   "feedforward_layernorm.output\" (expected where the" },
    { "scope-affine", "config.json: affine_connection is true (expected off" },
    { "square/layer1.sae.pt",
      " W_enc is [19, 19], and nothing says whether its rows are latents "
      "(cfg.json: \"library\": \"qwen-scope\", or \"saelens\" if columns "
      "are)" },
    { "huge", "params.npz: W_enc.npy: the product of shape overflows 64 bits" },
    { "mixed", "params.npz: member x.npy.txt is not .npy" },
    { "many", "params.npz: has 65 tensors (expected at most 64)" },
    { "hostile", "ae.pt: data.pkl: byte 2: " },
    { "list", "ae.pt: is a pickle, but not of a state dict" },
    { "no-tensor", "ae.pt: encoder.weight is not a tensor" },
    { "number", "ae.pt: a name of a tensor is not a string" },
    { "view", "ae.pt: encoder.bias is a view whose numbers do not follow each "
              "other" },
    { "overflow", "ae.pt: data.pkl: byte " },
    { "nul", "ae.pt: has k, whose meaning is not known" },
    { "gated", "ae.pt: has gate_bias: a gated SAE is not supported" },
    { "saev-2", "sae.pt: schema is 2 (expected 3 to 5: earlier ones do not say "
                "whether x or x - b_dec is encoded)" },
    { "saev-class", "sae.pt: cfg.activation.cls is \"Softmax\" (expected "
                    "\"TopK\", \"BatchTopK\" or \"Relu\")" },
    { "saev-k", "sae.pt: cfg.activation.params.top_k is 0 (expected " },
    { "saev-nan", "sae.pt: activation.threshold is nan (expected a float from "
                  "0 on, or -1)" },
    { "saev-no-cfg", "sae.pt: cfg.activation.cls is missing (expected a" },
    { "saev-json", "sae.pt: " },
};

static void
test_refusals(void)
{
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const struct read_refusal *r = &refusals[i];
        struct err err = { 0 };
        size_t at = strlen(dir) + strlen(r->name) + 2;
        struct sae s;

        tap_ok(sae_open_plain(&s, ref_path(dir, r->name), NULL, &err) < 0 &&
                   err.status == EX_DATAERR && strlen(err.what) > at &&
                   !strncmp(err.what + at, r->what, strlen(r->what)),
               "sae: %s is refused: %s", r->name, err.what);
        sae_close(&s);
    }
}

/* As many latents as inputs: what cfg.json says is how W_enc is stored. */
static void
test_square(void)
{
    static const char *const said[] = { "square-qwen/layer1.sae.pt",
                                        "square-lens/layer1.sae.pt" };

    for (size_t i = 0; i < 2; i++) {
        struct err err = { 0 };
        struct sae s;

        if (tap_ok(sae_open_plain(&s, ref_path(dir, said[i]), NULL, &err) == 0,
                   "sae: reads %s: %s", said[i], err.what))
            tap_ok(matrix_get(&s.encoder_weight, i ? 3 : 2, i ? 2 : 3) ==
                           (double)e_weight[2 * D + 3] &&
                       matrix_get(&s.decoder_weight, i ? 3 : 2, i ? 2 : 3) ==
                           (double)d_weight[2 * D + 3] &&
                       s.centered == (i > 0),
                   "sae: %s: rows or columns, as it says", said[i]);
        sae_close(&s);
    }
}

static void
test_two(void)
{
    struct err err = { 0 };
    struct sae s;

    tap_ok(sae_open_plain(&s, ref_path(dir, "both"), NULL, &err) < 0 &&
               err.status == EX_DATAERR &&
               strstr(err.what, "/both: has sae.safetensors and "
                                "sae_weights.safetensors (name one)"),
           "sae: a directory with two: %s", err.what);
    sae_close(&s);
}

int
main(void)
{
    dir = ref_dir();
    make_numbers();
    if (dir) {
        test_written();
        test_order();
        if (ref_run("sae_cases.py", dir, "numpy")) {
            test_reads();
            test_refusals();
            test_square();
            test_two();
        }
        ref_remove(dir);
    }
    return tap_done();
}
