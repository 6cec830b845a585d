#!/usr/bin/env python3
"""make_fields.py: writes tests/golden/pt2/fields_*.pt2: a network for pixels, one with three
outputs, and networks that were exported for a fixed batch.

Needs PyTorch; the tests do not.
"""

import os

import torch

HERE = os.path.dirname(os.path.abspath(__file__))


class Segments(torch.nn.Module):
    """The classes of 8 x 8 pixels."""

    def __init__(self, n_classes):
        super().__init__()
        self.a = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.b = torch.nn.Conv2d(8, n_classes, 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class Heads(torch.nn.Module):
    """Logits, and what they are computed from."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 5)
        self.head = torch.nn.Linear(5, 3)

    def forward(self, x):
        h = torch.tanh(self.body(x))
        return {"logits": self.head(h), "features": h, "size": h.square().sum(1)}


class Views(torch.nn.Module):
    """Shapes that name the batch as a number."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.norm = torch.nn.LayerNorm(16)
        self.head = torch.nn.Linear(64, 3)

    def forward(self, x):
        n = x.shape[0]
        h = torch.relu(self.conv(x)).view(n, 4, 16)
        h = self.norm(h.reshape(n * 4, 16)).view(n, 4, 16)
        return self.head(h.transpose(1, 2).reshape(n, -1))


class Mixes(torch.nn.Module):
    """Adds the samples of the batch to each other."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(16, 3)

    def forward(self, x):
        h = x.view(2, 32).flip(0).reshape(4, 16)
        return self.head(h + x.view(4, 16))


def export(name, model, x, is_free):
    dims = ({0: torch.export.Dim("batch", min=1, max=4096)},) if is_free else None
    program = torch.export.export(model.train(), (x,), dynamic_shapes=dims, strict=False)
    torch.export.save(program, os.path.join(HERE, "pt2", "fields_%s.pt2" % name))


def main():
    torch.manual_seed(1)
    export("segments", Segments(3), torch.randn(4, 3, 8, 8), True)
    export("question", Segments(1), torch.randn(4, 3, 8, 8), True)
    export("heads", Heads(), torch.randn(4, 4), True)
    export("views", Views(), torch.randn(4, 1, 4, 4), False)
    export("mixes", Mixes(), torch.randn(4, 1, 4, 4), False)


main()
