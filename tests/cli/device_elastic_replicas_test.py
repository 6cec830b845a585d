"""device_elastic_replicas_test.py - elastic runs whose workers divide the model, on devices, on a
machine without any (device_module.c): replicas are lost, replaced and scaled as a whole, through
the host and from device to device, and the bits are those of an undisturbed run on the host."""

import sys

import device_elastic_test
import elastic_test
import runs
from elastic_replicas_test import workers_of

STAGES = ["parallel.pipeline=2"]
SHARDS = ["parallel.tensor=2"]


def undisturbed(*layout):
    """On the host, where the bits are the same."""
    return elastic_test.hash_of(runs.train_once("whole", *elastic_test.LONG, "optimizer.name=sgd",
                                                *layout, "-n", "4"))


def start(folder, *options, **how):
    return device_elastic_test.start(folder, "parallel.min_workers=2", *options, **how)


def test_stages_come_back():
    """The other stage of the replica keeps its device while it waits; rank 1 gets its own again."""
    expected = undisturbed(*STAGES)
    run = start("stages", *STAGES, "run.restarts=2")
    run.wait_for(30)
    run.signal(1)
    runs.wait_until(lambda: run.process.poll() is not None or
                    workers_of("stages") in ([4, 2, 4], [4, 4]), what="four workers again")
    run.signal(0)
    elastic_test.check(run, expected, 2)


def test_tensor_shards_with_a_spare():
    expected = undisturbed(*SHARDS, "parallel.zero=1")
    run = start("shards", *SHARDS, "parallel.zero=1", "parallel.spares=1",
                faults="train.data:delay_ms=10")
    run.wait_for(30)
    run.wait_for_spare()
    run.signal(3)
    runs.wait_until(lambda: run.process.poll() is not None or
                    workers_of("shards") in ([4, 4], [4, 2, 4]), what="the spare")
    run.scale(2)
    run.scale(4)
    n_left = run.end()[1].count("the run goes on with")
    elastic_test.check(run, expected, n_left)


def test_in_a_call_of_the_device():
    """One or both workers of a replica die while they give work to their devices, another one after
    its step, before its part is safe; and a device fails."""
    expected = undisturbed(*SHARDS)
    run = start("feeds", *SHARDS, faults="device.feed:kill@rank=1,step=40")
    elastic_test.check(run, expected, run.end()[1].count("the run goes on with"))
    assert workers_of("feeds") == [4, 2], workers_of("feeds")
    run = start("copies", *SHARDS, faults="mirror.put:kill@rank=3,step=61")
    elastic_test.check(run, expected, 1)
    run = start("fails", *SHARDS, says="devices=4,alone=1,lost=60,on=2,once=1")
    elastic_test.check(run, expected, 1)
    assert "exited with code 10; the run goes on with 2 workers" in run.text(), run.text()


def check_threads(name, expected, *layout, says):
    run = start(name, *layout, "parallel.place=threads", says=says,
                faults="train.data:delay_ms=8")
    run.wait_for(20)
    run.scale(2)
    run.scale(4)
    elastic_test.check(run, expected, 0)
    assert workers_of(name)[:3] == [4, 2, 4], workers_of(name)


def test_threads_with_stages():
    """Values go from device to device."""
    check_threads("stages", undisturbed(*STAGES), *STAGES, says="devices=4,peers=1")


def test_threads_with_tensor_shards():
    """Queues of the device run late."""
    check_threads("shards", undisturbed(*SHARDS), *SHARDS, says="devices=4,peers=1,late=3")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
