"""The table of public programs: programs/*.toml, one file for each repository, and the edits that it lists.

A file has `repository`, `commit`, `licence`, `set` (first, kept) and [[programs]], each with

    name, file      the program's name in the exam; its path in the repository
    arguments       of the command line
    folder          what is copied for a run, by default the folder of `file`
    after           a text in the statement after which the program is watched
    watched         the file of that statement, by default `file`
    watch           the arguments of sonde.watch
    edits           [old, new] or [file, old, new]: what makes the program small, or points it to other data
    steps           updates after which a run ends, all optimizers counted
    seeds           healthy runs, by default --seeds
    faults          {kind, old, new}, and if need be file, name, tensor (patterns), line (a text), ends

bugs/bugs.toml has the same keys for programs in its own folder, without repository, commit, licence and set. A fault
there is a bug that was reported: `source` is the address of the report. A text of an edit occurs exactly once in its file."""

import ast
import dataclasses
import glob
import os
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
BUGS = os.path.join(HERE, "bugs")
FAMILIES = {"gradient": "gradient path and optimizer", "numbers": "initial values and numbers",
            "data": "loss, targets, data", "structure": "structure and modes",
            "machines": "machines and replicas"}
with open(os.path.join(HERE, "kinds.toml"), "rb") as kinds_file:
    KINDS = tomllib.load(kinds_file)  # kind of fault: family, tensors that count as the right place


class TableError(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    kind: str
    old: str
    new: str
    file: str = ""
    tensor: tuple = ()
    line: tuple = ()
    ends: str = "exit"  # or "error": the program itself refuses to go on
    source: str = ""

    @property
    def family(self):
        return KINDS[self.kind]["family"]

    @property
    def tensors(self):
        return self.tensor or tuple(KINDS[self.kind]["tensors"])


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    repository: str
    commit: str
    set: str
    file: str
    watch: str
    after: str
    arguments: tuple = ()
    folder: str = ""
    watched: str = ""
    edits: tuple = ()
    faults: tuple = ()
    steps: int = 300
    seeds: int = 0

    @property
    def source(self):
        return self.repository.replace("/", "+")

    @property
    def is_ours(self):
        return self.set == "bugs"


def strings(value):
    return (value,) if isinstance(value, str) else tuple(value)


def read_fault(path, number, entry):
    kind = entry.get("kind")
    if kind not in KINDS:
        raise TableError(f"{path}: fault {number} has the kind {kind!r} (expected one of kinds.toml)")
    texts = {key: strings(entry[key]) for key in ("tensor", "line") if key in entry}
    return Fault(**{"name": kind, **entry, **texts})


def read_program(path, facts, entry):
    faults = tuple(read_fault(path, n, f) for n, f in enumerate(entry.get("faults", ())))
    names = [f.name for f in faults]
    if len(set(names)) < len(names):
        raise TableError(f"{path}: two faults of {entry['name']} have one name (expected a `name` for one)")
    return Program(**{"folder": os.path.dirname(entry["file"]), "watched": entry["file"], **entry,
                      "repository": facts["repository"], "commit": facts["commit"], "set": facts["set"],
                      "arguments": tuple(entry.get("arguments", "").split()), "faults": faults,
                      "edits": tuple(tuple(e) for e in entry.get("edits", ()))})


def read(folder=None):
    """All programs by name: those of a folder, by default of programs/ and bugs/."""
    found = {}
    folders = [folder] if folder else [os.path.join(HERE, "programs"), BUGS]
    for path in sorted(path for one in folders for path in glob.glob(os.path.join(one, "*.toml"))):
        with open(path, "rb") as file:
            facts = tomllib.load(file)
        if os.path.dirname(path) == BUGS:
            facts.update(repository="", commit="", set="bugs")
        elif facts["set"] not in ("first", "kept"):
            raise TableError(f"{path}: the set is {facts['set']!r} (expected first or kept)")
        for entry in facts["programs"]:
            program = read_program(path, facts, entry)
            if program.name in found:
                raise TableError(f"{path}: {program.name} is there already (expected another name)")
            found[program.name] = program
    return found


def replaced(text, old, new, where):
    if text.count(old) != 1:
        raise TableError(f"{where}: {old!r} occurs {text.count(old)} times (expected once)")
    return text.replace(old, new)


def edit(folder, file, old, new):
    """Changes one text of one file. Returns the first and last changed line."""
    path = os.path.join(folder, file)
    with open(path, encoding="utf-8", newline="") as handle:
        text = handle.read().replace("\r\n", "\n")
    changed = replaced(text, old, new, file)
    with open(path, "w", encoding="utf-8", newline="") as handle:
        handle.write(changed)
    same = os.path.commonprefix([old, new])
    first = text[:text.index(old)].count("\n") + same[:same.rfind("\n") + 1].count("\n") + 1
    begin = text[:text.index(old)].count("\n") + 1
    return first, max(first, begin + new.rstrip("\n").count("\n"))


def statement_end(text, anchor, where):
    """The place behind the statement that contains a text: line from 0, column in bytes."""
    if text.count(anchor) != 1:
        raise TableError(f"{where}: {anchor!r} occurs {text.count(anchor)} times (expected once)")
    line = text[:text.index(anchor)].count("\n") + 1
    holding = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.stmt) and not hasattr(n, "body") and
               n.lineno <= line <= n.end_lineno]
    if not holding:
        raise TableError(f"{where}: {anchor!r} is in no simple statement (expected the one that builds the optimizer)")
    last = max(holding, key=lambda n: n.lineno)
    return last.end_lineno - 1, last.end_col_offset


def insert_watch(folder, program):
    """Adds the call behind the statement that builds the optimizer, on its line: no line number changes."""
    path = os.path.join(folder, program.watched)
    with open(path, encoding="utf-8", newline="") as handle:
        text = handle.read().replace("\r\n", "\n")
    row, column = statement_end(text, program.after, program.watched)
    lines = text.split("\n")
    call = f'; watch = __import__("sonde").watch({program.watch}, run=__import__("os").environ["SONDE_EXAM_RUN"])'
    line = lines[row].encode()
    lines[row] = (line[:column] + call.encode() + line[column:]).decode()
    with open(path, "w", encoding="utf-8", newline="") as handle:
        handle.write("\n".join(lines))


def apply(folder, program, fault=None, watched=True):
    """Makes the copy of a program in a folder the one that runs. Returns the lines that the fault changed."""
    for change in program.edits:
        file, old, new = change if len(change) == 3 else (program.file, *change)
        edit(folder, file, old, new)
    changed = []
    if fault:
        file = fault.file or program.file
        first, last = edit(folder, file, fault.old, fault.new)
        changed.append([os.path.basename(file), first, last])
        for text in fault.line:
            changed.append([os.path.basename(file), *line_of(folder, file, text)])
    if watched:
        insert_watch(folder, program)
    return changed


def line_of(folder, file, text):
    with open(os.path.join(folder, file), encoding="utf-8") as handle:
        whole = handle.read()
    if text not in whole:
        raise TableError(f"{file}: {text!r} is not there (expected a line to point to)")
    line = whole[:whole.index(text)].count("\n") + 1
    return line, line + text.rstrip("\n").count("\n")
