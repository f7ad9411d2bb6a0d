"""Options.Distributed: several processes, each with its part of the samples.

PyTorch's process group averages or adds the gradients of an update; it is the program's own, or is
made of MASTER_ADDR and MASTER_PORT. Such a model runs in PyTorch's eager mode.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch

from .ops import Error


class Group:
    """The processes that train one model."""

    def __init__(self, rank: int, count: int):
        from torch import distributed
        if not distributed.is_available():
            raise Error(f"Distributed: {count} processes (expected a PyTorch with "
                        "torch.distributed)")
        if not distributed.is_initialized():
            if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
                raise Error(f"Distributed: {count} processes that cannot find each other (expected "
                            "torch.distributed.init_process_group, or MASTER_ADDR and MASTER_PORT)")
            distributed.init_process_group("gloo", rank=rank, world_size=count)
        if distributed.get_world_size() != count:
            raise Error(f"Distributed: {count} processes, but torch.distributed has "
                        f"{distributed.get_world_size()}")
        self.count, self._equal = count, False
        self._distributed = distributed

    def equalise(self, model: torch.nn.Module) -> None:
        """Before the first update: everybody has the tensors of the first process."""
        if not self._equal:
            for tensor in (*model.parameters(), *model.buffers()):
                self._distributed.broadcast(tensor.detach(), 0)
            self._equal = True

    def reduce(self, weights: Iterator[torch.nn.Parameter], mean: bool) -> None:
        """Gradients become their sums or means over the processes."""
        for weight in weights:
            if not weight.requires_grad:
                continue
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            self._distributed.all_reduce(weight.grad)
            if mean:
                weight.grad /= self.count


class Part(torch.utils.data.Sampler[int]):
    """The samples of one process. whole: samples of one call, to a multiple of which they are cut;
    None: they are not cut. All processes draw the same order from a seed; every other epoch uses
    the samples at its end that the last one left."""

    def __init__(self, size: int, rank: int, count: int, whole: int | None, seed: int | None):
        self.size, self.generator = size, None
        if seed is not None:
            self.generator = torch.Generator().manual_seed(seed)
        if whole is not None:
            self.length = whole * (size // (whole * count))
            self.begin, self.left = rank * self.length, size - count * self.length
        else:
            self.length = size // count + (rank < size % count)
            self.begin, self.left = rank * (size // count) + min(rank, size % count), 0
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        order: Any = range(self.size)
        if self.generator is not None:
            order = torch.randperm(self.size, generator=self.generator).tolist()
        begin = self.begin + (self.left if self.epoch % 2 else 0)
        self.epoch += 1
        return iter(order[begin:begin + self.length])

    def __len__(self) -> int:
        return self.length
