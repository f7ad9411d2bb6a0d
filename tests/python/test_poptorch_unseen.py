"""Modules whose forward does what torch.export does not see run in eager mode, with PyTorch's
numbers; regions without gradients, cells and parametrised weights run on the engine.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import copy
import logging
import os
import random
import sys

from harness import check, main, program

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
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, body, **parts):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        for name, make in parts.items():
            setattr(self, name, make())
        self.body = body

    def forward(self, x):
        y = self.body(self, x)
        return y, y.square().mean()


def as_pytorch(what, body, expected, x=None, **parts):
    """Two steps as in plain PyTorch. expected: what the log says the engine lacks, "" on it."""
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)) if x is None else x
    model = Net(body, **parts)
    plain = copy.deepcopy(model)
    said, log = [], logging.getLogger("poptorch")
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    log.addHandler(handler)
    wrapped = poptorch.trainingModel(model, None, torch.optim.SGD(model.parameters(), 0.1))
    found = [wrapped(x)[0] for _ in range(2)]
    log.removeHandler(handler)
    optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    for output in found:
        optimizer.zero_grad()
        y, loss = plain(x)
        loss.backward()
        optimizer.step()
        check(f"{what}: outputs", torch.allclose(output, y, 1e-4, 1e-5))
    check(f"{what}: weights", all(torch.allclose(one, other, 1e-4, 1e-5) for one, other in zip(
        model.state_dict().values(), plain.state_dict().values())))
    check(f"{what}: {said} has {expected!r}", (wrapped._engine is not None) == (not expected) and
          (not expected and not said or len(said) == 1 and expected in said[0]))


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 3

    @staticmethod
    def backward(context, gradient):
        return gradient / 2


@program
def gradients_of_the_program():
    def hooked(net, x):
        y = net.a(x)
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient * 3)
        return net.b(y)

    def inferred(net, x):
        with torch.inference_mode():
            y = net.a(x)
        return net.b(x) * y.clone()

    as_pytorch("a function's gradient", lambda net, x: net.b(Halved.apply(net.a(x))),
               f"the gradient of the torch.autograd.Function Halved ({__file__}:")
    as_pytorch("a tensor's hook", hooked, f"a hook of a tensor ({__file__}:")
    as_pytorch("inference_mode", inferred, "torch.inference_mode in training")
    run = poptorch.inferenceModel(Net(lambda net, x: Halved.apply(net.a(x))).eval())
    check("without training the gradient does not matter", len(run(torch.ones(1, 4))) == 2 and
          run._engine is not None)
    as_pytorch("checkpoints", lambda net, x: checkpoint(
        lambda y: net.b(net.a(y).relu()), x, use_reentrant=False), "")


@program
def regions_without_gradients():
    def constant(net, x):
        with torch.no_grad():
            y = torch.cos(x)
        return net.b(x) * y + net.a(x)

    def trained(net, x):
        with torch.no_grad():
            y = net.a(x)
        return net.b(x) * y

    def written(net, x):
        with torch.no_grad():
            net.a.weight.clamp_(-0.1, 0.1)
        return net.a(x)

    as_pytorch("no_grad", constant, "")
    as_pytorch("no_grad of trained layers", trained, "a gradient that ends in forward")
    as_pytorch("no_grad that writes", written, "an in-place change")


@program
def state_in_python():
    def counted(net, x):
        net.count = getattr(net, "count", 0) + 1
        return net.a(x) * net.count

    def listed(net, x):
        y = net.a(x) + (net.seen[-1] if net.seen else 0)
        net.seen.append(y.detach())
        return net.b(y)

    def drawn(net, x):
        return net.a(x) * (1.0 if random.random() < 2 else 0.0)

    as_pytorch("a count", counted, "a forward that changes self.count")
    as_pytorch("a list", listed, "a forward that changes self.seen", seen=list)
    before = random.getstate()
    wrapped = poptorch.trainingModel(Net(drawn))
    wrapped.compile(torch.ones(1, 4))
    check("random numbers", wrapped._engine is None)
    random.setstate(before)


class Joined(nn.Module):
    def forward(self, x):
        return nn.functional.pad(torch.cat([x, x]), (0, 1, 2, 1), value=-100)[..., 1:]


@program
def cells_and_weights():
    def cells(net, x):
        h, c = torch.zeros(3, 4), torch.zeros(3, 4)
        r = t = h
        for _ in range(3):
            h, c = net.lstm(x, (h, c))
            t = net.gru(h, t)
            r = net.rnn(t, net.relu(t, r))
        return r + c

    as_pytorch("cells", cells, "", lstm=lambda: nn.LSTMCell(4, 4), gru=lambda: nn.GRUCell(4, 4),
               rnn=lambda: nn.RNNCell(4, 4), relu=lambda: nn.RNNCell(4, 4, nonlinearity="relu"))
    as_pytorch("a cell without a bias", lambda net, x: net.gru(x), "",
               gru=lambda: nn.GRUCell(4, 4, bias=False))
    as_pytorch("weight norm", lambda net, x: net.v(x), "", v=lambda: weight_norm(nn.Linear(4, 4)))
    as_pytorch("weight norm of columns", lambda net, x: net.v(x), "",
               v=lambda: weight_norm(nn.Linear(4, 4), dim=1))
    images = torch.randn(2, 3, 11, 12, generator=torch.Generator().manual_seed(2))
    for kernel, stride, padding, dilation in ((3, 2, 0, 1), (2, 2, 1, 1), (3, 3, 1, 2), (2, 5, 0, 1),
                                              ((3, 2), (2, 3), (1, 0), 1)):
        as_pytorch(f"ceil_mode {kernel} {stride} {padding} {dilation}",
                   lambda net, x: net.pool(net.conv(x)), "", images,
                   conv=lambda: nn.Conv2d(3, 2, 1), pool=lambda: nn.MaxPool2d(
                       kernel, stride, padding, dilation, ceil_mode=True))
    as_pytorch("an empty start", lambda net, x: torch.cat([torch.tensor([]), net.a(x)]), "")
    words = torch.tensor([[1, 2, 3], [3, 2, 0]])
    as_pytorch("labels moved by one", lambda net, x: nn.functional.cross_entropy(
        net.a(net.e(x)).flatten(0, 1), nn.functional.pad(x, (0, 1), value=-100)[:, 1:].flatten()
        ) + 0 * net.a(net.e(x)), "", words, e=lambda: nn.Embedding(4, 4))
    whole = torch.tensor([[1, 2], [3, 4]])
    run = poptorch.inferenceModel(Joined())
    check("whole numbers are joined and padded", torch.equal(run(whole), Joined()(whole)) and
          run._engine is not None)
    words = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(3))
    as_pytorch("a whole transformer", lambda net, x: net.t(
        x, x + 1, tgt_mask=nn.Transformer.generate_square_subsequent_mask(3)), "", words,
        t=lambda: nn.Transformer(4, 2, 1, 1, 8, 0.0, batch_first=True))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
