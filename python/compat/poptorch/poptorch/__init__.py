"""poptorch's names on Sonde: programs written for it run as they stand, on the processor.

    import poptorch
    options = poptorch.Options().deviceIterations(4)
    options.anchorTensor("grad_bias", "Gradient___model.fc2.bias")
    training = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), 0.01))
    output, loss = training(data, labels)
    training.getAnchoredTensor("grad_bias")

docs/poptorch.md lists what is different and what is left out.
"""

from . import optim
from .enums import (AnchorMode, AutoStage, CommGroupType, ConnectionType, DataLoaderMode, Liveness,
                    MeanReductionStrategy, OutputMode, ReductionType, SyncPattern)
from .executor import Error, PoplarExecutor, inferenceModel, trainingModel
from .loader import DataLoader
from .ops import (BeginBlock, Block, BlockFunction, identity_loss, ipu_print_tensor,
                  isRunningOnIpu, nop, recomputationCheckpoint, removeBlocks, serializedMatMul,
                  set_available_memory)
from .options import ConfigFileError, Options
from .progress import heed_environment, setLogLevel
from .saving import load

__version__ = "3.3.0"  # whose interface this is
__all__ = ["AnchorMode", "AutoStage", "BeginBlock", "Block", "BlockFunction", "CommGroupType",
           "ConfigFileError", "ConnectionType", "DataLoader", "DataLoaderMode", "Error",
           "Liveness", "MeanReductionStrategy", "Options", "OutputMode", "PoplarExecutor",
           "ReductionType", "SyncPattern", "identity_loss", "inferenceModel", "ipu_print_tensor",
           "isRunningOnIpu", "load", "nop", "optim", "recomputationCheckpoint", "removeBlocks",
           "serializedMatMul", "setLogLevel", "set_available_memory", "trainingModel"]


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """There are no IPUs here."""
    return False


heed_environment()
