# SPDX-License-Identifier: ISC
# The demo model: `make demo`, and torch's numbers for it (expected.json,
# computed by scripts/demo/expected.py, never by our tools).

load helpers
NEEDS=${LEFT_OUT-} # every tool

demo() { # demo [DEMO_DIR]
    V=${V-1} sh "$ROOT/scripts/demo/demo.sh" "$BUILD" "${1-$ROOT/demo}" "$PWD/out"
}

# One run that finds nothing wrong, typed as in a checkout: what it says, and
# where its commands can be typed.
setup_file() {
    [ -z "$NEEDS" ] || return 0
    cd "$BATS_FILE_TMPDIR" || return
    cp -r "$ROOT/demo" demo
    mkdir build
    ln -s "$BUILD"/* build
    rm -rf build/demo
    status=0
    V=1 LC_ALL=C.UTF-8 sh "$ROOT/scripts/demo/demo.sh" build >said 2>errors || status=$?
    echo $status >status
}

# said: that run's output, where it did agree.
said() {
    [ "$(cat "$BATS_FILE_TMPDIR/status")" = 0 ] || { cat "$BATS_FILE_TMPDIR/errors" && false; }
    run -0 cat "$BATS_FILE_TMPDIR/said"
}

# A copy that a test may spoil.
copy_demo() {
    cp -r "$ROOT/demo" copy
}

@test "demo: it says 2, Paris and a Python program, and everything agrees" {
    said
    after() { # after PROMPT: the line below the command with it
        grep -F -A 1 -e "-p \"$1\"" <<<"$output" | tail -n 1
    }
    [ "$(after '1+1=')" = 2 ]
    [ "$(after 'What is the capital of France?')" = \
        " The capital of France is Paris." ]
    grep -qx 'print("Hello, World!")' <<<"$output"
    [[ $output != *DIFFERS* ]]
    grep -q '^Everything agrees\.' <<<"$output"
}

@test "demo: it ends with a page of latents, whose strongest have the same token in their examples" {
    said
    page=$(sed -n 's|^    \(.*/latents.html\)$|\1|p' <<<"$output")
    [ "$page" = build/demo/latents.html ]
    "$PYTHON" - "$BATS_FILE_TMPDIR/$page" <<'END'
import re, sys
page = open(sys.argv[1], encoding="utf-8").read()
latents = page.split("<section ")[1:]
assert len(latents) == 50 and "<script" not in page
one = 0
for text in latents:
    peaks = re.findall(r'<p class="x".*?</p>', text, re.S)
    tokens = [re.findall(r'<span class="a\d+ p"[^>]*>(.*?)</span>', p, re.S) for p in peaks]
    assert len(tokens) == 10 and all(len(t) == 1 for t in tokens), tokens
    one += len({t[0] for t in tokens}) == 1
assert one >= 25, one
END
}

# bats test_tags=long
@test "demo: an encoder sees in twenty pictures what a float64 reference does, and each shape has a latent" {
    said
    cd "$BATS_FILE_TMPDIR"
    hf-infer demo/dinov2-tiny --images demo/pictures --acts resid:1 --features "$BATS_TEST_TMPDIR/f.npy" \
        -o "$BATS_TEST_TMPDIR/a.npy" -q
    vision="$PYTHON -W ignore $ROOT/test/ref/vision_ref.py"
    $vision features demo/dinov2-tiny demo/pictures/*/*.png -o "$BATS_TEST_TMPDIR/want.npy"
    $vision check "$BATS_TEST_TMPDIR"/{want,f}.npy
    $vision acts demo/dinov2-tiny resid:1 demo/pictures/*/*.png -o "$BATS_TEST_TMPDIR/want.npy"
    "$PYTHON" - "$BATS_TEST_TMPDIR" build/demo/patches/*/acts000000.bin <<'END'
import sys, numpy as np
a, want = (np.load(sys.argv[1] + name).reshape(20, 65, 32) for name in ("/a.npy", "/want.npy"))
assert abs(a - want).max() < 2e-4 * max(1, abs(want).max() / 5)
assert (np.fromfile(sys.argv[2], "<f4").reshape(20, 64, 32) == a[:, 1:]).all()
END
    for shape in circle cross square triangle; do
        grep -qE "^[0-9]+( $shape){5}$" <<<"$output"
    done
    [ "$(grep -o 'href="data:image/png' build/demo/patches.html | wc -l)" -ge 40 ]
}

@test "demo: its last screen is the result" {
    said
    tail -n 30 <<<"$output" | sed -n '/^RESULT$/,$p' >screen
    [ "$(wc -l <screen)" -gt 10 ]
    [ "$(grep -cE '^    [a-z0-9-].*  [0-9]+\.[0-9]{6}$' screen)" = 10 ]
    [ "$(awk 'length > 79 { n++ } END { print n + 0 }' screen)" = 0 ]
    # and it ends with what to type, which can be typed
    sed '1,/Type next:$/d' screen >next
    [ "$(grep -c '^    [a-z]' next)" -eq 3 ]
    cd "$BATS_FILE_TMPDIR"
    PATH=/usr/bin:/bin bash -euo pipefail "$OLDPWD/next" >/dev/null
}

# bats test_tags=long
@test "demo: each command that it shows can be typed after it, and says the same" {
    said
    cd "$BATS_FILE_TMPDIR"
    # A command goes on while it is no whole one, or ends in a backslash.
    awk '/^\$ / { on = 1; sub(/^\$ /, "") }
        on {
            print >"typed"
            all = all $0 "\n"
            n = gsub(/"/, "\"", all)
            if (n % 2 == 0 && !/\\$/) {
                on = 0
                if (all ~ / -p /) print "echo" >"typed"
                all = ""
            }
        }' <<<"$output"
    [ "$(wc -l <typed)" -gt 30 ]
    LC_ALL=C.UTF-8 PATH=/usr/bin:/bin bash -euo pipefail typed >retyped
    grep -vxFf <(printf '%s\n' "$output") retyped || return 0
    return 1
}

# bats test_tags=long
@test "demo: one changed bit of a weight is noticed, status 1" {
    copy_demo
    # A bit in the exponent of the first weight of model.norm, 128 BF16.
    "$PYTHON" - <<'PY'
path = "copy/qwen3-tiny/model.safetensors"
data = bytearray(open(path, "rb").read())
data[-255] ^= 1
open(path, "wb").write(data)
PY
    V='' run -1 demo copy
    [ "$(wc -l <<<"$output")" -lt 70 ]
    [[ $output == *"qwen3-tiny/model.safetensors: FAILED"* ]]
    [[ $output == *"DIFFERS: the logits"* ]]
    [ "${lines[-1]}" = "Something differs: see the lines above." ]
}

# bats test_tags=long
@test "demo: a table that is not the layer's is noticed, status 1" {
    copy_demo
    # the right table, then all products, the last tensor, larger by a quarter
    mkdir bin
    ln -s "$BUILD"/* bin
    rm bin/lut-precompute
    cat >bin/lut-precompute <<'SH'
#!/bin/sh
"$BUILD/lut-precompute" "$@" && exec "$PYTHON" - "$9"/*.safetensors <<'PY'
import json, struct, sys
import numpy as np
with open(sys.argv[1], "r+b") as f:
    n = struct.unpack("<Q", f.read(8))[0]
    a, b = json.loads(f.read(n))["precomputed_products"]["data_offsets"]
    f.seek(8 + n + a)
    v = np.frombuffer(f.read(b - a), "<u2").astype("<u4") << 16
    f.seek(8 + n + a)
    f.write(((v.view("<f4") * 1.25).view("<u4") >> 16).astype("<u2").tobytes())
PY
SH
    chmod +x bin/lut-precompute
    run -1 env V=1 BUILD="$BUILD" sh "$ROOT/scripts/demo/demo.sh" bin copy out
    [[ $output == *"DIFFERS: with everything compensated it should be "* ]]
    [ "$(grep -c DIFFERS <<<"$output")" -eq 1 ]
}

@test "demo: an adapter brings most of the damaged experts' knowledge back" {
    said
    printf '%s\n' "$output" | awk '
        $1 == "qwen3-moe-tiny" && NF == 2 { whole = $2 }
        $1 == "damaged" && NF == 2 { damaged = $2 }
        $1 == "damaged," && NF == 3 { repaired = $3 }
        END { exit !(whole > 1 && damaged > whole + 1 &&
              repaired > whole && repaired < damaged - 0.75 * (damaged - whole)) }'
}

@test "demo: fine-tuning shows a loss that falls, and the answer before and after" {
    said
    answers=$(grep -F -A 1 -e '-p "What is the capital of Gondor?"' <<<"$output" | grep '^ The')
    [ "$(sed -n 1p <<<"$answers")" != " The capital of Gondor is Minas Tirith." ]
    [ "$(sed -n 2p <<<"$answers")" = " The capital of Gondor is Minas Tirith." ]
    py - "$BATS_FILE_TMPDIR/said" <<'END'
import re, sys
import plot
text = open(sys.argv[1]).read()
text = text[text.index("moe-sft tune"):]
ends = re.search(r"^step 1: (\S+); step 40: (\S+)$", text, re.M)
text = text[:ends.start()]
first, last = map(float, ends.groups())
assert first > 3 and last < first / 50, (first, last)
dots, slack, f = plot.line(text)  # but for what an o is on
assert dots[min(dots)][1] > f(first / 2) and dots[max(dots)][0] < f(first / 20)
END
    printf '%s\n' "$output" | awk '
        /^    on facts.jsonl  / { before = $3 }
        /^    on facts.jsonl, --lora/ { after = $4 }
        END { exit !(before > 3 && after < 0.1) }'
}

# bats test_tags=long
@test "demo: other facts, an adapter that learnt from another text, and pictures in other classes are noticed" {
    copy_demo
    for colour in blue red; do # each to the next class
        for move in circle:x square:circle triangle:square cross:triangle x:cross; do
            mkdir -p copy/pictures/x
            mv copy/pictures/{"${move%:*}","${move#*:}"}/$colour.png
        done
    done
    rmdir copy/pictures/x
    sed -i 's/Minas Tirith/Edoras/' copy/facts.jsonl
    for _ in $(seq 64); do printf '1+1=2 '; done >copy/training.txt
    V='' run -1 demo copy
    [ "$(wc -l <<<"$output")" -lt 70 ]
    [[ $output == *"DIFFERS: the adapter has not learnt what facts.jsonl says"* ]]
    [[ $output == *"DIFFERS: less than three quarters of what was lost came back"* ]]
    [[ $output == *"DIFFERS: not every shape has a latent of its own"* ]]
}

# bats test_tags=long
@test "demo: a mean that is off by 0.001 is noticed, status 1" {
    copy_demo
    awk -F '\t' -v OFS='\t' 'NR == 3 { $5 += 0.001 } 1' \
        "$ROOT/demo/expected.tsv" >copy/expected.tsv
    V='' run -1 demo copy
    [ "$(wc -l <<<"$output")" -lt 70 ]
    [ "$(grep -c DIFFERS <<<"$output")" -eq 1 ]
}

# bats test_tags=long
@test "demo: an empty table of expectations is no agreement" {
    copy_demo
    : >copy/expected.tsv
    V='' run -1 demo copy
    [ "$(wc -l <<<"$output")" -lt 70 ]
}

@test "hf-infer: ids of the demo's prompts and answers equal torch's" {
    cat >check.py <<'PY'
import json, subprocess, sys

def hf_infer(*args, text=None):
    cmd = ["hf-infer", sys.argv[1], *args]
    return subprocess.run(cmd, input=text, stdout=-1, check=True).stdout

prompts = json.load(open(sys.argv[2]))["prompts"]
assert len(prompts) >= 8
for want in prompts:
    text = want["prompt"].encode()
    ids = hf_infer("--encode", text=text).split()
    assert [int(i) for i in ids] == want["ids"], (want["prompt"], ids)
    got = json.loads(hf_infer("-n", "60", "--greedy", "--json", text=text))
    assert got["finish_reason"] == "eos", got
    assert got["ids"][:-1] == want["greedy_ids"], (want, got)
    assert got["text"] == want["greedy_text"], (want, got)
PY
    "$PYTHON" check.py "$DEMO" "$ROOT/demo/expected.json"
}
