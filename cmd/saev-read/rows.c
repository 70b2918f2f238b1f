/* The default verb: rows of a view. */
#include <stdlib.h>
#include <unistd.h>

#include "cmd/saev-read/read.h"
#include "core/map.h"
#include "core/mem.h"

#define PIECE ((size_t)1 << 20) /* bytes of a read */

/* Rows first .. first + n - 1 of the view, which lie together in a shard. */
static int
copy_run(struct emit *emit, int fd, const char *path, size_t offset,
         size_t nbytes, char *buf, struct err *err)
{
    size_t row_nbytes = emit->d * sizeof(float);
    size_t piece =
        PIECE > row_nbytes ? PIECE / row_nbytes * row_nbytes : row_nbytes;

    for (size_t n; nbytes > 0; nbytes -= n, offset += n) {
        n = nbytes < piece ? nbytes : piece;
        if (file_pread(fd, path, buf, n, offset, err) < 0 ||
            emit_rows(emit, buf, n / row_nbytes, err) < 0)
            return -1;
    }
    return 0;
}

/* The target's rows in one shard; those of an image and layer lie together. */
static int
copy_shard(const struct target *t, size_t shard, struct emit *emit, char *buf,
           struct err *err)
{
    const struct saev *s = &t->dir.saev;
    size_t img_rows = t->view.img_rows;
    bool whole = img_rows == s->n_layers * s->n_tokens;
    size_t row = shard * s->shard_imgs * img_rows;
    size_t end = row + saev_shard_imgs(s, shard) * img_rows;
    struct str path = { 0 };
    size_t run;
    int fd = saevdir_shard(&t->dir, shard, err);
    int rc = fd < 0 ? -1 : 0;

    row = row > t->first ? row : t->first;
    end = end < t->first + t->n_rows ? end : t->first + t->n_rows;
    run = whole ? end - row : t->view.n_tokens;
    saevdir_shard_path(&t->dir, shard, &path);
    for (; row < end && rc == 0; row += run)
        rc = copy_run(emit, fd, path.s, saev_view_at(&t->view, row).offset,
                      run * s->row_nbytes, buf, err);
    if (fd >= 0)
        close(fd);
    str_free(&path);
    return rc;
}

static int
copy_view(const struct target *t, struct emit *emit, struct err *err)
{
    const struct saev *s = &t->dir.saev;
    size_t room = s->row_nbytes > PIECE ? s->row_nbytes : PIECE;
    size_t shard = t->n_rows ? target_at(t, 0).shard : 1;
    size_t last = t->n_rows ? target_at(t, t->n_rows - 1).shard : 0;
    char *buf = mem_try(room, 1, "a row", err);
    int rc = buf ? 0 : -1;

    for (; shard <= last && rc == 0; shard++)
        rc = copy_shard(t, shard, emit, buf, err);
    free(buf);
    return rc;
}

int
rows_main(struct cmd *cmd, struct err *err)
{
    struct emit emit = { 0 };
    struct target t;
    int rc = -1;

    if (cmd->n_args != 1)
        return err_set(err, TU_USAGE, "one DUMP is expected");
    if (target_open(&t, cmd, cmd->args[0], err) < 0)
        return -1;
    if (emit_open(&emit, cmd, t.n_rows, t.dir.saev.d, err) == 0)
        rc = copy_view(&t, &emit, err);
    if (rc == 0)
        emit_say(&emit, cmd);
    emit_close(&emit);
    target_close(&t);
    return rc;
}
