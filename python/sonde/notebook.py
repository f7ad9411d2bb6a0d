"""%load_ext sonde: in a notebook, what its cells train is watched.

    %sonde          prints the state of the watch and its findings
    %sonde close    ends the watch, with its verdict; the next training has one of its own
"""

from __future__ import annotations

from typing import Any

from . import _sonde
from .automatic import Automatic

_loaded: Automatic | None = None


def load(shell: Any) -> None:
    global _loaded
    if _loaded is not None:
        return
    _loaded = Automatic()
    _loaded.start()
    shell.register_magic_function(magic, magic_kind="line", magic_name="sonde")


def unload() -> None:
    global _loaded
    if _loaded is not None:
        _loaded.remove()
        if _loaded.watch is not None:
            _loaded.watch.close()
        _loaded = None


def magic(line: str) -> None:
    """The state of the watch; or %sonde close."""
    word = line.strip()
    if word not in ("", "close"):
        raise _sonde.BadValueError(f"%sonde: '{word}' (expected close, or nothing)")
    watch = _loaded.watch if _loaded is not None else None
    if _loaded is None or watch is None or watch.closed:
        print("no watch: " + ("%load_ext sonde begins one" if _loaded is None else
                              "cells call sonde.watch" if _loaded.aside else
                              "no cell has trained a model"))
    elif word == "close":
        _loaded.end(watch)
    else:
        steps = watch.step + 1
        print(f"watched: {', '.join(_loaded.models)}; {steps} step{'s' * (steps != 1)}; "
              f"{len(watch.findings)} findings")
        for finding in watch.findings:
            print(finding)
