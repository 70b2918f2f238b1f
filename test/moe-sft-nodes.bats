# SPDX-License-Identifier: ISC
# moe-sft --tp on a machine of several NUMA nodes, of which only the kernel's
# files that tell of them are made up: each part's team stays on its node.
load helpers
load sft

# on_nodes N COMMAND...: runs it as on a machine whose first N CPUs are a node each.
on_nodes() {
    cpus=$(py -c 'import os, sys; c = sorted(os.sched_getaffinity(0)); print(*c[:int(sys.argv[1])] if len(c) >= int(sys.argv[1]) else "")' "$1")
    [ -n "$cpus" ] || skip "fewer CPUs than $1"
    shift
    # shellcheck disable=SC2016
    CPUS=$cpus unshare -m bash -c 'mount -t tmpfs nodes /sys/devices/system/node || exit 99
        i=0
        for cpu in $CPUS; do
            mkdir /sys/devices/system/node/node$i
            echo "$cpu" >/sys/devices/system/node/node$i/cpulist
            i=$((i + 1))
        done
        exec "$@"' - "$@"
}

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    unshare -m mount -t tmpfs nodes /sys/devices/system/node 2>/dev/null || skip "cannot mount"
    strace -o /dev/null true 2>/dev/null || skip "no strace here"
    not_sanitized "strace stops LeakSanitizer"
    data .
}

# forward NODES PARTS OUT: its outputs; in 'bound' what threads were bound to.
forward() {
    on_nodes "$1" strace -f -qq -e trace=sched_setaffinity -o trace moe-sft forward -j 2 --tp "$2" \
        -b base.safetensors -l lora.safetensors -i batch.safetensors -o "$3.safetensors" -c "$3-cache.safetensors"
    bound=$(sed -n 's/.*\(\[[0-9, ]*\]\).*/\1/p' trace | sort | xargs)
}

@test "moe-sft: each part of --tp is bound to a node, the bits are those of one node" {
    linux_only
    forward 1 2 near
    [ -z "$bound" ]
    forward 2 2 far
    [ "$bound" = "[${cpus% *}] [${cpus#* }]" ]
    cmp near.safetensors far.safetensors
    cmp near-cache.safetensors far-cache.safetensors
    forward 2 1 whole
    [ -z "$bound" ]
}
