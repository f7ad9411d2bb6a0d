"""python -m sonde: the command."""

import os
import shutil
import sys


def main() -> None:
    """Runs the command `sonde`: the package's own, or the one in the path."""
    own = os.path.join(os.path.dirname(__file__), "bin", "sonde")
    command = own if os.path.exists(own) else shutil.which("sonde")
    if command is None or os.path.realpath(command) == os.path.realpath(sys.argv[0]):
        sys.exit("error: the package has no command (expected sonde/bin/sonde)")
    os.execv(command, ["sonde", *sys.argv[1:]])


if __name__ == "__main__":
    main()
