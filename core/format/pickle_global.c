/* SPDX-License-Identifier: ISC */
/* Which classes and functions a pickle may name. */
#include "core/format/pickle.h"

#include <string.h>

/*
 * What torch.load(weights_only=True) accepts (torch 2.9,
 * torch/_weights_only_unpickler.py), and other names that are found in
 * checkpoints and hold only data: containers, numpy's numbers and arrays,
 * arguments, paths, dates.  Words: each name of a row is allowed in each module
 * of it.
 */
/* clang-format off */
static const struct {
    const char *modules, *names;
} listed[] = {
    { "torch torch.cuda",
      "BFloat16Storage BoolStorage ByteStorage CharStorage "
      "ComplexDoubleStorage ComplexFloatStorage DoubleStorage FloatStorage "
      "HalfStorage IntStorage LongStorage QInt32Storage QInt8Storage "
      "QUInt2x4Storage QUInt4x2Storage QUInt8Storage ShortStorage "
      "UntypedStorage _UntypedStorage" },
    { "torch",
      "Size Tensor device bfloat16 bits16 bits1x8 bits2x4 bits4x2 bits8 bool "
      "cdouble cfloat complex128 complex32 complex64 double float float16 "
      "float32 float4_e2m1fn_x2 float64 float8_e4m3fn float8_e4m3fnuz "
      "float8_e5m2 float8_e5m2fnuz float8_e8m0fnu half int int1 int16 int2 "
      "int3 int32 int4 int5 int6 int64 int7 int8 long per_channel_affine "
      "per_channel_affine_float_qparams per_channel_symmetric "
      "per_tensor_affine per_tensor_symmetric qint32 qint8 quint2x4 quint4x2 "
      "quint8 short uint1 uint16 uint2 uint3 uint32 uint4 uint5 uint6 uint64 "
      "uint7 uint8" },
    { "torch torch.cuda torch.sparse torch.cuda.sparse",
      "BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor "
      "FloatTensor HalfTensor IntTensor LongTensor ShortTensor" },
    { "torch._utils",
      "_rebuild_device_tensor_from_cpu_tensor "
      "_rebuild_device_tensor_from_numpy _rebuild_meta_tensor_no_storage "
      "_rebuild_parameter _rebuild_parameter_with_state _rebuild_qtensor "
      "_rebuild_sparse_tensor _rebuild_tensor _rebuild_tensor_v2 "
      "_rebuild_tensor_v3 _rebuild_wrapper_subclass" },
    { "torch._tensor", "_rebuild_from_type _rebuild_from_type_v2" },
    { "torch.nn.parameter", "Parameter" },
    { "torch.serialization", "_get_layout" },
    { "torch.storage",
      "TypedStorage UntypedStorage _TypedStorage _UntypedStorage" },
    { "collections", "Counter OrderedDict defaultdict deque" },
    { "builtins __builtin__",
      "ArithmeticError AssertionError AttributeError BaseException Ellipsis "
      "EOFError Exception False ImportError IndexError KeyError "
      "KeyboardInterrupt LookupError MemoryError NameError None "
      "NotImplemented NotImplementedError OSError OverflowError RuntimeError "
      "StopIteration SystemError True TypeError UnicodeError ValueError "
      "ZeroDivisionError bool bytearray bytes complex dict enumerate float "
      "frozenset int list long object range reversed set slice str tuple "
      "unicode xrange zip" },
    { "numpy",
      "bool bool_ bytes_ complex128 complex64 datetime64 dtype float16 "
      "float32 float64 int16 int32 int64 int8 ndarray object_ str_ "
      "timedelta64 uint16 uint32 uint64 uint8 void" },
    { "numpy.core.multiarray numpy._core.multiarray", "_reconstruct scalar" },
    { "numpy.core.numeric numpy._core.numeric", "_frombuffer" },
    { "_codecs", "encode" }, /* of bytes, in protocol 2 */
    { "copyreg copy_reg", "_reconstructor" },
    { "argparse", "Namespace" },
    { "types", "SimpleNamespace" },
    { "pathlib pathlib._local",
      "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath" },
    { "datetime", "date datetime time timedelta timezone" },
};

/* No checkpoint needs these, and --allow does not allow them; with all their
 * submodules. */
static const char *const modules[] = {
    "_operator", "_osx_support", "_pickle", "_posixsubprocess", "_winapi",
    "asyncio", "bdb", "cProfile", "cffi", "cloudpickle", "code", "codeop",
    "commands", "ctypes", "dill", "distutils", "doctest", "ftplib", "http",
    "httplib", "idlelib", "imp", "importlib", "inspect", "joblib", "lib2to3",
    "linecache", "marshal", "multiprocessing", "nt", "ntpath", "operator", "os",
    "pdb", "pickle", "pip", "pkgutil", "platform", "popen2", "posix",
    "posixpath", "profile", "pty", "pydoc", "requests", "runpy", "setuptools",
    "shelve", "shutil", "signal", "smtplib", "socket", "sqlite3", "subprocess",
    "sys", "tempfile", "telnetlib", "threading", "timeit", "trace", "urllib",
    "urllib2", "webbrowser", "xmlrpc", "zipimport",
};

/* These also as a part of a dotted name: six.moves.builtins, or sequence and
 * os.system. */
static const char *const parts[] = {
    "__builtin__", "__builtins__", "__globals__", "__import__", "__loader__",
    "__subclasses__", "builtins", "nt", "os", "posix", "subprocess", "sys",
};

/* clang-format on */

/* Is one of the parts between dots, or with 'all' false the first of them, in
 * the list? */
static bool
has_part(const char *const *list, size_t n_list, const char *s, bool all)
{
    do {
        size_t n = strcspn(s, ".");

        for (size_t i = 0; i < n_list; i++)
            if (strlen(list[i]) == n && !memcmp(list[i], s, n))
                return true;
        s += n + (s[n] == '.');
    } while (all && *s);
    return false;
}

#define N(list) (sizeof(list) / sizeof(*(list)))

/* Is 's' one of the words? */
static bool
is_word(const char *words, const char *s)
{
    size_t s_n = strlen(s), n;

    for (; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        if (n == s_n && !memcmp(words, s, n))
            return true;
    }
    return false;
}

bool
pickle_listed(const char *module, const char *name)
{
    for (size_t i = 0; i < N(listed); i++)
        if (is_word(listed[i].modules, module) &&
            is_word(listed[i].names, name))
            return true;
    return false;
}

bool
pickle_dangerous(const char *module, const char *name)
{
    return !pickle_listed(module, name) &&
           (has_part(modules, N(modules), module, false) ||
            has_part(parts, N(parts), module, true) ||
            has_part(parts, N(parts), name, true));
}

bool
pickle_is(const struct pth_value *v, const char *modules_of, const char *names)
{
    return v->kind == PTH_GLOBAL && is_word(modules_of, v->u.global->module) &&
           is_word(names, v->u.global->name);
}
