"""Layers that follow each other: what stands between them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from . import graphs, places, trees
from .properties import listed
from .subject import EQUAL, Failed, NotApplicable, Subject

_ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU,
                nn.Mish, nn.Hardswish, nn.PReLU, nn.Tanh, nn.Softplus)
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class _Pass(NamedTuple):
    """What a pass in evaluation calls."""

    called: set[str]
    pairs: list[tuple[str, str]]  # layers that get the output of another as it is


def nonlinear(subject: Subject) -> str:
    """Layers in a row have something between them that is not linear."""
    layers = [name for name, module in subject.model.named_modules()
              if isinstance(module, _LAYERS)]
    if len(layers) < 2:
        raise NotApplicable("the network has fewer than two layers")
    seen = _listened(subject)
    idle = [name for name, module in subject.model.named_modules()
            if isinstance(module, _ACTIVATIONS) and name not in seen.called]
    for name in idle:
        owner = name.rpartition(".")[0]
        inside = [pair for pair in seen.pairs if all(_is_in(one, owner) for one in pair)]
        if inside:
            raise Failed(f"forward never calls {name}, and {inside[0][1]} gets the output of "
                         f"{inside[0][0]} as it is: both together are one linear layer",
                         f"Call {name} between them.", (name,),
                         places.of_module(subject.model, owner))
    wide = [pair for pair in seen.pairs if _loses_nothing(subject.model, *pair)]
    if wide and _is_affine(subject):
        raise Failed(f"the network is one linear function of its input, though it has {len(layers)} "
                     f"layers: {wide[0][1]} gets the output of {wide[0][0]} as it is",
                     "Put an activation, such as nn.ReLU(), between them.", wide[0],
                     places.of_module(subject.model, ""))
    if wide:
        return f"the network is not linear, but {listed([f'{b} gets the output of {a}' for a, b in wide])}" \
               " as it is"
    return f"none of {len(layers)} layers is superfluous"


def _is_in(name: str, owner: str) -> bool:
    return not owner or name.startswith(owner + ".")


def _listened(subject: Subject) -> _Pass:
    """Calls of modules by the loss, in training mode without dropout."""
    seen = _Pass(set(), [])
    model = subject.twin(training=True)
    made: dict[Any, str] = {}  # the node of an output, and the layer

    def before(name: str, args: Any) -> None:
        node = args[0].grad_fn if args and isinstance(args[0], torch.Tensor) else None
        while node is not None and node not in made and graphs.kind(node) in graphs.MOVES:
            node = node.next_functions[0][0] if node.next_functions else None
        if node in made:
            seen.pairs.append((made[node], name))

    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.eval()
        module.register_forward_pre_hook(lambda _, args, name=name: seen.called.add(name))
        if isinstance(module, _LAYERS):
            module.register_forward_pre_hook(lambda _, args, name=name: before(name, args))
            module.register_forward_hook(
                lambda _, __, output, name=name: made.update({output.grad_fn: name}))
    subject.loss(model)
    return seen


def _loses_nothing(model: nn.Module, one: str, two: str) -> bool:
    """Whether one layer in place of both could do the same: no narrow part lies between them, as
    of an encoder, a product of small matrices, or convolutions of channels and of places."""
    first, second = model.get_submodule(one), model.get_submodule(two)
    if not isinstance(first, nn.Linear) or not isinstance(second, nn.Linear):
        return False
    return first.out_features >= min(first.in_features, second.out_features)


def _is_affine(subject: Subject) -> bool:
    """Whether the output at a point between two inputs lies between the outputs, in both modes."""
    inputs = subject.call.tensors()
    if not all(value.is_floating_point() for value in inputs):
        return False
    other = [trees.other_values(value, subject.generator) for value in inputs]
    middle = [0.25 * one + 0.75 * two for one, two in zip(inputs, other)]
    model = subject.twin(training=False)
    one, two, between = (subject.outputs(model, subject.call.replaced(values))
                         for values in (inputs, other, middle))
    return all(trees.difference(0.25 * a + 0.75 * b, c) <= EQUAL * max(trees.size(a), trees.size(b))
               for a, b, c in zip(one, two, between) if a.is_floating_point())
