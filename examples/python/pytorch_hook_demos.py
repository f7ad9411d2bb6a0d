#!/usr/bin/env python3
"""Saves the tensors of a small PyTorch network with the hook of smdebug, on Sonde.

    python -m sonde run examples/python/pytorch_hook_demos.py --output-uri runs/demo \\
        --hook-type weights-bias-gradients
    python -m sonde run examples/python/pytorch_hook_demos.py --output-uri runs/vanishing \\
        --rule_type vanishing_grad
    python -m sonde run -m smdebug.rules.rule_invoker --trial-dir runs/vanishing \\
        --rule-name VanishingGradient

--rule_type chooses a learning rate and a momentum at which training fails: with vanishing_grad
the units of a layer die within a few steps, so that all gradients before it become 0; with
exploding_tensor the weights and losses overflow. The data are drawn: four classes of points in 20
dimensions.
"""

import argparse

import torch
import torch.nn.functional as F
from smdebug import SaveConfig
import smdebug.pytorch as smd
from smdebug.pytorch import TornasoleHook, get_collection
from torch import nn

RATES = {"vanishing_grad": (1.0, 0.9), "exploding_tensor": (1e6, 0.9), None: (0.01, 0.9)}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.add_module("fc1", nn.Linear(20, 500))
        self.add_module("relu1", nn.ReLU())
        self.add_module("fc2", nn.Linear(500, 10))
        self.add_module("relu2", nn.ReLU())
        self.add_module("fc3", nn.Linear(10, 4))

    def forward(self, x):
        x = self.relu1(self.fc1(x))
        x = self.relu2(self.fc2(x))
        return F.log_softmax(self.fc3(x), dim=1)


def create_hook(kind, out_dir, module, steps):
    """The hook of a demonstration: what is saved, and when."""
    if kind == "saveall":
        return TornasoleHook(out_dir=out_dir, save_config=SaveConfig(save_steps=[1, 2, 3]),
                             saveall=True)
    if kind == "module-input-output":
        get_collection("l_mod").add_module_tensors(module, inputs=True, outputs=True)
        return TornasoleHook(out_dir=out_dir,
                             save_config=SaveConfig(save_steps=[i * 10 for i in range(5)]),
                             include_collections=["weights", "gradients", "biases", "l_mod"])
    if kind == "weights-bias-gradients":
        return TornasoleHook(out_dir=out_dir, save_config=SaveConfig(save_steps=[1, 2, 3]))
    return TornasoleHook(out_dir=out_dir, save_config=SaveConfig(save_interval=steps))


def batches(count, size, seed):
    """Batches of points around four centers."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(4, 20, generator=generator)
    for _ in range(count):
        classes = torch.randint(4, (size,), generator=generator)
        yield centers[classes] + torch.randn(size, 20, generator=generator), classes


def train(model, hook, rate, momentum, options):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)
    hook.set_mode(smd.modes.TRAIN)
    model.train()
    for x, y in batches(options.steps, options.batch_size, options.seed):
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        hook.record_tensor_value("nll_loss", loss)
        loss.backward()
        optimizer.step()
    return loss.item()


def evaluate(model, hook, options):
    hook.set_mode(smd.modes.EVAL)
    model.eval()
    right = total = 0
    with torch.no_grad():
        for x, y in batches(10, options.batch_size, options.seed):
            right += (model(x).argmax(1) == y).sum().item()
            total += len(y)
    return right / total


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output-uri", default="runs/hook-demo",
                        help="a new folder or s3://bucket/prefix (default %(default)s)")
    parser.add_argument("--hook-type",
                        choices=["saveall", "module-input-output", "weights-bias-gradients"],
                        help="what to save; default: weights, biases, gradients and losses, "
                             "every --save-frequency steps")
    parser.add_argument("--rule_type", "--rule-type",
                        choices=["vanishing_grad", "exploding_tensor"],
                        help="train so that this rule fires; default: train well")
    parser.add_argument("--steps", type=int, default=100, help="default %(default)s")
    parser.add_argument("--save-frequency", type=int, default=5, help="default %(default)s")
    parser.add_argument("--batch-size", type=int, default=64, help="default %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default %(default)s")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    model = Net()
    hook = create_hook(options.hook_type, options.output_uri, model, options.save_frequency)
    hook.register_hook(model)
    loss = train(model, hook, *RATES[options.rule_type], options)
    accuracy = evaluate(model, hook, options)
    hook.close()
    print(f"loss {loss:.4g}, accuracy {100 * accuracy:.1f} %; tensors in {options.output_uri}")


if __name__ == "__main__":
    main()
