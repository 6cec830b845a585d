"""elastic_weights_test.py - a worker of an elastic run becomes slow: it gets fewer shards, also
after each change of membership, and the bits are those of an undisturbed run; so are they if a
worker is lost while the shards are rebalanced."""

import os
import sys

import elastic_test
import runs

STEPS = ["train.steps=160", "run.checkpoint_every=50"]
MEASURED = ["parallel.load_weights=measured", "parallel.min_workers=2", *STEPS]
# Rank 1 computes 15 ms longer for each shard, once it has computed 60 of them: it is as fast as
# the others in the trial at the start.
BECOMES_SLOW = "exec.shard:delay_ms=15@rank=1,60+"


def maps(folder):
    """For each epoch, that is a start record: the number of workers and the maps that it had."""
    epochs = []
    for record in runs.records(folder):
        if record["event"] == "start":
            epochs.append((record["workers"], []))
        elif record["event"] == "shard_map":
            epochs[-1][1].append(record["shards"])
    return epochs


def start(folder, *options):
    run = elastic_test.Run(folder, *MEASURED, *options,
                           env=dict(os.environ, TUTTI_FAULT=BECOMES_SLOW))
    runs.wait_until(lambda: "speeds have changed: rank 1 takes" in run.text() or
                    run.process.poll() is not None, what="a new map")
    return run


def check_maps(run, *sizes):
    """The epochs have one of these lists of sizes.  Rank 1 has less than an equal share in a new
    map, and in later epochs from the start.  Later maps of an epoch may differ, because other
    programs make other workers slow too."""
    found = maps(run.folder)
    assert [n for n, _ in found] in sizes, found
    assert any(shards[1] == 1 for shards in found[0][1][1:]), found
    for n, epoch in found[1:]:
        assert epoch and epoch[0][1] < 8 / n, found
        for shards in epoch:
            assert len(shards) == n and sum(shards) == 8, found


def test_processes():
    """Rank 3 is lost, and another worker of unknown speed joins."""
    expected = elastic_test.undisturbed(*STEPS)
    for name, mode in (("replicas", []), ("zero", ["parallel.zero=1"]),
                       ("servers", ["parallel.sync=parameter-server", "parallel.servers=2"])):
        run = start(name, "run.restarts=1", *mode)
        run.signal(3)
        elastic_test.check(run, expected, 1)
        # On a busy machine it may be there before the others have left the broken group.
        check_maps(run, [4, 3, 4], [4, 4])


def test_threads():
    expected = elastic_test.undisturbed(*STEPS)
    run = start("threads", "parallel.place=threads")
    run.scale(2)
    run.scale(4)
    elastic_test.check(run, expected, 0)
    check_maps(run, [4, 2, 4])


def test_lost_while_shards_are_rebalanced():
    expected = elastic_test.undisturbed(*STEPS)
    fault = "throughput.drift:fail@rank=1;train.rebalance:kill@rank=2"
    run = elastic_test.Run("lost", *MEASURED, env=dict(os.environ, TUTTI_FAULT=fault))
    elastic_test.check(run, expected, 1)
    assert [n for n, _ in maps("lost")] == [4, 3], maps("lost")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
