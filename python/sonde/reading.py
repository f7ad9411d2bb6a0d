"""Reading a run: tensors, steps, values, series, findings."""

from __future__ import annotations

import html
import json
import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _sonde
from .records import Finding, Vitals

if TYPE_CHECKING:
    import numpy

    from .rules import Rule

# dtypes that NumPy lacks, and how they are converted.
_WIDENED = {"bfloat16": 16}
_SEVERITIES = ("error", "warning", "note")


class TensorInfo(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str
    module: str
    op: str
    id: int
    note: str = ""  # how a distributed tensor is placed, say


class Frame:
    """Columns of equal length by name: steps, and a statistic for each tensor."""

    def __init__(self, columns: dict[str, "numpy.ndarray"]):
        self.columns = columns

    def __getitem__(self, name: str) -> "numpy.ndarray":
        return self.columns[name]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __repr__(self) -> str:
        return f"Frame({len(self)} rows: {', '.join(self.columns)})"

    def to_pandas(self) -> Any:
        """A pandas.DataFrame; needs pandas."""
        import pandas
        return pandas.DataFrame(self.columns)

    def to_polars(self) -> Any:
        """A polars.DataFrame; needs polars."""
        import polars
        return polars.DataFrame(self.columns)

    def to_arrow(self) -> Any:
        """A pyarrow.Table; needs pyarrow."""
        import pyarrow
        return pyarrow.table(self.columns)


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as problem:
        raise ImportError("values and series need numpy: pip install numpy") from problem
    return numpy


def values_of(found: _sonde.Array) -> "numpy.ndarray":
    """Memory of Sonde's as an array, without a copy but of dtypes that NumPy lacks."""
    numpy = _numpy()
    array = numpy.asarray(found)
    if found.dtype in _WIDENED:
        array = (array.astype(numpy.uint32) << _WIDENED[found.dtype]).view(numpy.float32)
    return array


class Run:
    """A run as it is read: while it is written, or later. sonde.open makes one.

    Steps count within a mode; mode "global" counts over all modes. Step -1 is the last one
    at which the tensor was saved. TENSORS is a selector: names, globs, @roles, module:paths.
    """

    def __init__(self, path: str, begin: int = 0, end: int | None = None):
        self.path, self._window = path, (begin, end or 0)
        self._trial = _sonde.Trial(path, *self._window)

    # --- the run ------------------------------------------------------------------------

    @property
    def info(self) -> dict[str, Any]:
        """status, id, program, model, world, last_step, records, bytes, rows, lost ..."""
        return self._trial.describe()

    @property
    def id(self) -> str:
        return self.info["id"]

    @property
    def status(self) -> str:
        """"running", "ended" or "crashed"."""
        return self.info["status"]

    @property
    def last_step(self) -> int:
        """The last complete global step; -1: none."""
        return self.info["last_step"]

    def refresh(self) -> bool:
        """Reads what is new; whether there was anything."""
        return self._trial.refresh()

    def follow(self, timeout: float | None = None, mode: str = "global",
               poll: float = 0.05) -> Iterator[int]:
        """Complete steps, and those that arrive, until the run ends.

        Stops after `timeout` seconds without a new step."""
        known, last = -1, time.monotonic()
        while True:
            steps = [int(step) for step in self.steps(mode) if step > known]
            yield from steps
            if steps:
                known, last = steps[-1], time.monotonic()
                continue
            if self.status != "running" and not self.refresh():
                return
            if timeout is not None and time.monotonic() - last > timeout:
                return
            if not self.refresh():
                time.sleep(poll)

    # --- tensors and steps --------------------------------------------------------------

    def tensors(self, selector: str = "@all") -> list[TensorInfo]:
        """The tensors that a selector selects, in the order of the program."""
        return [TensorInfo(*row) for row in self._trial.tensors(selector)]

    def steps(self, mode: str = "global", tensor: str | None = None) -> "numpy.ndarray":
        """The complete steps at which anything, or the tensor, was saved, as int64."""
        numpy = _numpy()
        return numpy.frombuffer(self._trial.steps(mode, tensor), dtype=numpy.int64)

    def program(self, mode: str = "train", step: int = -1) -> dict[str, Any] | None:
        """The program in force at a step of a mode (docs/program.md); None if none is
        recorded. Keys at their default are left out."""
        text = self._trial.program(mode, step)
        return json.loads(text) if text is not None else None

    # --- values -------------------------------------------------------------------------

    def value(self, name: str, step: int = -1, *, mode: str = "global", worker: int = 0,
              micro_batch: int = 0, replica: int = 0) -> "numpy.ndarray":
        """A raw value, read-only. The file itself, mapped; a copy of compressed values and
        smdebug's, and of bfloat16, which becomes float32. NotFoundError names the nearest
        steps if it was not saved."""
        _numpy()
        return values_of(self._trial.value(name, step, mode, worker, micro_batch, replica))

    def vitals(self, name: str, step: int = -1, *, mode: str = "global", worker: int = 0,
               micro_batch: int = -1, replica: int = -1) -> Vitals:
        """The vital signs at a step, merged over micro-batches and replicas unless named."""
        return Vitals(*self._trial.vitals(name, step, mode, worker, micro_batch, replica))

    def series(self, selector: str, stat: str | Sequence[str] = "mean", *,
               mode: str = "global", worker: int = -1, begin: int = 0,
               end: int | None = None) -> Frame:
        """Statistics over steps. One tensor: columns step and each statistic. Several
        tensors: "step" holds every step of any, and a column is "name stat" with NaN where
        a tensor was not saved."""
        numpy = _numpy()
        stats = (stat,) if isinstance(stat, str) else tuple(stat)
        names = [info.name for info in self.tensors(selector)]
        parts = {}
        for name in names:
            columns = self._trial.series(name, stats, mode, worker, begin, end or 0)
            parts[name] = [numpy.asarray(column) for column in columns]
        if len(names) == 1:
            return Frame(dict(zip(("step", *stats), parts[names[0]])))
        steps = numpy.unique(numpy.concatenate([part[0] for part in parts.values()])) \
            if parts else numpy.empty(0, numpy.int64)
        frame = {"step": steps}
        for name, (at, *columns) in parts.items():
            for label, column in zip(stats, columns):
                whole = numpy.full(len(steps), numpy.nan)
                whole[numpy.searchsorted(steps, at)] = column
                frame[name if len(stats) == 1 else f"{name} {label}"] = whole
        return Frame(frame)

    # --- rules --------------------------------------------------------------------------

    def judge(self, rules: "str | Rule | Sequence[str | Rule]" = "default", *,
              follow: bool = False, stall: float = 1800.0) -> list[Finding]:
        """Judges the run by rules: "default", or "Name:parameter=value,...", or objects of
        one's own subclasses of sonde.Rule, or a list of these. Nothing is written.

        follow: a run that is being written is judged until it ends; SondeError if it has no new
        step for `stall` seconds."""
        from .rules import split
        names, judges = split(rules, live=False)
        try:
            trial = _sonde.Trial(self.path, *self._window)
            return [Finding(*row) for row in trial.judge(names, judges, follow, stall)]
        finally:
            for judge in judges:
                judge.release()

    def findings(self) -> list[Finding]:
        """The findings that are stored with the run, by step; causes before what follows from
        them."""
        found: dict[str, Finding] = {}
        folder = os.path.join(self.path, "findings")
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if name.endswith(".jsonl"):
                with open_text(os.path.join(folder, name)) as file:
                    for line in file:
                        if line.endswith("\n"):
                            finding = _finding_of(json.loads(line))
                            found[finding.id] = finding
        return sorted(found.values(), key=lambda finding: (
            finding.step, finding.because_of is not None, _SEVERITIES.index(finding.severity)))

    def __repr__(self) -> str:
        info = self.info
        return f"Run({self.path!r}, {info['status']}, last step {info['last_step']})"

    def _repr_html_(self) -> str:
        """Causes before what follows from them; of the findings of a rule that are alike, one."""
        info = self.info
        alike: dict[tuple[str, str, str | None], list[Finding]] = {}
        for finding in self.findings():
            alike.setdefault((finding.rule, finding.severity, finding.because_of),
                             []).append(finding)
        cards = "".join(first._repr_html_() + (
            f'<div style="padding:0 16px"><small>and {len(more)} more like it</small></div>'
            if more else "") for first, *more in alike.values())
        return (f"<b>{html.escape(self.path)}</b>: {info['status']}, last step "
                f"{info['last_step']}, {info['records']} values, {info['rows']} vital signs{cards}")


def open_text(path: str) -> Any:
    import builtins
    return builtins.open(path, encoding="utf-8")


def _number(value: float | str) -> float:
    return float(str(value).replace("Infinity", "inf"))


def _finding_of(row: dict[str, Any]) -> Finding:
    return Finding(row["rule"], row["severity"], row["tensor"], row["mode"], row["step"],
                   row["mode_step"], row["last_step"], row["steps"], row["statistic"],
                   _number(row["value"]), _number(row["threshold"]), row["message"],
                   row["advice"], row["id"], row.get("because_of"), row.get("raised_from"),
                   row.get("raised_step"), row.get("resolved_step"),
                   row.get("place"))


def open(path: str | os.PathLike[str], *, begin: int = 0, end: int | None = None) -> Run:
    """Opens a run, Sonde's or smdebug's, that is being written or has ended.

    begin, end: the global steps to read. NotFoundError if there is no run."""
    return Run(os.fspath(path), begin, end)
