# SPDX-License-Identifier: ISC
# sae-look's RUNs, which test/ref/look_ref.py makes, and what it prints of them.
load helpers

ref() {
    py "$ROOT/test/ref/look_ref.py" "$@"
}

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    ref sae 24 8 4 1 sae
    ref rows 60 8 2 x.npy
    ref ids 6 10 3 ids.npy
    ref scan sae x.npy run ids=ids.npy skip_ids=3,5 top=4 sample=6 context=2,3 pairs=2,7
    ref scan sae x.npy plain tokens=10 top=3 sample=0 context=all latents=2,7,9,20
}

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    cp -r "$BATS_FILE_TMPDIR"/* .
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
bad(s + f"rows_active[{i}] is -1", "rows_active", i, -1)
bad(s + f"rows_active[{i}] is 61", "rows_active", i, 61)
bad(s + f"hist[{i}] has ", "rows_active", i, tensors["rows_active"][i] + 1)
bad(s + f"hist[{i}] has ", "hist", (i, 1), 1)
bad(s + f"hist[{i}, 3] is -1", "hist", (i, 3), -1)
bad(s + f"hist[{i}, 3] is {2 ** 62}", "hist", (i, 3), 2 ** 62)
bad(s + f"seqs_active[{i}] is 7", "seqs_active", i, 7)
bad(s + f"seqs_active[{i}] is 0", "seqs_active", i, 0)
bad(s + f"sum_limbs[{i}, 10] is -5", "sum_limbs", (i, 10), -5)
for v in np.nan, np.inf, -1, 0:
    bad(s + f"sum[{i}] is {v}", "sum", i, v)
    bad(s + f"max[{i}] is {v}", "max", i, v)
bad(s + f"max[{dead}] is 1", "max", dead, 1)
for name in "top", "sample":
    for row in -2, 60, 2 ** 40:
        bad(s + f"{name}_row[{i}, 0] is {row} (expected a row of the input", name + "_row", (i, 0), row)
    for v in np.nan, -1, tensors["max"][i] * 2:
        bad(s + f"{name}_value[{i}, 1] is ", name + "_value", (i, 1), v)
    bad(s + f"{name}_row[{dead}, 2] is 5", name + "_row", (dead, 2), 5)
bad(s + "pairs[1, 4] is 61", "pairs", (1, 4), 61)
bad(s + "pairs[0, 2] is 0", "pairs", (0, 2), 0)
for key, value in dict(format=2, latents=0, T=0, rows=61, left_out=1, sequences=61, top=5000, context=[1], per="x", seed=-1,
                       sae=None, input=[[0, 60], [50, 70]], max_norm="1", skip_ids=[-1], hook=1, d="8", sample=-1).items():
    bad("json: " + key, **{key: value})
bad("json: input[0][1] is 65 (expected a multiple of T)", input=[[0, 65]])
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

@test "sae-look: the examples of its page work as typed" {
    examples sae-look.1 >script
    bash -e script >got
    [ "$(grep -c ^latent got)" = 3 ]
}
