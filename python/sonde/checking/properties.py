"""The list of properties, in the order in which they are tested and printed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from .result import FAILED, NOT_APPLICABLE, PASSED, Row
from .subject import Failed, NotApplicable, Subject

Test = Callable[[Subject], str]


class Property(NamedTuple):
    name: str
    title: str
    test: Test  # returns the message of a pass; raises Failed or NotApplicable
    share: float  # of the time


def judged(which: Property, subject: Subject, seconds: float) -> Row:
    """The row of a property. Whatever the program's own code raises is a reason in it."""
    begin = time.monotonic()
    subject.deadline = min(subject.end, begin + which.share * seconds)
    subject.restart()

    def row(verdict: str, message: str, advice: str = "", where: tuple[str, ...] = (),
            place: str = "") -> Row:
        return Row(which.name, which.title, verdict, message, where, advice,
                   time.monotonic() - begin, place)

    try:
        return row(PASSED, which.test(subject))
    except Failed as found:
        return row(FAILED, found.message, found.advice, found.where, found.place)
    except NotApplicable as why:
        return row(NOT_APPLICABLE, str(why))
    except (Exception, SystemExit) as problem:  # of the program's own code
        return row(NOT_APPLICABLE, f"raised {said(problem)}")


def said(problem: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text[:200]}" if text else type(problem).__name__


def listed(names: list[str], most: int = 4) -> str:
    """Names in a sentence."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
