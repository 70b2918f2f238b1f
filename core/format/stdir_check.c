/* SPDX-License-Identifier: ISC */
/* Is it a model directory, and if not, what? */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/format/stdir.h"
#include "core/inuse.h"
#include "core/js.h"
#include "core/map.h"
#include "core/str.h"

bool
stdir_has(const char *dir, const char *name)
{
    struct str path = { 0 };
    struct stat st;
    bool yes;

    str_addf(&path, "%s/%s", dir, name);
    yes = lstat(path.s, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
    str_free(&path);
    return yes;
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

/* What a directory without a model's weights may have, the most telling first;
 * a file without a text is what its bytes say. */
static const struct {
    const char *glob, *text;
} others[] = {
    { "*-of-00001.safetensors", "is not named " STDIR_ONE_FILE },
    { "*-of-*.safetensors",
      "is one of several shards, whose index is missing" },
    { "consolidated*.safetensors",
      "has Mistral's own names of tensors, not transformers'" },
    { "pytorch_model.bin.index.json",
      "is the index of PyTorch's weights: only safetensors are read" },
    { "*.gguf", NULL },
    { "*.bin", NULL },
    { "*.pth", NULL },
    { "*.pt", NULL },
    { "*.h5", NULL },
    { "*.npz", NULL },
};
#define N_OTHERS (sizeof(others) / sizeof(*others))

/* Appends what the first file of others[] is. */
static void
put_other(const char *dir, struct str *text)
{
    struct dirent **entries = NULL;
    int n = scandir(dir, &entries, NULL, alphasort);

    for (size_t k = 0; k < N_OTHERS; k++)
        for (int i = 0; i < n && text->n == 0; i++) {
            const char *name = entries[i]->d_name, *what = others[k].text;
            struct str path = { 0 };

            if (fnmatch(others[k].glob, name, 0) != 0)
                continue;
            str_addf(&path, "%s/%s", dir, name);
            if (what)
                str_addf(text, "; %s %s", name, what);
            else if ((what = sniff_file(path.s)))
                str_addf(text, "; %s is %s", name, what);
            str_free(&path);
        }
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
}

/* The model in a cache of the Hub, models--X--Y: the snapshot that refs/main
 * names, or the first one.  False where it is no such directory. */
static bool
find_snapshot(const char *dir, struct str *path)
{
    struct dirent **entries = NULL;
    struct str file = { 0 }, hash = { 0 };
    struct err none;
    int n;

    str_addf(path, "%s/snapshots", dir);
    n = scandir(path->s, &entries, NULL, alphasort); /* "." and ".." first */
    str_addf(&file, "%s/refs/main", dir);
    if (n > 2 && file_read_regular(file.s, 256, &hash, &none) == 0 &&
        hash.n > 0)
        str_addf(path, "/%.*s", (int)strcspn(hash.s, "\n"), hash.s);
    else if (n > 2)
        str_addf(path, "/%s", entries[2]->d_name);
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
    str_free(&hash);
    str_free(&file);
    return n >= 0;
}

int
stdir_wrong(const char *dir, const char *what, struct err *err)
{
    struct str text = { 0 };

    if (find_snapshot(dir, &text)) {
        err_set(err, EX_NOINPUT, "%s: is a cache of the Hub: the model is %s",
                dir, text.s);
    } else {
        str_clear(&text);
        put_other(dir, &text);
        err_set(err, EX_NOINPUT, "%s: %s%s", dir, what, text.n ? text.s : "");
    }
    str_free(&text);
    return -1;
}

/* The model of an adapter's directory. */
static int
is_adapter(const char *dir, struct err *err)
{
    struct str path = { 0 };
    struct js root, base;
    struct err none;
    json_t *v;

    str_addf(&path, "%s/adapter_config.json", dir);
    v = js_load(path.s, &none);
    root = js_root(v, path.s);
    base = js_get(&root, "base_model_name_or_path");
    err_set(err, EX_NOINPUT,
            "%s: is a LoRA adapter of %s, not a model: give that model, and "
            "this with --lora",
            dir,
            js_is(&base, JSON_STRING) ? json_string_value(base.v)
                                      : "another model");
    json_decref(v);
    str_free(&path);
    return -1;
}

/* A model's files are inputs, whether this command reads them or not. */
static int
input_files(const char *dir, struct err *err)
{
    static const char *const globs[] = { "model.safetensors*",
                                         "model-*-of-*.safetensors",
                                         "*config.json",
                                         "tokenizer.*",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "chat_template.jinja" };
    struct dirent **entries = NULL;
    int n = scandir(dir, &entries, NULL, alphasort), rc = 0;

    for (int i = 0; i < n; i++) {
        struct str path = { 0 };

        str_addf(&path, "%s/%s", dir, entries[i]->d_name);
        for (size_t k = 0; k < sizeof(globs) / sizeof(*globs) && rc == 0; k++)
            if (fnmatch(globs[k], entries[i]->d_name, 0) == 0)
                rc = inuse_will_read(path.s, err);
        str_free(&path);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

int
stdir_check(const char *dir, bool weights, struct err *err)
{
    bool config = stdir_has(dir, "config.json");
    const char *what;
    struct stat st;

    if (config || (!weights && stdir_has(dir, "tokenizer.json")))
        if (!weights || stdir_has(dir, STDIR_ONE_FILE) ||
            stdir_has(dir, STDIR_INDEX) || stdir_has(dir, STDIR_ONE_SHARD))
            return input_files(dir, err);
    if (stat(dir, &st) < 0)
        return err_sys(err, file_status(errno), "%s", dir);
    if (!S_ISDIR(st.st_mode)) {
        what = S_ISREG(st.st_mode) ? sniff_file(dir) : NULL;
        return err_set(err, EX_DATAERR, "%s: is %s, not a model directory", dir,
                       what ? what : "a file");
    }
    if (stdir_has(dir, "adapter_config.json"))
        return is_adapter(dir, err);
    return stdir_wrong(dir,
                       config
                           ? STDIR_NO_WEIGHTS
                           : "not a model directory (config.json is missing)",
                       err);
}
