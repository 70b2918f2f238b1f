# SPDX-License-Identifier: ISC
# sae-train: what is not given follows from the number of rows.
load helpers
load sae

# says TEXT [OPTION...]: the first line that it prints, of rows that are all 0.
says() {
    run -65 --separate-stderr sae-train -o run -k 1 --latents 64 --dim 1 --x-dtype f16 "${@:2}"
    [ "${stderr_lines[0]}" = "sae-train: $1" ] || { echo "${stderr_lines[0]}" && return 1; }
    [[ ${stderr_lines[1]} == *"leaves nothing to explain" ]]
}

@test "sae-train: batch, epochs, steps, warm-up and rate follow from the number of rows" {
    # by hand: E = 2^21 / rows, 1 to 64; the largest batch 2^i from 64 to 16384 with 4096 steps,
    # or all rows; a 20th of the steps, at most 1000; 64 latents: 2e-4 * 16, and of fewer rows in
    # all than 2^27 sqrt(2^27 / rows) as much, at most 4 times
    while IFS='|' read -r rows want; do
        rm -f rows.f16
        truncate -s $((2 * rows)) rows.f16
        says "$rows rows, $want" rows.f16
    done <<'END'
50|--batch 50 --epochs 64: 64 steps, --warmup 3 --lr 0.0128
1000|--batch 64 --epochs 64: 1000 steps, --warmup 50 --lr 0.0128
5824|--batch 64 --epochs 64: 5824 steps, --warmup 291 --lr 0.0128
500000|--batch 256 --epochs 4: 7812 steps, --warmup 390 --lr 0.0128
2000000|--batch 256 --epochs 1: 7812 steps, --warmup 390 --lr 0.0128
20000000|--batch 4096 --epochs 1: 4882 steps, --warmup 244 --lr 0.00829
100000000|--batch 16384 --epochs 1: 6103 steps, --warmup 305 --lr 0.00371
500000000|--batch 16384 --epochs 1: 30517 steps, --warmup 1000 --lr 0.0032
END
    # what is given wins, and the others follow
    truncate -s $((2 * 146432)) rows.f16
    says "146432 rows, --batch 256 --epochs 14: 8008 steps, --warmup 400 --lr 0.0128" rows.f16
    says "146432 rows, --batch 256 --epochs 14: 8008 steps, --warmup 400 --lr 0.0128" <rows.f16
    says "146432 rows, --batch 512 --epochs 14: 4004 steps, --warmup 200 --lr 0.0128" --batch 512 rows.f16
    says "146432 rows, --batch 64 --epochs 2: 4576 steps, --warmup 7 --lr 0.1" --epochs 2 --warmup 7 --lr 0.1 rows.f16
    says "146432 rows, --batch 256: 100 steps, --warmup 5 --lr 0.0128" -n 100 rows.f16
    # a pipe is read once; of a raw one nobody knows
    py -c 'import numpy as np
np.save("zeros.npy", np.zeros((20000, 1), "<f2"))'
    says "--batch 16384, --warmup 1000 --lr 0.0032" < <(cat rows.f16)
    run -65 --separate-stderr sae-train -o run -k 1 --latents 64 < <(cat zeros.npy)
    [ "${stderr_lines[0]}" = "sae-train: 20000 rows, --batch 64 --epochs 1: 312 steps, --warmup 15 --lr 0.0128" ]
    run -2 --separate-stderr sae-train -o run -k 1 --latents 64 --dim 1 --epochs 3 < <(cat rows.f16)
    [ "${stderr_lines[0]}" = "sae-train: --epochs 3: how many rows there are is not known (-n STEPS instead, or a FILE)" ]
    # nothing was left to them, or -q
    run -65 --separate-stderr sae-train -o run -k 1 --latents 64 --batch 64 -n 1 zeros.npy
    [ "${#stderr_lines[@]}" = 1 ]
    run -65 --separate-stderr sae-train -o run -k 1 --latents 64 -q zeros.npy
    [ "${#stderr_lines[@]}" = 1 ]
}

# bats test_tags=long
@test "sae-train: a short file trains by default as well as in the best of a sweep" {
    hf-infer "$DEMO" -q --acts layers.1.mlp.up_proj --ctx 64 --file "$ROOT/demo/training.txt" -o all.npy
    py -c 'import numpy as np
np.save("short.npy", np.load("all.npy").reshape(-1, 128)[:1500])'
    of=(-q -k 8 --latents 64 short.npy)
    sae-train -o own "${of[@]}"
    for batch in 64 256; do
        for epochs in 16 64; do
            sae-train -o sweep/$batch.$epochs --batch $batch --epochs $epochs --warmup 0 "${of[@]}" \
                --sae a:lr=0.0032 --sae b:lr=0.0064 --sae c:lr=0.0128
        done
    done
    saes=()
    for s in own sweep/*/*; do saes+=(-s "$s"); done
    sae-train eval -q "${saes[@]}" short.npy | awk '$2 == "fvu"' >found
    cat found
    [ "$(wc -l <found)" = 13 ]
    awk '$1 == "own" { own = $3 } $1 != "own" && (!least || $3 < least) { least = $3 }
        END { exit !(own < 1.05 * least) }' found
}

# bats test_tags=long
@test "sae-train --resume: a run of several epochs by default is that of the same options, stopped or not" {
    py -c 'import numpy as np
np.save("few.npy", np.load("rows.npy")[:700])'
    sae-train -q -o want -k 4 --latents 64 --batch 64 --epochs 64 --warmup 35 --lr 0.0128 few.npy
    sae-train -q -o own -k 4 --latents 64 few.npy
    same want own
    for t in 0.05 0.1 0.1 0.1 9; do
        status=0
        sae-train -q -o run -k 4 --latents 64 --resume --deadline $t few.npy || status=$?
        [ $status = 75 ] || break
    done
    same want run
    # of a pipe they are asked for, and its copy stays nowhere
    mkdir tmp
    TMPDIR=tmp sae-train -q -o pipe -k 4 --latents 64 --batch 64 --epochs 64 < <(cat few.npy)
    same want pipe
    [ -z "$(ls -A tmp)" ]
    TMPDIR=none run -73 --separate-stderr sae-train -q -o none -k 4 --latents 64 --epochs 2 < <(cat few.npy)
    [ "$stderr" = "sae-train: none: no file can be made there: No such file or directory" ]
    run -65 --separate-stderr sae-train -o run --resume --epochs 3 few.npy
    [ "$stderr" = "sae-train: run/state.safetensors: --epochs was 64 (now 3; --force starts a new run)" ]
}

@test "sae-train, moe-sft tune: on a terminal the last line says how the run ended, -q and a pipe have none" {
    on_tty() { "$PYTHON" -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)' "$@" </dev/null | tr -d '\r' | sed 's/.*\x1b\[K//' | tail -n 1; }
    said=$(on_tty sae-train -o run -k 4 --latents 64 --batch 256 -n 3 rows.npy)
    want=$(awk -F '\t' 'NR == 2 { a = $4 } END { printf "run: 3 steps, fvu %.4g to %.4g, %d dead", a, $4, $7 }' run/log.tsv)
    [[ $said =~ ^"sae-train: $want, "[0-9]+" s"$ ]] || { echo "$said" && false; }
    said=$(on_tty moe-sft tune -m "$DEMO" -d "$ROOT/demo/facts.jsonl" -o facts -n 3 --rank 2)
    want=$(awk -F '\t' 'NR == 2 { a = $2 } END { printf "facts: 3 steps, loss %.4g to %.4g", a, $2 }' facts/log.tsv)
    [[ $said =~ ^"moe-sft: $want, "[0-9]+" s"$ ]] || { echo "$said" && false; }
    [ -z "$(on_tty sae-train -q -f -o run -k 4 --latents 64 --batch 256 -n 3 rows.npy)" ]
    run -0 --separate-stderr sae-train -f -o run -k 4 --latents 64 --batch 256 -n 3 rows.npy
    [[ $stderr != *" steps, fvu "* ]]
}

@test "sae-train: what follows from a pipe's first array holds for one array alone" {
    py -c 'import numpy as np
x = np.random.default_rng(0).standard_normal((4000, 8)).astype("f4")
np.save("all.npy", x)
for i in range(4): np.save(f"p{i}.npy", x[1000 * i:1000 * i + 1000])'
    train() { sae-train -f -o run -k 4 --latents 16 "$@"; }
    first="more arrays follow the first, so how many rows there are is not known"
    run -65 train --epochs 2 < <(cat p?.npy)
    [ "${lines[-1]}" = "sae-train: standard input: $first (--epochs needs a FILE; or -n STEPS)" ]
    # without a copy, as one array of these rows that is a file
    run -0 --separate-stderr train --batch 1000 -n 3 < <(cat p?.npy)
    [ "${stderr_lines[-1]}" = "sae-train: more arrays follow the first: there is no copy of them, and the run ends with the last" ]
    cp run/sae.safetensors pipe
    train --batch 1000 -n 3 all.npy
    cmp pipe run/sae.safetensors
    run -0 --separate-stderr train < <(cat p?.npy)
    [[ $stderr == *"follow the first; the defaults, --batch and what follows from it, are those of its rows alone"* ]]
    run -0 --separate-stderr train < <(cat all.npy)
    [[ $stderr != *"more arrays"* ]]
}

@test "sae-train --epochs: all epochs in less than a batch are one step of all their rows; -n of a run by epochs continues it" {
    py -c 'import numpy as np
np.save("x.npy", np.random.default_rng(0).standard_normal((1000, 8)).astype("f4"))
np.save("four.npy", np.tile(np.load("x.npy"), (4, 1)))'
    train() { sae-train -q -f -k 4 --latents 16 "$@"; }
    train --batch 4000 --epochs 4 -o a x.npy
    train --batch 4000 --epochs 1 --warmup 0 -o b four.npy
    cmp a/sae.safetensors b/sae.safetensors
    train --epochs 20 --batch 100 -o c x.npy
    run -0 sae-train --resume -n 200 -o c x.npy
}
