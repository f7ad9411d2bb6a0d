"""The text of a program (docs/program.md)."""

from __future__ import annotations

import json
from typing import Any

from .places import Place

_DEFAULTS = {"module": -1, "optimizer": -1, "value": -1, "node": -1, "parameter": -1,
             "backward": -1, "predictions": -1, "targets": -1}


class Files:
    """The files of places, numbered."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}

    def place(self, place: Place | None) -> list[int] | None:
        if place is None or not place[0]:
            return None
        return [self.names.setdefault(place[0], len(self.names)), place[1]]


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Without what is at its default."""
    return {key: value for key, value in row.items()
            if value is not None and not (value == _DEFAULTS.get(key, "") or value is False
                                          or value == {} or key[0] == "_")}


def write(head: dict[str, Any], rows: dict[str, list[dict[str, Any]]],
          facts: dict[str, Any]) -> str:
    """head: producer, mode, root, complete, gap, files."""
    whole = {"program": 1, **head, **{key: [_short(row) for row in list_]
                                      for key, list_ in rows.items()}, "facts": facts}
    return json.dumps(whole, separators=(",", ":"), allow_nan=False)


def with_facts(text: str, more: dict[str, Any]) -> str:
    """The same program with more facts."""
    whole = json.loads(text)
    whole["facts"] |= more
    return json.dumps(whole, separators=(",", ":"), allow_nan=False)
