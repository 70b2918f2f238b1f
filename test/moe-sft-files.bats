# SPDX-License-Identifier: ISC
# moe-sft: what its files are read from and written to, in every type and form.
load helpers
load sft

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    data .
}

# of_type f4|f2: lora.safetensors and peft/ of random numbers in that type.
of_type() {
    TYPE=$1 py - <<'END'
import os, mkst, moe, numpy as np
rng = np.random.default_rng(3)
lora, meta = moe.read("lora.safetensors")
lora = {n: (v * rng.uniform(0.9, 1.1, v.shape)).astype("<" + os.environ["TYPE"])
        for n, v in lora.items()}
mkst.save("lora.safetensors", lora, meta)
key = "base_model.model.model.layers.3.mlp.experts.%d.%s_proj.lora_%s.weight"
mkst.save("peft/adapter_model.safetensors", {
    key % (e, n.split("_")[0], n[-1].upper()): v[e] for n, v in lora.items() for e in range(len(v))})
END
}

@test "moe-sft merge: an adapter of F32 or F16 is summed as it is, rounded once" {
    for type in f4 f2; do
        of_type $type
        for l in lora.safetensors peft; do
            moe-sft merge -b base.safetensors -l $l --layer 3 -o m.safetensors -f 2>/dev/null ||
                moe-sft merge -b base.safetensors -l $l -o m.safetensors -f
            py - <<'END'
import moe, numpy as np
base, m, lora = (moe.read(n + ".safetensors")[0] for n in ("base", "m", "lora"))
for p in moe.PROJ:
    w = base[p + "_proj"] + 2.0 * np.einsum("eor,eri->eoi", lora[p + "_lora_b"], lora[p + "_lora_a"])
    assert (moe.round_bf16(w) == m[p + "_proj"]).all(), p
END
        done
    done
}

@test "moe-sft convert: keeps an adapter's type and every bit of it" {
    for type in f4 f2; do
        of_type $type
        rm -rf p ours.safetensors back.safetensors
        moe-sft convert -l peft -o ours.safetensors
        moe-sft convert -l lora.safetensors -o p
        moe-sft convert -l p -o back.safetensors
        cmp ours.safetensors back.safetensors
        st-inspect diff peft p
        st-inspect diff lora.safetensors ours.safetensors
    done
    # of two types it is F32
    edit peft/adapter_model.safetensors 'n = sorted(t)[0]; t[n] = mkst.values(*t[n]).astype("<f4")'
    moe-sft convert -l peft -o mixed.safetensors
    st-inspect diff --ignore-dtype mixed.safetensors ours.safetensors
    [ "$(st-inspect list mixed.safetensors | sed 1d | cut -f 1 | sort -u)" = F32 ]
}

@test "moe-sft: other safetensors may lie in a PEFT directory" {
    moe-sft convert -l peft -o peft/lora.safetensors
    moe-sft convert -l peft -o again.safetensors
    cmp peft/lora.safetensors again.safetensors
    for _ in 1 2; do
        moe-sft forward -b hf -l peft -i batch.safetensors -o peft/out.safetensors -c peft/cache.safetensors --if-missing
        moe-sft init -b hf --layer 3 -o hf/new.safetensors --if-missing
    done
    mv peft/adapter_model.safetensors peft/by_another_name.safetensors
    rm peft/lora.safetensors peft/out.safetensors peft/cache.safetensors
    # as PEFT does, which reads no other name
    run -66 moe-sft convert -l peft -o once_more.safetensors
    [ "$output" = "moe-sft: peft: has no adapter_model.safetensors" ]
}

@test "moe-sft train: what it is made of is not what it writes" {
    mkdir run
    cp lora.safetensors run
    cp lora.safetensors was
    for l in run/lora.safetensors ./run/../run/lora.safetensors; do
        for how in "" -f --resume; do
            # shellcheck disable=SC2086
            run -2 moe-sft train -b base.safetensors -l $l -o run -n 1 $how batch.safetensors
            [ "${lines[0]}" = "moe-sft: run/lora.safetensors: is both an input and an output of this command" ]
        done
    done
    cp base.safetensors run/state.safetensors
    run -2 moe-sft train -b run/state.safetensors -l lora.safetensors -o run -n 1 -f batch.safetensors
    cmp run/lora.safetensors was
    # nor does it write two things to one file
    for path in run/state.safetensors ./run/lora.safetensors x; do
        run -2 moe-sft train -b base.safetensors -l lora.safetensors -o run -n 1 -f --log x --svg $path batch.safetensors
        [ "${lines[0]}" = "moe-sft: $path: would be two outputs of this command" ]
    done
}

@test "moe-sft quantize: weights that are not finite are refused, and named" {
    for bad in nan inf; do
        edit base.safetensors "a = mkst.values(*t['up_proj']).copy()
a[2, 7, 5] = float('$bad'); t['up_proj'] = mkst.bf16(a)"
        run -65 --separate-stderr moe-sft quantize -b base.safetensors -o q.safetensors
        [ "$stderr" = "moe-sft: base.safetensors: up_proj of expert 2 has a number in row 7 that is not finite" ]
        [ -z "$output" ]
        [ ! -e q.safetensors ]
    done
}

@test "moe-sft: a device or a pipe is no file that exists already" {
    moe-sft init -b base.safetensors -o /dev/null
    moe-sft forward -b base.safetensors -l lora.safetensors -i batch.safetensors -o /dev/null
    moe-sft check -b base.safetensors -l lora.safetensors -i batch.safetensors -o /dev/null
    moe-sft check -b base.safetensors -l lora.safetensors -i batch.safetensors >table
    moe-sft check -b base.safetensors -l lora.safetensors -i batch.safetensors -o >(cat >piped; echo >done)
    until [ -s done ]; do sleep 0.05; done
    cmp table piped
    mkfifo fifo
    run -2 timeout 20 moe-sft init -b base.safetensors -o fifo
    [ "${lines[0]}" = "moe-sft: fifo: safetensors cannot be written to a pipe" ]
    moe-sft train -b base.safetensors -l lora.safetensors -o run -n 1 --log /dev/null batch.safetensors >/dev/null
}

@test "moe-sft info: a batch without a base tells the width" {
    run -0 moe-sft info -i batch.safetensors
    [[ $output == *"hidden"$'\t'"96"* ]]
}

# bats test_tags=long
@test "moe-sft info: a forward takes the memory that it says, its files, and little else" {
    not_sanitized
    data . E=8 H=1024 I=704 r=8 qlen=512 # weights of 35 MB
    for how in "--mode bf16 -j 1" "--mode int8 -j 3"; do
        # shellcheck disable=SC2086
        said=$(moe-sft info -b base.safetensors -l lora.safetensors -i batch.safetensors $how |
            awk '$1 == "memory_total" { print $2 }')
        # shellcheck disable=SC2086
        took=$(peak moe-sft forward -b base.safetensors -l lora.safetensors -i batch.safetensors -f \
            -o fwd.safetensors -c cache.safetensors $how)
        files=$(cat base.safetensors lora.safetensors batch.safetensors fwd.safetensors cache.safetensors | wc -c)
        echo "$how: $took KiB, of which $said bytes were named, and $files are files"
        [ "$said" -gt 35000000 ]
        [ $((took * 1024)) -ge "$said" ]
        [ $((took * 1024)) -le $((said + files + (16 << 20))) ] # libraries, pages of 2 MiB
    done
}

@test "moe-sft check: a column of the input that is far larger fails nothing" {
    for column in 50 77; do
        for seed in 1 2 3 4 5 6; do
            cp batch.safetensors b.safetensors
            edit b.safetensors "a = mkst.values(*t['input']).copy(); a[:, $column] *= 1000; t['input'] = mkst.bf16(a)"
            moe-sft check -b base.safetensors -l lora.safetensors -i b.safetensors --seed $seed >table || {
                cat table
                false
            }
        done
    done
}

@test "moe-sft train: --eps 0 would divide 0 by 0" {
    run -2 moe-sft train -b base.safetensors -l lora.safetensors -o run -n 1 --eps 0 batch.safetensors
    [[ ${lines[0]} == "moe-sft: --eps"* ]]
}

# cut_while FILE BYTES VERB...: FILE, which is mapped last, is cut by so many
# bytes while moe-sft waits to warn of the adapter's layer; sets "status" and
# "said".
cut_while() {
    local file=$1 bytes=$2
    shift 2
    rm -rf x* said
    mkfifo said
    exec 6<>said
    head -c 65536 /dev/zero >&6 # whoever speaks has to wait
    moe-sft "$@" 2>said 6>&- &
    for ((i = 0; i < 1000; i++)); do
        if grep -q "/$file$" /proc/$!/maps; then break; fi
        sleep 0.01
    done
    [ $i -lt 1000 ]
    cp -L "$file" was
    truncate -s -"$bytes" "$file"
    exec 7<said 6>&-
    tr -d '\0' <&7 >all
    exec 7<&-
    status=0
    wait $! || status=$?
    said=$(tail -n 1 all)
    cat was >"$file"
}

# bats test_tags=long
@test "moe-sft merge, convert: a file that is cut off while it is read is an error" {
    edit lora.safetensors 'm["layer_idx"] = "1"' # of the base's layer 3: a warning
    sed -i 's/{/{"magic": true, /' peft/adapter_config.json # another
    peft=peft/adapter_model.safetensors
    while read -r file verb; do
        n=$(stat -c %s $file)
        # in the last page, which reads as zeros; all but the first
        cut_while $file 1 $verb
        echo "$file $verb: $status $said"
        [ $status = 74 ]
        [ "$said" = "moe-sft: $file: has $((n - 1)) bytes by now ($n when it was opened)" ]
        [ ! -e x ] && [ ! -e x.safetensors ]
        [ -z "$(find . -name '.x*')" ]
        cut_while $file $((n - 100)) $verb
        echo "$file $verb: $status $said"
        [ $status = 74 ]
        [ "$said" = "moe-sft: an input file shrank while it was read" ]
        [ ! -e x ] && [ ! -e x.safetensors ]
    done <<END
lora.safetensors convert -b hf --layer 3 -l lora.safetensors -o x
$peft convert -l peft -o x
lora.safetensors merge -b hf --layer 3 -l lora.safetensors -o x.safetensors
$peft merge -b hf -l peft -o x
$(cd hf && find . -name '*.safetensors' -printf 'hf/%P merge -b hf -l peft -o x\n')
END
}

@test "moe-sft: a kilobyte of adapter_config.json asks for gigabytes, or minutes: refused" {
    not_sanitized "sanitizers reserve more"
    [ -z "${TU_RUN:-}" ] || skip "an emulator takes more itself"
    refuses_patterns moe-sft convert -l peft -o x
    [ ! -e x ]
}

@test "moe-sft(5): the examples run as typed" {
    rm lora.safetensors
    examples moe-sft.5 >script
    run -0 bash -eo pipefail script
    for f in lora hf int8 fwd cache bwd; do st-inspect verify $f.safetensors; done
    st-inspect verify merged peft-new
}

@test "moe-sft-train(1): the examples run as typed" {
    examples moe-sft-train.1 >script
    run -0 bash -eo pipefail script
    [ "$(grep -c '^[0-9]' <<<"$output")" = 40 ]
    st-inspect verify run/lora.safetensors learnt.safetensors
    [ -s loss.svg ]
}

# bats test_tags=long
@test "moe-sft: experts that are holes of the base's file are not read, and mean zeros" {
    not_sanitized
    py - <<'END_PY'
import numpy as np, mkst
E, H, I, g = 32, 2048, 1024, np.random.default_rng(1)
used = [3, 30]
shapes = dict(gate_proj=(E, I, H), up_proj=(E, I, H), down_proj=(E, H, I))
head, at = {}, 0
for n, s in shapes.items():
    head[n] = dict(dtype="BF16", shape=list(s), data_offsets=[at, at + 2 * E * H * I])
    at += 2 * E * H * I
mkst.save_raw("holes.safetensors", head, b"")
with open("holes.safetensors", "r+b") as f:
    start = f.seek(0, 2)
    f.truncate(start + at)
    for n in shapes:
        for e in used:
            f.seek(start + head[n]["data_offsets"][0] + 2 * e * H * I)
            f.write(mkst.bf16(g.standard_normal((H, I)) / 30)[2])
mkst.save("b.safetensors", dict(
    input=mkst.bf16(g.standard_normal((5, H))), weights=np.full((5, 2), .5, "<f4"),
    expert_ids=np.array([used] * 5, "<i8"), grad_output=mkst.bf16(g.standard_normal((5, H)))))
END_PY
    cp --sparse=never holes.safetensors full.safetensors
    moe-sft init -b holes.safetensors --rank 2 -o l.safetensors
    run peak moe-sft forward -b holes.safetensors -l l.safetensors -i b.safetensors -o x.safetensors -c c.safetensors
    echo "$output KiB"
    [ "$output" -lt 200000 ] # the file has 403 MB, and as much would be packed
    moe-sft forward -b full.safetensors -l l.safetensors -i b.safetensors -o y.safetensors
    cmp x.safetensors y.safetensors
    # the same base to a cache
    moe-sft backward -b full.safetensors -l l.safetensors -c c.safetensors -g b.safetensors -o g.safetensors
    # a hole's neighbours are looked at
    py - <<'END_PY'
import os
n = os.path.getsize("holes.safetensors") - 2 * 32 * 2048 * 1024 * 3
with open("holes.safetensors", "r+b") as f:
    f.seek(n + 2 * 11 * 2048 * 1024 - 2) # the last number of expert 10's gate
    f.write(b"\xc0\x7f")
END_PY
    run -65 moe-sft forward -b holes.safetensors -l l.safetensors -i b.safetensors -o z.safetensors
    [ "$output" = "moe-sft: holes.safetensors: gate_proj of expert 10, row 1023 has NaN or Inf" ]
}
