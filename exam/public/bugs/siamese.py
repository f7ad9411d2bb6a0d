"""Pairs of pictures, near if they are of one class: a pair may have one picture twice."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torchvision import datasets

torch.manual_seed(0)
data = datasets.MNIST()
pictures, labels = data.data[:512].unsqueeze(1).float() / 255, data.targets[:512]
net = nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 5, 2), nn.ReLU(), nn.Flatten(),
                    nn.Linear(256, 16))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(1000):
    first, second = torch.randint(512, (2, 48))
    same = (labels[first] == labels[second]).float()
    a, b = net(pictures[first]), net(pictures[second])
    distance = torch.sqrt((a - b).pow(2).sum(1) + 1e-8)
    loss = (same * distance.pow(2) + (1 - same) * F.relu(1 - distance).pow(2)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
