#!/usr/bin/env python3
"""Whole programs, healthy and with a fault: recorded and judged by ../others/run.py, with its options.

    run.py record [--only PATTERN] ...
    run.py judge  [--only PATTERN] [--verbose] ..."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "others"), HERE]

import run as others  # noqa: E402  (that of ../others, which stands first)

others.DRIVERS = {1: ("single", "several")}
others.part = lambda one: 1

if __name__ == "__main__":
    others.main()
