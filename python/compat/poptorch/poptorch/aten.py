"""PyTorch's ops as the engine's: one function for each op of a graph of torch.export.

A function takes the arguments of the op, with Values for tensors, and returns a Value. Lacks says
that the engine cannot do it. Numbers are PyTorch's: the reductions of losses, for example, are 0
none, 1 mean, 2 sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch


class Lacks(Exception):
    """The engine cannot do an op."""


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
                raise Lacks(f"{_short(value.dtype)} (expected float32)")
        return self.add(kind, values, settings)

    def show(self, value: Value, title: str, gradient: bool, layout: tuple[Any, ...]) -> Value:
        raise NotImplementedError

    def mark_loss(self, value: Value) -> Value:
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
        return self.add("transpose", [x], {"dims": tuple(places)}, x.dtype)

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

    def scaled(self, x: Value, factor: float) -> Value:
        return x if factor == 1 else self.do("scale", x, value=float(factor))


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


def _short(dtype: torch.dtype) -> str:
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
    expect(dtype in (None, torch.float32), f"dtype={dtype}")


# --- layers ---------------------------------------------------------------------------------------


@op("linear")
def linear(b: Builder, x: Value, weight: Value, bias: Value | None = None) -> Value:
    expect(len(weight.shape) == 2, "a weight without two dimensions")
    flat = b.reshape(x, (-1, x.shape[-1]))
    made = b.do("linear", flat, weight, *([] if bias is None else [bias]))
    return b.reshape(made, (*x.shape[:-1], weight.shape[0]))


@op("addmm")
def addmm(b: Builder, bias: Value, x: Value, weight: Value, *, beta: float = 1,
          alpha: float = 1) -> Value:
    product = b.scaled(b.do("linear", x, b.permute(weight, (1, 0))), alpha)
    return b.do("add", product, b.scaled(bias, beta))


@op("mm", "matmul")
def matmul(b: Builder, x: Value, y: Value) -> Value:
    expect(len(x.shape) >= 2 and len(y.shape) == 2,
           f"a product of {x.shape} and {y.shape}")
    return linear(b, x, b.permute(y, (1, 0)))


@op("conv2d")
def conv2d(b: Builder, x: Value, weight: Value, bias: Value | None = None, stride: Any = 1,
           padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Value:
    expect(len(x.shape) == 4, "an input without a batch")
    if isinstance(padding, str):
        expect(padding == "valid", f"padding={padding!r}")
        padding = 0
    return b.do("conv2d", x, weight, *([] if bias is None else [bias]), stride=pair(stride),
                padding=pair(padding), dilation=pair(dilation), groups=groups)


@op("conv1d")
def conv1d(b: Builder, x: Value, weight: Value, bias: Value | None = None, stride: Any = 1,
           padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Value:
    expect(len(x.shape) == 3 and not isinstance(padding, str), "such a conv1d")
    n, c, length = x.shape
    made = conv2d(b, b.reshape(x, (n, c, 1, length)),
                  b.reshape(weight, (*weight.shape[:2], 1, weight.shape[2])), bias,
                  (1, pair(stride)[0]), (0, pair(padding)[0]), (1, pair(dilation)[0]), groups)
    return b.reshape(made, (*made.shape[:2], made.shape[3]))


@op("max_pool2d")
def max_pool2d(b: Builder, x: Value, kernel: Any, stride: Any = (), padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False) -> Value:
    expect(len(x.shape) == 4 and not ceil_mode, "ceil_mode, or an input without a batch")
    return b.do("max_pool2d", x, kernel_size=pair(kernel), stride=pair(stride or kernel),
                padding=pair(padding), dilation=pair(dilation))


@op("avg_pool2d")
def avg_pool2d(b: Builder, x: Value, kernel: Any, stride: Any = (), padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True,
               divisor_override: int | None = None) -> Value:
    expect(len(x.shape) == 4 and not ceil_mode and divisor_override is None,
           "ceil_mode, divisor_override, or an input without a batch")
    return b.do("avg_pool2d", x, kernel_size=pair(kernel), stride=pair(stride or kernel),
                padding=pair(padding), count_include_pad=int(count_include_pad))


def over_width(b: Builder, x: Value, pool: Function, kernel: Any, stride: Any, padding: Any,
               *rest: Any) -> Value:
    """A pool of one dimension as one of two."""
    expect(len(x.shape) == 3, "an input without a batch")
    n, c, length = x.shape
    made = pool(b, b.reshape(x, (n, c, 1, length)), (1, pair(kernel)[0]),
                (1, pair(stride or kernel)[0]), (0, pair(padding)[0]), *rest)
    return b.reshape(made, (n, c, made.shape[3]))


@op("max_pool1d")
def max_pool1d(b: Builder, x: Value, kernel: Any, stride: Any = (), padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False) -> Value:
    return over_width(b, x, max_pool2d, kernel, stride, padding, (1, pair(dilation)[0]),
                      ceil_mode)


@op("avg_pool1d")
def avg_pool1d(b: Builder, x: Value, kernel: Any, stride: Any = (), padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True) -> Value:
    return over_width(b, x, avg_pool2d, kernel, stride, padding, ceil_mode, count_include_pad)


@op("adaptive_avg_pool2d")
def adaptive_avg_pool2d(b: Builder, x: Value, size: Any) -> Value:
    expect(len(x.shape) == 4, "an input without a batch")
    return b.do("adaptive_avg_pool2d", x, output_size=pair(size))


@op("dropout", "dropout_")
def dropout(b: Builder, x: Value, p: float, train: bool) -> Value:
    if not train or p == 0:
        return x
    expect(b.training, "dropout in training mode in a model for inference")
    return b.do("dropout", x, p=float(p))


# --- norms ----------------------------------------------------------------------------------------


def both(weight: Value | None, bias: Value | None) -> list[Value]:
    expect((weight is None) == (bias is None), "a norm with a weight or a bias alone")
    return [] if weight is None or bias is None else [weight, bias]


@op("group_norm")
def group_norm(b: Builder, x: Value, groups: int, weight: Value | None = None,
               bias: Value | None = None, eps: float = 1e-5, cudnn: bool = True) -> Value:
    return b.do("group_norm", x, *both(weight, bias), groups=groups, eps=eps)


@op("layer_norm")
def layer_norm(b: Builder, x: Value, shape: Sequence[int], weight: Value | None = None,
               bias: Value | None = None, eps: float = 1e-5, cudnn: bool = True) -> Value:
    expect(weight is not None or bias is None, "a norm with a bias alone")
    values = [value for value in (weight, bias) if value is not None]
    return b.do("layer_norm", x, *values, normalized_shape=tuple(shape), eps=eps,
                elementwise_affine=int(weight is not None), bias=int(bias is not None))


@op("rms_norm")
def rms_norm(b: Builder, x: Value, shape: Sequence[int], weight: Value | None = None,
             eps: float | None = None) -> Value:
    return b.do("rms_norm", x, *([] if weight is None else [weight]),
                normalized_shape=tuple(shape), elementwise_affine=int(weight is not None),
                eps=torch.finfo(torch.float32).eps if eps is None else eps)


@op("instance_norm")
def instance_norm(b: Builder, x: Value, weight: Value | None, bias: Value | None,
                  mean: Value | None, variance: Value | None, use_input: bool, momentum: float,
                  eps: float, cudnn: bool) -> Value:
    expect(mean is None and use_input, "instance_norm with running statistics")
    values = both(weight, bias)
    return b.do("instance_norm", x, *values, eps=eps, affine=int(bool(values)))


@op("batch_norm")
def batch_norm(b: Builder, x: Value, weight: Value | None, bias: Value | None,
               mean: Value | None, variance: Value | None, train: bool,
               momentum: float | None, eps: float, cudnn: bool,
               tracked: Value | None = None) -> Value:
    values = both(weight, bias)
    if train != b.training:
        expect(not train and mean is not None, "batch_norm of the batch in a model for inference")
        return frozen_norm(b, x, values, mean, variance, eps)
    track = mean is not None
    if track:
        expect(tracked is not None, "batch_norm without num_batches_tracked")
    kept = [value for value in (mean, variance, tracked) if value is not None and track]
    return b.add("batch_norm", [x, *values, *kept],
                 {"eps": eps, "momentum": momentum, "affine": int(bool(values)),
                  "track_running_stats": int(track)})


def frozen_norm(b: Builder, x: Value, values: list[Value], mean: Any, variance: Any,
                eps: float) -> Value:
    """Running statistics in training."""
    shape = (1, -1, *[1] * (len(x.shape) - 2))
    spread = b.do("rsqrt", b.do("add", variance, b.full((), eps)))
    made = b.do("mul", b.do("sub", x, b.reshape(mean, shape)), b.reshape(spread, shape))
    if values:
        made = b.do("mul", made, b.reshape(values[0], shape))
        made = b.do("add", made, b.reshape(values[1], shape))
    return made


# --- activations ----------------------------------------------------------------------------------

for _name in ("relu", "sigmoid", "tanh", "silu", "mish", "selu", "hardsigmoid", "hardswish", "neg",
              "abs", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "square", "reciprocal",
              "sin", "cos", "erf", "relu6", "tanhshrink", "softsign"):
    def _simple(b: Builder, x: Value, _kind: str = _name) -> Value:
        return b.do(_kind, x)

    op(_name, _name + "_")(_simple)


@op("log_sigmoid")
def log_sigmoid(b: Builder, x: Value) -> Value:
    return b.do("logsigmoid", x)


@op("gelu", "gelu_")
def gelu(b: Builder, x: Value, *, approximate: str = "none") -> Value:
    return b.do("gelu", x, approximate=approximate)


@op("leaky_relu", "leaky_relu_")
def leaky_relu(b: Builder, x: Value, slope: float = 0.01) -> Value:
    return b.do("leaky_relu", x, negative_slope=slope)


@op("elu", "elu_")
def elu(b: Builder, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    expect(scale == 1 and input_scale == 1, "elu with scales")
    return b.do("elu", x, alpha=alpha)


@op("celu", "celu_")
def celu(b: Builder, x: Value, alpha: float = 1) -> Value:
    return b.do("celu", x, alpha=alpha)


@op("hardtanh", "hardtanh_")
def hardtanh(b: Builder, x: Value, low: float = -1, high: float = 1) -> Value:
    return b.do("hardtanh", x, min_val=low, max_val=high)


@op("hardshrink")
def hardshrink(b: Builder, x: Value, lambd: float = 0.5) -> Value:
    return b.do("hardshrink", x, lambd=lambd)


@op("softshrink")
def softshrink(b: Builder, x: Value, lambd: float = 0.5) -> Value:
    return b.do("softshrink", x, lambd=lambd)


@op("softplus")
def softplus(b: Builder, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    return b.do("softplus", x, beta=beta, threshold=threshold)


@op("threshold", "threshold_")
def threshold(b: Builder, x: Value, limit: float, value: float) -> Value:
    return b.do("threshold", x, threshold=limit, value=value)


@op("prelu")
def prelu(b: Builder, x: Value, weight: Value) -> Value:
    return b.do("prelu", x, weight, num_parameters=math.prod(weight.shape))


@op("softmax.int", "_softmax")
def softmax(b: Builder, x: Value, dim: int, dtype: Any = None) -> Value:
    plain_dtype(dtype or None)
    return b.do("softmax", x, dim=dim)


@op("log_softmax.int", "_log_softmax")
def log_softmax(b: Builder, x: Value, dim: int, dtype: Any = None) -> Value:
    plain_dtype(dtype or None)
    return b.do("log_softmax", x, dim=dim)


# --- losses ---------------------------------------------------------------------------------------

_REDUCTION = ("none", "mean", "sum")


@op("nll_loss_nd", "nll_loss")
def nll_loss(b: Builder, x: Value, target: Value, weight: Value | None = None,
             reduction: int = 1, ignore_index: int = -100, smoothing: float = 0.0) -> Value:
    expect(len(x.shape) == 2, f"a loss over {len(x.shape)} dimensions")
    expect(reduction != 0, "reduction='none'")
    expect(target.dtype is torch.int64, f"labels of {_short(target.dtype)} (expected int64)")
    expect(x.dtype is torch.float32, f"{_short(x.dtype)} (expected float32)")
    mean = int(reduction == 1)
    if weight is None and smoothing == 0 and ignore_index < 0 and not b.ignores:
        return b.add("nll", [x, target], {"mean": mean})
    return b.add("nll_weighted", [x, target, *([] if weight is None else [weight])],
                 {"mean": mean, "label_smoothing": smoothing, "ignores": 1,
                  "ignore_index": ignore_index})


@op("cross_entropy_loss")
def cross_entropy(b: Builder, x: Value, target: Value, weight: Value | None = None,
                  reduction: int = 1, ignore_index: int = -100, smoothing: float = 0.0) -> Value:
    expect(target.dtype is torch.int64, "targets that are probabilities")
    return nll_loss(b, b.do("log_softmax", x, dim=1), target, weight, reduction, ignore_index,
                    smoothing)


def same_shape(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    expect(x.shape == y.shape, f"a loss of {x.shape} and {y.shape}")
    return x, y


for _name in ("mse_loss", "l1_loss", "soft_margin_loss"):
    def _loss(b: Builder, x: Value, y: Value, reduction: int = 1, _kind: str = _name) -> Value:
        return b.do(_kind, *same_shape(b, x, y), reduction=_REDUCTION[reduction])

    op(_name)(_loss)


@op("smooth_l1_loss")
def smooth_l1_loss(b: Builder, x: Value, y: Value, reduction: int = 1, beta: float = 1.0) -> Value:
    return b.do("smooth_l1_loss", *same_shape(b, x, y), reduction=_REDUCTION[reduction], beta=beta)


@op("huber_loss")
def huber_loss(b: Builder, x: Value, y: Value, reduction: int = 1, delta: float = 1.0) -> Value:
    return b.do("huber_loss", *same_shape(b, x, y), reduction=_REDUCTION[reduction], delta=delta)


@op("binary_cross_entropy")
def binary_cross_entropy(b: Builder, x: Value, y: Value, weight: Any = None,
                         reduction: int = 1) -> Value:
    expect(weight is None, "a loss with weights")
    return b.do("binary_cross_entropy", *same_shape(b, x, y), reduction=_REDUCTION[reduction])


@op("binary_cross_entropy_with_logits")
def bce_with_logits(b: Builder, x: Value, y: Value, weight: Any = None, pos_weight: Any = None,
                    reduction: int = 1) -> Value:
    expect(weight is None and pos_weight is None, "a loss with weights")
    return b.do("binary_cross_entropy_with_logits", *same_shape(b, x, y),
                reduction=_REDUCTION[reduction])


@op("kl_div")
def kl_div(b: Builder, x: Value, y: Value, reduction: int = 1, *, log_target: bool = False
           ) -> Value:
    expect(not log_target, "log_target=True")
    return b.do("kl_div", *same_shape(b, x, y), reduction=_REDUCTION[reduction])


# --- arithmetic -----------------------------------------------------------------------------------


@op("add", "add_")
def add(b: Builder, x: Any, y: Any, *, alpha: float = 1) -> Value:
    if not isinstance(y, Value):
        y, alpha = y * alpha, 1
    return b.do("add", b.tensor(x), b.scaled(b.tensor(y), alpha))


@op("sub", "sub_", "subtract")
def sub(b: Builder, x: Any, y: Any, *, alpha: float = 1) -> Value:
    if not isinstance(y, Value):
        return add(b, x, -y * alpha)
    return b.do("sub", b.tensor(x), b.scaled(y, alpha))


@op("rsub")
def rsub(b: Builder, x: Value, y: Any, alpha: float = 1) -> Value:
    return b.do("sub", b.tensor(y), b.scaled(x, alpha))


@op("mul", "mul_", "multiply")
def mul(b: Builder, x: Any, y: Any) -> Value:
    if not isinstance(y, Value):
        expect(isinstance(y, (int, float)), f"a factor of type {type(y).__name__}")
        return b.scaled(x, y)
    return b.do("mul", b.tensor(x), y)


@op("div.Tensor", "div.Scalar", "div_.Tensor", "div_.Scalar", "true_divide", "divide.Tensor")
def div(b: Builder, x: Any, y: Any) -> Value:
    return b.do("div", b.tensor(x), b.tensor(y))


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
    return x if wanted == x.shape else b.do("broadcast", x, shape=wanted)


@op("expand_as")
def expand_as(b: Builder, x: Value, like: Value) -> Value:
    return expand(b, x, like.shape)


@op("cat", "concat", "concatenate")
def cat(b: Builder, parts: Sequence[Value], dim: int = 0) -> Value:
    made = parts[0]
    for part in parts[1:]:
        made = b.do("cat", made, part, dim=dim)
    return made


@op("stack")
def stack(b: Builder, parts: Sequence[Value], dim: int = 0) -> Value:
    return cat(b, [unsqueeze(b, part, dim) for part in parts], dim)


@op("clone", "contiguous", "alias", "lift_fresh_copy", "_to_copy", "to.dtype", "to.device", "type_as",
    "to.dtype_layout", "view.dtype")
def same(b: Builder, x: Value, *rest: Any, **keys: Any) -> Value:
    for given in (*rest, *keys.values()):
        expect(not isinstance(given, torch.dtype) or given is x.dtype,
               f"a conversion to {given}")
        expect(not isinstance(given, Value) or given.dtype is x.dtype, "a conversion")
    return x


@op("detach")
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
