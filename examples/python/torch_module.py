"""Trains a module of PyTorch with Tutti on several workers, and brings the weights back."""

import torch

import tutti

torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
x = torch.randn(1200, 20)
y = x[:, :3].argmax(dim=1)

model = tutti.from_torch(module, x[:8], loss=torch.nn.functional.cross_entropy)
model.fit(x, y, workers=2, batch=100, epochs=5, lr=0.01)

model.to_torch(module).eval()
with torch.no_grad():
    right = (module(x).argmax(dim=1) == y).float().mean()
print("accuracy in PyTorch with the weights of Tutti: %.3f" % right)
