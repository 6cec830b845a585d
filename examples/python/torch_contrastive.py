"""Trains two towers to find the caption of an image, as CLIP does: each sample is compared with all
others of the batch, on whatever worker they are."""

import torch
from torch import nn

import tutti


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
        self.words = nn.Embedding(16, 16)
        self.log_scale = nn.Parameter(torch.tensor(2.5))

    def forward(self, image, words):
        return self.image(image), self.words(words).mean(1), self.log_scale.exp()


torch.manual_seed(0)
row, column = torch.randint(0, 8, (2, 600))
image = 0.2 * torch.randn(600, 1, 8, 8)
image[torch.arange(600), 0, row, column] += 2             # a bright pixel,
words = torch.stack([row, 8 + column], 1)                 # and the words for its place

module = Towers()
model = tutti.from_torch(module, (image[:8], words[:8]), loss="infonce")
model.fit((image[:500], words[:500]), workers=2, batch=100, epochs=60, lr=0.01)

model.to_torch(module).eval()
with torch.no_grad():
    places = torch.arange(64)
    a, b, _ = module(image[500:], torch.stack([places // 8, 8 + places % 8], 1))
    found = (nn.functional.normalize(a) @ nn.functional.normalize(b).T).argmax(1)
right = (found == 8 * row[500:] + column[500:]).float().mean()
print("new images with the right words: %.3f" % right)
