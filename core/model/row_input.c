/* SPDX-License-Identifier: ISC */
/* x: .npy, a tensor of a safetensors file, or raw numbers. */
#include "core/model/row_input.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/format/stwant.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/near.h"
#include "core/tty.h"

/* Checks that x, of this shape, has the layer's inputs as rows. */
static int
set_shape(struct row_input *in, enum dtype dtype, size_t n_dims,
          const uint64_t *shape, struct err *err)
{
    if (!dtype_computes(dtype))
        return err_set(err, EX_DATAERR,
                       "%s: x is %s (expected F32, F16 or BF16)", in->name,
                       dtype_table[dtype].name);
    if (n_dims == 0)
        return err_set(err, EX_DATAERR,
                       "%s: x is a scalar (expected rows of %zu, the layer's "
                       "inputs)",
                       in->name, in->width);
    if (n_dims > NPY_MAX_DIMS || shape[n_dims - 1] != in->width)
        return err_set(err, EX_DATAERR,
                       "%s: the last of x's %zu dim%s is %llu (expected %zu, "
                       "the layer's inputs)",
                       in->name, n_dims, plural(n_dims),
                       (unsigned long long)shape[n_dims - 1], in->width);
    in->dtype = dtype;
    in->n_dims = n_dims;
    in->n_rows = 1;
    memcpy(in->shape, shape, n_dims * sizeof(*shape));
    for (size_t i = 0; i + 1 < n_dims; i++)
        in->n_rows *= shape[i];
    return 0;
}

static bool
is_regular(int fd, size_t *left)
{
    struct stat st;
    off_t at = lseek(fd, 0, SEEK_CUR);

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || at < 0)
        return false;
    *left = st.st_size > at ? (size_t)(st.st_size - at) : 0;
    return true;
}

static int
open_st(struct row_input *in, const char *path, const char *tensor,
        struct err *err)
{
    const struct st_tensor *t;

    if (st_open(&in->st, path, err) < 0)
        return -1;
    if (!tensor && in->st.n_tensors != 1)
        return err_set(err, TU_USAGE,
                       "%s: has %zu tensor%s: -i FILE:NAME selects one",
                       in->name, in->st.n_tensors, plural(in->st.n_tensors));
    t = tensor ? st_find(&in->st, tensor) : &in->st.tensors[0];
    if (!t) {
        struct near near;

        near_start(&near, tensor);
        for (size_t i = 0; i < in->st.n_tensors; i++)
            near_try(&near, in->st.tensors[i].name, in->st.tensors[i].name_n);
        return err_set(err, EX_DATAERR, "%s: there is no tensor \"%s\"%s",
                       in->name, tensor, near_hint(&near));
    }
    in->fd = in->st.fd;
    if (lseek(in->fd, (off_t)(in->st.data_offset + t->begin), SEEK_SET) < 0)
        return err_sys(err, EX_IOERR, "%s", in->name);
    return set_shape(in, t->dtype, t->n_dims, t->shape, err);
}

/* What is not raw numbers: its first bytes show the format. */
static int
sniff(struct row_input *in, unsigned char *head, struct err *err)
{
    ssize_t n = file_read_full(in->fd, in->name, head, 12, err);
    size_t left;
    struct npy npy;

    if (n < 0)
        return -1;
    if (n >= 10 && le64(head) <= ST_MAX_HEADER && head[8] == '{') {
        if (is_regular(in->fd, &left))
            return open_st(in, in->close_fd ? in->name : "/dev/stdin", NULL,
                           err);
        return err_set(err, TU_USAGE,
                       "safetensors are not read from a pipe: -i "
                       "FILE[:TENSOR]");
    }
    if (n < 10 || !npy_sniff(head, 10))
        return err_set(err, EX_DATAERR,
                       "%s: is neither .npy nor safetensors (--x-dtype is for "
                       "raw numbers)",
                       in->name);
    /* more arrays on standard input are read as from a pipe */
    if (npy_read(&npy, in->fd, in->name, head, (size_t)n, err) < 0 ||
        (is_regular(in->fd, &left) && (in->close_fd || left < npy.nbytes) &&
         npy_fits(&npy, npy.data_offset + left, in->name, err) < 0))
        return -1;
    in->is_npy = true;
    return set_shape(in, npy.dtype, npy.n_dims, npy.shape, err);
}

static int
open_any(struct row_input *in, const char *path, int dtype, struct err *err)
{
    bool std = !strcmp(path, "-");
    size_t row, left;
    unsigned char *head;
    const char *tensor;
    char *file = std ? NULL : file_split(path, ':', &tensor);
    int rc;

    if (file) { /* FILE:TENSOR, and no file has the whole name */
        rc = dtype < 0 ? open_st(in, file, tensor, err)
                       : err_set(err, TU_USAGE,
                                 "--x-dtype is for raw numbers, not for a "
                                 "tensor of safetensors");
        free(file);
        return rc;
    }
    in->fd = std ? 0 : file_open_any(path, err);
    if (in->fd < 0)
        return -1;
    in->close_fd = !std;
    if (isatty(in->fd))
        return err_set(err, TU_USAGE,
                       "x is not read from a terminal: redirect standard "
                       "input, or give -i FILE");
    if (dtype >= 0) {
        in->is_raw = true;
        in->dtype = (enum dtype)dtype;
        row = in->width * dtype_size(dtype);
        if (!is_regular(in->fd, &left))
            return 0;
        if (left % row != 0)
            return err_set(err, EX_DATAERR,
                           "%s: has %zu bytes (expected whole rows of %zu)",
                           in->name, left, row);
        in->n_dims = 2;
        in->n_rows = in->shape[0] = left / row;
        in->shape[1] = in->width;
        return 0;
    }
    head = xcalloc(1, NPY_MAX_HEAD);
    rc = sniff(in, head, err);
    free(head);
    return rc;
}

int
row_input_open(struct row_input *in, const char *path, int dtype, size_t width,
               size_t batch, struct err *err)
{
    in->name = strcmp(path, "-") ? path : "standard input";
    in->width = width;
    if (open_any(in, path, dtype, err) < 0)
        return -1;
    in->buf = mem_try(batch * width, dtype_size(in->dtype), "rows of x", err);
    return in->buf ? 0 : -1;
}

void
row_input_close(struct row_input *in)
{
    if (in->close_fd && in->fd > 2 && in->fd != in->st.fd)
        close(in->fd);
    st_close(&in->st);
    free(in->buf);
}

/* Goes on to the next array of a stream: 1, 0 if it has none, or -1. */
static int
more_rows(struct row_input *in, struct err *err)
{
    struct npy npy = { .dtype = in->dtype,
                       .n_dims = 1,
                       .shape = { in->width },
                       .n_elements = in->n_rows * in->width };
    int rc = npy_more(&npy, in->fd, in->name, 1, err);

    if (rc > 0 && !in->takes_many)
        return err_set(err, EX_DATAERR,
                       "%s: another array follows the %llu row%s of its header",
                       in->name, (unsigned long long)in->n_rows,
                       plural(in->n_rows));
    in->n_rows += rc > 0 ? npy.n_elements / in->width : 0;
    return rc;
}

ssize_t
row_input_rows(struct row_input *in, float *x, size_t n, struct err *err)
{
    size_t row = in->width * dtype_size(in->dtype), rows;
    ssize_t got;

    while (in->is_npy && in->n_read == in->n_rows) {
        int rc = more_rows(in, err); /* a pipe's length is known at its end */

        if (rc <= 0)
            return rc;
    }
    if (in->n_dims && in->n_rows - in->n_read < n)
        n = (size_t)(in->n_rows - in->n_read);
    if (n == 0)
        return 0;
    got = file_read_full(in->fd, in->name, in->buf, n * row, err);
    if (got < 0 || (in->is_raw && in->n_read == 0 &&
                    npy_is_raw(in->buf, (size_t)got, in->name, err) < 0))
        return -1;
    rows = (size_t)got / row;
    if ((size_t)got % row != 0 || (in->n_dims && rows < n))
        return err_set(err, EX_DATAERR,
                       "%s: ended in row %llu (expected whole rows of %zu "
                       "bytes)",
                       in->name, (unsigned long long)(in->n_read + rows), row);
    cvt_to_f32(x, in->buf, in->dtype, rows * in->width);
    in->n_read += rows;
    return (ssize_t)rows;
}
