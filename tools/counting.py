"""counting.py - how many tests a program ran, from what it printed; and who passed before.

Used by run-checks; apart from it so that its own tests can reach it.
"""

import hashlib
import json
import os
import re
import xml.etree.ElementTree as ElementTree

CMOCKA = re.compile(r"^\[  (PASSED|FAILED|SKIPPED ) *\] (?:[^:\n]+: )?(\d+) test", re.M)
SUM = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$", re.M)


def count(output, ok):
    """(passed, failed, skipped) of a program that printed output and ended well or not.

    cmocka's summaries count, over all groups of the program; else the last line "N passed,
    N failed"; else the program is one test. One that did not end well has failed at least
    once, whatever it says.
    """
    sums = {"PASSED": 0, "FAILED": 0, "SKIPPED": 0}
    said = CMOCKA.findall(output)
    for word, number in said:
        sums[word.strip()] += int(number)
    result = [sums["PASSED"], sums["FAILED"], sums["SKIPPED"]]
    if not said:
        lines = SUM.findall(output)
        result = [int(number or 0) for number in lines[-1]] if lines else [int(ok), 0, 0]
    if not ok and result[1] == 0:
        result[1] = 1
    return tuple(result)


def junit(path):
    """Yields (name, status, output) of a JUnit file of ctest's; status: pass, fail, skip."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        skipped = case.find("skipped")
        if case.get("status") == "run":
            status = "pass"
        elif skipped is not None and "SKIP_RETURN_CODE" in (skipped.get("message") or ""):
            status = "skip"
        else:
            status = "fail"
            reasons = [skipped, case.find("failure")]
            output += "".join("\n" + (reason.get("message") or "")
                              for reason in reasons if reason is not None)
        yield case.get("name"), status, output


def fingerprint(*paths):
    """A digest of the files at or below paths: names, sizes and times of change."""
    whole = hashlib.sha256()
    for path in paths:
        found = [path] if os.path.isfile(path) else []
        for folder, inner, leaves in os.walk(path):
            inner[:] = [name for name in inner if name != "__pycache__"]
            found += [os.path.join(folder, leaf) for leaf in leaves]
        for name in sorted(found):
            if os.path.exists(name):
                status = os.stat(name)
                whole.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return whole.hexdigest()


class Passed:
    """What passed before, by suite: a suite whose inputs are the same need not run again."""

    def __init__(self, folder, forget):
        self.folder, self.forget = folder, forget

    def recall(self, suite, key):
        """(passed, skipped) of the suite when it last passed with this key, else None."""
        try:
            with open(os.path.join(self.folder, suite + ".json"), encoding="utf-8") as file:
                entry = json.load(file)
        except (OSError, ValueError):
            return None
        if self.forget or entry.get("key") != key:
            return None
        return entry["passed"], entry["skipped"]

    def remember(self, suite, key, passed, skipped):
        os.makedirs(self.folder, exist_ok=True)
        with open(os.path.join(self.folder, suite + ".json"), "w", encoding="utf-8") as file:
            json.dump({"key": key, "passed": passed, "skipped": skipped}, file)
