#!/usr/bin/env python3
"""golden_layouts.py FOLDER [--tutti PROGRAM] [--steps N] [NAME]...

Trains each exported model of FOLDER (golden_models.py describes it) on every layout of workers, and
compares the hash of the final parameters: W = 1, 2, 4 replicas of 4 shards, as threads and as
processes, with the optimizer's state and the parameters whole (replicas), in parts (ZeRO-3), and
with the model cut into a pipeline of 2 stages on 2 W workers.  Prints one line for each model; fails
if a model has more than one hash.
"""

import argparse
import os
import sys
import tempfile

from golden_models import Case, OPTIMIZERS, events

SHARDS = 4


def layouts():
    """The name and the arguments of each layout."""
    for place in ("threads", "processes"):
        for n in (1, 2, 4):
            keys = ["parallel.place=" + place]
            yield "replicas %d %s" % (n, place), keys + ["-n", str(n)]
            if n > 1:
                yield "zero3 %d %s" % (n, place), keys + ["-n", str(n), "parallel.zero=3"]
            yield ("pipeline 2x%d %s" % (n, place),
                   keys + ["-n", str(2 * n), "parallel.pipeline=2"])


def hashes(case, form, optimizer, steps):
    """The layouts of each hash, or of each message of a refusal."""
    found = {}
    for name, arguments in layouts():
        try:
            run = case.train(form, name.replace(" ", "-"), steps, "parallel.shards=%d" % SHARDS,
                             "train.clip_norm=0", "run.checkpoint_every=-1",
                             *OPTIMIZERS[optimizer], *arguments)
            result = events(run, "end")[0]["params_hash"]
        except RuntimeError as error:
            result = str(error).strip().splitlines()[-1]
        found.setdefault(result, []).append(name)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tutti", default="tutti")
    parser.add_argument("--form", default="model.pt2")
    parser.add_argument("--optimizer", default="adamw", choices=sorted(OPTIMIZERS))
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_intermixed_args()
    program = os.path.abspath(args.tutti) if os.path.sep in args.tutti else args.tutti
    n_good, names = 0, args.names or sorted(os.listdir(args.folder))
    for name in names:
        with tempfile.TemporaryDirectory() as work:
            case = Case(program, os.path.join(args.folder, name), os.path.join(work, "d"))
            found = hashes(case, args.form, args.optimizer, args.steps)
        n_good += len(found) == 1
        print("%-4s %-16s" % ("ok" if len(found) == 1 else "FAIL", name),
              "; ".join("%s: %s" % (result, "all %d layouts" % len(where) if len(found) == 1
                                    else ", ".join(where)) for result, where in found.items()),
              flush=True)
    print("%d of %d models have one hash" % (n_good, len(names)))
    return 0 if n_good == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
