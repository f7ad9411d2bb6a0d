"""Reads the text of a program, for tests."""
import json
import sys


class Text:
    """A program, from its text."""

    def __init__(self, text):
        self.row = json.loads(text)

    def __getattr__(self, name):
        return self.row[name]

    def ops(self):
        return [node["op"] for node in self.row["nodes"]]

    def node(self, op, number=0):
        return [node for node in self.row["nodes"] if node["op"] == op][number]

    def line(self, row):
        if "place" not in row:
            return None
        file, number = row["place"]
        return number if self.files[file] == sys.modules["__main__"].__file__ else (self.files[file], number)

    def tensor(self, value):
        return self.values[value].get("tensor", "")

    def kinds(self):
        return [event["event"] for event in self.events]

    def event(self, kind, number=0):
        return [event for event in self.events if event["event"] == kind][number]

    def parameter(self, name):
        return next(row for row in self.parameters if row["name"] == name)

    def module(self, name):
        return next(row for row in self.modules if row.get("name", "") == name)


def texts_of(watch):
    """The programs of a watch, each as it came: (mode, Text)."""
    found = []
    programs = watch._hooks.programs
    plain = programs._text

    def keep(on):
        text = plain(on)
        found.append((programs.mode, Text(text)))
        return text

    programs._text = keep
    return found
