"""A compiled network: a session of the engine over the module's own parameters."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sonde import SondeError

from . import optim, state
from .builder import HALVES
from .enums import OutputMode, ReductionType
from .ops import Error
from .placement import SEQUENTIAL
from .tracing import Constant, Missing, Network

_log = logging.getLogger("poptorch")
_DTYPES = {"float32": torch.float32, "int64": torch.int64, "float64": torch.float64,
           "int32": torch.int32, "bool": torch.bool, "uint8": torch.uint8,
           "bfloat16": torch.bfloat16, "float16": torch.float16}


class Outdated(Exception):
    """The program has changed what was compiled: compile again."""


# --- the optimizer --------------------------------------------------------------------------------


def settings_of(optimizer: torch.optim.Optimizer, automatic: bool
                ) -> tuple[str, list[dict[str, float]]]:
    """An optimizer as the engine's: its name, and the numbers of each group. automatic: of the
    loss scaling. Missing: the engine has no such one."""
    kind = _KINDS.get(type(optimizer))
    if kind is None:
        raise Missing([(f"the optimizer {type(optimizer).__name__}", "")])
    factor = optim.first_scaling(optimizer, automatic)
    scaling = {"loss_scaling": factor, "automatic_loss_scaling": float(automatic)} \
        if automatic or factor != 1.0 else {}
    return kind, [{**_numbers_of(optimizer, kind, group), **scaling}
                  for group in optimizer.param_groups]


def _numbers_of(optimizer: torch.optim.Optimizer, kind: str,
                group: dict[str, Any]) -> dict[str, float]:
    """The engine's numbers of a group."""
    if group.get("amsgrad") or group.get("maximize"):
        raise Missing([("amsgrad, or maximize", "")])
    numbers = {ours: float(group[theirs]) for theirs, ours in _NUMBERS.items() if theirs in group}
    if "betas" in group:
        numbers["beta1"], numbers["beta2"] = map(float, group["betas"])
    if getattr(optimizer, "use_tf_variant", False):
        numbers["tf_variant"] = 1.0
    if not getattr(optimizer, "bias_correction", True):
        numbers["no_bias_correction"] = 1.0
    limit = getattr(optimizer, "max_grad_norm", float("inf"))
    if limit != float("inf"):
        numbers["clip_norm"] = float(limit)
    return {key: value for key, value in numbers.items() if key in _ALLOWED[kind] or value != 0.0}


def _without_rates(settings: tuple[str, list[dict[str, float]]]) -> Any:
    """What of an optimizer is compiled."""
    return settings[0], [{**numbers, "learning_rate": 0.0} for numbers in settings[1]]


_NUMBERS = {"lr": "learning_rate", "weight_decay": "weight_decay", "momentum": "momentum",
            "dampening": "dampening", "nesterov": "nesterov", "eps": "eps", "alpha": "alpha",
            "centered": "centered", "lr_decay": "lr_decay", "max_weight_norm": "max_weight_norm",
            "initial_accumulator_value": "initial_accumulator_value"}
_ALLOWED = {"sgd": ("learning_rate", "weight_decay", "momentum"),
            "adam": ("learning_rate", "weight_decay", "beta1", "beta2", "eps"),
            "adamw": ("learning_rate", "weight_decay", "beta1", "beta2", "eps"),
            "rmsprop": ("learning_rate", "weight_decay", "alpha", "eps"),
            "adagrad": ("learning_rate", "weight_decay", "eps"),
            "lamb": ("learning_rate", "weight_decay", "beta1", "beta2", "eps",
                     "max_weight_norm")}
_KINDS: dict[type, str] = {
    torch.optim.SGD: "sgd", optim.SGD: "sgd", torch.optim.Adam: "adam", optim.Adam: "adam",
    torch.optim.AdamW: "adamw", optim.AdamW: "adamw", torch.optim.RMSprop: "rmsprop",
    optim.RMSprop: "rmsprop", torch.optim.Adagrad: "adagrad", optim.LAMB: "lamb"}


# --- modes ----------------------------------------------------------------------------------------


def kept(series: torch.Tensor, mode: OutputMode, period: int, replicas: int) -> torch.Tensor:
    """What a mode keeps of values (n, ...) in the order of micro-batches."""
    shape = series.shape[1:]
    series = series.reshape(-1, replicas, *shape)
    if mode is OutputMode.EveryN:
        series = series[period - 1::period]
    elif mode is OutputMode.Final:
        series = series[-1:]
    elif mode is OutputMode.Sum:
        series = series.sum(0, keepdim=True)
    count = series.shape[0] * series.shape[1]
    if count == 1:
        return series.reshape(shape)
    return series.reshape(count) if not shape else series.reshape(count * shape[0], *shape[1:])


class _Anchor:
    """A tensor that is kept of each call: what the engine anchors, and what becomes of it."""

    def __init__(self, engine: "Engine", name: str, mode: OutputMode, period: int,
                 passes: dict[str, str]):
        _, accumulation, replicas = engine.counts
        self.name, self.mode, self.period, self.engine = name, mode, period, engine
        updated = "UpdatedVar___" + name
        if updated in passes and (accumulation > 1 and mode is OutputMode.Final
                                  or accumulation == 1 and replicas > 1):
            self.name = updated
        # what an update makes has one value for all of its accumulation steps
        self.repeats = accumulation if passes.get(self.name) == "update" and \
            engine.training else 1
        self.native = self.repeats == 1 or mode is OutputMode.Final

    def request(self, key: str) -> tuple[str, str, int, int]:
        if not self.native:
            return key, self.name, int(OutputMode.All), 0
        return key, self.name, int(self.mode), \
            self.period if self.mode is OutputMode.EveryN else 0

    def value(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.native:
            return tensor
        d, g, r = self.engine.counts
        shape = tensor.shape if d * r == 1 else \
            () if tensor.dim() == 1 and tensor.shape[0] == d * r else \
            (tensor.shape[0] // (d * r), *tensor.shape[1:])
        series = tensor.reshape(d, 1, r, *shape).expand(d, g, r, *shape)
        return kept(series.reshape(d * g * r, *shape), self.mode, self.period, r)


# --- the session ----------------------------------------------------------------------------------


class Engine:
    """Runs calls of D updates of G micro-batches on R replicas."""

    def __init__(self, model: torch.nn.Module, network: Network, options: Any,
                 optimizer: torch.optim.Optimizer | None, output: tuple[OutputMode, int],
                 anchors: Sequence[tuple[str, OutputMode, int]]):
        self.model, self.network, self.training = model, network, network.training
        self.counts = (options.device_iterations, options.Training.gradient_accumulation,
                       options.replication_factor)
        self.options, self.output = options, output
        self.graph, found, memory = network.build(model)
        self.memory = [read if tensor.dtype in HALVES else tensor.detach()
                       for tensor, read in zip(found, memory)]
        self.rounded = {place: tensor.detach().clone() for place, tensor in enumerate(found)
                        if tensor.dtype in HALVES}  # what the module has of float32 tensors
        self.addresses = [memory.data_ptr() for memory in self.memory]
        self.slots = [(network.constants, name) if name in network.constants else
                      _slot(model, name) for name in network.tensors]
        self.modules = _places(model, network.tensors)
        self.trained = [tensor.requires_grad for tensor in found]
        self.nest = _nesting(network)
        self.halves = bool(self.rounded) or any(dtype in HALVES for dtype in network.dtypes)
        self.session: Any = None
        self.said = False  # that blocks are no stages
        self.stepped = False  # the engine has a state of the optimizer
        self.open(optimizer, anchors)

    def open(self, optimizer: torch.optim.Optimizer | None,
             anchors: Sequence[tuple[str, OutputMode, int]]) -> None:
        """Compiles a session; the state of the one before carries over."""
        self.hold(optimizer)
        settings = self.settings_of(optimizer) if optimizer is not None and self.training \
            else None
        self.rates = [] if settings is None else \
            [numbers["learning_rate"] for numbers in settings[1]]
        self.settings = settings
        given = None if settings is None else self.given(settings)
        passes: dict[str, str] = {}
        if anchors:
            passes = {name: when for name, _, when in self.new_session(given, ()).tensors()}
        self.anchors = {key: _Anchor(self, *key, passes) for key in anchors}
        requests = tuple(anchor.request(str(i))
                         for i, anchor in enumerate(self.anchors.values()))
        session = self.new_session(given, requests)
        before, self.session = self.session, session
        if before is not None:
            with _file() as path:
                before.save(path)
                session.load(path)
        elif settings is not None and state.taken(optimizer):
            self.set_state(state.give(self.state(), settings[0], optimizer, {
                id(weight): name for name, weight in self.weights().items()}))
        self.kinds: list[tuple[tuple[int, ...], torch.dtype]] | None = None
        self.ran = False

    def settings_of(self, optimizer: torch.optim.Optimizer) -> tuple[str, list[dict[str, float]]]:
        return settings_of(optimizer, self.options.Training.automatic_loss_scaling)

    def new_session(self, given: Any, requests: tuple[Any, ...]) -> Any:
        """A compiled session. Blocks that cannot be stages of a pipeline run one after another."""
        mode, period = self.output
        seed = self.options.random_seed
        options = (*self.counts, self.options.Training._value_reduction is ReductionType.Sum,
                   int(mode), period if mode is OutputMode.EveryN else 0,
                   (torch.initial_seed() if seed is None else seed) & (2 ** 63 - 1),
                   torch.get_num_threads(), self.options.cache_folder)
        exceptions = self.options.Precision.floating_point_exceptions
        execution = self.options.execution_strategy.engine_kind if self.training and \
            self.network.blocks > 1 else SEQUENTIAL
        try:
            return self.graph.session(self.training, (*options, execution, exceptions), given,
                                      requests)
        except SondeError as problem:
            if execution == SEQUENTIAL:
                raise
            if not self.said:
                _log.info("the %d blocks run one after another: %s", self.network.blocks, problem)
            self.said = True
        return self.graph.session(self.training, (*options, SEQUENTIAL, exceptions), given,
                                  requests)

    def given(self, settings: tuple[str, list[dict[str, float]]]) -> tuple[Any, ...]:
        """An optimizer as a session takes it: groups after the first by the names of their
        parameters. Sets self.numbered: the session's numbers of the groups, 0 for the first."""
        assert self.optimizer is not None
        names = {id(weight): name for name, weight in self.weights().items()
                 if weight.requires_grad}
        groups, self.numbered = [], [0]
        for group, numbers in zip(self.optimizer.param_groups[1:], settings[1][1:]):
            found = [names[id(weight)] for weight in group["params"] if id(weight) in names]
            if found:
                groups.append((",".join(found), numbers))
            self.numbered.append(len(groups) if found else -1)
        return settings[0], settings[1][0], tuple(groups)

    def hold(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Continues with an optimizer; notes what of it does not change unseen."""
        self.optimizer = optimizer
        if optimizer is not None:
            self.groups, self.held = len(optimizer.param_groups), optimizer.state
            self.held_members = self.members(optimizer)

    @staticmethod
    def members(optimizer: torch.optim.Optimizer) -> list[list[int]]:
        """Which parameters each group has."""
        return [[id(weight) for weight in group["params"]] for group in optimizer.param_groups]

    def state(self) -> bytes:
        """Parameters, buffers and the optimizer's state, as safetensors."""
        self.follow()
        with _file() as path:
            self.session.save(path)
            with open(path, "rb") as file:
                return file.read()

    def set_state(self, content: bytes) -> None:
        with _file() as path:
            with open(path, "wb") as file:
                file.write(content)
            self.session.load(path)
        self.stepped = True
        self.write_back()

    def weights(self) -> dict[str, Any]:
        """The module's tensors that the engine reads, by name."""
        return {name: owner[key] for name, (owner, key) in zip(self.network.tensors, self.slots)
                if owner.get(key) is not None}

    def give_back(self) -> None:
        """Writes the optimizer's state to PyTorch's optimizer."""
        if self.settings is not None and self.stepped and self.optimizer.state is self.held:
            state.take(self.state(), self.settings[0], self.optimizer, self.weights())

    def take_over(self, other: "Engine", anchors: Sequence[tuple[str, OutputMode, int]]) -> None:
        """Keeps anchors, and continues with the optimizer's state of another engine of the same
        parameters."""
        self.session, self.stepped = other.session, other.stepped
        self.open(self.optimizer, anchors)

    def names(self) -> list[str]:
        """All tensors: activations, parameters and buffers, gradients, the update's."""
        groups: dict[int, list[str]] = {0: [], 1: [], 2: [], 3: []}
        for name, role, when in self.session.tensors():
            group = 3 if when == "update" else 2 if when == "backward" else \
                1 if role in ("weight", "bias", "buffer") else 0
            groups[group].append(name)
        return [name for group in groups.values() for name in group]

    # --- calls ----------------------------------------------------------------------------

    def call(self, inputs: tuple[torch.Tensor, ...]) -> Any:
        """Runs on contiguous tensors."""
        if self.halves:
            inputs = tuple([one.float() if one.dtype in HALVES else one for one in inputs])
        if self.moved():
            self.reclaim()
        if self.rounded:
            self.read_changes()
        if self.optimizer is not None:
            self.heed_optimizer()
        if self.kinds is None:
            return self.first(inputs)
        outputs = tuple([torch.empty(shape, dtype=dtype) for shape, dtype in self.kinds])
        self.session.run(inputs, outputs)
        self.ran = self.stepped = True
        self.write_back()
        return self.nest(outputs)

    def first(self, inputs: tuple[torch.Tensor, ...]) -> Any:
        """A call before the shapes of outputs are known."""
        self.session.run(inputs, ())
        self.ran = self.stepped = True
        self.write_back()
        found = [self.session.output(i) for i in range(len(self.network.values))]
        self.kinds = [(shape, _DTYPES[dtype]) for dtype, shape in found]
        outputs = [torch.empty(shape, dtype=dtype) for shape, dtype in self.kinds]
        for i, output in enumerate(outputs):
            self.session.fetch(i, output)
        return self.nest(outputs)

    def anchored(self, key: tuple[str, OutputMode, int]) -> torch.Tensor | None:
        """An anchor's value of the last call; None: nothing has run since it was added."""
        if not self.ran or key not in self.anchors:
            return None
        name = str(list(self.anchors).index(key))
        dtype, shape = self.session.anchored(name, None)
        tensor = torch.empty(shape, dtype=_DTYPES[dtype])
        self.session.anchored(name, tensor)
        return self.anchors[key].value(tensor)

    def set_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """A new rate; other numbers compile a session that takes over the state."""
        settings = self.settings_of(optimizer)
        if self.settings is not None and _without_rates(settings) == \
                _without_rates(self.settings) and self.members(optimizer) == self.held_members:
            self.hold(optimizer)
        else:
            self.open(optimizer, list(self.anchors))

    def heed_optimizer(self) -> None:
        """The learning rates may change between calls. Outdated: the program added a group, loaded
        the optimizer's state, or froze parameters."""
        groups = self.optimizer.param_groups
        if len(groups) != self.groups or self.optimizer.state is not self.held or \
                [owner[name].requires_grad for owner, name in self.slots] != self.trained:
            raise Outdated
        for i, group in enumerate(groups):
            rate = float(group["lr"])
            if rate != self.rates[i] and self.numbered[i] >= 0:
                self.session.set_rate(rate, self.numbered[i])
                self.rates[i] = rate

    # --- parameters -----------------------------------------------------------------------

    def moved(self) -> bool:
        """Whether a parameter or buffer lies elsewhere than the engine reads it, or its module
        was replaced."""
        now = [owner.get(name) for owner, name in self.slots]
        for place, copy in self.rounded.items():
            there = now[place]
            if there is not None and there.dtype is copy.dtype and there.shape == copy.shape and \
                    there.device.type == "cpu":
                now[place] = self.memory[place]
        return self.graph.moved(tuple(now)) >= 0 or \
            any([owner.get(name) is not module for owner, name, module in self.modules])

    def read_changes(self) -> None:
        """Takes over what the program has written to tensors of 16 bits since the last call."""
        for place, copy in self.rounded.items():
            owner, name = self.slots[place]
            now = owner[name].detach()
            if not torch.equal(now.view(torch.int16), copy.view(torch.int16)):
                copy.copy_(now)
                self.memory[place].copy_(now)

    def write_back(self) -> None:
        """Rounds the float32 tensors that were computed to the module's of 16 bits."""
        if not self.training:
            return
        for place, copy in self.rounded.items():
            owner, name = self.slots[place]
            copy.copy_(self.memory[place])
            owner[name].detach().copy_(copy)

    def follow(self) -> None:
        """Memory that PyTorch has moved under its tensors, as share_memory does: a new session
        reads it there."""
        gone = [place for place, memory in enumerate(self.memory)
                if memory.data_ptr() != self.addresses[place]]
        for place in gone:
            self.graph.move(place, self.memory[place])
            self.addresses[place] = self.memory[place].data_ptr()
        if gone:
            self.open(self.optimizer, list(self.anchors))

    def reclaim(self) -> None:
        """A parameter that the program has replaced, or moved, moves back with its values."""
        self.follow()
        for owner, name, module in self.modules:
            if owner.get(name) is not module:
                raise Error(f"the module {name} was replaced after compilation: call destroy() to "
                            "compile again")
        for place, (owner, name) in enumerate(self.slots):
            memory, now, title = self.memory[place], owner.get(name), self.network.tensors[place]
            if now is None:
                raise Error(f"{title} is not in the module any more: call destroy() to compile "
                            "again")
            expected = self.rounded.get(place, memory)
            if now.shape != expected.shape or now.dtype != expected.dtype or now.is_meta:
                raise Error(f"{title} became {tuple(now.shape)} of {now.dtype} on {now.device} "
                            f"(expected {tuple(expected.shape)} of {expected.dtype}): call "
                            "destroy() to compile again")
            if expected is not memory:
                if now.device.type != "cpu":
                    now.data = now.detach().cpu()
                continue
            if now.device.type != "cpu" or now.data_ptr() != memory.data_ptr() or \
                    not now.is_contiguous():
                memory.copy_(now.detach().clone())
                now.data = memory


def _slot(model: torch.nn.Module, name: str) -> tuple[dict[str, Any], str]:
    """Where a module keeps a parameter or buffer."""
    path, _, last = name.rpartition(".")
    module = model.get_submodule(path)
    return (module._parameters if last in module._parameters else module._buffers), last


def _places(model: torch.nn.Module, names: Sequence[str]
            ) -> list[tuple[dict[str, Any], str, torch.nn.Module]]:
    """Where the modules that have these tensors are kept, and their parents: (a module's
    modules, name, module)."""
    found = {}
    for name in names:
        path = name.split(".")[:-1] if not name.startswith("constant.") else []
        module = model
        for i, part in enumerate(path):
            owner, module = module._modules, module._modules[part]
            found[".".join(path[:i + 1])] = (owner, part, module)
    return list(found.values())


def _nesting(network: Network) -> Any:
    """A function that makes the model's output of the session's."""
    leaves, nesting, dtypes = network.leaves, network.nesting, network.dtypes
    if any(dtype in HALVES for dtype in dtypes):
        def rounded(outputs: Sequence[torch.Tensor]) -> Any:
            return pytree.tree_unflatten([
                leaf.value if isinstance(leaf, Constant) else outputs[leaf].to(dtype)
                for leaf, dtype in zip(leaves, dtypes)], nesting)

        return rounded
    plainly = leaves == list(range(len(leaves)))
    if plainly and nesting == pytree.tree_structure(tuple(leaves)):
        return tuple
    if plainly and nesting == pytree.tree_structure(0):
        return lambda outputs: outputs[0]

    def nest(outputs: Sequence[torch.Tensor]) -> Any:
        return pytree.tree_unflatten([leaf.value if isinstance(leaf, Constant) else outputs[leaf]
                                      for leaf in leaves], nesting)

    return nest


class _file:
    """The path of a file that is deleted afterwards."""

    def __enter__(self) -> str:
        handle, self.path = tempfile.mkstemp(suffix=".safetensors")
        os.close(handle)
        return self.path

    def __exit__(self, *rest: object) -> None:
        os.unlink(self.path)
