"""memory_test.py - a run that does not fit into memory is refused with numbers and advice, exit
code 8, and never dies of a lack of memory."""

import os
import resource
import sys

import runs

NO_MEMORY = 8


def limited(n_bytes):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))
    return limit


def test_a_batch_that_no_machine_has_memory_for():
    """Threads know the need of all, each process multiplies its own.  The limit is for machines
    with terabytes of memory."""
    limit = None if runs.sanitized() else limited(200 << 30)
    for place in ("threads", "processes"):
        for batch in (10**7, 1 << 24):
            ended = runs.tutti("train", "model.name=lenet", "data.n_train=1000", "run.dir=run",
                               "parallel.shards=2",
                               "train.batch=%d" % batch, "-n", "2", "parallel.place=" + place,
                               preexec_fn=limit)
            ended.expect(NO_MEMORY, "2 workers would take at least ", "activations", "batches",
                         "leaves ", "give a smaller train.batch, more parallel.shards")
            if os.path.exists("run"):
                raise AssertionError("a run folder is left")


def test_a_batch_larger_than_the_data():
    runs.tutti(*runs.small("run", "train.batch=600", "train.steps=2")).expect(
        0, "warning: train.batch=600 is larger than the 512 training samples", "train.batch=512")
    if "larger than" in runs.tutti(*runs.small("all", "train.batch=512", "train.steps=2")).err:
        raise AssertionError("a warning of a batch that has all samples")


def test_a_tight_address_space():
    """Kernels are prepared and threads made in what is left: refused or done, never killed."""
    if runs.sanitized():
        return
    codes = set()
    for megabytes in (90, 110, 140, 180, 220, 250, 300, 500):
        run = "run-%d" % megabytes
        ended = runs.tutti("train", "model.name=lenet", "data.n_train=64", "data.n_test=16",
                           "train.batch=32", "train.steps=1", "parallel.shards=2", "-n", "2",
                           "run.dir=" + run, preexec_fn=limited(megabytes << 20))
        if ended.code not in (0, NO_MEMORY) and "error while loading" not in ended.err:
            raise AssertionError("%d MB: exit code %d: %s" % (megabytes, ended.code, ended.err))
        if ended.code == NO_MEMORY and not ended.err.strip():
            raise AssertionError("%d MB: no word" % megabytes)
        codes.add(ended.code)
    if NO_MEMORY not in codes or 0 not in codes:
        raise AssertionError("exit codes %s: the limits are not those of this machine" % codes)
    ended = runs.tutti("train", "model.name=lenet", "train.batch=8000", "data.n_train=8000",
                       "run.dir=large", "parallel.shards=2", preexec_fn=limited(500 << 20))
    ended.expect(NO_MEMORY, "address space (ulimit -v) leaves ")


def test_workers_on_the_host_beside_a_device():
    """Each worker is counted where it computes, by threads and by processes."""
    if runs.sanitized():
        return
    for place in ("threads", "processes"):
        ended = runs.tutti("train", "model.name=lenet", "data.n_train=1000", "train.batch=40000",
                           "parallel.shards=2", "parallel.devices=0,cpu", "parallel.mode=fast",
                           "parallel.place=" + place, "parallel.load_weights=1,1", "run.dir=mixed",
                           program=runs.program_with("device"), preexec_fn=limited(2500 << 20))
        ended.expect(NO_MEMORY, "would take at least ", "activations 2.", "batches 0.",
                     "address space (ulimit -v) leaves ")


def memory_group():
    """A new control group whose memory can be limited, and the file of its limit; None: none can be
    made here, or there is swap space."""
    with open("/proc/meminfo") as file:
        if "SwapTotal:              0 kB" not in file.read():
            return None  # the test would fill it
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                        ("/sys/fs/cgroup", "memory.max")):
        group = os.path.join(root, "tutti-test-%d" % os.getpid())
        try:
            os.mkdir(group)
        except OSError:
            continue
        if os.access(os.path.join(group, limit), os.W_OK):
            return group, os.path.join(group, limit)
        os.rmdir(group)
    return None


# Rank 0 waits to be ended, rank 1 takes memory until it is killed.
EATER = "import os, time\nblocks = []\nwhile True:\n" \
        "    blocks.append(bytearray(1 << 22)) if os.environ['RANK'] == '1' else time.sleep(1)"


def test_the_oom_killer_is_named():
    """A real one, where this process may limit the memory of a control group."""
    made = memory_group()
    if not made:
        return
    group, limit = made
    try:
        with open(limit, "w") as file:
            file.write(str(160 << 20))

        def join():
            with open(os.path.join(group, "cgroup.procs"), "w") as file:
                file.write(str(os.getpid()))
        ended = runs.tutti("launch", "-n", "2", "--", sys.executable, "-c", EATER,
                           preexec_fn=join)
        ended.expect(NO_MEMORY, "rank 1 ", "was killed by signal 9",
                     "out of memory: the kernel's OOM killer")
    finally:
        os.rmdir(group)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
