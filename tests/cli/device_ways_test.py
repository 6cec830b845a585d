"""device_ways_test.py - parameter servers, local SGD and compressed sums on devices, on a machine
without any: the module of tests/backend/modules/device_module.c computes with the host's
kernels, so what ends on the host must come to the bits of workers that have no devices."""

import os
import random
import sys

import runs

SERVER = ["parallel.sync=parameter-server"]
ASYNC = SERVER + ["parallel.mode=fast", "parallel.staleness=unbounded"]
random.seed(runs.SEED)
MORE = ["optimizer.name=adamw", "train.clip_norm=0.5", "train.ema=0.9", "run.checkpoint_every=10"]


def train(run, *arguments, devices="gpu", says=""):
    """says: what the devices do, as in device_module.c; else their queues come late, or do not."""
    environment = dict(os.environ,
                       TUTTI_TEST_DEVICE=says or "late=%d" % random.choice((0, 1, 2)))
    return runs.tutti(*runs.small(run, "train.precision=f32", *MORE, *arguments),
                      "parallel.devices=" + devices, env=environment)


def on_devices(run):
    start = [r for r in runs.records(run) if r["event"] == "start"][0]
    if "devices for tests" not in start["backend"]:
        raise AssertionError(start["backend"])
    return start


def the_hash(run):
    return runs.records(run)[-1]["params_hash"]


def test_a_server_is_the_all_reduce():
    """Which on devices is that of the host (device_train_test.py); an optimizer that the devices
    of the tests do not know shows that they make no update."""
    train("host", "-n", "1", devices="cpu").expect(0)
    for n, place in ((1, []), (2, ["data.resident=no"]), (4, ["parallel.mode=fast"])):
        run = "served-%d" % n
        train(run, "-n", str(n), *SERVER, "parallel.servers=%d" % random.choice((1, 2, 3)),
              *place).expect(0)
        runs.same_story(runs.story("host"), run)
        runs.same_checkpoint("host", run)
        if "by a parameter server" not in on_devices(run)["backend"]:
            raise AssertionError(on_devices(run)["backend"])


def test_parameters_are_read_again():
    """After a hundred steps they are compared with what the last one left."""
    train("run", "-n", "2", *SERVER, "train.steps=101", "train.eval_every=0").expect(0)


def test_servers_among_processes():
    """The first workers update on their devices, and the others on none."""
    sgd = ["optimizer.name=sgd", "parallel.place=processes"]
    train("host", "-n", "1", "optimizer.name=sgd", devices="cpu").expect(0)
    for n, servers in ((2, 1), (3, 2)):
        run = "served-%d" % n
        train(run, "-n", str(n), *SERVER, *sgd, "parallel.servers=%d" % servers).expect(0)
        on_devices(run)
        runs.same_story(runs.story("host"), run)
        runs.same_checkpoint("host", run)


def test_joined_statistics():
    net = runs.NARROW + ["data.n_train=8", "data.n_test=4", "train.batch=4", "train.steps=1",
                         "parallel.shards=2", "parallel.sync_batch_norm=true"]
    train("host", "-n", "1", *net, devices="cpu").expect(0)
    train("served", "-n", "2", *SERVER, *net).expect(0)
    runs.same_story(runs.story("host"), "served")


def test_asynchronous():
    """One worker is one worker; what three did comes again, on devices and on the host."""
    train("host", "-n", "1", devices="cpu").expect(0)
    train("alone", "-n", "1", *ASYNC).expect(0)
    if the_hash("alone") != the_hash("host"):
        raise AssertionError("one asynchronous worker is not one worker")
    train("three", "-n", "3", *ASYNC, "parallel.servers=2").expect(0)
    on_devices("three")
    for run, devices, place, servers in (("again", "gpu", "threads", 1),
                                         ("on_host", "cpu", "threads", 1),
                                         ("apart", "gpu", "processes", 1),
                                         ("in_ranges", "gpu", "processes", 2)):
        train(run, "-n", "3", *ASYNC, "parallel.replay=three", "parallel.place=" + place,
              "parallel.servers=%d" % servers, devices=devices).expect(0)
        if the_hash(run) != the_hash("three"):
            raise AssertionError("%s: the order of updates comes to other parameters" % run)
    runs.same_story(runs.story("three"), "apart")
    runs.same_story(runs.story("three"), "in_ranges")  # evaluations with averages from both
    runs.same_checkpoint("three", "in_ranges")
    train("bounded", "-n", "3", *ASYNC, "parallel.staleness=1").expect(0)
    most = runs.records("bounded")[-1]["staleness_max"]
    if most > 4:  # (staleness + 1) (workers - 1)
        raise AssertionError("a gradient lacked %d updates" % most)


def test_who_makes_nothing_evaluates_too():
    """All updates are worker 0's: the others' averages are of now, not of the evaluation before."""
    train("host", "-n", "3", *ASYNC, devices="cpu").expect(0)
    with open("host/arrivals.txt") as file:
        header = file.readline()
    os.makedirs("alone")
    with open("alone/arrivals.txt", "w") as file:
        file.write(header + "".join("%d %d 0 %d\n" % (i + 1, i, i) for i in range(40)))
    for run, devices, place in (("host_staged", "cpu", "threads"), ("by_devices", "gpu", "threads"),
                                ("in_ranges", "gpu", "processes")):
        train(run, "-n", "3", *ASYNC, "parallel.replay=alone", "parallel.place=" + place,
              "parallel.servers=2", devices=devices).expect(0)
        runs.same_story(runs.story("host_staged"), run)


def test_backup_workers():
    for place in ("threads", "processes"):
        train(place, "-n", "3", *SERVER, "parallel.mode=fast", "parallel.backup_workers=1",
              "parallel.servers=2", "parallel.place=" + place).expect(0)
        on_devices(place)
        steps = [r["step"] for r in runs.records(place) if r["event"] == "step"]
        if steps != list(range(1, 41)):
            raise AssertionError(steps)


def test_lost_devices():
    """The last checkpoint leads to the undisturbed run's bits, also on the host."""
    train("host", "-n", "1", devices="cpu").expect(0)
    train("run", "-n", "2", *SERVER, says="lost=17,on=1").expect(
        10, "step 17: device 1 (test device 1) failed", "The checkpoint of step 10 is good")
    runs.tutti("train", "--resume", "run", "-n", "2").expect(0)
    runs.same_story(runs.story("host"), "run")
    train("async", "-n", "2", *ASYNC, says="lost=17").expect(10, "device ", ") failed: cuda: ")


def test_goes_on_in_other_ways():
    """Checkpoints know nothing of devices and servers."""
    train("host", "-n", "1", devices="cpu").expect(0)
    train("run", "-n", "2", *SERVER, says="lost=17,on=0").expect(10)
    runs.tutti("train", "--resume", "run", "-n", "3", "parallel.devices=cpu",
               "parallel.sync=all-reduce").expect(0)
    runs.same_checkpoint("host", "run")
    train("back", "-n", "2", says="lost=17,on=0", devices="cpu").expect(0)
    runs.same_checkpoint("host", "back")


FAST = ["parallel.mode=fast", "optimizer.name=sgd"]
LOCAL = FAST + ["parallel.sync=local"]
BY_HOST = {
    "rounded": FAST + ["parallel.wire=bf16", "parallel.bucket_mb=0.01"],
    "topk": FAST + ["parallel.compress=topk", "parallel.topk=0.05"],
    "powersgd": FAST + ["parallel.compress=powersgd", "parallel.compress_after=7"],
    "local": LOCAL + ["parallel.average_every=3"],
    "late": LOCAL + ["parallel.average_every=4", "parallel.average=all",
                     "parallel.average_after=6"]}


def test_less_is_sent():
    """Local SGD and compression come to the bits of as many workers on the host, and say that they
    sent the same; fed or kept, recorded steps or not."""
    for way, arguments in BY_HOST.items():
        for n, more in (("2", ["data.resident=no"]), ("3", [])):
            host, run = "host-%s-%s" % (way, n), "run-%s-%s" % (way, n)
            train(host, "-n", n, *arguments, devices="cpu").expect(0)
            train(run, "-n", n, *arguments, *more).expect(0)
            on_devices(run)
            runs.same_story(runs.story(host), run)
            runs.same_checkpoint(host, run)
            sent = [runs.records(r)[-1]["sent_bytes"] for r in (host, run)]
            if sent[0] != sent[1]:
                raise AssertionError("%s: %d bytes were sent, and %d" % (run, *sent))


def test_devices_compress_as_the_host_does():
    """Between devices that reach each other, which here compute as the host does: its bits, fed one
    by one, recorded, or several steps in one launch; in more buckets than one; from the first step
    on or later."""
    powersgd, topk = "parallel.compress=powersgd", "parallel.compress=topk"
    for i, (n, *more) in enumerate((("2", powersgd, "data.resident=no"),
                                    ("2", powersgd, "parallel.rank=3"),
                                    ("4", powersgd, "parallel.bucket_mb=0.002", "parallel.rank=1"),
                                    ("2", powersgd, "parallel.compress_after=7"),
                                    ("2", topk, "parallel.topk=0.05", "data.resident=no"),
                                    ("2", topk, "parallel.compress_after=2", "data.resident=no"),
                                    ("3", topk, "parallel.topk=0.1", "parallel.bucket_mb=0.002"))):
        host, run = "host-%d" % i, "run-%d" % i
        arguments = FAST + ["parallel.algorithm=direct", *more]
        says = "peers=1,devices=4,late=%d" % random.choice((0, 1, 2, 3))
        train(host, "-n", n, *arguments, devices="cpu").expect(0)
        train(run, "-n", n, *arguments, says=says).expect(0)
        if "compressed there" not in on_devices(run)["backend"]:
            raise AssertionError(on_devices(run)["backend"])
        runs.same_story(runs.story(host), run)
        runs.same_checkpoint(host, run)
        sent = [runs.records(r)[-1]["sent_bytes"] for r in (host, run)]
        if sent[0] != sent[1] or sent[0] == 0:
            raise AssertionError("%d bytes were sent, and %d" % tuple(sent))


def test_less_is_sent_by_processes():
    for way in ("topk", "late"):
        arguments = BY_HOST[way]
        train("host-" + way, "-n", "2", *arguments, devices="cpu").expect(0)
        train(way, "-n", "2", *arguments, "parallel.place=processes").expect(0)
        runs.same_story(runs.story("host-" + way), way)


def test_local_goes_on():
    """A device is lost between two averagings: the checkpoint is of means, and leads to the same
    bits with workers on the host."""
    train("host", "-n", "2", *BY_HOST["local"], devices="cpu").expect(0)
    train("run", "-n", "2", *BY_HOST["local"], says="lost=17,on=1").expect(
        10, "device 1 (test device 1) failed", "The checkpoint of step 10 is good")
    runs.tutti("train", "--resume", "run", "-n", "2", "parallel.devices=cpu").expect(0)
    if the_hash("run") != the_hash("host"):
        raise AssertionError("a run in two parts comes to other parameters")


def test_workers_without_samples():
    """A last batch of one sample: the other worker stays as it is until they average."""
    short = LOCAL + ["data.n_train=61", "train.batch=60", "train.steps=8", "parallel.shards=4",
                     "parallel.average_every=4", "run.checkpoint_every=-1"]
    train("host", "-n", "3", *short, devices="cpu").expect(0)
    train("run", "-n", "3", *short).expect(0)
    runs.same_story(runs.story("host"), "run")


def test_not_finite():
    """Told by all, since all hear of it."""
    train("run", "-n", "2", *SERVER, "optimizer.name=sgd", "optimizer.lr=1000",
          "train.clip_norm=0", "train.steps=4000").expect(7, "the loss is not finite")


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
