/*
 * cmd/kvc-convert/pickle against Python's pickle.loads() on random values of
 * each protocol and on every opcode: test/ref/pickle_cases.py.  What torch's
 * globals mean is tested with whole checkpoints, in kvc-convert-pth.c.
 */
#include "cmd/kvc-convert/pickle.h"

#include <unistd.h>

#include "cmd/kvc-convert/rebuild.h"
#include "core/le.h"
#include "core/map.h"
#include "test/unit/kvc-convert-tree.h"
#include "test/unit/ref.h"
#include "test/unit/tap.h"

/* The tree of a pickle, or the message. */
static int
describe(struct str *out, const void *data, size_t nbytes)
{
    struct err err = { 0 };
    struct pickle p = { .path = "f",
                        .where = "",
                        .data = data,
                        .size = nbytes,
                        .err = &err,
                        .call = rebuild_call,
                        .persistent = rebuild_persistent };
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
        n_taken += describe(&got, copy, n) == 0;
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
    describe(&got, data.s, data.n);
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

static const struct {
    const char *module, *name;
    bool dangerous;
} globals[] = {
    { "os", "system", true },
    { "posix", "system", true },
    { "nt", "system", true },
    { "os.path", "join", true },
    { "sys", "modules", true },
    { "subprocess", "Popen", true },
    { "builtins", "eval", true },
    { "builtins", "exec", true },
    { "builtins", "compile", true },
    { "builtins", "getattr", true },
    { "builtins", "__import__", true },
    { "builtins", "open", true },
    { "builtins", "no such thing", true },
    { "builtins", "", true },
    { "__builtin__", "apply", true },
    { "__builtin__", "execfile", true },
    { "__builtins__", "eval", true },
    { "six.moves.builtins", "eval", true },
    { "torch", "os.system", true },
    { "torch.serialization", "os", true },
    { "a", "b.sys.modules", true },
    { "runpy", "run_path", true },
    { "importlib", "import_module", true },
    { "ctypes", "CDLL", true },
    { "shutil", "rmtree", true },
    { "socket", "socket", true },
    { "operator", "attrgetter", true },
    { "pickle", "loads", true },
    { "types", "CodeType", true },
    { "io", "open", true },
    { "torch", "load", true },
    { "numpy", "load", true },
    { "builtins", "set", false },
    { "builtins", "complex", false },
    { "__builtin__", "object", false },
    { "__builtin__", "unicode", false },
    { "torch", "FloatStorage", false },
    { "torch._utils", "_rebuild_tensor_v2", false },
    { "collections", "OrderedDict", false },
    { "argparse", "Namespace", false },
    { "numpy.core.multiarray", "scalar", false },
    { "numpy._core.multiarray", "_reconstruct", false },
    { "_codecs", "encode", false },
    { "copy_reg", "_reconstructor", false },
    { "pathlib", "PosixPath", false },
    { "types", "SimpleNamespace", false },
    { "fairseq.data.types", "io", false },
    { "osmium", "system", false },
    { "mine.os2", "systems", false },
    { "functools", "partial", false },
};

static void
test_globals(void)
{
    for (size_t i = 0; i < sizeof(globals) / sizeof(*globals); i++)
        tap_ok(pickle_dangerous(globals[i].module, globals[i].name) ==
                   globals[i].dangerous,
               "pickle: %s.%s is %s", globals[i].module, globals[i].name,
               globals[i].dangerous ? "refused" : "no danger");
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
            n_refused += describe(&got, data, sizeof(data)) < 0;
        }
    tap_ok(n_refused == 4 * 64, "pickle: lengths of 2^64 - 2^n are refused");
    str_free(&got);
}

int
main(void)
{
    char *dir = ref_folder();

    test_globals();
    test_lengths();
    if (dir) {
        ref_each("pickle_cases.py", dir, "numpy", test_case);
        ref_remove(dir);
    }
    return tap_done();
}
