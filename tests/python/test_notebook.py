"""%load_ext sonde, in a shell that has what IPython gives an extension.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import contextlib
import io
import os
import sys

from harness import check, main, program, raises

PACKAGE = os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python")
sys.path.insert(0, PACKAGE)
try:
    import torch
    from torch import nn
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)


class Shell:
    """The part of IPython's InteractiveShell that an extension calls."""

    def __init__(self):
        self.magics = {}

    def register_magic_function(self, function, magic_kind="line", magic_name=None):
        assert magic_kind == "line"
        self.magics[magic_name] = function

    def run(self, line=""):
        """What %sonde prints."""
        said, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
            self.magics["sonde"](line)
        return said.getvalue() + errors.getvalue()


def cell(model, steps=20):
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()


@program
def cells_are_watched():
    shell = Shell()
    sonde.load_ipython_extension(shell)
    sonde.load_ipython_extension(shell)  # a second time changes nothing
    check("nothing yet", shell.run() == "no watch: no cell has trained a model\n")
    sys.modules["__main__"].mine = model = nn.Linear(4, 1)
    cell(model)
    check(f"its state: {shell.run()}", shell.run() == "watched: mine; 20 steps; 0 findings\n")
    with contextlib.redirect_stderr(io.StringIO()):
        with torch.no_grad():
            model.weight[0, 0] = float("nan")
        cell(model, 1)
    check(f"findings: {shell.run()}", "error: NonFinite" in shell.run())
    check("the verdict", "NonFinite in" in shell.run("close"))
    cell(nn.Linear(4, 1))
    check(f"another watch: {shell.run()}", "20 steps" in shell.run())
    raises(sonde.BadValueError, "expected close", shell.magics["sonde"], "stop")
    with contextlib.redirect_stderr(io.StringIO()):
        watch = sonde.watch(model, rules=None)
        check("a watch of its own", shell.run() == "no watch: cells call sonde.watch\n")
        watch.close()
        sonde.unload_ipython_extension(shell)
    check("unloaded", shell.run().startswith("no watch: %load_ext sonde") and
          nn.Module.__dict__.get("_compiled_call_impl") is None and
          not sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks)
    sonde.load_ipython_extension(shell)
    sonde.unload_ipython_extension(shell)
    cell(model, 1)
    check("again", nn.Module.__dict__.get("_compiled_call_impl") is None)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
