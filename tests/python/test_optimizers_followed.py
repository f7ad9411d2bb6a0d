"""Optimizers that are replaced, made later, wrapped, idle or missing: where steps end.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import contextlib
import gc
import io
import os
import sys

from harness import check, main, program, raises

PACKAGE = os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python")
sys.path.insert(0, PACKAGE)
try:
    import torch
    from torch import nn
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def back(model):
    loss = model(torch.arange(12.0).reshape(3, 4) / 12).square().mean()
    loss.backward()
    return loss


def train(model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        back(model)
        optimizer.step()


@contextlib.contextmanager
def said():
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        yield text


@program
def replaced_in_mid_training():
    """A NaN after the change is found at its own step."""
    for drop in (True, False):
        model = net()
        first = torch.optim.SGD(model.parameters(), 0.01)
        with said() as text:
            watch = sonde.watch(model, first, every={"optimizer": 1})
            train(model, first, 10)
            kept = None if drop else first
            del first
            gc.collect()
            second = torch.optim.Adam(model.parameters(), 0.01)
            train(model, second, 20)
            step = watch.step
            with torch.no_grad():
                model[0].weight[0, 0] = float("nan")
            train(model, second, 1)
            found = [finding.step for finding in watch.findings if finding.severity == "error"]
            state = watch.vitals("0.weight.exp_avg") is not None
            watch.close()
        merged = 0 if drop else 1  # two updates are one step until the first comes again
        check(f"steps go on, {drop}: {step}", step == 29 - merged)
        check(f"found at its step: {found}", min(found) == 30 - merged)
        check("its state is seen", state)
        lines = [line for line in text.getvalue().splitlines() if "steps end with Adam" in line]
        check(f"one line says so: {text.getvalue()[:300]}", len(lines) == 1)
        del kept


@program
def made_later():
    """A second optimizer, of parameters that the first does not hold; and one of the same."""
    for head_first in (True, False):
        model = net()
        body = torch.optim.SGD(model[0].parameters(), 0.01)
        with said() as text:
            watch = sonde.watch(model, body)
            train(model, body, 5)
            head = torch.optim.Adam(model[2].parameters(), 0.01)
            third = torch.optim.Adagrad(model[0].parameters(), 0.01)
            for step in range(10):
                body.zero_grad(), head.zero_grad()
                back(model)
                more = [third] if step > 4 else []
                for one in [head, *more, body] if head_first else [body, *more, head]:
                    one.step()
            last, gradient = watch.step, watch.vitals("gradient/2.weight")
            watch.close()
        check(f"steps: {last}", last == 14)
        check("its gradients are seen", gradient is not None and gradient.l2 > 0)
        check(f"a line each: {text.getvalue()}",
              text.getvalue().count("steps end with Adam too from here") == 1 and
              text.getvalue().count("Adagrad steps the model too and was not given") == 1)


class Wrapper:
    """As trainers write it: no optimizer itself."""

    def __init__(self, inner):
        self.inner = inner

    def zero_grad(self):
        self.inner.zero_grad()

    def step(self):
        self.inner.step()


class Derived(torch.optim.Optimizer):
    """As Accelerate writes it: an optimizer that never called __init__."""

    def __init__(self, inner):
        self.optimizer = inner

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        return self.optimizer.step(closure)


@program
def wrapped():
    for wrap in (Wrapper, Derived, lambda inner: Wrapper(Derived(inner))):
        model = net()
        optimizer = wrap(torch.optim.SGD(model.parameters(), 0.01))
        with said():
            watch = sonde.watch(model, optimizer)
            train(model, optimizer, 6)
            step = watch.step
            watch.close()
        check(f"six steps: {step}", step == 5)
    raises(sonde.BadValueError, "expected a torch.optim.Optimizer", sonde.watch, net(), object())


@program
def an_idle_one_is_left_out():
    model, other = net(), net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    idle = torch.optim.Adam(other.parameters(), 0.01)
    with said() as text:
        watch = sonde.watch({"model": model, "other": other}, [optimizer, idle])
        train(model, optimizer, 40)
        step = watch.step
        watch.close()
    check(f"steps: {step}", step == 39)
    check("a line", "Adam has not stepped in 20 steps of SGD" in text.getvalue())


@program
def none_given():
    """An optimizer that was not given is known at its second step."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with said() as text:
        watch = sonde.watch(model)
        train(model, optimizer, 10)
        step, gradient = watch.step, watch.vitals("gradient/0.weight")
        watch.close()
    check(f"steps: {step}", step == 9)
    check("gradients are seen", gradient is not None and gradient.l2 > 0)
    check("a line", text.getvalue().count("steps end with SGD from here") == 1)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with said() as text:
        watch = sonde.watch(model)
        for _ in range(12):
            train(model, optimizer, 1)
            watch.step_end()
        step = watch.step
        watch.close()
    check(f"step_end ends them: {step}", step == 11 and "not given" not in text.getvalue())


@program
def two_players_not_given():
    model = nn.ModuleDict({"d": nn.Linear(4, 4), "g": nn.Linear(4, 4)})
    judge, maker = (torch.optim.SGD(model[name].parameters(), 0.01) for name in "dg")
    with said() as text:
        watch = sonde.watch(model)
        for _ in range(10):
            for one in (judge, maker):
                one.zero_grad()
                model["d"](model["g"](torch.ones(2, 4))).square().mean().backward()
                one.step()
        step = watch.step
        seen = [watch.vitals(f"gradient/{name}.weight") is not None for name in "dg"]
        watch.close()
    check(f"steps: {step}, {seen}: {text.getvalue()}", step == 10 and all(seen))


@program
def updates_by_hand():
    """A loop without an optimizer: a step ends where a forward pass finds changed weights."""
    model = net()
    with said() as text:
        watch = sonde.watch(model)
        for _ in range(15):
            back(model)
            with torch.no_grad():
                for value in model.parameters():
                    value -= 0.01 * value.grad
                    value.grad = None
        step, gradient = watch.step, watch.vitals("gradient/0.weight")
        watch.close()
    check(f"steps: {step}", step == 14)
    check("gradients are seen", gradient is not None and gradient.l2 > 0)
    check("nothing to say", "backward passes" not in text.getvalue())


@program
def unseen_updates_are_said():
    model = net()
    with said() as text:
        watch = sonde.watch(model)
        for _ in range(30):
            back(model)
            for value in model.parameters():
                value.data -= 0.01 * value.grad
                value.grad = None
        watch.close()
    check(f"one line: {text.getvalue()}", text.getvalue().count("10 backward passes") == 1 and
          "watch.step_end()" in text.getvalue())
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with said() as text:
        watch = sonde.watch(model, optimizer)
        for _ in range(120):
            back(model)
        watch.close()
    check(f"one line: {text.getvalue()}", "100 backward passes, and SGD has not stepped" in
          text.getvalue())


@program
def accumulation_is_nothing_to_say():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    with said() as text:
        watch = sonde.watch(model, optimizer)
        for _ in range(5):
            optimizer.zero_grad()
            for _ in range(32):
                back(model)
            optimizer.step()
        step = watch.step
        watch.close()
    check(f"five steps: {step}", step == 4 and "has not stepped" not in text.getvalue())


@program
def the_weights_are_the_same():
    results = []
    for watched in (False, True):
        model = net()
        first = torch.optim.SGD(model.parameters(), 0.01)
        with said():
            watch = sonde.watch(model, first) if watched else None
            train(model, first, 5)
            second = torch.optim.Adam(model.parameters(), 0.01)
            train(model, second, 5)
            if watch:
                watch.close()
        results.append([value.clone() for value in model.parameters()])
        check("no hook is left", not sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks and
              not second._optimizer_step_pre_hooks and not first._optimizer_step_pre_hooks)
    check("bit by bit", all(torch.equal(a, b) for a, b in zip(*results)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
