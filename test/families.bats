# SPDX-License-Identifier: ISC
# Families of models: tiny ones with the keys, names and layouts of their files,
# against float64.  A family that --families does not list must be refused by name.
# It takes a minute.  make check-long has all variants, in all their ways.
load helpers

# held FAMILY...: two of its variants, or MOST; a line for each.
held() {
    local all family names
    all=$(py "$ROOT/test/ref/family_ref.py" list | cut -f 1)
    for family; do
        names=$(grep -m "${MOST-2}" -E "^$family(:|$)" <<<"$all")
        # shellcheck disable=SC2086
        run -0 py "$ROOT/test/ref/family_ref.py" run $names
        # a family is not held by being refused
        [ "$(grep -c ': logits ' <<<"$output")" = "$(wc -l <<<"$names")" ]
    done
}

@test "hf-infer: a llama's logits, rows at places and greedy tokens are the reference's" {
    unset TU_WAYS
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

@test "hf-infer: families with experts, their routers and those of all tokens, are as the reference" {
    held mixtral qwen2_moe
}

@test "hf-infer: GLM-4.5 and gpt-oss, with choices corrected, sinks and stacks of experts, are as the reference" {
    held glm4_moe gpt_oss
}

@test "hf-infer: DeepSeek V2 and V3 and Kimi K2, whose keys and values come of latents, are as the reference" {
    held deepseek_v2 deepseek_v3
}

@test "hf-infer: text models in a directory with a vision tower are as the reference" {
    held gemma3 qwen2_5_vl llava mistral3
}

@test "hf-infer: Qwen3-Next, most of whose layers have a state and no keys, is as the reference" {
    held qwen3_next
}

@test "hf-infer: Qwen3.5, whose projections lie apart and experts in one tensor, is as the reference" {
    held qwen3_5 qwen3_5_moe
}

@test "hf-infer: a model of images and text says in one line that its text part runs" {
    py "$ROOT/test/ref/family_ref.py" make llava m
    run -0 --separate-stderr hf-infer m --ids 1,2,3 --top 1
    [ "$stderr" = "hf-infer: m: is a llava: its text model runs, as a llama, and 18 tensors of other parts are ignored" ]
}

# bats test_tags=long
@test "hf-infer: each family's model by all threads and chunks, with an SAE at every place, is as the reference" {
    unset TU_WAYS
    MOST=99
    # shellcheck disable=SC2046
    held $(py "$ROOT/test/ref/family_ref.py" list | sed 's/[:\t].*//' | sort -u)
}

@test "families.bats: a test holds each family that the reference has" {
    for family in $(py "$ROOT/test/ref/family_ref.py" list | sed 's/[:\t].*//' | sort -u); do
        grep -qE "^    held .*\b$family( |$)" "$BATS_TEST_FILENAME"
    done
}

# bats test_tags=long
@test "hf-infer: families' prompts in batches are as alone; in bf16 they are near, by any instruction set" {
    isas_here
    for m in gpt2 gpt_neox gemma2 phi3 glm4 cohere2 deepseek_v2 mixtral gpt_oss qwen3_next; do
        py "$ROOT/test/ref/family_ref.py" make $m $m
        for o in '--compute f32' '--compute bf16' '--kv-dtype bf16'; do
            # shellcheck disable=SC2086
            same_in_batches $m -n 6 $o
            mv one "one${o##* }"
        done
        for isa in $ISAS; do
            TU_ISA=$isa same_in_batches $m -n 6 --compute f32 -j 1
            cmp one onef32
        done
        ids=$(head -n 1 $m/ids)
        hf-infer $m --ids "$ids" --logits compute.npy -f --compute bf16
        hf-infer $m --ids "$ids" --logits cache.npy -f --kv-dtype bf16
        py - $m "$ids" <<'END'
import sys, numpy as np, family_models, family_ref
want = family_ref.rows(sys.argv[1], family_models.parse(sys.argv[2]))
# a token of which other experts are chosen is far off
most = 0.3 if "_per_tok" in open(sys.argv[1] + "/config.json").read() else 0.03
for file in "compute.npy", "cache.npy": # 8 bits of a number: 2^-9 of each, of many
    off = np.linalg.norm(np.load(file) - want) / np.linalg.norm(want)
    assert 1e-4 < off < most, (file, off)
END
    done
}

@test "hf-infer -n: the last token, which nothing reads, needs no position" {
    py "$ROOT/test/ref/family_ref.py" make gpt2 m
    ids=$(seq -s, 0 63)
    next=$(hf-infer m --ids "$ids" --top 1 | tail -n 1 | cut -f 1)
    [ "$(hf-infer m --ids "$ids" -n 1 --greedy --ids-out)" = "$next" ]
    [[ $(hf-infer m --jsonl -n 1 --greedy <<<"{\"ids\":[$ids]}") == *"\"ids\":[$next]"* ]]
    run -65 hf-infer m --ids "$ids" -n 2 --ids-out
    run -65 hf-infer m --jsonl -n 2 <<<"{\"ids\":[$ids]}"
    run -65 hf-infer m --ids "$ids,1" -n 0 --ids-out
}

@test "hf-infer: GPT-2's positions end where its table does: longer is refused, or scored in windows" {
    py "$ROOT/test/ref/family_ref.py" make gpt2 m
    all=$(seq -s, 0 69)
    echo "{\"ids\":[$all]}" >long.jsonl
    expected="(expected at most 64, the model's context"
    while IFS='|' read -r options says; do
        # shellcheck disable=SC2086
        run -65 hf-infer m --ids "$all" $options
        [ "$output" = "hf-infer: --ids: $says" ]
    done <<END
--nll|the prompt has 70 tokens $expected; --stride scores it in windows)
--logits -|the prompt has 70 tokens $expected)
-n 4 --ids-out|the prompt has 70 tokens $expected)
--acts resid:0 -o a.f32|more than 64 tokens, the model's context (--ctx makes windows)
END
    run -65 hf-infer m --ids "$(seq -s, 0 59)" -n 8 --ids-out
    [ "$output" = "hf-infer: --ids: the prompt has 60 tokens and -n is 8, together 68 (expected at most 65, one more than the model's context)" ]
    run -2 hf-infer m --ids "$all" --nll --ctx 65
    [ "${lines[0]}" = "hf-infer: --ctx 65: the model's context is 64" ]
    run -65 hf-infer m --jsonl --nll <long.jsonl
    [ "$output" = "hf-infer: standard input: line 1: the prompt has 70 tokens $expected; --stride scores it in windows)" ]
    hf-infer m --ids "$all" --nll --stride 16 -q >by64
    hf-infer m --ids "$all" --nll --ctx 32 --stride 8 -q >by32
    [ "$(hf-infer m --jsonl --nll --stride 16 -q <long.jsonl)" = "$(hf-infer m --ids "$all" --nll --stride 16 -q --json)" ]
    py - <<'END'
import numpy as np, family_ref
for file, window, stride in ("by64", 64, 16), ("by32", 32, 8):
    got, want, end, begin = [], [], 0, 0
    while end < 70: # each token once, in the first window that has it
        first, end = max(end, begin + 1), min(begin + window, 70)
        ids = np.arange(begin, end)
        x = family_ref.rows("m", ids)
        logp = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
        want += [-logp[i - begin - 1, i] for i in range(first, end)]
        begin += stride
    for line in open(file).read().splitlines()[1:]:
        got.append(float(line.split("\t")[2]))
    assert len(got) == len(want) == 69 and abs(np.array(got) - want).max() < 2e-4, file
END
}
