/* SPDX-License-Identifier: ISC */
#include "cmd/moe-sft/peft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/write.h"
#include "core/format/stw.h"
#include "core/js.h"
#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/parts.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/pyjson.h"
#include "core/str.h"

void
peft_put_alpha(struct str *to, double v)
{
    if (v == floor(v) && fabs(v) < 1e9)
        str_addf(to, "%.0f", v);
    else
        py_float_repr(to, v);
}

int
peft_write_config(const struct peft_written *p, const char *dir, int flags,
                  struct err *err)
{
    struct str text = { 0 }, lines = { 0 }, path = { 0 };
    int rc;

    str_addf(&text,
             "{\"alpha_pattern\": %s, \"auto_mapping\": null, "
             "\"base_model_name_or_path\": ",
             p->alpha_pattern ? p->alpha_pattern : "{}");
    if (p->base_model)
        js_put_str(&text, p->base_model, strlen(p->base_model));
    else
        str_adds(&text, "null");
    str_addf(&text,
             ", \"bias\": \"none\", \"fan_in_fan_out\": %s, "
             "\"inference_mode\": true, \"init_lora_weights\": true, "
             "\"layers_pattern\": %s, \"layers_to_transform\": %s, "
             "\"lora_alpha\": ",
             p->in_out ? "true" : "false", p->layers ? "\"layers\"" : "null",
             p->layers ? p->layers : "null");
    peft_put_alpha(&text, p->alpha);
    str_addf(&text,
             ", \"lora_dropout\": 0.0, \"modules_to_save\": null, "
             "\"peft_type\": \"LORA\", %s\"r\": %zu, \"rank_pattern\": %s, "
             "\"revision\": null, \"target_modules\": %s, %s%s%s"
             "\"task_type\": \"CAUSAL_LM\", \"use_dora\": false, "
             "\"use_rslora\": %s}",
             p->parameters ? "\"peft_version\": \"0.20.0\", " : "", p->rank,
             p->rank_pattern ? p->rank_pattern : "{}", p->targets,
             p->parameters ? "\"target_parameters\": " : "",
             p->parameters ? p->parameters : "", p->parameters ? ", " : "",
             p->rslora ? "true" : "false");
    str_addf(&path, "%s/" PEFT_CONFIG, dir);
    rc = pyjson_indent(&lines, text.s, text.n, 2, PEFT_CONFIG, err);
    if (rc == 0)
        rc = out_put(path.s, flags, lines.s, lines.n, err);
    str_free(&text);
    str_free(&lines);
    str_free(&path);
    return rc;
}

/* A pattern of a layer's modules, and 'times' its rank or alpha. */
static void
put_pattern(struct str *text, const struct model_family *family,
            const struct expert_adapter *a, const char *end, bool rank,
            int times)
{
    struct str name = { 0 };

    part_module(&name, family,
                (struct part_at){ PART_EXPERT_GATE, (size_t)a->layer, 0 }, 2);
    str_adds(text, text->n > 1 ? ", \"" : "\"");
    for (const char *s = name.s; *s; s++)
        str_addf(text, *s == '.' ? "\\\\%c" : "%c", *s);
    str_addf(text, "\\\\.%s\": ", end);
    str_free(&name);
    peft_put_alpha(text, times * (rank ? (double)a->rank : (double)a->alpha));
}

/* What layers have otherwise than the first one, rank or alpha: patterns of
 * their modules.  Of stacks, gate and up have twice of both. */
static void
put_patterns(struct str *text, const struct model_family *family,
             const struct expert_adapter *adapters, size_t n, bool stacks,
             bool rank)
{
    const struct expert_adapter *first = adapters;

    str_adds(text, "{");
    for (size_t i = 0; i < n; i++) {
        const struct expert_adapter *a = &adapters[i];

        if (stacks)
            put_pattern(text, family, a, "gate_up_proj", rank, 2);
        if (rank ? a->rank != first->rank : a->alpha != first->alpha)
            put_pattern(text, family, a, stacks ? "down_proj" : ".*", rank, 1);
    }
    str_adds(text, "}");
}

static int
write_config(const struct expert_adapter *adapters, size_t n,
             const struct model_family *family, bool stacks, const char *dir,
             struct err *err)
{
    static const int sorted[] = { BASE_DOWN, BASE_GATE, BASE_UP };
    struct str ranks = { 0 }, alphas = { 0 }, layers = { 0 }, words = { 0 };
    int rc;

    put_patterns(&ranks, family, adapters, n, stacks, true);
    put_patterns(&alphas, family, adapters, n, stacks, false);
    for (size_t i = 0; i < BASE_N; i++)
        str_addf(&words, "%s\"%s\"", i ? ", " : "[",
                 part_word(family, PART_EXPERT_GATE + sorted[i]));
    str_adds(&words, "]");
    for (size_t i = 0; i < n; i++)
        if (stacks)
            str_addf(&layers,
                     "%s\"layers.%lld.mlp.experts.gate_up_proj\", "
                     "\"layers.%lld.mlp.experts.down_proj\"",
                     i ? ", " : "[", (long long)adapters[i].layer,
                     (long long)adapters[i].layer);
        else
            str_addf(&layers, "%s%lld", i ? ", " : "[",
                     (long long)adapters[i].layer);
    str_adds(&layers, "]");

    struct peft_written p = {
        .rank = adapters->rank,
        .alpha = (double)adapters->alpha,
        .rank_pattern = ranks.s,
        .alpha_pattern = alphas.s,
        .layers = stacks ? NULL : layers.s,
        .targets = stacks ? "[]" : words.s,
        .parameters = stacks ? layers.s : NULL,
    };

    rc = peft_write_config(&p, dir, 0, err);
    str_free(&ranks);
    str_free(&alphas);
    str_free(&layers);
    str_free(&words);
    return rc;
}

/* ---- stacks ---- */

/* The shape of A [experts n rank, in] or B [out, rank n experts] of down, or of
 * gate and up: n of them, which it returns. */
static size_t
shape_of(uint64_t shape[2], const struct peft_stacks *s, bool down, bool b)
{
    size_t n = down ? s->parts >> BASE_DOWN
                    : (s->parts >> BASE_GATE & 1) + (s->parts >> BASE_UP & 1);

    shape[b] = s->n_experts * s->rank * n;
    shape[!b] = down == b ? s->hidden : (b ? 2 : 1) * s->intermediate;
    return n;
}

int
peft_add_stacks(struct stw *w, const struct peft_stacks *s, struct err *err)
{
    struct str name = { 0 };
    uint64_t shape[2];
    int rc = 0;

    for (int i = 0; rc >= 0 && i < 4; i++) {
        bool down = i / 2, b = i % 2;

        if (!shape_of(shape, s, down, b))
            continue;
        str_clear(&name);
        str_addf(&name, PEFT_ROOT "%s", s->root);
        part_module(&name, NULL, /* the same in all families */
                    (struct part_at){ PART_EXPERT_GATE, s->layer, 0 }, 2);
        str_addf(&name, "%s.lora_%c.weight",
                 !down && s->parts >> BASE_DOWN ? ".base_layer" : "",
                 b ? 'B' : 'A');
        rc = stw_add(w, name.s, s->dtype, 2, shape, err);
    }
    str_free(&name);
    return rc;
}

/* A part's A or B of all experts, the place'th of n. */
static void
lay_part(float *to, float *from, const struct peft_stacks *s,
         enum base_matrix part, bool b, size_t place, size_t n)
{
    bool down = part == BASE_DOWN;
    size_t in = down ? s->intermediate : s->hidden, r = s->rank;
    size_t rows = down ? s->hidden : s->intermediate;

    for (size_t e = 0; e < s->n_experts; e++) {
        s->read(s, 2 * part + b, e, from);
        if (!b)
            memcpy(to + (e * n + place) * r * in, from, r * in * sizeof(*to));
        for (size_t i = 0; b && i < rows * r; i++) {
            size_t row = i / r, rank = place * r + i % r;

            if (!down)
                row = s->take_turns ? 2 * row + part : part * rows + row;
            to[(row * r * n + rank) * s->n_experts + e] = from[i];
        }
    }
}

int
peft_put_stacks(struct stw *w, int *tensor, const struct peft_stacks *s,
                struct err *err)
{
    size_t most = larger(s->hidden, s->intermediate);
    float *from = mem_try(s->rank, most * sizeof(*from), PEFT_MODEL, err);
    int rc = from ? 0 : -1;

    for (int i = 0; rc == 0 && i < 4; i++) {
        bool down = i / 2, b = i % 2;
        uint64_t shape[2];
        size_t n = shape_of(shape, s, down, b), place = 0;
        size_t all = shape[0] * shape[1], nbytes = all * dtype_size(s->dtype);
        float *to = n ? mem_try(all, sizeof(*to), PEFT_MODEL, err) : NULL;
        void *data = to ? mem_try(nbytes, 1, PEFT_MODEL, err) : NULL;

        if (data) {
            memset(to, 0, all * sizeof(*to));
            for (enum base_matrix m = BASE_GATE; m < BASE_N; m++)
                if ((m == BASE_DOWN) == down && s->parts >> m & 1)
                    lay_part(to, from, s, m, b, place++, n);
            cvt_from_f32(data, s->dtype, to, all);
            rc = stw_write(w, (*tensor)++, data, nbytes, 0, err);
        } else if (n) {
            rc = -1;
        }
        free(data);
        free(to);
    }
    free(from);
    return rc;
}

static void
read_adapter(const struct peft_stacks *s, enum moe_lora_matrix m, size_t expert,
             float *to)
{
    adapter_f32(s->of, m, expert, to);
}

/* An expert's six matrices follow each other. */
static int
add_experts(struct stw *w, const struct expert_adapter *a,
            const struct model_family *family, struct err *err)
{
    struct moe_config config = adapter_config(a, 1);
    struct str s = { 0 };
    int rc = 0;

    for (size_t k = 0; rc >= 0 && k < MOE_N_LORA * a->n_experts; k++) {
        enum moe_lora_matrix m = (enum moe_lora_matrix)(k % MOE_N_LORA);
        uint64_t shape[3];

        moe_lora_shape(&config, m, shape);
        str_clear(&s);
        str_adds(&s, PEFT_ROOT);
        part_name(&s, family,
                  (struct part_at){ PART_EXPERT_GATE + m / 2, (size_t)a->layer,
                                    k / MOE_N_LORA });
        str_addf(&s, ".lora_%c.weight", m % 2 ? 'B' : 'A');
        rc = stw_add(w, s.s, adapter_dtype(a), 2, shape + 1, err);
    }
    str_free(&s);
    return rc;
}

static int
put_experts(struct stw *w, int *tensor, const struct expert_adapter *a,
            struct err *err)
{
    int rc = 0;

    for (size_t k = 0; rc == 0 && k < MOE_N_LORA * a->n_experts; k++)
        rc = adapter_put(a, w, (*tensor)++,
                         (enum moe_lora_matrix)(k % MOE_N_LORA),
                         (int64_t)(k / MOE_N_LORA), err);
    return rc;
}

/* adapter_model.safetensors */
static int
write_model(const struct expert_adapter *adapters, size_t n,
            const struct model_family *family, bool stacks, bool take_turns,
            const char *dir, struct err *err)
{
    struct peft_stacks *all = xcalloc(n, sizeof(*all));
    struct str path = { 0 };
    struct stw *w = stw_new();
    int rc = 0, tensor = 0;

    str_addf(&path, "%s/" PEFT_MODEL, dir);
    for (size_t i = 0; rc >= 0 && i < n; i++) {
        const struct expert_adapter *a = &adapters[i];

        all[i] = (struct peft_stacks){ .root = "model.",
                                       .layer = (size_t)a->layer,
                                       .n_experts = a->n_experts,
                                       .rank = a->rank,
                                       .hidden = a->hidden,
                                       .intermediate = a->intermediate,
                                       .parts = (1u << BASE_N) - 1,
                                       .take_turns = take_turns,
                                       .dtype = adapter_dtype(a),
                                       .read = read_adapter,
                                       .of = a };
        rc = stacks ? peft_add_stacks(w, &all[i], err)
                    : add_experts(w, a, family, err);
    }
    if (rc >= 0)
        rc = stw_open(w, path.s, 0, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = stacks ? peft_put_stacks(w, &tensor, &all[i], err)
                    : put_experts(w, &tensor, &adapters[i], err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = adapter_unchanged(&adapters[i], err);
    if (rc == 0)
        rc = stw_commit(w, err);
    stw_free(w);
    str_free(&path);
    free(all);
    return rc;
}

int
adapter_write_peft(const struct expert_adapter *adapters, size_t n,
                   const struct model_family *family, bool stacks,
                   const char *dir, int flags, struct err *err)
{
    const struct family_stack *stack = family ? family_stack(family) : NULL;
    struct outdir_at f;
    const char *path;

    if (outdir_at_open(&f, dir, flags, err) < 0)
        return -1;
    path = outdir_path(f.dir);
    if (stacks) /* which have the same names in all families */
        family = NULL;
    if (write_config(adapters, n, family, stacks, path, err) < 0 ||
        write_model(adapters, n, family, stacks, stack && stack->in_out, path,
                    err) < 0) {
        outdir_at_abort(&f);
        return -1;
    }
    return outdir_at_commit(&f, err);
}
