#!/usr/bin/env python3
"""golden_models.py FOLDER [--tutti PROGRAM] [--form model.pt2|model.onnx|eval.onnx]... [NAME]...

Trains exported models and compares the losses with PyTorch's.  FOLDER holds one folder for each
model: the files of --form, one batch x.npy and y.npy, and golden.json with PyTorch's losses before
each of ten steps of SGD and of AdamW in f64 and f32, and the loss of an evaluation before training
(eval_loss).  Prints one line for each model and form: the largest relative deviation from the f64
losses, beside that of PyTorch's f32.  Fails if one is larger than max(1e-5, 10 times PyTorch's),
or than --limit.  --set adds a key to every job: --set parallel.devices=gpu trains on a GPU.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

OPTIMIZERS = {
    "sgd": ["optimizer.name=sgd", "optimizer.lr=0.05", "optimizer.momentum=0",
            "optimizer.weight_decay=0"],
    "adamw": ["optimizer.name=adamw", "optimizer.lr=1e-3", "optimizer.weight_decay=0.01"],
}
FORMS = ("model.pt2", "model.onnx", "eval.onnx")


def events(run, kind):
    with open(os.path.join(run, "metrics.jsonl")) as file:
        return [e for e in map(json.loads, file) if e["event"] == kind]


def deviation(got, want):
    if len(got) != len(want):
        return float("inf")
    return max(abs(x - y) / max(abs(y), 1e-30) for x, y in zip(got, want))


class Case:
    """One model in a temporary folder, with its batch as training and test split."""

    def __init__(self, program, folder, work, keys=()):
        self.program, self.folder, self.work = program, os.path.abspath(folder), work
        self.keys = list(keys)
        with open(os.path.join(folder, "golden.json")) as file:
            self.golden = json.load(file)
        os.makedirs(work)
        for split in ("train", "test"):
            for kind in ("x", "y"):
                shutil.copyfile(os.path.join(folder, kind + ".npy"),
                                os.path.join(work, "%s_%s.npy" % (kind, split)))
        self.rows = self.read_rows()

    def read_rows(self):
        with open(os.path.join(self.folder, "x.npy"), "rb") as file:
            head = file.read(256).decode("latin1")
        return int(head.split("'shape': (")[1].split(",")[0])

    def train(self, form, run, steps, *more):
        args = [self.program, "train", "model.file=" + os.path.join(self.folder, form),
                "data.format=npy", "data.dir=" + self.work, "train.batch=%d" % self.rows,
                "data.classes=%d" % self.golden["logits_shape"][-1], "train.steps=%d" % steps,
                "parallel.shards=1", "schedule.warmup_steps=0", "schedule.name=constant",
                "run.log_every=1", "run.dir=" + run, *self.keys, *more]
        result = subprocess.run(args, cwd=self.work, capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError("exit code %d: %s" % (result.returncode, result.stderr[-300:]))
        return os.path.join(self.work, run)

    def training(self, form, name):
        run = self.train(form, form + "-" + name, 10, *OPTIMIZERS[name])
        return deviation([e["loss"] for e in events(run, "step")], self.golden[name + "_f64"])

    def evaluation(self, form):
        """The weights stay: their rate is next to nothing, and that of running statistics too."""
        with open(os.path.join(self.folder, form), "rb") as file:
            bytes_ = file.read().replace(b"momentum\x15\x66\x66\x66\x3f",
                                         b"momentum\x15\xff\xff\x7f\x3f")
        with open(os.path.join(self.work, form), "wb") as file:
            file.write(bytes_)
        path = os.path.join(self.work, form)
        run = self.train(path, form + "-eval", 1, "optimizer.name=sgd", "optimizer.lr=1e-30",
                         "optimizer.momentum=0", "optimizer.weight_decay=0")
        return deviation([events(run, "end")[0]["loss"]], [self.golden["eval_loss"]])


def compare(case, form, limit):
    """Texts of one line, and whether all is well.  limit None: that of f32."""
    if form == "eval.onnx":
        own = case.evaluation(form)
        return ["eval %.1e" % own], own <= (limit or 1e-5)
    texts, good = [], True
    for name in OPTIMIZERS:
        theirs = deviation(case.golden[name + "_f32"], case.golden[name + "_f64"])
        own = case.training(form, name)
        good = good and own <= (limit or max(1e-5, 10 * theirs))
        texts.append("%s %.1e (PyTorch f32 %.1e)" % (name, own, theirs))
    return texts, good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tutti", default="tutti")
    parser.add_argument("--form", action="append", choices=FORMS)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--limit", type=float)
    args = parser.parse_intermixed_args()
    program = os.path.abspath(args.tutti) if os.path.sep in args.tutti else args.tutti
    counts = {}
    for form in args.form or FORMS:
        for name in args.names or sorted(os.listdir(args.folder)):
            folder = os.path.join(args.folder, name)
            if not os.path.exists(os.path.join(folder, form)):
                continue
            with tempfile.TemporaryDirectory() as work:
                try:
                    texts, good = compare(Case(program, folder, os.path.join(work, "d"), args.set),
                                          form, args.limit)
                except (RuntimeError, OSError, LookupError) as error:
                    texts, good = [str(error).strip()], False
            print("%-4s %-11s %-16s %s" % ("ok" if good else "FAIL", form, name, "  ".join(texts)),
                  flush=True)
            n_good, n = counts.get(form, (0, 0))
            counts[form] = (n_good + good, n + 1)
    for form, (n_good, n) in counts.items():
        print("%s: %d of %d" % (form, n_good, n))
    return 0 if all(g == n for g, n in counts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
