"""Names of poptorch that programs use: every option, functions of a model, placement, several
processes, and modules that are hard to copy or to optimize.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import io
import logging
import os
import subprocess
import sys
import warnings

from harness import check, folder, main, program, raises

BUILD = os.path.abspath(os.environ.get("SONDE_BUILD", "build/release"))
PACKAGE = os.path.join(BUILD, "python")
sys.path[0:0] = [os.path.join(PACKAGE, "sonde", "compat", "poptorch"), PACKAGE]
try:
    import torch
    from torch import nn
    import poptorch
    from poptorch.options import _Group
except ImportError as problem:
    print(problem)
    sys.exit(77)


class Net(nn.Module):
    """body(self, x) of two linear layers."""

    def __init__(self, body, **modules):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.fc = body, nn.Linear(6, 4)
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x):
        y = self.body(self, x)
        return (y, y.square().mean()) if self.training else y


X = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))


def sgd(model):
    return torch.optim.SGD(model.parameters(), 0.1)


def like_pytorch(what, body, make=sgd, steps=3, **modules):
    """Trains it, and compares it with PyTorch; what the log says."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    log = logging.getLogger("poptorch")
    log.addHandler(handler)
    log.propagate = False
    torch.manual_seed(0)
    ours, theirs = Net(body, **{k: v() for k, v in modules.items()}), None
    torch.manual_seed(0)
    theirs = Net(body, **{k: v() for k, v in modules.items()})
    theirs.load_state_dict(ours.state_dict())
    wrapped, optimizer = poptorch.trainingModel(ours, None, make(ours)), make(theirs)
    for _ in range(steps):
        output, loss = wrapped(X)
        optimizer.zero_grad()
        expected = theirs(X)
        expected[1].backward()
        optimizer.step()
    log.removeHandler(handler)
    check(f"{what}: outputs", torch.allclose(output, expected[0], atol=1e-5) and
          torch.allclose(loss, expected[1], atol=1e-5))
    check(f"{what}: parameters", all(torch.allclose(a, b, atol=1e-5) for a, b in zip(
        ours.state_dict().values(), theirs.state_dict().values())))
    return said.getvalue()


@program
def functions_of_a_model():
    def loop(self, x):
        return poptorch.for_loop(3, lambda a: [a * 0.5 + 1], [self.fc(x)])[0]

    def choice(self, x):
        return poptorch.cond(torch.tensor(True), lambda a: a * 2, [self.fc(x)],
                             lambda a: a, [x])[0]

    def part(self, x):
        y = poptorch.dynamic_slice(self.fc(x), 1, torch.tensor(1), 2)
        return poptorch.dynamic_update(self.fc(x), y * 2, 1, torch.tensor(0), 2)

    def host(self, x):
        with poptorch.NameScope("scope"), poptorch.MultiConv().partialsTypes(torch.half), \
                poptorch.Block("A", ipu_id=0):
            return poptorch.CPU(lambda a: self.fc(a).sort(1)[0], "sorted")(x)

    for body in (loop, choice, part, host):
        like_pytorch(body.__name__, body)
    steps = torch.arange(10)
    check("slices with steps", poptorch.dynamic_slice(steps, 0, 2, 6, 2).tolist() == [2, 4, 6])

    def custom(self, x):
        return poptorch.custom_op([x], "LeakyRelu", "custom.ops", 1, [x])[0]

    line = custom.__code__.co_firstlineno + 1
    logging.getLogger("poptorch").setLevel(logging.ERROR)
    raises(poptorch.Error, f"test_poptorch_names.py:{line})", poptorch.trainingModel(Net(custom)),
           X)
    raises(poptorch.Error, "'LeakyRelu' of custom.ops", poptorch.trainingModel(Net(custom)), X)
    logging.getLogger("poptorch").setLevel(logging.WARNING)
    with poptorch.profiling.Channel("c").tracepoint("x"):
        poptorch.profiling.Channel("c").instrument(X, "sum")
    check("an accessor", list(poptorch.AsynchronousDataAccessor([1, 2])) == [1, 2])


@program
def hard_modules():
    """Modules that cannot be copied, own dtypes, optimizers and groups: nothing fails."""
    plain = lambda self, x: self.fc(self.inner(x))  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        for norm in (nn.utils.weight_norm, nn.utils.spectral_norm):
            said = like_pytorch(norm.__name__, plain, inner=lambda norm=norm: norm(nn.Linear(6, 6)))
            check(f"it says why: {said}", "lacks hooks of modules" in said)
    said = like_pytorch("another dtype", lambda self, x: self.fc(self.inner(x.double()).float()),
                        inner=lambda: nn.Linear(6, 6).double())
    check(f"it names the dtype: {said}", "torch.float64" in said)
    like_pytorch("groups", plain, lambda model: poptorch.optim.SGD(
        [{"params": model.fc.parameters(), "lr": 0.2, "momentum": 0.9},
         {"params": model.inner.parameters()}], lr=0.1), inner=lambda: nn.Linear(6, 6))
    like_pytorch("an optimizer", plain, lambda model: torch.optim.NAdam(model.parameters()),
                 inner=lambda: nn.Linear(6, 6))
    model = Net(plain, inner=nn.Linear(6, 6))
    raises(ValueError, "LBFGS calls the model", poptorch.trainingModel, model, None,
           torch.optim.LBFGS(model.parameters()))


PLACED = ("autoRoundNumIPUs(True)", "useIpuModel(True)", "useIpuId(0)", "useOfflineIpuTarget(2)",
          "syncPattern(poptorch.SyncPattern.Full)", "setAvailableMemoryProportion({'IPU0': 0.5})",
          "connectionType(poptorch.ConnectionType.Never)",
          "setExecutionStrategy(poptorch.PipelinedExecution(poptorch.Stage('a').ipu(0)))",
          "setExecutionStrategy(poptorch.ShardedExecution(poptorch.AutoStage.AutoIncrement))",
          "setExecutionStrategy(poptorch.SerialPhasedExecution(poptorch.Phase('a', 'b')))",
          "setExecutionStrategy(poptorch.ParallelPhasedExecution(['a'], ['b']))",
          "relaxOptimizerAttributesChecks()", "logCycleCount(True)", "enableStableNorm(True)",
          "enableProfiling('.')", "modelName('m')",
          "logDir('.')", "maxRepeatLogs(3)", "sourceLocationExcludes(['a'])",
          "appendToLocationExcludes('a')", "updatableNamedBuffers(['b'])",
          "disableModuleNamescope()", "broadcastBuffers(False)",
          "inputReplicaGrouping(1, poptorch.CommGroupType.NoGrouping)",
          "enableSyntheticData(False)", "showCompilationProgressBar(False)", "randomSeed(3)",
          "Training.setAutomaticLossScaling(True)", "Training.setConvolutionDithering(True)",
          "Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)",
          "Training.setMeanAccumulationAndReplicationReductionStrategy("
          "poptorch.MeanReductionStrategy.Running)",
          "Precision.enableFloatingPointExceptions(True)",
          "Precision.enableStochasticRounding(True)", "Precision.setPartialsType(torch.half)",
          "Precision.halfFloatCasting(poptorch.HalfFloatCastingBehavior.Default)",
          "Precision.runningStatisticsAlwaysFloat(True)", "Distributed.disable()",
          "Distributed.setEnvVarNames('NO_SIZE', 'NO_RANK')",
          "TensorLocations.setActivationLocation(poptorch.TensorLocationSettings()"
          ".useOnChipStorage(False))",
          "TensorLocations.setWeightLocation(None)", "TensorLocations.setOptimizerLocation(None)",
          "TensorLocations.setAccumulatorLocation(None)", "TensorLocations.numIOTiles(32)",
          "Jit.traceModel(False)", "_Popart.set('x', 1)", "_Popart.setEngineOptions({})",
          "_Popart.setPatterns({}, 1)")


@program
def every_option():
    said = io.StringIO()
    log, handler = logging.getLogger("poptorch"), logging.StreamHandler(said)
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    _Group._said.clear()
    made = poptorch.Options()
    for call in PLACED * 2:
        eval("made." + call, {"made": made, "poptorch": poptorch, "torch": torch})
    log.setLevel(level)
    log.removeHandler(handler)
    lines = said.getvalue().splitlines()
    check(f"each is said once: {lines}", len(lines) == len(set(lines)) == 33 and all(
        line.endswith("has no effect here") for line in lines))
    model = Net(lambda self, x: self.fc(x))
    check("a model takes them", len(poptorch.trainingModel(model, made)(X)) == 2)
    strategy = poptorch.PipelinedExecution(poptorch.Stage("a"), poptorch.Stage("b"))
    strategy.stage("b").ipu(1)
    raises(AttributeError, "expected minElementsForOffChip",
           getattr, poptorch.TensorLocationSettings(), "useOnChip")


@program
def times():
    wrapped = poptorch.inferenceModel(Net(lambda self, x: self.fc(x)).eval())
    check("not called yet", wrapped.getLatency() == (0.0, 0.0, 0.0))
    wrapped(X)
    wrapped(X)
    least, most, mean = wrapped.getLatency()
    check(f"latency {mean}", 0.0 < least == most == mean < 60.0)
    counters = wrapped.getPerfCounters()
    check(f"counters {counters}", counters["output"][0][0] - counters["input"][0][0] == mean)
    raises(poptorch.Error, "getLatency", wrapped.cycleCount)
    state = wrapped.rng_state
    first = torch.rand(2)
    wrapped.rng_state = state
    check("random numbers again", torch.equal(first, torch.rand(2)))


# --- several processes ----------------------------------------------------------------------------


def distributed(rank, count, seed=3):
    made = poptorch.Options().deviceIterations(2).randomSeed(seed)
    made.Distributed.configureProcessId(rank, count)
    return made


def rows(rank, count, epochs=1, size=23, **options):
    table = torch.utils.data.TensorDataset(torch.arange(size))
    loader = poptorch.DataLoader(distributed(rank, count), table, batch_size=2, **options)
    return [[row for batch in loader for row in batch[0].tolist()] for _ in range(epochs)]


@program
def parts_of_the_samples():
    check("in order", rows(0, 2)[0] == [*range(8)] and rows(1, 2)[0] == [*range(8, 16)])
    whole = [rows(rank, 2, drop_last=False)[0] for rank in (0, 1)]
    check(f"not cut: {whole}", whole == [[*range(12)], [*range(12, 23)]])
    first, second = [rows(rank, 2, epochs=2, shuffle=True) for rank in (0, 1)]
    check("the same order, no sample twice", not set(first[0]) & set(second[0]))
    check("two epochs take the end too", len({*first[0], *second[0]}) == 16)
    check("all see all of theirs", rows(0, 2, auto_distributed_partitioning=False)[0] ==
          [*range(20)])
    made = poptorch.Options()
    made.Distributed.configureProcessId(1, 2)
    table = torch.utils.data.TensorDataset(X)
    raises(ValueError, "randomSeed", poptorch.DataLoader, made, table, shuffle=True)
    raises(ValueError, "batch_sampler", poptorch.DataLoader, distributed(0, 2), table,
           batch_sampler=[[0]])
    raises(ValueError, "2 of 2 processes", poptorch.Options().Distributed.configureProcessId, 2, 2)
    for key in ("MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(key, None)
    raises(poptorch.Error, "cannot find each other", poptorch.trainingModel, nn.Linear(2, 2),
           distributed(0, 2))


WORKER = """
import logging, os, sys, torch
sys.path[0:0] = %r
import poptorch
logging.getLogger("poptorch").setLevel(logging.ERROR)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 4)
    def forward(self, x):
        y = self.fc(x)
        return y, y.square().mean()
made = poptorch.Options()
made.Distributed.setEnvVarNames("WORLD_SIZE", "RANK")
rank, count = made.Distributed.processId, made.Distributed.numProcesses
torch.distributed.init_process_group("gloo", f"file://{sys.argv[1]}.meeting", rank=rank,
                                     world_size=count)
torch.manual_seed(rank)
model = Net()
x = torch.arange(48.).view(8, 6) / 48
wrapped = poptorch.trainingModel(model, made, torch.optim.SGD(model.parameters(), 0.1))
for _ in range(3):
    wrapped(x[rank::count])
torch.save(model.state_dict(), sys.argv[1] + str(rank))
torch.distributed.destroy_process_group()
"""


@program
def several_processes():
    """Two processes with half of a batch each train as one with all of it."""
    path = folder("weights")
    code = WORKER % (sys.path[:2],)
    workers = [subprocess.Popen(
        [sys.executable, "-c", code, path], env={**os.environ, "RANK": str(rank),
                                                 "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"})
        for rank in (0, 1)]
    check("they end", [worker.wait(600) for worker in workers] == [0, 0])
    torch.manual_seed(0)
    fc, x = nn.Linear(6, 4), torch.arange(48.).view(8, 6) / 48
    optimizer = sgd(fc)
    for _ in range(3):
        optimizer.zero_grad()
        fc(x).square().mean().backward()
        optimizer.step()
    first, second = torch.load(path + "0"), torch.load(path + "1")
    check("the same weights in both", all(torch.equal(first[key], second[key]) for key in first))
    check("and those of one", all(torch.allclose(first["fc." + key], value, atol=1e-6)
                                  for key, value in fc.state_dict().items()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
