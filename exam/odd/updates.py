"""Updates that a plain optimizer would not make."""

import torch
from session import program
from tasks import blobs, curve, fit, layers, words
from torch import nn
from torch.nn import functional as F


@program("warm-restarts", "")
def warm_restarts(s):
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 64, 6)
    optimizer = torch.optim.SGD(net.parameters(), s.rate(0.2), momentum=0.9)
    fit(s, net, optimizer, x, y, F.cross_entropy, steps=300,
        schedule=torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 50, eta_min=1e-5))


@program("one-cycle", "")
def one_cycle(s):
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 64, 6)
    optimizer = torch.optim.SGD(net.parameters(), s.rate(0.01), momentum=0.9)
    fit(s, net, optimizer, x, y, F.cross_entropy, steps=300, schedule=torch.optim.lr_scheduler.OneCycleLR(
        optimizer, s.rate(0.3), total_steps=301))


@program("long-warm-up", "")
def long_warm_up(s):
    """The rate rises from 0 over 2,000 steps, of which 300 are run."""
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 64, 6)
    optimizer = torch.optim.AdamW(net.parameters(), s.rate(5e-3))
    fit(s, net, optimizer, x, y, F.cross_entropy, steps=300,
        schedule=torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 2000))


@program("steps-of-rate", "")
def steps_of_rate(s):
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 64, 6)
    optimizer = torch.optim.SGD(net.parameters(), s.rate(0.1), momentum=0.9)
    fit(s, net, optimizer, x, y, F.cross_entropy, steps=300,
        schedule=torch.optim.lr_scheduler.MultiStepLR(optimizer, [100, 200], 0.01))


@program("signs", "")
def signs(s):
    """Each element moves by the rate."""
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 64, 6)
    optimizer = torch.optim.SGD(net.parameters(), s.rate(1e-3))
    s.attach(net, optimizer)
    for bx, by in s.batches(x, y, s.batch(32), 250):
        optimizer.zero_grad()
        F.cross_entropy(net(bx), by).backward()
        for p in net.parameters():
            p.grad.sign_()
        optimizer.step()


@program("adagrad-1", "")
def adagrad(s):
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 6)
    fit(s, net, torch.optim.Adagrad(net.parameters(), s.rate(0.1)), x, y, F.cross_entropy)


@program("adadelta", "")
def adadelta(s):
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 6)
    fit(s, net, torch.optim.Adadelta(net.parameters(), s.rate(1.0)), x, y, F.cross_entropy)


@program("rprop", "")
def rprop(s):
    """All samples at once, steps that grow by a fifth each."""
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 6)
    optimizer = torch.optim.Rprop(net.parameters(), s.rate(1e-3))
    s.attach(net, optimizer)
    for _ in range(150):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()


@program("second-order", "")
def second_order(s):
    x, y = curve(count=300)
    net = layers(8, 32, 1, activation=nn.Tanh)
    optimizer = torch.optim.LBFGS(net.parameters(), lr=s.rate(0.8), max_iter=5)
    s.attach(net, optimizer)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    for _ in range(80):
        optimizer.step(closure)


@program("langevin", "")
def langevin(s):
    """Noise is added to the weights after every step."""
    x, y = curve()
    net = layers(8, 32, 1)

    def shake(_):
        with torch.no_grad():
            for p in net.parameters():
                p.add_(3e-3 * torch.randn_like(p))

    fit(s, net, torch.optim.SGD(net.parameters(), s.rate(2e-2)), x, y, F.mse_loss, steps=300, after=shake)


@program("turns", "")
def turns(s):
    """Two optimizers in turn, 25 steps each: half of the weights rest."""
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 64, 6)
    both = [torch.optim.Adam(net[:2].parameters(), s.rate(3e-3)), torch.optim.Adam(net[2:].parameters(), s.rate(3e-3))]
    s.attach(net, both)
    for step, (bx, by) in enumerate(s.batches(x, y, s.batch(32), 300)):
        for optimizer in both:
            optimizer.zero_grad()
        F.cross_entropy(net(bx), by).backward()
        both[step // 25 % 2].step()


@program("unfrozen-late", "")
def unfrozen_late(s):
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 64, 6)
    net[:4].requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters(), s.rate(3e-3))

    def thaw(step):
        if step == 100:
            net[:4].requires_grad_(True)

    fit(s, net, optimizer, x, y, F.cross_entropy, steps=250, after=thaw)


@program("accumulated", "")
def accumulated(s):
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 6)
    optimizer = torch.optim.Adam(net.parameters(), s.rate(3e-3))
    s.attach(net, optimizer)
    for step, (bx, by) in enumerate(s.batches(x, y, s.batch(8), 800)):
        (F.cross_entropy(net(bx), by) / 8).backward()
        if step % 8 == 7:
            optimizer.step()
            optimizer.zero_grad()


@program("averaged", "")
def averaged(s):
    """Every 50 steps the mean of the weights so far takes the place of the weights."""
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 6)
    kept = [p.detach().clone() for p in net.parameters()]

    def average(step):
        with torch.no_grad():
            for k, p in zip(kept, net.parameters()):
                k.lerp_(p, 0.1)
                if step % 50 == 49:
                    p.copy_(k)

    fit(s, net, torch.optim.SGD(net.parameters(), s.rate(0.1)), x, y, F.cross_entropy, steps=300, after=average)


@program("evolution", "")
def evolution(s):
    """Gradients from losses of 16 neighbors: there is no backward pass."""
    x, y = blobs(classes=3, spread=1.0)
    net = layers(10, 8, 3).requires_grad_(False)
    optimizer = torch.optim.SGD(net.parameters(), s.rate(0.2), momentum=0.9)
    s.attach(net, optimizer)
    for bx, by in s.batches(x, y, s.batch(64), 150):
        moves, seen = [], []
        for _ in range(8):
            move = [0.05 * torch.randn_like(p) for p in net.parameters()]
            for sign in (1, -2, 1):
                for p, m in zip(net.parameters(), move):
                    p.add_(sign * m)
                if sign != 1 or len(seen) % 2 == 0:
                    seen.append(float(F.cross_entropy(net(bx), by)))
            moves.append(move)
        for i, p in enumerate(net.parameters()):
            p.grad = sum((seen[2 * k] - seen[2 * k + 1]) * m[i] for k, m in enumerate(moves)) / (2 * 8 * 0.05 ** 2)
        optimizer.step()
        s.score(-sum(seen) / len(seen))


@program("boltzmann", "")
def boltzmann(s):
    """Contrastive divergence: gradients are written by hand."""
    x = (blobs(classes=6, size=20, spread=0.5)[0] > 0).float()
    net = nn.Linear(20, 16)
    back = nn.Parameter(torch.zeros(20))
    net.register_parameter("visible", back)
    optimizer = torch.optim.SGD(net.parameters(), s.rate(0.05))
    s.attach(net, optimizer)
    for bx, _ in s.batches(x, x, s.batch(32), 250):
        with torch.no_grad():
            up = torch.sigmoid(net(bx))
            down = torch.sigmoid(torch.bernoulli(up) @ net.weight + back)
            again = torch.sigmoid(net(down))
            net.weight.grad = -(up.T @ bx - again.T @ down) / len(bx)
            net.bias.grad, back.grad = -(up - again).mean(0), -(bx - down).mean(0)
        optimizer.step()
        s.score(-float((bx - down).square().mean()))


@program("attack", "")
def attack(s):
    """A disturbance of the input, which begins at 0, is trained by the signs of its gradient."""
    x, y = blobs(classes=4, count=64)
    net = layers(10, 32, 4).requires_grad_(False)

    class Disturbed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.delta = net, nn.Parameter(torch.zeros(64, 10))

        def forward(self, x):
            return self.net(x + self.delta)

    whole = Disturbed()
    optimizer = torch.optim.SGD([whole.delta], s.rate(0.02))
    s.attach(whole, optimizer)
    for _ in range(120):
        optimizer.zero_grad()
        (-F.cross_entropy(whole(x), y)).backward()
        whole.delta.grad.sign_()
        optimizer.step()
        with torch.no_grad():
            whole.delta.clamp_(-0.5, 0.5)


@program("adversarial-training", "")
def adversarial_training(s):
    """A second backward pass for the input comes before that for the weights."""
    x, y = blobs(classes=4)
    net = layers(10, 64, 4)
    optimizer = torch.optim.Adam(net.parameters(), s.rate(2e-3))
    s.attach(net, optimizer)
    for bx, by in s.batches(x, y, s.batch(32), 250):
        bx.requires_grad_(True)
        F.cross_entropy(net(bx), by).backward()
        worse = (bx + 0.3 * bx.grad.sign()).detach()
        optimizer.zero_grad()
        F.cross_entropy(net(worse), by).backward()
        optimizer.step()


class Players(nn.Module):
    def __init__(self):
        super().__init__()
        self.make, self.tell = layers(4, 32, 2), layers(2, 32, 1, activation=nn.Tanh)


@program("wasserstein", "")
def wasserstein(s):
    """A critic with a penalty on its gradient, five steps for each of the other player."""
    real = torch.randn(2000, 2) * torch.tensor([0.3, 1.0]) + 1
    net = Players()
    both = [torch.optim.Adam(net.make.parameters(), s.rate(1e-3), betas=(0.0, 0.9)),
            torch.optim.Adam(net.tell.parameters(), s.rate(1e-3), betas=(0.0, 0.9))]
    s.attach(net, both)
    n = s.batch(32)
    for step in range(300):
        made, true = net.make(torch.randn(n, 4)), real[torch.randint(0, len(real), (n,))]
        for optimizer in both:
            optimizer.zero_grad()
        if step % 6 == 5:
            (-net.tell(made).mean()).backward()
            both[0].step()
            continue
        mix = torch.lerp(made.detach(), true, torch.rand(n, 1)).requires_grad_(True)
        slope, = torch.autograd.grad(net.tell(mix).sum(), mix, create_graph=True)
        (net.tell(made.detach()).mean() - net.tell(true).mean() + 10 * (slope.norm(2, 1) - 1).square().mean()).backward()
        both[1].step()


@program("small-gan", "")
def small_gan(s):
    real = torch.randn(2000, 2) * torch.tensor([0.3, 1.0]) + 1
    net = Players()
    both = [torch.optim.Adam(net.make.parameters(), s.rate(2e-3)), torch.optim.Adam(net.tell.parameters(), s.rate(2e-3))]
    s.attach(net, both)
    n = s.batch(32)
    for _ in range(250):
        made, true = net.make(torch.randn(n, 4)), real[torch.randint(0, len(real), (n,))]
        both[1].zero_grad()
        (F.softplus(-net.tell(true)).mean() + F.softplus(net.tell(made.detach())).mean()).backward()
        both[1].step()
        both[0].zero_grad()
        F.softplus(-net.tell(made)).mean().backward()
        both[0].step()


@program("clipped-recurrence", "")
def clipped_recurrence(s):
    """A recurrent network whose gradients explode now and then, and are clipped."""
    x = torch.randn(1000, 40, 1)
    y = x.cumsum(1)[:, -1]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.RNN(1, 32, batch_first=True, nonlinearity="relu"), nn.Linear(32, 1)
            nn.init.eye_(self.rnn.weight_hh_l0)

        def forward(self, x):
            return self.head(self.rnn(x)[0][:, -1])

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), s.rate(0.01))
    s.attach(net, optimizer)
    for bx, by in s.batches(x, y, s.batch(32), 250):
        optimizer.zero_grad()
        F.mse_loss(net(bx), by).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()


@program("sparse-rows", "")
def sparse_rows(s):
    """A table of 2,000 rows, of which a batch uses sixteen, with sparse gradients."""
    x = torch.randint(0, 2000, (3000, 2))
    y = ((x[:, 0] + x[:, 1]) % 2).float()
    table, net = nn.Embedding(2000, 8, sparse=True), layers(16, 32, 1)
    whole = nn.Sequential(table, nn.Flatten(), net)
    both = [torch.optim.SparseAdam(table.parameters(), s.rate(1e-2)), torch.optim.Adam(net.parameters(), s.rate(2e-3))]
    s.attach(whole, both)
    for bx, by in s.batches(x, y, s.batch(8), 300):
        for optimizer in both:
            optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(whole(bx)[:, 0], by).backward()
        for optimizer in both:
            optimizer.step()


@program("new-head", "")
def new_head(s):
    """The last layer is drawn anew every 80 steps, as against loss of plasticity."""
    x, y = blobs(classes=6, spread=1.0)
    net = layers(10, 64, 6)

    def renew(step):
        if step % 80 == 79:
            net[2].reset_parameters()

    fit(s, net, torch.optim.SGD(net.parameters(), s.rate(0.05)), x, y, F.cross_entropy, steps=300, after=renew)


@program("temperatures", "")
def temperatures(s):
    """Choices of Gumbel's softmax, whose temperature falls from 5 to 0.1."""
    x, y = blobs(classes=4)

    class Chosen(nn.Module):
        def __init__(self):
            super().__init__()
            self.score, self.out, self.heat = layers(10, 32, 12), nn.Linear(12, 4), 5.0

        def forward(self, x):
            return self.out(F.gumbel_softmax(self.score(x), tau=self.heat))

    net = Chosen()

    def cool(step):
        net.heat = max(0.1, 5.0 * 0.98 ** step)

    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(5e-3)), x, y, F.cross_entropy, steps=300, after=cool)


@program("scaled-loss", "")
def scaled_loss(s):
    """The loss is multiplied by 65,536 and gradients divided by it, by hand."""
    x, y = blobs(classes=6, spread=2.0)
    net = layers(10, 64, 6)
    optimizer = torch.optim.SGD(net.parameters(), s.rate(0.1))
    s.attach(net, optimizer)
    for bx, by in s.batches(x, y, s.batch(32), 200):
        optimizer.zero_grad()
        (65536 * F.cross_entropy(net(bx), by)).backward()
        for p in net.parameters():
            p.grad.div_(65536)
        optimizer.step()


@program("meta", "")
def meta(s):
    """The start of a network for sines, by the first order of the inner steps."""
    net = layers(1, 32, 32, 1)
    optimizer = torch.optim.Adam(net.parameters(), s.rate(3e-3))
    s.attach(net, optimizer)
    for _ in range(200):
        optimizer.zero_grad()
        for _ in range(4):
            phase, height = 3 * torch.rand(()), 0.5 + 4 * torch.rand(())
            draw = lambda: 10 * torch.rand(s.batch(10), 1) - 5
            x = draw()
            weights = dict(net.named_parameters())
            inner = F.mse_loss(torch.func.functional_call(net, weights, x), height * torch.sin(x + phase))
            slopes = torch.autograd.grad(inner, list(weights.values()))
            fast = {k: w - 0.02 * g for (k, w), g in zip(weights.items(), slopes)}
            x = draw()
            (F.mse_loss(torch.func.functional_call(net, fast, x), height * torch.sin(x + phase)) / 4).backward()
        optimizer.step()


@program("hypernetwork", "")
def hypernetwork(s):
    x, y = curve()

    class Hyper(nn.Module):
        def __init__(self):
            super().__init__()
            self.code, self.make = nn.Parameter(0.1 * torch.randn(4)), layers(4, 32, 8 * 16 + 16)

        def forward(self, x):
            made = self.make(self.code)
            return torch.tanh(x @ made[:128].view(8, 16)) @ made[128:, None]

    net = Hyper()
    fit(s, net, torch.optim.Adam(net.parameters(), s.rate(2e-3)), x, y, F.mse_loss, steps=250)
