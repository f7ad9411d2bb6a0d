"""test_checks.py - every check finds what is planted for it, and is silent without it."""

import json
import os
import shutil
import subprocess

import _planted

HEADER = "#ifndef SONDE_X_H\n#define SONDE_X_H\n{}\n#endif\n"


class Layers(_planted.Planted):
    def test_base_may_not_look_up(self):
        self.plant("src/tensor/tensor.h", "int t;\n")
        self.plant("src/base/a.c", '#include <stdio.h>\n#include "tensor/tensor.h"\n')
        self.assert_finds("src/base/a.c:2:", "base may not include", "check-layers")

    def test_a_path_beside_is_seen_through(self):
        self.plant("src/tensor/tensor.h", "int t;\n")
        self.plant("src/base/a.c", '#include "../tensor/tensor.h"\n')
        self.assert_finds("src/base/a.c:1:", "of tensor", "check-layers")

    def test_public_headers_have_rooms(self):
        self.plant("src/base/a.c", "#include <sonde/tap.h>\n")
        self.assert_finds("src/base/a.c:1:", "of observe", "check-layers")

    def test_a_header_of_no_room(self):
        self.plant("src/base/a.c", "#include <sonde/novelty.h>\n")
        self.assert_finds("src/base/a.c:1:", "belongs to no room", "check-layers")

    def test_libsonde_knows_no_networks(self):
        for room in ("base", "tensor", "observe", "record", "trial", "rules", "plot"):
            self.plant(f"src/{room}/a.c", "#include <sonde/nn/model.h>\n")
            self.assert_finds(f"src/{room}/a.c:1:", "of nn", "check-layers")

    def test_public_headers_of_libsonde_know_no_networks(self):
        self.plant("include/sonde/tap.h", "#include <sonde/nn/model.h>\n")
        self.assert_finds("include/sonde/tap.h:1:", "of nn", "check-layers")

    def test_public_headers_show_nothing_internal(self):
        self.plant("src/base/base.h", "int b;\n")
        self.plant("include/sonde/tap.h", '#include "base/base.h"\n')
        self.assert_finds("include/sonde/tap.h:1:", "may not include", "check-layers")

    def test_the_engine_goes_one_way(self):
        self.plant("src/nn/run/session_state.h", "int r;\n")
        self.plant("src/nn/graph/a.c", '#include "nn/run/session_state.h"\n')
        self.assert_finds("src/nn/graph/a.c:1:", "of nn/run", "check-layers")

    def test_the_engine_sees_the_observer_from_outside(self):
        self.plant("src/observe/inside.h", "int o;\n")
        self.plant("src/nn/run/a.c", '#include <sonde/observer.h>\n#include "observe/inside.h"\n')
        self.assert_finds("src/nn/run/a.c:2:", "of observe", "check-layers")
        self.assertNotIn("a.c:1:", self.check("check-layers"))

    def test_commands_and_examples_see_public_headers_alone(self):
        self.plant("src/base/base.h", "int b;\n")
        self.plant("src/cli/a.c", '#include "base/base.h"\n')
        self.plant("examples/a.c", '#include "../src/base/base.h"\n')
        self.assert_finds("src/cli/a.c:1:", "cli may not include", "check-layers")
        self.assert_finds("examples/a.c:1:", "examples may not include", "check-layers")

    def test_foreign_headers_keep_their_place(self):
        self.plant("src/cli/a.c", "#include <cairo.h>\n")
        self.plant("src/observe/a.c", "#include <dnnl.h>\n")
        self.assert_finds("src/cli/a.c:1:", "<cairo.h>", "check-layers")
        self.assert_finds("src/observe/a.c:1:", "<dnnl.h>", "check-layers")

    def test_a_new_room_needs_a_place(self):
        self.plant("src/attic/a.c", "#include <stdio.h>\n")
        self.assert_finds("src/attic/a.c:1:", "no room", "check-layers")

    def test_rooms_do_not_include_each_other(self):
        self.plant("src/rules/rules_x.h", '#include "rules/builtin/builtin.h"\n')
        self.plant("src/rules/builtin/builtin.h", "int b;\n")
        self.plant("src/rules/engine.h", "int e;\n")
        self.plant("src/rules/builtin/a.c", '#include "rules/engine.h"\n')
        self.assert_finds("src: rules and rules/builtin include each other", "", "check-layers")

    def test_a_floor_too_many(self):
        rooms = ("base", "tensor", "observe", "record", "capture")
        for below, room in zip(rooms, rooms[1:]):
            self.plant(f"src/core/{below}/{below}_x.h", "int x;\n")
            self.plant(f"src/core/{room}/{room}.c", f'#include "{below}/{below}_x.h"\n')
        self.assert_silent("check-layers")
        tool = self.changed("check-layers", "MOST_FLOORS, MOST_CIRCLES = 7", "MOST_FLOORS, "
                            "MOST_CIRCLES = 4")
        self.assert_finds("src: 5 floors, 4 is the limit: capture > record >", "", tool)

    def test_a_circle_of_files_too_many(self):
        for i in range(5):
            for one, other in (("a", "b"), ("b", "a")):
                self.plant(f"src/base/{one}{i}.h", "int x;\n")
                self.plant(f"src/base/{one}{i}.c", f'#include "base/{other}{i}.h"\n')
        self.assert_finds("src: 5 circles of files, 4 is the limit: src/base/a0 src/base/b0;", "",
                          "check-layers")
        os.remove(os.path.join(self.root, "src/base/a0.h"))
        self.assert_silent("check-layers")

    def test_what_is_allowed_is_silent(self):
        self.plant("src/base/base.h", "#include <stddef.h>\n#include <sonde/error.h>\n")
        self.plant("src/nn/graph/graph.h", '#include "nn/ops/ops.h"\n')
        self.plant("src/nn/ops/ops.h", '#include "base/base.h"\n')
        self.plant("src/nn/run/a.c", '#include "nn/ops/ops.h"\n#include <sonde/nn/run.h>\n')
        self.plant("src/plot/a.c", '#include "base/base.h"\n#include <cairo.h>\n'
                   "#include <sonde/stats.h>\n")
        self.plant("src/cli/a.c", "#include <sonde/nn/run.h>\n#include <sonde/plot.h>\n")
        self.plant("src/plot/plot.c", "#include <sonde/plot.h>\n")
        self.assert_silent("check-layers")


class Docs(_planted.Planted):
    HEADER = ("/*\n * x.h - what it is.\n */\n/* Adds `a` and <b>. */\nint sonde_x(int a, int b);\n"
              "/* {} */\nint sonde_y(void);\n")

    def test_a_link_that_leads_nowhere(self):
        self.plant("README.md", "# Title\n\n[text](docs/none.md)\n")
        self.plant("include/sonde/x.h", self.HEADER.format("More."))
        self.assert_finds("none.md", "not found", "check-docs")

    def test_a_good_tree(self):
        self.plant("README.md", "# Title\n\n[text](docs/guide.md#a-part), [x](include/sonde/x.h)\n")
        self.plant("docs/guide.md", "# Guide\n\n## A part\n")
        self.plant("include/sonde/x.h", self.HEADER.format("50 % of #1, \\\\ and @all."))
        self.assert_silent("check-docs")


class Names(_planted.Planted):
    def test_a_file_name_twice(self):
        self.plant("src/base/text.c", "int a;\n")
        self.plant("src/plot/text.c", "int b;\n")
        self.assert_finds("src/plot/text.c:1: src/base/text.c has the same name", "",
                          "check-names")

    def test_a_type_twice(self):
        for second in ("struct sonde__base_x {\n    int a;\n};\n",
                       "typedef struct {\n    int a;\n} sonde__base_x;\n",
                       "typedef int sonde__base_x;\n", "enum sonde__base_x { X };\n"):
            self.plant("src/base/a.h", "typedef struct sonde__base_x {\n    int a;\n"
                       "} sonde__base_x;\n")
            self.plant("src/base/b.c", "typedef struct sonde__base_x sonde__base_x;\n" + second)
            self.assert_finds("src/base/b.c:", "src/base/a.h defines a type sonde__base_x too",
                              "check-names")

    def test_a_name_of_another_room(self):
        self.plant("src/trial/a.h", "typedef struct sonde__file {\n    int a;\n} sonde__file;\n"
                   "int sonde__trial_read(sonde__file *file);\n"
                   "const char *sonde__read(int a,\n                        int b);\n")
        output = self.check("check-names")
        self.assertIn("src/trial/a.h:1: sonde__file does not begin with trial or smdebug\n",
                      output)
        self.assertIn("src/trial/a.h:5: sonde__read does not begin with trial or smdebug\n",
                      output)
        self.assertEqual(len(output.splitlines()), 2, output)

    def test_a_file_that_is_not_there(self):
        self.plant("src/base/a.c", "/* see b.c, base/a.c and <math.h> */\nconst char *x = \"c.c\";\n"
                   "/* reads\n * old.h */\n")
        self.assert_finds("src/base/a.c:1: there is no b.c", "", "check-names")
        self.assert_finds("src/base/a.c:4: there is no old.h", "", "check-names")
        self.assertEqual(len(self.check("check-names").splitlines()), 2)
        self.plant("src/base/b.c", "int b;\n")
        self.plant("include/sonde/old.h", "int o;\n")
        self.assert_silent("check-names")

    def test_a_handle_without_a_noun(self):
        self.plant("src/base/a.c", "/* of */ const char *x = \"of\";\nint f(int of);\n")
        self.assert_finds("src/base/a.c:2: 1 uses of a handle named 'of'", "", "check-names")
        self.plant("tools/names.allow", "src/base/a.c: its handles are not named yet\n")
        self.assert_silent("check-names")
        self.plant("src/base/a.c", "int f(int tap);\n")
        self.assert_finds("'src/base/a.c' needs no exception any more", "", "check-names")
        os.remove(os.path.join(self.root, "src/base/a.c"))
        self.assert_finds("there is no src/base/a.c", "", "check-names")

    def test_arguments_as_the_header_names_them(self):
        self.plant("include/sonde/a.h", "SONDE_API int sonde_a(const int *options, int (*call)(int));\n")
        body = "int sonde_a(const int *given, int (*call)(int))\n{{\n    {0};\n    return 0;\n}}\n"
        self.plant("src/base/a.c", body.format("SONDE__NEEDS(diag, given)"))
        self.assert_finds("src/base/a.c:3: sonde_a has no argument given", "SONDE__NEEDS_AS",
                          "check-names")
        self.plant("src/base/a.c", body.format('SONDE__NEEDS_AS(diag, "options", given)'))
        self.assert_silent("check-names")

    def test_fractions_by_the_locale(self):
        for call in ("strtod(t, 0)", "atof(t)", "strcasecmp(t, b)", "x = tolower(t[0])", "vsnprintf(b, 9, t, a)", 'printf("%d %.3g", 1, x)',
                     'snprintf(b, 9,\n"%s"\n"%-5.*f", t, 1, x)', 'sscanf(t, "%lf", &x)'):
            self.plant("src/base/a.c", f"void f(void)\n{{\n    {call};\n}}\n")
            self.assert_finds("src/base/a.c:3:", "base/number.h", "check-names")
        for call in ("sonde__strtod(t, 0)", 'sonde__snprintf(b, 9, "%g", x)', 'printf("%d %%g", 1)',
                     'printf("%s", t); /* strtod() of "%g" */'):
            self.plant("src/base/a.c", f"void f(void)\n{{\n    {call};\n}}\n")
            self.assert_silent("check-names")

    def test_what_is_allowed_is_silent(self):
        self.plant("src/base/a.h", "typedef struct sonde__arena sonde__arena;\n"
                   "void *sonde__malloc(int n);\n")
        self.plant("src/base/a.c", '#include "sonde__x(of)"\n')
        self.plant("src/trial/trial_b.c", "void f(void)\n{\n    sonde__malloc(1);\n}\n")
        self.plant("src/tensor/v.h", "typedef struct sonde__vitals_row {\n    sonde__arena *a;\n"
                   "} sonde__vitals_row;\n")
        self.assert_silent("check-names")


class Headers(_planted.Planted):
    def test_a_header_that_needs_another(self):
        self.plant("include/sonde/x.h", HEADER.format("size_t x(void);"))
        self.assert_finds("include/sonde/x.h", "size_t", "check-headers")

    def test_a_header_that_is_no_cplusplus(self):
        self.plant("include/sonde/x.h", HEADER.format("void x(int class);"))
        self.assert_finds("include/sonde/x.h", "++", "check-headers")

    def test_a_header_without_guard(self):
        self.plant("include/sonde/x.h", "typedef struct x { int y; } x;\n")
        self.assert_finds("include/sonde/x.h", "redefinition", "check-headers")

    def test_a_good_header(self):
        self.plant("include/sonde/x.h", HEADER.format("#include <stddef.h>\nsize_t x(void);"))
        self.assert_silent("check-headers")


class Functions(_planted.Planted):
    LONG = "static void far(int a,\n                int b)\n{\n" + "    a++;\n" * 70 + "}\n"

    def test_a_long_function(self):
        self.plant("src/base/a.c", "int x;\n\n" + self.LONG)
        self.assert_finds("src/base/a.c:3:", "far has 74 lines", "check-functions")

    def test_kernels_may_be_long(self):
        self.plant("src/tensor/sum_kernels.c", self.LONG)
        self.plant("src/tensor/sum_kernels.h", self.LONG)
        self.assert_silent("check-functions")

    def test_a_long_file(self):
        self.plant("src/tensor/sum_kernels.c", "int x;\n" * 800)
        self.assert_silent("check-functions")
        self.plant("src/tensor/sum_kernels.c", "int x;\n" * 801)
        self.assert_finds("src/tensor/sum_kernels.c:1:", "801 lines", "check-functions")

    def test_exceptions_have_reasons_and_end(self):
        self.plant("src/base/a.c", self.LONG)
        allowed = self.plant("tools/functions.allow", "src/base/a.c far: a table of states\n")
        self.assert_silent("check-functions")
        self.plant("src/base/a.c", "int x;\n")
        self.assert_finds("functions.allow", "no exception any more", "check-functions")
        with open(allowed, "w", encoding="utf-8") as file:
            file.write("src/base/a.c far\n")
        self.assert_finds("functions.allow:1:", "needs a reason", "check-functions")

    def test_comments_and_strings_open_nothing(self):
        self.plant("src/base/a.c", "/*\n{\n" + "x\n" * 80 + "}\n*/\nint y;\n")
        self.assert_silent("check-functions")


class Words(_planted.Planted):
    def test_what_must_not_be_said(self):
        for text in ("/* TO" + "DO: later */", "# FIX" + "ME", "a stop-gap for " + "now",
                     "see /wor" + "k/main/x", "path = '/hom" + "e/somebody/x'",
                     "as in issue " + "#12", "thanks to Clau" + "de",
                     "<<<<" + "<<< HEAD"):
            self.plant("docs/x.md", "fine\n" + text + "\n")
            self.assert_finds("docs/x.md:2:", "", "check-words")

    def test_turns_to_avoid(self):
        for text in ("a run that was gone on w" + "ith", "what was recorded counts no mor" + "e",
                     "Memory is ha" + "d at compile", "for whoeve" + "r wants it",
                     "runs that they let b" + "e", "it has not wha" + "t it needs",
                     "saved behind every epo" + "ch", "of a network th" + "at goes wrong its fault",
                     "What nobod" + "y looks at", "Who wan" + "ts more reads on.",
                     "the largest that is in orde" + "r", "it is tol" + "d at once",
                     "/* --- a rule over two lines --\n */"):
            for path in ("docs/x.md", "src/base/a.c", "README.md"):
                self.plant(path, "fine\n" + text + "\n")
                self.assert_finds(f"{path}:2:", "", "check-words")
                os.remove(os.path.join(self.root, path))

    def test_turns_that_pages_avoid(self):
        for text in ("the step that is o" + "n", "each on threads of its ow" + "n",
                     "as seldom a" + "s rules allow", "a spool that bea" + "rs outages",
                     "the optimi" + "ser's state", "it runs as it stan" + "ds",
                     "it stands whereve" + "r a job may", "the job says n" + "o model",
                     "a writer that die" + "d", "what was compiled is not kept ove" + "r builds"):
            for path in ("docs/x.md", "README.md"):
                self.plant(path, "fine\n" + text + "\n")
                self.assert_finds(f"{path}:2:", "", "check-words")
                os.remove(os.path.join(self.root, path))
        self.plant("docs/x.md", "Each rank has its own threads. It is optimized.\n")
        self.assert_silent("check-words")

    def test_turns_are_looked_for_in_what_is_read(self):
        for path in ("tests/base/test_a.c", "tests/golden/x.txt"):
            self.plant(path, "for whoeve" + "r wants it\n")
        self.plant("docs/x.md", "It has not been read. Let it begin. The folder behind it. A run "
                   "goes on.\n/* --- a rule on one line --- */\n")
        self.assert_silent("check-words")

    def test_what_may(self):
        self.plant("docs/x.md", "framework/home, https://x.org/home/y, color #123456, issue 2 "
                   "multiplications a cycle, /usr/lib\n")
        self.plant("tests/golden/x.txt", "/wor" + "k/x\n")
        self.plant("src/image.bin", "\0TO" + "DO")
        self.assert_silent("check-words")


class Format(_planted.Planted):
    def test_finds_and_fixes(self):
        shutil.copy(os.path.join(_planted.ROOT, ".clang-format"), self.root)
        self.plant("src/base/a.c", "int  x ( void ) ;\n")
        self.assert_finds("src/base/a.c:1:", "clang-formatted", "check-format")
        self.assert_silent("check-format", "--fix")
        self.assert_silent("check-format")


class Tidy(_planted.Planted):
    BAD = "int f(int a)\n{\n    if (a)\n        return 10 / (a - a);\n    return 0;\n}\n"

    def arrange(self, text):
        shutil.copy(os.path.join(_planted.ROOT, ".clang-tidy"), self.root)
        source = self.plant("src/base/a.c", text)
        self.plant("build/clang/compile_commands.json", json.dumps([
            {"directory": self.root, "file": source,
             "command": f"clang -std=c17 -I{self.root}/src -c {source}"}]))

    def test_finds_and_forgets_nothing(self):
        self.arrange(self.BAD)
        for _ in range(2):  # a finding leaves no stamp
            self.assert_finds("src/base/a.c:3:", "braces", "check-tidy")
            self.assert_finds("src/base/a.c:4:", "Division by zero", "check-tidy")

    def test_kernels_are_left_out(self):
        self.arrange(self.BAD)
        os.rename(os.path.join(self.root, "src/base/a.c"),
                  os.path.join(self.root, "src/base/a_kernels.c"))
        database = os.path.join(self.root, "build/clang/compile_commands.json")
        with open(database, encoding="utf-8") as file:
            text = file.read()
        with open(database, "w", encoding="utf-8") as file:
            file.write(text.replace("base/a.c", "base/a_kernels.c"))
        self.assert_silent("check-tidy")

    def test_a_finding_in_a_header_is_reported_once(self):
        shutil.copy(os.path.join(_planted.ROOT, ".clang-tidy"), self.root)
        self.plant("src/base/a.h", "static inline int half(int a)\n{\n    if (a > 1)\n"
                   "        return a / 2;\n    return 0;\n}\n")
        entries = []
        for name in ("a", "b"):
            source = self.plant(f"src/base/{name}.c", '#include "base/a.h"\n'
                                f"int {name}(int x);\nint {name}(int x)\n{{\n"
                                "    return half(x);\n}\n")
            entries.append({"directory": self.root, "file": source,
                            "command": f"clang -std=c17 -I{self.root}/src -c {source}"})
        self.plant("build/clang/compile_commands.json", json.dumps(entries))
        self.assertEqual(self.check("check-tidy").count("src/base/a.h:3:"), 1)

    def test_a_header_counts(self):
        self.plant("src/base/a.h", "enum { STEP = 1 };\n")
        self.arrange('#include "base/a.h"\nint f(int a)\n{\n    return 10 / STEP + a;\n}\n')
        self.assert_silent("check-tidy")
        self.assertEqual(len(os.listdir(os.path.join(self.root, "build/tidy"))), 1)
        self.assert_silent("check-tidy")
        self.plant("src/base/a.h", "enum { STEP = 0 };\n")
        self.assert_finds("src/base/a.c:4:", "zero", "check-tidy")


class Circles(_planted.Planted):
    def build(self, *pairs):
        """Objects of files a0.c, b0.c ... where a uses b, and b uses a if ring."""
        for number, ring in enumerate(pairs):
            texts = {f"a{number}": f"int b{number}(void); int a{number}(void);"
                                   f"int a{number}(void) {{ return b{number}(); }}",
                     f"b{number}": f"int b{number}(void); int a{number}(void);"
                                   f"int b{number}(void) {{ return "
                                   + (f"a{number}()" if ring else "1") + "; }"}
            for name, text in texts.items():
                source = self.plant(f"src/base/{name}.c", text + "\n")
                built = os.path.join(self.root, "build/release/CMakeFiles/sonde.dir/src/base",
                                     name + ".c.o")
                os.makedirs(os.path.dirname(built), exist_ok=True)
                subprocess.run(["cc", "-c", "-o", built, source], check=True)

    def test_more_circles_than_the_limit(self):
        self.build(*[True] * 5)
        self.assert_finds("src/base/a0.c src/base/b0.c", "5 circles", "check-circles")

    def test_calls_one_way(self):
        self.build(*[False] * 6)
        self.assert_silent("check-circles")

    def test_rooms_that_call_each_other(self):
        for name, other, room in (("a", "b", "base"), ("b", "a", "observe")):
            source = self.plant(f"src/core/{room}/{name}.c", f"int {other}(void); int {name}(void);"
                                f"int {name}(void) {{ return {other}(); }}\n")
            built = os.path.join(self.root, f"build/release/CMakeFiles/sonde.dir/src/core/{room}",
                                 name + ".c.o")
            os.makedirs(os.path.dirname(built), exist_ok=True)
            subprocess.run(["cc", "-c", "-o", built, source], check=True)
        self.assert_finds("  base observe", "1 circles of rooms", "check-circles")

    def test_objects_of_sources_that_are_gone(self):
        self.build(*[True] * 5)
        os.remove(os.path.join(self.root, "src/base/b4.c"))
        self.assert_silent("check-circles")


class Symbols(_planted.Planted):
    def arrange(self, header, library, test, *link):
        self.plant("include/sonde/x.h", "#define SONDE_API\n" + header)
        for kind in ("lib", "bin"):
            os.makedirs(os.path.join(self.root, "build/release", kind), exist_ok=True)
        built = os.path.join(self.root, "build/release/lib/libsonde.so")
        source = self.plant("x.c", library)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", built, source, "-Wl,--no-as-needed",
                        *link], check=True)
        source = self.plant("test.c", test)
        subprocess.run(["cc", "-o", os.path.join(self.root, "build/release/bin/tests_x"),
                        source, built], check=True)

    def test_declared_and_missing(self):
        self.arrange("SONDE_API void sonde_lost(int a);\n", "int y;\n", "int main(void){}\n")
        self.assert_finds("include/sonde/x.h:2:", "no library exports it", "check-symbols")

    def test_exported_and_untested(self):
        self.arrange("SONDE_API const char *sonde_lonely(\n int a);\n",
                     "const char *sonde_lonely(int a){(void)a;return 0;}\n", "int main(void){}\n")
        self.assert_finds("sonde_lonely", "called by no test", "check-symbols")

    def test_exported_and_undeclared(self):
        self.arrange("\n", "void sonde_hidden(void){}\n", "int main(void){}\n")
        self.assert_finds("sonde_hidden", "no public header", "check-symbols")

    def test_private_and_exported(self):
        self.arrange("\n", "void sonde__inner(void){}\n", "int main(void){}\n")
        self.assert_finds("sonde__inner", "which is private", "check-symbols")

    def test_a_library_too_many(self):
        self.arrange("\n", "int y;\n", "int main(void){}\n", "-lz")
        self.assert_finds("needs libz.so.1", "may not", "check-symbols")

    def test_all_well(self):
        self.arrange("SONDE_API void sonde_x(void);\n",
                     "static void sonde__private(void){}\nvoid sonde_x(void){sonde__private();}\n",
                     "void sonde_x(void);\nint main(void){sonde_x();}\n", "-lm", "-ljansson")
        self.assert_silent("check-symbols")
        source = self.plant("y.c", "static void sonde_log(void){}\nvoid sonde_y(void){sonde_log();}\n")
        subprocess.run(["cc", "-O0", "-shared", "-fPIC", "-o",
                        os.path.join(self.root, "build/release/lib/libsonde_y.so"), source], check=True)
        self.assert_finds("has its own sonde_log", "", "check-symbols")


class Replay(_planted.Planted):
    """The driver that replays a fuzzer's seeds."""

    def build(self, body):
        source = self.plant("fuzz_x.c", "#include <stddef.h>\n#include <stdint.h>\n"
                            "int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n)\n"
                            "{" + body + "}\n")
        program = os.path.join(self.root, "replay")
        subprocess.run(["cc", "-g", "-fsanitize=address", "-o", program, source,
                        os.path.join(_planted.ROOT, "tests/fuzz/replay.c")], check=True)
        return program

    def test_sees_one_byte_too_far(self):
        program = self.build("return n > 3 && d[n] == 7;")
        self.plant("seeds/a", "abc")
        status, output = self.run_tool(program, os.path.join(self.root, "seeds"))
        self.assertEqual((status, output), (0, "a, 3 bytes\n"))
        self.plant("seeds/b", "abcd")
        status, output = self.run_tool(program, os.path.join(self.root, "seeds"))
        self.assertNotEqual(status, 0)
        self.assertIn("b, 4 bytes\n", output)
        self.assertIn("heap-buffer-overflow", output)

    def test_nothing_to_replay_is_an_error(self):
        program = self.build("(void)d; (void)n; return 0;")
        os.makedirs(os.path.join(self.root, "seeds"))
        for folder in ("seeds", "absent"):
            status, output = self.run_tool(program, os.path.join(self.root, folder))
            self.assertEqual(status, 1)
            self.assertIn("no files to replay", output)


if __name__ == "__main__":
    _planted.main()
