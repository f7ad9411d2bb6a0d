"""Names and attributes of operations: what docs/program.md calls a function of PyTorch."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch

LOSSES = frozenset((
    "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "ctc_loss",
    "cosine_embedding_loss", "margin_ranking_loss", "triplet_margin_loss", "hinge_embedding_loss",
    "gaussian_nll_loss", "poisson_nll_loss", "soft_margin_loss", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss"))
# Losses whose first two arguments may change places.
SYMMETRIC = frozenset(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"))
# Losses of two inputs and their targets.
OF_PAIRS = frozenset(("cosine_embedding_loss", "margin_ranking_loss"))

_ALIASES = {
    **dict.fromkeys(("view", "flatten", "unflatten", "reshape_as", "view_as", "ravel"), "reshape"),
    **dict.fromkeys(("permute", "t", "T", "mT", "H", "mH", "swapaxes", "swapdims", "movedim",
                     "moveaxis", "adjoint"), "transpose"),
    **dict.fromkeys(("getitem", "gather", "index_select", "select", "narrow", "take",
                     "take_along_dim"), "index"),
    **dict.fromkeys(("float", "double", "half", "bfloat16", "long", "int", "short", "bool", "type",
                     "type_as", "cpu", "cuda"), "to"),
    **dict.fromkeys(("concat", "concatenate"), "cat"),
    **dict.fromkeys(("truediv", "divide", "true_divide"), "div"),
    "multiply": "mul", "subtract": "sub", "negative": "neg", "absolute": "abs", "amax": "max",
    "amin": "min", "clip": "clamp", "data": "detach", "expand_as": "expand", "bmm": "matmul",
    "mm": "matmul", "special_softmax": "softmax", "special_log_softmax": "log_softmax",
    "zeros_like": "zeros", "ones_like": "ones", "full_like": "full", "randn_like": "randn",
    "rand_like": "rand", "floordiv": "floor_divide", "mod": "remainder", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "max_pool2d_with_indices": "max_pool2d",
}
_ARITHMETIC = frozenset(("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "matmul",
                         "and", "or", "xor"))
# Attributes of tensors that are operations; others are read without one.
_PROPERTIES = frozenset(("T", "mT", "H", "mH", "data", "real", "imag"))
# What says nothing of the program's values.
_SILENT = frozenset(("backward", "requires_grad_", "retain_grad", "register_hook", "size", "dim",
                     "__set__", "__len__", "__repr__", "__format__", "__bool__", "item", "tolist",
                     "numpy", "__array__", "numel", "is_floating_point", "stride", "data_ptr",
                     "__hash__", "__deepcopy__", "__reduce_ex__", "has_names",
                     # what they make is data of the program's
                     "tensor", "as_tensor", "asarray", "from_numpy", "frombuffer"))

# Parameters of functions that have no signature in Python. Those of all others: input first.
_PARAMETERS = {
    "linear": ("input", "weight", "bias"),
    "softmax": ("input", "dim", "dtype"), "log_softmax": ("input", "dim", "dtype"),
    "logsumexp": ("input", "dim", "keepdim"), "mean": ("input", "dim", "keepdim"),
    "sum": ("input", "dim", "keepdim"), "max": ("input", "dim", "keepdim"),
    "min": ("input", "dim", "keepdim"), "argmax": ("input", "dim", "keepdim"),
    "argmin": ("input", "dim", "keepdim"), "cumsum": ("input", "dim"),
    "std": ("input", "dim", "unbiased", "keepdim"), "var": ("input", "dim", "unbiased", "keepdim"),
    "norm": ("input", "p", "dim", "keepdim"),
    "pow": ("input", "exponent"), "clamp": ("input", "min", "max"),
    "squeeze": ("input", "dim"), "unsqueeze": ("input", "dim"), "cat": ("tensors", "dim"),
    "stack": ("tensors", "dim"), "masked_fill": ("input", "mask", "value"),
    "triu": ("input", "diagonal"), "tril": ("input", "diagonal"), "one_hot": ("input", "num_classes"),
    "gelu": ("input", "approximate"), "softplus": ("input", "beta", "threshold"),
    "where": ("condition", "input", "other"), "dropout": ("input", "p", "training"),
    "scaled_dot_product_attention": ("query", "key", "value", "attn_mask", "dropout_p",
                                     "is_causal", "scale", "enable_gqa"),
    **{f"conv{n}d": ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
       for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": ("input", "weight", "bias", "stride", "padding", "output_padding",
                               "groups", "dilation") for n in (1, 2, 3)},
    **{f"avg_pool{n}d": ("input", "kernel_size", "stride", "padding") for n in (1, 2, 3)},
    **{f"max_pool{n}d": ("input", "kernel_size", "stride", "padding", "dilation")
       for n in (1, 2, 3)},
}
# The same by the names of functions that share one in the vocabulary.
_NAMED = {"gather": ("input", "dim", "index"), "index_select": ("input", "dim", "index"),
          "select": ("input", "dim", "index"), "narrow": ("input", "dim", "start", "length"),
          **dict.fromkeys(("transpose", "swapaxes", "swapdims"), ("input", "dim0", "dim1")),
          "permute": ("input", "dims"), "movedim": ("input", "source", "destination"),
          "flatten": ("input", "start_dim", "end_dim"), "view": ("input", "shape"),
          "reshape": ("input", "shape"), "expand": ("input", "size"), "repeat": ("input", "repeats")}
_LISTS = frozenset(("dims", "shape", "size", "repeats"))  # may be given one by one
# Places of operands that may be None, so that those behind them keep theirs.
_OPTIONAL = {"linear": ("bias",), "cross_entropy": ("weight",), "nll_loss": ("weight",),
             "binary_cross_entropy": ("weight",),
             "binary_cross_entropy_with_logits": ("weight", "pos_weight"),
             "batch_norm": ("running_mean", "running_var", "weight", "bias"),
             "layer_norm": ("weight", "bias"), "group_norm": ("weight", "bias"),
             "scaled_dot_product_attention": ("attn_mask",),
             **{f"conv{n}d": ("bias",) for n in (1, 2, 3)}}
_IF_GIVEN = frozenset(("weight", "bias", "attn_mask", "pos_weight"))
_DROPPED = frozenset(("size_average", "reduce", "_stacklevel", "input", "target", "inplace"))


class Operation:
    """What is known of a function of PyTorch, whatever its arguments."""

    __slots__ = ("name", "inplace", "reverse", "parameters", "defaults")

    def __init__(self, name: str, inplace: bool, reverse: bool, parameters: tuple[str, ...],
                 defaults: dict[str, Any]):
        self.name, self.inplace, self.reverse = name, inplace, reverse
        self.parameters, self.defaults = parameters, defaults


known: dict[Any, Operation | None] = {}  # None: a call of it is no operation


def operation(function: Callable[..., Any]) -> Operation | None:
    """None: a call of it is no operation."""
    try:
        return known[function]
    except KeyError:
        known[function] = made = _describe(function)
        return made
    except TypeError:  # it cannot be hashed
        return _describe(function)


def _describe(function: Callable[..., Any]) -> Operation | None:
    plain = getattr(function, "__name__", "") or type(function).__name__
    inplace = reverse = False
    if plain in _SILENT:
        return None
    if plain == "__get__":
        plain = getattr(getattr(function, "__self__", None), "__name__", "")
        if plain not in _PROPERTIES:
            return None
    elif plain == "__setitem__":
        plain, inplace = "index_put", True
    elif plain.startswith("__") and plain.endswith("__"):
        plain = plain[2:-2]
        if plain[:1] in "ri" and plain[1:] in _ARITHMETIC:
            inplace, reverse, plain = plain[0] == "i", plain[0] == "r", plain[1:]
    elif plain.endswith("_"):
        plain, inplace = plain[:-1], True
    elif plain == "rsub":
        plain, reverse = "sub", True
    name = plain.lstrip("_") if plain not in _ALIASES else plain
    whole = _ALIASES.get(name, name)
    parameters, defaults = _signature(function)
    if not parameters:
        parameters = _NAMED.get(name) or _PARAMETERS.get(whole) or ("input", "other")
    return Operation(whole, inplace, reverse, parameters, defaults)


def _signature(function: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of the parameters and their defaults, of a function written in Python."""
    if not inspect.isfunction(function) or function.__module__ != "torch.nn.functional":
        return (), {}
    rows = inspect.signature(function).parameters.values()
    if any(row.kind in (row.VAR_POSITIONAL, row.VAR_KEYWORD) for row in rows):
        return (), {}
    return tuple(row.name for row in rows), \
        {row.name: row.default for row in rows if row.default is not row.empty}


_ABSENT = object()


@functools.cache
def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def plain_value(value: Any) -> Any:
    """A value as the text of a program may hold it; None: it is none."""
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 53 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, (tuple, list)) and len(value) <= 8:
        parts = [plain_value(part) for part in value]
        return None if None in parts or any(isinstance(part, list) for part in parts) else parts
    return None


def attributes(made: Operation, arguments: tuple[Any, ...],
               options: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a call: numbers, words and lists among its arguments."""
    given = {**made.defaults, **dict(zip(made.parameters, arguments)), **options}
    last = len(made.parameters) - 1
    if len(arguments) > last + 1 and made.parameters[last] in _LISTS:
        given[made.parameters[last]] = arguments[last:]
    found: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            if name in _IF_GIVEN:
                found[name] = True
        elif name not in _DROPPED and name != "other":
            value = plain_value(value)
            if value is not None:
                found[name] = value
    other = given.get("other", _ABSENT)
    if isinstance(other, (bool, int, float)):
        found["scalar"] = plain_value(other)
    if made.inplace or given.get("inplace") is True:
        found["inplace"] = True
    if made.name == "to":
        found.update((key, plain_value(value)) for key, value in
                     (("dtype", next((v for v in arguments if isinstance(v, torch.dtype)), None)),)
                     if value is not None)
    return found


def operands(made: Operation, arguments: tuple[Any, ...],
             options: dict[str, Any]) -> list[torch.Tensor | None]:
    """The tensors among the arguments, in order; None: an operand that is absent, or a number
    before the tensor."""
    optional = _OPTIONAL.get(made.name, ())
    found: list[torch.Tensor | None] = []
    for i, value in enumerate(arguments):
        name = made.parameters[i] if i < len(made.parameters) else ""
        _collect(value, name in optional, found)
    for name, value in options.items():
        if name not in ("out",):
            _collect(value, name in optional, found)
    if made.reverse:
        found = [None] + found if len(found) == 1 else found[::-1]
    return found


def _collect(value: Any, optional: bool, found: list[torch.Tensor | None]) -> None:
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif value is None and optional:
        found.append(None)
    elif isinstance(value, (tuple, list)):
        for part in value[:256]:
            if isinstance(part, (torch.Tensor, tuple, list)):
                _collect(part, False, found)
