"""smdebug's names on Sonde: programs written for it, and what they read.

smdebug_program.json is what smdebug 1.0.34 says of tests/python/smdebug_program.py.
Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import contextlib
import copy
import io
import json
import logging
import os
import pickle
import runpy
import subprocess
import sys
import time

from harness import FOLDER, check, folder, main, program, raises

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("SONDE_BUILD", "build/release"))
PACKAGE = os.path.join(BUILD, "python")
sys.path[0:0] = [os.path.join(PACKAGE, "sonde", "compat", "smdebug"), PACKAGE]
try:
    import numpy
    import torch
    from torch import nn
    import sonde
    import smdebug
except ImportError as problem:
    print(problem)
    sys.exit(77)
from smdebug import ReductionConfig, SaveConfig, SaveConfigMode, modes
from smdebug.exceptions import (InvalidCollectionConfiguration, InvalidWorker, SMDebugError,
                                SMDebugRuntimeError, SMDebugTypeError, SMDebugValueError,
                                TensorUnavailableForStep)
import smdebug.pytorch as smd
import smdebug.rules
from smdebug.trials import create_trial

ENVIRONMENT = dict(os.environ, PYTHONPATH=PACKAGE, OMP_NUM_THREADS="1",
                   PATH=os.path.join(BUILD, "bin") + os.pathsep + os.environ["PATH"])

def run(*arguments):
    """python -m sonde run ...: (exit code, output, errors)."""
    done = subprocess.run([sys.executable, "-m", "sonde", "run", *arguments], text=True,
                          capture_output=True, env=ENVIRONMENT, timeout=300)
    return done.returncode, done.stdout, done.stderr


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.relu, self.fc2 = nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x)))


def train(net, steps=6, hook=None, each=None):
    generator = torch.Generator().manual_seed(4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    if hook is not None:
        hook.register_module(net)
        hook.register_loss(loss_of)
    for step in range(steps):
        optimizer.zero_grad()
        if each is not None:
            each(step)
        loss_of(net(torch.randn(4, 6, generator=generator)),
                torch.randint(3, (4,), generator=generator)).backward()
        optimizer.step()
    return [value.clone() for value in net.state_dict().values()]


def new_net():
    torch.manual_seed(2)
    return Net()


# --- as smdebug does it -------------------------------------------------------------------

@program
def like_smdebug():
    """The same program says the same, but for a parameter that is a weight by what it is:
    smdebug goes by the word `weight` in its name."""
    code, text, errors = run(os.path.join(HERE, "smdebug_program.py"), folder("program"))
    check(f"the program ends well: {errors[-300:]}", code == 0)
    found = json.loads(text)
    with open(os.path.join(HERE, "smdebug_program.json"), encoding="utf-8") as file:
        real = json.load(file)
    found["collection"]["weights"].remove("Net_alpha")
    mine, theirs = found["tensors"].pop("Net_alpha"), real["tensors"].pop("Net_alpha")
    check("alpha is saved as its own collection says, and as a weight", set(theirs["global"]) <
          set(mine["global"]))
    for key in real:
        if key not in ("loss", "norm", "reduction", "tensors"):
            check(f"{key}: {found.get(key)} as {real[key]}", found.get(key) == real[key])
    for name, says in real["tensors"].items():
        check(f"{name}: {found['tensors'].get(name)} as {says}",
              found["tensors"].get(name) == says)
    for key in ("loss", "norm", "reduction"):
        check(f"{key}: {found[key]} near {real[key]}", abs(found[key] - real[key]) < 2e-3)


def demo(*arguments):
    """The example's program, in this process."""
    sys.argv = [os.path.join(HERE, "..", "..", "examples", "python", "pytorch_hook_demos.py"),
                *arguments]
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(sys.argv[0], run_name="__main__")


@program
def demos():
    """The command lines of the examples, and of the rule invoker."""
    for rule, fault in (("VanishingGradient", "vanishing_grad"),
                        ("ExplodingTensor", "exploding_tensor")):
        path = folder(fault)
        demo("--output-uri", path, "--rule_type", fault, "--steps", "40")
        code, text, errors = run("-m", "smdebug.rules.rule_invoker", "--trial-dir", path,
                                 "--rule-name", rule)
        check(f"{rule} fires: {code} {text[:200]} {errors[:200]}",
              code == 1 and f"{rule}: gradient/Net_" in text)
    saved = {"saveall": 25, "module-input-output": 15, "weights-bias-gradients": 13}
    for kind, tensors in saved.items():
        path = folder(kind)
        demo("--output-uri", path, "--hook-type", kind, "--steps", "45")
        names = create_trial(path).tensor_names()
        check(f"{kind}: {len(names)} tensors", len(names) == tensors)
    trial = create_trial(os.path.join(FOLDER, "module-input-output"))
    check(f"l_mod: {trial.tensor_names(collection='l_mod')}",
          trial.tensor_names(collection="l_mod") == ["Net_input_0", "Net_output_0"])
    check(f"its steps: {trial.steps(modes.TRAIN)}", trial.steps(modes.TRAIN) ==
          [0, 10, 20, 30, 40])


# --- nothing is changed by looking --------------------------------------------------------

@program
def bits():
    bare = train(new_net())
    for kind, options in (("all", {"save_all": True, "save_config": SaveConfig(1)}),
                          ("reduced", {"save_all": True, "save_config": SaveConfig(1),
                                       "reduction_config": ReductionConfig(["mean"])}),
                          ("usual", {})):
        hook = smd.Hook(folder(kind), **options)
        net = new_net()
        weights = train(net, hook=hook)
        hook.close()
        check(f"{kind}: the same bits", all(map(torch.equal, bare, weights)))
        left = sum(len(module._forward_hooks) + len(module._forward_pre_hooks)
                   for module in net.modules())
        check(f"{kind}: {left} hooks stay", left == 0)
        check(f"{kind}: no fault", hook.faults == 0)


@program
def copies():
    hook = smd.Hook(folder("copies"), save_config=SaveConfig(1))
    net = new_net()
    train(net, 2, hook)
    other = copy.deepcopy(net)
    other(torch.randn(2, 6))
    again = pickle.loads(pickle.dumps(net))
    again(torch.randn(2, 6))
    check(f"a copy of the model begins no step: {hook.step}", hook.step == 1)
    check("a hook is pickled empty", pickle.loads(pickle.dumps(hook)).closed)
    hook.close()


# --- what is saved, and when ----------------------------------------------------------------

@program
def schedules():
    for config, steps in ((SaveConfig(save_interval=2), [0, 2, 4, 6, 8]),
                          (SaveConfig(save_interval=2, start_step=3, end_step=8), [4, 6]),
                          (SaveConfig(save_steps=[1, 5]), [1, 5]),
                          (SaveConfig(end_step=0), []),
                          ({modes.GLOBAL: SaveConfigMode(save_interval=4)}, [0, 4, 8]),
                          (SaveConfigMode(save_interval=5), [0, 5])):
        path = folder("schedule")
        hook = smd.Hook(path, save_config=config)
        train(new_net(), 10, hook)
        hook.close()
        trial = create_trial(path)
        check(f"{config}: {trial.steps()}", trial.steps() == steps)
        check("should_save_step agrees", [s for s in range(10) if hook.save_config
              .should_save_step(modes.GLOBAL, s)] == steps)


@program
def given_values():
    path = folder("values")
    hook = smd.Hook(path, save_config=SaveConfig(1), include_collections=["mine"])
    hook.save_tensor("first", torch.full((2,), 3.0), "mine")
    hook.save_scalar("rate", 0.5)

    def each(step):
        if step > 0:
            hook.save_tensor("late", numpy.full(3, step))
            hook.save_scalar("rate", 0.5 / (step + 1))

    train(new_net(), 4, hook, each)
    hook.close()
    trial = create_trial(path)
    check(f"names: {trial.tensor_names()}", trial.tensor_names() == [
        "CrossEntropyLoss_output_0", "first", "late", "scalar/rate"])
    check("a value before the first step", trial.tensor("first").value(0).tolist() == [3.0, 3.0])
    check("and its collection", trial.tensor_names(collection="mine") == ["first"])
    late = trial.tensor("late")
    check(f"values of later steps: {late.steps()}", late.steps() == [0, 1, 2] and
          late.value(1).tolist() == [2, 2, 2])
    check(f"scalars: {trial.tensor('scalar/rate').steps()}",
          trial.tensor("scalar/rate").value(0) == 0.5)
    raises(SMDebugTypeError, "has 2 elements", hook.save_scalar, "two", torch.zeros(2))


@program
def a_step_that_is_on():
    path = folder("live")
    hook = smd.Hook(path, save_config=SaveConfig(1), include_collections=["weights"])
    net = new_net()
    train(net, 3, hook)
    trial = create_trial(path)
    for _ in range(200):  # the writer is a thread of its own
        if len(trial.steps(show_incomplete_steps=True)) == 3:
            break
        time.sleep(0.02)
    found = trial.steps(), trial.steps(show_incomplete_steps=True)
    check(f"the last step is on: {found}", found == ([0, 1], [0, 1, 2]))
    hook.close()
    check("and has ended", trial.steps() == [0, 1, 2])


@program
def reductions():
    path = folder("reductions")
    hook = smd.Hook(path, save_config=SaveConfig(1), include_collections=["weights"],
                    reduction_config=ReductionConfig(["mean", "std"], ["max"], ["l1"]))
    train(new_net(), 3, hook)
    hook.close()
    weight = create_trial(path).tensor("Net_fc1.weight")
    values = weight.reduction_values(1)
    check(f"saved reductions: {sorted(values)}", values[("l1", False)] > 0 and
          values[("max", True)] >= values[("max", False)])
    raises(TensorUnavailableForStep, "reduction_value()", weight.value, 1)
    check("losses keep their values", create_trial(path).tensor("CrossEntropyLoss_output_0")
          .value(1).shape == ())
    raises(InvalidWorker, "worker_7", weight.reduction_value, 1, "mean", worker="worker_7")
    raises(SMDebugValueError, "'middle'", weight.reduction_value, 1, "middle")


OWN_RULES = """
from smdebug.analysis.utils import parse_list_from_str
from smdebug.rules.rule import Rule

class Positive(Rule):
    "A tensor has an element above the threshold."

    def __init__(self, base_trial, tensors, threshold="0.0"):
        super().__init__(base_trial)
        self.tensors, self.threshold = parse_list_from_str(tensors), float(threshold)

    def set_required_tensors(self, step):
        for pattern in self.tensors:
            self.req_tensors.add(pattern, steps=[step], should_match_regex=True)

    def invoke_at_step(self, step):
        return any(one.value(step).max() > self.threshold for one in self.req_tensors.get())

class Broken(Rule):
    def invoke_at_step(self, step):
        return 1 / (step - 2)
"""


@program
def own_rules():
    """One mechanism: a rule of smdebug's is judged with Sonde's, over either's directories."""
    path, file = folder("own"), os.path.join(FOLDER, "ownrules.py")
    with open(file, "w", encoding="utf-8") as out:
        out.write(OWN_RULES)
    hook = smd.Hook(path, save_config=SaveConfig(2), include_collections=["weights", "gradients"])
    train(new_net(), 7, hook)
    hook.close()
    rules = runpy.run_path(file)
    trial = create_trial(path)
    found = sonde.open(path).judge(["VanishingGradient", rules["Positive"](trial, "weight"),
                                    rules["Broken"](trial)])
    by_rule = {one.rule: one for one in found}
    check(f"a finding of the whole run: {found}", (by_rule["Positive"].tensor,
          by_rule["Positive"].step, by_rule["Positive"].last_step,
          by_rule["Positive"].steps) == ("", 0, 6, 4))
    check("an exception switches it off", "ZeroDivisionError" in by_rule["Broken"].message)
    check("which is not one", not sonde.open(path).judge([rules["Positive"](trial, "weight", 1e6)]))
    check("the steps that were opened", sonde.open(path, begin=2, end=5).judge(
        [rules["Positive"](trial, "weight")])[0].steps == 2)
    raises(sonde.BadValueError, "Positive reads a trial", sonde.watch, new_net(),
           rules=[rules["Positive"](trial, "weight")])
    invoker = "-m", "smdebug.rules.rule_invoker", "--trial-dir", path, "--rule-name"
    code, out, errors = run(*invoker, file + ":Positive", "--tensors", "bias, weight",
                            "--start-step", "1")
    check(f"the invoker: {code} {out} {errors}", code == 1 and out ==
          "step 2: warning: Positive: The rule's condition holds. At 3 steps, up to 6.\n")
    code, out, errors = run(*invoker, file + ":Positive", "--tensors=weight", "--threshold", "99",
                            "--follow")
    check(f"no finding: {code} {out} {errors}", (code, out) == (0, "OK: Positive judged 4 steps\n"))
    for arguments, text in (((file + ":Positve",), "Positve is no rule (expected"),
                            ((file + ":Positive",), "--tensors: missing"),
                            ((file + ":Positive", "--tensors", "a", "--treshold", "1"),
                             "--treshold: Positive has no such parameter"),
                            ((file + ":Broken", "--stray"), "--stray"),
                            (("nowhere.py:Rule",), "nowhere.py: no such file")):
        code, out, errors = run(*invoker, *arguments)
        check(f"{arguments}: {code} {errors}", code == 2 and text in errors)


@program
def other_names():
    """Modules that programs import from, configurations as text, log levels."""
    from smdebug.analysis.utils import parse_bool, parse_list_from_str
    from smdebug.core.singleton_utils import get_hook
    from smdebug.pytorch.collection import Collection
    from smdebug.pytorch.singleton_utils import set_hook
    from smdebug.rules.req_tensors import RequiredTensors
    from smdebug.trials import LocalTrial
    from smdebug.trials.utils import create_trial as create
    check("the same", create is create_trial and Collection is smd.Collection and
          RequiredTensors is smdebug.rules.RequiredTensors)
    hook = smd.Hook(folder("names"))
    set_hook(hook)
    check("the hook of the program", get_hook() is hook)
    check("lists", parse_list_from_str("a, b") == ["a", "b"] and parse_list_from_str(None) == [])
    check("flags", parse_bool("true") and not parse_bool("False") and parse_bool(None, True))
    raises(SMDebugValueError, "'yes'", parse_bool, "yes")
    save = SaveConfig(mode_save_configs={modes.TRAIN: SaveConfigMode(3, save_steps=[1])})
    check("a SaveConfig as text", SaveConfig.from_json(save.to_json()) == save)
    reduced = ReductionConfig(["min"], ["max"], ["l1"], ["l2"], save_raw_tensor=True)
    check("a ReductionConfig as text", ReductionConfig.from_json(reduced.to_json()) == reduced)
    train(new_net(), 1, hook)
    hook.close()
    check("LocalTrial", LocalTrial("t", hook.out_dir).tensor_names() ==
          create_trial(f" {hook.out_dir} ").tensor_names())
    code = "import logging, smdebug; logging.getLogger('smdebug').%s('seen')"
    for level, method, seen in (("info", "info", True), ("ERROR", "warning", False),
                                ("off", "critical", False), ("loud", "warning", True)):
        done = subprocess.run([sys.executable, "-c", code % method], text=True, timeout=100,
                              capture_output=True, env=dict(
                                  ENVIRONMENT, PYTHONPATH=os.pathsep.join(sys.path[:2]),
                                  TORNASOLE_LOG_LEVEL=level))
        check(f"level {level}: {done.stderr}", ("seen" in done.stderr) == seen)


@program
def from_json():
    path, file = folder("json"), os.path.join(FOLDER, "hook.json")
    with open(file, "w", encoding="utf-8") as out:
        json.dump({"LocalPath": path, "HookParameters": {"save_interval": "2",
                                                         "eval.save_interval": "7"},
                   "CollectionConfigurations": [
                       {"CollectionName": "gradients",
                        "CollectionParameters": {"save_steps": "1,2"}},
                       {"CollectionName": "mine", "CollectionParameters": {
                           "include_regex": "relu_out,fc2_output",
                           "reductions": "min,abs_max,l2_norm"}}]}, out)
    os.environ["SMDEBUG_CONFIG_FILE_PATH"] = file
    hook = smd.get_hook(create_if_not_exists=True)
    del os.environ["SMDEBUG_CONFIG_FILE_PATH"]
    check("get_hook makes it", hook is not None and smd.get_hook() is hook)
    train(new_net(), 4, hook)
    smd.del_hook()
    check("del_hook closes it", hook.closed and smd.get_hook() is None)
    trial = create_trial(path)
    check("gradients", trial.tensor("gradient/Net_fc1.weight").steps() == [1, 2])
    check(f"mine: {trial.tensor_names(collection='mine')}",
          trial.tensor_names(collection="mine") == ["fc2_output_0", "relu_output_0"])
    check("losses", trial.tensor("CrossEntropyLoss_output_0").steps() == [0, 2])


# --- bad input ------------------------------------------------------------------------------

@program
def bad_input():
    raises(SMDebugRuntimeError, "out_dir: missing", smd.Hook)
    path = folder("full")
    os.makedirs(os.path.join(path, "something"))
    raises(SMDebugRuntimeError, "not empty", smd.Hook, path)
    raises(SMDebugValueError, "save_interval: 0", SaveConfig, save_interval=0)
    raises(SMDebugValueError, "'middle'", ReductionConfig, ["middle"])
    raises(SMDebugValueError, "expected a list", ReductionConfig, "min")
    raises(SMDebugValueError, "no SaveConfigMode",
           SaveConfig(mode_save_configs={modes.TRAIN: SaveConfigMode()}).get_save_config,
           modes.EVAL)
    raises(SMDebugValueError, "unknown key", smd.Hook, folder("bad"), save_config={"every": 3})
    raises(SMDebugError, "torch.nn.Module", smd.Hook(folder("bad")).register_module, 3)
    raises(SMDebugError, "a loss", smd.Hook(folder("bad")).register_loss, nn.ReLU())
    raises(SMDebugValueError, "mode: 'trian'", smd.Hook(folder("bad")).set_mode, "trian")
    hook = smd.Hook(folder("bad"), include_collections=["nothing"])
    raises(InvalidCollectionConfiguration, "'nothing' is empty", train, new_net(), 1, hook)
    hook = smd.Hook(folder("bad"), include_collections=["m"])
    hook.get_collection("m").add_module_tensors(nn.ReLU())
    raises(SMDebugValueError, "not part of a registered module", train, new_net(), 1, hook)
    hook = smd.Hook(folder("bad"), include_regex=["("])
    raises(SMDebugRuntimeError, "(", train, new_net(), 1, hook)
    net = new_net()
    hook = smd.Hook(folder("bad"))
    hook.register_module(net)
    raises(SMDebugError, "registered already", hook.register_module, net)
    hook.close()
    raises(sonde.NotFoundError, "nowhere", create_trial, os.path.join(FOLDER, "nowhere"))
    raises(SMDebugValueError, "range_steps", create_trial, FOLDER, range_steps=(5, 5))
    code, _, errors = run("/nowhere/program.py")
    check(f"no program: {errors}", code == 1 and "no such file" in errors)


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.getLogger("smdebug").setLevel(logging.ERROR)
    main()
