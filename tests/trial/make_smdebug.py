"""Writes the golden runs smdebug-reductions, -norms and -collections with smdebug itself.

    python make_smdebug.py tests/golden/runs

Needs smdebug 1.0.34, torch, numpy < 2 and what smdebug imports. The runs are committed and
are not written again by the tests.
"""
import os
import sys

import numpy as np
import torch
from smdebug.core.access_layer.utils import training_has_ended
from smdebug.core.collection_manager import CollectionManager
from smdebug.core.modes import ModeKeys
from smdebug.core.writer import FileWriter
from smdebug.pytorch import Hook, ReductionConfig, SaveConfig


class Net(torch.nn.Module):
    """One weight, one bias, and a ReLU without a name."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 4)
        self.net = torch.nn.Sequential(torch.nn.ReLU())

    def forward(self, x):
        return self.net(self.fc(x))


def write_reductions(folder):
    torch.manual_seed(0)
    net, loss = Net(), torch.nn.CrossEntropyLoss()
    hook = Hook(
        out_dir=folder,
        save_config=SaveConfig(save_interval=1),
        reduction_config=ReductionConfig(
            reductions=["min", "max", "mean"], abs_reductions=["mean"], norms=["l2"]
        ),
        include_collections=["weights", "gradients", "losses"],
    )
    hook.register_module(net)
    hook.register_loss(loss)
    for step in range(2):
        x = torch.arange(6.0).reshape(2, 3) - 3.0
        value = loss(net(x), torch.tensor([0, 1])) * (1 - step)
        net.zero_grad()
        value.backward()  # of step 1, all gradients are 0
    hook.close()


def write_norms(folder):
    """Norms and a mean of magnitudes, without shapes: they imply the number of elements."""
    torch.manual_seed(3)
    net, loss = Net(), torch.nn.CrossEntropyLoss()
    hook = Hook(
        out_dir=folder,
        include_collections=["weights"],
        save_config=SaveConfig(save_interval=1),
        reduction_config=ReductionConfig(norms=["l1", "l2"], abs_reductions=["mean"]),
    )
    hook.register_module(net)
    hook.register_loss(loss)
    loss(net(torch.randn(2, 3)), torch.tensor([0, 2])).backward()
    hook.close()


def write_collections(folder):
    rng = np.random.default_rng(0)
    importance = {"f0": 40.0, "f1": 30.0, "f2": 25.0, "f3": 3.0, "f4": 2.0}
    inner = rng.normal(size=(4, 5)).astype(np.float32)
    for step in range(2):
        tensors = {
            "dense/kernel:0": rng.normal(size=(2, 3)).astype(np.float32),
            "custom_variable:0": rng.normal(size=(2,)).astype(np.float32),
            "loss/mul:0": np.float32(2.0 - step),
            "train-rmse": np.float64(1.5 - step),
            "train-auc": np.float64(0.5),
            "net.1_input_0": inner,
            "net.1_output_0": np.maximum(inner, 0),
            "net.2_input_0": np.maximum(inner, 0),
            "net.2_output_0": inner,
        }
        for feature, value in importance.items():
            tensors["feature_importance/weight/" + feature] = np.float64(value)
        writer = FileWriter(trial_dir=folder, step=step, worker="worker_0")
        for name, value in tensors.items():
            writer.write_tensor(
                tdata=np.asarray(value), tname=name, mode=ModeKeys.GLOBAL, mode_step=step
            )
        writer.close()
    manager = CollectionManager()
    manager.get("losses").include("^[a-zA-z]+-.+(?<!(auc|map))$")
    manager.get("losses").add_tensor_name("loss/mul:0")
    manager.get("weights").add_tensor_name("dense/kernel:0")
    manager.get("weights").add_tensor_name("custom_variable:0")
    manager.add("mine")
    manager.get("mine").add_tensor_name("train-auc")
    manager.set_num_workers(1)
    manager.export(folder, "worker_0_collections.json")
    training_has_ended(folder)


if __name__ == "__main__":
    os.environ.setdefault("SMDEBUG_LOG_LEVEL", "error")
    write_reductions(os.path.join(sys.argv[1], "smdebug-reductions"))
    write_norms(os.path.join(sys.argv[1], "smdebug-norms"))
    write_collections(os.path.join(sys.argv[1], "smdebug-collections"))
