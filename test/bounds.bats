# SPDX-License-Identifier: ISC
# What hostile input may cost: each row of the table in tensorutils(7), BOUNDS,
# has a test here, "bounds: NAME: ...", or in the file that 'elsewhere' names.
# Bytes are counted where they can be; else CPU time has twenty times the room
# that it needs.
load helpers

# made_of MEMBERS: a.safetensors of these names and shapes, each of no bytes.
made_of() {
    py - "$1" >a.safetensors <<'END'
import json, struct, sys
head = "{" + ",".join('%s:{"dtype":"U8","shape":%s,"data_offsets":[0,0]}' % (json.dumps(n), json.dumps(s))
                      for n, s in eval(sys.argv[1])) + "}"
sys.stdout.buffer.write(struct.pack("<Q", len(head)) + head.encode())
END
}

# size FILE: its bytes.
size() {
    stat -c %s "$1"
}

@test "bounds: tree: a name of many dots prints 64 levels, not its length squared" {
    made_of '[("x%d" % i + ".a" * 1000, [0]) for i in range(20)]'
    run -0 bash -c 'st-inspect tree --depth 0 a.safetensors | wc -l'
    [ "$output" -eq $((2 + 20 * 64)) ]
    run -0 bash -c 'cmp <(st-inspect tree --depth 64 a.safetensors) <(st-inspect tree --depth 0 a.safetensors)'
    run -2 st-inspect tree --depth 65 a.safetensors
    [[ $output == *'"65" is not a whole number from 0 to 64'* ]]
    made_of '[("x" * 100000 + ".a" * 1000, [0])]' # JSON has the way to each
    run -0 bash -c 'st-inspect tree --depth 0 --json a.safetensors | wc -c'
    [ "$output" -gt $((60 * $(size a.safetensors))) ]
    [ "$output" -lt $((65 * $(size a.safetensors))) ]
}

@test "bounds: align: a cell of 100 characters widens its column, a longer one none" {
    made_of '[("w", [10, 0] + [1] * 47), ("t", [0])]' # 100 of them
    run -0 st-inspect list --align a.safetensors
    [ "${#lines[1]}" -gt 100 ]
    made_of '[("w", [100, 0] + [1] * 47), ("t", [0])]'
    run -0 st-inspect list --align a.safetensors
    [ "${#lines[1]}" -lt 50 ]
    made_of '[("w", [0] + [1] * 20000)] + [("t%d" % i, [0]) for i in range(1000)] + [("1" * 20000, [0]), ("2", [0])]'
    for verb in list stats hash tree; do
        run -0 bash -c "st-inspect $verb --align a.safetensors | wc -c"
        [ "$output" -lt $((8 * $(size a.safetensors))) ]
    done
}

@test "bounds: dims: cat writes 32 of them, and cuts any number in no time" {
    local n
    for n in 32 33; do
        py - $n <<'END'
import json, struct, sys
head = json.dumps({"x": {"dtype": "U8", "shape": [3] + [1] * (int(sys.argv[1]) - 1), "data_offsets": [0, 3]}}).encode()
open("a.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + b"abc")
END
        for how in --dtype=f32 --json; do
            run st-inspect cat $how -o x -f a.safetensors x
            [ $n = 33 ] || [ "$status" = 0 ]
            [ $n = 32 ] || [[ $status == 65 && $output == "st-inspect: a.safetensors: x has 33 dims ("*" takes at most 32)" ]]
        done
        run -0 st-inspect cat --raw a.safetensors x
        [ "$output" = abc ]
        run -0 st-inspect cat --json --slice "::2$(printf ',0%.0s' $(seq 2 $n))" a.safetensors x
        [[ $output == *'"shape":[2],"data":[97,99]}' ]]
    done
    py - <<'END'
import json, struct
n = 100000
head = json.dumps({"x": {"dtype": "U8", "shape": [n] + [1] * n, "data_offsets": [0, n]}}).encode()
open("a.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + bytes(i % 251 for i in range(n)))
END
    run -0 bash -c 'ulimit -t 5; st-inspect cat --raw --slice ::-2 a.safetensors x >odd' # not 5 * 10^9 steps
    run -0 py -c 'print(open("odd", "rb").read() == bytes(i % 251 for i in range(100000))[::-2])'
    [ "$output" = True ]
}

@test "bounds: digests: a file is read once, whatever lines and names a list has for it" {
    stf a x=F32:5000000
    cp a b
    ln -s a c
    py -c 'for i in range(2000):
    print("xxh3\t" + "0" * 32 + "\t0\t" + ("a", "b", "./" * (i % 9) + "a", "c", "d")[i % 5] + "\t")' >list # 32 GB of them
    run -1 --separate-stderr bash -c 'ulimit -t 5; st-inspect hash --check list'
    [ "$(grep -c '^differs' <<<"$output")" = 1600 ]
    [ "$(grep -c '^unreadable' <<<"$output")" = 400 ]
    run -0 diff <(cut -f4 list) <(sed 1d <<<"$output" | cut -f2) # in their order
}

@test "bounds: digests: names with a NUL are found as fast as others" {
    made_of '[("\0%05d" % i, [0]) for i in range(60000)]'
    py -c 'for i in range(60000):
    print("xxh3\t" + "0" * 32 + "\t0\ta.safetensors\t\\x00x%04d" % i)' >list
    run -1 bash -c 'set -o pipefail; ulimit -t 5; st-inspect hash --check list | cut -f1 | uniq -c'
    [[ ${lines[1]} == *" 60000 missing" ]]
}

@test "bounds: shards: an index names a file once, and no links to it" {
    mkdir m
    py - <<'END'
import json, os, struct
head = json.dumps({t: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for t in "ab"}).encode()
open("m/a.safetensors", "wb").write(struct.pack("<Q", len(head)) + head)
os.symlink("a.safetensors", "m/b.safetensors")
json.dump({"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}},
          open("m/model.safetensors.index.json", "w"))
END
    run -65 st-inspect list m
    [ "$output" = "st-inspect: m/model.safetensors.index.json: a.safetensors and b.safetensors are one file (expected one name)" ]
    rm m/b.safetensors
    cp m/a.safetensors m/b.safetensors
    run -0 st-inspect list m
}

@test "bounds: shards: an open file takes some 10 KB" {
    not_sanitized "it measures memory"
    local one
    for n in 1 1001; do
        rm -rf m
        mkdir m
        py - $n <<'END'
import json, struct, sys
n = int(sys.argv[1])
for i in range(n):
    head = json.dumps({"t%d" % i: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}).encode()
    open("m/%d.safetensors" % i, "wb").write(struct.pack("<Q", len(head)) + head)
json.dump({"weight_map": {"t%d" % i: "%d.safetensors" % i for i in range(n)}}, open("m/model.safetensors.index.json", "w"))
END
        run -0 bash -c "ulimit -n 2000; $(declare -f peak); peak st-inspect list m"
        [ $n = 1001 ] || one=$output
    done
    [ $((output - one)) -lt 12000 ] # KiB
}

# wide NAME=VALUE...: m/, a model whose sizes are 1 but for those, of ones.
wide() {
    py - "$@" <<'END'
import json, os, struct, sys
c = dict(hidden_size=1, intermediate_size=1, num_attention_heads=1, head_dim=2, vocab_size=4,
         model_type="llama", num_hidden_layers=1, num_key_value_heads=1, tie_word_embeddings=True)
c.update((k, int(v)) for k, v in (a.split("=") for a in sys.argv[1:]))
h, i, q, k = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"] * c["head_dim"], c["head_dim"]
p = "model.layers.0."
shapes = {"model.embed_tokens": [4, h], "model.norm": [h], p + "input_layernorm": [h],
          p + "post_attention_layernorm": [h], p + "self_attn.q_proj": [q, h], p + "self_attn.k_proj": [k, h],
          p + "self_attn.v_proj": [k, h], p + "self_attn.o_proj": [h, q], p + "mlp.gate_proj": [i, h],
          p + "mlp.up_proj": [i, h], p + "mlp.down_proj": [h, i]}
head, at = {}, 0
for name, shape in shapes.items():
    n = 2
    for d in shape:
        n *= d
    head[name + ".weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n]}
    at += n
head = json.dumps(head).encode()
os.makedirs("m", exist_ok=True)
json.dump(c, open("m/config.json", "w"))
open("m/model.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + b"\x80\x3f" * (at // 2))
END
}

# bats test_tags=long
@test "bounds: activations: a prompt takes 512 MiB of a model of any width" {
    not_sanitized "they take more"
    wide intermediate_size=1048576 # 8 MiB a token: 64 at a time, not 130
    run -0 peak hf-infer -q m --ids "$(seq -s, 130 | sed 's/[0-9]*/1/g')" --nll
    [ "$output" -lt $((600 * 1024)) ]
}

# bats test_tags=long
@test "bounds: json: a document has 128 MiB, a line of --jsonl as well" {
    not_sanitized "it takes a minute"
    local max=$((128 << 20))
    made_of '[("a", [0])]'
    mkdir m
    mv a.safetensors m
    index=m/model.safetensors.index.json
    { printf '{"weight_map":{"a":"a.safetensors"}' && head -c $((max - 36)) /dev/zero | tr '\0' ' ' && printf '}'; } >$index
    [ "$(size $index)" = $max ]
    run -0 st-inspect list m
    echo >>$index
    run -65 st-inspect list m
    [ "$output" = "st-inspect: $index: is longer than $max bytes" ]
    head -c $((max + (1 << 17))) $index | tr '\n' ' ' >line
    run -65 --separate-stderr hf-infer "$DEMO" --jsonl --file line
    [ "$stderr" = "hf-infer: line: line 1: over $max bytes" ]
}

@test "bounds: json: a byte costs some 80 bytes of memory" {
    not_sanitized "it measures memory"
    py -c 'print("{\"ids\":[1],\"id\":[%s]}" % ",".join(["{}"] * 700000))' >line
    run -0 peak hf-infer "$DEMO" -q -n 1 --jsonl --file line
    [ "$output" -lt $((100 * $(size line) / 1024)) ]
}

@test "bounds: nesting: a line of --jsonl has 64 levels" {
    nested() { printf '{"id":%s1%s,"ids":[1]}\n' "$(printf '%*s' "$1" '' | tr ' ' '[')" "$(printf '%*s' "$1" '' | tr ' ' ']')"; }
    { nested 1 && nested 63; } >line
    run -0 hf-infer "$DEMO" -q -n 1 --jsonl --file line
    { nested 1 && nested 64; } >line
    run -65 --separate-stderr hf-infer "$DEMO" -q -n 1 --jsonl --file line
    [ "$stderr" = "hf-infer: line: line 2, column 70: nested 65 levels deep (expected at most 64)" ]
}

@test "bounds: config: each size that memory depends on has a largest one" {
    local key max
    for key in hidden_size=1048576 intermediate_size=1048576 num_hidden_layers=4096 vocab_size=16777216 \
        num_attention_heads=4096 head_dim=4096 max_position_embeddings=1073741824; do
        max=${key#*=} key=${key%=*}
        wide
        # its tensors have it not, so the size itself is in order
        sed -i "s/\"$key\": [0-9]*, //; s/}/, \"$key\": $max}/" m/config.json
        run hf-infer m --ids 1 --top 1
        [[ $output != *"expected a whole number"* ]]
        sed -i "s/$max}/$((max + 1))}/" m/config.json
        run -65 hf-infer m --ids 1 --top 1
        [[ $output == "hf-infer: m/config.json: $key is $((max + 1)) (expected a"*"$max)" ]]
    done
    wide
    for n in 16 17; do
        sed "s/}/, \"eos_token_id\": [$(seq -s, $n)]}/" m/config.json >c
        mv c m/config.json
        run hf-infer m --ids 1 --top 1
        [ $n = 16 ] || [ "$output" = "hf-infer: m/config.json: eos_token_id has 17 ids (expected at most 16)" ]
        [ $n = 17 ] || [ "$status" = 0 ]
        wide
    done
}

# dump NAME=JSON...: d/metadata.json, of these members and others, and the
# shard of its first image, a hole.
dump() {
    rm -rf d
    mkdir d
    py - "$@" <<'END'
import json, os, sys
m = dict(vit_family="clip", vit_ckpt="x", layers=[0], n_patches_per_img=1, cls_token=False, d_vit=1, seed=0,
         n_imgs=1, max_patches_per_shard=1 << 20, data="x")
m.update((k, eval(v)) for k, v in (a.split("=", 1) for a in sys.argv[1:]))
json.dump(m, open("d/metadata.json", "w"))
if m["n_imgs"]:
    with open("d/acts000000.bin", "w") as f:
        f.truncate(4 * len(m["layers"]) * m["d_vit"])
END
}

# bats test_tags=long
@test "bounds: dump: no memory or time for what metadata promise and no shard has" {
    dump n_imgs=0 d_vit=10**12 max_patches_per_shard=1
    for o in '' --direct --shuffle '--window 10' '--shuffle --index'; do
        # shellcheck disable=SC2086 # words
        run -0 --separate-stderr saev-read $o d
        [ "$(wc -c <<<"$output")" -lt 200 ]
    done 2>/dev/null
    for n in 16 17; do # layers 2^16, dims 2^19, and one more
        dump "layers=list(range($((1 << 16)) + $n // 17))"
        run saev-read info d
        [ $n = 16 ] || [[ $status == 65 && $output == *"layers is [0, 1, "*" (expected 1 to 65536 integers)" ]]
        [ $n = 17 ] || [ "$status" = 0 ]
        dump d_vit=$(((1 << 19) + n / 17))
        run saev-read stats d
        [ $n = 16 ] || [[ $status == 65 && $output == *"d_vit is 524289 (stats takes at most 524288)" ]]
        [ $n = 17 ] || [ "$status" = 0 ]
    done
    dump
    head -c $((64 << 20)) /dev/zero | tr '\0' ' ' >>d/metadata.json
    truncate -s $((64 << 20)) d/metadata.json
    run -0 saev-read info d
    echo >>d/metadata.json
    run -65 saev-read info d
    [ "$output" = "saev-read: d/metadata.json: is longer than $((64 << 20)) bytes" ]
    dump n_imgs=10**15
    run -65 saev-read d
    [[ $output == *"d/acts000000.bin: 4 bytes (expected 4194304)" ]]
}

# stf FILE NAME=DTYPE:SHAPE...: tensors of zeros.
stf() {
    py - "$@" <<'END'
import json, struct, sys
head, at = {}, 0
for name, what in (a.split("=") for a in sys.argv[2:]):
    dtype, shape = what.split(":")
    shape = [eval(d) for d in shape.split(",")]
    n = {"BF16": 2, "F32": 4, "I64": 8}[dtype]
    for d in shape:
        n *= d
    head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
    at += n
if "lora" in sys.argv[1]:
    head["__metadata__"] = {"lora_alpha": "1"}
head = json.dumps(head).encode()
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head)
    f.truncate(8 + len(head) + at)
END
}

@test "bounds: experts: 4096 of a layer, 1024 slots of a token" {
    local e k m
    for e in 4096 4097; do
        stf base.safetensors gate_proj=BF16:$e,1,1 up_proj=BF16:$e,1,1 down_proj=BF16:$e,1,1
        run moe-sft info -b base.safetensors
        [ $e = 4097 ] || [ "$status" = 0 ]
        [ $e = 4096 ] || [[ $status == 65 && \
            $output == "moe-sft: base.safetensors: has 4097 experts (expected at most 4096)" ]]
        # shellcheck disable=SC2046 # words
        stf lora.safetensors $(for m in gate up down; do echo ${m}_lora_{a,b}=BF16:$e,1,1; done)
        run moe-sft info -l lora.safetensors
        [ $e = 4097 ] || [ "$status" = 0 ]
        [ $e = 4096 ] || [[ $status == 65 && \
            $output == "moe-sft: lora.safetensors: has 4097 experts (expected at most 4096)" ]]
        mkdir -p peft
        p=base_model.model.model.layers.0.mlp.experts.$((e - 1)) # the others are zeros in what is made of it
        # shellcheck disable=SC2046
        stf peft/adapter_model.safetensors $(for m in gate up down; do echo $p.${m}_proj.lora_{A,B}.weight=BF16:1,1; done)
        echo '{"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["gate_proj", "up_proj", "down_proj"]}' \
            >peft/adapter_config.json
        run moe-sft convert -l peft -o c.safetensors -f
        [ $e = 4097 ] || [ "$status" = 0 ]
        [ $e = 4096 ] || [[ $status == 65 && $output == *"has an adapter of expert 4096 (expected 4096 experts at most)" ]]
    done
    stf base.safetensors gate_proj=BF16:1,1,1 up_proj=BF16:1,1,1 down_proj=BF16:1,1,1
    # shellcheck disable=SC2046
    stf lora.safetensors $(for m in gate up down; do echo ${m}_lora_{a,b}=BF16:1,1,1; done)
    for k in 1024 1025; do
        stf batch.safetensors input=BF16:1000,1 expert_ids=I64:1000,$k weights=F32:1000,$k
        run bash -c 'ulimit -t 120; moe-sft forward -f -b base.safetensors -l lora.safetensors -i batch.safetensors -o o'
        [ $k = 1025 ] || [ "$status" = 0 ]
        [ $k = 1024 ] || [[ $status == 65 && \
            $output == "moe-sft: batch.safetensors: expert_ids has 1025 slots a token (expected 1 to 1024)" ]]
    done
}

@test "bounds: experts: an adapter of 4097 layers is refused before the first is read" {
    mkdir peft
    py - <<'END'
import json, struct
of = "base_model.model.model.layers.%d.mlp.experts.0.%s_proj.lora_%s.weight"
names = [of % (i, m, ab) for i in range(4097) for m in ("gate", "up", "down") for ab in "AB"]
head = json.dumps({n: {"dtype": "BF16", "shape": [1, 1], "data_offsets": [2 * i, 2 * i + 2]} for i, n in enumerate(names)}).encode()
open("peft/adapter_model.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + bytes(2 * len(names)))
json.dump({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["gate_proj", "up_proj", "down_proj"]},
          open("peft/adapter_config.json", "w"))
END
    run -65 bash -c 'ulimit -t 20; moe-sft convert -l peft --stacked -o x'
    [ "$output" = "moe-sft: peft/adapter_model.safetensors: has adapters of over 4096 layers" ]
}

@test "bounds: experts: a tensor of layer 999999999 takes no memory for the layers before it" {
    py - <<'END'
import mkst, numpy as np
for layer in 4095, 999999999:
    mkst.save("%d.safetensors" % layer, {
        "model.layers.%d.mlp.experts.%d.%s_proj.weight" % (layer, e, m): np.zeros((8, 8), "<f4")
        for e in (0, 1) for m in ("gate", "up", "down")})
END
    run -0 bash -c 'ulimit -v 2000000; moe-sft info -b 4095.safetensors'
    run -65 moe-sft info -b 999999999.safetensors
    [ "$output" = "moe-sft: 999999999.safetensors: model.layers.999999999.mlp.experts.0.gate_proj.weight: is of layer 999999999 (expected at most 4095)" ]
}

@test "bounds: table: 64 times its sources and 64 MiB" {
    local n=$((1 << 16)) out
    mkdir s
    stf s/sae.safetensors encoder.weight=BF16:$n,1 encoder.bias=BF16:$n W_dec=BF16:$n,1 b_dec=BF16:1
    echo '{"k": 1}' >s/cfg.json
    # 4 bytes each of n (2 + out + 1) + 1 + out; 64 (4 n + 2 out) + 64 MiB may be
    for out in 317 318; do
        wide intermediate_size=$out
        run -"$([ $out = 317 ] && echo 0 || echo 65)" lut-precompute -q -m m -s s --dtype f32 \
            --layers 'layers.0.mlp.up_proj' --dry-run -o t
    done
    [[ $output == "lut-precompute: model.layers.0.mlp.up_proj: the table of 65536 latents x 318 outputs has "*" bytes (expected at most 64 times the 262780 of its sources)" ]]
}

@test "bounds: table: no two layers have one file, nor links to it" {
    local cases='gate_proj:a down_proj:a gate_proj:hard down_proj:soft gate_proj:copy'
    mkdir t
    wide
    # two latents of one input and one output
    stf t/a encoder_weight=BF16:2,1 encoder_bias=BF16:2 decoder_weight=BF16:2,1 decoder_bias=BF16:1 \
        precomputed_products=BF16:2,1 bias_product=BF16:1
    cp t/a t/copy
    ln t/a t/hard
    ln -s a t/soft
    for other in $cases; do
        py - "${other%:*}" "${other#*:}" >t/metadata.json <<'END'
import json, sys
what = dict(input_dim=1, output_dim=1, num_basis=2, k_active=1, encoder=dict(input_centering=False))
print(json.dumps(dict(version="1.0", layers={
    "model.layers.0.mlp.up_proj": dict(what, file="a"),
    "model.layers.0.mlp." + sys.argv[1]: dict(what, file=sys.argv[2])})))
END
        for tool in 'hf-infer -q m --ids 1 --top 1 --lut t' 'lut-apply --raw --x-dtype f32 t model.layers.0.mlp.up_proj'; do
            run $tool <<<abc
            if [ $other = gate_proj:copy ]; then
                [ "$status" = 0 ]
            else
                [[ $status == 65 && $output == *": t/metadata.json: "*" of model.layers.0.mlp."*" are one file (expected one for each layer)" ]]
            fi
        done
    done
}

@test "bounds: dump: room is reserved for what a file has, not for what metadata promise" {
    dump n_imgs=10**6 max_patches_per_shard=10**6
    head -c 4000 /dev/zero >few
    run -65 bash -c 'ulimit -f 1000; trap "" XFSZ; saev-write -q -m d/metadata.json -o out few'
    [ "$output" = "saev-write: few: ended after 4000 of 4000000 bytes (image 1000 of 1000000)" ]
}

# bats test_tags=long
@test "bounds: header: 100 million bytes, of spaces or of levels of names" {
    not_sanitized "they take more"
    local n=100000000
    { printf '\0\341\365\005\0\0\0\0{' && head -c $((n - 2)) /dev/zero | tr '\0' ' ' && printf '}'; } >a.safetensors
    run -0 st-inspect verify a.safetensors
    { printf '\001\341\365\005\0\0\0\0' && tail -c +9 a.safetensors && echo; } >b.safetensors
    run -1 st-inspect verify b.safetensors
    [ "${lines[1]}" = "b.safetensors"$'\t'"header length 100000001 (expected at most 100000000)" ]
    made_of '[("%d" % i + "." * 63, [0]) for i in range(40000)]' # a row for two bytes
    run -0 peak st-inspect tree --depth 0 --align a.safetensors
    [ $((output * 1024)) -lt $((160 * $(size a.safetensors))) ]
    run -0 bash -c 'st-inspect tree --depth 0 --json a.safetensors | wc -c'
    [ "$output" -lt $((128 * $(size a.safetensors))) ]
    made_of '[("a", [0] + [1] * 2000000)]'
    run -0 peak st-inspect list a.safetensors
    [ $((output * 1024)) -lt $((128 * $(size a.safetensors))) ]
}

@test "bounds: batch: a header in a stream has 1 MiB" {
    stf base.safetensors gate_proj=BF16:1,1,1 up_proj=BF16:1,1,1 down_proj=BF16:1,1,1
    # shellcheck disable=SC2046 # words
    stf lora.safetensors $(for m in gate up down; do echo ${m}_lora_{a,b}=BF16:1,1,1; done)
    stf batch.safetensors input=BF16:1,1 expert_ids=I64:1,1 weights=F32:1,1
    for n in 1048576 1048577; do
        py - $n >b <<'END'
import struct, sys
b = open("batch.safetensors", "rb").read()
k, n = struct.unpack("<Q", b[:8])[0], int(sys.argv[1])
sys.stdout.buffer.write(struct.pack("<Q", n) + b[8:8 + k].ljust(n) + b[8 + k:])
END
        run -65 --separate-stderr bash -c 'moe-sft train -b base.safetensors -l lora.safetensors -o run - <b'
        [ "$stderr" = "moe-sft: standard input: $([ $n = 1048576 ] && echo "tensor target is missing" ||
            echo "a batch's header length is 1048577 (expected at most 1048576)")" ]
    done
}

@test "bounds: checkpoint: nothing of an SAE's .npz is unpacked before names and shapes fit, nor over 64 times its bytes" {
    one() { # FILE ROWS-OF-W_dec NAME: 16 MiB in all
        py - "$@" <<'END'
import sys, numpy as np
n, d, rows = 1024, 2048, int(sys.argv[2])
np.savez_compressed(sys.argv[1], W_enc=np.zeros((d, n), "<f4"), b_enc=np.zeros(n, "<f4"), W_dec=np.zeros((rows, d), "<f4"),
                    b_dec=np.zeros(d, "<f4"), **{sys.argv[3]: np.zeros(n, "<f4")})
END
    }
    one good.npz 1024 threshold
    mkdir s && mv good.npz s/params.npz
    run -0 sae-train info -l s
    TMPDIR=/nowhere run -73 sae-train info -l s
    for bad in "1023 threshold" "1024 other"; do
        # shellcheck disable=SC2086 # words
        one s/params.npz $bad
        TMPDIR=/nowhere run -65 sae-train info -l s
    done
    [ "$output" = "sae-train: s/params.npz: has other, whose meaning is not known" ]
}

# Rows whose bound another file goes to: NAME, the file, its words there.
# bats test_tags=long
@test "bounds: template: one that runs or grows without end is refused soon" {
    printf '{%% set n = namespace(s=messages[0].content) %%}{%% for i in range(99) %%}{%% set n.s = n.s + n.s %%}{%% endfor %%}' >grows.jinja
    printf '{%% for i in range(99999) %%}{%% for j in range(99999) %%}{{ messages[0].content }}{%% endfor %%}{%% endfor %%}' >runs.jinja
    for f in grows runs; do
        run -65 --separate-stderr bash -c "ulimit -t 40; hf-infer $DEMO --chat --render -p xy --template $f.jinja"
        [[ $stderr == "hf-infer: $f.jinja: line 1: "*" more than "* ]]
        [ -z "$output" ]
    done
    { cat grows.jinja && head -c $((4 << 20)) /dev/zero | tr '\0' ' '; } >long.jinja
    run -65 --separate-stderr hf-infer "$DEMO" --chat --render -p x --template long.jinja
    [ "$stderr" = "hf-infer: long.jinja: is longer than 4194304 bytes" ]
}

elsewhere="npy test/unit/npy.c 65537 bytes (expected at most 65536)
npy test/st-inspect-bytes.bats as long a header as is read
nesting test/unit/pyjson.c nested 65 levels deep
nesting test/unit/st.c 129 levels are refused
patterns test/unit/peft.c takes more than 1049088 steps for 32 bytes
patterns test/unit/regex.c takes more than 1 s for 3000 bytes
patterns test/unit/peft.c 65537 patterns (at most 65536)
adapter test/unit/peft.c has 65 dots (at most 64)
adapter test/unit/peft.c has 65 words (at most 64)
patterns test/unit/tok-refuse.c takes more than 1368576 steps for 20000 bytes
growth test/unit/tok-bounds.c makes a text of 1 byte longer
checkpoint test/kvc-convert-bounds.bats views become at most 4 times what is stored
checkpoint test/unit/sae.c unpacks to 134
checkpoint test/unit/sae.c has 65 tensors (expected at most 64)
checkpoint test/unit/sae.c is a view whose numbers do not follow each
latents test/sae-look-scan.bats --top 4000 and --sample 97 are more than 4096 examples
latents test/sae-look-scan.bats is not a whole number from 0 to 1048576
image test/ref/picture_cases.py 101 scans go over more than 100 times its pixels
image test/ref/picture_cases.py more than 500 scans
image test/unit/source.c an image of 8 GiB that is not there
compressor test/kvc-convert.bats blocks that a sparse file promises take no memory"

@test "bounds: each row of the table has a test, and each test a row" {
    sed -n '/^\.Sh BOUNDS/,/^\.El/s/^\.It //p' "$ROOT/man/tensorutils.7" | sort >rows
    [ "$(wc -l <rows)" -ge 12 ]
    while read -r name file words; do
        grep -qF -e "$words" "$ROOT/$file" || { echo "$file does not say: $words" >&2 && false; }
        echo "$name"
    done <<<"$elsewhere" >named
    sed -n 's/^@test "bounds: \([a-z]*\): .*/\1/p' "$BATS_TEST_FILENAME" >>named
    sort -u named | diff rows - || {
        echo '"<" is a row without a test, ">" a test without a row in tensorutils(7)'
        false
    }
}

@test "bounds: session: tokens that a sparse file promises take no memory" {
    not_sanitized "it limits memory"
    cp -r "$DEMO" m
    sed -i 's/\("max_position_embeddings": \)[0-9]*/\1200000/' m/config.json
    hf-infer m --ids 1,2,3 -n 0 -q --save-session s
    "$PYTHON" - <<'END'
import json
b = open("s", "rb").read()
n = int.from_bytes(b[:8], "little")
head, at = json.loads(b[8:8 + n]), 0
for name, t in sorted(head.items(), key=lambda x: x[1].get("data_offsets", [0])[0]):
    if name != "__metadata__":
        t["shape"] = [150000 if k == 3 else k for k in t["shape"]]
        size = 4
        for k in t["shape"]:
            size *= k
        t["data_offsets"] = [at, at + size]
        at += size
text = json.dumps(head).encode()
with open("s", "wb") as f:
    f.write(len(text).to_bytes(8, "little") + text)
    f.truncate(8 + len(text) + at)
END
    [ "$(stat -c %s s)" -gt 300000000 ]
    ulimit -d 150000 # KiB, but for what is mapped of files
    run -65 hf-infer m --ids 1,2,3 -n 0 -q -j 1 --session s
    [[ $output == "hf-infer: s: is damaged: its numbers are not those that were written"* ]]
    run -65 hf-infer "$DEMO" --ids 1,2,3 -n 0 -q -j 1 --session s
    [[ $output == "hf-infer: s: model_xxh3 is "* ]]
}

@test "bounds: image: what a header of 60000 x 60000 pixels promises takes no memory" {
    not_sanitized "it limits memory"
    py "$ROOT/test/ref/vision_ref.py" make clip clip
    py - <<'END'
import struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
def png(n):
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", n, n, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b""))
open("bomb.png", "wb").write(png(60000))
open("wide.png", "wb").write(png(65536))
END
    [ "$(size bomb.png)" -lt 1024 ]
    run -65 bash -c 'ulimit -v 1500000; hf-infer clip -j 2 --images bomb.png --pixels p.npy'
    [ "$output" = "hf-infer: bomb.png: 60000 x 60000 = 3600000000 pixels (at most 268435456: --max-pixels)" ]
    run -65 hf-infer clip --images wide.png --pixels p.npy
    [[ $output == "hf-infer: wide.png: "*65535* ]]
}

# bats test_tags=long
@test "bounds: image: what an encoder gets takes 12 bytes a pixel, of two images that are large" {
    not_sanitized "it limits memory"
    py "$ROOT/test/ref/vision_ref.py" make clip clip
    py -c 'from PIL import Image; Image.new("RGB", (8, 8)).save("a.png")'
    of() { bash -c "ulimit -v $1; hf-infer clip -j 1 --images a.png --image-size $2 --pixels p.npy -f"; }
    run -0 of $((2 * 4096 * 4096 * 12 / 1024 + 150000)) 4096
    run -70 of $((2 * 4096 * 4096 * 12 / 1024)) 4096
    run -0 of $((256 * 1024 + 150000)) 512
}

# bats test_tags=long
@test "bounds: mask: which rows are left out takes 1.1 bits for each" {
    not_sanitized "it measures memory"
    # 2^26 rows of one number, in holes
    py -c 'import json, os
from saev_dump import *
os.mkdir("d")
json.dump(meta(layers=[0], p=64, cls=False, d=1, n=1 << 20, imgs_a_shard=1 << 20), open("d/metadata.json", "w"))
os.truncate(os.open("d/acts000000.bin", os.O_CREAT | os.O_WRONLY), 4 << 26)'
    saev-read -q -j 1 --sample 3 --raw d >/dev/null # its pages are in the cache
    run -0 peak saev-read -q -j 1 --sample 3 --raw --skip-positions 1 d
    # 1.1 bits of 2^26 are 9011 KiB, and the program some 4 MiB
    [ "$output" -gt 9011 ] && [ "$output" -lt 16000 ]
}
