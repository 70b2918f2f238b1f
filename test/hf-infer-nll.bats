# SPDX-License-Identifier: ISC
# hf-infer --nll: many texts, and texts longer than the context.
load helpers

@test "hf-infer --nll --stride: numpy's log-likelihoods of each window's logits, as in transformers' guide" {
    head -c 120 "$ROOT/demo/held-out.txt" >text
    ids=$(hf-infer "$DEMO" --encode --special --file text)
    for how in '16 5' '16 16' '16' '20 1' '500 7'; do
        # shellcheck disable=SC2086
        set -- $how
        hf-infer "$DEMO" --nll --file text --ctx "$1" ${2:+--stride $2} -q >tsv
        hf-infer "$DEMO" --nll --file text --ctx "$1" ${2:+--stride $2} -q --json --chunk 3 >json
        "$PYTHON" - "$DEMO" "$1" "${2:-$1}" "$ids" <<'END'
import json, subprocess, sys, numpy as np
model, ctx, stride, ids = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].split()
want, prev_end = {}, 0
for begin in range(0, len(ids), stride):  # the guide's loop
    end = min(begin + ctx, len(ids))
    subprocess.run(['hf-infer', model, '--ids', ','.join(ids[begin:end]), '--logits', 'l.npy', '-f'], check=True)
    x = np.load('l.npy').astype(np.float64)
    x -= x.max(1, keepdims=True)
    x -= np.log(np.exp(x).sum(1, keepdims=True))
    for t in range(max(prev_end, begin + 1), end):
        want[t] = -x[t - 1 - begin, int(ids[t])]
    prev_end = end
    if end == len(ids):
        break
rows = [line.split('\t') for line in open('tsv').read().split('\n')[1:-1]]
assert [int(r[0]) for r in rows] == sorted(want), rows
assert [r[1] for r in rows] == [ids[t] for t in sorted(want)]
assert max(abs(float(r[2]) - want[int(r[0])]) for r in rows) < 2e-5
a = json.load(open('json'))
mean = sum(want.values()) / len(want)
assert a['n_tokens'] == len(want) and abs(a['nll_mean'] - mean) < 2e-5, (a, mean)
assert abs(a['perplexity'] / np.exp(mean) - 1) < 1e-4
END
    done
}

@test "hf-infer --nll: a text longer than the context needs --stride or --ctx" {
    cp -r "$DEMO" m
    sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 24/' m/config.json
    head -c 200 "$ROOT/demo/held-out.txt" >text
    n=$(hf-infer m --encode --special --file text | wc -w)
    run -65 --separate-stderr hf-infer m --nll --file text
    [ -z "$output" ]
    [ "$stderr" = "hf-infer: text: the prompt has $n tokens (expected at most 24, the model's context; --stride scores it in windows)" ]
    [ "$(hf-infer m --nll --file text --stride 12 -q | wc -l)" = "$n" ]
    # at most a window's tokens are fed: the first window is the text cut there
    ids=$(hf-infer m --encode --special --file text | cut -d ' ' -f -24)
    hf-infer m --nll --ids "$ids" -q >first
    hf-infer m --nll --file text --stride 12 -q | head -n 24 | cmp - first
    for bad in '--ctx 25 --stride 5' '--stride 25' '--ctx 8 --stride 9'; do
        # shellcheck disable=SC2086
        run -2 hf-infer m --nll --file text $bad
    done
    for mode in --nll '--nll --json'; do
        # shellcheck disable=SC2086
        run -2 hf-infer m $mode --file text --ctx 1
        [ "${lines[0]}" = "hf-infer: --ctx 1: a window's first token has no score, and there is no other" ]
    done
    run -2 hf-infer m --nll --file text --stride 5 --kvc x
}

@test "hf-infer --nll --jsonl: each line's sums are those of its text alone" {
    cat >docs.jsonl <<'END'
{"id":"a","text":"The capital of France is Paris."}
{"prompt":"1+1=2"}

{"id":3,"ids":[16,10,16,28,17]}
{"id":[4],"ids":[16]}
END
    hf-infer "$DEMO" --nll --jsonl <docs.jsonl >out 2>said
    "$PYTHON" - "$DEMO" <<'END'
import json, math, subprocess, sys
def alone(*how):
    return json.loads(subprocess.run(('hf-infer', sys.argv[1], '--nll', '--json', '-q') + how,
                                     check=True, capture_output=True).stdout)
got = [json.loads(line) for line in open('out')]
want = [{'id': 'a', **alone('-p', 'The capital of France is Paris.')}, alone('-p', '1+1=2'),
        {'id': 3, **alone('--ids', '16,10,16,28,17')},
        {'id': [4], 'n_tokens': 0, 'nll_sum': 0, 'nll_mean': None, 'perplexity': None}]
assert got == want, got
n, total = sum(w['n_tokens'] for w in want), sum(w['nll_sum'] for w in want)
assert open('said').read() == ('hf-infer: %d tokens, mean nll %.6f nats, perplexity %.6g\n'
                               % (n, total / n, math.exp(total / n)))
END
    hf-infer "$DEMO" --nll --jsonl -q --chunk 2 -j 1 --file docs.jsonl -o again
    cmp out again
    hf-infer "$DEMO" --nll --jsonl -q --ctx 4 --stride 2 <docs.jsonl >windows
    hf-infer "$DEMO" --nll --json -q --ids 16,10,16,28,17 --ctx 4 --stride 2 >one
    [ "$(sed -n 3p windows)" = "{\"id\":3,$(tail -c +2 one)" ]
    echo '{"ids":[99999]}' >>docs.jsonl
    run -65 --separate-stderr hf-infer "$DEMO" --nll --jsonl --file docs.jsonl
    [ "${#lines[@]}" = 4 ]
    [ "$stderr" = "hf-infer: docs.jsonl: line 6: token id 99999 is not in the vocabulary (0 to 1023)" ]
    run -2 hf-infer "$DEMO" --nll --jsonl --kvc x --file docs.jsonl
}

@test "hf-infer: logits that are not finite by an adapter or a cache of f16 are theirs, not the model's" {
    cp -r "$DEMO" m
    mkdir a
    py - "$DEMO" <<'END'
import sys
import numpy as np, transformer
from tiny_models import write_safetensors
_, w = transformer.load(sys.argv[1])
q = w["model.layers.1.self_attn.q_proj.weight"]
a, b = np.ones((1, q.shape[1])), np.zeros((q.shape[0], 1))
b[3] = np.nan
write_safetensors("a/adapter_model.safetensors", {"base_model.model.model.layers.1.self_attn.q_proj.lora_%s.weight" % x: y for x, y in (("A", a), ("B", b))}, lambda n: "F32")
w["model.layers.1.self_attn.k_norm.weight"] *= 1e6
write_safetensors("m/model.safetensors", w, lambda n: "F32")
END
    echo '{"peft_type":"LORA","r":1,"lora_alpha":1,"target_modules":["q_proj"],"layers_to_transform":[1]}' >a/adapter_config.json
    for how in "--nll" "-n 1" "--top 1" "--logits l.npy" "--jsonl -n 1"; do
        # shellcheck disable=SC2086
        said() { run -65 --separate-stderr hf-infer "$@" $how <<<'{"ids":[1,2,3]}'; }
        [[ $how == *jsonl* ]] || said() { run -65 --separate-stderr hf-infer "$@" $how --ids 1,2,3; }
        said "$DEMO" --lora a
        [[ $stderr == "hf-infer: a/adapter_model.safetensors: base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight has a NaN or an infinity: the logits after "*" not finite" ]]
        said m --kv-dtype f16
        [[ $stderr == "hf-infer: "*": --kv-dtype f16: a key or value of layer 1 is beyond 65504: the logits after "*" not finite" ]]
    done
    [ ! -e l.npy ]
    run -0 hf-infer m --ids 1,2,3 --nll --kv-dtype bf16
}

@test "hf-infer --ppl: one number, that of the rows of --nll" {
    head -c 300 "$ROOT/demo/held-out.txt" >text
    for how in '' '--ctx 16 --stride 5'; do
        # shellcheck disable=SC2086
        hf-infer "$DEMO" --nll -q --file text $how >tsv
        # shellcheck disable=SC2086
        run -0 --separate-stderr hf-infer "$DEMO" --ppl --file text $how
        [ -z "$stderr" ]
        "$PYTHON" - "$output" <<'END'
import sys, numpy as np
nll = [float(line.split('\t')[2]) for line in open('tsv').read().split('\n')[1:-1]]
assert sys.argv[1] == "%.6g" % float(sys.argv[1])
assert abs(float(sys.argv[1]) / np.exp(np.mean(nll)) - 1) < 1e-5
END
    done
    hf-infer "$DEMO" --nll --json -q --file text >json
    hf-infer "$DEMO" --ppl --json --file text | cmp - json
    hf-infer "$DEMO" --ppl --file text -o file && [ "$(wc -l <file)" = 1 ]
    for bad in --jsonl '--kvc c.bin' '--top 3' --nll; do
        # shellcheck disable=SC2086
        run -2 hf-infer "$DEMO" --ppl --file text $bad
    done
    run -65 --separate-stderr hf-infer "$DEMO" --ppl --ids 1
    [ "$stderr" = "hf-infer: --ids: the prompt has 1 token (--ppl needs at least 2)" ]
}

@test "hf-infer --nll, --top: tokens are text, and a part of a character its bytes" {
    printf 'the capital of Par\303\244is' >text # no token of the demo's has an a with dots
    hf-infer "$DEMO" --nll -q --file text --raw | sed 1d | cut -f 4 >tokens
    [ "$(paste -sd '|' tokens)" = 'he| capital| of| P|ar|\xc3|\xa4|is' ]
    hf-infer "$DEMO" --top 1024 --json -p "1+1=" >top.json
    hf-infer "$DEMO" --top 1024 -p "1+1=" >top.tsv
    "$PYTHON" - "$DEMO/tokenizer.json" <<'END'
import json, sys
vocab = {i: t for t, i in json.load(open(sys.argv[1]))["model"]["vocab"].items()}
rows = dict(l.split("\t")[::2] for l in open("top.tsv").read().split("\n")[4:-1])
# the alphabet of GPT-2's encoder.py
bs = [*range(33, 127), *range(161, 173), *range(174, 256)]
byte = {chr(b): b for b in bs} | {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in bs)}
n = 0
for x in json.load(open("top.json"))["top"]:
    if x["id"] not in vocab:
        continue
    assert x["token"] == vocab[x["id"]]
    raw = bytes(byte[c] for c in x["token"])
    assert x["text"] == raw.decode(errors="replace"), x
    if raw.isascii() and raw.decode().isprintable() and b"\\" not in raw:
        n += 1
        assert rows.get(str(x["id"]), raw.decode()) == raw.decode(), x
assert n > 500, n
END
}
