"""torch_test.py - tutti.from_torch: modules of PyTorch, losses, weights back, DLPack.  Needs
torch."""

import os
import struct
import sys
import zlib

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
    right = (model.predict_proba(x).argmax(axis=-1) == y).mean()
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


def test_losses_of_sessions_that_are_wrong():
    x, y = samples(32)
    job = {"model": {"name": "mlp", "hidden": [8]}, "train.batch": 32, "parallel.shards": 4}
    inputs = {"x": (5,), "y": ((), "int32")}
    for parts, function, more in (
            (("function", "got 3"), lambda out, to: 3, {}),
            (("function", "[32, 3]"), lambda out, to: out, {}),
            (("function", "depend"), lambda out, to: torch.tensor(3.0), {}),
            (("function", "depend"), lambda out, to: torch.tensor(3.0, requires_grad=True), {}),
            (("output", "zz"), torch.nn.functional.cross_entropy, {"output": "zz"}),
            (("target", "zz"), torch.nn.functional.cross_entropy, {"target": "zz"})):
        with tutti.session(job, inputs=inputs, n_classes=3,
                           loss=tutti.torch_loss(function, **more)) as s:
            raises(tutti.Error, lambda: s.step(x=x, y=y), *parts)


def test_tensors_without_values():
    x, y = samples()
    model = tutti.Model("mlp", {"model.hidden": [8]})
    nested = torch.nested.nested_tensor([torch.zeros(5), torch.zeros(3)])
    for bad in (torch.empty(200, 5, device="meta"), torch.eye(5).to_sparse(), nested,
                torch.quantize_per_tensor(torch.zeros(200, 5), 0.1, 0, torch.qint8)):
        raises(tutti.Error, lambda: model.fit(bad, y), "x")


class Pixels(torch.nn.Module):
    """Logits [N,C,H,W] of three classes."""
    def __init__(self):
        super().__init__()
        self.fine, self.out = torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.Conv2d(8, 3, 1)

    def forward(self, x):
        return self.out(torch.relu(self.fine(x)))


def test_segmentation():
    """cross_entropy of logits [N,C,H,W] and classes [N,H,W]; -100 does not count, as in PyTorch."""
    torch.manual_seed(0)
    x = torch.randn(64, 1, 6, 5)
    y = (x[:, 0] > 0).long() + (x[:, 0] > 1)
    y[:, 0, 0] = -100
    for loss in (torch.nn.functional.cross_entropy, torch.nn.CrossEntropyLoss(ignore_index=-100)):
        module = Pixels()
        model = tutti.from_torch(module, x[:8], loss=loss)
        model.fit(x, y, batch=16, epochs=25, lr=0.02, progress=False, workers=2)
        same_outputs(model, module, x.numpy())
        with torch.no_grad():
            wanted = loss(module(x), y).item()
        result = model.evaluate(x, y)
        if abs(result.loss - wanted) > 1e-5 or result.metrics["miou"] < 0.9:
            raise AssertionError("%s, PyTorch has %g" % (result, wanted))
        found = model.predict_proba(x)
        if found.shape != (64, 3, 6, 5) or np.abs(found.sum(axis=1) - 1).max() > 1e-6:
            raise AssertionError(found.shape)


class Square(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(5, 5)

    def forward(self, x):
        return self.out(x)


def test_which_dimension_has_the_classes():
    x, raised = torch.randn(32, 5, 5), "classes of an output"
    raises(tutti.Error, lambda: tutti.from_torch(Square(), x[:8],
                                                 loss=torch.nn.functional.cross_entropy), raised)
    module = Square()
    model = tutti.from_torch(module, x[:8], loss="cross-entropy")
    y = x.argmax(2)
    model.fit(x, y, batch=32, epochs=1, lr=0.0, progress=False, workers=1)
    with torch.no_grad():
        wanted = torch.nn.functional.cross_entropy(module(x).transpose(1, 2), y).item()
    if abs(model.history["loss"][0] - wanted) > 1e-5:
        raise AssertionError("%g instead of %g" % (model.history["loss"][0], wanted))


class Towers(torch.nn.Module):
    def __init__(self, has_scale):
        super().__init__()
        self.a, self.b = torch.nn.Linear(6, 8), torch.nn.Linear(4, 8)
        self.scale = torch.nn.Parameter(torch.tensor(1.5)) if has_scale else None

    def forward(self, left, right):
        found = self.a(left), self.b(right)
        return found if self.scale is None else (*found, self.scale.exp())


def info_nce(module, *inputs):
    a, b, scale = module(*inputs)
    normal = torch.nn.functional.normalize
    scores, own = scale * normal(a) @ normal(b).T, torch.arange(len(a))
    both = [torch.nn.functional.cross_entropy(s, own) for s in (scores, scores.T)]
    return (sum(both) / 2).item()


def test_contrastive_losses_need_no_target():
    torch.manual_seed(0)
    z = torch.randn(128, 3)
    left = torch.cat([z, z ** 2], 1) + 0.01 * torch.randn(128, 6)
    right = torch.cat([z, z[:, :1]], 1)
    for loss, has_scale in (("infonce", True), ("infonce", False), ("sigmoid", False)):
        module = Towers(has_scale)
        model = tutti.from_torch(module, (left[:8], right[:8]), loss=loss)
        model.fit((left, right), batch=64, epochs=30, lr=0.02, progress=False, workers=2)
        model.to_torch(module).eval()
        result = model.evaluate({"left": left[:64], "right": right[:64]})
        if result.accuracy < 0.7:
            raise AssertionError("%s: %s" % (loss, result))
        if has_scale:
            with torch.no_grad():
                wanted = info_nce(module, left[:64], right[:64])
            if abs(result.loss - wanted) > 1e-4:
                raise AssertionError("%g, PyTorch has %g" % (result.loss, wanted))
        found = model.predict((left, right))
        with torch.no_grad():
            own = module(left, right)
        if np.abs(found["output_0"] - own[0].numpy()).max() > 1e-5:
            raise AssertionError("other embeddings")


def test_losses_of_pytorch():
    """Functions and modules of torch.nn, also with arguments: the loss is PyTorch's."""
    import functools

    from torch import nn
    F = nn.functional
    torch.manual_seed(0)
    x = torch.randn(96, 5)
    value, question = 2 * x[:, :3] + 1, (x[:, :3] > 0).float()
    kind, share = x[:, :3].argmax(1), torch.softmax(x[:, :3], 1)
    weight = torch.tensor([1.0, 2.0, 3.5])
    cases = [
        (F.mse_loss, value, None), (F.l1_loss, value, None), (nn.HuberLoss(delta=0.5), value, None),
        (nn.SmoothL1Loss(beta=0.3), value, None), (nn.MSELoss(reduction="sum"), value, None),
        (F.binary_cross_entropy_with_logits, question, None),
        (nn.BCEWithLogitsLoss(pos_weight=weight), question, None),
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.0)), question, None),
        (nn.BCEWithLogitsLoss(weight=weight), question, None),
        (nn.CrossEntropyLoss(weight=weight), kind, None),
        (nn.CrossEntropyLoss(label_smoothing=0.2), kind, None),
        (nn.CrossEntropyLoss(weight=weight, label_smoothing=0.2), kind, None),
        (functools.partial(F.cross_entropy, ignore_index=1), kind, None),
        (F.nll_loss, kind, nn.LogSoftmax(1)),
        (F.kl_div, share, nn.LogSoftmax(1)),
        (nn.KLDivLoss(reduction="batchmean"), share, nn.LogSoftmax(1)),
        (lambda out, to: (1 - (F.normalize(out) * F.normalize(to)).sum(1)).mean(), value, None)]
    for loss, y, last in cases:
        module = nn.Sequential(nn.Linear(5, 3), *([last] if last else []))
        needs = not isinstance(loss, (nn.Module, functools.partial)) and loss.__name__ == "<lambda>"
        model = tutti.from_torch(module, x[:8], loss=loss, target=y[:8] if needs else None)
        model.fit(x, y, batch=96, epochs=1, lr=0.0, progress=False, workers=1,
                  overrides={"parallel.shards": 1})
        with torch.no_grad():
            wanted = loss(module(x), y).item()
        found = model.history["loss"][0]
        if abs(found - wanted) > 1e-5 * max(1, abs(wanted)):
            raise AssertionError("%s: %g instead of %g" % (loss, found, wanted))
    raises(tutti.Error, lambda: tutti.from_torch(nn.Linear(5, 3), x[:8], loss=F.soft_margin_loss),
           "target: ")
    model = tutti.from_torch(nn.Linear(5, 3), x[:8])
    raises(tutti.Error, lambda: model.fit(x, share, progress=False), "target=y[:8]")


def test_sessions_before_fit():
    """The shapes of inputs and targets follow from the module and its loss."""
    torch.manual_seed(0)
    x, small = torch.randn(16, 5), {"train.batch": 16}
    pixels = torch.randn(16, 1, 6, 5)
    for module, given, loss, y in (
            (torch.nn.Linear(5, 3), x, torch.nn.functional.mse_loss, x[:, :3]),
            (torch.nn.Linear(5, 3), x, "bce", (x[:, :3] > 0).float()),
            (torch.nn.Linear(5, 3), x, "cross-entropy", x[:, :3].argmax(1)),
            (Pixels(), pixels, torch.nn.functional.cross_entropy, (pixels[:, 0] > 0).long())):
        with tutti.from_torch(module, given[:8], loss=loss, overrides=small).session() as s:
            first = s.step(x=given, y=y, lr=0.01) if "x" in s._inputs else \
                s.step(y=y, lr=0.01, **{next(iter(s._inputs)): given})
            if not 0 < first < 10:
                raise AssertionError("%s: %g" % (loss, first))


class Heads(torch.nn.Module):
    """A class, two values, and a figure of its own."""
    def __init__(self):
        super().__init__()
        self.body, self.kind = torch.nn.Linear(5, 16), torch.nn.Linear(16, 3)
        self.values = torch.nn.Linear(16, 2)

    def forward(self, x):
        h = torch.relu(self.body(x))
        return self.kind(h), self.values(h), h.mean()


def test_several_outputs_and_targets():
    def loss(outputs, targets):
        kind, values = targets
        return torch.nn.functional.cross_entropy(outputs[0], kind) + \
            torch.nn.functional.mse_loss(outputs[1], values)

    torch.manual_seed(0)
    x, y = samples()
    two = x[:, 2:4].copy()
    module, seen = Heads(), []
    given = [torch.from_numpy(a[:8]) for a in (x, y, two)]
    for target in (tuple(given[1:]), {"kind": given[1], "two": given[2]}):
        module = Heads()
        names = list(target) if isinstance(target, dict) else None
        model = tutti.from_torch(
            module, given[0], target=target, overrides={"model.metrics": "mean=3"},
            loss=lambda out, to: loss(out, tuple(to[n] for n in names) if names else to))
        def target_of(*arrays):
            return dict(zip(names, arrays)) if names else arrays

        model.fit(x, target_of(y, two), batch=32, epochs=20, lr=0.01,
                  progress=False, workers=1,
                  callbacks=lambda e: seen.append(e.metrics) if e.kind == "eval" else None)
        accuracy(model, x, y)
        model.to_torch(module).eval()
        with torch.no_grad():
            out = module(torch.from_numpy(x))
        found = model.predict(x)
        if list(found) != ["output_1", "output_2"] or any(
                np.abs(a - b.numpy()).max() > 1e-5 for a, b in zip(found.values(), out)):
            raise AssertionError("other outputs: %s" % found)
        if np.abs(out[1].numpy() - two).mean() > 0.3:
            raise AssertionError("the second output was not trained")
        figures = [seen[-1]["mean"], model.history.eval["mean"][-1],
                   model.evaluate(x, target_of(y, two)).metrics["mean"], out[2].item()]
        if max(figures) - min(figures) > 1e-5:
            raise AssertionError("the model's metric: %s" % figures)
    raises(tutti.Error, lambda: model.fit(x, y, progress=False), "kind")
    for target in ((3,), {}, {"x": given[1]}, 3):
        raises(tutti.Error, lambda: tutti.from_torch(Heads(), given[0], target=target, loss=loss),
               "target")


def write_png(path, pixels):
    """An 8-bit image of [height, width], or [height, width, 3]."""
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, data in ((b"IHDR", struct.pack(">IIBBBBB", width, height, 8,
                                                2 if pixels.ndim == 3 else 0, 0, 0, 0)),
                           (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
            file.write(struct.pack(">I", len(data)) + kind + data +
                       struct.pack(">I", zlib.crc32(kind + data)))


def test_masks():
    """A prediction of segmentation has the classes of the image's pixels."""
    draw, masks = np.random.default_rng(0), []
    for folder in ("set/images", "set/masks"):
        os.makedirs(folder)
    for i in range(12):
        image = draw.integers(0, 256, (16, 16, 3)).astype(np.uint8)
        write_png("set/images/%d.png" % i, image)
        masks.append((image[..., 0] > 127).astype(np.uint8))
        write_png("set/masks/%d.png" % i, masks[i])
    module = torch.nn.Conv2d(3, 2, 1)
    model = tutti.from_torch(module, torch.zeros(2, 3, 16, 16))
    run = tutti.train({"model.file": model.job["model.file"], "train.epochs": 40,
                       "optimizer.lr": 0.1, "train.batch": 4, "data.format": "masks",
                       "data.dir": "set", "data.image_size": 16, "data.augment": "none"},
                      workers=1)
    found, = tutti.predict(run, "set/images/3.png")
    right = (found.mask == masks[3]).mean()
    if found.mask.dtype != np.uint16 or right < 0.95:
        raise AssertionError("%g of the pixels: %s" % (right, found.mask))


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


def test_kinds_of_tensors():
    """bfloat16, a gradient, strides and conjugates are read; what has no values is refused."""
    x, y = samples(64)
    wide = torch.from_numpy(x)
    freed = wide.clone()
    freed.untyped_storage().resize_(0)
    with tutti.session({"model.name": "mlp", "train.batch": 64, "optimizer.name": "sgd"},
                       inputs={"x": (5,), "y": ((), "int32")}, n_classes=3) as s:
        for given in (wide.bfloat16(), wide.clone().requires_grad_(), wide.t().contiguous().t(),
                      torch.complex(wide, -wide).conj().imag):
            wanted = s.forward(x=given.detach().resolve_neg().float().numpy())
            if not (s.forward(x=given) == wanted).all():
                raise AssertionError("other outputs of %s" % given.dtype)
        for given, parts in ((freed, "freed"), (torch.empty(64, 5, device="meta"), "meta"),
                             (torch.eye(5).to_sparse(), "sparse"),
                             (wide.to(torch.complex64), "complex"),
                             (torch.quantize_per_tensor(wide, 0.1, 0, torch.qint8), "x")):
            raises(tutti.Error, lambda: s.step(x=given, y=y), "x", parts)
        # PyTorch ends the process when it prints freed memory.
        raises(tutti.Error, lambda: s.step(x=wide.numpy(), y=y, lr=freed), "lr")
        raises(tutti.Error, lambda: tutti.EarlyStopping(monitor=freed), "monitor")
        raises(tutti.Error, lambda: tutti.train(None, callbacks=[freed]), "callbacks")
        raises(tutti.Error, lambda: tutti.train(None, progress=freed), "progress")


def test_what_is_refused():
    x, y = samples()
    example = torch.from_numpy(x[:8])
    for parts, call in ((("module",), lambda: tutti.from_torch(3, example)),
                        (("example",), lambda: tutti.from_torch(Net(), x)),
                        (("example",), lambda: tutti.from_torch(Net(), torch.tensor(3.0))),
                        (("example", "inputs"), lambda: tutti.from_torch(Net(), (example,) * 3)),
                        (("module", "torch.export"), lambda: tutti.from_torch(Two(), example)),
                        (("target",), lambda: tutti.from_torch(Net(), example, loss=max)),
                        (("loss", "MSELoss()"),
                         lambda: tutti.from_torch(Net(), example, loss=torch.nn.MSELoss)),
                        (("example", "batch"),
                         lambda: tutti.from_torch(torch.nn.Linear(5, 3), example[0])),
                        (("loss",), lambda: tutti.from_torch(Net(), example, loss=3))):
        raises(tutti.Error, call, *parts)
    one = tutti.from_torch(torch.nn.Sequential(torch.nn.Linear(5, 1), torch.nn.Sigmoid()), example,
                           loss=torch.nn.BCELoss())
    for parts, call in ((("y", "reshape(-1, 1)"), lambda: one.fit(x, y > 0)),
                        (("input", "[5], got [4]"), lambda: one.fit(x[:, :4], y[:, None] > 0)),
                        (("input", "floats", "astype"),
                         lambda: one.fit(abs(x).astype(int), y[:, None] > 0))):
        raises(tutti.Error, call, *parts)
    model = tutti.from_torch(Net(), example)
    raises(tutti.Error, lambda: model.to_torch(Net()), "fit")
    model.fit(x, y, epochs=1, progress=False)
    raises(tutti.Error, lambda: model.to_torch(Net(4)), "module", "fc2")
    raises(tutti.Error, lambda: model.to_torch(torch.nn.Linear(5, 3)), "module")
    raises(tutti.Error, lambda: model.to_torch("net"), "module")


def test_parameters_without_requires_grad():
    """They are frozen; PyTorch's users expect it."""
    torch.manual_seed(0)
    body = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 5))
    module = torch.nn.Sequential(body, torch.nn.Linear(5, 3))
    x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))
    for names in (["0.0.weight", "0.0.bias"], ["0.0.weight"],
                  ["0." + name for name, _ in body.named_parameters()]):
        for name, p in module.named_parameters():
            p.requires_grad = name not in names
        for loss, more in ((torch.nn.functional.cross_entropy, {}),
                           (lambda out, t: torch.nn.functional.cross_entropy(out, t),
                            {"target": y[:8]})):
            before = {n: v.clone() for n, v in module.state_dict().items()}
            model = tutti.from_torch(module, x[:8], loss=loss, **more)
            model.fit(x, y, epochs=2)
            model.to_torch(module)
            for name, value in module.state_dict().items():
                if bool((value == before[name]).all()) != (name in names):
                    raise AssertionError("%s with %s frozen" % (name, names))
    before = {n: v.clone() for n, v in module.state_dict().items()}
    tutti.from_torch(module, x[:8], overrides={"optimizer.freeze": ["1.*"]}).fit(x, y, epochs=2) \
        .to_torch(module)
    same = [bool((before[n] == v).all()) for n, v in module.state_dict().items()]
    if same != [False] * 4 + [True] * 2:
        raise AssertionError("overrides do not win: %s" % same)
    for p in module.parameters():
        p.requires_grad = False
    frozen = tutti.from_torch(module, x[:8])
    raises(tutti.Error, lambda: frozen.fit(x, y, epochs=1), "every parameter")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
