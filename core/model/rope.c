/* SPDX-License-Identifier: ISC */
#include "core/model/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/kernel/f64.h"
#include "core/mem.h"
#include "core/model/config_impl.h"

#define MOST 1e30 /* of any number here */

/* Reads a number that must be there. */
static int
number(const struct js *obj, const char *key, double min, double *v,
       struct err *err)
{
    struct js js = js_get(obj, key);

    return js_absent(&js) ? js_f64(&js, v, err)
                          : config_range(obj, key, min, MOST, v, err);
}

static int
number_or(const struct js *obj, const char *key, double min, double absent,
          double *v, struct err *err)
{
    *v = absent;
    return config_range(obj, key, min, MOST, v, err);
}

/* The scale of cos and sin in a context stretched by 'factor': YaRN's
 * 0.1 ln(s) + 1, with DeepSeek's weight. */
static double
mscale(double factor, double weight)
{
    return factor <= 1 ? 1 : 0.1 * weight * f64_log(factor) + 1;
}

/* "rope_type", or "type" in older files, and what belongs to it. */
static int
parse_type(struct rope_config *rope, const struct js *obj, struct err *err)
{
    /* enum rope_type, then other names; of text, mrope is the default */
    static const char *const names[] = { "default",  "linear", "llama3", "yarn",
                                         "longrope", "su",     "mrope" };
    enum { N_NAMES = sizeof(names) / sizeof(*names) };
    struct js js = js_get(obj, "rope_type"), factor = js_get(obj, "factor");
    struct js original = js_get(obj, "original_max_position_embeddings");
    struct js high = js_get(obj, "high_freq_factor");
    struct js fast = js_get(obj, "beta_fast");
    const char *name = names[ROPE_DEFAULT];
    double m, attention;
    size_t n, type = 0;

    if (js_absent(&js))
        js = js_get(obj, "type");
    if (js_absent(&js) && !js_absent(&factor)) {
        js = js_get(obj, "rope_type");
        return js_bad(&js, "a name, as there is a factor", err);
    }
    if (!js_absent(&js) && js_str(&js, &name, &n, err))
        return -1;
    while (type < N_NAMES && strcmp(name, names[type]) != 0)
        type++;
    if (type == N_NAMES)
        return js_unsupported(&js, name,
                              "default, linear, llama3, yarn, longrope", err);
    if (type > ROPE_LONG)
        type = type == N_NAMES - 1 ? ROPE_DEFAULT : ROPE_LONG;
    rope->type = (enum rope_type)type;
    if (type == ROPE_DEFAULT || type == ROPE_LONG)
        return 0;
    if (number(obj, "factor", 1, &rope->factor, err))
        return -1;
    if (type == ROPE_LLAMA3 &&
        (number(obj, "low_freq_factor", 1e-6, &rope->low_freq_factor, err) ||
         number(obj, "high_freq_factor", 1e-6, &rope->high_freq_factor, err)))
        return -1;
    if (type != ROPE_LINEAR &&
        js_whole(&original, 1, INT32_MAX, &rope->original_max_positions, err))
        return -1;
    if (type == ROPE_LLAMA3 && rope->high_freq_factor <= rope->low_freq_factor)
        return js_bad(&high, "more than low_freq_factor", err);
    if (type != ROPE_YARN)
        return 0;
    if (number_or(obj, "beta_fast", 1e-6, 32, &rope->beta_fast, err) ||
        number_or(obj, "beta_slow", 1e-6, 1, &rope->beta_slow, err) ||
        number_or(obj, "mscale", 0, 0, &m, err) ||
        number_or(obj, "mscale_all_dim", 0, 0, &rope->mscale_all_dim, err))
        return -1;
    if (rope->beta_fast < rope->beta_slow)
        return js_bad(&fast, "not less than beta_slow", err);
    attention = m > 0 && rope->mscale_all_dim > 0
                    ? mscale(rope->factor, m) /
                          mscale(rope->factor, rope->mscale_all_dim)
                    : mscale(rope->factor, 1);
    return js_bool_or(obj, "truncate", true, &rope->truncate, err) < 0
               ? -1
               : number_or(obj, "attention_factor", 1e-6, attention,
                           &rope->attention_factor, err);
}

/* What part of each head is rotated: all of it in most families. */
static int
parse_partial(const struct model_family *f, const struct js *obj,
              const char *key, double *part, struct err *err)
{
    struct js js = js_get(obj, key);

    if (config_range(obj, key, 0, 1, part, err))
        return -1;
    if (f->rotary <= 0 && *part < 1)
        return js_bad(&js, "1: whole heads are rotated", err);
    return *part > 0 ? 0 : js_bad(&js, "more than 0", err);
}

static const struct rope_config plain = { .factor = 1, .attention_factor = 1 };

static bool
is_empty(const struct js *js)
{
    return js_absent(js) ||
           (js_is(js, JSON_OBJECT) && json_object_size(js->v) == 0);
}

/*
 * Transformers 5 writes rope_parameters, 4 wrote rope_scaling; where a file has
 * both, 5 reads the latter.  They must say the same, but for the base, which
 * has a place of its own.
 */
static int
find_rope(struct js *obj, const struct js *root, struct err *err)
{
    struct js scaling = js_get(root, "rope_scaling");
    struct rope_config x = plain, y = plain;
    struct err differs;

    *obj = js_get(root, "rope_parameters");
    if (is_empty(&scaling))
        return 0;
    if (!is_empty(obj) &&
        !(js_is(obj, JSON_OBJECT) && js_is(&scaling, JSON_OBJECT) &&
          parse_type(&x, obj, &differs) == 0 &&
          parse_type(&y, &scaling, &differs) == 0 && x.type == y.type &&
          x.type != ROPE_LONG && x.factor == y.factor &&
          x.low_freq_factor == y.low_freq_factor &&
          x.high_freq_factor == y.high_freq_factor &&
          x.beta_fast == y.beta_fast && x.beta_slow == y.beta_slow &&
          x.attention_factor == y.attention_factor &&
          x.mscale_all_dim == y.mscale_all_dim && x.truncate == y.truncate &&
          x.original_max_positions == y.original_max_positions))
        return err_set(err, EX_DATAERR,
                       "%s: rope_parameters and rope_scaling differ "
                       "(expected one of them)",
                       root->file);
    if (!json_object_get(obj->v, "rope_theta") && /* or it is empty */
        !json_object_get(obj->v, "full_attention") &&
        !json_object_get(obj->v, "sliding_attention"))
        *obj = scaling;
    return 0;
}

/* One table's object, which may be absent. */
static int
parse_table(struct rope_config *rope, const struct model_family *f,
            const struct js *obj, double *part, struct err *err)
{
    struct js theta = js_get(obj, "rope_theta");

    if (js_absent(obj))
        return 0;
    if (!js_is(obj, JSON_OBJECT))
        return js_bad(obj, "an object", err);
    return parse_partial(f, obj, "partial_rotary_factor", part, err) ||
                   (!js_absent(&theta) &&
                    number(obj, "rope_theta", 1.0001, &rope->theta, err)) ||
                   parse_type(rope, obj, err)
               ? -1
               : 0;
}

/* The factors of one table of longrope. */
static int
parse_factors(struct rope_config *rope, const struct js *obj, const char *key,
              size_t n, struct err *err)
{
    struct js js = js_get(obj, key);
    char expected[64];

    snprintf(expected, sizeof(expected), "%zu numbers", n);
    if (!js_is(&js, JSON_ARRAY) || json_array_size(js.v) != n)
        return js_bad(&js, expected, err);
    rope->factors = xcalloc(n, sizeof(*rope->factors));
    for (size_t i = 0; i < n; i++) {
        struct js v = js_at(&js, i);

        if (js_f64(&v, &rope->factors[i], err))
            return -1;
        if (!(rope->factors[i] >= 1e-6 && rope->factors[i] <= 1e30))
            return js_bad(&v, "a number from 1e-6 to 1e30", err);
    }
    return 0;
}

/* Both tables of longrope. */
static int
parse_long(struct rope_config *rope, const struct js *root,
           const struct js *obj, const struct config *c, struct err *err)
{
    static const char *const limits = "original_max_position_embeddings";
    struct js limit = js_get(root, limits);
    size_t n = (size_t)c->rotary_dim / 2;
    double ratio, factor = 1;

    if (js_absent(&limit))
        limit = js_get(obj, limits);
    if (js_whole(&limit, 2, INT32_MAX, &rope[0].original_max_positions, err))
        return -1;
    ratio = (double)c->max_positions / (double)rope->original_max_positions;
    if (number_or(obj, "factor", 1, ratio, &ratio, err))
        return -1;
    if (ratio > 1)
        factor = sqrt(1 + f64_log(ratio) /
                              f64_log((double)rope->original_max_positions));
    if (number_or(obj, "attention_factor", 1e-6, factor,
                  &rope[0].attention_factor, err))
        return -1;
    rope[1] = rope[0];
    return parse_factors(&rope[0], obj, "short_factor", n, err) ||
                   parse_factors(&rope[1], obj, "long_factor", n, err)
               ? -1
               : 0;
}

int
rope_parse(struct rope_config *rope, const struct js *root, struct config *c,
           struct err *err)
{
    static const char *const kinds[CONFIG_MAX_ROPES] = { "full_attention",
                                                         "sliding_attention" };
    const struct model_family *f = c->family;
    double part = f->rotary > 0 ? f->rotary : 1;
    double theta = f->theta > 0 ? f->theta : 1e4;
    struct js obj, of[CONFIG_MAX_ROPES];
    size_t n_kinds = 0;

    rope[0] = rope[1] = plain;
    if (c->form.learned)
        return 0;
    if (find_rope(&obj, root, err) ||
        parse_partial(f, root, family_key(f, "partial_rotary_factor"), &part,
                      err) ||
        number_or(root, family_key(f, "rope_theta"), 1.0001, theta,
                  &rope[0].theta, err))
        return -1;
    for (size_t i = 0; i < CONFIG_MAX_ROPES; i++) {
        of[i] = js_get(&obj, kinds[i]);
        n_kinds += of[i].v != NULL;
        if (of[i].v && c->form.rope != ROPE_TWO)
            return js_unsupported(&obj, kinds[i], "one rotation for all layers",
                                  err);
    }
    if (parse_table(&rope[0], f, n_kinds ? &of[0] : &obj, &part, err) ||
        number_or(root, "rope_local_base_freq", 1.0001,
                  f->local_theta > 0 ? f->local_theta : rope[0].theta,
                  &rope[1].theta, err) ||
        (n_kinds && parse_table(&rope[1], f, &of[1], &part, err)))
        return -1;
    if (c->form.mla) {
        double by = mscale(rope->factor, rope->mscale_all_dim);

        c->head_dim = c->nope_dim + c->rotary_dim;
        c->attn_scale = by * by / sqrt((double)c->head_dim);
    } else {
        c->rotary_dim = (int64_t)((double)c->head_dim * part);
    }
    if (c->rotary_dim < 2 || c->rotary_dim % 2)
        return err_set(err, EX_DATAERR,
                       "%s: rotates %lld numbers of each head (expected an "
                       "even number)",
                       root->file, (long long)c->rotary_dim);
    if (c->form.rope == ROPE_TWO &&
        (rope[0].type == ROPE_LONG || rope[1].type == ROPE_LONG))
        return js_unsupported(&obj, "longrope", "default, linear, yarn", err);
    return rope->type == ROPE_LONG ? parse_long(rope, root, &obj, c, err) : 0;
}

/* YaRN: the dimension that makes so many rotations in the original context. */
static double
yarn_dim(const struct rope_config *rope, double rotations, double head_dim)
{
    return head_dim *
           f64_log((double)rope->original_max_positions /
                   (rotations * 2 * M_PI)) /
           (2 * f64_log(rope->theta));
}

void
rope_inv_freq(double *inv_freq, const struct rope_config *rope,
              size_t rotary_dim)
{
    double d = (double)rotary_dim, low = 0, high = 0;

    if (rope->type == ROPE_YARN) {
        low = yarn_dim(rope, rope->beta_fast, d);
        high = yarn_dim(rope, rope->beta_slow, d);
        low = fmax(rope->truncate ? floor(low) : low, 0);
        high = fmin(rope->truncate ? ceil(high) : high, d - 1);
        if (low == high)
            high += 0.001; /* as Hugging Face does: a step, not 0 / 0 */
    }
    for (size_t i = 0; i < rotary_dim / 2; i++) {
        double freq = f64_pow(rope->theta, -2 * (double)i / d), ramp;

        inv_freq[i] = freq;
        if (rope->type == ROPE_LINEAR) {
            inv_freq[i] = freq / rope->factor;
        } else if (rope->type == ROPE_LLAMA3) {
            /* long waves are stretched, short ones kept, a ramp between */
            ramp = (double)rope->original_max_positions * freq / (2 * M_PI);
            ramp = (ramp - rope->low_freq_factor) /
                   (rope->high_freq_factor - rope->low_freq_factor);
            ramp = fmin(fmax(ramp, 0), 1);
            inv_freq[i] = (1 - ramp) * freq / rope->factor + ramp * freq;
        } else if (rope->type == ROPE_LONG) {
            inv_freq[i] = freq / rope->factors[i];
        } else if (rope->type == ROPE_YARN) {
            ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
            inv_freq[i] = freq / rope->factor * ramp + freq * (1 - ramp);
        }
    }
}

void
rope_table(float *cosines, float *sines, const struct rope_config *rope,
           const double *inv_freq, size_t half, size_t position)
{
    for (size_t i = 0; i < half; i++) {
        double angle = (double)position * inv_freq[i];

        cosines[i] = (float)(f64_cos(angle) * rope->attention_factor);
        sines[i] = (float)(f64_sin(angle) * rope->attention_factor);
    }
}
