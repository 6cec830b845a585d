"""device_layouts_slow_test.py - every kind of loss of a device in every layout, of which
device_layouts_test.py has some."""

import sys

import device_layouts_test
import runs


def test_every_loss():
    device_layouts_test.check_losses(
        {name: device_layouts_test.LOSSES for name in device_layouts_test.LAYOUTS})


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
