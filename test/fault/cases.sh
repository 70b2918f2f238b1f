#!/bin/sh
# SPDX-License-Identifier: ISC
# The commands that scripts/faults.sh and scripts/limits.sh run, and what they
# read.  To be sourced at the root, with BUILD's tools in PATH and PYTHON set.
set -eu

# A directory to work in, where the shim is preloaded from: LD_PRELOAD takes no
# spaces and colons.
new_dir() {
    dir=$(mktemp -d)
    case $dir in
    *[\ :]*) rmdir "$dir" && TMPDIR=/tmp mktemp -d ;;
    *) echo "$dir" ;;
    esac
}

# In the order of README's tools.  NAME | what fills ./out | options of
# run.c | the command.  Words are split at spaces, and nothing is quoted.
table() {
    cat <<'END_OF_TABLE'
st-list      |                          |        | st-inspect list -l in/m
st-json      |                          |        | st-inspect list --json in/m/model.safetensors
st-tree      |                          |        | st-inspect tree in/shards
st-stats     |                          |        | st-inspect stats -j 2 -t *.0.* in/m
st-svg       |                          |        | st-inspect stats --hist --svg out/s.svg -t *norm* in/m
st-plot      |                          |        | st-inspect stats --plot --bins 5 -t *norm* in/m
st-hash      |                          |        | st-inspect hash -j 2 in/two.safetensors in/m
st-sha256    |                          | -q 300 | st-inspect hash --sha256 --whole in/two.safetensors
st-check     |                          | -w     | st-inspect hash --check in/sums
st-verify    |                          | -w     | st-inspect verify in/m in/shards
st-unsound   |                          | -w     | st-inspect verify in/cut.safetensors in/two.safetensors
st-diff      |                          |        | st-inspect diff in/two.safetensors in/other.safetensors
st-diff-dirs |                          |        | st-inspect diff -j 2 in/m in/m
st-packed    |                          |        | st-inspect stats --dequantize -j 2 -t *.0.mlp* in/awq
st-unpack    |                          |        | st-inspect diff --dequantize -j 2 in/awq in/awq.dequantized
st-cat       |                          |        | st-inspect cat in/two.safetensors b
st-cat-pipe  |                          | -P     | st-inspect cat --raw in/m/model.safetensors model.embed_tokens.weight
st-cat-file  |                          |        | st-inspect cat -o out/x.npy --dtype f64 in/two.safetensors b
st-cat-force | cp in/sums out/x         |        | st-inspect cat -f -o out/x --raw in/two.safetensors b
st-cat-link  | cp in/sums out/t; ln -s t out/x |  | st-inspect cat -f -o out/x --raw in/two.safetensors b
st-slice     |                          |        | st-inspect cat --slice 1:,:: in/two.safetensors b
st-meta      |                          |        | st-inspect meta in/two.safetensors
hf-generate  |                          |        | hf-infer in/demo -q -j 1 -p 1+1= -n 3 --greedy
hf-threads   |                          | -P     | hf-infer in/m -q -j 3 --ids 1,2,3 -n 3 --seed 2 --ids-out
hf-moe       |                          |        | hf-infer in/moe -q -j 2 --ids 1,2,3 -n 2 --greedy --ids-out
hf-nll       |                          | -i in/text | hf-infer in/demo -q -j 1 --nll --json
hf-logits    |                          |        | hf-infer in/m -q -j 1 --ids 1,2,3 --logits out/l.npy
hf-force     | cp in/sums out/l.npy     |        | hf-infer in/m -q -j 1 --ids 1,2,3 --logits out/l.npy -f
hf-acts      |                          | -m -r -f | hf-infer in/m -q -j 1 --ids 1,2,3,4 --ctx 2 --acts resid:0,1 -o out/a --acts-meta out/m.json
hf-places    |                          | -m -r -f | hf-infer in/m -q -j 1 --ids 1,2,3,4 --ctx 2 --acts resid:0,mlp:1 -o out/a
hf-acts-pipe |                          | -P -i in/p.jsonl | hf-infer in/demo -q -j 1 --acts attn:0 --ctx 4 --jsonl
hf-images    |                          | -m -r -f | hf-infer in/siglip -q -j 1 --images in/pics/a/z --acts resid:0 -o out/a --acts-meta out/m.json --features out/f.npy --acts-images out/t.tsv
hf-images-tar |                         | -P     | hf-infer in/siglip -q -j 2 --images in/pics.tar --acts norm --skip-bad
hf-pixels    |                          |        | hf-infer in/siglip -q -j 1 --images in/pics/c/d/e/half.JPEG --pixels out/x.npy
hf-jsonl     |                          | -i in/p.jsonl | hf-infer in/demo -q -j 2 --jsonl -n 2 --greedy --batch 2 -o out/answers
hf-save      |                          |        | hf-infer in/m -q -j 1 --ids 1,2,3 -n 0 --ids-out --save-session out/s
hf-session   |                          |        | hf-infer in/m -q -j 1 --ids 1,2,3,4 -n 1 --ids-out --session in/session
hf-lut       |                          |        | hf-infer in/m -q -j 1 --ids 1,2,3 --nll --lut in/m --ratio 0.2
hf-lut-report |                         |        | hf-infer in/m -q -j 1 --ids 1,2,3 --nll --lut in/m --lut-report out/r
hf-kvc       |                          |        | hf-infer in/m -q -j 1 --ids 1,2,3,4,5,6,7,8,9 --nll --kvc in/c.bin --kvc-after 6
hf-lora      |                          |        | hf-infer in/l -q -j 1 --ids 1,2,3 --nll --lora in/l/lora0
hf-lora-both |                          |        | hf-infer in/l -q -j 1 --ids 1,2,3 --nll --lora in/l/both
hf-lora-file |                          |        | hf-infer in/l -q -j 1 --ids 1,2,3 --nll --lora in/l/lora1@1
hf-encode    |                          | -i in/text | hf-infer in/demo --encode
hf-decode    |                          |        | hf-infer in/demo --decode --ids 3,14,15,92
saev-write   |                          | -i in/a.f32 | saev-write -q -m in/saev.json -o out
saev-npy     |                          |        | saev-write -q -m in/saev.json -o out --manifest --pad in/a.npy
saev-ids     |                          |        | saev-write -q -m in/saev.json -o out --ids in/ids.npy in/a.f32
saev-force   | cp -r in/dump out/$HASH  | -i in/a.f32 | saev-write -q -m in/saev.json -o out -f
saev-there   | cp -r in/dump out/$HASH  |        | saev-write -q -m in/saev.json -o out --if-missing in/a.f32
saev-shard   |                          | -m -i in/first -k .*.part* | saev-write -q -m in/saev.json -o out --shard 0/2
saev-finish  | cp -r in/parts/.[a-f0-9]* out/ | -m -k .*.part* | saev-write -q -m in/saev.json -o out --finish
saev-force-finish | cp -r in/parts/.[a-f0-9]* out/; cp -r in/dump out/$HASH | -m -k .*.part* | saev-write -q -m in/saev.json -o out --finish -f
saev-resume  | cp -r in/half/.[a-f0-9]* out/ | -k .*.part* -r --resume -i in/a.f32 | saev-write -q -m in/saev.json -o out --resume
saev-hash    |                          |        | saev-write --hash -m in/saev.json
saev-images  |                          |        | saev-write --images -m in/saev.json -o out
saev-rows    |                          | -P     | saev-read -q -j 2 in/dump
saev-rows-f16 |                         |        | saev-read -q -j 1 --dtype f16 --view image --layer 13 -o out/x.npy in/dump
saev-list    |                          | -i in/rows | saev-read -q -j 2 --rows - in/dump
saev-list-npy |                         |        | saev-read -q -j 1 --rows in/rows.npy --direct in/dump
saev-index   |                          |        | saev-read -q --index in/dump 3 1
saev-shuffle |                          |        | saev-read -q -j 2 --shuffle --seed 1 --raw in/dump
saev-external |                         | -P     | saev-read -q -j 2 --shuffle --seed 1 --mem 1M --tmpdir out --raw in/large
saev-window  |                          |        | saev-read -q -j 1 --window 5 in/dump
saev-sample  |                          |        | saev-read -q -j 1 --sample 4 in/dump
saev-verify  |                          | -w     | saev-read verify -q in/dump
saev-deep    |                          | -w     | saev-read verify -q -j 2 --deep in/dump
saev-unsound |                          | -w     | saev-read verify -q in/unsound
saev-labels  |                          | -w     | saev-read verify -q in/labelled
saev-listed  |                          | -w     | saev-read verify -q in/listed
saev-info    |                          |        | saev-read info in/dump
saev-stats   |                          |        | saev-read stats -q -j 2 in/dump
saev-svg     |                          |        | saev-read stats -q --svg out/d.svg --json in/dump
saev-plot    |                          |        | saev-read stats -q --plot in/dump
saev-plot-utf8 | export LC_ALL=C.UTF-8  |        | saev-read stats -q --plot -o out/p in/dump
saev-meta    |                          |        | saev-read meta in/dump
lut-make     |                          | -m -r --resume -k *metadata.json | lut-precompute -q -j 2 -m in/m -s in/saes -o out/lut
lut-weights  |                          | -m -r --resume -k *metadata.json | lut-precompute -q -j 1 -m in/m -s in/saes -o out --layers *.0.*q_proj --store-weights --verify
lut-force    | cp -r in/made out/lut    | -m -k *metadata.json | lut-precompute -q -j 1 -m in/m -s in/saes -o out/lut -f --dtype f32 --layers *.0.*q_proj
lut-resume   | cp -r in/some out/lut    | -m -k *metadata.json | lut-precompute -q -j 1 -m in/m -s in/saes -o out/lut --resume
lut-late     | cp -r in/some out/lut    | -m -k *metadata.json -c late | lut-precompute -q -j 1 -m in/m -s in/saes -o out/lut --resume
lut-over     |                          | -m -r --resume -k *metadata.json | lut-precompute -q -j 1 -m in/m -s in/over -o out/lut --screen
lut-index    | cp -r in/some out/lut    |        | lut-precompute -q --index out/lut
lut-shard    |                          | -m -r --resume | lut-precompute -q -j 1 -m in/m -s in/saes -o out/lut --shard 0/2
lut-plan     |                          | -o     | lut-precompute --dry-run -j 1 -m in/m -s in/saes -o out/lut
lut-calibrate | cp -r in/case out/t     | -m -r -f | lut-precompute calibrate -q -j 1 -i in/x.npy -m in/case --top 3 --dims out/d.npy out/t model.layers.0.self_attn.q_proj
lut-apply    |                          | -i in/x.npy | lut-apply -q -j 1 in/case model.layers.0.self_attn.q_proj
lut-ratio    |                          |        | lut-apply -q -j 2 -i in/x.npy -m in/case --ratio 0.3 -o out/y.npy in/case model.layers.0.self_attn.q_proj
lut-arrays   |                          | -m -r -f | lut-apply -q -j 1 -i in/x.npy --codes out/c --values out/v --xhat out/h -o out/y.npy in/case model.layers.0.self_attn.q_proj
lut-apply-over |                        |        | lut-apply -q -j 1 -i in/x.npy in/over_case model.layers.0.self_attn.q_proj
lut-report   |                          | -m -r -f | lut-apply -q -j 1 -i in/x.npy -m in/case --report --svg out/r.svg in/case model.layers.0.self_attn.q_proj
lut-plot     |                          | -m -r -f | lut-apply -q -j 1 -i in/x.npy -m in/case --report --plot --svg out/r.svg in/case model.layers.0.self_attn.q_proj
sae-train    |                          | -o -r --resume -m -k run* | sae-train -q -j 1 -o out/run -k 2 --latents 8 --batch 6 --epochs 1 --save-every 2 in/acts.npy
sae-pipe     |                          | -o -r --resume -m -k run* -i in/acts.npy | sae-train -q -j 2 -o out/run -k 2 --latents 8 --batch 6 --activation batchtopk --dead-after 6 --clip 1 -n 4
sae-layers   |                          | -o -r --resume -m -k run* | sae-train -q -j 1 -o out/run -k 2 --latents 8 --batch 6 --epochs 1 --layers a,b --svg x.svg in/acts.npy
sae-plot     |                          | -r --resume -m -k run* | sae-train -q -j 1 -o out/run -k 2 --latents 8 --batch 6 --epochs 1 --layers a,b --plot in/acts.npy
sae-resume   | cp -r in/run out/run; rm out/run/cfg.json out/run/sae.s* | -o -m -k run* | sae-train -q -j 1 -o out/run -n 4 --resume in/acts.npy
sae-init     |                          | -o -r --resume -m -k run* | sae-train -q -j 1 -o out/run -k 2 --latents 8 --batch 6 -n 1 --init in/run --format saelens in/acts.npy
sae-eval     |                          | -m     | sae-train eval -j 1 -s in/run --svg out/e.svg in/acts.npy
sae-bins     |                          | -P     | sae-train eval -j 1 -s in/run --plot in/acts.npy
sae-info     |                          |        | sae-train info -l in/run
look-scan    |                          | -m     | sae-look scan -q -j 1 -s in/run -o out/look --top 2 --sample 3 in/acts.npy
look-merge   |                          | -m     | sae-look merge -q -j 1 -o out/look in/look
look-lens    |                          |        | sae-look lens -q -j 1 -s in/over --hook layers.0 -m in/m -n 2 0-3
look-file    | cp -r in/looked out/look |        | sae-look lens -q -j 1 -s in/over --hook layers.0 -m in/m -n 2 -o out/look
look-list    |                          |        | sae-look list --sort max in/look
look-show    |                          |        | sae-look show -m in/demo in/look 0-3
look-json    |                          |        | sae-look show --json in/look 0-3
look-compare |                          |        | sae-look compare -j 2 in/run in/run
look-diff    |                          |        | sae-look diff in/look in/look
look-html    |                          |        | sae-look html -m in/demo -o out/l.html in/spelled
look-images  |                          |        | sae-look html --images in/pictures --grid 3x2 in/spelled
look-prompts |                          |        | sae-look prompts -m in/demo --negatives 1 -o out/p.jsonl in/spelled
look-label   | cp -r in/spelled out/look |        | sae-look label out/look in/answers
look-export  |                          |        | sae-look export -q --neuronpedia out/np --model-id a --source b -m in/demo in/spelled
kvc-pth      |                          |        | kvc-convert --input in/c.pth --output out/c.bin
kvc-deflated |                          |        | kvc-convert --input in/deflated.pth --output out/c.bin --provenance --dtype bf16
kvc-back     |                          |        | kvc-convert --input in/k.bin --output out/c.safetensors
kvc-again    | cp in/sums out/c.bin     |        | kvc-convert --input in/k.safetensors --output out/c.bin -f
kvc-info     |                          |        | kvc-convert --info --json in/k.bin
kvc-check    |                          |        | kvc-convert --check in/k.bin
kvc-diff     |                          |        | kvc-convert --diff in/k.bin in/k2.bin
moe-info     |                          |        | moe-sft info -b in/e/base.safetensors
moe-init     |                          |        | moe-sft init -b in/e/base.safetensors -o out/i.safetensors --rank 2
moe-forward  |                          | -m -r -f | moe-sft forward -q -j 2 -b in/e/base.safetensors -l in/e/student.safetensors -i in/e/b0.safetensors -o out/f.safetensors -c out/c.safetensors
moe-stdin    |                          | -i in/e/b0.safetensors | moe-sft forward -q -j 1 --mode int8 -b in/e/hf -l in/e/peft -i - -o out/f.safetensors
moe-parts    |                          |        | moe-sft forward -q -j 2 --tp 2 -b in/e/base.safetensors -l in/e/student.safetensors -i in/e/b0.safetensors -o out/f.safetensors
moe-backward |                          |        | moe-sft backward -q -j 1 -b in/e/base.safetensors -l in/e/lora.safetensors -c in/e/cache.safetensors -g in/e/batch.safetensors -o out/g.safetensors
moe-train    |                          | -o -r --resume -m -k run* | moe-sft train -q -j 1 -b in/e/base.safetensors -l in/e/student.safetensors -o out/run -n 3 --save-every 1 in/e/b0.safetensors in/e/b1.safetensors
moe-stream   |                          | -o -r --resume -m -k run* -i in/e/b0.safetensors | moe-sft train -q -j 1 -b in/e/base.safetensors -l in/e/student.safetensors -o out/run -n 1 -
moe-log      |                          | -m -r --resume -k [lr]* | moe-sft train -q -j 2 -b in/e/hf -l in/e/peft -o out/run -n 2 --log out/log --svg out/loss.svg -i in/e/x.npy --target in/e/y.npy --length 8
moe-plot     |                          | -m -r --resume -k [lr]* | moe-sft train -q -j 1 -b in/e/base.safetensors -l in/e/student.safetensors -o out/run -n 2 --log out/log --plot in/e/b0.safetensors
moe-resume   | cp -r in/e/run out/run   | -o -m -k run* | moe-sft train -q -j 1 -b in/e/base.safetensors -l in/e/student.safetensors -o out/run -n 4 --resume in/e/b0.safetensors in/e/b1.safetensors
moe-tune     |                          | -o -r --resume -m -k run* | moe-sft tune -q -j 1 -m in/demo -d in/c.jsonl -o out/run -n 2 --rank 1 --save-every 1
moe-eval     |                          | -m -r --resume -k [lr]* | moe-sft tune -q -j 2 -m in/demo -d in/c.jsonl -o out/run -n 2 --rank 1 --eval in/c.jsonl --eval-every 1 --keep-best --svg out/loss.svg
moe-tuned    |                          | -m -r --resume -k run* | moe-sft tune -q -j 1 -m in/demo -d in/c.jsonl -o out/run -n 2 --rank 1 --eval in/c.jsonl --eval-every 1 --plot
moe-again    | cp -r in/tuned out/run   | -o -m -k run* | moe-sft tune -q -j 1 -m in/demo -d in/c.jsonl -o out/run -n 3 --resume
moe-retune   | cp -r in/tuned out/run   | -o -m -k run* | moe-sft tune -q -j 1 -m in/demo -d in/c.jsonl -o out/run -n 1 --rank 1 -f
moe-dry      |                          |        | moe-sft tune -q -j 1 -m in/demo -d in/c.jsonl --pack --dry-run
moe-grads    |                          | -m -r -f | moe-sft tune -q -j 1 -m in/demo -d in/c.jsonl --rank 1 --grads out/g.safetensors
moe-retrain  | cp -r in/e/run out/run   | -o -m -k run* | moe-sft train -q -j 1 -b in/e/base.safetensors -l in/e/student.safetensors -o out/run -n 1 -f in/e/b0.safetensors
moe-gradient |                          |        | moe-sft check -q -j 1 -b in/e/base.safetensors -l in/e/lora.safetensors -i in/e/b0.safetensors --samples 1
moe-merge    |                          |        | moe-sft merge -q -j 1 -b in/e/base.safetensors -l in/e/lora.safetensors -o out/m.safetensors
moe-merge-hf |                          |        | moe-sft merge -q -j 1 -b in/e/hf -l in/e/peft -o out/m
moe-replace  | cp -r in/e/hf out/m      |        | moe-sft merge -q -j 1 -f -b in/e/hf -l in/e/peft -o out/m
moe-whole    |                          |        | moe-sft merge -q -j 1 -b in/demo -l in/tuned -o out/m
moe-layers   |                          |        | moe-sft merge -q -j 1 -b in/moe -l in/l0.safetensors,in/l1.safetensors -o out/m
moe-peft     |                          |        | moe-sft convert -q -b in/e/base.safetensors -l in/e/lora.safetensors --layer 3 -o out/peft
moe-repeft   | cp -r in/e/peft out/peft |        | moe-sft convert -q -f -b in/e/base.safetensors -l in/e/lora.safetensors --layer 3 -o out/peft
moe-stacked  |                          |        | moe-sft convert -q -b in/e/hf --layer 3 -l in/e/peft -o out/l.safetensors
moe-both     |                          |        | moe-sft convert -q -l in/l0.safetensors -l in/l1.safetensors -o out/peft
moe-quantize |                          |        | moe-sft quantize -q -j 1 -b in/e/base.safetensors -o out/q.safetensors
sc-file      |                          |        | st-convert -q -j 1 --rename ^b=c -o out/x.safetensors in/two.safetensors
sc-int4      |                          |        | st-convert -q -j 2 --weights int4 --asymmetric -o out/m in/demo
sc-shards    | cp -r in/shards out/m    |        | st-convert -q -j 1 -f --dtype f16 --shard-size 8K -o out/m in/shards
END_OF_TABLE
}

# What the tools themselves make of inputs in $in.
finish_inputs() (
    "$PYTHON" test/ref/packed_ref.py llama awq "$in/awq"
    ln -s "$PWD/demo/qwen3-tiny" "$in/demo"
    ln -s "$PWD/demo/qwen3-moe-tiny" "$in/moe"
    cd "$in"
    st-inspect hash two.safetensors >sums
    hf-infer m -q --ids 1,2,3 -n 0 --ids-out --save-session session
    kvc-convert -q --input k.bin --output k.safetensors
    lut-precompute -q -m m -s saes -o made
    cp -r made some
    rm some/metadata.json some/*up_proj*
    saev-write -q -m saev.json -o parts --shard 0/2 first
    sae-train -q -o run -k 2 --latents 8 --batch 6 -n 2 --decay 0 acts.npy
    sae-train -q -o over -k 2 --latents 8 --batch 6 -n 2 --activation batchtopk --hook layers.0.self_attn.q_proj wide.npy
    sae-look scan -q -s run -o look acts.npy
    sae-look scan -q -s over -o looked wide.npy
    sae-look scan -q -s over --acts-ids wide-ids.npy -o spelled wide.npy
    tar -cf pics.tar pics/a/z pics/a/wide.jpeg
    printf 'GIF89a' >p.gif
    printf 'in/p.gif\nin/p.gif\nin/p.gif\n' >pictures
    echo '{"id":3,"text":"a label"}' >answers
    tail -c +$(($(wc -c <first) + 1)) a.f32 | saev-write -q -m saev.json -o parts --shard 1/2
    if saev-write -q --resume -m saev.json -o half first 2>half.err; then exit 1; fi
    for l in 0 1; do moe-sft init -q -b moe --layer $l -o l$l.safetensors; done
    cd "$in/.."
    moe-sft forward -q -b in/e/base.safetensors -l in/e/lora.safetensors -i in/e/batch.safetensors -o in/e/f.safetensors -c in/e/cache.safetensors
    moe-sft train -q -b in/e/base.safetensors -l in/e/student.safetensors -o in/e/run -n 2 in/e/b0.safetensors in/e/b1.safetensors >/dev/null
    printf '{"text":"a b"}\n{"ids":[1,2,3],"labels":[1,2,3]}\n' >in/c.jsonl
    moe-sft tune -q -m in/demo -d in/c.jsonl -o in/tuned -n 2 --rank 1
)

# make_cases DIR: all inputs.
make_cases() {
    in=$1
    "$PYTHON" test/fault/inputs.py "$in"
    finish_inputs
    HASH=$(saev-write -q --hash -m "$in/saev.json")
    export HASH
}

# cases GLOB...: lines of the table.
cases() {
    table | while IFS= read -r line; do
        for glob; do
            # shellcheck disable=SC2254 # a pattern
            case ${line%%[ ]*} in $glob)
                echo "$line"
                break
                ;;
            esac
        done
    done
}
