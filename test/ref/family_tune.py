# SPDX-License-Identifier: ISC
"""family_tune.py grads|check|steps|reference FAMILY[:VARIANT]...: moe-sft tune of
tiny models of families (family_models.py), with adapters on every linear layer.

grads: loss and gradients are those of torch's autograd in float64 through
family_forward.py, for packed examples, too, and have the same bytes for any
number of threads and, in f32, by any instructions.
check: moe-sft check -m finds no gradient wrong.
steps: 20 steps lower the loss, and with the adapter they leave hf-infer's
logits have the loss that tune gives; so have those of the merged model, if
weights are not packed.
reference: autograd's logits are those that numpy has, and its gradients those of
differences of numpy's loss.
What hf-infer does not run must be refused.
"""
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import family_forward  # noqa: E402
import family_models  # noqa: E402
import family_read  # noqa: E402
import mkst  # noqa: E402
import packed_forms  # noqa: E402

RANK, ALPHA = 3, 6
SCALE = ALPHA / RANK
ROOTS = dict(gpt2="transformer.", gpt_neox="gpt_neox.") # others: "model."
ROUTER = re.compile(r"(mlp|block_sparse_moe)\.gate$|\.router$|_expert_gate$")
PLACE = 10 ** 6 # no module has as many numbers, and none is as large


def run(*command, status=0):
    done = subprocess.run(command, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    assert status in (done.returncode, None), (command, done.returncode,
                                               done.stderr.decode())
    return done.stdout.decode(), done.stderr.decode()


def config():
    with open("m/config.json") as f:
        return json.load(f)


def stacked():
    """Projections of experts in stacks: the stack that has each, and where in it.
    gpt-oss's lie [in, out], and gates and ups take turns."""
    found, turned = {}, config()["model_type"] == "gpt_oss"
    for name, (_, shape, _) in mkst.load("m/model.safetensors").items():
        stack = re.match(r"(.*\.experts\.)gate_up_proj(_blocks)?$", name)
        for e in range(shape[0] if stack else 0):
            at, size = stack[1], None if turned else shape[1] // 2
            for k, x in enumerate(("gate_proj", "up_proj")):
                found["%s%d.%s" % (at, e, x)] = at + "gate_up_proj", (
                    e, slice(None), slice(k, None, 2)) if turned else (
                        e, slice(k * size, (k + 1) * size))
            found["%s%d.down_proj" % (at, e)] = at + "down_proj", (e,)
    return found


def weights():
    """The file's numbers by name, gpt-oss's stacks [experts, in, out]."""
    r = family_read.Reader("m", 1, (), {})
    for name in {x for x, _ in stacked().values()} - r.left.keys():
        r.left[name] = packed_forms.mxfp4(*(mkst.values(*r.raw[name + x]) for x
                                            in ("_blocks", "_scales")))
        r.left[name] = r.left[name].swapaxes(1, 2).astype(float)
    return r.left


def modules():
    """The linear layers of the file, [out, in] of each, and PEFT's name."""
    w, kind, found = weights(), config()["model_type"], {}
    shapes = {name: w[stack][at].shape[::-1 if kind == "gpt_oss" else 1]
              for name, (stack, at) in stacked().items()}
    shapes.update({name[:-len(".weight")]: shape for name, (_, shape, _)
                   in mkst.load("m/model.safetensors").items()
                   if len(shape) == 2 and "norm" not in name
                   and name.endswith(".weight")})
    for name, shape in shapes.items():
        at = re.search(r"^(?!mtp|.*(?:vis|projector)).*?((h|layers)\.(\d).*)",
                       name)
        if at and not ROUTER.search(name) and int(at[3]) < config().get(
                "num_hidden_layers", 9): # not what predicts a token more
            found[name] = (shape[::-1] if kind == "gpt2" else shape,
                           ROOTS.get(kind, "model.") + at[1])
    return found


def sequences(rng, n):
    """Lines of ids and labels: one without a target, one of two tokens, one
    whose last tokens are no targets."""
    some = [rng.integers(0, family_models.VOCAB, k) for k in (n, 9, 2, n // 2)]
    labels = [np.where(rng.random(len(x)) < 0.7, x, -100) for x in some]
    labels[1][:], labels[2][:], labels[3][5:] = -100, some[2], -100
    return list(zip(some, labels))


def make(name, rng):
    """m, adapter and d.jsonl in this directory; what the last two have."""
    family_models.make(name, "m")
    adapter, weights = {}, {}
    for module, ((out, width), peft) in modules().items():
        a = rng.normal(0, 1 / math.sqrt(width), (RANK, width)).astype("<f4")
        b = rng.normal(0, 0.3, (out, RANK)).astype("<f4")
        adapter[module] = a.astype(float), b.astype(float)
        weights["base_model.model.%s.lora_A.weight" % peft] = a
        weights["base_model.model.%s.lora_B.weight" % peft] = b
    os.makedirs("adapter", exist_ok=True)
    mkst.save("adapter/adapter_model.safetensors", weights)
    with open("adapter/adapter_config.json", "w") as f:
        json.dump(dict(
            peft_type="LORA", task_type="CAUSAL_LM", r=RANK, lora_alpha=ALPHA,
            lora_dropout=0.0, bias="none", inference_mode=True,
            fan_in_fan_out=config()["model_type"] == "gpt2",
            target_modules=sorted({x.split(".")[-1] for x in adapter})), f)
    seqs = sequences(rng, max(map(len, family_models.prompts("m"))))
    with open("d.jsonl", "w") as f:
        for ids, labels in seqs:
            f.write(json.dumps(dict(ids=ids.tolist(), labels=labels.tolist()))
                    + "\n")
    return adapter, seqs


# ---- by torch ----

def torch_forward():
    """family_forward.py with torch for numpy."""
    import torch
    spec = importlib.util.spec_from_file_location("torch_forward",
                                                  family_forward.__file__)
    forward = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(forward)
    torch.Tensor.copy = torch.Tensor.clone
    forward.ERF = torch.erf
    forward.np = SimpleNamespace(
        inf=math.inf, sqrt=torch.sqrt, tanh=torch.tanh, exp=torch.exp,
        mean=torch.mean, max=torch.amax, einsum=torch.einsum,
        clip=torch.clamp, log1p=torch.log1p, sum=torch.sum, stack=torch.stack,
        concatenate=lambda x, axis: torch.cat(x, axis),
        sort=lambda x, axis: torch.sort(x, axis)[0],
        argsort=lambda x, axis, kind: torch.argsort(x, dim=axis, stable=True),
        arange=lambda n: torch.arange(n, dtype=torch.float64),
        repeat=lambda x, n, axis: torch.repeat_interleave(x, n, axis),
        where=lambda c, a, b: b.masked_fill(c, a))
    return forward


def to_torch(x, forward):
    import torch
    if isinstance(x, np.ndarray):
        return torch.tensor(x)
    if isinstance(x, SimpleNamespace):
        return SimpleNamespace(**{k: to_torch(v, forward)
                                  for k, v in vars(x).items()})
    if isinstance(x, (list, tuple)):
        return type(x)(to_torch(v, forward) for v in x)
    return getattr(forward, x.__name__) if callable(x) else x


def leaves_of(x, at):
    """Weights that an adapter moves, and where their numbers are in the file."""
    if isinstance(at, SimpleNamespace):
        for field in vars(at):
            yield from leaves_of(getattr(x, field), getattr(at, field))
    elif isinstance(at, (list, tuple)):
        for pair in zip(x, at):
            yield from leaves_of(*pair)
    elif isinstance(at, np.ndarray) and at.ndim == 2 and at.min() >= PLACE:
        yield x, at


def turned(module):
    """Does the file have it [in, out]?"""
    kind = config()["model_type"]
    return kind == "gpt2" or kind == "gpt_oss" and ".experts." in module


def moved_by(adapter):
    """The file's tensors with what the adapter adds to them, and each module's
    tensor and where in it."""
    file, stacks, moved = weights(), stacked(), {}
    where = {module: stacks.get(module, (module + ".weight", ()))
             for module in adapter}
    for module, (a, b) in adapter.items():
        name, at = where[module]
        if name not in moved:
            moved[name] = file[name].copy()
        by = SCALE * b @ a
        moved[name][at] += by.T if turned(module) else by
    return moved, where


def by_torch(adapter, seqs):
    """The mean loss, the adapter's gradients, and all logits.  Gradients of a
    module's weight are put where its numbers are in the file: where the reader
    has taken them from, it says when each number is its place."""
    import torch
    from torch.nn import functional
    forward, all_logits = torch_forward(), []
    moved, where = moved_by(adapter)
    sums = {name: np.zeros(x.size) for name, x in moved.items()}
    places = {name: PLACE * (1 + i) + np.arange(x.size, dtype=float).reshape(
        x.shape) for i, (name, x) in enumerate(moved.items())}
    names, loss, n_targets = list(moved), 0, 0
    for ids, labels in seqs:
        n_targets += int(np.sum(labels[1:] != -100))
        at = family_read.read("m", len(ids), instead=places)[0]
        model = to_torch(family_read.read("m", len(ids), instead=moved)[0],
                         forward)
        leaves = list(leaves_of(model.layers, at.layers))
        for leaf, _ in leaves:
            leaf.requires_grad_(True)
        logits = forward.forward(model, ids)
        all_logits.append(logits.detach().numpy())
        one = functional.cross_entropy(
            logits[:-1], torch.tensor(labels[1:]), ignore_index=-100,
            reduction="sum")
        one.backward()
        loss += float(one)
        for leaf, place in leaves:
            of, place = np.divmod(place.astype(int), PLACE)
            sums[names[of.flat[0] - 1]][place] += leaf.grad.numpy()
    grads = {}
    for module, (a, b) in adapter.items():
        name, at = where[module]
        g = sums[name].reshape(moved[name].shape)[at]
        g = (g.T if turned(module) else g) * SCALE / n_targets
        grads[module] = b.T @ g, g @ a.T
    return loss / n_targets, grads, all_logits


def by_numpy(adapter, seqs):
    """The mean loss and all logits, without torch."""
    moved, loss, n, all_logits = moved_by(adapter)[0], 0, 0, []
    for ids, labels in seqs:
        logits = family_forward.forward(
            family_read.read("m", len(ids), instead=moved)[0], ids)
        at = np.flatnonzero(labels[1:] != -100)
        top = logits.max(-1)
        loss += np.sum((np.log(np.exp(logits - top[:, None]).sum(-1)) + top)[at]
                       - logits[at, labels[1:][at]])
        n += len(at)
        all_logits.append(logits)
    return loss / n, all_logits


def reference(name, rng, h=1e-6):
    """Differences along random signs of all A, then B, of a kind of module."""
    adapter, seqs = make(name, rng)
    loss, grads, logits = by_torch(adapter, seqs)
    want, ref = by_numpy(adapter, seqs)
    off = max(np.abs(x - y).max() / np.abs(y).max() for x, y in zip(logits, ref))
    assert off <= 1e-10 and abs(loss - want) <= 1e-10 * want, (off, loss, want)
    kinds = {}
    for module in adapter:
        kinds.setdefault(re.sub(r"\.\d+\.", ".N.", module), []).append(module)
    worst = 0
    for kind, some in kinds.items():
        for k in 0, 1:
            signs = {x: rng.choice((-1.0, 1.0), adapter[x][k].shape)
                     for x in some}
            losses = []
            for step in h, -h:
                to = dict(adapter)
                for x, by in signs.items():
                    to[x] = [m + step * by if i == k else m
                             for i, m in enumerate(adapter[x])]
                losses.append(by_numpy(to, seqs)[0])
            got = sum(np.sum(by * grads[x][k]) for x, by in signs.items())
            size = math.sqrt(sum(np.sum(grads[x][k] ** 2) for x in some))
            error = abs(got - (losses[0] - losses[1]) / (2 * h)) / size
            worst = max(worst, error)
            assert size > 0 and error <= 1e-6, (kind, "AB"[k], got, error)
    print("%s: logits differ by %.2g; gradients of %d kinds by %.2g"
          % (name, off, len(kinds), worst))


# ---- what moe-sft makes ----

def quiet(said):
    """No warnings, but of what a directory has besides its text model."""
    said = [x for x in said.splitlines() if " ignored" not in x and
            "visual." not in x]
    assert not said, said


TUNE = ("moe-sft", "tune", "-m", "m", "-d", "d.jsonl", "--ctx", "256", "-f")


def in_model(name):
    """A module's name without the root, which is as in the model's file."""
    return re.sub(r".*?\b(h|layers)\.", "", name)


def read_grads(path, adapter):
    found = {in_model(k): x.astype(float) for k, x in mkst.read(path)[0].items()}
    loss = float(found.pop("loss"))
    assert len(found) == 2 * len(adapter)
    return loss, {module: [found["%s.lora_%s.weight" % (in_model(module), x)]
                           for x in "AB"] for module in adapter}


def worst(grads, ref):
    return max(np.linalg.norm(x - y) / (np.linalg.norm(y) or 1) # 0: no token
               for module in ref for x, y in zip(grads[module], ref[module]))


def whole(grads, ref):
    """The same of all numbers as one: where a token's experts are chosen by
    rounded scores, some have it that should not."""
    pairs = [(x, y) for module in ref for x, y in zip(grads[module], ref[module])]
    return math.sqrt(sum(np.sum((x - y) ** 2) for x, y in pairs)
                     / sum(np.sum(y ** 2) for x, y in pairs))


def routed():
    return any(ROUTER.search(x[:-len(".weight")])
               for x in mkst.load("m/model.safetensors"))


def grads(name, rng):
    adapter, seqs = make(name, rng)
    want, ref, _ = by_torch(adapter, seqs)
    command = TUNE + ("--init", "adapter")
    for path, pack in ("packed", ["--pack"]), ("g", []):
        quiet(run(*command, "--compute", "f32", "--grads", path, "-j", "1",
                  *pack)[1])
        loss, got = read_grads(path, adapter)
        off = worst(got, ref)
        assert abs(loss - want) <= 1e-6 * want and off <= 1e-4, (
            path, loss, want, off)
    run(*command, "--compute", "bf16", "--grads", "h", "-j", "1")
    loss, got = read_grads("h", adapter)
    rounded = (whole if routed() else worst)(got, ref)
    assert abs(loss - want) <= 0.05 * want and rounded <= 0.5, (loss, rounded)
    for compute, path in ("f32", "g"), ("bf16", "h"):
        run(*command, "--compute", compute, "--grads", "again", "-j", "3")
        with open(path, "rb") as x, open("again", "rb") as y:
            assert x.read() == y.read(), "other bytes from 3 threads"
    run("env", "TU_ISA=scalar", *command, "--compute", "f32", "--grads",
        "scalar")
    with open("g", "rb") as x, open("scalar", "rb") as y:
        assert x.read() == y.read(), "other bytes without vectors"
    print("%s: loss %.6f, gradients differ by %.2g, in bf16 by %.2g"
          % (name, want, off, rounded))


def are_right(rows):
    """Where a model has a router, a step may lead a token to other experts, and
    the loss jumps: most of a projection's rows must be right in a direction."""
    by = {}
    for row in rows:
        errors = [float(x) / float(limit)
                  for x, limit in (row[2:4], row[4:6])]
        kind = row[0].rsplit(".", 3)[1:3] if routed() else row[0]
        by.setdefault(str(kind), []).append(
            row[-1] != "no" or routed() and min(errors) <= 1)
    return all(sum(x) > 0.6 * len(x) for x in by.values())


def check(name, rng, more=2):
    """Of each kind the first and the last; of experts some between, too.  Where
    a choice of experts is so near that most rows see it, other data are."""
    adapter, _ = make(name, rng)
    said = run("moe-sft", "check", "-m", "m", "-d", "d.jsonl", "--samples",
               "12" if routed() else "2", "--init", "adapter",
               status=None if routed() else 0)[0].splitlines()[1:]
    rows = [row.split("\t") for row in said]
    n_right = sum(row[-1] == "yes" for row in rows)
    right = are_right(rows) and n_right > len(rows) / 2
    if routed() and not right and more:
        return check(name, rng, more - 1)
    kinds = len({row[0].split(".lora_")[0].replace("h.", "layers.")
                 .split("layers.")[1].split(".", 1)[1] for row in rows})
    if routed():
        assert any(".experts." in x for x in adapter) == any(
            ".experts." in row[0] for row in rows)
    else:
        layers = [in_model(x).split(".", 1)[1] for x in adapter]
        assert len(rows) == sum(2 * min(2, layers.count(x))
                                for x in set(layers))
    assert right, said
    print("%s: %d modules, %d tensors are right, %d unclear"
          % (name, kinds, n_right, len(rows) - n_right))
    return None


def nll(seqs, *options):
    """By the logits of hf-infer in f32."""
    loss, n = 0, 0
    for ids, labels in seqs:
        run("hf-infer", *options, "--ids", ",".join(map(str, ids)), "--logits",
            "l.npy", "-f")
        logits = np.load("l.npy").astype(float)
        for t in range(1, len(ids)):
            if labels[t] != -100:
                row = logits[t - 1]
                top = row.max()
                loss += np.log(np.exp(row - top).sum()) + top - row[labels[t]]
                n += 1
    return loss / n


def steps(name, rng):
    adapter, seqs = make(name, rng)
    words = sorted({x.split(".")[-1] for x in adapter}) # not stacked experts'
    run(*TUNE, "-o", "run", "-n", "20", "--lr", "1e-2", "--compute", "f32",
        "--eval", "d.jsonl", "--targets", ",".join(words))
    with open("run/log.tsv") as f:
        rows = [x.rstrip("\n").split("\t") for x in f]
    at = rows[0].index("eval_loss")
    first, last = float(rows[1][at]), float(rows[-1][at])
    assert last < 0.7 * first, (first, last)
    base, got = nll(seqs, "m"), nll(seqs, "m", "--lora", "run")
    for x, y in (base, first), (got, last): # f32 has 1 - p of a small loss
        assert abs(x - y) < 1e-5 * y + 2e-7, (x, y)
    quiet(run("hf-infer", "m", "--lora", "run", "--ids", "1", "--logits",
              "l.npy", "-f")[1])
    with open("run/adapter_config.json") as f:
        c = json.load(f)
    with open("adapter/adapter_config.json") as f:
        want = json.load(f)
    # a run's names have the root that the model's file has, or are of stacks
    run_names, names = (set(map(in_model, mkst.load(
        d + "/adapter_model.safetensors"))) for d in ("run", "adapter"))
    if stacked():
        single = re.compile(r"experts\.\d+\.(\w+_proj)")
        names = {single.sub("experts" if "down_proj" in x else
                            "experts.base_layer", x) for x in names}
        want["target_modules"] = sorted({
            x.split(".")[-1] for x in adapter if not single.search(x)})
    for key in ("target_modules", "fan_in_fan_out"):
        found = sorted(c[key]) if key == "target_modules" else c[key]
        assert found == want[key], (key, found)
    assert run_names == names, run_names ^ names
    fixed = "quantization_config" in config()
    run("moe-sft", "merge", "-b", "m", "-l", "run", "-o", "merged",
        status=65 if fixed else 0) # packed
    merged = last if fixed else nll(seqs, "merged")
    assert abs(merged - last) < 2e-2 * max(1, last), (merged, last)
    print("%s: loss %.4f to %.4f, merged %.4f" % (name, first, last, merged))


def refused(name, rng):
    """What hf-infer does not run, tune refuses in the same words."""
    make(name, rng)
    done = subprocess.run(("hf-infer", "m", "--ids", "1", "--logits", "l.npy"),
                          stderr=subprocess.PIPE)
    if done.returncode == 0:
        return False
    said = run(*TUNE, "-o", "run", "-n", "1", status=65)[1]
    assert not os.path.exists("run")
    assert said == done.stderr.decode().replace("hf-infer: ", "moe-sft: ")
    print("%s: refused" % name)
    return True


def main():
    what = dict(grads=grads, check=check, steps=steps,
                reference=reference)[sys.argv[1]]
    for name in sys.argv[2:]:
        for do in (what,) if what == reference else (refused, what):
            with tempfile.TemporaryDirectory() as tmp:
                os.chdir(tmp)
                stop = do(name, np.random.default_rng(3))
                os.chdir("/")
            if stop:
                break


if __name__ == "__main__":
    main()
