/* SPDX-License-Identifier: ISC */
/*
 * PEFT's adapters of all experts in one tensor, target_parameters: n matrices
 * [out, in] have A [n r, in], the rows of one expert after those of another,
 * and B [out, r n], whose columns alternate, one of each expert.  Where PEFT
 * took a matrix for its transposed, A is [n r, out] and B [in, r n]: of [out,
 * in] up to 0.18, of [in, out] in 0.19.0.
 * Source: peft/tuners/lora/layer.py, ParamWrapper, 0.17.0 to 0.20.0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/stwant.h"
#include "core/mem.h"
#include "core/model/lora_file.h"
#include "core/model/parts.h"
#include "core/str.h"

#define WRAP ".base_layer"

struct stack {
    const struct lora_pair *of;
    struct peft_pair config;
    int64_t r_down;        /* what the configuration has for down_proj */
    bool down, take_turns; /* gate's rows and up's, which are in one matrix */
    size_t n, r, in, out;
    int swapped; /* -1: in is out, and A may be either */
    const char *a, *b;
    size_t item; /* bytes of a number */
};

/* The adapter's name as PEFT's configuration has it. */
static char *
parameter(const struct lora_pair *p, bool down)
{
    struct str s = { 0 };
    const char *wrap = strstr(p->module, WRAP);
    size_t n = wrap ? (size_t)(wrap - p->module) : strlen(p->module);

    str_addf(&s, "%.*s.%s", (int)n, p->module,
             down ? "down_proj" : "gate_up_proj");
    return s.s;
}

/* Which parameter it is of: of two, gate_up_proj is wrapped first. */
static int
find_parameter(struct stack *s, const struct lora_file *f, char **name,
               struct err *err)
{
    const struct lora_pair *p = s->of;
    char *names[] = { parameter(p, false), parameter(p, true) };
    bool has[] = { peft_parameter(&f->config, names[0]),
                   peft_parameter(&f->config, names[1]) };
    int n = has[0] + has[1], n_there = 0;

    for (size_t i = 0; i < f->n_pairs; i++)
        n_there += f->pairs[i].stack && f->pairs[i].of.layer == p->of.layer &&
                   f->pairs[i].of.prefix_n == p->of.prefix_n;
    s->down = n == 2 ? p->stack == 1 : has[1];
    *name = names[s->down];
    free(names[!s->down]);
    if (n == n_there && p->stack <= n)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: %s: of gate_up_proj and down_proj, target_parameters "
                   "has %d, but the tensors are of %d parameters",
                   f->config.path, p->module, n, n_there);
}

static int
open_stack(struct stack *s, const struct lora_file *f,
           const struct lora_experts *x, struct err *err)
{
    const struct stdir_tensor *a = s->of->tensor[0], *b = s->of->tensor[1];
    char *name, *other = parameter(s->of, true);
    struct peft_pair down;
    int rc = find_parameter(s, f, &name, err);

    if (rc == 0)
        rc = peft_pair(&f->config, name, &s->config, err);
    if (rc == 0)
        rc = peft_pair(&f->config, other, &down, err);
    free(other);
    free(name);
    if (rc)
        return -1;
    s->r_down = down.r;
    s->r = (size_t)s->config.r;
    s->n = x->n;
    s->in = s->down ? x->intermediate : x->hidden;
    s->out = s->down ? x->hidden : 2 * x->intermediate;
    s->take_turns = !s->down && x->take_turns;
    s->swapped = s->in == s->out
                     ? -1
                     : a->t->n_dims == 2 && b->t->n_dims == 2 &&
                           a->t->shape[1] == s->out && b->t->shape[0] == s->in;

    const struct st_want wants[] = {
        { 2, .shape = { s->n * s->r, s->swapped == 1 ? s->out : s->in } },
        { 2, .shape = { s->swapped == 1 ? s->in : s->out, s->n * s->r } },
    };

    if (st_want(a->st->path, a->t, &wants[0], err) ||
        st_want(b->st->path, b->t, &wants[1], err))
        return -1;
    if (a->t->dtype != b->t->dtype)
        return err_set(err, EX_DATAERR, "%s: %s is %s, but %s is %s",
                       a->st->path, a->t->name, dtype_table[a->t->dtype].name,
                       b->t->name, dtype_table[b->t->dtype].name);
    s->a = st_data(a->st, a->t);
    s->b = st_data(b->st, b->t);
    s->item = dtype_size(a->t->dtype);
    return 0;
}

/* Where number [i, j] of an expert's own A or B is. */
static const char *
number_at(const struct stack *s, bool b, size_t e, size_t i, size_t j)
{
    size_t rank = b ? j : i, other = b ? i : j;

    if (b && s->take_turns)
        other = i % (s->out / 2) * 2 + i / (s->out / 2);
    if (b == s->swapped)
        return s->a +
               ((e * s->r + rank) * (b ? s->out : s->in) + other) * s->item;
    return s->b + (other * s->r * s->n + rank * s->n + e) * s->item;
}

/* Did gate and up have a rank of their own each, as PEFT joins them, and we
 * write them?  Then it is twice that of down_proj, half of B is zeros, and the
 * other half is theirs. */
static bool
is_joined(const struct stack *s, enum dtype dtype)
{
    size_t half = s->out / 2, r = s->r / 2;

    if (s->down || s->config.r != 2 * s->r_down)
        return false;
    for (size_t e = 0; e < s->n; e++)
        for (size_t i = 0; i < s->out; i++)
            for (size_t j = 0; j < r; j++)
                if (dtype_get(dtype,
                              number_at(s, true, e, i, i < half ? r + j : j),
                              0) != 0)
                    return false;
    return true;
}

/* An expert's matrix [rows, cols] from row i and column j of its A or B on. */
static void
copy_matrix(char *to, const struct stack *s, bool b, size_t e, size_t i,
            size_t j, size_t rows, size_t cols)
{
    for (size_t y = i; y < i + rows; y++)
        for (size_t x = j; x < j + cols; x++, to += s->item)
            memcpy(to, number_at(s, b, e, y, x), s->item);
}

/* Adds the pairs of all experts. */
static int
add_pairs(struct lora_file *to, const struct stack *s,
          const struct lora_experts *x, struct err *err)
{
    const struct lora_pair *p = s->of;
    enum dtype dtype = p->tensor[0]->t->dtype;
    size_t n_parts = s->down ? 1 : 2, rows = s->out / n_parts;
    size_t r = is_joined(s, dtype) ? s->r / 2 : s->r;
    size_t n_a = r * s->in, n = n_a + rows * r;
    char *data = mem_try(s->n * n_parts, n * s->item, p->module, err);

    if (!data)
        return -1;
    to->owned = xrealloc(to->owned, to->n_owned + 1, sizeof(*to->owned));
    to->owned[to->n_owned++] = data;
    to->pairs =
        xrealloc(to->pairs, to->n_pairs + s->n * n_parts, sizeof(*to->pairs));
    for (size_t k = 0; k < s->n * n_parts; k++, data += n * s->item) {
        size_t e = k / n_parts, i = k % n_parts, j = r < s->r ? i * r : 0;
        char *b = data + n_a * s->item;
        int projection = s->down ? 2 : (int)i;
        struct str name = { 0 };

        copy_matrix(data, s, false, e, j, 0, r, s->in);
        copy_matrix(b, s, true, e, i * rows, j, rows, r);
        part_name(&name, x->family,
                  (struct part_at){ PART_EXPERT_GATE + projection,
                                    (size_t)p->of.layer, e });
        to->pairs[to->n_pairs++] = (struct lora_pair){
            .module = name.s,
            .of = { p->of.prefix_n, p->of.layer, (int64_t)e },
            .projection = projection,
            .tensor = { p->tensor[0], p->tensor[1] },
            .n_tensors = k ? 0 : 2,
            .config = { (int64_t)r, s->config.scale,
                        s->config.scale * (double)r },
            .a = { .w = { data, dtype, s->in }, .out = r, .in = s->in },
            .b = { .w = { b, dtype, r }, .out = rows, .in = r },
        };
    }
    return 0;
}

/* Does PEFT's version, in its configurations since 0.18, say that it swapped
 * them?  -1: it says nothing. */
static int
version_swapped(const struct peft *p, bool in_out)
{
    const char *s = json_string_value(json_object_get(p->root, "peft_version"));
    int minor, patch, n;

    if (!s || sscanf(s, "0.%4d.%4d%n", &minor, &patch, &n) != 2 || s[n])
        return -1;
    return in_out ? minor == 19 && patch == 0 : minor < 19;
}

int
lora_file_experts(struct lora_file *f, const struct lora_experts *x,
                  struct err *err)
{
    struct lora_pair *pairs = f->pairs;
    struct stack *stacks = xcalloc(f->n_pairs, sizeof(*stacks));
    size_t n = 0, n_pairs = f->n_pairs;
    int swapped = -1, rc = 0;

    for (size_t i = 0; rc == 0 && i < n_pairs; i++)
        if (pairs[i].stack) {
            stacks[n] = (struct stack){ .of = &pairs[i] };
            rc = x->n ? open_stack(&stacks[n], f, x, err)
                      : err_set(err, EX_DATAERR,
                                "%s: %s is of all experts, which only the "
                                "base shows (-b BASE)",
                                f->dir.path, pairs[i].tensor[0]->t->name);
            swapped = swapped < 0 ? stacks[n].swapped : swapped;
            n++;
        }
    if (n && swapped < 0)
        swapped = version_swapped(&f->config, x->take_turns);
    if (rc == 0 && n && swapped < 0)
        rc = err_set(err, EX_DATAERR,
                     "%s: is of [%zu, %zu] alone, and a square matrix does not "
                     "show whether PEFT took it for its transposed, as some "
                     "versions do",
                     f->dir.path, stacks->out, stacks->in);
    if (rc || !n)
        goto out;
    f->pairs = xcalloc(n_pairs, sizeof(*f->pairs));
    f->n_pairs = 0;
    for (size_t i = 0; i < n_pairs; i++)
        if (!pairs[i].stack)
            f->pairs[f->n_pairs++] = pairs[i];
    for (size_t i = 0; i < n; i++) {
        if (stacks[i].swapped < 0)
            stacks[i].swapped = swapped;
        if (rc == 0)
            rc = add_pairs(f, &stacks[i], x, err);
    }
    for (size_t i = 0; i < n; i++)
        free(stacks[i].of->module);
    free(pairs);
out:
    free(stacks);
    return rc;
}
