"""Writes tests/golden/onnx/: small networks as torch.onnx.export writes them, by both of its
exporters, and what PyTorch computes with them.

    python tests/python/make_onnx_golden.py [NAME...]      needs torch, onnx, onnxscript

NAME.onnx is the network; NAME.safetensors has a batch x, the output y in eval mode, a target t,
and, after one step of SGD with a rate of 0.1 on the mean squared error in train mode, every
parameter as `after.<name>`.
"""

from __future__ import annotations

import pathlib
import sys
import warnings

import onnx
import torch
from safetensors.torch import save_file
from torch import nn

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "golden" / "onnx"
BATCH = 3
warnings.filterwarnings("ignore")


def linears() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))


class Cnn(nn.Module):
    """Convolutions, pools, a group norm: the network of the CNN that Sonde has."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.pool, self.relu = nn.GroupNorm(2, 4), nn.MaxPool2d(2, 2), nn.ReLU()
        self.fc1, self.fc2 = nn.Linear(16, 6), nn.Linear(6, 3)
        self.log_softmax = nn.LogSoftmax(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.pool(self.conv1(x)))
        x = self.norm(self.relu(self.pool(self.conv2(x))))
        x = self.relu(self.fc1(torch.flatten(x, 1)))
        return self.log_softmax(self.fc2(x))


# name: (module, shape of a sample)
CASES = {
    "mlp": (linears, (1, 4, 4)),
    "cnn": (Cnn, (1, 10, 10)),
}


def export(module: nn.Module, x: torch.Tensor, path: pathlib.Path, dynamo: bool) -> None:
    if dynamo:
        program = torch.onnx.export(module, (x,), dynamo=True, verbose=False,
                                    dynamic_shapes=({0: torch.export.Dim("batch")},))
        model = program.model_proto
    else:
        torch.onnx.export(module, (x,), path, dynamo=False, input_names=["input"],
                          dynamic_axes={"input": {0: "batch"}}, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.PRESERVE)
        model = onnx.load(path)
    for node in model.graph.node:  # names of files of this machine
        for entry in list(node.metadata_props):
            if entry.key != "pkg.torch.onnx.name_scopes":
                node.metadata_props.remove(entry)
    del model.graph.value_info[:]
    del model.graph.metadata_props[:]
    del model.metadata_props[:]
    for value in (*model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    for tensor in model.graph.initializer:
        del tensor.metadata_props[:]
    onnx.save(model, path)


def make(name: str) -> None:
    build, shape = CASES[name]
    for kind in ("old", "new"):
        torch.manual_seed(0)
        module, x = build(), torch.randn(BATCH, *shape)
        module.train()
        export(module, torch.randn(2, *shape), FOLDER / f"{name}_{kind}.onnx", kind == "new")
        module.eval()
        y = module(x).detach()
        target = torch.randn(y.shape)
        module.train()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        nn.functional.mse_loss(module(x), target).backward()
        optimizer.step()
        save_file({"x": x, "y": y, "t": target,
                   **{f"after.{key}": value.detach().clone()
                      for key, value in module.named_parameters()}},
                  FOLDER / f"{name}_{kind}.safetensors")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for one in sys.argv[1:] or CASES:
        make(one)
