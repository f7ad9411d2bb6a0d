#!/usr/bin/env python3
"""Odd but healthy programs: recorded and judged by ../others/run.py, with its options.

    run.py record [--only PATTERN] ...
    run.py judge  [--only PATTERN] [--verbose] ...

Each does on purpose what a rule could take for a fault. There are no faults here, and no program is
left out because its loss does not fall."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "others"), HERE]

import run as others  # noqa: E402  (that of ../others, which stands first)

others.DRIVERS = {1: ("shapes", "losses", "updates")}
others.learns = lambda facts: True
others.HEALTHY = {"seed-1": (1, None), "seed-2": (2, None)}
others.runs = lambda one: [f"healthy-{name}" for name in others.HEALTHY]

if __name__ == "__main__":
    others.main()
