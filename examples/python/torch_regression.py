"""Trains a module of PyTorch, written by hand, to predict two numbers."""

import torch
from torch import nn

import tutti


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(6, 32), nn.Linear(6, 32), nn.Linear(32, 2)
        self.scale = nn.Parameter(torch.ones(32))

    def forward(self, x):
        return self.out(torch.tanh(self.a(x)) * torch.sigmoid(self.b(x)) * self.scale)


torch.manual_seed(0)
x = torch.randn(1000, 6)
y = torch.stack([x[:, 0] - 0.5 * x[:, 1], torch.sin(x[:, 2])], 1)

module = Gated()
model = tutti.from_torch(module, x[:8], loss=nn.functional.mse_loss, target=y[:8])
model.fit(x, y, workers=2, batch=50, epochs=15, lr=0.02)

model.to_torch(module).eval()
with torch.no_grad():
    error = (module(x) - y).pow(2).mean() / y.var()
print("explained variance: %.3f" % (1 - error))
