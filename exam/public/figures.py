"""The figures of a measurement: results.toml, and the places of the documentation that have them.

A place begins with the comment `figures: NAME` and ends with the comment `figures end`."""

import os
import re
import tomllib

import judging
import table

ROOT = os.path.join(table.HERE, "..", "..")
SEEDS = {"kept": 4, "bugs": 1}  # healthy runs of each program
HEAD = "# Written by `run.py measure`. `run.py pages --fix` writes these figures into docs/faults.md and README.md.\n"


def text_of(sets):
    lines = [HEAD]
    for name in sorted(sets):
        families = sets[name]["families"]
        lines += [f"[{name}]", *(f"{key} = {value}" for key, value in sets[name].items() if key != "families")]
        for family, row in families.items():
            lines.append(f"families.{family} = {{{', '.join(f'{key} = {value}' for key, value in row.items())}}}")
        lines.append("")
    return "\n".join(lines)


def read(path):
    if not os.path.exists(path):
        return {}
    with open(path, "rb") as file:
        return tomllib.load(file)


def write(path, name, figures):
    """Replaces the figures of one set."""
    text = text_of({**read(path), name: figures})
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


# --- pages -------------------------------------------------------------------------------------


def percent(count, total):
    return f"{100 * count / max(1, total):.0f} %"


def readme(sets):
    kept, all_ = sets["kept"], judging.total(sets["kept"])
    runs = all_["runs"]
    worst = min(kept["families"], key=lambda f: kept["families"][f]["found"] / max(1, kept["families"][f]["runs"]))
    row, bugs = kept["families"][worst], judging.total(sets["bugs"])
    return (f"- In {kept['programs']} whole training programs of {kept['repositories']} public repositories, which nobody "
            f"looked at while writing rules, we planted {runs} mistakes. Sonde found {percent(all_['found'], runs)}, "
            f"{percent(all_['loud'], runs)} by a warning or an error and {percent(all_['right'], runs)} at the right "
            f"line or tensor. The hardest family is {table.FAMILIES[worst]}: {percent(row['found'], row['runs'])}. It "
            f"raised a false alarm in {kept['alarmed']} of {kept['healthy']} healthy runs. Of {bugs['runs']} bugs "
            f"rebuilt from public reports it found {bugs['found']}, {bugs['right']} at the right line or tensor "
            f"([how this is measured](docs/faults.md#public-programs)).")


def kept_text(figures):
    healthy = figures["healthy"]
    return [*judging.rows_of(figures), "",
            f"The set `kept`: {figures['programs']} programs of {figures['repositories']} repositories. "
            f"Of {healthy} healthy runs {figures['alarmed']} are alarmed, "
            f"{judging.wilson(figures['alarmed'], healthy)}; {figures['doubted']} end in another verdict than "
            f"\"nothing found\", and a healthy run has {figures['notes'] / max(1, healthy):.2f} notes. In "
            f"{figures['contradicting']} of {figures['runs']} runs the verdict finds nothing although a finding stands "
            f"above it. {figures['left_out']} runs are left out: the program ended with an error, or took too long."]


def bugs_text(figures):
    return [*judging.rows_of(figures), "",
            f"{figures['alarmed']} of the {figures['healthy']} programs without their bugs are alarmed."]


def wrapped(text, width=120):
    """Lines of a paragraph; a list item keeps its indent. Tables stay as they are."""
    words, lines, indent = text.split(" "), [], "  " if text.startswith("- ") else ""
    line = words[0]
    for word in words[1:]:
        if len(line) + 1 + len(word) > width:
            lines.append(line)
            line = indent + word
        else:
            line += " " + word
    return lines + [line]


def places(sets):
    """(page, name, lines) of each place."""
    table_lines = {name: [line for part in lines for line in ([part] if part.startswith("|") else wrapped(part))]
                   for name, lines in (("kept", kept_text(sets["kept"])), ("bugs", bugs_text(sets["bugs"])))}
    return [("README.md", "public programs", wrapped(readme(sets))),
            ("docs/faults.md", "kept", table_lines["kept"]), ("docs/faults.md", "bugs", table_lines["bugs"])]


def pages(path, fix, root=ROOT):
    """Whether the pages have the figures of the results. With fix, writes them."""
    sets = read(path)
    if not {"kept", "bugs"} <= set(sets):
        print(f"{path} has the sets {sorted(sets)} (expected bugs and kept, as run.py measure writes them)")
        return 1
    wrong = 0
    for page, name, lines in places(sets):
        file = os.path.join(root, page)
        with open(file, encoding="utf-8") as handle:
            text = handle.read()
        block = re.compile(rf"(<!-- figures: {name} -->\n).*?( *<!-- figures end -->)", re.S)
        changed, count = block.subn(lambda m, lines=lines: m[1] + "\n".join(lines) + "\n" + m[2], text)
        if count != 1:
            print(f"{page} has {count} places `figures: {name}` (expected 1)")
        elif changed != text and not fix:
            print(f"{page}: the figures of {name} are not those of {os.path.basename(path)} (run.py pages --fix)")
        wrong += count != 1 or (changed != text and not fix)
        if fix and changed != text:
            with open(file, "w", encoding="utf-8") as handle:
                handle.write(changed)
    return 1 if wrong else 0
