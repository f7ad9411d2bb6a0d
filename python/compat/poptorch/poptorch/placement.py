"""Where parts of a model run: blocks and stages, which the engine trains as a pipeline; phases and
what is said of devices, which are accepted and keep what they are given.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import torch

from . import ops
from .enums import AutoStage, Liveness


# how a training session of the engine runs its blocks
PIPELINED, SHARDED, SEQUENTIAL = 0, 1, 2


class Block:
    """A part of the model. Training on the engine, blocks are the stages of a pipeline."""

    def __init__(self, user_id: str | None = None, ipu_id: int | None = None):
        self.user_id, self.ipu_id = user_id, ipu_id

    def __enter__(self) -> "Block":
        ops.begin_block(self.user_id, self.ipu_id)
        return self

    def __exit__(self, *rest: object) -> None:
        pass

    @staticmethod
    def start(user_id: str | None = None, ipu_id: int | None = None) -> None:
        """What follows belongs to the block, until another begins."""
        ops.begin_block(user_id, ipu_id)

    @staticmethod
    def useAutoId() -> None:
        """Nothing: blocks without an id are numbered anyway."""


def BlockFunction(user_id: str | None = None, ipu_id: int | None = None) -> Callable[[Any], Any]:
    """A function that is a block."""
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)
        return run
    return decorate


def BeginBlock(layer_to_call: Any, user_id: str | None = None, ipu_id: int | None = None) -> Any:
    """A block begins when this module is called, and ends where the next begins."""
    if not isinstance(layer_to_call, torch.nn.Module):
        return BlockFunction(user_id, ipu_id)(layer_to_call)
    if getattr(layer_to_call, "_poptorch_block", None) is not None:
        raise ValueError("module has already been assigned to a block.")
    layer_to_call._poptorch_block = (user_id, ipu_id)
    return layer_to_call


@contextlib.contextmanager
def begun(model: torch.nn.Module) -> Iterator[None]:
    """While a model is exported: modules of BeginBlock begin their blocks."""
    handles = []
    for module in model.modules():
        block = getattr(module, "_poptorch_block", None)
        if block is not None:
            handles.append(module.register_forward_pre_hook(
                lambda module, args, block=block: ops.begin_block(*block)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def removeBlocks(module: torch.nn.Module) -> None:
    for inner in module.modules():
        inner.__dict__.pop("_poptorch_block", None)


class NameScope:
    """Part of the names of ops on an IPU; names here are those of modules."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> "NameScope":
        return self

    def __exit__(self, *rest: object) -> None:
        pass


class Stage:
    """Blocks that one device runs."""

    def __init__(self, *block_ids: str):
        self.blocks, self._ipu = block_ids, -1

    def ipu(self, ipu: int) -> "Stage":
        self._ipu = ipu
        return self


class Phase:
    """Stages that run at the same time."""

    def __init__(self, *arg: Any):
        self.stages = [Stage(one) if isinstance(one, str) else one for one in arg]

    def stage(self, index: int) -> Stage:
        return self.stages[index]

    def ipus(self, *ipus: int) -> "Phase":
        for stage, ipu in zip(self.stages, ipus):
            stage.ipu(ipu)
        return self


class Execution:
    """Which blocks are a stage, and how stages follow each other."""

    engine_kind = SEQUENTIAL

    def __init__(self, *args: Any):
        self.parts = list(args)
        self.automatic = AutoStage.SameAsIpu
        self._stages: dict[str, Stage] = {}
        for one in args:
            if isinstance(one, AutoStage):
                self.automatic = one
            else:
                for stage in one.stages if isinstance(one, Phase) else [one]:
                    self._add(stage if isinstance(stage, Stage) else Stage(*_several(stage)))

    def _add(self, stage: Stage) -> None:
        for block in map(str, stage.blocks):
            if block in self._stages:
                raise AssertionError(f"the block {block} is in two stages")
            self._stages[block] = stage

    def stage(self, block_id: str) -> Stage:
        if self._stages and str(block_id) not in self._stages:
            raise AssertionError(self._unknown(block_id))
        return self._stages.get(str(block_id)) or Stage(str(block_id))

    def phase(self, phase: int) -> Phase:
        found = self.parts[phase]
        return found if isinstance(found, Phase) else Phase(*_several(found))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._stages) or self.automatic.name})"

    def _unknown(self, block_id: str) -> str:
        return f"Unknown Block '{block_id}' list of expected Blocks: {', '.join(self._stages)}"

    def name_of_stage(self, user_id: str, ipu_id: int | None) -> str:
        """The stage that a block belongs to."""
        if self._stages:
            if user_id not in self._stages:
                raise ops.Error(self._unknown(user_id))
            stage = self._stages[user_id]
            return f"ipu{stage._ipu}" if stage._ipu >= 0 else str(stage.blocks[0])
        if ipu_id is not None and self.automatic is AutoStage.SameAsIpu:
            return f"ipu{ipu_id}"
        return user_id


def _several(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


class PipelinedExecution(Execution):
    """Several micro-batches at once, each in another stage."""

    engine_kind = PIPELINED


class ShardedExecution(PipelinedExecution):
    """Each stage on a thread of its own, one at a time."""

    engine_kind = SHARDED


class _Phased(Execution):
    """Phases follow each other, which is what one processor does."""

    def useSeparateBackwardPhase(self, use: bool = True) -> "_Phased":
        return self

    def setTensorsLiveness(self, liveness: Liveness) -> "_Phased":
        return self


class SerialPhasedExecution(_Phased):
    pass


class ParallelPhasedExecution(_Phased):
    def sendCrossPhase(self, enable: bool = True) -> "ParallelPhasedExecution":
        return self


class _Chained:
    """Setters that are accepted without effect, and can be chained."""

    _setters: tuple[str, ...] = ()

    def __init__(self, **given: Any):
        self.given = given

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self._setters:
            raise AttributeError(f"{type(self).__name__} has no '{name}' (expected "
                                 f"{', '.join(self._setters)})")

        def accept(*values: Any) -> Any:
            self.given[name] = values
            return self

        return accept


class TensorLocationSettings(_Chained):
    """Where tensors of an IPU are kept."""

    _setters = ("minElementsForOffChip", "minElementsForReplicatedTensorSharding",
                "useOnChipStorage", "useReplicatedTensorSharding", "useIOTilesToLoad",
                "useIOTilesToStore")


class MultiConv(_Chained):
    """Convolutions of an IPU that run at the same time; here, one after another."""

    _setters = ("availableMemoryProportions", "partialsTypes", "planType",
                "perConvReservedTiles", "cycleBackOff", "enableConvDithering")

    def __enter__(self) -> "MultiConv":
        return self

    def __exit__(self, *rest: object) -> None:
        pass


class MultiConvPlanType(Enum):
    Parallel = 0
    Serial = 1


class MatMulSerializationMode(Enum):
    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class OverlapMode(Enum):
    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


class HalfFloatCastingBehavior(Enum):
    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class VariableRetrievalMode(Enum):
    OnePerGroup = 0
    AllReplicas = 2
