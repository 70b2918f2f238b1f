# SPDX-License-Identifier: ISC
# saev(5): the page's own words on a dump that numpy made.
load helpers

# example N: the page's Nth.
example() {
    sed -n '/^\.Sh EXAMPLES/,/^\.Sh SEE/p' "$ROOT/man/saev.5" |
        awk -v n="$1" '/^\.Bd -literal/ { k++ } !/^\./ && k == n && in_it; { in_it = /^\.Bd -literal/ || (in_it && !/^\.Ed/) }'
}

# dump: 7 images of layers 13 and -2, CLS and 3 patches; numbers 0, 1, 2...
dump() {
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
}

@test "saev(5): the numpy example reads the activation it names" {
    dump
    example 1 >example.py
    [ "$(wc -l <example.py)" -eq 6 ]
    echo 'print(x.astype(int).tolist())' >>example.py
    [ "$("$PYTHON" example.py)" = "[210, 211, 212, 213, 214]" ] # (5 * 2 + 0) * 4 + 2 rows of 5
}

@test "saev(5): the token of a row is that of its image and place" {
    mkdir dump
    "$PYTHON" -c 'import numpy as np; np.save("dump/ids.npy", 7 * np.arange(1250).reshape(250, 5))'
    echo 'import numpy as np' >example.py
    example 2 >>example.py
    echo 'print(token)' >>example.py
    [ "$("$PYTHON" example.py)" = $((7 * 1234)) ]
}

@test "saev(5): the numpy example of a stream gets every batch" {
    dump
    example 3 >example.py
    [ "$(wc -l <example.py)" -eq 5 ]
    sed -i '1i def train(x): print(x.shape, int(x[0, 0]), int(x[-1, -1]))' example.py
    # patches of layer 13: token 1 of image 0 is row 1, token 3 of image 6 row 51
    saev-read -q --view image --layer 13 --batch 8 dump | "$PYTHON" example.py >out
    # row 8 is image 2, patch 2; row 15 image 5, patch 0
    diff - out <<'END'
(8, 5) 5 94
(8, 5) 95 209
(5, 5) 210 259
END
    # as the page says, a stream that fails is not one that ends
    truncate -s -1 dump/acts000002.bin
    grep -qF 'set -o pipefail' "$ROOT/man/saev.5"
    run -65 bash -c 'set -o pipefail; saev-read -q --view image --layer 13 --batch 8 dump | "$PYTHON" example.py'
}

# bats test_tags=long
@test "saev(5): the torch example gets every row" {
    "$PYTHON" -c 'import torch' 2>err || skip "no torch"
    dump
    {
        echo 'import subprocess, torch; d = 5'
        example 4
        echo 'for x in torch.utils.data.DataLoader(Rows(), batch_size=None): print(x.shape, x.sum().item())'
    } >example.py
    [ "$(wc -l <example.py)" -eq 8 ]
    [ "$("$PYTHON" example.py 2>err)" = "torch.Size([56, 5]) 39060.0" ] # 0 + 1 + ... + 279
    # rows that do not come are no end of an epoch
    truncate -s -1 dump/acts000002.bin
    run -1 "$PYTHON" example.py
    [[ $output == *"RuntimeError: saev-read ended with status 65"* ]]
}
