"""elastic_hosts_test.py - an elastic run with a supervisor on each of 2 to 4 hosts: workers and
hosts are killed and join again, the network between them is cut and comes back.  The bits are those
of an undisturbed run, and without a majority no host commits a step."""

import os
import signal
import subprocess
import sys
import time

import hosts_test
import runs
from elastic_test import hash_of, steps_of, undisturbed

PROGRAM = os.path.join(runs.BUILD, "tests", "tutti_faults")
LONG = ["train.steps=300", "run.checkpoint_every=90", "parallel.place=processes", "train.ema=0.9"]
TOKEN = "0123456789abcdef0123"


class Hosts:
    """A run with one supervisor for each number in nodes; host k writes FOLDER-k.out."""

    def __init__(self, folder, nodes, *options, address="127.0.0.1", before=lambda node: [],
                 own=lambda node: [], delay_ms=5, faults="", faults_of=lambda node: ""):
        self.folder = folder
        self.first = 0  # a host that lives until the end
        self.options = options
        self.before, self.own, self.faults_of = before, own, faults_of
        self.more = dict(TUTTI_NODES=nodes, MASTER_ADDR=address, MASTER_PORT=str(runs.port()),
                         TUTTI_TOKEN=TOKEN,
                         TUTTI_FAULT="train.data:delay_ms=%d%s" % (delay_ms, faults))
        self.processes = [self.start(node) for node in range(len(nodes.split(",")))]

    def start(self, node):
        env = hosts_test.environment(**self.more, TUTTI_NODE_RANK=str(node))
        env["TUTTI_FAULT"] += self.faults_of(node)
        with open("%s-%d.out" % (self.folder, node), "a") as out:
            return subprocess.Popen(
                [*self.before(node), PROGRAM, *runs.small(self.folder, *LONG, *self.options),
                 *self.own(node)], stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=env)

    def kill(self, node):
        """The supervisor, and its workers with it."""
        self.processes[node].kill()
        self.processes[node].wait()

    def join(self, node, leader=0):
        """The same command once more, for a host that was lost."""
        if leader > 0:
            port = int(self.more["MASTER_PORT"]) + 16 + leader
            self.more["MASTER_PORT"] = str(port)
        self.processes[node] = self.start(node)

    def texts(self):
        """The output of all hosts, and the exit codes of those that have ended."""
        texts = "".join(self.text(node) for node in range(len(self.processes)))
        return "%sexit codes: %s" % (texts, [p.poll() for p in self.processes])

    def starts(self):
        """Number of workers and step of each group."""
        return [(r["workers"], r["step"]) for r in runs.records(self.folder, "start")]

    def wait_for_workers(self, n, since=0):
        """since: the number of groups so far, if the last one has n workers too."""
        def are_there():
            starts = self.starts() if os.path.exists(self.folder + "/metrics.jsonl") else []
            return len(starts) > since and starts[-1][0] == n
        runs.wait_until(lambda: are_there() or self.processes[self.first].poll() is not None,
                        what="%d workers" % n)
        assert self.processes[self.first].poll() is None, self.texts()

    def text(self, node):
        with open("%s-%d.out" % (self.folder, node), errors="replace") as file:
            return file.read()

    def step(self):
        return runs.last_step(self.folder)

    def wait_for(self, step):
        runs.wait_until(lambda: self.step() >= step or
                        self.processes[self.first].poll() is not None, what="step %d" % step)
        assert self.step() >= step, self.texts()

    def wait_for_text(self, node, text):
        runs.wait_until(lambda: text in self.text(node) or
                        self.processes[node].poll() is not None, what=text)
        assert text in self.text(node), self.texts()

    def kill_worker(self, node, index):
        runs.kill_child(self.processes[node], index)

    def end(self):
        return [p.wait(runs.HANGS_S) for p in self.processes]

    def check(self, expected, whole="whole"):
        """All steps are recorded once, with the losses of an undisturbed run."""
        assert hash_of(self.texts()) == expected, self.texts()
        assert steps_of(self.folder) == steps_of(whole), steps_of(self.folder)
        losses = [[(r["step"], r["loss"]) for r in runs.records(run, "step")]
                  for run in (self.folder, whole)]
        assert losses[0] == losses[1]


def test_killed_workers():
    expected = undisturbed()
    run = Hosts("killed", "2,2", "parallel.min_workers=2", "run.restarts=1")
    run.wait_for(30)
    run.kill_worker(1, 0)  # it is started again
    run.wait_for(100)
    run.kill_worker(0, 0)
    assert run.end() == [0, 0], run.texts()
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
    assert run.end() == [-signal.SIGKILL, 0], run.text(1)
    assert "host 0 has ended" in run.text(1)
    run.check(expected)


def test_hosts_leave_and_join():
    """Of four hosts, one ends, another one too, and both join again by the same command."""
    expected = undisturbed()
    run = Hosts("joined", "2,1,1,1", "parallel.min_workers=2")
    run.wait_for(20)
    run.kill(3)
    run.wait_for_text(0, "host 3 has ended")
    run.wait_for_workers(4)
    run.kill(1)
    run.wait_for_workers(3)
    run.join(1)
    run.wait_for_workers(4)
    run.join(3)
    run.wait_for_workers(5)
    run.wait_for(run.step() + 10)
    assert run.end() == [0, 0, 0, 0], run.texts()
    run.check(expected)


def test_workers_of_several_hosts_join_together():
    """Those of host 2 load the data for longer: one change adds all."""
    run = Hosts("together", "2,2,2", "train.steps=100000", "parallel.min_workers=1",
                "run.checkpoint_every=-1", faults="".join(
                    ";train.load:delay_ms=%d@rank=%d" % pair
                    for pair in ((900, 1), (900, 3), (1300, 4), (1300, 5))))
    run.wait_for(10)
    for n in 2, 6:
        runs.tutti("scale", "together", str(n)).expect(0)
    assert [n for n, _ in run.starts()] == [6, 2, 6], run.starts()
    for process in run.processes:
        process.send_signal(signal.SIGTERM)
    assert run.end() == [143, 143, 143], run.texts()


def test_a_host_that_loads_is_not_waited_for():
    """Host 1 joins again, and is still loading the data when the run ends."""
    expected = undisturbed()
    run = Hosts("loads", "2,1", "parallel.min_workers=1")
    run.wait_for(20)
    run.kill(1)
    run.wait_for_workers(2)
    run.more["TUTTI_FAULT"] += ";train.load:delay_ms=600000"
    run.join(1)
    assert run.end() == [0, 5], run.texts()
    assert [n for n, _ in run.starts()] == [3, 2], run.starts()
    assert "the run ends before the workers of this host are in a group" in run.text(1), run.text(1)
    run.check(expected)


def test_lost_while_a_host_joins():
    """A worker of a host that joins, which is started again, and then its last one; one that the
    run needs; and the host that it has connected to, before its workers are ready."""
    expected = undisturbed()
    run = Hosts("joining", "2,1", "parallel.min_workers=1", "run.restarts=1")
    run.wait_for(20)
    run.kill(1)
    run.wait_for_workers(2)
    usual = run.more["TUTTI_FAULT"]
    run.more["TUTTI_FAULT"] = usual + ";train.load:kill"
    run.join(1)
    assert run.processes[1].wait(runs.HANGS_S) == 5, run.texts()
    assert "no worker of this host is left; the other hosts go on" in run.text(1), run.text(1)
    run.wait_for_text(0, "host 1 has no worker left")
    run.more["TUTTI_FAULT"] = usual
    run.join(1)
    assert run.end() == [0, 0], run.texts()
    assert [n for n, _ in run.starts()] == [3, 2, 3], run.starts()
    run.check(expected)
    run = Hosts("needed", "2,1", "parallel.min_workers=3")
    run.wait_for(20)
    run.kill(1)
    run.wait_for_text(0, "fewer than parallel.min_workers=3")
    run.more["TUTTI_FAULT"] = usual + ";train.load:kill"
    run.join(1)
    assert run.processes[1].wait(runs.HANGS_S) == 5, run.texts()
    run.wait_for_text(0, "host 1 could not join: rank 0 ")
    run.more["TUTTI_FAULT"] = usual
    run.join(1)
    assert run.end() == [0, 0], run.texts()
    run.check(expected)
    run = Hosts("leader", "2,1,2", "parallel.min_workers=1")
    run.wait_for(20)
    run.kill(2)
    run.wait_for_workers(3)
    run.more["TUTTI_FAULT"] = usual + ";train.load:delay_ms=1500"
    run.join(2)
    runs.wait_until(lambda: len(runs.children(run.processes[2].pid)) == 2, what="workers of host 2")
    run.wait_for(run.step() + 80)  # it has heard of the run
    run.first = 1
    run.kill(0)
    assert run.end() == [-signal.SIGKILL, 0, 0], run.texts()
    assert "host 0 has ended" in run.text(2), run.text(2)
    run.check(expected)


def is_pending(pid, sig):
    with open("/proc/%d/status" % pid) as file:
        pending = [line.split()[1] for line in file if line.startswith("ShdPnd")]
    return bool(int(pending[0], 16) >> (sig - 1) & 1)


def test_scaled_from_another_host():
    """RUN/live is of a process that host 1 cannot see: it has a file of its own."""
    run = Hosts("asked", "2,1", "train.steps=100000", "parallel.min_workers=1",
                "parallel.max_workers=4", "run.checkpoint_every=-1", "run.restarts=1")
    run.wait_for(10)
    os.rename("asked/live", "live of host 0")

    def shown():
        return [int(line.split()[1]) for line in runs.tutti("ps", "asked").out.splitlines()[1:]]

    def shows_all():
        with open("/proc/%d/task/%d/children" % ((run.processes[1].pid,) * 2)) as file:
            return sorted(shown()) == sorted(int(pid) for pid in file.read().split())
    lost = shown()
    assert len(lost) == 1, lost
    n_groups = len(run.starts())
    run.kill_worker(1, 0)  # it is started again
    runs.wait_until(lambda: len(shown()) == 1 and shown() != lost, what="another process")
    run.wait_for_workers(3, since=n_groups)
    for n in 1, 4:
        runs.wait_until(shows_all, what="ps shows the workers of host 1")
        runs.tutti("scale", "asked", str(n)).expect(0)
        assert run.starts()[-1][0] == n, (n, run.starts())
    runs.wait_until(shows_all, what="ps shows the workers of host 1")
    run.processes[1].send_signal(signal.SIGUSR2)
    run.wait_for_workers(3)
    run.processes[0].send_signal(signal.SIGSTOP)  # it hears of three signals at once
    for _ in range(3):
        run.processes[1].send_signal(signal.SIGUSR2)
        runs.wait_until(lambda: not is_pending(run.processes[1].pid, signal.SIGUSR2),
                        what="the signal is read")
    run.processes[0].send_signal(signal.SIGCONT)
    run.wait_for_workers(1)
    for process in run.processes:
        process.send_signal(signal.SIGTERM)
    assert run.end() == [143, 143], run.texts()
    assert not [name for name in os.listdir("asked") if name.startswith("live")]


def test_scale_waits_for_workers_of_other_hosts():
    """Worker 0 of host 0 is slow to begin in each group.  The command on host 1 returns once it has
    begun, also where host 1 itself has no worker in the group."""
    run = Hosts("late", "2,1", "train.steps=100000", "parallel.min_workers=1",
                "parallel.max_workers=4", "run.checkpoint_every=-1", faults_of=lambda node:
                "" if node else ";train.taken_over:delay_ms=2000@rank=0")
    run.wait_for(10)
    os.rename("late/live", "live of host 0")  # tutti scale finds host 1
    for n in 1, 4:
        runs.tutti("scale", "late", str(n)).expect(0)
        assert run.starts()[-1][0] == n, (n, run.starts())
    for process in run.processes:
        process.send_signal(signal.SIGTERM)
    assert run.end() == [143, 143], run.texts()


def test_both_hosts_lose_a_worker():
    """One of them after the leader has counted it: the others do not wait for it until a timeout of
    10 s."""
    run = Hosts("both", "2,1", "train.steps=100000", "parallel.min_workers=1",
                "run.checkpoint_every=-1")
    run.wait_for(10)
    took = []
    for _ in range(4):  # on a busy machine anything may take long, but not always
        begin = time.monotonic()
        runs.tutti("scale", "both", "1").expect(0)
        took.append(time.monotonic() - begin)
        runs.tutti("scale", "both", "3").expect(0)
        if took[-1] < 9:
            break
    for process in run.processes:
        process.send_signal(signal.SIGTERM)
    assert run.end() == [143, 143], run.texts()
    assert min(took) < 9, took


def test_spares():
    expected = undisturbed()
    run = Hosts("spared", "1,1", "parallel.min_workers=2", "parallel.spares=1")
    run.wait_for(20)
    run.kill(1)
    run.wait_for_text(0, "host 1 has ended")
    assert run.end() == [0, -signal.SIGKILL], run.texts()
    assert [n for n, _ in run.starts()] == [2, 2], run.starts()  # with the spare of host 0
    run.check(expected)


def with_names(node):
    """Hosts have names of their own, if this user may give them."""
    name = ["unshare", "--uts", "sh", "-c", 'hostname node-%d; exec "$@"' % node, "sh"]
    tried = subprocess.run([*name, "true"], stderr=subprocess.DEVNULL)
    return name if tried.returncode == 0 else []


def test_host_file():
    """The file is read whenever it changes, and says how many workers each host has."""
    if not with_names(0):
        print("no names of hosts here")
        return
    expected = undisturbed()
    run = Hosts("listed", "2,2", "parallel.min_workers=2", "parallel.max_workers=6",
                "parallel.hostfile=hosts", before=with_names, delay_ms=30)

    def write(text, *workers):
        """With as many workers of each host, if the run lasts that long."""
        with open("hosts-new", "w") as file:
            file.write(text)
        os.rename("hosts-new", "hosts")
        runs.wait_until(lambda: [len(runs.children(p.pid)) for p in run.processes] == [*workers] and
                        run.starts()[-1][0] == sum(workers) or run.processes[0].poll() is not None,
                        what="%s workers" % [*workers])

    run.wait_for(10)
    write("localhost slots=3\nnode-1 slots=1\n", 3, 1)
    write("localhost slots=2", 2, 0)
    write("node-0 slots=3\nnode-1.example.org slots=2 # twice\nnode-1 slots=1\nnode-9\n", 3, 3)
    write("localhost slots=1\nnode-1 slots=many", 3, 3)
    run.wait_for_text(0, "line 2: expected HOST or HOST slots=N")
    write("localhost slots=1", 3, 3)
    run.wait_for_text(0, "asks for 1 worker on all hosts")
    assert run.end() == [0, 0], run.texts()
    assert run.starts()[-1][0] == 6 and 2 in [n for n, _ in run.starts()], run.starts()
    run.check(expected)
    assert "'node-9' is not a host of this run" in run.text(0), run.text(0)


def test_refused():
    for nodes, options, code, words in [
            ("1,2", ["parallel.min_workers=1"], 2, "no other host may have more workers"),
            ("2,x", ["parallel.min_workers=1"], 2, "expected the number of workers of each host"),
            ("2,1", [], 2, "give the fewest workers that go on"),
            ("2,1", ["parallel.min_workers=1", "parallel.place=threads"], 2,
             "do not support parallel.place=threads")]:
        run = Hosts("refused", nodes, *options)
        assert run.end() == [code, code], run.texts()
        for node in 0, 1:
            assert words in run.text(node), run.text(node)
    run = Hosts("other", "1,1", "parallel.min_workers=1",
                own=lambda node: ["train.seed=%d" % (node + 1)])
    assert run.processes[1].wait(runs.HANGS_S) == 2
    assert "the version of host 1 differs" in run.text(1), run.text(1)
    run.processes[0].send_signal(signal.SIGTERM)
    run.processes[0].wait(runs.HANGS_S)


def inside(network):
    return lambda node: ["ip", "netns", "exec", network.hosts[node]]


def set_link(network, state, node=1):
    network.ip("link", "set", network.hosts[node] + "v", state)


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
        larger.wait_for_text(1, "receives nothing from host 0")
        print("the smaller side stopped after %.2f s" % (time.monotonic() - began))
        larger.wait_for_text(0, "host 1 does not answer")
        larger.wait_for(larger.step() + 20)
        set_link(network, "up")
        larger.wait_for_text(1, "the hosts are connected again")
        assert larger.end() == [0, 0], larger.texts()
        larger.check(expected)
        equal = Hosts("equal", "2,2", "parallel.min_workers=1", **where)
        equal.wait_for(30)
        set_link(network, "down")
        equal.wait_for_text(0, "so it has no majority")
        equal.wait_for_text(1, "receives nothing from host 0")
        step = equal.step()
        time.sleep(0.5)  # if steps were committed, some would be by now
        assert equal.step() == step
        set_link(network, "up")
        assert equal.end() == [0, 0], equal.texts()
        equal.check(expected)
        few = Hosts("few", "2,1", "parallel.min_workers=3", "parallel.timeout_ms=4000", **where)
        few.wait_for(30)
        set_link(network, "down")
        assert few.end() == [5, 5], few.texts()
        assert "fewer than parallel.min_workers=3" in few.text(0), few.text(0)
        set_link(network, "up")


if __name__ == "__main__":
    sys.exit(runs.main(sys.modules[__name__]))
