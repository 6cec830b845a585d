"""runs.py - for the scripts of this folder: starts the program, stops it, reads what it left.

A script holds functions named test_*; main() gives each a folder of its own, which is its current
directory, runs them in order and fails if one raises.
"""

import atexit
import ctypes
import functools
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(os.environ.get("TUTTI_BUILD", "build"))
PROGRAM = os.path.abspath(os.environ.get("TUTTI_PROGRAM", "build/tutti"))
SEED = int(os.environ.get("TUTTI_TEST_SEED", "1"))
ROOM = 4 << 30  # bytes; the largest test leaves one
HANGS_S = 600  # ends what hangs: a busy machine takes many times as long as an idle one

# A run of a tenth of a second: 40 steps of an mlp with dropout, 9 to an epoch, the last one short.
SMALL = ["model.name=mlp", "model.hidden=[16]", "model.dropout=0.2", "data.n_train=512",
         "data.n_test=100", "train.batch=60", "train.steps=40", "parallel.shards=8",
         "run.log_every=1"]

# A residual network whose batch norms may be joined, of 8 thousand parameters in several buckets.
NARROW = ["model.plugin=" + os.path.join(BUILD, "tests/modules/narrow_resnet.so"),
          "data.format=random_images", "data.image_size=12", "parallel.bucket_mb=0.004"]


def cached(name):
    """A variable of the build's CMakeCache.txt."""
    with open(os.path.join(BUILD, "CMakeCache.txt")) as file:
        for line in file:
            if line.startswith(name + ":"):
                return line.split("=", 1)[1].strip()
    return ""


def sanitized():
    """True under a sanitizer, where times mean nothing."""
    return cached("TUTTI_SANITIZE") != ""


def flip(path, at):
    """Changes the lowest bit of a byte of a file."""
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


# ---- the program with a module of the tests ----

def place(source, path):
    """The same file under another path: linked where the file system allows it, else copied."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        os.link(source, path)
    except OSError:
        shutil.copy(source, path)


CUDA_MODULE = os.path.join(BUILD, "tutti-cuda.so")  # of the build, if it has one


def install(prefix, module=None):
    """Places the program in prefix as `make install` does, and as tutti-cuda.so CUDA_MODULE, one of
    tests/modules (device, fake, faults) or None.  With faults the program has fault points too.
    Returns the path of the program."""
    program = os.path.join(prefix, "bin", "tutti")
    place(os.path.join(BUILD, "tests", "tutti_faults") if module == "faults"
          else os.environ.get("TUTTI_PROGRAM", "build/tutti"), program)
    if module:
        place(os.path.join(BUILD, "tests/modules", module, "tutti-cuda.so")
              if module != CUDA_MODULE else module,
              os.path.join(prefix, cached("CMAKE_INSTALL_LIBDIR"), "tutti/tutti-cuda.so"))
    return program


@functools.lru_cache(maxsize=None)
def program_with(module):
    """The path of the program in a folder of its own, installed with this module or with none."""
    prefix = tempfile.mkdtemp(prefix="tutti-installed-")
    atexit.register(shutil.rmtree, prefix, ignore_errors=True)
    return install(prefix, module)


def use_module(module):
    """From now on this script runs the program with this module."""
    global PROGRAM
    PROGRAM = program_with(module)


def doctor():
    return subprocess.run([PROGRAM, "doctor", "--quick"], capture_output=True, text=True).stdout


def count_devices(report):
    return sum(line.strip().startswith("device ") for line in report.splitlines())


def n_devices():
    """GPUs that the program can use."""
    return count_devices(doctor())


def need_gpus(n_wanted):
    """Ends the script where there are fewer: with 77, or with 1 if the program fails to use the
    CUDA module of the build for another reason than a missing GPU."""
    seen = doctor()
    n_found = count_devices(seen)
    if n_found >= n_wanted:
        return
    if n_found == 0 and os.path.exists(CUDA_MODULE):
        if "NVIDIA driver" not in seen and "no device can be used" not in seen:
            sys.exit("the CUDA module of this build is not used: " + seen)
    print("skipped: %d GPUs, %d are needed" % (n_found, n_wanted))
    sys.exit(77)


class Ended:
    """How a program ended; a death by signal S is code -S."""

    def __init__(self, arguments, code, out, err):
        self.arguments, self.code, self.out, self.err = arguments, code, out, err

    def expect(self, code, *parts):
        if self.code != code:
            raise AssertionError("tutti %s: exit code %d instead of %d\n%s%s" % (
                " ".join(self.arguments), self.code, code, self.out, self.err))
        for part in parts:
            if part not in self.out + self.err:
                raise AssertionError("tutti %s: no '%s' in\n%s%s" % (
                    " ".join(self.arguments), part, self.out, self.err))
        return self


def start(*arguments, program=None, stdin=subprocess.DEVNULL, **options):
    """The program, running in a session of its own, its output in files out and err."""
    with open("out", "w") as out, open("err", "w") as err:
        return subprocess.Popen([program or PROGRAM, *arguments], stdin=stdin, stdout=out,
                                stderr=err, start_new_session=True, **options)


def finish(process, timeout_s=HANGS_S):
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    with open("out", errors="replace") as out, open("err", errors="replace") as err:
        return Ended(process.args[1:], code, out.read(), err.read())


def tutti(*arguments, timeout_s=HANGS_S, **options):
    return finish(start(*arguments, **options), timeout_s)


def without_huge_pages():
    """For preexec_fn of runs whose memory is measured: what is rounded up to huge pages depends on
    how many the machine has left."""
    PR_SET_THP_DISABLE = 41
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def small(run, *arguments):
    """The arguments of a small run into folder run."""
    return ["train", *SMALL, "run.dir=" + run, *arguments]


def records(run, event=None):
    """metrics.jsonl, or its records of one event; a last line may be cut only if the machine itself
    had died, so never here.  Of a run that is at work it may be on its way: who reads beside who
    writes may see half of it."""
    begins = '{"event":"%s"' % event if event else ""
    end = time.monotonic() + HANGS_S
    while True:
        with open(os.path.join(run, "metrics.jsonl")) as file:
            text = file.read()
        if not text or text.endswith("\n") or time.monotonic() > end:
            return [json.loads(line) for line in text.splitlines() if line.startswith(begins)]


def steps_reported(run):
    """Step records in metrics.jsonl, 0 before there is one."""
    try:
        with open(os.path.join(run, "metrics.jsonl"), "rb") as file:
            return file.read().count(b'"event":"step"')
    except OSError:
        return 0


def last_step(run):
    """The number of the last step record, 0 before there is one.  It is at the end of the file, all
    of which would be much to read for a test that asks until the step is there."""
    try:
        with open(os.path.join(run, "metrics.jsonl"), "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - (64 << 10), 0))
            text = file.read()
    except OSError:
        return 0
    return int(([b"0"] + re.findall(rb'"event":"step","time":[^,]+,"step":(\d+),', text))[-1])


@functools.lru_cache(maxsize=None)
def trained_once(*arguments):
    """The folder that has the run "run", trained once with these arguments for all tests of a
    script, and what the program printed."""
    folder = tempfile.mkdtemp(prefix="tutti-once-", dir=folder_in_memory())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    ended = tutti(*small("run", *arguments), cwd=folder).expect(0)
    return folder, ended.out + ended.err


def train_once(run, *arguments):
    """A small run that is the same for all tests of a script: the folder run is a link to it.
    Returns what the program printed."""
    folder, text = trained_once(*arguments)
    if not os.path.islink(run):
        os.symlink(os.path.join(folder, "run"), run)
    return text


def story(run):
    """What must be the same whatever the workers: {what: figures}.  A step that was done again
    after a resume must have come to the same."""
    figures = {}
    for r in records(run):
        if r["event"] in ("step", "eval"):
            key = (r["event"], r["step"])
            value = (r["loss"], r["accuracy"], r.get("params_hash"), r.get("grad_norm"))
        elif r["event"] == "end" and not r["stopped"]:
            key, value = ("end", r["step"]), (r["params_hash"], r["loss"], r["accuracy"])
        else:
            continue
        if figures.setdefault(key, value) != value:
            raise AssertionError("%s: %s was %s, and now %s" % (run, key, figures[key], value))
    return figures


def same_story(expected, run):
    """run ends and reports exactly the expected records, to the bit."""
    reported = story(run)
    for key, value in reported.items():
        if expected.get(key) != value:
            raise AssertionError("%s: %s is %s instead of %s" % (run, key, value,
                                                                 expected.get(key)))
    missing = [key for key in expected if key not in reported]
    if missing:
        raise AssertionError("%s: nothing about %s" % (run, missing))


def wait_until(condition, timeout_s=HANGS_S, what="what was waited for"):
    """Asks less often the longer it takes: the programs that it waits for need the cores."""
    end, pause_s = time.monotonic() + timeout_s, 0.001
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("%s did not come in %g s" % (what, timeout_s))
        time.sleep(pause_s)
        pause_s = min(1.1 * pause_s, 0.01)


def kill(pid):
    """One that has ended is left alone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill_child(process, index):
    """A child of a process, by its place among them; one that has ended is left alone."""
    for pid in children(process.pid)[index:index + 1]:
        kill(pid)


def is_alive(pid):
    with open("/proc/%s/stat" % pid) as file:
        return file.read().rpartition(")")[2].split()[0] not in "ZX"


def alive(mark):
    """Processes of this folder that have mark as an argument."""
    pids = []
    for pid in os.listdir("/proc"):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                marked = mark.encode() in file.read().split(b"\0")
            if marked and os.readlink("/proc/%s/cwd" % pid) == os.getcwd() and is_alive(pid):
                pids.append(int(pid))
        except OSError:  # it has gone meanwhile, or is no process
            pass
    return pids


def end_all(folder):
    """Kills what a test that failed has left at work in its folder: it would take its cores from
    all tests after it, and write where the folder is taken away."""
    for pid in os.listdir("/proc"):
        try:
            if (os.readlink("/proc/%s/cwd" % pid) + "/").startswith(folder + "/"):
                kill(int(pid))
        except OSError:  # it has gone meanwhile, or is no process
            pass


def children(pid):
    """The workers of a supervisor that have started, by rank."""
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def checkpoints(run):
    """Steps of the checkpoints that have their final name."""
    try:
        names = os.listdir(os.path.join(run, "checkpoints"))
    except OSError:
        return []
    return sorted(int(n[5:]) for n in names if n.startswith("step-") and n[5:].isdigit())


def newest_checkpoint(run):
    return os.path.join(run, "checkpoints", "step-%09d" % checkpoints(run)[-1])


def parts_of(file):
    """The rest of a file in parts of a size that memory is used again for."""
    return iter(lambda: file.read(64 << 10), b"")


def same_checkpoint(a, b):
    """The newest ones of two runs are the same bytes."""
    for name in ("model.safetensors", "optimizer.safetensors"):
        with open(os.path.join(newest_checkpoint(a), name), "rb") as x:
            with open(os.path.join(newest_checkpoint(b), name), "rb") as y:
                if any(one != other for one, other in
                       itertools.zip_longest(parts_of(x), parts_of(y))):
                    raise AssertionError("%s of %s and %s differ" % (name, a, b))


def write_idx(folder, n_train=200, n_test=50, size=8, n_classes=4):
    """A data set of noise in MNIST's files."""
    draw = random.Random(1)
    os.makedirs(folder, exist_ok=True)
    for name, n in (("train", n_train), ("t10k", n_test)):
        with open(os.path.join(folder, name + "-images-idx3-ubyte"), "wb") as file:
            file.write(b"".join(x.to_bytes(4, "big") for x in (0x803, n, size, size)))
            file.write(draw.randbytes(n * size * size))
        with open(os.path.join(folder, name + "-labels-idx1-ubyte"), "wb") as file:
            file.write(b"".join(x.to_bytes(4, "big") for x in (0x801, n)))
            file.write(bytes(i % n_classes for i in range(n)))


@functools.lru_cache(maxsize=None)
def small_images():
    """Noise of 12 x 12 pixels."""
    folder = tempfile.mkdtemp(prefix="tutti-images-", dir=folder_in_memory())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_idx(folder, n_train=400, n_test=100, size=12, n_classes=10)
    return ["data.format=idx", "data.dir=" + folder]


def lenet():
    """LeNet on small images, where it has less than a quarter of the parameters and of the work
    that it has on digits; add DIGITS for those."""
    return ["model.name=lenet", *small_images()]


DIGITS = ["data.format=digits", "data.dir=null"]


def folder_in_memory():
    """Where folders of tests are made: in memory if there is room, for programs that save after
    every step wait for a disk most of the time; None: where temporary files are made.  Some tests
    run what they have made, which many containers allow nobody in there."""
    try:
        reported = os.statvfs("/dev/shm")
    except OSError:
        return None
    good = os.access("/dev/shm", os.W_OK) and not reported.f_flag & os.ST_NOEXEC
    room = reported.f_bavail * reported.f_frsize
    return "/dev/shm" if good and room > ROOM and "TMPDIR" not in os.environ else None


N_PORTS = 64


@functools.lru_cache(maxsize=None)
def port():
    """The first of N_PORTS that are for this script alone, below those that systems give to
    connections.  A socket that nothing connects to has their name until the script ends."""
    n_blocks = 12000 // N_PORTS
    for i in range(n_blocks):
        block = (os.getpid() + i) % n_blocks
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind("\0tutti-test-ports-%d" % block)
        except OSError:  # another script has these
            mark.close()
            continue
        atexit.register(mark.close)
        return 20000 + N_PORTS * block
    raise AssertionError("other tests have all ports")


def main(module):
    """Runs every test_* of a module in the order of the file."""
    # A shell starts what runs in the background with SIGINT ignored, and so would the program be.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    wanted = sys.argv[1:]
    failed = 0
    parent = folder_in_memory()
    for name, function in list(vars(module).items()):
        if not name.startswith("test_") or (wanted and name not in wanted):
            continue
        begin, used = time.monotonic(), sum(os.times()[:4])
        with tempfile.TemporaryDirectory(prefix="tutti-", dir=parent) as folder:
            os.chdir(folder)
            try:
                random.seed(SEED)
                function()
                text = "ok"
            except Exception as error:  # the next test may still say something
                text = "FAILED\n%s: %s" % (type(error).__name__, error)
                failed += 1
            finally:
                os.chdir("/")
                end_all(os.path.realpath(folder))
        print("%-44s %6.2f s, %6.2f s of CPU  %s" % (
            name, time.monotonic() - begin, sum(os.times()[:4]) - used, text), flush=True)
    sys.exit(1 if failed else 0)
