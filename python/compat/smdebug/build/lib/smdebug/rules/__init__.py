"""Rules in Python, called at every step of a trial."""

from typing import Any

from .rule import RequiredTensors, Rule

__all__ = ["RequiredTensors", "Rule", "invoke_rule"]


def __getattr__(name: str) -> Any:
    if name == "invoke_rule":  # later, so that `python -m` runs that module once
        from .rule_invoker import invoke_rule
        return invoke_rule
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
