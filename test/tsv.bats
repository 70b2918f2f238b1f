# SPDX-License-Identifier: ISC
# What every tool prints as TSV: in columns on a terminal, with separators in
# counts; with tabs and plain digits in a pipe.
load helpers

# both COMMAND...: what a pipe gets and a terminal gets: the same cells, but for
# spaces and separators, and no tab; "in the pipe" is its number of tabs.
both() {
    "$PYTHON" - "$@" <<'END'
import os, pty, re, subprocess, sys
args = sys.argv[1:]
pipe = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
child, ours = pty.fork()
if child == 0:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.execvp(args[0], args)
seen = b""
try:
    while piece := os.read(ours, 65536):
        seen += piece
except OSError:
    pass
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == pipe.returncode, args
seen = seen.decode().replace("\r\n", "\n")
plain = pipe.stdout.decode()
assert "\t" in plain, "%s: no TSV" % args
ends = [len(re.findall(" $", x, re.M)) for x in (plain, seen)]  # tokens may
assert "\t" not in seen and ends[0] == ends[1], seen
bare = [re.sub("[\t ,]", "", x) for x in (plain, seen)]
if "TIMES" not in os.environ:  # two runs measure different ones
    assert bare[0] == bare[1], "%s\n%s\n%s" % (args, plain, seen)
print(seen, end="")
END
}

@test "st-inspect: a terminal gets columns, a pipe gets tabs" {
    run -0 both st-inspect "$DEMO"
    # elements and bytes by hand: 1024 * 128, twice that
    [ "${lines[0]}" = "dtype  shape       elements    bytes  name" ]
    [ "${lines[1]}" = "BF16   [1024,128]   131,072  262,144  model.embed_tokens.weight" ]
    [ "${lines[2]}" = "BF16   [128]            128      256  model.layers.0.input_layernorm.weight" ]
    st-inspect hash "$DEMO" >sums
    for verb in tree "tree --fold" stats "stats --hist" hash meta "hash --check sums"; do
        operand=$DEMO
        [[ $verb != *check* ]] || operand=
        # shellcheck disable=SC2086
        both st-inspect $verb $operand >/dev/null
    done
    both st-inspect diff --all "$DEMO/model.safetensors" "$DEMO/model.safetensors" >/dev/null
}

@test "hf-infer: a terminal gets columns, a pipe gets tabs" {
    run -0 both hf-infer "$DEMO" --ids 10,16,28 --nll
    [ "${lines[0]}" = "position  id        nll  token" ]
    both hf-infer "$DEMO" --places >/dev/null
    both hf-infer "$DEMO" -p "1+1=" --top 5 >/dev/null
    # blocks: 20 000 rows are several
    head -c 60000 "$ROOT/demo/training.txt" | tr '\t' ' ' >text
    both hf-infer "$DEMO" --file text --nll --ctx 64 >/dev/null
}

@test "hf-infer: a terminal gets text with tabs as it is" {
    run -0 --separate-stderr "$PYTHON" -c '
import pty, sys
pty.spawn(["hf-infer", sys.argv[1], "--decode", "--ids", sys.argv[2]])' \
        "$DEMO" "$(printf 'a\tb\n' | hf-infer "$DEMO" --encode --file -)"
    [[ $output == *$'a\tb'* ]]
}

@test "saev-read, sae-train: a terminal gets columns, a pipe gets tabs" {
    hf-infer "$DEMO" -q --acts layers.1 --ctx 64 --acts-meta m.json \
        --file "$ROOT/demo/held-out.txt" | saev-write -q -m m.json -o acts
    both saev-read info acts/* >/dev/null
    both saev-read stats acts/* >/dev/null
    both saev-read --index acts/* >/dev/null
    sae-train -q -k 4 --latents 32 --batch 64 -n 4 -o sae acts/*
    both sae-train info --long sae >/dev/null
    # a terminal gets a picture, too
    run -0 "$PYTHON" -c '
import pty, sys
pty.spawn(["sae-train", "eval", "-s", "sae", sys.argv[1]])' acts/*
    [[ $output == *"fvu   "*"latents by density"* ]]
}

@test "tables of layers: a terminal gets columns, a pipe gets tabs" {
    local sae=$ROOT/demo/sae
    TIMES=1 both lut-precompute -m "$DEMO" -s "$sae" --dry-run -o lut >/dev/null
    lut-precompute -q -m "$DEMO" -s "$sae" -o lut
    both lut-precompute -m "$DEMO" -s "$sae" --resume --verify -o lut >/dev/null
    py -c 'import numpy as np
np.save("x.npy", np.random.default_rng(1).standard_normal((9, 128), "f4"))'
    both lut-apply --report -i x.npy -m "$DEMO" lut model.layers.1.mlp.up_proj >/dev/null
}

@test "kvc-convert, moe-sft: a terminal gets columns, a pipe gets tabs" {
    kvc-convert -q --input "$ROOT/demo/compressor.pth" --output c.bin \
        --head-dim 32 --prefix-order compress_tk,compress_tv
    both kvc-convert --info c.bin >/dev/null
    both kvc-convert --diff c.bin c.bin >/dev/null
    both moe-sft info >/dev/null
    both moe-sft tune -m "$DEMO" -d "$ROOT/demo/facts.jsonl" --dry-run -o x >/dev/null
    TIMES=1 both moe-sft bench --experts 3 --top-k 2 --hidden 64 --intermediate 48 --rank 4 --length 16 --rounds 1 >/dev/null
}

# slowly FILE COMMAND...: the last line of a terminal that is its standard
# error, where its input takes half a second.
slowly() {
    "$PYTHON" - "$@" <<'END' | tr -d '\r' | sed 's/.*\x1b\[K//' | tail -n 1
import os, pty, subprocess, sys, time
data = open(sys.argv[1], "rb").read()
ours, theirs = pty.openpty()
run = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stderr=theirs, stdout=subprocess.DEVNULL)
os.close(theirs)
for i in range(5):
    run.stdin.write(data[i * len(data) // 5:(i + 1) * len(data) // 5])
    run.stdin.flush()
    time.sleep(0.12)
run.stdin.close()
seen = b""
try:
    while piece := os.read(ours, 65536):
        seen += piece
except OSError:
    pass
assert run.wait() == 0
sys.stdout.buffer.write(seen)
END
}

@test "saev-write: a long run leaves a last line on a terminal, with -q none" {
    py -c 'import json, numpy as np
from saev_dump import *
json.dump(meta(n=200, d=64, imgs_a_shard=40), open("m.json", "w"))
dump("want", n=200, d=64, imgs_a_shard=40).tofile("a.f32")'
    H=$(saev-write -q --hash -m m.json)
    said=$(slowly a.f32 saev-write -m m.json -o D)
    [[ $said == "saev-write: $H: 5 shards written, 0 kept, 200 images in all; "*" s, "* ]]
    [ -z "$(slowly a.f32 saev-write -q -f -m m.json -o D)" ]
}

# bats test_tags=long
@test "lut-apply, lut-precompute calibrate, moe-sft train: a long run leaves a last line, too" {
    lut-precompute -q -m "$DEMO" -s "$ROOT/demo/sae" --layers '*.1.mlp.up_proj' -o lut
    py -c 'import numpy as np; np.save("x.npy", np.random.default_rng(1).standard_normal((500, 128), "f4"))'
    layer=layers.1.mlp.up_proj
    said=$(slowly x.npy lut-apply lut $layer -o y.npy)
    [[ $said =~ ^"lut-apply: standard input: 500 rows in "[0-9]+" s"$ ]] || { echo "$said"; false; }
    [ -z "$(slowly x.npy lut-apply -q lut $layer -f -o y.npy)" ]
    said=$(slowly x.npy lut-precompute calibrate -m "$DEMO" lut $layer)
    [[ $said =~ ^"lut-precompute: lut: elbow "[0-9.]+" of model.$layer, from 500 rows in "[0-9]+" s"$ ]] || { echo "$said"; false; }
    "$PYTHON" "$ROOT/test/ref/moe_train.py" make data qlen=64
    cd data
    said=$(slowly /dev/null moe-sft train -b base.safetensors -l student.safetensors -o run -n 200 --log log b?.safetensors)
    [[ $said =~ ^"moe-sft: run: 200 steps, loss "[0-9.e+-]+" to "[0-9.e+-]+", "[0-9]+" s"$ ]] || { echo "$said"; false; }
    # the numbers are the log's
    [ "$(sed 's/.*loss \(.*\) to \(.*\),.*/\1 \2/' <<<"$said")" = "$(awk 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "loss") c = i }
        NR == 2 { a = $c } END { printf "%.4g %.4g", a, $c }' log)" ]
}
