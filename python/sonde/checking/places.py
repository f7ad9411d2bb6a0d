"""Lines of the program: of a call that runs, of a function, of a module, of a node of the graph."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from . import graphs

SONDE = os.path.dirname(os.path.dirname(__file__))
OWN = (os.path.dirname(torch.__file__), SONDE)
# A check evaluates from here: what is further up the stack does not call the network.
_ENDS = tuple(os.path.join(os.path.dirname(__file__), name) for name in ("subject.py", "replay.py"))
_again: list[str] = []  # the line of an operation that is computed again


def here() -> str:
    """The line of the program that runs: "train.py:41", or "" if none does."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file in _ENDS:
            return _again[-1] if _again else ""
        if not file.startswith(OWN) and os.path.exists(file):
            return f"{os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@contextlib.contextmanager
def at(place: str) -> Iterator[None]:
    """What runs inside is an operation of that line."""
    _again.append(place)
    try:
        yield
    finally:
        _again.pop()


def of_function(function: Any) -> str:
    """The line of a definition."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_filename.startswith(OWN) or not os.path.exists(code.co_filename):
        return ""
    return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"


def of_module(model: nn.Module, name: str) -> str:
    """The line of the forward function of a module; of a layer of PyTorch: of what holds it."""
    while True:
        with contextlib.suppress(AttributeError):
            if found := of_function(type(model.get_submodule(name)).forward):
                return found
        if not name:
            return ""
        name = name.rpartition(".")[0]


class Lines(TorchFunctionMode):
    """Which line computed the nodes of a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[Any, str] = {}

    def __torch_function__(self, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                self._enter(value.grad_fn)
        return result

    def nearest(self, root: torch.Tensor) -> str:
        """The line of the last operation whose line is known."""
        return next((self.of[node] for node in graphs.nodes(root) if self.of.get(node)), "")

    def _enter(self, node: Any) -> None:
        """A function of PyTorch may have made several nodes: those behind it are of its line too."""
        place, below = here(), [node]
        while below and len(self.of) < 100000:
            one = below.pop()
            if one is not None and one not in self.of:
                self.of[one] = place
                below += [before for before, _ in one.next_functions]
