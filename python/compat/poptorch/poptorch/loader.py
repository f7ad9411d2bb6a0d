"""DataLoader: PyTorch's, with batches large enough for a call of the model."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import torch

from .enums import DataLoaderMode
from .options import Options
from .processes import Part
from .rebatching import rebatch
from .tables import Table

_log = logging.getLogger("poptorch")


_ASYNC = ("buffer_size", "miss_sleep_time_in_ms", "load_indefinitely", "early_preload",
          "sharing_strategy")


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
        calls = options.device_iterations * options.input_slices * \
            options.Training.gradient_accumulation
        self._combined = None if batch_size is None else batch_size * calls
        if mode is not DataLoaderMode.Sync:
            num_workers = max(num_workers, 1)
        preload = self._read_async(async_options or {}, num_workers, kwargs)
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
        self._early = self._fresh() if preload else None

    def _read_async(self, given: dict[str, Any], workers: int, kwargs: dict[str, Any]) -> bool:
        """Reads async_options, the arguments of AsynchronousDataAccessor: buffer_size batches are
        loaded ahead. Returns whether loading begins at once."""
        unknown = set(given) - set(_ASYNC)
        if unknown or given and self.mode is DataLoaderMode.Sync:
            raise ValueError(f"async_options: {', '.join(sorted(unknown or given))} (expected "
                             f"{', '.join(_ASYNC)}, and mode Async or AsyncRebatched)")
        if "buffer_size" in given:
            kwargs.setdefault("prefetch_factor", max(-(-int(given["buffer_size"]) // workers), 1))
        return bool(given.get("early_preload", False))

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
        early, self._early = self._early, None
        return early if early is not None else self._fresh()

    def _fresh(self) -> Any:
        """The batches of an epoch."""
        if self._table.ready(self.dataset):
            return self._table.batches(self)
        if self._rebatched:
            return rebatch(super().__iter__(), self._combined or 1, self._whole)
        return super().__iter__()

    @property
    def combinedBatchSize(self) -> int | None:
        """Samples of one call."""
        return self._combined

    def terminate(self) -> None:
        """Ends the processes that load ahead."""
        self._iterator, self._early, self._table.drawn = None, None, False

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
