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

@test "packed_ref.py: each way to read a form wrongly moves logits by far more than may be" {
    run -0 py "$ROOT/test/ref/packed_ref.py" traps
    [ "${#lines[@]}" -ge 100 ]
}

@test "hf-infer: models in every packed form are as float64 on their numbers, and as F32 bit for bit" {
    run -0 py "$ROOT/test/ref/packed_ref.py" run
    [ "${#lines[@]}" -ge 45 ]
}
