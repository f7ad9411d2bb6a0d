"""ONNX ops with parameters: convolutions and pools, products, norms, recurrent layers."""

import math
from typing import Any

import numpy
import onnx
from onnx import helper

from .reader import ONE, OPEN, Entry, Importer, Node, Size, Value, to_array
from .table import data, op, wanted

# --- windows ----------------------------------------------------------------------------

class Window:
    """A window that moves over the dimensions after (N, C)."""

    def __init__(self, n: Node, sizes: list[Size], kernel: list[int] | None, most: int) -> None:
        self.dims = dims = len(sizes) - 2
        if not 1 <= dims <= most:
            n.unsupported(f"an input of {len(sizes)} dimensions",
                          "(N, C, L), (N, C, H, W)" + " or (N, C, D, H, W)" * (most == 3))
        self.kernel = kernel or self.numbers(n, "kernel_shape", 1, 1)
        self.stride = self.numbers(n, "strides", 1, 1)
        self.dilation = self.numbers(n, "dilations", 1, 1)
        spans = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel)]
        pads = list(n.get("pads", [0] * 2 * dims))
        if len(pads) != 2 * dims or any(not 0 <= pad < 2 ** 31 for pad in pads):
            n.unsupported(f"a padding of {pads}", f"{2 * dims} numbers of 0 or more")
        self.begin, self.end = pads[:dims], pads[dims:]
        size = [s.n for s in sizes[2:]]
        automatic = n.get("auto_pad", "NOTSET")
        for d in range(dims):
            if automatic in ("SAME_UPPER", "SAME_LOWER"):
                count = -(-size[d] // self.stride[d])
                pad = max((count - 1) * self.stride[d] + spans[d] - size[d], 0)
                half = pad // 2 if automatic == "SAME_UPPER" else pad - pad // 2
                self.begin[d], self.end[d] = half, pad - half
            room = size[d] + self.begin[d] + self.end[d] - spans[d]
            if room % self.stride[d] and n.get("ceil_mode", 0):
                n.unsupported("ceil_mode with a window that hangs over the edge", "ceil_mode 0")
            if most < 3 and self.begin[d] != self.end[d]:
                n.unsupported(f"a padding of {self.begin[d]} and {self.end[d]}",
                              "the same on both sides")

    def numbers(self, n: Node, name: str, least: int, fallback: int) -> list[int]:
        numbers = list(n.get(name, [fallback] * self.dims))
        if len(numbers) != self.dims or any(not least <= k < 2 ** 31 for k in numbers):
            n.refuse("SONDE_EINVAL", f"{name} is {numbers}",
                     f"{self.dims} numbers of {least} or more")
        return numbers

    def flat(self, numbers: list[int], fallback: int) -> tuple[int, ...]:
        """Numbers of two dimensions, or of three."""
        return (fallback, *numbers) if self.dims == 1 else tuple(numbers)


def widen(n: Node, x: Value) -> Value:
    """(N, C, L) as (N, C, 1, L)."""
    sizes = n.shape(x)
    return n.reshape(x, [*sizes[:2], ONE, sizes[2]]) if len(sizes) == 3 else x


def narrow(n: Node, x: Value, w: Window) -> Value:
    sizes = n.shape(x)
    return n.reshape(x, [*sizes[:2], sizes[3]]) if w.dims == 1 and len(sizes) == 4 else x


def _take_conv(n: Node, most: int) -> tuple[list[Value], Window, list[Size]]:
    """Input, weight and bias; the weight's dims give the kernel."""
    values = [n.take(0), n.take(1, "weight")]
    if n.has(2):
        values.append(n.take_own(2, "bias", "bias"))
    dims, sizes = n.shape(values[1]), n.shape(values[0])
    if not 3 <= len(dims) <= 2 + most:
        n.unsupported(f"a convolution over {len(dims) - 2} dimensions",
                      "one to three" if most == 3 else "one or two")
    if len(sizes) != len(dims):
        n.refuse("SONDE_ESHAPE", f"an input of {len(sizes)} and a weight of {len(dims)} "
                 "dimensions", "the same number")
    return values, Window(n, sizes, [d.n for d in dims[2:]], most), dims


@op("Conv")
def conv(n: Node) -> Value:
    values, w, dims = _take_conv(n, 3)
    if w.begin != w.end:  # zeros where the padding differs from side to side
        pads: list[int] = []
        for d in reversed(range(w.dims)):
            differs = w.begin[d] != w.end[d]
            pads += [w.begin[d], w.end[d]] if differs else [0, 0]
            if differs:
                w.begin[d] = w.end[d] = 0
        values[0] = n.emit("pad", values[0], pad=tuple(pads))
    settings = {"stride": w.flat(w.stride, 1), "padding": w.flat(w.begin, 0),
                "dilation": w.flat(w.dilation, 1), "groups": n.get("group", 1)}
    if w.dims == 3:
        return n.emit("conv3d", *values, out_channels=dims[0].n, bias=len(values) > 2,
                      kernel_size=tuple(w.kernel), **settings)
    values[:2] = widen(n, values[0]), widen(n, values[1])
    return narrow(n, n.emit("conv2d", *values, **settings), w)


@op("ConvTranspose")
def conv_transpose(n: Node) -> Value:
    if "output_shape" in n.attributes:
        n.unsupported("it has output_shape", "pads and output_padding")
    if n.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        n.unsupported("auto_pad is SAME", "NOTSET or VALID")
    values, w, dims = _take_conv(n, 2)
    more = w.numbers(n, "output_padding", 0, 0)
    values[:2] = widen(n, values[0]), widen(n, values[1])
    return narrow(n, n.emit(
        "conv_transpose2d", *values, groups=n.get("group", 1),
        out_channels=dims[1].n * n.get("group", 1), bias=len(values) > 2,
        kernel_size=w.flat(w.kernel, 1), stride=w.flat(w.stride, 1),
        padding=w.flat(w.begin, 0), dilation=w.flat(w.dilation, 1),
        output_padding=w.flat(more, 0)), w)


@op("MaxPool", "AveragePool")
def pool(n: Node) -> Value:
    x, sizes = data(n)
    w = Window(n, sizes, None, 2)
    settings: dict[str, Any] = {"kernel_size": w.flat(w.kernel, 1),
                                "stride": w.flat(w.stride, 1), "padding": w.flat(w.begin, 0)}
    if n.op == "AveragePool":
        if set(w.dilation) != {1}:
            n.unsupported("dilations", "1")
        settings["count_include_pad"] = n.get("count_include_pad", 0) != 0
    else:
        settings["dilation"] = w.flat(w.dilation, 1)
    kind = "avg_pool2d" if n.op == "AveragePool" else "max_pool2d"
    return narrow(n, n.emit(kind, widen(n, x), **settings), w)


@op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(n: Node) -> Value:
    x, sizes = data(n)
    if len(sizes) < 3:
        n.refuse("SONDE_ESHAPE", f"an input of {len(sizes)} dimensions", "(N, C, ...)")
    return n.emit("mean" if n.op == "GlobalAveragePool" else "amax", x, keepdim=1,
                  dim=tuple(range(2, len(sizes))))


# --- products ---------------------------------------------------------------------------

def _turned_weight(n: Node) -> Value | None:
    """Input 1, an initializer (K, O) that an exporter transposed, as a weight (O, K)."""
    slot, initial = n.slot(1), n.initial(1)
    if slot is None or initial is None or slot.value is not None or len(initial.dims) != 2 or \
            n.module == "" or "." in slot.name:
        return None
    if slot.turned is None:
        slot.turned = n.arrange(1, "weight", "weight", to_array(initial).T)
    return slot.turned


@op("MatMul")
def matmul(n: Node) -> Value:
    x = n.take(0, "weight")
    weight = _turned_weight(n)
    if weight is not None:  # x w^T over the last dimension
        sizes, out = n.shape(x), n.shape(weight)
        flat = x if len(sizes) == 2 else n.reshape(x, [OPEN, sizes[-1]])
        made = n.emit("linear", flat, weight)
        return made if len(sizes) == 2 else n.reshape(made, [*sizes[:-1], out[0]])
    y = n.take(1, "weight")
    ranks = len(n.shape(x)), len(n.shape(y))
    if min(ranks) < 2:
        n.unsupported(f"a product of values of {ranks[0]} and {ranks[1]} dimensions",
                      "2 or more")
    return n.emit("matmul", x, y)


@op("Gemm")
def gemm(n: Node) -> Value:
    """alpha A' B' + beta C"""
    alpha, beta = n.get("alpha", 1.0), n.get("beta", 1.0)
    x = n.take(0)
    if n.get("transA", 0):
        x = n.permute(x, (1, 0))
    if n.get("transB", 0):
        weight = n.take(1, "weight")
    else:
        turned = _turned_weight(n)
        weight = n.permute(n.take(1, "weight"), (1, 0)) if turned is None else turned
    bias = n.take_own(2, "bias", "bias") if n.has(2) else None
    direct = bias is not None and alpha == beta == 1 and len(n.shape(bias)) == 1
    made = n.emit("linear", x, weight, *([bias] if bias is not None and direct else []))
    if alpha != 1:
        made = n.emit("scale", made, value=alpha)
    if bias is not None and not direct:
        made = n.emit("add", made, bias if beta == 1 else n.emit("scale", bias, value=beta))
    return made


# --- norms ------------------------------------------------------------------------------

@op("BatchNormalization")
def batch_norm(n: Node) -> Value:
    values = [n.take(0), n.take_own(1, "weight", "weight"), n.take_own(2, "bias", "bias"),
              n.take_own(3, "buffer", "running_mean"), n.take_own(4, "buffer", "running_var"),
              n.buffer("num_batches_tracked", numpy.zeros((), numpy.int64))]
    return n.emit("batch_norm", *values, eps=n.get("epsilon", 1e-5),
                  momentum=1 - n.get("momentum", 0.9), affine=1, track_running_stats=1)


@op("InstanceNormalization")
def instance_norm(n: Node) -> Value:
    return n.emit("instance_norm", n.take(0), n.take_own(1, "weight", "weight"),
                  n.take_own(2, "bias", "bias"), eps=n.get("epsilon", 1e-5), affine=1)


def _channels(n: Node, i: int, role: str) -> Value:
    """A parameter of each channel, which may be a column (C, 1, 1)."""
    initial = n.initial(i)
    if initial is None or len(initial.dims) < 2:
        return n.take_own(i, role, role)
    return n.arrange(i, role, role, to_array(initial).reshape(-1))


@op("GroupNormalization")
def group_norm(n: Node) -> Value:
    x, weight, bias = n.take(0), _channels(n, 1, "weight"), _channels(n, 2, "bias")
    sizes, own = n.shape(x), n.shape(weight)
    if len(sizes) < 2 or len(own) != 1 or own[0] != sizes[1]:  # up to opset 20
        n.unsupported("a scale of groups", "one of each channel")
    return n.emit("group_norm", x, weight, bias, num_groups=n.get("num_groups", 0),
                  eps=n.get("epsilon", 1e-5))


@op("LayerNormalization")
def layer_norm(n: Node) -> Value:
    values = [n.take(0), n.take_own(1, "weight", "weight")]
    if n.has(2):
        values.append(n.take_own(2, "bias", "bias"))
    sizes = n.shape(values[0])
    axis = n.get("axis", -1) + (len(sizes) if n.get("axis", -1) < 0 else 0)
    if not 1 <= axis < len(sizes):
        n.refuse("SONDE_EINVAL", f"axis {axis} of {len(sizes)} dimensions",
                 "a dimension after that of the batch")
    return n.emit("layer_norm", *values, eps=n.get("epsilon", 1e-5),
                  normalized_shape=tuple(s.n for s in sizes[axis:]), elementwise_affine=1,
                  bias=len(values) > 2)


@op("PRelu")
def prelu(n: Node) -> Value:
    x, slope = n.take(0), n.take(1, "weight")
    count = math.prod(s.n for s in n.shape(slope))
    return n.emit("prelu", x, n.reshape(slope, [Size(count, count)]), num_parameters=count)


def fuse(importer: Importer) -> None:
    """torch writes a GroupNorm as Reshape (N, groups, -1), InstanceNormalization of ones and
    zeros, Reshape back, Mul by the weight (C, 1, 1), Add of the bias (C, 1, 1). Its last node is
    replaced by a GroupNormalization; the others then lead to nothing."""
    readers: dict[str, list[int]] = {name: [-1] for name in importer.outputs}
    for index, entry in enumerate(importer.entries):
        for name in entry.proto.input:
            readers.setdefault(name, []).append(index)

    def following(index: int | None, kind: str) -> int | None:
        """The only node that reads a node's output, of this op."""
        found = readers.get(importer.entries[index].proto.output[0], []) \
            if index is not None else []
        return found[0] if len(found) == 1 and found[0] >= 0 and \
            importer.entries[found[0]].proto.op_type == kind else None

    def producer(name: str) -> onnx.NodeProto | None:
        slot = importer.slots.get(name)
        return importer.entries[slot.producer].proto if slot and slot.producer >= 0 else None

    def numbers(name: str) -> Any:
        slot, node = importer.slots.get(name), producer(name)
        tensor = slot.initial if slot else None
        if tensor is None and node is not None and node.op_type == "Constant":
            tensor = next((a.t for a in node.attribute if a.name == "value"), None)
        return to_array(tensor) if tensor is not None else numpy.array([])

    def column(index: int) -> str | None:
        """The initializer among two inputs, (C, 1, 1)."""
        for name in importer.entries[index].proto.input:
            slot = importer.slots.get(name)
            dims = list(slot.initial.dims) if slot and slot.initial is not None else []
            if len(dims) >= 2 and set(dims[1:]) == {1}:
                return name
        return None

    for index, entry in enumerate(importer.entries):
        node = entry.proto
        if node.op_type != "InstanceNormalization" or len(node.input) != 3:
            continue
        mul = following(following(index, "Reshape"), "Mul")
        add = following(mul, "Add")
        before, ones, zeros = producer(node.input[0]), *map(numbers, node.input[1:])
        if mul is None or add is None or before is None or before.op_type != "Reshape" or \
                ones.size == 0 or ones.size != zeros.size or (ones != 1).any() or zeros.any():
            continue
        weight, bias = column(mul), column(add)
        if weight is None or bias is None:
            continue
        last = importer.entries[add].proto
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        fused = helper.make_node("GroupNormalization", [before.input[0], weight, bias],
                                 list(last.output), name=last.name, num_groups=int(ones.size),
                                 epsilon=epsilon)
        fused.metadata_props.extend(last.metadata_props)
        importer.entries[add] = Entry(fused)


# --- recurrent layers -------------------------------------------------------------------

# Kind; the engine's gates: where ONNX has them.
_CELLS = {"RNN": ("rnn", [0]), "LSTM": ("lstm", [0, 2, 3, 1]), "GRU": ("gru", [1, 0, 2])}


def _check_recurrent(n: Node) -> None:
    if n.op == "GRU" and n.get("linear_before_reset", 0) != 1:
        n.unsupported("linear_before_reset 0", "1, as PyTorch's")
    if n.get("layout", 0) or n.get("input_forget", 0) or "clip" in n.attributes:
        n.unsupported("layout 1, input_forget or clip", "neither")
    if n.has(4) or n.has(7):
        n.unsupported("lengths of sequences, or peepholes", "neither")
    for place, what in ((5, "a state to begin with"), (6, "a cell to begin with")):
        known = n.known(place)
        if n.has(place) and (known is None or known[0].any()):
            n.unsupported(what, "none, or zeros")


def _rows(n: Node, place: int, first: int, units: int, width: int, suffix: str) -> Value:
    """Rows of one direction in the order of the engine's gates: a weight of rank 2, or a bias of
    rank 1. Initializers are put in order once; values while the network runs."""
    order, bias = _CELLS[n.op][1], place == 3
    initial = n.initial(place)
    starts = [first + gate * units for gate in order]
    if initial is not None:
        array = to_array(initial).reshape(-1, width)
        array = numpy.concatenate([array[start:start + units] for start in starts])
        return n.arrange(place, suffix, "bias" if bias else "weight",
                         array.reshape(-1) if bias else array)
    x = n.take(place, "weight")
    sizes = n.shape(x)
    rows = math.prod(s.n for s in sizes) // width
    x = n.reshape(x, [Size(rows, rows), Size(width, width)][:1 if bias else 2])
    made = n.cut(x, 0, starts[0], starts[0] + units)
    for start in starts[1:]:
        made = n.emit("cat", made, n.cut(x, 0, start, start + units), dim=0)
    return made


@op("RNN", "LSTM", "GRU")
def recurrent(n: Node) -> list[Value | None]:
    """ONNX: X (T, N, I), W (D, G H, I), R (D, G H, H), B (D, 2 G H), with D directions and G
    gates; Y (T, D, N, H), Y_h (D, N, H). The engine: x (N, T, I), and of each direction w_ih
    (G H, I), w_hh, b_ih and b_hh; output (N, T, D H)."""
    kind, order = _CELLS[n.op]
    direction = n.get("direction", "forward")
    ways, backward = (2 if direction == "bidirectional" else 1), direction == "reverse"
    units, bias = n.get("hidden_size", 0), n.has(3)
    layer = next(k for k in range(100)
                 if n.importer.is_free(f"{n.module}.weight_ih_l{k}") or k == 99)
    x, sizes = data(n)
    _check_recurrent(n)
    if len(sizes) != 3 or not 1 <= units <= 1000000:
        n.refuse("SONDE_ESHAPE", f"another input, or a hidden_size of {units}",
                 "(T, N, I), and a hidden_size")
    x = n.permute(x, (1, 0, 2))
    values = [n.emit("flip", x, dims=1) if backward else x]
    own = len(order) * units
    for way in range(ways):
        end = f"l{layer}" + "_reverse" * (way == 1)
        values.append(_rows(n, 1, way * own, units, sizes[2].n, f"weight_ih_{end}"))
        values.append(_rows(n, 2, way * own, units, units, f"weight_hh_{end}"))
        for half, name in enumerate(("bias_ih_", "bias_hh_") if bias else ()):
            values.append(_rows(n, 3, (2 * way + half) * own, units, 1, name + end))
    relu = b"Relu" in n.attributes.get("activations", [])[:1]
    word = {"nonlinearity": "relu" if relu else "tanh"} if kind == "rnn" else {}
    states = n.emit(kind, *values, hidden_size=units, bias=bias, bidirectional=ways == 2, **word)
    states = n.emit("flip", states, dims=1) if backward else states
    return [_all_states(n, states, ways, units), _last_states(n, states, ways, units, backward)]


def _all_states(n: Node, states: Value, ways: int, units: int) -> Value | None:
    if not wanted(n, 0):
        return None
    sizes = n.shape(states)
    apart = n.reshape(states, [*sizes[:2], Size(ways, ways), Size(units, units)])
    return n.permute(apart, (1, 2, 0, 3))


def _last_states(n: Node, states: Value, ways: int, units: int, backward: bool) -> Value | None:
    """The last state of each direction, (D, N, H), of states (N, T, D H)."""
    made: Value | None = None
    for way in range(ways if wanted(n, 1) else 0):
        step = n.shape(states)[1].n - 1 if way == 0 and not backward else 0
        last = n.cut(states, 1, step, step + 1)
        last = n.cut(last, 2, way * units, (way + 1) * units) if ways > 1 else last
        last = n.permute(last, (1, 0, 2))
        made = last if made is None else n.emit("cat", made, last, dim=0)
    return made
