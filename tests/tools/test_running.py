"""test_running.py - installing, building and counting do what ./check says they do; bench/ compiles."""

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys

import _planted

sys.path.insert(0, _planted.TOOLS)
import counting  # noqa: E402  (it lies in tools/)

CMOCKA = """[==========] Running {0} test(s).
[ RUN      ] one
[       OK ] one
[==========] {0} test(s) run.
[  PASSED  ] {1} test(s).
"""


class Safety(_planted.Planted):
    def test_nothing_is_planted_through_a_link(self):
        outside = os.path.join(self.root, "outside")
        tree = self.root = os.path.join(self.root, "tree")
        os.makedirs(tree)
        os.symlink(outside, os.path.join(tree, "link"))
        self.assertRaises(ValueError, self.plant, "link", "x")
        self.assertRaises(ValueError, self.plant, "../outside", "x")
        self.assertFalse(os.path.exists(outside))


class Counting(_planted.Planted):
    def test_cmocka_groups_add_up(self):
        text = CMOCKA.format(7, 7) + CMOCKA.format(3, 2) + "[  FAILED  ] 1 test(s), listed below:\n"
        text += "[  FAILED  ] two\n\n 1 FAILED TEST(S)\n"
        self.assertEqual(counting.count(text, False), (9, 1, 0))

    def test_cmocka_skips_and_newer_words(self):
        text = CMOCKA.format(3, 2) + "[  SKIPPED ] 1 test(s), listed below:\n"
        self.assertEqual(counting.count(text, True), (2, 0, 1))
        self.assertEqual(counting.count("[  PASSED  ] group: 5 test(s).\n", True), (5, 0, 0))

    def test_the_last_sum_counts(self):
        text = "1 passed, 0 failed\nmore\n12 passed, 3 failed, 4 skipped\n"
        self.assertEqual(counting.count(text, False), (12, 3, 4))

    def test_anything_else_is_one_test(self):
        self.assertEqual(counting.count("hello", True), (1, 0, 0))
        self.assertEqual(counting.count("hello", False), (0, 1, 0))

    def test_a_crash_after_the_sum_is_a_failure(self):
        self.assertEqual(counting.count(CMOCKA.format(7, 7), False), (7, 1, 0))

    def key(self, *paths):
        return counting.Contents(self.root).digest(*(os.path.join(self.root, path)
                                                     for path in paths))

    def test_what_passed_is_forgotten_when_it_changes(self):
        self.plant("tree/a", "1")
        key, state = self.key("tree"), os.path.join(self.root, "state")
        passed = counting.Passed(state, "suite")
        self.assertIsNone(passed.recall("test", key))
        passed.remember("test", key, (5, 0, 1))
        passed.save()
        self.plant("tree/a", "1")  # the same content at another time
        self.assertEqual(counting.Passed(state, "suite").recall("test", self.key("tree")), (5, 1))
        self.assertIsNone(counting.Passed(state, "suite", forget=True).recall("test", key))
        for path, text in (("tree/b", ""), ("tree/a", "2")):
            self.plant(path, text)
            self.assertIsNone(counting.Passed(state, "suite").recall("test", self.key("tree")))

    def test_a_failure_is_not_remembered(self):
        passed = counting.Passed(self.root, "suite")
        passed.remember("test", "key", (5, 0, 0))
        passed.remember("test", "key", (4, 1, 0))
        self.assertIsNone(passed.recall("test", "key"))


class WholeRun(_planted.Planted):
    """run-checks over a project of three files."""

    PRESETS = """{"version": 3, "configurePresets": [
        {"name": "base", "hidden": true, "generator": "Ninja",
         "binaryDir": "${sourceDir}/build/${presetName}"},
        {"name": "release", "inherits": "base"}, {"name": "tsan", "inherits": "base"},
        {"name": "clang", "inherits": "base", "cacheVariables": {"CMAKE_C_COMPILER": "clang"}}]}"""
    LISTS = """cmake_minimum_required(VERSION 3.22)
        project(planted LANGUAGES C)
        enable_testing()
        add_executable(t t.c)
        add_library(other SHARED other.c)
        set_target_properties(other PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
        target_link_libraries(t PRIVATE -Wl,--no-as-needed other)
        add_custom_target(tested DEPENDS t)
        add_test(NAME room/good COMMAND t 0)
        add_test(NAME room/skipped COMMAND t 77)
        set_tests_properties(room/skipped PROPERTIES SKIP_RETURN_CODE 77)
        """
    PROGRAM = """#include <stdio.h>
        #include <stdlib.h>
        int main(int argc, char **argv)
        {
            puts("[  PASSED  ] 4 test(s).\\nthe very words");
            return argc > 1 ? atoi(argv[1]) : 0;
        }
        """

    def arrange(self, lists="", program=PROGRAM, check="exit 0"):
        for name in ("build", "house.py", "counting.py", "reporting.py", "run-checks", "run-forked"):
            shutil.copy(os.path.join(_planted.TOOLS, name),
                        os.path.join(self.root, os.path.dirname(self.plant("tools/x", "")), name))
        os.remove(os.path.join(self.root, "tools/x"))
        self.plant("CMakePresets.json", self.PRESETS)
        self.plant("CMakeLists.txt", self.LISTS + lists)
        self.plant("t.c", program)
        self.plant("other.c", "int other(void);\nint other(void) { return 1; }\n")
        self.executable("tools/check-planted", check)

    def executable(self, path, body):
        whole = self.plant(path, "#!/bin/bash\n" + body + "\n")
        os.chmod(whole, os.stat(whole).st_mode | stat.S_IXUSR)
        return whole

    def whole(self, *options, **more):
        status, output = self.run_tool(os.path.join(self.root, "tools/run-checks"),
                                       *(options or ["--quick"]), **more)
        return status, output, output.splitlines()[-1]

    def test_all_well(self):
        self.arrange()
        status, output, last = self.whole()
        self.assertEqual((status, last), (0, "5 passed, 0 failed, 1 skipped"), output)
        lines = output.splitlines()  # which one is skipped, the stages' times, the sum
        self.assertEqual([line for line in lines if " s  " not in line],
                         ["skipped release: room/skipped: the very words", last], output)
        for stage in ("tools", "release: build", "release: tests", "in all"):
            self.assertRegex(output, rf"(?m)^ *[0-9.]+ s  {stage}$")

    def test_only_what_changed_runs_again(self):
        self.arrange("add_test(NAME room/slow COMMAND t 0)\n"
                     "set_tests_properties(room/slow PROPERTIES LABELS slow)\n"
                     "add_test(NAME room/reader COMMAND cmake -E cat ${CMAKE_SOURCE_DIR}/data)\n")
        self.plant("data", "one")
        self.assertEqual(self.whole()[2], "6 passed, 0 failed, 1 skipped")  # without the slow one
        log = os.path.join(self.root, "build/check.log")

        def ran(path, text):
            self.plant(path, text)
            status, output, last = self.whole()
            self.assertEqual((status, last), (0, "6 passed, 0 failed, 1 skipped"), output)
            with open(log, encoding="utf-8") as file:
                return re.findall(r"^---- \w+ release: room/(\w+)", file.read(), re.M)

        self.assertEqual(ran("data", "one"), [])
        self.assertEqual(ran("data", "two"), ["reader"])
        self.assertEqual(ran("other.c", "int other(void);\nint other(void) { return 2; }\n"),
                         ["good", "skipped"])  # their program loads that library
        self.assertEqual(ran("t.c", self.PROGRAM + "/* a comment */\n"), [])

    def test_everything(self):
        self.arrange()
        for name, body in (("check-tidy", "echo src/a.c:1: untidy; exit 1"),
                           ("check-symbols", "test -x build/release/t"), ("install-python", "")):
            self.executable("tools/" + name, body)
        for path in ("tests/tools/test_a.py", "tests/python/test_a.py"):
            self.plant(path, "print('3 passed, 0 failed')\n")
        status, output, last = self.whole("--fresh", env={**os.environ,
                                                          "SONDE_PYTHON": sys.executable})
        self.assertEqual(status, 1, output)
        self.assertIn("failed: tools/check-tidy\n", output)
        self.assertRegex(last, "^[0-9]+ passed, 1 failed, [0-9]+ skipped$")
        for stage in ("tidy, beside the others", "symbols", "selftest", "python"):
            self.assertRegex(output, rf"(?m)^ *[0-9.]+ s  {stage}$")
        with open(os.path.join(self.root, "build/check.log"), encoding="utf-8") as file:
            log = file.read()
        for name in ("release: room/good", "tests/tools/test_a.py", "tests/python/test_a.py",
                     "tools/check-planted", "tools/check-symbols"):
            self.assertIn(f"---- passed {name}\n", log)
        for preset in ("clang", "tsan"):
            self.assertRegex(log, f"---- (passed {preset}: room/good|skipped {preset})\n")

    def test_a_failing_test_is_shown_in_full(self):
        self.arrange("add_test(NAME room/bad COMMAND t 3)\n")
        status, output, last = self.whole()
        self.assertEqual((status, last), (1, "9 passed, 1 failed, 1 skipped"), output)
        self.assertIn("FAILED release: room/bad\n[  PASSED  ] 4 test(s).\nthe very words", output)
        self.assertIn("failed: release: room/bad\n", output)

    UNSTEADY = ("add_test(NAME room/{0} COMMAND sh -c "
                "\"test -e {0} || (: > {0} && echo {1} && false)\")\n")

    def test_a_test_that_fails_only_once_is_no_success(self):
        self.arrange(self.UNSTEADY.format("unsteady", "the first time"))
        status, output, last = self.whole()
        self.assertEqual((status, last), (0, "5 passed, 0 failed, 2 skipped"), output)
        self.assertIn("UNSTABLE release: room/unsteady failed beside other tests and passes "
                      "alone\nthe first time\n", output)
        with open(os.path.join(self.root, "build/checked/release.json"), encoding="utf-8") as file:
            self.assertNotIn("unsteady", file.read())  # it runs again next time

    def test_what_a_sanitizer_finds_once_is_a_failure(self):
        self.arrange(self.UNSTEADY.format("race", "WARNING: ThreadSanitizer: data race"))
        status, output, last = self.whole()
        self.assertEqual((status, last), (1, "5 passed, 1 failed, 1 skipped"), output)

    def test_many_failures_have_one_cause(self):
        self.arrange("".join(self.UNSTEADY.format(name, "no") for name in "abcd"))
        status, output, last = self.whole()
        self.assertEqual((status, last), (1, "5 passed, 4 failed, 1 skipped"), output)

    def test_a_failing_check_is_shown_in_full(self):
        self.arrange(check="echo src/a.c:1: a violation; exit 1")
        status, output, last = self.whole()
        self.assertEqual((status, last), (1, "4 passed, 1 failed, 1 skipped"), output)
        self.assertIn("FAILED tools/check-planted\nsrc/a.c:1: a violation\n", output)

    def test_what_does_not_build_fails_with_the_compilers_words(self):
        self.arrange(program="int main(void) { return undeclared; }\n")
        status, output, last = self.whole()
        self.assertEqual((status, last), (1, "1 passed, 1 failed"), output)
        self.assertIn("undeclared", output)

    def test_a_program_that_is_not_there_is_a_failure(self):
        self.arrange("add_test(NAME room/lost COMMAND not-there)\n")
        status, output, last = self.whole()
        self.assertEqual((status, last), (1, "5 passed, 1 failed, 1 skipped"), output)

    def test_no_tests_at_all_is_a_failure(self):
        self.arrange()
        self.plant("CMakeLists.txt", self.LISTS.split("enable_testing")[0])
        status, output, last = self.whole()
        self.assertEqual((status, last), (1, "1 passed, 1 failed"), output)

    def test_a_second_build_is_silent_and_a_moved_tree_builds(self):
        self.arrange()
        build = os.path.join("tools", "build")
        for _ in range(2):
            self.assertEqual(self.run_tool(os.path.join(self.root, build), "release"), (0, ""))
        moved = self.root + "-moved"
        shutil.copytree(self.root, moved, symlinks=True)
        self.addCleanup(shutil.rmtree, moved)
        self.assertEqual(self.run_tool(os.path.join(moved, build), "release"), (0, ""))
        with open(os.path.join(moved, "build/release/CMakeCache.txt"), encoding="utf-8") as file:
            self.assertIn(f"CMAKE_HOME_DIRECTORY:INTERNAL={moved}\n", file.read())


class Installing(_planted.Planted):
    """install-packages with a dpkg-query, an apt-get and a sudo that only pretend."""

    def setUp(self):
        super().setUp()
        self.bin = os.path.join(self.root, "bin")
        for name in ("bash", "env", "id", "mktemp", "rm", "cat", "grep"):
            self.pretend(name, f'exec {shutil.which(name)} "$@"')

    def pretend(self, name, body):
        os.chmod(self.plant("bin/" + name, "#!/bin/bash\n" + body + "\n"), 0o755)

    def install(self, *lists):
        return self.run_tool("install-packages", *lists, env={"PATH": self.bin, "LOG": self.root})

    def pretend_programs(self, *but):
        text = open(os.path.join(_planted.TOOLS, "install-packages"), encoding="utf-8").read()
        for name in set(re.findall(r"([-+\w]+):[-+\w]+", text)) - set(but):
            if not os.path.exists(os.path.join(self.bin, name)):
                self.pretend(name, "exit 0")

    EVERYTHING = 'shift 3; for p in "$@"; do printf "%s=installed " "$p"; done'

    def test_silent_when_nothing_is_missing(self):
        self.pretend_programs()
        self.pretend("dpkg-query", self.EVERYTHING)
        self.pretend("apt-get", "echo called >&2; exit 1")
        self.assertEqual(self.install("build", "test"), (0, ""))

    def test_a_package_that_was_removed_is_missing(self):
        self.pretend_programs()
        self.pretend("dpkg-query", self.EVERYTHING + "; printf 'libpng-dev=config-files '")
        self.assertEqual(self.install("build")[0], 0)
        self.pretend("dpkg-query", self.EVERYTHING.replace('in "$@"', 'in "${@/libpng-dev/x}"'))
        self.pretend("apt-get", 'echo "$*" >>"$LOG/calls"')
        self.pretend("id", "echo 0")
        status, output = self.install("build")
        self.assertEqual((status, output), (0, "installing libpng-dev\n"))
        calls = open(os.path.join(self.root, "calls"), encoding="utf-8").read()
        self.assertEqual(calls.count("\n"), 1)  # no update where none is needed
        self.assertIn("install --no-install-recommends libpng-dev", calls)

    def test_lists_are_updated_when_installing_fails(self):
        self.pretend_programs("cmake")
        self.pretend("dpkg-query", self.EVERYTHING)
        self.pretend("id", "echo 1000")
        self.pretend("sudo", 'while [ "$1" = -n ]; do shift; done; echo sudo >>"$LOG/calls"; "$@"')
        self.pretend("apt-get", 'echo "$*" >>"$LOG/calls"; [[ "$*" == *update* ]] && : >"$LOG/new"\n'
                     'if [ -f "$LOG/new" ]; then exit 0; fi; exit 100')
        self.assertEqual(self.install("build"), (0, "installing cmake\n"))
        calls = open(os.path.join(self.root, "calls"), encoding="utf-8").read().splitlines()
        self.assertEqual([line.split()[-1] for line in calls],
                         ["sudo", "cmake", "sudo", "update", "sudo", "cmake"])

    def test_says_what_to_install_when_it_cannot(self):
        self.pretend_programs("cmake", "ninja")
        self.pretend("dpkg-query", self.EVERYTHING)
        status, output = self.install("build")
        self.assertEqual(status, 1)
        self.assertRegex(output, "error: not a Debian or Ubuntu system: .* cmake ninja-build\n$")
        self.pretend("apt-get", "echo E: Unable to locate package cmake; exit 100")
        self.pretend("id", "echo 1000")
        status, output = self.install("build")
        self.assertEqual(status, 1)
        self.assertRegex(output, "error: neither root nor sudo is here: .* cmake ninja-build\n$")
        self.pretend("id", "echo 0")
        status, output = self.install("build")
        self.assertEqual(status, 1)
        self.assertIn("E: Unable to locate package cmake\n", output)
        self.assertIn("error: apt-get could not install: cmake ninja-build\n", output)

    def test_an_unknown_list(self):
        status, output = self.install("everything")
        self.assertEqual(status, 2)
        self.assertIn("no such list", output)


class Benches(_planted.Planted):
    def test_programs_compile(self):
        """Those of exam/others need packages that no test has."""
        found = [os.path.join(folder, name)
                 for folder, _, names in os.walk(os.path.join(_planted.ROOT, "exam"))
                 for name in names if name.endswith(".py")]
        self.assertGreater(len(found), 20)
        for path in found:
            with open(path, encoding="utf-8") as file:
                compile(file.read(), path, "exec")

    def test_margins_know_the_constants_of_the_rules(self):
        """Each constant stands in its rule once, and is moved there."""
        spec = importlib.util.spec_from_file_location(
            "margins", os.path.join(_planted.ROOT, "exam", "margins.py"))
        margins = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(margins)
        for name, constants in margins.SCALES.items():
            with open(os.path.join(_planted.ROOT, "src", "core", "rules", name), encoding="utf-8") as file:
                source = file.read()
            self.assertNotEqual(margins.rewrite(source, constants, 2, name), source)
        self.assertEqual(margins.scaled("2", "n", 1.5), "2")
        self.assertEqual(margins.scaled("0.7", "-", 1 / 2, "0", "1"), "1.0")

    def test_parts_of_other_peoples_programs(self):
        """Each program is in one part; its healthy and faulty runs come in turn."""
        run = os.path.join(_planted.ROOT, "exam", "others", "run.py")
        if importlib.util.find_spec("numpy") is None:
            self.skipTest("numpy is not here")
        listed = {}
        for part in "1234":
            found = subprocess.run([sys.executable, run, "list", "--part", part], capture_output=True,
                                   text=True, check=True).stdout.splitlines()
            self.assertGreater(len(found), 20)
            for line in found:
                number, name, *runs = line.split()
                self.assertEqual(number, part)
                self.assertNotIn(name, listed)
                listed[name] = runs
                self.assertEqual([r.startswith("healthy-") for r in runs[:8]], [True, False] * 4)
                self.assertEqual(len(runs), 9)


if __name__ == "__main__":
    _planted.main()
