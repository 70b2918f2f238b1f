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
