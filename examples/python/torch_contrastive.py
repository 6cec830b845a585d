"""Trains two towers to find the sound that belongs to an image, as CLIP does for texts: each sample
is compared with all others of the batch, on whatever worker they are."""

import torch
from torch import nn

import tutti


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
        self.sound = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16))
        self.log_scale = nn.Parameter(torch.tensor(2.5))

    def forward(self, image, sound):
        return self.image(image), self.sound(sound), self.log_scale.exp()


torch.manual_seed(0)
scene = torch.randn(1000, 6)                              # what both show, each in its own way
image = (scene @ torch.randn(6, 64)).view(-1, 1, 8, 8) + 0.1 * torch.randn(1000, 1, 8, 8)
sound = torch.tanh(scene @ torch.randn(6, 20)) + 0.1 * torch.randn(1000, 20)

module = Towers()
model = tutti.from_torch(module, (image[:8], sound[:8]), loss="infonce")
model.fit((image[:900], sound[:900]), workers=2, batch=100, epochs=30, lr=0.005)

model.to_torch(module).eval()
with torch.no_grad():
    a, b, _ = module(image[900:], sound[900:])
    found = (nn.functional.normalize(a) @ nn.functional.normalize(b).T).argmax(1)
print("new images whose sound is found among 100: %.3f" %
      (found == torch.arange(100)).float().mean())
