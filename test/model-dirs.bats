# SPDX-License-Identifier: ISC
# Model directories as people have them: what runs, and what is said of the rest.
load helpers

# write DIR NAME...: the demo model, with a tensor of ones [16] under each name.
write() {
    cp -r "$DEMO" "$1"
    py - "$@" <<'END'
import sys
import numpy as np, transformer
from tiny_models import write_safetensors
_, w = transformer.load(sys.argv[1])
write_safetensors(sys.argv[1] + "/model.safetensors", dict(w, **{x: np.ones(16) for x in sys.argv[2:]}), lambda n: "BF16")
END
}

@test "hf-infer, moe-sft tune: a tensor that the family has not in a layer is another model's; elsewhere it is a warning" {
    write buffers model.layers.0.self_attn.rotary_emb.inv_freq model.layers.0.self_attn.masked_bias
    write towers visual.layers.0.norm.weight model.layers.99.self_attn.q_norm.weight
    write another model.layers.1.self_attn.sinks
    echo '{"text":"a"}' >d.jsonl
    want=$(hf-infer "$DEMO" -p "1+1=" --nll -q)
    run -0 --separate-stderr hf-infer buffers -p "1+1=" --nll
    [ "$output" = "$want" ]
    [[ $stderr != *tensor* ]]
    run -0 --separate-stderr hf-infer towers -p "1+1=" --nll
    [ "$output" = "$want" ]
    [[ $stderr == *"towers: 2 tensors are not weights of this model, ignored (the first is model.layers.99.self_attn.q_norm.weight)"* ]]
    says="another: tensor model.layers.1.self_attn.sinks is in a layer that is computed, but qwen3 has no such weight: it is another model's"
    run -65 hf-infer another -p "1+1=" --nll
    [ "$output" = "hf-infer: $says" ]
    run -65 moe-sft tune -m another -d d.jsonl -o o
    [ "$output" = "moe-sft: $says" ]
}

@test "a directory that is no model is named by what it is, by every tool that takes one" {
    says() { # WHAT DIR: by the tool that runs models, and by others
        local want=$1
        for tool in "hf-infer $2 -p x -n 1" "moe-sft tune -m $2 -d d.jsonl -o o" "lut-precompute -m $2 -s $ROOT/demo/sae -o l" "st-inspect list $2"; do
            [ "${tool%% *}" != st-inspect ] || [ "${3-}" = tensors ] || continue
            # shellcheck disable=SC2086
            run -66 $tool
            [ "$output" = "${tool%% *}: $2: $want" ]
        done
    }
    echo '{"text":"a"}' >d.jsonl
    none='has no model.safetensors and no model.safetensors.index.json'
    # PEFT's, with the tokenizer that its save_pretrained() adds; and in its old form
    mkdir a
    cp "$DEMO/tokenizer.json" a
    echo '{"peft_type":"LORA","base_model_name_or_path":"Qwen/Qwen3-0.6B","r":1,"lora_alpha":1,"target_modules":["q_proj"]}' >a/adapter_config.json
    cp "$DEMO/model.safetensors" a/adapter_model.safetensors
    says 'is a LoRA adapter of Qwen/Qwen3-0.6B, not a model: give that model, and this with --lora' a
    rm a/adapter_model.safetensors
    printf 'PK\3\4aaaaaaaaaaaa' >a/adapter_model.bin
    run -66 hf-infer "$DEMO" -q -p x --lora a
    [ "$output" = "hf-infer: a: has no adapter_model.safetensors; adapter_model.bin is a zip archive (PyTorch's .pth and .bin are)" ]
    # the Hub's cache: https://huggingface.co/docs/huggingface_hub/guides/manage-cache
    mkdir -p models--X--Y/snapshots/{0a,1b} models--X--Y/refs
    says 'is a cache of the Hub: the model is models--X--Y/snapshots/0a' models--X--Y tensors
    printf 1b >models--X--Y/refs/main
    says 'is a cache of the Hub: the model is models--X--Y/snapshots/1b' models--X--Y tensors
    # a download that was stopped; one of another format, with config.json
    cp -r "$DEMO" m
    mv m/model.safetensors m/model-00002-of-00003.safetensors
    says "$none; model-00002-of-00003.safetensors is one of several shards, whose index is missing" m tensors
    # 1 of 1 is whole
    mv m/model{-00002-of-00003,-00001-of-00001}.safetensors
    cmp <(hf-infer m -q -p x -n 4 --seed 1) <(hf-infer "$DEMO" -q -p x -n 4 --seed 1)
    lut-precompute -q -m m -s "$ROOT/demo/sae" -o l
    rm m/model*
    echo '{}' >m/pytorch_model.bin.index.json
    says "$none; pytorch_model.bin.index.json is the index of PyTorch's weights: only safetensors are read" m tensors
    cp "$DEMO/model.safetensors" m/consolidated.safetensors
    run -66 hf-infer m -p x
    [ "$output" = "hf-infer: m: $none; consolidated.safetensors has Mistral's own names of tensors, not transformers'" ]
    # a dangling link of the cache is a file that is missing
    ln -s gone m/model.safetensors
    run -66 hf-infer m -p x
    [ "$output" = "hf-infer: m/model.safetensors: No such file or directory" ]
    # images and text
    echo '{"model_type":"mllama","text_config":{"model_type":"mllama_text_model"}}' >m/config.json
    run -65 hf-infer m -p x
    [[ "$output" = 'hf-infer: m/config.json: model_type "mllama" is not supported (llama, '* ]]
    echo '{"model_type":"llava","text_config":{"model_type":"opt"}}' >m/config.json
    run -65 hf-infer m -p x
    [[ "$output" = 'hf-infer: m/config.json: text_config.model_type "opt" is not supported (llama, '* ]]
}

@test "the index decides, in every tool: of a directory with older copies and spare shards all read the same, and all refuse a wrong one" {
    py - "$ROOT/demo/qwen3-moe-tiny" <<'END'
import json, os, shutil, sys, mkst
demo, old, new = sys.argv[1], "model-00001-of-00002.safetensors", "over.safetensors"
t = mkst.load(demo + "/model.safetensors")
over = {n: t[n] for n in t if "experts.1.up_proj" in n or "layers.0.self_attn.q_proj" in n or "embed" in n}
stale = {n: (d, s, bytes(len(b))) for n, (d, s, b) in over.items()}
def make(d, index, **files):
    shutil.copytree(demo, d)
    os.remove(d + "/model.safetensors")
    json.dump({"weight_map": index}, open(d + "/model.safetensors.index.json", "w"))
    for name, tensors in files.items():
        mkst.save(f"{d}/{name}", tensors)
right = {n: new if n in over else old for n in t}
make("good", right, **{old: t | stale | {"model.layers.0.self_attn.sinks": t["model.norm.weight"]}, new: over, "spare.safetensors": stale})
make("wrong", right | {"model.norm.weight": new}, **{old: t | stale, new: over})
make("gone", right | {"model.norm.weight": "gone.safetensors"}, **{old: t | stale, new: over})
make("twice", right | {"model.norm.weight": "link.safetensors"}, **{old: t | stale, new: over})
os.link("twice/" + old, "twice/link.safetensors")
END
    cp -rL "$ROOT/demo/qwen3-moe-tiny" plain
    echo '{"ids": [5, 9, 1], "labels": [5, 9, 1]}' >d.jsonl
    py -c 'import mkst, numpy as np
mkst.save("batch", {"input": mkst.bf16(np.random.default_rng(1).standard_normal((4, 64)))})'
    moe-sft init -b plain --layer 0 -o l.safetensors
    moe-sft tune -m plain -d d.jsonl -o adapter -n 1 --rank 2
    tools() { # commands that read the model M, and print or write what they made of it
        cat <<END
st-inspect list $1
st-inspect cat --raw $1 model.embed_tokens.weight
st-inspect stats $1
hf-infer $1 --ids 5,9,1 --nll -o out
moe-sft info -b $1 --layer 0
moe-sft init -b $1 --layer 1 -o out
moe-sft quantize -b $1 --layer 0 -o out
moe-sft forward -b $1 --layer 0 -l l.safetensors -i batch -o out
moe-sft merge -b $1 --layer 0 -l l.safetensors -o out.safetensors
moe-sft tune -m $1 -d d.jsonl --grads out --rank 2
END
    }
    made() {
        for f in out out.safetensors; do [ ! -e $f ] || { cat $f && rm $f; }; done
    }
    paste <(tools plain) <(tools good) | while IFS=$'\t' read -r a b; do
        $a >want 2>err || { echo "$a: $(<err)"; return 1; }
        made >>want
        $b >got 2>err || { echo "$b: $(<err)"; return 1; }
        made >>got
        cmp want got || { echo "$b"; return 1; }
    done
    moe-sft merge -b plain -l adapter -o want-merged
    moe-sft merge -b good -l adapter -o got-merged
    st-inspect diff want-merged got-merged
    st-inspect verify good
    for d in wrong gone twice; do
        run -1 st-inspect verify $d
        said=${output#*"$d/model"}
        { tools $d; echo "moe-sft merge -b $d -l adapter -o x"; echo "lut-precompute -m $d -s $ROOT/demo/sae -o x"; } | while read -r cmd; do
            # shellcheck disable=SC2086
            run -65 $cmd
            [[ $output == "${cmd%% *}: $d/model$said" ]] || { echo "$cmd: $output, not $said"; return 1; }
        done
    done
}

@test "moe-sft, hf-infer: a model given as adapter, an adapter as model, a file of another kind: said, with what to type" {
    moe=$ROOT/demo/qwen3-moe-tiny
    echo '{"ids": [5, 9, 1], "labels": [5, 9, 1]}' >d.jsonl
    moe-sft tune -m "$DEMO" -d d.jsonl -o a -n 1 --rank 2
    moe-sft init -b "$moe" --layer 0 -o l.safetensors
    cp a/adapter_model.safetensors alone.safetensors
    says() { # STATUS MESSAGE COMMAND...
        run "-$1" --separate-stderr "${@:3}"
        [ "${stderr_lines[0]}" = "$3: $2" ] || { echo "${*:3}: $stderr, not $2"; return 1; }
    }
    is_model="$DEMO: is a model, not an adapter (adapter_config.json is missing)"
    says 66 "$is_model" moe-sft merge -b "$DEMO" -l "$DEMO" -o x
    says 66 "$is_model" moe-sft tune -m "$DEMO" -d d.jsonl --init "$DEMO" -o x
    says 66 "$is_model" moe-sft convert -l "$DEMO" -o x
    says 66 "$is_model" hf-infer "$DEMO" --lora "$DEMO" -p x
    is_adapter="a: is a LoRA adapter of $DEMO, not a model: give that model, and this with --lora"
    for verb in "merge -l a -o x" "init -o x" "quantize -o x" info "forward -l l.safetensors -i d.jsonl -o x"; do
        # shellcheck disable=SC2086
        says 66 "$is_adapter" moe-sft $verb -b a
    done
    says 65 "l.safetensors: is a file, not a PEFT directory with adapter_config.json" moe-sft tune -m "$DEMO" -d d.jsonl --init l.safetensors -o x
    none="has no tensor gate_proj, nor model.layers.N.mlp.experts.E.gate_proj.weight"
    says 65 "l.safetensors: $none; it is an adapter, which -l takes" moe-sft merge -b l.safetensors -l l.safetensors -o x
    says 65 "$DEMO: $none: its layers have no experts (tune, merge and hf-infer take it as a whole model)" moe-sft init -b "$DEMO" -o x
    for how in "hf-infer $DEMO -p x --lora" "moe-sft info -l" "moe-sft convert -o x -l"; do
        # shellcheck disable=SC2086
        says 65 "alone.safetensors: is PEFT's, and adapter_config.json, which has its rank and alpha, is not next to it" $how alone.safetensors
    done
    says 65 "l.safetensors: is of experts, but layer 0 of $DEMO has none" hf-infer "$DEMO" --lora l.safetensors -p x
    # PEFT's file stands for its directory
    hf-infer "$DEMO" --lora a --ids 5,9,1 --nll -q >nll
    cmp nll <(hf-infer "$DEMO" --lora a/adapter_model.safetensors --ids 5,9,1 --nll -q)
    cmp nll <(cd a && hf-infer "$DEMO" --lora adapter_model.safetensors --ids 5,9,1 --nll -q)
    # examples in other forms
    other="is not JSON lines, an object on each line"
    while IFS=@ read -r name text after; do
        printf "$text" >"$name"
        says 65 "$name: $other$after" moe-sft tune -m "$DEMO" -d "$name" -o x
    done <<'END'
c.csv@prompt,completion\nhi,yo\n@, such as {"text": ".."}
array.json@[{"text": "a"}]\n@ (jq -c '.[]' makes them of an array)
lines.json@\n[\n {"text": "a"}\n]\n@ (jq -c '.[]' makes them of an array)
one.json@{\n "text": "a"\n}\n@ (jq -c . makes them)
END
    [ ! -e x ]
}
