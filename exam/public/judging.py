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
    return f"{100 * share:.1f} % ({100 * max(0, middle - half):.1f}–{100 * min(1, middle + half):.1f})"


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
    seeds = [int(os.path.basename(p)[8:]) for p in glob.glob(os.path.join(a.cache, "runs", "*", "healthy-*"))]
    for program in programs:
        for name, _, fault in runs(program, max(seeds, default=1)):
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


def named(findings):
    return {(f["rule"], f.get("tensor")) for f in findings}


def count_faulty(results, said_healthy):
    """What was said of the faults of each family, and a line for each fault that was not found at its place."""
    rows = {family: collections.Counter(runs=0, found=0, loud=0, right=0) for family in table.FAMILIES}
    missed = []
    for program, fault, facts, findings, verdict in results:
        if not fault:
            continue
        new = [f for f in findings if (f["rule"], f.get("tensor")) not in said_healthy[program.name]]
        right = any(is_right(f, fault, facts["lines"]) for f in new)
        rows[fault.family].update(runs=1, found=bool(new), right=right,
                                  loud=any(f["severity"] != "note" for f in new))
        if not right:
            said = [f"{f['rule']}:{f.get('tensor')}({f['severity'][0]}){f.get('place') or ''}" for f in new]
            missed.append(f"{'misplaced' if new else 'silent'}: {program.name} {fault.name}: {said[:4]}, "
                          f"expected {list(fault.tensors)} or {facts['lines']}; {verdict[:100]}")
    return rows, missed


def count(results):
    """The figures of the runs, as a table of TOML, and the lines of what was missed."""
    healthy = [r for r in results if not r[1]]
    said_healthy = collections.defaultdict(set)
    for program, _, _, findings, _ in healthy:
        said_healthy[program.name] |= named(findings)
    rows, missed = count_faulty(results, said_healthy)
    figures = {"programs": len({r[0].name for r in results}), "repositories": len({r[0].repository for r in results}),
               "runs": len(results), "healthy": len(healthy),
               "alarmed": sum(any(f["severity"] != "note" for f in r[3]) for r in healthy),
               "doubted": sum(not r[4].startswith(NOTHING) for r in healthy),
               "notes": sum(f["severity"] == "note" for r in healthy for f in r[3]),
               "contradicting": sum(contradicts(r[4], r[3]) for r in results),
               "families": {name: dict(row) for name, row in rows.items()}}
    return figures, missed


def total(figures):
    return {key: sum(row[key] for row in figures["families"].values()) for key in ("runs", "found", "loud", "right")}


def rows_of(figures):
    """The table of families, as Markdown."""
    lines = ["| family | runs | found | by a warning or an error | at the right place | silent |", "|---|---|---|---|---|---|"]
    for name, row in [(table.FAMILIES[f], r) for f, r in figures["families"].items()] + [("all", total(figures))]:
        n, found, loud, right = (row[key] for key in ("runs", "found", "loud", "right"))
        lines.append(f"| {name} | {n} | {wilson(found, n)} | {wilson(loud, n)} | {wilson(right, n)} | {n - found} |")
    return lines


def print_healthy(results):
    for program, _, facts, findings, _ in (r for r in results if not r[1]):
        for f in findings:
            print(f"{'note' if f['severity'] == 'note' else 'alarm'}: {program.name} {facts['run']}: "
                  f"{f['rule']} {f.get('tensor')} {f.get('place') or ''}@{f['step']}: {f['message']}")


def judged(a, programs):
    """The results that count, and how many do not. Prints which do not."""
    results = list(load(a, programs))
    good, bad = usable(results)
    for name in sorted(bad):
        print(f"left out: a healthy run of {name} ends with an error or was not watched")
    for program, fault, *_ in filter(is_crash, results):
        print(f"left out: {program.name} {fault.name} ends with an error or takes too long")
    counted = [r for r in results if r[0].name in good and not is_crash(r)]
    return counted, len(results) - len(counted)


def judge(a, programs):
    results, left_out = judged(a, programs)
    figures, missed = count(results)
    figures["left_out"] = left_out
    n = figures["healthy"]
    print(f"{figures['programs']} programs of {figures['repositories']} repositories. Healthy runs alarmed: "
          f"{figures['alarmed']} of {n}, {wilson(figures['alarmed'], n)}; with another verdict than nothing found: "
          f"{figures['doubted']}; notes in a healthy run: {figures['notes'] / max(1, n):.2f}. Runs whose verdict finds "
          f"nothing although a finding stands above: {figures['contradicting']} of {figures['runs']}.")
    print("", *rows_of(figures), sep="\n")
    if a.verbose:
        print("", *sorted(missed), sep="\n")
        print_healthy(results)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as out:
            json.dump([{**facts, "family": fault.family if fault else None, "findings": found, "verdict": verdict}
                       for _, fault, facts, found, verdict in results], out)
    return figures
