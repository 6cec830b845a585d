#!/usr/bin/env python3
"""compress.py - what compressed gradients and local SGD send and learn: the table of
docs/parallelism.md.

Usage: bench/compress.py DATA [ROW...]
       DATA has the folders mnist (its four files) and tinyshakespeare (a text); TUTTI names the
       program (build/tutti), SEED another seed (1).  Without ROW all rows; names as in the table.

Two jobs on 4 workers of this machine, shards=4, with one learning rate for all rows: LeNet, 2
epochs of examples/mnist.yaml; a GPT of 2 layers, width 64 and context 64, 800 steps of
examples/shakespeare.yaml.  Bytes are those that one worker sends to others, a step in the mean.
Nothing is timed: any machine will do, busy or not; about a minute of a core for a row.
"""
import json, os, subprocess, sys, tempfile

PROGRAM = os.environ.get("TUTTI", "build/tutti")
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples")


def topk(share, *more):
    return ["parallel.compress=topk", "parallel.topk=%g" % share, *more]


def powersgd(rank):
    return ["parallel.compress=powersgd", "parallel.rank=%d" % rank]


def local(every, *more):
    return ["parallel.sync=local", "parallel.average_every=%d" % every, *more]


ROWS = {
    "none": [],
    "bf16": ["parallel.wire=bf16"],
    "f16": ["parallel.compress=f16"],
    "powersgd-2": powersgd(2),
    "powersgd-4": powersgd(4),
    "powersgd-8": powersgd(8),
    "topk-0.01": topk(0.01),
    "topk-0.01-after": topk(0.01, "parallel.compress_after=100"),
    "topk-0.1": topk(0.1),
    "topk-0.1-after": topk(0.1, "parallel.compress_after=100"),
    "local-8": local(8),
    "local-8-all": local(8, "parallel.average=all"),
    "local-32": local(32),
}
JOBS = {
    "mnist": ["mnist.yaml", "train.epochs=2"],
    "tinyshakespeare": ["shakespeare.yaml", "model.layers=2", "model.width=64", "data.context=64",
                        "train.steps=800", "run.text_samples=0"],
}


def train(data, name, keys):
    """The last record of a run: mean bytes of a step, loss, accuracy."""
    example, *job = JOBS[name]
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run")
        subprocess.run([PROGRAM, "train", os.path.join(EXAMPLES, example), *job,
                        "data.dir=" + os.path.join(data, name), "run.dir=" + run, "-n", "4",
                        "parallel.devices=cpu", "parallel.shards=4", "parallel.mode=fast",
                        "parallel.place=threads", "run.checkpoint_every=-1",
                        "train.seed=" + os.environ.get("SEED", "1"), "-q", *keys],
                       check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            end = [json.loads(line) for line in file][-1]
    return end["sent_bytes"] / end["step"], end["loss"], end["accuracy"]


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    names = sys.argv[2:] or list(ROWS)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        sys.exit("no row %s; there are %s" % (" ".join(unknown), " ".join(ROWS)))
    print("| | MNIST KB | accuracy % | loss | GPT KB | loss |\n|---|---|---|---|---|---|")
    for name in names:
        digits = train(sys.argv[1], "mnist", ROWS[name])
        text = train(sys.argv[1], "tinyshakespeare", ROWS[name])
        print("| %s | %s | %.2f | %.4f | %s | %.3f |" % (
            name, format(round(digits[0] / 1e3), ","), 100 * digits[2], digits[1],
            format(round(text[0] / 1e3), ","), text[1]), flush=True)


if __name__ == "__main__":
    main()
