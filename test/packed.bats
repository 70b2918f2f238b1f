# SPDX-License-Identifier: ISC
# Packed weights: each form on disk against float64, by test/ref/packed_ref.py.
load helpers

@test "packed_ref.py: words and bytes packed by hand are read as the layouts say" {
    py - <<'END'
import numpy as np, packed_forms as pf
word = np.array([[0x76543210]], "<i4")
one = np.ones((1, 1))
ct = {"quant_method": "compressed-tensors", "config_groups": {"": {
    "targets": ["Linear"], "weights": {
        "num_bits": 4, "type": "int", "strategy": "channel"}}}}
assert pf.dequantize({"weight_packed": word, "weight_scale": one / 2,
                      "weight_shape": [1, 7]}, ct)[0].tolist() == [
    -4, -3.5, -3, -2.5, -2, -1.5, -1]
awq = {"quant_method": "awq", "group_size": -1}
assert pf.dequantize({"qweight": word, "qzeros": word * 0, "scales": np.ones((1, 8))},
                     awq)[:, 0].tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
gptq = {"quant_method": "gptq", "bits": 4, "group_size": -1}
t = {"qweight": word, "qzeros": word * 0 + 7, "scales": one, "g_idx": [0] * 8}
assert pf.dequantize(t, gptq)[0].tolist() == list(range(-8, 0))
gptq["checkpoint_format"] = "gptq_v2"
assert pf.dequantize(t, gptq)[0].tolist() == list(range(-7, 1))
fp8 = {"quant_method": "fp8", "weight_block_size": [1, 2]}
assert pf.dequantize({"weight": np.array([[0x38, 0xc4, 0x01, 0x7e, 0x08]], "u1"),
                      "weight_scale_inv": np.array([[2, 3, 4]])}, fp8)[0].tolist() == [
    2, -6, 3 / 512, 1344, 1 / 16]
blocks = np.full((1, 1, 1, 16), 0xf2, "u1")
assert pf.mxfp4(blocks, np.array([[[128]]], "u1"))[0, 0, :4].tolist() == [2, -12, 2, -12]
END
}

# bats test_tags=long
@test "packed_ref.py: each way to read a form wrongly moves logits by far more than may be" {
    run -0 py "$ROOT/test/ref/packed_ref.py" traps
    [ "${#lines[@]}" -ge 100 ]
}

@test "hf-infer: models in every packed form are as float64 on their numbers, and as F32 bit for bit" {
    run -0 py "$ROOT/test/ref/packed_ref.py" run
    [ "${#lines[@]}" -ge 45 ]
}

@test "hf-infer: groups that do not divide a row, MXFP4 in other groups, and zero points of symmetric codes are refused" {
    refused() { # refused FORM MESSAGE STATEMENT: 65, once Python has changed c, t
        py "$ROOT/test/ref/packed_ref.py" llama "$1" m && py - "$3" <<'END'
import json, sys, mkst
c, t = json.load(open("m/config.json")), mkst.load("m/model.safetensors")
q, up = c["quantization_config"], "model.layers.0.mlp.up_proj."
w = q.get("config_groups", {}).get("group_0", {}).get("weights")
exec(sys.argv[1])
json.dump(c, open("m/config.json", "w"))
mkst.save("m/model.safetensors", t)
END
        run -65 --separate-stderr hf-infer m --ids 1,2
        [ "$stderr" = "hf-infer: m/$2" ] || { echo "$stderr" && false; }
        rm -r m m.dequantized
    }
    q=model.safetensors:\ model.layers.0.self_attn.q_proj up=model.safetensors:\ model.layers.0.mlp.up_proj
    refused ct-int4-group "$q.weight_scale: 72 columns are not a multiple of 25, group_size" "w['group_size'] = 25"
    refused awq "$q.scales: 96 columns are not a multiple of 33, group_size" "q['group_size'] = 33"
    refused ct-mxfp4 "config.json: quantization_config.config_groups.group_0.weights.group_size is 16 (expected 32)" "w['group_size'] = 16"
    for form in ct-int8-channel ct-int4-group; do
        refused $form "$up.weight_zero_point is not 0, but its group is symmetric" "t[up + 'weight_zero_point'] = ('I8', [1], bytes([3]))"
    done
}
