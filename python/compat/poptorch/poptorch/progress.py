"""What is shown while a model is compiled, and the log."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("poptorch")
_LEVELS = {"TRACE_ALL": 10, "TRACE": 10, "DEBUG_IR": 10, "DEBUG": 10, "INFO": 20, "WARN": 30,
           "ERR": 40, "OFF": 60}
_NUMBERS = ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF")  # those that older programs pass
_WIDTH = 10


def setLogLevel(level: str | int) -> None:
    """TRACE, DEBUG, INFO, WARN, ERR or OFF, or their numbers, 0 to 5."""
    if isinstance(level, int) and 0 <= level < len(_NUMBERS):
        level = _NUMBERS[level]
    if level not in _LEVELS:
        raise ValueError(f"setLogLevel: {level!r} (expected one of {', '.join(_LEVELS)})")
    _log.setLevel(_LEVELS[str(level)])


def heed_environment() -> None:
    """POPTORCH_LOG_LEVEL, the name of a level, and POPTORCH_LOG_DEST: stderr, stdout or a file."""
    level = os.environ.get("POPTORCH_LOG_LEVEL", "")
    place = os.environ.get("POPTORCH_LOG_DEST", "")
    if level in _LEVELS or place:
        setLogLevel(level if level in _LEVELS else "WARN")
        if not _log.handlers and (place or _LEVELS[level] < logging.WARNING):
            handler = logging.StreamHandler(sys.stdout) if place == "stdout" else \
                logging.FileHandler(place, delay=True) if place not in ("", "stderr") else \
                logging.StreamHandler()
            handler.setFormatter(logging.Formatter("[%(asctime)s] [poptorch] [%(levelname)s] "
                                                   "%(message)s", "%H:%M:%S"))
            _log.addHandler(handler)
            _log.propagate = False
    if level and level not in _LEVELS:
        _log.warning("POPTORCH_LOG_LEVEL is %r (expected one of %s)", level, ", ".join(_LEVELS))


class Bar:
    """The bar of compilation, on standard error where a person looks at it: a terminal or a
    notebook."""

    def __init__(self, shown: bool | Callable[[int, int], Any]):
        self.begun = time.monotonic()
        self.call = shown if callable(shown) else None
        self.shown = shown is True and sys.stderr is not None and (
            sys.stderr.isatty() or "ipykernel" in sys.modules)

    def show(self, done: int) -> None:
        """done: of 100. 100 ends the line."""
        if self.call is not None:
            self.call(done, 100)
        if not self.shown:
            return
        full = "█" * (done * _WIDTH // 100)
        spent = int(time.monotonic() - self.begun)
        sys.stderr.write(f"\rGraph compilation: {done:3d}%|{full:{_WIDTH}}| {done}/100 "
                         f"[{spent // 60:02d}:{spent % 60:02d}]" + "\n" * (done == 100))
        sys.stderr.flush()

    def seconds(self) -> float:
        return time.monotonic() - self.begun
