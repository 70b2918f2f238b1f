# SPDX-License-Identifier: ISC
# hf-infer --steer, --ablate, --ablate-each: changes of an SAE's latents.
# It takes half a minute.
load helpers

IDS=3,14,15,9,2,6,5,35,8,9,7,9,3,23,8,46,26,43,38,32

# The models, and MODEL-sae/HOOK, SAEs of 64 latents; see steer_ref.py.
setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    kept test/ref/tiny_models.py "$PWD/models"
    py "$ROOT/test/ref/steer_ref.py" models >errors
}

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    ln -s "$BATS_FILE_TMPDIR"/{models,qwen3,gpt2,gemma2,qwen3-sae,gpt2-sae,gemma2-sae} .
    ln -s qwen3 M
    R=qwen3-sae/blocks.1.hook_resid_post # threshold
    P=qwen3-sae/blocks.0.mlp.hook_out    # relu
    Z=qwen3-sae/blocks.1.attn.hook_z     # topk
}

# keys SAE JSON: its configuration has these, too.
keys() {
    py - "$@" <<'END'
import json, os, sys
path = sys.argv[1] + "/cfg.json"
c = json.load(open(path))
json.dump({**c, **json.loads(sys.argv[2])}, open(path, "w"))
END
}

logits() {
    hf-infer "${MODEL-M}" --ids $IDS --logits - "$@"
}

@test "hf-infer --steer, --ablate, --ablate-each: qwen3, gpt2, gemma2 are as in float64, at hooks, of kinds, with normalized rows" {
    cat "$BATS_FILE_TMPDIR/errors"
    [ "$(cut -d: -f1 "$BATS_FILE_TMPDIR/errors" | xargs)" = "qwen3 gpt2 gemma2" ]
}

# bats test_tags=long
@test "hf-infer --steer, --ablate: a change of nothing changes no bit" {
    for MODEL in qwen3 gpt2 gemma2; do
        logits >plain
        for sae in "$MODEL"-sae/*; do
            logits --steer "$sae:5+0,7*1,3+-0" | cmp - plain
            # where it is not active, it is 0 already
            hf-infer "$MODEL" --nll -q --ids $IDS --ablate-each "$sae:0-63" >each
            never=$(awk 'NR > 1 && $2 == 0 { print $1 }' each | xargs | tr ' ' ,)
            [ -z "$never" ] || logits --ablate "$sae:$never" | cmp - plain
            ever=$(awk '$2 > 0 { print $1 }' each | sed 1d | xargs | tr ' ' ,)
            run -1 cmp -s plain <(logits --ablate "$sae:$ever")
        done
    done
}

@test "hf-infer --steer --acts: the hook has x + X D in f32, by latent ascending, whatever the order of the changes" {
    rows() {
        hf-infer M --ids $IDS --acts resid:1 "$@"
    }
    rows >x
    rows --steer $R:9+2.5 >one
    rows --steer $R:9+2.5,3+-1.75,60+.3 >three
    rows --steer $R:3+-1.75,60+.3,9+2.5 | cmp - three
    hf-infer M --ids $IDS --acts resid:0 | cmp - <(hf-infer M --ids $IDS --acts resid:0 --steer $R:9+2.5)
    py - $R <<'END'
import sys, numpy as np, mkst
w = mkst.read(sys.argv[1] + "/sae_weights.safetensors")[0]["W_dec"].astype("<f4")
x, one, three = (np.fromfile(f, "<f4").reshape(-1, w.shape[1]) for f in ("x", "one", "three"))
assert (one == x + np.float32(2.5) * w[9]).all()
def fma(s, c, d):  # the product of two f32 is exact in f64
    return (s.astype(np.longdouble) + np.float64(np.float32(c)) * d.astype(float)).astype("<f4")
s = np.zeros(w.shape[1], "<f4")
for i, c in (3, -1.75), (9, 2.5), (60, .3):
    s = fma(s, c, w[i])
assert (three == x + s).all() and (three != one).any()
END
}

# argmax N: of the logits in all.npy of N ids of the prompt and all 'tokens',
# with --repetition-penalty 3, so that these tiny models do not repeat one.
argmax() {
    py - "$1" $IDS <<'END'
import sys, numpy as np
tokens, n = list(map(int, open("tokens").read().split())), int(sys.argv[1])
ids, logits = list(map(int, sys.argv[2].split(",")))[:n] + tokens, np.load("all.npy")
for i, token in enumerate(tokens):
    z = logits[n - 1 + i].copy()
    seen = np.unique(ids[:n + i])
    z[seen] = np.where(z[seen] > 0, z[seen] / 3, z[seen] * 3)
    assert z.argmax() == token, (i, z.argmax(), tokens)
END
}

@test "hf-infer --steer: generated tokens are those of the logits of the whole text, steered at the same places" {
    for MODEL in qwen3 gpt2 gemma2; do
        : >seen
        sae=$MODEL-sae/blocks.1.hook_resid_post
        change=$sae:$(seq -s, 0 3 60 | sed 's/,/+3,/g')+3,1=2,2*4
        for at in "all 0-99" "prompt 0-9" "generated 10-99" "5-12 5-12"; do
            hf-infer "$MODEL" --ids "${IDS%,7,9,3,*}" -n 10 --greedy --repetition-penalty 3 --ids-out \
                --steer "$change" --steer-at "${at% *}" >tokens
            tr ' ' , <tokens >>seen
            hf-infer "$MODEL" --ids "${IDS%,7,9,3,*},$(tr ' ' , <tokens)" --logits all.npy -f \
                --steer "$change" --steer-at "${at#* }"
            argmax 10
        done
        [ "$(sort -u seen | wc -l)" -ge 3 ] # and where it is steered is seen
    done
    # all of a text that is scored is its prompt
    MODEL=M
    logits --steer $R:9+2 >all
    logits --steer $R:9+2 --steer-at prompt | cmp - all
    logits --steer $R:9+2 --steer-at generated | cmp - <(logits)
}

# bats test_tags=long
@test "hf-infer --steer: the bits do not depend on -j, --chunk, --batch or the instruction set" {
    steer="--steer $R:9+2,3=1,5*2 --ablate $Z:0-63 --steer $P:1=3"
    # shellcheck disable=SC2086 # several words
    same_for '-j 1' '-j 2' '-j 3 --chunk 5' '--chunk 1' '--no-screen' -- hf-infer M --ids $IDS --logits - $steer
    # shellcheck disable=SC2086
    same_for '-j 1' '-j 3 --chunk 5' '--chunk 1' -- hf-infer M -q --nll --ids $IDS --ablate-each $R:0-63 --steer $P:1=3
    # shellcheck disable=SC2086
    same_in_batches M -n 6 $steer
    # shellcheck disable=SC2086
    same_in_batches M -n 6 $steer --steer-at generated
    isas_here
    for isa in $ISAS; do
        # shellcheck disable=SC2086
        TU_ISA=$isa logits $steer | cksum
    done >sums
    [ "$(sort -u sums | wc -l)" = 1 ]
}

@test "hf-infer --steer: --chat, --jsonl and a prompt's text give what its ids do" {
    hf-infer "$DEMO" --acts resid:1 --ctx 64 -q --file "$ROOT/demo/held-out.txt" -o rows.npy
    sae-train -q -o sae -k 8 --latents 64 --batch 256 -n 20 --lr 2e-3 --warmup 2 --hook layers.1 rows.npy
    steer=(-n 8 --greedy --ids-out --steer sae:7+30,3=0)
    ids=$(hf-infer "$DEMO" --chat --encode -p "What is 1+1?" | xargs | tr ' ' ,)
    hf-infer "$DEMO" --ids "$ids" "${steer[@]}" >want
    hf-infer "$DEMO" --chat -p "What is 1+1?" "${steer[@]}" | cmp - want
    run -1 cmp -s want <(hf-infer "$DEMO" --ids "$ids" -n 8 --greedy --ids-out)
    echo "{\"id\":1,\"ids\":[$ids]}" >lines
    hf-infer "$DEMO" --jsonl -n 8 --greedy --steer sae:7+30,3=0 <lines >got
    py -c 'import json; assert json.load(open("got"))["ids"] == list(map(int, open("want").read().split()))'
    # the last position's logits, in words and as numbers
    hf-infer "$DEMO" --ids "$ids" --top 3 --json --steer sae:7+30,3=0 >top
    hf-infer "$DEMO" --ids "$ids" --logits all.npy --steer sae:7+30,3=0
    py - <<'END'
import json, numpy as np
top, z = json.load(open("top"))["top"], np.load("all.npy")[-1]
assert [t["id"] for t in top] == np.argsort(-z, kind="stable")[:3].tolist()
assert [np.float32(t["logit"]) for t in top] == np.sort(z)[::-1][:3].tolist()
END
}

# each_is SPEC OPTION...: rows of --ablate-each of some latents are what
# --ablate of each alone says.
each_is() {
    local at=()
    [[ "$*" != *--steer-at* && "$*" != *--sae-center ]] || at=(--steer "${1%:*}:63*1") # nothing
    hf-infer "$MODEL" -q --nll --ablate-each "$@" >each
    hf-infer "$MODEL" -q --nll --json "${@:2}" "${at[@]}" >plain
    [ "$(head -n 1 each)" = "$(printf 'latent\trows_active\tnll_sum\tdelta')" ]
    [ "$(awk 'NR > 1 && $2 > 0' each | wc -l)" -ge 2 ]
    for i in $(awk 'NR > 1 { print $1 }' each); do
        hf-infer "$MODEL" -q --nll --json --ablate "${1%:*}:$i" "${@:2}"
    done >alone
    py - "$*" <<'END'
import json, sys
plain = json.load(open("plain"))["nll_sum"]
rows = [line.split("\t") for line in open("each")][1:]
alone = [json.loads(line)["nll_sum"] for line in open("alone")]
assert [float(r[2]) for r in rows] == alone, (rows, alone)
assert [float(r[3]) for r in rows] == [a - plain for a in alone]
# a token that a window only has as context can be active in no other
assert "--stride" in sys.argv[1] or all(r[1] != "0" or float(r[3]) == 0 for r in rows)
assert any(float(r[3]) for r in rows)
END
}

@test "hf-infer --ablate-each: each nll_sum is that of --ablate, to the last bit" {
    MODEL=qwen3
    some=0-9,20,33,40-43
    each_is $P:$some --ids $IDS
    each_is $Z:$some --ids $IDS --chunk 7
    each_is qwen3-sae/blocks.0.hook_resid_pre:$some --ids $IDS --steer-at 4-11
    # windows, the second of which begins with tokens of the first
    each_is $R:$some --ids $IDS --ctx 9 --stride 4
    each_is $R:$some --ids $IDS --ctx 9
    # after other changes, before and at a later hook; of a cache that is rounded
    each_is $R:$some --ids $IDS --steer $P:3+2,5=1 --sae $Z --kv-dtype bf16
    each_is $P:$some --ids $IDS --ablate $R:1,3
    # the last layer's output, of which only some rows go on
    MODEL=gpt2
    each_is gpt2-sae/blocks.1.hook_resid_post@blocks.2.hook_resid_post:$some --ids $IDS --ctx 9 --stride 4
    each_is gpt2-sae/blocks.1.hook_attn_out:$some --ids $IDS --sae-center
}

@test "hf-infer --ablate-each: rows_active counts each token once, in windows too" {
    hf-infer M -q --nll --ids $IDS --ablate-each $P:0-63 >whole
    for window in "" "--ctx 9" "--ctx 9 --stride 4"; do
        # at the first layer's MLP, a token's row depends on those before it
        # shellcheck disable=SC2086
        hf-infer M -q --nll --ids $IDS --ablate-each qwen3-sae/blocks.0.hook_resid_pre:0-63 $window | cut -f 1,2
    done >got
    [ "$(sort -u got | wc -l)" = 65 ] # not at the embedding
    py - $P <<'END'
import sys, subprocess, numpy as np, mkst
t = mkst.read(sys.argv[1] + "/sae_weights.safetensors")[0]
IDS = "3,14,15,9,2,6,5,35,8,9,7,9,3,23,8,46,26,43,38,32"
x = np.frombuffer(subprocess.run(["hf-infer", "M", "--ids", IDS, "--acts", "mlp:0"], check=True,
                                 stdout=subprocess.PIPE).stdout, "<f4").reshape(20, -1).astype(float)
f = x @ t["W_enc"] + t["b_enc"]
rows = [line.split() for line in open("whole")][1:]
assert [int(r[1]) for r in rows] == (f > 0).sum(axis=0).tolist()
END
}

@test "hf-infer --steer: rows that the SAE was trained without stay" {
    cp -rL $R sae
    keys sae '{"metadata": {"hook_name": "blocks.1.hook_resid_post", "exclude_special_tokens": [9, 2], "seqpos_slice": [2, null]}}'
    rows() {
        hf-infer M --ids $IDS --acts resid:1 --steer "$1:9+2,3=1" -o "$2"
    }
    hf-infer M --ids $IDS --acts resid:1 -o plain
    rows $R all
    rows sae some
    py - <<'END'
import numpy as np
plain, all_, some = (np.fromfile(f, "<f4").reshape(20, -1) for f in ("plain", "all", "some"))
ids = np.array([3, 14, 15, 9, 2, 6, 5, 35, 8, 9, 7, 9, 3, 23, 8, 46, 26, 43, 38, 32])
stay = np.isin(ids, [9, 2]) | (np.arange(20) < 2)
assert (some == np.where(stay[:, None], plain, all_)).all() and (all_ != plain).any(axis=1).all()
END
    run -0 --separate-stderr hf-infer M --ids 1,2 --logits x -v --steer sae:9+2,3=1 --ablate $Z:4
    [[ $stderr == *"hf-infer: 2 latents changed at blocks.1.hook_resid_post, except for rows that it was trained without
hf-infer: 1 latent changed at blocks.1.attn.hook_z"* ]]
}

@test "hf-infer --acts-meta: metadata have the changes, where they are, and the SAE's sum" {
    meta() {
        hf-infer M --ids $IDS --acts resid:1 -o x -f --acts-meta m.json "$@" && cat m.json
    }
    meta --steer $R:9+2,3=1 --steer-at prompt --ablate $P:3-5 >one
    meta --steer $R:9+2,3=1 --steer-at 3-5 --ablate $Z:3-5 >two
    meta >three
    py - $R $P $Z <<'END'
import json, sys
one, two, three = (json.load(open(f))["data"] for f in ("one", "two", "three"))
one, two, three = (json.loads(d) if isinstance(d, str) else d for d in (one, two, three))
r, p, z = sys.argv[1:]
assert one["steer"] == [r + ":9+2,3=1"] and one["ablate"] == [p + ":3-5"] and one["steer_at"] == "prompt", one
assert two["steer_at"] == "3-5" and len(one["sae_xxh3"]) == 32 and one["sae_xxh3"] != two["sae_xxh3"], two
assert not {"steer", "ablate", "steer_at", "sae_xxh3", "sae"} & three.keys(), three
END
}

@test "hf-infer --steer, --ablate: what is no change, or not of this SAE, is refused with 2" {
    no() {
        run -2 hf-infer M --ids 1,2 --nll "${@:2}"
        echo "${lines[0]}"
        [ "${lines[0]}" = "hf-infer: $1" ]
    }
    no "--steer: \"$R\" says no changes (as $R:17+8 does)" --steer $R
    no "--ablate: \"$R\" says no latents (as $R:17 does)" --ablate $R
    for bad in "" 17 17- 17-8 +8 x+8 17/8 1-3+8; do
        no "--steer: \"$bad\" is not a change (I+X, I=X or I*X, as 17+8)" --steer "$R:$bad"
    done
    no "--steer: \"\" is not a change (I+X, I=X or I*X, as 17+8)" --steer $R:17+8,
    for bad in nan inf 1e39 -inf x 8x ""; do
        no "--steer: \"$bad\" is not a number from -3.40282e+38 to 3.40282e+38" --steer "$R:17+$bad"
    done
    no "--steer: latent 64, but there are 64 (from 0)" --steer $R:3=1,64+8
    no "--steer: latent 3 is there twice" --steer $R:3=1,5+2,3*2
    no "--ablate: latent 64, but there are 64 (from 0)" --ablate $R:60-64
    no "--ablate: latent 5 is there twice" --ablate $R:3-7,5
    no "--ablate: \"3+1\" is not a number or a range (as in 3,17,100-120)" --ablate $R:3+1
    no "--ablate-each: latent 99, but there are 64 (from 0)" --ablate-each $R:99
    file=$R/sae_weights.safetensors
    no "$file: is at the same hook point as $file, which replaces what is to be changed" --sae $R --steer $R:1+1
    no "$file: is at the same hook point as $file (one --steer has all changes of a hook)" --steer $R:1+1 --ablate $R@layers.1:2
    no "$file: \"layers.x\" is not a hook point (layers.3, layers.3.mlp, layers.3.mlp.gate_proj, ..)" --steer $R@layers.x:1+1
    for bad in some 5- 7-3 ""; do
        no "--steer-at: \"$bad\" is not all, prompt, generated or positions A-B" --steer $R:1+1 --steer-at "$bad"
    done
    no "--steer-at is for --steer, --ablate and --ablate-each" --steer-at all
    no "--ablate-each does not go with --json" --ablate-each $R:1 --json
    run -2 hf-infer M --ids 1,2 --logits x --ablate-each $R:1
    [ ! -e x ]
    run -66 hf-infer M --ids 1,2 --nll --steer nowhere:1+1
    [ "${lines[0]}" = "hf-infer: nowhere: No such file or directory" ]
    # squares that leave f32, as their row does not; and sums that do
    run -65 hf-infer M --ids 1,2 --nll --steer "$R:17+1e30"
    [ "${lines[0]}" = "hf-infer: M: the logits after 1 token are not finite" ]
    run -65 hf-infer M --ids 1,2 --nll --steer "$R:$(seq -s, 0 63 | sed 's/,/+3.4e38,/g')+3.4e38"
    [ "${lines[0]}" = "hf-infer: M: the logits after 1 token are not finite" ]
}
