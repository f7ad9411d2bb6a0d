"""Optimizers with poptorch's arguments: PyTorch's own, LAMB, and RMSprop's TensorFlow variant.

loss_scaling multiplies the loss before the backward pass, and the update divides by it: gradients
that are observed are scaled. max_grad_norm clips one norm over all gradients, unscaled and
averaged, before the update.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch


def _check(name: str, value: float, least: float, above: bool = False) -> float:
    if not (value > least if above else value >= least):
        raise ValueError(f"{name}: {value!r} (expected {'more than' if above else 'at least'} "
                         f"{least})")
    return value


AUTOMATIC = 65536.0  # the automatic loss scaling begins with it, as torch.amp.GradScaler


def first_scaling(optimizer: Any, automatic: bool) -> float:
    """The loss scaling of an optimizer; with automatic, what it begins with."""
    given = float(getattr(optimizer, "loss_scaling", 1.0))
    return AUTOMATIC if automatic and given == 1.0 else given


class LossScaling:
    """The automatic loss scaling of a model in eager mode."""

    def __init__(self, first: float):
        self.factor, self.good, self.skipped = first, 0, 0

    def heed(self, weights: Iterable[torch.Tensor]) -> bool:
        """Whether the gradients of an update are finite; changes the factor."""
        if all(bool(torch.isfinite(weight.grad).all()) for weight in weights
               if weight.grad is not None):
            self.good += 1
            if self.good == 2000:
                self.factor, self.good = self.factor * 2.0, 0
            return True
        self.factor, self.good, self.skipped = self.factor * 0.5, 0, self.skipped + 1
        return False

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        """What can be anchored of it."""
        return [("lossScaling___default", torch.tensor(self.factor)),
                ("growthTracker___default", torch.tensor(self.good)),
                ("skippedSteps___default", torch.tensor(self.skipped))]


class _Extra:
    """The arguments that PyTorch's optimizers lack."""

    loss_scaling: float
    max_grad_norm: float

    def _extra(self, loss_scaling: float | None, max_grad_norm: float | None) -> None:
        self.loss_scaling = _check("loss_scaling", loss_scaling if loss_scaling is not None
                                   else 1.0, 0.0, above=True)
        self.max_grad_norm = _check("max_grad_norm", max_grad_norm if max_grad_norm is not None
                                    else math.inf, 0.0)


class SGD(torch.optim.SGD, _Extra):
    """torch.optim.SGD; the accumulators have the type of the parameters."""

    def __init__(self, params: Iterable[Any], lr: float, momentum: float | None = None,
                 dampening: float | None = None, weight_decay: float | None = None,
                 nesterov: bool | None = None, maximize: bool | None = None,
                 foreach: bool | None = None, differentiable: bool | None = None,
                 loss_scaling: float | None = None, velocity_scaling: float | None = None,
                 use_combined_accum: bool | None = None,
                 accum_type: torch.dtype | None = None,
                 velocity_accum_type: torch.dtype | None = None,
                 max_grad_norm: float | None = None):
        super().__init__(params, lr, momentum or 0.0, dampening or 0.0, weight_decay or 0.0,
                         bool(nesterov))
        self._extra(loss_scaling, max_grad_norm)


class Adam(torch.optim.Adam, _Extra):
    """torch.optim.Adam."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, amsgrad: bool | None = None,
                 loss_scaling: float | None = None, accum_type: torch.dtype | None = None,
                 first_order_momentum_accum_type: torch.dtype | None = None,
                 second_order_momentum_accum_type: torch.dtype | None = None,
                 max_grad_norm: float | None = None, **ignored: Any):
        if amsgrad:
            raise ValueError("amsgrad: True (expected False)")
        super().__init__(params, lr, betas, eps, weight_decay)
        self._extra(loss_scaling, max_grad_norm)


class AdamW(torch.optim.AdamW, _Extra):
    """torch.optim.AdamW."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool | None = None,
                 loss_scaling: float | None = None, bias_correction: bool = True,
                 accum_type: torch.dtype | None = None,
                 first_order_momentum_accum_type: torch.dtype | None = None,
                 second_order_momentum_accum_type: torch.dtype | None = None,
                 max_grad_norm: float | None = None, **ignored: Any):
        if amsgrad:
            raise ValueError("amsgrad: True (expected False)")
        super().__init__(params, lr, betas, eps, weight_decay)
        self._extra(loss_scaling, max_grad_norm)


class _Own(torch.optim.Optimizer, _Extra):
    """An optimizer that PyTorch lacks: _update changes one parameter."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, group, self.state[weight])
        return loss

    def _update(self, weight: torch.Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        raise NotImplementedError


class RMSprop(_Own):
    """RMSprop as PyTorch has it; use_tf_variant as TensorFlow has it: the mean of squares begins
    at 1, eps is inside the root, and the momentum buffer takes the step with its rate."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, alpha: float = 0.99,
                 eps: float = 1e-8, weight_decay: float = 0.0, momentum: float = 0.0,
                 centered: bool = False, maximize: bool | None = None,
                 foreach: bool | None = None, differentiable: bool | None = None,
                 loss_scaling: float | None = None, accum_type: torch.dtype | None = None,
                 first_order_momentum_accum_type: torch.dtype | None = None,
                 second_order_momentum_accum_type: torch.dtype | None = None,
                 use_tf_variant: bool | None = None):
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps, "centered": centered,
                                  "weight_decay": weight_decay, "momentum": momentum})
        self.use_tf_variant = bool(use_tf_variant)
        self._extra(loss_scaling, None)

    def _update(self, weight: torch.Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        gradient = weight.grad.add(weight, alpha=group["weight_decay"]) \
            if group["weight_decay"] else weight.grad
        if not state:
            state["square_avg"] = torch.ones_like(weight) if self.use_tf_variant else \
                torch.zeros_like(weight)
            if group["centered"]:
                state["grad_avg"] = torch.zeros_like(weight)
            if group["momentum"] > 0:
                state["momentum_buffer"] = torch.zeros_like(weight)
        alpha = group["alpha"]
        state["square_avg"].mul_(alpha).addcmul_(gradient, gradient, value=1 - alpha)
        square = state["square_avg"]
        if group["centered"]:
            state["grad_avg"].lerp_(gradient, 1 - alpha)
            square = square.addcmul(state["grad_avg"], state["grad_avg"], value=-1)
        if self.use_tf_variant:
            step = gradient / (square + group["eps"]).sqrt() * group["lr"]
            rate = 1.0
        else:
            step, rate = gradient / (square.sqrt() + group["eps"]), group["lr"]
        if group["momentum"] > 0:
            step = state["momentum_buffer"].mul_(group["momentum"]).add_(step)
        weight.sub_(step, alpha=rate)


class LAMB(_Own):
    """Adam's direction for each tensor, scaled by min(norm of the weight, max_weight_norm) over
    the norm of the direction (You et al. 2020, arXiv:1904.00962)."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, bias_correction: bool = True,
                 loss_scaling: float | None = None, max_weight_norm: float | None = None,
                 accum_type: torch.dtype | None = None,
                 first_order_momentum_accum_type: torch.dtype | None = None,
                 second_order_momentum_accum_type: torch.dtype | None = None):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps,
                                  "weight_decay": weight_decay,
                                  "max_weight_norm": 65500.0 if max_weight_norm is None
                                  else max_weight_norm})
        self.bias_correction = bias_correction
        self._extra(loss_scaling, None)

    def _update(self, weight: torch.Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(weight),
                         exp_avg_sq=torch.zeros_like(weight))
        beta1, beta2 = group["betas"]
        state["step"] += 1
        state["exp_avg"].lerp_(weight.grad, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(weight.grad, weight.grad, value=1 - beta2)
        first, second = state["exp_avg"], state["exp_avg_sq"]
        if self.bias_correction:
            first = first / (1 - beta1 ** state["step"])
            second = second / (1 - beta2 ** state["step"])
        direction = first / (second.sqrt() + group["eps"])
        direction = direction.add(weight, alpha=group["weight_decay"])
        size, length = weight.norm().item(), direction.norm().item()
        limit = group["max_weight_norm"]
        trust = min(size, limit) / length if size and length and limit else 1.0
        weight.sub_(direction, alpha=group["lr"] * trust)
