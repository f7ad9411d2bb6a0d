"""PyTorch's ops as the engine's: products of tensors, truth values and conversions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .aten import add, div, mul, sub, total
from .builder import Builder, Value, expect, op, short

# --- products -------------------------------------------------------------------------------------


def sizes_of(terms: Sequence[str], values: Sequence[Value]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for term, value in zip(terms, values):
        expect(len(term) == len(value.shape) and len(set(term)) == len(term), f"einsum of {term}")
        for letter, n in zip(term, value.shape):
            expect(sizes.setdefault(letter, n) == n or n == 1, "an einsum that broadcasts")
    return sizes


def ordered(b: Builder, x: Value, term: str, wanted: str) -> Value:
    return b.permute(x, [term.index(letter) for letter in wanted])


def contracted(b: Builder, x: Value, a: str, y: Value, c: str, kept: str) -> tuple[Value, str]:
    """The product of x and y, summed over the letters that both have and nothing keeps."""
    for letter in [letter for letter in a if letter not in c and letter not in kept]:
        x, a = total(b, x, [a.index(letter)]), a.replace(letter, "")
    for letter in [letter for letter in c if letter not in a and letter not in kept]:
        y, c = total(b, y, [c.index(letter)]), c.replace(letter, "")
    both = [letter for letter in a if letter in c]
    batch = "".join(letter for letter in both if letter in kept)
    summed = "".join(letter for letter in both if letter not in kept)
    left = "".join(letter for letter in a if letter not in c)
    right = "".join(letter for letter in c if letter not in a)
    sizes = sizes_of((a, c), (x, y))

    def count(letters: str) -> int:
        return math.prod(sizes[letter] for letter in letters)

    x = b.reshape(ordered(b, x, a, batch + left + summed),
                  (count(batch), count(left), count(summed)))
    y = b.reshape(ordered(b, y, c, batch + summed + right),
                  (count(batch), count(summed), count(right)))
    made = b.do("matmul", x, y)
    letters = batch + left + right
    return b.reshape(made, [sizes[letter] for letter in letters]), letters


@op("einsum")
def einsum(b: Builder, equation: str, values: Sequence[Value], *, path: Any = None) -> Value:
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    expect("." not in equation, "einsum with ...")
    if not arrow:
        once = "".join(terms)
        wanted = "".join(sorted(letter for letter in set(once) if once.count(letter) == 1))
    sizes_of(terms, values)
    made, letters = values[0], terms[0]
    for i in range(1, len(values)):
        later = wanted + "".join(terms[i + 1:])
        made, letters = contracted(b, made, letters, values[i], terms[i], later)
    for letter in [letter for letter in letters if letter not in wanted]:
        made = total(b, made, [letters.index(letter)])
        letters = letters.replace(letter, "")
    return ordered(b, made, letters, wanted)


@op("bilinear")
def bilinear(b: Builder, x: Value, y: Value, weight: Value, bias: Value | None = None) -> Value:
    rows = x.shape[:-1]
    made = einsum(b, "bi,oij,bj->bo", [b.reshape(x, (-1, x.shape[-1])), weight,
                                       b.reshape(y, (-1, y.shape[-1]))])
    made = b.reshape(made, (*rows, weight.shape[0]))
    return made if bias is None else b.do("add", made, bias)


@op("mv")
def mv(b: Builder, x: Value, y: Value) -> Value:
    return b.reshape(b.do("matmul", x, b.reshape(y, (-1, 1))), (x.shape[0],))


@op("dot", "inner")
def dot(b: Builder, x: Value, y: Value) -> Value:
    expect(len(x.shape) == len(y.shape) == 1, "an inner product of matrices")
    return total(b, b.do("mul", x, y))


@op("outer", "ger")
def outer(b: Builder, x: Value, y: Value) -> Value:
    return b.do("mul", b.reshape(x, (-1, 1)), b.reshape(y, (1, -1)))


@op("addcmul")
def addcmul(b: Builder, x: Value, y: Value, z: Value, *, value: float = 1) -> Value:
    return add(b, x, mul(b, y, z), alpha=value)


@op("addcdiv")
def addcdiv(b: Builder, x: Value, y: Value, z: Value, *, value: float = 1) -> Value:
    return add(b, x, div(b, y, z), alpha=value)


@op("lerp.Scalar", "lerp.Tensor")
def lerp(b: Builder, x: Value, y: Value, weight: Any) -> Value:
    return add(b, x, mul(b, sub(b, y, x), weight))


@op("pow.Tensor_Tensor", "pow.Scalar", "float_power.Tensor_Tensor")
def power(b: Builder, x: Any, y: Value) -> Value:
    return b.do("float_power", b.tensor(x), y)


@op("atan2", "arctan2")
def atan2(b: Builder, x: Value, y: Value) -> Value:
    return b.do("atan2", x, y)


for _name in ("tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "atanh", "log2", "log10",
              "exp2", "erfc", "floor", "ceil", "trunc"):
    def _simple(b: Builder, x: Value, _kind: str = _name) -> Value:
        return b.do(_kind, x)

    op(_name, _name + "_")(_simple)

for _name, _kind in (("arctan", "atan"), ("arcsin", "asin"), ("arccos", "acos"), ("sgn", "sign"),
                     ("sign", "sign"), ("round.default", "round"), ("fix", "trunc")):
    def _renamed(b: Builder, x: Value, _kind: str = _kind) -> Value:
        return b.do(_kind, x)

    op(_name)(_renamed)


@op("frac")
def frac(b: Builder, x: Value) -> Value:
    return sub(b, x, b.do("trunc", x))


@op("logsumexp")
def logsumexp(b: Builder, x: Value, dims: Sequence[int], keepdim: bool = False) -> Value:
    expect(len(dims) == 1, "a logsumexp over several dimensions")
    return b.do("logsumexp", x, dim=dims[0], keepdim=int(keepdim))


@op("cosine_similarity")
def cosine_similarity(b: Builder, x: Value, y: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    return b.do("cosine_similarity", x, y, dim=dim, eps=eps)


@op("pairwise_distance")
def pairwise_distance(b: Builder, x: Value, y: Value, p: float = 2, eps: float = 1e-6,
                      keepdim: bool = False) -> Value:
    expect(p == 2, f"a distance of order {p}")
    return b.do("pairwise_distance", x, y, eps=eps, keepdim=int(keepdim))


# --- conversions and truth values -----------------------------------------------------------------

@op("_to_copy", "to.dtype", "to.device", "type_as", "to.dtype_layout", "to.other")
def converted(b: Builder, x: Value, *rest: Any, **keys: Any) -> Value:
    for given in (*rest, *keys.values()):
        if isinstance(given, torch.dtype):
            x = b.cast(x, given)
        elif isinstance(given, Value):
            x = b.cast(x, given.dtype)
    return x


@op("one_hot")
def one_hot(b: Builder, x: Value, classes: int = -1) -> Value:
    expect(classes > 0 and x.dtype is torch.int64, "one_hot without num_classes")
    return b.cast(b.add("one_hot", [x], {"num_classes": classes}), torch.int64)


def truth(b: Builder, x: Value) -> Value:
    """1 where x is not 0, else 0."""
    return b.cast(b.cast(x, torch.bool), torch.float32)


def is_not_zero(b: Builder, x: Value) -> Value:
    return b.add("ne", [x, b.full((), 0.0)], {}, torch.bool)


@op("logical_not")
def logical_not(b: Builder, x: Value) -> Value:
    return b.add("eq", [truth(b, x), b.full((), 0.0)], {}, torch.bool)


@op("bitwise_not")
def bitwise_not(b: Builder, x: Value) -> Value:
    expect(x.dtype is torch.bool, f"bits of {short(x.dtype)}")
    return logical_not(b, x)


for _name, _kind in (("and", "mul"), ("or", "maximum"), ("xor", "sub")):
    def _logical(b: Builder, x: Value, y: Value, _kind: str = _kind) -> Value:
        return is_not_zero(b, b.do(_kind, truth(b, x), truth(b, y)))

    def _bits(b: Builder, x: Value, y: Value, _kind: str = _kind) -> Value:
        expect(isinstance(y, Value) and x.dtype is torch.bool and y.dtype is torch.bool,
               f"bits of {short(x.dtype)}")
        return is_not_zero(b, b.do(_kind, truth(b, x), truth(b, y)))

    op("logical_" + _name)(_logical)
    op(f"bitwise_{_name}.Tensor", f"__{_name}__.Tensor")(_bits)


@op("isnan")
def isnan(b: Builder, x: Value) -> Value:
    return b.add("ne", [x, x], {}, torch.bool)


@op("isinf")
def isinf(b: Builder, x: Value) -> Value:
    return b.add("eq", [b.do("abs", x), b.full((), math.inf)], {}, torch.bool)


@op("isfinite")
def isfinite(b: Builder, x: Value) -> Value:
    return b.add("lt", [b.do("abs", x), b.full((), math.inf)], {}, torch.bool)


@op("nan_to_num")
def nan_to_num(b: Builder, x: Value, nan: float | None = None, above: float | None = None,
               below: float | None = None) -> Value:
    most = torch.finfo(torch.float32).max
    expect(above is None and below is None, "nan_to_num with infinities")
    known = b.add("masked_fill", [x, isnan(b, x)], {"value": nan or 0.0})
    return b.do("clamp", known, min=-most, max=most)


for _name, _kind in (("any", "amax"), ("all", "amin")):
    def _some(b: Builder, x: Value, dim: Any = None, keepdim: bool = False, _kind: str = _kind
              ) -> Value:
        settings = {} if dim is None else {"dim": dim, "keepdim": int(keepdim)}
        return is_not_zero(b, b.add(_kind, [truth(b, x)], settings))

    op(f"{_name}.default", f"{_name}.dim")(_some)
