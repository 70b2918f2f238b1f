# SPDX-License-Identifier: ISC
# shellcheck shell=bash
# Sourced by the scripts next to it.
# Tools of TU_BIN come first, then those installed with this file; jobs get this
# PATH from sbatch.
own=$(dirname -- "${BASH_SOURCE[0]}")/../..
[ ! -d "$own/share/tensorutils" ] || PATH=$own/bin:$PATH
export PATH=${TU_BIN:+$TU_BIN:}$PATH

# usage N ARGUMENT...: ends the script with the comment that it begins with, if
# the first argument is -h, or if there are fewer than N: then with 2.
usage() {
    local status=0
    [[ ${2-} =~ ^(-h|--help)$ ]] || {
        [ $# -le "$1" ] || return 0
        status=2
        exec >&2
    }
    sed -n '1,2d; /^#/!q; s/^# \{0,1\}//p' "$0"
    exit $status
}

# need_sbatch ends the script where there is no Slurm, before any work.
need_sbatch() {
    command -v sbatch >/dev/null || {
        echo "${0##*/}: sbatch is not in PATH (expected Slurm's)" >&2
        exit 69
    }
}

# submit NAME [OPTION of sbatch...] -- ARGUMENT...: has Slurm run NAME.sh --task
# DIRECTORY ARGUMENT... as a job that may be queued again, and ends the script.
submit() {
    local name=$1 options=()

    shift
    usage 1 "$@"
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    usage 2 "$@"
    need_sbatch
    exec sbatch --parsable --job-name="$name" --output="$name-%j.log" \
        "${options[@]}" --requeue --open-mode=append --signal=B:USR1@120 \
        "${here:?}/$name.sh" --task "$here" "${@:2}"
}

# acts MODEL SPEC T FILE OPTION...: hf-infer's activations of documents, JSON
# lines, or, where T is "images", of a list of pictures; FILE - is standard input.
acts() {
    if [ "$3" = images ]; then
        hf-infer "$1" --acts "$2" --images "$4" -q "${@:5}"
    else
        hf-infer "$1" --acts "$2" --ctx "$3" --pad --jsonl --file "$4" -q "${@:5}"
    fi
}

# number NAME VALUE: ends the script unless the argument is a number over 0.
number() {
    [[ $2 =~ ^[1-9][0-9]{0,17}$ ]] || {
        echo "${0##*/}: $1 is $2 (expected a number)" >&2
        exit 2
    }
}

# wait_part PID WHAT [FAILED] waits for the program that does this task's part;
# signals go to the batch shell, which forwards them.  The program finishes what
# it can and ends with 75: then Slurm runs the task again, unless the file FAILED
# has the status of a program that it needs.  Ends the script with the status of
# the program, or that one.
wait_part() {
    local pid=$1 what=$2 failed=${3-} job=${SLURM_JOB_ID-} status=0

    # shellcheck disable=SC2064 # the pid of now
    trap "kill -USR1 $pid 2>/dev/null" USR1 TERM
    wait "$pid" || status=$?
    # a wait may end because of a signal, not of the program
    while kill -0 "$pid" 2>/dev/null; do
        status=0
        wait "$pid" || status=$?
    done
    if [ "$status" -gt 128 ]; then
        status=0
        wait "$pid" || status=$?
    fi
    echo "$what: status $status"
    [ ! -s "$failed" ] || exit "$(cat "$failed")"
    if [ "$status" -eq 75 ]; then
        # an array's last task has the array's id, which stands for all its tasks
        [ "$job" != "${SLURM_ARRAY_JOB_ID-}" ] || job=${job}_$SLURM_ARRAY_TASK_ID
        scontrol requeue "$job"
    fi
    exit "$status"
}
