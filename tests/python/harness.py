"""What the tests of the Python package share: counted checks, programs, folders."""
import os
import shutil
import signal
import sys
import tempfile
import traceback

results = {True: 0, False: 0}
FOLDER = tempfile.mkdtemp()
PROGRAMS = []


def check(what, good):
    results[bool(good)] += 1
    if not good:
        print("FAILED:", what)


def program(function):
    """A test; an exception fails it."""
    PROGRAMS.append(function)
    return function


def folder(name):
    """The path of a folder that is not there yet."""
    path = os.path.join(FOLDER, name)
    shutil.rmtree(path, ignore_errors=True)
    return path


def raises(kind, text, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kind as problem:
        check(f"{kind.__name__} says '{text}': {problem}", text in str(problem))
        return
    check(f"{kind.__name__} is raised: {text}", False)


def main():
    """Runs all programs and ends the process."""
    # Ignored by a parent, as of a job in the background, it would not reach the programs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for function in PROGRAMS:
            try:
                function()
            except Exception as problem:  # the others still run
                traceback.print_exc(file=sys.stdout)
                check(f"{function.__name__}: {problem}", False)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    print("%d passed, %d failed" % (results[True], results[False]))
    sys.exit(1 if results[False] else 0)
