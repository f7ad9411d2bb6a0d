"""Hook: saves the tensors of a PyTorch program at the steps that its collections name.

A step begins with the forward pass of a registered module and lasts until the next one. At its
beginning the parameters are seen, as they are before the step's update; inputs and outputs of
modules and losses during forward; gradients during backward, as they arrive at a parameter.

The hook only gives tensors their names and shows them; sonde._sonde.Watch decides what is due,
from a configuration that is made of the collections before the first step.
"""

from __future__ import annotations

import json
import logging
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sonde
import torch
from sonde import _sonde, watching

from .. import collection as collections
from ..collection import Collection
from ..config import ReductionConfig, SaveConfig
from ..exceptions import (InvalidCollectionConfiguration, SMDebugError, SMDebugRuntimeError,
                          SMDebugTypeError, SMDebugValueError)
from ..modes import ModeKeys, mode_of

_log = logging.getLogger("smdebug")
_MODES = {ModeKeys.TRAIN: 0, ModeKeys.EVAL: 1, ModeKeys.PREDICT: 2, ModeKeys.GLOBAL: 3}
_PASS_NONE, _PASS_FORWARD, _PASS_BACKWARD = 0, 1, 2
_current: "Hook | None" = None


def _selector(pattern: str) -> str:
    """A regular expression as a selector: a comma would separate two of them."""
    return "re:" + pattern.replace(",", "\\,")


def _exactly(name: str) -> str:
    """The expression that matches one name."""
    return "^" + "".join("\\" + c if c in r".^$*+?{}[]()|\\" else c for c in name) + "$"


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of nested tuples and lists, depth first; a dict's in its order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors_in(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors_in(part)


def _ignore(finding: Any) -> None:
    """There are no rules, and so no findings."""


class _Callback:
    """A method of a hook that PyTorch calls. A copy of the module does not save."""

    def __init__(self, hook: "Hook", method: str, *first: Any):
        self.hook, self.method, self.first = weakref.ref(hook), method, first

    def __call__(self, *arguments: Any) -> None:
        hook = self.hook() if self.hook is not None else None
        if hook is not None and hook.watching:
            hook._call(self.method, *self.first, *arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_nothing, ())

    def __deepcopy__(self, memo: Any) -> Any:
        return _nothing()


def _nothing() -> _Callback:
    callback = _Callback.__new__(_Callback)
    callback.hook = None
    return callback


class Hook:
    """Saves tensors of the modules that are registered with it in a run at out_dir.

    out_dir is a new folder or s3://bucket/prefix. Saved are losses and the collections that
    include_collections, include_regex (collection "default") and save_all (collection "all")
    name, at the steps of save_config and with reduction_config, unless a collection has its
    own. include_workers "all": every process writes; "one": the first alone.

    Errors in the configuration are raised before the first step. Later ones are logged once
    and counted in `faults`: they do not stop the training."""

    default_collections: tuple[str, ...] = ("losses",)

    def __init__(self, out_dir: str | os.PathLike[str] | None = None,
                 export_tensorboard: bool = False, tensorboard_dir: str | None = None,
                 dry_run: bool = False, reduction_config: ReductionConfig | None = None,
                 save_config: Any = None, include_regex: str | Iterable[str] | None = None,
                 include_collections: Iterable[str] | None = None, save_all: bool = False,
                 include_workers: str = "one"):
        global _current
        if out_dir is None and not dry_run:
            raise SMDebugRuntimeError("out_dir: missing (expected a new folder or "
                                      "s3://bucket/prefix)")
        self.out_dir = os.path.expanduser(os.fspath(out_dir)) if out_dir is not None else None
        self.dry_run = dry_run
        self.collection_manager = collections.take_pending()
        self.include_collections = [*self.default_collections,
                                    *collections.check_names(include_collections or ())]
        if include_regex:
            self.collection_manager.get("default").include(include_regex)
            self.include_collections.append("default")
        if save_all:
            self.include_collections.append("all")
        if save_all or "all" in self.include_collections:
            self.collection_manager.get("all").include(".*")
        self.save_config = SaveConfig().merged(SaveConfig()) if save_config is None else \
            SaveConfig.parse(save_config).merged(SaveConfig())
        if reduction_config is not None and not isinstance(reduction_config, ReductionConfig):
            raise SMDebugTypeError(f"reduction_config: {reduction_config!r} (expected a "
                                   "ReductionConfig)")
        self.reduction_config = reduction_config
        self.include_workers = include_workers
        if export_tensorboard or tensorboard_dir:
            _log.warning("export_tensorboard has no effect: after the run, 'sonde export %s "
                         "BOARD --to tensorboard'", self.out_dir)
        self.mode = ModeKeys.GLOBAL
        self.mode_steps: dict[ModeKeys, int] = {}
        self.step = -1
        self.closed = False
        self.faults = 0
        self._core: Any = None
        self._process = os.getpid()
        self._handles: list[Any] = []
        self._names: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()
        self._seen: dict[str, int] = {}  # values of a module in this step, by <module>_input
        self._slots: dict[str, int | None] = {}  # None: it cannot be saved
        self._roots: list[tuple[str, "weakref.ref[torch.nn.Module]"]] = []
        self._parameters: list[tuple[str, dict[str, Any], str]] = []
        self._waiting: dict[str, Any] = {}  # of save_tensor, until the next step
        self._scalars: list[tuple[str, float]] = []
        self._check_place()
        _current = self

    def _check_place(self) -> None:
        folder = self.out_dir
        if folder is not None and "://" not in folder and os.path.isdir(folder) and \
                os.listdir(folder) and self._rank() == 0 and not self.dry_run:
            raise SMDebugRuntimeError(f"{folder}: the folder is not empty (expected a new one)")

    # --- configuration --------------------------------------------------------------------

    def get_collection(self, name: str, create: bool = True) -> Collection:
        return self.collection_manager.get(name, create)

    def get_collections(self) -> dict[str, Collection]:
        return self.collection_manager.get_collections()

    def add_collection(self, collection: "Collection | str") -> None:
        self.collection_manager.add(collection)

    def set_mode(self, mode: ModeKeys) -> None:
        """The mode of the steps that follow."""
        self.mode = mode_of(mode)

    @classmethod
    def create_from_json_file(cls, json_file_path: str | None = None) -> "Hook":
        """A hook from smdebug's JSON, at the path or where SMDEBUG_CONFIG_FILE_PATH says."""
        from .json_config import hook_arguments
        arguments, made = hook_arguments(json_file_path)
        hook = cls(**arguments)
        for collection in made:
            known = hook.collection_manager.collections.get(collection.name)
            collection.include(known.include_regex if known is not None else ())
            hook.add_collection(collection)
        return hook

    def _saved(self) -> list[Collection]:
        """The collections that are saved. Raises if one of them is empty."""
        names = dict.fromkeys(name for name in self.include_collections if name != "default")
        if "all" in names:
            names = dict.fromkeys([*names, *(name for name, one in
                                             self.get_collections().items() if not one.is_empty)])
        chosen = [self.get_collection(name) for name in [*names, "default"]]
        for one in chosen:
            if one.is_empty and one.name != "default":
                raise InvalidCollectionConfiguration(one.name)
        return chosen

    def _module_selectors(self, one: Collection) -> list[str]:
        found = []
        for module, inputs, outputs in one.modules:
            name = self._names.get(module)
            if name is None:
                raise SMDebugValueError(f"collection '{one.name}': a {type(module).__name__} of "
                                        "add_module_tensors is not part of a registered module")
            for wanted, kind in ((inputs, "input"), (outputs, "output")):
                if wanted:
                    found.append(_selector(_exactly(name)[:-1] + f"_{kind}_[0-9]+$"))
        return found

    def configuration(self) -> dict[str, Any]:
        """The hook's configuration as Sonde reads it (docs/recording.md)."""
        whole: dict[str, Any] = {"vitals": False, "dry_run": self.dry_run, "collections": {
            name: {"save": False} for name in ("weights", "biases", "gradients", "losses")}}
        for one in self._saved():
            key: dict[str, Any] = {} if one.name == "all" else {"include": [
                *map(_selector, one.include_regex), *map(_selector, map(_exactly, sorted(
                    one.tensor_names))), *self._module_selectors(one)]}
            if one.name == "default":
                key["include"].append("@other")  # what save_tensor gives
            schedule = self.save_config if one.save_config is None else \
                one.save_config.merged(self.save_config)
            reductions = one.reduction_config or self.reduction_config
            key.update(schedule.to_sonde())
            if reductions is not None and one.name not in collections.SCALARS:
                key.update(reductions.to_sonde())
            whole["collections"][one.name] = key
        return whole

    # --- registering ----------------------------------------------------------------------

    def register_module(self, module: torch.nn.Module) -> None:
        """Names the module's parameters, inputs and outputs, and those of all modules inside.
        Its forward pass begins a step."""
        if not isinstance(module, torch.nn.Module):
            raise SMDebugError(f"register_module: {type(module).__name__} (expected a "
                               "torch.nn.Module)")
        root = type(module).__name__
        if module in self._names and any(ref() is module for _, ref in self._roots):
            raise SMDebugError(f"register_module: this {root} is registered already")
        for path, inner in module.named_modules():
            self._names[inner] = path or root
            self._handles.append(inner.register_forward_hook(_Callback(self, "_after_module")))
        self._handles.append(module.register_forward_pre_hook(_Callback(self, "_before_root"),
                                                              prepend=True))
        self._roots.append((root, weakref.ref(module)))
        for path, inner in module.named_modules():
            for key, value in inner._parameters.items():
                if value is not None:
                    name = f"{root}_{path}.{key}" if path else f"{root}_{key}"
                    self._add_parameter(name, inner._parameters, key, value)

    register_hook = register_module

    def _add_parameter(self, name: str, owner: dict[str, Any], key: str,
                       value: torch.nn.Parameter) -> None:
        self._parameters.append((name, owner, key))
        if value.requires_grad:
            self._handles.append(value.register_hook(_Callback(self, "_on_gradient", name)))

    def register_loss(self, loss_module: torch.nn.Module) -> None:
        """Names the inputs and the output of a loss module by its class."""
        if not isinstance(loss_module, torch.nn.modules.loss._Loss):
            raise SMDebugError(f"register_loss: {type(loss_module).__name__} (expected a loss of "
                               "torch.nn)")
        self._names[loss_module] = type(loss_module).__name__
        self._handles.append(loss_module.register_forward_hook(_Callback(self,
                                                                         "_after_module")))

    # --- what the program gives -----------------------------------------------------------

    def record_tensor_value(self, tensor_name: str, tensor_value: torch.Tensor) -> None:
        """A value without a module, a loss for instance: <name>_output_<i>."""
        if self._core is None or self.step < 0:
            raise InvalidCollectionConfiguration("default")
        if self.watching:
            self._call("_show_next", f"{tensor_name}_output", tensor_value, True)

    def save_tensor(self, tensor_name: str, tensor_value: Any,
                    collections_to_write: str | Iterable[str] = "default") -> None:
        """A value under a name of one's own, at the step that is on. Before the first step it
        is kept for that step, and the tensor belongs to the collections named; a tensor that is
        first given later belongs to collection "default"."""
        if self._core is None:
            for name in [collections_to_write] if isinstance(collections_to_write, str) else \
                    collections_to_write:
                self.get_collection(name).add_tensor_name(tensor_name)
                self.include_collections.append(name)
            self._waiting[tensor_name] = tensor_value
        elif self.watching:
            self._call("_show", tensor_name, tensor_value, "other", _PASS_NONE)

    def save_scalar(self, name: str, value: Any, sm_metric: bool = False,
                    timestamp: float | None = None) -> None:
        """A number, saved as scalar/<name>, at this step or the first one."""
        count = value.numel() if isinstance(value, torch.Tensor) else getattr(value, "size", 1)
        if count != 1:
            raise SMDebugTypeError(f"save_scalar: '{name}' has {count} elements (expected one)")
        number = float(value)
        if self._core is None:
            self._scalars.append((name, number))
        elif self.watching:
            self._core.scalar(name, number)

    # --- steps ----------------------------------------------------------------------------

    @property
    def watching(self) -> bool:
        return not self.closed and os.getpid() == self._process

    def _call(self, method: str, *arguments: Any) -> None:
        try:
            getattr(self, method)(*arguments)
        except Exception as problem:
            if self.step < 0:
                raise
            self._fault(problem)

    def _fault(self, problem: BaseException) -> None:
        self.faults += 1
        if self.faults == 1:
            _log.error("not saved: %s: %s", type(problem).__name__, problem)

    @staticmethod
    def _distributed() -> bool:
        return torch.distributed.is_available() and torch.distributed.is_initialized()

    def _rank(self) -> int:
        return torch.distributed.get_rank() if self._distributed() else \
            int(os.environ.get("RANK", 0))

    def _open(self) -> None:
        """Before the first step: the configuration is made, and the run created."""
        rank = self._rank()
        whole = self.configuration()
        every = self.include_workers == "all"
        world = torch.distributed.get_world_size() if self._distributed() else 1
        path = self.out_dir if every or rank == 0 else None
        if self.dry_run:
            path = self.out_dir or "dry-run"
        try:
            self._core = _sonde.Watch(
                path, json.dumps(whole) if path is not None else None, None, (),
                rank if every else 0, world if every else 1, None, (1,) * len(watching._ROLES),
                watching._unwrap, _ignore, self._fault)
        except sonde.SondeError as problem:
            raise SMDebugRuntimeError(str(problem)) from problem
        watching._open.append(self)
        watching._prepare_exit()
        for name, owner, key in self._parameters:
            value = owner[key]
            role = "bias" if key.startswith("bias") else "weight"
            self._slots[name] = self._declare(name, role, value, _PASS_NONE)
            if value.requires_grad:
                self._slots["gradient/" + name] = self._declare(
                    "gradient/" + name, "gradient", value, _PASS_BACKWARD)

    def _before_root(self, module: torch.nn.Module, inputs: Any) -> None:
        if self._core is None:
            self._open()
        self._core.begin(_MODES[self.mode])
        self.mode_steps[self.mode] = self._core.where()[2]
        self.step += 1
        self._seen.clear()
        for name, owner, key in self._parameters:
            value = owner.get(key)
            if value is not None:
                self._show(name, value, "weight", _PASS_NONE)
        for name, value in self._waiting.items():
            self._show(name, value, "other", _PASS_NONE)
        self._waiting.clear()
        for name, number in self._scalars:
            self._core.scalar(name, number)
        self._scalars.clear()

    def _after_module(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        name = self._names.get(module)
        if name is None or self._core is None:
            return
        loss = isinstance(module, torch.nn.modules.loss._Loss)
        for value in _tensors_in(inputs):
            self._show_next(f"{name}_input", value, False)
        for value in _tensors_in(output):
            self._show_next(f"{name}_output", value, loss)

    def _on_gradient(self, name: str, gradient: torch.Tensor) -> None:
        if self._core is not None:
            self._show("gradient/" + name, gradient, "gradient", _PASS_BACKWARD)

    def _show_next(self, what: str, value: torch.Tensor, loss: bool) -> None:
        """The next value of a module's inputs or outputs in this step."""
        number = self._seen.get(what, 0)
        self._seen[what] = number + 1
        role = "loss" if loss else "activation" if value.is_floating_point() else "input"
        self._show(f"{what}_{number}", value, role, _PASS_FORWARD)

    # --- slots ----------------------------------------------------------------------------

    def _declare(self, name: str, role: str, value: Any, when: int) -> int:
        if role == "loss" and value.numel() != 1:
            role = "activation"  # a loss that is not reduced
        readable = watching._unwrap(value) if watching._needs_unwrapping(value) else value
        return self._core.add(name, watching._ROLES[role], readable, "", "", when)

    def _show(self, name: str, value: Any, role: str, when: int) -> None:
        if name not in self._slots:
            self._slots[name] = None  # unless it is declared
            if not hasattr(value, "shape"):
                value = torch.as_tensor(value)
            self._slots[name] = self._declare(name, role, value, when)
        slot = self._slots[name]
        if slot is not None:
            self._core.see(slot, value if hasattr(value, "shape") else torch.as_tensor(value))

    # --- the end --------------------------------------------------------------------------

    def close(self, reason: str = "finished", text: str | None = None) -> None:
        """Ends the run and takes the hook off its modules. Called at exit too."""
        global _current
        if self.closed:
            return
        self.closed = True
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self in watching._open:
            watching._open.remove(self)
        if self._core is not None and os.getpid() == self._process:
            self._core.close(watching.REASONS[reason], text)
        if _current is self:
            _current = None

    def __getstate__(self) -> dict[str, Any]:
        return {}  # a model is pickled with its callbacks

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.closed, self._process, self._handles = True, -1, []

    def __repr__(self) -> str:
        return (f"{type(self).__name__}(out_dir={self.out_dir!r}, "
                f"collections={self.include_collections!r}, step={self.step})")


class TornasoleHook(Hook):
    """The hook under its first name: weights, biases and gradients are saved too, and the flag
    for all tensors is spelled saveall."""

    default_collections = ("weights", "biases", "gradients", "losses")

    def __init__(self, out_dir: str | os.PathLike[str] | None = None, *, saveall: bool = False,
                 outdir: str | os.PathLike[str] | None = None, **options: Any):
        super().__init__(out_dir if out_dir is not None else outdir,
                         save_all=options.pop("save_all", saveall), **options)


# --- one hook for the program ----------------------------------------------------------------

def get_hook(json_config_path: str | None = None, create_if_not_exists: bool = False
             ) -> Hook | None:
    """The hook that was made last; or one from smdebug's JSON, if there is that file."""
    from .json_config import config_path
    if _current is None and create_if_not_exists and \
            os.environ.get("USE_SMDEBUG", "1").lower() not in ("0", "false"):
        if os.path.exists(config_path(json_config_path)):
            return Hook.create_from_json_file(json_config_path)
    return _current


def set_hook(custom_hook: Hook) -> None:
    global _current
    if not isinstance(custom_hook, Hook):
        raise SMDebugTypeError(f"set_hook: {custom_hook!r} (expected a Hook)")
    _current = custom_hook


def del_hook() -> None:
    """Forgets the hook, which is closed."""
    global _current
    if _current is not None:
        _current.close()
    _current = None


def _manager() -> collections.CollectionManager:
    return _current.collection_manager if _current is not None and _current._core is None \
        else collections.pending()


def get_collection(name: str) -> Collection:
    """A collection of the hook, or of the next hook if there is none yet."""
    return _manager().get(name)


def get_collections() -> dict[str, Collection]:
    return _manager().get_collections()


def add_to_collection(collection_name: str, pattern: str | Iterable[str]) -> None:
    get_collection(collection_name).include(pattern)
