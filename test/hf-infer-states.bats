# SPDX-License-Identifier: ISC
# hf-infer with layers that have a state in place of keys and values (Gated
# DeltaNet), which cannot go back: whoever goes on from tokens that were fed has
# the bits of who feeds all of them, or is refused.  families.bats has the
# numbers.
load helpers

setup_file() {
    [ -z "${LEFT_OUT-}" ] || return 0
    cd "$BATS_FILE_TMPDIR"
    py "$ROOT/test/ref/family_ref.py" make qwen3_5:text m
}

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    cp -r "$BATS_FILE_TMPDIR/m" .
}

# bits LAST OPTION...: a draw after ids 20 .. LAST, and their last logits.
bits() {
    hf-infer m --ids "$(seq -s, 20 "$1")" -n 6 --seed 3 --json --logprobs 4 "${@:2}"
    hf-infer m --ids "$(seq -s, 20 "$1")" --top 9 "${@:2}"
}

@test "hf-infer: states are the same for any threads, chunks and CPU" {
    same_for '-j 1' '-j 3 --chunk 1' '--chunk 2' '--chunk 5 -j 2' -- \
        hf-infer m --ids "$(seq -s, 20 60)" --logits -
    isas_here
    for isa in $ISAS; do
        TU_ISA=$isa hf-infer m --ids "$(seq -s, 20 60)" --logits - | cksum
    done >sums
    [ "$(sort -u sums | wc -l)" = 1 ]
}

@test "hf-infer --session: a state goes on from a file, and says where it cannot go back" {
    hf-infer m --ids "$(seq -s, 20 50)" -n 3 --ids-out --save-session s.st
    bits 60 >want
    bits 60 --session s.st >got 2>says
    cmp got want
    [ ! -s says ]
    bits 40 >want
    bits 40 --session s.st >got 2>says
    cmp got want
    [ "$(head -n 2 says)" = "hf-infer: s.st: the prompt begins with 21 of its 31 tokens
hf-infer: s.st: this model's state cannot go back: the prompt is fed from its first token on" ]
    at=$(($(stat -c %s s.st) - 4)) # of the last layer's state
    printf '\001' | dd of=s.st bs=1 seek=$at conv=notrunc status=none
    run -65 hf-infer m --ids 20,21,22 -n 1 --ids-out --session s.st
    [[ $output == "hf-infer: s.st: is damaged: its numbers are not those that were written"* ]]
}

@test "hf-infer --jsonl: prompts that begin alike share a state, with the bits of each alone" {
    "$PYTHON" - <<'END' >rows
import json
a, b = list(range(3, 40)), list(range(60, 90))
for i, ids in enumerate([a + [1], a + [1], a + [7, 8], a[:20] + [9], b + [1], b,
                         a + [1], a[:20], b + [2, 3], a]):
    print(json.dumps({"id": i, "ids": ids, "seed": i, "temperature": 1,
                      "max_tokens": 1 + 5 * i % 7}))
END
    hf-infer m --jsonl --logprobs 2 --batch 1 <rows >one
    "$PYTHON" - <<'END'
import json, subprocess
for line, got in zip(open("rows"), open("one")):
    p, got = json.loads(line), json.loads(got)
    alone = json.loads(subprocess.run(
        ["hf-infer", "m", "--ids", ",".join(map(str, p["ids"])), "--json",
         "--logprobs", "2", "--seed", str(p["seed"]), "--temperature", "1",
         "-n", str(p["max_tokens"])], check=True, capture_output=True).stdout)
    assert {k: v for k, v in alone.items() if k != "prompt_ids"}.items() <= got.items(), (alone, got)
END
    for how in '--batch 64' '--batch 4 --chunk 3' '--batch 2 -j 3'; do
        # shellcheck disable=SC2086
        hf-infer m --jsonl --logprobs 2 -v $how <rows >got 2>log
        cmp got one
        n=$(sed -n 's/.* tokens in, \([0-9]*\) of them shared.*/\1/p' log)
        [ "$n" -ge 37 ] # of the first two at least
    done
    # what all have in common stays there as they leave, two at a time
    "$PYTHON" - <<'END' >rows
import json
for i in range(7):
    print(json.dumps({"ids": list(range(40)) + [50 + i // 2] * 3 + [60 + i], "max_tokens": 1 + i % 3}))
END
    hf-infer m --jsonl --greedy --batch 1 <rows >one
    hf-infer m --jsonl --greedy --batch 2 -v <rows >got 2>log
    cmp got one
    n=$(sed -n 's/.* tokens in, \([0-9]*\) of them shared.*/\1/p' log)
    [ "$n" -ge $((6 * 32)) ]
}

@test "hf-infer --ablate-each: a state begins its window again for each latent" {
    ids=$(seq -s, 20 50)
    hf-infer m --ids "$ids" --acts resid:1 -q -o rows.npy
    py -c 'import numpy as np, splice_ref
x = np.load("rows.npy")
splice_ref.make("sae", "relu", "layers.1", x.reshape(-1, x.shape[-1]), 1)'
    hf-infer m -q --nll --ids "$ids" --ctx 12 --ablate-each sae:0-9 >each
    for i in $(seq 0 9); do
        hf-infer m -q --nll --json --ids "$ids" --ctx 12 --ablate sae:"$i"
    done >alone
    py - <<'END'
import json
rows = [line.split("\t") for line in open("each")][1:]
assert [float(r[2]) for r in rows] == [json.loads(x)["nll_sum"] for x in open("alone")]
assert sum(float(r[3]) != 0 for r in rows) > 3
END
}

@test "hf-infer: what a state cannot do is refused by name" {
    py -c 'import kvc_ref, kvc_model
kvc_ref.save("c.bin", kvc_model.average(4, 24, 2), 24, 2)'
    run -65 hf-infer m --ids 1,2,3,4,5 --nll --kvc c.bin
    [ "$output" = "hf-infer: c.bin: 3 layers of the model have a state in place of keys and values, which nothing makes fewer" ]
    run -2 --separate-stderr hf-infer m --ids 1,2 --acts in:o_proj:all -o x.npy
    [ "${stderr_lines[0]}" = "hf-infer: in:o_proj: rows of layer 2 have 96 numbers, those of layer 0 24: one array has layers of one width" ]
    [ "$(hf-infer m --ids 1,2 --acts layers.0.linear_attn.out_proj | wc -c)" = 192 ]
}

# refused SED SAYS: config.json, so changed, is refused with SAYS.
refused() {
    sed "$1" "$BATS_FILE_TMPDIR/m/config.json" >m/config.json
    run -65 hf-infer m --ids 1 --top 1
    [ "$output" = "hf-infer: m/config.json: $2" ]
}

@test "hf-infer: sizes and kinds of layers that no state can have are refused" {
    refused 's/"linear_num_value_heads": 4/"linear_num_value_heads": 3/' \
        'linear_num_value_heads is 3 (expected a multiple of linear_num_key_heads)'
    refused '0,/"linear_attention"/s//"sliding_attention"/' \
        'layer_types[0] "sliding_attention" is not supported (full_attention, linear_attention)'
    refused 's/"linear_conv_kernel_dim": 4/"linear_conv_kernel_dim": 17/' \
        'linear_conv_kernel_dim is 17 (expected a whole number from 1 to 16)'
    refused 's/"hidden_act": "silu"/"hidden_act": "gelu"/' 'hidden_act is "gelu" (expected silu)'
    # of models after these, whose gates of states are sigmoids
    refused 's/"hidden_act"/"output_gate_type": "sigmoid", &/' \
        'output_gate_type "sigmoid" is not supported (silu, swish)'
    sed 's/"hidden_act"/"output_gate_type": "swish", &/' "$BATS_FILE_TMPDIR/m/config.json" >m/config.json
    hf-infer m --ids 1 --top 1
    refused 's/"full_attention"/"linear_attention"/' \
        'layer_types is an array (expected a full_attention layer)'
    sed 's/"linear_conv_kernel_dim": 4/"linear_conv_kernel_dim": 3/' "$BATS_FILE_TMPDIR/m/config.json" >m/config.json
    run -65 hf-infer m --ids 1 --top 1
    [[ $output == *'.linear_attn.conv1d.weight'*'(expected [56, 1, 3] by config.json)' ]]
}

@test "hf-infer --lora: adapters of a state's matrices, by PEFT's names, are as merged into them in float64" {
    py "$ROOT/test/ref/family_ref.py" make qwen3_next f
    for model in m f; do
        py - $model <<'END'
import sys, shutil, numpy as np, lora_cases, mkst
model = sys.argv[1]
weights, kinds = mkst.read(model + "/model.safetensors")[0], mkst.load(model + "/model.safetensors")
modules = [n.removesuffix(".weight") for n in weights
           if "attn." in n and "_proj" in n and not n.startswith("mtp.")]
words = {m.split(".")[-1] for m in modules}
assert words >= ({"in_proj_qkvz", "in_proj_ba"} if model == "f" else
                 {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"}) | {"out_proj", "q_proj", "o_proj"}, words
config, tensors, _ = lora_cases.peft(np.random.default_rng(1), weights, modules)
lora_cases.write_peft(model + "-lora", config, tensors)
lora_cases.merge_peft(weights, model + "-lora")
shutil.copytree(model, model + "-merged")
mkst.save(model + "-merged/model.safetensors", {
    n: mkst.entry(np.asarray(w, "<f4")) if n.removesuffix(".weight") in modules else
    mkst.entry(mkst.values(*kinds[n]).astype("<f4")) for n, w in weights.items()})
END
        hf-infer $model --lora $model-lora --ids "$(seq -s, 20 44)" --logits got.npy -f -q
        py "$ROOT/test/ref/family_ref.py" check $model-merged --ids "$(seq -s, 20 44)" --got got.npy
        hf-infer $model --ids "$(seq -s, 20 44)" --logits got.npy -f -q
        run -1 py "$ROOT/test/ref/family_ref.py" check $model-merged --ids "$(seq -s, 20 44)" --got got.npy
    done
}

# chat FAMILY: a conversation with a tiny model that says words.
chat() {
    rm -r m
    py "$ROOT/test/ref/family_ref.py" make "$1" m
    cp "$DEMO"/tokenizer*.json m
    py - "$DEMO" <<'END'
import json, subprocess, sys, numpy as np, mkst
from conversation import Conversation, TEMPLATE
open("t.jinja", "w").write(TEMPLATE)
c = json.load(open("m/config.json"))
n = json.load(open(sys.argv[1] + "/config.json"))["vocab_size"]
t = mkst.load("m/model.safetensors")
words = [i for x, i in json.load(open("m/tokenizer.json"))["model"]["vocab"].items() if x.islower() and x.isascii()]
for name in "model.embed_tokens.weight", "lm_head.weight":
    w = np.random.default_rng(3).normal(0, 1, (n, c["hidden_size"]))
    if name[0] == "l": # it says letters alone
        w[np.setdiff1d(np.arange(n), words)] = 0
    t[name] = mkst.entry(w.astype("<f4"))
mkst.save("m/model.safetensors", t)
json.dump(dict(c, vocab_size=n, max_position_embeddings=999), open("m/config.json", "w"))
how = ["--chat", "--template", "t.jinja", "--greedy", "-n", "9"]
c = Conversation(["hf-infer", "m", "-v", *how], TERM="dumb")
c.wait("\n> ")
messages, used = [], []
for line in "What is it?", "And 12+34=", "Why?":
    c.type(line + "\n")
    n, kept = map(int, c.wait(r"prompt (\d+) tokens?, (\d+) of them cached\r\n")[1].groups())
    answer = c.wait(r"\r\n> ")[0].replace("\r\n", "\n")
    messages.append({"role": "user", "content": line})
    json.dump(messages, open("m.json", "w"))
    want = subprocess.run(["hf-infer", "m", "-q", "--messages", "m.json", *how],
                          check=True, capture_output=True, text=True).stdout
    assert answer == want.rstrip("\n"), (line, answer, want)
    messages.append({"role": "assistant", "content": want})
    used.append(kept)
assert used[0] == 0 and used[1] > 0 and used[2] > used[1], used
c.type("/quit\n")
assert c.end() == 0
END
}

@test "hf-infer --chat: a conversation goes on from states, latents and windows, with the answers of whole prompts" {
    EDITS=$(ldd "$BUILD/hf-infer" | grep -c libedit) || :
    export EDITS
    chat qwen3_5:text
    chat deepseek_v3
    chat gpt_oss
}

@test "saev-read, sae-train, lut-precompute: what a layer of Gated DeltaNet reads has the layer's own names" {
    for at in in:o_proj:1 attn:1,attn:2 in:q_proj:0 in:o_proj:2; do
        hf-infer m -q --ids "$(seq -s, 20 59)" --ctx 8 --acts $at --acts-meta meta.json -o x -f
        saev-write -q -m meta.json -o acts x
    done >dumps
    xargs -n 1 saev-read info <dumps | sed -n 's/.*\thook\t//p' >hooks
    diff - hooks <<'END'
layers.1.linear_attn.out_proj
layers.1.linear_attn,layers.2.self_attn
layers.0.linear_attn.in_proj_qkv
layers.2.self_attn.o_proj
END
    sae-train -q -k 4 --latents 32 -n 2 -o sae "$(head -n 1 dumps)"
    grep -q '"hook": "layers.1.linear_attn.out_proj"' sae/cfg.json
    hf-infer m --ids 1,2,3 --sae sae --logits want.npy
    lut-precompute -q -m m -s sae -o want
    # what others call the place
    for hook in layers.1.self_attn.o_proj blocks.1.attn.hook_z; do
        sed -i -E "s/(\"hook\": )\"[^\"]*/\1\"$hook/" sae/cfg.json
        hf-infer m --ids 1,2,3 --sae sae --logits got.npy -f
        cmp want.npy got.npy
        lut-precompute -q -m m -s sae -o got -f
        diff -r want got
    done
    [ -e want/model.layers.1.linear_attn.out_proj.lut.safetensors ]
    hf-infer m --ids 1,2,3 --lut want --logits got.npy -f
}
