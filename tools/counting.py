"""counting.py - counts the tests that a program ran, and remembers which of them passed.

run-checks uses it; it is a module of its own so that tests/tools can reach it.
"""

import hashlib
import json
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree

CMOCKA = re.compile(r"^\[  (PASSED|FAILED|SKIPPED ) *\] (?:[^:\n]+: )?(\d+) test", re.M)
SUM = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$", re.M)
# A failure that says by itself what is wrong, however rarely it is seen.
CERTAIN = re.compile(r"(?:WARNING|ERROR|SUMMARY): \w+Sanitizer|: runtime error: |"
                     r"Segmentation fault|SIGSEGV|SIGABRT|SIGBUS|SIGFPE|SIGILL|Assertion `|"
                     r"core dumped|Exception: ")


def is_certain(output):
    """Whether a failed test need not be run again: a sanitizer's report, or a crash."""
    return CERTAIN.search(output) is not None


def count(output, ok):
    """(passed, failed, skipped) of a program, from its output and whether it succeeded.

    The sum of cmocka's summaries over all groups of the program; else the last line "N passed,
    N failed"; else the program counts as one test. A program that did not succeed counts at
    least one failure.
    """
    sums = {"PASSED": 0, "FAILED": 0, "SKIPPED": 0}
    found = CMOCKA.findall(output)
    for word, number in found:
        sums[word.strip()] += int(number)
    result = [sums["PASSED"], sums["FAILED"], sums["SKIPPED"]]
    if not found:
        lines = SUM.findall(output)
        result = [int(number or 0) for number in lines[-1]] if lines else [int(ok), 0, 0]
    if not ok and result[1] == 0:
        result[1] = 1
    return tuple(result)


def junit(path):
    """Yields (name, status, output) for each test in CTest's JUnit file: pass, fail or skip."""
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


class Contents:
    """Digests of files and folders by content, and of programs with the libraries they load."""

    def __init__(self, root):
        self.root = os.path.realpath(root)
        self.digests, self.loaded = {}, {}

    def file(self, path):
        if path not in self.digests:
            with open(path, "rb") as file:
                self.digests[path] = hashlib.sha256(file.read()).hexdigest()
        return self.digests[path]

    def below(self, path):
        """Every file at or below a path, sorted."""
        if os.path.isfile(path):
            return [path]
        found = []
        for folder, inner, leaves in os.walk(path):
            inner[:] = [name for name in inner if name != "__pycache__"]
            found += [os.path.join(folder, leaf) for leaf in leaves]
        return sorted(name for name in found if os.path.isfile(name))

    def digest(self, *paths):
        """One digest of the names and contents of all files at or below the paths."""
        whole = hashlib.sha256()
        for name in sorted({name for path in paths for name in self.below(path)}):
            whole.update(f"{name}\0{self.file(name)}\n".encode())
        return whole.hexdigest()

    def libraries(self, program, folder):
        """The libraries in a folder that a program loads, and those that they load."""
        found, ahead = set(), [program]
        while ahead:
            for library in self.needed(ahead.pop()):
                path = os.path.join(folder, library)
                if path not in found and os.path.isfile(path):
                    found.add(path)
                    ahead.append(path)
        return sorted(found)

    def needed(self, path):
        if path not in self.loaded:
            done = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True,
                                  errors="replace")
            self.loaded[path] = re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout)
        return self.loaded[path]

    def test(self, test, folder):
        """The key of a CTest test: its command, its properties, and what the command reads."""
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", ())}
        inputs = list(properties.get("REQUIRED_FILES", ()))
        for word in test.get("command", ()):
            if word.startswith(self.root + os.sep):
                inputs.append(word)
                inputs += self.libraries(word, os.path.join(folder, "lib"))
        text = json.dumps([test.get("command"), properties], sort_keys=True)
        return hashlib.sha256((text + self.digest(*inputs)).encode()).hexdigest()


class Passed:
    """The tests of one suite that passed, each with the key of what it ran on."""

    def __init__(self, folder, suite, forget=False):
        self.path = os.path.join(folder, suite + ".json")
        self.entries = {}
        if not forget and os.path.exists(self.path):
            try:
                with open(self.path, encoding="utf-8") as file:
                    self.entries = json.load(file)
            except (OSError, ValueError):
                pass  # every test runs

    def recall(self, name, key):
        """(passed, skipped) of a test that passed with this key, else None."""
        entry = self.entries.get(name)
        return (entry[1], entry[2]) if entry and entry[0] == key else None

    def remember(self, name, key, counts):
        """Keeps a test's counts (passed, failed, skipped) if nothing failed."""
        self.entries.pop(name, None)
        if counts[1] == 0:
            self.entries[name] = (key, counts[0], counts[2])

    def save(self):
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(self.entries, file)
