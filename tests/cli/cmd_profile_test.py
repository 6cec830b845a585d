"""cmd_profile_test.py - `tutti profile`: the table and the trace of a step, and nothing left."""

import json
import os
import re
import sys

import runs

JOB = ["model.name=mlp", "model.hidden=[32]", "data.n_train=200", "data.n_test=20",
       "train.batch=32", "parallel.shards=2"]


def test_table():
    ended = runs.tutti("profile", *JOB, "--steps", "2").expect(0, "linear", "cross_entropy")
    shares = [float(x) for x in re.findall(r"(\d+\.\d) ?%", ended.out)]
    if not shares or max(shares) > 100:
        raise AssertionError(ended.out)
    if os.path.exists("runs"):
        raise AssertionError("left: %s" % os.listdir("runs"))


def test_trace():
    """Spans of the trace follow each other, and each is a kernel with a name."""
    runs.tutti("profile", *JOB, "--trace", "trace.json").expect(0)
    with open("trace.json") as file:
        trace = json.load(file)
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    spans = [e for e in events if e["ph"] == "X"]
    if len(spans) < 5 or any(not e["name"] or e["dur"] < 0 for e in spans):
        raise AssertionError(str(events)[:2000])
    end = {}
    for span in sorted(spans, key=lambda e: e["ts"]):
        lane = (span["pid"], span["tid"])
        if span["ts"] < end.get(lane, 0) - 0.01:
            raise AssertionError("%s begins before the one before it ends" % span)
        end[lane] = span["ts"] + span["dur"]


def test_wrong_usage():
    runs.tutti("profile", "--help").expect(0, "usage: tutti profile")
    runs.tutti("profile", *JOB, "--steps", "0").expect(2, "--steps wants a number from 1 to 1000")
    runs.tutti("profile", *JOB, "--steps", "many").expect(2, "got 'many'")
    runs.tutti("profile", *JOB, "train.stesp=4").expect(2, "unknown key")
    runs.tutti("profile", *JOB, "--trace", "/nowhere/t.json").expect(1, "/nowhere/t.json")
    runs.tutti("profile", *JOB, "parallel.devices=gpu").expect(2, "no GPU can be used")
    runs.tutti("profile", "model.name=resnet18", "parallel.sync_batch_norm=true", "train.batch=4",
               "parallel.shards=2").expect(1, "parallel.sync_batch_norm=false")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
