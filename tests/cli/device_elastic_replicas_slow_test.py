"""device_elastic_replicas_slow_test.py - elastic runs on devices: every layout with every form of
ZeRO and with servers, in processes and in threads; and models of 4 workers with a spare."""

import sys

import device_elastic_replicas_test as short
import elastic_test
import runs
from elastic_replicas_test import workers_of

SERVERS = ["parallel.sync=parameter-server"]


def parts():
    for zero in range(4):
        yield "zero%d" % zero, ["parallel.zero=%d" % zero]
    yield "servers", SERVERS


def check_processes(*layout):
    expected = short.undisturbed(*layout)
    for part, keys in parts():
        run = short.start(part, *layout, *keys, "run.restarts=3")
        for rank, step in ((2, 30), (0, 120), (1, 200)):
            run.wait_for(step)
            run.signal(rank)
        elastic_test.check(run, expected, 3)


def test_stages_in_processes():
    check_processes("parallel.pipeline=2")


def test_tensor_shards_in_processes():
    check_processes("parallel.tensor=2")


def check_threads(*layout):
    expected = short.undisturbed(*layout)
    for part, keys in parts():
        for says in "devices=4", "devices=4,peers=1,late=1", "devices=4,peers=1,late=2":
            short.check_threads(part + says, expected, *layout, *keys, says=says)


def test_stages_in_threads():
    check_threads("parallel.pipeline=2")


def test_tensor_shards_in_threads():
    check_threads("parallel.tensor=2")


def test_one_replica_of_four():
    """Its state is whole only in the mirror: the spare completes the replica at once."""
    layout = ["parallel.pipeline=2", "parallel.tensor=2"]
    expected = short.undisturbed(*layout)
    for zero in 0, 2:
        name = "four-%d" % zero
        run = short.start(name, *layout, "parallel.zero=%d" % zero, "parallel.max_workers=8",
                          "parallel.spares=1", "run.restarts=4", says="devices=9,alone=1",
                          faults="train.data:delay_ms=20")
        runs.wait_until(lambda: "waiting as a spare" in runs.tutti("ps", name).out or
                        run.process.poll() is not None, what="a spare")
        run.wait_for(30)
        run.signal(2)
        run.wait_for(runs.last_step(name) + 20)
        run.scale(8)
        run.signal(5)
        code, text = run.end()
        assert code == 0 and elastic_test.hash_of(text) == expected, text
        assert workers_of(name)[:2] == [4, 4] and 8 in workers_of(name), workers_of(name)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
