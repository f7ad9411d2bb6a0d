"""Tasks that the programs share."""

import torch
from torch import nn


def blobs(classes=4, size=10, count=1200, spread=1.0):
    """Points about the centers of classes: (count, size), (count)."""
    draw = torch.Generator().manual_seed(0)
    centers = 2.0 * torch.randn(classes, size, generator=draw)
    y = torch.arange(count) % classes
    return centers[y] + spread * torch.randn(count, size, generator=draw), y


def curve(size=8, count=1200, noise=0.1):
    """A smooth function of a few numbers: (count, size), (count, 1)."""
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(count, size, generator=draw)
    y = torch.sin(x @ torch.randn(size, 1, generator=draw)) + 0.5 * x[:, :1]
    return x, y + noise * torch.randn(count, 1, generator=draw)


def words(length=16, count=1500, vocabulary=24):
    """Sequences in which a word follows from the two before, mostly: (count, length)."""
    draw = torch.Generator().manual_seed(2)
    x = torch.randint(0, vocabulary, (count, length), generator=draw)
    for i in range(2, length):
        next_word = (x[:, i - 1] + 3 * x[:, i - 2]) % vocabulary
        x[:, i] = torch.where(torch.rand(count, generator=draw) < 0.8, next_word, x[:, i])
    return x


def layers(*sizes, activation=nn.ReLU):
    made = []
    for a, b in zip(sizes, sizes[1:]):
        made += [nn.Linear(a, b), activation()]
    return nn.Sequential(*made[:-1])


def fit(s, model, optimizer, x, y, loss, steps=200, size=32, schedule=None, after=None):
    """A plain loop; after: called after each step."""
    s.attach(model, optimizer)
    for step, (bx, by) in enumerate(s.batches(x, y, s.batch(size), steps)):
        optimizer.zero_grad()
        value = loss(model(bx), by)
        value.backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
        if after is not None:
            after(step)
