"""device_layouts_slow_test.py - every kind of loss of a device in every layout, and every order of
what is put into queues, of which device_layouts_test.py has some."""

import sys

import device_layouts_test
import runs


def test_every_loss():
    device_layouts_test.check_losses(
        {name: device_layouts_test.LOSSES for name in device_layouts_test.LAYOUTS})


def all_late(kind, test):
    device_layouts_test.LATE[kind] = range(4)
    test()


def test_every_order_in_layers():
    all_late("shards", device_layouts_test.test_tensor_shards_between_devices)


def test_every_order_of_norms():
    all_late("norms", device_layouts_test.test_norms_between_collectives)


def test_every_order_of_stages():
    all_late("stages", device_layouts_test.test_stages_between_devices)


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
