"""What the tools of tensorutils read and write, for numpy and torch.

    acts = Acts("dump")                 # a SAEV dump, saev(5)
    rows = acts.rows(layer=13)          # one layer's activations, as rows
    x = rows[:256]                      # f32 [256, d]
    image, patch, layer = rows.where(0) # what row 0 is of
    data = rows.torch()                 # a torch Dataset of the same

    w = open_safetensors("model.safetensors")["model.norm.weight"]
    table = Table("lut", "layers.0.mlp.up_proj"); y = table(x)    # lut(5)
    sae = SAE("sae"); z = sae.encode(x)                           # sae(5)

    with Recorder(model, ["encoder.layers.3"], "acts", meta) as r:
        for batch in batches:
            model(batch)                # goes into saev-write as it runs

    moe = MoE(gate, up, down, lora, alpha=32, top_k=8, max_len=512)
    y = moe(x, expert_ids, weights)     # with autograd, libtensorutils(3)

One file of plain Python: it needs numpy; torch only where it is named.
See tensorutils-python(7).
"""
import bisect
import contextlib
import ctypes
import functools
import itertools
import json
import math
import os
import re
import stat
import subprocess
import tempfile
import warnings
import weakref

import numpy as np

__version__ = "0.1"
__all__ = ["Acts", "MoE", "Rows", "Recorder", "SAE", "Table", "Writer",
           "bf16_to_f32", "f32_to_bf16", "open_safetensors",
           "save_safetensors", "token_ids"]


# ---- what files may say ----

def _bad(path, what, found, expected):
    return ValueError("%s: %s is %s (expected %s)"
                      % (path, what, json.dumps(found), expected))


def _open(path):
    """A regular file; a FIFO would wait for who writes it."""
    f = open(path, "rb",
             opener=lambda p, flags: os.open(p, flags | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
        f.close()
        raise ValueError("%s: is not a regular file" % path)
    return f


def _json(data, path):
    """A document, an object, in which no name is there twice."""
    def once(members):
        "".join(name for name, _ in members).encode()  # fails if it is no text
        if len(dict(members)) != len(members):
            raise ValueError("a name is there twice")
        return dict(members)

    def no(word):
        raise ValueError("%s is not JSON" % word)

    try:
        v = json.loads(bytes(data).decode(), object_pairs_hook=once,
                       parse_constant=no)
    except (ValueError, RecursionError) as e:
        raise ValueError("%s: %s" % (path, e)) from None
    if not isinstance(v, dict):
        raise _bad(path, "the document", v, "an object")
    return v


def _load(path):
    with _open(path) as f:
        return _json(f.read(), path)


def _is_int(v, least=0):
    return type(v) is int and v >= least  # a bool is an int, too


def _size(members, key, path, least=1):
    if not _is_int(members.get(key), least):
        raise _bad(path, key, members.get(key),
                   "an integer of at least %d" % least)
    return members[key]


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
           "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
           "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"}
_NAMES = {np.dtype(v): k for k, v in _DTYPES.items() if k != "BF16"}


class _Safetensors:
    """The tensors of a file, mapped: each is read where it is used."""

    def __init__(self, path, raw_bf16=False):
        self.path, self._raw = path, raw_bf16
        with _open(path) as f:
            size = os.fstat(f.fileno()).st_size
            n = int.from_bytes(f.read(8), "little")
            if size < 8 or n > min(size - 8, 100000000):
                raise ValueError("%s: is not a safetensors file" % path)
            self._header = _json(f.read(n), path)
            self._data = np.memmap(f, "u1", "r") if size > 8 + n else b""
        self.metadata = self._header.pop("__metadata__", None) or {}
        self._at, at = 8 + n, 0
        if not (isinstance(self.metadata, dict) and
                all(isinstance(v, str) for v in self.metadata.values())):
            raise _bad(path, "__metadata__", self.metadata, "strings by name")
        for name, t in self._header.items():
            if not isinstance(t, dict):
                raise _bad(path, name, t, "an object")
            for key in "shape", "data_offsets":
                v = t.get(key)
                if not (isinstance(v, list) and all(map(_is_int, v)) and
                        (key == "shape" or len(v) == 2)):
                    raise _bad(path, name + "'s " + key, v, "integers from 0")
            if t.get("dtype") not in list(_DTYPES):
                raise _bad(path, name + "'s dtype", t.get("dtype"),
                           "one that numpy has")
        # one after the other, so that none is in another's place
        for name, t in sorted(self._header.items(),
                              key=lambda item: item[1]["data_offsets"]):
            nbytes = math.prod(t["shape"]) * np.dtype(
                _DTYPES[t["dtype"]]).itemsize
            if t["data_offsets"] != [at, at + nbytes]:
                raise _bad(path, name + "'s data_offsets", t["data_offsets"],
                           [at, at + nbytes])
            at += nbytes
        if self._at + at != size:
            raise ValueError("%s: has %d bytes (expected %d)"
                             % (path, size, self._at + at))

    def __getitem__(self, name):
        t = self._header[name]
        begin, end = t["data_offsets"]
        data = np.frombuffer(self._data, "u1", end - begin, self._at + begin) \
            if end > begin else np.empty(0, "u1")
        a = data.view(_DTYPES[t["dtype"]]).reshape(t["shape"])
        return bf16_to_f32(a) if t["dtype"] == "BF16" and not self._raw else a

    def dtype(self, name):
        """The file's own name of it: "BF16"."""
        return self._header[name]["dtype"]

    def __iter__(self):
        return iter(self._header)

    def __len__(self):
        return len(self._header)

    def __contains__(self, name):
        return name in self._header

    def keys(self):
        return self._header.keys()

    def items(self):
        return ((name, self[name]) for name in self._header)


def open_safetensors(path, raw_bf16=False):
    """The tensors of a file by name, as arrays that are mapped; BF16 is widened
    to f32, or left as uint16 if 'raw_bf16'.  'metadata' is __metadata__."""
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
        def has(d, name="metadata.json"):
            return os.path.exists(os.path.join(d, name))

        # tables have a metadata.json, too
        found = [path] if has(path) else [
            os.path.join(path, name) for name in sorted(os.listdir(path))
            if name[0] != "." and has(os.path.join(path, name)) and
            (re.fullmatch("[0-9a-fA-F]{64}", name) or
             has(os.path.join(path, name), "acts000000.bin"))]
        if len(found) > 1:
            raise ValueError("%s holds %d dumps, name one: %s"
                             % (path, len(found), ", ".join(found)))
        self.path = path = (found or [path])[0]
        name = os.path.join(path, "metadata.json")
        self.meta = m = _load(name)
        for key in ("layers", "d_vit", "n_imgs", "n_patches_per_img",
                    "cls_token", "max_patches_per_shard"):
            if key not in m:
                raise ValueError("%s: has no %r: is it of another version? "
                                 "(saev-read meta says so)" % (name, key))
        self.layers, self.cls = m["layers"], m["cls_token"]
        if type(self.cls) is not bool:
            raise _bad(name, "cls_token", self.cls, "true or false")
        if not (isinstance(self.layers, list) and self.layers and
                all(type(v) is int for v in self.layers) and
                len(set(self.layers)) == len(self.layers)):
            raise _bad(name, "layers", self.layers, "integers, each once")
        self.d, self.n_imgs = _size(m, "d_vit", name), _size(m, "n_imgs", name, 0)
        self.n_patches = _size(m, "n_patches_per_img", name, not self.cls)
        self.n_tokens = self.n_patches + self.cls
        of_image = len(self.layers) * self.n_tokens
        self._per = _size(m, "max_patches_per_shard", name, of_image) // of_image
        self._shards = {}
        self._check_shards(4 * of_image * self.d)

    def _check_shards(self, one):
        """Each shard has its images, of 'one' byte each, or is padded to full
        size; a padded dump of full shards has one more."""
        n, rest = -(-self.n_imgs // self._per), set(os.listdir(self.path))
        for k in range(n + (self.n_imgs % self._per == 0)):
            name = "acts%06d.bin" % k
            if k == n and name not in rest:
                break
            rest.discard(name)
            name = os.path.join(self.path, name)
            nbytes = os.path.getsize(name)
            full = self._per * one
            expected = min(full, (self.n_imgs - k * self._per) * one) or full
            if nbytes not in (expected, full if k >= n - 1 else expected):
                raise ValueError("%s: has %d bytes (expected %d)"
                                 % (name, nbytes, expected))
        more = [f for f in rest if re.fullmatch("acts[0-9]{6,}[.]bin", f)]
        if more:
            raise ValueError("%s: is beyond the last shard (n_imgs is %d, %d a "
                             "shard)" % (os.path.join(self.path, min(more)),
                                         self.n_imgs, self._per))

    def _shard(self, k):
        """Shard k, as an array [images, layer, token, d]."""
        if k not in self._shards:
            name = os.path.join(self.path, "acts%06d.bin" % k)
            shape = (len(self.layers), self.n_tokens, self.d)
            n = min(self._per, self.n_imgs - k * self._per)
            with _open(name) as f:
                self._shards[k] = np.memmap(f, "<f4", "r", 0, (n,) + shape)
        return self._shards[k]

    def __len__(self):
        return self.n_imgs

    def __getitem__(self, image):
        if not 0 <= image < self.n_imgs:
            raise IndexError("image %d of %d" % (image, self.n_imgs))
        return self._shard(image // self._per)[image % self._per]

    def rows(self, view="all", layer=None, padding=False):
        """The activations of a view as rows: "all", "image" (without CLS) or
        "cls" tokens, of one layer by its name, or of all.  The zeros after a
        document of hf-infer --pad are rows only with 'padding'."""
        return Rows(self, view, layer, padding)

    def _n_data(self, image):
        """Tokens before those that are 0 in all layers."""
        low, high = 0, self.n_tokens
        while low < high:
            at = (low + high) // 2
            if self[image][:, at].view("<u4").any():
                low = at + 1
            else:
                high = at
        return low


class Rows:
    """Rows [len, d] of a view, in the order image, layer, token."""

    def __init__(self, acts, view, layer, padding=False):
        if view not in ("all", "image", "cls"):
            raise ValueError("view %r (expected all, image or cls)" % view)
        if view == "cls" and not acts.cls:
            raise ValueError("%s: has no CLS token" % acts.path)
        if layer is not None and layer not in acts.layers:
            raise ValueError("%s: has no layer %r (of %s)"
                             % (acts.path, layer, acts.layers))
        self.acts, self.view, self.layer = acts, view, layer
        self._places = range(len(acts.layers)) if layer is None else \
            [acts.layers.index(layer)]
        first = int(view == "image" and acts.cls)
        self._tokens = range(first, 1 if view == "cls" else acts.n_tokens)
        data = acts.meta.get("data")
        is_padded = isinstance(data, dict) and data.get("windows") == "padded"
        self._n = [acts._n_data(i) for i in range(acts.n_imgs)] \
            if is_padded and not (acts.cls or padding) else \
            [len(self._tokens)] * acts.n_imgs
        # rows before each image, and all
        self._before = [0, *itertools.accumulate(
            n * len(self._places) for n in self._n)]

    def __len__(self):
        return self._before[-1]

    def _place(self, i):
        image = bisect.bisect(self._before, i) - 1
        place, token = divmod(i - self._before[image], self._n[image])
        return image, self._places[place], self._tokens[token]

    def where(self, i):
        """(image, patch, layer) of row i; patch is -1 for CLS."""
        image, place, token = self._place(self._index(i))
        return image, token - self.acts.cls, self.acts.layers[place]

    def _index(self, i):
        n = len(self)
        if not -n <= i < n:
            raise IndexError("row %d of %d" % (i, n))
        return i % n

    def __getitem__(self, i):
        if isinstance(i, (int, np.integer)):
            image, place, token = self._place(self._index(int(i)))
            return np.array(self.acts[image][place, token])
        if isinstance(i, slice):
            i = range(*i.indices(len(self)))
        i = np.asarray(i)
        if i.dtype == bool:
            i = np.flatnonzero(i)
        out = np.empty((len(i), self.acts.d), "<f4")
        # in the order of the file, image by image
        order = np.argsort(i % len(self), kind="stable") if len(i) else []
        image, at = None, None
        for k in order:
            im, place, token = self._place(self._index(int(i[k])))
            if im != image:
                image, at = im, self.acts[im]
            out[k] = at[place, token]
        return out

    def __array__(self, dtype=None, copy=None):
        return self[:].astype(dtype or "<f4", copy=False)

    def torch(self):
        """A torch Dataset: {"act": f32 [d], "image": i, "patch": p, "layer": l};
        given a list of indices, as a sampler of batches gives, batches."""
        import torch

        rows = self

        class Dataset(torch.utils.data.Dataset):
            def __len__(self):
                return len(rows)

            def __getitem__(self, i):
                image, patch, layer = rows.where(i)
                return {"act": torch.from_numpy(rows[i]), "image": image,
                        "patch": patch, "layer": layer}

            def __getitems__(self, batch):
                acts = torch.from_numpy(rows[list(batch)])
                return [dict(zip(("act", "image", "patch", "layer"),
                                 (a,) + rows.where(i)))
                        for a, i in zip(acts, batch)]

        return Dataset()


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

def _active(p, k, threshold):
    """p where it is active, else 0: the k largest over 0, of equals the lower
    index; or those over their thresholds."""
    if threshold is not None:
        return np.where(p > np.maximum(threshold, 0), p, 0)
    z = np.maximum(p, 0)
    if k is None or k >= z.shape[-1]:
        return z
    order = np.argsort(-z, axis=-1, kind="stable")[..., k:]
    np.put_along_axis(z, order, 0, axis=-1)
    return z


# What the members of a configuration may be, by the tools' rules, sae(5): JSON
# for the keys that match; null and no such key always are.  n and d are the
# tensors' latents and inputs, hook and k those that it has said before.
_SAE_RULES = {
    'false, 0, "" or "none"':
        "transcode|skip_connection|signed|tiled|gated|normalize_activations|"
        "is_gated|is_transcoder|W_skip|finetuning_scaling_factor|use_threshold|"
        "affine_connection|rescale_acts_by_decoder_norm|fold_ln|"
        "center_(writing_weights|unembed)|fold_value_biases|"
        "refactor_factored_attn_matrices|(?i:.*(hadamard|outlier).*)",
    "null": "(hook|hook_point)_head_index(_out)?|trainer|dict_class",
    "{d}": "d_in|activation_dim|d_model|d_out",
    "{n}": "d_sae|dict_size|width", "{n} or 0": "num_latents",
    "{hook}": "hook(_name|_point)?", "{out}": "hook_name_out", "{k}": "k",
    '"topk" or "batchtopk"': "activation",
    '"topk", "standard" or "jumprelu"': "architecture",
    '"topk" or "relu"': "activation_fn(_str)?",
    '"none" or "hook_z"': "reshape_activations", '"saelens"': "library",
    "true or false": "apply_b_dec_to_input", "0 or 1": "num_tiles"}


def _sae_check(members, path, said):
    """All of a configuration, and of the objects in it."""
    for key, v in members.items():
        for rule, keys in _SAE_RULES.items():
            if v is not None and re.fullmatch(keys, key):
                if rule in ("{hook}", "{k}"):
                    said.setdefault(rule[1:-1], json.dumps(v))
                want = rule.format(
                    **said, out=json.dumps(members.get("hook_name")))
                if json.dumps(v).lower() not in \
                        re.split(", | or ", want.lower()) or \
                        rule == "{hook}" and not isinstance(v, str):
                    raise _bad(path, key, v, want)
        if isinstance(v, dict):
            _sae_check(v, path, said)


def _floats(t, name, *shape):
    """A tensor of an autoencoder or a table."""
    if name not in t:
        raise ValueError("%s: tensor %s is missing" % (t.path, name))
    a, dtype = t[name], t.dtype(name)
    if dtype not in ("BF16", "F16", "F32") or a.shape != shape:
        raise _bad(t.path, name, [dtype, *a.shape],
                   "BF16, F16 or F32, %s" % list(shape))
    return a


class SAE:
    """A sparse autoencoder of sae-train or sparsify (sae.safetensors) or of
    SAELens (sae_weights.safetensors), a directory with its cfg.json; the tools
    read others, too, sae(5).

    encode(x) is what is active, [.., n_latents]; decode(z) is x again.
    W_enc [n, d], b_enc [n], W_dec [n, d], b_dec [d]; k, or threshold, or
    neither (ReLU); centered: it encodes x - b_dec."""

    def __init__(self, path):
        files = [f for f in sorted(os.listdir(path)) if re.fullmatch(
            r"(ae|sae|sae_weights|params)\.safetensors|params\.npz|"
            r"(ae|sae|layer\d+\.sae)\.pt|(?i:.*(hadamard|outlier).*)", f)]
        if files not in (["sae.safetensors"], ["sae_weights.safetensors"]):
            raise ValueError(
                "%s: has %s (expected one of sae.safetensors and sae_weights."
                "safetensors; sae-train --init reads other libraries' files)"
                % (path, " and ".join(files) or "no autoencoder"))
        t = open_safetensors(os.path.join(path, files[0]))
        name = os.path.join(path, "cfg.json")
        self.cfg = cfg = _load(name)
        lens = "W_enc" in t
        weight, bias = ("W_enc", "b_enc") if lens else ("encoder.weight",
                                                        "encoder.bias")
        n, d = (t[v].size if v in t else 0 for v in (bias, "b_dec"))
        said = {"n": n, "d": d}
        _sae_check(cfg, name, said)
        words = [str(cfg.get(key) or "").lower() for key in (
            ("architecture", "activation_fn", "activation_fn_str") if lens else
            ("activation",))]
        jump, batch = "jumprelu" in words, "batchtopk" in words
        odd = set(t) - {weight, bias, "W_dec", "b_dec", "threshold" * jump}
        if "scaling_factor" in odd and (_floats(t, "scaling_factor", n) == 1).all():
            odd.remove("scaling_factor")  # SAELens 2 and 3 wrote ones
        if odd or lens and n == d and not {"architecture", "d_sae",
                                           "library"} & set(cfg):
            raise ValueError("%s: what %s means is not known"
                             % (t.path, " and ".join(odd) or "W_enc's axes"))
        self.W_enc = _floats(t, weight, d, n).T if lens else \
            _floats(t, weight, n, d)
        self.b_enc, self.b_dec = _floats(t, bias, n), _floats(t, "b_dec", d)
        self.W_dec, self.n_latents, self.d = _floats(t, "W_dec", n, d), n, d
        self.centered = not lens or cfg.get("apply_b_dec_to_input") is not False
        self.threshold = _floats(t, "threshold", n) if jump else \
            None if lens else cfg.get("threshold")
        for a in (self.W_enc, self.b_enc, self.W_dec, self.b_dec,
                  *[self.threshold] * jump):
            if not np.isfinite(a).all():
                raise ValueError("%s: has a NaN or an infinity" % t.path)
        if not (jump or self.threshold is None or batch and
                type(self.threshold) in (int, float) and
                0 <= self.threshold < 3.5e38):
            raise _bad(name, "threshold", self.threshold,
                       "a float from 0 on, and batchtopk")
        args = cfg.get("activation_fn_kwargs") if lens else None
        k = cfg.get("k")
        if k is None and isinstance(args, dict):
            k = args.get("k")
        self.k = k
        relu = lens and not jump and "topk" not in words
        if not (_is_int(k, 1) and k <= n or
                k is None and (relu or self.threshold is not None)):
            raise _bad(name, "k", k, "1 to %d, the latents" % n)
        if relu or self.threshold is not None:
            self.k = None

    def encode(self, x):
        x = np.asarray(x, "f4") - (self.b_dec if self.centered else 0)
        return _active(x @ self.W_enc.T + self.b_enc, self.k, self.threshold)

    def decode(self, z):
        return z @ self.W_dec + self.b_dec


class Table:
    """A linear layer's lookup table, lut(5): table(x) is the layer's output by
    it, and table.encode(x) what is active.  The tensors are attributes.

    It is the formula, in f32, to compare with: lut-apply is the fast way."""

    def __init__(self, directory, layer):
        if not os.path.exists(os.path.join(directory, "metadata.json")):
            directory = os.path.join(directory, "lut")
        path = os.path.join(directory, "metadata.json")
        meta = _load(path)
        if not str(meta.get("version")).startswith("1."):
            raise _bad(path, "version", meta.get("version"), "1.x")
        layers = meta.get("layers")
        plain = re.sub("^model[.]", "", layer)
        of = [v for v in (plain, "model." + plain)
              if isinstance(layers, dict) and v in layers]
        if len(of) != 1 or not isinstance(layers[of[0]], dict):
            raise ValueError("%s: has %s layer %s"
                             % (path, "twice the" if of[1:] else "no", layer))
        self.entry = entry = layers[of[0]]
        both = {**(meta.get("sae_config") or {}), **entry}
        n, d, out, self.k = (_size(both, key, path) for key in (
            "num_basis", "input_dim", "output_dim", "k_active"))
        file, kind = entry.get("file"), entry.get("activation") or "topk"
        centered = (entry.get("encoder") or {}).get("input_centering")
        bias = entry.get("target_bias")
        for key, v, good, expected in (
                ("k_active", self.k, self.k <= n, "at most num_basis, %d" % n),
                ("file", file, isinstance(file, str) and "/" not in file and
                 file[:1] not in ("", "."), "the name of a file there"),
                ("activation", kind, kind in ("topk", "threshold"),
                 "topk or threshold"),
                *((key, v, type(v) in (bool, type(None)), "true or false") for
                  key, v in (("input_centering", centered),
                             ("target_bias", bias)))):
            if not good:
                raise _bad(path, key, v, expected)
        # the mark of the Python exporter, whose tables are all centred
        self.centered = "script_version" in (meta.get("creation_info") or {}) \
            if centered is None else centered
        t = open_safetensors(os.path.join(directory, file))
        for tensor, *shape in (
                ("encoder_weight", n, d), ("encoder_bias", n),
                ("decoder_weight", n, d), ("decoder_bias", d),
                ("precomputed_products", n, out), ("bias_product", out)):
            setattr(self, tensor, _floats(t, tensor, *shape))
        self.threshold = None
        if "threshold" in t or kind == "threshold":
            self.threshold = _floats(t, "threshold", *(
                [] if "threshold" in t and t["threshold"].ndim == 0 else [n]))
            if kind == "topk" or not ((self.threshold >= 0) &
                                      (self.threshold < np.inf)).all():
                raise _bad(t.path, "threshold", self.threshold.tolist(),
                           "at least 0, and an activation that uses it")
        # what changes y and shows in no shape, as the file itself says it
        own = _json(t.metadata.get("lut", "{}").encode(), t.path).get("entry")
        theirs = own and [own.get("activation") or "topk", *(
            ours if v is None else v for ours, v in (
                (self.centered, own.get("encoder", {}).get("input_centering")),
                (bool(bias), own.get("target_bias"))))]
        if own and theirs != [kind, self.centered, bool(bias)]:
            raise _bad(path, "activation, input_centering, target_bias",
                       [kind, self.centered, bool(bias)],
                       "%s, as its file says" % theirs)

    def encode(self, x):
        x = np.asarray(x, "f4") - (self.decoder_bias if self.centered else 0)
        p = x @ self.encoder_weight.T + self.encoder_bias
        return _active(p, self.k, self.threshold)

    def __call__(self, x):
        return self.encode(x) @ self.precomputed_products + self.bias_product

    def reconstruct(self, x):
        """x by its active latents alone."""
        return self.encode(x) @ self.decoder_weight + self.decoder_bias


# ---- a layer's experts with LoRA, by libtensorutils ----

@functools.lru_cache(None)
def _library():
    name = "libtensorutils.so.0"
    here = os.path.dirname(os.path.abspath(__file__))
    # next to this file; of the PREFIX whose share has it; as the system finds it
    near = [os.path.join(here, name),
            os.path.join(here, "..", "..", "..", "lib", name)]
    paths = [os.environ["TENSORUTILS_LIB"]] if "TENSORUTILS_LIB" in os.environ \
        else [p for p in near if os.path.exists(p)] + [name]
    for path in paths:
        try:
            lib = ctypes.CDLL(path)
            break
        except OSError as e:
            why = e
    else:
        raise OSError("%s (make install puts it in PREFIX/lib; TENSORUTILS_LIB "
                      "names it elsewhere)" % why)
    for f in ("tu_moe_skipped", "tu_moe_depth"):
        getattr(lib, f).restype = ctypes.c_size_t
    lib.tu_moe_close.restype = None
    return lib


def _struct(name, *fields):
    """A struct of tensorutils.h that begins with its size."""
    new = type(name, (ctypes.Structure,),
               {"_fields_": [("size", ctypes.c_size_t), *fields]})
    return lambda **given: new(ctypes.sizeof(new), **given)


_n, _p, _i = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
_Config = _struct(
    "Config", ("n_experts", _n), ("top_k", _n), ("hidden", _n),
    ("intermediate", _n), ("lora_rank", _n), ("lora_alpha", ctypes.c_float),
    ("mode", _i), ("max_len", _n), ("max_cache_depth", _n), ("n_parts", _n),
    ("n_threads", _i), ("strict_ids", _i))
_Weights = _struct("Weights", ("n", _n), ("gate", _p), ("up", _p), ("down", _p))
_Lora = _struct("Lora", ("n", _n * 6), ("m", _p * 6))
_Batch = _struct("Batch", ("qlen", _n), ("top_k", _n), ("hidden", _n),
                 ("expert_ids", _p), ("weights", _p), ("input", _p))
_Grads = _struct("Grads", ("qlen", _n), ("input", _p), ("weights", _p),
                 ("lora_is_bf16", _i), ("n", _n * 6), ("lora", _p * 6))


class _Err(ctypes.Structure):
    _fields_ = [("status", _i), ("what", ctypes.c_char * 512)]


def _call(name, *args):
    err = _Err()
    if getattr(_library(), name)(*args, ctypes.byref(err)) != 0:
        what = err.what.decode(errors="replace")
        raise MemoryError(what) if err.status == 70 else ValueError(what)


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
        if getattr(self, "_moe", None):
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
