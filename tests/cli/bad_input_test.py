"""bad_input_test.py - what is wrong with files, jobs, folders and checkpoints: one clear message,
the right exit code, nothing half-written, and nothing lost that was saved before."""

import ctypes
import glob
import gzip
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys

import runs

CONFIG, DATA, CHECKPOINT, OTHER, NUMERICS = 2, 3, 4, 1, 7
IDX = ["data.format=idx", "data.dir=set", "data.n_train=0", "data.n_test=0"]


def refused(code, *parts, arguments=(), place="threads"):
    """The run does not start: code, message, and no folder."""
    ended = runs.tutti(*runs.small("run", "-n", "2", "parallel.place=" + place, *arguments))
    ended.expect(code, *parts)
    if ended.out:
        raise AssertionError("printed: %s" % ended.out)
    if os.path.exists("run"):
        raise AssertionError("left a folder: %s" % os.listdir("run"))
    return ended


# ---- data ----

IMAGES, LABELS = "set/train-images-idx3-ubyte", "set/train-labels-idx1-ubyte"


def patch(path, at, data):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def cut(path, n_bytes):
    os.truncate(path, os.path.getsize(path) - n_bytes)


def zip_images():
    with open(IMAGES, "rb") as plain, gzip.open(IMAGES + ".gz", "wb") as file:
        file.write(plain.read())
    os.remove(IMAGES)


DAMAGES = {
    "missing": (lambda: os.remove(IMAGES), IMAGES.split("/")[1]),
    "no test set": (lambda: os.remove("set/t10k-labels-idx1-ubyte"), "t10k-labels"),
    "truncated": (lambda: cut(IMAGES, 1), "train-images"),
    "empty": (lambda: os.truncate(LABELS, 0), "train-labels"),
    "longer than it says": (lambda: open(LABELS, "ab").write(b"\0"), "train-labels"),
    "wrong magic": (lambda: patch(IMAGES, 0, b"\x89PNG"), "train-images"),
    "labels for images": (lambda: shutil.copy(LABELS, IMAGES), "train-images"),
    "overflow": (lambda: patch(IMAGES, 4, b"\xff" * 12), "train-images"),
    "no samples": (lambda: patch(IMAGES, 4, b"\0" * 4), "train-images"),
    "count mismatch": (lambda: (patch(LABELS, 4, (199).to_bytes(4, "big")), cut(LABELS, 1)), "199"),
    "label out of range": (lambda: patch("set/t10k-labels-idx1-ubyte", 8 + 17, b"\x09"), "9"),
    "cut gzip": (lambda: (zip_images(), cut(IMAGES + ".gz", 100)), "train-images"),
    "damaged gzip": (lambda: (zip_images(), patch(IMAGES + ".gz", 500, b"xxxx")), "train-images"),
    "a folder": (lambda: (os.remove(IMAGES), os.mkdir(IMAGES)), "train-images"),
}


def test_data():
    for name, (damage, part) in DAMAGES.items():
        for place in ("threads", "processes"):
            shutil.rmtree("set", ignore_errors=True)
            runs.write_idx("set")
            damage()
            try:
                text = refused(DATA, "error: ", part, arguments=IDX, place=place).err
                if place == "threads" and len(text.splitlines()) != 1:
                    raise AssertionError("more than one line: %s" % text)
            except AssertionError as error:
                raise AssertionError("%s, %s: %s" % (name, place, error))
    runs.write_idx("good")
    runs.tutti(*runs.small("run", *IDX, "data.dir=good", "-n", "2")).expect(0)


# ---- jobs ----

JOBS = [
    (["optimizer.lrr=1"], 'optimizer.lrr: unknown key (did you mean "optimizer.lr"?)'),
    (["train.batch=x"], "train.batch: expected an integer"),
    (["train.batch=4"], "a batch of 4 is smaller than the 8 shards"),
    (["parallel.shards=6"], "must be a power of two, got 6"),
    (["-n", "9"], "9 workers for 8 shards"),
    (["-n", "0"], "parallel.workers"),
    (["-n", "two"], "parallel.workers"),
    (["parallel.algorithm=ring"], "ring adds in an order that depends on the number of workers"),
    (["--backend", "gpu"], "parallel.backend"),
    (["--frobnicate"], "unknown option --frobnicate"),
    (["--lr", "0.1"], "unknown option --lr; write optimizer.lr=0.1"),
    (["--batch-size", "-n", "1"], "unknown option --batch-size; write train.batch=VALUE"),
    (["-n"], "no value after -n"),
    (["data.format=idx"], "idx needs data.dir"),
    (["none.yaml"], "none.yaml"),
    (["job.yaml", "other.yaml"], "unexpected argument 'other.yaml'"),
]


def test_jobs():
    with open("job.yaml", "w") as file:
        file.write("train: {batch: 60}\n")
    for arguments, part in JOBS:
        refused(CONFIG, part, arguments=arguments)


def test_job_files():
    for text, part in (("train: {batch: 60, batch: 61}\n", "job.yaml:1:20: error: "),
                       ("train:\n  bathc: 60\n", 'job.yaml:2:3: error: train.bathc: unknown key '
                        '(did you mean "batch"?)'),
                       ("train: {batch: sixty}\n", "job.yaml:1:16: error: train.batch"),
                       ("train: [1, 2]\n", "job.yaml:1:"),
                       ("train: {batch: 60\n", "job.yaml:"),
                       ("\0", "job.yaml")):
        with open("job.yaml", "w") as file:
            file.write(text)
        refused(CONFIG, part, arguments=["job.yaml"])


SMALL = ["train.batch=64", "train.steps=1", "parallel.devices=cpu", "run.dir=late"]
DRAWN = ["model.name=mlp", "model.hidden=[8]", "data.n_train=128", "data.n_test=8"]
TOKENS = ["data.format=random_tokens", "data.n_train=128", "data.n_test=8", "data.context=8"]

# Faults that are found only after data, model and machine are known.
LATE = [
    ("model: {init: /nowhere}", 15, CHECKPOINT, "model.init: /nowhere: cannot open", DRAWN),
    ("model: {plugin: /nowhere.so}", 17, CONFIG, "model.plugin: /nowhere.so: No such file", DRAWN),
    ("optimizer: {freeze: [nothing]}", 21, CONFIG, 'optimizer.freeze: "nothing" matches none',
     DRAWN),
    ("data: {mixup: 0.2}", 15, CONFIG, "data.mixup: mixes samples of the same shard", DRAWN),
    ("train: {precision: tf32}", 20, CONFIG, "train.precision=tf32 needs a GPU", DRAWN),
    ("data: {resident: yes}", 18, CONFIG, "data.resident=yes: there is no GPU", DRAWN),
    ("parallel.pipeline: 3", 20, CONFIG, "parallel.pipeline: 3 stages, but the model can", DRAWN),
    ("data: {format: csv, dir: nowhere}", 26, DATA, "nowhere: csv: no file was found", []),
    ("data: {dir: nowhere, format: idx}", 13, DATA, "nowhere: neither train-images", []),
    ("data: {format: csv, dir: rows.csv, label: colour}", 43, DATA,
     "rows.csv: data.label: no column is called 'colour'", []),
    ("data: {format: text, dir: job.yaml, tokenizer: bytes, context: 4000}", 64, DATA,
     "job.yaml: the training part has", []),
    ("model: {name: gpt2, width: 30, heads: 4}", 28, CONFIG, "gpt2: model.width, 30", TOKENS),
]


def test_late_refusals_have_a_place():
    """As those have that are seen while the job is read; where a key was typed, that is one."""
    with open("rows.csv", "w") as file:
        file.write("a,b,c\n1,2,0\n3,4,1\n")
    for text, column, code, part, more in LATE:
        with open("job.yaml", "w") as file:
            file.write("# late\n%s\n" % text)
        shutil.rmtree("late", ignore_errors=True)
        n = "3" if "pipeline" in text else "1"
        ended = runs.tutti("train", "job.yaml", *SMALL, *more, "-n", n, "parallel.shards=64")
        ended.expect(code)
        place = "job.yaml:2:%d: error: " % column
        if not ended.err.startswith(place + part):
            raise AssertionError("%s\n%s, not at %s" % (text, ended.err, place))
    typed = runs.tutti("inspect", *SMALL, *DRAWN, "optimizer.freeze=[nothing]").expect(CONFIG).err
    if not typed.startswith('command line: error: optimizer.freeze: "nothing"'):
        raise AssertionError(typed)


def test_no_device():
    """A machine without GPUs: asked for, they are missed; by auto, the host computes."""
    missed = ["no GPU can be used", "parallel.devices=cpu", "tutti doctor",
              os.path.dirname(os.path.realpath(runs.PROGRAM)) + "/tutti-cuda.so: not there"]
    for place in ("threads", "processes"):
        refused(CONFIG, *missed, arguments=["parallel.devices=gpu"], place=place)
    refused(CONFIG, *missed, arguments=["parallel.devices=0,1"])
    refused(CONFIG, "'gpu0' is neither", arguments=["parallel.devices=gpu0"])
    refused(CONFIG, "leave one of the two out",
            arguments=["parallel.devices=gpu", "parallel.backend=reference"])
    refused(CONFIG, "train.precision=f32", arguments=["train.precision=tf32"])
    refused(CONFIG, "train.loss_scale: is for 16-bit", arguments=["train.loss_scale=128"])
    runs.tutti(*runs.small("run", "train.steps=1", "parallel.devices=auto")).expect(0)
    with open("run/job.yaml") as file:
        if "devices: cpu" not in file.read():
            raise AssertionError("job.yaml does not say where it was computed")
    if os.path.exists(runs.CUDA_MODULE) and not has_driver():
        received = runs.tutti(*runs.small("gpu", "parallel.devices=gpu"),
                          program=runs.program_with(runs.CUDA_MODULE))
        received.expect(CONFIG, "no NVIDIA driver here (libcuda.so.1)")


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
        return True
    except OSError:
        return False


def test_all_problems_at_once():
    text = refused(CONFIG, "optimizer.lrr", "train.bathc", "parallel.shards", arguments=[
        "optimizer.lrr=1", "train.bathc=1", "parallel.shards=5"]).err
    if len(text.splitlines()) != 3:
        raise AssertionError("not 3 lines: %s" % text)


# ---- pipes, sockets and devices in the place of files ----

def make_socket(path):
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(path)


def test_irregular_files():
    """Refused without waiting, with the exit code of what the file should have been."""
    runs.tutti(*runs.small("run")).expect(0)
    os.mkdir("model")
    with open("text.txt", "w") as file:
        file.write("a text of some words\n" * 50)
    text = ["data.format=text", "data.dir=text.txt", "model.name=gpt2"]
    for kind, make in (("pipe", os.mkfifo), ("socket", make_socket),
                       ("device", lambda path: os.symlink("/dev/zero", path))):
        for name in (kind, "model/model.safetensors"):
            make(name)
        for code, arguments in (
                (CHECKPOINT, runs.small("new", "model.init=model")),
                (CHECKPOINT, runs.small("new", "model.init=" + kind)),
                (CONFIG, runs.small("new", "model.plugin=" + kind)),
                (CONFIG, ["train", kind]),
                (DATA, runs.small("new", "data.format=text", "data.dir=" + kind)),
                (DATA, runs.small("new", *text, "data.tokenizer_dir=" + kind)),
                (DATA, ["predict", "run", kind])):
            runs.tutti(*arguments).expect(code, "not a regular file")
        os.remove("model/model.safetensors")
    for name in glob.glob("run/checkpoints/*/*.safetensors"):
        os.remove(name)
        os.mkfifo(name)
    for command in (["eval", "run"], ["predict", "run", "text.txt"]):
        runs.tutti(*command).expect(CHECKPOINT, "not a regular file")


# ---- folders ----

def test_run_folders():
    with open("file", "w"):
        pass
    for folder, part in (("file", "not a folder"), ("file/x", "Not a directory"),
                         ("/proc/x", "run folder '/proc/x'"), ("x" * 400, "too long")):
        ended = runs.tutti(*runs.small(folder)).expect(OTHER, "error: run folder", part)
        if len(ended.err.splitlines()) != 1:
            raise AssertionError(ended.err)


def test_a_run_is_not_overwritten():
    runs.tutti(*runs.small("run")).expect(0)
    before = contents("run")
    runs.tutti(*runs.small("run")).expect(CONFIG, "already holds a run", "--resume run")
    runs.tutti("train", "--resume", "nothing").expect(CONFIG, "nothing")
    os.mkdir("empty")
    runs.tutti("train", "--resume", "empty").expect(CONFIG, "empty")
    if contents("run") != before:
        raise AssertionError("the run has changed")


def test_standard_files_that_are_closed():
    """No log line gets into files that the program opens."""
    for more in ("2>&-", "<&- 2>&-", "-n 2 <&- >&- 2>&-",
                 "-n 2 parallel.place=processes <&- >&- 2>&-"):
        code = subprocess.run(["sh", "-c", '"$0" "$@" ' + more, runs.PROGRAM, *runs.small("run")],
                              timeout=runs.HANGS_S).returncode
        if code != 0:
            raise AssertionError("%s: exit code %d" % (more, code))
        if runs.records("run")[-1]["event"] != "end":
            raise AssertionError("%s: no end is recorded" % more)
        shutil.rmtree("run")


# ---- full disks ----

def contents(folder):
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(path, name), "rb") as file:
                found[os.path.join(path, name)] = file.read()
    return found


BIG = ["model.hidden=[1000]", "train.steps=30", "run.checkpoint_every=10"]


def test_no_file_may_be_as_large():
    """Every checkpoint fails; the run says so, goes on, and fails in the end.  SIGXFSZ, whose
    default is to end the program, is not ignored here."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200000, 200000))
    ended = runs.tutti(*runs.small("run", *BIG, "-n", "1"), preexec_fn=limit)
    ended.expect(CHECKPOINT, "warning: ", "File too large")
    if runs.checkpoints("run") or os.listdir("run/checkpoints"):
        raise AssertionError("left: %s" % os.listdir("run/checkpoints"))
    steps = [r["step"] for r in runs.records("run") if r["event"] == "step"]
    if steps[-1] != 30:
        raise AssertionError("the run did not go on: step %d" % steps[-1])


def test_three_saves_that_fail_end_the_run():
    """A file stands where the folder of the checkpoints was."""
    for place in ("threads", "processes"):
        process = runs.start(*runs.small(place, "train.steps=1000000", "-n", "2",
                                         "run.checkpoint_every=50", "parallel.place=" + place))
        runs.wait_until(lambda: runs.checkpoints(place))
        os.rename(place + "/checkpoints", "kept-" + place)
        with open(place + "/checkpoints", "w"):
            pass
        ended = runs.finish(process)
        ended.expect(CHECKPOINT, "3 checkpoints in a row could not be saved; the run ends")
        if ended.err.count("warning: ") != 2:
            raise AssertionError("warnings: " + ended.err)


def test_a_folder_that_disappears_ends_the_run():
    """Nothing would remain of such a run."""
    for place in ("threads", "processes"):
        process = runs.start(*runs.small(place, "train.steps=1000000", "-n", "2",
                                         "run.checkpoint_every=-1", "parallel.place=" + place))
        runs.wait_until(lambda: runs.steps_reported(place) > 5)
        os.rename(place, place + "-moved")
        runs.finish(process).expect(CHECKPOINT, "the run folder %s was removed, moved" % place)


def test_no_room_for_records():
    """A run that is under way loses records and nothing else; no line is torn."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60000, 60000))
    arguments = ["train.steps=300", "optimizer.name=sgd", "optimizer.momentum=0", "-n", "1",
                 "model.hidden=[8]"]
    whole = runs.tutti(*runs.small("whole", *arguments)).expect(0)
    ended = runs.tutti(*runs.small("run", *arguments), preexec_fn=limit, restore_signals=False)
    ended.expect(0, "run/metrics.jsonl: File too large; training continues",
                 "are missing")
    if ended.err.count("training continues") != 1:
        raise AssertionError("reported more than once: " + ended.err)
    n_reported, n_all = len(runs.records("run")), len(runs.records("whole"))
    if not 0 < n_reported < n_all:
        raise AssertionError("%d of %d records" % (n_reported, n_all))
    runs.same_checkpoint("whole", "run")
    with open("run/metrics.jsonl", "a") as file:
        file.write('{"event":"st')  # as a machine that goes down leaves it
    runs.tutti("train", "--resume", "run", "train.steps=310").expect(0)
    if runs.records("run")[n_reported]["event"] != "start":
        raise AssertionError("the record of the start is lost")


def test_no_room_for_an_order():
    """An asynchronous run goes on without it, and who would repeat it hears why not."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (130000, 130000))
    arguments = ["train.steps=9000", "model.hidden=[]", "run.log_every=1000", "train.eval_every=0",
                 "run.checkpoint_every=-1", "optimizer.name=sgd", "optimizer.momentum=0",
                 "parallel.mode=fast", "parallel.sync=parameter-server", "parallel.staleness=2"]
    ended = runs.tutti(*runs.small("run", *arguments, "-n", "2", "model.dropout=0"),
                       preexec_fn=limit, restore_signals=False)
    ended.expect(0, "run/arrivals.txt: cannot be written: File too large; training continues",
                 "records of metrics.jsonl, the curves or arrivals.txt are missing")
    if not runs.checkpoints("run"):
        raise AssertionError("what was trained is not saved")
    runs.tutti(*runs.small("again", *arguments, "-n", "2", "model.dropout=0",
                           "parallel.replay=run")).expect(2, "run/arrivals.txt")


def test_full_disk():
    """The disk fills up between two checkpoints: the first stays, the run can go on later."""
    os.mkdir("disk")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", "disk"],
                      stderr=subprocess.DEVNULL).returncode != 0:
        print("no mount here: not tested")
        return
    try:
        runs.tutti(*runs.small("disk/run", *BIG, "train.steps=10")).expect(0)
        with open("disk/other", "wb") as file:
            room = os.statvfs("disk")
            file.write(bytes(max(0, room.f_bavail * room.f_frsize - 5000000)))
        good = contents("disk/run/checkpoints")
        runs.tutti("train", "--resume", "disk/run", "train.steps=30").expect(
            CHECKPOINT, "No space left on device")
        left = contents("disk/run/checkpoints")
        if left != good:
            raise AssertionError("the old checkpoint is touched, or something is left: %s"
                                 % sorted(left))
        os.remove("disk/other")
        runs.tutti("train", "--resume", "disk/run", "train.steps=30").expect(0)
        runs.tutti(*runs.small("expected", *BIG)).expect(0)
        if runs.story("disk/run")[("end", 30)] != runs.story("expected")[("end", 30)]:
            raise AssertionError("another end than without the full disk")
    finally:
        subprocess.run(["umount", "disk"], check=True)


# ---- checkpoints ----

def flips(path):
    """Places in a file worth flipping a bit at: both ends, and some between."""
    n_bytes = os.path.getsize(path)
    return sorted({0, 7, 8, 20, n_bytes // 3, n_bytes // 2, n_bytes - 9, n_bytes - 1})


def test_damaged_checkpoints():
    """The newest is damaged: the one before is taken, with a warning, and the end is the same."""
    runs.tutti(*runs.small("run", "run.checkpoint_every=20")).expect(0)
    story = runs.story("run")
    steps = runs.checkpoints("run")
    if len(steps) != 2:
        raise AssertionError("checkpoints %s" % steps)
    newest = "again/checkpoints/step-%09d/" % steps[1]
    damages = [(name, at) for name in ("manifest.json", "model.safetensors",
                                       "optimizer.safetensors")
               for at in flips("run/checkpoints/step-%09d/%s" % (steps[1], name))]
    for name, at in damages:
        shutil.rmtree("again", ignore_errors=True)
        shutil.copytree("run", "again")
        runs.flip(newest + name, at)
        runs.tutti("inspect", "again/checkpoints/step-%09d" % steps[1]).expect(CHECKPOINT)
        runs.tutti("train", "--resume", "again").expect(0, "warning: checkpoint skipped",
                                                        "step-%09d" % steps[1])
        runs.same_story(story, "again")
    for name in ("manifest.json", "model.safetensors", "optimizer.safetensors"):
        shutil.rmtree("again")
        shutil.copytree("run", "again")
        os.remove(newest + name)
        runs.tutti("train", "--resume", "again").expect(0, "warning: checkpoint skipped")


def test_no_good_checkpoint():
    """Nothing to continue from: exit code 4, and what is there is left for a rescue."""
    for place in ("threads", "processes"):
        shutil.rmtree("run", ignore_errors=True)
        runs.tutti(*runs.small("run", "run.checkpoint_every=20")).expect(0)
        for step in runs.checkpoints("run"):
            runs.flip("run/checkpoints/step-%09d/model.safetensors" % step, 3000)
        before = contents("run/checkpoints")
        runs.tutti("train", "--resume", "run", "-n", "2", "parallel.place=" + place).expect(
            CHECKPOINT, "none of its 2 checkpoints is good", "model.safetensors")
        if contents("run/checkpoints") != before:
            raise AssertionError("what is there was touched")


def test_checkpoint_of_another():
    runs.tutti(*runs.small("run")).expect(0)
    before = contents("run/checkpoints")
    for argument, part in (("model.hidden=[17]", "[16] in the checkpoint"),
                           ("model.hidden=[16, 16]", "[16] in the checkpoint"),
                           ("model.name=lenet", "mlp in the checkpoint"),
                           ("train.batch=64", "60 in the checkpoint"),
                           ("train.seed=2", "1 in the checkpoint"),
                           ("parallel.shards=4", "8 in the checkpoint"),
                           ("optimizer.name=sgd", "adamw in the checkpoint")):
        runs.tutti("train", "--resume", "run", argument, "-n", "2").expect(CONFIG, part)
    runs.tutti("train", "--resume", "run", "data.n_train=500").expect(CHECKPOINT, "samples=512")
    if contents("run/checkpoints") != before:
        raise AssertionError("the checkpoints were touched")
    runs.tutti("train", "--resume", "run", "train.steps=41").expect(0)


# ---- losses that are not finite ----

WILD = ["optimizer.name=sgd", "optimizer.lr=1000", "optimizer.momentum=0.99", "train.steps=100"]


def test_nan_stops():
    for place in ("threads", "processes"):
        shutil.rmtree("run", ignore_errors=True)
        runs.tutti(*runs.small("run", *WILD, "-n", "2", "parallel.place=" + place)).expect(
            NUMERICS, "the loss is not finite", "error: step ", "linear 'out'", "train.on_nan=skip")
        runs.tutti("inspect", "run").expect(0)
        if runs.records("run")[-1]["event"] != "failed":
            raise AssertionError("the end is not noted")


def test_nan_in_parts_names_the_layer():
    """The workers that have parts of the model look together."""
    for layout in (["-n", "2", "parallel.tensor=2"], ["-n", "2", "parallel.pipeline=2"],
                   ["-n", "4", "parallel.pipeline=2", "parallel.tensor=2",
                    "parallel.place=processes"]):
        shutil.rmtree("run", ignore_errors=True)
        runs.tutti(*runs.small("run", *WILD, *layout)).expect(
            NUMERICS, "the loss is not finite", "error: step ", "linear 'out'")
    shutil.rmtree("run", ignore_errors=True)
    runs.tutti(*runs.small("run", *WILD, "-n", "2", "parallel.tensor=2",
                           "train.on_nan=skip")).expect(0)
    reported = [r["text"] for r in runs.records("run") if r["event"] == "warning"]
    reported = [text for text in reported if text.startswith("step ")]
    if not reported or any("first in " not in text for text in reported):
        raise AssertionError("no layer or parameter is named: %s" % reported)


def test_nan_skips():
    ended = runs.tutti(*runs.small("run", *WILD, "train.on_nan=skip", "-n", "2")).expect(
        0, "warning: step ", "the loss is not finite")
    runs.tutti(*runs.small("one", *WILD, "train.on_nan=skip", "-n", "1")).expect(0)
    runs.same_story(runs.story("run"), "one")
    reported = [r["text"] for r in runs.records("run") if r["event"] == "warning"]
    total = int(reported[-1].split()[2])
    if "train.on_nan=skip skipped" not in reported[-1] or total < 50:
        raise AssertionError("no total of the skipped steps: %s" % reported)
    if len(reported) - 1 != total.bit_length() or not reported[0].startswith("step "):
        raise AssertionError("%d warnings of %d skipped steps" % (len(reported) - 1, total))
    if "error" in ended.err:
        raise AssertionError(ended.err)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
