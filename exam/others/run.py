#!/usr/bin/env python3
"""Rules on programs that other people wrote: records each run once, judges it as often as asked.

    run.py record [--part 1-5] [--only PATTERN] [--mode default|full] [--jobs N]
    run.py judge  [--part 1-5] [--only PATTERN] [--mode default|full] [--live] [--json FILE] [--verbose]
    run.py list

Each run is watched twice: by sonde.watch(model, optimizer, run=...), default, and with all vital
signs at every step, full. judge --live takes the findings of the rules in process, which record
keeps; else the records are judged."""

import argparse
import collections
import fnmatch
import hashlib
import importlib
import itertools
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
HEALTHY = {"seed-1": (1, None), "seed-2": (2, None), "batch": (3, "batch"), "half-rate": (4, "half-rate"),
           "optimizer": (5, "optimizer"), "long": (6, "long")}
DRIVERS = {1: ("trainers", "images", "language", "measures", "players"),  # parts 1 and 2
           3: ("pictures", "sequences", "science", "loops", "agents"),  # parts 3 and 4
           5: ("scenes", "nature", "series", "rows", "courses")}


def programs():
    sys.path.insert(0, HERE)
    import session
    for name in sum(DRIVERS.values(), ()):
        importlib.import_module(name)
    return session.PROGRAMS


def part(one):
    first = next(p for p, names in DRIVERS.items() if one.drive.__module__ in names)
    return 5 if first == 5 else first + hashlib.sha256(one.name.encode()).digest()[0] % 2


def runs(one):
    """Healthy and faulty ones in turn: a recording that is stopped has some of both."""
    import plants
    late = part(one) == 5
    healthy = ("seed-1", "seed-2", "batch", "half-rate")
    if late:
        healthy = ("seed-1", "optimizer", random.Random(one.name).choice(("batch", "long")))
    turns = itertools.zip_longest((f"healthy-{name}" for name in healthy),
                                  plants.chosen(one, 4 if late else 5))
    return [run for turn in turns for run in turn if run]


# --- record ------------------------------------------------------------------------------------


def train(one, name, folder):
    """One run, in a process of its own. Returns what is kept of it."""
    import plants
    import session
    seed, variant = HEALTHY[name[8:]] if name.startswith("healthy-") else (1, None)
    plant = (plants.Healthy if name.startswith("healthy-") else plants.KINDS[name])()
    facts = {"program": one.name, "run": name, "kind": plant.kind, "rules": list(plant.rules),
             "first": plant.first, "harm": plant.harm}
    made = session.Session(one, plant, seed, variant, folder)
    begin = time.process_time()
    try:
        one.drive(made)
    except Exception as problem:  # a NaN that the program itself refuses ends it, and is found
        facts["problem"] = f"{type(problem).__name__}: {problem}"
    made.close()
    live = {mode: [f._asdict() for f in watch.findings] for mode, watch in made.watches.items()}
    return {**facts, "where": list(plant.where), "progress": made.progress(), "steps": made.step,
            "planted": made.planted,
            "faults": sum(watch.faults for watch in made.watches.values()),
            "seconds": time.process_time() - begin, "live": live}


def record_run(one, run, target):
    """Forks; the child's number."""
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    child = os.fork()
    if child:
        return child
    signal.alarm(600)
    with open(target + ".log", "w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.chdir(target)
    kept = train(one, run, target)
    with open(target + ".part", "w") as out:
        json.dump(kept, out)
    os.replace(target + ".part", target + ".json")
    sys.stdout.flush()
    os._exit(0)


def kept_of(cache, name, run):
    path = os.path.join(cache, name, run + ".json")
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)


def is_usable(cache, name):
    """None of its healthy runs so far ends with an error or learns nothing."""
    kept = [kept_of(cache, name, f"healthy-{kind}") for kind in HEALTHY]
    return not any(k is not None and (k.get("problem") or not learns(k)) for k in kept)


def record(a, chosen):
    """Imports are done once, here: every run is a fork. One run of each program, then the next."""
    import session
    session.prepare(a.build)
    going, loaded = {}, {}
    session.MODES[:] = [a.mode] if a.mode else session.MODES

    def wait():
        child, status = os.wait()
        name, run = going.pop(child)
        kept = kept_of(a.cache, name, run)
        if kept is None:
            print(f"{name} {run}: no result, see {a.cache}/{name}/{run}.log", flush=True)
        elif kept.get("problem") or (kept["kind"] == "healthy" and not learns(kept)):
            print(f"{name} {run}: {kept.get('problem')}, progress {kept['progress']}", flush=True)

    for number in range(len(HEALTHY) + 5):
        for one in chosen:
            run = runs(one)[number] if number < len(runs(one)) else None
            target = os.path.join(a.cache, one.name, run or "")
            if run is None or not fnmatch.fnmatch(run, a.run) or os.path.exists(target + ".json"):
                continue
            while len(going) >= a.jobs:
                wait()
            if one.name not in loaded:
                try:
                    session.load(one)
                    loaded[one.name] = True
                except Exception as problem:
                    loaded[one.name] = False
                    print(f"{one.name}: not imported: {type(problem).__name__}: {problem}", flush=True)
            if loaded[one.name] and is_usable(a.cache, one.name):
                going[record_run(one, run, target)] = one.name, run
    while going:
        wait()


# --- judge -------------------------------------------------------------------------------------


def judge(task):
    path, build, mode, live = task
    with open(path) as file:
        facts = json.load(file)
    if live or not facts["planted"]:  # a run that could not be planted ended before it was watched
        return {**facts, "findings": facts["live"].get(mode, [])}
    if not os.path.exists(os.path.join(path[:-5], mode)) and facts.get("problem"):
        found = {"rule": facts["rules"][0], "severity": "error", "tensor": facts["where"][0],
                 "mode_step": 0, "message": facts["problem"]}
        return {**facts, "findings": [found]}  # sonde.watch refused what was planted
    import session
    if "sonde" not in sys.modules:
        session.prepare(build)
    import sonde
    found = sonde.open(os.path.join(path[:-5], mode)).judge()
    return {**facts, "findings": [f._asdict() for f in found]}


def wilson(count, total, z=1.96):
    if total == 0:
        return "no runs"
    share, square = count / total, z * z / total
    middle = (share + square / 2) / (1 + square)
    half_width = z / (1 + square) * math.sqrt(share * (1 - share) / total + square / 4 / total)
    return f"{100 * share:.1f} %, {100 * max(0, middle - half_width):.1f}-{100 * (middle + half_width):.1f} %"


def learns(facts):
    begin, end = facts["progress"]
    return end < begin - 0.05 * abs(begin)


def is_right(facts, finding):
    return any(fnmatch.fnmatch(finding["tensor"] or "-", w) for w in facts["where"])


def harmful(facts, twin):
    """A fault of the step size counts if it costs half of the progress of the run without it; none
    counts if it could not be planted, or changes no number."""
    if not facts.get("planted", True) or facts["progress"] == twin["progress"]:
        return False
    if not facts["harm"] or facts.get("problem"):
        return True
    begin, end = twin["progress"]
    return not begin - facts["progress"][1] > 0.5 * (begin - end)


def tally(results, verbose):
    twins = {r["program"]: r for r in results if r["run"] == "healthy-seed-1"}
    idle = sorted({r["program"] for r in results if r["kind"] == "healthy" and not learns(r)})
    broken = sorted({r["program"] for r in results if r["kind"] == "healthy" and r.get("problem")})
    for name in idle:
        print(f"left out: a healthy run of {name} does not learn")
    for name in broken:
        print(f"left out: a healthy run of {name} ends with an error")
    results = [r for r in results if r["program"] not in idle + broken and r["program"] in twins]
    healthy = [r for r in results if r["kind"] == "healthy"]
    faulty = [r for r in results if r["kind"] != "healthy"]
    counted = [r for r in faulty if harmful(r, twins[r["program"]])]
    kinds, lines = collections.defaultdict(lambda: [0, 0, 0, 0]), []
    for r in counted:
        right = [f for f in r["findings"] if f["rule"] in r["rules"] and f["mode_step"] >= r["first"]]
        placed = [f for f in right if is_right(r, f)]
        row = kinds[r["kind"]]
        row[0] += 1
        row[1] += bool(right)
        row[2] += any(f["severity"] != "note" for f in right)
        row[3] += bool(placed)
        if not placed:
            said = sorted({f"{f['rule']}@{f['mode_step']}:{f['tensor']}({f['severity'][0]})"
                           for f in r["findings"]})
            lines.append(f"not {'localised' if right else 'found'}: {r['program']} {r['kind']}: "
                         f"said {said[:6]}, expected {r['where'][:3]} from {r['first']}; progress "
                         f"{r['progress']}, twin {twins[r['program']]['progress']}"
                         f"{'; ' + r['problem'][:80] if r.get('problem') else ''}")
    alarms = [(r, f) for r in healthy for f in r["findings"] if f["severity"] != "note"]
    alarmed = {(r["program"], r["run"]) for r, _ in alarms}
    total = [sum(row[i] for row in kinds.values()) for i in range(4)]
    print(f"{len({r['program'] for r in results})} programs: {total[1]} of {total[0]} faults found "
          f"({wilson(total[1], total[0])}), {total[2]} by a warning or an error; {total[3]} at the "
          f"right tensor ({wilson(total[3], total[0])}); {len(alarmed)} of {len(healthy)} healthy runs "
          f"alarmed ({wilson(len(alarmed), len(healthy))}), in {len({p for p, _ in alarmed})} programs; "
          f"{len(faulty) - len(counted)} faults that did no harm are left out")
    print("\n| fault | found | by a warning or an error | right tensor |\n|---|---|---|---|")
    for kind, (n, found, warned, placed) in sorted(kinds.items()):
        print(f"| {kind} | {found} of {n} | {warned} | {placed} |")
    if verbose:
        print()
        for line in sorted(lines):
            print(line)
        for r, f in sorted(alarms, key=lambda one: (one[0]["program"], one[0]["run"])):
            print(f"alarm: {r['program']} {r['run']}: {f['severity']} {f['rule']} {f['tensor']}"
                  f"@{f['mode_step']} ({f['steps']} steps): {f['message']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=("record", "judge", "list"))
    parser.add_argument("--cache", default="/tmp/sonde-others")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--part", type=int, action="append", choices=(1, 2, 3, 4, 5))
    parser.add_argument("--mode", choices=("default", "full"), help="record: both without it; judge: default")
    parser.add_argument("--only", default="*", help="programs: patterns, with commas between")
    parser.add_argument("--run", default="*", help="runs: healthy-*, bit-flip ...")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--verbose", action="store_true")
    a = parser.parse_args()
    known = programs()
    chosen = [n for n in known if part(known[n]) in (a.part or (1, 2, 3, 4, 5)) and
              any(fnmatch.fnmatch(n, only) for only in a.only.split(","))]
    if a.command == "list":
        for name in chosen:
            print(part(known[name]), name, *runs(known[name]))
    elif a.command == "record":
        record(a, [known[n] for n in chosen])
    else:
        paths = [os.path.join(a.cache, n, f"{r}.json") for n in chosen for r in runs(known[n])
                 if fnmatch.fnmatch(r, a.run)]
        paths = [path for path in paths if os.path.exists(path)]
        import session
        session.prepare(a.build)
        import sonde  # noqa: F401  (what the processes send back names its classes)
        with multiprocessing.Pool(a.jobs) as pool:
            results = list(pool.imap_unordered(judge, [(p, a.build, a.mode or "default", a.live) for p in paths]))
        if a.json:
            with open(a.json, "w") as out:
                json.dump(results, out, default=str)
        tally(sorted(results, key=lambda r: (r["program"], r["run"])), a.verbose)


if __name__ == "__main__":
    main()
