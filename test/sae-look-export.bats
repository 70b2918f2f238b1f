# SPDX-License-Identifier: ISC
# sae-look prompts, label and export: what other programs read of a RUN.
load helpers
load look

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    ref sae 24 8 4 1 sae
    ref rows 300 8 2 x.npy
    ref ids 30 10 3 ids.npy
    ref scan sae x.npy run ids=ids.npy skip_ids=3,5 top=4 sample=9 context=2,3
    ref scan sae x.npy plain tokens=10 top=3 sample=3
    py - <<'END'
import json, numpy as np, look_ref, mkst
meta, _ = look_ref.read("run")
rng = np.random.default_rng(4)
ids, values = rng.integers(0, 1020, (24, 2, 3)), rng.normal(size=(24, 2, 3)) * 5
mkst.save("run/lens.safetensors", {"lens_id": ids.astype("<i4"), "lens_value": values.astype("<f4"),
          "lens_mean": np.zeros(24, "<f4"), "lens_std": np.ones(24, "<f4")}, {"sae_xxh3": meta["sae_xxh3"]})
END
}

# prompts_are FILE NEGATIVES LATENTS: each line's texts and levels are numpy's.
prompts_are() {
    py - "$@" <<'END'
import json, os, re, sys, numpy as np, look_page, look_ref
meta, t = look_ref.read("run")
names = look_page.spellings(os.environ["DEMO"])
latents = [i for i in (eval(sys.argv[3]) if sys.argv[3] else range(24)) if t["rows_active"][i]]
def shown(data):
    return data.decode("utf-8", "replace")
def texts(i, kind, j, marked):
    row, acts, ids = int(t[kind + "_row"][i, j]), t[kind + "_acts"][i, j], t[kind + "_ids"][i, j]
    first, end = look_page.window(meta, acts, ids, row)
    out, levels, inside = b"", [], False
    for k in range(first, end):
        active = marked and acts[k] > 0
        out += (b"<<" if active else b">>") if active != inside else b""
        inside = active
        own = names[int(ids[k])] if ids[k] >= 0 else b""
        out += own
        if active:
            levels.append((shown(own), look_page.level(acts[k], t["max"][i])))
    return row // meta["T"], shown(out + (b">>" if inside else b"")), levels
with open(sys.argv[1]) as f:
    lines = [json.loads(line) for line in f]
assert [line["id"] for line in lines] == latents and all(set(line) == {"id", "text"} for line in lines)
some = 0
for i, line in zip(latents, lines):
    rest = line["text"]
    assert rest.startswith("A feature of a language model is active") and "Answer with one short phrase" in rest
    rest = rest[rest.index("\n") + 1:]
    mine = {int(r) // meta["T"] for kind in ("top", "sample") for r in t[kind + "_row"][i] if r >= 0}
    for j in range(int((t["top_row"][i] >= 0).sum())):
        _, text, levels = texts(i, "top", j, True)
        head = f"\nText {j + 1}: {text}\nActive: "
        assert rest.startswith(head), (rest, head)
        line, rest = rest[len(head):].split("\n", 1)
        got = json.loads('[' + re.sub(r'" (\d+)(, |$)', r'", \1\2', line) + ']')
        assert list(zip(got[::2], got[1::2])) == levels, (line, levels)
    seen = set()
    if rest:
        assert rest.startswith("\nIt is not active in these texts:\n")
        rest = rest[rest.index(":\n") + 2:]
    for k in range(1, 24):
        other = (i + k) % 24
        if len(seen) == int(sys.argv[2]):
            break
        if not t["rows_active"][other]:
            continue
        sequence, text, _ = texts(other, "top", 0, False)
        if sequence in mine or sequence in seen:
            continue
        seen.add(sequence)
        head = f"\nText without it {len(seen)}: {text}\n"
        assert rest.startswith(head), (rest, head)
        rest = rest[len(head):]
        some += 1
    assert not rest, rest
assert (some > 0) == (sys.argv[2] != "0")
END
}

@test "sae-look prompts: a question for each active latent, its texts and levels as numpy has them" {
    sae-look prompts run -m "$DEMO" -o a.jsonl
    prompts_are a.jsonl 0 ''
    [ "$(wc -l <a.jsonl)" = 23 ] # one is dead
    sae-look prompts run -m "$DEMO" --latents 0,3-5,20 --negatives 3 >b.jsonl
    prompts_are b.jsonl 3 '[0, 3, 4, 5, 20]'
    run -2 sae-look prompts run
    run -65 sae-look prompts plain -m "$DEMO"
    [ "$output" = "sae-look: plain: has no token ids (scan --acts-ids)" ]
    py - <<'END'
import look_ref
meta, t = look_ref.read("run")
look_ref.write("sample", {**meta, "top": 0}, {k: v[:, :0] if k.startswith("top") else v for k, v in t.items()})
END
    run -65 --separate-stderr sae-look prompts sample -m "$DEMO"
    [ "$stderr" = "sae-look: sample: has no strongest examples (scan --top)" ]
    [ -z "$output" ]
}

@test "sae-look prompts: a negative is in no sequence that is known to have the latent" {
    # with all examples, those are windows in which it is not active
    ref scan sae x.npy all ids=ids.npy skip_ids=3,5 top=30 sample=0 context=2,3
    sae-look prompts all -m "$DEMO" --negatives 9 >a.jsonl
    py - <<'END'
import json, os, numpy as np, look_page, look_ref
meta, t = look_ref.read("all")
assert (t["seqs_active"] <= 30).all()
names = look_page.spellings(os.environ["DEMO"])
ids = np.load("ids.npy")
f = look_ref.activations("sae", np.load("x.npy"))[0].reshape(30, 10, 24)
f[(ids < 0) | (ids == 3) | (ids == 5)] = 0
n = 0
for line in map(json.loads, open("a.jsonl")):
    want, seen = "", set()
    for k in range(1, 24):
        i = (line["id"] + k) % 24
        sequence, at = divmod(int(t["top_row"][i, 0]), 10)
        if at < 0 or sequence in seen or f[sequence, :, line["id"]].any() or len(seen) == 9 or t["rows_active"][i] == 0:
            continue
        seen.add(sequence)
        shown = b"".join(names[v] for v in ids[sequence, max(0, at - 2):at + 4].tolist() if v >= 0)
        want += f"\nText without it {len(seen)}: {shown.decode('utf-8', 'replace')}\n"
    n += len(seen)
    assert line["text"].endswith(("\nIt is not active in these texts:\n" if seen else "") + want), (line, want)
    assert line["text"].count("\nText without it ") == len(seen)
assert n > 50
END
}

@test "sae-look prompts | hf-infer --jsonl | sae-look label: labels come back" {
    sae-look prompts run -m "$DEMO" --latents 1-3 | hf-infer "$DEMO" --jsonl -n 4 --greedy >answers.jsonl
    [ "$(wc -l <answers.jsonl)" = 3 ]
    sae-look label run answers.jsonl
    [ "$(head -n 1 run/labels.tsv)" = $'latent\tlabel' ]
    sae-look list run >/dev/null
}

@test "sae-look label: the first line of each answer, by latent, at most 200 characters" {
    py - <<'END'
import json
answers = [(7, "\n \n  Numbers, mostly. \nThat is all."), (2, "é" * 300), (23, "a\tb\r\nc"), (5, ""), (6, " \n\t"), (0, "\u202ex\0\x1b[1m"),
           (9, "x" * 199 + "yz"), (11, "日本語")]
with open("a.jsonl", "w") as f:
    for id, text in answers:
        f.write(json.dumps({"finish_reason": "eos", "text": text, "id": id}) + "\n\n")
END
    sae-look label run - <a.jsonl
    py - <<'END'
want = {0: "\u202ex\0\x1b[1m", 2: "é" * 200, 7: "Numbers, mostly.", 9: "x" * 199 + "y", 11: "日本語", 23: "a b"}
got = open("run/labels.tsv", newline="").read()
assert got == "latent\tlabel\n" + "".join(f"{k}\t{v}\n" for k, v in want.items()), got
END
    sae-look list run | cut -f 1,7 | grep -qxF $'11\t日本語'
    # an existing file is kept, unless -f says so
    cp run/labels.tsv kept
    run -73 sae-look label run a.jsonl
    cmp kept run/labels.tsv
    echo '{"id":1,"text":"one"}' | sae-look label -f run -
    [ "$(cat run/labels.tsv)" = $'latent\tlabel\n1\tone' ]
}

@test "sae-look label: an answer of no latent, of one twice, or without text is refused, nothing is written" {
    refused() {
        printf '%s\n' "$2" >a.jsonl
        run -65 sae-look label run a.jsonl
        [[ $output == "sae-look: a.jsonl: "$1* ]]
        [ ! -e run/labels.tsv ]
    }
    refused "line 1: id is 24 (expected a whole number from 0 to 23)" '{"id":24,"text":"x"}'
    refused "line 1: id is -1" '{"id":-1,"text":"x"}'
    refused "line 1: id is \"3\"" '{"id":"3","text":"x"}'
    refused "line 1: id is missing" '{"text":"x"}'
    refused "line 1: text is missing" '{"id":3}'
    refused "line 1: text is 5" '{"id":3,"text":5}'
    refused "latent 3 has two answers" $'{"id":3,"text":"x"}\n{"id":1,"text":"y"}\n{"id":3,"text":""}'
    refused "line 2" $'{"id":3,"text":"x"}\n[1]'
    refused "line 2" $'{"id":3,"text":"x"}\n{"id":'
}

# SAEDashboard's classes, by their members: what its loaders take, no more and
# no less (neuronpedia_dashboard.py, NeuronpediaDashboardBatch and on).
batches_are() {
    py - "$@" <<'END'
import json, os, sys, numpy as np, look_page, look_ref, mkst
run, directory, quantiles, latents, layer = sys.argv[1], sys.argv[2], int(sys.argv[3]), eval(sys.argv[4]), int(sys.argv[5])
meta, t = look_ref.read(run)
lens = {k: np.frombuffer(v[2], "<i4" if v[0] == "I32" else "<f4").reshape(v[1]) for k, v in mkst.load(run + "/lens.safetensors").items()} \
    if os.path.exists(run + "/lens.safetensors") else {}
names = look_page.spellings(os.environ["DEMO"])
def token(i):
    return names[i].decode("utf-8", "replace") if i in names else str(i) if i >= 0 else ""
EMPTY = ("neuron_alignment_indices neuron_alignment_values neuron_alignment_l1 correlated_neurons_indices correlated_neurons_l1 "
         "correlated_neurons_pearson correlated_features_indices correlated_features_l1 correlated_features_pearson "
         "logits_hist_data_bar_heights logits_hist_data_bar_values decoder_weights_dist").split()
KNOWN = ("feature_index neg_str neg_values pos_str pos_values frac_nonzero freq_hist_data_bar_values freq_hist_data_bar_heights "
         "n_prompts_total n_tokens_in_prompt dataset activations").split()
files = sorted(os.listdir(directory), key=lambda n: int(n[6:-5]))
assert files == [f"batch-{k}.json" for k in range((len(latents) + 255) // 256)], files
features = []
for k, name in enumerate(files):
    with open(os.path.join(directory, name)) as f:
        batch = json.load(f)
    assert list(batch) == ["model_id", "layer", "sae_set", "features"]
    assert (batch["model_id"], batch["layer"], batch["sae_set"]) == ('gpt2-"small"', layer, "5-res-jb")
    assert len(batch["features"]) == min(256, len(latents) - 256 * k)
    features += batch["features"]
assert [f["feature_index"] for f in features] == latents
for latent, f in zip(latents, features):
    i = t["latent"].tolist().index(latent)
    assert set(f) == {*EMPTY, *KNOWN} and all(f[k] == [] for k in EMPTY) and f["dataset"] == ""
    for sign, name in enumerate(("pos", "neg")):
        assert f[name + "_str"] == [token(int(v)) for v in (lens["lens_id"][latent, sign] if lens else [])]
        assert np.array_equal(np.array(f[name + "_values"], "f4"), lens["lens_value"][latent, sign] if lens else [])
    assert f["frac_nonzero"] == t["rows_active"][i] / meta["rows"]
    bins = np.flatnonzero(t["hist"][i])
    assert f["freq_hist_data_bar_heights"] == t["hist"][i][bins].tolist()
    low = [0.0 if b == 0 else float(np.uint32((int(b) + 222) << 22).view("f4")) for b in bins]
    assert f["freq_hist_data_bar_values"] == low
    assert (f["n_prompts_total"], f["n_tokens_in_prompt"]) == (meta["sequences"], meta["T"])
    examples = list(look_page.examples(meta, t, i, quantiles))
    assert len(f["activations"]) == len(examples)
    values = {}
    for kind, j, q in examples:
        values.setdefault(q, []).append(float(t[kind + "_value"][i, j]))
    n = sum(len(v) for q, v in values.items() if q is not None)
    for a, (kind, j, q) in zip(f["activations"], examples):
        assert set(a) == {"bin_min", "bin_max", "bin_contains", "tokens", "values", "qualifying_token_index", "dfa_values",
                          "dfa_maxValue", "dfa_targetIndex"}
        assert (a["dfa_values"], a["dfa_maxValue"], a["dfa_targetIndex"]) == ([], None, None)
        want = (-1, 99, -1) if q is None else (min(values[q]), max(values[q]), len(values[q]) / n)
        assert (a["bin_min"], a["bin_max"], a["bin_contains"]) == want, (a, want)
        row, acts, ids = int(t[kind + "_row"][i, j]), t[kind + "_acts"][i, j], t[kind + "_ids"][i, j]
        first, end = look_page.window(meta, acts, ids, row)
        assert a["tokens"] == [token(int(v)) for v in ids[first:end]]
        assert np.array_equal(np.array(a["values"], "f4"), np.maximum(acts[first:end], 0))
        assert np.float32(a["values"][a["qualifying_token_index"]]) == t[kind + "_value"][i, j]
END
}

neuronpedia() {
    sae-look export --neuronpedia "$2" --model-id 'gpt2-"small"' --source 5-res-jb -m "$DEMO" "$1" "${@:3}"
}

@test "sae-look export --neuronpedia: batches have all of SAEDashboard's members, and numpy's numbers" {
    sed -i 's/"hook": null/"hook": "blocks.12.hook_resid_post"/' run/look.json
    neuronpedia run np
    batches_are run np 5 'list(range(24))' 12
    rm run/lens.safetensors
    neuronpedia run few --latents 2,5,7-9 --quantiles 2
    batches_are run few 2 '[2, 5, 7, 8, 9]' 12
    run -73 neuronpedia run np
    batches_are run few 2 '[2, 5, 7, 8, 9]' 12
    neuronpedia run np --latents 3 -f
    batches_are run np 5 '[3]' 12
}

@test "sae-look export --neuronpedia: 256 latents a file, the layer is the hook's" {
    ref sae 520 8 4 1 big
    ref scan big x.npy many ids=ids.npy top=1 sample=2
    for hook in layers.3.mlp model.layers.3 3.x blocks.3.attn.hook_z; do
        sed -i "s/\"hook\": [^,]*/\"hook\": \"$hook\"/" many/look.json
        neuronpedia many np -f
        batches_are many np 5 'list(range(520))' 3
    done
    sed -i "s/\"hook\": [^,]*/\"hook\": \"embed_tokens\"/" many/look.json
    run -0 neuronpedia many np -f
    [ "$output" = "sae-look: many: its hook is of no layer: 0 in the batches" ]
    batches_are many np 5 'list(range(520))' 0
}

@test "sae-look export: what it needs is asked for, and a failed export leaves nothing" {
    run -2 sae-look export run
    run -2 sae-look export --neuronpedia np --model-id a --source b run
    run -65 neuronpedia plain np
    [ "$output" = "sae-look: plain: has no token ids (scan --acts-ids)" ]
    py - <<'END'
import look_ref
meta, t = look_ref.read("run")
t = {k: v.copy() for k, v in t.items()}
i = int(t["rows_active"].argmax())
t["sample_acts"][i, 0, 2] = -7
look_ref.write("bad", meta, t)
END
    run -65 neuronpedia bad np
    [[ $output == "sae-look: bad: its hook"*"sae-look: bad/look.safetensors: sample_acts["* ]]
    [ ! -e np ]
    [ -z "$(find . -name '.np*')" ]
}

@test "sae-look export: the examples of its page work as typed" {
    ln -s "$ROOT/demo" demo
    examples sae-look-export.1 >script
    bash -e script
    [ "$(ls batches some tenths | grep -c batch-0.json)" = 3 ]
}
