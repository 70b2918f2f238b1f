# saev(5): the page's own words on a dump that numpy made.
load helpers

@test "saev(5): the numpy example reads the activation it names" {
    "$PYTHON" - <<'END'
import json, os, numpy as np
m = dict(vit_family="clip", vit_ckpt="c", layers=[13, -2], n_patches_per_img=3,
         cls_token=True, d_vit=5, seed=1, n_imgs=7, max_patches_per_shard=24,
         data="x")
os.mkdir("dump")
json.dump(m, open("dump/metadata.json", "w"), indent=4)
a = np.arange(7 * 2 * 4 * 5, dtype="<f4").reshape(7, 2, 4, 5)
for i in range(0, 7, 3):
    a[i:i + 3].tofile("dump/acts%06d.bin" % (i // 3))
END
    examples() { sed -n '/^\.Sh EXAMPLES/,/^\.Sh SEE/{/^\.Bd -literal/,/^\.Ed/{/^\./!p}}' "$1"; }
    examples "$ROOT/man/saev.5" >example.py
    [ "$(wc -l <example.py)" -eq 6 ]
    echo 'print(x.astype(int).tolist())' >>example.py
    [ "$("$PYTHON" example.py)" = "[210, 211, 212, 213, 214]" ] # (5 * 2 + 0) * 4 + 2 rows of 5
}
