#include "cmd/moe-sft/write.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/moe-sft/cache.h"
#include "core/format/stdir.h"
#include "core/map.h"
#include "core/out.h"

/* An input in the folder that another is exchanged for goes with it. */
static int
check_folder(const char *in, const char *output, struct err *err)
{
    DIR *d = in ? opendir(output) : NULL;
    struct str path = { 0 };
    struct dirent *e;
    int rc = 0;

    while (d && rc == 0 && (e = readdir(d))) {
        str_clear(&path);
        str_addf(&path, "%s/%s", output, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            stdir_holds(in, path.s))
            rc = err_set(err, TU_USAGE,
                         "-o %s: is replaced, but %s in it is a file of this "
                         "command",
                         output, e->d_name);
    }
    str_free(&path);
    if (d)
        closedir(d);
    return rc;
}

int
check_files(const struct cmd *cmd, struct err *err)
{
    /* what --force does not replace may lie in a folder that is read */
    bool (*is_lost)(const char *, const char *) =
        cmd->out_flags & OUT_FORCE ? stdir_holds : file_same;
    bool forward = !strcmp(cmd->verb, "forward");
    const char *in[] = { cmd->cache, cmd->base, cmd->lora, cmd->input,
                         cmd->grad };
    size_t n = sizeof(in) / sizeof(in[0]);

    for (size_t i = 0; i < n + cmd->n_loras; i++)
        if (is_lost(i < n ? in[i] : cmd->loras[i - n].path, cmd->output))
            return err_set(err, TU_USAGE,
                           "-o %s is the name of another file of this command",
                           cmd->output);
    for (size_t i = 1; forward && i < n; i++)
        if (is_lost(in[i], cmd->cache))
            return err_set(err, TU_USAGE,
                           "-c %s is the name of another file of this command",
                           cmd->cache);
    for (size_t i = 0; cmd->out_flags && i < cmd->n_loras; i++)
        if (check_folder(cmd->loras[i].path, cmd->output, err) < 0)
            return -1;
    return cmd->out_flags && cmd->n_loras
               ? check_folder(cmd->base, cmd->output, err)
               : 0;
}

int
can_write(const struct cmd *cmd, const char *path, struct err *err)
{
    struct stat st;

    if (!path || (cmd->out_flags & OUT_FORCE) || stat(path, &st) < 0 ||
        !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
        return 0;
    return out_exists(path, err);
}

int
is_there(const struct cmd *cmd, struct err *err)
{
    bool forward = !strcmp(cmd->verb, "forward");
    const char *path[] = { cmd->output, forward ? cmd->cache : NULL };

    for (int i = 0; i < 2; i++) {
        struct stdir dir;

        if (!path[i])
            continue;
        if (file_missing(path[i]))
            return 0;
        if (stdir_open(&dir, path[i], err) < 0)
            return -1;
        stdir_close(&dir);
    }
    return 1;
}

bool
is_half_done(const struct cmd *cmd)
{
    struct stdir dir;
    bool cache;

    if (strcmp(cmd->verb, "forward") != 0 || !cmd->cache ||
        !file_missing(cmd->output) || file_missing(cmd->cache) ||
        stdir_open(&dir, cmd->cache, &(struct err){ 0 }) < 0)
        return false;
    cache = st_meta(dir.files, CACHE_VERSION_KEY) != NULL;
    stdir_close(&dir);
    return cache;
}

int
put_text(const char *path, int flags, const struct str *text, struct err *err)
{
    return out_put(path ? path : "-", flags, text->s, text->n, err);
}

int
write_tensors(struct stw *w, const struct output_tensor *tensors, size_t n,
              const char *path, int flags, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (stw_add(w, tensors[i].name, tensors[i].dtype, tensors[i].n_dims,
                    tensors[i].shape, err) < 0)
            return -1;
    if (stw_open(w, path, flags, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const struct output_tensor *t = &tensors[i];
        size_t item = dtype_table[t->dtype].bits / 8, n_numbers = 1;
        int rc;

        for (size_t d = 0; d < t->n_dims; d++)
            n_numbers *= (size_t)t->shape[d];
        rc = t->dtype == DT_BF16
                 ? stw_write(w, (int)i, t->data, n_numbers * item, 0, err)
                 : stw_write_numbers(w, (int)i, t->data, n_numbers, item, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}

int
write_mapped(struct stw *w, int tensor, const void *data, size_t nbytes,
             size_t offset, struct err *err)
{
    char piece[1 << 16];

    for (size_t at = 0; at < nbytes; at += sizeof(piece)) {
        size_t n = nbytes - at < sizeof(piece) ? nbytes - at : sizeof(piece);

        memcpy(piece, (const char *)data + at, n);
        if (stw_write(w, tensor, piece, n, offset + at, err) < 0)
            return -1;
    }
    return 0;
}
