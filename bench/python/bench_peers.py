"""What other tools add to a step of PyTorch, beside sonde.watch, in one run.

    bench_peers.py [--model NAME ...] [--rounds 20] [--only TOOL ...]

Every tool looks at every step, as its documentation shows it. Each has an equal model of its own
that trains in turns of a few steps with one that nothing watches; the time is the processor time
of the process, the median of the differences of neighboring turns, as a share of the bare step.
A tool that is not installed, or that fails on a network, is named in one line and left out.
smdebug 1.0.34 needs NumPy 1 and protobuf 3; the others run with the newest.

    sonde               weights and gradients at every step, recorded and judged
    sonde_all           everything at every step, recorded and judged
    foreach_norm        torch._foreach_norm of weights and gradients, read back
    naive               six statistics of each weight and gradient, read back
    wandb               wandb.watch(model, log="all", log_freq=1), offline
    torchinstruments    inject_observer(model, sampler=AlwaysSampler())
    activationscope     ActivationScope().track(model): activations, kept in memory
    cockpit             Cockpit's gradient norm, update size, distance and loss: its quantities
                        that need no gradient of each sample
    smdebug             smdebug's reductions of weights and gradients, written at every step
"""

import argparse
import contextlib
import gc
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings

import torch
from bench_watch import EVERY, models
from torch import nn

import sonde


class Plain:
    """A model that trains on one batch; a tool adds what it does at a step."""

    def __init__(self, make, batch, folder):
        torch.manual_seed(0)
        self.model, self.batch, self.folder = make(), batch, folder
        self.loss = nn.CrossEntropyLoss()
        self.prepare()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3, momentum=0.9)
        self.start()

    def prepare(self):
        pass

    def start(self):
        pass

    def look(self):
        """Between backward() and the optimizer's step."""

    def step(self):
        self.optimizer.zero_grad()
        self.loss(self.model(self.batch[0]), self.batch[1]).backward()
        self.look()
        self.optimizer.step()

    def close(self):
        pass

    def tensors(self):
        values = [p.detach() for p in self.model.parameters()]
        return values + [p.grad for p in self.model.parameters()]


class Sonde(Plain):
    kind = "weights_gradients"

    def start(self):
        self.watch = sonde.watch(self.model, self.optimizer, run=os.path.join(self.folder, "run"),
                                 every=EVERY[self.kind], on_finding=None)

    def close(self):
        self.watch.close()


class SondeAll(Sonde):
    kind = "everything"


class Norms(Plain):
    def look(self):
        torch.stack(torch._foreach_norm(self.tensors())).tolist()


class Naive(Plain):
    def look(self):
        for value in self.tensors():
            for number in (value.mean(), value.std(), value.min(), value.max(), value.norm(),
                           value.isnan().sum()):
                number.item()


class Wandb(Plain):
    def start(self):
        import wandb
        os.environ["WANDB_SILENT"] = "true"
        self.run = wandb.init(mode="offline", dir=self.folder, project="bench")
        self.run.watch(self.model, log="all", log_freq=1)

    def look(self):
        self.run.log({})

    def close(self):
        self.run.finish()


class Torchinstruments(Plain):
    def start(self):
        import torchinstruments
        torchinstruments.inject_observer(self.model, output_dir=self.folder,
                                         sampler=torchinstruments.AlwaysSampler())

    def close(self):
        import torchinstruments
        torchinstruments.remove_observer(self.model)


class Activationscope(Plain):
    def start(self):
        import activationscope
        self.scope = activationscope.ActivationScope
        self.tracker = self.scope().track(self.model)
        self.tracker.__enter__()
        self.steps = 0

    def look(self):
        self.steps += 1
        if self.steps % 50 == 0:  # what it keeps would fill the memory
            self.tracker.__exit__(None, None, None)
            self.tracker = self.scope().track(self.model)
            self.tracker.__enter__()

    def close(self):
        self.tracker.__exit__(None, None, None)


class Cockpit(Plain):
    def prepare(self):
        from backpack import extend
        self.model, self.loss = extend(self.model), extend(self.loss)
        self.single = extend(nn.CrossEntropyLoss(reduction="none"))

    def start(self):
        from cockpit import Cockpit as Tool
        from cockpit import quantities as of
        from cockpit.utils.schedules import linear
        always = linear(interval=1)
        self.tool = Tool(self.model.parameters(), quantities=[
            of.GradNorm(always), of.UpdateSize(always), of.Distance(always), of.Loss(always)])
        self.count = 0

    def step(self):
        self.optimizer.zero_grad()
        output = self.model(self.batch[0])
        loss, losses = self.loss(output, self.batch[1]), self.single(output, self.batch[1])
        with self.tool(self.count, info={
                "batch_size": len(self.batch[1]), "individual_losses": losses, "loss": loss,
                "optimizer": self.optimizer}):
            loss.backward(create_graph=self.tool.create_graph(self.count))
        self.optimizer.step()
        self.count += 1


class Smdebug(Plain):
    def start(self):
        os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")
        import smdebug.pytorch as smd
        if "sonde" in (smd.__doc__ or "").lower() or "compat" in smd.__file__:
            raise ImportError("the smdebug that is installed is Sonde's own")
        self.hook = smd.Hook(
            out_dir=os.path.join(self.folder, "smdebug"),
            save_config=smd.SaveConfig(save_interval=1),
            reduction_config=smd.ReductionConfig(
                reductions=["min", "max", "mean", "std", "variance", "sum"],
                norms=["l1", "l2"]),
            include_collections=["weights", "biases", "gradients"])
        self.hook.register_module(self.model)

    def close(self):
        self.hook.close()


TOOLS = {"sonde": Sonde, "sonde_all": SondeAll, "foreach_norm": Norms, "naive": Naive,
         "wandb": Wandb, "torchinstruments": Torchinstruments,
         "activationscope": Activationscope, "cockpit": Cockpit, "smdebug": Smdebug}


def turn(program, steps):
    before = time.process_time()
    for _ in range(steps):
        program.step()
    return (time.process_time() - before) / steps


def measure(tool, make, batch, rounds):
    """(share added, seconds of a bare step)."""
    folder = tempfile.mkdtemp()
    try:
        bare, seen = Plain(make, batch, folder), tool(make, batch, folder)
        turn(bare, 3)
        steps = max(3, min(20, round(0.05 / turn(bare, 3))))
        until = time.process_time() + 2.0
        for _ in range(60):  # past the first, at which all is seen
            seen.step()
            if time.process_time() > until:
                break
        added, plain = [], []
        for _ in range(rounds):
            first = turn(bare, steps)
            with_tool = turn(seen, steps)
            second = turn(bare, steps)
            plain.append(min(first, second))
            added.append(with_tool - (first + second) / 2)
        seen.close()
        step = statistics.median(plain)
        return statistics.median(added) / step, step
    finally:
        gc.collect()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", action="append", choices=list(models()))
    parser.add_argument("--only", action="append", choices=list(TOOLS))
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for model, (make, batch) in models().items():
        if model not in (options.model or ("cnn_16", "mlp_1000")):
            continue
        for name in options.only or TOOLS:
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    share, step = measure(TOOLS[name], make, batch, options.rounds)
            except Exception as problem:
                print(f"# {name} left out on {model}: {type(problem).__name__}: "
                      f"{str(problem).splitlines()[0] if str(problem) else ''}"[:200], flush=True)
                continue
            print(f"peer_torch_{model}_{name}_1t, {100 * share:.1f} %   "
                  f"# step {1e3 * step:.2f} ms, added {1e6 * share * step:.0f} us", flush=True)


if __name__ == "__main__":
    sys.exit(main())
