"""elastic_hosts_replicas_test.py - elastic runs on several hosts whose workers divide the model:
replicas are lost with a worker or with their host, and come back as a whole, from memory, with the
bits of an undisturbed run."""

import signal
import sys

import runs
from elastic_hosts_test import LONG, Hosts
from elastic_test import hash_of

STEPS = ["optimizer.name=adam", "train.steps=200", "run.checkpoint_every=45"]
DELAY_MS = 10


def undisturbed(*layout, folder="whole"):
    return hash_of(runs.train_once(folder, *LONG, *STEPS, *layout, "-n", "4"))


def steps(run):
    """Where each group began: none at a checkpoint."""
    starts = [step for _, step in run.starts()]
    assert starts == sorted(starts) and all(starts[1:]), starts
    return starts


def test_stages_come_back():
    """Host 1 has lost a worker, and the other stage of its replica waits for the one that is
    started again.  Then host 0, which leads, is lost with the other replica."""
    layout = ["parallel.pipeline=2"]
    expected = undisturbed(*layout)
    run = Hosts("stages", "2,2", *STEPS, *layout, "parallel.min_workers=2", "run.restarts=1",
                delay_ms=DELAY_MS)
    run.first = 1
    run.wait_for(20)
    run.kill_worker(1, 0)
    runs.wait_until(lambda: [n for n, _ in run.starts()] in ([4, 2, 4], [4, 4]) or
                    run.processes[1].poll() is not None, what="four workers again")
    run.wait_for(run.step() + 5)
    run.kill(0)
    assert run.end() == [-signal.SIGKILL, 0], run.texts()
    assert [n for n, _ in run.starts()][-2:] == [4, 2], run.starts()
    run.check(expected)
    steps(run)


def test_tensor_shards():
    """Their partitions are on the next host too.  Then a user asks for fewer replicas and for more,
    and a host is lost with its replica."""
    layout = ["parallel.tensor=2", "parallel.zero=1"]
    expected = undisturbed(*layout)
    run = Hosts("shards", "2,2", *STEPS, *layout, "parallel.min_workers=2",
                "parallel.max_workers=6", delay_ms=2 * DELAY_MS)
    run.wait_for(20)
    refused = runs.tutti("scale", run.folder, "3")
    assert refused.code == 2 and "give a multiple of 2" in refused.err, refused.err
    for n in 2, 4:
        runs.tutti("scale", run.folder, str(n)).expect(0)
        assert run.starts()[-1][0] == n, (n, run.starts())
    run.wait_for(run.step() + 5)
    run.kill(1)
    assert run.end() == [0, -signal.SIGKILL], run.texts()
    assert [n for n, _ in run.starts()] == [4, 2, 4, 2], run.starts()
    run.check(expected)
    steps(run)


def test_stages_on_several_hosts():
    """Hosts 1 and 2 have a replica together.  Host 2 is lost, and the stage that is left waits
    until host 2 has joined again.  Then host 0 is lost, which leads and has the other replica."""
    layout = ["parallel.pipeline=2"]
    expected = undisturbed(*layout)
    run = Hosts("far", "2,1,1", *STEPS, *layout, "parallel.min_workers=2", delay_ms=2 * DELAY_MS)
    run.first = 1
    run.wait_for(20)
    run.kill(2)
    run.wait_for_workers(2)
    run.wait_for(run.step() + 5)
    run.join(2)
    run.wait_for_workers(4)
    run.wait_for(run.step() + 5)
    run.kill(0)
    assert run.end() == [-signal.SIGKILL, 0, 0], run.texts()
    assert [n for n, _ in run.starts()] == [4, 2, 4, 2], run.starts()
    run.check(expected)
    steps(run)


def test_refused():
    for layout, words in (["parallel.tensor=2"], "the workers of a tensor group are on one host"), (
            ["parallel.pipeline=2", "parallel.zero=1"], "each replica is on one host"):
        run = Hosts("refused", "3,1", *layout, "parallel.min_workers=2")
        assert run.end() == [2, 2], run.texts()
        for node in 0, 1:
            assert words in run.text(node), run.text(node)


if __name__ == "__main__":
    sys.exit(runs.main(sys.modules[__name__]))
