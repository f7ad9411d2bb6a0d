#!/usr/bin/env python3
"""Records the programs once, and judges the records with the rules as they are.

    run.py record [--cache DIR] [--jobs N] [--part open|held-out|sealed]
    run.py judge  [--cache DIR] [--jobs N] [--part open|held-out|sealed]
                  [--mode declared|named|scheduled|hook] [--only PATTERN] [--verbose] [--markdown]

Rules are tuned on the open part. The held-out and the sealed part were judged once each."""

import argparse
import collections
import fnmatch
import json
import math
import multiprocessing
import os
import random
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
HEALTHY, PLANTED = {"open": 10, "held-out": 6, "sealed": 6}, 1


def wilson(k, n):
    if n == 0:
        return "-"
    z, p = 1.96, k / n
    middle, half = p + z * z / 2 / n, z * math.sqrt(p * (1 - p) / n + z * z / 4 / n / n)
    return f"{100 * (middle - half) / (1 + z * z / n):.1f}-{100 * (middle + half) / (1 + z * z / n):.1f} %"


def families_of(part):
    import families
    import heldout
    return {"open": families.FAMILIES, "held-out": heldout.HELD_OUT, "sealed": heldout.SEALED}[part]


def runs(part, only):
    """Names family/kind/seed of all runs of the chosen part."""
    import plants
    result = []
    for name, family in families_of(part).items():
        result += [f"{name}/healthy/{seed}" for seed in range(1, HEALTHY[part] + 1)]
        for kind, plant in plants.KINDS.items():
            if plant.fits(family) if family.kinds is None else kind in family.kinds:
                result += [f"{name}/{kind}/{seed}" for seed in range(101, 101 + PLANTED)]
    return [r for r in result if fnmatch.fnmatch(r, only)]


def path_of(cache, run):
    return os.path.join(cache, run.replace("/-", "-").replace("-/", "-").replace("/", "__"))


def record(task):
    try:
        record_run(*task)
    except Exception as error:
        return f"{task[1]}: {type(error).__name__}: {error}"
    return None


def record_run(cache, run, part="open"):
    import torch
    import loop
    import plants
    import tracing
    torch.set_num_threads(1)
    name, seed = run.split("/")[0], int(run.split("/")[-1])
    kind = run[len(name) + 1:-len(str(seed)) - 1]
    path = path_of(cache, run)
    if os.path.exists(path + ".npz"):
        return
    os.makedirs(cache, exist_ok=True)
    # a planted run is its healthy twin, of usual rate and length, with a fault
    family = families_of(part)[name]
    program = family(seed, variant=kind == "healthy")
    plant = (loop.Plant if kind == "healthy" else plants.KINDS[kind])(program)
    recorder = tracing.Recorder(path)
    losses = loop.train(program, plant, recorder)
    twin = None
    if not plant.always and kind != "healthy":
        class Nobody:
            def declare(self, *a, **k): pass
            see = begin = end = declare
        twin = loop.train(family(seed, variant=False), loop.Plant(None), Nobody())
    recorder.close(run=run, kind=kind, family=name, rules=list(plant.rules),
                   where=list(plant.where), first=plant.first,
                   visible=visible(plant, losses, twin), losses=losses)


def visible(plant, losses, twin):
    """A fault of the step size counts if it does harm: less than half of the healthy twin's
    progress, or a loss that is not finite."""
    if plant.always or twin is None:
        return True
    n = max(len(losses) // 8, 1)
    mean = lambda values: sum(values) / len(values)
    if not all(map(math.isfinite, losses)):
        return True
    gain = mean(twin[:3]) - mean(twin[-n:])
    at = max(plant.first + 1, 3)
    worst = max(mean(losses[i:i + n]) for i in range(at, len(losses) - n + 1))
    lost = mean(losses[-n:]) - mean(twin[-n:])
    if plant.first > 0:
        return max(worst, mean(losses[-n:])) - mean(twin[-n:]) > 0.5 * abs(gain)
    return lost > 0.5 * abs(gain)


def judge(task):
    cache, run, mode, library = task
    import tracing
    import watch
    sonde = watch.Sonde(library)
    trace = tracing.Trace(path_of(cache, run))
    begin = time.process_time()
    if mode == "hook":
        folder = f"/tmp/sonde-faults-{os.getpid()}"
        findings = sonde.judge_recorded(trace, folder, '{"path": "PATH"}')
    elif mode == "recorded":
        folder = f"/tmp/sonde-faults-{os.getpid()}"
        findings = sonde.judge_recorded(
            trace, folder, '{"path": "PATH", "save_all": true, "every": 1, "vitals_every": 1}')
    else:
        findings = sonde.judge(trace, named=mode == "named", every=int(mode != "scheduled"))
    facts = {k: trace.facts[k] for k in ("kind", "family", "rules", "where", "first", "visible")}
    if facts["kind"] != "healthy":
        import plants
        facts["rules"] = plants.KINDS[facts["kind"]].rules
    steps = [int(i) for i, (m, _) in enumerate(trace.steps[:-1]) if m == 0]
    first = steps[min(facts["first"], len(steps) - 1)] if facts["first"] else 0
    return {**facts, "run": run, "findings": findings, "at": first,
            "seconds": time.process_time() - begin}


def is_right(result, finding):
    return any(fnmatch.fnmatch(finding["tensor"] or "-", w) for w in result["where"])


def tally(results, markdown, verbose):
    faults = [r for r in results if r["kind"] != "healthy" and r["visible"]]
    healthy = [r for r in results if r["kind"] == "healthy"]
    kinds = collections.defaultdict(lambda: [0, 0, 0, 0])
    precision = collections.defaultdict(lambda: [0, 0, 0, 0])
    missed = []
    for r in faults:
        row = kinds[r["kind"]]
        row[0] += 1
        right = [f for f in r["findings"] if f["rule"] in r["rules"] and f["step"] >= r["at"]]
        row[1] += any(f["severity"] != "note" for f in right)
        row[2] += bool(right)
        row[3] += any(is_right(r, f) for f in right)
        loud = [f for f in r["findings"] if f["severity"] != "note"]
        for rule in {f["rule"] for f in loud}:
            known = all(f["follows"] for f in loud if f["rule"] == rule)
            precision[rule][0 if rule in r["rules"] else 3 if known else 1] += 1
        if not right or not any(is_right(r, f) for f in right):
            missed.append((r["run"], "localised" if right else "found", sorted(
                {f"{f['rule']}@{f['mode_step']}:{f['tensor']}({f['severity'][0]})"
                 for f in r["findings"]})[:4], r["where"][:3]))
    alarms = [(r["run"], f) for r in healthy for f in r["findings"] if f["severity"] != "note"]
    for rule in {(run, f["rule"]) for run, f in alarms}:
        precision[rule[1]][2] += 1
    alarmed = len({run for run, _ in alarms})
    total = [sum(row[i] for row in kinds.values()) for i in range(4)]
    print(f"{total[2]} of {total[0]} faults found ({wilson(total[2], total[0])}), {total[1]} by a "
          f"warning or an error; {total[3]} at the right tensor ({wilson(total[3], total[0])}); "
          f"{alarmed} of {len(healthy)} healthy runs alarmed ({wilson(alarmed, len(healthy))}); "
          f"{sum(r['kind'] != 'healthy' and not r['visible'] for r in results)} planted faults "
          f"that did no harm are left out\n")
    print("| fault | found | by a warning or an error | right tensor |\n|---|---|---|---|")
    for kind, (n, warned, found, right) in sorted(kinds.items()):
        print(f"| {kind} | {found} of {n} | {warned} | {right} |")
    # a finding that names another one as its cause accuses nothing itself
    print("\n| rule | right | follows another finding | for another fault | in healthy runs | "
          "precision |\n|---|---|---|---|---|---|")
    for rule, (right, other, false, known) in sorted(precision.items()):
        share = 100 * right / max(right + other + false, 1)
        print(f"| {rule} | {right} | {known} | {other} | {false} | {share:.0f} % |")
    if verbose:
        print()
        for run, what, found, where in missed:
            print(f"not {what}: {run}: {found} (expected {where})")
        for run, f in alarms:
            print(f"alarm: {run}: {f['severity']} {f['rule']} {f['tensor']}@{f['mode_step']}: "
                  f"{f['message']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=("record", "judge"))
    parser.add_argument("--cache", default="/tmp/sonde-faults")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--part", choices=tuple(HEALTHY), default="open")
    parser.add_argument("--mode", choices=("declared", "named", "scheduled", "hook", "recorded"),
                        default="declared")
    parser.add_argument("--only", default="*")
    parser.add_argument("--library", dest="libsonde", default="build/release/lib/libsonde.so")
    parser.add_argument("--json")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    a = parser.parse_args()
    cache = os.path.join(a.cache, a.part)
    chosen = runs(a.part, a.only)
    random.Random(1).shuffle(chosen)  # a record that is cut short is a fair sample
    with multiprocessing.Pool(a.jobs) as pool:
        if a.command == "record":
            for i, error in enumerate(pool.imap_unordered(record, [(cache, r, a.part) for r in chosen])):
                if error is not None:
                    print(error, file=sys.stderr)
                if i % 50 == 49:
                    print(f"{i + 1} of {len(chosen)}", file=sys.stderr)
            return
        recorded = [(cache, r, a.mode, os.path.abspath(a.libsonde)) for r in chosen
                    if os.path.exists(path_of(cache, r) + ".npz")]
        if len(recorded) < len(chosen):
            print(f"{len(recorded)} of {len(chosen)} runs are recorded\n")
        results = list(pool.imap_unordered(judge, recorded, chunksize=4))
    if a.json:
        with open(a.json, "w") as out:
            json.dump(results, out)
    tally(sorted(results, key=lambda r: r["run"]), a.markdown, a.verbose)


if __name__ == "__main__":
    main()
