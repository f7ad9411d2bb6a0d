"""The program of a step, of programs that train with PyTorch (docs/program.md).

The first steps of a mode are recorded, and each step whose outline is new: the sequence of its
events. C keeps the outline (python/extension/python_program.c) and calls `Programs` while a step
is recorded; other steps cost nothing here."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch

from .capture import Capture, pull, tensors_of
from .compiled import Compiled
from .facts import Facts, left
from .known import Known
from .observed import Look, Observed
from .places import Finder, root
from .replicas import NEVER, Replicas
from .text import with_facts, write

__all__ = ["Programs"]

if TYPE_CHECKING:
    from ..torch_hooks import Hooks

MODES = ("train", "eval", "predict", "global")


def _compiled_frames() -> int:
    """How many functions torch.compile has seen. What it compiles takes note of the stack of
    modes: a mode on it would be compiled, too."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return counters["frames"]["total"] if counters and counters.get("frames") else 0


def _is_compiled(module: Any) -> bool:
    """Whether it is what torch.compile makes of a module."""
    return "_orig_mod" in module._modules


def _length(sampler: Any) -> int | None:
    try:
        return len(sampler)
    except Exception:  # it has none
        return None


def _loader(batches: Any) -> dict[str, Any]:
    """What a DataLoader says of how it makes batches."""
    sampler = getattr(batches, "_index_sampler", None)
    inner = getattr(sampler, "sampler", sampler)
    found = {"num_workers": getattr(batches, "_num_workers", 0),
             "batch_size": getattr(sampler, "batch_size", None),
             "sampler": type(inner).__name__ if inner is not None else None,
             "drop_last": getattr(batches, "_drop_last", None),
             "first": getattr(batches, "_num_yielded", 0) == 1,
             "batches": _length(sampler)}
    return {key: value for key, value in found.items() if isinstance(value, (bool, int, str))}


class Programs:
    """The programs of one watch."""

    def __init__(self, hooks: "Hooks"):
        self.hooks = weakref.proxy(hooks)
        self.finder = Finder()
        self.facts = {mode: Facts() for mode in MODES}
        self.observed = Observed(hooks)
        self.on: Capture | None = None
        self.early: Capture | None = None  # of what comes before a step
        self.look_on: Look | None = None
        self.mode = ""
        self.step_number = 0  # of its mode
        # Events between steps, by the outline that they make.
        self.noted: dict[int, tuple[str, dict[str, Any], Any]] = {}
        self.left: list[Any] = []  # modes that are off and still on the stack
        self.scale = 1.0
        self.frames = 0  # that were compiled within calls of compiled roots
        self.frames_before = -1  # such a call is on: the number when it began
        self.compiled = Compiled()
        self.call: tuple[Any, ...] = ()  # what tells calls of compiled roots apart
        self.replicas = Replicas(self)
        self.last_text = ""  # of training, in a group of processes

    # --- called by C ------------------------------------------------------------------------

    def begin(self, mode: int, notes: list[int]) -> None:
        """A step begins that is recorded. notes: its number, and outlines of the events before
        it."""
        hooks = self.hooks
        self.mode, (self.step_number, *notes) = MODES[mode], notes
        if torch._C._get_tracing_state() is not None:
            return  # what is read of a module would be part of the trace
        early, self.early = self.early, None
        if early is not None and (self.mode != "train" or not early.is_here()):
            self._take_off(early)
            early = None
        self.left = [one for one in self.left if not pull(one)]
        self.on = early or self._capture()
        if early is not None:
            early.begin(hooks.placed_optimizers())
        for kind, row, place in (self.noted[one] for one in notes if one in self.noted):
            self.on.event(kind, place, **row)

    def _capture(self) -> Capture:
        """A recording, which begins."""
        hooks = self.hooks
        known = Known(hooks.named_roots(), hooks.placed_optimizers(), hooks.names)
        on = Capture(known, self.finder, self.facts[self.mode], self.observed,
                     self.mode == "train")
        for index, ref in known.module_ids.values():
            module = ref()
            if module is not None and known.names_activations(index):
                self.observed.names[module] = known.modules[index]["name"]
        parts = self._sees_compiled()
        if parts:
            on.miss("the model is compiled" if hooks.is_compiled()
                    else "parts of the program are compiled")
        if parts or hooks.is_compiled():
            on.facts["compiled"] = True
        on.install(not parts, not parts and not hooks.is_compiled())
        return on

    def _sees_compiled(self) -> bool:
        """Whether anything is compiled that is called while a mode is on the stack: more than
        the roots, during whose calls it is not."""
        return self.hooks.has_compiled_parts() or _compiled_frames() > self.frames

    def _take_off(self, on: Any) -> None:
        left = on.uninstall() if on is not None else None
        if left is not None:
            self.left.append(left)

    def look(self, mode: int, step: int) -> None:
        """A step begins at which something is due that is known from the program."""
        self.step_number, self.mode = step, MODES[mode]
        if not self._sees_compiled() and torch._C._get_tracing_state() is None:
            self.left = [one for one in self.left if not pull(one)]
            self.look_on = Look(self.observed, self.finder, MODES[mode] == "train",
                                not self.hooks.is_compiled())

    def end(self, is_next: bool) -> None:
        """is_next: the next step of training is recorded: what comes before it, too."""
        self._end_look()
        on, self.on = self.on, None
        if on is not None:
            self._take_off(on)
            on.finish()
            text = self._text(on)
            self.hooks.core.program(text)
            if self.mode == "train" and self.replicas.ranks:
                self.last_text = text
        if is_next and self.early is None and torch._C._get_tracing_state() is None:
            early = self._capture()
            early.begun = False
            self.early = early

    def compare(self, step: int) -> None:
        """A step of training begins at which replicas are compared."""
        after = self.replicas.at(step)
        self.hooks.core.compare_at(after)
        if after == NEVER:
            self.last_text = ""

    def tell_facts(self) -> None:
        """What is known of the replicas now is part of the program."""
        if self.last_text:
            self.last_text = with_facts(self.last_text, self.replicas.facts)
            self.hooks.core.program(self.last_text)

    def break_off(self) -> None:
        """The program ends by an exception: what is recorded of the step is kept."""
        on, self.on = self.on, None
        if on is not None and on.nodes:
            self._take_off(on)
            on.break_off("the program ended within the step")
            on.finish()
            self.hooks.core.program(self._text(on))

    def drop(self) -> None:
        """Ends a recording without a program."""
        self.replicas.finish()
        self.compiled.end()
        self._end_look()
        self._take_off(self.on)
        self._take_off(self.early)
        self.on = self.early = None
        self.left = [one for one in self.left if not pull(one)]

    def _end_look(self) -> None:
        self._take_off(self.look_on)
        self.look_on = None

    def forward(self, module: Any, inputs: Any) -> None:
        self.observed.restart()
        first = next((one for one in tensors_of(inputs) if one.numel()), None)
        if first is not None:
            self.see(first, False)
        if self.on is not None:
            self.on.forward(module, inputs, self.finder.here())
        if _is_compiled(module):
            self.frames_before = _compiled_frames()
            if self.on is not None:
                self.on.begin_whole(module, inputs)
                self.compiled.begin()
                self.call = id(module), module.training, torch.is_grad_enabled(), *(
                    tuple(one.shape) for one in tensors_of(inputs))
            self.pause(1)

    def returned(self, module: Any, result: Any) -> None:
        """The call of a root is over."""
        if self.frames_before >= 0 and _is_compiled(module):
            self.frames += _compiled_frames() - self.frames_before
            self.frames_before = -1
            self.compiled.end()
            self.pause(-1)
            if self.on is not None:
                self.on.end_compiled(result, self.compiled.graphs(self.call))

    def see(self, tensor: torch.Tensor, are_labels: bool) -> None:
        """The first input of a step of training, or the targets of its first loss."""
        facts = self.facts[self.mode]
        if self.mode == "train" and not torch._C._functorch.is_functorch_wrapped_tensor(tensor) \
                and facts.see(facts.labels if are_labels else facts.inputs, self.step_number,
                              tensor):
            self.hooks.core.record_next()

    def backward(self, tensor: Any) -> None:
        """backward() is called, and its loss was shown."""
        if self.on is not None:
            self.on.backward(tensor, self.hooks.loss_name, self.finder.here(), self.scale,
                             left(self.hooks.placed_optimizers()))
            self.scale = 1.0
        self.pause(1)

    def went_back(self) -> None:
        self.pause(-1)

    def pause(self, more: int) -> None:
        """Backward passes, optimizers and loaders call functions that are not the program's."""
        for one in (self.on, self.look_on, self.early):
            if one is not None:
                one.pause(more)

    def remember(self, kind: str, outline: int, subject: Any = None, **row: Any) -> None:
        """An event of training, within a step (outline: 1) or between two."""
        place = self.finder.here()
        if place is None:  # by an optimizer of PyTorch's
            return
        if kind == "batch":
            row["attributes"] = _loader(subject)
            self.facts["train"].workers = row["attributes"].get("num_workers", 0)
        if kind == "evaluation":
            row["grad"] = torch.is_grad_enabled()
        if kind in ("zero_grad", "unscale"):
            row["optimizer"] = self.hooks.optimizer_number(subject)
        if outline > 1:
            self.noted[outline] = kind, row, place
        elif self.on is not None and self.mode == "train":
            self.on.event(kind, place, **row)

    def lacks_step(self, cleared: bool) -> bool:
        """Whether the step that is recorded goes back several times without an optimizer, of those
        that there are. cleared: and gradients are cleared in between, unused."""
        if self.on is None or self.mode != "train" or not any(self.hooks.placed_optimizers()):
            return False
        kinds = [row["event"] for row in self.on.events]
        return "step" not in kinds and kinds.count("backward") > 1 and \
            (not cleared or kinds.count("zero_grad") > kinds.count("backward") // 2)

    def step(self, optimizer: Any) -> None:
        if self.on is not None:
            self.on.event("step", self._step_place(),
                          optimizer=self.hooks.optimizer_number(optimizer))
        self.pause(1)

    def stepped(self) -> None:
        self.pause(-1)

    # --- the text ---------------------------------------------------------------------------

    def _step_place(self) -> Any:
        """The line that called an optimizer, which is at work."""
        frame = sys._getframe(1)
        while frame is not None and self.finder.here(frame) is None:
            frame = frame.f_back
        return self.finder.here(frame) if frame is not None else None

    def _text(self, on: Capture) -> str:
        on.known.more_optimizers(self.hooks.placed_optimizers())
        for row in on.events:
            if row.get("optimizer", -1) >= len(on.known.optimizers):
                row["optimizer"] = -1  # it was left out meanwhile
        backward = sum(row["event"] == "backward" for row in on.events)
        steps = len({row.get("optimizer") for row in on.events if row["event"] == "step"})
        facts = on.facts | self.facts[self.mode].of_repeats()
        if self.mode == "train":
            facts |= self.replicas.facts
        if backward and steps:
            facts["accumulation"] = backward // steps
        scales = [row["attributes"]["scale"] for row in on.events
                  if row.get("attributes", {}).get("scale")]
        if scales:
            facts["loss_scale"] = scales[0]
        head = {"producer": "pytorch", "mode": self.mode, "root": root(),
                "complete": not on.gap, "gap": on.gap, "files": list(on.files.names)}
        return write(head, {"values": on.values, "nodes": on.nodes, "modules": on.known.modules,
                            "parameters": on.known.parameters,
                            "optimizers": on.known.optimizers, "events": on.events,
                            "losses": on.losses}, facts)
