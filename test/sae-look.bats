# SPDX-License-Identifier: ISC
# sae-look's RUNs, which test/ref/look_ref.py makes, and what it prints of them.
load helpers
load look

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    ref sae 24 8 4 1 sae
    ref rows 60 8 2 x.npy
    ref ids 6 10 3 ids.npy
    ref scan sae x.npy run ids=ids.npy skip_ids=3,5 top=4 sample=6 context=2,3 pairs=2,7
    ref scan sae x.npy plain tokens=10 top=3 sample=0 context=all latents=2,7,9,20
}

@test "sae-look list: the numbers are numpy's, in every order" {
    py - <<'END'
import subprocess, numpy as np, look_ref
for run in "run", "plain":
    meta, t = look_ref.read(run)
    density = t["rows_active"] / meta["rows"]
    mean = np.divide(t["sum"], t["rows_active"], out=np.zeros(len(density)), where=t["rows_active"] > 0)
    assert (density == 0).any() or run == "plain"
    columns = dict(density=density, mean=mean, max=t["max"].astype(float))
    def check(n, low, high, sort):
        words = ["sae-look", "list", run, "--sort", sort, "-n", str(n), "--min-density", str(low), "--max-density", str(high)]
        out = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
        assert out[0].split("\t") == "latent density rows_active seqs_active mean max label".split()
        order = sorted(range(len(density)), key=lambda i: (-columns[sort][i] if sort != "index" else 0, i))
        order = [i for i in order if low <= density[i] <= high][:n]
        assert len(out) == 1 + len(order)
        for i, line in zip(order, out[1:]):
            got = line.split("\t")
            want = [t["latent"][i], density[i], t["rows_active"][i], t["seqs_active"][i], mean[i], t["max"][i]]
            assert got[6] == "-"
            np.testing.assert_allclose([float(v) for v in got[:6]], want, rtol=1e-5)
    for sort in "index", "density", "mean", "max":
        check(100, 0, 1, sort)
        check(3, 0.05, 0.2, sort)
END
    sae-look list run | cmp - <(sae-look list --sort index run)
}

@test "sae-look list: labels are those of labels.tsv, escaped" {
    printf 'latent\tlabel\n0\tthe \033[31mred\xff one\n3\tb\tc\n4\t\n23\tlast' >run/labels.tsv
    sae-look list run | cut -f 1,7 >got
    grep -qxF $'0\tthe \\x1b[31mred\\xff one' got
    grep -qxF $'3\tb\\tc' got
    grep -qxF $'4\t-' got
    grep -qxF $'23\tlast' got
    for line in 'x\ta' '-1\ta' '24\ta' '99999999999\ta' '7' '3\ta\n3\ta'; do
        printf "latent\tlabel\n$line\n" >run/labels.tsv
        run -65 sae-look list run
        [[ $output == "sae-look: run/labels.tsv: line "[23]" is no latent and its label (expected "* ]]
        [ "${#lines[@]}" = 1 ]
    done
    # without the line of names, the first label would be it
    printf '0\ta\n3\tb\n' >run/labels.tsv
    run -65 sae-look list run
    [ "$output" = "sae-look: run/labels.tsv: line 1 is a label (expected names, as in latent, a tab, label)" ]
}

@test "sae-look: a RUN of unaligned tensors and unknown members is read, with a warning" {
    sae-look list run >want
    py - <<'END'
import json, look_ref, mkst
meta, t = look_ref.read("run")
mkst.save("run/look.safetensors", {"a": look_ref.np.zeros(3, "u1"), **t})
json.dump({**meta, "later": 1}, open("run/look.json", "w"))
END
    run -0 --separate-stderr sae-look list run
    [ "$output" = "$(cat want)" ]
    [ "$stderr" = 'sae-look: run/look.json: member "later" is not known, ignored' ]
}

@test "sae-look: what is wrong with a RUN is named in one line, status 65" {
    py - <<'END'
import json, os, shutil, subprocess, numpy as np, look_ref
meta, tensors = look_ref.read("run")
def refused(says, status=65):
    p = subprocess.run(["sae-look", "list", "bad"], capture_output=True)
    assert p.returncode == status and not p.stdout, (p, says)
    lines = p.stderr.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith("sae-look: bad/look." + says), (lines, says)
def bad(says, change=None, at=(), value=None, **members):
    shutil.rmtree("bad", ignore_errors=True)
    t = {k: v.copy() for k, v in tensors.items()}
    if change:
        t[change][at] = value
    look_ref.write("bad", {**meta, **members}, t)
    refused(says)
i = int(np.argmax(tensors["rows_active"]))
dead = int(np.argmin(tensors["rows_active"]))
assert tensors["rows_active"][dead] == 0 and tensors["top_row"][i, 3] >= 0
s = "safetensors: "
for value in -1, 24, 3:
    bad(s + f"latent[5] is {value} (expected 5 to 23)", "latent", 5, value)
bad(s + "pair_latent[1] is 24", "pair_latent", 1, 24)
n = tensors["rows_active"]
of = s + f"rows_active, seqs_active, hist, sum_limbs, sum and max of [{i}] contradict each other ("
for key, at, values in (("rows_active", i, (-1, 61, n[i] + 1)), ("hist", (i, 1), (1,)), ("hist", (i, 3), (-1, 2 ** 62)),
                        ("seqs_active", i, (7, 0)), ("sum_limbs", (i, 10), (-5,)), ("max", i, (np.nan, np.inf, -1, 0)),
                        ("sum", i, (np.nan, np.inf, -1, 0, np.nextafter(tensors["sum"][i], 0), tensors["sum"][i] * 2))):
    for v in values:
        bad(of, key, at, v)
bad(of.replace(f"[{i}]", f"[{dead}]") + "0 active rows in 0 sequences, a sum of 0)", "max", dead, 1)
for name in "top", "sample":
    for row in -2, 60, 2 ** 40:
        bad(s + f"example [{i}, 0] of {name} is row {row} with ", name + "_row", (i, 0), row)
    for v in np.nan, -1, tensors["max"][i] * 2:
        bad(s + f"example [{i}, 1] of {name} is row ", name + "_value", (i, 1), v)
    bad(s + f"example [{dead}, 2] of {name} is row 5", name + "_row", (dead, 2), 5)
    bad(s + f"example [{i}, 3] of {name} is row -1 with ", name + "_row", (i, 3), -1)
    t = {k: v.copy() for k, v in tensors.items()}
    t[name + "_row"][i], t[name + "_value"][i] = -1, 0
    shutil.rmtree("bad")
    look_ref.write("bad", meta, t)
    refused(s + f"example [{i}, 0] of {name} is row -1 with 0 (expected a row")
top = tensors["top_value"][i]
assert top[0] > top[2]
bad(s + f"example [{i}, 2] of top is row ", "top_value", (i, 2), top[0])
# the order: of a sample by keys, of equal values by rows; and no row twice
for name, where in ("sample", slice(0, 2)), ("top", slice(1, 3)):
    t = {k: v.copy() for k, v in tensors.items()}
    if name == "top":
        t["top_value"][i, 2] = t["top_value"][i, 1]
        t["top_row"][i, where] = sorted(t["top_row"][i, where])
    for k in "_value", "_row", "_acts", "_ids":
        if name + k in t:
            t[name + k][i, where] = t[name + k][i, where][::-1].copy()
    a, b = t[name + "_row"][i, where]
    for rows in (a, b), (b, b):
        t[name + "_row"][i, where] = rows
        shutil.rmtree("bad")
        look_ref.write("bad", meta, t)
        refused(s + f"example [{i}, {where.start + 1}] of {name} is row {b}, which does not come after row {rows[0]}")
bad(s + "pairs[1, 4] is 61", "pairs", (1, 4), 61)
bad(s + "pairs[0, 2] is 0", "pairs", (0, 2), 0)
for key, value in dict(format=2, latents=0, T=0, rows=61, left_out=1, sequences=61, top=5000, context=[1], per="x", seed=-1,
                       sae=None, input=[[0, 60], [50, 70]], max_norm="1", skip_ids=[-1], hook=1, d="8", sample=-1).items():
    bad("json: " + key, **{key: value})
bad("json: input[0][1] is 65 (expected a multiple of T)", input=[[0, 65]])
bad(f"json: input[0][0] is {2 ** 63 - 1} ", input=[[2 ** 63 - 1, -2 ** 63]], T=1)
bad(s + "latent is [24] (expected [23])", latents=23)
bad(s + "top_acts is [24, 4, 6] (expected [24, 4, 7])", context=[3, 3])
for name in tensors:
    shutil.rmtree("bad")
    look_ref.write("bad", meta, {k: v for k, v in tensors.items() if k != name})
    refused(s + ("pairs is [2, 24] (expected [0, 24])" if name == "pair_latent" else f"tensor {name} is missing"))
    shutil.rmtree("bad")
    look_ref.write("bad", meta, {**tensors, name: tensors[name].astype("<f4" if name == "sum" else "<f8")})
    refused(s + f"{name} is F")
data = open("run/look.safetensors", "rb").read()
for n in 0, 7, 100, len(data) - 1:
    open("bad/look.safetensors", "wb").write(data[:n])
    refused("safetensors: ")
for text in b"", b"[]", b"{", b'{"format":1,"format":1}', b"\xff":
    open("bad/look.json", "wb").write(text)
    refused("json: ")
os.remove("bad/look.json")
refused("json: No such file", 66)
END
}

@test "sae-look lens: the logits are float64's, of each norm, head and form of an SAE; zero rows and ties take the lower ids" {
    py "$ROOT/test/ref/family_ref.py" make gemma2 gemma2
    py "$ROOT/test/ref/family_ref.py" make gpt2 gpt2
    py "$ROOT/test/ref/family_ref.py" make cohere cohere
    py "$ROOT/test/ref/family_ref.py" make llama llama
    py - <<'END'
import os, shutil, subprocess, sys, numpy as np
import mkst, sae_files, sae_ref
rng = np.random.default_rng(5)
def lens(sae, model, n, *words):
    out = subprocess.run(["sae-look", "lens", "-s", sae, "-m", model, "-n", str(n), *words], check=True,
                         capture_output=True, text=True).stdout.splitlines()
    assert out[0] == "latent\tsign\trank\tid\tlogit\ttoken"
    return [line.split("\t") for line in out[1:]]
def check(rows, latents, n, E, g, D):
    assert len(rows) == 2 * n * len(latents)
    for i, latent in enumerate(latents):
        norm = np.sqrt((D[latent] ** 2).sum())
        logits = E @ (g * (D[latent] / norm if norm else D[latent]))
        scale = np.abs(E).max() * np.abs(g).max() * 10
        for s, sign in enumerate("+-"):
            got = rows[(2 * i + s) * n:(2 * i + s + 1) * n]
            ids = [int(r[3]) for r in got]
            assert [r[:3] for r in got] == [[str(latent), sign, str(k + 1)] for k in range(n)] and len(set(ids)) == n
            v = logits if s == 0 else -logits
            np.testing.assert_allclose([float(r[4]) for r in got], logits[ids], rtol=2e-6, atol=1e-6 * scale)
            np.testing.assert_allclose(v[ids], np.sort(v)[::-1][:n], rtol=0, atol=1e-6 * scale)
            for a, b in zip(ids, ids[1:]): # of equal rows of E the lower id comes first
                assert a < b or not (E[a] == E[b]).all(), (a, b)
            if norm == 0:
                assert ids == list(range(n))
for model, embed, norm, plus, hook in (
        ("gemma2", "model.embed_tokens.weight", "model.norm.weight", 1, "layers.1"),
        ("gpt2", "wte.weight", "ln_f.weight", 0, "h.1.mlp"),
        ("cohere", "model.embed_tokens.weight", "model.norm.weight", 0, "embed_tokens"),
        ("llama", "lm_head.weight", "model.norm.weight", 0, "layers.0.self_attn"),
        (os.environ["DEMO"], "model.embed_tokens.weight", "model.norm.weight", 0, "blocks.2.hook_resid_post")):
    if not os.path.isabs(model): # equal tokens
        t = mkst.load(f"{model}/model.safetensors")
        dtype, shape, data = t[embed]
        size = len(data) // shape[0]
        t[embed] = (dtype, shape, data[:9 * size] + data[:9 * size] + data[18 * size:])
        mkst.save(f"{model}/model.safetensors", t)
    t = mkst.read(f"{model}/model.safetensors")[0]
    E, g = np.asarray(t[embed], float), np.asarray(t[norm], float) + plus
    d = E.shape[1]
    sae = f"sae-{len(E)}-{d}-{hook}"
    D = rng.normal(0, 3, (7, d)).astype("f4")
    D[4] = 0
    p = dict(W_enc=D, b_enc=np.zeros(7, "f4"), W_dec=D, b_dec=np.zeros(d, "f4"))
    sae_ref.write_sae(sae, p, 3)
    words = ["--hook", hook]
    check(lens(sae, model, 10, *words), range(7), 10, E, g, D.astype(float))
    check(lens(sae, model, len(E), *words, "4-5,2"), [2, 4, 5], len(E), E, g, D.astype(float))
    check(lens(sae, model, 3, *words, "--no-norm", "1", "6"), [1, 6], 3, E, g * 0 + 1, D.astype(float))
    print(model, "done")
# each library's files
os.mkdir("files")
subprocess.run([sys.executable, os.path.join(os.environ["ROOT"], "test/ref/sae_files.py"), "write", "files", "20", str(d), "7"], check=True)
D = np.load("files/sae.npz")["decoder_weight"].astype(float)
n_forms = 0
for form in sorted(os.listdir("files")):
    if not os.path.isdir(f"files/{form}") or "half" in form or form == "gemma-packed":
        continue
    rows = lens(f"files/{form}", model, 4, "--hook", "layers.1", "0-19")
    check(rows, range(20), 4, E, g, D)
    n_forms += 1
assert n_forms > 12, n_forms
END
    same_for '-j 1' '-j 3' -- sae-look lens -s files/sparsify -m "$DEMO" --hook layers.1 -n 20
}

# demo_run: sae, 12 latents at layers.1 of the demo model, and run, of rows that
# its ids, ids.npy, made; the RUN has the checksum that hf-infer says.
demo_run() {
    rm -r run sae
    py - <<'END'
import json, os, subprocess, numpy as np, look_ref, sae_ref
look_ref.sae(12, 128, 4, 1, "first")
p = sae_ref.read_sae("first")
p["W_dec"][5] = 0
cfg = json.load(open("first/cfg.json"))
sae_ref.write_sae("sae", p, 4)
json.dump({**cfg, "hook": "layers.1"}, open("sae/cfg.json", "w"))
demo = os.environ["DEMO"]
subprocess.run(["hf-infer", demo, "--sae", "sae", "--acts", "layers.1", "--ids", "1,2,3", "--acts-meta", "m.json", "-o", "a.npy"], check=True)
xxh3 = json.load(open("m.json"))["data"]["sae_xxh3"]
ids = np.random.default_rng(3).integers(0, 1024, (8, 16)).astype("<i4")
ids[3, 9:] = ids[0] = -1
ids[1, :] = range(16)
ids[2] = [1021, 1023] * 8
meta, t = look_ref.scan("sae", look_ref.rows(128, 128, 2), ids=ids, skip_ids=[5, 6, 1023], top=4, sample=7, context=(5, 3), pairs=[1, 3])
assert (t["rows_active"] > 0).sum() > 6 and (t["rows_active"] == 0).any()
look_ref.write("run", {**meta, "sae_xxh3": xxh3}, t)
END
}

@test "sae-look lens -o: the RUN gets all latents, with moments over the vocabulary" {
    demo_run
    sae-look lens -s sae -m "$DEMO" -o run -n 6
    sae-look lens -s sae -m "$DEMO" -n 6 >lens.tsv
    py - <<'END'
import os, numpy as np, mkst, sae_ref
t = mkst.read(os.environ["DEMO"] + "/model.safetensors")[0]
E, g = np.asarray(t["model.embed_tokens.weight"], float), np.asarray(t["model.norm.weight"], float)
D = sae_ref.read_sae("sae")["W_dec"].astype(float)
n = np.linalg.norm(D, axis=1, keepdims=True)
logits = np.divide(D, n, out=np.zeros_like(D), where=n > 0) * g @ E.T
raw = mkst.load("run/lens.safetensors")
assert {k: v[:2] for k, v in raw.items()} == {"lens_id": ("I32", [12, 2, 6]), "lens_value": ("F32", [12, 2, 6]),
                                               "lens_mean": ("F32", [12]), "lens_std": ("F32", [12])}
a = {k: np.frombuffer(v[2], "<i4" if k == "lens_id" else "<f4").reshape(v[1]) for k, v in raw.items()}
np.testing.assert_allclose(a["lens_mean"], logits.mean(1), rtol=1e-5, atol=1e-6)
np.testing.assert_allclose(a["lens_std"], logits.std(1), rtol=1e-5)
rows = [line.split("\t") for line in open("lens.tsv").read().splitlines()[1:]]
assert [int(r[3]) for r in rows] == a["lens_id"].reshape(-1).tolist()
np.testing.assert_allclose([float(r[4]) for r in rows], a["lens_value"].reshape(-1), rtol=1e-5)
END
    cp run/lens.safetensors before
    run -73 sae-look lens -s sae -m "$DEMO" -o run
    [ "$output" = "sae-look: run/lens.safetensors: exists already (--force replaces it)" ]
    cmp before run/lens.safetensors
    for o in '-j 1' '-j 3'; do
        # shellcheck disable=SC2086
        sae-look lens -s sae -m "$DEMO" -o run -n 6 -f $o
        cmp before run/lens.safetensors
    done
    sed -i 's/"sae_xxh3": "./"sae_xxh3": "g/' run/look.json
    run -65 sae-look lens -s sae -m "$DEMO" -o run -f
    [[ $output == "sae-look: run: is of another SAE (g"* ]]
    run -2 sae-look lens -s sae -m "$DEMO" -o run -f 3
}

@test "sae-look lens: what is no place of the residual stream, or does not fit, is refused" {
    demo_run
    look() { sae-look lens -s sae -m "$DEMO" "$@"; }
    for h in layers.1.mlp.gate_proj blocks.1.attn.hook_z layers.0.self_attn.q_proj layers.2.mlp.down_proj; do
        run -2 look --hook $h
        [[ ${lines[0]} == "sae-look: sae/sae.safetensors: $h is the input of a linear layer, and does not reach the logits (expected layers.N, "* ]]
    done
    run -2 look --hook resid:1
    [[ ${lines[0]} == 'sae-look: sae/sae.safetensors: "resid:1" is not a hook point (expected layers.1)' ]]
    run -2 look --hook layers.4
    [[ ${lines[0]} == "sae-look: sae/sae.safetensors: layers.4 is not in $DEMO, which has 4 layers" ]]
    run -2 look 12
    [[ ${lines[0]} == "sae-look: LATENT: latent 12, but there are 12 (from 0)" ]]
    run -2 look -n 1025
    run -0 --separate-stderr look --hook layers.2 3
    [ "$stderr" = "sae-look: sae/sae.safetensors: is of layers.1, by its configuration, and is used at layers.2" ]
    sed -i 's/"layers.1"/"layers.1.mlp.up_proj"/' sae/cfg.json
    run -65 look
    sed -i 's/, "hook": "layers.1.mlp.up_proj"//' sae/cfg.json
    run -65 look
    [ "$output" = "sae-look: sae/sae.safetensors: does not say where in a model its rows are from (--hook layers.3 does)" ]
    ref sae 24 8 4 1 small
    run -65 sae-look lens -s small -m "$DEMO" --hook layers.1
    [[ $output == "sae-look: small/sae.safetensors: is of rows of 8 numbers, but layers.1 has 128" ]]
}

@test "sae-look: the examples of its page work as typed" {
    demo_run
    ln -s "$ROOT/demo" demo
    examples sae-look.1 >script
    bash -e script >got
    [ "$(grep -c $'^latent\t' got)" = 3 ]
    [ "$(grep -c '^latent [0-9]' got)" = 4 ]
    [ -s run/lens.safetensors ]
}

@test "sae-look show --json: facts, examples, quantiles, spellings, lens and pairs are numpy's" {
    demo_run
    sae-look lens -s sae -m "$DEMO" -o run -n 3
    printf 'latent\tlabel\n3\ta "label"\xff\n' >run/labels.tsv
    sae-look show --json run 0-11 -m "$DEMO" --quantiles 3 --pairs-shown 4 >shown
    sae-look show --json run 3 4 | grep -cE '"tokens"|"token"' | grep -qx 0
    py - <<'END'
import json, os, re, numpy as np, look_ref, mkst
demo = os.environ["DEMO"]
tok = json.load(open(demo + "/tokenizer.json"))
printable = [*range(33, 127), *range(161, 173), *range(174, 256)] # GPT-2's bytes_to_unicode()
byte_of = {chr(b): b for b in printable}
byte_of.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)})
spell = {i: bytes(byte_of[c] for c in t) for t, i in tok["model"]["vocab"].items()}
spell.update({t["id"]: t["content"].encode() for t in tok["added_tokens"]})
def same_text(got, id): # how many U+FFFD stand for what is not UTF-8 is not said
    want = re.sub("\ufffd+", "\ufffd", spell[id].decode(errors="replace")) if id >= 0 else None
    assert (got and re.sub("\ufffd+", "\ufffd", got)) == want, (got, want)
meta, t = look_ref.read("run")
lens = {k: np.frombuffer(d, "<i4" if k == "lens_id" else "<f4").reshape(s) for k, (_, s, d) in mkst.load("run/lens.safetensors").items()}
ids = np.random.default_rng(3).integers(0, 1024, (8, 16)).astype("<i4")
ids[3, 9:] = ids[0] = -1
ids[1, :] = range(16)
ids[2] = [1021, 1023] * 8
lines = [json.loads(line) for line in open("shown", encoding="utf-8")]
assert [o["latent"] for o in lines] == list(range(12))
n_padded = n_quantiles = 0
for i, o in enumerate(lines):
    active = int(t["rows_active"][i])
    assert o["rows_active"] == active and o["density"] == active / meta["rows"] and o["hist"] == t["hist"][i].tolist()
    assert o["mean"] == (t["sum"][i] / active if active else 0) and o["max"] == float(t["max"][i])
    assert o["label"] == ('a "label"\ufffd' if i == 3 else None)
    used = [j for j in range(7) if t["sample_row"][i, j] >= 0]
    order = sorted(used, key=lambda j: (-t["sample_value"][i, j], t["sample_row"][i, j]))
    assert [s["quantile"] for s in o["sample"]] == [j * 3 // len(used) for j in range(len(used))]
    n_quantiles += len(set(s["quantile"] for s in o["sample"])) == 3
    for kind, places in ("top", [j for j in range(4) if t["top_row"][i, j] >= 0]), ("sample", order):
        assert len(o[kind]) == len(places)
        for e, j in zip(o[kind], places):
            row = int(t[kind + "_row"][i, j])
            assert e["row"] == row and e["value"] == float(t[kind + "_value"][i, j])
            s, p = divmod(row, 16)
            place = [q for q in range(max(0, p - 5), min(16, p + 4)) if ids[s, q] >= 0]
            n_padded += s == 3
            assert e["ids"] == ids[s, place].tolist() and place[e["at"]] == p
            assert e["acts"] == [float(t[kind + "_acts"][i, j, q - p + 5]) for q in place]
            assert len(e["tokens"]) == len(place)
            for got, id in zip(e["tokens"], e["ids"]):
                same_text(got, id)
    for k, sign in enumerate(("promoted", "suppressed")):
        assert [v["id"] for v in o[sign]] == lens["lens_id"][i, k].tolist()
        assert [v["logit"] for v in o[sign]] == [float(v) for v in lens["lens_value"][i, k]]
        for v in o[sign]:
            same_text(v["token"], v["id"])
    pairs = []
    if i in (1, 3):
        both = t["pairs"][[1, 3].index(i)]
        others = sorted((j for j in range(12) if j != i), key=lambda j: (-both[j], j))[:4]
        pairs = [dict(latent=j, rows=int(both[j]), jaccard=float(both[j] / (t["rows_active"][[i, j]].sum() - both[j]))) for j in others]
    assert o["pairs"] == pairs
assert n_padded and n_quantiles > 3
END
    run -2 sae-look show run
    run -2 sae-look show run 12
    cp -r run other
    sed -i 's/"sae_xxh3": "./"sae_xxh3": "g/' other/look.json
    run -65 sae-look show other 3
    [ "$output" = "sae-look: other/lens.safetensors: is of another SAE than look.json" ]
}

@test "sae-look show: text for a terminal, cut to the width around the peak, safe whatever the tokens are" {
    demo_run
    mkdir m
    cp "$DEMO"/{config,tokenizer}.json m
    py - <<'END'
import json, os, re, subprocess, look_ref, terminal
tok = json.load(open("m/tokenizer.json"))
text = {1024: "<b>\u202edrow", 1025: "\x1b[31m\n\t\x9b", 1026: "\u200b\ufeff", 1027: "x" * 200, 1028: "\u4e2d\u6587"}
tok["added_tokens"] += [{**tok["added_tokens"][0], "id": i, "content": c} for i, c in text.items()]
json.dump(tok, open("m/tokenizer.json", "w"))
zero = next(i for t, i in tok["model"]["vocab"].items() if t == "\u0100") # the byte 0
bad = next(i for t, i in tok["model"]["vocab"].items() if t == "\u00ff") # the byte 255
meta, t = look_ref.read("run")
i = int(t["rows_active"].argmax())
for kind in "top", "sample":
    ids = t[kind + "_ids"]
    ids = ids.copy()
    at = ids[i] >= 0
    ids[i][at] = [[1024, 1025, zero, bad, 1026, 1028, 1027][k % 7] for k in range(at.sum())]
    t[kind + "_ids"] = ids
    value = t[kind + "_value"][i]
look_ref.write("odd", meta, t)
open("odd/labels.tsv", "wb").write(b"latent\tlabel\n%d\t\x1b[32m \xe2\x80\xae \xff\n" % i)
def columns(line):
    return sum(2 if c in "\u4e2d\u6587" else 1 for c in line)
plain = subprocess.run(["sae-look", "show", "odd", str(i), "-m", "m"], check=True, capture_output=True).stdout
lines = plain.decode("utf-8").splitlines()
assert max(map(columns, lines)) <= 80 and not terminal.raw(plain.replace(b"\n", b"\r\n")), plain
examples = [l for l in lines if "[[" in l]
n_top = int((t["top_row"][i] >= 0).sum())
assert len(examples) == n_top + int((t["sample_row"][i] >= 0).sum())
for j, line in enumerate(examples[:n_top]):
    value, row, peak = line.split(None, 2)
    assert float(value) == float("%.6g" % t["top_value"][i, j]) and int(row) == t["top_row"][i, j]
    assert peak.count("[[") == peak.count("]]") == 1
    shown = {1024: "<b>\\u{202e}drow", 1025: "\\x1b[31m\\n\\t", zero: "\\x00", bad: "\\xff", 1026: "\\u{200b}\\u{feff}", 1028: "\u4e2d\u6587", 1027: "x" * 20}
    assert peak[peak.index("[[") + 2:].startswith(shown[int(t["top_ids"][i, j, 5])]), (peak, t["top_ids"][i, j, 5])
assert "\\x1b[32m \\u{202e} \\xff" in lines[1]
# of many rows, the line ends within the counts: not before max, mean and density
many = {**meta, "input": [[0, meta["T"] << 40]], "rows": meta["T"] << 40, "left_out": 0, "sequences": 1 << 40}
look_ref.write("many", many, t)
facts = subprocess.run(["sae-look", "show", "many", str(i)], check=True, capture_output=True, text=True).stdout.splitlines()[0]
mean = t["sum"][i] / t["rows_active"][i]
density = t["rows_active"][i] / many["rows"]
assert len(facts) == 80 and facts.startswith(f"latent {i}  max {t['max'][i]:.6g}  mean {mean:.6g}  density {density:.6g}  rows "), facts
for os.environ["NO_COLOR"], os.environ["TERM"] in ("1", "xterm"), ("", "dumb"), ("", ""):
    status, said = terminal.run(["sae-look", "show", "odd", str(i), "-m", "m"], stdout=True)
    assert status == 0 and said.replace(b"\r\n", b"\n") == plain
os.environ["TERM"] = "xterm"
status, said = terminal.run(["sae-look", "show", "odd", str(i), "-m", "m"], stdout=True)
assert status == 0 and re.sub(rb"\x1b\[(30;48;5;\d+|0)m", b"", said.replace(b"\r\n", b"\n")) == plain and said.count(b"\x1b[30") >= len(examples)
END
    run -74 bash -c 'sae-look show --json run 0-11 >/dev/full'
    [ "$output" = "sae-look: standard output: No space left on device" ]
    # without a model, ids
    sae-look show run 3 | grep '\[\[' >ids
    run -1 grep -vE '^ *[0-9.]+ +[0-9]+  ([0-9]+ )*\[\[[0-9]+\]\]( [0-9]+)*$' ids
    grep -qE '  ([0-9]+ )+\[\[[0-9]+\]\]( [0-9]+)+$' ids
}

@test "sae-look show: acts and ids that cannot be are refused with 65" {
    demo_run
    py - <<'END'
import shutil, subprocess, numpy as np, look_ref
meta, tensors = look_ref.read("run")
i = int(np.argmax(tensors["rows_active"]))
at = 5
for kind in "top", "sample":
    for name, place, value in (("acts", at, np.nan), ("acts", at, tensors[kind + "_value"][i, 0] / 2), ("acts", at - 1, np.inf), ("acts", at - 1, -2),
                               ("acts", at - 1, tensors["max"][i] * 2), ("ids", at, -2)):
        j = int(np.argmax(tensors[kind + "_row"][i] % 16 > 0))
        t = {k: v.copy() for k, v in tensors.items()}
        t[f"{kind}_{name}"][i, j, place] = value
        shutil.rmtree("bad", ignore_errors=True)
        look_ref.write("bad", meta, t)
        for o in [], ["--json"]:
            p = subprocess.run(["sae-look", "show", "bad", str(i), *o], capture_output=True, text=True)
            assert p.returncode == 65 and not p.stdout, p
            assert p.stderr.startswith(f"sae-look: bad/look.safetensors: {kind}_{name}[{i}, {j}, {place}] is ") and p.stderr.count("\n") == 1, p
END
}

@test "sae-look compare: the best cosines are float64's; ties, zero rows and rows of any size, of each form" {
    py - <<'END'
import json, os, subprocess, sys, numpy as np, sae_files, sae_ref
rng = np.random.default_rng(8)
os.mkdir("forms")
subprocess.run([sys.executable, os.path.join(os.environ["ROOT"], "test/ref/sae_files.py"), "write", "forms", "40", "24", "7"], check=True)
def save(name, D, W):
    sae_ref.write_sae(name, dict(W_enc=W.astype("f4"), b_enc=np.zeros(len(D), "f4"), W_dec=D.astype("f4"), b_dec=np.zeros(D.shape[1], "f4")), 3)
    return D.astype("f4").astype(float), W.astype("f4").astype(float)
def unit(x):
    with np.errstate(invalid="ignore"):
        return x / np.linalg.norm(x, axis=1, keepdims=True)
def best(A, B):
    c = np.round(unit(A) @ unit(B).T, 12)
    c[np.isnan(c)] = -9
    at = c.argmax(1) # the first of equals
    v = c[np.arange(len(A)), at]
    return np.where(v == -9, -1, at), np.where(v == -9, np.nan, v)
def check(a, b, A, B):
    out = subprocess.run(["sae-look", "compare", a, b], check=True, capture_output=True, text=True).stdout.splitlines()
    for o in ["-j", "1"], ["-j", "3"]:
        assert subprocess.run(["sae-look", "compare", a, b, *o], check=True, capture_output=True, text=True).stdout.splitlines() == out
    assert out[0] == "latent\tbest\tcosine\tencoder_cosine\tmutual"
    (ab, ac), (ba, bc) = best(A[0], B[0]), best(B[0], A[0])
    encoder = unit(A[1]) @ unit(B[1]).T
    mutual = [j >= 0 and ba[j] == i for i, j in enumerate(ab)]
    for i, line in enumerate(out[1:]):
        got = line.split("\t")
        assert got[0] == str(i) and got[1] == (str(ab[i]) if ab[i] >= 0 else "-") and got[4] == str(int(mutual[i])), (got, ab[i], ac[i])
        want = [ac[i], encoder[i, ab[i]] if ab[i] >= 0 else np.nan]
        np.testing.assert_allclose([float(got[2]), float(got[3])], want, rtol=6e-6, atol=1e-12)
    assert len(out) == 1 + len(ab)
    got = json.loads(subprocess.run(["sae-look", "compare", "--json", a, b], check=True, capture_output=True, text=True).stdout)
    real = [np.linalg.norm(x[0], axis=1) > 0 for x in (A, B)]
    def both(f):
        return [f(c[r]) for c, r in ((ac, real[0]), (bc, real[1]))]
    assert got["latents"] == [len(ab), len(ba)] and got["mutual"] == sum(mutual)
    np.testing.assert_allclose(got["mean_max"], both(np.mean), rtol=1e-12)
    assert got["over_0.7"] == both(lambda c: float((c > 0.7).mean())) and got["over_0.9"] == both(lambda c: float((c > 0.9).mean()))
    return sum(mutual)
d = 24
D, W = rng.normal(size=(150, d)), rng.normal(size=(150, d))
D[7] = D[3]                     # equal rows, and multiples of one
D[9], D[11] = 2 * D[3], -D[3]
D[20] = D[149] = 0
W[30] = 0
D[40] *= 1e-36; D[41] *= 1e-33; D[42] *= 1e34; D[43] *= 1e-42
a = save("a", D, W)
p = rng.permutation(150)[:130]
E = D[p] + rng.normal(size=(130, d)) * rng.choice([0, 0.02, 0.5, 3], (130, 1)) * np.linalg.norm(D[p], axis=1, keepdims=True)
E[5] = 0
E[60:80] = D[3] + 1e-7 * rng.normal(size=(20, d)) # nearer than f32 can say
b = save("b", E, W[p])
assert check("a", "b", a, b) > 30
check("b", "a", b, a)
n = check("a", "a", a, a)
assert n < 150 - 2 # 7 and 9 have the direction of 3
z = save("z", D[:3] * 0, W[:3])
out = subprocess.run(["sae-look", "compare", "a", "z"], check=True, capture_output=True, text=True).stdout.splitlines()
assert all(l.split("\t")[1:] == ["-", "nan", "nan", "0"] for l in out[1:])
assert json.loads(subprocess.run(["sae-look", "compare", "--json", "z", "a"], check=True, capture_output=True).stdout) == {
    "latents": [3, 150], "mean_max": [None, None], "over_0.7": [None, 0], "over_0.9": [None, 0], "mutual": 0}
f = np.load("forms/sae.npz")
F = f["decoder_weight"].astype(float), f["encoder_weight"].astype(float)
n_forms = 0
for form in sorted(os.listdir("forms")):
    if os.path.isdir("forms/" + form) and "half" not in form and form != "gemma-packed":
        check("a", "forms/" + form, a, F)
        check("forms/" + form, "b", F, b)
        n_forms += 1
assert n_forms > 12
END
    ref sae 24 9 4 1 nine
    run -65 sae-look compare sae nine
    [ "$output" = "sae-look: nine: is of rows of 9 numbers (expected 8, as sae)" ]
    run -2 sae-look compare sae
}

@test "sae-look: a list of latents or ids is given once" {
    for o in "--latents 1" "--pairs 2" "--skip-ids 3" "--acts-ids ids.npy"; do
        run -2 --separate-stderr sae-look scan -s sae -o new $o $o x.npy
        [ "${stderr_lines[0]}" = "sae-look: ${o% *} is given 2 times" ]
    done
    [ ! -e new ]
}

@test "sae-look diff: the largest change of density first; two RUNs of one SAE" {
    ref rows 80 8 9 y.npy
    ref scan sae y.npy later tokens=10 top=1 sample=1 latents=2,3,5,7,9,11,20,21,22
    py - <<'END'
import subprocess, numpy as np, look_ref
(ma, a), (mb, b) = look_ref.read("plain"), look_ref.read("later")
def facts(meta, t):
    n = t["rows_active"]
    return {int(i): (n[k] / meta["rows"], t["sum"][k] / n[k] if n[k] else 0, float(t["max"][k])) for k, i in enumerate(t["latent"])}
fa, fb = facts(ma, a), facts(mb, b)
both = sorted((i for i in fa if i in fb), key=lambda i: (-abs(fb[i][0] - fa[i][0]), i))
assert both and both != sorted(both)
def diff(*words):
    out = subprocess.run(["sae-look", "diff", "plain", "later", *words], check=True, capture_output=True, text=True).stdout.splitlines()
    assert out[0] == "latent\tdensity_a\tdensity_b\tmean_a\tmean_b\tmax_a\tmax_b"
    return [[float(v) for v in line.split("\t")] for line in out[1:]]
want = [[i, *(v for pair in zip(fa[i], fb[i]) for v in pair)] for i in both]
np.testing.assert_allclose(diff(), want, rtol=1e-5)
np.testing.assert_allclose(diff("-n", "2"), want[:2], rtol=1e-5)
END
    run -0 --separate-stderr sae-look diff plain later
    [ -z "$stderr" ]
    cp -r later less
    while read -r key value; do
        sed "s/\"$key\": [^,]*,/\"$key\": $value,/" later/look.json >less/look.json
        run -0 --separate-stderr sae-look diff plain less
        [ "$stderr" = "sae-look: plain and less left out different rows: their $key differs" ]
    done <<<$'skip_ids [3]\nskip_positions 2\nmax_norm 7'
    sed -i 's/"sae_xxh3": "0/"sae_xxh3": "1/' later/look.json
    run -65 sae-look diff plain later
    [ "$output" = "sae-look: later: is of another SAE (1$(printf %031d 0), but plain is of $(printf %032d 0))" ]
    run -66 sae-look diff plain nowhere
    run -2 sae-look diff plain
}

@test "sae-look scan: raw rows of --dim are F32, unless --x-dtype says what they are" {
    py -c 'import numpy as np; x = np.load("x.npy"); x.tofile("raw"); x.astype("f2").tofile("half")'
    sae-look scan -s sae -o a x.npy
    sae-look scan -s sae --dim 8 -o b raw
    sae-look scan -s sae --dim 8 --x-dtype f16 -o c half
    diff -r a b
    diff -r a c
}
