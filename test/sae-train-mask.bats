# SPDX-License-Identifier: ISC
# Rows of a dump that sae-train leaves out: numpy selects them, from the shards.
load helpers

# text: dump d of 60 windows of 8 tokens, layers 0 and 1, ids and what is special;
# the rows that count as .npy: those of both layers without ids 1, 2 and 5, the
# first token, and norms over 5, and, by layers, without those of either layer.
text() {
    py - <<'END'
import json, numpy as np
from saev_dump import *
kw = dict(layers=(0, 1), p=8, cls=False, n=60, imgs_a_shard=7, d=16,
          data={"of": {"windows": "packed"}})
a = dump("d", **kw)
rng = np.random.default_rng(5)
ids = rng.integers(0, 9, (60, 8)).astype("<i4")
a *= rng.choice([0.5, 1, 2], (60, 2, 8, 1), p=[.3, .6, .1]).astype("<f4")
for i in range(0, 60, 7):
    a[i:i + 7].tofile("d/acts%06d.bin" % (i // 7))
np.save("d/ids.npy", ids)
json.dump({"special": [2, 1]}, open("d/ids.npy.json", "w"))
token = ~np.isin(ids, (1, 2, 5))
token[:, 0] = False
short = np.linalg.norm(a.astype("f8"), axis=3) <= 5
np.save("rows.npy", a[short & token[:, None]])
np.save("ids-only.npy", a[np.repeat(~np.isin(ids, (1, 2))[:, None], 2, 1)])
each = token & short.all(1)
for layer in 0, 1:
    np.save("layer%d.npy" % layer, a[:, layer][each])
assert 100 < each.sum() < (short & token[:, None]).sum() / 2 < 480
END
    mask=(--skip-ids 5,special --skip-positions 1 --max-norm 5)
}

# train DIR WORD...: a small SAE.
train() {
    sae-train -qf -o "$1" -k 4 --latents 32 --batch 32 --warmup 2 --hook x "${@:2}"
}

@test "sae-train: a dump without some tokens, positions and long rows is what its other rows are" {
    text
    train want -n 30 rows.npy
    train got -n 30 "${mask[@]}" d
    cmp want/sae.safetensors got/sae.safetensors
    cmp want/log.tsv got/log.tsv
    train want -n 20 ids-only.npy
    train special -n 20 --skip-ids special d -j 1
    cmp want/sae.safetensors special/sae.safetensors
    # one pass has the rows that are left
    train want rows.npy
    train got "${mask[@]}" d
    cmp want/sae.safetensors got/sae.safetensors
    sae-train eval -q -s got rows.npy >want.tsv
    sae-train eval -q -s got "${mask[@]}" d | cmp - want.tsv
}

@test "sae-train --layers: a token that one layer leaves out is left out of all" {
    text
    sae-train -qf -o both --layers a,b -k 4 --latents 32 --batch 32 -n 20 "${mask[@]}" d
    for layer in 0 1; do
        sae-train -qf -o one -k 4 --latents 32 --batch 32 -n 20 --hook x layer$layer.npy
        if [ $layer = 0 ]; then cmp one/sae.safetensors both/a/sae.safetensors
        else cmp one/sae.safetensors both/b/sae.safetensors; fi
    done
    # again, and from the middle
    sae-train -qf -o both --layers a,b -k 4 --latents 32 --batch 32 -n 9 --decay 0 "${mask[@]}" d
    sae-train -q -o both --layers a,b --resume -n 20 d
    sae-train -qf -o one -k 4 --latents 32 --batch 32 -n 20 --decay 0 --hook x layer1.npy
    cmp one/sae.safetensors both/b/sae.safetensors
}

@test "sae-train: cfg.json says what was left out, under SAELens's names" {
    text
    train one -n 2 "${mask[@]}" d
    train two -n 2 --skip-ids special d
    train lens -n 2 --format saelens --skip-ids 7,3,7 --skip-positions 2 d
    train none -n 2 d
    py - <<'END'
import json
of = lambda d: json.load(open(d + "/cfg.json"))
keys = ("exclude_special_tokens", "seqpos_slice", "max_norm")
assert [of("one")[k] for k in keys] == [[1, 2, 5], [1, None], 5.0], of("one")
assert of("two")[keys[0]] is True and keys[1] not in of("two")
m = of("lens")["metadata"]
assert [m.get(k) for k in keys] == [[3, 7], [2, None], None]
assert not set(keys) & (set(of("none")) | set(of("lens")))
END
    run -0 --separate-stderr sae-train eval -s two -s none d
    [ "$(grep -v ' layers, ' <<<"$stderr")" = "sae-train: two: was trained without some rows, as its cfg.json says: --skip-ids, --skip-positions or --max-norm leaves them out" ]
    run -0 --separate-stderr sae-train eval -s two --skip-ids special d
    [[ $stderr != *"without some rows"* ]]
    for o in "--skip-ids 1,2,5" "--skip-ids 1,2,7 --skip-positions 1 --max-norm 5"; do
        # shellcheck disable=SC2086 # words
        run -0 --separate-stderr sae-train eval -s one $o d
        [[ $stderr == *"sae-train: one: was trained without some rows"* ]]
    done
    run -0 --separate-stderr sae-train eval -s one --skip-ids 1,2,5,7 --skip-positions 2 --max-norm 4 d
    [[ $stderr != *"without some rows"* ]]
}

@test "saev-read | sae-train: cfg.json says the same as of the dump, and numpy reads the same rows" {
    text
    # the metadata of hf-infer's dump, which say the hook
    hf-infer "$DEMO" --acts mlp:1 --ctx 8 --file "$ROOT/demo/held-out.txt" -q \
        --acts-meta m.json | saev-write -q -m m.json -o D
    dump=$(echo D/*)
    for o in "--skip-ids special --max-norm 1e9" "--skip-ids special,5 --skip-positions 2" \
        "--skip-positions 1" ""; do
        # shellcheck disable=SC2086 # words
        {
            sae-train -qf -o want -k 4 --latents 32 -n 5 --batch 64 --format saelens $o "$dump"
            saev-read -q $o "$dump" |
                sae-train -qf -o got -k 4 --latents 32 -n 5 --batch 64 --format saelens
            saev-read -q $o "$dump" | cat >rows.npy
            saev-read -qf -o plain.npy $o "$dump"
            saev-read -q --raw $o "$dump" >rows.f32
        }
        diff want got -x 'state*'
        cmp want/sae_weights.safetensors got/sae_weights.safetensors
        py -c 'import numpy as np
x = np.load("rows.npy"); assert x.shape[1] == 128 and x.tobytes() == open("rows.f32", "rb").read()
assert x.tobytes() == np.load("plain.npy").tobytes()'
        # other readers than a pipe's may know no comments
        [ "$(head -c 256 rows.npy | grep -ac "#")" = 1 ]
        [ "$(head -c 256 plain.npy | grep -ac "#")" = 0 ]
        sae-train -qf -o got -k 4 --latents 32 -n 5 --batch 64 --format saelens rows.npy
        cmp want/cfg.json got/cfg.json
    done
    grep -q '"hook_name": "layers.1.mlp"' got/cfg.json
    # an SAE says one mask and one hook
    saev-read -q --skip-positions 1 "$dump" | cat >one.npy
    run -65 --separate-stderr sae-train -q -o x one.npy rows.npy
    [ "$stderr" = "sae-train: rows.npy: one.npy has no rows of the same tokens (an SAE says only one --skip-ids, --skip-positions, --max-norm)" ]
    run -65 --separate-stderr sae-train -q -o x --hook layers.0.mlp one.npy
    [ "$stderr" = "sae-train: one.npy: is of layers.1.mlp, not of layers.0.mlp" ]
    run -0 --separate-stderr sae-train eval -s want one.npy
    [ -z "$stderr" ]
    # a list that numpy's limit of a header has no room for
    saev-read --skip-ids "$(seq -s, 1100 3500)" "$dump" 2>said | cat >one.npy
    [ "$(cat said)" = "saev-read: a .npy has no room for a list of so many ids: sae-train will not know which rows are left out" ]
    py -c 'import numpy; numpy.load("one.npy")'
}

@test "sae-train --resume: goes on without the same rows, and not without others" {
    text
    train want -n 30 --decay 0 "${mask[@]}" d
    train part -n 11 --decay 0 "${mask[@]}" d
    cp -r part other
    sae-train -q -o part --resume -n 30 d
    cmp want/sae.safetensors part/sae.safetensors
    for o in "--skip-ids 5" "--skip-positions 2" "--max-norm 6" "--max-norm 0"; do
        # shellcheck disable=SC2086 # words
        run -65 --separate-stderr sae-train -q -o other --resume -n 30 $o d
        [[ $stderr == "sae-train: other/state.safetensors: ${o% *} was "*"; --force starts a new run)" ]]
    done
    train all -n 11 --decay 0 d
    # what leaves out nothing is what the run had
    sae-train -q -o all --resume -n 20 --skip-positions 0 --max-norm 0 d
    sae-train -q -o all --resume -n 25 d
    train want -n 25 --decay 0 d
    cmp want/sae.safetensors all/sae.safetensors
    run -65 --separate-stderr sae-train -q -o all --resume -n 30 --max-norm 6 d
    [[ $stderr == "sae-train: all/state.safetensors: --max-norm was 0 (now 6;"* ]]
}

@test "sae-train: what is no dump has no tokens to leave out, and says who does it" {
    text
    for input in - rows.npy; do
        for o in "--skip-ids 1" "--skip-positions 1" "--max-norm 1"; do
            for verb in "-o x" "eval -s demo"; do
                # shellcheck disable=SC2086 # words
                run -2 --separate-stderr sae-train $verb $o $input <rows.npy
                [ "${stderr_lines[0]}" = "sae-train: ${input/#-/standard input}: --skip-ids, --skip-positions and --max-norm are of a dump named here (before a pipe, of saev-read)" ]
            done
        done
    done
    # ids besides the word: of several dumps with the same special tokens
    cp -r d e
    train want -n 2 --skip-ids 1,2,5 d e
    train got -n 2 --skip-ids 5,special d e
    cmp want/cfg.json got/cfg.json
    cmp want/sae.safetensors got/sae.safetensors
    echo '{"special": [1]}' >e/ids.npy.json
    run -65 --separate-stderr sae-train -q -o x --skip-ids special,5 d e
    [ "$stderr" = "sae-train: e: its special tokens are not those of d (--skip-ids special alone leaves out those of each)" ]
    train got -n 2 --skip-ids special d e
    rm d/ids.npy
    run -65 --separate-stderr sae-train -o x --skip-ids 1 d
    [[ $stderr == "sae-train: d: has no ids.npy, "* ]]
    run -65 --separate-stderr sae-train -q -o x --max-norm 1e-3 d
    [ "$stderr" = "sae-train: d/acts000000.bin: no row is left by --skip-ids, --skip-positions and --max-norm" ]
}

@test "sae-train --hook: what a module puts out is what is added, but where the family norms it" {
    py "$ROOT/test/ref/family_ref.py" make gemma2 m
    hf-infer m --ids "$(seq -s, 1 40)" --acts mlp:1 --ctx 8 --acts-meta m.json -q | saev-write -q -m m.json -o D
    dump=$(echo D/*)
    trained() { sae-train -qf -o sae -k 4 --latents 32 -n 5 --batch 8 --hook "$@"; }
    trained blocks.1.mlp.hook_out "$dump"
    run -65 trained blocks.1.hook_mlp_out "$dump"
    [ "$output" = "sae-train: $dump: is of layers.1.mlp, not of blocks.1.hook_mlp_out" ]
    saev-read -q "$dump" | trained blocks.1.mlp.hook_out
    run -65 trained blocks.1.hook_mlp_out < <(saev-read -q "$dump")
    [ "$output" = "sae-train: standard input: is of layers.1.mlp, not of blocks.1.hook_mlp_out" ]
}
