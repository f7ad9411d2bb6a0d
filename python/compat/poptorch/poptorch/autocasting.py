"""Automatic casting: parts of a model that compute in float16, as under torch.autocast.

    model.conv.autocast()                  # this module, if Options.Precision.autocastEnabled
    with poptorch.autocast(): ...          # in forward
    @poptorch.autocast()                   # forward, or a function that it calls
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

_log = logging.getLogger("poptorch")


class autocast(torch.autocast):
    """Products in float16 (enabled=False: as the tensors are), in a with or of a function."""

    def __init__(self, enabled: bool = True):
        super().__init__("cpu", torch.float16, enabled)


class Policy:
    """Modules by their class: those of fp32 and promote compute in float32. PyTorch chooses for
    functions, as torch.autocast does; the first policy that names some says so in the log."""

    def __init__(self, fp16: list[Any] | None = None, fp32: list[Any] | None = None,
                 promote: list[Any] | None = None, demote: list[Any] | None = None):
        self.fp16, self.fp32 = list(fp16 or []), list(fp32 or [])
        self.promote, self.demote = list(promote or []), list(demote or [])
        if not all(isinstance(one, type) for one in
                   (*self.fp16, *self.fp32, *self.promote, *self.demote)):
            _log.info("autocasting.Policy: functions are cast as torch.autocast does")

    def __repr__(self) -> str:
        return "Policy(" + ", ".join(f"{key}={value}" for key, value in vars(self).items()
                                     if value) + ")"

    def _wide(self, module: torch.nn.Module) -> bool:
        return any(isinstance(one, type) and isinstance(module, one)
                   for one in (*self.fp32, *self.promote))


default = Policy()


def mark(module: torch.nn.Module, enabled: bool = True) -> None:
    """module.autocast(): its products are of float16 when a wrapped model calls it."""
    module._poptorch_autocast = enabled


torch.nn.Module.autocast = mark  # type: ignore[attr-defined]


def _to(dtype: torch.dtype, values: Any) -> Any:
    """Values with the tensors of float16 in another dtype."""
    return pytree.tree_map(lambda one: one.to(dtype) if isinstance(one, torch.Tensor) and
                           one.dtype is torch.float16 else one, values)


def _cast(forward: Callable[..., Any], half: bool) -> Callable[..., Any]:
    """forward under autocast, or without it. Results have the dtype of float32 arguments, for the
    layers of float32 that follow."""
    @functools.wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        with autocast(enabled=half):
            if half:
                made = forward(*args, **kwargs)
            else:
                args, kwargs = _to(torch.float32, (args, kwargs))
                made = forward(*args, **kwargs)
        wide = any(isinstance(one, torch.Tensor) and one.dtype is torch.float32
                   for one in pytree.tree_leaves((args, kwargs)))
        return _to(torch.float32, made) if wide else made
    return run


@contextlib.contextmanager
def applied(model: torch.nn.Module, precision: Any) -> Iterator[None]:
    """While a wrapped model is called: its marked modules cast."""
    marked = [] if not precision.autocast_enabled else [
        module for module in model.modules() if getattr(module, "_poptorch_autocast", False)]
    within = {id(inner) for module in marked for inner in module.modules()}
    changed: list[tuple[torch.nn.Module, Any]] = []
    for module in model.modules() if marked else ():
        wide = id(module) in within and precision.autocast_policy._wide(module)
        if wide or module in marked:
            changed.append((module, module.__dict__.get("forward")))
            module.__dict__["forward"] = _cast(module.forward, not wide)
    try:
        yield
    finally:
        for module, before in changed:
            if before is None:
                module.__dict__.pop("forward")
            else:
                module.__dict__["forward"] = before
