"""cmd_bench_data_test.py - `tutti bench data`: figures of every stage, as a table and as JSON, and
the share of the time that training waits."""

import json
import os
import sys

import runs

SHORT = ["data.n_train=200", "data.n_test=20", "train.batch=32", "--ms", "50"]


def test_json():
    ended = runs.tutti("bench", "data", *SHORT, "--json", "--threads", "2", "-n", "1").expect(0)
    figures = json.loads(ended.out)
    if (figures["n_samples"], figures["n_threads"], figures["n_skipped"]) != (200, 2, 0):
        raise AssertionError(ended.out)
    if figures["sample_bytes"] != 784 or figures["decode_per_s"] != 0:
        raise AssertionError(ended.out)
    if not all(figures[key] > 0 for key in ("read_per_s", "steps_per_s", "thread_per_s",
                                            "loader_per_s", "train_per_s")):
        raise AssertionError(ended.out)
    if figures["n_workers"] != 1 or not 0 < figures["wait_share"] < 1:
        raise AssertionError(ended.out)


def test_table():
    ended = runs.tutti("bench", "data", *SHORT).expect(0)
    words = [line.split()[0] for line in ended.out.splitlines() if not line.startswith("#")]
    if words != ["read", "steps", "together", "loader", "training"]:
        raise AssertionError(ended.out)
    ended.expect(0, "# training by ", " waited for data ")
    left = [name for name in os.listdir(".") if name not in ("out", "err")]
    if left:
        raise AssertionError("left behind: %s" % left)


def test_without_training():
    ended = runs.tutti("bench", "data", *SHORT, "--no-training").expect(0)
    if "training by" in ended.out or "measured" in ended.out:
        raise AssertionError(ended.out)
    ended = runs.tutti("bench", "data", *SHORT, "model.name=gpt2").expect(
        0, "loader", "# training was not measured: gpt2: needs tokens")
    if "training by" in ended.out:
        raise AssertionError(ended.out)


def test_usage():
    runs.tutti("bench", "data", "--help").expect(0, "usage: tutti bench data")
    runs.tutti("bench", "data", "--threads", "none").expect(2, "expected a number")
    runs.tutti("bench", "data", "data.formt=idx").expect(2, "unknown key")
    runs.tutti("bench", "data", "data.format=images", "data.dir=/nowhere").expect(3, "/nowhere")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
