"""Whole programs with several losses or optimizers, most of them through one helper or one loop."""

import copy
import itertools

import torch
from torch import nn
from torch.nn import functional as F

from session import program
from single import generator


def mlp(*sizes, activation=nn.ReLU):
    made = []
    for a, b in zip(sizes, sizes[1:]):
        made += [nn.Linear(a, b), activation()]
    return nn.Sequential(*made[:-1])


def blobs(classes=4, size=12, count=1600):
    draw = generator(0)
    centers = 1.5 * torch.randn(classes, size, generator=draw)
    y = torch.arange(count) % classes
    return centers[y] + torch.randn(count, size, generator=draw), y


def moons(count):
    angle, side = 3.14 * torch.rand(count), torch.randint(0, 2, (count,)).float()
    x = torch.stack([angle.cos() + side - 0.5, angle.sin() * (1 - 2 * side) + side / 4], 1)
    return x + 0.05 * torch.randn(count, 2)


def distance(a, b):
    """Of two sets of points: the energy distance."""
    with torch.no_grad():
        return float(2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean())


class Forward(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 40), nn.Linear(40, 40), nn.Linear(40, 40)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x / (x.norm(dim=1, keepdim=True) + 1e-4)).relu()
        return x


@program("forward-forward", "", "inputs batches")
def forward_forward(s):
    """Each layer learns by itself: much activity for true pairs of input and label, little for others."""
    x, y = blobs()
    model = Forward()
    optimizers = [s.optimizer("Adam", layer.parameters(), 5e-3) for layer in model.layers]
    s.attach(model, optimizers)
    for given, labels in s.batches(x, y, s.batch(48), 160):
        wrong = (labels + torch.randint(1, 4, labels.shape)) % 4
        good, bad = (torch.cat([given, 3.0 * F.one_hot(one, 4)], 1) for one in (labels, wrong))
        model(good)  # what it does now
        for layer, optimizer in zip(model.layers, optimizers):
            good, bad = (layer(h.detach() / (h.detach().norm(dim=1, keepdim=True) + 1e-4)).relu()
                         for h in (good, bad))
            activity = [(h ** 2).mean(1) for h in (good, bad)]
            optimizer.zero_grad()
            loss = (F.softplus(1.0 - activity[0]) + F.softplus(activity[1] - 1.0)).mean()
            loss.backward()
            optimizer.step()


@program("ensemble-loop", "", "inputs targets batches classes relu")
def ensemble_loop(s):
    x, y = blobs()
    model = nn.ModuleList(mlp(12, 24, 24, 4) for _ in range(4))
    optimizers = [s.optimizer("Adam", one.parameters(), 3e-3) for one in model]
    s.attach(model, optimizers)
    for given, labels in s.batches(x, y, s.batch(32), 150):
        for one, optimizer in zip(model, optimizers):
            optimizer.zero_grad()
            F.cross_entropy(one(given), labels).backward()
            optimizer.step()


@program("mutual-learning", "", "inputs targets batches classes relu")
def mutual_learning(s):
    """Two students, each of which learns from the labels and from the other."""
    x, y = blobs()
    model = nn.ModuleDict({"left": mlp(12, 32, 4), "right": mlp(12, 16, 16, 4, activation=nn.Tanh)})
    optimizers = {name: s.optimizer("SGD", one.parameters(), 0.05, momentum=0.9)
                  for name, one in model.items()}

    def learn(name, given, labels, other):
        made = model[name](given)
        loss = F.cross_entropy(made, labels) + F.kl_div(
            made.log_softmax(1), other.detach().softmax(1), reduction="batchmean")
        optimizers[name].zero_grad()
        loss.backward()
        optimizers[name].step()
        return made

    s.attach(model, list(optimizers.values()))
    for given, labels in s.batches(x, y, s.batch(32), 160):
        made = learn("left", given, labels, model["right"](given))
        learn("right", given, labels, made)


class Exits(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([nn.Linear(12, 32), nn.Linear(32, 32), nn.Linear(32, 32)])
        self.exits = nn.ModuleList(nn.Linear(32, 4) for _ in range(3))
        self.relu = nn.ReLU()

    def forward(self, x):
        made = []
        for stage, leave in zip(self.stages, self.exits):
            x = self.relu(stage(x))
            made.append(leave(x))
        return made


@program("early-exits", "", "inputs targets batches classes")
def early_exits(s):
    """A loss at each exit, each with a backward pass of its own; one optimizer."""
    x, y = blobs()
    model = Exits()
    optimizer = s.optimizer("AdamW", model.parameters(), 3e-3)
    s.attach(model, optimizer)
    for given, labels in s.batches(x, y, s.batch(32), 160):
        optimizer.zero_grad()
        for i, made in enumerate(model(given)):
            (0.5 ** (2 - i) * F.cross_entropy(made, labels)).backward(retain_graph=i < 2)
        optimizer.step()


class Pair(nn.Module):
    def __init__(self, noise=6):
        super().__init__()
        self.g, self.d = mlp(noise, 48, 48, 2), mlp(2, 48, 48, 1, activation=lambda: nn.LeakyReLU(0.2))


@program("lazy-r1-gan", "", "")
def lazy_r1_gan(s):
    """Both players step through one helper; the penalty comes at every eighth step; an average plays."""
    model = Pair()
    average = copy.deepcopy(model.g).requires_grad_(False)
    maker = s.optimizer("Adam", model.g.parameters(), 2e-3, betas=(0.0, 0.99))
    judge = s.optimizer("Adam", model.d.parameters(), 2e-3, betas=(0.0, 0.99))
    size = s.batch(48)

    def update(optimizer, loss):
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    s.attach(model, [judge, maker])
    for step in range(220):
        real, fake = moons(size), model.g(torch.randn(size, 6))
        loss = F.softplus(model.d(fake.detach())).mean() + F.softplus(-model.d(real)).mean()
        if step % 8 == 0:
            real.requires_grad_(True)
            slope, = torch.autograd.grad(model.d(real).sum(), real, create_graph=True)
            loss = loss + 0.4 * (slope ** 2).sum(1).mean()
        update(judge, loss)
        update(maker, F.softplus(-model.d(fake)).mean())
        with torch.no_grad():
            for slow, p in zip(average.parameters(), model.g.parameters()):
                slow.lerp_(p, 0.1)
            s.score(-distance(average(torch.randn(200, 6)), moons(200)))


@program("cycle-players", "", "")
def cycle_players(s):
    """Points of two kinds turn into one another and back: four networks, two optimizers."""
    model = nn.ModuleDict({"ab": mlp(2, 48, 2), "ba": mlp(2, 48, 2), "da": mlp(2, 48, 1), "db": mlp(2, 48, 1)})
    makers = s.optimizer("Adam", itertools.chain(model["ab"].parameters(), model["ba"].parameters()),
                         2e-3, betas=(0.5, 0.999))
    judges = s.optimizer("Adam", itertools.chain(model["da"].parameters(), model["db"].parameters()),
                         2e-3, betas=(0.5, 0.999))
    size = s.batch(48)
    s.attach(model, [makers, judges])
    for _ in range(200):
        a = moons(size)
        b = 0.5 * torch.randn(size, 2) + torch.tensor([2.0, -1.0])
        made_b, made_a = model["ab"](a), model["ba"](b)
        fooled = ((model["db"](made_b) - 1) ** 2).mean() + ((model["da"](made_a) - 1) ** 2).mean()
        back = (model["ba"](made_b) - a).abs().mean() + (model["ab"](made_a) - b).abs().mean()
        makers.zero_grad()
        (fooled + 5 * back).backward()
        makers.step()
        judges.zero_grad()
        for name, real, fake in (("da", a, made_a), ("db", b, made_b)):
            loss = ((model[name](real) - 1) ** 2).mean() + (model[name](fake.detach()) ** 2).mean()
            (loss / 2).backward()
        judges.step()
        s.score(-float(back) - distance(made_b.detach(), b))


@program("wake-sleep", "", "")
def wake_sleep(s):
    """A Helmholtz machine: by day it learns to draw, by night to recognize what it dreams."""
    draw = generator(2)
    kinds = (torch.rand(4, 16, generator=draw) < 0.4).float()
    model = nn.ModuleDict({"see": mlp(16, 24, 8, activation=nn.Tanh), "make": mlp(8, 24, 16, activation=nn.Tanh)})
    prior = nn.Parameter(torch.zeros(8))
    model.register_parameter("prior", prior)
    day = s.optimizer("Adam", [*model["make"].parameters(), prior], 5e-3)
    night = s.optimizer("Adam", model["see"].parameters(), 5e-3)
    likely = F.binary_cross_entropy_with_logits

    def improve(optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    s.attach(model, [day, night])
    for _ in range(260):
        size = s.batch(48)
        x = kinds[torch.randint(0, 4, (size,))]
        x = (x + (torch.rand_like(x) < 0.03)) % 2
        with torch.no_grad():
            z = torch.bernoulli(model["see"](x).sigmoid())
        s.score(-improve(day, 16 * likely(model["make"](z), x) + 8 * likely(prior.expand_as(z), z)))
        with torch.no_grad():
            z = torch.bernoulli(prior.sigmoid().expand(size, 8))
            x = torch.bernoulli(model["make"](z).sigmoid())
        improve(night, likely(model["see"](x), z))


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi, self.q1, self.q2 = mlp(2, 32, 2), mlp(3, 32, 1), mlp(3, 32, 1)
        self.log_alpha = nn.Parameter(torch.tensor(-1.5))

    def act(self, state):
        mean, spread = self.pi(state).chunk(2, 1)
        raw = mean + spread.clamp(-4, 1).exp() * torch.randn_like(mean)
        normal = torch.distributions.Normal(mean, spread.clamp(-4, 1).exp())
        log = normal.log_prob(raw) - torch.log(1 - raw.tanh() ** 2 + 1e-6)
        return raw.tanh(), log.sum(1, keepdim=True)


@program("soft-actor", "", "")
def soft_actor(s):
    """A mass is pushed to the middle: two critics, a policy and a temperature, three optimizers."""
    agent = Agent()
    slow = copy.deepcopy(agent).requires_grad_(False)
    critics = s.optimizer("Adam", [*agent.q1.parameters(), *agent.q2.parameters()], 3e-3)
    policy = s.optimizer("Adam", agent.pi.parameters(), 3e-3)
    warmth = s.optimizer("Adam", [agent.log_alpha], 3e-3)

    def step(optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    s.attach(agent, [critics, policy, warmth])
    for _ in range(260):
        state = 2 * torch.rand(s.batch(64), 2) - 1
        with torch.no_grad():
            action, _ = agent.act(state)
            speed = state[:, 1:] + 0.3 * action
            after = torch.cat([(state[:, :1] + 0.3 * speed).clamp(-2, 2), speed.clamp(-2, 2)], 1)
            reward = -(after ** 2).sum(1, keepdim=True)
            then, log = agent.act(after)
            both = torch.cat([after, then], 1)
            goal = reward + 0.8 * (torch.min(slow.q1(both), slow.q2(both)) - agent.log_alpha.exp() * log)
        tried = torch.cat([state, action], 1)
        step(critics, F.mse_loss(agent.q1(tried), goal) + F.mse_loss(agent.q2(tried), goal))
        new, log = agent.act(state)
        both = torch.cat([state, new], 1)
        step(policy, (agent.log_alpha.exp().detach() * log - torch.min(agent.q1(both), agent.q2(both))).mean())
        step(warmth, -(agent.log_alpha * (log.detach() - 1.0)).mean())
        with torch.no_grad():
            for target, p in zip(slow.parameters(), agent.parameters()):
                target.lerp_(p, 0.05)
            s.score(reward.mean())


@program("reptile", "", "layers")
def reptile(s):
    """A start from which a few steps learn any wave: the gradient is the way that those steps go."""
    model = mlp(1, 32, 32, 1, activation=nn.Tanh)
    optimizer = s.optimizer("Adam", model.parameters(), 3e-3)
    s.attach(model, optimizer)
    for _ in range(160):
        phase, height = 3.14 * torch.rand(()), 0.5 + 1.5 * torch.rand(())
        learner = copy.deepcopy(model)
        inner = torch.optim.SGD(learner.parameters(), 0.03)
        for _ in range(6):
            x = 6 * torch.rand(s.batch(16), 1) - 3
            loss = F.mse_loss(learner(x), height * torch.sin(x + phase))
            inner.zero_grad()
            loss.backward()
            inner.step()
        optimizer.zero_grad()
        for p, moved in zip(model.parameters(), learner.parameters()):
            p.grad = p.detach() - moved.detach()
        optimizer.step()
        s.score(-float(loss.detach()))
