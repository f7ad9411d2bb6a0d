"""PyTorch's ops as the engine's: arithmetic, reductions and shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .builder import Builder, Lacks, Value, axis, expect, op, plain_dtype, short


# --- arithmetic -----------------------------------------------------------------------------------


def floats(b: Builder, x: Any, y: Any) -> tuple[Value, Value]:
    """Both as tensors; beside one of float32 the other becomes that."""
    x, y = b.tensor(x), b.tensor(y)
    if torch.float32 in (x.dtype, y.dtype):
        return b.cast(x, torch.float32), b.cast(y, torch.float32)
    return x, y


@op("add", "add_")
def add(b: Builder, x: Any, y: Any, *, alpha: float = 1) -> Value:
    if not isinstance(y, Value):
        y, alpha = y * alpha, 1
    x, y = floats(b, x, y)
    return b.do("add", x, b.scaled(y, alpha))


@op("sub", "sub_", "subtract")
def sub(b: Builder, x: Any, y: Any, *, alpha: float = 1) -> Value:
    if not isinstance(y, Value):
        return add(b, x, -y * alpha)
    x, y = floats(b, x, y)
    return b.do("sub", x, b.scaled(y, alpha))


@op("rsub")
def rsub(b: Builder, x: Value, y: Any, alpha: float = 1) -> Value:
    return b.do("sub", b.tensor(y), b.scaled(x, alpha))


@op("mul", "mul_", "multiply")
def mul(b: Builder, x: Any, y: Any) -> Value:
    if not isinstance(y, Value):
        expect(isinstance(y, (int, float)), f"a factor of type {type(y).__name__}")
        return b.scaled(x, y)
    return b.do("mul", *floats(b, x, y))


@op("div.Tensor", "div.Scalar", "div_.Tensor", "div_.Scalar", "true_divide", "divide.Tensor")
def div(b: Builder, x: Any, y: Any) -> Value:
    return b.do("div", *floats(b, x, y))


@op("pow.Tensor_Scalar")
def power(b: Builder, x: Value, exponent: float) -> Value:
    return b.do("square", x) if exponent == 2 else b.do("pow", x, exponent=exponent)


@op("clamp.default", "clip.default", "clamp_.default")
def clamp(b: Builder, x: Value, low: Any = None, high: Any = None) -> Value:
    return b.do("clamp", x, min=-math.inf if low is None else low,
                max=math.inf if high is None else high)


@op("clamp_min.default", "clamp_min_.default")
def clamp_min(b: Builder, x: Value, low: float) -> Value:
    return clamp(b, x, low)


@op("clamp_max.default", "clamp_max_.default")
def clamp_max(b: Builder, x: Value, high: float) -> Value:
    return clamp(b, x, None, high)


@op("maximum", "max.other")
def maximum(b: Builder, x: Value, y: Value) -> Value:
    return b.do("maximum", x, y)


@op("minimum", "min.other")
def minimum(b: Builder, x: Value, y: Value) -> Value:
    return b.do("minimum", x, y)


def reduced(kind: str, b: Builder, x: Value, dims: Any, keepdim: bool, dtype: Any) -> Value:
    plain_dtype(dtype)
    dims = [dims] if isinstance(dims, int) else list(dims or [])
    settings: dict[str, Any] = {"keepdim": int(keepdim)}
    if dims:
        settings["dim"] = tuple(dims)
    return b.do(kind, x, **settings)


@op("mean.default", "mean.dim")
def mean(b: Builder, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
         ) -> Value:
    return reduced("mean", b, x, dim, keepdim, dtype)


@op("sum.default", "sum.dim_IntList")
def total(b: Builder, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
          ) -> Value:
    return reduced("sum", b, x, dim, keepdim, dtype)


@op("var.correction")
def variance(b: Builder, x: Value, dim: Any = None, *, correction: float | None = 1,
             keepdim: bool = False) -> Value:
    dims = [axis(one, len(x.shape)) for one in
            ([dim] if isinstance(dim, int) else dim or range(len(x.shape)))]
    count = math.prod(x.shape[one] for one in dims) - (1 if correction is None else correction)
    expect(count > 0, "a variance of too few elements")
    centered = b.do("sub", x, mean(b, x, dims, True))
    return b.scaled(total(b, b.do("square", centered), dims, keepdim), 1 / count)


@op("std.correction")
def deviation(b: Builder, x: Value, dim: Any = None, *, correction: float | None = 1,
              keepdim: bool = False) -> Value:
    return b.do("sqrt", variance(b, x, dim, correction=correction, keepdim=keepdim))


@op("var.dim")
def variance_of_dims(b: Builder, x: Value, dim: Any = None, unbiased: bool = True,
                     keepdim: bool = False) -> Value:
    return variance(b, x, dim, correction=int(unbiased), keepdim=keepdim)


@op("std.dim")
def deviation_of_dims(b: Builder, x: Value, dim: Any = None, unbiased: bool = True,
                      keepdim: bool = False) -> Value:
    return deviation(b, x, dim, correction=int(unbiased), keepdim=keepdim)


@op("linalg_vector_norm")
def vector_norm(b: Builder, x: Value, order: float = 2, dim: Any = None, keepdim: bool = False,
                *, dtype: Any = None) -> Value:
    plain_dtype(dtype)
    if order == 1:
        return total(b, b.do("abs", x), dim, keepdim)
    expect(order == 2, f"a norm of order {order}")
    return b.do("sqrt", total(b, b.do("square", x), dim, keepdim))


for _name in ("amax", "amin"):
    def _extreme(b: Builder, x: Value, dim: Any = (), keepdim: bool = False, _kind: str = _name
                 ) -> Value:
        return reduced(_kind, b, x, dim, keepdim, None)

    op(_name)(_extreme)


for _name in ("argmax", "argmin"):
    def _place(b: Builder, x: Value, dim: int | None = None, keepdim: bool = False,
               _kind: str = _name) -> Value:
        expect(x.dtype is torch.float32 and (dim is not None or not keepdim), "such an argmax")
        if dim is None:
            x, dim = b.reshape(x, (-1,)), 0
        return b.add(_kind, [x], {"dim": dim, "keepdim": int(keepdim)}, torch.int64)

    op(_name)(_place)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    def _compared(b: Builder, x: Value, y: Any, _kind: str = _name) -> Value:
        if x.dtype is torch.int64 and isinstance(y, int):
            y = b.constant(torch.tensor([y]))
        y = b.tensor(y)
        expect(x.dtype is y.dtype and x.dtype in (torch.float32, torch.int64),
               f"a comparison of {short(x.dtype)} and {short(y.dtype)}")
        return b.add(_kind, [x, y], {}, torch.bool)

    op(_name)(_compared)


@op("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(b: Builder, condition: Value, x: Any, y: Any) -> Value:
    x, y = b.tensor(x), b.tensor(y)
    expect(x.dtype is torch.float32 and y.dtype is torch.float32, "a choice of whole numbers")
    return b.add("where", [condition, x, y], {})


@op("masked_fill.Scalar", "masked_fill_.Scalar")
def masked_fill(b: Builder, x: Value, mask: Value, value: float) -> Value:
    expect(x.dtype is torch.float32, "whole numbers")
    return b.add("masked_fill", [x, mask], {"value": value})


# --- shapes ---------------------------------------------------------------------------------------


@op("view.default", "reshape", "_unsafe_view", "view_copy")
def view(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    return b.reshape(x, shape)


@op("view_as", "reshape_as")
def view_as(b: Builder, x: Value, like: Value) -> Value:
    return b.reshape(x, like.shape)


@op("flatten.using_ints")
def flatten(b: Builder, x: Value, start: int = 0, end: int = -1) -> Value:
    if not x.shape:
        return b.reshape(x, (1,))
    start, end = axis(start, len(x.shape)), axis(end, len(x.shape))
    folded = math.prod(x.shape[start:end + 1])
    return b.reshape(x, (*x.shape[:start], folded, *x.shape[end + 1:]))


@op("unflatten.int")
def unflatten(b: Builder, x: Value, dim: int, sizes: Sequence[int]) -> Value:
    dim = axis(dim, len(x.shape))
    return b.reshape(x, (*x.shape[:dim], *sizes, *x.shape[dim + 1:]))


@op("unsqueeze")
def unsqueeze(b: Builder, x: Value, dim: int) -> Value:
    dim = axis(dim, len(x.shape) + 1)
    return b.reshape(x, (*x.shape[:dim], 1, *x.shape[dim:]))


@op("squeeze")
def squeeze(b: Builder, x: Value, dim: Any = None) -> Value:
    dims = range(len(x.shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {axis(one, len(x.shape)) for one in dims}
    return b.reshape(x, [n for i, n in enumerate(x.shape) if i not in gone or n != 1])


@op("permute")
def permute(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    return b.permute(x, dims)


@op("transpose.int", "swapaxes", "swapdims")
def transpose(b: Builder, x: Value, first: int, second: int) -> Value:
    dims = list(range(len(x.shape)))
    first, second = axis(first, len(dims)), axis(second, len(dims))
    dims[first], dims[second] = second, first
    return b.permute(x, dims)


@op("t", "numpy_T")
def t(b: Builder, x: Value) -> Value:
    return b.permute(x, range(len(x.shape) - 1, -1, -1))


@op("expand")
def expand(b: Builder, x: Value, shape: Sequence[int], implicit: bool = False) -> Value:
    before = (1,) * (len(shape) - len(x.shape)) + x.shape
    wanted = tuple(old if new == -1 else int(new) for old, new in zip(before, shape))
    return x if wanted == x.shape else b.add("broadcast", [x], {"shape": wanted}, x.dtype)


@op("mT", "adjoint")
def mT(b: Builder, x: Value) -> Value:
    return transpose(b, x, -2, -1)


@op("broadcast_tensors")
def broadcast_tensors(b: Builder, parts: Sequence[Value]) -> list[Value]:
    shape = torch.broadcast_shapes(*[part.shape for part in parts])
    return [expand(b, part, shape) for part in parts]


@op("_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range_for_size")
def nothing(b: Builder, *rest: Any, **keys: Any) -> None:
    """Checks that torch.export has made already."""


@op("expand_as")
def expand_as(b: Builder, x: Value, like: Value) -> Value:
    return expand(b, x, like.shape)


@op("cat", "concat", "concatenate")
def cat(b: Builder, parts: Sequence[Value], dim: int = 0) -> Value:
    made = parts[0]
    for part in parts[1:]:
        if made.dtype is torch.int64 and part.dtype is torch.int64:
            made = b.add("cat", [made, part], {"dim": dim}, torch.int64)
            b.ignores = True  # sessions look at labels that are inputs, not at these
        else:
            made = b.do("cat", made, part, dim=dim)
    return made


@op("stack")
def stack(b: Builder, parts: Sequence[Value], dim: int = 0) -> Value:
    return cat(b, [unsqueeze(b, part, dim) for part in parts], dim)


@op("slice.Tensor")
def part(b: Builder, x: Value, dim: int = 0, start: int | None = None, end: int | None = None,
         step: int = 1) -> Value:
    dim = axis(dim, len(x.shape))
    length = x.shape[dim]
    begin, stop, step = slice(start, end, step).indices(length)
    if (begin, stop, step) == (0, length, 1):
        return x
    expect(stop > begin, "a part without elements")
    return b.add("slice", [x], {"dim": dim, "start": begin, "end": stop, "step": step}, x.dtype)


@op("narrow")
def narrow(b: Builder, x: Value, dim: int, start: int, length: int) -> Value:
    return part(b, x, dim, start, start + length)


@op("select.int")
def select(b: Builder, x: Value, dim: int, index: int) -> Value:
    dim = axis(dim, len(x.shape))
    index = axis(index, x.shape[dim])
    return b.reshape(part(b, x, dim, index, index + 1), x.shape[:dim] + x.shape[dim + 1:])


@op("split.Tensor", "split_with_sizes", "split.sizes")
def split(b: Builder, x: Value, sizes: Any, dim: int = 0) -> list[Value]:
    length = x.shape[axis(dim, len(x.shape))]
    if isinstance(sizes, int):
        sizes = [min(sizes, length - begin) for begin in range(0, length, sizes)]
    ends = [sum(sizes[:i + 1]) for i in range(len(sizes))]
    return [part(b, x, dim, end - size, end) for end, size in zip(ends, sizes)]


@op("chunk")
def chunk(b: Builder, x: Value, count: int, dim: int = 0) -> list[Value]:
    return split(b, x, -(-x.shape[axis(dim, len(x.shape))] // count), dim)


@op("unbind.int")
def unbind(b: Builder, x: Value, dim: int = 0) -> list[Value]:
    return [select(b, x, dim, i) for i in range(x.shape[axis(dim, len(x.shape))])]


@op("getitem")
def getitem(b: Builder, parts: Sequence[Value | None], i: int) -> Value:
    found = parts[i]
    if found is None:
        raise Lacks(f"result {i}")
    return found


@op("glu")
def glu(b: Builder, x: Value, dim: int = -1) -> Value:
    half, gate = chunk(b, x, 2, dim)
    return b.do("mul", half, b.do("sigmoid", gate))


@op("clone", "contiguous", "alias", "lift_fresh_copy")
def same(b: Builder, x: Value, *rest: Any, **keys: Any) -> Value:
    return x


@op("detach", "detach_")
def detach(b: Builder, x: Value) -> Value:
    expect(not (b.training and x.trained), "a gradient that ends in forward")
    return x


# --- poptorch's own -------------------------------------------------------------------------------


@op("poptorch::ipu_print_tensor")
def ipu_print_tensor(b: Builder, x: Value, title: str, gradient: bool, threshold: int,
                     edge_items: int, width: int, digits: int, style: str, separator: str,
                     opening: str, closing: str) -> Value:
    return b.show(x, title, gradient, (threshold, edge_items, width, digits, style, separator,
                                       opening, closing))


@op("poptorch::identity_loss")
def identity_loss(b: Builder, x: Value) -> Value:
    return b.mark_loss(x)


@op("poptorch::begin_block")
def begin_block(b: Builder, name: str, ipu: int | None) -> None:
    b.begin_block(name, ipu)
