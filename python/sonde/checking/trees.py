"""Tensors in the nested lists, tuples and mappings that a network takes and returns."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree

_DEPTH, _WIDE = 5, 10000  # of objects in which tensors are searched


def is_number(value: Any) -> bool:
    """Whether it is a tensor of numbers, dense and on a device."""
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and \
        value.device.type != "meta"


def leaves(tree: Any) -> list[Any]:
    return _pytree.tree_flatten(tree)[0]


def named(tree: Any, name: str = "", depth: int = _DEPTH) -> list[tuple[str, torch.Tensor]]:
    """The dense tensors of a tree with their keys, in order: in objects of the program's own
    classes too."""
    if is_number(tree):
        return [(name or "input", tree)]
    if isinstance(tree, Mapping):
        items = [(str(key), one) for key, one in tree.items()]
    elif isinstance(tree, (list, tuple)):
        items = [(f"{name}{number}" if name else str(number), one)
                 for number, one in enumerate(tree)]
    elif isinstance(tree, (torch.nn.Module, type)) or callable(tree):
        return []
    else:
        items = list(getattr(tree, "__dict__", {}).items())
    if not depth or len(items) > _WIDE:
        return []
    return [pair for key, one in items for pair in named(one, key, depth - 1)]


def tensors(tree: Any) -> list[torch.Tensor]:
    """The dense tensors of a tree, in order."""
    return [value for _, value in named(tree)]


def floats(tree: Any) -> list[torch.Tensor]:
    return [one for one in tensors(tree) if one.is_floating_point()]


def within(value: Any, depth: int = 3) -> list[torch.Tensor]:
    """All tensors in what a network returns, sparse ones too."""
    found: list[torch.Tensor] = []
    for leaf in leaves(value):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif depth and not isinstance(leaf, (torch.nn.Module, type)) and hasattr(leaf, "__dict__") and \
                not callable(leaf):
            for one in vars(leaf).values():
                found += within(one, depth - 1)
    return found


def change(tree: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """The same tree with function(tensor) for each dense tensor."""
    flat, form = _pytree.tree_flatten(tree)
    every = tensors(tree)
    if [id(one) for one in flat if is_number(one)] == [id(one) for one in every]:
        return _pytree.tree_unflatten([function(x) if is_number(x) else x for x in flat], form)
    return copy.deepcopy(tree, {id(one): function(one) for one in every})  # has other objects


def replace(tree: Any, values: Sequence[torch.Tensor]) -> Any:
    """The same tree with other tensors, in the order of tensors()."""
    rest = iter(values)
    return change(tree, lambda _: next(rest))


def detached(tree: Any) -> Any:
    """A copy that shares nothing with the program and has no graph."""
    return change(tree, lambda x: x.detach().clone().requires_grad_(x.requires_grad))


def other_values(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Values of the same kind: of the same range, and different if the tensor's values differ."""
    if value.numel() == 0:
        return value.detach().clone()
    if value.dtype == torch.bool:
        return ~value
    if value.is_complex():
        return value.detach() * 1.5 + 0.5
    if value.is_floating_point():
        return _other_floats(value.detach(), generator)
    return _other_integers(value.detach(), generator)


def _other_integers(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Integers of the same range; one negative value beside others, such as -100, means that
    nothing is there, and stays."""
    free = value >= 0
    if len(torch.unique(value[~free])) != 1 or not bool(free.any()):
        free = torch.ones_like(value, dtype=torch.bool)
    low, high = int(value[free].min()), int(value[free].max())
    if high == low:
        return value.clone()
    step = torch.randint(1, high - low + 1, value.shape, generator=generator).to(value.device)
    other = ((value - low + step) % (high - low + 1) + low).to(value.dtype)
    return torch.where(free, other, value)


def _other_floats(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Floats that keep within the range of the values, as probabilities and pictures must."""
    finite = value[torch.isfinite(value)].double()
    if finite.numel() == 0:
        return value.clone()
    low, high = float(finite.min()), float(finite.max())
    if high == low:
        low, high = low - 0.5 * abs(low) - 0.1, high + 0.5 * abs(high) + 0.1
    random = torch.rand(value.shape, generator=generator, dtype=torch.float64)
    return (low + random * (high - low)).to(value.device, value.dtype)


def difference(one: torch.Tensor, two: torch.Tensor) -> float:
    """The largest absolute difference; inf where the shapes or the places of NaN differ."""
    if one.shape != two.shape:
        return float("inf")
    if one.numel() == 0 or torch.equal(one, two):
        return 0.0
    kind = torch.complex128 if one.is_complex() else torch.float64
    gap = (one.detach().to(kind) - two.detach().to(kind)).abs()
    both = torch.isnan(one) & torch.isnan(two) | (one == two)
    gap = torch.where(both, torch.zeros_like(gap), gap)
    return float("inf") if bool(torch.isnan(gap).any()) else float(gap.max())


def size(value: torch.Tensor) -> float:
    """The largest absolute finite value."""
    finite = value.detach()[torch.isfinite(value.detach())]
    return float(finite.abs().max()) if finite.numel() else 0.0
