"""crowded.py - for crowded_test.py and its slow twin: whole jobs whose workers compute
nothing, or little, with far more workers than cores: they start, do ten steps, lose one worker, and
end."""

import json
import os
import resource
import signal
import time

import runs

FAULTS = os.path.join(runs.BUILD, "tests", "tutti_faults")
PROCESSES, THREADS = "parallel.place=processes", "parallel.place=threads"
STEPS, DIES_IN = 10, 6
MOST_BYTES = 2 << 20  # of memory for each worker


def job(run, n_shards, *arguments):
    """Ten steps of one row for each shard."""
    return ["train", "model.name=mlp", "model.hidden=[1]", "data.format=random_images",
            "data.image_size=8", "data.n_test=%d" % n_shards,
            "data.n_train=%d" % (STEPS * n_shards), "train.batch=%d" % n_shards,
            "train.steps=%d" % STEPS, "parallel.shards=%d" % n_shards, "run.log_every=1",
            "run.checkpoint_every=-1", "run.dir=" + run, *arguments]


def nothing(*arguments):
    return ["parallel.backend=none", *arguments]


def spent_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def whole(run, n_shards, *arguments):
    """A run to its end: how long it took, and the processor's time."""
    begin, before = time.monotonic(), spent_s()
    runs.tutti(*job(run, n_shards, *arguments)).expect(0)
    return time.monotonic() - begin, spent_s() - before


def same_as_one(name, n_shards, place, n_workers, *arguments):
    """The run of many workers has the records of one, to the bit."""
    one = name + "-one"
    whole(one, n_shards, "-n", "1", *arguments)
    took = whole(name, n_shards, place, "-n", str(n_workers), *arguments)
    runs.same_story(runs.story(one), name)
    return took


def peak_bytes(run, n_shards, n_workers, *arguments):
    """Resident memory of a run whose workers are threads, for each of them."""
    process = runs.start(*job(run, n_shards, THREADS, "-n", str(n_workers), *arguments))
    _, status, used = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    process.returncode = 0
    return used.ru_maxrss * 1024 / n_workers


def lose_thread(run, n_shards, n_workers, *arguments):
    """A worker fails in a step: the run names it and ends.  Returns the seconds from the last step
    to the end."""
    victim = n_workers // 3
    process = runs.start(*job(run, n_shards, THREADS, "-n", str(n_workers), *arguments),
                         program=FAULTS,
                         env=dict(os.environ, TUTTI_FAULT="exec.compute:fail@rank=%d,step=%d" %
                                  (victim, DIES_IN)))
    ended = runs.finish(process)
    took = time.time() - os.path.getmtime(run + "/metrics.jsonl")
    assert ended.code not in (0, 6), (ended.code, ended.err)
    ended.expect(ended.code, "worker %d cannot compute" % victim)
    assert runs.steps_reported(run) == DIES_IN, runs.steps_reported(run)
    return took


def proportional_bytes(pid):
    """Memory of a process, shared pages divided by those that have them."""
    with open("/proc/%d/smaps_rollup" % pid) as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


def lose_process(run, n_shards, n_workers, *arguments):
    """A worker is killed: (milliseconds until that is noticed, bytes of each worker before)."""
    process = runs.start(*job(run, n_shards, PROCESSES, "-n", str(n_workers), "train.steps=100000",
                              *arguments))
    runs.wait_until(lambda: runs.steps_reported(run) >= DIES_IN or process.poll() is not None,
                    what="a step")
    pids = runs.children(process.pid)
    assert len(pids) == n_workers, (len(pids), process.poll())
    n_bytes = sum(proportional_bytes(pid) for pid in pids[::16]) / len(pids[::16])
    victim = n_workers // 3
    killed_ns = time.monotonic_ns()
    os.kill(pids[victim], signal.SIGKILL)
    runs.finish(process).expect(5, "rank %d (pid %d) was killed by signal 9" % (
        victim, pids[victim]))
    with open(run + "/error.json") as file:
        return (json.load(file)["noticed_ns"] - killed_ns) / 1e6, n_bytes
