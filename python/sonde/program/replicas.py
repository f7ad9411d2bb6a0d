"""Weights of the processes of a group, compared while they train.

At few steps each process puts hashes of its weights into the store of the group, and the first
process reads them once all are there; none waits for another. Processes that wrap the model in
DistributedDataParallel are replicas. Of others, gradients tell: parameters whose gradients are
equal in all processes are replicas, and those that differ from the start, with gradients that
differ, are parts, which are not compared."""

from __future__ import annotations

import itertools
import sys
import weakref
import zlib
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .. import _sonde

if TYPE_CHECKING:
    from . import Programs

NEVER = 1 << 62
_numbers = itertools.count()  # of watches in groups: processes make theirs in one order
_ROWS = 1024  # hashes of a look; those of more parameters are combined
_BYTES = 1 << 24  # that are hashed at a look; of more, each look reads another part
_LOOKS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_THEN = 1000  # steps between later ones
_KEPT = 4  # looks that a process keeps in the store; without DistributedDataParallel, the first ones
_POLL = 16  # steps after which looks are asked for again that were not there
_GRADIENTS = 2  # first steps whose gradients are compared
_ALONE = 40  # looks in a row at which all differ before that is a finding
_PARTS = "the processes hold different parts of the model"


def _wrapper(roots: list[Any]) -> Any:
    """The DistributedDataParallel that has the first root, or whose forward pass calls it."""
    plain = torch.nn.parallel.DistributedDataParallel
    for root in roots:
        whole = getattr(root, "_orig_mod", root)
        if isinstance(whole, plain):
            return whole
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not plain.forward.__code__:
        frame = frame.f_back
    return frame.f_locals["self"] if frame is not None else None


def _is_part(parameter: Any) -> bool:
    """Whether each process has a part of its own, by what libraries mark it with."""
    return hasattr(parameter, "_local_tensor") or \
        getattr(parameter, "tensor_model_parallel", False) is True or \
        getattr(parameter, "allreduce", True) is False or \
        getattr(parameter, "skip_allreduce", False) is True


def _averages_seldom(wrapper: Any, optimizers: list[Any]) -> bool:
    """Whether replicas go separate ways between two averages (local SGD)."""
    hooks = [getattr(hook, "__name__", "") for hook, _ in getattr(wrapper, "_comm_hooks", ())]
    return any("localSGD" in name for name in hooks) or \
        any("LocalSGD" in type(one).__name__ for one in optimizers)


def _hash(tensor: Any, share: float, look: int) -> int:
    """Of 32 bits; share: of its elements, another part at each look. 0: it cannot be read."""
    tensor = tensor.detach()
    if share < 1:
        flat, count = tensor.reshape(-1), max(int(tensor.numel() * share), 1)
        first = look * count % max(tensor.numel() - count, 1)
        tensor = flat[first:first + count]
    try:
        return _sonde.hash_of(tensor if tensor.is_cpu else tensor.cpu()) % 0xFFFFFFFF + 1
    except Exception:  # it has no memory
        return 0


class Replicas:
    """Those of one watch. Step numbers are of training."""

    def __init__(self, programs: "Programs"):
        self.programs = weakref.proxy(programs)
        self.hooks = programs.hooks
        self.compared, self.last_step = 0, 0
        self.why = "there is no process group"  # they are not compared
        self.facts: dict[str, Any] = {}
        self.ranks: list[int] = []  # of the group; this process's own
        self.own = self.number = 0
        self.wrapped = False
        self.names: list[str] = []
        self.looks = 0
        self.next_look = 0
        self.mine: dict[int, bytes] = {}  # by the step of a look
        self.open: list[int] = []  # looks that have no answer
        self.next_poll, self.distance = NEVER, 1
        self.gradients: list[int] = []
        self.handle: Any = None  # of the hook that sees these
        self.apart: set[int] = set()  # rows that differ from the start
        self.averaged: set[int] = set()  # rows whose gradients were equal
        self.alone = 0  # looks in a row at which nothing was equal

    # --- called at the beginning of steps -------------------------------------------------

    def at(self, step: int) -> int:
        """Step number `step` begins. Returns the number of the step that is to be told next."""
        try:
            if step == 0 and not self._begin():
                return NEVER
            if self.open and step >= self.next_poll:
                self._poll(step)
            if self.ranks and step >= self.next_look:
                self._look(step)
        except Exception as problem:
            self._stop(f"the group's store does not answer ({type(problem).__name__})")
        return min(self.next_look, self.next_poll) if self.ranks else NEVER

    def finish(self) -> None:
        """The watch takes its hooks off."""
        if self.handle is not None:
            self.handle.remove()
            self.handle = None

    @property
    def account(self) -> str:
        """For the verdict."""
        if not self.compared:
            return f"the replicas were not compared: {self.why}"
        times = "once" if self.compared == 1 else f"{self.compared} times"
        return f"{len(self.ranks) or self.facts['replicas']} replicas compared {times}" + (
            f", until step {self.last_step}" if self.alone == 0 else
            ": each trains by itself, so far" if not self.facts.get("replicas_differ") else "")

    def _stop(self, why: str) -> None:
        self.why = self.why if self.compared else why
        self.ranks, self.open = [], []

    # --- the group ------------------------------------------------------------------------

    def _begin(self) -> bool:
        group = torch.distributed
        if not group.is_available() or not group.is_initialized() or group.get_world_size() < 2:
            return False
        roots = [ref() for ref in self.hooks.root_refs.values()]
        wrapper = _wrapper(roots)
        self.wrapped = wrapper is not None
        parts = [part for root in roots if root is not None for part in root.modules()]
        if any(type(part).__name__ == "FullyShardedDataParallel" for part in parts):
            self.why = _PARTS
            return False
        if self.wrapped and _averages_seldom(wrapper, self.hooks.placed_optimizers()):
            self.why = "they are averaged now and then"
            return False
        self.ranks = group.get_process_group_ranks(wrapper.process_group) if self.wrapped else \
            list(range(group.get_world_size()))
        self.own, self.number = group.get_rank(), next(_numbers)
        self.names = [name for name, _ in self._parameters()]
        if self.own not in self.ranks or len(self.ranks) < 2 or not self.names:
            self._stop("this process has no replica" if self.names else _PARTS)
            return False
        self.why = "no other process showed its weights (each has to be watched)"
        if not self.wrapped:
            self.gradients = [0] * self._rows()
            self.handle = register_optimizer_step_pre_hook(self._before_step)
        return True

    def _parameters(self) -> Iterator[tuple[str, Any]]:
        """Those that the processes may share."""
        seen: set[int] = set()
        for prefix, root in self.hooks.named_roots().items():
            left_out = getattr(root, "_ddp_params_and_buffers_to_ignore", ())
            for name, parameter in root.named_parameters():
                whole = f"{prefix}.{name}" if prefix else name
                if id(parameter) not in seen and parameter.requires_grad and \
                        parameter.numel() and not parameter.is_meta and \
                        not _is_part(parameter) and name not in left_out and \
                        (self.wrapped or "expert" not in name):
                    seen.add(id(parameter))
                    yield self.hooks.names.get(id(parameter), whole), parameter

    def _rows(self) -> int:
        return min(len(self.names), _ROWS)

    def _row(self, index: int) -> int:
        return index * self._rows() // len(self.names)

    def _name(self, row: int) -> str:
        return self.names[-(-row * len(self.names) // self._rows())]

    # --- looks ----------------------------------------------------------------------------

    def _before_step(self, optimizer: Any, *rest: Any) -> None:
        """An optimizer steps, of the first steps: what its gradients are."""
        try:
            for index, (_, parameter) in enumerate(self._parameters()):
                gradient = parameter.grad
                if gradient is not None and not gradient.is_sparse and \
                        gradient.numel() * gradient.element_size() <= _BYTES and \
                        index < len(self.names) and gradient.count_nonzero().item():
                    self.gradients[self._row(index)] = _hash(gradient, 1, 0)
        except Exception as problem:
            self._stop(f"a gradient cannot be read ({type(problem).__name__})")

    def _read(self) -> bytes:
        """What is put into the store: the shapes, weights, gradients of the step before."""
        found = list(self._parameters())
        total = sum(one.numel() * one.element_size() for _, one in found)
        weights, shapes = array("I", [0] * self._rows()), 0
        for index, (name, one) in enumerate(found[:len(self.names)]):
            row = self._row(index)
            value = _hash(one, min(_BYTES / max(total, 1), 1), self.looks)
            weights[row] = zlib.crc32(value.to_bytes(4, "little"), weights[row]) if \
                weights[row] else value
            shapes = zlib.crc32(f"{name} {tuple(one.shape)} {one.dtype}".encode(), shapes)
        return array("I", [shapes]).tobytes() + weights.tobytes() + \
            array("I", self.gradients).tobytes()

    def _look(self, step: int) -> None:
        with torch._C.DisableTorchFunction(), torch.no_grad():
            mine = self._read()
        store = torch.distributed.distributed_c10d._get_default_store()
        store.set(self._key(self.own, step), mine)
        self.looks += 1
        self.mine[step] = mine
        if self.handle is not None and step >= _GRADIENTS:
            self.handle.remove()
            self.handle = None
        self.gradients = [0] * len(self.gradients) if self.handle is not None else []
        while len(self.mine) > (_KEPT if self.wrapped else 2 * _ALONE):
            store.delete_key(self._key(self.own, min(self.mine)))
            del self.mine[min(self.mine)]
        self.open = [one for one in self.open if one in self.mine]
        if self.own == self.ranks[0]:
            self.open.append(step)
            self.next_poll, self.distance = step + 1, 1
        # Without DistributedDataParallel averages may come now and then.
        self.next_look = step + 1 if not self.wrapped and step <= _ALONE + 1 else next(
            (one for one in _LOOKS if one > step), (step // _THEN + 1) * _THEN)

    def _key(self, rank: int, step: int) -> str:
        return f"sonde/{self.number}/{rank}/{step}"

    # --- comparing ------------------------------------------------------------------------

    def _poll(self, step: int) -> None:
        """Reads the looks that all have taken, without waiting for one."""
        store = torch.distributed.distributed_c10d._get_default_store()
        others = [rank for rank in self.ranks if rank != self.own]
        while self.open:
            looked = self.open[0]
            keys = [self._key(rank, looked) for rank in others]
            if not store.check(keys):
                self.next_poll = step + self.distance
                self.distance = min(2 * self.distance, _POLL)
                return
            self.open.pop(0)
            self._judge(looked, dict(zip(others, (store.get(key) for key in keys))))
        self.next_poll = NEVER

    def _split(self, raw: bytes) -> tuple[int, Any, Any]:
        numbers = array("I")
        numbers.frombytes(raw)
        rows = self._rows()
        return numbers[0], numbers[1:1 + rows], numbers[1 + rows:]

    def _judge(self, step: int, others: dict[int, bytes]) -> None:
        shapes, mine, gradients = self._split(self.mine[step])
        read = {rank: self._split(raw) for rank, raw in others.items()}
        if any(one[0] != shapes for one in read.values()):
            self._stop(_PARTS)
            return
        self.compared, self.last_step = self.compared + 1, step
        self.facts |= {"replicas": len(self.ranks), "replicas_compared": self.compared}
        differ = [row for row in range(len(mine))
                  if any(one[1][row] != mine[row] for one in read.values())]
        if self.wrapped:
            self._find("part", differ, mine, read, step)
            return
        if step == 0:
            self.apart = set(differ)
        averaged = {row for row, value in enumerate(gradients) if value and all(
            row < len(one[2]) and one[2][row] == value for one in read.values())}
        self.averaged |= averaged
        self._judge_plain(step, mine, differ, read)

    def _judge_plain(self, step: int, mine: Any, differ: list[int], read: Any) -> None:
        """Of processes without DistributedDataParallel."""
        started = sorted(self.apart & self.averaged)
        if started:
            self._find("start", started, mine, read, step)
            self.apart -= self.averaged
        if step >= _GRADIENTS and len(self.apart) == self._rows():
            self.compared = 0
            self._stop(_PARTS + ", or train by themselves")
            return
        parted = [row for row in differ if row not in self.apart and row not in started]
        self.alone = self.alone + 1 if parted and not self.averaged else 0
        if self.averaged:
            self._find("part", parted, mine, read, step)
        elif self.alone >= _ALONE:
            self._find("alone", parted, mine, read, step)

    def _find(self, kind: str, rows: list[int], mine: Any, read: Any, step: int) -> None:
        """A difference, which the rules read in the program: the first one."""
        if rows and "replicas_differ" not in self.facts:
            self.facts |= {
                "replicas_differ": self._name(rows[0]), "replicas_kind": kind,
                "replicas_first": self.own, "replicas_count": len(rows), "replicas_step": step,
                "replicas_other": next(rank for rank, one in read.items()
                                       if one[1][rows[0]] != mine[rows[0]])}
            self.programs.tell_facts()
