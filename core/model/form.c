/* SPDX-License-Identifier: ISC */
#include "core/model/form.h"

#include <stdlib.h>
#include <string.h>

#include "core/format/stwant.h"
#include "core/hash.h"
#include "core/mem.h"
#include "core/model/family.h"
#include "core/model/form_impl.h"
#include "core/model/names.h"
#include "core/tty.h"

#define MX_GROUP 32

#define BY " by the layer's other tensors and config.json"

#define COMPRESSED "compressed-tensors"
#define BYTES                                   \
    LAYOUT_BYTES,                               \
        .suffix = { ".weight", ".weight_scale", \
                    ".weight_zero_point", [FORM_INPUT] = ".input_scale" }
#define WORDS                                                                \
    LAYOUT_WORDS,                                                            \
        .suffix = { ".weight_packed", ".weight_scale", ".weight_zero_point", \
                    ".weight_shape",  ".weight_g_idx", ".input_scale" }

static const struct weight_form forms[] = {
    { "fp8", NULL, LAYOUT_BYTES, .other_scale = ".weight_scale",
      .suffix = { ".weight",
                  ".weight_scale_inv", [FORM_INPUT] = ".input_scale" },
      .stack = { "", "_scale_inv", [FORM_INPUT] = "_activation_scale" } },
    { COMPRESSED, "float-quantized", BYTES },
    { COMPRESSED, "int-quantized", BYTES },
    { COMPRESSED, "naive-quantized", BYTES },
    { COMPRESSED, "pack-quantized", WORDS },
    { COMPRESSED, "mxfp4-pack-quantized", LAYOUT_MXFP4,
      .suffix = { ".weight_packed", ".weight_scale" } },
    { "awq", NULL, LAYOUT_AWQ, .suffix = { ".qweight", ".scales", ".qzeros" } },
    { "gptq", NULL, LAYOUT_GPTQ,
      .suffix = { ".qweight", ".scales", ".qzeros", [FORM_INDEX] = ".g_idx" } },
    { "mxfp4", NULL, LAYOUT_MXFP4, .stack = { "_blocks", "_scales" } },
};
enum { N_FORMS = sizeof(forms) / sizeof(*forms) };

const struct weight_form *
form_row(const char *method, const char *format)
{
    for (size_t i = 0; i < N_FORMS; i++)
        if (!strcmp(forms[i].method, method) &&
            (!forms[i].format || (format && !strcmp(forms[i].format, format))))
            return &forms[i];
    return NULL;
}

void
form_list(struct str *to, const char *method)
{
    const char *last = "", *name;

    for (size_t i = 0; i < N_FORMS; i++) {
        name = method ? forms[i].format : forms[i].method;
        if ((method && strcmp(forms[i].method, method) != 0) ||
            !strcmp(last, name))
            continue;
        str_addf(to, "%s%s", *last ? ", " : "", name);
        last = name;
    }
}

/* ---- shapes ---- */

/* A tensor of one of two types, of this shape. */
static int
want(const struct stdir_tensor *t, enum dtype a, enum dtype b,
     const struct st_want *shape, struct err *err)
{
    if (t->t->dtype != a && t->t->dtype != b)
        return err_data(err, t->st->path, "%s is %s (expected %s%s%s)",
                        t->t->name, dtype_table[t->t->dtype].name,
                        dtype_table[a].name, a == b ? "" : " or ",
                        a == b ? "" : dtype_table[b].name);
    return st_want_shape(t->st->path, t->t, shape, err);
}

static size_t
divide_up(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

/* Columns of a matrix, rows of blocks and blocks in each. */
static void
blocks_of(const struct form_tensors *t, size_t *rows, size_t *cols)
{
    const struct quantized_group *g = t->group;

    *rows = g->scale_of == SCALE_TENSOR  ? 1
            : g->scale_of == SCALE_BLOCK ? divide_up(t->out, g->rows)
                                         : t->out;
    *cols = g->scale_of >= SCALE_GROUP ? divide_up(t->in, g->cols) : 1;
}

/* The shape of a tensor with so many bits for each block: [rows, cols], the
 * rows in words, or transposed; of a tensor's or channels' it may be less. */
static struct st_want
shape_of(const struct form_tensors *t, const struct st_tensor *s, unsigned bits)
{
    bool transposed = form_is_transposed(t->group->form->layout);
    struct st_want want = { .n_dims = 2, .by = BY };
    size_t rows, cols, words;

    blocks_of(t, &rows, &cols);
    words = divide_up(rows * bits, 32);
    want.shape[0] = transposed ? cols : words;
    want.shape[1] = transposed ? words : cols;
    if (t->stacked) {
        memmove(want.shape + 1, want.shape, 2 * sizeof(*want.shape));
        *want.shape = t->n;
        want.n_dims = 3;
    } else if (cols == 1 && !transposed && bits == 32 &&
               (s->n_dims == 1 || (rows == 1 && s->n_dims == 0))) {
        want.n_dims = s->n_dims;
    }
    return want;
}

static int
check_scale(const struct form_tensors *t, struct err *err)
{
    const struct stdir_tensor *s = t->tensor[FORM_SCALE];
    const struct st_want shape = shape_of(t, s->t, 32);

    if (t->group->scale_of == SCALE_GROUP &&
        t->group->form->layout != LAYOUT_GPTQ && t->in % t->group->cols)
        return err_data(err, s->st->path,
                        "%s: %zu columns are not a multiple of %zu, group_size",
                        s->t->name, t->in, t->group->cols);
    if (t->group->form->layout == LAYOUT_MXFP4)
        return want(s, DT_U8, DT_F8_E8M0, &shape, err);
    if (!dtype_computes(s->t->dtype) && s->t->dtype != DT_F8_E8M0)
        return err_data(err, s->st->path,
                        "%s is %s (expected F32, BF16, F16 or F8_E8M0)",
                        s->t->name, dtype_table[s->t->dtype].name);
    return st_want_shape(s->st->path, s->t, &shape, err);
}

/* The numbers' own tensor: what it says of out and in. */
static int
check_codes(struct form_tensors *t, struct err *err)
{
    const struct quantized_group *g = t->group;
    const struct stdir_tensor *c = t->tensor[FORM_CODES];
    const enum form_layout layout = g->form->layout;
    const bool mxfp4 = layout == LAYOUT_MXFP4, groups = mxfp4 && t->stacked;
    const struct st_want rows = { .n_dims = 2 + t->stacked + groups,
                                  .shape = { ST_OPEN, ST_OPEN, ST_OPEN, 16 },
                                  .open = groups ? "experts, rows, groups"
                                          : t->stacked
                                              ? "experts, rows, columns"
                                              : "rows, columns" };
    enum dtype dtype = mxfp4                    ? DT_U8
                       : layout != LAYOUT_BYTES ? DT_I32
                       : g->is_float            ? DT_F8_E4M3
                                                : DT_I8;
    const uint64_t *n = c->t->shape;

    if (want(c, dtype, dtype, &rows, err) < 0)
        return -1;
    if (c->t->n_elements == 0)
        return err_data(err, c->st->path, "%s is empty", c->t->name);
    t->n = t->stacked ? *n++ : 1;
    t->out = n[0];
    t->in = n[1];
    switch (layout) {
    case LAYOUT_MXFP4:
        t->in *= groups ? MX_GROUP : 2;
        break;
    case LAYOUT_AWQ:
        t->in = n[0];
        t->out = n[1] * 8;
        break;
    case LAYOUT_GPTQ:
        t->in = n[0] * 32 / g->bits;
        t->out = n[1];
        if (g->bits == 3 && n[0] % 3)
            return err_data(err, c->st->path,
                            "%s has %zu rows (expected a multiple of 3, the "
                            "bits of a number)",
                            c->t->name, (size_t)n[0]);
        break;
    default:
        break;
    }
    return 0;
}

/* weight_shape says how many columns the words hold. */
static int
check_shape(struct form_tensors *t, struct err *err)
{
    const struct stdir_tensor *s = t->tensor[FORM_SHAPE];
    const struct stdir_tensor *c = t->tensor[FORM_CODES];
    const struct st_want two = { .n_dims = 1, .shape = { 2 } };
    size_t words = t->in, bits = t->group->bits;
    double out, in;

    if (want(s, DT_I64, DT_I32, &two, err))
        return -1;
    out = dtype_get(s->t->dtype, st_data(s->st, s->t), 0);
    in = dtype_get(s->t->dtype, st_data(s->st, s->t), 1);
    t->in = in > 0 && in < 1e9 ? (size_t)in : 0;
    if (out != (double)t->out || !t->in ||
        (words != divide_up(t->in * bits, 32) &&
         words != divide_up(t->in, 32 / bits)))
        return err_data(err, s->st->path,
                        "%s is [%.0f, %.0f], but %s has %zu rows of %zu words "
                        "of %zu-bit numbers",
                        s->t->name, out, in, c->t->name, t->out, words, bits);
    return 0;
}

/* Zero points, packed or not, and the index of columns. */
static int
check_rest(const struct form_tensors *t, struct err *err)
{
    const struct quantized_group *g = t->group;
    const struct stdir_tensor *z = t->tensor[FORM_ZERO];
    const struct stdir_tensor *x = t->tensor[FORM_INDEX];
    const struct st_want index = { .n_dims = 1, .shape = { t->in }, .by = BY };

    if (z && !g->symmetric) {
        bool bytes = g->form->layout == LAYOUT_BYTES;
        enum dtype dtype = bytes ? DT_I8 : DT_I32;
        const struct st_want shape = shape_of(t, z->t, bytes ? 32 : g->bits);

        if (want(z, dtype, dtype, &shape, err))
            return -1;
    }
    return x ? want(x, DT_I32, DT_I32, &index, err) : 0;
}

/* ---- tensors ---- */

/* What tensors' names end with. */
static const char *const *
suffixes(const struct weight_form *form, bool stacked)
{
    return stacked ? form->stack : form->suffix;
}

/* A tensor of a module whose name is as in the file. */
static const struct stdir_tensor *
find_exact(const struct stdir *dir, const char *module, const char *suffix)
{
    struct str name = { 0 };
    const struct stdir_tensor *t;

    if (!suffix)
        return NULL;
    str_addf(&name, "%s%s", module, suffix);
    t = stdir_find(dir, name.s);
    str_free(&name);
    return t;
}

/* The tensor of a role, with or without the root. */
static const struct stdir_tensor *
find(const struct stdir *dir, const char *module, const char *suffix)
{
    const char *dot = strrchr(module, '.');
    const struct stdir_tensor *t;
    struct str word = { 0 };
    char *above;

    if (suffix && *suffix == '.')
        return names_tensor(dir, module, suffix + 1);
    if (!suffix || !dot)
        return find_exact(dir, module, suffix);
    above = xstrndup(module, (size_t)(dot - module));
    str_addf(&word, "%s%s", dot + 1, suffix);
    t = names_tensor(dir, above, word.s);
    str_free(&word);
    free(above);
    return t;
}

/* Is it packed, and not numbers that have the name of these codes? */
static bool
is_packed(const struct weight_form *form, bool stacked,
          const struct stdir_tensor *t)
{
    if (!t || form->layout != LAYOUT_BYTES)
        return t;
    return stacked ? t->t->dtype == DT_F8_E4M3 && t->t->n_dims == 3
                   : !dtype_computes(t->t->dtype);
}

/* The tensor that makes a module packed, in any form that config.json names. */
static const struct stdir_tensor *
find_codes(const struct quantization *q, const struct stdir *dir,
           const char *module, const struct weight_form **form, bool *stacked)
{
    for (size_t i = 0; i < 2 * q->n_groups; i++) {
        const struct stdir_tensor *t;

        *form = q->groups[i / 2].form;
        *stacked = i % 2;
        t = find(dir, module, suffixes(*form, *stacked)[FORM_CODES]);
        if (is_packed(*form, *stacked, t))
            return t;
    }
    return NULL;
}

static int
find_tensors(struct form_tensors *t, const struct stdir *dir,
             const char *module, struct err *err)
{
    const struct weight_form *form = t->group->form;
    const char *const *suffix = suffixes(form, t->stacked);
    const struct stdir_tensor *codes = t->tensor[FORM_CODES];
    bool is_words = form->layout == LAYOUT_WORDS;
    bool has_zeros = form_is_transposed(form->layout) || !t->group->symmetric;

    for (enum form_role r = FORM_SCALE; r < FORM_N_ROLES; r++) {
        t->tensor[r] = find_exact(dir, module, suffix[r]);
        if (r == FORM_SCALE && !t->tensor[r] && !t->stacked)
            t->tensor[r] = find_exact(dir, module, form->other_scale);
    }
    for (enum form_role r = FORM_SCALE; r < FORM_INPUT; r++) {
        bool needed = r == FORM_SCALE || (r == FORM_SHAPE && is_words) ||
                      (r == FORM_ZERO && has_zeros) ||
                      (r == FORM_INDEX && t->group->by_index);

        if (needed && suffix[r] && !t->tensor[r])
            return err_data(err, codes->st->path,
                            "tensor %s%s is missing, but %s is there", module,
                            suffix[r], codes->t->name);
    }
    return 0;
}

int
form_look(struct form_tensors *t, const struct quantization *q,
          const struct stdir *dir, const char *module, struct err *err)
{
    const struct weight_form *form;
    bool stacked = false;
    const struct stdir_tensor *codes =
        find_codes(q, dir, module, &form, &stacked);
    char *name;
    int rc, ignored;

    *t = (struct form_tensors){ .stacked = stacked };
    if (!codes)
        return 0;
    name = xstrndup(codes->t->name,
                    strlen(codes->t->name) -
                        strlen(suffixes(form, stacked)[FORM_CODES]));
    rc = quantization_group(&t->group, q, name, err);
    ignored = rc < 0 ? -1 : quantization_ignores(q, name, err);
    rc = -1;
    if (ignored < 0)
        goto out;
    if (!t->group || ignored) {
        err_data(err, codes->st->path,
                 "%s is packed, but quantization_config of %s %s",
                 codes->t->name, q->file,
                 t->group ? "says that it is not"
                          : "has no group whose target it is");
        goto out;
    }
    if (t->group->form != form)
        codes = find_exact(dir, name, t->group->form->suffix[FORM_CODES]);
    t->tensor[FORM_CODES] = codes;
    if (!is_packed(t->group->form, stacked, codes))
        err_data(err, dir->path, "tensor %s%s is missing", name,
                 t->group->form->suffix[FORM_CODES]);
    else if (!find_tensors(t, dir, name, err) && !check_codes(t, err) &&
             (!t->tensor[FORM_SHAPE] || !check_shape(t, err)) &&
             !check_scale(t, err) && !check_rest(t, err))
        rc = 1;
out:
    free(name);
    return rc;
}

bool
form_is(const struct quantization *q, const struct stdir *dir,
        const char *module)
{
    const struct weight_form *form;
    bool stacked;

    return find_codes(q, dir, module, &form, &stacked);
}

int
form_refuse_in_out(const char *path, const char *module,
                   const struct model_family *family, struct err *err)
{
    return err_set(err, EX_DATAERR,
                   "%s: %s is packed, which is not supported of a %s, whose "
                   "weights are [inputs, outputs]",
                   path, module, family->model_type);
}

int
form_of(struct form_tensors *t, enum form_role *role, size_t *module_n,
        const struct quantization *q, const struct stdir *dir,
        const struct stdir_tensor *of, struct err *err)
{
    const char *name = of->t->name;

    for (size_t i = 0; i < 2 * q->n_groups; i++)
        for (*role = 0; *role < FORM_N_ROLES; ++*role) {
            const struct weight_form *form = q->groups[i / 2].form;
            const char *suffix = suffixes(form, i % 2)[*role];
            const char *end = suffix ? str_ends(name, suffix) : NULL;
            char *module;
            int rc;

            if (!end && i % 2 == 0 && *role == FORM_SCALE && form->other_scale)
                end = str_ends(name, form->other_scale);
            if (!end)
                continue;
            *module_n = (size_t)(end - name);
            module = xstrndup(name, *module_n);
            rc = form_look(t, q, dir, module, err);
            free(module);
            if (rc < 0 || (rc > 0 && t->tensor[*role] == of))
                return rc;
        }
    return 0;
}

/* ---- binding ---- */

static int
check_scales(const struct stdir_tensor *s, const uint8_t *data, size_t n,
             struct err *err)
{
    bool finite = dtype_computes(s->t->dtype)
                      ? dtype_finite(data, s->t->dtype, n)
                      : !memchr(data, 0xff, n); /* E8M0's NaN */

    return finite ? 0
                  : err_data(err, s->st->path, "%s has NaN or Inf", s->t->name);
}

int
form_bind(struct linear *l, const struct form_tensors *t, size_t i,
          struct form_memory *memory, struct err *err)
{
    const struct quantized_group *g = t->group;
    const struct stdir_tensor *c = t->tensor[FORM_CODES];
    const struct stdir_tensor *s = t->tensor[FORM_SCALE];
    const char *codes = st_data(c->st, c->t), *scales = st_data(s->st, s->t);
    struct weight_code code = { .kind = g->is_float ? CODE_F8 : CODE_I8,
                                .rows = g->rows ? g->rows : 1,
                                .cols = g->cols ? g->cols : t->in,
                                .scale_dtype = s->t->dtype };
    size_t rows, n;

    blocks_of(t, &rows, &code.ld);
    n = rows * code.ld;
    if (g->scale_of == SCALE_TENSOR)
        code.rows = t->out;
    if (g->is_float && g->bits == 4) {
        code.kind = CODE_F4;
        code.scale_dtype = DT_F8_E8M0;
    }
    codes += i * (c->t->nbytes / t->n);
    code.scale = scales + i * (s->t->nbytes / t->n);
    *l = (struct linear){ .w = { codes, DT_U8, t->in },
                          .out = t->out,
                          .in = t->in };
    return check_scales(s, code.scale, n, err) < 0
               ? -1
               : form_lay(l, t, &code, memory, err);
}

void
form_hash(struct hash *hash, const struct weight *w, size_t n)
{
    struct weight_piece piece[WEIGHT_PIECES];
    size_t n_pieces = weight_pieces(piece, w, n, 0);

    if (w->code)
        hash_add(hash, (uint8_t[]){ w->code->kind, w->code->scale_dtype }, 2);
    for (size_t i = 0; i < n_pieces; i++)
        hash_sample(hash, piece[i].data, piece[i].nbytes);
}

int
form_want(const struct form_tensors *t, size_t n, size_t out, size_t in,
          const char *by, struct err *err)
{
    const struct stdir_tensor *c = t->tensor[FORM_CODES];

    out = out ? out : t->out;
    in = in ? in : t->in;
    by = by ? by : "";
    if (t->n != n)
        return err_data(err, c->st->path,
                        "%s is of %zu expert%s (expected %zu%s)", c->t->name,
                        t->n, plural(t->n), n, by);
    if (t->out != out || t->in != in)
        return err_data(err, c->st->path,
                        "%s is of [%zu, %zu] (expected [%zu, %zu]%s)",
                        c->t->name, t->out, t->in, out, in, by);
    return 0;
}

int
form_find(struct linear *l, const struct quantization *q,
          struct form_memory *memory, const struct stdir *dir,
          const char *module, size_t out, size_t in, struct err *err)
{
    struct form_tensors t;
    int rc = form_look(&t, q, dir, module, err);

    return rc > 0 && (form_want(&t, 1, out, in, NULL, err) < 0 ||
                      form_bind(l, &t, 0, memory, err) < 0)
               ? -1
               : rc;
}
