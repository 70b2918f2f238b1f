/* SPDX-License-Identifier: ISC */
/* Packed weights in the order that products read them in. */
#include "core/model/form_impl.h"

#include <stdlib.h>
#include <string.h>

#include "core/le.h"
#include "core/mem.h"

#define BIG ((size_t)1 << 20) /* bytes: worth pages of its own */

enum { ROWS = 32 }; /* of a task: two cache lines of words */

/* ---- memory ---- */

struct form_block {
    void *p;
    size_t nbytes;
};

static void *
allot(struct form_memory *m, size_t n, size_t size, const char *what,
      struct err *err)
{
    struct form_block b = { .nbytes = n * size };

    b.p = b.nbytes >= BIG ? mem_big(b.nbytes, 1, what, err)
                          : mem_try(b.nbytes, 1, what, err);
    if (!b.p)
        return NULL;
    m->blocks = xrealloc(m->blocks, m->n + 1, sizeof(*m->blocks));
    m->blocks[m->n++] = b;
    m->nbytes += b.nbytes;
    return b.p;
}

/* Rows of 'ctx' by all threads. */
static int
lay_all(struct form_memory *m, size_t n, size_t grain,
        void (*rows)(void *ctx, size_t begin, size_t end), void *ctx,
        struct err *err)
{
    if (!m->par && !m->own && par_open(&m->own, par_default(), err) < 0)
        return -1;
    par_for(m->par ? m->par : m->own, n, grain, rows, ctx);
    return 0;
}

void
form_memory_rest(struct form_memory *m)
{
    par_close(m->own);
    m->own = NULL;
}

void
form_memory_free(struct form_memory *m)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->blocks[i].nbytes >= BIG)
            mem_big_free(m->blocks[i].p, m->blocks[i].nbytes, 1);
        else
            free(m->blocks[i].p);
    free(m->blocks);
    form_memory_rest(m);
    *m = (struct form_memory){ 0 };
}

/* ---- numbers in words ---- */

/* Where AWQ has column i of eight in a word. */
static unsigned
awq_shift(size_t i)
{
    return 4 * (unsigned)(i % 2 * 4 + i / 2);
}

/* Numbers of few bits along the rows of a tensor of words, or 'down' its
 * columns: each word after the other, or only whole ones in each word, which
 * older files have. */
struct packed_words {
    const uint8_t *data;
    size_t ld; /* bytes from a row to the next */
    bool down, awq;
    unsigned bits, in_word; /* 0: they go on in the next word */
};

static struct packed_words
words_of(const struct stdir_tensor *t, unsigned bits)
{
    return (struct packed_words){ .data = st_data(t->st, t->t),
                                  .ld = 4 * t->t->shape[1],
                                  .bits = bits };
}

/* Number i of row, or column, j. */
static unsigned
word_get(const struct packed_words *w, size_t i, size_t j)
{
    size_t bit = w->in_word ? i / w->in_word * 32 + i % w->in_word * w->bits
                 : w->awq   ? i / 8 * 32 + awq_shift(i % 8)
                            : i * w->bits;
    size_t stride = w->down ? w->ld : 4;
    const uint8_t *at = w->data + j * (w->down ? 4 : w->ld) + bit / 32 * stride;
    uint64_t v = le32(at);

    if (bit % 32 + w->bits > 32)
        v |= (uint64_t)le32(at + stride) << 32;
    return (unsigned)(v >> bit % 32) & ((1u << w->bits) - 1);
}

/* ---- in the order of rows ---- */

struct laying {
    const struct form_tensors *t;
    const uint8_t *from; /* the codes in the file */
    uint8_t *codes;      /* [out, nbytes] */
    size_t nbytes;
    bool half;         /* two numbers in a byte */
    size_t rows, cols; /* of blocks */
    char *scale;       /* [rows, cols], or NULL */
    uint8_t *zero;     /* the same */
};

static void
put(const struct laying *l, uint8_t *row, size_t k, unsigned v)
{
    if (!l->half)
        row[k] = (uint8_t)v;
    else if (k % 2)
        row[k / 2] |= (uint8_t)(v << 4);
    else
        row[k / 2] = (uint8_t)v;
}

static void
lay_awq(const struct laying *l, size_t begin, size_t end)
{
    const size_t out = l->t->out, in = l->t->in, nbytes = out / 8 * 4;

    for (size_t k = 0; k < in; k += 2)
        for (size_t r = begin; r < end; r += 8) {
            const uint8_t *at = l->from + k * nbytes + r / 8 * 4;
            uint32_t a = le32(at), b = k + 1 < in ? le32(at + nbytes) : 0;

            for (size_t i = 0; i < 8; i++) {
                unsigned shift = awq_shift(i);

                l->codes[(r + i) * l->nbytes + k / 2] =
                    (uint8_t)((a >> shift & 15) | (b >> shift & 15) << 4);
            }
        }
}

/* Words that are a row's four bytes as they are, of 4 and 8 bits. */
static void
lay_words(const struct laying *l, size_t begin, size_t end)
{
    for (size_t w = 0; w < l->nbytes / 4; w++)
        for (size_t r = begin; r < end; r++)
            memcpy(l->codes + r * l->nbytes + 4 * w,
                   l->from + (w * l->t->out + r) * 4, 4);
}

/* The zero point of a row and a block. */
static unsigned
zero_of(const struct form_tensors *t, size_t cols, size_t r, size_t block)
{
    const struct stdir_tensor *z = t->tensor[FORM_ZERO];
    struct packed_words w;

    if (t->group->form->layout == LAYOUT_BYTES) /* plus 128 */
        return ((const uint8_t *)st_data(z->st, z->t))[r * cols + block] ^ 0x80;
    w = words_of(z, t->group->bits);
    w.down = t->group->form->layout == LAYOUT_WORDS;
    w.awq = t->group->form->layout == LAYOUT_AWQ;
    return (word_get(&w, r, block) + t->group->zero_less_1) &
           ((1u << w.bits) - 1);
}

static void
lay_rows(void *ctx, size_t begin, size_t end)
{
    const struct laying *l = ctx;
    const struct form_tensors *t = l->t;
    const struct stdir_tensor *s = t->tensor[FORM_SCALE];
    const char *scales = st_data(s->st, s->t);
    size_t size = dtype_size(s->t->dtype);
    enum form_layout layout = t->group->form->layout;
    unsigned bits = t->group->bits;
    struct packed_words w = words_of(t->tensor[FORM_CODES], bits);

    w.down = layout == LAYOUT_GPTQ;
    if (layout == LAYOUT_WORDS && w.ld != (t->in * bits + 31) / 32 * 4)
        w.in_word = 32 / bits;
    if (l->codes && layout == LAYOUT_AWQ)
        lay_awq(l, begin, end);
    else if (l->codes && (bits == 4 || bits == 8))
        lay_words(l, begin, end);
    else
        for (size_t r = begin; l->codes && r < end; r++)
            for (size_t k = 0; k < t->in; k++)
                put(l, l->codes + r * l->nbytes, k, word_get(&w, k, r));
    for (size_t r = begin; r < smaller(end, l->rows); r++)
        for (size_t b = 0; b < l->cols; b++) {
            size_t to = r * l->cols + b;

            if (l->zero)
                l->zero[to] = (uint8_t)zero_of(t, l->cols, r, b);
            if (l->scale)
                memcpy(l->scale + to * size, scales + (b * t->out + r) * size,
                       size);
        }
}

/* Which block each column is in, if they are not in order. */
static int
lay_index(struct weight_code *code, const struct form_tensors *t,
          struct form_memory *memory, struct err *err)
{
    const struct stdir_tensor *x = t->tensor[FORM_INDEX];
    const uint8_t *data = st_data(x->st, x->t);
    bool in_order = true, unset = true;
    uint32_t *block;

    for (size_t i = 0; i < t->in; i++) {
        in_order &= le32(data + 4 * i) == i / code->cols;
        unset &= le32(data + 4 * i) == UINT32_MAX;
    }
    if (in_order || unset)
        return 0;
    block = allot(memory, t->in, sizeof(*block), x->t->name, err);
    if (!block)
        return -1;
    for (size_t i = 0; i < t->in; i++) {
        block[i] = le32(data + 4 * i);
        if (block[i] >= code->ld)
            return err_data(err, x->st->path,
                            "%s[%zu] is %ld (expected 0 to %zu, the groups)",
                            x->t->name, i, (long)(int32_t)block[i],
                            code->ld - 1);
    }
    code->block = block;
    return 0;
}

/* Shapes are those of tensors in a file: no product of them overflows. */
int
form_lay(struct linear *l, const struct form_tensors *t,
         const struct weight_code *as, struct form_memory *memory,
         struct err *err)
{
    const struct quantized_group *g = t->group;
    const enum form_layout layout = g->form->layout;
    const struct stdir_tensor *z = t->tensor[FORM_ZERO];
    const char *name = t->tensor[FORM_CODES]->t->name;
    bool transposed = form_is_transposed(layout);
    bool words = layout == LAYOUT_WORDS, whole = g->bits == 4 || g->bits == 8;
    struct weight_code *code = allot(memory, 1, sizeof(*code), name, err);
    struct laying lay = { .t = t, .from = l->w.data, .cols = as->ld };

    if (!code)
        return -1;
    if (z && g->symmetric)
        for (size_t i = 0; i < z->t->nbytes; i++)
            if (((const uint8_t *)st_data(z->st, z->t))[i])
                return err_data(err, z->st->path,
                                "%s is not 0, but its group is symmetric",
                                z->t->name);
    *code = *as;
    l->w.code = code;
    if (words || transposed)
        code->kind = g->bits > 4 ? CODE_U8 : CODE_U4;
    lay.half = code->kind == CODE_U4;
    if (words)
        code->zero_all = 1 << (g->bits - 1);
    if (words && whole) {
        l->w.ld = t->tensor[FORM_CODES]->t->shape[1] * 32 / g->bits;
    } else if (words || transposed) {
        l->w.ld += lay.half && t->in % 2;
        lay.nbytes = lay.half ? l->w.ld / 2 : l->w.ld;
        lay.codes = allot(memory, t->out, lay.nbytes, name, err);
        l->w.data = lay.codes;
        if (!lay.codes)
            return -1;
    }
    lay.rows = (t->out + code->rows - 1) / code->rows;
    if (z && !g->symmetric) {
        code->zero = lay.zero = allot(memory, lay.rows, code->ld, name, err);
        if (!lay.zero)
            return -1;
    }
    if (transposed) {
        lay.scale = allot(memory, lay.rows * code->ld,
                          dtype_size(code->scale_dtype), name, err);
        code->scale = lay.scale;
        if (!lay.scale)
            return -1;
    }
    if (t->tensor[FORM_INDEX] && g->scale_of == SCALE_GROUP &&
        lay_index(code, t, memory, err))
        return -1;
    return lay.codes || lay.zero || lay.scale
               ? lay_all(memory, t->out, ROWS, lay_rows, &lay, err)
               : 0;
}

/* ---- columns that take turns ---- */

struct splitting {
    const char *from;
    char *to;
    size_t n, item; /* columns, an even number; bytes of one */
};

static inline void
split_row(char *to, const char *from, size_t n, const size_t item)
{
    for (size_t c = 0; c < n; c += 2, to += item, from += 2 * item) {
        memcpy(to, from, item);
        memcpy(to + n / 2 * item, from + item, item);
    }
}

static void
split_rows(void *ctx, size_t begin, size_t end)
{
    const struct splitting *s = ctx;

    for (size_t i = begin * s->n * s->item; begin < end; begin++) {
        if (s->item == 2)
            split_row(s->to + i, s->from + i, s->n, 2);
        else
            split_row(s->to + i, s->from + i, s->n, 4);
        i += s->n * s->item;
    }
}

const void *
form_split(struct form_memory *memory, const struct stdir_tensor *t,
           struct err *err)
{
    size_t n = t->t->shape[t->t->n_dims - 1], item = dtype_size(t->t->dtype);
    struct splitting s = { st_data(t->st, t->t), NULL, n, item };

    s.to = allot(memory, t->t->n_elements, item, t->t->name, err);
    return s.to && !lay_all(memory, t->t->n_elements / n, 1, split_rows, &s,
                            err)
               ? s.to
               : NULL;
}

struct transposing {
    const char *from;
    char *to;
    size_t in, out, item;
    bool split;
};

/* Columns of all matrices, which become rows, those of a matrix after each
 * other; some at a time, as they share lines of the cache. */
static inline void
transpose_some(const struct transposing *t, size_t at, size_t n,
               const size_t item)
{
    size_t i = at / t->out, c = at % t->out, half = t->out / 2;
    const char *from = t->from + (i * t->in * t->out + c) * item;
    char *to = t->to + i * t->in * t->out * item;

    for (size_t k = 0; k < t->in; k++)
        for (size_t j = c; j < c + n; j++) {
            size_t row = t->split ? j / 2 + j % 2 * half : j;

            memcpy(to + (row * t->in + k) * item,
                   from + (k * t->out + j - c) * item, item);
        }
}

static void
transpose_columns(void *ctx, size_t begin, size_t end)
{
    const struct transposing *t = ctx;

    for (size_t n; begin < end; begin += n) {
        n = smaller(smaller(end - begin, t->out - begin % t->out), 32);
        if (t->item == 2)
            transpose_some(t, begin, n, 2);
        else
            transpose_some(t, begin, n, 4);
    }
}

const void *
form_transpose(struct form_memory *memory, const struct stdir_tensor *t,
               bool split, struct err *err)
{
    const uint64_t *n = t->t->shape;
    struct transposing s = { st_data(t->st, t->t),    NULL, n[1], n[2],
                             dtype_size(t->t->dtype), split };

    s.to = allot(memory, t->t->n_elements, s.item, t->t->name, err);
    return s.to && !lay_all(memory, n[0] * n[2], 32, transpose_columns, &s, err)
               ? s.to
               : NULL;
}
