#!/usr/bin/env python3
"""Writes a C program that calls every function of the public headers with arguments that cannot be.

Each function is called with all its pointers NULL, with one of them NULL and the others valid, and
with each value of api_makers.h that cannot be (enums out of range, views without data, names that
are no text) in turn, each call in a process of its own. No call may crash or hang. A function that
returns sonde_err must fail, and say why, if all its pointers, or one that results come through, are
NULL. Functions are found in the headers: a new one needs no line here. Inline functions, which
stand in hot loops, do not check their arguments and are left out. A new opaque type needs a maker
in api_makers.h if its functions are to be called with a valid one.

    api_walk.py INCLUDE_FOLDER MAKERS > walk.c
"""

import os
import re
import sys

# Pointers to pointers that may be NULL, by function.
OPTIONAL = {"sonde_nn_dataset_split": {"rest"}}
# Functions that are fine with NULL for everything.
FINE = {"sonde_diag_set", "sonde_isa_check", "sonde_nn_ranks_sum"}
# Calls that do what NULL asks for, and take long over it.
LONG = {"sonde_nn_synth": "NULL options draw 70,000 images"}


def declarations(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"^\s*#.*(?:\\\n.*)*$", " ", text, flags=re.M)
    for match in re.finditer(r"\bSONDE_API\b", text):
        rest = text[match.end():]
        if rest.lstrip().startswith("inline"):
            continue  # unchecked: they stand in hot loops
        end = min(rest.index(c) for c in ";{" if c in rest)
        words = " ".join(rest[:end].split())
        words = re.sub(r"SONDE_(CHECKED|PRINTF\([^)]*\))", "", words).strip()
        found = re.match(r"(.*?)\b(sonde_[a-z]\w*) ?\((.*)\)$", words)
        if found:
            yield found.group(1).strip(), found.group(2), found.group(3)


def split(text):
    """Arguments of a list, by the commas outside of brackets."""
    depth, last, parts = 0, 0, []
    for i, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(text[last:i].strip())
            last = i + 1
    return [*parts, text[last:].strip()]


def argument(text, functions):
    """(kind, type, name): kind is pointer, function or value."""
    found = re.match(r"(.*)\(\*(\w+)\)(\(.*\))$", text)
    if found:
        return "function", f"{found.group(1)}(*){found.group(3)}", found.group(2)
    found = re.match(r"(.*?)(\w+)\[\w*\]$", text)
    if found:
        return "pointer", found.group(1).strip() + " *", found.group(2)
    found = re.match(r"(.*?)(\w+)$", text)
    kind, name = found.group(1).strip(), found.group(2)
    base = kind.replace("const ", "").replace(" *", "").strip()
    if base in functions:
        return "function", kind, name
    return ("pointer" if "*" in kind else "value"), kind, name


def valid(kind, given, name, makers):
    if kind == "function":
        return f"({given})(void (*)(void))nothing"
    if kind == "pointer":
        bare = given.replace("const ", "").strip()
        base = bare.split(" ")[0]
        if bare == "char *" and "const" in given:
            return '"x"'
        if name == "diag":
            return "&diag"
        if bare == f"{base} *" and base in makers:
            return f"make_{base}()"
        if bare == f"{base} *" and base.endswith("_options"):
            return f"sized(sizeof({base}))"
        return "scratch()"
    if given in ("double", "float"):
        return "0.01"
    if given in ("int", "size_t", "int64_t", "uint64_t", "uint32_t", "unsigned", "bool"):
        return "0" if name in ("id", "i", "slot", "axis", "index") else "1"
    return f"({given}){{0}}"


# What no argument of a type may be, by type. Values of a range have no say over memory: sizes and
# counts stay valid.
HOSTILE = {"sonde_view": "VIEWS", "sonde_tensor_info": "INFOS", "char": "TEXTS",
           "sonde_coordinate": "COORDINATES", "sonde_call_shape": "SHAPES",
           "sonde_schedule": "SCHEDULES", "sonde_trial_at": "PLACES"}
EXTREME = {"int": ["-1", "INT_MIN", "INT_MAX"], "uint32_t": ["UINT32_MAX"],
           "int64_t": ["-1", "INT64_MIN", "INT64_MAX"], "double": ["NAN"], "float": ["NAN"],
           "unsigned": ["UINT_MAX"]}
COUNTS, ENUMS = {}, set()
LENGTHS = {"n", "count", "rank", "size", "length", "channels", "stride", "bins"}


def hostile(kind, given, name):
    """(label, expression) of each value to try for an argument."""
    bare = given.replace("const ", "").replace("*", "").strip()
    if name in ("format", "fmt", "found"):  # of printf
        return []
    if kind == "pointer" and given.count("*") == 1 and "const" in given and bare in HOSTILE:
        table = HOSTILE[bare]
        return [(f"{name} {table.lower()} {i}", f"hostile_{table}({i})") for i in range(COUNTS[table])]
    if kind != "value" or bare in ("size_t", "uint64_t", "bool"):
        return []
    values = EXTREME.get(bare, ["-1", "99"] if bare in ENUMS else [])
    return [(f"{name} {value}", f"({given}){value}") for value in values
            if name not in LENGTHS or "M" not in value]


def function(result, name, arguments, makers, functions, opaque):
    arguments = [] if arguments in ("", "void") else split(arguments)
    more = arguments[-1:] == ["..."]
    arguments = [argument(a, functions) for a in arguments if a != "..."]
    lines, cases = [], []
    null = {i for i, (kind, _, _) in enumerate(arguments) if kind != "value"}
    has_diag = any(name == "diag" for _, _, name in arguments)
    for case in [*sorted(null), -1, -2]:
        if case == -2 and not has_diag:
            continue
        gone = {case} if case >= 0 else null
        if any(re.sub(r"const | \*$", "", a[1]) in opaque for i, a in enumerate(arguments) if i not in gone):
            continue
        given = ["NULL" if i in gone and not (case == -1 and a[2] == "diag")
                 else valid(*a, makers) for i, a in enumerate(arguments)]
        fails = case < 0 or (arguments[case][1].endswith("**")
                             and arguments[case][2] not in OPTIONAL.get(name, ()))
        label = (f"{arguments[case][2]} NULL" if case >= 0 else
                 "everything NULL" if case == -2 else "everything but diag NULL")
        call = f"{name}({', '.join(given)})"
        if result == "sonde_err":
            must = fails and not name.endswith("_close") and name not in FINE
            lines.append(f"static void c{name}_{case + 2}(void) "
                         f"{{ judge({call}, {int(must)}, {int(case == -1 and has_diag)}); }}")
        else:
            lines.append(f"static void c{name}_{case + 2}(void) {{ (void){call}; }}")
        cases.append(f'    {{"{name}", "{label}", c{name}_{case + 2}}},')
    for i, (kind, given, called) in enumerate(arguments):
        if any(re.sub(r"const | \*$", "", a[1]) in opaque for a in arguments):
            break
        for k, (label, value) in enumerate(hostile(kind, given, called)):
            values = [value if j == i else valid(*a, makers) for j, a in enumerate(arguments)]
            lines.append(f"static void h{name}_{i}_{k}(void) {{ (void){name}({', '.join(values)}); }}")
            cases.append(f'    {{"{name}", "{label}", h{name}_{i}_{k}}},')
    return lines, cases


def main():
    include, makers_file = sys.argv[1:]
    headers = sorted(os.path.relpath(os.path.join(folder, name), include)
                     for folder, _, names in os.walk(include) for name in names)
    text = "\n".join(open(os.path.join(include, h), encoding="utf-8").read() for h in headers)
    makers = set(re.findall(r"\bmake_(sonde_\w+|FILE)\(void\)",
                            open(makers_file, encoding="utf-8").read()))
    COUNTS.update((name, int(count)) for name, count in re.findall(
        r"#define HOSTILE_(\w+) (\d+)", open(makers_file, encoding="utf-8").read()))
    ENUMS.update(re.findall(r"typedef enum (sonde_\w+)", text))
    functions = set(re.findall(r"typedef [\w *]+\(\*(sonde_\w+)\)\(", text))
    functions |= set(re.findall(r"typedef [\w ]+?\*?\b(sonde_\w+)\(", text))
    opaque = {name for name in re.findall(r"typedef struct (sonde_\w+) \1;", text)
              if f"struct {name} {{" not in text} - makers
    lines, cases = [], []
    for result, name, arguments in declarations(text):
        if name in LONG:
            continue
        made = function(result, name, arguments, makers, functions, opaque)
        lines += made[0]
        cases += made[1]
    print("\n".join(f"#include <{h}>" for h in headers))
    print(f'#include "{os.path.abspath(makers_file)}"')
    print("\n".join(lines))
    print("static const sonde_case cases[] = {")
    print("\n".join(cases))
    print("};\nint main(int argc, char **argv) { return run_cases(cases, "
          "sizeof cases / sizeof *cases, argc > 1 ? argv[1] : \"\"); }")


main()
