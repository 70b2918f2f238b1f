# SPDX-License-Identifier: ISC
# Token ids that a dump of text keeps next to its shards.
load helpers

# pipe NAME OPTION...: NAME.json and D/HASH, whose path is $dump.
pipe() {
    dump=$(hf-infer "$DEMO" --acts resid:1 --ctx 8 --file "$ROOT/demo/held-out.txt" -q \
        --acts-meta "$1.json" "${@:2}" | saev-write -q -m "$1.json" -o D)
}

# made: m.json, a.f32 and ids.npy of a dump [6 windows, 1 layer, 4 tokens, 2].
made() {
    py - <<'END'
import json, numpy as np
from saev_dump import *
kw = dict(layers=[0], p=4, cls=False, d=2, n=6, imgs_a_shard=2)
json.dump(meta(**kw), open("m.json", "w"))
dump("want", **kw).tofile("a.f32")
ids = np.arange(24, dtype="<i4").reshape(6, 4)
np.save("ids.npy", ids)
np.save("i64.npy", ids.astype("<i8"))
np.save("short.npy", ids[:5])
np.save("flat.npy", ids.ravel())
ids[3, 2] = -1
np.save("minus.npy", ids)
open("cut.npy", "wb").write(open("ids.npy", "rb").read()[:-1])
END
    H=$(saev-write -q --hash -m m.json)
}

@test "saev-write: a dump of hf-infer's text gets its ids and special tokens, and its name is the same" {
    hf-infer "$DEMO" --acts resid:1 --ctx 8 --file "$ROOT/demo/held-out.txt" -q --acts-ids want.npy -o /dev/null
    pipe meta
    cmp "$dump/ids.npy" want.npy
    py - "$dump" "$DEMO" <<'END'
import hashlib, json, os, sys
dump, model = sys.argv[1:]
text = json.dumps(json.load(open("meta.json")), sort_keys=True)
assert os.path.basename(dump) == hashlib.sha256(text.encode()).hexdigest()
want = [t["id"] for t in json.load(open(model + "/tokenizer.json"))["added_tokens"] if t["special"]]
assert json.load(open(dump + "/ids.npy.json"))["special"] == sorted(want)
END
    [ "$(find "$dump" -name 'ids*' -perm /222)" = "" ]
    saev-read verify --deep "$dump"
    # where --acts-ids names another file, that one
    mkdir elsewhere
    rm -r D
    pipe two --acts-ids elsewhere/x.npy
    [ ! -e two.ids.npy ]
    cmp "$dump/ids.npy" want.npy
}

@test "saev-write: ids of padded windows, and of each place of -o DIR" {
    printf '{"text":"The sun is a star."}\n{"ids":[1,2]}\n' >docs
    hf-infer "$DEMO" --acts resid:0,mlp:1 --ctx 4 --pad --jsonl -q -o P <docs
    for place in layers.0 layers.1.mlp; do
        dump=$(saev-write -q -m P/$place.meta.json -o D P/$place.npy)
        cmp "$dump/ids.npy" P/$place.ids.npy
        cmp "$dump/ids.npy.json" P/$place.ids.npy.json
        saev-read verify --deep "$dump"
    done
    [ "$(py -c 'import numpy, sys; print(numpy.load(sys.argv[1])[1].tolist())' "$dump/ids.npy")" = "[1, 2, -1, -1]" ]
}

@test "saev-write: ids next to metadata that are another dump's are left out, with a line" {
    pipe meta
    sed -i 's/"seed": 0/"seed": 1/' meta.json
    hf-infer "$DEMO" --acts resid:1 --ctx 8 --file "$ROOT/demo/held-out.txt" -q >a.f32
    run -0 --separate-stderr saev-write -m meta.json -o D a.f32
    [ "$stderr" = "saev-write: meta.ids.npy.json: is of another dump, its ids are left out (--ids FILE stores them)" ]
    [ ! -e "$output/ids.npy" ]
    run -0 --separate-stderr saev-write -m meta.json -o E --ids meta.ids.npy a.f32
    [ "$stderr" = "saev-write: meta.ids.npy.json: is of another dump" ]
    cmp meta.ids.npy "$output/ids.npy"
    run -0 --separate-stderr saev-write -m meta.json -o D --if-missing --ids meta.ids.npy a.f32
    [ "$stderr" = "saev-write: $output: is there without ids: --ids is left out (--force writes it again, with them)" ]
    # the default place, named
    for name in n.ids.npy ./n.ids.npy "$PWD/n.ids.npy"; do
        hf-infer "$DEMO" -qf --acts resid:1 --ctx 8 --file "$ROOT/demo/held-out.txt" \
            --acts-meta n.json --acts-ids "$name" >b.f32
        cmp meta.ids.npy n.ids.npy
        run ! grep '"file"' n.ids.npy.json
    done
}

@test "saev-write --ids: with parts, --finish stores them" {
    made
    for i in 0 1; do
        tail -c +$((i * 64 + 1)) a.f32 | head -c $((64 + i * 64)) |
            saev-write -q -m m.json -o D --shard $i/2
    done
    run -2 --separate-stderr saev-write -m m.json -o D --shard 0/2 --ids ids.npy a.f32
    [ "${stderr_lines[0]}" = "saev-write: --pad, --manifest and --ids are for --finish, not for one --shard" ]
    saev-write -q -m m.json -o D --finish --ids ids.npy
    cmp ids.npy "D/$H/ids.npy"
    [ ! -e "D/$H/ids.npy.json" ]
}

@test "saev-read meta -o: a dump that is cut from others, or merged, gets their ids" {
    pipe meta
    first=$dump
    head -c 1000 "$ROOT/demo/training.txt" >some
    hf-infer "$DEMO" --acts resid:1 --ctx 8 --file some -q \
        --acts-meta n.json | saev-write -q -m n.json -o D2 >second
    second=$(cat second)
    saev-read meta -q -o cut.json --imgs 3-9 "$first"
    saev-read --raw --imgs 3-9 "$first" | saev-write -q -m cut.json -o E >cut
    saev-read meta -q -o all.json "$first" "$second"
    { saev-read --raw "$first"; saev-read --raw "$second"; } | saev-write -q -m all.json -o E >all
    py - "$first" "$second" "$(cat cut)" "$(cat all)" <<'END'
import json, sys, numpy as np
a, b, cut, all = (np.load(d + "/ids.npy") for d in sys.argv[1:])
assert len(b) > 20
assert (cut == a[3:10]).all() and (all == np.concatenate([a, b])).all()
special = [json.load(open(d + "/ids.npy.json"))["special"] for d in sys.argv[1:]]
assert special == 4 * special[:1]
END
    run -0 --separate-stderr saev-read verify "$(cat cut)" "$(cat all)"
    [ -z "$output$stderr" ]
    # all or none have ids
    chmod -R u+w "$second"
    rm "$second/ids.npy"
    run -0 --separate-stderr saev-read meta -o none.json "$first" "$second"
    [[ $stderr == *"saev-read: $second: has no ids.npy as the others have: the new dump gets none" ]]
    [ ! -e none.ids.npy ]
    saev-read meta -qf -o none.json "$second"
    saev-read meta -q "$first" >none.json
    [ ! -e none.ids.npy ]
    # what is there is not replaced
    rm cut.json
    run -73 saev-read meta -q -o cut.json --imgs 3-8 "$first"
    [[ $output == "saev-read: cut.ids.npy: exists already"* ]]
    saev-read meta -qf -o cut.json --imgs 3-8 "$first"
}

@test "saev-write --ids: what is not one id a token is refused, and nothing is published" {
    made
    shape="(expected [6, 4], images and tokens)"
    cp ids.npy bad.npy
    echo '{"special": [3, -1]}' >bad.npy.json
    while read -r file what; do
        run -65 --separate-stderr saev-write -m m.json -o D --ids "$file" a.f32
        [ "$stderr" = "saev-write: $file: $what" ]
        [ ! -e "D/$H" ]
    done <<END
i64.npy dtype is I64 (expected I32)
short.npy is [5, 4] $shape
flat.npy is [24] $shape
minus.npy image 3, token 2: -1 (expected an id)
END
    run -65 --separate-stderr saev-write -m m.json -o D --ids cut.npy a.f32
    [[ $stderr == "saev-write: cut.npy: "* ]]
    run -65 --separate-stderr saev-write -m m.json -o D --ids bad.npy a.f32
    [[ $stderr == "saev-write: bad.npy.json: special[1] is -1 "* ]]
    run -66 --separate-stderr saev-write -m m.json -o D --ids none.npy a.f32
    [ -z "$(ls D)" ]
}

@test "saev-read verify: finds ids of another shape, cut, and negative ones" {
    made
    saev-write -q -m m.json -o D a.f32
    for file in i64 short cut; do
        cp $file.npy "D/$H/ids.npy"
        run -1 saev-read verify "D/$H"
        [[ ${lines[1]} == "D/$H"$'\tids.npy: '* ]]
        rm "D/$H/ids.npy"
    done
    cp minus.npy "D/$H/ids.npy"
    run -1 saev-read verify "D/$H"
    [ "${lines[1]}" = "D/$H"$'\tids.npy: image 3, token 2: -1 (expected an id)' ]
}

@test "saev-read, and verify: ids.npy.json of another count or length than ids.npy's is refused" {
    pipe meta
    cp "$dump/ids.npy.json" right.json
    read -r n ctx < <(py -c 'import numpy as np, sys; print(*np.load(sys.argv[1]).shape)' "$dump/ids.npy")
    for key in "n_windows $n" "ctx $ctx"; do
        sed "s/\"${key% *}\": ${key#* }/\"${key% *}\": 99/" right.json >"$dump/ids.npy.json"
        says="ids.npy.json: ${key% *} is 99 (expected ${key#* }, as the ids' shape)"
        run -1 saev-read verify --deep "$dump"
        [ "${lines[1]}" = "$dump"$'\t'"$says" ]
        run -65 saev-read --skip-ids 1 "$dump" -o x.npy
        [ "$output" = "saev-read: $dump/$says" ]
    done
}

@test "saev-read verify: finds ids that were changed, and lists those of another dump" {
    pipe meta
    saev-read verify "$dump"
    py -c 'import hashlib, json, numpy as np, sys
x = np.load(sys.argv[1])
assert hashlib.sha256(x.tobytes()).hexdigest() == json.load(open(sys.argv[1] + ".json"))["ids_sha256"]
x[3, 4] ^= 1; np.save("other.npy", x)' "$dump/ids.npy"
    cp -f other.npy "$dump/ids.npy"
    run -1 saev-read verify "$dump"
    sum=$(py -c 'import hashlib, numpy as np; print(hashlib.sha256(np.load("other.npy").tobytes()).hexdigest())')
    says="has another SHA-256 ($sum) than its .json says ($(py -c 'import json, sys; print(json.load(open(sys.argv[1]))["ids_sha256"])' "$dump/ids.npy.json"))"
    [ "${lines[1]}" = "$dump"$'\tids.npy: '"$says" ]
    # reading and storing them fail with the same words
    run -65 saev-read --skip-ids 1 "$dump" -o x.npy
    [ "$output" = "saev-read: $dump/ids.npy: $says" ]
    cp other.npy x.npy
    cp "$dump/ids.npy.json" x.npy.json
    hf-infer "$DEMO" --acts resid:1 --ctx 8 --file "$ROOT/demo/held-out.txt" -q -o rows.npy
    run -65 saev-write -q -m meta.json --ids x.npy -o E rows.npy
    [ "$output" = "saev-write: x.npy: $says" ]
    # other layers have the same ids, so that is a warning
    cp -f meta.ids.npy "$dump/ids.npy"
    sed -i 's/"dump": "./"dump": "z/' "$dump/ids.npy.json"
    run -0 --separate-stderr saev-read verify "$dump"
    [ "$stderr" = "saev-read: $dump/ids.npy.json: names another dump: are these its ids?" ]
}

@test "saev-write --ids: a disk that is full at the ids publishes nothing" {
    py - <<'END'
import json, numpy as np
from saev_dump import *
kw = dict(layers=[0], p=1000, cls=False, d=1, n=100, imgs_a_shard=100)
json.dump(meta(**kw), open("m.json", "w"))
dump("want", **kw).tofile("a.f32")
np.save("ids.npy", np.zeros((100, 1000), "<i4"))
END
    small_disk 600k
    run -74 --separate-stderr saev-write -q -m m.json -o disk --ids ids.npy a.f32
    [[ $stderr == "saev-write: disk/"*"/ids.npy: "* ]]
    [ -z "$(ls -A disk)" ]
}

@test "saev-read, sae-train: ids that are not those of the rows are refused, or doubted" {
    # documents of other lengths: padding that the rows do not have
    for n in p q; do
        for i in 1 2 3 4 5 6; do
            [ $n = p ] && k=$i || k=$((7 - i))
            echo "{\"text\": \"$(seq -s ' ' $((2 * k)))\"}"
        done >$n.jsonl
        hf-infer "$DEMO" --acts resid:1 --ctx 16 --pad --jsonl --file $n.jsonl -q \
            --acts-meta $n.json -o $n.npy
    done
    dump=$(saev-write -q -m p.json -o D p.npy)
    run -0 sae-train -q -o S -k 2 --latents 8 -n 3 "$dump"
    run -0 --separate-stderr saev-write -m p.json --ids q.ids.npy -o E p.npy
    [[ $stderr == *"saev-write: q.ids.npy.json: is of another dump"* ]]
    run -65 --separate-stderr sae-train eval --by token -s S E/*
    [[ $stderr == *"ids.npy: image "*", token "*": -1, but its row is no padding (expected an id)" ]]
    run -65 saev-read -q --skip-ids special E/*
    run -0 --separate-stderr saev-read verify --deep E/*
    [[ $stderr == *"ids.npy.json: names another dump: are these its ids?"* ]]
    py -c 'import numpy as np, sys
x = np.load(sys.argv[1]); x[:] = -7; np.save(sys.argv[1], x)' "$dump/ids.npy"
    rm "$dump/ids.npy.json"
    run -65 --separate-stderr saev-read -q --skip-ids 1 "$dump"
    [[ $stderr == "saev-read: $dump/ids.npy: image 0, token 0: -7 (expected "* ]]
}

@test "saev-read meta -o: a disk that is full for one of its files gets none of them" {
    hf-infer "$DEMO" --ids "$(seq -s, 1 320)" --acts layers.0 --ctx 8 --acts-meta m.json -q | saev-write -q -m m.json -o D
    mkdir full
    cat >try <<'END'
mount -t tmpfs -o size=64k tmpfs full || exit 99
for left in 0 1 2; do
    rm -f full/*
    head -c $((65536 - 4096 * left)) /dev/zero >full/z
    saev-read meta D/* -o full/x.json && exit 1
    [ "$(ls full)" = z ] || exit 1
done
rm full/z
saev-read meta D/* -o full/x.json && [ "$(ls full | wc -l)" = 3 ]
END
    unshare -m mount -t tmpfs tmpfs full 2>/dev/null || skip "cannot mount"
    unshare -m bash try
}
