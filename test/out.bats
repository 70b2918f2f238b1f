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

@test "out: a full disk keeps the old file, even with --force" {
    small_disk 100k
    echo old >disk/x.npy
    run -74 hf-infer "$DEMO" --ids "$(seq -s, 1 100)" --logits disk/x.npy -f
    [ "$(cat disk/x.npy)" = old ]
    [ "$(ls -A disk)" = x.npy ]
}

@test "out: a read-only folder is one line and status 73" {
    small_disk 100k
    mount -o remount,ro disk
    run -73 --separate-stderr hf-infer "$DEMO" --ids 1,2 --logits disk/x.npy
    [ "$stderr" = "hf-infer: disk/x.npy: cannot be created: Read-only file system" ]
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
