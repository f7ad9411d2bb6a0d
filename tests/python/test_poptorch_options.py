"""poptorch's options that change how a model computes: stages, replicas, precision, loss scaling,
exceptions, what is fed; loading ahead, and files of other builds.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import io
import logging
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
from poptorch import CommGroupType, OutputMode


class Net(nn.Module):
    """Two blocks. eager: a hook keeps it in PyTorch's eager mode."""

    def __init__(self, eager=False):
        super().__init__()
        torch.manual_seed(3)
        self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 3)
        self.norm, self.loss = nn.BatchNorm1d(8), nn.CrossEntropyLoss()
        if eager:
            self.register_forward_hook(lambda module, inputs, output: None)

    def forward(self, x, labels=None):
        with poptorch.Block("first"):
            x = self.norm(self.fc1(x)).relu()
        with poptorch.Block("second"):
            x = self.fc2(x)
            return x if labels is None else (x, self.loss(x, labels))


class Said:
    """What the log says while it is open, from level info on."""

    def __enter__(self):
        self.lines, log = [], logging.getLogger("poptorch")
        self.level, self.handler = log.level, logging.Handler()
        self.handler.emit = lambda record: self.lines.append(record.getMessage())
        log.addHandler(self.handler)
        log.setLevel(logging.INFO)
        return self.lines

    def __exit__(self, *rest):
        logging.getLogger("poptorch").removeHandler(self.handler)
        logging.getLogger("poptorch").setLevel(self.level)


def data(count):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 6, generator=generator), \
        torch.randint(3, (count,), generator=generator)


def options(d=1, g=1, r=1):
    made = poptorch.Options().deviceIterations(d).replicationFactor(r).outputMode(OutputMode.All)
    made.Training.gradientAccumulation(g)
    return made


def trained(made, eager=False, calls=2, anchors=(), model=None, x=None, **keys):
    """(model, all outputs, anchors) after some calls; each dimension of counts is fed."""
    model = model or Net(eager)
    for name in anchors:
        made.anchorTensor(name, name)
    count = made.device_iterations * made.input_slices * made.Training.gradient_accumulation * 4
    inputs, labels = data(count)
    wrapped = poptorch.trainingModel(model, made, poptorch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, **keys))
    outputs = [part for _ in range(calls) for part in wrapped(inputs if x is None else x, labels)]
    check(f"on the engine: {not eager}", (wrapped._engine is None) == eager)
    return model, outputs, [wrapped.getAnchoredTensor(name) for name in anchors]


def alike(a, b, atol=1e-5):
    return len(a) == len(b) and all(
        one.shape == two.shape and torch.allclose(one.float(), two.float(), 1e-4, atol)
        for one, two in zip(a, b))


# --- stages and replicas ----------------------------------------------------------------------


def bits(model):
    return [value.clone() for value in model.state_dict().values()]


@program
def stages():
    """A pipeline, its stages on one thread each, and no stages give the same bits."""
    expected = None
    for strategy in (None, poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement),
                     poptorch.PipelinedExecution(poptorch.Stage("first").ipu(0),
                                                 poptorch.Stage("second").ipu(1)),
                     poptorch.ShardedExecution("first", "second"),
                     poptorch.SerialPhasedExecution(poptorch.Phase("first", "second"))):
        made = options(2, 4)
        if strategy is not None:
            made.setExecutionStrategy(strategy)
        with Said() as lines:
            model, outputs, _ = trained(made)
        check(f"stages are run as they are: {lines}", not any("one after" in one
                                                              for one in lines))
        expected = expected or (bits(model), outputs)
        check(f"the same bits: {type(strategy).__name__}", all(
            map(torch.equal, expected[0], bits(model))) and all(
            map(torch.equal, expected[1], outputs)))
    with Said() as lines:
        trained(options(2, 1), anchors=("fc1_output_0",))
    check(f"too few micro-batches are said once: {lines}", sum(
        "the 2 blocks run one after another: gradient_accumulation: 1" in one
        for one in lines) == 1)
    raises(poptorch.Error, "Unknown Block 'second' list of expected Blocks: first", trained,
           options(1, 2).setExecutionStrategy(poptorch.PipelinedExecution(
               poptorch.Stage("first"))))
    raises(AssertionError, "first is in two stages", poptorch.PipelinedExecution, "first", "first")
    raises(ValueError, "setExecutionStrategy: 'pipelined'", poptorch.Options()
           .setExecutionStrategy, "pipelined")


@program
def blocks_by_module_and_function():
    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.fc1, self.fc2 = nn.Linear(6, 8), poptorch.BeginBlock(nn.Linear(8, 3))
            self.loss = nn.CrossEntropyLoss()

        @poptorch.BlockFunction("first", ipu_id=0)
        def first(self, x):
            return self.fc1(x).relu()

        def forward(self, x, labels):
            x = self.fc2(self.first(x))
            return x, self.loss(x, labels)

    model = Other()
    x, y = data(16)
    wrapped = poptorch.trainingModel(model, options(1, 4))
    wrapped(x, y)
    check("two blocks on the engine", wrapped._engine.network.blocks == 2)
    check("no hook is left", not model.fc2._forward_pre_hooks)
    raises(ValueError, "already been assigned", poptorch.BeginBlock, model.fc2)
    poptorch.removeBlocks(model)
    poptorch.BeginBlock(model.fc2)


@program
def replicas():
    """Outputs, gradients, sums, weights and running statistics of replicas on the engine are those
    in eager mode, where each replica moves statistics of its own."""
    names = ("Gradient___model.fc1.weight", "UpdatedVar___model.fc2.bias", "norm.running_mean",
             "Accl1___model.fc1.weight", "model.fc1.weight", "input/1")
    for d, g, r in ((2, 1, 2), (2, 3, 2), (1, 1, 4)):
        anchors = names + ("Accum___model.fc1.weight",) * (g > 1)
        ours = trained(options(d, g, r), anchors=anchors)
        theirs = trained(options(d, g, r), eager=True, anchors=anchors)
        check(f"{d} {g} {r}: state", alike(bits(ours[0]), bits(theirs[0])))
        check(f"{d} {g} {r}: outputs", alike(ours[1], theirs[1]))
        for name, one, two in zip(anchors, ours[2], theirs[2]):
            check(f"{d} {g} {r}: {name} {one.shape} {two.shape}", alike([one], [two]))


@program
def grouped_inputs():
    """Replicas of a group get the same input."""
    x = torch.arange(8.0)
    for kind, expected in ((CommGroupType.Consecutive, [0, 0, 1, 1, 2, 2, 3, 3]),
                           (CommGroupType.Orthogonal, [0, 1, 0, 1, 2, 3, 2, 3]),
                           (CommGroupType.NoGrouping, None)):
        made = options(2, 1, 4).inputReplicaGrouping(2, kind)
        given = x[:4] if expected else x
        found = poptorch.inferenceModel(nn.Identity(), made)(given).tolist()
        check(f"{kind}: {found}", found == (expected or x.tolist()))
        loader = poptorch.DataLoader(made, torch.utils.data.TensorDataset(x))
        check("batches of a loader", loader.combinedBatchSize == len(given))
    raises(ValueError, "CommGroupType.All", options().inputReplicaGrouping, 2, CommGroupType.All)
    raises(ValueError, "groups of 3 of 4 replicas", poptorch.inferenceModel, nn.Identity(),
           options(1, 1, 4).inputReplicaGrouping(3, CommGroupType.Consecutive))


@program
def synthetic_data():
    for made in (options().enableSyntheticData(True), options(2).enableSyntheticData(True)):
        wrapped = poptorch.inferenceModel(nn.Identity(), made)
        x = torch.zeros(1000)
        first, second = wrapped(x), wrapped(x)
        check("normal numbers, the same in each call", torch.equal(first, second) and
              abs(first.std() - 1) < 0.2 and not x.any())
    ids = poptorch.inferenceModel(nn.Embedding(3, 2), options().enableSyntheticData(True))
    check("whole numbers are 0", torch.equal(*ids(torch.tensor([1, 2])).detach()))


# --- numbers ----------------------------------------------------------------------------------


@program
def automatic_loss_scaling():
    names = ("lossScaling___default", "skippedSteps___default", "Gradient___model.fc2.bias")
    x, y = data(8)
    found = []
    for eager in (False, True):
        plain, _, _ = trained(options(2, 1), eager, calls=1)
        made = options(2, 1)
        made.Training.setAutomaticLossScaling(True)
        model, _, (scale, skipped, gradient) = trained(made, eager, 1, names)
        check(f"weights as without: {eager}", alike(list(model.parameters()),
                                                    list(plain.parameters())))
        check(f"begins at 65536: {scale}", scale.tolist() == [65536.0, 65536.0])
        before = bits(model)
        made = options(2, 1).clone()
        made.Training.setAutomaticLossScaling()
        huge = x.clone()
        huge[:4] = float("inf")  # the first update has gradients that are not finite
        model, _, (scale, skipped, _) = trained(made, eager, 1, names, Net(eager), huge,
                                                loss_scaling=1024.0)
        check(f"halved, {scale}, and left out, {skipped}", scale.tolist() == [512.0, 512.0] and
              skipped.tolist() == [1, 1])
        check("weights stay finite", all(value.isfinite().all() for value in model.parameters()))
        found.append((before, gradient, list(model.parameters())))
    check("the engine as eager mode", alike(found[0][0], found[1][0]) and
          alike([found[0][1]], [found[1][1]], 1.0) and alike(found[0][2], found[1][2]))


@program
def exceptions():
    class Dividing(Net):
        def forward(self, x, labels=None):
            x = self.fc2(self.fc1(x)) / (x[:, :3] - 1.0)
            return x, self.loss(x, labels)

    x, y = data(8)
    bad = x.clone()
    bad[2, 1] = 1.0
    for eager in (False, True):
        made = options(2)
        made.Precision.enableFloatingPointExceptions(True)
        model = Dividing(eager)
        wrapped = poptorch.trainingModel(model, made)
        wrapped(x, y)
        before = model.fc1.weight.detach().clone()
        raises(poptorch.Error, "floating-point exception: div.Tensor makes" if eager else
               "floating-point exception: Div:0: Div makes", wrapped, bad, y)
        check("the update is left out", torch.equal(before, model.fc1.weight))
        check("nothing is compiled again", eager or not wrapped._engine.network.ignores)


@program
def automatic_casting():
    """module.autocast(), poptorch.autocast in forward, and the options."""
    x, y = data(4)

    class Part(Net):
        def forward(self, x, labels=None):
            with poptorch.autocast():
                x = self.fc1(x)
            return self.fc2(x.float())

    @poptorch.autocast()
    def product(a, b):
        return a @ b.t()

    class Decorated(Net):
        def forward(self, x, labels=None):
            return product(x, self.fc1.weight)

    for eager in (False, True):
        model = Net(eager).eval()
        model.fc1.autocast()
        made = options()
        made.anchorTensor("fc1", "fc1_output_0")
        run = poptorch.inferenceModel(model, made)
        output = run(x)
        with torch.autocast("cpu", torch.float16):
            expected = nn.functional.linear(x, model.fc1.weight, model.fc1.bias)
        check("its products are of 16 bits", alike([run.getAnchoredTensor("fc1")], [expected],
                                                   1e-3))
        check("the others are not", output.dtype is torch.float32 and
              "forward" not in model.fc1.__dict__)
        whole = Net(eager).eval()
        whole.autocast()
        plain = Net().eval()(x)
        output = poptorch.inferenceModel(whole)(x)
        check("a whole model", not alike([output], [plain], 1e-6) and
              alike([output], [plain], 1e-2))
        made = options()
        made.Precision.autocastPolicy(poptorch.autocasting.Policy(fp32=[nn.Linear]))
        output = poptorch.inferenceModel(whole, made)(x)
        check("a policy", alike([output], [plain], 1e-6))
        made = options()
        made.Precision.autocastEnabled(False)
        output = poptorch.inferenceModel(whole, made)(x)
        check("switched off", alike([output], [plain], 1e-6))
        part = Part(eager).eval()
        check("in a with", alike([poptorch.inferenceModel(part)(x)], [part(x)], 1e-3))
        check("of a function", poptorch.inferenceModel(Decorated(eager).eval())(x).dtype
              is torch.float16)
    raises(ValueError, "autocastPolicy", options().Precision.autocastPolicy, 3)


# --- loading ahead ----------------------------------------------------------------------------


class Counted(torch.utils.data.Dataset):
    def __init__(self, fails=None):
        self.read, self.fails = [], fails

    def __len__(self):
        return 6

    def __getitem__(self, i):
        if i == self.fails:
            raise KeyError("a sample")
        if i >= 6:
            raise IndexError
        self.read.append(i)
        return torch.tensor([i, i + 10])


@program
def accessor():
    source = Counted()
    with poptorch.AsynchronousDataAccessor(source, buffer_size=2, early_preload=True) as ahead:
        check("its length", len(ahead) == 6)
        for _ in range(2):
            check("the elements", [one[0].item() for one in ahead] == [0, 1, 2, 3, 4, 5])
        first = next(iter(ahead))
        check("an iteration that was left begins again", first[0] == 0 and
              [one[0].item() for one in ahead] == [0, 1, 2, 3, 4, 5])
    check("no more than the buffer", len(source.read) <= 3 * 6 + 1 + 4)
    once = poptorch.AsynchronousDataAccessor(Counted(), load_indefinitely=False)
    check("one epoch", len(list(once)) == 6 and once._ahead is None and len(list(once)) == 6)
    loader = torch.utils.data.DataLoader(Counted(), batch_size=2)
    joined = poptorch.AsynchronousDataAccessor(loader, rebatched_size=3)
    check("joined", [one[:, 0].tolist() for one in joined] == [[0, 1, 2], [3, 4, 5]])
    joined.terminate()
    raises(RuntimeError, "An error occurred in the data fetcher: KeyError", list,
           poptorch.AsynchronousDataAccessor(Counted(3)))
    raises(ValueError, "The Dataset is empty", poptorch.AsynchronousDataAccessor, [])
    raises(ValueError, "buffer_size: 0", poptorch.AsynchronousDataAccessor, source, 0)
    raises(ValueError, "rebatched_size: 1", poptorch.AsynchronousDataAccessor, source,
           rebatched_size=1)


@program
def async_options():
    made = poptorch.DataLoader(options(), Counted(), mode=poptorch.DataLoaderMode.Async,
                               num_workers=2, async_options={"buffer_size": 5,
                                                             "early_preload": True})
    check(f"a buffer of {made.prefetch_factor} x 2", made.prefetch_factor == 3)
    for _ in range(2):
        check("samples", [one[0, 0].item() for one in made] == [0, 1, 2, 3, 4, 5])
    made.terminate()
    raises(ValueError, "async_options: size", poptorch.DataLoader, options(), Counted(),
           mode=poptorch.DataLoaderMode.Async, async_options={"size": 5})
    raises(ValueError, "async_options: buffer_size", poptorch.DataLoader, options(), Counted(),
           async_options={"buffer_size": 5})


# --- others -----------------------------------------------------------------------------------


@program
def files_of_other_builds():
    model = Net().eval()
    wrapped = poptorch.inferenceModel(model)
    x, _ = data(4)
    wrapped(x)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.poptorch")
        wrapped.save(path)
        check("of this build", torch.equal(poptorch.load(path)(x), wrapped(x)))
        outer = torch.load(path)
        torch.save({**outer, "build": "Sonde 0.1 with PyTorch 2.4, build 1"}, path)
        raises(poptorch.Error, "saved by Sonde 0.1 with PyTorch 2.4, build 1 (expected Sonde ",
               poptorch.load, path)
        for content in (b"", b"poplar executable", b"\x80\x04\x95"):
            with open(path, "wb") as file:
                file.write(content)
            raises(poptorch.Error, "no model that this version saved", poptorch.load, path)
        raises(FileNotFoundError, "nowhere", poptorch.load, os.path.join(folder, "nowhere"))


@program
def own_arguments():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    class Parser(poptorch.ICustomArgParser):
        def yieldTensors(self, struct):
            yield from (struct.a, struct.b)

        def reconstruct(self, original_structure, tensor_iterator):
            return Pair(next(tensor_iterator), next(tensor_iterator))

    class Adds(nn.Module):
        def forward(self, pair):
            return Pair(pair.a + pair.b, pair.a)

    poptorch.registerCustomArgParser(Pair, Parser())
    run = poptorch.inferenceModel(Adds())
    for _ in range(2):
        made = run(Pair(torch.ones(2), torch.ones(2)))
        check("an object of the program's", made.a.tolist() == [2, 2] and made.b.tolist() == [1, 1])
    raises(ValueError, "ICustomArgParser", poptorch.registerCustomArgParser, Pair, 3)


@program
def progress_function():
    seen = []
    made = options().showCompilationProgressBar(lambda done, total: seen.append((done, total)))
    poptorch.inferenceModel(Net().eval(), made)(data(4)[0])
    check(f"{seen}", seen == [(0, 100), (100, 100)])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
