"""Calls a rule at every step; and the command of the rule invoker.

    python -m smdebug.rules.rule_invoker --trial-dir DIR --rule-name NAME [--PARAMETER VALUE]
"""

from __future__ import annotations

import logging
import sys

from ..exceptions import (NoMoreData, RuleEvaluationConditionMet, StepUnavailable,
                          TensorUnavailable, TensorUnavailableForStep)
from .rule import Rule

_log = logging.getLogger("smdebug")


def invoke_rule(rule_obj: Rule, start_step: int = 0, end_step: int | None = None,
                raise_eval_cond: bool = False) -> None:
    """Judges the global steps from start_step on, before end_step (None: until the run ends,
    then NoMoreData). Steps without the tensors that the rule needs are left out. A rule that
    fires is logged; with raise_eval_cond, RuleEvaluationConditionMet is raised."""
    step, fired = start_step, 0
    try:
        while end_step is None or step < end_step:
            try:
                rule_obj.invoke(step)
            except (TensorUnavailableForStep, StepUnavailable, TensorUnavailable):
                pass
            except RuleEvaluationConditionMet as met:
                if raise_eval_cond:
                    raise
                fired += 1
                _log.info("%s", met)
                if met.end_of_rule:
                    break
            step += 1
    except NoMoreData as problem:
        _log.info("%s: %s; it fired at %d steps", rule_obj.rule_name, problem, fired)
        raise


def main() -> None:
    """The command `sonde rules`, which knows the invoker's arguments."""
    from sonde.__main__ import run_command
    run_command(["rules", *sys.argv[1:]])


if __name__ == "__main__":
    main()
