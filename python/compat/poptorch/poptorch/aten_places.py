"""PyTorch's ops as the engine's: borders, interpolation, elements by their places, order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .aten import cat
from .builder import Builder, Value, axis, expect, op, pair

Place = tuple[Value, Value]

# --- elements from elsewhere ----------------------------------------------------------------------


@op("constant_pad_nd", "pad")
def pad(b: Builder, x: Value, border: Sequence[int], *rest: Any) -> Value:
    mode = next((one for one in rest if isinstance(one, str)), "constant")
    value = next((one for one in rest if isinstance(one, (int, float))), 0.0)
    if x.dtype is torch.int64 and mode == "constant":
        return whole_border(b, x, border, int(value))
    return b.add("pad", [x], {"pad": tuple(border), "mode": mode, "value": float(value)}, x.dtype)


def whole_border(b: Builder, x: Value, border: Sequence[int], value: int) -> Value:
    """Whole numbers with a border of one number: labels that a language model moves by one."""
    expect(min(border) >= 0, "a negative border of whole numbers")
    for i in range(0, len(border), 2):
        dim = len(x.shape) - 1 - i // 2
        for size, before in ((border[i], True), (border[i + 1], False)):
            if size:
                shape = [*x.shape]
                shape[dim] = size
                edge = b.constant(torch.full(shape, value))
                x = cat(b, [edge, x] if before else [x, edge], dim)
    return x


for _name, _mode in (("reflection_pad", "reflect"), ("replication_pad", "replicate")):
    def _padded(b: Builder, x: Value, border: Sequence[int], _kind: str = _mode) -> Value:
        return pad(b, x, border, _kind)

    op(*(f"{_name}{n}d" for n in (1, 2, 3)))(_padded)


def resized(b: Builder, x: Value, mode: str, corners: bool, size: Any, factors: Sequence[Any]
            ) -> Value:
    listed = [part if isinstance(part, (list, tuple)) else [part] for part in factors]
    given = [one for part in listed for one in part if one is not None]
    settings: dict[str, Any] = {"mode": mode, "align_corners": int(corners)}
    if size is not None and not given:
        settings["size"] = tuple(size)
    elif given and all(one == given[0] for one in given):
        settings["scale_factor"] = float(given[0])
    else:
        wanted = [n * one for n, one in zip(x.shape[2:], given)]
        expect(bool(wanted) and all(n == int(n) for n in wanted),
               f"an interpolation by factors {given}")
        settings["size"] = tuple(int(n) for n in wanted)
    return b.do("interpolate", x, **settings)


for _name, _mode in (("upsample_nearest", "nearest"), ("_upsample_nearest_exact", "nearest-exact")):
    def _nearest(b: Builder, x: Value, size: Any = None, *factors: Any, _kind: str = _mode
                 ) -> Value:
        return resized(b, x, _kind, False, size, factors)

    op(*(f"{_name}{n}d" for n in (1, 2, 3)))(_nearest)

for _name, _mode in (("linear1d", "linear"), ("bilinear2d", "linear"), ("trilinear3d", "linear"),
                     ("bicubic2d", "bicubic")):
    def _smooth(b: Builder, x: Value, size: Any, corners: bool, *factors: Any, _kind: str = _mode
                ) -> Value:
        return resized(b, x, _kind, corners, size, factors)

    op("upsample_" + _name)(_smooth)


@op("pixel_shuffle")
def pixel_shuffle(b: Builder, x: Value, factor: int) -> Value:
    return b.do("pixel_shuffle", x, upscale_factor=factor)


@op("pixel_unshuffle")
def pixel_unshuffle(b: Builder, x: Value, factor: int) -> Value:
    return b.do("pixel_unshuffle", x, downscale_factor=factor)


@op("flip")
def flip(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    return b.add("flip", [x], {"dims": tuple(dims)}, x.dtype) if dims else x


@op("roll")
def roll(b: Builder, x: Value, shifts: Any, dims: Any = ()) -> Value:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims:
        flat = b.reshape(x, (-1,))
        return b.reshape(roll(b, flat, shifts, [0]), x.shape)
    for shift, dim in zip(shifts, dims):
        x = b.add("roll", [x], {"shifts": shift, "dims": dim}, x.dtype)
    return x


@op("repeat", "tile")
def repeat(b: Builder, x: Value, counts: Sequence[int]) -> Value:
    counts = (1,) * (len(x.shape) - len(counts)) + tuple(counts)
    x = b.reshape(x, (1,) * (len(counts) - len(x.shape)) + x.shape)
    return b.add("repeat", [x], {"repeats": counts}, x.dtype) if set(counts) != {1} else x


@op("repeat_interleave.self_int")
def repeat_interleave(b: Builder, x: Value, count: int, dim: int | None = None, *,
                      output_size: int | None = None) -> Value:
    if dim is None:
        x, dim = b.reshape(x, (-1,)), 0
    return b.add("repeat_interleave", [x], {"repeats": count, "dim": dim}, x.dtype)


# --- places ---------------------------------------------------------------------------------------


@op("gather")
def gather(b: Builder, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    return b.add("gather", [x, index], {"dim": dim}, x.dtype)


@op("take_along_dim")
def take_along_dim(b: Builder, x: Value, index: Value, dim: int | None = None) -> Value:
    if dim is None:
        return gather(b, b.reshape(x, (-1,)), 0, b.reshape(index, (-1,)))
    return gather(b, x, dim, index)


@op("index_select")
def index_select(b: Builder, x: Value, dim: int, index: Value) -> Value:
    return b.add("index_select", [x, index], {"dim": dim}, x.dtype)


@op("index.Tensor")
def index(b: Builder, x: Value, places: Sequence[Value | None]) -> Value:
    given = [i for i, one in enumerate(places) if one is not None]
    expect(len(given) == 1, "an index of several dimensions")
    dim, chosen = given[0], places[given[0]]
    assert chosen is not None
    expect(chosen.dtype is torch.int64, f"an index of {chosen.dtype}")
    flat = index_select(b, x, dim, b.reshape(chosen, (-1,)))
    return b.reshape(flat, (*x.shape[:dim], *chosen.shape, *x.shape[dim + 1:]))


@op("scatter.src")
def scatter(b: Builder, x: Value, dim: int, index: Value, source: Value) -> Value:
    return put(b, "scatter", x, dim, index, source)


@op("scatter.value")
def scatter_value(b: Builder, x: Value, dim: int, index: Value, value: float) -> Value:
    return put(b, "scatter", x, dim, index, b.full(index.shape, value))


@op("scatter_add")
def scatter_add(b: Builder, x: Value, dim: int, index: Value, source: Value) -> Value:
    return put(b, "scatter_add", x, dim, index, source)


@op("index_add")
def index_add(b: Builder, x: Value, dim: int, index: Value, source: Value, *, alpha: float = 1
              ) -> Value:
    return put(b, "index_add", x, dim, index, b.scaled(source, alpha))


def put(b: Builder, kind: str, x: Value, dim: int, index: Value, source: Value) -> Value:
    expect(x.dtype is torch.float32 and source.dtype is torch.float32, "whole numbers")
    expect(source.shape == index.shape or kind == "index_add", "a source larger than its index")
    return b.add(kind, [x, index, source], {"dim": dim})


# --- order ----------------------------------------------------------------------------------------


def ordered(b: Builder, x: Value, dim: int, k: int, descending: bool) -> Place:
    """The k first elements in order, and their places."""
    expect(x.dtype is torch.float32, "whole numbers")
    whole = not x.shape
    if whole:
        x, dim = b.reshape(x, (1,)), 0
    places = b.add("topk", [x], {"k": k, "dim": dim, "largest": int(descending), "indices": 1},
                   torch.int64)
    values = gather(b, x, dim, places)
    return (b.reshape(values, ()), b.reshape(places, ())) if whole else (values, places)


def extent(x: Value, dim: int) -> int:
    return x.shape[axis(dim, len(x.shape))] if x.shape else 1


@op("sort.default", "sort.stable")
def sort(b: Builder, x: Value, *rest: Any, dim: int = -1, descending: bool = False,
         stable: Any = None) -> Place:
    if rest:
        dim, descending = rest[0], rest[1] if len(rest) > 1 else descending
    return ordered(b, x, dim, extent(x, dim), descending)


@op("argsort.default", "argsort.stable")
def argsort(b: Builder, x: Value, *rest: Any, **keys: Any) -> Value:
    return sort(b, x, *rest, **keys)[1]


@op("topk")
def topk(b: Builder, x: Value, k: int, dim: int = -1, largest: bool = True, sort: bool = True
         ) -> Place:
    return ordered(b, x, dim, k, largest)


@op("kthvalue")
def kthvalue(b: Builder, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> Place:
    dim = axis(dim, len(x.shape))
    _, places = ordered(b, x, dim, extent(x, dim), False)
    place = b.add("slice", [places], {"dim": dim, "start": k - 1, "end": k}, torch.int64)
    return taken(b, x, place, dim, keepdim)


@op("median.dim")
def median(b: Builder, x: Value, dim: int = -1, keepdim: bool = False) -> Place:
    return kthvalue(b, x, (extent(x, dim) + 1) // 2, dim, keepdim)


def taken(b: Builder, x: Value, place: Value, dim: int, keepdim: bool) -> Place:
    """The elements at places with a dimension of 1 at dim, and those places."""
    values = gather(b, x, dim, place)
    if keepdim:
        return values, place
    shape = (*x.shape[:dim], *x.shape[dim + 1:])
    return b.reshape(values, shape), b.reshape(place, shape)


for _name, _mode in (("max.dim", "argmax"), ("min.dim", "argmin")):
    def _extreme(b: Builder, x: Value, dim: int, keepdim: bool = False, _kind: str = _mode
                 ) -> Place:
        expect(x.dtype is torch.float32, "whole numbers")
        dim = axis(dim, len(x.shape))
        place = b.add(_kind, [x], {"dim": dim, "keepdim": 1}, torch.int64)
        return taken(b, x, place, dim, keepdim)

    op(_name)(_extreme)

for _name, _mode in (("max.default", "amax"), ("min.default", "amin")):
    def _largest(b: Builder, x: Value, _kind: str = _mode) -> Value:
        return b.do(_kind, x)

    op(_name)(_largest)


@op("cumsum")
def cumsum(b: Builder, x: Value, dim: int, *, dtype: Any = None) -> Value:
    expect(dtype in (None, x.dtype) and x.dtype in (torch.float32, torch.int64), f"dtype={dtype}")
    return b.add("cumsum", [x], {"dim": dim}, x.dtype)


@op("adaptive_max_pool2d")
def adaptive_max_pool2d(b: Builder, x: Value, size: Any) -> list[Value | None]:
    expect(len(x.shape) == 4, "an input without a batch")
    return [b.do("adaptive_max_pool2d", x, output_size=pair(size)), None]
