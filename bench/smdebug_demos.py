#!/usr/bin/env python3
"""The two demonstrations of smdebug for PyTorch, recorded by smdebug and judged by sonde.

usage: smdebug_demos.py --data FOLDER [--sonde PATH] [--python PATH] [--seeds N] [--modes]
                        [--keep FOLDER]

FOLDER holds the folders mnist and fashion-mnist with the four gzip files of each. PYTHON is an
interpreter with smdebug 1.0.34, torch 2.13, pandas, psutil, requests and bokeh. For each data set
and seed the same program trains a convolutional network for 100 batches of 64 by SGD with momentum
0.9 and evaluates it, at a learning rate of 1 (vanishing_grad), 1,000,000 (exploding_tensor) and
0.01 (none); smdebug saves weights, biases, gradients and losses at every fifth step. The program
notes by itself which of them have a mean |gradient| below 1e-7 or a value that is not finite, and
when first: a learning rate of 1 lets gradients vanish in some runs and ends in NaN in others. Then
the rule invoker's commands judge the runs. Prints one line a run, then the totals as lines for
results.csv: the share of runs judged right, and how many show each fault. A run is right if
VanishingGradient and ExplodingTensor name the same tensors at the same steps as the program does,
and all default rules together have an error; a healthy one if no rule has an error or a warning.
Ends with 1 if any run is not.

Without --modes the program sets none, as smdebug's default is: all steps have mode global. With
--keep the runs stay in that folder, and those that are there are judged again.

usage: smdebug_demos.py --record OUT --data FOLDER/mnist --rule-type TYPE --seed N [--modes]
                        [--hook-type saveall|module-input-output|weights-bias-gradients]

The program itself.
"""
import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile

BATCH, BATCHES, EVAL_BATCHES, EVERY = 64, 100, 4, 5
RATES = {"vanishing_grad": 1.0, "exploding_tensor": 1e6, "none": 0.01}
RULES = {"vanishing_grad": "VanishingGradient", "exploding_tensor": "ExplodingTensor"}
HOOKS = ("saveall", "module-input-output", "weights-bias-gradients")


# --- recording ---------------------------------------------------------------------------


def read_idx(path, head):
    with gzip.open(path, "rb") as file:
        return file.read()[head:]


def load(torch, folder, name, count):
    images = read_idx(os.path.join(folder, name + "-images-idx3-ubyte.gz"), 16)
    labels = read_idx(os.path.join(folder, name + "-labels-idx1-ubyte.gz"), 8)
    x = torch.frombuffer(bytearray(images[: count * 784]), dtype=torch.uint8)
    y = torch.frombuffer(bytearray(labels[:count]), dtype=torch.uint8)
    x = x.reshape(-1, 1, 28, 28).float() / 255
    return (x - 0.1307) / 0.3081, y.long()


def make_net(torch):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.relu0 = nn.Conv2d(1, 20, 5), nn.ReLU()
            self.pool1 = nn.MaxPool2d(2, stride=2)
            self.conv2, self.relu1 = nn.Conv2d(20, 50, 5), nn.ReLU()
            self.pool2 = nn.MaxPool2d(2, stride=2)
            self.fc1, self.relu2 = nn.Linear(800, 500), nn.ReLU()
            self.fc2 = nn.Linear(500, 10)

        def forward(self, x):
            x = self.pool1(self.relu0(self.conv1(x)))
            x = self.pool2(self.relu1(self.conv2(x)))
            x = self.fc2(self.relu2(self.fc1(x.flatten(1))))
            return torch.log_softmax(x, dim=1)

    return Net()


def make_hook(smd, model, out, kind):
    every_fifth = smd.SaveConfig(save_interval=EVERY)
    collections = ["weights", "biases", "gradients", "losses"]
    if kind == "module-input-output":
        smd.get_collection("l_mod").add_module_tensors(model, inputs=True, outputs=True)
        collections.append("l_mod")
    return smd.Hook(
        out_dir=out,
        save_config=every_fifth,
        include_collections=None if kind == "saveall" else collections,
        save_all=kind == "saveall",
    )


def vanished(torch, tensor):
    return tensor.abs().mean().item() < 1e-7  # false for NaN


def not_finite(torch, tensor):
    return not torch.isfinite(tensor).all().item()


def note(torch, faults, step, has_fault, tensors):
    """The first step at which a tensor has the fault."""
    for name, tensor in tensors.items():
        if name not in faults and has_fault(torch, tensor):
            faults[name] = step


def record(args):
    import torch
    import smdebug.pytorch as smd

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    x, y = load(torch, args.data, "train", 60000)
    model, loss_of = make_net(torch), torch.nn.NLLLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATES[args.rule_type], momentum=0.9)
    hook = make_hook(smd, model, args.record, args.hook_type)
    hook.register_module(model)
    hook.register_loss(loss_of)
    order = torch.randperm(len(y))
    truth = {rule: {} for rule in RULES.values()}
    if args.modes:
        hook.set_mode(smd.modes.TRAIN)
    for i in range(BATCHES):
        batch = order[i * BATCH : (i + 1) * BATCH]
        optimizer.zero_grad()
        loss = loss_of(model(x[batch].requires_grad_()), y[batch])
        if i % EVERY == 0:
            note(torch, truth["ExplodingTensor"], i, not_finite, {
                "NLLLoss_output_0": loss.detach(),
                **{"Net_" + n: p.detach() for n, p in model.named_parameters()}})
        loss.backward()
        if i % EVERY == 0:
            gradients = {"gradient/Net_" + n: p.grad for n, p in model.named_parameters()}
            note(torch, truth["VanishingGradient"], i, vanished, gradients)
            note(torch, truth["ExplodingTensor"], i, not_finite, gradients)
        optimizer.step()
    if args.modes:
        hook.set_mode(smd.modes.EVAL)
    x, y = load(torch, args.data, "t10k", EVAL_BATCHES * 1000)
    with torch.no_grad():
        for i in range(EVAL_BATCHES):
            loss_of(model(x[i * 1000 : (i + 1) * 1000]), y[i * 1000 : (i + 1) * 1000])
    note(torch, truth["ExplodingTensor"], BATCHES, not_finite, {
        "Net_" + n: p.detach() for n, p in model.named_parameters()})
    hook.close()
    with open(args.record + ".json", "w", encoding="utf-8") as file:
        json.dump(truth, file)


# --- judging -----------------------------------------------------------------------------


def judge(args, run, rule):
    command = [args.sonde, "rules", run, "--format", "json", "--no-save"]
    done = subprocess.run(command + (["--rules", f"{rule}:smdebug=true"] if rule else []),
                          capture_output=True, text=True, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def record_run(args, data, kind, seed, run):
    command = [args.python, os.path.abspath(__file__), "--record", run, "--data",
               os.path.join(args.data, data), "--rule-type", kind, "--seed", str(seed)]
    environ = dict(os.environ, SMDEBUG_LOG_LEVEL="off")
    if not os.path.exists(run + ".json"):
        subprocess.run(command + (["--modes"] if args.modes else []), check=True, env=environ,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(run + ".json", encoding="utf-8") as file:
        return json.load(file)


def one(args, data, kind, seed, folder):
    """Whether the run is judged right, what is said about it, the rules whose fault it shows."""
    run = os.path.join(folder, f"{data}-{kind}-{seed}")
    truth = record_run(args, data, kind, seed, run)
    loud = [f for f in judge(args, run, None)[1] if f["severity"] != "note"]
    shown = [rule for rule, tensors in truth.items() if tensors]
    if kind == "none":
        for rule in RULES.values():
            loud += judge(args, run, rule)[1]
        return not loud, ", ".join(f["rule"] + " " + f["tensor"] for f in loud), shown
    right, said = any(f["severity"] == "error" for f in loud), []
    for rule, tensors in truth.items():
        code, findings = judge(args, run, rule)
        # 3: no gradient is finite, which is what the rule prints
        right = (right and code in ((1,) if tensors else (0, 3)) and
                 {f["tensor"]: f["step"] for f in findings} == tensors)
        said.append(f"{rule} {len(findings)} of {len(tensors)} tensors")
    return right, ", ".join(said), shown


def main():
    parser = argparse.ArgumentParser(description=__doc__, add_help=True,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--sonde", default="sonde")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--modes", action="store_true")
    parser.add_argument("--record")
    parser.add_argument("--rule-type", choices=list(RATES), default="none")
    parser.add_argument("--hook-type", choices=HOOKS, default="weights-bias-gradients")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep")
    args = parser.parse_args()
    if args.record:
        record(args)
        return 0
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or temporary
        for data in ("mnist", "fashion-mnist"):
            for kind in RATES:
                name = "smdebug_" + ("modes_" if args.modes else "") + data.replace("-", "_")
                right, faults = 0, []
                for seed in range(args.seeds):
                    good, said, shown = one(args, data, kind, seed, folder)
                    right, faults = right + good, faults + shown
                    print(f"{data} {kind} {seed}: {'right' if good else 'WRONG'} {said}",
                          flush=True)
                wrong += args.seeds - right
                rows.append((f"{name}_{kind}_right", right / args.seeds, "ratio", ">=1"))
                for fault in RULES.values() if kind != "none" else []:
                    rows.append((f"{name}_{kind}_shows_{fault}", faults.count(fault), "runs", ""))
    for row, value, unit, limit in rows:
        verdict = "context" if not limit else "met" if value >= 1 else "missed"
        print(f"{row},{value:g},{unit},{limit},{verdict}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
