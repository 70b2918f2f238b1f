#include "cmd/lut-precompute/matrix.h"

#include "core/kernel/cvt.h"

#define BLOCK 64 /* rows and columns turned at a time: 16 KiB of f32 */

size_t
matrix_nbytes(const struct matrix *m)
{
    return m->rows * m->cols * (dtype_table[m->dtype].bits / 8);
}

struct task {
    const struct matrix *m;
    size_t first, n;
    float *to;
    size_t ld;
};

static const char *
element(const struct matrix *m, size_t i)
{
    return (const char *)m->data + i * (dtype_table[m->dtype].bits / 8);
}

static void
copy_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct task *t = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        cvt_to_f32(t->to + i * t->ld,
                   element(t->m, (t->first + i) * t->m->cols), t->m->dtype,
                   t->m->cols);
}

static void
turn_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct task *t = ctx;
    const struct matrix *m = t->m;
    float block[BLOCK][BLOCK];
    size_t n_r = end - begin;

    (void)thread;
    for (size_t c = 0; c < m->cols; c += BLOCK) {
        size_t n_c = m->cols - c < BLOCK ? m->cols - c : BLOCK;

        for (size_t j = 0; j < n_c; j++)
            cvt_to_f32(block[j],
                       element(m, (c + j) * m->rows + t->first + begin),
                       m->dtype, n_r);
        for (size_t i = 0; i < n_r; i++)
            for (size_t j = 0; j < n_c; j++)
                t->to[(begin + i) * t->ld + c + j] = block[j][i];
    }
}

void
matrix_rows(struct par *par, const struct matrix *m, size_t first, size_t n,
            float *to, size_t ld)
{
    struct task t = { m, first, n, to, ld };

    par_for(par, n, m->by_col ? BLOCK : 16, m->by_col ? turn_rows : copy_rows,
            &t);
}
