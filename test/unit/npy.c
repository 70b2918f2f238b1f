/* SPDX-License-Identifier: ISC */
/*
 * .npy headers: what numpy writes is read and written byte for byte; what is
 * odd or broken is judged by numpy.lib.format's text.
 */
#include "core/format/npy.h"

#include <stdlib.h>
#include <string.h>

#include "core/le.h"
#include "core/mem.h"
#include "test/unit/tap.h"

/* Magic, version 1 and length before 'dict'. */
static int
parse_v(struct npy *npy, int version, const char *dict, struct err *err)
{
    size_t n = strlen(dict), fixed = version == 1 ? 10 : 12;
    uint8_t *file = xcalloc(fixed + n, 1);
    int rc;

    memcpy(file, "\223NUMPY", 6);
    file[6] = (uint8_t)version;
    if (version == 1)
        put_le16(file + 8, (uint16_t)n);
    else
        put_le32(file + 8, (uint32_t)n);
    memcpy(file + fixed, dict, n);
    *err = (struct err){ 0 };
    rc = npy_parse(npy, file, fixed + n, "f", err);
    free(file);
    return rc;
}

struct rule {
    const char *dict;
    const char *bad; /* what the message says; NULL: valid */
};

#define D(descr, order, shape) \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"
#define S(shape) D("'<f4'", "False", shape)

static const struct rule rules[] = {
    { S("(2, 3)"), NULL },
    { S("(2,3)"), NULL },
    { S("(2,3,)"), NULL },
    { S("( 2 , 3 , )"), NULL },
    { S("(3,)"), NULL },
    { S("()"), NULL },
    { S("(0,)"), NULL },
    { S("(2L, 3L)"), NULL },              /* Python 2 */
    { S("(576460752303423487,)"), NULL }, /* 2^64 - 32 bits */
    { S("(0, 18446744073709551615)"), NULL },
    { "{'shape': (3,), 'fortran_order': False, 'descr': '<f4'}", NULL },
    { "{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(3,)}", NULL },
    { " { 'descr':\n'<f4',\t'fortran_order'\r:False,'shape':(3,) } \n", NULL },
    { D("'|u1'", "False", "(3,)"), NULL },
    { D("'<u1'", "False", "(3,)"), NULL }, /* one byte has no order */
    { D("'>i1'", "False", "(3,)"), NULL },
    { D("'<b1'", "False", "(3,)"), NULL },
    { "", "ends early (expected '{')" },
    { " ", "ends early (expected '{')" },
    { "[]", "byte 0 of the dict is '['" },
    { "{}", "has no descr" },
    { "{'descr': '<f4'}", "has no fortran_order" },
    { "{'descr': '<f4', 'fortran_order': False}", "has no shape" },
    { "{'fortran_order': False, 'shape': (3,)}", "has no descr" },
    { "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}",
      "key \"descr\" is repeated" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': 1}",
      "key \"x\" is unknown" },
    { "{'descr': '<f4' 'fortran_order': False, 'shape': ()}", "',' or '}'" },
    { "{'descr': '<f4',, 'fortran_order': False, 'shape': ()}", "is ','" },
    { "{'descr' '<f4', 'fortran_order': False, 'shape': ()}", "':'" },
    { "{descr: '<f4', 'fortran_order': False, 'shape': ()}", "a key in q" },
    { "{'descr\": '<f4', 'fortran_order': False, 'shape': ()}", "is unknown" },
    { "{'descr': '<f4, 'fortran_order': False, 'shape': ()}", "supported" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': ()", "ends early" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (", "ends early" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (3", "ends early" },
    { "{'descr': '<f4', 'fortran_order': Fals", "False for" },
    { "{'descr': '<f4", "ends early (expected a quote)" },
    { S("()") "x", "is 'x' (expected blanks" },
    { S("()") "{}", "blanks" },
    { S("()") "\377", "is 0xff (expected blanks" },
    { S("(3)"), "expected ',', as in (3,)" },
    { S("(,)"), "a dim" },
    { S("(3,,)"), "a dim" },
    { S("(3 4)"), "',' or ')'" },
    { S("[3, 4]"), "the start of shape" },
    { S("3"), "the start of shape" },
    { S("(-1,)"), "a dim" },
    { S("(+1,)"), "a dim" },
    { S("(1.0,)"), "',' or ')'" },
    { S("(01,)"), "a dim" },
    { S("(0x10,)"), "',' or ')'" },
    { S("(True,)"), "a dim" },
    { S("(np.int64(3), 2)"), "np.int64() is numpy 2's repr of one that was not "
                             "an int when it was saved" },
    { S("(np"), "a dim" },
    { S("(None,)"), "a dim" },
    { S("('3',)"), "a dim" },
    { S("(18446744073709551616,)"), "at most 64 bits" },
    { S("(18446744073709551615, 2)"), "product of shape overflows" },
    { S("(18446744073709551615, 2, 0)"), "product of shape overflows" },
    { S("(576460752303423488,)"), "elements of F32 overflow" }, /* 2^64 */
    { S("(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"),
      NULL },
    { S("(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"),
      "more than 32 dims" },
    { D("'<f4'", "True", "(3,)"), "Fortran order" },
    { D("'<f4'", "0", "(3,)"), "False for fortran_order" },
    { D("'<f4'", "'False'", "(3,)"), "False for fortran_order" },
    { D("'<f4'", "false", "(3,)"), "False for fortran_order" },
    { D("'>f4'", "False", "(3,)"), "\">f4\" is not supported (big-endian)" },
    { D("'|O'", "False", "(3,)"), "(Python objects)" },
    { D("'<f16'", "False", "(3,)"), "\"<f16\" is not supported" },
    { D("'<V2'", "False", "(3,)"), "is not supported" },
    { D("'f4'", "False", "(3,)"), "is not supported" },
    { D("'|f4'", "False", "(3,)"), "is not supported" },
    { D("''", "False", "(3,)"), "is not supported" },
    { D("'<\\x664'", "False", "(3,)"), "no backslash" },
    { D("[('a', '<f4')]", "False", "(3,)"), "records" },
    { D("None", "False", "(3,)"), "descr's value" },
};

static void
test_rules(void)
{
    struct npy npy;
    struct err err;

    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
        int rc = parse_v(&npy, 1, rules[i].dict, &err);

        if (!rules[i].bad)
            tap_ok(rc == 0, "rule %zu is valid: %s", i, err.what);
        else
            tap_ok(rc < 0 && err.status == EX_DATAERR &&
                       !strncmp(err.what, "f: ", 3) &&
                       strstr(err.what, rules[i].bad),
                   "rule %zu is refused with '%s': %s", i, rules[i].bad,
                   rc < 0 ? err.what : "valid");
    }
}

static void
test_versions(void)
{
    struct npy npy;
    struct err err;

    for (int v = 0; v < 5; v++) {
        int rc = parse_v(&npy, v, S("(2, 3)"), &err);

        tap_ok(v >= 1 && v <= 3
                   ? rc == 0 && npy.n_elements == 6 && npy.nbytes == 24 &&
                         npy.n_dims == 2 && npy.shape[1] == 3
                   : rc < 0 && strstr(err.what, "version"),
               "version %d is %s", v, rc < 0 ? err.what : "read");
    }
    tap_ok(npy_parse(&npy, "\223NUMPY\2\0\1\0\1\0", 12, "f", &err) < 0 &&
               strstr(err.what, "65537 bytes (expected at most 65536)"),
           "a header over the limit is refused: %s", err.what);
    tap_ok(npy_parse(&npy, "\223NUMPX\1\0\1\0\1\0", 12, "f", &err) < 0 &&
               strstr(err.what, "is not a .npy file"),
           "another magic is refused: %s", err.what);
}

static void
test_cuts(void)
{
    struct str s = { 0 };
    struct err err = { 0 };
    struct npy npy;
    uint64_t shape[2] = { 2, 3 };
    size_t refused = 0;

    npy_header(&s, DT_F32, 2, shape, &err);
    for (size_t n = 0; n < s.n; n++) {
        char *copy = xmalloc(n); /* so that ASan sees a read beyond it */

        memcpy(copy, s.s, n);
        refused += npy_parse(&npy, copy, n, "f", &err) < 0;
        refused += npy_parse(&npy, s.s, n, "f", &err) < 0;
        free(copy);
    }
    tap_ok(refused == 2 * s.n && s.n == 128,
           "a header cut anywhere is refused");
    tap_ok(npy_parse(&npy, s.s, s.n, "f", &err) == 0 &&
               npy.data_offset == s.n && npy.dtype == DT_F32,
           "the whole header is read");
    str_free(&s);
}

/* The dict, a comment, blanks to a multiple of 64, as Python reads it. */
static void
test_note(void)
{
    static const char want[] =
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  # {a b}";
    struct str s = { 0 }, long_note = { 0 };
    uint64_t shape[2] = { 2, 3 };
    struct err err = { 0 };
    struct npy npy;

    npy_header(&s, DT_F32, 2, shape, &err);
    tap_ok(npy_note(&s, "{a b}") && s.n == 128 && s.s[8] == 118 &&
               s.s[127] == '\n' && !memcmp(s.s + 10, want, sizeof(want) - 1),
           "a note is a comment after the dict");
    tap_ok(npy_parse(&npy, s.s, s.n, "f", &err) == 0 && npy.shape[1] == 3 &&
               npy.note_nbytes == 6 &&
               !memcmp(s.s + npy.note_offset, " {a b}", 6),
           "it is found again");
    s.s[76] = '\n';
    tap_ok(npy_parse(&npy, s.s, s.n, "f", &err) < 0 &&
               strstr(err.what, "blanks after the dict"),
           "a second line of it is refused: %s", err.what);
    for (int i = 0; i < 9900; i++)
        str_addc(&long_note, 'x');
    s.n = 0;
    npy_header(&s, DT_F32, 2, shape, &err);
    tap_ok(!npy_note(&s, long_note.s) && s.n == 128 &&
               npy_parse(&npy, s.s, s.n, "f", &err) == 0 &&
               npy.note_nbytes == 0,
           "one too long for numpy is not added");
    str_free(&s);
    str_free(&long_note);
}

static void
test_unsayable(void)
{
    struct str s = { 0 };
    struct err err = { 0 };
    uint64_t shape[33] = { 1 };
    size_t refused = 0;

    for (int i = 0; i < DT_COUNT; i++)
        refused += npy_header(&s, (enum dtype)i, 1, shape, &err) < 0;
    tap_ok(refused == 9, "%zu of 22 dtypes are not numpy's", refused);
    tap_ok(npy_header(&s, DT_BF16, 1, shape, &err) < 0 &&
               !strcmp(err.what, "numpy has no dtype for BF16"),
           "BF16 is one of them: %s", err.what);
    str_clear(&s);
    tap_ok(npy_header(&s, DT_F32, 33, shape, &err) < 0 && s.n == 0,
           "33 dims cannot be written: %s", err.what);
    str_free(&s);
}

/* The dims behind the four words of a record's line. */
static size_t
read_dims(const char *line, uint64_t dims[NPY_MAX_DIMS])
{
    size_t n = 0;
    char *end;

    for (int word = 0; word < 4; word++)
        line = strchr(line, ' ') ? strchr(line, ' ') + 1 : "";
    for (; n < NPY_MAX_DIMS && *line && *line != '\n'; n++, line = end)
        dims[n] = strtoull(line, &end, 10);
    return n;
}

/* One record of test/ref/npy_cases.py; 'head' is the file. */
static int
agrees(const char *line, const char *name, const char *head, size_t nbytes,
       size_t offset)
{
    uint64_t dims[NPY_MAX_DIMS];
    size_t n_dims = read_dims(line, dims);
    struct str ours = { 0 };
    struct err err = { 0 };
    struct npy npy;
    int good;

    if (npy_parse(&npy, head, nbytes, "f", &err) < 0)
        return !strcmp(name, "-") && err.status == EX_DATAERR;
    good = !strcmp(dtype_table[npy.dtype].name, name) && npy.n_dims == n_dims &&
           npy.data_offset == offset &&
           !memcmp(npy.shape, dims, n_dims * sizeof(*dims));
    if (good && head[6] == 1)
        good = npy_header(&ours, npy.dtype, n_dims, dims, &err) == 0 &&
               ours.n == offset && !memcmp(ours.s, head, offset);
    str_free(&ours);
    return good;
}

static void
test_numpy(void)
{
    const char *python = getenv("PYTHON");
    char line[512], name[16], head[2048];
    size_t nbytes, offset, n = 0, same = 0;
    struct str command = { 0 };
    FILE *f;

    str_addf(&command, "%s test/ref/npy_cases.py", python ? python : "python3");
    f = popen(command.s, "r");
    while (f && fgets(line, sizeof(line), f)) {
        int good;

        if (sscanf(line, "%15s %*d %zu %zu", name, &nbytes, &offset) != 3 ||
            nbytes > sizeof(head) || fread(head, 1, nbytes, f) != nbytes)
            break;
        good = agrees(line, name, head, nbytes, offset);
        n++;
        same += (size_t)good;
        if (!good)
            printf("# differs: %s", line);
    }
    tap_ok(f && pclose(f) == 0 && n > 500, "numpy wrote %zu arrays", n);
    tap_ok(same == n, "%zu are read, or refused, and written as numpy does",
           same);
    str_free(&command);
}

int
main(void)
{
    test_rules();
    test_versions();
    test_cuts();
    test_note();
    test_unsayable();
    test_numpy();
    return tap_done();
}
