# SPDX-License-Identifier: ISC
# scripts/random-model.py: model directories of published shapes for benchmarks.

load helpers

random_model() {
    "$PYTHON" "$ROOT/scripts/random-model.py" "$@"
}

@test "random-model.py: one seed gives the same bytes, another one others" {
    small="--set num_hidden_layers=1 --set vocab_size=64 --set hidden_size=64"
    # shellcheck disable=SC2086 # words on purpose
    for run in "a --seed 3" "b --seed 3" "c --seed 4"; do
        random_model $small $run
    done
    cmp a/model.safetensors b/model.safetensors
    run -1 cmp -s a/model.safetensors c/model.safetensors
}

@test "random-model.py: Qwen3-0.6B has 28 x 11 + 3 tensors with its lm_head" {
    # One layer and few tokens here: the names do not depend on the sizes.
    random_model --lm-head --set vocab_size=8 --set hidden_size=8 \
        --set intermediate_size=8 --set head_dim=2 m
    st-inspect verify m
    st-inspect m >list
    [ "$(sed 1d list | wc -l)" -eq 311 ]
    grep -q '	model.layers.27.self_attn.q_norm.weight$' list
}

@test "random-model.py: a stored lm_head of a tied model equals the embedding" {
    random_model --lm-head --set num_hidden_layers=1 --set vocab_size=64 m
    st-inspect hash -t 'lm_head*' -t '*embed_tokens*' m | sed 1d |
        cut -f 2 | sort -u >digests
    [ "$(wc -l <digests)" -eq 1 ]
}

@test "random-model.py: weights have the standard deviation of config.json" {
    random_model --set num_hidden_layers=1 --set vocab_size=1024 m
    st-inspect stats --json -t '*embed_tokens*' m >stats.json
    "$PYTHON" -c '
import json
(t,) = json.load(open("stats.json"))["tensors"]
assert abs(t["std"] - 0.02) < 1e-4 and abs(t["mean"]) < 1e-4, t
'
}

@test "random-model.py: experts where config.json says, and they run" {
    random_model --shape qwen3-30b-a3b --set num_hidden_layers=4 \
        --set vocab_size=64 --set hidden_size=32 --set num_experts=3 \
        --set num_experts_per_tok=2 --set mlp_only_layers='[3]' \
        --set decoder_sparse_step=2 --set moe_intermediate_size=8 m
    st-inspect m >list
    # 8 tensors a layer, 3 of each MLP, 1 + 3 x 3 of the one with experts
    [ "$(sed 1d list | wc -l)" -eq $((3 + 4 * 8 + 3 * 3 + 10)) ]
    grep -q '	model.layers.1.mlp.experts.2.up_proj.weight$' list
    run -0 --separate-stderr hf-infer m --ids 1,2,3 --top 1
    [ -z "$stderr" ]
}

# bats test_tags=long
@test "random-model.py: Qwen3-Next's and DeepSeek-V2-Lite's layers have their mixers and experts, and run" {
    random_model --shape qwen3-next-80b-a3b --set num_hidden_layers=4 \
        --set vocab_size=64 --set num_experts=3 --set num_experts_per_tok=2 n
    random_model --shape deepseek-v2-lite --set num_hidden_layers=2 \
        --set vocab_size=64 --set n_routed_experts=3 \
        --set num_experts_per_tok=2 d
    for m in n d; do
        st-inspect list "$m" | sed 1d >"$m.list"
        run -0 --separate-stderr hf-infer "$m" --ids 1,2,3 --top 1
        [ -z "$stderr" ]
    done
    # 2 norms and 1 + 4 x 3 + 1 of the MLP; 7 of DeltaNet, 6 of attention
    [ "$(wc -l <n.list)" -eq $((3 + 4 * 16 + 3 * 7 + 6)) ]
    # 2 norms and 5 of attention; an MLP, and 1 + 4 x 3
    [ "$(wc -l <d.list)" -eq $((3 + 2 * 7 + 3 + 13)) ]
}

@test "random-model.py --holes: a layer's matrices but its router's are zero, and take no room" {
    random_model --holes --shape qwen3-30b-a3b --set num_hidden_layers=1 \
        --set vocab_size=64 --set num_experts=4 --set num_experts_per_tok=2 m
    st-inspect stats m | py -c '
import sys
head, *rows = [x.rstrip("\n").split("\t") for x in sys.stdin]
for row in rows:
    x = dict(zip(head, row))
    hole = ".experts." in x["name"] or "self_attn" in x["name"] and "norm" not in x["name"]
    assert (float(x["std"]) == 0) == hole, x
'
    [ "$(du -k m/model.safetensors | cut -f 1)" -lt 10000 ]
    [ "$(wc -c <m/model.safetensors)" -gt 70000000 ]
}
