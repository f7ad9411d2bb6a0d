"""What the families share: data that are drawn, and a chain of modules."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from loop import Program


# --- data --------------------------------------------------------------------------------------


class Classes(Program):
    """Vectors around the centers of classes."""

    labels, classes, width, noise = "classes", 6, 16, 1.0

    def data(self):
        self.centers = 1.5 * self.randn(self.classes, self.width)

    def batch(self, step, train=True):
        y = self.randint(self.classes, self.batch_size)
        return {"input": self.centers[y] + self.noise * self.randn(len(y), self.width),
                "labels": y}


class Images(Program):
    """Small images: a smooth pattern for each class, shifted and noisy."""

    labels, classes, size = "classes", 5, 8

    def data(self):
        at = torch.arange(self.size) / self.size * 2 * math.pi
        a, b, c = self.randn(3, self.classes, 1, 1)
        self.patterns = torch.sin((1 + a.abs()) * at[None, :, None] + (1 + b.abs()) *
                                  at[None, None, :] + c)

    def batch(self, step, train=True):
        y = self.randint(self.classes, self.batch_size)
        x = self.patterns[y] + 0.5 * self.randn(len(y), self.size, self.size)
        return {"input": x[:, None], "labels": y}


class Text(Program):
    """Text of a Markov chain: a few words are frequent, most are rare."""

    labels, vocabulary, length = "tokens", 40, 12

    def data(self):
        scores = 2.0 * self.randn(self.vocabulary, self.vocabulary)
        scores -= 0.08 * torch.arange(self.vocabulary)
        self.chain = scores.softmax(1)

    def text(self, count):
        words = [self.randint(self.vocabulary, count)]
        for _ in range(self.length):
            words.append(torch.multinomial(self.chain[words[-1]], 1, generator=self.random)[:, 0])
        return torch.stack(words, 1)

    def batch(self, step, train=True):
        words = self.text(self.batch_size)
        return {"tokens": words[:, :-1].contiguous(), "targets": words[:, 1:].contiguous()}

    def losses(self, batch):
        scores = self.model(batch["tokens"])
        flat = scores.reshape(-1, scores.shape[-1])
        self.note("loss_input_0", flat, op="", role="input", module="loss")
        return {"loss": F.cross_entropy(flat, batch["targets"].reshape(-1))}


class Tables(Program):
    """Rows of numbers and a target that is a smooth function of them."""

    labels, width, target, loss_op = "real", 10, "targets", "MSELoss"
    criterion = staticmethod(F.mse_loss)

    def data(self):
        self.a, self.b = self.randn(self.width, 4), self.randn(4)

    def batch(self, step, train=True):
        x = self.randn(self.batch_size, self.width)
        y = torch.tanh(x @ self.a / 3) @ self.b + 0.1 * self.randn(len(x))
        return {"input": x, "targets": y[:, None]}


class Named(nn.Module):
    """A chain of modules that have names."""

    def __init__(self, **modules):
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x):
        for module in self.children():
            x = module(x)
        return x
