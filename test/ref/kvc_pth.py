# SPDX-License-Identifier: ISC
"""kvc-convert against numpy, and torch where it is: whole .bin files.

    kvc_pth.py GROUP    makes checkpoints in the working directory, converts them

Checkpoints come from test/ref/pth_make.py, the expected bytes from known
arrays by test/ref/kvc_ref.py: nothing of the tool's is in them.
"""
import collections
import os
import subprocess
import sys
import zipfile

import numpy as np

import kvc_ref
import mkst

if sys.argv[1:] != ["with_torch"]:  # which stands for torch, and must not meet it
    from pth_make import NAMESPACE, SCALAR, Storage, Tensor, Wrap, archive, dumps, legacy, parameter

P4 = ["compress_tk", "compress_tv", "compress_ik", "compress_iv"]
CLASS = {"F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage",
         "F64": "DoubleStorage", "I64": "LongStorage", "I32": "IntStorage",
         "I16": "ShortStorage", "I8": "CharStorage", "U8": "ByteStorage",
         "BOOL": "BoolStorage"}
rng = np.random.default_rng(7)
huge = False


def float8(e, m):
    """All of 128 codes from the lowest, as IEEE has them, infinities and NaN aside."""
    code = np.arange(128)
    exponent, mantissa = code >> m, (code & (1 << m) - 1) / 2**m
    bias = 2**(e - 1) - 1
    return np.where(exponent, (1 + mantissa) * 2.0**(exponent - bias), mantissa * 2.0**(1 - bias)).astype("<f4")


FLOAT8 = {"F8_E4M3": float8(4, 3), "F8_E5M2": float8(5, 2)}


def source(dtype, shape):
    """(bits as stored, what they are as f32)"""
    x = rng.standard_normal(shape)
    if dtype == "F32":
        a = x.astype("<f4")
        if huge:
            a.flat[0] = 1e6  # infinite in f16
        return a, a
    if dtype == "F64":  # first to f32, then to f16: 1 + 2^-11 ties down there
        a = x * 1.0000000001
        a.flat[0] = 1 + 2**-11 + 2**-40
        return a, a.astype("<f4")
    if dtype in ("F8_E4M3", "F8_E5M2"):
        a = rng.integers(0, 0x78, shape).astype("u1")  # finite ones
        return a, FLOAT8[dtype][a]
    if dtype == "F16":
        a = x.astype("<f2")
        return a, a.astype("<f4")
    if dtype == "BF16":
        a = kvc_ref.to_bf16(x.astype("<f4"))
        return a, (a.astype("<u4") << 16).view("<f4")
    if dtype == "BOOL":
        a = (x > 0).astype("u1")
        return a, a.astype("<f4")
    a = (x * 50).astype({"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1"}[dtype])
    if dtype == "I64":  # one rounding to f32, not two
        a.flat[0] = 2**53 + 2**29 + 1
        a.flat[1] = -(2**62 + 1)
    return a, a.astype("<f4")


def tensor(a, dtype, view="plain"):
    """The array behind a view of a larger storage."""
    rows = a.shape
    if dtype in FLOAT8:  # has no storage class of its own
        s = Storage(a.reshape(-1), "UntypedStorage")
        return Tensor(s, 0, rows, [rows[-1], 1][-a.ndim:], "v3", dtype, {"F8_E4M3": "float8_e4m3fn"}.get(dtype, "float8_e5m2"))
    if view == "transposed" and a.ndim == 2:
        s = Storage(np.ascontiguousarray(a.T).reshape(-1), CLASS[dtype])
        return Tensor(s, 0, rows, (1, rows[0]))
    if view == "stepped":
        wide = np.zeros((*rows[:-1], rows[-1] * 3), a.dtype)
        wide[..., ::3] = a
        s = Storage(wide.reshape(-1), CLASS[dtype])
        strides = [3 * rows[-1], 3][-a.ndim:]
        return Tensor(s, 0, rows, strides)
    if view == "offset":
        s = Storage(np.concatenate([np.ones(5, a.dtype), a.reshape(-1), np.ones(2, a.dtype)]), CLASS[dtype])
        return Tensor(s, 5, rows, [rows[-1], 1][-a.ndim:])
    s = Storage(a.reshape(-1), CLASS[dtype])
    return Tensor(s, 0, rows, [rows[-1], 1][-a.ndim:])


def build(layers=2, prefixes=P4, slots=(0, 3, 6), dk=8, factor=5, dims=(8, 6),
          dtype=lambda i: "F32", view=lambda i: "plain", bias=lambda i: True, start=""):
    """(state dict, {name: f32 array})"""
    sizes = [factor * dk, *dims, dk]
    state, values, i = collections.OrderedDict(), {}, 0
    for layer in range(layers):
        for p in prefixes:
            for j, slot in enumerate(slots):
                for kind in ("weight", "bias"):
                    if kind == "bias" and not bias(i):
                        continue
                    shape = (sizes[j + 1], sizes[j]) if kind == "weight" else (sizes[j + 1],)
                    d = dtype(i)
                    name = "%s.%d.%d.%s" % (p, layer, slot, kind)
                    if view(i) == "expanded" and kind == "weight":
                        a, v = source(d, (1, shape[1]))
                        t = tensor(a, d)
                        t.shape, t.strides = shape, (0, 1)
                        v = np.broadcast_to(v, shape)
                    else:
                        a, v = source(d, shape)
                        t = tensor(a, d, view(i))
                    state[start + name], values[name] = t, v
                    i += 1
    return state, values


def expected(values, layers=2, prefixes=P4, slots=(0, 3, 6), dtype="fp16", head_dim=0,
             factor=0, min_seq_len=2, num_heads=0):
    w0, end = (values["%s.0.%d.weight" % (prefixes[0], s)] for s in (slots[0], max(slots)))
    head_dim = head_dim or (w0 if w0.shape[1] % end.shape[0] else end).shape[0]
    out = kvc_ref.header(layers, dtype, num_heads, head_dim, w0.shape[1],
                         factor or w0.shape[1] // head_dim, min_seq_len, 3 * len(prefixes))
    blocks = ["%s.%d.%d." % (p, layer, s) for layer in range(layers) for p in prefixes for s in slots]
    return out + b"".join(
        kvc_ref.block(values[at + "weight"], values.get(at + "bias"), dtype) for at in blocks)


n_run = 0


def run(data, want, *options, name="c.pth"):
    global n_run
    with open(name, "wb") as f:
        f.write(data)
    if os.path.exists("c.bin"):
        os.remove("c.bin")
    line = ["kvc-convert", "--input", name, "--output", "c.bin", *options]
    r = subprocess.run(line, capture_output=True, text=True)
    assert r.returncode == 0 and not r.stdout, (line, r)
    # what --check refuses is not written without a warning
    check = subprocess.run(["kvc-convert", "--check", "c.bin"], capture_output=True, text=True)
    more = check.stdout.count("\n") - 1
    first = r.stderr.partition("--check will refuse it: ")[2].rstrip("\n")
    if more < 0:
        assert check.returncode == 0 and not r.stderr, (line, r)
    else:
        if more:
            first = first.removesuffix(", and %d more" % more)
        assert check.returncode == 1 and r.stderr.startswith("kvc-convert: c.bin: "), (line, r, check)
        assert "c.bin: %s\n" % first in check.stdout and r.stderr.count("\n") == 1, (line, r, check)
    with open("c.bin", "rb") as f:
        got = f.read()
    assert got == want, (line, len(got), len(want),
                         next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), None))
    n_run += 1


def dtypes():
    global huge
    huge = True
    names = list(CLASS)
    for out in ("fp16", "bf16", "fp32"):
        for d in names:
            state, values = build(dtype=lambda i: d)
            run(archive(state), expected(values, dtype=out), "--dtype", out)
        for d in FLOAT8:
            state, values = build(dtype=lambda i: d)
            run(archive(state), expected(values, dtype=out), "--dtype", out)
        state, values = build(dtype=lambda i: names[i % len(names)])
        run(archive(state), expected(values, dtype=out), "--dtype", out)
        run(legacy(state), expected(values, dtype=out), "--dtype", out)


def nans():
    """What the same type carries stays; other types' NaN are quiet."""
    name, at = "compress_tv.1.3.weight", 7
    for out, dtype, kept in (("fp16", "F16", 0x7C01), ("fp16", "F16", 0xFDAB), ("bf16", "BF16", 0x7F81),
                             ("bf16", "BF16", 0xFFAB), ("fp32", "F32", 0x7F800001), ("fp32", "F32", 0xFFABCDEF)):
        state, values = build(dtype=lambda i: dtype)
        bits = state[name].storage.array.view("<u4" if dtype == "F32" else "<u2")
        values = {n: v.copy() for n, v in values.items()}
        marker = values[name].reshape(-1)[at] = 0.5 if dtype == "F32" else np.float32(0.5)
        want = bytearray(expected(values, dtype=out))
        size = bits.itemsize
        before = kvc_ref.encode(values[name].reshape(-1)[at - 3:at], out)
        i = bytes(want).index(before) + len(before)
        assert want[i:i + size] == kvc_ref.encode(marker, out) and bytes(want).count(before) == 1
        bits[at] = kept
        want[i:i + size] = kept.to_bytes(size, "little")
        run(archive(state), bytes(want), "--dtype", out)


def views():
    kinds = ["plain", "transposed", "stepped", "offset", "expanded"]
    for v in kinds:
        state, values = build(view=lambda i: v)
        run(archive(state), expected(values))
    state, values = build(view=lambda i: kinds[i % 5], dtype=lambda i: ["F32", "F16", "F64"][i % 3])
    for p in (2, 3, 4, 5):
        run(archive(state, p), expected(values))
        run(legacy(state, p), expected(values))
    run(archive(state, method=8), expected(values))
    # one storage for all
    state, values = build()
    flat = np.concatenate([values[n].reshape(-1) for n in state])
    s, at = Storage(flat), 0
    for n, t in state.items():
        t.storage, t.offset = s, at
        at += values[n].size
    run(archive(state), expected(values))


def wrappings():
    state, values = build()
    want = expected(values)
    run(archive({"compressor": state}), want)
    run(archive({"model_state_dict": {"compressor": state, "x": 1}, "epoch": 3}), want)
    run(archive({"model_state_dict": {"compressor": state}, "compressor": {"a": 1}}), want)
    run(archive({"state_dict": state, "epoch": 3}), want)
    run(archive({"model_state_dict": state, "epoch": 3}), want)
    run(archive({"state_dict": {"compressor": state}}), want)
    run(archive({"compressor": {"cfg": 1}, "state_dict": state}), want)
    run(archive({"state_dict": {"lr": 1}, "model_state_dict": state}), want)
    # where the script looks comes first
    for beside in "state_dict", "model_state_dict":
        run(archive({**state, beside: {"a": 1}}), want)
        run(archive({beside: {"a": 1}, **state}), want, "--strict")
    run(archive({k: parameter(v) for k, v in state.items()}), want)
    extra = dict(state)
    extra["attention.0.weight"] = state["compress_tk.0.0.weight"]
    extra["compress_tk.note"] = "text"
    run(archive(extra), want)
    for start in ("module.", "compressor.", "module.compressor."):
        named, values = build(start=start)
        run(archive(named), expected(values))
    named, values = build(start="module.compressor.")
    with open("s.pth", "wb") as f:
        f.write(archive(named))
    r = subprocess.run(["kvc-convert", "--strict", "--input", "s.pth", "--output", "s.bin"],
                       capture_output=True, text=True)
    assert r.returncode == 65 and "has no compress_tk.LAYER.SLOT.weight" in r.stderr, r


def orders():
    state, values = build(bias=lambda i: False)
    run(archive(state), expected(values))
    state, values = build(bias=lambda i: i % 3 != 1)
    run(archive(state), expected(values))
    state, values = build()
    text = ["compress_tk", "compress_tv"]
    run(archive(state), expected(values, prefixes=text), "--prefix-order", ",".join(text))
    run(archive(state), expected(values, prefixes=text[::-1]), "--prefix-order", " compress_tv , compress_tk,")
    state, values = build(prefixes=text)
    run(archive(state), expected(values, prefixes=text), "--prefix-order", ",".join(text))
    state, values = build(slots=(1, 2, 9))
    run(archive(state), expected(values, slots=(1, 2, 9)), "--slot-order", "1, 2,9")
    state, values = build()
    run(archive(state), expected(values), "--slot-order", "00,03,6")
    state, values = build(dk=8, factor=1, dims=(8, 8))
    run(archive(state), expected(values, slots=(6, 3, 0)), "--slot-order", "6,3,0")
    state, values = build()
    for t in state.values():
        if len(t.shape) == 1:
            t.shape, t.strides = (*t.shape, 1), (1, 1)
    run(archive(state), expected(values))
    state, values = build(dims=(16, 6))
    want = expected(values, head_dim=8, factor=3, min_seq_len=7, num_heads=32, dtype="fp32")
    run(archive(state), want, "--head-dim", "8", "--compression-factor", "3", "--min-seq-len", "7",
        "--num-heads", "32", "--dtype", "fp32")
    state, values = build(layers=1)
    run(archive(state), expected(values, layers=1))
    # head_dim is the rows of the chain's end where the first weight has others
    state, values = build(prefixes=text, dk=32, factor=4, dims=(64, 48))
    want = expected(values, prefixes=text)
    assert kvc_ref.header(2, head_dim=32, hidden=128, factor=4, per_layer=6) == want[:44]
    run(archive(state), want, "--prefix-order", ",".join(text))
    # where these do not divide the columns, the script's guess remains
    state, values = build(dk=12, factor=5, dims=(10, 24))
    for i in range(2):
        for p in P4:
            for kind in "weight", "bias":
                name = "%s.%d.6.%s" % (p, i, kind)
                values[name] = values[name][:11]
                state[name].shape = (11, *state[name].shape[1:])
    want = expected(values)
    assert kvc_ref.header(2, head_dim=10, hidden=60, factor=6) == want[:44]
    run(archive(state), want)
    state, values = build(dk=8, factor=2, dims=(16, 8))
    want = expected(values, slots=(6, 3, 0))
    assert kvc_ref.header(2, head_dim=8, hidden=8, factor=1) == want[:44]
    run(archive(state), want, "--slot-order", "6,3,0")


def safetensors():
    state, values = build()
    mkst.save("c.safetensors", values)
    with open("c.safetensors", "rb") as f:
        data = f.read()
    for out in ("fp16", "bf16", "fp32"):
        run(data, expected(values, dtype=out), "--dtype", out, name="in.safetensors")


def realistic():
    """A trained 32-layer compressor of 178 MB in 3138 members, of which the
    optimizer has two thirds, with what trainers leave beside: attention, a
    scheduler, numpy's numbers, their arguments.  Written to big.pth, and what
    it becomes to want.bin."""
    state, values = build(layers=32, dk=128, factor=5, dims=(128, 128))
    for i in range(277):
        state["attention.%d.weight" % i] = Tensor(Storage(np.zeros(8, "<f4")), 0, (8,), (1,))
    adam = {i: {"step": 10, "exp_avg": Tensor(Storage(t.storage.array.copy()), 0, t.shape, t.strides),
                "exp_avg_sq": Tensor(Storage(t.storage.array.copy()), 0, t.shape, t.strides)}
            for i, t in enumerate(state.values())}
    groups = [{"lr": 1e-3, "betas": (0.9, 0.999), "params": list(adam)}]
    pkl, storages = dumps({"epoch": 3, "model_state_dict": {"compressor": state},
                           "optimizer_state_dict": {"state": adam, "param_groups": groups},
                           "scheduler_state_dict": {"best": Wrap(SCALAR, (np.dtype("<f8"), b"\0" * 8))},
                           "args": Wrap(NAMESPACE, (), state={"lr": 1e-3}), "loss": 0.5})
    with zipfile.ZipFile("big.pth", "w") as z:
        z.writestr("archive/data.pkl", pkl)
        for key, storage in storages.items():
            z.writestr("archive/data/" + key, storage.array.tobytes())
        z.writestr("archive/byteorder", "little")
        z.writestr("archive/version", "3\n")
    assert len(z.namelist()) == 3138
    with open("want.bin", "wb") as f:
        f.write(expected(values, layers=32))


def with_torch():
    import torch
    to = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
    dims = [40, 8, 6, 8]
    values = {"%s.%d.%d.%s" % (p, layer, 3 * j, kind):
              rng.standard_normal((dims[j + 1], dims[j])[:1 + (kind == "weight")]).astype("<f4")
              for layer in range(2) for p in P4 for j in range(3) for kind in ("weight", "bias")}
    for t in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64):
        state = collections.OrderedDict((n, (torch.from_numpy(np.array(v)) * 3).to(t)) for n, v in values.items())
        first = state["compress_tk.0.0.weight"]
        state["compress_tk.0.0.weight"] = torch.nn.Parameter(first, first.is_floating_point())
        state["compress_tv.0.0.weight"] = state["compress_tv.0.0.weight"].t().contiguous().t()
        for out, torch_dtype in to.items():
            # torch rounds, not numpy
            rounded = {n: np.array(v.detach().to(torch_dtype).float()) for n, v in state.items()}
            want = expected(rounded, dtype=out)
            for new in (True, False):
                for p in (2, 4):
                    obj = {"epoch": 1, "model_state_dict": {"compressor": state},
                           "optimizer_state_dict": {"state": {0: {"exp_avg": torch.zeros(4)}}}}
                    torch.save(obj, "t.pth", pickle_protocol=p, _use_new_zipfile_serialization=new)
                    with open("t.pth", "rb") as f:
                        run(f.read(), want, "--dtype", out)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print(n_run)
