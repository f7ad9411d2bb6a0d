"""A program written by smdebug's documentation, and what its trial says, as JSON.

    smdebug_program.py FOLDER      with smdebug 1.0.34, to make smdebug_program.json
    python -m sonde run smdebug_program.py FOLDER

save_interval alone sets the steps: smdebug takes save_steps for a union with the interval, against
its documentation.
"""
import json
import sys

import torch
import torch.nn.functional as F
from smdebug import ReductionConfig, SaveConfig, SaveConfigMode, modes
from smdebug.exceptions import (NoMoreData, RuleEvaluationConditionMet, StepUnavailable,
                                TensorUnavailable, TensorUnavailableForStep)
import smdebug.pytorch as smd
from smdebug.rules import Rule, invoke_rule
from smdebug.trials import create_trial
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()

    def forward(self, x):
        return self.relu(self.norm(self.conv(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.relu = nn.ReLU()
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.fc = nn.Linear(6, 3)
        self.alpha = nn.Parameter(torch.ones(1))
        self.frozen = nn.Linear(3, 3)
        self.frozen.weight.requires_grad_(False)

    def forward(self, x):
        x = self.relu(self.block(x).mean(3).transpose(1, 2))
        x, _ = self.lstm(self.relu(x))
        return self.frozen(self.fc(x[:, -1])) * self.alpha


def record(folder):
    torch.manual_seed(0)
    net, loss_of = Net(), nn.CrossEntropyLoss()
    hook = smd.Hook(
        out_dir=folder,
        save_config={modes.TRAIN: SaveConfigMode(save_interval=3),
                     modes.EVAL: SaveConfigMode(save_interval=2, start_step=1)},
        include_collections=["weights", "gradients", "block", "relu", "reduced"],
        include_regex=["alpha$"])
    hook.get_collection("block").add_module_tensors(net.block, inputs=True, outputs=True)
    hook.get_collection("relu").include(["^relu_output"])
    reduced = hook.get_collection("reduced")
    reduced.include("^lstm_output")
    reduced.reduction_config = ReductionConfig(reductions=["min", "max", "mean"],
                                               abs_norms=["l2"])
    hook.get_collection("weights").save_config = SaveConfig(save_interval=4)
    hook.register_module(net)
    hook.register_loss(loss_of)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        hook.set_mode(modes.TRAIN)
        for _ in range(5):
            optimizer.zero_grad()
            out = net(torch.randn(8, 1, 6, 6))
            hook.record_tensor_value("nll_loss", F.nll_loss(out.log_softmax(1),
                                                            torch.zeros(8, dtype=torch.long)))
            loss_of(out, torch.randint(3, (8,))).backward()
            optimizer.step()
        hook.set_mode(modes.EVAL)
        with torch.no_grad():
            for _ in range(2):
                loss_of(net(torch.randn(8, 1, 6, 6)), torch.randint(3, (8,)))
    hook.close()


def error_of(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except (NoMoreData, StepUnavailable, TensorUnavailable, TensorUnavailableForStep) as problem:
        return type(problem).__name__
    return None


class Seen(Rule):
    """Fires at every second step that has gradients."""

    def __init__(self, base_trial):
        super().__init__(base_trial, "")
        self.steps = []

    def set_required_tensors(self, step):
        for name in self.base_trial.tensor_names(collection="gradients"):
            self.req_tensors.add(name, steps=[step])

    def invoke_at_step(self, step):
        self.steps.append(step)
        return len(self.steps) % 2 == 0


def describe(folder):
    trial = create_trial(folder)
    names = trial.tensor_names()
    found = {"names": names, "workers": trial.workers(),
             "modes": sorted(mode.name for mode in trial.modes()),
             "steps": {mode.name: trial.steps(mode) for mode in modes},
             "where": [[step, trial.mode(step).name, trial.mode_step(step)]
                       for step in trial.steps()],
             "global": [trial.global_step(modes.EVAL, step) for step in trial.steps(modes.EVAL)],
             "passed": [trial.has_passed_step(step).name for step in (0, 2, 3, 1000)],
             "passed eval": trial.has_passed_step(0, modes.EVAL).name,
             "regex": trial.tensor_names(regex="relu_output"),
             "collection": {name: trial.tensor_names(collection=name)
                            for name in ("weights", "gradients", "losses", "block", "relu")},
             "step names": trial.tensor_names(step=6, mode=modes.TRAIN)}
    tensors = found["tensors"] = {}
    for name in names:
        tensor = trial.tensor(name)
        steps = tensor.steps(modes.TRAIN)
        tensors[name] = {"train": steps, "eval": tensor.steps(modes.EVAL),
                         "global": tensor.steps(),
                         "previous": tensor.prev_steps(5, 1, modes.TRAIN)}
        if not name.startswith("lstm"):
            step = tensor.steps()[0]
            tensors[name]["shape"] = list(tensor.value(step).shape)
            tensors[name]["workers"] = tensor.workers(step)
    loss = trial.tensor("CrossEntropyLoss_output_0")
    lstm = trial.tensor("lstm_output_0")
    found["reduction"] = round(float(lstm.reduction_value(0, "max")), 4)
    found["norm"] = round(float(lstm.reduction_value(0, "l2", abs=True)), 4)
    found["loss"] = round(float(loss.value(0, modes.TRAIN)), 4)
    found["values"] = sorted(loss.values(modes.TRAIN))
    found["errors"] = [error_of(trial.tensor, "nothing"), error_of(loss.value, 1, modes.TRAIN),
                       error_of(loss.value, 1000), error_of(lstm.value, 0, modes.TRAIN),
                       error_of(trial.wait_for_steps, [0, 3]),
                       error_of(trial.wait_for_steps, [1]),
                       error_of(trial.wait_for_steps, [1000])]
    rule = Seen(trial)
    found["end of rule"] = error_of(invoke_rule, rule)
    found["rule"] = rule.steps
    try:
        invoke_rule(Seen(trial), raise_eval_cond=True)
    except RuleEvaluationConditionMet as met:
        found["met"] = [met.rule_name, met.step]
    return found


if __name__ == "__main__":
    record(sys.argv[1])
    print(json.dumps(describe(sys.argv[1]), indent=1, sort_keys=True))
