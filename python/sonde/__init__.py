"""See every tensor of a neural network while it trains, and find the one that went wrong first.

    import sonde
    watch = sonde.watch(model, optimizer, run="runs/first")     # nothing else changes
    for x, y in loader: ...

    run = sonde.open("runs/first")
    run.series("gradient/fc1.weight", "l2")
    run.findings()

    sonde.check(model, loss_fn, (x, y), optimizer)              # before it trains
"""

from typing import TYPE_CHECKING, Any

from . import sinks
from ._sonde import BadValueError, NotFoundError, SondeError, StateError, StorageError
from .reading import Frame, Run, TensorInfo, open
from .records import Finding, FindingError, Vitals
from .rules import Rule
from .watching import Watch, watch

if TYPE_CHECKING:
    from .checking import check

__version__ = "0.1.0"
__all__ = ["BadValueError", "Finding", "FindingError", "Frame", "NotFoundError", "Rule", "Run",
           "SondeError", "StateError", "StorageError", "TensorInfo", "Vitals", "Watch", "check",
           "open", "sinks", "watch"]


def __getattr__(name: str) -> Any:
    """check needs PyTorch, which the rest of the package does not import by itself."""
    if name == "check":
        from .checking import check
        return check
    raise AttributeError(f"module 'sonde' has no attribute {name!r}")


def load_ipython_extension(shell: object) -> None:
    """%load_ext sonde: what the cells of a notebook train is watched."""
    from .notebook import load
    load(shell)


def unload_ipython_extension(shell: object) -> None:
    """%unload_ext sonde."""
    from .notebook import unload
    unload()
