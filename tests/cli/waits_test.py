"""waits_test.py - waits that end, and what they say: an outage of the network that is shorter than
the limit is survived; after a timeout the worker that the others waited for, and what it was doing,
come last on stderr and in error.json.  The program is the one with points for TUTTI_FAULT."""

import json
import os
import re
import sys
import time

import hosts_test as hosts
import runs

runs.PROGRAM = os.path.join(runs.BUILD, "tests", "tutti_faults")

# A worker is late by this: longer than the limits, and than what it takes to notice that.
LATE_MS = 8000
LIMIT_MS = 1500

# Where a worker can be late -> the fault, the key of the limit, what is said of it.
LATE = {
    "saving": ("ckpt.rename:delay_ms=%d@1", "phase_timeout_ms", "has been saving a checkpoint for"),
    "computing": ("exec.compute:delay_ms=%d@rank=0,step=3", "timeout_ms",
                  "is in no call; its last was all_gather(n_elems=5, f64) (step 3, compute)"),
}


def late_run(name, run):
    fault, key, text = LATE[name]
    arguments = runs.small(run, "run.checkpoint_every=4", "parallel.timeout_ms=%d" % LIMIT_MS,
                           "parallel.phase_timeout_ms=%d" % LIMIT_MS)
    return arguments, {"TUTTI_FAULT": fault % LATE_MS}, key, text


def check_culprit(told, key, text):
    """The last line names the limit, a time that is no shorter, the rank and what it did."""
    found = re.search(r"waited (\d+) ms \(parallel\.%s=%d\) for rank 0" % (key, LIMIT_MS), told)
    if not found or int(found.group(1)) < LIMIT_MS or text not in told:
        raise AssertionError("no culprit: " + told)


def test_the_culprit_is_named_on_one_host():
    for name in LATE:
        arguments, fault, key, text = late_run(name, name)
        ended = runs.tutti(*arguments, "-n", "2", "parallel.place=processes",
                           env=dict(os.environ, **fault)).expect(6)
        check_culprit(ended.err.strip().splitlines()[-1], key, text)
        with open(os.path.join(name, "error.json")) as file:
            check_culprit(json.load(file)["text"], key, text)


def test_the_culprit_is_named_on_another_host():
    for name in LATE:
        arguments, fault, key, text = late_run(name, name)
        ended = hosts.Ranks(3, arguments, TUTTI_TEST_HOSTS="a,b,b", **fault).finish()
        for rank in ended[1:]:
            rank.expect(6)
            check_culprit(rank.out.strip().splitlines()[-1], "timeout_ms", "(pid ")


def wait_for_steps(ranks, run, n_more):
    """The run goes on by so many steps."""
    n = runs.steps_told(run) + n_more
    runs.wait_until(lambda: runs.steps_told(run) >= n or
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
    time.sleep(outage_s)
    mend(network)
    wait_for_steps(ranks, "long", 20)


def stop(ranks):
    for process in ranks.processes:
        process.terminate()
    ranks.finish()[0].expect(143)


def test_a_short_outage_is_survived():
    """Without limits of its own TCP sends again after 3 s, and then after 6.2 s: too late."""
    network = hosts.network_or_none()
    if not network:
        return
    with network:
        ranks = start_on(network, 4000)
        survive(network, ranks, 3.3)
        stop(ranks)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
