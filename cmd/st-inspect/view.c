#include "cmd/st-inspect/view.h"

#include "core/le.h"
#include "core/map.h"

struct view
view_of(const struct stdir_tensor *t)
{
    return (struct view){
        .path = t->st->path,
        .fd = t->st->fd,
        .offset = t->st->data_offset + t->t->begin,
        .dtype = t->t->dtype,
        .n_dims = t->t->n_dims,
        .shape = t->t->shape,
        .n = t->t->n_elements,
        .nbytes = t->t->nbytes,
    };
}

int
view_read(const struct view *v, void *buf, uint64_t first, size_t n,
          struct err *err)
{
    size_t size = dtype_table[v->dtype].bits / 8;

    return file_pread(v->fd, v->path, buf, n * size, v->offset + first * size,
                      err);
}

bool
widens(enum dtype dtype)
{
    return dtype_table[dtype].bits >= 8 &&
           dtype_table[dtype].kind != DK_COMPLEX;
}

void
widen(double *to, const void *from, enum dtype dtype, size_t n)
{
    if (dtype == DT_F32)
        for (size_t i = 0; i < n; i++)
            to[i] = (double)le_f32((const uint8_t *)from + 4 * i);
    else if (dtype == DT_F64)
        for (size_t i = 0; i < n; i++)
            to[i] = le_f64((const uint8_t *)from + 8 * i);
    else if (dtype == DT_BF16)
        for (size_t i = 0; i < n; i++)
            to[i] = bf16_to_f32(le16((const uint8_t *)from + 2 * i));
    else
        for (size_t i = 0; i < n; i++)
            to[i] = dtype_get(dtype, from, i);
}
