"""What a check returns: a row for each property, and a table of them."""

from __future__ import annotations

import json
import textwrap
from typing import Any, NamedTuple

PASSED, FAILED, NOT_APPLICABLE = "passed", "failed", "not applicable"
_WIDTH = 100  # of a printed table


class Row(NamedTuple):
    """One property, and whether the network has it."""

    name: str
    title: str
    verdict: str  # "passed", "failed" or "not applicable"
    message: str  # the numbers, or why it is not applicable
    where: tuple[str, ...] = ()  # parameters, modules or tensors
    advice: str = ""
    seconds: float = 0.0
    place: str = ""  # a line of the program


class CheckError(RuntimeError):
    """Raised by Result.raise_if_failed."""

    def __init__(self, result: "Result"):
        super().__init__("\n".join(f"{row.title}: {row.message}" for row in result.failed))
        self.result = result


class Result:
    """The rows of a check. It is true if no property failed."""

    def __init__(self, rows: list[Row], notes: list[str], seconds: float):
        self.rows, self.notes, self.seconds = tuple(rows), tuple(notes), seconds

    def _of(self, verdict: str) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.verdict == verdict)

    @property
    def passed(self) -> tuple[Row, ...]:
        """The properties that the network has."""
        return self._of(PASSED)

    @property
    def failed(self) -> tuple[Row, ...]:
        """The properties that it does not have."""
        return self._of(FAILED)

    @property
    def not_applicable(self) -> tuple[Row, ...]:
        """The properties that could not be tested, with the reason as message."""
        return self._of(NOT_APPLICABLE)

    def __bool__(self) -> bool:
        return not self.failed

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"{name!r} (expected one of {', '.join(row.name for row in self.rows)})")

    def raise_if_failed(self) -> "Result":
        """Raises CheckError if a property failed; otherwise returns the result."""
        if self.failed:
            raise CheckError(self)
        return self

    def to_dict(self) -> dict[str, Any]:
        """The result as values of JSON."""
        return {"passed": bool(self), "seconds": round(self.seconds, 3),
                "notes": list(self.notes),
                "rows": [{**row._asdict(), "where": list(row.where),
                          "seconds": round(row.seconds, 3)} for row in self.rows]}

    def to_json(self) -> str:
        """The result as text in JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        title = max((len(row.title) for row in self.rows), default=0)
        lines = []
        for row in sorted(self.rows, key=lambda row: row.verdict != FAILED):
            head = f"{row.verdict:<{len(NOT_APPLICABLE)}}  {row.title:<{title}}  "
            advice = f". {row.advice}" if row.advice and row.verdict == FAILED else ""
            lines += textwrap.wrap(
                row.message + (f" ({row.place})" if row.place else "") + advice, max(_WIDTH, len(head) + 40), initial_indent=head,
                subsequent_indent=" " * len(head), break_long_words=False) or [head.rstrip()]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes), self._summary()])

    def _summary(self) -> str:
        return f"{len(self.passed)} passed, {len(self.failed)} failed, " \
               f"{len(self.not_applicable)} not applicable, in {self.seconds:.1f} s"

    def __repr__(self) -> str:
        return f"<sonde.checking.Result: {self._summary()}>"


def completed(whole: Result, parts: list[tuple[str, Result]]) -> Result:
    """The result of several networks, whose rows that are not applicable are those of the networks
    alone, where these have a verdict."""
    rows = []
    for row in whole.rows:
        alone = [one[row.name]._replace(message=f"{name}: {one[row.name].message}")
                 for name, one in parts if any(row.name == other.name for other in one.rows)]
        told = [one for verdict in (FAILED, PASSED) for one in alone if one.verdict == verdict]
        rows.append(told[0] if told and row.verdict == NOT_APPLICABLE else row)
    return Result(rows, list(whole.notes), whole.seconds + sum(one.seconds for _, one in parts))


def joined(results: list[tuple[str, Result]]) -> Result:
    """One result of the networks of a program, which are named by the lines of their steps. A row
    is that of the networks that failed, or else of the first that passed."""
    if len(results) == 1:
        return results[0][1]
    rows = []
    for group in zip(*(result.rows for _, result in results)):
        verdict = min((row.verdict for row in group), key=(FAILED, PASSED, NOT_APPLICABLE).index)
        told = [row._replace(message=f"at {place}: {row.message}")
                for (place, _), row in zip(results, group) if row.verdict == verdict]
        if verdict != FAILED:
            told = told[:1]
        message = "; and ".join(row.message for row in told)
        rows.append(told[0]._replace(message=message, seconds=sum(row.seconds for row in group),
                                     where=tuple(name for row in told for name in row.where)))
    return Result(rows, [note for _, result in results for note in result.notes],
                  sum(result.seconds for _, result in results))
