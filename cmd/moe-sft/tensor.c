#include "cmd/moe-sft/tensor.h"

#include <string.h>

#include "core/kernel/cvt.h"

#define PIECE 4096 /* numbers widened at a time */

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

/* The number that ends at 'end' (its digits begin after a dot or at 's'). */
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

bool
name_parse(struct name *name, const struct st_tensor *t, const char *tail)
{
    const size_t k = strlen("experts."), l = strlen("layers.");
    size_t n = strlen(tail);
    const char *s = t->name, *end, *start;
    int64_t layer;

    if (strlen(s) != t->name_n || t->name_n < n ||
        strcmp(s + t->name_n - n, tail) != 0)
        return false;
    end = s + t->name_n - n;
    *name = (struct name){ (size_t)(end - s), -1, -1 };
    if (end > s && end[-1] != '.')
        return false;
    if (end > s && number_before(s, end - 1, &start, &name->expert) &&
        (size_t)(start - s) >= k && !memcmp(start - k, "experts.", k))
        name->prefix_n = (size_t)(start - s);
    else
        name->expert = -1;
    for (size_t i = 0; i + l < name->prefix_n; i++) {
        const char *digits = s + i + l, *dot;

        if (memcmp(s + i, "layers.", l) != 0 || (i && s[i - 1] != '.'))
            continue;
        dot = memchr(digits, '.', name->prefix_n - i - l);
        if (dot && number_before(digits, dot, &start, &layer) &&
            start == digits)
            name->layer = layer;
    }
    return true;
}
