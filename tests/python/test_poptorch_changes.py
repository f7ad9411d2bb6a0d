"""What programs change between calls of a compiled poptorch model, and the order of its loaders.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import copy
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
from torch.utils.data import Subset, TensorDataset

from sonde import SondeError


class Small(nn.Module):
    def __init__(self, inputs=6):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2 = nn.Linear(inputs, 6), nn.Linear(6, 3)

    def forward(self, x, labels=None):
        y = self.fc2(self.fc1(x).relu())
        return y if labels is None else (y, nn.functional.cross_entropy(y, labels))


X = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
Y = torch.arange(8) % 3


def sgd(model):
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


class Pair:
    """A model on the engine and the same one on PyTorch."""

    def __init__(self, optimizer=sgd):
        self.models = Small(), Small()
        self.optimizers = [optimizer(model) for model in self.models]
        self.wrapped = poptorch.trainingModel(self.models[0], None, self.optimizers[0])
        self.step()

    def step(self, times=1):
        for _ in range(times):
            self.wrapped(X, Y)
            self.optimizers[1].zero_grad()
            self.models[1](X, Y)[1].backward()
            self.optimizers[1].step()

    def check(self, what):
        self.step(2)
        ours, theirs = (list(model.parameters()) for model in self.models)
        check(f"{what}: the numbers of PyTorch", all(
            torch.allclose(a, b, atol=1e-6) for a, b in zip(ours, theirs)))


# --- memory ---------------------------------------------------------------------------------------


@program
def memory_that_moves():
    """share_memory, and sending a tensor to a process, move memory under a tensor."""
    pair = Pair()
    pair.models[0].share_memory()
    pair.check("shared")
    pair.models[0].share_memory()
    pair.wrapped.copyWeightsToHost()
    check("the momentum", torch.allclose(
        pair.optimizers[0].state[pair.models[0].fc1.weight]["momentum_buffer"],
        pair.optimizers[1].state[pair.models[1].fc1.weight]["momentum_buffer"], atol=1e-6))
    for model in pair.models:
        model.fc1.weight.data = model.fc1.weight.data.t()
    pair.check("transposed")
    pair.models[0].fc1.weight.untyped_storage().resize_(0)
    raises(SondeError, "fc1.weight", pair.wrapped, X, Y)
    pair.wrapped.destroy()


@program
def modules_that_change():
    """Each change that the compiled model cannot follow is refused, by name."""
    def lose(model):
        del model.fc2.bias

    def replace(model):
        model.fc2 = nn.Linear(6, 3)

    for change, expected in (
            (replace, "the module fc2 was replaced"), (lose, "fc2.bias is not in the module"),
            (lambda model: setattr(model.fc1, "bias", None), "fc1.bias is not in the module"),
            (lambda model: model.to("meta"), "fc1.weight became (6, 6) of torch.float32 on meta"),
            (lambda model: model.half(), "fc1.weight became (6, 6) of torch.float16")):
        model = Small()
        wrapped = poptorch.trainingModel(model, None, sgd(model))
        wrapped(X, Y)
        change(model)
        raises(poptorch.Error, expected, wrapped, X, Y)
        wrapped.destroy()
        check("destroyed", not wrapped.isCompiled())


@program
def files_of_other_models():
    """What cannot be loaded leaves the model as it was: not compiled."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.poptorch")
        saved = poptorch.trainingModel(Small())
        saved(X, Y)
        saved.save(path)
        for model, error, expected in ((Small(7), SondeError, "fc1/Linear"),
                                       (nn.Linear(6, 3), poptorch.Error, "this module lacks")):
            wrapped = poptorch.trainingModel(model)
            raises(error, expected, wrapped.loadExecutable, path)
            check("not compiled", not wrapped.isCompiled())


@program
def forked():
    """A child of a fork has none of the engine's threads."""
    torch.set_num_threads(2)
    wrapped = poptorch.inferenceModel(Small())
    wrapped(X)
    child = os.fork()
    if child == 0:
        try:
            wrapped(X)
        except SondeError as problem:
            del wrapped
            os._exit(0 if "forked" in str(problem) else 1)
        os._exit(2)
    torch.set_num_threads(1)
    check("refused in the child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0)
    check("not in the parent", wrapped(X).shape == (8, 3))


# --- optimizers, flags, anchors -------------------------------------------------------------------


@program
def _():
    def groups(model):
        return torch.optim.SGD([{"params": model.fc1.parameters()},
                                {"params": model.fc2.parameters()}], 0.1, momentum=0.9)

    pair = Pair(groups)
    for optimizer in pair.optimizers:
        optimizer.param_groups[1]["lr"] = 0.01
    pair.check("a rate of one group")
    check("on the engine", pair.wrapped._engine is not None)

    pair = Pair(lambda model: torch.optim.SGD(model.fc2.parameters(), 0.1, momentum=0.9))
    for model, optimizer in zip(pair.models, pair.optimizers):
        optimizer.add_param_group({"params": model.fc1.parameters()})
    pair.check("a group that is added")

    pair = Pair()
    for model in pair.models:
        model.fc1.weight.requires_grad_(False)
    pair.check("frozen")

    pair = Pair()
    state = copy.deepcopy(pair.optimizers[1].state_dict())
    pair.step(3)
    for optimizer in pair.optimizers:
        optimizer.load_state_dict(copy.deepcopy(state))
    pair.check("a loaded state")
    check("on the engine", pair.wrapped._engine is not None)

    class Own(torch.optim.SGD):
        pass

    pair.wrapped.setOptimizer(Own(pair.models[0].parameters(), 0.1))
    check("one that the engine lacks", len(pair.wrapped(X, Y)) == 2 and
          pair.wrapped._engine is None)
    raises(ValueError, "torch.optim.Optimizer", pair.wrapped.setOptimizer, None)


@program
def flags_and_anchors():
    class Noisy(Small):
        def forward(self, x, labels=None):
            return nn.functional.dropout(super().forward(x, labels), 0.5, self.training)

    wrapped = poptorch.inferenceModel(Noisy().eval())
    check("evaluation", torch.equal(wrapped(X), wrapped(X)) and wrapped._engine is not None)
    wrapped.train()
    check("training", not torch.equal(wrapped(X), wrapped(X)))

    model, made = Small(), poptorch.Options()
    made.anchorTensor("it", "Gradient___model.fc1.bias")
    wrapped = poptorch.trainingModel(model, made, sgd(model))
    wrapped(X, Y)
    made.anchorTensor("it", "Gradient___model.fc2.bias")
    wrapped(X, Y)
    check("another tensor under the name", wrapped.getAnchoredTensor("it").shape == (3,))


# --- loaders --------------------------------------------------------------------------------------


class Own(TensorDataset):
    def __getitem__(self, i):
        return tuple(-tensor[i] for tensor in self.tensors)


def order(loader, draws):
    """Batches of two epochs, and what the program draws between."""
    torch.manual_seed(3)
    found = []
    for _ in range(2):
        batches = iter(loader)
        if draws:
            found.append(torch.rand(1))
        for batch in batches:
            found += batch
            if draws:
                found.append(torch.rand(1))
    return found


def same_order(data_set, table, draws=True, **settings):
    seeds = [torch.Generator().manual_seed(5) if settings.pop("seeded", False) else None] * 2
    if seeds[0] is not None:
        seeds = [torch.Generator().manual_seed(5) for _ in seeds]
    ours = poptorch.DataLoader(poptorch.Options().deviceIterations(2), data_set, batch_size=3,
                               generator=seeds[0], **settings)
    theirs = torch.utils.data.DataLoader(data_set, batch_size=6, drop_last=settings.pop(
        "drop_last", True), generator=seeds[1], persistent_workers=settings.get(
            "num_workers", 0) > 0, **settings)
    check(f"a table: {settings}", ours._table.ready(data_set) is table)
    found, expected = order(ours, draws), order(theirs, draws)
    check(f"the order of PyTorch: {settings}", len(found) == len(expected) and all(
        torch.equal(a, b) for a, b in zip(found, expected)))


@program
def the_order_of_pytorch():
    """The same batches, and the same random numbers left for the program."""
    whole = TensorDataset(torch.arange(40.0).reshape(20, 2), torch.arange(20))
    part = Subset(Subset(whole, list(range(19))), [-1, 3, 4, 4, 8, 0, 17, 2])
    for data_set in (whole, part):
        for settings in ({}, {"shuffle": True}, {"shuffle": True, "drop_last": False},
                         {"shuffle": True, "seeded": True}):
            same_order(data_set, True, **settings)
    weights = torch.utils.data.WeightedRandomSampler([1.0] * 20, 20)
    same_order(whole, True, sampler=weights)
    same_order(whole, True, shuffle=True, num_workers=1)
    same_order(whole, False, sampler=[-1, 2, 5, 7, 1, 0, 3, 3])
    same_order(Own(*whole.tensors), False, shuffle=True)
    same_order(whole, False, shuffle=True, collate_fn=lambda samples: torch.utils.data.default_collate(
        samples))


@program
def tables_that_change():
    x = torch.arange(4.0)
    whole = TensorDataset(x)
    loader = poptorch.DataLoader(poptorch.Options(), Subset(whole, [0, 1, 2]), batch_size=3)
    first = next(iter(loader))[0].tolist()
    x[0] = 9.0
    x.numpy()[1] = 8.0
    second = next(iter(loader))[0].tolist()
    whole.tensors = (torch.full((4,), 7.0),)
    loader.dataset.indices = [3, 2]
    check("changes are seen", first == [0, 1, 2] and second == [9, 8, 2])
    loader = poptorch.DataLoader(poptorch.Options(), whole, batch_size=2)
    check("other tensors", next(iter(loader))[0].tolist() == [7, 7])
    whole.tensors = (torch.full((4,), 6.0),)
    check("replaced", next(iter(loader))[0].tolist() == [6, 6])


class Shared(torch.utils.data.IterableDataset):
    """Numbers below count, of which each process has its share."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        if worker is None:
            return iter(range(self.count))
        share = -(-self.count // worker.num_workers)
        return iter(range(worker.id * share, min((worker.id + 1) * share, self.count)))


@program
def rebatched():
    """PopTorch's own numbers: 101 samples, batches of 4, 7 processes."""
    modes, options = poptorch.DataLoaderMode, {"batch_size": 4, "num_workers": 7}
    for mode, count in ((modes.Sync, 20), (modes.Async, 20), (modes.AsyncRebatched, 25)):
        for worker in (None, 3) if mode is modes.AsyncRebatched else (None,):
            batches = list(poptorch.DataLoader(poptorch.Options(), Shared(101), mode=mode,
                                               rebatched_worker_size=worker, **options))
            check(f"{mode}, {worker}: {len(batches)} batches", len(batches) == count)
            check(f"{mode}, {worker}: whole ones", all(len(batch) == 4 for batch in batches))
            check(f"{mode}, {worker}: none twice", torch.cat(batches).unique().numel() == 4 * count)
    last = list(poptorch.DataLoader(poptorch.Options(), Shared(101), mode=modes.Async, drop_last=False, **options))
    check("Async without drop_last joins them too", [len(batch) for batch in last] == [4] * 25 + [1])
    raises(ValueError, "rebatched_worker_size: 5", poptorch.DataLoader, poptorch.Options(), Shared(101),
           mode=modes.AsyncRebatched, rebatched_worker_size=5, **options)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
