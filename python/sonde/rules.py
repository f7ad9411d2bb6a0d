"""Rules written in Python.

    class LossJump(sonde.Rule):
        "The loss is far above its best."
        condition = "The loss is above `factor` times its smallest value so far."
        advice = "Lower the learning rate."
        needs = {"what": "losses", "roles": "loss"}
        modes = "train"

        def __init__(self, factor=10.0):
            self.factor, self.best = factor, {}

        def step(self):
            for tensor in self.tensors:
                ...

    sonde.watch(model, optimizer, rules=["default", LossJump(factor=5)])
    sonde.open("runs/first").judge(rules=[LossJump()])

The contract is that of rules in Lua and C (docs/own_rules.md). Rule is what a program
subclasses; Judge is what python/extension/python_rule.c calls.
"""

from __future__ import annotations

import json
import os
import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from . import _sonde
from .reading import TensorInfo, values_of
from .records import ROLES, Vitals

_HOW = {"values": 1, "vitals": 2, "sketch": 4, "hash": 8}  # as sonde_how
_MODES = ("train", "eval", "predict", "global")
_SEVERITIES = ("note", "warning", "error")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*$")
_NEED_KEYS = {"what", "how", "roles", "optional", "every", "first", "row", "row_every"}


class At(NamedTuple):
    """Where a run is: the global step, the mode, and the step within the mode."""

    step: int
    mode: str
    mode_step: int


class Seen(NamedTuple):
    """What Rule.observe is shown of a tensor: what the rule's need asked for, else None."""

    values: Any  # a numpy array, a copy
    sketch: Any  # .quantile(share), .count, .zero, .nan, .pos_inf, .neg_inf
    hash: int
    micro_batch: int
    replica: int


class RuleTensor:
    """A tensor that a rule looks at."""

    def __init__(self, info: TensorInfo, same_as: str | None):
        self.name, self.dtype, self.shape = info.name, info.dtype, info.shape
        self.role, self.module, self.op, self.id = info.role, info.module, info.op, info.id
        self.note = info.note
        self.same_as = same_as  # of an alias, the name of its tensor
        self.need = self.index = 0  # index of the need; place in Rule.tensors
        self.vitals: Vitals | None = None  # at this step; None: not seen
        self.memory: dict[str, Any] = {}  # for the rule's own data

    def __repr__(self) -> str:
        return f"RuleTensor({self.name!r}, {self.role}, {list(self.shape)})"


class Rule:
    """A rule of one's own: subclass it, and pass objects of it as rules.

    An exception in a method switches the rule off, with a finding that says where it was
    raised; training is not disturbed. An object judges one run at a time.
    """

    name: str | None = None  # default: the name of the class
    summary: str | None = None  # default: the class's docstring
    condition = ""  # when exactly it fires
    advice = ""  # what to do about it, one sentence
    #: A mapping, or several: "what" (text), "how" ("vitals", "values", "sketch", "hash", or a
    #: list; default "vitals"), "roles" (one or a list; default: any), "optional"; and how
    #: seldom the rule may look: "every", "first", "row", "row_every" (docs/rules.md).
    #: None, over recorded runs only: no tensor; step is called at every step.
    needs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = ()
    modes: str | Sequence[str] = ()  # default: all

    # While it judges:
    tensors: Sequence[RuleTensor] = ()  # that wants chose, in the order of the program
    at = At(-1, "global", -1)
    any_bad = False  # in step: any tensor of this step, wanted or not, has a NaN or infinity
    _reports: list[tuple[Any, ...]]
    _files: Sequence[str] = ()  # of the program that it was shown last

    def init(self) -> None:
        """Before the first tensor of a run."""

    def wants(self, tensor: RuleTensor) -> bool | int:
        """Whether the rule looks at a tensor, or the index of the need that it answers.
        Default: the first need that has its role."""
        return _first_need(self._needs, tensor.role)

    def observe(self, tensor: RuleTensor, seen: Seen) -> None:
        """Each raw value, sketch or hash that the rule needs."""

    def program(self, program: dict[str, Any]) -> None:
        """Each new program of a mode (docs/program.md), before step: the steps of the mode have
        it from this one on. Keys at their default are left out. A rule that has this method
        may have no needs."""

    def step(self) -> None:
        """At the end of a step at which one of its tensors was seen."""

    def idle(self, seconds: float) -> None:
        """While a followed run has no new step."""

    def finish(self) -> None:
        """At the end of the run."""

    def found(self, tensor: RuleTensor | str | None = None, *, message: str,
              value: float = 1.0, threshold: float = 0.0, statistic: str = "value",
              severity: str = "warning", advice: str | None = None,
              place: Sequence[int] | None = None) -> None:
        """The condition holds at this step, for a tensor or the whole run. Call it at each
        such step: the first call makes the finding, later ones extend it.

        place: the "place" of a row of the program that the rule was shown last. With it there
        is a finding for each line, and the tensor may be any name."""
        if severity not in _SEVERITIES:
            raise _sonde.BadValueError(f"severity: {severity!r} (expected "
                                       f"{', '.join(_SEVERITIES)})")
        where: int | tuple[str, str, int]
        if place is not None:
            where = (_plain(getattr(tensor, "name", tensor or "")),
                     *_line(self._files, place))
        elif isinstance(tensor, str):
            raise _sonde.BadValueError(f"tensor: {tensor!r} (expected one of self.tensors, or a "
                                       "place)")
        else:
            where = -1 if tensor is None else tensor.index
        self._reports.append((
            "found", where, _SEVERITIES.index(severity), _plain(statistic), float(value),
            float(threshold), _plain(message), None if advice is None else _plain(advice)))

    def lacked(self, text: str) -> None:
        """Says which data was missing."""
        self._reports.append(("lacked", _plain(text)))

    def fail(self, text: str) -> None:
        """Switches the rule off, with a finding that says why."""
        self._reports.append(("fail", _plain(text)))


def _plain(text: object) -> str:
    """Text that UTF-8 can hold."""
    return str(text).replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")


def _line(files: Sequence[str], place: Sequence[int]) -> tuple[str, int]:
    """File and line of a place of a program."""
    try:
        number, line = map(int, place)
        return _plain(files[number]), line
    except (TypeError, ValueError, IndexError):
        raise _sonde.BadValueError(f"place: {place!r} (expected the place of a row of the "
                                   "program)") from None


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, (str, Mapping)) else list(value)


def _bits(what: str, names: Any, known: Sequence[str] | Mapping[str, int]) -> int:
    numbers = known if isinstance(known, Mapping) else {n: 1 << i for i, n in enumerate(known)}
    bits = 0
    for name in _listed(names):
        if name not in numbers:
            raise _sonde.BadValueError(f"{what}: {name!r} (expected {', '.join(numbers)})")
        bits |= numbers[name]
    return bits


def _need(rule: str, need: Any) -> tuple[Any, ...]:
    """A need as C reads it."""
    if not isinstance(need, Mapping) or set(need) - _NEED_KEYS:
        raise _sonde.BadValueError(f"{rule}.needs: {need!r} (expected a mapping with the keys "
                                   f"{', '.join(sorted(_NEED_KEYS))})")
    every, first = need.get("every", 0), need.get("first", 0)
    row, row_every = need.get("row", 0), need.get("row_every", 0)
    for number in (every, first, row, row_every):
        if not isinstance(number, int) or not 0 <= number < 1 << 62:
            raise _sonde.BadValueError(f"{rule}.needs: {number!r} (expected a number of steps)")
    if (row > 0) != (row_every > 0) or (row or first) and not every:
        raise _sonde.BadValueError(f"{rule}.needs: 'row' goes with 'row_every', and both and "
                                   "'first' with 'every'")
    return (_plain(need.get("what", "tensors")),
            _bits(f"{rule}.needs: how", need.get("how", "vitals"), _HOW),
            bool(need.get("optional", False)),
            _bits(f"{rule}.needs: roles", need.get("roles", ()), ROLES), every, first, row,
            row_every)


def _first_need(needs: Sequence[tuple[Any, ...]], role: str) -> int:
    bit = 1 << ROLES.index(role) if role in ROLES else 0
    return next((i for i, need in enumerate(needs) if not need[3] or need[3] & bit), -1)


def _last_line(problem: BaseException) -> str:
    """An exception and the line that raised it, on one line."""
    text = "".join(traceback.format_exception_only(type(problem), problem)).strip()
    text = " ".join(text.splitlines()).rstrip(".")
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__)
              if frame.filename != __file__]
    where = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" \
        if frames else ""
    return _plain(text[:300] + where)


class Judge:
    """A rule at work. C calls the methods below; each returns what the rule reports."""

    def __init__(self, rule: Rule):
        name = rule.name or type(rule).__name__
        if not isinstance(name, str) or not _NAME.match(name) or len(name) > 60:
            raise _sonde.BadValueError(f"rules: {name!r} (expected a name of at most 60 letters, "
                                       "digits and _)")
        if getattr(rule, "_judge", None) is not None:
            raise _sonde.StateError(f"rules: this {name} judges another run (expected an object "
                                    "for each run)")
        needs = tuple(_need(name, need) for need in _listed(() if rule.needs is None else
                                                            rule.needs))
        reads = type(rule).program is not Rule.program
        if not needs and rule.needs is not None and not reads:
            raise _sonde.BadValueError(f"rules: {name} needs nothing (expected a class "
                                       "attribute 'needs', or a method 'program')")
        summary = rule.summary or type(rule).__doc__ or name
        self.rule, self.known = rule, {}
        self.description = (name, _plain(summary.strip().splitlines()[0]),
                            _plain(rule.condition), _plain(rule.advice),
                            _bits(f"{name}.modes", rule.modes, _MODES), needs, reads)
        rule._needs, rule._judge = needs, self
        rule.tensors, rule._reports = [], []
        self.begun = False

    def release(self) -> None:
        """The rule may judge another run."""
        self.rule._judge = None
        self.rule.at, self.rule.any_bad = Rule.at, False

    def _call(self, method: Any, *arguments: Any) -> list[tuple[Any, ...]] | None:
        rule = self.rule
        try:
            if not self.begun:
                self.begun = True
                rule.init()
            method(*arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:
            rule._reports.append(("fail", _last_line(problem)))
        reports = rule._reports
        if not reports:
            return None
        rule._reports = []
        return reports

    # --- called by C ----------------------------------------------------------------------

    def wants(self, info: tuple[Any, ...], same_as: str | None) -> Any:
        tensor = RuleTensor(TensorInfo(*info), same_as)
        answer: list[Any] = []
        reports = self._call(lambda: answer.append(self.rule.wants(tensor)))
        if not answer or reports:
            return reports
        need = answer[0]
        if need is True:
            need = max(_first_need(self.rule._needs, tensor.role), 0)
        elif need is False or need is None:
            need = -1
        elif not isinstance(need, int) or need >= len(self.rule._needs):
            return [("fail", _plain(f"wants returned {need!r} for {tensor.name} (expected True, "
                                    "False or the index of a need)"))]
        if need >= 0:
            self.known[tensor.id] = tensor
        return need

    def bind(self, number: int, need: int) -> None:
        tensor = self.known[number]
        tensor.need, tensor.index = need, len(self.rule.tensors)
        self.rule.tensors.append(tensor)

    def observe(self, index: int, values: Any, sketch: Any, hash: int, micro_batch: int,
                replica: int, *at: Any) -> Any:
        self.rule.at = At(*at)
        array = None if values is None else values_of(values)
        return self._call(self.rule.observe, self.rule.tensors[index],
                          Seen(array, sketch, hash, micro_batch, replica))

    def program(self, text: str, *at: Any) -> Any:
        program = json.loads(text)
        self.rule.at, self.rule._files = At(*at), program.get("files", ())
        return self._call(self.rule.program, program)

    def step(self, rows: list[Any], step: int, mode: str, mode_step: int, any_bad: bool) -> Any:
        rule = self.rule
        rule.at, rule.any_bad = At(step, mode, mode_step), any_bad
        for tensor, row in zip(rule.tensors, rows):
            tensor.vitals = None if row is None else Vitals(*row)
        return self._call(rule.step)

    def idle(self, seconds: float) -> Any:
        return self._call(self.rule.idle, seconds)

    def finish(self) -> Any:
        for tensor in self.rule.tensors:
            tensor.vitals = None
        return self._call(self.rule.finish)


def _as_rule(rule: Any, live: bool) -> Rule | None:
    """A rule as Judge takes it; None: it is no rule. An object with a method __sonde_rule__ is
    the rule that it returns; given whether the run is being made in this process."""
    if isinstance(rule, Rule):
        return rule
    convert = getattr(type(rule), "__sonde_rule__", None)
    return convert(rule, live) if convert is not None else None


def split(rules: Any, live: bool) -> tuple[str | None, tuple[Judge, ...]]:
    """A program's rules as C takes them: a list of names (None: none), and those in Python.
    live: for a run that is being made in this process."""
    if rules is None or isinstance(rules, str):
        return rules, ()
    names: list[str] = []
    judges: list[Judge] = []
    try:
        for given in rules if isinstance(rules, Iterable) else [rules]:
            rule = None if isinstance(given, str) else _as_rule(given, live)
            if isinstance(given, str):
                names.append(given)
            elif rule is not None and live and rule.needs is None and \
                    type(rule).program is Rule.program:
                raise _sonde.BadValueError(f"rules: {type(rule).__name__} needs no tensor (expected "
                                           "needs; without, it can judge a recorded run)")
            elif rule is not None:
                judges.append(Judge(rule))
            else:
                raise _sonde.BadValueError(f"rules: {given!r} (expected names of rules and "
                                           "objects of subclasses of sonde.Rule)")
    except BaseException:
        for judge in judges:
            judge.release()
        raise
    return ",".join(names) if names else None, tuple(judges)
