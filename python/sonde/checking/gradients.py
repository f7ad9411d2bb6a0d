"""Gradients against finite differences, in float64."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from . import graphs, guard, places, trees
from .properties import listed
from .subject import Failed, NotApplicable, Subject

_STEPS = (1e-4, 1e-5, 1e-6)  # of differences, in float64
_ELEMENTS = 12  # of each input that are tried
_WRONG = 1e-3  # relative: differences with a step of 1e-5 agree to 1e-8 where the loss is smooth


def own_functions(subject: Subject) -> str:
    """The gradients of the program's own autograd functions."""
    found = _functions(subject)
    if not found:
        raise NotApplicable("the program has no autograd function of its own")
    calls = _recorded(subject, list(found))
    said, skipped = [], []
    for function in found:
        if function not in calls:
            skipped.append(f"{function.__name__}: its arguments are not known")
            continue
        why = _judge(subject, function, calls[function])
        (skipped if why else said).append(f"{function.__name__}: {why}" if why
                                          else function.__name__)
    if not said:
        raise NotApplicable("; ".join(skipped))
    return f"{listed(said)}: backward agrees with finite differences" + \
        (f" ({'; '.join(skipped)})" if skipped else "")


def _functions(subject: Subject) -> list[Any]:
    """The classes behind the nodes of the loss that are not PyTorch's."""
    loss = subject.loss(subject.twin(training=True))
    found = {getattr(type(node), "_forward_cls", None) for node in graphs.nodes(loss)}
    return sorted((one for one in found if one is not None
                   and not one.__module__.startswith("torch.")), key=lambda one: one.__name__)


def _recorded(subject: Subject, functions: list[Any]) -> dict[Any, tuple[Any, ...]]:
    """The arguments of the first call of each function."""
    calls: dict[Any, tuple[Any, ...]] = {}
    with contextlib.ExitStack() as stack:
        for function in functions:
            stack.enter_context(_listening(function, calls))
        subject.loss(subject.twin(training=True))
    return calls


@contextlib.contextmanager
def _listening(function: Any, calls: dict[Any, tuple[Any, ...]]) -> Iterator[None]:
    own = function.__dict__.get("forward")
    forward = function.forward

    def heard(*args: Any, **kwargs: Any) -> Any:
        rest = args[1:] if args and isinstance(args[0], torch.autograd.function.FunctionCtx) \
            else args
        calls.setdefault(function, tuple(
            one.detach().clone() if isinstance(one, torch.Tensor) else one for one in rest))
        return forward(*args, **kwargs)

    function.forward = staticmethod(heard)
    try:
        yield
    finally:
        if own is None:
            del function.forward
        else:
            function.forward = own


def _judge(subject: Subject, function: Any, args: tuple[Any, ...]) -> str:
    """Why a function cannot be judged, or "" if its gradient is right; raises Failed."""
    args = tuple(one.double() if trees.is_number(one) and one.is_floating_point() else one
                 for one in args)
    floats = [number for number, one in enumerate(args)
              if trees.is_number(one) and one.dtype == torch.float64 and one.numel()]

    def value(number: int, one: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
        guard.seed(0)
        with torch.no_grad():
            outputs = trees.floats(function.apply(*args[:number], one, *args[number + 1:]))
            return sum((out.double() * weight).sum() for out, weight in zip(outputs, weights))

    leaves = [one.clone().requires_grad_() if number in floats else one
              for number, one in enumerate(args)]
    guard.seed(0)
    outputs = [out for out in trees.floats(function.apply(*leaves)) if out.requires_grad]
    weights = [torch.rand(out.shape, generator=subject.generator, dtype=torch.float64) + 0.5
               for out in outputs]
    if len(outputs) == 1 and any(outputs[0].shape == args[number].shape and
                                 torch.equal(outputs[0].detach(), args[number])
                                 for number in floats):
        return "forward returns its input, so that backward may scale it on purpose"
    found = torch.autograd.grad([(out.double() * weight).sum()
                                 for out, weight in zip(outputs, weights)],
                                [leaves[number] for number in floats], allow_unused=True)
    flat = checked = 0
    for number, gradient in zip(floats, found):
        if gradient is None:
            continue
        picks = torch.randperm(gradient.numel(), generator=subject.generator)[:_ELEMENTS]
        for pick in picks.tolist():
            subject.look_at_clock()
            slopes = [_slope(lambda one, n=number: value(n, one, weights), args[number], pick, step)
                      for step in _STEPS]
            exact = float(gradient.flatten()[pick])
            if max(slopes) - min(slopes) > _WRONG * max(map(abs, slopes)) + 1e-8:
                continue  # not smooth here
            checked += 1
            if abs(slopes[1]) < 1e-10 and exact != 0:
                flat += 1
            elif abs(exact - slopes[1]) > _WRONG * max(abs(slopes[1]), abs(exact)) + 1e-8:
                raise Failed(f"{function.__name__}.backward gives {exact:.6g} for element {pick} of "
                             f"argument {number}; finite differences give {slopes[1]:.6g}",
                             "Correct backward.", (function.__name__,),
                             places.of_function(function.backward))
    if flat or not checked:
        return "forward is flat where backward is not, as of a straight-through estimator" \
            if flat else "forward is not smooth"
    return ""


def _slope(function: Any, at: torch.Tensor, pick: int, step: float) -> float:
    def moved(by: float) -> torch.Tensor:
        one = at.clone()
        one.view(-1)[pick] += by
        return one
    return (float(function(moved(step))) - float(function(moved(-step)))) / (2 * step)
