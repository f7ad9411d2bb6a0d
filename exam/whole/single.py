"""Whole programs with one loss."""

import itertools
import math

import torch
from torch import nn
from torch.nn import functional as F

from session import program, train


def generator(seed):
    return torch.Generator().manual_seed(seed)


def picture(size=16, channels=3):
    """Three soft discs: (channels, size, size) in 0 to 1."""
    y, x = torch.meshgrid(*[torch.linspace(-1, 1, size)] * 2, indexing="ij")
    discs = [(-0.4, -0.3, 0.4), (0.4, 0.1, 0.35), (0.0, 0.5, 0.3)]
    made = [torch.sigmoid(12 * (r - ((x - a) ** 2 + (y - b) ** 2).sqrt())) for a, b, r in discs]
    return torch.stack([made[i % 3] for i in range(channels)])


# --- pictures ------------------------------------------------------------------------------------


class Automaton(nn.Module):
    """A neural cellular automaton: cells see their neighbors and change, half of them at a time."""

    def __init__(self, channels=8):
        super().__init__()
        base = torch.zeros(3, 3, 3)
        base[0, 1, 1] = 1
        base[1] = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]) / 8
        base[2] = base[1].T
        self.register_buffer("filters", base.repeat(channels, 1, 1)[:, None])
        self.lift, self.relu = nn.Conv2d(3 * channels, 32, 1), nn.ReLU()
        self.change = nn.Conv2d(32, channels, 1, bias=False)
        nn.init.zeros_(self.change.weight)

    def forward(self, x, steps):
        for _ in range(steps):
            seen = F.conv2d(x, self.filters, padding=1, groups=x.shape[1])
            who = (torch.rand(len(x), 1, *x.shape[2:]) < 0.5).float()
            x = x + who * self.change(self.relu(self.lift(seen)))
        return x


@program("cellular-automaton", "", "single relu")
def cellular_automaton(s):
    target, size = picture(12, 3), s.batch(6)
    model = Automaton()
    optimizer = s.optimizer("Adam", model.parameters(), 2e-3)
    seed = torch.zeros(1, 8, 12, 12)
    seed[:, :, 6, 6] = 1
    pool = seed.repeat(24, 1, 1, 1)
    s.attach(model, optimizer)
    for _ in range(200):
        chosen = torch.randperm(len(pool))[:size]
        start = pool[chosen].clone()
        start[0] = seed[0]
        optimizer.zero_grad()
        made = model(start, int(torch.randint(8, 13, ())))
        loss = F.mse_loss(made[:, :3], target.expand(len(made), -1, -1, -1))
        loss.backward()
        for p in model.parameters():  # as its authors do: each gradient has length 1
            if p.grad is not None:
                p.grad /= p.grad.norm() + 1e-8
        optimizer.step()
        pool[chosen] = made.detach().clamp(-3, 3)


class Sine(nn.Module):
    def __init__(self, inputs, outputs, omega, first=False):
        super().__init__()
        self.linear, self.omega = nn.Linear(inputs, outputs), omega
        bound = 1 / inputs if first else math.sqrt(6 / inputs) / omega
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(self.omega * self.linear(x))


@program("sine-picture", "", "single")
def sine_picture(s):
    """A picture as a function of the place, all pixels at each step."""
    target = picture(24).flatten(1).T
    where = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, 24)] * 2, indexing="ij"), -1).view(-1, 2)
    model = nn.Sequential(Sine(2, 48, 30, first=True), Sine(48, 48, 30), nn.Linear(48, 3))
    optimizer = s.optimizer("Adam", model.parameters(), 5e-4)
    train(s, model, optimizer, itertools.repeat((where, target), 200), F.mse_loss)


class Splats(nn.Module):
    """A picture of soft colored spots, whose places, sizes and colors are learnt."""

    def __init__(self, count=40):
        super().__init__()
        self.centers = nn.Parameter(2 * torch.rand(count, 2) - 1)
        self.sizes = nn.Parameter(torch.full((count, 2), -1.5))
        self.colors = nn.Parameter(torch.zeros(count, 3))
        self.opacity = nn.Parameter(torch.full((count,), -1.0))

    def forward(self, where):
        d = (where[:, None] - self.centers) / self.sizes.exp()
        share = torch.exp(-0.5 * (d ** 2).sum(-1)) * self.opacity.sigmoid()
        return share @ self.colors.sigmoid()


@program("gaussian-splats", "", "single layers")
def gaussian_splats(s):
    target = picture(24).flatten(1).T
    where = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, 24)] * 2, indexing="ij"), -1).view(-1, 2)
    model = Splats()
    rate = s.rate(1.0)
    optimizer = torch.optim.Adam([
        {"params": [model.centers], "lr": 1e-2 * rate}, {"params": [model.sizes], "lr": 2e-2 * rate},
        {"params": [model.colors, model.opacity], "lr": 5e-2 * rate}], eps=1e-15)
    s.attach(model, optimizer)
    for step in range(240):
        rows = torch.randperm(len(where))[:s.batch(256)]
        optimizer.zero_grad()
        (model(where[rows]) - target[rows]).abs().mean().backward()
        optimizer.step()
        if step in (80, 140):  # spots that nobody sees begin anew elsewhere
            with torch.no_grad():
                faint = model.opacity < -2.5
                model.centers[faint] = 2 * torch.rand(int(faint.sum()), 2) - 1
                model.opacity[faint] = -1.0


class ConvLstm(nn.Module):
    def __init__(self, hidden=12):
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Conv2d(1 + hidden, 4 * hidden, 3, padding=1)
        self.out = nn.Conv2d(hidden, 1, 1)

    def forward(self, films):
        h = c = films.new_zeros(len(films), self.hidden, *films.shape[-2:])
        for frame in films.unbind(1):
            i, f, o, g = self.gates(torch.cat([frame[:, None], h], 1)).chunk(4, 1)
            c = (f + 1).sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return self.out(h)[:, 0]


@program("video-convlstm", "", "single inputs targets batches")
def video_convlstm(s):
    """The next frame of a square that moves and bounces."""
    draw, n = generator(3), 600
    at, speed = torch.randint(0, 9, (n, 2), generator=draw), torch.randint(-2, 3, (n, 2), generator=draw)
    films = torch.zeros(n, 6, 12, 12)
    for t in range(6):
        place = (at + t * speed) % 18
        place = torch.where(place > 9, 18 - place, place)
        for i, (a, b) in enumerate(place.tolist()):
            films[i, t, a:a + 3, b:b + 3] = 1
    model = ConvLstm()
    optimizer = s.optimizer("RMSprop", model.parameters(), 1e-3)
    train(s, model, optimizer, s.batches(films[:, :5], films[:, 5], s.batch(16), 160),
          lambda made, y: F.binary_cross_entropy_with_logits(made, y))


@program("matched-set", "", "single inputs batches relu")
def matched_set(s):
    """Three objects of a picture, in any order: the loss first finds the best matching."""
    draw, n = generator(4), 900
    places = 2 * torch.rand(n, 3, 2, generator=draw) - 1
    grid = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, 12)] * 2, indexing="ij"), -1)
    images = torch.exp(-12 * ((grid[None, None] - places[:, :, None, None]) ** 2).sum(-1)).sum(1)
    model = nn.Sequential(nn.Conv2d(1, 12, 3, 2, 1), nn.ReLU(), nn.Conv2d(12, 24, 3, 2, 1), nn.ReLU(),
                          nn.Flatten(), nn.Linear(216, 48), nn.ReLU(), nn.Linear(48, 6))
    orders = torch.tensor(list(itertools.permutations(range(3))))

    def loss(made, wanted):
        cost = torch.cdist(made.view(-1, 3, 2), wanted)
        with torch.no_grad():
            best = cost[:, torch.arange(3), orders].sum(-1).argmin(1)
        return cost.gather(2, orders[best][:, :, None]).mean()

    optimizer = s.optimizer("AdamW", model.parameters(), 2e-3, weight_decay=1e-4)
    train(s, model, optimizer, s.batches(images[:, None], places, s.batch(32), 220), loss)


# --- physics and functions -----------------------------------------------------------------------


class Branches(nn.Module):
    """DeepONet: an operator as a product of a net of the function and a net of the place."""

    def __init__(self):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(20, 40), nn.GELU(), nn.Linear(40, 24))
        self.trunk = nn.Sequential(nn.Linear(1, 40), nn.GELU(), nn.Linear(40, 24), nn.GELU())
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return (self.branch(x[:, :20]) * self.trunk(x[:, 20:])).sum(1) + self.bias


@program("deep-operator", "", "single inputs targets batches")
def deep_operator(s):
    draw, n = generator(5), 2000
    t, c = torch.linspace(0, 1, 20), torch.randn(n, 3, generator=draw)
    k = math.pi * torch.arange(1, 4)
    at = torch.rand(n, 1, generator=draw)
    u = (c[:, :, None] * torch.cos(k[:, None] * t)).sum(1)
    y = (c * torch.sin(k * at) / k * 3).sum(1)  # the antiderivative
    model = Branches()
    optimizer = s.optimizer("Adam", model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995)
    train(s, model, optimizer, s.batches(torch.cat([u, at], 1), y, s.batch(64), 240), F.mse_loss, schedule)


class Spring(nn.Module):
    """Three numbers: the paths of a damped spring, step by step."""

    def __init__(self):
        super().__init__()
        self.stiffness, self.damping, self.rest = (nn.Parameter(torch.tensor(v)) for v in (0.0, -2.0, 0.0))

    def forward(self, x, v, steps=40, dt=0.08):
        seen = []
        for _ in range(steps):
            v = v + dt * (-self.stiffness.exp() * (x - self.rest) - self.damping.exp() * v)
            x = x + dt * v
            seen.append(x)
        return torch.stack(seen, 1)


@program("spring-constants", "", "single layers")
def spring_constants(s):
    true = Spring()
    with torch.no_grad():
        true.stiffness.fill_(1.0), true.damping.fill_(-1.0), true.rest.fill_(0.5)
    model = Spring()
    optimizer = s.optimizer("Adam", model.parameters(), 3e-2)
    s.attach(model, optimizer)
    for _ in range(150):
        x, v = torch.randn(2, s.batch(8))
        with torch.no_grad():
            wanted = true(x, v)
            wanted += 0.02 * torch.randn_like(wanted)
        optimizer.zero_grad()
        F.mse_loss(model(x, v), wanted).backward()
        optimizer.step()


class Sorter(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(1, 24), nn.ReLU(), nn.Linear(24, size))

    def forward(self, x):
        p = self.score(x[..., None]) / 0.3
        for _ in range(10):  # Sinkhorn
            p = p - p.logsumexp(1, keepdim=True)
            p = p - p.logsumexp(2, keepdim=True)
        return (p.exp().transpose(1, 2) @ x[..., None])[..., 0]


@program("sinkhorn-sorting", "", "single inputs targets batches relu")
def sinkhorn_sorting(s):
    x = torch.rand(1500, 6, generator=generator(6))
    model = Sorter()
    optimizer = s.optimizer("Adam", model.parameters(), 5e-3)
    train(s, model, optimizer, s.batches(x, x.sort(1).values, s.batch(32), 200), F.mse_loss)


# --- words, sequences and facts ------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, size, heads=2):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.proj, self.heads = nn.Linear(size, 3 * size), nn.Linear(size, size), heads
        self.up, self.gelu, self.down = nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for t in self.qkv(self.norm1(x)).chunk(3, -1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.proj(seen.transpose(1, 2).flatten(-2)))
        return x + self.drop(self.down(self.gelu(self.up(self.norm2(x)))))


class Gpt(nn.Module):
    def __init__(self, words=24, size=32, layers=2, length=16):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, size), nn.Embedding(length, size)
        self.blocks = nn.ModuleList(Block(size) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, words, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def text(count, seed=7, words=24, length=17):
    draw = generator(seed)
    x = torch.randint(0, words, (count, length), generator=draw)
    for i in range(1, length):
        follows = (3 * x[:, i - 1] + 5) % words
        x[:, i] = torch.where(torch.rand(count, generator=draw) < 0.8, follows, x[:, i])
    return x


@program("autocast-gpt", "", "single modes batches logits")
def autocast_gpt(s):
    """All at once: bfloat16, accumulation, clipping, warm-up and cosine, decay of matrices alone."""
    model, x = Gpt(), text(2400)
    flat = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": flat, "weight_decay": 0.0}], lr=s.rate(4e-3), betas=(0.9, 0.95))
    steps, warm = 160, 16
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(
        (i + 1) / warm, 0.55 + 0.45 * math.cos(math.pi * i / steps)))
    batches = s.batches(x[:, :-1], x[:, 1:], s.batch(16), 2 * steps)
    s.attach(model, optimizer)
    for _ in range(steps):
        for _ in range(2):
            given, wanted = next(batches)
            with torch.autocast("cpu", torch.bfloat16):
                made = model(given)
                loss = F.cross_entropy(made.flatten(0, 1), wanted.flatten()) / 2
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()


class Prompted(nn.Module):
    def __init__(self, core):
        super().__init__()
        self.core, self.prompt = core, nn.Embedding(4, 32)
        self.head = nn.Linear(32, 3)

    def forward(self, tokens):
        x = torch.cat([self.prompt.weight.expand(len(tokens), -1, -1), self.core.wte(tokens)], 1)
        x = x + self.core.wpe.weight[:x.shape[1]]
        for block in self.core.blocks:
            x = block(x)
        return self.head(self.core.norm(x)[:, -1])


@program("soft-prompt", "", "single targets classes batches logits")
def soft_prompt(s):
    """A transformer that has learnt to write stays as it is; a prompt before its input is learnt."""
    core, x = Gpt(), text(1500)
    warm = torch.optim.AdamW(core.parameters(), 4e-3)
    for i in range(120):
        rows = torch.randint(0, len(x), (32,))
        warm.zero_grad()
        F.cross_entropy(core(x[rows, :-1]).flatten(0, 1), x[rows, 1:].flatten()).backward()
        warm.step()
    core.requires_grad_(False)
    core.eval()
    model = Prompted(core)
    optimizer = s.optimizer("AdamW", [model.prompt.weight, *model.head.parameters()], 1e-2)
    s.attach(model, optimizer)
    for given, wanted in s.batches(x[:, :12], x[:, 11] // 8, s.batch(32), 160):
        optimizer.zero_grad()
        F.cross_entropy(model(given), wanted).backward()
        optimizer.step()


class Lengths(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 24, batch_first=True, bidirectional=True)
        self.out = nn.Linear(48, 3)

    def forward(self, x):
        lengths = (x.abs().sum(2) > 0).sum(1).clamp(min=1)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        _, (h, _) = self.lstm(packed)
        return self.out(torch.cat([h[0], h[1]], 1))


@program("packed-lengths", "", "single inputs targets batches classes logits")
def packed_lengths(s):
    """Sequences of 3 to 12 steps in one batch; the class is in how they turn."""
    draw, n = generator(8), 1500
    y, length = torch.arange(n) % 3, torch.randint(3, 13, (n,), generator=draw)
    t = torch.arange(12)[None] * (0.3 + 0.4 * y[:, None])
    x = torch.stack([t.sin(), t.cos(), torch.ones_like(t), 0.1 * t], 2)
    x = x + 0.3 * torch.randn(n, 12, 4, generator=draw)
    x = x * (torch.arange(12)[None] < length[:, None])[..., None]
    model = Lengths()
    optimizer = s.optimizer("Adam", model.parameters(), 4e-3)
    train(s, model, optimizer, s.batches(x, y, s.batch(32), 180), F.cross_entropy)


class Facts(nn.Module):
    """TransE: a relation is a step from one thing to another."""

    def __init__(self, things=80, relations=4, size=16):
        super().__init__()
        self.things = nn.Embedding(things, size, sparse=True)
        self.relations = nn.Embedding(relations, size, sparse=True)

    def forward(self, facts):
        h, r, t = facts.unbind(1)
        return (self.things(h) + self.relations(r) - self.things(t)).norm(dim=1)


@program("translated-facts", "", "single batches")
def translated_facts(s):
    n, steps = 80, torch.tensor([1, 7, 20, 33])
    facts = torch.tensor([(i, r, (i + int(step)) % n) for i in range(n) for r, step in enumerate(steps)])
    model = Facts()
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=s.rate(1e-2))
    s.attach(model, optimizer)
    for given, _ in s.batches(facts, facts[:, 0], s.batch(64), 300):
        wrong = given.clone()
        side = 2 * (torch.rand(len(wrong)) < 0.5).long()
        wrong[torch.arange(len(wrong)), side] = torch.randint(0, n, (len(wrong),))
        optimizer.zero_grad()
        F.relu(1 + model(given) - model(wrong)).mean().backward()
        optimizer.step()
        with torch.no_grad():  # things lie on a sphere
            model.things.weight.div_(model.things.weight.norm(dim=1, keepdim=True))


class Discrete(nn.Module):
    """An autoencoder whose code is six choices of eight (Gumbel softmax)."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 48))
        self.decode = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 24))
        self.tau = 1.0

    def forward(self, x):
        code = F.gumbel_softmax(self.encode(x).view(-1, 6, 8), self.tau, hard=True)
        return self.decode(code.flatten(1))


@program("gumbel-codes", "", "single inputs batches relu")
def gumbel_codes(s):
    draw = generator(9)
    x = torch.tanh(torch.randn(1500, 3, generator=draw) @ torch.randn(3, 24, generator=draw))
    model = Discrete()
    optimizer = s.optimizer("Adam", model.parameters(), 3e-3)
    s.attach(model, optimizer)
    for step, (given, _) in enumerate(s.batches(x, x, s.batch(48), 240)):
        model.tau = max(0.5, math.exp(-0.005 * step))
        optimizer.zero_grad()
        F.mse_loss(model(given), given).backward()
        optimizer.step()
