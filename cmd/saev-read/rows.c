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

/* The rows of one shard; those of an image and layer lie together. */
static int
copy_shard(const struct saevdir *dir, const struct saev_view *view,
           size_t shard, struct emit *emit, char *buf, struct err *err)
{
    const struct saev *s = &dir->saev;
    bool whole = view->img_rows == s->n_layers * s->n_tokens;
    size_t run =
        whole ? saev_shard_imgs(s, shard) * view->img_rows : view->n_tokens;
    size_t first = shard * s->shard_imgs * view->img_rows;
    size_t end = first + saev_shard_imgs(s, shard) * view->img_rows;
    struct str path = { 0 };
    int fd = saevdir_shard(dir, shard, err);
    int rc = fd < 0 ? -1 : 0;

    saevdir_shard_path(dir, shard, &path);
    for (size_t row = first; row < end && rc == 0; row += run)
        rc = copy_run(emit, fd, path.s, saev_view_at(view, row).offset,
                      run * s->row_nbytes, buf, err);
    if (fd >= 0)
        close(fd);
    str_free(&path);
    return rc;
}

static int
copy_view(const struct cmd *cmd, const struct saevdir *dir,
          const struct saev_view *view, struct err *err)
{
    size_t row_nbytes = dir->saev.row_nbytes;
    size_t room = row_nbytes > PIECE ? row_nbytes : PIECE;
    char *buf = mem_try(room, 1, "a row", err);
    struct emit emit = { 0 };
    int rc = -1;

    if (buf && emit_open(&emit, cmd, view->n_rows, dir->saev.d, err) == 0)
        rc = 0;
    for (size_t i = 0; i < dir->saev.n_shards && view->n_rows && rc == 0; i++)
        rc = copy_shard(dir, view, i, &emit, buf, err);
    emit_close(&emit);
    free(buf);
    return rc;
}

int
rows_main(struct cmd *cmd, struct err *err)
{
    struct saevdir dir;
    struct saev_view view;
    int rc = -1;

    if (cmd->n_args != 1)
        return err_set(err, TU_USAGE, "one DUMP is expected");
    if (saevdir_open(&dir, cmd->args[0], err) < 0)
        return -1;
    if (saev_view_open(&view, &dir.saev, cmd->tokens, cmd->layer, err) == 0)
        rc = copy_view(cmd, &dir, &view, err);
    saevdir_close(&dir);
    return rc;
}
