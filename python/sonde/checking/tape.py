"""The tape of a training step: the calls of the program's networks and the operations between
them and the loss, which can be computed again with copies of the networks.

A TorchFunctionMode sees each operation outside of the networks, once, as the program calls it
(F.cross_entropy is one operation). An operation is an entry if one of its inputs requires a
gradient or comes from such an entry; a network is what is called as a module, with gradients, and
has trained parameters. All other tensors are constants, of which the tape keeps copies.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from . import places, trees

_WRAPPERS = {"DataParallel", "DistributedDataParallel", "OptimizedModule",
             "FullyShardedDataParallel"}
_MOST = 100000  # entries
_BACKWARD = (torch.Tensor.backward, torch.autograd.backward)


class Ref(NamedTuple):
    """The place of a tensor in the arguments of an entry."""

    key: int


class Entry(NamedTuple):
    function: Callable[..., Any] | None  # None: a call of a network
    module: nn.Module | None
    tree: Any  # (args, kwargs), with Ref for tensors
    inputs: tuple[int, ...]
    outputs: list[int]
    training: bool  # the mode of the network
    changed: tuple[int, ...]  # inputs that the operation changed in place
    context: tuple[Any, ...]  # gradients on, autocast
    place: str = ""  # the line of the program


class Loss(NamedTuple):
    """A tensor on which the program called backward()."""

    key: int
    tensor: torch.Tensor
    value: torch.Tensor  # as it was then
    gradient: torch.Tensor | None


class Tape(TorchFunctionMode):
    """Records while it is entered; calls_heard() records the calls of networks."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self.losses: list[Loss] = []
        self.constants: dict[int, torch.Tensor] = {}
        self.alive: set[int] = set()  # outputs of entries
        self.returned: dict[int, torch.Tensor] = {}  # by networks
        self.kept: list[Any] = []  # their ids stay theirs
        self.busy = False
        self.too_long = self.other_thread = False
        self.thread = threading.get_ident()
        self.on_backward: Callable[[], None] = lambda: None

    # --- operations ---------------------------------------------------------------------------

    def __torch_function__(self, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.busy or _is_transformed():
            return function(*args, **kwargs)
        if function in _BACKWARD:
            return self._backward(function, args, kwargs)
        return self.operation(function, args, kwargs)

    def operation(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Calls a function, and makes an entry of it if a gradient may go through it."""
        tensors = trees.tensors((args, kwargs))
        grad = torch.is_grad_enabled()  # else parameters alone make no entry: as a policy acts
        if not any(grad and value.requires_grad or id(value) in self.alive for value in tensors):
            return function(*args, **kwargs)
        tree, inputs = self._referred((args, kwargs))
        versions = [_version(value) for value in tensors]
        with self._quiet():
            result = function(*args, **kwargs)
        changed = tuple(id(value) for value, version in zip(tensors, versions)
                        if _version(value) != version)
        if any(value.is_leaf and value.requires_grad for value in tensors if id(value) in changed):
            return result  # initial values, or an update: through them goes no gradient
        self._enter(Entry(function, None, tree, inputs, [], True, changed, _context(), places.here()), result,
                    changed)
        return result

    def _backward(self, function: Any, args: Any, kwargs: Any) -> Any:
        roots = args[0] if args else kwargs.get("tensors", kwargs.get("self"))
        gradients = args[1] if len(args) > 1 else kwargs.get(
            "gradient", kwargs.get("grad_tensors"))
        roots = [roots] if isinstance(roots, torch.Tensor) else list(roots)
        gradients = list(gradients) if isinstance(gradients, (list, tuple)) else [gradients]
        for place, root in enumerate(roots):
            gradient = gradients[place] if place < len(gradients) else None
            self.losses.append(Loss(id(root), root, root.detach().clone(), gradient))
        with self._quiet():
            result = function(*args, **kwargs)
        self.on_backward()
        return result

    # --- networks -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def calls_heard(self) -> Iterator[None]:
        """Calls of modules and of the program's own autograd functions are entries."""
        call, apply = nn.Module.__call__, torch.autograd.Function.__dict__["apply"]
        tape = self

        def heard(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if tape.busy or _is_transformed() or not is_network(module):
                return call(module, *args, **kwargs)
            if threading.get_ident() != tape.thread:  # whose operations a mode does not see
                tape.other_thread = True
                return call(module, *args, **kwargs)
            return tape._call(call, module, args, kwargs)

        def applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
            bound = apply.__get__(None, cls)
            if tape.busy or _is_transformed() or threading.get_ident() != tape.thread:
                return bound(*args, **kwargs)
            return tape.operation(bound, args, kwargs)

        nn.Module.__call__ = heard  # type: ignore[method-assign]
        torch.autograd.Function.apply = classmethod(applied)  # type: ignore[assignment]
        try:
            with self:
                yield
        finally:
            nn.Module.__call__ = call  # type: ignore[method-assign]
            torch.autograd.Function.apply = apply

    def _call(self, call: Any, module: nn.Module, args: Any, kwargs: Any) -> Any:
        tree, inputs = self._referred((args, kwargs))
        with self._quiet():
            result = call(module, *args, **kwargs)
        self._enter(Entry(None, module, tree, inputs, [], module.training, (), _context()), result,
                    ())
        return result

    # --- the parts of an entry ----------------------------------------------------------------

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        self.busy = True
        try:
            yield
        finally:
            self.busy = False

    def _referred(self, tree: Any) -> tuple[Any, tuple[int, ...]]:
        """The arguments with a Ref for each tensor; constants are copied."""
        flat, form = _pytree.tree_flatten(tree)
        inputs = []
        for place, value in enumerate(flat):
            if not isinstance(value, torch.Tensor):
                continue
            key = id(value)
            if key not in self.alive and key not in self.constants:
                self.kept.append(value)
                self.constants[key] = value if isinstance(value, nn.Parameter) else \
                    value.detach().clone().requires_grad_(value.requires_grad)
            inputs.append(key)
            flat[place] = Ref(key)
        return _pytree.tree_unflatten(flat, form), tuple(inputs)

    def _enter(self, entry: Entry, result: Any, changed: tuple[int, ...]) -> None:
        outputs = trees.within(result)
        if entry.function is None:
            self.returned.update((id(value), value) for value in outputs)
        self.kept += outputs
        entry.outputs.extend(map(id, outputs))
        self.alive.update(entry.outputs, changed)
        if len(self.entries) < _MOST:
            self.entries.append(entry)
        else:
            self.too_long = True

    def slice_of(self, losses: list[Loss], ends: set[int] = frozenset()) -> list[Entry]:
        """The entries that the losses need, in order; ends: modules whose calls are left out."""
        needed, found = {loss.key for loss in losses}, []
        for entry in reversed(self.entries):
            if (needed.intersection(entry.outputs) or needed.intersection(entry.changed)) and \
                    id(entry.module) not in ends:
                found.append(entry)
                needed.update(entry.inputs)
        return found[::-1]


def _is_transformed() -> bool:
    """Whether a transformation of functions, or a trace for TorchScript, calls the program."""
    return torch._C._functorch.peek_interpreter_stack() is not None or torch.jit.is_tracing()


def is_network(module: nn.Module) -> bool:
    """Whether a call of it belongs to a training step, and it is no wrapper of a network."""
    return type(module).__name__ not in _WRAPPERS and torch.is_grad_enabled() and \
        any(value.requires_grad for value in module.parameters())


def _version(value: torch.Tensor) -> int:
    if isinstance(value, nn.parameter.UninitializedTensorMixin) or value.is_inference():
        return 0
    return value._version


def _context() -> tuple[Any, ...]:
    kind = "cuda" if torch.cuda.is_initialized() else "cpu"
    return (torch.is_grad_enabled(), kind, torch.is_autocast_enabled(kind),
            torch.get_autocast_dtype(kind))


@contextlib.contextmanager
def again(context: tuple[Any, ...]) -> Iterator[None]:
    """The modes under which an entry ran."""
    grad, kind, enabled, dtype = context
    with torch.set_grad_enabled(grad and torch.is_grad_enabled()), \
            torch.autocast(kind, dtype=dtype, enabled=enabled):
        yield
