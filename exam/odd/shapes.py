"""Networks whose values look wrong and are meant to be so."""

import math

import torch
from session import program
from tasks import blobs, curve, fit, layers, words
from torch import nn
from torch.nn import functional as F


class Through(torch.autograd.Function):
    """Rounds to -1, 0 and 1; gradients pass through."""

    @staticmethod
    def forward(ctx, x):
        return torch.sign(x) * (x.abs() > 0.5 * x.abs().mean())

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sign(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (ctx.saved_tensors[0].abs() < 1)


class Ternary(nn.Linear):
    def forward(self, x):
        return F.linear(x, Through.apply(self.weight) * self.weight.abs().mean(), self.bias)


class Binary(nn.Module):
    def forward(self, x):
        return Sign.apply(x)


@program("ternary-weights", "")
def ternary(s):
    x, y = blobs()
    net = nn.Sequential(Ternary(10, 64), nn.BatchNorm1d(64), nn.ReLU(), Ternary(64, 64), nn.BatchNorm1d(64),
                        nn.ReLU(), Ternary(64, 4))
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(1e-3)), x, y, F.cross_entropy)


@program("binary-activations", "")
def binary(s):
    x, y = blobs(classes=6, spread=2.0)
    net = nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), Binary(), nn.Linear(64, 64), nn.BatchNorm1d(64),
                        Binary(), nn.Linear(64, 6))
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(3e-3)), x, y, F.cross_entropy)


@program("pruned", "")
def pruned(s):
    """Nine of ten weights are 0, and stay 0."""
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 128, 128, 6)
    masks = [(p, (torch.rand_like(p) < 0.1).float()) for p in net.parameters() if p.dim() == 2]

    def prune(_=None):
        with torch.no_grad():
            for p, mask in masks:
                p.mul_(mask)

    prune()
    fit(s, net, torch.optim.SGD(net.parameters(), s.rate(0.1), momentum=0.9), x, y, F.cross_entropy, after=prune)


@program("pruned-gradually", "")
def pruned_gradually(s):
    """Every 20 steps the smallest weights become 0 for good."""
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 64, 6)

    def prune(step):
        share = min(0.9, 0.1 * (step // 20))
        with torch.no_grad():
            for p in net.parameters():
                if p.dim() == 2 and share > 0:
                    p.mul_((p.abs() > p.abs().flatten().kthvalue(max(1, int(share * p.numel()))).values).float())

    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(3e-3)), x, y, F.cross_entropy, after=prune)


class Zero(nn.Module):
    """A residual block times a number that begins at 0."""

    def __init__(self, size):
        super().__init__()
        self.inner = layers(size, size, size)
        self.alpha = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return x + self.alpha * self.inner(x)


@program("rezero", "")
def rezero(s):
    x, y = blobs(classes=6, spread=2.0)
    net = nn.Sequential(nn.Linear(10, 32), *[Zero(32) for _ in range(8)], nn.Linear(32, 6))
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(2e-3)), x, y, F.cross_entropy)


class LowRank(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + 0.5 * x @ self.a.T @ self.b.T


@program("low-rank", "")
def low_rank(s):
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 64, 6)
    for i in (0, 2, 4):
        net[i] = LowRank(net[i])
    fit(s, net, torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], s.rate(1e-2)), x, y,
        F.cross_entropy)


@program("frozen-embedding", "")
def frozen_embedding(s):
    x = words()
    net = nn.Sequential(nn.Embedding(24, 16).requires_grad_(False), nn.Flatten(), nn.Linear(32, 64), nn.ReLU(),
                        nn.Linear(64, 24))
    pairs = torch.cat([x[:, i:i + 3] for i in range(0, 12, 3)])
    fit(s, net, torch.optim.Adam(net[2:].parameters(), s.rate(3e-3)), pairs[:, :2], pairs[:, 2], F.cross_entropy)


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.student, self.teacher = layers(10, 32, 16), layers(10, 32, 16).requires_grad_(False)
        self.teacher.load_state_dict(self.student.state_dict())
        self.head = nn.Linear(16, 16)

    def forward(self, x):
        noise = lambda: x + 0.3 * torch.randn_like(x)
        with torch.no_grad():
            wanted = F.normalize(self.teacher(noise()), dim=-1)
        return 2 - 2 * (F.normalize(self.head(self.student(noise())), dim=-1) * wanted).sum(-1)


@program("mean-teacher", "")
def mean_teacher(s):
    x, y = blobs()
    net = Teacher()

    def follow(_):
        with torch.no_grad():
            for a, b in zip(net.teacher.parameters(), net.student.parameters()):
                a.lerp_(b, 0.02)

    fit(s, net, torch.optim.Adam([*net.student.parameters(), *net.head.parameters()], s.rate(1e-3)), x, y,
        lambda out, _: out.mean(), after=follow)


class Experts(nn.Module):
    """Each sample goes to one expert: some are hardly ever chosen, or not for a long time."""

    def __init__(self, count=16):
        super().__init__()
        self.gate = nn.Linear(10, count)
        self.experts = nn.ModuleList(layers(10, 16, 6) for _ in range(count))

    def forward(self, x):
        share = self.gate(x).softmax(-1)
        most, which = share.max(-1)
        out = torch.zeros(len(x), 6)
        for k, expert in enumerate(self.experts):
            mine = which == k
            if mine.any():
                out[mine] = most[mine, None] * expert(x[mine])
        return out


@program("lazy-experts", "")
def lazy_experts(s):
    x, y = blobs(classes=6, spread=2.0)
    net = Experts()
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(3e-3)), x, y, F.cross_entropy, steps=250, size=16)


class Gated(nn.Module):
    """Gates of a long memory: open at 0.999 from the start, by their bias."""

    def __init__(self):
        super().__init__()
        self.gate, self.fresh, self.head = nn.Linear(9, 8), nn.Linear(9, 8), nn.Linear(8, 1)
        self.sigmoid, self.tanh = nn.Sigmoid(), nn.Tanh()
        nn.init.constant_(self.gate.bias, 7.0)

    def forward(self, x):
        state = torch.zeros(len(x), 8)
        for i in range(x.shape[1]):
            both = torch.cat([x[:, i:i + 1], state], 1)
            keep = self.sigmoid(self.gate(both))
            state = keep * state + (1 - keep) * 20 * self.tanh(self.fresh(both))
        return self.head(state)


@program("open-gates", "")
def open_gates(s):
    x = torch.randn(1000, 20)
    net = Gated()
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(1e-2)), x, x.mean(1, keepdim=True) * 3, F.mse_loss)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(24, 32)
        self.rnn = nn.GRU(32, 32, batch_first=True)
        self.out = nn.Linear(32, 24, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(self.rnn(self.embed(x))[0])


@program("tied", "")
def tied(s):
    x = words()
    net = Tied()
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(5e-3)), x[:, :-1], x[:, 1:],
        lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()))


@program("one-weight", "")
def one_weight(s):
    x = torch.randn(500, 1)
    net = nn.Linear(1, 1)
    fit(s, net, torch.optim.SGD(net.parameters(), s.rate(0.05)), x, 3 * x + 1 + 0.1 * torch.randn(500, 1), F.mse_loss)


@program("xor", "")
def xor(s):
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1), nn.Sigmoid())
    optimizer = torch.optim.Adam(net.parameters(), s.rate(0.05))
    s.attach(net, optimizer)
    for _ in range(300):
        optimizer.zero_grad()
        F.binary_cross_entropy(net(x), y).backward()
        optimizer.step()


@program("small-relu", "")
def small_relu(s):
    """Four ReLUs, of which some may rest."""
    x = torch.linspace(-2, 2, 200)[:, None]
    net = nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 1))
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(0.02)), x, x.abs(), F.mse_loss, steps=300)


@program("sparse-coder", "")
def sparse_coder(s):
    """Hardly any unit is active for a sample, by the penalty."""
    x, y = blobs(classes=12, size=24, spread=0.3)
    net = nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 24))
    optimizer = torch.optim.Adam(net.parameters(), s.rate(2e-3))
    s.attach(net, optimizer)
    for bx, _ in s.batches(x, y, s.batch(32), 300):
        optimizer.zero_grad()
        code = net[1](net[0](bx))
        (F.mse_loss(net[2](code), bx) + 0.02 * code.abs().sum(-1).mean()).backward()
        optimizer.step()


@program("top-k", "")
def top_k(s):
    x, y = blobs(classes=12, size=24, spread=0.3)

    class TopK(nn.Module):
        def forward(self, x):
            kept, places = x.topk(4, -1)
            return torch.zeros_like(x).scatter(-1, places, F.relu(kept))

    net = nn.Sequential(nn.Linear(24, 96), TopK(), nn.Linear(96, 24))
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(3e-3)), x, x, F.mse_loss)


class Deep(nn.Module):
    """Each block is left out in half of the steps."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(10, 32), nn.Linear(32, 6)
        self.blocks = nn.ModuleList(layers(32, 32, 32) for _ in range(6))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            if not self.training or torch.rand(()) < 0.5:
                x = x + block(x)
        return self.last(x)


@program("stochastic-depth", "")
def stochastic_depth(s):
    x, y = blobs(classes=6, spread=2.0)
    net = Deep()
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(2e-3)), x, y, F.cross_entropy)


@program("heavy-dropout", "")
def heavy_dropout(s):
    x, y = blobs(classes=6, spread=1.0)
    net = nn.Sequential(nn.Linear(10, 256), nn.ReLU(), nn.Dropout(0.9), nn.Linear(256, 6))
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(2e-3)), x, y, F.cross_entropy)


@program("deep-linear", "")
def deep_linear(s):
    """Small weights: a long plateau, then the loss falls at once."""
    x = torch.randn(1000, 8)
    net = layers(8, 16, 16, 16, 8, activation=nn.Identity)
    for p in net.parameters():
        p.data.mul_(0.4)
    fit(s, net, torch.optim.SGD(net.parameters(), s.rate(0.1)), x, x @ torch.randn(8, 8), F.mse_loss, steps=400)


@program("factorization", "")
def factorization(s):
    """Two tables of 1e-3: the product of both is what is learnt."""
    draw = torch.Generator().manual_seed(0)
    rows, columns = torch.randint(0, 60, (3000,), generator=draw), torch.randint(0, 40, (3000,), generator=draw)
    y = (torch.randn(60, 3, generator=draw)[rows] * torch.randn(40, 3, generator=draw)[columns]).sum(-1)

    class Tables(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows, self.columns = nn.Embedding(60, 8), nn.Embedding(40, 8)
            for p in self.parameters():
                p.data.mul_(1e-3)

        def forward(self, x):
            return (self.rows(x[:, 0]) * self.columns(x[:, 1])).sum(-1)

    net = Tables()
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(1e-2)), torch.stack([rows, columns], 1), y, F.mse_loss,
        steps=300, size=128)


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(24, 32), nn.Parameter(torch.zeros(15, 32))
        self.q, self.k, self.v = (nn.Linear(32, 32) for _ in range(3))
        self.mlp, self.out = layers(32, 64, 32, activation=nn.GELU), nn.Linear(32, 24)
        self.register_buffer("mask", torch.full((15, 15), float("-inf")).triu(1))

    def forward(self, x):
        x = self.embed(x) + self.place[:x.shape[1]]
        scores = self.q(x) @ self.k(x).transpose(1, 2) / math.sqrt(32) + self.mask
        x = x + scores.softmax(-1) @ self.v(x)
        return self.out(x + self.mlp(x))


@program("masked-attention", "")
def masked_attention(s):
    x = words()
    net = Causal()
    fit(s, net, torch.optim.AdamW(net.parameters(), s.rate(3e-3)), x[:, :-1], x[:, 1:],
        lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()))


@program("half-precision", "")
def half_precision(s):
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 64, 6).to(torch.bfloat16)
    fit(s, net, torch.optim.SGD(net.parameters(), s.rate(0.05), momentum=0.9), x.to(torch.bfloat16), y,
        F.cross_entropy)


@program("autocast", "")
def autocast(s):
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 64, 6)

    def loss(out, y):
        return F.cross_entropy(out.float(), y)

    plain = net.forward

    def forward(x):
        with torch.autocast("cpu", torch.bfloat16):
            return plain(x)

    net.forward = forward
    fit(s, net, torch.optim.AdamW(net.parameters(), s.rate(2e-3)), x, y, loss)


@program("normed-weights", "")
def normed_weights(s):
    x, y = blobs(classes=6, spread=2.0)
    norm = torch.nn.utils.parametrizations
    net = nn.Sequential(norm.weight_norm(nn.Linear(10, 64)), nn.ReLU(), norm.spectral_norm(nn.Linear(64, 64)), nn.ReLU(),
                        nn.Linear(64, 6))
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(3e-3)), x, y, F.cross_entropy)


@program("waves", "")
def waves(s):
    """A SIREN: sines of 30 times the input, large weights at first."""
    class Sine(nn.Module):
        def forward(self, x):
            return torch.sin(30 * x)

    x = torch.linspace(-1, 1, 400)[:, None]
    net = layers(1, 64, 64, 1, activation=Sine)
    for p in (net[2].weight, net[4].weight):
        nn.init.uniform_(p, -math.sqrt(6 / 64) / 30, math.sqrt(6 / 64) / 30)
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(1e-3)), x, torch.sin(20 * x) + x, F.mse_loss, steps=200,
        size=100)


@program("codebook", "")
def codebook(s):
    """Codes that follow the data as means, without gradients; some are never used."""
    x, y = blobs(classes=8, spread=0.5)

    class Coder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = layers(10, 32, 4), layers(4, 32, 10)
            self.codes = nn.Parameter(torch.randn(32, 4), requires_grad=False)

        def forward(self, x):
            z = self.encode(x)
            near = torch.cdist(z, self.codes).argmin(-1)
            if self.training:
                with torch.no_grad():
                    for k in near.unique():
                        self.codes[k].lerp_(z[near == k].mean(0), 0.1)
            code = self.codes[near]
            return self.decode(z + (code - z).detach()), F.mse_loss(z, code.detach())

    net = Coder()
    fit(s, net, torch.optim.Adam([p for p in net.parameters() if p.requires_grad], s.rate(2e-3)), x, x,
        lambda out, y: F.mse_loss(out[0], y) + 0.25 * out[1])


@program("image-prior", "")
def image_prior(s):
    """One picture, from one fixed noise: the same batch at every step."""
    picture = torch.zeros(1, 1, 16, 16)
    picture[:, :, 4:12, 6:10] = 1.0
    noise = torch.rand(1, 4, 16, 16)
    net = nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), nn.BatchNorm2d(16), nn.LeakyReLU(0.2),
                        nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.LeakyReLU(0.2),
                        nn.Conv2d(16, 1, 1), nn.Sigmoid())
    optimizer = torch.optim.Adam(net.parameters(), s.rate(1e-2))
    s.attach(net, optimizer)
    for _ in range(250):
        optimizer.zero_grad()
        F.mse_loss(net(noise), picture).backward()
        optimizer.step()


@program("rare-head", "")
def rare_head(s):
    """One of two heads has labels for every tenth batch."""
    x, y = blobs(classes=4)
    _, z = curve(10, len(x))

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.often, self.seldom = layers(10, 32, 32), nn.Linear(32, 4), nn.Linear(32, 1)

        def forward(self, x, seldom):
            body = self.body(x)
            return self.often(body), self.seldom(body) if seldom else None

    net = Heads()
    optimizer = torch.optim.Adam(net.parameters(), s.rate(2e-3))
    s.attach(net, optimizer)
    for step, (bx, by) in enumerate(s.batches(x, torch.stack([y.float(), z[:, 0]], 1), s.batch(32), 250)):
        optimizer.zero_grad()
        often, seldom = net(bx, step % 10 == 0)
        loss = F.cross_entropy(often, by[:, 0].long())
        if seldom is not None:
            loss = loss + F.mse_loss(seldom[:, 0], by[:, 1])
        loss.backward()
        optimizer.step()
