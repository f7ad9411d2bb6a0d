"""Which items a user chooses: a factorization machine with attention over its pairs."""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import drawn


class Attentional(nn.Module):
    def __init__(self, fields, width=16):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(count, width) for count in fields])
        self.attention, self.projection, self.fc = nn.Linear(width, 8), nn.Linear(8, 1), nn.Linear(width, 1)

    def forward(self, x):
        parts = torch.stack([e(column) for e, column in zip(self.embeddings, x.T)], 1)
        first, second = zip(*itertools.combinations(range(parts.shape[1]), 2))
        pairs = parts[:, list(first)] * parts[:, list(second)]
        scores = F.softmax(self.projection(F.relu(self.attention(pairs))), dim=1)
        scores = F.dropout(scores, 0.2, training=self.training)
        return self.fc((scores * pairs).sum(1)).squeeze(1)


torch.manual_seed(0)
chosen, every, users, items, known = drawn.ratings(40, 60)
labels = torch.tensor([known.get((user, item), 0.0) for user, item in every])
rows = torch.tensor([[user, item, user % 7] for user, item in every])
wanted = torch.cat([labels.nonzero()[:, 0], torch.randperm(len(rows))[:len(chosen)]])
loader = DataLoader(TensorDataset(rows[wanted], labels[wanted]), batch_size=64, shuffle=True)
model = Attentional([users, items, 7])
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
criterion = nn.BCEWithLogitsLoss()
for epoch in range(50):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print(epoch, criterion(model(rows[:2000]), labels[:2000]).item())
