"""Data sets that are tables of tensors: a batch is taken out of them at once, with the same numbers
that collating the samples one by one gives.

Tables are TensorDataset, torchvision's MNIST family with ToTensor and Normalize, and Subsets.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import (BatchSampler, RandomSampler, SequentialSampler, Subset,
                              TensorDataset, WeightedRandomSampler, default_collate)

_ELEMENTS = 1 << 14  # converted at a time: PyTorch does not wake its threads for so few
_SAMPLERS = (RandomSampler, SequentialSampler, WeightedRandomSampler)


def columns_of(dataset: Any) -> list[torch.Tensor] | None:
    """The tensors whose rows are a data set's samples, or those of the data set that it is a
    subset of; None: it is no table."""
    if type(dataset) is Subset:
        return columns_of(dataset.dataset)
    if type(dataset) is TensorDataset:
        plain = all(type(column) is torch.Tensor and column.device.type == "cpu" and
                    column.layout is torch.strided and not column.requires_grad
                    for column in dataset.tensors)
        return list(dataset.tensors) if plain else None
    return _digits(dataset)


def indices_of(dataset: Any) -> torch.Tensor | None:
    """The rows that a subset has; None: all."""
    if type(dataset) is not Subset:
        return None
    rows = torch.as_tensor(list(dataset.indices), dtype=torch.int64)
    within = indices_of(dataset.dataset)
    return rows if within is None else within[rows]


def _digits(dataset: Any) -> list[torch.Tensor] | None:
    """Images and labels of torchvision's MNIST, and of its relatives."""
    vision = sys.modules.get("torchvision")
    if vision is None or type(dataset) not in (vision.datasets.MNIST,
                                               vision.datasets.FashionMNIST,
                                               vision.datasets.KMNIST):
        return None
    steps = _steps(vision.transforms, dataset.transform)
    if steps is None or dataset.target_transform is not None or \
            dataset.data.dtype is not torch.uint8:
        return None
    images = torch.empty((len(dataset.data), 1, *dataset.data.shape[1:]))
    rows = max(_ELEMENTS // max(math.prod(images.shape[1:]), 1), 1)
    for begin in range(0, len(images), rows):
        part = dataset.data[begin:begin + rows, None].to(torch.float32).div_(255)
        for mean, std in steps:
            part.sub_(mean).div_(std)
        images[begin:begin + rows] = part
    return [images, torch.as_tensor(dataset.targets, dtype=torch.int64)]


def _steps(transforms: Any, given: Any) -> list[tuple[torch.Tensor, torch.Tensor]] | None:
    """(mean, std) of each Normalize after ToTensor; None: other transforms."""
    parts = list(given.transforms) if type(given) is transforms.Compose else [given]
    if not parts or type(parts[0]) is not transforms.ToTensor or \
            torch.get_default_dtype() is not torch.float32 or \
            any(type(part) is not transforms.Normalize for part in parts[1:]):
        return None
    steps = [(torch.as_tensor(part.mean, dtype=torch.float32).view(-1, 1, 1),
              torch.as_tensor(part.std, dtype=torch.float32).view(-1, 1, 1))
             for part in parts[1:]]
    plain = all(mean.numel() == 1 and std.numel() == 1 and float(std) != 0.0
                for mean, std in steps)
    return steps if plain else None


class Table:
    """The batches of a loader over a table, in the order of its sampler."""

    def __init__(self, loader: Any):
        self.columns: list[torch.Tensor] | None = None
        self.sources: list[tuple[Any, int]] = []
        self.drawn = False
        batches = loader.batch_sampler
        self.usable = type(batches) is BatchSampler and type(batches.sampler) in _SAMPLERS and \
            loader.collate_fn is default_collate and loader.worker_init_fn is None and \
            not loader.pin_memory and loader.timeout == 0

    def ready(self, dataset: Any) -> bool:
        """Whether the data set is a table; converts it at the first call, and again if what it is
        made of has changed."""
        if not self.usable:
            return False
        sources = _sources(dataset)
        if self.columns is None or len(sources) != len(self.sources) or \
                any(new[0] is not old[0] or new[1] != old[1]
                    for new, old in zip(sources, self.sources)):
            self.columns, self.sources = columns_of(dataset), sources
        return self.columns is not None

    def batches(self, loader: Any) -> Iterator[list[torch.Tensor]]:
        """Draws the same random numbers as PyTorch's loader, when it draws them."""
        assert self.columns is not None
        order = iter(loader.batch_sampler)
        if not (loader.persistent_workers and self.drawn):
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
            self.drawn = True
        if loader.num_workers > 0:  # its processes begin at once
            order = itertools.chain(list(itertools.islice(order, 1)), order)
        return _rows(self.columns, order, indices_of(loader.dataset))


def _rows(columns: list[torch.Tensor], order: Iterator[list[int]],
          indices: torch.Tensor | None) -> Iterator[list[torch.Tensor]]:
    for rows in order:
        index = torch.tensor(rows)
        if indices is not None:
            index = indices[index]
        # column[index] shares 16 images among PyTorch's threads: milliseconds on a busy machine
        yield [column.index_select(0, index) for column in columns]


def _sources(dataset: Any) -> list[tuple[Any, int]]:
    """What the columns of a data set follow from; of tensors, how often they were written."""
    if type(dataset) is Subset:
        return _sources(dataset.dataset)
    found = [dataset, *getattr(dataset, "tensors", ())]
    for name in ("data", "targets", "transform", "target_transform"):
        found.append(getattr(dataset, name, None))
    found += list(getattr(getattr(dataset, "transform", None), "transforms", ()))
    return [(value, value._version if isinstance(value, torch.Tensor) and
             not value.is_inference() else 0) for value in found]
