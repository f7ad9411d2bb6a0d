"""Compiled models in files: what was compiled, its options, parameters and the optimizer's state.

A file is Python's pickle, by torch.save: open files of people you trust.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import warnings
from collections.abc import Callable
from typing import Any

import torch

import sonde

from .executor import PoplarExecutor
from .ops import Error
from .options import Options

_log = logging.getLogger("poptorch")


def path_of_model(path: str) -> str:
    """A folder means the file model.poptorch in it."""
    if os.path.isdir(path) or path.endswith(os.sep):
        path = os.path.join(path, "model.poptorch")
        _log.warning("a folder was given: the model is %s", path)
    return path


def build() -> str:
    """What wrote a file: files of another build are refused."""
    digest = hashlib.sha256()
    folder = os.path.dirname(__file__)
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py"):
            with open(os.path.join(folder, name), "rb") as file:
                digest.update(file.read())
    return f"Sonde {sonde.__version__} with PyTorch {torch.__version__}, " \
           f"build {digest.hexdigest()[:12]}"


def read(path: str) -> dict[str, Any]:
    """What save wrote. Error: another program wrote the file, or another build."""
    path = path_of_model(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of how torch reads its own tree of outputs
        try:
            outer = torch.load(path, weights_only=True)
        except OSError:
            raise
        except Exception as problem:
            raise Error(f"{path}: no model that this version saved (expected a file of "
                        f"PoplarExecutor.save): {type(problem).__name__}") from problem
        if not isinstance(outer, dict) or "poptorch" not in outer or "build" not in outer:
            raise Error(f"{path}: no model that this version saved (expected a file of "
                        "PoplarExecutor.save)")
        if outer["build"] != build():
            raise Error(f"{path}: saved by {outer['build']} (expected {build()}): wrap the module "
                        "and compile it again")
        return torch.load(io.BytesIO(outer["poptorch"].numpy().tobytes()), weights_only=False)


def save(executor: PoplarExecutor, path: str, export_model: bool, save_rng_state: bool) -> None:
    path = path_of_model(path)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    content = {"training": executor._training,
               "options": executor._options.clone(), "compiled": executor._compiled_parts(),
               "rng": torch.get_rng_state() if save_rng_state else None}
    if export_model:
        content.update(model=executor._model, optimizer=executor._optimizer)
    inner = io.BytesIO()
    torch.save(content, inner)
    # the build stands outside, where it is read before what only it can read
    torch.save({"build": build(),
                "poptorch": torch.frombuffer(inner.getbuffer(), dtype=torch.uint8)}, path)


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
