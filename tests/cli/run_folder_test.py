"""run_folder_test.py - a run folder of somebody else's: nothing is written or removed through the
links in it, and a pipe in the place of a file makes nobody wait."""

import os
import shutil
import sys

import runs

ASYNC = ["parallel.sync=parameter-server", "parallel.staleness=2", "parallel.mode=fast", "-n", "2"]


def make(path, *arguments):
    runs.tutti(*runs.small(path, "train.steps=4", *arguments)).expect(0)


def resume(*arguments):
    return runs.tutti("train", "--resume", "run", "train.steps=8", *arguments)


def untouched(name, text="precious"):
    with open(name) as file:
        if file.read() != text:
            raise AssertionError("%s was changed" % name)


def test_links_to_files():
    """Files that grow refuse a link; files that are written anew take its place."""
    make("whole", *ASYNC)
    for name in ("metrics.jsonl", "arrivals.txt"):
        shutil.copytree("whole", "run")
        os.rename("run/" + name, "aside")
        with open("aside") as file:
            text = file.read()
        os.symlink("../aside", "run/" + name)
        resume().expect(1, "run/%s: is a symbolic link" % name)
        untouched("aside", text)
        shutil.rmtree("run")
    for name in ("job.yaml", "report.html", "error.json"):
        shutil.copytree("whole", "run")
        with open("precious", "w") as file:
            file.write("precious")
        if name == "job.yaml":
            shutil.copy("run/job.yaml", "precious")
        with open("precious") as file:
            text = file.read()
        if os.path.lexists("run/" + name):
            os.remove("run/" + name)
        os.symlink("../precious", "run/" + name)
        resume("parallel.place=processes").expect(0)
        untouched("precious", text)
        shutil.rmtree("run")


def test_links_to_folders():
    make("run")
    os.mkdir("elsewhere")
    os.mkdir("elsewhere/step-000000001.tmp")
    with open("elsewhere/rank-0.txt", "w") as file:
        file.write("precious")
    shutil.move("run/checkpoints", "saved")
    shutil.copytree("saved", "elsewhere", dirs_exist_ok=True)
    before = sorted(os.listdir("elsewhere"))
    os.symlink("../elsewhere", "run/checkpoints")
    resume().expect(4, "run/checkpoints: is a symbolic link")
    assert sorted(os.listdir("elsewhere")) == before
    os.remove("run/checkpoints")
    shutil.move("saved", "run/checkpoints")
    shutil.rmtree("run/log", ignore_errors=True)
    os.symlink("../elsewhere", "run/log")
    resume("parallel.place=processes").expect(1, "run/log: is a symbolic link")
    assert sorted(os.listdir("elsewhere")) == before
    untouched("elsewhere/rank-0.txt")


def test_new_run_in_a_prepared_folder():
    """Before there is a run: links in the place of its folders."""
    for part in ("log", "checkpoints"):
        os.makedirs("run")
        os.makedirs("elsewhere", exist_ok=True)
        os.symlink("../elsewhere", "run/" + part)
        runs.tutti(*runs.small("run")).expect(1, "run/%s: is a symbolic link" % part)
        assert os.listdir("elsewhere") == []
        shutil.rmtree("run")


def test_pipes():
    make("whole", *ASYNC)
    for name, code in (("metrics.jsonl", 1), ("job.yaml", 2), ("arrivals.txt", 1),
                       ("checkpoints/step-000000004/manifest.json", 0)):
        shutil.copytree("whole", "run")
        os.remove("run/" + name)
        os.mkfifo("run/" + name)
        ended = runs.tutti("train", "--resume", "run", "train.steps=8")
        ended.expect(ended.code if name.endswith("json") else code)
        shutil.rmtree("run")


def test_current_folders_that_no_job_file_can_name():
    """A run works there; what its job.yaml would have to name is refused."""
    for name in (b"not \xff UTF-8", b"two\nlines"):
        os.mkdir(name)
        runs.tutti(*runs.small("run"), cwd=name).expect(0, "run run")
        runs.tutti("eval", "run", cwd=name).expect(0, "accuracy")
        runs.tutti("train", "--resume", "run", "train.steps=60", cwd=name).expect(0, "run run")
        runs.tutti(*runs.small("other"), "data.format=idx", "data.dir=digits", cwd=name).expect(
            2, "data.dir: 'digits' is relative to the current directory, whose name has bytes")


def test_a_damaged_checkpoint_is_named():
    """Every command that uses an older checkpoint instead of the newest one says so."""
    with open("letters.txt", "w") as file:
        file.write("abcdefghij\n" * 100)
    runs.tutti("train", "model.name=lstm", "model.layers=1", "model.width=8", "data.format=text",
               "data.dir=letters.txt", "data.context=8", "train.batch=8", "train.steps=4",
               "run.checkpoint_every=2", "run.progress=false", "parallel.shards=2", "-n", "1",
               "run.dir=texts").expect(0)
    newest = "texts/checkpoints/" + sorted(os.listdir("texts/checkpoints"))[-1]
    with open(newest + "/model.safetensors", "r+b") as file:
        file.seek(100)
        file.write(b"?")
    said = "checkpoint skipped: " + newest
    for command in (["predict", "texts", "letters.txt"], ["eval", "texts"],
                    ["generate", "texts", "--prompt", "a", "--max-tokens", "3"],
                    ["export", "texts", "--format", "safetensors", "--out", "weights"]):
        ended = runs.tutti(*command).expect(0)
        assert said in ended.err and ended.err.count(said) == 1, (command, ended.err)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
