"""Shapes, parts, places, reductions and choices as nodes of ONNX."""

from typing import Any

import numpy

from .writer import TYPES, Attrs, Unwritable, Writer, writes

# The maps of Remap (src/nn/ops/remap.h); those before NEAREST pad.
CONSTANT, NEAREST, NEAREST_EXACT, LINEAR, LINEAR_CORNERS, CUBIC, CUBIC_CORNERS, FLIP, ROLL, \
    REPEAT, REPEAT_EACH, WINDOWS = 0, *range(4, 15)


@writes("Reshape")
def reshape(w: Writer, a: Attrs) -> None:
    """As the caller gave it: 0 copies a dimension and -1 takes the rest, in ONNX too."""
    given = w.op["given"]
    w.end("Reshape", w.operand(0), w.ints(*given["dims"][:given["rank"]]))


@writes("Transpose")
def transpose(w: Writer, a: Attrs) -> None:
    w.end("Transpose", *w.all(), perm=a["dims"][:a["rank"]])


@writes("Cat")
def cat(w: Writer, a: Attrs) -> None:
    w.end("Concat", *w.all(), axis=a["axis"])


@writes("Slice")
def cut(w: Writer, a: Attrs) -> None:
    """A negative place counts from the end, in ONNX too."""
    begin, end = w.op["given"]["start"], w.op["given"]["end"]
    w.end("Slice", w.operand(0), w.ints(begin), w.ints(end), w.ints(a["axis"]),
          w.ints(a["step"]))


@writes("Broadcast")
def broadcast(w: Writer, a: Attrs) -> None:
    """ONNX keeps a dimension where the shape says 1."""
    dims = w.op["given"]["dims"][:a["rank"]]
    w.end("Expand", w.operand(0), w.ints(*(1 if size == -1 else size for size in dims)))


@writes("Fill")
def fill(w: Writer, a: Attrs) -> None:
    w.end("Expand", w.scalar(a["value"]), w.ints(*a["dims"][:a["rank"]]))


@writes("Cast")
def cast(w: Writer, a: Attrs) -> None:
    w.end("Cast", *w.all(), to=TYPES[w.out()["dtype"]])


# --- reductions, choices ----------------------------------------------------------------

@writes("Reduce", "Extreme")
def reduce(w: Writer, a: Attrs) -> None:
    axes = [i for i in range(8) if a["axes"] >> i & 1]
    if not axes:
        w.end("Identity", w.operand(0))
        return
    op = ("ReduceMean" if a["mean"] else "ReduceSum") if w.op["kind"] == "Reduce" else \
        "ReduceMin" if a["smallest"] else "ReduceMax"
    w.end(op, w.operand(0), w.ints(*axes), keepdims=int(a["keep_dims"]))


@writes("ArgExtreme")
def arg_extreme(w: Writer, a: Attrs) -> None:
    w.end("ArgMin" if a["smallest"] else "ArgMax", *w.all(), axis=a["axis"],
          keepdims=int(a["keep_dims"]))


@writes("Compare")
def compare(w: Writer, a: Attrs) -> None:
    x, y = w.operand(0), w.operand(1)
    if a["comparison"] == 1:
        w.end("Not", w.step("Equal", x, y))
    else:
        w.end(("Equal", "", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")[a["comparison"]],
              x, y)


@writes("Where")
def where(w: Writer, a: Attrs) -> None:
    w.end("Where", w.truth(0), w.operand(1), w.operand(2))


@writes("MaskedFill")
def masked_fill(w: Writer, a: Attrs) -> None:
    mask, pair = w.truth(1), [w.scalar(a["value"]), w.operand(0)]
    w.end("Where", mask, *(reversed(pair) if a["inverted"] else pair))


# --- places -----------------------------------------------------------------------------

@writes("Scatter")
def scatter(w: Writer, a: Attrs) -> None:
    """Places of one dimension stand for all lines: they are rows, or are repeated to the source's
    shape."""
    rank, axis = len(w.shape(0)), a["axis"]
    x, index, source = (w.operand(i) for i in range(3))
    reduction = "add" if a["adds"] else "none"
    if len(w.shape(1)) != rank and axis == 0:
        w.end("ScatterND", x, w.step("Unsqueeze", index, w.ints(-1)), source,
              reduction=reduction)
        return
    if len(w.shape(1)) != rank:
        index = w.reshaped(index, *(-1 if i == axis else 1 for i in range(rank)))
        index = w.step("Expand", index, w.step("Shape", source))
    w.end("ScatterElements", x, index, source, axis=axis, reduction=reduction)


@writes("ArgSort")
def arg_sort(w: Writer, a: Attrs) -> None:
    k, axis = a["k"], a["axis"]
    if k == 0 and w.varies(w.op["in"][0], axis):
        raise Unwritable  # the order of the samples
    w.end("TopK", w.operand(0), w.ints(k or w.shape(0)[axis]), output=1, axis=axis,
          largest=int(a["descending"]))


@writes("CumSum")
def cumsum(w: Writer, a: Attrs) -> None:
    w.end("CumSum", w.operand(0), w.constant(numpy.array(a["axis"])),
          reverse=int(a["descending"]))


# --- maps of places ---------------------------------------------------------------------

def _pad(w: Writer, a: Attrs) -> None:
    rank = len(w.shape(0))
    pads = [0] * 2 * rank
    pads[a["axis"]], pads[rank + a["axis"]] = (a["before"], a["after"])
    number = [w.scalar(a["number"])] if a["map"] == CONSTANT else []
    w.end("Pad", w.operand(0), w.ints(*pads), *number,
          mode=("constant", "reflect", "edge", "wrap")[a["map"]])


def _resize(w: Writer, a: Attrs, made: int) -> None:
    kind = a["map"]
    nearest, corners = kind <= NEAREST_EXACT, kind in (LINEAR_CORNERS, CUBIC_CORNERS)
    cubic, scale = kind in (CUBIC, CUBIC_CORNERS), a["number"]
    scaled = not corners and scale > 0 and scale * w.shape(0)[a["axis"]] != made
    words: dict[str, Any] = {
        "mode": "nearest" if nearest else "cubic" if cubic else "linear",
        "coordinate_transformation_mode":
            "asymmetric" if nearest else "align_corners" if corners else "half_pixel",
        "axes": [a["axis"]]}
    if nearest:
        words["nearest_mode"] = "floor"
    if cubic:
        words["cubic_coeff_a"] = -0.75
    if scaled:
        w.end("Resize", w.operand(0), "", w.constant(numpy.array([scale], numpy.float32)),
              **words)
    else:
        w.end("Resize", w.operand(0), "", "", w.ints(made), **words)


def _place(a: Attrs, extent: int, i: int) -> int:
    """The place of x, of `extent` places, that place i of y copies; -1: none."""
    count = a["count"]
    if a["map"] in (NEAREST, NEAREST_EXACT):  # PyTorch computes it in float32
        factor = round(a["number"] * 1e7) / 1e7
        step = numpy.float32(1 / factor if factor > 0 else extent / count)
        half = numpy.float32(0.5 if a["map"] == NEAREST_EXACT else 0)
        return min(int(numpy.floor((numpy.float32(i) + half) * step)), extent - 1)
    if a["map"] == WINDOWS:
        place = i // count * a["stride"] - a["before"] + i % count * a["dilation"]
        return place if 0 <= place < extent else -1
    return {FLIP: extent - 1 - i, ROLL: (i - a["before"]) % extent, REPEAT: i % extent,
            REPEAT_EACH: i // max(count, 1)}[a["map"]]


def _taken(w: Writer, a: Attrs, x: str, extent: int) -> None:
    """Each place of y is a known place of x."""
    count = w.out()["shape"][a["axis"]]
    w.end("Gather", x, w.ints(*(_place(a, extent, i) for i in range(count))), axis=a["axis"])


def _windows(w: Writer, a: Attrs) -> None:
    """The places of a border's zeros are beside those of x."""
    axis, border, rank = a["axis"], a["before"], len(w.shape(0))
    x = w.operand(0)
    if border > 0:
        pads = [border * (i % rank == axis) for i in range(2 * rank)]
        x = w.step("Pad", x, w.ints(*pads))
    _taken(w, {**a, "before": 0}, x, w.shape(0)[axis] + 2 * border)


@writes("Remap")
def remap(w: Writer, a: Attrs) -> None:
    extent, made = w.shape(0)[a["axis"]], w.out()["shape"][a["axis"]]
    if a["map"] < NEAREST:
        _pad(w, a)
    elif w.varies(w.op["in"][0], a["axis"]):
        raise Unwritable  # places among the samples
    elif LINEAR <= a["map"] <= CUBIC_CORNERS or \
            (a["map"] <= NEAREST_EXACT and made % extent == 0):
        _resize(w, a, made)
    elif a["map"] == WINDOWS:
        _windows(w, a)
    else:
        _taken(w, a, w.operand(0), extent)
