"""The folder of a run is taken at sonde.watch: numbered, replaced or refused; calls after close.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import contextlib
import io
import os
import subprocess
import sys
import textwrap

from harness import check, folder, main, program, raises

PACKAGE = os.path.abspath(os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
sys.path.insert(0, PACKAGE)
try:
    import numpy  # noqa: F401, reading needs it
    import torch
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)


def begin(path, steps=2, **options):
    """An open watch that has recorded some steps, and what was printed."""
    said = io.StringIO()
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with contextlib.redirect_stderr(said):
        watch = sonde.watch(model, optimizer, run=path, **options)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).square().mean().backward()
            optimizer.step()
    return watch, said.getvalue()


def record(path, **options):
    watch, said = begin(path, **options)
    with contextlib.redirect_stderr(io.StringIO()):
        watch.close()
    return watch, said


@program
def runs_are_numbered():
    path = folder("numbered/deep/first")
    watch, said = record(path)
    check("the first has the name", watch.path == path and said == "")
    check("no reservation is left", "run.json.reserved" not in os.listdir(path))
    for number in (2, 3):
        watch, said = record(path + "/")
        check(f"number {number}: {watch.path}", watch.path == f"{path}-{number}")
        check(f"one line says so: {said}",
              said == f"sonde: a run is in {path} already: this one is {path}-{number}\n")
        run = sonde.open(watch.path)
        check("it is complete", run.status == "ended" and run.last_step == 1)
    check("the first is untouched", sonde.open(path).last_step == 1)


@program
def folders_are_reserved_at_the_call():
    path = folder("reserved")
    one, _ = begin(path, steps=0)
    two, said = begin(path, steps=1)
    check(f"before the first step: {two.path}", two.path == path + "-2" and "already" in said)
    os.mkdir(folder("empty"))
    three, said = begin(folder("empty") if False else os.path.join(os.path.dirname(path), "empty"))
    for watch in (one, two, three):
        with contextlib.redirect_stderr(io.StringIO()):
            watch.close()
    check("a run that never began leaves nothing", not os.path.exists(path))
    check("the others are runs", sonde.open(two.path).last_step == 0 and
          sonde.open(three.path).last_step == 1)


@program
def a_reservation_left_behind_is_taken_over():
    path = folder("left")
    text = f"""
        import os, sys
        sys.path.insert(0, {PACKAGE!r})
        import sonde
        sonde.watch(run={path!r})
        os._exit(0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(text)], check=True)
    check("it is there", os.listdir(path) == ["run.json.reserved"])
    watch, said = record(path)
    check(f"and taken over: {said}", watch.path == path and said == "")


@program
def processes_at_once_take_different_numbers():
    path = folder("at_once")
    text = f"""
        import os, sys
        sys.path.insert(0, {PACKAGE!r})
        import sonde
        sys.stdin.read(1)
        with sonde.watch(run={path!r}) as watch:
            watch.record("x", memoryview(bytearray(8)).cast("d"))
            watch.step_end()
            print(watch.path)
            sys.stdout.flush()
            sys.stdin.read(1)
    """
    many = [subprocess.Popen([sys.executable, "-c", textwrap.dedent(text)], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL) for _ in range(5)]
    for one in many:
        one.stdin.write("g")
        one.stdin.flush()
    paths = [one.stdout.readline().strip() for one in many]
    for one in many:
        one.stdin.write("e")
        one.communicate()
    wanted = [path] + [f"{path}-{number}" for number in range(2, 6)]
    check(f"five paths: {paths}", sorted(paths) == wanted)
    check("all ended well", all(one.returncode == 0 for one in many))
    check("all are runs", all(sonde.open(one).last_step == 0 for one in wanted))


@program
def ranks_of_a_job_take_one_number():
    path = folder("ranks")
    record(path)
    watches = {rank: begin(path, rank=rank, world=3)[0] for rank in (2, 0, 1)}
    check("all in one", {watch.path for watch in watches.values()} == {path + "-2"})
    again = {rank: begin(path, rank=rank, world=3)[0] for rank in (1, 0, 2)}
    check("a second job in another", {watch.path for watch in again.values()} == {path + "-3"})
    with contextlib.redirect_stderr(io.StringIO()):
        for watch in (*watches.values(), *again.values()):
            watch.close()
    check("three workers each", all(sonde.open(f"{path}-{n}").info["world"] == 3
                                    for n in (2, 3)))
    first = begin(path, rank=0, world=2, overwrite=True)[0]
    second = begin(path, rank=1, world=2, overwrite=True)[0]
    with contextlib.redirect_stderr(io.StringIO()):
        first.close()
        second.close()
    check("ranks overwrite once", first.path == second.path == path and
          sonde.open(path).info["world"] == 2)


@program
def runs_are_overwritten():
    path = folder("overwritten")
    record(path, steps=5)
    watch, said = record(path, steps=1, overwrite=True)
    check("replaced", watch.path == path and said == "" and sonde.open(path).last_step == 0)
    watch, _ = begin(path, overwrite=True)
    raises(sonde.StateError, "another process writes this run", begin, path, overwrite=True)
    with contextlib.redirect_stderr(io.StringIO()):
        watch.close()
    check("what is refused is untouched", sonde.open(path).last_step == 1)
    watch, _ = record(folder("overwritten_new"), overwrite=True)
    check("nothing to replace", sonde.open(watch.path).last_step == 1)


@program
def refusals_come_from_the_call():
    path = folder("foreign")
    os.mkdir(path)
    with open(os.path.join(path, "notes"), "w", encoding="utf-8") as file:
        file.write("mine")
    for overwrite in (False, True):
        raises(sonde.BadValueError, "is not empty, and holds no run", sonde.watch, run=path,
               overwrite=overwrite)
    check("the notes are there", os.listdir(path) == ["notes"])
    file = os.path.join(path, "notes")
    raises(sonde.BadValueError, "there is a file of that name", sonde.watch, run=file)
    raises(sonde.BadValueError, "there is a file of that name", sonde.watch, run=file + "/x")
    raises(sonde.StorageError, "/proc/x", sonde.watch, run="/proc/x/y")
    raises(sonde.BadValueError, "one of them", sonde.watch, run=path, overwrite=True, resume="any")
    raises(sonde.BadValueError, "every", sonde.watch, run=folder("bad"), every={"x": 1})
    check("a refused call leaves nothing", not os.path.exists(folder("bad")))


@program
def resumed_runs_keep_their_folder():
    path = folder("resumed")
    watch, _ = begin(path)
    with contextlib.redirect_stderr(io.StringIO()):
        watch.close("interrupted")
    watch, said = record(path, resume="any")
    check(f"the same folder: {said}", watch.path == path and sonde.open(path).last_step == 3)


@program
def calls_after_close_raise():
    watch, _ = record(None)
    for name, arguments in (("scalar", ("lr", 1.0)), ("record", ("x", torch.ones(2))),
                            ("loss", (1.0,)), ("step_end", ())):
        raises(sonde.StateError, f"watch.{name}: the watch is closed", getattr(watch, name),
               *arguments)
    watch.close()  # again: nothing


@program
def names_that_cannot_be_kept_raise():
    watch, _ = begin(folder("names"))
    for name, text in (("", "an empty name"), ("x" * 4097, "too long"), ("a\nb", "one line"),
                       ("a\0b", "NUL"), (7, "of type int"), ("\udc80", "no text")):
        raises(sonde.BadValueError, text, watch.scalar, name, 1.0)
        raises(sonde.BadValueError, text, watch.record, name, torch.ones(2))
        raises(sonde.BadValueError, text, watch.loss, torch.ones(()), name)
    raises(sonde.BadValueError, "too long", watch.scalar, "x" * 4090, 1.0)
    watch.scalar("x" * 4089, 1.0)
    watch.record("y" * 4096, torch.ones(2))
    with contextlib.redirect_stderr(io.StringIO()):
        watch.close()
    names = [info.name for info in sonde.open(watch.path).tensors()]
    check("the longest are kept", "scalar/" + "x" * 4089 in names and "y" * 4096 in names)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
