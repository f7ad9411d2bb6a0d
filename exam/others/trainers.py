"""Programs whose package trains: Lightning, tabular networks, knowledge graphs, sparse grids."""

import data
from session import MODES, program, train


def callbacks(s):
    """For Lightning: the plant, then Sonde's own callback, twice."""
    from sonde.lightning import SondeCallback
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback
    if not issubclass(SondeCallback, Callback):
        from pytorch_lightning import Callback

    class Plant(Callback):
        def on_fit_start(self, trainer, module):
            s.attach(module, trainer.optimizers, watch=False)

    class Watch(SondeCallback):
        def __init__(self, mode):
            super().__init__(**s.options(mode))
            self.mode = mode

        def on_fit_start(self, trainer, module):
            from sonde import torch_hooks
            torch_hooks._watched.clear()
            super().on_fit_start(trainer, module)
            s.watches[self.mode] = self.watch

    return [Plant(), *map(Watch, MODES)]


@program("lightning-transformer", "lightning.pytorch lightning.pytorch.demos.transformer sonde.lightning",
         "single modes")
def lightning_transformer(s):
    """Lightning's demonstration of a language model, on letters."""
    import torch
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.demos.transformer import Transformer

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Transformer(vocab_size=64, ninp=32, nhead=2, nhid=64, nlayers=2)

        def training_step(self, batch, number):
            output = self.model(batch[:, :-1], batch[:, 1:])
            return torch.nn.functional.nll_loss(output, batch[:, 1:].reshape(-1))

        def configure_optimizers(self):
            return torch.optim.SGD(self.model.parameters(), lr=s.rate(0.1))

    loader = torch.utils.data.DataLoader(data.letters(33, 3200), s.batch(16), shuffle=True)
    Trainer(max_steps=150, callbacks=callbacks(s), logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
            default_root_dir=s.folder).fit(Model(), loader)


@program("scvi", "scvi sonde.lightning", "modes")
def scvi(s):
    """A variational autoencoder of gene counts, in the package's trainer (Lightning); drawn cells."""
    import scvi as package
    from scvi.train import _trainer  # noqa: F401
    cells = package.data.synthetic_iid(batch_size=400, n_genes=60)
    package.model.SCVI.setup_anndata(cells, batch_key="batch")
    model = package.model.SCVI(cells, n_hidden=32, n_latent=5)
    model.train(max_epochs=18, batch_size=s.batch(64), accelerator="cpu", callbacks=callbacks(s),
                plan_kwargs={"lr": s.rate(1e-3)}, enable_progress_bar=False, logger=False,
                enable_checkpointing=False, check_val_every_n_epoch=None)


@program("tabnet", "pytorch_tabnet.tab_model pytorch_tabnet.callbacks sklearn.datasets", "single targets modes")
def tabnet(s):
    import torch
    from pytorch_tabnet.callbacks import Callback
    from pytorch_tabnet.tab_model import TabNetClassifier

    class Attach(Callback):
        def on_train_begin(self, logs=None):
            s.attach(self.trainer.network, self.trainer._optimizer)

    x, y = s.arrays(*data.table("breast_cancer"))
    model = TabNetClassifier(n_d=8, n_a=8, seed=s.seed, verbose=0, device_name="cpu",
                             optimizer_fn=torch.optim.Adam, optimizer_params={"lr": s.rate(2e-2)})
    model.fit(x.numpy(), y.numpy(), max_epochs=18, batch_size=s.batch(64), virtual_batch_size=32,
              callbacks=[Attach()])


@program("skorch-mlp", "skorch torchvision.ops sklearn.datasets", "single targets modes")
def skorch(s):
    """torchvision's MLP in skorch's classifier."""
    import skorch as package
    import torch
    from torchvision.ops import MLP

    class Attach(package.callbacks.Callback):
        def on_train_begin(self, net, **more):
            s.attach(net.module_, net.optimizer_)

    x, y = s.arrays(*data.digits())
    net = package.NeuralNetClassifier(
        MLP, module__in_channels=64, module__hidden_channels=[48, 32, 10], module__dropout=0.1,
        criterion=torch.nn.CrossEntropyLoss, optimizer=torch.optim.SGD, optimizer__momentum=0.9,
        lr=s.rate(0.02), batch_size=s.batch(64), max_epochs=8, iterator_train__shuffle=True, verbose=0,
        callbacks=[Attach()])
    net.fit(x.flatten(1).numpy(), y.numpy())


@program("rtdl-ft-transformer", "rtdl_revisiting_models sklearn.datasets",
         "single targets inputs batches modes")
def ft_transformer(s):
    """A transformer over the columns of a table predicts diabetes."""
    import torch
    from rtdl_revisiting_models import FTTransformer
    options = FTTransformer.get_default_kwargs(1)
    options.update(d_block=32, attention_n_heads=2)
    net = FTTransformer(n_cont_features=10, cat_cardinalities=[], d_out=1, **options)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x, None)

    x, y = data.table("diabetes")
    optimizer = torch.optim.AdamW(net.make_parameter_groups(), s.rate(1e-3), weight_decay=1e-5)
    train(s, Model(), optimizer, s.batches(x, y, s.batch(32), 150), torch.nn.MSELoss())


@program("widedeep", "pytorch_widedeep.models pytorch_widedeep.training sklearn.datasets", "single targets modes")
def widedeep(s):
    import torch
    from pytorch_widedeep import Trainer
    from pytorch_widedeep.models import TabMlp, WideDeep
    x, y = s.arrays(*data.table("wine"))
    columns = {f"c{i}": i for i in range(x.shape[1])}
    deep = TabMlp(column_idx=columns, continuous_cols=list(columns), mlp_hidden_dims=[32, 16],
                  mlp_dropout=0.1)
    model = WideDeep(deeptabular=deep, pred_dim=3)
    optimizer = torch.optim.Adam(model.parameters(), s.rate(5e-3))
    trainer = Trainer(model, objective="multiclass", optimizers=optimizer, verbose=0, device="cpu")
    s.attach(model, optimizer)
    trainer.fit(X_tab=x.numpy(), target=y.numpy(), n_epochs=30, batch_size=s.batch(32))


@program("pykeen-transe", "pykeen.pipeline pykeen.datasets", "")
def pykeen(s):
    """Knowledge of 14 nations by translations, in the package's loop with its defaults."""
    import torch
    from pykeen.datasets import Nations
    from pykeen.models import TransE
    from pykeen.training import SLCWATrainingLoop
    facts = Nations().training
    model = TransE(triples_factory=facts, embedding_dim=24, random_seed=s.seed)
    optimizer = torch.optim.Adam(model.parameters(), s.rate(1e-2))
    loop = SLCWATrainingLoop(model=model, triples_factory=facts, optimizer=optimizer)
    s.attach(model, optimizer)
    loop.train(triples_factory=facts, num_epochs=12, batch_size=s.batch(128), use_tqdm=False)


@program("metric-learning", "pytorch_metric_learning.losses pytorch_metric_learning.miners sklearn.datasets",
         "inputs batches")
def metric(s):
    """Triplets of digits, the hard ones alone."""
    import torch
    from pytorch_metric_learning import losses, miners
    from torch import nn
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 32), nn.ReLU(),
                          nn.Linear(32, 8))
    loss, miner = losses.TripletMarginLoss(margin=0.2), miners.MultiSimilarityMiner()
    x, y = data.digits()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(1e-3))
    s.attach(model, optimizer)
    for inputs, labels in s.batches(x, y, s.batch(32), 150):
        optimizer.zero_grad()
        found = model(inputs)
        loss(found, labels, miner(found, labels)).backward()
        optimizer.step()


@program("kan", "kan", "layers single targets")
def kan(s):
    """A Kolmogorov-Arnold network in the package's own fit, with Adam."""
    import torch
    from kan import KAN
    model = KAN(width=[2, 5, 1], grid=5, k=3, seed=s.seed, auto_save=False,
                ckpt_path=s.folder)
    x = torch.rand(600, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    x, y = s.arrays(x, torch.exp(torch.sin(3 * x[:, :1]) + x[:, 1:] ** 2))
    s.at_optimizer(lambda: model)
    model.fit({"train_input": x[:500], "train_label": y[:500], "test_input": x[500:],
               "test_label": y[500:]}, opt="Adam", lr=s.rate(1e-2), steps=150, batch=s.batch(48),
              update_grid=False)
