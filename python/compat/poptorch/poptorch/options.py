"""Options: chained setters, which freeze when a loader or a model takes them.

Those that place a program on a device, or set its memory, are accepted and have no effect here;
the first of each says so in the log.
"""

from __future__ import annotations

import ast
import copy
import json
import logging
import os
from collections.abc import Callable
from typing import Any

import torch

from . import autocasting, enums
from .enums import CommGroupType, MeanReductionStrategy, OutputMode, ReductionType
from .placement import Execution, PipelinedExecution

_log = logging.getLogger("poptorch")


# Options without effect here that would change what a program computes.
_CHANGES_NUMBERS = ("broadcastBuffers",)


class ConfigFileError(Exception):
    """A line of an options file that cannot be read."""


def _whole(name: str, value: Any, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}: {value!r} (expected a whole number, {least} or more)")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name}: {value!r} (expected True or False)")
    return value


def _one_of(name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{name}: {value!r} (expected one of "
                         f"{', '.join(f'{kind.__name__}.{one.name}' for one in kind)})")
    return value


class _Group:
    """A set of options. `_inert` names setters that are accepted without effect."""

    _inert: tuple[str, ...] = ()
    _said: set[str] = set()

    def __init__(self) -> None:
        self._frozen = False

    def _set(self, **values: Any) -> "_Group":
        if self._frozen:
            raise AttributeError("Can't modify frozen Options")
        self.__dict__.update(values)
        return self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in type(self)._inert:
            raise AttributeError(f"there is no option '{name}' (expected one of "
                                 f"{', '.join(sorted(self._names()))})")

        return lambda *values, **more: self._accept(name, *values, **more)

    def _accept(self, name: str, *values: Any, **more: Any) -> Any:
        if name not in _Group._said:
            _Group._said.add(name)
            _log.log(logging.WARNING if name in _CHANGES_NUMBERS else logging.INFO,
                     "option %s has no effect here", name)
        return self._set(**{"_given_" + name: (values, more)})

    @classmethod
    def _names(cls) -> list[str]:
        return [*cls._inert, *(name for name in vars(cls)
                               if not name.startswith("_") and callable(getattr(cls, name)))]

    def __deepcopy__(self, memo: Any) -> "_Group":
        made = type(self).__new__(type(self))
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        made.__dict__["_frozen"] = False
        return made

    def _shown(self, prefix: str = "") -> list[str]:
        lines = []
        for name, value in self.__dict__.items():
            if isinstance(value, _Group):
                lines += value._shown(f"{prefix}{name}.")
            elif name.startswith("_value_"):
                lines.append(f"{prefix}{name.removeprefix('_value_')}={value}")
        return lines


class Training(_Group):
    """Options of training: options.Training."""

    _inert = ("setConvolutionDithering",)

    def __init__(self) -> None:
        super().__init__()
        self._value_gradient_accumulation = 1
        self._value_automatic_loss_scaling = False
        self._value_reduction = ReductionType.Mean
        self._value_strategy = MeanReductionStrategy.Post

    @property
    def gradient_accumulation(self) -> int:
        return self._value_gradient_accumulation

    def gradientAccumulation(self, gradient_accumulation: int) -> "Training":
        """Micro-batches of an update."""
        return self._set(_value_gradient_accumulation=_whole("gradientAccumulation",
                                                             gradient_accumulation))

    @property
    def automatic_loss_scaling(self) -> bool:
        return self._value_automatic_loss_scaling

    def setAutomaticLossScaling(self, enabled: bool = True) -> "Training":
        """Finds the loss scaling while training, by the rule of torch.amp.GradScaler: it begins
        with the optimizer's, or 65536, halves at an update whose gradients are not finite, which
        is left out, and doubles after 2000 others. The tensor lossScaling___default."""
        return self._set(_value_automatic_loss_scaling=_flag("setAutomaticLossScaling", enabled))

    def accumulationAndReplicationReductionType(self, reduction_type: ReductionType
                                                ) -> "Training":
        """Whether the gradients of micro-batches and replicas are averaged or added."""
        return self._set(_value_reduction=_one_of("accumulationAndReplicationReductionType",
                                                  reduction_type, ReductionType))

    def setMeanAccumulationAndReplicationReductionStrategy(
            self, mean_reduction_strategy: MeanReductionStrategy) -> "Training":
        """When a mean divides: the same numbers, to rounding."""
        return self._set(_value_strategy=_one_of(
            "setMeanAccumulationAndReplicationReductionStrategy", mean_reduction_strategy,
            MeanReductionStrategy))


class Precision(_Group):
    """Options of precision: options.Precision."""

    _inert = ("enableStochasticRounding", "halfFloatCasting", "runningStatisticsAlwaysFloat")

    def __init__(self) -> None:
        super().__init__()
        self._value_floating_point_exceptions = False
        self._value_autocast_enabled = True
        self._value_autocast_policy = autocasting.default

    @property
    def floating_point_exceptions(self) -> bool:
        return self._value_floating_point_exceptions

    @property
    def autocast_enabled(self) -> bool:
        return self._value_autocast_enabled

    @property
    def autocast_policy(self) -> autocasting.Policy:
        return self._value_autocast_policy

    def enableFloatingPointExceptions(self, exceptions: bool) -> "Precision":
        """A call ends with an error at the first op that makes a NaN or an infinity."""
        return self._set(_value_floating_point_exceptions=_flag("enableFloatingPointExceptions",
                                                                exceptions))

    def autocastEnabled(self, autocast_enabled: bool) -> "Precision":
        """Whether modules of which autocast() was called compute in float16; they do."""
        return self._set(_value_autocast_enabled=_flag("autocastEnabled", autocast_enabled))

    def autocastPolicy(self, autocast_policy: autocasting.Policy) -> "Precision":
        """Which modules such a module holds that compute in float32 nevertheless."""
        if not isinstance(autocast_policy, autocasting.Policy):
            raise ValueError(f"autocastPolicy: {autocast_policy!r} (expected "
                             "poptorch.autocasting.Policy)")
        return self._set(_value_autocast_policy=autocast_policy)

    def setPartialsType(self, dtype: torch.dtype) -> "Precision":
        """Accepted without effect: sums are float32."""
        if dtype not in (torch.float32, torch.float16):
            raise ValueError(f"setPartialsType: {dtype} (expected torch.float32 or torch.float16)")
        return self._accept("setPartialsType", dtype)


class Distributed(_Group):
    """Options of several processes: options.Distributed."""

    def __init__(self) -> None:
        super().__init__()
        self._value_process_id, self._value_num_processes = 0, 1

    @property
    def processId(self) -> int:
        return self._value_process_id

    @property
    def numProcesses(self) -> int:
        return self._value_num_processes

    def configureProcessId(self, process_id: int, num_processes: int) -> "Distributed":
        """Which of how many processes this is: a loader gives each its part of the samples, and
        the gradients of an update are those of all."""
        count = _whole("configureProcessId", num_processes)
        if _whole("configureProcessId", process_id, 0) >= count:
            raise ValueError(f"configureProcessId: {process_id} of {count} processes (expected 0 "
                             f"to {count - 1})")
        return self._set(_value_process_id=process_id, _value_num_processes=count)

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> "Distributed":
        """Takes both numbers from the environment; they stay as they are without them."""
        given = os.environ.get(var_process_id), os.environ.get(var_num_processes)
        return self if None in given else self.configureProcessId(*map(int, given))

    def disable(self) -> "Distributed":
        """One process, whatever else was said."""
        return self._set(_value_process_id=0, _value_num_processes=1)


class TensorLocations(_Group):
    _inert = ("setActivationLocation", "setWeightLocation", "setOptimizerLocation",
              "setAccumulatorLocation", "numIOTiles")


class Jit(_Group):
    _inert = ()

    def traceModel(self, trace_model: bool) -> "Jit":
        """Accepted without effect; True is an error, as modules are exported."""
        if trace_model:
            raise ValueError("traceModel: True (expected False)")
        return self._accept("traceModel", trace_model)


class Popart(_Group):
    _inert = ("set", "setEngineOptions", "setPatterns")


class Options(_Group):
    """What a loader and a model are made with."""

    _inert = ("autoRoundNumIPUs", "useIpuModel", "useIpuId", "useOfflineIpuTarget",
              "syncPattern", "setAvailableMemoryProportion", "connectionType",
              "relaxOptimizerAttributesChecks", "logCycleCount",
              "enableStableNorm", "enableProfiling", "modelName",
              "logDir", "maxRepeatLogs", "sourceLocationExcludes", "appendToLocationExcludes",
              "updatableNamedBuffers", "disableModuleNamescope",
              "broadcastBuffers", "addCallback")

    def __init__(self) -> None:
        super().__init__()
        self.Training, self.Precision, self.Distributed = Training(), Precision(), Distributed()
        self.TensorLocations, self.Jit, self._Popart = TensorLocations(), Jit(), Popart()
        self._value_device_iterations = 1
        self._value_replication_factor = 1
        self._value_replica_grouping = (1, CommGroupType.Consecutive)
        self._value_execution_strategy: Execution = PipelinedExecution()
        self._value_synthetic_data = False
        self._value_output_mode = OutputMode.Default
        self._value_output_return_period = 1
        self._value_random_seed: int | None = None
        self._value_show_compilation_progress_bar = True
        self._value_cache_folder: str | None = os.environ.get("POPTORCH_CACHE_DIR") or None
        self._value_anchored_tensors: dict[str, tuple[str, OutputMode | None, int]] = {}
        given = os.environ.get("POPTORCH_DEFAULT_OPTIONS")
        if given:
            self.from_json(given)

    @property
    def device_iterations(self) -> int:
        return self._value_device_iterations

    @property
    def replication_factor(self) -> int:
        return self._value_replication_factor

    @property
    def replica_grouping(self) -> tuple[int, CommGroupType]:
        """How many replicas get the same input, and which."""
        return self._value_replica_grouping

    @property
    def input_slices(self) -> int:
        """Replicas, or groups of them, that get inputs of their own."""
        size, count = self._value_replica_grouping[0], self._value_replication_factor
        if count % size:
            raise ValueError(f"inputReplicaGrouping: groups of {size} of {count} replicas (expected "
                             "a divisor of Options.replicationFactor)")
        return count // size

    @property
    def execution_strategy(self) -> Execution:
        return self._value_execution_strategy

    @property
    def synthetic_data(self) -> bool:
        return self._value_synthetic_data

    @property
    def output_mode(self) -> OutputMode:
        return self._value_output_mode

    @property
    def random_seed(self) -> int | None:
        return self._value_random_seed

    @property
    def cache_folder(self) -> str | None:
        """The folder of compiled plans; None: there is none."""
        return self._value_cache_folder

    @property
    def anchored_tensors(self) -> dict[str, tuple[str, OutputMode | None, int]]:
        """{short name: (long name, mode or None for the outputs', period)}."""
        return self._value_anchored_tensors

    def deviceIterations(self, device_iterations: int) -> "Options":
        """Updates in training, or forward passes in inference, of one call."""
        return self._set(_value_device_iterations=_whole("deviceIterations",
                                                         device_iterations))

    def replicationFactor(self, replication_factor: int) -> "Options":
        """Copies of the model, each with its own part of the batch."""
        return self._set(_value_replication_factor=_whole("replicationFactor",
                                                          replication_factor))

    def inputReplicaGrouping(self, input_group_size: int, input_group_type: CommGroupType
                             ) -> "Options":
        """Groups of so many replicas get the same input: Consecutive ones, or Orthogonal ones
        (every Q-th of Q groups)."""
        kind = _one_of("inputReplicaGrouping", input_group_type, CommGroupType)
        size = _whole("inputReplicaGrouping", input_group_size)
        if kind is CommGroupType.All:
            raise ValueError("inputReplicaGrouping: CommGroupType.All (expected Consecutive, "
                             "Orthogonal or NoGrouping)")
        if kind is CommGroupType.NoGrouping:
            size, kind = 1, CommGroupType.Consecutive
        return self._set(_value_replica_grouping=(size, kind))

    def setExecutionStrategy(self, strategy: Execution) -> "Options":
        """How the blocks of a model follow each other."""
        if not isinstance(strategy, Execution):
            raise ValueError(f"setExecutionStrategy: {strategy!r} (expected "
                             "poptorch.PipelinedExecution, ShardedExecution, "
                             "SerialPhasedExecution or ParallelPhasedExecution)")
        return self._set(_value_execution_strategy=strategy)

    def enableSyntheticData(self, enabled: bool) -> "Options":
        """Calls compute with numbers drawn from a normal distribution, and whole numbers of 0,
        instead of their arguments."""
        return self._set(_value_synthetic_data=_flag("enableSyntheticData", enabled))

    def randomSeed(self, random_seed: int) -> "Options":
        """Seeds torch when a model takes the options."""
        return self._set(_value_random_seed=_whole("randomSeed", random_seed, 0))

    def enableExecutableCaching(self, path: str) -> "Options":
        """Keeps the plans of compiled models in a folder, and takes them from there."""
        folder = os.fspath(path)
        return self._set(_value_cache_folder=os.path.abspath(folder) if folder else None)

    def showCompilationProgressBar(self, show: bool | Callable[[int, int], Any] = True
                                   ) -> "Options":
        """A bar while a model is compiled, on a terminal and in a notebook; or a function that is
        called with (progress, total)."""
        return self._set(_value_show_compilation_progress_bar=show if callable(show) else _flag(
            "showCompilationProgressBar", show))

    def outputMode(self, output_mode: OutputMode, output_return_period: int | None = None
                   ) -> "Options":
        """Which micro-batches the outputs of a call hold."""
        mode = _one_of("outputMode", output_mode, OutputMode)
        return self._set(_value_output_mode=mode, _value_output_return_period=_period(
            mode, output_return_period))

    def defaultOutputMode(self) -> bool:
        return self._value_output_mode is OutputMode.Default

    def anchorTensor(self, short_name: str, long_name: str,
                     output_mode: OutputMode | None = None,
                     output_return_period: int | None = None,
                     anchor_mode: OutputMode | None = None,
                     anchor_return_period: int | None = None) -> None:
        """Makes a tensor available to getAnchoredTensor(short_name) after each call. Mode None:
        that of the outputs."""
        mode = output_mode if output_mode is not None else anchor_mode
        period = output_return_period if output_return_period is not None else \
            anchor_return_period
        if mode is not None:
            period = _period(_one_of("anchorTensor", mode, OutputMode), period)
        self._value_anchored_tensors[short_name] = (long_name, mode, period or 1)

    def clone(self) -> "Options":
        """A copy that can be changed."""
        return copy.deepcopy(self)

    def _freeze(self) -> None:
        for part in (self, *self.__dict__.values()):
            if isinstance(part, _Group):
                part.__dict__["_frozen"] = True

    def _resolved(self, training: bool) -> tuple[OutputMode, int]:
        """The mode of the outputs, and its period."""
        if self._value_output_mode is OutputMode.Default:
            return (OutputMode.Final if training else OutputMode.All), 1
        return self._value_output_mode, self._value_output_return_period

    def _apply(self, path: str, values: list[Any], named: dict[str, Any]) -> None:
        target: Any = self
        *groups, setter = path.split(".")
        for group in groups:
            target = getattr(target, group)
        getattr(target, setter)(*values, **named)

    def from_json(self, text: str) -> "Options":
        """Calls setters: {"deviceIterations": 4, "Training.gradientAccumulation": 8,
        "outputMode": ["OutputMode.EveryN", 2]}."""
        for path, given in json.loads(text).items():
            values = given if isinstance(given, list) else [given]
            self._apply(path, [_constant(value) if isinstance(value, str) else value
                               for value in values], {})
        return self

    def loadFromFile(self, filepath: str) -> "Options":
        """Calls setters, one a line: Training.gradientAccumulation(8)."""
        with open(filepath, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip() and not line.lstrip().startswith("#"):
                    self._call_line(filepath, number, line.strip())
        return self

    def _call_line(self, path: str, number: int, line: str) -> None:
        try:
            call = ast.parse(line, mode="eval").body
            if not isinstance(call, ast.Call):
                raise ValueError("expected a call such as deviceIterations(4)")
            self._apply(ast.unparse(call.func).removeprefix("options."),
                        [_literal(value) for value in call.args],
                        {word.arg or "": _literal(word.value) for word in call.keywords})
        except (SyntaxError, ValueError, AttributeError, TypeError) as problem:
            raise ConfigFileError(f"{type(problem).__name__} at line {number} of {path}: "
                                  f"{problem}\n> {line}") from problem

    def __repr__(self) -> str:
        return "Options(" + ", ".join(self._shown()) + ")"

    def toDict(self) -> dict[str, Any]:
        return dict(line.split("=", 1) for line in self._shown())


def _period(mode: OutputMode, period: int | None) -> int:
    if mode is OutputMode.EveryN and (not isinstance(period, int) or period < 1):
        raise AssertionError("EveryN needs output_return_period (expected a whole number, 1 or "
                             "more)")
    return period if mode is OutputMode.EveryN and period is not None else 1


def _constant(text: str) -> Any:
    """A member of an enumeration by its name, or the text."""
    kind, _, member = text.removeprefix("poptorch.").partition(".")
    found = getattr(enums, kind, None)
    return getattr(found, member) if found is not None and hasattr(found, member) else text


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Attribute):
        return _constant(ast.unparse(node))
    return ast.literal_eval(node)
