# SPDX-License-Identifier: ISC
# hf-infer --logprobs: numpy's log-softmax of --logits of the same ids.
load helpers

# agree FILE N: what --json or --jsonl has written to FILE is numpy's, of the
# prompts in 'prompts', ids on a line each.
agree() {
    "$PYTHON" - "$@" <<'END'
import io, json, subprocess, sys, numpy as np
n, n_tokens = int(sys.argv[2]), 0
for line, prompt in zip(open(sys.argv[1]), open('prompts'), strict=True):
    a, prompt = json.loads(line), [int(i) for i in prompt.split()]
    ids = prompt + a['ids']
    x = np.load(io.BytesIO(subprocess.run(['hf-infer', 'm', '--ids', ','.join(map(str, ids)), '--logits', '-'],
                                          check=True, capture_output=True).stdout)).astype(np.float64)
    x = x[len(prompt) - 1:-1]
    x -= x.max(1, keepdims=True)
    x -= np.log(np.exp(x).sum(1, keepdims=True))
    assert len(a['logprobs']) == len(a['ids']) > 0
    for row, id, got in zip(x, a['ids'], a['logprobs']):
        best = np.lexsort((np.arange(len(row)), -row))[:n]
        assert list(got)[0] == 'id' and list(got)[-1] == 'top_logprobs', got
        assert got['id'] == id and abs(got['logprob'] - row[id]) < 1e-12, (got, row[id])
        assert [t['id'] for t in got['top_logprobs']] == list(best), (got, best)
        for t in got['top_logprobs']:
            assert abs(t['logprob'] - row[t['id']]) < 1e-12, (t, row[t['id']])
            assert t['id'] != id or t.items() <= got.items(), (t, got)
        n_tokens += 1
print(n_tokens)
END
}

@test "hf-infer --logprobs: numpy's, whatever penalties, temperature and cuts change" {
    endless
    echo "16 10 16 28" >prompts
    for how in --greedy '--temperature 3 --seed 5' '--temperature 2 --top-k 5 --top-p 0.9 --repetition-penalty 1.5' \
        '--greedy --repetition-penalty 2'; do
        for n in 0 1 20; do
            # shellcheck disable=SC2086
            hf-infer m --ids 16,10,16,28 -n 12 $how --logprobs $n --json >out
            [ "$(agree out $n)" = 12 ]
            # it changes nothing else
            # shellcheck disable=SC2086
            hf-infer m --ids 16,10,16,28 -n 12 $how --json >plain
            "$PYTHON" -c 'import json
a, plain = json.load(open("out")), json.load(open("plain"))
assert a.pop("logprobs") and a == plain'
        done
    done
}

@test "hf-infer --logprobs: each line of --jsonl as alone, the same bytes for -j, --batch and --chunk" {
    endless
    for i in 1 2 3 4 5 6 7; do
        seq -s ' ' $i $((i * 9))
    done >prompts
    sed 's/ /,/g; s/.*/{"ids":[&]}/' prompts >lines
    hf-infer m --jsonl -n 6 --greedy --logprobs 4 <lines >out
    [ "$(agree out 4)" = 42 ]
    for how in '--batch 1' '--batch 3 -j 2' '-j 1' '--chunk 5'; do
        # shellcheck disable=SC2086
        hf-infer m --jsonl -n 6 --greedy --logprobs 4 $how <lines | cmp - out
    done
    while read -r ids && IFS= read -r line <&3; do
        hf-infer m --ids "$ids" -n 6 --greedy --logprobs 4 --json >alone
        [ "$(sed 's/.*"logprobs"/"logprobs"/' alone)" = "${line#*,\"ids\":\[*\],}" ]
    done <prompts 3<out
}

@test "hf-infer --logprobs: a line of --jsonl has its own, or the option's" {
    cat >lines <<'END'
{"ids":[16,10],"logprobs":2}
{"ids":[16,10]}
{"ids":[16,10],"logprobs":null}
{"ids":[16,10],"logprobs":0}
END
    counts() { # OPTION...
        hf-infer "$DEMO" --jsonl -n 1 --greedy "$@" <lines | "$PYTHON" -c 'import json, sys
print([[len(t["top_logprobs"]) for t in json.loads(line).get("logprobs", [])] for line in sys.stdin])'
    }
    [ "$(counts)" = "[[2], [], [], [0]]" ]
    [ "$(counts --logprobs 3)" = "[[2], [3], [3], [0]]" ]
    for bad in 21 -1 1.5 '"1"' true; do
        run -65 --separate-stderr hf-infer "$DEMO" --jsonl -n 1 <<<"{\"ids\":[16],\"logprobs\":$bad}"
        [[ $stderr == 'hf-infer: standard input: line 1: logprobs is '*' (expected '* ]]
        [ -z "$output" ]
    done
}

@test "hf-infer --logprobs: tokens' texts, and the bytes of parts of characters" {
    # where the last norm is of zeros, all logits are 0
    endless
    "$PYTHON" - m/model.safetensors <<'END'
import json, sys
with open(sys.argv[1], "rb") as f:
    n = int.from_bytes(f.read(8), "little")
    head = json.loads(f.read(n))
    data = bytearray(f.read())
begin, end = head["model.norm.weight"]["data_offsets"]
data[begin:end] = bytes(end - begin)
with open(sys.argv[1], "wb") as f:
    text = json.dumps(head).encode()
    f.write(len(text).to_bytes(8, "little") + text + data)
END
    hf-infer m --ids 16 -n 1 --greedy --logprobs 20 --json >out
    "$PYTHON" - out m <<'END'
import json, math, sys
a = json.load(open(sys.argv[1]))["logprobs"]
vocab = json.load(open(sys.argv[2] + "/config.json"))["vocab_size"]
assert len(a) == 1 and a[0]["id"] == 0
assert [t["id"] for t in a[0]["top_logprobs"]] == list(range(20))  # the lower id of equals
for t in a + a[0]["top_logprobs"]:
    assert abs(t["logprob"] + math.log(vocab)) < 1e-12, t
END
    # ids of the byte-level vocabulary are bytes: GPT-2's table, by hand
    hf-infer "$DEMO" --ids 16 -n 200 --temperature 50 --seed 3 --logprobs 20 --json >out
    "$PYTHON" - out "$DEMO" <<'END'
import json, sys
printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
byte_of = {chr(b): b for b in printable}
byte_of.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)})
tok = json.load(open(sys.argv[2] + "/tokenizer.json"))
text = {i: bytes(byte_of[c] for c in s) for s, i in tok["model"]["vocab"].items()}
text.update({t["id"]: t["content"].encode() for t in tok["added_tokens"]})
parts = 0
for got in json.load(open(sys.argv[1]))["logprobs"]:
    for t in [got, *got["top_logprobs"]]:
        b = text[t["id"]]
        assert t["token"] == b.decode(errors="replace") or "\ufffd" in t["token"], t
        try:
            assert t["token"] == b.decode() and "bytes" not in t, t
        except UnicodeDecodeError:
            assert bytes(t["bytes"]) == b and "\ufffd" in t["token"], t
            parts += 1
assert parts > 0
END
    rm m/tokenizer.json
    hf-infer m --ids 16 -n 1 --greedy --logprobs 1 --json >out
    [[ $(cat out) == *'"logprobs":[{"id":0,"logprob":-'*',"top_logprobs":[{"id":0,"logprob":-'*'}]}],'* ]]
}

@test "hf-infer --logprobs: what it does not go with is a usage error" {
    for bad in '' --ids-out '--json --logprobs 21' '--json --logprobs -1' '--nll --json' '--top 3 --json'; do
        # shellcheck disable=SC2086
        run -2 --separate-stderr hf-infer "$DEMO" -p a --logprobs 1 $bad
        [[ ${stderr_lines[0]} == *--logprobs* ]]
        [ -z "$output" ]
    done
}
