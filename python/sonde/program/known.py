"""What a watch knows of its program before a step: modules, parameters, buffers, optimizers."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Mapping
from typing import Any

import torch

from . import ops

_FIELDS = frozenset((
           "p", "eps", "momentum", "affine", "track_running_stats", "in_features", "out_features",
           "in_channels", "out_channels", "kernel_size", "stride", "padding", "groups", "dim",
           "num_features", "num_groups", "normalized_shape", "num_embeddings", "embedding_dim",
           "padding_idx", "negative_slope", "batch_first", "bidirectional", "num_layers",
           "dropout", "reduction", "ignore_index", "label_smoothing"))


class Known:
    """Modules, parameters and optimizers of a watch at one step."""

    def __init__(self, roots: Mapping[str, torch.nn.Module], optimizers: list[Any],
                 names: Mapping[int, str]):
        self.names = names
        self.modules: list[dict[str, Any]] = []
        self.module_ids: dict[int, tuple[int, Any]] = {}  # and weak references
        self.module_refs: list[Any] = []  # as modules
        self.declared = 0  # modules of the model that are no unknown ones
        self.called_within: set[int] = set()  # unknown ones that modules of the model called
        self.parameters: list[dict[str, Any]] = []
        self.parameter_ids: dict[int, int] = {}
        self.buffers: dict[int, str] = {}
        self.optimizers: list[dict[str, Any]] = []
        self.holders: dict[int, int] = {}
        self._optimizers(optimizers)
        for prefix, root in roots.items():
            for name, module in root.named_modules():
                self._module(".".join(part for part in (prefix, name) if part), module, True)
        self.declared = len(self.modules)
        for ref in self.module_refs[:]:
            self._count_repeats(ref())

    def _count_repeats(self, module: torch.nn.Module | None) -> None:
        """Of the parts of a container, how often one stands there."""
        counts = collections.Counter(map(id, module._modules.values())) if module else {}
        for key, count in counts.items():
            if count > 1 and key in self.module_ids:
                self.modules[self.module_ids[key][0]]["attributes"]["repeated"] = count

    def renew(self, optimizers: list[Any]) -> None:
        """Their attributes may have changed, and the modes of modules."""
        self.optimizers.clear()
        self._optimizers(optimizers)
        for index, ref in self.module_ids.values():
            module = ref()
            if module is not None:
                self.modules[index]["training"] = module.training

    def more_optimizers(self, optimizers: list[Any]) -> None:
        """Those behind the ones that are known: followed since the step began."""
        self._optimizers(optimizers, len(self.optimizers))

    def _optimizers(self, optimizers: list[Any], first: int = 0) -> None:
        """A place has None if its optimizer is gone; events have the places."""
        for i, optimizer in enumerate(optimizers[first:], first):
            groups = getattr(optimizer, "param_groups", None) or [{}]
            self.optimizers.append({
                "name": f"optimizer_{i + 1}" if i else "optimizer",
                "kind": type(optimizer).__name__ if optimizer is not None else "",
                "attributes": _attributes({key: value for key, value in groups[0].items()
                                           if key != "params"})})
            for group in groups:
                for parameter in group.get("params", ()):
                    self.holders.setdefault(id(parameter), i)

    def _module(self, name: str, module: torch.nn.Module, registered: bool) -> int:
        index = len(self.modules)
        if id(module) in self.module_ids:
            return self.module_ids[id(module)][0]
        self.module_refs.append(weakref.ref(module))
        self.module_ids[id(module)] = index, self.module_refs[index]
        fields = module.__dict__
        self.modules.append({
            "name": name, "kind": getattr(module, "original_name", type(module).__name__),
            "registered": registered, "called": False, "training": module.training, "place": None,
            "attributes": _attributes({key: fields[key] for key in fields if key in _FIELDS})})
        for key, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in self.parameter_ids:
                self._parameter(parameter, f"{name}.{key}" if name else key, index)
        for key, buffer in module._buffers.items():
            if buffer is not None:
                self.buffers.setdefault(id(buffer), f"{name}.{key}" if name else key)
        return index

    def _parameter(self, parameter: torch.nn.Parameter, name: str, module: int) -> None:
        self.parameter_ids[id(parameter)] = len(self.parameters)
        self.parameters.append({
            "name": self.names.get(id(parameter), name), "module": module,
            "count": _count(parameter), "requires_grad": parameter.requires_grad,
            "optimizer": self.holders.get(id(parameter), -1), "used": False, "reached": False})

    def add_loose(self, parameter: torch.nn.Parameter, key: int, path: str, kind: str,
                  name: str) -> None:
        """A parameter of a compiled graph. One that no model has belongs to a module of which
        its id() is known, and its path."""
        if id(parameter) in self.parameter_ids:
            return
        if key not in self.module_ids:
            self.module_ids[key] = len(self.modules), _nothing
            self.module_refs.append(_nothing)
            self.modules.append({"name": path or kind, "kind": kind, "registered": False,
                                 "called": True, "training": True, "place": None,
                                 "attributes": {}})
        self._parameter(parameter, f"{path or kind}.{name}", self.module_ids[key][0])

    def names_activations(self, index: int) -> bool:
        """Whether functional activations that a module calls are observed: those in modules of
        PyTorch's own are what these modules return."""
        module = self.module_refs[index]() if index < self.declared else None
        return module is not None and \
            not type(module).__module__.startswith("torch.nn.")

    def is_declared(self, index: int) -> bool:
        return index < self.declared

    def index_of(self, module: torch.nn.Module, caller: int) -> int:
        """The number of a module; one that no model has is added."""
        found = self.module_ids.get(id(module))
        if found is not None and found[1]() is module:
            return found[0]
        self.module_ids.pop(id(module), None)
        index = self._module(self._name_of(module, caller), module, False)
        if caller >= 0 and (self.modules[caller]["registered"] or caller in self.called_within):
            self.called_within.add(index)
            self.modules[index]["attributes"]["within"] = True
        return index

    def mark_built(self) -> None:
        """The modules that forward built: the model called them, and they are gone."""
        for index in self.called_within:
            if self.module_refs[index]() is None:
                self.modules[index]["attributes"]["built"] = True

    def _name_of(self, module: torch.nn.Module, caller: int) -> str:
        """The path of a module that its caller has in a list, say, or within a part; else its
        kind."""
        owner = self.module_refs[caller]() if caller >= 0 else None
        held = [*owner._modules.items(), *vars(owner).items()] if owner is not None else []
        for key, value in held:
            parts = value.items() if isinstance(value, dict) else \
                enumerate(value) if isinstance(value, (list, tuple)) else [("", value)]
            for part, one in parts if not key.startswith("_") else ():
                within = _path_within(one, module)
                if within is not None:
                    return ".".join(str(word) for word in (
                        self.modules[caller]["name"], key, part, within) if word != "")
        return type(module).__name__


def _path_within(whole: Any, module: torch.nn.Module) -> str | None:
    """The path of a module in another one, "" for itself."""
    if whole is module:
        return ""
    parts = whole.named_modules() if isinstance(whole, torch.nn.Module) else ()
    return next((name for name, part in parts if part is module), None)


def _nothing() -> None:
    """In place of a reference to a module."""


def _count(parameter: torch.Tensor) -> int:
    try:
        return parameter.numel()
    except Exception:  # not made yet
        return 0


def _attributes(values: dict[str, Any]) -> dict[str, Any]:
    found = {key: ops.plain_value(value) for key, value in values.items()}
    return {key: value for key, value in found.items() if value is not None}
