#!/usr/bin/env python3
"""import_zoo.py [NAME]... [--form pt2|dynamo|script]... [--list] [--field] [--group NAME]...
              [--package FOLDER] [--smooth] [--nudge N] [--round N] [--train-only] [--steps N]

Exports small models of many architectures with torch.export, in training and in evaluation mode,
imports them, and compares outputs, gradients and buffers with PyTorch's.  --field: only the 56
graphs of torchvision and transformers that the operator table was made from.  It needs torch,
torchvision and transformers, and the Python package of a build (build/python); models of packages
that are not installed (timm) are absent.

A line for each model and form: ok with the largest relative deviations of outputs and gradients
from PyTorch's f32, beside those of PyTorch's f32 from f64; refused with the message; noisy if
PyTorch's f32 and f64 differ too much to say; or WRONG.
Behind a batch norm of few elements rounding moves some across the kink of a ReLU, which changes
gradients by more than the limit on either side: --smooth has SiLU in place of ReLU and ReLU6.
--nudge N asks the same of any model: PyTorch computes it N times in f64 with other parameters, each
moved by about a millionth of itself, and what that changes is no error of Tutti's.
--round N: PyTorch computes it N times in f64 with the result of each layer, and the gradient of
that, moved by random numbers of the size of a rounding of f32 (2^-24).  Another program whose f32 is
right may deviate as far.
--steps N: what is compared follows N - 1 steps of SGD.
"""

import argparse
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
HERE = os.path.dirname(os.path.abspath(__file__))
OUTPUT_LIMIT, GRADIENT_LIMIT = 1e-5, 1e-4
RATE = 1e-4  # of the steps before the one that is compared
NOISE = 0.05  # where PyTorch's f32 is that far from f64, the comparison says nothing


def flat_tensors(value):
    import torch
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def without_dropout(model):
    """PyTorch and Tutti draw other masks, so dropout is compared with nothing dropped."""
    for module in model.modules():
        if "Dropout" in type(module).__name__ and hasattr(module, "p"):
            module.p = 0.0
        for name in ("dropout", "dropout_p", "attention_dropout", "dropout_prob", "drop_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
        if type(module).__name__ == "StochasticDepth":
            module.p = 0.0


def smooth(model):
    import torch
    torch.relu = torch.nn.functional.relu = lambda x, inplace=False: torch.nn.functional.silu(x)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, (torch.nn.ReLU, torch.nn.ReLU6)):
                setattr(module, name, torch.nn.SiLU())


def disturb(model):
    """Weights away from zeros, ones and equal rows, under which errors would not show."""
    import torch
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.02)
        for name, b in model.named_buffers():
            if name.endswith("running_mean"):
                b.add_(torch.randn_like(b) * 0.1)
            elif name.endswith("running_var"):
                b.mul_(torch.rand_like(b) + 0.5)


def join_outputs(model, inputs):
    """A loss of the caller sees one output, so several become one: for each sample all elements."""
    import functools

    import torch
    kind = type(model)
    with torch.no_grad():
        outputs = flat_tensors(model(**inputs))
    n = next(iter(inputs.values())).shape[:1]
    if len(outputs) < 2 or any(t.shape[:1] != n or not t.is_floating_point() for t in outputs):
        return

    @functools.wraps(kind.forward)
    def forward(self, *args, **named):
        found = flat_tensors(kind.forward(self, *args, **named))
        return torch.cat([t.flatten(1) if t.dim() > 1 else t[:, None] for t in found], 1)

    model.__class__ = type(kind.__name__, (kind,), {"forward": forward})


# Modules that compute something else in training than their layers say.
BY_MODE = ("odd_buffer_update", "odd_spectral_norm", "odd_instance_stats", "googlenet",
           "inception_v3", "phimoe", "groupvit", "own_gan_critic", "own_spectral_mlp",
           "own_old_spectral_mlp", "own_centered", "odd_ema_norm",
           "block_evonormb0", "block_evonormb1", "block_evonormb2")


def nudged(model, draw):
    """A copy with each parameter moved by about a millionth of itself."""
    import copy

    import torch
    model = copy.deepcopy(model)
    draw = torch.Generator().manual_seed(draw)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1 + 1e-6 * torch.randn(p.shape, generator=draw))
    return model


def rounded(model, draw):
    """A copy of which each layer rounds its result, and the gradient of that, about as f32 does."""
    import copy

    import torch
    draw = torch.Generator().manual_seed(draw)

    def add_error(x):  # of a sum, relative to its terms: an element near 0 has it as others do
        size = (x * x + (x * x).mean()).sqrt()
        return x + 2.0 ** -24 * size * torch.randn(x.shape, generator=draw, dtype=x.dtype)

    class Rounding(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return add_error(x)

        @staticmethod
        def backward(_, dy):
            return add_error(dy)

    def hook(_, __, output):
        if isinstance(output, torch.Tensor) and output.dtype == torch.float64:
            return Rounding.apply(output)
        return None

    model = copy.deepcopy(model)
    for module in model.modules():
        if not list(module.children()):
            module.register_forward_hook(hook)
    return model


def reference(model, inputs, double, steps=1):
    """Outputs and gradients of training mode, buffers after it, and outputs of evaluation."""
    import copy

    import torch
    model = copy.deepcopy(model)
    inputs = {k: v.clone() for k, v in inputs.items()}
    if double:
        model = model.double()
        inputs = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    names = list(named)
    for step in range(steps):
        if step == steps - 1:
            model.eval()
            with torch.no_grad():
                evaluated = [t.double().numpy() for t in flat_tensors(model(**inputs))]
        model.train()
        outputs = flat_tensors(model(**inputs))
        weights = output_weights(outputs)
        loss = sum((t * w.to(t.dtype)).sum() for t, w in zip(outputs, weights) if w is not None)
        gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        with torch.no_grad():
            for p, g in zip(named.values(), gradients):
                if g is not None and step < steps - 1:
                    p.sub_(RATE * g)
    return {"weights": [None if w is None else w.numpy() for w in weights],
            "train": [t.detach().double().numpy() for t in outputs], "eval": evaluated,
            "grads": {n: None if g is None else g.double().numpy()
                      for n, g in zip(names, gradients)},
            "buffers": {n: b.double().numpy().copy() for n, b in model.named_buffers()}}


def output_weights(outputs):
    """The loss is the sum of all outputs with fixed random weights."""
    import torch
    draw = torch.Generator().manual_seed(7)
    if all(t.dim() == 0 for t in outputs):  # a loss of the model's own
        return [torch.ones((), dtype=torch.float64)] + [None] * (len(outputs) - 1)
    return [torch.randn(t.shape, generator=draw, dtype=torch.float64)
            if t.is_floating_point() and t.requires_grad else None for t in outputs]


def deviation(got, want):
    import numpy
    if got.shape != want.shape:
        raise AssertionError("shape %s instead of %s" % (list(got.shape), list(want.shape)))
    if not want.size:
        return 0.0
    got = got.astype("float64")
    same = (got == want) | (numpy.isnan(got) & numpy.isnan(want))
    if same.all():
        return 0.0
    finite = numpy.isfinite(want)
    if not (numpy.isfinite(got) == finite).all() or not same[~finite].all():
        return float("inf")
    want, got = want[finite], got[finite]
    return float(numpy.abs(got - want).max() / max(numpy.abs(want).max(), 1e-6))


def restore_buffers(model, path):
    """Tracing in training mode moves running statistics, and the file has them as they are then."""
    import onnx
    buffers, file = dict(model.named_buffers()), onnx.load(path)
    for tensor in file.graph.initializer:
        if tensor.name in buffers:
            values = buffers[tensor.name].numpy()
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(file, path)


def export(model, inputs, path, form, training):
    """Writes the file: with a dynamic batch if PyTorch can.  Whether it is dynamic."""
    import copy

    import torch
    model.train(training)
    batch = torch.export.Dim("batch", min=1, max=4096)
    first = next(iter(inputs.values())).shape[0] if next(iter(inputs.values())).dim() else 0
    shapes = {k: {0: batch} if v.dim() and v.shape[0] == first else {} for k, v in inputs.items()}
    problem = None
    for dynamic in (shapes, None):
        try:
            if form == "script":
                names = list(inputs)
                with torch.no_grad():
                    torch.onnx.export(
                        copy.deepcopy(model), tuple(inputs.values()), path, dynamo=False,
                        input_names=names,
                        opset_version=18, do_constant_folding=not training,
                        training=torch.onnx.TrainingMode.TRAINING if training
                        else torch.onnx.TrainingMode.EVAL,
                        dynamic_axes={k: {0: "batch"} for k in names} if dynamic else None)
                restore_buffers(model, path)
                return bool(dynamic)
            program = torch.export.export(model, (), kwargs=inputs, strict=False,
                                          dynamic_shapes=dynamic)
            if form == "dynamo":
                torch.onnx.export(program, (), path, dynamo=True, optimize=not training,
                                  verbose=False)
            else:
                torch.export.save(program, path)
            return bool(dynamic)
        except Exception as e:  # the next way may work
            problem = problem or e
    raise RuntimeError("PyTorch cannot export it: %s" %
                       str(problem).strip().splitlines()[0][:150]) from problem


def own_loss(tutti, job, kinds, arrays, steps):
    """The same of a model that returns its loss and nothing else."""
    import numpy
    job = {k: v for k, v in job.items() if k != "model.loss"}
    with tutti.session(job, inputs=kinds, workers=1) as s:
        for _ in range(steps - 1):
            s.step(**arrays)
        value = s.compute_gradients(**arrays)
        grads = {n: numpy.array(s.gradients[n]) for n in s.gradients}
    return {"train": [numpy.array(float(value))], "grads": grads, "buffers": {}}


def imported(tutti, path, made, training=True, steps=1):
    """Outputs, gradients and buffers of Tutti."""
    import numpy
    arrays = {k: a.astype("float32" if a.dtype.kind == "f" else "int32")
              for k, a in made["inputs"].items()}
    rows = max(a.shape[0] if a.ndim else 1 for a in arrays.values())
    kinds = {k: (a.shape[1:], str(a.dtype)) for k, a in arrays.items()}
    job = {"model.file": path, "model.loss": "none", "train.batch": rows, "parallel.shards": 1,
           "optimizer.name": "sgd", "optimizer.lr": RATE if steps > 1 else 1e-30,
           "optimizer.momentum": 0,
           "optimizer.weight_decay": 0, "schedule.name": "constant", "schedule.warmup_steps": 0}
    seen = {}

    def loss(outputs, _):
        seen.update(outputs)
        total, grads = 0.0, {}
        for w, (name, value) in zip(made["f32"]["weights"], outputs.items()):
            if w is not None:
                total += float((value.astype("float64") * w).sum())
                grads[name] = w.astype("float32")
        return total, grads

    if all(t.ndim == 0 for t in made["f32"]["train"]):
        return own_loss(tutti, job, kinds, arrays, steps)
    with tutti.session(job, inputs=kinds, workers=1, loss=loss) as s:
        for _ in range(steps - 1 if training else 0):
            s.step(**arrays)
        evaluated = s.forward(**arrays)
        evaluated = list(evaluated.values()) if isinstance(evaluated, dict) else [evaluated]
        if not training:
            return {"eval": evaluated}
        s.compute_gradients(**arrays)
        grads = {n: numpy.array(s.gradients[n]) for n in s.gradients}
        s.step(**arrays)
        buffers = {n: numpy.array(s.parameters[n]) for n in s.parameters if n not in grads}
    return {"train": list(seen.values()), "eval": evaluated, "grads": grads, "buffers": buffers}


def compare(got, f32, f64, names, moved):
    """The largest deviations from PyTorch's f32, those of PyTorch's f32 from f64, errors, and the
    largest deviations of moved from f64: results of nudged parameters or rounded layers."""
    errors, own, theirs, far = [], *({"out": 0.0, "grad": 0.0} for _ in range(3))

    def check(kind, limit, what, x, y, z, others):
        d = min(deviation(x, y), deviation(x, z))
        t = deviation(y, z)
        own[kind], theirs[kind] = max(own[kind], d), max(theirs[kind], t)
        far[kind] = max([far[kind]] + [deviation(other, z) for other in others])
        t = max([t] + [deviation(other, z) for other in others])
        if not d <= max(limit, 10 * t):
            errors.append("%s deviates by %.1e (PyTorch's f32: %.1e)" % (what, d, t))

    for kind in ("train", "eval"):
        if kind not in got:
            continue
        if len(got[kind]) != len(f32[kind]):
            errors.append("%d outputs instead of %d" % (len(got[kind]), len(f32[kind])))
            continue
        for i, (x, y, z) in enumerate(zip(got[kind], f32[kind], f64[kind])):
            check("out", OUTPUT_LIMIT, "%s output %d" % (kind, i), x, y, z,
                  [m[kind][i] for m in moved])
    if "grads" not in got:
        return own, theirs, errors, far
    scale = max([abs(g).max() for g in f32["grads"].values() if g is not None and g.size] or [0])
    for name, y in f32["grads"].items():
        found = [n for n in (names or {name: [name]}).get(name, [name]) if n in got["grads"]]
        if not found:
            if names and y is not None and abs(y).max() > 1e-7 * scale:
                errors.append("no gradient of " + name)
            continue
        x, z = got["grads"][found[0]], f64["grads"][name]
        if not x.size:
            continue
        if y is None:
            if abs(x).max() > 0:
                errors.append("%s has a gradient" % name)
        elif max(abs(y).max(), abs(z).max(), abs(x).max()) > 1e-6 * scale:
            check("grad", GRADIENT_LIMIT, "gradient of " + name, x, y, z,
                  [m["grads"][name] for m in moved])
    for name, x in got["buffers"].items():
        if name in f32["buffers"] and f32["buffers"][name].shape == x.shape:
            check("out", OUTPUT_LIMIT, "buffer " + name, x, f32["buffers"][name],
                  f64["buffers"][name], [m["buffers"][name] for m in moved])
    return own, theirs, errors, far


def make_case(name, form, folder, options):
    """What PyTorch says of one model, and its files in the folder: made once."""
    path = os.path.join(folder, "%s-%s.pickle" % (name, form))
    if os.path.exists(path):
        with open(path, "rb") as file:
            return pickle.load(file)
    import torch
    from import_zoo_models import CASES
    torch.manual_seed(0)
    made = {"files": {}}
    try:
        model, inputs = CASES[name]()
    except Exception as e:
        return {"absent": str(e).strip().splitlines()[0][:200] if str(e) else repr(e)}
    without_dropout(model)
    if options.smooth:
        smooth(model)
    disturb(model)
    join_outputs(model.eval(), inputs)
    made["inputs"] = {k: v.numpy() for k, v in inputs.items()}
    made["f32"] = reference(model, inputs, False, options.steps)
    try:
        made["f64"] = reference(model, inputs, True, options.steps)
    except (RuntimeError, TypeError):
        made["f64"] = made["f32"]  # a module that computes with f32 by itself
    made["nudged"] = [reference(nudged(model, i), inputs, True) for i in range(options.nudge)]
    made["nudged"] += [reference(rounded(model, i), inputs, True) for i in range(options.round)]
    names = {}
    for n, p in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), []).append(n)
    made["names"] = {group[0]: group for group in names.values()}
    for training in (True,) if options.train_only else (True, False):
        mode = "train" if training else "eval"
        file_ = os.path.join(folder, "%s-%s-%s.%s" % (name, form, mode,
                                                     "pt2" if form == "pt2" else "onnx"))
        try:
            made["files"][mode] = (file_, export(model, inputs, file_, form, training), None)
        except Exception as e:
            made["files"][mode] = (None, False, str(e))
    with open(path, "wb") as file:
        pickle.dump(made, file)
    return made


def run_case(name, form, package, folder, options):
    """(verdict, text) of one model."""
    made = make_case(name, form, folder, options)
    if "absent" in made:
        return "absent", made["absent"]
    sys.path.insert(0, package)
    import tutti
    texts, verdict = [], "ok"
    for mode, (path, is_dynamic, problem) in made["files"].items():
        if problem:
            texts.append("%s: %s" % (mode, problem))
            verdict = "unexported" if verdict == "ok" else verdict
            continue
        try:
            # An ONNX file that was exported for inference has lost the training.
            trains = mode == "train" or (form == "pt2" and name not in BY_MODE)
            got = imported(tutti, path, made, trains, options.steps)
        except tutti.Error as e:
            texts.append("%s: %s" % (mode, " ".join(str(e).split()).replace(path, "FILE")))
            verdict = "refused" if verdict != "WRONG" else verdict
            continue
        if mode == "train" and name in BY_MODE:
            got.pop("eval")
        own, theirs, errors, far = compare(got, made["f32"], made["f64"], made["names"] if form !=
                                           "script" else None, made["nudged"])
        mode += "" if is_dynamic else " (static)"
        if not errors and max(theirs.values()) > NOISE:
            texts.append("%s: PyTorch's f32 deviates from f64 by %.0e" % (mode, max(
                theirs.values())))
            verdict = "noisy" if verdict == "ok" else verdict
            continue
        if errors:
            texts.append("%s: %d: %s" % (mode, len(errors), "; ".join(errors[:3])))
            verdict = "WRONG"
        else:
            texts.append("%s out %.0e (%.0e) grad %.0e (%.0e)" %
                         (mode, own["out"], theirs["out"], own["grad"], theirs["grad"]))
        if made["nudged"]:
            texts.append("moved by out %.0e grad %.0e" % (far["out"], far["grad"]))
    return verdict, "  ".join(texts)


def forked(name, form, package, folder, loud, seconds, options):
    """The same in a process of its own, so that a crash or too much memory ends one model."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        import resource
        resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        if not loud:
            os.dup2(quiet, 2)
        signal.alarm(seconds)
        try:
            result = run_case(name, form, package, folder, options)
        except BaseException as e:
            traceback.print_exc()
            result = ("BROKEN", "%s: %s" % (type(e).__name__, str(e)[:200]))
        os.write(writing, json.dumps(result).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        text = file.read()
    status = os.waitpid(child, 0)[1]
    if text:
        return tuple(json.loads(text.decode()))
    return "BROKEN", "ended by signal %d" % (status & 127)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--form", action="append", choices=("pt2", "dynamo", "script"))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--field", action="store_true")
    parser.add_argument("--more", action="store_true", help="only models that are not among them")
    parser.add_argument("--group", action="append", help="only the models of a group of "
                        "import_zoo_more.py: timm, text, vision, audio, forecast, recommend, graph")
    parser.add_argument("--keep", help="a folder that keeps exported models and PyTorch's results")
    parser.add_argument("--smooth", action="store_true", help="SiLU in place of ReLU")
    parser.add_argument("--train-only", action="store_true", help="exports no evaluation mode")
    parser.add_argument("--nudge", type=int, default=0, metavar="N", help="compares with PyTorch's "
                        "results of N sets of parameters that are a millionth away")
    parser.add_argument("--round", type=int, default=0, metavar="N", help="compares with PyTorch's "
                        "f64 results of N times with random errors of f32's size in each layer")
    parser.add_argument("--steps", type=int, default=1, metavar="N", help="compares step N of SGD, "
                        "with N - 1 before it; implies --train-only")
    parser.add_argument("--loud", action="store_true", help="shows what PyTorch and Tutti print")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--package", default=os.path.join(HERE, "..", "build", "python"))
    args = parser.parse_args()
    args.train_only |= args.steps > 1  # a file that was exported for inference may not train
    sys.path.insert(0, HERE)
    from import_zoo_models import CASES, FIELD, GROUPS
    unknown = [g for g in args.group or [] if g not in GROUPS]
    if unknown:
        parser.error("there is no group '%s'; there are %s" % (unknown[0], ", ".join(GROUPS)))
    names = args.names or ([n for g in args.group for n in GROUPS[g]] if args.group else
                           list(FIELD) if args.field else
                           [n for n in CASES if n not in FIELD] if args.more else list(CASES))
    if args.list:
        print("\n".join(names))
        return 0
    with tempfile.TemporaryDirectory() as work:
        return run_all(args, names, args.keep or work)


def run_all(args, names, folder):
    forms, counts = args.form or ["pt2"], {}
    made = [os.path.exists(os.path.join(folder, "%s-%s.pickle" % (n, f)))
            for n in names for f in forms]
    if not all(made):  # load once what every model needs
        import torch
        import torchvision  # noqa: F401
        import transformers  # noqa: F401
        torch.set_num_threads(1)
        torch.export.export(torch.nn.Linear(1, 1), (torch.zeros(1, 1),), strict=False)
    for form in forms:
        for name in names:
            began = time.time()
            verdict, text = forked(name, form, args.package, folder, args.loud,
                                   args.seconds, args)
            counts.setdefault(form, {}).setdefault(verdict, []).append(name)
            print("%-10s %-6s %-22s %s  [%.0f s]" % (verdict, form, name, text,
                                                    time.time() - began), flush=True)
    for form, found in counts.items():
        print(form + ": " + ", ".join("%d %s" % (len(v), k) for k, v in sorted(found.items())))
    return 1 if any("WRONG" in f or "BROKEN" in f for f in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
