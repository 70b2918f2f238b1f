# SPDX-License-Identifier: ISC
"""family_ref.py run NAME...: hf-infer held to the reference on tiny models.

Of each model whose model_type `hf-infer --families` lists: logits of each prompt,
the same bytes with other threads and chunks, rows at each place, logits with an
SAE there, and greedy tokens.  Any other must be refused by its model_type.  With
TU_WAYS=one, a third of these threads and chunks and of the places of SAEs are
each model's, in turn.
"""
import json
import os
import subprocess
import tempfile

import numpy as np

import family_forward as ff
import family_models
import family_read
import splice_ref

# Where the reference's places are among those of hf-infer --places, which are
# of layer 0 here: its short form, or TransformerLens's name.
PLACES = {
    "embed": "hook_embed", "layers.0": "resid:0", "attn:0": "attn:0",
    "mlp:0": "mlp:0", "attn.hook_z:0": "blocks.0.attn.hook_z",
    "resid_mid:0": "blocks.0.hook_resid_mid",
    "attn_out:0": "blocks.0.hook_attn_out",
    "mlp_out:0": "blocks.0.hook_mlp_out", "in_qkv:0": "in:q_proj:0",
    "in_mlp:0": "in:up_proj:0", "in_down:0": "in:down_proj:0",
    "layers.-1": "resid:-1"}
WAYS = (("-j", "1"), ("-j", "2", "--chunk", "1"), ("--chunk", "7"))
ONE_WAY = os.environ.get("TU_WAYS") == "one"
# In memory, if that can be: dumps are hundreds of files, each synced to the disk.
TMP = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def hf_infer(*arguments):
    return subprocess.run(("hf-infer",) + arguments, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)


def output(*arguments):
    done = hf_infer(*arguments)
    assert done.returncode == 0, (arguments, done.stderr.decode())
    return done.stdout


def held(what, got, ref, tolerance):
    off = np.abs(got - ref).max() / tolerance(ref)
    assert off <= 1, "%s: %.3g times what may be" % (what, off)
    return off


def places(path):
    """{each name of a place: its hook}"""
    rows = output(path, "--places").decode().splitlines()[1:]
    return {name: row.split("\t")[0] for row in rows
            for name in row.split("\t")[:3]}


def at_places(path, ids, model, hooks, tolerance):
    """The worst of all rows at all places that hf-infer lists."""
    seen, worst, refs = {}, 0, {}
    ff.forward(model, ids, seen)
    for place, name in PLACES.items():
        for i in range(len(model.layers) if place.endswith("0") else 1):
            at, hook = (x.replace("0", str(i)) for x in (place, name))
            if at in seen:
                assert hook in hooks, "no place %s" % hook
                refs[hook] = seen[at]
    text = ",".join(map(str, ids))
    for short in (True, False):  # one run cannot name a place in two ways
        names = [name for name in refs if (":" in name) == short]
        dumps = os.path.join(path, "dumps-%d" % short)
        output(path, "--ids", text, "--acts", ",".join(names), "-o", dumps)
        for name in names:
            got = np.load(os.path.join(dumps, hooks[name] + ".npy"))
            got = got.reshape(refs[name].shape)
            worst = max(worst, held(name, got, refs[name], tolerance))
        raw = output(path, "--ids", text, "--acts", name)  # the last, alone
        assert raw == got.tobytes(), name
    return worst


def in_turn(all_of_them, nth):
    """Those that the nth model has."""
    return list(all_of_them)[nth % 3::3] if ONE_WAY else list(all_of_them)


def spliced(path, ids, model, hooks, tolerance, nth):
    """The worst logits with an SAE at each place, of the last layer."""
    seen, worst = {}, 0
    ff.forward(model, ids, seen)
    last = {place.replace("0", str(len(model.layers) - 1)): name.replace(
        "0", str(len(model.layers) - 1)) for place, name in PLACES.items()}
    for at in in_turn([p for p in last if p in seen], nth):
        hook = last[at]
        if hook not in hooks or ":" in hook:  # a short form is not a hook
            hook = hooks[hook]
        with tempfile.TemporaryDirectory(dir=TMP) as tmp:
            sae = os.path.join(tmp, "sae")
            forward = splice_ref.make(sae, "relu", hook, seen[at], 1)
            file = os.path.join(tmp, "got.npy")
            output(path, "--ids", ",".join(map(str, ids)), "--logits", file,
                   "--sae", sae)
            ref = ff.forward(model, ids, change={at: forward})
            worst = max(worst, held("--sae at " + hook, np.load(file), ref,
                                    tolerance))
    return worst


def greedy(path, ids, n):
    """n tokens that the reference has as the most likely, each time anew."""
    ids = list(ids)
    for _ in range(n):
        model, _ = family_read.read(path, len(ids))
        ids.append(int(ff.forward(model, ids)[-1].argmax()))
    return ids[-n:]


def logits(path, ids, model, tolerance, nth, *options):
    """The worst, and the same bytes in other ways."""
    file = os.path.join(path, "got.npy")
    text = ",".join(map(str, ids))
    output(path, "--ids", text, "--logits", file, *options)
    worst = held("logits", np.load(file), ff.forward(model, ids), tolerance)
    with open(file, "rb") as f:
        first = f.read()
    for way in in_turn(WAYS, nth):
        output(path, "--ids", text, "--logits", file, "-f", *options, *way)
        with open(file, "rb") as f:
            assert f.read() == first, "%s: other bytes" % (way,)
    os.remove(file)
    return worst, first


def check(name, path, tolerance, nth, latents):
    hooks = places(path)
    worst = 0
    for k, ids in enumerate(family_models.prompts(path)):
        text = ",".join(map(str, ids))
        model, _ = family_read.read(path, len(ids))
        off, first = logits(path, ids, model, tolerance, nth)
        worst = max(worst, off)
        if latents:
            off, other = logits(path, ids, model, tolerance, nth,
                                "--kv-latents")
            assert first != other, "--kv-latents does nothing"
            worst = max(worst, off)
        if k == 0:
            acts = max(at_places(path, ids, model, hooks, tolerance),
                       spliced(path, ids, model, hooks, tolerance, nth))
            got = output(path, "--ids", text, "-n", "4", "--greedy",
                         "--ids-out").decode().split()
            assert list(map(int, got)) == greedy(path, ids, 4), got
    print("%s: logits %.2g, places %.2g of what may be" % (name, worst, acts))


def run(names, tolerance):
    named = output("--families").decode().split()
    for name in names:
        nth = list(family_models.MODELS).index(name)
        with tempfile.TemporaryDirectory(dir=TMP) as tmp:
            path = os.path.join(tmp, "m")
            family_models.make(name, path)
            with open(os.path.join(path, "config.json")) as f:
                config = json.load(f)
            where, kind = "model_type", config["model_type"]
            text = config.get("text_config", {}).get("model_type")
            if text and kind not in named:
                where, kind = "text_config.model_type", text
            if kind in named:
                check(name, path, tolerance, nth,
                      "kv_lora_rank" in config)
                continue
            done = hf_infer(path, "--ids", "1", "--logits", "-")
            says = 'config.json: %s "%s" is not supported (' % (where, kind)
            assert done.returncode == 65 and says in done.stderr.decode(), (
                name, done.returncode, done.stderr)
            print("%s: refused" % name)
