"""device_elastic_hosts_test.py - elastic runs on devices of several hosts, on a machine without any
(device_module.c): workers and hosts are killed and join again, with the bits of an undisturbed run
on CPUs.  Each host has devices of its own, which no two processes may have at once."""

import signal
import sys

import device_elastic_replicas_test
import device_elastic_test
import runs
from elastic_hosts_test import Hosts

JOB = [*device_elastic_test.JOB, "parallel.min_workers=1"]


class DeviceHosts(Hosts):
    """Two devices for each host; kinds: of the last one of a host."""

    def __init__(self, *arguments, kinds=None, **more):
        self.kinds = kinds or {}
        super().__init__(*arguments, **more)

    def start(self, node):
        self.more["TUTTI_MODULE_PATH"] = device_elastic_test.MODULE
        self.more["TUTTI_TEST_DEVICE"] = "devices=2,alone=1,first=%d%s" % (
            2 * node, self.kinds.get(node, ""))
        return super().start(node)


def check_hosts(folder, *options, layout=()):
    """A worker of the second host is lost and comes back, then the second host, which joins again,
    then the one that leads."""
    expected = device_elastic_replicas_test.undisturbed(*layout)
    run = DeviceHosts(folder, "2,2", *JOB, "run.restarts=1", *layout, *options, delay_ms=10)
    run.wait_for(20)
    run.kill_worker(1, 0)
    runs.wait_until(lambda: run.starts()[-1][0] == 4 and len(run.starts()) > 1 or
                    run.processes[0].poll() is not None, what="four workers again")
    run.kill(1)
    run.wait_for_workers(2)
    run.join(1)
    run.wait_for_workers(4)
    run.wait_for(run.step() + 5)
    run.first = 1
    run.kill(0)
    assert run.end() == [-signal.SIGKILL, 0], run.texts()
    run.check(expected)
    steps = [step for _, step in run.starts()]
    assert steps == sorted(steps) and 0 < steps[1], steps  # none began at a checkpoint


def test_replicas():
    check_hosts("replicas")


def test_partitions():
    check_hosts("partitions", "parallel.zero=1")


def test_stages():
    check_hosts("stages", "parallel.sync=parameter-server", layout=["parallel.pipeline=2"])


def test_hosts_with_other_devices_are_refused():
    run = DeviceHosts("refused", "2,2", *JOB, kinds={1: ",stack=2"})
    assert run.processes[1].wait(runs.HANGS_S) == 2, run.texts()
    run.kill(0)
    assert "stack 2" in run.text(1) and "use one kind" in run.text(1), run.texts()


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
