/* SPDX-License-Identifier: ISC */
/* RUNs of sae-look for programs: what latents did in some rows. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/format/look.h"
#include "core/kernel/cpu.h"
#include "core/mem.h"
#include "lib/lib.h"

struct tu_look {
    struct look look;
    struct labels labels;
    struct tu_look_info info;
    struct tu_tensor tensors[LOOK_N_TENSORS]; /* without a name: not there */
    uint64_t shapes[LOOK_N_TENSORS][3];
    atomic_bool checked[2]; /* acts and ids of top, of the sample */
};

/* look_tensors[i] as programs see it. */
static void
set_tensor(struct tu_look *l, size_t i)
{
    const struct look_tensor *from = &look_tensors[i];
    struct tu_tensor *t = &l->tensors[i];
    size_t n_dims = look_shape(&l->look, from, l->shapes[i]);
    const void *data;

    memcpy(&data, (const char *)&l->look + from->at, sizeof(data));
    if (n_dims == 0 || !data)
        return;
    *t = (struct tu_tensor){
        .name = from->name,
        .name_n = strlen(from->name),
        .dtype = dtype_table[from->dtype].name,
        .n_dims = n_dims,
        .shape = l->shapes[i],
        .n = 1,
        .data = data,
    };
    for (size_t k = 0; k < n_dims; k++)
        t->n *= l->shapes[i][k];
    t->nbytes = (size_t)t->n * dtype_size(from->dtype);
}

int
tu_look_open(struct tu_look **look, const char *path, struct tu_err *to)
{
    struct err err = { 0 };
    struct tu_look *l;

    if (lib_null(to, "tu_look_open", "look", look, "path", path, NULL) < 0)
        return -1;
    *look = NULL;
    l = xcalloc(1, sizeof(*l));
    if (cpu_check(&err) < 0 || look_open(&l->look, path, &err) < 0 ||
        labels_open(&l->labels, &l->look, &err) < 0) {
        tu_look_close(l);
        return lib_fail(to, &err);
    }
    for (size_t i = 0; i < LOOK_N_TENSORS; i++)
        set_tensor(l, i);
    l->info = (struct tu_look_info){
        .path = l->look.path,
        .sae = l->look.sae,
        .hook = l->look.hook,
        .n_latents = l->look.n,
        .d = l->look.d,
        .rows = l->look.rows,
        .left_out = l->look.left_out,
        .sequences = l->look.sequences,
        .n_tokens = l->look.n_tokens,
        .before = l->look.context[0],
        .after = l->look.context[1],
        .per_row = l->look.per_row,
    };
    *look = l;
    return 0;
}

void
tu_look_close(struct tu_look *look)
{
    if (!look)
        return;
    labels_free(&look->labels);
    look_close(&look->look);
    free(look);
}

const struct tu_look_info *
tu_look_info(const struct tu_look *look)
{
    return look ? &look->info : NULL;
}

/* As sae-look checks what it shows: acts and ids of all examples. */
static int
check_examples(struct tu_look *l, bool sample, struct err *err)
{
    const struct look_examples *of = sample ? &l->look.sample : &l->look.top;

    if (atomic_load(&l->checked[sample]))
        return 0;
    if (look_check_examples(&l->look, of, err) < 0)
        return -1;
    atomic_store(&l->checked[sample], true);
    return 0;
}

int
tu_look_tensor(struct tu_look *look, const char *name,
               const struct tu_tensor **tensor, struct tu_err *to)
{
    struct err err = { 0 };
    size_t i = 0;

    if (lib_null(to, "tu_look_tensor", "look", look, "name", name, "tensor",
                 tensor, NULL) < 0)
        return -1;
    *tensor = NULL;
    while (i < LOOK_N_TENSORS && strcmp(look_tensors[i].name, name) != 0)
        i++;
    if (i == LOOK_N_TENSORS || !look->tensors[i].name)
        return 0;
    if (strchr(look_tensors[i].dims, 'c') &&
        check_examples(look, *name == 's', &err) < 0)
        return lib_fail(to, &err);
    *tensor = &look->tensors[i];
    return 0;
}

int64_t
tu_look_label(const struct tu_look *look, size_t i, const char **label,
              size_t *nbytes)
{
    const struct label *of;

    if (!look || !label || !nbytes || i >= look->labels.n)
        return -1;
    of = &look->labels.label[i];
    *label = of->s;
    *nbytes = of->n;
    return of->latent;
}
