"""Programs that are described in part, or not at all, and that run as they would unwatched."""
import contextlib
import io
import os
import sys
import threading
import warnings

from harness import check, folder, main, program, raises
from program_text import texts_of

sys.path.insert(0, os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
try:
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)

warnings.filterwarnings("ignore")


def net_of(*layers):
    torch.manual_seed(1)
    return nn.Sequential(*(layers or (nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))))


def data():
    generator = torch.Generator().manual_seed(2)
    return torch.randn(12, 5, generator=generator), torch.arange(12) % 3


def both(what, make, step, steps=3):
    """Runs a program with and without a watch; the texts. make: () -> (model, optimizer)."""
    after = []
    stack = _get_current_function_mode_stack()
    for watched in (False, True):
        model, optimizer = make()
        watch = sonde.watch(model, optimizer, on_finding=None) if watched else None
        found = texts_of(watch) if watched else []
        torch.manual_seed(5)
        for _ in range(steps):
            step(model, optimizer)
        after.append([*(p.detach().clone() for p in model.parameters()), torch.get_rng_state()])
        if watched:
            watch.close()
            check(f"{what}: no fault", watch.faults == 0)
    check(f"{what}: the same bits", all(torch.equal(a, b) for a, b in zip(*after)))
    check(f"{what}: nothing is left", _get_current_function_mode_stack() == stack and
          not torch.nn.modules.module._global_forward_hooks)
    return found


def make():
    model = net_of()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def usual(model, optimizer, call=None):
    x, y = data()
    optimizer.zero_grad()
    F.cross_entropy((call or model)(x), y).backward()
    optimizer.step()


@program
def modes_of_the_program():
    class Counting(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            Counting.calls += 1
            return func(*args, **(kwargs or {}))

    def step(model, optimizer):
        with torch.device("cpu"), Counting():
            x, y = data()
            out = model(x)
        check("a mode that the program leaves is gone",
              not any(isinstance(one, Counting) for one in _get_current_function_mode_stack()))
        with Counting():
            loss = F.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    found = both("modes", make, step)
    text = found[-1][1]
    check(f"the program is seen through them: {text.ops()}",
          text.ops()[-4:] == ["linear", "relu", "linear", "cross_entropy"] and text.complete)
    check("the mode saw its calls", Counting.calls > 0)
    torch.set_default_device("cpu")
    try:
        found = both("a default device", make, usual)
        check("it is seen", "cross_entropy" in found[-1][1].ops())
    finally:
        torch.set_default_device(None)


@program
def checkpoints():
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.first, self.rest, self.reentrant = nn.Linear(5, 8), net_of(nn.Linear(8, 8),
                                                                             nn.Dropout(0.5),
                                                                             nn.Linear(8, 3)), reentrant

        def forward(self, x):
            return checkpoint(self.rest, self.first(x), use_reentrant=self.reentrant)

    for reentrant in (False, True):
        def make_net():
            torch.manual_seed(1)
            model = Net(reentrant)
            return model, torch.optim.SGD(model.parameters(), lr=0.1)

        text = both(f"checkpoint, reentrant={reentrant}", make_net, usual)[-1][1]
        check(f"what is computed again is seen once: {text.ops()}",
              text.ops().count("linear") == 3 and text.ops().count("dropout") == 1)
        check("all parameters are reached", all(row["reached"] for row in text.parameters))


@program
def functions_of_autograd():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 3)

        def forward(self, x):
            return Double.apply(self.fc(x))

    def make_net():
        torch.manual_seed(1)
        model = Net()
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    text = both("a function of autograd", make_net, usual)[-1][1]
    check(f"its operations: {text.ops()}", text.ops()[-3:] == ["linear", "mul", "cross_entropy"])
    check("parameters before it are reached", text.parameters[0]["reached"])


@program
def other_ways_to_call():
    from torch.func import functional_call, grad, vmap

    def functional(model, optimizer):
        x, y = data()
        optimizer.zero_grad()
        weights = {name: value * 1 for name, value in model.named_parameters()}
        F.cross_entropy(functional_call(model, weights, (x,)), y).backward()
        optimizer.step()

    both("functional_call", make, functional)

    def mapped(model, optimizer):
        x, y = data()
        usual(model, optimizer)
        weights = {name: value.detach() for name, value in model.named_parameters()}
        vmap(grad(lambda w, a, b: F.cross_entropy(functional_call(model, w, (a[None],)), b[None])),
             in_dims=(None, 0, 0))(weights, x, y)

    both("vmap and grad", make, mapped)

    def whole_steps_mapped(model, optimizer):
        x, y = data()
        optimizer.zero_grad()
        F.cross_entropy(vmap(model)(x), y).backward()
        optimizer.step()

    both("vmap of the model", make, whole_steps_mapped)

    def gradients_mapped(model, optimizer):
        x, y = data()
        weights = {name: value.detach() for name, value in model.named_parameters()}
        found = vmap(grad(lambda w, a, b: F.cross_entropy(
            functional_call(model, w, (a[None],)), b[None])), in_dims=(None, 0, 0))(weights, x, y)
        for name, value in model.named_parameters():
            value.grad = found[name].mean(0)
        optimizer.step()

    both("gradients of torch.func alone", make, gradients_mapped)

    def inference(model, optimizer):
        usual(model, optimizer)
        model.eval()
        with torch.inference_mode():
            model(data()[0])
        model.train()

    check("inference_mode", [mode for mode, _ in both("inference_mode", make, inference)] ==
          ["train", "eval", "train"])

    def threads(model, optimizer):
        one = threading.Thread(target=usual, args=(model, optimizer))
        one.start()
        one.join()

    text = both("threads", make, threads)[-1][1]
    check("a step in a thread is seen", text.ops()[-1] == "cross_entropy")

    def failing(model, optimizer):
        try:
            model(torch.randn(2, 7))
        except RuntimeError:
            pass
        usual(model, optimizer)

    text = both("an exception in forward", make, failing)[-1][1]
    check(f"an exception: {text.ops()}", "cross_entropy" in text.ops())


@program
def an_end_by_an_exception():
    """The verdict says it, and the program of the step that broke off is kept."""
    model, optimizer = make()
    watch = sonde.watch(model, optimizer)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            with watch:
                x, y = data()
                F.cross_entropy(model((x.abs() * 90).round()), y + 90)  # LINE crash
        except IndexError:
            pass
    found = [f for f in watch.findings if f.rule == "InputRange"]
    number = next(i for i, text in enumerate(open(__file__, encoding="utf-8"), 1)
                  if text.rstrip().endswith("# LINE" + " crash"))
    check(f"the line of the input: {found}", found and f"{found[0].place}".endswith(f":{number}"))
    check(f"the verdict: {said.getvalue()}", "; the program ended by IndexError" in said.getvalue())
    check(f"nothing is concluded from what it did not reach: {watch.findings}",
          watch.faults == 0 and all(f.rule == "InputRange" for f in watch.findings))


@program
def optimizers_of_other_parameters():
    """A temperature that the program trains by an optimizer of its own; one that never steps."""
    temperature = nn.Parameter(torch.zeros(()))
    model, optimizer = make()
    other = torch.optim.SGD([temperature], lr=0.1)
    watch = sonde.watch(model, [optimizer, other], on_finding=None)
    for _ in range(4):
        usual(model, optimizer)
        other.zero_grad()
        (temperature - 1).square().backward()
        other.step()
    check(f"steps of both: {watch.step}", watch.step == 3)
    watch.close()
    check(f"nothing is wrong but that data() draws the same batch: {watch.findings}",
          watch.faults == 0 and all(f.rule == "DuplicateBatch" for f in watch.findings))
    raises(sonde.BadValueError, "holds none of the model's", sonde.watch, model, other)
    both_nets = nn.ModuleDict({"a": net_of(), "b": net_of()})
    first, second = (torch.optim.SGD(one.parameters(), lr=0.1) for one in both_nets.values())
    watch = sonde.watch(dict(both_nets), [first, second], on_finding=None)
    for _ in range(40):
        x, y = data()
        first.zero_grad()
        second.zero_grad()
        (F.cross_entropy(both_nets["a"](x), y) + F.cross_entropy(both_nets["b"](x), y)).backward()
        first.step()
    watch.close()
    check(f"it is left out without a fault: {watch.faults}", watch.faults == 0 and any(
        f.rule == "FrozenParameter" for f in watch.findings))


@program
def evaluated_in_one_piece():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        plain = layer(x)
    watch = sonde.watch(layer, None, on_finding=None)
    found = texts_of(watch)
    with torch.no_grad():
        watched = layer(x)
    watch.close()
    check("the same bits", torch.equal(plain, watched))
    check(f"it says so: {found[0][1].gap}", not found[0][1].complete and
          "one piece" in found[0][1].gap)


@program
def scripted_and_traced():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.jit.script(net_of(nn.Linear(5, 8), nn.ReLU()))
            self.second = nn.Linear(8, 3)

        def forward(self, x):
            return self.second(self.first(x))

    def make_net():
        torch.manual_seed(1)
        model = Net()
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    text = both("a scripted part", make_net, usual)[-1][1]
    check(f"it says so: {text.gap}", "first is scripted" in text.gap and not text.complete)
    check("the rest is seen", text.ops()[-2:] == ["linear", "cross_entropy"])
    model, optimizer = make()
    plain = str(torch.jit.trace(model, data()[0]).graph)
    watch = sonde.watch(model, optimizer, on_finding=None)
    traced = str(torch.jit.trace(model, data()[0]).graph)
    watch.close()
    check("a trace is the same", len(plain.splitlines()) == len(traced.splitlines()))


@program
def odd_arguments():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 3)

        def forward(self, batch, sizes=None):
            x = batch["x"]
            x = x[[0, 1, 2], ...][:, [True] * 5]
            x = torch.nan_to_num(x, nan=float("inf"), posinf=1e400)
            return {"out": self.fc(x), "extra": [None, {"deep": x}]}

    def make_net():
        torch.manual_seed(1)
        model = Net()
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def step(model, optimizer):
        x, y = data()
        optimizer.zero_grad()
        F.cross_entropy(model({"x": x, "list": [1, [2]]}, sizes=[[1], {2}])["out"], y[:3]).backward()
        optimizer.step()

    text = both("unhashable arguments", make_net, step)[-1][1]
    check(f"it is complete: {text.gap}", text.complete)
    check(f"numbers that are not finite are words: {text.node('nan_to_num')}",
          "nan_to_num" in text.ops())


@program
def sources_that_cannot_be_read():
    space = {"F": F, "data": data}
    exec(compile("def step(model, optimizer):\n"
                 "    x, y = data()\n"
                 "    optimizer.zero_grad()\n"
                 "    F.cross_entropy(model(x), y).backward()\n"
                 "    optimizer.step()\n", "<stdin>", "exec"), space)
    text = both("a source from the keyboard", make, space["step"])[-1][1]
    check(f"places: {text.line(text.node('cross_entropy'))}",
          text.line(text.node("cross_entropy")) == ("<stdin>", 4) and
          text.line(text.event("step")) == ("<stdin>", 5))


@program
def a_source_in_a_zip():
    import os
    import sys
    import zipfile

    path = os.path.join(folder("zip"), "program.zip")
    os.makedirs(os.path.dirname(path))
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("zipped.py", "from torch.nn import functional as F\n"
                      "def step(model, x, y, optimizer):\n"
                      "    optimizer.zero_grad()\n"
                      "    F.cross_entropy(model(x), y).backward()\n"
                      "    optimizer.step()\n")
    sys.path.insert(0, path)
    try:
        import zipped
        text = both("a source in a zip", make,
                    lambda model, optimizer: zipped.step(model, *data(), optimizer))[-1][1]
    finally:
        sys.path.remove(path)
    file, number = text.line(text.node("cross_entropy"))
    check(f"its place: {file}:{number}", number == 4 and "program.zip" in file)


@program
def modes_between_steps():
    """A program that enters a mode in one step and leaves it in a later one, and a loader that
    is left in the middle of an epoch."""
    loader = torch.utils.data.DataLoader([(torch.ones(5), i % 3) for i in range(12)], 4)

    def step(model, optimizer):
        for x, y in loader:
            with torch.inference_mode():
                model(x)
            optimizer.zero_grad()
            with torch.autograd.graph.save_on_cpu():
                F.cross_entropy(model(x), y).backward()
            optimizer.step()
            break

    found = both("a loader that is left", make, step, 6)
    check(f"events: {found[-1][1].kinds()}", "batch" in found[-1][1].kinds())


class Field(nn.Module):
    """The right side of an equation, which a solver calls as often as it likes."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 5)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)) * 0.5)


@program
def a_model_in_a_loop():
    def make_net():
        torch.manual_seed(1)
        model = Field()
        return model, torch.optim.SGD(model.parameters(), lr=0.01)

    calls = iter([*range(600, 630)] * 2)

    def step(model, optimizer):
        x, _ = data()
        optimizer.zero_grad()
        for _ in range(next(calls)):
            x = x + 0.001 * model(x)
        F.mse_loss(x, torch.zeros(12, 5)).backward()
        optimizer.step()

    found = both("a model in a loop", make_net, step, 30)
    text = found[0][1]
    check(f"{len(found)} programs", len(found) <= 4)
    check(f"{len(text.nodes)} operations", 2000 < len(text.nodes) < 4000)
    check(f"it says so: {text.gap}", "called more than 16 times" in text.gap)
    check("further calls are one each", text.ops().count("call") > 100 and
          text.ops()[-1] == "mse_loss")
    check("the loss is linked to them", text.nodes[text.losses[0]["node"]]["inputs"][0] in
          text.node("add", -1)["outputs"])


@program
def outlines_without_end():
    """New programs are recorded at growing distances."""
    def step(model, optimizer):
        x, y = data()
        number[0] += varies
        optimizer.zero_grad()
        for bit in range(9):  # another sequence of events at each step
            if number[0] >> bit & 1:
                model.zero_grad()
            F.cross_entropy(model(x), y).backward()
        optimizer.step()

    number, varies = [0], 1
    model, optimizer = make()
    watch = sonde.watch(model, optimizer, on_finding=None, rules=None)
    found = texts_of(watch)
    for _ in range(400):
        step(model, optimizer)
    check(f"{len(found)} programs of 400 steps", 8 <= len(found) <= 48)
    many = len(found)
    number[0], varies = 0, 0
    for _ in range(300):
        step(model, optimizer)
    check(f"a step that stays is recorded at last: {len(found)}", len(found) > many)
    watch.close()


@program
def work_of_a_loader():
    def step(model, optimizer):
        x, y = data()
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for _ in range(3):
                pictures = [torch.rand(5).mul(2).sub(1) for _ in range(12)]
                batch = torch.stack(pictures).clamp(-1, 1)
                out = model(batch)
                (out.argmax(1) == y).sum()
        model.train()

    found = both("a loader by hand", make, step, 2)
    text = next(text for mode, text in found if mode == "eval")
    check(f"the next batch is not in it: {text.ops()}", "mul" not in text.ops())
    check("what is made of the output is", "argmax" in text.ops())


@program
def warnings_of_pytorch():
    def said(watched):
        model = nn.Linear(4, 1)
        watch = sonde.watch(model, torch.optim.SGD(model.parameters(), 0.1), on_finding=None) \
            if watched else None
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            out = model(torch.randn(8, 4))
            F.mse_loss(out, torch.randn(8))
            F.softmax(out)
            nn.MSELoss()(out, torch.randn(8))
        if watch is not None:
            watch.close()
        return [(row.filename, row.lineno, row.category, str(row.message)) for row in found]

    plain = said(False)
    check("three, at the same lines", len(plain) == 3 and said(True) == plain)
    check("nothing is left", nn.functional.warnings is warnings)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(5, 5)
        self.out = nn.Sequential(nn.Linear(5, 5), nn.ReLU())

    def forward(self, x):
        return self.out[0](self.qkv(x))


class Kept(nn.Module):
    """Its blocks are in a list, which registers nothing."""

    def __init__(self):
        super().__init__()
        self.blocks = [nn.Sequential(nn.LayerNorm(5), Attention()) for _ in range(2)]
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@program
def blocks_in_a_list():
    def make_net():
        torch.manual_seed(1)
        model = Kept()
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    text = both("blocks in a list", make_net, usual)[-1][1]
    names = [row["name"] for row in text.modules if row.get("name") and not row.get("registered")]
    check(f"parts have paths: {names}", names == [
        f"blocks.{i}{part}" for i in (0, 1) for part in ("", ".0", ".1", ".1.qkv", ".1.out.0")])
    rows = [row["name"] for row in text.parameters if row.get("optimizer", -1) < 0]
    check(f"and their parameters: {rows}", "blocks.1.1.qkv.weight" in rows)


@program
def ten_thousand_modules():
    def make_net():
        torch.manual_seed(1)
        model = net_of(nn.Linear(5, 4), *(nn.Identity() for _ in range(10000)), nn.Linear(4, 3))
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    text = both("ten thousand modules", make_net, usual)[-1][1]
    check("all are in it", len(text.modules) == 10003 and text.complete)


@program
def compiled():  # the last: what was compiled once is not recorded
    def make_net():
        model = net_of()
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()  # of the run without a watch
        return torch.compile(model, backend="eager"), torch.optim.SGD(model.parameters(), lr=0.1)

    text = both("a compiled model", make_net, usual)[-1][1]
    check(f"its graph is what the compiler was given: {text.gap}", text.complete and
          text.facts["compiled"] is True)
    check(f"its events are seen: {text.kinds()}", text.kinds() ==
          ["zero_grad", "forward", "loss", "backward", "step"])
    check(f"its operations: {text.ops()}",
          text.ops()[-4:] == ["linear", "relu", "linear", "cross_entropy"])
    loss = text.losses[0]
    check("the loss is known", text.tensor(loss["predictions"]) == "output_0" and
          loss["predictions"] == text.node("linear", 1)["outputs"][0] and loss["backward"] >= 0)
    check("parameters are reached", all(row["reached"] for row in text.parameters))

    loss_of = torch.compile(lambda out, y: F.cross_entropy(out, y), backend="eager")

    def step(model, optimizer):
        x, y = data()
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()

    text = both("a compiled loss", make, step)[-1][1]
    check(f"a part: {text.gap}", text.gap and not text.complete)


main()
