/* SPDX-License-Identifier: ISC */
/*
 * Writing safetensors: bytes by hand from the rules of stw.h, and what
 * st_open() reads back.
 */
#include "core/format/stw.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/dtype.h"
#include "core/format/st.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "test/unit/tap.h"

static char repository[512]; /* the directory that test/ref is in */

static const uint64_t shape2[] = { 2, 3 };

/* How many entries the scratch directory has: temporaries count. */
static size_t
n_entries(void)
{
    DIR *dir = opendir(".");
    size_t n = 0;

    while (dir && readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

static int
file_is(const char *path, const void *bytes, size_t nbytes)
{
    struct str s = { 0 };
    struct err err;
    int good = file_read_all(path, 1 << 20, &s, &err) == 0 && s.n == nbytes &&
               !memcmp(s.s, bytes, nbytes);

    if (!good)
        printf("# %zu bytes: %.*s\n", s.n, (int)s.n - 8,
               s.n > 8 ? s.s + 8 : "");
    str_free(&s);
    return good;
}

static void
test_bytes(void)
{
    /* 139 bytes of JSON and 5 of padding; F32 before I8, a before b. */
    static const char expected[] =
        "\220\0\0\0\0\0\0\0"
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
        "\"a\":{\"dtype\":\"I8\",\"shape\":[2,3],\"data_offsets\":[4,10]}}"
        "     "
        "\1\2\3\4ABCDEF";
    struct stw *w = stw_new();
    struct err err = { 0 };
    int a = stw_add(w, "a", DT_I8, 2, shape2, &err);
    int b = stw_add(w, "b", DT_F32, 0, NULL, &err);

    tap_ok(a == 0 && b == 1, "handles count from 0");
    tap_ok(stw_open(w, "bytes", 0, &err) == 0, "stw_open: %s", err.what);
    tap_ok(stw_write(w, a, "DEF", 3, 3, &err) == 0 &&
               stw_write(w, b, "\1\2\3\4", 4, 0, &err) == 0 &&
               stw_write(w, a, "ABC", 3, 0, &err) == 0,
           "tensors are written in any order");
    tap_ok(access("bytes", F_OK) < 0, "nothing is visible before the commit");
    tap_ok(stw_commit(w, &err) == 0, "stw_commit: %s", err.what);
    stw_free(w);
    tap_ok(file_is("bytes", expected, sizeof(expected) - 1),
           "the file has the bytes worked out by hand");
    tap_ok(n_entries() == 1, "no temporary is left");
}

static void
test_empty(void)
{
    static const char expected[] =
        "\50\0\0\0\0\0\0\0{\"__metadata__\":{\"A\":\"3\",\"a\":\"\303\251\"}}  "
        "     ";
    struct stw *w = stw_new();
    struct err err = { 0 };

    stw_meta(w, "a", "\303\251");
    stw_meta(w, "A", "2");
    stw_meta(w, "A", "3");
    tap_ok(stw_open(w, "empty", 0, &err) == 0 && stw_commit(w, &err) == 0 &&
               file_is("empty", expected, 48),
           "no tensors; metadata sorted by bytes, the last value counts: %s",
           err.what);
    stw_free(w);
}

/* Does test/ref/safetensors_rules.py accept the file, too? */
static int
python_accepts(const char *path)
{
    const char *python = getenv("PYTHON");
    struct str command = { 0 };
    int rc;

    str_addf(&command,
             "PYTHONPATH='%s/test/ref' %s -B -c \"from safetensors_rules "
             "import check; check(open('%s', 'rb').read())\"",
             repository, python ? python : "python3", path);
    rc = system(command.s);
    str_free(&command);
    return rc == 0;
}

/* One tensor of each type, added backwards, 24 elements. */
static void
test_dtypes(void)
{
    static const uint64_t shape[] = { 2, 3, 4 };
    struct stw *w = stw_new();
    struct err err = { 0 };
    struct st st = { 0 };
    size_t good = 0, aligned = 0;
    uint8_t data[192];

    for (int i = 0; i < DT_COUNT; i++)
        stw_add(w, dtype_table[i].name, (enum dtype)i, 3, shape, &err);
    stw_open(w, "dtypes", 0, &err);
    for (int i = 0; i < DT_COUNT; i++) {
        memset(data, i + 1, sizeof(data));
        stw_write(w, i, data, dtype_table[i].bits * 3, 0, &err);
    }
    tap_ok(stw_commit(w, &err) == 0 && st_open(&st, "dtypes", &err) == 0 &&
               st_map(&st, &err) == 0,
           "a file of all types is written and read: %s", err.what);
    for (size_t i = 0; i < st.n_tensors; i++) {
        const struct st_tensor *t = st.tensors + i;
        const uint8_t *p = st_data(&st, t);
        size_t align = dtype_size(t->dtype);

        good += t->dtype == (enum dtype)(DT_COUNT - 1 - (int)i) &&
                t->n_elements == 24 && p[0] == t->dtype + 1 &&
                p[t->nbytes - 1] == t->dtype + 1;
        aligned += (st.data_offset + t->begin) % (align ? align : 1) == 0;
    }
    tap_ok(python_accepts("dtypes"), "Python's rules accept it");
    tap_ok(good == 22, "types come in descending order (%zu)", good);
    tap_ok(aligned == 22, "each tensor is aligned in the file (%zu)", aligned);
    st_close(&st);
    stw_free(w);
}

static void
test_names(void)
{
    static const char *const names[] = {
        "",           " ",
        "\"",         "\\",
        "/",          "\n",
        "\001",       "\177",
        "a.b",        "dtype",
        "\303\251",   "\360\237\230\200",
        "__metadata", "model.layers.0.weight",
    };
    static const uint64_t one = 1;
    size_t n = sizeof(names) / sizeof(*names), found = 0;
    struct stw *w = stw_new();
    struct err err = { 0 };
    struct st st = { 0 };
    int sorted = 1;

    for (size_t i = n; i-- > 0;)
        stw_add(w, names[i], DT_U8, 1, &one, &err);
    stw_open(w, "names", 0, &err);
    for (size_t i = 0; i < n; i++)
        stw_write(w, (int)i, "x", 1, 0, &err);
    tap_ok(stw_commit(w, &err) == 0 && st_open(&st, "names", &err) == 0,
           "odd names are written and read: %s", err.what);
    for (size_t i = 0; i < n; i++)
        found += st_find(&st, names[i]) != NULL;
    for (size_t i = 1; i < st.n_tensors; i++)
        sorted &= strcmp(st.tensors[i - 1].name, st.tensors[i].name) < 0;
    tap_ok(python_accepts("names"), "Python's rules accept them");
    tap_ok(found == n && st.n_tensors == n, "each name comes back");
    tap_ok(sorted, "one type's tensors are sorted by name");
    st_close(&st);
    stw_free(w);
}

static void
refused(const char *name, enum dtype dtype, size_t n_dims,
        const uint64_t *shape, const char *what)
{
    struct stw *w = stw_new();
    struct err err = { 0 };

    stw_add(w, "there", DT_U8, 2, shape2, &err);
    tap_ok(stw_add(w, name, dtype, n_dims, shape, &err) < 0 &&
               err.status == EX_DATAERR && strstr(err.what, what),
           "refused: %s", err.what);
    stw_free(w);
}

static void
test_refused(void)
{
    static const uint64_t huge[] = { UINT64_MAX, 2, 0 };
    static const uint64_t odd[] = { 3 };
    static const uint64_t bits61[] = { UINT64_C(1) << 61 };
    static const uint64_t eib[] = { UINT64_C(1) << 60 };
    struct stw *w = stw_new();
    struct err err = { 0 };

    refused("there", DT_F32, 0, NULL, "\"there\": appears twice");
    refused("\377", DT_F32, 0, NULL, "is not UTF-8");
    refused("a\300\200", DT_F32, 0, NULL, "is not UTF-8");
    refused("\355\240\200", DT_F32, 0, NULL, "is not UTF-8");
    refused("__metadata__", DT_F32, 0, NULL, "reserved");
    refused("x", DT_U8, 3, huge, "overflows");
    refused("x", DT_U8, 1, bits61, "overflows");
    refused("x", DT_F4, 1, odd, "not a whole number of bytes");
    stw_meta(w, "k", "\377");
    tap_ok(stw_open(w, "meta", 0, &err) < 0 && err.status == EX_DATAERR &&
               strstr(err.what, "meta: metadata \"k\" is not UTF-8"),
           "metadata that is not UTF-8: %s", err.what);
    tap_ok(stw_open(w, "-", 0, &err) < 0 && err.status == TU_USAGE,
           "standard output: %s", err.what);
    stw_free(w);
    w = stw_new();
    for (char name[] = "a"; *name < 'i'; ++*name)
        stw_add(w, name, DT_U8, 1, eib, &err);
    tap_ok(stw_open(w, "huge", 0, &err) < 0 && err.status == EX_DATAERR &&
               strstr(err.what, "9223372036854775808 bytes of data"),
           "eight tensors of 2^60 bytes: %s", err.what);
    stw_free(w);
    stw_free(NULL);
}

/* Writes each piece "BEGIN END" of a tensor of 6 bytes, then commits. */
static int
commit_pieces(const size_t (*pieces)[2], size_t n, struct err *err)
{
    struct stw *w = stw_new();
    int rc;

    unlink("pieces");
    *err = (struct err){ 0 };
    stw_add(w, "t", DT_U8, 2, shape2, err);
    stw_open(w, "pieces", 0, err);
    for (size_t i = 0; i < n; i++)
        stw_write(w, 0, &"abcdef"[pieces[i][0]], pieces[i][1] - pieces[i][0],
                  pieces[i][0], err);
    rc = stw_commit(w, err);
    stw_free(w);
    return rc;
}

static void
test_pieces(void)
{
    static const size_t whole[][2] = { { 0, 6 } };
    static const size_t backwards[][2] = { { 4, 6 }, { 2, 4 }, { 0, 2 } };
    static const size_t last[][2] = { { 0, 5 } };
    static const size_t first[][2] = { { 1, 6 } };
    static const size_t middle[][2] = { { 0, 3 }, { 4, 6 }, { 3, 3 } };
    static const size_t apart[][2] = { { 0, 1 }, { 4, 5 }, { 2, 3 },
                                       { 5, 6 }, { 1, 2 }, { 3, 4 } };
    struct err err;
    size_t before = n_entries();

    tap_ok(commit_pieces(last, 1, &err) < 0 && err.status == EX_SOFTWARE,
           "the last byte is missed: %s", err.what);
    tap_ok(commit_pieces(first, 1, &err) < 0, "the first byte is missed");
    tap_ok(commit_pieces(middle, 3, &err) < 0, "a byte between is missed");
    tap_ok(commit_pieces(NULL, 0, &err) < 0, "nothing written");
    tap_ok(n_entries() == before, "and none of them leaves a file");
    tap_ok(commit_pieces(whole, 1, &err) == 0, "in one piece");
    tap_ok(commit_pieces(backwards, 3, &err) == 0, "backwards");
    tap_ok(commit_pieces(apart, 5, &err) < 0, "a byte of six apart is missed");
    tap_ok(commit_pieces(apart, 6, &err) == 0, "six pieces apart");
}

static void
test_out(void)
{
    struct stw *w = stw_new();
    struct err err = { 0 };
    size_t before;

    stw_add(w, "t", DT_U8, 2, shape2, &err);
    tap_ok(stw_open(w, "empty", 0, &err) < 0 && err.status == EX_CANTCREAT,
           "an existing file is not replaced: %s", err.what);
    before = n_entries();
    tap_ok(stw_open(w, "empty", OUT_FORCE, &err) == 0,
           "unless OUT_FORCE says so");
    tap_ok(stw_write(w, 0, "abcdefg", 7, 0, &err) < 0 &&
               err.status == EX_SOFTWARE,
           "a piece longer than its tensor is refused: %s", err.what);
    tap_ok(stw_write(w, 0, "a", 1, 6, &err) < 0, "or beyond it");
    stw_free(w);
    tap_ok(n_entries() == before, "an abandoned file leaves no temporary");
}

/* A digest of what is written, say, is known at the end alone. */
static void
test_late(void)
{
    static const char expected[] =
        "\130\0\0\0\0\0\0\0{\"__metadata__\":{\"k\":\"late\"},"
        "\"t\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,6]}}"
        "     abcdef";
    struct stw *w = stw_new();
    struct err err = { 0 };

    stw_meta(w, "k", "....");
    stw_add(w, "t", DT_U8, 2, shape2, &err);
    tap_ok(stw_open(w, "late", 0, &err) == 0 &&
               stw_write(w, 0, "abcdef", 6, 0, &err) == 0 &&
               stw_late(w, "k", "late", &err) == 0 &&
               stw_commit(w, &err) == 0 &&
               file_is("late", expected, sizeof(expected) - 1),
           "metadata can come late, if its size is known: %s", err.what);
    stw_free(w);
    w = stw_new();
    stw_meta(w, "k", "....");
    tap_ok(stw_open(w, "later", 0, &err) == 0 &&
               stw_late(w, "k", "much too late", &err) < 0 &&
               err.status == EX_SOFTWARE,
           "another size is an error: %s", err.what);
    stw_free(w);
    tap_ok(access("later", F_OK) < 0, "which leaves nothing");
}

/* More than it writes at once, on any machine as a little-endian one has it. */
static void
test_numbers(void)
{
    enum { N = 40000 };
    static const uint64_t n = N;
    double *wide = xcalloc(N, sizeof(*wide));
    float *narrow = xcalloc(N, sizeof(*narrow));
    struct stw *w = stw_new();
    struct err err = { 0 };
    struct st st = { 0 };
    size_t n_good = 0;

    for (size_t i = 0; i < N; i++)
        narrow[i] = (float)(wide[i] = 0.5 * (double)i);
    stw_add(w, "wide", DT_F64, 1, &n, &err);
    stw_add(w, "narrow", DT_F32, 1, &n, &err);
    if (tap_ok(stw_open(w, "numbers", 0, &err) == 0 &&
                   stw_write_numbers(w, 0, wide, N, 8, &err) == 0 &&
                   stw_write_numbers(w, 1, narrow, N, 4, &err) == 0 &&
                   stw_commit(w, &err) == 0 &&
                   st_open(&st, "numbers", &err) == 0 && st_map(&st, &err) == 0,
               "numbers of 8 and 4 bytes are written: %s", err.what)) {
        const char *d = st_data(&st, st_find(&st, "wide"));
        const char *f = st_data(&st, st_find(&st, "narrow"));

        for (size_t i = 0; i < N; i++)
            n_good += le_f64(d + 8 * i) == wide[i] &&
                      f32_from_bits(le32(f + 4 * i)) == narrow[i];
    }
    tap_ok(n_good == N, "little-endian, all %zu of %d", n_good, N);
    st_close(&st);
    stw_free(w);
    free(narrow);
    free(wide);
}

int
main(void)
{
    char root[] = "/tmp/tu-stw-XXXXXX", command[64];

    if (!getcwd(repository, sizeof(repository)) || !mkdtemp(root) ||
        chdir(root) < 0)
        return 1;
    test_bytes();
    test_empty();
    test_dtypes();
    test_names();
    test_refused();
    test_pieces();
    test_out();
    test_late();
    test_numbers();
    snprintf(command, sizeof(command), "rm -rf %s", root);
    if (chdir("/") < 0 || system(command) != 0)
        return 1;
    return tap_done();
}
