"""elastic_hosts_parts_test.py - elastic runs with ZeRO and servers on 3 and 4 hosts, which are
killed or cut off with their partitions, also those that lead: the others have copies, or continue
from the last checkpoint, with the bits of an undisturbed run."""

import signal
import sys
import time

import hosts_test
import runs
from elastic_hosts_test import Hosts, inside, set_link
from elastic_test import LONG, hash_of

# Fewer steps than those of LONG, each of which takes long enough for a host to join.
STEPS = ["optimizer.name=adam", "train.steps=200", "run.checkpoint_every=45"]
ADAM = [*STEPS, "parallel.min_workers=1"]
DELAY_MS = 20


def undisturbed_adam():
    return hash_of(runs.train_once("adam", *LONG, *STEPS, "-n", "1"))


def check_parts(folder, expected, joins, *options):
    """A host is lost with its partitions: those of the others and copies of its own are left.  If
    joins, a new one joins and gets all, and then another host is lost."""
    run = Hosts(folder, "2,2,1", *ADAM, *options, delay_ms=DELAY_MS)
    run.wait_for(30)
    run.kill(1)
    run.wait_for_workers(3)
    if joins:
        run.join(1)
        run.wait_for_workers(5)
        run.wait_for(run.step() + 5)
        run.kill(2)
        run.wait_for_workers(4)
    assert run.end() == [0, *((0, -signal.SIGKILL) if joins else (-signal.SIGKILL, 0))], run.texts()
    run.check(expected, "adam")
    steps = [step for _, step in run.starts()]
    assert steps == sorted(steps) and 0 < steps[1], steps  # none began at a checkpoint


def test_partitions_of_a_lost_host():
    expected = undisturbed_adam()
    check_parts("zero1", expected, False, "parallel.zero=1")
    check_parts("zero3", expected, True, "parallel.zero=3")
    check_parts("servers", expected, True, "parallel.sync=parameter-server", "parallel.servers=4")


def test_lost_leaders():
    """Host 0 ends, then host 1 that leads after it; host 1 joins again, at the address of host 2.
    The last worker of host 2 is lost, and host 1 leads once more."""
    expected = undisturbed_adam()
    run = Hosts("led", "1,1,1,1", *ADAM, "parallel.zero=1", delay_ms=2 * DELAY_MS)
    run.wait_for(20)
    run.first = 3
    run.kill(0)
    run.wait_for_workers(3)
    run.wait_for(run.step() + 5)
    run.kill(1)
    run.wait_for_workers(2)
    run.wait_for(run.step() + 5)
    run.join(1, leader=2)
    run.wait_for_workers(3)
    run.wait_for(run.step() + 5)
    run.kill_worker(2, 0)
    run.wait_for_workers(2)
    assert run.end() == [-signal.SIGKILL, 0, 5, 0], run.texts()
    run.check(expected, "adam")
    steps = [step for _, step in run.starts()]
    assert steps == sorted(steps) and 0 < steps[1], steps


def test_two_lost_hosts_are_read_from_disk():
    """Host 2 has the only copies of the partitions of host 1: when both are lost at once, the last
    checkpoint is all there is.  So it is without a mirror."""
    expected = undisturbed_adam()
    for folder, options in ("both", []), ("disk", ["parallel.mirror=false"]):
        run = Hosts(folder, "2,1,1,1", *ADAM, "parallel.zero=1", *options, delay_ms=DELAY_MS)
        run.wait_for(60)
        for node in 1, 2:
            run.processes[node].send_signal(signal.SIGKILL)
        run.wait_for_workers(3)
        assert run.end() == [0, -signal.SIGKILL, -signal.SIGKILL, 0], run.texts()
        run.check(expected, "adam")
        steps = [step for _, step in run.starts()]
        assert any(step in (45, 90, 135, 180) for step in steps[1:]), steps


def test_cut_link_of_four_hosts():
    """The partitions of the host that cannot be reached are on its neighbor.  It comes back, and
    then two others cannot be reached, so that no majority is left until they are back."""
    network = hosts_test.network_or_none(4)
    if not network:
        return
    expected = undisturbed_adam()
    with network:
        run = Hosts("four", "1,1,1,1", *ADAM, "parallel.zero=1", address=network.subnet + "1",
                    before=inside(network), delay_ms=DELAY_MS)
        run.wait_for(20)
        set_link(network, "down", 3)
        run.wait_for_workers(3)
        run.wait_for(run.step() + 10)
        set_link(network, "up", 3)
        run.wait_for_workers(4)
        run.wait_for(run.step() + 5)
        for node in 1, 2:
            set_link(network, "down", node)
        run.wait_for_text(0, "so it has no majority")
        step = run.step()
        time.sleep(0.5)  # if steps were committed, some would be by now
        assert run.step() == step
        for node in 1, 2:
            set_link(network, "up", node)
        assert run.end() == [0, 0, 0, 0], run.texts()
        run.check(expected, "adam")
        run = Hosts("cut", "1,1,1,1", *ADAM, "parallel.zero=1", address=network.subnet + "1",
                    before=inside(network), delay_ms=DELAY_MS)
        run.wait_for(20)
        run.first = 3
        set_link(network, "down", 0)  # another host leads
        run.wait_for_text(0, "so it has no majority")
        run.wait_for_workers(3)
        run.wait_for(run.step() + 10)
        set_link(network, "up", 0)
        run.wait_for_workers(4)
        assert run.end() == [0, 0, 0, 0], run.texts()
        run.check(expected, "adam")


if __name__ == "__main__":
    sys.exit(runs.main(sys.modules[__name__]))
