"""What programs do wrong, or do unexpectedly, while sonde.watch looks: a clear exception before
the first step, or a counted loss; never a crash, a broken program or a changed number.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import os
import subprocess
import io
import sys
import textwrap
import threading

from harness import FOLDER, check, folder, main, program, raises

PACKAGE = os.path.abspath(os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
sys.path.insert(0, PACKAGE)
try:
    import numpy
    import torch
    from torch import nn
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)


def mlp(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(4, 6, generator=generator)


def step(model, optimizer, x=None):
    optimizer.zero_grad()
    loss = model(batch() if x is None else x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(),
                                                 b.state_dict().values()))


def child(code, **more):
    """Runs a program; returns (status, its standard error)."""
    text = textwrap.dedent(code).replace("PACKAGE", repr(PACKAGE))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                          check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}, **more)
    return done.returncode, done.stderr


# --- models -------------------------------------------------------------------------------------

@program
def no_parameters():
    raises(sonde.BadValueError, "no parameters", sonde.watch, nn.ReLU(), run=folder("none"))
    check("no run is begun", not os.path.exists(os.path.join(FOLDER, "none")))


@program
def on_the_meta_device():
    raises(sonde.BadValueError, "weight: it is on the meta device", sonde.watch,
           nn.Linear(2, 2, device="meta"))


@program
def other_parameters():
    raises(sonde.BadValueError, "none of the model's parameters", sonde.watch, mlp(),
           torch.optim.SGD(mlp().parameters(), 0.1))
    model, other = mlp(), nn.Linear(6, 6)
    sgd = torch.optim.SGD([*model.parameters(), *other.parameters()], 0.1)
    with sonde.watch(model, sgd, run=folder("more"), on_finding=None) as watch:
        step(model, sgd)
    check("one with more than the model's is watched", watch.faults == 0 and
          sonde.open(watch.path).last_step == 0)


@program
def no_optimizer_given():
    """A program that does not give its optimizer is told so, once, unless it ends its steps."""
    for ends in (False, True):
        model = nn.Linear(4, 1)
        sgd, other = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, nn.Linear(4, 1))]
        errors, sys.stderr = sys.stderr, io.StringIO()
        try:
            with sonde.watch(model, on_finding=None) as watch:
                for _ in range(4):
                    model(torch.ones(2, 4)).sum().backward()
                    sgd.step()
                    other.step()
                    if ends:
                        watch.step_end()
            said = sys.stderr.getvalue()
        finally:
            sys.stderr = errors
        check(f"steps are ended: {ends}: {said}", said.count("steps end with SGD from here, which was "
                                                             "not given") == (0 if ends else 1))


@program
def watched_twice():
    model = mlp()
    with sonde.watch(model, on_finding=None):
        raises(sonde.StateError, "watched already", sonde.watch, model)
    sonde.watch(model, on_finding=None).close()


@program
def changed_while_watched():
    """A parameter is replaced, a module is added, one is removed, a weight changes its shape."""
    model, bare = mlp(), mlp()
    run = folder("changed")

    def changes(model, i):
        if i == 2:
            model[0].weight = nn.Parameter(model[0].weight.detach() * 2)
        if i == 3:
            torch.manual_seed(5)
            model.append(nn.Linear(3, 2))
        if i == 4:
            del model[3]
            model[2] = nn.Linear(8, 5)
        if i == 5:
            model[0].weight.data = model[0].weight.data.double().float()[:, :6].clone()
        return torch.optim.SGD(model.parameters(), 0.1)

    watch = sonde.watch(model, torch.optim.SGD(model.parameters(), 0.1), run=run, every=1, save=1,
                        on_finding=None)
    for i in range(7):
        for one in (model, bare):
            torch.manual_seed(9)
            step(one, changes(one, i))
        watch.step_end()  # the optimizer that was given does not step any more
    watch.close()
    check("the same numbers", same(model, bare))
    check("the replaced parameter is seen", numpy.array_equal(
        sonde.open(run).value("0.weight"), model[0].weight.detach().numpy()))
    check(f"no fault: {watch.faults}", watch.faults == 0)


@program
def scripted():
    raises(sonde.BadValueError, "scripted", sonde.watch, torch.jit.script(mlp()))
    made = []
    for watched in (False, True):
        model = nn.Sequential(torch.jit.script(mlp()), nn.Linear(3, 2))
        nn.init.ones_(model[1].weight)
        nn.init.ones_(model[1].bias)
        sgd = torch.optim.SGD(model.parameters(), 0.01)
        run = folder("scripted")
        watch = sonde.watch(model, sgd, run=run, every=1, on_finding=None) if watched else None
        for _ in range(4):
            step(model, sgd)
        made.append(model)
    watch.close()
    seen = {info.name for info in sonde.open(run).tensors()}
    check(f"a scripted module within a model: {seen}", watch.faults == 0 and
          {"0.0.weight", "gradient/0.0.weight", "1.weight", "loss"} <= seen)
    check("the same numbers of a scripted module", same(*made))


# --- values -------------------------------------------------------------------------------------

@program
def none_gradients():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.used, self.unused = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x):
            return self.used(x)

    model = Half()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    run = folder("half")
    with sonde.watch(model, sgd, run=run, every=1, on_finding=None) as watch:
        for _ in range(3):
            step(model, sgd)
    trial = sonde.open(run)
    check("a gradient that is None is not seen", watch.faults == 0 and
          len(trial.steps("train", "gradient/unused.weight")) == 0 and
          len(trial.steps("train", "gradient/used.weight")) == 3)


@program
def nan_everywhere():
    model = mlp()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float("nan"))
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    run = folder("nan")
    with sonde.watch(model, sgd, run=run, every=1, save=1, on_finding=None) as watch:
        for i in range(5):
            step(model, sgd, torch.full((4, 6), float("nan")))
    trial = sonde.open(run)
    vitals = trial.vitals("0.weight", 4, mode="train")
    check("NaN everywhere is recorded and found", watch.faults == 0 and vitals.nan == 48 and
          vitals.std != vitals.std and "NonFinite" in {f.rule for f in watch.findings})
    check("read back", numpy.isnan(trial.value("0.weight", 4, mode="train")).all() and
          str(trial.series("0.weight", ["mean", "l2"])) != "")


# --- the user's code ------------------------------------------------------------------------------

@program
def hooks_that_raise():
    class Broken(Exception):
        pass

    def bad(*arguments):
        raise Broken("mine")

    for name, place in (("forward", lambda m, o: m[1].register_forward_hook(bad)),
                        ("forward_pre", lambda m, o: m[0].register_forward_pre_hook(bad)),
                        ("backward", lambda m, o: m[2].weight.register_hook(bad)),
                        ("step_pre", lambda m, o: o.register_step_pre_hook(bad)),
                        ("step_post", lambda m, o: o.register_step_post_hook(bad))):
        model, bare, run = mlp(), mlp(), folder("hook")
        sgd, other = (torch.optim.SGD(m.parameters(), 0.1) for m in (model, bare))
        watch = sonde.watch(model, sgd, run=run, every=1, save=1, on_finding=None)
        for i in range(5):
            for one, optimizer in ((model, sgd), (bare, other)):
                handle = place(one, optimizer) if i == 2 else None
                try:
                    step(one, optimizer)
                    check(f"{name}: the user's exception reaches the program", i != 2)
                except Broken as problem:
                    check(f"{name}: it is the user's", str(problem) == "mine" and i == 2)
                if handle is not None:
                    handle.remove()
        watch.close()
        check(f"{name}: the same numbers", same(model, bare))
        check(f"{name}: watching goes on", watch.faults == 0 and numpy.array_equal(
            sonde.open(run).value("0.weight"), model[0].weight.detach().numpy()))


@program
def an_exception_in_forward():
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.inner, self.calls = mlp(), 0

        def forward(self, x):
            self.calls += 1
            hidden = self.inner(x)
            if self.calls == 3:
                raise RuntimeError("in forward")
            return hidden

    model = Sometimes()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    run = folder("forward")
    with sonde.watch(model, sgd, run=run, every=1, on_finding=None) as watch:
        for i in range(5):
            try:
                step(model, sgd)
            except RuntimeError as problem:
                check("the program's exception", str(problem) == "in forward" and i == 2)
    from torch.nn.modules import module
    check("no hook is left", watch.faults == 0 and not module._global_forward_hooks)
    check("the step begins anew", sonde.open(run).steps("train").tolist()[-1] >= 3)


# --- processes, threads, files ----------------------------------------------------------------------

@program
def forks_and_loaders():
    run = folder("fork")
    status, said = child(f"""
        import os, sys
        sys.path.insert(0, PACKAGE)
        import torch, sonde
        from torch import nn
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 24
            def __getitem__(self, i): return torch.full((6,), float(i))
        model = nn.Linear(6, 2)
        sgd = torch.optim.SGD(model.parameters(), 0.001)
        watch = sonde.watch(model, sgd, run={run!r}, every=1)
        def step(x):
            sgd.zero_grad(); model(x).square().mean().backward(); sgd.step()
        step(torch.ones(4, 6))
        for x in torch.utils.data.DataLoader(Data(), 4, num_workers=2):
            step(x)
        child = os.fork()
        if child == 0:
            step(torch.ones(4, 6))      # a copy of the program, which is not watched
            watch.close()
            os._exit(7)
        assert os.waitpid(child, 0)[1] == 7 << 8
        step(torch.ones(4, 6))
        """)
    trial = sonde.open(run)
    check(f"forks and workers: {status}, {said}", status == 0 and trial.status == "ended" and
          trial.steps("train").tolist() == list(range(8)) and trial.info["lost"] == 0)


@program
def threads_of_one_model():
    """Threads that call the same watched model, in evaluation and in training."""
    model = mlp()
    sgd = torch.optim.SGD(model.parameters(), 0.01)
    run, problems = folder("threads"), []

    def evaluate():
        try:
            for _ in range(30):
                with torch.no_grad():
                    model(batch())
        except Exception as problem:
            problems.append(problem)

    with sonde.watch(model, sgd, run=run, every=1, on_finding=None) as watch:
        others = [threading.Thread(target=evaluate) for _ in range(3)]
        for one in others:
            one.start()
        for _ in range(30):
            step(model, sgd)
        for one in others:
            one.join()
    trial = sonde.open(run)
    check(f"threads: {problems}, {watch.faults}", not problems and watch.faults == 0 and
          trial.status == "ended" and len(trial.steps("train")) == 30)


@program
def a_folder_in_use():
    first, second = mlp(), mlp()
    one = torch.optim.SGD(first.parameters(), 0.1)
    run = folder("used")
    with sonde.watch(first, one, run=run, on_finding=None):
        step(first, one)
        watch = sonde.watch(second, torch.optim.SGD(second.parameters(), 0.1), run=run,
                            on_finding=None)
        check(f"another folder: {watch.path}", watch.path == run + "-2")
        watch.close()
    check("the first run is whole", sonde.open(run).last_step == 0)


@program
def a_full_disk():
    """Files may not grow beyond 200 kB: writes fail as on a full disk."""
    run = folder("full")
    status, said = child(f"""
        import os, resource, signal, sys
        sys.path.insert(0, PACKAGE)
        import torch, sonde
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        model = torch.nn.Linear(200, 100)
        sgd = torch.optim.SGD(model.parameters(), 0.001)
        watch = sonde.watch(model, sgd, run={run!r}, every=1, save=1)
        for i in range(40):
            sgd.zero_grad(); model(torch.ones(4, 200)).square().mean().backward(); sgd.step()
            if i == 0:
                resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        weights = model.weight.detach().clone()
        assert bool(weights.isfinite().all()) and watch.step == 39
        try:
            watch.close()
        except sonde.StorageError as problem:
            print("CLOSED:", problem, file=sys.stderr)
        """)
    check(f"training ends, the loss is counted: {status}, {said}", status == 0 and
          ("CLOSED:" in said or "lost" in said or "not written" in said))


@program
def a_folder_that_cannot_be():
    model = mlp()
    path = os.path.join(FOLDER, "file")
    with open(path, "w", encoding="utf-8") as file:
        file.write("no folder")
    raises(sonde.BadValueError, "there is a file of that name", sonde.watch, model,
           torch.optim.SGD(model.parameters(), 0.1), run=os.path.join(path, "run"))
    check("the model works without", model(batch()).shape == (4, 3))


# --- what is installed ------------------------------------------------------------------------------

@program
def no_torch_or_an_old_one():
    for name, torch_is in (("missing", "None"), ("old", "types.ModuleType('torch')")):
        status, said = child(f"""
            import sys, types
            sys.path.insert(0, PACKAGE)
            sys.modules["torch"] = {torch_is}
            if sys.modules["torch"]:
                sys.modules["torch"].__version__ = "2.3.1+cpu"
            import sonde                       # does not need it
            watch = sonde.watch()
            watch.close()
            try:
                sonde.watch(object())
            except ImportError as problem:
                print("SAID:", problem, file=sys.stderr)
            """)
        check(f"torch is {name}: {status} {said}", status == 0 and
              "SAID: sonde.watch of a model needs PyTorch 2.4 or newer" in said and
              (name == "missing" or "2.3.1" in said))


@program
def no_numpy():
    status, said = child(f"""
        import array, sys
        sys.path.insert(0, PACKAGE)
        sys.modules["numpy"] = None
        import sonde
        with sonde.watch(run={folder("no_numpy")!r}, rules="NonFinite") as watch:
            watch.record("w", array.array("f", [1, 2]), "weight")
            watch.step_end()
        run = sonde.open(watch.path)
        assert run.vitals("w").count == 2
        try:
            run.steps()
        except ImportError as problem:
            print("SAID:", problem, file=sys.stderr)
        """)
    check(f"without numpy: {status} {said}", status == 0 and "need numpy" in said)


@program
def bad_arguments():
    model = mlp()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    wrong = sonde.BadValueError
    for text, options in (("unknown kind", {"every": {"weigths": 1}}),
                          ("number of steps", {"every": {"weights": -1}}),
                          ("on_finding", {"on_finding": "shout"}), ("rank", {"rank": 3,
                                                                            "world": 2}),
                          ("save", {"save": "1", "run": folder("save")}),
                          ("save", {"save": [1], "run": folder("save")})):
        try:
            sonde.watch(model, sgd, **options)
            check(f"refused: {options}", False)
        except (wrong, FileNotFoundError) as problem:
            check(f"{problem}", text in str(problem) or isinstance(problem, FileNotFoundError))
    raises(wrong, "torch.nn.Module", sonde.watch, "model")
    raises(wrong, "torch.optim.Optimizer", sonde.watch, model, ["sgd"])
    with sonde.watch(model, sgd, on_finding=None) as watch:
        raises(wrong, "role", watch.record, "x", torch.ones(2), "wieght")
        raises(sonde.SondeError, "", watch.record, "y", "text")
        raises(sonde.SondeError, "", watch.record, "z", torch.ones([1] * 12))
    check("closed twice", watch.close() is None)
    model(batch())


main()
