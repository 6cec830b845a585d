"""waits_test.py - waits that end, and what they say: a worker that saves, evaluates or loads is
waited for with a limit of its own; after a timeout the worker that the others waited for, and what
it was doing, come last on stderr and in error.json; an outage of the network that is shorter than
the limit is survived.  The program is the one with points for TUTTI_FAULT.  Runs that mostly wait
are started together."""

import json
import os
import re
import subprocess
import sys
import time

import hosts_test as hosts
import runs

runs.PROGRAM = os.path.join(runs.BUILD, "tests", "tutti_faults")

# Other phases of a worker are shorter than these limits on a busy machine too.
TIMEOUT_MS, PHASE_MS = 3000, 4500
LATE_MS = 12000  # longer than the limits, and than what it takes to notice that

# The late phase -> the fault, the worker, the limit that applies, part of the message.
LATE = {
    "saving": ("ckpt.rename:delay_ms=%d@1", 0, "phase_timeout_ms=%d" % PHASE_MS,
               "has been saving a checkpoint for"),
    "evaluating": ("exec.evaluate:delay_ms=%d@1,rank=1", 1, "phase_timeout_ms=%d" % PHASE_MS,
                   "has been evaluating for"),
    "computing": ("exec.compute:delay_ms=%d@rank=0,step=3", 0, "timeout_ms=%d" % TIMEOUT_MS,
                  "is in no call; its last was all_gather(n_elems=5, f64) (step 3, compute)"),
}
# The same of ranks that another launcher starts: they connect before they load.
LATE_ON_HOSTS = dict(LATE, starting=("train.load:delay_ms=%d@rank=2", 2,
                                     "phase_timeout_ms=%d" % PHASE_MS,
                                     "has been loading the data for"))


def late_run(run, fault, *more):
    """The arguments and the environment of a run in which a worker is late."""
    return (runs.small(run, "run.checkpoint_every=4",
                       "parallel.timeout_ms=%d" % TIMEOUT_MS,
                       "parallel.phase_timeout_ms=%d" % PHASE_MS, *more),
            {"TUTTI_FAULT": fault % LATE_MS})


def check_culprit(reported, rank, limit, text):
    """The line names the limit, a time that is no shorter, the rank and what it did."""
    found = re.search(r"waited (\d+) ms \(parallel\.%s\) for rank %d" % (limit, rank), reported)
    if not found or int(found.group(1)) < int(limit.split("=")[1]) or text not in reported:
        raise AssertionError("no culprit: " + reported)


class Processes:
    """Workers of one host: a run of the program, whose output is in files of its own."""

    def __init__(self, run, arguments, env):
        self.run = run
        with open(run + ".out", "w") as out, open(run + ".err", "w") as err:
            self.process = subprocess.Popen(
                [runs.PROGRAM, arguments[0], "-n", "2", "parallel.place=processes",
                 *arguments[1:]], stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                env=dict(os.environ, **env), start_new_session=True)

    def finish(self):
        code = self.process.wait(runs.HANGS_S)
        with open(self.run + ".out") as out, open(self.run + ".err") as err:
            return runs.Ended([self.run], code, out.read(), err.read())


def start_late_ranks(name, fault):
    arguments, env = late_run("far-" + name, fault)
    return hosts.Ranks(3, arguments, out="far-" + name, TUTTI_TEST_HOSTS="a,b,b",
                       MASTER_PORT=str(hosts.PORT + 1 + sorted(LATE_ON_HOSTS).index(name)), **env)


# Ways to train with a parameter server, whose waits are none of a communicator.
SERVED = ["parallel.sync=parameter-server", "parallel.mode=fast", "parallel.staleness=2",
          "parallel.timeout_ms=2500", "train.eval_every=1"]
SLOW = ";".join(("exec.evaluate:delay_ms=4000@1,rank=1", "ckpt.rename:delay_ms=4000@1"))


def start_slow_served():
    """Workers of a server in threads, in processes and on two hosts: one is slow in its phases."""
    few = [*SERVED, "train.steps=12", "run.checkpoint_every=4"]
    yield Processes("served", runs.small("served", *few), {"TUTTI_FAULT": SLOW})
    yield Processes("served-threads", runs.small("served-threads", "parallel.place=threads", *few),
                    {"TUTTI_FAULT": SLOW})
    yield hosts.Ranks(3, runs.small("served-far", *few), out="served-far", TUTTI_FAULT=SLOW,
                      TUTTI_TEST_HOSTS="a,b,b", MASTER_PORT=str(hosts.PORT + 9))


def start_late_served():
    return Processes("served-late", runs.small("served-late", *SERVED, "run.checkpoint_every=4",
                                               "parallel.phase_timeout_ms=%d" % PHASE_MS),
                     {"TUTTI_FAULT": "ckpt.rename:delay_ms=%d@1" % LATE_MS})


def start_slow_ranks():
    """Each phase takes longer than the limit of other waits, and less than that of phases."""
    late = ";".join(("train.load:delay_ms=3500@rank=2", "exec.evaluate:delay_ms=3500@1,rank=1",
                     "ckpt.rename:delay_ms=3500@1"))
    return hosts.Ranks(3, runs.small("slow", "parallel.timeout_ms=2500"), out="slow",
                       TUTTI_FAULT=late, TUTTI_TEST_HOSTS="a,b,b")


def test_long_phases():
    """They are waited for; after a timeout the worker that is late and its phase are named."""
    near = {name: Processes(name, *late_run(name, late[0])) for name, late in LATE.items()}
    far = {name: start_late_ranks(name, late[0]) for name, late in LATE_ON_HOSTS.items()}
    served = start_late_served()
    slow = [start_slow_ranks(), *start_slow_served()]
    for processes in slow:
        ended = processes.finish()
        for one in ended if isinstance(ended, list) else [ended]:
            one.expect(0)
    reported = served.finish().expect(6).err.strip().splitlines()[-1]
    said = (r"worker 1 waited \d+ ms for worker 0 \(the limit is %d ms, by parallel\."
            r"phase_timeout_ms\); rank 0 has been saving a checkpoint for " % PHASE_MS)
    if not re.search(said, reported):
        raise AssertionError("no culprit: " + reported)
    for name, processes in near.items():
        ended = processes.finish().expect(6)
        check_culprit(ended.err.strip().splitlines()[-1], *LATE[name][1:])
        with open(os.path.join(name, "error.json")) as file:
            check_culprit(json.load(file)["text"], *LATE[name][1:])
    for name, ranks in far.items():
        culprit = LATE_ON_HOSTS[name][1]
        for number, rank in enumerate(ranks.finish()):
            if number != culprit:
                rank.expect(6)
                check_culprit(rank.out.strip().splitlines()[-1], *LATE_ON_HOSTS[name][1:])


def test_a_stopped_rank_lives_until_other_hosts_know_of_it():
    """Its neighbor, which sees at once that it is stopped, computes and cannot say so: it must not
    end the stopped rank before, or the other host would only see a connection that ends."""
    faults = "exec.compute:stop@rank=2,step=3;exec.compute:delay_ms=1800@rank=3,step=3"
    ranks = hosts.Ranks(4, [*hosts.long_run(), "parallel.timeout_ms=20000"], out="reported",
                        TUTTI_FAULT=faults, TUTTI_TEST_HOSTS="a,a,b,b",
                        MASTER_PORT=str(hosts.PORT + 10))
    try:
        for rank in (0, 1, 3):
            ranks.processes[rank].wait(runs.HANGS_S)
    finally:
        ranks.processes[2].kill()
    ended = ranks.finish()
    stopped = "rank 2 (pid %d on b) was stopped by a signal" % ranks.processes[2].pid
    for rank in (0, 1, 3):
        ended[rank].expect(5, stopped)


def test_a_thread_that_does_not_end():
    """A disk that does not answer keeps no program: it ends after one more limit, and says so."""
    run = runs.small("stuck", "run.checkpoint_every=4", "parallel.place=threads",
                     "parallel.timeout_ms=%d" % TIMEOUT_MS,
                     "parallel.phase_timeout_ms=%d" % PHASE_MS, "-n", "2")
    stuck = dict(os.environ, TUTTI_FAULT="ckpt.rename:delay_ms=600000@1")
    ended = runs.tutti(*run, env=stuck).expect(6)
    reported = ended.err.strip().splitlines()[-1]
    check_culprit(reported, 0, "phase_timeout_ms=%d" % PHASE_MS, "has been saving a checkpoint for")
    said = "1 worker has not ended %d ms after worker 1 failed" % TIMEOUT_MS
    if said not in reported:
        raise AssertionError(reported)


def wait_for_steps(ranks, run, n_more):
    """The run goes on by so many steps."""
    n = runs.steps_reported(run) + n_more
    runs.wait_until(lambda: runs.steps_reported(run) >= n or
                    any(p.poll() is not None for p in ranks.processes), what="steps")
    if any(p.poll() is not None for p in ranks.processes):
        raise AssertionError("\n".join(rank.out for rank in ranks.finish()))


def start_on(network, limit_ms, *more):
    """A long run of four ranks on two hosts, at work."""
    with open(os.open("token", os.O_CREAT | os.O_WRONLY, 0o600), "w") as token:
        token.write("0123456789abcdef0123\n")
    ranks = hosts.Ranks(4, [*hosts.long_run(), "parallel.timeout_ms=%d" % limit_ms, *more],
                        before=lambda rank: ["ip", "netns", "exec", network.hosts[rank // 2]],
                        MASTER_ADDR=network.subnet + "1", TUTTI_TOKEN_FILE="token")
    wait_for_steps(ranks, "long", 5)
    return ranks


def cut(network):
    network.ip("link", "set", network.hosts[1] + "v", "nomaster")


def mend(network):
    network.ip("link", "set", network.hosts[1] + "v", "master", network.mark + "r")


def survive(network, ranks, outage_s):
    cut(network)
    time.sleep(outage_s)  # the outage itself: the kernel retransmits by its own clock
    mend(network)
    wait_for_steps(ranks, "long", 20)


def stop(ranks):
    for process in ranks.processes:
        process.terminate()
    ranks.finish()[0].expect(143)


def test_a_short_outage_is_survived():
    """Without limits of its own TCP sends again after 1.4 s, and then after 3 s: too late."""
    network = hosts.network_or_none()
    if not network:
        return
    with network:
        ranks = start_on(network, 2400)
        survive(network, ranks, 1.8)
        stop(ranks)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
