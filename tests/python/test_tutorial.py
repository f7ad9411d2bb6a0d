"""The program of docs/tutorial.md and each of its changes print what the page shows.

Blocks of the page: the first of `python` is the program (its first line names the file); a `diff` is
a change of it, and `console` blocks behind it are commands and their output, in the order in which
a terminal shows it. As on other pages, "..." stands for any lines or for the rest of a line, and numbers
for any numbers.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import os
import re
import subprocess
import sys

from harness import check, folder, main, program

BUILD = os.path.abspath(os.environ.get("SONDE_BUILD", "build/release"))
sys.path.insert(0, os.path.join(BUILD, "python"))
try:
    import sonde  # noqa: F401
    import torch  # noqa: F401
except ImportError as problem:
    print(problem)
    sys.exit(77)

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "docs"))
from pages import blocks_of, commands_of, is_output  # noqa: E402

PAGE = "docs/tutorial.md"
PROGRAMS = {"python": [sys.executable], "torchrun": [sys.executable, "-m", "torch.distributed.run"],
            "sonde": [os.path.join(BUILD, "bin", "sonde")]}
REMARK = re.compile(r"W\d{4} |\[W")  # of PyTorch's launcher and its libraries


def changed(text, diff):
    """A text after a change: each run of removed lines (or else the line above what is added) gives
    way to the added lines."""
    old, new = [], []
    for line in diff.lines + [""]:
        if line[:1] == "+":
            new.append(line[1:])
            continue
        if new:  # the change is complete
            before, after = ("".join(f"{row}\n" for row in rows) for rows in (old, new))
            if not old or text.count(before) != 1:
                diff.fail(f"{before!r} is not once in the program")
            text = text.replace(before, after)
            old, new = [], []
        if line[:1] == "-":
            old.append(line[1:])
        elif line[:1] == " ":
            old, new = [line[1:]], [line[1:]]
    return text


def shows(block, place):
    """The commands of a block print what it shows."""
    environment = dict(os.environ, PYTHONPATH=os.path.join(BUILD, "python"), OMP_NUM_THREADS="1",
                       PYTHONUNBUFFERED="1")
    for command, follows in commands_of(block):
        words = command.split()
        done = subprocess.run(PROGRAMS[words[0]] + words[1:], cwd=place, text=True, timeout=300,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
                              check=False)
        lines = [line for line in done.stdout.splitlines(keepends=True)
                 if not REMARK.match(line)]
        good = is_output(follows, "".join(lines))
        check(f"{PAGE}:{block.line}: {command}", good)
        if not good:
            print("".join(lines))


@program
def page():
    blocks = blocks_of(PAGE)
    text, place = blocks[0].text(), folder("tutorial")
    os.mkdir(place)
    check("the page has a program and changes of it",
          blocks[0].text().startswith("# train.py") and {b.language for b in blocks[1:]} >= {"diff"})
    changes = text
    for block in blocks:
        if block.language == "diff":
            changes = changed(text, block)
        elif block.language == "console":
            with open(os.path.join(place, "train.py"), "w", encoding="utf-8") as file:
                file.write(changes)
            shows(block, place)


main()
