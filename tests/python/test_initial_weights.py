"""Initial weights, by the three lines: a layer that is far too large or small is found at its line
before training hides it, and unusual weights of healthy programs are not.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import math
import os
import sys

from harness import check, main, program

sys.path.insert(0, os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
try:
    import torch
    from torch import nn
    from torch.nn import functional as F
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)

STEPS = 60


def classes():
    x = torch.randn(64, 20)
    return x, (x[:, :3] * 2).argmax(1)


def sequences():
    x = torch.randn(32, 10, 8)
    return x, (x[:, :, 0].sum(1) > 0).long()


def net(activation=nn.ReLU):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 64), activation(), nn.Linear(64, 64), activation(),
                         nn.Linear(64, 3))


class Last(nn.Module):
    """The last output of a recurrent layer."""

    def __init__(self, **options):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True, **options)
        self.out = nn.Linear(32 if options else 16, 2)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


class Sine(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        bound = math.sqrt(6 / inputs) / 30
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(30 * self.linear(x))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(20, 20), nn.Linear(20, 20)
        nn.init.zeros_(self.down.weight)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def train(model, batches=classes, rate=1e-3, steps=STEPS):
    optimizer = torch.optim.Adam(model.parameters(), rate)
    watch = sonde.watch(model, optimizer, on_finding=None)
    for _ in range(steps):
        x, y = batches()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    watch.close()
    return watch


def finds(watch, rule, tensor, severity="warning"):
    found = [f for f in watch.findings if f.rule == rule and f.tensor == tensor]
    check(f"{rule} of {tensor}: {[(f.rule, f.tensor, f.message) for f in watch.findings]}",
          len(found) == 1 and found[0].severity == severity and not found[0].resolved_step)


def healthy(watch):
    check(f"healthy: {[(f.rule, f.tensor, f.message) for f in watch.findings]}",
          not [f for f in watch.findings if not f.resolved_step])


@program
def large_layers():
    for i in (0, 2, 4):
        model = net()
        nn.init.normal_(model[i].weight, 0.0, 20.0)
        watch = train(model)
        finds(watch, "PoorWeightInitialization", f"{i}.weight")
        check(f"from the start: {watch.findings[0].step}", watch.findings[0].step == 0)


@program
def large_recurrence():
    model = Last()
    nn.init.normal_(model.lstm.weight_hh_l0, 0.0, 6.0)
    finds(train(model, sequences), "PoorWeightInitialization", "lstm.weight_hh_l0")


@program
def large_attention():
    torch.manual_seed(0)
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0),
                          nn.Flatten(), nn.Linear(80, 2))
    healthy(train(model, sequences))
    nn.init.normal_(model[0].self_attn.in_proj_weight, 0.0, 10.0)
    finds(train(model, sequences), "PoorWeightInitialization", "0.self_attn.in_proj_weight")


@program
def group_that_hardly_moves():
    """Its rate is far too small; the rest of the network learns without it."""
    model = net()
    optimizer = torch.optim.Adam([{"params": model[4].parameters()},
                                  {"params": model[:4].parameters(), "lr": 1e-9}], 1e-2)
    watch = sonde.watch(model, optimizer, on_finding=None)
    for _ in range(STEPS):
        x, y = classes()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    watch.close()
    finds(watch, "WeightUpdateRatio", "0.weight")


@program
def saturated_from_the_start():
    model = net(nn.Tanh)
    nn.init.normal_(model[2].weight, 0.0, 20.0)
    watch = train(model, rate=1e-4)
    check(f"saturated: {[(f.rule, f.tensor, f.severity) for f in watch.findings]}",
          any(f.rule == "SaturatedActivation" and f.severity != "note" for f in watch.findings))


@program
def small_layers():
    model = net()
    for layer in (0, 2, 4):
        nn.init.normal_(model[layer].weight, 0.0, 1e-6)
    watch = train(model)
    check(f"small: {[(f.rule, f.tensor) for f in watch.findings]}",
          "0.weight" in {f.tensor for f in watch.findings
                         if f.rule == "PoorWeightInitialization"})


@program
def unusual_weights():
    small_last = net()
    nn.init.normal_(small_last[4].weight, 0.0, 1e-3)
    normed = nn.Sequential(nn.Linear(20, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 3))
    nn.init.normal_(normed[0].weight, 0.0, 10.0)
    waves = nn.Sequential(Sine(20, 64), nn.Linear(64, 3))
    residual = nn.Sequential(Residual(), Residual(), nn.Linear(20, 3))
    for model in (net(), net(nn.Tanh), small_last, normed, waves, residual):
        healthy(train(model))


@program
def only_the_last_output():
    """The recurrent weight of the reverse direction has no effect."""
    healthy(train(Last(bidirectional=True), sequences, 5e-3, 80))


@program
def clamped_weights():
    """A critic whose weights the program clamps: they rest at the bounds."""
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
    first, second = (torch.optim.RMSprop(m.parameters(), 5e-4) for m in (maker, critic))
    watch = sonde.watch({"maker": maker, "critic": critic}, [first, second], on_finding=None)
    for i in range(150):
        second.zero_grad()
        fake = critic(maker(torch.randn(64, 8)).detach()).mean()
        (fake - critic(torch.randn(64, 2) + 3).mean()).backward()
        second.step()
        for p in critic.parameters():
            p.data.clamp_(-0.01, 0.01)
        if i % 5 == 0:
            first.zero_grad()
            (-critic(maker(torch.randn(64, 8))).mean()).backward()
            first.step()
    watch.close()
    check(f"clamped: {[(f.rule, f.tensor, f.message) for f in watch.findings]}",
          not any(f.rule == "FrozenParameter" for f in watch.findings))


main()
