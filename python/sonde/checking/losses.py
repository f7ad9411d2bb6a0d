"""The operations of the loss: what it normalises itself, over which dimension, of which shapes."""

from __future__ import annotations

from typing import Any

from . import graphs, places
from .subject import Failed, NotApplicable, Subject

_NORMALISED = 0.05  # distance of a logarithm of a sum of probabilities from 0


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
    target = node._saved_target
    low, high = float(target.min()), float(target.max())
    if low < 0 or high > 1:
        raise Failed(f"the targets of a binary cross entropy are {low:.4g} to {high:.4g} "
                     "(expected 0 to 1)", "Map the classes to 0 and 1.")


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
           "NllLoss": (_judge_probabilities, "a negative log likelihood"),
           "NllLoss2D": (_judge_probabilities, "a negative log likelihood")}
