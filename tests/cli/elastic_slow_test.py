"""elastic_slow_test.py - bench/elastic_kills.py, 500 kills each of replicas and of ZeRO-1: every
step is recorded once, and the final hash is that of an undisturbed run."""

import os
import subprocess
import sys

import runs

BENCH = os.path.join(os.environ["TUTTI_SOURCE"], "bench/elastic_kills.py")


def kill(*arguments):
    ended = subprocess.run([sys.executable, BENCH, "--tutti", runs.PROGRAM, "--seed",
                            str(runs.SEED), *arguments], stdout=subprocess.PIPE, text=True)
    print(ended.stdout)
    assert ended.returncode == 0


def test_replicas():
    kill("--kills", "500")


def test_zero():
    kill("--kills", "500", "parallel.zero=1")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
