"""The operations of the loss: what it normalises itself, over which dimension, and its sign."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from . import graphs, places
from .subject import Failed, NotApplicable, Subject

# Losses of PyTorch, which name their targets.
OF_PYTORCH = {getattr(F, name) for name in (
    "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss",
    "gaussian_nll_loss", "multi_margin_loss", "multilabel_margin_loss", "soft_margin_loss",
    "multilabel_soft_margin_loss", "hinge_embedding_loss", "margin_ranking_loss",
    "cosine_embedding_loss", "ctc_loss")}
_BY_ELEMENT = {F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss}
_NORMALISED = 0.05  # distance of a logarithm of a sum of probabilities from 0
_BOUNDED = {"Relu": "0 or more", "Tanh": "-1 to 1", "Hardtanh": "in a fixed range"}
_MOST_OF_IT = 0.5  # share of the loss


def target_of(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The target among the arguments of a loss of PyTorch; None: there is none."""
    try:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        given = dict(enumerate(args)) | kwargs
    return next((given[name] for name in ("target", "targets", 1) if name in given), None)


def normalised_once(subject: Subject) -> str:
    """No softmax, sigmoid or log in front of a loss that has its own."""
    with places.Lines() as lines:
        loss = subject.loss(subject.twin(training=True))
    seen = []
    for node in graphs.nodes(loss):
        judge, what = _LOSSES.get(graphs.kind(node), (None, ""))
        if judge is None:
            continue
        try:
            judge(node)
        except Failed as found:
            found.place = lines.of.get(graphs.source(node)) or lines.of.get(node, "")
            raise
        seen.append(what)
    if not seen:
        raise NotApplicable("the loss has no cross entropy")
    return f"{', '.join(sorted(set(seen)))}: no softmax or sigmoid in front of it"


def _judge_logits(node: Any) -> None:
    before = graphs.source(node)
    if before is None:
        return
    kind = graphs.kind(before)
    if kind in ("Softmax", "Sigmoid"):
        raise Failed(f"{kind.lower()} stands in front of a cross entropy or log softmax, which has "
                     "its own softmax: its gradient is squashed",
                     f"Return logits: remove the {kind.lower()}, or use it in evaluation alone.")
    if kind in _BOUNDED:
        raise Failed(f"{kind.lower()} stands in front of a cross entropy or log softmax: its logits "
                     f"are {_BOUNDED[kind]}", f"Return logits: remove the {kind.lower()} behind the "
                     "last layer.")
    if kind == "Log" and graphs.source(before) is not None and \
            graphs.kind(graphs.source(before)) == "Sigmoid":
        raise Failed("log(sigmoid) stands in front of a cross entropy, which has its own softmax",
                     "Return logits.")


def _judge_binary(node: Any) -> None:
    before = graphs.source(node)
    kind = graphs.kind(before) if before is not None else ""
    if kind in ("Sigmoid", "Softmax", "LogSigmoid", "LogSoftmax"):
        raise Failed(f"{kind.lower()} stands in front of a binary cross entropy with logits, which "
                     "has its own sigmoid",
                     f"Return logits: remove the {kind.lower()}, or use F.binary_cross_entropy "
                     "after a sigmoid.")
    if kind in _BOUNDED:
        raise Failed(f"{kind.lower()} stands in front of a binary cross entropy with logits: its "
                     f"logits are {_BOUNDED[kind]}", f"Return logits: remove the {kind.lower()} "
                     "behind the last layer.")
    target = node._saved_target
    low, high = float(target.min()), float(target.max())
    if low < 0 or high > 1:
        raise Failed(f"the targets of a binary cross entropy are {low:.4g} to {high:.4g} "
                     "(expected 0 to 1)", "Map the classes to 0 and 1.")


def _judge_chances(node: Any) -> None:
    before = graphs.source(node)
    inner = graphs.source(before) if before is not None else None
    if inner is not None and graphs.kind(before) == "Sigmoid" and \
            graphs.kind(inner) in ("Sigmoid", "Softmax"):
        raise Failed(f"{graphs.kind(inner).lower()} stands in front of the sigmoid of a binary cross "
                     "entropy: its outputs are 0.5 to 0.73", "Remove one of the two.")


def _judge_probabilities(node: Any) -> None:
    """The classes of nll_loss are logarithms of probabilities, whose sum is 1."""
    values = node._saved_self.detach().double()
    dim = 1 if values.dim() > 1 else 0
    off = values.logsumexp(dim).abs()
    share = float((off > _NORMALISED).double().mean())
    if share <= 0.5:
        return
    before = graphs.source(node)
    kind = graphs.kind(before) if before is not None else ""
    if kind == "LogSoftmax":
        what = f"the log softmax goes over dimension {graphs.dimension(before)} of " \
               f"{tuple(before._saved_result.shape)}, which are not the classes"
        raise Failed(what + ": the probabilities of a row do not add up to 1",
                     "Use dim=1 (dim=-1 if the classes are last).")
    what = "softmax without log" if kind == "Softmax" else "values that are no log probabilities"
    raise Failed(f"nll_loss gets {what}: exp of them adds up to "
                 f"{float(values.logsumexp(dim).exp().median()):.4g} (expected 1)",
                 "Use F.cross_entropy on logits, or F.log_softmax(x, dim=1) in front of it.")


_LOSSES = {"LogSoftmax": (_judge_logits, "a log softmax"),
           "BinaryCrossEntropyWithLogits": (_judge_binary, "a binary cross entropy of logits"),
           "BinaryCrossEntropy": (_judge_chances, "a binary cross entropy"),
           "NllLoss": (_judge_probabilities, "a negative log likelihood"),
           "NllLoss2D": (_judge_probabilities, "a negative log likelihood")}


class _Compared(TorchFunctionMode):
    """The results of the losses of PyTorch that compare with constants, and their lines."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, torch.Tensor, str]] = []
        self.targets: list[torch.Tensor] = []
        self.shapes: list[tuple[str, torch.Size, torch.Size, str]] = []  # of output and target

    def __torch_function__(self, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function in OF_PYTORCH and isinstance(result, torch.Tensor) and result.requires_grad:
            target = target_of(function, args, kwargs or {})
            if isinstance(target, torch.Tensor) and not target.requires_grad and \
                    not _is_constant(target):
                self.targets.append(target)
                if function in _BY_ELEMENT and args and isinstance(args[0], torch.Tensor):
                    self.shapes.append((function.__name__, args[0].shape, target.shape, places.here()))
                self.found.append((function.__name__, result, places.here()))
        return result


def targets_of(subject: Subject) -> list[torch.Tensor]:
    """The targets of the losses of PyTorch that the loss calls."""
    with _Compared() as compared:
        subject.loss(subject.twin(training=True))
    return compared.targets


def shapes_of(subject: Subject) -> list[tuple[str, torch.Size, torch.Size, str]]:
    """Losses of PyTorch whose output and targets have other shapes, of which one is repeated, with
    the shapes of both and the line."""
    with _Compared() as compared:
        subject.loss(subject.twin(training=True))
    return [one for one in compared.shapes if _is_repeated(*one[1:3])]


def _is_repeated(output: torch.Size, target: torch.Size) -> bool:
    """Whether columns are repeated, and not one target for all rows, as of real pictures."""
    return len(output) == len(target) > 1 and output[0] == target[0] > 1 and \
        any((a == 1) != (b == 1) for a, b in zip(output[1:], target[1:]))


def _is_constant(target: torch.Tensor) -> bool:
    """Whether all targets are equal floats: real or not, by which networks oppose each other."""
    return target.is_floating_point() and target.numel() > 0 and \
        bool((target == target.flatten()[0]).all())


def minimised(subject: Subject) -> str:
    """The optimizer makes the distance from the targets smaller, and not larger."""
    if subject.problem.held_elsewhere:
        raise NotApplicable("other optimizers of the program may train against this one")
    with _Compared() as compared:
        loss = subject.loss(subject.twin(training=True))
    if not compared.found or not loss.requires_grad:
        raise NotApplicable("the loss calls no loss of PyTorch with targets")
    sign = _direction(subject.problem.optimizer)
    values = [value for _, value, _ in compared.found]
    found = [(name, place, sign * gradient, float((gradient * value).sum().detach()))
             for (name, value, place), gradient in zip(
                 compared.found, torch.autograd.grad(loss, values, allow_unused=True))
             if gradient is not None and bool(gradient.any())]
    if not found:
        raise NotApplicable("the loss of PyTorch has no share in the gradient")
    share = abs(sum(one[3] for one in found)) / max(abs(float(loss.detach())), 1e-12)
    names = ", ".join(sorted({one[0] for one in found}))
    if share >= _MOST_OF_IT and all(float(one[2].max()) < 0 and
                                    float(one[2].max()) == float(one[2].min()) for one in found):
        how = "the optimizer maximises" if sign < 0 else "the loss is the negative of"
        raise Failed(f"{how} {names}: each step moves the output away from the targets",
                     "Leave out maximize=True." if sign < 0 else "Remove the minus.", (),
                     found[0][1])
    return f"{names} is minimised"


def _direction(optimizer: torch.optim.Optimizer | None) -> int:
    """-1: the optimizer steps along the gradient."""
    groups = optimizer.param_groups if optimizer is not None else []
    return -1 if groups and all(group.get("maximize") for group in groups) else 1
