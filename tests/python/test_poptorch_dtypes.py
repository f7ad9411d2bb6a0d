"""poptorch models of 16 bits on the engine, against PyTorch, and the cache of their plans.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import os
import sys
import tempfile

from harness import check, main, program, raises

BUILD = os.path.abspath(os.environ.get("SONDE_BUILD", "build/release"))
PACKAGE = os.path.join(BUILD, "python")
sys.path[0:0] = [os.path.join(PACKAGE, "sonde", "compat", "poptorch"), PACKAGE]
try:
    import torch
    from torch import nn
    import poptorch
except ImportError as problem:
    print(problem)
    sys.exit(77)

ROUNDING = {torch.bfloat16: 2 ** -8, torch.float16: 2 ** -11}  # of one value, relative


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 64, 10)

    def forward(self, x, labels=None):
        y = self.fc(self.norm(self.conv(x)).relu().flatten(1))
        return y if labels is None else (y, nn.functional.cross_entropy(y, labels))


X = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(1))
Y = torch.arange(16) % 10


def sgd(model):
    return torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)


def pytorch_losses(model, x, steps):
    optimizer, losses = sgd(model), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x, Y)[1]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def gap(model, other):
    """The largest distance of parameters and buffers."""
    state = other.state_dict()
    return max(float((value.float() - state[name].float()).abs().max())
               for name, value in model.state_dict().items())


def near(ours, theirs, tolerance):
    return all(abs(a - b) <= tolerance * max(1, abs(b)) for a, b in zip(ours, theirs))


@program
def training():
    """Losses are within 4 roundings of float32's, and weights no farther from it than twice
    PyTorch's of the same dtype."""
    for dtype, rounding in ROUNDING.items():
        model, plain, halves = Small().to(dtype), Small(), Small().to(dtype)
        wrapped = poptorch.trainingModel(model, None, sgd(model))
        losses = []
        for _ in range(8):
            output, loss = wrapped(X.to(dtype), Y)
            losses.append(loss.item())
        check("on the engine", wrapped._engine is not None)
        check("dtypes of outputs", output.dtype is dtype and loss.dtype is dtype)
        check("dtypes of weights", {weight.dtype for weight in model.parameters()} == {dtype})
        check(f"losses {dtype}", near(losses, pytorch_losses(plain, X, 8), 4 * rounding))
        theirs = pytorch_losses(halves, X.to(dtype), 8)
        check(f"PyTorch's losses {dtype}", near(losses, theirs, 8 * rounding))
        check("weights", gap(model, plain) <= 2 * gap(halves, plain))
        wrapped.destroy()


@program
def small_updates():
    """Updates far below the rounding of a weight add up, in float32."""
    model = nn.Linear(4, 1, bias=False).bfloat16()
    nn.init.ones_(model.weight)

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return poptorch.identity_loss(self.model(x), reduction="sum")

    wrapped = poptorch.trainingModel(Loss(), None, torch.optim.SGD(model.parameters(), 2 ** -11))
    for _ in range(16):
        wrapped(torch.ones(1, 4, dtype=torch.bfloat16))
    check("they add up", torch.equal(model.weight.float(), torch.full((1, 4), 1 - 2 ** -7)))
    with torch.no_grad():
        model.weight.fill_(3)
    wrapped(torch.ones(1, 4, dtype=torch.bfloat16))
    check("what the program writes", torch.equal(model.weight.float(), torch.full((1, 4), 3.)))
    model.weight.data = torch.full((1, 4), 5., dtype=torch.bfloat16)
    wrapped(torch.ones(1, 4, dtype=torch.bfloat16))
    check("and replaces", torch.equal(model.weight.float(), torch.full((1, 4), 5.)))
    model.float()
    raises(poptorch.Error, "became (1, 4) of torch.float32", wrapped,
           torch.ones(1, 4, dtype=torch.bfloat16))


@program
def inference_and_anchors():
    """Outputs within two roundings of PyTorch's; anchors show the 16 bits."""
    for dtype, rounding in ROUNDING.items():
        model = Small().to(dtype).eval()
        options = poptorch.Options()
        options.anchorTensor("conv", "conv_output_0")
        wrapped = poptorch.inferenceModel(model, options)
        output, expected = wrapped(X.to(dtype)), model(X.to(dtype))
        check("on the engine", wrapped._engine is not None)
        check("outputs", output.dtype is dtype and torch.allclose(
            output.float(), expected.float(), rtol=2 * rounding, atol=2 * rounding))
        conv = wrapped.getAnchoredTensor("conv")
        check("anchors", conv.dtype is dtype and torch.allclose(
            conv.float(), model.conv(X.to(dtype)).float(), rtol=2 * rounding, atol=rounding))


@program
def mixed():
    """Layers of 16 bits among those of float32, and a call under torch.autocast."""
    class Mixed(Small):
        def __init__(self):
            super().__init__()
            self.conv.half()

        def forward(self, x, labels=None):
            y = self.fc(self.norm(self.conv(x.half()).float()).flatten(1))
            return y if labels is None else (y, nn.functional.cross_entropy(y, labels))

    model, other = Mixed(), Mixed()
    wrapped = poptorch.trainingModel(model, None, sgd(model))
    losses = [wrapped(X, Y)[1].item() for _ in range(4)]
    check("on the engine", wrapped._engine is not None)
    check("losses", near(losses, pytorch_losses(other, X, 4), 4 * ROUNDING[torch.float16]))
    check("dtypes", model.conv.weight.dtype is torch.float16 and
          model.fc.weight.dtype is torch.float32)
    model, other = Small(), Small()
    with torch.autocast("cpu", torch.bfloat16):
        wrapped = poptorch.trainingModel(model, None, sgd(model))
        outputs = wrapped(X, Y)
        expected = other(X, Y)
    check("autocast on the engine", wrapped._engine is not None)
    check("autocast's dtypes", [one.dtype for one in outputs] == [one.dtype for one in expected])
    check("autocast's numbers", near([outputs[1].item()], [expected[1].item()],
                                     4 * ROUNDING[torch.bfloat16]))


@program
def regions():
    """Regions of forward under torch.autocast, nested ones and ones that switch it off."""
    class Regions(Small):
        def forward(self, x, labels):
            with torch.autocast("cpu", torch.bfloat16):
                y = self.conv(x)
                with torch.autocast("cpu", enabled=False):
                    y = self.norm(y.float())
                z = self.fc(y.relu().flatten(1))
            return z, nn.functional.cross_entropy(z.float(), labels)

    model, other = Regions(), Regions()
    wrapped = poptorch.trainingModel(model, None, sgd(model))
    losses, ours = [], ()
    for _ in range(4):
        ours = wrapped(X, Y)
        losses.append(ours[1].item())
    check("on the engine", wrapped._engine is not None)
    check("dtypes", [one.dtype for one in ours] == [torch.bfloat16, torch.float32])
    check("names", {"conv_output_0", "norm_output_0", "fc_output_0"} <=
          set(wrapped.getTensorNames()))
    check("losses", near(losses, pytorch_losses(other, X, 4), 4 * ROUNDING[torch.bfloat16]))


@program
def files_and_state():
    """A saved model goes on as the one that saved it, and the optimizer's state is of 16 bits
    for PyTorch."""
    model = Small().bfloat16()
    wrapped = poptorch.trainingModel(model, None, sgd(model))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.poptorch")
        wrapped.compileAndExport(path, X.bfloat16(), Y)
        wrapped(X.bfloat16(), Y)
        wrapped.save(path)
        loaded = poptorch.load(path)
    for _ in range(3):
        same = torch.equal(loaded(X.bfloat16(), Y)[0], wrapped(X.bfloat16(), Y)[0])
        check("the same outputs", same)
    optimizer = wrapped._optimizer
    wrapped.detachFromDevice()
    check("state", {value["momentum_buffer"].dtype for value in optimizer.state.values()} ==
          {torch.bfloat16})
    model(X.bfloat16(), Y)[1].backward()
    optimizer.step()


@program
def cache():
    """A folder of plans is filled by the first compilation and read by the second."""
    os.environ.pop("SONDE_PLAN_CACHE", None)  # it comes before the option
    with tempfile.TemporaryDirectory() as folder:
        plans = os.path.join(folder, "plans")
        outputs = []
        for _ in range(2):
            options = poptorch.Options().enableExecutableCaching(plans)
            model = Small()
            wrapped = poptorch.trainingModel(model, options, sgd(model))
            outputs.append(wrapped(X, Y)[0])
            files = {name: os.stat(os.path.join(plans, name)).st_ino
                     for name in os.listdir(plans)}
            check("files", len(files) == 1)
        check("the same bits", torch.equal(*outputs))
    with tempfile.NamedTemporaryFile() as file:
        options = poptorch.Options().enableExecutableCaching(os.path.join(file.name, "plans"))
        check("a folder that cannot be", torch.equal(
            poptorch.trainingModel(Small(), options)(X, Y)[0], outputs[0]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
