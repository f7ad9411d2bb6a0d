#!/usr/bin/env python3
"""Planted faults in PyTorch programs that are watched as a user would: sonde.watch(model,
optimizer), with its defaults and nothing declared.

    bench_truth.py [--runs N] [--seed N] [--jobs N] [--only PATTERN] [--part PART] [--json FILE]

The programs are a sample of the families of exam/torch, half of the runs healthy and half
with a fault: of the open ones, or of those that were kept out of tuning (held-out, sealed). A
fault counts as found if a rule that fits it has a finding at the fault's step or later; a module,
if the finding names a tensor of the one at fault. Warnings and errors are counted apart from
notes, and so are faults that only labels or targets show (a watch does not see them). A healthy
run is alarmed by a warning or an error. An optimizer that sonde.watch refuses because it holds
other tensors is a fault found."""

import argparse
import collections
import fnmatch
import json
import multiprocessing
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# Faults of labels and targets, which sonde.watch sees only if the program shows them.
OF_TARGETS = ("one-class", "targets-shuffled", "broadcast", "same-batch-again")


def prepare(programs):
    build = os.environ.get("SONDE_BUILD", os.path.join(ROOT, "build", "release"))
    sys.path[0:0] = [os.path.join(build, "python"), programs]


class User:
    """In place of the benchmark's recorder: the watch that a user would write."""

    def __init__(self, program):
        self.program, self.watch = program, None

    def declare(self, *arguments, **options):
        pass

    see = end = declare

    def begin(self, mode):
        if self.watch is None:
            import sonde
            model, optimizers = self.program.model, self.program.optimizers
            self.watch = sonde.watch(model, optimizers, on_finding=None)


class Nobody(User):
    def begin(self, mode):
        pass


def run(task):
    programs, part, name, kind, seed = task
    prepare(programs)
    import torch
    import loop
    import plants
    import run as torch_runs
    torch.set_num_threads(1)
    family = torch_runs.families_of(part)[name]
    healthy = kind == "healthy"
    program = family(seed, variant=healthy)
    plant = (loop.Plant if healthy else plants.KINDS[kind])(program)
    user = User(program)
    result = {"run": f"{name}/{kind}/{seed}", "kind": kind, "family": name}
    try:
        losses = loop.train(program, plant, user)
        user.watch.close()
        twin = None
        if not healthy and not plant.always:
            twin = loop.train(family(seed, variant=False), loop.Plant(None), Nobody(program))
    except ValueError as problem:
        if healthy:
            raise
        if user.watch is not None:  # the fault ends the program with an error of its own
            user.watch.close()
            return {**result, "rules": list(plant.rules), "where": list(plant.where),
                    "first": plant.first, "visible": True, "faults": user.watch.faults,
                    "findings": [f._asdict() for f in user.watch.findings]}
        # refused before the first step: an optimizer that holds other tensors
        found = {"rule": plant.rules[0], "severity": "error", "tensor": "", "mode_step": 0,
                 "message": str(problem)}
        return {**result, "rules": list(plant.rules), "where": ["-"], "first": 0, "visible": True,
                "findings": [found], "faults": 0}
    except Exception as problem:
        return {**result, "problem": f"{type(problem).__name__}: {problem}"}
    findings = [f._asdict() for f in user.watch.findings]
    return {**result, "rules": list(plant.rules), "where": list(plant.where), "first": plant.first,
            "visible": torch_runs.visible(plant, losses, twin), "findings": findings,
            "faults": user.watch.faults}


def module_of(tensor):
    """The module of a tensor's name."""
    name = tensor.split("/", 1)[-1]
    for end in ("_output_", "_input_"):
        name = name.split(end)[0]
    return name.rsplit(".", 1)[0] if name.rsplit(".", 1)[-1] in ("weight", "bias", "*") else name


# Faults of what a program feeds its model, which a watch calls input, input/1, input_ids ...
OF_INPUTS = ("nan-in-input", "same-batch-again", "not-normalized")


def is_right(result, finding):
    patterns = result["where"]
    if result["kind"] in OF_INPUTS and finding["tensor"].split("/")[0] in ("input", "input_ids"):
        return True
    if any(fnmatch.fnmatch(finding["tensor"] or "-", where) for where in patterns):
        return True
    return finding["tensor"] != "" and module_of(finding["tensor"]) in map(module_of, patterns)


def chosen(programs, part, count, seed, only):
    prepare(programs)
    import plants
    import run as torch_runs
    faulty, healthy = [], []
    for name, family in torch_runs.families_of(part).items():
        healthy += [(programs, part, name, "healthy", one) for one in range(1, 11)]
        for kind, plant in plants.KINDS.items():
            if plant.fits(family) if family.kinds is None else kind in family.kinds:
                faulty.append((programs, part, name, kind, 101))
    draw = random.Random(seed)
    for runs in (faulty, healthy):
        runs[:] = [run for run in runs if fnmatch.fnmatch(f"{run[2]}/{run[3]}/{run[4]}", only)]
        draw.shuffle(runs)
    tasks = faulty[:count // 2] + healthy[:count - count // 2]
    draw.shuffle(tasks)  # a run that is cut short is a fair sample
    return tasks


def tally(results, verbose):
    broken = [r for r in results if "problem" in r]
    results = [r for r in results if "problem" not in r]
    groups = collections.defaultdict(lambda: [0, 0, 0, 0])
    missed = []
    for r in results:
        if r["kind"] == "healthy" or not r["visible"]:
            continue
        group = groups["only labels or targets show it" if r["kind"] in OF_TARGETS else
                       "tensors of the model show it"]
        right = [f for f in r["findings"] if f["rule"] in r["rules"] and
                 f["mode_step"] >= r["first"]]
        group[0] += 1
        group[1] += bool(right)
        group[2] += any(is_right(r, f) for f in right)
        group[3] += any(f["severity"] != "note" for f in right)
        if not any(is_right(r, f) for f in right):
            missed.append((r, bool(right)))
    for name, (count, found, place, loud) in sorted(groups.items(), reverse=True):
        print(f"{name}: {found} of {count} faults found ({loud} by a warning or an error), {place} "
              "at the right module")
    healthy = [r for r in results if r["kind"] == "healthy"]
    alarmed = [r for r in healthy if any(f["severity"] != "note" for f in r["findings"])]
    print(f"{len(alarmed)} of {len(healthy)} healthy runs alarmed; {len(broken)} programs ended "
          f"with an exception; {sum(r['faults'] for r in results)} observations failed")
    for r in broken:
        print(f"exception: {r['run']}: {r['problem']}")
    if verbose:
        for r, found in sorted(missed, key=lambda one: one[0]["run"]):
            said = sorted({f"{f['rule']}@{f['mode_step']}:{f['tensor']}({f['severity'][0]})"
                           for f in r["findings"]})[:5]
            print(f"not {'localised' if found else 'found'}: {r['run']}: {said} "
                  f"(expected {r['where'][:3]})")
        for r in alarmed:
            for f in r["findings"]:
                if f["severity"] != "note":
                    print(f"alarm: {r['run']}: {f['severity']} {f['rule']} {f['tensor']}"
                          f"@{f['mode_step']}: {f['message']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="*")
    parser.add_argument("--programs", default=os.path.join(ROOT, "bench", "faults", "torch"))
    parser.add_argument("--part", choices=("open", "held-out", "sealed"), default="open")
    parser.add_argument("--json", help="where the results go")
    parser.add_argument("--verbose", action="store_true", help="each miss and each alarm")
    a = parser.parse_args()
    tasks = chosen(os.path.abspath(a.programs), a.part, a.runs, a.seed, a.only)
    with multiprocessing.get_context("spawn").Pool(a.jobs) as pool:
        results = []
        for result in pool.imap_unordered(run, tasks):
            results.append(result)
            if a.json:
                with open(a.json, "w", encoding="utf-8") as out:
                    json.dump(results, out)
    tally(sorted(results, key=lambda r: r["run"]), a.verbose)


if __name__ == "__main__":
    main()
