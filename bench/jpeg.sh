#!/bin/sh
# jpeg.sh - images per second of training from JPEG files, from packed images and from random ones.
#
# Usage: bench/jpeg.sh [-n WORKERS] [ROW...]        (random packed jpeg; all unless named)
#
# The images are synthetic (bench/jpegs.c) and lie in tar archives, as WebDataset names them; `tutti
# data pack` decodes and resizes them once for the row packed.  The row jpeg reads, decodes, crops
# and resizes them in every step.  Shares are of the row random of the same call.
#
# Environment: TUTTI, the program; DEVICES=cpu trains on the CPU; MODEL, BATCH of each worker, STEPS,
# IMAGES, SIDE of an image in pixels, SIZE of the model's input; THREADS, loader threads of a worker
# (all cores are divided unless given); KEYS, more key=value; FOLDER keeps what is made there, and
# uses what is there.
set -eu
cd "$(dirname "$0")/.."
program=${TUTTI:-build/tutti}
devices=${DEVICES:-gpu}
model=${MODEL:-resnet50} batch=${BATCH:-256} steps=${STEPS:-100} images=${IMAGES:-16384}
side=${SIDE:-500} size=${SIZE:-224}
n=1
[ "$devices" = cpu ] || n=$("$program" doctor --quick | grep -c '^  device ' || true)
[ "${1:-}" = -n ] && n=$2 && shift 2
[ "$n" -ge 1 ] || { echo "jpeg.sh: no GPU; DEVICES=cpu trains on the CPU" >&2 && exit 1; }
cores=$(nproc)
threads=${THREADS:-$((cores / n > 64 ? 64 : cores / n > 0 ? cores / n : 1))}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
folder=${FOLDER:-$tmp}
mkdir -p "$folder"

now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN {printf "%.1f", b - a}'; }
field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([0-9.]*\).*/\1/p" | tail -1; }
fail() { tail -3 "$tmp/err" >&2 && exit 1; }

make_jpegs() {
    [ ! -d "$folder/jpeg" ] || return 0
    start=$(now)
    ${CC:-cc} -O2 -o "$tmp/jpegs" bench/jpegs.c -ljpeg -lm
    mkdir -p "$folder/making"
    "$tmp/jpegs" "$folder/making" "$images" 100 16 "$side"
    mv "$folder/making" "$folder/jpeg"
    echo "$images JPEG files, $(du -sm "$folder/jpeg" | cut -f1) MB, made in $(since "$start") s"
}

pack() {
    make_jpegs
    [ ! -d "$folder/packed" ] || return 0
    start=$(now)
    "$program" data pack "model.name=$model" data.format=tar "data.dir=$folder/jpeg" \
        "data.image_size=$size" "data.threads=$threads" --out "$folder/packing" \
        > "$tmp/out" 2> "$tmp/err" || fail
    mv "$folder/packing" "$folder/packed"
    echo "packed: $(du -sm "$folder/packed" | cut -f1) MB in $(since "$start") s"
}

# row NAME KEY...: one row of the table; sets rate.
row() {
    name=$1
    shift
    # shellcheck disable=SC2086
    "$program" bench train "$model" "parallel.devices=$devices" "parallel.workers=$n" \
        "parallel.shards=$n" "train.batch=$((batch * n))" "train.steps=$steps" \
        "data.image_size=$size" "data.threads=$threads" data.prefetch=6 optimizer.name=sgd \
        optimizer.lr=0.1 run.log_every=5 "$@" ${KEYS:-} > "$tmp/line" 2> "$tmp/err" || fail
    rate=$(field per_s < "$tmp/line")
    [ "$name" != random ] || random=$rate
    share=$(awk -v a="$rate" -v b="${random:-0}" 'BEGIN {if (b > 0) printf "%.1f %%", 100 * a / b}')
    printf '%-7s %9s images/s  %8s of random  waits %s  threads %s x %s  hash %s\n' "$name" "$rate" \
        "${share:--}" "$(field wait_share < "$tmp/line")" "$n" "$threads" \
        "$(sed -n 's/.*"params_hash": *"\([0-9a-f]*\)".*/\1/p' "$tmp/line")"
}

precision="train.precision=bf16"
[ "$devices" != cpu ] || precision="train.precision=f32"
[ $# -gt 0 ] || set -- random packed jpeg
for kind; do
    case $kind in
    random) row random data.format=random_images data.n_test=256 "$precision" ;;
    packed)
        pack
        row packed data.format=packed "data.dir=$folder/packed" "$precision"
        ;;
    jpeg)
        make_jpegs
        row jpeg data.format=tar "data.dir=$folder/jpeg" "$precision"
        ;;
    *) echo "jpeg.sh: no row $kind: random, packed or jpeg" >&2 && exit 1 ;;
    esac
done
