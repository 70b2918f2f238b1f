# SPDX-License-Identifier: ISC
# Tables of SAEs whose latents are active over thresholds, lut(5): made, applied
# and run by hf-infer (whose part of it is in hf-infer-lut.bats).
load helpers
load lut

LAYER=model.layers.0.self_attn.q_proj

# applies CHECK: the checks of a group that passed.
applies() {
    run -0 py "$ROOT/test/ref/lut_apply_ref.py" "$1"
}

# make_case: DIR/lut with thresholds, the model DIR, x.npy.
make_case() {
    py -c 'import numpy as np, lut_apply_ref as r
np.save("x.npy", r.Case("DIR", over="each").x)'
}

# make_cases: the models of lut_cases.py, and files/FORM of every form.
setup_file() {
    mkdir "$BATS_FILE_TMPDIR/cases"
    py "$ROOT/test/ref/lut_cases.py" "$BATS_FILE_TMPDIR/cases"
    py "$ROOT/test/ref/sae_files.py" write "$BATS_FILE_TMPDIR/cases/files" 50 60 7
}

# table FORM [OPTION...]: the table of it, of_FORM
table() {
    lut-precompute -m f32 -s "files/$1" -o "of_$1" --layers $LAYER --dtype f32 "${@:2}"
}

@test "lut-apply: tables with thresholds are numpy's, compensated or not" {
    applies over
    [ "$output" = 8 ]
}

@test "lut-apply: strictly over a threshold, nothing, everything, NaN, Inf, 1e30" {
    applies over_edges
    [ "$output" = 14 ]
}

@test "lut-apply --report: numpy's metrics of a table with thresholds, for any batch" {
    applies over_report
    [ "$output" = 3 ]
}

# bats test_tags=long
@test "lut-apply: the same bits of a table with thresholds for -j and --batch, on every ISA" {
    isas_here
    applies over_same_bits
    [ "$output" = $(($(wc -w <<<"$ISAS") * 5)) ]
}

@test "lut-precompute: SAEs with thresholds, of every library, have in a table the x^ and l0 of sae-train eval" {
    make_cases
    for form in saelens-jumprelu{,-x} saelens-standard saev-{BatchTopK,Relu} gemma{,-packed,-half} \
        AutoEncoder.{safetensors,pt} BatchTopKSAE.{safetensors,pt} MatryoshkaBatchTopKSAE.pt JumpReluAutoEncoder.pt; do
        run -0 --separate-stderr table $form --verify
        [ -z "$stderr" ]
        lut-apply --report of_$form $LAYER -m f32 --json <files/rows.npy >report.json
        sae-train eval -s files/$form files/rows.npy >eval.tsv
        mv report.json eval.tsv of_$form
    done
    py - <<'END'
import json, numpy as np, sae_files, lut_ref as ref
from glob import glob
assert len(glob("of_*")) == 14
saved = np.load("files/sae.npz")["threshold"].clip(0)
for of in glob("of_*"):
    r = json.load(open(of + "/report.json"))
    e = dict(line.rstrip("\n").split("\t") for line in open(of + "/eval.tsv"))
    assert r["active_mean"] == float(e["l0"]) and r["dead"] == float(e["dead"]), (r, e)
    assert abs(r["fvu_input"] / float(e["fvu"]) - 1) < 1e-6, (r, e)
    entry = json.load(open(of + "/metadata.json"))["layers"]["model.layers.0.self_attn.q_proj"]
    t, dtypes, meta = ref.read_safetensors(f"{of}/{entry['file']}")
    kind = sae_files.FORMS[of[3:]][1]
    assert entry["activation"] == "threshold" and dtypes["threshold"] == "F32"
    assert (t["threshold"] == {"relu": 0, "theta": saved[0], "jumprelu": saved}[kind]).all()
    assert t["threshold"].shape == ((50,) if kind == "jumprelu" else ())
    assert entry["k_active"] == (5 if kind == "theta" else 50)
    assert json.loads(meta["lut"])["entry"] == entry
END
    # the same numbers in a table as bf16, and of another library
    lut-precompute -m model -s files/gemma -o bf16 --layers $LAYER --verify
    same_tensors of_{gemma,JumpReluAutoEncoder.pt}/$LAYER.lut.safetensors
}

@test "lut-precompute: a table with thresholds is a checkpoint, too" {
    make_cases
    for form in gemma saelens-jumprelu saelens-standard saev-BatchTopK; do
        table $form
        lut-precompute -m f32 -s of_$form -o "again_$form" --dtype f32
        same_tensors {of,again}_$form/$LAYER.lut.safetensors
        cmp <(grep -v sae_model of_$form/metadata.json) <(grep -v sae_model again_$form/metadata.json)
        sae-train eval -s of_$form/$LAYER.lut.safetensors files/rows.npy >a
        sae-train eval -s files/$form files/rows.npy >b
        [ "$(grep l0 a)" = "$(grep l0 b)" ]
    done
}

@test "lut-precompute --k: a top-k table of an SAE with thresholds, with a word about it" {
    make_cases
    table saelens-topk
    for form in saelens-jumprelu saelens-standard BatchTopKSAE.pt; do
        run -0 --separate-stderr table $form --k 5
        [[ $stderr == "lut-precompute: files/$form/"*": its latents are active over thresholds: by --k the table takes the 5 largest instead" ]]
        same_tensors of_{saelens-topk,$form}/$LAYER.lut.safetensors
        run -1 grep -q activation of_$form/metadata.json
    done
    # BatchTopK that has no threshold yet is top-k, as sae(5) says
    sae none dictionary_learning 'dict(dict_class="BatchTopKSAE")' 'dict(threshold=np.array(-1.0))'
    run -0 --separate-stderr lut-precompute -m model -s none -o t --layers $LAYER
    [ "$stderr" = "lut-precompute: none/ae.safetensors: is BatchTopK without a threshold: the table takes the 4 largest of each row" ]
    run -1 grep -q activation t/metadata.json
}

@test "lut-precompute --resume, --verify, --index, --dry-run: thresholds are a part of the table" {
    make_cases
    table gemma
    table gemma --resume --verify
    run -73 table gemma --resume --k 50
    # another threshold of one latent is another SAE
    py -c 'import numpy as np
a = dict(np.load("files/gemma/params.npz"))
a["threshold"][3] += 1
np.savez("files/gemma/params.npz", **a)'
    run -73 table gemma --resume
    py -c 'import numpy as np
a = dict(np.load("files/gemma/params.npz"))
a["threshold"][3] -= 1
np.savez("files/gemma/params.npz", **a)'
    cp of_gemma/metadata.json before
    rm of_gemma/metadata.json
    lut-precompute --index of_gemma
    cmp before of_gemma/metadata.json
    # with a shadow to screen by, the same
    lut-precompute -m f32 -s files/gemma -o shadow --layers $LAYER --dtype f32 --screen --verify
    lut-apply shadow $LAYER -i files/rows.npy -o shadow.npy
    lut-apply of_gemma $LAYER -i files/rows.npy | cmp - shadow.npy
    # a number in the file that is another one
    py - <<'END'
import mkst
path = "of_gemma/model.layers.0.self_attn.q_proj.lut.safetensors"
tensors, meta = mkst.load_all(path)
text = open(path, "rb").read()
data = tensors["threshold"][2]
at = text.index(data)
open(path, "r+b").write(text[:at] + data[4:8] + text[at + 4:])
END
    run -1 table gemma --resume --verify
    [[ ${lines[1]} == *inf ]]
    run -0 lut-precompute -m f32 -s files/gemma -o x --layers $LAYER --dry-run --dtype f32
    [ "$(cut -f 1,4-6 <<<"${lines[1]}")" = "$LAYER	50	-	$((4 * (50 * 60 * 2 + 50 * 48 + 50 + 60 + 48 + 50)))" ]
    [ ! -e x ]
}

@test "lut-apply: thresholds that are missing, unsaid, of another shape, NaN or negative are refused by name" {
    make_case
    file=DIR/lut/$LAYER.lut.safetensors
    refused=("tensor threshold is missing" 'del t["threshold"]'
        "threshold is [95] (expected [96])" 't["threshold"] = t["threshold"][1:]'
        "threshold is [96, 1] (expected [96])" 't["threshold"] = t["threshold"][:, None]'
        "threshold is [1] (expected [96])" 't["threshold"] = t["threshold"][:1]'
        "threshold is I32 (expected BF16, F16 or F32)" 't["threshold"] = np.zeros(96, "<i4")'
        "threshold[5] is -1 (expected a number from 0 on)" 't["threshold"][5] = -1'
        "threshold[95] is nan (expected a number from 0 on)" 't["threshold"][95] = np.nan'
        "threshold[0] is inf (expected a number from 0 on)" 't["threshold"] = np.array(np.inf, "<f4")')
    py - "$file" "${refused[@]}" <<'END'
import sys, numpy as np, mkst
for i, change in enumerate(sys.argv[3::2]):
    t = {m: mkst.values(*v).astype("<f4") for m, v in mkst.load(sys.argv[1]).items()}
    exec(change)
    mkst.save(str(i), t)
END
    mv $file good
    for n in 0 1 2 3 4 5 6 7; do
        cp $n $file
        run -65 --separate-stderr lut-apply DIR $LAYER -i x.npy
        [ "$stderr" = "lut-apply: $file: ${refused[2 * n]}" ] || { echo "$stderr"; return 1; }
        [ -z "$output" ]
    done
    [ ! -e 8 ]
    # what metadata.json and the file say is not the same
    mv good $file
    sed -i 's/"threshold"/"topk"/' DIR/lut/metadata.json
    run -65 lut-apply DIR $LAYER -i x.npy
    [ "$output" = "lut-apply: $file: has threshold, but metadata.json does not say that activation is \"threshold\"" ]
    sed -i 's/"topk"/"gelu"/' DIR/lut/metadata.json
    run -65 lut-apply DIR $LAYER -i x.npy
    [[ $output == "lut-apply: DIR/lut/metadata.json: layers."*'activation is "gelu" (expected "topk" or "threshold")' ]]
    make_cases
    table gemma
    py - <<'END'
import json
d = json.load(open("of_gemma/metadata.json"))
d["layers"]["model.layers.0.self_attn.q_proj"].pop("activation", 0)
json.dump(d, open("of_gemma/metadata.json", "w"))
END
    run -65 lut-apply of_gemma $LAYER -i files/rows.npy
    [ "$output" = "lut-apply: of_gemma/$LAYER.lut.safetensors: says that activation is threshold, but metadata.json topk (lut-precompute --index rewrites it)" ]
    lut-precompute --index of_gemma
    lut-apply of_gemma $LAYER -i files/rows.npy -o y.npy
}

# bats test_tags=long
@test "lut-apply: a table of 200000 latents that are all active is applied, in few rows at once" {
    py - <<'END'
import numpy as np, lut_ref as ref, os
n, d = 200000, 4
rng = np.random.default_rng(0)
t = {m: rng.normal(0, 1e-3, s) for m, s in zip(ref.SIX, ((n, d), n, (n, d), d, (n, 6), 6))}
t["encoder_bias"] = np.full(n, 0.5)
t = ref.write_lut("DIR", {"model.layers.0.self_attn.q_proj": t}, n, "F32", threshold=np.array(0.0))["model.layers.0.self_attn.q_proj"]
x = rng.normal(0, 1, (700, d)).astype("<f4")
np.save("x.npy", x)
np.save("want.npy", np.stack([ref.combine(t, z[None], ref.over(z[None], 0))[0] for z in ref.preact(t, x[:9].astype(float))]))
END
    lut-apply DIR $LAYER --batch 65536 -j 2 -i x.npy -o y.npy
    lut-apply DIR $LAYER --batch 1 -j 1 -i x.npy | cmp - y.npy
    py -c 'import numpy as np; assert abs(np.load("y.npy")[:9] - np.load("want.npy")).max() < 1e-2'
}

# screenable [ROWS]: tables 0 to 3, and in each rows that are near and far.
screenable() {
    py - "${1-:}" <<'END'
import sys, numpy as np, lut_apply_ref as r
for i, kw in enumerate((dict(dtype="BF16", over="each"), dict(dtype="BF16", over="one", centered=True),
                        dict(dtype="F16", over="each"), dict(dtype="F32", over="each"))):
    x = r.Case(str(i), n=2048, d=264, rows=520, **kw).x
    x[100:200] += 50                       # far from 0
    x[200:300, ::37] *= 1000               # outlier dims
    x[300:306, 5] = np.inf, -np.inf, np.nan, 1e38, -1e38, 1e-38
    x[330:340] *= 1e-20
    x[340:350] *= 1e25
    x[350:360] = 0
    x[360:400] *= -1
    np.save(f"{i}/x", eval(f"x[{sys.argv[1]}]"))
END
}

# bats test_tags=long
@test "lut-apply: the bits of thresholds are those of --no-screen, for every dtype, -j and batch" {
    screenable
    for d in 0 1 2 3; do
        lut-apply -q $d $LAYER --no-screen --codes exact.codes -f <$d/x.npy >exact.npy
        for options in '-j 1' '-j 2 --batch 8' '-j 3 --batch 520' '-j 2 --batch 513' '--batch 1'; do
            lut-apply -q $d $LAYER $options --codes codes -f <$d/x.npy | cmp - exact.npy
            cmp codes exact.codes
        done
    done
}

# bats test_tags=long
@test "lut-apply: the bits of thresholds are those of --no-screen, for every dtype and ISA" {
    screenable "np.r_[0:400:8, 300:306]"
    for d in 0 1 2 3; do
        for isa in $ALL_ISAS; do
            has_isa "$isa" || continue
            TU_ISA=$isa lut-apply -q $d $LAYER --no-screen <$d/x.npy >isa.npy
            TU_ISA=$isa lut-apply -q $d $LAYER <$d/x.npy | cmp - isa.npy
        done
    done
}

@test "lut-apply --codes, --values, --xhat: of a table with thresholds, a place for each direction" {
    make_case
    lut-apply DIR $LAYER --codes c.npy --values v.npy --xhat h.npy -i x.npy -o y.npy
    py - <<'END'
import numpy as np, lut_apply_ref as r, lut_ref as ref
c = r.Case("other", over="each")
x, codes, v, h = (np.load(f + ".npy") for f in ("x", "c", "v", "h"))
assert (x == c.x).all() and codes.shape == v.shape == (50, 96)
z = c.z(x)
_, error, sure = c.steps(x)
assert sure.mean() > .9
for i, terms in enumerate(c.sets(z)):
    n = len(terms)
    if sure[i]:
        assert (codes[i, :n] == terms).all() and (codes[i, n:] == -1).all() and (v[i, n:] == 0).all()
        assert np.allclose(v[i, :n], z[i, terms], rtol=1e-5, atol=1e-5) and np.allclose(h[i], x[i] - error[i], atol=1e-4)
END
}

@test "hf-infer --lut: thresholds cost the nats that they cost with --sae, screened or not" {
    m=$ROOT/demo/qwen3-tiny
    cp -r "$ROOT/demo/sae/layers.1.mlp.up_proj" sae
    sed -i 's/"topk"/"batchtopk"/; s/"k": 32/"k": 32, "threshold": 0.8/' sae/cfg.json
    head -c 8000 "$ROOT/demo/held-out.txt" >text
    nll() {
        hf-infer "$m" --nll --json --file text -q "$@"
    }
    nll --sae sae >of_sae
    for dtype in f32 bf16; do
        lut-precompute -q -m "$m" -s sae --fuse gate_up -o $dtype --dtype $dtype
        nll --lut $dtype >of_$dtype
        for options in --no-screen '-j 1' '-j 3 --chunk 9'; do
            nll --lut $dtype $options | cmp - of_$dtype
        done
    done
    hf-infer "$m" --nll --file text -q --lut f32 --lut-report report.tsv >dense
    "$PYTHON" -c 'import csv, json
sae, f32, bf16 = (json.load(open("of_" + f))["nll_mean"] for f in ("sae", "f32", "bf16"))
assert abs(f32 - sae) < 1e-6 and 1e-6 < abs(bf16 - sae) < 1e-3, (sae, f32, bf16)
(row,) = csv.DictReader(open("report.tsv"), delimiter="\t")
assert 5 < float(row["active_mean"]) < float(row["positives_mean"]) / 2, row'
}

@test "lut-apply --bench, -v: a table with thresholds says so" {
    make_case
    lut-apply --bench --no-screen DIR $LAYER <x.npy >steps
    [ "$(cut -f 1 steps | xargs)" = "step encode threshold combine table" ]
    run -0 --separate-stderr lut-apply -v --no-screen DIR $LAYER -i x.npy -o y.npy
    [ "$stderr" = "lut-apply: $LAYER: 40 -> 24, those over their thresholds of 96 directions, F32" ]
}
