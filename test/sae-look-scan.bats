# SPDX-License-Identifier: ISC
# sae-look scan and merge: look_ref.py, numpy alone, says what a RUN has.
load helpers
load look

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    ref sae 64 16 5 1 sae
    ref rows 96 16 2 rows.npy
    ref ids 12 8 3 ids.npy
}

# scan RUN [OPTION...]
scan() {
    sae-look scan -s sae -o "$@"
}

# refused STATUS MESSAGE COMMAND...: that line alone, and no output
refused() {
    local status=$1 message=$2
    shift 2
    run "-$status" --separate-stderr "$@"
    [ -z "$output" ]
    if [ "$status" = 2 ] && [[ $stderr == *$'\n'* ]]; then
        message+=$'\n'"Try 'sae-look --help'"
    fi
    if [ "$stderr" != "sae-look: $message" ]; then
        printf '%s\n' "$stderr"
        return 1
    fi
    [ ! -e run ]
}

# real: an SAE and 4096 rows whose sums are rounded.
real() {
    py - <<'END'
import numpy as np, sae_ref
sae_ref.write_sae("real", sae_ref.make_init(512, 64, 1), 8)
np.save("x.npy", sae_ref.make_rows(4096, 64, 2))
END
}

@test "sae-look scan: any options, rows and parts: what numpy finds, and merge has one scan's bytes" {
    isas_here
    py - <<'END'
import os, shutil, subprocess
import numpy as np, look_ref as ref
isas = os.environ["ISAS"].split()
rng = np.random.default_rng(7)
for it in range(12): # each option in each of its forms
    for name in "sae", "run", "part0", "part1", "part2", "merged":
        shutil.rmtree(name, ignore_errors=True)
    n, d, k, s = (int(rng.integers(*r)) for r in ((6, 80), (3, 20), (1, 6), (3, 40)))
    t = int(rng.choice([1, 2, 5, 8, 30]))
    ref.sae(n, d, k, it, "sae")
    x = ref.rows(s * t, d, it)
    o, words = {}, []
    def add(name, value, text=None):
        o[name] = value
        words.extend(["--" + name.replace("_", "-"), str(value if text is None else text)])
    def some(n, high):
        return sorted(set(rng.integers(0, high, n).tolist()))
    if it % 2:
        o["ids"] = ref.ids(s, t, it).astype(["<i4", "<i8"][it // 2 % 2])
        np.save("ids.npy", o["ids"])
        words += ["--acts-ids", "ids.npy"]
        add("skip_ids", v := some(10, 100), ",".join(map(str, v)))
    else:
        add("tokens", t)
    if it % 3 == 0:
        add("skip_positions", int(rng.integers(0, t + 1)))
        add("max_norm", float(rng.choice([10, 60])))
    if it % 4 == 0:
        x[rng.integers(0, len(x), 3), 0] = np.nan, np.inf, -np.inf
        o["skip_bad"] = 1
        words.append("--skip-bad")
    if it % 3:
        add("top", int(rng.integers(0, 30)))
        add("sample", int(rng.integers(0, 50)))
        add("seed", int(rng.integers(0, 2 ** 62)))
    if it % 5:
        add("context", c := (int(rng.integers(0, 12)), int(rng.integers(0, 12))) if it % 5 > 1 else "all",
            "all" if c == "all" else "%d,%d" % c)
    if it % 5 == 2:
        add("per", "row")
    for name in ("pairs", "latents") if it % 7 == 3 else ("pairs",) if it % 7 == 5 else ():
        add(name, v := some(5, n), ",".join(map(str, v)))
    def scan(out, x, *more):
        np.save("rows.npy", x)
        subprocess.run(["sae-look", "scan", "-q", "-s", "sae", "-o", out, "-j", str(it % 3 + 1), *words, *more, "rows.npy"],
                       check=True, env=dict(os.environ, TU_ISA=isas[it % len(isas)]))
    scan("run", x)
    ref.compare("run", *ref.scan("sae", x, **o))
    cuts = [0, *sorted(rng.choice(np.arange(1, s), 2, replace=False).tolist()), s]
    for i in range(3):
        part = x[cuts[i] * t:cuts[i + 1] * t]
        scan("part%d" % i, part, "--input-at", str(cuts[i] * t))
        if i == 1:
            ref.compare("part1", *ref.scan("sae", part, **dict(o, input_at=cuts[1] * t)))
    subprocess.run(["sae-look", "merge", "-o", "merged", "part2", "part0", "part1"], check=True)
    subprocess.run(["diff", "-r", "merged", "run"], check=True)
END
}

@test "sae-look scan: rows of a model with RMSNorm keep their mean, whatever the SAE says of centred weights" {
    hf-infer "$DEMO" --acts resid:0 --ctx 16 -q --file "$ROOT/demo/held-out.txt" --acts-meta m.json -o a.f32
    dump=$(saev-write -q -m m.json -o . a.f32)
    py - <<'END'
import json, shutil, numpy as np, splice_ref
x = np.fromfile("a.f32", "<f4").reshape(-1, json.load(open("m.json"))["d_vit"])
splice_ref.make("plain", "relu", "blocks.1.hook_resid_pre", x, 1)
shutil.copytree("plain", "said")
c = json.load(open("said/cfg.json"))
c["model_from_pretrained_kwargs"] = {"center_writing_weights": True}
json.dump(c, open("said/cfg.json", "w"))
END
    for s in plain said; do sae-look scan -s $s -o run-$s "$dump"; done
    py -c 'import numpy as np, look_ref
a, b = (look_ref.read("run-" + s)[1] for s in ("plain", "said"))
assert all(np.array_equal(a[k], b[k]) for k in a)'
}

@test "sae-look scan: f of every size: bins, exact sums and ties by hand" {
    py - <<'END'
import numpy as np, look_ref as ref
ref.identity(3, "one")
x = np.zeros((40, 3), "<f4")
x[:8, 0] = 1, 1.25, 1.5, 2, 0, -3, 2.0 ** -149, 3e38  # latent 0: one of each
x[8:, 1] = np.exp2(np.linspace(-148, 127, 32))
x[3::4, 2] = 5                                         # latent 2: the same value in each sequence
np.save("x.npy", x)
END
    sae-look scan -s one --tokens 4 --top 3 --sample 0 -o run x.npy
    ref same run one x.npy tokens=4 top=3 sample=0
    py - <<'END'
import look_ref
meta, t = look_ref.read("run")
bins = {int(b): int(n) for b, n in enumerate(t["hist"][0]) if n}
assert bins == {0: 1, 32: 2, 33: 1, 34: 1, 63: 1}, bins
assert t["rows_active"].tolist() == [6, 32, 10] and t["seqs_active"].tolist() == [2, 8, 10]
assert t["sum_limbs"][0, 0] == 1  # the smallest number there is
assert t["sum"][2] == 50 and t["max"][1:].tolist() == [2.0 ** 127, 5]
assert t["top_row"][2].tolist() == [3, 7, 11] and t["top_row"][0].tolist() == [7, 3, -1]
assert t["top_acts"][0, 1].tolist() == [1, 1.25, 1.5, 2, -1, -1, -1]
END
}

@test "sae-look scan: the same bits for any -j and instruction set, and eval's l0 and dead latents" {
    isas_here
    real
    for isa in $ISAS; do
        TU_ISA=$isa sae-look scan -f -s real --tokens 64 --pairs 0-9 -j 3 -o run x.npy
        [ -e want ] || mv run want
        [ ! -e run ] || diff -r want run
    done
    sae-look scan -f -s real --tokens 64 --pairs 0-9 -j 1 -o run - <x.npy
    diff -r want run
    sae-train eval -s real x.npy >eval.tsv
    py - <<'END'
import look_ref
meta, t = look_ref.read("run")
e = dict(line.split() for line in open("eval.tsv"))
assert meta["rows"] == int(e["rows"]) == 4096
assert abs(t["rows_active"].sum() / 4096 - float(e["l0"])) < 1e-9
assert (t["rows_active"] == 0).sum() == int(e["dead"])
assert (t["pairs"][:, :10].diagonal() == t["rows_active"][:10]).all()
END
}

# bats test_tags=long
@test "sae-look scan: SAEs of every form are active where sae-train eval finds it" {
    py "$ROOT/test/ref/sae_files.py" write forms 64 16 4
    cp -r forms/saelens-standard forms/layer_norm
    sed -i 's/"normalize_activations": "none"/"normalize_activations": "layer_norm"/' forms/layer_norm/cfg.json
    grep -q layer_norm forms/layer_norm/cfg.json
    py -c 'import numpy as np; np.save("x.npy", np.random.default_rng(3).standard_normal((200, 16)).astype("<f4"))'
    n=0
    for sae in forms/*/; do
        sae-look scan -qf -s "$sae" -o run --top 1 --sample 0 x.npy
        sae-train eval -q -s "$sae" x.npy >eval.tsv
        py -c '
import look_ref
t = look_ref.read("run")[1]
e = dict(line.split() for line in open("eval.tsv"))
assert abs(t["rows_active"].sum() / 200 - float(e["l0"])) < 1e-9 and float(e["l0"]) > 0
assert (t["rows_active"] == 0).sum() == int(e["dead"])'
        n=$((n + 1))
    done
    [ $n -gt 15 ]
}

# text: dump d of 12 documents of up to 8 tokens, padded, with ids and what is
# special; x.npy has its rows.
text() {
    py - <<'END'
import json, numpy as np, look_ref
from saev_dump import dump
a = dump("d", layers=(1,), p=8, cls=False, n=12, imgs_a_shard=5, d=16, data={"of": {"windows": "padded"}})
ids = np.load("ids.npy")
x = look_ref.rows(96, 16, 5).reshape(a.shape)
x[..., 0] = 1  # data are not zeros
x[(ids < 0)[:, None]] = 0
for i in range(0, 12, 5):
    x[i:i + 5].tofile("d/acts%06d.bin" % (i // 5))
np.save("x.npy", x.reshape(-1, 16))
np.save("d/ids.npy", ids)
special = sorted(set(ids[ids >= 0].tolist()))[:9]
json.dump({"special": special}, open("d/ids.npy.json", "w"))
open("special", "w").write(",".join(map(str, special)))
END
}

@test "sae-look scan: a dump has T, ids, padding and special tokens, and parts on pipes the same bytes" {
    text
    scan run -q --skip-ids special d
    sed -i 's/"hook": "[^"]*"/"hook": null/' run/look.json
    ref same run sae x.npy ids=ids.npy skip_ids="$(<special)"
    scan whole --skip-positions 1 d
    saev-read --padding --imgs 0-4 d | scan part0 --acts-ids ids.npy --input-at 0 --skip-positions 1
    saev-read --padding --imgs 5-11 d | scan part1 --acts-ids ids.npy --input-at 40 --skip-positions 1
    sae-look merge -o merged part0 part1
    diff -r merged whole
    # without ids the dump says what is padding
    rm d/ids.npy d/ids.npy.json
    scan plain d
    scan packed --acts-ids ids.npy --context all x.npy
    py - <<'END'
import look_ref
(a, t), (b, u) = look_ref.read("plain"), look_ref.read("packed")
assert a["T"] == b["T"] == 8 and a["left_out"] == b["left_out"] > 0 and a["context"] == [7, 7]
assert not any(name.endswith("_ids") for name in t)
for name in t:
    assert t[name].tobytes() == u[name].tobytes(), name
END
}

@test "sae-look scan --codes: numpy reads what delphi's loader does" {
    sed -i 's/}$/, "hook": "layers.1"}/' sae/cfg.json
    scan two --codes codes --acts-ids ids.npy --skip-ids 3,5 --splits 4 --model-id some/model rows.npy
    ref codes codes/layers.1 sae rows.npy splits=4 ids=ids.npy skip_ids=3,5
    grep -q '"model_name": "some/model"' codes/layers.1/config.json
    # splits without an activation, one that is too small, and one that F16 does not hold
    py - <<'END'
import numpy as np, look_ref
look_ref.identity(4, "one")
x = np.zeros((4, 4), "<f4")
x[:, 0] = 1e-5, 2e-5, 65503, 7e4
x[3, 3] = 1
np.save("x.npy", x)
np.save("four.npy", np.array([[5, 6], [7, 8]], "<i8"))
END
    sed -i 's/}$/, "hook": "h.0_a-B"}/' one/cfg.json
    run -0 --separate-stderr sae-look scan -s one -o one.run --codes codes --splits 4 --acts-ids four.npy x.npy
    [ "$stderr" = "sae-look: --codes: 1 activation over 65504 became 65504, the largest F16" ]
    ref codes codes/h.0_a-B one x.npy splits=4 ids=four.npy
    for hook in ../up .hidden a/b 'a b'; do
        sed -i "s#\"hook\": .*#\"hook\": \"$hook\"}#" one/cfg.json
        refused 65 "one: its hook \"$hook\" is no name for a directory of --codes (letters, digits, . _ - and no leading dot)" \
            sae-look scan -s one -o run --codes new --acts-ids four.npy x.npy
        [ ! -e new ]
    done
    # the RUN and the codes are apart, and one that fails leaves neither
    sed -i 's/"hook": .*/"hook": "layers.1"}/' one/cfg.json
    for pair in 'new/layers.1 new' 'new new' './new new/a'; do
        run -2 --separate-stderr sae-look scan -s one -o "${pair% *}" --codes "${pair#* }" --acts-ids four.npy x.npy
        [ "${stderr_lines[0]}" = "sae-look: ${pair#* }/layers.1 of --codes and ${pair% *} of -o are the same directory, or one is in the other" ]
        [ -z "$(find . -path '*new*' -type f)" ]
        rm -rf new
    done
    small_disk 16k
    run -74 sae-look scan -s one -o disk/run --codes new --acts-ids four.npy x.npy
    [ ! -e new ] && [ -z "$(ls -A disk)" ]
    sae-look scan -s one -o run --codes new --top 0 --sample 0 --acts-ids four.npy x.npy
    [ "$(ls -A new)" = layers.1 ]
    rm -r run
    refused 2 "--splits is for --codes" scan run --splits 3 rows.npy
}

@test "sae-look scan: what does not fit is named, and nothing is written" {
    py - <<'END'
import numpy as np
x = np.load("rows.npy")
np.save("short.npy", x[:90])
np.save("flat.npy", np.arange(96))
np.save("float.npy", np.zeros((12, 8)))
np.save("low.npy", np.full((12, 8), -2))
x[70, 3] = np.nan
np.save("bad.npy", x)
np.save("narrow.npy", x[:, :9])
big = np.zeros((8, 16), "f4")
big[5] = 3e38
np.save("big.npy", big)
END
    refused 65 "ids.npy: has ids of 96 rows, but the input has 90" scan run --acts-ids ids.npy short.npy
    refused 65 "the input ends with row 89, within a sequence of 8 tokens" scan run --tokens 8 short.npy
    refused 65 "ids.npy: has ids of 96 rows, but the input ends with row 183" \
        scan run --acts-ids ids.npy --input-at 88 rows.npy
    refused 2 "--input-at 90 is within a sequence of 8 tokens" scan run --acts-ids ids.npy --input-at 90 rows.npy
    refused 2 "--input-at: \"9223372036854775800\" is not a whole number from 0 to 4611686018427387903" \
        scan run --input-at 9223372036854775800 rows.npy
    refused 65 "ids.npy: has sequences of 8 tokens (expected 4)" scan run --acts-ids ids.npy --tokens 4 rows.npy
    refused 65 "flat.npy: has 1 dim (expected 2, sequences x tokens)" scan run --acts-ids flat.npy rows.npy
    refused 65 "float.npy: dtype is F64 (expected I32)" scan run --acts-ids float.npy rows.npy
    refused 65 "low.npy: sequence 0, token 0: -2 (expected an id, or -1 where padded)" \
        scan run --acts-ids low.npy rows.npy
    refused 66 "none.npy: No such file or directory" scan run --acts-ids none.npy rows.npy
    refused 65 "bad.npy: row 70 has NaN or Inf (--skip-bad leaves such out)" scan run bad.npy
    refused 65 "sae: row 5 has an activation that is NaN or infinite (--skip-bad leaves such out)" scan run big.npy
    refused 65 "sae/sae.safetensors: is of rows of 16 numbers (expected 9, as the input's)" scan run narrow.npy
    refused 2 "--skip-ids needs --acts-ids, or one dump with ids.npy" scan run --skip-ids 3 rows.npy
    refused 65 "ids.npy.json: does not list special tokens (--skip-ids with their ids leaves them out)" \
        scan run --acts-ids ids.npy --skip-ids special rows.npy
    refused 2 "--context: \"3\" is not A,B or all" scan run --context 3 rows.npy
    refused 2 "--context: \"1048577\" is not a whole number from 0 to 1048576" scan run --context 3,1048577 rows.npy
    refused 2 "--top 4000 and --sample 97 are more than 4096 examples" scan run --top 4000 --sample 97 rows.npy
    printf '{"ids_sha256": "%064d"}' 0 >ids.npy.json
    sum=$(py -c 'import hashlib, numpy as np; print(hashlib.sha256(np.load("ids.npy").tobytes()).hexdigest())')
    refused 65 "ids.npy: has another SHA-256 ($sum) than its .json says ($(printf %064d 0))" scan run --acts-ids ids.npy rows.npy
    mkdir is
    refused 73 "is: exists already (--force replaces it)" scan is rows.npy
    run -2 sae-look scan -s sae -o run --latents 3,64 rows.npy
    [[ $output == "sae-look: --latents: "*64* ]]
}

@test "sae-look scan --mem: both numbers, before a row is read, and no more than the page says" {
    o=(--top 7 --sample 9 --context 4,5 --pairs 1,2 --acts-ids ids.npy)
    # memory MORE...: what that needs
    memory() {
        run -65 --separate-stderr scan run --mem 1000 "${o[@]}" "$@" rows.npy
        [[ $stderr =~ ^"sae-look: run: needs "([0-9]+)" bytes of memory, but --mem is 1000 (--latents, --top, --sample or --context make it less)"$ ]]
        [ ! -e run ]
        echo "${BASH_REMATCH[1]}"
    }
    need=$(memory)
    # 100 examples more of each of 64 latents, of 10 tokens; to lines of 64 bytes
    more=$(($(memory --top 107) - need))
    [ $more -le $((6400 * (8 * 10 + 56) + 1024)) ]
    [ $more -ge $((6400 * (8 * 10 + 40))) ]
    less=$((need - $(memory --latents 1-4)))
    [ $less -le $((60 * (16 * (8 * 10 + 56) + 700) + 2048)) ]
    [ $less -ge $((60 * (16 * (8 * 10 + 40) + 600))) ]
    # of 101 places only those of 8 tokens, and the two sides
    same=$(memory --context 50,50)
    [ "$same" = "$need" ]
    scan enough --mem "$need" "${o[@]}" rows.npy
    run -65 scan run --mem $((need - 1)) "${o[@]}" rows.npy
    [ ! -e run ]
    # it is enough for more rows than are held at once, of 5 latents each
    ref rows 30000 16 2 rows.npy
    o=(--top 2 --sample 0)
    scan many --mem "$(memory)" "${o[@]}" rows.npy
    grep -q '"rows": 30000,' many/look.json
}

# bats test_tags=long
@test "sae-look scan: examples take the memory that the page says, and no more" {
    linux_only
    not_sanitized "its memory is not its own"
    real
    py - <<'END'
import sae_ref
p = sae_ref.make_init(512, 64, 1)
p["b_enc"] += 1000
sae_ref.write_sae("dense", p, 512)
END
    # more SAE: KiB for 511 latents more
    more() {
        local many one
        many=$(peak sae-look scan -q -j 1 -s "$1" --tokens 64 --context 150,149 -o "many-$1" x.npy)
        one=$(peak sae-look scan -q -j 1 -s "$1" --tokens 64 --context 150,149 --latents 7 -o "one-$1" x.npy)
        echo $((many - one))
    }
    # each of 20 + 40 examples of 300 places, of which 64 + 2 differ at most
    page=$((511 * (60 * (8 * 66 + 56) + 700) / 1024))
    all=$(more dense) few=$(more real)
    echo "all are active: $all KiB, 8 of 512: $few KiB; the page: $page KiB"
    [ "$all" -gt $((page * 95 / 100)) ]
    [ "$all" -lt $((page * 105 / 100)) ]
    [ "$few" -lt $((page / 4)) ]
}

@test "sae-look merge: parts that do not fit together are named, two at a time" {
    for i in 0 1 2; do
        py -c "import numpy as np; np.save('x.npy', np.load('rows.npy')[32 * $i:32 * $i + 32])"
        scan p$i --tokens 8 --input-at $((32 * i)) x.npy
    done
    scan other --tokens 8 --input-at 96 --top 5 x.npy
    cp -r p0 again
    refused 65 "p0 and again both have rows from 0 on" sae-look merge -o run p0 p1 again
    refused 65 "no part has rows 32 to 63, between p0 and p2 (--gaps allows that)" sae-look merge -o run p2 p0
    # the path is that of the first rows
    ln -s sae link
    py -c "import numpy as np; np.save('x.npy', np.load('rows.npy')[64:])"
    sae-look scan -s link -o linked --tokens 8 --input-at 64 x.npy
    sae-look merge --gaps -o there linked p0
    sae-look merge --gaps -o back p0 linked
    diff -r there back
    grep -qF '"sae": "sae"' back/look.json
    refused 2 "merge takes RUNs" sae-look merge -o run
    refused 65 "other: its top is not that of p0" sae-look merge -o run p0 p1 p2 other
    refused 66 "none/look.json: No such file or directory" sae-look merge -o run p0 none
    sae-look merge --gaps -o gaps p2 p0
    grep -qF '"input": [[0, 32], [64, 96]]' gaps/look.json
    sae-look merge -o all gaps p1
    scan one --tokens 8 rows.npy
    diff -r all one
    sae-look merge -o same one
    diff -r same one
    # an example whose place is not its value
    py - <<'END'
import look_ref
meta, t = look_ref.read("p1")
t = {name: a.copy() for name, a in t.items()}
i = int(t["rows_active"].argmax())
t["sample_acts"][i, 0, 7] += 1
look_ref.write("bad", meta, t)
END
    run -65 sae-look merge -o run p0 bad
    [[ $output == "sae-look: bad/look.safetensors: sample_acts["*"] is "* ]]
    [ ! -e run ]
}

@test "sae-look scan: kill -9 and a full disk leave neither file of RUN" {
    linux_only
    small_disk 64k
    run -74 --separate-stderr sae-look scan -s sae --tokens 8 -o disk/run rows.npy
    [ -z "$output" ] && [[ $stderr == "sae-look: disk/"*": No space left on device" || $stderr == "sae-look: disk/"*" are free" ]]
    [ -z "$(ls -A disk)" ]
    real
    for t in 0.0 0.02 0.05 0.1 0.2 0.4; do
        rm -rf run
        sae-look scan -s real -o run x.npy &
        sleep $t
        kill -9 $! 2>/dev/null || :
        wait $! || :
        [ ! -e run ] || [ "$(ls -A run)" = "look.json"$'\n'"look.safetensors" ]
        [ ! -e run ] || sae-look list run >list.tsv
    done
    sae-look scan -f -s real -o run x.npy
    [ -z "$(find . -name '.run*')" ]
}

@test "sae-look: from a text to a latent, as typed" {
    ln -s "$ROOT/demo" demo
    rm -r sae ids.npy rows.npy
    M=demo/qwen3-tiny
    hf-infer -q $M --acts resid:1 --ctx 64 --file demo/training.txt --acts-ids ids.npy -o rows.npy
    sae-train -q -o sae -k 8 --latents 256 --batch 512 -n 40 --lr 2e-3 --warmup 5 --hook layers.1 rows.npy
    sae-look scan -s sae --acts-ids ids.npy --skip-ids 1021,1023 -o run rows.npy
    hf-infer -q $M --acts resid:1 --ctx 64 --file demo/training.txt --sae sae --acts-meta m.json -f -o other.npy
    py - <<'END'
import hashlib, json, numpy as np, look_ref
meta, t = look_ref.read("run")
ids = np.load("ids.npy")
said = json.load(open("ids.npy.json"))
assert meta["ids_sha256"] == said["ids_sha256"] == hashlib.sha256(ids.tobytes()).hexdigest()
assert meta["hook"] == "layers.1" and meta["T"] == 64 and meta["rows"] == (~np.isin(ids, (1021, 1023, -1))).sum()
assert meta["sae_xxh3"] == json.load(open("m.json"))["data"]["sae_xxh3"]
assert 0 < t["rows_active"].sum() <= 8 * meta["rows"]
for i, j in np.argwhere(t["top_row"] >= 0):
    row = t["top_row"][i, j]
    assert t["top_ids"][i, j, 20] == ids.flat[row] and t["top_acts"][i, j, 20] == t["top_value"][i, j]
END
    sae-look list --sort density -n 5 run >list.tsv
    [ "$(wc -l <list.tsv)" = 6 ]
}
