# SPDX-License-Identifier: ISC
# Packed weights.  The models are test/ref/packed_ref.py's, whose numbers are
# float64 arithmetic on the definitions; FORM.dequantized has them as F32.
load helpers

# Every form of a llama; a test that writes copies its own.
setup_file() {
    mkdir "$BATS_FILE_TMPDIR/m"
    cd "$BATS_FILE_TMPDIR/m" || return
    py -c 'import packed_ref
for form in packed_ref.FORMS:
    packed_ref.make("llama", form, form)'
}

# models FORM...: links to FORM and FORM.dequantized
models() {
    for d; do
        ln -s "$BATS_FILE_TMPDIR/m/$d" "$BATS_FILE_TMPDIR/m/$d.dequantized" .
    done
}

@test "diff --dequantize: weights of every form have the reference's bits" {
    cd "$BATS_FILE_TMPDIR/m"
    for d in *.dequantized; do
        # TYPE/F32: that of packed weights; of 14 one may be listed as plain
        st-inspect diff --dequantize --all -t '*.weight' "${d%.*}" "$d" |
            grep -cE '^same	[^F]*/F32	.*_proj.weight$' | grep -E '^1[34]$'
    done
}

@test "diff --dequantize: a weight's error is numpy's" {
    models ct-int8-group ct-int4-asym awq
    st-inspect diff ct-int8-group.dequantized ct-int4-asym --dequantize --json >got || [ $? = 1 ]
    st-inspect diff ct-int8-group ct-int4-asym --dequantize --json -j 3 >both || [ $? = 1 ]
    py - <<'END'
import json, mkst, numpy as np
a, b = (mkst.load(f + ".dequantized/model.safetensors") for f in ("ct-int8-group", "ct-int4-asym"))
n = 0
for r, both in zip(json.load(open("got"))["tensors"], json.load(open("both"))["tensors"]):
    x, y = (mkst.values(*t[r["name"]]).astype(np.float64) for t in (a, b))
    assert (r["result"], r["a"]["dtype"], r["b"]["dtype"]) == ("values", "F32", "int4 g24"), r
    assert r["a"]["shape"] == r["b"]["shape"] == list(x.shape)
    assert both["a"]["dtype"] == "int8 g24" and all(r[k] == both[k] for k in ("relative", "max_abs", "max_ulp"))
    assert r["n_differ"] == (x != y).sum() and r["max_abs"] == np.abs(x - y).max()
    assert np.isclose(r["relative"], np.linalg.norm(y - x) / np.linalg.norm(x), 1e-12, 0)
    assert np.isclose(r["cosine"], (x * y).sum() / np.linalg.norm(x) / np.linalg.norm(y), 1e-12, 0)
    n += 1
assert n == 14
END
    # as today without it; and with an array, of which numpy knows nothing else
    run -1 st-inspect diff ct-int8-group.dequantized ct-int4-asym
    [ "$(grep -c "^only_b	I32	.*weight_packed" <<<"$output")" = 14 ]
    st-inspect cat --dequantize -o w.npy awq model.layers.0.mlp.up_proj.weight
    st-inspect diff --dequantize -t '*0.mlp.up_proj.weight' awq w.npy
    # without a config.json numbers are as they are, but codes are refused
    cp awq.dequantized/model.safetensors plain.safetensors
    st-inspect diff --dequantize -t '*.weight' awq plain.safetensors
    cp awq/model.safetensors codes.safetensors
    run -66 --separate-stderr st-inspect diff --dequantize awq codes.safetensors
    [[ $stderr == *"has no config.json next to it, which says what --dequantize needs to know" ]]
}

@test "stats --dequantize: numpy's statistics of the numbers, for any -j" {
    models fp8 ct-int3-asym gptq4-desc
    for d in fp8 ct-int3-asym gptq4-desc; do
        st-inspect stats --dequantize --json --hist --bins 7 "$d" >"$d.json"
        st-inspect stats --dequantize --json --hist --bins 7 -j 1 "$d" | cmp - "$d.json"
    done
    py - <<'END'
import json, mkst, numpy as np
types = {"fp8": "fp8 32x40", "ct-int3-asym": "int3 g24", "gptq4-desc": "int4 g32"}
for form, type in types.items():
    t = mkst.load(form + ".dequantized/model.safetensors")
    j = json.load(open(form + ".json"))
    assert [r["name"] for r in j["tensors"]] == sorted(t)
    for r in j["tensors"]:
        x = mkst.values(*t[r["name"]]).astype(np.float64).ravel()
        packed = t[r["name"]][0] == "F32"
        assert r["dtype"] == (type if packed else t[r["name"]][0]), r
        assert r["shape"] == list(t[r["name"]][1])
        assert (r["min"], r["max"], r["n_zero"], r["n_nan"]) == (x.min(), x.max(), (x == 0).sum(), 0)
        assert np.isclose(r["mean"], x.mean(), 1e-12, 1e-15) and np.isclose(r["std"], x.std(), 1e-12, 0)
        assert np.array_equal(r["quantiles"], np.quantile(x, j["quantiles"]))
        assert r["histogram"]["counts"] == np.histogram(x, 7)[0].tolist()
END
}

@test "cat --dequantize: a slice of the numbers" {
    models awq ct-int5
    for d in awq ct-int5; do
        w=model.layers.1.mlp.down_proj.weight
        for s in :,: 3:90:7,::-1 -1,5 1:3,70:; do
            st-inspect cat --dequantize --slice "$s" "$d" $w | cmp - <(st-inspect cat --slice "$s" "$d.dequantized" $w)
        done
        cmp <(st-inspect cat --dequantize --json "$d" $w) <(st-inspect cat --json "$d.dequantized" $w)
        run -66 st-inspect cat --dequantize "$d" "${w%weight}scales"
        run -2 st-inspect cat --dequantize --raw "$d" $w
    done
}

@test "experts of MXFP4 are one tensor of three dims" {
    mkdir m
    py - <<'END'
import json, mkst, numpy as np, packed_forms
rng = np.random.default_rng(1)
name = "model.layers.0.mlp.experts.gate_up_proj"
blocks, scales = rng.integers(0, 256, (3, 5, 2, 16), np.uint8), rng.integers(118, 130, (3, 5, 2), np.uint8)
mkst.save("m/model.safetensors", {name + "_blocks": blocks, name + "_scales": scales, name + "_bias": np.ones((3, 5), "<f4")})
json.dump({"quantization_config": {"quant_method": "mxfp4"}}, open("m/config.json", "w"))
np.save("w.npy", packed_forms.mxfp4(blocks, scales))
END
    st-inspect diff --dequantize -t '*_proj' m w.npy
    run -0 st-inspect stats --dequantize m
    [[ ${lines[1]} == "mxfp4	960	"*"experts.gate_up_proj" && ${lines[2]} == "F32	15	"* ]]
    run -0 st-inspect list m
    [[ ${lines[2]} == *"	mxfp4 [3,5,64]	"*_blocks ]]
}

@test "experts of FP8 are one tensor, in blocks that end with each expert" {
    mkdir m
    py - <<'END'
import json, mkst, numpy as np, packed_forms
rng = np.random.default_rng(1)
name = "model.layers.0.mlp.experts.down_proj"
codes, scales = rng.integers(0, 126, (3, 5, 7), np.uint8), rng.standard_normal((3, 2, 3)).astype("<f4")
t = {name: ("F8_E4M3", [3, 5, 7], codes.tobytes()), name + "_scale_inv": ("F32", [3, 2, 3], scales.tobytes())}
mkst.save_raw("m/model.safetensors", mkst.header(t), b"".join(v[2] for v in t.values()))
json.dump({"quantization_config": {"quant_method": "fp8", "weight_block_size": [3, 3]}}, open("m/config.json", "w"))
np.save("w.npy", (packed_forms.e4m3(codes) * scales.repeat(3, 1)[:, :5].repeat(3, 2)[:, :, :7]).astype("<f4"))
END
    st-inspect diff --dequantize -t '*_proj' m w.npy
    run -0 st-inspect list m
    [[ ${lines[1]} == *"	fp8 3x3 [3,5,7]	"*experts.down_proj && ${lines[2]} == *"	scales	"*_scale_inv ]]
    st-convert -q m -o out --dequantize --dtype f32
    st-inspect diff -t '*_proj' out w.npy
    [ "$(st-inspect list out | grep -c experts)" = 1 ]
}

@test "list and tree: say what lies behind packed tensors" {
    models ct-int4-actorder-asym fp8
    # by hand: 96 x 160, in groups of 32
    run -0 st-inspect list -t '*1.mlp.down_proj*' ct-int4-actorder-asym
    [ "$(cut -f1,2,5,6 <<<"$output")" = "$(printf '%s\t%s\t%s\tmodel.layers.1.mlp.down_proj.%s\n' \
        I32 '[160]' 'group index' weight_g_idx I32 '[96,20]' 'int4 g32 [96,160]' weight_packed \
        BF16 '[96,5]' scales weight_scale I64 '[2]' shape weight_shape \
        I32 '[12,5]' 'zero points' weight_zero_point | sed '1i dtype\tshape\tpacked\tname')" ]
    run -0 st-inspect tree --depth 0 -t '*1.mlp.down_proj*' ct-int4-actorder-asym
    # 96 x 160 numbers; 4 * (160 + 96 * 20 + 12 * 5) + 2 * 96 * 5 + 8 * 2 bytes
    [ "${lines[-1]}" = "$(printf '15360\t100.0\t9536\t5\tint4 g32 [96,160]\t%10sdown_proj')" ]
    run -0 st-inspect list --fold --json -t '*up_proj*' fp8
    py -c 'import json, sys
a, b = (r["packed"] for r in json.loads(sys.argv[1])["tensors"])
assert a == {"part": "codes", "module": "model.layers.{0..1}.mlp.up_proj", "type": "fp8 32x40", "shape": [117, 61]}
assert b == dict(a, part="scales")' "$output"
    run -0 st-inspect tree --json --depth 0 fp8
    py -c 'import json, sys
m = {m["module"]: m for m in json.loads(sys.argv[1])["modules"]}
up, norm = m["model.layers.0.mlp.up_proj"], m["model.norm"]
assert up["dtypes"] == ["fp8 32x40"] and up["shape"] == [117, 61] and up["n_elements"] == 117 * 61
assert m[""]["dtypes"] == ["BF16", "fp8 32x40"] and m[""]["n_tensors"] == 34 and "shape" not in norm
assert m["model.layers.1.self_attn.v_proj"]["dtypes"] == ["BF16"] # listed as plain' "$output"
    # without a quantization_config nothing is different
    [ "$(st-inspect fp8.dequantized | head -1)" = $'dtype\tshape\telements\tbytes\tname' ]
}

@test "packed parts that do not fit are named, and still listed" {
    cp -r "$BATS_FILE_TMPDIR"/m/ct-int4-asym{,.dequantized} .
    st-inspect verify ct-int4-asym
    py - <<'END'
import mkst
t = mkst.load("ct-int4-asym/model.safetensors")
w = "model.layers.0.mlp.up_proj.weight_scale"
d, s, b = t[w]
t[w] = d, [s[1], s[0]], b
mkst.save("ct-int4-asym/model.safetensors", t)
END
    run -1 st-inspect verify ct-int4-asym
    [[ ${lines[1]} == *"model.layers.0.mlp.up_proj.weight_scale"*"[3, 120]"* ]]
    run -65 st-inspect stats --dequantize ct-int4-asym
    [[ $output == *"model.layers.0.mlp.up_proj.weight_scale"* ]]
    st-inspect ct-int4-asym | grep -q '	-	model.layers.0.mlp.up_proj.weight_scale$'
    mv ct-int4-asym/model.safetensors .
    run -66 st-inspect stats --dequantize model.safetensors
    [ "$output" = "st-inspect: model.safetensors: has no config.json next to it, which says what --dequantize needs to know" ]
    mv model.safetensors ct-int4-asym
    sed -i 's/"compressed-tensors"/"other"/' ct-int4-asym/config.json
    run -65 st-inspect diff --dequantize ct-int4-asym ct-int4-asym.dequantized
    [[ $output == *'quant_method "other"'* ]]
    run -0 --separate-stderr st-inspect list -v ct-int4-asym
    [[ ${stderr_lines[0]} == *'quant_method "other"'* && ${lines[0]} == $'dtype\tshape\telements\tbytes\tname' ]]
    st-inspect verify ct-int4-asym
}

@test "modules that are not packed are named whole, by words of their names, or by these and \".*\"" {
    cp -r "$BATS_FILE_TMPDIR/m/fp8" .
    # says NAME: the status of verify, with NAME in modules_to_not_convert
    says() {
        py - "$1" <<'END'
import json, sys
c = json.load(open("fp8/config.json"))
c["quantization_config"]["modules_to_not_convert"] = [sys.argv[1], "model.layers.1.self_attn.v_proj"]
json.dump(c, open("fp8/config.json", "w"))
END
        run st-inspect verify fp8
        [ "$status" = 0 ] || [[ $output == *"model.layers.0.mlp."*"_proj.weight is packed, but quantization_config of fp8/config.json says that it is not"* ]]
    }
    for name in model.layers.0.mlp 'layers.0.mlp.*' mlp. 0.mlp model.layers.0.mlp.up_proj; do
        says "$name"
        [ "$status" = 1 ]
    done
    for name in layers.0.ml .mlp mlp..up_proj '*' ''; do
        says "$name"
        [ "$status" = 0 ]
    done
}

@test "zero points in bytes that are fewer than the scales are refused, not read past their end" {
    cp -r "$BATS_FILE_TMPDIR/m/ct-int8-group" .
    # says DIMS: the status of verify with zero points of that shape for up_proj, which has 120 rows of 3 groups
    says() {
        py - "$@" <<'END'
import json, sys, numpy as np, mkst
m = "ct-int8-group/model.safetensors"
c, t = json.load(open("ct-int8-group/config.json")), mkst.load(m)
for g in c["quantization_config"]["config_groups"].values():
    g["weights"]["symmetric"] = False
json.dump(c, open("ct-int8-group/config.json", "w"))
for name in list(t):
    if name.endswith("_scale"):
        dims = [int(x) for x in sys.argv[1:]] if "0.mlp.up_proj" in name else t[name][1]
        t[name[:-5] + "zero_point"] = np.zeros(dims, np.int8)
mkst.save(m, t)
END
        run st-inspect verify ct-int8-group
    }
    says 120 3
    [ "$status" = 0 ]
    for dims in 120 "" "120 1"; do
        # shellcheck disable=SC2086
        says $dims
        [ "$status" = 1 ]
        [[ $output == *"model.layers.0.mlp.up_proj.weight_zero_point is ["*"] (expected [120, 3]"* ]]
    done
}
