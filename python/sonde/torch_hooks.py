"""Where PyTorch has its tensors: hooks on a model, its optimizers and backward().

    forward of a root    begins a step; module outputs are seen when they are due
    backward()           the loss; then the gradients of module outputs
    optimizer.step()     before: the gradients of what it holds, and, at the first, weights
                         that the step will change; after: updates, weights, optimizer state.
                         The last one ends the step

    GradScaler           the loss is the one before scaling; a step that it skips ends at its
                         update

An optimizer that finds no gradient other than 0 at its step, though a backward pass ran, has
them cleared too early: from then on its gradients are seen after each backward pass.

The hooks themselves are C (python/extension/python_step.c); this file installs them and declares
what they see first. Modules, parameters and tensors are not kept alive: modules are known by
weak references, parameters are read where their module has them. No module has a hook: C is
called in place of Module._call_impl (python/extension/python_call.c).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_compiling
from torch.optim.optimizer import register_optimizer_step_pre_hook

from . import _sonde
from .device import is_elsewhere
from .loss_places import Places
from .optimizers import Following, given, stepping
from .program import Programs

if TYPE_CHECKING:
    from .watching import Watch

FORWARD, BACKWARD, UPDATE = 1, 2, 3
_watched: "weakref.WeakSet[torch.nn.Module]" = weakref.WeakSet()
_plain_backward = torch.autograd.backward
_cores: list[_sonde.Watch] = []  # that are shown losses
_backward = _sonde.Backward(_plain_backward, (
    torch.Tensor.backward.__code__, torch.overrides.handle_torch_function.__code__), _cores)
_calls = _sonde.Calls(_cores, is_compiling)


_ACTIVATIONS = ("ReLU", "LeakyReLU", "GELU", "SiLU", "ELU", "SELU", "Tanh", "Sigmoid", "Softplus",
                "ReLU6", "Hardtanh", "Hardsigmoid", "Hardswish", "PReLU", "Mish", "CELU")


# What they make of an infinity is finite.
_HIDE_INFINITE = frozenset(("Tanh", "Sigmoid", "ReLU6", "Hardtanh", "Hardsigmoid"))
# Modules of torch.nn that return one tensor, without NaN and infinities if what they get has none.
_KEEP_FINITE = frozenset(_ACTIVATIONS) - {"PReLU"} | {
    "Identity", "Flatten", "Unflatten", "MaxPool1d", "MaxPool2d", "MaxPool3d"}


_AGAIN = frozenset(getattr(torch.nn, name) for name in (
    "Linear", "Conv1d", "Conv2d", "Conv3d", "LayerNorm", "GroupNorm"))


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of what a module gets or returns, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors_in(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors_in(part)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors_in(getattr(value, field.name))


def _named_roots(model: Any) -> dict[str, torch.nn.Module]:
    """{prefix: root}; "" for a single model."""
    if isinstance(model, torch.nn.Module):
        roots = {"": model}
    elif isinstance(model, Mapping):
        roots = dict(model)
    elif isinstance(model, Sequence):
        roots = {f"model{i}" if i else "": root for i, root in enumerate(model)}
    elif model is None:
        roots = {}
    else:
        roots = {"": model}
    for root in roots.values():
        if not isinstance(root, torch.nn.Module):
            raise _sonde.BadValueError(f"model: {type(root).__name__} (expected a "
                                       "torch.nn.Module)")
        if isinstance(root, torch.jit.ScriptModule):
            raise _sonde.BadValueError("model: a scripted module, which takes no hooks (expected a "
                                       "module of Python's, which may hold it)")
        if root in _watched:
            raise _sonde.StateError("model: it is watched already; close that watch first")
    return roots


# --- mixed precision ------------------------------------------------------------------------

_Scaler = torch.amp.GradScaler
_installed: "list[weakref.ref[Hooks]]" = []


def _scale(plain: Any) -> Any:
    """GradScaler.scale; the result knows the loss that it was made of."""

    @functools.wraps(plain)
    def scale(self: Any, outputs: Any) -> Any:
        made = plain(self, outputs)
        if not is_compiling() and isinstance(made, torch.Tensor) and \
                isinstance(outputs, torch.Tensor) and made is not outputs:
            made._sonde_loss = outputs.detach()
            _backward.scaled = True
            for ref in list(_installed):
                hooks = ref()
                if hooks is not None and hooks.programs.on is not None:
                    hooks.programs.scale = float(self.get_scale())
        return made

    scale._sonde = plain  # type: ignore[attr-defined]
    return scale


def _update(plain: Any) -> Any:
    """GradScaler.update, which ends the steps that the scaler skipped."""

    @functools.wraps(plain)
    def update(self: Any, *arguments: Any, **options: Any) -> Any:
        stepped = set(getattr(self, "_per_optimizer_states", ()))
        for ref in list(_installed):
            hooks = ref()
            if hooks is not None:
                hooks.skip(self, stepped)
        return plain(self, *arguments, **options)

    update._sonde = plain  # type: ignore[attr-defined]
    return update


_SCALER = {"scale": _scale, "update": _update}


# --- clipping -------------------------------------------------------------------------------


def _clip(plain: Any) -> Any:
    """Where clip_grad_norm_ multiplies the gradients by one number. A norm that is not finite
    makes NaN of all of them: they are seen before that."""

    @functools.wraps(plain)
    def clip(parameters: Any, max_norm: float, total_norm: Any, *rest: Any, **options: Any) -> Any:
        if not isinstance(parameters, torch.Tensor):
            parameters = list(parameters)
        _note("clip", 0, None, attributes={"max_norm": float(max_norm)})
        if type(total_norm) is torch.Tensor and total_norm.is_cpu and not is_compiling() and \
                not math.isfinite(total_norm):
            for ref in list(_installed):
                hooks = ref()
                if hooks is not None:
                    hooks.see_unclipped(parameters)
        return plain(parameters, max_norm, total_norm, *rest, **options)

    clip._sonde = plain  # type: ignore[attr-defined]
    return clip


# --- events of a program ------------------------------------------------------------------------


def _note(kind: str, number: int, subject: Any, **attributes: Any) -> None:
    """Shows the watches an event of a step."""
    if is_compiling():
        return
    for ref in list(_installed):
        hooks = ref()
        outline = hooks.core.note(kind, number) if hooks is not None else 0
        if outline:
            try:
                hooks.programs.remember(kind, outline, subject, **attributes)
            except Exception as problem:  # the step goes on
                hooks.watch._fault(problem)


def _pause(more: int) -> None:
    """What is called now is not the program's own."""
    for ref in list(_installed):
        hooks = ref()
        if hooks is not None:
            hooks.programs.pause(more)


def _cleared(plain: Any) -> Any:
    """zero_grad of optimizers and of modules."""

    @functools.wraps(plain)
    def zero_grad(self: Any, *arguments: Any, **options: Any) -> Any:
        _note("zero_grad", isinstance(self, torch.nn.Module), self)
        return plain(self, *arguments, **options)

    zero_grad._sonde = plain  # type: ignore[attr-defined]
    return zero_grad


def _scheduled(plain: Any) -> Any:
    """step of a scheduler, without that of its constructor."""

    @functools.wraps(plain)
    def step(self: Any, *arguments: Any, **options: Any) -> Any:
        if not getattr(self, "_is_initial", False):
            _note("scheduler", 0, self, attributes={"kind": type(self).__name__})
        return plain(self, *arguments, **options)

    step._sonde = plain  # type: ignore[attr-defined]
    return step


def _loaded(plain: Any) -> Any:
    """The next batch of a DataLoader."""

    @functools.wraps(plain)
    def __next__(self: Any) -> Any:
        _pause(1)
        try:
            batch = plain(self)
        finally:
            _pause(-1)
        _note("batch", 0, self)
        return batch

    __next__._sonde = plain  # type: ignore[attr-defined]
    return __next__


def _unscale(plain: Any) -> Any:
    """GradScaler.unscale_."""

    @functools.wraps(plain)
    def unscale_(self: Any, optimizer: Any) -> Any:
        _note("unscale", 0, optimizer)
        return plain(self, optimizer)

    unscale_._sonde = plain  # type: ignore[attr-defined]
    return unscale_


def _clip_values(plain: Any) -> Any:
    """clip_grad_value_."""

    @functools.wraps(plain)
    def clip(parameters: Any, clip_value: float, *rest: Any, **options: Any) -> Any:
        _note("clip", 1, None, attributes={"value": float(clip_value)})
        return plain(parameters, clip_value, *rest, **options)

    clip._sonde = plain  # type: ignore[attr-defined]
    return clip


class _Warnings:
    """The module warnings, for torch.nn.functional: a function that a mode passes on is called by
    PyTorch's own code, and its warning must point to the line that called it first."""

    def __init__(self, plain: Any):
        self._sonde = plain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sonde, name)

    def warn(self, message: Any, category: Any = None, stacklevel: int = 1, *rest: Any,
             **options: Any) -> None:
        frame, level, left = sys._getframe(1), stacklevel + 1, stacklevel - 1
        while frame.f_back is not None and left > 0:
            frame, left = frame.f_back, left - 1
            if frame.f_code is _handling and frame.f_back is not None and \
                    frame.f_back.f_back is not None:  # called by the function itself
                frame, level = frame.f_back.f_back, level + 2
        self._sonde.warn(message, category, level, *rest, **options)


_handling = torch.overrides.handle_torch_function.__code__
_schedulers = torch.optim.lr_scheduler
# Classes and modules, and the functions of theirs that are wrapped while a watch is installed.
_WRAPPED = ((torch.nn.functional, "warnings", _Warnings), (_Scaler, "scale", _scale), (_Scaler, "update", _update),
            (torch.nn.utils.clip_grad, "_clip_grads_with_norm_", _clip),
            (torch.nn.utils, "clip_grad_value_", _clip_values),
            (torch.optim.Optimizer, "zero_grad", _cleared), (torch.nn.Module, "zero_grad", _cleared),
            (_Scaler, "unscale_", _unscale),
            (torch.utils.data.dataloader._BaseDataLoaderIter, "__next__", _loaded), (_schedulers.LRScheduler, "step", _scheduled),
            (_schedulers.ReduceLROnPlateau, "step", _scheduled))


class Hooks:
    """The hooks of one watch. _sonde.Watch calls the methods in the part "called by C"."""

    is_grad_enabled = torch.is_grad_enabled

    def __init__(self, watch: "Watch", model: Any, optimizer: Any, scaler: Any):
        self.watch, self.core = watch, watch._core
        self.modules: list[tuple[str, str]] = [("", "")]  # name and op; the first: the program
        self.known: set[int] = set()  # modules, by id, while they are declared
        self.slots: dict[str, int] = {}  # of what C asked for, by name
        self.handles: list[Any] = []
        self.stepping: list[Any] = []  # handles of the optimizers with which steps end
        self.following: Following | None = None
        self.names: dict[int, str] = {}  # of parameters, by id, while hooks are installed
        self.holders: dict[int, int] = {}  # their optimizers' numbers, from 1, likewise
        self.parameters: list[str] = []  # their names, in the order of C
        self.places = Places()  # where backward is called
        self.loss_name = ""  # of the last backward pass that asked for it
        self.programs = Programs(self)
        self.scalers: list[weakref.ref[Any]] = []  # that the program gave
        optimizers = [stepping(one) for one in given(optimizer)]
        roots = _named_roots(model)
        self.root_refs = {name: weakref.ref(root) for name, root in roots.items()}
        self.core.add_module(None, False)
        self.set_holders(optimizers)
        self.declare(roots)
        self.check_optimizers(optimizers)
        if any(is_elsewhere(value) for root in roots.values() for value in root.parameters()):
            watch._use_device()
        self.install(roots, optimizers, scaler)

    # --- declaring ------------------------------------------------------------------------

    def declare(self, roots: dict[str, torch.nn.Module]) -> None:
        known: set[int] = set()
        for prefix, root in roots.items():
            for name, module in _inner(root).named_modules():
                whole = ".".join(part for part in (prefix, name) if part)
                if id(module) not in self.known:
                    self.known.add(id(module))
                    self.declare_module(whole, module)
                    self.declare_tensors(whole, module, known)
            weakref.finalize(root, _forget, weakref.ref(self))
        if roots and not known:
            raise _sonde.BadValueError("model: it has no parameters")

    def declare_module(self, name: str, module: torch.nn.Module) -> None:
        kind = _kind(module)
        self.modules.append((name, kind))
        hides = kind in _HIDE_INFINITE
        self.core.add_module(module, kind in _ACTIVATIONS and
                             not getattr(module, "inplace", False),
                             kind in _KEEP_FINITE and not hides and
                             type(module) is getattr(torch.nn, kind), hides)

    def declare_tensors(self, name: str, module: torch.nn.Module, known: set[int]) -> None:
        add, op = self.watch._declare, _kind(module)
        for key, value in module._parameters.items():
            if value is None or id(value) in known or \
                    isinstance(value, torch.nn.parameter.UninitializedParameter):
                continue
            known.add(id(value))
            whole = f"{name}.{key}" if name else key
            if value.is_meta:
                raise _sonde.BadValueError(f"{whole}: it is on the meta device (expected a "
                                           "parameter with memory)")
            role = "bias" if key.startswith("bias") else "weight"
            weight = add(whole, role, value, name, op, 0)
            gradient = update = -1
            if value.requires_grad:
                gradient = add("gradient/" + whole, "gradient", value, name, op, BACKWARD,
                               self.held_note(value))
                if self.watch.every["updates"] >= 0 and not value.is_complex():
                    update = self.core.add_update(weight)
                    self.watch._slots["update/" + whole] = update
            self.names[id(value)] = whole
            self.parameters.append(whole)
            self.core.add_parameter(_plain(module._parameters), key, weight, gradient, update, -1,
                                    self.holders.get(id(value), 0))
        for key, value in module._buffers.items():
            if value is not None and not value.is_meta and id(value) not in known:
                known.add(id(value))
                whole = f"{name}.{key}" if name else key
                slot = add(whole, "buffer", value, name, op, 0)
                self.parameters.append(whole)
                self.core.add_parameter(_plain(module._buffers), key, -1, -1, -1, slot)

    def held_note(self, parameter: torch.nn.Parameter) -> str:
        """SONDE_NOTE_HELD of <sonde/catalogue.h>; "" if no optimizer has it, or if its note
        says that it is a shard."""
        number = self.holders.get(id(parameter), 0)
        return f"for optimizer {number}" if number and not hasattr(parameter, "_local_tensor") else ""

    def check_optimizers(self, optimizers: list[Any]) -> None:
        """One of several may hold parameters of the program's own: a temperature, say."""
        for optimizer in optimizers:
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise _sonde.BadValueError(f"optimizer: {type(optimizer).__name__} (expected a "
                                           "torch.optim.Optimizer)")
        held = {id(p) for one in optimizers for group in one.param_groups for p in group["params"]}
        if optimizers and self.names and not held & self.names.keys():
            raise _sonde.BadValueError("optimizer: it holds none of the model's parameters; "
                                       "was it made before the model was moved or copied?")

    # --- installing -----------------------------------------------------------------------

    def install(self, roots: dict[str, torch.nn.Module],
                optimizers: list[torch.optim.Optimizer], scaler: Any) -> None:
        for root in roots.values():
            _watched.add(root)
            for part in _called(root):
                self.add_parts(part, self.core.add_root(part, _is_compiled(part)))
        self.hook_optimizers(optimizers)
        if roots:
            self.following = Following(self, optimizers)
            self.handles.append(register_optimizer_step_pre_hook(self.following))
        self.core.attach(self, len(optimizers), torch.Tensor)
        _cores.append(self.core)
        torch.autograd.backward = _backward
        torch.nn.Module._compiled_call_impl = _calls
        _installed.append(weakref.ref(self))
        if len(_cores) == 1:
            for owner, name, wrap in _WRAPPED:
                if hasattr(owner, name):  # PyTorch before 2.6 clips in one function
                    setattr(owner, name, wrap(getattr(owner, name)))
        if scaler is not None:
            self.wrap_scaler(scaler)

    def set_holders(self, optimizers: list[Any]) -> None:
        self.holders = {id(p): i for i, one in reversed(list(enumerate(optimizers, 1)))
                        for group in getattr(one, "param_groups", ()) for p in group["params"]}
        self.optimizers = set(map(id, optimizers))

    def hook_optimizers(self, optimizers: list[torch.optim.Optimizer]) -> None:
        hook = self.core.hook
        self.optimizer_refs = [weakref.ref(one) for one in optimizers]
        for i, optimizer in enumerate(optimizers, 1):
            self.stepping += [optimizer.register_step_pre_hook(hook("before_step", i)),
                              optimizer.register_step_post_hook(hook("after_step", i))]

    def follow(self, optimizers: list[torch.optim.Optimizer], stepped: int = 0) -> None:
        """From now on steps end with these optimizers; the one that is on, without the first
        `stepped` of them."""
        for handle in self.stepping:
            handle.remove()
        self.stepping = []
        self.set_holders(optimizers)
        self.core.set_optimizers(len(optimizers), stepped)
        numbers = {name: i for i, name in enumerate(self.parameters)}
        for key, name in self.names.items():
            self.core.set_holder(numbers[name], self.holders.get(key, 0))
        self.hook_optimizers(optimizers)

    def add_parts(self, root: torch.nn.Module, number: int) -> None:
        """A program may call the parts of a root alone: they are roots too, until the first
        call of the root."""
        if _is_compiled(root) or isinstance(root, torch.nn.parallel.DistributedDataParallel):
            return
        for child in root.children():
            if not isinstance(child, torch.jit.ScriptModule):
                for part in _called(child):
                    self.core.add_root(part, _is_compiled(part), number)

    def wrap_scaler(self, scaler: Any) -> None:
        """A given scaler with methods of its own; others are wrapped by their class."""
        for name, wrap in _SCALER.items():
            if not hasattr(getattr(type(scaler), name), "_sonde"):
                setattr(scaler, name, wrap(getattr(type(scaler), name)).__get__(scaler))
                self.handles.append(_Attribute(scaler, name))
        self.scalers.append(weakref.ref(scaler))

    def skip(self, scaler: Any, stepped: set[int]) -> None:
        """A GradScaler does not call the optimizer at a step that overflows; its update ends
        that step."""
        ours = any(ref() is scaler for ref in self.scalers) or stepped & self.optimizers
        if ours and self.core.state() == (True, True, 0):
            self.core.see_gradients()
            self.core.scalar("skipped_step", 1.0)
            self.core.end()

    def see_unclipped(self, parameters: Any) -> None:
        """Shows the gradients of the optimizers that hold any of these parameters."""
        watched = (parameters,) if isinstance(parameters, torch.Tensor) else parameters
        if self.core.state() == (True, True, 0):
            for player in sorted({self.holders.get(id(p), 0) for p in watched
                                  if id(p) in self.names}):
                self.core.see_unclipped(player)

    def remove(self) -> None:
        for handle in self.handles + self.stepping:
            handle.remove()
        self.handles, self.stepping = [], []
        for ref in self.root_refs.values():
            root = ref()
            if root is not None:
                _watched.discard(root)
        _cores.remove(self.core)
        _installed[:] = [ref for ref in _installed if ref() not in (None, self)]
        for owner, name, _ in _WRAPPED if not _cores else ():
            plain = getattr(getattr(owner, name, None), "_sonde", None)
            if plain is not None:
                setattr(owner, name, plain)
        if not _cores and torch.autograd.backward is _backward:
            torch.autograd.backward = _plain_backward
        if not _cores and torch.nn.Module.__dict__.get("_compiled_call_impl") is _calls:
            torch.nn.Module._compiled_call_impl = None
        self.core.detach()

    # --- for programs -----------------------------------------------------------------------

    def named_roots(self) -> dict[str, torch.nn.Module]:
        """The roots that live, without what torch.compile and replicas put around them."""
        found = {name: ref() for name, ref in self.root_refs.items()}
        return {name: _inner(root) for name, root in found.items() if root is not None}

    def placed_optimizers(self) -> list[Any]:
        """By number; None: it is gone."""
        return [ref() for ref in self.optimizer_refs]

    def optimizer_number(self, optimizer: Any) -> int:
        return next((i for i, ref in enumerate(self.optimizer_refs) if ref() is optimizer), -1)

    def is_compiled(self) -> bool:
        return any("_orig_mod" in root._modules for root in self._roots()) or \
            self.has_compiled_parts()

    def has_compiled_parts(self) -> bool:
        """Whether modules are compiled that are no roots, or roots in place."""
        return any(_is_compiled(part) for root in self._roots()
                   for part in getattr(root, "_orig_mod", root).modules())

    def _roots(self) -> list[torch.nn.Module]:
        return [root for root in (ref() for ref in self.root_refs.values()) if root is not None]

    # --- called by C ----------------------------------------------------------------------

    @staticmethod
    def again(module: torch.nn.Module, value: torch.Tensor, really: bool) -> Any:
        """What a module makes of a value again, if it is one of torch.nn's that has no effect
        and no part of the program's own; None: it is not. Not really: True."""
        weight = module._parameters.get("weight")
        if type(module) not in _AGAIN or module._forward_hooks or module._forward_pre_hooks or \
                weight is None or weight.dtype != value.dtype or \
                getattr(module, "max_norm", None) is not None:
            return None
        if not really:
            return True
        with torch.no_grad():
            return module.forward(value)

    def declare_input(self, module: int, number: int, tensor: torch.Tensor) -> int:
        """The slot of an input of a module; of module 0, the model."""
        name, op = self.modules[module]
        if module == 0:
            return self.slot("input" if number == 0 else f"input/{number}", "input", tensor, "",
                             "", 0)  # no pass computes it: by that, rules know the program's input
        return self.slot(f"{name}_input_{number}", "activation", tensor, name, op, FORWARD)

    def declare_integers(self, module: int, number: int, tensor: torch.Tensor) -> int:
        """The slot of an input of the model that holds tokens, indices or classes."""
        return self.slot("input_ids" if number == 0 else f"input_ids/{number}", "input", tensor,
                         "", "", 0)

    def declare_output(self, module: int, number: int, tensor: torch.Tensor) -> int:
        name, op = self.modules[module]
        role = "output" if name in self.root_refs else "activation"
        return self.slot(_output(name, number), role, tensor, name, op, FORWARD)

    def declare_gradient(self, module: int, number: int, tensor: torch.Tensor) -> int:
        name, op = self.modules[module]
        return self.slot("gradient/" + _output(name, number), "activation_gradient", tensor, name,
                         op, BACKWARD)

    def declare_state(self, parameter: int, key: str, tensor: torch.Tensor,
                      optimizer: torch.optim.Optimizer) -> int:
        return self.slot(f"{self.parameters[parameter]}.{key}", "optimizer", tensor, "",
                         type(optimizer).__name__, UPDATE)

    def find_loss(self, frame: Any, tensor: torch.Tensor, readable: Any,
                  again: bool) -> tuple[int, bool]:
        """The slot of the loss of a place in the program that calls backward, and whether it
        is known for good. again: the place has had a backward pass in this step."""

        def declare(number: int) -> int:
            name = f"loss_{number}" if number else "loss"
            if name not in self.watch._losses:
                self.watch._losses[name] = self.watch._declare(name, "loss", readable, "", "",
                                                               FORWARD)
            return self.watch._losses[name]

        found = self.places.find(frame, tensor, self.names, self.holders, again, declare)
        self.loss_name = next((name for name, slot in self.watch._losses.items()
                               if slot == found[0]), "")
        return found

    def never_steps(self, passes: int) -> bool:
        """A step has had so many backward passes, and no optimizer has stepped. Returns whether
        none will."""
        if self.following is not None:
            self.following.say_endless(passes)
        return self.programs.lacks_step(True)

    def tensors_in(self, value: Any) -> list[torch.Tensor]:
        return list(_tensors_in(value))

    def slot(self, name: str, *described: Any) -> int:
        if name not in self.slots:
            with torch._C.DisableTorchFunction():
                self.slots[name] = self.watch._declare(name, *described)
        return self.slots[name]


def _inner(root: torch.nn.Module) -> torch.nn.Module:
    """A model without what torch.compile and replicas put around it."""
    plain = getattr(root, "_orig_mod", root)
    return plain.module if isinstance(plain, (
        torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)) else plain


def _called(root: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """What a program calls of a model: the model, or the parts of one without a forward of its
    own (ModuleDict, ModuleList, a holder of two players)."""
    if getattr(root.forward, "__func__", None) is torch.nn.Module.forward:
        for child in root.children():
            yield from _called(child)
    else:
        yield root


def _plain(tensors: Any) -> dict[str, Any]:
    """The dictionary of a module's tensors. A scripted module has none: C gets one of what it
    holds now, which it keeps until the watch ends."""
    return tensors if isinstance(tensors, dict) else dict(tensors.items())


def _kind(module: torch.nn.Module) -> str:
    """The name of a module's class; fully_shard puts one of its own before it."""
    kinds = type(module).__mro__
    return kinds[2 if kinds[1].__name__ == "FSDPModule" else 0].__name__


def _output(module: str, number: int) -> str:
    return f"{module}_output_{number}" if module else f"output_{number}"


class _Attribute:
    """A handle that takes an attribute off its object again."""

    def __init__(self, owner: Any, name: str):
        self.owner, self.name = weakref.ref(owner), name

    def remove(self) -> None:
        owner = self.owner()
        if owner is not None:
            owner.__dict__.pop(self.name, None)


def _forget(ref: "weakref.ref[Hooks]") -> None:
    hooks = ref()
    if hooks is not None:
        hooks.names.clear()  # their addresses are used again
        hooks.core.forget_parameters()


def _is_compiled(module: torch.nn.Module) -> bool:
    return "_orig_mod" in module._modules or \
        module.__dict__.get("_compiled_call_impl") is not None
