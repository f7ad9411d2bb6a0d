"""Rows of a batch do not see each other, nor do positions see later ones or padding."""

from __future__ import annotations

import torch
from torch import nn

from . import places, trees
from .problem import TARGETS, Call
from .subject import EQUAL, Failed, NotApplicable, Subject

_ROWS = 3  # of the batch that are changed


def no_mixing(subject: Subject) -> str:
    """Another value in one row changes nothing in the output of the others."""
    rows = subject.rows()
    model = subject.twin(training=False)
    _refuse_batch_statistics(model)
    before = subject.outputs(model)
    subject.with_rows(before, rows)
    part = subject.outputs(subject.twin(training=False), subject.split(0, rows - 1))
    subject.with_rows(part, rows - 1)  # raises where the first dimension is not the batch
    worst = 0.0
    for row in {0, rows // 2, rows - 1} if rows > _ROWS else range(rows):
        after = subject.outputs(subject.twin(training=False), _changed_row(subject, row))
        own, others = _changes(before, after, rows, row)
        if others > EQUAL * own and others > 0:
            _judge_mixing(subject, row, own, others)
        worst = max(worst, others)
    gradient = _gradient_between_rows(subject, rows)
    return f"another value in a row changes the output of the other rows by {worst:.3g} " \
           f"({rows} rows{gradient})"


def _refuse_batch_statistics(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
            raise NotApplicable(f"{name} keeps no running statistics: it normalises by the batch "
                                "in evaluation too")


def _changed_row(subject: Subject, row: int) -> Call:
    """The call with other values in one row."""
    values = []
    for name, value in subject.call.named():
        if value.dim() > 0 and value.dtype != torch.bool and not _are_lengths(name, value):
            other, value = trees.other_values(value, subject.generator), value.detach().clone()
            value[row] = other[row]
        values.append(value)
    return subject.call.replaced(values)


def _are_lengths(name: str, value: torch.Tensor) -> bool:
    return value.dim() == 1 and not value.is_floating_point() and "len" in name.lower()


def _changes(before: list[torch.Tensor], after: list[torch.Tensor], rows: int,
             row: int) -> tuple[float, float]:
    """The largest change of the output of a row, and of all others."""
    own = others = 0.0
    rest = [number for number in range(rows) if number != row]
    for one, two in zip(before, after):
        if one.shape != two.shape:
            raise NotApplicable("the shape of the output depends on the values of the input")
        if one.dim() > 0 and one.shape[0] == rows:
            own = max(own, trees.difference(one[row], two[row]))
            if _compares_rows(one):
                one, two = one[:, rest], two[:, rest]
            others = max(others, trees.difference(one[rest], two[rest]))
    return own, others


def _compares_rows(value: torch.Tensor) -> bool:
    """Whether it may be a similarity of every row with every row, whose columns are rows too."""
    return value.dim() == 2 and value.shape[0] == value.shape[1]


def _judge_mixing(subject: Subject, row: int, own: float, others: float) -> None:
    timed = subject.rows_by_time()
    labels = subject.problem.targets[0].shape if subject.problem.targets else ()
    if timed is not None and len(labels) != 1 and not _has_time_second(subject):
        raise NotApplicable(f"{timed} takes time first, and the first dimension of the input may "
                            "be either; if it is the batch, its rows mix: use batch_first=True")
    where = _mixing_module(subject, row)
    kind = type(subject.model.get_submodule(where)).__name__ if where else ""
    cause = f", first in the output of {where} ({kind})" if where else ""
    hint = f"{timed}: use batch_first=True." if timed is not None else \
        "Look for a softmax, mean, view or matmul over dimension 0."
    raise Failed(f"another input in row {row} changes the output of other rows by {others:.3g} "
                 f"(of its own row by {own:.3g}){cause}", hint, (where,) if where else (),
                 places.of_module(subject.model, where))


def _has_time_second(subject: Subject) -> bool:
    """Whether the targets are the inputs a step later along dimension 1."""
    try:
        return _shifted(subject)[2] == 1
    except NotApplicable:
        return False


def _mixing_module(subject: Subject, row: int) -> str:
    """The first module whose output in other rows changes with a row of the input."""
    rows = subject.rows()

    def seen(call: Call) -> list[tuple[str, torch.Tensor]]:
        model, found = subject.twin(training=False), []
        for name, module in model.named_modules():
            module.register_forward_hook(
                lambda _, __, output, name=name: found.extend(
                    (name, value.detach().clone()) for value in trees.tensors(output)))
        subject.outputs(model, call)
        return found

    before, after = seen(subject.call), seen(_changed_row(subject, row))
    rest = [number for number in range(rows) if number != row]
    for (name, one), (_, two) in zip(before, after):
        if one.dim() > 0 and one.shape[0] == rows and one.shape == two.shape and \
                trees.difference(one[rest], two[rest]) > EQUAL * trees.size(one):
            return name
    return ""


def _gradient_between_rows(subject: Subject, rows: int) -> str:
    """The gradient of the output of row 0 by the other rows: exactly 0."""
    model = subject.twin(training=False)
    call = subject.call.changed(
        lambda x: x.detach().clone().requires_grad_(x.is_floating_point()))
    inputs = [value for value in call.tensors() if value.requires_grad and value.dim() > 0]
    output = [value for value in trees.floats(model(*call.args, **call.kwargs))
              if value.dim() > 0 and value.shape[0] == rows and value.requires_grad
              and not _compares_rows(value)]
    if not inputs or not output:
        return ""
    gradients = torch.autograd.grad(
        sum((value[0] * torch.linspace(1, 2, value[0].numel(), device=value.device)
             .reshape(value[0].shape)).sum() for value in output), inputs, allow_unused=True)
    own = max((trees.size(one[0]) for one in gradients if one is not None), default=0.0)
    others = max((trees.size(one[1:]) for one in gradients if one is not None), default=0.0)
    if others > EQUAL * own:
        _judge_mixing(subject, 0, own, others)
    return f"; the gradient of row 0 by the others is {others:.3g}"


def batch_independent(subject: Subject) -> str:
    """A part of the batch gives the same output as within the batch."""
    rows = subject.rows()
    model = subject.twin(training=False)
    _refuse_batch_statistics(model)
    whole = subject.outputs(model)
    subject.with_rows(whole, rows)
    again = subject.outputs(subject.twin(training=False), seed=1)
    if any(trees.difference(one, two) > 0 for one, two in zip(whole, again)):
        raise NotApplicable("the model draws random numbers in evaluation")
    size = max((trees.size(value) for value in whole if value.is_floating_point()), default=0.0)
    few = max(1, rows // 2)
    part = subject.outputs(subject.twin(training=False), subject.split(0, few))
    subject.with_rows(part, few)
    worst = max((trees.difference(one[:few], two) for one, two in zip(whole, part)
                 if one.dim() > 0 and one.shape[0] == rows and one.is_floating_point()),
                default=0.0)
    if worst == float("inf"):
        raise NotApplicable("the shape of the output depends on the number of rows")
    if worst > 10 * EQUAL * max(size, 1e-6):
        if subject.rows_by_time() is not None:
            raise NotApplicable(f"{subject.rows_by_time()} takes time first")
        raise Failed(f"{few} of {rows} rows alone give an output that differs by {worst:.3g} from "
                     f"the one within the batch (largest value {size:.3g}), in evaluation",
                     "Use statistics of each row, or running ones as nn.BatchNorm does.", (),
                     places.of_module(subject.model, ""))
    return f"{few} of {rows} rows alone differ by {worst:.3g}"


# --- positions --------------------------------------------------------------------------------


def _shifted(subject: Subject) -> tuple[int, torch.Tensor, int]:
    """(which input, the input, the dimension of time) if the targets are this input a step
    later."""
    for number, value in enumerate(subject.call.tensors()):
        for target in subject.problem.targets:
            for dim in (1, 0):
                if value.dim() > dim and value.shape[dim] >= 3 and \
                        (not value.is_floating_point() or value.dim() > 1) and \
                        _is_later(value, target, dim):
                    return number, value, dim
    raise NotApplicable("the targets are not the inputs one position later")


def _is_later(value: torch.Tensor, target: torch.Tensor, dim: int) -> bool:
    """Whether target[t] is value[t + 1]; a target may be flat, or one position longer."""
    if target.dtype != value.dtype or target.numel() == 0 or bool((value == value.flatten()[0]).all()):
        return False
    longer = list(value.shape)
    longer[dim] += 1
    length = value.shape[dim]
    if list(target.shape) == longer:  # tokens, of which the network sees [:, :-1]
        return bool(torch.equal(target.narrow(dim, 0, length), value))
    if target.numel() != value.numel():
        return False
    later = target.reshape(value.shape).narrow(dim, 0, length - 1)
    good = later == value.narrow(dim, 1, length - 1)
    if not value.is_floating_point():
        good = good | (later < 0)  # ignored
    return float(good.float().mean()) > 0.99


def _loss_shifts(subject: Subject, value: torch.Tensor) -> int | None:
    """The dimension of time, if the targets equal the inputs and the loss ignores the first
    position of the targets: it shifts them itself."""
    targets = subject.problem.targets
    for number, target in enumerate(targets):
        if target.shape == value.shape and target.dim() == 2 and torch.equal(target, value) and \
                not value.is_floating_point() and value.shape[1] >= 3:
            other = target.clone()
            other[:, 0] = trees.other_values(target, subject.generator)[:, 0]
            if torch.equal(other, target):
                continue
            model = subject.twin(training=False)
            before = subject.loss(model)
            changed = [other if place == number else one for place, one in enumerate(targets)]
            return 1 if float(before) == float(subject.loss(model, changed)) else None
    return None


def _by_position(output: list[torch.Tensor], value: torch.Tensor, dim: int) -> torch.Tensor:
    """The output with time as dimension 1, and the batch as dimension 0."""
    batch, time = value.shape[1 - dim] if value.dim() > 1 else 1, value.shape[dim]
    for one in output:
        if one.dim() >= 2 and one.is_floating_point():
            if one.shape[0] == value.shape[0] and one.shape[1] == value.shape[1]:
                return one.transpose(0, 1) if dim == 0 else one
            if one.dim() == 3 and dim == 1 and one.shape[0] == batch and one.shape[2] == time:
                return one.transpose(1, 2)
            if one.shape[0] == batch * time:
                shape = value.shape[:2] + one.shape[1:]
                return one.reshape(shape).transpose(0, 1) if dim == 0 else one.reshape(shape)
    raise NotApplicable("the output has no value for each position: " + ", ".join(
        str(tuple(one.shape)) for one in output))


def no_leak(subject: Subject) -> str:
    """Later positions change nothing in the output of earlier ones."""
    try:
        number, value, dim = _shifted(subject)
    except NotApplicable:
        inputs = subject.call.tensors()
        shifts = next(((n, one, dim) for n, one in enumerate(inputs)
                       if (dim := _loss_shifts(subject, one)) is not None), None)
        if shifts is None:
            raise
        number, value, dim = shifts
    earlier, later, own = _leak(subject, number, value, dim)
    if earlier > EQUAL * own:
        raise Failed(f"other inputs after position {later - 1} change the output at or before it "
                     f"by {earlier:.3g} (after it by {own:.3g}), and the targets are the inputs "
                     "one position later: the network can read its answers",
                     "Give attention a causal mask, convolutions padding on the left alone, and "
                     "recurrent layers one direction.", (), places.of_module(subject.model, ""))
    return f"inputs after position {later - 1} change the earlier outputs by {earlier:.3g}"


def _leak(subject: Subject, number: int, value: torch.Tensor,
          dim: int) -> tuple[float, int, float]:
    """(the change at earlier positions, the first later one, the change at later ones)."""
    worst, own, at = 0.0, 0.0, 0
    length = value.shape[dim]
    before = _by_position(subject.outputs(subject.twin(training=False)), value, dim)
    for later in sorted({length - 1, max(1, length // 2)}):
        other = trees.other_values(value, subject.generator)
        changed = torch.cat([value.narrow(dim, 0, later),
                             other.narrow(dim, later, length - later)], dim)
        values = subject.call.tensors()
        values[number] = changed
        after = _by_position(subject.outputs(subject.twin(training=False),
                                             subject.call.replaced(values)), value, dim)
        gap = trees.difference(before[:, :later], after[:, :later])
        own = max(own, trees.difference(before[:, later:], after[:, later:]))
        if gap >= worst:
            worst, at = gap, later
    return worst, at, own


def targets_are_not_inputs(subject: Subject) -> str:
    """A network that sees position t and no later one is not asked for the input at t."""
    for number, (name, value) in enumerate(subject.call.named()):
        if name in TARGETS:  # which a network takes to compute its loss
            continue
        same = [one for one in subject.problem.targets
                if one.numel() == value.numel() and one.dtype == value.dtype
                and value.dim() == (3 if value.is_floating_point() else 2) and value.shape[1] >= 3
                and torch.equal(one.reshape(value.shape), value)]
        if same and len(torch.unique(value)) > 2:
            if _loss_shifts(subject, value) is not None:
                return "the targets equal the inputs, and the loss shifts them"
            earlier, _, own = _leak(subject, number, value, 1)
            if earlier > EQUAL * own:
                raise NotApplicable("the network sees all positions: it may encode its input")
            if value.is_floating_point() and not _sees_earlier(subject, number, value):
                raise NotApplicable("the network sees one position alone: it may encode its input")
            raise Failed("the targets equal the inputs at the same position, and the network sees "
                         "no later one: it learns to copy its input",
                         "Shift the targets: inputs tokens[:, :-1], targets tokens[:, 1:].")
    if not subject.problem.targets or all(one.is_floating_point() and one.dim() != 3
                                          for one in subject.call.tensors()):
        raise NotApplicable("the inputs are no tokens and no series")
    return "the targets differ from the inputs"


def _sees_earlier(subject: Subject, number: int, value: torch.Tensor) -> bool:
    """Whether an input at the first position changes outputs at later ones."""
    values, other = subject.call.tensors(), value.detach().clone()
    other[:, 0] = trees.other_values(value, subject.generator)[:, 0]
    values[number] = other
    before, after = (_by_position(subject.outputs(subject.twin(training=False), call), value, 1)
                     for call in (subject.call, subject.call.replaced(values)))
    return trees.difference(before[:, 1:], after[:, 1:]) > 0


# --- padding ----------------------------------------------------------------------------------


def padding_ignored(subject: Subject) -> str:
    """Other values at the masked positions change nothing at the others."""
    kept = _kept(subject)
    values = [value for _, value in subject.call.named()]
    changed, count = [], 0
    for value in values:
        if value.dim() >= 2 and value.shape[:2] == kept.shape and value.dtype != torch.bool and \
                not _is_mask(value, kept):
            other = trees.other_values(value, subject.generator)
            keep = kept.reshape(kept.shape + (1,) * (value.dim() - 2))
            value, count = torch.where(keep, value, other), count + 1
        changed.append(value)
    if count == 0:
        raise NotApplicable("no input has the shape of the mask")
    before = subject.outputs(subject.twin(training=False))
    after = subject.outputs(subject.twin(training=False), subject.call.replaced(changed))
    worst = largest = 0.0
    for one, two in zip(before, after):
        if not one.is_floating_point() or one.shape != two.shape:
            continue
        if one.shape[:2] == kept.shape:
            one, two = one[kept], two[kept]
        elif one.dim() >= 2 and one.transpose(0, 1).shape[:2] == kept.shape:
            one, two = one.transpose(0, 1)[kept], two.transpose(0, 1)[kept]
        worst, largest = max(worst, trees.difference(one, two)), max(largest, trees.size(one))
    if worst > 10 * EQUAL * largest:
        raise Failed(f"other values at the {int((~kept).sum())} padded positions change the "
                     f"output elsewhere by {worst:.3g} (largest value {largest:.3g})",
                     "Pass the mask to every attention and to the pooling, and divide means by "
                     "the number of positions that are kept.", (),
                     places.of_module(subject.model, ""))
    return f"other values at {int((~kept).sum())} padded positions change the rest by {worst:.3g}"


def _is_mask(value: torch.Tensor, kept: torch.Tensor) -> bool:
    """Whether it says itself which positions are padded."""
    return value.dim() == 2 and _is_binary(value) and \
        (torch.equal(value.bool(), kept) or torch.equal(value.bool(), ~kept))


def _kept(subject: Subject) -> torch.Tensor:
    """Which positions (N, T) are no padding, as a mask or lengths of the batch say."""
    named = subject.call.named()
    for name, value in named:
        if value.dim() == 2 and _is_binary(value) and bool((value != value[0, 0]).any()):
            kept = value.bool()
            ends = kept[:, -1]
            if "padding_mask" in name or bool(kept[:, 0].logical_not().all()):
                kept, ends = ~kept, ~ends
            if bool(kept[:, 0].all()) and not bool(ends.all()) and \
                    torch.equal(kept.long().cummin(1).values.bool(), kept):
                return kept
    for name, lengths in named:
        if lengths.dim() == 1 and not lengths.is_floating_point() and "len" in name:
            for _, value in named:
                if value.dim() >= 2 and value.shape[0] == len(lengths) and \
                        0 < int(lengths.min()) < int(lengths.max()) <= value.shape[1]:
                    positions = torch.arange(value.shape[1], device=lengths.device)
                    return positions[None, :] < lengths[:, None]
    raise NotApplicable("no input is a mask or the lengths of padded rows")


def _is_binary(value: torch.Tensor) -> bool:
    return value.dtype == torch.bool or bool(((value == 0) | (value == 1)).all())


