"""exam/public: a repository is fetched, its program watched, healthy and with faults, and what was said is judged.

Needs git and the release build's package (SONDE_BUILD). Without them or without PyTorch: skipped (77).
"""
import json
import os
import shutil
import subprocess
import sys
import textwrap

from harness import FOLDER, check, folder, main, program

BUILD = os.path.abspath(os.environ.get("SONDE_BUILD", "build/release"))
EXAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "exam", "public")
sys.path[:0] = [os.path.join(BUILD, "python"), EXAM]
try:
    import torch  # noqa: F401
    import sonde  # noqa: F401
except ImportError as problem:
    print(problem)
    sys.exit(77)
if not shutil.which("git"):
    print("git is not there")
    sys.exit(77)

import judging  # noqa: E402
import table  # noqa: E402

SOURCE = """
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
optimizer = torch.optim.SGD(
    model.parameters(), lr=0.1)
weight = torch.randn(8, 3)
for step in range(10 ** 9):
    x = torch.randn(32, 8)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(
        model(x), (x @ weight).argmax(1))
    loss.backward()
    optimizer.step()
"""
TABLE = """
repository = "someone/programs"
commit = "{commit}"
licence = "none"
set = "first"

[[programs]]
name = "tiny"
file = "src/train.py"
edits = [["lr=0.1", "lr=0.2"]]
after = "optimizer = torch.optim.SGD("
watch = "model, optimizer"
steps = 40
faults = [
  {{kind = "softmax-twice", old = "model(x), ", new = "model(x).softmax(1), "}},
  {{kind = "bit-flip", old = "    optimizer.step()", new = "    optimizer.step(); __import__('machines').flip(model[2].weight, 20)", tensor = ["*2*"]}},
  {{kind = "not-finite", old = "x = torch.randn(32, 8)", new = "raise ValueError", ends = "error"}},
]
"""


def run(*arguments, cache="cache"):
    done = subprocess.run([sys.executable, os.path.join(EXAM, "run.py"), *arguments, "--build", BUILD,
                           "--cache", os.path.join(FOLDER, cache), "--programs", os.path.join(FOLDER, "table")],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def make_repository():
    """A git directory as --mirror expects it. Returns the commit."""
    path = folder("mirror/someone+programs/repo")
    os.makedirs(os.path.join(path, "src"))
    with open(os.path.join(path, "src", "train.py"), "w", encoding="utf-8") as file:
        file.write(SOURCE)
    git = ["git", "-C", path, "-c", "user.name=a", "-c", "user.email=a"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run(git + arguments, check=True)
    return subprocess.run(git + ["rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def write_table(**changes):
    os.makedirs(os.path.join(FOLDER, "table"), exist_ok=True)
    text = TABLE.format(commit=changes.pop("commit"))
    for old, new in changes.items():
        text = text.replace(old, new)
    with open(os.path.join(FOLDER, "table", "tiny.toml"), "w", encoding="utf-8") as file:
        file.write(text)


@program
def programs_are_recorded_and_judged():
    commit = make_repository()
    write_table(commit=commit)
    status, said = run("check")
    check(f"a source that is not there is named: {said}", status == 1 and "is not there" in said)
    status, said = run("fetch", "--mirror", os.path.join(FOLDER, "mirror"))
    check(f"the source is fetched: {said}", status == 0)
    status, said = run("check")
    check(f"every edit applies: {said}", status == 0)
    status, said = run("record", "--verbose")
    check(f"runs end as the table says: {said}", status == 0 and said.count("ended by exit") == 3 and
          "not-finite: ended by error" in said)
    path = os.path.join(FOLDER, "out.json")
    status, said = run("judge", "--set", "first", "--json", path)
    check(f"the healthy run is quiet: {said}", status == 0 and "alarmed: 0 of 1" in said and
          "than nothing found: 0;" in said)
    with open(path, encoding="utf-8") as file:
        results = {one["run"]: one for one in json.load(file)}
    check("the edits of the program are no fault", results["healthy-1"]["lines"] == [])
    twice = results["softmax-twice"]
    check("a fault's line is known", twice["lines"] == [["train.py", 13, 13]])
    check(f"softmax twice is found in its line: {twice['findings']}",
          any(f["rule"] == "SoftmaxMisuse" and judging.is_near(f["place"], twice["lines"]) for f in twice["findings"]))
    check("the verdict is the last line", twice["verdict"].startswith("sonde: wrong"))
    flipped = results["bit-flip"]["findings"]
    check(f"a flipped bit is found at its step: {flipped}", flipped and 20 <= flipped[0]["step"] <= 21)


@program
def wrong_tables_are_refused():
    commit = make_repository()
    for changes, text in (({"softmax-twice": "unheard-of"}, "expected one of kinds.toml"),
                          ({'set = "first"': 'set = "other"'}, "expected first or kept"),
                          ({'"bit-flip"': '"softmax-twice"'}, "two faults of tiny have one name")):
        write_table(commit=commit, **changes)
        status, said = run("list")
        check(f"{text}: {said}", status != 0 and text in said)
    write_table(commit=commit, **{"model(x), ": "nowhere"})
    run("fetch", "--mirror", os.path.join(FOLDER, "mirror"))
    status, said = run("check")
    check(f"an edit that does not apply is named: {said}", status == 1 and "occurs 0 times (expected once)" in said)


@program
def calls_move_no_line():
    path = folder("place")
    os.makedirs(path)
    with open(os.path.join(path, "train.py"), "w", encoding="utf-8") as file:
        file.write(SOURCE)
    one = table.Program("tiny", "a/b", "0", "first", "train.py", "model, optimizer", "optimizer = torch.optim.SGD(",
                        watched="train.py")
    table.insert_watch(path, one)
    with open(os.path.join(path, "train.py"), encoding="utf-8") as file:
        lines = file.read().split("\n")
    check("the call stands behind the statement", lines[6].startswith('    model.parameters(), lr=0.1); watch = __import__'))
    check("no other line moved", len(lines) == SOURCE.count("\n") + 1)


@program
def findings_are_counted_as_the_user_sees_them():
    os.makedirs(folder("said/run/findings"))
    states = [{"id": "a", "severity": "note", "step": 3}, {"id": "a", "severity": "note", "step": 3, "resolved_step": 9},
              {"id": "b", "severity": "warning", "step": 2, "resolved_step": 5}, {"id": "c", "severity": "note", "step": 1},
              {"id": "c", "severity": "error", "step": 1}]
    with open(os.path.join(FOLDER, "said", "run", "findings", "Rule.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(state) + "\n" for state in states)
    found = judging.findings_of(os.path.join(FOLDER, "said"))
    check(f"last states, without withdrawn notes: {found}", [(f["id"], f["severity"]) for f in found] ==
          [("c", "error"), ("b", "warning")])
    check("a verdict may not find nothing above a finding", judging.contradicts("sonde: nothing found by 3 rules", found))
    check("a resolved finding is no contradiction", not judging.contradicts("sonde: nothing found", found[1:]))
    check("other verdicts do not", not judging.contradicts("sonde: wrong: NonFinite", found))
    fault = table.Fault("a", "rate", "", "")
    check("a crash is no silent fault", judging.is_crash((None, fault, {"end": "error"})) and
          not judging.is_crash((None, fault, {"end": "exit"})) and not judging.is_crash((None, None, {"end": "error"})))
    lines = [["train.py", 10, 12]]
    check("near places", judging.is_near("src/train.py:15", lines) and not judging.is_near("train.py:16", lines) and
          not judging.is_near("other.py:11", lines) and not judging.is_near(None, lines))


@program
def figures_go_into_the_pages():
    write_table(commit=make_repository(), **{'set = "first"': 'set = "kept"'})
    status, said = run("fetch", "--mirror", os.path.join(FOLDER, "mirror"))
    results, root = os.path.join(FOLDER, "results.toml"), folder("root")
    os.makedirs(os.path.join(root, "docs"))
    for page, names in (("README.md", ["public programs"]), (os.path.join("docs", "faults.md"), ["kept", "bugs"])):
        with open(os.path.join(root, page), "w", encoding="utf-8") as file:
            file.writelines(f"before\n<!-- figures: {name} -->\nold\n  <!-- figures end -->\n" for name in names)
    status, said = run("measure", "--seeds", "2", "--jobs", "2", "--results", results)
    check(f"both sets are measured: {said}", status == 0 and "alarmed: 0 of 2" in said)
    status, said = run("measure", "--seeds", "2", "--results", results, "--verbose", "--minutes", "0.0001")
    check(f"nothing is recorded twice: {said}", status == 0 and "ended by" not in said)
    with open(results, encoding="utf-8") as file:
        before = file.read()
    status, said = run("measure", "--set", "kept", "--results", results, "--minutes", "0.0001", cache="empty")
    check(f"nothing judged is an error: {said}", status == 1 and "no healthy run was judged" in said)
    status, said = run("measure", "--only", "nosuch", "--results", results)
    check(f"a part of a set is refused: {said}", status == 2 and "whole sets" in said)
    with open(results, encoding="utf-8") as file:
        check("the figures are kept", file.read() == before)
    status, said = run("pages", "--results", results, "--root", root)
    check(f"other figures are refused: {said}", status == 1 and said.count("pages --fix") == 3)
    check("the pages are written", run("pages", "--results", results, "--root", root, "--fix")[0] == 0)
    with open(os.path.join(root, "README.md"), encoding="utf-8") as file:
        text = " ".join(file.read().split())
    check(f"the line has the figures: {text}", "we planted 3 mistakes" in text and "in 0 of 2 healthy runs" in text)
    check("the same figures are right", run("pages", "--results", results, "--root", root)[0] == 0)
    check("no figures are an error", run("pages", "--results", os.path.join(FOLDER, "none"), "--root", root)[0] == 1)


@program
def the_list_keeps_its_promises():
    programs = [p for p in table.read().values() if p.set != "bugs"]
    counts = {family: sum(f.family == family for p in programs for f in p.faults) for family in table.FAMILIES}
    check(f"a fifth of the faults in each family: {counts}", max(counts.values()) <= 1.4 * min(counts.values()))
    kept = [p for p in programs if p.set == "kept"]
    check("two fifths of the programs are kept apart", len(kept) >= 2 * len(programs) / 5)
    sets = {}
    for one in programs:
        sets.setdefault(one.repository, set()).add(one.set)
    check("a source is in one set", all(len(s) == 1 for s in sets.values()))
    check("60 programs of 30 sources", len(programs) >= 60 and len(sets) >= 30)
    bugs = [f for p in table.read().values() if p.set == "bugs" for f in p.faults]
    check("28 bugs, each with its own report", len(bugs) >= 28 and len({f.source for f in bugs}) == len(bugs) and
          all(f.source.startswith("https://github.com/") for f in bugs))


if __name__ == "__main__":
    main()
