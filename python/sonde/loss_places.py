"""Which loss backward() is called on.

A loss has no name of its own, so it is known by the place in the program that calls backward().
One place may serve several: a helper, a loop, a trainer's method. Two passes of a place in one
step are of one loss, as the micro-batches of an accumulated gradient are, if they reach the same
parameters, or came by the same calls, of the same optimizers, to parameters that both reach. Else
they are two losses, of two players or of an actor and its critic, and have names of their own.

Passes in different steps are told apart only where two losses came in one step: a program may
train by other calls, or train other layers, later on. C asks here at the first LOOKS passes of a
place, and where it has several in a step until LOOKS of these were of one loss
(python/extension/python_loss.c).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOOKS = 16
_CALLS = 16  # frames by which calls are told apart
_NODES = 10000  # of a graph that is searched

Calls = tuple[tuple[Any, int], ...]


def calls_of(frame: Any) -> Calls:
    """The innermost calls: the code and the number of an instruction of each."""
    calls = []
    while frame is not None and len(calls) < _CALLS:
        calls.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(calls)


def reached_by(loss: Any, names: Mapping[int, str]) -> frozenset[int]:
    """The parameters, by id, that a backward pass of the loss reaches; empty: unknown."""
    found, seen = set(), set()
    next_ = [getattr(loss, "grad_fn", None)]
    while next_ and len(seen) < _NODES:
        node = next_.pop()
        if node is None or node in seen:
            continue
        seen.add(node)  # the node too: its address is not used again
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) in names:
            found.add(id(variable))
        next_ += [function for function, _ in getattr(node, "next_functions", ())]
    return frozenset(found)


class _Loss:
    def __init__(self, slot: int):
        self.slot = slot
        self.calls: Calls = ()
        self.reached: frozenset[int] = frozenset()


class Place:
    """A place that calls backward(), and its losses."""

    def __init__(self) -> None:
        self.losses: list[_Loss] = []
        self.alike = 0  # passes of one loss, after another one in the same step

    def find(self, calls: Calls, reached: frozenset[int], holders: Mapping[int, int],
             again: bool) -> _Loss | None:
        """The loss of a pass; None: a new one. again: the place had a pass in this step.
        holders: the optimizers that hold parameters, by the parameters' ids."""
        for loss in self.losses:
            if reached and loss.reached == reached:
                return loss
        for loss in self.losses:
            if loss.calls == calls and (
                    not reached or not loss.reached or reached & loss.reached and
                    _players(reached, holders) == _players(loss.reached, holders)):
                return loss
        if len(self.losses) == 1 and not again:
            return self.losses[0]
        return None


def _players(reached: frozenset[int], holders: Mapping[int, int]) -> set[int]:
    return {holders.get(one, 0) for one in reached}


class Places:
    """The places of one watch."""

    def __init__(self) -> None:
        self.places: dict[Any, Place] = {}
        self.count = 0  # losses

    def find(self, frame: Any, loss: Any, names: Mapping[int, str], holders: Mapping[int, int],
             again: bool, declare: Any) -> tuple[int, bool]:
        """The slot of a loss, and whether C need not ask about its place again. declare: called
        with the number of a new loss, for its slot."""
        calls = calls_of(frame)
        place = self.places.setdefault(calls[:1], Place())
        reached = reached_by(loss, names)
        found = place.find(calls, reached, holders, again)
        if found is None:
            found = _Loss(declare(self.count))
            place.losses.append(found)
            self.count += 1
        else:
            place.alike += again
        found.calls, found.reached = calls, reached
        return found.slot, len(place.losses) == 1 and place.alike >= LOOKS
