"""trainingModel and inferenceModel: a model that is called with all batches of a device's loop.

A call splits its arguments into D updates x G micro-batches x R replicas, runs them one after
another, and returns what the output mode asks for. It runs on Sonde's engine; a model that the
engine lacks something of runs on PyTorch, and the log says once what is missing. Parameters are
the module's own: the weights on the host are always those of the last call.
"""

from __future__ import annotations

import copy
import datetime
import inspect
import logging
import time
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sonde import SondeError

from . import ops, optim
from .anchors import Collector, Observer, plain, shown, unknown
from .eager import Call, Shared, as_before, loss_of, running_as
from .engine import Engine, Outdated
from .enums import CommGroupType, OutputMode
from .ops import Error
from .options import Options
from .processes import Group
from .progress import Bar
from .tracing import Missing, sources, trace

_log = logging.getLogger("poptorch")


class PoplarExecutor:
    """A wrapped model. Attributes that it lacks are the model's."""

    def __init__(self, model: torch.nn.Module, options: Options | None, training: bool,
                 optimizer: torch.optim.Optimizer | None):
        kind = "trainingModel" if training else "inferenceModel"
        if isinstance(model, PoplarExecutor):
            model = model._model
        if not isinstance(model, torch.nn.Module):
            raise ValueError(f"model: {type(model).__name__} (expected a torch.nn.Module)")
        self._model, self._training = model, training
        self._options = (options if options is not None else Options()).clone()
        self._options._freeze()
        options_ = self._options
        if options is not None:
            options._freeze()
        # an anchor that is added later is there from the next call on
        self._anchors = (options if options is not None else self._options).anchored_tensors
        if not training and options_.Training.gradient_accumulation != 1:
            raise ValueError("You must set poptorch.Options().Training.gradientAccumulation to 1 "
                             "for inference")
        if options_.random_seed is not None:
            torch.manual_seed(options_.random_seed)
        self._optimizer = _without_closure(optimizer)
        if training and optimizer is None and any(True for _ in model.parameters()):
            self._optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self._scaling = optim.LossScaling(optim.first_scaling(self._optimizer, True)) \
            if training and options_.Training.automatic_loss_scaling else None
        self._synthetic: dict[int, torch.Tensor] = {}
        self._shares = options_.input_slices != options_.replication_factor
        self._plain = not self._shares and not options_.synthetic_data
        there = options_.Distributed
        self._group = Group(there.processId, there.numProcesses) \
            if training and there.numProcesses > 1 else None
        self._counts = (options_.device_iterations, options_.Training.gradient_accumulation,
                        options_.replication_factor)
        self._modes = {module: module.training for module in model.modules()}
        self._spec: tuple[Any, list[Any]] | None = None
        self._names: list[str] | None = None
        self._known: set[str] = set()
        self._anchored: dict[str, torch.Tensor] = {}
        self._attached = False
        self._engine: Engine | None = None
        self._compile_seconds = 0.0
        self._span: tuple[float, float] | None = None  # of the last call
        self._kept: dict[str, Any] | None = {}  # the anchors that the engine keeps

    # --- compiling ------------------------------------------------------------------------

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Runs a micro-batch of the arguments on a copy of the model to learn the names of its
        tensors. The model, its optimizer and random numbers stay as they are."""
        if self._names is not None:
            _log.warning("Call to compile() ignored: model already compiled. ")
            return
        tree, leaves = self._leaves(args, kwargs)
        arguments = pytree.tree_unflatten(self._micro(leaves, 0), tree)
        bar = Bar(self._options._value_show_compilation_progress_bar)
        bar.show(0)
        self._build(*arguments)
        bar.show(100)
        self._compile_seconds = bar.seconds()
        self._spec = (tree, [_kind(leaf) for leaf in pytree.tree_leaves((args, kwargs))])
        self._attached = True
        self._check_anchors()

    def _build(self, args: tuple[Any, ...], kwargs: dict[str, Any], ignores: bool = False) -> None:
        """The engine, or what a run on PyTorch needs."""
        self._kept = {}
        try:
            self._engine = self._compile_engine(args, kwargs, ignores)
            self._names = self._shown_names(self._engine.names())
            _log.info("%s runs on the engine", type(self._model).__name__)
        except (Missing, SondeError) as lack:
            self._on_pytorch_from_now(lack)
            self._names = self._rehearse(args, kwargs)
        self._known = {plain(name) for name in self._names}

    def _on_pytorch_from_now(self, lack: Exception) -> None:
        self._engine = None
        _log.warning("%s runs on PyTorch: the engine lacks %s", type(self._model).__name__, lack)

    def _compile_engine(self, args: tuple[Any, ...], kwargs: dict[str, Any],
                        ignores: bool = False) -> Engine:
        """Missing: the engine lacks something. ignores: labels may be the negative
        ignore_index."""
        if any(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
               or module._backward_pre_hooks for module in self._model.modules()):
            raise Missing([("hooks of modules", "")])
        if self._group is not None:
            raise Missing([("several processes", "")])
        trained = {id(weight) for group in self._optimizer.param_groups
                   for weight in group["params"]} if self._optimizer is not None else set()
        with running_as(self._model, self._flags(), self._options.Precision):
            network = trace(self._model, args, kwargs, self._training, trained,
                            self._options.execution_strategy, ignores)
        return Engine(self._model, network, self._options, self._optimizer,
                      self._options._resolved(self._training), ())

    def _rehearse(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """The names of tensors, from a run on PyTorch of a copy of the model, or of the model
        itself if it cannot be copied."""
        try:
            trial = copy.deepcopy(self._model)
        except Exception as problem:
            _log.debug("the model is not copied: %s", problem)
            with as_before(self._model):
                return self._rehearse_on(self._model, args, kwargs)
        return self._rehearse_on(trial, args, kwargs)

    def _rehearse_on(self, trial: torch.nn.Module, args: tuple[Any, ...],
                     kwargs: dict[str, Any]) -> list[str]:
        with torch.random.fork_rng(devices=[]), running_as(trial, self._flags(), self._options.Precision), \
                ops.running(quiet=True) as marked, Observer(trial, None) as observer, \
                torch.set_grad_enabled(self._training):
            observer.begin(0, [leaf for leaf in pytree.tree_flatten((args, kwargs))[0]
                               if isinstance(leaf, torch.Tensor)])
            output = trial(*args, **kwargs)
            if self._training:
                loss_of(output, marked).backward()
        return self._listed(list(observer.names), trial)

    def _flags(self) -> list[bool]:
        """Whether each module trains, as it was when the model was wrapped."""
        return [self._modes.get(module, module.training) for module in self._model.modules()]

    def _check_anchors(self) -> None:
        for long_name, _, _ in self._anchors.values():
            if plain(long_name) not in self._known:
                raise Error(unknown(long_name, self.getTensorNames()))

    def _listed(self, seen: list[str], trial: torch.nn.Module) -> list[str]:
        names = [name for name in seen if not name.startswith("Gradient___")]
        tensors = dict(self._model.named_parameters())
        names += [*tensors, *dict(self._model.named_buffers())]
        if not self._training:
            return names
        trained = [name for name, value in trial.named_parameters() if value.grad is not None]
        names += [name for name in seen if name.startswith("Gradient___")]
        for name in trained:
            names += [f"Gradient___{name}", f"UpdatedVar___{name}"]
            if self._counts[1] > 1:
                names.append(f"Accum___{name}")
            names += [f"{key}___{name}" for key in self._state_keys()]
        if self._scaling is not None:
            names += [name for name, _ in self._scaling.tensors()]
        return self._shown_names(names)

    def _shown_names(self, names: list[str]) -> list[str]:
        """As they are listed: in training, parameters are in "model."."""
        if not self._training:
            return names
        inside = {*dict(self._model.named_parameters()), *dict(self._model.named_buffers())}
        return [shown(name, inside) for name in names]

    def _state_keys(self) -> list[str]:
        group = self._optimizer.param_groups[0] if self._optimizer is not None else {}
        if "betas" in group:
            return ["Accl1", "Accl2", "Step"]
        return ["Accl1"] if group.get("momentum") or "alpha" in group else []

    def isCompiled(self) -> bool:
        return self._names is not None

    def getTensorNames(self) -> list[str]:
        """The names of all tensors that can be anchored."""
        if self._names is None:
            raise AssertionError("Model must be compiled before calling getTensorNames")
        return list(self._names)

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """The anchored values of the last call."""
        if self._engine is not None and short_name in self._anchors:
            found = self._engine.anchored(self._anchor_key(*self._anchors[short_name]))
            if found is not None:
                self._anchored[short_name] = found
        if short_name not in self._anchored:
            raise AssertionError(f"No tensor with name {short_name} found.")
        return self._anchored[short_name]

    # --- arguments ------------------------------------------------------------------------

    def _leaves(self, args: Any, kwargs: Any) -> tuple[Any, list[Any]]:
        """All arguments, flattened."""
        leaves, tree = pytree.tree_flatten((args, kwargs))
        if self._spec is not None:
            self._check_arguments(tree, leaves, args)
        d, g, _ = self._counts
        q = self._options.input_slices
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                size = leaf.shape[0] if leaf.dim() else 1
                if size % (d * g * q):
                    raise AssertionError(
                        f"Invalid batch dimension: In the input {tuple(leaf.shape)}, the batch "
                        f"dimension ({size}) must be a multiple of Options.deviceIterations({d}) "
                        f"* Options.replicationFactor({q}) * "
                        f"Options.Training.gradientAccumulation({g}) = {d * g * q}")
        return tree, leaves if self._plain else [
            self._prepared(i, leaf) if isinstance(leaf, torch.Tensor) and leaf.dim() else leaf
            for i, leaf in enumerate(leaves)]

    def _prepared(self, place: int, leaf: torch.Tensor) -> torch.Tensor:
        """An argument as inputReplicaGrouping and enableSyntheticData have it."""
        if self._shares:
            d, g, _ = self._counts
            size, kind = self._options.replica_grouping
            parts = leaf.reshape(d * g, self._options.input_slices, -1, *leaf.shape[1:])
            parts = parts.repeat_interleave(size, 1) if kind is CommGroupType.Consecutive \
                else torch.cat([parts] * size, 1)
            leaf = parts.flatten(0, 2)
        if not self._options.synthetic_data:
            return leaf
        if place not in self._synthetic or self._synthetic[place].shape != leaf.shape:
            self._synthetic[place] = torch.randn_like(leaf) if leaf.dtype.is_floating_point \
                else torch.zeros_like(leaf)
        return self._synthetic[place]

    def _check_arguments(self, tree: Any, leaves: list[Any], args: Any) -> None:
        assert self._spec is not None
        expected_tree, kinds = self._spec
        if tree != expected_tree:
            raise ValueError(f"Number of positional arguments mismatch or other nesting: expected "
                             f"{expected_tree} but got {tree}. Wrap the model again, or call "
                             "destroy(), to change it")
        names = _names_of(self._model, args, len(leaves))
        for name, leaf, kind in zip(names, leaves, kinds):
            if isinstance(leaf, torch.Tensor) and isinstance(kind, tuple):
                if leaf.dtype != kind[0]:
                    raise ValueError(f"Data type mismatch for {name}: expected {kind[0]} but got "
                                     f"{leaf.dtype}. Wrap the model again, or call destroy(), to "
                                     "change it")
                if tuple(leaf.shape) != kind[1]:
                    raise ValueError(f"Shape mismatch for {name}: expected {kind[1]} but got "
                                     f"{tuple(leaf.shape)}. Wrap the model again, or call "
                                     "destroy(), to change it")
            elif leaf is not kind and leaf != kind:
                raise ValueError(f"Value mismatch for {name}: expected {kind} but got {leaf}. "
                                 "Wrap the model again, or call destroy(), to change it")

    def _micro(self, leaves: list[Any], k: int) -> list[Any]:
        """The arguments of micro-batch k."""
        count = self._counts[0] * self._counts[1] * self._counts[2]
        parts = []
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and leaf.dim() > 0:
                size = leaf.shape[0] // count
                leaf = leaf[k * size:(k + 1) * size]
            parts.append(leaf.detach() if isinstance(leaf, torch.Tensor) else leaf)
        return parts

    # --- running --------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs D updates, or forward passes, on the arguments. Returns the outputs of the model,
        in its own nesting, of the micro-batches that the output mode names."""
        if self._engine is not None and not kwargs and self._attached and \
                self._anchors == self._kept and self._spec is not None and self._plain and \
                len(args) == len(self._spec[1]):
            begin = time.perf_counter()
            try:
                return self._engine.call(args)
            except SondeError as problem:
                self._raise_exception_of(problem)
            except Outdated:
                pass  # both are checked below, and arguments made contiguous
            finally:
                self._span = begin, time.perf_counter()
        _check_period(*self._options._resolved(self._training), self._counts[0])
        if self._names is None:
            self.compile(*args, **kwargs)
        self._attached = True
        tree, leaves = self._leaves(args, kwargs)
        self._check_anchors()
        begin = time.perf_counter()
        try:
            return self._on_engine(tree, leaves) if self._engine is not None else \
                self._on_pytorch(tree, leaves)
        finally:
            self._span = begin, time.perf_counter()

    def _anchor_key(self, long_name: str, own: OutputMode | None, period: int
                    ) -> tuple[str, OutputMode, int]:
        mode, period = self._options._resolved(self._training) if own is None else (own, period)
        _check_period(mode, period, self._counts[0])
        return plain(long_name), mode, period

    def _on_engine(self, tree: Any, leaves: list[Any]) -> Any:
        assert self._engine is not None
        if self._anchors != self._kept:
            keys = dict.fromkeys(self._anchor_key(*anchor) for anchor in self._anchors.values())
            self._engine.open(self._optimizer, list(keys))
            self._kept = dict(self._anchors)
        inputs = tuple([leaves[place].detach().contiguous()
                        for place in self._engine.network.inputs])
        try:
            return self._engine.call(inputs)
        except Outdated:
            return self._compiled_again(tree, leaves)
        except SondeError as problem:
            self._raise_exception_of(problem)
            if problem.code != "SONDE_ERANGE" or self._engine.network.ignores:
                raise
        return self._with_ignored_labels(tree, leaves, inputs)

    def _raise_exception_of(self, problem: SondeError) -> None:
        """Error: the engine ended a call at a number that is not finite. Updates before it are
        done."""
        if self._options.Precision.floating_point_exceptions and \
                problem.code == "SONDE_ERANGE" and "expected finite" in str(problem):
            raise Error(f"floating-point exception: {problem}") from problem

    def _compiled_again(self, tree: Any, leaves: list[Any]) -> Any:
        """The call, after the program has changed what was compiled. The state continues."""
        assert self._engine is not None
        self._engine.give_back()
        args, kwargs = pytree.tree_unflatten(self._micro(leaves, 0), tree)
        self._build(args, kwargs, self._engine.network.ignores)
        return self._on_pytorch(tree, leaves) if self._engine is None else \
            self._on_engine(tree, leaves)

    def _with_ignored_labels(self, tree: Any, leaves: list[Any], inputs: Any) -> Any:
        """Losses that can ignore labels cost more, so they are built when a label is negative."""
        assert self._engine is not None
        args, kwargs = pytree.tree_unflatten(self._micro(leaves, 0), tree)
        engine = self._compile_engine(args, kwargs, ignores=True)
        engine.take_over(self._engine, list(self._engine.anchors))
        self._engine = engine
        return engine.call(inputs)

    def _on_pytorch(self, tree: Any, leaves: list[Any]) -> Any:
        replicas = self._counts[2]
        mode, period = self._options._resolved(self._training)
        wanted = {}
        for long_name, own, own_period in self._anchors.values():
            key = self._anchor_key(long_name, own, own_period)
            wanted[key] = Collector(*key[1:], replicas)
        run = Call(self, tree, leaves, Shared(wanted))
        outputs = run.run(Collector(mode, period, replicas))
        self._anchored = {}
        for short, anchor in self._anchors.items():
            value = wanted[self._anchor_key(*anchor)].result()
            if value is not None:
                self._anchored[short] = value
        return outputs

    # --- the optimizer --------------------------------------------------------------------

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes the hyper-parameters of an optimizer from the next call on; state is kept."""
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ValueError(f"optimizer: {optimizer!r} (expected a torch.optim.Optimizer)")
        _without_closure(optimizer)
        if self._engine is not None and self._training:
            try:
                self._engine.set_optimizer(optimizer)
            except Missing as lack:
                self._engine.give_back()
                self._on_pytorch_from_now(lack)
        if self._engine is None and self._optimizer is not None and optimizer is not self._optimizer and \
                type(optimizer) is type(self._optimizer):
            for weight, state in self._optimizer.state.items():
                if weight not in optimizer.state:
                    optimizer.state[weight] = state
        self._optimizer = optimizer

    # --- files ----------------------------------------------------------------------------

    def save(self, filename: str, export_model: bool = True, save_rng_state: bool = True
             ) -> None:
        """Writes what was compiled, the parameters and the optimizer's state, and with
        export_model the module: poptorch.load reads them."""
        from . import saving
        if self._names is None:
            raise Error("Model has not been compiled or has been destroyed.")
        saving.save(self, filename, export_model, save_rng_state)

    def compileAndExport(self, filename: str, *args: Any, export_model: bool = True,
                         save_rng_state: bool = True, **kwargs: Any) -> None:
        """compile, then save."""
        self.compile(*args, **kwargs)
        self.save(filename, export_model, save_rng_state)

    def loadExecutable(self, filename: str) -> None:
        """What save wrote for a module of the same tensors: nothing is compiled again."""
        from . import saving
        content = saving.read(filename)
        if content["training"] != self._training:
            raise Error(f"{filename}: saved by the other of trainingModel and inferenceModel")
        self._load_parts(content)

    def _compiled_parts(self) -> dict[str, Any]:
        parts = {"names": self._names, "spec": self._spec}
        if self._engine is not None:
            if self._engine.moved():
                self._engine.reclaim()
            return {**parts, "network": self._engine.network, "state": self._engine.state()}
        return {**parts, "network": None, "state": self._model.state_dict(), "optimizer":
                self._optimizer.state_dict() if self._optimizer is not None else None}

    def _load_parts(self, content: dict[str, Any]) -> None:
        parts, engine = content["compiled"], None
        if parts["network"] is None:
            self._model.load_state_dict(parts["state"])
            if self._optimizer is not None and parts["optimizer"] is not None:
                self._optimizer.load_state_dict(parts["optimizer"])
        else:
            lacking = set(parts["network"].tensors) - {*sources(self._model),
                                                       *parts["network"].constants}
            if lacking:
                raise Error(f"the saved model has {min(lacking)}, which this module lacks")
            engine = Engine(self._model, parts["network"], self._options, self._optimizer,
                            self._options._resolved(self._training), ())
            engine.set_state(parts["state"])
        self._names, self._spec = parts["names"], parts["spec"]
        self._known = {plain(name) for name in self._names}
        self._attached, self._kept, self._engine = True, {}, engine
        if content["rng"] is not None:
            torch.set_rng_state(content["rng"])

    def compilationTime(self) -> datetime.timedelta:
        if self._names is None:
            raise Error("Please compile the model first.")
        return datetime.timedelta(seconds=self._compile_seconds)

    # --- times ----------------------------------------------------------------------------

    def _seconds(self) -> tuple[float, float, float]:
        taken = 0.0 if self._span is None else self._span[1] - self._span[0]
        return taken, taken, taken

    def getLatency(self) -> tuple[float, float, float]:
        """(min, max, mean) of the seconds from input to output, which are those of the last
        call: its micro-batches have no times of their own."""
        return self._seconds()

    def getComputeLatency(self) -> tuple[float, float, float]:
        """As getLatency: nothing is copied to a device."""
        return self._seconds()

    def getHostIpuLatency(self) -> tuple[float, float, float]:
        """Zeros: nothing is copied to a device."""
        return 0.0, 0.0, 0.0

    def getIpuHostLatency(self) -> tuple[float, float, float]:
        """Zeros: nothing is copied from a device."""
        return 0.0, 0.0, 0.0

    def getPerfCounters(self) -> dict[str, list[list[float]]]:
        """The times at which inputs were taken and outputs were ready, in seconds: those of the
        last call, for its first input and its first output."""
        begin, end = ([], []) if self._span is None else ([self._span[0]], [self._span[1]])
        return {"input": [begin], "input_complete": [begin], "output": [end],
                "output_complete": [end]}

    def cycleCount(self) -> int:
        raise Error("cycleCount: there are no cycles of a device here (expected getLatency)")

    @property
    def rng_state(self) -> list[int]:
        """The state of PyTorch's random numbers, which the next compilation takes its seed from."""
        return torch.get_rng_state().tolist()

    @rng_state.setter
    def rng_state(self, state: list[int]) -> None:
        torch.set_rng_state(torch.tensor(state, dtype=torch.uint8))

    # --- the device -----------------------------------------------------------------------

    def isAttachedToDevice(self) -> bool:
        return self._attached

    def detachFromDevice(self) -> None:
        """The optimizer's state goes to the optimizer; weights are the module's own."""
        if not self._attached:
            raise Error("Device is not attached")
        self.copyWeightsToHost()
        self._attached = False

    def attachToDevice(self) -> None:
        if self._attached:
            raise Error("Device is already attached")
        if self._names is None:
            raise Error("Model has not been compiled or has been destroyed.")
        self._attached = True

    def destroy(self) -> None:
        """Forgets what was compiled; the optimizer's state goes to the optimizer."""
        try:
            self.copyWeightsToHost()
        except SondeError as problem:
            _log.warning("the optimizer's state is lost: %s", problem)
        self._names, self._spec, self._attached = None, None, False
        self._engine, self._kept = None, {}
        self._anchored = {}

    def copyWeightsToHost(self) -> None:
        """The weights are the module's own; the optimizer's state goes to the optimizer."""
        if self._engine is not None:
            self._engine.give_back()

    def copyWeightsToDevice(self) -> None:
        """The weights are the module's own: nothing to do."""

    def copyNamedBuffersToDevice(self) -> None:
        """The buffers are the module's own: nothing to do."""

    def copyWeightsToHostIfNeeded(self) -> bool:
        return False

    # --- the model ------------------------------------------------------------------------

    @property
    def model(self) -> torch.nn.Module:
        return self._model

    @property
    def options(self) -> Options:
        return self._options

    def train(self, mode: bool = True) -> "PoplarExecutor":
        before = self._flags()
        self._modes = dict.fromkeys(self._model.modules(), mode)
        if self._engine is not None and self._flags() != before:
            self.destroy()  # the next call compiles
        return self

    def eval(self) -> "PoplarExecutor":
        return self.train(False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._model, name)

    def __repr__(self) -> str:
        return f"{'trainingModel' if self._training else 'inferenceModel'}({self._model!r})"


def _without_closure(optimizer: Any) -> Any:
    """The optimizer, if its step does not call the model itself."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure") \
        if isinstance(optimizer, torch.optim.Optimizer) else None
    if closure is not None and closure.default is closure.empty:
        raise ValueError(f"optimizer: {type(optimizer).__name__} calls the model from its step "
                         "(expected an optimizer that does not)")
    return optimizer


def _check_period(mode: OutputMode, period: int, iterations: int) -> None:
    if mode is OutputMode.EveryN and iterations % period:
        raise Error(f"EveryN {period}: it does not divide Options.deviceIterations({iterations})")


def _kind(leaf: Any) -> Any:
    return (leaf.dtype, tuple(leaf.shape)) if isinstance(leaf, torch.Tensor) else leaf


def _names_of(model: torch.nn.Module, args: Any, count: int) -> list[str]:
    """Names of the arguments of forward, for messages."""
    names = list(inspect.signature(model.forward).parameters)
    if all(not isinstance(arg, (list, tuple, dict)) for arg in args) and len(names) >= count:
        return names[:count]
    return [f"argument {i}" for i in range(count)]


def trainingModel(model: torch.nn.Module, options: Options | None = None,
                  optimizer: torch.optim.Optimizer | None = None) -> PoplarExecutor:
    """Wraps a model whose forward returns its loss. Optimizer None: SGD with lr 0.01."""
    return PoplarExecutor(model, options, True, optimizer)


def inferenceModel(model: torch.nn.Module, options: Options | None = None) -> PoplarExecutor:
    """Wraps a model for forward passes without gradients."""
    return PoplarExecutor(model, options, False, None)
