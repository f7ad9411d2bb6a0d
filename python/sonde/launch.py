"""python -m sonde watch [OPTION]... PROGRAM [ARGUMENT]...: runs a program in Python, watched.

The program runs as `python PROGRAM ARGUMENT...` would: as __main__, with its arguments and folder;
its exit code, and its tracebacks, are its own. automatic.py finds what it trains.
"""

from __future__ import annotations

import atexit
import io
import os
import runpy
import sys
import types
from importlib.machinery import SourceFileLoader
from typing import Any, NoReturn

from .automatic import Automatic

_USAGE = """Usage: python -m sonde watch [OPTION]... PROGRAM [ARGUMENT]...
       python -m sonde watch [OPTION]... -m MODULE [ARGUMENT]...

runs a training program in Python and watches what it trains

  --run FOLDER     record in this folder; if a run is there, in one with a number
  --overwrite      replace a run that is there and has ended
  --every N        observe every N-th step (default: as sonde.watch does)
  --rules RULES    judge with these rules: Name:parameter=value,...; none: no rule"""
_ERROR = 2  # the exit code of the command


def _fail(text: str) -> NoReturn:
    print(f"sonde: error: {text}", file=sys.stderr)
    sys.exit(_ERROR)


def split(arguments: list[str]) -> tuple[dict[str, Any], list[str], bool]:
    """The options of sonde.watch; the program and its arguments; whether it is a module."""
    options: dict[str, Any] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).partition("=")
        if name in ("-h", "--help"):
            print(_USAGE)
            sys.exit(0)
        if name == "--":
            break
        if name == "--overwrite" and not equals:
            options["overwrite"] = True
            continue
        if name not in ("-m", "--module", "--run", "--every", "--rules"):
            _fail(f"watch: unknown option '{name}'; 'sonde watch --help' lists them")
        if not equals:
            if not rest:
                _fail(f"watch: option '{name}' needs a value")
            value = rest.pop(0)
        if name in ("-m", "--module"):
            return options, [value, *rest], True
        options[name[2:]] = _value(name, value)
    if not rest:
        _fail("watch: expected PROGRAM [ARGUMENT]...")
    return options, rest, False


def _value(name: str, value: str) -> Any:
    if name == "--every":
        if not value.isascii() or not value.isdigit():
            _fail(f"--every: '{value}' (expected a number of steps)")
        return int(value)
    if name == "--run" and not value:
        _fail("--run: is empty (expected a folder)")
    return None if name == "--rules" and value == "none" else value


def run(arguments: list[str]) -> None:
    """Runs the program. What it raises, it raises."""
    options, program, is_module = split(arguments)
    if not is_module and not os.path.exists(program[0]):
        _fail(f"{program[0]}: no such file (expected a program in Python)")
    automatic = Automatic(**options)
    automatic.start()
    atexit.register(_say_nothing_seen, automatic, os.getpid())
    sys.argv = program
    try:
        if is_module:
            sys.path[:0 if sys.flags.safe_path else 1] = [] if sys.flags.safe_path else [os.getcwd()]
            runpy.run_module(program[0], run_name="__main__", alter_sys=True)
        elif os.path.isfile(program[0]) and not program[0].endswith((".zip", ".pyz", ".pyc")):
            _run_script(program[0])
        else:
            sys.path[:0 if sys.flags.safe_path else 1] = []
            runpy.run_path(program[0], run_name="__main__")
    except SystemExit:
        raise
    except BaseException:
        hook = sys.excepthook
        sys.excepthook = lambda kind, value, trace: _show(hook, kind, value, trace)
        raise


def _run_script(script: str) -> None:
    """The program stays __main__ until the interpreter ends, as its threads and its functions
    that run at exit expect."""
    path = os.path.abspath(script)
    if not sys.flags.safe_path:
        sys.path[0:1] = [os.path.dirname(os.path.realpath(path))]
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    module = types.ModuleType("__main__")
    vars(module).update(__file__=path, __cached__=None, __builtins__=__builtins__,
                        __loader__=SourceFileLoader("__main__", path))
    _kept.append(sys.modules["__main__"])
    sys.modules["__main__"] = module
    exec(code, vars(module))


_kept: list[Any] = []


def _program_frames(trace: Any) -> Any:
    """A traceback that begins with the program, without the calls that record its steps."""
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    files = [one.tb_frame.f_code.co_filename for one in frames]
    begin = len(files) - files[::-1].index(__file__) if __file__ in files else len(files)
    found = None
    for one, file in reversed(list(zip(frames, files))[begin:]):
        if os.path.dirname(file) != _RECORDING:
            found = types.TracebackType(found, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return found


_RECORDING = os.path.join(os.path.dirname(__file__), "program")


def _show(hook: Any, kind: Any, value: BaseException, trace: Any) -> None:
    found = _program_frames(trace)
    sys.excepthook, sys.last_traceback = hook, found
    value.__traceback__ = found
    hook(kind, value, found)


def _say_nothing_seen(automatic: Automatic, process: int) -> None:
    if os.getpid() == process and not (automatic.count or automatic.aside or automatic.failed):
        print("sonde: nothing was watched: no model was called in training mode whose parameters "
              "an optimizer of PyTorch's holds", file=sys.stderr)
