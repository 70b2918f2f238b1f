# SPDX-License-Identifier: ISC
# hf-infer --kvc: a KV cache made shorter, against float64.
load helpers

setup_file() {
    kept test/ref/tiny_models.py "$BATS_FILE_TMPDIR"
}

# average FACTOR FILE: a compressor of means for the demo model.
average() {
    py -c 'import sys, kvc_ref, kvc_model
kvc_ref.save(sys.argv[2], kvc_model.average(4, 32, int(sys.argv[1])), 32, int(sys.argv[1]))' "$@"
}

# ref MODEL LENGTH TOKENS AFTER DTYPE [WAY ..]
ref() {
    py "$ROOT/test/ref/kvc_model.py" "$@"
}

@test "hf-infer --kvc: each token's nll is float64's with the cache shortened by numpy" {
    ref "$DEMO" 5 120 83 f32 -j 1 -- -j 3 --chunk 7
    ref "$DEMO" 3 60 31 f16
    ref "$BATS_FILE_TMPDIR/llama-mqa-gelu" 4 50 30 f32
    ref "$BATS_FILE_TMPDIR/qwen3-yarn" 4 50 30 f32
}

# bats test_tags=long
@test "hf-infer --kvc: so it is of other models and longer texts" {
    ref "$DEMO" 2 40 21 f32
    ref "$DEMO" 5 300 203 f32 -j 1 -- -j 3 --chunk 7
    ref "$DEMO" 3 200 131 f16
    for m in llama-bias-f32 mistral qwen2; do
        ref "$BATS_FILE_TMPDIR/$m" 4 50 30 f32
    done
}

# bats test_tags=long
@test "hf-infer --kvc: of any family it is float64's, but where a layer has a window, which is named" {
    for m in gpt2 gpt_neox gemma cohere smollm3 olmo2 phi; do # positions learned, in pairs, none
        py "$ROOT/test/ref/family_ref.py" make $m $m
        py "$ROOT/test/ref/kvc_model.py" $m 3 50 31 f32
    done
    for m in gemma2 gemma3_text phi3 cohere2; do
        py "$ROOT/test/ref/family_ref.py" make $m $m
        py -c 'import sys, kvc_ref, kvc_model
layers, d, _, _ = kvc_model.reference(sys.argv[1], 9)
kvc_ref.save("c.bin", kvc_model.average(layers, d, 2), d, 2)' $m
        run -65 hf-infer $m --ids 1,2,3,4,5 --nll --kvc c.bin
        [ "$output" = "hf-infer: c.bin: layer 0 of the model has a sliding window, which a shorter cache cannot have" ]
    done
}

@test "hf-infer --kvc: values of another width than keys, as latents give them, are refused" {
    py "$ROOT/test/ref/family_ref.py" make deepseek_v3 m
    py -c 'import kvc_ref, kvc_model
kvc_ref.save("c.bin", kvc_model.average(3, 20, 2), 20, 2)'
    run -65 hf-infer m --ids 1,2,3,4,5 --nll --kvc c.bin
    [ "${lines[-1]}" = "hf-infer: c.bin: a key of the model has 20 numbers and a value 10, which a compressor cannot have" ]
}

@test "hf-infer --kvc: the bits do not depend on -j, --chunk or --batch" {
    average 2 c.bin
    same_for '-j 1' '-j 2' '-j 3 --chunk 5' -- \
        hf-infer "$DEMO" --ids "$(seq -s, 1 60)" --nll -q --kvc c.bin --kvc-after 33
    same_in_batches "$DEMO" -n 12 --kvc c.bin
    hf-infer "$DEMO" --jsonl --greedy -n 12 <lines >plain
    run -1 cmp -s one plain
    # a prompt alone goes the same way
    [ "$(hf-infer "$DEMO" --ids "$(seq -s, 5 45)" --greedy -n 12 --ids-out --kvc c.bin)" = \
        "$("$PYTHON" -c 'import json; print(*json.loads(open("one").readlines()[4])["ids"])')" ]
}

@test "hf-infer --kvc: too few groups change nothing, and are told" {
    average 2 c.bin
    ids=$(seq -s, 1 20)
    hf-infer "$DEMO" --ids "$ids" --nll -q >plain
    run -0 --separate-stderr hf-infer "$DEMO" --ids "$ids" --nll --kvc c.bin --kvc-after 3
    [ "$output" = "$(cat plain)" ]
    [ "${stderr_lines[0]}" = "hf-infer: c.bin: 3 tokens: too few groups, nothing is compressed" ]
    # min_seq_len counts groups: two of two tokens are enough
    hf-infer "$DEMO" --ids "$ids" --nll -q --kvc c.bin --kvc-after 4 >compressed
    run -1 cmp -s plain compressed
    for after in 3 4; do
        hf-infer "$DEMO" --ids "$ids" --nll -q --json --kvc c.bin --kvc-after $after
    done >json
    "$PYTHON" - <<'END'
import json, math
few, enough = [json.loads(line) for line in open("json")]
always = {"n_tokens", "nll_sum", "nll_mean", "perplexity"}
assert set(few) == always and set(enough) == always | {"kvc"}
kvc = enough["kvc"]
assert set(kvc) == {"n_before", "n_cached", "n_tokens", "nll_mean", "perplexity"}
assert (kvc["n_before"], kvc["n_cached"], kvc["n_tokens"]) == (4, 2, 15), kvc
# of 20 tokens 19 have a likelihood, and the 4 up to token 4's see no compressed key
nll = [float(line.split("\t")[2]) for line in open("compressed").readlines()[1:]]
assert len(nll) == 19
assert abs(kvc["nll_mean"] - sum(nll[4:]) / 15) < 1e-4, kvc
assert abs(kvc["perplexity"] / math.exp(kvc["nll_mean"]) - 1) < 1e-9
END
    cmp <(head -n 5 plain) <(head -n 5 compressed)
}

@test "hf-infer --kvc: a file that does not fit the model is refused by shape" {
    make() {
        py -c 'import sys, numpy as np, kvc_ref as k
layers, d, factor = map(int, sys.argv[1:4])
k.save("c.bin", k.random_mlps(np.random.default_rng(0), layers, 2, d, factor, 5, 5), d, factor)' "$@"
    }
    make 3 32 2
    run -65 hf-infer "$DEMO" -p hello --kvc c.bin
    [ "$output" = "hf-infer: c.bin: has 3 layers (expected the model's 4)" ]
    make 4 16 4
    run -65 hf-infer "$DEMO" -p hello --kvc c.bin
    [ "$output" = "hf-infer: c.bin: layer 0 makes 16 numbers of 64 (expected 32 of 128: head_dim of 4 tokens)" ]
    make 4 32 1
    run -65 hf-infer "$DEMO" -p hello --kvc c.bin
    [ "$output" = "hf-infer: c.bin: compression_factor is 1 (expected at least 2)" ]
    head -c 100 c.bin >cut.bin
    run -65 hf-infer "$DEMO" -p hello --kvc cut.bin
    [[ $output == "hf-infer: cut.bin: "* ]]
    run -66 hf-infer "$DEMO" -p hello --kvc none.bin
    [ "$output" = "hf-infer: none.bin: No such file or directory" ]
    average 2 c.bin
    run -65 hf-infer "$DEMO" --ids 1,2,3,4 --nll --kvc c.bin --kvc-after 3
    [ "$output" = "hf-infer: --ids: the text has 4 tokens (expected at least 2 after the 3 that --kvc compresses)" ]
    run -65 hf-infer "$DEMO" --ids 1,2 --nll --kvc c.bin
    [ "$output" = "hf-infer: --ids: the text has 2 tokens (expected at least 2 after the 1 that --kvc compresses)" ]
    run -2 hf-infer "$DEMO" --ids 1,2 --acts resid:0 --kvc c.bin
    run -2 hf-infer "$DEMO" --ids 1,2 --nll --kvc-after 3
}
