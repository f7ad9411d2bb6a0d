"""What a forward does that torch.export does not see."""

from __future__ import annotations

import collections
import contextlib
import random
import sys
from collections.abc import Iterator
from copy import copy
from itertools import filterfalse
from typing import Any

import torch

from .builder import Lacks, Missing


@contextlib.contextmanager
def unseen(model: torch.nn.Module, training: bool) -> Iterator[None]:
    """Lacks: forward does what torch.export does not see, and would be left out: gradients of its
    own in training, and numbers that change in Python from call to call."""
    before, numbers = PythonState(model), random.getstate()
    function, hook = torch.autograd.Function.__dict__["apply"], torch.Tensor.register_hook
    enter = torch.inference_mode.__enter__

    def apply(kind: Any, *args: Any, **kwargs: Any) -> Any:
        if kind.__module__.startswith("torch."):
            return function.__get__(None, kind)(*args, **kwargs)
        raise Lacks(f"the gradient of the torch.autograd.Function {kind.__name__}")

    def refuse(what: str, original: Any) -> Any:
        def called(*args: Any) -> Any:
            if is_torchs(sys._getframe(1)):
                return original(*args)
            raise Lacks(what)
        return called

    if training:
        torch.autograd.Function.apply = classmethod(apply)
        torch.Tensor.register_hook = refuse("a hook of a tensor", hook)
        torch.inference_mode.__enter__ = refuse("torch.inference_mode in training",
                                                     enter)
    found: list[str] = []  # torch.export puts some back before it returns
    handle = model.register_forward_hook(lambda *call: found.append(before.changed()[0]))
    try:
        yield
    finally:
        handle.remove()
        torch.autograd.Function.apply = function
        torch.Tensor.register_hook = hook
        torch.inference_mode.__enter__ = enter
        found.append(before.restore())
        drawn = random.getstate() != numbers
        random.setstate(numbers)
    changed = next(filter(None, found), "")
    if changed or drawn:
        raise Missing([(f"a forward that changes {changed}" if changed else
                        "random numbers of Python's in forward", "")])


def is_torchs(frame: Any) -> bool:
    """Whether PyTorch's own code makes a call, by itself or as a decorator of its function."""
    decorated = frame.f_locals.get("func") if frame.f_code.co_name == "decorate_context" else None
    if decorated is not None:
        return str(decorated.__module__).startswith("torch.")
    return str(frame.f_globals.get("__name__")).startswith("torch.")


class PythonState:
    """The attributes of modules that are no tensors, and what is in their lists and dicts."""

    def __init__(self, model: torch.nn.Module):
        self.kept = [(path, module, {key: (value, copy(value) if isinstance(value, _CONTAINERS)
                                           else None) for key, value in module.__dict__.items()
                                     if not is_registered(key)})
                     for path, module in model.named_modules()]

    def changed(self) -> tuple[str, list[tuple[Any, ...]]]:
        """The first attribute that is not as it was, or "", and all of them."""
        found, names = [], []
        for path, module, before in self.kept:
            now = module.__dict__
            for key in filterfalse(is_registered, {*before, *now}):
                value, content = before.get(key, (_GONE, None))
                if not alike(value if content is None else content, now.get(key, _GONE)):
                    found.append((now, key, value, content))
                    names.append(f"self.{path}{'.' * bool(path)}{key}")
        return names[0] if names else "", found

    def restore(self) -> str:
        """Puts all back; the first attribute that had changed, or ""."""
        name, found = self.changed()
        for owner, key, value, content in found:
            if value is _GONE:
                del owner[key]
            else:
                owner[key] = value
            if content is not None:
                refill(value, content)
        return name


_GONE: Any = object()
_MOST = 1000  # things in a container that is looked into
_CONTAINERS = (list, dict, set, collections.deque)
_REGISTERED = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set",
               "_flat_weights", "_flat_weight_refs")  # the last two: parameters of RNNs


def is_registered(key: str) -> bool:
    """Whether PyTorch keeps tensors, modules or hooks there, which are known otherwise."""
    return key in _REGISTERED or key.startswith("_") and "_hooks" in key


def alike(before: Any, now: Any) -> bool:
    """Whether a value is as it was. torch.export puts copies of lists and tuples in their place;
    objects that are no numbers, tensors or containers are not looked into."""
    if before is now:
        return True
    if type(before) is not type(now) or isinstance(now, torch.Tensor):
        return False
    if isinstance(now, (int, float, str)):
        return before == now
    if not isinstance(now, (*_CONTAINERS, tuple)):
        return True
    if len(before) != len(now) or len(now) > _MOST:
        return len(before) == len(now)
    if isinstance(now, dict):
        return all(key in now and alike(value, now[key]) for key, value in before.items())
    return before == now if isinstance(now, set) else all(map(alike, before, now))


def refill(container: Any, content: Any) -> None:
    container.clear()
    if isinstance(container, (dict, set)):
        container.update(content)
    else:
        container.extend(content)
