# hf-infer --acts: activations out of the model.
load helpers

# demo_f32 ARGUMENTS: the raw dump of the demo model, as numpy reads it.
npy() { # npy EXPRESSION, with numpy as np
    "$PYTHON" -c "import json, sys, numpy as np
f = lambda p: np.fromfile(p, '<f4')
print($1)"
}

setup_file() {
    "$PYTHON" "$BATS_TEST_DIRNAME/ref/tiny_models.py" "$BATS_FILE_TMPDIR"
}

docs() {
    printf '{"id":1,"prompt":"What is the capital of France?"}\n'
    printf '{"id":"b","ids":[16,10,16,28]}\n'
    printf '{"text":"The sun is a star. The sun is a star."}\n'
}

@test "hf-infer --acts: every point and layer is float64's within 1e-4" {
    run -0 "$PYTHON" "$ROOT/test/ref/check_acts.py" "$BATS_FILE_TMPDIR" \
        llama mistral-window-7 qwen2-window qwen3 qwen3-bias
    [ "${#lines[@]}" -eq 5 ]
}

@test "hf-infer --acts: the example lines work as written" {
    for _ in $(seq 9); do docs; done >docs.jsonl
    ln -s "$DEMO" MODEL
    hf-infer MODEL --acts resid:0,3 --ctx 64 --jsonl -o acts.f32 --acts-meta meta.json < docs.jsonl
    [ "$(npy "(lambda m: (m['n_imgs'] > 2, m['layers'], m['n_patches_per_img'],
        m['n_imgs'] * 2 * 64 * 128 * 4 == len(open('acts.f32', 'rb').read())))(
        json.load(open('meta.json')))")" = "(True, [0, 3], 64, True)" ]
    hf-infer MODEL --ids 1,2,3 --acts in:q_proj:0 > x.f32
    [ "$(stat -c %s x.f32)" -eq $((3 * 128 * 4)) ]
}

@test "hf-infer --acts --ctx: windows of the documents joined by eos" {
    eos=$(npy "json.load(open('$DEMO/config.json'))['eos_token_id']")
    docs >docs.jsonl
    a=$(hf-infer "$DEMO" --encode -p 'What is the capital of France?')
    b=$(hf-infer "$DEMO" --encode -p 'The sun is a star. The sun is a star.')
    # shellcheck disable=SC2206 # split on purpose
    all=($a $eos 16 10 16 28 $eos $b)
    n=$((${#all[@]} / 5))
    for ((i = 0; i < n; i++)); do
        w=("${all[@]:i*5:5}")
        hf-infer "$DEMO" --ids "${w[*]}" --acts attn:all >>want.f32
    done
    run -0 --separate-stderr hf-infer "$DEMO" --acts attn:all --ctx 5 --jsonl \
        --file docs.jsonl -o got.f32
    cmp want.f32 got.f32
    left=$((${#all[@]} % 5))
    [ "$left" -eq 0 ] || [ "$stderr" = "hf-infer: docs.jsonl: the last $left tokens fill no window of 5, dropped" ]
}

@test "hf-infer --acts --pad: a document a window, zeros behind its end" {
    docs >docs.jsonl
    hf-infer "$DEMO" --acts resid:1 --ctx 6 --pad --jsonl -o got.f32 \
        --acts-meta meta.json -q <docs.jsonl
    hf-infer "$DEMO" --ids 16,10,16,28 --acts resid:1 >want.f32
    [ "$(npy "(lambda a, w: (a.shape, (a[1, :4].ravel() == w).all(),
        (a[1, 4:] == 0).all(), (a[2] != 0).any(1).all()))(
        f('got.f32').reshape(3, 6, -1), f('want.f32'))")" = \
        "((3, 6, 128), True, True, True)" ]
}

@test "hf-infer --acts: .npy in, .npy out" {
    npy "np.save('ids.npy', np.arange(1, 41).reshape(5, 8))"
    npy "np.save('ids16.npy', np.arange(1, 41, dtype='<u2').reshape(5, 8))"
    hf-infer "$DEMO" --acts mlp:0,1 --file ids.npy -o out.npy
    hf-infer "$DEMO" --acts mlp:0,1 <ids16.npy >out.f32
    [ "$(npy "(lambda a: (a.dtype.str, a.shape[:3], a.tobytes() ==
        open('out.f32', 'rb').read()))(np.load('out.npy'))")" = \
        "('<f4', (5, 2, 8), True)" ]
    hf-infer "$DEMO" --ids "$(seq -s, 33 40)" --acts mlp:0,1 >last.f32
    cmp last.f32 <(tail -c "$(stat -c %s last.f32)" out.f32)
    npy "np.save('bad.npy', np.array([1.5]))"
    run -65 --separate-stderr hf-infer "$DEMO" --acts mlp:0 --file bad.npy
    [ "$stderr" = "hf-infer: bad.npy: F64 with 1 dims (expected integers, token ids, [n] or [rows, n])" ]
}

@test "hf-infer --acts-meta: Python's saev would take it, and a pipe has it first" {
    docs >docs.jsonl
    hf-infer "$DEMO" --acts in:o_proj:1 --ctx 4 --jsonl --acts-meta meta.json \
        <docs.jsonl 2>/dev/null | { head -c 4 >/dev/null && cp meta.json early.json; cat >/dev/null; }
    cmp meta.json early.json
    [ "$(npy "sorted(json.load(open('meta.json')))")" = \
        "['cls_token', 'd_vit', 'data', 'layers', 'max_patches_per_shard', 'n_patches_per_img', 'seed', 'vit_ckpt', 'vit_family']" ]
    hf-infer "$DEMO" --acts in:o_proj:1 --ids 1,2,3 --acts-meta one.json >/dev/null
    [ "$(npy "(lambda m: (m['n_imgs'], m['n_patches_per_img'], m['layers']))(json.load(open('one.json')))")" = "(1, 3, [1])" ]
}

@test "hf-infer --acts: a wrong SPEC is a usage error that names it" {
    while IFS='|' read -r spec message; do
        run -2 --separate-stderr hf-infer "$DEMO" --ids 1 --acts "$spec"
        [ "${stderr_lines[0]}" = "hf-infer: --acts$message" ]
    done <<'END'
resid|: "resid" is no POINT:LAYERS (points: resid, attn, mlp, in:q_proj and in: the other projections)
x:0|: "x:0" is no POINT:LAYERS (points: resid, attn, mlp, in:q_proj and in: the other projections)
in:q:0|: "in:q:0" is no POINT:LAYERS (points: resid, attn, mlp, in:q_proj and in: the other projections)
mlp:-1| mlp:-1: "-1" is no layer (0 to 3, A-B, or all)
resid:-2| resid:-2: "-2" is no layer (-1 to 3, A-B, or all)
mlp:| mlp:: "" is no layer (0 to 3, A-B, or all)
mlp:0,| mlp:0,: "" is no layer (0 to 3, A-B, or all)
mlp:1-0| mlp:1-0: "1-0" is no layer (0 to 3, A-B, or all)
mlp:0-9| mlp:0-9: "0-9" is no layer (0 to 3, A-B, or all)
mlp:0,0| mlp:0,0: layer 0 is there twice
mlp:0x| mlp:0x: "0x" is no layer (0 to 3, A-B, or all)
END
}

@test "hf-infer --acts: documents that cannot be are named" {
    printf '{"ids":[1]}\n{"ids":[1,2]}\n' >two.jsonl
    run -65 --separate-stderr hf-infer "$DEMO" --acts mlp:0 --jsonl \
        --file two.jsonl --acts-meta m.json -o out.f32
    [ "$stderr" = "hf-infer: two.jsonl: line 2: 2 tokens, but those before have 1 (expected one length: --ctx makes windows)" ]
    [ ! -e out.f32 ]
    [ ! -e m.json ]
    printf '{"ids":[1]}\n{"ids":[999999]}\n' >big.jsonl
    run -65 --separate-stderr hf-infer "$DEMO" --acts mlp:0 --jsonl --file big.jsonl -o out.f32
    [[ $stderr == "hf-infer: big.jsonl: line 2: token id 999999 is beyond the vocabulary ("* ]]
    run -65 --separate-stderr hf-infer "$DEMO" --ids 1,2 --acts mlp:0 --ctx 3
    [ "$stderr" = "hf-infer: --ids: 2 tokens, not one window (expected at least 3)" ]
    run -2 --separate-stderr hf-infer "$DEMO" --ids 1,2 --acts mlp:0 --ctx 100000
    [[ ${stderr_lines[0]} == "hf-infer: --ctx 100000: the model's context is "* ]]
}

@test "hf-infer --acts: head ends it quietly" {
    docs >docs.jsonl
    for _ in $(seq 200); do cat docs.jsonl; done >many.jsonl
    set +o pipefail
    hf-infer "$DEMO" --acts resid:all --ctx 16 --jsonl --file many.jsonl \
        2>err | head -c 4096 | wc -c >count
    [ "$(cat count)" -eq 4096 ]
    [ ! -s err ]
}

@test "hf-infer --acts: 1000 windows need the memory of a few" {
    for _ in $(seq 400); do docs; done >many.jsonl
    peak() {
        "$PYTHON" -c "import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)" "$@"
    }
    docs >few.jsonl
    few=$(peak hf-infer "$DEMO" --acts resid:all --ctx 8 --jsonl --file few.jsonl)
    many=$(peak hf-infer "$DEMO" --acts resid:all --ctx 8 --jsonl --file many.jsonl)
    [ "$many" -lt $((few + 4096)) ]
}
