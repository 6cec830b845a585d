"""cuda_hosts_test.py - GPUs of several hosts, which another launcher starts: the bits of one GPU.
The hosts are names here, with GPUs of their own that the others do not count.  Where kernels still
reach their memory they add there; shown to add inside hosts first (tree), they do so there alone,
and what NCCL moves, which is shown that hosts differ, goes over sockets.  Exit code 77 with fewer
than two GPUs."""

import os
import signal
import subprocess
import sys
import time

import gpus
import runs

PORT = runs.port()
NOT_OURS = ("RANK", "WORLD", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM")


def start(hosts, *arguments, faults=None):
    """A process for each letter of hosts, a host each letter; rank r writes rank-r."""
    global PORT
    PORT += 1
    processes = []
    for rank, host in enumerate(hosts):
        here = [str(r) for r, other in enumerate(hosts) if other == host]
        env = {key: value for key, value in os.environ.items() if not key.startswith(NOT_OURS)}
        env.update(RANK=str(rank), WORLD_SIZE=str(len(hosts)),
                   LOCAL_RANK=str(here.index(str(rank))), LOCAL_WORLD_SIZE=str(len(here)),
                   MASTER_ADDR="localhost", MASTER_PORT=str(PORT),
                   TUTTI_TEST_HOSTS=",".join(hosts), NCCL_HOSTID="host-" + host,
                   CUDA_VISIBLE_DEVICES=",".join(here))
        if faults:
            env["TUTTI_FAULT"] = faults
        with open("rank-%d" % rank, "w") as out:
            processes.append(subprocess.Popen(
                [runs.program_with("faults") if faults else runs.PROGRAM, "train",
                 "parallel.devices=gpu", *arguments], stdout=out,
                stderr=out, stdin=subprocess.DEVNULL, env=env, start_new_session=True))
    return processes


def finish(processes, codes):
    ended = []
    for rank, process in enumerate(processes):
        try:
            code = process.wait(runs.HANGS_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        with open("rank-%d" % rank, errors="replace") as out:
            ended.append(runs.Ended(["rank", str(rank)], code, out.read(), ""))
    for rank in ended:
        if rank.code not in codes:
            rank.expect(codes[0])
    return ended


def divisions():
    return ("ab", "aabb", "abbb") if runs.n_devices() >= 4 else ("ab",)


INSIDE = "over peers' memory inside each host, between hosts by NCCL"


def way_between(hosts):
    return "NCCL" if len(set(hosts)) == len(hosts) else INSIDE


def test_bits_of_one_gpu():
    for name, job in (("lenet", gpus.LENET), ("joined", gpus.JOINED),
                      ("gpt", gpus.GPT)):
        gpus.train(name, job, "-n", "1")
        for hosts in divisions():
            if name == "gpt" and len(hosts) > 2:
                continue  # two shards
            for algorithm, way in (("auto", ""), ("tree", way_between(hosts))):
                run = "%s_%s_%s" % (name, hosts, algorithm)
                ended = finish(start(hosts, *job, "run.dir=" + run,
                                     "parallel.algorithm=" + algorithm), (0,))
                ended[0].expect(0, "%d hosts" % len(set(hosts)))
                runs.same_story(runs.story(name), run)
                if not gpus.way_of_sums(run).startswith(way):
                    raise AssertionError("%s: %s" % (run, gpus.way_of_sums(run)))


def test_other_ways():
    """A partitioned state, bf16 that travels, a sum in any order, shares, a server, stages."""
    job = gpus.LENET
    gpus.train("one", job, "-n", "1")
    for option in ("parallel.zero=1", "parallel.load_weights=3,1",
                   "parallel.sync=parameter-server"):
        finish(start("ab", *job, "run.dir=" + option, option), (0,))
        runs.same_story(runs.story("one"), option)
    wire = "parallel.wire=bf16"
    gpus.train("rounded", job, wire, "-n", "1")
    finish(start("ab", *job, "run.dir=rounded2", wire), (0,))
    runs.same_story(runs.story("rounded"), "rounded2")
    for option in ("parallel.algorithm=ring", "parallel.wire=bf16", "parallel.sync=local",
                   "parallel.pipeline=2"):
        mode = [] if "pipeline" in option else ["parallel.mode=fast"]
        finish(start("ab", *job, "run.dir=" + option, option, *mode), (0,))
        gpus.falls(option, gpus.losses("one")[0])


def test_parts_inside_hosts():
    """A partitioned state, and parameters too, with sums of each host before they leave it."""
    gpus.train("one", gpus.LENET, "-n", "1")
    for hosts in divisions()[1:]:
        for option in ("zero=1", "zero=3"):
            run = hosts + "-" + option
            finish(start(hosts, *gpus.LENET, "run.dir=" + run, "parallel.algorithm=tree",
                         "parallel." + option), (0,))
            runs.same_story(runs.story("one"), run)
            if not gpus.way_of_sums(run).startswith(INSIDE):
                raise AssertionError("%s: %s" % (run, gpus.way_of_sums(run)))


def report_of(rank):
    with open("rank-%d" % rank, errors="replace") as out:
        return out.read()


def lose(hosts, lost, sign, algorithm):
    """The ranks of the first host name the lost one, and end."""
    job = gpus.LENET + ["train.steps=100000", "train.eval_every=0", "parallel.timeout_ms=3000",
                            "parallel.algorithm=" + algorithm]
    run = "lost-%s-%s-%d" % (hosts, algorithm, sign)
    processes = start(hosts, *job, "run.dir=" + run)

    def is_training():
        for rank, process in enumerate(processes):
            if process.poll() is not None:
                raise AssertionError("%s: rank %d ended before step 50 with code %d: %s" %
                                     (run, rank, process.returncode, report_of(rank)[-600:]))
        return runs.steps_reported(run) > 50

    try:
        runs.wait_until(is_training, what="step 50 of " + run)
        begin = time.monotonic()
        os.kill(processes[lost].pid, sign)
        codes = [processes[rank].wait(runs.HANGS_S) for rank in range(len(hosts))
                 if hosts[rank] == "a"]
        print("%s: ended after %.2f s" % (run, time.monotonic() - begin))
    finally:
        for process in processes:
            process.poll() is None and os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    named = "rank %d" % lost
    if sign == signal.SIGSTOP:
        named += " (pid %d" % processes[lost].pid
    for rank, code in enumerate(codes):
        text = report_of(rank)
        if code not in (5, 6) or named not in text:
            raise AssertionError("%d: %s" % (code, text[-600:]))


def test_a_host_that_is_lost():
    for sign in (signal.SIGKILL, signal.SIGSTOP):
        lose("ab", 1, sign, "auto")
        lose("ab", 1, sign, "tree")
        if "aabb" in divisions():
            lose("aabb", 2, sign, "tree")


def test_a_host_that_is_lost_while_the_other_feeds():
    """The host hears of the loss before it waits for the device, where NCCL waits for the lost
    rank: what is pending is aborted all the same."""
    job = gpus.LENET + ["train.steps=200", "parallel.timeout_ms=3000", "parallel.algorithm=tree"]
    for step in (60, 61, 62):
        begin = time.monotonic()
        ended = finish(start("ab", *job, "run.dir=fed-%d" % step, faults="device.feed:kill@rank=1,"
                             "step=%d;device.feed:delay_ms=2500@rank=0,step=61" % step),
                       (5, 6, -signal.SIGKILL))
        if ended[0].code not in (5, 6) or "rank 1" not in ended[0].out:
            raise AssertionError("%d: %s" % (ended[0].code, ended[0].out[-600:]))
        print("step %d: ended after %.2f s" % (step, time.monotonic() - begin))


def test_a_connection_that_takes_too_long():
    """NCCL may still connect in a thread of its own when the program ends: no crash."""
    for ms in (0, 200, 500, 1000):
        for rank in finish(start("ab", *gpus.LENET, "run.dir=late-%d" % ms,
                                 "parallel.algorithm=tree", faults="nccl.connect:delay_ms=%d;"
                                 "nccl.connect:fail" % ms), (6, 5)):
            if "NCCL did not connect" not in rank.out and rank.code == 6:
                raise AssertionError(rank.out[-600:])


if __name__ == "__main__":
    runs.need_gpus(2)
    runs.main(sys.modules[__name__])
