"""Modules that the command starts as programs: python -m sonde.<module> ARGUMENT...

A module ends with `command.run(main)`. An error becomes one line that the command reads, with
the code of <sonde/error.h>; a traceback is for mistakes of ours alone.
"""

import errno
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

CODES = {"SONDE_ENOMEM": 1, "SONDE_EINVAL": 2, "SONDE_EIO": 3, "SONDE_EFORMAT": 4,
         "SONDE_ENOTFOUND": 5, "SONDE_EEXIST": 6, "SONDE_ESHAPE": 7, "SONDE_EDTYPE": 8,
         "SONDE_ERANGE": 9, "SONDE_ESTATE": 10, "SONDE_EUNSUPPORTED": 11}


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class Fault(Exception):
    """An error of a file or an argument: where, what was found, what is expected."""

    def __init__(self, code: str, where: str, found: str, expected: str = "") -> None:
        super().__init__(f"{where}: {found}" + (f" (expected {expected})" if expected else ""))
        self.code, self.where, self.found, self.expected = code, where, found, expected


def needs(package: str, extra: str) -> NoReturn:
    """Raises the error that a package of an extra is not installed."""
    fault = Fault("SONDE_ENOTFOUND", sys.executable, f"the Python package {package} is missing",
                  f"pip install 'sonde[{extra}]', or pip install {package}")
    if sys.argv[:1] == ["-m"]:  # while python -m imports the package of a module
        _end(fault.code, fault.where, fault.expected, fault.found)
    raise fault


def _end(code: str, where: str, expected: str, found: str) -> NoReturn:
    line = [" ".join(str(part).split()) for part in (where, expected, found)]
    sys.stdout.flush()
    print("sonde-error", CODES.get(code, 3), *line, sep="\t", file=sys.stderr)
    sys.exit(1)


def run(main: Callable[[list[str]], None]) -> None:
    """Calls main with the arguments of the program."""
    try:
        main(sys.argv[1:])
    except OSError as error:
        if hasattr(error, "found"):
            _end(error.code, error.where, error.expected, error.found)
        missing = isinstance(error, FileNotFoundError)
        what = "cannot be written" if error.errno in FULL else "cannot open"
        _end("SONDE_ENOTFOUND" if missing else "SONDE_EIO", error.filename or "",
             "", f"{what}: {error.strerror}")
    except MemoryError:
        _end("SONDE_ENOMEM", "", "", "out of memory")
    except Exception as error:
        if not hasattr(error, "found"):
            traceback.print_exc()
            _end("SONDE_EIO", "", "", f"{type(error).__name__}: {error}")
        _end(error.code, error.where, error.expected, error.found)
