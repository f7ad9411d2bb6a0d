"""The output depends on the input, and the loss on the targets, row by row."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from typing import Any

import torch

from . import graphs, losses, places, trees
from .problem import TARGETS
from .properties import listed
from .subject import Failed, NotApplicable, Subject

_ROWS = 4  # of an input of one value, from which on it is a mistake
_SAME = 1e-6  # relative: of sums in another order
# Operations of a loss that compares batches as a whole, such as a distance of distributions.
_ALL_WITH_ALL = {"Cdist", "EuclideanDist", "Pdist", "Mm", "Bmm", "Sort", "Topk"}


def output_on_input(subject: Subject) -> str:
    """Other inputs give other outputs: all inputs together, and each of them."""
    call = subject.call
    before = subject.outputs(subject.twin(noise=0.02, training=False))
    values, named = call.tensors(), call.named()
    other = [trees.other_values(value, subject.generator) for value in values]
    if all(bool((value == value.flatten()[:1]).all()) for value in values):
        _judge_constant(subject, values)
        raise NotApplicable("the inputs have one value only")
    after = subject.outputs(subject.twin(noise=0.02, training=False), call.replaced(other))
    gap = _gap(before, after) or _other_gap(subject, other)
    if gap == 0:
        raise Failed("other inputs give the same output, bit for bit",
                     "Look for a softmax over a dimension of size 1, units that are all dead, or "
                     "an argument that forward does not use.")
    direct = {id(value) for value in call.direct()}  # fields of an argument may be for others
    idle = [named[number][0] for number in range(len(values))
            if len(values) > 1 and id(values[number]) in direct
            and _is_idle(subject, number, other[number], before)
            and not _is_passed_by(subject, named[number][0])]
    if idle:
        raise Failed(f"other values of {listed(idle)} give the same output, bit for bit",
                     "forward does not use it.", tuple(idle))
    return f"other inputs change the output by up to {gap:.3g}"


def _judge_constant(subject: Subject, values: list[torch.Tensor]) -> None:
    """Inputs of one value leave nothing to be learned, if a loss of PyTorch compares each row with
    a target of its own."""
    rows = max((len(value) for value in values if value.dim() > 0), default=0)
    if rows < _ROWS or not losses.targets_of(subject):
        return
    if any(value.dim() > 0 and len(value) == rows and value.numel() and
           not torch.equal(value, value[:1].expand_as(value)) for value in subject.problem.targets):
        raise Failed(f"every element of the input is {float(values[0].flatten()[0]) + 0:g} in all {rows} "
                     "rows, though their targets differ",
                     "Look at what the loader gives, and at the operations on the input.")


def _gap(one: list[torch.Tensor], two: list[torch.Tensor]) -> float:
    """The largest difference, in another mode of noise too where the first is 0."""
    if len(one) != len(two):
        return float("inf")
    return max((trees.difference(a, b) for a, b in zip(one, two)), default=0.0)


def _other_gap(subject: Subject, other: list[torch.Tensor]) -> float:
    """The same with other parameters: a choice between a few outputs may be the same by chance."""
    call = subject.call.replaced(other)
    for number in range(1, 4):
        one, two = (subject.outputs(subject.twin(noise=0.02, training=False, number=number), which)
                    for which in (None, call))
        if gap := _gap(one, two):
            return gap
    return 0.0


def _is_idle(subject: Subject, number: int, other: torch.Tensor,
             before: list[torch.Tensor]) -> bool:
    """Whether an input has no effect. Masks and targets may have none on a batch."""
    name, value = subject.call.named()[number]
    if value.dtype == torch.bool or trees.difference(value, other) == 0 or name in TARGETS or \
            any(word in name.lower() for word in ("mask", "label", "target", "len")):
        return False
    if any(value.data_ptr() == one.data_ptr() for one in subject.problem.targets):
        return False
    values = subject.call.tensors()
    values[number] = other
    for training in (False, True):
        model = subject.twin(noise=0.02, training=training)
        reference = before if not training else \
            subject.outputs(subject.twin(noise=0.02, training=True))
        try:
            after = subject.outputs(model, subject.call.replaced(values))
        except (ValueError, IndexError, RuntimeError, AssertionError):
            return False  # it is looked at
        if _gap(reference, after) > 0:
            return False
    return True


def _is_passed_by(subject: Subject, name: str) -> bool:
    """Whether forward has lines that read an argument, none of which runs with the settings of
    this program."""
    forward = type(subject.model).forward
    try:
        text, first = inspect.getsourcelines(forward)
        tree = ast.parse(textwrap.dedent("".join(text)))
    except (OSError, TypeError, SyntaxError):
        return False
    reading = {first + node.lineno - 1 for node in ast.walk(tree)
               if isinstance(node, ast.Name) and node.id == name}
    return bool(reading) and not reading & _lines_that_run(subject, forward.__code__)


def _lines_that_run(subject: Subject, code: Any) -> set[int]:
    """The lines of a function that a pass of the network runs."""
    lines: set[int] = set()

    def line(frame: Any, event: str, _: Any) -> Any:
        lines.add(frame.f_lineno)
        return line

    before = sys.gettrace()
    sys.settrace(lambda frame, event, _: line if frame.f_code is code else None)
    try:
        subject.outputs(subject.twin(training=True))
    finally:
        sys.settrace(before)
    return lines


def loss_on_targets(subject: Subject) -> str:
    """Other targets give another loss."""
    targets = _targets(subject)
    other = [trees.other_values(value, subject.generator) for value in targets]
    if all(trees.difference(one, two) == 0 for one, two in zip(targets, other)):
        raise NotApplicable("all targets are equal")
    model = subject.twin(training=False, noise=0.02, number=1)
    before = float(subject.loss(model))
    after = float(subject.loss(subject.twin(training=False, noise=0.02, number=1), other))
    if before == after and subject.problem.only_inputs:
        raise NotApplicable("the batch is the inputs, and the loss uses nothing but the output")
    if before == after:
        raise Failed(f"other targets give the same loss, {before:.6g}",
                     "The loss does not use the targets.")
    return f"other targets change the loss from {before:.4g} to {after:.4g}"


def _targets(subject: Subject) -> list[torch.Tensor]:
    if not subject.problem.targets:
        raise NotApplicable("the batch has no targets apart from the inputs")
    return subject.problem.targets


def rows_of_targets(subject: Subject) -> str:
    """The loss compares each row of the output with its own target: the same targets in another
    order of the rows give another loss."""
    targets = _targets(subject)
    for name, output, target, place in losses.shapes_of(subject):
        raise Failed(f"{name} compares an output {tuple(output)} with targets {tuple(target)}: one "
                     "is repeated along a dimension", "Give both the same shape.", (), place)
    rows = subject.rows()
    with torch.no_grad():
        output = subject.output(subject.twin(training=False, noise=0.02, number=1))
    values = subject.with_rows(trees.tensors(output), rows)
    if all(value.dim() == 0 or value.shape[0] != rows for value in targets):
        raise NotApplicable("the targets have no row for each row of the input")
    wide = max(trees.difference(value[:1].expand_as(value), value) for value in values)
    if wide <= 1e-6 * max(trees.size(value) for value in values):
        raise NotApplicable("the output is the same for each row")
    gaps = _changes_of_order(subject, output, rows)
    near = _at_targets(subject, output, targets)
    if gaps and max(gaps.values()) < _SAME and near is not None:
        gaps = _changes_of_order(subject, near, rows)
    if not gaps:
        raise NotApplicable("the targets of all rows are equal")
    loose = [which for which, gap in gaps.items() if gap < _SAME and
             (max(gaps.values()) < _SAME or _is_used(subject, output, which))]
    if loose:
        _judge_order(subject, output, values, loose[0])
    return f"targets in other rows change the loss by {100 * max(gaps.values()):.3g} %"


def _judge_order(subject: Subject, output: Any, values: list[torch.Tensor],
                 which: tuple[int, ...]) -> None:
    loss, target = subject.loss_from(output), subject.problem.targets[which[0]]
    other = [trees.other_values(one, subject.generator) for one in subject.problem.targets]
    if float(loss) == float(subject.loss_from(output, other)):
        raise NotApplicable("the loss of this output depends on no target")
    leaf = trees.change(output, lambda x: x.detach().clone().requires_grad_(x.is_floating_point()))
    with places.Lines() as lines:
        compared = subject.loss_from(leaf)
    mixed = [two if place in which else one
             for place, (one, two) in enumerate(zip(subject.problem.targets, other))]
    if _same_gradients(leaf, compared, subject.loss_from(leaf, mixed)):
        raise NotApplicable("these targets are a term of their own in the loss: its gradient does "
                            "not depend on them")
    if {graphs.kind(node) for node in graphs.nodes(compared)} & _ALL_WITH_ALL:
        raise NotApplicable("the loss compares all rows with all, or sorts them")
    same = not target.is_floating_point() or any(one.shape == target.shape for one in values)
    advice = "Look for a mean, sum or index over the rows in front of the comparison." if same else \
        "Give both the same shape: targets.unsqueeze(1), or output.squeeze(1)."
    shapes = listed([str(tuple(value.shape)) for value in values])
    raise Failed(f"the loss stays {float(loss):.6g} when the targets change places between rows: it "
                 f"does not compare a row with its own target (output {shapes}, targets "
                 f"{tuple(target.shape)})", advice, (), lines.nearest(compared))


def _same_gradients(leaf: Any, one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two losses have equal gradients by the tensors of an output."""
    values = [value for value in trees.tensors(leaf) if value.requires_grad]
    found = [torch.autograd.grad(loss, values, allow_unused=True) if loss.requires_grad
             else [None] * len(values) for loss in (one, two)]
    return all(a is b if a is None or b is None else torch.equal(a, b) for a, b in zip(*found))


def _changes_of_order(subject: Subject, output: Any,
                      rows: int) -> dict[tuple[int, ...], float]:
    """The largest relative change of the loss by targets in other orders of their rows: each
    alone, as pairs of indices belong together, and all floats together."""
    targets, gaps = subject.problem.targets, {}
    before = float(subject.loss_from(output))
    orders = [torch.arange(rows).roll(shift) for shift in (1, rows // 2)]
    orders += [torch.randperm(rows, generator=subject.generator) for _ in range(3)]
    having = [place for place, value in enumerate(targets)
              if value.dim() > 0 and value.shape[0] == rows]
    floats = tuple(place for place in having if targets[place].is_floating_point())
    for which in dict.fromkeys([*((place,) for place in having), floats]):
        found = []
        for order in orders:
            other = [value[order.to(value.device)] if place in which else value
                     for place, value in enumerate(targets)]
            if any(trees.difference(one, two) > 0 for one, two in zip(targets, other)):
                found.append(abs(float(subject.loss_from(output, other)) - before))
        if found:
            gaps[which] = max(found) / max(abs(before), 1e-12)
    return gaps


def _is_used(subject: Subject, output: Any, which: tuple[int, ...]) -> bool:
    """Whether the loss uses the values of some of the targets, which are no counts or weights:
    of those it may use the sum alone."""
    targets = subject.problem.targets
    if any(not targets[place].is_floating_point() or float(targets[place].min()) >= 0
           for place in which):
        return False
    other = [trees.other_values(value, subject.generator) if place in which else value
             for place, value in enumerate(targets)]
    before = float(subject.loss_from(output))
    return abs(float(subject.loss_from(output, other)) - before) > _SAME * abs(before)


def _at_targets(subject: Subject, output: Any, targets: list[torch.Tensor]) -> Any:
    """An output with values in the range of the targets; None: they are no floats. An absolute
    difference far away from them has the same sum in each order of the rows."""
    floats = [value for value in targets if value.is_floating_point() and value.numel()]
    if not floats or not trees.floats(output):
        return None
    low, high = min(float(one.min()) for one in floats), max(float(one.max()) for one in floats)

    def drawn(value: torch.Tensor) -> torch.Tensor:
        random = torch.rand(value.shape, generator=subject.generator, dtype=torch.float64)
        return (low + (0.01 + 0.98 * random) * (high - low)).to(value.device, value.dtype)

    return trees.change(output, lambda x: drawn(x) if x.is_floating_point() else x)
