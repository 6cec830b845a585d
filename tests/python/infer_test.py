"""infer_test.py - predictions, evaluation, generated text and exports of a run."""

import os
import random
import struct
import sys
import warnings

from package import SMALL, raises, runs

import tutti


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError("%s: %r instead of %r" % (what, found, wanted))


def write_csv(path, n):
    draw = random.Random(3)
    with open(path, "w") as file:
        file.write("a,b,kind\n")
        for _ in range(n):
            a, b = draw.random(), draw.random()
            file.write("%f,%f,%s\n" % (a, b, "high" if a + b > 1 else "low"))


def test_tables():
    write_csv("train.csv", 300)
    write_csv("new.csv", 20)
    run = tutti.train({"model": {"name": "mlp", "hidden": [16]},
                       "data": {"format": "csv", "dir": "train.csv", "label": "kind"},
                       "train": {"epochs": 30}, "optimizer.lr": 0.01}, workers=1)
    found = tutti.predict(run, "new.csv")
    expect("predictions", [p.index for p in found], list(range(20)))
    with open("new.csv") as file:
        right = [line.rstrip().split(",")[2] for line in file][1:]
    n_right = sum(p.name == kind for p, kind in zip(found, right))
    if n_right < 17 or not 0.5 <= found[0].probability <= 1:
        raise AssertionError("%d of 20; %s" % (n_right, found[0]))
    result = run.evaluate()
    expect("classes", sorted(k.name for k in result.classes), ["high", "low"])
    expect("samples", sum(k.n_samples for k in result.classes), result.n_samples)
    if "confusion matrix" not in str(result):
        raise AssertionError(str(result))
    new = tutti.evaluate(run, {"data.dir": "new.csv"})
    expect("samples of other data", new.n_samples, 20)
    expect("accuracy of other data", round(new.accuracy * 20), n_right)
    raises(tutti.Error, lambda: tutti.predict(run, ["new.csv", "none.csv"]), "none.csv")
    mixed = tutti.predict(run, ["new.csv", "none.csv"], skip_errors=True)
    expect("predictions and errors", [p.error is None for p in mixed], [True] * 20 + [False])
    os.mkdir("nothing")
    mixed = tutti.predict(run, ["nothing", "new.csv"], skip_errors=True)
    expect("after a bad folder", [p.error is None for p in mixed], [False] + [True] * 20)
    with open("gaps.csv", "w") as file:
        file.write("a,b\n,0.5\n0.25,0.5\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        expect("rows with gaps", len(tutti.predict(run, "gaps.csv")), 2)
    if len(caught) != 1 or "gaps.csv" not in str(caught[0].message) or \
            caught[0].filename != os.path.abspath(__file__):
        raise AssertionError([str(w) for w in caught])
    expect("outputs", (len(found[0].outputs), round(sum(found[0].probabilities), 6)), (2, 1.0))
    for data in (3, None, []):
        raises(tutti.Error, lambda: tutti.predict(run, data))
    raises(tutti.Error, lambda: tutti.predict("nowhere", "new.csv"), "nowhere")
    for parts, call in ((("skip_errors",), lambda: tutti.predict(run, "new.csv", skip_errors="no")),
                        (("run", "empty"), lambda: tutti.predict("", "new.csv")),
                        (("run", "UTF-8"), lambda: tutti.predict("\ud800", "new.csv")),
                        (("data", "empty"), lambda: tutti.predict(run, "")),
                        (("out", "empty"), lambda: tutti.export(run, "onnx", "")),
                        (("format", "NUL"), lambda: tutti.export(run, "onnx\0", "o")),
                        (("format", "UTF-8"), lambda: tutti.export(run, "\ud800", "o")),
                        (("measure",), lambda: tutti.doctor("yes"))):
        raises(tutti.Error, call, *parts)


def test_labels_of_0_and_1():
    draw = random.Random(4)
    with open("labels.csv", "w") as file:
        file.write("a,b,high,low both\n")
        for _ in range(300):
            a, b = draw.random(), draw.random()
            file.write("%f,%f,%d,%s\n" % (a, b, a > 0.5, a < 0.5 and b < 0.5))
    run = tutti.train({"model": {"name": "mlp", "hidden": [16]},
                       "data": {"format": "csv", "dir": "labels.csv",
                                "label": ["high", "low both"]},
                       "train": {"epochs": 30, "loss": "bce"}, "optimizer.lr": 0.01}, workers=1)
    os.rename("labels.csv", "known.csv")
    found = tutti.predict(run, "known.csv")
    expect("names", [list(p.labels) for p in found[:2]], [["high", "low both"]] * 2)
    expect("probabilities", list(found[5].labels.values()), found[5].probabilities)
    expect("no class and no value", (found[0].top, found[0].values), ([], []))
    result = tutti.evaluate(run, {"data.dir": "known.csv"})
    expect("labels", [k.name for k in result.labels], ["high", "low both"])
    with open("known.csv") as file:
        right = [line.rstrip().split(",")[3] == "True" for line in file][1:]
    said = [p.labels["low both"] > 0.5 for p in found]
    expect("predicted", result.labels[1].n_predicted, sum(said))
    expect("correct", result.labels[1].n_correct, sum(s == r for s, r in zip(said, right)))
    if min(k.auc for k in result.labels) < 0.95 or "labels {'high'" not in repr(found[0]):
        raise AssertionError("%s %s" % (result.labels, found[0]))


def test_text():
    with open("text.txt", "w") as file:
        file.write("the cat sat on the mat and the dog sat on the log. " * 40)
    run = tutti.train({"model": {"name": "gpt2", "size": "none", "layers": 1, "heads": 2,
                                 "width": 16},
                       "data": {"format": "text", "dir": "text.txt", "context": 16},
                       "train": {"steps": 5, "batch": 8}}, workers=1)
    parts = []
    text = tutti.generate(run, "the", 10, seed=4, on_text=parts.append)
    expect("text in parts", "".join(parts), text)
    expect("the same seed", tutti.generate(run, "the", 10, seed=4), text)
    expect("length", (text[:3], len(text)), ("the", 13))
    # An exception ends the call, which would take hours.
    raises(ZeroDivisionError, lambda: tutti.generate(run, "the", 1 << 40, on_text=lambda t: 1 / 0))
    for name, value in (("temperature", -1), ("top_p", 2), ("top_p", -1), ("top_k", -1)):
        raises(tutti.Error, lambda: tutti.generate(run, "the", 3, **{name: value}), name)
    raises(tutti.Error, lambda: tutti.generate(run, "\ud800"), "prompt", "UTF-8")
    raises(tutti.Error, lambda: tutti.generate(run, b"the"), "prompt")
    found = tutti.predict(run, "text.txt")
    if not found[0].perplexity > 1 or found[0].n_tokens != 16:
        raise AssertionError(found[0])


def test_a_damaged_checkpoint():
    """An older one is used, with a warning."""
    with open("text.txt", "w") as file:
        file.write("the cat sat on the mat and the dog sat on the log. " * 40)
    run = tutti.train({"model": {"name": "gpt2", "size": "none", "layers": 1, "heads": 2,
                                 "width": 16},
                       "data": {"format": "text", "dir": "text.txt", "context": 16},
                       "train": {"steps": 4, "batch": 8}, "run.checkpoint_every": 2}, workers=1)
    folder = os.path.join(run.dir, "checkpoints")
    newest = os.path.join(folder, sorted(os.listdir(folder))[-1])
    with open(os.path.join(newest, "model.safetensors"), "r+b") as file:
        file.seek(100)
        file.write(b"?")
    for call in (lambda: tutti.predict(run, "text.txt"), run.evaluate,
                 lambda: tutti.generate(run, "the", 3),
                 lambda: tutti.export(run, "safetensors", "out")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        expect("warnings", [newest in str(w.message) for w in caught], [True])


def test_ctrl_c():
    """It ends a call that predicts or writes, in which only callbacks are of Python."""
    import signal
    import threading
    import time

    with open("text.txt", "w") as file:
        file.write("the cat sat on the mat and the dog sat on the log. " * 20000)
    run = tutti.train({"model": {"name": "gpt2", "size": "none", "layers": 1, "heads": 2,
                                 "width": 16},
                       "data": {"format": "text", "dir": "text.txt", "context": 16},
                       "train": {"steps": 1, "batch": 8}}, workers=1)
    # A shell starts what runs in the background with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for call in (lambda: tutti.generate(run, "the", 1 << 40),
                 lambda: tutti.predict(run, "text.txt")):
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        begin = time.monotonic()
        raises(KeyboardInterrupt, call)
        if time.monotonic() - begin > 20:
            raise AssertionError("ended after %g s" % (time.monotonic() - begin))


def test_export_and_report():
    run = tutti.train(None, dict(SMALL), workers=1)
    expect("tensors", tutti.export(run, "safetensors", "out"), 4)
    with open("out/model.safetensors", "rb") as file:
        n_bytes = struct.unpack("<Q", file.read(8))[0]
        if b"fc1.weight" not in file.read(n_bytes):
            raise AssertionError("no fc1.weight")
    raises(tutti.Error, lambda: tutti.export(run, "pickle", "out2"), "format")
    if not os.path.exists(tutti.report(run)):
        raise AssertionError("no report")


def test_doctor():
    for part in ("tutti %s" % tutti.__version__, "libtutti.so"):
        if part not in tutti.doctor():
            raise AssertionError("no %s in %s" % (part, tutti.doctor()))
    if "lenet" not in tutti.catalog("models"):
        raise AssertionError(tutti.catalog("models"))
    raises(tutti.Error, lambda: tutti.catalog("nothing"), "nothing")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
