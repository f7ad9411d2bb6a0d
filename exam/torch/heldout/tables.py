"""Families with rows of numbers."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from data import Classes, Named, Tables
from loop import Program


class Census(Program):
    """Categories as embeddings beside numbers with batch norm; one cycle of the rate."""

    rate, loss_op, batch_size, eval_every, traits = 5e-3, "BCEWithLogitsLoss", 48, 50, \
        "floats one norm dropout"
    sizes, steps = (12, 8, 30), 150

    def build(self):
        m = self.model = nn.Module()
        m.jobs, m.states, m.towns = (nn.Embedding(n, 4) for n in self.sizes)
        m.norm, m.drop = nn.BatchNorm1d(4), nn.Dropout(0.1)
        m.fc1, m.relu1, m.fc2 = nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 1)
        self.worth = [self.randn(n) for n in self.sizes]
        self.slopes = self.randn(4)

    def batch(self, step, train=True):
        n = self.batch_size
        rows = {k: self.randint(size, n) for k, size in zip(("jobs", "states", "towns"), self.sizes)}
        x = torch.cat((40 + 12 * self.randn(n, 1), 10 * self.randn(n, 1).exp(), self.randn(n, 2)), 1)
        score = sum(w[rows[k]] for w, k in zip(self.worth, rows))
        score = score + ((x - x.mean(0)) / (x.std(0) + 1e-6)) @ self.slopes
        return {**rows, "numbers": x, "incomes": (score + 0.5 * self.randn(n) > 0.5).float()}

    def losses(self, batch):
        m = self.model
        parts = [m.jobs(batch["jobs"]), m.states(batch["states"]), m.towns(batch["towns"]),
                 m.norm(batch["numbers"])]
        scores = m.fc2(m.relu1(m.fc1(m.drop(torch.cat(parts, 1)))))[:, 0]
        self.note("loss_input_0", scores, op="", role="input", module="loss")
        return {"loss": F.binary_cross_entropy_with_logits(scores, batch["incomes"])}

    def make_schedule(self):
        return torch.optim.lr_scheduler.OneCycleLR(self.optimizers[0], 2 * self.rate,
                                                   total_steps=self.steps + 1)


class Clicks(Program):
    """A factorisation machine of many rare fields, with large batches."""

    rate, loss_op, batch_size, batches, traits = 2e-2, "BCEWithLogitsLoss", 512, (1, 2), "one"
    optimizer, steps = "adam", 120

    def build(self):
        m = self.model = nn.Module()
        m.linear, m.factors = nn.Embedding(160, 1), nn.Embedding(160, 4)
        m.bias = nn.Parameter(torch.zeros(1))
        nn.init.normal_(m.factors.weight, 0.0, 0.1)
        nn.init.zeros_(m.linear.weight)
        self.habits = self.randn(160, 2)

    def batch(self, step, train=True):
        fields = self.randint(40, self.batch_size, 4) + 40 * torch.arange(4)
        h = self.habits[fields]
        score = (h.sum(1) ** 2 - (h ** 2).sum(1)).sum(1) / 2 - 1.0
        clicked = torch.rand(len(score), generator=self.random) < score.sigmoid()
        return {"fields": fields, "clicks": clicked.float()}

    def losses(self, batch):
        m = self.model
        v = m.factors(batch["fields"])
        pairs = 0.5 * (v.sum(1) ** 2 - (v ** 2).sum(1)).sum(1)
        scores = m.bias + m.linear(batch["fields"]).sum((1, 2)) + pairs
        return {"loss": F.binary_cross_entropy_with_logits(scores, batch["clicks"])}


class Counts(Tables):
    """How many came: a Poisson regression with plain gradient descent."""

    labels, rate, optimizer, loss_op, width = "real", 0.05, "sgd", "PoissonNLLLoss", 8
    options, traits, batch_size = {"momentum": 0.9}, "chain floats one signed input column", 32
    criterion = staticmethod(F.poisson_nll_loss)

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(8, 16), softplus=nn.Softplus(), fc2=nn.Linear(16, 1))

    def batch(self, step, train=True):
        x = self.randn(self.batch_size, self.width)
        mean = (torch.tanh(x @ self.a / 3) @ self.b / 1.5 + 0.7).exp()
        return {"input": x, "targets": torch.poisson(mean, generator=self.random)[:, None]}


class FullBatch(Tables):
    """All rows at every step, and L-BFGS."""

    rate, traits, steps, optimizer = 0.5, "chain floats full column", 60, "lbfgs"
    rates = (0.5, 1.0)

    def build(self):
        self.data()
        self.fixed = super().batch(0)
        self.fixed = {"input": self.randn(96, 10)}
        self.fixed["targets"] = (torch.tanh(self.fixed["input"] @ self.a / 3) @ self.b)[:, None]
        self.model = Named(fc1=nn.Linear(10, 16), tanh1=nn.Tanh(), fc2=nn.Linear(16, 1))

    def batch(self, step, train=True):
        return dict(self.fixed)

    def losses(self, batch):
        self.last = batch
        return super().losses(batch)

    def make_optimizer(self, parameters, scale=1.0):
        program = self

        class Closed(torch.optim.LBFGS):
            def step(self):
                def closure():
                    recorder, program.recorder = program.recorder, None
                    self.zero_grad()
                    loss = program.sign * program.loss_scale * sum(
                        program.losses(program.last).values())
                    loss.backward()
                    program.recorder = recorder
                    return loss
                return super().step(closure)

        return Closed(list(parameters), self.rate * scale, max_iter=2, history_size=10)


class Survival(Tables):
    """Who lives longer: the partial likelihood of Cox, with some who leave the study."""

    labels, rate, loss_op, batch_size, traits = None, 4e-3, "", 48, "chain floats one input relu"
    optimizer, options = "adamw", {"weight_decay": 0.01}

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(10, 24), relu=nn.ReLU(), drop=nn.Dropout(0.1),
                           risk=nn.Linear(24, 1, bias=False))

    def batch(self, step, train=True):
        x = self.randn(self.batch_size, 10)
        risk = 1.5 * torch.tanh(x @ self.a / 3) @ self.b
        u, v = torch.rand(2, len(x), generator=self.random).clamp(min=1e-4)
        life, leaves = -u.log() / risk.exp(), -3 * v.log()
        return {"input": x, "times": torch.minimum(life, leaves), "died": (life < leaves).float()}

    def losses(self, batch):
        order = batch["times"].argsort(descending=True)
        risk = self.model(batch["input"])[:, 0][order]
        died = batch["died"][order]
        return {"loss": -((risk - risk.logcumsumexp(0)) * died).sum() / died.sum().clamp(min=1)}


class Margins(Classes):
    """A linear machine with the hinge of several classes and a strong decay."""

    loss_op, optimizer, rate, traits = "MultiMarginLoss", "sgd", 0.02, "one floats drawn input own-loss lone"
    options, classes = {"momentum": 0.0, "weight_decay": 1e-2}, 6
    criterion = staticmethod(F.multi_margin_loss)

    def build(self):
        self.data()
        self.model = Named(linear=nn.Linear(16, self.classes))

    def make_schedule(self):
        return torch.optim.lr_scheduler.LambdaLR(self.optimizers[0], lambda step: 1 / (1 + step / 50))


class Uncertain(Tables):
    """Three tasks, whose weights are learnt (homoscedastic uncertainty)."""

    labels, rate, loss_op, traits, batch_size = None, 5e-3, "", "floats signed", 32

    def build(self):
        self.data()
        m = self.model = nn.Module()
        m.trunk, m.elu = nn.Linear(10, 24), nn.ELU()
        m.depth, m.kind, m.angle = nn.Linear(24, 1), nn.Linear(24, 3), nn.Linear(24, 2)
        m.log_vars = nn.Parameter(torch.zeros(3))

    def batch(self, step, train=True):
        x = self.randn(self.batch_size, 10)
        h = torch.tanh(x @ self.a / 3)
        return {"input": x, "depths": 3 * h @ self.b + 0.2 * self.randn(len(x)),
                "kinds": h[:, :3].argmax(1), "angles": torch.stack((h[:, 0], h[:, 1]), 1)}

    def losses(self, batch):
        m = self.model
        h = m.elu(m.trunk(batch["input"]))
        parts = torch.stack((F.mse_loss(m.depth(h)[:, 0], batch["depths"]),
                             F.cross_entropy(m.kind(h), batch["kinds"]),
                             F.l1_loss(m.angle(h), batch["angles"])))
        return {"loss": ((-m.log_vars).exp() * parts + m.log_vars).sum()}


class Mixture(Program):
    """An arm that can reach a place in two ways: a mixture of three bells."""

    rate, loss_op, batch_size, traits, steps = 5e-3, "", 64, "floats one signed", 180

    def build(self):
        m = self.model = nn.Module()
        m.fc1, m.tanh = nn.Linear(1, 24), nn.Tanh()
        m.share, m.mean, m.log_std = (nn.Linear(24, 3) for _ in range(3))

    def batch(self, step, train=True):
        y = 2 * torch.rand(self.batch_size, 1, generator=self.random) - 1
        x = y + 0.5 * (4 * y).sin() + 0.05 * self.randn(*y.shape)
        return {"input": x, "angles": y}

    def losses(self, batch):
        m = self.model
        h = m.tanh(m.fc1(batch["input"]))
        std = m.log_std(h).exp()
        each = -0.5 * ((batch["angles"] - m.mean(h)) / std) ** 2 - std.log() - 0.9189
        return {"loss": -(m.share(h).log_softmax(1) + each).logsumexp(1).mean()}


class Hyper(Program):
    """A network that writes the weights of another one, for each task."""

    rate, loss_op, batch_size, traits, steps = 4e-3, "MSELoss", 16, "floats one", 200

    def build(self):
        m = self.model = nn.Module()
        m.tasks, m.fc, m.relu = nn.Embedding(6, 6), nn.Linear(6, 20), nn.ReLU()
        m.weights = nn.Linear(20, 8 + 8 + 8 + 1)
        self.waves = self.randn(6, 2)

    def batch(self, step, train=True):
        task = self.randint(6, self.batch_size)
        x = 2 * torch.rand(self.batch_size, 10, generator=self.random) - 1
        a, b = self.waves[task].split(1, 1)
        return {"tasks": task, "input": x, "goals": a * (3 * x).sin() + b * x}

    def losses(self, batch):
        m = self.model
        w = m.weights(m.relu(m.fc(m.tasks(batch["tasks"]))))
        a, b, c, d = w.split((8, 8, 8, 1), 1)
        h = torch.tanh(2 * batch["input"][:, :, None] * a[:, None] + b[:, None])
        return {"loss": F.mse_loss((h * c[:, None]).sum(2) + d, batch["goals"])}


class Noisy(Classes):
    """A deep narrow net that is helped by noise in the gradients, which fades (NoisyGrad)."""

    traits, optimizer, rate, options = "chain one floats drawn input noisy", "sgd", 0.03, {"momentum": 0.9}
    eval_every, steps = 60, 150

    def build(self):
        self.data()
        sizes = (16, 20, 20, 20)
        self.model = Named(**{name: part for i in range(3) for name, part in (
            (f"fc{i}", nn.Linear(sizes[i], sizes[i + 1])), (f"act{i}", nn.ELU()))},
            out=nn.Linear(20, self.classes))

    def other_backward(self, step):
        for p in self.model.parameters():
            if p.grad is not None:
                p.grad.add_(self.randn(*p.shape), alpha=0.05 / (1 + step) ** 0.55)


class Lookahead(Classes):
    """Fast weights take five steps; then slow ones follow them half of the way."""

    traits, rate, optimizer, options, noise = "chain one floats drawn input relu", 3e-3, "adam", {}, 1.5

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(16, 32), norm1=nn.LayerNorm(32), relu1=nn.ReLU(),
                           fc2=nn.Linear(32, 24), relu2=nn.ReLU(), fc3=nn.Linear(24, self.classes))

    def make_optimizer(self, parameters, scale=1.0):
        parameters = list(parameters)

        class Slow(torch.optim.Adam):
            count, slow = 0, [p.detach().clone() for p in parameters]

            def step(self):
                super().step()
                self.count += 1
                if self.count % 5 == 0:
                    with torch.no_grad():
                        for slow, p in zip(self.slow, parameters):
                            slow.lerp_(p, 0.5)
                            p.copy_(slow)

        return Slow(parameters, self.rate * scale, **self.options)


class RareFraud(Tables):
    """One row in twenty is fraud: the focal loss, and a bias that begins at its share."""

    labels, rate, loss_op, traits, batch_size = None, 4e-3, "", "chain floats one relu dropout", 64
    optimizer, eval_every = "adam", 40

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(10, 32), relu1=nn.ReLU(), drop=nn.Dropout(0.5),
                           fc2=nn.Linear(32, 16), relu2=nn.ReLU(), fc3=nn.Linear(16, 1))
        nn.init.constant_(self.model.fc3.bias, -math.log(19))

    def batch(self, step, train=True):
        y = (torch.rand(self.batch_size, generator=self.random) < 0.05).float()
        x = self.randn(self.batch_size, 10)
        return {"input": x + 1.2 * y[:, None] * self.a[:, 0], "labels": y[:, None]}

    def losses(self, batch):
        scores, y = self.model(batch["input"]), batch["labels"]
        self.note("loss_input_0", scores, op="", role="input", module="loss")
        plain = F.binary_cross_entropy_with_logits(scores, y, reduction="none")
        weight = torch.where(y > 0, 0.75, 0.25) * (1 - (-plain).exp()) ** 2
        return {"loss": (weight * plain).mean()}


class Layerwise(torch.optim.Optimizer):
    """LARS: each layer's step is a share of the length of its weights."""

    def __init__(self, parameters, lr, momentum=0.9, weight_decay=1e-4, trust=0.02):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "decay": weight_decay,
                                      "trust": trust})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad + group["decay"] * p
                size, slope = p.norm(), g.norm()
                if p.dim() > 1 and size > 0 and slope > 0:
                    g = g * group["trust"] * size / slope
                kept = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                kept.mul_(group["momentum"]).add_(g, alpha=group["lr"])
                p.sub_(kept)


class HugeBatch(Classes):
    """A batch of 768, LARS and a warm-up."""

    traits, optimizer, rate, batch_size, batches = "chain one floats drawn relu input", "lars", 1.0, 768, (1,)
    noise, steps, rates = 1.5, 60, (0.5, 1.0)

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(16, 16), relu1=nn.ReLU(), fc2=nn.Linear(16, self.classes))

    def make_optimizer(self, parameters, scale=1.0):
        return Layerwise(parameters, self.rate * scale)

    def make_schedule(self):
        return torch.optim.lr_scheduler.LambdaLR(self.optimizers[0], lambda step: min(
            (step + 1) / 10, 0.5 + 0.5 * math.cos(math.pi * step / self.steps)))


class BayesLinear(nn.Module):
    """Weights are drawn from bells whose means and spreads are learnt."""

    def __init__(self, n, m, random):
        super().__init__()
        self.weight_mu = nn.Parameter(torch.randn(m, n) / math.sqrt(n))
        self.weight_rho = nn.Parameter(torch.full((m, n), -4.0))
        self.bias = nn.Parameter(torch.zeros(m))
        self.random = random

    def forward(self, x):
        std = F.softplus(self.weight_rho)
        noise = torch.randn(std.shape, generator=self.random)
        self.kl = (0.5 * (std ** 2 + self.weight_mu ** 2 - 1) - std.log()).sum()
        return F.linear(x, self.weight_mu + std * noise, self.bias)


class Bayes(Tables):
    """Bayes by backprop: the error and the distance from the prior."""

    labels, rate, loss_op, traits, batch_size, steps = None, 8e-3, "", "nolayers floats", 48, 160

    def build(self):
        self.data()
        self.model = Named(fc1=BayesLinear(10, 20, self.random), tanh=nn.Tanh(),
                           fc2=BayesLinear(20, 1, self.random))

    def losses(self, batch):
        made = self.model(batch["input"])
        return {"nll_loss": 5 * F.mse_loss(made, batch["targets"]),
                "kl_loss": (self.model.fc1.kl + self.model.fc2.kl) / 2000}


class Outliers(Tables):
    """A robust regression: Huber's loss, Rprop on all rows."""

    rate, loss_op, optimizer, traits = 1e-3, "HuberLoss", "rprop", "chain floats one full column"
    criterion, rates, steps = staticmethod(F.huber_loss), (1.0,), 120

    def build(self):
        self.data()
        x = self.randn(128, 10)
        y = torch.tanh(x @ self.a / 3) @ self.b + 0.1 * self.randn(128)
        y = torch.where(torch.rand(128, generator=self.random) < 0.08, y + 5 * self.randn(128), y)
        self.fixed = {"input": x, "targets": y[:, None]}
        self.model = Named(fc1=nn.Linear(10, 20), tanh=nn.Tanh(), fc2=nn.Linear(20, 1))

    def make_optimizer(self, parameters, scale=1.0):
        return torch.optim.Rprop(parameters, self.rate * scale)

    def batch(self, step, train=True):
        return dict(self.fixed)


FAMILIES = (Census, Clicks, Counts, FullBatch, Survival, Margins, Uncertain, Mixture, Hyper, Noisy,
            Lookahead, RareFraud, HugeBatch, Bayes, Outliers)
