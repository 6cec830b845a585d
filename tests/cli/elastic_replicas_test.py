"""elastic_replicas_test.py - elastic runs whose workers divide the model: replicas are lost and
come back as a whole, from memory, and the bits are those of an undisturbed run."""

import os
import signal
import sys

import elastic_test
import runs

ADAM = ["optimizer.name=adam", "parallel.min_workers=2"]
# For runs whose number of workers changes twice, also on a busy machine.
SLOWER = dict(os.environ, TUTTI_FAULT="train.data:delay_ms=8")


def undisturbed(*layout):
    ended = runs.tutti(*runs.small("whole", *elastic_test.LONG, ADAM[0], *layout, "-n", "4"))
    ended.expect(0)
    return elastic_test.hash_of(ended.out + ended.err)


def workers_of(folder):
    return [r["workers"] for r in runs.records(folder) if r["event"] == "start"]


def test_stages_come_back():
    """Rank 1 has the second stage of the first replica: the other stage waits as a spare until rank
    1 has been started again.  Then the worker that records is lost."""
    expected = undisturbed("parallel.pipeline=2")
    run = elastic_test.Run("stages", *ADAM, "parallel.pipeline=2", "run.restarts=2")
    run.wait_for(30)
    run.signal(1)
    # On a busy machine rank 1 may be there again before the others have left the broken group.
    runs.wait_until(lambda: run.process.poll() is not None or
                    workers_of("stages") in ([4, 2, 4], [4, 4]), what="four workers again")
    assert run.process.poll() is None, (workers_of("stages"), run.text())
    run.signal(0)
    elastic_test.check(run, expected, 2)
    assert "the run goes on with 2 workers until another one has joined" in run.text()


def test_tensor_shards_with_a_spare():
    """The spare takes the place of rank 3, with its tensor shards and its partition of their state;
    then the number of workers changes, and each may get another part of the model."""
    layout = ["parallel.tensor=2", "parallel.zero=1"]
    expected = undisturbed(*layout)
    run = elastic_test.Run("shards", *ADAM, *layout, "parallel.spares=1", env=SLOWER)
    run.wait_for(30)
    run.wait_for_spare()
    run.signal(3)
    runs.wait_until(lambda: run.process.poll() is not None or
                    workers_of("shards") in ([4, 4], [4, 2, 4]), what="the spare")
    run.scale(2)
    refused = runs.tutti("scale", "shards", "3")
    assert refused.code == 2 and "give a multiple of 2" in refused.err, refused.err
    run.scale(4)
    n_left = run.end()[1].count("the run goes on with")
    elastic_test.check(run, expected, n_left)
    # A group that is changed before its first step is not recorded.
    assert workers_of("shards")[-2:] == [2, 4], workers_of("shards")


def test_servers():
    """The first worker of each part has its optimizer state; both are lost, and one replica is
    left."""
    layout = ["parallel.pipeline=2", "parallel.sync=parameter-server"]
    expected = undisturbed("parallel.pipeline=2")
    run = elastic_test.Run("served", *ADAM, *layout, "run.restarts=2")
    run.wait_for(30)
    run.signal(0)
    run.wait_for(100)
    run.signal(1)
    elastic_test.check(run, expected, 2)


def test_threads_with_servers():
    layout = ["parallel.tensor=2", "parallel.sync=parameter-server", "parallel.servers=2"]
    expected = undisturbed("parallel.tensor=2")
    run = elastic_test.Run("served", *ADAM, *layout, "parallel.place=threads",
                           env=SLOWER)
    run.wait_for(30)
    run.scale(2)
    run.scale(4)
    elastic_test.check(run, expected, 0)


def test_threads():
    expected = undisturbed("parallel.pipeline=2")
    run = elastic_test.Run("threads", *ADAM, "parallel.pipeline=2", "parallel.place=threads",
                           env=SLOWER)
    run.wait_for(30)
    run.scale(2)
    run.process.send_signal(signal.SIGUSR1)  # one replica more
    runs.wait_until(lambda: run.process.poll() is not None or workers_of("threads")[-1] == 4,
                    what="four workers again")
    elastic_test.check(run, expected, 0)
    assert workers_of("threads") == [4, 2, 4], workers_of("threads")


def test_lost_while_it_copies():
    """Rank 3 dies in step 61, after its step and before it says that its part is safe, and is not
    replaced; then a worker of the last replica is lost too, and the run ends."""
    layout = ["parallel.tensor=2"]
    expected = undisturbed(*layout)
    env = dict(os.environ, TUTTI_FAULT="mirror.put:kill@rank=3,step=61")
    run = elastic_test.Run("copies", *ADAM, *layout, env=env)
    elastic_test.check(run, expected, 1)
    assert workers_of("copies") == [4, 2], workers_of("copies")
    env = dict(os.environ, TUTTI_FAULT="mirror.put:kill@rank=3,step=61;"
                                       "mirror.put:kill@rank=1,step=95")
    ended = elastic_test.Run("ends", *ADAM, *layout, env=env)
    code, text = ended.end()
    assert code == 5, (code, text)


def test_without_a_mirror():
    layout = ["parallel.pipeline=2"]
    expected = undisturbed(*layout)
    run = elastic_test.Run("disk", *ADAM, *layout, "parallel.mirror=false",
                           "run.checkpoint_every=90")
    run.wait_for(120)
    run.signal(2)
    code, text = run.end()
    assert code == 0 and elastic_test.hash_of(text) == expected, text
    starts = [r["step"] for r in runs.records("disk") if r["event"] == "start"]
    assert len(starts) == 2 and starts[1] >= 90 and starts[1] % 90 == 0, starts


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
