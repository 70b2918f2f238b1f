# SPDX-License-Identifier: ISC
# saev-write: directories that several users share.
load helpers

@test "saev-write --resume --first: an empty stream is no end of one" {
    py - <<'END'
from saev_dump import *
m = meta(n=7, imgs_a_shard=3)
del m["n_imgs"]
json.dump(m, open("c.json", "w"))
dump("want", n=7, imgs_a_shard=3).tofile("a.f32")
END
    size=$(($(wc -c <a.f32) / 7))
    feed() { head -c $((6 * size)) a.f32; }
    late_enough ": 2 shards are kept, " saev-write -q -m c.json -o D
    run -65 --separate-stderr saev-write -q -m c.json -o D --resume --first 6 </dev/null
    [ "$stderr" = "saev-write: standard input: is empty (expected images, as c.json has no n_imgs)" ]
    [ ! -e D/[0-9a-f]*/metadata.json ]
    tail -c $size a.f32 | saev-write -q -m c.json -o D --resume --first 6
    cat D/*/acts*.bin | cmp - a.f32
}

@test "saev-write --dtype: is not what a .npy says of itself" {
    py - <<'END'
from saev_dump import *
json.dump(meta(n=2), open("m.json", "w"))
np.save("a.npy", dump("want", n=2))
END
    run -2 saev-write -q -m m.json -o D --dtype bf16 a.npy
    [ "${lines[0]}" = "saev-write: a.npy: is F32 by its header, not --dtype BF16" ]
    saev-write -q -m m.json -o D --dtype f32 a.npy
}

@test "saev-write: what another user has closed is neither missing nor broken" {
    py - <<'END'
from saev_dump import *
json.dump(meta(n=6, imgs_a_shard=2), open("m.json", "w"))
dump("want", n=6, imgs_a_shard=2).tofile("a.f32")
END
    H=$(saev-write -q --hash -m m.json)
    as_user ls m.json >/dev/null 2>&1 || skip "the test's directory is closed to others"
    writes() {
        as_user saev-write -q -m m.json -o D "$@" <a.f32
    }
    mkdir D
    head -c $(($(wc -c <a.f32) / 3)) a.f32 | saev-write -q -m m.json -o D --shard 0/3
    chmod 777 D
    chmod 0 D/.*.part
    for how in "--images --shard 0/3" "--images --resume" --finish --resume; do
        # shellcheck disable=SC2086
        run -73 writes $how
        [ "$output" = "saev-write: D/.$H.part: Permission denied" ]
    done
    chmod 0 D
    for how in --images "--images --shard 0/3" "--images --resume"; do
        # shellcheck disable=SC2086
        run -66 writes $how
        [ "$output" = "saev-write: D/$H/metadata.json: Permission denied" ]
    done
    run -73 writes --finish
    [ "$output" = "saev-write: D/.$H.part: cannot be created: Permission denied" ]
    chmod 777 D
    chmod 755 D/.*.part
    saev-write -q -m m.json -o D -f a.f32
    chmod 0 D/"$H"
    for how in --images "--images --shard 0/3" --if-missing "--resume --if-missing"; do
        # shellcheck disable=SC2086
        run -66 writes $how
        [ "$output" = "saev-write: D/$H/metadata.json: Permission denied" ]
    done
    chmod 755 D/"$H"
}

@test "saev-write --force: a dump with a directory of somebody's in it stays" {
    py - <<'END'
from saev_dump import *
m = meta(n=6, imgs_a_shard=2)
json.dump(m, open("m.json", "w"))
json.dump({k: v for k, v in m.items() if k != "n_imgs"}, open("c.json", "w"))
dump("want", n=6, imgs_a_shard=2).tofile("a.f32")
END
    dump=$(saev-write -q -m m.json -o D a.f32)
    mkdir "$dump/notes"
    for how in "-m m.json" "-m m.json --resume" "-m c.json"; do
        # shellcheck disable=SC2086
        run -73 saev-write -q $how -o D -f a.f32
        [ "$output" = "saev-write: $dump: has the directory notes in it, and is not replaced" ]
    done
    # before the stream is read
    run -73 saev-write -q -m m.json -o D -f </dev/null
    [ "$output" = "saev-write: $dump: has the directory notes in it, and is not replaced" ]
    rmdir "$dump/notes"
    saev-write -q -m m.json -o D -f a.f32
}

@test "saev-write: shards cannot be written, metadata can, whoever fills them" {
    for n in 6 7; do # full ones alone, with an extra one padded; a short one
        py - $n <<'END'
import sys
from saev_dump import *
kw = dict(n=int(sys.argv[1]), imgs_a_shard=3)
json.dump(meta(**kw), open("m.json", "w"))
json.dump({k: v for k, v in meta(**kw).items() if k != "n_imgs"}, open("c.json", "w"))
dump(f"want{kw['n']}", form="padded", **kw)[:kw["n"]].tofile("a.f32")
END
        H=$(saev-write -q --hash -m m.json)
        saev-write -q -m m.json -o plain a.f32
        saev-write -q -m m.json -o m --pad a.f32
        saev-write -q -m c.json -o c --pad a.f32
        saev-write -q -m m.json -o s --shard 0/1 a.f32
        saev-write -q -m m.json -o s --finish --pad
        for o in plain m c s; do
            [ "$(stat -c %a "$o/$H"/acts* | sort -u)" = 444 ]
            [ "$(stat -c %a "$o/$H/metadata.json")" = 644 ]
            [ $o = plain ] || diff -r -x metadata.json "want$n" "$o/$H"
        done
    done
}
