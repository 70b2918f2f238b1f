# SPDX-License-Identifier: ISC
# kvc-convert: small files that ask for much work, memory or disk.  What CPU
# time is allowed is twenty times what it takes, or more, and a fraction of what
# work that grows with the square of the file takes.
load helpers

# make_file CASE...: as test/ref/kvc_bounds.py describes it.
make_file() {
    py "$ROOT/test/ref/kvc_bounds.py" "$@"
}

# in_seconds SECONDS STATUS ARGUMENT...: kvc-convert ends so, in that CPU time.
in_seconds() {
    local seconds=$1 want=$2
    shift 2
    run "-$want" bash -c 'ulimit -t "$1" && shift && exec kvc-convert "$@"' - "$seconds" "$@"
}

@test "kvc-convert: tensors that share their metadata cost no more than others" {
    make_file lazy
    [ "$(stat -c %s lazy.pth)" -lt 10000 ]
    in_seconds 10 0 --input lazy.pth --output Y.bin
    kvc-convert --check --layers 1 Y.bin || [ "$?" = 1 ]
}

@test "kvc-convert: a deflated storage is unpacked once, however often others are read" {
    make_file turns turns_memory
    for f in turns turns_memory; do
        [ "$(stat -c %s $f.pth)" -lt 120000 ]
        in_seconds 8 0 --input $f.pth --output $f.bin
        kvc-convert --info $f.bin | tail -n +14 | cut -f 3-5 | sort -u | cmp - <(printf '1\t1\t1\n')
    done
}

@test "kvc-convert: no scratch is made for what a member cannot unpack to" {
    make_file claims
    TMPDIR=/nowhere run -65 kvc-convert --input claims.pth --output Y.bin
    [ "$output" = "kvc-convert: claims.pth: zip member archive/data/0: 6 bytes cannot unpack to 68719476736" ]
}

@test "kvc-convert: views become at most 4 times what is stored, and 64 MiB" {
    make_file views
    kvc-convert --input views_most.pth --output most.bin
    [ "$(stat -c %s most.bin)" = $((44 + 12 * 12 + 67108896)) ]
    run -65 kvc-convert --input views_more.pth --output more.bin
    [ "$output" = "kvc-convert: views_more.pth: 12 weights become 67108896 bytes, but only 4 are stored (expected at most 67108880, or --allow-views)" ]
    [ -z "$(find . -name '*more.bin*')" ]
    kvc-convert --input views_more.pth --output more.bin --allow-views
    cmp most.bin more.bin
}

@test "kvc-convert: many small views are refused as one large one is" {
    make_file views_sum
    [ "$(stat -c %s views_sum.pth)" -lt 2000 ]
    in_seconds 8 65 --input views_sum.pth --output Y.bin
    [ "$output" = "kvc-convert: views_sum.pth: 240 weights become 32216186880 bytes, but only 4 are stored (expected at most 67108880, or --allow-views)" ]
    for o in '' --allow-views; do
        # shellcheck disable=SC2086
        in_seconds 8 65 --input views_64.pth --output Y.bin $o
        [[ $output == "kvc-convert: views_64.pth: 12 weights become 18446744073709551615 bytes, but only 4 are stored "* ]]
    done
    [ -z "$(find . -name '*Y.bin*')" ]
}

@test "kvc-convert: safetensors that name an MLP again and again are views, too" {
    make_file prefixes
    run -65 kvc-convert --input prefixes.safetensors --output Y.bin --dtype fp32
    [ "$output" = "kvc-convert: prefixes.safetensors: 48 weights become 201326592 bytes, but only 12582912 are stored (expected at most 117440512, or --allow-views)" ]
    kvc-convert --input prefixes.safetensors --output Y.bin --dtype fp32 --allow-views
    kvc-convert --input prefixes.safetensors --output Z.bin --dtype fp16
    [ "$(stat -c %s Z.bin)" = $((44 + 48 * 12 + 100663296)) ]
}

@test "kvc-convert: names too long for a weight cost no more than short ones" {
    make_file names
    [ "$(stat -c %s names.pth)" -lt 8000 ]
    in_seconds 10 0 --input names.pth --output Y.bin -v
    grep -qx "kvc-convert: names.pth: 24 tensors used, 800001 ignored" <<<"$output"
    [ "${#lines[@]}" -lt 100 ]
    make_file prefixes
    run -65 kvc-convert --input long.safetensors --output Z.bin
    [[ $output == "kvc-convert: long.safetensors: __metadata__ kvc.prefix_order is \"ppp"* ]]
    run -2 kvc-convert --input long.safetensors --output Z.bin --prefix-order "$(printf %0257d 0)"
    [[ ${lines[0]} == *" is not 1 to 16 names of up to 256 bytes" ]]
}

# bats test_tags=long
@test "kvc-convert: --info, --check and --diff need six times the file, whatever they print" {
    not_sanitized
    make_file blocks
    kib=$(($(stat -c %s blocks.bin) / 1024))
    [ "$(peak kvc-convert --info --json blocks.bin)" -lt $((6 * kib + 16384)) ]
    [ "$(peak kvc-convert --info blocks.bin)" -lt $((6 * kib + 16384)) ]
    [ "$(kvc-convert --info blocks.bin | tail -n +14 | wc -l)" = 500004 ]
    kvc-convert --info --json blocks.bin | "$PYTHON" -c 'import json, sys; assert len(json.load(sys.stdin)["blocks"]) == 500004'
    run -65 kvc-convert --input many.bin --output Z.safetensors
    [ "$output" = "kvc-convert: many.bin: 1562508 blocks (expected at most 1562500, for the header of safetensors)" ]
}
