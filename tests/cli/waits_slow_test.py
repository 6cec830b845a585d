"""waits_slow_test.py - outages of a network and stops of processes that last for seconds, with more
ways to train, and outages that are too long."""

import os
import random
import shutil
import signal
import sys
import time

import hosts_test as hosts
import runs
import waits_test as waits

WAYS = [[], ["parallel.zero=3"], ["parallel.pipeline=2", "model.hidden=[16, 16]"],
        ["parallel.sync=parameter-server", "parallel.staleness=2", "parallel.mode=fast"]]


def test_an_outage_of_8_s_with_a_limit_of_10_s():
    network = hosts.network_or_none()
    if not network:
        return
    for way in WAYS:
        with network:
            ranks = waits.start_on(network, 10000, *way)
            waits.survive(network, ranks, 8)
            waits.stop(ranks)
        shutil.rmtree("long")


def test_a_longer_outage_ends_the_job():
    network = hosts.network_or_none()
    if not network:
        return
    with network:
        ranks = waits.start_on(network, 3000)
        waits.cut(network)
        start = time.monotonic()
        for rank in ranks.finish():
            rank.expect(6, "ms (parallel.timeout_ms=3000) for rank ",
                        "another host does not answer: the network is out, or that host is down")
        waited_s = time.monotonic() - start
        if waited_s < 3 or waited_s > hosts.NOTICED_S:
            raise AssertionError("ended after %.1f s" % waited_s)


def test_stops_in_any_order():
    """All ranks of a job are stopped for longer than the limit, and go on in another order."""
    dice = random.Random(runs.SEED)
    ranks = hosts.Ranks(4, [*hosts.long_run(), "parallel.timeout_ms=2000"],
                        TUTTI_TEST_HOSTS="a,a,b,b")
    waits.wait_for_steps(ranks, "long", 5)
    for _ in range(5):
        pids = [process.pid for process in ranks.processes]
        for sent, pause_s in ((signal.SIGSTOP, 4), (signal.SIGCONT, 0)):
            dice.shuffle(pids)
            for pid in pids:
                os.kill(pid, sent)
                time.sleep(0.02)  # apart from each other
            time.sleep(pause_s)  # longer than the limit, by the clock of every process
        waits.wait_for_steps(ranks, "long", 20)
    waits.stop(ranks)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
