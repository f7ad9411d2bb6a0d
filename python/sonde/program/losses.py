"""Which operations of a step are its losses, with predictions and targets.

A loss is a call of one of PyTorch's loss functions, or is written by hand: then it is what
backward() is called on, and its predictions and targets meet in a difference, in a product or in
the choice of elements by class."""

from __future__ import annotations

from typing import Any

from .ops import OF_PAIRS, SYMMETRIC

_DEPTH = 64  # operations between backward() and where predictions and targets meet

Rows = list[dict[str, Any]]


def of_function(node: dict[str, Any], values: Rows) -> tuple[int, int]:
    """(predictions, targets) of a loss function."""
    inputs = [*node["inputs"], -1, -1, -1]
    inputs = inputs[::2][:2] if node["op"] in OF_PAIRS else inputs[:2]
    first, second = (i >= 0 and values[i].get("requires_grad", False) for i in inputs)
    if node["op"] in SYMMETRIC and second and not first:
        inputs.reverse()
    return inputs[0], inputs[1]


def above(value: int, nodes: Rows, makers: dict[int, int]) -> list[int]:
    """The operations that a value is made of, the last ones first."""
    seen: set[int] = set()
    order: list[int] = []
    next_ = [value]
    while next_:
        waiting: list[int] = []
        for one in next_:
            node = makers.get(one, -1)
            if node >= 0 and node not in seen:
                seen.add(node)
                order.append(node)
                waiting += [i for i in nodes[node]["inputs"] if i >= 0]
        next_ = waiting
    return order


def by_hand(value: int, nodes: Rows, values: Rows,
            makers: dict[int, int]) -> tuple[dict[str, Any], int, int] | None:
    """(node, predictions, targets) of a loss that no function of PyTorch computes: where these
    meet; None: that is not found. Only operations outside of modules count, or in one that is a loss."""
    best: tuple[int, dict[str, Any], int, int] | None = None
    for node in above(value, nodes, makers)[:_DEPTH]:
        row = nodes[node]
        pair = _meet(row, values) if row.get("module", -1) < 0 or row.get("_in_loss") else None
        rank = {"sub": 0, "index": 1, "mul": 2}.get(row["op"], 3)
        if pair is not None and (best is None or rank < best[0]):
            best = rank, row, *pair
    return best[1:] if best is not None else None


def _meet(row: dict[str, Any], values: Rows) -> tuple[int, int] | None:
    inputs = [i for i in row["inputs"] if i >= 0]
    if row["op"] not in ("sub", "mul", "index") or len(inputs) < 2:
        return None
    learned = [i for i in inputs if values[i].get("requires_grad")]
    given = [i for i in inputs if not values[i].get("requires_grad") and values[i]["shape"]]
    if len(learned) != 1 or not given:
        return None
    target = given[-1]
    if row["op"] == "index" and not values[target]["dtype"].startswith(("int", "uint")):
        return None
    return learned[0], target
