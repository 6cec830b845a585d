"""torch_test.py - tutti.from_torch: modules of PyTorch, losses, weights back, DLPack.  Needs
torch."""

import sys

from package import need, raises, runs

need("numpy", "torch")

import numpy as np  # noqa: E402
import torch  # noqa: E402

import tutti  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self, n_out=3):
        super().__init__()
        self.fc1 = torch.nn.Linear(5, 16)
        self.norm = torch.nn.BatchNorm1d(16)
        self.fc2 = torch.nn.Linear(16, n_out)

    def forward(self, x):
        return self.fc2(torch.relu(self.norm(self.fc1(x))))


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(5, 8)
        self.b = torch.nn.Embedding(4, 8)
        self.out = torch.nn.Linear(8, 3)

    def forward(self, numbers, kind):
        return self.out(torch.relu(self.a(numbers) + self.b(kind)))


def samples(n=200):
    x = np.random.default_rng(0).normal(size=(n, 5)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)


def same_outputs(model, module, x):
    """PyTorch with the trained weights and Tutti agree."""
    model.to_torch(module).eval()
    with torch.no_grad():
        wanted = module(*(torch.from_numpy(a) for a in (x if isinstance(x, tuple) else (x,))))
    error = float(np.abs(model.predict(x) - wanted.numpy()).max())
    if error > 1e-5:
        raise AssertionError("outputs differ by %g" % error)


def accuracy(model, x, y):
    right = (model.predict(x).argmax(axis=-1) == y).mean()
    if right < 0.85:
        raise AssertionError("%g of the samples" % right)


def test_cross_entropy():
    torch.manual_seed(0)
    x, y = samples()
    for loss in (torch.nn.functional.cross_entropy, torch.nn.CrossEntropyLoss(), "cross-entropy"):
        module = Net()
        model = tutti.from_torch(module, torch.from_numpy(x[:8]), loss=loss)
        if not module.training:
            raise AssertionError("the module is no longer in training mode")
        model.fit(x, y, batch=32, epochs=20, lr=0.01, workers=2, progress=False)
        accuracy(model, x, y)
        same_outputs(model, module, x)


def test_a_loss_of_the_caller():
    torch.manual_seed(0)
    x, y = samples()
    smooth = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    for loss in (smooth, lambda out, to: smooth(out, to.long()) + out.square().mean() * .01):
        module = Net()
        model = tutti.from_torch(module, torch.from_numpy(x[:8]), loss=loss,
                                 target=torch.from_numpy(y[:8]))
        model.fit(x, y, batch=32, epochs=20, lr=0.01, progress=False, workers=1)
        model.to_torch(module).eval()
        with torch.no_grad():
            right = (module(torch.from_numpy(x)).argmax(1).numpy() == y).mean()
        if right < 0.85:
            raise AssertionError(right)


def test_values():
    x, _ = samples()
    y = (x @ np.arange(5) + 7).astype(np.float32)[:, None]
    module = torch.nn.Linear(5, 1)
    model = tutti.from_torch(module, torch.from_numpy(x[:8]), loss=torch.nn.functional.mse_loss)
    model.fit(x, y, batch=32, epochs=80, lr=0.05, progress=False, workers=1)
    model.to_torch(module)
    error = np.abs(module.weight.detach().numpy() - np.arange(5)).max()
    if error > 0.05 or abs(module.bias.item() - 7) > 0.05:
        raise AssertionError("%s %s" % (module.weight, module.bias))


def test_several_inputs():
    x, y = samples()
    kind = (y % 4).astype(np.int64)
    module = Two()
    model = tutti.from_torch(module, (torch.from_numpy(x[:8]), torch.from_numpy(kind[:8])))
    model.fit({"numbers": x, "kind": kind}, y, batch=32, epochs=20, lr=0.01, progress=False,
              workers=1)
    same_outputs(model, module, (x, kind))
    raises(tutti.Error, lambda: model.fit((x,), y), "x", "numbers")


def test_a_weight_with_two_names():
    """Both names get the trained values, whichever the model uses first."""
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(12, 8)
            self.mix = torch.nn.Linear(8, 8)
            self.head = torch.nn.Linear(8, 12, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids):
            return self.head(self.mix(self.table(ids)).relu())

    torch.manual_seed(0)
    ids = np.random.default_rng(0).integers(0, 12, (64, 6))
    module = Tied()
    before = module.head.weight.detach().clone()
    model = tutti.from_torch(module, torch.from_numpy(ids[:8]))
    model.fit(ids, ids, batch=32, epochs=3, lr=0.01, workers=1, progress=False)
    same_outputs(model, module, ids)
    weights = model.weights()
    if not (weights["table.weight"] == weights["head.weight"]).all() or \
            np.abs(weights["head.weight"] - before.numpy()).max() < 1e-3:
        raise AssertionError("the shared weight was not trained")


def test_a_session_with_a_loss_of_torch():
    x, y = samples()
    module = Net()
    model = tutti.from_torch(module, torch.from_numpy(x[:8]))
    loss = tutti.torch_loss(torch.nn.functional.cross_entropy)
    name = "fc1.weight"
    with model.session({"train.batch": 64, "parallel.shards": 4}) as a, \
            model.session({"train.batch": 64, "parallel.shards": 4}, loss=loss) as b:
        weight = torch.from_dlpack(a.parameters[name])
        if not torch.equal(weight, module.fc1.weight.detach()):
            raise AssertionError("the session begins with other weights")
        for _ in range(3):
            one = a.step(x=torch.from_numpy(x[:64]), y=torch.from_numpy(y[:64]), lr=0.01)
            two = b.step(x=x[:64], y=y[:64], lr=0.01)
            if abs(one - two) > 1e-5:
                raise AssertionError("%r and %r" % (one, two))
        if np.abs(a.parameters[name] - b.parameters[name]).max() > 1e-4:
            raise AssertionError("weights differ")


def test_what_is_refused():
    x, y = samples()
    example = torch.from_numpy(x[:8])
    for parts, call in ((("module",), lambda: tutti.from_torch(3, example)),
                        (("example",), lambda: tutti.from_torch(Net(), x)),
                        (("example",), lambda: tutti.from_torch(Net(), torch.tensor(3.0))),
                        (("example", "inputs"), lambda: tutti.from_torch(Net(), (example,) * 3)),
                        (("module", "torch.export"), lambda: tutti.from_torch(Two(), example)),
                        (("target",), lambda: tutti.from_torch(Net(), example, loss=max)),
                        (("loss",), lambda: tutti.from_torch(Net(), example, loss=3))):
        raises(tutti.Error, call, *parts)
    model = tutti.from_torch(Net(), example)
    raises(tutti.Error, lambda: model.to_torch(Net()), "fit")
    model.fit(x, y, epochs=1, progress=False)
    raises(tutti.Error, lambda: model.to_torch(Net(4)), "module", "fc2")
    raises(tutti.Error, lambda: model.to_torch(torch.nn.Linear(5, 3)), "module")
    raises(tutti.Error, lambda: model.to_torch("net"), "module")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
