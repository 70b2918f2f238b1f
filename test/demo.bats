# The demo model: `make demo`, and torch's numbers for it (expected.json,
# computed by scripts/demo/expected.py, never by our tools).

load helpers

demo() {
    sh "$ROOT/scripts/demo/demo.sh" "$BUILD" "$@"
}

# A copy that a test may spoil.
copy_demo() {
    cp -r "$ROOT/demo" copy
}

@test "demo: it says 2, Paris and a Python program, and everything agrees" {
    run -0 --separate-stderr demo
    after() { # after PROMPT: the line below the command with it
        grep -F -A 1 -e "-p \"$1\"" <<<"$output" | tail -n 1
    }
    [ "$(after '1+1=')" = 2 ]
    [ "$(after 'What is the capital of France?')" = \
        " The capital of France is Paris." ]
    grep -qx 'print("Hello, World!")' <<<"$output"
    [[ $output != *DIFFERS* ]]
    [ "${lines[-1]}" = "Everything agrees." ]
}

@test "demo: one changed bit of a weight is noticed, status 1" {
    copy_demo
    # A bit in the exponent of the first weight of model.norm, 128 BF16.
    "$PYTHON" - <<'PY'
path = "copy/qwen3-tiny/model.safetensors"
data = bytearray(open(path, "rb").read())
data[-255] ^= 1
open(path, "wb").write(data)
PY
    run -1 demo copy
    [[ $output == *"differs	qwen3-tiny/model.safetensors"* ]]
    [[ $output == *"DIFFERS: the logits"* ]]
    [ "${lines[-1]}" = "Something differs: see the lines above." ]
}

@test "demo: a table that is not the layer's is noticed, status 1" {
    copy_demo
    # decoder rows of another length: products that no compensation takes back
    "$PYTHON" - <<'PY'
import json, struct, numpy as np
path = "copy/sae/layers.1.mlp.up_proj/sae.safetensors"
data = bytearray(open(path, "rb").read())
n = struct.unpack("<Q", data[:8])[0]
assert json.loads(data[8:8 + n])["W_dec"]["dtype"] == "BF16"
data[-2000:] = np.full(1000, 0x7f80, "<u2").tobytes()
open(path, "wb").write(data)
PY
    run -1 demo copy
    [[ $output == *DIFFERS* ]]
}

@test "demo: a mean that is off by 0.001 is noticed, status 1" {
    copy_demo
    awk -F '\t' -v OFS='\t' 'NR == 3 { $5 += 0.001 } 1' \
        "$ROOT/demo/expected.tsv" >copy/expected.tsv
    run -1 demo copy
    [ "$(grep -c DIFFERS <<<"$output")" -eq 1 ]
}

@test "demo: an empty table of expectations is no agreement" {
    copy_demo
    : >copy/expected.tsv
    run -1 demo copy
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

@test "demo: the scripts make the same corpus and tokenizer again" {
    "$PYTHON" -B "$ROOT/scripts/demo/corpus.py" corpus
    "$PYTHON" -B "$ROOT/scripts/demo/bpe.py" corpus/train.txt model
    cmp model/tokenizer.json "$DEMO/tokenizer.json"
    cmp model/tokenizer_config.json "$DEMO/tokenizer_config.json"
}

@test "hf-infer --encode: the demo's corpus has the ids that bpe.py gives it" {
    "$PYTHON" -B "$ROOT/scripts/demo/corpus.py" corpus
    PYTHONPATH=$ROOT/scripts/demo "$PYTHON" -B -c '
import sys, bpe
tok = bpe.Tokenizer(sys.argv[1])
print(*tok.encode(open("corpus/train.txt", newline="").read()))
' "$DEMO/tokenizer.json" >want
    [ "$(wc -w <want)" -gt 100000 ]
    hf-infer "$DEMO" --encode <corpus/train.txt >got
    cmp want got
    hf-infer "$DEMO" --decode <got >back
    cmp back corpus/train.txt
}
