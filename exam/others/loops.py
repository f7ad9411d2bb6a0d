"""More programs whose package trains: for tables, series, pictures, choices, recommendations."""

import data
from pictures import small_net
from session import program
from trainers import callbacks


def click_data():
    """Drawn clicks of 200 readers on 60 papers: (reader, paper, age), clicked."""
    import numpy as np
    draw = np.random.default_rng(0)
    reader, paper = draw.integers(0, 200, 3000), draw.integers(0, 60, 3000)
    age = draw.normal(size=3000).astype(np.float32)
    taste = (draw.normal(size=(200, 3))[reader] * draw.normal(size=(60, 3))[paper]).sum(1) - age
    return reader, paper, age, (taste > 0.3).astype(np.float32)


@program("fastai-xresnet", "fastai.vision.all sklearn.datasets", "modes")
def fastai_xresnet(s):
    """In the package's learner: its Adam, one cycle of the rate, weight decay."""
    import torch
    from fastai.vision.all import Callback, DataLoaders, Learner, OptimWrapper, ResBlock, XResNet
    from torch.utils.data import DataLoader, TensorDataset
    x, y = s.arrays(*data.digits(channels=3, size=16))

    class Attach(Callback):
        def before_fit(self):
            s.attach(self.learn.model, self.learn.opt.opt)

    torch.manual_seed(s.seed)
    model = XResNet(ResBlock, 1, [1, 1, 1, 1], n_out=10, stem_szs=(8, 8, 64), widen=0.25)
    loaders = DataLoaders(DataLoader(TensorDataset(x, y), s.batch(32), shuffle=True),
                          DataLoader(TensorDataset(x[:64], y[:64]), 64))
    learner = Learner(loaders, model, loss_func=torch.nn.CrossEntropyLoss(), cbs=[Attach()],
                      opt_func=lambda p, lr, **_: OptimWrapper(p, torch.optim.Adam, lr=lr))
    with learner.no_logging(), learner.no_bar():
        learner.fit_one_cycle(2, s.rate(5e-3))


@program("tsai-inception", "tsai.models.InceptionTime poutyne", "targets modes")
def inception(s):
    """Which of three drawn rhythms? InceptionTime in Poutyne's model."""
    import numpy as np
    import torch
    from poutyne import Callback, Model
    from tsai.models.InceptionTime import InceptionTime
    draw = np.random.default_rng(0)
    y = np.arange(600) % 3
    t = np.arange(48) + draw.uniform(0, 30, (600, 1))
    x = np.stack([np.sin(t / (2.0 + y[:, None])), draw.normal(size=(600, 48))], 1)
    x, y = s.arrays((x + 0.3 * draw.normal(size=x.shape)).astype(np.float32), y)
    torch.manual_seed(s.seed)
    net = InceptionTime(2, 3, nf=4, ks=12)
    optimizer = torch.optim.SGD(net.parameters(), s.rate(2e-2), momentum=0.9)

    class Attach(Callback):
        def on_train_begin(self, logs):
            s.attach(net, optimizer)

    Model(net, optimizer, "cross_entropy").fit(x, y, epochs=8, batch_size=s.batch(32), verbose=False,
                                               callbacks=[Attach()])


@program("pytorch-accelerated", "pytorch_accelerated sklearn.datasets", "single targets relu")
def accelerated(s):
    """In the package's trainer over Accelerate."""
    import torch
    from pytorch_accelerated import Trainer
    x, y = s.arrays(*data.digits())
    torch.manual_seed(s.seed)
    model = small_net()
    optimizer = torch.optim.AdamW(model.parameters(), s.rate(3e-3))

    class Mine(Trainer):
        def training_run_start(self):
            s.attach(model, getattr(self.optimizer, "optimizer", self.optimizer))

    Mine(model, torch.nn.CrossEntropyLoss(), optimizer, callbacks=()).train(
        torch.utils.data.TensorDataset(x, y), num_epochs=3, per_device_batch_size=s.batch(32))


@program("mmengine-runner", "mmengine.runner mmengine.model mmengine.hooks sklearn.datasets",
         "single targets relu")
def mmengine(s):
    """OpenMMLab's runner: a model that returns its losses, clipped gradients, a warm-up."""
    import torch
    from mmengine.hooks import Hook
    from mmengine.model import BaseModel
    from mmengine.runner import Runner
    x, y = s.arrays(*data.digits())

    class Net(BaseModel):
        def __init__(self):
            super().__init__()
            self.net = small_net()

        def forward(self, x, y, mode="loss"):
            return {"loss": torch.nn.functional.cross_entropy(self.net(x), y)}

    class Attach(Hook):
        def before_train(self, runner):
            s.attach(runner.model, runner.optim_wrapper.optimizer)

    torch.manual_seed(s.seed)
    Runner(model=Net(), work_dir=s.folder + "/mmengine", custom_hooks=[Attach()],
           train_dataloader=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), s.batch(32),
                                                        shuffle=True),
           train_cfg={"by_epoch": True, "max_epochs": 3}, log_level="ERROR",
           optim_wrapper={"optimizer": {"type": "SGD", "lr": s.rate(0.05), "momentum": 0.9},
                          "clip_grad": {"max_norm": 5.0}},
           param_scheduler={"type": "LinearLR", "start_factor": 0.1, "by_epoch": False, "end": 30},
           default_hooks={"checkpoint": None, "logger": None, "timer": None}).train()


@program("torchensemble-fusion", "torchensemble sklearn.datasets", "single targets")
def ensemble(s):
    """Four networks trained as one, in the package's loop."""
    import torch
    from torchensemble import FusionClassifier
    from torchensemble.utils.logging import set_logger
    set_logger()
    x, y = s.arrays(*data.digits())
    torch.manual_seed(s.seed)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = small_net()

        def forward(self, x):
            return self.net(x)

    model = FusionClassifier(Net, 4, cuda=False)
    model.set_optimizer("Adam", lr=s.rate(3e-3))
    s.at_optimizer(lambda: model)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), s.batch(32), shuffle=True)
    model.fit(loader, epochs=3, log_interval=1000, save_model=False)


@program("ctgan", "ctgan.synthesizers.ctgan sklearn.datasets", "")
def ctgan(s):
    """Wine as a table, drawn anew by two players, in the package's loop."""
    import pandas
    import torch
    from ctgan.synthesizers import ctgan as package
    x, y = data.table("wine")
    table = pandas.DataFrame(x[:, :4].numpy(), columns=list("abcd")).assign(kind=y.numpy())
    plain, players = package.Discriminator.__init__, []

    def made(self, *arguments, **options):
        plain(self, *arguments, **options)
        players.append(self)

    package.Discriminator.__init__ = made
    model = package.CTGAN(embedding_dim=16, generator_dim=(32, 32), discriminator_dim=(32, 32), pac=4,
                          batch_size=s.batch(40), epochs=40, verbose=False, enable_gpu=False,
                          generator_lr=s.rate(1e-3), discriminator_lr=s.rate(1e-3))

    class Players(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.generator, self.discriminator = model._generator, players[0]

    s.at_optimizer(Players)
    wanted = package.CTGAN._cond_loss

    def seen(self, *arguments):
        loss = wanted(self, *arguments)
        s.score(-loss.detach())
        return loss

    package.CTGAN._cond_loss = seen
    model.fit(table, ["kind"])


@program("pycox-deephit", "pycox.models torchtuples", "single")
def deephit(s):
    """Drawn survival, some times cut off; DeepHit's ranks and likelihood, torchtuples' loop."""
    import numpy as np
    import torch
    import torchtuples
    from pycox.models import DeepHitSingle
    draw = np.random.default_rng(0)
    x = draw.normal(size=(900, 6)).astype(np.float32)
    time = np.exp(0.7 * x[:, 0] - x[:, 1] + 1.0) * draw.exponential(size=900)
    cut = draw.exponential(8.0, 900)
    labels = DeepHitSingle.label_transform(10)
    y = labels.fit_transform(np.minimum(time, cut).astype(np.float32), (time < cut).astype(np.float32))
    torch.manual_seed(s.seed)
    net = torchtuples.practical.MLPVanilla(6, [24, 24], labels.out_features, True, 0.1)
    model = DeepHitSingle(net, torchtuples.optim.Adam(s.rate(5e-3)), alpha=0.2, sigma=0.1,
                          duration_index=labels.cuts)
    s.attach(net, model.optimizer.optimizer)
    model.fit(x, y, s.batch(64), 12, verbose=False)


@program("rechub-deepfm",
         "torch_rechub.models.ranking torch_rechub.trainers torch_rechub.basic.features", "single targets modes")
def rechub(s):
    """Clicks, in the package's trainer."""
    import torch
    from torch_rechub.basic.features import DenseFeature, SparseFeature
    from torch_rechub.models.ranking import DeepFM
    from torch_rechub.trainers import CTRTrainer
    from torch_rechub.utils.data import DataGenerator
    reader, paper, age, y = click_data()
    _, y = s.arrays(None, y)
    dense, sparse = [DenseFeature("age")], [SparseFeature("reader", 200, 8), SparseFeature("paper", 60, 8)]
    torch.manual_seed(s.seed)
    model = DeepFM(dense + sparse, sparse, {"dims": [32, 16], "dropout": 0.1, "activation": "relu"})
    trainer = CTRTrainer(model, optimizer_params={"lr": s.rate(5e-3), "weight_decay": 1e-5}, n_epoch=3,
                         model_path=s.folder)
    loader, *_ = DataGenerator({"reader": reader, "paper": paper, "age": age}, y).generate_dataloader(
        split_ratio=[0.9, 0.05], batch_size=s.batch(64))
    s.attach(model, trainer.optimizer)
    trainer.fit(loader)


@program("deepctr-dcn", "deepctr_torch.models deepctr_torch.inputs", "single targets")
def deepctr(s):
    """Clicks by a deep and cross network, in the package's fit with Adagrad."""
    from deepctr_torch.inputs import DenseFeat, SparseFeat
    from deepctr_torch.models import DCN
    import torch
    reader, paper, age, y = click_data()
    _, y = s.arrays(None, y)
    columns = [SparseFeat("reader", 200, 8), SparseFeat("paper", 60, 8), DenseFeat("age", 1)]
    model = DCN(columns, columns, dnn_hidden_units=(32, 16), init_std=0.05, seed=s.seed)
    model.compile(torch.optim.Adagrad(model.parameters(), s.rate(3e-2)), "binary_crossentropy")
    s.attach(model, model.optim)
    model.fit({"reader": reader, "paper": paper, "age": age}, y, batch_size=s.batch(64), epochs=4, verbose=0)


@program("pythae-wae", "pythae.models pythae.trainers sklearn.datasets", "single")
def pythae(s):
    """A Wasserstein autoencoder of digits, in the package's trainer."""
    import torch
    from pythae.models import WAE_MMD, WAE_MMD_Config
    from pythae.models.base.base_utils import ModelOutput
    from pythae.models.nn import BaseEncoder
    from pythae.data.datasets import BaseDataset
    from pythae.trainers import BaseTrainer, BaseTrainerConfig
    x, y = s.arrays(*data.digits())

    class Encoder(BaseEncoder):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3, 2, 1), torch.nn.ReLU(),
                                            torch.nn.Flatten())
            self.head = torch.nn.Linear(128, 6)

        def forward(self, x):
            return ModelOutput(embedding=self.head(self.body(x)))

    torch.manual_seed(s.seed)
    model = WAE_MMD(WAE_MMD_Config(input_dim=(1, 8, 8), latent_dim=6, reg_weight=1e-2), encoder=Encoder())
    trainer = BaseTrainer(model, BaseDataset(x / 2 + 0.5, y), training_config=BaseTrainerConfig(
        output_dir=s.folder + "/pythae", num_epochs=3, learning_rate=s.rate(1e-3), seed=s.seed, no_cuda=True,
        per_device_train_batch_size=s.batch(32)))
    plain = trainer.set_optimizer

    def made():
        plain()
        s.attach(model, trainer.optimizer)

    trainer.set_optimizer = made
    trainer.train()


@program("cebra-time", "cebra", "single")
def cebra(s):
    """Drawn spikes of 30 cells along a track: moments near in time lie near each other."""
    import numpy as np
    from cebra import CEBRA
    from cebra.solver import base
    draw = np.random.default_rng(0)
    place = np.sin(np.arange(1500) / 40.0)[:, None]
    spikes = draw.poisson(3 * np.exp(-8 * (place - np.linspace(-1, 1, 30)) ** 2)).astype(np.float32)
    import torch
    torch.manual_seed(s.seed)
    model = CEBRA(model_architecture="offset10-model", batch_size=s.batch(128), learning_rate=s.rate(3e-3),
                  max_iterations=150, output_dimension=3, num_hidden_units=16, temperature=0.3,
                  time_offsets=10, device="cpu")
    plain = base.Solver.fit

    def fit(solver, *arguments, **options):
        s.attach(solver.model, solver.optimizer)
        return plain(solver, *arguments, **options)

    base.Solver.fit = fit
    model.fit(spikes)


@program("pyod-autoencoder", "pyod.models.auto_encoder sklearn.datasets", "single modes")
def pyod(s):
    """Outliers of a table by an autoencoder with batch norm, in the package's fit."""
    from pyod.models.auto_encoder import AutoEncoder
    x, _ = s.arrays(*data.table("breast_cancer"))
    model = AutoEncoder(lr=s.rate(3e-3), epoch_num=10, batch_size=s.batch(32), random_state=s.seed, verbose=0,
                        hidden_neuron_list=[24, 8], device="cpu")
    s.at_optimizer(lambda: model.model)
    model.fit(x.numpy())


@program("pypots-saits", "pypots.imputation pypots.optim", "single")
def saits(s):
    """Fills gaps in drawn series by attention, in the package's loop."""
    import numpy as np
    import torch
    from pypots.imputation import SAITS
    from pypots.optim import Adam
    draw = np.random.default_rng(0)
    t = np.arange(24) + draw.uniform(0, 30, (600, 1))
    x = np.stack([np.sin(t / w) for w in (2.0, 3.0, 5.0)], 2)
    x[draw.uniform(size=x.shape) < 0.2] = np.nan
    torch.manual_seed(s.seed)
    model = SAITS(24, 3, n_layers=1, d_model=16, n_heads=2, d_k=8, d_v=8, d_ffn=32, batch_size=s.batch(32),
                  epochs=8, optimizer=Adam(lr=s.rate(3e-3)), verbose=False, device="cpu")
    s.attach(model.model, model.optimizer.torch_optimizer)
    model.fit({"X": x.astype(np.float32)})


@program("gluonts-deepar", "gluonts.torch gluonts.dataset.common sonde.lightning", "single")
def deepar(s):
    """Drawn sales by the week: an LSTM that gives Student's t, in the package's loop (Lightning)."""
    import numpy as np
    import torch
    from gluonts.dataset.common import ListDataset
    from gluonts.torch import DeepAREstimator
    draw = np.random.default_rng(0)
    t = np.arange(200)
    rows = [{"start": "2020-01-01", "target": 5 + 2 * np.sin(2 * np.pi * (t + i) / 7) +
             0.2 * draw.normal(size=200)} for i in range(20)]
    torch.manual_seed(s.seed)
    DeepAREstimator(freq="D", prediction_length=7, context_length=14, num_layers=1, hidden_size=16,
                    lr=s.rate(5e-3), batch_size=s.batch(16), num_batches_per_epoch=50, time_features=[],
                    lags_seq=[1, 7], trainer_kwargs={
                        "max_epochs": 3, "callbacks": callbacks(s), "logger": False, "accelerator": "cpu",
                        "enable_progress_bar": False, "enable_model_summary": False,
                        "default_root_dir": s.folder,
                    }).train(ListDataset(rows, freq="D"))


@program("darts-tcn", "darts.models darts.datasets sonde.lightning", "single modes")
def tcn(s):
    """A temporal convolution foretells a drawn series, in the package's loop (Lightning)."""
    import numpy as np
    from darts import TimeSeries
    from darts.models import TCNModel
    t = np.arange(700)
    y = np.sin(t / 6) + 0.5 * np.sin(t / 2.7) + 0.1 * np.random.default_rng(0).normal(size=700)
    TCNModel(input_chunk_length=24, output_chunk_length=6, num_filters=8, dropout=0.1, n_epochs=4,
             batch_size=s.batch(16), optimizer_kwargs={"lr": s.rate(3e-3)}, random_state=s.seed,
             work_dir=s.folder, force_reset=True, pl_trainer_kwargs={
                 "callbacks": callbacks(s), "accelerator": "cpu", "enable_progress_bar": False,
                 "enable_model_summary": False, "logger": False, "enable_checkpointing": False,
             }).fit(TimeSeries.from_values(y.astype(np.float32)))


@program("avalanche-ewc", "avalanche.training avalanche.benchmarks sklearn.datasets", "")
def ewc(s):
    """Digits in two tasks one after the other, the first one's weights held by springs."""
    import torch
    from avalanche.benchmarks import nc_benchmark
    from avalanche.training import EWC

    class Digits(torch.utils.data.TensorDataset):
        targets = property(lambda self: self.tensors[1])

    x, y = s.arrays(*data.digits())
    torch.manual_seed(s.seed)
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), s.rate(0.05), momentum=0.9)
    tasks = nc_benchmark(Digits(x, y), Digits(x[:100], y[:100]), 2, False, seed=0)
    made = EWC(model=model, optimizer=optimizer, criterion=torch.nn.CrossEntropyLoss(), ewc_lambda=1.0,
               train_mb_size=s.batch(32), train_epochs=3, evaluator=None)
    s.attach(model, optimizer)
    for task in tasks.train_stream:
        made.train(task, num_workers=0)


@program("deepinv-denoiser", "deepinv sklearn.datasets", "single relu")
def denoiser(s):
    """Clean digits from noisy ones by DnCNN, in the package's trainer."""
    import deepinv
    import torch
    x, _ = s.arrays(*data.digits(size=16))
    physics = deepinv.physics.Denoising(deepinv.physics.GaussianNoise(0.3))
    torch.manual_seed(s.seed)
    model = deepinv.models.ArtifactRemoval(deepinv.models.DnCNN(1, 1, depth=4, nf=8, pretrained=None))
    optimizer = torch.optim.Adam(model.parameters(), s.rate(3e-3))
    loader = torch.utils.data.DataLoader(x / 2 + 0.5, s.batch(16), shuffle=True)
    s.attach(model, optimizer)
    deepinv.Trainer(model, physics, optimizer, loader, epochs=1, online_measurements=True, metrics=None,
                    save_path=None, show_progress_bar=False, verbose=False, device="cpu",
                    compute_train_metrics=False, plot_images=False).train()


@program("torch-choice-logit", "torch_choice.data torch_choice.model", "layers single")
def choice(s):
    """Which of four ways to work? A conditional logit, the package's likelihood."""
    import torch
    from torch_choice.data import ChoiceDataset
    from torch_choice.model import ConditionalLogitModel
    draw = torch.Generator().manual_seed(0)
    price = torch.rand(800, 4, 2, generator=draw)
    noise = -torch.log(-torch.log(torch.rand(800, 4, generator=draw)))
    chosen = (price @ torch.tensor([-3.0, 2.0]) + torch.tensor([0.0, 0.5, 1.0, -1.0]) + noise).argmax(1)
    kept = ChoiceDataset(item_index=chosen, session_index=torch.arange(800), price_obs=price)
    model = ConditionalLogitModel(coef_variation_dict={"price_obs": "constant", "intercept": "item"},
                                  num_param_dict={"price_obs": 2, "intercept": 1}, num_items=4)
    optimizer = torch.optim.Adam(model.parameters(), s.rate(3e-2))
    s.attach(model, optimizer)
    for _ in range(150):
        batch = kept[torch.as_tensor(s.draw.integers(0, 800, s.batch(64)))]
        optimizer.zero_grad()
        model.negative_log_likelihood(batch, batch.item_index).backward()
        optimizer.step()


def letters_tokenizer():
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    known = {c: i for i, c in enumerate(["[PAD]", "[END]", *map(chr, range(32, 127))])}
    made = Tokenizer(models.WordLevel(known, unk_token="[PAD]"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", eos_token="[END]",
                                   unk_token="[PAD]")


@program("trl-dpo", "trl trl.trainer.dpo_trainer transformers.models.gpt2.modeling_gpt2 datasets tokenizers "
         "sonde.transformers", "single")
def dpo(s):
    """Rising letters are to be preferred to falling ones, against a frozen copy."""
    import random
    import torch
    from datasets import Dataset
    from language import trainer_callbacks, trainer_options
    from transformers import GPT2Config, GPT2LMHeadModel
    from trl import DPOConfig, DPOTrainer
    draw = random.Random(0)
    rows = []
    for _ in range(600):
        word = "".join(sorted(draw.sample("abcdefghijklmnop", 6)))
        rows.append({"prompt": draw.choice("xyz") + ":", "chosen": word, "rejected": word[::-1]})
    torch.manual_seed(s.seed)
    sizes = GPT2Config(vocab_size=97, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    model, before = GPT2LMHeadModel(sizes), GPT2LMHeadModel(sizes)
    before.load_state_dict(model.state_dict())
    options = {**trainer_options(s, 5e-4, 130), "beta": 0.1, "max_length": 32, "bf16": False,
               "gradient_checkpointing": False, "optim": "adamw_torch"}
    DPOTrainer(model=model, ref_model=before, args=DPOConfig(**options),
               train_dataset=Dataset.from_list(rows), processing_class=letters_tokenizer(), callbacks=trainer_callbacks(s)).train()


@program("temporal-fusion", "pytorch_forecasting lightning.pytorch sonde.lightning", "single modes")
def temporal_fusion(s):
    """Sales of five drawn shops by a temporal fusion transformer and quantiles (Lightning)."""
    import lightning.pytorch
    import numpy as np
    import pandas
    import torch
    from pytorch_forecasting import QuantileLoss, TemporalFusionTransformer, TimeSeriesDataSet
    draw, t = np.random.default_rng(0), np.arange(160)
    rows = pandas.concat([pandas.DataFrame({
        "shop": str(i), "t": t, "sold": (i + 2 + np.sin(2 * np.pi * (t + i) / 7) +
                                         0.1 * draw.normal(size=160)).astype(np.float32)}) for i in range(5)],
                         ignore_index=True)
    kept = TimeSeriesDataSet(rows, time_idx="t", target="sold", group_ids=["shop"], max_encoder_length=14,
                             max_prediction_length=5, static_categoricals=["shop"],
                             time_varying_known_reals=["t"], time_varying_unknown_reals=["sold"])
    torch.manual_seed(s.seed)
    model = TemporalFusionTransformer.from_dataset(
        kept, learning_rate=s.rate(1e-2), hidden_size=8, attention_head_size=1, dropout=0.1,
        hidden_continuous_size=4, loss=QuantileLoss(), log_interval=-1)
    lightning.pytorch.Trainer(
        max_steps=120, callbacks=callbacks(s), logger=False, enable_checkpointing=False, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=s.folder,
        gradient_clip_val=0.1).fit(model, kept.to_dataloader(train=True, batch_size=s.batch(16),
                                                             num_workers=0))
