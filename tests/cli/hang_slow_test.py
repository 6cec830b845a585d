"""hang_slow_test.py - no false alarm: 100,000 small steps, and 5,000 while eight programs compute
beside them, of processes and of threads, are never reported as hanging or slow."""

import subprocess
import sys

import runs

LONG = ["train.epochs=1000000", "train.batch=16", "parallel.shards=2", "train.eval_every=500",
        "run.checkpoint_every=20000", "run.log_every=1000"]


def train(name, place, n_steps):
    ended = runs.tutti(*runs.small(name, "-n", "2", "parallel.place=" + place, *LONG,
                                   "train.steps=%d" % n_steps), timeout_s=1800).expect(0)
    told = ended.out + ended.err
    assert "no progress" not in told and "is slow" not in told, told


def test_no_false_alarm():
    for place in "processes", "threads":
        train(place, place, 100000)


def test_no_false_alarm_at_load_8():
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    try:
        for place in "processes", "threads":
            train("load-" + place, place, 5000)
    finally:
        for process in load:
            process.kill()
            process.wait()


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
