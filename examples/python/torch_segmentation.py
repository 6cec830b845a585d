"""Trains a small U-Net, a module of PyTorch, to find the bright squares in images."""

import torch
from torch import nn

import tutti


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.deep = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        fine = self.down(x)
        return self.out(torch.cat([fine, self.up(self.deep(fine))], 1))


torch.manual_seed(0)
x, y = 0.3 * torch.randn(240, 1, 16, 16), torch.zeros(240, 16, 16, dtype=torch.int64)
for i in range(240):
    row, column = torch.randint(0, 10, (2,)).tolist()
    x[i, 0, row:row + 6, column:column + 6] += 1
    y[i, row:row + 6, column:column + 6] = 1

module = UNet()
model = tutti.from_torch(module, x[:8], target=y[:8],
                         loss=lambda output, target: nn.functional.cross_entropy(output, target))
model.fit(x, y, workers=2, batch=24, epochs=5, lr=0.01)

model.to_torch(module).eval()
with torch.no_grad():
    found = module(x).argmax(1)
print("mean IoU: %.3f" % ((found & y).sum() / (found | y).sum()))
