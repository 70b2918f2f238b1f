#include "cmd/moe-sft/tensor.h"

#include <string.h>

#include "core/kernel/cvt.h"
#include "core/str.h"

#define PIECE 4096 /* numbers widened at a time */

static void
put_shape(struct str *s, size_t n_dims, const uint64_t *shape)
{
    str_addc(s, '[');
    for (size_t i = 0; i < n_dims; i++)
        str_addf(s, "%s%llu", i ? ", " : "", (unsigned long long)shape[i]);
    str_addc(s, ']');
}

/* What was expected: sizes where they are known, words for the others. */
static void
put_wanted(struct str *s, size_t n_dims, const uint64_t *want,
           const char *words)
{
    str_addc(s, '[');
    for (size_t i = 0; i < n_dims; i++) {
        size_t n = strcspn(words, ",");

        str_adds(s, i ? ", " : "");
        if (want[i] == ANY_SIZE)
            str_add(s, words, n);
        else
            str_addf(s, "%llu", (unsigned long long)want[i]);
        words += n;
        words += strspn(words, ", ");
    }
    str_addc(s, ']');
}

int
tensor_shape(const char *path, const struct st_tensor *t, size_t n_dims,
             const uint64_t *want, const char *words, struct err *err)
{
    struct str s = { 0 };
    bool good = t->n_dims == n_dims;

    for (size_t i = 0; good && i < n_dims; i++)
        good = want[i] == ANY_SIZE || want[i] == t->shape[i];
    if (good)
        return 0;
    str_addf(&s, "%s: %s is ", path, t->name);
    put_shape(&s, t->n_dims, t->shape);
    str_adds(&s, " (expected ");
    put_wanted(&s, n_dims, want, words);
    str_addc(&s, ')');
    err_set(err, EX_DATAERR, "%s", s.s);
    str_free(&s);
    return -1;
}

int
tensor_want(const char *path, const struct st_tensor *t, size_t n_dims,
            const uint64_t *want, const char *words, struct err *err)
{
    if (!dtype_computes(t->dtype))
        return err_set(err, EX_DATAERR,
                       "%s: %s is %s (expected BF16, F16 or F32)", path,
                       t->name, dtype_table[t->dtype].name);
    return tensor_shape(path, t, n_dims, want, words, err);
}

int
tensor_missing(const char *path, const char *name, struct err *err)
{
    return err_set(err, EX_DATAERR, "%s: has no tensor %s", path, name);
}

void
tensor_bf16(uint16_t *to, const void *from, enum dtype dtype, size_t n)
{
    float piece[PIECE];
    size_t item = dtype_table[dtype].bits / 8;

    if (dtype == DT_BF16) {
        memcpy(to, from, n * sizeof(*to));
        return;
    }
    for (size_t i = 0, k; i < n; i += k) {
        k = n - i < PIECE ? n - i : PIECE;
        cvt_to_f32(piece, (const char *)from + i * item, dtype, k);
        cvt_from_f32(to + i, DT_BF16, piece, k);
    }
}

/* The number that ends at 'end' (its digits begin behind a dot or at 's'). */
static bool
number_before(const char *s, const char *end, const char **start, int64_t *v)
{
    int64_t n = 0, unit = 1;
    const char *p = end;

    while (p > s && p[-1] >= '0' && p[-1] <= '9' && end - p < 9) {
        n += unit * (*--p - '0');
        unit *= 10;
    }
    *start = p;
    *v = n;
    return p < end && (p == s || p[-1] == '.');
}

static int64_t
layer_of(const char *name, size_t n)
{
    static const char word[] = "layers.";
    size_t k = sizeof(word) - 1;
    int64_t layer = -1;

    for (size_t i = 0; i + k < n; i++) {
        const char *dot, *start;
        int64_t v;

        if (memcmp(name + i, word, k) != 0 || (i && name[i - 1] != '.'))
            continue;
        dot = memchr(name + i + k, '.', n - i - k);
        if (dot && number_before(name + i + k, dot, &start, &v) &&
            start == name + i + k)
            layer = v;
    }
    return layer;
}

bool
name_parse(struct name *name, const struct st_tensor *t, const char *tail)
{
    static const char word[] = "experts.";
    size_t k = sizeof(word) - 1, n = strlen(tail);
    const char *s = t->name, *end, *start;

    if (strlen(s) != t->name_n || t->name_n < n ||
        strcmp(s + t->name_n - n, tail) != 0)
        return false;
    end = s + t->name_n - n;
    *name = (struct name){ (size_t)(end - s), -1, -1 };
    if (end > s && end[-1] != '.')
        return false;
    if (end > s && number_before(s, end - 1, &start, &name->expert) &&
        (size_t)(start - s) >= k && !memcmp(start - k, word, k))
        name->prefix_n = (size_t)(start - s);
    else
        name->expert = -1;
    name->layer = layer_of(s, name->prefix_n);
    return true;
}
