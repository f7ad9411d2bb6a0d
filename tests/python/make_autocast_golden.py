#!/usr/bin/env python3
"""Writes tests/golden/autocast.safetensors: a network trained by PyTorch, in float32 and with torch.autocast.

Convolution, ReLU, linear layers and cross-entropy, 40 steps of SGD with momentum on drawn batches.
inputs, labels: (40, 16, ...). start.NAME: the weights before. DTYPE.losses, DTYPE.end.NAME: after, for float32 and
bfloat16; bfloat16.output: the first convolution's output at the first step. Run with PyTorch 2.13 on the CPU.
"""
import pathlib

import torch
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "autocast.safetensors"
STEPS, BATCH, CLASSES = 40, 16, 5
torch.manual_seed(16)
labels = torch.randint(CLASSES, (STEPS, BATCH))
centers = torch.randn(CLASSES, 2, 6, 6)
inputs = centers[labels] + 0.7 * torch.randn(STEPS, BATCH, 2, 6, 6)
made = {"inputs": inputs.contiguous(), "labels": labels}


def network():
    torch.manual_seed(17)
    return torch.nn.Sequential(torch.nn.Conv2d(2, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
                               torch.nn.Linear(288, 24), torch.nn.ReLU(), torch.nn.Linear(24, CLASSES))


NAMES = {"0": "conv", "3": "fc1", "5": "fc2"}
for dtype in (torch.float32, torch.bfloat16):
    word = str(dtype).split(".")[1]
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for name, tensor in net.named_parameters():
        made["start." + NAMES[name[0]] + name[1:]] = tensor.detach().clone()
    for t in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            if t == 0 and dtype == torch.bfloat16:
                made["bfloat16.output"] = net[0](inputs[0]).detach()
            loss = torch.nn.functional.cross_entropy(net(inputs[t]), labels[t])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    made[word + ".losses"] = torch.tensor(losses)
    for name, tensor in net.named_parameters():
        made[word + ".end." + NAMES[name[0]] + name[1:]] = tensor.detach().clone()
save_file(made, OUT)
print(made["float32.losses"][::8], made["bfloat16.losses"][::8])
