# SPDX-License-Identifier: ISC
# hf-infer: what a user types.  The demo model's expectations were computed by
# torch (demo/expected.tsv), those of stories260K by its reference.
load helpers

# npy FILE EXPRESSION: prints a numpy expression of the array a.
npy() {
    "$PYTHON" -c "import numpy as np, sys
a = np.load('$1')
print($2)"
}

# tiny: a copy of the demo model's directory that a test may spoil.
tiny() {
    cp -r "$DEMO" m
}

@test "hf-infer -p: prints the continuation only, as torch continues" {
    while IFS=$'\t' read -r prompt _ ids answer _; do
        [ "$prompt" != prompt ] || continue
        [[ $prompt$answer != *\\* ]] || continue # escaped: see demo.bats
        run -0 --separate-stderr hf-infer "$DEMO" -p "$prompt" \
            -n "$(wc -w <<<"$ids")" --greedy
        [ "$output" = "$answer" ]
        [ -z "$stderr" ]
    done <"$ROOT/demo/expected.tsv"
}

@test "hf-infer: prompt from argument, file and standard input are the same" {
    printf 'What is the capital of France?' >p
    a=$(hf-infer "$DEMO" -p "$(cat p)" --greedy)
    [ -n "$a" ]
    [ "$(hf-infer "$DEMO" --file p --greedy)" = "$a" ]
    [ "$(hf-infer "$DEMO" --greedy <p)" = "$a" ]
    [ "$(hf-infer "$DEMO" --greedy --file <(cat p))" = "$a" ]
}

@test "hf-infer --ids-out: the ids torch chose, one line, no tokenizer" {
    tiny
    rm m/tokenizer.json
    while IFS=$'\t' read -r _ ids answer _; do
        [ "$ids" != ids ] || continue
        n=$(wc -w <<<"$answer")
        run -0 --separate-stderr hf-infer m --ids "${ids// /,}" -n "$n" \
            --greedy --ids-out
        [ "$output" = "$answer" ]
    done <"$ROOT/demo/expected.tsv"
}

@test "hf-infer --logits: f32 [tokens, vocab], without a tokenizer" {
    tiny
    rm m/tokenizer.json
    hf-infer m --ids 16,10,16,28 --logits out.npy
    [ "$(npy out.npy 'a.dtype, a.shape, a.flags.c_contiguous')" = \
        "float32 (4, $("$PYTHON" -c "import json
print(json.load(open('m/config.json'))['vocab_size'])")) True" ]
}

@test "hf-infer --logits: an existing file stays without --force" {
    echo old >out.npy
    run -73 --separate-stderr hf-infer "$DEMO" --ids 1,2 --logits out.npy
    [ "$stderr" = "hf-infer: out.npy: exists already (--force replaces it)" ]
    [ "$(cat out.npy)" = old ]
    run -0 hf-infer "$DEMO" --ids 1,2 --logits out.npy --force
    [ "$(npy out.npy 'a.shape[0]')" = 2 ]
}

@test "hf-infer --top: mean, std and top 5 are torch's to 1e-4" {
    while IFS=$'\t' read -r prompt _ _ _ mean std top; do
        [ "$prompt" != prompt ] || continue
        [ "$prompt" = "${prompt//\\/}" ] || continue
        hf-infer "$DEMO" -p "$prompt" --top 5 >top.tsv
        "$PYTHON" - "$mean" "$std" "$top" <<'END'
import sys
rows = [l.rstrip('\n').split('\t') for l in open('top.tsv')]
assert rows[0][:2] == ['id', 'logit'] and len(rows) == 8
want = [float(v) for v in sys.argv[1:3]]
want += [float(p.split(':')[1]) for p in sys.argv[3].split()[:5]]
got = [float(r[1]) for r in rows[1:]]
assert max(abs(a - b) for a, b in zip(got, want)) < 1e-4, (got, want)
assert [r[0] for r in rows[3:]] == [p.split(':')[0]
                                    for p in sys.argv[3].split()[:5]]
END
    done <"$ROOT/demo/expected.tsv"
}

@test "hf-infer --top: std divides by n - 1, as torch.std does" {
    hf-infer "$DEMO" --ids 16,10,16,28 --logits l.npy
    hf-infer "$DEMO" --ids 16,10,16,28 --top 1 --json >top
    "$PYTHON" - <<'END'
import json, numpy as np
x = np.load('l.npy')[-1].astype(np.float64)
got = json.load(open('top'))['std']
assert abs(got / x.std(ddof=1) - 1) < 1e-9, (got, x.std(ddof=1), x.std())
END
}

@test "hf-infer --nll: equals numpy's log-softmax of --logits" {
    printf 'The capital of France is Paris.' >p
    hf-infer "$DEMO" --nll <p >nll.tsv 2>summary
    hf-infer "$DEMO" --file p --logits l.npy
    "$PYTHON" - "$(hf-infer "$DEMO" --encode <p)" <<'END'
import sys, re, numpy as np
ids = [int(i) for i in sys.argv[1].split()]
x = np.load('l.npy').astype(np.float64)
x -= x.max(1, keepdims=True)
logp = x - np.log(np.exp(x).sum(1, keepdims=True))
want = [-logp[i, ids[i + 1]] for i in range(len(ids) - 1)]
rows = [l.rstrip('\n').split('\t') for l in open('nll.tsv')]
assert rows[0] == ['position', 'id', 'nll', 'token'], rows[0]
assert [int(r[0]) for r in rows[1:]] == list(range(1, len(ids)))
assert [int(r[1]) for r in rows[1:]] == ids[1:]
assert max(abs(float(r[2]) - w) for r, w in zip(rows[1:], want)) < 1e-5
ppl = float(re.search(r'perplexity (\S+)', open('summary').read()).group(1))
assert abs(ppl / np.exp(np.mean(want)) - 1) < 1e-4
END
    run -0 --separate-stderr hf-infer "$DEMO" --nll --json -q --file p
    [ -z "$stderr" ]
    "$PYTHON" -c "import json, sys; d = json.loads(sys.argv[1])
assert set(d) == {'n_tokens', 'nll_sum', 'nll_mean', 'perplexity'}, d" "$output"
}

@test "hf-infer --nll: stories260K's likelihoods are the reference's" {
    need_shared stories260K
    S=$SHARED/stories260K
    ids=$("$PYTHON" -c "import json
print(*json.load(open('$S/expected.json'))['ids'])")
    hf-infer "$S" --nll --ids - <<<"$ids" >nll.tsv 2>/dev/null
    "$PYTHON" -c "import json
want = json.load(open('$S/expected.json'))['nll']
got = [float(l.split('\t')[2]) for l in open('nll.tsv').readlines()[1:]]
assert len(got) == len(want)
assert max(abs(a - b) for a, b in zip(got, want)) < 2e-4"
}

@test "hf-infer: stories260K's greedy ids and text are the reference's" {
    need_shared stories260K
    S=$SHARED/stories260K
    "$PYTHON" - "$S" <<'END'
import json, subprocess, sys
S = sys.argv[1]
def run(*args, **kw):
    return subprocess.run(('hf-infer', S) + args, check=True,
                          capture_output=True, text=True, **kw).stdout
for g in json.load(open(S + '/greedy.json')):
    n = str(len(g['greedy_ids']))
    ids = run('--ids', ','.join(map(str, g['prompt_ids'])), '-n', n,
              '--greedy', '--ids-out')
    assert [int(i) for i in ids.split()] == g['greedy_ids']
    text = run('-p', g['prompt'], '-n', n, '--greedy')
    whole = run('--decode', '--skip-special', input=' '.join(
        map(str, g['prompt_ids'] + g['greedy_ids'])))
    assert g['prompt'] + text == whole, (text, whole)
END
}

@test "hf-infer: the same bytes for any -j and --chunk" {
    ids=$(seq -s, 1 7 900)
    hf-infer "$DEMO" --ids "$ids" --logits a.npy -j 1 --chunk 1
    for how in '-j 1 --chunk 200' '-j 2 --chunk 7' '-j 3 --chunk 64' '-j 2' '-j 1'; do
        # shellcheck disable=SC2086
        hf-infer "$DEMO" --ids "$ids" --logits b.npy -f $how
        cmp a.npy b.npy
    done
}

@test "hf-infer --nll, --top: the same bytes for any -j and --chunk" {
    ids=$(seq -s, 1 3 400)
    for what in --nll '--nll --json' '--top 20' '--top 20 --json'; do
        # shellcheck disable=SC2086
        same_for '-j 1 --chunk 1' '-j 1' '-j 2' '-j 3 --chunk 50' -- \
            hf-infer "$DEMO" --ids "$ids" $what
    done
}

@test "hf-infer --compute and --kv-dtype: near f32, the same for any -j, --chunk" {
    ids=$(seq -s, 1 7 900)
    hf-infer "$DEMO" --ids "$ids" --logits f32.npy
    near() {
        hf-infer "$DEMO" --ids "$ids" --logits a.npy -f "${@:3}"
        for how in '-j 1 --chunk 1' '-j 2 --chunk 200' '-j 3 --chunk 7'; do
            # shellcheck disable=SC2086
            hf-infer "$DEMO" --ids "$ids" --logits b.npy -f "${@:3}" $how
            cmp a.npy b.npy
        done
        "$PYTHON" -c "import numpy as np
a, b = np.load('f32.npy').astype('f8'), np.load('a.npy').astype('f8')
error = np.sqrt(np.mean((a - b) ** 2)) / a.std()
assert $1 < error < $2, error"
    }
    near 1e-4 0.03 --compute bf16
    near 1e-5 0.003 --kv-dtype f16
    near 1e-4 0.02 --kv-dtype bf16
    hf-infer "$DEMO" --ids "$ids" --logits b.npy -f --compute f32 --kv-dtype f32
    cmp f32.npy b.npy
    run -2 hf-infer "$DEMO" --ids 1 --compute f16
    run -2 hf-infer "$DEMO" --ids 1 --kv-dtype int8
}

@test "hf-infer: 4096 tokens in bounded memory, a smaller cache in less" {
    "$PYTHON" "$ROOT/scripts/random-model.py" --shape qwen3-0.6b \
        --set hidden_size=32 --set num_hidden_layers=1 --set head_dim=256 \
        --set num_attention_heads=2 --set num_key_value_heads=2 \
        --set intermediate_size=32 --set vocab_size=512 \
        --set max_position_embeddings=4097 m
    "$PYTHON" -c "print(*[i * i % 509 for i in range(4096)])" >ids
    # 2 x 2 heads x 256 x 4096 numbers: 16 MiB in f32; a score of each pair is 64
    f32=$(peak hf-infer m --ids - -n 1 --ids-out -j 2 <ids)
    f16=$(peak hf-infer m --ids - -n 1 --ids-out -j 2 --kv-dtype f16 <ids)
    echo "f32 $f32 KiB, f16 $f16 KiB"
    [ "$f32" -lt $((40 << 10)) ]
    [ "$f16" -le $((f32 - (6 << 10))) ]
}

@test "hf-infer --encode and --decode: text comes back byte for byte" {
    printf 'Hello,\tworld  \n\n x=1; \xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80 <|im_end|> end' >t
    hf-infer "$DEMO" --encode <t >ids
    [ "$(wc -l <ids)" = 1 ]
    hf-infer "$DEMO" --decode <ids | cmp - t
    hf-infer "$DEMO" --decode --skip-special <ids | grep -q '<|im_end|>' && false
    hf-infer "$DEMO" --decode --file ids | cmp - t
    hf-infer "$DEMO" --encode --plain <t | hf-infer "$DEMO" --decode \
        --skip-special | cmp - t
}

@test "hf-infer --encode: nothing in, an empty line out" {
    run -0 hf-infer "$DEMO" --encode </dev/null
    [ -z "$output" ]
    [ "$(hf-infer "$DEMO" --encode </dev/null | wc -c)" = 1 ]
    [ "$(hf-infer "$DEMO" --decode </dev/null | wc -c)" = 0 ]
}

@test "hf-infer --encode --special: adds what the tokenizer's template says" {
    need_shared stories260K
    S=$SHARED/stories260K
    [ "$(printf 'Once upon a time' | hf-infer "$S" --encode)" = "403 407 261 378" ]
    [ "$(printf 'Once upon a time' | hf-infer "$S" --encode --special)" = \
        "1 403 407 261 378" ]
}

@test "hf-infer: invalid UTF-8 warns and is U+FFFD; --strict-utf8 refuses" {
    printf 'ab\xffcd' >bad
    run -0 --separate-stderr hf-infer "$DEMO" --encode --file bad
    [ "$stderr" = "hf-infer: bad: not UTF-8 in 1 place: U+FFFD there" ]
    [ "$(hf-infer "$DEMO" --decode <<<"$output")" = $'ab\xef\xbf\xbdcd' ]
    for how in '--encode --file bad' '--file bad --top 1' '--file bad --chat -n 1' '--acts resid:0 --file bad'; do
        # shellcheck disable=SC2086
        run -65 --separate-stderr hf-infer "$DEMO" --strict-utf8 $how
        [ -z "$output" ]
        [ "$stderr" = "hf-infer: bad: byte 2 (0xff) is not UTF-8" ]
    done
    run -65 --separate-stderr hf-infer "$DEMO" --strict-utf8 --encode <bad
    [ "$stderr" = "hf-infer: standard input: byte 2 (0xff) is not UTF-8" ]
    run -65 --separate-stderr hf-infer "$DEMO" --strict-utf8 --encode -p $'\xe4x'
    [ "$stderr" = "hf-infer: -p: byte 0 (0xe4) is not UTF-8" ]
    # of a chat, the bytes are the user's, and the system's are others
    run -65 --separate-stderr hf-infer "$DEMO" --strict-utf8 -p x --chat --system $'abc\xff'
    [ "$stderr" = "hf-infer: --system: byte 3 (0xff) is not UTF-8" ]
    run -0 --separate-stderr hf-infer "$DEMO" --encode -p x --chat --system $'\xff\xff'
    [ "$stderr" = "hf-infer: --system: not UTF-8 in 2 places: U+FFFD there" ]
    [ "$output" = "$(hf-infer "$DEMO" --encode -p x --chat --system $'\xef\xbf\xbd\xef\xbf\xbd')" ]
}

@test "hf-infer --stop: ends before the text, also across tokens" {
    whole=$(hf-infer "$DEMO" -p "What is the capital of France?" --greedy)
    [[ $whole == *"is Paris"* ]]
    run -0 hf-infer "$DEMO" -p "What is the capital of France?" --greedy \
        --stop "is Par"
    [ "$output" = "${whole%%is Par*}" ]
    run -0 hf-infer "$DEMO" -p "What is the capital of France?" --greedy \
        --stop "is Parma" --stop zzz
    [ "$output" = "$whole" ]
    run -0 hf-infer "$DEMO" -p "What is the capital of France?" --greedy \
        --stop "is Par" --json
    [[ $output == *'"finish_reason":"stop"'* ]]
}

@test "hf-infer --json: ids, text and why it ended" {
    run -0 --separate-stderr hf-infer "$DEMO" -p "1+1=" --greedy --json
    "$PYTHON" -c "import json, sys; d = json.loads(sys.argv[1])
assert set(d) == {'prompt_ids', 'ids', 'text', 'finish_reason'}
assert d['text'] == '2' and d['finish_reason'] == 'eos'
assert d['prompt_ids'] == [16, 10, 16, 28] and d['ids'][0] == 17" "$output"
    run -0 --separate-stderr hf-infer "$DEMO" -p "1+1=" -n 0 --json
    [[ $output == *'"ids":[],"text":"","finish_reason":"length"'* ]]
}

@test "hf-infer --json: bytes that are no UTF-8 are U+FFFD, as Python has them" {
    endless # of 200 draws one in eight is a byte that begins or ends no character
    for seed in 1 2 3; do
        printf '{"ids":[300,0,790]}\n' |
            hf-infer m --jsonl -n 200 --temperature 9 --seed $seed >lines
        hf-infer m --ids 300,0,790 -n 200 --temperature 9 --seed $seed --json >json
        "$PYTHON" -c 'import json; print(*json.load(open("json"))["ids"])' |
            hf-infer "$DEMO" --decode --skip-special >bytes
        "$PYTHON" -c 'import json
want = open("bytes", "rb").read().decode("utf-8", "replace")
assert "\ufffd" in want
for file in "json", "lines":
    assert json.load(open(file, encoding="utf-8"))["text"] == want, file'
    done
}

@test "hf-infer: a stored lm_head that is not the embedding is used, with a warning" {
    py - "$DEMO" <<'END'
import json, os, sys
import numpy as np, transformer
from tiny_models import write_safetensors
config, w = transformer.load(sys.argv[1])
assert config["tie_word_embeddings"] and "lm_head.weight" not in w
same = w["model.embed_tokens.weight"]
other = np.array(same)
other[-3] *= 2
for name, head, tied in (("same", same, True), ("two", other, True),
                         ("untied", other, False)):
    os.mkdir(name)
    json.dump(dict(config, tie_word_embeddings=tied), open(name + "/config.json", "w"))
    write_safetensors(name + "/model.safetensors", dict(w, **{"lm_head.weight": head}),
                      lambda n: "BF16")
END
    ids='--ids 5,6,7,8 --nll'
    tiny
    rm m/tokenizer.json # as in the others
    for m in m same two untied; do
        # shellcheck disable=SC2086
        hf-infer $m $ids >$m.nll 2>$m.said
    done
    cmp m.nll same.nll
    cmp two.nll untied.nll
    run -1 cmp -s same.nll two.nll
    grep -qFx "hf-infer: two: lm_head.weight is not the embedding, though tie_word_embeddings is true: both are used" two.said
    run -1 grep lm_head same.said untied.said
}

@test "hf-infer -v: says model, instruction set, threads, sampler and speed" {
    run -0 --separate-stderr env TU_ISA=scalar hf-infer "$DEMO" -p "1+1=" -v \
        --temperature 0.5 --seed 9 -j 1 --top-k 1
    [ "$output" = 2 ]
    [[ $stderr == *"qwen3"*"$(uname -n), scalar, 1 thread"*"temperature 0.5"*"seed 9"*"tokens/s"* ]]
    for o in --nll "--top 1" "--logits l.npy" "--acts resid:0 -o a"; do
        # shellcheck disable=SC2086
        run -0 --separate-stderr hf-infer "$DEMO" --ids 1,2,3,4 $o -v
        [[ $stderr == *"$(uname -n), "*" tokens in "*" s ("*" tokens/s)"* ]]
    done
    run -0 --separate-stderr hf-infer "$DEMO" --jsonl -v --greedy -n 2 <<<'{"ids": [1, 2, 3]}'
    [[ $stderr == *"$(uname -n), "*"1 prompt, 3 tokens in, 0 of them shared, 2 out, in "*" s ("*" tokens/s out)"* ]]
}

@test "hf-infer -v: as many threads as the process may use CPUs" {
    linux_only
    cpus=$(taskset -cp $$)
    run -0 --separate-stderr taskset -c "$(grep -o '[0-9]*' <<<"${cpus##*:}" | head -n 1)" \
        hf-infer "$DEMO" --ids 1,2 --top 1 -v
    [[ $stderr == *", 1 thread"* ]]
}

@test "hf-infer: a model in another format is refused by the format's name" {
    # the first bytes by each format's specification
    printf 'GGUF\3\0\0\0\0\0\0\0' >x.gguf
    printf 'PK\3\4aaaaaaaaaaaa' >x.pth
    printf '\200\2}q\0aaaaaaa' >old.pth
    echo 'hello world' >note
    cp "$DEMO/model.safetensors" one.safetensors
    is() { # STATUS LINE MODEL, for what needs the weights, and the tokenizer alone
        run "-$1" hf-infer "$3" -p x -n 1
        [ "$output" = "hf-infer: $3: $2" ]
    }
    is 65 "is a GGUF file (llama.cpp's), not a model directory" x.gguf
    is 65 "is a zip archive (PyTorch's .pth and .bin are), not a model directory" x.pth
    is 65 "is a pickle (PyTorch's old .pth and .bin are), not a model directory" old.pth
    is 65 "is a safetensors file, not a model directory" one.safetensors
    is 65 "is a text file, not a model directory" note
    is 66 "No such file or directory" nothere
    mkdir g
    cp x.gguf g/model-q4.gguf
    is 66 "not a model directory (config.json is missing); model-q4.gguf is a GGUF file (llama.cpp's)" g
    tiny
    rm m/model.safetensors
    none="has no model.safetensors and no model.safetensors.index.json"
    is 66 "$none" m
    cp x.pth m/pytorch_model.bin
    cp old.pth m/training_args.bin
    is 66 "$none; pytorch_model.bin is a zip archive (PyTorch's .pth and .bin are)" m
    [ "$(hf-infer m --encode -p 1+1=)" = "16 10 16 28" ] # needs no weights
}

@test "hf-infer: a context overflow is an error before anything is printed" {
    max=$("$PYTHON" -c "import json
print(json.load(open('$DEMO/config.json'))['max_position_embeddings'])")
    run -65 --separate-stderr hf-infer "$DEMO" -p "1+1=" -n "$max"
    [ -z "$output" ]
    [ "$stderr" = "hf-infer: -p: the prompt has 4 tokens and -n is $max, together $((max + 4)) (expected at most $((max + 1)), one more than the model's context)" ]
    ids=$(seq -s, 1 $((max + 1)))
    run -65 --separate-stderr hf-infer "$DEMO" --ids "$ids"
    [ "$stderr" = "hf-infer: --ids: the prompt has $((max + 1)) tokens (expected at most $max, the model's context)" ]
    said=$stderr
    run -65 --separate-stderr hf-infer "$DEMO" --ids "$ids" -n 0
    [ "$stderr" = "$said" ]
    run -65 --separate-stderr hf-infer "$DEMO" --ids "$ids" --logits x.npy
    [ ! -e x.npy ]
    [ -z "$(ls -A | grep tmp)" ]
    run -0 hf-infer "$DEMO" --ids "$(seq -s, 1 "$max")" --top 1
}

@test "hf-infer: without -n, a full context ends the text and is told" {
    max=$("$PYTHON" -c "import json
print(json.load(open('$DEMO/config.json'))['max_position_embeddings'])")
    endless
    ids=$(seq -s, 1 $((max - 5)))
    run -0 --separate-stderr hf-infer m --ids "$ids" --greedy --ids-out
    [ "$(wc -w <<<"$output")" = 5 ]
    [ "$stderr" = "hf-infer: m: the context of $max tokens is full: the text ends here" ]
    run -0 --separate-stderr hf-infer m --ids "$ids" --greedy --json -q
    [[ $output == *'"finish_reason":"context"}' ]]
    [ -z "$stderr" ]
    run -0 --separate-stderr hf-infer m --ids "$ids" --greedy --json -n 5
    [[ $output == *'"finish_reason":"length"}' ]]
    [ -z "$stderr" ]
}

@test "hf-infer: logits that are not finite are refused, not used" {
    tiny
    "$PYTHON" - <<'END'
import json, struct
f = open('m/model.safetensors', 'r+b')
n = struct.unpack('<Q', f.read(8))[0]
a, b = json.loads(f.read(n))['model.norm.weight']['data_offsets']
f.seek(8 + n + a)
f.write(b'\xff' * (b - a))
END
    run -65 --separate-stderr hf-infer m --ids 1,2 --ids-out
    [ -z "$output" ]
    [ "$stderr" = "hf-infer: m: the logits after 2 tokens are not finite" ]
    run -65 --separate-stderr hf-infer m --ids 1,2 --top 3 --json
    [ -z "$output" ]
    [ "$stderr" = "hf-infer: m: the logits after 2 tokens are not finite" ]
    run -65 --separate-stderr hf-infer m --ids 1,2,3 --nll -o nll.tsv
    [ "$stderr" = "hf-infer: m: the logits after 1 token are not finite" ]
    [ ! -e nll.tsv ]
    run -65 hf-infer m --ids 1,2,3 --logits l.npy
    [ "$output" = "$stderr" ] && [ ! -e l.npy ]
}

@test "hf-infer: a terminal gets a new line at the end, a pipe does not" {
    [ "$(hf-infer "$DEMO" -p "1+1=" --greedy | wc -c)" = 1 ]
    "$PYTHON" - "$DEMO" <<'END'
import os, pty, subprocess, sys
master, slave = pty.openpty()
run = ['hf-infer', sys.argv[1], '--greedy']
subprocess.run(run + ['-p', '1+1='], stdout=slave, check=True)
said = b''
while len(said) < 3:  # in one piece or several
    said += os.read(master, 1024)
assert said == b'2\r\n', said
asks = subprocess.run(run, stdin=slave, capture_output=True)
assert asks.returncode == 2 and asks.stdout == b''
assert asks.stderr == b"""hf-infer: no prompt: give -p, --file, --ids or --messages, or pipe it in
Try 'hf-infer --help'
""", asks.stderr
END
}

@test "hf-infer: a piece of text is written as its token is made" {
    endless
    "$PYTHON" - <<'END'
# A socket of records keeps the writes apart, whenever they are read.
import json, socket, subprocess
run = ["hf-infer", "m", "-p", "Hello", "-n", "200", "--temperature", "3", "--seed", "2"]
whole = json.loads(subprocess.check_output(run + ["--json"]))
ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
child = subprocess.Popen(run, stdout=its)
its.close()
pieces = list(iter(lambda: ours.recv(65536), b""))
assert child.wait() == 0
assert b"".join(pieces).decode(errors="replace") == whole["text"]
# one a token, but for special ones and parts of characters: 193, sigma 2.5
assert 140 < len(pieces) <= 200, len(pieces)
END
}

@test "hf-infer: text comes while it is made, and a reader may go" {
    endless
    run --separate-stderr bash -c 'set -o pipefail
        hf-infer m -p Hello -n 400 --greedy | head -c 10'
    [ "$status" = 141 ] || [ "$status" = 0 ]
    [ -z "$stderr" ]
    mkfifo pipe
    hf-infer m -p Hello -n 400 --greedy -j 1 >pipe &
    exec 5<pipe
    read -r -N 1 -t 60 first <&5
    [ -n "$first" ]
    exec 5<&-
    wait $! || [ $? = 141 ]
}

@test "hf-infer: ids beyond the vocabulary, and what is no id, are refused" {
    # before anything is computed or written, whatever is asked for
    ids=$(seq -s, 1 400),99999
    for how in '-n 1' '--top 1' '--nll' '--logits -' '--acts resid:0' '--decode'; do
        # shellcheck disable=SC2086
        run -65 --separate-stderr hf-infer "$DEMO" --ids "$ids" $how
        [ -z "$output" ]
        [ "$stderr" = "hf-infer: --ids: token id 99999 is not in the vocabulary (0 to 1023)" ]
        # shellcheck disable=SC2086
        run -65 --separate-stderr hf-infer "$DEMO" --ids - $how <<<"$ids"
        [ "$stderr" = "hf-infer: standard input: token id 99999 is not in the vocabulary (0 to 1023)" ]
    done
    for bad in 1,x -1 1.5 4294967296 '1;2'; do
        run -65 --separate-stderr hf-infer "$DEMO" --ids "$bad" --top 1
        [[ $stderr == *"is not a token id"* ]]
        [ "${#stderr_lines[@]}" = 1 ]
    done
    echo 5 9999999 >ids
    run -65 --separate-stderr hf-infer "$DEMO" --decode --file ids
    [ -z "$output" ]
    [ "$stderr" = "hf-infer: ids: token id 9999999 is not in the vocabulary (0 to 1023)" ]
    run -65 --separate-stderr hf-infer "$DEMO" --ids '' --top 1
    [ "$stderr" = "hf-infer: --ids: the prompt has 0 tokens (--top needs at least 1)" ]
    run -65 --separate-stderr hf-infer "$DEMO" -p ''
    [ "$stderr" = "hf-infer: -p: the prompt has no tokens (expected at least 1)" ]
    : >empty
    run -65 --separate-stderr hf-infer "$DEMO" --file empty --nll
    [ "$stderr" = "hf-infer: empty: the prompt has 0 tokens (--nll needs at least 2)" ]
}

@test "hf-infer: usage errors are two lines and status 2" {
    bad() {
        run -2 --separate-stderr hf-infer "$@"
        [ -z "$output" ]
        [ "${#stderr_lines[@]}" = 2 ]
        [ "${stderr_lines[1]}" = "Try 'hf-infer --help'" ]
    }
    bad --nope
    bad "$DEMO" -n
    bad "$DEMO" -p x -n -1
    bad "$DEMO" -p x extra
    bad "$DEMO" -p x --file y
    bad "$DEMO" -p x -p y
    bad "$DEMO" -p x -v -q
    bad "$DEMO" -p x --ids 1
    bad "$DEMO" -p x --nll --top 3
    bad "$DEMO" -p x --nll --greedy
    bad "$DEMO" -p x --encode --json --ids-out
    bad "$DEMO" -p x --greedy --temperature 2
    bad "$DEMO" -p x --temperature -1
    bad "$DEMO" -p x --top-p 1.5
    bad "$DEMO" -p x --system y
    bad "$DEMO" -p x --chat --template-var nope
    bad "$DEMO" -p x --stop ''
    bad "$DEMO" -p x --force
    bad "$DEMO" --ids 1 --chat
    bad "$DEMO" --ids 1 --encode
    bad "$DEMO" -p x -j 0
    bad "$DEMO" -p x --decode
    TU_ISA=sse9 bad "$DEMO" -p x
}

@test "hf-infer --help and --version: on standard output, status 0" {
    run -0 --separate-stderr hf-infer --help
    [[ $output == "usage: hf-infer MODEL"*"--greedy"*"--version"* ]]
    [ -z "$stderr" ]
    run -0 --separate-stderr hf-infer -V
    [[ $output == "hf-infer (tensorutils) "* ]]
}

@test "hf-infer: a full disk is status 74, a closed pipe ends quietly" {
    run -74 --separate-stderr bash -c 'hf-infer "$DEMO" -p "1+1=" >/dev/full'
    [[ $stderr == "hf-infer: standard output: "*"No space left"* ]]
    run -74 bash -c 'hf-infer "$DEMO" --ids 1,2,3 --logits /dev/full'
    run --separate-stderr bash -c 'set -o pipefail
        hf-infer "$DEMO" --ids "$(seq -s, 1 400)" --logits - |
            head -c 10 >/dev/null'
    [ "$status" = 141 ]
    [ -z "$stderr" ]
}

@test "hf-infer: closed standard streams are errors or silence, not accidents" {
    run -74 bash -c 'hf-infer "$DEMO" -p "1+1=" >&-'
    run -74 bash -c 'hf-infer "$DEMO" <&- 2>/dev/null'
    run -0 bash -c 'hf-infer "$DEMO" -p "1+1=" --greedy 2>&-'
    [ "$output" = 2 ]
}

@test "hf-infer: a signal leaves no half-written file" {
    cp -r "$DEMO" m
    ids=$(seq -s, 1 500)
    for sig in INT TERM; do
        for delay in 0.005 0.02 0.05; do
            # a background job ignores INT unless told otherwise
            env --default-signal=$sig hf-infer m --ids "$ids" --logits out.npy --chunk 1 -j 1 &
            pid=$!
            sleep $delay
            kill -$sig $pid 2>/dev/null || :
            wait $pid || :
            [ -z "$(ls -A | grep tmp)" ]
            [ ! -e out.npy ] || [ "$(npy out.npy 'a.shape[0]')" = 500 ]
            rm -f out.npy
        done
    done
}

@test "hf-infer --compute bf16: a prompt's F32 weights are as if they were stored in bf16" {
    py -c 'import numpy as np, tiny_models as t
c = t.config_of("llama")
w = t.weights_of(c, np.random.default_rng(1))
t.write_model("wide", c, w, "F32")
t.write_model("narrow", c, w, dtype_of=lambda n: "BF16" if "_proj" in n else "F32")'
    logits() { hf-infer "$1" --ids 1,2,3,4,5,6,7 --logits - --compute "$2"; }
    # without an instruction for bf16, its weights are summed in another order
    near() {
        py -c 'import numpy as np, sys
a, b = map(np.load, sys.argv[1:])
assert np.abs(a - b).max() < 1e-4 * np.abs(b).max()' "$@"
    }
    logits wide bf16 >wide.npy
    logits narrow bf16 >narrow.npy
    near wide.npy narrow.npy
    TU_ISA=scalar logits wide bf16 >wide.npy
    TU_ISA=scalar logits narrow bf16 >narrow.npy
    near wide.npy narrow.npy
    run -1 cmp -s <(logits wide f32) <(logits narrow f32)
}

@test "hf-infer: options may follow the model, POSIXLY_CORRECT or not" {
    run -0 env POSIXLY_CORRECT=1 hf-infer "$DEMO" -p "1+1=" --greedy
    [ "$output" = 2 ]
    run -0 hf-infer -p "1+1=" --greedy -- "$DEMO"
    [ "$output" = 2 ]
}

@test "hf-infer: a directory with a space, and a name with escapes" {
    cp -r "$DEMO" 'my model'
    run -0 hf-infer 'my model' -p "1+1=" --greedy
    [ "$output" = 2 ]
    run -66 --separate-stderr hf-infer $'no\e[31m\nmodel' -p x
    [ "${#stderr_lines[@]}" = 1 ]
    [[ $stderr == *'no\x1b[31m\nmodel'* ]]
}

@test "hf-infer: what is missing or cut is named in one line" {
    spoil() { # spoil STATUS PATTERN: the model m is broken like that
        run "-$1" --separate-stderr hf-infer m -p "1+1="
        [ -z "$output" ]
        [ "${#stderr_lines[@]}" = 1 ]
        # shellcheck disable=SC2053
        [[ $stderr == $2 ]]
        rm -rf m
        tiny
    }
    run -66 --separate-stderr hf-infer nowhere -p x
    [ "$stderr" = "hf-infer: nowhere: No such file or directory" ]
    mkdir m
    spoil 66 "hf-infer: m: not a model directory (config.json is missing)"
    rm m/config.json
    spoil 66 "hf-infer: m: not a model directory (config.json is missing)"
    rm m/tokenizer.json
    spoil 66 "hf-infer: m/tokenizer.json: No such file or directory"
    rm m/model.safetensors
    spoil 66 "hf-infer: m*"
    truncate -s -1 m/model.safetensors
    spoil 65 "hf-infer: m/model.safetensors: *"
    echo '{' >m/config.json
    spoil 65 "hf-infer: m/config.json: line *"
    sed -i 's/qwen3/qwen9/; s/Qwen3/Qwen9/' m/config.json
    spoil 65 "hf-infer: m/config.json: *qwen9* is not supported (*qwen3*"
    sed -i 's/"silu"/"relu2"/' m/config.json
    spoil 65 "hf-infer: m/config.json: hidden_act \"relu2\" is not supported (silu, gelu, gelu_pytorch_tanh, relu, quick_gelu)"
    head -c 1000 m/tokenizer.json >t && mv t m/tokenizer.json
    spoil 65 "hf-infer: m/tokenizer.json: line *"
}

@test "hf-infer(1): the examples run as typed" {
    ln -s "$ROOT/demo" .
    examples hf-infer.1 >script
    [ "$(grep -c hf-infer script)" -ge 8 ]
    run -0 --separate-stderr bash -eo pipefail script
    [ -s out.npy ]
    [[ $output == *'"id":"a"'* ]]
}

@test "hf-infer(7): the examples run as typed" {
    ln -s "$ROOT/demo" .
    examples hf-infer.7 >script
    run -0 --separate-stderr bash -eo pipefail script
    [ "$(wc -l <before.tsv)" -gt 2 ]
    head -n 1 which.tsv | grep -q us_saved
}
