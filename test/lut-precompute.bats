# SPDX-License-Identifier: ISC
# lut-precompute: tables against float64 numpy (test/ref/lut_cases.py), and
# what a user types.
load helpers
load lut

@test "lut_ref: the reference agrees with sums written out" {
    py "$ROOT/test/ref/lut_ref.py"
}

@test "lut-precompute: fused and single layers in every dtype are numpy's" {
    make_cases
    for dtype in bf16 f16 f32; do
        lut-precompute -m model -s sparsify -o "$dtype" --fuse qkv,gate_up --dtype "$dtype"
        run -0 check "$dtype" model
        [ "${#lines[@]}" = 8 ]
    done
    for isa in scalar avx2; do # without AMX, products are of f32
        has_isa $isa || continue
        TU_ISA=$isa lut-precompute -m model -s sparsify -o $isa --fuse qkv,gate_up
        run -0 check $isa model
        [ "${#lines[@]}" = 8 ]
    done
    lut-precompute -m model -s sparsify -o single
    run -0 check single model
    [ "${#lines[@]}" = 8 ]
    [[ $output == *layers.0.mlp.up_proj* && $output != *qkv* ]]
}

@test "lut-precompute: explicit centring, stored weights, an F32 model, a BF16 SAE" {
    make_cases
    lut-precompute -m model -s sparsify -o explicit --fuse qkv --centering explicit
    run -0 check explicit model explicit
    lut-precompute -m f32 -s sparsify -o f32w --fuse gate_up --dtype f16 --store-weights
    run -0 check f32w f32
    st-inspect list f32w/model.layers.1.mlp.gate_up_proj.lut.safetensors | grep -q compensation_weight_t
    lut-precompute -m model -s bf16 -o of_bf16
    py -c 'import json, lut_cases as c
entry = json.load(open("of_bf16/metadata.json"))["layers"]["model.layers.0.self_attn.q_proj"]
c.check_layer("of_bf16", "model.layers.0.self_attn.q_proj", entry, c.ref.read_model("model"),
              True, c.sae_of("layers.0.self_attn.q_proj", 60, "BF16"))'
}

@test "lut-precompute --screen: a shadow within its errors, the same table, on every ISA" {
    make_cases
    f=model.layers.0.self_attn.qkv_proj.lut.safetensors
    lut-precompute -m model -s sparsify -o plain --fuse qkv
    lut-precompute -m model -s sparsify -o t --fuse qkv --screen --verify
    run -0 check t model
    for i in $ALL_ISAS; do
        has_isa "$i" || continue
        TU_ISA=$i lut-precompute -m model -s sparsify -o of_$i -j 3 --fuse qkv --screen
        cmp of_$i/$f t/$f
    done
    py - $f <<'END'
import sys, numpy as np
from lut_ref import read_safetensors
plain, t = (read_safetensors(d + "/" + sys.argv[1])[0] for d in ("plain", "t"))
for name in plain:
    assert (plain[name] == t[name]).all(), name
assert set(t) - set(plain) == {"encoder_int8", "encoder_scale", "encoder_error"}
e, q = t["encoder_weight"].astype("f8"), t["encoder_int8"].astype("f8")
off = np.linalg.norm(e - t["encoder_scale"].astype("f8")[:, None] * q, axis=1)
assert np.abs(q).max() == 127
assert (off <= t["encoder_error"]).all() and (t["encoder_error"] <= 1.01 * off + 1e-6).all()
assert (off <= 0.01 * np.linalg.norm(e, axis=1)).all()
END
    # it is an option of the table
    run -73 lut-precompute -q -m model -s sparsify -o t --fuse qkv --resume
    run -0 lut-precompute -q -m model -s sparsify -o t --fuse qkv --screen --resume --verify
    py - t/$f <<'END'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
n = struct.unpack("<Q", data[:8])[0]
a, b = (8 + n + i for i in json.loads(data[8:8 + n])["encoder_error"]["data_offsets"])
data[a:b] = bytes(b - a)
open(sys.argv[1], "wb").write(data)
END
    run -65 lut-precompute -q -m model -s sparsify -o t --fuse qkv --screen --resume --verify
}

@test "lut-precompute: a model whose tensors are layers.0, or fused already, is the same model" {
    make_cases
    py - <<'END'
import os, shutil, numpy as np, lut_ref as ref
from tiny_models import write_safetensors
w = ref.read_model("model")
fused = {n: a for n, a in w.items() if ".self_attn." not in n or ".o_proj" in n}
for i in range(2):
    for word in "weight", "bias":
        name = "model.layers.%d.self_attn.%%s_proj.%s" % (i, word)
        fused[name % "qkv"] = np.concatenate([w[name % part] for part in "qkv"])
for directory, tensors in ("short", {n.removeprefix("model."): a for n, a in w.items()}), ("fused", fused):
    os.mkdir(directory)
    shutil.copy("model/config.json", directory)
    write_safetensors(directory + "/model.safetensors", tensors, lambda _: "BF16")
np.save("x.npy", np.random.default_rng(5).normal(0, 1, (30, 60)).astype("<f4"))
END
    layer=model.layers.0.self_attn.qkv_proj
    for m in model short fused; do
        lut-precompute -m $m -s sparsify -o t_$m --layers '*.0.*.qkv_proj'
        same_tensors {t_model,t_$m}/$layer.lut.safetensors
        lut-apply t_$m $layer -m $m --ratio 1 <x.npy >$m.npy
        cmp model.npy $m.npy
    done
}

# bats test_tags=long
@test "lut-precompute: any matrix of a model can have a table, by its name" {
    make_cases
    py - <<'END'
import json, os, numpy as np, lut_ref as ref
from tiny_models import write_safetensors
rng = np.random.default_rng(7)
shapes = {"lm_head": (20, 12), "model.layers.0.mlp.experts.3.gate_proj": (6, 12),
          "model.layers.0.mlp.experts.3.up_proj": (6, 12), "model.layers.0.mlp.fc1": (9, 12),
          "model.language_model.layers.1.self_attn.q_proj": (8, 12), "model.layers.10.x": (5, 12),
          "transformer.h.0.mlp.fc": (7, 12)}
w = {n + ".weight": ref.round_to(rng.normal(size=s), "BF16") for n, s in shapes.items()}
w["model.norm.weight"] = np.ones(12)
w["model.bad/name.weight"] = np.ones((3, 12))
os.mkdir("any")
write_safetensors("any/model.safetensors", w, lambda _: "BF16")
json.dump({"model_type": "new", "text_config": {"hidden_size": 12}}, open("any/config.json", "w"))
for i, name in enumerate(["lm_head", "layers.0.mlp.fc1", "layers.0.mlp.experts.3.up_proj",
                          "language_model.layers.1.self_attn.q_proj", "transformer.h.0.mlp.fc"]):
    ref.write_sae("anysae/" + name, "sparsify", ref.tiny_sae(np.random.default_rng(i), 30, 12), 3)
END
    lut-precompute -m any -s anysae -o t --dtype f32 --fuse gate_up
    py - <<'END'
import json, numpy as np, lut_ref as ref
doc, w = json.load(open("t/metadata.json")), ref.read_model("any")
assert doc["model_config"] == {"model_type": "new", "hidden_size": 12}
saes = {"model.lm_head": 0, "model.layers.0.mlp.fc1": 1, "model.layers.0.mlp.experts.3.gate_up_proj": 2,
        "model.language_model.layers.1.self_attn.q_proj": 3, "model.transformer.h.0.mlp.fc": 4}
x = np.random.default_rng(8).normal(size=(9, 12)).astype("f4")
np.save("x.npy", x)
assert sorted(doc["layers"]) == sorted(saes)
for name, i in saes.items():
    parts = [name.replace("model.lm_head", "lm_head").replace("model.transformer", "transformer")]
    if "gate_up" in name:
        parts = [name.replace("gate_up", p) for p in ("gate", "up")]
    dense = np.concatenate([w[p + ".weight"] for p in parts])
    want = ref.table(ref.tiny_sae(np.random.default_rng(i), 30, 12), dense)["precomputed_products"]
    got = ref.read_safetensors("t/%s.lut.safetensors" % name)[0]["precomputed_products"]
    assert got.shape == want.shape and abs(got - want).max() < 1e-5, name
    np.save(name + ".npy", x @ dense.T)
END
    # with the model next to it, all of their inputs compensated, it is the layer
    for layer in model.lm_head lm_head transformer.h.0.mlp.fc layers.0.mlp.experts.3.gate_up_proj \
        language_model.layers.1.self_attn.q_proj; do
        lut-precompute calibrate -q -m any t $layer --top 12 --dims dims.npy -f <x.npy
        lut-apply t $layer -m any --dims dims.npy <x.npy >y.npy
        "$PYTHON" -c 'import sys, numpy as np
want = np.load("model." + sys.argv[1].removeprefix("model.") + ".npy")
assert abs(np.load("y.npy") - want).max() < 1e-5 * abs(want).max()' $layer
    done
    run -0 lut-precompute -m any -s anysae/lm_head -o u --layers '*.x,*.q_proj,lm_head' --dry-run
    [ "$(printf '%s\n' "${lines[@]}" | cut -f 1 | xargs)" = \
        "layer model.language_model.layers.1.self_attn.q_proj model.layers.10.x model.lm_head total" ]
    run -65 --separate-stderr lut-precompute -m any -s anysae/lm_head -o u --layers '*.norm'
    run -65 --separate-stderr lut-precompute -m any -s anysae/lm_head -o u --layers '*name*'
    [ "$stderr" = 'lut-precompute: --layers: "*name*" matches no layer of the model' ]
}

@test "lut-precompute --fuse: the SAEs of parts that are not used are named" {
    make_cases
    cp -r sparsify/layers.0.self_attn.{q,k}_proj
    cp -r sparsify/layers.0.mlp.{up,gate}_proj
    run -0 --separate-stderr lut-precompute -m model -s sparsify -o t --fuse qkv --layers '*.0.*'
    name=model.layers.0.self_attn
    [ "$stderr" = "lut-precompute: sparsify/layers.0.self_attn.k_proj: not used: $name.qkv_proj is made instead of its parts, from sparsify/layers.0.self_attn.q_proj" ]
    [ ! -e t/$name.k_proj.lut.safetensors ]
    [ -e t/model.layers.0.mlp.gate_proj.lut.safetensors ]
    run -0 --separate-stderr lut-precompute -q -m model -s sparsify -o u --fuse qkv --layers '*.0.*'
    [ -z "$stderr" ]
}

@test "lut-precompute: patterns that overlap mean the same in any order, a fused layer is made instead of its parts" {
    make_cases
    tables() {
        rm -rf t
        lut-precompute -m model -s "$@" -o t
        (cd t && ls -d ./*.lut.safetensors | sed 's/^..model.layers.\(.*\).lut.*/\1/' | xargs)
    }
    both="0.self_attn.o_proj 1.self_attn.o_proj"
    [ "$(tables sparsify --layers '*.o_proj,layers.0.self_attn.o_proj')" = "$both" ]
    [ "$(tables sparsify --layers 'layers.0.self_attn.o_proj,*.o_proj')" = "$both" ]
    fused="0.self_attn.o_proj 0.self_attn.qkv_proj 1.self_attn.qkv_proj"
    [ "$(tables sparsify --layers '*.qkv_proj,layers.0.self*')" = "$fused" ]
    [ "$(tables sparsify --layers 'layers.0.self*,*.qkv_proj')" = "$fused" ]
    [ "$(tables sparsify --layers 'layers.0.self*,*.qkv_proj,*.0.*.q_proj')" = \
        "0.self_attn.o_proj 0.self_attn.q_proj 0.self_attn.qkv_proj 1.self_attn.qkv_proj" ]
    cp -r sparsify/layers.1.self_attn.{q,qkv}_proj
    [ "$(tables sparsify --layers '*self*')" = "0.self_attn.o_proj 0.self_attn.q_proj 1.self_attn.o_proj 1.self_attn.qkv_proj" ]
    [ "$(tables sparsify --layers '*.q_proj')" = "0.self_attn.q_proj 1.self_attn.q_proj" ]
    # an MLP without a gate has nothing to fuse: up_proj alone is made
    py -c 'import mkst, lut_ref as ref
f = "f32/model.safetensors"
mkst.save(f, {n: a.astype("f4") for n, a in ref.read_safetensors(f)[0].items() if "gate_proj" not in n})'
    lut-precompute -m f32 -s sparsify --fuse gate_up --layers '*.mlp.*' -o g
    (cd g && ls -d ./*.lut.safetensors) >made
    grep -q mlp.up_proj made
    run ! grep -q gate_up made
    run -2 --separate-stderr lut-precompute -m model -s sparsify -o u --layers ,
    [ "${stderr_lines[0]}" = 'lut-precompute: --layers: "," has no pattern' ]
}

@test "lut-precompute: the same bytes from any -j, and from parts of an array" {
    make_cases
    lut-precompute -m model -s sparsify -o a --fuse qkv,gate_up -j 1
    lut-precompute -m model -s sparsify -o b --fuse qkv,gate_up -j 3
    diff -r a b
    for i in 2 0 1; do
        lut-precompute -m model -s sparsify -o c --fuse qkv,gate_up --shard $i/3
        [ ! -e c/metadata.json ]
    done
    lut-precompute --index c
    diff -r a c
    lut-precompute --index c
    diff -r a c
    TU_ISA=scalar run -0 --separate-stderr lut-precompute -m model -s sparsify -o d --shard 1/3 -j 2 -v
    [ "${stderr_lines[0]}" = "lut-precompute: $(uname -n), scalar, 2 threads, shard 1/3" ]
}

@test "lut-precompute: a file has the SHA-256 of its weights and of its SAE, biases included" {
    make_cases
    # several of the pieces of 4 MiB that a digest is made in
    py -c 'import numpy as np, lut_ref as ref
ref.write_sae("large", "sparsify", ref.tiny_sae(np.random.default_rng(1), 20000, 60), 4)'
    lut-precompute -m model -s large -o a --layers layers.1.self_attn.qkv_proj -j 1
    lut-precompute -m model -s large -o b --layers layers.1.self_attn.qkv_proj -j 2
    diff -r a b
    py -c 'import glob, hashlib, json, struct
def raw(pattern):
    tensors = {}
    for name in glob.glob(pattern):
        data = open(name, "rb").read()
        n, = struct.unpack("<Q", data[:8])
        for key, t in json.loads(data[8:8 + n]).items():
            if key == "__metadata__":
                tensors[key] = t
            else:
                begin, end = t["data_offsets"]
                tensors[key] = data[8 + n + begin:8 + n + end]
    return tensors
sae, model = raw("large/*.safetensors"), raw("model/*.safetensors")
parts = ["model.layers.1.self_attn.%s_proj.%s" % (p, x)
         for p in "qkv" for x in ("weight", "bias")]
assert len(parts) == sum(p in model for p in parts)
sha = lambda *all: hashlib.sha256(b"".join(all)).hexdigest()
for directory in "ab":
    meta = raw(directory + "/*.safetensors")["__metadata__"]
    assert meta["sae_sha256"] == sha(*(sae[k] for k in (
        "encoder.weight", "encoder.bias", "W_dec", "b_dec")))
    assert meta["weights_sha256"] == sha(*(model[p] for p in parts))'
}

@test "lut-precompute: --resume keeps what is the same, and refuses the rest" {
    make_cases
    make() {
        lut-precompute -m model -s sparsify -o t --layers '*.q_proj' "$@"
    }
    make
    cp -r t want
    touch -d 2000-01-01 t/*.safetensors
    run -73 --separate-stderr make
    [ "$stderr" = "lut-precompute: t/model.layers.0.self_attn.q_proj.lut.safetensors: exists already (--force replaces it, --resume keeps it)" ]
    rm t/model.layers.1.*
    run -0 --separate-stderr make --resume -v
    [[ ${stderr_lines[1]} == *layers.0*", kept" && ${stderr_lines[2]} == *layers.1*", made" ]]
    [ "$(stat -c %y t/model.layers.0.* | cut -c 1-4)" = 2000 ]
    diff -r want t
    for other in "--k 3" "--dtype f16" "--centering explicit" --store-weights "-m f32" "-s one/six"; do
        # shellcheck disable=SC2086
        run -73 --separate-stderr make --resume $other
        [[ $stderr == *"was made from other sources or with other options (--force replaces it)" ]]
    done
    diff -r want t
    # what they are called is no difference: digests are compared
    cp -r model moved
    cp -r sparsify elsewhere
    run -0 --separate-stderr make --resume -v -m moved -s elsewhere
    [[ ${stderr_lines[1]} == *", kept" && ${stderr_lines[2]} == *", kept" ]]
    diff -r want t
    # with --force the others are replaced, and the same kept
    make --resume --force --k 3
    run -0 --separate-stderr make --resume --force -v
    [[ ${stderr_lines[1]} == *", made" ]]
    diff -r want t
    touch -d 2000-01-01 t/*.safetensors
    make --resume --force
    [ "$(stat -c %y t/model.layers.0.* | cut -c 1-4)" = 2000 ]
    # a tensor under a damaged name is not there
    sed -i 's/"bias_product"/"bias_produkt"/' t/model.layers.0.*
    run -73 --separate-stderr make --resume
    [[ $stderr == *"was made from other sources or with other options (--force replaces it)" ]]
    make --resume --force
    diff -r want t
}

@test "lut-precompute: progress ends at 100 %, with the layers that were kept" {
    [ -e "$BUILD/test/fault/shim.so" ] || skip "no shim in this build"
    cp "$BUILD/test/fault/shim.so" . # LD_PRELOAD takes no spaces
    make_cases
    # a clock that goes 61 s on with each look: there is a line for each tile
    make() {
        FAULT_CLOCK=+61 LD_PRELOAD=./shim.so lut-precompute -j 1 -m model -s sparsify \
            -o t --dtype f32 --resume "$@"
    }
    # two layers of 2 * 145 * 48 * 60 operations, and two of 2 * 181 * 60 * 48
    run -0 --separate-stderr make --layers '*.q_proj,*.o_proj'
    [[ ${stderr_lines[0]} == "products: 835 kFLOP, "*"FLOP/s, 22 %, "*" s left" ]]
    [[ ${stderr_lines[-2]} == "products: 3.76 MFLOP, "*"FLOP/s, 100 %, 0 s left" ]]
    [[ ${stderr_lines[-1]} =~ ^"lut-precompute: t: 4 tables made in "[0-9]+" s"$ ]]
    [[ $stderr != *[0-9][0-9][0-9][0-9][0-9]" s left"* ]]
    run -0 --separate-stderr make --layers '*.q_proj,*.o_proj'
    [ "${stderr_lines[0]}" = "products: 835 kFLOP, 0 FLOP/s, 22 %" ]
    [ "${stderr_lines[-2]}" = "products: 3.76 MFLOP, 0 FLOP/s, 100 %, 0 s left" ]
    [[ ${stderr_lines[-1]} =~ ^"lut-precompute: t: 0 tables made in "[0-9]+" s"$ ]]
    rm t/*.q_proj.*
    run -0 --separate-stderr make --layers '*.q_proj,*.o_proj'
    [[ ${stderr_lines[-2]} == "products: 3.76 MFLOP, "*"FLOP/s, 100 %, 0 s left" ]]
}

@test "lut-precompute --resume: the same tensors, no longer centred, are another SAE" {
    make_cases
    sae centered saelens "dict(apply_b_dec_to_input=True)"
    sae plain saelens "dict(apply_b_dec_to_input=False)"
    make() {
        lut-precompute -m model -o t --layers '*.0.self_attn.q_proj' "$@"
    }
    make -s centered
    make -s centered --resume
    cp -r t want
    run -73 --separate-stderr make -s plain --resume
    [[ $stderr == *"was made from other sources or with other options (--force replaces it)" ]]
    diff -r want t
    make -s plain --resume -f --verify
    run -73 make -s centered --resume
}

@test "lut-precompute --verify: a sample in f64 finds a number that is off" {
    make_cases
    make() {
        lut-precompute -m model -s sparsify -o t --layers '*.0.*.q_proj' --verify "$@"
    }
    run -0 make
    [ "${lines[0]}" = "$(printf 'layer\trows\terror')" ]
    [[ ${lines[1]} == "$(printf 'model.layers.0.self_attn.q_proj\t16\t0.')"* ]]
    f=t/model.layers.0.self_attn.q_proj.lut.safetensors
    size=$(stat -c %s $f)
    # precomputed_products come last: make half of the rows zero
    head -c 8000 /dev/zero | dd of=$f bs=1 seek=$((size - 8000)) conv=notrunc status=none
    run -1 make --resume
    run -0 make --force -q
}

@test "lut-precompute --verify: products to f32's sums, and stored weights" {
    make_cases
    make() {
        lut-precompute -q -m f32 -s sparsify -o t --layers '*.0.*.q_proj' --store-weights --dtype f32 --verify "$@"
    }
    # change TENSOR: all of it by one part in 2^16
    change() {
        py - "$1" <<'END'
import json, struct, sys
f = "t/model.layers.0.self_attn.q_proj.lut.safetensors"
data = bytearray(open(f, "rb").read())
n = struct.unpack("<Q", data[:8])[0]
a, b = (8 + n + i for i in json.loads(data[8:8 + n])[sys.argv[1]]["data_offsets"])
import numpy as np
v = np.frombuffer(data[a:b], "<f4") * np.float32(1 + 2.0 ** -16)
data[a:b] = v.astype("<f4").tobytes()
open(f, "wb").write(data)
END
    }
    run -0 make
    for tensor in encoder_weight encoder_bias decoder_weight decoder_bias precomputed_products \
        bias_product compensation_weight_t; do
        change $tensor
        run -1 make --resume
        run -0 make --force
    done
}

@test "lut-precompute --verify, lut-apply, hf-infer: a number of a table that is NaN or infinite is found" {
    make_cases
    layer=model.layers.0.self_attn.q_proj
    make() {
        lut-precompute -q -m model -s sparsify -o t --layers $layer "$@"
    }
    "$PYTHON" -c 'import numpy as np
np.save("x.npy", np.random.default_rng(1).normal(0, 1, (50, 60)).astype("<f4"))'
    make --verify
    for number in nan inf; do
        py - $number <<'END' # one product of each latent, in a column
import json, struct, sys
import numpy as np
f = "t/model.layers.0.self_attn.q_proj.lut.safetensors"
data = bytearray(open(f, "rb").read())
n = struct.unpack("<Q", data[:8])[0]
a, b = (8 + n + i for i in json.loads(data[8:8 + n])["precomputed_products"]["data_offsets"])
v = np.frombuffer(data[a:b], "<u2").reshape(181, -1).copy()
v[100, 3] = (np.float32(sys.argv[1]).view("u4") >> 16)
if sys.argv[1] == "inf":
    v[:, 3] = v[100, 3]
data[a:b] = v.tobytes()
open(f, "wb").write(data)
END
        run -1 make --resume --verify
        [ "${lines[1]}" = "$layer	16	inf" ]
    done
    run -0 --separate-stderr lut-apply t $layer -i x.npy -o y.npy
    [ "$stderr" = "lut-apply: t/$layer.lut.safetensors: 50 of 50 rows have outputs that are NaN or infinite, though their pre-activations are finite" ]
    run -65 --separate-stderr hf-infer model --lut t --ids 3,1,4,1 --nll
    [ "${stderr_lines[0]}" = "hf-infer: t/$layer.lut.safetensors: 4 rows of outputs are NaN or infinite" ]
    [[ ${stderr_lines[1]} == *"are not finite" ]]
}

@test "lut-precompute --verify: a shadow's scale or error that is NaN or infinite is found in any row" {
    make_cases
    layer=model.layers.0.self_attn.q_proj
    make() {
        lut-precompute -q -m model -s sparsify -o t --layers $layer --screen "$@"
    }
    make
    cp t/$layer.lut.safetensors sound
    for row in 0 90 180; do # 16 of 181 are sampled, not all three of these
        for change in "encoder_scale nan" "encoder_error inf"; do
            cp -f sound t/$layer.lut.safetensors
            py - $row $change <<'END'
import json, struct, sys
f = "t/model.layers.0.self_attn.q_proj.lut.safetensors"
data = bytearray(open(f, "rb").read())
n = struct.unpack("<Q", data[:8])[0]
a = 8 + n + json.loads(data[8:8 + n])[sys.argv[2]]["data_offsets"][0] + 4 * int(sys.argv[1])
data[a:a + 4] = struct.pack("<f", float(sys.argv[3]))
open(f, "wb").write(data)
END
            run -65 make --resume --verify
            [[ $output == *"t/$layer.lut.safetensors: ${change% *} has the XXH3 "* ]]
        done
    done
}

@test "lut-precompute --dry-run: bytes are those of the files, GFLOP those of numpy" {
    make_cases
    run -0 --separate-stderr lut-precompute -m model -s sparsify -o t --fuse qkv --dry-run
    [ ! -e t ]
    [ "${lines[0]}" = "$(printf 'layer\tin\tout\tnum_basis\tk\tbytes\tGFLOP\tseconds')" ]
    [ "${#lines[@]}" = 10 ]
    [ "$(lut-precompute -m model -s sparsify --dry-run --shard 8/9 | cut -f 1,6 | xargs)" = "layer bytes total 0" ]
    [[ $output == *"$(printf '\nmodel.layers.0.self_attn.qkv_proj\t60\t96\t181\t6\t')"* ]]
    printf '%s\n' "${lines[@]}" >plan
    run -0 lut-precompute -m model -s sparsify --shard 100/200 -o none
    [ "$output" = "lut-precompute: --shard 100/200: has no layer, and makes nothing" ]
    [ ! -e none ]
    lut-precompute -m model -s sparsify -o t --fuse qkv
    py - <<'END'
import lut_ref as ref, struct
lines = [line.split("\t") for line in open("plan").read().splitlines()]
total = lines.pop()
assert total[0] == "total" and int(total[5]) == sum(int(l[5]) for l in lines[1:])
for name, i, o, n, k, nbytes, gflop, seconds in lines[1:]:
    data = open("t/%s.lut.safetensors" % name, "rb").read()
    assert len(data) - 8 - struct.unpack("<Q", data[:8])[0] == int(nbytes)
    assert abs(float(gflop) - 2e-9 * int(i) * int(o) * int(n)) < 1e-5 * float(gflop)
    assert float(seconds) > 0
END
}

@test "lut-precompute: what a dtype cannot hold is an error, not infinity" {
    make_cases
    py -c 'import numpy as np, lut_ref as ref
s = ref.tiny_sae(np.random.default_rng(1), 24, 60)
s["decoder_weight"][5] *= 6e4 / abs(s["decoder_weight"][5]).max()
ref.write_sae("large", "sparsify", s, 4)
s["decoder_weight"][5, 9] = 65520
ref.write_sae("larger", "sparsify", s, 4)
s["decoder_weight"][5] = 0
s["encoder_bias"][7] = 65520
ref.write_sae("edge", "six", s, 4, cfg=dict(input_centering=False))
s["encoder_bias"][7] = 65519
ref.write_sae("below", "six", s, 4, cfg=dict(input_centering=False))
s["decoder_weight"][3, 2] = np.nan
ref.write_sae("nan", "sparsify", s, 4)'
    make() {
        lut-precompute -m model -s "$1" -o t --layers '*.0.*.q_proj' --dtype "$2"
    }
    run -65 --separate-stderr make large f16
    [[ $stderr == "lut-precompute: model.layers.0.self_attn.q_proj: precomputed_products[5, "*", which F16 cannot hold (--dtype bf16)" ]]
    run -65 --separate-stderr make larger f16
    [ "$stderr" = "lut-precompute: model.layers.0.self_attn.q_proj: decoder_weight[5, 9] is 65520, which F16 cannot hold (--dtype bf16)" ]
    run -65 --separate-stderr make edge f16
    [ "$stderr" = "lut-precompute: model.layers.0.self_attn.q_proj: encoder_bias[7] is 65520, which F16 cannot hold (--dtype bf16)" ]
    run -65 --separate-stderr make nan f32
    [ "$stderr" = "lut-precompute: nan/sae.safetensors: W_dec[3, 2] is NaN or infinite" ]
    [ ! -e t ]
    # nor directories above it; those that were there stay
    mkdir there
    run -65 lut-precompute -m model -s nan -o there/a/b/ --layers '*.0.*.q_proj'
    [ -z "$(ls -A there)" ]
    run -65 lut-precompute -m model -s nan -o there --layers '*.0.*.q_proj'
    [ -d there ]
    make below f16
    rm -r t
    make large bf16
}

@test "lut-precompute: a full disk is one line, status 74, and leaves nothing" {
    make_cases
    small_disk 600k
    run -74 --separate-stderr lut-precompute -q -m model -s sparsify -o disk/t
    [ "${#stderr_lines[@]}" = 1 ]
    [[ $stderr == "lut-precompute: disk/t/model.layers."*": no room for "* ]]
    # finished layers are kept and listed
    for f in disk/t/*.safetensors; do
        grep -q "\"$(basename "$f")\"" disk/t/metadata.json
    done
    [ -z "$(find disk -name '.*tmp*')" ]
    run -74 --separate-stderr bash -c 'lut-precompute -m model -s sparsify --dry-run >/dev/full'
}

# bats test_tags=long
@test "lut-precompute: kills with -9, then --resume: never broken, never lost" {
    make_cases
    lut-precompute -m model -s sparsify -o want
    for i in $(seq 40); do
        lut-precompute -q -m model -s sparsify -o t --resume -j 1 &
        pid=$!
        sleep "0.0$(printf %02d $((i * 3 % 60)))"
        kill -9 $pid 2>/dev/null || :
        wait $pid 2>/dev/null || :
        for f in t/*.safetensors; do
            [ ! -e "$f" ] || cmp "$f" "want/${f##*/}"
        done
        [ $((i % 3)) != 0 ] || rm -rf t
    done
    lut-precompute -q -m model -s sparsify -o t --resume
    diff -r want t
    lut-precompute -q -m model -s sparsify -o t --force # sweeps what the dead left
    [ "$(ls -A t)" = "$(ls -A want)" ]
}

@test "lut-precompute: two runs on one directory lose nothing of each other" {
    make_cases
    lut-precompute -m model -s sparsify -o want
    for _ in $(seq 10); do
        rm -rf t
        lut-precompute -q -m model -s sparsify -o t --layers '*self_attn*' &
        lut-precompute -q -m model -s sparsify -o t --layers '*mlp*'
        wait
        diff -r want t
    done
}

# bats test_tags=long
@test "lut-precompute: of two runs with --resume, the later keeps what the other made" {
    make_cases
    lut-precompute -m model -s sparsify -o want
    for _ in $(seq 20); do
        rm -rf t
        lut-precompute -q -m model -s sparsify -o t --resume &
        pid=$!
        lut-precompute -q -m model -s sparsify -o t --resume
        wait $pid
        diff -r want t
    done
    # what a run that was killed left beside another one's finished file
    : & wait $!
    : >"t/.model.layers.0.self_attn.q_proj.lut.safetensors.tmp.$(this_host).$!.0"
    lut-precompute -q -m model -s sparsify -o t --resume
    [ "$(ls -A t)" = "$(ls -A want)" ]
}

# bats test_tags=long
@test "lut-precompute: SIGTERM and SIGUSR1 end it with 75, finished layers are kept" {
    make_cases
    py -c 'import numpy as np, lut_ref as ref
rng = np.random.default_rng(1)
for i in range(2):
    ref.write_sae("wide/layers.%d.mlp.up_proj" % i, "sparsify", ref.tiny_sae(rng, 400000, 60), 4)'
    for sig in TERM USR1; do
        lut-precompute -m model -s wide -o t --resume -j 1 2>said &
        pid=$!
        until [ "$(find t -name '.*tmp*' 2>/dev/null)" ]; do kill -0 $pid; sleep 0.01; done
        kill -$sig $pid
        s=0
        wait $pid || s=$?
        [ $s = 75 ]
        [ "$(cat said)" = "lut-precompute: stopped by SIG$sig: finished layers are kept, run it again with --resume" ]
        [ -z "$(find t -name '.*tmp*' 2>/dev/null)" ]
    done
}

@test "lut-precompute --deadline: as SIGTERM, and --resume continues" {
    make_cases
    run -75 --separate-stderr lut-precompute -m model -s sparsify -o t --deadline 0
    [[ $stderr == "lut-precompute: stopped by the deadline: "* ]]
    [ ! -e t ]
    lut-precompute -m model -s sparsify -o t --resume --deadline 1000
    run -0 check t model
    run -2 lut-precompute -m model -s sparsify -o t --deadline soon
}

@test "lut-precompute, lut-apply: a FIFO in the place of JSON is not waited for" {
    make_cases
    lut-precompute -m model -s sparsify -o t --layers '*.0.*.q_proj'
    rm t/metadata.json
    mkfifo t/metadata.json
    run -66 --separate-stderr timeout 20 lut-precompute --index t
    [ "$stderr" = "lut-precompute: t/metadata.json: is not a regular file" ]
    run -66 --separate-stderr timeout 20 lut-apply t model.layers.0.self_attn.q_proj </dev/null
    [ "$stderr" = "lut-apply: t/metadata.json: is not a regular file" ]
    rm model/config.json
    mkfifo model/config.json
    run -66 timeout 20 lut-precompute -m model -s sparsify -o t2
}

@test "lut-precompute: no file is left to open: status 74, not that of a missing file" {
    make_cases
    few() {
        ulimit -n 6
        exec lut-precompute "$@"
    }
    run -74 --separate-stderr few -m model -s sparsify -o t 3>&- 4>&- 5>&-
    [[ $stderr == *": Too many open files" ]]
}

# bats test_tags=long
@test "lut-precompute: memory is that of a tile, whatever the number of latents" {
    not_sanitized "ASan takes terabytes"
    make_cases
    py -c 'import numpy as np, lut_ref as ref
ref.write_sae("wide", "sparsify", ref.tiny_sae(np.random.default_rng(1), 200000, 60), 4)'
    # products alone are 138 MB in f32, the file is 117 MB
    run -0 bash -c 'ulimit -d 98304; lut-precompute -m model -s wide -o t -j 2 --layers "*.0.mlp.up_proj" --verify'
    [ "$(stat -c %s t/*.safetensors)" -gt 115000000 ]
}

@test "lut-precompute: with all inputs compensated, lut-apply gives the layer" {
    make_cases
    py -c 'import numpy as np, lut_ref as ref
np.save("x.npy", np.random.default_rng(5).normal(0, 1, (30, 60)).astype("<f4"))'
    # decoder and products are rounded: the root of 2 times 1.6e-3, or 2e-4;
    # in f32 the sums lose more than that
    for dtype in bf16:2.5e-3 f16:3.1e-4 f32:2e-7; do
        for how in fold explicit; do
            lut-precompute -m model -s sparsify -o t -f --fuse qkv --dtype ${dtype%:*} --centering $how \
                --layers '*.0.*.qkv_proj' --store-weights
            lut-apply t model.layers.0.self_attn.qkv_proj --ratio 1 <x.npy >y.npy
            py -c 'import sys, numpy as np, lut_ref as ref
w, b = ref.target(ref.read_model("model"), "model.layers.0.self_attn.qkv_proj")
y, want = np.load("y.npy"), np.load("x.npy") @ w.T + b
error = np.linalg.norm(y - want) / np.linalg.norm(want)
assert error < float(sys.argv[1]), error' ${dtype#*:}
        done
    done
}

@test "lut-precompute: usage errors are status 2 with one line and the hint" {
    make_cases
    for args in "-q" "-m model" "-m model -s six --dtype fp8" "-m model -s six --fuse kv" \
        "-m model -s six --centering none" "-m model -s six --shard 3/3" "-m model -s six --k 0" \
        "-m model -s six extra" "--index t -m model" \
        "--index t --layers x" "--index t --resume" "-m model -s six --dry-run --verify"; do
        # shellcheck disable=SC2086
        run -2 --separate-stderr lut-precompute $args
        [ -z "$output" ]
        [ "${#stderr_lines[@]}" = 2 ]
        [ "${stderr_lines[1]}" = "Try 'lut-precompute --help'" ]
    done
    for o in "-m '' -s six" "-m model -s ''" "-m model -s six -o ''" "--index ''"; do
        run -2 --separate-stderr eval "lut-precompute $o"
        [[ ${stderr_lines[0]} == "lut-precompute: -"*": \"\" is not a file name" ]]
    done
    run -66 --separate-stderr lut-precompute -m model -s nothing
    run -66 --separate-stderr lut-precompute -m nothing -s six
    mkdir empty
    run -66 --separate-stderr lut-precompute -m model -s empty
    [ "$stderr" = "lut-precompute: empty: has no SAE for any layer of model" ]
}

@test "lut-precompute(1): the examples run as typed" {
    ln -s "$ROOT/demo" .
    py -c 'import numpy as np, lut_ref as ref
rng = np.random.default_rng(3)
for i in range(4):
    for hook, width in ("self_attn.q_proj", 128), ("self_attn.o_proj", 128), ("mlp.up_proj", 128):
        ref.write_sae("sae/layers.%d.%s" % (i, hook), "sparsify", ref.tiny_sae(rng, 512, width), 16)'
    "$PYTHON" -c 'import numpy as np
np.save("x.npy", np.random.default_rng(1).standard_t(4, (99, 128)).astype("f4"))'
    examples lut-precompute.1 >script
    run -0 bash -euxo pipefail script
    [ -e lut/metadata.json ]
}
