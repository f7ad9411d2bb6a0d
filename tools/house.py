"""house.py - what the check scripts share: which files there are, and how a check ends.

A check prints one line for each violation, "file:line: what", and ends with status 1; it
prints nothing and ends with 0 when all is well; it says on one line why it could not look
and ends with SKIPPED (77). Python's standard library only.
"""

import argparse
import os
import re
import subprocess
import sys

SKIPPED = 77
NOT_OURS = {".git", ".venv", "build", "__pycache__"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


def parser(description):
    """An argument parser with --root, which the tests of the checks point elsewhere."""
    result = argparse.ArgumentParser(description=description.split("\n")[0])
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    result.add_argument("--root", default=here, help="the tree to look at (default: this one)")
    return result


def room_of(path):
    """The room of a file of src/: base for src/core/base/x.c, nn/ops for src/nn/ops/x.c; the room
    python of python/extension/, and examples."""
    if path.startswith("python/extension/"):
        return "python"
    parts = path.split("/")[:-1]
    if parts[0] == "src":
        del parts[0]
    if parts[0] == "core":
        del parts[0]
    return "/".join(parts[:2]) if path.startswith("src/") else parts[0]


def inside(path):
    """A file of src/ as an include names it."""
    return path.removeprefix("src/").removeprefix("core/")


def files(root, *suffixes, under=""):
    """Sorted paths below root of all files that git tracks or would, by how they end."""
    git = ["git", "-C", root, "ls-files", "-z", "-c", "-o", "--exclude-standard"]
    is_top = os.path.exists(os.path.join(root, ".git"))
    listed = subprocess.run(git, capture_output=True) if is_top else None
    if listed and listed.returncode == 0:
        names = listed.stdout.decode().split("\0")
    else:
        names = []
        for folder, inner, leaves in os.walk(root):
            inner[:] = [name for name in inner if name not in NOT_OURS]
            names += [os.path.relpath(os.path.join(folder, leaf), root) for leaf in leaves]
    wanted = {name for name in names
              if name.startswith(under) and (not suffixes or name.endswith(suffixes))
              and os.path.isfile(os.path.join(root, name))}
    return sorted(wanted)


def read(root, name):
    with open(os.path.join(root, name), encoding="utf-8", errors="replace") as file:
        return file.read()


def without_comments(text):
    """C source with comments and string contents blanked; every line stays on its line."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''

    def blank(match):
        found = match.group(0)
        if found[0] in "\"'":
            return found[0] + " " * (len(found) - 2) + found[0]
        return re.sub(r"[^\n]", " ", found)

    return re.sub(pattern, blank, text, flags=re.S)


def includes(text):
    """(line, is_angled, path) of every #include."""
    return [(text.count("\n", 0, match.start()) + 1, match.group(1) == "<", match.group(2))
            for match in INCLUDE.finditer(text)]


def circles(arrows):
    """The groups of nodes that reach each other, of a graph {node: nodes}."""
    reach = {}
    for start in arrows:
        found, ahead = set(), [start]
        while ahead:
            new = set(arrows.get(ahead.pop(), ())) - found
            found |= new
            ahead += new
        reach[start] = found
    return sorted({tuple(sorted(other for other in reach[node] if node in reach.get(other, ())))
                   for node in reach if node in reach[node]})


def allowed(root, name):
    """The entries of an allow-list, {what: reason}; a line is "what: reason", # comments."""
    entries = {}
    path = os.path.join(root, "tools", name)
    if os.path.exists(path):
        for number, line in enumerate(read(root, "tools/" + name).splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            what, _, reason = line.partition(": ")
            if not reason.strip():
                finish([f"tools/{name}:{number}: an exception needs a reason (what: reason)"])
            entries[what.strip()] = reason.strip()
    return entries


def finish(violations):
    for line in violations:
        print(line)
    sys.exit(1 if violations else 0)


def skip(why):
    print(why)
    sys.exit(SKIPPED)
