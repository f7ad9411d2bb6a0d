"""sonde.watch in two processes: replicas (DDP) and shards (FSDP2), over gloo.

Needs the release build's package (SONDE_BUILD). Without it, PyTorch or gloo: skipped (77).
"""
import os
import subprocess
import sys
import textwrap

from harness import FOLDER, check, folder, main, program

PACKAGE = os.path.abspath(os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
sys.path.insert(0, PACKAGE)
try:
    import numpy
    import torch
    from torch.distributed.fsdp import fully_shard  # noqa: F401, what the programs use
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    print("PyTorch has no gloo here")
    sys.exit(77)

START = """
    import os, sys
    sys.path.insert(0, {package!r})
    import numpy, torch, sonde
    from torch import nn
    rank = int(os.environ["RANK"])
    torch.distributed.init_process_group("gloo", init_method="file://" + {meeting!r}, rank=rank,
                                         world_size=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
"""
END = """
    torch.distributed.barrier()
    watch.close()
    assert watch.faults == 0
    torch.distributed.destroy_process_group()
"""


def two(name, middle):
    """Runs a program as two ranks; returns its run and what they said."""
    run, meeting = folder(name), os.path.join(FOLDER, "meeting_" + name)
    text = textwrap.dedent(START.format(package=PACKAGE, meeting=meeting)) + \
        textwrap.dedent(middle).replace("RUN", repr(run)).replace("FOLDER", repr(FOLDER)) + \
        textwrap.dedent(END)
    ranks = [subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, WORLD_SIZE="2", RANK=str(rank),
                                       OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"))
             for rank in range(2)]
    said = [rank.communicate(timeout=900)[1] for rank in ranks]
    check(f"{name}: two ranks end well: {said}", all(rank.returncode == 0 for rank in ranks))
    return sonde.open(run)


@program
def shards():
    trial = two("shards", """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (2,))
        for part in (model[0], model[2], model):
            fully_shard(part, mesh=mesh)
        adam = torch.optim.AdamW(model.parameters(), 0.01)
        watch = sonde.watch(model, adam, run=RUN, every=1, save=1)
        torch.manual_seed(rank)
        for i in range(5):
            adam.zero_grad()
            model(torch.randn(16, 6)).square().mean().backward()
            adam.step()
        whole = [p.full_tensor().detach().numpy() for p in model.parameters()]
        numpy.savez(os.path.join(FOLDER, f"whole{rank}.npz"), *whole)
    """)
    whole = numpy.load(os.path.join(FOLDER, "whole0.npz"))
    for i, name in enumerate(("0.weight", "0.bias", "2.weight", "2.bias")):
        parts = [trial.value(name, 4, mode="train", worker=worker) for worker in range(2)]
        check(f"{name}: the shards of both are the tensor",
              numpy.array_equal(numpy.concatenate(parts), whole[f"arr_{i}"]))
    infos = {info.name: info for info in trial.tensors("@all")}
    check(f"its placement: {infos['2.weight']}", infos["2.weight"].note.startswith(
        "local shard of [3, 8], placed ") and infos["2.weight"].op == "Linear")
    check("optimizer state and updates too", "2.weight.exp_avg" in infos and
          trial.vitals("update/2.weight", 4, mode="train").l2 > 0)
    check("activations are whole", infos["0_output_0"].shape == (16, 8) and
          infos["1_input_0"].role == "activation")
    found = trial.judge(["default", "ReplicaDivergence"])
    check(f"nothing is wrong with shards: {found}", not found)


REPLICAS = """
    model = nn.parallel.DistributedDataParallel(model)
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    watch = sonde.watch(model, sgd, run=RUN, save=1, on_finding=None)
    torch.manual_seed(rank)
    for i in range(12):
        sgd.zero_grad()
        model(torch.randn(16, 6)).square().mean().backward()
        if i == 6 and rank == 1:
            model.module[2].weight.grad *= 1.5  # one rank's gradient is not the others'
        sgd.step()
"""


@program
def replicas():
    trial = two("replicas", REPLICAS)
    check(f"two workers: {trial.info}", trial.info["world"] == 2 and trial.last_step == 11)
    check("the same weights at first", numpy.array_equal(trial.value("2.weight", 5),
                                                trial.value("2.weight", 5, worker=1)))
    check("no note", trial.tensors("2.weight")[0].note == "")
    found = trial.judge("ReplicaDivergence")
    check(f"they part at step 6, and not before: {found}",
          "2.weight" in {f.tensor for f in found} and {f.mode_step for f in found} == {6})


SPAWNED = """
    import os, sys
    sys.path.insert(0, {package!r})
    import multiprocessing, torch, sonde

    def train(rank):
        torch.distributed.init_process_group("gloo", init_method="file://" + {meeting!r}, rank=rank,
                                             world_size=2)
        torch.manual_seed(0)
        model = torch.nn.Linear(6, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        watch = sonde.watch(model, optimizer, run={run!r})
        torch.distributed.barrier()
        for step in range(12):
            optimizer.zero_grad()
            model(torch.randn(8, 6)).pow(2).mean().backward()
            optimizer.step()
        if {fails!r}:
            raise ValueError("no more")

    ranks = [multiprocessing.get_context("fork").Process(target=train, args=(r,)) for r in range(2)]
    [rank.start() for rank in ranks]
    [rank.join() for rank in ranks]
"""


@program
def processes_of_multiprocessing():
    for name, fails in (("spawned", False), ("spawned_failing", True)):
        run = folder(name)
        text = SPAWNED.format(package=PACKAGE, meeting=os.path.join(FOLDER, "meeting_" + name), run=run, fails=fails)
        own = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True,
                              timeout=900, env={**own, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}, check=False)
        check(f"{name}: the program ends: {done.stderr}", done.returncode == 0)
        opened = sonde.open(run)
        check(f"{name}: two workers of one run: {opened.info}", opened.info["world"] == 2)
        check(f"{name}: the end is known and said: {opened.info}, {done.stderr}", "sonde: " in done.stderr and
              opened.info["end_reason"] == ("failed" if fails else "finished"))


main()
