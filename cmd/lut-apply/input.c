/* x: .npy, a tensor of a safetensors file, or numbers alone. */
#include "cmd/lut-apply/input.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/format/stwant.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"

/* x has a shape: are its rows the layer's inputs? */
static int
take_shape(struct row_input *in, enum dtype dtype, size_t n_dims,
           const uint64_t *shape, struct err *err)
{
    if (!dtype_computes(dtype))
        return err_set(err, EX_DATAERR,
                       "%s: x is %s (expected F32, F16 or BF16)", in->name,
                       dtype_table[dtype].name);
    if (n_dims == 0 || n_dims > NPY_MAX_DIMS || shape[n_dims - 1] != in->width)
        return err_set(err, EX_DATAERR,
                       "%s: the last of x's %zu dims is %llu (expected %zu, "
                       "the layer's inputs)",
                       in->name, n_dims,
                       n_dims ? (unsigned long long)shape[n_dims - 1] : 0,
                       in->width);
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
open_npy(struct row_input *in, unsigned char *head, size_t n_head,
         struct err *err)
{
    size_t n = head[6] == 1 ? 10 : 12, all, left;
    struct npy npy;
    ssize_t got =
        file_read_full(in->fd, in->name, head + n_head, n - n_head, err);

    if (got < 0)
        return -1;
    n_head += (size_t)got;
    all = n + (head[6] == 1 ? le16(head + 8) : le32(head + 8));
    if (n_head == n && all <= NPY_MAX_HEAD) {
        got = file_read_full(in->fd, in->name, head + n, all - n, err);
        if (got < 0)
            return -1;
        n_head += (size_t)got;
    }
    if (npy_parse(&npy, head, n_head, in->name, err) < 0 ||
        (is_regular(in->fd, &left) &&
         npy_fits(&npy, npy.data_offset + left, in->name, err) < 0))
        return -1;
    in->is_npy = true;
    return take_shape(in, npy.dtype, npy.n_dims, npy.shape, err);
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
                       "%s: has %zu tensors: -i FILE:NAME takes one", in->name,
                       in->st.n_tensors);
    t = tensor ? st_find(&in->st, tensor) : &in->st.tensors[0];
    if (!t)
        return st_missing(in->name, tensor, err);
    in->fd = in->st.fd;
    if (lseek(in->fd, (off_t)(in->st.data_offset + t->begin), SEEK_SET) < 0)
        return err_sys(err, EX_IOERR, "%s", in->name);
    return take_shape(in, t->dtype, t->n_dims, t->shape, err);
}

static int
open_raw(struct row_input *in, enum dtype dtype, struct err *err)
{
    size_t row = in->width * (dtype_table[dtype].bits / 8), left;

    in->dtype = dtype;
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

static int
sniff(struct row_input *in, struct err *err)
{
    unsigned char *head = xcalloc(1, NPY_MAX_HEAD);
    ssize_t n = file_read_full(in->fd, in->name, head, 10, err);
    size_t left;
    int rc = -1;

    if (n >= 10 && npy_sniff(head, 10))
        rc = open_npy(in, head, 10, err);
    else if (n >= 10 && le64(head) <= ST_MAX_HEADER && head[8] == '{')
        rc = is_regular(in->fd, &left)
                 ? open_st(in, in->own_fd ? in->name : "/dev/stdin", NULL, err)
                 : err_set(err, TU_USAGE,
                           "safetensors are not read from a pipe: -i "
                           "FILE[:TENSOR]");
    else if (n >= 0)
        err_set(err, EX_DATAERR,
                "%s: is neither .npy nor safetensors (--x-dtype says what "
                "numbers alone are)",
                in->name);
    free(head);
    return rc;
}

/* FILE:TENSOR, where there is no file of the whole name. */
static int
open_tensor(struct row_input *in, const char *path, bool raw, bool *done,
            struct err *err)
{
    const char *tensor;
    char *file = file_split(path, ':', &tensor);
    int rc;

    *done = file != NULL;
    if (!file)
        return 0;
    rc = raw ? err_set(err, TU_USAGE,
                       "--x-dtype is for numbers alone, not for a tensor of "
                       "safetensors")
             : open_st(in, file, tensor, err);
    free(file);
    return rc;
}

int
input_open(struct row_input *in, const struct apply_cmd *cmd, size_t width,
           struct err *err)
{
    bool done = false, std = !strcmp(cmd->input, "-");

    in->name = std ? "standard input" : cmd->input;
    in->width = width;
    if (!std && open_tensor(in, cmd->input, cmd->x_dtype >= 0, &done, err) < 0)
        return -1;
    if (!done) {
        in->fd = std ? 0 : file_open_any(cmd->input, err);
        if (in->fd < 0)
            return -1;
        in->own_fd = !std;
        if (isatty(in->fd))
            return err_set(err, TU_USAGE,
                           "x is not read from a terminal: redirect standard "
                           "input, or give -i FILE");
        if (cmd->x_dtype >= 0 ? open_raw(in, (enum dtype)cmd->x_dtype, err) < 0
                              : sniff(in, err) < 0)
            return -1;
    }
    in->buf = mem_try((size_t)cmd->batch * width,
                      dtype_table[in->dtype].bits / 8, "rows of x", err);
    return in->buf ? 0 : -1;
}

void
input_close(struct row_input *in)
{
    if (in->own_fd && in->fd > 2 && in->fd != in->st.fd)
        close(in->fd);
    st_close(&in->st);
    free(in->buf);
}

/* What a pipe has behind the rows of a .npy is known at its end alone. */
static ssize_t
check_end(const struct row_input *in, struct err *err)
{
    char more;
    ssize_t n =
        in->is_npy ? file_read_full(in->fd, in->name, &more, 1, err) : 0;

    if (n <= 0)
        return n;
    return err_set(err, EX_DATAERR,
                   "%s: more data (expected %llu rows by its header)", in->name,
                   (unsigned long long)in->n_rows);
}

ssize_t
input_rows(struct row_input *in, float *x, size_t n, struct err *err)
{
    size_t row = in->width * (dtype_table[in->dtype].bits / 8), rows;
    ssize_t got;

    if (in->n_dims && in->n_rows - in->taken < n)
        n = (size_t)(in->n_rows - in->taken);
    if (n == 0)
        return check_end(in, err);
    got = file_read_full(in->fd, in->name, in->buf, n * row, err);
    if (got < 0)
        return -1;
    rows = (size_t)got / row;
    if ((size_t)got % row != 0 || (in->n_dims && rows < n))
        return err_set(err, EX_DATAERR,
                       "%s: ended in row %llu (expected whole rows of %zu "
                       "bytes)",
                       in->name, (unsigned long long)(in->taken + rows), row);
    cvt_to_f32(x, in->buf, in->dtype, rows * in->width);
    in->taken += rows;
    return (ssize_t)rows;
}
