/* A file is written while the next rows of it are made. */
#include "cmd/lut-precompute/precompute.h"

static void
write_piece(void *ctx)
{
    struct writer *w = ctx;

    w->rc = stw_write(w->w, w->tensor, w->data, w->nbytes, w->offset, &w->err);
}

int
writer_wait(struct writer *w, struct err *err)
{
    if (w->worker)
        par_sync(w->worker);
    if (w->rc < 0)
        *err = w->err;
    return w->rc;
}

int
writer_put(struct writer *w, int tensor, const void *data, size_t nbytes,
           size_t offset, struct err *err)
{
    if (writer_wait(w, err) < 0)
        return -1;
    w->tensor = tensor;
    w->data = data;
    w->nbytes = nbytes;
    w->offset = offset;
    if (w->worker) {
        par_submit(w->worker, write_piece, w);
        return 0;
    }
    write_piece(w);
    return writer_wait(w, err);
}
