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
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from ..analysis.utils import no_refresh
from ..exceptions import RuleEvaluationConditionMet
from ..trials import Tensor, Trial

_log = logging.getLogger("smdebug")


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
