"""Training and evaluation mode: what is random, what changes, and what agrees."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from . import places, trees
from .properties import listed
from .subject import EQUAL, Failed, NotApplicable, Subject

_DROPOUTS = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout",
             "feature_alpha_dropout", "feature_dropout", "_dropout_nd", "rrelu"}
_ROUNDING = 1e-6  # relative: sums of the same values at other addresses
_RANDOM = {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like",
           "bernoulli", "bernoulli_", "multinomial", "normal", "normal_", "uniform_", "poisson",
           "exponential_", "random_", "gumbel_softmax", "_standard_gamma", "log_normal_",
           "cauchy_", "geometric_"}


class _Drawn(TorchFunctionMode):
    """The random functions that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.places: dict[str, str] = {}

    def __torch_function__(self, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name in _RANDOM:
            self.names.append(name)
        elif name in _DROPOUTS and _is_on(name, args, kwargs) or \
                name == "scaled_dot_product_attention" and \
                (args[4] if len(args) > 4 else kwargs.get("dropout_p", 0)):
            self.names.append("dropout")
            self.places.setdefault("dropout", places.here())
        return function(*args, **kwargs)


def _is_on(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    if name == "rrelu":
        return bool(kwargs.get("training", args[3] if len(args) > 3 else False))
    share = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
    return bool(share) and bool(kwargs.get("training", args[2] if len(args) > 2 else True))


def _buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.named_buffers()}


def _changed(before: dict[str, torch.Tensor], model: nn.Module) -> list[str]:
    return [name for name, value in model.named_buffers()
            if name in before and trees.difference(before[name], value) > 0]


def _gap(one: list[torch.Tensor], two: list[torch.Tensor]) -> float:
    if len(one) != len(two):
        return float("inf")
    return max((trees.difference(a, b) for a, b in zip(one, two)), default=0.0)


def deterministic(subject: Subject) -> str:
    """In evaluation mode two passes give equal bits, and change no buffer."""
    model = subject.twin(training=False)
    before = _buffers(model)
    with _Drawn() as drawn:
        first = subject.outputs(model)
    moved = _changed(before, model)
    if moved:
        raise Failed(f"a pass in evaluation mode changes {listed(moved)}",
                     "The layer is in training mode after model.eval(): check its train() and "
                     "the argument training of F.batch_norm.", tuple(moved),
                     places.of_module(model, moved[0].rpartition(".")[0]))
    second = subject.outputs(subject.twin(training=False), seed=1)
    gap = _gap(first, second)
    if gap > 0 and (drawn.names or gap > _ROUNDING * max(map(trees.size, first), default=0.0)):
        _judge_random(drawn, gap)
    again = _gap(first, subject.outputs(model))
    if again > gap:
        raise NotApplicable(f"the model keeps a state between calls: the second pass differs by "
                            f"{again:.3g}")
    return "two passes are equal, bit for bit" if gap == 0 else \
        f"two passes differ by {gap:.3g}: by rounding alone"


def _judge_random(drawn: _Drawn, gap: float) -> None:
    names = drawn.names
    if "dropout" in names:
        raise Failed(f"dropout is on in evaluation mode: two passes differ by {gap:.3g}",
                     "Use nn.Dropout as a registered module, or "
                     "F.dropout(x, p, training=self.training).", (), drawn.places["dropout"])
    if names:
        raise NotApplicable(f"the model draws random numbers: {listed(sorted(set(names)))}")
    raise NotApplicable(f"two passes differ by {gap:.3g}: the model draws random numbers, "
                        "but by no function of PyTorch")


def training_mode(subject: Subject) -> str:
    """The program's training step runs in training mode."""
    if subject.problem.in_training is None:
        raise NotApplicable("the program's own step is not known")
    if subject.problem.in_training:
        return "the network is in training mode at the program's training step"
    aware = [f"{name} ({type(module).__name__})" for name, module in subject.model.named_modules()
             if _knows_its_mode(module)]
    if not aware:
        raise NotApplicable("the network was in evaluation mode, but no layer depends on it")
    raise Failed(f"the network is in evaluation mode at a training step: {listed(aware)} work as "
                 "for evaluation", "Call model.train() before the loop, and again after each "
                 "evaluation.")


def modes_agree(subject: Subject) -> str:
    """Without dropout and normalisation by the batch, both modes compute the same."""
    aware = [f"{name} ({type(module).__name__})" for name, module in subject.model.named_modules()
             if _knows_its_mode(module)]
    if aware:
        raise NotApplicable(f"{aware[0]} depends on the mode")
    model = subject.twin(training=True)
    before = _buffers(model)
    with _Drawn() as drawn:
        training = subject.outputs(model)
    if drawn.names or _gap(training, subject.outputs(subject.twin(training=True), seed=1)) > 0:
        raise NotApplicable("the training mode draws random numbers")
    if _changed(before, model):
        raise NotApplicable("a pass in training mode updates statistics")
    evaluation = subject.outputs(subject.twin(training=False))
    if len(training) != len(evaluation) or \
            any(a.shape != b.shape for a, b in zip(training, evaluation)):
        raise NotApplicable("the two modes return other things")
    gap = _gap(training, evaluation)
    size = max((trees.size(value) for value in training), default=0.0)
    if gap > EQUAL * size:
        if _is_of_the_other(training, evaluation):
            raise NotApplicable("in evaluation the model returns probabilities")
        raise Failed(f"training and evaluation mode differ by {gap:.3g} (largest value {size:.3g})"
                     ", but no layer of the model knows its mode",
                     "Look for self.training in forward.")
    return f"training and evaluation mode differ by {gap:.3g}"


def _knows_its_mode(module: nn.Module) -> bool:
    kind = type(module).__name__.lower()
    if isinstance(module, (nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd)) or \
            isinstance(module, nn.RReLU):
        return not (isinstance(module, nn.modules.dropout._DropoutNd) and module.p == 0)
    share = getattr(module, "dropout", 0)
    return any(word in kind for word in ("dropout", "droppath", "spectralnorm", "batchnorm")) or \
        isinstance(share, float) and share > 0


def _is_of_the_other(training: list[torch.Tensor], evaluation: list[torch.Tensor]) -> bool:
    """Whether evaluation returns the softmax or sigmoid of what training returns."""
    def near(one: torch.Tensor, two: torch.Tensor) -> bool:
        return trees.difference(one, two) <= 1e-4

    return all(near(a, b) or near(a.sigmoid(), b) or
               any(near(a.softmax(dim), b) or near(a.log_softmax(dim), b)
                   for dim in range(a.dim()))
               for a, b in zip(training, evaluation) if a.is_floating_point())
