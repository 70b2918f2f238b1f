# SPDX-License-Identifier: ISC
"""What the tools of tensorutils read and write, for numpy and torch.

    acts = Acts("dump")                 # a SAEV dump, saev(5)
    rows = acts.rows(layer=13)          # one layer's activations, as rows
    x = rows[:256]                      # f32 [256, d]
    image, patch, layer = rows.where(0) # what row 0 is of
    acts.ids[image, patch]              # its token, of a dump of text
    data = rows.torch()                 # a torch Dataset of the same

    w = open_safetensors("model.safetensors")["model.norm.weight"]
    table = Table("lut", "layers.0.mlp.up_proj"); y = table(x)    # lut(5)
    sae = SAE("sae"); z = sae.encode(x)                           # sae(5)
    look = Look("run"); look.top.ids[3, 0]  # latent 3's best, sae-look(5)

    with Recorder(model, ["encoder.layers.3"], "acts", meta) as r:
        for batch in batches:
            model(batch)                # goes into saev-write as it runs

    moe = MoE(gate, up, down, lora, alpha=32, top_k=8, max_len=512)
    y = moe(x, expert_ids, weights)     # with autograd

Files are read, refused and computed with by libtensorutils(3), as by the tools.
It needs numpy; torch only where it is named.  See tensorutils-python(7).
"""
import collections
import contextlib
import ctypes
import errno
import functools
import json
import operator
import os
import subprocess
import sys
import tempfile
import threading
import warnings
import weakref

import numpy as np

__version__ = "0.2"
__all__ = ["Acts", "Look", "MoE", "Rows", "Recorder", "SAE", "Table",
           "Writer", "bf16_to_f32", "f32_to_bf16", "open_safetensors",
           "save_safetensors", "token_ids"]


# ---- libtensorutils ----

_n, _p, _i, _q = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64


def _record(name, fields):
    """A struct of tensorutils.h, as "name:type"."""
    kinds = {"n": _n, "p": _p, "i": _i, "f": ctypes.c_float,
             "s": ctypes.c_char_p, "q*": ctypes.POINTER(_q), "n6": _n * 6,
             "p6": _p * 6, "512": ctypes.c_char * 512}
    return type(name, (ctypes.Structure,), {"_fields_": [
        (f, kinds[kind]) for f, kind in
        (word.split(":") for word in fields.split())]})


_Err = _record("Err", "status:i what:512")
_Tensor = _record("Tensor", "name:p name_n:n dtype:s n_dims:n shape:q* n:n "
                  "nbytes:n data:p")
_Entry = _record("Entry", "key:p value:p key_n:n value_n:n")
_Dump = _record("Dump", "path:s metadata:p metadata_n:n n_imgs:n n_layers:n "
                "layers:q* n_tokens:n n_patches:n d:n cls:i")
_Sae = _record("Sae", "path:s hook:s n:n d:n activation:i k:n centered:i "
               "thresholds:p")
_Look = _record("Look", "path:s sae:s hook:s n:n d:n rows:n left_out:n "
                "sequences:n n_tokens:n before:n after:n per_row:i")
_Table = _record("Table", "path:s layer:s n:n in_:n out:n k:n centered:i "
                 "has_bias:i thresholds:p")

_said = collections.deque()  # warnings of a call that still runs


@ctypes.CFUNCTYPE(None, ctypes.c_char_p)
def _hear(what):
    _said.append(what.decode(errors="replace"))


@functools.lru_cache(None)
def _library():
    name = "libtensorutils.so.0"
    here = os.path.dirname(os.path.abspath(__file__))
    # next to this file; of the PREFIX whose share has it, of the tree that was
    # built; as the system finds it
    near = [os.path.join(here, *path) for path in (
        [name], ["..", "..", "..", "lib", name],
        ["..", "build", "libtensorutils.so." + __version__])]
    paths = [os.environ["TENSORUTILS_LIB"]] if "TENSORUTILS_LIB" in os.environ \
        else [p for p in near if os.path.exists(p)] + [name]
    for path in paths:
        try:
            lib = ctypes.CDLL(path)
            lib.tu_look_open  # an older one has none
            break
        except (AttributeError, OSError) as e:
            why = e
    else:
        raise OSError("%s (make install puts it in PREFIX/lib; TENSORUTILS_LIB "
                      "names it elsewhere)" % why)
    for f in "st_count", "rows_count", "moe_skipped", "moe_depth":
        getattr(lib, "tu_" + f).restype = _n
    lib.tu_look_label.restype = _q
    for f in "st", "dump", "rows", "sae", "look", "table", "moe":
        getattr(lib, "tu_%s_close" % f).restype = None
    for f, struct in (("st_at", _Tensor), ("st_metadata_at", _Entry),
                      ("dump_info", _Dump), ("sae_info", _Sae),
                      ("look_info", _Look), ("table_info", _Table)):
        getattr(lib, "tu_" + f).restype = ctypes.POINTER(struct)
    lib.tu_on_warning.restype = None
    lib.tu_on_warning(_hear)
    return lib


def _call(name, *args):
    """A function that can fail; what the tools warn of is a warning."""
    err = _Err()
    if getattr(_library(), name)(*args, ctypes.byref(err)) != 0:
        what = err.what.decode(errors="replace")
        number = next((e for e in errno.errorcode
                       if what.endswith(": " + os.strerror(e))), None)
        if err.status == 70:
            raise MemoryError(what)
        if number or err.status == 74:
            raise OSError(number or errno.EIO, what)
        raise ValueError(what)
    while _said:
        level = 1
        while sys._getframe(level).f_globals is globals():
            level += 1
        with contextlib.suppress(IndexError):  # another thread was first
            warnings.warn(_said.popleft(), stacklevel=level + 1)


def _text(path):
    """A path or a name, for C, in which a NUL would end it."""
    path = os.fsencode(path)
    if b"\0" in path:
        raise ValueError("%r: has a NUL" % path)
    return path


class _Handle:
    """What tu_KIND_open() opened, closed with its last user."""

    def __init__(self, kind, *args):
        self._as_parameter_, self._kind = _p(), kind
        _call("tu_%s_open" % kind, ctypes.byref(self._as_parameter_), *args)

    def info(self):
        return getattr(_library(), "tu_%s_info" % self._kind)(self).contents

    def __del__(self):
        if self._as_parameter_:
            getattr(_library(), "tu_%s_close" % self._kind)(self)


class _Mapped:
    """Numbers of a handle, for numpy, which then keeps it."""

    def __init__(self, handle, at, shape, dtype):
        self._handle = handle
        self.__array_interface__ = {
            "version": 3, "data": (at, True), "shape": tuple(shape),
            "typestr": np.dtype(dtype).str}


def _mapped(handle, at, shape, dtype):
    return np.asarray(_Mapped(handle, at, shape, dtype)) \
        if 0 not in shape else np.empty(shape, dtype)


# ---- numbers and safetensors ----

def bf16_to_f32(u):
    """f32 of BF16 numbers, given as uint16."""
    return np.left_shift(np.asarray(u, "<u2"), 16, dtype="<u4").view("<f4")


def f32_to_bf16(a):
    """uint16 of f32 numbers, to nearest even; a NaN stays one."""
    a = np.asarray(a, "<f4", order="C")
    u = a.view("<u4").astype("<u8")
    rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16
    return np.where(np.isnan(a), u >> 16 | 0x40, rounded).astype("<u2")


_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
           "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "C64": "<c8",
           "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"}
_NAMES = {np.dtype(v): k for k, v in _DTYPES.items() if k != "BF16"}


class _Safetensors:
    """Tensors by name, mapped: each is read where it is used."""

    def __init__(self, path, raw_bf16=False):
        def text(at, n):
            return ctypes.string_at(at, n).decode()

        self.path, self._raw = path, raw_bf16
        self._st, lib = _Handle("st", _text(path)), _library()
        self._tensors, self.metadata = {}, {}
        for i in range(lib.tu_st_count(self._st)):
            t = lib.tu_st_at(self._st, _n(i)).contents
            self._tensors[text(t.name, t.name_n)] = t
        while True:
            e = lib.tu_st_metadata_at(self._st, _n(len(self.metadata)))
            if not e:
                break
            self.metadata[text(e.contents.key, e.contents.key_n)] = \
                text(e.contents.value, e.contents.value_n)

    def __getitem__(self, name):
        t, dtype = self._tensors[name], self.dtype(name)
        shape = t.shape[:t.n_dims]
        if dtype in _DTYPES and (self._raw or dtype != "BF16"):
            return _mapped(self._st, t.data, shape, _DTYPES[dtype])
        a = np.empty(shape, "f4")
        _call("tu_st_read_f32", self._st, ctypes.byref(t), _q(0), _n(t.n),
              a.ctypes)
        return a

    def dtype(self, name):
        """The file's own name of it: "BF16"."""
        return self._tensors[name].dtype.decode()

    def __iter__(self):
        return iter(self._tensors)

    def __len__(self):
        return len(self._tensors)

    def __contains__(self, name):
        return name in self._tensors

    def keys(self):
        return self._tensors.keys()

    def items(self):
        return ((name, self[name]) for name in self)

    def __reduce__(self):
        return open_safetensors, (os.path.abspath(self.path), self._raw)

    def __repr__(self):
        return "open_safetensors(%r): %d tensors" % (self.path, len(self))


def open_safetensors(path, raw_bf16=False):
    """The tensors of a file, or of a model's directory, by name, as arrays that
    are mapped; BF16 and what numpy has not is widened to f32, but BF16 is left
    as uint16 if 'raw_bf16'.  'metadata' is __metadata__."""
    return _Safetensors(path, raw_bf16)


def save_safetensors(path, tensors, metadata=None, bf16=()):
    """Writes arrays by name, those named in 'bf16' rounded to BF16.  The file
    appears whole or not at all."""
    header, data, at = {}, [], 0
    for s in (*tensors, *(metadata or {}), *(metadata or {}).values()):
        if not isinstance(s, str):
            raise TypeError("%r is no string, as names and metadata are" % (s,))
        s.encode()  # fails if it has lone surrogates
    if "__metadata__" in tensors:
        raise ValueError("__metadata__ is not a tensor's name")
    if metadata:
        header["__metadata__"] = metadata
    for name, a in tensors.items():
        a = np.asarray(a, order="C")
        dtype = "BF16" if name in bf16 else \
            _NAMES.get(a.dtype.newbyteorder("<"))
        if dtype is None:
            raise TypeError("%s is %s, which safetensors have not"
                            % (name, a.dtype))
        a = f32_to_bf16(a) if name in bf16 else a.astype(_DTYPES[dtype])
        header[name] = {"dtype": dtype, "shape": list(a.shape),
                        "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
        data.append(a)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError("%s: is not a regular file" % path)
    temp = "%s.%d-%s.part" % (path, os.getpid(), os.urandom(4).hex())
    f = open(temp, "xb")  # not by what is there already, as a link
    try:
        with f:
            f.write(len(text).to_bytes(8, "little") + text)
            for a in data:
                f.write(a.tobytes())
            f.flush()
            os.fsync(f.fileno())
        os.replace(temp, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temp)
        raise


# ---- SAEV dumps ----

class Acts:
    """A SAEV dump, or a directory with one: f32 [image, layer, token, d], in
    shards that are mapped.

    layers, d, n_imgs, n_patches, cls (whether token 0 is CLS), n_tokens (of an
    image), meta (metadata.json).  acts[image] is [layer, token, d]."""

    def __init__(self, path):
        self._dump = _Handle("dump", _text(path))
        info = self._dump.info()
        self.path, self.cls = os.fsdecode(info.path), bool(info.cls)
        self.meta = json.loads(ctypes.string_at(info.metadata, info.metadata_n))
        self.layers, self.d = info.layers[:info.n_layers], info.d
        self.n_imgs, self.n_patches = info.n_imgs, info.n_patches
        self.n_tokens = info.n_tokens

    def __len__(self):
        return self.n_imgs

    def __getitem__(self, image):
        if not 0 <= image < self.n_imgs:
            raise IndexError("image %d of %d" % (image, self.n_imgs))
        at, n = _p(), _n()
        _call("tu_dump_images", self._dump, _n(operator.index(image)), ctypes.byref(at),
              ctypes.byref(n))
        return _mapped(self._dump, at.value,
                       (len(self.layers), self.n_tokens, self.d), "<f4")

    @property
    def ids(self):
        """Token ids of a dump of text, int32 [image, token], -1 where padded,
        mapped; None if it has none."""
        at = _p()
        _call("tu_dump_ids", self._dump, ctypes.byref(at))
        return None if at.value is None else _mapped(
            self._dump, at.value, (self.n_imgs, self.n_tokens), "<i4")

    def rows(self, view="all", layer=None, padding=False):
        """The activations of a view as rows: "all", "image" (without CLS) or
        "cls" tokens, of one layer by its name, or of all.  The zeros after a
        document of hf-infer --pad are rows only with 'padding'."""
        return Rows(self, view, layer, padding)

    def __reduce__(self):
        return Acts, (os.path.abspath(self.path),)

    def __repr__(self):
        return "Acts(%r): %d images, layers %s, %d tokens%s, d %d" % (
            self.path, self.n_imgs, self.layers, self.n_tokens,
            " with CLS" * self.cls, self.d)


class Rows:
    """Rows [len, d] of a view, in the order image, layer, token."""

    def __init__(self, acts, view="all", layer=None, padding=False):
        if view not in ("cls", "image", "all"):
            raise ValueError("view %r (expected all, image or cls)" % view)
        if layer is not None and layer not in acts.layers:
            raise ValueError("%s/metadata.json: layer %s is not in the dump"
                             % (acts.path, layer))
        self.acts, self.view, self.layer = acts, view, layer
        self.padding = padding
        self._rows = _Handle(
            "rows", acts._dump, _i(("cls", "image", "all").index(view)),
            _q(-2 ** 63 if layer is None else int(layer)), _i(not padding))
        self._n = _library().tu_rows_count(self._rows)

    def __len__(self):
        return self._n

    def _ask(self, what, i, width, dtype):
        """What the library says of rows i, as array [.., width]."""
        n = self._n
        if type(i) is int and -n <= i < n:  # the shortest way
            shape, size, at = (), 1, ctypes.byref(_q(i % n))
        else:
            i = np.asarray(np.arange(*i.indices(n)) if isinstance(i, slice)
                           else i)
            if i.dtype == bool and i.shape == (n,):
                i = np.flatnonzero(i)
            if i.dtype.kind not in "iu" and i.size:
                raise IndexError("rows %s %s (expected integers, or %d booleans)"
                                 % (i.dtype, list(i.shape), n))
            i = i.astype("i8", "C")
            bad = i[(i < -n) | (i >= n)]
            if bad.size:
                raise IndexError("row %d of %d" % (bad.flat[0], n))
            i += (i < 0) * n
            shape, size, at = i.shape, i.size, i.ctypes
        out = np.empty(shape + (width,), dtype)
        _call("tu_rows_" + what, self._rows, at, _n(size), out.ctypes)
        return out

    def where(self, i):
        """(image, patch, layer) of row i, or arrays of them; patch is -1 for
        CLS."""
        found = self._ask("places", i, 3, "i8")
        return tuple(found.tolist() if found.ndim == 1 else
                     np.moveaxis(found, -1, 0))

    def __getitem__(self, i):
        return self._ask("gather", i, self.acts.d, "f4")

    def __array__(self, dtype=None, copy=None):
        return self[:].astype(dtype or "f4", copy=False)

    def torch(self):
        """A torch Dataset: {"act": f32 [d], "image": i, "patch": p, "layer": l};
        given a list of indices, as a sampler of batches gives, batches."""
        return _dataset()(self)

    def __reduce__(self):
        return Rows, (self.acts, self.view, self.layer, self.padding)

    def __repr__(self):
        return "Rows(%r, %r, %r): %d rows, d %d" % (
            self.acts.path, self.view, self.layer, len(self), self.acts.d)


@functools.lru_cache(None)
def _dataset():
    import torch

    class Dataset(torch.utils.data.Dataset):
        def __init__(self, rows):
            self.rows = rows

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, i):
            return self.__getitems__([i])[0]

        def __getitems__(self, batch):
            acts = torch.from_numpy(self.rows[list(batch)])
            places = zip(*self.rows.where(list(batch)))
            return [{"act": a, **dict(zip(("image", "patch", "layer"),
                                          map(int, place)))}
                    for a, place in zip(acts, places)]

        def __reduce__(self):
            return Rows.torch, (self.rows,)

    return Dataset


def token_ids(path):
    """The ids that hf-infer --acts-ids wrote, [window, token], mapped: a row of
    Rows is of token_ids(path)[image, patch]."""
    return np.load(path, mmap_mode="r")


# ---- into saev-write ----

class Writer:
    """Activations into saev-write, which gives the dump its name when all of
    them are there: nothing is left of a run that fails.

    with Writer("acts", meta) as w: w.write(x)    # x [images, layer, token, d]
    Afterwards w.path is the dump's directory.  Options are saev-write's:
    Writer("acts", meta, "--if-missing").  With n_imgs in meta, a stream that
    ends early is none even where Python was killed; else it is counted."""

    def __init__(self, out, meta, *options, program="saev-write"):
        self._out, self._meta, self.path = out, dict(meta), None
        self._shape = (len(meta["layers"]),
                       meta["n_patches_per_img"] + meta["cls_token"],
                       meta["d_vit"])
        self._command = [program, "-o", out] + list(options)

    def __enter__(self):
        fd, self._file = tempfile.mkstemp(".json")
        with os.fdopen(fd, "w") as f:
            json.dump(self._meta, f)
        self._process = subprocess.Popen(
            self._command + ["-m", self._file], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)
        return self

    def write(self, x):
        x = np.ascontiguousarray(x, "<f4")
        if x.shape[1:] != self._shape:
            raise ValueError("activations %s (expected [images, %d, %d, %d])"
                             % ((list(x.shape),) + self._shape))
        try:
            self._process.stdin.write(x.data)
        except BrokenPipeError:  # it has said why
            raise RuntimeError("saev-write ended with status %d"
                               % self._process.wait()) from None

    def __exit__(self, kind, error, trace):
        p = self._process
        if kind is not None:
            p.terminate()
        said, _ = p.communicate()
        os.remove(self._file)
        if kind is None and p.returncode != 0:
            raise RuntimeError("saev-write ended with status %d" % p.returncode)
        self.path = said.decode().strip() or None


class Recorder:
    """Streams what modules of a torch model give into saev-write.

    with Recorder(model, names, out, meta): model(batch)...
    'names' are those of named_modules(), one for each of meta's layers in their
    order ("layers": default 0, 1, ..); a module's output is [batch, token, d],
    or a tuple that begins with it.  'n_patches_per_img' and 'd_vit' are taken
    from the first batch where meta has none.  An image is written when the last
    module has given it; a module that runs again before that is an error.  'of'
    makes another tensor of an output."""

    def __init__(self, model, names, out, meta, *options, of=None, **keywords):
        modules = dict(model.named_modules())
        for name in names:
            if name not in modules:
                raise ValueError("the model has no module %s" % name)
        self._names = list(names)
        self._modules = [modules[name] for name in names]
        self._model = model
        self._of = of or (lambda y: y[0] if isinstance(y, tuple) else y)
        self._meta = {"vit_family": type(model).__name__,
                      "vit_ckpt": getattr(model, "name_or_path", "") or
                      type(model).__name__,
                      "layers": list(range(len(names))), "cls_token": False,
                      "seed": 0, "max_patches_per_shard": 500000,
                      "data": ""}
        self._meta.update(meta)
        if len(self._meta["layers"]) != len(names):
            raise ValueError("%d modules for %d layers"
                             % (len(names), len(self._meta["layers"])))
        self._open = lambda: Writer(out, self._meta, *options, **keywords)
        self._writer, self.path = None, None

    def __enter__(self):
        if any(m.training for m in self._model.modules()):
            warnings.warn("the model is in training mode: its dropout is in "
                          "the activations", stacklevel=2)
        self._got = [None] * len(self._modules)
        self._hooks = [m.register_forward_hook(self._hook(i))
                       for i, m in enumerate(self._modules)]
        return self

    def _hook(self, i):
        def hook(module, args, output):
            if self._got[i] is not None:
                idle = self._names[[g is None for g in self._got].index(True)]
                raise RuntimeError("%s has run twice, but %s has not run"
                                   % (self._names[i], idle))
            # a copy: the model may change it where it is
            self._got[i] = np.array(self._of(output).detach().float().cpu())
            if all(g is not None for g in self._got):
                self._write()
        return hook

    def _write(self):
        x = np.stack(self._got, axis=1)
        self._got = [None] * len(self._modules)
        if self._writer is None:
            self._meta.setdefault("n_patches_per_img",
                                  x.shape[2] - self._meta["cls_token"])
            self._meta.setdefault("d_vit", x.shape[3])
            self._writer = self._open().__enter__()
        self._writer.write(x)

    def __exit__(self, *error):
        for h in self._hooks:
            h.remove()
        if error[0] is None and any(g is not None for g in self._got):
            error = (RuntimeError, RuntimeError("some modules did not run"),
                     None)
        if self._writer is not None:
            self._writer.__exit__(*error)
            self.path = self._writer.path
        if isinstance(error[1], RuntimeError) and error[2] is None:
            raise error[1]


# ---- sparse autoencoders and lookup tables ----

class _Coder:
    """What the library computes with; threads take turns."""
    _all = weakref.WeakSet()

    def __init__(self, kind, *args):
        self._handle = _Handle(kind, *args)
        info = self._handle.info()
        self.file, self.n_latents = os.fsdecode(info.path), info.n
        self.centered, self.k, self.threshold = bool(info.centered), info.k, None
        if info.thresholds:
            self.k = None
            self.threshold = _mapped(self._handle, info.thresholds, (info.n,),
                                     "f4")
        self._forked()
        _Coder._all.add(self)

    def _forked(self):  # a thread that is not here may have had its turn
        self._turn = threading.Lock()

    def _run(self, what, x, n_in, n_out):
        x = np.ascontiguousarray(x, "f4")
        if x.shape[-1] != n_in:
            raise ValueError("%s: x is %s (expected [.., %d])"
                             % (self.file, list(x.shape), n_in))
        y = np.empty(x.shape[:-1] + (n_out,), "f4")
        with self._turn:
            _call(what, self._handle, x.ctypes, _n(x.size // n_in), y.ctypes)
        return y


os.register_at_fork(after_in_child=lambda: [c._forked() for c in _Coder._all])


class SAE(_Coder):
    """A sparse autoencoder in any form that the tools read, sae(5).

    encode(x) is what is active, [.., n_latents]; decode(z) is x again.
    W_enc [n, d], b_enc [n], W_dec [n, d], b_dec [d], copies in f32; activation
    ("topk", "batchtopk", "jumprelu", "relu"), k or threshold [n], or neither;
    centered: it encodes x - b_dec; hook: where in a model; cfg."""

    def __init__(self, path, threads=0):
        super().__init__("sae", _text(path), _i(threads))
        info = self._handle.info()
        self.path, self.d, self._threads = path, info.d, threads
        self.hook = info.hook and info.hook.decode()
        self.activation = ("topk", "batchtopk", "jumprelu",
                           "relu")[info.activation]
        if self.activation == "relu":
            self.k = None

    @functools.cached_property
    def _weights(self):
        n, d = self.n_latents, self.d
        a = [np.empty(s, "f4") for s in ((n, d), (n,), (n, d), (d,))]
        _call("tu_sae_weights", self._handle, *(v.ctypes for v in a))
        return a

    W_enc, b_enc, W_dec, b_dec = (
        property(lambda self, i=i: self._weights[i]) for i in range(4))

    @functools.cached_property
    def cfg(self):
        for name in "cfg.json", "config.json":
            with contextlib.suppress(FileNotFoundError), open(
                    os.path.join(os.path.dirname(self.file), name), "rb") as f:
                return json.load(f)
        return {}

    def encode(self, x):
        return self._run("tu_sae_encode", x, self.d, self.n_latents)

    def decode(self, z):
        return self._run("tu_sae_decode", z, self.n_latents, self.d)

    def __reduce__(self):
        return SAE, (os.path.abspath(self.path), self._threads)

    def __repr__(self):
        return "SAE(%r): %d latents, d %d, %s%s%s" % (
            self.path, self.n_latents, self.d, self.activation,
            " %d" % self.k if self.k else "",
            ", at " + self.hook if self.hook else "")


class Table(_Coder):
    """A linear layer's lookup table, lut(5): table(x) is the layer's output by
    it, without compensation, table.encode(x) what is active, and
    table.reconstruct(x) the x that this stands for.  The tensors are
    attributes; entry is the layer's in metadata.json."""

    def __init__(self, directory, layer, threads=0):
        super().__init__("table", _text(directory), _text(layer), _i(threads))
        info = self._handle.info()
        self.layer, self.d_in, self.d_out = \
            info.layer.decode(), info.in_, info.out
        self._made = os.path.abspath(directory), layer, threads

    def __getattr__(self, name):
        if name not in ("encoder_weight", "encoder_bias", "decoder_weight",
                        "decoder_bias", "precomputed_products",
                        "bias_product"):
            raise AttributeError(name)
        self.__dict__[name] = open_safetensors(self.file)[name]
        return self.__dict__[name]

    @functools.cached_property
    def entry(self):
        with open(os.path.join(os.path.dirname(self.file), "metadata.json"),
                  "rb") as f:
            layers = json.load(f)["layers"]
        return layers.get(self.layer) or layers[self.layer[len("model."):]]

    def encode(self, x):
        return self._run("tu_table_encode", x, self.d_in, self.n_latents)

    def __call__(self, x):
        return self._run("tu_table_apply", x, self.d_in, self.d_out)

    def reconstruct(self, x):
        return self._run("tu_table_reconstruct", x, self.d_in, self.d_in)

    def __reduce__(self):
        return Table, self._made

    def __repr__(self):
        return "Table(%r, %r): %d -> %d by %d latents%s" % (
            os.path.dirname(self.file), self.layer, self.d_in, self.d_out,
            self.n_latents, ", %d active" % self.k if self.k else "")


# ---- what latents did in some rows ----

_Examples = collections.namedtuple("Examples", "value row acts ids")


class Look:
    """A RUN of sae-look, sae-look(5): what m latents of an SAE did in some rows.

    latent, rows_active, seqs_active, sum, max, density and mean (of its active
    rows) [m], hist [m, 64], sum_limbs [m, 11]; top and sample have value and
    row [m, n], acts and ids [m, n, c]: place context[0] of c is the example's
    row; ids is None without ids.  pair_latent [p] and pairs [p, n_latents]; or
    None.  labels is a dict by latent; meta is look.json."""

    def __init__(self, path):
        self._look = _Handle("look", _text(path))
        info = self._look.info()
        self.path, self.sae = os.fsdecode(info.path), os.fsdecode(info.sae)
        self.hook = info.hook and info.hook.decode()
        self.n_latents, self.d = info.n, info.d
        self.rows, self.left_out = info.rows, info.left_out
        self.sequences, self.n_tokens = info.sequences, info.n_tokens
        self.context = info.before, info.after
        self.per = "row" if info.per_row else "sequence"
        self.labels, label, n = {}, _p(), _n()
        while (i := _library().tu_look_label(
                self._look, _n(len(self.labels)), ctypes.byref(label),
                ctypes.byref(n))) >= 0:
            self.labels[i] = ctypes.string_at(label, n.value).decode(
                errors="replace")

    def _tensor(self, name):
        t = ctypes.POINTER(_Tensor)()
        _call("tu_look_tensor", self._look, name.encode(), ctypes.byref(t))
        return _mapped(
            self._look, t.contents.data, t.contents.shape[:t.contents.n_dims],
            np.dtype(_DTYPES[t.contents.dtype.decode()]).newbyteorder("=")
        ) if t else None

    latent, rows_active, seqs_active, sum_limbs, sum, max, hist, \
        pair_latent, pairs = (
            functools.cached_property(lambda self, name=name: self._tensor(name))
            for name in "latent rows_active seqs_active sum_limbs sum max hist "
                        "pair_latent pairs".split())

    top, sample = (
        functools.cached_property(lambda self, of=of: _Examples(
            *(self._tensor("%s_%s" % (of, what)) for what in _Examples._fields)))
        for of in ("top", "sample"))

    @property
    def density(self):
        return self.rows_active / max(self.rows, 1)

    @property
    def mean(self):
        return self.sum / np.maximum(self.rows_active, 1)

    @functools.cached_property
    def meta(self):
        with open(os.path.join(self.path, "look.json"), "rb") as f:
            return json.load(f)

    def __reduce__(self):
        return Look, (os.path.abspath(self.path),)

    def __repr__(self):
        return "Look(%r): %d of %d latents%s, in %d rows" % (
            self.path, len(self.latent), self.n_latents,
            ", at " + self.hook if self.hook else "", self.rows)


# ---- a layer's experts with LoRA ----

def _sized(name, fields):
    """A struct that begins with its size."""
    new = _record(name, "size:n " + fields)
    return lambda **given: new(ctypes.sizeof(new), **given)


_Config = _sized("Config", "n_experts:n top_k:n hidden:n intermediate:n "
                 "lora_rank:n lora_alpha:f mode:i max_len:n max_cache_depth:n "
                 "n_parts:n n_threads:i strict_ids:i")
_Weights = _sized("Weights", "n:n gate:p up:p down:p")
_Lora = _sized("Lora", "n:n6 m:p6")
_Batch = _sized("Batch", "qlen:n top_k:n hidden:n expert_ids:p weights:p input:p")
_Grads = _sized("Grads", "qlen:n input:p weights:p lora_is_bf16:i n:n6 lora:p6")


class _Kept:
    """A forward that waits for its backward: dead with its graph."""


@functools.lru_cache(None)
def _experts():
    """The torch.autograd.Function of MoE."""
    import torch

    class Experts(torch.autograd.Function):
        @staticmethod
        def forward(ctx, moe, save, x, ids, weights, *lora):
            y = torch.empty(x.shape, dtype=torch.float32)
            ctx.moe, ctx.kept = moe, moe._forward(x, ids, weights, y, save)
            ctx.save_for_backward(x, weights, *lora)
            return y

        @staticmethod
        def backward(ctx, dy):
            x, weights, *lora = ctx.saved_tensors  # changed since: an error
            like = [t if ctx.needs_input_grad[i] else None
                    for i, t in zip((2, 4, 5, 6, 7, 8, 9, 10),
                                    (x, weights, *lora))]
            grads = [None if t is None else torch.empty_like(t) for t in like]
            ctx.moe._backward(ctx.kept, dy.to(torch.bfloat16).contiguous(),
                              *grads)
            return (None, None, grads[0], None, *grads[1:])

    return Experts


class MoE:
    """The experts of a mixture-of-experts layer with LoRA, in a torch graph.

    gate and up [n_experts, intermediate, hidden], down [n_experts, hidden,
    intermediate]: frozen, bf16.  lora: six bf16 tensors, gate's A and B, up's,
    down's, A [n_experts, rank, in], B [n_experts, out, rank], where they are:
    an optimizer's steps show in the next forward.

    moe(x, expert_ids, weights) is f32 [.., hidden] of x bf16 [.., hidden],
    expert_ids int64 and weights [.., top_k]; gradients go to x, weights and
    lora.  A backward takes the last forward of those whose graphs are alive,
    of which there may be 'depth'."""

    def __init__(self, gate, up, down, lora, alpha, top_k, max_len,
                 mode="bf16", parts=1, threads=0, depth=1, strict_ids=False):
        self._moe, self._kept, self._at = _p(), [], None
        self._pid = os.getpid() if parts > 1 else None
        self.lora = list(lora)
        if len(gate.shape) != 3:
            raise ValueError("gate is %s (expected [n_experts, intermediate, "
                             "hidden])" % list(gate.shape))
        n_experts, intermediate, hidden = gate.shape
        down_shape = (n_experts, hidden, intermediate)
        for t, shape, name in ((gate, gate.shape, "gate"),
                               (up, gate.shape, "up"),
                               (down, down_shape, "down")):
            self._check(t, shape, name)
        dims = 2 * (hidden, intermediate) + (intermediate, hidden)
        # most of them have the right size, whatever their shapes
        ranks = [t.numel() // max(n_experts * d, 1)
                 for t, d in zip(self.lora, dims)]
        rank = max(ranks, key=ranks.count, default=0)
        self._shapes = [(n_experts, d, rank) if i % 2 else (n_experts, rank, d)
                        for i, d in enumerate(dims)]
        self._check_lora()
        self._base = (gate, up, down)  # backward reads them
        self._top_k, self._hidden = top_k, hidden
        config = _Config(
            n_experts=n_experts, top_k=top_k, hidden=hidden,
            intermediate=intermediate, lora_rank=rank, lora_alpha=alpha,
            mode=["bf16", "int8"].index(mode), max_len=max_len,
            max_cache_depth=depth, n_parts=parts, n_threads=threads,
            strict_ids=strict_ids)
        _call("tu_moe_open", ctypes.byref(self._moe), ctypes.byref(config))
        weights = _Weights(n=gate.numel(), gate=gate.data_ptr(),
                           up=up.data_ptr(), down=down.data_ptr())
        _call("tu_moe_load", self._moe, ctypes.byref(weights))

    @staticmethod
    def _check(t, shape, name):
        if tuple(t.shape) != tuple(shape) or str(t.dtype) != "torch.bfloat16" \
                or not t.is_contiguous() or t.device.type != "cpu":
            raise ValueError("%s is %s %s on %s (expected contiguous "
                             "torch.bfloat16 %s on cpu)"
                             % (name, t.dtype, list(t.shape), t.device,
                                list(shape)))

    def _check_lora(self):
        names = [n + m for n in ("gate's", "up's", "down's")
                 for m in (" A", " B")]
        if len(self.lora) != 6:
            raise ValueError("lora has %d tensors (expected 6)"
                             % len(self.lora))
        for t, shape, name in zip(self.lora, self._shapes, names):
            self._check(t, shape, name)

    def __del__(self):
        if getattr(self, "_moe", None) and self._pid in (None, os.getpid()):
            _library().tu_moe_close(self._moe)
            self._moe = _p()

    def __reduce_ex__(self, _):  # which copy, deepcopy and pickle call
        raise TypeError("MoE has its tensors' places, and cannot be copied: "
                        "make another one")

    def parameters(self):
        return list(self.lora)

    @property
    def skipped(self):
        """Slots of the last forward whose id names no expert."""
        return _library().tu_moe_skipped(self._moe)

    def __call__(self, x, expert_ids, weights):
        import torch

        if self._pid not in (None, os.getpid()):
            raise RuntimeError("MoE: with parts it works in the process that "
                               "made it alone")
        if x.dtype != torch.bfloat16 or x.shape[-1:] != (self._hidden,):
            raise ValueError("x is %s %s (expected torch.bfloat16 [.., %d])"
                             % (x.dtype, list(x.shape), self._hidden))
        shape = (*x.shape[:-1], self._top_k)
        for name, t in ("expert_ids", expert_ids), ("weights", weights):
            if tuple(t.shape) != shape:
                raise ValueError("%s is %s (expected %s)"
                                 % (name, list(t.shape), list(shape)))
        if expert_ids.dtype != torch.int64:
            raise ValueError("expert_ids is %s (expected torch.int64)"
                             % expert_ids.dtype)
        self._check_lora()
        inputs = (x.cpu().reshape(-1, self._hidden).contiguous(),
                  expert_ids.cpu().reshape(-1, self._top_k).contiguous(),
                  weights.cpu().float().reshape(-1, self._top_k).contiguous())
        save = torch.is_grad_enabled() and any(
            t.requires_grad for t in (*inputs, *self.lora))
        y = _experts().apply(self, save, *inputs, *self.lora)
        return y.reshape(x.shape).to(x.device)

    def _forget(self):
        """Drops the last forwards whose graphs are gone."""
        while self._kept and self._kept[-1]() is None:
            _call("tu_moe_drop", self._moe)
            self._kept.pop()

    def _forward(self, x, ids, weights, y, save):
        at = [t.data_ptr() for t in self.lora]
        if at != self._at:
            lora = _Lora(n=(_n * 6)(*(t.numel() for t in self.lora)),
                         m=(_p * 6)(*at))
            _call("tu_moe_update_lora", self._moe, ctypes.byref(lora))
            self._at = at
        self._forget()
        batch = _Batch(qlen=len(x), top_k=self._top_k, hidden=self._hidden,
                       expert_ids=ids.data_ptr(), weights=weights.data_ptr(),
                       input=x.data_ptr())
        _call("tu_moe_forward", self._moe, ctypes.byref(batch),
              _p(y.data_ptr()), _i(save))
        if not save:
            return None
        kept = _Kept()
        self._kept.append(weakref.ref(kept))
        return kept

    def _backward(self, kept, dy, dx, dw, *lora):
        self._forget()
        if not self._kept or self._kept[-1]() is not kept:
            raise RuntimeError(
                "MoE: not the last forward that waits for its backward, or a "
                "second backward of it")
        at = [t if t is None else t.data_ptr() for t in (dx, dw, *lora)]
        grads = _Grads(qlen=len(dy), input=at[0], weights=at[1],
                       lora_is_bf16=1, lora=(_p * 6)(*at[2:]),
                       n=(_n * 6)(*(0 if t is None else t.numel()
                                    for t in lora)))
        _call("tu_moe_backward", self._moe, _p(dy.data_ptr()),
              ctypes.byref(grads))
        self._kept.pop()
