#!/usr/bin/env bats
load helpers

# Numbers at the edges of their types.  Files are made by test/ref/mkst.py;
# expectations are numpy's, or Python's exact integers.

py() {
    PYTHONPATH=$ROOT/test/ref "$PYTHON" "$@"
}

@test "stats: numbers whose squares are too large for a double" {
    py -c 'import numpy as np, mkst
mkst.save("a", {"x": np.full(70000, 1e200), "y": np.full(3, -1.7e308),
    "z": np.array([1e200, 3e200])})'
    run -0 st-inspect stats a
    [ "$(cut -f8,9 <<<"${lines[1]}")" = "$(printf '1e+200\t0')" ]
    [ "$(cut -f8,9 <<<"${lines[2]}")" = "$(printf -- '-1.7e+308\t0')" ]
    [ "$(cut -f8,9 <<<"${lines[3]}")" = "$(printf '2e+200\tinf')" ] # as np.std
}

@test "diff: an infinity is only as near to itself, whatever the tolerance" {
    py - <<'END'
import numpy as np, mkst
x = np.array([np.inf, -np.inf, np.inf, 3], "<f4")
y = np.array([np.inf, 5, -np.inf, np.inf], "<f4")
assert np.isclose(x, y, atol=1, rtol=0.5).sum() == 1
mkst.save("x", {"t": x})
mkst.save("y", {"t": y})
END
    run -1 st-inspect diff --atol 1 --rtol 0.5 x y
    [ "$(cut -f1,4 <<<"${lines[1]}")" = "$(printf 'values\t3')" ]
    run -1 st-inspect diff --atol 1 --rtol 0.5 y x
    [ "$(cut -f1,4 <<<"${lines[1]}")" = "$(printf 'values\t3')" ]
}

