# SPDX-License-Identifier: ISC
# sae-train: the same bytes for any threads, company, stops and ways in; what it
# refuses.
load helpers
load sae

@test "sae-train: f16, bf16 and raw rows, files one after the other, a pipe: the same bytes" {
    py - <<'EOF'
import numpy as np, mkst
x = np.load("rows.npy")
np.save("half.npy", x.astype("<f2"))
np.save("single.npy", x.astype("<f2").astype("<f4"))
x.tofile("raw.f32")
x.astype("<f2").tofile("raw.f16")
dtype, shape, data = mkst.bf16(x)
open("raw.bf16", "wb").write(data)
np.save("rounded.npy", mkst.from_bf16(data).reshape(shape).astype("<f4"))
np.save("a.npy", x[:1000].reshape(10, 100, 32))
np.save("b.npy", x[1000:])
EOF
    o=(-n 20 --warmup 3 --init sae0)
    train want "${o[@]}"
    IN='a.npy b.npy' train run "${o[@]}"
    same want run
    IN='' train run -f "${o[@]}" <rows.npy
    same want run
    IN='' train run -f "${o[@]}" < <(cat rows.npy)
    same want run
    IN='' train run -f "${o[@]}" --dim 32 --x-dtype f32 < <(cat raw.f32)
    same want run
    for d in single:half:f16 rounded:rounded:bf16; do
        IFS=: read -r f32 file raw <<<"$d"
        IN=$f32.npy train want -f "${o[@]}"
        IN=$file.npy train run -f "${o[@]}"
        same want run
        IN='' train run -f "${o[@]}" --dim 32 --x-dtype "$raw" <"raw.$raw"
        same want run
    done
}

@test "sae-train, eval, lut-apply, calibrate: a .npy that is given as raw numbers is refused" {
    py -c 'import numpy as np, lut_ref as ref
rng = np.random.default_rng(1)
np.save("r.npy", rng.normal(size=(300, 32)).astype("<f4")) # its header has 128 bytes, a row
sae = ref.tiny_sae(rng, 64, 32)
ref.write_lut("lut", {"model.a": ref.table(sae, rng.normal(size=(8, 32)), None)}, 4, "F32")'
    is="r.npy: is .npy (expected raw numbers, which --x-dtype and --dim are for)"
    no() { # MESSAGE COMMAND...
        run -65 --separate-stderr "${@:2}"
        [ "$stderr" = "$1" ] && [ -z "$output" ]
    }
    no "sae-train: $is" sae-train -q -o run -k 4 --latents 64 --batch 100 -n 2 --warmup 1 --dim 32 r.npy
    [ ! -e run/sae.safetensors ]
    no "sae-train: standard input${is#r.npy}" sae-train eval -s sae0 --dim 32 < <(cat r.npy)
    no "lut-apply: $is" lut-apply lut model.a --x-dtype f32 -i r.npy -o y
    no "lut-precompute: $is" lut-precompute calibrate lut model.a --x-dtype f32 -i r.npy
}

@test "sae-train: the same bytes for any number of threads" {
    for o in "" "--activation batchtopk" "--dead-after 256 --aux-coef 0.5 --clip 0.2" "--compute bf16"; do
        for j in 1 2 3; do
            # shellcheck disable=SC2086
            train "run$j" -f -n 12 --warmup 2 $o -j $j
        done
        same run1 run2
        same run1 run3
    done
}

@test "sae-train --sae: of several in one pass each has the bytes that it gets alone" {
    sae-train -o many -n 12 --batch 256 --warmup 2 --log-every 1 --dead-after 512 --latents 64 \
        --sae a:k=8 --sae b:k=16,latents=160 --sae c:k=4,lr=0.01,seed=5 rows.npy
    [ "$(ls -A many | tr '\n' ' ')" = "a b c " ]
    alone() {
        rm -rf one
        sae-train -o one -n 12 --batch 256 --warmup 2 --log-every 1 --dead-after 512 "${@:2}" rows.npy
        for f in cfg.json sae.safetensors log.tsv; do
            cmp "one/$f" "many/$1/$f"
        done
    }
    alone a -k 8 --latents 64
    alone b -k 16 --latents 160
    alone c -k 4 --latents 64 --lr 0.01 --seed 5
}

@test "sae-train --sae: its own expansion stands for latents of all; what is no value is refused" {
    sae-train -o many -n 1 --batch 256 --latents 64 --sae a:expansion=3 --sae b:no-normalize=1 rows.npy
    grep -q '"num_latents": 96' many/a/cfg.json
    grep -q '"num_latents": 64' many/b/cfg.json
    grep -q '"normalize_decoder": false' many/b/cfg.json
    for o in latents=8,expansion=4 no-normalize=yes no-normalize batch=9 log-every=2; do
        run -2 --separate-stderr sae-train -o other --sae a:$o rows.npy
        [ ! -e other ]
    done
}

@test "sae-train --sae --resume: each goes on from where it was" {
    many() {
        sae-train -o many --batch 256 --warmup 2 --log-every 1 --latents 64 --sae a:k=8 --sae b:k=16 "$@" rows.npy
    }
    many -n 9 --decay 0
    mv many want
    many -n 4 --decay 0
    sae-train -o many --resume -n 9 rows.npy
    diff -r want many
}

@test "sae-train --layers: each layer's SAE has the bytes that it gets alone" {
    py -c 'import numpy as np
x = np.load("rows.npy")[:4800].reshape(8, 3, 200, 32)
np.save("layers.npy", x)
np.save("one.npy", np.ascontiguousarray(x[:, 1]))'
    IN=layers.npy train all --layers layers.0.mlp,layers.1.mlp,layers.2.mlp -n 5
    [ "$(ls -A all | tr '\n' ' ')" = "layers.0.mlp layers.1.mlp layers.2.mlp " ]
    cp -r all cut # killed before the last one had a state
    rm -r cut/layers.1.mlp
    sae-train -o cut --resume --layers layers.0.mlp,layers.1.mlp,layers.2.mlp layers.npy
    diff -r all cut
    IN=one.npy train one -n 5 --hook layers.1.mlp
    for f in sae.safetensors log.tsv; do
        cmp one/$f all/layers.1.mlp/$f
    done
    grep -q '"hook": *"layers.1.mlp"' one/cfg.json
    run -65 --separate-stderr train two --layers layers.0.mlp,layers.1.mlp layers.npy
    [ "${#stderr_lines[@]}" = 1 ]
    run -65 --separate-stderr sae-train -o all --resume --layers layers.1.mlp,layers.0.mlp,layers.2.mlp layers.npy
    [ "$stderr" = "sae-train: all/layers.1.mlp/state.safetensors: layer was 1 (now 0; --force starts a new run)" ]
}

@test "sae-train: a dump of several layers is trained on as one, which is said; a number is no layer's name" {
    py -c 'from saev_dump import *; dump("dump", n=64, p=16, d=32, layers=[-2, 2, 5])
dump("single", n=64, p=16, d=32, layers=[5])'
    IN=dump run -0 --separate-stderr train all -n 3 --warmup 2
    [ "$stderr" = "sae-train: dump: the rows of all its layers, -2, 2, 5, are used (one alone: saev-read --layer N)" ]
    IN=dump run -0 --separate-stderr train each -n 3 --warmup 2 --layers layers.22,layers.2,layers.5
    [ -z "$stderr" ]
    # negative layers, and names of another form, cannot be compared
    for o in "dump 2 --hook layers.2.mlp" "dump 2 --layers layers.22,layers.5,layers.2" \
        "single 5 --hook m.layers.2.mlp" "single 5 --sae a --sae b:hook=layers.55" \
        "single 5 --hook blocks.2.hook_mlp_out" "single 5 --hook blocks.22.hook_resid_pre"; do
        read -r IN n o <<<"$o"
        # shellcheck disable=SC2086
        IN=$IN run -65 --separate-stderr train x -n 3 --warmup 2 $o
        [[ $stderr =~ ^"sae-train: $IN: rows of layer "(-2|$n)" are not of "(m\.)?(lay|block)e?r?s\.[25]+[._a-z]*" (one layer alone: saev-read --layer N)"$ ]]
        [ ! -e x/sae.safetensors ]
    done
    # before block 6 is the output of layer 5, unless TransformerLens numbered it
    for h in encoder.3.mlp h.5.mlp blocks.6.hook_resid_pre blocks.5.hook_resid_pre; do
        IN=single run -0 --separate-stderr train $h -n 3 --warmup 2 --hook $h
        [ -z "$stderr" ]
    done
    run -0 --separate-stderr sae-train eval -s all dump
    [[ $stderr == *": the rows of all its layers, -2, 2, 5, are used "* ]]
    IN=single run -0 --separate-stderr train one -n 3 --warmup 2
    [ -z "$stderr" ]
    run -0 --separate-stderr sae-train eval -q -s all dump
    [ -z "$stderr" ]
    saev-read -q --layer 5 dump | IN='' train piped -n 3 --warmup 2
    cmp piped/sae.safetensors each/layers.5/sae.safetensors
    # getopt takes it for --layers
    for l in --layer=5 --layers=5 --layer=-5; do
        IN=single run -2 --separate-stderr train x $l
        [ "${stderr_lines[0]}" = "sae-train: --layers ${l#*=}: is a number, not a name as layers.5.mlp (one layer of a dump: saev-read --layer ${l#*=} DUMP | sae-train)" ]
    done
    IN=single train x -n 3 --warmup 2 --layer layers.5.mlp
    cmp one/sae.safetensors x/layers.5.mlp/sae.safetensors
}

@test "sae-train: fewer steps than --warmup are a warning" {
    warns() {
        run -0 --separate-stderr train run -f "${@:3}"
        [ "$stderr" = "${1:+sae-train: $1: the learning rate does not reach --lr (for so few: --warmup $2)}" ] || { echo "$stderr"; return 1; }
    }
    warns "20 steps, but --warmup 1000" 2 --warmup 1000
    warns "" ""
    warns "" "" --warmup 2
    warns "1 step, but --warmup 2" 0 -n 1 --warmup 2
    warns "" "" -n 2 --warmup 2
    warns "" "" -n 1 --warmup 2 -q
    warns "3 steps, but --warmup 7" 0 -n 3 --sae a:warmup=7 --sae b:warmup=3 --sae c:warmup=7
    # what is resumed has said it
    train run -f -n 2 --warmup 9 --decay 0
    run -0 --separate-stderr sae-train -o run -n 3 --resume rows.npy
    [ -z "$stderr" ]
    # of a stream nobody knows
    IN='' run -0 --separate-stderr train run -f --dim 32 < <(tail -c +129 rows.npy)
    [ -z "$stderr" ]
}

@test "sae-train: an SAE that is worse than the mean at the end is a warning" {
    for lr in 0.001 100; do
        run -0 --separate-stderr train run$lr -n 2 --warmup 0 --lr $lr --init sae0
        fvu=$(awk -F '\t' '$1 == 2 && $4 > 1 { printf "%.4g", $4 }' run$lr/log.tsv)
        [ "$stderr" = "${fvu:+sae-train: run$lr: fvu is $fvu in the last step: worse than the mean of the rows}" ]
    done
    [ "$fvu" ]
}

@test "sae-train info -l: what an SAE is, and the run, finished or not" {
    train top -n 3 --warmup 2 --seed 7 --hook layers.1.mlp
    # numbers as the log has them
    [ "$(sae-train info -l top | awk -F '\t' -v OFS='\t' '$1 == "fvu" { $2 = sprintf("%.9g", $2) } { print }')" = "$(
        cat <<END
file	top/sae.safetensors
activation	topk
latents	64
d	32
k	4
encodes	x - b_dec
hook	layers.1.mlp
seed	7
batch	256
lr	0.0128
warmup	2
decay	0.2
steps_in_all	3
steps	3
rows	768
$(awk -F '\t' 'END { print "fvu\t" $4 "\nl0\t" $6 "\ndead\t" $7 }' top/log.tsv)
END
    )" ]
    rm top/sae.safetensors
    [ "$(sae-train info -l top | head -n 6 | paste -sd' ')" = $'activation\ttopk latents\t64 d\t32 k\t4 hook\tlayers.1.mlp seed\t7' ]
    train theta -n 3 --warmup 2 --activation batchtopk --format saelens
    rm theta/state.safetensors
    theta=$(py -c 'import mkst; print(repr(float(mkst.read("theta/sae_weights.safetensors")[0]["threshold"][0])))')
    [ "$(sae-train info --long theta sae0 | grep -v '^sae0.[ef]')" = "$(
        cat <<END
theta	file	theta/sae_weights.safetensors
theta	activation	threshold
theta	latents	64
theta	d	32
theta	threshold	$theta
theta	encodes	x - b_dec
sae0	activation	topk
sae0	latents	64
sae0	d	32
sae0	k	32
END
    )" ]
    mkdir none
    for p in 66:none 66:nothing 65:rows.npy; do
        run "-${p%:*}" --separate-stderr sae-train info -l "${p#*:}"
        [ "${#stderr_lines[@]}" = 1 ]
        [ -z "$output" ]
    done
    mkdir -p many/a
    cp top/state.safetensors many/a
    run -66 --separate-stderr sae-train info many
    [[ $stderr == "sae-train: many: has no state.safetensors ("*" many/NAME)" ]]
    [ "$(sae-train info many/a)" = "$(sae-train info -l top)" ]
}

@test "sae-train --resume: from the file and from a pipe that begins later, the same bytes" {
    py -c 'from saev_dump import *; dump("dump", n=300, p=16, d=32)'
    saev-read -q --shuffle --seed 1 dump >shuffled.npy
    for o in "" "--activation batchtopk --dead-after 256 --aux-coef 0.5 --clip 0.2"; do
        rm -rf want run piped
        # shellcheck disable=SC2086
        IN=shuffled.npy train want -n 15 --decay 0 --warmup 2 $o
        # shellcheck disable=SC2086
        IN=shuffled.npy train run -n 4 --decay 0 --warmup 2 $o -j 1
        cp -r run piped
        sae-train -o run --resume -n 9 -j 3 shuffled.npy
        sae-train -o run --resume -n 15 shuffled.npy
        same want run
        [ "$(sae-train info --rows piped)" = $((4 * 256)) ]
        saev-read -q --shuffle --seed 1 --skip 1024 dump | sae-train -o piped --resume -n 15 --input-at 1024
        same want piped
        sae-train -o run --resume shuffled.npy
        same want run
    done
}

@test "sae-train: TERM, also while it waits for input, saves and says how to continue: 75" {
    train want --warmup 2
    mkfifo pipe
    for signal in TERM USR1; do
        rm -rf run
        sae-train -o run -k 4 --latents 64 --batch 256 --epochs 1 --log-every 1 --warmup 2 <pipe 2>said &
        pid=$!
        exec 7>pipe
        head -c 300000 rows.npy >&7 # 9 steps, and some rows
        sleep 0.3
        kill -$signal $pid
        status=0
        wait $pid || status=$?
        exec 7>&-
        [ "$status" = 75 ]
        [[ $(cat said) =~ ^"sae-train: stopped by SIG$signal: run holds step "([0-9]+)", --resume continues"$ ]]
        [ ! -e run/sae.safetensors ]
        [ ! -e run/cfg.json ]
        [ "$(sae-train info --rows run)" = $((BASH_REMATCH[1] * 256)) ]
        sae-train -o run --resume rows.npy
        same want run
    done
}

@test "sae-train: kill -9 at any moment, and the bytes of a run that was not" {
    o=(-n 20 --warmup 2 --dead-after 256)
    before=$(date +%s%N)
    train want "${o[@]}" --save-every 1
    ns=$((($(date +%s%N) - before) / 10)) killed=0 end=$((SECONDS + 5))
    # a few on a machine that is busy, too
    until [ "$killed" = 50 ] || { [ $SECONDS -ge $end ] && [ "$killed" -ge 5 ]; }; do
        [ $SECONDS -lt $((end + 300)) ]
        sae-train -q -o run -k 4 --latents 64 --batch 256 "${o[@]}" --save-every 1 --resume rows.npy &
        pid=$!
        sleep "$(printf %d.%09d $((killed * 7 % 10 * ns / 1000000000)) $((killed * 7 % 10 * ns % 1000000000)))"
        kill -9 $pid 2>/dev/null || :
        status=0
        wait $pid || status=$?
        [ ! -e run/state.safetensors ] || st-inspect verify -q run/state.safetensors
        if [ "$status" = 0 ]; then # it was at its end: once more, and sooner
            same want run
            rm -r run
            ns=$((ns * 2 / 3))
            continue
        fi
        [ "$status" = 137 ]
        killed=$((killed + 1))
    done
    train run "${o[@]}" --resume
    same want run
}

@test "sae-train --resume: what is not given comes from the state, what is given must agree" {
    train run -n 3
    cp -r run kept
    refused() {
        run -65 --separate-stderr sae-train -o run --resume "${@:2}" rows.npy
        [[ $stderr == "sae-train: run/state.safetensors: $1"* ]] || { echo "$stderr"; return 1; }
        [ "${#stderr_lines[@]}" = 1 ]
        diff -r kept run
    }
    refused "--k was 4 (now 5" -k 5
    refused "--latents was 64 (now 32" --latents 32
    refused "--batch was 256 (now 128" --batch 128
    refused "--seed was 0 (now 1" --seed 1
    refused "--activation was topk (now batchtopk" --activation batchtopk
    refused "--lr was " --lr 1
    refused "--clip was " --clip 1
    refused "--warmup was 0 (now 9" --warmup 9
    refused "--decay was 0.2 (now 0.5" --decay 0.5
    head -c 1000 kept/state.safetensors >run/state.safetensors
    run -65 sae-train -o run --resume rows.npy
    [ "${#lines[@]}" = 1 ]
}

@test "sae-train --compute bf16 --resume: a run of other instructions is continued only with --any-isa" {
    [ "${TU_ISA-}" != scalar ] || unset TU_ISA # what else there is
    isas_here
    now=${TU_ISA:-${ISAS##* }}
    [ "$now" != scalar ] || skip "scalar is all there is"
    ended() { # DIR [OPTION]: a run whose rows end in its fourth step
        IN='' TU_ISA=scalar run -65 train "$@" -n 8 --warmup 2 --save-every 1 < <(head -c 100000 rows.npy)
        [ -e "$1/state.safetensors" ]
    }
    ended run --compute bf16
    ended exact
    sae-train -o exact --resume rows.npy
    run -65 --separate-stderr sae-train -o run --resume rows.npy
    [ "$stderr" = "sae-train: run/state.safetensors: was made with scalar, which gives other bits than $now (TU_ISA selects instructions that the CPU has; --any-isa continues)" ]
    run -2 sae-train -o run --any-isa rows.npy
    run -0 --separate-stderr sae-train -o run --resume --any-isa rows.npy
    [ "$stderr" = "sae-train: run/state.safetensors: was made with scalar and continues with $now: its bits will differ" ]
    # it has gone on: now it depends on what it continues with
    run -0 --separate-stderr sae-train -o run --resume rows.npy
    [ -z "$stderr" ]
    [ "$(tail -n 1 run/log.tsv | cut -f 1)" = 8 ]
}

@test "sae-train --resume: the log's steps, the files' form, bad rows, a rate of 0 are those of the run" {
    py -c 'import numpy as np
x = np.load("rows.npy")
x[3, 5] = np.nan
np.save("bad.npy", x)'
    o=(--log-every 2 --format saelens --skip-bad --lr 0 --dead-after 9000000000000000000 --decay 0)
    IN=bad.npy train want -n 6 "${o[@]}"
    IN=bad.npy train run -n 3 "${o[@]}"
    sae-train -o run --resume -n 6 bad.npy
    diff -r want run
    [ -e run/sae_weights.safetensors ]
    [ "$(cut -f 1 run/log.tsv | paste -sd' ')" = "step 2 4 6" ]
    # two texts, and those of the state
    sae-train -o many -n 2 --batch 256 --latents 64 --sae a:init=sae0,hook=there,k=4 rows.npy
    sae-train -o many --resume --sae a:init=sae0,hook=here,k=4 rows.npy
    grep -q '"hook": "here"' many/a/cfg.json
}

@test "sae-train --resume: files are gone over again, as -n of the run asked for" {
    py -c 'import numpy as np
np.save("few.npy", np.load("rows.npy")[:700])'
    IN=few.npy train want -n 12
    stopped() { # before its first step
        rm -rf run
        sae-train -o run -k 4 --latents 64 --batch 256 -n 12 <pipe &
        exec 7>pipe
        head -c 200 rows.npy >&7
        until [ -e run/log.tsv ]; do sleep 0.1; done
        kill $!
        wait $! || [ $? = 75 ]
        exec 7>&-
    }
    mkfifo pipe
    stopped
    for n in 1 2 3 4 5; do
        sae-train -o run --resume --deadline 0.02 few.npy || [ $? = 75 ]
        [ ! -e run/sae.safetensors ] || break
    done
    sae-train -o run --resume few.npy
    same want run
    # of a pipe there is a copy, also of rows that were used; a raw one, whose
    # rows nobody knows, ends early
    stopped
    run -0 --separate-stderr sae-train -o run --resume < <(cat few.npy)
    [ "$stderr" = "sae-train: the input begins with 700 rows, and 12 steps need 3072: a copy in ${TMPDIR:-/tmp}, 87.5 KiB, is read again" ]
    same want run
    IN=few.npy train flat -n 12 --decay 0
    for n in 2 9; do
        IN='' train part -f -n $n --decay 0 < <(cat few.npy)
        sae-train -o part --resume -n 12 < <(cat few.npy)
        same flat part
    done
    IN='' run -65 --separate-stderr train raw -n 12 --dim 32 < <(tail -c +129 few.npy)
    [[ ${stderr_lines[-1]} == "sae-train: the input ended after 700 rows, in step 3 of 12 (--resume continues with more; -f -n 2 needs no more)" ]]
    # nor of one that is missing rows
    stopped
    run -65 --separate-stderr sae-train -o run --resume --input-at 256 few.npy
    [ "$stderr" = "sae-train: the input has 956 rows, and 12 steps need 3072 (-n 3 needs no more; whole files are read again)" ]
    [ -e run/state.safetensors ]
}

@test "sae-train --resume: an input that begins after the run's last row, or ends before it, is refused" {
    py -c 'import numpy as np
x = np.load("rows.npy")[:4800].reshape(24, 2, 100, 32)
np.save("layers.npy", x)
x[:1].tofile("short.f32")
np.save("rest.npy", np.load("rows.npy")[1024:])'
    train run -n 4 --decay 0
    run -65 --separate-stderr sae-train -o run --resume -n 6 --input-at 1280 rows.npy
    [ "$stderr" = "sae-train: run/state.safetensors: the run goes on with row 1024 (found 1280; --input-at is the input's first)" ]
    sae-train -o run --resume -n 6 --input-at 1024 < <(cat rest.npy)
    train want -n 6 --decay 0
    same want run
    # by layers, in a block; of a file that is known before
    run -65 --separate-stderr sae-train -o other --layers a,b --dim 32 --tokens 7 -n 9 short.f32
    [ "$stderr" = "sae-train: short.f32: has 200 rows (expected whole blocks of 2 layers and 7 tokens)" ]
    [ ! -e other ]
    BATCH=130 IN=layers.npy train all --layers a,b -n 1 --decay 0
    IN='' run -65 --separate-stderr sae-train -o all --resume --layers a,b -n 2 --dim 32 --tokens 100 <short.f32
    [ "${#stderr_lines[@]}" = 1 ]
}

@test "sae-train --skip-bad: files without a good row are not gone over for ever" {
    py -c 'import numpy as np
np.save("bad.npy", np.full((300, 32), np.nan, "<f4"))'
    for o in "" "-n 3"; do
        # shellcheck disable=SC2086
        IN=bad.npy run -65 --separate-stderr timeout 60 sae-train -o run --skip-bad -q $o bad.npy
        [ "${#stderr_lines[@]}" = 1 ]
        [ ! -e run ]
    done
}

@test "sae-train --resume: where there is no state, as after a kill, a run begins, and says so" {
    mkdir run
    run -0 --separate-stderr train run -n 3 --warmup 2 --resume
    [ "$stderr" = "sae-train: run: there is no run to resume: one begins" ]
    train want -n 3 --warmup 2
    same want run
    run -0 --separate-stderr sae-train -o run --resume rows.npy
    [ -z "$stderr" ]
}

@test "sae-train --resume: a state whose options are damaged is refused, and so is one without them" {
    train run -n 3 --warmup 1000
    cp -r run kept
    while read -r was now; do
        py - "$was" "$now" <<'EOF'
import sys
was, now = (a.encode() for a in sys.argv[1:])
d = open("kept/state.safetensors", "rb").read()
assert d.count(was) == 1 and len(was) == len(now), (was, now)
open("run/state.safetensors", "wb").write(d.replace(was, now))
EOF
        run -65 --separate-stderr sae-train -o run --resume rows.npy
        [[ $stderr == "sae-train: run/state.safetensors: is damaged"* || $stderr == *"does not say what --k was (now 32; --force starts a new run)" ]] ||
            { echo "$was: $stderr"; false; }
    done <<'END'
"--lr":"0 "--lr":"1
"--k": "-_k":
"-n":"3 "-n":"7
"--warmup":"1000 "--warmup":"1001
END
    # NaN in the weights, 10^15 rows had: numbers that nobody vouches for
    for key in xxh3 settings_xxh3; do
        py - $key <<'EOF'
import struct, sys, mkst
t, meta = mkst.load_all("kept/state.safetensors")
del meta[sys.argv[1]]
dtype, shape, data = t["input"]
t["input"] = (dtype, shape, struct.pack("<3d", 0, 1e15, 0))
dtype, shape, data = t["W_dec.master"]
t["W_dec.master"] = (dtype, shape, b"\xff" * len(data))
mkst.save("run/state.safetensors", t, meta)
EOF
        run -65 --separate-stderr timeout 20 sae-train -o run --resume rows.npy
        [[ $stderr == "sae-train: run/state.safetensors: has no checksums ("*"(--force starts a new run)" ]]
    done
}

@test "sae-train: rows that are not finite are named: 65, and with --skip-bad left out" {
    py -c 'import numpy as np
x = np.load("rows.npy")
np.save("good.npy", np.delete(x, (3, 700, 701), 0))
x[3, 5], x[700, 0], x[701, 31] = np.nan, np.inf, -np.inf
np.save("bad.npy", x)'
    IN=bad.npy run -65 --separate-stderr train run -n 4 --warmup 4
    [[ $stderr == "sae-train: bad.npy: row 3 "* ]] || { echo "$stderr"; false; }
    [ "${#stderr_lines[@]}" = 1 ]
    [ ! -e run/sae.safetensors ]
    # nothing is left but what was there
    mkdir half
    echo '{}' >half/cfg.json
    IN=bad.npy run -65 train half --resume -n 4 --warmup 4
    [ "$(ls -A half)" = cfg.json ]
    # of files one after the other, the file and its row
    IN="good.npy bad.npy good.npy" run -65 --separate-stderr train run -f --warmup 4
    [[ $stderr == "sae-train: bad.npy: row 3 has NaN or Inf ("* ]] || { echo "$stderr"; false; }
    IN=bad.npy run -0 --separate-stderr train run -f --skip-bad -n 4 --warmup 4
    [[ $stderr == *"3 rows"* ]] || { echo "$stderr"; false; }
    IN=good.npy train want -n 4 --warmup 4
    for f in cfg.json sae.safetensors log.tsv; do
        cmp want/$f run/$f
    done
}

@test "sae-train: what does not fit is refused in a line, and nothing looks finished" {
    refused() {
        rm -rf run
        run "-$1" --separate-stderr "${@:3}" -q
        [ "$status" = "$1" ]
        [[ $stderr == *"$2"* ]] || { echo "$stderr"; return 1; }
        [ "$1" = 2 ] || [ "${#stderr_lines[@]}" = 1 ]
        [ ! -e run/sae.safetensors ]
    }
    py -c 'import numpy as np
np.save("wide.npy", np.zeros((300, 33), "<f4"))
np.save("none.npy", np.zeros((0, 32), "<f4"))
np.save("ints.npy", np.zeros((300, 32), "<i4"))'
    IN=wide.npy refused 65 "33" train run --init sae0
    IN="rows.npy wide.npy" refused 65 "wide.npy" train run
    IN=none.npy refused 65 "none.npy" train run
    IN=ints.npy refused 65 "ints.npy" train run
    IN='' refused 65 "no rows" train run --dim 32 --x-dtype f32 </dev/null
    IN='' refused 65 "standard input" train run </dev/null
    IN='' refused 65 "standard input" train run --dim 32 --x-dtype f32 < <(head -c 40000 rows.npy | tail -c +130)
    IN='' refused 65 "standard input" train run < <(head -c 40000 rows.npy)
    IN=missing.npy refused 66 "missing.npy" train run
    refused 2 "-k" train run -k 65
    refused 2 "" train run -k 0
    refused 2 "" train run --latents 0
    refused 2 "" train run --batch 0
    refused 65 "" train run --init sae0 --latents 65
    refused 66 "" train run --init nothing
    refused 2 "" sae-train rows.npy
}

@test "sae-train, eval: a directory of dumps means its only one, and acts/* the dumps" {
    py -c 'from saev_dump import *; dump("acts/one", d=32, n=40, layers=(1,))'
    echo x | tee acts/a.log >acts/m.json && cp rows.npy acts
    IN=acts/one train want -n 3 && IN=acts train run -n 3 && same want run
    sae-train eval -s want acts/one rows.npy >eval
    run -0 --separate-stderr sae-train eval -s want acts/* # the .npy stays
    [ "$output" = "$(cat eval)" ]
    [ "$stderr" = "sae-train: acts/a.log: 2 files next to dumps, left out" ]
    py -c 'from saev_dump import *; dump("acts/two", d=32, n=40, layers=(1,))'
    run -66 sae-train eval -s want acts
    [ "$output" = "sae-train: acts: holds 2 dumps, name one: acts/one, acts/two" ]
}

@test "sae-train: one step on fewer rows than a batch is the same from a file and from a pipe" {
    BATCH=6000 train want -n 1
    BATCH=6000 IN='' train run -n 1 < <(cat rows.npy)
    same want run
    [ "$(tail -n 1 run/log.tsv | cut -f 1,2)" = "$(printf '1\t5200')" ]
}

@test "sae-train: what an input that breaks off had is kept, and more of it continues" {
    train want
    IN='' run -65 train run < <(head -c 300000 rows.npy)
    [ "$(sae-train info --rows run)" = 2304 ]
    [ ! -e run/sae.safetensors ]
    sae-train -o run --resume rows.npy
    same want run
}

@test "sae-train: a loss that is not finite names its step: 76" {
    py -c 'import numpy as np
x = np.load("rows.npy")[:300]
np.save("large.npy", np.sign(x) * np.float32(3.4e38))
np.save("same.npy", x * 0 + 3)'
    IN=large.npy run -76 --separate-stderr train run --warmup 0
    [[ $stderr == "sae-train: run: the loss is infinite in step 1 ("* ]]
    [ ! -e run ]
    IN=same.npy run -65 --separate-stderr train run --warmup 0
    [ "$stderr" = "sae-train: run: the rows of step 1 (256) are the same, which leaves nothing to explain" ]
    BATCH=1 run -65 --separate-stderr train run --warmup 0
    [ "$stderr" = "sae-train: run: the rows of step 1 (1) are the same, which leaves nothing to explain" ]
    [ ! -e run ]
}

@test "sae-train: a writer that has more to say is left, one that ends early is 65" {
    raw() {
        tail -c +129 rows.npy
    }
    forever() {
        while raw 2>/dev/null; do :; done
    }
    IN='' train run -n 3 --dim 32 --x-dtype f32 < <(forever)
    IN='' train want -n 3 --dim 32 --x-dtype f32 < <(raw)
    same want run
    # whole rows of raw data end where they end: 2 steps, the rest is dropped
    rm -r run
    IN='' train run --dim 32 --x-dtype f32 < <(raw | head -c $((700 * 128)))
    [ "$(tail -n 1 run/log.tsv | cut -f 1,2)" = "$(printf '2\t512')" ]
    # fewer rows than a batch are one
    rm -r run
    IN='' train run --dim 32 --x-dtype f32 < <(raw | head -c $((70 * 128)))
    [ "$(tail -n 1 run/log.tsv | cut -f 1,2)" = "$(printf '1\t70')" ]
}

@test "sae-train: a header that promises rows without end is one line" {
    for shape in 1,4611686018427387904 1,1,1073741825,4; do
        py -c "import sys
h = ('{\"descr\": \"<f2\", \"fortran_order\": False, \"shape\": ($shape,), }').ljust(117).encode() + b'\n'
sys.stdout.buffer.write(b'\x93NUMPY\x01\x00' + len(h).to_bytes(2, 'little') + h)" >head
        run -65 --separate-stderr bash -c "sae-train -o out $1 <head"
        [ "${#stderr_lines[@]}" -eq 1 ]
        [ ! -e out ]
        set -- "--layers a"
    done
}

@test "sae-train --init: an SAE that does not centre its rows begins as the same function" {
    ref rows 300 8 3 some.npy
    mkdir plain
    py - <<'EOF'
import json, numpy as np
from tiny_models import write_safetensors
r = np.random.default_rng(1)
w = r.standard_normal((20, 8)); w /= np.linalg.norm(w, axis=1, keepdims=True)
t = dict(encoder_weight=w, encoder_bias=0.1 * r.standard_normal(20), decoder_weight=w,
         decoder_bias=r.standard_normal(8))
write_safetensors("plain/sae.safetensors", t, lambda n: "F32")
json.dump(dict(k=4, input_centering=False), open("plain/cfg.json", "w"))
EOF
    # of as many latents, if nothing else is asked for
    sae-train -o same -k 4 --batch 300 --init plain -n 1 --lr 0 some.npy
    run -65 --separate-stderr sae-train -o other -k 4 --init plain --expansion 3 some.npy
    [ "$stderr" = "sae-train: plain/sae.safetensors: has 20 latents of 8 inputs (expected 24 of 8)" ]
    run -65 --separate-stderr sae-train -o many -k 4 --init plain --sae a:latents=9 --sae b:seed=1 some.npy
    [ "$stderr" = "sae-train: plain/sae.safetensors: has 20 latents of 8 inputs (expected 9 of 8)" ]
    sae-train eval -s plain some.npy >want
    sae-train eval -s same some.npy >got
    paste want got | awk '{ d = $2 - $4; if (d * d > 1e-10 * $2 * $2) exit 1 }'
    py - <<'EOF'
d = bytearray(open("plain/sae.safetensors", "rb").read())
d[-4:] = b"\0\0\xc0\x7f"
open("plain/sae.safetensors", "wb").write(d)
EOF
    run -65 --separate-stderr sae-train -o other -k 4 --latents 20 --init plain some.npy
    [ "$stderr" = "sae-train: plain/sae.safetensors: decoder_bias[7] is NaN or infinite" ]
    [ ! -e other ]
}

@test "sae-train: who writes rows for one pass is read to the end, and does not fail" {
    # 1200 rows after the last whole batch, more than a pipe holds
    set -o pipefail
    cat rows.npy | BATCH=2000 IN='' train a -q
    cat rows.npy | BATCH=2000 IN='' train a -q --resume
    [ "$(tail -n 1 a/log.tsv | cut -f 1,2)" = $'2\t4000' ]
}

@test "sae-train: a file that cannot be looked at is an I/O error, never a missing one" {
    not_sanitized "LeakSanitizer does not run under strace"
    local stats='fstat,newfstatat,?statx' n seen=0
    strace -o /dev/null -e trace="$stats" -e inject="$stats:error=EIO:when=99" true 2>/dev/null ||
        skip "no strace here that fails calls"
    for n in 1 2 3 4 5 6; do # of the file, one after the other
        run --separate-stderr strace -o trace -P "$(realpath rows.npy)" -e trace="$stats" -e inject="$stats:error=EIO:when=$n" \
            sae-train -q -o out -n 1 -k 4 --latents 16 rows.npy
        grep -q INJECTED trace || break
        [ "$status" = 74 ]
        [ "$stderr" = "sae-train: rows.npy: Input/output error" ]
        seen=$((seen + 1))
    done
    [ "$status" = 0 ]
    [ $seen -ge 2 ]
}
