"""Sources of the public programs, and their runs: each in a process of its own."""

import concurrent.futures
import fnmatch
import json
import math
import os
import shutil
import subprocess
import sys
import tarfile
import time

import table

STANDINS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "standins")
SIZE_MAX = 4 << 20  # of a file that is copied for a run


# --- sources -----------------------------------------------------------------------------------


def git_directory(a, program):
    if a.mirror:
        for end in ("repo/.git", "repo", ""):
            path = os.path.join(a.mirror, program.source, end)
            if os.path.exists(os.path.join(path, "HEAD")):
                return path
        raise table.TableError(f"{a.mirror} has no {program.source} (expected a git directory)")
    path = os.path.join(a.cache, "git", program.source)
    if not os.path.exists(path):
        subprocess.run(["git", "clone", "--quiet", "--bare", f"https://github.com/{program.repository}", path],
                       check=True)
    return path


def present(git, commit, folders):
    """The paths under the folders whose content is there: a copy of a repository may lack its largest files."""
    listed = subprocess.run(["git", f"--git-dir={git}", "ls-tree", "-r", "-z", commit, "--", *folders],
                            check=True, capture_output=True, text=True).stdout.split("\0")[:-1]
    entries = [(line.split("\t", 1)[1], line.split()[2]) for line in listed if line.split()[1] == "blob"]
    found = subprocess.run(["git", f"--git-dir={git}", "cat-file", "--batch-check"], check=True, capture_output=True,
                           text=True, input="".join(f"{name}\n" for _, name in entries)).stdout.splitlines()
    return [path for (path, _), line in zip(entries, found) if not line.endswith("missing")]


def extract(git, commit, folders, target):
    paths = present(git, commit, folders)
    with subprocess.Popen(["git", f"--git-dir={git}", "archive", commit, "--", *paths],
                          stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            archive.extractall(target, filter="data")


def fetch(a, programs):
    missing = 0
    for source in sorted({p.source for p in programs if not p.is_ours}):
        ours = [p for p in programs if p.source == source]
        target = os.path.join(a.cache, "sources", source, ours[0].commit)
        if all(os.path.exists(os.path.join(target, p.file)) for p in ours):
            continue
        shutil.rmtree(target, ignore_errors=True)
        try:
            git = git_directory(a, ours[0])
            os.makedirs(target)
            extract(git, ours[0].commit, sorted({p.folder or "." for p in ours}), target)
        except (table.TableError, tarfile.TarError, subprocess.CalledProcessError, OSError) as problem:
            missing += 1
            print(f"{ours[0].repository}: {problem}")
    return 1 if missing else 0


def prepare(cache, program, fault, target, watched=True):
    """Copies the program to a folder and changes it. Returns the lines that the fault changed."""
    source = table.BUGS if program.is_ours else os.path.join(cache, "sources", program.source, program.commit,
                                                             program.folder)
    if not os.path.exists(source):
        raise table.TableError(f"{source} is not there (expected the source, as run.py fetch leaves it)")

    def too_large(folder, names):
        return [n for n in names if os.path.isfile(os.path.join(folder, n)) and
                os.path.getsize(os.path.join(folder, n)) > SIZE_MAX]

    shutil.rmtree(target, ignore_errors=True)
    home = os.path.join(target, program.folder)
    shutil.copytree(source, home, ignore=too_large, symlinks=True)
    return table.apply(target, program, fault, watched)


# --- runs --------------------------------------------------------------------------------------


def runs(program, seeds):
    """(name, seed, fault): healthy and faulty ones in turn, so that a recording that is stopped has both."""
    healthy = [(f"healthy-{seed}", seed, None) for seed in range(1, seeds + 1)]
    faulty = [(fault.name, 1, fault) for fault in program.faults]
    return healthy[:1] + faulty + healthy[1:]


def environment(a, seed, program, run):
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SONDE_"))}
    path = [STANDINS, os.path.join(os.path.abspath(a.build), "python")]
    return {**own, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1", "SONDE_EXAM_RUN": run,
            "SONDE_EXAM_SEED": str(seed), "SONDE_EXAM_STEPS": str(program.steps), "PYTHONHASHSEED": str(seed),
            "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "agg"}


def end_of(status):
    if status == 0:
        return "exit"
    return "time" if status is None else "error"


def train(a, program, name, seed, fault):
    """One run. Its folder keeps the run of Sonde, what the program printed, and facts.json."""
    folder = os.path.join(os.path.abspath(a.cache), "runs", program.name, name)
    shutil.rmtree(folder, ignore_errors=True)
    lines = prepare(a.cache, program, fault, os.path.join(folder, "program"))
    home = os.path.join(folder, "program", os.path.dirname(program.file))
    command = ["nice", "-n", "5", sys.executable, os.path.basename(program.file), *program.arguments]
    begin, status = time.monotonic(), None
    with open(os.path.join(folder, "log"), "w+", encoding="utf-8", errors="replace") as log:
        try:
            status = subprocess.run(command, cwd=home, env=environment(a, seed, program, os.path.join(folder, "run")),
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                    timeout=a.seconds, check=False).returncode
        except subprocess.TimeoutExpired:
            pass
    facts = {"program": program.name, "set": program.set, "run": name, "seed": seed, "lines": lines,
             "end": end_of(status), "seconds": round(time.monotonic() - begin, 1)}
    shutil.rmtree(os.path.join(folder, "program"))
    with open(os.path.join(folder, "facts.json"), "w", encoding="utf-8") as out:
        json.dump(facts, out)
    return facts


def wanted_runs(a, programs):
    """(program, name, seed, fault): one healthy run and the faults of each program, then the other seeds in rounds."""
    every = [(program, *run) for program in programs for run in runs(program, program.seeds or a.seeds or 1)
             if any(fnmatch.fnmatch(run[0], pattern) for pattern in a.run.split(","))]
    return sorted(every, key=lambda run: run[2])


def is_recorded(a, program, name):
    return os.path.exists(os.path.join(a.cache, "runs", program.name, name, "facts.json"))


def report(a, program, name, fault, facts):
    """Prints how a run ended. Returns whether it ended as the table says."""
    wanted = fault.ends if fault else "exit"
    as_wanted = facts["end"] == wanted or (fault is not None and facts["end"] == "error")
    if not as_wanted or a.verbose:
        print(f"{program.name} {name}: ended by {facts['end']} after {facts['seconds']} s"
              f"{'' if as_wanted else f' (expected {wanted})'}", flush=True)
    return as_wanted


def record(a, programs):
    """Records what is not there yet, `jobs` runs at a time, and begins no run after `minutes`."""
    end = time.monotonic() + 60 * a.minutes if a.minutes else math.inf

    def one(run):
        program, name, seed, fault = run
        if time.monotonic() > end:
            return "late"
        try:
            return report(a, program, name, fault, train(a, program, name, seed, fault)) or "unexpected"
        except table.TableError as problem:
            print(f"{program.name} {name}: {problem}", flush=True)
            return "unexpected"

    todo = [run for run in wanted_runs(a, programs) if a.again or not is_recorded(a, *run[:2])]
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        ended = list(pool.map(one, todo))
    if "late" in ended:
        print(f"{ended.count('late')} of {len(todo)} runs were not begun within {a.minutes} minutes "
              f"(the same command continues with them)")
    return 1 if "unexpected" in ended or "late" in ended else 0
