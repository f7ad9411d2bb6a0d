"""Families with sequences and embeddings."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from data import Text
from loop import Program


class Lstm(Text):
    rate, clip, batch_size = 5e-3, 1.0, 16

    def build(self):
        self.data()
        self.model = nn.Module()
        self.model.embed = nn.Embedding(self.vocabulary, 16)
        self.model.lstm = nn.LSTM(16, 20, batch_first=True)
        self.model.head = nn.Linear(20, self.vocabulary)
        self.model.forward = lambda x: self.model.head(self.model.lstm(self.model.embed(x))[0])


class Gru(Program):
    """Classifies the direction of a noisy wave."""

    labels, optimizer, rate, clip, used_gradients = "classes", "adam", 5e-3, 1.0, True

    def build(self):
        self.model = nn.Module()
        self.model.gru = nn.GRU(2, 16, batch_first=True)
        self.model.out = nn.Linear(16, 3)
        self.model.forward = lambda x: self.model.out(self.model.gru(x)[0][:, -1])

    def batch(self, step, train=True):
        y = self.randint(3, self.batch_size)
        t = torch.arange(14) * 0.5 * (y[:, None] - 1) + 6 * torch.rand(
            len(y), 1, generator=self.random)
        x = torch.stack((t.sin(), t.cos()), 2)
        return {"input": x + 0.3 * self.randn(*x.shape), "labels": y}


class Attention(nn.Module):
    """Its mask is -inf, and so are its masked scores."""

    def __init__(self, width, length):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.scores, self.softmax = nn.Identity(), nn.Softmax(-1)
        self.register_buffer("mask", torch.full((length, length), -math.inf).triu(1))

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = self.scores(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]) +
                             self.mask[:x.shape[1], :x.shape[1]])
        return self.out(self.softmax(scores) @ v)


class Layer(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), Attention(width, length)
        self.norm2, self.fc1 = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.gelu, self.fc2 = nn.GELU(), nn.Linear(2 * width, width)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(self.gelu(self.fc1(self.norm2(x))))


class Transformer(Text):
    optimizer, rate, batch_size = "adamw", 3e-3, 16

    def build(self):
        self.data()
        m = self.model = nn.Module()
        m.embed, m.place = nn.Embedding(self.vocabulary, 16), nn.Embedding(self.length, 16)
        m.layer1, m.layer2 = Layer(16, self.length), Layer(16, self.length)
        m.norm, m.head = nn.LayerNorm(16), nn.Linear(16, self.vocabulary, bias=False)
        m.forward = lambda x: m.head(m.norm(m.layer2(m.layer1(
            m.embed(x) + m.place(torch.arange(x.shape[1]))))))

    def make_schedule(self):
        return torch.optim.lr_scheduler.LambdaLR(
            self.optimizers[0], lambda step: min(1.0, (step + 1) / 20))


class TiedTransformer(Text):
    """The mask is an input, and the last layer shares the embedding's weight."""

    rate, batch_size, vocabulary = 2e-3, 16, 64

    def build(self):
        self.data()
        m = self.model = nn.Module()
        m.embed = nn.Embedding(self.vocabulary, 16)
        nn.init.normal_(m.embed.weight, 0.0, 0.1)
        m.place = nn.Parameter(0.02 * torch.randn(self.length, 16))
        m.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True,
                                             activation="gelu", norm_first=True)
        m.norm = nn.LayerNorm(16)

        def forward(x, mask):
            x = m.norm(m.block(m.embed(x) + m.place, src_mask=mask))
            return x @ m.embed.weight.T

        m.forward = forward

    def batch(self, step, train=True):
        return {**super().batch(step, train),
                "attn_mask": torch.full((self.length, self.length), -math.inf).triu(1)}

    def losses(self, batch):
        scores = self.model(batch["tokens"], batch["attn_mask"]).reshape(-1, self.vocabulary)
        self.note("loss_input_0", scores, op="", role="input", module="loss")
        return {"loss": F.cross_entropy(scores, batch["targets"].reshape(-1))}


class SkipGram(Text):
    """Embeddings with drawn negatives: a batch touches few rows."""

    labels, loss_op, rate, vocabulary, length, rates = None, "", 2e-2, 200, 1, (1.0,)

    def build(self):
        self.data()
        m = self.model = nn.Module()
        m.words, m.contexts = nn.Embedding(self.vocabulary, 12), nn.Embedding(self.vocabulary, 12)

    def batch(self, step, train=True):
        words = self.text(self.batch_size)
        return {"words": words[:, 0].contiguous(), "contexts": words[:, 1].contiguous(),
                "negatives": self.randint(self.vocabulary, len(words), 5)}

    def losses(self, batch):
        w = self.model.words(batch["words"])
        positive = (w * self.model.contexts(batch["contexts"])).sum(1)
        negative = torch.einsum("nd,nkd->nk", w, self.model.contexts(batch["negatives"]))
        return {"loss": -F.logsigmoid(positive).mean() - F.logsigmoid(-negative).sum(1).mean()}


class Ratings(Program):
    """Factors of users and items: real-valued targets."""

    labels, rate, loss_op, batch_size = "real", 2e-2, "MSELoss", 64

    def build(self):
        self.u, self.i = self.randn(80, 3), self.randn(60, 3)
        m = self.model = nn.Module()
        m.users, m.items, m.bias = nn.Embedding(80, 6), nn.Embedding(60, 6), nn.Embedding(60, 1)
        for part in (m.users, m.items, m.bias):
            nn.init.normal_(part.weight, 0.0, 0.3)

    def batch(self, step, train=True):
        u, i = self.randint(80, self.batch_size), self.randint(60, self.batch_size)
        return {"users": u, "items": i,
                "targets": (self.u[u] * self.i[i]).sum(1) + 0.2 * self.randn(len(u))}

    def losses(self, batch):
        m = self.model
        guess = (m.users(batch["users"]) * m.items(batch["items"])).sum(1)
        guess = guess + m.bias(batch["items"])[:, 0]
        self.note("loss_input_0", guess, op="", role="input", module="loss")
        return {"loss": F.mse_loss(guess, batch["targets"])}


class Tagger(Text):
    """A label of few classes for each word; words of padding are not counted."""

    labels, optimizer, rate, batch_size = "tokens", "adam", 5e-3, 24

    def build(self):
        self.data()
        m = self.model = nn.Module()
        m.embed = nn.Embedding(self.vocabulary, 12)
        m.conv, m.relu, m.head = nn.Conv1d(12, 24, 3, padding=1), nn.ReLU(), nn.Linear(24, 4)
        m.forward = lambda x: m.head(m.relu(m.conv(m.embed(x).transpose(1, 2))).transpose(1, 2))
        self.tags = self.randint(4, self.vocabulary)

    def batch(self, step, train=True):
        words = self.text(self.batch_size)[:, :-1].contiguous()
        tags = (self.tags[words] + self.tags[words.roll(1, 1)]) % 4
        short = torch.arange(self.length) >= 6 + self.randint(7, self.batch_size)[:, None]
        return {"tokens": words.masked_fill(short, 0), "targets": tags.masked_fill(short, -100)}
