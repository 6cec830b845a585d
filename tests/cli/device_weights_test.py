"""device_weights_test.py - shards are distributed anew while workers on devices train
(device_module.c): a device becomes slow, or is taken to be, and the bits are those of one worker,
for samples that stay on the device and others, whole and partitioned state, with and without a
connection between the devices, and in elastic runs."""

import os
import sys

import device_elastic_test
import elastic_test
import runs

PROGRAM = os.path.join(runs.BUILD, "tests", "tutti_faults")
MODULE = os.path.join(runs.BUILD, "tests/modules/device")
JOB = ["optimizer.name=sgd", "train.ema=0.9", "run.checkpoint_every=30"]
MEASURED = ["parallel.devices=gpu", "train.precision=f32", "parallel.shards=8",
            "parallel.load_weights=measured", "-n", "2"]


def alone(n_steps):
    name = "alone-%d" % n_steps
    return elastic_test.hash_of(runs.train_once(name, *JOB, "train.steps=%d" % n_steps, "-n", "1"))


def train(folder, expected, n_steps, says, faults, *options):
    """The numbers of shards of each map."""
    env = dict(os.environ, TUTTI_MODULE_PATH=MODULE, TUTTI_TEST_DEVICE=says, TUTTI_FAULT=faults)
    ended = runs.tutti(*runs.small(folder, *JOB, *MEASURED, *options), "train.steps=%d" % n_steps,
                       program=PROGRAM, env=env)
    ended.expect(0)
    text = ended.out + ended.err
    assert elastic_test.hash_of(text) == expected, (folder, text)
    assert "speeds have changed: rank 1 takes" in text, (folder, text)
    return [record["shards"] for record in runs.records(folder, "shard_map")]


def test_every_kind():
    """Whether anything is slow or not: the speed of rank 1 is taken to be a millionth."""
    expected = alone(40)
    for place in "threads", "processes":
        for says in "devices=2", "devices=2,peers=1", "devices=2,peers=1,late=1":
            for i, more in enumerate(([], ["data.resident=no"], ["parallel.zero=1"],
                                      ["parallel.min_workers=1"],
                                      ["parallel.min_workers=1", "parallel.zero=1"])):
                folder = "%s-%s-%d" % (place, says, i)
                maps = train(folder, expected, 40, says, "throughput.drift:fail@rank=1",
                             "parallel.place=" + place, *more)
                assert maps[-1] == [7, 1], (folder, maps)


def test_a_device_becomes_slow():
    """After the trial at the start, in which both are as fast."""
    expected = alone(80)
    for place in "threads", "processes":
        says = "devices=2,peers=1,late=1,slow=1,delay=8,after=60"
        maps = train("slow-" + place, expected, 80, says, "", "parallel.place=" + place)
        assert maps[-1][1] == 1, maps


def test_lost_while_shards_are_rebalanced():
    """The others have no connection between their devices then."""
    steps = ["train.steps=160", "run.checkpoint_every=50"]
    expected = device_elastic_test.undisturbed(*steps)
    run = device_elastic_test.start(
        "lost", "parallel.load_weights=measured", "parallel.min_workers=2", *steps,
        faults="throughput.drift:fail@rank=1;train.rebalance:kill@rank=2")
    elastic_test.check(run, expected, 1)
    starts = [record["workers"] for record in runs.records("lost", "start")]
    assert starts == [4, 3], starts


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
