"""What the rules said of the public programs, as the user saw it: findings of the run, and its last line."""

import collections
import fnmatch
import glob
import json
import math
import os

import table
from recording import runs

NEAR = 3  # lines between a finding's place and the changed ones
NOTHING = "sonde: nothing found"


def findings_of(folder):
    """The last state of each finding. A note that was withdrawn before the end is none."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "run", "findings", "*.jsonl"))):
        with open(path, encoding="utf-8") as file:
            states = [json.loads(line) for line in file if line.strip()]
        found.update((path + state["id"], state) for state in states)
    return sorted((f for f in found.values() if f["severity"] != "note" or stands(f)), key=lambda f: f.get("step", 0))


def stands(finding):
    return finding.get("resolved_step") is None


def verdict_of(folder):
    with open(os.path.join(folder, "log"), encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.startswith("sonde: ")]
    return lines[-1] if lines else ""


def contradicts(verdict, findings):
    """Whether the verdict finds nothing although a finding stands above it."""
    return verdict.startswith(NOTHING) and any(stands(f) for f in findings)


def wilson(count, total, z=1.96):
    """The share in per cent and its 95 % interval."""
    if total == 0:
        return "-"
    share, square = count / total, z * z / total
    middle = (share + square / 2) / (1 + square)
    half = z / (1 + square) * math.sqrt(share * (1 - share) / total + square / 4 / total)
    return f"{100 * share:.1f} % ({100 * max(0, middle - half):.1f}-{100 * min(1, middle + half):.1f})"


def is_near(place, lines):
    """Whether `train.py:41` is one of the changed lines, or close to one."""
    file, _, line = (place or "").rpartition(":")
    return line.isdigit() and any(os.path.basename(file) == name and first - NEAR <= int(line) <= last + NEAR
                                  for name, first, last in lines)


def is_right(finding, fault, lines):
    named = finding.get("tensor", "")
    return is_near(finding.get("place"), lines) or any(fnmatch.fnmatch(named, t) for t in fault.tensors)


def load(a, programs):
    """(program, fault or None, facts, findings, verdict) of each run that was recorded."""
    for program in programs:
        for name, _, fault in runs(program, a.seeds_max):
            folder = os.path.join(a.cache, "runs", program.name, name)
            if os.path.exists(os.path.join(folder, "facts.json")):
                with open(os.path.join(folder, "facts.json"), encoding="utf-8") as file:
                    yield program, fault, json.load(file), findings_of(folder), verdict_of(folder)


def is_crash(result):
    """Whether a fault ended the program with an error, though the table says that it goes on: it is no silent fault."""
    _, fault, facts, *_ = result
    return fault is not None and facts["end"] != "exit" and fault.ends == "exit"


def usable(results):
    """Programs whose healthy runs all ended by themselves and were watched."""
    bad = {p.name for p, fault, facts, _, verdict in results if not fault and (facts["end"] != "exit" or not verdict)}
    healthy = {p.name for p, fault, *_ in results if not fault}
    return healthy - bad, bad


def count_faulty(results, said_healthy):
    rows = {family: collections.Counter() for family in table.FAMILIES}
    silent = []
    for program, fault, facts, findings, verdict in results:
        if not fault:
            continue
        new = [f for f in findings if (f["rule"], f.get("tensor")) not in said_healthy[program.name]]
        row = rows[fault.family]
        row["runs"] += 1
        row["found"] += bool(new)
        row["loud"] += any(f["severity"] != "note" for f in new)
        row["right"] += any(is_right(f, fault, facts["lines"]) for f in new)
        row["content"] += contradicts(verdict, findings)
        if not any(is_right(f, fault, facts["lines"]) for f in new):
            said = [f"{f['rule']}:{f.get('tensor')}({f['severity'][0]}){f.get('place') or ''}" for f in new]
            silent.append(f"{'misplaced' if new else 'silent'}: {program.name} {fault.name}: {said[:4]}, "
                          f"expected {list(fault.tensors)} or {facts['lines']}; {verdict[:100]}")
    return rows, silent


def print_rows(rows):
    print("\n| family | runs | found | by a warning or an error | at the right place | silent |\n|---|---|---|---|---|---|")
    total = sum(rows.values(), collections.Counter())
    for name, row in [(table.FAMILIES[f], r) for f, r in rows.items()] + [("all", total)]:
        n = row["runs"]
        print(f"| {name} | {n} | {wilson(row['found'], n)} | {wilson(row['loud'], n)} | {wilson(row['right'], n)} | "
              f"{n - row['found']} |")


def judge(a, programs):
    a.seeds_max = max([a.seeds] + [int(os.path.basename(p)[8:]) for p in
                                   glob.glob(os.path.join(a.cache, "runs", "*", "healthy-*"))])
    results = list(load(a, programs))
    good, bad = usable(results)
    for name in sorted(bad):
        print(f"left out: a healthy run of {name} ends with an error or was not watched")
    for program, fault, *_ in filter(is_crash, results):
        print(f"left out: {program.name} {fault.name} ends with an error or takes too long")
    results = [r for r in results if r[0].name in good and not is_crash(r)]
    healthy = [r for r in results if not r[1]]
    said_healthy = {name: {(f["rule"], f.get("tensor")) for p, _, _, found, _ in healthy if p.name == name
                           for f in found} for name in good}
    alarmed = [r for r in healthy if any(f["severity"] != "note" for f in r[3])]
    doubted = sum(not r[4].startswith(NOTHING) for r in healthy)
    notes = sum(f["severity"] == "note" for r in healthy for f in r[3])
    rows, silent = count_faulty(results, said_healthy)
    content = sum(row["content"] for row in rows.values()) + sum(contradicts(r[4], r[3]) for r in healthy)
    print(f"{len(good)} programs of {len({r[0].repository for r in results})} repositories. Healthy runs alarmed: "
          f"{len(alarmed)} of {len(healthy)}, {wilson(len(alarmed), len(healthy))}; with another verdict than nothing "
          f"found: {doubted}; notes in a healthy run: {notes / max(1, len(healthy)):.2f}. Runs whose verdict finds nothing although a finding stands above: "
          f"{content} of {len(results)}.")
    print_rows(rows)
    if a.verbose:
        print("", *sorted(silent), sep="\n")
        for program, _, facts, findings, _ in healthy:
            for f in findings:
                print(f"{'note' if f['severity'] == 'note' else 'alarm'}: {program.name} {facts['run']}: "
                      f"{f['rule']} {f.get('tensor')} {f.get('place') or ''}@{f['step']}: {f['message']}")
    if a.json:
        with open(a.json, "w", encoding="utf-8") as out:
            json.dump([{**facts, "family": fault.family if fault else None, "findings": found, "verdict": verdict}
                       for _, fault, facts, found, verdict in results], out)
    return 0
