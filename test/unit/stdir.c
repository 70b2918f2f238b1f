/* SPDX-License-Identifier: ISC */
/*
 * Model directories: expectations are the rules of stdir.h, one by one.
 */
#include "core/format/stdir.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/le.h"
#include "core/str.h"
#include "test/unit/tap.h"

static char root[64];    /* a scratch directory, the working directory */
static char warned[512]; /* the last warning */

static void
on_warning(const char *what)
{
    snprintf(warned, sizeof(warned), "%s", what);
}

static void
write_file(const char *path, const void *bytes, size_t nbytes)
{
    FILE *f = fopen(path, "w");

    if (!f || fwrite(bytes, 1, nbytes, f) != nbytes || fclose(f)) {
        perror(path);
        exit(1);
    }
}

static void
write_text(const char *path, const char *text)
{
    write_file(path, text, strlen(text));
}

/* A file of U8 tensors, one for each letter; each holds its letter. */
static void
write_tensors(const char *path, const char *letters)
{
    struct str json = { 0 }, file = { 0 };
    char n[8];

    for (size_t i = 0; letters[i]; i++)
        str_addf(&json,
                 "%c\"%c\":{\"dtype\":\"U8\",\"shape\":[1],"
                 "\"data_offsets\":[%zu,%zu]}",
                 i ? ',' : '{', letters[i], i, i + 1);
    str_addc(&json, '}');
    put_le64(n, json.n);
    str_add(&file, n, 8);
    str_add(&file, json.s, json.n);
    str_adds(&file, letters);
    write_file(path, file.s, file.n);
    str_free(&file);
    str_free(&json);
}

/* The names in order, with each tensor's byte: "a=a b=b"; or the error. */
static const char *
opened(const char *path, struct err *err)
{
    static char text[2048];
    struct stdir dir;
    struct str s = { 0 };

    *err = (struct err){ 0 };
    warned[0] = '\0';
    if (stdir_open(&dir, path, err) < 0)
        return err->what;
    if (stdir_map(&dir, err) < 0)
        return err->what;
    str_adds(&s, "");
    for (size_t i = 0; i < dir.n_tensors; i++) {
        const struct stdir_tensor *t = dir.tensors + i;

        str_addf(&s, "%s%s=%c", i ? " " : "", t->t->name,
                 *(const char *)st_data(t->st, t->t));
        if (stdir_find(&dir, t->t->name) != t)
            str_adds(&s, "?");
    }
    if (stdir_find(&dir, "nothing") || stdir_find(&dir, ""))
        str_adds(&s, "?");
    stdir_close(&dir);
    snprintf(text, sizeof(text), "%s", s.s);
    str_free(&s);
    return text;
}

static void
check(const char *path, const char *expected, int status, const char *name)
{
    struct err err;
    const char *got = opened(path, &err);

    tap_ok(!strcmp(got, expected) && err.status == status, "%s: %s", name, got);
}

static void
index_is(const char *text)
{
    write_text("s/model.safetensors.index.json", text);
}

static void
test_one_file(void)
{
    write_tensors("ba.safetensors", "ba");
    check("ba.safetensors", "a=a b=b", 0, "a file is read, sorted by name");
    mkdir("m", 0700);
    check("m",
          "m: has no model.safetensors and no "
          "model.safetensors.index.json",
          EX_NOINPUT, "an empty directory is EX_NOINPUT");
    write_tensors("m/adapter_model.safetensors", "x");
    check("m", "x=x", 0, "the only file of another name is read");
    write_tensors("m/.hidden.safetensors", "h");
    write_text("m/config.json", "{}");
    check("m", "x=x", 0, "hidden and other files do not count");
    write_tensors("m/other.safetensors", "y");
    check("m",
          "m: has 2 safetensors files, but no "
          "model.safetensors.index.json",
          EX_NOINPUT, "two files without an index are EX_NOINPUT");
    write_tensors("m/model.safetensors", "zq");
    check("m", "q=q z=z", 0, "model.safetensors comes first");
    check("m/", "q=q z=z", 0, "a slash at the end does no harm");
    write_text("m/model.safetensors.index.json", "not JSON");
    check("m", "q=q z=z", 0, "model.safetensors comes before an index");
    unlink("m/model.safetensors");
    if (symlink("nowhere", "m/model.safetensors") < 0)
        perror("symlink");
    check("m", "m/model.safetensors: No such file or directory", EX_NOINPUT,
          "a dangling link is told, not passed over");
    unlink("m/model.safetensors");
    if (symlink("../ba.safetensors", "m/model.safetensors") < 0)
        perror("symlink");
    check("m", "a=a b=b", 0, "a link is followed");
    check("absent", "absent: No such file or directory", EX_NOINPUT,
          "what is not there is EX_NOINPUT");
}

static void
test_shards(void)
{
    mkdir("s", 0700);
    mkdir("s/sub", 0700);
    write_tensors("s/one.safetensors", "dx");
    write_tensors("s/sub/two.safetensors", "ca");
    index_is("{\"metadata\":{\"total_size\":3},\"weight_map\":{"
             "\"d\":\"one.safetensors\",\"a\":\"sub/two.safetensors\","
             "\"c\":\"sub/two.safetensors\"}}");
    check("s", "a=a c=c d=d", 0, "shards are read as the index says");
    tap_ok(!*warned, "a total_size that fits is no warning: %s", warned);
    index_is("{\"metadata\":{\"total_size\":4},\"weight_map\":{"
             "\"d\":\"one.safetensors\"}}");
    check("s", "d=d", 0, "a total_size that does not fit is not an error");
    tap_ok(!strncmp(warned,
                    "s/model.safetensors.index.json: total_size is 4, but the "
                    "tensors are 1 bytes",
                    75),
           "but a warning: %s", warned);
    index_is("{\"weight_map\":{\"x\":\"one.safetensors\"}}");
    check("s", "x=x", 0, "metadata may be absent");
    index_is("{\"weight_map\":{\"x\":\"./one.safetensors\",\"c\":"
             "\"./sub/two.safetensors\",\"d\":\"one.safetensors\"}}");
    check("s", "c=c d=d x=x", 0, "./NAME is NAME");
    index_is("{\"metadata\":null,\"weight_map\":{\"x\":\"one.safetensors\"}}");
    check("s", "x=x", 0, "or null");
    index_is("{\"weight_map\":{\"y\":\"one.safetensors\"}}");
    check("s",
          "s/model.safetensors.index.json: tensor \"y\" is not in "
          "s/one.safetensors",
          EX_DATAERR, "a missing tensor is told with its shard");
    index_is("{\"weight_map\":{\"x\":\"one.safetensors\","
             "\"y\":\"gone.safetensors\"}}");
    check("s",
          "s/model.safetensors.index.json: tensor \"y\" is in "
          "s/gone.safetensors: No such file or directory",
          EX_DATAERR, "a missing shard is told with its tensor");
    write_file("s/bad.safetensors", "\2\0\0\0\0\0\0\0{", 9);
    index_is("{\"weight_map\":{\"x\":\"bad.safetensors\"}}");
    check("s", "s/bad.safetensors: header length 2, but the file has 9 bytes",
          EX_DATAERR, "a shard that is cut is told by its name");
}

static void
test_bad_index(void)
{
    static const char *const bad[] = {
        "",
        "[]",
        "null",
        "{}",
        "{\"weight_map\":null}",
        "{\"weight_map\":[]}",
        "{\"weight_map\":{}}",
        "{\"weight_map\":{\"x\":null}}",
        "{\"weight_map\":{\"x\":1}}",
        "{\"weight_map\":{\"x\":[\"one.safetensors\"]}}",
        /* a name twice */
        ("{\"weight_map\":{\"x\":\"one.safetensors\","
         "\"x\":\"one.safetensors\"}}"),
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct err err;
        const char *got;

        index_is(bad[i]);
        got = opened("s", &err);
        tap_ok(err.status == EX_DATAERR &&
                   !strncmp(got, "s/model.safetensors.index.json: ", 32),
               "refused: %s: %s", bad[i], got);
    }
}

static void
test_paths(void)
{
    static const char *const bad[] = {
        "",
        ".safetensors/",
        "../s/one.safetensors",
        "sub/../one.safetensors",
        "sub/./two.safetensors",
        "sub//two.safetensors",
        "/one.safetensors",
        "sub/two.safetensors/",
        "sub/..",
        "..",
        ".",
        "/",
        "one.safetensors/.",
        "one.bin",
        "one",
        "one.safetensors ",
        "one.safetensors\\n",
        "sub\\\\two.safetensors",
        "one\\u0000.safetensors",
        "one.safetensors\\u0000",
        "..\\\\one.safetensors",
    };
    static const char *const good[] = {
        "...safetensors",     "a..safetensors", "..a/one.safetensors",
        "sub/...safetensors", ".safetensors",   "a b/\u00e9.safetensors",
    };
    struct str s = { 0 };
    struct err err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        const char *got;

        str_clear(&s);
        str_addf(&s, "{\"weight_map\":{\"x\":\"%s\"}}", bad[i]);
        index_is(s.s);
        got = opened("s", &err);
        tap_ok(err.status == EX_DATAERR &&
                   (strstr(got, "weight_map.x is ") || strstr(got, "\\u0000")),
               "the path \"%s\" is refused: %s", bad[i], got);
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        str_clear(&s);
        str_addf(&s, "{\"weight_map\":{\"x\":\"%s\"}}", good[i]);
        index_is(s.s);
        tap_ok(strstr(opened("s", &err), "tensor \"x\" is in s/") != NULL,
               "the path \"%s\" is looked for: %s", good[i], err.what);
    }
    str_free(&s);
}

/* More shards than the order of names: the tables stay together. */
static void
test_many(void)
{
    struct str json = { 0 };
    struct err err;
    char path[32], letter[2] = "A";
    const char *got;

    for (int i = 25; i >= 0; i--) {
        letter[0] = (char)('a' + i);
        snprintf(path, sizeof(path), "s/%s.safetensors", letter);
        write_tensors(path, letter);
        str_addf(&json, "%s\"%s\":\"%s.safetensors\"",
                 json.n ? "," : "{\"weight_map\":{", letter, letter);
    }
    str_adds(&json, "}}");
    index_is(json.s);
    got = opened("s", &err);
    tap_ok(!strncmp(got, "a=a b=b c=c", 11) && strstr(got, " z=z") &&
               !strchr(got, '?'),
           "26 shards in reverse order: %s", got);
    str_free(&json);
}

int
main(void)
{
    char command[128];

    snprintf(root, sizeof(root), "/tmp/tu-stdir-XXXXXX");
    if (!mkdtemp(root) || chdir(root) < 0)
        return 1;
    err_warn_hook(on_warning);
    test_one_file();
    test_shards();
    test_bad_index();
    test_paths();
    test_many();
    snprintf(command, sizeof(command), "rm -rf %s", root);
    if (chdir("/") < 0 || system(command) != 0)
        return 1;
    return tap_done();
}
