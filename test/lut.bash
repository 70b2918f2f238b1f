# SPDX-License-Identifier: ISC
# lut-precompute's inputs, of test/ref/lut_cases.py: made once for a file.

setup_file() {
    mkdir "$BATS_FILE_TMPDIR/cases"
    py "$ROOT/test/ref/lut_cases.py" "$BATS_FILE_TMPDIR/cases"
}

# make_cases: model, f32, one/LAYOUT, and LAYOUT/LAYER of every layout, which a
# test may change.
make_cases() {
    cp -r "$BATS_FILE_TMPDIR/cases/." .
}

# check DIR MODEL [CENTERING]: is every table there what float64 says?
check() {
    py "$ROOT/test/ref/lut_cases.py" check "$@"
}

# sae DIR LAYOUT [CFG [TENSORS]]: a checkpoint of 24 latents, with changes.
sae() {
    py -c 'import sys, numpy as np, lut_ref as ref
d, layout, cfg, extra = sys.argv[1:]
ref.write_sae(d, layout, ref.tiny_sae(np.random.default_rng(1), 24, 60), 4,
              cfg=eval(cfg), extra=eval(extra))' "$1" "$2" "${3:-{\}}" "${4:-{\}}"
}

# same_tensors A B: two files differ in what they say of themselves alone.
same_tensors() {
    py -c 'import sys, lut_ref as ref
a, b = (ref.read_safetensors(f)[0] for f in sys.argv[1:])
assert a.keys() == b.keys() and all((a[n] == b[n]).all() for n in a)' "$1" "$2"
}
