"""Trains a model of torchvision to tell three kinds of images apart: stripes across, stripes down,
and a bright half."""

import torch
import torchvision

import tutti

torch.manual_seed(0)
kind = torch.arange(240) % 3
x = 0.5 * torch.randn(240, 3, 32, 32)
x[kind == 0, :, ::2, :] += 1
x[kind == 1, :, :, ::2] += 1
x[kind == 2, :, :16, :] += 1

module = torchvision.models.resnet18(num_classes=3)
model = tutti.from_torch(module, x[:8], loss=torch.nn.functional.cross_entropy)
model.fit(x[:180], kind[:180], workers=2, batch=20, epochs=4, lr=0.001)

model.to_torch(module).eval()
with torch.no_grad():
    right = (module(x[180:]).argmax(1) == kind[180:]).float().mean()
print("accuracy on new images: %.3f" % right)
