"""cmd_eval_test.py - `tutti eval`: the figures of training again, as a table and as JSON; wrong
usage; TensorBoard's file beside them."""

import glob
import json
import os
import struct
import sys

import runs


def test_the_figures_of_training():
    runs.tutti(*runs.small("run", "-n", "2")).expect(0)
    end = [r for r in runs.records("run") if r["event"] == "end"][0]
    result = json.loads(runs.tutti("eval", "run", "--json").expect(0).out)
    assert result["accuracy"] == end["accuracy"], (result["accuracy"], end["accuracy"])
    assert abs(result["loss"] - end["loss"]) < 1e-9
    assert result["step"] == end["step"] and result["samples"] == 100
    assert sum(map(sum, result["confusion"])) == 100
    runs.tutti("eval", "run").expect(0, "accuracy    %.4f" % end["accuracy"], "confusion")
    fewer = json.loads(runs.tutti("eval", "run", "data.n_test=30", "--json").expect(0).out)
    assert fewer["samples"] == 30


def test_wrong_usage():
    runs.tutti(*runs.small("run")).expect(0)
    runs.tutti("eval").expect(2, "expected a run folder")
    runs.tutti("eval", "--help").expect(0, "usage: tutti eval RUN")
    runs.tutti("eval", "nowhere").expect(2, "nowhere/job.yaml")
    runs.tutti("eval", "run", "--jsn").expect(2, "unknown option '--jsn'")
    runs.tutti("eval", "run", "model.hidden=[3]").expect(4, "is of another model")
    runs.tutti("eval", "run", "model.hiden=[3]").expect(2, "did you mean")
    os.rename("run/checkpoints", "elsewhere")
    runs.tutti("eval", "run").expect(4, "no checkpoint")


def records(path):
    """The events of a file, without their checksums."""
    with open(path, "rb") as file:
        data = file.read()
    while data:
        size = struct.unpack("<Q", data[:8])[0]
        yield data[12:12 + size]
        data = data[16 + size:]


def test_event_file():
    runs.tutti(*runs.small("run")).expect(0)
    paths = glob.glob("run/events.out.tfevents.*")
    assert len(paths) == 1, paths
    events = list(records(paths[0]))
    assert b"brain.Event:2" in events[0]
    n_steps = sum(r["event"] == "step" for r in runs.records("run"))
    assert sum(b"train/loss" in e for e in events) == n_steps
    for tag in (b"train/accuracy", b"train/lr", b"perf/samples_per_s", b"test/accuracy"):
        assert any(tag in e for e in events), tag
    last = [e for e in events if b"test/loss" in e][-1]
    at = last.index(b"test/loss") + len(b"test/loss")
    loss = struct.unpack("<f", last[at + 1:at + 5])[0]
    end = [r for r in runs.records("run") if r["event"] == "end"][0]
    assert abs(loss - end["loss"]) < 1e-6 * abs(end["loss"]) + 1e-6


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
