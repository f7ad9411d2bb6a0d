"""reporting.py - what run-checks prints: failures in full, the time of each stage, the sum."""

import contextlib
import sys
import threading
import time

import counting


class Report:
    """Counts results, prints failures at once and in full, and keeps everything in a log."""

    def __init__(self, log):
        self.passed = self.failed = self.skipped = 0
        self.names, self.reused, self.times = [], {}, []
        self.log = open(log, "w", encoding="utf-8")
        self.screen = sys.stdout.isatty()
        self.started = time.monotonic()
        self.lock = threading.RLock()  # stages run side by side

    def say(self, text):
        with self.lock:
            print(("\r\033[K" if self.screen else "") + text, flush=True)

    def note(self, text):
        with self.lock:
            self.log.write(f"==== {time.monotonic() - self.started:7.1f} s  {text}\n")
            self.log.flush()
            if self.screen:
                print(f"\r\033[K{text} ...", end="", flush=True)

    @contextlib.contextmanager
    def stage(self, name):
        """Times a stage; finish() prints the seconds."""
        self.note(name)
        begin = time.monotonic()
        try:
            yield
        finally:
            with self.lock:
                self.times.append((name, time.monotonic() - begin))

    def add(self, name, output, ok, is_skip=False):
        """Counts one program's result and returns (passed, failed, skipped)."""
        counts = (0, 0, 1) if is_skip else counting.count(output, ok)
        word = "FAILED" if counts[1] else "skipped" if is_skip else "passed"
        with self.lock:
            self.passed += counts[0]
            self.failed += counts[1]
            self.skipped += counts[2]
            self.log.write(f"---- {word} {name}\n{output.rstrip()}\n")
            if counts[1]:
                self.names.append(name)
                self.say(f"FAILED {name}\n{output.rstrip()}\n")
            elif is_skip:
                last = (output.strip().splitlines() or ["no reason given"])[-1]
                self.say(f"skipped {name}: {last}")
        return counts

    def unstable(self, name, output):
        """Counts as skipped a test that failed among others and passed each time alone."""
        with self.lock:
            self.skipped += 1
            self.log.write(f"---- unstable {name}\n{output.rstrip()}\n")
            self.say(f"UNSTABLE {name} failed beside other tests and passes alone\n"
                     f"{output.rstrip()}\n")

    def recalled(self, suite, passed, skipped):
        """Counts tests that passed earlier and whose inputs have not changed."""
        with self.lock:
            self.passed += passed
            self.skipped += skipped
            self.reused[suite] = self.reused.get(suite, 0) + passed

    def finish(self):
        """Prints the times and the sum; returns the exit status."""
        self.note("done")
        if self.reused:
            reused = ", ".join(f"{suite} {count}" for suite, count in self.reused.items())
            self.say(f"unchanged since they passed: {reused} (--fresh runs them)")
        if self.names:
            self.say("failed: " + ", ".join(self.names))
        for name, seconds in self.times:
            self.say(f"{seconds:7.1f} s  {name}")
        self.say(f"{time.monotonic() - self.started:7.1f} s  in all")
        line = f"{self.passed} passed, {self.failed} failed"
        if self.skipped:
            line += f", {self.skipped} skipped"
        self.log.write(line + "\n")
        self.say(line)
        return 1 if self.failed or not self.passed else 0
