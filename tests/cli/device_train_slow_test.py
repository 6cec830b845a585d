"""device_train_slow_test.py - every way to lose a device and every prediction of memory, of which
device_train_test.py has some."""

import sys

import device_train_test
import runs


def test_every_loss():
    device_train_test.check_losses(*device_train_test.LOSSES)


def test_every_memory():
    device_train_test.check_memory(*device_train_test.MEMORY)


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
