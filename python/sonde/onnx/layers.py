"""Products, convolutions, pools, norms, embeddings and losses of classes as nodes of ONNX."""

from typing import Any

import numpy
from onnx import TensorProto

from .writer import Attrs, Unwritable, Writer, writes

# --- products ---------------------------------------------------------------------------


@writes("Linear")
def linear(w: Writer, a: Attrs) -> None:
    w.end("Gemm", *w.all(), transB=1)


def _swapped(w: Writer, i: int) -> str:
    """Operand i with its last two dimensions swapped."""
    rank = len(w.shape(i))
    return w.turned(w.operand(i), *range(rank - 2), rank - 1, rank - 2)


@writes("MatMul")
def matmul(w: Writer, a: Attrs) -> None:
    first = _swapped(w, 0) if a["transposed"] & 1 else w.operand(0)
    second = _swapped(w, 1) if a["transposed"] & 2 else w.operand(1)
    if a["scale"] in (0, 1):
        w.end("MatMul", first, second)
    else:
        w.end("Mul", w.step("MatMul", first, second), w.scalar(a["scale"]))


@writes("Scale")
def scale(w: Writer, a: Attrs) -> None:
    w.end("Mul", w.operand(0), w.scalar(a["value"]))


# --- windows ----------------------------------------------------------------------------

def _window(a: Attrs, kernel: list[int]) -> dict[str, Any]:
    return {"kernel_shape": kernel[:2], "strides": a["stride"][:2], "pads": a["padding"][:2] * 2}


@writes("Conv2d")
def conv(w: Writer, a: Attrs) -> None:
    w.end("Conv", *w.all(), **_window(a, w.shape(1)[2:]), dilations=a["dilation"][:2],
          group=a["groups"])


@writes("ConvTranspose2d")
def conv_transpose(w: Writer, a: Attrs) -> None:
    w.end("ConvTranspose", *w.all(), **_window(a, w.shape(1)[2:]), dilations=a["dilation"][:2],
          output_padding=a["output_padding"][:2], group=a["groups"])


@writes("MaxPool2d")
def max_pool(w: Writer, a: Attrs) -> None:
    if w.needed[1]:
        raise Unwritable  # places within windows
    w.end("MaxPool", *w.all(), **_window(a, a["kernel"]), dilations=a["dilation"][:2])


@writes("AvgPool2d")
def avg_pool(w: Writer, a: Attrs) -> None:
    w.end("AveragePool", *w.all(), **_window(a, a["kernel"]),
          count_include_pad=int(a["include_pad"]))


def _windows(w: Writer, x: str, axis: int, extent: int, count: int, reduce: str) -> str:
    """The windows of x along an axis, which share it as equally as they can, each reduced to one
    place."""
    if count > 24:
        raise Unwritable
    parts = [w.step(reduce, w.cut(x, axis, i * extent // count, -(-(i + 1) * extent // count)),
                    w.ints(axis)) for i in range(count)]
    return w.step("Concat", *parts, axis=axis)


def _adaptive(w: Writer, x: str, shape: list[int], count: list[int], pool: str,
              reduce: str) -> str:
    """x (N, C, H, W) in (h, w) windows: a pool where they are alike."""
    if shape[2] % count[0] == 0 and shape[3] % count[1] == 0:
        size = [shape[2] // count[0], shape[3] // count[1]]
        return w.step(pool, x, kernel_shape=size, strides=size)
    x = _windows(w, x, 2, shape[2], count[0], reduce)
    return _windows(w, x, 3, shape[3], count[1], reduce)


@writes("AdaptiveAvgPool2d")
def adaptive_pool(w: Writer, a: Attrs) -> None:
    if a["kernel"][:2] == [1, 1]:
        w.end("GlobalAveragePool", *w.all())
    else:
        w.end("Identity", _adaptive(w, w.operand(0), w.shape(0), a["kernel"], "AveragePool",
                                    "ReduceMean"))


def _unshaped(w: Writer, value: int) -> int:
    """What a value is another shape of."""
    while value in w.makers and w.makers[value]["kind"] == "Reshape":
        value = w.makers[value]["in"][0]
    return value


def _windows_of(w: Writer, gather: dict[str, Any]) -> dict[str, Any] | None:
    """The op that names the places, if a Gather takes from x, under another shape, the largest
    element of windows of x."""
    places = w.makers.get(gather["in"][1])
    return places if places and places["kind"] == "ArgWindow" and \
        _unshaped(w, gather["in"][0]) == _unshaped(w, places["in"][0]) else None


@writes("ArgWindow")
def arg_window(w: Writer, a: Attrs) -> None:
    """Places of the largest elements are not written, their elements are."""
    own = w.op["out"][0]
    if own in w.graph["outputs"] or any(
            own in op["in"] and (op["kind"] != "Gather" or _windows_of(w, op) is None)
            for op in w.ops):
        raise Unwritable


@writes("Gather")
def gather(w: Writer, a: Attrs) -> None:
    windows = _windows_of(w, w.op)
    if windows is not None:
        source = windows["in"][0]
        y = _adaptive(w, w.name(source), w.values[source]["shape"], windows["attrs"]["kernel"],
                      "MaxPool", "ReduceMax")
        w.end("Reshape", y, w.ints(0, 0, -1))
    else:
        same = len(w.shape(1)) == len(w.shape(0))
        w.end("GatherElements" if same else "Gather", *w.all(), axis=a["axis"])


# --- norms ------------------------------------------------------------------------------

def _normal(w: Writer, x: str, axes: list[int], eps: float, centered: bool) -> str:
    """(x - mean) / sqrt(var + eps) over axes, which stay as 1; without the mean: of an RMS
    norm."""
    every = w.ints(*axes)
    if centered:
        x = w.step("Sub", x, w.step("ReduceMean", x, every))
    spread = w.step("ReduceMean", w.step("Mul", x, x), every)
    return w.step("Div", x, w.step("Sqrt", w.step("Add", spread, w.scalar(eps))))


def _beside_channels(w: Writer, i: int, rank: int) -> str:
    """A vector of the channels, for x (N, C, ...)."""
    return w.operand(i) if rank <= 2 else \
        w.reshaped(w.operand(i), -1, *[1] * (rank - 2))


def _end_channels(w: Writer, y: str, weight: int, bias: int) -> None:
    """y times the weight and plus the bias of each channel, where they are inputs."""
    rank = len(w.shape(0))
    for op, i in (("Mul", weight), ("Add", bias)):
        if i > 0 and w.has(i):
            y = w.step(op, y, _beside_channels(w, i, rank))
    w.end("Identity", y)


@writes("BatchNorm")
def batch_norm(w: Writer, a: Attrs) -> None:
    """Of running statistics alone, or of those of the batch."""
    rank, mean, x = len(w.shape(0)), 3 if a["affine"] else 1, w.operand(0)
    if a["affine"] and a["track"]:
        w.end("BatchNormalization", *w.all()[:5], epsilon=a["eps"])
    elif a["track"]:
        spread = w.step("Add", _beside_channels(w, mean + 1, rank), w.scalar(a["eps"]))
        spread = w.step("Sqrt", spread)
        w.end("Div", w.step("Sub", x, _beside_channels(w, mean, rank)), spread)
    else:
        y = _normal(w, x, [0, *range(2, rank)], a["eps"], True)
        _end_channels(w, y, 1 if a["affine"] else 0, 2 if a["affine"] else 0)


@writes("GroupNorm", "InstanceNorm")
def group_norm(w: Writer, a: Attrs) -> None:
    """Groups of channels; ONNX has no form without weights."""
    if w.needed[1] or w.needed[2]:
        raise Unwritable  # the mean and the spread
    if w.has(1) and w.has(2) and w.op["kind"] == "InstanceNorm":
        w.end("InstanceNormalization", *w.all(), epsilon=a["eps"])
    elif w.has(1) and w.has(2):
        w.end("GroupNormalization", *w.all(), num_groups=a["groups"], epsilon=a["eps"])
    else:
        x = w.operand(0)
        shape = w.step("Shape", x)
        y = _normal(w, w.reshaped(x, 0, a["groups"], -1), [2], a["eps"], True)
        _end_channels(w, w.step("Reshape", y, shape), 1, 2)


@writes("LayerNorm", "RmsNorm")
def row_norm(w: Writer, a: Attrs) -> None:
    centered = w.op["kind"] == "LayerNorm"
    if w.needed[1] or w.needed[2]:
        raise Unwritable
    if centered and w.has(1):
        w.end("LayerNormalization", *w.all(), axis=-a["rank"], epsilon=a["eps"])
        return
    y = _normal(w, w.operand(0), list(range(-a["rank"], 0)), a["eps"], centered)
    w.end(*(("Mul", y, w.operand(1)) if w.has(1) else ("Identity", y)))


@writes("Softmax", "LogSoftmax")
def softmax(w: Writer, a: Attrs) -> None:
    w.end(w.op["kind"], *w.all(), axis=a["axis"])


@writes("PRelu")
def prelu(w: Writer, a: Attrs) -> None:
    w.end("PRelu", w.operand(0), w.operand(1) if w.shape(1)[0] == 1 else
          _beside_channels(w, 1, len(w.shape(0))))


@writes("ChannelAdd")
def channel_add(w: Writer, a: Attrs) -> None:
    w.end("Add", w.operand(0), _beside_channels(w, 1, len(w.shape(0))))


# --- tables, classes --------------------------------------------------------------------

@writes("Embedding")
def embedding(w: Writer, a: Attrs) -> None:
    w.end("Gather", w.operand(1), w.operand(0))


@writes("EmbeddingBag")
def embedding_bag(w: Writer, a: Attrs) -> None:
    rows, axis = w.step("Gather", w.operand(1), w.operand(0)), w.ints(1)
    reduction = ("ReduceMean", "ReduceSum", "ReduceMax")[a["mode"]]
    if a["padding_idx"] < 0:
        w.end(reduction, rows, axis, keepdims=0)
        return
    parts = w.step("Equal", w.operand(0), w.ints(a["padding_idx"]))  # those that take none
    parts = w.step("Unsqueeze", w.step("Not", parts), w.ints(-1))
    rows = w.step("Where", parts, rows, w.scalar(-float("inf") if a["mode"] == 2 else 0))
    if a["mode"] == 1:
        w.end("ReduceSum", rows, axis, keepdims=0)
        return
    rows = w.step("ReduceMax" if a["mode"] == 2 else "ReduceSum", rows, axis, keepdims=0)
    count = w.step("ReduceSum", w.step("Cast", parts, to=TensorProto.FLOAT), axis, keepdims=0)
    if a["mode"] == 0:
        w.end("Div", rows, w.step("Max", count, w.scalar(1)))
    else:
        w.end("Where", w.step("Greater", count, w.scalar(0)), rows, w.scalar(0))


@writes("Number")
def number(w: Writer, a: Attrs) -> None:
    w.end("Unsqueeze", w.step("Cast", w.operand(0), to=TensorProto.FLOAT), w.ints(1))


@writes("OneHot")
def one_hot(w: Writer, a: Attrs) -> None:
    y = w.step("OneHot", w.operand(0), w.constant(numpy.array(a["classes"])), w.ints(0, 1))
    w.end("Cast", y, to=TensorProto.FLOAT)


@writes("Nll", "NllWeighted")
def nll(w: Writer, a: Attrs) -> None:
    weighted = w.op["kind"] == "NllWeighted"
    if weighted and (a["axis"] != 1 or a["label_smoothing"] != 0):
        raise Unwritable  # classes elsewhere, or smoothed labels
    ignored = {"ignore_index": a["ignore_index"]} if weighted and a["ignores"] else {}
    w.end("NegativeLogLikelihoodLoss", *w.all(), **ignored,
          reduction="mean" if a["mean"] else "sum")
