"""cmd_demo_test.py - `tutti demo` in small: two runs, the same bits, and it says so."""

import os
import sys

import runs

TINY = ["model.name=mlp", "model.hidden=[16]", "data.n_train=400", "data.n_test=50",
        "train.epochs=1"]


def test_two_runs_one_hash():
    ended = runs.tutti("demo", *TINY).expect(0, "The same bits from 1 and ", "speed-up")
    rows = [line.split() for line in ended.out.splitlines() if "runs/" in line]
    if len(rows) != 2 or rows[0][0] != "1" or int(rows[1][0]) < 2:
        raise AssertionError(ended.out)
    hashes = [runs.records(row[5])[-1]["params_hash"] for row in rows]
    if hashes[0] != hashes[1] or [row[4] for row in rows] != hashes or rows[0][3] != "1.00x":
        raise AssertionError("%s, in the runs %s" % (ended.out, hashes))
    if [runs.records(row[5])[0]["workers"] for row in rows] != [1, int(rows[1][0])]:
        raise AssertionError("other numbers of workers")


def test_usage():
    runs.tutti("demo", "--help").expect(0, "usage: tutti demo")
    runs.tutti("demo", "optimizer.lrr=1").expect(2, "optimizer.lrr: unknown key")
    if os.path.exists("runs"):
        raise AssertionError("left a folder")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
