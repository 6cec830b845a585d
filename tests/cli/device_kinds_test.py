"""device_kinds_test.py - devices and libraries that are not alike, between the workers of a run and
between a run and its checkpoint: exact mode refuses other workers, fast mode goes on and says so, a
run that is continued says so.  On devices of tests/backend/modules/device_module.c."""

import os
import sys

import hosts_test as hosts
import runs

JOB = ["train", "model.name=mlp", "model.hidden=[16]", "data.n_train=128", "data.n_test=20",
       "train.batch=32", "train.steps=2", "parallel.shards=4", "optimizer.name=sgd",
       "train.precision=f32", "parallel.devices=gpu"]
FAST = "parallel.mode=fast"
REFUSED = 2
DIFFER = "ranks compute on different devices"
KINDS = "has old test device, rank 0 on", "test device"
STACKS = "has cuda: devices for tests, stack 2, rank 0 on", "cuda: devices for tests, stack 1"


def environment(says):
    return dict(os.environ, TUTTI_TEST_DEVICE=says)


def train(run, *arguments, says=""):
    return runs.tutti(*JOB, "run.dir=" + run, *arguments, env=environment(says))


def two_ranks(run, *arguments, says):
    """Each on the device 0 of a host; says: of that of rank 1."""
    return hosts.Ranks(2, [*JOB, "run.dir=" + run, *arguments], TUTTI_TEST_HOSTS="a,b",
                       before=lambda rank: ["env", "TUTTI_TEST_DEVICE=" + says] if rank else []
                       ).finish()


def expect_without(text, ended):
    ended.expect(0)
    if text in ended.out + ended.err:
        raise AssertionError(ended.out + ended.err)


def test_one_machine():
    """Threads and processes; devices that no worker uses do not count."""
    for place in ("threads", "processes"):
        key = "parallel.place=" + place
        train(place, key, "-n", "2", says="kind=1").expect(
            REFUSED, *KINDS, "leave out the other kind with parallel.devices", FAST)
        ended = train(place, key, "-n", "2", FAST, says="kind=1").expect(0, DIFFER, *KINDS)
        if (ended.out + ended.err).count(DIFFER) != 1:
            raise AssertionError(ended.out + ended.err)
    expect_without("old test device", train("one", "-n", "1", says="kind=1"))
    expect_without(DIFFER, train("shared", "-n", "3", says="kind=2"))


def test_hosts():
    for says, words, advice in (("kind=0,devices=1", KINDS, "leave out the other kind"),
                                ("stack=2", STACKS, "install the same driver and libraries")):
        for ended in two_ranks("exact-" + says, says=says):
            ended.expect(REFUSED)
        ended.expect(REFUSED, "rank 1 on", *words, advice, FAST)
        ended = two_ranks("fast-" + says, FAST, says=says)
        ended[0].expect(0, DIFFER, "rank 1 on", *words)
        expect_without(DIFFER, ended[1])
    for ended in two_ranks("alike", says="devices=1"):
        expect_without(DIFFER, ended)


def test_checkpoints():
    """As many devices as anybody likes; of another kind, or by other libraries, is said."""
    train("run", "-n", "1").expect(0)
    go_on = ["train", "--resume", "run"]
    for step, says, n, words in (
            (3, "", 2, ()), (4, "devices=4", 4, ()),
            (5, "kind=0", 1, ("tests, stack 1, on test device; here: ", "on old test device)")),
            (6, "stack=2,kind=0", 1, ("stack 1, on old test device", "here: cuda: devices for "
                                      "tests, stack 2, on old test device)"))):
        ended = runs.tutti(*go_on, "train.steps=%d" % step, "-n", str(n), env=environment(says))
        if words:
            ended.expect(0, "made with other kernels", "its bits may differ", *words)
        else:
            expect_without("other kernels", ended)


if __name__ == "__main__":
    runs.use_module("device")
    runs.main(sys.modules[__name__])
