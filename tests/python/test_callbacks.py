"""The callbacks for Lightning and Hugging Face's Trainer, and the sinks of findings, with the
real packages. A package that is not installed is skipped; without any: 77.
"""
import importlib
import os
import shutil
import sys
import tempfile

PACKAGE = os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python")
sys.path.insert(0, PACKAGE)
try:
    import torch
    from torch import nn
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)

results = {True: 0, False: 0}
FOLDER = tempfile.mkdtemp()
PROGRAMS = []


def check(what, good):
    results[bool(good)] += 1
    if not good:
        print("FAILED:", what)


def needs(package):
    """A test that is skipped without a package, which it gets."""
    def decorate(function):
        PROGRAMS.append((package, function))
        return function
    return decorate


def data():
    torch.manual_seed(0)
    return [(torch.randn(8, 6), torch.randint(3, (8,))) for _ in range(6)]


@needs("lightning")
def lightning(package):
    class Module(package.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch, index):
            self.log("val", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    from sonde.lightning import SondeCallback

    def train(*callbacks, **more):
        torch.manual_seed(1)
        model = Module()
        package.Trainer(max_epochs=2, callbacks=list(callbacks), logger=False, accelerator="cpu",
                        enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False, num_sanity_val_steps=0,
                        default_root_dir=FOLDER, **more).fit(
                            model, *(torch.utils.data.DataLoader(part, batch_size=None)
                                     for part in (data(), data()[:2])))
        return [p.detach().clone() for p in model.parameters()]

    for label, more, steps in (("plain", {}, 12), ("accumulated",
                                                   {"accumulate_grad_batches": 3}, 4)):
        run = os.path.join(FOLDER, "lightning-" + label)
        watched = train(SondeCallback(run=run, every=1, on_finding=None), **more)
        check(f"Lightning, {label}: the same bits",
              all(map(torch.equal, watched, train(**more))))
        trial = sonde.open(run)
        names = {info.name for info in trial.tensors()}
        check(f"Lightning, {label}: {sorted(names)}", {
            "net.0.weight", "gradient/net.0.weight", "net.1_output_0", "loss",
            "gradient/net.1_output_0"} <= names)
        check(f"Lightning, {label}: steps {trial.steps('train')}, {trial.steps('eval')}",
              len(trial.steps("train", "gradient/net.0.weight")) == steps and
              len(trial.steps("eval")) == 4 and trial.status == "ended")


@needs("transformers")
def transformers(package):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x=None, labels=None):
            scores = self.two(torch.relu(self.one(x)))
            return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}

    from sonde.transformers import SondeCallback
    rows = [{"x": x, "labels": y} for xs, ys in data() for x, y in zip(xs, ys)]
    run = os.path.join(FOLDER, "transformers")
    weights = []
    for callbacks in ([], [SondeCallback(run=run, every=1, on_finding=None)]):
        torch.manual_seed(1)
        model = Model()
        arguments = package.TrainingArguments(
            output_dir=FOLDER, max_steps=6, per_device_train_batch_size=8, report_to=[],
            logging_steps=2, save_strategy="no", use_cpu=True, disable_tqdm=True)
        package.Trainer(model, arguments, train_dataset=rows, callbacks=callbacks).train()
        weights.append([p.detach().clone() for p in model.parameters()])
    check("Trainer: the same bits", all(map(torch.equal, *weights)))
    trial = sonde.open(run)
    names = {info.name for info in trial.tensors()}
    check(f"Trainer: {sorted(names)}", {"one.weight", "gradient/two.weight", "two_output_0",
                                        "scalar/loss", "loss"} <= names)
    check("Trainer: steps", trial.steps("train").tolist() == list(range(6)) and
          trial.status == "ended")


FINDING = sonde.Finding("NonFinite", "error", "one.weight", "train", 3, 3, 3, 1, "nan", 1.0, 0.0,
                        "3 values are NaN", "Look at it", "00")


@needs("wandb")
def wandb(package):
    with package.init(project="sonde", mode="offline", dir=FOLDER,
                      settings=package.Settings(silent=True)) as run:
        sonde.sinks.wandb(run)(FINDING)
        check("W&B has the finding", "3 values are NaN" in
              run.summary["sonde/NonFinite/one.weight"])


@needs("mlflow")
def mlflow(package):
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    client = package.MlflowClient(tracking_uri="file://" + os.path.join(FOLDER, "mlflow"))
    run = client.create_run("0")
    sonde.sinks.mlflow(client, run.info.run_id)(FINDING)
    check("MLflow has the finding", "3 values are NaN" in
          client.get_run(run.info.run_id).data.tags["sonde.NonFinite.one.weight"])


def main():
    torch.set_num_threads(1)
    tried = 0
    try:
        for name, function in PROGRAMS:
            try:
                package = importlib.import_module(name)
            except ImportError:
                print(f"{name} is not installed: skipped")
                continue
            tried += 1
            try:
                function(package)
            except Exception as problem:  # the others still run
                import traceback
                traceback.print_exc(file=sys.stdout)
                check(f"{name}: {problem}", False)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    if tried == 0:
        print("none of the packages is installed")
        return 77
    print("%d passed, %d failed" % (results[True], results[False]))
    return 1 if results[False] else 0


if __name__ == "__main__":
    sys.exit(main())
