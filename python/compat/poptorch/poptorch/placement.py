"""Where parts of a model run: names for devices, stages and phases, which have no meaning on one
processor. They are accepted, and keep what they are given.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import torch

from .enums import AutoStage, Liveness


class Block:
    """A part of the model: one device runs all of them here."""

    def __init__(self, user_id: str | None = None, ipu_id: int | None = None):
        self.user_id, self.ipu_id = user_id, ipu_id

    def __enter__(self) -> "Block":
        return self

    def __exit__(self, *rest: object) -> None:
        pass

    @staticmethod
    def start(user_id: str | None = None, ipu_id: int | None = None) -> None:
        pass

    @staticmethod
    def useAutoId() -> None:
        pass


def BlockFunction(user_id: str | None = None, ipu_id: int | None = None) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        return function
    return decorate


def BeginBlock(layer_to_call: Any, user_id: str | None = None, ipu_id: int | None = None) -> Any:
    if getattr(layer_to_call, "_poptorch_block", False):
        raise ValueError("module has already been assigned to a block.")
    layer_to_call._poptorch_block = True
    return layer_to_call


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


class _Execution:
    """How stages follow each other: here, one after another."""

    def __init__(self, *args: Any):
        self.parts = [AutoStage.SameAsIpu] if not args else list(args)
        self._stages: dict[str, Stage] = {}
        for one in args:
            if isinstance(one, Stage):
                self._stages.update(dict.fromkeys(one.blocks, one))

    def stage(self, block_id: str) -> Stage:
        return self._stages.setdefault(str(block_id), Stage(str(block_id)))

    def phase(self, phase: int) -> Phase:
        found = self.parts[phase]
        return found if isinstance(found, Phase) else Phase(*(
            found if isinstance(found, (list, tuple)) else [found]))


class PipelinedExecution(_Execution):
    pass


class ShardedExecution(PipelinedExecution):
    pass


class _Phased(_Execution):
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
