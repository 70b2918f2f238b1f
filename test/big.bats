# SPDX-License-Identifier: ISC
# Files over 4 GiB, which are holes (test/ref/big.py), and names as long as a
# file system takes.  Memory is limited where files are large.
load helpers

big() {
    OPENBLAS_NUM_THREADS=1 py "$ROOT/test/ref/big.py" "$@"
}

# no more of data than that, a thread's stack and tables for each CPU included:
# maps of files do not count
LIMIT_KIB=$((400000 + 12288 * $(getconf _NPROCESSORS_ONLN)))

# Where holes cost disk, these files would fill it.
holes() {
    not_sanitized "ASan takes terabytes"
    truncate -s 8G hole 2>/dev/null || skip "no files of 8 GiB here"
    [ "$(du -k hole | cut -f 1)" -lt 100 ] || skip "no holes in files here"
    rm hole
    ulimit -d $LIMIT_KIB
}

@test "big: st-inspect has tensors beyond 2^32 bytes, of over 2^31 elements" {
    holes
    big st a.safetensors
    run -0 st-inspect list -l a.safetensors
    [ "${lines[1]}" = $'U8\t[4294967304]\t4294967304\t4294967304\t272\ta.safetensors\tbytes' ]
    [[ ${lines[2]} == $'BF16\t[65536,32769]\t2147549184\t4295098368\t4294967576\t'* ]]
    st-inspect verify -q a.safetensors
    [ "$(st-inspect cat a.safetensors tail | tail -c 16 | od -An -tf4 | xargs)" = "1 2 3 4" ]
    [ "$(st-inspect cat a.safetensors bytes --slice 4294967294: | tail -c 10 | od -An -tu1 | xargs)" = \
        "0 0 1 2 3 4 5 6 7 8" ]
    [ "$(st-inspect cat a.safetensors rows --slice -1,:2 --dtype f32 | tail -c 8 | od -An -tf4 | xargs)" = "1 0" ]
}

@test "big: a .npy over 4 GiB is read to its end" {
    holes
    [ -n "${BIG:-}" ] || skip "reads 16 GiB: BIG=1 runs it"
    big npy n.npy n.safetensors
    st-inspect diff -q n.safetensors n.npy
    printf '\003' | dd of=n.npy bs=1 seek=$((128 + (1 << 32))) conv=notrunc status=none
    run -1 st-inspect diff -q n.safetensors n.npy
}

@test "big: saev-read finds activations beyond 4 GiB of a shard" {
    holes
    big saev d
    saev-read verify -q d
    [ "$(saev-read --raw d 1 1048575 1048576 1048577 2097153 | od -An -tf4 -w4096 | awk '{ print $1, $1024 }' | xargs)" = \
        "1 1 1048575 1048575 1048576 1048576 1048577 1048577 2097153 2097153" ]
    [ "$(saev-read --index d 2097153 | tail -n 1)" = $'0\t0\t2097153\t2097153\t0\t8589938688' ]
}

@test "big: saev-write pads a shard of 8 GiB with a hole, and reads an image behind 4 GiB" {
    holes
    big saev_meta m.json
    head -c 4096 /dev/zero | tr '\0' '\1' >image
    saev-write -q --pad --no-sync -m m.json -o D image
    d=D/$(saev-write -q --hash -m m.json)
    [ "$(stat -c %s "$d/acts000000.bin")" -eq $((1 << 33)) ]
    [ "$(du -k "$d/acts000000.bin" | cut -f 1)" -lt 1000 ]
    saev-read --raw "$d" | cmp - image
}

# bats test_tags=long
@test "big: kvc-convert has blocks beyond 4 GiB" {
    holes
    big kvc k.bin
    run -0 kvc-convert --check k.bin
}

@test "big: a model whose tensors lie beyond 5 GiB is the same model" {
    holes
    mkdir m moe
    for d in qwen3-tiny:m qwen3-moe-tiny:moe; do
        cp -r "$ROOT/demo/${d%:*}"/. "${d#*:}"
        big grow "$ROOT/demo/${d%:*}/model.safetensors" "${d#*:}/model.safetensors" 5368709120
    done
    hf-infer m -q --ids 1,2,3 --top 3 >got
    hf-infer "$DEMO" -q --ids 1,2,3 --top 3 | cmp - got
    "$PYTHON" "$ROOT/test/ref/moe.py" .
    moe-sft forward -b base.safetensors -l lora.safetensors -i batch.safetensors -o small.safetensors
    # an adapter has no tensor but its own
    for f in base batch; do big grow $f.safetensors $f-big.safetensors 5368709120; done
    moe-sft forward -b base-big.safetensors -l lora.safetensors -i batch-big.safetensors -o big.safetensors
    cmp small.safetensors big.safetensors
}

@test "big: kvc-convert reads a checkpoint whose zip64 storage lies beyond 4 GiB" {
    holes
    big pth far.pth near.pth 4294967360
    kvc-convert -q --input far.pth -o far.bin
    kvc-convert -q --input near.pth -o near.bin
    cmp far.bin near.bin
}

@test "big: lut-apply has a table over 4 GiB" {
    holes
    big lut t x.npy
    lut-apply --raw t model.layers.0.self_attn.q_proj -i x.npy -o y.f32
    [ "$(od -v -An -tf4 y.f32 | awk '{ for (i = 1; i <= NF; i++) n += $i != 3 } END { print n + 0, NR * 4 }')" = "0 1024" ]
}

# deep: a directory whose path has some 3700 bytes, of names of 255; C is such a name
deep() {
    C=$(printf 'n%.0s' $(seq 255))
    d=$PWD
    while [ $((${#d} + 256)) -lt 3700 ]; do
        d=$d/$C
    done
    mkdir -p "$d" 2>/dev/null || skip "no such long names here"
}

@test "long names: every tool reads and writes files of 255 bytes in a deep directory" {
    deep
    cp -r "$DEMO" "$d/m" && cp -r "$ROOT/demo/sae" "$d/sae"
    f=$d/$C
    st-inspect verify -q "$d/m"
    st-inspect cat "$d/m" model.norm.weight --dtype f32 -o "$f"
    rm "$f"
    hf-infer "$d/m" --ids 1,2 --logits "$f"
    rm "$f"
    hf-infer "$d/m" --acts resid:0 --ids 1,2,3 --acts-meta "$d/a.json" -o "$d/a.f32"
    saev-write -q -m "$d/a.json" -o "$d/$C" <"$d/a.f32"
    s=$(echo "$d/$C"/*)
    saev-read verify -q "$s"
    saev-read "$s" -o "$d/r.npy"
    lut-precompute -q -m "$d/m" -s "$d/sae" -o "$d/lut"
    l=model.layers.1.mlp.up_proj
    hf-infer "$d/m" --acts in:up_proj:1 --ids 1,2 | lut-apply --raw "$d/lut" $l --x-dtype f32 -m "$d/m" --top 2 -o "${f%n}"
    "$PYTHON" "$ROOT/test/ref/moe.py" "$d/moe"
    (cd "$d/moe" && moe-sft forward -b "$d/moe/base.safetensors" -l lora.safetensors -i batch.safetensors -o "$d/moe/$C")
    moe-sft convert -l "$d/moe/lora.safetensors" -o "$d/moe/${C%n}"
    big pth "$d/far.pth" "$d/near.pth" 1048576
    kvc-convert -q --input "$d/far.pth" -o "$d/${C%nn}"
    kvc-convert --check "$d/${C%nn}"
    [ -z "$(find . -name '.*.tmp.*')" ]
}

@test "long names: one byte more than a name or a path has is 73 in one line, and nothing" {
    deep
    n=$((4095 - ${#d} - 3))
    short=$(printf 'm%.0s' $(seq $((n > 255 ? 255 : n))))
    for to in "$d/${C}n" "$d/$short/$C" "$d/$C/$C/$C"; do
        for tool in "st-inspect cat $DEMO model.norm.weight --dtype f32 -o" \
            "hf-infer $DEMO --ids 1 --logits" "saev-read ./no -o"; do
            run --separate-stderr $tool "$to"
            [[ $status == 73 || ($tool == saev-read* && $status == 66) ]]
            [ "${#stderr_lines[@]}" = 1 ]
        done
    done
    [ -z "$(ls -A "$d")" ]
}

# bats test_tags=long
@test "big: moe-sft tune --dry-run says what the memory of large models is, as moe-sft(7) does, with nothing allocated" {
    holes
    py -c 'import json; [print(json.dumps({"ids": [7] * 512, "labels": [7] * 512})) for _ in range(8)]' >d.jsonl
    # other instruction sets take 3 % less
    gb() { moe-sft tune -m m -d d.jsonl --ctx 512 --batch 8 -j 2 --dry-run "$@"; }
    while read -r name shape set; do
        # shellcheck disable=SC2086 # words
        big model m $shape $set
        for how in "--rank 16" "--rank 4" "--targets q,k,v,o"; do
            # shellcheck disable=SC2086
            gb $how
        done | awk -F '\t' -v name="$name" '
            $1 == "longest" && $2 != 512 { exit 1 }
            $1 == "memory: total" { total = total " " $2 / 1e9 }
            $1 == "memory: mapped files" { mapped = $2 / 1e9 }
            END { print name, mapped total }'
        rm -r m
    done >said <<'MODELS'
Qwen3-0.6B qwen3-0.6b
Qwen3-1.7B qwen3-0.6b hidden_size=2048 intermediate_size=6144
Qwen3-4B qwen3-0.6b hidden_size=2560 intermediate_size=9728 num_attention_heads=32 num_hidden_layers=36
Qwen3-30B-A3B qwen3-30b-a3b
MODELS
    # the last of the page's tables has four numbers of each
    sed -n '/^\.Ss Memory/,$s/^\.It \(Qwen3[^ ]*\) Ta/\1/p' "$ROOT/man/moe-sft.7" | sed 's/ Ta / /g' >page
    paste -d ' ' said page | awk '
        NF != 10 || $1 != $6 { exit 1 }
        $1 == "Qwen3-0.6B" && $3 > 2.5 { exit 1 }
        { for (i = 2; i <= 5; i++) if ($i > 1.01 * $(i + 5) + 0.01 || $i < 0.96 * $(i + 5)) exit 1; n++ }
        END { exit n != 4 }' || { cat said page; false; }
}
