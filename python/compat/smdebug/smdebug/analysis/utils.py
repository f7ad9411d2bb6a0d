"""Whether trials read what is new at every question; parameters of rules, which are texts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from ..exceptions import SMDebugValueError


@contextlib.contextmanager
def _refreshing(trials: Any, on: bool) -> Iterator[None]:
    chosen = list(trials) if isinstance(trials, Iterable) else [trials]
    before = [trial.dynamic_refresh for trial in chosen]
    for trial in chosen:
        trial.dynamic_refresh = on
    try:
        yield
    finally:
        for trial, state in zip(chosen, before):
            trial.dynamic_refresh = state


def no_refresh(trials: Any) -> Any:
    """Inside, the trials stay as they are."""
    return _refreshing(trials, False)


def refresh(trials: Any) -> Any:
    """Inside no_refresh: here they read what is new again."""
    return _refreshing(trials, True)


def parse_list_from_str(arg: str | list[str] | None, delimiter: str = ",") -> list[str]:
    """"a, b" as a list; None and "" as an empty one."""
    if arg is None or isinstance(arg, list):
        return arg or []
    return [part.strip() for part in arg.split(delimiter) if part.strip()]


def parse_bool(arg: str | bool | None, default: bool = False) -> bool:
    """"True" and "False" in any case of letters; None and "": default."""
    if arg is None or arg == "":
        return default
    if isinstance(arg, bool):
        return arg
    if arg.strip().lower() not in ("true", "false"):
        raise SMDebugValueError(f"'{arg}' (expected True or False)")
    return arg.strip().lower() == "true"
