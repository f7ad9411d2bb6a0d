#!/usr/bin/env python3
"""Public programs and reported bugs, watched by the three lines: fetched, recorded, judged.

    run.py fetch  [--mirror FOLDER]     sources into the cache: from git directories in FOLDER, else by git clone
    run.py list                         programs, their sets and faults
    run.py check                        every edit applies; no program is run
    run.py record [--set first|kept|bugs] [--only PATTERNS] [--run PATTERNS] [--seeds N] [--jobs N] [--again]
    run.py judge   --set first|kept|bugs [--only PATTERNS] [--json FILE] [--verbose]
    run.py measure [--set kept|bugs] [--minutes N]     records and judges the sets kept and bugs: results.toml
    run.py pages   [--fix]              docs/faults.md and README.md have the figures of results.toml

The folder of the cache is given by --cache or by the environment variable SONDE_EXAM_CACHE."""

import argparse
import fnmatch
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import figures  # noqa: E402
import judging  # noqa: E402
import recording  # noqa: E402
import table  # noqa: E402


def chosen(a):
    return [p for p in table.read(a.programs).values() if a.set in (None, p.set) and
            any(fnmatch.fnmatch(p.name, only) for only in a.only.split(","))]


def print_list(a):
    for program in chosen(a):
        print(program.set, program.name, program.repository, *(f.name for f in program.faults))
    families = {f: sum(fault.family == f for p in chosen(a) for fault in p.faults) for f in table.FAMILIES}
    print(f"{len(chosen(a))} programs of {len({p.repository for p in chosen(a)})} repositories, "
          f"{sum(families.values())} faults: {families}")


def check(a):
    wrong = 0
    for program in chosen(a):
        for fault in (None, *program.faults):
            try:
                recording.prepare(a.cache, program, fault, os.path.join(a.cache, "check"))
            except (table.TableError, OSError, SyntaxError) as problem:
                wrong += 1
                print(f"{program.name} {fault.name if fault else 'healthy'}: {problem}")
    print(f"{wrong} edits do not apply" if wrong else "every edit applies")
    return 1 if wrong else 0


def measure(a):
    """Both sets that nobody looks at, with as many healthy runs as the bars need. Prints counts only."""
    status, seeds, a.verbose = 0, a.seeds, False
    for name in [a.set] if a.set else ["bugs", "kept"]:
        a.set, a.seeds = name, seeds or figures.SEEDS[name]
        status |= recording.record(a, chosen(a))
        found = judging.judge(a, chosen(a))
        if chosen(a) and found["healthy"] == 0:
            print(f"{name}: no healthy run was judged; {a.results} is not changed")
            status = 1
        else:
            figures.write(a.results, name, found)
    return status


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=("fetch", "list", "check", "record", "judge", "measure", "pages"))
    parser.add_argument("--cache", default=os.environ.get("SONDE_EXAM_CACHE", "/tmp/sonde-public"))
    parser.add_argument("--build", default=os.path.join(HERE, "..", "..", "build", "release"))
    parser.add_argument("--programs", help="a folder of tables, by default programs and bugs")
    parser.add_argument("--mirror", help="git directories OWNER+NAME/repo or OWNER+NAME/repo/.git")
    parser.add_argument("--set", choices=("first", "kept", "bugs"))
    parser.add_argument("--only", default="*", help="programs: patterns, with commas between")
    parser.add_argument("--run", default="*", help="runs: healthy-*, softmax-twice ...")
    parser.add_argument("--seeds", type=int, default=0, help="healthy runs of each program")
    parser.add_argument("--seconds", type=int, default=120, help="after which a run is ended")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--minutes", type=float, default=0, help="after which no run is begun")
    parser.add_argument("--results", default=os.path.join(HERE, "results.toml"))
    parser.add_argument("--fix", action="store_true", help="write the pages")
    parser.add_argument("--root", default=figures.ROOT, help="the folder with README.md and docs")
    parser.add_argument("--again", action="store_true", help="record what was recorded before")
    parser.add_argument("--json")
    parser.add_argument("--verbose", action="store_true")
    a = parser.parse_args(arguments)
    if a.command == "measure" and (a.only, a.run) != ("*", "*"):
        parser.error("measure judges whole sets (without --only and --run)")
    if a.command == "fetch":
        return recording.fetch(a, chosen(a))
    if a.command == "list":
        return print_list(a)
    if a.command == "check":
        return check(a)
    if a.command == "record":
        return recording.record(a, chosen(a))
    if a.command == "measure":
        return measure(a)
    if a.command == "pages":
        return figures.pages(a.results, a.fix, a.root)
    if not a.set:
        parser.error("judge needs --set (expected first, kept or bugs)")
    judging.judge(a, chosen(a))
    return 0


if __name__ == "__main__":
    sys.exit(main())
