"""Programs that do on purpose what is a mistake elsewhere, watched by the three lines: rules that
read the program find nothing in them.

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
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)

warnings.filterwarnings("ignore")
STEPS = 100
# Rules that read the program.
READERS = {"BatchMixing", "ClassImbalance", "ConstantData", "DtypeMismatch",
           "EvalNondeterminism", "FrozenParameter", "LossBroadcast", "MissingZeroGrad",
           "ModelStructure", "SoftmaxMisuse", "StepOrder", "TargetLeak", "TargetMismatch",
           "TrainEvalMode"}


def layers(*sizes, last=None):
    pairs = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in zip(sizes, sizes[1:-1])]
    return nn.Sequential(*pairs, nn.Linear(*sizes[-2:]), *([last] if last is not None else []))


def data(seed=1, classes=4):
    """Points around centers."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (STEPS, 32), generator=generator)
    centers = torch.randn(classes, 12, generator=generator)
    return list(zip(centers[y] + 0.7 * torch.randn(STEPS, 32, 12, generator=generator), y))


def adam(*models, rate=3e-3):
    return torch.optim.Adam([p for model in models for p in model.parameters() if p.requires_grad],
                            lr=rate)


def watched(models, optimizers):
    return sonde.watch(models, optimizers, on_finding=None)


def quiet(watch):
    watch.close()
    shown = [f"{f.rule} {f.severity} {f.place} {f.message}" for f in watch.findings
             if f.rule in READERS]
    check(f"nothing by the program: {shown}", not shown)
    check(f"no fault: {watch.faults}", watch.faults == 0)


def train(net, loss_of, optimizer=None):
    optimizer = optimizer or adam(net)
    watch = watched(net, optimizer)
    for x, y in data():
        optimizer.zero_grad()
        loss_of(x, y).backward()
        optimizer.step()
    quiet(watch)


@program
def autoencoder():
    torch.manual_seed(0)
    net = layers(12, 8, 3, 8, 12)
    train(net, lambda x, y: F.mse_loss(net(x), x))


@program
def variational_autoencoder():
    torch.manual_seed(0)
    code, picture = layers(12, 16, 6), layers(3, 16, 12)
    net = nn.ModuleList([code, picture])

    def loss_of(x, y):
        x = x.sigmoid()
        mean, spread = code(x).chunk(2, 1)
        made = picture(mean + torch.randn_like(mean) * (0.5 * spread).exp())
        return F.binary_cross_entropy_with_logits(made, x, reduction="sum") / len(x) - \
            0.5 * (1 + spread - mean ** 2 - spread.exp()).sum(1).mean()

    train({"code": code, "picture": picture}, loss_of, adam(net))


@program
def two_players():
    torch.manual_seed(0)
    maker, judge = layers(4, 16, 12), layers(12, 16, 1)
    by_maker, by_judge = adam(maker, rate=1e-3), adam(judge, rate=1e-3)
    watch = watched({"maker": maker, "judge": judge}, [by_maker, by_judge])
    bce = nn.BCEWithLogitsLoss()
    for x, _ in data():
        made = maker(torch.randn(32, 4))
        by_judge.zero_grad()
        (bce(judge(x), torch.full((32, 1), 0.9)) +
         bce(judge(made.detach()), torch.zeros(32, 1))).backward()
        by_judge.step()
        by_maker.zero_grad()
        bce(judge(made), torch.ones(32, 1)).backward()
        by_maker.step()
    quiet(watch)


@program
def contrast():
    torch.manual_seed(0)
    net = layers(12, 32, 8)

    def loss_of(x, y):
        a = F.normalize(net(x + 0.1 * torch.randn_like(x)), dim=1)
        b = F.normalize(net(x + 0.1 * torch.randn_like(x)), dim=1)
        scores, right = a @ b.T / 0.2, torch.arange(len(x))
        return (F.cross_entropy(scores, right) + F.cross_entropy(scores.T, right)) / 2

    train(net, loss_of)


@program
def rewards():
    """REINFORCE, and a critic that learns from its own later values."""
    torch.manual_seed(0)
    policy, critic = layers(12, 16, 4), layers(12, 16, 1)
    net = nn.ModuleList([policy, critic])

    def loss_of(x, y):
        choice = torch.distributions.Categorical(logits=policy(x))
        action = choice.sample()
        reward = (action == y).float()
        value = critic(x).squeeze(1)
        with torch.no_grad():
            target = reward + 0.9 * critic(x.roll(1, 0)).squeeze(1)
        return -(choice.log_prob(action) * (target - value).detach()).mean() + \
            F.smooth_l1_loss(value, target) - 0.01 * choice.entropy().mean()

    train({"policy": policy, "critic": critic}, loss_of, adam(net))


@program
def frozen_layers():
    """Fine-tuning of a head on layers in evaluation mode."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2))
    net = nn.Sequential(body, nn.Linear(24, 4))
    body.requires_grad_(False)
    net.train()
    body.eval()
    train(net, lambda x, y: F.cross_entropy(net(x), y))


@program
def distillation():
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(12, 24), nn.Dropout(0.2), nn.ReLU(), nn.Linear(24, 4)).eval()
    net = layers(12, 16, 4)

    def loss_of(x, y):
        with torch.no_grad():
            soft = F.softmax(teacher(x) / 2, 1)
        out = net(x)
        return F.cross_entropy(out, y) + \
            4 * F.kl_div(F.log_softmax(out / 2, 1), soft, reduction="batchmean")

    train(net, loss_of)


@program
def several_tasks():
    torch.manual_seed(0)
    body, kinds, size = layers(12, 24, 16), nn.Linear(16, 4), nn.Linear(16, 1)
    net = nn.ModuleList([body, kinds, size])

    def loss_of(x, y):
        h = body(x).relu()
        return F.cross_entropy(kinds(h), y) + 0.5 * F.mse_loss(size(h)[:, 0], x.norm(dim=1))

    train({"body": body, "kinds": kinds, "size": size}, loss_of, adam(net))


@program
def labels_smoothed_by_hand():
    torch.manual_seed(0)
    net = layers(12, 16, 4)

    def loss_of(x, y):
        soft = F.one_hot(y, 4) * 0.9 + 0.025
        return -(soft * F.log_softmax(net(x), 1)).sum(1).mean()

    train(net, loss_of)


@program
def mixed_samples():
    torch.manual_seed(0)
    net = layers(12, 16, 4)

    def loss_of(x, y):
        other, part = torch.randperm(len(x)), torch.rand(len(x), 1)
        kinds = F.one_hot(y, 4).float()
        return F.cross_entropy(net(part * x + (1 - part) * x[other]),
                               part * kinds + (1 - part) * kinds[other])

    train(net, loss_of)


@program
def gradients_by_hand():
    """Cleared by the program itself; and set without backward."""
    for own in (False, True):
        torch.manual_seed(0)
        net = layers(12, 16, 4)
        optimizer = adam(net)
        watch = watched(net, optimizer)
        for x, y in data():
            loss = F.cross_entropy(net(x), y)
            if own:
                for p, gradient in zip(net.parameters(),
                                       torch.autograd.grad(loss, list(net.parameters()))):
                    p.grad = gradient
            else:
                loss.backward()
            optimizer.step()
            for p in net.parameters():
                p.grad.zero_()
        quiet(watch)


@program
def critics_in_turns():
    """An optimizer that steps at times, whose gradients are cleared then."""
    torch.manual_seed(0)
    actor, critic = layers(12, 16, 4), layers(12, 16, 1)
    by_actor, by_critic = adam(actor), adam(critic)
    watch = watched({"actor": actor, "critic": critic}, [by_critic, by_actor])
    for i, (x, y) in enumerate(data()):
        by_critic.zero_grad()
        F.mse_loss(critic(x)[:, 0], (y == 1).float()).backward()
        by_critic.step()
        if i % 3 == 2:
            by_actor.zero_grad()
            scores = F.log_softmax(actor(x), 1)
            weight = critic(x)[:, 0].detach()
            (-scores.gather(1, y[:, None])[:, 0] * (1 + weight)).mean().backward()
            by_actor.step()
    quiet(watch)


@program
def sequences_to_sequences():
    """The encoder sees all of its tokens; the decoder is causal."""
    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.place = nn.Embedding(9, 16), nn.Embedding(8, 16)
            self.body = nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True)
            self.out = nn.Linear(16, 9)

        def forward(self, x, y):
            place = self.place(torch.arange(x.shape[1]))
            mask = nn.Transformer.generate_square_subsequent_mask(y.shape[1])
            return self.out(self.body(self.embed(x) + place, self.embed(y) + place,
                                      tgt_mask=mask))

    torch.manual_seed(0)
    net = Translator()
    optimizer = adam(net)
    watch = watched(net, optimizer)
    for _ in range(60):
        x = torch.randint(1, 9, (16, 8))
        y = torch.cat([torch.zeros(16, 1, dtype=torch.long), x.flip(1)], 1)
        optimizer.zero_grad()
        F.cross_entropy(net(x, y[:, :-1]).flatten(0, 1), y[:, 1:].flatten()).backward()
        optimizer.step()
    quiet(watch)


@program
def a_tagger():
    """A layer in both directions, with a label for each token."""
    torch.manual_seed(0)

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(9, 12)
            self.both = nn.LSTM(12, 8, batch_first=True, bidirectional=True)
            self.out = nn.Linear(16, 3)

        def forward(self, x):
            return self.out(self.both(self.embed(x))[0])

    net = Tagger()
    optimizer = adam(net)
    watch = watched(net, optimizer)
    for _ in range(60):
        x = torch.randint(9, (16, 8))
        optimizer.zero_grad()
        F.cross_entropy(net(x).transpose(1, 2), (x + x.roll(-1, 1)) % 3).backward()
        optimizer.step()
    quiet(watch)


main()
