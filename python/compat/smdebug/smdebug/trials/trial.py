"""Trial and Tensor: smdebug's way of reading, over a run of Sonde's or of smdebug's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from enum import Enum
from typing import Any

import numpy
import sonde

from ..collection import BUILT_IN, Collection
from ..exceptions import (InvalidWorker, NoMoreData, ShapeUnavailableForStep, SMDebugValueError,
                          StepNotYetAvailable, StepUnavailable, TensorUnavailable,
                          TensorUnavailableForStep)
from ..modes import ModeKeys

_RAW, _VITALS = 1, 2
# reductions that smdebug names, and Sonde's names for them
_REDUCTIONS = ("min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2", "median")
_SAVED = ("min", "max", "mean", "std", "variance", "sum", "l1", "l2")


class StepState(Enum):
    UNAVAILABLE = 0  # it has passed, and was not saved
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


class Tensor:
    """A tensor of a trial over its steps. Steps count within the mode."""

    def __init__(self, name: str, trial: "Trial"):
        self.name, self.trial = name, trial

    def __repr__(self) -> str:
        return f"Tensor({self.name!r})"

    def steps(self, mode: ModeKeys = ModeKeys.GLOBAL,
              show_incomplete_steps: bool = False) -> list[int]:
        """The steps at which it was saved."""
        self.trial.maybe_refresh()
        found = self.trial._tensor_steps(self.name, mode)
        if show_incomplete_steps:
            return found
        complete = set(self.trial._steps(mode, False))
        return [step for step in found if step in complete]

    def prev_steps(self, step: int, n: int | None = None,
                   mode: ModeKeys = ModeKeys.GLOBAL) -> list[int]:
        """The last n steps up to a step, itself included; None: all."""
        found = [known for known in self.steps(mode) if known <= step]
        return found if n is None else found[len(found) - n if n < len(found) else 0:]

    def workers(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[str]:
        """The workers that saved it at a step."""
        self._check(step_num, mode)
        return [f"worker_{rank}" for rank, _ in self.trial._ranks()
                if self._has(step_num, mode, rank) != 0]

    def value(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL,
              worker: str | None = None) -> numpy.ndarray:
        """The value at a step; worker None: of the first worker that has it."""
        self._check(step_num, mode)
        rank, saved = self._where(step_num, mode, worker, _RAW)
        if not saved & _RAW:
            raise TensorUnavailableForStep(self.name, step_num, mode, saved != 0)
        return self.trial._run.value(self.name, step_num, mode=mode.sonde, worker=rank)

    def values(self, mode: ModeKeys = ModeKeys.GLOBAL,
               worker: str | None = None) -> dict[int, numpy.ndarray]:
        """{step: value} of all steps with a value."""
        found = {}
        for step in self.steps(mode):
            try:
                found[step] = self.value(step, mode, worker)
            except TensorUnavailableForStep:
                continue
        return found

    def shape(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL,
              worker: str | None = None) -> tuple[int, ...]:
        """Its shape at a step: of the value, or as it was declared."""
        self._check(step_num, mode)
        if self._where(step_num, mode, worker, _RAW)[1] & _RAW:
            return self.value(step_num, mode, worker).shape
        for info in self.trial._infos():
            if info.name == self.name:
                return info.shape
        raise ShapeUnavailableForStep(self.name, step_num, mode)

    def reduction_value(self, step_num: int, reduction_name: str,
                        mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None,
                        abs: bool = False) -> float:
        """A reduction, as saved, or of the saved value."""
        name = reduction_name.removesuffix("_norm")
        if name not in _REDUCTIONS:
            raise SMDebugValueError(f"reduction_value: '{reduction_name}' (expected one of "
                                    f"{', '.join(_REDUCTIONS)})")
        self._check(step_num, mode)
        rank, _ = self._where(step_num, mode, worker, _RAW | _VITALS)
        try:
            return self.trial._trial.reduce(("abs_" if abs else "") + name, self.name, step_num,
                                            mode.sonde, rank, 0, 0)
        except sonde.NotFoundError:
            raise TensorUnavailableForStep(self.name, step_num, mode) from None

    def reduction_values(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL,
                         worker: str | None = None) -> dict[tuple[str, bool], float]:
        """{(name, abs): number} of a step with saved reductions."""
        self._check(step_num, mode)
        if not self._where(step_num, mode, worker, _VITALS)[1] & _VITALS:
            return {}
        return {(name, absolute): self.reduction_value(step_num, name, mode, worker, absolute)
                for name in _SAVED for absolute in (False, True)}

    def _has(self, step: int, mode: ModeKeys, rank: int) -> int:
        return self.trial._trial.has(self.name, step, mode.sonde, rank, -1, -1)

    def _where(self, step: int, mode: ModeKeys, worker: str | None,
               wanted: int) -> tuple[int, int]:
        """The rank of a worker, or of the first that has what is wanted; what it has."""
        ranks = self.trial._ranks()
        if worker is not None:
            ranks = [(rank, name) for rank, name in ranks if name == worker or
                     worker == f"worker_{rank}"]
            if not ranks:
                raise InvalidWorker(worker)
        found = [(rank, self._has(step, mode, rank)) for rank, _ in ranks]
        return next((place for place in found if place[1] & wanted),
                    next((place for place in found if place[1]), (ranks[0][0], 0)))

    def _check(self, step: int, mode: ModeKeys) -> None:
        """Raises if nothing of the tensor was saved at a step."""
        if step < 0:
            raise SMDebugValueError(f"step: {step} (expected 0 or more)")
        self.trial.maybe_refresh()
        if step in self.trial._tensor_steps(self.name, mode):
            return
        state = self.trial._state(step, mode)
        if state is StepState.AVAILABLE:
            raise TensorUnavailableForStep(self.name, step, mode)
        raise (StepUnavailable if state is StepState.UNAVAILABLE else StepNotYetAvailable)(step,
                                                                                          mode)


class Trial:
    """A run. Questions see what is new, unless inside analysis.utils.no_refresh."""

    def __init__(self, path: str, name: str | None = None,
                 range_steps: tuple[int | None, int | None] | None = None):
        self.path = path
        self.name = name or os.path.basename(path.rstrip("/"))
        begin, end = range_steps or (None, None)
        if begin is not None and end is not None and end <= begin:
            raise SMDebugValueError(f"range_steps: {range_steps!r} (expected an end above the "
                                    "begin)")
        self.range_steps = range_steps
        self.dynamic_refresh = True
        self._run = sonde.open(path, begin=begin or 0, end=end)
        self._trial = self._run._trial

    def __repr__(self) -> str:
        return f"Trial({self.path!r})"

    # --- the run --------------------------------------------------------------------------

    def maybe_refresh(self, name: str | None = None) -> None:
        if self.dynamic_refresh:
            self._trial.refresh()

    def refresh_data(self) -> None:
        self._trial.refresh()

    @property
    def loaded_all_steps(self) -> bool:
        """Whether the run has ended."""
        self.maybe_refresh()
        return self._run.status != "running"

    def _ranks(self) -> list[tuple[int, str]]:
        return self._trial.workers()

    def workers(self) -> list[str]:
        self.maybe_refresh()
        return [f"worker_{rank}" for rank, _ in self._ranks()]

    # --- tensors --------------------------------------------------------------------------

    def _infos(self) -> list[sonde.TensorInfo]:
        return self._run.tensors()

    def _tensor_steps(self, name: str, mode: ModeKeys) -> list[int]:
        return numpy.asarray(self._trial.steps(mode.sonde, name)).tolist()

    def has_tensor(self, tname: str) -> bool:
        self.maybe_refresh()
        return any(info.name == tname for info in self._infos()) and \
            bool(self._tensor_steps(tname, ModeKeys.GLOBAL))

    def tensor(self, tname: str) -> Tensor:
        if not self.has_tensor(tname):
            raise TensorUnavailable(tname)
        return Tensor(tname, self)

    def tensors(self) -> dict[str, Tensor]:
        return {name: Tensor(name, self) for name in self.tensor_names()}

    def tensor_names(self, *, step: int | None = None, mode: ModeKeys = ModeKeys.GLOBAL,
                     regex: str | Iterable[str] | None = None,
                     collection: "str | Collection | None" = None,
                     show_prefixed_tensors: bool = False) -> list[str]:
        """Names of saved tensors, sorted: at a step, of a mode, that an expression matches
        anywhere, or of a collection."""
        if regex is not None and collection is not None:
            raise SMDebugValueError("tensor_names: regex and collection (expected one of them)")
        self.maybe_refresh()
        names = [info.name for info in self._infos()]
        if regex is not None:
            patterns = [regex] if isinstance(regex, str) else list(regex)
            names = [name for name in names if any(re.search(one, name) for one in patterns)]
        if collection is not None:
            members = self._members(collection)
            names = [name for name in names if name in members]
        found = []
        for name in names:
            steps = self._tensor_steps(name, mode)
            if steps if step is None else step in steps:
                found.append(name)
        return sorted(found)

    # --- collections ----------------------------------------------------------------------

    def collections(self) -> dict[str, Collection]:
        self.maybe_refresh()
        return {name: self.collection(name)
                for name in [*BUILT_IN, *(one for one in self._trial.collections(None)
                                          if one not in BUILT_IN)]}

    def collection(self, coll_name: str) -> Collection:
        """A collection with the names of its saved tensors; an unknown one is empty."""
        pattern = BUILT_IN.get(coll_name)
        made = Collection(coll_name, [pattern] if pattern else None)
        made.tensor_names = self._recorded(coll_name)
        return made

    def _recorded(self, collection: str) -> set[str]:
        return {info.name for info in self._infos()
                if collection in self._trial.collections(info.name)}

    def _members(self, collection: "str | Collection") -> set[str]:
        known = collection if isinstance(collection, Collection) else self.collection(collection)
        return known.tensor_names | self._recorded(known.name) | \
            {info.name for info in self._infos()
             if any(re.search(pattern, info.name) for pattern in known.include_regex)}

    def _of(self, step: int, mode: ModeKeys, name: str, pattern: str) -> list[str]:
        return self.tensor_names(step=step, mode=mode, regex=pattern) or \
            self.tensor_names(step=step, mode=mode, collection=name)

    def inputs(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[str]:
        return self._of(step, mode, "inputs", r"input")

    def labels(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[str]:
        return self._of(step, mode, "labels", r"labels")

    def predictions(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[str]:
        return self._of(step, mode, "predictions", r"predictions")

    # --- steps ----------------------------------------------------------------------------

    def _steps(self, mode: ModeKeys, incomplete: bool) -> list[int]:
        return numpy.frombuffer(self._trial.steps(mode.sonde, None, incomplete),
                                numpy.int64).tolist()

    def steps(self, mode: ModeKeys = ModeKeys.GLOBAL,
              show_incomplete_steps: bool = False) -> list[int]:
        """The steps of a mode at which anything was saved."""
        self.maybe_refresh()
        return self._steps(mode, show_incomplete_steps)

    def modes(self) -> list[ModeKeys]:
        """The modes that the run has, without GLOBAL."""
        return [mode for mode in ModeKeys if mode is not ModeKeys.GLOBAL and self.steps(mode)]

    def global_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        self.maybe_refresh()
        return self._trial.global_step(mode.sonde, mode_step)

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys | None, int | None]:
        self.maybe_refresh()
        found = self._trial.mode_step(global_step)
        return (None, None) if found is None else (ModeKeys[found[0].upper()], found[1])

    def mode(self, global_step: int) -> ModeKeys | None:
        return self.mode_modestep(global_step)[0]

    def mode_step(self, global_step: int) -> int | None:
        return self.mode_modestep(global_step)[1]

    def _state(self, step: int, mode: ModeKeys) -> StepState:
        return StepState(self._trial.passed(mode.sonde, step))

    def has_passed_step(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> StepState:
        self.maybe_refresh()
        return self._state(step, mode)

    def wait_for_steps(self, required_steps: Iterable[int],
                       mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        """Waits until each step is complete. StepUnavailable: it has passed and was not saved;
        NoMoreData: the run ended before it."""
        for step in required_steps:
            while not self._wait(mode, step):
                pass

    def _wait(self, mode: ModeKeys, step: int) -> bool:
        """Waits for a step, but not so long that Ctrl-C would have to; whether it is complete."""
        try:
            self._trial.wait(mode.sonde, step, 0.5)
        except sonde.SondeError as problem:
            if problem.code == "SONDE_ETIMEOUT":
                return False
            if problem.code == "SONDE_EEND":
                last = self._steps(mode, True)
                raise NoMoreData(step, mode, last[-1] if last else -1) from None
            if problem.code == "SONDE_ENOTFOUND":
                raise StepUnavailable(step, mode) from None
            raise
        return True


class LocalTrial(Trial):
    """A run in a folder."""

    def __init__(self, name: str, dirname: str,
                 range_steps: tuple[int | None, int | None] | None = None, **_unused: Any):
        super().__init__(dirname, name, range_steps)


class S3Trial(Trial):
    """A run in a bucket."""

    def __init__(self, name: str, bucket_name: str, prefix_name: str,
                 range_steps: tuple[int | None, int | None] | None = None, **_unused: Any):
        super().__init__(f"s3://{bucket_name}/{prefix_name.strip('/')}", name, range_steps)


def create_trial(path: str | os.PathLike[str], name: str | None = None, profiler: bool = False,
                 output_dir: str | None = None,
                 range_steps: tuple[int | None, int | None] | None = None, check: bool = False,
                 index_mode: bool = True, cache: bool = False) -> Trial:
    """Opens a run, in a folder or at s3://bucket/prefix. range_steps: global steps, begin and
    end; either may be None. output_dir, check, index_mode and cache have no effect."""
    if profiler:
        raise SMDebugValueError("profiler: True (expected False: profiles are not recorded)")
    return Trial(os.fspath(path).strip(), name, range_steps)
