/* SPDX-License-Identifier: ISC */
#include "core/format/stdir_copy.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/map.h"
#include "core/out.h"
#include "core/str.h"

/* Does a file have the weights in a form that a reader may prefer? */
static bool
is_other_form(const struct stdir *dir, const char *name)
{
    static const char *const globs[] = {
        "pytorch_model*.bin*",
        "tf_model*.h5*",
        "flax_model*.msgpack*",
        "consolidated*",
        "*.pth",
        "*.gguf",
        "*.onnx*",
    };
    const char *one = strrchr(dir->files->path, '/');

    for (size_t i = 0; i < sizeof(globs) / sizeof(*globs); i++)
        if (!fnmatch(globs[i], name, 0))
            return true;
    /* nobody reads the index next to the one file, or it is of other shards */
    return dir->n_files == 1 && one && !strcmp(one, "/model.safetensors") &&
           !strcmp(name, "model.safetensors.index.json");
}

static const struct stdir_text *
find_text(const struct stdir_text *texts, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(texts[i].name, name))
            return &texts[i];
    return NULL;
}

int
stdir_copy_others(const struct stdir *dir, const char *to,
                  const struct stdir_text *instead, size_t n_instead,
                  const char *why, struct err *err)
{
    DIR *d = opendir(dir->path);
    struct str from = { 0 }, path = { 0 }, left = { 0 };
    struct dirent *e;
    size_t n_out = 0;
    struct stat st;
    int rc;

    if (!d)
        return err_sys(err, file_status(errno), "%s", dir->path);
    while ((rc = dir_next(d, dir->path, &e, err)) > 0) {
        struct out *out = NULL;
        ssize_t n = 1;
        const struct stdir_text *text =
            find_text(instead, n_instead, e->d_name);
        size_t size;
        int fd = -1;

        str_clear(&from);
        str_clear(&path);
        str_addf(&from, "%s/%s", dir->path, e->d_name);
        str_addf(&path, "%s/%s", to, e->d_name);
        if (e->d_name[0] == '.' || str_ends(e->d_name, ".safetensors"))
            continue;
        if (stat(from.s, &st) < 0 && errno == ENOENT)
            continue;
        if (!text && is_other_form(dir, e->d_name)) {
            if (!n_out++ || strcmp(e->d_name, left.s) < 0) {
                str_clear(&left);
                str_adds(&left, e->d_name);
            }
            continue;
        }
        if (text) {
            rc = text->text
                     ? out_put(path.s, 0, text->text, strlen(text->text), err)
                     : 0;
            if (rc < 0)
                break;
            continue;
        }
        if (stat(from.s, &st) < 0) {
            rc = err_sys(err, file_status(errno), "%s", from.s);
        } else if (S_ISREG(st.st_mode)) {
            fd = file_open(from.s, &size, err);
            if (fd >= 0 && out_open(&out, path.s, 0, false, err) == 0)
                while (n > 0)
                    n = out_copy(out, fd, from.s, (size_t)1 << 30, err);
            rc = n == 0 ? out_commit(out, err) : -1;
            if (n != 0)
                out_abort(out);
            if (fd >= 0)
                close(fd);
        }
        if (rc < 0)
            break;
    }
    closedir(d);
    if (n_out && rc == 0)
        err_warn("%s: %s%s not copied, as %s %s", dir->path, left.s,
                 n_out == 1 ? " is" : " and others are", why,
                 n_out == 1 ? "it" : "them");
    str_free(&left);
    str_free(&from);
    str_free(&path);
    return rc;
}
