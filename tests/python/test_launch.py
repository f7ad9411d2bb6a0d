"""python -m sonde watch: programs that know nothing of it run as they do without, watched.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import os
import re
import subprocess
import sys
import textwrap

from harness import FOLDER, check, folder, main, program

PACKAGE = os.path.abspath(os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
sys.path.insert(0, PACKAGE)
try:
    import numpy  # noqa: F401, reading needs it
    import torch  # noqa: F401
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)

HEAD = """
import sys
import torch
from torch import nn

def net(inputs=4, outputs=1):
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))

def train(model, optimizer, steps=30):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()

torch.manual_seed(0)
torch.set_num_threads(1)
"""


def launch(name, text, *options, arguments=(), watched=True):
    """The ended process of a program in a folder of its own."""
    home = folder(name)
    os.makedirs(home)
    path = os.path.join(home, "train.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(HEAD + textwrap.dedent(text))
    before = ["-m", "sonde", "watch", *options] if watched else []
    return subprocess.run([sys.executable, *before, path, *arguments], capture_output=True,
                          text=True, check=False, cwd=home,
                          env={**os.environ, "PYTHONPATH": PACKAGE})


def recorded(name, run):
    return sonde.open(os.path.join(FOLDER, name, run))


def steps_of(done):
    found = re.findall(r"OK: \d+ rules checked ([\d,]+) steps", done.stderr)
    return [int(one.replace(",", "")) for one in found]


@program
def the_program_is_unchanged():
    """Output, arguments, exit code and every bit of the weights."""
    text = """
        import pickle, random, threading
        class Mine: pass
        print(sys.argv[1:], __name__, __file__, sys.path[0], sys.modules["__main__"].__file__)
        print(pickle.dumps(Mine()) == pickle.dumps(Mine()), __spec__, "torch" in sys.modules)
        model = net()
        train(model, torch.optim.Adam(model.parameters(), 0.01))
        print([value.double().sum().item() for value in model.parameters()], torch.rand(1).item(),
              len(model._forward_hooks), nn.Module.__dict__["__call__"] is nn.Module.__call__)
        sys.exit(5)
    """
    results = [launch(f"same{watched}", text, arguments=["--run", "x", "-m"], watched=watched)
               for watched in (False, True)]
    plain, seen = ((done.returncode, re.sub("same(True|False)", "same", done.stdout))
                   for done in results)
    check(f"{plain} and {seen}", plain == seen and plain[0] == 5)
    check(f"it is watched: {results[1].stderr}", steps_of(results[1]) == [30])


@program
def tracebacks_are_the_programs():
    def of(text):
        return re.findall(r'File ".*?(?:train\.py|sonde/\S+)", line.*', text)

    for end, code in (("model(torch.ones(2, 3))", 1), ("raise KeyboardInterrupt", -2),
                      ("raise ValueError from KeyError(1)", 1), ("def f(:", 1)):
        text = f"""
            model = net()
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            {end}
        """
        plain, seen = (launch(f"trace{watched}", text, watched=watched) for watched in (False, True))
        check(f"{end}: {seen.returncode}", seen.returncode == plain.returncode == code)
        lines = [[line.replace("traceTrue", "traceFalse") for line in of(done.stderr)]
                 for done in (plain, seen)]
        check(f"{end}: {lines}", lines[0] == lines[1] and lines[0])
        check("no frame of ours", "sonde/" not in seen.stderr.split("sonde: ")[0])


@program
def a_run_is_recorded():
    text = """
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(40):
            if step == 25:
                with torch.no_grad():
                    model[2].weight[0, 0] = float("nan")
            train(model, optimizer, 1)
    """
    done = launch("recorded", text, "--run", "runs/first", "--every", "1")
    run = recorded("recorded", "runs/first")
    check(f"all steps: {run.last_step}", run.last_step == 39 and run.status == "ended")
    check("gradients", len(run.series("loss")["step"]) == 40 and
          any(info.name == "gradient/0.weight" for info in run.tensors()))
    check(f"the finding: {done.stderr[:300]}", "step 25: error: NonFinite" in done.stderr)


@program
def several_models_are_one_watch():
    text = """
        class Critic(nn.Linear):
            pass

        def main():
            maker, judge = net(4, 4), Critic(4, 1)
            first = torch.optim.SGD(judge.parameters(), 0.01)
            second = torch.optim.SGD(maker.parameters(), 0.01)
            for _ in range(30):
                fake = maker(torch.randn(8, 4))
                first.zero_grad()
                judge(fake.detach()).square().mean().backward()
                first.step()
                second.zero_grad()
                judge(fake).mean().backward()
                second.step()
        main()
    """
    done = launch("players", text, "--run", "run")
    run = recorded("players", "run")
    names = {info.name for info in run.tensors()}
    check(f"both: {sorted(names)}", {"gradient/Sequential.0.weight", "gradient/Critic.weight",
                                     "loss", "loss_1"} <= names)
    check(f"steps: {done.stderr}", run.last_step == 29)
    text = """
        encoder, decoder = nn.Linear(4, 2), nn.Linear(2, 4)
        optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 0.01)
        for _ in range(20):
            optimizer.zero_grad()
            decoder(encoder(torch.randn(8, 4))).square().mean().backward()
            optimizer.step()
    """
    done = launch("halves", text, "--run", "run")
    run = recorded("halves", "run")
    check("by their variables", {"encoder.weight", "decoder.weight"} <=
          {info.name for info in run.tensors()})
    check(f"steps: {done.stderr}", run.last_step == 19)


@program
def one_model_after_another():
    """As in cross-validation: a watch each."""
    text = """
        import gc
        for fold in range(3):
            model = net()
            optimizer = torch.optim.SGD(model.parameters(), 0.01)
            train(model, optimizer, 30)
            del model, optimizer
            gc.collect()
    """
    done = launch("folds", text, "--run", "run")
    runs = [recorded("folds", name)
            for name in ("run", "run-2", "run-3")]
    check(f"three runs: {[run.last_step for run in runs]}",
          [run.last_step for run in runs] == [29, 28, 28])  # the first step begins the search
    check(f"three verdicts: {done.stderr}", len(steps_of(done)) == 3)


@program
def what_is_not_a_plain_program():
    cases = {
        "wrapped": """
            class Wrapper(torch.optim.Optimizer):
                def __init__(self, inner):
                    self.inner = inner
                @property
                def param_groups(self):
                    return self.inner.param_groups
                def zero_grad(self):
                    self.inner.zero_grad()
                def step(self):
                    self.inner.step()
            model = net()
            train(model, Wrapper(torch.optim.SGD(model.parameters(), 0.01)))
        """,
        "warm": """
            model = net()
            model(torch.randn(2, 4))
            nn.MSELoss()(torch.ones(2), torch.ones(2))
            train(model, torch.optim.SGD(model.parameters(), 0.01))
        """,
        "evaluated": """
            model = net().eval()
            model(torch.randn(2, 4))
            model.train()
            train(model, torch.optim.SGD(model.parameters(), 0.01))
        """,
        "unhashable": """
            class Odd(nn.Sequential):
                def __eq__(self, other):
                    return self is other
                __hash__ = nn.Module.__hash__
            model = Odd(nn.Linear(4, 1))
            train(model, torch.optim.SGD(model.parameters(), 0.01))
        """,
    }
    for name, text in cases.items():
        done = launch(name, text)
        check(f"{name}: {done.stderr}", done.returncode == 0 and steps_of(done) == [30])
    done = launch("called", """
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(30):
            optimizer.zero_grad()
            torch.func.functional_call(model, dict(model.named_parameters()),
                                       torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    """)
    check(f"functional_call: {done.stderr}", done.returncode == 0 and steps_of(done) == [30])
    done = launch("alone", """
        model = nn.Linear(4, 1, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(30):
            optimizer.zero_grad()
            (torch.randn(8, 4) @ model.weight.t()).square().mean().backward()
            optimizer.step()
    """)
    check(f"parameters alone: {done.stderr}", done.returncode == 0 and steps_of(done) == [28])
    done = launch("forward", """
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(30):
            optimizer.zero_grad()
            model.forward(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    """)
    check(f"parts: {done.stderr}", done.returncode == 0 and "OK" in done.stderr)


@program
def nothing_to_watch():
    for name, text in (("nothing", "print(1)"), ("predicts", "net().eval()(torch.ones(1, 4))"),
                       ("no_optimizer", "net()(torch.ones(1, 4))")):
        done = launch(name, text)
        check(f"one line: {done.stderr}", done.returncode == 0 and
              done.stderr.startswith("sonde: nothing was watched") and done.stderr.count("\n") == 1)


@program
def a_program_with_a_watch_of_its_own():
    done = launch("own", """
        import sonde
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        if "late" in sys.argv:
            train(model, optimizer, 5)
        watch = sonde.watch(model, optimizer, rules="NonFinite")
        train(model, optimizer, 12)
    """)
    check(f"that one: {done.stderr}", done.stderr == "sonde: OK: 1 rules checked 12 steps\n")
    done = launch("late", """
        import sonde
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        train(model, optimizer, 5)
        watch = sonde.watch(model, optimizer, rules="NonFinite")
        train(model, optimizer, 12)
    """)
    check(f"also later: {done.stderr}", done.stderr == "sonde: OK: 1 rules checked 12 steps\n")


if __name__ == "__main__":
    main()
