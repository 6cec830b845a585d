"""divided_hosts_test.py - models divided over several hosts: stages, tensor shards, replicas,
whoever lies where, come to the bits that they come to on one host, over sockets and over MPI; and a
worker that dies is heard of in every part of the grid.  Hosts are names here, and network
namespaces where those are allowed."""

import os
import signal
import sys

import hosts_test as hosts
import runs

MORE = ["optimizer.name=adamw", "train.clip_norm=1", "model.hidden=[64, 48, 32]", "train.steps=6",
        "run.checkpoint_every=-1"]


def near(run, n_ranks, *arguments):
    runs.tutti(*runs.small(run, "-n", str(n_ranks), *MORE, *arguments)).expect(0)


def same(want, run, ended):
    for rank in ended:
        rank.expect(0)
    runs.same_story(runs.story(want), run)
    if hosts.checkpoint(want) != hosts.checkpoint(run):
        raise AssertionError("the checkpoint of %s is another than that of %s" % (run, want))


def test_every_axis_over_hosts():
    """Norms are reported too, which the whole of a copy sums."""
    ways = {"chunks": (2, ["parallel.pipeline=2", "parallel.pipeline_chunks=2"], ["a,b"]),
            "both": (4, ["parallel.pipeline=2", "parallel.tensor=2"], ["a,b,b,c"]),
            "replicas": (4, ["parallel.pipeline=2", "parallel.zero=3"], ["a,b,c,a"])}
    for way, (n_ranks, arguments, divisions) in ways.items():
        near("near-" + way, n_ranks, *arguments)
        for names in divisions:
            run = "far-%s-%s" % (way, names)
            ended = hosts.Ranks(n_ranks, runs.small(run, *MORE, *arguments),
                                TUTTI_TEST_HOSTS=names).finish()
            same("near-" + way, run, ended)


def test_servers_over_hosts():
    """Of each part, wherever its workers are; copies that do not wait come to what was recorded."""
    server = ["parallel.pipeline=2", "parallel.sync=parameter-server"]
    order = server + ["parallel.mode=fast", "parallel.staleness=unbounded"]
    for name, arguments, more in (("served", server, ["parallel.servers=2"]),
                                  ("order", order, ["parallel.replay=order"])):
        near(name, 4, *arguments)
        ended = hosts.Ranks(4, runs.small("far-" + name, *MORE, *arguments, *more),
                            TUTTI_TEST_HOSTS="a,b,b,c").finish()
        same(name, "far-" + name, ended)


def test_a_silent_state_owner():
    """Worker 1 keeps stage 1: who waits for it names it, and nobody is named for having waited.
    It is alone on its host, where another rank would see that it is stopped."""
    keys = ["parallel.pipeline=2", "parallel.sync=parameter-server", "parallel.mode=fast",
            "parallel.staleness=unbounded", "parallel.timeout_ms=8000", "train.steps=1000000",
            "train.eval_every=0"]  # before one copies wait for each other, and so name each other
    ranks = hosts.Ranks(4, runs.small("stopped", *MORE, *keys), TUTTI_TEST_HOSTS="a,b,c,c")
    runs.wait_until(lambda: runs.steps_reported("stopped") > 20, what="steps")
    stopped, *others = [ranks.processes[r] for r in (1, 0, 2, 3)]
    stopped.send_signal(signal.SIGSTOP)
    try:
        for process in others:
            process.wait(runs.HANGS_S)
    finally:
        stopped.kill()
    for rank, ended in enumerate(ranks.finish()):
        if rank != 1 and ended.code not in (5, 6):
            raise AssertionError("rank %d: exit code %d\n%s" % (rank, ended.code, ended.out))
        if rank != 1:
            ended.expect(ended.code, "rank 1")


def test_stages_have_the_bits_of_one_worker():
    """A cut changes no sum, wherever the stages are."""
    more = MORE + ["train.clip_norm=0"]
    runs.tutti(*runs.small("one", "parallel.workers=1", *more)).expect(0)
    ended = hosts.Ranks(3, runs.small("far", "parallel.pipeline=3", *more),
                        TUTTI_TEST_HOSTS="a,b,a").finish()
    for rank in ended:
        rank.expect(0)
    losses = [[(r["step"], r["loss"]) for r in runs.records(run) if r["event"] == "step"]
              for run in ("one", "far")]
    if losses[0] != losses[1] or hosts.checkpoint("one") != hosts.checkpoint("far"):
        raise AssertionError("%s instead of %s" % (losses[1], losses[0]))


def test_over_mpi():
    layout = ["parallel.pipeline=2", "parallel.tensor=2"]
    near("near", 4, *layout)
    for name, start in hosts.mpis():
        run = "run-" + name
        ended = hosts.reported(hosts.mpirun(start, 4, runs.small(run, *MORE, *layout),
                                        TUTTI_TEST_HOSTS="a,b,b,a"))
        ended.expect(0, "over mpi-" + name)
        same("near", run, [ended])


def test_network_namespaces():
    """Connections of a part are made anew, by ranks that know the token."""
    network = hosts.network_or_none()
    if not network:
        return
    layout = ["parallel.pipeline=2", "parallel.tensor=2"]
    near("near", 4, *layout)
    with open(os.open("token", os.O_CREAT | os.O_WRONLY, 0o600), "w") as token:
        token.write("0123456789abcdef0123\n")
    with network:
        ended = hosts.Ranks(4, runs.small("far", *MORE, *layout),
                            before=lambda rank: ["ip", "netns", "exec", network.hosts[rank % 2]],
                            MASTER_ADDR=network.subnet + "1", TUTTI_TOKEN_FILE="token").finish()
        ended[0].expect(0, "2 hosts, over tcp")
        same("near", "far", ended)


def test_a_killed_stage_ends_them_all():
    """Workers that share no axis with the dead one fail too, before the time limit."""
    ranks = hosts.Ranks(4, runs.small("long", "train.steps=100000000", "parallel.pipeline=2",
                                      "model.hidden=[64, 48, 32]"),
                        TUTTI_TEST_HOSTS="a,b,c,a")
    runs.wait_until(lambda: runs.steps_reported("long") > 0, what="a step")
    os.kill(ranks.processes[1].pid, signal.SIGKILL)
    ended = ranks.finish()
    for rank in (0, 2, 3):
        ended[rank].expect(5)
    if not any("rank 1" in ended[rank].out for rank in (0, 2, 3)):
        raise AssertionError("no message names the dead rank: " + ended[0].out)


def test_a_copy_leaves_when_one_of_its_host_is_killed():
    """Without a launcher the other workers of the replica notice it, and the run goes on."""
    keys = ["parallel.pipeline=2", "parallel.sync=parameter-server", "parallel.mode=fast",
            "parallel.staleness=unbounded", "train.steps=1000000", "train.eval_every=0"]
    for run, killed, other in (("speaker", 2, 3), ("other", 3, 2)):
        ranks = hosts.Ranks(4, runs.small(run, *MORE, *keys), TUTTI_TEST_HOSTS="a,a,b,b")
        runs.wait_until(lambda: runs.steps_reported(run) > 20, what="steps")
        ranks.processes[killed].kill()
        if ranks.processes[other].wait(runs.HANGS_S) != 0:
            raise AssertionError("the other one of the copy failed")
        n_steps = runs.steps_reported(run)
        runs.wait_until(lambda: runs.steps_reported(run) > n_steps + 20, what="more steps")
        runs.wait_until(lambda: [r["worker"] for r in runs.records(run)
                                 if r["event"] == "left"] == [1], what="word of the copy")
        for rank in (0, 1):
            ranks.processes[rank].kill()
        ranks.finish()


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
