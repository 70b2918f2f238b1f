/* SPDX-License-Identifier: ISC */
/*
 * safetensors files: opening, hints, cuts, order, data; and some thousand
 * random files judged by test/ref/safetensors_rules.py as well.
 */
#include "core/format/st.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/le.h"
#include "core/mem.h"
#include "core/str.h"
#include "test/unit/tap.h"

static char path[64]; /* of a scratch file */

static void
write_file(const void *bytes, size_t nbytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (fd < 0 || write(fd, bytes, nbytes) != (ssize_t)nbytes ||
        ftruncate(fd, (off_t)size) < 0) {
        perror(path);
        exit(1);
    }
    close(fd);
}

/* st_open() of these bytes, of which the file has 'size', zeros at the end. */
static int
open_bytes(struct st *st, const void *bytes, size_t nbytes, size_t size,
           struct err *err)
{
    *err = (struct err){ 0 };
    write_file(bytes, nbytes, size);
    return st_open(st, path, err);
}

static int
says(const struct err *err, const char *what)
{
    return strstr(err->what, what) != NULL;
}

/* Length, JSON and 'data' zeros. */
static struct str
make_file(const char *json, size_t data)
{
    struct str s = { 0 };
    char n[8];

    put_le64(n, strlen(json));
    str_add(&s, n, 8);
    str_adds(&s, json);
    for (size_t i = 0; i < data; i++)
        str_addc(&s, '\0');
    return s;
}

static const char two[] =
    "{\"__metadata__\":{\"k\":\"v\"},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[2,10]},"
    "\"a\":{\"dtype\":\"I16\",\"shape\":[],\"data_offsets\":[0,2]}}   ";

static void
test_open(void)
{
    static const uint8_t data[10] = { 1, 2, 0, 0, 0x80, 0x3f, 5, 6, 7, 8 };
    struct str s = make_file(two, 0);
    struct err err;
    struct st st;
    uint8_t got[4];
    const struct st_tensor *a, *b;

    str_add(&s, data, sizeof(data));
    tap_ok(open_bytes(&st, s.s, s.n, s.n, &err) == 0, "a file opens: %s",
           err.what);
    tap_ok(st.n_tensors == 2 && !strcmp(st.tensors[0].name, "b") &&
               !strcmp(st.tensors[1].name, "a"),
           "tensors come in order of the header");
    tap_ok(st.by_name[0] == 1 && st.by_name[1] == 0, "by_name is sorted");
    tap_ok(st.n_meta == 1 && !strcmp(st.meta->key, "k") &&
               !strcmp(st.meta->value, "v") && st.meta->key_n == 1,
           "metadata is read");
    a = st_find(&st, "a");
    b = st_find(&st, "b");
    tap_ok(a == st.tensors + 1 && b == st.tensors, "st_find finds each");
    tap_ok(!st_find(&st, "") && !st_find(&st, "aa") && !st_find(&st, "c"),
           "st_find finds nothing else");
    tap_ok(a->dtype == DT_I16 && a->n_dims == 0 && a->n_elements == 1 &&
               a->begin == 0 && a->nbytes == 2,
           "a scalar has no dims and one element");
    tap_ok(b->dtype == DT_F32 && b->n_dims == 2 && b->shape[0] == 2 &&
               b->shape[1] == 1 && b->begin == 2 && b->nbytes == 8,
           "a matrix has its shape and place");
    tap_ok(st_pread(&st, b, got, 4, 0, &err) == 0 && le_f32(got) == 1.0f,
           "st_pread reads a tensor's first bytes");
    tap_ok(st_pread(&st, b, got, 4, 4, &err) == 0 && !memcmp(got, data + 6, 4),
           "st_pread reads from an offset");
    tap_ok(st_pread(&st, b, got, 4, 5, &err) < 0 &&
               st_pread(&st, b, got, 1, 9, &err) < 0,
           "st_pread does not read past a tensor");
    tap_ok(st_map(&st, &err) == 0 && !memcmp(st_data(&st, a), data, 2) &&
               !memcmp(st_data(&st, b), data + 2, 8),
           "st_data is where the bytes are");
    st_close(&st);
    st_close(&st);
    tap_ok(!st.tensors && !st.path, "a closed struct may be closed again");
    str_free(&s);
}

static void
test_open_errors(void)
{
    struct str s = make_file(two, 10);
    struct err err = { 0 };
    struct st st;

    tap_ok(st_open(&st, "/nonexistent/x", &err) < 0 &&
               err.status == EX_NOINPUT &&
               !strcmp(err.what, "/nonexistent/x: No such file or directory"),
           "a missing file is EX_NOINPUT: %s", err.what);
    tap_ok(st_open(&st, "/tmp", &err) < 0 && err.status == EX_NOINPUT,
           "a directory is EX_NOINPUT: %s", err.what);
    tap_ok(open_bytes(&st, s.s, s.n, s.n, &err) == 0, "a file opens");
    if (truncate(path, 100) < 0)
        perror(path);
    tap_ok(st_map(&st, &err) < 0 && err.status == EX_IOERR,
           "a file that shrank is not mapped: %s", err.what);
    st_close(&st);
    str_free(&s);
}

static void
test_lengths(void)
{
    struct err err;
    struct st st;
    struct str want = { 0 };
    char *big;

    open_bytes(&st, "\100\342\1\0\0\0\0\0", 8, 100, &err);
    str_addf(&want, "%s: header length 123456, but the file has 100 bytes",
             path);
    tap_ok(!strcmp(err.what, want.s), "a header beyond the file: %s", err.what);
    open_bytes(&st, "\377\377\0\0\0\0\0\0{}", 10, 10, &err);
    tap_ok(says(&err, ": header length 65535, but the file has 10 bytes"),
           "so, too, with some of the header there: %s", err.what);
    for (size_t n = 0; n < 8; n++)
        tap_ok(open_bytes(&st, "\2\0\0\0\0\0\0\0", n, n, &err) < 0 &&
                   says(&err, "(expected at least 8)"),
               "%zu bytes are no file: %s", n, err.what);
    open_bytes(&st, "\1\341\365\5\0\0\0\0{", 9, 9, &err);
    tap_ok(says(&err, "header length 100000001 (expected at most 1000"),
           "the limit comes before the file's size: %s", err.what);
    open_bytes(&st, "\0\341\365\5\0\0\0\0{", 9, 9, &err);
    tap_ok(says(&err, "header length 100000000, but the file has 9 b"),
           "100000000 is within the limit: %s", err.what);
    open_bytes(&st, "\377\377\377\377\377\377\377\377{", 9, 9, &err);
    tap_ok(says(&err, "header length 18446744073709551615 (expected"),
           "8 + n does not wrap: %s", err.what);
    big = xmalloc(8 + ST_MAX_HEADER);
    put_le64(big, ST_MAX_HEADER);
    memset(big + 8, ' ', ST_MAX_HEADER);
    memcpy(big + ST_MAX_HEADER, "{}", 2);
    tap_ok(st_parse(&st, big, 8 + ST_MAX_HEADER, 8 + ST_MAX_HEADER, "f",
                    &err) == 0,
           "a header of 100000000 bytes is read");
    st_close(&st);
    free(big);
    str_free(&want);
}

/* st_parse() of a part: it does not read beyond what it is given. */
static void
test_part(void)
{
    struct str s = make_file(two, 10);
    struct err err = { 0 };
    struct st st;
    char *part = xmalloc(40);

    memcpy(part, s.s, 40);
    tap_ok(st_parse(&st, part, 40, s.n, "f", &err) < 0 &&
               says(&err, "f: header length 137, but only 40 bytes are given"),
           "a part of the header is not enough: %s", err.what);
    tap_ok(st_parse(&st, part, 7, s.n, "f", &err) < 0 &&
               says(&err, "f: has 7 bytes"),
           "nor a part of its length: %s", err.what);
    tap_ok(st_parse(&st, s.s, s.n - 10, s.n, "f", &err) == 0 &&
               st.n_tensors == 2,
           "the data need not be there");
    st_close(&st);
    free(part);
    str_free(&s);
}

/* A hole in a file costs nothing, unless somebody reads it. */
static void
test_sparse(void)
{
    static const char json[] = "{\"t\":{\"dtype\":\"U8\",\"shape\":[1099511627"
                               "776],\"data_offsets\":[0,1099511627776]}}";
    struct str s = make_file(json, 0);
    struct err err;
    struct st st;

    tap_ok(open_bytes(&st, s.s, s.n, s.n + (UINT64_C(1) << 40), &err) == 0,
           "a terabyte of data is not touched: %s", err.what);
    st_close(&st);
    str_free(&s);
}

static void
test_cuts(void)
{
    struct str s = make_file(two, 10);
    struct err err;
    struct st st;
    size_t refused = 0;
    int rc;

    for (size_t n = 0; n < s.n; n++) {
        char *copy = xmalloc(n); /* so that ASan sees a read beyond it */

        memcpy(copy, s.s, n);
        rc = st_parse(&st, copy, n, n, "f", &err);
        refused += rc < 0 && err.status == EX_DATAERR;
        free(copy);
    }
    tap_ok(refused == s.n, "a file cut anywhere is refused (%zu of %zu)",
           refused, s.n);
    open_bytes(&st, s.s, s.n, s.n - 1, &err);
    tap_ok(says(&err, ", but the file has "), "and says so: %s", err.what);
    tap_ok(st_parse(&st, s.s, s.n, s.n, "f", &err) == 0,
           "the whole file is read");
    st_close(&st);
    str_addc(&s, '\0');
    tap_ok(st_parse(&st, s.s, s.n, s.n, "f", &err) < 0,
           "a byte too many is refused");
    str_free(&s);
}

static void
test_hints(void)
{
    static const struct {
        const char *bytes;
        size_t nbytes;
        const char *what;
    } files[] = {
        { "version https://git-lfs.github.com/spec/v1\noid sha256:4d7\n", 58,
          "git-lfs pointer (run git lfs pull)" },
        { "<!DOCTYPE html><html>", 21, "HTML page" },
        { "\n  <HTML lang=en>", 17, "HTML page" },
        { "\357\273\277<!doctype HTML>", 18, "HTML page" },
        { "<?xml version=\"1.0\"?><Error>", 28, "XML" },
        { "PK\3\4\0\0\10\10\0\0", 10, "zip archive" },
        { "PK\3\4\0\0\0\0\0\0", 10, "zip archive" },
        { "GGUF\3\0\0\0\0\0", 10, "GGUF" },
        { "\37\213\10\0\0\0\0\0\0\3", 10, "gzip" },
        { "\50\265\57\375\4\0\0\0\0", 9, "zstd" },
        { "\3757zXZ\0\0\4\346", 9, "xz" },
        { "\200\2\212\12\154\374\234\106\371\40", 10, "pickle" },
        { "\200\4\225\20\0\0\0\0\0\0\0", 11, "pickle" },
        { "\223NUMPY\1\0\166\0{'descr'", 18, ".npy" },
        { "\211HDF\r\n\032\n\0\0", 10, "HDF5" },
        { "{\"metadata\": {}}", 16, "JSON without" },
        { "\0\0\0\0\0\0\0\0\0\0\0\0", 12, "nothing but zeros" },
        { "Entry not found", 15, "text file" },
    };
    static const char tar[512] = { [0] = 'x',   [257] = 'u', [258] = 's',
                                   [259] = 't', [260] = 'a', [261] = 'r' };
    struct err err;
    struct st st;

    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        open_bytes(&st, files[i].bytes, files[i].nbytes, files[i].nbytes, &err);
        tap_ok(err.status == EX_DATAERR && says(&err, files[i].what) &&
                   says(&err, ", not safetensors") && !strchr(err.what, '\n'),
               "%s is told: %s", files[i].what, err.what);
    }
    open_bytes(&st, tar, sizeof(tar), sizeof(tar), &err);
    tap_ok(says(&err, "tar archive"), "tar is told: %s", err.what);
    open_bytes(&st, "\37\213\10\0\0\0\0\0{\"t\"", 12, 12, &err);
    tap_ok(says(&err, "header length 559903, but"),
           "a header that begins with { is no gzip file: %s", err.what);
}

/* Names and places in random order: st_find and by_name against a shuffle. */
static void
test_order(size_t n)
{
    struct str json = { 0 }, file;
    struct err err = { 0 };
    struct st st = { 0 };
    size_t *order = xcalloc(n, sizeof(*order)), found = 0, sorted = 1;
    uint64_t x = 12345;

    for (size_t i = 0; i < n; i++) {
        size_t j;

        x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
        j = (size_t)(x >> 33) % (i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (size_t i = 0; i < n; i++)
        str_addf(&json,
                 "%c\"%zu.w\":{\"dtype\":\"U8\",\"shape\":[1],"
                 "\"data_offsets\":[%zu,%zu]}",
                 i ? ',' : '{', order[i], order[i], order[i] + 1);
    str_addc(&json, '}');
    file = make_file(json.s, n);
    tap_ok(st_parse(&st, file.s, file.n, file.n, "f", &err) == 0,
           "%zu tensors in random order are read: %s", n, err.what);
    for (size_t i = 0; i < st.n_tensors; i++) {
        const struct st_tensor *t = st.tensors + i;

        found += st_find(&st, t->name) == t && t->begin == order[i];
        sorted += i && strcmp(st.tensors[st.by_name[i - 1]].name,
                              st.tensors[st.by_name[i]].name) < 0;
    }
    tap_ok(found == n && sorted == n, "each of the %zu is found", n);
    st_close(&st);
    str_free(&file);
    str_free(&json);
    free(order);
}

/* As dump() in test/ref/safetensors_rules.py. */
static struct str
dump(const struct st *st)
{
    struct str s = { 0 };

    str_adds(&s, "");
    for (size_t i = 0; i < st->n_meta; i++) {
        str_adds(&s, "meta ");
        str_add(&s, st->meta[i].key, st->meta[i].key_n);
        str_adds(&s, " = ");
        str_add(&s, st->meta[i].value, st->meta[i].value_n);
        str_adds(&s, "\n");
    }
    for (size_t i = 0; i < st->n_tensors; i++) {
        const struct st_tensor *t = st->tensors + i;

        str_add(&s, t->name, t->name_n);
        str_addf(&s, " %s [", dtype_table[t->dtype].name);
        for (size_t k = 0; k < t->n_dims; k++)
            str_addf(&s, "%s%zu", k ? "," : "", t->shape[k]);
        str_addf(&s, "] %zu+%zu\n", t->begin, t->nbytes);
    }
    return s;
}

/* One record of test/ref/safetensors_mutate.py: 0 differs, 1 agrees, 2 ends. */
static int
compare_one(FILE *records, size_t *n_valid)
{
    uint8_t sizes[8];
    uint32_t n, dump_n;
    struct err err = { 0 };
    struct st st;
    struct str ours = { 0 };
    char *file, *theirs;
    int rc, same;

    if (fread(sizes, 8, 1, records) != 1)
        return 2;
    n = le32(sizes);
    dump_n = le32(sizes + 4);
    file = xmalloc(n);
    theirs = xmalloc(dump_n == UINT32_MAX ? 0 : dump_n);
    if (fread(file, 1, n, records) != n ||
        (dump_n != UINT32_MAX && fread(theirs, 1, dump_n, records) != dump_n))
        exit(1);
    rc = st_parse(&st, file, n, n, "f", &err);
    if (rc == 0) {
        ours = dump(&st);
        st_close(&st);
        ++*n_valid;
    }
    same = rc < 0 ? dump_n == UINT32_MAX
                  : ours.n == dump_n && !memcmp(ours.s, theirs, dump_n);
    if (!same) {
        struct str shown = { 0 };

        str_esc(&shown, file, n);
        printf("# differs: %s: %s\n", rc < 0 ? err.what : "valid", shown.s);
        str_free(&shown);
    }
    str_free(&ours);
    free(theirs);
    free(file);
    return same;
}

static void
test_python(void)
{
    const char *python = getenv("PYTHON");
    size_t n = 0, same = 0, valid = 0;
    struct str command = { 0 };
    FILE *records;
    int rc;

    str_addf(&command, "%s -B test/ref/safetensors_mutate.py %s 6000",
             python ? python : "python3",
             getenv("ST_SEED") ? getenv("ST_SEED") : "1");
    records = popen(command.s, "r");
    while (records && (rc = compare_one(records, &valid)) != 2) {
        n++;
        same += rc == 1;
    }
    tap_ok(records && pclose(records) == 0 && n == 6000,
           "test/ref/safetensors_mutate.py made %zu files", n);
    tap_ok(same == n && valid > 1000 && n - valid > 1000,
           "Python agrees on %zu of %zu random files (%zu of them valid)", same,
           n, valid);
    str_free(&command);
}

int
main(void)
{
    snprintf(path, sizeof(path), "/tmp/tu-st-XXXXXX");
    close(mkstemp(path));
    test_open();
    test_open_errors();
    test_lengths();
    test_part();
    test_sparse();
    test_cuts();
    test_hints();
    test_order(1);
    test_order(2);
    test_order(3);
    test_order(1000);
    test_order(20000);
    test_python();
    unlink(path);
    return tap_done();
}
