"""poptorch's names on Sonde: programs written for it run as they stand, on the processor.

    import poptorch
    options = poptorch.Options().deviceIterations(4)
    options.anchorTensor("grad_bias", "Gradient___model.fc2.bias")
    training = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), 0.01))
    output, loss = training(data, labels)
    training.getAnchoredTensor("grad_bias")

docs/poptorch.md lists what is different and what is left out.
"""

from . import autocasting, optim, profiling
from .accessor import AsynchronousDataAccessor
from .autocasting import autocast
from .custom_args import ICustomArgParser, registerCustomArgParser
from .enums import (AnchorMode, AutoStage, CommGroupType, ConnectionType, DataLoaderMode, Liveness,
                    MeanReductionStrategy, MultiConvPartialsType, OutputMode, ReductionType,
                    SharingStrategy, SyncPattern)
from .executor import Error, PoplarExecutor, inferenceModel, trainingModel
from .loader import DataLoader
from .ops import (CPU, RecoverableError, UnrecoverableError, UnusableError, cond,
                  ctc_beam_search_decoder, custom_op, dynamic_slice, dynamic_update, for_loop,
                  identity_loss, ipu_print_tensor, isRunningOnIpu, nop, recomputationCheckpoint,
                  serializedMatMul, set_available_memory, set_overlap_for_input,
                  set_overlap_for_output)
from .options import ConfigFileError, Options
from .placement import (BeginBlock, Block, BlockFunction, HalfFloatCastingBehavior,
                        MatMulSerializationMode, MultiConv, MultiConvPlanType, NameScope,
                        OverlapMode, ParallelPhasedExecution, Phase, PipelinedExecution,
                        SerialPhasedExecution, ShardedExecution, Stage, TensorLocationSettings,
                        VariableRetrievalMode, removeBlocks)
from .progress import heed_environment, setLogLevel
from .saving import load

__version__ = "3.3.0"  # whose interface this is
__all__ = ["AnchorMode", "AsynchronousDataAccessor", "AutoStage", "BeginBlock", "Block",
           "BlockFunction", "CPU", "CommGroupType", "ConfigFileError", "ConnectionType",
           "DataLoader", "DataLoaderMode", "Error", "HalfFloatCastingBehavior",
           "ICustomArgParser", "Liveness", "MatMulSerializationMode",
           "MeanReductionStrategy", "MultiConv", "MultiConvPartialsType",
           "MultiConvPlanType", "NameScope", "Options", "OutputMode", "OverlapMode",
           "ParallelPhasedExecution", "Phase", "PipelinedExecution", "PoplarExecutor",
           "RecoverableError", "ReductionType", "SerialPhasedExecution",
           "ShardedExecution", "SharingStrategy", "Stage", "SyncPattern",
           "TensorLocationSettings", "UnrecoverableError", "UnusableError",
           "VariableRetrievalMode", "autocast", "autocasting", "cond",
           "ctc_beam_search_decoder", "custom_op", "dynamic_slice", "dynamic_update",
           "for_loop", "identity_loss", "inferenceModel", "ipuHardwareIsAvailable",
           "ipuHardwareVersion", "ipu_print_tensor", "isRunningOnIpu", "load", "nop",
           "optim", "profiling", "recomputationCheckpoint", "registerCustomArgParser",
           "removeBlocks", "serializedMatMul", "setLogLevel", "set_available_memory",
           "set_overlap_for_input", "set_overlap_for_output", "trainingModel"]


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """There are no IPUs here."""
    return False


def ipuHardwareVersion() -> int:
    """0: there are no IPUs here."""
    return 0


heed_environment()
