"""Lines of the user's source."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from typing import Any

import torch

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_DEVICE = os.path.join(_OWN, "device.py")  # computes with PyTorch, which is not the program's
_OPTIM = os.path.join(_TORCH, "optim") + os.sep
_LIBRARIES = tuple({os.path.join(path, "") for key, path in sysconfig.get_paths().items()
                    if key in ("stdlib", "platstdlib", "purelib", "platlib")})

INSIDE, OPTIMIZER, LIBRARY, USER = range(4)

Place = tuple[str, int]
NOWHERE: Place = ("", 0)


class Finder:
    """Finds the line of the user's that the program is at. What is known of a code object stays
    known; code objects are kept while the finder is."""

    def __init__(self) -> None:
        self.kinds: dict[Any, tuple[int, str]] = {}  # with the path of its file

    def here(self, frame: Any = None) -> Place | None:
        """The innermost line outside of PyTorch, libraries and the standard library; if there is
        none, of PyTorch alone. None: an optimizer of PyTorch's is at work, or the watch."""
        frame = frame or sys._getframe(1)
        kinds, nearest = self.kinds, None
        while frame is not None:
            code = frame.f_code
            found = kinds.get(code)
            if found is None:
                kinds[code] = found = _kind(code.co_filename), _path(code.co_filename)
            kind = found[0]
            if kind == USER:
                return found[1], frame.f_lineno
            if kind and nearest is None:
                if kind == OPTIMIZER:
                    return None
                nearest = found[1], frame.f_lineno
            frame = frame.f_back
        return nearest or NOWHERE


@functools.cache
def _path(name: str) -> str:
    """As it is, if it is no file: <stdin>, <ipython-input-1>."""
    return name if name.startswith("<") else os.path.abspath(name)


@functools.cache
def _kind(name: str) -> int:
    if name.startswith("<frozen") or name.startswith("<__array_function__"):
        return INSIDE
    if name.startswith("<"):
        return USER
    name = os.path.abspath(name)
    if name.startswith(_OPTIM) or name == _DEVICE:
        return OPTIMIZER
    if name.startswith((_OWN, _TORCH)):
        return INSIDE
    return LIBRARY if name.startswith(_LIBRARIES) else USER


def is_user(name: str) -> bool:
    """Whether a file is the program's own."""
    return _kind(name) == USER


def root() -> str:
    """The folder of the program that runs."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.dirname(os.path.abspath(file)) if file else os.getcwd()
