"""Vital signs of tensors on a GPU or another device: computed there, never waited for.

    take       a value is due: it is kept until `compute`, or computed at once (modules' outputs,
               which the program may change)
    compute    the values of many, as one list: `vital_signs`, the one function that reads elements
    end        the step's rows go to page-locked memory of the host, without waiting; the step is
               left (sonde_watch_leave_step)
    poll       the watch returns to the steps whose rows have arrived, in order: they are recorded
               and judged under their own numbers, some steps late

Nothing in a step waits for the device. More than WAITING steps do not wait: then the device is
that far behind the program, and waiting for the oldest keeps it busy.

`vital_signs` uses reductions of PyTorch's over all tensors of a list together, cut into rows of
ROW elements: some thirty launches for every CHUNK elements, not for every tensor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from . import _sonde

ROW = 1024  # elements that one row of the reductions has
CHUNK = 16 << 20  # elements that are copied into rows at once, at most
WAITING = 16  # steps whose rows are awaited, at most
HOST = ("cpu",)  # kinds of devices whose memory C reads

ALONE, OF_MANY, CHANGING = 0, 1, 2  # parts, as in python_watch.h
_VITALS, _NORMS = 2, 16  # SONDE_HOW_ bits; any other needs the value itself
_WIDE = (torch.float64, torch.int64, torch.int32, torch.complex64, torch.complex128)
_INFINITE = float("inf")


# --- vital signs ------------------------------------------------------------------------------

class _Layout:
    """Where tensors of so many elements lie in rows; on their device, made once."""

    def __init__(self, counts: tuple[int, ...], device: torch.device):
        rows = [-(-count // ROW) for count in counts]
        valid = [min(ROW, count - ROW * i) for count, n in zip(counts, rows) for i in range(n)]
        owner = [i for i, n in enumerate(rows) for _ in range(n)]
        self.valid = _send(valid, device)
        self.owner = _send(owner, device)
        self.lengths = _send(rows, device)
        self.chunks: list[tuple[int, int, list[tuple[int, int, int, int]]]] = []
        self.cut(counts, rows)

    def cut(self, counts: tuple[int, ...], rows: list[int]) -> None:
        """Chunks of rows: (first row, rows, [(tensor, first element, elements, place)])."""
        limit, first = CHUNK // ROW, 0
        pieces: list[tuple[int, int, int, int]] = []
        used = 0
        for i, count in enumerate(counts):
            start = 0
            while start < count:
                take = min(rows[i] - start // ROW, limit - used)
                size = min(count - start, take * ROW)
                pieces.append((i, start, size, used * ROW))
                start, used = start + size, used + take
                if used == limit:
                    self.chunks.append((first, used, pieces))
                    first, used, pieces = first + used, 0, []
        if used:
            self.chunks.append((first, used, pieces))


_layouts: dict[Any, _Layout] = {}


def _send(numbers: list[int], device: torch.device) -> torch.Tensor:
    """Whole numbers on a device, without waiting for it."""
    made = torch.tensor(numbers, dtype=torch.int64)
    if device.type in HOST:
        return made
    return (made.pin_memory() if torch.cuda.is_available() else made).to(device, non_blocking=True)


def _layout(counts: tuple[int, ...], device: torch.device) -> _Layout:
    key = (device, counts)
    if key not in _layouts:
        if len(_layouts) >= 256:
            _layouts.clear()
        _layouts[key] = _Layout(counts, device)
    return _layouts[key]


def vital_signs(tensors: Sequence[torch.Tensor], full: bool = True) -> torch.Tensor:
    """A row of vital signs for each tensor, on the tensors' device: nan, pos_inf, neg_inf, zero,
    min, max, abs_min, abs_max, mean, m2, l1, sumsq, sum (<sonde/stats.h>), shape (n, 13).

    tensors are of one device, and all of float32 or less, or all of float64, complex or integers.
    Not full: norms; the other columns are 0. Counts and extremes are those of the host; sums
    differ from the host's by rounding. Nothing waits for the device."""
    device = tensors[0].device
    flat = [_flat(tensor) for tensor in tensors]
    layout = _layout(tuple(map(len, flat)), device)
    kind = torch.float64 if flat[0].dtype in _WIDE and device.type != "mps" else torch.float32
    parts = []
    for first, rows, pieces in layout.chunks:
        room = torch.empty(rows * ROW, dtype=kind, device=device)
        torch._foreach_copy_([room[place:place + size] for _, _, size, place in pieces],
                             [flat[i][start:start + size] for i, start, size, _ in pieces])
        parts.append(_reduce(room.view(rows, ROW), layout.valid[first:first + rows], full))
    return _merge(parts, layout, len(flat), device, full)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = tensor.abs().double()
    return tensor.reshape(-1)


# Columns of a row: those that add, then the minima, then the maxima.
_SUMS, _MINIMA, _MAXIMA = 8, 2, 2  # finite, nan, +inf, -inf, zero, l1, sumsq, sum; min, abs_min; ...


def _reduce(x: torch.Tensor, valid: torch.Tensor, full: bool) -> tuple[torch.Tensor, ...]:
    """(sums (rows, 8), minima, maxima (rows, 2), m2 (rows,)) of rows, of which `valid` elements
    are there."""
    wide = torch.float32 if x.device.type == "mps" else torch.float64
    there = torch.arange(ROW, device=x.device) < valid[:, None]
    finite = x.isfinite() & there
    y = torch.where(finite, x, 0)
    size = y.abs()
    count = finite.sum(1)
    none = torch.zeros_like(count)
    total, sumsq = y.sum(1, dtype=wide), torch.linalg.vector_norm(y, 2, 1, dtype=wide).square()
    sums = [count, (x.isnan() & there).sum(1), ((x == _INFINITE) & there).sum(1),
            ((x == -_INFINITE) & there).sum(1),
            ((x == 0) & there).sum(1) if full else none,
            size.sum(1, dtype=wide) if full else none, sumsq, total]
    empty = count == 0
    largest = torch.where(empty, -_INFINITE, size.amax(1).to(wide))
    if not full:
        columns = torch.stack([column.to(wide) for column in sums], 1)
        nothing = torch.zeros_like(largest)
        return columns, torch.stack([nothing, nothing], 1), torch.stack([nothing, largest], 1), \
            nothing
    up, down = torch.where(finite, x, _INFINITE), torch.where(finite, x, -_INFINITE)
    pivot = (total / count.clamp(min=1)).to(x.dtype)
    away = torch.where(finite, x - pivot[:, None], 0)
    m2 = torch.linalg.vector_norm(away, 2, 1, dtype=wide).square() \
        - away.sum(1, dtype=wide).square() / count.clamp(min=1)
    return (torch.stack([column.to(wide) for column in sums], 1),
            torch.stack([up.amin(1), torch.where(finite, size, _INFINITE).amin(1)], 1).to(wide),
            torch.stack([down.amax(1).to(wide), largest], 1), m2.clamp(min=0))


def _merge(parts: list[tuple[torch.Tensor, ...]], layout: _Layout, count: int,
           device: torch.device, full: bool) -> torch.Tensor:
    """The rows of each tensor as one (Chan, Golub and LeVeque 1979)."""
    wide = torch.float32 if device.type == "mps" else torch.float64
    if not parts:  # tensors without elements
        rows = torch.zeros(count, 13, dtype=wide, device=device)
        rows[:, 4] = rows[:, 6] = _INFINITE
        rows[:, 5] = rows[:, 7] = -_INFINITE
        return rows
    sums, minima, maxima, m2 = (torch.cat(column) for column in zip(*parts))
    over = {"lengths": layout.lengths, "axis": 0, "unsafe": True}
    whole = torch.segment_reduce(sums, "sum", initial=0, **over)
    least = torch.segment_reduce(minima, "min", initial=_INFINITE, **over)
    most = torch.segment_reduce(maxima, "max", initial=-_INFINITE, **over)
    finite, nan, pos, neg, zero, l1, sumsq, total = whole.unbind(1)
    mean = total / finite.clamp(min=1)
    spread = torch.zeros_like(mean)
    if full:
        own = sums[:, 0]
        apart = sums[:, 7] / own.clamp(min=1) - mean[layout.owner]
        spread = torch.segment_reduce(m2 + own * apart.square(), "sum", initial=0, **over)
    return torch.stack([nan, pos, neg, zero, least[:, 0], most[:, 0], least[:, 1], most[:, 1],
                        mean, spread, l1, sumsq, total], 1)


# --- on the way -------------------------------------------------------------------------------

class Copy:
    """Tensors on their way to the host's memory."""

    def __init__(self, tensors: Sequence[torch.Tensor]):
        self.values: list[torch.Tensor] = []
        self.events: list[Any] = []
        devices = set()
        for tensor in tensors:
            if tensor.device.type in HOST:
                self.values.append(tensor.detach().clone())
                continue
            devices.add(tensor.device)
            there = torch.empty(tensor.shape, dtype=tensor.dtype,
                                pin_memory=tensor.device.type == "cuda")
            self.values.append(there.copy_(tensor.detach(), non_blocking=True))
        for device in devices:
            backend = getattr(torch, device.type, None)
            event = getattr(backend, "Event", None)
            if event is not None:
                made = event()
                stream = getattr(backend, "current_stream", None)  # that of this device
                made.record(*([stream(device)] if stream is not None else []))
                self.events.append(made)

    def ready(self) -> bool:
        return all(event.query() for event in self.events)

    def wait(self) -> None:
        for event in self.events:
            event.synchronize()


class _Step:
    """What a step has shown."""

    def __init__(self) -> None:
        self.where: tuple[int, int, int] | None = None  # mode, global step, step of the mode
        self.shown: list[Any] = []  # (slot, dtype, shape, count, full) of a row; or its value
        self.places: list[Any] = []  # by shown: (block, row) or the place of a value
        self.blocks: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.groups: list[tuple[int, bool, set[int]]] = []  # optimizer, looked, its gradients
        self.scalars: list[tuple[str, float]] = []
        self.copy: Any = None


class Device:
    """The steps of a watch whose tensors are on another device."""

    def __init__(self, core: Any):
        self.core = core
        self.step = _Step()
        self.waiting: deque[_Step] = deque()
        self.held: list[tuple[int, int, torch.Tensor, bool]] = []  # slot, wants, tensor, update
        self.before: dict[int, torch.Tensor] = {}  # by slot of an update
        self.last: dict[int, Any] = {}  # rows of the last step that arrived, by slot

    # --- called by C --------------------------------------------------------------------------

    def take(self, slot: int, wants: int, tensor: Any, part: int) -> None:
        tensor = _readable(tensor)
        if tensor is None:
            return
        with torch.no_grad():
            if part == CHANGING:
                if slot not in self.before:
                    self.before[slot] = tensor.clone()
                    return
                tensor = _wide(tensor) - _wide(self.before.pop(slot))
            self.held.append((slot, wants, tensor, part == CHANGING))
        if part == ALONE:
            self.compute(0, False)

    def compute(self, player: int, looked: bool) -> None:
        """Computes what is held: gradients of an optimizer, if player is not 0. looked: they were
        shown once at this step."""
        held, self.held = self.held, []
        kinds: dict[Any, list[Any]] = {}
        with torch.no_grad():
            for slot, wants, tensor, update in held:
                full = wants & ~_NORMS != 0
                if wants & ~(_VITALS | _NORMS):
                    self.step.places.append(len(self.step.values))
                    self.step.values.append(tensor.clone())
                    self.step.shown.append((slot, None, update))
                    continue
                key = tensor.device, tensor.dtype in _WIDE, full
                kinds.setdefault(key, []).append((len(self.step.shown), tensor))
                self.step.places.append(None)
                self.step.shown.append((slot, _name(tensor.dtype), tuple(tensor.shape),
                                        tensor.numel(), full))
            for (_, _, full), members in kinds.items():
                for row, (place, _) in enumerate(members):
                    self.step.places[place] = (len(self.step.blocks), row)
                self.step.blocks.append(vital_signs([one for _, one in members], full))
        if player and held:
            self.step.groups.append((player, looked, {slot for slot, *_ in held}))

    def scalar(self, name: str, value: float) -> bool | None:
        """False: no step is on or waits."""
        on = self.step if self.core.state()[2] >= 0 or not self.waiting else self.waiting[-1]
        if on is self.step and self.core.state()[2] < 0:
            return False
        on.scalars.append((name, value))
        return None

    def end(self, mode: int, global_step: int, mode_step: int) -> None:
        step, self.step = self.step, _Step()
        self.before.clear()
        step.where = mode, global_step, mode_step
        step.copy = Copy(step.blocks + step.values)
        step.blocks, step.values = [None] * len(step.blocks), []
        self.waiting.append(step)

    def poll(self) -> None:
        while self.waiting and (len(self.waiting) > WAITING or self.waiting[0].copy.ready()):
            self.arrive(self.waiting.popleft())

    def vitals(self, slot: int | None) -> Any:
        """The vital signs of a slot at the last step that arrived; None: not due."""
        row = self.last.get(slot) if slot is not None else None
        if row is None:
            return None
        count, nan, pos, neg, zero = map(int, row[1:6])
        if row[0]:
            return count, nan, pos, neg, zero, *row[6:]
        none = float("nan")  # what norms lack
        return count, nan, pos, neg, none, none, none, none, *row[9:11], none, none, *row[13:]

    # --- arriving -----------------------------------------------------------------------------

    def finish(self) -> None:
        """Waits for the rest."""
        while self.waiting:
            self.arrive(self.waiting.popleft())

    def arrive(self, step: _Step) -> None:
        step.copy.wait()
        blocks = [block.tolist() for block in step.copy.values[:len(step.blocks)]]
        values = step.copy.values[len(step.blocks):]
        rows: list[Any] = []
        for shown, place in zip(step.shown, step.places):
            if shown[1] is None:
                if shown[2]:  # an update is the difference of two values
                    rows.append((shown[0], "", (), None, torch.zeros_like(values[place])))
                rows.append((shown[0], "", (), None, values[place]))
            else:
                slot, dtype, shape, count, full = shown
                rows.append((slot, dtype, shape,
                             (full, count, *blocks[place[0]][place[1]]), None))
        for player, looked, slots in step.groups:
            shown = [row for row in rows if row[0] in slots]
            cleared = all(map(_is_zero, shown[-len(slots):]))
            self.core.note_cleared(player, cleared)
            if cleared and looked:
                last = set(map(id, shown[-len(slots):]))
                rows = [row for row in rows if id(row) not in last]
        self.last = {row[0]: row[3] for row in rows}
        self.core.return_to(*step.where, rows, step.scalars)


def is_elsewhere(tensor: Any) -> bool:
    """Whether C cannot read a tensor's memory because of its device."""
    device = getattr(tensor, "device", None)
    return getattr(device, "type", "cpu") not in (*HOST, "meta")


def _readable(value: Any) -> torch.Tensor | None:
    """The elements of a value as a plain tensor, on its device; None: there are none."""
    if not isinstance(value, torch.Tensor):
        return torch.as_tensor(value)
    value = getattr(value, "_local_tensor", value).detach()
    if value.is_meta or hasattr(getattr(type(value), "__torch_dispatch__", None), "__func__"):
        return None
    if value.is_sparse:
        value = value.coalesce().values()
    return value.resolve_conj().resolve_neg()


def _is_zero(row: Any) -> bool:
    """Whether a value of which a row was made is all 0."""
    if row[3] is None:
        return not row[4].count_nonzero()
    return row[3][9] <= 0 and not any(row[3][2:5])  # abs_max; nan and infinities


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype in _WIDE else tensor.float()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
