"""device_profile_test.py - `tutti profile` of models that devices divide between them, on a machine
without any: by the module of tests/backend/modules/device_module.c.  What takes longer:
device_profile_slow_test.py."""

import os
import sys

import runs
from profiles import count, lies_in, profile_devices


def test_pieces_of_layers():
    """Exchanges are made in a queue of their own, in the recorded step."""
    _, traffic, rows = profile_devices(2, "parallel.tensor=2")
    spans, ms, hidden = traffic["TP collectives"]
    if spans < 8 or hidden > ms:
        raise AssertionError(str(traffic))
    for each in rows:
        collectives = [s for s in each["TP collectives"] if "layer" in s["args"]]
        kernels = each["device: kernels"]
        if len(collectives) != 2 * spans or count(kernels, "update") != 2:
            raise AssertionError("%d collectives, %s" % (len(collectives), spans))
        if any(s["args"].get("kernel") == "collective" for s in kernels):
            raise AssertionError("a collective counts as a kernel")


def test_stages():
    """Parts lie over their kernels; what comes and goes has rows too; nothing is mixed up with the
    moments that the stages' own measure takes."""
    out, traffic, rows = profile_devices(2, "parallel.pipeline=2")
    if "stages waited for each other" not in out or traffic["values between stages"][0] < 1:
        raise AssertionError(out)
    for each in rows:
        segments, kernels = each["segments of the stage"], each["device: kernels"]
        if count(segments, "forward") != 8 or count(segments, "backward") != 8:
            raise AssertionError("segments: %s" % segments)
        nodes = [s for s in kernels if "layer" in s["args"]]
        if not nodes or not all(lies_in(s, segments) for s in nodes):
            raise AssertionError("kernels outside of segments")
        if count(kernels, "waiting for another stage") != 16:
            raise AssertionError("not before each part")
        if count(each["values to other stages"], "send to another stage") != 8:
            raise AssertionError("not one of each part that sends: %s" % list(each))
        if count(kernels, "all_reduce of shared gradients") != 2:
            raise AssertionError("no sums of what both stages have")


def test_parts_by_way_of_the_host():
    """Parameters of others come to the host once a step where these are partitioned, and not where
    averages alone are fetched.  A row has spans by the clock of the device and by that of the host,
    which go together however long a thread is held up between looks at the two."""
    for zero, n in ((2, 0), (3, 1)):
        _, _, rows = profile_devices(2, "-n", "2", "parallel.zero=%d" % zero, "train.ema=0.9",
                                     says="devices=4,pause=50")
        for each in rows:
            if count(each["device: kernels"], "own parameters to the host") != 2 * n:
                raise AssertionError("zero=%d: %s" % (zero, each["device: kernels"]))
            names = [s["name"] for s in each["sums between workers"] if "parameters" in s["name"]]
            if n and names[:2] != ["all_gather of parameters", "parameters to the device"]:
                raise AssertionError("they reach the device before they reach the host: %s" %
                                     names)


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
