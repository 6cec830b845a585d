"""model_test.py - tutti.Model on arrays: fit, predict, weights, files, pickle, and what is refused.
Needs numpy."""

import os
import pickle
import shutil
import signal
import sys

from package import need, raises, runs

need("numpy")

import numpy as np  # noqa: E402

import tutti  # noqa: E402

MLP = {"model.hidden": [16], "optimizer.lr": 0.01}


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError("%s: %r instead of %r" % (what, found, wanted))


def samples(n=200, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 5))
    return x, (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)


def trained(**options):
    x, y = samples()
    given = dict({"batch": 32, "epochs": 30, "progress": False, "workers": 1}, **options)
    return tutti.Model("mlp", MLP).fit(x, y, **given)


def test_fit_and_predict():
    x, y = samples()
    model = trained()
    found = model.predict_proba(x)
    expect("shape", found.shape, (200, 3))
    expect("sums", bool(np.allclose(found.sum(axis=1), 1)), True)
    right = (found.argmax(axis=1) == y).mean()
    if right < 0.9:
        raise AssertionError("%g of the samples" % right)
    expect("accuracy of the run", model.run.result.accuracy, right)
    e = model.evaluate(*samples(50, seed=1))
    expect("samples", e.n_samples, 50)
    expect("counts", int(e.confusion.sum()), 50)
    expect("epochs of history", model.history["step"][-1], 30 * 7)
    rows = tutti.predict(model.run, x.astype(np.float32))
    expect("samples in memory", [p.index for p in rows], list(range(200)))
    expect("their outputs", bool(np.abs(np.array([p.outputs for p in rows]) - model.predict(x))
                                 .max() < 1e-5), True)
    raises(tutti.Error, lambda: tutti.predict(model.run, x[:, :2]), "x")
    expect("rows one by one", model.predict(x[3:4]).tolist(), model.predict(x)[3:4].tolist())


def test_bits_do_not_depend_on_workers():
    hashes = {trained(workers=n, epochs=2, overrides={"parallel.shards": 8}).run.params_hash
              for n in (1, 2, 4)}
    expect("hashes", len(hashes), 1)


def test_a_second_fit_continues():
    model = trained(epochs=5)
    before = model.run.result.loss
    x, y = samples()
    model.fit(x, y, batch=32, epochs=20, progress=False, workers=1)
    if not model.run.result.loss < before:
        raise AssertionError("%g, then %g" % (before, model.run.result.loss))
    expect("it can be used", model.predict(x).shape, (200, 3))


def test_validation_and_callbacks():
    x, y = samples()
    seen = []
    trained(validation=samples(40, seed=2), epochs=3,
            callbacks=[lambda e: seen.append(e.step) if e.kind == "eval" else None])
    expect("evaluations", seen, [7, 14, 21])
    raises(ZeroDivisionError, lambda: trained(callbacks=[lambda e: 1 / 0]))


def test_interrupted():
    """Ctrl-C during fit: the model has the weights of the last step."""
    class Interrupt(tutti.Callback):
        def on_each_step(self, run, info):
            if info.step == 5:
                os.kill(os.getpid(), signal.SIGINT)

    x, y = samples()
    model = tutti.Model("mlp", MLP)
    raises(KeyboardInterrupt, lambda: model.fit(x, y, epochs=9999, batch=32, progress=False,
                                                workers=2, callbacks=[Interrupt()]), "weights")
    expect("steps", 5 <= model.history.records[-1]["step"] < 100, True)
    before = model.run.params_hash if model.run.result else model.weights()["out.bias"].tolist()
    expect("it can be used", model.predict(x).shape, (200, 3))
    model.fit(x, y, epochs=1, batch=200, lr=0.0, progress=False, workers=1)
    expect("a further fit continues", model.weights()["out.bias"].tolist(), before)


def test_a_removed_run():
    model, (x, y) = trained(epochs=1), samples()
    shutil.rmtree(model.run.dir)
    for call in (lambda: model.predict(x), lambda: model.evaluate(x, y), model.weights,
                 lambda: model.history, lambda: model.save("copy"), model.session,
                 lambda: model.fit(x, y), lambda: pickle.dumps(model)):
        raises(tutti.Error, call, model.run.dir)


def test_samples_by_a_function():
    """The same bits as arrays, and exceptions of the function."""
    x, y = samples()
    job = dict(MLP, **{"model.name": "mlp", "train.epochs": 2, "train.batch": 32,
                       "parallel.shards": 4})
    fields = {"x": ((5,), "float64"), "y": ((), "int64")}
    given = tutti.Samples(lambda i: {"x": x[i], "y": y[i]}, 200, fields)
    hashes = {tutti.train(job, {"run.dir": "r%d" % i}, data=data, workers=1 + i).params_hash
              for i, data in enumerate(((x, y), {"x": x, "y": y}, given))}
    expect("hashes", len(hashes), 1)

    # A run does not keep the arrays.
    run = tutti.train(job, {"run.dir": "first", "train.epochs": 1}, data=(x, y), workers=1)
    raises(tutti.Error, lambda: tutti.train(resume=run, overrides={"train.epochs": 2}),
           "memory of the program", "data=(x, y)")
    raises(tutti.Error, run.evaluate, "memory of the program")
    more = tutti.train(resume=run, overrides={"train.epochs": 2}, data=(x, y))
    expect("steps of the resumed run", more.result.n_steps, 12)

    def fail(i):
        return {"x": x[i], "y": y[i] if i != 77 else 1 / 0}

    raises(ZeroDivisionError, lambda: tutti.train(job, data=tutti.Samples(fail, 200, fields)))
    short = tutti.Samples(lambda i: {"x": x[i, :2], "y": y[i]}, 200, fields)
    raises(tutti.Error, lambda: tutti.train(job, data=short), "x of sample", "shape")
    for get, parts in ((lambda i: {"x": x[i], "y": 0.5}, ("y of sample", "float64")),
                       (lambda i: {"x": x[i], "y": 1 << 40}, ("y of sample", "int32")),
                       (lambda i: {"x": x[i]}, ("get", "no y")),
                       (lambda i: None, ("get", "dict", "NoneType"))):
        kinds = {"x": (5,), "y": ((), "int32")}
        raises(tutti.Error, lambda: tutti.train(job, data=tutti.Samples(get, 200, kinds)), *parts)
    for parts, call in ((("data",), lambda: tutti.train(job, data=x)),
                        (("validation",), lambda: tutti.train(job, data=(x, y), validation=3)),
                        (("get",), lambda: tutti.Samples(3, 1, fields)),
                        (("n_samples",), lambda: tutti.Samples(fail, 0, fields)),
                        (("y",), lambda: tutti.Samples(fail, 9, {"y": ((), "text")})),
                        (("processes",), lambda: tutti.train(
                            job, {"parallel.place": "processes"}, data=(x, y), workers=2))):
        raises(tutti.Error, call, *parts)


def test_values():
    x, _ = samples()
    y = x @ np.array([1.0, -2, 3, 0, 5]) + 100
    model = tutti.Model("mlp", dict(MLP, **{"train.loss": "mse"}))
    model.fit(x, y, batch=32, epochs=30, progress=False, workers=1)
    error = np.abs(model.predict(x).reshape(-1) - y).mean()
    if error > 2:
        raise AssertionError("mean error %g" % error)
    if model.run.result.r2 < 0.95:
        raise AssertionError(model.run.result.r2)
    raises(tutti.Error, lambda: model.predict_proba(x), "predict_proba", "values")
    far = tutti.Model("mlp", dict(MLP, **{"train.loss": "mse"}))  # seconds since 1970
    far.fit(x, y + 1.7e9, batch=32, epochs=30, progress=False, workers=1)
    found = far.predict(x)
    expect("type", str(found.dtype), "float64")
    if np.abs(found.reshape(-1) - 1.7e9 - y).mean() > 2:
        raise AssertionError("values lost their digits: %s" % found[:4])
    both = np.stack([y, -y], axis=1)
    model = tutti.Model("mlp", dict(MLP, **{"train.loss": "mse"}))
    model.fit(x, both, batch=32, epochs=30, progress=False, workers=1)
    found = model.predict(x)
    expect("two values", (found.shape, bool(np.abs(found - both).mean() < 2)), ((200, 2), True))
    errors = model.evaluate(x, both).targets
    expect("targets", [sorted(errors[i]) for i in (0, 1)], [["mae", "r2", "rmse"]] * 2)


def test_values_that_are_whole_numbers():
    """A loss of values makes a regression of any numbers."""
    x, _ = samples()
    y = np.rint(100 + 30 * x[:, 0]).astype(int)
    for loss in ("mse", "mae"):
        model = tutti.Model("mlp", dict(MLP, **{"train.loss": loss}))
        model.fit(x, y, batch=32, epochs=40, progress=False)
        found = model.predict(x)
        expect("shape", found.shape, (200, 1))
        error = np.sqrt(np.mean((found[:, 0] - y) ** 2))
        if error > 15:
            raise AssertionError("%s: an error of %g" % (loss, error))
    classes = tutti.Model("mlp", dict(MLP, **{"train.loss": "mse", "data.target": "class"}))
    classes.fit(x, y % 3, epochs=1, progress=False)
    expect("classes, if asked for", classes.predict(x).shape, (200, 3))


def test_evaluation_of_arrays():
    """What evaluate() says of arrays is what predict() gives for them."""
    x, y = samples()
    model = trained(epochs=3)
    logits = model.predict(x).astype(float)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    said = tutti.predict(model.run, x)
    expect("labels", [one.label for one in said], logits.argmax(axis=1).tolist())
    for one, row, probabilities in zip(said, logits, p):
        expect("logits", one.outputs, row.tolist())
        order = sorted(range(3), key=lambda k: -probabilities[k])
        expect("order", [label for label, _, _ in one.top], order)
        if np.abs(np.array(one.probabilities) - probabilities).max() > 1e-12 or \
                [one.probabilities[k] for k in order] != [share for _, _, share in one.top]:
            raise AssertionError("%s instead of %s" % (one.top, probabilities))
    for result in (tutti.evaluate(model.run, data=(x, y)), model.evaluate(x, y),
                   model.run.evaluate(data={"x": x, "y": y})):
        found = logits.argmax(axis=1)
        expect("samples", result.n_samples, len(x))
        expect("confusion", result.confusion.tolist(),
               [[int(((y == i) & (found == j)).sum()) for j in range(3)] for i in range(3)])
        for k, of_class in enumerate(result.classes):
            right = int(((y == k) & (found == k)).sum())
            expect("counts", (of_class.n_samples, of_class.n_predicted, of_class.n_correct),
                   (int((y == k).sum()), int((found == k).sum()), right))
            expect("recall", of_class.recall, right / (y == k).sum())
        loss = -np.log(p[np.arange(len(y)), y]).mean()
        if abs(result.loss - loss) > 1e-6 or abs(result.accuracy - (found == y).mean()) > 1e-9:
            raise AssertionError(result)
    raises(tutti.Error, lambda: tutti.evaluate(model.run, data=x), "data")
    raises(tutti.Error, lambda: tutti.evaluate(model.run, data=(x, y + 1)), "label 3")

    def fail(i):
        return {"x": x[i], "y": y[i] if i != 77 else 1 / 0}

    given = tutti.Samples(fail, 200, {"x": (5,), "y": ((), "int32")})
    raises(ZeroDivisionError, lambda: tutti.evaluate(model.run, data=given))
    raises(ZeroDivisionError, lambda: tutti.predict(model.run, given))


def test_several_questions():
    """Multi-label: a column of y for each question, of any type; metrics in events, history and
    evaluation; probabilities of a yes."""
    x, _ = samples()
    y = x[:, :3] > 0
    stop = tutti.EarlyStopping("auc", patience=50)
    found = []
    for target in (y, y.astype(int), y.astype(np.float32)):
        seen = []
        model = tutti.Model("mlp", dict(MLP, **{"train.loss": "bce"}))
        model.fit(x, target, batch=32, epochs=8, validation=(x, target), progress=False, workers=1,
                  callbacks=[stop, lambda e: seen.append(e) if e.kind == "eval" else None])
        found.append(model.run.params_hash)
    expect("bits of the three types", len(set(found)), 1)
    p = model.predict_proba(x)
    logits = model.predict(x)
    expect("sigmoid", (p.shape, bool(np.allclose(p, 1 / (1 + np.exp(-logits.astype(float)))))),
           ((200, 3), True))
    right = float(((p > 0.5) == y).mean())
    curve = model.history.eval
    expect("events and history", [e.metrics["auc"] for e in seen], curve["auc"].tolist())
    expect("best", (stop.best, stop.stopped_step), (max(curve["auc"]), None))
    e = model.evaluate(x, y)
    expect("accuracy", abs(e.metrics["accuracy"] - right) < 1e-9, True)
    expect("for each question", (len(e.metrics_each["auc"]), abs(
        np.mean(e.metrics_each["auc"]) - e.metrics["auc"]) < 1e-9), (3, True))
    expect("events have them too", seen[-1].metrics_each["auc"], e.metrics_each["auc"])
    if right < 0.9:
        raise AssertionError(right)
    one = tutti.Model("mlp", dict(MLP, **{"train.loss": "bce"})).fit(
        x, y[:, 0], batch=32, epochs=3, progress=False, workers=1)
    expect("one question", one.predict_proba(x).shape, (200, 1))
    raises(tutti.Error, lambda: trained(callbacks=[tutti.EarlyStopping("auc")],
                                       validation=samples(40, seed=2)), "auc", "accuracy")


def test_files_and_pickle():
    x, _ = samples()
    model = trained(epochs=2)
    wanted = model.predict(x).tolist()
    model.save("kept")
    expect("loaded", tutti.Model.load("kept").predict(x).tolist(), wanted)
    raises(tutti.Error, lambda: model.save("kept"), "path", "exists")
    copy = pickle.loads(pickle.dumps(model))
    folder = model.run.dir
    del model
    expect("the temporary run is removed", os.path.exists(folder), False)
    expect("unpickled", copy.predict(x).tolist(), wanted)
    expect("weights", sorted(copy.weights()), ["fc1.bias", "fc1.weight", "out.bias", "out.weight"])
    runs.tutti("eval", "kept").expect(3)  # its arrays were temporary


def test_crafted_pickles():
    """Files of a pickle do not leave the folder that is made for them."""
    model = trained(epochs=1)
    state = model.__getstate__()
    for name in ("../out", "a/../../out", "/tmp/out", "", ".", "a//b", "a/", "a\0b", 7, None):
        for group in ("_packed", "_exported"):
            crafted = tutti.Model.__new__(tutti.Model)
            files = dict(state[group], **{"job.yaml": b""})
            files[name] = b"x"
            bad = dict(state, **{group: files})
            raises(tutti.Error, lambda: crafted.__setstate__(bad), "pickle")
            expect("nothing was written", os.path.exists("/tmp/out"), False)
    for files in ([("a", b"b")], {"a": "text"}, None):
        crafted = tutti.Model.__new__(tutti.Model)
        raises(tutti.Error, lambda: crafted.__setstate__(dict(state, _packed=files)), "pickle")


def test_frozen_parameters():
    x, y = samples()
    model = tutti.Model("mlp", {"model.hidden": [8], "optimizer.freeze": ["fc1.*"]})
    model.fit(x, y, epochs=1)
    every = {"optimizer.freeze": ["*.weight", "*.bias"]}
    raises(tutti.Error, lambda: tutti.Model("mlp", every).fit(x, y, epochs=1),
           "optimizer.freeze", "every parameter", "nothing to train")
    tutti.Model("mlp", {"optimizer.freeze": ["*"]}).fit(x, y, epochs=1)
    with tutti.session(dict(every, **{"model.name": "mlp"}), n_classes=3,
                       inputs={"x": x.shape[1:], "y": ((), "int32")}) as s:
        expect("forward", s.forward(x=x[:4]).shape, (4, 3))
        raises(tutti.Error, lambda: s.step(x=x[:4], y=y[:4], lr=0.1), "optimizer.freeze")
        raises(tutti.Error, lambda: s.compute_gradients(x=x[:4], y=y[:4]), "optimizer.freeze")


def test_data_frames():
    """Columns have the names and the order of fit."""
    try:
        import pandas as pd
    except ImportError:
        return
    x, y = samples()
    names = ["c%d" % i for i in range(x.shape[1])]
    frame, labels = pd.DataFrame(x, columns=names), pd.Series(y, name="label")
    model, same = trained(epochs=2), tutti.Model("mlp", {"model.hidden": [8]})
    plain = tutti.Model("mlp", {"model.hidden": [8]}).fit(x, y, epochs=2)
    same.fit(frame, labels, epochs=2, validation=(frame[:20], labels[:20]))
    expect("names", (same.feature_names, model.feature_names), (names, None))
    expect("a frame trains as its array", same.predict(frame).tolist(), plain.predict(x).tolist())
    expect("an array has no names", same.predict(x).tolist(), plain.predict(x).tolist())
    expect("a frame for a model without names", plain.predict(frame[names[::-1]]).shape[0], len(x))
    for bad, part in ((frame[names[::-1]], "order"), (frame[names[1:]], "lacks 'c0'"),
                      (frame.assign(z=1.0), "did not have 'z'")):
        for call in (lambda: same.predict(bad), lambda: same.predict_proba(bad),
                     lambda: same.evaluate(bad, labels),
                     lambda: same.fit(frame, labels, epochs=1, validation=(bad, labels))):
            raises(tutti.Error, call, "columns", part)
    for bad, parts in ((frame.assign(s="x"), ("'s'", "numbers", "get_dummies")),
                       (frame.assign(n=pd.array([None] * len(x), dtype="Int64")),
                        ("'n'", "missing"))):
        raises(tutti.Error, lambda: tutti.Model("mlp").fit(bad, labels), "x", *parts)
    mixed = frame.assign(flag=x[:, 0] > 0, n=pd.array(y, dtype="Int64"))  # as of get_dummies
    wide = np.column_stack([x, x[:, 0] > 0, y])
    job = {"model.hidden": [8]}
    expect("a frame of several types",
           tutti.Model("mlp", job).fit(mixed, labels, epochs=2).predict(mixed).tolist(),
           tutti.Model("mlp", job).fit(wide, y, epochs=2).predict(wide).tolist())
    again = pickle.loads(pickle.dumps(same))
    raises(tutti.Error, lambda: again.predict(frame[names[::-1]]), "order")


def test_weight_files():
    for content in (b"", b"\xff" * 100, b"\2\0\0\0\0\0\0\0[]",
                    b'\x44\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":[1000],'
                    b'"data_offsets":[0,4000]}}' + 15 * b" "):
        with open("bad.safetensors", "wb") as file:
            file.write(content)
        raises(tutti.Error, lambda: tutti.read_safetensors("bad.safetensors"), "path",
               "bad.safetensors")
    for path in ("none", 3, "a\0b"):
        raises(tutti.Error, lambda: tutti.read_safetensors(path), "path")


def test_sessions_of_a_model():
    x, y = samples()
    model = trained(epochs=2)
    with model.session() as s:
        expect("forward", s.forward(x=x).tolist(), model.predict(x).tolist())
        s.step(x=x[:32], y=y[:32])
    fresh = tutti.Model("mlp", MLP)
    raises(tutti.Error, fresh.session, "inputs")
    raises(tutti.Error, lambda: fresh.predict(x), "fit")
    shapes = {"x": (5,), "y": ((), "int32")}
    with tutti.Model("mlp", MLP, inputs=shapes, n_classes=3).session() as s:
        s.step(x=x[:32], y=y[:32])


def test_what_is_refused():
    x, y = samples()
    model = tutti.Model("mlp", MLP)
    hole = x.copy()
    hole[3, 2] = np.nan
    for parts, call in ((("x", "y", "rows"), lambda: model.fit(x, y[:3])),
                        (("x", "row 3", "finite"), lambda: model.fit(hole, y)),
                        (("x", "floats", "astype"), lambda: model.fit(abs(x).astype(int), y)),
                        (("y", "Classifier"), lambda: model.fit(x, y.astype(str))),
                        (("x", "a range_iterator", "tutti.Samples"),
                         lambda: model.fit(iter(range(9)), y)),
                        (("x", "no rows"), lambda: model.fit(x[:0], y[:0])),
                        (("x", "dtype"), lambda: model.fit(np.array([["a"]]), y[:1])),
                        (("y", "floats"), lambda: model.fit(x, y + 0.5)),
                        (("validation",), lambda: model.fit(x, y, validation=x)),
                        (("batch",), lambda: model.fit(x, y, batch=0)),
                        (("x", "single number"), lambda: model.fit(3, y)),
                        (("x", "dimensions"), lambda: model.fit(np.zeros((9,) + (1,) * 9), y[:9])),
                        (("y",), lambda: model.fit(x)),
                        (("steps",), lambda: model.fit(x, y, steps={})),
                        (("lr",), lambda: model.fit(x, y, lr=x)),
                        (("nothing",), lambda: tutti.Model("nothing").fit(x, y)),
                        (("overrides",), lambda: tutti.Model("mlp", 3)),
                        (("overrides",), lambda: tutti.Model("mlp", x)),
                        (("name",), lambda: tutti.Model(3))):
        raises(tutti.Error, call, *parts)
    labels = y.copy()

    class Change(tutti.Callback):  # labels that no longer are what was checked
        def on_each_step(self, run, info):
            labels[:] = 10 ** 8

    raises(tutti.Error, lambda: model.fit(x, labels, epochs=9, batch=32, progress=False,
                                          callbacks=[Change()]), "y", "label 100000000")
    two = {"parallel.shards": 2}
    for parts, call in ((("y", "x has"), lambda: model.fit({"x": x, "y": y}, y)),
                        (("y", "x has"), lambda: model.fit({"x": x, "y": y}, {"y": y})),
                        (("x", "name of a field"), lambda: model.fit({3: x}, y)),
                        (("x", "NUL"), lambda: model.fit({"a\0": x}, y)),
                        (("x", "UTF-8"), lambda: model.fit({"\ud800": x}, y)),
                        (("inputs", "UTF-8"), lambda: tutti.session(MLP, inputs={"\ud800": (5,)})),
                        (("labels y", "[32,2]"), lambda: model.fit(x, np.stack([y, y], 1), batch=64,
                                                                   overrides=two, workers=1)),
                        (("mlp", "'x'", "'y'"), lambda: model.fit({"a": x, "b": x}, y)),
                        (("mlp", "n_classes"), lambda: tutti.session(
                            {"model.name": "mlp"}, inputs={"x": (5,), "y": ((), "int32")})),
                        (("run_dir", "empty"), lambda: model.fit(x, y, run_dir="")),
                        (("run_dir", "UTF-8"), lambda: model.fit(x, y, run_dir="\ud800"))):
        raises(tutti.Error, call, *parts)
    model.fit(x, y, epochs=1, progress=False, workers=1)
    raises(tutti.Error, lambda: model.save(""), "path", "empty")
    raises(tutti.Error, lambda: model.predict(x[:, :2]), "x", "rows of shape [5], got [2]")
    raises(tutti.Error, lambda: model.predict(x[0]), "x", "x[None]")
    raises(tutti.Error, lambda: model.predict({"z": x}), "z")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
