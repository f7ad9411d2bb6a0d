"""What watching and reading return: findings and vital signs."""

from __future__ import annotations

import html
import math
from typing import NamedTuple


# In the order of sonde_role.
ROLES = ("weight", "bias", "buffer", "gradient", "update", "optimizer", "loss", "input", "output",
         "activation", "activation_gradient", "scalar", "other", "program")


_MODES = {"train": "training", "eval": "evaluation", "predict": "prediction"}


class Finding(NamedTuple):
    """Something that is wrong with a run: one for a rule and a tensor (docs/rules.md)."""

    rule: str
    severity: str  # "note", "warning" or "error"
    tensor: str  # "" for the whole run
    mode: str
    step: int  # global, at which the condition held first
    mode_step: int  # the same step, within the mode
    last_step: int  # global, at which the condition held last
    steps: int  # observed steps at which the condition held
    statistic: str
    value: float  # of the statistic, at the first step or when the rule raised it
    threshold: float
    message: str
    advice: str
    id: str  # depends on rule, tensor and first step alone
    because_of: str | None = None  # the id of the finding that it follows from
    raised_from: str | None = None  # the severity before it rose
    raised_step: int | None = None  # global, at which it rose
    resolved_step: int | None = None  # global, since which it is resolved
    place: str | None = None  # the line of the program: "train.py:41"

    def __str__(self) -> str:
        return f"{self.severity}: {self.rule}{self._where(' in ')} at {self._when()}: " \
               f"{self.message}{self._history()}"

    def _where(self, between: str) -> str:
        """The tensor, after `between`, and the line, as far as they are known."""
        tensor = between + self.tensor if self.tensor else ""
        return f"{tensor} ({self.place})" if self.place else tensor

    def _when(self) -> str:
        """As sonde_finding_when of <sonde/rules.h>."""
        if self.mode not in _MODES or self.mode_step == self.step:
            return f"step {self.step}"
        return f"{_MODES[self.mode]} step {self.mode_step} (step {self.step})"

    def _history(self) -> str:
        raised = f" It was a {self.raised_from} until step {self.raised_step}." \
            if self.raised_step else ""
        return raised + (f" It is resolved since step {self.resolved_step}."
                         if self.resolved_step else "")

    def _repr_html_(self) -> str:
        color = {"error": "#b3261e", "warning": "#8a5a00"}.get(self.severity, "#44546a")
        text = html.escape
        return (f'<div style="border-left:4px solid {color};padding:4px 12px">'
                f"<b>{text(self.rule)}</b>{text(self._where(' '))} <i>{self._when()}</i><br>"
                f"{text(self.message)}{text(self._history())}<br>"
                f"<small>{text(self.advice)}</small></div>")


class FindingError(RuntimeError):
    """Raised at the end of the step of a finding, with on_finding="raise"."""

    def __init__(self, finding: Finding):
        super().__init__(str(finding))
        self.finding = finding


class Vitals(NamedTuple):
    """Counts over all elements of a tensor; extremes and sums over the finite ones.

    A step that has norms only has NaN for zero, min, max, abs_min, m2, l1 and std.
    """

    count: int
    nan: int
    pos_inf: int
    neg_inf: int
    zero: int | float
    min: float  # +inf if no element is finite
    max: float  # -inf if none is
    abs_min: float
    abs_max: float
    mean: float
    m2: float  # sum of (x - mean)²
    l1: float
    sumsq: float
    sum: float

    @property
    def finite(self) -> int:
        """The number of finite elements."""
        return self.count - self.nan - self.pos_inf - self.neg_inf

    @property
    def std(self) -> float:
        """The population standard deviation; NaN if there is a NaN or an infinity."""
        if self.finite != self.count or self.count == 0:
            return math.nan
        return math.sqrt(self.m2 / self.count)

    @property
    def l2(self) -> float:
        """The Euclidean norm; NaN or inf where an element is."""
        if self.nan:
            return math.nan
        return math.inf if self.finite != self.count else math.sqrt(self.sumsq)
