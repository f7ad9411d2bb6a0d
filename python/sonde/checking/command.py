"""sonde check: runs a program to its first training step, and checks it there.

The program runs as it stands, in this process, on a tape (tape.py). At the first step of each
optimizer after a backward pass (without optimizers: at the first backward pass) the networks of
the loss are checked, with the loss computed again from the tape. The program ends there, or
after some more steps if another optimizer makes none.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import (register_optimizer_step_post_hook,
                                   register_optimizer_step_pre_hook)

from . import check_problem, graphs, places, replay
from .properties import listed, said
from .result import Result, completed
from .result import joined as joined_results
from .tape import Loss, Tape

_IDLE = 10  # steps without a backward pass, before the program ends

_OTHERS = 200  # the same, while another optimizer has made no step
_ALONE = ("output_on_input", "mixing", "batch", "deterministic", "modes")  # of one network's call
_REST = 0.3  # of the time of a check, which computing the loss again leaves at least


class Ended(BaseException):
    """Ends the program: no `except Exception` of it holds it up."""


class Session:
    """A program on its way to the first training step of each of its optimizers."""

    def __init__(self, seconds: float):
        self.seconds, self.tape = seconds, Tape()
        self.results: list[tuple[str, Result]] = []  # with the line of the step
        self.why = ""
        self.stepping: torch.optim.Optimizer | None = None
        self.steps = 0  # since a check, or without a backward pass
        self.checked: list[torch.optim.Optimizer] = []
        self.last_check = 0.0
        self.checking = self.over = False
        self.process, self.processes = os.getpid(), 0  # how many others it started
        self.mail = tempfile.TemporaryFile()  # results of processes that are copies of this one
        self.tape.on_backward = self._after_backward

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        hooks = [register_optimizer_step_pre_hook(self._before_step),
                 register_optimizer_step_post_hook(self._after_step)]
        start = BaseProcess.start

        def started(process: Any) -> None:
            self.processes += 1
            start(process)

        BaseProcess.start = started  # type: ignore[method-assign]
        try:
            with self.tape.calls_heard():
                yield
        finally:
            BaseProcess.start = start  # type: ignore[method-assign]
            for hook in hooks:
                hook.remove()

    # --- events of the program ----------------------------------------------------------------

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        if self.checking:
            return
        self._end_again()
        self._look(optimizer)
        self.stepping = optimizer

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if self.checking:
            return
        self.stepping = None
        self.steps += 1
        late = self.results and time.monotonic() - self.last_check > self.seconds
        if self.steps >= (_OTHERS if self.results else _IDLE) or late:
            self.why = f"{type(optimizer).__name__} made {_IDLE} steps without a backward pass"
            self._end()

    def _after_backward(self) -> None:
        self._end_again()
        if self.stepping is not None:  # in the closure of a step
            self._look(self.stepping)
        if len(self.tape.losses) == 1 and not alive(torch.optim.Optimizer):
            self._check(None)

    def _end(self) -> None:
        self.over = True
        if os.getpid() != self.process:
            os.write(self.mail.fileno(), pickle.dumps((self.results, self.why)))
            os._exit(0)
        raise Ended

    def read_mail(self) -> None:
        """Takes the result of the first process that sent one, if this one has none."""
        self.mail.seek(0)
        with contextlib.suppress(EOFError):
            if not self.results:
                self.results, self.why = pickle.load(self.mail)

    def _end_again(self) -> None:
        """A bare `except:` of the program may have held up the end."""
        if self.over:
            raise Ended

    # --- the check ----------------------------------------------------------------------------

    def _look(self, optimizer: torch.optim.Optimizer) -> None:
        """Checks an optimizer that is new, unless its losses were those of the one before."""
        if any(one is optimizer for one in self.checked):
            self.tape.losses.clear()
            return
        if self.tape.losses:
            self._check(optimizer)
        elif self.results:
            self._go_on(optimizer)

    def _check(self, optimizer: torch.optim.Optimizer | None) -> None:
        self.tape.busy = self.checking = True
        try:
            self._judge(optimizer)
        finally:
            self.tape.busy = self.checking = False
        if optimizer is None:
            self._end()
        self.tape.losses.clear()
        self.steps, self.last_check = 0, time.monotonic()
        self._go_on(optimizer)

    def _go_on(self, optimizer: torch.optim.Optimizer) -> None:
        """Ends the program if it has no other optimizer that was not checked."""
        self.checked.append(optimizer)
        if not any(held(one) and all(one is not other for other in self.checked)
                   for one in alive(torch.optim.Optimizer)):
            self._end()

    def _judge(self, optimizer: torch.optim.Optimizer | None) -> None:
        model, ends, others = self._network(self.tape.losses, optimizer)
        if model is None:
            self.why = "the loss calls no module that has parameters which require a gradient"
            return
        losses = self._one_of_equals(self.tape.losses, ends)
        end = time.monotonic() + self.seconds
        whole = replay.problem_of(self.tape, losses, model, ends, end)
        whole.optimizer, whole.held_elsewhere = optimizer, others
        whole.notes += notes_of(whole, optimizer)
        result = check_problem(whole, max(end - time.monotonic(), _REST * self.seconds))
        parts = replay.parts_of(self.tape, losses, ends)
        result = completed(result, [
            (type(part.model).__name__, check_problem(part, _REST * self.seconds / len(parts), _ALONE))
            for part in parts])
        if result.passed or result.failed:
            self.results.append((places.here(), result))
        else:
            self.why = result.rows[0].message

    def _one_of_equals(self, losses: list[Loss], ends: set[int]) -> list[Loss]:
        """The first loss, if all have the same operations, as with accumulated gradients."""
        forms = {tuple((entry.function, id(entry.module))
                       for entry in self.tape.slice_of([loss], ends)
                       if entry.function is not torch.Tensor.detach) for loss in losses}
        return losses[:1] if len(forms) == 1 else losses

    def _network(self, losses: list[Loss], optimizer: torch.optim.Optimizer | None
                 ) -> tuple[nn.Module | None, set[int], set[int]]:
        """(the network to be checked, modules that count as constant, parameters that other
        optimizers hold). Constant is what only others train and the loss does not reach, as the
        generator behind detach()."""
        reached = leaves(losses)
        own = held(optimizer) if optimizer is not None else set()
        others = {key for one in alive(torch.optim.Optimizer) if one is not optimizer
                  for key in held(one)} - own
        called = {id(entry.module): entry.module
                  for entry in self.tape.slice_of(losses) if entry.function is None}
        if not called:
            called = {id(entry.module): entry.module for entry in self.tape.entries
                      if entry.function is None and reached & parameters(entry.module)}
        ends = {key for key, module in called.items()
                if parameters(module) & others and not parameters(module) & (own | reached)}
        chosen = [module for key, module in called.items() if key not in ends]
        return (joined(chosen, own) if chosen else None), ends, others


def joined(chosen: list[nn.Module], own: set[int]) -> nn.Module:
    """One module with all of them: the smallest of the program that also has all parameters of
    the optimizer, or a new one."""
    inside = set().union(*(parameters(module) for module in chosen))
    if len(chosen) == 1 and own <= inside:
        return chosen[0]
    ids = {id(module) for module in chosen}
    whole = [module for module in alive(nn.Module)
             if ids <= {id(one) for one in module.modules()} and own <= parameters(module)]
    if whole:
        return min(whole, key=lambda module: sum(1 for _ in module.modules()))
    if len(chosen) == 1:
        return chosen[0]
    return nn.ModuleDict({f"{type(module).__name__}_{number}" if number else type(module).__name__:
                          module for module, number in numbered(chosen)})


def numbered(modules: list[nn.Module]) -> list[tuple[nn.Module, int]]:
    """How many modules of the same class are in front of each."""
    kinds = [type(module).__name__ for module in modules]
    return [(module, kinds[:place].count(kinds[place])) for place, module in enumerate(modules)]


def alive(kind: type) -> list[Any]:
    """The objects of a class in the program."""
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]


def held(optimizer: Any) -> set[int]:
    return {id(value) for group in getattr(optimizer, "param_groups", ())
            for value in group["params"]}


def parameters(module: nn.Module) -> set[int]:
    return {id(value) for value in module.parameters()}


def leaves(losses: list[Loss]) -> set[int]:
    return {id(leaf) for loss in losses for leaf in graphs.leaves_of(loss.tensor)}


def notes_of(whole: Any, optimizer: torch.optim.Optimizer | None) -> list[str]:
    """Where the program was, and what it gave the network."""
    at = "the first backward pass" if optimizer is None else \
        f"the first step of {type(optimizer).__name__}"
    inputs = [f"{name} {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
              for call in whole.calls for name, value in call.named()]
    notes = [f"checked at {at}{f' ({places.here()})' if places.here() else ''}: {type(whole.model).__name__}" +
             (f" of {listed(inputs)}" if inputs else "")]
    return notes + ([f"without the loss: {whole.why}"] if whole.loss_from is None and whole.why
                    else [])


# --- the command ------------------------------------------------------------------------------


def run(arguments: list[str], run_script: Callable[[list[str]], None]) -> int:
    """Checks a program, prints the result, and returns the exit code."""
    given = parsed(arguments)
    script = given.program[0]
    if script != "-m" and not os.path.exists(script):
        print(f"sonde: error: {script}: no such file (expected a program in Python)",
              file=sys.stderr)
        return 2
    if script.endswith(".ipynb"):
        print(f"sonde: error: {script}: a notebook (expected a program in Python, as jupyter "
              "nbconvert --to script writes it)", file=sys.stderr)
        return 2
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # the loss is computed again by operations
    session = Session(given.seconds)
    output = contextlib.redirect_stdout(sys.stderr) if given.json else contextlib.nullcontext()
    ended = ""
    try:
        with output, session.listening():
            run_script(given.program)
    except Ended:
        pass
    except SystemExit as status:
        ended = f"the program ended with {status.code!r} before a training step" if status.code else ""
    except BaseException as problem:  # of the program's own code
        if not session.results:
            print_problem(problem)
        ended = f"the program raised {said(problem)} before a training step"
    sys.stdout.flush()
    session.read_mail()
    if not session.results:
        why = session.why or ended or \
            f"the program ended before a training step: {never(session)}"
        print(json.dumps({"passed": None, "why": why}, indent=2) if given.json else
              f"could not check: {why}")
        return 2
    result = joined_results(session.results)
    print(result.to_json() if given.json else result)
    return 0 if result else 1


def never(session: Session) -> str:
    """How far training came."""
    if session.tape.losses:
        return "backward() was called, but no optimizer made a step"
    called = [entry.module for entry in session.tape.entries if entry.function is None]
    if called:
        return f"{type(called[0]).__name__} was called with gradients, but backward() was not"
    if session.tape.other_thread:
        return "its networks are called in another thread, whose operations are not seen; make it " \
               "train in the main thread"
    if session.processes:
        return f"it started {session.processes} other processes, which are checked only if they " \
               "are forked; make it train in this one"
    return "no module with parameters was called with gradients"


def print_problem(problem: BaseException) -> None:
    """The traceback, without the lines that run the program."""
    whole = traceback.TracebackException.from_exception(problem)
    chain = [whole]
    for one in chain:
        one.stack = traceback.StackSummary.from_list(
            [frame for frame in one.stack
             if not frame.filename.startswith((places.SONDE, "<frozen runpy"))])
        chain += [other for other in (one.__cause__, one.__context__) if other is not None]
    print("".join(whole.format()), end="", file=sys.stderr)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sonde check", usage="%(prog)s [--json] [--seconds N] SCRIPT [ARGUMENT]...\n"
        "       %(prog)s [--json] [--seconds N] -m MODULE [ARGUMENT]...",
        description="runs a program to its first training step, and tests there what a network "
        "must have; exits with 0 if all passed, 1 if a property failed, 2 if it could not check")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--seconds", type=seconds, default=30.0, metavar="N",
                        help="the time of the check, without the program's own (30)")
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    module = next((i for i, word in enumerate(arguments) if word in ("-m", "--module")),
                  len(arguments))
    given = parser.parse_args(arguments[:module])
    if not given.program and arguments[module:]:
        arguments = [*arguments[:module], "-m", *arguments[module + 1:]]
    given.program += arguments[module:]
    if not given.program or given.program == ["-m"]:
        parser.error("no program (expected a script, or -m and a module)")
    return given


def seconds(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} (expected a number above 0)")
    return value
