"""sonde.watch: a program that trains with PyTorch, watched.

A step of training begins with the forward pass of a watched model that is in training mode
with gradients enabled, and ends when the optimizer has stepped; several backward passes
before that are micro-batches of one step. A forward pass of a model in evaluation mode is a
step of mode eval. This file has what a program sets and asks for; torch_hooks.py knows where
PyTorch has its tensors; everything that happens at a step is C.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import multiprocessing.util
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _sonde
from .records import ROLES, Finding, FindingError, Vitals
from .rules import Rule, split
from .run_folder import Folder, take

if TYPE_CHECKING:
    import torch

MODES = {"train": 0, "eval": 1, "predict": 2, "global": 3}
REASONS = {"finished": 0, "interrupted": 1, "failed": 2, "rule": 3}
# Kinds of tensors, as programs name them, and their roles.
KINDS = {"losses": ("loss",), "gradients": ("gradient",), "weights": ("weight", "bias"),
         "updates": ("update",), "buffers": ("buffer",), "optimizer": ("optimizer",),
         "activations": ("input", "output", "activation", "activation_gradient")}
# Steps between observations by default; 0: as the rules need.
EVERY = {"losses": 1, "gradients": 1, "weights": 0, "updates": 10, "buffers": 10,
         "optimizer": 0, "activations": 0}
_LINES_PER_RULE = 3  # findings that are printed of one rule
_NAME_MOST = 4096  # bytes of a name that is recorded

_open: list["Watch"] = []
before_watch: Callable[[], None] | None = None  # called by watch(), in a program that is launched


def _intervals(every: int | Mapping[str, int] | None) -> dict[str, int]:
    """Steps between observations of each kind; 0: as the rules need, -1: never."""
    if every is None:
        return dict(EVERY)
    if isinstance(every, int):
        every = dict.fromkeys(EVERY, every)
    unknown = sorted(set(every) - set(EVERY))
    if unknown:
        raise _sonde.BadValueError(f"every: unknown kind '{unknown[0]}' (expected "
                                   f"{', '.join(EVERY)})")
    wrong = [kind for kind, steps in every.items() if not isinstance(steps, int) or steps < 0]
    if wrong:
        raise _sonde.BadValueError(f"every: '{wrong[0]}' is {every[wrong[0]]!r} (expected a "
                                   "number of steps, 0 for never)")
    return {**EVERY, **{kind: steps or -1 for kind, steps in every.items()}}


def _by_role(every: dict[str, int]) -> tuple[int, ...]:
    """The same in the order of roles; what a program shows itself is due at every step."""
    roles = {role: every[kind] for kind, names in KINDS.items() for role in names}
    return tuple(roles.get(role, 1) for role in _ROLES)


def _configuration(save: Any, every: dict[str, int]) -> str | None:
    """A hook's configuration as JSON or YAML text: what raw values are saved, and when.
    None: what the rules need is recorded, at the steps that `every` says."""
    if save is None:
        return None
    if isinstance(save, (str, os.PathLike)):
        with open(save, encoding="utf-8") as file:
            return file.read()
    always = min([every[kind] for kind in ("weights", "gradients", "updates") if every[kind] > 0],
                 default=10)
    whole: dict[str, Any] = {"vitals_every": always, "collections": {}}
    for kind, names in (("activations", ("activations", "activation_gradients", "inputs",
                                         "outputs")), ("optimizer", ("optimizer_state",)),
                        ("buffers", ("buffers",))):
        for name in names:
            whole["collections"][name] = {"save": False} if every[kind] < 0 else \
                {"reductions": ["mean"], "every": every[kind] or 10}
    if isinstance(save, int) and not isinstance(save, bool):
        whole["every"] = save
    elif isinstance(save, Mapping):
        collections = {**whole["collections"], **save.get("collections", {})}
        whole = {**whole, **save, "collections": collections}
    else:
        raise _sonde.BadValueError(f"save: {save!r} (expected a number of steps, a mapping or "
                                   "the path of a hook's configuration)")
    return json.dumps(whole)


def _worker(rank: int | None, world: int | None) -> tuple[int, int]:
    """This process's number and how many there are: given, as torchrun says, or of the group."""
    group = sys.modules.get("torch.distributed")
    in_group = group is not None and group.is_available() and group.is_initialized()
    if rank is None and "WORLD_SIZE" in os.environ:
        rank = int(os.environ.get("RANK", 0))
    if rank is None:
        rank = group.get_rank() if in_group and world is None else 0
    if world is None and "WORLD_SIZE" in os.environ:
        world = int(os.environ["WORLD_SIZE"])
    if world is None:
        world = group.get_world_size() if in_group else 1
    if not 0 <= rank < world:
        raise _sonde.BadValueError(f"rank: {rank} (expected 0 to {world - 1})")
    return rank, world


class Watch:
    """A program that is being watched; sonde.watch makes one.

    Closed at exit, after an exception too; a context manager closes it sooner."""

    def __init__(self, *, run: str | os.PathLike[str] | None, every: Any, save: Any,
                 rules: str | Rule | Sequence[str | Rule] | None, on_finding: Any, resume: str | None,
                 overwrite: bool, rank: int | None, world: int | None):
        rank, world = _worker(rank, world)
        if not (on_finding in ("log", "raise", None) or callable(on_finding)):
            raise _sonde.BadValueError(f"on_finding: {on_finding!r} (expected 'log', 'raise', "
                                       "a function or None)")
        self.path = os.fspath(run) if run is not None else None
        self._folder = Folder("")
        self._rank, self._world = rank, world
        self._word = "not judged"
        self._worker = f"worker {rank}: " if world > 1 else ""  # in what is printed
        self.every = _intervals(every)
        self.on_finding = on_finding
        self.closed = False
        self.ends_steps = False  # the program does, by step_end
        self._hooks: Any = None
        self._modes = [-1]  # of steps, as the program says; -1: as the model says
        self._printed: dict[str, int] = {}
        self._kept: list[Finding] = []  # after close
        self._accounts: list[tuple[str, bool, str]] = []  # the same
        config = _configuration(save, self.every) if run is not None else None
        names, self._judges = split(rules, live=True)
        try:
            if self.path is not None:
                self._folder = take(self.path, overwrite=overwrite, resume=resume, rank=rank,
                                    world=world)
                self.path = self._folder.path
            self._core = _sonde.Watch(self.path, config, names, self._judges, rank, world, resume,
                                      _by_role(self.every), self._read, self._found, self._fault)
        except BaseException:
            self._folder.release()
            self._release_rules()
            raise
        self._process = os.getpid()
        self._judging = names is not None or bool(self._judges)
        self._raised: BaseException | None = None  # by the program's own on_finding
        self._refused = False  # the first step failed to begin
        self.faults = 0
        self._device: Any = None  # device.Device, once tensors are on another device
        self._slots: dict[str, int] = {}
        self._losses: dict[str, int] = {}
        self._extra: dict[str, int] = {}
        self._scalars: set[str] = set()  # names that were checked
        _open.append(self)
        _prepare_exit()

    # --- findings -------------------------------------------------------------------------

    def _found(self, row: tuple[Any, ...]) -> None:
        finding = Finding(*row)
        if callable(self.on_finding):
            try:
                self.on_finding(finding)
            except BaseException as problem:
                self._raised = problem
                raise
        elif self.on_finding is not None:
            self._print(finding)
            if self.on_finding == "raise" and finding.severity == "error" and not self.closed:
                self._raised = FindingError(finding)
                raise self._raised

    def _fault(self, problem: BaseException) -> None:
        """Something in observing failed: the program goes on, the fault is counted. Errors
        before the first step, and what on_finding raises, are the program's."""
        started = self._core.state()[1]
        self._refused = self._refused or not started
        if problem is self._raised or not started or not isinstance(problem, Exception):
            raise problem
        self.faults += 1
        if self.faults == 1:
            _say(f"not observed: {type(problem).__name__}: {problem}")

    def _print(self, finding: Finding) -> None:
        """Causes, the first few of each rule; the verdict counts what follows from them."""
        count = self._printed.get(finding.rule, 0) + (not finding.because_of)
        self._printed[finding.rule] = count
        if not finding.because_of and count <= _LINES_PER_RULE:
            _say(f"{self._worker}{finding._when()}: {finding.severity}: {finding.rule}"
                 f"{finding._where(': ')}: {finding.message}{finding._history()}")

    @property
    def findings(self) -> list[Finding]:
        """All findings so far, in the order found."""
        return self._kept if self.closed else [Finding(*row) for row in self._core.findings()]

    # --- for the program ------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The global step that is on, or the last one; -1 before the first."""
        return -1 if self.closed or not self._core.state()[1] else self._core.where()[1]

    def loss(self, value: Any, name: str = "loss", *, falls: bool = True) -> Any:
        """Shows a loss under a name and returns it. Not needed for tensors on which
        backward() is called: these are seen there, if they were not shown before.

        falls: False declares, at the first call, that the loss need not fall, as those of
        two players, of critics and of rewards: rules do not conclude from it that training
        goes badly, unless it is not finite."""
        self._need_open("loss")
        if name not in self._losses:
            _check_name("loss", name)
        if not self._may_show():
            return value
        tensor = value if hasattr(value, "shape") else _array(float(value))
        if name not in self._losses:
            self._losses[name] = self._declare(name, "loss", tensor, "", "", 1,
                                               "" if falls else "need not fall")
        self._core.see(self._losses[name], tensor)
        return value

    def _need_open(self, call: str) -> None:
        """StateError: the program calls a watch that is closed."""
        if self.closed:
            raise _sonde.StateError(f"watch.{call}: the watch is closed (expected a call before "
                                    "close)")

    def _may_show(self) -> bool:
        """Whether anything is observed now; a step is on then."""
        watching, _, mode = self._core.state()
        if watching and mode < 0:
            self._core.begin(max(self._modes[-1], 0))
        return watching

    def scalar(self, name: str, value: float) -> None:
        """Records a number as the tensor scalar/<name>."""
        self._need_open("scalar")
        if name not in self._scalars:
            _check_name("scalar", name, "scalar/")
            self._scalars.add(name)
        if self._core.state()[0]:
            self._core.scalar(name, float(value))

    def record(self, name: str, tensor: Any, role: str = "other") -> None:
        """Shows a tensor or array of the program's own at the step that is on, under a name
        and with a role ("weight", "gradient", "activation", "input", "other" ...)."""
        self._need_open("record")
        if name not in self._extra:
            _check_name("record", name)
        if not self._may_show():
            return
        if name not in self._extra:
            self._extra[name] = self._declare(name, role, tensor, "", "", 0)
        self._core.see(self._extra[name], tensor)

    @contextlib.contextmanager
    def mode(self, mode: str) -> Iterator[None]:
        """Steps inside are of this mode ("train", "eval" or "predict"), whatever the model
        says."""
        if mode not in MODES:
            raise _sonde.BadValueError(f"mode: '{mode}' (expected {', '.join(MODES)})")
        self._modes.append(MODES[mode])
        self._core.set_mode(MODES[mode])
        try:
            yield
        finally:
            self._modes.pop()
            self._core.set_mode(self._modes[-1])

    def step_end(self) -> None:
        """Ends the step: for loops without an optimizer of PyTorch's."""
        self._need_open("step_end")
        self.ends_steps = True
        self._core.end()

    def forward_begins(self, model: "torch.nn.Module") -> None:
        """The forward pass of a watched model begins, in a program that does not call the
        model itself (a training_step, say)."""
        if not self.closed:
            self._core.hook("before_root")(model, ())

    def forward_ends(self) -> None:
        """The forward pass that forward_begins announced is over."""
        if not self.closed:
            self._core.hook("after_root")(None, (), None)

    def vitals(self, name: str) -> Vitals | None:
        """The vital signs of a tensor at the last step, from memory; None: not due."""
        row = None if self.closed else self._core.vitals(name)
        if row is None and self._device is not None and not self.closed:
            row = self._device.vitals(self._slots.get(name))
        return None if row is None else Vitals(*row)

    def pause(self) -> None:
        """Observes nothing until resume."""
        self._core.end()
        self._core.pause(True)

    def resume(self) -> None:
        """Ends a pause."""
        self._core.pause(False)

    def remove(self) -> None:
        """Takes every hook off the model and the optimizers; the run stays open."""
        if self._hooks is None:
            return
        try:
            self._end_evaluation()
        finally:
            self._hooks.remove()
            self._hooks = None

    def close(self, reason: str = "finished", text: str | None = None) -> None:
        """Removes the hooks, lets the rules finish, closes the run and prints the verdict.

        StorageError: records were lost; the message says how many and why."""
        if self.closed:
            return
        self._core.verdict()  # raises in a call from a rule
        if self._device is not None and os.getpid() == self._process:
            self._arrive()
        self.closed = True
        try:
            self.remove()
        finally:
            self._shut(reason, text)

    def _shut(self, reason: str, text: str | None) -> None:
        _open.remove(self)
        if os.getpid() != self._process:
            return
        try:
            self._core.close(REASONS[reason], text)
        finally:
            self._folder.release()
            self._release_rules()
            self._kept = [Finding(*row) for row in self._core.findings()]
            self._accounts = self._core.accounts()
            self._print_verdict(text if reason == "failed" else None)

    def _end_evaluation(self) -> None:
        """Nothing else ends the last one, nor a step to which no optimizer ever came."""
        mode = self._core.state()[2]
        lacks = mode == 0 and self._hooks is not None and self._hooks.programs.lacks_step(False)
        if (mode > 0 or lacks) and os.getpid() == self._process:
            self._core.end()

    def _use_device(self) -> None:
        """From now on values are computed where they are, and arrive later."""
        from .device import Device
        self._device = Device(self._core)
        self._core.set_device(self._device)

    def _arrive(self) -> None:
        """Waits for all steps of another device."""
        try:
            self._end_evaluation()
            if self._core.state()[2] >= 0:
                mode, *steps = self._core.where()
                self._device.end(MODES[mode], *steps)
            self._device.finish()
        except Exception as problem:
            self._fault(problem)

    def _read(self, tensor: Any) -> Any:
        """Called by C with a tensor that it cannot read."""
        if self._hooks is not None and self._device is None:
            from .device import is_elsewhere
            if is_elsewhere(tensor):
                self._use_device()
        return _unwrap(tensor)

    def _release_rules(self) -> None:
        for judge in self._judges:
            judge.release()

    @property
    def verdict(self) -> str:
        """"wrong" (an error stands), "doubtful" (a warning or a note does), "nothing found" or
        "not judged" (no rule has had the data it needs): of the findings so far."""
        return self._word if self.closed else self._core.verdict()[0]

    @property
    def checked(self) -> dict[str, str]:
        """{rule: what it lacked} so far; "" of a rule that had the data it needs."""
        rows = self._accounts if self.closed else self._core.accounts()
        return {rule: "" if judged else lacked or "no step had the data it needs"
                for rule, judged, lacked in rows}

    def _print_verdict(self, error: str | None) -> None:
        """error: that the program ended with; None: it did not."""
        if self.faults > 1:
            _say(f"{self.faults} times something could not be observed")
        self._word, text = self._core.verdict()
        if not self._judging or self.on_finding is None or \
                (self._refused and not self._core.state()[1]):
            return
        sound = self._word == "nothing found"
        if self._world > 1 and not any(f.rule == "ReplicaDivergence" for f in self._kept):
            text += "; the replicas were not compared with each other"
            text += f": sonde rules {self.path} does" if self.path else ""
        elif not sound and self._word != "not judged" and self.path:
            text += f"; sonde rules {self.path}"
        if error:
            text += f"; the program ended with an error: {error.splitlines()[0][:120]}"
        if self._rank == 0 or not sound:  # of several workers, one says that nothing was found
            _say(self._worker + text)

    # --- declaring ------------------------------------------------------------------------

    def _declare(self, name: str, role: str, tensor: Any, module: str, op: str,
                 when: int, note: str = "") -> int:
        """A new slot; when: 0 none, 1 forward, 2 backward, 3 update."""
        if role not in _ROLES:
            raise _sonde.BadValueError(f"role: '{role}' (expected {', '.join(_ROLES)})")
        readable = _like(tensor) if _needs_unwrapping(tensor) else tensor
        self._slots[name] = self._core.add(name, _ROLES[role], readable, module, op, when,
                                           note or _note(tensor))
        return self._slots[name]

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.close()
        else:
            self.close("interrupted" if issubclass(kind, KeyboardInterrupt) else "failed",
                       kind.__name__)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"step {self.step}"
        return f"Watch({self.path!r}, {state}, {len(self.findings)} findings)"

    def _repr_html_(self) -> str:
        return "".join(finding._repr_html_() for finding in self.findings) or repr(self)


_ROLES = {name: number for number, name in enumerate(ROLES)}


def _say(text: str) -> None:
    """A line on stderr that does not tear a progress bar of tqdm."""
    line = f"sonde: {text}"
    bar = getattr(sys.modules.get("tqdm"), "tqdm", None)
    if getattr(bar, "_instances", None):
        try:
            bar.write(line, file=sys.stderr)
            return
        except Exception:  # a bar of another kind
            pass
    print(line, file=sys.stderr)


def _check_name(call: str, name: Any, prefix: str = "") -> None:
    """BadValueError: a name that no run can keep."""
    expected = f"text of 1 to {_NAME_MOST} bytes on one line"
    if not isinstance(name, str):
        found = f"a name of type {type(name).__name__}"
    elif not name:
        found = "an empty name"
    elif len((prefix + name).encode("utf-8", "replace")) > _NAME_MOST:
        found = f"the name '{name[:40]}...' is too long"
    elif any(character in name for character in "\n\r\0"):
        found = f"the name {name[:40]!r} has more than one line, or NUL"
    elif any("\ud800" <= character <= "\udfff" for character in name):
        found = f"the name {name[:40]!r} is no text"
    else:
        return
    raise _sonde.BadValueError(f"watch.{call}: {found} (expected {expected})")


def _array(value: float) -> Any:
    import array
    return array.array("d", [value])


def _needs_unwrapping(tensor: Any) -> bool:
    device = getattr(tensor, "device", None)
    return device is not None and getattr(device, "type", "cpu") != "cpu" or \
        getattr(tensor, "is_sparse", False) or hasattr(tensor, "_local_tensor")


def _note(tensor: Any) -> str:
    """Where a distributed tensor lies, the same in every process; "" for others. The first
    words are SONDE_NOTE_SHARD of <sonde/catalogue.h>. Programs with tensor-parallel layers of
    their own mark a parameter of which each process has a part by an attribute, as Megatron does."""
    if getattr(tensor, "tensor_model_parallel", False) is True:
        return "local shard (tensor_model_parallel)"
    placements = getattr(tensor, "placements", None)
    if placements is None or not hasattr(tensor, "_local_tensor"):
        return ""
    whole = all(place.is_replicate() for place in placements)
    return (f"{'replica' if whole else 'local shard'} of {list(tensor.shape)}, "
            f"placed {', '.join(map(str, placements))}")


def _like(tensor: Any) -> Any:
    """A tensor in host memory of the dtype and shape of one that is elsewhere."""
    if hasattr(tensor, "_local_tensor") or getattr(tensor, "is_sparse", False) or \
            getattr(tensor, "is_meta", False) or not hasattr(tensor, "new_empty"):
        return _unwrap(tensor)
    return _unwrap(tensor.new_empty(tensor.shape, device="cpu"))


def _unwrap(tensor: Any) -> Any:
    """A tensor in host memory for one that C cannot read directly; None: there is none."""
    local = getattr(tensor, "_local_tensor", None)  # the shard of a distributed tensor
    if local is not None:
        return local.detach()
    if getattr(tensor, "is_meta", False) or hasattr(
            getattr(type(tensor), "__torch_dispatch__", None), "__func__"):
        return None  # a type that wraps other tensors says nothing of its memory
    if getattr(tensor, "is_sparse", False):
        return tensor.detach().coalesce().values()
    if hasattr(tensor, "detach"):
        return tensor.detach().cpu().resolve_conj().resolve_neg()
    return None


# --- the end of the program -----------------------------------------------------------------

_exit_prepared = 0  # the process that is


def _prepare_exit() -> None:
    """Open watches are closed at exit and when SIGTERM comes, unless the program has a handler
    of its own for that. A process of multiprocessing ends without the functions of atexit."""
    global _exit_prepared
    if _exit_prepared == os.getpid():
        return
    _exit_prepared = os.getpid()
    atexit.register(_close_all)
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, _close_all, exitpriority=0)
    if threading.current_thread() is threading.main_thread() and \
            signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def _on_sigterm(number: int, frame: object) -> None:
    _close_all("interrupted", "SIGTERM")
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _close_all(reason: str | None = None, text: str | None = None) -> None:
    failure = getattr(sys, "last_value", None) or sys.exc_info()[1]  # the uncaught exception
    failure = None if isinstance(failure, SystemExit) else failure
    if reason is None and isinstance(failure, KeyboardInterrupt):
        reason, text = "interrupted", "KeyboardInterrupt"
    elif reason is None and isinstance(failure, FindingError):
        reason, text = "rule", str(failure)
    elif reason is None and failure is not None:
        reason, text = "failed", f"{type(failure).__name__}: {failure}"
    for watch_ in list(_open):
        try:
            watch_.close(reason or "finished", text)
        except Exception as problem:  # nothing above can take it
            print(f"sonde: {problem}", file=sys.stderr)


def _need_torch() -> None:
    """ImportError: PyTorch is missing, or too old for the hooks."""
    try:
        import torch
    except ImportError as problem:
        raise ImportError("sonde.watch of a model needs PyTorch 2.4 or newer: "
                          "pip install torch") from problem
    numbers = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if numbers and tuple(map(int, numbers.groups())) < (2, 4):
        raise ImportError("sonde.watch of a model needs PyTorch 2.4 or newer (found "
                          f"{torch.__version__})")


def watch(model: "torch.nn.Module | Sequence[torch.nn.Module] | Mapping[str, torch.nn.Module] | None"
          = None,
          optimizer: "torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None" = None, *,
          run: str | os.PathLike[str] | None = None,
          every: int | Mapping[str, int] | None = None,
          save: int | Mapping[str, Any] | str | os.PathLike[str] | None = None,
          rules: str | Rule | Sequence[str | Rule] | None = "default",
          on_finding: Callable[[Finding], None] | str | None = "log",
          scaler: Any = None, resume: str | None = None, overwrite: bool = False,
          rank: int | None = None, world: int | None = None) -> Watch:
    """Watches a training program from its next forward pass on.

    model       one module, several, or a mapping of names to modules
    optimizer   one or several; a step ends when all of them have stepped
    run         the folder to record in; if a run is there already, one with a number:
                runs/first-2. None: judged in memory, nothing is written
    every       steps between observations: a number, or {"losses", "gradients", "weights",
                "updates", "buffers", "optimizer", "activations": number}; 0: never. The first
                20 steps of a mode are observed as well. Default: losses and gradients at every
                step, buffers and updates at every 10th, the rest as the rules need: weights
                at the first 50, every 20th and some in a row, their norms at every step,
                activations at every 50th
    save        raw values: every so many steps, or a hook's configuration (docs/recording.md)
                as a mapping or a file. Default: those of losses only
    rules       "default", or "Name:parameter=value" ..., or objects of one's own subclasses of
                sonde.Rule, or a list of these; None: nothing is judged
    on_finding  "log" prints it, "raise" also raises FindingError for an error, a function is
                called with it; None
    scaler      a GradScaler whose class has update or scale of its own; PyTorch's is known
    resume      the id of the run in the folder to continue, or "any"
    overwrite   replaces a run that is there already and has ended
    rank, world this process among several; default: as torchrun says

    Weights are bit-identical with and without. BadValueError, StateError, StorageError: at
    this call. Without a model, a program shows tensors by Watch.record and ends steps itself.
    """
    if before_watch is not None:
        before_watch()
    if model is not None or optimizer is not None:
        _need_torch()
    made = Watch(run=run, every=every, save=save, rules=rules, on_finding=on_finding,
                 resume=resume, overwrite=overwrite, rank=rank, world=world)
    try:
        if model is not None or optimizer is not None:
            from .torch_hooks import Hooks
            made._hooks = Hooks(made, model, optimizer, scaler)
    except BaseException:
        made.on_finding = None
        made.close("failed")
        raise
    return made
