#!/bin/sh
# cpu.sh - Tutti beside PyTorch on the same cores: samples per second of a training step.
#
# Usage: bench/cpu.sh [ROUNDS]            (5; PYTHON names one that has torch, TUTTI the program)
#
# Two models at batch 128 with AdamW: mlp 784-512-512-10, and the small CNN (lenet).  In each round
# Tutti and PyTorch take turns, so that both meet the same state of the machine.  PyTorch's figure
# is the better of one process with all cores and one DDP process per core; Tutti's, in exact mode
# with one worker thread per core, includes loading, shuffling and the parameter hash, which the
# peer does not do.  Both sides quote their best round; the median is printed too.
set -eu
cd "$(dirname "$0")/.."
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

# tutti_run MODEL STEPS: samples per second.
tutti_run() {
    "$program" bench train "$1" "train.steps=$2" train.batch=128 optimizer.name=adamw \
        parallel.place=threads -n "$cores" 2> /dev/null | sed -n 's/.*"per_s": *\([0-9]*\).*/\1/p'
}

# torch_run MODEL PROCESSES: samples per second.
torch_run() {
    "$python" bench/peers/torch_cpu.py "$1" 128 "$2" 2> /dev/null |
        sed -n 's/.*"per_s": *\([0-9]*\).*/\1/p'
}

best() { sort -g "$1" | tail -1; }
median() { sort -g "$1" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

echo "cpu.sh: $cores cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $rounds rounds"
for pair in mlp:mlp:2000 cnn:lenet:400; do
    peer=${pair%%:*} model=$(echo "$pair" | cut -d: -f2) steps=${pair##*:}
    round=0
    while [ $round -lt "$rounds" ]; do
        tutti_run "$model" "$steps" >> "$tmp/$peer.tutti-$cores"
        if [ $has_torch = 1 ]; then
            torch_run "$peer" 1 >> "$tmp/$peer.torch-1"
            torch_run "$peer" "$cores" >> "$tmp/$peer.torch-$cores"
        fi
        round=$((round + 1))
    done
    for file in "$tmp/$peer".*; do
        printf '%-4s %-16s best %8.0f  median %8.0f samples/s\n' "$peer" "${file##*.}" \
            "$(best "$file")" "$(median "$file")"
    done
    if [ $has_torch = 1 ]; then
        cat "$tmp/$peer".torch-* > "$tmp/theirs"
        awk -v a="$(best "$tmp/$peer.tutti-$cores")" -v b="$(best "$tmp/theirs")" -v m="$peer" \
            'BEGIN {printf "%-4s tutti / torch   %.2f\n", m, a / b}'
    fi
done
