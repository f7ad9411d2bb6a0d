"""poptorch's enumerations, with its numbers."""

from enum import Enum, IntEnum


class OutputMode(IntEnum):
    """Which micro-batches of a call come back."""

    Final = 0  # the last one, of each replica
    EveryN = 1  # every N-th
    All = 2
    Sum = 3  # their sum, of each replica
    Default = 4  # Final in training, All in inference


AnchorMode = OutputMode


class DataLoaderMode(Enum):
    Sync = 0
    Async = 1
    AsyncRebatched = 2


class ReductionType(Enum):
    Sum = 0
    Mean = 1


class MeanReductionStrategy(Enum):
    Running = 0
    Post = 1
    PostAndLoss = 2


class ConnectionType(Enum):
    Always = 0
    OnDemand = 1
    Never = 2


class CommGroupType(Enum):
    All = 0
    Consecutive = 1
    Orthogonal = 2
    NoGrouping = 3


class SyncPattern(Enum):
    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class Liveness(Enum):
    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class AutoStage(Enum):
    SameAsIpu = 0
    AutoIncrement = 1


class SharingStrategy(Enum):
    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class MultiConvPartialsType(Enum):
    Float = 0
    Half = 1
