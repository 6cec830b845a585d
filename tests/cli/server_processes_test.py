"""server_processes_test.py - asynchronous workers that are processes, of one host and of several:
what threads recorded comes again in them and the other way round, whoever holds the parameters, one
that is killed leaves, and the death of one that holds parameters ends all.
"""

import json
import os
import re
import shutil
import signal
import sys
import time

import hosts_test
import runs

ASYNC = ["parallel.sync=parameter-server", "parallel.mode=fast", "parallel.staleness=unbounded",
         "parallel.devices=cpu"]
PROCESSES = "parallel.place=processes"
MORE = ["train.clip_norm=1", "train.ema=0.9", "optimizer.name=adamw", "run.checkpoint_every=9"]
LONG = ["train.steps=1000000", "run.checkpoint_every=100"]


def expect(truth, text):
    if not truth:
        raise AssertionError(text)


def updates(run):
    with open(run + "/arrivals.txt") as file:
        return [tuple(int(word) for word in line.split()) for line in list(file)[1:]]


def the_hash(run):
    return [r["params_hash"] for r in runs.records(run) if r["event"] == "end"][-1]


def train(run, *arguments):
    runs.tutti(*runs.small(run, *ASYNC, *MORE, *arguments)).expect(0)


def again(recorded, run):
    runs.same_story(runs.story(recorded), run)
    runs.same_checkpoint(recorded, run)
    expect(updates(run) == updates(recorded), run)


def test_the_same_as_threads():
    """Evaluations and checkpoints between updates synchronize all workers."""
    for place, other in ((PROCESSES, "parallel.place=threads"),
                         ("parallel.place=threads", PROCESSES)):
        run = place[-7:]
        train(run, place, "-n", "3", "parallel.staleness=2")
        shown = updates(run)
        expect(sorted(u[1] for u in shown) == list(range(40)), shown)
        lacks = [u[0] - 1 - u[3] for u in shown]
        counts = [r["counts"] for r in runs.records(run) if r["event"] == "staleness"][-1]
        expect(counts == [lacks.count(i) for i in range(max(lacks) + 1)], (counts, lacks))
        expect(max(lacks) <= (2 + 1) * 2, lacks)
        for to in (place, other):
            train(run + to[-7:], to, "-n", "3", "parallel.replay=" + run, "parallel.servers=2")
            again(run, run + to[-7:])


def ranges(run):
    """The last record of who holds which parameters."""
    return [r["ranges"] for r in runs.records(run) if r["event"] == "servers"][-1]


def test_several_hold_ranges():
    """What two recorded comes again with one, three, and threads; each has its part of the work."""
    train("two", PROCESSES, "-n", "3", "parallel.servers=2")
    train("one", PROCESSES, "-n", "3", "parallel.replay=two")
    train("three", PROCESSES, "-n", "3", "parallel.replay=two", "parallel.servers=3")
    train("threads", "-n", "3", "parallel.replay=two", "parallel.servers=2")
    for run in ("one", "three", "threads"):
        again("two", run)
    for run, n in (("one", 1), ("two", 2), ("three", 3)):
        shown = ranges(run)
        expect(len(shown) == n and shown[0]["first"] == 0, shown)
        expect(all(a["first"] + a["elements"] == b["first"] for a, b in zip(shown, shown[1:])),
               shown)
        whole = all(r["bytes"] > 0 and r["bytes"] % (4 * r["elements"]) == 0 for r in shown)
        expect(whole and [r["worker"] for r in shown] == list(range(n)), shown)
    expect(not any(r["event"] == "servers" for r in runs.records("threads")), "of threads")
    refused = runs.tutti(*runs.small("no", *ASYNC, PROCESSES, "-n", "2", "parallel.servers=3"))
    refused.expect(2, "worker processes are the servers, but there are only 2")


def test_ranges_on_several_hosts():
    train("here", PROCESSES, "-n", "3")
    arguments = runs.small("far", *ASYNC, *MORE, "parallel.replay=here", "parallel.servers=3")
    for rank in hosts_test.Ranks(3, arguments, TUTTI_TEST_HOSTS="a,b,c").finish():
        rank.expect(0)
    again("here", "far")


def test_gradients_in_16_bits():
    """Rounded by every worker, wherever its gradient goes: the same again in any way; half of a
    gradient's bytes travel, and parameters as they are."""
    whole = ["parallel.servers=2", PROCESSES, "-n", "3", "train.ema=0"]
    train("whole", *whole)
    train("plain", *whole, "parallel.replay=whole")
    for way in ("bf16", "f16"):
        less = ["parallel.compress=" + way, "train.ema=0"]
        train(way, *less, "-n", "3", "parallel.replay=whole")
        expect(the_hash(way) != the_hash("whole"), "nothing is rounded")
        for n in ("1", "2", "3"):
            run = way + n
            train(run, *less, PROCESSES, "-n", "3", "parallel.servers=" + n,
                  "parallel.replay=" + way)
            again(way, run)
        for held, less in zip(ranges("plain"), ranges(way + "2")):
            n_sent = sum(u[2] != held["worker"] for u in updates("whole"))
            saved = held["bytes"] - less["bytes"]
            expect(saved == 2 * held["elements"] * n_sent, (held, less, n_sent))


def test_ranges_leave_out_what_is_not_finite():
    """A replay applies the same updates, whatever run and loss scale recorded them."""
    f16 = [*MORE, "train.precision=f16"]
    train("here", *f16, "-n", "3")
    for n in ("1", "2"):
        run = "ranges-" + n
        train(run, *f16, PROCESSES, "-n", "3", "parallel.servers=" + n, "parallel.replay=here")
        again("here", run)
    shown = [r for r in runs.records("ranges-2") if r["event"] == "staleness"][-1]
    expect(shown.get("left_out", 0) > 0, shown)


def test_who_holds_a_range_is_killed():
    """It is named, and all start again from the last checkpoint; one without only leaves."""
    process = runs.start(*runs.small("run", *ASYNC, *MORE, *LONG, PROCESSES, "-n", "3",
                                     "parallel.servers=2", "--restarts", "1"))
    runs.wait_until(lambda: runs.checkpoints("run"), what="a checkpoint")
    os.kill(runs.children(process.pid)[1], signal.SIGKILL)
    runs.wait_until(lambda: [r["event"] for r in runs.records("run")].count("start") == 2,
                    what="another start")
    wait_for_updates("run", 20)
    os.kill(runs.children(process.pid)[2], signal.SIGKILL)
    runs.wait_until(lambda: left("run"), what="word of the worker that was killed")
    wait_for_updates("run", 120)  # past a checkpoint and evaluations
    range_server = runs.children(process.pid)[1]
    os.kill(range_server, signal.SIGKILL)
    runs.finish(process).expect(5, "rank 1 (pid %d) was killed by signal 9" % range_server)
    expect([r["worker"] for r in left("run")] == [2], left("run"))
    expect(not runs.alive("run.dir=run"), "processes are left")


def test_ranges_are_saved_and_continued():
    """A checkpoint is of the whole model: it goes on with other holders."""
    process = runs.start(*runs.small("run", *ASYNC, *MORE, *LONG, PROCESSES, "-n", "3",
                                     "parallel.servers=3", "run.checkpoint_every=45"))
    runs.wait_until(lambda: runs.checkpoints("run"), what="a checkpoint")
    process.send_signal(signal.SIGTERM)
    runs.finish(process).expect(143)
    done = runs.checkpoints("run")[-1]
    end = (done // 45 + 1) * 45  # of an epoch of 9 batches too
    change_steps("run", end)
    shutil.copytree("run", "other")
    change_servers("other", 1)
    runs.tutti("train", "--resume", "run").expect(0)
    runs.tutti("train", "--resume", "other").expect(0)
    for run in ("run", "other"):
        expect([u[0] for u in updates(run)] == list(range(1, end + 1)), "an update is missing")
    expect(len(ranges("run")) == 3 and len(ranges("other")) == 1, "the holders")
    for run in ("run", "other"):  # each repeats its own whole story, with two
        shutil.copy("%s/job.yaml" % run, "again.yaml")
        ended = runs.tutti("train", "again.yaml", "run.dir=again-" + run, "parallel.replay=" + run,
                           "parallel.servers=2")
        ended.expect(0)
        runs.same_checkpoint(run, "again-" + run)


def test_on_several_hosts():
    train("here", PROCESSES, "-n", "3")
    for hosts in ("a,a,b", "a,b,c"):
        run = "on-" + hosts
        arguments = runs.small(run, *ASYNC, *MORE, "parallel.replay=here")
        for rank in hosts_test.Ranks(3, arguments, TUTTI_TEST_HOSTS=hosts).finish():
            rank.expect(0)
        again("here", run)


def test_between_networks():
    """Where hosts can be had that share no network: the second of rank 0's places is a port."""
    network = hosts_test.network_or_none()
    if not network:
        return
    train("here", PROCESSES, "-n", "4")
    with open(os.open("token", os.O_CREAT | os.O_WRONLY, 0o600), "w") as token:
        token.write("0123456789abcdef0123\n")
    with network:
        ranks = hosts_test.Ranks(4, runs.small("far", *ASYNC, *MORE, "parallel.replay=here"),
                                 before=lambda rank: ["ip", "netns", "exec",
                                                      network.hosts[rank // 2]],
                                 MASTER_ADDR=network.subnet + "1", TUTTI_TOKEN_FILE="token")
        for rank in ranks.finish():
            rank.expect(0)
    again("here", "far")


def wait_for_updates(run, n_more):
    n = runs.steps_reported(run) + n_more
    runs.wait_until(lambda: runs.steps_reported(run) >= n, what="updates")


def left(run):
    return [r for r in runs.records(run) if r["event"] == "left"]


def change_steps(run, n_steps):
    path = os.path.join(run, "job.yaml")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(re.sub(r"\bsteps: 1000000\b", "steps: %d" % n_steps, text, count=1))


def change_servers(run, n_servers):
    path = os.path.join(run, "job.yaml")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(re.sub(r"\bservers: \d+\b", "servers: %d" % n_servers, text, count=1))


def test_a_worker_is_killed():
    """The others go on; it comes back with the next start; and all of it can be repeated."""
    process = runs.start(*runs.small("run", *ASYNC, *MORE, *LONG, PROCESSES, "-n", "3"))
    wait_for_updates("run", 20)
    os.kill(runs.children(process.pid)[2], signal.SIGKILL)
    runs.wait_until(lambda: left("run"), what="word of the worker that was killed")
    wait_for_updates("run", 120)  # past a checkpoint and evaluations
    process.send_signal(signal.SIGTERM)
    runs.finish(process).expect(143, "worker 2 left", "the others continue")
    expect([r["worker"] for r in left("run")] == [2], left("run"))
    since = left("run")[0]["step"]
    expect(all(u[2] != 2 for u in updates("run") if u[0] > since + 1), "it is still there")
    done = runs.checkpoints("run")[-1]
    expect([u[0] for u in updates("run")] == list(range(1, done + 1)), "an update is missing")
    end = (done // 45 + 1) * 45  # of an epoch of 9 batches too
    change_steps("run", end)
    runs.tutti("train", "--resume", "run").expect(0)
    expect([u[0] for u in updates("run")] == list(range(1, end + 1)), "an update is missing")
    expect(len(left("run")) == 1, "another one has left")
    expect(not runs.alive("run.dir=run"), "processes are left")


def test_a_worker_is_stopped():
    """It goes as one that is killed, and is named; the server takes all along."""
    process = runs.start(*runs.small("run", *ASYNC, *MORE, *LONG, PROCESSES, "-n", "3",
                                     "parallel.staleness=2"))
    wait_for_updates("run", 20)
    server, _, worker = runs.children(process.pid)
    stopped = time.monotonic()
    os.kill(worker, signal.SIGSTOP)
    runs.wait_until(lambda: left("run"), 30, "word of the worker that was stopped")
    print("a stopped worker has left after %.3f s" % (time.monotonic() - stopped))
    wait_for_updates("run", 120)  # past a checkpoint and evaluations
    expect([r["worker"] for r in left("run")] == [2], left("run"))
    os.kill(server, signal.SIGSTOP)
    ended = runs.finish(process)
    ended.expect(5, "warning: rank 2 (pid %d) was stopped (signal 19)" % worker,
                 "worker 2 left", "rank 0 (pid %d) was stopped (signal 19)" % server)
    expect(not runs.alive("run.dir=run"), "processes are left")


def test_the_server_is_killed():
    process = runs.start(*runs.small("run", *ASYNC, *MORE, *LONG, PROCESSES, "-n", "3"))
    wait_for_updates("run", 20)
    server = runs.children(process.pid)[0]
    os.kill(server, signal.SIGKILL)
    runs.finish(process).expect(5, "rank 0 (pid %d) was killed by signal 9" % server)
    expect(not runs.alive("run.dir=run"), "processes are left")


def test_deaths_on_several_hosts():
    """Without a supervisor: a worker of another host goes, then the server."""
    ranks = hosts_test.Ranks(3, runs.small("run", *ASYNC, *MORE, *LONG), TUTTI_TEST_HOSTS="a,a,b")
    wait_for_updates("run", 20)
    ranks.processes[2].kill()
    runs.wait_until(lambda: left("run"), what="word of the worker that was killed")
    wait_for_updates("run", 20)
    ranks.processes[0].kill()
    ended = ranks.finish()
    expect([rank.code for rank in ended] == [-9, 5, -9], [rank.code for rank in ended])
    ended[1].expect(5, "its process, rank 0, has ended")


def test_stops_without_a_supervisor():
    """Who waits for a stopped rank hears of it long before the time limit of a minute: one of the
    same host ends it, here without its 8 s for others to report the stop (watch_test.c has them).
    A worker leaves as if it were killed, the server takes all along."""
    ranks = hosts_test.Ranks(4, runs.small("run", *ASYNC, *MORE, *LONG, "parallel.staleness=2"),
                             program=os.path.join(runs.BUILD, "tests", "tutti_faults"),
                             TUTTI_FAULT="watch.reported:fail", TUTTI_TEST_HOSTS="a,a,b,b")
    wait_for_updates("run", 20)
    os.kill(ranks.processes[3].pid, signal.SIGSTOP)
    runs.wait_until(lambda: left("run"), 30, "word of the worker that was stopped")
    expect([r["worker"] for r in left("run")] == [3], left("run"))
    wait_for_updates("run", 20)
    os.kill(ranks.processes[0].pid, signal.SIGSTOP)
    ended = ranks.finish(30)
    expect([rank.code for rank in ended] == [-9, 5, 5, -9], [rank.code for rank in ended])
    for rank in ended[1:3]:
        rank.expect(5, "its process, rank 0, has ended")


def test_the_server_is_started_again():
    process = runs.start(*runs.small("run", *ASYNC, *MORE, *LONG, PROCESSES, "-n", "3",
                                     "--restarts", "1"))
    runs.wait_until(lambda: runs.checkpoints("run"), what="a checkpoint")
    os.kill(runs.children(process.pid)[0], signal.SIGKILL)
    runs.wait_until(lambda: [r["event"] for r in runs.records("run")].count("start") == 2,
                    what="another start")
    wait_for_updates("run", 20)
    process.send_signal(signal.SIGINT)
    runs.finish(process).expect(130)


def test_backup_workers():
    """One that is killed is one of those that steps do without; the others evaluate its shards."""
    backup = ["parallel.sync=parameter-server", "parallel.mode=fast", "parallel.backup_workers=1",
              "parallel.devices=cpu", PROCESSES, "-n", "3", *MORE, "run.checkpoint_every=0"]
    process = runs.start(*runs.small("run", *backup, "train.steps=1000000"))
    wait_for_updates("run", 20)
    os.kill(runs.children(process.pid)[2], signal.SIGKILL)
    runs.wait_until(lambda: left("run"), what="word of the worker that was killed")
    wait_for_updates("run", 40)
    process.send_signal(signal.SIGTERM)
    runs.finish(process).expect(143, "worker 2 left", "the others continue")
    shown = {r["step"]: r for r in runs.records("run") if r["event"] == "eval"}
    step = [s for s in runs.checkpoints("run") if s in shown][-1]
    expect(step > left("run")[0]["step"], "no evaluation since")
    for newer in [s for s in runs.checkpoints("run") if s > step]:
        shutil.rmtree("run/checkpoints/step-%09d" % newer)
    found = json.loads(runs.tutti("eval", "run", "--json").expect(0).out)
    expect(found["step"] == step and found["samples"] == shown[step]["samples"], found)
    expect(found["accuracy"] == shown[step]["accuracy"], (found, shown[step]))
    expect(abs(found["loss"] - shown[step]["loss"]) < 1e-9, (found, shown[step]))


def test_too_many_go():
    """A step that wants two of three workers ends with the second that goes."""
    process = runs.start(*runs.small("run", "parallel.sync=parameter-server",
                                     "parallel.mode=fast", "parallel.backup_workers=1",
                                     "parallel.devices=cpu", PROCESSES, "-n", "3",
                                     "train.steps=1000000", "parallel.timeout_ms=60000"))
    wait_for_updates("run", 5)
    pids = runs.children(process.pid)
    for rank in (1, 2):
        os.kill(pids[rank], signal.SIGKILL)
    runs.finish(process).expect(5, "has left, and the others need it")
    expect(not runs.alive("run.dir=run"), "processes are left")


def test_what_fails_for_all_ends_it():
    ended = runs.tutti(*runs.small("run", *ASYNC, PROCESSES, "-n", "3", "optimizer.lr=1000",
                                   "optimizer.weight_decay=1", "optimizer.name=sgd",
                                   "train.steps=4000"))
    ended.expect(7, "is not finite")
    refused = runs.tutti(*runs.small("no", *ASYNC, PROCESSES, "-n", "2", "parallel.replay=none"))
    refused.expect(2, "it is the folder of an asynchronous run")
    expect(not runs.alive("run.dir=run") and not runs.alive("run.dir=no"), "processes are left")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
