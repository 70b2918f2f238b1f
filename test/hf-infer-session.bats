# SPDX-License-Identifier: ISC
# hf-infer --save-session, --session: what goes on from a file has the bits of
# what never stopped, and a file of anything else is refused.
load helpers

setup_file() {
    [ -z "${LEFT_OUT-}" ] || return 0
    cd "$BATS_FILE_TMPDIR"
    py "$ROOT/test/ref/family_ref.py" make llama m
    hf-infer m --ids 3,1,4,1,5,9,2,6 -n 0 --ids-out --save-session s.st >s.out
}

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    cp -r "$BATS_FILE_TMPDIR/m" "$BATS_FILE_TMPDIR/s.st" .
}

# same SAVED PROMPT MODEL OPTION...: the ids of a prompt go on from a session of
# other ids as they do without it; with all bits of the log-probabilities.
same() {
    local saved=$1 prompt=$2
    shift 2
    hf-infer "$@" --ids "$saved" -n 3 --ids-out --save-session same.st -f >/dev/null
    hf-infer "$@" --ids "$prompt" -n 6 --seed 3 --json --logprobs 4 >want
    hf-infer "$@" --ids "$prompt" -n 6 --seed 3 --json --logprobs 4 \
        --session same.st -q >got
    cmp got want
    hf-infer "$@" --ids "$prompt" --top 9 >want
    hf-infer "$@" --ids "$prompt" --top 9 --session same.st -q >got
    cmp got want
}

@test "hf-infer --session: the bits of the whole prompt, whatever the file has of it" {
    for family in llama gpt2 gemma3_text phi3:longrope cohere2 qwen3_5 deepseek_v3; do
        rm -rf f
        py "$ROOT/test/ref/family_ref.py" make $family f
        same "$(seq -s, 20 39)" "$(seq -s, 20 45)" f # goes on
        same "$(seq -s, 20 39)" "$(seq -s, 20 39)" f # is all of it
        same "$(seq -s, 20 45)" "$(seq -s, 20 39)" f # ends before it
        same "$(seq -s, 20 39)" 20,21,22,1,2,3,4,5,6,7,8,9,10,11,12,13,14 f
    done
    same "$(seq -s, 20 39)" "$(seq -s, 20 45)" f --kv-latents
    run -65 --separate-stderr hf-infer f --ids 20,21,22 -n 0 --ids-out --session same.st
    [ "${stderr_lines[-1]}" = "hf-infer: same.st: kv_dtype is F32, latents (expected F32, by --kv-dtype and --kv-latents)" ]
    same "$(seq -s, 1 150)" "$(seq -s, 1 200)" "$ROOT/demo/qwen3-moe-tiny" --chunk 7 -j 3
}

@test "hf-infer --kv-latents: batches are as alone; what has no latents, or other ones, is refused" {
    run -65 hf-infer m --ids 1,2 --top 1 --kv-latents
    [ "$output" = "hf-infer: m: --kv-latents is for multi-head latent attention, which a llama does not have" ]
    py "$ROOT/test/ref/family_ref.py" make deepseek_v2 f
    same_in_batches f -n 6 -q --kv-latents
    echo '{"ids":[1,2,3],"labels":[1,2,3]}' >d.jsonl
    moe-sft tune -m f -d d.jsonl -n 1 -q --targets kv_b_proj -o a
    run -65 hf-infer f --ids 1,2 --top 1 -q --kv-latents --lora a
    [ "$output" = "hf-infer: f: with --kv-latents, kv_b_proj of layer 0 can have neither an adapter nor a table" ]
}

# bats test_tags=long
@test "hf-infer --session: the bits of the whole prompt in each way to compute" {
    for how in '--compute bf16' '--kv-dtype f16' '--kv-dtype bf16' \
        '--compute bf16 --kv-dtype bf16' '-j 1 --chunk 3'; do
        # shellcheck disable=SC2086
        same "$(seq -s, 1 70)" "$(seq -s, 1 90)" "$DEMO" $how
    done
    isas_here
    hf-infer "$DEMO" --ids "$(seq -s, 1 70)" -n 0 --save-session same.st -f
    hf-infer "$DEMO" --ids "$(seq -s, 1 90)" -n 6 --json --logprobs 4 >want
    for isa in $ISAS; do # the exact class's bits are those of any CPU
        TU_ISA=$isa hf-infer "$DEMO" --ids "$(seq -s, 1 70)" -n 0 --save-session $isa.st
        cmp $isa.st same.st
        TU_ISA=$isa hf-infer "$DEMO" --ids "$(seq -s, 1 90)" -n 6 --json --logprobs 4 --session same.st >got
        cmp got want
    done
}

@test "hf-infer --session: wherever the prompt comes from, and each line of --jsonl" {
    text='One two three four five six seven eight nine ten. What is next?'
    printf %s "$text" >prompt
    printf '{"prompt":"%s"}\n{"prompt":"Hello"}\n{"prompt":"%s?"}\n' "$text" "$text" >lines
    hf-infer "$DEMO" -p "${text% *}" -n 0 --save-session s
    hf-infer "$DEMO" -p "$text" -n 9 --greedy >want
    hf-infer "$DEMO" -p "$text" -n 9 --greedy --session s -q | cmp - want
    hf-infer "$DEMO" --file prompt -n 9 --greedy --session s -q | cmp - want
    hf-infer "$DEMO" -n 9 --greedy --session s -q <prompt | cmp - want
    hf-infer "$DEMO" --encode --special <prompt |
        hf-infer "$DEMO" --ids - -n 9 --greedy --session s -q | cmp - want
    hf-infer "$DEMO" --jsonl -n 9 --greedy --logprobs 2 <lines >want
    for batch in 1 2 3; do
        hf-infer "$DEMO" --jsonl -n 9 --greedy --logprobs 2 --session s -v \
            --batch $batch <lines 2>log >got
        cmp got want
        [ "$(sed -n 's/.* in, \([0-9]*\) of them shared.*/\1/p' log)" -ge 32 ]
    done
    hf-infer "$DEMO" --chat -p "$text" -n 9 --greedy --save-session c >want
    hf-infer "$DEMO" --chat -p "$text" -n 9 --greedy --session c | cmp - want
    run -0 --separate-stderr hf-infer "$DEMO" --jsonl -n 1 --session s <<<'{"prompt":"Hello"}'
    [ "$stderr" = "hf-infer: s: no prompt begins with 16 or more of its tokens" ]
}

@test "hf-infer --session: one line says that not all of it is used, and that nothing can be" {
    run -0 --separate-stderr hf-infer m --ids-out --ids 3,1,4,7,7 -n 1 --session s.st
    [ "$stderr" = "hf-infer: s.st: the prompt begins with 3 of its 8 tokens" ]
    run -0 --separate-stderr hf-infer m --ids-out --ids 3,1,4,7,7 -n 1 --session s.st -q
    [ -z "$stderr" ]
    run -0 --separate-stderr hf-infer m --ids-out --ids 3,1,4,1,5,9,2,6 -n 1 --session s.st
    [ -z "$stderr" ]
    run -65 --separate-stderr hf-infer m --ids-out --ids 4,1 -n 1 --session s.st
    [ "$stderr" = "hf-infer: s.st: begins with token 3 (expected 4, as the prompt)" ]
    [ -z "$output" ]
}

@test "hf-infer --save-session: ids, keys and values are the reference's, in safetensors" {
    for family in llama gpt2 gemma3_text; do
        rm -rf m
        py "$ROOT/test/ref/family_ref.py" make $family m
        hf-infer m --ids-out --ids 3,1,4,1,5,9,2,6 -n 4 --save-session s.st -f >/dev/null
        st-inspect verify s.st
        py - <<'END'
import numpy as np
import family_forward, family_read, mkst
ids = np.array([3, 1, 4, 1, 5, 9, 2, 6])
found, meta = mkst.read("s.st")
assert meta["format"] == "tensorutils session 1", meta
assert sorted(meta) == ["arithmetic", "format", "kv_dtype", "longrope",
                        "model_xxh3", "xxh3"], meta
assert (found.pop("ids") == ids).all()
want = {}


def keep(i, k, v):
    want["layers.%d.keys" % i] = k.transpose(1, 0, 2)
    want["layers.%d.values" % i] = v.transpose(1, 0, 2)
    return k, v


family_forward.forward(family_read.read("m", len(ids))[0], ids,
                       shorten=(len(ids), keep))
assert sorted(found) == sorted(want)
for name, x in want.items():
    assert found[name].shape == x.shape, name
    assert np.abs(found[name] - x).max() < 1e-4 * np.abs(x).max(), name
END
    done
}

# refused WHAT OPTION...: a session, before the prompt is computed, in one line.
refused() {
    local what=$1
    shift
    run -65 --separate-stderr hf-infer "$@" --ids 3,1,4,1,5,9,2,6 -n 1 --ids-out
    [ -z "$output" ]
    # shellcheck disable=SC2053
    [[ $stderr == $what ]] || {
        echo "$stderr"
        return 1
    }
}

@test "hf-infer --session: of another model, adapter or arithmetic is refused with 65" {
    model="hf-infer: s.st: model_xxh3 is [0-9a-f]* (expected [0-9a-f]*, of this model and its adapters)"
    py "$ROOT/test/ref/family_ref.py" make llama other --seed 9
    refused "$model" other --session s.st
    py "$ROOT/test/ref/family_ref.py" make gpt2 g
    refused "$model" g --session s.st
    cp -r m theta # the same weights, which compute something else
    sed -i 's/"rope_theta": [0-9.]*/"rope_theta": 12345.0/' theta/config.json
    run ! cmp -s theta/config.json m/config.json
    refused "$model" theta --session s.st
    py - <<'END'
import shutil
import numpy as np
import mkst
t, meta = mkst.load_all("m/model.safetensors")
name = next(n for n in sorted(t) if n.endswith("1.mlp.down_proj.weight"))
w = mkst.values(*t[name])
r = np.random.default_rng(1)
merged = w + 1e-3 * r.standard_normal((w.shape[0], 2)) @ r.standard_normal((2, w.shape[1]))
for to, x in ("plain", w), ("merged", merged):
    shutil.copytree("m", to)
    mkst.save(to + "/model.safetensors",
              {n: np.asarray(x if n == name else mkst.values(*v), "<f4")
               for n, v in t.items()}, meta)
END
    hf-infer plain --ids-out --ids 3,1,4,1,5,9,2,6 -n 0 --save-session s.st -f
    hf-infer plain --ids-out --ids 3,1,4,1,5,9,2,6 -n 1 --session s.st
    refused "$model" merged --session s.st
    refused 'hf-infer: s.st: arithmetic is f32, 8 lanes (expected bf16, *, by --compute)' plain --session s.st --compute bf16
    refused 'hf-infer: s.st: kv_dtype is F32 (expected F16, by --kv-dtype and --kv-latents)' plain --session s.st --kv-dtype f16
}

# bats test_tags=long
@test "hf-infer --session: adapters are of the model, in their order" {
    py "$ROOT/test/ref/lora_cases.py" cases
    m=cases/qwen3-patterns
    ids=3,1,4,1,5,9,2,6
    hf-infer $m --ids-out --lora $m/lora0 --ids $ids -n 0 --save-session s.st -f
    hf-infer $m --ids-out --lora $m/lora0 --ids $ids -n 5 --greedy >want
    hf-infer $m --ids-out --lora $m/lora0 --ids $ids -n 5 --greedy --session s.st | cmp - want
    refused "*model_xxh3*" $m --session s.st
    refused "*model_xxh3*" $m --session s.st --lora $m/lora0 --lora $m/lora0
    cp -r $m/lora0 twice
    sed -i 's/"lora_alpha": *\([0-9]*\)/"lora_alpha": 1\1/' twice/adapter_config.json
    refused "*model_xxh3*" $m --session s.st --lora twice
}

# bats test_tags=long
@test "hf-infer --session: where longrope's factors are others it is refused" {
    py "$ROOT/test/ref/family_ref.py" make phi3:longrope f
    hf-infer f --ids-out --ids "$(seq -s, 1 12)" -n 0 --save-session short
    hf-infer f --ids-out --ids "$(seq -s, 1 12)" -n 20 --greedy --save-session long >want
    hf-infer f --ids-out --ids "$(seq -s, 1 12)" -n 20 --greedy --session long | cmp - want
    run -65 --separate-stderr hf-infer f --ids-out --ids "$(seq -s, 1 12)" -n 20 --session short
    [ "$stderr" = "hf-infer: short: is of a sequence of up to 16 tokens, and this one may have 31: the model's rotations differ" ]
    run -65 --separate-stderr hf-infer f --ids-out --ids "$(seq -s, 1 12)" -n 2 --session long
    [ "$stderr" = "hf-infer: long: is of a sequence of over 16 tokens, and this one may have 13: the model's rotations differ" ]
    "$PYTHON" - <<'END'
b = open('long', 'rb').read()
n = int.from_bytes(b[:8], 'little')
head = b[8:8 + n].replace(b'"longrope":"true"', b'"longrope":"false"').rstrip()
head += b' ' * (-len(head) % 8)
open('lies', 'wb').write(len(head).to_bytes(8, 'little') + head + b[8 + n:])
END
    run -65 --separate-stderr hf-infer f --ids-out --ids "$(seq -s, 1 12)" -n 2 --session lies
    [[ $stderr == "hf-infer: lies: is damaged: "* ]]
}

@test "hf-infer --session: what is cut, changed or no session is refused in one line" {
    size=$(stat -c %s s.st)
    for n in 0 1 7 8 9 300 $((size / 2)) $((size - 1)); do
        head -c "$n" s.st >cut
        run -65 --separate-stderr hf-infer m --ids-out --ids 3,1,4,1,5,9,2,6 -n 1 --session cut
        [[ $output == "" && $stderr == "hf-infer: cut: "* && $stderr != *$'\n'* ]]
    done
    hf-infer m --ids 3,1,4,1,5,9,2,6 -n 3 --logprobs 2 --json >want
    "$PYTHON" - <<'END'
import random, subprocess
whole = open('s.st', 'rb').read()
r = random.Random(1)
n = int.from_bytes(whole[:8], 'little')
places = [r.randrange(8 * (8 + n)) for i in range(60)]
places += [r.randrange(8 * (8 + n), 8 * len(whole)) for i in range(60)]
refused = 0
for at in places:
    b = bytearray(whole)
    b[at // 8] ^= 1 << at % 8
    open('flipped', 'wb').write(b)
    p = subprocess.run(['hf-infer', 'm', '--ids', '3,1,4,1,5,9,2,6', '-n', '3',
                        '--logprobs', '2', '--json', '--session', 'flipped'],
                       capture_output=True)
    if p.returncode == 0: # of no meaning, as a name that nobody asks for
        assert p.stdout == open('want', 'rb').read(), at
        assert at < 8 * (8 + n), at
        continue
    refused += 1
    assert p.returncode == 65 and not p.stdout, (at, p)
    assert p.stderr.startswith(b'hf-infer: flipped: ') and p.stderr.count(b'\n') == 1, p.stderr
assert refused > 110, refused
# sizes that no memory has, in a file of the same length
for old, new in (b'"shape":[8]', b'"shape":[9]'), (b',8,', b',9,'), (b'"shape":[8]', b'"shape":[8888888888888]'):
    b = whole[8:8 + n].replace(old, new)
    open('huge', 'wb').write(len(b).to_bytes(8, 'little') + b + whole[8 + n:])
    p = subprocess.run(['hf-infer', 'm', '--ids', '3,1', '--ids-out', '--session', 'huge'], capture_output=True)
    assert p.returncode == 65 and p.stderr.count(b'\n') == 1, p
END
    refused "hf-infer: m/model.safetensors: is not a session (format is *, expected tensorutils session 1)" m --session m/model.safetensors
    mkdir d
    run -66 --separate-stderr hf-infer m --ids-out --ids 3,1 -n 1 --session none
    [ "$stderr" = "hf-infer: none: No such file or directory" ]
    run ! hf-infer m --ids-out --ids 3,1 -n 1 --session d
    [[ $output == "hf-infer: d"* && $output != *$'\n'* ]]
}

@test "hf-infer --save-session: an existing file, an input, no room: in one line, and nothing is left" {
    cp s.st before
    run -73 --separate-stderr hf-infer m --ids-out --ids 3,1 -n 1 --save-session s.st
    [ "$stderr" = "hf-infer: s.st: exists already (--force replaces it)" ]
    run -2 --separate-stderr hf-infer m --ids-out --ids 3,1,4,1,5,9,2,6 -n 1 --session s.st --save-session s.st -f
    [[ $stderr == "hf-infer: s.st: "* ]]
    cmp s.st before
    run -73 hf-infer m --ids-out --ids 3,1 -n 1 --save-session none/s.st
    run -2 hf-infer m --ids-out --ids 3,1 -n 1 --save-session -
    run -65 hf-infer m --ids-out --ids 3,99999 -n 1 --save-session new.st
    [ ! -e new.st ]
    [ -z "$(find . -name '.*tmp*')" ]
    small_disk 64k
    run -74 --separate-stderr hf-infer "$DEMO" --ids "$(seq -s, 1 200)" -n 1 --save-session disk/s.st
    [[ $stderr == "hf-infer: disk/s.st: "* && $stderr != *$'\n'* ]]
    [ -z "$(ls -A disk)" ]
}

@test "hf-infer --session: what it does not go with is a usage error" {
    for options in "--kvc c" "--sae s" "--steer s:1+1" "--ablate s:1" "--lut l"; do
        # shellcheck disable=SC2086
        run -2 --separate-stderr hf-infer m --ids 3,1 --session s.st $options
        [[ $stderr == "hf-infer: --session and --save-session are of the model and --lora alone"* ]]
    done
    run -2 hf-infer m --jsonl --save-session new.st <<<'{"ids":[1]}'
    for mode in --nll --ppl "--logits x" "--acts resid:0"; do
        # shellcheck disable=SC2086
        run -2 hf-infer m --ids 3,1 --session s.st $mode
        [[ $output == *session* ]]
    done
}
