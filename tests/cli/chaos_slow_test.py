"""chaos_slow_test.py - tutti chaos: runs that are disturbed for minutes end with the hash of one
that is not, on the host and on simulated devices (device_module.c)."""

import os
import sys

import runs

JOB = [*runs.SMALL, "train.steps=20000", "run.checkpoint_every=100", "data.n_train=512"]
DEVICES = ["parallel.devices=gpu", "train.precision=f32", "optimizer.name=sgd", "train.steps=6000"]


def test_disturbed_runs():
    ended = runs.tutti("chaos", *JOB, "-n", "3", "--for", "5m", "--seed", "7", timeout_s=900)
    ended.expect(0, "faults in ", "all have hash ")


def test_disturbed_runs_on_devices():
    """Replicas and partitions; no two processes may have the same device at once."""
    env = dict(os.environ, TUTTI_MODULE_PATH=os.path.join(runs.BUILD, "tests/modules/device"),
               TUTTI_TEST_DEVICE="devices=3,alone=1")
    for zero in 0, 1:
        ended = runs.tutti("chaos", *JOB, *DEVICES, "parallel.zero=%d" % zero, "-n", "3", "--for",
                           "1m", "--seed", str(8 + zero), "--out", "zero-%d" % zero, env=env,
                           timeout_s=900)
        ended.expect(0, "faults in ", "all have hash ")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
