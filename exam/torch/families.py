"""Families of programs. Each is a whole program with data, a model, a loss and an optimizer; its
data are drawn, so nothing is fetched."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from classifiers import (MlpClassifier, TanhClassifier, ManyClasses, SparseClassifier, DropoutClassifier,
    ConvNet, ResidualNet, WarmUp, Restarts, Accumulated, FineTuned, Unfrozen,
    UnfrozenByRate, Distilled, Graph)
import architectures
import recipes
from data import Classes, Images, Named, Tables
from loop import Program, show_batch
from sequences import (Lstm, Gru, Transformer, TiedTransformer, SkipGram, Ratings, Tagger)


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


class Replicas(Classes):
    """Two replicas with a batch each: the mean of their gradients, as in a distributed run."""

    replicas, reduce, same_batch = 2, True, False
    kinds = ("no-all-reduce", "replica-starts-otherwise", "same-batch-on-both", "rate-x100",
             "rate-x1000", "rate-/30000", "nan-in-gradient", "wrong-sign", "one-class")

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(16, 32), relu1=nn.ReLU(), fc2=nn.Linear(32, 24),
                           norm=nn.LayerNorm(24), relu2=nn.ReLU(),
                           fc3=nn.Linear(24, self.classes))
        self.other = copy.deepcopy(self.model)

    def make_optimizers(self):
        super().make_optimizers()
        self.second = self.make_optimizer(self.other.parameters())

    def losses(self, batch):
        self.first_batch = batch
        return super().losses(batch)

    def other_backward(self, step):
        recorder, self.recorder.replica = self.recorder, 1
        batch = self.first_batch if self.same_batch else self.batch(step)
        if self.plant.kind == "one-class":
            batch = self.plant.batch(step, batch)
        show_batch(recorder, batch)
        loss = F.cross_entropy(self.other(batch["input"]), batch["labels"])
        recorder.see("loss", loss, role="loss", op=self.loss_op)
        self.second.zero_grad()
        (self.sign * self.loss_scale * loss).backward()
        for p, q in zip(self.model.parameters(), self.other.parameters()):
            if self.reduce:
                p.grad = (p.grad + q.grad) / 2
                q.grad = p.grad.clone()
        for name, q in self.other.named_parameters():
            recorder.see(f"gradient/{name}", q.grad, role="gradient", step="backward")
        recorder.replica = 0

    def other_update(self, recorder):
        self.second.step()
        recorder.replica = 1
        for name, q in self.other.named_parameters():
            recorder.see(name, q, role="bias" if q.dim() < 2 and "bias" in name else "weight")
        recorder.replica = 0


FAMILIES = {c.__name__: c for c in (
    MlpClassifier, TanhClassifier, ManyClasses, SparseClassifier, DropoutClassifier, ConvNet,
    ResidualNet, WarmUp, Restarts, Accumulated, FineTuned, Unfrozen, UnfrozenByRate, Distilled,
    Graph, Lstm, Gru, Transformer, TiedTransformer, SkipGram, Ratings, Regression,
    LinearRegression, Curve, Forecast, Autoencoder, Denoiser, Segmenter, Vae, Flow, TwoLosses,
    Contrast, Gan, Wasserstein, ValueLearning, ActorCritic,
    HingeGan, TemporalDifference, BernoulliVae, Prices, Tagger, Replicas,
    architectures.MixtureOfExperts, architectures.MaskedWords, architectures.Translator,
    architectures.Speech, architectures.UNet, architectures.VisionTransformer,
    architectures.Diffusion, architectures.Citations, architectures.PointSet,
    architectures.Triplets, architectures.Siamese, architectures.Tcn, architectures.Physics,
    architectures.Quantiles, recipes.Ranking, recipes.TopicTags, recipes.Grades, recipes.Detector,
    recipes.Taught, recipes.MeanTeacher, recipes.LowRank, recipes.StochasticDepth, recipes.MixUp,
    recipes.Signs, recipes.Averaged, recipes.HalfPrecision, recipes.PolicyGradient,
    recipes.WganGp)}
