#!/usr/bin/env python3
"""How near healthy runs come to an alarm, by rule.

    margins.py build  [--build DIR] [--out DIR]                   a library for each factor
    margins.py judge  [--out DIR] [--others DIR] [--torch DIR] [--odd DIR]   judges recorded runs by each
    margins.py table  [--out DIR] [--verbose]                     prints what came out

SCALES lists the constants and parameters of the rules with the direction in which they become
sensitive; a parameter that two rules in one file share is written STRUCT.NAME. `build` compiles
the rules with all of them moved by a factor: thresholds, shares, counts and patience at once, so that a healthy run without a finding at factor 2 is far from an alarm in
every respect. `judge` judges the same records by each library. The margin of a rule is the
smallest factor at which it alarms a healthy run."""

import argparse
import collections
import concurrent.futures
import json
import math
import os
import re
import shlex
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
FACTORS = (1 / 2, 1 / 1.5, 1 / 1.25, 1, 1.25, 1.5, 2, 3)

# What makes a rule more sensitive, at factor f:
#   "-"  x / f          "+"  x f              "n"  x / f as a whole number, at least 1
#   "1+" 1 + (x - 1) / f    "1*" 1 + (x - 1) f    "1-" 1 - (1 - x) f    "1/" 1 - (1 - x) / f
#   "p"  x^(1 / f), a probability
SCALES = {
    "builtin/rule_class_imbalance.c": {
        "ORDERED": "n", "SORTED": "+", "threshold_imbalance": "1+", "threshold_misprediction": "-",
        "samples": "n", "patience": "n", "sure": "-", "per_class": "n"},
    "builtin/rule_frozen_parameter.c": {
        "TURNS": "n", "patience": "n", "idle": "n", "IDLE_AFTER": "n", "ENDED": "-", "SUMMED": "+"},
    "builtin/rule_label_noise.c": {
        "NEAR": "+", "AGREE": "+", "SURE": "+", "CLEARLY": "+", "window": "n", "skip": "n",
        "tolerance": "+", "samples": "n"},
    "builtin/rule_loss_not_decreasing.c": {
        "HARDLY": "+", "LITTLE": "+", "CONSTANT": "+", "SPREAD": "-", "BACK": "1+",
        "increase_threshold_percent": "-", "window": "n", "flat": "n"},
    "builtin/rule_loss_sign.c": {"RUNAWAY": "1+", "BOUNDED": "-", "FASTER": "1+", "patience": "n", "window": "n"},
    "builtin/rule_loss_spike.c": {
        "MOVED": "1+", "FAR": "-", "BACK": "-", "SLIGHT": "-", "LOST": "-", "GAINED": "-", "ONE_STEP": "-", "factor": "1+",
        "patience": "n", "least": "n"},
    "builtin/rule_missing_zero_grad.c": {
        "SHARE": "-", "SINGLE": "-", "EQUAL": "1*", "AGREES": "-", "LARGER": "1+", "GROWN": "n",
        "patience": "n", "NOISE": "+", "SMOOTH": "1/", "LIKE": "-", "MORE_LIKE": "-", "LESS_LIKE": "-",
        "NEARLY_ALL": "-", "ABOVE": "1+", "FRESH": "-", "OFTEN": "n"},
    "builtin/rule_optimizer_state.c": {
        "patience": "n", "AFTER": "n", "LARGEST": "-", "ALIKE": "+", "APART": "1+", "SLIGHT": "+"},
    "builtin/rule_poor_weight_initialization.c": {
        "GAIN": "-", "LATE": "n", "FELL": "-", "threshold": "-", "distribution_range": "+",
        "patience": "n", "steps": "n", "LOUD": "-", "CONSTANT": "+", "MOVED": "+"},
    "builtin/rule_symmetric_units.c": {
        "LASTING": "n", "share": "-", "patience": "n", "LONG": "n", "ALIKE": "+"},
    "builtin/rule_unfrozen_parameter.c": {"patience": "n"},
    "builtin/rule_vanishing_gradient.c": {
        "LASTING": "n", "LOSS_END": "-", "LOSS_PART": "-", "AT_ONCE": "+", "threshold": "+",
        "patience": "n", "relative": "+", "profile": "+"},
    "builtin/rule_weight_jump.c": {"WORSE": "-", "PRUNED": "1/", "factor": "-", "least": "n"},
    "builtin/rule_weight_update_ratio.c": {
        "LEAST_RMS": "-", "large_threshold": "-", "small_threshold": "+", "fast": "-", "slow": "+",
        "patience": "n", "small_patience": "n", "AT_ONCE": "-"},
    "builtin/rule_replicas.c": {
        "UNLIKELY": "p", "EARLY": "n", "DISTINCT": "n", "STREAK": "n", "ROUNDING": "-"},
    "builtin/rule_modes.c": {"APART": "-", "patience": "n"},
    "builtin/rule_units.c": {
        "MOST_DEAD": "-", "unit_rule.threshold_inactivity": "+", "unit_rule.threshold_layer": "-",
        "unit_rule.patience": "n", "DEAD_LASTING": "n", "LASTING": "n", "threshold_tanh_min": "-", "threshold_tanh_max": "-",
        "threshold_sigmoid_min": "-", "threshold_sigmoid_max": "-",
        "saturated.threshold_inactivity": "+", "saturated.threshold_layer": "-", "slope": "+",
        "saturated.patience": "n"},
    "builtin/rule_spikes.c": {
        "SPREAD": "-", "ALONE": "-", "FAR": "-", "MOMENT": "-", "LASTING": "n",
        "gradient_spike.factor": "-", "gradient_spike.least": "n", "NEGLIGIBLE": "-", "TWICE": "-",
        "HISTORY": "n", "update_spike.factor": "-", "update_spike.least": "n"},
    "builtin/rule_inputs.c": {"threshold": "-", "patience": "n"},
    "builtin/rule_loss_inputs.c": {
        "BROADCAST_CLOSE": "+", "broadcast.patience": "n", "MISUSE_CLOSE": "+", "misuse.patience": "n"},
    "builtin/rule_rounds.c": {"SWINGS": "-", "ERRORS": "-", "ratio_threshold": "-", "rising": "-"},
    "builtin/update_rates.c": {
        "STILL": "1-", "LONG": "n", "FEW": "-", "WORSE": "1+", "RISEN": "1+", "SHARE": "+",
        "FALLEN": "1-", "SLIGHT": "+", "DECAYED": "n"},
    "progress.c": {"FALLEN": "+", "RISEN": "-", "SLIGHT": "+", "BACK": "1+", "LOST": "-", "LASTING": "n"},
}


# --- libraries ---------------------------------------------------------------------------------


def scaled(text, kind, f, least="", most=""):
    """least, most: the range of a parameter; both 0: any."""
    x = float(text)
    value = {"n": max(1, math.ceil(x / f - 1e-9)), "-": x / f, "+": x * f, "1+": 1 + (x - 1) / f, "1*": 1 + (x - 1) * f,
             "1-": 1 - (1 - x) * f, "1/": 1 - (1 - x) / f, "p": x ** (1 / f)}[kind]
    if least and (least, most) != ("0", "0"):
        value = min(max(value, float(least)), float("inf") if most[0].isalpha() else float(most))
    return repr(int(value) if kind == "n" else value)


def rewrite(source, constants, f, name):
    """The source with its constants moved; each must stand in it once."""
    for constant, kind in constants.items():
        owner, _, constant = constant.rpartition(".")
        places = [rf"(#define {constant} )([0-9.e+-]+)()()", rf"(enum {{[^}}]*\b{constant} = )(\d+)()()",
                  rf"(SONDE__(?:REAL|COUNT)\(\s*{owner or '[a-z_]+'},\s*{constant},\s*\")([0-9.e+-]+)"
                  r"(?=\",\s*([0-9.e-]+),\s*([0-9.e]+|[A-Z_]+))"]
        changed = 0
        for place in places:
            source, n = re.subn(place, lambda m: m[1] + scaled(m[2], kind, f, m[3], m[4]), source, count=1)
            changed += n
        if changed != 1:
            sys.exit(f"{name}: {changed} definitions of {constant}")
    return source


def name_of(f):
    return f"{f:.3g}"


def build_one(build, out, f):
    """DIR/FACTOR/lib/libsonde.so.0, from the commands that made the build's."""
    commands = subprocess.run(["ninja", "-C", build, "-t", "commands", "lib/libsonde.so"], check=True,
                              capture_output=True, text=True).stdout.splitlines()
    folder = os.path.join(out, name_of(f))
    os.makedirs(os.path.join(folder, "lib"), exist_ok=True)
    link = next(c for c in commands if "-o lib/libsonde.so." in c)
    words = link.removeprefix(": && ").removesuffix(" && :").split()
    for name, constants in SCALES.items() if f != 1 else ():
        source = os.path.join(ROOT, "src", "core", "rules", name)
        copy = os.path.join(folder, name.replace("/", "_"))
        with open(source) as file:
            text = rewrite(file.read(), constants, f, name)
        if not os.path.exists(copy) or open(copy).read() != text:
            with open(copy, "w") as file:
                file.write(text)
        command = next(c for c in commands if c.endswith(f"/src/core/rules/{name}"))
        parts = shlex.split(command)
        made = parts[parts.index("-o") + 1]
        wanted = {parts[-1]: copy, made: copy + ".o", parts[parts.index("-MF") + 1]: copy + ".d", "-Werror": ""}
        parts = [wanted.get(p, p) for p in parts if wanted.get(p, p)]
        subprocess.run(parts, check=True, cwd=build, stderr=subprocess.DEVNULL)
        words[words.index(made)] = copy + ".o"
    library = os.path.join(folder, "lib", "libsonde.so.0")
    words[words.index("-o") + 1] = library
    subprocess.run(words, check=True, cwd=build)
    python = os.path.join(folder, "python")
    if not os.path.exists(python):
        os.symlink(os.path.join(build, "python"), python)
    return library


def build_all(a):
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for library in pool.map(lambda f: build_one(os.path.abspath(a.build), a.out, f), a.factors):
            print(library)


# --- judging -----------------------------------------------------------------------------------


def judge_all(a):
    for f in a.factors:
        folder = os.path.join(a.out, name_of(f))
        calls = [(corpus, [os.path.join(HERE, "others", "run.py"), "judge", "--cache", cache, "--build", folder])
                 for corpus, cache in (("others", a.others), ("others12", a.others12), ("odd", a.odd)) if cache]
        if a.torch:
            for part in ("open", "held-out", "sealed"):
                calls.append((f"torch-{part}", [os.path.join(HERE, "torch", "run.py"), "judge", "--cache",
                                                a.torch, "--part", part, "--library",
                                                os.path.join(folder, "lib", "libsonde.so.0")]))
        for corpus, call in calls:
            if corpus == "odd":
                call[0] = os.path.join(HERE, "odd", "run.py")
            done = subprocess.run([sys.executable, *call, "--jobs", str(a.jobs), "--json",
                                   os.path.join(folder, corpus + ".json")], capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            print(name_of(f), corpus, *[l for l in done.stdout.splitlines() if " faults found (" in l or
                                        "alarmed (" in l])


# --- the table ---------------------------------------------------------------------------------


def runs_of(path, corpus):
    """(program, run) -> healthy, alarms by rule, rules that find the fault."""
    with open(path) as file:
        results = json.load(file)
    sys.path.insert(0, os.path.join(HERE, "others"))
    import run as others
    kept = {}
    twins = {r["program"]: r for r in results if r.get("run") == "healthy-seed-1"}
    left = {r["program"] for r in results if corpus != "odd" and "program" in r and r["kind"] == "healthy" and
            (r.get("problem") or not others.learns(r))}
    for r in results:
        program = f"{corpus}/{r.get('program') or r['family']}"
        if corpus.startswith("torch"):
            counted, first, at = r["visible"], r["at"], "step"
        else:
            if r["program"] in left or (r["kind"] != "healthy" and r["program"] not in twins):
                continue
            counted = r["kind"] == "healthy" or others.harmful(r, twins[r["program"]])
            first, at = r["first"], "mode_step"
        if not counted:
            continue
        healthy = r["kind"] == "healthy"
        loud = {f["rule"] for f in r["findings"] if f["severity"] != "note"} if healthy else set()
        right = [f for f in r["findings"] if f["rule"] in r["rules"] and f[at] >= first] if not healthy else []
        kept[program, r["run"]] = (healthy, loud, {f["rule"] for f in right},
                                   {f["rule"] for f in right if f["severity"] != "note"})
    return kept


def load(a):
    data = {}
    for f in a.factors:
        folder = os.path.join(a.out, name_of(f))
        data[f] = {}
        for name in sorted(os.listdir(folder)):
            if name.endswith(".json") and (not a.corpus or name[:-5] in a.corpus):
                data[f].update(runs_of(os.path.join(folder, name), name[:-5]))
    return data


def unseen(data, factors, less):
    """Each program by factors chosen on the others: alarmed runs, found faults, loudly found ones.
    less: how many factors below the largest one without an alarm."""
    rules = sorted({r for runs in data.values() for run in runs.values() for r in run[1] | run[2]})
    alarmed = {f: collections.defaultdict(set) for f in factors}  # rule -> programs
    for f in factors:
        for (program, _), run in data[f].items():
            for rule in run[1]:
                alarmed[f][rule].add(program)
    bad = found = loud = healthy = faults = 0
    for program in sorted({p for p, _ in data[1]}):
        chosen = {}
        for rule in rules:
            clean = [i for i in range(len(factors))
                     if all(not alarmed[g][rule] - {program} for g in factors[:i + 1])]
            chosen[rule] = factors[max(0, (clean[-1] if clean else 0) - less)]
        for key, run in data[1].items():
            if key[0] != program:
                continue
            if run[0]:
                healthy += 1
                bad += any(rule in data[f][key][1] for rule, f in chosen.items())
            else:
                faults += 1
                found += any(rule in data[f][key][2] for rule, f in chosen.items())
                loud += any(rule in data[f][key][3] for rule, f in chosen.items())
    return bad, healthy, found, loud, faults


def table(a):
    sys.path.insert(0, os.path.join(HERE, "others"))
    import run as others
    data = load(a)
    factors = sorted(f for f in a.factors)
    rules = sorted({r for runs in data.values() for run in runs.values() for r in run[1] | run[2]})
    healthy = [k for k, run in data[1].items() if run[0]]
    faulty = [k for k, run in data[1].items() if not run[0]]
    programs = len({p for p, _ in data[1]})
    print(f"{programs} programs, {len(healthy)} healthy runs, {len(faulty)} faults\n")
    print("| rule | margin | " + " | ".join(name_of(f) for f in factors) + " |")
    print("|---|---|" + "---|" * len(factors))
    for rule in rules + [None]:
        cells, margin = [], None
        for f in factors:
            alarmed = [k for k in healthy if (rule in data[f][k][1] if rule else data[f][k][1])]
            found = sum(bool(rule in data[f][k][2] if rule else data[f][k][2]) for k in faulty)
            margin = f if f >= 1 and alarmed and margin is None else margin
            cells.append(f"{len(alarmed)} ({len({k[0] for k in alarmed})}), {found}")
        text = f"above {name_of(factors[-1])}" if margin is None else name_of(margin)
        print(f"| {rule or 'any'} | {text} | " + " | ".join(cells) + " |")
    print("\nAlarmed healthy runs (programs), faults found.\n")
    for less, words in ((0, "the largest without an alarm"), (1, "one factor below"), (2, "two below")):
        bad, n, found, loud, faults = unseen(data, factors, less)
        print(f"factors chosen on the other programs, {words}: {bad} of {n} healthy runs alarmed "
              f"({others.wilson(bad, n)}); {found} of {faults} faults found ({others.wilson(found, faults)}), "
              f"{loud} by a warning or an error")
    if a.verbose:
        print()
        for f in [f for f in factors if f >= 1]:
            for k in sorted(healthy):
                news = data[f][k][1] - set().union(*[data[g][k][1] for g in factors if 1 <= g < f] or [set()])
                if news:
                    print(f"{name_of(f)}: {k[0]} {k[1]}: {', '.join(sorted(news))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=("build", "judge", "table"))
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--out", default="/tmp/sonde-margins")
    parser.add_argument("--others", help="records of others/run.py")
    parser.add_argument("--others12", help="more of them")
    parser.add_argument("--torch", help="records of torch/run.py")
    parser.add_argument("--odd", help="records of odd/run.py")
    parser.add_argument("--corpus", action="append")
    parser.add_argument("--factors", type=lambda t: sorted(float(f) for f in t.split(",")), default=FACTORS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    a = parser.parse_args()
    {"build": build_all, "judge": judge_all, "table": table}[a.command](a)


if __name__ == "__main__":
    main()
