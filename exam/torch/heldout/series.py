"""Families with text, sound and series."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from data import Named
from loop import Program


class Letters(Program):
    """Words of syllables, with spaces between."""

    vocabulary = 22

    def data(self):
        ends = torch.rand(30, generator=self.random).cumsum(0)
        self.shares = 1 / (1 + ends)
        self.words = [torch.cat((self.randint(self.vocabulary - 1, 2 + i % 4) + 1,
                                 torch.zeros(1, dtype=torch.long))) for i in range(30)]

    def text(self, length):
        parts, size = [], 0
        while size < length:
            word = self.words[torch.multinomial(self.shares, 1, generator=self.random).item()]
            parts.append(word)
            size += len(word)
        return torch.cat(parts)[:length]


class CharLm(Letters):
    """A language model of letters: each piece begins with the state after the last one."""

    labels, rate, clip, batch_size, steps = "tokens", 6e-3, 0.25, 8, 200
    traits, length = "one own-loss", 14

    def build(self):
        self.data()
        m = self.model = nn.Module()
        m.encoder, m.lstm = nn.Embedding(self.vocabulary, 10), nn.LSTM(10, 20, batch_first=True)
        m.decoder = nn.Linear(20, self.vocabulary)
        self.corpus, self.state = None, None

    def batch(self, step, train=True):
        if self.corpus is None:
            self.corpus = self.text(self.batch_size * 60 * self.length).view(self.batch_size, -1)
        at = step * self.length % (59 * self.length)
        if at == 0:
            self.state = None
        piece = self.corpus[:, at:at + self.length + 1]
        return {"tokens": piece[:, :-1].contiguous(), "targets": piece[:, 1:].contiguous()}

    def losses(self, batch):
        m = self.model
        if self.state is not None:
            self.state = tuple(s.detach() for s in self.state)
        out, self.state = m.lstm(m.encoder(batch["tokens"]), self.state)
        flat = m.decoder(out).reshape(-1, self.vocabulary)
        self.note("loss_input_0", flat, op="", role="input", module="loss")
        return {"loss": F.cross_entropy(flat, batch["targets"].reshape(-1))}


class Reviews(Letters):
    """Is a review good? A bidirectional GRU and attention over its words; padding."""

    labels, classes, rate, clip, batch_size = "classes", 2, 5e-3, 1.0, 16
    traits, eval_every, length, vocabulary, steps = "one drawn dropout", 50, 12, 60, 150

    def build(self):
        m = self.model = nn.Module()
        m.embed = nn.Embedding(self.vocabulary, 10, padding_idx=0)
        m.gru = nn.GRU(10, 8, batch_first=True, bidirectional=True)
        m.query, m.drop, m.out = nn.Linear(16, 1, bias=False), nn.Dropout(0.3), nn.Linear(16, 2)

        def forward(words):
            h = m.gru(m.embed(words))[0]
            scores = m.query(h.tanh())[:, :, 0].masked_fill(words == 0, -1e9)
            return m.out(m.drop((scores.softmax(1)[:, :, None] * h).sum(1)))

        m.forward = forward

    def batch(self, step, train=True):
        y = self.randint(self.classes, self.batch_size)
        words = 21 + self.randint(39, len(y), self.length)
        telling = torch.rand(len(y), self.length, generator=self.random) < 0.25
        words = torch.where(telling, 1 + 10 * y[:, None] + self.randint(10, *words.shape), words)
        ends = 6 + self.randint(7, len(y))
        return {"tokens": words.masked_fill(torch.arange(self.length) >= ends[:, None], 0),
                "labels": y}

    def predict(self, batch):
        return self.model.forward(batch["tokens"])


class Pointer(Program):
    """Points at the largest number, then at the next one, and so on (a pointer network)."""

    labels, rate, clip, batch_size, steps = "tokens", 8e-3, 2.0, 24, 240
    traits, count = "floats one own-loss ordered", 6

    def build(self):
        m = self.model = nn.Module()
        m.encoder, m.decoder = nn.LSTM(1, 16, batch_first=True), nn.LSTMCell(1, 16)
        m.keys, m.query, m.score = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 1)

    def batch(self, step, train=True):
        x = torch.rand(self.batch_size, self.count, generator=self.random)
        return {"input": x, "targets": x.argsort(1, descending=True)}

    def losses(self, batch):
        m, x, order = self.model, batch["input"], batch["targets"]
        memory, (h, c) = m.encoder(x[:, :, None])
        h, c, keys = h[0], c[0], m.keys(memory)
        last, made, used = torch.ones(len(x), 1), [], torch.zeros_like(x, dtype=torch.bool)
        for i in range(self.count):
            h, c = m.decoder(last, (h, c))
            scores = m.score((keys + m.query(h)[:, None]).tanh())[:, :, 0]
            made.append(scores.masked_fill(used, -1e9))
            used = used.scatter(1, order[:, i:i + 1], True)
            last = x.gather(1, order[:, i:i + 1])
        flat = torch.stack(made, 1).reshape(-1, self.count)
        return {"loss": F.cross_entropy(flat, order.reshape(-1))}


class Adder(Program):
    """Adds two numbers, digit after digit: an encoder and a decoder, and copying by attention."""

    labels, rate, optimizer, batch_size, steps = "tokens", 8e-3, "adam", 24, 300
    traits, clip = "one own-loss", 1.0

    def build(self):
        m = self.model = nn.Module()
        m.embed, m.encoder = nn.Embedding(12, 8), nn.GRU(8, 20, batch_first=True)
        m.decoder, m.copy = nn.GRU(8, 20, batch_first=True), nn.Linear(20, 20, bias=False)
        m.out = nn.Linear(40, 10)

    def batch(self, step, train=True):
        a, b = self.randint(20, 2, self.batch_size)
        source = torch.stack((a % 10, a // 10, torch.full_like(a, 10), b % 10, b // 10), 1)
        total = a + b
        return {"tokens": source, "targets": torch.stack((total % 10, total // 10), 1)}

    def losses(self, batch):
        m, goal = self.model, batch["targets"]
        memory, state = m.encoder(m.embed(batch["tokens"]))
        before = torch.cat((torch.full((len(goal), 1), 11), goal[:, :-1]), 1)
        h = m.decoder(m.embed(before), state)[0]
        share = (m.copy(h) @ memory.transpose(1, 2)).softmax(2)
        flat = m.out(torch.cat((h, share @ memory), 2)).reshape(-1, 10)
        self.note("loss_input_0", flat, op="", role="input", module="loss")
        return {"loss": F.cross_entropy(flat, goal.reshape(-1))}


class TextCnn(Letters):
    """Convolutions of three widths over the words of a question; Adadelta, as in the paper."""

    labels, classes, rate, batch_size, vocabulary = "classes", 4, 1.0, 20, 50
    traits, eval_every, optimizer, steps = "one drawn dropout", 50, "adadelta", 200

    def build(self):
        m = self.model = nn.Module()
        m.embed = nn.Embedding(self.vocabulary, 12)
        m.conv2, m.conv3, m.conv4 = (nn.Conv1d(12, 8, k) for k in (2, 3, 4))
        m.relu2, m.relu3, m.relu4 = nn.ReLU(), nn.ReLU(), nn.ReLU()
        m.drop, m.fc = nn.Dropout(0.5), nn.Linear(24, self.classes)
        self.keys = self.randint(self.vocabulary, self.classes, 3, 2)

        def forward(words):
            x = m.embed(words).transpose(1, 2)
            x = torch.cat([act(conv(x)).amax(2) for conv, act in (
                (m.conv2, m.relu2), (m.conv3, m.relu3), (m.conv4, m.relu4))], 1)
            return m.fc(m.drop(x))

        m.forward = forward

    def make_optimizer(self, parameters, scale=1.0):
        return torch.optim.Adadelta(parameters, self.rate * scale)

    def batch(self, step, train=True):
        y = self.randint(self.classes, self.batch_size)
        words = self.randint(self.vocabulary, len(y), 10)
        at, which = self.randint(9, len(y)), self.randint(3, len(y))
        rows = torch.arange(len(y))
        words[rows, at], words[rows, at + 1] = self.keys[y, which].unbind(1)
        return {"tokens": words, "labels": y}

    def predict(self, batch):
        return self.model.forward(batch["tokens"])


class NewsBags(Letters):
    """A bag of embeddings and one layer: plain gradient descent with a rate of 2."""

    labels, classes, rate, batch_size, vocabulary = "classes", 4, 2.0, 32, 120
    traits, optimizer, options, clip, rates = "one drawn", "sgd", {"momentum": 0.0}, 0.1, (0.5, 1.0)
    steps = 200

    def build(self):
        m = self.model = nn.Module()
        m.embedding, m.fc = nn.EmbeddingBag(self.vocabulary, 16, mode="mean"), nn.Linear(16, 4)
        for p in (m.embedding.weight, m.fc.weight):
            nn.init.uniform_(p, -0.5, 0.5)
        nn.init.zeros_(m.fc.bias)
        self.topics = (1.5 * self.randn(4, self.vocabulary)).softmax(1)
        m.forward = lambda words: m.fc(m.embedding(words))

    def batch(self, step, train=True):
        y = self.randint(self.classes, self.batch_size)
        words = torch.multinomial(self.topics[y], 15, replacement=True, generator=self.random)
        return {"tokens": words, "labels": y}

    def predict(self, batch):
        return self.model.forward(batch["tokens"])

    def make_schedule(self):
        return torch.optim.lr_scheduler.StepLR(self.optimizers[0], 80, 0.5)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * self.weight


class LlamaBlock(nn.Module):
    """Rotary attention and a gated MLP."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.act, self.down = nn.SiLU(), nn.Linear(2 * width, width, bias=False)

    def rotate(self, x):
        n, t, d = x.shape
        x = x.view(n, t, 2, d // 2).transpose(1, 2)
        angle = torch.arange(t)[:, None] * 100.0 ** (-torch.arange(d // 4) / (d // 4))
        a, b = x.chunk(2, -1)
        return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)

    def forward(self, x):
        h = self.norm1(x)
        v = self.v(h).view(len(x), x.shape[1], 2, -1).transpose(1, 2)
        h = F.scaled_dot_product_attention(self.rotate(self.q(h)), self.rotate(self.k(h)), v,
                                           is_causal=True)
        x = x + self.o(h.transpose(1, 2).reshape(x.shape))
        h = self.norm2(x)
        return x + self.down(self.act(self.gate(h)) * self.up(h))


class SmallLlama(Letters):
    """The next letter, with rotary positions, tied weights, a warm-up and a cosine."""

    labels, rate, optimizer, clip, batch_size, batches = "tokens", 6e-3, "adamw", 1.0, 4, (1,)
    options, traits, steps = {"betas": (0.9, 0.95), "weight_decay": 0.1}, "one", 180

    def build(self):
        self.data()
        m = self.model = nn.Module()
        m.embed = nn.Embedding(self.vocabulary, 16)
        nn.init.normal_(m.embed.weight, 0.0, 0.05)
        m.block1, m.block2, m.norm = LlamaBlock(16), LlamaBlock(16), RmsNorm(16)
        m.forward = lambda x: m.norm(m.block2(m.block1(m.embed(x)))) @ m.embed.weight.T

    def batch(self, step, train=True):
        words = self.text(self.batch_size * 13).view(self.batch_size, 13)
        return {"tokens": words[:, :-1].contiguous(), "targets": words[:, 1:].contiguous()}

    def losses(self, batch):
        flat = self.model.forward(batch["tokens"]).reshape(-1, self.vocabulary)
        self.note("loss_input_0", flat, op="", role="input", module="loss")
        return {"loss": F.cross_entropy(flat, batch["targets"].reshape(-1))}

    def make_schedule(self):
        return torch.optim.lr_scheduler.LambdaLR(self.optimizers[0], lambda step: min(
            (step + 1) / 20, 0.1 + 0.45 * (1 + math.cos(math.pi * min(step / self.steps, 1)))))


class Memory(Program):
    """Who is where? Facts in a memory, read by attention in two hops."""

    labels, classes, rate, batch_size, steps = "classes", 6, 1e-2, 32, 200
    traits, clip = "one", 40.0

    def build(self):
        m = self.model = nn.Module()
        m.keys, m.values, m.names = nn.Embedding(8, 12), nn.Embedding(6, 12), nn.Embedding(8, 12)
        m.hop, m.answer = nn.Linear(12, 12, bias=False), nn.Linear(12, 6)
        for part in (m.keys, m.values, m.names):
            nn.init.normal_(part.weight, 0.0, 0.3)

    def batch(self, step, train=True):
        n = self.batch_size
        people = torch.rand(n, 8, generator=self.random).argsort(1)[:, :5]
        places, asked = self.randint(6, n, 5), self.randint(5, n)
        rows = torch.arange(n)
        return {"people": people, "places": places, "question": people[rows, asked],
                "labels": places[rows, asked]}

    def predict(self, batch):
        m = self.model
        keys, values = m.keys(batch["people"]), m.values(batch["places"])
        u = m.names(batch["question"])
        for _ in range(2):
            share = (keys @ u[:, :, None])[:, :, 0].softmax(1)
            u = m.hop(u) + (share[:, :, None] * values).sum(1)
        return m.answer(u)


class NameOrigins(Letters):
    """Names, one at a time: a plain recurrent net, the negative log-likelihood, and SGD."""

    labels, classes, rate, optimizer, loss_op = "classes", 3, 0.02, "sgd", "NLLLoss"
    batch_size, batches, steps, options, traits = 1, (1,), 600, {"momentum": 0.0}, "one floats single"
    rates = (0.5, 1.0, 1.0)
    criterion = staticmethod(F.nll_loss)

    def build(self):
        m = self.model = nn.Module()
        m.rnn, m.h2o, m.softmax = nn.RNN(10, 24), nn.Linear(24, 3), nn.LogSoftmax(1)
        m.forward = lambda x: m.softmax(m.h2o(m.rnn(x)[1][0]))
        self.habits = (2.0 * self.randn(3, 10)).softmax(1)

    def batch(self, step, train=True):
        y = self.randint(self.classes, 1)
        letters = torch.multinomial(self.habits[y[0]], 4 + self.randint(3, 1).item(),
                                    replacement=True, generator=self.random)
        return {"input": F.one_hot(letters, 10)[:, None].float(), "labels": y}


class Glove(Letters):
    """Factors of the logarithms of counts, weighted; Adagrad."""

    labels, rate, loss_op, batch_size, vocabulary = None, 0.05, "", 96, 50
    traits, optimizer, rates, steps = "one", "adagrad", (1.0, 2.0), 160

    def build(self):
        m = self.model = nn.Module()
        m.words, m.contexts = nn.Embedding(50, 8), nn.Embedding(50, 8)
        m.word_bias, m.context_bias = nn.Embedding(50, 1), nn.Embedding(50, 1)
        for part in m.children():
            nn.init.uniform_(part.weight, -0.5, 0.5)
        a, b = self.randn(50, 3), self.randn(50, 3)
        self.counts = torch.poisson((a @ b.T / 1.5 + 2).exp(), generator=self.random) + 1

    def make_optimizer(self, parameters, scale=1.0):
        return torch.optim.Adagrad(parameters, self.rate * scale)

    def batch(self, step, train=True):
        i, j = self.randint(50, 2, self.batch_size)
        return {"words": i, "contexts": j, "counts": self.counts[i, j]}

    def losses(self, batch):
        m, i, j, x = self.model, batch["words"], batch["contexts"], batch["counts"]
        made = (m.words(i) * m.contexts(j)).sum(1) + m.word_bias(i)[:, 0] + m.context_bias(j)[:, 0]
        return {"loss": ((x / 100).pow(0.75).clamp(max=1) * (made - x.log()) ** 2).mean()}


# --- sound and series ----------------------------------------------------------------------------


class Sound(Program):
    """Raw waves of four instruments: strided convolutions with batch norm, and weight decay."""

    labels, classes, rate, optimizer, batch_size = "classes", 4, 6e-3, "adam", 12
    options, traits, eval_every, steps = {"weight_decay": 1e-4}, "chain one floats drawn relu norm input", 50, 150

    def build(self):
        self.model = Named(conv1=nn.Conv1d(1, 8, 12, stride=4), bn1=nn.BatchNorm1d(8),
                           relu1=nn.ReLU(), pool1=nn.MaxPool1d(2), conv2=nn.Conv1d(8, 12, 3),
                           bn2=nn.BatchNorm1d(12), relu2=nn.ReLU(), pool2=nn.AdaptiveAvgPool1d(1),
                           flat=nn.Flatten(), fc=nn.Linear(12, 4))
        self.timbre = torch.rand(4, 4, generator=self.random) + 0.05

    def batch(self, step, train=True):
        y, t = self.randint(self.classes, self.batch_size), torch.arange(80) * 0.35
        pitch = 1 + 0.3 * torch.rand(len(y), 1, generator=self.random)
        phase = 6.28 * torch.rand(len(y), 1, generator=self.random)
        x = sum(self.timbre[y, k, None] * torch.sin((k + 1) * (pitch * t + phase)) for k in range(4))
        return {"input": (x + 0.2 * self.randn(*x.shape))[:, None], "labels": y}

    def make_schedule(self):
        return torch.optim.lr_scheduler.StepLR(self.optimizers[0], 60, 0.1)


class WaveNet(Program):
    """The next of sixteen levels of a wave: gated, dilated convolutions with skips."""

    labels, rate, batch_size, traits, steps = "tokens", 4e-3, 6, "one", 160

    def build(self):
        m = self.model = nn.Module()
        m.embed = nn.Embedding(16, 10)
        for i, d in enumerate((1, 2, 4)):
            m.add_module(f"filter{i}", nn.Conv1d(10, 10, 2, dilation=d))
            m.add_module(f"gate{i}", nn.Conv1d(10, 10, 2, dilation=d))
            m.add_module(f"skip{i}", nn.Conv1d(10, 12, 1))
        m.relu, m.out = nn.ReLU(), nn.Conv1d(12, 16, 1)

        def forward(x):
            x, total = m.embed(x).transpose(1, 2), 0.0
            for i, d in enumerate((1, 2, 4)):
                y = F.pad(x, (d, 0))
                y = getattr(m, f"filter{i}")(y).tanh() * getattr(m, f"gate{i}")(y).sigmoid()
                total, x = total + getattr(m, f"skip{i}")(y), x + y
            return m.out(m.relu(total)).transpose(1, 2)

        m.forward = forward

    def batch(self, step, train=True):
        t = 30 * torch.rand(self.batch_size, 1, generator=self.random) + 0.5 * torch.arange(29)
        x = 0.7 * t.sin() + 0.3 * (2.1 * t).sin() + 0.03 * self.randn(*t.shape)
        x = ((x.sign() * (1 + 15 * x.abs()).log() / math.log(16) + 1) * 8).long().clamp(0, 15)
        return {"tokens": x[:, :-1].contiguous(), "targets": x[:, 1:].contiguous()}

    def losses(self, batch):
        flat = self.model.forward(batch["tokens"]).reshape(-1, 16)
        self.note("loss_input_0", flat, op="", role="input", module="loss")
        return {"loss": F.cross_entropy(flat, batch["targets"].reshape(-1))}


class DeepAr(Program):
    """Demand in the days to come, as a mean and a spread; the likelihood is a density."""

    rate, clip, loss_op, batch_size, steps = 5e-3, 10.0, "GaussianNLLLoss", 16, 160
    traits = "floats one signed"

    def build(self):
        m = self.model = nn.Module()
        m.shop, m.lstm = nn.Embedding(12, 4), nn.LSTM(7, 20, batch_first=True)
        m.mean, m.spread = nn.Linear(20, 1), nn.Linear(20, 1)
        self.level = self.randn(12).exp()

    def batch(self, step, train=True):
        shop, day = self.randint(12, self.batch_size), self.randint(7, self.batch_size)
        t = (day[:, None] + torch.arange(15)) * 2 * math.pi / 7
        x = 1 + 0.5 * t.sin() + 0.05 * self.level[shop, None] * self.randn(*t.shape)
        return {"shops": shop, "input": torch.stack((x, t.sin(), t.cos()), 2)[:, :-1].contiguous(),
                "future": x[:, 1:].contiguous()}

    def losses(self, batch):
        m, x = self.model, batch["input"]
        shop = m.shop(batch["shops"])[:, None].expand(-1, x.shape[1], -1)
        h = m.lstm(torch.cat((x, shop), 2))[0]
        mean, spread = m.mean(h)[:, :, 0], F.softplus(m.spread(h))[:, :, 0] + 1e-3
        return {"loss": F.gaussian_nll_loss(mean, batch["future"], spread ** 2)}


class NBeats(Program):
    """Blocks that each explain a part of the past and predict a part of the future."""

    labels, rate, loss_op, batch_size, traits = "real", 3e-3, "L1Loss", 24, "floats one"
    optimizer, steps = "adam", 150

    def build(self):
        m = self.model = nn.Module()
        for i in (1, 2):
            m.add_module(f"block{i}", Named(fc1=nn.Linear(16, 24), relu1=nn.ReLU(),
                                            fc2=nn.Linear(24, 24), relu2=nn.ReLU(),
                                            theta=nn.Linear(24, 20)))

    def batch(self, step, train=True):
        t = 10 * torch.rand(self.batch_size, 1, generator=self.random) + 0.5 * torch.arange(20)
        slope = 0.1 * self.randn(self.batch_size, 1)
        x = t.sin() + slope * torch.arange(20) + 0.05 * self.randn(*t.shape)
        return {"input": x[:, :16].contiguous(), "targets": x[:, 16:].contiguous()}

    def losses(self, batch):
        past, future = batch["input"], 0.0
        for i in (1, 2):
            back, ahead = getattr(self.model, f"block{i}")(past).split((16, 4), 1)
            past, future = past - back, future + ahead
        self.note("loss_input_0", future, op="", role="input", module="loss")
        return {"loss": F.l1_loss(future, batch["targets"])}

    def make_schedule(self):
        return torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(self.optimizers[0], 50)


class Anomalies(Program):
    """An LSTM reads a heartbeat and writes it again; NAdam."""

    rate, loss_op, batch_size, traits, optimizer = 6e-3, "MSELoss", 16, "floats one", "nadam"
    options, steps = {}, 200

    def build(self):
        m = self.model = nn.Module()
        m.encoder, m.bottleneck = nn.LSTM(1, 16, batch_first=True), nn.Linear(16, 4)
        m.decoder, m.out = nn.LSTM(4, 16, batch_first=True), nn.Linear(16, 1)

    def make_optimizer(self, parameters, scale=1.0):
        return torch.optim.NAdam(parameters, self.rate * scale, **self.options)

    def batch(self, step, train=True):
        t = torch.arange(16.0)
        at = 4 + 8 * torch.rand(self.batch_size, 1, generator=self.random)
        high = 0.7 + 0.6 * torch.rand(self.batch_size, 1, generator=self.random)
        x = high * torch.exp(-(t - at) ** 2 / 2) - 0.3 * torch.exp(-(t - at - 3) ** 2 / 4)
        return {"beats": (x + 0.03 * self.randn(*x.shape))[:, :, None] / 0.4}

    def losses(self, batch):
        m, x = self.model, batch["beats"]
        code = m.bottleneck(m.encoder(x)[1][0][0])
        made = m.out(m.decoder(code[:, None].expand(-1, x.shape[1], -1))[0])
        return {"loss": F.mse_loss(made, x)}


FAMILIES = (CharLm, Reviews, Pointer, Adder, TextCnn, NewsBags, SmallLlama, Memory, NameOrigins,
            Glove, Sound, WaveNet, DeepAr, NBeats, Anomalies)
