"""pages.py - the examples of the documentation, extracted and executed.

    pages.py files PAGE FOLDER      write the named files of a page: blocks whose first line is a
                                    comment with a file name
    pages.py run PAGE FOLDER        execute the examples of a page in FOLDER
    pages.py check SONDE            links, anchors, options and C names in all pages exist

A block is executed by its language:

    sh        each command must exit with 0, or with 1 if "# finds something" follows it;
              RUN is runs/first
    console   the same for each line that starts with "$ "
    c         a fragment compiles after prelude.h; a whole file is only written
    yaml      as its directive says; otherwise it is only written
    python    must be valid Python

All other languages are text. A comment in front of a block directs its execution:

    <!-- test: status 0 1 -->     these exit codes are accepted
    <!-- test: setup COMMAND -->  a command to run before the block
    <!-- test: output -->         lines after a command are its output: "..." stands for any lines,
                                  at the end of a line for the rest of it, and numbers for any
                                  numbers, which depend on the processor
    <!-- test: merge job.yaml --> the block is a section of a job, which must train
    <!-- test: hook-config -->    the block is a hook's configuration, with which a job must train
    <!-- test: run -->            the fragment is the body of a program, which must succeed
    <!-- test: skip: REASON -->   the block is not executed
"""

import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FINDS = "# finds something"
NAMED = re.compile(r"^(?:#|--|/\*) (\w+\.(?:lua|c|yaml))\b")
JOB = "model: mnist_mlp_small\ndata: {name: mnist}\noptions: {epochs: 1}\n"


class Failed(Exception):
    """An example that does not do what its page says."""


class Block:
    def __init__(self, page, line, language, directives):
        self.page, self.line, self.language = page, line, language
        self.directives, self.lines = directives, []

    def text(self):
        return "\n".join(self.lines) + "\n"

    def file_name(self):
        found = NAMED.match(self.lines[0]) if self.lines else None
        return found.group(1) if found else None

    def directive(self, name):
        """What follows the name in a directive, or None."""
        for text in self.directives:
            if text == name or text.startswith((name + " ", name + ":")):
                return text[len(name):].lstrip(" :")
        return None

    def fail(self, what):
        raise Failed(f"{self.page}:{self.line}: {what}")


def blocks_of(page):
    """The fenced blocks of a page, in order."""
    blocks, directives, block = [], [], None
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        for number, line in enumerate(file.read().splitlines(), 1):
            fence = re.match(r"^```(\w*)$", line)
            comment = re.match(r"^<!-- test: (.*) -->$", line)
            if block is not None and line == "```":
                blocks.append(block)
                block = None
            elif block is not None:
                block.lines.append(line)
            elif fence:
                if not fence.group(1):
                    raise Failed(f"{page}:{number}: a block needs a language (text, if none)")
                block = Block(page, number, fence.group(1), directives)
                directives = []
            elif comment:
                directives.append(comment.group(1))
            elif line.strip():
                if directives:
                    raise Failed(f"{page}:{number}: a test directive without a block")
    return blocks


def shell(block, command, statuses, folder):
    """Output of a command that must exit with one of the statuses."""
    if FINDS in command:
        statuses = [1]
    done = subprocess.run(["bash", "-c", command.replace(" RUN", " runs/first")], cwd=folder,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
                          check=False)
    if done.returncode not in statuses:
        block.fail(f"{command}: exit code {done.returncode}, expected "
                   f"{' or '.join(map(str, statuses))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


NUMBER = r" *-?\d[\d.,e+-]*"


def is_output(expected, printed):
    """Whether the expected lines are what was printed, but for numbers, lines of "..." and what
    a "..." at the end of a line stands for."""
    pattern = ""
    for line in expected:
        line = re.sub(r" {2,}", "  ", line.rstrip())
        ending = ".*\n" if line.endswith("...") else "\n"
        words = re.split(NUMBER, line.removesuffix("..."))
        pattern += (r"(?:.*\n)*?" if line.strip() == "..." else
                    NUMBER.join(map(re.escape, words)) + ending)
    printed = "".join(re.sub(r" {2,}", "  ", line.rstrip()) + "\n"
                      for line in printed.splitlines())
    return re.fullmatch(pattern, printed) is not None


def commands_of(block):
    """(command, lines that follow it) of a block."""
    result = []
    for line in block.lines:
        if block.language == "sh" and line.strip():
            result.append((line, []))
        elif line.startswith("$ "):
            result.append((line[2:], []))
        elif result:
            result[-1][1].append(line)
    return result


def run_commands(block, folder):
    statuses = [int(word) for word in (block.directive("status") or "0").split()]
    for command, follows in commands_of(block):
        printed = shell(block, command, statuses, folder)
        while follows and not follows[-1].strip():
            follows.pop()
        if block.directive("output") is not None and not is_output(follows, printed):
            block.fail(f"{command}: it prints\n{printed}")


def run_c(block, folder):
    """A fragment: what it declares and does, in the body of a function."""
    source = os.path.join(folder, "fragment.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write(f'#include "{HERE}/prelude.h"\nint main(void)\n{{\n'
                   f'#line {block.line + 1} "{block.page}"\n{block.text()}return 0;\n}}\n')
    runs = block.directive("run") is not None
    flags = "-Wall -Werror -Wno-unused-result $(pkg-config --cflags --libs sonde)"
    shell(block, "cc -std=c17 fragment.c " + ("-o fragment " if runs else "-fsyntax-only ") + flags
          + (" && ./fragment" if runs else ""), [0], folder)


def run_yaml(block, folder):
    if block.directive("merge") is not None:
        with open(os.path.join(folder, "merged.yaml"), "w", encoding="utf-8") as file:
            file.write(JOB + block.text())
        shell(block, "rm -rf runs/merged && sed -i s,runs/first,runs/merged, merged.yaml && "
              "sonde train merged.yaml --quiet --out merged", [0], folder)
    elif block.directive("hook-config") is not None:
        with open(os.path.join(folder, "config.yaml"), "w", encoding="utf-8") as file:
            file.write(block.text())
        shell(block, "sonde train --epochs 1 --quiet --record-config config.yaml --record "
              "runs/configured", [0], folder)


def write_files(blocks, folder):
    for block in blocks:
        if block.file_name():
            with open(os.path.join(folder, block.file_name()), "w", encoding="utf-8") as file:
                file.write(block.text())


def run_page(page, folder):
    blocks = blocks_of(page)
    write_files(blocks, folder)
    for block in blocks:
        if block.directive("setup") is not None:
            shell(block, block.directive("setup"), [0], folder)
        if block.directive("skip") is not None:
            continue
        if block.language in ("sh", "console"):
            run_commands(block, folder)
        elif block.language == "c" and not block.file_name():
            run_c(block, folder)
        elif block.language == "yaml":
            run_yaml(block, folder)
        elif block.language == "python":
            compile(block.text(), page, "exec")


# --- names and links ----------------------------------------------------------------------

PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md"]
# Options of other programs and of scripts, which have no --help of the command.
OTHERS = set("""--preset --build --install --prefix --cflags --libs --logdir --fresh --quick --only
    --no-try --fix --root --seeds --rows --record --every --help --version --init --against --batch
    --input --mca --oversubscribe --runs --trial-dir --rule-name --start-step --output-uri
    --rule_type --set --first --jobs --limit""".split())


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def all_pages():
    return PAGES + sorted("docs/" + name for name in os.listdir(os.path.join(ROOT, "docs"))
                          if name.endswith(".md"))


def anchors_of(text):
    """Anchors of the headings, as GitHub and Sphinx make them."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", title.lower().strip()).replace(" ", "-")
            for title in re.findall(r"^#+ (.*)$", prose, re.M)}


def bad_links(page, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        whole = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(os.path.join(ROOT, whole)):
            yield f"{page}: the link {target} leads nowhere"
        elif anchor and anchor not in anchors_of(read(whole)):
            yield f"{page}: {whole} has no heading for the link {target}"


def bad_paths(page, text):
    """Files of the source tree that a page names between backquotes and that do not exist."""
    rooms = "src|include|tests|tools|bench|docs|examples|cmake"
    for path in re.findall(rf"`((?:{rooms})/[\w./-]+)`", text):
        if not os.path.exists(os.path.join(ROOT, path)):
            yield f"{page}: there is no file {path}"


def bad_pages(folders):
    """Pages that sources, examples and tools name and that do not exist."""
    for top in folders:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), ROOT)
                if name.endswith((".h", ".c", ".py", ".txt", ".yaml", ".lua", ".sh")) or \
                        "." not in name:
                    for page in re.findall(r"\bdocs/\w+\.md\b", read(path)):
                        if not os.path.exists(os.path.join(ROOT, page)):
                            yield f"{path}: there is no page {page}"


def options_of(sonde):
    """Every option that the help of a command knows."""
    def help_of(*words):
        return subprocess.run([sonde, *words, "--help"], capture_output=True, text=True,
                              check=True).stdout

    listed = re.findall(r"^  ([a-z]+(?: [a-z]+)?) {2,}", help_of(), re.M)
    if len(listed) < 10:
        raise Failed(f"sonde --help lists {len(listed)} commands")
    words = {word for command in listed for word in re.findall(r"--[a-z][a-z_-]*",
                                                               help_of(*command.split()))}
    return words | OTHERS, {command.split()[0] for command in listed} | {"COMMAND"}


# Names of packages, programs and patterns, which no header declares.
NOT_C = {"sonde_nn", "sonde_plot", "sonde_module_verb"}


def text_below(*folders):
    """All text in the files of these folders."""
    result = []
    for top in folders:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            result += [read(os.path.relpath(os.path.join(folder, name), ROOT)) for name in names
                       if name.endswith((".h", ".c", ".txt", ".py", ".cmake")) or "." not in name]
    return "\n".join(result)


def bad_names(page, text, options, commands, sources):
    for option in sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z_-]*", text)) - options):
        yield f"{page}: no command has the option {option}"
    for command in sorted(set(re.findall(r"^(?:\$ )?sonde ([a-z]+)", text, re.M)) - commands):
        yield f"{page}: there is no command 'sonde {command}'"
    headers, everything = sources
    for name in sorted(set(re.findall(r"\bsonde_[a-z0-9]\w*", text)) - NOT_C):
        if name not in headers:
            yield f"{page}: no public header has {name}"
    for name in sorted(set(re.findall(r"\bSONDE_[A-Z0-9]\w*", text))):
        if name not in everything:
            yield f"{page}: nothing has the name {name}"


def first_words(sonde, *command):
    return {line.split()[0] for line in
            subprocess.run([sonde, *command], capture_output=True, text=True,
                           check=True).stdout.splitlines()}


def bad_counts(sonde):
    """Numbers and tables that repeat what the command lists."""
    rules = len(first_words(sonde, "rules", "list"))
    readme = read("README.md")
    counts = re.findall(r"(\d+) rules\b", readme) + re.findall(r"\| built-in rules \| \[?(\d+)", readme)
    if len(counts) < 4:
        yield f"README.md: the number of rules stands in {len(counts)} places"
    for count in counts:
        if int(count) != rules:
            yield f"README.md: {count} rules, but the command has {rules}"
    described = set(re.findall(r"^\| \[`(\w+)`\]", read("docs/demos.md"), re.M))
    for name in sorted(described ^ first_words(sonde, "demo", "list")):
        yield f"docs/demos.md: its table and 'sonde demo list' differ in {name}"
    presets = {preset["name"] for preset in
               json.loads(read("CMakePresets.json"))["configurePresets"]
               if not preset.get("hidden")}
    table = read("docs/building.md").split("| preset |")[1].split("\n\n")[0]
    for name in sorted(set(re.findall(r"^\| `(\w+)`", table, re.M)) ^ presets):
        yield f"docs/building.md: its table and CMakePresets.json differ in {name}"
    source = read("src/core/observe/collections_file.c")
    keys = re.search(r'keys\[\] = \{\s*("path".*?)\}', source, re.S).group(1) + \
        re.search(r"define SCHEDULE_KEYS(.*?)\n\n", source, re.S).group(1)
    for key in sorted(set(re.findall(r'"(\w+)"', keys))):
        if f"`{key}" not in read("docs/recording.md"):
            yield f"docs/recording.md: no word of the key {key}"
    for page in all_pages():
        if page.startswith("docs/") and page != "docs/index.md" and \
                f"({page[5:]}" not in read("docs/index.md"):
            yield f"docs/index.md: no link to {page}"


def check(sonde):
    options, commands = options_of(sonde)
    headers = text_below("include")
    sources = (headers, headers + text_below("src", "cmake", "bench", "tools"))
    bad = list(bad_counts(sonde))
    bad += bad_pages(["include", "src", "python", "examples", "bench", "tools"])
    for page in all_pages():
        text = read(page)
        bad += bad_links(page, text)
        bad += bad_paths(page, text) if page != "CHANGELOG.md" else []
        if page != "CHANGELOG.md":
            bad += bad_names(page, text, options, commands, sources)
    if bad:
        raise Failed("\n".join(bad))


def main():
    what, arguments = sys.argv[1], sys.argv[2:]
    try:
        if what == "files":
            write_files(blocks_of(arguments[0]), arguments[1])
        elif what == "run":
            run_page(*arguments)
        else:
            check(*arguments)
    except Failed as problem:
        print(problem, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
