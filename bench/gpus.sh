#!/bin/sh
# gpus.sh - how training grows from one GPU to N, beside PyTorch DDP, in one call.
#
# Usage: bench/gpus.sh [-n N] [WORKLOAD...]     (comm gpt2 resnet50 syncbn small gpt2-xl; all but
#        named)  N: all GPUs unless given.  TUTTI names the program, PYTHON one that has torch
#        (false: no peers), SECONDS_PEER limits a peer, XL_ROWS says which rows of Tutti's gpt2-xl
#        has (plan zero0 zero1 zero3 tensor).
#
# The same batch on each GPU whatever their number; bf16 (small: tf32); random data, loaded and
# shuffled on Tutti's side; exact mode, which gives the bits of one GPU with N shards.  Shares are of
# N times one GPU of the same side and call; waits are for data.  gpt2-xl (1.5 billion parameters,
# XL_BATCH sequences on each GPU, 16 unless given) runs on N alone: the layout that the planner takes
# for the best of those that recompute nothing, replicas, plain and with their state or everything
# in parts, layers in pieces (with 20 heads), and FSDP2 and DDP; about three minutes on two.
set -eu
cd "$(dirname "$0")/.."
program=${TUTTI:-build/tutti}
python=${PYTHON:-python3}
limit=${SECONDS_PEER:-180}
n=$("$program" doctor --quick | grep -c '^  device ' || true)
[ "${1:-}" = -n ] && n=$2 && shift 2
[ "$n" -ge 2 ] || { echo "gpus.sh: two GPUs are needed" >&2 && exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export NCCL_NVLS_ENABLE=0
one=0

common="parallel.devices=gpu train.precision=bf16 run.text_samples=0 run.log_every=5"

# The job of a workload, without the keys that depend on the number of GPUs.
job() {
    case $1 in
    gpt2) echo gpt2 model.size=124M model.context=1024 data.format=random_tokens data.context=1024 \
        data.vocabulary=50304 data.n_test=64 train.steps=60 train.clip_norm=1 \
        train.low_precision_residual=true optimizer.name=adamw optimizer.weight_decay=0.1 ;;
    resnet50) echo resnet50 data.format=random_images data.image_size=224 data.n_test=256 \
        train.steps=100 optimizer.name=sgd optimizer.lr=0.1 optimizer.weight_decay=1e-4 \
        data.prefetch=3 ;;
    syncbn) echo resnet50 data.format=random_images data.image_size=224 data.n_test=256 \
        train.steps=100 optimizer.name=sgd optimizer.lr=0.1 optimizer.weight_decay=1e-4 \
        data.prefetch=3 parallel.sync_batch_norm=true ;;
    gpt2-xl) echo gpt2 model.size=1558M model.context=1024 data.format=random_tokens \
        data.context=1024 data.vocabulary=50304 data.n_train=512 data.n_test=64 train.steps=12 \
        train.clip_norm=1 train.low_precision_residual=true optimizer.name=adamw optimizer.weight_decay=0.1 \
        train.recompute=none run.log_every=2 ;;
    small) echo lenet data.format=digits data.n_train=60000 train.steps=8000 \
        train.precision=tf32 optimizer.name=adam ;;
    esac
}

batch() { case $1 in gpt2) echo 64 ;; gpt2-xl) echo "${XL_BATCH:-16}" ;; small) echo 128 ;; *) echo 256 ;; esac; }
threads() { case $1 in gpt2*) echo 4 ;; small) echo 8 ;; *) echo 12 ;; esac; } # of a worker
field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([0-9.]*\).*/\1/p" | tail -1; }

# row WORKLOAD SIDE PER_SECOND SHARE FIRST_STEP PEAK_GB WAIT_SHARE
row() {
    printf '%-9s %-36s %10s /s  %6s %%  first step %6s s  peak %6s GB  waits %s\n' "$@"
}

share() { awk -v p="$1" -v one="$2" -v n="$3" 'BEGIN {if (one > 0) printf "%.1f", 100 * p / one / n}'; }

# tutti WORKLOAD GPUS WISH...: one row; sets rate.
tutti() {
    name=$1 gpus=$2
    shift 2
    # shellcheck disable=SC2046,SC2086
    "$program" bench train $(set -- $(job "$name"); echo "$1") $common \
        $(set -- $(job "$name"); shift; echo "$@") "parallel.workers=$gpus" \
        "parallel.shards=$gpus" "train.batch=$(($(batch "$name") * gpus))" \
        "data.threads=$(threads "$name")" "$@" \
        > "$tmp/line" 2> "$tmp/err" || { tail -2 "$tmp/err" >&2 && echo '{}' > "$tmp/line"; }
    rate=$(field tokens_per_s < "$tmp/line")
    rate=${rate:-$(field per_s < "$tmp/line")}
    rate=${rate:-0}
    [ "$gpus" -gt 1 ] || [ $# -gt 0 ] || one=$rate
    row "$name" "tutti $gpus GPU $*" "$rate" "$(share "$rate" "$one" "$gpus")" \
        "$(field first_step_s < "$tmp/line")" "$(field peak_device_gb < "$tmp/line")" \
        "$(field wait_share < "$tmp/line")"
}

# peer WORKLOAD GPUS SCRIPT ARGUMENT...: one row; sets peer_one.
peer() {
    name=$1 gpus=$2
    shift 2
    timeout "$limit" "$python" -m torch.distributed.run --standalone --nproc_per_node "$gpus" \
        "$@" > "$tmp/peer" 2> "$tmp/err" || tail -1 "$tmp/err" >&2
    for key in tok_s img_s; do
        value=$(field $key < "$tmp/peer")
        [ -n "$value" ] || continue
        [ "$gpus" -gt 1 ] || peer_one=$value
        row "$name" "torch compile DDP $gpus GPU" "$value" \
            "$(share "$value" "${peer_one:-0}" "$gpus")" "$(field first_step_s < "$tmp/peer")" \
            "$(field peak_gb < "$tmp/peer")" -
    done
}

peers() {
    case $1 in
    gpt2) set -- gpt2 bench/peers/torch_gpt2.py --compile ;;
    resnet50) set -- resnet50 bench/peers/torch_resnet50.py --compile ;;
    syncbn) set -- syncbn bench/peers/torch_resnet50.py --compile --syncbn ;;
    small) set -- small bench/peers/torch_small.py --compile reduce-overhead ;;
    esac
    [ "$python" = false ] && return
    name=$1
    shift
    peer "$name" 1 "$@"
    peer "$name" "$n" "$@"
}

# The keys of the layout that the planner takes for the best; fails where it names none.
best() {
    # shellcheck disable=SC2046,SC2086
    "$program" plan $(set -- $(job "$1"); shift; echo "model.name=gpt2 $*") $common \
        "train.batch=$(($(batch "$1") * n))" -n "$n" --device h200 --json \
        > "$tmp/plan" || return 1
    sed 's/.*"layouts": *\[{\([^}]*\)}.*/{\1}/' "$tmp/plan" > "$tmp/best"
    for key in tensor pipeline pipeline_chunks zero shards; do
        value=$(field $key < "$tmp/best")
        [ -n "$value" ] || return 1
        echo "parallel.$key=$value"
    done
}

# Models that need several GPUs, on all of them.
large() {
    # shellcheck disable=SC2086
    for wish in ${XL_ROWS-plan zero0 zero1 zero3 tensor}; do
        case $wish in
        plan)
            if keys=$(best "$1"); then
                tutti "$1" "$n" $keys
            else
                echo "gpus.sh: $1: tutti plan named no layout: its row is left out" >&2
            fi
            ;;
        zero*) tutti "$1" "$n" "parallel.zero=${wish#zero}" ;;
        tensor) [ $((20 % n)) -ne 0 ] || # 25 heads are no use to pieces
            tutti "$1" "$n" "parallel.tensor=$n" parallel.shards=1 model.heads=20 ;;
        esac
    done
    [ "$python" = false ] && return
    for kind in fsdp ddp; do
        timeout "$limit" "$python" -m torch.distributed.run --standalone --nproc_per_node "$n" \
            bench/peers/torch_gpt2_fsdp.py --compile --zero-like $kind --batch "$(batch "$1")" \
            > "$tmp/peer" 2> "$tmp/err" || tail -1 "$tmp/err" >&2
        row "$1" "torch compile $kind $n GPU" "$(field tok_s < "$tmp/peer")" - \
            "$(field first_step_s < "$tmp/peer")" "$(field peak_gb < "$tmp/peer")" -
    done
}

[ $# -gt 0 ] || set -- comm gpt2 resnet50 syncbn small gpt2-xl
for workload; do
    if [ "$workload" = comm ]; then
        "$program" bench comm --devices -n "$n" --max 1G
        continue
    fi
    if [ "$workload" = gpt2-xl ]; then
        large gpt2-xl
        continue
    fi
    tutti "$workload" "$n" > /dev/null # cards slow down as they grow warm
    tutti "$workload" 1
    tutti "$workload" 1 "parallel.devices=$((n - 1))" # cards differ, and the slowest is waited for
    tutti "$workload" "$n"
    tutti "$workload" "$n" parallel.place=processes
    tutti "$workload" "$n" parallel.mode=fast
    [ "$workload" != gpt2 ] || tutti gpt2 "$n" parallel.zero=1
    peers "$workload"
done
