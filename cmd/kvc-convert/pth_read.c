/* The elements of tensors, in C order whatever the strides. */
#include <string.h>

#include "cmd/kvc-convert/pth_impl.h"

/* A storage's bytes, checked when they are first needed. */
static const uint8_t *
storage_data(const struct pth *pth, const struct pth_storage *s,
             struct err *err)
{
    const uint8_t *data = s->data;

    if (s->member) {
        data = zip_packed(&pth->zip, s->member, err);
        if (!data)
            return NULL;
        if (s->member->method == ZIP_STORED) {
            if (zip_check(&pth->zip, s->member, data, err) < 0)
                return NULL;
        } else {
            if (unpack(pth->storage, &pth->zip, s->member, err) < 0)
                return NULL;
            data = pth->storage->data;
        }
    }
    return data + s->base * s->size;
}

/* A tensor as blocks that are contiguous in its storage, each of the last
 * dims; the dims before them are walked. */
struct walk {
    const uint8_t *from;
    size_t size; /* bytes of an element */
    size_t n_dims;
    size_t block; /* elements */
    const int64_t *shape, *strides;
    size_t index[PTH_MAX_DIMS];
    size_t at; /* element of the storage: that of 'index' */
};

static void
walk_start(struct walk *w, const struct pth_tensor *t, const uint8_t *data,
           size_t first)
{
    *w = (struct walk){ .from = data,
                        .size = dtype_table[t->dtype].bits / 8,
                        .n_dims = t->n_dims,
                        .block = 1,
                        .shape = t->shape,
                        .strides = t->strides,
                        .at = t->offset };
    while (w->n_dims > 0 && ((size_t)t->strides[w->n_dims - 1] == w->block ||
                             t->shape[w->n_dims - 1] == 1))
        w->block *= (size_t)t->shape[--w->n_dims];
    first /= w->block;
    for (size_t d = w->n_dims; d-- > 0;) {
        w->index[d] = first % (size_t)t->shape[d];
        w->at += w->index[d] * (size_t)t->strides[d];
        first /= (size_t)t->shape[d];
    }
}

/* Goes 'n' blocks on, not beyond the end of the last dim that is walked. */
static void
walk_on(struct walk *w, size_t n)
{
    size_t d = w->n_dims;

    if (d == 0)
        return;
    w->index[--d] += n;
    w->at += n * (size_t)w->strides[d];
    while (w->index[d] == (size_t)w->shape[d] && d > 0) {
        w->at -= w->index[d] * (size_t)w->strides[d];
        w->index[d] = 0;
        w->index[--d]++;
        w->at += (size_t)w->strides[d];
    }
}

#define COPY_STEPS(bytes)                                   \
    do {                                                    \
        for (size_t i = 0; i < n; i++)                      \
            memcpy(to + i * bytes, from + i * step, bytes); \
    } while (0)

/* n pieces of 'nbytes', 'step' bytes apart. */
static void
copy_steps(uint8_t *to, const uint8_t *from, size_t n, size_t nbytes,
           size_t step)
{
    switch (nbytes) {
    case 1:
        COPY_STEPS(1);
        break;
    case 2:
        COPY_STEPS(2);
        break;
    case 4:
        COPY_STEPS(4);
        break;
    case 8:
        COPY_STEPS(8);
        break;
    default:
        COPY_STEPS(nbytes);
    }
}

/* Part of a block: elements 'skip' .. 'skip' + n - 1. */
static void
copy_part(const struct walk *w, uint8_t *to, size_t skip, size_t n)
{
    memcpy(to, w->from + (w->at + skip) * w->size, n * w->size);
}

static void
gather(struct walk *w, size_t first, size_t n, uint8_t *to)
{
    size_t skip = first % w->block;

    if (skip > 0 || w->n_dims == 0) {
        size_t part = n < w->block - skip ? n : w->block - skip;

        copy_part(w, to, skip, part);
        to += part * w->size;
        n -= part;
        walk_on(w, 1);
    }
    while (n >= w->block && w->n_dims > 0) {
        size_t d = w->n_dims - 1;
        size_t left = (size_t)w->shape[d] - w->index[d];
        size_t blocks = n / w->block < left ? n / w->block : left;

        copy_steps(to, w->from + w->at * w->size, blocks, w->block * w->size,
                   (size_t)w->strides[d] * w->size);
        to += blocks * w->block * w->size;
        n -= blocks * w->block;
        walk_on(w, blocks);
    }
    if (n > 0)
        copy_part(w, to, 0, n);
}

int
pth_read(const struct pth *pth, const struct pth_tensor *t, size_t first,
         size_t n, void *to, struct err *err)
{
    const uint8_t *data;
    struct walk w;

    if (n == 0)
        return 0;
    data = storage_data(pth, t->storage, err);
    if (!data)
        return -1;
    walk_start(&w, t, data, first);
    gather(&w, first, n, to);
    return 0;
}
