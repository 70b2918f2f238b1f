# SPDX-License-Identifier: ISC
# python/tensorutils.py: against numpy and torch, installed, and its page's
# examples.
# It takes half a minute.
load helpers

# The library that the module calls.
library() {
    local so
    not_sanitized "there is only the archive"
    so=$(echo "$BUILD"/libtensorutils.so.*)
    [ -e "$so" ] || skip "no library is built here"
    export TENSORUTILS_LIB=$so
}

cases() {
    library
    PYTHONPATH=$ROOT/python py "$ROOT/test/ref/python_cases.py" "$1"
}

torch() {
    "$PYTHON" -c 'import torch' 2>/dev/null || skip "no torch"
}

@test "tensorutils.py: dumps by image, view and row" {
    cases dumps
}

@test "tensorutils.py: Acts.ids are a dump's ids.npy, checked, or None" {
    library
    PYTHONPATH=$ROOT/python py - <<'END'
import os, pickle, numpy as np, tensorutils as tu
from saev_dump import dump
dump("d", layers=(3,), p=5, cls=False, n=10, d=2, data={"of": {"windows": "padded"}})
assert tu.Acts("d").ids is None
ids = np.where(np.arange(5) < np.arange(10)[:, None], np.arange(50).reshape(10, 5), -1)
np.save("d/ids.npy", ids.astype("<i4"))
acts = tu.Acts("d")
assert acts.ids.dtype == "<i4" and acts.ids.shape == (10, 5) and (acts.ids == ids).all()
assert (pickle.loads(pickle.dumps(acts)).ids == ids).all()
ids[4, 0] = -2
for bad, what in ((ids, "ids.npy: image 4, token 0: -2 (expected an id, or -1 where padded)"),
                  (ids[:9], "ids.npy: is [9, 5] (expected [10, 5], images and tokens)")):
    os.remove("d/ids.npy")
    np.save("d/ids.npy", bad.astype("<i4"))
    try:
        tu.Acts("d").ids
    except ValueError as e:
        assert str(e) == "d/" + what, e
    else:
        raise AssertionError(what)
END
}

@test "tensorutils.py: Writer gives a whole dump or none" {
    cases writer
}

@test "tensorutils.py: safetensors, and BF16, which numpy does not have" {
    cases tensors
}

@test "tensorutils.py: tables and autoencoders by the formula" {
    cases layers
}

@test "tensorutils.py: threads, children after fork and pickles have the same numbers" {
    cases shared
}

@test "tensorutils.py: SAE and Table compute what the tools do, and refuse what they refuse" {
    cases forms
    # what only a model's rows have is refused by the key's name
    PYTHONPATH=$ROOT/python py - <<'END'
import numpy as np, lut_ref, tensorutils as tu
lut_ref.write_sae("norm", "saelens", lut_ref.tiny_sae(np.random.default_rng(1), 24, 60), 4,
                  cfg=dict(normalize_activations="layer_norm"))
try:
    tu.SAE("norm")
except Exception as error:
    assert "normalize_activations" in str(error), error
else:
    raise AssertionError("normalize_activations is ignored")
END
}

@test "tensorutils.py: Look has numpy's counts and examples, and refuses what sae-look refuses" {
    library
    PYTHONPATH=$ROOT/python py "$ROOT/test/ref/look_python.py"
}

@test "tensorutils.py: a table is lut-apply's, an autoencoder sae-train eval's" {
    library
    lut-precompute -q -m "$ROOT/demo/qwen3-tiny" -s "$ROOT/demo/sae" -o lut
    hf-infer "$ROOT/demo/qwen3-tiny" -q --acts in:up_proj:1 --ctx 64 --acts-meta meta.json \
        --file "$ROOT/demo/held-out.txt" -o x.f32
    lut-apply lut layers.1.mlp.up_proj --x-dtype f32 --raw --xhat xhat.npy -i x.f32 -o y.f32 -q
    PYTHONPATH=$ROOT/python py - "$ROOT/demo/sae/layers.1.mlp.up_proj" <<'END'
import sys, numpy as np, tensorutils as tu
table, sae = tu.Table("lut", "model.layers.1.mlp.up_proj"), tu.SAE(sys.argv[1])
x = np.fromfile("x.f32", "<f4").reshape(-1, sae.d)
y = np.fromfile("y.f32", "<f4").reshape(len(x), -1)
assert (table(x) == y).all() and (table.reconstruct(x) == np.load("xhat.npy")).all()
# the table's numbers are BF16
assert np.median(abs(sae.decode(sae.encode(x)) - np.load("xhat.npy"))) < 1e-2
END
    # a table says what it is, too
    sed -i 's/"input_centering": false/"input_centering": true/' lut/metadata.json
    run -65 lut-apply lut layers.1.mlp.up_proj --x-dtype f32 --raw -i x.f32 -o z.f32
    said=$output
    PYTHONPATH=$ROOT/python run -1 "$PYTHON" -c 'import tensorutils as tu; tu.Table("lut", "layers.1.mlp.up_proj")'
    [ "${lines[-1]}" = "ValueError: ${said#lut-apply: }" ]
}

# bats test_tags=long
@test "tensorutils.py: tables of weights that are [in, out] or fused, and their SAEs, are numpy's" {
    library
    for m in gpt2:prefix gpt_neox phi3; do
        py "$ROOT/test/ref/family_ref.py" make $m m
        PYTHONPATH=$ROOT/python py - $m <<'END'
import subprocess, sys, numpy as np, lut_family, lut_ref as ref, tensorutils as tu
rng = np.random.default_rng(3)
layers = lut_family.layers_of("m", sys.argv[1].partition(":")[0])
for name, (w, bias) in sorted(layers.items())[:4]:
    short = lut_family.short(name)
    sae = ref.tiny_sae(rng, 40, w.shape[1])
    ref.write_sae("sae/" + short, "sparsify", sae, 40)
    subprocess.run(["lut-precompute", "-q", "-m", "m", "-s", "sae", "--layers", short, "-o", "lut", "--dtype", "f32"], check=True)
    x = rng.normal(size=(7, w.shape[1])).astype("f4")
    z = np.maximum((x - sae["decoder_bias"]) @ sae["encoder_weight"].T + sae["encoder_bias"], 0)
    xhat = z @ sae["decoder_weight"] + sae["decoder_bias"]
    table, held = tu.Table("lut", short), tu.SAE("sae/" + short)
    assert (table.d_in, table.d_out) == w.shape[::-1] and table.entry["output_dim"] == len(w)
    assert abs(held.decode(held.encode(x)) - xhat).max() < 1e-4 and abs(table.reconstruct(x) - xhat).max() < 1e-4
    assert abs(table(x) - xhat @ w.T - (0 if bias is None else bias)).max() < 1e-4, name
END
        rm -r m sae lut
    done
}

# bats test_tags=long
@test "tensorutils.py: what torch modules give, and a DataLoader" {
    torch
    cases torch
}

@test "tensorutils.py: MoE has the outputs and gradients of torch's autograd, and refuses the rest" {
    torch
    cases moe
}

# bats test_tags=long
@test "tensorutils-python(7): the experts' example runs as typed" {
    torch
    library
    sed -n '/^lora = /,/^\.Ed/{/^\.Ed/!p}' "$ROOT/man/tensorutils-python.7" >example
    { cat <<'END' && cat example; } >script.py
import torch, tensorutils as tu
gate, up, down = (torch.randn(4, 16, 16).bfloat16() / 4 for _ in range(3))
shapes = [(4, 8, 16), (4, 16, 8)] * 3
router = torch.nn.Linear(16, 4)
x, target = torch.randn(64, 16).bfloat16(), torch.randn(64, 16)
END
    PYTHONPATH=$ROOT/python run -0 "$PYTHON" script.py
    [ "${#lines[@]}" -eq 20 ]
    awk '{ loss[NR] = $1 } END { exit !(loss[20] < loss[1]) }' <<<"$output"
    TENSORUTILS_LIB=$PWD/none.so PYTHONPATH=$ROOT/python run -1 "$PYTHON" script.py
    [[ ${lines[-1]} == "OSError: $PWD/none.so: "*"TENSORUTILS_LIB names it elsewhere)" ]]
}

@test "tensorutils-python(7): the examples run as typed" {
    library
    ln -s "$ROOT/demo" .
    mkdir bin
    ln -s "$(command -v "$PYTHON")" bin/python3
    examples tensorutils-python.7 >script
    PYTHONPATH=$ROOT/python PATH=$PWD/bin:$PATH run -0 --separate-stderr bash -eo pipefail script
    [[ ${lines[-3]} =~ ^"fvu 0."[0-9]+$ && ${lines[-2]} =~ ^"table 0.0"[0-9]+$ ]]
    [[ ${lines[-1]} =~ ^"latents "[1-9][0-9]*" tokens "[1-9][0-9]+$ ]]
}

# bats test_tags=long
@test "tensorutils-python(7): the recorder's example runs as typed" {
    torch
    library
    sed -n '/^meta = {/,/^\.Ed/{/^\.Ed/!p}' "$ROOT/man/tensorutils-python.7" >example
    { cat <<'END' && cat example; } >script.py
import torch, tensorutils as tu
class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(8))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
model = torch.nn.Sequential()
model.encoder = Encoder()
model.eval()
batches = [torch.randn(3, 5, 8) for _ in range(2)]
END
    PYTHONPATH=$ROOT/python run -0 "$PYTHON" script.py
    saev-read verify -q "${lines[-1]}"
}

# bats test_tags=long
@test "tensorutils.py: pip installs it without a network, and make wheel with the library inside" {
    library
    "$PYTHON" -W ignore -c 'import ensurepip, venv' 2>/dev/null || skip "no pip or venv"
    version=$(hf-infer --version | sed 's/.* //')
    cp -r "$ROOT/python" .
    run -0 make --no-print-directory -s -C "$ROOT" SAN= wheel
    [[ $output == build/tensorutils-"$version"-py3-none-linux_*.whl ]]
    for from in ./python "$ROOT/$output"; do
        rm -rf venv
        "$PYTHON" -m venv --system-site-packages venv
        venv/bin/python -m pip install -q --no-index "$from"
        run -0 env -u TENSORUTILS_LIB -C / "$PWD/venv/bin/python" -c 'import sys, tensorutils as tu
print(tu.__version__, *(len(tu.open_safetensors(sys.argv[1])) > 9 and [line.split()[-1]
    for line in open("/proc/self/maps") if "libtensorutils" in line][:1]))' "$DEMO"
        [[ $output == "$version $PWD/venv/lib/"*"/site-packages/libtensorutils.so.0" ]]
        venv/bin/python -m pip uninstall -q -y tensorutils
        [ -z "$(find venv -name '*tensorutils*')" ]
    done
}
