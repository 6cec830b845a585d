# cmd_inspect_test.sh - tutti inspect: jobs, graphs after passes, runs and checkpoints.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
fail() {
    echo "cmd_inspect_test: $*" >&2
    exit 1
}

# expect CODE PART ARGUMENT...: exit code, and a part of the output.
expect() {
    want_code=$1 part=$2
    shift 2
    out=$("$TUTTI_PROGRAM" inspect "$@" 2>&1)
    code=$?
    [ "$code" -eq "$want_code" ] || fail "$*: exit code $code instead of $want_code: $out"
    case $out in *"$part"*) ;; *) fail "$*: no '$part' in: $out" ;; esac
}

cat >job.yaml <<'YAML'
model: {name: mlp, hidden: [16]}
data:  {n_train: 200, n_test: 20}
train: {batch: 32, steps: 2}
parallel: {workers: 1, shards: 4}
YAML
expect 0 "usage: tutti inspect" --help
expect 0 "shard program of mlp: 8 rows, 4 shards per step" job.yaml
expect 0 "activations, peak" job.yaml
expect 0 "16 rows, 2 shards" job.yaml parallel.shards=2
expect 0 "reference" job.yaml --backend reference
expect 0 "shard program of lenet"
expect 0 "cross_entropy" job.yaml --after none
expect 0 "_grad" job.yaml --after autodiff
expect 0 "worker 1    shards 2..3" job.yaml -n 2 --layout
# As a run would: a worker for each core that this program may use.
cores=$(nproc)
[ "$cores" -gt 4 ] || expect 0 ": $cores workers, batch 32" job.yaml parallel.workers=auto --layout
expect 0 "bucket 0" job.yaml -n 2 --layout
gpt="model.name=gpt2 model.layers=2 model.heads=2 model.width=32 data.context=16"
gpt="$gpt data.format=random_tokens data.vocabulary=64"
expect 0 " (add)" job.yaml -n 2 $gpt --layout # after a step without a name
expect 0 "" job.yaml -n 2 --svg layout.svg
grep -q "<text[^>]*>worker 1</text>" layout.svg || fail "layout.svg lacks worker 1"
python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' layout.svg || fail "layout.svg"
expect 1 "/nowhere/a.svg" job.yaml --svg /nowhere/a.svg
server="parallel.sync=parameter-server parallel.servers=2"
loose="$server parallel.mode=fast parallel.staleness=4 parallel.place=processes"
expect 0 "worker 1   12560 elements from 176" job.yaml -n 3 $loose --layout
expect 0 "MiB each way" job.yaml -n 3 $server --layout
expect 0 "each of  2 servers" job.yaml -n 3 $loose
expect 0 "the server, peak" job.yaml -n 3 $server
expect 2 "there are only 1; give at most" job.yaml -n 1 $loose
expect 0 "stage 0 to stage 1" job.yaml -n 2 parallel.pipeline=2 --layout
expect 0 "sums, gathers and scatters" job.yaml -n 2 parallel.tensor=2 --layout
expect 0 "2 workers of stage 1, of each tensor shard, in the order" \
    job.yaml -n 8 parallel.pipeline=2 \
    parallel.tensor=2 --layout
[ "$(echo "$out" | grep -c "sums between the 2 workers of stage")" = 2 ] || fail "sums: $out"
expect 0 "sums between the 2 workers, in the order" job.yaml -n 2 --layout
for axis in pipeline tensor; do
  expect 0 "" job.yaml -n 4 parallel.$axis=2 --svg layout.svg
  [ "$(grep -c "<line" layout.svg)" = 4 ] || fail "layout.svg: 2 sums, 2 links"
done
# expect_not PART ARGUMENT...: success, and nothing of the kind in the output.
expect_not() {
    absent=$1
    shift
    expect 0 "" "$@"
    case $out in *"$absent"*) fail "$*: '$absent' in: $out" ;; esac
}
# drawn PART ARGUMENT...: the SVG is XML and has the part.
drawn() {
    shown=$1
    shift
    expect 0 "" "$@" --svg layout.svg
    python3 -c 'import xml.dom.minidom as x; x.parse("layout.svg")' || fail "$*: layout.svg"
    grep -q -- "$shown" layout.svg || fail "$*: no '$shown' in $(cat layout.svg)"
}
local="-n 2 parallel.mode=fast parallel.sync=local parallel.average_every=3"
expect_not "bucket" job.yaml $local --layout
expect 0 "every 3 steps all 2 average their parameters" job.yaml $local --layout
expect 0 "  0.049 MiB, and nothing between" job.yaml $local --layout
expect 0 "  0.146 MiB, and nothing" job.yaml $local parallel.average=all --layout
expect 0 "backward pass, in the steps before" job.yaml $local parallel.average_after=5 --layout
drawn "red: the mean of parameters, every 3 steps<" job.yaml $local
packed="-n 2 parallel.mode=fast parallel.compress"
for type in f16 bf16; do
    expect 0 "compressed by $type: 0.024 MiB of 0.049" job.yaml $packed=$type --layout
    expect 0 "bucket 0      0.024 MiB" job.yaml $packed=$type --layout
    drawn "red: sums of gradients by $type<" job.yaml $packed=$type
    drawn '>0.02<' job.yaml $packed=$type
done
# 16-bit partial sums of exact mode
expect 0 "compressed by bf16: 0.024 MiB of 0.049" job.yaml -n 2 parallel.wire=bf16 --layout
expect 0 "data axis, tree, 16 bits" job.yaml -n 2 parallel.wire=bf16 --layout --worker 0
# 126 of the 12,544 weights of fc1 and 2 of the 160 of out as pairs, 26 elements of bias
expect 0 "bucket 0      0.001 MiB" job.yaml $packed=topk parallel.topk=0.01 --layout
# of rank 2: 2 (784 + 16) and 2 (16 + 10) elements, 26 of bias
expect 0 "bucket 0      0.006 MiB" job.yaml $packed=powersgd parallel.rank=2 --layout
expect 0 "first 7 steps are not compressed" job.yaml $packed=topk parallel.compress_after=7 --layout
threads="-n 2 parallel.sync=parameter-server parallel.servers=3"
expect 0 "thread 2   12560 elements from 176  parameters 0.05 MiB  state 0.10" job.yaml $threads \
    --layout
drawn ">server, thread 2<" job.yaml $threads
drawn ">state: at the server<" job.yaml $threads
[ "$(grep -c "<line" layout.svg)" = 5 ] || fail "layout.svg: 2 workers and 3 threads on a rail"
drawn ">server, worker 1<" job.yaml -n 3 $loose
expect 0 "the first 2 workers are the servers" job.yaml -n 3 $server parallel.place=processes \
    --layout


# Traffic between distant stages: from the last to the first, and for a table that two stages have.
chunks="parallel.workers=4 parallel.pipeline=4 parallel.pipeline_chunks=2"
drawn 'stroke="#2563eb"[^>]*fill="none"' job.yaml $chunks model.hidden=[16,16,16,16,16,16,16]
[ "$(grep -c "<path" layout.svg)" = 1 ] || fail "layout.svg: one line past neighbours"
tied="model.name=gpt2 model.layers=1 model.heads=1 model.width=16 data.format=random_tokens"
tied="$tied data.vocabulary=256 data.context=8 parallel.workers=4 parallel.pipeline=2"
drawn "violet: a parameter of several stages" $tied
[ "$(grep -c "<path[^>]*#9333ea" layout.svg)" = 2 ] || fail "layout.svg: a line for each copy"
grep -q ">0.02</text>" layout.svg || fail "layout.svg: 256 words of 16 floats"

# Shared parameters, replicas on other hosts, and collectives inside a step.
expect 0 "the 2 threads share one copy of parameters and state" job.yaml -n 2 --layout
drawn "for the copy that all threads share" job.yaml -n 2
expect_not "one copy" job.yaml -n 2 parallel.copies=each --layout
expect_not "averages" job.yaml -n 2 --layout
expect 0 "averages 0.02" job.yaml -n 2 train.ema=0.9 --layout
joined="model.plugin=$TUTTI_BUILD/tests/modules/narrow_resnet.so data.format=random_images"
joined="$joined data.image_size=12 parallel.shards=4 -n 2 parallel.sync_batch_norm=true"
expect 0 "joined inside a step between the 2 workers: 20 values of all shards" $joined --layout
drawn "and values joined inside a step" $joined
host_program=$TUTTI_PROGRAM
mkdir device
cp "$TUTTI_PROGRAM" "$TUTTI_BUILD/tests/modules/device/tutti-cuda.so" device
TUTTI_PROGRAM=$PWD/device/tutti
expect 0 "state 0.00  gradients 0.10  activations 0.04  and at the host 0.15" job.yaml -n 2 \
    optimizer.name=sgd parallel.devices=gpu parallel.offload=optimizer --layout
drawn ">at the host 0.15 MiB<" job.yaml -n 2 optimizer.name=sgd parallel.devices=gpu \
    parallel.offload=optimizer
TUTTI_PROGRAM=$host_program
expect 2 "leave out --after" job.yaml --layout --after fuse
expect 0 "main     update          own blocks of" job.yaml -n 2 --layout --worker 1
expect 0 "between two averages" job.yaml -n 2 parallel.mode=fast parallel.sync=local \
    --layout --worker 1
expect 0 "all_gather      parameters, bucket 0" job.yaml -n 2 parallel.zero=3 --layout --worker 0
expect 2 "worker '2': there are 0 to 1" job.yaml -n 2 --layout --worker 2
expect 2 "worker '1x': there are 0 to 1" job.yaml -n 2 --layout --worker 1x
expect 2 "leave out --worker" job.yaml --svg layout.svg --worker 0

# On one core a micro-batch group is one shard.
cat >one_core.py <<'PY'
import os
import sys

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.execv(sys.argv[1], sys.argv[1:])
PY
staged="job.yaml parallel.workers=2 parallel.pipeline=2"
out=$(python3 one_core.py "$TUTTI_PROGRAM" inspect $staged --layout) || fail "one core: $out"
for order in "stage 0   F0 F1 B0 F2 B1 F3 B2 B3" "stage 1   F0 B0 F1 B1 F2 B2 F3 B3" "wait 20 %"; do
    case $out in *"$order"*) ;; *) fail "no '$order' in: $out" ;; esac
done
chunks="$staged model.hidden=[16,16,16] parallel.pipeline_chunks=2 parallel.shards=2"
expect 0 "2 stages of 2 chunks each (pipeline_chunks)" $chunks --layout
expect 0 "stage 0   F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0" $chunks --layout
expect 0 "stage 1   F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0" $chunks --layout
drawn "micro-batch groups of 1 shard, 2 chunks a stage" $chunks
[ "$(grep -c 'stroke-width="0.5"' layout.svg)" = 16 ] || fail "layout.svg: parts of the schedule"
expect 2 "fusion" job.yaml --after fusion
expect 0 "are data 1 x stages 2 x tensor 2" job.yaml -n 4 parallel.pipeline=2 parallel.tensor=2
expect 0 "stage 1 of 2, tensor shard 0 of 1" job.yaml -n 2 parallel.pipeline=2 --worker 1
expect 0 "pipe.0" job.yaml -n 2 parallel.pipeline=2 --worker 1 --after stages
expect 2 "there are 0 to 1" job.yaml -n 2 parallel.pipeline=2 --worker 2
expect 2 "no value after --after" job.yaml --after
expect 2 "none.yaml" none.yaml
expect 2 "unknown key" job.yaml optimizer.lrr=1
expect 3 "/nowhere" job.yaml data.format=idx data.dir=/nowhere

"$TUTTI_PROGRAM" train job.yaml run.dir=run -q >/dev/null || fail "train"
expect 0 "fc1.weight" run
expect 2 "RUN/job.yaml" run --layout
expect 2 "RUN/job.yaml" run --svg layout.svg
expect 0 "worker 0" run/job.yaml --layout
expect 0 "state.fc1.weight.exp_avg" run/checkpoints/step-000000002
expect 0 "fc1.weight" run/checkpoints/step-000000002/model.safetensors
model=run/checkpoints/step-000000002/model.safetensors
printf x | dd of="$model" bs=1 seek=900 conv=notrunc 2>/dev/null
expect 4 "model.safetensors" run
expect 4 "model.safetensors" run/checkpoints/step-000000002
expect 4 "" run/log
