"""Values of tensors by name, over the micro-batches of a call.

    input, input/1           arguments, flattened
    model.fc1.weight         parameters and buffers (in inference without "model.")
    fc1_output_0             outputs of modules; a module that is called again counts on
    Gradient___NAME          of a parameter or an output, for one micro-batch
    Accum___NAME             sum of a parameter's gradients over the micro-batches so far
    UpdatedVar___NAME        a parameter after the update
    Accl1___NAME, Accl2___NAME, Step___NAME    state of the optimizer after the update

A value of micro-batch k = (d G + g) R + r belongs to update d, accumulation step g, replica r.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .enums import OutputMode

STATE = {"momentum_buffer": "Accl1", "exp_avg": "Accl1", "square_avg": "Accl1",
         "exp_avg_sq": "Accl2", "grad_avg": "Accl2", "step": "Step"}


class Collector:
    """What a mode keeps of the values of a call."""

    def __init__(self, mode: OutputMode, period: int, replicas: int):
        self.mode, self.period, self.replicas = mode, period, replicas
        self.kept: list[torch.Tensor] = []
        self.counts = [0] * replicas

    def add(self, replica: int, value: torch.Tensor) -> None:
        """The next value of a replica; copied."""
        value = value.detach().clone()
        self.counts[replica] += 1
        if self.mode is OutputMode.All or \
                self.mode is OutputMode.EveryN and self.counts[replica] % self.period == 0:
            self.kept.append(value)
        elif self.mode in (OutputMode.Final, OutputMode.Sum):
            if len(self.kept) <= replica:
                self.kept.append(value)
            elif self.mode is OutputMode.Sum:
                self.kept[replica] += value
            else:
                self.kept[replica] = value

    def result(self) -> torch.Tensor | None:
        """One value as it is; several joined in their first dimension, numbers in a new one."""
        if len(self.kept) < 2:
            return self.kept[0] if self.kept else None
        return torch.stack(self.kept) if self.kept[0].dim() == 0 else torch.cat(self.kept)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)


def plain(name: str) -> str:
    """A name without "model." after its prefix."""
    head, mark, rest = name.rpartition("___")
    return head + mark + rest.removeprefix("model.")


def shown(name: str, parameters: set[str]) -> str:
    """The name as it is listed in training: parameters are in "model."."""
    head, mark, rest = name.rpartition("___")
    return f"{head}{mark}model.{rest}" if rest in parameters else name


class Observer:
    """The values of one model that are wanted; wanted None: all names are only listed."""

    def __init__(self, model: torch.nn.Module, wanted: dict[str, Collector] | None):
        self.model, self.wanted = model, wanted
        self.names: dict[str, None] = {}
        self.handles: list[Any] = []
        self.seen: dict[str, int] = {}
        self.replica = 0

    def wants(self, name: str) -> bool:
        if self.wanted is None:
            self.names.setdefault(name)
            return False
        return name in self.wanted

    def see(self, name: str, value: torch.Tensor) -> None:
        if self.wants(name):
            assert self.wanted is not None
            self.wanted[name].add(self.replica, value)

    def __enter__(self) -> "Observer":
        modules = {name.split("___")[-1].rpartition("_output_")[0] for name in self.wanted or ()
                   if "_output_" in name}
        for path, module in self.model.named_modules():
            if path and (self.wanted is None or path in modules):
                self.handles.append(module.register_forward_hook(self._hook(path)))
        return self

    def __exit__(self, *rest: object) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles.clear()

    def _hook(self, path: str) -> Any:
        def after(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            for tensor in tensors_in(output):
                number = self.seen.get(path, 0)
                self.seen[path] = number + 1
                name = f"{path}_output_{number}"
                self.see(name, tensor)
                gradient = "Gradient___" + name
                if tensor.requires_grad and self.wants(gradient):
                    tensor.register_hook(lambda value, name=gradient: self.see(name, value))
        return after

    def begin(self, replica: int, arguments: list[torch.Tensor]) -> None:
        """The next micro-batch."""
        self.replica = replica
        self.seen.clear()
        for i, tensor in enumerate(arguments):
            self.see(f"input/{i}" if i else "input", tensor)


def unknown(name: str, names: list[str]) -> str:
    """What an error says of an anchor that names no tensor."""
    head, _, rest = name.rpartition("___")
    if head == "Gradient" and rest in names:
        return (f"Anchor tensor `{name}' not in Ir Tensors. {rest} is one, but no gradient of "
                "it is computed: it does not lead to the loss.")
    near = difflib.get_close_matches(name, names, 3)
    return f"Anchor tensor `{name}' not in Ir Tensors (expected one of getTensorNames(), such " \
           f"as {', '.join(near or names[:3])})"
