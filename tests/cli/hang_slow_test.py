"""hang_slow_test.py - no false alarm: a million small steps, and 20 s of training while eight
programs compute beside it, of processes and of threads, are never reported as hanging or slow."""

import signal
import subprocess
import sys
import time

import runs

LOADED_S = 20
LONG = ["train.epochs=1000000", "train.batch=16", "parallel.shards=2", "train.eval_every=500",
        "run.checkpoint_every=20000", "run.log_every=1000"]


def begin(name, place, n_steps):
    return runs.start(*runs.small(name, "-n", "2", "parallel.place=" + place, *LONG,
                                  "train.steps=%d" % n_steps))


def end(process, code):
    ended = runs.finish(process, timeout_s=1800).expect(code)
    seen = ended.out + ended.err
    assert "no progress" not in seen and "is slow" not in seen, seen


def test_no_false_alarm():
    for place in "processes", "threads":
        end(begin(place, place, 500000), 0)


def test_no_false_alarm_at_load_8():
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    try:
        for place in "processes", "threads":
            name = "load-" + place
            process = begin(name, place, 100000000)
            runs.wait_until(lambda n=name: runs.steps_reported(n) > 0, what="steps")
            begin_s = time.monotonic()
            runs.wait_until(lambda p=process, s=begin_s: p.poll() is not None or
                            time.monotonic() - s > LOADED_S, what="the end of the load")
            process.send_signal(signal.SIGTERM)
            end(process, 143)
    finally:
        for process in load:
            process.kill()
            process.wait()


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
