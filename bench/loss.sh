#!/bin/sh
# loss.sh - does GPT-2 learn as in PyTorch?  200 steps of GPT-2 124M on the bytes of a text, three
# seeds each: the loss of the first step, of step 101, and the mean of the last 20.
#
# Usage: bench/loss.sh TEXT       (a GPU; TUTTI names the program, PYTHON one that has torch; WISHES
#        are further assignments for Tutti's side, such as train.low_precision_residual=true)
set -eu
cd "$(dirname "$0")/.."
program=${TUTTI:-build/tutti}
python=${PYTHON:-python3}
text=${1:?"usage: bench/loss.sh TEXT"}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

figures='
import json, sys
steps = [r for r in map(json.loads, open(sys.argv[1])) if r["event"] == "step"]
losses = [r["loss"] for r in steps]
print(json.dumps({"first": losses[0], "middle": losses[len(losses) // 2],
                  "last": sum(losses[-20:]) / 20}))'

"$program" data pack --text "$text" --tokenizer bytes --out "$tmp/tokens" > "$tmp/out"
for seed in 1 2 3; do
    # shellcheck disable=SC2086
    "$program" train model.name=gpt2 model.size=124M model.context=1024 \
        data.format=tokens "data.dir=$tmp/tokens" data.vocabulary=50304 data.context=1024 \
        train.batch=8 train.steps=200 train.precision=bf16 train.clip_norm=1 train.eval_every=0 \
        "train.seed=$seed" optimizer.name=adamw optimizer.lr=3e-4 optimizer.beta2=0.95 \
        optimizer.weight_decay=0.1 parallel.devices=gpu parallel.workers=1 run.log_every=1 \
        run.checkpoint_every=-1 run.text_samples=0 "run.dir=$tmp/$seed" ${WISHES:-} -q > "$tmp/out"
    echo "tutti $seed $("$python" -c "$figures" "$tmp/$seed/metrics.jsonl")"
    rm -rf "${tmp:?}/$seed"
done
for seed in 1 2 3; do
    echo "torch $seed $("$python" bench/peers/torch_gpt2_loss.py "$text" --seed $seed)"
done
