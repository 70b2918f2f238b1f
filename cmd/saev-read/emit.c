/* SPDX-License-Identifier: ISC */
#include "cmd/saev-read/emit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/format/npy.h"
#include "core/format/sae_without.h"
#include "core/js.h"
#include "core/kernel/cpu.h"
#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/places.h"
#include "core/tool.h"
#include "core/tty.h"

#define EMIT_FLOATS ((size_t)64 << 10) /* converted at a time: stays in L2 */
#define COPY_NBYTES ((size_t)64 << 20) /* copied between progress updates */
#define TEXT_NBYTES ((size_t)64 << 10) /* of --index, written at a time */

static size_t
out_nbytes(const struct emit *emit, size_t n_rows)
{
    return n_rows * emit->d * (emit->cmd->dtype == DT_F32 ? 4 : 2);
}

/* JSON of what sae-train would learn of the dump itself: its hook, and which
 * rows are left out.  Nothing if neither is known. */
static int
make_note(struct emit *emit, struct err *err)
{
    const struct dump_target *t = emit->t;
    struct saev_mask mask = { .positions = emit->cmd->mask.positions,
                              .max_norm = emit->cmd->mask.max_norm };
    const char *family = t->dir.saev.family;
    struct str keys = { 0 }, hook = { 0 };
    struct place place;
    int rc = 0;

    if (t->view.n_layers == 1 &&
        place_of_dump(&hook, &place, &t->dir.saev, t->view.layer0)) {
        str_adds(&keys, ", \"hook\": ");
        js_put_str(&keys, hook.s, hook.n);
        str_adds(&keys, ", \"family\": ");
        js_put_str(&keys, family, strlen(family));
    }
    if (emit->cmd->skip_ids)
        rc = saev_mask_ids(&mask, emit->cmd->skip_ids, err);
    if (rc == 0 && (rc = saev_mask_resolve(&mask, &t->dir, err)) == 0)
        sae_without_put(&keys, &mask);
    if (rc == 0 && keys.n)
        str_addf(&emit->note, "{%s}", keys.s + 2);
    free(mask.ids);
    str_free(&keys);
    str_free(&hook);
    return rc;
}

static int
put_header(struct emit *emit, size_t n_rows, struct err *err)
{
    const uint64_t shape[] = { n_rows, emit->d };
    struct str header = { 0 };
    int rc = npy_header(&header, emit->cmd->dtype, 2, shape, err);

    if (rc == 0 && emit->note.n && !npy_note(&header, emit->note.s)) {
        err_warn("a .npy has no room for a list of so many ids: sae-train "
                 "will not know which rows are left out");
        str_clear(&emit->note);
    }
    if (rc == 0)
        rc = out_write(emit->cmd->out, header.s, header.n, err);
    str_free(&header);
    emit->array_left = n_rows;
    return rc;
}

int
emit_open(struct emit *emit, const struct read_cmd *cmd,
          const struct dump_target *t, size_t n_rows, struct err *err)
{
    *emit = (struct emit){
        .cmd = cmd,
        .t = t,
        .d = t->dir.saev.d,
        .n_rows = n_rows,
        .array_left = cmd->batch ? 0 : n_rows,
    };
    if (cmd->index && cmd->json) {
        str_adds(&emit->text, "{\"path\":");
        js_put_str(&emit->text, t->dir.path, strlen(t->dir.path));
        str_addf(&emit->text, ",\"n_rows\":%zu,\"rows\":[", t->n_rows);
    } else if (cmd->index) {
        str_adds(&emit->text, "img\tlayer\tpatch\ttoken\tshard\toffset\n");
    }
    if (cmd->index)
        return 0;
    if (cmd->dtype != DT_F32) {
        emit->native = xmalloc(EMIT_FLOATS * sizeof(float));
        emit->converted = xmalloc(EMIT_FLOATS * 2);
    }
    emit->progress = (struct progress){ .what = "rows",
                                        .unit = "B",
                                        .total = out_nbytes(emit, n_rows),
                                        .quiet = cmd->quiet };
    progress_start(&emit->progress);
    /* a file is for everyone's readers, which may know no comments */
    if ((!cmd->raw && out_is_pipe(cmd->out) && make_note(emit, err) < 0) ||
        out_reserve(cmd->out, emit->progress.total, err) < 0)
        return -1;
    return cmd->raw || cmd->batch ? 0 : put_header(emit, n_rows, err);
}

/* How many of 'n' rows the array has room for; a new one is begun if none. */
static int
room(struct emit *emit, size_t n, size_t *fits, struct err *err)
{
    size_t left = emit->n_rows - emit->n_done;

    if (emit->array_left == 0 && emit->cmd->batch &&
        put_header(emit, smaller(left, emit->cmd->batch), err) < 0)
        return -1;
    *fits = smaller(n, emit->array_left);
    return 0;
}

/* Accounts for 'n' rows written; the reader of a full array waits for it. */
static int
written(struct emit *emit, size_t n, struct err *err)
{
    emit->n_done += n;
    emit->array_left -= n;
    progress_at(&emit->progress, out_nbytes(emit, emit->n_done));
    if (emit->cmd->batch && emit->array_left == 0)
        return out_flush(emit->cmd->out, err);
    return 0;
}

int
emit_rows(struct emit *emit, const void *rows, size_t n_rows, struct err *err)
{
    const struct read_cmd *cmd = emit->cmd;
    bool convert = cmd->dtype != DT_F32;
    const char *from = rows;

    for (size_t n; n_rows > 0; n_rows -= n) {
        if (room(emit, n_rows, &n, err) < 0)
            return -1;
        for (size_t left = n * emit->d, k; left > 0; left -= k) {
            k = convert ? smaller(left, EMIT_FLOATS) : left;
            if (convert) {
                cvt_to_f32(emit->native, from, DT_F32, k);
                cvt_from_f32(emit->converted, cmd->dtype, emit->native, k);
            }
            if (out_write(cmd->out, convert ? emit->converted : from,
                          k * (convert ? 2 : 4), err) < 0)
                return -1;
            from += k * sizeof(float);
        }
        if (written(emit, n, err) < 0)
            return -1;
    }
    return 0;
}

int
emit_pieces(struct emit *emit, struct iovec *v, size_t n_rows, bool lend,
            struct err *err)
{
    for (size_t n; n_rows > 0; n_rows -= n, v += n)
        if (room(emit, n_rows, &n, err) < 0 ||
            out_writev(emit->cmd->out, v, (int)n, lend, err) < 0 ||
            written(emit, n, err) < 0)
            return -1;
    return 0;
}

int
emit_copy(struct emit *emit, int fd, const char *name, size_t offset,
          size_t n_rows, struct err *err)
{
    if (lseek(fd, (off_t)offset, SEEK_SET) < 0)
        return err_sys(err, EX_IOERR, "%s: cannot be read", name);
    for (size_t n; n_rows > 0; n_rows -= n) {
        size_t done = out_nbytes(emit, emit->n_done), end;
        ssize_t k;

        if (room(emit, n_rows, &n, err) < 0)
            return -1;
        for (end = done + out_nbytes(emit, n); done < end; done += (size_t)k) {
            k = out_copy(emit->cmd->out, fd, name,
                         smaller(end - done, COPY_NBYTES), err);
            if (k < 0)
                return -1;
            if (k == 0)
                return err_set(err, EX_DATAERR, "%s: ended while it was read",
                               name);
            progress_at(&emit->progress, done + (size_t)k);
        }
        if (written(emit, n, err) < 0)
            return -1;
    }
    return 0;
}

/* Writes the text of --index once there is that much of it. */
static int
put_text(struct emit *emit, size_t min_nbytes, struct err *err)
{
    if (emit->text.n < min_nbytes)
        return 0;
    if (out_write(emit->cmd->out, emit->text.s, emit->text.n, err) < 0)
        return -1;
    str_clear(&emit->text);
    return 0;
}

int
emit_place(struct emit *emit, size_t row, struct err *err)
{
    struct saev_place at = target_at(emit->t, row);
    long long layer = emit->t->dir.saev.layers[at.layer];
    bool json = emit->cmd->json;

    str_addf(&emit->text,
             json ? "%s\n{\"img\":%zu,\"layer\":%lld,\"patch\":%lld,"
                    "\"token\":%zu,\"shard\":%zu,\"offset\":%zu}"
                  : "%s%zu\t%lld\t%lld\t%zu\t%zu\t%zu\n",
             json && emit->n_done ? "," : "", at.img, layer,
             (long long)at.patch, at.token, at.shard, at.offset);
    emit->n_done++;
    return put_text(emit, TEXT_NBYTES, err);
}

int
emit_end(struct emit *emit, struct err *err)
{
    const struct read_cmd *cmd = emit->cmd;
    size_t nbytes = out_nbytes(emit, emit->n_done);
    double s;

    if (cmd->index) {
        str_adds(&emit->text, cmd->json ? "]}\n" : "");
        return put_text(emit, 0, err);
    }
    if (!cmd->verbose && !emit->progress.dirty)
        return 0;
    progress_end(&emit->progress);
    s = clock_s() - emit->progress.started;
    tool_say("%zu row%s, %zu bytes in %.3f s, %.2f GB/s, %s, %s, threads: %d",
             emit->n_done, plural(emit->n_done), nbytes, s,
             1e-9 * (double)nbytes / (s + 1e-9), tool_host(),
             isa_name(cpu_isa()), cmd->n_threads);
    return 0;
}

void
emit_close(struct emit *emit)
{
    if (emit->progress.what)
        progress_end(&emit->progress);
    free(emit->native);
    free(emit->converted);
    str_free(&emit->text);
    str_free(&emit->note);
    *emit = (struct emit){ 0 };
}
