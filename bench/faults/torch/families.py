"""Families of programs. Each is a whole program with data, a model, a loss and an optimizer; its
data are drawn, so nothing is fetched. A third of the families, chosen by a hash of the name, is
held out: rules are not changed by what they do there."""

import hashlib
import math

import torch
from torch import nn
from torch.nn import functional as F

from loop import Program


# --- data --------------------------------------------------------------------------------------


class Classes(Program):
    """Vectors around the centres of classes."""

    labels, classes, width, noise = "classes", 6, 16, 1.0

    def data(self):
        self.centres = 1.5 * self.randn(self.classes, self.width)

    def batch(self, step, train=True):
        y = self.randint(self.classes, self.batch_size)
        return {"input": self.centres[y] + self.noise * self.randn(len(y), self.width),
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


# --- classifiers -------------------------------------------------------------------------------


class MlpClassifier(Classes):
    eval_every = 40

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(16, 32), relu1=nn.ReLU(), fc2=nn.Linear(32, 32),
                           relu2=nn.ReLU(), fc3=nn.Linear(32, self.classes))


class TanhClassifier(Classes):
    optimizer, rate = "sgd", 0.03

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(16, 24), tanh1=nn.Tanh(), fc2=nn.Linear(24, 24),
                           tanh2=nn.Tanh(), fc3=nn.Linear(24, 24), tanh3=nn.Tanh(),
                           out=nn.Linear(24, self.classes))


class ManyClasses(Classes):
    classes, width, noise, batch_size, rate = 1000, 16, 0.3, 64, 5e-3

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(16, 16), gelu=nn.GELU(), out=nn.Linear(16, 1000, False))


class SparseClassifier(Classes):
    """Wide, with biases below 0: most of its units rest for most inputs."""

    optimizer, rate = "sgd", 0.03

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(16, 96), relu1=nn.ReLU(), out=nn.Linear(96, self.classes))
        nn.init.constant_(self.model.fc1.bias, -1.5)


class DropoutClassifier(Classes):
    eval_every, optimizer, rate = 30, "adamw", 2e-3

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(16, 40), act1=nn.ReLU(), drop1=nn.Dropout(0.4),
                           fc2=nn.Linear(40, 24), act2=nn.ReLU(), drop2=nn.Dropout(0.2),
                           fc3=nn.Linear(24, self.classes))


class ConvNet(Images):
    eval_every, optimizer, rate = 40, "sgd", 0.02

    def build(self):
        self.data()
        self.model = Named(conv1=nn.Conv2d(1, 6, 3), bn1=nn.BatchNorm2d(6), relu1=nn.ReLU(),
                           conv2=nn.Conv2d(6, 8, 3), bn2=nn.BatchNorm2d(8), relu2=nn.ReLU(),
                           flat=nn.Flatten(), fc=nn.Linear(128, self.classes))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()

    def forward(self, x):
        return self.relu2(x + self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x))))))


class ResidualNet(Images):
    eval_every, optimizer, rate, options = 40, "sgd", 0.03, {"weight_decay": 1e-4}

    def build(self):
        self.data()
        self.model = Named(stem=nn.Conv2d(1, 8, 3, stride=2), block1=Block(8), block2=Block(8),
                           pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(),
                           fc=nn.Linear(8, self.classes))
        for block in (self.model.block1, self.model.block2):
            nn.init.zeros_(block.bn2.weight)

    def make_schedule(self):
        return torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizers[0], self.steps)


class WarmUp(Classes):
    optimizer, rate, eval_every = "adamw", 4e-3, 60

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(16, 32), act1=nn.SiLU(), norm=nn.LayerNorm(32),
                           fc2=nn.Linear(32, 32), act2=nn.SiLU(), out=nn.Linear(32, self.classes))

    def make_schedule(self):
        return torch.optim.lr_scheduler.LambdaLR(self.optimizers[0], lambda step: min(
            step / 30, 0.5 + 0.5 * math.cos(math.pi * max(step - 30, 0) / (self.steps - 30))))


class Restarts(Images):
    optimizer, rate = "sgd", 0.03

    def build(self):
        self.data()
        self.model = Named(conv=nn.Conv2d(1, 8, 3), relu=nn.ReLU(), flat=nn.Flatten(),
                           fc1=nn.Linear(288, 16), relu2=nn.ReLU(), fc2=nn.Linear(16, self.classes))

    def make_schedule(self):
        return torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(self.optimizers[0], 30)


class Accumulated(Classes):
    optimizer, rate, accumulate, batch_size = "sgd", 0.03, 4, 16

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(16, 32), relu1=nn.ReLU(), fc2=nn.Linear(32, 16),
                           relu2=nn.ReLU(), fc3=nn.Linear(16, self.classes))


class FineTuned(Images):
    """A trained backbone without gradients and a new last layer."""

    optimizer, rate, declare_gradients = "adam", 5e-3, True

    def build(self):
        self.data()
        self.model = Named(conv1=nn.Conv2d(1, 6, 3), relu1=nn.ReLU(), conv2=nn.Conv2d(6, 8, 3),
                           relu2=nn.ReLU(), flat=nn.Flatten(), head=nn.Linear(128, self.classes))
        for module in (self.model.conv1, self.model.conv2):
            for p in module.parameters():
                p.requires_grad_(False)


class Unfrozen(Classes):
    """Layers that are unfrozen one after the other, from the last one."""

    rate, declare_gradients = 3e-3, False

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(16, 32), relu1=nn.ReLU(), fc2=nn.Linear(32, 32),
                           relu2=nn.ReLU(), fc3=nn.Linear(32, self.classes))
        for layer in (self.model.fc1, self.model.fc2):
            layer.requires_grad_(False)

    def make_optimizers(self):
        self.optimizers = [self.make_optimizer(self.model.parameters())]

    def begin_step(self, step):
        if step == self.steps // 3:
            self.model.fc2.requires_grad_(True)
        if step == 2 * self.steps // 3:
            self.model.fc1.requires_grad_(True)


class UnfrozenByRate(Classes):
    """Layers with gradients whose group has a learning rate of 0 at first, on purpose."""

    optimizer, rate = "adam", 3e-3

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(16, 32), relu1=nn.ReLU(), fc2=nn.Linear(32, 32),
                           relu2=nn.ReLU(), fc3=nn.Linear(32, self.classes))

    def make_optimizers(self):
        self.optimizers = [torch.optim.Adam(
            [{"params": self.model.fc1.parameters(), "lr": 0.0},
             {"params": self.model.fc2.parameters(), "lr": 0.0},
             {"params": self.model.fc3.parameters()}], self.rate, **self.options)]

    def begin_step(self, step):
        if step == 30:
            self.optimizers[0].param_groups[1]["lr"] = self.rate
        if step == 60:
            self.optimizers[0].param_groups[0]["lr"] = self.rate / 2


class Distilled(Classes):
    """A student follows the scores of a frozen teacher."""

    loss_op, labels = "KLDivLoss", None

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(16, 24), relu1=nn.ReLU(), fc2=nn.Linear(24, self.classes))
        self.teacher = self.randn(16, self.classes)

    def losses(self, batch):
        student = self.model(batch["input"]).log_softmax(1)
        teacher = (batch["input"] @ self.teacher / 2).softmax(1)
        return {"loss": F.kl_div(student, teacher, reduction="batchmean")}


class Graph(Program):
    """A graph convolution over one graph: the same input at every step."""

    labels, rate = "classes", 1e-2

    def build(self):
        side = self.randint(4, 60)
        near = (side[:, None] == side[None]) & (self.randn(60, 60) > 0.8)
        near = (near | near.T).float() + torch.eye(60)
        self.spread = near / near.sum(1, keepdim=True)
        self.fixed = {"input": F.one_hot(side, 4).float() @ self.randn(4, 12) + self.randn(60, 12),
                      "labels": side}
        self.model = Named(fc1=nn.Linear(12, 16), relu1=nn.ReLU(), fc2=nn.Linear(16, 4))

    def batch(self, step, train=True):
        return dict(self.fixed)

    def predict(self, batch):
        x = self.model.relu1(self.spread @ self.model.fc1(batch["input"]))
        return self.spread @ self.model.fc2(x)


# --- sequences ---------------------------------------------------------------------------------


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


# --- regression and reconstruction ---------------------------------------------------------------


class Regression(Tables):
    eval_every = 60

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(10, 32), relu1=nn.ReLU(), fc2=nn.Linear(32, 32),
                           relu2=nn.ReLU(), fc3=nn.Linear(32, 1))


class LinearRegression(Tables):
    optimizer, rate, options = "sgd", 0.02, {"momentum": 0.0}

    def build(self):
        self.data()
        self.b2 = self.randn(10, 1)
        self.model = Named(linear=nn.Linear(10, 1))

    def batch(self, step, train=True):
        x = self.randn(self.batch_size, 10)
        return {"input": x, "targets": x @ self.b2 + 0.3 * self.randn(len(x), 1)}


class Curve(Program):
    """A smooth function, all points at every step."""

    labels, rate, target, loss_op = "real", 5e-3, "targets", "MSELoss"
    criterion = staticmethod(F.mse_loss)

    def build(self):
        x = torch.linspace(-2, 2, 64)[:, None]
        self.fixed = {"input": x, "targets": torch.sin(3 * x + self.randn(1))}
        self.model = Named(fc1=nn.Linear(1, 24), tanh1=nn.Tanh(), fc2=nn.Linear(24, 24),
                           tanh2=nn.Tanh(), fc3=nn.Linear(24, 1))

    def batch(self, step, train=True):
        return dict(self.fixed)


class Forecast(Program):
    """The next value of a series, by a plain recurrent net with clipped gradients."""

    labels, rate, clip, target, loss_op = "real", 4e-3, 0.5, "targets", "HuberLoss"
    criterion = staticmethod(F.huber_loss)

    def build(self):
        m = self.model = nn.Module()
        m.rnn, m.out = nn.RNN(1, 20, batch_first=True), nn.Linear(20, 1)
        m.forward = lambda x: m.out(m.rnn(x)[0][:, -1])

    def batch(self, step, train=True):
        t = 6 * torch.rand(self.batch_size, 1, generator=self.random) + 0.4 * torch.arange(13)
        x = torch.sin(t) + 0.5 * torch.sin(2.3 * t) + 0.05 * self.randn(self.batch_size, 13)
        return {"input": x[:, :-1, None].contiguous(), "targets": x[:, -1:].contiguous()}


class Autoencoder(Program):
    rate, loss_op, optimizer = 3e-3, "MSELoss", "adam"

    def build(self):
        self.basis = self.randn(4, 20)
        self.model = Named(enc1=nn.Linear(20, 16), relu1=nn.ReLU(), enc2=nn.Linear(16, 4),
                           dec1=nn.Linear(4, 16), relu2=nn.ReLU(), dec2=nn.Linear(16, 20))

    def batch(self, step, train=True):
        return {"input": self.randn(self.batch_size, 4) @ self.basis / 2 +
                0.05 * self.randn(self.batch_size, 20)}

    def losses(self, batch):
        made = self.model(batch["input"])
        self.note("loss_input_0", made, op="", role="input", module="loss")
        return {"loss": F.mse_loss(made, batch["input"])}


class Denoiser(Images):
    labels, rate, loss_op, optimizer = None, 0.05, "MSELoss", "sgd"

    def build(self):
        self.data()
        self.model = Named(conv1=nn.Conv2d(1, 8, 3, stride=2, padding=1), relu1=nn.ReLU(),
                           conv2=nn.Conv2d(8, 8, 3, padding=1), relu2=nn.ReLU(),
                           up=nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1))

    def batch(self, step, train=True):
        clean = self.patterns[self.randint(self.classes, self.batch_size)][:, None]
        return {"input": clean + 0.4 * self.randn(*clean.shape), "targets": clean}

    def losses(self, batch):
        return {"loss": F.mse_loss(self.model(batch["input"]), batch["targets"])}


class Segmenter(Images):
    """A label for each pixel."""

    labels, rate, loss_op = "pixels", 5e-3, "BCEWithLogitsLoss"

    def build(self):
        self.data()
        self.model = Named(conv1=nn.Conv2d(1, 8, 3, padding=1), bn1=nn.BatchNorm2d(8),
                           relu1=nn.ReLU(), conv2=nn.Conv2d(8, 8, 3, padding=1), relu2=nn.ReLU(),
                           out=nn.Conv2d(8, 1, 1))

    def batch(self, step, train=True):
        clean = self.patterns[self.randint(self.classes, self.batch_size)][:, None]
        return {"input": clean + 0.4 * self.randn(*clean.shape), "masks": (clean > 0.3).float()}

    def losses(self, batch):
        made = self.model(batch["input"])
        return {"loss": F.binary_cross_entropy_with_logits(made, batch["masks"])}


class Vae(Program):
    rate, loss_op = 4e-3, ""

    def build(self):
        self.basis = self.randn(4, 20)
        m = self.model = nn.Module()
        m.enc, m.relu1 = nn.Linear(20, 24), nn.ReLU()
        m.mean, m.log_var = nn.Linear(24, 3), nn.Linear(24, 3)
        m.dec1, m.relu2, m.dec2 = nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 20)

    batch = Autoencoder.batch

    def losses(self, batch):
        m, x = self.model, batch["input"]
        h = m.relu1(m.enc(x))
        mean, log_var = m.mean(h), m.log_var(h)
        z = mean + (0.5 * log_var).exp() * self.randn(*mean.shape)
        made = m.dec2(m.relu2(m.dec1(z)))
        kl = -0.5 * (1 + log_var - mean ** 2 - log_var.exp()).sum(1).mean()
        return {"reconstruction_loss": F.mse_loss(made, x, reduction="sum") / len(x),
                "kl_loss": kl}


class Flow(Program):
    """Two coupling layers; the negative log-likelihood goes below 0."""

    rate, loss_op = 3e-3, ""

    def build(self):
        m = self.model = nn.Module()
        for i in (1, 2, 3):
            m.add_module(f"net{i}", Named(fc1=nn.Linear(1, 16), tanh=nn.Tanh(),
                                          fc2=nn.Linear(16, 2)))

    def batch(self, step, train=True):
        x = 0.3 * self.randn(self.batch_size, 1)
        return {"input": torch.cat((x, x ** 2 * 2 + 0.03 * self.randn(len(x), 1)), 1)}

    def losses(self, batch):
        a, b = batch["input"].split(1, 1)
        log_det = 0.0
        for i in (1, 2, 3):
            s, t = getattr(self.model, f"net{i}")(a).split(1, 1)
            b = b * s.exp() + t
            log_det = log_det + s
            a, b = b, a
        return {"loss": (0.5 * (a ** 2 + b ** 2) + math.log(2 * math.pi) - log_det).mean()}


class TwoLosses(Classes):
    rate, loss_op = 3e-3, ""

    def build(self):
        self.data()
        self.value = self.randn(16, 1) / 4
        m = self.model = nn.Module()
        m.trunk, m.relu = nn.Linear(16, 32), nn.ReLU()
        m.classes, m.value = nn.Linear(32, self.classes), nn.Linear(32, 1)

    def batch(self, step, train=True):
        made = super().batch(step, train)
        return {**made, "targets": made["input"] @ self.value}

    def losses(self, batch):
        h = self.model.relu(self.model.trunk(batch["input"]))
        return {"class_loss": F.cross_entropy(self.model.classes(h), batch["labels"]),
                "value_loss": F.mse_loss(self.model.value(h), batch["targets"])}


class Contrast(Classes):
    """Two views of a sample should lie near each other, and far from the others."""

    labels, loss_op, rate = None, "", 3e-3

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(16, 32), relu=nn.ReLU(), fc2=nn.Linear(32, 8))

    def batch(self, step, train=True):
        x = super().batch(step, train)["input"]
        return {"view1": x + 0.3 * self.randn(*x.shape), "view2": x + 0.3 * self.randn(*x.shape)}

    def losses(self, batch):
        a = F.normalize(self.model(batch["view1"]), dim=1)
        b = F.normalize(self.model(batch["view2"]), dim=1)
        return {"loss": F.cross_entropy(a @ b.T / 0.2, torch.arange(len(a)))}


# --- two players and bootstrapped targets --------------------------------------------------------


class Gan(Program):
    rate, batch_size, rates = 1e-3, 32, (0.5, 1.0)

    def build(self):
        m = self.model = nn.Module()
        m.g = Named(fc1=nn.Linear(4, 24), relu=nn.ReLU(), fc2=nn.Linear(24, 2))
        m.d = Named(fc1=nn.Linear(2, 24), leaky=nn.LeakyReLU(0.2), fc2=nn.Linear(24, 1))

    def make_optimizers(self):
        self.optimizers = [self.make_optimizer(self.model.d.parameters()),
                           self.make_optimizer(self.model.g.parameters())]

    def batch(self, step, train=True):
        angle = 6.28 * torch.rand(self.batch_size, generator=self.random)
        real = torch.stack((angle.cos(), angle.sin()), 1) + 0.05 * self.randn(self.batch_size, 2)
        return {"input": real, "noise": self.randn(self.batch_size, 4)}

    def judge_loss(self, batch):
        fake = self.model.g(batch["noise"]).detach()
        real, made = self.model.d(batch["input"]), self.model.d(fake)
        return {"d_loss": F.softplus(-real).mean() + F.softplus(made).mean()}

    def make_loss(self, batch):
        return {"g_loss": F.softplus(-self.model.d(self.model.g(batch["noise"]))).mean()}

    def phases(self):
        return [(self.optimizers[0], self.judge_loss), (self.optimizers[1], self.make_loss)]


class Wasserstein(Gan):
    """Its losses are differences of scores, of any sign."""

    optimizer, rate = "rmsprop", 5e-4

    def judge_loss(self, batch):
        fake = self.model.g(batch["noise"]).detach()
        return {"critic_loss": self.model.d(fake).mean() - self.model.d(batch["input"]).mean()}

    def make_loss(self, batch):
        return {"generator_loss": -self.model.d(self.model.g(batch["noise"])).mean()}

    def begin_step(self, step):
        with torch.no_grad():
            for p in self.model.d.parameters():
                p.clamp_(-0.3, 0.3)


class ValueLearning(Program):
    """Q-learning: targets come from a copy of the network that follows now and then."""

    rate, loss_op, batch_size, rates = 2e-3, "SmoothL1Loss", 32, (0.5, 1.0)

    def build(self):
        m = self.model = nn.Module()
        for name in ("online", "target"):
            m.add_module(name, Named(fc1=nn.Linear(6, 32), relu1=nn.ReLU(), fc2=nn.Linear(32, 3)))
        m.target.load_state_dict(m.online.state_dict())
        m.target.requires_grad_(False)
        self.move, self.prize = self.randn(3, 6, 6) / 2.5, self.randn(6)

    def batch(self, step, train=True):
        s, a = self.randn(self.batch_size, 6), self.randint(3, self.batch_size)
        after = torch.tanh(torch.einsum("ni,nij->nj", s, self.move[a]))
        return {"input": s, "actions": a, "rewards": (after @ self.prize > 0.5).float() * 2,
                "after": after}

    def losses(self, batch):
        m = self.model
        q = m.online(batch["input"]).gather(1, batch["actions"][:, None])[:, 0]
        with torch.no_grad():
            goal = batch["rewards"] + 0.95 * m.target(batch["after"]).max(1).values
        return {"loss": F.smooth_l1_loss(q, goal)}

    def begin_step(self, step):
        if step % 20 == 0:
            self.model.target.load_state_dict(self.model.online.state_dict())


class ActorCritic(Program):
    """A policy gradient with a baseline: the policy's loss says nothing by itself."""

    rate, rates = 3e-3, (0.5, 1.0)

    def build(self):
        m = self.model = nn.Module()
        m.body, m.tanh = nn.Linear(6, 24), nn.Tanh()
        m.policy, m.value = nn.Linear(24, 3), nn.Linear(24, 1)
        self.good = self.randn(6, 3)

    def batch(self, step, train=True):
        return {"input": self.randn(self.batch_size, 6)}

    def losses(self, batch):
        m = self.model
        h = m.tanh(m.body(batch["input"]))
        choice = torch.distributions.Categorical(logits=m.policy(h))
        action = torch.multinomial(choice.probs.detach(), 1, generator=self.random)[:, 0]
        reward = (batch["input"] @ self.good).gather(1, action[:, None])[:, 0]
        gain = reward - m.value(h)[:, 0]
        return {"policy_loss": -(choice.log_prob(action) * gain.detach()).mean(),
                "value_loss": (gain ** 2).mean(), "entropy_loss": -0.01 * choice.entropy().mean()}


class HingeGan(Gan):
    """Alternating updates, with a hinge; the discriminator sees the squares too."""

    optimizer, rate = "adam", 1.5e-3

    def build(self):
        m = self.model = nn.Module()
        m.g = Named(fc1=nn.Linear(3, 20), tanh=nn.Tanh(), fc2=nn.Linear(20, 4))
        m.d = Named(fc1=nn.Linear(4, 32), relu=nn.ReLU(), fc2=nn.Linear(32, 1))
        self.mix = self.randn(2, 4)

    def batch(self, step, train=True):
        return {"input": torch.tanh(self.randn(self.batch_size, 2) @ self.mix),
                "noise": self.randn(self.batch_size, 3)}

    def judge_loss(self, batch):
        fake = self.model.g(batch["noise"]).detach()
        return {"d_loss": F.relu(1 - self.model.d(batch["input"])).mean() +
                F.relu(1 + self.model.d(fake)).mean()}

    def make_loss(self, batch):
        return {"g_loss": -self.model.d(self.model.g(batch["noise"])).mean()}


class TemporalDifference(Program):
    """The value of states; the targets follow slowly, and grow while it learns."""

    rate, loss_op, rates = 3e-3, "MSELoss", (0.5, 1.0)

    def build(self):
        m = self.model = nn.Module()
        m.value = Named(fc1=nn.Linear(5, 24), relu=nn.ReLU(), fc2=nn.Linear(24, 1))
        m.slow = Named(fc1=nn.Linear(5, 24), relu=nn.ReLU(), fc2=nn.Linear(24, 1))
        m.slow.load_state_dict(m.value.state_dict())
        m.slow.requires_grad_(False)
        self.turn = self.randn(5, 5) / 2

    def batch(self, step, train=True):
        s = self.randn(self.batch_size, 5)
        return {"input": s, "rewards": 1 + 0.3 * s[:, :1], "after": torch.tanh(s @ self.turn)}

    def losses(self, batch):
        with torch.no_grad():
            goal = batch["rewards"] + 0.97 * self.model.slow(batch["after"])
        return {"loss": F.mse_loss(self.model.value(batch["input"]), goal)}

    def begin_step(self, step):
        with torch.no_grad():
            for slow, p in zip(self.model.slow.parameters(), self.model.value.parameters()):
                slow.lerp_(p, 0.05)


class BernoulliVae(Program):
    """Pixels that are on or off; the weight of the divergence grows at the beginning."""

    rate, loss_op = 4e-3, ""

    def build(self):
        self.basis = 1.5 * self.randn(4, 24)
        m = self.model = nn.Module()
        m.enc, m.relu1, m.code = nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 6)
        m.dec1, m.relu2, m.dec2 = nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 24)
        self.beta = 0.0

    def begin_step(self, step):
        self.beta = min(1.0, step / 40)

    def batch(self, step, train=True):
        return {"input": (self.randn(self.batch_size, 4) @ self.basis > 0).float()}

    def losses(self, batch):
        m, x = self.model, batch["input"]
        mean, log_var = m.code(m.relu1(m.enc(x))).chunk(2, 1)
        made = m.dec2(m.relu2(m.dec1(mean + (0.5 * log_var).exp() * self.randn(*mean.shape))))
        kl = -0.5 * (1 + log_var - mean ** 2 - log_var.exp()).sum(1).mean()
        return {"reconstruction_loss": F.binary_cross_entropy_with_logits(
            made, x, reduction="sum") / len(x), "kl_loss": self.beta * kl}


class Prices(Tables):
    """Targets far from 0, with heavy tails."""

    rate, loss_op, batch_size = 5e-3, "SmoothL1Loss", 64
    criterion = staticmethod(F.smooth_l1_loss)

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(10, 32), norm=nn.BatchNorm1d(32), relu=nn.ReLU(),
                           fc2=nn.Linear(32, 1))

    def batch(self, step, train=True):
        made = super().batch(step, train)
        return {**made, "targets": 3 + (2 * made["targets"]).sinh() / 4}


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


FAMILIES = {c.__name__: c for c in (
    MlpClassifier, TanhClassifier, ManyClasses, SparseClassifier, DropoutClassifier, ConvNet,
    ResidualNet, WarmUp, Restarts, Accumulated, FineTuned, Unfrozen, UnfrozenByRate, Distilled,
    Graph, Lstm, Gru, Transformer, TiedTransformer, SkipGram, Ratings, Regression,
    LinearRegression, Curve, Forecast, Autoencoder, Denoiser, Segmenter, Vae, Flow, TwoLosses,
    Contrast, Gan, Wasserstein, ValueLearning, ActorCritic,
    HingeGan, TemporalDifference, BernoulliVae, Prices, Tagger)}


def held_out(name):
    """By a hash of the name, before anything was tried."""
    return hashlib.sha256(name.encode()).digest()[0] % 3 == 0
