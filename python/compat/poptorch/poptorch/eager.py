"""A call in PyTorch's eager mode: D x G x R micro-batches, with the values that are wanted."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from . import autocasting, ops
from .anchors import STATE, Collector, Observer
from .enums import OutputMode, ReductionType
from .ops import Error


class Shared(dict[str, Any]):
    """Collectors by name: the same tensor may be anchored in several modes."""

    def __init__(self, wanted: dict[tuple[str, OutputMode, int], Collector]):
        super().__init__()
        for (name, _, _), collector in wanted.items():
            self.setdefault(name, _Several()).parts.append(collector)


class _Several:
    def __init__(self) -> None:
        self.parts: list[Collector] = []

    def add(self, replica: int, value: torch.Tensor) -> None:
        for part in self.parts:
            part.add(replica, value)


class Call:
    """One call: D x G x R micro-batches."""

    def __init__(self, executor: Any, tree: Any, leaves: list[Any], wanted: Any):
        self.executor, self.tree, self.leaves = executor, tree, leaves
        self.model, self.optimizer = executor._model, executor._optimizer
        self.observer = Observer(self.model, wanted)
        self.parameters = dict(self.model.named_parameters())
        self.automatic = executor._scaling
        self.scaling = getattr(self.optimizer, "loss_scaling", 1.0)
        self.buffers = dict(self.model.named_buffers()) if executor._counts[2] > 1 else {}
        self.collectors: list[Collector | None] = []
        self.nesting: Any = None

    def run(self, like: Collector) -> Any:
        executor = self.executor
        with running_as(self.model, [executor._modes.get(module, module.training)
                                      for module in self.model.modules()],
                        executor._options.Precision), \
                ops.running() as marked, self.observer, \
                Exceptions() if executor._options.Precision.floating_point_exceptions \
                else contextlib.nullcontext():
            if executor._group is not None:
                executor._group.equalise(self.model)
            for d in range(executor._counts[0]):
                if executor._training:
                    self.update(d, like, marked)
                else:
                    with torch.no_grad():
                        self.forward_all(d, like)
        values = [value.result() if isinstance(value, Collector) else value
                  for value in self.collectors]
        return pytree.tree_unflatten(values, self.nesting)

    def forward(self, k: int, replica: int, like: Collector) -> Any:
        arguments = self.executor._micro(self.leaves, k)
        self.observer.begin(replica, [leaf for leaf in arguments
                                      if isinstance(leaf, torch.Tensor)])
        args, kwargs = pytree.tree_unflatten(arguments, self.tree)
        output = self.model(*args, **kwargs)
        leaves, self.nesting = pytree.tree_flatten(output)
        if not self.collectors:
            self.collectors = [Collector(like.mode, like.period, like.replicas)
                               if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        for collector, leaf in zip(self.collectors, leaves):
            if isinstance(collector, Collector):
                collector.add(replica, leaf)
        return output

    def forward_all(self, d: int, like: Collector) -> None:
        replicas = self.executor._counts[2]
        for r in range(replicas):
            self.forward(d * replicas + r, r, like)
            self.see_tensors(self.model.named_parameters())
            self.see_tensors(self.model.named_buffers())

    def update(self, d: int, like: Collector, marked: list[torch.Tensor]) -> None:
        """The micro-batches of an update, and the update."""
        _, accumulation, replicas = self.executor._counts
        if self.automatic is not None:
            self.scaling = self.automatic.factor
        sums: list[dict[str, torch.Tensor]] = [{} for _ in range(replicas)]
        with self.own_buffers(replicas) as begin:
            for g in range(accumulation):
                for r in range(replicas):
                    begin(r)
                    self.optimizer.zero_grad(set_to_none=True)
                    marked.clear()
                    output = self.forward((d * accumulation + g) * replicas + r, r, like)
                    loss = loss_of(output, marked)
                    (loss if self.scaling == 1.0 else loss * self.scaling).backward()
                    self.gather(sums[r], accumulation)
        self.set_gradients(sums, accumulation * replicas)
        if self.automatic is None or self.automatic.heed(self.parameters.values()):
            limit = getattr(self.optimizer, "max_grad_norm", float("inf"))
            if limit != float("inf"):
                torch.nn.utils.clip_grad_norm_(self.parameters.values(), limit)
            self.optimizer.step()
        self.see_updated(accumulation, replicas)

    @contextlib.contextmanager
    def own_buffers(self, replicas: int) -> Iterator[Any]:
        """Each replica moves buffers of its own, which begin with those of the model; replica 0's
        are the model's afterwards. Yields what a replica's micro-batch begins with."""
        kept = [{name: value.clone() for name, value in self.buffers.items()}
                for _ in range(replicas if self.buffers else 0)]
        last = [0]

        def begin(replica: int) -> None:
            if not kept or replica == last[0]:
                return
            for name, value in self.buffers.items():
                kept[last[0]][name].copy_(value)
                value.copy_(kept[replica][name])
            last[0] = replica

        yield begin
        begin(0)

    def gather(self, sums: dict[str, torch.Tensor], accumulation: int) -> None:
        """Observes a micro-batch's gradients and adds up those of its replica."""
        for name, weight in self.parameters.items():
            if weight.grad is None:
                continue
            self.observer.see("Gradient___" + name, weight.grad)
            sums[name] = weight.grad if name not in sums else sums[name] + weight.grad
            if accumulation > 1:
                self.observer.see("Accum___" + name, sums[name])
        if accumulation > 1:
            self.see_tensors(self.parameters.items())
        self.see_tensors(self.model.named_buffers())

    def set_gradients(self, sums: list[dict[str, torch.Tensor]], count: int) -> None:
        """Gradients become those of the update, of all replicas."""
        mean = self.executor._options.Training._value_reduction is ReductionType.Mean
        divisor = self.scaling * (count if mean else 1)
        for name, weight in self.parameters.items():
            parts = [one[name] for one in sums if name in one]
            weight.grad = functools.reduce(torch.add, parts) if parts else None
        if divisor != 1.0:
            for weight in self.parameters.values():
                if weight.grad is not None:
                    weight.grad = weight.grad / divisor
        if self.executor._group is not None:
            self.executor._group.reduce(iter(self.parameters.values()), mean)

    def see_tensors(self, tensors: Any) -> None:
        for name, value in tensors:
            self.observer.see(name, value)

    def see_updated(self, accumulation: int, replicas: int) -> None:
        """What the update changed, for each of its micro-batches."""
        for _ in range(accumulation):
            for r in range(replicas):
                self.observer.replica = r
                for name, weight in self.parameters.items():
                    self.observer.see("UpdatedVar___" + name, weight)
                    for key, value in self.optimizer.state.get(weight, {}).items():
                        if key in STATE:
                            self.observer.see(f"{STATE[key]}___{name}", torch.as_tensor(value))
                if self.automatic is not None:
                    self.see_tensors(self.automatic.tensors())
                if accumulation == 1:
                    self.see_tensors(self.parameters.items())
        if accumulation > 1:
            self.replace_final()

    def replace_final(self) -> None:
        """A parameter's final value is the one after the last update."""
        for name, weight in self.parameters.items():
            several = self.observer.wanted.get(name) if self.observer.wanted else None
            for part in several.parts if several is not None else ():
                if part.mode is OutputMode.Final:
                    part.kept = [weight.detach().clone() for _ in part.kept]


class Exceptions(TorchDispatchMode):
    """Ends a call at the first op of PyTorch that makes a NaN or an infinity of finite numbers."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None
                           ) -> Any:
        made = function(*args, **(kwargs or {}))
        given, found = pytree.tree_leaves((args, kwargs)), pytree.tree_leaves(made)
        if function.__name__.startswith(("empty", "new_empty")) or _finite(found) or \
                not _finite(given):
            return made
        raise Error(f"floating-point exception: {function.__name__} makes a number that is not "
                    "finite (Options.Precision.enableFloatingPointExceptions)")


def _finite(values: Any) -> bool:
    return all(bool(torch.isfinite(one).all()) if isinstance(one, torch.Tensor)
               else math.isfinite(one) for one in values
               if isinstance(one, float) or isinstance(one, torch.Tensor)
               and one.dtype.is_floating_point)


@contextlib.contextmanager
def as_before(model: torch.nn.Module) -> Iterator[None]:
    """Afterwards, parameters, gradients and buffers have the values that they had."""
    weights = [(one, one.detach().clone(), one.grad) for one in model.parameters()]
    buffers = [(one, one.detach().clone()) for one in model.buffers()]
    for weight, _, _ in weights:
        weight.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            for one, value in [*((weight, value) for weight, value, _ in weights), *buffers]:
                if not torch.equal(one, value):
                    one.copy_(value)
        for weight, _, gradient in weights:
            weight.grad = gradient


@contextlib.contextmanager
def running_as(model: torch.nn.Module, modes: list[bool], precision: Any) -> Iterator[None]:
    """With training flags of the modules as they were when the model was wrapped, and automatic
    casting."""
    modules = list(model.modules())
    before = [module.training for module in modules]
    try:
        for module, mode in zip(modules, modes):
            module.training = mode
        with autocasting.applied(model, precision):
            yield
    finally:
        for module, mode in zip(modules, before):
            module.training = mode


def loss_of(output: Any, marked: list[torch.Tensor]) -> torch.Tensor:
    """The loss of a micro-batch: what identity_loss marked last, or the last number of the
    output that has a gradient."""
    if marked:
        return marked[-1]
    found = [leaf for leaf in pytree.tree_flatten(output)[0]
             if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.numel() == 1]
    if not found:
        raise Error("Couldn't find a loss in graph! (expected that forward returns it, a number)")
    return found[-1]
