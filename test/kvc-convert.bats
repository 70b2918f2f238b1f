# SPDX-License-Identifier: ISC
# kvc-convert: whole files against numpy and torch (test/ref/kvc_pth.py), and
# what a user types.
load helpers

# converts GROUP: every checkpoint of the group becomes the expected bytes.
converts() {
    run -0 py "$ROOT/test/ref/kvc_pth.py" "$1"
}

# make_bin FILE [PYTHON EXPRESSION OF SAVE'S OPTIONS]: 2 layers, 12 blocks each.
make_bin() {
    py -c 'import sys, numpy as np, kvc_ref as k
kw = eval("dict(%s)" % sys.argv[2])
k.save(sys.argv[1], k.random_mlps(np.random.default_rng(kw.pop("seed", 0)), 2, kw.pop("n", 4), 8, 5, 24, 12,
       kw.pop("bias", True)), 8, 5, **kw)' "$1" "${2:-}"
}

# poke FILE OFFSET BYTES: changes them.
poke() {
    printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

@test "kvc-convert: every dtype to fp16, bf16 and fp32 is numpy's" {
    converts dtypes
    [ "$output" = 42 ]
}

@test "kvc-convert --dtype: f32 is fp32, f16 is fp16" {
    py -c 'from kvc_pth import *
state, values = build()
open("X.pth", "wb").write(archive(state))
open("want.bin", "wb").write(expected(values, dtype="fp32"))'
    for o in f32 fp32; do
        kvc-convert --input X.pth --output $o.bin --dtype $o
        cmp $o.bin want.bin
    done
    run -2 kvc-convert --input X.pth --output Y.bin --dtype f64
    [ "${lines[0]}" = 'kvc-convert: --dtype: "f64" is not one of f16, bf16, f32' ]
}

@test "kvc-convert: NaN of the same type keep their bits" {
    converts nans
    [ "$output" = 6 ]
}

@test "kvc-convert: views, shared storages, protocols 2 to 5, legacy, deflated" {
    converts views
    [ "$output" = 15 ]
}

@test "kvc-convert: wrapped, flat, named by a wrapper, Parameters" {
    converts wrappings
    [ "$output" = 17 ]
}

@test "kvc-convert: missing biases, text only, other prefixes and slots, header options" {
    converts orders
    [ "$output" = 14 ]
}

@test "kvc-convert: what --check will refuse is written with a warning" {
    py -c 'from kvc_pth import *
open("c.pth", "wb").write(archive(build()[0]))
state, values = build()
state["compress_tv.1.3.bias"].storage.array[2] = 1e6
open("inf.pth", "wb").write(archive(state))'
    warns() {
        run -0 --separate-stderr kvc-convert --output Y.bin -f "${@:2}"
        [ "$stderr" = "kvc-convert: Y.bin: --check will refuse it: $1" ]
        run -0 --separate-stderr kvc-convert --output Y.bin -qf "${@:2}"
        [ -z "$stderr" ]
        run -1 kvc-convert --check Y.bin
    }
    more="layer 0 block 0: 40 columns (expected compression_factor"
    warns "head_dim 4 x compression_factor 5 is not hidden_size, 40, and 16 more" --input c.pth --head-dim 4 --compression-factor 5
    [ "${lines[1]}" = "Y.bin: $more 5 x head_dim 4)" ]
    warns "head_dim 8 x compression_factor 4 is not hidden_size, 40, and 8 more" --input c.pth --compression-factor 4
    [ "${lines[1]}" = "Y.bin: $more 4 x head_dim 8)" ]
    warns "weight_count_per_layer is 3 (expected 6, text, or 12, text and image)" --input c.pth --prefix-order compress_tk
    warns "layer 1 block 4: 1 NaN or infinite number" --input inf.pth
    run -0 --separate-stderr kvc-convert --input inf.pth --output Z.bin --dtype fp32
    [ -z "$stderr" ]
}

@test "kvc-convert: safetensors with a state dict's names" {
    converts safetensors
    [ "$output" = 3 ]
}

# bats test_tags=long
@test "kvc-convert: torch's own files, rounded by torch" {
    need_torch
    converts with_torch
    [ "$output" = 60 ]
}

@test "kvc-convert: the command lines work as written" {
    py -c 'from kvc_pth import *
state, values = build()
open("X.pth", "wb").write(archive(state)); open("want.bin", "wb").write(expected(values))'
    kvc-convert --input X.pth --output Y.bin --dtype fp16 --prefix-order compress_tk,compress_tv \
        --slot-order 0,3,6 --compression-factor 5 --min-seq-len 2 --num-heads 0 --head-dim 8
    [ "$(kvc-convert --info Y.bin | grep weight_count)" = "$(printf 'weight_count_per_layer\t6')" ]
    kvc-convert --input X.pth --output Y.bin -f
    cmp Y.bin want.bin
    kvc-convert -i X.pth -o I.bin --dtype f16
    cmp I.bin want.bin
    kvc-convert --input Y.bin --output Z.safetensors
    st-inspect verify Z.safetensors
    kvc-convert --info Y.bin
    kvc-convert --check --layers 2 Y.bin
    cp Y.bin A.bin
    cp Y.bin B.bin
    kvc-convert --diff A.bin B.bin
}

# bats test_tags=long
@test "kvc-convert: .bin to safetensors to .bin is the same file" {
    for o in '' 'dtype="bf16"' 'dtype="fp32", min_seq_len=9, num_heads=3' 'n=2' 'bias=False' 'metadata=bytes(range(256))'; do
        rm -f a.* b.*
        make_bin a.bin "$o"
        kvc-convert --input a.bin --output b.safetensors
        kvc-convert --input b.safetensors --output b.bin
        cmp a.bin b.bin
    done
    rm -f a.* b.*
    make_bin a.bin 'n=2'
    kvc-convert --input a.bin --output b.safetensors --prefix-order x_k,x_v --slot-order 1,2,3
    [ "$(st-inspect list b.safetensors | grep -c 'x_[kv]\.[01]\.[123]\.')" = 24 ]
    kvc-convert --input b.safetensors --output b.bin
    cmp a.bin b.bin
}

@test "kvc-convert: a .bin becomes one of another dtype and header over safetensors" {
    make_bin want.bin 'metadata=b"abc", min_seq_len=4, num_heads=2, dtype="bf16", bias=False'
    make_bin from.bin 'metadata=b"abc", dtype="fp32", bias=False'
    kvc-convert --input from.bin --output c.safetensors
    kvc-convert --input c.safetensors --output c.bin --dtype bf16 --num-heads 2 --min-seq-len 4
    cmp want.bin c.bin
    run -2 kvc-convert --input from.bin --output e.bin
    [ "${lines[0]}" = "kvc-convert: --output: from.bin is converted to safetensors, and these to a .bin" ]
    (cat from.bin; printf xyz) >long.bin
    run -65 kvc-convert --input long.bin --output e.safetensors
    [ "$output" = "kvc-convert: long.bin: 3 bytes after the last block" ]
    [ ! -e e.safetensors ]
}

@test "kvc-convert: an output named .pth is refused" {
    make_bin a.bin
    kvc-convert --input a.bin --output a.safetensors
    py -c 'from kvc_pth import *
open("c.pth", "wb").write(archive(build()[0]))'
    for from in a.bin a.safetensors c.pth; do
        run -2 kvc-convert --input $from --output new.pth
        [ "${lines[0]}" = "kvc-convert: --output: new.pth: checkpoints are not written (expected .bin or .safetensors)" ]
        [ ! -e new.pth ]
    done
}

@test "kvc-convert: a .bin that safetensors cannot hold is refused at once" {
    refuse() {
        run -65 kvc-convert --input "$1" --output Z.safetensors
        [ "$output" = "kvc-convert: $1: $2" ]
        [ ! -e Z.safetensors ]
    }
    make_bin a.bin
    cp a.bin eight.bin
    poke eight.bin 12 '\003'
    poke eight.bin 36 '\010'
    refuse eight.bin "8 blocks a layer (expected 3 a prefix)"
    # 200 000 000 bytes, and a hole for them
    head -c 44 a.bin >meta.bin
    poke meta.bin 40 '\000\302\353\013'
    truncate -s 200000044 meta.bin
    tail -c +45 a.bin >>meta.bin
    refuse meta.bin "metadata of 200000000 bytes (expected at most 50000000, for the header of safetensors)"
}

@test "kvc-convert: names and numbers of the safetensors are numpy's" {
    make_bin a.bin
    kvc-convert --input a.bin --output a.safetensors
    py - <<'END'
import numpy as np, kvc_ref as k, mkst
t = mkst.read("a.safetensors")[0]
m = k.random_mlps(np.random.default_rng(0), 2, 4, 8, 5, 24, 12)
n = 0
for L, layer in enumerate(m):
    for p, mlp in zip("compress_tk compress_tv compress_ik compress_iv".split(), layer):
        for s, (w, b) in zip((0, 3, 6), mlp):
            for kind, x in (("weight", w), ("bias", b)):
                assert (t["%s.%d.%d.%s" % (p, L, s, kind)] == x.astype("<f2")).all()
                n += 1
assert len(t) == n == 48
END
}

@test "kvc-convert --check: each defect has its own line, status 1" {
    make_bin a.bin
    run -0 kvc-convert --check a.bin
    [ -z "$output" ]
    run -1 kvc-convert --check --layers 3 a.bin
    [ "$output" = "a.bin: has 2 layers (expected the model's 3)" ]
    (cat a.bin; printf xyz) >long.bin
    poke long.bin 52 '\002'
    poke long.bin 56 '\000\174\000\176'
    run -1 kvc-convert --check long.bin
    [ "${lines[0]}" = "long.bin: 3 bytes after the last block" ]
    [ "${lines[1]}" = "long.bin: layer 0 block 0: has_bias is 2 (expected 0 or 1)" ]
    [ "${lines[2]}" = "long.bin: layer 0 block 0: 2 NaN or infinite numbers" ]
    py - <<'END'
import numpy as np, kvc_ref as k
r = np.random.default_rng(0)
def mlp(*shapes):
    return [(r.standard_normal(s).astype("<f4"), None) for s in shapes]
good = mlp((4, 40), (4, 4), (8, 4))
k.save("chain.bin", [[mlp((4, 41), (4, 5), (9, 4)), good]], 8, 5)
END
    run -1 kvc-convert --check chain.bin
    [ "${lines[0]}" = "chain.bin: hidden_size is 40, but the first block has 41 columns" ]
    [ "${lines[1]}" = "chain.bin: layer 0 block 0: 41 columns (expected compression_factor 5 x head_dim 8)" ]
    [ "${lines[2]}" = "chain.bin: layer 0 block 1: 5 columns, but the block before has 4 rows" ]
    [ "${lines[3]}" = "chain.bin: layer 0 block 2: 9 rows (expected head_dim, 8)" ]
    head -c 3000 a.bin >cut.bin
    run -1 kvc-convert --check a.bin cut.bin
    [[ $output == "cut.bin: block "*" bytes are left" ]]
    run -66 kvc-convert --check none.bin
}

@test "kvc-convert --check: what InfiniLM's loader has no room for" {
    py - <<'END'
import kvc_ref as k, struct
with open("layers.bin", "wb") as f:
    f.write(k.header(10001, head_dim=1, hidden=2, factor=2, per_layer=6))
    for i in range(10001 * 2):
        for cols in 2, 1, 1:
            f.write(struct.pack("<III", 1, cols, 0) + bytes(2 * cols))
with open("numbers.bin", "wb") as f:
    f.write(k.header(1, head_dim=10000, hidden=20000, factor=2, per_layer=3))
    for rows, cols in (5001, 20000), (1, 5001), (10000, 1):
        f.write(struct.pack("<III", rows, cols, 0))
        f.seek(2 * rows * cols, 1)
    f.truncate()
END
    run -1 kvc-convert --check layers.bin
    [ "$output" = "layers.bin: has 10001 layers (engines load at most 10000)" ]
    run -1 kvc-convert --check numbers.bin
    [ "${lines[1]}" = "numbers.bin: layer 0 block 0: 5001 x 20000 numbers (engines load at most 100000000)" ]
}

@test "kvc-convert --check: blocks that a sparse file promises take no memory" {
    make_bin a.bin
    poke a.bin 12 '\377\377\377\377'
    size=$(stat -c %s a.bin)
    truncate -s 1T a.bin
    run -1 kvc-convert --check a.bin
    [ "$output" = "a.bin: block 24 at byte $size is 0 x 0 (expected 1 or more)" ]
}

@test "kvc-convert --diff: header fields, shapes, and ULP" {
    make_bin a.bin
    cp a.bin b.bin
    run -0 kvc-convert --diff a.bin b.bin
    [ "$(grep -c same <<<"$output")" = 24 ]
    # the last byte of the file is the high byte of a number: 2 more is 512 ULP
    last=$(tail -c 1 b.bin | od -An -tu1)
    poke b.bin $(($(stat -c %s b.bin) - 1)) "\\$(printf %03o $((last ^ 2)))"
    run -1 kvc-convert --diff a.bin b.bin
    [[ ${lines[-1]} == "$(printf '1\t11\tdiffers\t104\t1\t512\t')"* ]]
    make_bin c.bin 'n=2, min_seq_len=3'
    run -1 kvc-convert --diff a.bin c.bin
    grep -q "^$(printf 'min_seq_len\t2\t3')\$" <<<"$output"
    grep -q "^$(printf 'weight_count_per_layer\t12\t6')\$" <<<"$output"
    # what no block has: the reserved field, the metadata
    make_bin m.bin 'metadata=b"ab"'
    make_bin n.bin 'metadata=b"ac", reserved=7'
    run -1 kvc-convert --diff m.bin n.bin
    [ "${lines[1]}" = "$(printf 'reserved\t0\t7')" ]
    [ "${lines[2]}" = "$(printf 'metadata\tdiffers\tdiffers')" ]
    [ "$(grep -c same <<<"$output")" = 24 ]
    make_bin d.bin 'bias=False'
    run -1 kvc-convert --diff a.bin d.bin
    grep -q "^$(printf '0\t0\tshape\t24x40+bias\t24x40\t-\t-')\$" <<<"$output"
}

@test "kvc-convert --info: where each block is, and the XXH3-128 of its numbers" {
    make_bin a.bin 'dtype="bf16", metadata=b"xyz"'
    kvc-convert --info a.bin | "$PYTHON" -c 'import ctypes, struct, sys
class Sum(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]
xxh3 = ctypes.CDLL("libxxhash.so.0").XXH3_128bits
xxh3.restype, xxh3.argtypes = Sum, (ctypes.c_char_p, ctypes.c_size_t)
data = open("a.bin", "rb").read()
rows = [line.split() for line in sys.stdin][-24:]
at = 44 + 3
for i, row in enumerate(rows):
    r, c, bias = struct.unpack("<III", data[at:at + 12])
    n = 2 * (r * c + r * bias)
    h = xxh3(data[at + 12:at + 12 + n], n)
    assert bias == 1 and row == [str(x) for x in (i // 12, i % 12, r, c, bias, at)] + ["%016x%016x" % (h.high, h.low)], row
    at += 12 + n
assert at == len(data)'
}

@test "kvc-convert --info --json: valid JSON with every header field" {
    make_bin a.bin 'metadata=b"{\"a\": \"\x1b\"}"'
    kvc-convert --info --json a.bin | "$PYTHON" -c 'import json, sys
d = json.load(sys.stdin)
assert (d["num_layers"], d["head_dim"], d["hidden_size"], d["compression_factor"]) == (2, 8, 40, 5), d
assert len(d["blocks"]) == 24 and d["blocks"][1]["rows"] == 12, d
assert d["metadata"] == "{\"a\": \"\x1b\"}", d'
}

@test "kvc-convert: a closed standard output is an error where there is an answer" {
    make_bin a.bin
    run -74 bash -c 'kvc-convert --info a.bin >&-'
    [ "$output" = "kvc-convert: standard output: Bad file descriptor" ]
    run -0 bash -c 'kvc-convert --check a.bin >&-'
    run -0 bash -c 'kvc-convert --input a.bin --output a.safetensors >&-'
}

@test "kvc-convert -v: what was used, what was ignored, what was not called" {
    py -c 'from kvc_pth import *
state, values = build()
for n in "attention.0.weight", "compress_tk.0.1.weight", "compress_tk.01.3.weight":
    state[n] = state["compress_tk.0.0.weight"]
open("X.pth", "wb").write(archive({"compressor": state, "epoch": 3}))'
    run -0 --separate-stderr kvc-convert --input X.pth --output Y.bin -v
    [ -z "$output" ]
    grep -q '^kvc-convert: X.pth: 48 tensors used, 3 ignored$' <<<"$stderr"
    [ "$(grep -c '^kvc-convert: used: compress_[ti][kv]\.[01]\.[036]\.\(weight\|bias\)$' <<<"$stderr")" = 48 ]
    # a norm between its matrices, or a layer by another spelling, is not silent
    grep -qx 'kvc-convert: X.pth: 2 tensors that may change a converted layer, ignored: compress_tk.0.1.weight, compress_tk.01.3.weight' <<<"$stderr"
    [ "$(grep -v tensors <<<"$stderr" | grep -o 'ignored: .*' | LC_ALL=C sort)" = "ignored: attention.0.weight
ignored: compress_tk.0.1.weight
ignored: compress_tk.01.3.weight" ]
    at=$(py -c 'import pickletools, zipfile
print(next(at for op, arg, at in pickletools.genops(zipfile.ZipFile("X.pth").read("archive/data.pkl"))
           if arg == "torch._utils _rebuild_tensor_v2"))')
    grep -qx "kvc-convert: global: torch._utils._rebuild_tensor_v2 at byte $at, not called" <<<"$stderr"
    # an MLP taken twice is there once
    run -0 --separate-stderr kvc-convert --input X.pth --output Z.bin -v --prefix-order compress_tk,compress_tk
    grep -q '^kvc-convert: X.pth: 12 tensors used, 39 ignored$' <<<"$stderr"
}

@test "kvc-convert --allow: a class that is not listed is passed over, one that runs code never" {
    py - <<'END'
import datetime, pathlib
from kvc_pth import *
from pth_make import fake
config, odd = fake("mine", "Config"), fake("mine", "Odd")
state, values = build()
def put(name, protocol=4, **beside):
    open(name, "wb").write(archive({"compressor": state, **beside}, protocol))
put("X.pth", args=Wrap(config, (1,), state={"a": 2}), odd=odd)
known = dict(args=Wrap(NAMESPACE, (), state={"path": pathlib.PosixPath("a/b"), "dtype": np.float32}),
             rng=np.random.RandomState(1).get_state(), bytes=b"ab\xff", steps=collections.Counter([30, 30, 80]),
             when=datetime.datetime.now(), array=np.ones((2, 2)), type=fake("torch", "float32"),
             device=Wrap(fake("torch", "device"), ("cpu",)), sets=[{1}, frozenset([2]), bytearray(b"c"), 1j])
for p in 2, 3, 4, 5:
    put("known-%d.pth" % p, p, **known)
put("danger.pth", x=Wrap(fake("posix", "system"), ("true",)))
open("want.bin", "wb").write(expected(values))
END
    for p in 2 3 4 5; do
        kvc-convert --input known-$p.pth --output Y.bin
        cmp Y.bin want.bin
        rm Y.bin
    done
    run -65 kvc-convert --input X.pth --output Y.bin
    [[ $output == "kvc-convert: X.pth: data.pkl: byte "*": global mine.Config is not one that weights need (--allow mine.Config ignores it)" ]]
    run -65 kvc-convert --input X.pth --output Y.bin --allow mine.Config
    [[ $output == *": global mine.Odd is not one "* ]]
    [ ! -e Y.bin ]
    run -0 kvc-convert --input X.pth --output Y.bin --allow mine.Config --allow=mine.Odd -v
    grep -q '^kvc-convert: global: mine.Config at byte .*, not called$' <<<"$output"
    cmp Y.bin want.bin
    run -65 kvc-convert --input danger.pth --output Z.bin
    [[ $output == *": global posix.system could run code: no checkpoint needs it" ]]
    for o in posix.system os.path.join builtins.eval torch.os.system; do
        run -2 kvc-convert --input danger.pth --output Z.bin --allow $o
        [ "${lines[0]}" = "kvc-convert: --allow: $o could run code: no checkpoint needs it" ]
    done
    for o in system .system posix. ''; do
        run -2 kvc-convert --input danger.pth --output Z.bin --allow "$o"
        [ "${lines[0]}" = "kvc-convert: --allow: \"$o\" is not MODULE.NAME" ]
    done
}

@test "kvc-convert --provenance: where a file is from, in its metadata" {
    py -c 'from kvc_pth import *
open("X.pth", "wb").write(archive(build()[0]))'
    kvc-convert --input X.pth --output Y.bin --provenance
    kvc-convert --info --json Y.bin | "$PYTHON" -c 'import json, sys
m = json.loads(json.load(sys.stdin)["metadata"])
assert m["tool"].startswith("kvc-convert ") and m["source"] == "X.pth"
assert m["order"] == "compress_tk,compress_tv,compress_ik,compress_iv" and len(m) == 3, m'
    kvc-convert --check Y.bin
    kvc-convert --input X.pth --output Z.bin
    run -1 kvc-convert --diff Y.bin Z.bin
    [ "$(grep -c differs <<<"$output")" = 0 ]
}

@test "kvc-convert: the prefixes of a file are named where others are looked for" {
    py -c 'import mkst
def save(name, *prefixes):
    mkst.save(name, {f"{p}.{l}.{s}.weight": ("F32", [4, 4], bytes(64))
                     for p in prefixes for l in range(2) for s in (0, 3, 6)})
save("text.safetensors", "compress_tk", "compress_tv")
save("odd.safetensors", "x.0", "a,b")'
    run -65 kvc-convert --input text.safetensors --output Y.bin
    [ "$output" = "kvc-convert: text.safetensors: tensor compress_ik.0.0.weight is missing (the file has --prefix-order compress_tk,compress_tv)" ]
    kvc-convert --input text.safetensors --output Y.bin --prefix-order compress_tk,compress_tv
    run -65 kvc-convert --input text.safetensors --output Z.bin --prefix-order compres_tk,compress_tv
    [ "$output" = "kvc-convert: text.safetensors: tensor compres_tk.0.0.weight is missing (the file has --prefix-order compress_tk,compress_tv)" ]
    run -65 kvc-convert --input text.safetensors --output Z.bin --prefix-order k,v
    [ "$output" = "kvc-convert: text.safetensors: has no k.LAYER.SLOT.weight (of 12 names) (the file has --prefix-order compress_tk,compress_tv)" ]
    run -65 kvc-convert --input odd.safetensors --output Z.bin # no list can have a comma in a name
    [ "$output" = "kvc-convert: odd.safetensors: has no compress_tk.LAYER.SLOT.weight (of 12 names) (the file has --prefix-order x.0)" ]
    [ ! -e Z.bin ]
}

@test "kvc-convert: what is missing or does not fit is named, nothing is left" {
    py - <<'END'
from kvc_pth import *
def put(name, change):
    state, _ = build()
    change(state)
    open(name, "wb").write(archive(state))
def shorter(s): s["compress_tk.1.3.bias"].shape = (5,)
def flat(s): s["compress_iv.0.6.weight"] = s["compress_iv.0.6.bias"]
def empty(s): s["compress_iv.0.6.weight"].shape = (0, s["compress_iv.0.6.weight"].shape[1])
def far(s): s["compress_tk.7.0.weight"] = s["compress_tk.0.0.weight"]
put("missing.pth", lambda s: s.pop("compress_ik.1.3.weight"))
put("bias.pth", shorter)
put("flat.pth", flat)
put("empty.pth", empty)
put("layer.pth", far)
def vast(s): s["compress_tk.0.0.weight"].shape, s["compress_tk.0.0.weight"].strides = (8, 2**32 - 8), (0, 0)
put("vast.pth", vast)
put("text.pth", lambda s: s.update({"compress_tk.0.3.weight": "no tensor"}))
def stored(name, cls, dtype):
    def change(s):
        s[name].storage.array, s[name].storage.cls = np.zeros(6, dtype), cls
    return change
put("neg.pth", lambda s: setattr(s["compress_tk.0.3.weight"], "how", "neg"))
put("quantized.pth", stored("compress_tk.0.3.bias", "QUInt8Storage", "u1"))
put("complex.pth", stored("compress_tv.0.3.bias", "ComplexFloatStorage", "<c8"))
put("other-bias.pth", lambda s: s.update({"compress_tv.0.3.bias": None}))
open("other.pth", "wb").write(archive({"a": 1}))
open("list.pth", "wb").write(archive([1, 2]))
END
    refuse() {
        run -65 kvc-convert --input "$1" --output Y.bin
        [ "$output" = "kvc-convert: $2" ]
        [ -z "$(find . -name '*Y.bin*')" ]
    }
    refuse missing.pth "missing.pth: tensor compress_ik.1.3.weight is missing"
    refuse bias.pth "bias.pth: compress_tk.1.3.bias has 5 numbers (expected 6, the rows of its weight)"
    refuse flat.pth "flat.pth: compress_iv.0.6.weight has 1 dim (expected 2)"
    run -65 kvc-convert --input empty.pth --output Y.bin
    [[ $output == "kvc-convert: empty.pth: compress_iv.0.6.weight is 0 x "*" (expected 1 to 4294967295)" ]]
    refuse layer.pth "layer.pth: tensor compress_tk.2.0.weight is missing"
    refuse text.pth "text.pth: compress_tk.0.3.weight is not a tensor"
    at=$(py -c 'import pickletools, zipfile
for name, what in ("neg", "torch._utils _rebuild_tensor_v2"), ("quantized", "torch QUInt8Storage"):
    print(next(at for op, arg, at in pickletools.genops(zipfile.ZipFile(name + ".pth").read("archive/data.pkl"))
               if arg == what))')
    refuse neg.pth "neg.pth: compress_tk.0.3.weight is made by torch._utils._rebuild_tensor_v2, named at byte ${at%$'\n'*} (expected a plain tensor)"
    refuse quantized.pth "quantized.pth: compress_tk.0.3.bias is made by torch.QUInt8Storage, named at byte ${at#*$'\n'} (expected a plain tensor)"
    refuse complex.pth "complex.pth: compress_tv.0.3.bias is C64 (expected numbers)"
    run -65 kvc-convert --input neg.pth --output Y.bin -v
    grep -q '^kvc-convert: used: compress_tk.0.0.weight$' <<<"$output"
    grep -q '^kvc-convert: global: torch._utils._rebuild_tensor_v2 at byte' <<<"$output"
    run -65 kvc-convert --input list.pth --output Y.bin -v
    refuse other-bias.pth "other-bias.pth: compress_tv.0.3.bias is not a tensor"
    refuse other.pth "other.pth: has no compress_tk.LAYER.SLOT.weight (of 1 name)"
    run -65 kvc-convert --input other.pth --output Y.bin -v
    [ "${lines[0]}" = "kvc-convert: ignored: a" ]
    refuse list.pth "list.pth: is a pickle, but not of a state dict"
    run -65 kvc-convert --input vast.pth --output Y.bin
    [[ $output =~ ^kvc-convert:\ vast.pth:\ 24\ weights\ become\ 687194[0-9]{5}\ bytes,\ but\ only\ [0-9]+\ are\ stored ]]
    run -65 kvc-convert --input missing.pth --output Y.bin --head-dim 3
    [ "$output" = "kvc-convert: missing.pth: the first weight has 40 columns, which head_dim 3 does not divide (--head-dim)" ]
    echo old >Y.bin
    run -73 kvc-convert --input bias.pth --output Y.bin
    [ "$output" = "kvc-convert: Y.bin: exists already (--force replaces it)" ]
    run -65 kvc-convert --input bias.pth --output Y.bin -f
    [ "$(cat Y.bin)" = old ]
    run -66 kvc-convert --input none.pth --output Z.bin
}

@test "kvc-convert: tensors that change a converted weight are named, a layer beyond 32 bits is refused" {
    py - <<'END'
from kvc_pth import *
state, values = build()
def put(path, *names):
    more = {n: state["compress_tk.0.0.bias"] for n in names}
    open(path, "wb").write(archive({"compressor": {**state, **more}}))
open("want.bin", "wb").write(expected(values))
put("plain.pth")
put("other.pth", "attention.0.SCB", "compressor.0.1.weight")
for n in "SCB", "weight_scale", "weight_mask", "weight.absmax", "lora_A.default.weight":
    put(n + ".pth", "compress_tv.1.3." + n)
put("many.pth", *("compress_%s.1.6.SCB" % p for p in "tk tv ik iv".split()), "compress_tk.0.6.lora_B")
for n in 2**32 - 1, 2**64, 10**20 - 1, 10**300:
    put("layer%d.pth" % len(str(n)), "compress_tk.%d.0.weight" % n)
END
    for f in plain other; do
        run -0 kvc-convert --input $f.pth --output $f.bin
        [ -z "$output" ]
    done
    for f in SCB weight_scale weight_mask weight.absmax lora_A.default.weight; do
        run -0 kvc-convert --input $f.pth --output $f.bin
        [ "$output" = "kvc-convert: $f.pth: 1 tensor that may change a converted layer, ignored: compress_tv.1.3.$f" ]
    done
    run -0 kvc-convert --input many.pth --output many.bin
    [[ $output == "kvc-convert: many.pth: 5 tensors that may change a converted layer, ignored: compress_tk.1.6.SCB, "*", .." ]]
    for f in *.bin; do cmp want.bin $f; done
    for n in 10 20 301; do
        run -65 kvc-convert --input layer$n.pth --output none.bin
        [[ $output == "kvc-convert: layer$n.pth: compress_tk."*".0.weight is of a layer beyond 4294967294" ]]
    done
    [ ! -e none.bin ]
}

@test "kvc-convert: a safetensors' own kvc. metadata is an input like any other" {
    py - <<'END'
from kvc_pth import *
_, values = build()
def put(name, **meta):
    mkst.save(name, values, {"kvc." + k: v for k, v in meta.items()})
put("zero.st", head_dim="0")
put("bin.st", head_dim="8", compression_factor="5")
put("prefix.st", prefix_order=",")
put("slot.st", slot_order="1")
put("text.st", min_seq_len="two")
END
    refuse() {
        run -65 kvc-convert --input "$1.st" --output Y.bin ${3:-}
        [ "$output" = "kvc-convert: $1.st: $2" ]
        [ ! -e Y.bin ]
    }
    refuse zero "the first weight has 40 columns, which head_dim 0 does not divide (--head-dim)"
    refuse bin "the first weight has 40 columns, which head_dim 3 does not divide (--head-dim)" --head-dim=3
    all=compress_tk,compress_tv,compress_ik,compress_iv
    want='(expected 1 to 16 names, 3 numbers)'
    refuse prefix "__metadata__ kvc.prefix_order is \",\", kvc.slot_order \"0,3,6\" $want"
    refuse slot "__metadata__ kvc.prefix_order is \"$all\", kvc.slot_order \"1\" $want"
    refuse text "__metadata__ kvc.min_seq_len is \"two\" (expected a number)"
    # a head_dim of 0 comes back, where the factor is known
    kvc-convert --input zero.st --output Y.bin --compression-factor 5
    [ "$(kvc-convert --info Y.bin | grep ^head_dim)" = "$(printf 'head_dim\t0')" ]
}

@test "kvc-convert --if-missing: a sound output is success, a broken one is not" {
    py -c 'from kvc_pth import *
open("X.pth", "wb").write(archive(build()[0]))'
    kvc-convert --input X.pth --output Y.bin --if-missing
    before=$(stat -c %Y.%i Y.bin)
    kvc-convert --input X.pth --output Y.bin --if-missing
    [ "$(stat -c %Y.%i Y.bin)" = "$before" ]
    truncate -s -1 Y.bin
    run -65 kvc-convert --input X.pth --output Y.bin --if-missing
}

@test "kvc-convert: a damaged input is not said to be a wrong command line" {
    make_bin a.bin
    : >empty
    tail -c +5 a.bin >beheaded
    for o in b.bin b.safetensors; do
        run -65 kvc-convert --input empty --output $o
        [ "$output" = "kvc-convert: empty: is empty (0 bytes)" ]
        run -65 kvc-convert --input beheaded --output $o
        [[ $output == "kvc-convert: beheaded: is not a PyTorch checkpoint (found byte "* ]]
        [ ! -e $o ]
    done
    py -c 'from kvc_pth import *
open("c.pth", "wb").write(archive(build()[0]))'
    kvc-convert --input a.bin --output a.safetensors
    for from in c.pth a.safetensors; do
        run -2 kvc-convert --input $from --output b.safetensors
        [ "${lines[0]}" = "kvc-convert: --output: $from is converted to a .bin, not to safetensors" ]
    done
}

@test "kvc-convert: options that make no sense are refused with 2" {
    for o in '' '--input a' '--input a --output b c' '--info' '--diff a' '--info --check a' \
        '--check --json a' '--info --layers 3 a' '--input a --output b --dtype f64' \
        '--input a --output b --slot-order 1,2' '--input a --output b --slot-order 1,2,x' \
        '--input a --output b --prefix-order ,' '--info a --force'; do
        touch a
        # shellcheck disable=SC2086
        run -2 kvc-convert $o
        [[ ${lines[-1]} == "Try 'kvc-convert --help'" ]]
    done
    # what would be without effect
    make_bin a.bin
    for o in --dtype=bf16 --compression-factor=5 --min-seq-len=2 --num-heads=0 --head-dim=0 --strict --allow=a.b --allow-views --provenance; do
        run -2 kvc-convert --check a.bin "$o"
        [ "${lines[0]}" = "kvc-convert: option ${o%=*} has no meaning for --check" ]
        run -2 kvc-convert --input a.bin --output a.safetensors "$o"
        [[ ${lines[0]} == "kvc-convert: --input: a.bin is a .bin already: "* ]]
    done
    for o in --prefix-order=a,b --slot-order=1,2,3 --if-missing; do
        run -2 kvc-convert --info a.bin "$o"
        [ "${lines[0]}" = "kvc-convert: option ${o%=*} has no meaning for --info" ]
    done
}

@test "kvc-convert(1): the examples run as typed" {
    ln -s "$ROOT/demo" .
    py -c 'from kvc_pth import *
open("c.pth", "wb").write(archive(build(layers=4, dk=32, factor=5, dims=(32, 32))[0]))'
    examples kvc-convert.1 >script
    run -0 bash -euxo pipefail script
    grep -q '"kvc":{' kvc.json
}

@test "kvc-convert: a disk that is too small is told before the work" {
    small_disk 8k
    py -c 'from kvc_pth import *
open("X.pth", "wb").write(archive(build(layers=8)[0]))'
    run -74 kvc-convert --input X.pth --output disk/Y.bin --dtype fp32
    [[ $output == "kvc-convert: disk/Y.bin: no room for "*" bytes: No space left on device" ]]
    [ -z "$(ls -A disk)" ]
}

# bats test_tags=long
@test "kvc-convert: a checkpoint of 178 MB in 16 MiB of memory" {
    py -c 'import kvc_pth; kvc_pth.realistic()'
    [ "$(stat -c %s big.pth)" -gt 170000000 ]
    limited() (
        [[ $BUILD == *san ]] || ulimit -d 16384 # ASan takes terabytes
        kvc-convert --input big.pth --output big.bin
    )
    run -0 limited
    cmp want.bin big.bin
}
