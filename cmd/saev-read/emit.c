#include "cmd/saev-read/emit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/format/npy.h"
#include "core/format/saev.h"
#include "core/js.h"
#include "core/kernel/cpu.h"
#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/par.h"
#include "core/tool.h"

#define EMIT_FLOATS ((size_t)64 << 10) /* converted at a time: stays in L2 */
#define COPY_NBYTES ((size_t)64 << 20) /* copied between looks at the clock */

static size_t
out_nbytes(const struct emit *emit, size_t n_rows)
{
    return n_rows * emit->d * (emit->dtype == DT_F32 ? 4 : 2);
}

static int
put_header(struct emit *emit, size_t n_rows, struct err *err)
{
    const uint64_t shape[] = { n_rows, emit->d };
    struct str header = { 0 };
    int rc = npy_header(&header, emit->dtype, 2, shape, err);

    if (rc == 0)
        rc = out_write(emit->out, header.s, header.n, err);
    str_free(&header);
    emit->array_left = n_rows;
    return rc;
}

int
emit_open(struct emit *emit, const struct read_cmd *cmd, size_t n_rows,
          size_t d, struct err *err)
{
    *emit = (struct emit){
        .out = cmd->out,
        .dtype = cmd->dtype,
        .d = d,
        .raw = cmd->raw,
        .array_rows = cmd->batch,
        .n_rows = n_rows,
        .array_left = n_rows,
        .progress = { .what = "rows", .unit = "B", .quiet = cmd->quiet },
    };
    if (emit->dtype != DT_F32) {
        emit->native = xmalloc(EMIT_FLOATS * sizeof(float));
        emit->converted = xmalloc(EMIT_FLOATS * 2);
    }
    emit->progress.total = out_nbytes(emit, n_rows);
    progress_start(&emit->progress);
    if (out_reserve(cmd->out, emit->progress.total, err) < 0)
        return -1;
    if (emit->array_rows)
        emit->array_left = 0;
    else if (!emit->raw)
        return put_header(emit, n_rows, err);
    return 0;
}

static int
put_rows(struct emit *emit, const char *from, size_t n_rows, struct err *err)
{
    size_t left = n_rows * emit->d;

    if (emit->dtype == DT_F32)
        return out_write(emit->out, from, left * sizeof(float), err);
    for (size_t n; left > 0; left -= n, from += n * sizeof(float)) {
        n = left < EMIT_FLOATS ? left : EMIT_FLOATS;
        cvt_to_f32(emit->native, from, DT_F32, n);
        cvt_from_f32(emit->converted, emit->dtype, emit->native, n);
        if (out_write(emit->out, emit->converted, n * 2, err) < 0)
            return -1;
    }
    return 0;
}

/* How many of 'n' rows the array still takes; a new one is begun if none. */
static int
room(struct emit *emit, size_t n, size_t *fits, struct err *err)
{
    size_t left = emit->n_rows - emit->n_done;

    if (emit->array_left == 0 && emit->array_rows &&
        put_header(emit, left < emit->array_rows ? left : emit->array_rows,
                   err) < 0)
        return -1;
    *fits = n < emit->array_left ? n : emit->array_left;
    return 0;
}

/* 'n' rows have been written; a full array goes to who waits for it. */
static int
written(struct emit *emit, size_t n, struct err *err)
{
    emit->n_done += n;
    emit->array_left -= n;
    progress_at(&emit->progress, out_nbytes(emit, emit->n_done));
    if (emit->array_rows && emit->array_left == 0)
        return out_flush(emit->out, err);
    return 0;
}

int
emit_rows(struct emit *emit, const void *rows, size_t n_rows, struct err *err)
{
    const char *from = rows;

    for (size_t n; n_rows > 0; n_rows -= n, from += n * emit->d * 4)
        if (room(emit, n_rows, &n, err) < 0 ||
            put_rows(emit, from, n, err) < 0 || written(emit, n, err) < 0)
            return -1;
    return 0;
}

static int
copy_bytes(struct emit *emit, int fd, const char *name, size_t offset,
           size_t nbytes, struct err *err)
{
    size_t done = out_nbytes(emit, emit->n_done);

    if (lseek(fd, (off_t)offset, SEEK_SET) < 0)
        return err_sys(err, EX_IOERR, "%s: cannot be read", name);
    while (nbytes > 0) {
        size_t most = nbytes < COPY_NBYTES ? nbytes : COPY_NBYTES;
        ssize_t n = out_copy(emit->out, fd, name, most, err);

        if (n < 0)
            return -1;
        if (n == 0)
            return err_set(err, EX_DATAERR, "%s: ended while it was read",
                           name);
        nbytes -= (size_t)n;
        done += (size_t)n;
        progress_at(&emit->progress, done);
    }
    return 0;
}

int
emit_copy(struct emit *emit, int fd, const char *name, size_t offset,
          size_t n_rows, struct err *err)
{
    for (size_t n; n_rows > 0; n_rows -= n) {
        if (room(emit, n_rows, &n, err) < 0 ||
            copy_bytes(emit, fd, name, offset, n * emit->d * 4, err) < 0 ||
            written(emit, n, err) < 0)
            return -1;
        offset += n * emit->d * 4;
    }
    return 0;
}

int
emit_pieces(struct emit *emit, struct iovec *v, size_t n_rows, bool lend,
            struct err *err)
{
    for (size_t n; n_rows > 0; n_rows -= n, v += n)
        if (room(emit, n_rows, &n, err) < 0 ||
            out_writev(emit->out, v, (int)n, lend, err) < 0 ||
            written(emit, n, err) < 0)
            return -1;
    return 0;
}

void
emit_say(struct emit *emit, const struct read_cmd *cmd)
{
    size_t nbytes = out_nbytes(emit, emit->n_done);
    double s;

    if (!cmd->verbose)
        return;
    progress_end(&emit->progress);
    s = clock_s() - emit->progress.started;
    tool_say("%zu rows, %zu bytes in %.3f s, %.2f GB/s, %s, %s, threads: %d",
             emit->n_done, nbytes, s, 1e-9 * (double)nbytes / (s + 1e-9),
             tool_host(), isa_name(cpu_isa()), cmd->n_threads);
}

void
emit_close(struct emit *emit)
{
    if (emit->progress.what)
        progress_end(&emit->progress);
    free(emit->native);
    free(emit->converted);
    *emit = (struct emit){ 0 };
}

#define ENOUGH ((size_t)64 << 10) /* bytes handed on at a time */

static int
hand_on(struct places *p, size_t enough, struct err *err)
{
    if (p->text.n < enough)
        return 0;
    if (out_write(p->out, p->text.s, p->text.n, err) < 0)
        return -1;
    str_clear(&p->text);
    return 0;
}

void
places_open(struct places *p, const struct read_cmd *cmd,
            const struct dump_target *t)
{
    *p = (struct places){ .out = cmd->out, .t = t, .json = cmd->json };
    if (!p->json) {
        str_adds(&p->text, "img\tlayer\tpatch\ttoken\tshard\toffset\n");
        return;
    }
    str_adds(&p->text, "{\"path\":");
    js_put_str(&p->text, t->dir.path, strlen(t->dir.path));
    str_addf(&p->text, ",\"n_rows\":%zu,\"rows\":[", t->n_rows);
}

int
places_put(struct places *p, size_t row, struct err *err)
{
    struct saev_place at = target_at(p->t, row);
    long long layer = p->t->dir.saev.layers[at.layer];

    str_addf(&p->text,
             p->json ? "%s\n{\"img\":%zu,\"layer\":%lld,\"patch\":%lld,"
                       "\"token\":%zu,\"shard\":%zu,\"offset\":%zu}"
                     : "%s%zu\t%lld\t%lld\t%zu\t%zu\t%zu\n",
             p->json && p->n ? "," : "", at.img, layer, (long long)at.patch,
             at.token, at.shard, at.offset);
    p->n++;
    return hand_on(p, ENOUGH, err);
}

int
places_end(struct places *p, struct err *err)
{
    if (p->json)
        str_adds(&p->text, "]}\n");
    return hand_on(p, 0, err);
}

void
places_close(struct places *p)
{
    str_free(&p->text);
}
