#!/bin/sh
# compare.sh - has a change made training slower?  Times the programs of two builds in one call.
#
# Usage: bench/compare.sh [-n GPUS] BUILD_A BUILD_B [ROW...]
#        ROWs of CPUs: mlp cnn gpt resnet18; of GPUs: gpt2 gpt2-350m resnet50 bert small (jobs.sh).
#        Without ROWs: those of GPUs if BUILD_A finds one, else those of CPUs.
#        -n: GPUs of a row (1), with as many times its batch.  ROUNDS (5): runs of each build.
#
# The builds take turns, and each begins every other round, so that both meet the same state of the
# machine.  Prints the median of samples per second of A and of B, and B / A.  A row that lost more
# than 1 % is marked SLOWER, and the exit code is 1.  On a machine with other work the noise is
# larger than that: compare a build with itself first.
set -eu
gpus=1
[ "${1:-}" != -n ] || { gpus=$2 && shift 2; }
[ $# -ge 2 ] || { sed -n '/^# Usage/,/^#$/s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
for build in "$1" "$2"; do
    [ -x "$build/tutti" ] || { echo "compare.sh: no $build/tutti: ninja -C $build tutti" >&2 && exit 2; }
done
a=$(cd "$1" && pwd)/tutti b=$(cd "$2" && pwd)/tutti
shift 2
cd "$(dirname "$0")/.."
. bench/jobs.sh
rounds=${ROUNDS:-5}
export NCCL_NVLS_ENABLE=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
make_text "$tmp"

gpu_keys="parallel.devices=gpu parallel.workers=$gpus parallel.shards=$gpus train.precision=bf16"
gpu_keys="$gpu_keys run.text_samples=0 run.log_every=5"

# arguments ROW MODE: of tutti bench train; keys of the row come behind those of all GPU rows.
arguments() {
    if job=$(gpu_job "$1"); then
        batch=$(echo "$job" | sed 's/.*train.batch=\([0-9]*\).*/\1/')
        echo "${job%% *} $gpu_keys ${job#* } train.batch=$((batch * gpus)) parallel.mode=$2"
    elif job=$(cpu_job "$1" "$tmp"); then
        echo "$job optimizer.name=adamw parallel.devices=cpu parallel.place=threads" \
            "parallel.mode=$2 -n $(nproc)"
    else
        echo "compare.sh: there is no row '$1'" >&2 && return 1
    fi
}

# measure A_OR_B PROGRAM: adds samples per second of one run to its file.
measure() {
    # shellcheck disable=SC2086
    "$2" bench train $keys > "$tmp/line" 2> "$tmp/err" || {
        tail -3 "$tmp/err" >&2
        echo "compare.sh: $2 bench train $keys: failed" >&2
        exit 1
    }
    sed -n 's/.*"per_s": *\([0-9.]*\).*/\1/p' "$tmp/line" >> "$tmp/$1"
}

median() { sort -g "$1" | awk '{v[NR] = $1} END {print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2}'; }

if [ $# = 0 ]; then
    if "$a" doctor --quick | grep -q '^  device '; then
        set -- gpt2 gpt2-350m resnet50 bert small
    else
        set -- mlp cnn gpt resnet18
    fi
fi
slower=0
echo "A: $a"
echo "B: $b"
printf '%-10s %-6s %12s %12s %8s\n' row mode "A, per s" "B, per s" "B / A"
for row; do
    for mode in exact fast; do
        keys=$(arguments "$row" $mode)
        rm -f "$tmp/a" "$tmp/b"
        round=0
        while [ $round -lt "$rounds" ]; do
            if [ $((round % 2)) = 0 ]; then
                measure a "$a" && measure b "$b"
            else
                measure b "$b" && measure a "$a"
            fi
            round=$((round + 1))
        done
        line=$(awk -v a="$(median "$tmp/a")" -v b="$(median "$tmp/b")" 'BEGIN {
            printf "%12.1f %12.1f %8.3f%s", a, b, b / a, (b < 0.99 * a ? "  SLOWER" : "")}')
        printf '%-10s %-6s %s\n' "$row" $mode "$line"
        case $line in *SLOWER) slower=1 ;; esac
    done
done
exit $slower
