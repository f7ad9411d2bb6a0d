"""Replicas that are compared while they train: two processes over gloo, several programs.

Needs the release build's package (SONDE_BUILD). Without it, PyTorch or gloo: skipped (77).
"""
import json
import os
import subprocess
import sys

from harness import FOLDER, check, main, program

PACKAGE = os.path.abspath(os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
sys.path.insert(0, PACKAGE)
try:
    import torch
    import sonde  # noqa: F401, what the programs use
except ImportError as problem:
    print(problem)
    sys.exit(77)
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    print("PyTorch has no gloo here")
    sys.exit(77)

# Each program is a function of (model, rank, watched), which returns the watch. The line of its
# verdict and its findings are printed, and the weights, which a watch does not change.
PROGRAMS = '''
import contextlib, io, json, os, sys
sys.path.insert(0, %(package)r)
import torch, sonde
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
distributed.init_process_group("gloo", init_method="file://" + %(meeting)r, rank=rank, world_size=2)
STEPS = 60

def average(model, only=lambda name: True):
    for name, p in model.named_parameters():
        if only(name):
            distributed.all_reduce(p.grad)
            p.grad /= 2

def loop(model, watched, average=lambda model: None, after=lambda step: None, call=None,
         steps=STEPS):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watch = sonde.watch(model, optimizer) if watched else None
    torch.manual_seed(rank)
    for step in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        nn.functional.mse_loss((call or model)(x), x[:, :3].sin()).backward()
        average(model)
        optimizer.step()
        after(step)
        if call is None:
            distributed.barrier()  # so that what a poll finds is the same in each run
    return watch

def edit(weight, at):
    def after(step):
        if step == at and rank == 1:
            with torch.no_grad():
                weight[0, 0] += 0.01
    return after

def wrapped(model, watched):
    return loop(DistributedDataParallel(model), watched)

def called_by_its_wrapper(model, watched):
    return loop(model, watched, call=DistributedDataParallel(model), after=edit(model[2].weight, 3))

def initialized_after(model, watched):
    whole = DistributedDataParallel(model)
    torch.manual_seed(10 + rank)
    nn.init.xavier_uniform_(model[2].weight)
    return loop(whole, watched)

def edited(model, watched):
    return loop(DistributedDataParallel(model), watched, after=edit(model[2].weight, 6))

def averaged_by_hand(model, watched):
    return loop(model, watched, average)

def forgot_all(model, watched):
    return loop(model, watched)

def forgot_a_layer(model, watched):
    return loop(model, watched, lambda m: average(m, lambda name: name[0] != "2"))

def other_start(model, watched):
    torch.manual_seed(rank)
    nn.init.normal_(model[0].weight, std=0.5)
    return loop(model, watched, average)

def parts(model, watched):
    torch.manual_seed(rank)
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    return loop(model, watched)

def some_parts(model, watched):
    torch.manual_seed(rank)
    nn.init.normal_(model[0].weight, std=0.5)
    nn.init.normal_(model[0].bias, std=0.5)
    return loop(model, watched, lambda m: average(m, lambda name: name[0] != "0"))

def averaged_seldom(model, watched):
    def after(step):
        for p in model.parameters() if step %% 8 == 7 else ():
            distributed.all_reduce(p.data)
            p.data /= 2
    return loop(model, watched, after=after)

def watched_by_one(model, watched):
    return loop(DistributedDataParallel(model), watched and rank == 0)

def ends_early(model, watched):
    return loop(model, watched, steps=12 + 20 * rank, call=model)

for name in %(names)r:
    after = []
    for watched in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        watch = globals()[name](model, watched)
        after.append([*(p.detach().clone() for p in model.parameters()), torch.get_rng_state()])
        if watched:
            said, found, faults = io.StringIO(), [], 0
        if watch is not None:
            with contextlib.redirect_stderr(said):
                watch.close()
            found = [[f.rule, f.severity, f.tensor, f.message] for f in watch.findings]
            faults = watch.faults
        distributed.barrier()
    print(json.dumps({"name": name, "same": all(map(torch.equal, *after)), "said": said.getvalue(),
                      "found": found, "faults": faults}), flush=True)
distributed.destroy_process_group()
'''
NAMES = ("wrapped", "called_by_its_wrapper", "initialized_after", "edited", "averaged_by_hand",
         "forgot_all", "forgot_a_layer", "other_start", "parts", "some_parts", "averaged_seldom",
         "watched_by_one", "ends_early")


def run_all():
    """{program: what rank 0 said of it}, and whether both ranks ended well."""
    text = PROGRAMS % {"package": PACKAGE, "meeting": os.path.join(FOLDER, "meeting"),
                       "names": NAMES}
    own = dict(os.environ, WORLD_SIZE="2", OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    ranks = [subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env=dict(own, RANK=str(rank)))
             for rank in range(2)]
    said = [rank.communicate(timeout=900) for rank in ranks]
    check(f"both end well: {[err[-800:] for _, err in said]}", all(r.returncode == 0 for r in ranks))
    rows = [{row["name"]: row for row in map(json.loads, out.splitlines())} for out, _ in said]
    for each in rows:
        for row in each.values():
            check(f"{row['name']}: the same bits, no fault", row["same"] and not row["faults"])
    return rows[0]


@program
def compared():
    rows = run_all()

    def silent(name, words):
        row = rows[name]
        check(f"{name}: nothing is found: {row}", not [
            f for f in row["found"] if f[0] == "ReplicaDivergence"])
        check(f"{name}: the line says '{words}': {row['said']}", words in row["said"])

    def finds(name, severity, tensor, words):
        check(f"{name}: {severity} in {tensor}: {rows[name]}", any(
            f[:2] == ["ReplicaDivergence", severity] and f[2] == tensor and words in f[3]
            for f in rows[name]["found"]))

    silent("wrapped", "2 replicas compared 7 times, until step 50")
    silent("averaged_by_hand", "2 replicas compared 4")
    finds("called_by_its_wrapper", "error", "2.weight", "before training step 5")
    finds("initialized_after", "error", "2.weight", "before training step 0")
    finds("edited", "error", "2.weight", "before training step 10")
    finds("forgot_a_layer", "error", "2.weight", "before training step 1,")
    finds("other_start", "error", "0.weight", "began with different values")
    finds("forgot_all", "warning", "0.weight", "not averaged")
    silent("parts", "hold different parts of the model")
    silent("some_parts", "2 replicas compared")
    silent("averaged_seldom", "2 replicas compared")
    silent("watched_by_one", "no other process showed its weights")
    silent("ends_early", "")


main()
