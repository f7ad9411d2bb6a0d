"""Data drawn instead of downloaded: graphs, ratings, points, masks, triplets of pictures, rows of pictures, characters,
clicks, voices, and files of interactions, of triples and of sentences."""

import os

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


class Characters(pictures.Drawn):
    """Pictures of forty classes with few examples of each, and their labels `y`."""

    classes, seed = [str(n) for n in range(40)], 8
    y = property(lambda self: self.targets.tolist())

    def __init__(self, mode="train", root=None):
        super().__init__(root, mode == "train", lambda picture: torch.from_numpy(np.array(picture)) / 255.0)

    def __getitem__(self, index):
        picture, label = super().__getitem__(index)
        return picture.reshape(1, self.side, self.side), label


def written(path, lines):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def interactions(path, users=300, items=120, each=20):
    """A file of users and what they chose, in order: most choices follow from the one before."""
    random = np.random.RandomState(9)
    after, lines = random.permutation(items), []
    for user in range(users):
        item = random.randint(items)
        for _ in range(each):
            lines.append(f"{user + 1} {item + 1}")
            item = after[item] if random.rand() < 0.8 else random.randint(items)
    written(path, lines)


def triples(folder, entities=200, relations=6, count=3000):
    """Files of triples, in which each relation leads from one group of entities to another, and of their names."""
    random = np.random.RandomState(10)
    leads, found = [random.permutation(20) for _ in range(relations)], set()
    while len(found) < count:
        head, relation = random.randint(entities), random.randint(relations)
        found.add((head, relation, leads[relation][head % 20] + 20 * random.randint(entities // 20)))
    lines = [f"e{head}\tr{relation}\te{tail}" for head, relation, tail in sorted(found)]
    random.shuffle(lines)
    for name, part in (("train", lines[200:]), ("valid", lines[:100]), ("test", lines[100:200])):
        written(os.path.join(folder, name + ".txt"), part)
    for name, letter, number in (("entities", "e", entities), ("relations", "r", relations)):
        written(os.path.join(folder, name + ".dict"), [f"{n}\t{letter}{n}" for n in range(number)])


def sentences(path, count=800, words=200, kind="plain"):
    """A file of sentences: each is about one of ten subjects, and has mostly words of that subject. Of the kind `halves`
    a sentence is two parts with a tab between, of the kind `tagged` each word has its subject behind it."""
    random = np.random.RandomState(11)
    lines = []
    for _ in range(count):
        subject = random.randint(10)
        own = random.randint(words // 10, size=12) * 10 + subject
        chosen = np.where(random.rand(12) < 0.8, own, random.randint(words, size=12))
        texts = [f"w{w}/T{w % 10}" if kind == "tagged" else f"w{w}" for w in chosen[:random.randint(6, 13)]]
        middle = len(texts) // 2
        lines.append("\t".join((" ".join(texts[:middle]), " ".join(texts[middle:]))) if kind == "halves"
                     else " ".join(texts))
    written(path, lines)


class Clicks(Dataset):
    """A user, an item and an hour, and whether the user took the item: most take what is of their own taste."""

    user_field_idx, item_field_idx = np.array((0,)), np.array((1,))

    def __init__(self, path=None, count=4000):
        random = np.random.RandomState(12)
        self.field_dims = np.array([200, 100, 24])
        taste, kind = random.randint(0, 4, 200), random.randint(0, 4, 100)
        self.items = np.stack([random.randint(0, size, count) for size in self.field_dims], 1)
        liked = taste[self.items[:, 0]] == kind[self.items[:, 1]]
        self.targets = (random.rand(count) < np.where(liked, 0.9, 0.2)).astype(np.float32)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index], self.targets[index]


class Cells(Shapes):
    """Grey pictures of one disc with a wide edge, the mask of the middle, and the weight of each pixel."""

    def __init__(self, count=240, edge=20):
        super().__init__(count)
        self.edge = edge

    def __getitem__(self, index):
        picture = np.pad(self.images[index].mean(0), self.edge + 2, "reflect")
        mask = np.pad(self.masks[index], 2)[None]
        return {"image": torch.from_numpy(picture)[None], "mask": torch.from_numpy(mask),
                "weight": torch.from_numpy(1 + mask.astype(np.float32))}


def mixtures(count, rows=4, length=800):
    """Batches of the sum of two voices, its length, and the voices: each is a low or a high tone with its overtone."""
    random, batches, time = np.random.RandomState(13), [], np.arange(length) / 8000
    for _ in range(count):
        tone = np.stack([random.uniform(150, 400, rows), random.uniform(900, 2500, rows)], 1)[..., None]
        voices = np.sin(2 * np.pi * tone * time) + 0.3 * np.sin(4 * np.pi * tone * time + 1)
        voices = torch.from_numpy((random.uniform(0.3, 1, (rows, 2, 1)) * voices).astype(np.float32))
        batches.append((voices.sum(1), torch.full((rows,), length), voices))
    return batches


def taught(model, loader, rounds=2, rate=0.1):
    """Teaches a model that another program saved after its own training."""
    model.eval()
    parameters = list(model.parameters())
    for inputs, labels in (batch for _ in range(rounds) for batch in loader):
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
                parameter -= rate * gradient
    return model
