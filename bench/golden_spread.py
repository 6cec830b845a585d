#!/usr/bin/env python3
"""golden_spread.py FOLDER NAME [--optimizer sgd|adamw] [--seeds N] [--tutti PROGRAM]

Says how far a correct f32 program may deviate from the f64 losses of one model of golden_models.py.
PyTorch trains the model N times in f32 and in f64; each time every element of the input is moved by
one unit in the last place of f32.  Prints the largest relative deviation of each f32 run from the
f64 run with the same input, sorted.  It needs torch.

With --tutti: Tutti trains the model too.  Then f64 runs search for elements at a kink (ReLU, ReLU6,
leaky ReLU, max_pool1d with windows of two) that Tutti decided the other way: in these runs the
gradient of one more element takes the other side, for the elements nearest to a kink in the five
steps before the first deviation above 1e-6.  A line for each that brings f64 nearer to Tutti.
"""

import argparse
import os
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
import numpy
import torch

import golden_models

KINKS = {"relu": (0,), "hardtanh": (0, 6), "relu6": (0, 6), "leaky_relu": (0,)}
N_NEAREST, FARTHEST = 6, 2.5e-6  # elements that the search tries in each step


class Graph(torch.fx.Interpreter):
    """Runs a graph; collects distances to kinks; takes the other side for elements in flipped."""

    def __init__(self, module, near=None, flipped=()):
        super().__init__(module)
        self.near, self.flipped, self.node = near, flipped, None

    def run_node(self, n):
        self.node = n.name
        return super().run_node(n)

    def note(self, distance):
        if self.near is None:
            return
        values, where = distance.detach().flatten().topk(N_NEAREST, largest=False)
        self.near += [(float(v), self.node, int(i)) for v, i in zip(values, where)]

    def call_function(self, target, args, kwargs):
        name = str(getattr(target, "_opname", "")).rstrip("_")
        if name in KINKS:
            return self.activation(name, args)
        if name == "max_pool1d" and list(args[1]) == [2]:
            return self.pool(args[0])
        return super().call_function(target, args, kwargs)

    def mine(self):
        return [i for n, i in self.flipped if n == self.node]

    def activation(self, name, args):
        x, kinks = args[0], KINKS[name]
        slope = (args[1] if len(args) > 1 else 0.01) if name == "leaky_relu" else 0.0
        high = kinks[1] if len(kinks) > 1 else float("inf")
        for kink in kinks:
            self.note((x.double() - kink).abs())
        value = x.clamp(max=high)
        value = torch.where(value > 0, value, value * slope)
        factor = torch.where((x > 0) & (x < high), 1.0, slope).to(x.dtype).flatten()
        for i in self.mine():
            factor[i] = slope if factor[i] == 1 else 1.0
        return value.detach() + (x - x.detach()) * factor.view_as(x).detach()

    def pool(self, x):
        pairs = x.unflatten(-1, (-1, 2))
        # Two elements that a ReLU made equal to zero get no gradient in any case.
        gap = (pairs[..., 0] - pairs[..., 1]).abs().detach().double()
        self.note(torch.where(pairs.detach().amax(-1) > 0, gap, torch.ones_like(gap)))
        best = pairs.detach().argmax(-1).flatten()
        for i in self.mine():
            best[i] = 1 - best[i]
        return pairs.gather(-1, best.view(*pairs.shape[:-1], 1)).squeeze(-1)


class Model:
    def __init__(self, folder, optimizer):
        self.path, self.optimizer = os.path.join(folder, "model.pt2"), optimizer
        self.x = torch.from_numpy(numpy.load(os.path.join(folder, "x.npy")))
        self.y = torch.from_numpy(numpy.load(os.path.join(folder, "y.npy"))).long().flatten()

    def train(self, dtype, x=None, flipped=None, near=None):
        """The losses before each of ten steps; near: gets the nearest elements of each step."""
        module = torch.export.load(self.path).module().to(dtype)
        x = (self.x if x is None else x).to(dtype)
        make = {"sgd": lambda p: torch.optim.SGD(p, lr=0.05),
                "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.01)}
        optimizer, losses = make[self.optimizer](list(module.parameters())), []
        for step in range(10):
            found = None if near is None else []
            optimizer.zero_grad()
            out = Graph(module, found, (flipped or {}).get(step, ())).run(x)
            loss = torch.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), self.y)
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
            if near is not None:
                near.append(sorted(found)[:N_NEAREST])
        return losses

    def moved(self, seed):
        """The input, each element the next larger or smaller f32."""
        x, draw = self.x.numpy(), numpy.random.default_rng(seed)
        to = numpy.where(draw.integers(0, 2, x.shape) == 0, -numpy.inf, numpy.inf)
        return torch.from_numpy(numpy.nextafter(x, to.astype("float32")))


def deviations(got, want):
    return [abs(a - b) / abs(b) for a, b in zip(got, want)]


def text(values):
    return " ".join("%.1e" % v for v in values)


def first_above(values, limit=1e-6):
    return next((i for i, v in enumerate(values) if v > limit), len(values))


def explain(model, own):
    flipped, near = {}, []
    now = deviations(own, model.train(torch.float64, near=near))
    print("Tutti from f64, by step:", text(now), flush=True)
    while first_above(now) < len(now):
        best, first = None, first_above(now)
        for step in range(max(0, first - 5), first):
            for distance, node, i in near[step]:
                if distance > FARTHEST or (node, i) in flipped.get(step, ()):
                    continue
                trial = dict(flipped)
                trial[step] = tuple(flipped.get(step, ())) + ((node, i),)
                then = deviations(own, model.train(torch.float64, flipped=trial))
                key = (first_above(then), -then[first])
                if best is None or key > best[0]:
                    best = key, trial, then, (step, node, i, distance)
        if best is None or best[0][0] <= first:
            print("no element nearer than %.1e to a kink explains the rest" % FARTHEST)
            return
        flipped, now, near = best[1], best[2], []
        model.train(torch.float64, flipped=flipped, near=near)
        print("step %d, %s, element %d, %.1e from its kink; then: %s" % (*best[3], text(now)),
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("name")
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tutti")
    args = parser.parse_args()
    torch.set_num_threads(1)
    folder = os.path.join(args.folder, args.name)
    model = Model(folder, args.optimizer)
    largest = [max(deviations(model.train(torch.float32, model.moved(s)),
                              model.train(torch.float64, model.moved(s))))
               for s in range(args.seeds)]
    print("PyTorch's f32 from f64, %d inputs: %s" % (args.seeds, text(sorted(largest))), flush=True)
    if args.tutti:
        with tempfile.TemporaryDirectory() as work:
            case = golden_models.Case(os.path.abspath(args.tutti), folder,
                                      os.path.join(work, "data"))
            run = case.train("model.pt2", "run", 10, *golden_models.OPTIMIZERS[args.optimizer])
            explain(model, [e["loss"] for e in golden_models.events(run, "step")])
    return 0


if __name__ == "__main__":
    sys.exit(main())
