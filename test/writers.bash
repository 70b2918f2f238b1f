# SPDX-License-Identifier: ISC
# Every command that writes a file or directory, and what each reads: for
# abuse.bats and scripts/kills.sh.  To be sourced, with ROOT, DEMO and PYTHON
# set, in an empty directory.
# shellcheck disable=SC2034,SC2016

export IDS=$(seq -s, 1 24)
export LAYER=model.layers.1.mlp.up_proj

# make_inputs: in the working directory, small and from seeds.
make_inputs() {
    PYTHONPATH=$ROOT/test/ref "$PYTHON" - <<'END'
import json, sys
import numpy as np
import moe, moe_train, saev_dump, vision_models
from pth_make import archive
from kvc_pth import build
open("c.pth", "wb").write(archive(build()[0]))
kw = dict(n=12, d=40, imgs_a_shard=3)
a = saev_dump.dump("dump", **kw)
a.tofile("a.f32")
np.save("ids.npy", np.zeros((a.shape[0], a.shape[2]), "<i4"))
np.save("x-ids.npy", np.arange(24, dtype="<i4").reshape(3, 8))
saev_dump.dump("big", n=100, d=1000)
json.dump(saev_dump.meta(**kw), open("m.json", "w"))
kw["n"] = 11
saev_dump.dump("11", **kw)
json.dump(saev_dump.meta(**kw), open("11.json", "w"))
vision_models.make("vit", "vit")
vision_models.pictures("pictures")
moe.save_all(".")
moe_train.make("train", qlen=16)
END
    lut-precompute -q -m "$DEMO" -s "$ROOT/demo/sae" -o lut
    hf-infer "$DEMO" --ids "$IDS" --acts "in:up_proj:1" -o x.raw
    sae-train -q --dim 128 -k 2 --latents 8 --batch 8 -n 3 --activation batchtopk --hook layers.1.mlp.up_proj -o over \
        x.raw
    sae-look scan -q -s over --dim 128 --acts-ids x-ids.npy -o looked x.raw
    echo '{"id":3,"text":"a label"}' >answers.jsonl
    kvc-convert --input c.pth --output c.bin
    moe-sft forward -b base.safetensors -l lora.safetensors -i batch.safetensors -o fwd.safetensors \
        -c cache.safetensors
    printf '{"text":"a b"}\n{"ids":[1,2,3],"labels":[1,2,3]}\n' >c.jsonl
    HASH=$(saev-write -q --hash -m m.json)
    split -d -a 1 -n 4 a.f32 a.
}

# prepare NAME: an empty out/, with what the command finds there.
prepare() {
    local i
    rm -rf out
    mkdir out
    [ "$1" != saev-finish ] || for i in 0 1 2 3; do
        saev-write -q -m m.json -o out --shard $i/4 "a.$i"
    done
    [ "$1" != saev-last ] || for i in 0 1 2 3; do
        saev-write -q -m 11.json -o out --shard $i/4 "11/acts00000$i.bin"
        cp a.0 "$(echo out/.*.part)/manifest.xxh3" # no part of it
    done
    [ "$1" != look-lens ] || sae-look scan -q -s over --dim 128 -o out/run x.raw
    [ "$1" != look-label ] || cp -r looked out/run
    if [ "$1" = lut-dims ]; then # tables that stay, an index that changes
        mkdir out/t
        ln -s "$PWD"/lut/*.safetensors out/t
        cp lut/metadata.json out/t
    fi
}

# "NAME FLAGS COMMAND": what the command makes is at out/; FLAGS: f if -f
# replaces it, r if a second run is the first one's resumption, - for none.
WRITERS='st-cat f st-inspect cat --dtype f32 -o out/x.npy $DEMO/model.safetensors model.embed_tokens.weight
st-raw f st-inspect cat --raw -o out/x $DEMO/model.safetensors model.embed_tokens.weight
st-svg f st-inspect stats --hist --svg out/x.svg $DEMO
hf-text f hf-infer $DEMO -p 1+1= -n 4 --greedy -o out/x
hf-jsonl f hf-infer $DEMO --jsonl -n 3 --greedy -o out/x
hf-acts f hf-infer $DEMO --ids $IDS --ctx 8 --acts resid:all -o out/x --acts-meta out/m.json
hf-places f hf-infer $DEMO --ids $IDS --ctx 8 --acts resid:1,mlp:0 -o out/x
hf-session f hf-infer $DEMO --ids $IDS -n 0 -q --save-session out/s
hf-logits f hf-infer $DEMO --ids $IDS --logits out/x.npy
hf-lut f hf-infer $DEMO --ids $IDS --lut lut --lut-report out/x.tsv --top 3
hf-images f hf-infer vit --images pictures/a -q --acts resid:all -o out/x --acts-meta out/m.json --features out/f.npy --acts-images out/t.tsv
hf-pixels f hf-infer vit --images pictures/a -q --pixels out/x.npy
saev-write fr saev-write -q -m m.json -o out --resume a.f32
saev-pad f saev-write -q -m m.json -o out --pad --manifest a.f32
saev-ids f saev-write -q -m m.json -o out --ids ids.npy a.f32
saev-shard r saev-write -q -m m.json -o out --shard 1/4 a.1
saev-finish r saev-write -q -m m.json -o out --manifest --finish --if-missing
saev-last r saev-write -q -m 11.json -o out --pad --finish --if-missing
saev-new fr saev-write -q -m m.json -o out/new --resume a.f32
saev-rows f saev-read -q -o out/x.npy dump
saev-shuffle f saev-read -q --shuffle --mem 1M --tmpdir out -o out/x.npy big
saev-window f saev-read -q --window 20 -o out/x.npy dump
saev-svg f saev-read stats --svg out/x.svg -o out/x.tsv dump
saev-meta f saev-read meta -o out/m.json dump
lut fr lut-precompute -q -m $DEMO -s $ROOT/demo/sae -o out --resume
lut-new r lut-precompute -q -m $DEMO -s $ROOT/demo/sae -o out/new/lut/ --resume
lut-over fr lut-precompute -q -m $DEMO -s over --screen -o out --resume
lut-dims f lut-precompute calibrate -q -m $DEMO -i x.raw --x-dtype f32 --top 9 --dims out/d.npy out/t $LAYER
lut-apply f lut-apply -q -i x.raw --x-dtype f32 -o out/y.npy lut $LAYER
lut-arrays f lut-apply -q -i x.raw --x-dtype f32 --codes out/c.npy --values out/v.npy --xhat out/h.npy -o out/y.npy lut $LAYER
lut-svg f lut-apply -q --report -m $DEMO -i x.raw --x-dtype f32 --svg out/x.svg -o out/x.tsv lut $LAYER
kvc-bin f kvc-convert --input c.pth --output out/c.bin
kvc-back f kvc-convert --input c.bin --output out/c.safetensors
sae r sae-train -q -o out/run -k 2 --latents 8 --batch 8 -n 6 --save-every 2 --svg out/run/x.svg --resume dump
sae-many f sae-train -q -o out/run --sae a:k=2 --sae b:k=1,latents=9 --latents 8 --batch 8 -n 3 --save-every 2 dump
look f sae-look scan -q -s over --dim 128 -o out/run x.raw
look-lens f sae-look lens -q -s over -m $DEMO --hook layers.1 -o out/run
look-html f sae-look html -m $DEMO -o out/x.html looked
look-prompts f sae-look prompts -m $DEMO -o out/x.jsonl looked
look-label f sae-look label out/run answers.jsonl
look-export f sae-look export --neuronpedia out/np --model-id a --source b -m $DEMO looked
moe-init f moe-sft init -b base.safetensors -o out/l.safetensors
moe-forward f moe-sft forward -b base.safetensors -l lora.safetensors -i batch.safetensors -o out/o.safetensors -c out/c.safetensors
moe-backward f moe-sft backward -b base.safetensors -l lora.safetensors -c cache.safetensors -g batch.safetensors -o out/g.safetensors
moe-train r moe-sft train -b train/base.safetensors -l train/student.safetensors -o out/run/ -n 6 --save-every 2 --log out/run/log --svg out/run/x.svg --resume train/b0.safetensors
moe-tune r moe-sft tune -q -m $DEMO -d c.jsonl -o out/run/ -n 2 --rank 1 --save-every 1 --eval c.jsonl --keep-best --svg out/run/x.svg --resume
moe-grads f moe-sft tune -q -m $DEMO -d c.jsonl --rank 2 --grads out/g.safetensors
moe-merge f moe-sft merge -b base.safetensors -l lora.safetensors -o out/m.safetensors
moe-directory f moe-sft merge -b hf -l peft -o out/m
moe-to-peft f moe-sft convert -l lora.safetensors -o out/peft
moe-from-peft f moe-sft convert -l peft -o out/l.safetensors
moe-quantize f moe-sft quantize -b base.safetensors -o out/q.safetensors
sc-int8 f st-convert -q $DEMO -o out/m --weights int8
sc-shards f st-convert -q $DEMO -o out/m --shard-size 1M --dtype f32
sc-file f st-convert -q base.safetensors -o out/m.safetensors --rename up=over'

# Standard input for those that read it; others leave it alone.
stdin_for() {
    case $1 in
    hf-jsonl) printf '{"prompt": "1+1="}\n{"prompt": "a"}\n' ;;
    esac
}
