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


class Facts:
    """Facts of the steps of one mode, in their order."""

    def __init__(self) -> None:
        self.last_label = -math.inf
        self.sorted = True

    def of_labels(self, labels: Any) -> dict[str, Any]:
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
        return found

    def of_input(self, tensor: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"input_dtype": str(tensor.dtype).removeprefix("torch.")}
        ends = _range(tensor)
        if ends is not None:
            found |= {f"input_{key}": ends[key] for key in ("min", "max", "mean", "std")}
        return found
