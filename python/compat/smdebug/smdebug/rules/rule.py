"""Rule: a condition on the tensors of a step.

    class Small(Rule):
        def __init__(self, base_trial, threshold="0.1"):
            super().__init__(base_trial)
            self.threshold = float(threshold)

        def set_required_tensors(self, step):
            for name in self.base_trial.tensor_names(collection="gradients"):
                self.req_tensors.add(name, steps=[step])

        def invoke_at_step(self, step):
            return any(abs(self.base_trial.tensor(name).value(step)).mean() < self.threshold
                       for name in self.req_tensors.get_names())

invoke_rule calls it at every step. A list of rules for sonde.Run.judge may hold it too: it is
then one of Sonde's rules, with findings.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import sonde

from ..analysis.utils import no_refresh
from ..exceptions import (NoMoreData, RuleEvaluationConditionMet, StepUnavailable,
                          TensorUnavailable, TensorUnavailableForStep)
from ..trials import Tensor, Trial

_log = logging.getLogger("smdebug")
# What invoke raises at a step that lacks what the rule needs.
SKIPPED = (TensorUnavailableForStep, StepUnavailable, TensorUnavailable)


class RequiredTensors:
    """The tensors and steps that a rule needs, by trial."""

    def __init__(self, base_trial: Trial, other_trials: Iterable[Trial] | None = None):
        self.base_trial = base_trial
        self._needed: dict[Trial, dict[str, set[int]]] = {
            trial: {} for trial in (base_trial, *(other_trials or ()))}

    def add(self, name: str, steps: Iterable[int], trial: Trial | None = None,
            should_match_regex: bool = False) -> None:
        chosen = trial if trial is not None else self.base_trial
        names = [name] if not should_match_regex else \
            [one for one in chosen.tensor_names() if re.search(name, one)]
        for one in names:
            self._needed[chosen].setdefault(one, set()).update(steps)

    def get_names(self, trial: Trial | None = None) -> list[str]:
        return list(self._needed[trial if trial is not None else self.base_trial])

    def get_tensor_steps(self, name: str, trial: Trial | None = None) -> list[int]:
        needed = self._needed[trial if trial is not None else self.base_trial]
        return sorted(needed.get(name, ()))

    def get(self, trial: Trial | None = None) -> list[Tensor]:
        chosen = trial if trial is not None else self.base_trial
        return [chosen.tensor(name) for name in self._needed[chosen]]

    def clear(self) -> None:
        for needed in self._needed.values():
            needed.clear()

    def fetch(self) -> None:
        """Waits for the steps, and raises if a value was not saved."""
        for trial, needed in self._needed.items():
            for name, steps in needed.items():
                trial.wait_for_steps(sorted(steps))
                for step in sorted(steps):
                    trial.tensor(name).value(step)


class Rule(ABC):
    """A subclass says whether its condition holds at a global step. Parameters from the command
    line are texts."""

    def __init__(self, base_trial: Trial, action_str: str = "",
                 other_trials: Iterable[Trial] | None = None):
        self.base_trial = base_trial
        self.other_trials = list(other_trials or ())
        self.trials = [base_trial, *self.other_trials]
        self.req_tensors = RequiredTensors(base_trial, self.other_trials)
        self.rule_name = type(self).__name__
        self.logger = _log
        self.report: dict[str, Any] = {"RuleTriggered": 0, "Violations": 0, "Details": {},
                                       "Datapoints": 0, "RuleParameters": ""}
        if action_str:
            _log.warning("action_str has no effect: 'sonde rules --on-finding' acts on findings")

    def set_required_tensors(self, step: int) -> None:
        """Adds what invoke_at_step needs to self.req_tensors."""

    @abstractmethod
    def invoke_at_step(self, step: int) -> bool:
        """Whether the condition holds."""

    def invoke(self, step: int) -> None:
        """Waits for a step and judges it. RuleEvaluationConditionMet: the condition holds."""
        self.base_trial.wait_for_steps([step])
        with no_refresh(self.trials):
            self.req_tensors.clear()
            self.set_required_tensors(step)
        self.req_tensors.fetch()
        with no_refresh(self.trials):
            self.report["Datapoints"] += 1
            if self.invoke_at_step(step):
                self.report["RuleTriggered"] += 1
                self.report["Violations"] += 1
                raise RuleEvaluationConditionMet(self.rule_name, step)

    def __sonde_rule__(self, live: bool) -> sonde.Rule:
        """This rule among Sonde's."""
        if live:
            raise sonde.BadValueError(f"rules: {self.rule_name} reads a trial (expected a subclass "
                                      "of sonde.Rule; sonde.open(RUN).judge takes this one)")
        return _Judged(self)


class _Judged(sonde.Rule):
    """A rule that reads a trial, as one of Sonde's: a finding about the whole run begins at the
    first step at which its condition holds."""

    needs = None  # it fetches the values itself

    def __init__(self, rule: Rule):
        self.rule = rule
        self.name = type(rule).__name__
        self.summary = (type(rule).__doc__ or self.name).strip() or self.name
        self.condition = "invoke_at_step returns true."
        self.ended = False

    def step(self) -> None:
        if self.ended:
            return
        try:
            self.rule.invoke(self.at.step)
        except RuleEvaluationConditionMet as met:
            self.ended = met.end_of_rule
            self.found(message=_said(self.rule), statistic="condition", value=1.0, threshold=1.0)
        except (*SKIPPED, NoMoreData):
            pass  # NoMoreData: the rule's trial ends before


def _said(rule: Rule) -> str:
    """What the rule wrote into its report, or that its condition holds."""
    details = rule.report.get("Details")
    return f"The rule's condition holds: {details}." if details else "The rule's condition holds."
