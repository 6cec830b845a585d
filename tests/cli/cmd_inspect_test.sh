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
expect 0 "bucket 0" job.yaml -n 2 --layout
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
expect 2 "there are 1; give at most" job.yaml -n 1 $loose
expect 0 "stage 0 to stage 1" job.yaml -n 2 parallel.pipeline=2 --layout
expect 0 "sums, gathers and scatters" job.yaml -n 2 parallel.tensor=2 --layout
for axis in pipeline tensor; do
  expect 0 "" job.yaml -n 4 parallel.$axis=2 --svg layout.svg
  [ "$(grep -c "<line" layout.svg)" = 4 ] || fail "layout.svg: 2 sums, 2 links"
done
expect 2 "fusion" job.yaml --after fusion
expect 0 "are data 1 x stages 2 x pieces 2" job.yaml -n 4 parallel.pipeline=2 parallel.tensor=2
expect 0 "stage 1 of 2, piece 0 of 1" job.yaml -n 2 parallel.pipeline=2 --worker 1
expect 0 "pipe.0" job.yaml -n 2 parallel.pipeline=2 --worker 1 --after stages
expect 2 "there are 0 to 1" job.yaml -n 2 parallel.pipeline=2 --worker 2
expect 2 "no value after --after" job.yaml --after
expect 2 "none.yaml" none.yaml
expect 2 "unknown key" job.yaml optimizer.lrr=1
expect 3 "/nowhere" job.yaml data.format=idx data.dir=/nowhere

"$TUTTI_PROGRAM" train job.yaml run.dir=run -q >/dev/null || fail "train"
expect 0 "fc1.weight" run
expect 0 "state.fc1.weight.exp_avg" run/checkpoints/step-000000002
expect 0 "fc1.weight" run/checkpoints/step-000000002/model.safetensors
model=run/checkpoints/step-000000002/model.safetensors
printf x | dd of="$model" bs=1 seek=900 conv=notrunc 2>/dev/null
expect 4 "model.safetensors" run
expect 4 "model.safetensors" run/checkpoints/step-000000002
expect 4 "" run/log
