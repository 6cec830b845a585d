"""tensorboard_slow_test.py - TensorBoard's own reader finds in the event files what metrics.jsonl
says: every scalar of every step, equal as a float, of a run that was continued too.

Skipped where tensorboard is not installed.  By hand, with a Python that has it:
    TUTTI_PROGRAM=build/tutti python3 tests/cli/tensorboard_slow_test.py
"""

import logging
import os
import struct
import sys

import runs

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print("skipped: %s; pip install tensorboard" % error)
    sys.exit(77)

STEP = {"train/loss": "loss", "train/accuracy": "accuracy", "train/lr": "lr",
        "perf/samples_per_s": "samples_per_s"}
EVAL = {"test/loss": "loss", "test/accuracy": "accuracy"}


def as_float(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def reported(run, event, key):
    return [(r["step"], as_float(r[key])) for r in runs.records(run) if r["event"] == event]


def check(run, n_steps):
    reader = EventAccumulator(run, size_guidance={"scalars": 0})
    reader.Reload()
    tags = set(reader.Tags()["scalars"])
    if tags != set(STEP) | set(EVAL):
        raise AssertionError("tags %s" % sorted(tags))
    for event, keys in (("step", STEP), ("eval", EVAL)):
        for tag, key in keys.items():
            found = [(s.step, s.value) for s in reader.Scalars(tag)]
            wanted = reported(run, event, key)
            if found != wanted:
                raise AssertionError("%s: %s instead of %s" % (tag, found[:5], wanted[:5]))
    if len(reader.Scalars("train/loss")) != n_steps:
        raise AssertionError("%d steps" % len(reader.Scalars("train/loss")))
    times = [r["time"] for r in runs.records(run) if r["event"] == "step"]
    for scalar, time in zip(reader.Scalars("train/loss"), times):
        if abs(scalar.wall_time - time) > 1:
            raise AssertionError("a step at %f, which was at %f" % (scalar.wall_time, time))


def test_scalars():
    runs.tutti(*runs.small("run", "-n", "2")).expect(0)
    check("run", 40)


def test_a_run_of_two_parts():
    runs.tutti(*runs.small("run", "-n", "2", "parallel.place=processes")).expect(0)
    runs.tutti("train", "--resume", "run", "train.steps=60").expect(0)
    check("run", 60)


def test_a_run_that_lost_its_newest_checkpoint():
    """Steps 37 to 40 are repeated, and TensorBoard shows each once."""
    runs.tutti(*runs.small("run")).expect(0)
    runs.shutil.rmtree("run/checkpoints/step-000000040")
    runs.tutti("train", "--resume", "run").expect(0)
    check("run", 40)
    runs.tutti("train", "--resume", "run").expect(0)
    check("run", 40)


def test_damage_is_seen():
    """Only a reader that looks at the checksums says anything about the rest."""
    runs.tutti(*runs.small("run")).expect(0)
    name = [n for n in os.listdir("run") if n.startswith("events.out")][0]
    with open("run/" + name, "r+b") as file:
        file.seek(60)
        byte = file.read(1)[0]
        file.seek(60)
        file.write(bytes([byte ^ 1]))
    logging.disable(logging.CRITICAL)
    try:
        check("run", 40)
    except Exception:
        return
    raise AssertionError("a damaged file was read as if it were whole")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
