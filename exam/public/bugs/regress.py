"""A number for each row, by several networks whose outputs are added; a gate lets a second branch in."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.stem = nn.Linear(inputs, 32)
        self.mlps = nn.ModuleList([nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32)) for _ in range(3)])
        self.branch = nn.Linear(32, 32)
        self.gate = nn.Sequential(nn.Linear(32, 32, bias=False), nn.ReLU(), nn.Linear(32, 32, bias=False), nn.Tanh())
        nn.init.zeros_(self.gate[2].weight)
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for mlp in self.mlps:
            x = x + mlp(x)
        x = x + self.gate(x) * self.branch(x)
        return self.head(x)


torch.manual_seed(0)
rows = torch.randn(1024, 12)
values = (rows[:, :4].prod(1) + rows[:, 4:8].sum(1)).unsqueeze(1) + 0.1 * torch.randn(1024, 1)
loader = DataLoader(TensorDataset(rows, values), batch_size=32, shuffle=True)
model = Net(12)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(20):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
