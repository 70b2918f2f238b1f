# SPDX-License-Identifier: ISC
# moe-sft: adapters of several layers, merged and converted together.
load helpers
load sft

# hf/ is a model of two layers in two shards, each of which has of both; l0 and
# l1 are their adapters, of other ranks and alphas.
setup_file() {
    [[ ${LEFT_OUT-} != *moe-sft* ]] || return 0
    cd "$BATS_FILE_TMPDIR" || return
    cp -rL "$ROOT/demo/qwen3-moe-tiny" hf
    py - <<'END_PY'
import json, mkst
t = mkst.load("hf/model.safetensors")
where = {n: "model-0000%d-of-00002.safetensors" % (1 + i % 2) for i, n in enumerate(sorted(t))}
for f in set(where.values()):
    mkst.save("hf/" + f, {n: t[n] for n in t if where[n] == f}, {"format": "pt"})
json.dump({"metadata": {}, "weight_map": where}, open("hf/model.safetensors.index.json", "w"))
END_PY
    rm hf/model.safetensors
    moe-sft init -b hf --layer 0 -o l0.safetensors --seed 3
    moe-sft init -b hf --layer 1 -o l1.safetensors --seed 4 --rank 3 --alpha 7
    for l in l0.safetensors l1.safetensors; do
        edit $l 'g = np.random.default_rng(int(m["lora_rank"]))
for n in t:
    if n.endswith("_b"): t[n] = mkst.bf16(g.standard_normal(t[n][1]) * 0.05)'
    done
    sed 's/"layer_idx":"[01]"/"layer_id_":"-"/' l0.safetensors >unknown.safetensors
}

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    cp -r "$BATS_FILE_TMPDIR"/* .
}

@test "moe-sft merge: two adapters at once are one after the other" {
    moe-sft merge -b hf -l l0.safetensors -o one
    moe-sft merge -b one -l l1.safetensors -o both
    moe-sft merge -b hf -l l0.safetensors -l l1.safetensors -o at-once
    moe-sft merge -b hf -l l1.safetensors,l0.safetensors -o list -j 3
    moe-sft convert -l l0.safetensors,l1.safetensors -o peft
    moe-sft merge -b hf -l peft -o of-peft
    moe-sft merge -b hf -l unknown.safetensors@0 -l l1.safetensors -o by-name
    for m in at-once list of-peft by-name; do diff -r both $m; done
    run -1 cmp both/model-00001-of-00002.safetensors hf/model-00001-of-00002.safetensors
}

@test "moe-sft merge: an adapter that says its layer needs no --layer" {
    moe-sft merge -b hf --layer 1 -l l1.safetensors -o told.safetensors
    moe-sft merge -b hf -l l1.safetensors -o says.safetensors
    cmp told.safetensors says.safetensors
}

@test "moe-sft convert: a PEFT directory of all layers is to hf-infer what the list is" {
    moe-sft convert -l l1.safetensors -l l0.safetensors -o peft
    logits="hf-infer hf --ids 5,6,7,8,9,10,11,12 --logits -"
    $logits >plain
    $logits --lora l0.safetensors,l1.safetensors >list
    $logits --lora peft >directory
    cmp list directory
    for l in 0 1; do
        $logits --lora l$l.safetensors >alone
        run -1 cmp -s list alone
        moe-sft convert -l peft --layer $l -o back$l.safetensors -q
        moe-sft convert -l l$l.safetensors -o peft$l
        moe-sft convert -l peft$l -o want$l.safetensors
        cmp want$l.safetensors back$l.safetensors
        st-inspect diff l$l.safetensors back$l.safetensors
    done
    run -1 cmp -s list plain
    # directories of one layer each, too
    moe-sft convert -l peft0,peft1 -o of-directories
    diff -r peft of-directories
    moe-sft convert -b hf -l peft0,l1.safetensors -o of-both
    diff -r peft of-both
}

@test "moe-sft: of several adapters each has a layer of its own" {
    refuse() {
        local status_wanted=$1 message=$2
        shift 2
        run -"$status_wanted" --separate-stderr moe-sft "$@"
        [ -z "$output" ]
        [ "${stderr_lines[0]}" = "moe-sft: $message" ] || { echo "$stderr" >&2 && false; }
        [ ! -e x ]
    }
    moe-sft convert -l l0.safetensors,l1.safetensors -o peft
    for how in "convert -b hf" convert; do
        refuse 2 "-l: two adapters are for layer 0" $how -l l0.safetensors -l l0.safetensors -o x
        refuse 2 "-l: two adapters are for layer 1" $how -l peft,l1.safetensors -o x
        refuse 2 "unknown.safetensors: does not say which layer it is for (FILE@LAYER says it)" \
            $how -l l1.safetensors -l unknown.safetensors -o x
        refuse 2 "--layer is for one adapter (-l FILE@LAYER,.. gives each its own)" \
            $how --layer 0 -l l0.safetensors -l l1.safetensors -o x
        refuse 65 "l0.safetensors: is for layer 0 by its metadata, but @1 asks for another" \
            $how -l l0.safetensors@1 -o x
        refuse 2 "-l unknown.safetensors@1: --layer asks for layer 0" $how --layer 0 -l unknown.safetensors@1 -o x
        refuse 2 "peft@1: the tensors of a directory name their layers, @LAYER is for files" $how -l peft@1 -o x
    done
    for how in "merge -b hf" "convert -b hf" convert; do
        for empty in "" , l0.safetensors, ,l0.safetensors l0.safetensors,,l1.safetensors; do
            refuse 2 "-l: an empty file name" $how -l "$empty" -o x
        done
    done
    refuse 66 "unknown.safetensors@1x: No such file or directory" convert -l unknown.safetensors@1x -o x
    refuse 66 "unknown.safetensors@5000000000: No such file or directory" convert -l unknown.safetensors@5000000000 -o x
    refuse 2 "hf: has experts of layers 0 to 1: --layer N names one" merge -b hf -l unknown.safetensors -o x.safetensors
    refuse 65 "unknown.safetensors: does not say which layer it is for, and hf has 2 with experts (--lora FILE@LAYER says it)" \
        merge -b hf -l unknown.safetensors -o x
    refuse 2 "-l unknown.safetensors@1: --layer asks for layer 0" \
        merge -b hf --layer 0 -l unknown.safetensors@1 -o x.safetensors
    refuse 65 "hf: has no experts of layer 2 (of layers 0 to 1)" merge -b hf -l unknown.safetensors@2 -o x.safetensors
    refuse 65 "unknown.safetensors: is of experts, but layer 2 of hf has none" \
        merge -b hf -l l1.safetensors,unknown.safetensors@2 -o x
    refuse 2 "-l: two adapters are for model.layers.0.mlp.experts.0.down_proj.weight" \
        merge -b hf -l l0.safetensors,l0.safetensors -o x
    refuse 2 "--layer: a directory is merged whole, with all layers that -l adapts" merge -b hf --layer 0 -l peft -o x
    refuse 2 "-l is given 2 times: a file gets the experts of one layer (all layers go from a directory into one)" \
        merge -b hf -l l0.safetensors -l l1.safetensors -o x.safetensors
    refuse 2 "peft: has adapters of layers 0 to 1: --layer N names one" convert -l peft -o x
    refuse 2 "peft: has adapters of layers 0 to 1: --layer N names one" convert -b hf -l peft -o x
    refuse 2 "-o x.safetensors: the output of several -l is a PEFT directory, whose name must not end in .safetensors" \
        convert -l l0.safetensors -l l1.safetensors -o x.safetensors
    refuse 2 "l0.safetensors: is both an input and an output of this command" \
        merge -f -b hf -l l0.safetensors -o l0.safetensors
}

@test "moe-sft convert: adapters that go into one directory are of one model, and say their layers" {
    refuse() {
        run -"$1" --separate-stderr moe-sft convert "${@:3}" -o x
        [ "${stderr_lines[0]}" = "moe-sft: $2" ] || { echo "$stderr" >&2 && false; }
        [ ! -e x ]
    }
    mkst_size() { # a layer 2 of other sizes
        py - "$@" <<'END_PY'
import sys, numpy as np, mkst
e, h, i = map(int, sys.argv[1:])
shapes = {"gate": (i, h), "up": (i, h), "down": (h, i)}
mkst.save("l2.safetensors", {f"{p}_lora_{m}": np.full((e, 2, s[1]) if m == "a" else (e, s[0], 2), 1, "<f4")
                             for p, s in shapes.items() for m in "ab"}, {"lora_alpha": "4", "layer_idx": "2"})
END_PY
    }
    read -r e h wide < <(py -c 'import mkst
t = mkst.load("l0.safetensors")
print(*t["gate_lora_a"][1][::2], t["gate_lora_b"][1][1])')
    for sizes in "$((e + 1)) $h $wide" "$e $((h + 1)) $wide" "$e $h $((wide + 1))"; do
        mkst_size $sizes
        set -- $sizes
        refuse 65 "l2.safetensors: has $1 experts of $2 x $3, but l0.safetensors $e of $h x $wide: adapters of one model have the same sizes" \
            -l l2.safetensors,l0.safetensors
    done
    mkst_size $((e + 1)) $h $wide
    moe-sft convert -l l2.safetensors -o more
    run -65 moe-sft convert -l l0.safetensors,more -o x
    # of a directory's layer the last experts may have no adapter
    mkst_size $((e - 1)) $h $wide
    moe-sft convert -l l2.safetensors -o less
    moe-sft convert -l l0.safetensors -o peft0
    moe-sft convert -l less,l0.safetensors -o ok
    moe-sft convert -l ok --layer 2 -o back2.safetensors -q
    cmp back2.safetensors <(moe-sft convert -l less -o b.safetensors && cat b.safetensors)
    # a directory of two models: each layer has sizes of its own
    mkst_size $e $((h + 8)) $wide
    moe-sft convert -l l2.safetensors -o peft2
    py - <<'END_PY'
import json, mkst, os
t = {n: (d, s, b) for f in ("peft0", "peft2") for n, (d, s, b) in mkst.load(f + "/adapter_model.safetensors").items()}
c = json.load(open("peft0/adapter_config.json"))
c["layers_to_transform"] = None
c["rank_pattern"], c["alpha_pattern"] = {r"layers\.2\..*": 2}, {r"layers\.2\..*": 4}
os.mkdir("mixed")
json.dump(c, open("mixed/adapter_config.json", "w"))
mkst.save("mixed/adapter_model.safetensors", t)
END_PY
    for l in 0 2; do
        moe-sft convert -l mixed --layer $l -o got.safetensors -f -q
        moe-sft convert -l peft$l -o want.safetensors -f
        cmp got.safetensors want.safetensors
    done
    # names without "layers.N"
    cp -r peft0 nl
    edit nl/adapter_model.safetensors 't = {n.replace("layers.0.", ""): v for n, v in t.items()}'
    py -c 'import json; c = json.load(open("peft0/adapter_config.json")); del c["layers_to_transform"], c["layers_pattern"]; json.dump(c, open("nl/adapter_config.json", "w"))'
    refuse 2 "nl/adapter_model.safetensors: does not say which layer it is for" -l l0.safetensors,nl
    refuse 2 "unknown.safetensors: does not say which layer it is for (--layer N says it)" -l unknown.safetensors
    moe-sft convert -l nl -o nl.safetensors
    st-inspect diff nl.safetensors l0.safetensors
}

@test "moe-sft: -f does not remove a directory with what is read" {
    cp l1.safetensors was
    refuse() {
        run -2 --separate-stderr moe-sft "${@:2}"
        [ "${stderr_lines[0]}" = "moe-sft: ${1%/}: is replaced, but $what in it is an input of this command" ] || { echo "$stderr" >&2 && false; }
        cmp l1.safetensors was
        [ -e "$1/$what" ]
    }
    mkdir out
    cp l0.safetensors out/lora.safetensors
    what=lora.safetensors
    ln -s out link
    for o in out out/ "$PWD/out"; do
        refuse $o convert -f -l out/lora.safetensors -o $o
        refuse $o convert -f -l l1.safetensors,link/lora.safetensors@0 -o $o
        refuse $o merge -f -b hf -l l1.safetensors -l out/lora.safetensors -o $o
    done
    # a model whose files are links into the directory
    rm -r out
    mkdir out
    what=model-00001-of-00002.safetensors
    mv hf/$what out
    ln -s ../out/$what hf
    refuse out merge -f -b hf -l l1.safetensors -o out
    # what lies beside it is replaced
    moe-sft convert -l l0.safetensors -o peft
    moe-sft convert -f -l l1.safetensors -o peft
    moe-sft convert -l l1.safetensors -o want
    diff -r want peft
}

@test "moe-sft: a directory that train made is its adapter" {
    mkdir run run2
    cp l0.safetensors run/lora.safetensors
    cp unknown.safetensors run2/lora.safetensors
    moe-sft convert -l l0.safetensors -o want
    for l in run run/ run@0 "run2@0"; do
        moe-sft convert -l "$l" -o got -f
        diff -r want got
    done
    moe-sft merge -b hf -l l0.safetensors,l1.safetensors -o merged
    moe-sft merge -b hf -l run,l1.safetensors -o again
    diff -r merged again
    run -2 --separate-stderr moe-sft convert -f -l run -o run
    [ "${stderr_lines[0]}" = "moe-sft: run: is replaced, but lora.safetensors in it is an input of this command" ]
    cmp run/lora.safetensors l0.safetensors
    moe-sft info -b hf --layer 0 -l l0.safetensors >want.tsv
    moe-sft info -b hf --layer 0 -l run >got.tsv
    cmp want.tsv got.tsv
    # one of PEFT's stays that
    cp l1.safetensors want/lora.safetensors
    moe-sft convert -l want -o of-peft.safetensors
    st-inspect diff l0.safetensors of-peft.safetensors
}

@test "moe-sft: a comma or @ in a name that is there is no list" {
    mkdir 'a,b@2'
    cp l0.safetensors 'a,b@2/l@1'
    moe-sft convert -l l0.safetensors -o want
    moe-sft convert -l 'a,b@2/l@1' -o got
    diff -r want got
    # a list is longer than a name may be
    run -2 moe-sft convert -l "$(printf 'l0.safetensors,%.0s' {1..400})l1.safetensors" -o x
    [ "${lines[0]}" = "moe-sft: -l: two adapters are for layer 0" ]
}

@test "moe-sft: an option that names a file or a layer is given once" {
    for o in "-b hf" "-o x" "--layer 0"; do
        run -2 --separate-stderr moe-sft init -b hf -o x --layer 0 $o
        [ "${stderr_lines[0]}" = "moe-sft: ${o% *} is given 2 times" ]
    done
    for verb in forward check "train -n 1"; do
        run -2 --separate-stderr moe-sft $verb -b hf -l l0.safetensors -i x -o x -l l1.safetensors
        [ "${stderr_lines[0]}" = "moe-sft: -l is given 2 times" ]
    done
    [ ! -e x ]
    moe-sft init -b hf --layer 0 -o x.safetensors --seed 1 --rank 9 --seed 3 --rank 8 # the last counts
    moe-sft init -b hf --layer 0 -o y.safetensors --seed 3
    cmp x.safetensors y.safetensors
}

@test "moe-sft merge: every reader finds the same weights: a tied head is untied, older copies and other forms are left out" {
    py - "$DEMO" <<'END'
import json, os, shutil, sys, mkst, numpy as np
demo, q = sys.argv[1], "model.layers.0.self_attn.q_proj"
t = mkst.load(demo + "/model.safetensors")
t["lm_head.weight"] = t["model.embed_tokens.weight"]
g, lora = np.random.default_rng(1), {}
for name in q, "lm_head":
    out, inner = t[name + ".weight"][1]
    for m, shape in ("A", (2, inner)), ("B", (out, 2)):
        lora[f"base_model.model.{name}.lora_{m}.weight"] = (g.standard_normal(shape) / 20).astype(np.float32)
os.mkdir("a")
mkst.save("a/adapter_model.safetensors", lora)
json.dump(dict(peft_type="LORA", r=2, lora_alpha=6, target_modules=[q, "lm_head"]), open("a/adapter_config.json", "w"))
for d in "one", "shards", "head":
    shutil.copytree(demo, d)
    open(d + "/pytorch_model-00001-of-00002.bin", "w").close()
    open(d + "/pytorch_model.bin.index.json", "w").close()
# the index decides: the overlay has two of them, with other numbers in the shard
old, new = "model-00001-of-00001.safetensors", "overlay.safetensors"
over = {n: t[n] for n in ("lm_head.weight", q + ".weight")}
index = {"metadata": {}, "weight_map": {n: new if n in over else old for n in t}}
for d in "one", "shards":
    json.dump(index, open(d + "/model.safetensors.index.json", "w"))
mkst.save("one/model.safetensors", t)
os.remove("shards/model.safetensors")
mkst.save("shards/" + new, over)
mkst.save("shards/" + old, t | {n: (d, s, bytes(len(b))) for n, (d, s, b) in over.items()} | {"stray": t["lm_head.weight"]})
del t["model.embed_tokens.weight"]
mkst.save("head/model.safetensors", t)
END
    for d in one shards; do
        run -0 --separate-stderr moe-sft merge -b $d -l a -o $d-merged
        [[ $stderr == *"$d: "*" and others are not copied, as the adapter is not in them"* ]]
        comm -23 <(ls $d) <(ls $d-merged) >left
        [ "$(<left)" = "$([ $d = shards ] || echo model.safetensors.index.json; echo pytorch_model-00001-of-00002.bin; echo pytorch_model.bin.index.json)" ]
        for how in "$d --lora a" $d-merged; do
            # shellcheck disable=SC2086
            hf-infer $how --ids 5,9,1,7,300,2 --nll --json -q
        done >$d.said
    done
    [[ $stderr == *"model-00001-of-00001.safetensors: 3 tensors left out, as the index does not give them to this file (the first is "* ]]
    "$PYTHON" - <<'END'
import glob, json, os, sys
sys.path.insert(0, os.environ["ROOT"] + "/test/ref")
import mkst, numpy as np
base, lora = mkst.load("one/model.safetensors"), mkst.read("a/adapter_model.safetensors")[0]
for d in "one", "shards":
    config = json.load(open(d + "/config.json"))
    assert json.load(open(d + "-merged/config.json")) == config | {"tie_word_embeddings": False}
    found = {}
    for f in glob.glob(d + "-merged/*.safetensors"):
        for name, v in mkst.load(f).items():
            assert name not in found
            found[name] = v
    assert found.keys() == base.keys()
    for name, v in base.items():
        at = "base_model.model." + name[:-len("weight")] + "lora_%s.weight"
        if at % "A" in lora:
            w = mkst.values(*v) + 3 * (lora[at % "B"] @ lora[at % "A"])
            assert (np.abs(mkst.values(*found[name]) - w) <= np.abs(w) * 2.0 ** -8).all(), name
        else:
            assert found[name][2] == v[2], name
    a, b = (json.loads(l)["nll_mean"] for l in open(d + ".said"))
    assert abs(a - b) < 0.01, (a, b)
END
    run -65 --separate-stderr moe-sft merge -b head -l a -o x
    [[ $stderr == *"whose weights are another's, as a tied lm_head's are: it cannot be merged" ]]
    [ ! -e x ]
}

@test "an adapter that was cut, patterns of no module and unknown members are named, once, by every reader" {
    py - <<'END'
import json, os, mkst, numpy as np
base = {}
for i in 1, 2:
    base |= mkst.load("hf/model-0000%d-of-00002.safetensors" % i)
# what PEFT 0.18 writes by default, and auto_mapping as it may be
defaults = json.loads("""{"alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null,
"auto_mapping": {"base_model_class": "X"}, "base_model_name_or_path": null, "bias": "none", "corda_config": null,
"ensure_weight_tying": false, "eva_config": null, "exclude_modules": null, "fan_in_fan_out": false,
"inference_mode": true, "init_lora_weights": true, "layer_replication": null, "layers_pattern": null,
"layers_to_transform": null, "loftq_config": {}, "lora_bias": false, "lora_dropout": 0.0, "megatron_config": null,
"megatron_core": "megatron.core", "modules_to_save": null, "peft_version": "0.18.1", "qalora_group_size": 16,
"rank_pattern": {}, "revision": null, "target_parameters": null, "task_type": "CAUSAL_LM",
"trainable_token_indices": null, "use_dora": false, "use_qalora": false, "use_rslora": false,
"peft_type": "LORA", "r": 2, "lora_alpha": 4}""")
def adapter(path, ends, keep=lambda name: True, **more):
    t = {}
    for name in base:
        if name.endswith(tuple(e + ".weight" for e in ends)) and keep(name):
            at = "base_model.model." + name[:-len("weight")] + "lora_%s.weight"
            t[at % "A"] = np.zeros((2, base[name][1][1]), np.float32)
            t[at % "B"] = np.zeros((base[name][1][0], 2), np.float32)
    os.mkdir(path)
    mkst.save(path + "/adapter_model.safetensors", t)
    json.dump(defaults | {"target_modules": list(ends)} | more, open(path + "/adapter_config.json", "w"))
all = "q_proj", "gate_proj", "up_proj", "down_proj"
adapter("whole", all)
adapter("v5", all, lambda name: "experts" not in name)
adapter("cut", all, lambda name: "layers.0" in name)
adapter("experts", all[1:], lambda name: "layers.0" in name or "experts.1.up" in name)
adapter("regex", all[:1], lambda name: "layers.1" in name, target_modules=r".*self_attn\.[qk]_proj")
adapter("only-1", all, lambda name: "layers.1" in name, layers_to_transform=[1], layers_pattern="layers")
adapter("excluded", all, lambda name: "layers.1" in name, exclude_modules=r".*layers\.0\..*")
adapter("odd", all, alpha_pattern={"^q_proj": 9, r"layers\.1\..*": 4, "model.layers.7.q_proj": 3},
        use_magic=True, magic={"a": 1}, later={}, number=3)
END
    echo '{"ids": [5, 9, 1], "labels": [5, 9, 1]}' >d.jsonl
    said() { # said ADAPTER LINE: of all that read it, and no more than that
        for how in "hf-infer hf --ids 5,9 --nll --lora $1 -o /dev/null" "moe-sft merge -b hf -l $1 -o x -f"; do
            # shellcheck disable=SC2086
            run -0 --separate-stderr $how -q
            [ -z "$stderr" ]
            # shellcheck disable=SC2086
            run -0 --separate-stderr $how
            [ "$(grep -v "mean nll" <<<"$stderr" | sed 's/^[a-z-]*: //')" = "$2" ] || { echo "$how: $stderr"; return 1; }
        done
    }
    none="adapter_model.safetensors: no tensors of"
    that="that target_modules has, which stay as in the base (the first is model.layers"
    for a in whole v5 only-1 excluded; do
        said $a ""
    done
    # of layer 1, q_proj and three matrices of four experts; of both, q and k
    said cut "cut/$none 13 modules $that.1.mlp.experts.0.down_proj)"
    said regex "regex/$none 3 modules $that.0.self_attn.k_proj)"
    said experts "experts/$none 11 modules $that.1.mlp.experts.0.down_proj)"
    unknown='odd/adapter_config.json: "use_magic", "magic" are not known, ignored'
    unused='odd/adapter_config.json: alpha_pattern.^q_proj is used for no module, and others are not either'
    said odd "$unknown"$'\n'"$unused"
    for how in "tune -m hf -d d.jsonl --init odd --dry-run" "convert -l odd -o x.safetensors --layer 0" "info -l odd -b hf --layer 1"; do
        # shellcheck disable=SC2086
        run --separate-stderr moe-sft $how
        [ "$(grep -c -e "$unknown" -e "$unused" <<<"$stderr")" = 2 ] || { echo "$how: $stderr"; return 1; }
    done
    run -0 --separate-stderr moe-sft info -b hf -l experts --layer 1
    [[ $stderr == *"experts/$none 11 modules "*"1.mlp.experts.0.down_proj)" ]]
    run -0 --separate-stderr moe-sft info -b hf -l experts --layer 0
    [[ $stderr != *"$none"* ]]
}
