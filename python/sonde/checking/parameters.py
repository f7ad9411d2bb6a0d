"""Every parameter that requires a gradient is reached by the loss, and held by the optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from . import graphs, places
from .properties import listed
from .subject import Failed, NotApplicable, Subject

_CUTTING = {"detach", "detach_", "item", "tolist", "numpy", "argmax", "round", "floor", "ceil", "sign"}
_DATA = torch.Tensor.data.__get__
_TRIES = 5  # other values of the parameters, before a gradient of 0 counts as no path


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def gradients(subject: Subject, model: nn.Module,
              seed: int = 0) -> dict[str, torch.Tensor | None]:
    """The gradient of the loss by each trained parameter; None: not reached."""
    trained = _trained(model)
    loss = subject.loss(model, seed=seed)
    if not loss.requires_grad:
        return dict.fromkeys(trained)
    return dict(zip(trained, torch.autograd.grad(loss, list(trained.values()),
                                                 allow_unused=True)))


def _any(gradient: torch.Tensor) -> bool:
    values = gradient.coalesce().values() if gradient.layout == torch.sparse_coo else gradient
    return bool(values.any())


def reached(subject: Subject) -> str:
    """Every parameter that requires a gradient has one that is not exactly 0 throughout."""
    names = _ours(subject, _trained(subject.model))
    if not names:
        raise NotApplicable("no parameter requires a gradient")
    missing, zero = set(names), set(names)
    for number in range(_TRIES):
        found = gradients(subject, subject.twin(training=True, noise=0.02, number=number), number)
        missing &= {name for name in names if found[name] is None}
        zero &= {name for name in names if found[name] is None or not _any(found[name])}
        if not zero:
            return f"{len(names)} parameters have a gradient"
    lost = [name for name in names if name in missing]
    if lost and len(lost) < len(names) and _takes_derivatives(subject):
        lost = [name for name in lost if _module_is_flat(name, names, missing)]
        zero -= missing  # the last bias vanishes in a derivative
    if len(lost) == len(names):
        raise Failed("the loss has no gradient by any parameter",
                     "Look for detach(), .data, .item(), numpy() or torch.no_grad() between the "
                     "parameters and the loss.", tuple(lost))
    if lost:
        raise Failed(f"no path leads from the loss to {len(lost)} of {len(names)} parameters: "
                     f"{listed(lost)}", _advice(subject, lost), tuple(lost),
                     places.of_module(subject.model, lost[0].rpartition(".")[0]))
    if not zero:
        return (f"{len(names) - len(missing)} parameters have a gradient; the last bias has none, "
                "since the loss is of a derivative")
    flat = [name for name in names if name in zero and _module_is_flat(name, names, zero)]
    if not flat:
        return f"{len(names) - len(zero)} parameters have a gradient; that of " \
               f"{listed(sorted(zero))} cancels"
    raise Failed(f"the gradient of {len(flat)} of {len(names)} parameters is exactly 0, also with "
                 f"{_TRIES - 1} other sets of values: {listed(flat)}",
                 "What they compute is multiplied by 0, or all units behind it are dead.",
                 tuple(flat), places.of_module(subject.model, flat[0].rpartition(".")[0]))


class _Derivatives(TorchFunctionMode):
    """Whether torch.autograd.grad is called."""

    found = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        self.found |= function is torch.autograd.grad
        return function(*args, **(kwargs or {}))


def _takes_derivatives(subject: Subject) -> bool:
    """Whether the network or the loss computes a derivative."""
    with _Derivatives() as mode:
        subject.loss(subject.twin(training=True))
    return mode.found


def _module_is_flat(name: str, names: list[str], zero: set[str]) -> bool:
    """Whether no parameter of the same module has a gradient. A bias alone may cancel, as in a
    difference of two outputs, or before a normalisation."""
    def owner(one: str) -> str:
        return one.partition("parametrizations.")[0].rpartition(".")[0]

    return all(one in zero for one in names if owner(one) == owner(name))


def _ours(subject: Subject, trained: dict[str, nn.Parameter]) -> list[str]:
    """Those that another optimizer of the program does not train by another loss."""
    others = subject.problem.held_elsewhere
    return [name for name, value in subject.original.named_parameters()
            if name in trained and id(value) not in others]


class _Cuts(TorchFunctionMode):
    """Calls that cut the path of a gradient, with their lines."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, None] = {}

    def __torch_function__(self, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        what = f"{name}()" if name in _CUTTING else ".data" if function == _DATA else \
            "" if torch.is_grad_enabled() else "torch.no_grad()"
        if what and any(isinstance(one, torch.Tensor) and one.requires_grad for one in args) and \
                (place := places.here()):
            self.found[f"{what} at {place}"] = None
        return function(*args, **(kwargs or {}))


def _advice(subject: Subject, lost: list[str]) -> str:
    """Whether the modules of the parameters are called at all, and what may cut the path."""
    called: set[str] = set()
    model = subject.twin(training=True)
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda *_, name=name: called.add(name))
    with _Cuts() as cuts:
        subject.loss(model)
    owners = {name.rpartition(".")[0] for name in lost}
    idle = sorted(owner for owner in owners if owner and owner not in called)
    if idle:
        return f"forward does not call {listed(idle)}: call them, or remove them."
    where = f"Is the path cut by {listed(list(cuts.found))}? " if cuts.found else \
        "Look for detach(), .data, argmax, rounding or torch.no_grad() on the way. "
    return where + "Freeze on purpose with requires_grad_(False)."


def registered(subject: Subject) -> str:
    """What the loss trains are parameters of the model."""
    model = subject.twin(training=True)
    loss = subject.loss(model)
    own = {id(value) for value in model.parameters()}
    inputs = {id(value) for call in subject.problem.calls for value in call.tensors()}
    held = {id(value) for group in (subject.problem.optimizer.param_groups
                                    if subject.problem.optimizer is not None else [])
            for value in group["params"]} | subject.problem.held_elsewhere
    names = dict(_hidden(model))
    trained = {id(value): value for value in graphs.leaves_of(loss)
               if id(value) not in own | inputs | held}
    lost = [trained[key] for key in names if key in trained]
    if not lost:
        return "all tensors of the model that the loss trains are its parameters"
    what = [f"{names[id(value)]} {tuple(value.shape)}" for value in lost]
    raise Failed(f"the forward pass uses {len(lost)} tensors that require a gradient and are no "
                 f"parameters of the model: {listed(what)}. No optimizer on model.parameters() "
                 "trains them, and no checkpoint has them",
                 "Keep layers in nn.ModuleList or nn.ModuleDict, and tensors as nn.Parameter.",
                 tuple(names[id(value)] for value in lost), places.of_module(subject.model, ""))


def _hidden(model: nn.Module) -> Iterator[tuple[int, str]]:
    """(id, path) of the tensors in plain attributes, lists and dicts of the modules."""
    for name, module in model.named_modules():
        for key, value in module.__dict__.items():
            if not key.startswith("_") or key not in nn.Module().__dict__:
                yield from _tensors_in(value, f"{name}.{key}" if name else key, 3)


def _tensors_in(value: Any, path: str, depth: int) -> Iterator[tuple[int, str]]:
    if isinstance(value, torch.Tensor):
        yield id(value), path
    elif isinstance(value, nn.Module):
        for name, one in value.named_parameters():
            yield id(one), f"{path}.{name}"
    elif isinstance(value, dict) and depth:
        for key, one in value.items():
            yield from _tensors_in(one, f"{path}[{key!r}]", depth - 1)
    elif isinstance(value, (list, tuple)) and depth:
        for number, one in enumerate(value):
            yield from _tensors_in(one, f"{path}[{number}]", depth - 1)


def held(subject: Subject) -> str:
    """The optimizer holds the parameters of the model, and no other model's."""
    optimizer = subject.problem.optimizer
    if optimizer is None:
        raise NotApplicable("no optimizer was given")
    inside = [value for group in optimizer.param_groups for value in group["params"]]
    ids = {id(value) for value in inside}
    own = dict(subject.original.named_parameters())
    lost = [name for name in _ours(subject, _trained(subject.original)) if id(own[name]) not in ids]
    copies = _copies(subject.original, lost, {name for name in own if id(own[name]) in ids})
    lost = [name for name in lost if name.partition(".")[0] not in copies]
    if lost:
        raise Failed(f"the optimizer does not hold {len(lost)} of "
                     f"{len(_trained(subject.original))} parameters that require a gradient: "
                     f"{listed(lost)}", "Build the optimizer after the last change of the model, "
                     "or freeze these with requires_grad_(False).", tuple(lost))
    mine = {id(value) for value in own.values()}
    foreign = [value for value in inside if id(value) not in mine]
    if foreign and not any(id(value) in mine for value in inside):
        raise Failed(f"none of the {len(foreign)} tensors that the optimizer holds is a parameter "
                     "of the model", "Build the optimizer with the parameters of this model.")
    frozen = sum(not value.requires_grad for value in inside)
    more = f"; {len(foreign)} belong to something else" if foreign else ""
    more += f"; {listed(copies)}: a copy that no optimizer trains" if copies else ""
    return f"the optimizer holds {len(inside) - len(foreign)} parameters of the model" \
           f"{more}{f'; {frozen} are frozen' if frozen else ''}"


def _copies(model: nn.Module, lost: list[str], held_: set[str]) -> list[str]:
    """The parts of a model that are copies of parts which the optimizer holds, with equal values,
    and hold none of its parameters: target networks, which nothing trains."""
    children = dict(model.named_children())

    def values(name: str) -> dict[str, torch.Tensor]:
        return dict(children[name].named_parameters())

    names = [name for name in dict.fromkeys(one.partition(".")[0] for one in lost)
             if name in children and all(f"{name}.{key}" in lost for key in values(name))]
    trained = [name for name in children if values(name) and
               all(f"{name}.{key}" in held_ for key in values(name))]
    return [name for name in names
            if any(type(children[name]) is type(children[one]) and
                   _are_equal(values(name), values(one)) for one in trained)]


def _are_equal(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)
