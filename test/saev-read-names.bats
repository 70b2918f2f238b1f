# SPDX-License-Identifier: ISC
# saev-read: a dump's directory is named by the hash of its metadata; what reads
# it under another name says so, --strict refuses.  The hash is Python's.
load helpers
bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR"
    py - <<'END'
import hashlib, json
from saev_dump import *
m = meta(layers=(-2, 13))
name = hashlib.sha256(json.dumps(m, sort_keys=True).encode()).hexdigest()
dump(name, layers=(-2, 13))
open("name", "w").write(name)
m["seed"] = 43
open("changed", "w").write(hashlib.sha256(json.dumps(m, sort_keys=True).encode()).hexdigest())
END
    name=$(cat name)
}

@test "saev-read: metadata that were changed after the dump got its name are read with a warning" {
    saev-read --layer all "$name" >before.npy 2>err
    [ ! -s err ]
    sed -i 's/42/43/' "$name/metadata.json"
    said="saev-read: $name/metadata.json: has the hash $(cat changed) (expected the directory's name), read as it is"
    saev-read --layer all "$name/" >after.npy 2>err
    [ "$(cat err)" = "$said" ]
    cmp before.npy after.npy
    ln -s "$name" link
    for verb in stats meta "rows --index" "rows --layer all --sample 3"; do
        # shellcheck disable=SC2086
        saev-read $verb link 2>err >/dev/null
        [ "$(cat err)" = "${said/$name\//link/}" ]
    done
    saev-read -q "$name" 2>err >/dev/null
    [ ! -s err ]
}

@test "saev-read --strict: a dump whose metadata are not those of its name is refused with 65" {
    saev-read --strict "$name" >/dev/null
    saev-read meta --strict "$name" >/dev/null
    sed -i 's/42/43/' "$name/metadata.json"
    for verb in rows stats meta; do
        run -65 saev-read $verb --strict "$name"
        [ "$output" = "saev-read: $name/metadata.json: has the hash $(cat changed) (expected the directory's name)" ]
    done
    mv "$name" plain # a name that promises nothing
    saev-read --strict plain >/dev/null
    ln -s plain "$name"
    run -65 saev-read meta --strict plain "$name"
}

@test "saev-read: a hash in upper case is no name of a dump" {
    upper=$(tr a-f A-F <name)
    mv "$name" "$upper"
    said="metadata.json: has the hash $name, but the directory's name has it in upper case, where other readers do not find it"
    run -1 saev-read verify -q "$upper"
    [ "${lines[1]}" = "$upper"$'\t'"$said" ]
    saev-read --layer all "$upper" 2>err >/dev/null
    [ "$(cat err)" = "saev-read: $upper/$said, read as it is" ]
    run -65 saev-read --strict "$upper"
    sed -i 's/42/43/' "$upper/metadata.json"
    run -1 saev-read verify -q "$upper"
    [ "${lines[1]}" = "$upper"$'\t'"metadata.json: has the hash $(cat changed) (expected the directory's name)" ]
}

@test "saev-read: a directory of dumps means its only one, or which there are" {
    py -c 'from saev_dump import *; dump("acts/one", n=4, layers=(1,))'
    mkdir acts/lut acts/.two.part
    for f in acts/lut/metadata.json acts/.two.part/metadata.json acts/acts-0.log acts/one.json acts/5; do echo '{}' >$f; done
    saev-read -q acts/one >rows
    saev-read -q acts/ | cmp - rows
    [ "$(saev-read info acts)" = "$(saev-read info acts/one)" ]
    run -0 saev-read verify acts
    # files next to dumps are not in the way of acts/*, but an index may be a file's name
    run -2 --separate-stderr saev-read -f -o acts/one/x acts
    [ "${stderr_lines[0]}" = "saev-read: acts/one/x: would be written into acts/one, an input of this command" ]
    rm -r acts/lut acts/5
    saev-read info acts/one >info
    run -0 --separate-stderr saev-read info acts/*
    [ "$output" = "$(cat info)" ]
    [ "$stderr" = "saev-read: acts/acts-0.log: 2 files next to dumps, left out" ]
    cd acts
    touch 1
    saev-read -q one 1 | cmp - <(saev-read ./one 1)
    cd ..
    py -c 'from saev_dump import *; dump("acts/three", n=4, layers=(1,))'
    for verb in '' info 'info --json' stats verify; do
        run --separate-stderr saev-read $verb acts
        [ "$status" = 66 ] || [ "$verb" = verify ]
        [[ $output$stderr == *"acts: holds 2 dumps, name one: acts/one, acts/three"* ]]
    done
    rm -r acts/one acts/three
    run -66 saev-read acts
    [ "$output" = "saev-read: acts/metadata.json: No such file or directory" ]
}

@test "saev-read info: a dump of text has windows, tokens, dim and hook" {
    ids='5,9,1,7,300,2,16,10,16,28'
    hf-infer "$DEMO" -q --acts layers.1.mlp.up_proj,layers.3.mlp.up_proj --ctx 4 --ids "$ids" \
        --acts-meta m.json | saev-write -q -m m.json -o acts
    saev-read info acts | cut -f 2,3 | sed -n '/^hook/,/^dim/p' >facts
    # ten tokens, and the demo's bos is none: two whole windows of four
    d=$("$PYTHON" -c 'import json, sys; print(json.load(open(sys.argv[1]))["hidden_size"])' "$DEMO/config.json")
    printf '%s\t%s\n' hook layers.1.mlp.up_proj,layers.3.mlp.up_proj windows 2 tokens 8 dim "$d" | cmp - facts
    saev-read info --json acts | "$PYTHON" -c 'import json, sys
(x,) = json.load(sys.stdin)
assert (x["hook"], x["windows"], x["tokens"], x["dim"]) == ("layers.1.mlp.up_proj,layers.3.mlp.up_proj", 2, 8, x["d_vit"]), x'
    "$PYTHON" -c 'import json
m = json.load(open("m.json"))
m["data"] = "pictures"
json.dump(m, open("p.json", "w"))'
    cat acts/*/*.bin | saev-write -q -m p.json -o pictures
    run -0 saev-read info pictures
    [[ $output != *windows* && $output == *vit_family* ]]
}
