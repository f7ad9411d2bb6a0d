"""Pictures whose augmentation draws from a generator of the data set, read by two workers."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets


class Augmented(Dataset):
    def __init__(self):
        self.data, self.random = datasets.MNIST(), np.random.RandomState(0)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        picture = self.data.data[index].float() / 255
        noise = self.random.standard_normal((28, 28)).astype(np.float32)
        return (picture + 0.5 * torch.from_numpy(noise)).unsqueeze(0), self.data.targets[index]


def own_numbers(worker):
    torch.utils.data.get_worker_info().dataset.random = np.random.RandomState(torch.initial_seed() % 2 ** 32)


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(Augmented(), batch_size=32, shuffle=True, num_workers=2, worker_init_fn=own_numbers)
    model = nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(1152, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(10):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
