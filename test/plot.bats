# SPDX-License-Identifier: ISC
# --plot: pictures of characters on standard output, read back with
# test/ref/plot.py and held against the numbers that they are of.
load helpers

export LC_ALL=C.UTF-8

# Rows x.npy that layer 1's up_proj of the demo reads, and a dump of them.
make_rows() {
    hf-infer "$DEMO" -q --acts in:up_proj:1 --ctx 64 --acts-meta m.json --file "$ROOT/demo/held-out.txt" -o x.npy
    saev-write -q -m m.json -o acts x.npy >dump
}

@test "st-inspect stats --plot: numpy's histogram, of 3, 24 and 300 bins" {
    py - <<'END'
import subprocess
import mkst, numpy as np, plot
v = np.random.default_rng(1).normal(size=100000).astype("f4")
mkst.save("a.safetensors", {"v": v, "none": np.array([np.nan], "f4"), "one": np.ones(8, "f4")})
for n in 3, 24, 300:
    out = subprocess.run(["st-inspect", "stats", "--plot", "--bins", str(n), "-t", "v", "a.safetensors"],
                         check=True, capture_output=True, text=True).stdout
    assert out.startswith("v: elements\n")
    found, part = plot.columns(out)
    want = np.histogram(v, n)[0]
    w = len(found)
    assert w == (64 if n > 64 else n * (64 // n))
    for c, h in enumerate(found):
        most = want[c * n // w:max((c + 1) * n // w, c * n // w + 1)].max()
        assert abs(h - most) <= part / 2 + 1e-9 or (h == part and 0 < most < part), (n, c, h, most)
END
    run -0 st-inspect stats --plot -t none a.safetensors
    [ "${lines[0]}" = "none: elements: no numbers" ]
    run -0 st-inspect stats --plot -t one a.safetensors
    [ "$(grep -c '█' <<<"$output")" = 8 ] # 8 of 8, an axis of 4 steps, of 2 rows each
    run -2 st-inspect stats --plot --json a.safetensors
    run -2 st-inspect stats --plot --hist a.safetensors
}

@test "saev-read stats --plot: the deviations by numpy, and a bar for each outlier" {
    py - <<'END'
import subprocess
import numpy as np, plot, saev_dump
for d, decades in (3, 0.1), (40, 2), (300, 9), (5000, 0.5):
    name = "d%d" % d
    a = saev_dump.dump(name, d=d, n=50, p=0, layers=(1,), imgs_a_shard=50) * np.logspace(0, decades, d, dtype="f4")
    if d == 40:
        a[..., 3] *= 1e4
    a.tofile(name + "/acts000000.bin")
    out = subprocess.run(["saev-read", "stats", "-q", "--plot", name], check=True, capture_output=True, text=True).stdout
    std = np.sort(a.reshape(50, d).astype("f8").std(0))[::-1]
    plot.check(out, np.arange(d) + 1, std)
    assert ("log scale" in out) == (std[0] > 4 * std[-1])
    bars = [s for s in out.split("\n") if s.startswith("dim ")]
    assert len(bars) == min((std > 3 * np.median(std)).sum(), 20)
    if d == 40:
        assert bars[0] == "dim 3   %.4g %s" % (std[0], "█" * 40), bars
END
    run -2 saev-read stats --plot --json d3
}

@test "lut-apply --report --plot: the errors that --report tells for each ratio" {
    make_rows
    lut-precompute -q -m "$DEMO" -s "$ROOT/demo/sae" --layers layers.1.mlp.up_proj -o lut
    lut-apply -q lut layers.1.mlp.up_proj -m "$DEMO" --report --plot <x.npy >picture
    for r in 0 0.05 0.1 0.25 0.5 0.75 1; do
        lut-apply -q lut layers.1.mlp.up_proj -m "$DEMO" --report --json --ratio $r <x.npy
    done >reports
    py - <<'END'
import json, plot
text = open("picture").read()
want = [json.loads(s)["fvu_output"] for s in open("reports")]
at = 0, 0.05, 0.1, 0.25, 0.5, 0.75, 1
found, slack, f = plot.line(text)
for x, v in zip(at, want):
    assert any(abs(c - x) <= 1 / 127 and low - slack <= v <= high + slack for c, (low, high) in found.items()), (x, v)
for x in 0, 3, 4, 5, 6:
    assert "%g: %.3g" % (at[x], want[x]) in text.split("\n")[-2]
END
    run -2 lut-apply lut layers.1.mlp.up_proj -m "$DEMO" --plot <x.npy
    run -2 lut-apply lut layers.1.mlp.up_proj -m "$DEMO" --report --json --plot <x.npy
}

@test "sae-train --plot: the loss of log.tsv, of each autoencoder; eval --plot: the bins, on no terminal, too" {
    make_rows
    sae-train -q -o run --sae a:k=4 --sae b:k=8 --latents 256 --batch 64 -n 40 --lr 3e-3 --warmup 1 --plot x.npy >picture
    py - <<'END'
import csv, plot
texts = open("picture").read().split("run/")[1:]
assert len(texts) == 2
for name, text in zip("ab", texts):
    assert text.startswith(name + ": loss\nFVU + C aux")
    log = list(csv.DictReader(open("run/%s/log.tsv" % name), delimiter="\t"))
    loss = [float(r["loss"]) for r in log]
    plot.check(text, range(1, 41), loss)
    assert text.split("\n")[-2] == "step 1: %.4g; step 40: %.4g" % (loss[0], loss[-1])
END
    sae-train eval -q --plot -s run/a x.npy >seen
    sae-train eval -q -s run/a x.npy | cmp - <(head -n 8 seen)
    # every latent once, and the bins begin and end with one that has some
    [ "$(sed 1,9d seen | awk '{ n += $(/never/ ? 2 : 3) } END { print n }')" = 256 ]
    sed 1,10d seen | sed -n '1p;$p' | awk '{ exit !($3 > 0) }'
    grep -c '█' seen
    run -2 sae-train eval --json --plot -s run/a x.npy
    run -2 --separate-stderr sae-train -o other --plot --svg - x.npy
    [ "${stderr_lines[0]}" = "sae-train: --svg needs a file name, not -" ]
    run -2 sae-train eval --svg - -s run/a x.npy
}

@test "moe-sft tune --plot, train --plot: both losses of the log; at the end alone, and not among its lines" {
    moe-sft tune -q -m "$DEMO" -d "$ROOT/demo/facts.jsonl" --eval "$ROOT/demo/facts.jsonl" --eval-every 4 --rank 4 \
        -n 12 --lr 3e-3 -o run --svg loss.svg --plot >picture
    "$PYTHON" "$ROOT/test/ref/svg.py" loss.svg 1
    py - <<'END'
import csv, plot
text = open("picture").read()
log = list(csv.DictReader(open("run/log.tsv"), delimiter="\t"))
loss = [float(r["loss"]) for r in log if r["loss"]]
evals = [(r["step"], float(r["eval_loss"])) for r in log if r["eval_loss"]]
assert len(loss) == 12 and len(evals) == 4
assert "nats per target token (log scale)" in text
heading, rows, ticks = plot.rows_of(text)
assert "".join(rows).count("o") == 4
assert text.split("\n")[-3] == "step 1: %.4g; step 12: %.4g" % (loss[0], loss[-1])
assert text.split("\n")[-2] == "o eval_loss: %.4g; step %s: %.4g" % (evals[0][1], *evals[-1])
END
    run -2 moe-sft tune -m "$DEMO" -d "$ROOT/demo/facts.jsonl" -o other --plot --log-every 1
    [ ! -e other ]
    M=$ROOT/demo/qwen3-moe-tiny
    hf-infer "$M" -q --acts in:gate_proj:0 --ctx 64 --file "$ROOT/demo/held-out.txt" -o in.npy
    hf-infer "$M" -q --acts mlp:0 --ctx 64 --file "$ROOT/demo/held-out.txt" -o out.npy
    moe-sft init -q -b "$M" --layer 0 --rank 4 -o lora.safetensors
    run -2 moe-sft train -b "$M" --layer 0 -l lora.safetensors -i in.npy --target out.npy -o t -n 9 --length 32 --plot
    moe-sft train -q -b "$M" --layer 0 -l lora.safetensors -i in.npy --target out.npy -o t -n 9 --length 32 --lr 1e-3 \
        --log log.tsv --plot >picture
    py -c 'import csv, plot
loss = [float(r["loss"]) for r in csv.DictReader(open("log.tsv"), delimiter="\t")]
plot.check(open("picture").read(), range(1, 10), loss)'
}

@test "--plot: ASCII where the locale is not UTF-8, and a full disk is told" {
    st-inspect stats --plot "$DEMO" >unicode
    LC_ALL=C st-inspect stats --plot -j 1 "$DEMO" >ascii
    [ "$(wc -l <ascii)" = "$(wc -l <unicode)" ]
    run -1 grep -P '[^\x00-\x7f]' ascii
    LC_ALL= LC_CTYPE= LANG=de_DE.utf8 st-inspect stats --plot "$DEMO" | cmp - unicode
    LC_ALL= LC_CTYPE=POSIX LANG=de_DE.utf8 st-inspect stats --plot "$DEMO" | cmp - ascii
    run -74 sh -c 'st-inspect stats --plot "$1" >/dev/full' sh "$DEMO"
    make_rows
    run -74 sh -c 'sae-train -q -o run -k 4 --latents 64 --batch 64 -n 2 --plot x.npy >/dev/full'
    [ -e run/sae.safetensors ]
}

# no_text_upon_another N: in pictures of N bins, dims, steps and autoencoders.
no_text_upon_another() {
    local n=$1
    make_rows
    py -c 'import sys, saev_dump
saev_dump.dump("of_dims", d=int(sys.argv[1]))' "$n"
    st-inspect stats -q --bins $n -t '*norm*' -t '*embed*' --svg bins.svg "$DEMO" >table
    "$PYTHON" "$ROOT/test/ref/svg.py" bins.svg "$(($(wc -l <table) - 1))"
    saev-read stats -q --svg dims.svg of_dims >/dev/null
    sae-train -q -o run -k 2 --latents 64 --batch 64 -n $n --warmup 1 --svg steps.svg x.npy
    seq $n | sed 's/.*/--sae s&:k=2/' | xargs sae-train -q -o saes --latents 4 --batch 512 -n 1 x.npy
    printf -- '-s %s\n' saes/s* | xargs sae-train eval -q --svg saes.svg x.npy >/dev/null
    for p in dims steps saes; do
        "$PYTHON" "$ROOT/test/ref/svg.py" $p.svg 1
    done
}

@test "--svg: no text upon another, of 3 bins, dims, steps and autoencoders" {
    no_text_upon_another 3
}

# bats test_tags=long
@test "--svg: no text upon another, of 300 bins, dims, steps and autoencoders" {
    no_text_upon_another 300
}

@test "--svg, --plot: of one step, one dim, one row and one bin" {
    make_rows
    py -c 'import numpy as np, saev_dump
saev_dump.dump("one", d=1)
np.save("row.npy", np.load("x.npy").reshape(-1, 128)[:1])'
    run -0 moe-sft tune -q -m "$DEMO" -d "$ROOT/demo/facts.jsonl" -n 1 -o tuned --svg tuned.svg --plot
    [[ "${lines[0]} ${lines[-1]}" == "tuned: loss step 1: "*"; step 1: "* ]]
    run -0 sae-train -q -o run -k 2 --latents 64 --batch 64 -n 1 --warmup 1 --svg run.svg --plot x.npy
    [[ "${lines[0]} ${lines[-1]}" == "run: loss step 1: "*"; step 1: "* ]]
    run -0 saev-read stats --svg dim.svg --plot one
    [[ "${lines[-1]}" == "median "*"; 0 dims with std 0, 0 without numbers" ]]
    run -0 sae-train eval -q -s run --svg eval.svg --plot row.npy
    [ "$(grep -c . <<<"$output")" = 11 ] # 8 numbers, a heading, never, and the one bin
    run -0 st-inspect stats --bins 1 -t '*embed*' --svg bin.svg --plot "$DEMO"
    for p in tuned run dim eval bin; do
        "$PYTHON" "$ROOT/test/ref/svg.py" $p.svg 0
    done
}

@test "--plot: numbers near each other, the largest and the smallest there are" {
    py - <<'END'
import os, re, subprocess, sys
import mkst, numpy as np
most, least = 1.7e308, 5e-324
a = {"near": 1e6 + np.arange(9) / 1e3, "wide": np.array([-most, most]), "tiny": np.array([0, least])}
picture = os.environ["ROOT"] + "/test/ref/svg.py"
mkst.save("a.safetensors", a)
for name, v in a.items():
    for out in "--plot", "--svg":
        args = [out, "o.svg", "-f"] if out == "--svg" else [out]
        text = subprocess.run(["st-inspect", "stats", "-q", *args, "-t", name, "a.safetensors"],
                              check=True, capture_output=True, text=True, timeout=60).stdout
        if out == "--svg":
            subprocess.run([sys.executable, picture, "o.svg", "0"], check=True)
            found = [float(t) for t in re.findall('"x" .*>([^<]+)</text>', open("o.svg").read())]
            if name != "tiny":  # of ends, whose ticks are round: steps of one size
                steps = np.diff(found)
                step = float("%.6g" % steps[0])
                assert np.allclose(steps, step, rtol=1e-5), found
                assert v.min() <= found[0] and found[-1] <= v.max(), found
                assert np.allclose(np.round(np.array(found) / step) * step, found, rtol=1e-12), found
            continue
        else:
            found = [float(t) for t in text.split("\n")[-4].split()]
        assert len(set(found)) == len(found) > 1 or name == "tiny", (name, found)
        assert np.allclose([found[0], found[-1]], [v.min(), v.max()], rtol=1e-2 * np.ptp(v / 2) / abs(v).max(), atol=0), (name, found)
END
}
