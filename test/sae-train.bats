# SPDX-License-Identifier: ISC
# sae-train: its steps are numpy's, in float64 (test/ref/sae_ref.py).
# It takes half a minute.
load helpers
load sae

# follows NAME=VALUE...: a run with these options, for followed.
follows() {
    local args=() o dir
    dir=run$((n_runs++))
    for o; do
        case $o in
        n=*) args+=(-n "${o#*=}") ;;
        normalize=0) args+=(--no-normalize) ;;
        *) args+=("--${o/=*/}" "${o#*=}") ;;
        esac
    done
    train $dir --init "${INIT-sae0}" "${args[@]//_/-}"
    echo "${IN-rows.npy}" "${INIT-sae0}" $dir k="${K-4}" batch="${BATCH-256}" "$@" >>runs
}

# followed: those runs were numpy's.
followed() {
    ref follow <runs
    [ "$(wc -l <runs)" = "$n_runs" ]
}

@test "sae-train: the reference's gradients are those of the loss, its steps are torch's" {
    ref check
    need_torch
    ref check-torch
}

# bats test_tags=long
@test "sae-train: the reference's gradients are those of the loss, for three seeds" {
    unset TU_WAYS
    ref check
}

@test "sae-train: the command line works as written" {
    run -0 --separate-stderr sae-train -o sae -k 4 --latents 64 --batch 256 --init sae0 -n 20 --warmup 10 --log-every 1 rows.npy
    [ -z "$output$stderr" ]
    ref follow rows.npy sae0 sae k=4 batch=256 n=20 warmup=10
    st-inspect verify -q sae/sae.safetensors sae/state.safetensors
    same sae sae
}

@test "sae-train: 1, 3 and 20 steps are those of numpy" {
    for n in 1 3 20; do
        follows n=$n warmup=0
        follows n=$n warmup=5 activation=batchtopk
    done
    followed
}

@test "sae-train: aux's steps are those of numpy: dead latents, some revived" {
    for a in topk batchtopk; do
        follows n=20 warmup=2 activation=$a dead_after=512 aux_coef=0.5
        follows n=20 warmup=2 activation=$a dead_after=256 aux_coef=0.5 aux_k=2 clip=0.2
        awk -F '\t' 'NR > 2 { if ($7 > was) up++; if ($7 < was) down++ } { was = $7 }
            END { exit !(up && down) }' run$((n_runs - 1))/log.tsv
        # more dead ones over 0 than d / 2
        BATCH=16 K=1 follows n=20 warmup=2 activation=$a dead_after=1 aux_coef=0.5
    done
    follows n=5 dead_after=256 aux_coef=0
    follows n=5 dead_after=256 aux_k=0
    awk -F '\t' '{ aux += $5; dead += $7 } END { exit !(dead && !aux) }' run$((n_runs - 1))/log.tsv
    followed
}

@test "sae-train: clip, warm-up, decay, lr and no-normalize are numpy's" {
    follows n=20 warmup=0 clip=0.3
    follows n=20 warmup=7 decay=0.5 lr=0.01
    follows n=20 warmup=15 decay=0.33
    follows n=20 warmup=0 decay=0 normalize=0
    follows n=20 warmup=0 decay=1 normalize=0 clip=0.1 dead_after=512
    followed
}

@test "sae-train: of equal activations the lower index is kept, and of the batch the upper row" {
    ref init 64 32 3 exact0 exact
    ref rows 256 32 4 exact.npy exact
    for a in topk batchtopk; do
        INIT=exact0 IN=exact.npy follows n=1 activation=$a warmup=0
    done
    followed
}

# bats test_tags=long
@test "sae-train: other shapes, all latents kept, one row: numpy's" {
    for a in topk batchtopk; do
        K=64 follows n=3 warmup=0 activation=$a
        K=63 BATCH=2 follows n=9 warmup=0 activation=$a dead_after=3
    done
    ref init 37 19 5 odd0
    ref rows 1000 19 6 odd.npy
    ref init 1111 130 7 large0
    ref rows 900 130 8 large.npy
    for o in "" "activation=batchtopk dead_after=1 aux_coef=0.5 clip=0.1"; do
        # shellcheck disable=SC2086
        INIT=odd0 IN=odd.npy N=37 K=1 BATCH=77 follows n=12 warmup=0 $o
        # shellcheck disable=SC2086
        INIT=large0 IN=large.npy N=1111 K=17 BATCH=300 follows n=3 warmup=0 $o
    done
    followed
}

@test "sae-train --compute bf16: the encoder's product rounds, and nothing else" {
    follows n=1 warmup=0 compute=bf16
    follows n=3 warmup=0 compute=bf16 activation=batchtopk
    followed
    train f32 --init sae0 -n 3
    train bf16 --init sae0 -n 3 --compute bf16
    run -1 cmp -s f32/sae.safetensors bf16/sae.safetensors
}

@test "sae-train: it begins with random unit vectors and the geometric median of the rows" {
    py -c 'import numpy as np
x = np.load("rows.npy")[:256]
x[:40] += 20
np.save("skewed.npy", x)'
    IN=skewed.npy train run --lr 1e-30 --seed 3
    ref median skewed.npy run
    IN=skewed.npy train again --lr 1e-30 --seed 3
    IN=skewed.npy train other --lr 1e-30 --seed 4
    same run again
    run -1 cmp -s run/sae.safetensors other/sae.safetensors
    # as many rows as -n needs, or all; --expansion is of d
    sae-train -o x --expansion 2 -k 4 --batch 100 --epochs 1 --log-every 1 rows.npy
    [ "$(tail -n 1 x/log.tsv | cut -f 1,2)" = "$(printf '52\t5200')" ]
    [ "$(st-inspect list x/sae.safetensors | awk '$5 == "encoder.weight" || $NF == "encoder.weight"' | grep -c 64)" = 1 ]
}

# bats test_tags=long
@test "sae-train: a planted dictionary is recovered, as by numpy" {
    ref plant 102400 32 48 3 1 planted.npy dictionary.npy
    sae-train -o run -k 3 --latents 64 --batch 256 --epochs 1 --init sae0 --warmup 20 --lr 0.01 --dead-after 2000 planted.npy
    ref train planted.npy sae0 want k=3 batch=256 n=400 warmup=20 lr=0.01 dead_after=2000
    found=$(ref planted dictionary.npy run)
    want=$(ref planted dictionary.npy want)
    echo "$found $want $(ref planted dictionary.npy sae0)"
    awk "BEGIN { exit !($found > 0.99 && $found > $want - 0.005) }"
}

@test "sae-train eval: what it prints is numpy's" {
    train top -n 12 --lr 0.0032
    train theta -n 12 --lr 0.0032 --activation batchtopk
    for s in top theta; do
        sae-train eval -s $s rows.npy | ref eval rows.npy $s
        # as in training, also after few steps
        sae-train eval -s $s rows.npy | awk '$1 == "l0" { exit !($2 > 3 && $2 < 5) }'
    done
}

# bats test_tags=long
@test "sae-train eval: without the 1 % largest rows fvu is numpy's, of a file, a pipe, a dump and a raw stream" {
    py - <<'END'
import numpy as np, saev_dump
x = np.load("rows.npy")
at = np.random.default_rng(5).permutation(len(x))[:50]
x[at] *= 1e4  # fewer than 52, with nearly all of the variance
x[0] *= 1e4   # that sums are from
x[at[:9]] = x[at[0]]
np.save("big.npy", x)
x.tofile("big.raw")
for i in range(4): np.save(f"part{i}.npy", x[i * 1300:(i + 1) * 1300])
# more than are kept of a stream: the largest last, and first
x = np.repeat(x, 20, axis=0)
x = x[np.argsort((x.astype(float) ** 2).sum(1), kind="stable")]
np.save("up.npy", x)
x.tofile("up.raw")
np.repeat(x, 3, axis=0)[::-1].tofile("down.raw")
saev_dump.padded("d", d=32, n_imgs=300)
END
    for f in big up; do
        sae-train eval -s sae0 $f.npy >want
        ref eval $f.npy sae0 <want
        for j in 1 2 3; do
            cat $f.npy | sae-train eval -j $j -s sae0 | cmp - want
            cat $f.raw | sae-train eval -j $j --dim 32 -s sae0 | cmp - want
        done
    done
    sae-train eval -s sae0 big.npy | cmp - <(cat part?.npy | sae-train eval -s sae0)
    sae-train eval -q -s sae0 d >of_dump
    saev-read -q d | sae-train eval -s sae0 | cmp - of_dump
    ref eval all.npy sae0 <of_dump
    # several at once, and JSON
    sae-train eval --json -s sae0 -s ./sae0 big.npy | sed 's|"./|"|' | uniq -c | grep ' 2 .*,"rows_without_largest":5148,"fvu_without_largest":1\.'
    # which rows those are is known where they are counted
    sae-train eval --dim 32 -s sae0 down.raw | grep '^rows_without_largest.308880$'
    run -0 --separate-stderr sae-train eval --dim 32 -s sae0 < <(cat down.raw)
    [ "$stderr" = "sae-train: the largest rows came first, and the input does not say how many there are: without them nothing is known" ]
    [ "$(tail -n 3 <<<"$output")" = "$(printf '%s_without_largest\tnull\n' rows fvu mse)" ]
}

@test "sae-train eval --by token: the ids with most of the error, their shares and fvu are numpy's" {
    printf '{"text":"The sun is a star, and so is this one."}\n{"ids":[7]}\n{"ids":[9,7,7,1]}\n' >docs
    cat docs docs | hf-infer "$DEMO" --acts resid:1 --ctx 16 --pad --jsonl -q --acts-meta m.json --acts-ids ids.npy -o - |
        saev-write -q -m m.json -o padded
    hf-infer "$DEMO" --acts resid:1 --ctx 8 --file "$ROOT/demo/held-out.txt" -q --acts-meta n.json --acts-ids n.npy -o - |
        saev-write -q -m n.json -o windows
    sae-train -q -o one -k 4 --latents 256 --batch 64 --lr 2e-3 --warmup 1 -n 40 windows
    sae-train -q -o two -k 2 --latents 64 --batch 64 --lr 2e-3 --warmup 1 -n 4 windows
    for d in padded windows; do
        sae-train eval --by token -s one -s two $d >$d.tsv
        sae-train eval --by token -s one $d | cmp - <(sed -n '1,/^two/{s/^one\t//;s/^sae\t//;/^two/d;p}' $d.tsv)
        same_for '-j 1' '-j 3' -- sae-train eval --by token --json -s one -s two $d
        sae-train eval --by token --json -s one -s two $d >$d.json
        saev-read -q $d >$d.npy
        py - $d "$(echo $d/*/ids.npy)" <<'END'
import json, sys, numpy as np, mkst
d, ids = sys.argv[1], np.load(sys.argv[2]).ravel()
ids, x = ids[ids >= 0], np.load(sys.argv[1] + ".npy").astype(float)
assert len(x) == len(ids)
head, *lines = [l.rstrip("\n").split("\t") for l in open(d + ".tsv")]
variance = ((x - x.mean(0)) ** 2).sum(1)
for sae, text in zip(("one", "two"), open(d + ".json")):
    p, k = mkst.read(sae + "/sae.safetensors")[0], json.load(open(sae + "/cfg.json"))["k"]
    z = np.maximum((x - p["b_dec"]) @ p["encoder.weight"].T.astype(float) + p["encoder.bias"], 0)
    f = np.zeros_like(z)
    most = np.argsort(-z, axis=1, kind="stable")[:, :k]
    np.put_along_axis(f, most, np.take_along_axis(z, most, 1), 1)
    error = ((x - f @ p["W_dec"] - p["b_dec"]) ** 2).sum(1)
    want = []
    for i in np.unique(ids):
        of = ids == i
        want.append([i, of.sum(), error[of].sum() / error.sum(), variance[of].sum() / variance.sum(),
                     error[of].sum() / variance[of].sum()])
    want = np.array(sorted(want, key=lambda w: -w[2])[:20], float)
    found = json.loads(text)["by_token"]
    names = ["id", "rows", "error_share", "variance_share", "fvu"]
    assert head == ["sae", *names] and all(list(f) == names for f in found)
    found = np.array([list(f.values()) for f in found], float)
    assert found.shape == want.shape, (found, want)
    assert np.allclose(found[:, 2:], want[:, 2:], rtol=1e-4), (found, want)
    assert (found[:, :2] == want[:, :2]).all(), (found, want)
    assert (np.array([l[1:] for l in lines if l[0] == sae], float) == found).all()
END
    done
    rm -f windows/*/ids.npy*
    run -65 sae-train eval --by token -s one windows/*
    [ "$output" = "sae-train: $(echo windows/*): has no ids.npy, which --by token needs" ]
    run -2 sae-train eval --by token -s one windows.npy
    [ "${lines[0]}" = "sae-train: windows.npy: --by token needs dumps that are named here" ]
    run -2 sae-train eval --by token --skip-bad -s one padded
}

# files: every library's, of one SAE.
files() {
    py "$ROOT/test/ref/sae_files.py" write files 64 24 3
}

# bats test_tags=long
@test "sae-train eval: of every library's files numpy finds the same" {
    files
    for f in files/*/; do
        f=$(basename "$f")
        sae-train eval -s "files/$f" files/rows.npy | py "$ROOT/test/ref/sae_files.py" eval files/rows.npy files "$f"
    done
    [ "$(find files -type d | wc -l)" = 27 ]
    # the file itself is as good as its directory
    for f in saev-TopK/sae.pt AutoEncoder.pt/ae.pt gemma/params.npz; do
        cmp <(sae-train eval -s "files/$f" files/rows.npy) <(sae-train eval -s "files/${f%/*}" files/rows.npy)
    done
}

@test "sae-train info -l: every library's files" {
    files
    sae-train info -l files/*/ >info
    [ "$(grep -c $'\tlatents\t64$' info)" = 26 ]
    [ "$(grep -c $'\td\t24$' info)" = 26 ]
    of() {
        sed -n "s|^files/$1/\t\(.*\)|\1|p" info | grep -v -e ^file -e ^latents -e ^d | tr '\t\n' ' ;'
    }
    [ "$(of saelens-topk-x)" = "activation topk;k 5;encodes x;" ]
    [ "$(of saelens-standard)" = "activation relu;encodes x - b_dec;" ]
    [ "$(of BatchTopKSAE.pt)" = "activation batchtopk;k 5;threshold 0.75;encodes x - b_dec;" ]
    theta=$(py -c 'import numpy as np
t = np.maximum(np.load("files/gemma/params.npz")["threshold"], 0)
print(f"threshold_min {t.min():.17g};threshold_max {t.max():.17g};")')
    [ "$(of gemma)" = "activation threshold;${theta}encodes x;" ]
}

# bats test_tags=long
@test "sae-train eval: .pt by torch itself" {
    need_torch
    files
    py "$ROOT/test/ref/sae_files.py" torch files
    for f in files/*.pt files/saev-*; do
        f=$(basename "$f")
        sae-train eval -s "files/$f" files/rows.npy | py "$ROOT/test/ref/sae_files.py" eval files/rows.npy files "$f"
    done
}

# bats test_tags=long
@test "sae-train --init: every library's SAE is what training begins with" {
    files
    for f in files/*/; do
        sae-train -o run --force --init "$f" -k 5 --latents 64 --batch 200 -n 1 --lr 1e-30 --no-normalize files/rows.npy
        py "$ROOT/test/ref/sae_files.py" init files "$(basename "$f")" run
    done
}

@test "sae-train eval: where k is not known, no number is made up" {
    files
    rm files/sparsify/cfg.json
    run -65 --separate-stderr sae-train eval -s files/sparsify files/rows.npy
    [ "$stderr" = "sae-train: files/sparsify/sae.safetensors: does not say how many latents are active (\"k\" in a cfg.json next to it does)" ]
    [ -z "$output" ]
}

@test "sae-train --format saelens: the same numbers under SAELens' names" {
    train run -n 3
    train lens -n 3 --format saelens
    py - <<'EOF'
import json, mkst
a, b = mkst.read("run/sae.safetensors")[0], mkst.read("lens/sae_weights.safetensors")[0]
assert (a["encoder.weight"].T == b["W_enc"]).all() and (a["encoder.bias"] == b["b_enc"]).all()
assert (a["W_dec"] == b["W_dec"]).all() and (a["b_dec"] == b["b_dec"]).all()
c = json.load(open("lens/cfg.json"))
assert (c["architecture"], c["d_in"], c["d_sae"], c["k"], c["dtype"]) == ("topk", 32, 64, 4, "float32"), c
EOF
    train jump -n 3 --format saelens --activation batchtopk
    train theta -n 3 --activation batchtopk
    py - <<'EOF'
import json, mkst, numpy as np
c, t = json.load(open("jump/cfg.json")), mkst.read("jump/sae_weights.safetensors")[0]
assert c["architecture"] == "jumprelu" and "k" not in c, c
want = json.load(open("theta/cfg.json"))["threshold"]
assert t["threshold"].shape == (64,) and (t["threshold"] == np.float32(want)).all()
state = mkst.read("theta/state.safetensors")[0]["threshold"]
assert np.allclose(state / (1 - 0.99 ** 3), want, rtol=1e-6, atol=0), (state, want)
EOF
}

# bats test_tags=long
@test "sae-train(1): the examples run as typed" {
    ln -s "$ROOT/demo" demo
    rm -rf rows.npy sae
    examples sae-train.1 >script
    run -0 bash -euo pipefail script
    [[ $output == *"fvu"* ]]
    for f in sae many/a many/b; do st-inspect verify -q $f/sae.safetensors; done
}

@test "sae-train: a dump without its padding is what its rows of data are" {
    py -c 'from saev_dump import *; padded("d", d=32, n_imgs=300)'
    rows=$(py -c 'import numpy as np; print(len(np.load("all.npy")))')
    for o in "" "-n 20"; do # once, and again from the beginning
        IN=all.npy train want -f --warmup 1 $o
        IN=d run -0 train run -q -f --warmup 1 $o
        same want run
        for layer in 3 7; do
            IN=$layer.npy train $layer -f --warmup 1 --hook layers.$layer $o
        done
        IN=d train each -f --warmup 1 --layers layers.3,layers.7 $o
        cmp 3/sae.safetensors each/layers.3/sae.safetensors
        cmp 7/sae.safetensors each/layers.7/sae.safetensors
    done
    # stopped within a document, before and after its first pass
    IN=d train whole --warmup 1 --decay 0 -n 9 --layers layers.3,layers.7
    for n in 1 3 5 8; do
        rm -rf run
        IN=d train run --warmup 1 --decay 0 -n "$n" --layers layers.3,layers.7
        sae-train -o run --resume -n 9 --layers layers.3,layers.7 d
        diff -r whole run
    done
    [ "$(sae-train eval -q -s sae0 d)" = "$(sae-train eval -s sae0 all.npy)" ]
    [ "$(sae-train eval -q -s sae0 d | head -n 1)" = "rows	$rows" ]
    saev-read -q d | cmp - all.npy
    # a dump without images
    py -c 'from saev_dump import *; dump("none", n=0, cls=False)'
    run -65 --separate-stderr sae-train eval -q -s sae0 none
    [ "$stderr" = "sae-train: none: has no rows" ]
}

@test "sae-train: padding of a dump, --input-at and standard input go together or say why not" {
    py -c 'from saev_dump import *; padded("d", d=32, n_imgs=7)
a = np.fromfile("d/acts000000.bin", "<f4").reshape(4, 2, 6, 32)
np.save("x.npy", a[:2])
a[3, 1, 2] = np.nan
os.mkdir("bad")
for f in "metadata.json", "acts000001.bin": os.link("d/" + f, "bad/" + f)
a.tofile("bad/acts000000.bin")'
    # rows are numbered as in the file, wherever the input begins
    for n in 0 5 50; do
        run -65 --separate-stderr sae-train -q -o at$n --latents 64 -k 8 --batch 8 --input-at $n bad
        [ "$stderr" = "sae-train: bad/acts000000.bin: row $(((3 * 2 + 1) * 6 + 2)) has NaN or Inf (--skip-bad leaves such out)" ]
    done
    # how many arrays come before the documents is not known in time
    by=(-q --latents 64 -k 8 --batch 8 --warmup 1 --layers layers.3,layers.7)
    run -2 --separate-stderr sae-train -o by "${by[@]}" - d < <(cat x.npy x.npy)
    [ "${stderr_lines[0]}" = "sae-train: d/acts000000.bin: has padding: standard input or a pipe by layers has to come after it" ]
    [ ! -e by ]
    cat x.npy x.npy | sae-train -o by "${by[@]}" -n 4 d -
    sae-train -o files "${by[@]}" -n 4 d x.npy x.npy
    cmp by/layers.7/sae.safetensors files/layers.7/sae.safetensors
}
