# SPDX-License-Identifier: ISC
# hf-infer --jsonl: rows that begin alike compute their beginning once, and each
# row has the bits that it has alone.
load helpers

# rows VOCAB ROOM: rows.jsonl, whose ids begin alike in many ways: with 17 to 40
# tokens in common, whole prompts, and prompts that are others' beginnings.
# Prints how many tokens need not be computed again where all rows are there at
# once.
rows() {
    "$PYTHON" - "$@" <<'END'
import json, random, sys
vocab, room = map(int, sys.argv[1:])
r = random.Random(5)
ids = lambda n: [r.randrange(vocab) for i in range(n)]
a, b = ids(40), ids(40)
prompts = [a + ids(3), b[:20] + ids(5), a[:20] + ids(9), a + ids(1), ids(7),
           a[:17] + ids(2), a[:38], b[:20] + ids(1), b, a[:20] + ids(9), b,
           a[:15] + ids(12), b[:1]]
prompts.append(prompts[0])
shared = 0
with open('rows.jsonl', 'w') as f:
    for i, p in enumerate(prompts):
        p = p[:room - 12]
        f.write(json.dumps({'id': i, 'ids': p, 'seed': i, 'temperature': 1,
                            'max_tokens': 1 + 5 * i % 13}) + '\n')
        n = [len(p) - 1] + [0] * i
        for k in range(i):
            q = prompts[k][:room - 12]
            n[k + 1] = next((j for j in range(min(len(p) - 1, len(q)))
                             if p[j] != q[j]), min(len(p) - 1, len(q)))
        most = max(n[1:], default=0)
        shared += most if most >= 16 else 0
print(shared)
END
}

# alone MODEL OPTION...: what each row gets by itself.
alone() {
    "$PYTHON" - "$@" <<'END'
import json, subprocess, sys
for line in open('rows.jsonl'):
    p = json.loads(line)
    out = json.loads(subprocess.run(
        ['hf-infer', sys.argv[1], '--ids', ','.join(map(str, p['ids'])),
         '--json', '--logprobs', '3', '--seed', str(p['seed']),
         '--temperature', '1', '-n', str(p['max_tokens'])] + sys.argv[2:],
        check=True, capture_output=True).stdout)
    del out['prompt_ids']
    print(json.dumps({'id': p['id'], **out}, sort_keys=True))
END
}

# together MODEL OPTION...: the same of all rows at once; 'log' is what -v says.
together() {
    hf-infer "$@" --jsonl -v --logprobs 3 <rows.jsonl 2>log |
        "$PYTHON" -c 'import json, sys
for line in sys.stdin:
    print(json.dumps(json.loads(line), sort_keys=True))'
}

# vocab MODEL
vocab() {
    "$PYTHON" -c "import json, sys
print(json.load(open(sys.argv[1] + '/config.json'))['vocab_size'])" "$1"
}

# shared: what -v says in 'log'.
shared() {
    sed -n 's/.* tokens in, \([0-9]*\) of them shared.*/\1/p' log
}

# each_alone MODEL OPTION...: in all batches the rows' answers are those alone,
# with all bits of their log-probabilities.
each_alone() {
    local how
    alone "$@" >want
    for how in '--batch 64' '--batch 1' '--batch 3 -j 1' '--batch 5 --chunk 7'; do
        # shellcheck disable=SC2086
        together "$@" $how >got
        cmp got want
        [ "$(shared)" -gt 0 ]
    done
}

@test "hf-infer --jsonl: rows that begin alike have their answers alone, and share" {
    endless
    n=$(rows 1000 200)
    each_alone m
    together m --batch 64 >got
    [ "$(shared)" = "$n" ]
}

# bats test_tags=long
@test "hf-infer --jsonl: rows share in families with windows, learned positions, experts" {
    rows 1000 200 >n
    each_alone "$ROOT/demo/qwen3-moe-tiny"
    for family in gpt2 gemma3_text cohere2 phi3; do
        rm -rf m
        py "$ROOT/test/ref/family_ref.py" make $family m
        rows "$(vocab m)" 64 >n
        each_alone m
    done
}

@test "hf-infer --jsonl: rows share where longrope has the same factors, and only there" {
    py "$ROOT/test/ref/family_ref.py" make phi3:longrope m
    sed -i 's/\("original_max_position_embeddings": \)16/\145/' m/config.json
    n=$(rows "$(vocab m)" 64)
    each_alone m
    together m --batch 64 >got
    [ "$(shared)" -lt "$n" ]
}

@test "hf-infer --jsonl: rows share in each way to compute, with the bits of each" {
    endless
    rows 1000 200 >n
    for how in '--compute bf16' '--kv-dtype f16' '--compute bf16 --kv-dtype bf16'; do
        # shellcheck disable=SC2086
        each_alone m $how
    done
    alone m >want
    isas_here
    for isa in $ISAS; do
        TU_ISA=$isa together m >got
        cmp got want
    done
}

@test "hf-infer --jsonl: rows share what is steered, but no compressed cache" {
    endless
    rows 1000 200 >n
    each_alone m --steer "$ROOT/demo/sae/layers.1.mlp.up_proj:17+8,3*2" --steer-at generated
    each_alone m --steer "$ROOT/demo/sae/layers.1.mlp.up_proj:17+8,3*2" --steer-at 10-30
    kvc-convert --input "$ROOT/demo/compressor.pth" --output c.bin \
        --head-dim 32 --prefix-order compress_tk,compress_tv
    together m --kvc c.bin >got
    [ "$(shared)" = 0 ]
}
