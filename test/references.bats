# SPDX-License-Identifier: ISC
# The references of test/ref, against a program that is not ours.
load helpers

# bats test_tags=long
@test "references: a model's loss and gradients are those of torch's autograd in float64" {
    need_torch
    run -0 py "$ROOT/test/ref/lm_cases.py" --autograd .
    [ "$(wc -l <<<"$output")" -ge 24 ]
    for kind in llama mistral-window-7 llama-llama3 llama-mqa-gelu qwen2 qwen3 qwen3-yarn qwen3_moe; do
        grep -q "^$kind: loss " <<<"$output"
    done
}

# bats test_tags=long
@test "references: families' logits are transformer.py's, torch's for GPT-2, and far nearer in f32 than is asked" {
    need_torch
    run -0 py "$ROOT/test/ref/family_ref.py" selftest
    [ "$(grep -c ' in f32: ' <<<"$output")" -ge "$(py "$ROOT/test/ref/family_ref.py" list | wc -l)" ]
    grep -q '^gpt2 by torch: ' <<<"$output"
    grep -q "^delta rule, all tokens at once: " <<<"$output"
}

# bats test_tags=long
@test "references: gradients of families' adapters are those of differences of numpy's loss" {
    need_torch
    run -0 py "$ROOT/test/ref/family_tune.py" reference gpt2:inner gemma2:caps phi3:longrope-partial olmo2 mixtral gpt_oss deepseek_v3 qwen3_next:dense qwen3_5:text qwen3_5_moe
    [ "${#lines[@]}" = 10 ]
}

# bats test_tags=long
@test "references: each way to read a family wrongly moves logits by 20 times what its test allows" {
    run -0 py "$ROOT/test/ref/family_ref.py" trap
    [ "$(wc -l <<<"$output")" -ge 1300 ]
    py "$ROOT/test/ref/family_ref.py" make gpt2 gpt2
    ids=$(py "$ROOT/test/ref/family_ref.py" ids gpt2)
    py "$ROOT/test/ref/family_ref.py" logits gpt2 --ids "$ids" -o got.npy
    py "$ROOT/test/ref/family_ref.py" check gpt2 --ids "$ids" --got got.npy
    py -c 'import numpy as np; x = np.load("got.npy"); x[3, 5] += 0.01; np.save("got.npy", x)'
    run -1 py "$ROOT/test/ref/family_ref.py" check gpt2 --ids "$ids" --got got.npy
    [[ $output == "worst: row 3, column 5: "* ]]
}

# bats test_tags=long
@test "references: each way to read a vision model wrongly moves its rows by 20 times what is allowed" {
    run -0 py "$ROOT/test/ref/vision_ref.py" trap
    [ "$(cut -f 1 <<<"$output" | sort -u | wc -l)" -eq 20 ]
    [ "$(grep -c "^eps" <<<"$output")" = "$(py "$ROOT/test/ref/vision_ref.py" list | wc -l)" ]
}
