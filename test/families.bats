# SPDX-License-Identifier: ISC
# Families of models: tiny ones with the keys, names and layouts of their files,
# against float64.  A family that --families does not list must be refused by name.
load helpers

# held FAMILY...: all its variants; a line for each.
held() {
    local all family names
    all=$(py "$ROOT/test/ref/family_ref.py" list | cut -f 1)
    for family; do
        names=$(grep -E "^$family(:|$)" <<<"$all")
        # shellcheck disable=SC2086
        run -0 py "$ROOT/test/ref/family_ref.py" run $names
        [ "${#lines[@]}" = "$(wc -l <<<"$names")" ]
    done
}

@test "hf-infer: a llama's logits, rows at places and greedy tokens are the reference's" {
    held llama
    [[ $output == "llama: logits "* ]]
}

@test "hf-infer: GPT-2 and NeoX, whose names and layouts are their own, are as the reference" {
    held gpt2 gpt_neox
}

@test "hf-infer: Gemma 1, 2 and 3, with 1 + w, softcaps, two thetas, are as the reference" {
    held gemma gemma2 gemma3_text
}

@test "hf-infer: Phi-3, with fused matrices and factors by length, is as the reference" {
    held phi3
}

@test "hf-infer: families with other multipliers, rotations and norms are as the reference" {
    held granite smollm3 olmo2 olmo3 glm4
}

@test "hf-infer: families with LayerNorm or one norm for two blocks are as the reference" {
    held phi stablelm starcoder2 cohere cohere2
}

@test "hf-infer: text models in a directory with a vision tower are as the reference" {
    held gemma3 qwen2_5_vl llava mistral3
}

@test "hf-infer: a model of images and text says in one line that its text part runs" {
    py "$ROOT/test/ref/family_ref.py" make llava m
    run -0 --separate-stderr hf-infer m --ids 1,2,3 --top 1
    [ "$stderr" = "hf-infer: m: is a llava: its text model runs, as a llama, and 18 tensors of other parts are ignored" ]
}

@test "families.bats: a test holds each family that the reference has" {
    for family in $(py "$ROOT/test/ref/family_ref.py" list | sed 's/[:\t].*//' | sort -u); do
        grep -qE "^    held .*\b$family( |$)" "$BATS_TEST_FILENAME"
    done
}
