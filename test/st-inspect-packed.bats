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
    cp -r "$BATS_FILE_TMPDIR"/m/ct-int4-asym .
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
    st-inspect ct-int4-asym | grep -q '	-	model.layers.0.mlp.up_proj.weight_scale$'
    sed -i 's/"compressed-tensors"/"other"/' ct-int4-asym/config.json
    run -0 --separate-stderr st-inspect list -v ct-int4-asym
    [[ ${stderr_lines[0]} == *'quant_method "other"'* && ${lines[0]} == $'dtype\tshape\telements\tbytes\tname' ]]
    st-inspect verify ct-int4-asym
}
