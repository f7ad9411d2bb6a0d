"""Watches a program that calls nothing of Sonde's: `sonde watch`, and notebooks.

Before the forward pass of each module in training mode, until a watch begins: do optimizers exist
that hold parameters of it? Then it is the model, and what other modules hold of the same
optimizers' parameters, and of those of other optimizers, is watched with it. The watch begins
before that forward pass. No module gets a hook, and no frame is on the stack: the search is a
descriptor in the place of torch.nn.Module._compiled_call_impl, which gives None.

A program that never calls its model as a module (Module.compile, parameters alone) has its watch
after the second step of an optimizer. Where another model is trained later on, as in
cross-validation, the watch ends and another one begins. A program that calls sonde.watch has no
other watch.
"""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Callable, Iterable
from importlib.abc import Loader
from typing import TYPE_CHECKING, Any

from . import watching

if TYPE_CHECKING:
    import torch

_SCANS = 20  # of the objects of the program, between two steps of optimizers
_LOOKS = 3  # of a module, between two steps of optimizers
_PATIENCE = 20  # steps of an optimizer of another model until the watch ends


class Automatic:
    """Begins watches, with these options of sonde.watch."""

    def __init__(self, **options: Any):
        self.options = options
        self.watch: watching.Watch | None = None
        self.models: list[str] = []  # of the last watch
        self.count = 0  # watches that began
        self.aside = False  # the program calls sonde.watch
        self.failed = False
        self.looked: Any = None  # modules that hold no parameter of an optimizer, and how often
        self.unknown: Any = None  # steps of optimizers of no watched model
        self.scans = 0
        self.process = os.getpid()
        self.search = _Search(self)
        self.handle: Any = None
        self.beginning = False

    def start(self) -> None:
        """From now on, or once the program imports PyTorch."""
        watching.before_watch = self.stand_aside
        if "torch" in sys.modules:
            self.install()
        else:
            sys.meta_path.insert(0, _AfterImport("torch", self.install))

    def install(self) -> None:
        import torch
        try:
            watching._need_torch()
        except ImportError as problem:
            self.give_up(problem)
            return
        from torch.optim.optimizer import register_optimizer_step_post_hook
        self.looked = weakref.WeakKeyDictionary()
        self.unknown = weakref.WeakKeyDictionary()
        self.handle = register_optimizer_step_post_hook(self.see_step)
        self.look_for_models(torch.nn.Module)

    def look_for_models(self, module: Any) -> None:
        if module._compiled_call_impl is None:
            module._compiled_call_impl = self.search

    def remove(self) -> None:
        """Takes the search off; a watch stays."""
        self.take_off()
        if self.handle is not None and not self.failed:  # else it may be the one that is called
            self.handle.remove()
            self.handle = None
        if watching.before_watch == self.stand_aside:
            watching.before_watch = None

    def take_off(self) -> None:
        if "torch" in sys.modules:
            from torch.nn import Module
            if Module.__dict__.get("_compiled_call_impl") is self.search:
                Module._compiled_call_impl = None

    def stand_aside(self) -> None:
        """The program calls sonde.watch."""
        if self.beginning:
            return
        self.aside = True
        self.remove()
        if self.watch is not None and not self.watch.closed:
            self.watch.on_finding = None  # no verdict
            self.watch.close()

    def give_up(self, problem: BaseException) -> None:
        self.failed = True
        self.remove()
        print(f"sonde: not watched: {problem}", file=sys.stderr)

    # --- what the program does ------------------------------------------------------------

    def see_call(self, module: Any) -> None:
        """Before a call of a module."""
        import torch
        if not module.training or not torch.is_grad_enabled() or self.scans >= _SCANS or \
                os.getpid() != self.process or self.looked.get(module, 0) == _LOOKS:
            return
        self.looked[module] = self.looked.get(module, 0) + 1
        if not any(value.requires_grad for value in module.parameters()):
            return
        self.scans += 1
        optimizers = _optimizers()
        held = {id(p) for one in optimizers for p in _parameters(one)}
        if any(id(value) in held for value in module.parameters()):
            self.begin(module, optimizers)

    def see_step(self, optimizer: Any, *rest: Any) -> None:
        """After the step of any optimizer. A watch has hooks before it, which may come and go."""
        if self.failed or os.getpid() != self.process:
            return
        try:
            if not self.is_watched(optimizer):
                self.see_unknown(optimizer)
        except Exception as problem:
            self.give_up(problem)

    def is_watched(self, optimizer: Any) -> bool:
        hooks = self.watch._hooks if self.watch is not None else None
        return hooks is not None and any(id(p) in hooks.names for p in _parameters(optimizer))

    def see_unknown(self, optimizer: Any) -> None:
        steps = self.unknown[optimizer] = self.unknown.get(optimizer, 0) + 1
        self.looked.clear()
        self.scans = 0
        hooks = self.watch._hooks if self.watch is not None else None
        if self.watch is not None and (hooks is None or not hooks.names or steps == _PATIENCE):
            self.end(self.watch)
        elif self.watch is None and steps > 1:
            self.begin(None, [optimizer])

    def end(self, watch: watching.Watch) -> None:
        """The model of the watch is trained no longer; the search goes on."""
        from torch.nn import Module
        watch.close()
        self.watch = None
        self.unknown.clear()
        self.look_for_models(Module)

    def begin(self, module: Any, optimizers: list[Any]) -> None:
        self.beginning = True
        try:
            models, optimizers = _find_models(module, optimizers)
            if not models:
                return
            self.take_off()
            self.watch = watching.watch(models if len(models) > 1 else next(iter(models.values())),
                                        optimizers, **self.options)
            self.models = list(models)
            self.count += 1
            self.unknown.clear()
        except Exception as problem:
            self.give_up(problem)
        finally:
            self.beginning = False


class _Search:
    """In the place of torch.nn.Module._compiled_call_impl: sees which modules are called."""

    def __init__(self, automatic: Automatic):
        self.automatic = automatic

    def __get__(self, module: Any, owner: type) -> Any:
        import torch
        if module is None or torch.compiler.is_compiling():
            return None
        try:
            self.automatic.see_call(module)
        except Exception as problem:  # a module that cannot be hashed
            self.automatic.give_up(problem)
        found = torch.nn.Module.__dict__.get("_compiled_call_impl")
        return None if found is self or found is None else found.__get__(module, owner)


class _AfterImport:
    """A finder that calls a function once a module has been imported."""

    def __init__(self, name: str, function: Callable[[], None]):
        self.name, self.function = name, function

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.name:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self.function)
                return spec
        return None


class _Loader(Loader):
    """Loads as another one does, and gives its place back to it."""

    def __init__(self, plain: Any, function: Callable[[], None]):
        self.plain, self.function = plain, function

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def create_module(self, spec: Any) -> Any:
        return self.plain.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self.plain
        self.plain.exec_module(module)
        self.function()


# --- what the program has -------------------------------------------------------------------


def _alive(kind: type) -> list[Any]:
    """The objects of a class. Asks none of them: a lazy one would be made."""
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]


def _parameters(optimizer: Any) -> Iterable[Any]:
    return (p for group in optimizer.param_groups for p in group["params"])


def _optimizers() -> list[Any]:
    """The optimizers that can step, without those that step others that they hold."""
    from torch.optim import Optimizer
    found = [one for one in _alive(Optimizer)
             if "_optimizer_step_pre_hooks" in vars(one) and "param_groups" in vars(one)]
    known = set(map(id, found))
    return [one for one in found
            if not any(id(part) in known and part is not one for part in vars(one).values())]


def _find_models(module: Any, optimizers: list[Any]) -> tuple[dict[str, Any], list[Any]]:
    """{name: model}, of which the first is the module, if there is one; and the optimizers that
    hold parameters of these."""
    from torch.nn import Module
    modules = _alive(Module)
    parents: dict[int, Any] = {}
    for one in modules:
        for child in (vars(one).get("_modules") or {}).values():
            if child is not None:
                parents.setdefault(id(child), one)
    found = [module] if module is not None else []
    inside = {id(part) for one in found for part in one.modules()}
    above = {id(one) for one in _climb(module, parents)} if found else set()
    held = {id(p) for one in optimizers for p in _parameters(one)}
    known = {id(p) for one in found for p in one.parameters()}
    for one in modules:
        own = {id(p) for p in (vars(one).get("_parameters") or {}).values() if p is not None}
        if id(one) in inside or not (own & held) - known:
            continue
        for parent in _climb(one, parents):
            if id(parent) in above or id(parent) in inside:
                break
            one = parent
        found.append(one)
        inside |= {id(part) for part in one.modules()}
        known |= {id(p) for p in one.parameters()}
    used = [one for one in optimizers if any(id(p) in known for p in _parameters(one))]
    return _named(found, parents), used


def _climb(module: Any, parents: dict[int, Any]) -> Iterable[Any]:
    """The modules that hold a module, from the inside to the outside."""
    seen = {id(module)}
    while id(module) in parents:
        module = parents[id(module)]
        if id(module) in seen:
            return
        seen.add(id(module))
        yield module


def _named(models: list[Any], parents: dict[int, Any]) -> dict[str, Any]:
    """Names as the program has them: of a variable, or of the place in a module; else a class's."""
    names: dict[str, Any] = {}
    variables = {id(value): name for name, value in list(vars(sys.modules["__main__"]).items())
                 if any(value is one for one in models)}
    for model in models:
        parts = [variables.get(id(model), "")]
        if not parts[0]:
            inner, parts = model, []
            for outer in _climb(model, parents):
                parts += [key for key, value in outer._modules.items() if value is inner][:1]
                inner = outer
        name = whole = ".".join(reversed(parts)) or type(model).__name__
        number = 2
        while whole in names:
            whole, number = f"{name}{number}", number + 1
        names[whole] = model
    return names
