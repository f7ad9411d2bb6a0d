#!/usr/bin/env python3
"""False failures and faults found by sonde.check.

    bench_check.py [--part networks|programs] [--set first|kept] [--only PATTERNS] [--jobs N]
                   [--cache FOLDER] [--build FOLDER] [--json FILE] [--verbose]

networks    the small networks of check_networks.py, by sonde.check: healthy, and with a fault
programs    public programs (exam/public), by `sonde check PROGRAM`: as they are, and with the
            faults of structure, modes and loss that the first training step has. The cache is
            that of exam/public/run.py fetch

A fault is found if a property fails that the healthy network has, and at the right place if it is
one of those that the fault breaks. Prints `name,value,unit,limit` lines; --verbose also the name of each
miss and each false failure."""

import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# The properties that a kind of fault of exam/public breaks, if its first training step shows it.
BROKEN = {
    "detached": "reached", "left-out": "held", "replaced": "held", "plain-list": "registered held",
    "unused-layer": "reached output_on_input", "dropout-always": "deterministic",
    "eval-mode": "training", "no-mask": "leak", "mixed-batch": "mixing batch",
    "softmax-twice": "normalised", "softmax-missing": "normalised",
    "wrong-dimension": "normalised mixing leak", "broadcast": "target_rows",
    "targets-are-inputs": "copying", "constant-input": "output_on_input", "ascent": "minimised overfits", "rate": "overfits",
}


# --- small networks ----------------------------------------------------------------------------


def check_network(name):
    import torch
    import check_networks
    import check_sequences  # noqa: F401 adds to the lists of check_networks
    import check_unusual  # noqa: F401 adds to them too
    import sonde
    torch.set_num_threads(1)
    build, right = check_networks.FAULTS.get(name) or (check_networks.HEALTHY[name], ())
    arguments = build()
    begin = time.monotonic()
    one = {"name": name, "right": sorted(right), "failed": {}, "passed": 0, "why": ""}
    try:
        result = sonde.check(*arguments)
    except ValueError as problem:
        return {**one, "seconds": time.monotonic() - begin, "why": f"refused: {problem}"}
    return {**one, "seconds": time.monotonic() - begin, "passed": len(result.passed),
            "failed": {row.name: row.message for row in result.failed}}


def network_names(build):
    sys.path[:0] = [HERE, os.path.join(build, "python")]
    import check_networks
    import check_sequences  # noqa: F401 adds to the lists of check_networks
    import check_unusual  # noqa: F401 adds to them too
    return [*check_networks.HEALTHY, *check_networks.FAULTS]


# --- public programs ---------------------------------------------------------------------------


def exam():
    """The list of the public programs, and what prepares a copy of one."""
    sys.path.insert(0, os.path.join(ROOT, "exam", "public"))
    import recording
    import table
    return table, recording


def check_program(name, a):
    table, recording = exam()
    program = table.read()[name.partition("/")[0]]
    fault = next((one for one in program.faults if one.name == name.partition("/")[2]), None)
    folder = tempfile.mkdtemp(prefix="sonde-check-")
    try:
        recording.prepare(a.cache, program, fault, folder, watched=False)
        return {"name": name, "right": BROKEN[fault.kind].split() if fault else [],
                **run_check(a, recording, program, folder)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_check(a, recording, program, folder):
    command = [sys.executable, "-m", "sonde", "check", "--json", "--seconds", str(a.limit),
               os.path.basename(program.file), *program.arguments]
    begin = time.monotonic()
    done = subprocess.run(command, cwd=os.path.join(folder, os.path.dirname(program.file)),
                          env=recording.environment(a, 1, program, os.path.join(folder, "run")),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=a.seconds, check=False)
    seconds = time.monotonic() - begin
    try:
        said = json.loads(done.stdout)
    except ValueError:
        return {"seconds": seconds, "failed": {}, "passed": 0,
                "why": f"exit code {done.returncode}: {done.stderr[-300:]}"}
    rows = said.get("rows", ())
    return {"seconds": seconds, "check_seconds": said.get("seconds"), "why": said.get("why", ""),
            "failed": {row["name"]: row["message"] for row in rows if row["verdict"] == "failed"},
            "passed": sum(row["verdict"] == "passed" for row in rows)}


def program_names(a):
    table, _ = exam()
    for program in table.read().values():
        if a.set in (None, program.set):
            yield program.name
            yield from (f"{program.name}/{fault.name}" for fault in program.faults
                        if fault.kind in BROKEN)


# --- counts ------------------------------------------------------------------------------------


def tally(what, results, verbose):
    healthy = {r["name"]: r for r in results if "/" not in r["name"]}
    checked = [r for r in healthy.values() if not r["why"]]
    wrong = [r for r in checked if r["failed"]]
    stopped = [r for r in results if "/" in r["name"] and r["passed"] == 0 and not r["failed"]
               and r["why"].startswith("TimeoutExpired")]
    faults = [r for r in results if "/" in r["name"] and r not in stopped]
    found, right = [], []
    for r in faults:
        twin = healthy.get(r["name"].partition("/")[0], {"failed": {}})
        new = [name for name in r["failed"] if name not in twin["failed"]]
        found += [r] if new else []
        right += [r] if set(new) & set(r["right"]) else []
    say(f"check_{what}_healthy", len(checked), what, ">=40")
    say(f"check_{what}_false_failures", len(wrong), what, "<=0")
    say(f"check_{what}_not_checked", len(healthy) - len(checked), what)
    say(f"check_{what}_faults_stopped", len(stopped), what)  # after --seconds, and not counted
    if faults:
        say(f"check_{what}_faults", len(faults), what)
        say(f"check_{what}_faults_failed", 100 * len(found) / len(faults), "%", "")
        say(f"check_{what}_faults_right_property", 100 * len(right) / len(faults), "%", ">=95")
    seconds = [r["seconds"] for r in results]
    say(f"check_{what}_seconds_median", statistics.median(seconds), "s", "")
    say(f"check_{what}_seconds_most", max(seconds), "s", "")
    if verbose:
        details(healthy, faults, right)
    broken = collections.Counter(name for r in faults if r not in right for name in r["right"])
    print(f"# missed: {dict(broken)}")


def say(name, value, unit, limit=""):
    print(f"{name},{value:.4g},{unit},{limit}", flush=True)


def details(healthy, faults, right):
    for r in healthy.values():
        if r["why"]:
            print(f"not checked: {r['name']}: {r['why']}")
        for name, message in r["failed"].items():
            print(f"false failure: {r['name']}: {name}: {message}")
    for r in faults:
        if r not in right:
            print(f"missed: {r['name']}: expected {r['right']}, not {r['failed']} {r['why']}")


def judged(part, a):
    names = list(network_names(a.build) if part == "networks" else program_names(a))
    names = [name for name in names
             if any(fnmatch.fnmatch(name, only) for only in a.only.split(","))]
    names.sort(key=lambda name: "/" in name)  # healthy ones first
    results = []
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for result in map(check_network, names) if part == "networks" else \
                pool.map(lambda name: one_program(name, a), names):
            results.append(result)
            keep(a, results)  # a run that is cut short has results too
    return results


def keep(a, results):
    if a.json:
        with open(a.json, "w", encoding="utf-8") as out:
            json.dump(results, out, indent=1)


def one_program(name, a):
    try:
        return check_program(name, a)
    except Exception as problem:  # a program that is not there, or takes too long
        return {"name": name, "right": [], "seconds": 0.0, "failed": {}, "passed": 0,
                "why": f"{type(problem).__name__}: {problem}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", choices=("networks", "programs"), action="append")
    parser.add_argument("--set", choices=("first", "kept"))
    parser.add_argument("--only", default="*", help="names: patterns, with commas between")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=120, help="after which a program is ended")
    parser.add_argument("--limit", type=int, default=30, help="seconds of a check of a program")
    parser.add_argument("--cache", default=os.environ.get("SONDE_EXAM_CACHE", "/tmp/sonde-public"))
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--json", help="where the results go")
    parser.add_argument("--verbose", action="store_true", help="each miss and each false failure")
    a = parser.parse_args()
    every = []
    for part in a.part or ("networks", "programs"):
        results = judged(part, a)
        every += results
        if results:
            tally(part, results, a.verbose)
    keep(a, every)


if __name__ == "__main__":
    main()
