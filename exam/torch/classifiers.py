"""Families of classifiers, without sequences."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from data import Classes, Images, Named
from loop import Program


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
