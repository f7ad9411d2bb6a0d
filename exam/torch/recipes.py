"""Families whose ways of training differ from those of the others."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from architectures import Epochs
from data import Classes, Images, Named, Tables
from loop import Program

# --- losses --------------------------------------------------------------------------------------


class Ranking(Program):
    """What a user looked at should rank above what is drawn: embeddings, with Adagrad."""

    rate, loss_op, optimizer, batch_size, rates = 0.3, "", "adagrad", 128, (0.5, 1.0)

    def build(self):
        self.likes = (self.randn(60, 4) @ self.randn(4, 90)).softmax(1)
        m = self.model = nn.Module()
        m.users, m.items, m.bias = nn.Embedding(60, 8), nn.Embedding(90, 8), nn.Embedding(90, 1)
        for part in (m.users, m.items, m.bias):
            nn.init.normal_(part.weight, 0.0, 0.1)

    def make_optimizer(self, parameters, scale=1.0):
        return torch.optim.Adagrad(parameters, self.rate * scale, weight_decay=1e-5)

    def batch(self, step, train=True):
        users = self.randint(60, self.batch_size)
        seen = torch.multinomial(self.likes[users], 1, generator=self.random)[:, 0]
        return {"users": users, "seen": seen, "drawn": self.randint(90, self.batch_size)}

    def score(self, users, items):
        m = self.model
        return (m.users(users) * m.items(items)).sum(1) + m.bias(items)[:, 0]

    def losses(self, batch):
        above = self.score(batch["users"], batch["seen"]) - self.score(batch["users"],
                                                                      batch["drawn"])
        return {"loss": -F.logsigmoid(above).mean()}


class TopicTags(Epochs):
    """Several rare tags for a bag of words: weights of the positives, with RMSprop."""

    rate, loss_op, optimizer, batch_size, eval_every = 3e-3, "BCEWithLogitsLoss", "rmsprop", 32, 40
    samples, tests, steps = 2400, 480, 160

    def build(self):
        self.topics = (self.randn(6, 50).exp() * 0.05).clamp(max=0.7)
        self.model = Named(fc1=nn.Linear(50, 32), relu=nn.ReLU(), drop=nn.Dropout(0.2),
                           fc2=nn.Linear(32, 6))

    def sample(self, count):
        tags = (torch.rand(count, 6, generator=self.random) < 0.15).float()
        absent = ((1 - self.topics).log()[None] * tags[:, :, None]).sum(1).exp() * 0.97
        words = (torch.rand(count, 50, generator=self.random) > absent).float()
        return {"input": words, "labels": tags}

    def losses(self, batch):
        scores = self.model(batch["input"])
        self.note("loss_input_0", scores, op="", role="input", module="loss")
        return {"loss": F.binary_cross_entropy_with_logits(
            scores, batch["labels"], pos_weight=torch.full((6,), 5.0))}


class Grades(Program):
    """Ordered classes: one score, and a threshold between each two grades."""

    rate, loss_op, optimizer, batch_size = 0.05, "", "sgd", 48

    def build(self):
        self.worth = self.randn(12)
        m = self.model = nn.Module()
        m.fc1, m.act, m.fc2 = nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1, bias=False)
        m.borders = nn.Parameter(torch.linspace(-1.5, 1.5, 4))

    def batch(self, step, train=True):
        x = self.randn(self.batch_size, 12)
        value = x @ self.worth / 2 + 0.3 * self.randn(len(x))
        return {"input": x, "grades": (value[:, None] > torch.tensor([-2., -.7, .7, 2.])).sum(1)}

    def losses(self, batch):
        m = self.model
        above = m.fc2(m.act(m.fc1(batch["input"]))) - m.borders
        goal = (batch["grades"][:, None] > torch.arange(4)).float()
        return {"loss": F.binary_cross_entropy_with_logits(above, goal)}


class Detector(Images):
    """Where a bright square is, and what it is: focal loss, boxes, classes."""

    labels, rate, size, optimizer = None, 4e-3, 12, "adamw"

    def build(self):
        m = self.model = nn.Module()
        m.body = Named(conv1=nn.Conv2d(1, 8, 3, padding=1), bn1=nn.BatchNorm2d(8),
                       act1=nn.LeakyReLU(0.1), pool1=nn.MaxPool2d(2),
                       conv2=nn.Conv2d(8, 16, 3, padding=1), bn2=nn.BatchNorm2d(16),
                       act2=nn.LeakyReLU(0.1), pool2=nn.MaxPool2d(2))
        m.score, m.box, m.kind = nn.Conv2d(16, 1, 1), nn.Conv2d(16, 2, 1), nn.Conv2d(16, 2, 1)
        nn.init.constant_(m.score.bias, -2.0)

    def batch(self, step, train=True):
        n = self.batch_size
        at, kind = 1 + self.randint(10, n, 2), self.randint(2, n)
        rows = torch.arange(12)
        near = (rows[None, :, None] - at[:, :1, None]).abs() + \
            (rows[None, None] - at[:, 1:, None]).abs() * 1
        shape = torch.where(kind[:, None, None] == 0, (near <= 1).float(), (near == 1) * 1.5)
        return {"input": (shape + 0.2 * self.randn(n, 12, 12))[:, None], "places": at,
                "kinds": kind}

    def losses(self, batch):
        m, n = self.model, len(batch["places"])
        x = m.body(batch["input"])
        cell = batch["places"] // 4
        rows = torch.arange(n)
        goal = torch.zeros(n, 3, 3).index_put((rows, cell[:, 0], cell[:, 1]), torch.ones(n))
        score = m.score(x)[:, 0]
        plain = F.binary_cross_entropy_with_logits(score, goal, reduction="none")
        focal = ((1 - (-plain).exp()) ** 2 * plain).sum() / n
        box = m.box(x)[rows, :, cell[:, 0], cell[:, 1]]
        kind = m.kind(x)[rows, :, cell[:, 0], cell[:, 1]]
        return {"object_loss": focal,
                "box_loss": F.smooth_l1_loss(box, batch["places"] / 4 - cell - 0.4),
                "class_loss": F.cross_entropy(kind, batch["kinds"])}


# --- teachers ------------------------------------------------------------------------------------


class Taught(Classes):
    """A student, its labels, and a teacher's scores at a temperature; the teacher is frozen."""

    rate, noise, labels, rates = 3e-3, 1.4, "classes", (0.5, 1.0)

    def build(self):
        self.data()
        m = self.model = nn.Module()
        m.teacher = Named(fc1=nn.Linear(16, 48), relu=nn.ReLU(), fc2=nn.Linear(48, self.classes))
        m.student = Named(fc1=nn.Linear(16, 20), relu=nn.ReLU(), fc2=nn.Linear(20, self.classes))
        learner = torch.optim.Adam(m.teacher.parameters(), 1e-2)
        for _ in range(80):
            made = self.batch(0)
            learner.zero_grad()
            F.cross_entropy(m.teacher(made["input"]), made["labels"]).backward()
            learner.step()
        m.teacher.zero_grad()
        m.teacher.requires_grad_(False)

    def predict(self, batch):
        return self.model.student(batch["input"])

    def losses(self, batch):
        with torch.no_grad():
            told = self.model.teacher(batch["input"])
        scores = self.predict(batch)
        self.note("loss_input_0", scores, op="", role="input", module="loss")
        soft = F.kl_div((scores / 4).log_softmax(1), (told / 4).softmax(1), reduction="batchmean")
        return {"hard_loss": 0.3 * F.cross_entropy(scores, batch["labels"]),
                "soft_loss": 0.7 * 16 * soft}


class MeanTeacher(Images):
    """Few labels: a teacher that is the mean of the student's past, and agreement with it."""

    labels, optimizer, rate, batch_size = None, "sgd", 0.03, 32

    def build(self):
        self.data()
        m = self.model = nn.Module()
        m.student = Named(conv=nn.Conv2d(1, 8, 3), relu=nn.ReLU(), pool=nn.MaxPool2d(2),
                          flat=nn.Flatten(), drop=nn.Dropout(0.2), fc=nn.Linear(72, self.classes))
        m.teacher = copy.deepcopy(m.student)
        m.teacher.requires_grad_(False)
        self.seen = 0

    def losses(self, batch):
        x, y = batch["input"], batch["labels"][:8]
        scores = self.model.student(x)
        with torch.no_grad():
            told = self.model.teacher(x + 0.1 * self.randn(*x.shape)).softmax(1)
        self.seen += 1
        return {"label_loss": F.cross_entropy(scores[:8], y),
                "agreement_loss": min(1.0, self.seen / 60) * 3 * F.mse_loss(scores.softmax(1), told)}

    def begin_step(self, step):
        with torch.no_grad():
            keep = min(1 - 1 / (step + 1), 0.97)
            for slow, p in zip(self.model.teacher.parameters(), self.model.student.parameters()):
                slow.lerp_(p, 1 - keep)


class Adapter(nn.Module):
    """A frozen layer and a product of two thin ones, of which the second is zero at first."""

    def __init__(self, base, rank):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_a = nn.Linear(base.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x):
        return self.base(x) + 2.0 * self.lora_b(self.lora_a(x))


class LowRank(Classes):
    """A trained network whose layers are frozen; adapters of low rank learn new classes."""

    rate, optimizer, options, labels = 5e-3, "adamw", {"weight_decay": 0.01}, "classes"

    def build(self):
        self.data()
        fc1, fc2, fc3 = nn.Linear(16, 48), nn.Linear(48, 48), nn.Linear(48, self.classes)
        self.model = Named(fc1=fc1, relu1=nn.ReLU(), fc2=fc2, relu2=nn.ReLU(), fc3=fc3)
        learner = torch.optim.Adam(self.model.parameters(), 5e-3)
        for _ in range(100):
            made = self.batch(0)
            learner.zero_grad()
            F.cross_entropy(self.model(made["input"]), made["labels"]).backward()
            learner.step()
        self.centers = self.centers + 3.0 * self.randn(self.classes, self.width)
        self.model = Named(fc1=Adapter(fc1, 3), relu1=nn.ReLU(), fc2=Adapter(fc2, 3),
                           relu2=nn.ReLU(), fc3=Adapter(fc3, 3))
        for p in self.model.parameters():
            p.grad = None


# --- regularization and schedules ----------------------------------------------------------------


class DropPath(nn.Module):
    def __init__(self, width, keep, random):
        super().__init__()
        self.norm, self.fc1, self.act = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU()
        self.fc2 = nn.Linear(2 * width, width)
        self.keep, self.random = keep, random

    def forward(self, x):
        if self.training and torch.rand(1, generator=self.random).item() > self.keep:
            return x
        y = self.fc2(self.act(self.fc1(self.norm(x))))
        return x + (y / self.keep if self.training else y)


class StochasticDepth(Classes):
    """Blocks that are left out now and then, so that they have no gradient at that step;
    the learning rate falls in steps."""

    optimizer, rate, options = "sgd", 0.05, {"nesterov": True, "weight_decay": 5e-4}
    eval_every = 40

    def build(self):
        self.data()
        self.model = Named(stem=nn.Linear(16, 24), **{
            f"block{i}": DropPath(24, 1 - 0.1 * i, self.random) for i in range(1, 4)},
            norm=nn.LayerNorm(24), head=nn.Linear(24, self.classes))

    def make_schedule(self):
        return torch.optim.lr_scheduler.MultiStepLR(self.optimizers[0], [60, 90], 0.1)

    def losses(self, batch):
        scores = self.predict(batch)
        self.note("loss_input_0", scores, op="", role="input", module="loss")
        return {"loss": F.cross_entropy(scores, batch["labels"], label_smoothing=0.1)}


class MixUp(Images):
    """Pictures and labels that are mixed in pairs; one cycle of the learning rate."""

    optimizer, rate, options = "sgd", 0.05, {"weight_decay": 5e-4}

    def build(self):
        self.data()
        self.model = Named(conv1=nn.Conv2d(1, 8, 3), bn1=nn.BatchNorm2d(8), relu1=nn.ReLU(),
                           conv2=nn.Conv2d(8, 12, 3, stride=2), bn2=nn.BatchNorm2d(12),
                           relu2=nn.ReLU(), flat=nn.Flatten(), fc=nn.Linear(48, self.classes))

    def make_schedule(self):
        return torch.optim.lr_scheduler.OneCycleLR(self.optimizers[0], 2 * self.rate,
                                                   total_steps=self.steps + 1)

    def losses(self, batch):
        x, y = batch["input"], batch["labels"]
        share = 0.5 + 0.5 * torch.rand(1, generator=self.random).item()
        order = torch.randperm(len(x), generator=self.random)
        scores = self.predict({**batch, "input": share * x + (1 - share) * x[order]})
        self.note("loss_input_0", scores, op="", role="input", module="loss")
        return {"loss": share * F.cross_entropy(scores, y) +
                (1 - share) * F.cross_entropy(scores, y[order])}


class Lion(torch.optim.Optimizer):
    """Each update has the size of the learning rate: the sign of a mean."""

    def __init__(self, parameters, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                mean = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                b1, b2 = group["betas"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((b1 * mean + (1 - b1) * p.grad).sign(), alpha=-group["lr"])
                mean.lerp_(p.grad, 1 - b2)


class Signs(Classes):
    """Lion, and a learning rate that goes up and down in a triangle."""

    optimizer, rate, rates, width = "lion", 2e-3, (0.5, 1.0), 24
    eval_every = 40

    def build(self):
        self.data()
        self.model = Named(fc1=nn.Linear(24, 48), norm1=nn.BatchNorm1d(48), relu1=nn.ReLU(),
                           fc2=nn.Linear(48, 32), relu2=nn.ReLU(),
                           fc3=nn.Linear(32, self.classes))

    def make_optimizer(self, parameters, scale=1.0):
        return Lion(parameters, self.rate * scale, weight_decay=0.1)

    def make_schedule(self):
        return torch.optim.lr_scheduler.CyclicLR(self.optimizers[0], self.rate / 5, self.rate,
                                                 step_size_up=20, cycle_momentum=False)


class Averaged(Tables):
    """The mean of the weights of the last third of training, as a copy within the model."""

    optimizer, rate, batch_size = "sgd", 0.03, 48

    def build(self):
        self.data()
        m = self.model = nn.Module()
        m.net = Named(fc1=nn.Linear(10, 24), relu1=nn.ReLU(), fc2=nn.Linear(24, 24),
                      relu2=nn.ReLU(), fc3=nn.Linear(24, 1))
        m.swa = copy.deepcopy(m.net).requires_grad_(False)
        self.count = 0

    def predict(self, batch):
        return self.model.net(batch["input"])

    def make_schedule(self):
        return torch.optim.swa_utils.SWALR(self.optimizers[0], self.rate / 3, 10)

    def begin_step(self, step):
        if step >= 2 * self.steps // 3:
            self.count += 1
            with torch.no_grad():
                for mean, p in zip(self.model.swa.parameters(), self.model.net.parameters()):
                    mean.lerp_(p, 1 / self.count)


class HalfPrecision(Images):
    """bfloat16 by autocast, with gradients of four batches and a limit on their norm."""

    optimizer, rate, accumulate, batch_size, clip, steps = "adamw", 3e-3, 4, 16, 1.0, 90

    def build(self):
        self.data()
        self.model = Named(conv1=nn.Conv2d(1, 8, 3), relu1=nn.ReLU(), conv2=nn.Conv2d(8, 12, 3),
                           relu2=nn.ReLU(), flat=nn.Flatten(), fc1=nn.Linear(192, 32),
                           relu3=nn.ReLU(), fc2=nn.Linear(32, self.classes))

    def batch(self, step, train=True):
        made = super().batch(step, train)
        return {**made, "input": made["input"] + 0.8 * self.randn(*made["input"].shape)}

    def losses(self, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return super().losses(batch)


# --- agents and players --------------------------------------------------------------------------


class PolicyGradient(Program):
    """A cart on a line, pushed to its middle: returns of episodes, and an entropy bonus."""

    rate, batch_size, rates, steps = 5e-3, 24, (0.5, 1.0), 150

    def build(self):
        self.model = Named(fc1=nn.Linear(2, 24), tanh=nn.Tanh(), fc2=nn.Linear(24, 3))

    def batch(self, step, train=True):
        n = self.batch_size
        at, speed = 2 * torch.rand(2, n, generator=self.random) - 1
        states, actions, rewards = [], [], []
        for _ in range(12):
            state = torch.stack((at, speed), 1)
            with torch.no_grad():
                shares = self.model.fc2(torch.tanh(self.model.fc1(state))).softmax(1)
            action = torch.multinomial(shares, 1, generator=self.random)[:, 0]
            speed = 0.9 * speed + 0.2 * (action - 1)
            at = at + 0.3 * speed
            states.append(state)
            actions.append(action)
            rewards.append(-at.abs())
        gain = torch.stack(rewards).flip(0).cumsum(0).flip(0)
        gain = (gain - gain.mean(1, keepdim=True)) / (gain.std() + 1e-6)
        return {"input": torch.cat(states), "actions": torch.cat(actions),
                "returns": gain.reshape(-1)}

    def losses(self, batch):
        choice = torch.distributions.Categorical(logits=self.model(batch["input"]))
        return {"policy_loss": -(choice.log_prob(batch["actions"]) * batch["returns"]).mean(),
                "entropy_loss": -0.01 * choice.entropy().mean()}


class WganGp(Program):
    """A critic whose gradient is held to length 1, and a generator."""

    rate, batch_size, rates, optimizer = 2e-3, 48, (0.5, 1.0), "adam"
    options = {"betas": (0.0, 0.9)}

    def build(self):
        m = self.model = nn.Module()
        m.generator = Named(fc1=nn.Linear(4, 24), relu1=nn.ReLU(), fc2=nn.Linear(24, 24),
                            relu2=nn.ReLU(), fc3=nn.Linear(24, 2))
        m.critic = Named(fc1=nn.Linear(2, 24), leaky1=nn.LeakyReLU(0.2), fc2=nn.Linear(24, 24),
                         leaky2=nn.LeakyReLU(0.2), fc3=nn.Linear(24, 1))

    def make_optimizers(self):
        self.optimizers = [self.make_optimizer(self.model.critic.parameters()),
                           self.make_optimizer(self.model.generator.parameters())]

    def batch(self, step, train=True):
        corner = self.randint(4, self.batch_size).float() * math.pi / 2
        real = torch.stack((corner.cos(), corner.sin()), 1) + 0.1 * self.randn(self.batch_size, 2)
        return {"input": real, "noise": self.randn(self.batch_size, 4)}

    def judge_loss(self, batch):
        m, real = self.model, batch["input"]
        fake = m.generator(batch["noise"]).detach()
        share = torch.rand(len(real), 1, generator=self.random)
        between = (share * real + (1 - share) * fake).requires_grad_()
        slope = torch.autograd.grad(m.critic(between).sum(), between, create_graph=True)[0]
        return {"critic_loss": m.critic(fake).mean() - m.critic(real).mean(),
                "penalty_loss": 10 * (slope.norm(dim=1) - 1).pow(2).mean()}

    def make_loss(self, batch):
        return {"generator_loss": -self.model.critic(self.model.generator(batch["noise"])).mean()}

    def phases(self):
        judge, make = self.optimizers
        return [(judge, self.judge_loss), (make, self.make_loss)]
