# SPDX-License-Identifier: ISC
# saev-write on a disk with room for the dump once, or not even that.
load helpers

# make_stream: m.json, a.f32 and want/, 8 shards of an image, 20 pages each.
make_stream() {
    py - <<'END'
from saev_dump import *
kw = dict(layers=[0], p=3, d=5000, n=8, imgs_a_shard=1)
json.dump(meta(**kw), open("m.json", "w"))
dump("want", **kw).tofile("a.f32")
END
    H=$(saev-write -q --hash -m m.json)
}

# part I: the stream of --shard I/2.
part() {
    tail -c +$(($1 * 320000 + 1)) a.f32 | head -c 320000
}

# begin I: task $! of I/2 has the room of its first shard, and waits on 7 for
# more than 1000 bytes.
begin() {
    mkfifo "pipe$1"
    saev-write -q -m m.json -o disk --shard "$1/2" "pipe$1" 3>&- &
    exec 7>"pipe$1"
    head -c 1000 a.f32 >&7
    until [ "$(stat -c %b "disk/.$H.part/.acts00000$((4 * $1)).bin.tmp."* || :)" = 160 ]; do
        kill -0 $!
        sleep 0.01
    done
}

@test "saev-write --shard: a part asks for the room of the whole dump" {
    make_stream
    small_disk 400k
    for i in 0 1; do
        run -74 --separate-stderr saev-write -q -m m.json -o disk --shard $i/2 < <(part $i)
        [[ $stderr == "saev-write: disk: no room for 640000 bytes ("*" are free)" ]]
        [ -z "$output$(ls -A "disk/.$H.part")" ]
    done
    # and what lies there already is not asked for again
    mount -o remount,size=644k disk
    for i in 0 1 0; do
        part $i | saev-write -q -m m.json -o disk --shard $i/2
    done
    saev-write -q -m m.json -o disk --finish
    diff -r want "disk/$H"
}

@test "saev-write --shard: a shard that another task is writing has its room" {
    make_stream
    small_disk 644k # 161 pages
    begin 0
    part 1 | saev-write -q -m m.json -o disk --shard 1/2 7>&-
    part 0 | tail -c +1001 >&7
    exec 7>&-
    wait $!
    saev-write -q -m m.json -o disk --finish
    diff -r want "disk/$H"
}

@test "saev-write --shard: what killed tasks left behind has its room, too" {
    make_stream
    small_disk 644k
    for i in 0 1; do
        begin $i
        kill -9 $!
        wait $! || :
        exec 7>&-
    done
    for i in 0 1; do
        part $i | saev-write -q -m m.json -o disk --shard $i/2
    done
    saev-write -q -m m.json -o disk --finish
    diff -r want "disk/$H"
}

@test "saev-write --resume: a disk that holds the dump once is enough" {
    make_stream
    small_disk 644k
    feed() { head -c 420000 a.f32; }
    late_enough ": 5 shards are kept, " saev-write -q -m m.json -o disk
    [ "$(ls disk/.*.part)" = "$(printf 'acts%06d.bin\n' 0 1 2 3 4)" ]
    saev-write -q -m m.json -o disk --resume a.f32
    diff -r want "disk/$H"
}
