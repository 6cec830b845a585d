"""device_elastic_test.py - elastic runs on devices, on a machine without any (device_module.c): a
worker is killed or stopped, its device fails, a spare takes its place, the number of workers
changes; the others go on from the memory of their devices, and the bits are those of an undisturbed
run.  No two processes may have the same device at once."""

import os
import signal
import sys

import elastic_test
import runs

JOB = ["parallel.devices=gpu", "train.precision=f32", "optimizer.name=sgd"]
MODULE = os.path.join(runs.BUILD, "tests/modules/device")


def environment(says, faults="train.data:delay_ms=3"):
    return dict(os.environ, TUTTI_FAULT=faults, TUTTI_MODULE_PATH=MODULE, TUTTI_TEST_DEVICE=says)


def start(folder, *options, says="devices=4,alone=1", faults="train.data:delay_ms=3"):
    return elastic_test.Run(folder, *JOB, *options, env=environment(says, faults))


def undisturbed(*options):
    """On the host, where the bits are the same."""
    return elastic_test.undisturbed("optimizer.name=sgd", *options)


def test_killed_and_stopped():
    """A worker that is started again gets the device that the lost one had."""
    expected = undisturbed()
    run = start("shrinks", "parallel.min_workers=2")
    run.wait_for(30)
    run.signal(2)
    run.wait_for(120)
    run.signal(0)
    elastic_test.check(run, expected, 2)
    run = start("grows", "parallel.min_workers=1", "run.restarts=2")
    run.wait_for(30)
    run.signal(0)
    run.wait_for(100)
    run.signal(3, signal.SIGSTOP)
    elastic_test.check(run, expected, 2)


def test_in_a_call_of_the_device():
    """Killed while it gives work to the device; and with a device that has no room to keep the
    state of the last step, which then goes through the host."""
    expected = undisturbed()
    for name, more in (("feeds", ""), ("full", ";carry.device:fail")):
        run = start(name, "parallel.min_workers=2",
                    faults="device.feed:kill@rank=3,step=40;device.feed:kill@rank=2,step=90" + more)
        elastic_test.check(run, expected, 2)


def test_device_that_fails():
    """It ends its worker alone; another process uses the device again."""
    expected = undisturbed()
    run = start("fails", "parallel.min_workers=2", "run.restarts=1",
                says="devices=4,alone=1,lost=60,on=2,once=1")
    elastic_test.check(run, expected, 1)
    assert "exited with code 10; the run goes on with 3 workers" in run.text(), run.text()
    run = start("broken", "parallel.min_workers=4", says="devices=4,lost=60,on=2")
    code, text = run.end()
    assert code == 10, text


def test_partitions():
    expected = undisturbed()
    for zero in 1, 2, 3:
        run = start("zero%d" % zero, "parallel.min_workers=1", "parallel.zero=%d" % zero)
        run.wait_for(50)
        run.signal(0)
        run.wait_for(90)
        run.signal(2)
        elastic_test.check(run, expected, 2)


def test_servers():
    expected = undisturbed()
    run = start("servers", "parallel.min_workers=1", "parallel.sync=parameter-server",
                "parallel.servers=2")
    run.wait_for(50)
    run.signal(0)
    elastic_test.check(run, expected, 1)


def test_scaled():
    longer = "train.steps=800"
    expected = undisturbed(longer)
    run = start("scaled", longer, "parallel.min_workers=2")
    run.wait_for(30)
    for n_workers in 2, 4:
        run.scale(n_workers)
    code, text = run.end()
    assert code == 0 and elastic_test.hash_of(text) == expected, text
    assert elastic_test.steps_of("scaled") == list(range(1, 801)), elastic_test.steps_of("scaled")


def test_rehearsal():
    """A worker that waits for a place has trained on its device alone; here it is lost then."""
    longer, faults = "train.steps=800", "train.data:delay_ms=3;train.rehearsed:kill@1"
    expected = undisturbed(longer)
    run = start("rehearses", longer, "parallel.min_workers=3", "run.restarts=1", faults=faults)
    run.wait_for(30)
    run.signal(1)
    elastic_test.check(run, expected, 2)
    run = start("spare", longer, "parallel.min_workers=4", "parallel.spares=1", faults=faults,
                says="devices=5,alone=1")
    elastic_test.check(run, expected, 1)
    assert "rank 4 (pid" in run.text(), run.text()


def test_spare():
    """It takes the device of the lost worker too, or that of its own."""
    expected = undisturbed()
    for n_devices in 4, 5:
        name = "spare%d" % n_devices
        run = start(name, "parallel.min_workers=4", "parallel.spares=1", "run.restarts=2",
                    says="devices=%d,alone=1" % n_devices, faults="train.data:delay_ms=20")
        run.wait_for_spare()
        run.wait_for(30)
        run.signal(1)
        elastic_test.check(run, expected, 1)
        assert "the run goes on with 4 workers\n" in run.text(), run.text()


def test_samples_stay_on_the_device():
    """A process that reads them for the second time dies; so do threads that do."""
    expected = undisturbed()
    faults = "train.data:delay_ms=3;train.read_samples:kill@%d"
    run = start("stay", "parallel.min_workers=1", "run.restarts=1", "data.resident=yes",
                faults=faults % 2)
    run.wait_for(30)
    run.signal(2)
    run.wait_for_workers(4)
    run.signal(0)
    elastic_test.check(run, expected, 2)
    assert all(r["resident"] for r in runs.records("stay", "start")), run.text()
    run = start("threads", "parallel.place=threads", "parallel.min_workers=1", "data.resident=yes",
                says="devices=4", faults=faults % 7)
    run.wait_for(20)
    run.scale(2)
    run.scale(4)
    run.scale(1)
    elastic_test.check(run, expected, 0)


def test_exclusive_devices():
    """A process that has opened a device keeps it until it ends: spares, and workers that are
    started again, open none before they have a place."""
    expected = undisturbed()
    for n_devices, n_spares in (4, 1), (6, 2):
        name = "exclusive%d" % n_devices
        run = start(name, "parallel.min_workers=4", "parallel.spares=%d" % n_spares,
                    "run.restarts=2", says="devices=%d,alone=2" % n_devices,
                    faults="train.data:delay_ms=20")
        run.wait_for_spare()
        run.wait_for(30)
        run.signal(1)
        elastic_test.check(run, expected, 1)
        assert "the run goes on with 4 workers\n" in run.text(), run.text()
        assert "is in exclusive mode: this worker joins without" in run.text(), run.text()
    run = start("twice", "parallel.min_workers=1", "run.restarts=4", says="devices=4,alone=2")
    run.wait_for(30)
    run.signal(1)
    run.signal(2)  # its process may get the device of the other one
    run.wait_for_workers(4)
    run.signal(1)
    elastic_test.check(run, expected, 3)


def check_threads(ways, *options):
    """ways: what devices do, and parallel.zero."""
    expected = undisturbed(*options)
    for says, zero in ways:
        name = "threads-%s-%d" % (says, zero)
        run = start(name, "parallel.place=threads", "parallel.min_workers=1",
                    "parallel.zero=%d" % zero, *options, says="devices=4," + says)
        run.wait_for(20)
        run.scale(2)
        run.scale(4)
        run.process.send_signal(signal.SIGUSR2)
        elastic_test.check(run, expected, 0)
        sizes = [r["workers"] for r in runs.records(run.folder) if r["event"] == "start"]
        assert sizes[:3] == [4, 2, 4], sizes


def test_threads():
    """Devices that reach each other, at once or late, or that do not; replicas and partitions."""
    check_threads((("", 0), ("peers=1", 0), ("peers=1,late=1", 0), ("peers=1,late=3", 0),
                   ("peers=1", 1), ("peers=1", 3)))


def test_parameters_in_16_bits():
    """Other workers' parameters come in 16 bits, and whole when the number of workers changes."""
    check_threads((("peers=1", 1), ("peers=1,late=3", 1)), "train.precision=bf16")


def test_refused():
    job = runs.small("refused", "parallel.min_workers=1", "parallel.place=processes", "-n", "2",
                     *JOB, "parallel.mode=fast")
    runs.tutti(*job, "parallel.devices=0,cpu", env=environment("")).expect(
        2, "parallel.devices=gpu or cpu")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
