"""Sequences of rows of pictures: a recurrent network, attention over time, hidden layers, groups of parameters."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.LSTM(28, 32, batch_first=True)
        self.score = nn.Linear(32, 1)
        self.softmax = nn.Softmax(dim=1)
        self.hiddens = nn.ModuleList([nn.Linear(32, 32) for _ in range(2)])
        self.fc = nn.Linear(32, 10)

    def forward(self, rows):
        states, _ = self.encoder(rows)
        weights = self.softmax(self.score(states).squeeze(-1))
        x = (weights.unsqueeze(-1) * states).sum(1)
        for hidden in self.hiddens:
            x = F.relu(hidden(x))
        return self.fc(x)


torch.manual_seed(0)
loader = DataLoader(datasets.MNIST("data", transform=transforms.ToTensor()), batch_size=32, shuffle=True)
model = Net()
groups = []
groups.append({"params": [*model.encoder.parameters(), *model.score.parameters()], "lr": 3e-3})
groups.append({"params": model.hiddens.parameters(), "lr": 3e-3})
groups.append({"params": model.fc.parameters(), "lr": 3e-3})
optimizer = torch.optim.Adam(groups)
for epoch in range(10):
    for pictures, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pictures.squeeze(1)), labels)
        loss.backward()
        optimizer.step()
