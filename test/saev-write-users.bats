# saev-write: folders that several users share.
load helpers

@test "saev-write --force: a dump with a folder of somebody's in it stays" {
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
        [ "$output" = "saev-write: $dump: has the folder notes in it, and is not replaced" ]
    done
    # before the stream is read
    run -73 saev-write -q -m m.json -o D -f </dev/null
    [ "$output" = "saev-write: $dump: has the folder notes in it, and is not replaced" ]
    rmdir "$dump/notes"
    saev-write -q -m m.json -o D -f a.f32
}
