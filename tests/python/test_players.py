"""Losses that share the place in the program that calls backward().

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import contextlib
import os
import sys

from harness import check, folder, main, program

sys.path.insert(0, os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
try:
    import torch
    from torch import nn
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)


def parts():
    torch.manual_seed(0)
    return nn.ModuleDict({"g": nn.Linear(4, 8), "d": nn.Linear(8, 1)})


def losses_of(run):
    """{name: its mean at each step at which it was seen}"""
    trial = sonde.open(run)
    return {info.name: trial.series(info.name, "mean", mode="train")["mean"].tolist()
            for info in trial.tensors() if info.role == "loss"}


def watch(run, model, optimizers):
    return sonde.watch(model, optimizers, run=run, rules=None)


@program
def players_of_a_loop():
    """One line of a loop calls backward() for both; the second loss reaches the first's
    parameters too, and is of another optimizer."""
    run, model = folder("loop"), parts()
    judge, maker = (torch.optim.SGD(model[name].parameters(), 0.1) for name in ("d", "g"))
    shown = {"loss": [], "loss_1": []}
    with watch(run, model, [judge, maker]):
        for _ in range(20):
            for name, one in zip(shown, (judge, maker)):
                fake = model["g"](torch.randn(6, 4))
                score = model["d"](fake.detach() if one is judge else fake).mean()
                loss = score + 3 if one is judge else -score
                one.zero_grad()
                loss.backward()
                one.step()
                shown[name].append(loss.item())
    check("each player's loss has its values", losses_of(run) == shown)


@program
def critics_of_one_optimizer():
    """Two losses of a loop share the optimizer and no parameter."""
    run, model = folder("twins"), nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Linear(3, 1)})
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    shown = {"loss": [], "loss_1": []}
    with watch(run, model, sgd):
        for _ in range(3):
            sgd.zero_grad()
            for name, one in zip(shown, model.values()):
                loss = (one(torch.randn(5, 3)) ** 2).mean()
                loss.backward()
                shown[name].append(loss.item())
            sgd.step()
    check("each critic's loss has its values", losses_of(run) == shown)


@program
def losses_of_a_helper():
    """Two lines call a helper, with losses of one trunk; a scaler is between."""
    run = folder("helper")
    model = nn.ModuleDict({"trunk": nn.Linear(4, 8), "policy": nn.Linear(8, 3),
                           "value": nn.Linear(8, 1)})
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    shown = {"loss": [], "loss_1": []}

    def back(loss, name):
        scaler.scale(loss).backward()
        shown[name].append(loss.item())

    with watch(run, model, sgd):
        for _ in range(3):
            sgd.zero_grad()
            x = torch.randn(5, 4)
            back(model["policy"](model["trunk"](x)).exp().mean(), "loss")
            back((model["value"](model["trunk"](x)) ** 2).mean(), "loss_1")
            scaler.step(sgd)
            scaler.update()
    check("each loss has its values", losses_of(run) == shown)


@program
def later_players():
    """The other player begins after the first LOOKS passes: its first step is mixed."""
    run, model = folder("later"), parts()
    judge, maker = (torch.optim.SGD(model[name].parameters(), 0.1) for name in ("d", "g"))
    made = []
    with watch(run, model, [judge, maker]):
        for step in range(60):
            for one in (judge, maker) if step >= 40 else (judge,):
                fake = model["g"](torch.randn(6, 4))
                loss = model["d"](fake.detach() if one is judge else fake).mean()
                one.zero_grad()
                loss.backward()
                one.step()
                made += [loss.item()] if one is maker else []
    check("it has a name", losses_of(run).get("loss_1", [])[-19:] == made[-19:])


@program
def one_loss_stays_one():
    """Micro-batches, closures, another call later, layers that join later, and layers that
    a micro-batch leaves out."""
    run, model = folder("micro"), nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
    sgd = torch.optim.SGD(model.parameters(), 0.01)
    model[1].requires_grad_(False)

    def back(used):
        x = torch.randn(5, 4)
        for layer in used:
            x = layer(x)
        (x ** 2).mean().backward()

    def train(first, second, steps):
        for _ in range(steps):
            sgd.zero_grad()
            with contextlib.nullcontext():
                for used in (first, second):
                    back(used)
            sgd.step()

    with watch(run, model, sgd):
        train(model, model, 4)
        train(model[:2], model, 4)
        model.requires_grad_(True)
        train(model, model, 4)
        train(model, model[:2], 30)
        sgd.zero_grad()
        back(model)
        back(model)  # the same parameters
        sgd.step()
    check("one loss", set(losses_of(run)) == {"loss"})

    run, model = folder("closure"), nn.Linear(4, 1)
    lbfgs = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")
    x = torch.randn(16, 4)

    def closure():
        lbfgs.zero_grad()
        loss = ((model(x) - 1) ** 2).mean()
        loss.backward()
        return loss

    with watch(run, model, lbfgs):
        for _ in range(3):
            lbfgs.step(closure)
    check("one loss of a closure", set(losses_of(run)) == {"loss"})


@program
def named_losses():
    """Any number of losses of a step that the program names: each is one series, nothing is
    freed twice, and their references go with the step."""
    for count in (1, 2, 3, 8, 9, 40):
        model = nn.Linear(4, 2)
        sgd = torch.optim.SGD(model.parameters(), 0.01)
        losses = []
        with sonde.watch(model, sgd, run=folder("named")) as watched:
            for _ in range(30):
                sgd.zero_grad()
                output = model(torch.randn(3, 4))
                losses = [watched.loss((output * (k + 1)).square().mean(), f"loss{k}")
                          for k in range(count)]
                before = sys.getrefcount(losses[0])
                (losses[0] if count == 1 else sum(losses)).backward()
                sgd.step()
        trial = sonde.open(watched.path)
        names = {info.name for info in trial.tensors() if info.role == "loss"}
        # the sum is a loss too: backward() is called on it
        check(f"{count} named losses: {sorted(names)}",
              {f"loss{k}" for k in range(count)} <= names and len(names) <= count + (count > 1))
        check(f"{count} named losses: references {before} to {sys.getrefcount(losses[0])}",
              sys.getrefcount(losses[0]) <= before)
        steps = [len(trial.series(f"loss{k}", "mean")["step"]) for k in range(count)]
        check(f"{count} named losses: steps {steps}", steps == [30] * count)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
