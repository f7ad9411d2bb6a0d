"""Batches of one size out of batches of any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def _like(sample: Any, values: list[Any]) -> Any:
    """A tuple, named tuple or list of the same kind."""
    return type(sample)(*values) if hasattr(sample, "_fields") else type(sample)(values)


def _sizes(batch: Any, most: int) -> tuple[Any, Any]:
    """The first samples of a batch, at most so many, and the others (None: there are none)."""
    if torch.is_tensor(batch):
        return batch[:most], batch[most:] if len(batch) > most else None
    if isinstance(batch, dict):
        parts = {key: _sizes(value, most) for key, value in batch.items()}
        first = {key: part[0] for key, part in parts.items()}
        rest = {key: part[1] for key, part in parts.items()}
        return first, None if any(part is None for part in rest.values()) else rest
    if isinstance(batch, (tuple, list)):
        pairs = [_sizes(value, most) for value in batch]
        others = [part[1] for part in pairs]
        return _like(batch, [part[0] for part in pairs]), \
            None if any(part is None for part in others) else _like(batch, others)
    raise ValueError(f"samples: {type(batch).__name__} (expected tensors, or tuples, lists or "
                     "dicts of tensors, to join batches of)")


def _count(batch: Any) -> int:
    """Samples of a batch."""
    while not torch.is_tensor(batch):
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return len(batch)


def _cat(batches: list[Any]) -> Any:
    """Batches as one."""
    first = batches[0]
    if torch.is_tensor(first):
        return torch.cat(batches)
    if isinstance(first, dict):
        return {key: _cat([batch[key] for batch in batches]) for key in first}
    return _like(first, [_cat(list(parts)) for parts in zip(*batches)])


def rebatch(batches: Any, size: int, whole: bool) -> Iterator[Any]:
    """Batches of that size out of batches of any; with whole, no smaller last one."""
    held: list[Any] = []
    count = 0
    for batch in batches:
        rest = batch
        while rest is not None:
            first, rest = _sizes(rest, size - count)
            held, count = held + [first], count + _count(first)
            if count == size:
                yield _cat(held)
                held, count = [], 0
    if held and not whole:
        yield _cat(held)
