"""python -m sonde: the command; `python -m sonde watch` runs a program and watches it; `python -m
sonde check` checks a program at its first training step; and `python -m sonde run` runs programs
written for smdebug or poptorch."""

import os
import runpy
import shutil
import sys

_USAGE = """Usage: python -m sonde run SCRIPT [ARGUMENT]...
       python -m sonde run -m MODULE [ARGUMENT]...

runs a program in Python in which the names smdebug and poptorch are Sonde's"""


def run_command(arguments: list[str]) -> None:
    """Becomes the command `sonde`: the package's own, or the one in the path."""
    own = os.path.join(os.path.dirname(__file__), "bin", "sonde")
    command = own if os.path.exists(own) else shutil.which("sonde")
    if command is None or os.path.realpath(command) == os.path.realpath(sys.argv[0]):
        sys.exit("error: the package has no command (expected sonde/bin/sonde)")
    sys.stdout.flush()
    os.execv(command, ["sonde", *arguments])


def compat_folders() -> list[str]:
    """Folders of the packages that give old names to Sonde."""
    home = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compat")
    return [os.path.join(home, name) for name in sorted(os.listdir(home))] \
        if os.path.isdir(home) else []


def run_program(arguments: list[str]) -> None:
    """Runs a script or module with those names, in this process and its children."""
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        sys.exit(_USAGE if not arguments or arguments == ["-m"] else print(_USAGE))
    folders = compat_folders()
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
    run_script(arguments, folders)


def run_script(arguments: list[str], folders: list[str]) -> None:
    """Runs a script or, after -m, a module as Python would, with more folders of packages."""
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0:1] = [*folders, os.getcwd()]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    script = arguments[0]
    if not os.path.exists(script):
        sys.exit(f"error: {script}: no such file (expected a program in Python)")
    sys.argv = arguments
    sys.path[0:1] = [*folders, os.path.dirname(os.path.abspath(script))]
    runpy.run_path(script, run_name="__main__")


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        run_program(sys.argv[2:])
    elif sys.argv[1:2] == ["watch"]:
        from .launch import run
        run(sys.argv[2:])
    elif sys.argv[1:2] == ["check"]:
        from .checking import command
        sys.exit(command.run(sys.argv[2:], lambda arguments: run_script(arguments, [])))
    else:
        run_command(sys.argv[1:])


if __name__ == "__main__":
    main()
