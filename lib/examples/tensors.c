/* SPDX-License-Identifier: ISC */
/* tensors FILE: the tensors of a file or model directory, and their means. */
#include <stdio.h>
#include <stdlib.h>
#include <tensorutils.h>

int
main(int argc, char **argv)
{
    struct tu_err err;
    struct tu_st *st;

    if (tu_st_open(&st, argc > 1 ? argv[1] : ".", &err) < 0)
        return fprintf(stderr, "%s\n", err.what), err.status;
    for (size_t i = 0; i < tu_st_count(st); i++) {
        const struct tu_tensor *t = tu_st_at(st, i);
        float *x = malloc((t->n + 1) * sizeof(*x));
        double sum = 0;

        if (!x || tu_st_read_f32(st, t, 0, t->n, x, &err) < 0)
            return fprintf(stderr, "%s\n", x ? err.what : "no memory"), 1;
        for (size_t k = 0; k < t->n; k++)
            sum += x[k];
        printf("%s %s %.6g\n", t->name, t->dtype, t->n ? sum / t->n : 0);
        free(x);
    }
    tu_st_close(st);
}
