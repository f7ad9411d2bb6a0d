"""Calls a rule at every step; and the command of the rule invoker.

    python -m smdebug.rules.rule_invoker --trial-dir DIR --rule-name NAME [--PARAMETER VALUE]

NAME is a built-in rule, or one's own class, as `file.py:Class` or `package.module:Class`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import logging
import os
import runpy
import sys

import sonde

from ..exceptions import (NoMoreData, RuleEvaluationConditionMet, SMDebugError,
                          SMDebugValueError)
from ..trials import Trial, create_trial
from .rule import SKIPPED, Rule

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
            except SKIPPED:
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


def find_rule(name: str) -> type[Rule] | None:
    """The class of one's own rule, as `file.py:Class` or `package.module:Class` (also with a
    point). None: the name of a built-in rule, or of a file in Lua or C."""
    place, colon, wanted = name.rpartition(":")
    if not colon and "/" not in name and "." in name:
        place, _, wanted = name.rpartition(".")
    if name.endswith(".py"):
        place, wanted = name, ""
    if not place or place.endswith((".lua", ".so")) or name.endswith((".lua", ".so")):
        return None
    if place.endswith(".py"):
        if not os.path.exists(place):
            raise SMDebugValueError(f"--rule-name: {place}: no such file (expected a program in "
                                    "Python)")
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        known = runpy.run_path(place, run_name=os.path.basename(place)[:-3])
    else:
        if importlib.util.find_spec(place.partition(".")[0]) is None:
            return None
        sys.path.insert(0, os.getcwd())
        known = vars(importlib.import_module(place))
    rules = {key: value for key, value in known.items()
             if isinstance(value, type) and issubclass(value, Rule) and
             not inspect.isabstract(value)}
    if not wanted and len(rules) == 1:
        return next(iter(rules.values()))
    if wanted not in rules:
        listed = ", ".join(f"{place}:{key}" for key in rules)
        raise SMDebugValueError(f"--rule-name: {name} is no rule (expected "
                                f"{listed or 'a subclass of smdebug.rules.Rule in it'})")
    return rules[wanted]


def make_rule(kind: type[Rule], trial: Trial, others: list[Trial],
              values: dict[str, str]) -> Rule:
    """An object of a rule with the parameters of the command line, which are texts."""
    known = inspect.signature(kind).parameters
    free = any(one.kind is one.VAR_KEYWORD for one in known.values())
    given: dict[str, object] = {name.replace("-", "_"): value for name, value in values.items()}
    for name in given:
        if name not in known and not free:
            own = [key for key in known if key not in ("base_trial", "other_trials", "action_str")]
            raise SMDebugValueError(f"--{name}: {kind.__name__} has no such parameter (expected "
                                    f"{', '.join(own) or 'none'})")
    for name, value in (("other_trials", others), ("other_trial", others[0] if others else None)):
        if others and name in known and name not in given:
            given[name] = value
    missing = [key for key, one in list(known.items())[1:] if key not in given and
               one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    missing = [key for key in missing if key != "action_str"]
    if missing:
        raise SMDebugValueError(f"--{missing[0]}: missing ({kind.__name__} needs it)")
    if "action_str" in known and known["action_str"].default is inspect.Parameter.empty:
        given.setdefault("action_str", "")
    return kind(trial, **given)


def _read(arguments: list[str]) -> tuple[argparse.Namespace, dict[str, str]]:
    reader = argparse.ArgumentParser(prog="smdebug.rules.rule_invoker", allow_abbrev=False)
    reader.add_argument("--trial-dir", required=True)
    reader.add_argument("--rule-name", required=True)
    reader.add_argument("--other-trials", default="")
    reader.add_argument("--start-step", type=int, default=0)
    reader.add_argument("--end-step", type=int)
    reader.add_argument("--raise-rule-eval-cond-exception", default="")
    reader.add_argument("--follow", action="store_true")
    asked, rest = reader.parse_known_args(arguments)
    values: dict[str, str] = {}
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not name.startswith("--") or (not equals and not rest):
            reader.error(f"{name}: unknown (expected --PARAMETER VALUE)")
        values[name[2:]] = value if equals else rest.pop(0)
    return asked, values


def run_rule(kind: type[Rule], arguments: list[str]) -> int:
    """Judges a trial by one's own rule, and prints the findings. The exit status is that of
    `sonde rules`: 1 if there is one."""
    asked, values = _read(arguments)
    window = (asked.start_step, asked.end_step)
    trial = create_trial(asked.trial_dir, range_steps=window)
    others = [create_trial(path, range_steps=window)
              for path in asked.other_trials.split(",") if path]
    rule = make_rule(kind, trial, others, values)
    if asked.raise_rule_eval_cond_exception:
        try:
            invoke_rule(rule, asked.start_step, asked.end_step, raise_eval_cond=True)
        except NoMoreData:
            return 0
    run = sonde.open(trial.path, begin=asked.start_step, end=asked.end_step)
    findings = run.judge([rule], follow=asked.follow)
    for finding in findings:
        more = f" At {finding.steps} steps, up to {finding.last_step}." if finding.steps > 1 else ""
        print(f"step {finding.step}: {finding.severity}: {finding.rule}: {finding.message}{more}")
    if not findings:
        print(f"OK: {kind.__name__} judged {rule.report['Datapoints']} steps")
    return 1 if findings else 0


# Built-in rules that judge otherwise than smdebug documents, unless they are told to.
STRICT = ("classimbalance", "lossnotdecreasing", "overfit", "vanishinggradient", "weightupdateratio")


def command_arguments(arguments: list[str]) -> list[str]:
    """The invoker's arguments for a built-in rule as those of `sonde rules`."""
    asked, values = _read(arguments)
    if asked.raise_rule_eval_cond_exception:
        _log.info("every step is judged; the exit status tells that the rule fired")
    settings = [f"{name.replace('-', '_')}=" + str(value).replace(",", r"\,")
                for name, value in values.items()]
    if asked.rule_name.partition(":")[0].lower() in STRICT:
        settings.insert(0, "smdebug=true")
    rule = asked.rule_name
    if settings:
        rule += ("," if ":" in rule else ":") + ",".join(settings)
    result = ["rules", asked.trial_dir, "--rules", rule]
    for other in filter(None, asked.other_trials.split(",")):
        result += ["--other", other]
    if asked.start_step or asked.end_step is not None:
        result += ["--steps", f"{asked.start_step}:{'' if asked.end_step is None else asked.end_step}"]
    return result + (["--follow"] if asked.follow else [])


def main() -> None:
    """The command `sonde rules` with the invoker's arguments in its own words; for a rule written
    in Python, run_rule."""
    arguments = sys.argv[1:]
    name = next((one.partition("=")[2] if "=" in one else "".join(arguments[i + 1:i + 2])
                 for i, one in enumerate(arguments) if one.split("=")[0] == "--rule-name"), "")
    try:
        kind = find_rule(name)
        if kind is not None:
            sys.exit(run_rule(kind, arguments))
    except (sonde.SondeError, SMDebugError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
    from sonde.__main__ import run_command
    run_command(command_arguments(arguments))


if __name__ == "__main__":
    main()
