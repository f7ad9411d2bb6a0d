"""Everyday mistakes in data, in the structure of a network and in the way that samples take through
it, watched by the three lines: each is found, at its line, and its healthy twin is not.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import os
import sys
import warnings

from harness import check, main, program

sys.path.insert(0, os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
try:
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.data import DataLoader, TensorDataset
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)

warnings.filterwarnings("ignore")
EPOCHS, SAMPLES, CLASSES = 3, 640, 4


def line(mark):
    """The number of the line of this file that has a mark."""
    with open(__file__, encoding="utf-8") as file:
        return next(i for i, text in enumerate(file, 1) if text.rstrip().endswith(f"# LINE {mark}"))


def net(inputs=20, outputs=CLASSES):
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, outputs))


def clusters(shape=(20,), seed=3):
    """Points around a center for each class, which overlap."""
    generator = torch.Generator().manual_seed(seed)
    centers = 0.5 * torch.randn(CLASSES, *shape, generator=generator)
    y = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    return centers[y] + torch.randn(SAMPLES, *shape, generator=generator), y


def loader_of(x, y, shuffle=True, size=32):
    return DataLoader(TensorDataset(x, y), batch_size=size, shuffle=shuffle)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(model, loader, loss_of=F.cross_entropy, optimizer=None, epochs=EPOCHS):
    """The watch of an ordinary training program."""
    optimizer = optimizer or sgd(model)
    watch = sonde.watch(model, optimizer, on_finding=None)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)  # LINE call
            loss.backward()
            optimizer.step()
    watch.close()
    return watch


def show(watch):
    check(f"no fault: {watch.faults}", watch.faults == 0)
    return [f"{f.rule} {f.severity} {f.tensor} {f.place} {f.message}" for f in watch.findings]


def finds(watch, rule, mark, severity="error"):
    """The mistake is found, first of all, and at its line."""
    shown = show(watch)
    found = [f for f in watch.findings if f.rule == rule and f.severity == severity]
    check(f"{rule} at line {line(mark) if mark else None}: {shown}",
          any(mark is None or str(f.place).endswith(f":{line(mark)}") for f in found))
    worst = [f for f in watch.findings if f.severity == "error" and not f.because_of]
    check(f"{rule} leads: {shown}",
          severity != "error" or all(f.rule == rule for f in worst))


def healthy(watch):
    shown = show(watch)
    check(f"nothing found: {shown}", not watch.findings and watch.verdict == "nothing found")


# --- classes ---------------------------------------------------------------------------


@program
def labels_in_order():
    def compare(out, y):
        return F.cross_entropy(out, y)  # LINE ordered

    x, y = clusters()
    order = y.argsort()
    for size in (32, 8):
        torch.manual_seed(0)
        finds(train(net(), loader_of(x[order], y[order], shuffle=False, size=size), compare),
              "ClassImbalance", "ordered", "warning")
    torch.manual_seed(0)
    healthy(train(net(), loader_of(x, y, size=8), compare))


@program
def one_class_alone():
    def compare(out, y):
        return F.cross_entropy(out, y)  # LINE alone

    x, y = clusters()
    for labels in (torch.ones_like(y), torch.zeros_like(y)):
        torch.manual_seed(0)
        finds(train(net(), loader_of(x, labels, size=16), compare),
              "ClassImbalance", "alone", "warning")
        torch.manual_seed(0)
        finds(train(net(), [(x[:6], labels[:6])] * 30, compare),
              "ClassImbalance", "alone", "warning")
    torch.manual_seed(0)
    y[:] = 0  # one of two, and rare
    y[500:] = torch.arange(140) % 2
    healthy(train(net(outputs=2), loader_of(x, y, shuffle=False, size=16), compare, epochs=1))


# --- constants -------------------------------------------------------------------------


@program
def inputs_that_do_not_differ():
    x, y = clusters()
    tokens = torch.randint(9, (SAMPLES, 6))
    embedded = nn.Sequential(nn.Embedding(9, 8), nn.Flatten(), nn.Linear(48, CLASSES))
    for model, inputs in ((net(), x * 0), (net(), torch.full_like(x, 0.5)),
                          (embedded, tokens * 0)):
        torch.manual_seed(0)
        finds(train(model, loader_of(inputs, y)), "ConstantData", "call")
    torch.manual_seed(0)
    finds(train(net(outputs=20), loader_of(x * 0 + 1, y), lambda out, y: F.mse_loss(out, out * 0)),
          "ConstantData", "call")


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, mask, x, labels):
        out = self.net(x * mask)
        return F.cross_entropy(out, labels)


@program
def constants_beside_the_input():
    def steps(take):
        torch.manual_seed(0)
        model = Masked()
        optimizer = sgd(model)
        watch = sonde.watch(model, optimizer, on_finding=None)
        for _ in range(EPOCHS):
            for x, y in loader_of(*clusters()):
                optimizer.zero_grad()
                model(torch.ones(20), take(x), y).backward()  # LINE masked
                optimizer.step()
        watch.close()
        return watch

    healthy(steps(lambda x: x))
    finds(steps(lambda x: x * 0), "ConstantData", "masked")


def players(fake, loss_of, last):
    """Two networks against each other; fake: what the critic is to say of what is made."""
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 20))
    critic = nn.Sequential(nn.Linear(20, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), last)
    first = torch.optim.Adam(maker.parameters(), 1e-3)
    second = torch.optim.Adam(critic.parameters(), 1e-3)
    watch = sonde.watch([maker, critic], [first, second], on_finding=None)
    for _ in range(EPOCHS):
        for x, _ in loader_of(*clusters()):
            ones = torch.ones(len(x), 1)
            made = maker(torch.randn(len(x), 4))
            first.zero_grad()
            loss_of(critic(made), ones).backward()
            first.step()
            second.zero_grad()
            real = loss_of(critic(x), ones)
            made = loss_of(critic(made.detach()), fake * ones)  # LINE critic
            (real + made).backward()
            second.step()
    watch.close()
    return watch


@program
def critics_that_say_one_thing():
    finds(players(1, F.binary_cross_entropy, nn.Sigmoid()), "ConstantData", "critic", "warning")
    finds(players(1, F.mse_loss, nn.Identity()), "ConstantData", "critic", "warning")
    for watch in (players(0, F.binary_cross_entropy, nn.Sigmoid()),
                  players(0, F.mse_loss, nn.Identity())):
        check(f"a critic: {show(watch)}", all(f.rule != "ConstantData" for f in watch.findings))


@program
def targets_that_do_not_differ():
    x, y = clusters()
    binary = F.binary_cross_entropy_with_logits
    torch.manual_seed(0)
    finds(train(net(outputs=1), loader_of(x, torch.ones(SAMPLES, 1)),
                lambda out, y: binary(out, y)),  # LINE ones
          "ConstantData", "ones", "warning")
    torch.manual_seed(0)
    healthy(train(net(outputs=1), loader_of(x, (y[:, None] == 0).float()),
                  lambda out, y: binary(out, y)))

    class Equation(nn.Module):
        """u' = -u, by the residual."""
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))

        def forward(self, t):
            t = t.requires_grad_()
            u = 1 + t * self.net(t)
            return torch.autograd.grad(u.sum(), t, create_graph=True)[0] + u

    torch.manual_seed(0)
    model = Equation()
    watch = train(model, loader_of(torch.rand(SAMPLES, 1), torch.zeros(SAMPLES, 1)), F.mse_loss,
                  torch.optim.Adam(model.parameters(), 1e-2))
    check(f"an equation: {show(watch)}", all(f.rule != "ConstantData" for f in watch.findings))


# --- samples that are mixed ------------------------------------------------------------


class Way(nn.Module):
    """A network whose forward is a function of it and its input."""
    def __init__(self, way, **layers):
        super().__init__()
        self.way = way
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.way(self, x)


def trained(way, shape=(12, 10), loader=None, loss_of=F.cross_entropy, **layers):
    torch.manual_seed(0)
    return train(Way(way, **layers), loader or loader_of(*clusters(shape)), loss_of, epochs=2)


@program
def rows_of_several_samples():
    def apart(m, x):
        return m.out(torch.relu(m.layer(x.flatten(1))))

    layers = {"layer": nn.Linear(120, 32), "out": nn.Linear(32, CLASSES)}
    healthy(trained(apart, **layers))

    def cut(m, x):
        x = x.reshape(12, -1, 10).transpose(0, 1)  # LINE cut
        return m.out(torch.relu(m.layer(x.flatten(1))))
    finds(trained(cut, **layers), "BatchMixing", "cut")

    def turned(m, x):
        x = torch.relu(m.layer(x.flatten(1))).t()
        return m.out(x.contiguous().view(32, -1))  # LINE turned
    finds(trained(turned, layer=nn.Linear(120, 20), out=nn.Linear(20, CLASSES)),
          "BatchMixing", "turned")

    def last_states(m, x):
        _, h = m.rnn(x)
        return m.out(h.reshape(x.shape[0], -1))  # LINE states
    recurrent = {"rnn": nn.GRU(10, 16, num_layers=2, batch_first=True),
                 "out": nn.Linear(32, CLASSES)}
    finds(trained(last_states, **recurrent), "BatchMixing", "states")

    def moved_first(m, x):
        _, h = m.rnn(x)
        return m.out(h.transpose(0, 1).reshape(x.shape[0], -1))
    healthy(trained(moved_first, **recurrent))


@program
def steps_that_are_samples():
    def last(m, x):
        out, _ = m.rnn(x)  # LINE steps
        return m.out(out[:, -1])

    def time_first(m, x):
        out, _ = m.rnn(x.transpose(0, 1))
        return m.out(out[-1])

    out = nn.Linear(16, CLASSES)
    finds(trained(last, rnn=nn.LSTM(10, 16), out=out), "BatchMixing", "steps")
    healthy(trained(last, rnn=nn.LSTM(10, 16, batch_first=True), out=out))
    healthy(trained(time_first, rnn=nn.LSTM(10, 16), out=out))

    def attends(m, x):
        h = m.layer(x)
        return m.out((h + m.attention(h, h, h)[0]).mean(1))  # LINE attends

    for first in (False, True):
        watch = trained(attends, layer=nn.Linear(10, 16), out=nn.Linear(16, CLASSES),
                        attention=nn.MultiheadAttention(16, 2, batch_first=first))
        if first:
            healthy(watch)
        else:
            finds(watch, "BatchMixing", "attends")

    def flat(m, x):
        out, _ = m.rnn(x)  # LINE flat
        return m.out(out)
    finds(trained(flat, (10,), rnn=nn.GRU(10, 16), out=nn.Linear(16, CLASSES)),
          "BatchMixing", "flat")
    x, y = clusters((10,))  # one long sequence, a label for each step
    pieces = list(zip(x.split(32), y.split(32)))
    healthy(trained(lambda m, x: m.out(m.rnn(x[:, None])[0][:, 0]), loader=pieces,
                    rnn=nn.GRU(10, 16), out=nn.Linear(16, CLASSES)))


@program
def shares_of_a_batch():
    def softmax(m, x):
        h = F.softmax(m.layer(x), dim=m.dim)  # LINE shares
        return m.out(h)

    def by_hand(m, x):
        h = m.layer(x).exp()
        return m.out(h / h.sum(m.dim, keepdim=True))  # LINE sums

    for way, mark in ((softmax, "shares"), (by_hand, "sums")):
        for dim in (0, 1):
            watch = trained(way, (20,), dim=dim, layer=nn.Linear(20, 24),
                            out=nn.Linear(24, CLASSES), loss_of=lambda out, y:
                            F.cross_entropy(20 * out, y))
            if dim:
                check(f"shares of features: {show(watch)}",
                      all(f.rule != "BatchMixing" for f in watch.findings))
            else:
                finds(watch, "BatchMixing", mark)


@program
def samples_that_stay_apart():
    """What looks like a mixture."""
    def heads(m, x):
        b, t, _ = x.shape
        q, k, v = (z.reshape(b, t, 2, 8).transpose(1, 2).reshape(b * 2, t, 8)
                   for z in m.layer(x).chunk(3, -1))
        h = F.softmax(q @ k.transpose(1, 2) / 3, dim=-1) @ v
        return m.out(h.reshape(b, 2, t, 8).permute(0, 2, 1, 3).reshape(b, t, 16).mean(1))
    healthy(trained(heads, layer=nn.Linear(10, 48), out=nn.Linear(16, CLASSES)))

    def windows(m, x):
        b = x.shape[0]
        x = x.reshape(b, 3, 4, 2, 5).permute(0, 1, 3, 2, 4).reshape(-1, 20)
        return m.out(torch.relu(m.layer(x)).reshape(b, -1))
    healthy(trained(windows, layer=nn.Linear(20, 8), out=nn.Linear(48, CLASSES)))

    def normed(m, x):
        h = m.layer(x.flatten(1))
        return m.out(torch.relu((h - h.mean(0)) / (h.var(0) + 1e-5).sqrt()))
    healthy(trained(normed, layer=nn.Linear(120, 32), out=nn.Linear(32, CLASSES)))

    def there_and_back(m, x):
        x = (x.reshape(-1, 7) * 1.5).reshape(x.shape)
        return m.out(torch.relu(m.layer(x.flatten(1))))
    healthy(trained(there_and_back, loader=loader_of(*clusters((7, 12)), size=40),
                    layer=nn.Linear(84, 32), out=nn.Linear(32, CLASSES)))

    def bag(m, x):  # one label for a bag of instances
        h = torch.relu(m.layer(x))
        return m.out((F.softmax(m.score(h), dim=0) * h).sum(0, keepdim=True))
    x, y = clusters((12, 10))
    watch = trained(bag, loader=[(x[i], y[i:i + 1]) for i in range(60)],
                    layer=nn.Linear(10, 16), score=nn.Linear(16, 1), out=nn.Linear(16, CLASSES))
    check(f"instances of a bag: {show(watch)}",
          all(f.rule != "BatchMixing" for f in watch.findings))

    def channels(m, x):
        h = torch.relu(m.layer(x.transpose(1, 2)))
        return m.out(h.mean(2))
    healthy(trained(channels, layer=nn.Conv1d(10, 16, 3), out=nn.Linear(16, CLASSES)))


main()
