"""The table of ONNX ops: OPS[name](node) returns the node's output, or a list of its outputs (None:
it is not computed, or was given already).

The kinds and settings that the functions emit are those of <sonde/nn/model.h>.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .reader import Node, Size, Value

OPS: dict[str, Callable[["Node"], Any]] = {}
Translator = Callable[["Node"], Any]


def op(*names: str) -> Callable[[Translator], Translator]:
    def add(function: Translator) -> Translator:
        OPS.update(dict.fromkeys(names, function))
        return function
    return add


def data(n: "Node", i: int = 0) -> tuple["Value", list["Size"]]:
    """Input i and its sizes."""
    x = n.take(i)
    return x, n.shape(x)


def floats(n: "Node", *values: "Value") -> tuple["Value", ...]:
    for value in values:
        if n.dtype(value) != "float32":
            n.refuse("SONDE_EDTYPE", f"an input of {n.dtype(value)}", "float32")
    return values


def wanted(n: "Node", output: int) -> bool:
    return output < len(n.proto.output) and n.proto.output[output] != ""
