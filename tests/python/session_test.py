"""session_test.py - sessions: the bits of a run, arrays in and out, losses and optimizers of the
caller, and what is refused."""

import copy
import gc
import os
import pickle
import sys
import threading

from package import SMALL, check_no_growth, raises, runs

import tutti

try:
    import numpy as np
except ImportError:
    np = None

MLP = {"model": {"name": "mlp", "hidden": [8]}, "train.batch": 32, "parallel.shards": 4}
INPUTS = {"x": ((5,), "float32"), "y": ((), "int32")}


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError("%s: %r instead of %r" % (what, found, wanted))


def open_mlp(**options):
    return tutti.session(MLP, options.pop("overrides", None), inputs=INPUTS, n_classes=3, **options)


def batch(seed=0, n=32):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(n, 5)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int32) + (x[:, 1] > 0)


def test_the_bits_of_a_run():
    wanted = tutti.train(None, dict(SMALL), workers=1)
    for workers in (1, 2, 4):
        with tutti.session(None, dict(SMALL), workers=workers) as s:
            expect("workers", s.n_workers, workers)
            for _ in range(20):
                s.step()
            s.save("saved-%d" % workers)
        with tutti.session(None, dict(SMALL), workers=5 - workers) as s:
            s.load("saved-%d" % workers)
            expect("step of a loaded session", s.step_number, 20)
            for _ in range(20):
                loss = s.step()
            expect("hash with %d workers" % workers, s.params_hash, wanted.params_hash)
            expect("hash of the last step", loss.params_hash, wanted.params_hash)
            expect("steps", loss.step, 40)
            expect("loss of the test split", s.evaluate(), wanted.result.loss)


def test_use_after_close():
    s = tutti.session(None, dict(SMALL), workers=2)
    parameters = s.parameters
    expect("parameters", sorted(parameters), ["fc1.bias", "fc1.weight", "out.bias", "out.weight"])
    s.close()
    s.close()
    for call in (s.step, lambda: s.params_hash, s.evaluate, lambda: s.save("x"),
                 lambda: s.step_number, lambda: s.load("x")):
        raises(tutti.Error, call, "session", "closed")
    if np:
        raises(tutti.Error, lambda: parameters["fc1.bias"], "closed")


def test_fork():
    with tutti.session(None, dict(SMALL), workers=2) as s:
        s.step()
        child = os.fork()
        if child == 0:
            try:
                raises(tutti.Error, s.step, "session", "fork")
                s.close()
                os._exit(0)
            except BaseException as e:
                os.write(2, repr(e).encode())
                os._exit(1)
        expect("the child", os.waitpid(child, 0)[1], 0)
        expect("the parent goes on", s.step().step, 2)


def test_several_threads():
    """Calls wait for each other; sessions are independent."""
    steps = []
    with tutti.session(None, dict(SMALL), workers=2) as s:
        def work():
            for _ in range(5):
                steps.append(s.step().step)
                with tutti.session(None, dict(SMALL), workers=1) as other:
                    other.step()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect("steps", sorted(steps), list(range(1, 21)))
        threads = [threading.Thread(target=s.close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_no_leak():
    def cycle():
        with open_mlp(workers=1) as s:
            if np:
                s.step(**dict(zip("xy", batch())))

    check_no_growth(cycle, 100)


def test_arrays():
    x, y = batch()
    with open_mlp(workers=2) as s:
        first = s.step(x=x, y=y, lr=0.01)
        for _ in range(60):
            last = s.step(x=x, y=y, lr=0.01)
        if not last < first / 2 or not last.accuracy > 0.9:
            raise AssertionError("%s, then %s with accuracy %s" % (first, last, last.accuracy))
        logits = s.forward(x=x)
        expect("shape and type", (logits.shape, logits.dtype), ((32, 3), np.float32))
        expect("many rows at once", s.forward(x=np.concatenate([x] * 3)).tolist(),
               np.concatenate([logits] * 3).tolist())
        expect("other types and layouts", s.forward(x=np.asfortranarray(x.astype(">f8"))).tolist(),
               logits.tolist())
        expect("a view with strides", s.forward(x=np.repeat(x, 2, axis=0)[::2]).tolist(),
               logits.tolist())
        weight = s.parameters["fc1.weight"]
        by_hand = np.maximum(x @ weight.T + s.parameters["fc1.bias"], 0) \
            @ s.parameters["out.weight"].T + s.parameters["out.bias"]
        expect("forward", bool(np.abs(by_hand - logits).max() < 1e-5), True)
        s.parameters["out.bias"] = [1.0, 2.0, 3.0]
        expect("a written parameter", s.parameters["out.bias"].tolist(), [1.0, 2.0, 3.0])
        s.save_weights("w.safetensors")
        s.parameters["out.bias"] = np.zeros(3)
        s.load_weights("w.safetensors")
        expect("a loaded parameter", s.parameters["out.bias"].tolist(), [1.0, 2.0, 3.0])
        expect("the file", tutti.read_safetensors("w.safetensors")["out.bias"].tolist(),
               [1.0, 2.0, 3.0])


def test_parameters_in_place():
    """Arrays of parameters are the memory of the session: steps show in them, and changes show in
    the next call, for all workers, with the bits of an assignment."""
    x, y = batch()
    for workers in (1, 2, 4):
        with open_mlp(workers=workers) as s, open_mlp(workers=workers) as other:
            weight, bias = s.parameters["fc1.weight"], s.parameters["out.bias"]
            expect("no copy", np.shares_memory(weight, s.parameters["fc1.weight"]), True)
            before = weight.copy()
            s.step(x=x, y=y, lr=0.1)
            other.step(x=x, y=y, lr=0.1)
            expect("a step shows", bool((weight == before).all()), False)
            for turn in range(3):
                bias[:] = [turn, -1, 3]
                weight *= 2
                other.parameters["out.bias"] = [turn, -1, 3]
                other.parameters["fc1.weight"] = 2 * other.parameters["fc1.weight"]
                expect("hash", s.params_hash, other.params_hash)
                expect("outputs", s.forward(x=x).tolist(), other.forward(x=x).tolist())
                expect("loss", s.step(x=x, y=y, lr=0.1), other.step(x=x, y=y, lr=0.1))
            bias[:] = 5
            s.save("in-place")
            with open_mlp(workers=1) as loaded:
                loaded.load("in-place")
                expect("saved", loaded.parameters["out.bias"].tolist(), [5.0, 5.0, 5.0])
            kept = s.parameters.copy_of("out.bias")
            s.step(x=x, y=y, lr=0.1)
            expect("a copy of its own", kept.tolist(), [5.0, 5.0, 5.0])
            frozen = s.state["out.bias.exp_avg"]
            raises(ValueError, lambda: frozen.__setitem__(0, 1), "read-only")
            rows = np.from_dlpack(weight)
            expect("DLPack", (weight.__dlpack_device__()[0], np.shares_memory(rows, weight)),
                   (1, True))
        after = weight.copy()
        del s, other
        gc.collect()
        weight += 1
        expect("memory after close", bool((weight == after + 1).all()), True)
    with open_mlp(workers=2, overrides={"parallel.zero": 2}) as s:
        raises(ValueError, lambda: s.parameters["out.bias"].__setitem__(0, 1), "read-only")
        s.parameters["out.bias"] = [1, 2, 3]
        expect("written", s.parameters["out.bias"].tolist(), [1.0, 2.0, 3.0])


def test_copies_by_dlpack():
    """Copies for other libraries outlive the session, and end with their last user."""
    with open_mlp(workers=2) as s:
        given = s.parameters.dlpack("fc1.weight")
        expect("device", given.__dlpack_device__(), (1, 0))
        for version in (None, (1, 0)):
            for _ in range(3):  # capsules that nobody takes release their tensor
                given.__dlpack__(max_version=version)
        taken = np.from_dlpack(given)
        wanted = s.parameters["fc1.weight"].copy()
        s.parameters["fc1.weight"] = wanted + 1
        raises(KeyError, lambda: s.parameters.dlpack("fc9"), "fc9")
        raises(tutti.Error, lambda: s.parameters.dlpack("fc1.weight", "gpu"), "device")
        raises(tutti.Error, lambda: s.parameters.dlpack("fc1.weight", 0).__dlpack__(), "device")
    raises(tutti.Error, given.__dlpack__, "closed")
    gc.collect()
    expect("the copy", taken.tolist(), wanted.tolist())


def test_kept_parameters_end_with_their_arrays():
    """A closed session is freed with its last array."""
    def cycle():
        with open_mlp(workers=2) as s:
            kept = s.parameters["fc1.weight"]
        kept += 1
        raises(tutti.Error, lambda: s.parameters["fc1.weight"], "closed")

    check_no_growth(cycle, 50)


def test_parts_of_a_step():
    """Gradients and their application have the bits of a step; so has an update of the caller's."""
    x, y = batch()
    sgd = {"optimizer.name": "sgd", "optimizer.momentum": 0}
    with open_mlp(workers=2, overrides=sgd) as whole, open_mlp(workers=1, overrides=sgd) as parts, \
            open_mlp(workers=4, overrides=sgd) as own:
        for number in range(3):
            whole.step(x=x, y=y, lr=0.5)
            parts.compute_gradients(x=x, y=y)
            gradient = parts.gradients["fc1.weight"]
            parts.apply(lr=0.5)
            expect("hash", parts.params_hash, whole.params_hash)
            own.compute_gradients(x=x, y=y)

            def rule(params, grads):
                expect("gradient by view", bool(np.abs(own.views(grads)["fc1.weight"] - gradient)
                                                .max() < 1e-6), True)
                params -= np.float32(0.5) * grads

            own.update(rule)
            expect("step", own.step_number, number + 1)
        for name in whole.parameters:
            if np.abs(whole.parameters[name] - own.parameters[name]).max() > 1e-6:
                raise AssertionError("%s differs" % name)
    with open_mlp() as s:
        s.step(x=x, y=y)
        expect("state of adam", s.state["fc1.weight.exp_avg"].shape, (8, 5))


def test_rules_that_fail():
    """The parameters are as before, on every worker."""
    x, y = batch()

    def rule(params, grads):
        params[:] = 7
        raise ZeroDivisionError

    with open_mlp(workers=2) as s:
        before = s.params_hash
        s.compute_gradients(x=x, y=y)
        raises(ZeroDivisionError, lambda: s.update(rule))
        expect("nothing changed", s.params_hash, before)
        s.compute_gradients(x=x, y=y)
        raises(tutti.Error, lambda: s.update(3), "rule")
        raises(tutti.Error, lambda: s.update(lambda params, grads: s.close()), "callback")
        threads = []

        def close_later(params, grads):
            threads.append(threading.Thread(target=s.close))
            threads[0].start()
            params -= grads

        s.compute_gradients(x=x, y=y)
        expect("an update while another thread closes", s.update(close_later).step, 1)
        threads[0].join()
        raises(tutti.Error, s.step, "closed")


def test_values_beyond_a_float():
    with open_mlp() as s:
        before = s.params_hash
        for value in (1e300, -1e39):
            raises(tutti.Error, lambda: s.parameters.__setitem__("out.bias", np.full(3, value)),
                   "out.bias", "float32")
        expect("nothing changed", s.params_hash, before)


def test_views_outlive_the_session():
    x, y = batch()
    kept = []
    with open_mlp(workers=2) as s:
        s.compute_gradients(x=x, y=y)
        s.update(lambda params, grads: kept.append(params))
    kept[0][:] = 1.0
    expect("the memory is still there", float(kept[0][0]), 1.0)


def test_loss_of_the_caller():
    """Cross-entropy by numpy trains as the library's does."""
    x, y = batch()

    def loss(outputs, inputs):
        logits, target = outputs["logits"], inputs["y"]
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        p = powers / powers.sum(axis=1, keepdims=True)
        hot = np.eye(3, dtype=np.float32)[target]
        return -np.log(p[np.arange(len(p)), target]).mean(), (p - hot) / len(p)

    with open_mlp(workers=2) as s, open_mlp(workers=2, loss=loss) as own:
        for _ in range(3):
            a, b = s.step(x=x, y=y, lr=0.01), own.step(x=x, y=y, lr=0.01)
            if abs(a - b) > 1e-5:
                raise AssertionError("%r and %r" % (a, b))
        for name in s.parameters:
            if np.abs(s.parameters[name] - own.parameters[name]).max() > 1e-4:
                raise AssertionError("%s differs" % name)
    with open_mlp(loss=lambda outputs, inputs: 1 / 0) as s:
        before = s.params_hash
        raises(ZeroDivisionError, lambda: s.step(x=x, y=y))
        expect("nothing changed", s.params_hash, before)
    for returned, parts in (((1.0, np.zeros((32, 2))), ("loss", "shape")),
                            ((1.0, {"other": np.zeros(3)}), ("loss", "other")),
                            ((1.0, "abc"), ("loss", "dtype")),
                            ((1.0, {}), ("loss", "gradient", "logits")),
                            ((1.0, np.full((32, 3), np.nan)), ("loss", "logits", "finite")),
                            ((float("nan"), np.zeros((32, 3))), ("loss", "nan")),
                            (("much", np.zeros((32, 3))), ("loss", "much")),
                            (3.0, ("loss", "gradient")), (None, ("loss", "None"))):
        with open_mlp(loss=lambda outputs, inputs: returned) as s:
            raises(tutti.Error, lambda: s.step(x=x, y=y), *parts)
    kept = []

    def keep(outputs, inputs):
        kept.extend([outputs["logits"], inputs["x"]])
        return 1.0, np.zeros((32, 3))

    with open_mlp(loss=keep) as s:
        s.step(x=x, y=y)
        wanted = [array.copy() for array in kept]
        s.step(x=x + 1, y=y)
    expect("arrays that the loss has kept", [a.tolist() for a in kept[:2]],
           [a.tolist() for a in wanted])
    with open_mlp(loss=lambda outputs, inputs: (s.step(x=x, y=y), None)) as s:
        raises(tutti.Error, lambda: s.step(x=x, y=y), "callback")


class Released:
    """Memory that its owner has taken back."""
    def __array__(self, *_, **__):
        raise ValueError("the memory is released")


def test_bad_arrays():
    x, y = batch()
    with open_mlp(workers=2) as s:
        before = s.params_hash
        for arrays, parts in (
                ({"x": x[:, :3], "y": y}, ("x", "[32,5]")),
                ({"x": x}, ("y",)),
                ({"x": x, "y": y, "z": y}, ("z", "no such input", "inputs are x, y")),
                ({"x": x, "y": y[:5]}, ("y",)),
                ({"x": np.concatenate([x, x]), "y": np.concatenate([y, y])}, ("x", "32")),
                ({"x": x.astype(complex), "y": y}, ("x", "complex")),
                ({"x": [["a"]], "y": y}, ("x",)),
                ({"x": x, "y": y + 5}, ("y",)),
                ({"x": x, "y": y.astype(np.int64) << 40}, ("y",)),
                ({"x": x, "y": y.astype(np.uint64) + (1 << 63)}, ("y",)),
                ({"x": np.zeros([1] * 12), "y": y}, ("x", "dimensions")),
                ({"x": 3.0, "y": y}, ("x",)),
                ({"x": None, "y": y}, ("x",)),
                ({"x": np.ma.masked_greater(x, 0), "y": y}, ("x", "masked")),
                ({"x": np.zeros(32, "f4,f4"), "y": y}, ("x", "dtype")),
                ({"x": np.broadcast_to(x[0], (1 << 42, 5)), "y": y}, ("x", "out of memory")),
                ({"x": Released(), "y": y}, ("x", "released")),
                ({"x": x[:0], "y": y[:0]}, ())):
            try:
                raises(tutti.Error, lambda: s.step(**arrays), *parts)
            except AssertionError as e:
                raise AssertionError("%s: %s" % (arrays, e)) from e
        for call in (s.step, s.compute_gradients, s.forward):
            raises(tutti.Error, lambda: call(x), call.__name__, "(x=..., y=...)")
        raises(tutti.Error, lambda: s.forward(x=x[:, :3]), "x", "rows of shape [5], got [3]")
        raises(tutti.Error, lambda: s.forward(x=x[0]), "x", "x[None]")
        raises(tutti.Error, lambda: s.forward(x=3), "x", "single number")
        raises(tutti.Error, lambda: s.forward(x=[]), "x", "[5]")
        raises(tutti.Error, lambda: s.views(x), "flat")
        raises(KeyError, lambda: s.parameters[[1]], "object of type list")
        for step in (-1, 2 ** 70, "1", 1.5, None, x):
            raises(tutti.Error, lambda: setattr(s, "step_number", step), "step_number")
        for copy_it in (copy.copy, copy.deepcopy, pickle.dumps):
            raises(tutti.Error, lambda: copy_it(s), "session", "copied")
        for lr in (-1, float("nan"), "fast"):
            raises(tutti.Error, lambda: s.step(x=x, y=y, lr=lr), "lr")
        raises(tutti.Error, s.forward, "x")
        raises(KeyError, lambda: s.parameters["fc9.weight"], "fc9.weight")
        raises(tutti.Error, lambda: s.parameters.update({"out.bias": [1.0]}), "out.bias", "shape")
        raises(tutti.Error, s.apply, "gradients")
        expect("nothing changed", s.params_hash, before)
        s.step(x=x, y=y)
    raises(tutti.Error, lambda: tutti.session(MLP, inputs={"x": ((5,), "uint8")}, n_classes=3), "x")
    raises(tutti.Error, lambda: tutti.session({"model.nam": 3}), "model.nam")
    raises(tutti.Error, lambda: open_mlp(devices=3), "devices")
    raises(tutti.Error, lambda: open_mlp(loss=3), "loss")


def test_metrics_of_a_model_file():
    """Of .pt2 and ONNX files: in the results of steps, the same for any number of workers."""
    golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden")
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(24, 4)).astype(np.float32), draw.integers(0, 2, 24).astype(np.int32)
    for name in ("pt2/counted.pt2", "onnx/counted.onnx"):
        job = {"model.file": os.path.join(golden, name), "model.metrics": "hits=1/2, margin=3",
               "train.batch": 24, "parallel.shards": 4, "optimizer.name": "sgd",
               "optimizer.momentum": 0, "optimizer.weight_decay": 0}
        found = []
        for workers in (1, 2):
            with tutti.session(job, inputs={"x": ((4,), "float32"), "y": ((), "int32")},
                               n_classes=2, workers=workers) as s:
                out = x @ s.parameters["body.weight"].T + s.parameters["body.bias"]
                found.append(s.step(x=x, y=y, lr=0.1).metrics)
        expect("workers", found[0], found[1])
        expect("hits", found[0]["hits"], float((out.argmax(1) == y).mean()))
        expect("margin", abs(found[0]["margin"] - np.abs(out[:, 1] - out[:, 0]).mean()) < 1e-6,
               True)


def test_a_model_file_with_several_outputs():
    """All outputs with a row for each sample by their names, also for a loss of the caller."""
    golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/pt2")
    job = {"model.file": os.path.join(golden, "fields_heads.pt2"), "model.loss": "none",
           "train.batch": 8, "optimizer.name": "sgd", "optimizer.momentum": 0, "parallel.shards": 2,
           "optimizer.weight_decay": 0}
    given = {"x": (4,), "y": ((), "int32")}
    x = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    y = np.arange(8, dtype=np.int32) % 3

    def loss(outputs, inputs):
        expect("names", list(outputs), ["logits", "features", "size"])
        return float(outputs["features"].mean()), {"features": np.full((8, 5), 1 / 40)}

    with tutti.session(job, inputs=given) as s:
        found = s.forward(x=x)
        expect("names", [(n, a.shape) for n, a in found.items()],
               [("logits", (20, 3)), ("features", (20, 5)), ("size", (20,))])
        own = found["features"] @ s.parameters["head.weight"].T + s.parameters["head.bias"]
        if np.abs(own - found["logits"]).max() > 1e-5:
            raise AssertionError("the outputs are not those of the model")
    hashes = set()
    for workers in (1, 2):
        with tutti.session(job, inputs=given, loss=loss, workers=workers) as s:
            before = [s.parameters[n].copy() for n in ("head.weight", "body.bias")]
            first = s.step(x=x[:8], y=y, lr=0.1)
            expect("loss", abs(first - found["features"][:8].mean()) < 1e-6, True)
            expect("the head has no gradient",
                   np.abs(s.parameters["head.weight"] - before[0]).max(), 0)
            expect("the body has one", (s.parameters["body.bias"] != before[1]).any(), True)
            hashes.add(first.params_hash)
    expect("hashes", len(hashes), 1)


if __name__ == "__main__":
    if not np:
        for name in ("arrays", "parameters_in_place", "copies_by_dlpack",
                     "kept_parameters_end_with_their_arrays",
                     "parts_of_a_step", "rules_that_fail", "views_outlive_the_session",
                     "loss_of_the_caller", "bad_arrays", "values_beyond_a_float",
                     "a_model_file_with_several_outputs", "metrics_of_a_model_file"):
            del globals()["test_" + name]
    runs.main(sys.modules[__name__])
