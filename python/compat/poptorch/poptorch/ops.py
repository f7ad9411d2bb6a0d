"""Functions that a model calls in forward."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch
from sonde import _sonde, watching


class Error(Exception):
    """A model that cannot be run."""

    @property
    def message(self) -> str:
        return str(self)

    @property
    def type(self) -> str:
        return type(self).__name__

    location = ""


class RecoverableError(Error):
    """Never raised: no device can be reset here."""

    recovery_action = ""


class UnrecoverableError(Error):
    """Never raised: no device can fail here."""


_FORMATS = ("auto", "fixed", "scientific", "none")
_running = False  # a wrapped model is being called
_quiet = False  # while a model is compiled
_losses: list[torch.Tensor] = []  # of identity_loss, in this micro-batch
_prints = 0
_blocks = 0  # without an id, in this forward
_exporting = False  # forward is called by torch.export
_library = torch.library.Library("poptorch", "DEF")  # the ops of a graph that is exported
_library.define("ipu_print_tensor(Tensor x, str title, bool gradient, int threshold, int edge_items,"
                " int width, int digits, str style, str separator, str opening, str closing)"
                " -> Tensor")
_library.define("identity_loss(Tensor x) -> Tensor")
_library.define("begin_block(str name, int? ipu) -> ()")
_library.impl("ipu_print_tensor", lambda x, *layout: x.clone(), "CompositeExplicitAutograd")
_library.impl("identity_loss", lambda x: x.clone(), "CompositeExplicitAutograd")
_library.impl("begin_block", lambda *block: None, "CompositeExplicitAutograd")


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """While torch.export calls forward: what it prints and marks becomes part of the graph."""
    global _exporting, _running, _blocks
    before = _running
    _exporting = _running = True
    _blocks = 0
    try:
        yield
    finally:
        _exporting, _running = False, before


@contextlib.contextmanager
def running(quiet: bool = False) -> Iterator[list[torch.Tensor]]:
    """While a wrapped model is called; yields the losses that identity_loss marks. quiet:
    nothing is printed."""
    global _running, _quiet, _prints
    before = (_running, _quiet)
    _running, _quiet = True, quiet
    _losses.clear()
    _prints = 0
    try:
        yield _losses
    finally:
        _running, _quiet = before


def begin_block(user_id: str | None, ipu_id: int | None) -> None:
    """A block begins, in a graph that is exported."""
    global _blocks
    if not _exporting:
        return
    if user_id is None:
        user_id, _blocks = str(_blocks), _blocks + 1
    torch.ops.poptorch.begin_block(str(user_id), ipu_id)


def isRunningOnIpu() -> bool:
    """Whether a wrapped model is being called."""
    return _running


def identity_loss(x: torch.Tensor, reduction: str | int) -> torch.Tensor:
    """Marks a tensor as the loss, after a reduction: "sum" (0), "mean" (1) or "none" (2)."""
    name = {0: "sum", 1: "mean", 2: "none"}.get(reduction, reduction)
    if name not in ("sum", "mean", "none"):
        raise ValueError(f"reduction: {reduction!r} (expected 'sum', 'mean' or 'none')")
    loss = x if name == "none" else getattr(x, str(name))()
    if _exporting:
        return torch.ops.poptorch.identity_loss(loss)
    if _running:
        _losses.append(loss)
    return loss


def ipu_print_tensor(tensor: torch.Tensor, title: str = "", print_gradient: bool = True,
                     summarize_threshold: int = 1000, edge_items: int = 3,
                     max_line_width: int = 80, digits: int = 4, float_format: str = "auto",
                     separator: str = ", ", open_bracket: str = "(", close_bracket: str = ")"
                     ) -> torch.Tensor:
    """Prints `title: value` to standard error, and in the backward pass the gradient as
    `title_gradient`. Returns the tensor."""
    global _prints
    if not isinstance(tensor, torch.Tensor):
        raise ValueError("ipu print tensor must take a torch.tensor argument.")
    layout = (summarize_threshold, edge_items, max_line_width, digits,
              _FORMATS[float_format] if isinstance(float_format, int) else float_format,
              separator, open_bracket, close_bracket)
    if _exporting:
        return torch.ops.poptorch.ipu_print_tensor(tensor, title, print_gradient, *layout)
    if _quiet:
        return tensor
    _prints += 1
    name = title or f"print:{_prints - 1}"

    def show(label: str, value: torch.Tensor) -> None:
        plain = watching._unwrap(value)
        text = _sonde.format_tensor(plain, len(label) + 2, *layout)
        print(f"{label}: {text}", file=sys.stderr, flush=True)

    show(name, tensor)
    if print_gradient and tensor.requires_grad:
        label = f"{title}_gradient" if title else f"Gradient___{name}"

        def on_gradient(gradient: torch.Tensor) -> None:
            show(label, gradient)

        tensor.register_hook(on_gradient)
    return tensor


def nop(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def recomputationCheckpoint(*tensors: torch.Tensor) -> Any:
    return tensors[0] if len(tensors) == 1 else tensors


def serializedMatMul(lhs: torch.Tensor, rhs: torch.Tensor, mode: Any = None, factor: int = 0,
                     keep_precision: bool = False) -> torch.Tensor:
    return lhs @ rhs


def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float
                         ) -> torch.Tensor:
    return tensor


def set_overlap_for_input(input_tensors: Any, mode: Any) -> Any:
    return input_tensors


def set_overlap_for_output(output_tensors: Any, mode: Any) -> Any:
    return output_tensors


def for_loop(count: int, body: Callable[..., Any], inputs: Any) -> list[torch.Tensor]:
    """body(*inputs), count times, each time with what it returned before."""
    values = _listed("for_loop", inputs)
    for _ in range(count):
        values = _returned(body(*values))
    return values


def cond(condition: torch.Tensor, then_body: Callable[..., Any], then_inputs: Any,
         else_body: Callable[..., Any], else_inputs: Any) -> list[torch.Tensor]:
    """then_body(*then_inputs) if the condition holds, else else_body(*else_inputs)."""
    body, inputs = (then_body, then_inputs) if bool(condition) else (else_body, else_inputs)
    return _returned(body(*_listed("cond", inputs)))


def _listed(name: str, values: Any) -> list[torch.Tensor]:
    if not isinstance(values, (list, tuple)):
        raise ValueError(f"{name}: inputs is {type(values).__name__} (expected a list of tensors)")
    return list(values)


def _returned(values: Any) -> list[torch.Tensor]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


def dynamic_slice(tensor: torch.Tensor, dim: int, start: Any, size: int, step: int = 1
                  ) -> torch.Tensor:
    """size elements of a dimension from start on, each step-th."""
    return tensor.narrow(dim, int(start), size)[(slice(None),) * (dim % tensor.dim())
                                                + (slice(None, None, step),)]


def dynamic_update(input: torch.Tensor, src: torch.Tensor, dim: int, start: Any, size: int
                   ) -> torch.Tensor:
    """A copy of input whose size elements of a dimension from start on are those of src."""
    changed = input.clone()
    changed.narrow(dim, int(start), size).copy_(src)
    return changed


class CPU:
    """A function of a model that runs on the host, as all of it does here."""

    def __init__(self, layer_to_call: Callable[..., Any], ID: str):
        self._layer_to_call, self._ID = layer_to_call, ID

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.execute(*args, **kwargs)

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        return self._layer_to_call(*args, **kwargs)


class UnusableError(Error):
    """A function of poptorch's that needs an IPU."""


def _unusable(name: str, why: str) -> NoReturn:
    at: Any = sys._getframe(2)
    raise UnusableError(f"{name}: {why} ({at.f_code.co_filename}:{at.f_lineno})")


def custom_op(inputs: Any, name: str, domain: str, domain_version: int, example_outputs: Any = None,
              attributes: Any = None) -> NoReturn:
    """Error: the op is a program for IPUs. Says at which line of the model it is called."""
    _unusable("custom_op", f"'{name}' of {domain} is a program for IPUs (expected its function in "
              "PyTorch)")


def ctc_beam_search_decoder(probs: torch.Tensor, lengths: torch.Tensor, blank: int = 0,
                            beam_width: int = 100, top_paths: int = 1) -> NoReturn:
    """Error: it is not here. Says at which line of the model it is called."""
    _unusable("ctc_beam_search_decoder", "it is not here (expected a decoder in PyTorch)")
