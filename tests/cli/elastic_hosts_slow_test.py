"""elastic_hosts_slow_test.py - elastic runs on several hosts in more layouts and with more faults
than `make test` has time for."""

import signal
import sys
import time

import elastic_hosts_parts_test as parts
import elastic_hosts_replicas_test as replicas
import elastic_test
import hosts_test
import runs
from elastic_hosts_test import LONG, Hosts, inside, set_link, with_names

LAYOUTS = (["parallel.pipeline=2"], ["parallel.tensor=2"],
           ["parallel.pipeline=2", "parallel.tensor=2"], ["parallel.pipeline=2", "parallel.zero=1"],
           ["parallel.tensor=2", "parallel.zero=2"], ["parallel.pipeline=2", "parallel.zero=3"],
           ["parallel.pipeline=2", "parallel.sync=parameter-server", "parallel.servers=2"])


def workers_of_replica(layout):
    return 2 ** sum(option in ("parallel.pipeline=2", "parallel.tensor=2") for option in layout)


def undisturbed(i):
    """The hash with a layout, and the folder of that run."""
    return replicas.undisturbed(*LAYOUTS[i], folder="whole%d" % i), "whole%d" % i


def test_replicas_of_lost_hosts():
    """Of three hosts the second one is lost and joins again, then the leader is lost, and the last
    one loses a worker while it copies its part."""
    for i, layout in enumerate(LAYOUTS):
        each = workers_of_replica(layout)
        expected = undisturbed(i)
        run = Hosts("lost%d" % i, "%d,%d,%d" % (each, each, each), *replicas.STEPS, *layout,
                    "parallel.min_workers=%d" % each, "run.restarts=4", delay_ms=30)
        run.first = 2
        run.wait_for(20)
        run.kill(1)
        run.wait_for_workers(2 * each)
        run.join(1)
        run.wait_for_workers(3 * each)
        run.wait_for(run.step() + 5)
        run.kill(0)
        run.wait_for_workers(2 * each)
        run.wait_for(run.step() + 5)
        run.kill_worker(2, 0)
        assert run.end() == [-signal.SIGKILL, 0, 0], run.texts()
        run.check(*expected)
        replicas.steps(run)


def test_stages_on_several_hosts():
    """Two replicas on four hosts.  A host is lost and joins again, then the leader is lost, and the
    members of the last epoch that are left form a replica of stages of both."""
    layout = ["parallel.pipeline=2"]
    expected = replicas.undisturbed(*layout)
    run = Hosts("far", "1,1,1,1", *replicas.STEPS, *layout, "parallel.min_workers=2", delay_ms=30)
    run.first = 1
    run.wait_for(20)
    run.kill(3)
    run.wait_for_workers(2)
    run.join(3)
    run.wait_for_workers(4)
    run.wait_for(run.step() + 5)
    run.kill(0)
    run.wait_for_workers(2)
    assert run.end() == [-signal.SIGKILL, 0, 0, 0], run.texts()
    assert [n for n, _ in run.starts()] == [4, 2, 4, 2], run.starts()
    run.check(expected)
    replicas.steps(run)


def test_tensor_groups_on_several_hosts():
    layout = ["parallel.pipeline=2", "parallel.tensor=2"]
    expected = replicas.undisturbed(*layout)
    run = Hosts("groups", "4,2,2", *replicas.STEPS, *layout, "parallel.min_workers=4",
                "run.restarts=1", delay_ms=30)
    run.wait_for(20)
    run.kill_worker(1, 0)
    runs.wait_until(lambda: [n for n, _ in run.starts()] in ([8, 4, 8], [8, 8]) or
                    run.processes[0].poll() is not None, what="eight workers again")
    run.wait_for(run.step() + 5)
    run.kill(0)
    run.first = 1
    assert run.end() == [-signal.SIGKILL, 0, 0], run.texts()
    assert run.starts()[-1][0] == 4, run.starts()
    run.check(expected)
    replicas.steps(run)


def test_lost_while_a_part_is_copied():
    for i, layout in enumerate(LAYOUTS):
        expected = undisturbed(i)
        each = workers_of_replica(layout)
        run = Hosts("copies%d" % i, "%d,%d" % (each, each),
                    *replicas.STEPS, *layout, "parallel.min_workers=%d" % each,
                    faults=";mirror.put:kill@rank=%d,step=61" % each)
        assert run.end() == [0, 0], run.texts()
        run.check(*expected)
        assert [n for n, _ in run.starts()] == [2 * each, each], run.starts()
        replicas.steps(run)


def test_a_spare_completes_a_replica():
    layout = ["parallel.pipeline=2"]
    expected = replicas.undisturbed(*layout)
    run = Hosts("spare", "2,2", *replicas.STEPS, *layout, "parallel.min_workers=2",
                "parallel.spares=1", delay_ms=30)
    run.wait_for(20)
    run.kill_worker(1, 1)
    runs.wait_until(lambda: [n for n, _ in run.starts()] in ([4, 4], [4, 2, 4]) or
                    run.processes[0].poll() is not None, what="the spare")
    run.wait_for(run.step() + 5)
    run.kill_worker(0, 0)
    assert run.end() == [0, 0], run.texts()
    run.check(expected)


def test_cut_link():
    """The replica that cannot be reached waits, and so does the other one of an equal split."""
    network = hosts_test.network_or_none(3)
    if not network:
        return
    layout = ["parallel.pipeline=2", "parallel.zero=1"]
    expected = replicas.undisturbed(*layout)
    with network:
        run = Hosts("cut", "2,2,2", *replicas.STEPS, *layout, "parallel.min_workers=2",
                    address=network.subnet + "1", before=inside(network), delay_ms=30)
        run.wait_for(20)
        set_link(network, "down", 2)
        run.wait_for_workers(4)
        run.wait_for(run.step() + 10)
        set_link(network, "down", 1)
        run.wait_for_text(0, "so it has no majority")
        step = run.step()
        time.sleep(0.5)  # if steps were committed, some would be by now
        assert run.step() == step
        for node in 1, 2:
            set_link(network, "up", node)
        assert run.end() == [0, 0, 0], run.texts()
        run.check(expected)


def test_sharded_gradients():
    parts.check_parts("zero2", parts.undisturbed_adam(), True, "parallel.zero=2")


def test_scale():
    expected = elastic_test.undisturbed()
    run = Hosts("scaled", "2,2", "parallel.min_workers=1", "parallel.max_workers=6", delay_ms=60)
    run.wait_for(20)
    for n in 2, 6, 1, 4:
        runs.tutti("scale", run.folder, str(n)).expect(0)
        assert run.starts()[-1][0] == n, (n, run.starts())
    assert run.end() == [0, 0], run.texts()
    run.check(expected)


def test_host_file_of_replicas():
    """Slots of a host that are no whole replica stay empty; a host that leads later has read the
    file too."""
    if not with_names(0):
        print("no names of hosts here")
        return
    layout = ["parallel.pipeline=2"]
    expected = replicas.undisturbed(*layout)
    run = Hosts("listed", "2,2,2", *replicas.STEPS, *layout, "parallel.min_workers=2",
                "parallel.max_workers=8", "parallel.hostfile=hosts", before=with_names,
                delay_ms=60)
    run.first = 1
    run.wait_for(10)
    with open("hosts", "w") as file:
        file.write("localhost slots=2\nnode-1 slots=5\nnode-2 slots=1\n")
    run.wait_for_text(0, "asks for 5 workers on host 1; it gets 4 (up to 8, in whole groups")
    counts = lambda: [len(runs.children(p.pid)) for p in run.processes[1:]]
    runs.wait_until(lambda: counts() == [4, 0] and len(run.starts()) > 1 and
                    run.starts()[-1][0] == 6, what="four workers of host 1")
    run.kill(0)
    run.wait_for_workers(4)
    with open("hosts", "w") as file:
        file.write("node-1 slots=2\nnode-2 slots=4\n")
    run.wait_for_workers(6)
    assert counts() == [2, 4], counts()
    assert run.end() == [-signal.SIGKILL, 0, 0], run.texts()
    run.check(expected)


def test_many():
    """34 hosts with 68 workers: the leader is lost, and a host that follows."""
    many = ["train.steps=60", "parallel.shards=128", "train.batch=128", "run.checkpoint_every=-1",
            "parallel.timeout_ms=60000"]
    expected = elastic_test.hash_of(runs.train_once("whole", *LONG, *many, "-n", "1"))
    run = Hosts("many", ",".join(["2"] * 34), *many, "parallel.min_workers=40", delay_ms=20)
    run.first = 33
    run.wait_for(10)
    assert run.starts()[0][0] == 68, run.starts()
    run.kill(0)
    run.wait_for_workers(66)
    run.kill(7)
    run.wait_for_workers(64)
    ended = run.end()
    assert ended == [0 if k not in (0, 7) else -signal.SIGKILL for k in range(34)], run.texts()
    run.check(expected)


if __name__ == "__main__":
    sys.exit(runs.main(sys.modules[__name__]))
