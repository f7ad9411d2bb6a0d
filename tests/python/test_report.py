"""The page of `sonde rules --report` is well-formed HTML that needs nothing else.

Runs a demo, writes its page and reads it with Python's parser: every element that is opened is
closed, in order; ids are there once and links within the page lead to one; nothing is loaded
from anywhere, there is no script and no handler; curves have numbers only. Looks for sonde in
SONDE_BIN. Without it: skipped (77).
"""
import html.parser
import os
import re
import subprocess
import sys
import tempfile

VOID = {"meta", "br", "hr", "img", "input", "link", "source", "wbr", "col", "area", "base"}
KNOWN = set("""a article b body code dd details div dl dt em figcaption figure h1 h2 h3 head
header html i li main meta nav p path rect section small span style summary svg table tbody td
th thead title tr ul""".split())
results = {True: 0, False: 0}


def check(what, good):
    results[bool(good)] += 1
    if not good:
        print("FAILED:", what)


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.style, self.numbers = [], [], [], "", 0

    def handle_starttag(self, tag, attrs):
        check(f"<{tag}> is no element of the page", tag in KNOWN)
        names = [name for name, _ in attrs]
        check(f"<{tag}>: an attribute twice: {names}", len(names) == len(set(names)))
        for name, value in attrs:
            check(f"<{tag} {name}> is a handler or loads", not name.startswith("on") and name not in
                  ("src", "srcset", "data", "action", "xlink:href"))
            if name == "id":
                self.ids.append(value)
            if name == "href":
                self.links.append(value)
            if name == "d":
                check(f"a path that is none: {value[:60]}",
                      re.fullmatch(r"([MLHVh ][-+.e0-9 ]+)*", value))
                self.numbers += 1
            if name == "style":
                check(f"a style: {value}", re.fullmatch(
                    r"((left|top|width):-?\d+\.?\d*%;?)+", value))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        at = self.getpos()
        check(f"</{tag}> at {at} closes {self.open[-1:]}", self.open and self.open[-1] == tag)
        if self.open:
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.style += data


def look_at(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    page = Page()
    page.feed(text)
    page.close()
    check(f"left open: {page.open}", not page.open)
    check("doctype", text.startswith("<!DOCTYPE html>\n"))
    check("one title", text.count("<title>") == 1)
    check(f"ids twice: {page.ids}", len(page.ids) == len(set(page.ids)))
    for link in page.links:
        check(f"a link to {link}", link.startswith("#") and link[1:] in page.ids)
    check("the style loads", not re.search(r"url\(|@import|expression|http", page.style))
    check("braces of the style", page.style.count("{") == page.style.count("}") > 50)
    check("an address on the page", "http" not in text.replace("http-equiv", ""))
    check("a policy that forbids to load", "default-src 'none'" in text)
    check("curves", page.numbers > 10)
    check("no number of a curve is NaN", not re.search(r'd="[^"]*nan', text))


def main():
    sonde = os.path.join(os.environ.get("SONDE_BIN", ""), "sonde")
    if not os.path.exists(sonde):
        print("no", sonde)
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        for demo in ("healthy", "nan_in_data", "overfit"):
            run = os.path.join(folder, demo)
            done = subprocess.run([sonde, "demo", demo, "--quiet", "--record", run],
                                  capture_output=True, text=True)
            check(f"{demo}: {done.stdout}{done.stderr}", done.returncode == 0)
            done = subprocess.run([sonde, "rules", run, "--report", run + ".html"],
                                  capture_output=True, text=True)
            check(f"{demo}: {done.stderr}", done.returncode in (0, 1))
            look_at(run + ".html")
    print(f"{results[True]} passed, {results[False]} failed")
    sys.exit(1 if results[False] else 0)


if __name__ == "__main__":
    main()
