/* Is it a model directory, and if not, what? */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/format/stdir.h"
#include "core/map.h"
#include "core/str.h"

static bool
is_missing(const char *dir, const char *name)
{
    struct str path = { 0 };
    bool missing;

    str_addf(&path, "%s/%s", dir, name);
    missing = file_missing(path.s);
    str_free(&path);
    return missing;
}

/* What a file seems to be by its first bytes, or NULL. */
static const char *
sniff_file(const char *path)
{
    char head[512] = ""; /* of which st_sniff() looks at no more */
    struct err none;
    size_t size;
    int fd = file_open(path, &size, &none);
    long n = fd < 0 ? -1 : read_some(fd, head, sizeof(head));

    if (fd >= 0)
        close(fd);
    if (n > 8 && head[8] == '{')
        return "a safetensors file";
    return n < 0 ? NULL : st_sniff(head, (size_t)n);
}

static int
is_weights(const struct dirent *entry)
{
    static const char *const ends[] = { "*.gguf", "*.bin", "*.pth",
                                        "*.pt",   "*.h5",  "*.npz" };

    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        if (fnmatch(ends[i], entry->d_name, 0) == 0)
            return 1;
    return 0;
}

int
stdir_check(const char *dir, bool weights, struct err *err)
{
    bool config =
        !is_missing(dir, "config.json") || !is_missing(dir, "tokenizer.json");
    struct dirent **entries = NULL;
    struct str text = { 0 };
    const char *what;
    struct stat st;
    int n;

    if (config && (!weights || !is_missing(dir, "model.safetensors") ||
                   !is_missing(dir, "model.safetensors.index.json")))
        return 0;
    if (stat(dir, &st) < 0)
        return err_sys(err, file_status(errno), "%s", dir);
    if (!S_ISDIR(st.st_mode)) {
        what = S_ISREG(st.st_mode) ? sniff_file(dir) : NULL;
        return err_set(err, EX_DATAERR, "%s: is %s, not a model directory", dir,
                       what ? what : "a file");
    }
    /* the first file, by name, that has weights of another format */
    n = scandir(dir, &entries, is_weights, alphasort);
    for (int i = 0; i < n; i++) {
        struct str path = { 0 };

        str_addf(&path, "%s/%s", dir, entries[i]->d_name);
        what = text.n ? NULL : sniff_file(path.s);
        if (what)
            str_addf(&text, "; %s is %s", entries[i]->d_name, what);
        str_free(&path);
        free(entries[i]);
    }
    free(entries);
    if (config)
        err_set(err, EX_NOINPUT,
                "%s: has no model.safetensors and no "
                "model.safetensors.index.json%s",
                dir, text.n ? text.s : "");
    else
        err_set(err, EX_NOINPUT,
                "%s: not a model directory (config.json and tokenizer.json are "
                "missing)%s",
                dir, text.n ? text.s : "");
    str_free(&text);
    return -1;
}
