/* SPDX-License-Identifier: ISC */
#include "cmd/saev-write/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/compat.h"
#include "core/format/npy.h"
#include "core/kernel/cvt.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/tty.h"

#define INPUT_HEAD NPY_MAX_HEAD
#define PEEK_BYTES ((size_t)64 << 10)
#define PIPE_BYTES (1 << 20) /* what an ordinary user may ask for */

int
input_open(struct float_input *in, const char *path, enum dtype dtype,
           struct err *err)
{
    bool std = !strcmp(path, "-");
    struct stat st;

    *in = (struct float_input){ .name = std ? "standard input" : path,
                                .dtype = dtype };
    in->fd = std ? 0 : file_open_any(path, err);
    if (in->fd < 0)
        return -1;
    if (fstat(in->fd, &st) < 0)
        return err_sys(err, file_status(errno), "%s", in->name);
    if (S_ISDIR(st.st_mode))
        return err_set(err, EX_NOINPUT, "%s: is a directory, not a file",
                       in->name);
    if (isatty(in->fd))
        return err_set(err, TU_USAGE,
                       "activations are not read from a terminal: redirect "
                       "standard input");
    if (S_ISFIFO(st.st_mode))
        pipe_enlarge(in->fd, PIPE_BYTES);
    in->head = xmalloc(INPUT_HEAD);
    return 0;
}

void
input_close(struct float_input *in)
{
    if (in->fd > 2)
        close(in->fd);
    free(in->head);
    free(in->native);
    *in = (struct float_input){ 0 };
}

size_t
input_left(const struct float_input *in)
{
    size_t head = in->head_n - in->head_at, rest;
    off_t at = lseek(in->fd, 0, SEEK_CUR);
    struct stat st;

    if (fstat(in->fd, &st) < 0 || !S_ISREG(st.st_mode) || at < 0)
        return SIZE_MAX;
    rest = st.st_size > at ? (size_t)(st.st_size - at) : 0;
    return (head + rest) * (in->dtype == DT_F32 ? 1 : 2);
}

/* Has the head n bytes?  It takes what is there, in whole pages: the kernel
 * then moves the rest without shifting it. */
static int
fill_head(struct float_input *in, size_t n, struct err *err)
{
    size_t room = n > PEEK_BYTES ? n : PEEK_BYTES;

    while (in->head_n < n) {
        ssize_t got;

        if (file_wait(in->fd, err) < 0)
            return -1;
        got = read_some(in->fd, in->head + in->head_n, room - in->head_n);
        if (got < 0)
            return err_sys(err, EX_IOERR, "%s: cannot be read", in->name);
        if (got == 0)
            return 0;
        in->head_n += (size_t)got;
    }
    return 1;
}

int
input_more(struct float_input *in, struct err *err)
{
    if (in->head_at < in->head_n)
        return 1;
    in->head_at = in->head_n = 0;
    return fill_head(in, 1, err);
}

int
input_header(struct float_input *in, const struct saev *saev, size_t *n_imgs,
             struct err *err)
{
    size_t per_img = saev->img_nbytes / sizeof(float);
    struct npy npy;
    uint64_t last;

    if (fill_head(in, 8, err) < 0)
        return -1;
    if (!npy_sniff(in->head, in->head_n))
        return 0;
    if (npy_read(&npy, in->fd, in->name, in->head, in->head_n, err) < 0)
        return -1;
    in->head_n = larger(in->head_n, npy.data_offset);
    if (npy.dtype != DT_F32 && npy.dtype != DT_F16)
        return err_set(err, EX_DATAERR, "%s: dtype is %s (expected F32 or F16)",
                       in->name, dtype_table[npy.dtype].name);
    /* any dims will do, if the last is D and they hold whole images */
    if (npy.n_dims == 0)
        return err_set(err, EX_DATAERR,
                       "%s: is a scalar (expected images of d_vit, %zu)",
                       in->name, saev->d);
    last = npy.shape[npy.n_dims - 1];
    if (last != saev->d)
        return err_set(
            err, EX_DATAERR,
            "%s: the last of %zu dim%s is %llu (expected d_vit, %zu)", in->name,
            npy.n_dims, plural(npy.n_dims), (unsigned long long)last, saev->d);
    if (npy.n_elements % per_img != 0)
        return err_set(err, EX_DATAERR,
                       "%s: has %llu number%s (expected whole images of %zu)",
                       in->name, (unsigned long long)npy.n_elements,
                       plural(npy.n_elements), per_img);
    in->dtype = npy.dtype;
    in->head_at = npy.data_offset;
    *n_imgs = (size_t)npy.n_elements / per_img;
    return 1;
}

/* Bytes of the input's own dtype until nbytes or the end. */
static ssize_t
read_full(struct float_input *in, void *to, size_t nbytes, struct err *err)
{
    size_t done = in->head_n - in->head_at;
    ssize_t n;

    if (done > nbytes)
        done = nbytes;
    memcpy(to, in->head + in->head_at, done);
    in->head_at += done;
    n = file_read_full(in->fd, in->name, (char *)to + done, nbytes - done, err);
    if (n < 0)
        return -1;
    in->n_taken += done + (size_t)n;
    return (ssize_t)done + n;
}

ssize_t
input_read(struct float_input *in, void *to, size_t n, struct err *err)
{
    size_t size = in->dtype == DT_F32 ? 4 : 2;
    ssize_t got;

    if (in->dtype == DT_F32) {
        got = read_full(in, to, n * size, err);
        return got < 0 ? -1 : got / 4;
    }
    if (!in->native)
        in->native = xmalloc(INPUT_FLOATS * sizeof(float));
    /* the upper half of 'to' holds what the whole of it then will */
    got = read_full(in, (char *)to + n * 2, n * size, err);
    if (got < 0)
        return -1;
    cvt_to_f32(in->native, (char *)to + n * 2, in->dtype, (size_t)got / 2);
    cvt_from_f32(to, DT_F32, in->native, (size_t)got / 2);
    return got / 2;
}

ssize_t
input_move(struct float_input *in, struct out *out, size_t nbytes,
           struct err *err)
{
    size_t head = in->head_n - in->head_at;
    ssize_t n;

    if (head > 0) {
        n = (ssize_t)(head < nbytes ? head : nbytes);
        if (out_write(out, in->head + in->head_at, (size_t)n, err) < 0)
            return -1;
        in->head_at += (size_t)n;
    } else {
        if (file_wait(in->fd, err) < 0)
            return -1;
        n = out_copy(out, in->fd, in->name, nbytes, err);
        if (n < 0)
            return -1;
    }
    in->n_taken += (size_t)n;
    return n;
}
