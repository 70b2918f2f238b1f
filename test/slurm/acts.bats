# SPDX-License-Identifier: ISC
# jobs on a real Slurm: `make check-slurm`.
bats_require_minimum_version 1.5.0

load helpers
N_DOCS=3000

setup_file() {
    slurm_up
    seq $N_DOCS | sed 's/.*/{"text":"Document & of some, with a few words in it, and more."}/' >docs.jsonl
    export MAX_PATCHES=6400 # 100 images of 2 layers and 32 tokens
    # the run without Slurm, without parts, without a stop
    meta=$("$ROOT/jobs/acts-meta.sh" "$DEMO" docs.jsonl resid:0,3 32 .)
    hf-infer "$DEMO" --acts resid:0,3 --ctx 32 --pad --jsonl --file docs.jsonl -q |
        saev-write -q -m "$meta" -o want
}

# submit PARTS [SPEC]: sets tasks, finish and dump.
submit() {
    IFS=$'\t' read -r tasks finish dump < <("$ROOT/jobs/acts-submit.sh" \
        "$DEMO" ../docs.jsonl "${2:-resid:0,3}" 32 acts "$1" -n1 -c2)
}

# shards_of FIRST LAST: how many of these are complete.
shards_of() {
    local n=0 i
    for i in $(seq "$1" "$2"); do
        [ ! -e "acts/.$(basename "$dump").part/acts$(printf %06d "$i").bin" ] || n=$((n + 1))
    done
    echo "$n"
}

same_dump() {
    diff -r -x manifest.xxh3 ../want/* "$dump"
    [ "$(wc -l <"$dump/manifest.xxh3")" = 30 ]
    [ -z "$(find acts -name '.*' -mindepth 1)" ]
}

@test "slurm: an array of 3 tasks and a finish job make the dump of one run" {
    submit 3
    gone "$finish"
    cat acts/*.log
    same_dump
}

@test "slurm: a task that gets USR1 is requeued and the dump is the same" {
    submit 2
    until_under_way 2 14 shards_of 0 14
    scancel -b -s USR1 "${tasks}_0"
    gone "$finish"
    cat acts/*.log
    grep -q 'stopped by SIGUSR1' acts/acts-0.log
    grep -q 'part 0/2: status 75' acts/acts-0.log
    # the second run of the task starts behind what was complete
    [ "$(grep -c '^part 0/2 on' acts/acts-0.log)" = 2 ]
    second=$(grep '^part 0/2 on' acts/acts-0.log | sed -n 2p)
    [[ $second == *" images from "* && $second != *"from 0 on" ]]
    same_dump
}

@test "slurm: a task that is killed with -9 and requeued changes nothing" {
    submit 2
    until_under_way 2 14 shards_of 15 29
    scancel -b -s KILL "${tasks}_1" || :
    pkill -9 -f "saev-write.*$PWD.*--shard 1/2" || :
    gone "${tasks}_1"
    [ ! -e "$dump" ]
    # afterok never comes true: Slurm drops the finish job
    gone "$finish"
    [ ! -e "$dump" ]
    submit 2
    gone "$finish"
    cat acts/*.log
    same_dump
}

@test "slurm: dumps that are made in one directory at once do not meet, nor one made twice" {
    submit 2
    first=$finish mine=$dump
    submit 1 resid:1,2
    gone "$finish"
    gone "$first"
    cat acts/*.log
    diff -r -x manifest.xxh3 ../want/* "$mine"
    hf-infer "$DEMO" --acts resid:1,2 --ctx 32 --pad --jsonl --file ../docs.jsonl -q |
        saev-write -q -m "$dump.json" -o want
    diff -r -x manifest.xxh3 want/* "$dump"
    submit 2
    gone "$finish"
    diff -r -x manifest.xxh3 ../want/* "$dump"
    [ "$(cat acts/*.log | grep -c "^part ./2 on .*: 0 images")" = 2 ]
}

@test "slurm: cron makes the dump, then only looks at it" {
    run() { env -i ${TU_ISA+"TU_ISA=$TU_ISA"} HOME="$HOME" LANG=C TU_BIN="$BUILD" MAX_PATCHES=6400 \
        "$ROOT/jobs/acts-cron.sh" "$DEMO" ../docs.jsonl resid:0,3 32 acts; }
    [ -z "$(run 2>&1)" ]
    meta=$(echo acts/*.json)
    dump=${meta%.json}
    diff -r ../want/* "$dump"
    before=$(stat -c %Y "$dump/acts000000.bin")
    [ -z "$(run 2>&1)" ]
    [ "$(stat -c %Y "$dump/acts000000.bin")" = "$before" ]
    # what is wrong is said
    rm -f "$dump/acts000003.bin"
    [[ $(run 2>&1) == *acts000003.bin* ]]
}

@test "slurm: names of any characters are inputs like others, and not run" {
    odd="a  b;touch PWNED;#%j*?\$(touch PWNED)\`touch PWNED\`'\"\$x&|<>(){}[]:=,~"
    mkdir "$odd"
    cp -rL "$DEMO" "$odd/m"
    head -n 200 ../docs.jsonl >"$odd/docs"
    IFS=$'\t' read -r tasks finish dump < <("$ROOT/jobs/acts-submit.sh" \
        "$odd/m" "$odd/docs" resid:0,3 32 "$odd/acts" 2 -n1)
    gone "$finish"
    cat "$odd"/acts/*.log
    [ -e "$odd/acts/acts-1.log" ] && [ -e "$odd/acts/acts-finish.log" ]
    saev-read verify --deep "$dump"
    [ -z "$(find "$BATS_FILE_TMPDIR" -name PWNED)" ]
}

@test "slurm: a task that is requeued leaves the others of its array alone" {
    # the last one is stopped when one has ended and one computes
    cat >part <<END
#!/bin/bash
. "$ROOT/jobs/common.sh"
echo start
case \$SLURM_ARRAY_TASK_ID-\${SLURM_RESTART_COUNT-0} in
2-0) (sleep 3; exit 75) & ;;
1-*) sleep 6 & ;;
*) true & ;;
esac
wait_part \$! part
END
    job=$(sbatch --parsable --requeue --open-mode=append --array=0-2 -n1 -c1 -o %a.log part)
    gone "$job"
    cat -- *.log
    [ "$(cat 0.log)" = "start"$'\n'"part: status 0" ]
    [ "$(cat 1.log)" = "start"$'\n'"part: status 0" ]
    [ "$(grep -v slurmstepd 2.log)" = "start"$'\n'"part: status 75"$'\n'"start"$'\n'"part: status 0" ]
}
