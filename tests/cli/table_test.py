"""table_test.py - tables from training to prediction: classes by name, values of a regression."""

import json
import math
import os
import random
import shutil
import struct
import sys

import runs

SMALL = ("data.format=csv", "model.name=mlp", "train.batch=16", "run.progress=false")


def rows(n, seed, shift=0.0):
    """a, colour and when, and what follows from them: a value and a name."""
    draw = random.Random(seed)
    for i in range(n):
        a, colour = draw.gauss(50, 10) + shift, draw.choice(["red", "green"])
        value = 1000 + 7 * a + (30 if colour == "red" else 0)
        yield ("" if i == 5 else "%.3f" % a, colour, "2024-01-%02d" % (1 + i % 28),
               "%.4f" % value, "high" if value > 1365 else "low")


def write(path, keep, n, seed, shift=0.0):
    names = ("a", "colour", "when", "value", "size")
    with open(path, "w") as file:
        for row in [names] + list(rows(n, seed, shift)):
            file.write(",".join(row[names.index(k)] for k in keep) + "\n")


def lines(ended):
    return [json.loads(line) for line in ended.out.splitlines()]


def evaluated(run, *more):
    return json.loads(runs.tutti("eval", run, "--json", *more).expect(0).out)


def test_values():
    os.makedirs("values", exist_ok=True)
    write("values/train.csv", ("a", "colour", "when", "value"), 200, 1)
    write("values/test.csv", ("value", "when", "a", "colour"), 40, 2)
    for loss in ("mse", "mae", "huber"):
        hashes = set()
        for n in (1, 2, 4) if loss == "mse" else (1, 2):
            shutil.rmtree(loss, ignore_errors=True)
            ended = runs.tutti("train", *SMALL, "data.dir=values", "model.hidden=[]",
                               "train.loss=" + loss, "train.epochs=20", "optimizer.name=adam",
                               "optimizer.lr=0.03", "parallel.shards=4", "-n", str(n),
                               "run.dir=" + loss).expect(0)
            hashes.add(ended.out.split("params_hash ")[1].split()[0])
            assert "rmse " in ended.out and "accuracy" not in ended.out, ended.out
        assert len(hashes) == 1, (loss, hashes)
        last = [r for r in runs.records(loss) if r["event"] == "eval"][-1]
        reported = evaluated(loss)
        assert reported["rmse"] == last["rmse"] and reported["r2"] == last["r2"] > 0.9
        assert reported["rmse"] < 15, reported  # of values with a deviation of 70
        said = [p["value"] for p in lines(runs.tutti("predict", loss, "values/test.csv").expect(0))]
        wanted = [float(row[3]) for row in rows(40, 2)]
        errors = [p - w for p, w in zip(said, wanted)]
        mean = sum(wanted) / 40
        square = sum(e * e for e in errors)
        assert math.isclose(reported["rmse"], math.sqrt(square / 40), rel_tol=1e-4)
        assert math.isclose(reported["mae"], sum(map(abs, errors)) / 40, rel_tol=1e-4)
        r2 = 1 - square / sum((w - mean) ** 2 for w in wanted)
        assert math.isclose(reported["r2"], r2, abs_tol=1e-5)


def test_onnx_has_the_statistics():
    """The graph standardises raw features; the metadata lists them, and how to read the output."""
    os.makedirs("onnx", exist_ok=True)
    write("onnx/train.csv", ("a", "colour", "when", "value"), 200, 1)
    write("onnx/test.csv", ("a", "colour", "when", "value"), 40, 2)
    runs.tutti("train", *SMALL, "data.dir=onnx", "model.hidden=[]", "train.loss=mse",
               "train.epochs=1", "run.dir=onnx-run").expect(0)
    shutil.rmtree("onnx")
    runs.tutti("export", "onnx-run", "--format", "onnx", "--out", "table.onnx").expect(0)
    with open("table.onnx", "rb") as file:
        graph = file.read()
    with open("onnx-run/data.json") as file:
        spec = json.load(file)
    a, colour, when, _ = spec["table"]["columns"]
    assert when["mean"] > 1000 * when["std"] and colour["categories"] == ["green", "red"]
    assert struct.pack("<4f", a["mean"], 0, 0, 0) in graph  # of a time a user takes off offset
    assert struct.pack("<4f", 1 / a["std"], 1, 1, 1 / when["std"]) in graph
    features = json.loads(graph[graph.index(b'[{"column"'):].split(b"}]")[0] + b"}]")
    assert [f["column"] for f in features] == ["a", "colour", "colour", "when"]
    assert [f.get("category") for f in features] == [None, "green", "red", None]
    assert features[0]["offset"] == 0 and features[3]["offset"] == when["mean"]
    text = graph[graph.index(b"value is logits * ") + 18:][:60].decode(errors="replace").split()
    assert math.isclose(float(text[0]), spec["target"]["std"]), text


def test_classes_without_the_training_data():
    os.makedirs("classes", exist_ok=True)
    write("classes/train.csv", ("a", "colour", "size"), 200, 1)
    write("classes/test.csv", ("size", "colour", "a"), 40, 2)
    shutil.rmtree("run", ignore_errors=True)
    runs.tutti("train", *SMALL, "data.dir=classes", "model.hidden=[16]", "train.epochs=20",
               "optimizer.lr=0.1", "run.dir=run").expect(0)
    before = evaluated("run")
    assert before["accuracy"] > 0.9 and [c["name"] for c in before["classes"]] == ["high", "low"]
    os.rename("classes", "moved")
    assert evaluated("run", "data.dir=moved")["confusion"] == before["confusion"]
    # Other rows are read by the statistics of the training rows: these are all high.
    os.makedirs("shifted", exist_ok=True)
    write("shifted/test.csv", ("a", "size", "colour"), 40, 3, shift=60)
    assert evaluated("run", "data.dir=shifted/test.csv")["accuracy"] > 0.95
    write("new rows.csv", ("colour", "a"), 40, 3, shift=60)
    ended = runs.tutti("predict", "run", "new rows.csv").expect(0)
    assert {p["class"] for p in lines(ended)[:5]} == {"high"} and len(lines(ended)) == 40
    assert "column 'a' has no value in 1 of 40 rows" in ended.err, ended.err
    write("less.csv", ("colour",), 4, 3)
    ended = runs.tutti("predict", "run", "less.csv").expect(3)
    assert "less.csv: there is no column 'a', which the training rows have" in ended.err
    shutil.rmtree("moved")


def test_what_is_refused():
    os.makedirs("odd", exist_ok=True)
    write("odd/train.csv", ("a", "colour", "value"), 50, 1)
    write("odd/test.csv", ("a", "colour", "value"), 50, 2)
    for code, part, more in (
            (3, "to predict the number give train.loss=mse data.target=value", ()),
            (2, "values are predicted with train.loss=mse", ("data.target=value",)),
            (2, "classes are learned with", ("data.target=class", "train.loss=mae")),
            (2, "data.mixup: mixes classes", ("train.loss=mse", "data.mixup=0.2")),
            (3, "the label column has texts", ("train.loss=mae", "data.label=colour")),
            (2, "train.loss: huber predicts values", ("train.loss=huber", "data.format=digits"))):
        ended = runs.tutti("train", *SMALL, "data.dir=odd", *more, "run.dir=odd-run").expect(code)
        assert part in ended.err, ended.err
    with open("odd/test.csv", "a") as file:
        file.write("1,red,\n")
    ended = runs.tutti("train", *SMALL, "data.dir=odd", "train.loss=mse",
                       "run.dir=odd-run").expect(3)
    assert "test.csv:52: column 'value': the label is missing" in ended.err, ended.err


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
