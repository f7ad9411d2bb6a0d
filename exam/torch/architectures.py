"""Families whose models differ from those of the others."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from data import Images, Named, Tables, Text
from loop import Program


class Epochs(Program):
    """Samples that are drawn once, and shuffled for each epoch."""

    samples, tests = 768, 192

    def sample(self, count):
        """{name: rows}"""
        raise NotImplementedError

    def batch(self, step, train=True):
        if not hasattr(self, "kept"):
            self.kept, self.test = self.sample(self.samples), self.sample(self.tests)
            self.order = torch.zeros(0, dtype=torch.long)
        if not train:
            rows = torch.arange(step * self.batch_size, (step + 1) * self.batch_size) % self.tests
            return {name: value[rows] for name, value in self.test.items()}
        if len(self.order) < self.batch_size:
            self.order = torch.randperm(self.samples, generator=self.random)
        rows, self.order = self.order[:self.batch_size], self.order[self.batch_size:]
        return {name: value[rows] for name, value in self.kept.items()}


# --- text and speech -----------------------------------------------------------------------------


class Experts(nn.Module):
    """The two best of four experts for each word; the balance is a loss."""

    def __init__(self, width, count):
        super().__init__()
        self.gate = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(
            Named(up=nn.Linear(width, 2 * width), gelu=nn.GELU(), down=nn.Linear(2 * width, width))
            for _ in range(count))

    def forward(self, x):
        shares = self.gate(x).softmax(-1)
        best, chosen = shares.topk(2, -1)
        best = best / best.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows, place = (chosen == i).nonzero(as_tuple=True)
            if len(rows):
                out = out.index_add(0, rows, best[rows, place, None] * expert(x[rows]))
        used = F.one_hot(chosen[:, 0], len(self.experts)).float().mean(0)
        self.balance = len(self.experts) * (used * shares.mean(0)).sum()
        return out


class MixtureOfExperts(Text):
    optimizer, rate, batch_size, options = "adamw", 4e-3, 24, {"weight_decay": 0.05}

    def build(self):
        self.data()
        m = self.model = nn.Module()
        m.embed, m.mix = nn.Embedding(self.vocabulary, 20), nn.Linear(40, 20)
        m.norm, m.moe = nn.LayerNorm(20), Experts(20, 4)
        m.head = nn.Linear(20, self.vocabulary)

        def forward(words):
            x = m.embed(words)
            before = F.pad(x, (0, 0, 1, 0))[:, :-1]
            x = m.mix(torch.cat((x, before), -1)).reshape(-1, 20)
            return m.head(x + m.moe(m.norm(x)))

        m.forward = forward

    def losses(self, batch):
        scores = self.model.forward(batch["tokens"])
        self.note("loss_input_0", scores, op="", role="input", module="loss")
        return {"loss": F.cross_entropy(scores, batch["targets"].reshape(-1)),
                "balance_loss": 0.02 * self.model.moe.balance}


class MaskedWords(Text):
    """Fifteen of a hundred words are hidden and predicted; the others have the label -100."""

    optimizer, rate, batch_size, options = "adamw", 3e-3, 48, {"weight_decay": 0.01}

    def build(self):
        self.data()
        m = self.model = nn.Module()
        m.embed = nn.Embedding(self.vocabulary + 1, 24)
        m.place = nn.Embedding(self.length, 24)
        m.block = nn.TransformerEncoderLayer(24, 4, 48, dropout=0.1, batch_first=True)
        m.dense, m.act = nn.Linear(24, 24), nn.GELU()
        m.norm, m.decoder = nn.LayerNorm(24), nn.Linear(24, self.vocabulary)
        m.forward = lambda x: m.decoder(m.norm(m.act(m.dense(m.block(
            m.embed(x) + m.place.weight)))))

    def make_schedule(self):
        return torch.optim.lr_scheduler.LinearLR(self.optimizers[0], 1.0, 0.05, self.steps)

    def batch(self, step, train=True):
        words = self.text(self.batch_size)[:, :-1].contiguous()
        hidden = torch.rand(words.shape, generator=self.random) < 0.15
        return {"tokens": words.masked_fill(hidden, self.vocabulary),
                "targets": words.masked_fill(~hidden, -100)}


class Translator(Program):
    """Reverses a sequence: an encoder, a decoder with attention, and teacher forcing."""

    labels, rate, clip, batch_size = "tokens", 6e-3, 1.0, 32
    letters, length = 12, 6

    def build(self):
        m = self.model = nn.Module()
        m.source, m.target = nn.Embedding(self.letters, 16), nn.Embedding(self.letters + 1, 16)
        m.encoder, m.decoder = nn.GRU(16, 24, batch_first=True), nn.GRUCell(40, 24)
        m.bridge, m.out = nn.Linear(24, 24), nn.Linear(48, self.letters)
        m.forward = self.decode

    def decode(self, source, target):
        m = self.model
        memory, state = m.encoder(m.source(source))
        state, word, made = m.bridge(state[0]).tanh(), torch.full((len(source),), self.letters), []
        context = memory.mean(1)
        for i in range(self.length):
            state = m.decoder(torch.cat((m.target(word), context), 1), state)
            share = (memory @ state[:, :, None])[:, :, 0].softmax(1)
            context = (share[:, :, None] * memory).sum(1)
            made.append(m.out(torch.cat((state, context), 1)))
            forced = torch.rand(1, generator=self.random).item() < 0.75
            word = target[:, i] if forced else made[-1].argmax(1)
        return torch.stack(made, 1)

    def batch(self, step, train=True):
        words = self.randint(self.letters, self.batch_size, self.length)
        return {"tokens": words, "targets": words.flip(1).contiguous()}

    def losses(self, batch):
        scores = self.model.forward(batch["tokens"], batch["targets"])
        flat = scores.reshape(-1, self.letters)
        self.note("loss_input_0", flat, op="", role="input", module="loss")
        return {"loss": F.cross_entropy(flat, batch["targets"].reshape(-1), label_smoothing=0.1)}


class Speech(Program):
    """Sounds of unknown length that spell a word: the CTC loss."""

    rate, loss_op, clip, batch_size, steps = 4e-3, "CTCLoss", 5.0, 24, 200
    sounds, frames = 6, 20

    def build(self):
        self.tones = 1.5 * self.randn(self.sounds + 1, 10)
        m = self.model = nn.Module()
        m.conv, m.relu = nn.Conv1d(10, 24, 3, padding=1), nn.ReLU()
        m.norm = nn.BatchNorm1d(24)
        m.rnn = nn.LSTM(24, 16, batch_first=True, bidirectional=True)
        m.out = nn.Linear(32, self.sounds + 1)

    def batch(self, step, train=True):
        words = 1 + self.randint(self.sounds, self.batch_size, 4)
        ends = torch.sort(4 + self.randint(3, self.batch_size, 4).cumsum(1) * 2)[0]
        at = (torch.arange(self.frames)[None, :, None] >= ends[:, None]).sum(2).clamp(max=3)
        spoken = self.tones[words.gather(1, at)]
        return {"input": (spoken + 0.6 * self.randn(*spoken.shape)).transpose(1, 2).contiguous(),
                "spelling": words}

    def losses(self, batch):
        m = self.model
        x = m.norm(m.relu(m.conv(batch["input"])))
        scores = m.out(m.rnn(x.transpose(1, 2))[0]).log_softmax(2).transpose(0, 1)
        self.note("loss_input_0", scores, op="", role="input", module="loss")
        n = len(batch["spelling"])
        return {"loss": F.ctc_loss(scores, batch["spelling"], torch.full((n,), self.frames),
                                   torch.full((n,), 4), zero_infinity=True)}


# --- pictures, points and graphs -----------------------------------------------------------------


class Double(nn.Module):
    def __init__(self, wide, width):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(wide, width, 3, padding=1), nn.GroupNorm(2, width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(2, width)
        self.act1, self.act2 = nn.SiLU(), nn.SiLU()

    def forward(self, x):
        return self.act2(self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x))))))


class UNet(Images):
    """Three kinds of pixels, of which one is rare."""

    labels, rate, size, batch_size = "pixels", 4e-3, 12, 12

    def build(self):
        self.data()
        m = self.model = nn.Module()
        m.down1, m.pool, m.down2 = Double(1, 6), nn.MaxPool2d(2), Double(6, 10)
        m.up, m.merge = nn.ConvTranspose2d(10, 6, 2, stride=2), Double(12, 6)
        m.out = nn.Conv2d(6, 3, 1)

    def batch(self, step, train=True):
        clean = self.patterns[self.randint(self.classes, self.batch_size)]
        return {"input": (clean + 0.3 * self.randn(*clean.shape))[:, None],
                "masks": (clean > 0.0).long() + (clean > 0.9).long()}

    def losses(self, batch):
        m = self.model
        wide = m.down1(batch["input"])
        deep = m.up(m.down2(m.pool(wide)))
        scores = m.out(m.merge(torch.cat((wide, deep), 1)))
        self.note("loss_input_0", scores, op="", role="input", module="loss")
        return {"loss": F.cross_entropy(scores, batch["masks"],
                                        weight=torch.tensor([1.0, 1.0, 3.0]))}


class VisionTransformer(Epochs):
    """Patches of pictures that are drawn once, with a warm-up and a cosine."""

    labels, optimizer, rate, batch_size = "classes", "adamw", 4e-3, 48
    options, eval_every, steps, classes = {"weight_decay": 0.05}, 50, 150, 5

    def build(self):
        self.size = 8
        Images.data(self)
        m = self.model = nn.Module()
        m.patch = nn.Conv2d(1, 24, 2, stride=2)
        m.cls = nn.Parameter(torch.zeros(1, 1, 24))
        m.place = nn.Parameter(0.02 * torch.randn(1, 17, 24))
        for name in ("block1", "block2"):
            m.add_module(name, nn.TransformerEncoderLayer(24, 3, 48, 0.1, F.gelu, batch_first=True,
                                                          norm_first=True))
        m.norm, m.head = nn.LayerNorm(24), nn.Linear(24, self.classes)
        nn.init.zeros_(m.head.weight)

        def forward(x):
            x = m.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat((m.cls.expand(len(x), -1, -1), x), 1) + m.place
            return m.head(m.norm(m.block2(m.block1(x)))[:, 0])

        m.forward = forward

    def sample(self, count):
        y = self.randint(self.classes, count)
        x = self.patterns[y] + 0.4 * self.randn(count, 8, 8)
        return {"input": x[:, None], "labels": y}

    def make_schedule(self):
        return torch.optim.lr_scheduler.LambdaLR(self.optimizers[0], lambda step: min(
            (step + 1) / 20, 0.5 + 0.5 * math.cos(math.pi * step / self.steps)))


class Diffusion(Program):
    """Predicts the noise in points of two moons, at a random time."""

    rate, loss_op, batch_size, rates = 2e-3, "MSELoss", 96, (0.5, 1.0, 2.0)

    def build(self):
        m = self.model = nn.Module()
        m.time = nn.Linear(8, 32)
        m.fc1, m.act1, m.fc2, m.act2 = nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU()
        m.fc3 = nn.Linear(32, 2)
        betas = torch.linspace(1e-3, 0.2, 50)
        m.register_buffer("kept", (1 - betas).cumprod(0))

    def batch(self, step, train=True):
        side = self.randint(2, self.batch_size).float()
        angle = math.pi * torch.rand(self.batch_size, generator=self.random)
        x = torch.stack((angle.cos() + side - 0.5, (angle.sin() - 0.25) * (1 - 2 * side)), 1)
        return {"input": x + 0.03 * self.randn(*x.shape), "times": self.randint(50, len(x)),
                "noise": self.randn(*x.shape)}

    def losses(self, batch):
        m, t = self.model, batch["times"]
        kept = m.kept[t][:, None]
        x = kept.sqrt() * batch["input"] + (1 - kept).sqrt() * batch["noise"]
        phase = t[:, None] / 50 * 2.0 ** torch.arange(4)
        time = m.time(torch.cat((phase.sin(), phase.cos()), 1))
        made = m.fc3(m.act2(m.fc2(m.act1(m.fc1(x) + time)) + time))
        return {"loss": F.mse_loss(made, batch["noise"])}


class Citations(Program):
    """A graph of papers with a sparse matrix: the same input at every step, few labels."""

    labels, rate, options, eval_every, optimizer = "classes", 1e-2, {"weight_decay": 5e-4}, 30, "adam"
    classes = 5

    def build(self):
        n, k = 150, self.classes
        topic = self.randint(k, n)
        near = (torch.rand(n, n, generator=self.random) <
                torch.where(topic[:, None] == topic, 0.08, 0.01)).float()
        near = ((near + near.T + torch.eye(n)) > 0).float()
        degree = near.sum(1).rsqrt()
        self.spread = (degree[:, None] * near * degree).to_sparse()
        words = (torch.rand(n, 40, generator=self.random) < 0.05 + 0.25 * (
            torch.arange(40) % k == topic[:, None])).float()
        self.known, self.rest = torch.arange(60), torch.arange(60, n)
        self.fixed = {"input": words / words.sum(1, keepdim=True).clamp(min=1), "labels": topic}
        self.model = Named(fc1=nn.Linear(40, 16), relu=nn.ReLU(), drop=nn.Dropout(0.5),
                           fc2=nn.Linear(16, k))

    def batch(self, step, train=True):
        return dict(self.fixed)

    def losses(self, batch):
        m = self.model
        h = m.drop(m.relu(torch.sparse.mm(self.spread, m.fc1(batch["input"]))))
        scores = torch.sparse.mm(self.spread, m.fc2(h))
        rows = self.known if m.training else self.rest
        self.note("loss_input_0", scores[self.known], op="", role="input", module="loss")
        return {"loss": F.cross_entropy(scores[rows], batch["labels"][rows])}


class PointSet(Program):
    """Which body a cloud of points is from: a maximum over the points."""

    labels, rate, classes, batch_size, optimizer = "classes", 3e-3, 3, 32, "nadam"

    def build(self):
        m = self.model = nn.Module()
        m.each = Named(fc1=nn.Linear(3, 24), relu1=nn.ReLU(), fc2=nn.Linear(24, 32),
                       relu2=nn.ReLU())
        m.all = Named(fc1=nn.Linear(32, 16), relu=nn.ReLU(), fc2=nn.Linear(16, 3))
        m.forward = lambda x: m.all(m.each(x).max(1).values)

    def make_optimizer(self, parameters, scale=1.0):
        return torch.optim.NAdam(parameters, self.rate * scale)

    def batch(self, step, train=True):
        y = self.randint(self.classes, self.batch_size)
        x = self.randn(self.batch_size, 24, 3)
        ball = x / x.norm(dim=2, keepdim=True)
        box = x / x.abs().max(2, keepdim=True).values
        rod = x * torch.tensor([1.2, 0.2, 0.2])
        x = torch.stack((ball, box, rod))[y, torch.arange(len(y))]
        return {"input": x + 0.03 * self.randn(*x.shape), "labels": y}


class Triplets(Images):
    """Pictures of a class near each other: the hardest negatives, and a margin."""

    labels, rate, loss_op = None, 3e-3, "TripletMarginLoss"

    def build(self):
        self.data()
        self.model = Named(conv1=nn.Conv2d(1, 8, 3, stride=2), prelu1=nn.PReLU(),
                           conv2=nn.Conv2d(8, 12, 3), prelu2=nn.PReLU(), flat=nn.Flatten(),
                           fc=nn.Linear(12, 8))

    def losses(self, batch):
        z = F.normalize(self.model(batch["input"]), dim=1)
        apart = torch.cdist(z, z)
        same = batch["labels"][:, None] == batch["labels"]
        far = (apart - 9 * (~same).float()).max(1).values
        near = (apart + 9 * same.float()).min(1).values
        return {"loss": F.relu(far - near + 0.3).mean()}


class Siamese(Program):
    """Pairs that are alike or not, with a contrastive margin."""

    rate, loss_op, batch_size, optimizer = 0.02, "", 48, "sgd"

    def build(self):
        self.faces = self.randn(20, 12)
        self.model = Named(fc1=nn.Linear(12, 32), relu1=nn.ReLU(), fc2=nn.Linear(32, 16),
                           relu2=nn.ReLU(), fc3=nn.Linear(16, 4))

    def batch(self, step, train=True):
        a, b = self.randint(20, self.batch_size), self.randint(20, self.batch_size)
        same = torch.rand(self.batch_size, generator=self.random) < 0.5
        b = torch.where(same, a, b)
        return {"left": self.faces[a] + 0.3 * self.randn(len(a), 12),
                "right": self.faces[b] + 0.3 * self.randn(len(b), 12), "same": (a == b).float()}

    def losses(self, batch):
        apart = F.pairwise_distance(self.model(batch["left"]), self.model(batch["right"]))
        same = batch["same"]
        return {"loss": (same * apart ** 2 + (1 - same) * F.relu(1 - apart) ** 2).mean()}


# --- series and equations ------------------------------------------------------------------------


class Tcn(Program):
    """Dilated causal convolutions with weight norm predict the next value of two series."""

    labels, rate, loss_op, batch_size = "real", 4e-3, "L1Loss", 24

    def build(self):
        m = self.model = nn.Module()
        for i, dilation in enumerate((1, 2, 4)):
            m.add_module(f"conv{i}", weight_norm(nn.Conv1d(2 if i == 0 else 12, 12, 2,
                                                          dilation=dilation)))
            m.add_module(f"relu{i}", nn.ReLU())
        m.drop, m.out = nn.Dropout(0.05), nn.Conv1d(12, 2, 1)

        def forward(x):
            for i, dilation in enumerate((1, 2, 4)):
                y = getattr(m, f"relu{i}")(getattr(m, f"conv{i}")(F.pad(x, (dilation, 0))))
                x = y if i == 0 else x + m.drop(y)
            return m.out(x)

        m.forward = forward

    def batch(self, step, train=True):
        t = 20 * torch.rand(self.batch_size, 1, generator=self.random) + 0.3 * torch.arange(25)
        x = torch.stack((torch.sin(t), 0.6 * torch.sin(2 * t + 1) + 0.3 * torch.cos(t)), 1)
        x = x + 0.03 * self.randn(*x.shape)
        return {"input": x[:, :, :-1].contiguous(), "targets": x[:, :, 1:].contiguous()}

    def losses(self, batch):
        made = self.model.forward(batch["input"])
        self.note("loss_input_0", made, op="", role="input", module="loss")
        return {"loss": F.l1_loss(made, batch["targets"])}


class Physics(Program):
    """A damped wave from its equation and its beginning alone."""

    rate, loss_op, batch_size, steps = 3e-3, "", 64, 200

    def build(self):
        self.model = Named(fc1=nn.Linear(1, 32), tanh1=nn.Tanh(), fc2=nn.Linear(32, 32),
                           tanh2=nn.Tanh(), fc3=nn.Linear(32, 1))

    def batch(self, step, train=True):
        return {"times": 2 * torch.rand(self.batch_size, 1, generator=self.random)}

    def losses(self, batch):
        t = batch["times"].clone().requires_grad_()
        x = self.model(t)
        v = torch.autograd.grad(x.sum(), t, create_graph=True)[0]
        a = torch.autograd.grad(v.sum(), t, create_graph=True)[0]
        t0 = torch.zeros(1, 1, requires_grad=True)
        x0 = self.model(t0)
        v0 = torch.autograd.grad(x0.sum(), t0, create_graph=True)[0]
        return {"equation_loss": 0.05 * (a + 0.8 * v + 9 * x).pow(2).mean(),
                "boundary_loss": (x0 - 1).pow(2).mean() + 0.2 * v0.pow(2).mean()}


class Quantiles(Tables):
    """The 10th, 50th and 90th percentile of a skewed target, with Adagrad."""

    rate, loss_op, optimizer, batch_size = 0.05, "", "adagrad", 64

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(10, 24), elu=nn.ELU(), fc2=nn.Linear(24, 3))

    def make_optimizer(self, parameters, scale=1.0):
        return torch.optim.Adagrad(parameters, self.rate * scale)

    def batch(self, step, train=True):
        made = super().batch(step, train)
        skew = -torch.rand(len(made["input"]), 1, generator=self.random).clamp(min=1e-6).log()
        return {**made, "targets": 2 * made["targets"] + 0.5 * skew}

    def losses(self, batch):
        made = self.model(batch["input"])
        self.note("loss_input_0", made, op="", role="input", module="loss")
        off = batch["targets"] - made
        share = torch.tensor([0.1, 0.5, 0.9])
        return {"loss": torch.maximum(share * off, (share - 1) * off).mean()}
