"""elastic_hosts_test.py - an elastic run with a supervisor on each of two hosts: workers and hosts
are killed, the network between them is cut and comes back.  The bits are those of an undisturbed
run, and without a majority no host commits a step."""

import os
import signal
import subprocess
import sys
import time

import hosts_test
import runs
from elastic_test import N_STEPS, hash_of, steps_of, undisturbed

PROGRAM = os.path.join(runs.BUILD, "tests", "tutti_faults")
LONG = ["train.steps=300", "run.checkpoint_every=90", "parallel.place=processes", "train.ema=0.9"]
TOKEN = "0123456789abcdef0123"


class Hosts:
    """A run with one supervisor for each number in nodes; host k writes FOLDER-k.out."""

    def __init__(self, folder, nodes, *options, address="127.0.0.1", before=lambda node: [],
                 own=lambda node: [], delay_ms=5):
        self.folder = folder
        self.processes = []
        port = str(runs.port())
        for node in range(len(nodes.split(","))):
            env = hosts_test.environment(
                TUTTI_NODES=nodes, TUTTI_NODE_RANK=str(node), MASTER_ADDR=address,
                MASTER_PORT=port, TUTTI_TOKEN=TOKEN,
                TUTTI_FAULT="train.data:delay_ms=%d" % delay_ms)
            with open("%s-%d.out" % (folder, node), "w") as out:
                self.processes.append(subprocess.Popen(
                    [*before(node), PROGRAM, *runs.small(folder, *LONG, *options), *own(node)],
                    stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=env))

    def text(self, node):
        with open("%s-%d.out" % (self.folder, node), errors="replace") as file:
            return file.read()

    def step(self):
        return (steps_of(self.folder) or [0])[-1]

    def wait_for(self, step):
        runs.wait_until(lambda: self.step() >= step or
                        any(p.poll() is not None for p in self.processes), what="step %d" % step)
        assert self.step() >= step, self.text(0) + self.text(1)

    def wait_for_text(self, node, text):
        runs.wait_until(lambda: text in self.text(node) or
                        self.processes[node].poll() is not None, what=text)
        assert text in self.text(node), self.text(0) + self.text(1)

    def kill_worker(self, node, index):
        runs.kill_child(self.processes[node], index)

    def end(self):
        return [p.wait(runs.HANGS_S) for p in self.processes]

    def check(self, expected):
        """All steps are recorded once, with the losses of an undisturbed run."""
        assert hash_of(self.text(0) + self.text(1)) == expected, self.text(0) + self.text(1)
        assert steps_of(self.folder) == list(range(1, N_STEPS + 1)), steps_of(self.folder)
        losses = [[(r["step"], r["loss"]) for r in runs.records(run) if r["event"] == "step"]
                  for run in (self.folder, "whole")]
        assert losses[0] == losses[1]


def test_killed_workers():
    expected = undisturbed()
    run = Hosts("killed", "2,2", "parallel.min_workers=2", "run.restarts=1")
    run.wait_for(30)
    run.kill_worker(1, 0)  # it is started again
    run.wait_for(100)
    run.kill_worker(0, 0)
    assert run.end() == [0, 0], run.text(0) + run.text(1)
    run.check(expected)


def test_killed_hosts():
    expected = undisturbed()
    run = Hosts("ended", "2,2", "parallel.min_workers=2")
    run.wait_for(30)
    run.processes[1].kill()
    assert run.end() == [0, -signal.SIGKILL], run.text(0)
    assert "host 1 has ended" in run.text(0)
    run.check(expected)
    run = Hosts("leaderless", "2,2", "parallel.min_workers=1")
    run.wait_for(30)
    run.processes[0].kill()
    assert run.end() == [-signal.SIGKILL, 5], run.text(1)
    assert "host 0: it has ended" in run.text(1)


def test_refused():
    for nodes, options, code, words in [
            ("1,2", ["parallel.min_workers=1"], 2, "no other host may have more workers"),
            ("2,x", ["parallel.min_workers=1"], 2, "expected the number of workers of each host"),
            ("2,1", [], 2, "give the fewest workers that go on"),
            ("2,1", ["parallel.min_workers=1", "parallel.zero=1"], 2, "parallel.zero"),
            ("2,1", ["parallel.min_workers=1", "parallel.spares=1"], 2, "parallel.spares")]:
        run = Hosts("refused", nodes, *options)
        assert run.end() == [code, code], run.text(0) + run.text(1)
        for node in 0, 1:
            assert words in run.text(node), run.text(node)
    run = Hosts("other", "1,1", "parallel.min_workers=1",
                own=lambda node: ["train.seed=%d" % (node + 1)])
    assert run.processes[1].wait(runs.HANGS_S) == 2
    assert "host 1 has another job" in run.text(1), run.text(1)
    run.processes[0].send_signal(signal.SIGTERM)
    run.processes[0].wait(runs.HANGS_S)


def inside(network):
    return lambda node: ["ip", "netns", "exec", network.hosts[node]]


def set_link(network, state):
    network.ip("link", "set", network.hosts[1] + "v", state)


def test_cut_link():
    network = hosts_test.network_or_none()
    if not network:
        return
    expected = undisturbed()
    with network:
        where = {"address": network.subnet + "1", "before": inside(network)}
        larger = Hosts("larger", "3,1", "parallel.min_workers=2", **where, delay_ms=20)
        larger.wait_for(30)
        set_link(network, "down")
        began = time.monotonic()
        larger.wait_for_text(1, "hears nothing from host 0")
        print("the smaller side stopped after %.2f s" % (time.monotonic() - began))
        larger.wait_for_text(0, "host 1 does not answer")
        larger.wait_for(larger.step() + 20)
        set_link(network, "up")
        larger.wait_for_text(1, "the hosts are connected again")
        assert larger.end() == [0, 0], larger.text(0) + larger.text(1)
        larger.check(expected)
        equal = Hosts("equal", "2,2", "parallel.min_workers=1", **where)
        equal.wait_for(30)
        set_link(network, "down")
        equal.wait_for_text(0, "that is no majority")
        equal.wait_for_text(1, "hears nothing from host 0")
        step = equal.step()
        time.sleep(0.5)  # if steps were committed, some would be by now
        assert equal.step() == step
        set_link(network, "up")
        assert equal.end() == [0, 0], equal.text(0) + equal.text(1)
        equal.check(expected)
        few = Hosts("few", "2,1", "parallel.min_workers=3", "parallel.timeout_ms=4000", **where)
        few.wait_for(30)
        set_link(network, "down")
        assert few.end() == [5, 5], few.text(0) + few.text(1)
        assert "parallel.min_workers is 3" in few.text(0), few.text(0)
        set_link(network, "up")


if __name__ == "__main__":
    sys.exit(runs.main(sys.modules[__name__]))
