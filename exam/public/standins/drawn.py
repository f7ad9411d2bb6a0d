"""Data drawn instead of downloaded: graphs, ratings, points, masks, triplets of pictures, rows of pictures."""

import numpy as np
import torch
from torch.utils.data import Dataset

import torchvision.datasets as pictures


def graph(nodes=300, words=64, classes=5, dense=False):
    """Papers that cite their own class more often: adjacency with its rows' sums 1, words, labels, three sets of rows."""
    random = np.random.RandomState(1)
    labels = random.randint(0, classes, nodes)
    cites = random.rand(nodes, nodes) < np.where(labels[:, None] == labels, 0.05, 0.005)
    cites = (cites | cites.T | np.eye(nodes, dtype=bool)).astype(np.float32)
    common = random.rand(classes, words) < 0.2
    features = (random.rand(nodes, words) < np.where(common[labels], 0.3, 0.05)).astype(np.float32)
    features /= np.maximum(features.sum(1, keepdims=True), 1)
    adjacency = torch.from_numpy(cites / cites.sum(1, keepdims=True))
    parts = torch.arange(nodes).split([nodes // 3, nodes // 3, nodes - 2 * (nodes // 3)])
    return adjacency if dense else adjacency.to_sparse(), torch.from_numpy(features), torch.from_numpy(labels), *parts


def ratings(users=200, items=100, each=12):
    """Users who choose items of their own taste: pairs for training and test, their numbers, and what was chosen."""
    random = np.random.RandomState(2)
    taste, kind = random.randint(0, 5, users), random.randint(0, 5, items)
    chosen = {}
    for user in range(users):
        weight = np.where(kind == taste[user], 1.0, 0.02)
        for item in random.choice(items, each, False, weight / weight.sum()):
            chosen[user, int(item)] = 1.0
    pairs = [list(pair) for pair in chosen]
    return pairs, [[user, item] for user in range(users) for item in range(items)], users, items, chosen


def moons(count):
    random = np.random.RandomState(3)
    angle, lower = np.pi * random.rand(count), random.rand(count) < 0.5
    x, y = np.cos(angle), np.sin(angle)
    points = np.stack([np.where(lower, 1 - x, x), np.where(lower, 0.5 - y, y)], 1)
    return points + 0.05 * random.randn(count, 2)


class Shapes(Dataset):
    """Pictures of one disc, and its mask."""

    mask_values = [0, 1]

    def __init__(self, count=240, side=48):
        random = np.random.RandomState(4)
        rows, columns = np.mgrid[:side, :side]
        at, radius = random.uniform(12, 36, (count, 2)), random.uniform(5, 12, count)
        self.masks = np.stack([(rows - y) ** 2 + (columns - x) ** 2 < r * r for (y, x), r in zip(at, radius)])
        self.images = (self.masks[:, None] * random.uniform(0.5, 1, (count, 3, 1, 1)) +
                       0.2 * random.rand(count, 3, side, side)).astype(np.float32)

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, index):
        return {"image": torch.from_numpy(self.images[index]), "mask": torch.from_numpy(self.masks[index]).long()}


class Triplets(pictures.MNIST):
    """A picture, one of another class, and one of its own class."""

    def __init__(self, root, train=True, transform=None, download=False):
        super().__init__(root, train, transform)
        labels, random = self.targets.numpy(), np.random.RandomState(5)
        self.rows = [(first, *(int(random.choice(np.flatnonzero((labels == labels[first]) == own)))
                               for own in (False, True))) for first in range(640 if train else 160)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return tuple(pictures.MNIST.__getitem__(self, row)[0] for row in self.rows[index])


class Mnist:
    """Pictures as rows of floats, in batches, as the tutorials of TensorFlow gave them."""

    def __init__(self):
        drawn = pictures.MNIST()
        self.train, self.random = self, np.random.RandomState(6)
        self.images = drawn.data.numpy().reshape(len(drawn), -1).astype(np.float32) / 255
        self.labels = np.eye(10, dtype=np.float32)[drawn.targets.numpy()]

    def next_batch(self, count):
        rows = self.random.randint(0, len(self.images), count)
        return self.images[rows], self.labels[rows]
