# saev-read on dumps that numpy made: test/ref/saev_dump.py.
load helpers

# py: python3 with test/ref in its path.
py() {
    PYTHONPATH=$ROOT/test/ref "$PYTHON" "$@"
}

@test "saev-read: every view, layer and form of dump is numpy's indexing" {
    py - <<'END'
import itertools, io, subprocess, numpy as np
from saev_dump import *
n = 0
for cls, form, imgs in itertools.product((True, False), ("short", "padded"), (0, 1, 6, 7)):
    name = f"d{n}"
    kw = dict(cls=cls, n=imgs, p=4 if cls else 3)
    a, m = dump(name, form, seed=n, **kw), meta(**kw)
    n += 1
    for view, layer in itertools.product(("cls", "image", "all"), ("13", "-2", "all")):
        if view == "cls" and not cls:
            continue
        run = ["saev-read", "--view", view, "--layer", layer, name]
        got = np.load(io.BytesIO(subprocess.run(run, check=True, capture_output=True).stdout))
        want = rows(a, m, view, layer)
        assert got.dtype == want.dtype and got.shape == want.shape, (run, got.shape)
        assert (got == want).all(), run
        raw = subprocess.run(run + ["--raw"], check=True, capture_output=True).stdout
        assert raw == want.tobytes(), run
END
}

@test "saev-read: --dtype rounds to nearest, ties to even" {
    py - <<'END'
import subprocess, numpy as np
from saev_dump import *
a = dump("d", d=70000, n=2)
def read(*more):
    return subprocess.run(["saev-read", "--raw", "d", *more], check=True, capture_output=True).stdout
assert read("--dtype", "f16") == a.astype("<f2").tobytes()
u = a.view("<u4").astype("u8")
assert read("--dtype", "bf16") == (u + 0x7fff + (u >> 16 & 1) >> 16).astype("<u2").tobytes()
END
    run -2 saev-read --dtype bf16 d
    [ "${lines[0]}" = "saev-read: .npy has no bf16: --dtype bf16 needs --raw" ]
}

@test "saev-read: a dump that is not what its metadata says is refused with 65" {
    py -c 'from saev_dump import *; dump("d", n=7)'
    truncate -s -1 d/acts000001.bin
    run -65 --separate-stderr saev-read -q d
    [ -z "$output" ]
    [ "$stderr" = "saev-read: d/acts000001.bin: 479 bytes (expected 480)" ]
    rm d/acts000001.bin
    run -65 saev-read -q d
    [ "$output" = "saev-read: d/acts000001.bin: missing" ]
    truncate -s 480 d/acts000001.bin
    truncate -s 480 d/acts000003.bin
    run -65 saev-read -q d
    [ "$output" = "saev-read: d/acts000003.bin: beyond the last shard (n_imgs is 7, 3 a shard)" ]
    run -66 saev-read nowhere
    [ "$output" = "saev-read: nowhere/metadata.json: No such file or directory" ]
}
