# SPDX-License-Identifier: ISC
# hf-infer --acts: activations out of the model.
load helpers

# npy EXPRESSION: prints it; numpy is np, and f() reads a raw dump.
npy() {
    "$PYTHON" -c "import json, sys, numpy as np
f = lambda p: np.fromfile(p, '<f4')
print($1)"
}

setup_file() {
    kept test/ref/tiny_models.py "$BATS_FILE_TMPDIR"
}

docs() {
    printf '{"id":1,"prompt":"What is the capital of France?"}\n'
    printf '{"id":"b","ids":[16,10,16,28]}\n'
    printf '{"text":"The sun is a star. The sun is a star."}\n'
}

points() {
    # shellcheck disable=SC2046 # names are words
    run -0 "$PYTHON" "$ROOT/test/ref/check_acts.py" "$BATS_FILE_TMPDIR" \
        $(cat "$BATS_FILE_TMPDIR/models")
    [ "${#lines[@]}" -ge 20 ]
}

@test "hf-infer --acts: every point and layer is float64's within 1e-4" {
    points
}

# bats test_tags=long
@test "hf-infer --acts: every point and layer has the same bits for any -j and --chunk" {
    unset TU_WAYS
    points
}

@test "hf-infer --acts: the points add up, to the last bit" {
    # A block adds its halves to the stream in f32: so does numpy.
    for m in "$DEMO" "$BATS_FILE_TMPDIR/llama-bias-f32"; do
        for p in resid attn mlp; do
            hf-infer "$m" --ids 1,2,3,4,5,6,7 --acts $p:0-2 >$p
        done
        hf-infer "$m" --ids 1,2,3,4,5,6,7 --acts resid:-1,0,1 >before
        [ "$(npy "(f('before') + f('attn') + f('mlp') == f('resid')).all()")" = True ]
    done
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
    [ "$left" -eq 1 ] # of the demo's tokenizer: a noun without its s
    [ "$stderr" = "hf-infer: docs.jsonl: the last 1 token fills no window of 5, dropped" ]
}

@test "hf-infer --acts --pad: a document a window, zeros behind its end" {
    docs >docs.jsonl
    hf-infer "$DEMO" --acts resid:1 --ctx 6 --pad --jsonl -o got.f32 \
        --acts-meta meta.json --acts-ids ids.npy -q <docs.jsonl
    hf-infer "$DEMO" --ids 16,10,16,28 --acts resid:1 >want.f32
    [ "$(npy "(lambda a, w: (a.shape, (a[1, :4].ravel() == w).all(),
        (a[1, 4:] == 0).all(), (a[2] != 0).any(1).all()))(
        f('got.f32').reshape(3, 6, -1), f('want.f32'))")" = \
        "((3, 6, 128), True, True, True)" ]
    saev-write -q -m meta.json -o d got.f32
    cmp <(saev-read --raw d/*) <(py -c 'import numpy as np, sys
x = np.fromfile("got.f32", "<f4").reshape(18, -1)
sys.stdout.buffer.write(x[np.load("ids.npy").ravel() >= 0].tobytes())')
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
    [ "$stderr" = "hf-infer: bad.npy: F64 with 1 dim (expected integers, token ids, [n] or [rows, n])" ]
}

@test "hf-infer --acts: a .npy of token ids is a stream, from a pipe, too" {
    npy "np.save('short.npy', np.arange(3000) % 1024)"
    hf-infer "$DEMO" --ids "$(npy "*(np.arange(3000) % 1024)")" \
        --acts attn:0 --ctx 100 -o want.f32
    hf-infer "$DEMO" --acts attn:0 --ctx 100 --file short.npy | cmp - want.f32
    # a pipe, in pieces that end anywhere
    { head -c 131 && sleep 0.1 && cat; } <short.npy |
        hf-infer "$DEMO" --acts attn:0 --ctx 100 | cmp - want.f32
    run -65 --separate-stderr hf-infer "$DEMO" --acts attn:0 --file short.npy
    [ "$stderr" = "hf-infer: short.npy: more than 512 tokens, the model's context (--ctx makes windows)" ]
    head -c 1000 short.npy >cut.npy
    run -65 --separate-stderr hf-infer "$DEMO" --acts attn:0 --file cut.npy
    [ "$stderr" = "hf-infer: cut.npy: has 872 bytes of data (expected 24000 by its header)" ]
    run -65 --separate-stderr bash -c 'cat cut.npy | hf-infer "$DEMO" --acts attn:0 --ctx 9'
    [ "$stderr" = "hf-infer: standard input: the file ends after 109 of 3000 elements" ]
    # a second array, which no file may hold either, is not left unread
    run -65 --separate-stderr bash -c 'cat short.npy cut.npy | hf-infer "$DEMO" --acts attn:0 --ctx 9 -o two.f32'
    [ "$stderr" = "hf-infer: standard input: more data (expected 3000 elements by its header)" ]
    [ ! -e two.f32 ]
    npy "np.save('bad.npy', np.array([[1, 2], [3, -4]], 'i2'))"
    run -65 --separate-stderr hf-infer "$DEMO" --acts attn:0 --file bad.npy
    [ "$stderr" = "hf-infer: bad.npy: row 1: element 1: -4 is not a token id (0 to 2147483647)" ]
    npy "np.save('big.npy', np.array([1, 2**63 + 2**20], 'u8'))"
    run -65 --separate-stderr hf-infer "$DEMO" --acts attn:0 --file big.npy
    [ "$stderr" = "hf-infer: big.npy: element 1: 9223372036855824384 is not a token id (0 to 2147483647)" ]
    run -2 --separate-stderr hf-infer "$DEMO" --acts attn:0 --file short.npy --raw
    [[ $stderr == "hf-infer: short.npy: is token ids (.npy): "* ]]
}

@test "hf-infer --acts: documents of all lengths, each as it is alone" {
    "$PYTHON" -c "import json
for i in range(30):
    print(json.dumps({'ids': [(7 * i + j * j) % 1024 for j in range(1 + i * i % 97)]}))" >p.jsonl
    "$PYTHON" -c "import json
for line in open('p.jsonl'):
    print(*json.loads(line)['ids'])" | while read -r ids; do
        hf-infer "$DEMO" --ids "$ids" --acts in:down_proj:3,0
    done >want.f32
    for how in '' '-j 1 --chunk 1' '-j 3 --chunk 50' '--chunk 5000'; do
        # shellcheck disable=SC2086
        hf-infer "$DEMO" --acts in:down_proj:3,0 --jsonl $how <p.jsonl |
            cmp - want.f32
    done
    hf-infer "$DEMO" --acts resid:2 --ctx 24 --jsonl <p.jsonl >want.f32
    hf-infer "$DEMO" --acts resid:2 --ctx 24 --jsonl -j 1 --chunk 7 <p.jsonl |
        cmp - want.f32
}

@test "hf-infer --acts: a document without tokens is left out of windows" {
    printf '{"ids":[1,2]}\n{"ids":[]}\n{"text":""}\n{"ids":[3]}\n' >p.jsonl
    hf-infer "$DEMO" --ids 1,2,1023,3 --acts mlp:0 >want.f32
    run -0 --separate-stderr hf-infer "$DEMO" --acts mlp:0 --ctx 4 --jsonl \
        --file p.jsonl -o got.f32
    cmp got.f32 want.f32
    [ "$stderr" = "hf-infer: p.jsonl: 2 documents without tokens, left out" ]
    hf-infer "$DEMO" --acts mlp:0 --ctx 4 --pad --jsonl <p.jsonl -q >got.f32
    [ "$(stat -c %s got.f32)" -eq $((2 * 4 * 128 * 4)) ]
    run -65 --separate-stderr hf-infer "$DEMO" --acts mlp:0 --jsonl \
        --file p.jsonl -o alone.f32
    [ "$stderr" = "hf-infer: p.jsonl: line 2: no tokens (expected at least 1)" ]
    run -65 --separate-stderr hf-infer "$DEMO" --acts mlp:0 --jsonl </dev/null
    [ "$stderr" = "hf-infer: standard input: there is no document with tokens" ]
}

@test "hf-infer --acts-meta: all of it, as the dump is" {
    docs >docs.jsonl
    hf-infer "$DEMO" --acts in:gate_proj:2,0 --ctx 12 --pad --jsonl -q \
        --file docs.jsonl -o acts.npy --acts-meta meta.json
    "$PYTHON" - "$DEMO" <<'END'
import ctypes, hashlib, json, os, subprocess, sys
import numpy as np
class H(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]
f = ctypes.CDLL("libxxhash.so.0").XXH3_128bits
f.restype, f.argtypes = H, [ctypes.c_char_p, ctypes.c_size_t]
def xxh3(b):
    h = f(b, len(b))
    return "%016x%016x" % (h.high, h.low)
def directory(path): # names, sizes and bytes
    out = b""
    for name in sorted(os.listdir(path)):
        if name.endswith((".json", ".safetensors")):
            b = open(os.path.join(path, name), "rb").read()
            out += name.encode() + b"\0" + len(b).to_bytes(8, "little") + b
    return out
docs = [json.loads(line) for line in open('docs.jsonl')]
ids = np.full((3, 12), -1, '<i4')
for row, doc in zip(ids, docs):
    text = doc.get('prompt', doc.get('text'))
    got = doc.get('ids') or [int(i) for i in subprocess.run(
        ['hf-infer', sys.argv[1], '--encode', '-p', text], check=True,
        stdout=subprocess.PIPE).stdout.split()]
    row[:len(got)] = got[:12]
a = np.load('acts.npy')
assert a.shape == (3, 2, 12, 128), a.shape
assert ((a == 0).all(-1) == (ids == -1)[:, None]).all()
want = {'vit_family': 'qwen3', 'vit_ckpt': sys.argv[1], 'layers': [2, 0],
        'n_patches_per_img': 12, 'cls_token': False, 'd_vit': 128, 'seed': 0,
        'n_imgs': 3, 'max_patches_per_shard': 2400000,
        'data': {'acts': 'in:gate_proj', 'input': 'docs.jsonl',
                 'windows': 'padded', 'arithmetic': 'f32, 8 lanes',
                 'input_xxh3': xxh3(open('docs.jsonl', 'rb').read()),
                 'model_xxh3': xxh3(directory(sys.argv[1])),
                 'ids_sha256': hashlib.sha256(ids.tobytes()).hexdigest()}}
got = json.load(open('meta.json'))
assert got == want and list(got) == list(want), got
END
}

@test "hf-infer --acts-meta: a file of the model that cannot be looked at is an I/O error, never left out" {
    not_sanitized "LeakSanitizer does not run under strace"
    local stats='?stat,newfstatat,?statx'
    strace -o /dev/null -e trace="$stats" -e inject="$stats:error=EIO:when=99" true 2>/dev/null ||
        skip "no strace here that fails calls"
    cp -r "$DEMO" m
    echo '{}' >m/more.json # of the digest; nothing else reads it
    ln -s nowhere m/none.json
    hf-infer m --ids 1,2,3,4 --acts resid:0 --ctx 4 -o acts --acts-meta meta.json
    run -74 --separate-stderr strace -o trace -P "$PWD/m/more.json" -e trace="$stats" -e inject="$stats:error=EIO" \
        hf-infer "$PWD/m" --ids 1,2,3,4 --acts resid:0 --ctx 4 -o a --acts-meta a.json
    grep INJECTED trace
    [ "$stderr" = "hf-infer: $PWD/m/more.json: Input/output error" ]
    [ ! -e a.json ]
}

@test "hf-infer --acts-meta: what makes other numbers makes another name" {
    "$PYTHON" "$BATS_TEST_DIRNAME/ref/lora_cases.py" cases
    m=cases/qwen3-patterns lut=$PWD/lut
    lut-precompute -q -m "$DEMO" -s "$ROOT/demo/sae" -o lut
    i=0
    of() { # MODEL OPTION...: how the metadata call that dump
        hf-infer "$@" --acts resid:0 --ctx 4 --acts-meta $((++i)).json -q >/dev/null
        saev-write --hash -m $i.json >>names
    }
    of $m --ids 1,2,3,4
    of $m --ids 1,2,3,4 --lora $m/lora0
    of $m --ids 1,2,3,4 --compute bf16
    of $m --ids 1,2,3,4 --kv-dtype f16
    of $m --ids 1,2,3,4 --kv-dtype bf16
    of "$DEMO" -p 1+1=2
    of "$DEMO" -p 1+1=2 --raw
    of "$DEMO" -p 1+1=2 --plain
    of "$DEMO" -p 1+1=2 --lut lut
    of "$DEMO" -p 1+1=2 --lut lut --ratio 0.5
    of "$DEMO" -p 1+1=2 --lut "$lut"
    of "$DEMO" -p 1+1=2 --lut lut --lut-layers '*.1.*'
    [ "$(wc -l <names)" = 12 ]
    [ "$(sort -u names | wc -l)" = 12 ]
    of $m --ids 1,2,3,4 -j 2 --chunk 1
    [ "$(tail -n 1 names)" = "$(head -n 1 names)" ]
    py -c '
import json
m = [json.load(open("%d.json" % i))["data"] for i in (2, 3, 7, 8, 10, 12)]
assert m[0]["lora"] == ["cases/qwen3-patterns/lora0"] and "lora" not in m[1]
assert m[1]["compute"] == "bf16" and m[2]["raw"] is True is m[3]["plain"]
assert m[4]["lut"] == "lut" and m[4]["ratio"] == 0.5
assert m[5]["lut_layers"] == "*.1.*"'
}

# bats test_tags=long
@test "hf-infer --acts-meta: what the numbers depend on makes another name when it changes" {
    command -v saev-write >/dev/null || skip "no saev-write here"
    "$PYTHON" "$BATS_TEST_DIRNAME/ref/lora_cases.py" cases
    cp -rL "$DEMO" m
    cp -r cases/qwen3-patterns/lora0 lora
    printf '1 2 3 4' >ids
    of() { # HASH of what is there now
        hf-infer "$@" --acts resid:0 --ctx 4 -f -o acts.f32 --acts-meta meta.json -q
        saev-write --hash -q -m meta.json
    }
    first=$(of m --file ids)
    [ "$(of m --file ids)" = "$first" ]
    # of the same name and size, and as old
    touch -r ids time
    printf '1 2 3 5' >ids
    touch -r time ids
    second=$(of m --file ids)
    [ "$second" != "$first" ]
    [ "$(of m <ids)" != "$second" ] # of another name
    sed -i 's/"rms_norm_eps": *[0-9.e-]*/"rms_norm_eps": 1e-3/' m/config.json
    third=$(of m --file ids)
    [ "$third" != "$second" ]
    [ "$(TU_ISA=scalar of m --file ids)" = "$third" ] # one answer on every CPU
    [ "$(of m --file ids --kv-dtype bf16)" != "$third" ]
    TU_ISA=scalar of m --file ids --compute bf16 >scalar
    [ "$(npy "json.load(open('meta.json'))['data']['arithmetic']")" = scalar ]
    lut-precompute -q -m "$DEMO" -s "$ROOT/demo/sae" -o lut
    with=$(of "$DEMO" --file ids --lut lut)
    rm lut/*.safetensors
    lut-precompute -q -m "$DEMO" -s "$ROOT/demo/sae" -o lut -f --dtype f32
    [ "$(of "$DEMO" --file ids --lut lut)" != "$with" ]
    m=cases/qwen3-patterns
    with=$(of $m --ids 1,2,3,4 --lora lora)
    py -c 'import sys, mkst, glob
for p in glob.glob("lora/*.safetensors"):
    t = mkst.load(p)
    mkst.save(p, {n: (d, s, bytes(len(b)) if "lora_B" in n else b) for n, (d, s, b) in t.items()})'
    [ "$(of $m --ids 1,2,3,4 --lora lora)" != "$with" ]
    # of a stream nothing is known
    run -0 --separate-stderr hf-infer m --acts resid:0 --ctx 4 -f -o acts.f32 --acts-meta meta.json < <(cat ids)
    [[ ${stderr_lines[*]} == *"hf-infer: standard input: is a stream: the metadata say nothing of what was in it"* ]]
    [ "$(npy "'input_xxh3' in json.load(open('meta.json'))['data']")" = False ]
}

@test "hf-infer --acts: saev-write takes dump and metadata" {
    command -v saev-write >/dev/null || skip "no saev-write here"
    for _ in $(seq 9); do docs; done >docs.jsonl
    hf-infer "$DEMO" --acts resid:0,3 --ctx 64 --jsonl -q -o acts.f32 --acts-meta meta.json < docs.jsonl
    mkdir DIR
    saev-write -m meta.json -o DIR < acts.f32
    cmp DIR/*/acts000000.bin acts.f32
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

@test "hf-infer --acts-meta: windows of a text or a .npy are counted before the first" {
    npy "np.save('rows.npy', np.arange(70).reshape(10, 7))"
    # ten rows and nine ends of text between them are 79 ids
    for ctx in 4 13 79; do
        hf-infer "$DEMO" --acts mlp:0 --ctx $ctx --file rows.npy --acts-meta $ctx.json -q >$ctx.f32
        [ "$(npy "json.load(open('$ctx.json'))['n_imgs']")" = $((79 / ctx)) ]
        [ "$(stat -c %s $ctx.f32)" = $((79 / ctx * ctx * 512)) ]
    done
    n=$(hf-infer "$DEMO" --encode --file "$ROOT/demo/held-out.txt" | wc -w)
    hf-infer "$DEMO" --acts mlp:0 --ctx 16 --file "$ROOT/demo/held-out.txt" \
        --acts-meta text.json -q | { head -c 4 >/dev/null && cp text.json early.json; cat >/dev/null; }
    [ "$(npy "json.load(open('early.json'))['n_imgs']")" = $((n / 16)) ]
    # the same dump under the same name, whoever counts
    hf-infer "$DEMO" --acts mlp:0 --ctx 16 --file "$ROOT/demo/held-out.txt" -q >text.f32
    grep -v n_imgs text.json >counted.json
    [ "$(saev-write -m text.json -o D text.f32)" = "$(saev-write -m counted.json -o E text.f32 | sed s/E/D/)" ]
}

@test "hf-infer --acts: -v counts the time of all windows, the last ones, too" {
    run -0 --separate-stderr hf-infer "$DEMO" --acts resid:3 -v -j 1 \
        --ids "$(seq -s, 1 500)" --chunk 512 -o out.f32
    # a model of a million weights: a gigaflop
    [[ $stderr =~ "1 window, 500 tokens in "([0-9.]+)" s" ]]
    [ "${BASH_REMATCH[1]}" != 0.000 ]
}

@test "hf-infer --acts: on a terminal an error has its line to itself" {
    py - "$DEMO" <<'END'
import sys, terminal
lines = [b'{"ids":[1,2,3,4,5,6,7,8]}\n' * 200] * 4
status, said = terminal.run(['hf-infer', sys.argv[1], '--acts', 'resid:all', '-j', '1',
                             '--jsonl', '-o', 'out.f32'], lines + [b'[]\n'])
assert status == 65 and b'acts: ' in said, (status, said)
assert said.endswith(
    b'\r\x1b[Khf-infer: standard input: line 801: not a JSON object\r\n'), said
END
}

# bats test_tags=long
@test "hf-infer --acts: on a terminal a known number of tokens has a percentage" {
    py - "$DEMO" <<'END'
import io, re, sys, numpy as np, terminal
npy = io.BytesIO()
np.save(npy, np.ones((40, 500), "<i4"))
npy = npy.getvalue()
# what is read before the header's end is known, then two documents at a time
rows = [npy[:68128]] + [npy[i:i + 4000] for i in range(68128, len(npy), 4000)]
for more, n in ([], 20000), (['--ctx', '300', '--pad'], 12000), (['--ctx', '512'], 19968):
    status, said = terminal.run(['hf-infer', sys.argv[1], '--acts', 'resid:all', '-j', '1', '-f',
                                 '--chunk', '16', '-o', 'x'] + more, rows)
    assert status == 0, said
    done = re.findall(rb'(\d+) tokens, .*?, (\d+) %', said)
    assert done and all(abs(int(p) - 100 * int(i) / n) <= 0.5 for i, p in done), (more, said)
END
}

@test "hf-infer --acts: a wrong SPEC is a usage error that names it" {
    while IFS='|' read -r spec message; do
        run -2 --separate-stderr hf-infer "$DEMO" --ids 1 --acts "$spec"
        [ "${stderr_lines[0]}" = "hf-infer: --acts$message" ]
    done <<'END'
resid|: "resid" is not a place (layers.1, layers.1.mlp.up_proj, .., or resid:1,3; --places prints all)
x:0|: "x:0" is not a place (layers.1, layers.1.mlp.up_proj, .., or resid:1,3; --places prints all)
in:q_porj:0|: "in:q_porj:0" is not a place (layers.1, layers.1.mlp.up_proj, .., or resid:1,3; --places prints all) (did you mean "in:q_proj"?)
layers.1,layers.1.mlp.upproj|: "layers.1.mlp.upproj" is not a place (layers.1, layers.1.mlp.up_proj, .., or resid:1,3; --places prints all) (did you mean "layers.1.mlp.up_proj"?)
model.layers.1.mlp.up_proj.weight|: "model.layers.1.mlp.up_proj.weight" is not a place (layers.1, layers.1.mlp.up_proj, .., or resid:1,3; --places prints all) (expected layers.1.mlp.up_proj)
layers.4| layers.4: layers.4: the model has 4 layers
layers.1,resid:1| layers.1,resid:1: layers.1 is there twice
mlp:-1| mlp:-1: "-1" is not a layer (0 to 3, A-B, or all)
resid:-2| resid:-2: "-2" is not a layer (-1 to 3, A-B, or all)
mlp:| mlp:: "" is not a layer (0 to 3, A-B, or all)
mlp:0,| mlp:0,: "" is not a layer (0 to 3, A-B, or all)
mlp:1-0| mlp:1-0: "1-0" is not a layer (0 to 3, A-B, or all)
mlp:0-9| mlp:0-9: "0-9" is not a layer (0 to 3, A-B, or all)
mlp:0,0| mlp:0,0: layers.0.mlp is there twice
mlp:0x| mlp:0x: "0x" is not a layer (0 to 3, A-B, or all)
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
    [ "$stderr" = "hf-infer: big.jsonl: line 2: token id 999999 is not in the vocabulary (0 to 1023)" ]
    run -65 --separate-stderr hf-infer "$DEMO" --ids 1,2 --acts mlp:0 --ctx 3
    [ "$stderr" = "hf-infer: --ids: 2 tokens, not one window (expected at least 3)" ]
    run -2 --separate-stderr hf-infer "$DEMO" --ids 1,2 --acts mlp:0 --acts-meta -
    [ "${stderr_lines[0]}" = "hf-infer: standard output: would be two outputs of this command" ]
    run -2 --separate-stderr hf-infer "$DEMO" --ids 1,2 --acts mlp:0 --ctx 100000
    [[ ${stderr_lines[0]} == "hf-infer: --ctx 100000: the model's context is "* ]]
}

# bats test_tags=long
@test "hf-infer --acts: head ends it quietly" {
    docs >docs.jsonl
    for _ in $(seq 200); do cat docs.jsonl; done >many.jsonl
    set +o pipefail
    hf-infer "$DEMO" --acts resid:all --ctx 16 --jsonl --file many.jsonl \
        2>err | head -c 4096 | wc -c >count
    [ "$(cat count)" -eq 4096 ]
    [ ! -s err ]
}

# bats test_tags=long
@test "hf-infer --acts: a signal leaves neither half a dump nor metadata" {
    for _ in $(seq 1000); do docs; done >some.jsonl
    for _ in $(seq 20); do cat some.jsonl; done >many.jsonl # 15 s of it
    for sig in INT TERM; do
        for delay in 0.02 0.1 0.3; do
            # a background job ignores INT unless told otherwise
            env --default-signal=$sig hf-infer "$DEMO" --acts resid:all \
                --ctx 64 --jsonl --chunk 64 -j 1 --file many.jsonl -q \
                -o acts.npy --acts-meta meta.json &
            pid=$!
            until [ -e "$(echo .meta.json.tmp.*)" ]; do kill -0 $pid; sleep 0.01; done
            sleep $delay
            kill -$sig $pid
            wait $pid || :
            [ -z "$(ls -A | grep -e tmp -e acts -e meta)" ]
        done
    done
}

# bats test_tags=long
@test "hf-infer --acts: 1200 documents need the memory of 120" {
    not_sanitized "sanitizers keep memory"
    for _ in $(seq 400); do docs; done >many.jsonl
    # 120 documents fill every buffer once
    head -n 120 many.jsonl >few.jsonl
    few=$(peak hf-infer "$DEMO" -q --acts resid:all --ctx 8 --jsonl --file few.jsonl)
    many=$(peak hf-infer "$DEMO" -q --acts resid:all --ctx 8 --jsonl --file many.jsonl)
    [ "$many" -lt $((few + 4096)) ]
    # -1 runs no layer: 1.5 million tokens in a second
    npy "np.save('few.npy', np.arange(3000) % 1024)"
    npy "np.save('many.npy', np.arange(1500000) % 1024)"
    few=$(peak hf-infer "$DEMO" -q --acts resid:-1 --ctx 500 --file few.npy)
    many=$(peak hf-infer "$DEMO" -q --acts resid:-1 --ctx 500 --file many.npy)
    [ "$many" -lt $((few + 4096)) ]
}

@test "hf-infer --acts-meta: refuses to replace a file, and -f replaces it" {
    echo old >meta.json
    run -73 --separate-stderr hf-infer "$DEMO" --ids 1,2,3 --acts resid:0 --acts-meta meta.json
    [ "$stderr" = "hf-infer: meta.json: exists already (--force replaces it)" ]
    [ -z "$output$(grep -v old meta.json)" ]
    hf-infer "$DEMO" --ids 1,2,3 --acts resid:0 --acts-meta meta.json -f >acts.f32
    [ "$(npy "json.load(open('meta.json'))['layers']")" = "[0]" ]
    [ "$(stat -c %s acts.f32)" -eq $((3 * 128 * 4)) ]
}

# cut_ids CTX [pad]: want.npy, the ids of docs.jsonl by --encode, cut by numpy.
cut_ids() {
    "$PYTHON" - "$DEMO" "$@" <<'END'
import json, subprocess, sys
import numpy as np
model, ctx, pad = sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3
eos = json.load(open(model + '/config.json'))['eos_token_id']
docs = [doc.get('ids') or [int(i) for i in subprocess.run(
            ['hf-infer', model, '--encode', '-p', doc.get('prompt', doc.get('text'))],
            check=True, stdout=subprocess.PIPE).stdout.split()]
        for doc in map(json.loads, open('docs.jsonl'))]
if pad:
    want = np.full((len(docs), ctx), -1, '<i4')
    for row, ids in zip(want, docs):
        row[:len(ids)] = ids[:ctx]
else:
    ids = sum((([eos] if i else []) + d for i, d in enumerate(docs)), [])
    want = np.array(ids[:len(ids) // ctx * ctx], '<i4').reshape(-1, ctx)
np.save('want.npy', want)
END
}

@test "hf-infer --acts-ids: the ids of the windows, and the name of their dump" {
    command -v saev-write >/dev/null || skip "no saev-write here"
    docs >docs.jsonl
    docs >>docs.jsonl
    for how in '5' '12 --pad'; do
        # shellcheck disable=SC2086
        cut_ids $how
        of() { # SPEC OPTION...: of docs.jsonl, in those windows
            # shellcheck disable=SC2086
            hf-infer "$DEMO" --ctx $how -q --jsonl --acts "$@"
        }
        of resid:2,0 --acts-meta pipe.json --acts-ids pipe.npy --chunk 7 <docs.jsonl |
            saev-write -q -m pipe.json -o D >dumps
        of resid:2,0 --acts-meta file.json --acts-ids file.npy -o acts.f32 --file docs.jsonl
        saev-write -q -m file.json -o D acts.f32 >>dumps
        of attn:1 --acts-ids alone.npy -o acts.npy < <(cat docs.jsonl)
        for name in pipe file alone; do
            cmp $name.npy want.npy
        done
        "$PYTHON" - "$DEMO" <<'END'
import ctypes, hashlib, json, os, sys
import numpy as np
class H(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]
f = ctypes.CDLL("libxxhash.so.0").XXH3_128bits
f.restype, f.argtypes = H, [ctypes.c_char_p, ctypes.c_size_t]
def xxh3(path):
    b = open(path, 'rb').read()
    h = f(b, len(b))
    return "%016x%016x" % (h.high, h.low)
ids = np.load('want.npy')
meta = json.load(open('file.json'))['data']
want = {'n_windows': len(ids), 'ctx': ids.shape[1], 'windows': meta['windows'],
        'acts': 'resid', 'layers': [2, 0], 'input_xxh3': xxh3('docs.jsonl'),
        'tokenizer_xxh3': xxh3(sys.argv[1] + '/tokenizer.json'),
        'ids_sha256': hashlib.sha256(ids.tobytes()).hexdigest(),
        'special': [1021, 1022, 1023]}
assert meta['ids_sha256'] == want['ids_sha256']
dumps = [os.path.basename(line.rstrip()) for line in open('dumps')]
got = [json.load(open(name + '.npy.json')) for name in ('pipe', 'file', 'alone')]
assert got[0] == {**want, 'dump': dumps[0], 'input': 'standard input'}, got[0]
assert got[1] == {**want, 'dump': dumps[1], 'input': 'docs.jsonl'}, got[1]
# without metadata no name, and of a stream no sum
del want['input_xxh3']
assert got[2] == {**want, 'input': 'standard input', 'acts': 'attn', 'layers': [1]}, got[2]
END
        rm -r D ./*.json ./*.npy
        rm -f acts.f32
    done
}

@test "hf-infer --acts-ids: a row's token, as saev(5) finds it" {
    command -v saev-write saev-read >/dev/null || skip "no saev tools here"
    # layer -1 is the embedding: a row says itself whose it is
    hf-infer "$DEMO" --acts resid:0,-1 --ctx 9 --file "$ROOT/demo/held-out.txt" -q \
        --acts-meta meta.json --acts-ids ids.npy | saev-write -q -m meta.json -o D >dump
    saev-read --layer -1 "$(cat dump)" >rows.npy
    py - "$DEMO" <<'END'
import sys, json, numpy as np, mkst
dtype, shape, raw = mkst.load(sys.argv[1] + '/model.safetensors')['model.embed_tokens.weight']
assert dtype == 'BF16'
embedding = (np.frombuffer(raw, '<u2').astype('<u4') << 16).view('<f4').reshape(shape)
rows, ids = np.load('rows.npy'), np.load('ids.npy')
ctx = ids.shape[1]
assert len(rows) == ids.size > 300
for row in range(len(rows)):
    assert (rows[row] == embedding[ids[row // ctx, row % ctx]]).all(), row
END
}

@test "hf-infer --acts-ids: those of a part are of its documents, and a run without layers has all" {
    for _ in $(seq 4); do docs; done >docs.jsonl
    cut_ids 6 pad
    for part in 0 1 2; do
        sed -n "$((4 * part + 1)),$((4 * part + 4))p" docs.jsonl |
            hf-infer "$DEMO" --acts mlp:3 --ctx 6 --pad --jsonl -q --acts-ids $part.npy >/dev/null
    done
    npy "np.save('parts.npy', np.concatenate([np.load('%d.npy' % i) for i in range(3)]))"
    cmp parts.npy want.npy
    hf-infer "$DEMO" --acts resid:-1 --ctx 6 --pad --jsonl -q --acts-ids all.npy \
        -o /dev/null --file docs.jsonl
    cmp all.npy want.npy
}

@test "hf-infer --acts-ids: text, a .npy and documents as they are" {
    hf-infer "$DEMO" --acts mlp:0 --ctx 16 -q --acts-ids text.npy -o text.f32 <"$ROOT/demo/held-out.txt"
    hf-infer "$DEMO" --encode <"$ROOT/demo/held-out.txt" >want
    npy "np.save('want.npy', (lambda i: i[:len(i) // 16 * 16].reshape(-1, 16))(
        np.array(open('want').read().split(), '<i4')))"
    cmp text.npy want.npy
    npy "np.save('rows.npy', np.arange(70, dtype='<i4').reshape(10, 7))"
    hf-infer "$DEMO" --acts mlp:0,1 --file rows.npy -q --acts-ids ids.npy >rows.f32
    cmp ids.npy rows.npy
    [ "$(npy "json.load(open('ids.npy.json'))['windows']")" = whole ]
    printf '{"ids":[1]}\n{"ids":[1,2]}\n' >two.jsonl
    run -65 --separate-stderr hf-infer "$DEMO" --acts mlp:0 --jsonl --file two.jsonl --acts-ids two.npy
    [ "$stderr" = "hf-infer: two.jsonl: line 2: 2 tokens, but those before have 1 (expected one length: --ctx makes windows)" ]
    [ -z "$(ls -A | grep two.npy)" ]
}

# bats test_tags=long
@test "hf-infer --acts-ids: whole or not at all, and not what is there" {
    acts() { hf-infer "$DEMO" --ids "$(seq -s, 1 64)" --acts resid:0 --ctx 4 -q "$@"; }
    mkdir w
    mkfifo fifo
    for to in - fifo /dev/null; do
        run -2 --separate-stderr timeout 60 hf-infer "$DEMO" --ids 1,2 --acts resid:0 -o a.f32 --acts-ids $to
        [ "${stderr_lines[0]}" = "hf-infer: --acts-ids $to: must be a file, whose header is written at the end" ]
        [ ! -e $to.json ]
    done
    run -73 --separate-stderr acts --acts-ids no/ids.npy -o a.f32
    [ "$stderr" = "hf-infer: no/ids.npy: cannot be created: No such file or directory" ]
    for there in ids.npy ids.npy.json; do
        echo old >w/$there
        run -73 --separate-stderr acts --acts-ids w/ids.npy -o w/a.f32
        [ "$stderr" = "hf-infer: w/$there: exists already (--force replaces it)" ]
        [ "$(ls -A w)" = $there ]
        rm w/$there
    done
    echo old | tee w/ids.npy >w/ids.npy.json
    acts --acts-ids w/ids.npy -o w/a.f32 -f
    [ "$(npy "np.load('w/ids.npy').shape == (16, 4) and json.load(open('w/ids.npy.json'))['ctx']")" = 4 ]
    npy "np.save('in.npy', np.arange(8))"
    cp in.npy keep.npy
    run -2 --separate-stderr hf-infer "$DEMO" --file in.npy --acts resid:0 --ctx 4 -f --acts-ids in.npy -o a.f32
    [[ ${stderr_lines[0]} == "hf-infer: in.npy: "*"input"* ]]
    cmp in.npy keep.npy
    # nor is FILE.json an input or another output
    printf '1 2 3 4' | tee in.json >keep
    for what in "--acts-ids in -o a.f32 --file in.json" "--acts-ids w/x -o w/x.json --ids 1,2" \
        "--acts-ids w/x -o a.f32 --acts-meta w/x.json --ids 1,2" "--acts-ids m/config -o a.f32 --ids 1,2"; do
        [ -e m ] || cp -rL "$DEMO" m
        # shellcheck disable=SC2086
        run -2 hf-infer m --acts resid:0 -f $what
        [[ $output == *": is both an input and an output"* || $output == *": would be two outputs"* ]]
    done
    run -2 hf-infer m --acts resid:0 -f --acts-ids in -o a.f32 <in.json
    cmp in.json keep
    cmp m/config.json "$DEMO/config.json"
    [ ! -e a.f32 ]
    run -2 --separate-stderr acts --acts-ids a.npy -o a.npy -f
    rm w/*
    # a reader that goes away
    npy "np.save('in.npy', np.arange(100000) % 1024)"
    set +o pipefail
    hf-infer "$DEMO" --file in.npy --acts resid:-1 --ctx 4 -q --acts-ids w/ids.npy | head -c 4096 >/dev/null
    [ "${PIPESTATUS[0]}" -eq 141 ]
    [ -z "$(ls -A w)" ]
    # a full disk, of a known number of windows and of an unknown one
    small_disk 100k
    run -74 --separate-stderr hf-infer "$DEMO" --file in.npy --acts resid:-1 --ctx 4 -q \
        --acts-ids disk/ids.npy -o /dev/null
    [ "$stderr" = "hf-infer: disk/ids.npy: no room for 400128 bytes: No space left on device" ]
    npy "open('in.jsonl', 'w').write('{\"ids\":%s}\n' % list(range(1000)) * 100)"
    run -74 --separate-stderr hf-infer "$DEMO" --jsonl --file in.jsonl --acts resid:-1 --ctx 4 -q \
        --acts-ids disk/ids.npy -o /dev/null
    [ "$stderr" = "hf-infer: disk/ids.npy: cannot be written: No space left on device" ]
    [ -z "$(ls -A disk)" ]
    # one that is full after the last activation: all files or none
    for meta in m.json disk/m.json; do
        head -c 98304 /dev/zero >disk/filled # 100k are 25 pages: 1 is left
        run -74 --separate-stderr hf-infer "$DEMO" --ids "$(seq -s, 1 64)" --acts resid:-1 --ctx 4 -q \
            --acts-meta $meta --acts-ids disk/ids.npy -o a.f32
        [[ $stderr == "hf-infer: disk/"*"No space left on device" ]]
        [ "$(ls -A disk . | grep -E '^(a.f32|m.json|ids|.*tmp)')" = "" ]
    done
}

@test "hf-infer --acts: two places are one list, not two options, of which one would be ignored" {
    run -2 --separate-stderr hf-infer "$DEMO" -p a --acts resid:0 --acts resid:1 -o x
    [ "${stderr_lines[0]}" = "hf-infer: --acts is given 2 times" ]
    [ ! -e x ]
}
