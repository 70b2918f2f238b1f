# SPDX-License-Identifier: ISC
# hf-infer --sae: reconstructions of SAEs in the place of activations.
load helpers

IDS=3,14,15,9,2,6,5,35,8,9,7,9,3,23,8,46,26,43,38,32

# The SAEs of models/MODEL are MODEL/HOOK.
setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    kept test/ref/tiny_models.py "$PWD/models"
    py "$ROOT/test/ref/splice_ref.py" models llama-bias-f32 qwen3 qwen3_moe mistral-window-7 >errors
}

setup() {
    cd "$BATS_TEST_TMPDIR" || return
    ln -s "$BATS_FILE_TMPDIR"/{models,qwen3,qwen3_moe} .
    ln -s models/qwen3 M
}

# hook SAE NAME: what its cfg.json is to say; "": nothing.
hook() {
    py - "$@" <<'END'
import json, sys
path = sys.argv[1] + "/cfg.json"
c = json.load(open(path))
c.pop("hook", 0)
if sys.argv[2]:
    c["hook"] = sys.argv[2]
json.dump(c, open(path, "w"))
END
}

@test "hf-infer --sae: logits are float64's within 1e-4, for every hook, kind and library" {
    cat "$BATS_FILE_TMPDIR/errors"
    [ "$(wc -l <"$BATS_FILE_TMPDIR/errors")" = 4 ]
}

@test "hf-infer --sae: the bits do not depend on -j, --chunk or --batch" {
    sae="--sae qwen3/embed_tokens --sae qwen3/layers.1.mlp.up_proj --sae qwen3/layers.1"
    # shellcheck disable=SC2086 # several words
    same_for '-j 1' '-j 2' '-j 3 --chunk 5' '--chunk 1' -- hf-infer M --ids $IDS --logits - $sae
    # shellcheck disable=SC2086
    same_in_batches M -n 6 $sae
}

@test "hf-infer --sae: an SAE of 1 MiB is screened after 16 chunks of a few tokens, and no bit differs" {
    py - <<'END'
import json, os, numpy as np, mkst
d, r = json.load(open("M/config.json"))["hidden_size"], np.random.default_rng(4)
n = 2**20 // 4 // d + 1
for name in "topk", "jumprelu":
    os.mkdir(name)
    t = {"W_enc": r.standard_normal((d, n)) / d, "b_enc": np.zeros(n),
         "W_dec": r.standard_normal((n, d)) / 8, "b_dec": r.standard_normal(d) / 8}
    if name == "jumprelu":
        t["threshold"] = np.full(n, .3)
    mkst.save(name + "/sae_weights.safetensors", {k: np.ascontiguousarray(v, "<f4") for k, v in t.items()})
    json.dump({"architecture": name, "d_in": d, "d_sae": n, "k": 8, "apply_b_dec_to_input": True,
               "normalize_activations": "none"}, open(name + "/cfg.json", "w"))
END
    for sae in topk jumprelu; do
        of() {
            hf-infer M --ids $IDS --logits - --sae $sae@layers.0.mlp --chunk 1 "$@"
        }
        of --no-screen -v >exact 2>said
        run -1 grep screening said
        of -v 2>said | cmp - exact
        grep -Eq 'screening: [0-3] of 4 rows were computed exactly$' said
        for o in '-j 3 --chunk 3' '--chunk 20'; do
            of $o | cmp - exact
        done
    done
    run -2 hf-infer M --ids 1,2 --nll --no-screen
    [ "${lines[0]}" = "hf-infer: --no-screen is for --lut, --sae, --steer, --ablate and --ablate-each" ]
}

@test "hf-infer --sae: an SAE that gives back its rows changes no bit" {
    # x = relu(x) - relu(-x)
    py - <<'END'
import json, os, numpy as np, mkst
d = json.load(open("M/config.json"))["hidden_size"]
both = np.concatenate([np.eye(d), -np.eye(d)]).astype("<f4")
os.mkdir("same")
mkst.save("same/ae.safetensors", {
    "encoder.weight": both, "encoder.bias": np.zeros(2 * d, "<f4"),
    "decoder.weight": np.ascontiguousarray(both.T), "bias": np.zeros(d, "<f4")})
END
    hf-infer M --ids $IDS --logits plain
    for hook in embed_tokens layers.0 layers.1.self_attn layers.0.mlp layers.1.self_attn.v_proj layers.0.mlp.gate_proj; do
        hf-infer M --ids $IDS --sae same@$hook --logits - | cmp - plain
        hf-infer M --ids $IDS --sae same@$hook --sae-zero --logits zero -f
        run -1 cmp -s plain zero
    done
}

@test "hf-infer --sae --acts: a dump has numpy's reconstruction of what one without it has" {
    hf-infer M --ids $IDS --acts in:gate_proj:1 -o x
    hf-infer M --ids $IDS --acts in:up_proj:1 --sae qwen3/layers.0.self_attn.q_proj@layers.1.mlp.gate_proj -o y
    hf-infer M --ids $IDS --acts in:up_proj:1 --sae qwen3/layers.1.mlp.up_proj --sae-zero -o zero
    py - <<'END'
import json, numpy as np, mkst
t = mkst.read("qwen3/layers.0.self_attn.q_proj/sae_weights.safetensors")[0]
d = json.load(open("qwen3/layers.0.self_attn.q_proj/cfg.json"))["d_in"]
x, y, zero = (np.fromfile(f, "<f4").reshape(-1, d).astype(float) for f in ("x", "y", "zero"))
z = x @ t["W_enc"] + t["b_enc"]
want = np.maximum(z, 0) @ t["W_dec"] + t["b_dec"]
assert np.abs(y - want).max() < 1e-5 * np.abs(want).max(), np.abs(y - want).max()
assert not zero.any() and len(zero) == 20
END
}

@test "hf-infer --acts-meta --sae: metadata have the SAE, its sum and --sae-zero" {
    meta() {
        hf-infer M --ids $IDS --acts resid:1 -o x -f --acts-meta m.json "$@" && cat m.json
    }
    cp -r qwen3/layers.1.mlp sae
    meta --sae sae >one
    meta --sae sae --sae-zero >two
    hook sae layers.0.mlp
    meta --sae sae >three
    py - <<'END'
import json
one, two, three = (json.load(open(f))["data"] for f in ("one", "two", "three"))
one, two, three = (json.loads(d) if isinstance(d, str) else d for d in (one, two, three))
assert one["sae"] == ["sae"] and len(one["sae_xxh3"]) == 32 and "sae_zero" not in one, one
assert two["sae_zero"] is True and two["sae_xxh3"] == one["sae_xxh3"], two
assert three["sae_xxh3"] != one["sae_xxh3"]
END
}

@test "hf-infer --sae: what does not fit the model is refused by name" {
    cp -r qwen3/layers.1.mlp sae
    no() {
        run "-$1" hf-infer M --ids 1,2 --nll --sae "$2" "${@:4}"
        [ "${lines[0]}" = "hf-infer: $3" ]
    }
    f=sae/sae.safetensors
    n=$(py -c 'import json; print(json.load(open("M/config.json"))["num_hidden_layers"])')
    d=$(py -c 'import json; c = json.load(open("M/config.json")); print(c["hidden_size"], c["num_attention_heads"] * c["head_dim"])')
    no 2 sae@layers.1.mlp.w_proj "$f: \"layers.1.mlp.w_proj\" is not a hook point (layers.3, layers.3.mlp, layers.3.mlp.gate_proj, ..)"
    no 2 sae@layers.x "$f: \"layers.x\" is not a hook point (layers.3, layers.3.mlp, layers.3.mlp.gate_proj, ..)"
    no 2 sae@layers.$n "$f: layers.$n is not in M, which has $n layers"
    no 2 sae@blocks.$((n + 1)).hook_resid_pre "$f: blocks.$((n + 1)).hook_resid_pre is not in M, which has $n layers"
    no 2 sae@layers.99999999999999999999 "$f: \"layers.99999999999999999999\" is not a hook point (layers.3, layers.3.mlp, layers.3.mlp.gate_proj, ..)"
    no 65 sae@layers.1.self_attn.o_proj "$f: is of rows of ${d% *} numbers, but layers.1.self_attn.o_proj has ${d#* }"
    no 65 sae "$f: is at the same hook point as $f" --sae sae@model.layers.1.mlp
    hook sae layers.7
    no 65 sae "$f: layers.7 is not in M, which has $n layers"
    hook sae "the sofa"
    no 65 sae "$f: \"the sofa\" is not a hook point (layers.3, layers.3.mlp, layers.3.mlp.gate_proj, ..)"
    hook sae ""
    no 65 sae "$f: does not say where in a model its rows are from (as sae@layers.3.mlp.gate_proj does)"
    no 66 nowhere "nowhere: No such file or directory"
    run -2 hf-infer models/qwen3_moe --ids 1,2 --nll --sae sae@layers.1.mlp.down_proj
    [ "${lines[0]}" = "hf-infer: $f: layer 1 has experts, and each has its own down_proj (in:gate_proj and mlp are of all)" ]
}

# bats test_tags=long
@test "hf-infer --sae, lut-precompute: an SAE of another place than it is used at is a warning" {
    cp -r qwen3/layers.1.mlp sae
    said() { # HOOK PLACE: what is said
        hook sae "$1"
        run -0 --separate-stderr hf-infer M --ids 1,2 --logits x -f --sae "sae@$2"
        echo "$stderr"
    }
    f=$(echo sae/sae*.safetensors)
    [ "$(said layers.1.mlp.gate_proj layers.0.mlp.up_proj)" = "hf-infer: $f: is of layers.1.mlp.gate_proj, by its configuration, and is used at layers.0.mlp.up_proj" ]
    [ "$(said blocks.1.hook_resid_pre layers.1)" = "hf-infer: $f: is of blocks.1.hook_resid_pre, by its configuration, and is used at layers.1" ]
    # other names of the same place, and a place that is not known
    [ -z "$(said model.layers.1.mlp.gate_proj layers.1.mlp.up_proj)" ]
    [ -z "$(said blocks.1.hook_resid_pre layers.0)" ]
    [ -z "$(said hook_embed embed_tokens)" ]
    # a table of it: named by --layers, or by its directory
    hook sae layers.1.mlp.gate_proj
    run -0 --separate-stderr lut-precompute -m M -s sae -o t --layers layers.0.self_attn.q_proj
    [ "$stderr" = "lut-precompute: $f: is of layers.1.mlp.gate_proj, by its configuration, and is used at model.layers.0.self_attn.q_proj" ]
    mkdir all && mv sae all/layers.0.mlp.up_proj
    run -0 --separate-stderr lut-precompute -m M -s all -o u
    [ "$stderr" = "lut-precompute: all/layers.0.mlp.up_proj/${f#sae/}: is of layers.1.mlp.gate_proj, by its configuration, and is used at model.layers.0.mlp.up_proj" ]
    mv all/layers.{0,1}.mlp.up_proj
    run -0 --separate-stderr lut-precompute -m M -s all -o v --layers '*.up_proj'
    [ -z "$stderr" ]
    # of another model's weights: what a table says
    run -0 --separate-stderr hf-infer M --ids 1,2 --logits x -f --lut v
    [ -z "$stderr" ]
    cp -rL M other7
    py - <<'END'
import glob, mkst
for f in glob.glob("other7/*.safetensors"):
    t, meta = mkst.load_all(f)
    data = bytearray(open(f, "rb").read())
    at = data.find(t["model.layers.1.mlp.up_proj.weight"][2]) if "model.layers.1.mlp.up_proj.weight" in t else -1
    if at >= 0:
        data[at] ^= 1  # one bit of the first number
        open(f, "wb").write(data)
END
    w="v/model.layers.1.mlp.up_proj.lut.safetensors: was made from other weights than this model's"
    run -0 --separate-stderr hf-infer other7 --ids 1,2 --logits x -f --lut v
    [ "$stderr" = "hf-infer: $w" ]
    hf-infer M --ids 1,2 --acts in:up_proj:1 -o x.npy
    run -0 --separate-stderr lut-apply v model.layers.1.mlp.up_proj -m M -i x.npy -o y.npy
    [ -z "$stderr" ]
    run -0 --separate-stderr lut-apply v model.layers.1.mlp.up_proj -m other7 -i x.npy -f -o y.npy
    [ "$stderr" = "lut-apply: $w" ]
}

@test "hf-infer --sae -v: each hook point is a line" {
    run -0 --separate-stderr hf-infer M --ids $IDS --nll --sae qwen3/layers.1 --sae qwen3/layers.1.mlp -v
    [[ "$stderr" = *"hf-infer: an SAE's reconstruction at layers.1
hf-infer: an SAE's reconstruction at layers.1.mlp"* ]]
    run -0 --separate-stderr hf-infer M --ids $IDS --nll --sae qwen3/layers.1 --sae-zero -v
    [[ "$stderr" = *"hf-infer: zeros at layers.1"* ]]
}

@test "sae-recovered.sh: (zero - sae) / (zero - plain) of --nll's means" {
    mean() {
        hf-infer demo --file text --nll --json -q --stride 16 "$@"
    }
    ln -s "$DEMO" demo
    head -c 400 "$ROOT/demo/held-out.txt" >text
    sae=$ROOT/demo/sae/layers.1.mlp.up_proj
    mean >plain
    mean --sae "$sae" >sae
    mean --sae "$sae" --sae-zero >zero
    "$ROOT/jobs/sae-recovered.sh" demo "$sae" text --stride 16 >got
    py - <<'END'
import json
p, s, z = (json.load(open(f))["nll_mean"] for f in ("plain", "sae", "zero"))
got = dict(line.split() for line in open("got"))
assert [float(got[k]) for k in ("plain", "sae", "zero")] == [p, s, z], got
assert abs(float(got["recovered"]) - (z - s) / (z - p)) < 1e-6 and p < s < z, got
END
    run -2 "$ROOT/jobs/sae-recovered.sh" demo "$sae"
    [ "${lines[0]}" = "usage: sae-recovered.sh MODEL SAE[@HOOK] TEXT [HF-INFER OPTION...]" ]
    run -2 "$ROOT/jobs/sae-recovered.sh" demo "$sae@layers.9" text
    [[ $output = "hf-infer: "*"is not in demo, which has "* ]]
}

@test "hf-infer --sae: an SAE of sae-train goes where --hook says" {
    hf-infer M --ids $IDS --acts in:down_proj:1 -o x.npy
    sae-train -q -o sae -k 4 --latents 64 --batch 10 -n 3 --hook layers.1.mlp.down_proj x.npy
    hf-infer M --ids $IDS --sae sae --logits a
    hf-infer M --ids $IDS --sae sae@model.layers.1.mlp.down_proj --logits - | cmp - a
    run -1 cmp -s a <(hf-infer M --ids $IDS --logits -)
}

# bats test_tags=long
@test "hf-infer --sae: torch's and numpy's files of an SAE give the logits of its safetensors" {
    d=$(py -c 'import json; print(json.load(open("M/config.json"))["hidden_size"])')
    py "$ROOT/test/ref/sae_files.py" write files 50 "$d" 7
    logits() {
        hf-infer M --ids $IDS --sae "files/$1@layers.1" --logits "${2--}"
    }
    n=0
    for forms in "saelens-topk sparsify AutoEncoderTopK.safetensors AutoEncoderTopK.pt" \
        "saelens-topk-x saev-TopK qwen" "saelens-standard AutoEncoder.pt" \
        "saelens-jumprelu-x gemma gemma-packed scope-2 JumpReluAutoEncoder.pt"; do
        first=${forms%% *}
        logits "$first" "want.$((n++))"
        for form in ${forms#* }; do
            logits "$form" | cmp - "want.$((n - 1))"
        done
    done
    # the configuration of one says where it is, the name of the other
    for form in scope-2 qwen; do
        hf-infer M --ids $IDS --sae files/$form --logits - | cmp - <(logits $form)
    done
    # each kind is another
    [ "$(cksum want.* | cut -d ' ' -f 1 | sort -u | wc -l)" = 4 ]
}

# keys SAE JSON: its cfg.json has these, too.
keys() {
    py - "$@" <<'END'
import json, sys
path = sys.argv[1] + "/cfg.json"
c = json.load(open(path))
for k in "exclude_special_tokens", "seqpos_slice", "max_norm":
    c.pop(k, 0)
json.dump({**c, **json.loads(sys.argv[2])}, open(path, "w"))
END
}

@test "hf-infer --sae: rows that an SAE was trained without stay, with the same bits however they come" {
    cp -r qwen3/layers.1 sae
    keys sae '{"exclude_special_tokens": [2, 9], "seqpos_slice": [1, null, 3], "max_norm": 1e3}'
    hf-infer M --ids $IDS --logits all --sae qwen3/layers.1
    hf-infer M --ids $IDS --logits some --sae sae
    run -1 cmp -s all some
    same_for '-j 1' '-j 2' '-j 3 --chunk 5' '--chunk 1' -- hf-infer M --ids $IDS --logits - --sae sae
    same_in_batches M -n 6 --sae sae
    # positions go on while text is generated: as those of the whole text
    py - <<'END'
import io, json, subprocess, numpy as np
def run(*a):
    return subprocess.run(["hf-infer", "M", "--sae", "sae", *a], check=True, stdout=subprocess.PIPE).stdout
for line in open("one"):
    ids = json.loads(line)["ids"]
    first = json.loads(next(l for l in open("lines") if json.loads(l)["id"] == json.loads(line)["id"]))["ids"]
    logits = np.load(io.BytesIO(run("--ids", ",".join(map(str, first + ids)), "--logits", "-")))
    assert (logits[len(first) - 1:-1].argmax(1) == ids).all(), line
END
    # a document of --jsonl has positions of its own, also from its end
    keys sae '{"seqpos_slice": [-4, -1]}'
    for n in 5 9; do
        seq -s, 3 $((n + 3)) | sed 's/.*/{"ids":[&]}/'
    done >docs
    hf-infer M --nll -q --jsonl <docs --sae sae >lines
    for n in 5 9; do
        hf-infer M --nll -q --json --ids "$(seq -s, 3 $((n + 3)))" --sae sae
    done | cmp - lines
    run -65 hf-infer M --ids 1,2 -n 3 --sae sae
    [ "$output" = "hf-infer: $(echo sae/sae*.safetensors): its seqpos_slice counts from the end, which a text that is being generated does not have" ]
    # no rows: as without
    keys sae '{"seqpos_slice": [50, null]}'
    hf-infer M --ids $IDS --logits - --sae sae | cmp - <(hf-infer M --ids $IDS --logits -)
    run -0 --separate-stderr hf-infer M --ids 1,2 --logits x -f -v --sae sae
    [[ $stderr == *"hf-infer: an SAE's reconstruction at layers.1, except for rows that it was trained without"* ]]
}

@test "hf-infer --sae: exclude_special_tokens true is every special token of the tokenizer" {
    cp -r "$DEMO" demo
    cp -r "$ROOT/demo/sae/layers.1.mlp.up_proj" sae
    echo 'One<|endoftext|>two<|im_start|>three' >text
    of() {
        keys sae "$1"
        hf-infer demo --file text --logits "$2" -f --sae sae
    }
    special=$(py -c 'import json; print([t["id"] for t in json.load(open("demo/tokenizer.json"))["added_tokens"] if t["special"]])')
    of '{}' all
    of '{"exclude_special_tokens": false, "seqpos_slice": [null]}' none
    of "{\"exclude_special_tokens\": $special}" list
    of '{"exclude_special_tokens": true}' true
    cmp all none
    cmp list true
    run -1 cmp -s all true
    ids=$(hf-infer demo --encode --file text | tr '\n' , | sed 's/,$//')
    hf-infer demo --ids "$ids" --logits - --sae sae | cmp - true
    rm demo/tokenizer.json
    run -66 hf-infer demo --ids 1,2 --logits - --sae sae
    [ "$output" = "hf-infer: sae/sae.safetensors: its exclude_special_tokens is true: demo/tokenizer.json: No such file or directory" ]
}

@test "hf-infer --sae, sae-train info: what rows an SAE was trained without is refused by the key's name where it means nothing" {
    cp -r qwen3/layers.1 sae
    no() {
        keys sae "$1"
        run -65 hf-infer M --ids 1,2 --logits - --sae sae
        [ "$output" = "hf-infer: sae/cfg.json: $2" ]
        run -65 sae-train info sae
        [ "$output" = "sae-train: sae/cfg.json: $2" ]
    }
    no '{"exclude_special_tokens": "bos"}' 'exclude_special_tokens is "bos" (expected true, false or a list of token ids)'
    no '{"exclude_special_tokens": [3, -1]}' 'exclude_special_tokens[1] is -1 (expected a whole number from 0 to 2147483647)'
    no '{"exclude_special_tokens": [3, true]}' 'exclude_special_tokens[1] is true (expected a whole number from 0 to 2147483647)'
    no '{"seqpos_slice": 5}' 'seqpos_slice is 5 (expected [start, end] or [start, end, step])'
    no '{"seqpos_slice": [0, 5, -1]}' 'seqpos_slice[2] is -1 (expected a whole number from 1 to 2147483647)'
    no '{"seqpos_slice": [0, 5, 1, 2]}' 'seqpos_slice is an array (expected [start, end] or [start, end, step])'
    no '{"seqpos_slice": [0.5]}' 'seqpos_slice[0] is 0.5 (expected a whole number from -2147483648 to 2147483647)'
    no '{"max_norm": 0}' 'max_norm is 0 (expected a number over 0)'
    no '{"seqpos_slice": [1, 5], "metadata": {"seqpos_slice": [1, 6]}}' 'metadata.seqpos_slice is an array (expected the same as at the top level)'
    rm -r sae
    cp -r qwen3/layers.1.mlp sae
    keys sae '{"exclude_special_tokens": [7, 2], "seqpos_slice": [1, null, 2], "max_norm": 12.5}'
    sae-train info sae | tail -n 3 | cmp - <(printf '%s\t%s\n' exclude_special_tokens 7,2 seqpos_slice '[1,null,2]' max_norm 12.5)
    # a table has no such rule
    run -0 --separate-stderr lut-precompute -m M -s sae -o t --layers layers.1.mlp.up_proj
    [[ $stderr == *"was trained without some rows (exclude_special_tokens), which a table of it approximates, too" ]]
}

@test "hf-infer --sae, sae-train eval: normalize_activations and center_writing_weights are SAELens's formulas" {
    run -0 py "$ROOT/test/ref/sae_input.py"
    [ "${#lines[@]}" = 4 ]
    [[ ${lines[3]} == *"Gemma Scope 2: logits "* ]]
}

@test "hf-infer --sae: a normalization without its factor, or an unknown one, is refused by its key" {
    cp -r "$(find qwen3/ -name sae_weights.safetensors -printf '%h\n' | sort | sed 1q)" sae
    for how in expected_average_only_in batch_norm; do
        py - $how <<'END'
import json, sys
c = json.load(open("sae/cfg.json"))
c["normalize_activations"] = sys.argv[1]
json.dump(c, open("sae/cfg.json", "w"))
END
        run -65 --separate-stderr hf-infer M --ids 1,2 --nll --sae sae
        [[ $stderr == "hf-infer: sae/cfg.json: normalize_activations is \"$how\" (expected off"* ]]
        [ $how = batch_norm ] || [[ $stderr == *"as there is no norm_scaling_factor)" ]]
    done
}

# A GPT-2, whose ids have no bos unless it is put there: 256 tokens, bos 255.
gpt2() {
    py "$ROOT/test/ref/family_ref.py" make gpt2 gpt2
    py - <<'END'
import json
c = json.load(open("gpt2/config.json"))
c["bos_token_id"] = c["eos_token_id"] = c["vocab_size"] - 1
json.dump(c, open("gpt2/config.json", "w"))
open("bos", "w").write(str(c["bos_token_id"]))
END
    bos=$(<bos)
}

@test "hf-infer --prepend-bos: logits and tokens are those of ids that begin with bos, put there once" {
    gpt2
    hf-infer gpt2 --ids $bos,3,1,2 --logits want.npy
    for ids in 3,1,2 $bos,3,1,2; do
        hf-infer gpt2 --ids $ids --prepend-bos --logits - | cmp - want.npy
        [ "$(hf-infer gpt2 --ids $ids --prepend-bos -n 4 --greedy --ids-out)" = "$(hf-infer gpt2 --ids $bos,3,1,2 -n 4 --greedy --ids-out)" ]
    done
    run -2 --separate-stderr hf-infer gpt2 --ids 1,2,3,4,5 --nll --ctx 3 --prepend-bos
    [ "${stderr_lines[0]}" = "hf-infer: --prepend-bos: of several windows only the first would begin with bos (6 tokens, windows of 3)" ]
}

@test "hf-infer --acts --prepend-bos: each window begins with bos" {
    gpt2
    echo '{"ids":[1,2,3,4,5]}' >docs
    echo '{"ids":[6]}' >>docs
    rows() {
        hf-infer gpt2 --acts resid:1 -q "$@"
    }
    # 1 2 3 4 5 eos 6, by two after bos; eos is bos here
    rows --jsonl --file docs --ctx 3 --prepend-bos --acts-ids ids.npy >got
    py -c 'import numpy as np, sys; b = int(sys.argv[1]); x = np.load("ids.npy").tolist(); assert x == [[b, 1, 2], [b, 3, 4], [b, 5, b]], x' $bos
    { rows --ids $bos,1,2; rows --ids $bos,3,4; rows --ids $bos,5,$bos; } | cmp - got
    rows --jsonl --file docs --ctx 3 --pad --prepend-bos >padded
    { rows --ids $bos,1,2; rows --ids $bos,6; } | cmp -n "$(($(stat -c %s got) * 5 / 9))" - padded
    rows --ids 1,2 --prepend-bos >one
    rows --ids $bos,1,2 | cmp - one
    hf-infer gpt2 --ids 1,2 --acts resid:1 --prepend-bos -o x --acts-meta m.json
    grep -q '"prepend_bos": true' m.json
    run -2 --separate-stderr hf-infer gpt2 --ids 1,2 --acts resid:1 --ctx 1 --prepend-bos
    [[ ${stderr_lines[0]} == "hf-infer: --ctx 1: "* ]]
}

@test "hf-infer --sae: an SAE that was trained after bos warns once where a text begins without it" {
    gpt2
    py - "$ROOT" <<'END'
import json, os, sys
sys.path.insert(0, sys.argv[1] + "/test/ref")
import numpy as np, splice_ref
d = json.load(open("gpt2/config.json"))["n_embd"]
splice_ref.make("sae", "relu", "blocks.1.hook_resid_pre", np.random.default_rng(1).normal(size=(9, d)), 1)
c = json.load(open("sae/cfg.json"))
c["metadata"]["prepend_bos"] = True
json.dump(c, open("sae/cfg.json", "w"))
END
    run -0 --separate-stderr hf-infer gpt2 --ids 1,2 --logits x.npy --sae sae
    [ "$stderr" = "hf-infer: sae/sae_weights.safetensors: was trained on texts that begin with bos, by its prepend_bos, and this one does not (--prepend-bos)" ]
    for o in "--ids $bos,1,2" "--ids 1,2 --prepend-bos"; do
        run -0 --separate-stderr hf-infer gpt2 $o --logits x.npy -f --sae sae
        [ -z "$stderr" ]
    done
}
