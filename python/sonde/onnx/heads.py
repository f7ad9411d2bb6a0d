"""Recurrent layers and attention as nodes of ONNX.

Recurrent: the engine's x (N, T, I), w_ih (G H, I), w_hh (G H, H), b_ih and b_hh (G H), h (N, T,
H); ONNX X (T, N, I), W (1, G H, I), R (1, G H, H), B (1, 2 G H), Y (T, 1, N, H). The gates are
put into ONNX's order by nodes, so that the file has the weights under their names.

Attention is written out: products, scale, mask, softmax.
"""

import math
from dataclasses import dataclass
from typing import Any

from onnx import TensorProto

from .writer import Attrs, Unwritable, Writer, writes

RNN_RELU, LSTM, GRU = 1, 2, 3  # src/nn/ops/recurrent.h


def _gates(w: Writer, a: Attrs, i: int) -> str:
    """Operand i, its G H rows in ONNX's order of gates."""
    order = {LSTM: (0, 3, 1, 2), GRU: (1, 0, 2)}.get(a["cell"])
    if order is None:
        return w.operand(i)
    units = a["units"]
    return w.step("Concat", *(w.cut(w.operand(i), 0, g * units, (g + 1) * units) for g in order),
                  axis=0)


@writes("Recurrent")
def recurrent(w: Writer, a: Attrs) -> None:
    if w.needed[1] or w.needed[2]:
        raise Unwritable  # the gates, the cells
    x = w.turned(w.operand(0), 1, 0, 2)
    inputs = [w.step("Unsqueeze", _gates(w, a, i), w.ints(0)) for i in (1, 2)]
    if w.has(3):
        both = w.step("Concat", _gates(w, a, 3), _gates(w, a, 4), axis=0)
        inputs.append(w.step("Unsqueeze", both, w.ints(0)))
    more: dict[str, Any] = {"activations": ["Relu"]} if a["cell"] == RNN_RELU else \
        {"linear_before_reset": 1} if a["cell"] == GRU else {}
    y = w.step({LSTM: "LSTM", GRU: "GRU"}.get(a["cell"], "RNN"), x, *inputs,
               hidden_size=a["units"], direction="reverse" if a["reversed"] else "forward", **more)
    w.end("Transpose", w.step("Squeeze", y, w.ints(1)), perm=(1, 0, 2))


# --- attention --------------------------------------------------------------------------

@dataclass
class Matrices:
    """The three operands as matrices, with K's swapped."""
    q: str
    k: str
    v: str
    depth: int  # of q
    queries: int
    keys: int
    width: int  # of a row of y


def _heads(w: Writer, x: str, heads: int, depth: int, swapped: bool) -> str:
    """Columns of x (N, T, H D) as heads (N, H, T, D); swapped: as (N, H, D, T)."""
    return w.turned(w.reshaped(x, 0, 0, heads, depth), *(0, 2, 3, 1) if swapped else
                    (0, 2, 1, 3))


def _packed(w: Writer, a: Attrs) -> Matrices:
    _, length, columns = w.shape(0)
    width, heads, x = columns // 3, a["heads"], w.operand(0)
    q, k, v = (_heads(w, w.cut(x, 2, i * width, (i + 1) * width), heads, width // heads, i == 1)
               for i in range(3))
    return Matrices(q, k, v, width // heads, length, length, width)


def _apart(w: Writer, a: Attrs) -> Matrices:
    q, v, heads = w.shape(0), w.shape(2), a["heads"]
    made = Matrices(w.operand(0), w.operand(1), w.operand(2), q[-1], q[-2], v[-2], v[-1])
    if heads > 0:
        made.depth //= heads
        made.q = _heads(w, made.q, heads, made.depth, False)
        made.k = _heads(w, made.k, heads, made.depth, True)
        made.v = _heads(w, made.v, heads, made.width // heads, False)
    else:
        rank = len(q)
        made.k = w.turned(made.k, *range(rank - 2), rank - 1, rank - 2)
    return made


def _weights(w: Writer, a: Attrs, m: Matrices, scores: str, mask: int) -> str:
    """The weights of keys: softmax of the scores, 0 for keys that take no part."""
    parts = []
    if w.has(mask) and w.dtype(mask).startswith(("float", "bfloat")):
        scores = w.step("Add", scores, w.operand(mask))
    elif w.has(mask):
        parts.append(w.truth(mask))
    if a["causal"]:  # (T, S), true for key 0 ... t of query t
        ones = w.step("Expand", w.ints(1), w.ints(m.queries, m.keys))
        parts.append(w.step("Cast", w.step("Trilu", ones, upper=0), to=TensorProto.BOOL))
    for part in parts:
        scores = w.step("Where", part, scores, w.scalar(-math.inf))
    scores = w.step("Softmax", scores, axis=-1)
    for part in parts if w.has(mask) else ():
        scores = w.step("Where", part, scores, w.scalar(0))  # a query without keys
    return scores


@writes("Attention", "SelfAttention")
def attention(w: Writer, a: Attrs) -> None:
    if w.needed[1]:
        raise Unwritable  # the weights of keys
    packed = w.op["kind"] == "SelfAttention"
    m = _packed(w, a) if packed else _apart(w, a)
    scores = w.step("Mul", w.step("MatMul", m.q, m.k),
                    w.scalar(a["scale"] or 1 / math.sqrt(m.depth)))
    weights = _weights(w, a, m, scores, 1 if packed else 3)
    if a["heads"] == 0:
        w.end("MatMul", weights, m.v)
        return
    y = w.turned(w.step("MatMul", weights, m.v), 0, 2, 1, 3)
    w.end("Reshape", y, w.ints(0, 0, m.width))
