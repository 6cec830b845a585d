"""losses_test.py - losses of session.step: numbers that wait for their step, on the host and on the
devices of the tests; failures of steps in flight."""

import copy
import json
import math
import numbers
import os
import pickle
import sys

from package import SMALL, check_no_growth, need, raises, runs

need("numpy")

import numpy as np  # noqa: E402

import tutti  # noqa: E402

MLP = {"model": {"name": "mlp", "hidden": [8]}, "train.batch": 32, "parallel.shards": 4,
       "optimizer.name": "sgd", "train.precision": "f32"}
INPUTS = {"x": ((5,), "float32"), "y": ((), "int32")}
DEVICES = os.path.join(runs.BUILD, "tests/modules/device")


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError("%s: %r instead of %r" % (what, found, wanted))


def batch(seed=0, n=32):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(n, 5)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int32) + (x[:, 1] > 0)


def open_mlp(devices=None, **overrides):
    """On the host, or on a device that is the host and works when it is waited for."""
    if devices == "0":
        os.environ.update(TUTTI_MODULE_PATH=DEVICES, TUTTI_TEST_DEVICE="late=1")
    return tutti.session(MLP, overrides, inputs=INPUTS, n_classes=3, devices=devices)


def kinds():
    return ["cpu", "0"] if os.path.exists(os.path.join(DEVICES, "tutti-cuda.so")) else ["cpu"]


def test_losses_are_numbers():
    x, y = batch()
    for devices in kinds():
        with open_mlp(devices) as s:
            losses = [s.step(x=x, y=y, lr=0.1) for _ in range(4)]
            values = [float(loss) for loss in losses]
            a, b = losses[0], losses[3]
            expect("it learns", (a > b, b < a, a >= a, a != b, a == values[0], 0 < b),
                   (True,) * 6)
            expect("sums", (a + b, a - 1, 2 * a, 1 / a, -a, abs(a), a ** 2, sum(losses)),
                   (values[0] + values[3], values[0] - 1, 2 * values[0], 1 / values[0], -values[0],
                    values[0], values[0] ** 2, sum(values)))
            expect("min", min(losses), values[3])
            expect("text", ("%.3f" % a, f"{a:.3f}", str(a), repr(a)),
                   ("%.3f" % values[0], "%.3f" % values[0], str(values[0]), repr(values[0])))
            expect("round", (round(a, 2), int(a), math.floor(a), math.isfinite(a), bool(a)),
                   (round(values[0], 2), int(values[0]), math.floor(values[0]), True, True))
            expect("numpy", (np.asarray(losses).tolist(), np.asarray(losses).dtype, np.mean(losses),
                             np.float64(1) + a, (np.ones(2) * a).tolist()),
                   (values, np.dtype("float64"), np.mean(values), 1 + values[0], [values[0]] * 2))
            expect("kinds", (isinstance(a, numbers.Real), a.item(), hash(a), json.dumps(float(a))),
                   (True, values[0], hash(values[0]), json.dumps(values[0])))
            expect("attributes", (a.step, b.step, a.n_rows, a.lr), (1, 4, 32, 0.1))
            expect("hash", b.params_hash, s.params_hash)
            raises(AttributeError, lambda: a.no_such_thing, "no_such_thing")
            for other in (pickle.loads(pickle.dumps(a)), copy.copy(a), copy.deepcopy(a),
                          pickle.loads(pickle.dumps(a.result())), copy.copy(a.result())):
                expect("a copy", (other == a, other.params_hash, other.accuracy),
                       (True, a.params_hash, a.accuracy))


def test_inputs_may_change_after_the_call():
    for devices in kinds():
        with open_mlp(devices) as s, open_mlp(devices) as other:
            x, y = batch()
            for number in range(4):
                x[:], y[:] = batch(number)
                s.step(x=x, y=y, lr=0.1)
                x[:] = np.nan
                other.step(x=batch(number)[0], y=batch(number)[1], lr=0.1).result()
            expect("hash", s.params_hash, other.params_hash)


def test_losses_are_kept():
    """Any number of unread losses, also after more steps than C keeps results, and after close."""
    x, y = batch()
    for devices in kinds():
        with open_mlp(devices) as s:
            some = [s.step(x=x, y=y, lr=0.1) for _ in range(700)]
            expect("steps", [loss.step for loss in some], list(range(1, 701)))
            for _ in range(600):
                s.step(x=x, y=y, lr=0.1)
            last = s.step(x=x, y=y, lr=0.1)
        expect("after close", (last.step, some[3].step), (1301, 4))


def test_a_session_ends_with_its_last_loss():
    x, y = batch()

    def cycle():
        s = open_mlp("cpu")
        losses = [s.step(x=x, y=y) for _ in range(3)]
        del s
        expect("step", losses[1].step, 2)

    check_no_growth(cycle, 50)


def test_bad_steps():
    """The next call says so once, and reading the loss always does."""
    x, y = batch()
    bad = x.copy()
    bad[3, 2] = np.inf
    for devices in kinds():
        for call in ("step", "hash", "read"):
            with open_mlp(devices) as s, open_mlp(devices) as other:
                s.step(x=x, y=y, lr=0.1)
                other.step(x=x, y=y, lr=0.1)
                if devices == "cpu":
                    raises(tutti.Error, lambda: s.step(x=bad, y=y, lr=0.1), "step 2", "finite")
                else:
                    loss, after = s.step(x=bad, y=y, lr=0.1), s.step(x=x, y=y, lr=0.1)
                    if call == "step":
                        raises(tutti.Error, lambda: s.step(x=x, y=y, lr=0.1), "earlier", "step 2")
                    elif call == "hash":
                        raises(tutti.Error, lambda: s.params_hash, "earlier", "step 2", "finite")
                    for _ in range(2):
                        raises(tutti.Error, lambda: float(loss), "step 2", "finite")
                        raises(tutti.Error, lambda: after.accuracy, "step 3 is left out")
                expect("step number", s.step_number, 1)
                expect("nothing changed", s.params_hash, other.params_hash)
                expect("it goes on", s.step(x=x, y=y, lr=0.1), other.step(x=x, y=y, lr=0.1))
    if "0" in kinds():
        with open_mlp("0") as s:
            loss = s.step(x=bad, y=y, lr=0.1)
        raises(tutti.Error, lambda: float(loss), "step 1", "finite")  # after close


def test_forks_and_callbacks():
    x, y = batch()
    with open_mlp("cpu") as s:
        loss = s.step(x=x, y=y)
        child = os.fork()
        if child == 0:
            try:
                raises(tutti.Error, lambda: float(loss), "fork")
                os._exit(0)
            except BaseException as e:
                os.write(2, repr(e).encode())
                os._exit(1)
        expect("the child", os.waitpid(child, 0)[1], 0)
        expect("the parent", loss.step, 1)
    seen = []

    def own(outputs, inputs):
        seen.extend(float(loss) for loss in losses[-1:])
        return 1.0, np.zeros_like(outputs["logits"])

    losses = []
    with tutti.session(MLP, inputs=INPUTS, n_classes=3, loss=own) as s:
        for _ in range(3):
            losses.append(s.step(x=x, y=y))
    expect("losses before, in a callback", seen, [1.0, 1.0])


def test_learning_rates():
    x, y = batch()
    with open_mlp("cpu") as s:
        before = s.params_hash
        for lr in (1e308, float("nan"), float("inf"), -1, -1e-9, 1000.5, "0.1", True,
                   np.array([0.1, 0.2])):
            raises(tutti.Error, lambda: s.step(lr=lr, x=x, y=y), "lr: want a number")
        s.compute_gradients(x=x, y=y)
        raises(tutti.Error, lambda: s.apply(lr=1e308), "lr: want a number from 0 to 1000")
        expect("nothing changed", s.params_hash, before)
        expect("rate", s.step(lr=np.float32(0.5), x=x, y=y).lr, 0.5)

    def set_lr(run, info):
        run.set_lr(1e308)

    class Sets(tutti.Callback):
        on_each_step = staticmethod(set_lr)

    small = dict(SMALL, **{"parallel.devices": "cpu"})
    raises(tutti.Error, lambda: tutti.train(None, small, callbacks=[Sets()]), "lr", "1000")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
