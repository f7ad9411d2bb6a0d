"""DataLoader: PyTorch's, with batches large enough for a call of the model."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import torch

from .enums import DataLoaderMode
from .options import Options
from .processes import Part
from .tables import Table

_log = logging.getLogger("poptorch")


class DataLoader(torch.utils.data.DataLoader):
    """Batches of batch_size * device iterations * replicas * gradient accumulation samples.
    The options freeze. Asynchronous modes load ahead in num_workers processes (at least one).
    In AsyncRebatched the processes of an IterableDataset load rebatched_worker_size samples
    each (a whole batch), which are joined to whole batches: fewer samples than one batch are
    lost, not fewer than one a process. Tables (tables.py) are read without processes, in any
    mode."""

    def __init__(self, options: Options, dataset: Any, batch_size: int | None = 1,
                 shuffle: bool = False, num_workers: int = 0, drop_last: bool = True,
                 persistent_workers: bool | None = None,
                 auto_distributed_partitioning: bool = True,
                 mode: DataLoaderMode = DataLoaderMode.Sync,
                 async_options: dict[str, Any] | None = None,
                 rebatched_worker_size: int | None = None, batch_sampler: Any = None,
                 **kwargs: Any):
        if not isinstance(options, Options):
            raise ValueError(f"options: {options!r} (expected poptorch.Options)")
        options._freeze()
        self.options, self.mode = options, mode
        calls = options.device_iterations * options.replication_factor * \
            options.Training.gradient_accumulation
        self._combined = None if batch_size is None else batch_size * calls
        if mode is not DataLoaderMode.Sync:
            num_workers = max(num_workers, 1)
        self._rebatched = self._rebatches(dataset, drop_last, rebatched_worker_size)
        self._whole = drop_last
        if batch_sampler is not None:
            if batch_size not in (None, 1) or shuffle:
                raise ValueError("batch_sampler: given with batch_size or shuffle (expected one "
                                 "of them)")
            kwargs["batch_sampler"] = _Joined(batch_sampler, calls)
            if options.Distributed.numProcesses > 1 and auto_distributed_partitioning:
                raise ValueError("batch_sampler: given with several processes (expected "
                                 "auto_distributed_partitioning=False)")
        else:
            kwargs.update(batch_size=self._rebatched or self._combined, shuffle=shuffle,
                          drop_last=drop_last and batch_size is not None and
                          not self._rebatched)
            if not drop_last:
                _log.warning("drop_last=False: a last batch of another size does not fit the "
                             "model that was compiled")
        if batch_sampler is None and auto_distributed_partitioning and \
                options.Distributed.numProcesses > 1:
            kwargs["sampler"] = _part(options, dataset, self._combined if drop_last else None,
                                      kwargs.pop("shuffle"))
        super().__init__(dataset, num_workers=num_workers,
                         persistent_workers=num_workers > 0 if persistent_workers is None
                         else persistent_workers, **kwargs)
        self._table = Table(self)

    def _rebatches(self, dataset: Any, drop_last: bool, size: int | None) -> int | None:
        """Samples that a process loads at a time, if they are joined; None: they are not."""
        if size is not None and (self._combined is None or not 1 <= size <= self._combined):
            raise ValueError(f"rebatched_worker_size: {size} (expected 1 to the "
                             f"{self._combined} samples of a call)")
        joined = self.mode is DataLoaderMode.AsyncRebatched or (
            self.mode is DataLoaderMode.Async and not drop_last and (self._combined or 0) > 1)
        if not joined or not isinstance(dataset, torch.utils.data.IterableDataset):
            return None
        return size or self._combined

    def __iter__(self) -> Any:
        if self._table.ready(self.dataset):
            return self._table.batches(self)
        if self._rebatched:
            return _rebatch(super().__iter__(), self._combined or 1, self._whole)
        return super().__iter__()

    @property
    def combinedBatchSize(self) -> int | None:
        """Samples of one call."""
        return self._combined

    def terminate(self) -> None:
        """Ends the processes that load ahead."""
        self._iterator, self._table.drawn = None, False

    def __enter__(self) -> "DataLoader":
        return self

    def __exit__(self, *rest: object) -> None:
        self.terminate()


def _part(options: Options, dataset: Any, whole: int | None, shuffle: bool) -> Part:
    """The samples of this process."""
    if isinstance(dataset, torch.utils.data.IterableDataset):
        raise ValueError("dataset: an IterableDataset and several processes (expected "
                         "auto_distributed_partitioning=False)")
    if shuffle and options.random_seed is None:
        raise ValueError("shuffle: True with several processes (expected Options.randomSeed, so "
                         "that all draw the same order)")
    return Part(len(dataset), options.Distributed.processId, options.Distributed.numProcesses,
                whole, options.random_seed if shuffle else None)


def _like(sample: Any, values: list[Any]) -> Any:
    """A tuple, named tuple or list of the same kind."""
    return type(sample)(*values) if hasattr(sample, "_fields") else type(sample)(values)


def _sizes(batch: Any, most: int) -> tuple[Any, Any]:
    """The first samples of a batch, at most so many, and the others (None: there are none)."""
    if torch.is_tensor(batch):
        return batch[:most], batch[most:] if len(batch) > most else None
    if isinstance(batch, dict):
        parts = {key: _sizes(value, most) for key, value in batch.items()}
        first = {key: part[0] for key, part in parts.items()}
        rest = {key: part[1] for key, part in parts.items()}
        return first, None if any(part is None for part in rest.values()) else rest
    if isinstance(batch, (tuple, list)):
        pairs = [_sizes(value, most) for value in batch]
        others = [part[1] for part in pairs]
        return _like(batch, [part[0] for part in pairs]), \
            None if any(part is None for part in others) else _like(batch, others)
    raise ValueError(f"samples: {type(batch).__name__} (expected tensors, or tuples, lists or "
                     "dicts of tensors, to join batches of)")


def _count(batch: Any) -> int:
    """Samples of a batch."""
    while not torch.is_tensor(batch):
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return len(batch)


def _cat(batches: list[Any]) -> Any:
    """Batches as one."""
    first = batches[0]
    if torch.is_tensor(first):
        return torch.cat(batches)
    if isinstance(first, dict):
        return {key: _cat([batch[key] for batch in batches]) for key in first}
    return _like(first, [_cat(list(parts)) for parts in zip(*batches)])


def _rebatch(batches: Any, size: int, whole: bool) -> Iterator[Any]:
    """Batches of that size out of batches of any; with whole, no smaller last one."""
    held: list[Any] = []
    count = 0
    for batch in batches:
        rest = batch
        while rest is not None:
            first, rest = _sizes(rest, size - count)
            held, count = held + [first], count + _count(first)
            if count == size:
                yield _cat(held)
                held, count = [], 0
    if held and not whole:
        yield _cat(held)


class _Joined:
    """Batches of a sampler, several of them as one."""

    def __init__(self, sampler: Any, count: int):
        self.sampler, self.count = sampler, count

    def __iter__(self) -> Iterator[list[int]]:
        joined: list[int] = []
        held = 0
        for batch in self.sampler:
            joined, held = joined + list(batch), held + 1
            if held == self.count:
                yield joined
                joined, held = [], 0

    def __len__(self) -> int:
        return len(self.sampler) // self.count


class AsynchronousDataAccessor:
    """The elements of a data set or loader. They are not loaded ahead: a loader's processes are
    those that its num_workers says."""

    def __init__(self, dataset: Any, buffer_size: int = 3, miss_sleep_time_in_ms: float = 0.1,
                 load_indefinitely: bool = True, early_preload: bool = False,
                 sharing_strategy: Any = None, rebatched_size: int | None = None):
        if rebatched_size is not None:
            raise ValueError(f"rebatched_size: {rebatched_size} (expected None: DataLoader makes "
                             "batches of the right size)")
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        if hasattr(self._dataset, "__iter__"):
            return iter(self._dataset)
        return (self._dataset[i] for i in range(len(self._dataset)))

    def __len__(self) -> int:
        return len(self._dataset)

    def terminate(self) -> None:
        if hasattr(self._dataset, "terminate"):
            self._dataset.terminate()

    def __enter__(self) -> "AsynchronousDataAccessor":
        return self

    def __exit__(self, *rest: object) -> None:
        self.terminate()
