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


def disturb_on_devices(seed, n_workers, *options):
    """No two processes may have the same device at once."""
    env = dict(os.environ, TUTTI_MODULE_PATH=os.path.join(runs.BUILD, "tests/modules/device"),
               TUTTI_TEST_DEVICE="devices=%d,alone=1" % n_workers)
    ended = runs.tutti("chaos", *JOB, *DEVICES, *options, "-n", str(n_workers), "--for", "1m",
                       "--seed", str(seed), "--out", "chaos-%d" % seed, env=env, timeout_s=900)
    ended.expect(0, "faults in ", "all have hash ")


def test_disturbed_runs_on_devices():
    """Replicas and partitions; stages and tensor shards."""
    disturb_on_devices(8, 3)
    disturb_on_devices(9, 3, "parallel.zero=1")
    disturb_on_devices(10, 4, "parallel.pipeline=2")
    disturb_on_devices(11, 4, "parallel.tensor=2", "parallel.zero=2")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
