# SPDX-License-Identifier: ISC
# Output files where there is no room, no right, or another writer: through
# hf-infer --logits and st-inspect cat.
load helpers

@test "out: a full disk is one line, status 74, and leaves nothing" {
    small_disk 100k
    run -74 --separate-stderr hf-infer "$DEMO" --ids "$(seq -s, 1 100)" \
        --logits disk/x.npy
    [ -z "$output" ]
    [[ $stderr == "hf-infer: disk/x.npy: no room for "*" bytes: No space left on device" ]]
    [ -z "$(ls -A disk)" ]
    run -74 --separate-stderr st-inspect cat --raw -o disk/y \
        "$DEMO/model.safetensors" model.embed_tokens.weight
    [ "${#stderr_lines[@]}" = 1 ]
    [ -z "$(ls -A disk)" ]
}

@test "out: no room for what is to be written is told before the work" {
    small_disk 100k
    py -c 'import numpy as np, lut_apply_ref
lut_apply_ref.Case("case", rows=6)
np.save("x.npy", np.zeros((2000, 40), "<f4"))
np.save("ids.npy", np.zeros((30, 20), "<i4"))'
    # 600 tokens of 128 floats, more than a chunk, and a header
    run -74 --separate-stderr hf-infer "$DEMO" --file ids.npy --acts resid:0 \
        --chunk 100 -o disk/x.npy
    [ "$stderr" = "hf-infer: disk/x.npy: no room for 307328 bytes: No space left on device" ]
    run -74 --separate-stderr hf-infer "$DEMO" --file - --acts resid:0 --ctx 100 \
        --chunk 100 -o disk/x <ids.npy
    [ "$stderr" = "hf-infer: disk/x: no room for 307200 bytes: No space left on device" ]
    # 1024 x 128 numbers, and a header
    run -74 --separate-stderr st-inspect cat -o disk/x --dtype f64 \
        "$DEMO/model.safetensors" model.embed_tokens.weight
    [ "$stderr" = "st-inspect: disk/x: no room for 1048704 bytes: No space left on device" ]
    run -74 --separate-stderr st-inspect cat -o disk/x --raw --slice 0:900,: \
        "$DEMO/model.safetensors" model.embed_tokens.weight
    [ "$stderr" = "st-inspect: disk/x: no room for 230400 bytes: No space left on device" ]
    run -74 --separate-stderr lut-apply -i x.npy -o disk/x case model.layers.0.self_attn.q_proj
    [[ $stderr == "lut-apply: disk/x: no room for "*" bytes: No space left on device" ]]
    [ -z "$(ls -A disk)" ]
}

@test "out: binary is never written to a terminal" {
    py -c 'import numpy as np, kvc_model, kvc_ref, lut_apply_ref, saev_dump
lut_apply_ref.Case("case", rows=6)
np.save("x.npy", np.zeros((2, 40), "<f4"))
saev_dump.dump("dump")
kvc_ref.save("k.bin", kvc_model.average(3, 8, 2), 8, 2)'
    n=0
    while read -r -a command; do
        run -2 "$PYTHON" -c 'import os, pty, sys
sys.exit(os.WEXITSTATUS(pty.spawn(sys.argv[1:])))' "${command[@]}" </dev/null
        echo "${command[*]}: $output"
        [[ ${lines[0]} == "${command[0]}: "*terminal* ]]
        [ "${#lines[@]}" -le 2 ]
        n=$((n + 1))
    done <<END
hf-infer $DEMO --ids 1,2,3 --acts resid:0
hf-infer $DEMO --ids 1,2,3 --acts resid:0 -o /dev/tty
hf-infer $DEMO --ids 1,2,3 --logits -
saev-read dump
saev-read --raw --shuffle --seed 1 dump
lut-apply -i x.npy case model.layers.0.self_attn.q_proj
st-inspect cat --raw $DEMO/model.safetensors model.norm.weight
kvc-convert --input k.bin --output /dev/tty
END
    [ $n -eq 8 ]
}

@test "out: a full disk keeps the old file, even with --force" {
    small_disk 100k
    echo old >disk/x.npy
    run -74 hf-infer "$DEMO" --ids "$(seq -s, 1 100)" --logits disk/x.npy -f
    [ "$(cat disk/x.npy)" = old ]
    [ "$(ls -A disk)" = x.npy ]
}

@test "out: a read-only directory is one line and status 73" {
    small_disk 100k
    mount -o remount,ro disk
    run -73 --separate-stderr hf-infer "$DEMO" --ids 1,2 --logits disk/x.npy
    [ "$stderr" = "hf-infer: disk/x.npy: cannot be created: Read-only file system" ]
}

@test "out: a mount point is not replaced, which is told before the work" {
    linux_only
    small_disk 1M
    echo old >disk/file
    touch x
    mount --bind disk/file x # as containers do
    run --separate-stderr timeout 20 hf-infer "$DEMO" --jsonl -f -o x < <(exec sleep 21 3>&-)
    umount x
    [ "$status" = 73 ]
    [ "$stderr" = "hf-infer: x: cannot be replaced: Device or resource busy" ]
    [ "$(cat disk/file)" = old ]
}

@test "out: what is append-only is not replaced, which is told before the work" {
    linux_only
    echo old >x
    chattr +a x 2>/dev/null || skip "no attributes here"
    run --separate-stderr timeout 20 hf-infer "$DEMO" --jsonl -f -o x < <(exec sleep 21 3>&-)
    chattr -a x
    [ "$status" = 73 ]
    [ "$stderr" = "hf-infer: x: cannot be replaced: Operation not permitted" ]
    [ "$(cat x)" = old ]
}

@test "out: a directory of an overlay's lower layer is not replaced, nor lost" {
    small_disk 10M
    py -c 'import moe; moe.save_all(".")'
    mkdir -p disk/l/m disk/u disk/w
    echo old >disk/l/m/config.json
    mount -t overlay -o lowerdir=disk/l,upperdir=disk/u,workdir=disk/w,redirect_dir=off overlay disk/l 2>/dev/null ||
        skip "no overlays here"
    run --separate-stderr moe-sft merge -b hf -l peft -f -o disk/l/m
    left=$(ls -A disk/l disk/l/m)
    rm -r disk/l/m
    moe-sft merge -b hf -l peft -o disk/l/m
    verified=$(st-inspect verify -q disk/l/m && ls -A disk/l)
    umount disk/l
    [ "$status" = 73 ]
    [ "$stderr" = "moe-sft: disk/l/m: cannot be replaced in a lower layer of an overlay file system: remove it first" ]
    [ "$left" = "$(printf 'disk/l:\nm\n\ndisk/l/m:\nconfig.json')" ]
    [ "$verified" = m ]
}

@test "out: a file over the limit of ulimit -f is one line and status 74" {
    limited() (
        ulimit -f 8 # KiB
        hf-infer "$DEMO" --ids 1,2,3,4,5 --logits x.npy
    )
    run -74 --separate-stderr limited
    [ "${#stderr_lines[@]}" = 1 ]
    [[ $stderr == "hf-infer: x.npy: "*": File too large" ]]
    [ -z "$(find . -name '*x.npy*')" ]
}

@test "out: ten kills with -9 leave no output or a whole one" {
    ids=$(seq -s, 1 400)
    hf-infer "$DEMO" --ids "$ids" --logits want.npy
    for delay in 01 02 03 04 05 06 08 10 12 15; do
        hf-infer "$DEMO" --ids "$ids" --logits x.npy &
        pid=$!
        sleep 0.$delay
        kill -9 $pid 2>/dev/null || :
        wait $pid || :
        [ ! -e x.npy ] || cmp x.npy want.npy
        rm -f x.npy
    done
    hf-infer "$DEMO" --ids "$ids" --logits x.npy
    cmp x.npy want.npy
    rm x.npy want.npy
    [ -z "$(ls -A)" ] # the last run removed what the killed ones left
}

@test "out: a temporary of a process that nobody waits for is removed, too" {
    # the shell becomes a sleep, which does not know of its child
    bash -c 'sleep 60 & echo $! >child; exec sleep 60' &
    until [ "$(cat "/proc/$!/comm" 2>/dev/null)" = sleep ]; do :; done
    child=$(cat child)
    for f in x.npy y; do touch ".$f.tmp.$(this_host).$child.0"; done
    st-inspect hash -o y "$DEMO" >/dev/null
    [ -e ".y.tmp.$(this_host).$child.0" ] # alive: it may still write
    kill -9 "$child"
    until grep -q ') Z ' "/proc/$child/stat"; do :; done
    hf-infer "$DEMO" --ids 1,2 --logits x.npy
    [ ! -e ".x.npy.tmp.$(this_host).$child.0" ]
    kill $!
}

@test "out: two answers of one command never go to one file, however it is spelled" {
    ids=(--ids 1,2,3,4 -q -f)
    lut-precompute -q -m "$DEMO" -s "$ROOT/demo/sae" --fuse gate_up -o lut
    py -c 'from saev_dump import *
np.save("x.npy", np.ones((2, 128), "f4"))
dump("dump", n=1)
import moe; moe.save_all(".")'
    refused() {
        local a b
        ln -sf b a
        # by its name, a path, and a link
        for a in b ./b "$PWD/b" a; do
            run -2 "${@/#A=/$a}"
            [[ $output == *": would be two outputs of this command"* ]] || { echo "$a: $output"; return 1; }
            [ ! -e b ]
        done
        : >b
        run -2 "${@/#A=/a}"
        rm a b
    }
    refused st-inspect stats "$DEMO" -f -o b --svg A=
    refused saev-read stats -f -o b --svg A= dump
    refused lut-apply lut layers.1.mlp.gate_up_proj -m "$DEMO" -i x.npy --report -f -o b --svg A=
    refused hf-infer "$DEMO" "${ids[@]}" --acts mlp:0 -o b --acts-meta A=
    refused hf-infer "$DEMO" "${ids[@]}" --lut lut --nll -o b --lut-report A=
    refused hf-infer "$DEMO" "${ids[@]}" --lut lut --logits b --lut-report A=
    refused moe-sft forward -b base.safetensors -l lora.safetensors -i batch.safetensors -f -o b -c A=
    # nor do two go to standard output
    run -2 --separate-stderr st-inspect stats "$DEMO" --svg -
    [ "${stderr_lines[0]}" = "st-inspect: standard output: would be two outputs of this command" ]
    [ -z "$output" ]
}

# bats test_tags=long
@test "out: in every tool, no output is an input, another output or in a dump: 2, and nothing changes" {
    cp -rL "$DEMO" model
    cp -r "$ROOT/demo/sae" sae
    lut-precompute -q -m model -s sae -o lut
    py -c 'from saev_dump import *
rows = np.random.default_rng(1).standard_normal((40, 128)).astype("f4")
np.save("x.npy", rows), np.save("ids.npy", np.arange(8)), rows[:16, :8].tofile("raw")
dump("dump"), dump("one", n=1)
import kvc_model, kvc_ref, moe
kvc_ref.save("c.bin", kvc_model.average(3, 8, 2), 8, 2), moe.save_all(".")'
    echo '{"text": "1+1=2"}' | tee d.jsonl >e.jsonl
    echo '{"vit_family": "clip", "vit_ckpt": "B", "layers": [1], "n_patches_per_img": 4, "cls_token": false, "d_vit": 8, "seed": 1, "n_imgs": 4, "max_patches_per_shard": 20, "data": "t"}' >m.json
    saev-write -q -m m.json -o made raw
    made=$(echo made/*)
    sae="-k 4 --latents 64 --batch 8 --warmup 0 -q x.npy"
    # shellcheck disable=SC2086
    sae-train -o one_sae $sae
    # shellcheck disable=SC2086
    sae-train -o saes --sae a:k=2 $sae
    ln -s x.npy link
    ln x.npy hard
    ln c.bin c.hard
    tune="moe-sft tune -m model -d d.jsonl -n 1 -q"
    moe="-b base.safetensors -l lora.safetensors"
    up=layers.1.mlp.up_proj
    sums() { find . -type f -exec md5sum {} + | sort; find . -type d -o -type l | sort; }
    sums >../before
    tools=
    while read -r -a command; do
        run -2 "${command[@]}" </dev/null
        [[ $output =~ "is both an input and an output"|"would be two outputs"|"would be written into"|"is replaced, but"|"own directory" ]] || { echo "${command[*]}: $output"; false; }
        sums | diff ../before - || { echo "${command[*]}"; false; }
        tools+=" ${command[0]}"
    # a picture without -f: it is an input before it exists already
    done < <(sed '/ -f .*--svg/{p;s/ -f / /;}' <<END
st-inspect cat --raw -f -o model/model.safetensors model model.norm.weight
st-inspect stats -f --svg ./model/model.safetensors model
st-inspect stats -f -o new --svg ./new model
hf-infer model --ids 1,2 --nll -f -o model/config.json
hf-infer model --ids 1,2 -f --logits model/model.safetensors
hf-infer model --ids 1,2 --nll -f -o model/tokenizer_config.json
hf-infer model --encode -p a -f -o model/model.safetensors
hf-infer model --places -f -o model/model.safetensors
hf-infer model --file ids.npy --acts resid:0 --ctx 4 -f --acts-ids ids.npy -o new
hf-infer model --file ids.npy --acts resid:0 --ctx 4 --acts-ids new --acts-meta ./new -o a
hf-infer model --ids 1,2 --acts resid:0 -f --acts-meta model/config.json -o new
hf-infer model --lut lut --ids 1,2 --nll -f --lut-report lut/metadata.json
hf-infer model --file ids.npy --acts resid:0 --ctx 4 -o ids.npy
st-inspect cat --raw -o ./base.safetensors base.safetensors up_proj
st-inspect list -o model/model.safetensors model/model.safetensors
lut-apply lut $up -i x.npy -f -o link
lut-apply lut $up -i x.npy -o hard
lut-apply lut $up -m model -i x.npy --report -o x.npy
lut-apply lut $up -i x.npy -o new --codes ./new
lut-apply lut $up -i x.npy -f -o new --codes hard
lut-apply lut $up -i x.npy -f -o new --values x.npy
lut-apply lut $up -m model -i x.npy --report -f --svg lut/metadata.json
lut-precompute -q -m model -s lut -f -o lut
lut-precompute calibrate -m model lut $up -i x.npy --top 4 -f --dims x.npy
lut-precompute calibrate -m model lut $up -i x.npy --top 4 --dims x.npy
kvc-convert --input c.bin -f --output c.hard
moe-sft forward $moe -i batch.safetensors -f -o base.safetensors
moe-sft forward $moe -i batch.safetensors -f -o new -c ./new
moe-sft init -b base.safetensors -f -o base.safetensors
moe-sft quantize -b base.safetensors -f -o base.safetensors
moe-sft train $moe -n 1 -o new -f --log batch.safetensors batch.safetensors
moe-sft train $moe -n 1 -o no/new --svg no//new/lora.safetensors batch.safetensors
moe-sft merge $moe -f -o lora.safetensors
moe-sft merge -b hf -l peft -f -o hf
moe-sft merge -b hf -l peft -f -o peft
$tune -f -o model
$tune -f -o new --svg d.jsonl
$tune -f -o new --eval e.jsonl --svg e.jsonl
$tune -o no/new --svg no/./new/log.tsv
$tune -f --grads model/model.safetensors
sae-train -o new -f --svg ./x.npy $sae
sae-train -o new -f --svg hard $sae
sae-train -o no/new --svg ./no/new/state.safetensors $sae
sae-train -o one_sae -f --init one_sae $sae
sae-train -o one_sae -f --init one_sae/sae.safetensors $sae
sae-train -o saes -f --sae a:init=saes/a $sae
sae-train eval -s one_sae -f --svg ./x.npy x.npy
sae-train -o dump -k 4 --batch 8 dump
sae-train -o dump/no/new -k 4 --batch 8 dump
sae-look scan -s one_sae -f -o one_sae x.npy
st-convert model -f -o model
st-convert base.safetensors -f -o base.safetensors
saev-read -f -o dump/metadata.json dump
saev-read stats dump --svg dump/new.svg
saev-read info -o dump/no/new dump
saev-write -q -m $made/metadata.json -o made -f raw
saev-write -q -m m.json -o made -f $made/acts000000.bin
END
    )
    for tool in "$ROOT"/cmd/*/; do
        [[ " $tools " == *" $(basename "$tool") "* ]] || [[ " ${LEFT_OUT-} " == *" $(basename "$tool") "* ]]
    done
}

@test "out: no input is replaced, not even by --force" {
    py -c 'import numpy as np; np.save("x.npy", np.ones((2, 128), "f4"))'
    cp "$DEMO/model.safetensors" m
    echo 1+1= >p
    md5sum m x.npy p >sums
    mkdir d
    refused() {
        run -2 "$@"
        [[ ${lines[0]} == *": is both an input and an output of this command" ]] || { echo "$*: $output"; return 1; }
        md5sum --quiet -c sums
    }
    refused st-inspect cat --raw -f -o m m model.norm.weight
    refused st-inspect stats --hist --svg d/../m -f m
    refused st-inspect hash -f -o sums --check sums
    mkdir model
    cp m model/model.safetensors
    md5sum model/model.safetensors >>sums
    refused st-inspect -f -o model/model.safetensors model
    (cd model && run -2 st-inspect verify -f -o model.safetensors ..//model/.)
    ln -s model/model.safetensors link
    refused st-inspect -f -o link model
    mkdir blobs
    mv model/model.safetensors blobs/0123
    ln -s ../blobs/0123 model/model.safetensors
    refused st-inspect cat --raw -f -o blobs/0123 model model.norm.weight
    st-inspect hash -o model/hashes model
    rm -r model blobs link
    sed -i /model.model/d sums
    lut-precompute -q -m "$DEMO" -s "$ROOT/demo/sae" -o lut
    refused lut-apply lut layers.1.mlp.up_proj -i x.npy -f -o ./x.npy
    refused lut-apply lut layers.1.mlp.up_proj -i m:model.norm.weight -f -o ./m
    rm -r lut
    refused hf-infer "$DEMO" --file p -n 1 -f -o "$PWD/p"
    refused hf-infer "$DEMO" --lora m@0 --ids 1,2 --nll -f -o m
    refused hf-infer "$DEMO" --kvc m --ids 1,2 --nll -f -o ./m
    refused hf-infer "$DEMO" --file p --acts mlp:0 -f -o acts --acts-meta ./p
    py -c 'import kvc_model, kvc_ref
kvc_ref.save("c.bin", kvc_model.average(3, 8, 2), 8, 2)'
    md5sum c.bin >>sums
    ln -s c.bin c.link
    refused kvc-convert --input c.bin -f --output c.link
    # standard input, too
    refused hf-infer "$DEMO" -n 1 -f -o p <p
    refused hf-infer "$DEMO" --acts mlp:0 -f -o ./x.npy <x.npy
    # what is in a directory, or leads there
    cp -rL "$DEMO" model
    lut-precompute -q -m model -s "$ROOT/demo/sae" -o lut
    ln -s model/model.safetensors link
    md5sum model/* lut/* >>sums
    for o in model/model.safetensors link model/config.json lut/metadata.json; do
        refused hf-infer model --lut lut --ids 1,2 --nll -f -o $o
        refused hf-infer model --lut ./lut --ids 1,2 --acts mlp:0 -f -o acts --acts-meta $o
        refused hf-infer ./model --lut lut --ids 1,2 --nll -f --lut-report $o
    done
    for o in model/model.safetensors link lut/metadata.json; do
        refused lut-apply lut layers.1.mlp.up_proj -m model -i x.npy --report -f -o $o
        refused lut-apply lut layers.1.mlp.up_proj -m model -i x.npy --report -f --svg $o
    done
    mkdir moe
    py -c 'import moe; moe.save_all("moe")'
    md5sum moe/*.safetensors >>sums
    train=(moe-sft train -b moe/base.safetensors -l moe/lora.safetensors -n 1 -f -o run)
    for o in base lora batch; do
        refused "${train[@]}" moe/batch.safetensors --log ./moe/$o.safetensors
        refused "${train[@]}" moe/batch.safetensors --svg moe/../moe/$o.safetensors
    done
    refused moe-sft init -b moe/base.safetensors -f -o moe/base.safetensors
    hf-infer model --lut lut --ids 1,2 --nll -f -o model/answer.json
    # a tensor's name is no file's; standard input is no output
    st-inspect cat --dtype f32 -o model.norm.weight m model.norm.weight
    hf-infer "$DEMO" --file - -n 1 --greedy <p
}

@test "out: what is open, but has no name any more, is not made by another" {
    exec 4<>gone
    rm gone
    run -73 --separate-stderr st-inspect list -f -o /dev/fd/4 "$DEMO"
    exec 4<&-
    [ "$stderr" = "st-inspect: /dev/fd/4: No such file or directory" ]
    [ ! -e "gone (deleted)" ]
}

@test "out: a pipe has many names: /dev/stdout, /dev/fd/3, a FIFO, a link to it" {
    want=$(st-inspect list "$DEMO")
    [ "$(st-inspect list -o /dev/stdout "$DEMO" | cat)" = "$want" ]
    [ "$({ st-inspect list -o /dev/fd/3 "$DEMO" | cat; } 3>&1)" = "$want" ]
    mkfifo fifo
    ln -s fifo link
    for name in fifo link; do
        st-inspect list -o $name "$DEMO" &
        [ "$(cat fifo)" = "$want" ]
        wait $!
    done
    [ "$(ls -A)" = "$(printf 'fifo\nlink')" ]
}

@test "out: - is standard output, and no directory's name" {
    echo '{"vit_family":"clip","vit_ckpt":"c","layers":[0],"n_patches_per_img":1,"cls_token":true,"d_vit":1,
        "seed":0,"n_imgs":1,"max_patches_per_shard":2,"data":""}' >m.json
    moe=$ROOT/demo/qwen3-moe-tiny
    moe-sft init -b "$moe" --layer 0 -o lora.safetensors
    for line in "saev-write -m m.json" "lut-precompute -m $DEMO -s $ROOT/demo/sae" \
        "moe-sft merge -b $moe -l lora.safetensors" "moe-sft convert -b $moe --layer 0 -l lora.safetensors"; do
        # shellcheck disable=SC2086
        run -2 $line -o - </dev/null
        [ "${lines[0]}" = "${line%% *}: a directory cannot be written to standard output (./- has that name)" ]
        [ ! -e ./- ]
    done
    mkdir ./- # as one above it it is a directory like others
    moe-sft convert -b "$moe" --layer 0 -l lora.safetensors -o -/peft
    lut-precompute -q -m "$DEMO" -s "$ROOT/demo/sae" -o -/lut
    [ "$(ls ./-)" = "$(printf 'lut\npeft')" ]
}
