"""_planted.py - what the tests of the checks share: a tree with a fault in it, and the sum."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOLS = os.path.join(ROOT, "tools")


class Planted(unittest.TestCase):
    """Each test gets an empty tree of its own in self.root."""

    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="sonde-planted-")
        self.addCleanup(shutil.rmtree, self.root)

    def plant(self, path, text):
        whole = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        # Never through a link: what it names may be the system's.
        if os.path.realpath(whole) != os.path.join(os.path.realpath(self.root), path):
            raise ValueError(f"{path}: leads out of the planted tree")
        with open(whole, "w", encoding="utf-8") as file:
            file.write(text)
        return whole

    def run_tool(self, *command, **more):
        """(status, output) of a command; the first word is a tool if it has no slash."""
        program = command[0] if "/" in command[0] else os.path.join(TOOLS, command[0])
        done = subprocess.run([program, *command[1:]], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, **more)
        return done.returncode, done.stdout

    def changed(self, name, before, after):
        """A copy of a tool with another limit; its path."""
        with open(os.path.join(TOOLS, name), encoding="utf-8") as file:
            text = file.read()
        self.assertIn(before, text)
        self.plant("build/tools/" + name, text.replace(before, after))
        shutil.copy(os.path.join(TOOLS, "house.py"), os.path.join(self.root, "build/tools"))
        os.chmod(os.path.join(self.root, "build/tools", name), 0o755)
        return os.path.join(self.root, "build/tools", name)

    def check(self, name, *options):
        """A check over the planted tree; a skipped one skips the test."""
        status, output = self.run_tool(name, "--root", self.root, *options)
        if status == 77:
            self.skipTest(output.strip())
        self.assertIn(status, (0, 1), output)
        self.assertEqual(status == 0, output == "", output)
        return output

    def assert_finds(self, place, text, name, *options):
        output = self.check(name, *options)
        self.assertIn(place, output)
        self.assertIn(text, output)

    def assert_silent(self, name, *options):
        self.assertEqual(self.check(name, *options), "")


def main():
    """Runs the tests of the calling script and prints the sum as its last line."""
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(
        unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    failed = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed or not result.testsRun else 0)
