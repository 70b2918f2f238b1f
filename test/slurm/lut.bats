# SPDX-License-Identifier: ISC
# jobs/lut-*.sh on a real Slurm: `make check-slurm`.
bats_require_minimum_version 1.5.0

load helpers

setup_file() {
    slurm_up
    # eight layers of 24000 latents: about half a second each
    PYTHONPATH=$ROOT/test/ref "$PYTHON" -c 'import numpy as np, lut_ref as r
for i in range(4):
    for hook in ("self_attn.q_proj", "mlp.up_proj"):
        r.write_sae("sae/layers.%d.%s" % (i, hook), "sparsify",
                    r.tiny_sae(np.random.default_rng(i), 24000, 128), 16)'
    lut-precompute -q -m "$DEMO" -s sae -o want
}

# submit PARTS: sets tasks and index.
submit() {
    IFS=$'\t' read -r tasks index < <("$ROOT/jobs/lut-submit.sh" "$DEMO" ../sae lut "$1" -n1)
}

n_files() {
    find lut -name '*.lut.safetensors' -not -name '.*' 2>/dev/null | wc -l
}

same_tables() {
    cat lut/*.log
    diff -r -x '*.log' ../want lut
    [ -z "$(find lut -name '.*' -mindepth 1)" ]
}

@test "slurm: an array of 4 tasks and an index make the directory of one run" {
    submit 4
    gone "$index"
    same_tables
}

@test "slurm: a task that gets USR1 is requeued and keeps what it made" {
    submit 1
    until_under_way 2 7 n_files
    scancel -b -s USR1 "${tasks}_0"
    gone "$index"
    grep -q 'part 0/1: status 75' lut/lut-0.log
    same_tables
}

@test "slurm: a task that is killed with -9 leaves no broken table" {
    submit 1
    until_under_way 2 7 n_files
    pkill -9 -f "lut-precompute.*$PWD/lut.*--shard 0/1"
    gone "$tasks"
    gone "$index"
    [ ! -e lut/metadata.json ]
    submit 1
    gone "$index"
    same_tables
}
