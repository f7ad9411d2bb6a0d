"""What the data of a step show: classes, ranges. Elements are read in place, without an operation
of PyTorch's."""

from __future__ import annotations

import math
from typing import Any

from .. import _sonde

_LISTED = 8192  # elements from which distinct ones are not counted


def _range(tensor: Any) -> dict[str, Any] | None:
    try:
        row = _sonde.vitals_of(tensor)
    except Exception:  # it has no memory that can be read
        return None
    names = ("count", "nan", "pos_inf", "neg_inf", "zero", "min", "max", "abs_min", "abs_max",
             "mean", "m2")
    found = dict(zip(names, row))
    finite = found["count"] - found["nan"] - found["pos_inf"] - found["neg_inf"]
    if finite <= 0 or not math.isfinite(found["max"]):
        return None
    found["std"] = math.sqrt(max(found["m2"], 0.0) / finite)
    return found


def rows_of(tokens: Any) -> list[list[int]] | None:
    """The rows of token numbers that are few enough to be compared; None: they are no such."""
    if tokens.dim() != 2 or not 16 <= tokens.numel() <= _LISTED or _range(tokens) is None:
        return None
    return tokens.tolist()


def _shift(labels: list[int], rows: list[list[int]]) -> tuple[int, int] | None:
    """Of labels that are the tokens of an input: 0, at the same places, or 1, the ones after
    them, and along which dimension. None: they are no such, or both."""
    batch, length = len(rows), len(rows[0])
    flat = [token for row in rows for token in row]
    last, first = [row[:-1] for row in rows], [row[1:] for row in rows]
    if len(labels) == len(flat):
        of = [labels[i:i + length] for i in range(0, len(labels), length)]
        ways = {(0, 1): (of, rows), (1, 1): ([row[:-1] for row in of], first),
                (1, 0): (of[:-1], rows[1:])}
    elif len(labels) == batch * (length - 1):
        of = [labels[i:i + length - 1] for i in range(0, len(labels), length - 1)]
        ways = {(0, 1): (of, last), (1, 1): (of, first)}
    else:
        return None
    found = [way for way, (some, others) in ways.items() if _agree(some, others)]
    return found[0] if len(found) == 1 else None


def _agree(labels: list[list[int]], tokens: list[list[int]]) -> bool:
    """Whether labels are tokens, but for some that are to be ignored."""
    pairs = [(a, b) for some, others in zip(labels, tokens) for a, b in zip(some, others) if a >= 0]
    return len(pairs) >= 16 and 2 * len(pairs) > sum(map(len, labels)) and \
        all(a == b for a, b in pairs) and len({a for a, _ in pairs}) > 1


def left(optimizers: list[Any]) -> int | None:
    """The optimizers, as bits, whose parameters have gradients that are not all 0; None: these
    cannot be read."""
    bits = 0
    for number, optimizer in enumerate(optimizers):
        gradients = (parameter.grad for group in optimizer.param_groups
                     for parameter in group["params"])
        for gradient in gradients:
            if gradient is None:
                continue
            try:
                row = _sonde.vitals_of(gradient)
            except Exception:
                return None
            if row[0] > row[4]:  # more elements than zeros
                bits |= 1 << number
                break
    return bits


class Facts:
    """Facts of the steps of one mode, in their order."""

    def __init__(self) -> None:
        self.last_label = -math.inf
        self.sorted = True

    def of_labels(self, labels: Any, tokens: dict[str, list[list[int]]]) -> dict[str, Any]:
        """tokens: the inputs of the model that are tokens, by name."""
        found: dict[str, Any] = {"labels_dtype": str(labels.dtype).removeprefix("torch.")}
        ends = _range(labels)
        if ends is None:
            return found
        found |= {"labels_min": ends["min"], "labels_max": ends["max"]}
        if ends["count"] <= _LISTED:
            numbers = labels.reshape(-1).tolist()
            found["labels_classes"] = len(set(numbers))
            self.sorted = self.sorted and numbers[0] >= self.last_label and \
                all(a <= b for a, b in zip(numbers, numbers[1:]))
            self.last_label = numbers[-1]
            found["labels_sorted"] = self.sorted
            for name, rows in tokens.items():
                way = _shift(numbers, rows)
                if way is not None:
                    found |= {"labels_shift": way[0], "labels_along": way[1],
                              "labels_source": name}
        return found

    def of_targets(self, targets: Any) -> dict[str, Any]:
        """Of floating targets."""
        ends = _range(targets)
        if ends is None:
            return {}
        found = {"targets_min": ends["min"], "targets_max": ends["max"]}
        if ends["count"] <= _LISTED:
            found["targets_whole"] = all(float(number).is_integer()
                                         for number in targets.reshape(-1).tolist())
        return found

    def of_input(self, tensor: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"input_dtype": str(tensor.dtype).removeprefix("torch.")}
        ends = _range(tensor)
        if ends is not None:
            found |= {f"input_{key}": ends[key] for key in ("min", "max", "mean", "std")}
        return found
