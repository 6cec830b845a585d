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
    for loss in ("mse", "mae", "huber", "smooth_l1"):
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
        for key in ("rmse", "mae", "r2"):
            assert reported[key] == last[key], key
        assert reported["r2"] > 0.9 and "mae %.6g" % last["mae"] in ended.out, ended.out
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
    assert features[0]["fill"] == a["fill"]
    assert [f["fill"] for f in features[1:3]] == [int(colour["fill"] == k) for k in (0, 1)]
    text = graph[graph.index(b"value is logits * ") + 18:][:60].decode(errors="replace").split()
    assert math.isclose(float(text[0]), spec["target"]["std"]), text


def test_onnx_refuses_numbers_that_f32_cannot_hold():
    """The graph could not standardize them, and would give other classes than `tutti predict`."""
    os.makedirs("far", exist_ok=True)
    for power, code in ((-200, 2), (-39, 2), (-37, 2), (-29, 0), (28, 0), (38, 2)):
        with open("far/t.csv", "w") as file:
            file.write("a,y\n")
            for i in range(40):
                file.write("%de%d,%s\n" % (i, power, "big" if i > 20 else "small"))
        shutil.rmtree("far-run", ignore_errors=True)
        runs.tutti("train", *SMALL, "data.dir=far/t.csv", "model.hidden=[]", "train.epochs=1",
                   "run.dir=far-run").expect(0)
        ended = runs.tutti("export", "far-run", "--format", "onnx", "--out", "far.onnx")
        ended.expect(code)
        if code:
            assert "column 'a' has numbers from 0 to" in ended.err, ended.err
            assert not os.path.exists("far.onnx")
        else:
            os.remove("far.onnx")


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
    assert "less.csv: column 'a' of the training rows is missing" in ended.err
    shutil.rmtree("moved")


def npy(path, shape, values, descr="<f8"):
    text = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n" % (descr, shape)
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode())
        file.write(struct.pack("<%d%s" % (len(values), descr[-2:].replace("f8", "d")
                                          .replace("f4", "f").replace("i8", "q")), *values))


def linear(n, seed):
    """Samples of two features, and of each two values of very different sizes."""
    draw = random.Random(seed)
    x = [[draw.gauss(0, 1), draw.gauss(0, 1)] for _ in range(n)]
    return x, [[1e12 + 1e3 * (a + 2 * b), 1e-9 * (3 + a - b) + 1e-10 * draw.gauss(0, 1)]
               for a, b in x]


def figures(said, wanted):
    """rmse, mae and r2 as scikit-learn has them for one target."""
    errors = [s - w for s, w in zip(said, wanted)]
    mean = sum(wanted) / len(wanted)
    square = sum(e * e for e in errors)
    return (math.sqrt(square / len(errors)), sum(map(abs, errors)) / len(errors),
            1 - square / sum((w - mean) ** 2 for w in wanted))


def test_several_values():
    """Arrays and tables with two targets: each has its own unit, the figures are their means."""
    for name in ("arrays", "tables"):
        os.makedirs(name, exist_ok=True)
        for split, n, seed in (("train", 200, 1), ("test", 40, 2)):
            x, y = linear(n, seed)
            npy("arrays/x_%s.npy" % split if name == "arrays" else os.devnull, (n, 2),
                sum(x, []), "<f4")
            npy("arrays/y_%s.npy" % split if name == "arrays" else os.devnull, (n, 2), sum(y, []))
            with open("tables/%s.csv" % split if name == "tables" else os.devnull, "w") as file:
                file.write("small,p,q,large\n")
                for a, b in zip(x, y):
                    file.write("%r,%r,%r,%r\n" % (b[1], a[0], a[1], b[0]))
    wanted = linear(40, 2)[1]
    for name, more in (("arrays", ("data.format=npy",)),
                       ("tables", ("data.label=[large, small]",))):
        hashes = set()
        for n in ("1", "2"):
            shutil.rmtree("run", ignore_errors=True)
            ended = runs.tutti("train", *SMALL, "data.dir=" + name, *more, "model.hidden=[]",
                               "train.loss=l1", "train.epochs=20", "optimizer.name=adam",
                               "optimizer.lr=0.03", "parallel.shards=4", "-n", n,
                               "run.dir=run").expect(0)
            hashes.add(ended.out.split("params_hash ")[1].split()[0])
        assert len(hashes) == 1 and ended.out.startswith("nrmse 0."), ended.out
        last = [r for r in runs.records("run") if r["event"] == "eval"][-1]
        assert "nrmse" in last and "accuracy" not in last, last
        seen = evaluated("run")
        for mine, theirs in zip([last] + last["values"], [seen] + seen["values"]):
            for key in ("rmse", "mae", "r2"):  # of validation as of `tutti eval`
                assert math.isclose(mine[key], theirs[key], rel_tol=1e-5), (key, mine, theirs)
        assert [v.get("name") for v in last["values"]] == (
            ["large", "small"] if name == "tables" else [None, None]), last
        assert seen["targets"] == 80 and math.isclose(seen["loss"], last["loss"], rel_tol=1e-6)
        with open("run/data.json") as file:
            target = json.load(file)["target"]
        shutil.rmtree(name + "-old", ignore_errors=True)
        os.rename(name, name + "-old")
        path = name + "-old/" + ("x_test.npy" if name == "arrays" else "test.csv")
        said = [p["values"] for p in lines(runs.tutti("predict", "run", path).expect(0))]
        if name == "tables":
            assert list(said[0]) == ["large", "small"], said[0]
            said = [list(p.values()) for p in said]
        loss = sum(abs(s[k] - w[k]) / target["std"][k]
                   for s, w in zip(said, wanted) for k in (0, 1)) / 80
        assert math.isclose(seen["loss"], loss, rel_tol=1e-3)  # as torch's l1_loss
        each = [figures([s[k] for s in said], [w[k] for w in wanted]) for k in (0, 1)]
        for i, key in enumerate(("rmse", "mae", "r2")):
            for k in (0, 1):
                assert math.isclose(seen["values"][k][key], each[k][i], rel_tol=1e-3), (key, k)
            assert math.isclose(seen[key], (each[0][i] + each[1][i]) / 2, rel_tol=1e-3), key
        assert each[0][2] > 0.9 and each[1][2] > 0.9
        with open("run/report.html") as file:
            page = file.read()
            assert "test nrmse" in page and "test r2" in page
        shutil.rmtree(name + "-old")


def test_values_in_arrays():
    """Floats are values under mse; whole numbers are, where the loss or data.target says so."""
    os.makedirs("one", exist_ok=True)
    for split, n, seed in (("train", 100, 1), ("test", 1, 2)):
        x, y = linear(n, seed)
        npy("one/x_%s.npy" % split, (n, 2), sum(x, []), "<f4")
        npy("one/y_%s.npy" % split, (n,), [row[0] for row in y])
    train = ("train", *SMALL, "data.format=npy", "data.dir=one", "model.hidden=[]",
             "train.epochs=2", "run.dir=one-run")
    ended = runs.tutti(*train, "train.loss=mse").expect(0)
    assert ended.out.startswith("rmse ") and "r2 undefined" in ended.out, ended.out
    seen = evaluated("one-run")  # of one row
    assert seen["r2"] is None and seen["samples"] == 1
    said = lines(runs.tutti("predict", "one-run", "one/x_test.npy").expect(0))[0]["value"]
    assert math.isclose(seen["rmse"], abs(said - linear(1, 2)[1][0][0]), rel_tol=1e-3)
    with open("one-run/report.html") as file:
        page = file.read()
    for part in ("test rmse", "test r2", "undefined", "RMSE"):
        assert part in page, part
    assert "ccuracy" not in page
    runs.tutti(*train, "run.dir=refused").expect(3, "to predict values give train.loss=mse")
    npy("one/y_train.npy", (100,), list(range(100)), "<i8")
    npy("one/y_test.npy", (1,), [7], "<i8")
    assert runs.tutti(*train, "train.loss=huber", "run.dir=whole").expect(0).out.startswith("rmse")
    x = linear(100, 1)[1]
    npy("one/y_train.npy", (100,), [row[0] if i != 7 else math.nan for i, row in enumerate(x)])
    runs.tutti(*train, "train.loss=mse", "run.dir=nan").expect(3, "y_train.npy: row 7 has a label")


def test_other_data_is_evaluated_whole():
    """Of the run's own file the part for testing, of another all of it, and the result says so."""
    write("own.csv", ("a", "colour", "value"), 100, 1)
    write("other rows.csv", ("a", "colour", "value"), 40, 2)
    runs.tutti("train", *SMALL, "data.dir=own.csv", "model.hidden=[]", "train.loss=mse",
               "train.epochs=1", "data.n_test=8", "run.dir=own").expect(0)
    os.makedirs("elsewhere", exist_ok=True)
    for more, n, part in (((), 8, "/own.csv: its test split"),
                          (("data.dir=./own.csv",), 8, "./own.csv: its test split"),
                          (("data.dir=other rows.csv",), 40, "other rows.csv: all of it"),
                          (("data.dir=other rows.csv", "data.n_test=5"), 5, "the first 5 samples"),
                          (("data.dir=other rows.csv", "data.val_fraction=0.2", "data.n_test=0"), 8,
                           "other rows.csv: its test split")):
        seen = evaluated("own", *more)
        assert seen["samples"] == n and part in seen["data"], (more, seen)
    runs.tutti("eval", "own", "data.dir=other rows.csv").expect(
        0, "data        other rows.csv: all of it")
    os.rename("own.csv", "elsewhere/own.csv")  # the same data at another place
    seen = evaluated("own", "data.dir=elsewhere/own.csv")
    assert seen["samples"] == 8 and "its test split" in seen["data"], seen


def test_columns_as_keys_and_values():
    write("keys.csv", ("a", "colour", "value"), 60, 1)
    with open("keys.yaml", "w") as file:
        file.write("model: {name: mlp, hidden: []}\ntrain: {loss: mse, epochs: 1, batch: 16}\n"
                   "data:\n  format: csv\n  dir: keys.csv\n  label: value\n"
                   "  columns:\n    a: ignore\n    colour: category\n")
    out = runs.tutti("data", "info", "keys.yaml").expect(0).out
    assert "ignore" in out and "f32 [2]" in out, out
    runs.tutti("data", "info", "keys.yaml", "data.columns={a: text}").expect(
        2, "'text' is not a kind of column")
    runs.tutti("data", "info", "keys.yaml", "data.columns={a: [ignore]}").expect(
        2, "a list or keys and values that contain no commas")


def test_keys_that_eval_cannot_honor():
    """What the training decided cannot be another thing for new rows."""
    write("fixed.csv", ("a", "colour", "value"), 60, 1)
    runs.tutti("train", *SMALL, "data.dir=fixed.csv", "model.hidden=[]", "train.loss=mse",
               "train.epochs=1", "run.dir=fixed").expect(0)
    for key in ("data.label=a", "data.columns={a: ignore}", "data.target=class"):
        runs.tutti("eval", "fixed", key).expect(2, "leave this key out")


def write_labels(path, n, seed, columns=("a", "warm", "cold wet", "odd")):
    """Two labels that follow from a and the colour, and one that is true in every third row."""
    with open(path, "w") as file:
        file.write(",".join(columns) + "\n")
        for i, (a, colour, _, _, _) in enumerate(rows(n, seed)):
            row = {"a": a, "colour": colour, "warm": int(float(a or 50) > 50),
                   "cold wet": "yes" if colour == "red" and float(a or 50) < 55 else "no",
                   "odd": "%.1f" % (i % 3 == 0)}
            file.write(",".join(str(row[name]) for name in columns) + "\n")


def test_labels_of_0_and_1():
    """Several yes-or-no labels: training, evaluation and prediction by the names of the columns."""
    os.makedirs("label data", exist_ok=True)
    write_labels("label data/train.csv", 300, 1, ("a", "warm", "colour", "cold wet", "odd"))
    write_labels("label data/test.csv", 60, 2, ("odd", "cold wet", "colour", "warm", "a"))
    job = (*SMALL, "data.dir=label data", "data.label=[warm, cold wet, odd]", "train.loss=bce",
           "model.hidden=[16]", "train.epochs=30", "optimizer.lr=0.02", "parallel.shards=4")
    info = runs.tutti("data", "info", *job[:-3]).expect(0).out
    for part in ("y         f32 [3]", "warm: 0 or 1, ", "odd: 0 or 1, 33.33 % are 1",
                 "y                 f32[3]                0 .. 1"):
        assert part in info, info
    hashes = set()
    for n in ("1", "2", "4"):
        shutil.rmtree("label run", ignore_errors=True)
        ended = runs.tutti("train", *job, "-n", n, "run.dir=label run").expect(0)
        hashes.add(ended.out.split("params_hash ")[1].split()[0])
    assert len(hashes) == 1, hashes
    with open("label run/job.yaml") as file:
        assert "target: labels" in file.read()
    shutil.move("label data/test.csv", "labelled.csv")
    shutil.rmtree("label data")
    result = evaluated("label run", "data.dir=labelled.csv")
    names = ["warm", "cold wet", "odd"]
    assert [k["name"] for k in result["labels"]] == names and result["samples"] == 60, result
    for i, label in enumerate(result["labels"]):
        assert label["auc"] == result["metrics_each"]["auc"][i], result
        assert (label["accuracy"] > 0.9) == (i < 2), result
    mean = sum(k["accuracy"] for k in result["labels"]) / 3
    assert math.isclose(result["metrics"]["accuracy"], mean), result
    table = runs.tutti("eval", "label run", "data.dir=labelled.csv").expect(0).out
    assert "cold wet" in table and "precision" in table, table
    ended = runs.tutti("predict", "label run", "labelled.csv").expect(0)
    predicted = [p["labels"] for p in lines(ended)]
    assert [list(p) for p in predicted] == [names] * 60
    with open("labelled.csv") as file:
        given = [line.rstrip().split(",") for line in file][1:]
    for name, column, label in zip(names, (3, 1, 0), result["labels"]):
        ones = [row[column] in ("1", "yes", "1.0") for row in given]
        said = [p[name] > 0.5 for p in predicted]
        hits = sum(s and o for s, o in zip(said, ones))
        assert (label["ones"], label["predicted"]) == (sum(ones), sum(said)), label
        assert label["correct"] == sum(s == o for s, o in zip(said, ones)), label
        assert math.isclose(label["recall"], hits / sum(ones)), label
        assert label["precision"] == (hits / sum(said) if any(said) else None), label
    runs.tutti("export", "label run", "--format", "onnx", "--out", "labels.onnx").expect(0)
    with open("labels.onnx", "rb") as file:
        graph = file.read()
    with open("label run/data.json") as file:
        a = json.load(file)["table"]["columns"][0]
    assert b'["warm","cold wet","odd"]' in graph and b"the sigmoid of each" in graph
    assert struct.pack("<3f", a["mean"], 0, 0) in graph  # as of other tables


def test_labels_that_are_refused():
    os.makedirs("bad labels", exist_ok=True)
    job = (*SMALL, "data.dir=bad labels/t.csv", "train.loss=bce", "model.hidden=[]",
           "train.epochs=1", "run.dir=bad-run")
    head = "x,a,b\n" + "".join("%d,%d,%d\n" % (i, i % 2, i % 3 == 0) for i in range(30))
    for code, part, last, more in (
            (3, "t.csv:32: column 'b': the label '2' is not 0 or 1 (or true", "5,1,2\n", ()),
            (3, "t.csv:32: column 'a': the label is missing", "5,nan,1\n", ()),
            (0, "1 training sample skipped: bad labels/t.csv:32", "5,0.5,1\n",
             ("data.on_error=skip",)),
            (3, "no column is called 'c'", "", ("data.label=[a, c]",)),
            (2, "column 'a' is named twice", "", ("data.label=[a, a]",)),
            (2, "train.loss=bce for labels of 0 and 1", "", ("train.loss=cross-entropy",)),
            (2, "labels of 0 and 1 need train.loss=bce or focal", "",
             ("train.loss=mse", "data.target=labels")),
            (2, "bce learns labels of 0 and 1; give data.target=labels", "",
             ("data.target=class",)),
            (2, "labels are columns of data.format=csv", "",
             ("data.format=npy", "data.target=labels", "data.label=")),
            (2, "data.classes: labels of 0 and 1", "", ("data.classes=2",)),
            (2, "one for each column", "", ("train.pos_weight=1, 2, 3",)),
            (0, "params_hash", "", ("train.pos_weight=1, 2",)),
            (0, "params_hash", "", ("train.loss=focal", "data.target=labels"))):
        with open("bad labels/t.csv", "w") as file:
            file.write(head + last)
        shutil.rmtree("bad-run", ignore_errors=True)
        runs.tutti("train", *job, "data.label=[a, b]", "data.val_fraction=0.1", *more).expect(
            code, part)


def test_nothing_is_held_out():
    """data.val_fraction=0 is not the default: files must define the test split."""
    os.makedirs("whole", exist_ok=True)
    rows = "x,label\n" + "".join("%d.5,%s\n" % (i, "ab"[i % 2]) for i in range(20))
    for name in ("train.csv", "test.csv"):
        with open("whole/" + name, "w") as file:
            file.write(rows)
    job = ["data", "info", "data.format=csv", "data.val_fraction=0"]
    runs.tutti(*job, "data.dir=whole/train.csv").expect(3, "no rows for the test split")
    found = runs.tutti(*job, "data.dir=whole").expect(0).out
    assert found.count("samples   20") == 2, found


def test_what_is_refused():
    os.makedirs("odd", exist_ok=True)
    write("odd/train.csv", ("a", "colour", "value"), 50, 1)
    write("odd/test.csv", ("a", "colour", "value"), 50, 2)
    for code, part, more in (
            (3, "to predict the number give train.loss=mse data.target=value", ()),
            (2, "values need train.loss=mse", ("data.target=value",)),
            (2, "classes need train.loss", ("data.target=class", "train.loss=mae")),
            (2, "train.huber_delta: is for huber, but train.loss is mae",
             ("train.loss=mae", "train.huber_delta=0.5")),
            (2, "train.smooth_l1_beta: is for smooth_l1, but train.loss is huber",
             ("train.loss=huber", "train.smooth_l1_beta=0.5")),
            (2, "data.label: is for tables", ("data.format=npy", "data.label=a")),
            (2, "data.columns: is for tables", ("data.format=npy", "data.columns={a: ignore}")),
            (2, "data.missing: is for tables", ("data.format=digits", "data.missing=refuse")),
            (2, "data.mixup: mixes classes", ("train.loss=mse", "data.mixup=0.2")),
            (3, "the label 'red' is not a finite number", ("train.loss=mae", "data.label=colour")),
            (2, "train.loss: huber predicts values", ("train.loss=huber", "data.format=digits"))):
        ended = runs.tutti("train", *SMALL, "data.dir=odd", *more, "run.dir=odd-run").expect(code)
        assert part in ended.err, ended.err
    with open("odd/test.csv", "a") as file:
        file.write("1,red,\n")
    ended = runs.tutti("train", *SMALL, "data.dir=odd", "train.loss=mse",
                       "run.dir=odd-run").expect(3)
    assert "test.csv:52: column 'value': the label is missing" in ended.err, ended.err


def test_text_that_is_not_utf8():
    """Two labels in Latin-1 became one and the same name in the run."""
    os.makedirs("latin", exist_ok=True)
    with open("latin/t.csv", "wb") as file:
        file.write(b"a,y\n" + b"".join(b"%d,%s\n" % (i, (b"\xe9t\xe9", b"hiver")[i % 2])
                                      for i in range(30)))
    train = ("train", *SMALL, "model.hidden=[]", "train.epochs=1", "run.dir=latin-run")
    runs.tutti(*train, "data.dir=latin/t.csv").expect(
        3, "t.csv:2: the byte 0xE9 is not UTF-8; convert the file, for example with iconv")
    shutil.rmtree("latin-run", ignore_errors=True)
    with open("latin/one.csv", "w") as file:
        file.write("a,y\n" + "".join("%d,été\n" % i for i in range(30)))
    runs.tutti(*train, "data.dir=latin/one.csv").expect(
        0, "column 'y' has one value only, so there is nothing to learn")


def test_rows_to_predict():
    """Empty rows keep their number, and 1.004 is no guess where the training file has commas."""
    os.makedirs("german", exist_ok=True)
    with open("german/train.csv", "w") as file:
        file.write("a;b;y\n" + "".join("%d,5;%d;%s\n" % (900 + i, i % 3, "pq"[i % 2])
                                       for i in range(20)))
    shutil.copy("german/train.csv", "german/test.csv")
    runs.tutti("train", *SMALL, "data.dir=german", "model.hidden=[]", "train.epochs=1",
               "run.dir=german-run").expect(0)

    def predict(text):
        with open("new.csv", "w") as file:
            file.write(text)
        return runs.tutti("predict", "german-run", "new.csv")

    ended = predict("a;b\n901,5;1\n;\n\n905;2\n").expect(0)
    said = lines(ended)
    assert [p["index"] for p in said] == [0, 1, 2], said
    assert "column 'a' has no value in 1 of 3 rows" in ended.err, ended.err
    alone = lines(predict("a;b\n905;2\n").expect(0))
    assert alone[0]["probability"] == said[2]["probability"], (alone, said)
    predict("a;b\n1.004;2\n").expect(
        3, "new.csv:2: column 'a': '1.004' has a point, and the training file has decimal commas")
    predict("a;b;y\n901;2;1.004\n").expect(0)  # labels are not read
    assert lines(predict("a,b\n1.004,2\n").expect(0))
    assert lines(predict("a;b\n1,004;2\n").expect(0)) == lines(predict("a;b\n1.0040;2\n").expect(0))
    ended = predict("a;b\nx;2\n").expect(3, "'x' is not a finite number written as 1234.5\n")
    assert "data.columns" not in ended.err, ended.err  # the training decided


def test_rows_without_values():
    with open("holes.csv", "w") as file:
        file.write("0,1,2,3\n" + "".join("%d.5,%d,7,%d\n" % (i, i * i % 5, i % 2)
                                         for i in range(20)) + ",,,\n,,,\n")
    ended = runs.tutti("train", *SMALL, "data.dir=holes.csv", "model.hidden=[]", "train.epochs=1",
                       "run.dir=holes-run").expect(0, "2 rows without any value are left out")
    assert "the first line, 0, 1 ..., is taken for names" in ended.err, ended.err


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
