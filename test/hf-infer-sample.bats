# SPDX-License-Identifier: ISC
# hf-infer: how the next token is chosen, and what generation_config.json says
# of it.  Expectations are numpy's, by the formulas of Hugging Face.
load helpers

# tiny: a copy of the demo model's directory that a test may spoil.
tiny() {
    cp -r "$DEMO" m
}

@test "hf-infer --seed: one seed one text, another seed another" {
    endless # 40 draws of many likely tokens each
    gen() { hf-infer m -p Hello -n 40 --temperature 3 --seed "$1"; }
    [ "$(gen 1 | cksum)" = "$(gen 1 | cksum)" ]
    [ "$(gen 1 | cksum)" != "$(gen 2 | cksum)" ]
}

@test "hf-infer --temperature: a small one, top-k 1 and top-p 0 are greedy" {
    g=$(hf-infer "$DEMO" -p "12+34=" --greedy)
    [ "$(hf-infer "$DEMO" -p "12+34=" --temperature 0.001)" = "$g" ]
    [ "$(hf-infer "$DEMO" -p "12+34=" --temperature 9 --top-k 1)" = "$g" ]
    [ "$(hf-infer "$DEMO" -p "12+34=" --temperature 9 --top-p 0)" = "$g" ]
    [ "$(hf-infer "$DEMO" -p "12+34=" --temperature 1 --min-p 1)" = "$g" ]
}

@test "hf-infer --temperature 0: greedy, whatever else is asked for" {
    endless
    g=$(hf-infer m -p Hello -n 20 --greedy --ids-out)
    [ "$(hf-infer m -p Hello -n 20 --ids-out --temperature 3)" != "$g" ]
    for how in '' '--seed 5' '--top-k 9 --top-p 0.9 --min-p 0.1'; do
        for t in 0 1e-7 0.0; do
            # shellcheck disable=SC2086
            [ "$(hf-infer m -p Hello -n 20 --ids-out --temperature $t $how)" = "$g" ]
        done
    done
    echo '{"do_sample":true,"temperature":0.6}' >m/generation_config.json
    [ "$(hf-infer m -p Hello -n 20 --ids-out --temperature 0)" = "$g" ]
    run -0 --separate-stderr hf-infer m -p Hello -n 1 --temperature 0 -v
    [[ $stderr == *"hf-infer: greedy, repetition penalty 1"* ]]
}

@test "hf-infer: a generation_config.json of temperature 0 is greedy until --temperature" {
    tiny
    g=$(hf-infer "$DEMO" -p Hello -n 9 --greedy --ids-out)
    for cold in 0 1e-7 1e-60; do
        for sample in true false; do
            echo "{\"do_sample\":$sample,\"temperature\":$cold}" >m/generation_config.json
            [ "$(hf-infer m -p Hello -n 9 --ids-out)" = "$g" ]
            [ "$(hf-infer m -p Hello -n 9 --ids-out --greedy)" = "$g" ]
            for how in '--seed 5' '--top-k 9' '--top-p 0.9 --min-p 0.1'; do
                # shellcheck disable=SC2086
                run -2 hf-infer m -p Hello -n 9 --ids-out $how
                [ "${lines[0]}" = "hf-infer: m/generation_config.json: temperature is 0: a draw needs --temperature" ]
            done
            [ "$(hf-infer m -p Hello -n 9 --ids-out --temperature 9)" != "$g" ]
        done
    done
}

@test "hf-infer: a generation_config.json that is a dangling link is reported, a missing one is not" {
    tiny
    rm -f m/generation_config.json
    run -0 hf-infer m -p x -n 1 --greedy
    ln -s gone m/generation_config.json
    run -66 hf-infer m -p x -n 1 --greedy
    [ "$output" = "hf-infer: m/generation_config.json: No such file or directory" ]
}

@test "hf-infer: without -n, max_new_tokens of generation_config.json counts; max_length is ignored, with a warning" {
    endless # never ends by itself; the context is 512
    count() { # OPTION...: how many tokens, and why no more
        run -0 --separate-stderr hf-infer m --ids 16,10,16,28 --greedy --json "$@"
        "$PYTHON" -c 'import json, sys; a = json.loads(sys.argv[1]); print(len(a["ids"]), a["finish_reason"])' "$output"
        echo "$stderr"
    }
    for sample in '"do_sample":true,' ''; do
        echo "{$sample\"max_new_tokens\":37,\"max_length\":99}" >m/generation_config.json
        [ "$(count)" = "37 length" ]
        [ "$(count -n 5)" = "5 length" ]
    done
    echo '{"ids":[16,10,16,28]}' | hf-infer m --jsonl --greedy >out
    [ "$("$PYTHON" -c 'import json; print(len(json.load(open("out"))["ids"]))')" = 37 ]
    echo '{"max_new_tokens":600}' >m/generation_config.json
    [ "$(count)" = "508 context
hf-infer: m: the context of 512 tokens is full: the text ends here" ]
    echo '{"max_length":99}' >m/generation_config.json
    [ "$(count)" = "256 length
hf-infer: m/generation_config.json: max_length is ignored" ]
    [ "$(count -n 300)" = "300 length" ]
    echo '{"max_length":20}' >m/generation_config.json # of transformers
    [ "$(count)" = "256 length" ]
    echo '{"max_new_tokens":0}' >m/generation_config.json
    run -65 hf-infer m --ids 1 --greedy --json
    [ "$output" = "hf-infer: m/generation_config.json: max_new_tokens is 0 (expected a whole number from 1 to 2147483647)" ]
}

@test "hf-infer: what a generation_config.json asks for in vain is told" {
    tiny
    echo '{"do_sample":true,"temperature":0.6,"num_beams":4,"typical_p":1.0,"suppress_tokens":[],"stop_strings":["x"]}' >m/generation_config.json
    run -0 --separate-stderr hf-infer m -p Hello -n 2 --seed 1 -v
    [[ $stderr == *"hf-infer: m/generation_config.json: num_beams is ignored"*"stop_strings is ignored"* ]]
    [[ $stderr == *", top-k 50, "* ]]
    [ "$(grep -c 'is ignored' <<<"$stderr")" = 2 ]
    run -0 --separate-stderr hf-infer m -p "Hello you" --nll
    [[ $stderr != *"is ignored"* ]]
    # others that transformers 4.57 obeys, and one that nobody knows yet: each once
    echo '{"dola_layers":"high","token_healing":true,"watermarking_config":{"bias":2},"top_h":0.4,"max_time":1,"encoder_no_repeat_ngram_size":2,"force_words_ids":[[1]],"constraints":["c"],"of 2031":0}' >m/generation_config.json
    for how in "-p Hello" --jsonl; do
        run -0 --separate-stderr hf-infer m -n 2 $how <<<$'{"ids":[1]}\n{"ids":[1]}'
        [ "$(sed 's/.*json: //; s/ is ignored//' <<<"$stderr" | paste -sd,)" = "dola_layers,token_healing,watermarking_config,top_h,max_time,encoder_no_repeat_ngram_size,force_words_ids,constraints,of 2031" ]
    done
    # what is about speed, or says nothing
    echo '{"cache_implementation":"static","_from_model_config":true,"dola_layers":null,"token_healing":false,"constraints":[],"encoder_no_repeat_ngram_size":0}' >m/generation_config.json
    run -0 --separate-stderr hf-infer m -p Hello -n 2
    [ -z "$stderr" ]
}

@test "hf-infer: draws what numpy draws by Hugging Face's processors, token after token" {
    "$PYTHON" - "$DEMO" <<'END'
# transformers/generation/logits_process.py in numpy, for one sequence.
import itertools, subprocess, sys, numpy as np
f32 = np.float32
prompt = [300, 0, 790]

def run(ids, *options):
    return subprocess.run(('hf-infer', sys.argv[1], '--ids', ','.join(map(str, ids))) + options,
                          check=True, capture_output=True, text=True).stdout

def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum(dtype=f32)

def draw(x, seen, at, penalty, temperature, top_k, top_p, min_p):
    for i in set(seen):
        x[i] = x[i] * f32(penalty) if x[i] < 0 else x[i] / f32(penalty)
    x = x / f32(temperature)
    if top_k:
        x[x < np.sort(x)[-top_k]] = -np.inf
    if top_p < 1:
        up = np.argsort(x, kind='stable')
        gone = np.cumsum(softmax(x[up])) <= 1 - top_p
        gone[-1] = False
        x[up[gone]] = -np.inf
    if min_p:
        p = softmax(x)
        x[p < f32(min_p) * p.max()] = -np.inf
    down = np.lexsort((np.arange(len(x)), -x))
    cum = np.cumsum(softmax(x[down]).astype(np.float64))
    i = int(np.searchsorted(cum, at, side='right'))
    # within f32 rounding of an edge either neighbour is right
    return {int(down[min(j, len(down) - 1)]) for j in (i,)
            } | {int(down[j]) for j in (i - 1, i + 1)
                 if 0 <= j < len(down) and min(abs(cum - at)) < 1e-5}

# What is within f32 rounding of top-p's or min-p's bound may stay or go.
def draws(x, *how, top_p, min_p):
    return set().union(*(draw(x.copy(), *how, p, m)
                         for p in ((top_p - 1e-5, top_p, top_p + 1e-5) if top_p < 1 else (1,))
                         for m in ((min_p - 1e-6, min_p, min_p + 1e-6) if min_p else (0,))))

seen, n_either = set(), 0
cases = itertools.product((1, 1.3), (0.7, 2.5), (0, 20), (1, 0.8), (0, 0.05))
for seed, (r, t, k, p, m) in enumerate(cases):
    out = run(prompt, '-n', '20', '--ids-out', '--seed', str(seed), '--temperature', str(t),
              '--top-k', str(k), '--top-p', str(p), '--min-p', str(m), '--repetition-penalty', str(r))
    ids = prompt + [int(i) for i in out.split()]
    run(ids, '--logits', 'l.npy', '--force')
    raw = np.load('l.npy')
    words = np.random.Philox(key=[seed, 1]).random_raw(20) >> np.uint64(40)
    for n in range(3, len(ids)):
        want = draws(raw[n - 1], ids[:n], float(words[n - 3]) * 2.0**-24, r, t, k, top_p=p, min_p=m)
        assert ids[n] in want, (seed, n, ids, want)
        n_either += len(want) > 1
        seen.add(ids[n])
# of 640 draws there is one that may be either, and over 140 ids are seen
assert len(seen) > 50 and n_either < 20, (len(seen), n_either)
END
}

@test "hf-infer: the five settings of a generation_config.json are in force, an option before them" {
    endless
    "$PYTHON" - <<'END'
import json, subprocess
keys = {"repetition_penalty": 1.21, "temperature": 1.7, "top_k": 37, "top_p": 0.83, "min_p": 0.03}
neutral = {"repetition_penalty": 1, "temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0}

def write(values):
    json.dump(dict(values, do_sample=True), open("m/generation_config.json", "w"))

def run(values={}):
    options = [s for k, v in values.items() for s in ("--" + k.replace("_", "-"), str(v))]
    r = subprocess.run(["hf-infer", "m", "-p", "Hello", "-n", "200", "--ids-out", "--seed", "5", "-v"] + options,
                       check=True, capture_output=True, text=True)
    return r.stdout, [l for l in r.stderr.splitlines() if "seed" in l]

write(keys)
ids, said = run()
assert said == ["hf-infer: repetition penalty 1.21, temperature 1.7, top-k 37, top-p 0.83, min-p 0.03, seed 5"], said
write({"repetition_penalty": 3, "temperature": 0.5, "top_k": 2, "top_p": 0.5, "min_p": 0.5})
assert run()[0] != ids and run(keys) == (ids, said)
# each of the five has its part: alone it changes one of the first few draws
for k in keys:
    warm = {**neutral, "temperature": 3}
    write({**warm, k: keys[k]})
    ids = run()[0]
    assert ids == run({**warm, k: keys[k]})[0] != run(warm)[0], k
END
}

@test "hf-infer --stop: the name of a special token is found, though the text has it not" {
    endless # "2<|endoftext|>..." by its ids
    run -0 hf-infer m -p "1+1=" --greedy -n 9 --ids-out
    [ "$(hf-infer m --decode --ids "$output" | head -c 14)" = '2<|endoftext|>' ]
    whole=$(hf-infer m -p "1+1=" --greedy -n 9 --json)
    for case in '<|endoftext|>/2/stop' 'ft/2/stop' '2<|end/ /stop' '<|endoftext|>No/-/length'; do
        IFS=/ read -r stop text reason <<<"$case"
        [ "$text" != - ] || text=$("$PYTHON" -c 'import json, sys; print(json.loads(sys.argv[1])["text"])' "$whole")
        for out in "$(hf-infer m -p "1+1=" --greedy -n 9 --json --stop "$stop")" \
            "$(hf-infer m --jsonl --greedy -n 9 <<<"{\"prompt\":\"1+1=\",\"stop\":\"$stop\"}")"; do
            [[ $out == *"\"text\":\"${text% }\","*"\"finish_reason\":\"$reason\"}" ]]
        done
    done
}
