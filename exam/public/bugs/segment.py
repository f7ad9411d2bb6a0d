"""The mask of a disc, its depth and its box, with a scaled loss and clipped gradients."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

from drawn import Shapes


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(),
                                  nn.Conv2d(16, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU())
        self.mask, self.depth = nn.Conv2d(16, 1, 1), nn.Conv2d(16, 1, 1)
        self.box = nn.Sequential(nn.AdaptiveAvgPool2d(6), nn.Flatten(), nn.Linear(16 * 36, 4))

    def forward(self, x):
        x = self.body(x)
        return self.mask(x), self.depth(x), self.box(x)


def corners(mask):
    rows, columns = mask.any(2).float(), mask.any(1).float()
    side = torch.arange(1.0, mask.shape[-1] + 1)
    ends = [(part * side).max(1).values / mask.shape[-1] for part in (rows, columns)]
    begins = [1 - (part * side.flip(0)).max(1).values / mask.shape[-1] for part in (rows, columns)]
    return torch.stack([begins[1], begins[0], ends[1], ends[0]], 1)


def iou_loss(box, target):
    least, most = torch.max(box[:, :2], target[:, :2]), torch.min(box[:, 2:], target[:, 2:])
    shared = (most - least).clamp(min=0).prod(1)
    areas = (box[:, 2:] - box[:, :2]).clamp(min=0).prod(1) + (target[:, 2:] - target[:, :2]).prod(1)
    iou = shared / (areas - shared)
    return -torch.log(iou.clamp(min=1e-2)).mean() + F.smooth_l1_loss(box, target)


torch.manual_seed(0)
loader = DataLoader(Shapes(), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cpu")
for epoch in range(10):
    for part in loader:
        image, mask = part["image"], part["mask"].float()
        depth = image.mean(1)
        found, far, box = model(image)
        loss = F.binary_cross_entropy_with_logits(found.squeeze(1), mask)
        loss = loss + F.smooth_l1_loss(far, depth.unsqueeze(1)) + 0.1 * iou_loss(box, corners(mask > 0))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
