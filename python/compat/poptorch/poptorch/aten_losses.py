"""PyTorch's ops as the engine's: losses. The numbers of reductions are PyTorch's: 0 none, 1 mean,
2 sum.
"""

from __future__ import annotations

from typing import Any

import torch

from .aten import mul, reduced, sub
from .builder import Builder, Value, expect, op, short

_REDUCTION = ("none", "mean", "sum")


def each_nll(b: Builder, x: Value, target: Value, weight: Value | None, ignore_index: int) -> Value:
    """The loss of every label, 0 of one that is ignored."""
    counts = b.add("ne", [target, b.constant(torch.tensor([ignore_index]))], {}, torch.bool)
    factor = b.cast(counts, torch.float32)
    labels = b.cast(b.do("mul", b.cast(target, torch.float32), factor), torch.int64)
    if weight is not None:
        picked = b.add("index_select", [weight, b.reshape(labels, (-1,))], {"dim": 0})
        factor = b.do("mul", factor, b.reshape(picked, labels.shape))
    places = b.reshape(labels, (labels.shape[0], 1, *labels.shape[1:]))
    found = b.reshape(b.add("gather", [x, places], {"dim": 1}), labels.shape)
    return b.scaled(b.do("mul", found, factor), -1)


@op("nll_loss_nd", "nll_loss")
def nll_loss(b: Builder, x: Value, target: Value, weight: Value | None = None,
             reduction: int = 1, ignore_index: int = -100, smoothing: float = 0.0) -> Value:
    expect(len(x.shape) >= 2, "a loss of one sample")
    expect(target.dtype is torch.int64, f"labels of {short(target.dtype)} (expected int64)")
    expect(x.dtype is torch.float32, f"{short(x.dtype)} (expected float32)")
    if reduction == 0:
        expect(smoothing == 0, "label_smoothing with reduction='none'")
        return each_nll(b, x, target, weight, ignore_index)
    if len(x.shape) > 2:
        x = b.permute(x, (0, *range(2, len(x.shape)), 1))
        x = b.reshape(x, (-1, x.shape[-1]))
        target = b.reshape(target, (-1,))
    mean = int(reduction == 1)
    if weight is None and smoothing == 0 and ignore_index < 0 and not b.ignores:
        return b.add("nll", [x, target], {"mean": mean})
    return b.add("nll_weighted", [x, target, *([] if weight is None else [weight])],
                 {"mean": mean, "label_smoothing": smoothing, "ignores": 1,
                  "ignore_index": ignore_index})


@op("cross_entropy_loss")
def cross_entropy(b: Builder, x: Value, target: Value, weight: Value | None = None,
                  reduction: int = 1, ignore_index: int = -100, smoothing: float = 0.0) -> Value:
    expect(target.dtype is torch.int64, "targets that are probabilities")
    return nll_loss(b, b.do("log_softmax", x, dim=1), target, weight, reduction, ignore_index,
                    smoothing)


def same_shape(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    expect(x.shape == y.shape, f"a loss of {x.shape} and {y.shape}")
    return x, y


for _name in ("mse_loss", "l1_loss", "soft_margin_loss"):
    def _loss(b: Builder, x: Value, y: Value, reduction: int = 1, _kind: str = _name) -> Value:
        return b.do(_kind, *same_shape(b, x, y), reduction=_REDUCTION[reduction])

    op(_name)(_loss)


@op("smooth_l1_loss")
def smooth_l1_loss(b: Builder, x: Value, y: Value, reduction: int = 1, beta: float = 1.0) -> Value:
    return b.do("smooth_l1_loss", *same_shape(b, x, y), reduction=_REDUCTION[reduction], beta=beta)


@op("huber_loss")
def huber_loss(b: Builder, x: Value, y: Value, reduction: int = 1, delta: float = 1.0) -> Value:
    return b.do("huber_loss", *same_shape(b, x, y), reduction=_REDUCTION[reduction], delta=delta)


def weighted(b: Builder, losses: Value, weight: Value | None, reduction: int) -> Value:
    if weight is not None:
        losses = b.do("mul", losses, weight)
    if reduction == 0:
        return losses
    return reduced(_REDUCTION[reduction], b, losses, None, False, None)


@op("binary_cross_entropy")
def binary_cross_entropy(b: Builder, x: Value, y: Value, weight: Value | None = None,
                         reduction: int = 1) -> Value:
    if weight is None:
        return b.do("binary_cross_entropy", *same_shape(b, x, y), reduction=_REDUCTION[reduction])
    each = b.do("binary_cross_entropy", *same_shape(b, x, y), reduction="none")
    return weighted(b, each, weight, reduction)


@op("binary_cross_entropy_with_logits")
def bce_with_logits(b: Builder, x: Value, y: Value, weight: Value | None = None,
                    pos_weight: Value | None = None, reduction: int = 1) -> Value:
    kind = "binary_cross_entropy_with_logits"
    if weight is None and pos_weight is None:
        return b.do(kind, *same_shape(b, x, y), reduction=_REDUCTION[reduction])
    if pos_weight is None:
        each = b.do(kind, *same_shape(b, x, y), reduction="none")
    else:  # -pos_weight y log sigmoid(x) - (1 - y) log sigmoid(-x)
        same_shape(b, x, y)
        true = mul(b, mul(b, y, pos_weight), b.do("softplus", b.scaled(x, -1)))
        each = b.do("add", true, mul(b, sub(b, 1.0, y), b.do("softplus", x)))
    return weighted(b, each, weight, reduction)


@op("kl_div")
def kl_div(b: Builder, x: Value, y: Value, reduction: int = 1, *, log_target: bool = False
           ) -> Value:
    return b.do("kl_div", *same_shape(b, x, y), reduction=_REDUCTION[reduction],
                log_target=int(log_target))


@op("poisson_nll_loss")
def poisson_nll_loss(b: Builder, x: Value, y: Value, log_input: bool, full: bool, eps: float,
                     reduction: int) -> Value:
    return b.do("poisson_nll_loss", *same_shape(b, x, y), log_input=int(log_input),
                full=int(full), eps=eps, reduction=_REDUCTION[reduction])


@op("hinge_embedding_loss")
def hinge_embedding_loss(b: Builder, x: Value, y: Value, margin: float = 1, reduction: int = 1
                         ) -> Value:
    return b.do("hinge_embedding_loss", *same_shape(b, x, y), margin=margin,
                reduction=_REDUCTION[reduction])


for _name in ("margin_ranking_loss", "cosine_embedding_loss"):
    def _margin(b: Builder, x: Value, y: Value, target: Value, margin: float = 0,
                reduction: int = 1, _kind: str = _name) -> Value:
        return b.do(_kind, *same_shape(b, x, y), b.cast(target, torch.float32), margin=margin,
                    reduction=_REDUCTION[reduction])

    op(_name)(_margin)


@op("triplet_margin_loss")
def triplet_margin_loss(b: Builder, x: Value, near: Value, far: Value, margin: float = 1,
                        p: float = 2, eps: float = 1e-6, swap: bool = False, reduction: int = 1
                        ) -> Value:
    expect(p == 2, f"a distance of order {p}")
    return b.do("triplet_margin_loss", x, near, far, margin=margin, eps=eps, swap=int(swap),
                reduction=_REDUCTION[reduction])
