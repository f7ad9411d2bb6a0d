"""Whether trials read what is new at every question."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any


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
