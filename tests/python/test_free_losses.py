"""Losses that need not fall are known by the program: the verdict names the reason.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
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

STEPS = 6


def sgd(model):
    return torch.optim.SGD(model.parameters(), 0.01)


def net(inputs, outputs, last=None):
    layers = [nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs)]
    return nn.Sequential(*layers, *([last] if last else []))


def train(model, optimizer, loss_of, steps=STEPS):
    """The verdict's line after some steps of one loss."""
    watch = sonde.watch(model, optimizer, on_finding=None)
    for _ in range(steps):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    line = watch._core.verdict()[1]
    watch.close()
    return line


# --- players ---------------------------------------------------------------------------


def gan(steps=STEPS, rate=2e-4):
    maker, judge = net(4, 2), net(2, 1)
    adams = [torch.optim.Adam(one.parameters(), rate) for one in (maker, judge)]
    watch = sonde.watch({"G": maker, "D": judge}, adams, on_finding=None)
    for _ in range(steps):
        real, fake = torch.randn(16, 2) * 0.5 + 1, maker(torch.randn(16, 4))
        adams[1].zero_grad()
        loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        loss.backward()
        adams[1].step()
        adams[0].zero_grad()
        F.softplus(-judge(fake)).mean().backward()
        adams[0].step()
    verdict = watch._core.verdict()
    watch.close()
    return verdict


def two_learners():
    """Each has its own loss and optimizer, and they never meet."""
    a, b = net(4, 1), net(4, 1)
    optimizers = [sgd(a), sgd(b)]
    watch = sonde.watch({"a": a, "b": b}, optimizers, on_finding=None)
    for _ in range(STEPS):
        for model, optimizer in zip((a, b), optimizers):
            x = torch.randn(16, 4)
            optimizer.zero_grad()
            F.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
    line = watch._core.verdict()[1]
    watch.close()
    return line


def two_optimizers():
    """One loss."""
    model = net(4, 1)
    optimizers = [sgd(model[0]), sgd(model[2])]
    watch = sonde.watch(model, optimizers, on_finding=None)
    for _ in range(STEPS):
        x = torch.randn(16, 4)
        for optimizer in optimizers:
            optimizer.zero_grad()
        F.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        for optimizer in optimizers:
            optimizer.step()
    line = watch._core.verdict()[1]
    watch.close()
    return line


# --- rewards ---------------------------------------------------------------------------


def policy():
    model = net(4, 2, nn.Softmax(-1))

    def loss_of():
        x = torch.randn(16, 4)
        drawn = torch.distributions.Categorical(model(x))
        action = drawn.sample()
        reward = (action == (x[:, 0] > 0)).float()
        return -(drawn.log_prob(action) * (reward - reward.mean())).sum()
    return train(model, sgd(model), loss_of)


def gaussian_policy():
    model = net(4, 1)

    def loss_of():
        x = torch.randn(16, 4)
        drawn = torch.distributions.Normal(model(x), 0.5)
        action = drawn.sample()
        return -(drawn.log_prob(action) * -(action - x[:, :1]).abs()).mean()
    return train(model, sgd(model), loss_of)


def episode():
    """One product a step of an episode, with numbers of Python's."""
    model = net(4, 2)

    def loss_of():
        terms = []
        for _ in range(5):
            drawn = torch.distributions.Categorical(logits=model(torch.randn(1, 4)))
            action = drawn.sample()
            terms.append(-drawn.log_prob(action) * (1.5 if action.item() else -0.5))
        return torch.cat(terms).sum()
    return train(model, sgd(model), loss_of)


def ratio_of_policies():
    """Actions of an earlier step."""
    model, x = net(4, 2), torch.randn(16, 4)
    action, gain = torch.randint(2, (16,)), torch.randn(16)
    with torch.no_grad():
        before = torch.log_softmax(model(x), -1)[range(16), action]

    def loss_of():
        ratio = (torch.log_softmax(model(x), -1)[range(16), action] - before).exp()
        return -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
    return train(model, sgd(model), loss_of)


def advantages():
    model, x = net(4, 3), torch.randn(16, 4)
    action, returns = torch.randint(2, (16, 1)), torch.randn(16)

    def loss_of():
        out = model(x)
        gain = (returns - out[:, 2]).detach()
        gain = (gain - gain.mean()) / (gain.std() + 1e-5)
        chosen = torch.log_softmax(out[:, :2], -1).gather(1, action).squeeze(1)
        return -(chosen * gain).mean() + F.mse_loss(out[:, 2], returns)
    return train(model, sgd(model), loss_of)


# --- bootstrap -------------------------------------------------------------------------


def q_learning():
    model, target = net(4, 2), net(4, 2)

    def loss_of():
        x, after, reward = torch.randn(16, 4), torch.randn(16, 4), torch.randn(16)
        chosen = model(x).gather(1, torch.randint(2, (16, 1))).squeeze(1)
        with torch.no_grad():
            best = reward + 0.9 * target(after).max(1).values
        return F.smooth_l1_loss(chosen, best)
    return train(nn.ModuleDict({"q": model, "t": target}), sgd(model), loss_of)


# --- losses that fall ------------------------------------------------------------------


def regression():
    model = net(4, 1)
    return train(model, sgd(model), lambda: F.mse_loss(model(torch.randn(16, 4)),
                                                       torch.randn(16, 1)))


def weighted_samples():
    model, x, y = net(4, 3), torch.randn(16, 4), torch.randint(3, (16, 1))
    weights = torch.rand(16)
    return train(model, sgd(model), lambda: -(
        torch.log_softmax(model(x), -1).gather(1, y).squeeze(1) * weights).mean())


def masked_sequence():
    model, x, y = net(4, 3), torch.randn(8, 5, 4), torch.randint(3, (8, 5))
    mask = (torch.arange(5) < 4).float()
    return train(model, sgd(model), lambda: -(torch.log_softmax(model(x), -1).gather(
        2, y.unsqueeze(2)).squeeze(2) * mask).sum() / mask.sum())


def autoencoder():
    model = net(4, 2)
    decoder = net(1, 4)

    def loss_of():
        x = torch.randn(16, 4)
        mean, width = model(x).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (width / 2).exp()
        fit = ((decoder(code) - x) ** 2).sum(1).mean()
        return fit + 0.1 * -0.5 * (1 + width - mean ** 2 - width.exp()).sum(1).mean()
    both = nn.ModuleList([model, decoder])
    return train(both, sgd(both), loss_of)


def distillation():
    model, teacher = net(4, 3), net(4, 3)

    def loss_of():
        x = torch.randn(16, 4)
        with torch.no_grad():
            soft = torch.softmax(teacher(x) / 2, -1)
        return -(soft * torch.log_softmax(model(x) / 2, -1)).sum(1).mean()
    return train(model, sgd(model), loss_of)


def focal():
    model, y = net(4, 3), torch.randint(3, (16, 1))

    def loss_of():
        chosen = torch.log_softmax(model(torch.randn(16, 4)), -1).gather(1, y)
        return -((1 - chosen.exp()).detach() ** 2 * chosen).mean()
    return train(model, sgd(model), loss_of)


def dropped_by_hand():
    model, last = net(4, 8), nn.Linear(8, 1)

    def loss_of():
        hidden = model(torch.randn(16, 4))
        hidden = hidden * torch.bernoulli(torch.full_like(hidden, 0.5)) * 2
        return F.mse_loss(last(hidden), torch.zeros(16, 1))
    both = nn.ModuleList([model, last])
    return train(both, sgd(both), loss_of)


PLAYERS, REWARDS, ITSELF = "several players", "rewards", "made by the network itself"
CASES = [(lambda: gan()[1], PLAYERS), (two_learners, None), (two_optimizers, None),
         (policy, REWARDS), (gaussian_policy, REWARDS), (episode, REWARDS),
         (ratio_of_policies, REWARDS), (advantages, REWARDS), (q_learning, ITSELF),
         (regression, None), (weighted_samples, None), (masked_sequence, None),
         (autoencoder, None), (distillation, None), (focal, None), (dropped_by_hand, None)]


@program
def reasons():
    for made, reason in CASES:
        torch.manual_seed(0)
        line = made()
        named = "losses need not fall" in line
        check(f"{made.__name__}: {reason}: {line}",
              reason in line if reason else not named)


@program
def healthy_players():
    """A generator's loss rises, and nothing is found."""
    for seed in range(3):
        torch.manual_seed(seed)
        word, line = gan(300)
        check(f"players, {seed}: {line}", word == "nothing found")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
