"""ONNX ops that are one op of the engine, or few, without tensors of their own: activations,
arithmetic, comparisons, reductions, losses."""

import math
import sys

import numpy

from .reader import DTYPES, FLOATS, Node, Value, type_name
from .table import data, floats, op, wanted

# --- one op of one input ----------------------------------------------------------------

# ONNX's name: the engine's kind, and its keys with (attribute, fallback).
_PLAIN: dict[str, tuple[str, dict[str, tuple[str, float]]]] = {
    "Relu": ("relu", {}), "Sigmoid": ("sigmoid", {}), "Tanh": ("tanh", {}),
    "LeakyRelu": ("leaky_relu", {"negative_slope": ("alpha", 0.01)}),
    "Elu": ("elu", {"alpha": ("alpha", 1.0)}), "Celu": ("celu", {"alpha": ("alpha", 1.0)}),
    "Selu": ("selu", {}), "HardSwish": ("hardswish", {}), "Mish": ("mish", {}),
    "ThresholdedRelu": ("threshold", {"threshold": ("alpha", 1.0), "value": ("", 0.0)}),
    "Softplus": ("softplus", {}), "Softsign": ("softsign", {}), "Neg": ("neg", {}),
    "Abs": ("abs", {}), "Exp": ("exp", {}), "Log": ("log", {}), "Sqrt": ("sqrt", {}),
    "Reciprocal": ("reciprocal", {}), "Sin": ("sin", {}), "Cos": ("cos", {}), "Erf": ("erf", {}),
    "Tan": ("tan", {}), "Asin": ("asin", {}), "Acos": ("acos", {}), "Atan": ("atan", {}),
    "Sinh": ("sinh", {}), "Cosh": ("cosh", {}), "Asinh": ("asinh", {}), "Atanh": ("atanh", {}),
    "Sign": ("sign", {}), "Floor": ("floor", {}), "Ceil": ("ceil", {}), "Round": ("round", {}),
    "Softmax": ("softmax", {"dim": ("axis", -1)}),
    "LogSoftmax": ("log_softmax", {"dim": ("axis", -1)}),
}


@op(*_PLAIN)
def plain(n: Node) -> Value:
    kind, keys = _PLAIN[n.op]
    return n.emit(kind, *floats(n, n.take(0)),
                  **{key: n.get(name, fallback) for key, (name, fallback) in keys.items()})


@op("Identity")
def identity(n: Node) -> Value | None:
    source, name = n.slot(0), n.proto.output[0]
    if source and source.initial is not None and "." in name and \
            source.initial.data_type in FLOATS:
        # torch's older exporter writes equal initializers once: each is a parameter of its own
        slot = n.importer.slots[name]
        slot.initial, slot.ready = source.initial, True
        return None
    return n.take(0)


@op("Gelu")
def gelu(n: Node) -> Value:
    return n.emit("gelu", n.take(0),
                  approximate="tanh" if n.get("approximate", "none") == "tanh" else "none")


@op("HardSigmoid")
def hard_sigmoid(n: Node) -> Value:
    alpha, beta, x = n.get("alpha", 0.2), n.get("beta", 0.5), n.take(0)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return n.emit("hardsigmoid", x)
    x = n.emit("add", n.emit("scale", x, value=alpha), n.fill(beta))
    return n.emit("clamp", x, min=0, max=1)


@op("Clip")
def clip(n: Node) -> Value:
    return n.emit("clamp", n.take(0), min=n.number(1, "min", -math.inf),
                  max=n.number(2, "max", math.inf))


@op("Dropout")
def dropout(n: Node) -> Value:
    return n.emit("dropout", n.take(0), p=n.number(1, "ratio", 0.5))


@op("Cast")
def cast(n: Node) -> Value:
    dtype = DTYPES.get(n.get("to", 0))
    if dtype is None:
        n.unsupported(f"a conversion to {type_name(n.get('to', 0))}", "a float, int64 or bool")
    return n.to(n.take(0), dtype)


@op("CastLike")
def cast_like(n: Node) -> Value:
    return n.to(n.take(0), n.dtype(n.take(1)))


@op("Shrink")
def shrink(n: Node) -> Value:
    """Without a shift a hard shrink, with one of lambd a soft one."""
    lambd, bias = n.get("lambd", 0.5), n.get("bias", 0.0)
    if bias not in (0.0, lambd):
        n.unsupported(f"a bias of {bias:g}", "0, or lambd")
    return n.emit("hardshrink" if bias == 0 else "softshrink", n.take(0), lambd=lambd)


# --- two inputs and more ----------------------------------------------------------------

def _number_at(n: Node, i: int) -> float | None:
    """One number that an operand is everywhere, and that no parameter is."""
    known = n.known(i)
    if known is None or known[0].size != 1 or known[0].dtype.kind not in "f" or \
            known[0].shape != known[1].shape or known[0].flat[0] != known[1].flat[0]:
        return None
    return float(numpy.float32(known[0].flat[0]))


def _scaled(n: Node, divides: bool) -> Value | None:
    """x times a number, for a Mul or a Div by one that does not widen x; None: it is none."""
    place = 1 if _number_at(n, 1) is not None else 0
    number = _number_at(n, place)
    if number is None or (place == 0 and divides) or n.known(1 - place) is not None:
        return None
    x = n.take(1 - place)
    known = n.known(place)
    if known is None or len(n.shape(x)) < known[0].ndim or n.dtype(x) != "float32" or \
            (divides and (number == 0 or 1 / number * number != 1)):
        return None
    return n.emit("scale", x, value=1 / number if divides else number)


@op("Add", "Sub", "Mul", "Div")
def arithmetic(n: Node) -> Value:
    if n.op in ("Mul", "Div"):
        made = _scaled(n, n.op == "Div")
        if made is not None:
            return made
    suffix = "weight" if n.op == "Mul" else "bias"  # the scale of a norm, or a bias
    a, b = (n.take_own(i, "activation", suffix) for i in (0, 1))
    kind = n.op.lower()
    if n.dtype(a) == n.dtype(b) == "int64":  # exact up to 2^24
        made = n.emit(kind, n.to(a, "float32"), n.to(b, "float32"))
        if kind == "div":
            made = n.emit("trunc", made)
        return n.to(made, "int64")
    return n.emit(kind, *floats(n, a, b))


@op("Sum", "Mean", "Max", "Min")
def many(n: Node) -> Value:
    kind = {"Max": "maximum", "Min": "minimum"}.get(n.op, "add")
    made = n.take(0)
    for i in range(1, len(n.proto.input)):
        made = n.emit(kind, made, n.take(i))
    return n.emit("scale", made, value=1 / len(n.proto.input)) if n.op == "Mean" else made


@op("Mod")
def mod(n: Node) -> Value:
    """x - y floor(x / y), or as C's fmod."""
    x, y = floats(n, n.take(0), n.take(1))
    times = n.emit("trunc" if n.get("fmod", 0) else "floor", n.emit("div", x, y))
    return n.emit("sub", x, n.emit("mul", times, y))


@op("Pow")
def power(n: Node) -> Value:
    x, known = n.take(0), n.known(1)
    if known is None or known[0].size != 1:
        return n.emit("float_power", *floats(n, x, n.take(1)))
    exponent = n.number(1, "the exponent", 1)
    return n.emit("square", x) if exponent == 2 else n.emit("pow", x, exponent=exponent)


_COMPARED = {"Equal": "eq", "Less": "lt", "LessOrEqual": "le", "Greater": "gt",
             "GreaterOrEqual": "ge"}


@op(*_COMPARED)
def compare(n: Node) -> Value:
    """Of floats, or of whole numbers; bools are compared as 0 and 1."""
    a, b = n.take(0), n.take(1)
    if not n.dtype(a) == n.dtype(b) == "int64":
        a, b = n.to(a, "float32"), n.to(b, "float32")
    return n.emit(_COMPARED[n.op], a, b)


@op("And", "Or", "Xor", "Not")
def logic(n: Node) -> Value:
    """Of numbers that are 0 and 1."""
    kind = {"And": "mul", "Or": "add", "Xor": "ne", "Not": "eq"}[n.op]
    a = n.to(n.take(0), "float32")
    b = n.fill(0) if n.op == "Not" else n.to(n.take(1), "float32")
    return n.to(n.emit(kind, a, b), "bool")


@op("Where")
def where(n: Node) -> Value:
    return n.emit("where", n.take(0), n.take(1), n.take(2))


# --- reductions -------------------------------------------------------------------------

# What is done before, the reduction, what is done after.
_REDUCED = {"ReduceMean": ("", "mean", ""), "ReduceSum": ("", "sum", ""),
            "ReduceMax": ("", "amax", ""), "ReduceMin": ("", "amin", ""),
            "ReduceL1": ("abs", "sum", ""), "ReduceL2": ("square", "sum", "sqrt"),
            "ReduceSumSquare": ("square", "sum", ""), "ReduceLogSum": ("", "sum", "log"),
            "ReduceLogSumExp": ("", "logsumexp", "")}


@op(*_REDUCED)
def reduce(n: Node) -> Value:
    """The axes are an attribute, or from opset 18 (13 of ReduceSum) the second input."""
    x, sizes = data(n)
    floats(n, x)
    axes = n.whole(1, "axes") if n.has(1) else list(n.get("axes", []))
    if not axes and n.get("noop_with_empty_axes", 0):
        n.unsupported("it has no axes", "axes")
    before, kind, after = _REDUCED[n.op]
    x = n.emit(before, x) if before else x
    dims = {"dim": tuple(n.axis(axis, len(sizes)) for axis in axes)} if axes else {}
    x = n.emit(kind, x, keepdim=n.get("keepdims", 1) != 0, **dims)
    return n.emit(after, x) if after else x


@op("ArgMax", "ArgMin")
def place_of(n: Node) -> Value:
    if n.get("select_last_index", 0):
        n.unsupported("select_last_index is 1", "0")
    return n.emit(n.op.lower(), n.take(0), dim=n.get("axis", 0),
                  keepdim=n.get("keepdims", 1) != 0)


# --- losses -----------------------------------------------------------------------------

@op("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def class_loss(n: Node) -> Value:
    """Of log-probabilities (N, C ...) and classes (N ...), and weights of classes. torch's
    exporter writes SoftmaxCrossEntropyLoss after a LogSoftmax, over another axis even: the loss
    is then of the log-probabilities as they are."""
    reduction = n.get("reduction", "mean")
    if reduction == "none":
        n.unsupported("reduction is 'none'", "mean or sum")
    if wanted(n, 1):
        n.unsupported("its output of log-probabilities", "the loss alone")
    x, target = n.take(0), n.to(n.take(1), "int64")
    slot = n.slot(0)
    if n.op == "SoftmaxCrossEntropyLoss":
        producer = n.importer.entries[slot.producer].proto \
            if slot and slot.producer >= 0 else None
        if producer is not None and producer.op_type == "LogSoftmax":
            axis = next((a.i for a in producer.attribute if a.name == "axis"), -1)
            if axis % len(n.shape(x)) != 1:
                print(f"{n.importer.path}: node '{n.proto.name or n.proto.output[0]}': "
                      f"SoftmaxCrossEntropyLoss of a LogSoftmax over axis {axis}: built as the "
                      "negative log-likelihood of those log-probabilities", file=sys.stderr)
        else:
            x = n.emit("log_softmax", x, dim=1)
    if n.has(2) or "ignore_index" in n.attributes or len(n.shape(x)) > 2:
        weight = [n.take(2)] if n.has(2) else []
        ignores = {"ignores": 1, "ignore_index": n.get("ignore_index", 0)} \
            if "ignore_index" in n.attributes else {}
        return n.emit("nll_weighted", x, target, *weight, mean=reduction == "mean", **ignores)
    return n.emit("nll", x, target, mean=reduction == "mean")
