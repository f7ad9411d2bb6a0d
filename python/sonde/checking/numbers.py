"""Devices, dtypes and values of parameters, inputs and targets."""

from __future__ import annotations

import math

import torch

from . import graphs, trees
from .properties import listed
from .subject import Failed, NotApplicable, Subject


def dtypes(subject: Subject) -> str:
    """Parameters have one precision and one device; all values are finite."""
    named = [*subject.base.named_parameters(), *subject.base.named_buffers()]
    wrong = [name for name, value in named
             if value.is_floating_point() and not bool(torch.isfinite(value).all())
             and "mask" not in name]
    parameters = dict(subject.base.named_parameters())
    wrong = [name for name in wrong if name in parameters]
    if wrong:
        raise Failed(f"{len(wrong)} parameters have NaN or infinite values: {listed(wrong)}",
                     "Is a checkpoint broken, or are values never initialised?", tuple(wrong))
    kinds: dict[torch.dtype, list[str]] = {}
    for name, value in parameters.items():
        if value.is_floating_point():
            kinds.setdefault(value.dtype, []).append(name)
    if torch.float64 in kinds and torch.float32 in kinds:
        few = min(kinds[torch.float64], kinds[torch.float32], key=len)
        raise Failed(f"{len(kinds[torch.float64])} parameters are float64 and "
                     f"{len(kinds[torch.float32])} float32: {listed(few)}",
                     "Convert NumPy's values with .float().", tuple(few))
    for name, value in subject.problem.calls[0].named() if subject.problem.calls else []:
        if value.is_floating_point() and bool(torch.isnan(value).any()):
            raise Failed(f"the input {name} has {int(torch.isnan(value).sum())} NaN",
                         "Clean the data.", (name,))
    for value in subject.problem.targets:
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise Failed(f"the targets have {int((~torch.isfinite(value)).sum())} NaN or infinite "
                         "values", "Clean the data, or mask these targets out.")
    devices = sorted({str(value.device) for value in parameters.values()})
    if not devices:
        raise NotApplicable("the model has no parameters")
    return f"{', '.join(str(kind).removeprefix('torch.') for kind in kinds) or 'no floats'} on " \
           f"{', '.join(devices)}; all values are finite"


def labels(subject: Subject) -> str:
    """Labels are in the range of the classes, and the output has no class more than needed."""
    targets = [value for value in subject.problem.targets
               if value.numel() and not value.is_floating_point() and value.dtype != torch.bool]
    if not targets or not subject.problem.calls:
        raise NotApplicable("the targets are no labels")
    outputs = [value for value in trees.floats(subject.output(subject.twin(training=True)))
               if value.dim() >= 2]
    try:
        loss = subject.loss(subject.twin(training=True))
    except (IndexError, RuntimeError) as problem:
        if "out of bounds" not in str(problem) and "out of range" not in str(problem):
            raise
        high = max(int(value.max()) for value in targets)
        low = min(int(value.min()) for value in targets)
        raise Failed(f"labels are {low} to {high}, but the loss has fewer classes (output "
                     f"{listed([str(tuple(value.shape)) for value in outputs])})",
                     "Labels start at 0; give the last layer a unit for each class.") from problem
    nodes = [node for node in graphs.nodes(loss) if graphs.kind(node) in ("NllLoss", "NllLoss2D")]
    if not nodes:
        raise NotApplicable("the loss takes no classes")
    classes = int(nodes[0]._saved_self.shape[1 if nodes[0]._saved_self.dim() > 1 else 0])
    used = nodes[0]._saved_target
    used = used[used != nodes[0]._saved_ignore_index]
    if used.numel() == 0:
        raise Failed("every label of the batch is ignored", "Check ignore_index.")
    return f"labels are {int(used.min())} to {int(used.max())} of {classes} classes"


# The values that an operation can give.
_RANGES = {"Relu": (0.0, math.inf), "Sigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0),
           "Softmax": (0.0, 1.0), "Softplus": (0.0, math.inf), "Exp": (0.0, math.inf)}
_FEW = 0.02  # share of the targets that may be outliers


def reachable(subject: Subject) -> str:
    """The last operation of the network can give the values of the targets."""
    outputs = trees.floats(subject.output(subject.twin(training=True)))
    targets = [value for value in subject.problem.targets
               if value.is_floating_point() and value.numel()]
    pairs = [(one, two) for one in outputs for two in targets if one.numel() == two.numel()]
    if len(pairs) != 1 or not subject.problem.loss_from:
        raise NotApplicable("the loss does not compare one output with floats of the same shape")
    output, target = pairs[0]
    if output.grad_fn is None:
        raise NotApplicable("the output has no gradient")
    kind = graphs.kind(output.grad_fn)
    if kind in graphs.MOVES:
        kind = graphs.kind(graphs.source(output.grad_fn))
    low, high = _RANGES.get(kind, (-math.inf, math.inf))
    beyond = target[(target < low - 1e-3) | (target > high + 1e-3)]
    if beyond.numel() > _FEW * target.numel() and len(torch.unique(beyond)) > 1:
        bounds = f"at least {low:g}" if high == math.inf else f"{low:g} to {high:g}"
        raise Failed(f"{beyond.numel()} of {target.numel()} targets are out of reach: the output is "
                     f"that of {kind.lower()}, {bounds}, and the targets are "
                     f"{float(target.min()):.4g} to {float(target.max()):.4g}",
                     f"Remove {kind.lower()} behind the last layer, or scale the targets.")
    return f"targets are {float(target.min()):.4g} to {float(target.max()):.4g}" + \
        (f", within {kind.lower()}" if kind in _RANGES else "; the output is not bounded")
