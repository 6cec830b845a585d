"""device_profile_slow_test.py - `tutti profile` on devices, as device_profile_test.py: by way of
the host, by processes, with a server, and with a device that is lost."""

import os
import sys

import runs
from profiles import GPT2, count, profile_devices

PROCESSES = "parallel.place=processes"


def test_host_staged():
    """Kernels stand still while the host has a collective."""
    host_staged, traffic, rows = profile_devices(2, "parallel.tensor=2", PROCESSES, says="")
    if "(waiting for a collective)" not in host_staged or "(values to the host)" not in host_staged:
        raise AssertionError(host_staged)
    if traffic["TP collectives"][0] < 8:
        raise AssertionError(str(traffic))


def test_stages_of_processes():
    out, traffic, rows = profile_devices(2, "parallel.pipeline=2", PROCESSES)
    if "stages waited for each other" not in out or traffic["values between stages"][0] < 1:
        raise AssertionError(out)
    for each in rows:
        if count(each["segments of the stage"], "forward") != 8:
            raise AssertionError("segments: %s" % each["segments of the stage"])


def test_server():
    """With a server nothing is recorded, and the step that is timed is the server's."""
    _, traffic, rows = profile_devices(2, "-n", "2", "parallel.sync=parameter-server")
    for each in rows:
        if count(each["device: kernels"], "waiting for the server") != 2:
            raise AssertionError(sorted(s["name"] for s in each["device: kernels"]))
        if count(each["server: for this worker"], "sum and update") != 2:
            raise AssertionError("no update")
    if traffic["parameters"][0] != 1:
        raise AssertionError(str(traffic))


def test_lost_device():
    """The cause comes through, from threads and from processes."""
    for place in ("parallel.place=threads", PROCESSES):
        runs.tutti("profile", *GPT2, "optimizer.name=sgd", "train.precision=f32", "-n", "2",
                   "parallel.devices=gpu", place,
                   env=dict(os.environ, TUTTI_TEST_DEVICE="lost=3")).expect(10, "illegal memory")


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
