"""AsynchronousDataAccessor: the elements of a data set or loader, loaded ahead by a thread."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from .rebatching import rebatch

_END = object()


class _Ahead:
    """A thread that takes the elements of an iterator, at most so many before they are used."""

    def __init__(self, elements: Iterator[Any], room: int):
        self.used = False
        self._room, self._stopped = threading.Semaphore(room), False
        self._ready: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._load, args=(elements,), daemon=True)
        self._thread.start()

    def _load(self, elements: Iterator[Any]) -> None:
        while True:
            self._room.acquire()
            if self._stopped:
                return
            try:
                self._ready.put((next(elements), None))
            except StopIteration:
                self._ready.put((_END, None))
                return
            except BaseException as problem:
                self._ready.put((_END, problem))
                return

    def take(self) -> Any:
        """The next element; _END. RuntimeError: the data set failed."""
        self.used = True
        element, problem = self._ready.get()
        self._room.release()
        if problem is not None:
            raise RuntimeError("An error occurred in the data fetcher: "
                               f"{type(problem).__name__}: {problem}") from problem
        return element

    def stop(self) -> None:
        self._stopped = True
        self._room.release()
        self._thread.join()


class AsynchronousDataAccessor:
    """The elements of a data set, or of any iterable, buffer_size of them loaded ahead by a thread.
    early_preload: from now on; otherwise from the first iteration on. load_indefinitely: an epoch
    that ends begins to load the next. rebatched_size: batches are joined to batches of so many
    samples. An iteration that was left begins again; terminate, or the end of the program, ends
    the thread."""

    def __init__(self, dataset: Any, buffer_size: int = 3, miss_sleep_time_in_ms: float = 0.1,
                 load_indefinitely: bool = True, early_preload: bool = False,
                 sharing_strategy: Any = None, rebatched_size: int | None = None):
        if not isinstance(buffer_size, int) or buffer_size < 1:
            raise ValueError(f"buffer_size: {buffer_size!r} (expected 1 or more)")
        if rebatched_size is not None and rebatched_size < 2:
            raise ValueError(f"rebatched_size: {rebatched_size} (expected 2 or more)")
        if hasattr(dataset, "__len__") and len(dataset) == 0:
            raise ValueError("The Dataset is empty")
        self._dataset, self._buffer_size = dataset, buffer_size
        self._rebatched_size, self._goes_on = rebatched_size, load_indefinitely
        self._ahead: _Ahead | None = None
        self._end: Any = None
        if early_preload:
            self._begin()

    def _begin(self) -> None:
        """Begins to load an epoch. Random numbers of its order are drawn here, in the thread that
        iterates."""
        self.terminate()
        elements = iter(self._dataset) if hasattr(self._dataset, "__iter__") else \
            (self._dataset[i] for i in range(len(self._dataset)))
        if self._rebatched_size is not None:
            elements = rebatch(elements, self._rebatched_size, True)
        self._ahead = _Ahead(elements, self._buffer_size)
        self._end = weakref.finalize(self, self._ahead.stop)

    def __iter__(self) -> "AsynchronousDataAccessor":
        if self._ahead is None or self._ahead.used:
            self._begin()
        return self

    def __next__(self) -> Any:
        if self._ahead is None:
            raise StopIteration
        element = self._ahead.take()
        if element is not _END:
            return element
        if self._goes_on:
            self._begin()
        else:
            self.terminate()
        raise StopIteration

    def __len__(self) -> int:
        return len(self._dataset)

    def terminate(self) -> None:
        """Ends the thread; the next iteration begins one."""
        if self._end is not None:
            self._end()
        self._ahead = self._end = None

    def __enter__(self) -> "AsynchronousDataAccessor":
        return self

    def __exit__(self, *rest: object) -> None:
        self.terminate()
