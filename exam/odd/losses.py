"""Losses that behave oddly where training goes well."""

import math

import torch
from session import program
from tasks import blobs, curve, fit, layers, words
from torch import nn
from torch.nn import functional as F


@program("gaussian-nll", "")
def gaussian_nll(s):
    """Begins above 0 and ends below."""
    x, y = curve(noise=0.02)
    net = layers(8, 64, 2)
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(3e-3)), x, y, lambda out, y: F.gaussian_nll_loss(
        out[:, :1], y, out[:, 1:].exp()), steps=300)


@program("density", "")
def density(s):
    """A mixture of normals: the likelihood is above 1 everywhere."""
    x = 0.01 * torch.randn(2000, 2) + torch.tensor([[0.1, 0.2]]) * (torch.rand(2000, 1) < 0.5)

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean, self.log_scale, self.weight = (nn.Parameter(v) for v in (
                0.2 * torch.rand(4, 2), torch.full((4, 2), -2.0), torch.zeros(4)))

        def forward(self, x):
            each = torch.distributions.Normal(self.mean, self.log_scale.exp()).log_prob(x[:, None]).sum(-1)
            return -(each + self.weight.log_softmax(0)).logsumexp(-1)

    net = Mixture()
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(0.02)), x, x, lambda out, _: out.mean(), steps=250)


@program("similarity", "")
def similarity(s):
    x, y = curve()
    net = layers(8, 32, 8)
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(2e-3)), x, x.roll(1, 1),
        lambda out, y: -F.cosine_similarity(out, y).mean())


@program("quantiles", "")
def quantiles(s):
    x, y = curve(noise=1.0)
    q = torch.tensor([0.05, 0.5, 0.95])
    net = layers(8, 32, 3)
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(2e-3)), x, y,
        lambda out, y: torch.maximum(q * (y - out), (q - 1) * (y - out)).mean())


@program("sum-of-millions", "")
def sum_of_millions(s):
    """A sum over samples of squares of large numbers; the rate is made for it."""
    x, y = curve()
    net = layers(8, 64, 1)
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(2e-2)), x, 300 * y,
        lambda out, y: (out - y).square().sum(), steps=300)


@program("offset", "")
def offset(s):
    """Most of the loss is a constant: a log-likelihood with its normalization."""
    x, y = curve()
    net = layers(8, 64, 1)
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(3e-3)), x, y,
        lambda out, y: 500 + 0.5 * (out - y).square().sum(1).mean(), steps=300)


@program("trivial", "")
def trivial(s):
    """The loss is at its floor after a few steps."""
    x, y = blobs(classes=2, spread=0.1)
    net = layers(10, 32, 2)
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(2e-2)), x, y, F.cross_entropy, steps=400)


@program("noisy-target", "")
def noisy_target(s):
    """Nineteen twentieths of the variance of the target are noise."""
    x = torch.randn(3000, 6)
    y = 0.25 * x[:, :1] + torch.randn(3000, 1)
    net = layers(6, 16, 1)
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(2e-3)), x, y, F.mse_loss, steps=300)


@program("hard-labels", "")
def hard_labels(s):
    """Six of ten labels are drawn: the loss falls from 2.08 to 1.9."""
    x, y = blobs(classes=8, spread=1.0, count=3000)
    noise = torch.randint(0, 8, y.shape)
    y = torch.where(torch.rand(len(y)) < 0.75, noise, y)
    net = layers(10, 32, 8)
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(2e-3)), x, y, F.cross_entropy, steps=300)


@program("smoothed", "")
def smoothed(s):
    x, y = blobs(classes=4)
    net = layers(10, 64, 4)
    fit(s, net, torch.optim.SGD(net.parameters(), s.rate(0.1), momentum=0.9), x, y,
        lambda out, y: F.cross_entropy(out, y, label_smoothing=0.3), steps=300)


@program("resumed", "")
def resumed(s):
    """Watched only when training is nearly over: the loss is where it will stay."""
    x, y = blobs(classes=6, spread=2.5)
    net = layers(10, 32, 6)
    optimizer = torch.optim.Adam(net.parameters(), s.rate(2e-3))
    for bx, by in s.batches(x, y, 64, 600):
        optimizer.zero_grad()
        F.cross_entropy(net(bx), by).backward()
        optimizer.step()
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(2e-4)), x, y, F.cross_entropy, steps=250)


@program("fine-tuned", "")
def fine_tuned(s):
    """A trained model of words on slightly other words, at a small rate: 2 % in 200 steps."""
    x = words()
    net = nn.Sequential(nn.Embedding(24, 16), nn.Flatten(), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 24))
    first = torch.cat([x[:, i:i + 3] for i in range(0, 12, 3)])
    optimizer = torch.optim.Adam(net.parameters(), 5e-3)
    for bx, by in s.batches(first[:, :2], first[:, 2], 64, 500):
        optimizer.zero_grad()
        F.cross_entropy(net(bx), by).backward()
        optimizer.step()
    other = first.clone()
    moved = torch.rand(len(other)) < 0.1
    other[moved, 2] = (other[moved, 2] + 1) % 24
    fit(s, net, torch.optim.AdamW(net.parameters(), s.rate(1e-4)), other[:, :2], other[:, 2], F.cross_entropy, steps=250)


@program("curriculum", "")
def curriculum(s):
    """The samples get harder every 60 steps, and the loss jumps."""
    x, y = curve()
    order, y = y[:, 0].abs().argsort(), y + 2
    net = layers(8, 64, 1)
    optimizer = torch.optim.Adam(net.parameters(), s.rate(3e-3))
    s.attach(net, optimizer)
    for step in range(300):
        known = order[:300 * (1 + step // 60)]
        chosen = known[torch.randint(0, len(known), (s.batch(32),))]
        optimizer.zero_grad()
        F.mse_loss(net(x[chosen]), y[chosen]).backward()
        optimizer.step()


@program("drift", "")
def drift(s):
    """What is to be learnt changes all the time."""
    net = layers(6, 32, 1)
    optimizer = torch.optim.SGD(net.parameters(), s.rate(0.05))
    s.attach(net, optimizer)
    for step in range(300):
        x = torch.randn(s.batch(32), 6)
        optimizer.zero_grad()
        F.mse_loss(net(x), torch.sin(x[:, :1] + step / 20)).backward()
        optimizer.step()


@program("tasks-in-turn", "")
def tasks_in_turn(s):
    """Five tasks, one after the other: each begins where the one before ended."""
    x, y = blobs(classes=10, size=20)
    net = layers(20, 64, 2)
    optimizer = torch.optim.SGD(net.parameters(), s.rate(0.05))
    s.attach(net, optimizer)
    for task in range(5):
        mine = (y // 2 == task).nonzero()[:, 0]
        for _ in range(60):
            chosen = mine[torch.randint(0, len(mine), (s.batch(16),))]
            optimizer.zero_grad()
            F.cross_entropy(net(x[chosen]), y[chosen] % 2).backward()
            optimizer.step()


@program("hinge", "")
def hinge(s):
    """Once every sample is on its side, gradients are exactly 0."""
    x, y = blobs(classes=2, spread=0.5)
    net = nn.Linear(10, 1)
    fit(s, net, torch.optim.SGD(net.parameters(), s.rate(0.05)), x, 2.0 * y - 1,
        lambda out, y: F.relu(1 - out[:, 0] * y).mean(), steps=250)


@program("triplets", "")
def triplets(s):
    x, y = blobs(classes=6, spread=0.7)
    net = layers(10, 32, 8)
    optimizer = torch.optim.Adam(net.parameters(), s.rate(2e-3))
    s.attach(net, optimizer)
    for _ in range(250):
        a = torch.randint(0, len(x), (s.batch(32),))
        p = (a + 6 * torch.randint(1, 50, a.shape)) % len(x)
        n = torch.randint(0, len(x), a.shape)
        optimizer.zero_grad()
        F.triplet_margin_loss(net(x[a]), net(x[p]), net(x[n]), margin=0.5).backward()
        optimizer.step()


@program("contrast", "")
def contrast(s):
    """Pairs with a learnt temperature, which is clamped."""
    x, y = blobs(classes=40, spread=0.7)

    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = layers(10, 64, 16), layers(10, 64, 16)
            self.scale = nn.Parameter(torch.tensor(math.log(10.0)))

        def forward(self, x):
            a = F.normalize(self.left(x + 0.1 * torch.randn_like(x)), dim=-1)
            b = F.normalize(self.right(x + 0.1 * torch.randn_like(x)), dim=-1)
            return self.scale.clamp(max=math.log(12.0)).exp() * a @ b.T

    net = Pairs()
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(2e-3)), x, y,
        lambda out, _: F.cross_entropy(out, torch.arange(len(out))))


@program("rare-class", "")
def rare_class(s):
    """Two of a hundred samples are positive."""
    x = torch.randn(4000, 6)
    y = (x[:, :1] + 0.5 * torch.randn(4000, 1) > 2.3).float()
    net = layers(6, 32, 1)
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(2e-3)), x, y, F.binary_cross_entropy_with_logits, size=64,
        steps=300)


@program("annealed-vae", "")
def annealed_vae(s):
    """The weight of the divergence rises from 0, and the loss with it."""
    x, y = blobs(classes=8)

    class Coder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = layers(10, 32, 8), layers(4, 32, 10)

        def forward(self, x):
            mean, log_scale = self.encode(x).chunk(2, -1)
            divergence = 0.5 * (mean ** 2 + (2 * log_scale).exp() - 2 * log_scale - 1).sum(-1).mean()
            return self.decode(mean + log_scale.exp() * torch.randn_like(mean)), divergence

    net, weight = Coder(), [0.0]

    def anneal(step):
        weight[0] = min(1.0, step / 150)

    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(2e-3)), x, x,
        lambda out, y: (out[0] - y).square().sum(-1).mean() + weight[0] * out[1], steps=300, after=anneal)


@program("oscillator", "")
def oscillator(s):
    """y'' = -y with derivatives of the network; points are drawn anew at each step."""
    net = layers(1, 32, 32, 1, activation=nn.Tanh)
    optimizer = torch.optim.Adam(net.parameters(), s.rate(3e-3))
    s.attach(net, optimizer)
    zero = torch.zeros(1, 1, requires_grad=True)
    for _ in range(200):
        t = (3 * torch.rand(s.batch(64), 1)).requires_grad_(True)
        optimizer.zero_grad()
        y = net(t)
        d, = torch.autograd.grad(y.sum(), t, create_graph=True)
        dd, = torch.autograd.grad(d.sum(), t, create_graph=True)
        start = net(zero)
        slope, = torch.autograd.grad(start.sum(), zero, create_graph=True)
        ((dd + y).square().mean() + 10 * ((start - 1).square() + slope.square()).mean()).backward()
        optimizer.step()


@program("bandit", "")
def bandit(s):
    """A policy gradient: the surrogate means nothing by its size."""
    means = torch.linspace(0, 1, 6)
    net = nn.Linear(4, 6)
    optimizer = torch.optim.Adam(net.parameters(), s.rate(2e-2))
    s.attach(net, optimizer)
    for _ in range(250):
        choice = torch.distributions.Categorical(logits=net(torch.ones(s.batch(16), 4)))
        arm = choice.sample()
        paid = means[arm] + 0.3 * torch.randn(len(arm))
        optimizer.zero_grad()
        (-(choice.log_prob(arm) * (paid - paid.mean())).mean() - 0.01 * choice.entropy().mean()).backward()
        optimizer.step()
        s.score(float(paid.mean()))


@program("grid-values", "")
def grid_values(s):
    """Values of a walk, from their own estimates by a copy that is renewed every 25 steps."""
    net, copy = layers(12, 32, 2), layers(12, 32, 2)
    copy.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), s.rate(2e-3))
    s.attach(net, optimizer)
    for step in range(400):
        place, move = torch.randint(0, 12, (s.batch(32),)), torch.randint(0, 2, (s.batch(32),))
        after = (place + 2 * move - 1).clamp(0, 11)
        paid = (after == 11).float()
        with torch.no_grad():
            wanted = paid + 0.95 * copy(F.one_hot(after, 12).float()).max(-1).values * (1 - paid)
        optimizer.zero_grad()
        F.smooth_l1_loss(net(F.one_hot(place, 12).float())[torch.arange(len(place)), move], wanted).backward()
        optimizer.step()
        if step % 25 == 24:
            copy.load_state_dict(net.state_dict())


@program("memorised", "")
def memorised(s):
    """Sixteen samples in one batch, until the loss is 1e-6."""
    x, y = torch.randn(16, 8), torch.arange(16) % 4
    net = layers(8, 64, 4)
    optimizer = torch.optim.Adam(net.parameters(), s.rate(1e-2))
    s.attach(net, optimizer)
    for _ in range(400):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()


@program("single-samples", "")
def single_samples(s):
    x, y = blobs(classes=4)
    net = layers(10, 32, 4)
    fit(s, net, torch.optim.SGD(net.parameters(), s.rate(0.01)), x, y, F.cross_entropy, steps=400, size=1)


@program("modular-sum", "")
def modular_sum(s):
    """The training pairs are learnt by heart long before the rest, with much weight decay."""
    pairs = torch.cartesian_prod(torch.arange(17), torch.arange(17))
    mine = pairs[torch.randperm(len(pairs))[:150]]
    net = nn.Sequential(nn.Embedding(17, 24), nn.Flatten(), nn.Linear(48, 128), nn.ReLU(), nn.Linear(128, 17))
    optimizer = torch.optim.AdamW(net.parameters(), s.rate(3e-3), weight_decay=1.0)
    s.attach(net, optimizer)
    for _ in range(400):
        optimizer.zero_grad()
        F.cross_entropy(net(mine), mine.sum(1) % 17).backward()
        optimizer.step()


@program("distilled", "")
def distilled(s):
    """The student's loss has a floor: the entropy of the teacher."""
    x, y = blobs(classes=6, spread=2.0)
    teacher, net = layers(10, 64, 6).requires_grad_(False), layers(10, 16, 6)
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(2e-3)), x, x,
        lambda out, bx: F.cross_entropy(out, teacher(bx).softmax(-1)), steps=250)
