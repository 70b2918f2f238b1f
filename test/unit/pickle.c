/* SPDX-License-Identifier: ISC */
/*
 * core/format/pickle against Python's pickle.loads() on random values of
 * each protocol and on every opcode: test/ref/pickle_cases.py.  What torch's
 * globals mean is tested with whole checkpoints, in pth.c.
 */
#include "core/format/pickle.h"

#include <unistd.h>

#include "core/le.h"
#include "core/map.h"
#include "test/unit/pth-tree.h"
#include "test/unit/ref.h"
#include "test/unit/tap.h"

/* The tree of a pickle, or the message. */
static int
describe(struct str *out, const void *data, size_t nbytes,
         const char *const *allowed)
{
    struct err err = { 0 };
    struct pickle p = { .path = "f",
                        .where = "",
                        .data = data,
                        .size = nbytes,
                        .err = &err,
                        .allowed = allowed };
    size_t end = 0;
    struct pth_value *v = pickle_run(&p, 0, &end);
    int rc = v ? pickle_close(&p, v) : -1;

    str_clear(out);
    if (rc < 0)
        str_adds(out, err.what);
    else
        tree_describe(out, NULL, v, "");
    pickle_free(&p);
    return rc;
}

/* How many prefixes of a pickle are accepted? */
static size_t
n_cuts_taken(const struct str *data)
{
    struct str got = { 0 };
    size_t n_taken = 0;

    for (size_t n = 0; n < data->n; n++) {
        char *copy = xmalloc(n); /* so that ASan sees a read beyond it */

        memcpy(copy, data->s, n);
        n_taken += describe(&got, copy, n, NULL) == 0;
        free(copy);
    }
    str_free(&got);
    return n_taken;
}

static void
test_case(const char *dir, const char *name)
{
    struct str data = { 0 }, want = { 0 }, got = { 0 };
    bool good;

    ref_read(dir, name, "", &data);
    ref_read(dir, name, ".want", &want);
    describe(&got, data.s, data.n, NULL);
    good = got.n == want.n && got.n > 0 && !memcmp(got.s, want.s, got.n);
    tap_ok(good, "pickle: %s is what Python reads", name);
    if (!good)
        tree_difference(&got, &want);
    if (data.n < 2000 && data.n >= 2 && data.s[data.n - 2] != '.')
        tap_ok(n_cuts_taken(&data) == 0,
               "pickle: %s cut at any of %zu bytes is refused", name, data.n);
    str_free(&data);
    str_free(&want);
    str_free(&got);
}

enum { LISTED, OTHER, DANGEROUS };

static const struct {
    const char *module, *name;
    int kind;
} globals[] = {
    { "os", "system", DANGEROUS },
    { "posix", "system", DANGEROUS },
    { "nt", "system", DANGEROUS },
    { "os.path", "join", DANGEROUS },
    { "sys", "modules", DANGEROUS },
    { "subprocess", "Popen", DANGEROUS },
    { "builtins", "eval", DANGEROUS },
    { "builtins", "exec", DANGEROUS },
    { "builtins", "compile", DANGEROUS },
    { "builtins", "getattr", DANGEROUS },
    { "builtins", "__import__", DANGEROUS },
    { "builtins", "open", DANGEROUS },
    { "builtins", "no such thing", DANGEROUS },
    { "builtins", "", DANGEROUS },
    { "__builtin__", "apply", DANGEROUS },
    { "__builtin__", "execfile", DANGEROUS },
    { "__builtins__", "eval", DANGEROUS },
    { "six.moves.builtins", "eval", DANGEROUS },
    { "torch", "os.system", DANGEROUS },
    { "torch.serialization", "os", DANGEROUS },
    { "a", "b.sys.modules", DANGEROUS },
    { "runpy", "run_path", DANGEROUS },
    { "importlib", "import_module", DANGEROUS },
    { "ctypes", "CDLL", DANGEROUS },
    { "shutil", "rmtree", DANGEROUS },
    { "socket", "socket", DANGEROUS },
    { "operator", "attrgetter", DANGEROUS },
    { "pickle", "loads", DANGEROUS },
    { "types", "CodeType", OTHER },
    { "io", "open", OTHER },
    { "torch", "load", OTHER },
    { "numpy", "load", OTHER },
    { "builtins", "set", LISTED },
    { "builtins", "complex", LISTED },
    { "__builtin__", "object", LISTED },
    { "__builtin__", "unicode", LISTED },
    { "torch", "FloatStorage", LISTED },
    { "torch._utils", "_rebuild_tensor_v2", LISTED },
    { "collections", "OrderedDict", LISTED },
    { "argparse", "Namespace", LISTED },
    { "numpy.core.multiarray", "scalar", LISTED },
    { "numpy._core.multiarray", "_reconstruct", LISTED },
    { "_codecs", "encode", LISTED },
    { "copy_reg", "_reconstructor", LISTED },
    { "pathlib", "PosixPath", LISTED },
    { "types", "SimpleNamespace", LISTED },
    { "fairseq.data.types", "io", OTHER },
    { "osmium", "system", OTHER },
    { "mine.os2", "systems", OTHER },
    { "functools", "partial", OTHER },
    { "uuid", "_get_command_stdout", OTHER },
    { "torch.storage", "_load_from_bytes", OTHER },
    { "pandas", "read_pickle", OTHER },
    { "torch", "storage.UntypedStorage", OTHER },
    { "torch", "", OTHER },
    { "torch", "Size device", OTHER },
    { "torch torch.cuda", "FloatStorage", OTHER },
    { "collections.OrderedDict", "", OTHER },
    { "", "", OTHER },
    { "torch.cuda", "HalfStorage", LISTED },
    { "pathlib._local", "PosixPath", LISTED },
    { "collections", "Counter", LISTED },
    { "numpy", "ndarray", LISTED },
    { "datetime", "datetime", LISTED },
};

/* What torch 2.9 accepts with weights_only, by its own list, for machines
 * without CUDA. */
static const char *const weights_only[] = {
    "collections.OrderedDict",
    "collections.Counter",
    "torch.nn.parameter.Parameter",
    "torch.serialization._get_layout",
    "torch.Size",
    "torch.Tensor",
    "torch.device",
    "_codecs.encode",
    "builtins.bytearray",
    "builtins.set",
    "builtins.complex",
    "torch.float64",
    "torch.float32",
    "torch.float16",
    "torch.int64",
    "torch.int32",
    "torch.int16",
    "torch.int8",
    "torch.uint8",
    "torch.bool",
    "torch.bfloat16",
    "torch.complex128",
    "torch.complex64",
    "torch.quint8",
    "torch.qint8",
    "torch.qint32",
    "torch.quint4x2",
    "torch.quint2x4",
    "torch.float8_e5m2",
    "torch.float8_e4m3fn",
    "torch.float8_e5m2fnuz",
    "torch.float8_e4m3fnuz",
    "torch.float8_e8m0fnu",
    "torch.float4_e2m1fn_x2",
    "torch.bits8",
    "torch.bits16",
    "torch.bits1x8",
    "torch.bits2x4",
    "torch.bits4x2",
    "torch.complex32",
    "torch.uint16",
    "torch.uint32",
    "torch.uint64",
    "torch.uint1",
    "torch.uint7",
    "torch.int1",
    "torch.int7",
    "torch.FloatTensor",
    "torch.sparse.LongTensor",
    "torch.DoubleStorage",
    "torch.FloatStorage",
    "torch.LongStorage",
    "torch.IntStorage",
    "torch.ShortStorage",
    "torch.CharStorage",
    "torch.ByteStorage",
    "torch.HalfStorage",
    "torch.BoolStorage",
    "torch.BFloat16Storage",
    "torch.ComplexFloatStorage",
    "torch.ComplexDoubleStorage",
    "torch.QUInt8Storage",
    "torch.QInt8Storage",
    "torch.QInt32Storage",
    "torch.QUInt4x2Storage",
    "torch.QUInt2x4Storage",
    "torch.storage.TypedStorage",
    "torch.storage.UntypedStorage",
    "torch.per_tensor_affine",
    "torch.per_tensor_symmetric",
    "torch.per_channel_affine",
    "torch.per_channel_symmetric",
    "torch.per_channel_affine_float_qparams",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_qtensor",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_meta_tensor_no_storage",
    "torch._utils._rebuild_wrapper_subclass",
    "torch._utils._rebuild_device_tensor_from_numpy",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
    "torch._tensor._rebuild_from_type_v2",
};

static void
test_globals(void)
{
    static const char *const kinds[] = { "listed", "not listed", "dangerous" };
    size_t n_known = 0, n = sizeof(weights_only) / sizeof(*weights_only);

    for (size_t i = 0; i < sizeof(globals) / sizeof(*globals); i++) {
        const char *module = globals[i].module, *name = globals[i].name;
        int kind = pickle_dangerous(module, name) ? DANGEROUS
                   : pickle_listed(module, name)  ? LISTED
                                                  : OTHER;

        tap_ok(kind == globals[i].kind, "pickle: %s.%s is %s", module, name,
               kinds[globals[i].kind]);
    }
    for (size_t i = 0; i < n; i++) {
        const char *dot = strrchr(weights_only[i], '.');
        char module[100] = "";

        memcpy(module, weights_only[i], (size_t)(dot - weights_only[i]));
        n_known += pickle_listed(module, dot + 1);
    }
    tap_ok(n_known == n, "pickle: all that weights_only accepts is listed");
}

/* A class as a value, an object of it, and an object whose class is named as
 * protocol 4 does. */
static void
test_allowed(void)
{
    static const char *const allowed[] = { "a.b.Config", "os.system", NULL };
    static const struct {
        const char *pickle, *tree;
    } cases[] = {
        { "\x80\2ca.b\nConfig\n.", ". OPAQUE a.b.Config\n" },
        { "\x80\2ca.b\nConfig\n)\x81}b.", ". OPAQUE a.b.Config\n" },
        { "\x80\4\x8c\3a.b\x8c\6Config\x93(K\1K\2tR.",
          ". OPAQUE a.b.Config\n" },
        { "\x80\2ca\nb.Config\n.", ". OPAQUE a.b.Config\n" },
        { "\x80\2ca.b\nConfigs\n.",
          "f: byte 2: global a.b.Configs is not one that weights need "
          "(--allow a.b.Configs ignores it)" },
        { "\x80\2ca.bb\nConfig\n.",
          "f: byte 2: global a.bb.Config is not one that weights need "
          "(--allow a.bb.Config ignores it)" },
        { "\x80\2cos\nsystem\n.", "f: byte 2: global os.system could run "
                                  "code: no checkpoint needs it" },
    };
    struct str got = { 0 };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *s = cases[i].pickle;

        describe(&got, s, strlen(s), allowed);
        tap_ok(!strcmp(got.s, cases[i].tree), "pickle: allowed %zu: %.*s", i,
               (int)strcspn(got.s, "\n"), got.s);
    }
    str_free(&got);
}

/* 64-bit lengths near the end of the address space. */
static void
test_lengths(void)
{
    static const uint8_t ops[] = { 0x8d, 0x8e, 0x96, 0x95 };
    struct str got = { 0 };
    size_t n_refused = 0;

    for (size_t i = 0; i < sizeof(ops); i++)
        for (int shift = 0; shift < 64; shift++) {
            uint8_t data[14] = { 0x80, 5, ops[i] };
            uint64_t n = UINT64_MAX << shift;

            put_le64(data + 3, n);
            n_refused += describe(&got, data, sizeof(data), NULL) < 0;
        }
    tap_ok(n_refused == 4 * 64, "pickle: lengths of 2^64 - 2^n are refused");
    str_free(&got);
}

int
main(void)
{
    char *dir = ref_dir();

    test_globals();
    test_allowed();
    test_lengths();
    if (dir) {
        ref_each(ref_kept, "pickle_cases.py", dir, "numpy", test_case);
        ref_remove(dir);
    }
    return tap_done();
}
