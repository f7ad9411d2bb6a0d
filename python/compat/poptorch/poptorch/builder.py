"""What the functions that translate PyTorch's ops are made of.

A function takes the arguments of the op, with Values for tensors, and returns a Value. Lacks says
that the engine cannot do it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch


class Lacks(Exception):
    """The engine cannot do an op."""


class Missing(Exception):
    """What of a module the engine lacks: (what, line of the user's code)."""

    def __init__(self, parts: Iterable[tuple[str, str]]):
        self.parts = list(dict.fromkeys(parts))
        super().__init__("; ".join(f"{what} ({line})" if line else what
                                   for what, line in self.parts))


class Value(NamedTuple):
    """A tensor of the graph that is built."""

    id: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    trained: bool  # a trained parameter leads to it


class Builder:
    """What the functions below build with: `add(kind, values, settings)`."""

    training: bool
    ignores = False  # labels may be the negative ignore_index

    def add(self, kind: str, values: Sequence[Value], settings: dict[str, Any],
            dtype: torch.dtype = torch.float32) -> Value:
        raise NotImplementedError

    def do(self, kind: str, *values: Value, **settings: Any) -> Value:
        """An op over float32 tensors."""
        for value in values:
            if value.dtype is not torch.float32:
                raise Lacks(f"{short(value.dtype)} (expected float32)")
        return self.add(kind, values, settings)

    def constant(self, tensor: torch.Tensor) -> Value:
        """A tensor that the graph keeps."""
        raise NotImplementedError

    def kept(self, x: Value) -> torch.Tensor | None:
        """The tensor of a constant; None: x is none."""
        raise NotImplementedError

    def show(self, value: Value, title: str, gradient: bool, layout: tuple[Any, ...]) -> Value:
        raise NotImplementedError

    def mark_loss(self, value: Value) -> Value:
        raise NotImplementedError

    def begin_block(self, name: str, ipu: int | None) -> None:
        raise NotImplementedError

    # --- shapes, of any dtype -------------------------------------------------------------

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        wanted = [int(n) for n in shape]
        if -1 in wanted:
            rest = math.prod(n for n in wanted if n != -1)
            wanted[wanted.index(-1)] = math.prod(x.shape) // rest
        if tuple(wanted) == x.shape:
            return x
        return self.add("reshape", [x], {"shape": tuple(wanted)} if wanted else {}, x.dtype)

    def permute(self, x: Value, dims: Sequence[int]) -> Value:
        places = [axis(dim, len(x.shape)) for dim in dims]
        if places == list(range(len(x.shape))):
            return x
        return self.add("permute", [x], {"dims": tuple(places)}, x.dtype)

    def full(self, shape: Sequence[int], value: float) -> Value:
        settings: dict[str, Any] = {"value": float(value)}
        if len(shape):
            settings["shape"] = tuple(int(n) for n in shape)
        return self.add("fill", [], settings)

    def tensor(self, x: Any) -> Value:
        """A number as a tensor without dimensions."""
        if isinstance(x, Value):
            return x
        if isinstance(x, (int, float)):
            return self.full((), x)
        raise Lacks(f"an argument of type {type(x).__name__}")

    def cast(self, x: Value, dtype: torch.dtype) -> Value:
        dtype = wide(dtype)
        if dtype is x.dtype:
            return x
        expect(dtype in _DTYPES and x.dtype in _DTYPES, f"a conversion to {dtype}")
        made = self.add("to", [x], {"dtype": _DTYPES[dtype]}, dtype)
        return made._replace(trained=x.trained and dtype is torch.float32)

    def scaled(self, x: Value, factor: float) -> Value:
        return x if factor == 1 else self.do("scale", x, value=float(factor))


HALVES = (torch.bfloat16, torch.float16)
_DTYPES = {torch.float32: "float32", torch.int64: "int64", torch.bool: "bool"}
Function = Callable[..., Any]
OPS: dict[str, Function] = {}


def op(*names: str) -> Callable[[Function], Function]:
    """The function for ATen ops: "relu" for all overloads, or "pow.Tensor_Scalar"."""
    def register(function: Function) -> Function:
        OPS.update(dict.fromkeys(names, function))
        return function
    return register


def find(target: Any) -> Function | None:
    """The function for a node's target; None: there is none."""
    if not isinstance(target, torch._ops.OpOverload):
        return OPS.get(getattr(target, "__name__", ""))
    name = target._schema.name.removeprefix("aten::")
    return OPS.get(f"{name}.{target._overloadname}") or OPS.get(name)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype that a Value has: float32 for 16 bits, which the engine chooses by itself in
    products."""
    return torch.float32 if dtype in HALVES else dtype


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def axis(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def pair(given: Any) -> tuple[int, int]:
    values = list(given) if isinstance(given, (list, tuple)) else [given]
    return int(values[0]), int(values[-1])


def expect(good: bool, what: str) -> None:
    if not good:
        raise Lacks(what)


def plain_dtype(dtype: Any) -> None:
    expect(dtype in (None, torch.float32, *HALVES), f"dtype={dtype}")
