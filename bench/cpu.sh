#!/bin/sh
# cpu.sh - Tutti beside PyTorch on the same cores: samples per second of a training step.
#
# Usage: bench/cpu.sh [ROUNDS]            (5; PYTHON names one that has torch, TUTTI the program)
#
# Four models with AdamW: mlp 784-512-512-10 and the small CNN (lenet) at batch 128, a GPT (4 layers, 4
# heads, width 128, context 128, vocabulary 65) at batch 32, ResNet-18 on 32x32 at batch 64; the GPT's
# figures are tokens per second.  PyTorch should have a good BLAS: Debian's takes libopenblas0 where
# that is installed and is ten times slower on linear layers without.  In each round
# Tutti and PyTorch take turns, so that both meet the same state of the machine.  PyTorch's figure
# is the better of one process with all cores and one DDP process per core; Tutti's, in exact mode
# with one worker thread per core, includes loading, shuffling and the parameter hash, which the
# peer does not do.  Both sides quote their best round; the median is printed too.
set -eu
cd "$(dirname "$0")/.."
. bench/jobs.sh
rounds=${1:-5}
python=${PYTHON:-/usr/bin/python3}
cores=$(nproc)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

program=${TUTTI:-build/tutti}
[ -x "$program" ] || { echo "cpu.sh: no $program: make build" >&2 && exit 1; }
has_torch=1
if ! "$python" -c 'import torch' 2> /dev/null; then
    echo "cpu.sh: $python has no torch; Tutti alone" >&2
    has_torch=0
fi

make_text "$tmp"

# tutti_run MODEL UNIT: samples per second times UNIT, which is the tokens of a sample.
tutti_run() {
    # shellcheck disable=SC2046
    "$program" bench train $(cpu_job "$1" "$tmp") optimizer.name=adamw \
        parallel.place=threads -n "$cores" 2> /dev/null |
        sed -n 's/.*"per_s": *\([0-9]*\).*/\1/p' | awk -v f="$2" '{print $1 * f}'
}

# torch_run MODEL PROCESSES BATCH: the same.
torch_run() {
    "$python" bench/peers/torch_cpu.py "$1" "$3" "$2" 2> /dev/null |
        sed -n 's/.*"per_s": *\([0-9]*\).*/\1/p'
}

best() { sort -g "$1" | tail -1; }
median() { sort -g "$1" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

echo "cpu.sh: $cores cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $rounds rounds"
for row in ${MODELS:-mlp:128:1 cnn:128:1 gpt:32:128 resnet18:64:1}; do
    peer=$(echo "$row" | cut -d: -f1) batch=$(echo "$row" | cut -d: -f2)
    unit=$(echo "$row" | cut -d: -f3)
    round=0
    while [ $round -lt "$rounds" ]; do
        tutti_run "$peer" "$unit" >> "$tmp/$peer.tutti-$cores"
        if [ $has_torch = 1 ]; then
            torch_run "$peer" 1 "$batch" >> "$tmp/$peer.torch-1"
            torch_run "$peer" "$cores" "$batch" >> "$tmp/$peer.torch-$cores"
        fi
        round=$((round + 1))
    done
    for file in "$tmp/$peer".*; do
        printf '%-4s %-16s best %8.0f  median %8.0f per s\n' "$peer" "${file##*.}" \
            "$(best "$file")" "$(median "$file")"
    done
    if [ $has_torch = 1 ]; then
        cat "$tmp/$peer".torch-* > "$tmp/theirs"
        awk -v a="$(best "$tmp/$peer.tutti-$cores")" -v b="$(best "$tmp/theirs")" -v m="$peer" \
            'BEGIN {printf "%-4s tutti / torch   %.2f\n", m, a / b}'
    fi
done
