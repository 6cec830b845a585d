"""hosts_test.py - ranks that another launcher starts: plain variables, mpirun of Open MPI and
MPICH, several hosts (names of them, and network namespaces where that is allowed): the same bits
as on one host, and words for what goes wrong.  What is missing here, MPI or root, is passed over.
"""

import glob
import os
import shutil
import signal
import subprocess
import sys
import time

import runs

LIMIT_S = 600 # parallel.timeout_ms of runs that lose a rank
NOTICED_S = 200 # on a machine with much else to do: not by LIMIT_S
PORT = runs.port()
AGENT = """#!/bin/sh
# stands for ssh: a host is a network namespace
while :; do case $1 in -*) shift ;; *) break ;; esac; done
host=$1
shift
# a host has a folder of its own for what it keeps while it runs: Open MPI makes the same name in it
mkdir -p "/tmp/$host"
TMPDIR="/tmp/$host" exec ip netns exec "$host" sh -c "$*"
"""


def environment(**more):
    """Of a process that no launcher has started."""
    env = {key: value for key, value in os.environ.items()
           if not key.startswith(("RANK", "WORLD", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM"))}
    # Open MPI looks for ssh even if all ranks are on this host: any program will do.  It must not
    # use a network interface of another test, which removes it meanwhile.
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMPI_MCA_plm_rsh_agent="false", OMPI_MCA_btl_tcp_if_include="lo",
               OMPI_MCA_oob_tcp_if_include="lo")
    env.update(more)
    return env


class Ranks:
    """Processes with RANK and WORLD_SIZE; rank r writes out-r."""

    def __init__(self, n_ranks, arguments, before=lambda rank: [], own=lambda rank: [],
                 called=None, out="rank", program=None, **env):
        self.processes = []
        self.out = out
        for rank in range(n_ranks):
            name = called[rank] if called else rank
            more = dict(RANK=str(name), WORLD_SIZE=str(n_ranks), MASTER_ADDR="localhost",
                        MASTER_PORT=str(PORT))
            more.update(env)
            with open("%s-%d" % (out, rank), "w") as file:
                self.processes.append(subprocess.Popen(
                    [*before(rank), program or runs.PROGRAM, *arguments, *own(rank)],
                    stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=environment(**more),
                    start_new_session=True))

    def finish(self, timeout_s=runs.HANGS_S):
        ended = []
        for rank, process in enumerate(self.processes):
            code = process.wait(timeout_s)
            with open("%s-%d" % (self.out, rank), errors="replace") as file:
                ended.append(runs.Ended(["rank", str(rank)], code, file.read(), ""))
        return ended


def expected():
    runs.train_once("expected", "parallel.workers=1")
    return runs.story("expected")


def test_parts_over_hosts():
    """Partitioned gradients and parameters, which come bucket by bucket from other hosts too."""
    more = ["model.hidden=[60, 50]", "parallel.bucket_mb=0.002", "train.ema=0.9"]
    runs.tutti(*runs.small("one", "parallel.workers=1", *more)).expect(0)
    for zero, hosts in ((2, "a,a,b"), (3, "a,b,b"), (3, "a,b,c")):
        run = "parts-%d-%s" % (zero, hosts)
        for rank in Ranks(3, runs.small(run, "parallel.zero=%d" % zero, *more),
                          TUTTI_TEST_HOSTS=hosts).finish():
            rank.expect(0)
        runs.same_story(runs.story("one"), run)
        runs.same_checkpoint("one", run)


def test_plain_variables_on_hosts_of_every_division():
    story = expected()
    for n_ranks, hosts in ((2, "a"), (3, "a,b,b"), (4, "a,a,b,b"), (4, "a,b,c,d")):
        run = "run-%d-%s" % (n_ranks, hosts)
        ended = Ranks(n_ranks, runs.small(run), TUTTI_TEST_HOSTS=hosts).finish()
        n_hosts = len(set(hosts.split(",")))
        ended[0].expect(0, "by environment (RANK=0, WORLD_SIZE=%d); %d host" % (n_ranks, n_hosts),
                        "over tcp", "params_hash", "%d workers (processes)" % n_ranks)
        for rank in ended[1:]:
            rank.expect(0)
            if "params_hash" in rank.out:
                raise AssertionError("every rank reports the result: " + rank.out)
        runs.same_story(story, run)


def checkpoint(run):
    """The bytes of its last one."""
    newest = sorted(glob.glob(run + "/checkpoints/step-*"))[-1]
    return [open(os.path.join(newest, name), "rb").read()
            for name in ("model.safetensors", "optimizer.safetensors")]


def test_state_in_parts_on_hosts():
    """Sums of which each rank gets a part, parts that come together again, on even hosts and on
    uneven ones, and where the ranks of one host lie apart."""
    more = ["parallel.zero=1", "optimizer.name=adamw", "train.clip_norm=1", "train.ema=0.9",
            "model.hidden=[300, 300]", "train.steps=6", "run.checkpoint_every=-1"]
    runs.tutti(*runs.small("whole", "parallel.workers=1", *more)).expect(0)
    story = runs.story("whole")
    for n_ranks, hosts, algorithm in ((4, "a,a,b,b", "direct"), (4, "a,b,b,b", "direct"),
                                      (3, "a,b,a", "auto"), (4, "a,b,a,c", "tree")):
        run = "parts-%d-%s" % (n_ranks, hosts)
        ended = Ranks(n_ranks, runs.small(run, "parallel.algorithm=" + algorithm, *more),
                      TUTTI_TEST_HOSTS=hosts).finish()
        for rank in ended:
            rank.expect(0)
        runs.same_story(story, run)
        if checkpoint("whole") != checkpoint(run):
            raise AssertionError("the checkpoint of %s is another" % run)


def test_servers_and_fewer_bytes_on_hosts():
    """What the workers of one host come to, as threads or processes."""
    fast = ["parallel.mode=fast"]
    ways = {"server": ["parallel.sync=parameter-server", "parallel.servers=2"],
            "wire": ["parallel.wire=bf16"],
            "wire-tree": ["parallel.wire=bf16", "parallel.algorithm=tree"],
            "wire-zero": ["parallel.wire=bf16", "parallel.zero=2"],
            "topk": fast + ["parallel.compress=topk", "parallel.topk=0.05"],
            "powersgd": fast + ["parallel.compress=powersgd"],
            "local": fast + ["parallel.sync=local", "parallel.average_every=3"]}
    more = ["model.hidden=[300, 30]", "train.steps=6", "run.checkpoint_every=-1"]
    for way, arguments in ways.items():
        arguments = more + arguments
        runs.tutti(*runs.small("near-" + way, "-n", "3", *arguments)).expect(0)
        ended = Ranks(3, runs.small("far-" + way, *arguments), TUTTI_TEST_HOSTS="a,b,b").finish()
        for rank in ended:
            rank.expect(0)
        runs.same_story(runs.story("near-" + way), "far-" + way)
        if checkpoint("near-" + way) != checkpoint("far-" + way):
            raise AssertionError("the checkpoint of %s is another" % way)


def test_a_launcher_that_starts_its_ranks_again():
    """torchrun, or Slurm with a job that it has put into its queue again: the same command goes on
    from the last checkpoint.  A first start, or one of another job, is refused as ever."""
    again = {"torchrun": {"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": "1"},
             "slurm": {"SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "2"}}
    refused = "already holds a run"
    story = expected()
    for name, env in again.items():
        command = runs.small(name, "run.checkpoint_every=20")
        first = {key: "0" if key.endswith("COUNT") else value for key, value in env.items()}
        for rank in Ranks(2, command, **first).finish():
            rank.expect(0)
        Ranks(2, command, **first).finish()[0].expect(2, refused)
        shutil.rmtree(runs.newest_checkpoint(name))  # as if it had ended on its way there
        Ranks(2, command + ["optimizer.lr=1"], **env).finish()[0].expect(2, refused)
        for rank in Ranks(2, command, **env).finish():
            rank.expect(0)
        if runs.checkpoints(name) != [20, 40]:
            raise AssertionError(runs.checkpoints(name))
        reported = [r["step"] for r in runs.records(name) if r["event"] == "step"]
        starts = [r["step"] for r in runs.records(name) if r["event"] == "start"]
        if reported != list(range(1, 41)) or starts != [0, 20]:
            raise AssertionError((reported, starts))
        runs.same_story(story, name)
    for rank in Ranks(2, runs.small("new"), **env).finish():  # it had not made its folder yet
        rank.expect(0)
    runs.same_story(story, "new")


def test_jobs_that_differ():
    ended = Ranks(2, runs.small("run"), own=lambda rank: ["train.seed=%d" % (rank + 1)]).finish()
    for rank in ended:
        rank.expect(2, "rank 1 has another job than rank 0", "'seed: 2' where rank 0 has 'seed: 1'")
    if os.path.exists("run"):
        raise AssertionError("a run folder is left")


def test_data_that_differ():
    """Each rank reads "data" in a folder of its own, as on hosts without a common file system."""
    changes = {"same": None, "fewer": dict(n_train=40), "fewer-tests": dict(n_test=49),
               "classes": dict(n_classes=5), "pixels": None, "labels": None}
    reported = {"same": "", "fewer": "40 training samples, rank 0 has 200",
            "fewer-tests": "49 test samples, rank 0 has 50", "classes": "5 classes, rank 0 has 4",
            "pixels": "contents of training samples have the checksum ",
            "labels": "contents of test samples have the checksum "}
    for name, change in changes.items():
        runs.write_idx(name + "-0/data")
        runs.write_idx(name + "-1/data", **(change or {}))
        if name == "pixels":
            runs.flip(name + "-1/data/train-images-idx3-ubyte", 16 + 199 * 64)
        if name == "labels":
            runs.flip(name + "-1/data/t10k-labels-idx1-ubyte", 8 + 25)
        ended = Ranks(2, ["train", "model.name=mlp", "model.hidden=[8]", "data.format=idx",
                          "data.dir=data", "train.batch=16", "train.epochs=1", "run.dir=run",
                          "parallel.shards=2"],
                      before=lambda rank: ["sh", "-c", 'cd "$0" && exec "$@"',
                                           "%s-%d" % (name, rank)]).finish()
        for rank in ended:
            if reported[name]:
                rank.expect(2, "rank 1 on ", "reads other data than rank 0 on ", reported[name])
            else:
                rank.expect(0)
        if reported[name] and os.path.exists(name + "-0/run"):
            raise AssertionError("a run folder is left")


def test_ranks_that_are_missing_or_there_twice():
    ended = Ranks(1, runs.small("run", "parallel.timeout_ms=500"), WORLD_SIZE="3").finish()
    ended[0].expect(6, "rank 0 waited ", "ms (parallel.timeout_ms=500)", "for ranks 1, 2")
    ranks = Ranks(3, runs.small("run"), called=[0, 1, 1])
    runs.wait_until(lambda: any(p.poll() is not None for p in ranks.processes),
                    what="the end of one of two")
    for process in ranks.processes:
        process.terminate()
    ended = ranks.finish()
    if not any("there is a rank 1 already" in rank.out and rank.code == 2 for rank in ended):
        raise AssertionError("\n".join(rank.out for rank in ended))
    Ranks(1, runs.small("run"), WORLD_SIZE="2", MASTER_ADDR="192.0.2.1").finish()[0].expect(
        2, "must share a secret")


def test_as_many_workers_as_the_launcher_has():
    """Too many ranks are refused by the message about ranks, not about parallel.workers."""
    runs.tutti(*runs.small("old")).expect(0)
    for n_ranks, arguments, parts in (
            (16, runs.small("run"), ["16 workers for 8 shards", "parallel.shards=16"]),
            (3, runs.small("run", "parallel.tensor=2"), ["3 is not a multiple of 2"]),
            (3, runs.small("run", "-n", "2"), ["parallel.workers is 2", "rank 0 of 3"]),
            (8, runs.small("run", "parallel.data=2"), ["but parallel.workers is 8"]),
            (65537, runs.small("run"), ["at most 65536 workers", "rank 0 of 65537"]),
            (65537, ["train", "--resume", "old"], ["at most 65536 workers"])):
        Ranks(1, arguments, WORLD_SIZE=str(n_ranks)).finish()[0].expect(2, *parts)


def kill_one(pids, wait):
    """Kills the second process; wait() must come back soon, with nothing left."""
    runs.wait_until(lambda: runs.steps_reported("long") > 10, what="more steps")
    start = time.monotonic()
    os.kill(pids[1], signal.SIGKILL)
    ended = wait()
    if time.monotonic() - start > NOTICED_S and not runs.sanitized():
        raise AssertionError("noticed after %.1f s" % (time.monotonic() - start))
    left = runs.alive("run.dir=long")
    if left:
        raise AssertionError("processes are left: %s" % left)
    return ended


def long_run():
    return runs.small("long", "train.steps=100000000", "parallel.timeout_ms=%d" % (LIMIT_S * 1000))


def test_a_killed_rank_is_named_on_its_host_and_on_others():
    for hosts in ("a", "a,b,a", "a,a,b"):
        ranks = Ranks(3, long_run(), TUTTI_TEST_HOSTS=hosts)
        runs.wait_until(lambda: runs.steps_reported("long") > 0, what="a step")
        ended = kill_one([p.pid for p in ranks.processes], ranks.finish)
        for rank in (0, 2):
            ended[rank].expect(5, "rank 1")
        if "died" not in ended[0].out + ended[2].out:
            raise AssertionError(ended[0].out + ended[2].out)
        shutil.rmtree("long")


def expect_lost(ended, stopped, text):
    """All say why; but the one that was stopped may have been killed by those who had not ended."""
    for rank, one in enumerate(ended):
        if rank != stopped or one.code != -signal.SIGKILL:
            one.expect(5, text)


def expect_stop_noticed(ranks, stopped):
    """No launcher informs the others, and they do not wait for the time limit."""
    runs.wait_until(lambda: runs.steps_reported("long") > 0, what="a step")
    start = time.monotonic()
    pid = ranks.processes[stopped].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        for rank, process in enumerate(ranks.processes):
            if rank != stopped:
                process.wait(NOTICED_S)
        print("noticed after %.2f s" % (time.monotonic() - start))
    finally:
        os.kill(pid, signal.SIGCONT)
    expect_lost(ranks.finish(), stopped,
                "rank %d (pid %d on a) was stopped by a signal" % (stopped, pid))


def test_a_stopped_rank_is_named_by_another_of_its_host():
    expect_stop_noticed(Ranks(3, long_run(), TUTTI_TEST_HOSTS="a"), 1)


def test_a_stopped_rank_is_named_on_other_hosts():
    """Rank 2 waits for the stopped one itself, often with a message before it of rank 1, who
    knows."""
    for more in ([], ["parallel.zero=3"],
                 ["parallel.mode=fast", "parallel.sync=local", "parallel.average_every=3"]):
        expect_stop_noticed(Ranks(3, [*long_run(), *more], TUTTI_TEST_HOSTS="a,a,b"), 0)
        shutil.rmtree("long")


def mpis():
    """(name, how to start n ranks) of each MPI that is here with its module."""
    for name, extra in (("openmpi", ["--oversubscribe"]), ("mpich", [])):
        module = os.path.join(runs.BUILD, "tutti-mpi-%s.so" % name)
        if shutil.which("mpirun." + name) and os.path.exists(module):
            yield name, ["mpirun." + name, *extra, "-n"]


def mpirun(start, n_ranks, arguments, before=(), program=runs.PROGRAM, **env):
    # Open MPI keeps a folder for each user and removes it when a job ends, also while the job of
    # another test creates its own files there.
    os.makedirs("mpi-tmp", exist_ok=True)
    env["TMPDIR"] = os.path.abspath("mpi-tmp")
    with open("out", "w") as out:
        return subprocess.Popen([*start, str(n_ranks), *before, program, *arguments],
                                stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                env=environment(**env), start_new_session=True)


def reported(process, timeout_s=runs.HANGS_S):
    code = process.wait(timeout_s)
    with open("out", errors="replace") as out:
        return runs.Ended(["mpirun"], code, out.read(), "")


def test_mpirun():
    story = expected()
    for name, start in mpis():
        for n_ranks, hosts in ((2, "a"), (4, "a,a,b,b"), (3, "a,b,c")):
            run = "run-%s-%d" % (name, n_ranks)
            ended = reported(mpirun(start, n_ranks, runs.small(run), TUTTI_TEST_HOSTS=hosts))
            ended.expect(0, "rank 0 of %d, by" % n_ranks, "over mpi-" + name, "params_hash")
            runs.same_story(story, run)


def test_a_run_goes_on_elsewhere():
    story = expected()
    ended = Ranks(3, runs.small("run", "run.checkpoint_every=10", "train.steps=20"),
                  TUTTI_TEST_HOSTS="a,b,b").finish()
    ended[0].expect(0, "params_hash")
    again = ["train", "--resume", "run", "train.steps=40"]
    for _, start in list(mpis())[:1]:
        reported(mpirun(start, 4, again, TUTTI_TEST_HOSTS="a,a,b,b")).expect(0, "over mpi-")
        break
    else:
        Ranks(4, again, TUTTI_TEST_HOSTS="a,a,b,b").finish()[0].expect(0)
    for key, value in story.items():
        if key[0] == "end" and runs.story("run").get(key) != value:
            raise AssertionError("%s: %s instead of %s" % (key, runs.story("run"), value))


def test_an_mpi_that_does_not_fit_its_launcher():
    names = [name for name, _ in mpis()]
    if len(names) < 2:
        return
    for (name, start), other in zip(mpis(), reversed(names)):
        ended = reported(mpirun(start, 2, runs.small("run"), TUTTI_TRANSPORT="mpi-" + other))
        if ended.code == 0 or "they do not fit" not in ended.out:
            raise AssertionError(ended.out)


def test_mpirun_of_jobs_of_one_rank():
    """Left over in a pod or a shell: each process would train the whole job."""
    for _, start in mpis():
        ended = reported(mpirun(start, 2, runs.small("run"), RANK="0", WORLD_SIZE="1"))
        ended.expect(2, "has started 2 of them", "unset RANK and WORLD_SIZE")
        if os.path.exists("run"):
            raise AssertionError("a run was made")


def test_a_rank_killed_under_mpirun():
    for name, start in mpis():
        process = mpirun(start, 3, long_run())
        runs.wait_until(lambda: runs.steps_reported("long") > 0, what="a step")
        pids = [pid for pid in runs.alive("train") if pid != process.pid and
                os.readlink("/proc/%d/exe" % pid) == os.path.realpath(runs.PROGRAM)]
        ended = kill_one(sorted(pids), lambda: reported(process))
        # An MPI that kills the others before they can speak says it in words of its own.
        if ended.code == 0 or not ("died" in ended.out or "Killed" in ended.out):
            raise AssertionError("%s: %d\n%s" % (name, ended.code, ended.out))
        shutil.rmtree("long")


class Network:
    """Network namespaces with a bridge between them; nothing of it is left.  The bridge is in a
    namespace of its own, where no other test sees interfaces that come and go, unless it must be
    reached from outside the hosts: in_ours."""

    def __init__(self, n_hosts=2, in_ours=False):
        self.mark = "t%d" % (os.getpid() % 100000)
        self.hosts = [self.mark + "abcdefgh"[i] for i in range(n_hosts)]
        self.subnet = "10.%d.%d." % (64 + os.getpid() // 256 % 64, os.getpid() % 256)
        self.around = [] if in_ours else ["-n", self.mark]

    def ip(self, *words):
        """Where the bridge is."""
        self.run(*self.around, *words)

    def run(self, *words):
        subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def __enter__(self):
        bridge = self.mark + "r"
        if self.around:
            self.run("netns", "add", self.mark)
        self.ip("link", "add", bridge, "type", "bridge")
        self.ip("addr", "add", self.subnet + "254/24", "dev", bridge)
        self.ip("link", "set", bridge, "up")
        for i, host in enumerate(self.hosts):
            self.run("netns", "add", host)
            self.ip("link", "add", host + "v", "type", "veth", "peer", "name", "eth0",
                    "netns", host)
            self.ip("link", "set", host + "v", "master", bridge, "up")
            self.run("-n", host, "addr", "add", "%s%d/24" % (self.subnet, i + 1), "dev", "eth0")
            self.run("-n", host, "link", "set", "eth0", "up")
            self.run("-n", host, "link", "set", "lo", "up")
        return self

    def __exit__(self, *error):
        # The kernel takes a namespace away later: its interface would still have the name.
        for words in [[*self.around, "link", "del", host + "v"] for host in self.hosts] + \
                [["netns", "del", host] for host in self.hosts] + \
                [[*self.around, "link", "del", self.mark + "r"]] + \
                ([["netns", "del", self.mark]] if self.around else []):
            if shutil.which("ip"):
                subprocess.run(["ip", *words], stderr=subprocess.DEVNULL, check=False)
        for host in self.hosts:
            shutil.rmtree("/tmp/" + host, ignore_errors=True)


def network_or_none(n_hosts=2, in_ours=False):
    network = Network(n_hosts, in_ours)
    try:
        with network:
            return Network(n_hosts, in_ours)
    except (OSError, subprocess.CalledProcessError):
        network.__exit__()
        print("no network namespaces here")
        return None


def test_network_namespaces():
    network = network_or_none(in_ours=True)  # mpirun reaches the hosts
    if not network:
        return
    story = expected()
    with open(os.open("token", os.O_CREAT | os.O_WRONLY, 0o600), "w") as token:
        token.write("0123456789abcdef0123\n")
    with network:
        inside = lambda rank: ["ip", "netns", "exec", network.hosts[rank // 2]]
        ended = Ranks(4, runs.small("run-tcp"), before=inside, MASTER_ADDR=network.subnet + "1",
                      TUTTI_TOKEN_FILE="token").finish()
        ended[0].expect(0, "2 hosts, over tcp")
        runs.same_story(story, "run-tcp")
        ended = Ranks(2, runs.small("run"), before=lambda rank: inside(2),
                      own=lambda rank: ["parallel.timeout_ms=500"],
                      MASTER_ADDR=network.subnet + "1", TUTTI_TOKEN_FILE="token").finish()
        ended[0].expect(2, "MASTER_ADDR must name the host of rank 0")
        over_mpi(network, story)


def over_mpi(network, story):
    with open("agent", "w") as agent:
        agent.write(AGENT)
    os.chmod("agent", 0o755)
    net, agent = network.subnet + "0/24", os.path.abspath("agent")
    options = {"openmpi": ["-H", ",".join(host + ":2" for host in network.hosts), "--mca",
                           "plm_rsh_agent", agent, "--mca", "btl", "tcp,self", "--mca",
                           "btl_tcp_if_include", net, "--mca", "oob_tcp_if_include", net,
                           "-x", "OMPI_ALLOW_RUN_AS_ROOT", "-x", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"],
               "mpich": ["-ppn", "2", "-hosts", ",".join(network.hosts), "-launcher", "ssh",
                         "-launcher-exec", agent, "-localhost", network.subnet + "254"]}
    for name, start in mpis():
        run = "run-" + name
        ended = reported(mpirun(start, 4, runs.small(run), before=options[name]))
        ended.expect(0, "2 hosts, over mpi-" + name)
        runs.same_story(story, run)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
