"""sonde.watch of a model on another device: vital signs are computed there, and arrive later.
Tensors of PyTorch before 2.10.

Without a GPU the same path runs over tensors of the host, with copies that arrive as late as the
test says. Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped
(77).
"""
import math
import os
import sys

from harness import check, folder, main, program

sys.path.insert(0, os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
try:
    import numpy
    import torch
    from torch import nn
    from torch.utils._python_dispatch import TorchDispatchMode
    import sonde
    from sonde import device
except ImportError as problem:
    print(problem)
    sys.exit(77)


torch.set_num_threads(1)


class LateCopy(device.Copy):
    """Arrives when it is asked for the third time."""
    asked = 0

    def ready(self):
        self.asked += 1
        return self.asked >= 3


class elsewhere:
    """Tensors of the host are taken for a device's."""

    def __init__(self, copy=device.Copy):
        self.copy = copy

    def __enter__(self):
        self.before = device.HOST, device.Copy
        device.HOST, device.Copy = (), self.copy

    def __exit__(self, *rest):
        device.HOST, device.Copy = self.before


def batches(count):
    generator = torch.Generator().manual_seed(3)
    for _ in range(count):
        yield torch.randn((8, 1, 12, 12), generator=generator), \
            torch.randint(4, (8,), generator=generator)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6)
        self.relu, self.flat = nn.ReLU(inplace=True), nn.Flatten()
        self.out = nn.Linear(600, 4)

    def forward(self, x):
        return self.out(self.flat(self.relu(self.norm(self.conv(x)))))


def train(run, steps=24, bad=None, mode=None, **options):
    """(weights, findings, the watch) after some steps."""
    torch.manual_seed(0)
    model = Net()
    adam = torch.optim.Adam(model.parameters(), 0.01)
    watch = sonde.watch(model, adam, run=run, on_finding=None, **options) if run else None
    for step, (x, y) in enumerate(batches(steps)):
        adam.zero_grad()
        if step == bad:
            x[0, 0, 0, 0] = math.nan
        nn.functional.cross_entropy(model(x), y).backward()
        adam.step()
        if watch:
            watch.scalar("rate", step / 10)
        if step % 10 == 9:
            model.eval()
            with torch.no_grad():
                model(x)
            model.train()
    if watch:
        watch.close()
    return [p.detach().clone() for p in model.parameters()], watch and watch.findings, watch


EXACT = ("count", "nan", "zero", "min", "max", "abs_min", "abs_max")
SUMS = ("mean", "std", "l1", "l2", "sum")


def near(a, b, of):
    return a == b or math.isnan(a) and math.isnan(b) or abs(a - b) <= 1e-6 * max(abs(of), 1e-300)


def same_signs(a, b):
    """Counts and extremes are equal, sums but for rounding."""
    size = max(abs(a.l1), 1e-30)
    return a[:5] == b[:5] and a[5:9] == b[5:9] and near(a.mean, b.mean, size / max(a.count, 1)) and \
        near(a.m2, b.m2, a.sumsq) and near(a.l1, b.l1, a.l1) and \
        near(a.sumsq, b.sumsq, a.sumsq) and near(a.sum, b.sum, a.l1)


def compare(here, there):
    """Two runs have the same records."""
    here, there = sonde.open(here), sonde.open(there)
    names = [info.name for info in here.tensors()]
    check(f"names: {set(names) ^ {info.name for info in there.tensors()}}",
          names == [info.name for info in there.tensors()])
    count = 0
    for info in here.tensors():
        for mode in ("train", "eval"):
            left, right = (run.series(info.name, (*EXACT, *SUMS), mode=mode).columns
                           for run in (here, there))
            count += len(left["step"])
            good = all(numpy.array_equal(left[stat], right[stat], equal_nan=True)
                       for stat in ("step", *EXACT)) and \
                all(numpy.allclose(left[stat], right[stat], 1e-6, 1e-6 * left["l2"],
                                   equal_nan=True) for stat in SUMS)
            if not good:
                check(f"{info.name} in {mode}: {left} {right}", False)
    check(f"{count} rows", count > 500)


def oracle(tensor):
    """Vital signs in double, one after another."""
    x = (tensor.abs() if tensor.is_complex() else tensor).double().reshape(-1)
    y = x[x.isfinite()]
    low, high = (y.min().item(), y.max().item()) if len(y) else (math.inf, -math.inf)
    small, large = (y.abs().min().item(), y.abs().max().item()) if len(y) else \
        (math.inf, -math.inf)
    mean = y.mean().item() if len(y) else 0.0
    return sonde.Vitals(x.numel(), x.isnan().sum().item(), (x == math.inf).sum().item(),
                        (x == -math.inf).sum().item(), (x == 0).sum().item(), low, high, small,
                        large, mean, (y - mean).square().sum().item(), y.abs().sum().item(),
                        y.square().sum().item(), y.sum().item())


@program
def vital_signs_are_right():
    """The grouped reductions give what double precision gives, for every dtype and layout."""
    torch.manual_seed(1)
    odd = torch.randn(5000)
    odd[[7, 1024, 4999]] = torch.tensor([math.nan, math.inf, -math.inf])
    narrow = [torch.randn(3, 1100), odd, torch.full((2000,), math.nan), torch.zeros(1023),
              torch.randn(()), torch.empty(0, 3), torch.randn(64, 65).t(),
              torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last),
              1e4 + 1e-3 * torch.randn(3000), torch.randn(70).bfloat16(), torch.randn(70).half(),
              torch.randn(70).to(torch.float8_e4m3fn), torch.randn(40) > 0,
              torch.full((10,), 3e38), torch.arange(-3, 100, dtype=torch.int16)]
    wide = [torch.randn(3, 1100).double(), torch.arange(-5, 5000), torch.randn(50) * 1j,
            torch.full((10,), 1e200, dtype=torch.float64)]
    for tensors in (narrow, wide):
        for chunk in (4096, 16 << 20):
            before, device.CHUNK = device.CHUNK, chunk
            device._layouts.clear()
            rows = device.vital_signs(tensors).tolist()
            norms = device.vital_signs(tensors, full=False).tolist()
            device.CHUNK = before
            for tensor, row, norm in zip(tensors, rows, norms):
                made = sonde.Vitals(tensor.numel(), *map(int, row[:4]), *row[4:])
                right = oracle(tensor)
                check(f"{tensor.dtype} {tuple(tensor.shape)}: {right} {made}",
                      same_signs(right, made))
                check("norms", norm[:3] == row[:3] and norm[7:9] == row[7:9] and
                      norm[11:] == row[11:])


@program
def runs_are_the_same():
    """Steps that arrive at once and steps that arrive later are recorded and judged as those of
    the host, and change no weight."""
    bare, _, _ = train(None)
    for every, copy in ((1, LateCopy), (None, device.Copy), (None, LateCopy)):
        here, there = folder("here"), folder("there")
        weights, findings, _ = train(here, every=every)
        check("bit-equal, observed", all(map(torch.equal, bare, weights)))
        with elsewhere(copy):
            weights, found, watch = train(there, every=every)
        check("bit-equal, on a device", all(map(torch.equal, bare, weights)))
        check(f"no faults: {watch.faults}", watch.faults == 0)
        check(f"findings: {findings} {found}",
              [(f.rule, f.tensor, f.step) for f in findings] ==
              [(f.rule, f.tensor, f.step) for f in found])
        compare(here, there)
        scalars = sonde.open(there).series("scalar/rate", "mean")["mean"].tolist()
        check(f"scalars: {scalars}", scalars == [step / 10 for step in range(24)])


@program
def raw_values_arrive():
    """Values that are saved are copied, and are those of the host."""
    save = {"every": 5, "collections": {"weights": {}, "gradients": {}, "updates": {},
                                        "optimizer_state": {}}}
    here, there = folder("raw"), folder("raw_there")
    train(here, 12, save=save)
    with elsewhere(LateCopy):
        train(there, 12, save=save)
    here, there = sonde.open(here), sonde.open(there)
    for name in ("conv.weight", "gradient/out.weight", "update/out.weight"):
        a, b = (run.value(name, step=10, mode="train") for run in (here, there))
        check(f"{name}: {a.ravel()[:2]} {b.ravel()[:2]}", (a == b).all())


@program
def findings_come_late_and_whole():
    """A fault is reported some steps later, at its own step, and at the end at the latest."""
    with elsewhere(LateCopy):
        _, findings, _ = train(folder("bad"), 12, bad=7)
    first = [f for f in findings if f.rule == "NonFinite"]
    check(f"NonFinite at step 7: {first[:1]}", first and first[0].mode_step == 7)
    seen = []
    with elsewhere(LateCopy):
        torch.manual_seed(0)
        model = Net()
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        watch = sonde.watch(model, sgd, on_finding="raise")
        try:
            for step, (x, y) in enumerate(batches(20)):
                seen.append(step)
                sgd.zero_grad()
                (nn.functional.cross_entropy(model(x), y) *
                 (math.nan if step == 5 else 1)).backward()
                sgd.step()
        except sonde.FindingError as problem:
            check(f"its step: {problem}", problem.finding.mode_step == 5)
        check(f"raised after {seen[-1]}", 5 < seen[-1] < 10)
        watch.close()


class NoWaiting(TorchDispatchMode):
    """Fails at what would wait for a device."""
    WAITS = ("_local_scalar_dense", "is_nonzero", "nonzero", "equal", "masked_select", "item",
             "unique", "_unique2", "allclose")

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        name = function.__name__.split(".")[0]
        if name in self.WAITS:
            raise AssertionError(f"{name} waits for the device")
        if name == "index" and any(i is not None and i.dtype == torch.bool for i in arguments[1]):
            raise AssertionError("an index of bools waits for the device")
        return function(*arguments, **(options or {}))


@program
def nothing_waits():
    """No operation of a step waits for the device; rows are read when their copy has arrived."""
    class Never(device.Copy):
        def ready(self):
            return False

        def wait(self):
            self.waited = True

    with elsewhere(Never):
        model = Net()
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        watch = sonde.watch(model, sgd, every=1, on_finding=None)
        x, y = next(batches(1))
        with NoWaiting():
            for _ in range(device.WAITING):
                sgd.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                sgd.step()
        check(f"faults: {watch.faults}", watch.faults == 0)
        check(f"all wait: {len(watch._device.waiting)}",
              len(watch._device.waiting) == device.WAITING)
        check("nothing is known yet", watch.vitals("conv.weight") is None)
        watch._device.finish()
        check("all is known", watch.vitals("conv.weight").count == 54)
        watch.close()


@program
def cleared_gradients():
    """Gradients that are cleared before the step are found out late, and seen from then on."""
    with elsewhere():
        model = Net()
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        run = folder("cleared")
        with sonde.watch(model, sgd, run=run, every=1, on_finding=None):
            for x, y in batches(8):
                nn.functional.cross_entropy(model(x), y).backward()
                sgd.zero_grad(set_to_none=False)
                sgd.step()
    frame = sonde.open(run).series("gradient/out.weight", "abs_max", mode="train")
    values = frame["abs_max"].tolist()
    check(f"seen after the first step: {values}", values[0] == 0 and min(values[2:]) > 0)


class Told(torch.Tensor):
    """As tensors of PyTorch before 2.10: without DLPack's exchange table."""
    __dlpack_c_exchange_api__ = None


@program
def tensors_that_are_asked():
    """Tensors without an exchange table are read by their address, dtype, shape and strides."""
    values = {"plain": torch.randn(3, 50), "turned": torch.randn(6, 7).t(), "one": torch.randn(()),
              "sliced": torch.randn(40)[3::2], "none": torch.empty(0, 4),
              "bfloat16": torch.randn(9).bfloat16(), "half": torch.randn(9).half(),
              "float8": torch.randn(9).to(torch.float8_e5m2), "double": torch.randn(9).double(),
              "int": torch.arange(-3, 5), "bool": torch.randn(9) > 0,
              "parameter": nn.Parameter(torch.randn(4))}
    run = folder("told")
    with sonde.watch(run=run, rules=None, every=1) as watch:
        watch._core.begin(0)
        for name, value in values.items():
            watch.record(name, value.as_subclass(Told), "weight")
    reader = sonde.open(run)
    for name, value in values.items():
        same_signs(oracle(value), reader.vitals(name, step=0, mode="train")) or \
            check(f"{name}", False)
        check(f"{name}: {value.shape}", reader.tensors(name)[0].shape == tuple(value.shape))


@program
def on_a_gpu():
    """The same on a GPU, if there is one: without a wait, and near the host's numbers."""
    if not torch.cuda.is_available():
        return
    torch.manual_seed(0)
    model = Net().cuda()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    run = folder("gpu")
    watch = sonde.watch(model, sgd, run=run, every=1, on_finding=None)
    data = [(x.cuda(), y.cuda()) for x, y in batches(30)]
    for step, (x, y) in enumerate(data):
        if step == 5:
            torch.cuda.set_sync_debug_mode("error")
        sgd.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        sgd.step()
    torch.cuda.set_sync_debug_mode("default")
    watch.close()
    check("no faults", watch.faults == 0)
    check("30 steps", len(sonde.open(run).steps("train")) == 30)


if __name__ == "__main__":
    main()
