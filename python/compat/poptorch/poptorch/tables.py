"""Data sets that are tables of tensors: a batch is taken out of them at once, with the same numbers
that collating the samples one by one gives.

Tables are TensorDataset, torchvision's MNIST family with ToTensor and Normalize, and Subsets.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Subset, TensorDataset, default_collate

_ROWS = 256  # converted at a time


def columns_of(dataset: Any) -> list[torch.Tensor] | None:
    """The tensors whose rows are a data set's samples; None: it is no table."""
    if type(dataset) is Subset:
        columns = columns_of(dataset.dataset)
        if columns is None:
            return None
        rows = torch.as_tensor(list(dataset.indices), dtype=torch.int64)
        return [column.index_select(0, rows) for column in columns]
    if type(dataset) is TensorDataset:
        return list(dataset.tensors) if all(not column.requires_grad for column in
                                            dataset.tensors) else None
    return _digits(dataset)


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
    for begin in range(0, len(images), _ROWS):
        part = dataset.data[begin:begin + _ROWS, None].to(torch.float32).div_(255)
        for mean, std in steps:
            part.sub_(mean).div_(std)
        images[begin:begin + _ROWS] = part
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
        self.versions: list[int] = []
        self.drawn = False
        self.usable = loader.batch_sampler is not None and \
            loader.collate_fn is default_collate and loader.worker_init_fn is None and \
            not loader.pin_memory and loader.timeout == 0

    def ready(self, dataset: Any) -> bool:
        """Whether the data set is a table; converts it at the first call, and again if its
        tensors have changed."""
        if not self.usable:
            return False
        versions = [value._version for value in _sources(dataset)]
        if self.columns is None or versions != self.versions:
            self.columns, self.versions = columns_of(dataset), versions
            self.usable = self.columns is not None
        return self.usable

    def batches(self, loader: Any) -> Iterator[list[torch.Tensor]]:
        """Draws the same random numbers as PyTorch's loader."""
        assert self.columns is not None
        if not (loader.persistent_workers and self.drawn):
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
            self.drawn = True
        for rows in loader.batch_sampler:
            index = torch.tensor(rows)
            yield [column.index_select(0, index) for column in self.columns]


def _sources(dataset: Any) -> list[torch.Tensor]:
    """The tensors that a data set is made of."""
    if type(dataset) is Subset:
        return _sources(dataset.dataset)
    found = list(getattr(dataset, "tensors", ())) + [getattr(dataset, "data", None),
                                                     getattr(dataset, "targets", None)]
    return [value for value in found if isinstance(value, torch.Tensor)]
