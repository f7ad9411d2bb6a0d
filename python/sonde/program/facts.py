"""What the data of a step show: classes, ranges. Elements are read in place, without an operation
of PyTorch's."""

from __future__ import annotations

import math
from collections import Counter
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


def _hash(tensor: Any) -> Any:
    """What equal tensors have in common; None: it has no memory that can be read."""
    try:
        return tuple(tensor.shape), tensor.dtype, _sonde.hash_of(tensor)
    except Exception:
        return None


class Repeats:
    """Steps in a row at which a tensor had the same bits, of those that are looked at."""

    def __init__(self) -> None:
        self.step, self.last = -2, None
        self.count: int | None = None  # None: it is not known
        self.runs: list[int] = []  # equal steps in a row that came to an end, the last ones

    def see(self, step: int, tensor: Any) -> None:
        if step == self.step:
            return  # the first of the step counts
        now = _hash(tensor)
        follows = step == self.step + 1 and self.last is not None
        if now is None:
            self.count = None
        elif follows and now == self.last:
            self.count = (self.count or 0) + 1
        else:
            self.runs = [*self.runs[-3:], (self.count or 0) + 1] if follows else []
            self.count = 0 if follows else None
        self.step, self.last = step, now

    def by_workers(self, workers: int) -> bool:
        """Whether each batch came as often in a row as there are workers."""
        return workers > 1 and len(self.runs) == 4 and \
            all(run == workers for run in self.runs[1:])


_SHIFTS = 4  # places by which targets are looked for ahead of inputs
_PLACES = 8  # that must agree, and not all with one token


def shift_of(inputs: Any, targets: Any) -> int | None:
    """By how many places integer targets are ahead of integer inputs [N, T]; None: they do not
    follow from them. Targets below 0 count as left out; targets may be shorter than inputs."""
    if inputs.dim() != 2 or targets.dim() not in (1, 2) or not 0 < inputs.numel() <= _LISTED or \
            targets.numel() % inputs.shape[0] or targets.numel() > inputs.numel():
        return None
    rows, width = inputs.tolist(), targets.numel() // inputs.shape[0]
    flat = targets.reshape(-1).tolist()
    wanted = [flat[i * width:(i + 1) * width] for i in range(len(rows))]
    for shift in range(_SHIFTS + 1):
        pairs = [(goal, row[j + shift]) for row, goals in zip(rows, wanted)
                 for j, goal in enumerate(goals) if goal >= 0 and j + shift < len(row)]
        if len(pairs) >= _PLACES and all(a == b for a, b in pairs) and \
                len({a for a, _ in pairs}) > 1:
            return shift
    return None


_ROWS, _COLUMNS = 24, 512  # of inputs whose columns are compared with targets
_OTHERS = 6  # targets that differ from the most frequent one, at least


def column_of(inputs: Any, targets: Any) -> int | None:
    """The column of inputs, a list of rows, that is a target of each row; None: none is."""
    if targets.dim() not in (1, 2) or targets.numel() != len(inputs):
        return None
    wanted = [float(one) for one in targets.reshape(-1).tolist()]
    if len(wanted) - max(Counter(wanted).values()) < _OTHERS:
        return None
    for number, column in enumerate(zip(*inputs)):
        if list(column) == wanted:
            return number
    return None


def rows_of(tensor: Any) -> Any:
    """The rows of a floating input [N, D] whose columns may be targets; None: they may not."""
    if tensor.dim() != 2 or tensor.device.type != "cpu" or tensor.shape[0] < _ROWS or \
            not 1 < tensor.shape[1] <= _COLUMNS or tensor.numel() > _LISTED:
        return None
    return tensor.tolist()


def hash_of(tensor: Any) -> int | None:
    """What tensors of equal elements have in common, whatever their shape; None: it has no
    memory that can be read, or all elements are one number."""
    ends = _range(tensor)
    return _sonde.hash_of(tensor) if ends is not None and ends["min"] < ends["max"] else None


def constant_of(tensor: Any) -> float | None:
    """The number that all elements are; None: they differ, or cannot be read."""
    ends = _range(tensor) if tensor.is_floating_point() else None
    return ends["min"] if ends is not None and ends["min"] == ends["max"] else None


def left(optimizers: list[Any]) -> int | None:
    """The optimizers, as bits, whose parameters have gradients that are not all 0; None: these
    cannot be read."""
    bits = 0
    for number, optimizer in enumerate(optimizers):
        gradients = (parameter.grad for group in getattr(optimizer, "param_groups", ())
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
        self.inputs, self.labels = Repeats(), Repeats()
        self.workers = 0  # of the loader of the last batch

    def see(self, repeats: Repeats, step: int, tensor: Any) -> bool:
        """Shows the first input or the labels of a step. True: the next step tells more."""
        before = self.inputs.by_workers(self.workers)
        repeats.see(step, tensor)
        return repeats.count == 2 or (self.inputs.by_workers(self.workers) and not before)

    def of_repeats(self) -> dict[str, Any]:
        """One or two steps alike are no fact yet."""
        rows = ("input_repeats", self.inputs.count), ("label_repeats", self.labels.count)
        found: dict[str, Any] = {name: count for name, count in rows
                                 if count is not None and count not in (1, 2)}
        if self.inputs.by_workers(self.workers):
            found["workers_repeat"] = True
        return found

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
