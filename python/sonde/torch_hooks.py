"""Where PyTorch has its tensors: hooks on a model, its optimisers and backward().

    forward of a root    begins a step; module outputs are seen when they are due
    backward()           the loss; then the gradients of module outputs
    optimizer.step()     before: gradients, and weights that the step will change;
                         after: updates, weights, optimiser state. The last one ends the step

Modules, parameters and tensors are not kept alive: modules are known by weak references,
parameters are read where their module has them. A hook that is copied or pickled with its
module turns into one that does nothing.
"""

from __future__ import annotations

import dataclasses
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as torch_module

from . import _sonde

if TYPE_CHECKING:
    from .watching import Watch

WEIGHTS, GRADIENTS, UPDATES = 1, 2, 4
FORWARD, BACKWARD, UPDATE = 1, 2, 3
_watched: "weakref.WeakSet[torch.nn.Module]" = weakref.WeakSet()
_backward_hooks: list["Hooks"] = []
_plain_backward = torch.autograd.backward


def _nothing(*arguments: Any, **options: Any) -> None:
    """What a hook is in a copy of its module."""


class _Hook:
    """A method of Hooks as a callable that can be copied and pickled with a module."""

    def __init__(self, hooks: "Hooks", name: str):
        self.hooks, self.name = weakref.ref(hooks), name

    def __call__(self, *arguments: Any, **options: Any) -> None:
        if torch.compiler.is_compiling():
            return  # a compiled region is not observed inside
        hooks = self.hooks()
        if hooks is not None and hooks.watch.watching:
            try:
                getattr(hooks, self.name)(*arguments)
            except BaseException as problem:
                hooks.watch._fault(problem)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_no_hook, ())

    def __deepcopy__(self, memo: Any) -> Any:
        return _nothing


def _no_hook() -> Any:
    return _nothing


def _backward(tensors: Any, *arguments: Any, **options: Any) -> Any:
    if not torch.compiler.is_compiling():
        caller = sys._getframe(1)
        if caller.f_code is torch.Tensor.backward.__code__ and caller.f_back is not None:
            caller = caller.f_back
        place = (caller.f_code.co_filename, caller.f_lineno)
        for hooks in list(_backward_hooks):
            try:
                hooks.on_backward(tensors, place)
            except BaseException as problem:
                hooks.watch._fault(problem)
    return _plain_backward(tensors, *arguments, **options)


@dataclasses.dataclass
class _Module:
    """What is known of a watched module."""

    ref: "weakref.ref[torch.nn.Module]"
    name: str
    op: str
    shows_input: bool  # the input of an activation is of interest
    outputs: int = 0  # tensors seen since the root's forward began
    inputs: int = 0


_ACTIVATIONS = ("ReLU", "LeakyReLU", "GELU", "SiLU", "ELU", "SELU", "Tanh", "Sigmoid", "Softplus",
                "ReLU6", "Hardtanh", "Hardsigmoid", "Hardswish", "PReLU", "Mish", "CELU")


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The floating tensors of what a module returns, in order."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() or value.is_complex():
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
        if root in _watched:
            raise _sonde.StateError("model: it is watched already; close that watch first")
    return roots


class Hooks:
    """The hooks of one watch."""

    def __init__(self, watch: "Watch", model: Any, optimizer: Any, scaler: Any):
        self.watch, self.core = watch, watch._core
        self.modules: dict[int, _Module] = {}
        self.slots: dict[str, int | None] = {}  # None: it cannot be observed
        self.handles: list[Any] = []
        self.names: dict[int, str] = {}  # of parameters, by id, while hooks are installed
        self.stepped: set[int] = set()
        self.roots_inside = 0  # forward passes of roots that are on
        self.places: dict[Any, str] = {}  # where backward is called: the loss's name
        self.global_hook: Any = None
        self.last_output: torch.Tensor | None = None  # while a root's forward is on
        self.ended = False
        optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else \
            list(optimizer or [])
        roots = _named_roots(model)
        self.declare(roots)
        self.check_optimizers(optimizers)
        self.install(roots, optimizers, scaler)

    # --- declaring ------------------------------------------------------------------------

    def declare(self, roots: dict[str, torch.nn.Module]) -> None:
        known: set[int] = set()
        for prefix, root in roots.items():
            plain = getattr(root, "_orig_mod", root)  # of torch.compile
            plain = plain.module if isinstance(plain, (
                torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)) else plain
            for name, module in plain.named_modules():
                whole = ".".join(part for part in (prefix, name) if part)
                if id(module) not in self.modules:
                    self.declare_module(whole, module)
                    self.declare_tensors(whole, module, known)
            weakref.finalize(root, _forget, weakref.ref(self))
        if roots and not known:
            raise _sonde.BadValueError("model: it has no parameters")

    def declare_module(self, name: str, module: torch.nn.Module) -> None:
        kind = type(module).__name__
        self.modules[id(module)] = _Module(
            weakref.ref(module), name, kind,
            kind in _ACTIVATIONS and not getattr(module, "inplace", False))

    def declare_tensors(self, name: str, module: torch.nn.Module, known: set[int]) -> None:
        add, op = self.watch._declare, type(module).__name__
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
                gradient = add("gradient/" + whole, "gradient", value, name, op, BACKWARD)
                if self.watch.every["updates"]:
                    update = self.core.add_update(weight)
            self.names[id(value)] = whole
            self.core.add_parameter(module._parameters, key, weight, gradient, update)
        for key, value in module._buffers.items():
            if value is not None and not value.is_meta and id(value) not in known:
                known.add(id(value))
                whole = f"{name}.{key}" if name else key
                slot = add(whole, "buffer", value, name, op, 0)
                self.core.add_parameter(module._buffers, key, slot, -1, -1)

    def check_optimizers(self, optimizers: list[Any]) -> None:
        for optimizer in optimizers:
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise _sonde.BadValueError(f"optimizer: {type(optimizer).__name__} (expected a "
                                           "torch.optim.Optimizer)")
            held = {id(p) for group in optimizer.param_groups for p in group["params"]}
            if self.names and not held & self.names.keys():
                raise _sonde.BadValueError("optimizer: it holds none of the model's parameters; "
                                           "was it made before the model was moved or copied?")

    # --- installing -----------------------------------------------------------------------

    def install(self, roots: dict[str, torch.nn.Module],
                optimizers: list[torch.optim.Optimizer], scaler: Any) -> None:
        for root in roots.values():
            _watched.add(root)
            self.handles += [
                root.register_forward_pre_hook(_Hook(self, "before_root")),
                root.register_forward_hook(_Hook(self, "after_root"), always_call=True)]
        self.roots = [weakref.ref(root) for root in roots.values()]
        self.optimizer_count = len(optimizers)
        for optimizer in optimizers:
            self.handles += [optimizer.register_step_pre_hook(_Hook(self, "before_step")),
                             optimizer.register_step_post_hook(_Hook(self, "after_step"))]
        _backward_hooks.append(self)
        torch.autograd.backward = _backward
        if scaler is not None:
            self.wrap_scaler(scaler)

    def wrap_scaler(self, scaler: Any) -> None:
        """A GradScaler does not call the optimiser at a step that overflows; its update ends
        that step."""
        plain, ref = scaler.update, weakref.ref(self)

        def update(*arguments: Any, **options: Any) -> Any:
            hooks = ref()
            if hooks is not None and hooks.watch.watching and hooks.watch.stepping == "train":
                hooks.core.see_parameters(GRADIENTS, GRADIENTS)
                hooks.core.scalar("skipped_step", 1.0)
                hooks.end_step()
            return plain(*arguments, **options)

        scaler.update = update
        self.handles.append(_Attribute(scaler, "update"))

    def remove(self) -> None:
        self.ended = True
        self.switch_module_hook(False)
        for handle in self.handles:
            handle.remove()
        self.handles = []
        for ref in self.roots:
            root = ref()
            if root is not None:
                _watched.discard(root)
        _backward_hooks.remove(self)
        if not _backward_hooks and torch.autograd.backward is _backward:
            torch.autograd.backward = _plain_backward
        self.core.forget_parameters()

    # --- forward --------------------------------------------------------------------------

    def mode_of(self, module: torch.nn.Module) -> str | None:
        """The mode of a forward pass; None: it belongs to no step."""
        if self.watch._mode is not None:
            return self.watch._mode
        if module.training:
            return "train" if torch.is_grad_enabled() else None
        return "eval"

    def before_root(self, module: torch.nn.Module, inputs: Any) -> None:
        mode, watch = self.mode_of(module), self.watch
        if mode is None or (mode != "train" and watch.stepping == "train"):
            return  # an evaluation between backward and step is not observed
        self.roots_inside += 1
        if mode != "train" or watch.stepping is None:
            if watch.stepping is not None and self.roots_inside == 1:
                self.end_step()
            if watch.stepping is None:
                watch._begin(mode)
        if watch._due("activations") and not _is_compiled(module):
            self.switch_module_hook(True)
            if self.roots_inside == 1:
                for known in self.modules.values():
                    known.outputs = known.inputs = 0
            for i, tensor in enumerate(_tensors_in(inputs)):
                self.show("input" if i == 0 else f"input/{i}", "input", tensor, "", "", FORWARD)

    def after_root(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if self.roots_inside == 0:
            return
        self.roots_inside -= 1
        if self.roots_inside == 0:
            self.switch_module_hook(False)
            self.last_output = None
            if self.watch.stepping not in (None, "train"):
                self.core.see_parameters(WEIGHTS, self.due())
                self.end_step()

    def switch_module_hook(self, on: bool) -> None:
        """One entry in PyTorch's table of global hooks sees all modules; it is there only
        while a step that is due runs forward."""
        if on and self.global_hook is None:
            self.global_hook = torch_module.register_module_forward_hook(
                _Hook(self, "after_module"))
        elif not on and self.global_hook is not None:
            self.global_hook.remove()
            self.global_hook = None

    def after_module(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        known = self.modules.get(id(module))
        if known is None or known.ref() is not module or self.roots_inside == 0:
            return
        if known.shows_input:
            for tensor in _tensors_in(inputs):
                self.show(f"{known.name}_input_{known.inputs}", "activation", tensor, known.name,
                          known.op, FORWARD)
                known.inputs += 1
        for tensor in _tensors_in(output):
            if tensor is self.last_output:
                continue  # a container returns what its last module returned
            self.last_output = tensor
            name = f"{known.name}_output_{known.outputs}" if known.name else \
                f"output_{known.outputs}"
            known.outputs += 1
            self.show(name, "activation" if known.name else "output", tensor, known.name,
                      known.op, FORWARD)
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(self.gradient_hook(name, known))

    def gradient_hook(self, name: str, known: _Module) -> Any:
        ref = weakref.ref(self)

        def see(gradients: tuple[torch.Tensor | None, ...]) -> None:
            hooks = ref()
            if hooks is not None and not hooks.ended and hooks.watch.watching and \
                    gradients and gradients[0] is not None and hooks.watch.stepping is not None:
                hooks.show("gradient/" + name, "activation_gradient", gradients[0], known.name,
                           known.op, BACKWARD)

        return see

    def show(self, name: str, role: str, tensor: torch.Tensor, module: str, op: str,
             when: int) -> None:
        try:
            if name not in self.slots:
                self.slots[name] = None
                self.slots[name] = self.watch._declare(name, role, tensor, module, op, when)
            slot = self.slots[name]
            if slot is not None:
                self.core.see(slot, tensor, True)
        except Exception as problem:
            self.watch._fault(problem)

    # --- backward -------------------------------------------------------------------------

    def on_backward(self, tensors: Any, place: Any) -> None:
        """The loss of the step that is on. Each place in the program that calls backward has a
        loss of its own name, so that the losses of two players are not taken for one."""
        watch = self.watch
        loss = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
        if not watch.watching or not isinstance(loss, torch.Tensor) or loss.numel() != 1 or \
                watch.stepping != "train":
            return  # another program's, perhaps
        name = self.places.get(place)
        if name is None:
            name = self.places[place] = f"loss_{len(self.places)}" if self.places else "loss"
        watch._show_loss(name, loss.detach())

    # --- the optimiser --------------------------------------------------------------------

    def before_step(self, optimizer: torch.optim.Optimizer, arguments: Any,
                    options: Any) -> None:
        watch = self.watch
        if id(optimizer) in self.stepped:
            self.end_step()  # it steps again before another one did
        if watch.stepping != "train":
            watch._begin("train")
        if not self.stepped:
            kinds = UPDATES if _has_closure(arguments, options) else GRADIENTS | UPDATES
            self.core.see_parameters(kinds, self.due())

    def due(self) -> int:
        watch = self.watch
        return (WEIGHTS if watch._due("weights") else 0) | \
            (GRADIENTS if watch._due("gradients") else 0) | \
            (UPDATES if watch._due("updates") else 0)

    def after_step(self, optimizer: torch.optim.Optimizer, arguments: Any, options: Any) -> None:
        watch = self.watch
        if watch.stepping != "train":
            return
        self.stepped.add(id(optimizer))
        if watch._due("optimizer"):
            self.show_state(optimizer)
        if len(self.stepped) == self.optimizer_count:
            if _has_closure(arguments, options):
                self.core.see_parameters(GRADIENTS, self.due())
            self.end_step()

    def show_state(self, optimizer: torch.optim.Optimizer) -> None:
        for parameter, state in optimizer.state.items():
            name = self.names.get(id(parameter))
            if name is None or not isinstance(state, dict):
                continue
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    self.show(f"{name}.{key}", "optimizer", value, "", type(optimizer).__name__,
                              UPDATE)

    def finish_step(self) -> None:
        """What is seen at the end of a step of training."""
        watch = self.watch
        if watch.stepping == "train":
            self.core.see_parameters(WEIGHTS | UPDATES, self.due())

    def end_step(self) -> None:
        self.switch_module_hook(False)
        self.roots_inside = 0
        self.finish_step()
        self.stepped.clear()
        self.watch._end()


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
        hooks.core.forget_parameters()


def _is_compiled(module: torch.nn.Module) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def _has_closure(arguments: Any, options: Any) -> bool:
    return options.get("closure") is not None or \
        len(arguments) > 1 and arguments[1] is not None or \
        len(arguments) == 1 and callable(arguments[0]) and \
        not isinstance(arguments[0], torch.optim.Optimizer)
