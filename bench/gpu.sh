#!/bin/sh
# gpu.sh - Tutti beside PyTorch, JAX and llm.c on one GPU, in one call: checks first, then a table.
#
# Usage: bench/gpu.sh [WORKLOAD...]       (gpt2 gpt2-350m resnet50 bert small; all unless named)
#        PYTHON names one that has torch; SECONDS_PEER limits a peer.
#        LLMC names llm.c's train_gpt2cu (built with USE_CUDNN=1), if there is one: beside GPT-2.
#
# First it builds (make build) and runs the tests of kernels and collectives on the GPU (those of
# make gpu-test that are C programs: a minute or two); a failure ends it.  TUTTI names a program
# that is there: nothing is built, and tests run only if they lie beside it.
# CHECKS=no leaves building and tests out.
#
# Both sides: bf16 with f32 master weights (small: tf32), the same batch and optimizer, random data,
# warm-up left out, medians over steps.  Tutti keeps the residual stream in 16 bits
# (train.low_precision_residual), where torch's autocast keeps sums and norms in f32.  Tutti's side loads
# and shuffles its samples and hashes all parameters after every step, which the peers do not do;
# theirs lie on the device from the start.  torch.compile and JAX compile first: a workload takes
# them one to two minutes.
set -eu
cd "$(dirname "$0")/.."
. bench/jobs.sh
program=${TUTTI:-build/tutti}
python=${PYTHON:-python3}
limit=${SECONDS_PEER:-180}
checks=${CHECKS:-yes}

# The tests that are C programs and need a GPU; what has no GPU says so below.
check_kernels() {
    folder=$(cd "$(dirname "$program")" && pwd)
    n=0
    for test in "$folder"/cuda_*_test; do
        [ -x "$test" ] || continue
        n=$((n + 1))
        code=0
        "$test" > "$tmp/test" 2>&1 || code=$?
        [ $code = 0 ] || [ $code = 77 ] || {
            tail -20 "$tmp/test" >&2
            echo "gpu.sh: $test failed with $code: no figures of what computes wrongly" >&2
            exit 1
        }
    done
    echo "checks: $n test programs in $folder"
}

[ "$checks" = no ] || [ -n "${TUTTI:-}" ] || {
    make build >&2
    # shellcheck disable=SC2046
    ninja -C build $(ninja -C build -t targets all | sed -n 's/^\(cuda_[a-z_]*_test\):.*/\1/p') >&2
}
[ -x "$program" ] || { echo "gpu.sh: no $program: make build" >&2 && exit 1; }
"$program" doctor --quick | grep -q 'device 0' || {
    "$program" doctor --quick >&2
    echo "gpu.sh: no GPU that Tutti can use" >&2
    exit 1
}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
[ "$checks" = no ] || check_kernels
export NCCL_NVLS_ENABLE=0

common="parallel.devices=gpu parallel.workers=1 parallel.shards=1 train.precision=bf16"
common="$common run.text_samples=0 run.log_every=5"

# tutti WORKLOAD MODE: one line of JSON.
tutti() {
    # shellcheck disable=SC2046,SC2086
    "$program" bench train $(set -- $(gpu_job "$1"); echo "$1") $common \
        $(set -- $(gpu_job "$1"); shift; echo "$@") "parallel.mode=$2" 2> "$tmp/err" ||
        { tail -2 "$tmp/err" >&2; echo '{}'; }
}

field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([0-9.]*\).*/\1/p" | tail -1; }

# row WORKLOAD SIDE PER_SECOND FIRST_STEP PEAK_GB
row() { printf '%-10s %-22s %12s /s  first step %6s s  peak %6s GB\n' "$@"; }

peer() {
    name=$1 side=$2
    shift 2
    timeout "$limit" "$python" "$@" > "$tmp/peer" 2> "$tmp/err" || tail -1 "$tmp/err" >&2
    for key in tok_s img_s img_s_scan; do
        value=$(field $key < "$tmp/peer")
        [ -z "$value" ] || row "$name" "$side $key" "$value" "$(field first_step_s < "$tmp/peer")" \
            "$(field peak_gb < "$tmp/peer")"
    done
}

# tokens FILE: 2^22 random ones, as llm.c reads them: a header of 256 words, then 16 bits for each.
# Both bytes are below 196, so 38,416 different ones from all of the vocabulary of 50,257: llm.c
# takes the longer for a batch the more different tokens are in it.
tokens() {
    printf '\210\330\064\001\001\000\000\000\000\000\100\000' > "$1" # magic, version, how many
    head -c 1012 /dev/zero >> "$1"
    LC_ALL=C tr -d '\304-\377' < /dev/urandom | head -c 8388608 >> "$1"
}

# llmc WORKLOAD LAYERS SEQUENCES: llm.c, nothing recomputed, its own mean of tokens per second.
llmc() {
    [ -n "${LLMC:-}" ] || return 0
    tokens "$tmp/tokens.bin"
    timeout "$limit" "$LLMC" -i "$tmp/tokens.bin" -j "$tmp/tokens.bin" -e "d$2" -b "$3" -t 1024 \
        -x 60 -r 0 -v 1000 -m 1 -s 0 -h 0 -pi fs -pf "$tmp" > "$tmp/peer" 2> "$tmp/err" ||
        tail -1 "$tmp/err" >&2
    value=$(sed -n 's/^step .* \([0-9]*\) tok\/s.*/\1/p' "$tmp/peer" | tail -1)
    [ -z "$value" ] || row "$1" "llm.c" "$value" "" ""
}

ours() {
    for mode in fast exact; do
        line=$(tutti "$1" $mode)
        per_s=$(echo "$line" | field tokens_per_s)
        row "$1" "tutti $mode" "${per_s:-$(echo "$line" | field per_s)}" \
            "$(echo "$line" | field first_step_s)" "$(echo "$line" | field peak_device_gb)"
    done
}

"$program" doctor
for workload in ${*:-gpt2 gpt2-350m resnet50 bert small}; do
    ours "$workload"
    case $workload in
    gpt2) peer gpt2 torch.compile bench/peers/torch_gpt2.py --compile
        peer gpt2 jax bench/peers/jax_peer.py gpt2 64
        llmc gpt2 12 64 ;;
    gpt2-350m) peer gpt2-350m torch.compile bench/peers/torch_gpt2.py --compile --layers 24 \
        --dim 1024 --heads 16 --batch 32
        llmc gpt2-350m 24 32 ;;
    resnet50) peer resnet50 torch.compile bench/peers/torch_resnet50.py --compile ;;
    bert) peer bert torch.compile bench/peers/torch_bert.py --compile ;;
    small) peer small "torch reduce-overhead" bench/peers/torch_small.py --compile reduce-overhead
        peer small jax bench/peers/jax_peer.py cnn ;;
    esac
done
