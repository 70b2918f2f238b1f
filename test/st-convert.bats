# SPDX-License-Identifier: ISC
# st-convert: packed weights against numpy's formulas (test/ref/convert_ref.py),
# read by packed_ref.py; types, shards, names, and what a user types.
load helpers

# packs FORM GROUP RULE OPTION...: q is what the formulas say.
packs() {
    rm -rf q
    st-convert -q "${base:-$DEMO}" -o q --weights "$1" "${@:4}" >table
    py "$ROOT/test/ref/convert_ref.py" "${base:-$DEMO}" q "$1" "$2" "$3" <table
}

@test "st-convert --weights: scales, codes and errors are numpy's, in each form" {
    packs int8 0 absmax
    packs int8 32 absmax --group 32
    packs fp8 0 absmax
    packs int4 128 absmax --scales absmax
    packs int4 32 asym --scales absmax --group 32 --asymmetric
    packs int4 8 asym --scales absmax --group 8 --asymmetric # of one sign, too
}

# bats test_tags=long
@test "st-convert --weights int4: least squares beat absmax in each group, and come near the best scale" {
    packs int4 128 lsq
    packs int4 64 lsq-asym --group 64 --asymmetric
}

@test "st-convert --activations: what a layer makes of its inputs is nearer, and so is the model's perplexity" {
    hf-infer "$DEMO" -q --acts in:q_proj:all,in:o_proj:all,in:up_proj:all,in:down_proj:all --ctx 64 -o acts --file "$ROOT/demo/training.txt"
    st-convert -q "$DEMO" -o absmax --weights int4 --scales absmax >table
    st-convert -q "$DEMO" -o lsq --weights int4 >table
    st-convert -q "$DEMO" -o weighed --weights int4 --activations acts >table
    py - "$DEMO" <<'END'
import sys
import numpy as np, mkst, packed_ref
base, error = mkst.load(sys.argv[1] + "/model.safetensors"), []
same = {"k_proj": "q_proj", "v_proj": "q_proj", "gate_proj": "up_proj"}
for q in "absmax", "lsq", "weighed":
    got, e = packed_ref.dequantized(q)[1], []
    for name in base:
        if "_proj" in name:
            layer, word = name[6:-7].rsplit(".", 1)
            x = np.load("acts/%s.%s.npy" % (layer, same.get(word, word)))
            x = np.square(x.astype(float).reshape(-1, x.shape[-1])).mean(0)
            w, v = mkst.values(*base[name]), mkst.values(*got[name])
            e.append((np.square(w - v) @ x).sum() / (np.square(w) @ x).sum())
    error.append(np.array(e)) # of independent inputs
assert (error[2] < error[0]).all() and (error[2] < error[1]).all(), error
assert error[2].sum() < .75 * error[0].sum(), [x.sum() for x in error]
END
    nll() { hf-infer "$1" --nll --json -q --ctx 128 --file "$ROOT/demo/training.txt" | sed 's/.*"nll_mean":\([0-9.]*\).*/\1/'; }
    echo "$(nll "$DEMO") $(nll weighed) $(nll lsq) $(nll absmax)" >nll
    awk '!($1 < $2 && $2 < $3 && $3 < $4)' nll | tee /dev/stderr | cmp - /dev/null
    mkdir none
    run -66 --separate-stderr st-convert "$DEMO" -o x --weights int4 --activations none
    [[ $stderr == "st-convert: none: has no inputs of a layer (none/layers."*".npy)" ]]
    run -2 st-convert "$DEMO" -o x --weights int8 --activations acts
    mv acts/layers.0.mlp.down_proj.npy none/layers.0.mlp.up_proj.npy
    run -65 --separate-stderr st-convert "$DEMO" -o x --weights int4 --activations none
    [[ $stderr == "st-convert: none/layers.0.mlp.up_proj.npy: is not of rows of 128 floats" ]]
    [ ! -e x ]
}

@test "st-convert --activations: the first layers of latents read the same" {
    py "$ROOT/test/ref/family_ref.py" make deepseek_v3:dense m
    hf-infer m --ids "$(cat m/ids)" --acts in:q_proj:0-2,in:gate_proj:0-2 -o acts
    run -0 st-convert -v m -o x --weights int4 --group 8 --activations acts --ignore '*kv_b*' --ignore '*o_proj'
    [ "$(grep -c 'q_b_proj.npy: is not there' <<<"$output")" = 3 ]
    [[ $output != *"_a_proj"*"is not there"* ]]
}

@test "st-convert --activations: layers of Gated DeltaNet and experts are weighed by what their layer reads" {
    for of in "qwen3_next linear_attn.in_proj_qkvz linear_attn.in_proj_ba" \
        "qwen3_next mlp.gate_proj mlp.experts.5.up_proj mlp.experts.0.gate_proj mlp.shared_expert.up_proj" \
        "qwen3_5:text linear_attn.in_proj_qkv linear_attn.in_proj_z linear_attn.in_proj_b linear_attn.in_proj_a"; do
        read -r m file others <<<"$of"
        rm -rf m acts own
        py "$ROOT/test/ref/family_ref.py" make "$m" m
        hf-infer m -q --ids "$(seq -s, 9 40)" --acts "layers.0.$file" -o x.npy -f
        mkdir acts own
        cp x.npy "acts/layers.0.$file.npy"
        for other in "$file" $others; do # as if each had its own
            cp x.npy "own/layers.0.$other.npy"
        done
        for how in "plain" "acts --activations acts" "own --activations own"; do
            read -r to options <<<"$how"
            # shellcheck disable=SC2086
            st-convert -q m -o $to.q --weights int4 --group 8 --ignore '*down_proj' -f $options >/dev/null
        done
        # shellcheck disable=SC2086
        py - $others <<'END'
import sys, mkst
own, acts, plain = (mkst.load(x + ".q/model.safetensors") for x in ("own", "acts", "plain"))
for other in sys.argv[1:]:
    name, = (x for x in own if x.endswith("layers.0." + other + ".weight_packed") and "mtp." not in x)
    assert own[name] == acts[name] != plain[name], name
END
    done
}

@test "st-convert --weights: F16 and F32 models have scales of their type, odd shapes and rows of zeros are packed" {
    py -c 'import numpy as np, tiny_models, mkst, os, json
for name, dtype in ("h", "<f2"), ("s", "<f4"):
    c = tiny_models.config_of("qwen3_moe", hidden_size=72, intermediate_size=120, **{**tiny_models.EXPERTS, "moe_intermediate_size": 40})
    w = {k: v.astype(dtype) for k, v in tiny_models.weights_of(c, np.random.default_rng(2)).items()}
    w["model.layers.0.self_attn.q_proj.weight"][3] = 0
    w["model.layers.0.self_attn.q_proj.weight"][4] *= 1e-5 # as an F16, 1 / 448 of it is 0
    os.mkdir(name)
    json.dump(c, open(name + "/config.json", "w"))
    mkst.save(name + "/model.safetensors", w)'
    for form in "h fp8 0 F16" "h int4 8 F16" "h int8 0 F16" "s int8 0 F32"; do
        # shellcheck disable=SC2086
        set -- $form
        rm -rf q && st-convert -q $1 -o q --weights "$2" $([ "$3" = 0 ] || echo --group "$3" --scales absmax) >table
        py "$ROOT/test/ref/convert_ref.py" $1 q "$2" "$3" absmax $4 <table
    done
    [ "$(grep -o '"ignore.*' q/config.json)" = '"ignore": ["model.layers.0.mlp.gate", "model.layers.1.mlp.gate", "model.layers.2.mlp.gate", "lm_head"],' ]
}

@test "st-convert --weights: the same bytes for any number of threads and instruction set" {
    for f in "int4" "int8 --group 64" "fp8"; do
        # shellcheck disable=SC2086
        TU_ISA=scalar st-convert -q -j 1 "$DEMO" -o a --weights $f >a.tsv
        # shellcheck disable=SC2086
        st-convert -q -j 3 "$DEMO" -o b --weights $f >b.tsv
        diff -r a b && cmp a.tsv b.tsv
        rm -r a b
    done
}

@test "st-convert --weights: config.json says how, and all else in it stays as it was spelled" {
    cp -r "$DEMO" m
    printf '{"model_type":"qwen3",\n\t"x": 1.50e-06 , "torch_dtype" : "bfloat16", "quantization_config": null,"hidden_size": 128}\n' >m/config.json
    st-convert -q m -o q --weights int4 --group 64 --dtype f16 --ignore '*.0.mlp.*' >table
    [ "$(grep -c mlp table)" = 9 ]
    py - <<'END'
import json
text = open("q/config.json").read()
assert text.startswith('{"model_type":"qwen3",\n\t"x": 1.50e-06, "torch_dtype" : "float16", "quantization_config": {')
assert text.endswith(',"hidden_size": 128}\n')
q = json.loads(text)["quantization_config"]
assert q["config_groups"]["group_0"] == {
    "targets": ["Linear"],
    "weights": dict(num_bits=4, type="int", symmetric=True, strategy="group", group_size=64)}
assert q["format"] == "pack-quantized" and q["quant_method"] == "compressed-tensors"
assert q["quantization_status"] == "compressed"
assert q["ignore"] == ["model.layers.0.mlp.%s_proj" % x for x in ("down", "gate", "up")] + ["lm_head"]
END
    ls q | diff - <(ls m)
    cmp q/tokenizer.json m/tokenizer.json
    run -65 --separate-stderr st-convert -q q -o again --weights int8
    [ "$stderr" = "st-convert: q/config.json: has a quantization_config: its weights are packed already (--dequantize first)" ]
    run -65 st-convert -q q -o again --dtype f32
    st-convert -q q -o again --rename ^model.=
    grep -q quantization_config again/config.json
}

@test "st-convert --head: lm_head is packed, of a tied model as a copy, and the embedding stays" {
    st-convert -q "$DEMO" -o q --weights int8 --head >table
    grep -q '^lm_head.weight	int8' table
    st-convert -q q -o d --dequantize --dtype f32
    py - "$DEMO" <<'END'
import json, sys
import numpy as np, mkst
base, got = mkst.load(sys.argv[1] + "/model.safetensors"), mkst.load("d/model.safetensors")
x = mkst.values(*base["model.embed_tokens.weight"])
assert (mkst.values(*got["model.embed_tokens.weight"]) == x).all()
y = mkst.values(*got["lm_head.weight"])
assert (abs(y - x) <= abs(x).max(1, keepdims=True) / 127 * .51).all() and (y != x).any()
c = json.load(open("q/config.json"))
assert c["tie_word_embeddings"] is False and c["quantization_config"]["ignore"] == []
END
    hf-infer q --ids 1,2,3 --logits q.npy
    hf-infer d --ids 1,2,3 --logits d.npy
    cmp q.npy d.npy
    st-convert -q d -o again --weights int8 --head >table # it has a head now
    grep -q '^lm_head.weight	int8' table
    st-inspect list again >list
    [ "$(grep -c lm_head list)" = 3 ]
}

@test "st-convert --dequantize: of every form the numbers are packed_ref's, and the model is as before" {
    for f in fp8 ct-int8-packed-asym ct-int4-actorder ct-int3-asym awq gptq4-desc; do
        py "$ROOT/test/ref/packed_ref.py" qwen3 $f $f
        st-convert -q $f -o d --dequantize --dtype f32
        st-inspect diff --ignore-dtype d $f.dequantized
        [ "$(grep -c quantization d/config.json)" = 0 ]
        rm -r d
    done
    st-convert -q "$DEMO" -o q --weights int8 >table
    st-convert -q q -o d --dequantize --dtype f32
    hf-infer q --ids 1,2,3 --logits q.npy
    hf-infer d --ids 1,2,3 --logits d.npy
    py -c 'import numpy as np; q, d = np.load("q.npy"), np.load("d.npy"); assert abs(q - d).max() < 2e-4 * max(1, abs(d).max() / 5)'
    st-convert -q q -o h --dequantize --rename q_proj=query
    [ "$(st-inspect list h | grep -c "BF16.*query.weight")" = 4 ]
    run -65 --separate-stderr st-convert "$DEMO" -o x --dequantize
    [ "$stderr" = "st-convert: $DEMO: has no quantization_config to unpack" ]
    py -c 'import mkst
t = mkst.load("fp8/model.safetensors")
mkst.save("fp8/model.safetensors", dict(t, experts=("F8_E4M3", [8], bytes(8))))'
    run -65 --separate-stderr st-convert fp8 -o x --dequantize
    [ "$stderr" = "st-convert: fp8/model.safetensors: experts is F8_E4M3, which is not unpacked in this shape" ]
    run -2 st-convert q -o x --dequantize --weights int4
    [ ! -e x ]
}

@test "st-convert --dequantize: gpt-oss's stacks are [experts, in, out], as transformers unpacks them" {
    py "$ROOT/test/ref/family_ref.py" make gpt_oss:mxfp4 m
    for j in 1 3; do st-convert -q m -o d$j --dequantize --dtype f32 -j $j; done
    cmp d[13]/model.safetensors
    st-convert -q m -o b --dequantize
    py - <<'END'
import mkst, numpy as np, packed_forms
m, d, b = (mkst.load(x + "/model.safetensors") for x in ("m", "d1", "b"))
n = 0
for name in m:
    if not name.endswith("_blocks"):
        continue
    stack = name[:-len("_blocks")]
    w = packed_forms.mxfp4(*(mkst.values(*m[x]) for x in (name, stack + "_scales")))
    assert d.pop(stack) == mkst.entry(np.ascontiguousarray(w.swapaxes(1, 2))), stack
    assert b.pop(stack) == mkst.bf16(w.swapaxes(1, 2)), stack
    n += 1
assert n == 2 * 4 and d.keys() == b.keys() == {x for x in m if not x.endswith(("_blocks", "_scales"))}
END
    for x in m d1; do
        hf-infer $x --ids 1,2,3,4,5 --logits $x.npy
    done
    py -c 'import numpy as np; m, d = np.load("m.npy"), np.load("d1.npy"); assert abs(m - d).max() < 2e-4 * max(1, abs(d).max() / 5)'
    # more rows and columns than a block of them, whose last ones are fewer
    py - <<'END'
import json, mkst, numpy as np, os
rng = np.random.default_rng(2)
os.mkdir("big")
for i, shape in enumerate([(2, 5, 96), (1, 9001, 96), (2, 3, 2080)]):
    name = "model.layers.%d.mlp.experts.down_proj" % i
    E, out, k = shape
    t = {name + "_blocks": rng.integers(0, 256, (E, out, k // 32, 16), np.uint8),
         name + "_scales": rng.integers(118, 130, (E, out, k // 32), np.uint8)}
    mkst.save("big/model-%05d-of-00003.safetensors" % (i + 1), t)
json.dump({"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}, open("big/config.json", "w"))
END
    for i in 1 2 3; do
        st-convert -q big/model-0000$i-of-00003.safetensors -o $i.safetensors --dequantize --dtype f32
    done
    py - <<'END'
import mkst, numpy as np, packed_forms
for i in 1, 2, 3:
    m = mkst.load("big/model-%05d-of-00003.safetensors" % i)
    (name, got), = mkst.load("%d.safetensors" % i).items()
    w = packed_forms.mxfp4(*(mkst.values(*m[name + x]) for x in ("_blocks", "_scales")))
    assert got == mkst.entry(np.ascontiguousarray(w.swapaxes(1, 2))), i
END
}

@test "st-convert --dtype: all tensors are rounded once, to nearest, and integers stay" {
    py -c 'import numpy as np, mkst
rng = np.random.default_rng(3)
x = rng.standard_normal(70001) * 10.0 ** rng.integers(-6, 4, 70001)
x[:4] = 1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-40, np.inf, np.nan
mkst.save("x.safetensors", {"d": x, "f": x.astype("<f4"), "b": mkst.bf16(x), "i": np.arange(5), "e": np.zeros((0, 3))})'
    for t in bf16 f16 f32; do st-convert -q x.safetensors -o $t.safetensors --dtype $t; done
    py - <<'END'
import numpy as np, mkst
x = mkst.read("x.safetensors")[0]
def odd(v): # to BF16 in one rounding: of the two neighbours of each the nearer, or the even one
    f = v.astype("<f4")
    with np.errstate(invalid="ignore"):
        f = np.where((f.astype(float) != v) & (f.view("<u4") & 0xffff == 0x8000),
                     np.nextafter(f, np.where(v > f, np.inf, -np.inf).astype("<f4")), f)
    return mkst.from_bf16(mkst.bf16(f)[2])
for dtype, to in ("f32", lambda v: v.astype("<f4")), ("f16", lambda v: v.astype("<f2")), ("bf16", odd):
    got, _ = mkst.read(dtype + ".safetensors")
    for k in "dfb":
        assert np.array_equal(got[k], to(x[k]).astype(float), equal_nan=True), (dtype, k)
    assert np.array_equal(got["i"], np.arange(5)) and got["e"].shape == (0, 3)
END
    py -c 'import numpy as np, mkst; mkst.save("y.safetensors", {"a": np.array([1e6, 1], "<f4"), "b": np.array([np.inf], "<f4")})'
    run -0 --separate-stderr st-convert y.safetensors -o z.safetensors --dtype f16
    [ "${stderr_lines[0]}" = "st-convert: y.safetensors: a has numbers that become infinite in F16" ]
    [ "${#stderr_lines[@]}" = 2 ]
}

@test "st-convert --shard-size, --merge: files hold at most that, the index has all, and one file again is the same" {
    st-convert -q "$DEMO" -o s --shard-size 400KiB
    [ "$(ls s/*.safetensors | wc -l)" = 5 ]
    [ "$(du -b s/*.safetensors | sort -n | tail -n 1 | cut -f 1)" -lt $((404 * 1024)) ]
    st-inspect verify -q s
    st-inspect diff "$DEMO" s
    for name in pytorch_model.bin .hidden; do touch s/$name; done
    run -0 --separate-stderr st-convert s -o o --merge
    [ "${stderr_lines[0]}" = "st-convert: s: pytorch_model.bin is not copied, as nothing was converted in it" ]
    st-inspect diff "$DEMO" o
    ls o | diff - <(ls "$DEMO")
    st-convert -q s -o t # a file for each
    for f in s/*.safetensors; do st-inspect diff "$f" "t/${f#s/}"; done
    [ "$(hf-infer o --greedy -n 5 -p 1+1=)" = "$(hf-infer "$DEMO" --greedy -n 5 -p 1+1=)" ]
}

@test "st-convert --select, --rename: by pattern, in order, and what matches nothing is named" {
    py -c 'import numpy as np, mkst
mkst.save("x.safetensors", {"a.b.a": np.ones(2, "<f4"), "b.a": np.ones(3, "<f4"), "c": np.ones(1, "<f4")}, {"k": "v"})'
    run -65 --separate-stderr st-convert -q x.safetensors -o y.safetensors --select '*a' --rename ^a.=
    [ "$stderr" = 'st-convert: tensor "b.a": appears twice' ]
    st-convert -q x.safetensors -o y.safetensors --select '*a' --rename ^a.=d --rename a=xx --rename xx=y
    py -c 'import mkst; t, m = mkst.load_all("y.safetensors"); assert (sorted(t), m) == (["b.y", "db.y"], {"k": "v"}), t'
    for o in --select=xa.b.a --rename=xa.b.a=c; do
        run -66 --separate-stderr st-convert x.safetensors -o z.safetensors $o
        name=${o%=c}
        [ "$stderr" = "st-convert: x.safetensors: ${o%%=*}: no tensor matches \"${name#*=}\" (did you mean \"a.b.a\"?)" ]
    done
    run -2 st-convert x.safetensors -o z.safetensors --rename =c
    run -2 --separate-stderr st-convert x.safetensors -o z.safetensors --rename c=
    [ "${stderr_lines[0]}" = "st-convert: --rename: nothing is left of c" ]
    run -65 --separate-stderr st-convert -q "$DEMO" -o z --shard-size 100K --rename q_proj=k_proj # in other shards
    [[ $stderr == 'st-convert: tensor "'*'": appears twice' ]]
    [ ! -e z ] && [ ! -e z.safetensors ]
}

@test "st-convert: what cannot be packed is refused by its name, and nothing is written" {
    not() { # not STATUS MESSAGE ARGUMENT...
        run "-$1" --separate-stderr st-convert -q "${@:3}" -o out
        [ "$stderr" = "st-convert: $2" ] || { echo "$stderr" && false; }
        [ -z "$output" ] && [ ! -e out ]
    }
    not 65 "$DEMO/model.safetensors: model.layers.0.mlp.down_proj.weight has 384 columns, not a multiple of 256 (--group, or --ignore model.layers.0.mlp.down_proj)" "$DEMO" --weights int4 --group 256
    py -c 'import numpy as np, mkst
w = np.ones((9, 16), "<f4")
mkst.save("x.safetensors", {"a.weight": w, "router.weight": w, "b": w})
w[7, 3] = np.nan
mkst.save("n.safetensors", {"a.weight": w})
for name, row, big in ("h", 2, 3e7), ("s", 1, 3e19):
    w = np.ones((9, 16), "<f4")
    w[row, 3] = big
    mkst.save(name + ".safetensors", {"a.weight": w})
mkst.save("e.safetensors", {"embed_tokens.weight": w, "q_proj.weight": np.zeros((0, 8), "<f4")})'
    mkdir g
    echo '{"model_type": "gpt2"}' >g/config.json
    py -c 'import numpy as np, mkst; mkst.save("g/model.safetensors", {"h.0.attn.c_attn.weight": np.ones((8, 24), "<f4")})'
    not 65 'g: model_type "gpt2" has weights as [in, out], which compressed-tensors does not pack' g --weights int8
    for f in int4 int8 fp8; do
        not 65 "n.safetensors: a.weight has a number in row 7 that is not finite, or too large" n.safetensors --weights $f $([ $f = fp8 ] || echo --group 8)
        # the scales of 3e7 are no F16, and the squares of 3e19 no float
        not 65 "h.safetensors: a.weight has a number in row 2 that is not finite, or too large" h.safetensors --weights $f --dtype f16 $([ $f = fp8 ] || echo --group 8)
        not 65 "s.safetensors: a.weight has a number in row 1 that is not finite, or too large" s.safetensors --weights $f $([ $f = fp8 ] || echo --group 8)
    done
    not 65 "e.safetensors: has no weights of linear layers to pack" e.safetensors --weights fp8
    not 66 'x.safetensors: --ignore: no tensor matches "q*"' x.safetensors --weights fp8 --ignore 'q*'
    run -2 st-convert x.safetensors -o out --weights fp8 --group 8
    run -2 st-convert x.safetensors -o out --weights int8 --asymmetric
    run -2 st-convert x.safetensors -o out --weights int4 --group 12
    run -2 st-convert x.safetensors -o out --group 8
    run -2 st-convert x.safetensors
    st-convert -q x.safetensors -o y.safetensors --weights int4 --group 8 >table
    [ "$(cut -f 1 table)" = "$(printf 'tensor\na.weight')" ]
    [ "$(st-inspect list y.safetensors | cut -f 1,2,5 | sed 1d)" = "$(printf '%s\t%s\t%s\n' I32 '[9,2]' a.weight_packed F32 '[9,2]' a.weight_scale I64 '[2]' a.weight_shape F32 '[9,16]' b F32 '[9,16]' router.weight)" ]
    mkdir none && py -c 'import mkst; mkst.save("none/model.safetensors", {})'
    st-convert -q none -o none2 && st-convert none -o none2 --if-missing
    echo '[]' >none/config.json
    not 65 "none/config.json: is not an object" none --dtype f16
    run -73 st-convert -q x.safetensors -o y.safetensors
    st-convert x.safetensors -o y.safetensors --if-missing
    for i in 1 2 3 4; do st-convert -q "$DEMO" -o race --if-missing & done # of which one is first
    for i in 1 2 3 4; do wait -n; done
    cp y.safetensors was && st-convert -q x.safetensors -o y.safetensors -f && run -1 cmp y.safetensors was
    st-convert -q --json x.safetensors -o j.safetensors --weights fp8 | py -c 'import json, sys
j = json.load(sys.stdin)
assert [t["tensor"] for t in j["tensors"]] == ["a.weight"] and j["relative_rms"] == 0 == j["tensors"][0]["max_error"]
assert j["input_bytes"] == 3 * 9 * 64 and j["output_bytes"] == 2 * 9 * 64 + 9 * 16 + 9 * 4'
}

# llm-compressor's qwen3_5_moe.py: each expert a module of its own, gate_proj the first half of rows.
@test "st-convert --weights: stacks of experts by rows are packed as each expert's layers, by their names" {
    py "$ROOT/test/ref/family_ref.py" make qwen3_5_moe m
    cp -r m each
    py - <<'END'
import mkst, re
t, out = mkst.load("m/model.safetensors"), {}
for name, (dtype, shape, data) in t.items():
    at = re.match(r"(model\..*\.experts\.)(gate_up|down)_proj$", name)
    if not at:
        out[name] = dtype, shape, data
        continue
    E, rows, cols = shape
    words = ["gate", "up"] if at[2] == "gate_up" else ["down"]
    n = len(data) // E // len(words)
    for i in range(E * len(words)):
        out["%s%d.%s_proj.weight" % (at[1], i // len(words), words[i % len(words)])] = (
            dtype, [rows // len(words), cols], data[i * n:i * n + n])
assert len(out) > len(t) + 20
mkst.save("each/model.safetensors", out)
END
    for how in int8 fp8 "int4 --group 8 --ignore *.down_proj" "int8 --dtype f32"; do
        set -f
        # shellcheck disable=SC2086
        for d in m each; do
            st-convert -q $d -o $d.q -f --weights $how >$d.table 2>/dev/null
        done
        set +f
        cmp m.q/config.json each.q/config.json
        cmp <(sort m.table) <(sort each.table)
        py -c 'import mkst
a, b = (mkst.load(d + ".q/model.safetensors") for d in ("m", "each"))
assert a == b and any(".experts.3.up_proj.weight" in n for n in a)'
        hf-infer m.q -q --ids 1,2,3 --logits q.npy -f
        st-convert -q m.q -o d -f --dequantize --dtype f32
        hf-infer d -q --ids 1,2,3 --logits d.npy -f
        py -c 'import numpy as np; q, d = np.load("q.npy"), np.load("d.npy"); assert abs(q - d).max() < 2e-4 * max(1, abs(d).max() / 5)'
    done
    # what is not packed at all stays a stack
    st-convert m -o k --weights int8 --ignore '*.experts.*' >table 2>err
    grep -q "experts.gate_up_proj" <(st-inspect list k)
    run -1 grep -q "experts\.[0-9]" <(st-inspect list k)
    grep -q "stacks of experts, .* are not packed" err
    # whose outputs are a number for each token
    run -1 grep -E "router|mlp.gate|shared_expert_gate" m.table
}

@test "st-convert --weights: experts of which a layer has all in one tensor stay, and a warning counts them" {
    py "$ROOT/test/ref/family_ref.py" make gpt_oss m
    stacks=$(py -c 'import mkst
t = {k: v for k, v in mkst.load("m/model.safetensors").items() if k.endswith("experts.gate_up_proj") or k.endswith("experts.down_proj")}
print("%d stacks of experts, %.0f KiB, are not" % (len(t), sum(len(v[2]) for v in t.values()) / 1024))')
    run -0 --separate-stderr st-convert m -o q --weights int8
    [ "${stderr_lines[0]}" = "st-convert: m: $stacks packed (the first is model.layers.0.mlp.experts.gate_up_proj)" ]
    st-convert -q m -o x.safetensors --select '*.experts.*'
    st-convert -q q -o y.safetensors --select '*.experts.*'
    st-inspect diff x.safetensors y.safetensors
    run -0 --separate-stderr st-convert m -o r --dtype f32 # nothing is packed
    [[ $stderr != *stack* ]]
}

# bats test_tags=long
@test "st-convert: a full disk is 74 and nothing is left, memory does not grow with the model" {
    small_disk 1M
    run -74 st-convert -q "$DEMO" -o disk/q --dtype f32
    [ -z "$(ls -A disk)" ]
    not_sanitized "it limits memory"
    py -c 'import json, os
for name, n, shape in ("big", 4, [4096, 8192]), ("row", 1, [1, 1 << 26]):
    size = 2 * shape[0] * shape[1]
    head = json.dumps({"a%d.weight" % i: {"dtype": "BF16", "shape": shape, "data_offsets": [i * size, (i + 1) * size]} for i in range(n)})
    with open(name + ".safetensors", "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head.encode())
        f.truncate(8 + len(head) + n * size)'
    peak() { # peak FILE FORM: KiB
        st-convert -q -j 2 "$1.safetensors" -o "$1-$2.safetensors" --weights "$2" >table &
        local now most=0
        while kill -0 $! 2>/dev/null; do
            now=$(awk '/^RssFile|^RssAnon/ { n += $2 } END { print n }' /proc/$!/status 2>/dev/null) || break
            [ "${now:-0}" -le "$most" ] || most=$now
        done
        wait $!
        echo "$1 $2: $most KiB" >&2
        [ "$most" -gt 0 ] && [ "$most" -lt "$3" ]
    }
    peak big int8 65536
    peak row int8 262144 # 128 MiB mapped, and 64 of codes
    peak row fp8 262144
}

@test "st-convert(1): the examples, as typed" {
    ln -s "$ROOT/demo" .
    ln -s demo/qwen3-tiny MODEL
    examples st-convert.1 >script
    run -0 --separate-stderr bash -eo pipefail script
    [ "${#lines[@]}" -ge 5 ]
    st-inspect diff one shards
    [ "$(st-inspect list l.safetensors | grep -c layers.0)" = 11 ]
}
