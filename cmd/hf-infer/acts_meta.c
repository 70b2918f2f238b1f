/* SPDX-License-Identifier: ISC */
/* --acts-meta: the metadata.json that saev-write takes with the dump; and what
 * --acts-ids says of the ids. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/hf-infer/acts.h"
#include "core/format/sae.h"
#include "core/hash.h"
#include "core/hash_path.h"
#include "core/js.h"
#include "core/kernel/cpu.h"
#include "core/kernel/gemm.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/splice.h"
#include "core/model/tables.h"
#include "core/str.h"
#include "core/text/chat.h"

/* Activations a shard, the SAEV default, if one window does not need more. */
#define SHARD_TOKENS 2400000

static void
put_text(struct str *s, const char *key, const char *value)
{
    str_addf(s, "\"%s\": ", key);
    js_put_str(s, value, strlen(value));
}

static void
add_text(struct str *s, const char *key, const char *value)
{
    if (!value)
        return;
    str_adds(s, ", ");
    put_text(s, key, value);
}

static void
add_true(struct str *s, const char *key, bool value)
{
    if (value)
        str_addf(s, ", \"%s\": true", key);
}

static void
add_list(struct str *s, const char *key, const struct opt_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        if (i == 0)
            str_addf(s, ", \"%s\": [", key);
        str_adds(s, i ? ", " : "");
        js_put_str(s, list->item[i], strlen(list->item[i]));
    }
    str_adds(s, list->n ? "]" : "");
}

/* ---- what the numbers depend on ---- */

#define MAX_DEPTH 4 /* directories of tables in each other */

/* The list of inputs of each table, after the layer's name and a 0. */
static int
hash_dims(struct hash *hash, const struct run *run, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < tables_count(run->tables) && rc == 0; i++) {
        const char *layer = tables_layer(run->tables, i);
        struct str path = { 0 };

        str_addf(&path, "%s/%s.npy", run->table.dims, layer);
        hash_add(hash, layer, strlen(layer) + 1);
        rc = hash_path(hash, path.s, 0, err);
        str_free(&path);
    }
    return rc;
}

/* 1, or 0 if the input cannot be read twice. */
static int
hash_input(struct hash *hash, const struct run *run, struct err *err)
{
    const char *path = run->prompt_file ? run->prompt_file : "-";
    const char *text = run->prompt ? run->prompt : run->ids_text;
    bool is_stdin = !strcmp(path, "-");
    struct stat st;

    if (text) {
        hash_add(hash, text, strlen(text));
        return 1;
    }
    if (!is_stdin && stat(path, &st) < 0)
        return err_sys(err, file_status(errno), "%s", path);
    if ((is_stdin && fstat(0, &st) < 0) || !S_ISREG(st.st_mode))
        return 0;
    if (!is_stdin)
        return hash_path(hash, path, 0, err) < 0 ? -1 : 1;
    return hash_fd(hash, 0, "standard input", lseek(0, 0, SEEK_CUR), err) < 0
               ? -1
               : 1;
}

int
acts_sources(struct acts_sources *s, const struct run *run, struct err *err)
{
    enum { INPUT, MODEL, LORA, SAE, LUT, DIMS, TOKENIZER, N };
    static const char *const keys[N] = { "input_xxh3", "model_xxh3",
                                         "lora_xxh3",  "sae_xxh3",
                                         "lut_xxh3",   "dims_xxh3" };
    struct str tokenizer = { 0 };
    int rc = 0;

    str_addf(&tokenizer, "%s/tokenizer.json", run->dir);
    add_text(&s->text, "arithmetic",
             run->arithmetic.compute == COMPUTE_F32 ? "f32, " GEMM_EXACT_ORDER
                                                    : isa_name(cpu_isa()));
    for (int i = 0; i < N && rc >= 0; i++) {
        struct hash *hash = hash_new(HASH_XXH3);
        bool known = i == INPUT ? !run->images
                     : i == TOKENIZER
                         ? run->acts_ids && !file_missing(tokenizer.s)
                     : i == LORA  ? run->acts_meta && run->lora.n > 0
                     : i == SAE   ? run->acts_meta && run->splices
                     : i == LUT   ? run->acts_meta && run->lut
                     : i == DIMS  ? run->acts_meta && run->table.dims
                     : i == MODEL ? run->acts_meta != NULL
                                  : true;
        char hex[HASH_MAX_HEX];

        if (known && i == INPUT) {
            rc = hash_input(hash, run, err);
            known = rc > 0;
            if (rc == 0 && run->acts_meta)
                err_warn("%s: is a stream: the metadata say nothing of what "
                         "was in it, so that a dump of another goes by the "
                         "same name",
                         run->prompt_file ? run->prompt_file
                                          : "standard input");
        } else if (known && i == LORA) {
            /* DIR, FILE or FILE@LAYER, with commas between several */
            for (size_t k = 0; k < run->lora.n; k++)
                for (const char *at = run->lora.item[k]; rc >= 0 && at;) {
                    size_t n = strcspn(at, ",");
                    char *path = xstrndup(at, n);

                    file_cut_layer(&path);
                    rc = hash_path(hash, path, 0, err);
                    free(path);
                    at = at[n] ? at + n + 1 : NULL;
                }
        } else if (known && i == SAE) {
            for (size_t k = 0; k < run->splices->n && rc >= 0; k++)
                rc = sae_hash(hash, run->splices->list[k].a.sae.path, err);
        } else if (known && i == DIMS) {
            rc = hash_dims(hash, run, err);
        } else if (known) {
            rc = hash_path(hash,
                           i == MODEL ? run->dir
                           : i == LUT ? run->lut
                                      : tokenizer.s,
                           i == LUT ? MAX_DEPTH : 0, err);
        }
        hash_end(hash, hex);
        if (rc >= 0 && known && i != TOKENIZER)
            add_text(&s->text, keys[i], hex);
        if (rc >= 0 && known && (i == INPUT || i == TOKENIZER))
            strcpy(i == INPUT ? s->input_xxh3 : s->tokenizer_xxh3, hex);
    }
    if (run->acts_meta && run->templates)
        add_text(&s->text, "template_xxh3", chat_digest(run->templates));
    str_free(&tokenizer);
    return rc < 0 ? -1 : 0;
}

static void
add_layers(struct str *s, const struct acts_spec *spec)
{
    str_adds(s, "\"layers\": [");
    for (size_t i = 0; i < spec->n; i++)
        str_addf(s, "%s%lld", i ? ", " : "", (long long)spec->places[i].layer);
    str_addc(s, ']');
}

/* Which of the layers are Gated DeltaNet, where their module has another name
 * for that. */
static void
add_linear(struct str *s, const struct config *c, const struct acts_spec *spec)
{
    const char *begin = ", \"linear_attn\": [", *next = begin;
    enum tap_point point = spec->places->point;

    for (size_t i = 0; i < spec->n; i++)
        if (place_is_linear(&spec->places[i], c) &&
            (point == TAP_IN_QKV || point == TAP_IN_O || point == TAP_ATTN)) {
            str_addf(s, "%s%lld", next, (long long)spec->places[i].layer);
            next = ", ";
        }
    str_adds(s, next == begin ? "" : "]");
}

/* How the input becomes windows. */
static const char *
windows(const struct run *run)
{
    return run->ctx == 0 ? "whole" : run->pad ? "padded" : "packed";
}

void
acts_ids_json(struct str *s, const struct acts *a, const struct acts_dump *d,
              const char *dump)
{
    const struct acts_sources *sources = &a->sources;
    const struct tok *tok = a->run->tok;
    int32_t n = tok ? (int32_t)tok_size(tok) : 0, n_special = 0;

    str_addf(s, "{\"n_windows\": %zu, \"ctx\": %zu", a->n_written, a->n_tokens);
    add_text(s, "windows", windows(a->run));
    add_text(s, "dump", *dump ? dump : NULL);
    add_text(s, "acts", place_word(d->spec.places));
    str_adds(s, ", ");
    add_layers(s, &d->spec);
    add_text(s, "input", a->docs.name);
    add_text(s, "input_xxh3",
             *sources->input_xxh3 ? sources->input_xxh3 : NULL);
    add_text(s, "tokenizer_xxh3",
             *sources->tokenizer_xxh3 ? sources->tokenizer_xxh3 : NULL);
    add_text(s, "ids_sha256", a->sha256);
    for (int32_t id = 0; id < n; id++)
        if (tok_is_special(tok, id))
            str_addf(s, "%s%d", n_special++ ? ", " : ", \"special\": [", id);
    str_adds(s, n_special ? "]}\n" : tok ? ", \"special\": []}\n" : "}\n");
}

static void
add_numbers(struct str *s, const char *key, const double v[3])
{
    str_addf(s, ", \"%s\": [", key);
    for (int i = 0; i < 3; i++) {
        str_adds(s, i ? ", " : "");
        js_put_f64(s, v[i]);
    }
    str_addc(s, ']');
}

/* How pictures became pixels. */
static void
add_pixels(struct str *s, const struct processor *p, bool turned)
{
    str_adds(s, ", \"pixels\": {\"size\": ");
    if (!p->resizes)
        str_adds(s, "null");
    else if (p->shortest_edge)
        str_addf(s, "{\"shortest_edge\": %zu}", p->shortest_edge);
    else
        str_addf(s, "{\"height\": %zu, \"width\": %zu}", p->resize_height,
                 p->resize_width);
    if (p->crops)
        str_addf(s, ", \"crop\": {\"height\": %zu, \"width\": %zu}", p->height,
                 p->width);
    str_addf(s, ", \"resample\": %d", (int)p->resample);
    add_true(s, "floats", p->floats);
    str_adds(s, ", \"rescale_factor\": ");
    js_put_f64(s, p->rescale_factor);
    add_numbers(s, "mean", p->mean);
    add_numbers(s, "std", p->std);
    str_addf(s, ", \"exif\": %s}", turned ? "true" : "false");
}

/* Options that change the numbers, where they were given. */
static void
add_options(struct str *s, const struct run *run)
{
    add_list(s, "lora", &run->lora);
    add_list(s, "sae", &run->saes.specs[SPLICE_SAE]);
    add_list(s, "steer", &run->saes.specs[SPLICE_STEER]);
    add_list(s, "ablate", &run->saes.specs[SPLICE_ABLATE]);
    if (run->saes.at.where == STEER_RANGE)
        str_addf(s, ", \"steer_at\": \"%zu-%zu\"", run->saes.at.range.first,
                 run->saes.at.range.last);
    else if (run->saes.at.where != STEER_ALL)
        add_text(s, "steer_at",
                 run->saes.at.where == STEER_PROMPT ? "prompt" : "generated");
    add_true(s, "sae_zero", run->saes.zero);
    add_true(s, "sae_center", run->saes.center);
    add_text(s, "lut", run->lut);
    add_text(s, "lut_layers", run->table.layers);
    if (run->table.tau >= 0) {
        str_adds(s, ", \"tau\": ");
        js_put_f64(s, run->table.tau);
    }
    add_text(s, "dims", run->table.dims);
    if (run->table.ratio >= 0) {
        str_adds(s, ", \"ratio\": ");
        js_put_f64(s, run->table.ratio);
    }
    if (run->arithmetic.compute == COMPUTE_BF16)
        add_text(s, "compute", "bf16");
    if (run->arithmetic.kv != DT_F32)
        add_text(s, "kv_dtype", run->arithmetic.kv == DT_F16 ? "f16" : "bf16");
    add_true(s, "kv_latents", run->arithmetic.latents);
    add_true(s, "raw", run->raw);
    add_true(s, "prepend_bos", run->prepend_bos);
    add_true(s, "plain", run->plain);
    add_true(s, "chat", run->chat);
    add_text(s, "template", run->template);
    add_list(s, "template_vars", &run->template_vars);
    add_text(s, "system", run->system);
}

/* SAEV's own names of families. */
static const char *
vit_family(const char *model_type, bool images)
{
    static const char *const names[] = { "clip", "siglip", "dinov2", "dinov3",
                                         "vit" };

    for (size_t i = 0; images && i < sizeof(names) / sizeof(*names); i++)
        if (!strncmp(model_type, names[i], strlen(names[i])))
            return names[i];
    return model_type;
}

void
acts_meta(struct str *s, const struct acts *a, const struct acts_dump *d)
{
    const struct run *run = a->run;
    const struct images_meta *images = a->images;
    bool cls = images && images->cls;
    size_t tokens = d->spec.n * a->n_tokens, n = strlen(run->dir);
    size_t n_windows = a->n_written ? a->n_written : a->n_expected;

    str_adds(s, "{\n    ");
    put_text(s, "vit_family",
             vit_family(run->config->family->model_type, images));
    str_adds(s, ",\n    \"vit_ckpt\": ");
    while (n > 1 && run->dir[n - 1] == '/')
        n--;
    if (images)
        js_put_str(s, images->ckpt, strlen(images->ckpt));
    else
        js_put_str(s, run->dir, n);
    str_adds(s, ",\n    ");
    add_layers(s, &d->spec);
    str_addf(s,
             ",\n    \"n_patches_per_img\": %zu,\n    \"cls_token\": %s,\n"
             "    \"d_vit\": %zu,\n    \"seed\": 0,\n",
             a->n_tokens - cls, cls ? "true" : "false", d->dim);
    if (n_windows > 0)
        str_addf(s, "    \"n_imgs\": %zu,\n", n_windows);
    str_addf(s, "    \"max_patches_per_shard\": %zu,\n    \"data\": {",
             tokens > SHARD_TOKENS ? tokens : (size_t)SHARD_TOKENS);
    put_text(s, images ? "point" : "acts", place_word(d->spec.places));
    add_linear(s, run->config, &d->spec);
    if (images) {
        add_text(s, "images", images->source);
        add_text(s, "images_xxh3", *images->xxh3 ? images->xxh3 : NULL);
        add_pixels(s, images->processor, run->exif);
        if (run->skip_bad && n_windows > 0)
            str_addf(s, ", \"skipped\": %zu", images->n_skipped);
    } else {
        add_text(s, "input", a->docs.name);
        add_text(s, "windows", windows(run));
    }
    add_options(s, run);
    str_adds(s, a->sources.text.s);
    /* not known where these were written first */
    add_text(s, "ids_sha256", a->meta_first || !*a->sha256 ? NULL : a->sha256);
    str_adds(s, "}\n}\n");
}
