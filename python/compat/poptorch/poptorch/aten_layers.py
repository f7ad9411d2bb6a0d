"""PyTorch's ops as the engine's: layers, norms, activations, recurrent networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .aten import cat, chunk, expand, part, select, stack, total, transpose
from .builder import Builder, Function, Lacks, Value, axis, expect, op, pair, plain_dtype, short


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


@op("mm", "matmul", "bmm")
def matmul(b: Builder, x: Value, y: Value) -> Value:
    expect(len(x.shape) >= 2 and len(y.shape) >= 2, f"a product of {x.shape} and {y.shape}")
    return b.do("matmul", x, y)


@op("baddbmm")
def baddbmm(b: Builder, start: Value, x: Value, y: Value, *, beta: float = 1, alpha: float = 1
            ) -> Value:
    return b.do("add", b.scaled(b.do("matmul", x, y), alpha), b.scaled(start, beta))


@op("embedding")
def embedding(b: Builder, weight: Value, tokens: Value, padding: int = -1, scale: bool = False,
              sparse: bool = False) -> Value:
    expect(not scale and tokens.dtype is torch.int64, "scale_grad_by_freq, or tokens that are not "
           "int64")
    settings: dict[str, Any] = {"num_embeddings": weight.shape[0],
                                "embedding_dim": weight.shape[1]}
    if padding >= 0:
        settings["padding_idx"] = padding
    return b.add("embedding", [tokens, weight], settings)


_MODES = ("sum", "mean", "max")


@op("embedding_bag.padding_idx", "embedding_bag.default")
def embedding_bag(b: Builder, weight: Value, tokens: Value, offsets: Value, scale: bool = False,
                  mode: int = 0, sparse: bool = False, weights: Value | None = None,
                  last: bool = False, padding: int | None = None) -> list[Value | None]:
    expect(not scale and weights is None and tokens.dtype is torch.int64,
           "scale_grad_by_freq, per_sample_weights, or tokens that are not int64")
    begins = b.kept(offsets)
    expect(begins is not None, "bags whose offsets are no constant")
    assert begins is not None
    bags = len(begins) - int(last)
    length = tokens.shape[0] // max(bags, 1)
    expect(bags > 0 and torch.equal(begins[:bags], torch.arange(bags) * length) and
           length * bags == tokens.shape[0], "bags of different lengths")
    settings: dict[str, Any] = {"num_embeddings": weight.shape[0], "mode": _MODES[mode],
                                "embedding_dim": weight.shape[1]}
    if padding is not None and padding >= 0:
        settings["padding_idx"] = padding
    made = b.add("embedding_bag", [b.reshape(tokens, (bags, length)), weight], settings)
    return [made, None, None, None]


@op("scaled_dot_product_attention")
def attention(b: Builder, q: Value, k: Value, v: Value, mask: Value | None = None,
              dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
              enable_gqa: bool = False) -> Value:
    expect(not enable_gqa, "enable_gqa")
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    expect(dropout_p == 0 or b.training, "dropout in training mode in a model for inference")
    if factor > 0 and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        for value in (q, k, v):
            expect(value.dtype is torch.float32, f"{short(value.dtype)} (expected float32)")
        return b.add("scaled_dot_product_attention", [q, k, v, *([] if mask is None else [mask])],
                     {"is_causal": int(is_causal), "scale": factor, "dropout_p": dropout_p})
    scores = b.scaled(b.do("matmul", q, transpose(b, k, -2, -1)), factor)
    if is_causal:
        later = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
        scores = b.add("masked_fill", [scores, b.constant(later)], {"value": -math.inf})
    if mask is not None and mask.dtype is torch.bool:
        raise Lacks("attention with a mask of bool")
    if mask is not None:
        scores = b.do("add", scores, mask)
    weights = dropout(b, b.do("softmax", scores, dim=-1), dropout_p, dropout_p > 0)
    return b.do("matmul", weights, v)


def string_padding(kind: str, weight: Value, dilation: tuple[int, int]) -> tuple[int, int]:
    spans = [d * (n - 1) for d, n in zip(dilation, weight.shape[2:])]
    expect(kind == "valid" or all(span % 2 == 0 for span in spans), f"padding={kind!r}")
    return (0, 0) if kind == "valid" else (spans[0] // 2, spans[1] // 2)


@op("conv2d")
def conv2d(b: Builder, x: Value, weight: Value, bias: Value | None = None, stride: Any = 1,
           padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Value:
    expect(len(x.shape) == 4, "an input without a batch")
    if isinstance(padding, str):
        padding = string_padding(padding, weight, pair(dilation))
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
    expect(len(x.shape) == 4, "an input without a batch")
    if ceil_mode:
        x = room_for_last(b, x, pair(kernel), pair(stride or kernel), pair(padding), pair(dilation))
    return b.do("max_pool2d", x, kernel_size=pair(kernel), stride=pair(stride or kernel),
                padding=pair(padding), dilation=pair(dilation))


def room_for_last(b: Builder, x: Value, kernel: Any, stride: Any, padding: Any, dilation: Any
                  ) -> Value:
    """The input of a max pool with a border of -inf for the last windows of ceil_mode, which begin
    inside and reach beyond."""
    for i, dim in enumerate((2, 3)):
        span, size = dilation[i] * (kernel[i] - 1) + 1, x.shape[dim] + 2 * padding[i]
        count = -(-(size - span) // stride[i]) + 1
        if (count - 1) * stride[i] >= x.shape[dim] + padding[i]:
            count -= 1
        more = (count - 1) * stride[i] + span - size
        if more > 0:
            border = list(x.shape)
            border[dim] = more
            x = b.do("cat", x, b.full(border, -math.inf), dim=dim)
    return x


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
    return b.do("group_norm", x, *both(weight, bias), num_groups=groups, eps=eps)


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


# --- recurrent networks ---------------------------------------------------------------------------


def recurrent(b: Builder, name: str, x: Value, weights: Sequence[Value], bias: bool, layers: int,
              dropout_p: float, train: bool, both_ways: bool, batch_first: bool
              ) -> list[Value | None]:
    """The outputs of all steps, and the last state, for an initial state of zero."""
    expect(len(x.shape) == 3, "an input without a batch")
    expect(not train or dropout_p == 0 or layers == 1, "dropout between layers")
    kind, _, function = name.partition("_")
    units = weights[1].shape[1]
    settings: dict[str, Any] = {"hidden_size": units, "num_layers": layers, "bias": int(bias),
                                "bidirectional": int(both_ways)}
    if function:
        settings["nonlinearity"] = function
    given = x if batch_first else b.permute(x, (1, 0, 2))
    states = b.add(kind, [given, *weights], settings)
    last = None
    if layers == 1:
        parts = [select(b, part(b, states, 2, 0, units), 1, given.shape[1] - 1)]
        if both_ways:
            parts.append(select(b, part(b, states, 2, units, 2 * units), 1, 0))
        last = stack(b, parts)
    return [states if batch_first else b.permute(states, (1, 0, 2)), last, None]


for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    def _recurrent(b: Builder, x: Value, state: Any, weights: Sequence[Value], *rest: Any,
                   _kind: str = _name) -> list[Value | None]:
        expect(state is None, "a state to begin with")
        return recurrent(b, _kind, x, weights, *rest)

    op(_name + ".input")(_recurrent)


# --- cells and weights ----------------------------------------------------------------------------


def gates(b: Builder, x: Value, h: Value, weights: Sequence[Any], count: int
          ) -> tuple[list[Value], list[Value]]:
    """What the gates of a recurrent cell take of the input, and of the state."""
    into = [linear(b, part, weights[i], weights[2 + i] if len(weights) > 2 else None)
            for i, part in enumerate((x, h))]
    expect(len(x.shape) == 2, "a cell without a batch")
    return chunk(b, into[0], count, 1), chunk(b, into[1], count, 1)


@op("lstm_cell")
def lstm_cell(b: Builder, x: Value, state: Sequence[Value], *weights: Any) -> list[Value]:
    inputs, states = gates(b, x, state[0], weights, 4)
    i, f, g, o = [b.do("add", one, two) for one, two in zip(inputs, states)]
    kept = b.do("mul", b.do("sigmoid", f), state[1])
    c = b.do("add", kept, b.do("mul", b.do("sigmoid", i), b.do("tanh", g)))
    return [b.do("mul", b.do("sigmoid", o), b.do("tanh", c)), c]


@op("gru_cell")
def gru_cell(b: Builder, x: Value, h: Value, *weights: Any) -> Value:
    inputs, states = gates(b, x, h, weights, 3)
    reset = b.do("sigmoid", b.do("add", inputs[0], states[0]))
    update = b.do("sigmoid", b.do("add", inputs[1], states[1]))
    new = b.do("tanh", b.do("add", inputs[2], b.do("mul", reset, states[2])))
    return b.do("add", new, b.do("mul", update, b.do("sub", h, new)))


@op("rnn_tanh_cell")
def rnn_tanh_cell(b: Builder, x: Value, h: Value, *weights: Any) -> Value:
    inputs, states = gates(b, x, h, weights, 1)
    return b.do("tanh", b.do("add", inputs[0], states[0]))


@op("rnn_relu_cell")
def rnn_relu_cell(b: Builder, x: Value, h: Value, *weights: Any) -> Value:
    inputs, states = gates(b, x, h, weights, 1)
    return b.do("relu", b.do("add", inputs[0], states[0]))


@op("_weight_norm")
def weight_norm(b: Builder, v: Value, g: Value, dim: int = 0) -> Value:
    dims = tuple(i for i in range(len(v.shape)) if i != axis(dim, len(v.shape)))
    total = b.do("sum", b.do("square", v), dim=dims, keepdim=1)
    return b.do("mul", v, b.do("div", g, b.do("sqrt", total)))
