/*
 * Which globals are refused.  None is ever looked up or called here; but a
 * file that names one of these was not made by training, and whoever loads it
 * with Python next should know.
 */
#include <string.h>

#include "cmd/kvc-convert/pickle.h"

/* With all their submodules. */
/* clang-format off */
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

/* The types among the builtins: what else is there can run code. */
static const char *const types[] = {
    "ArithmeticError", "AssertionError", "AttributeError", "BaseException",
    "Ellipsis", "EOFError", "Exception", "False", "ImportError", "IndexError",
    "KeyError", "KeyboardInterrupt", "LookupError", "MemoryError", "NameError",
    "None", "NotImplemented", "NotImplementedError", "OSError", "OverflowError",
    "RuntimeError", "StopIteration", "SystemError", "True", "TypeError",
    "UnicodeError", "ValueError", "ZeroDivisionError", "bool", "bytearray",
    "bytes", "complex", "dict", "enumerate", "float", "frozenset", "int",
    "list", "long", "object", "range", "reversed", "set", "slice", "str",
    "tuple", "unicode", "xrange", "zip",
};
/* clang-format on */

/* Functions elsewhere that load code, or a pickle without such checks. */
static const struct {
    const char *module, *name;
} functions[] = {
    { "torch", "load" },
    { "torch.hub", "load" },
    { "torch.serialization", "load" },
    { "torch.jit", "load" },
    { "torch.utils.cpp_extension", "load" },
    { "torch.utils.cpp_extension", "load_inline" },
    { "numpy", "load" },
    { "numpy.testing._private.utils", "runstring" },
    { "numpy.core.numeric", "fromfunction" },
    { "functools", "reduce" },
    { "io", "FileIO" },
    { "io", "open" },
    { "io", "open_code" },
    { "_io", "FileIO" },
    { "_io", "open" },
    { "_io", "open_code" },
    { "logging", "FileHandler" },
    { "logging.config", "dictConfig" },
    { "logging.config", "listen" },
    { "types", "CodeType" },
    { "types", "FunctionType" },
    { "types", "LambdaType" },
    { "types", "MethodType" },
};

static bool
among(const char *const *list, size_t n, const char *s, size_t s_n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(list[i]) == s_n && !memcmp(list[i], s, s_n))
            return true;
    return false;
}

#define AMONG(list, s, n) among(list, sizeof(list) / sizeof(*(list)), s, n)

static bool
is_builtins(const char *s, size_t n)
{
    static const char *const names[] = { "builtins", "__builtin__",
                                         "__builtins__" };

    return AMONG(names, s, n);
}

static bool
bad_part(const char *s)
{
    while (*s) {
        size_t n = strcspn(s, ".");

        if (AMONG(parts, s, n))
            return true;
        s += n + (s[n] == '.');
    }
    return false;
}

static bool
bad_function(const char *module, const char *name)
{
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
        if (!strcmp(module, functions[i].module) &&
            !strcmp(name, functions[i].name))
            return true;
    return false;
}

bool
pickle_dangerous(const char *module, const char *name)
{
    size_t n = strcspn(module, ".");

    if (is_builtins(module, n) && !module[n])
        return !AMONG(types, name, strlen(name));
    return AMONG(modules, module, n) || bad_part(module) || bad_part(name) ||
           bad_function(module, name);
}
