"""Compiled models in files: what was compiled, its options, parameters and the optimiser's state.

A file is Python's pickle, by torch.save: open files of people you trust.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable
from typing import Any

import torch

from .executor import PoplarExecutor
from .ops import Error
from .options import Options

_log = logging.getLogger("poptorch")
_FORMAT = 1


def path_of_model(path: str) -> str:
    """A folder means the file model.poptorch in it."""
    if os.path.isdir(path) or path.endswith(os.sep):
        path = os.path.join(path, "model.poptorch")
        _log.warning("a folder was given: the model is %s", path)
    return path


def read(path: str) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of how torch reads its own tree of outputs
        content = torch.load(path_of_model(path), weights_only=False)
    if not isinstance(content, dict) or content.get("poptorch") != _FORMAT:
        raise Error(f"{path}: no model that this version saved")
    return content


def save(executor: PoplarExecutor, path: str, export_model: bool, save_rng_state: bool) -> None:
    path = path_of_model(path)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    content = {"poptorch": _FORMAT, "training": executor._training,
               "options": executor._options.clone(), "compiled": executor._compiled_parts(),
               "rng": torch.get_rng_state() if save_rng_state else None}
    if export_model:
        content.update(model=executor._model, optimizer=executor._optimizer)
    torch.save(content, path)


def load(filename: str, edit_opts_fn: Callable[[Options], Any] | None = None) -> PoplarExecutor:
    """The executor that `save` wrote with its model, ready to be called. edit_opts_fn may change
    its options first."""
    content = read(filename)
    if "model" not in content:
        raise AssertionError(f"{filename} holds no model: wrap it yourself, then call "
                             "loadExecutable")
    options = content["options"].clone()
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    executor = PoplarExecutor(content["model"], options, content["training"],
                              content["optimizer"])
    executor._load_parts(content)
    return executor
