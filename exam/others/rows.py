"""Programs about tables, clicks, causes, survival and doubt, from packages that parts 1 to 4 do
not use."""

import data
from loops import click_data
from scenes import own
from session import program, train

ALL = "single targets inputs batches classes logits"
SIMPLE = "single targets inputs batches"


@program("tabm-piecewise", "tabm rtdl_num_embeddings sklearn.datasets", SIMPLE + " modes")
def tabm(s):
    """Eight networks that share weights, numbers in pieces; the loss is the mean of the eight's."""
    import rtdl_num_embeddings
    import torch
    from tabm import TabM
    x, y = data.table("diabetes")
    bins = rtdl_num_embeddings.compute_bins(x, n_bins=8)
    model = TabM.make(n_num_features=10, d_out=1, k=8, n_blocks=2, d_block=32, dropout=0.1, num_embeddings=
                      rtdl_num_embeddings.PiecewiseLinearEmbeddings(bins, 8, activation=False, version="B"))
    optimizer = s.optimizer("AdamW", model.parameters(), 2e-3, weight_decay=3e-4)
    own(s, model, optimizer, s.batches(x, y, s.batch(32), s.steps(140)), lambda x, y:
        torch.nn.functional.mse_loss(model(x).flatten(0, 1), y.repeat_interleave(8, 0)))


@program("periodic-embeddings", "rtdl_num_embeddings dadaptation sklearn.datasets", ALL)
def periodic(s):
    """Numbers as waves of learnt lengths before a plain network; D-Adaptation finds the rate."""
    import rtdl_num_embeddings
    from dadaptation import DAdaptAdam
    from torch import nn
    model = nn.Sequential(rtdl_num_embeddings.PeriodicEmbeddings(30, 8, n_frequencies=12, lite=True,
                                                                 frequency_init_scale=0.1),
                          nn.Flatten(), nn.Linear(240, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = DAdaptAdam(model.parameters(), lr=s.rate(1.0), growth_rate=1.2) \
        if s.variant != "optimizer" else s.optimizer("Adam", model.parameters(), 1e-3)
    train(s, model, optimizer, s.batches(*data.table("breast_cancer"), s.batch(32), s.steps(140)),
          nn.CrossEntropyLoss())


@program("tab-transformer-clicks", "tab_transformer_pytorch", "single targets")
def tab_transformer(s):
    """Which papers are read? Kinds by attention, a number beside them; the package's streams of residuals."""
    import torch
    from tab_transformer_pytorch import TabTransformer
    reader, paper, age, _ = click_data()
    model = TabTransformer(categories=(200, 60), num_continuous=1, dim=16, dim_out=1, depth=2, heads=2,
                           dim_head=8, attn_dropout=0.0, ff_dropout=0.0, num_residual_streams=2,
                           mlp_act=torch.nn.ReLU())
    x = torch.stack([torch.as_tensor(v).float() for v in (reader, paper, age)], 1)
    taste = torch.as_tensor((paper % 3 == 0) + age > 0.5).float()
    x, y = s.arrays(x, taste)
    optimizer = s.optimizer("Adam", model.parameters(), 1e-2)
    own(s, model, optimizer, s.batches(x, y, s.batch(32), s.steps(120)), lambda x, y:
        torch.nn.functional.binary_cross_entropy_with_logits(model(x[:, :2].long(), x[:, 2:])[:, 0], y))


@program("torchfm-autoint", "torchfm.model.afi torchfm.model.xdfm", "single targets modes")
def autoint(s):
    """Clicks by attention between fields, as the package's example trains it."""
    import numpy as np
    import torch
    from torchfm.model.afi import AutomaticFeatureInteractionModel
    reader, paper, age, clicked = click_data()
    x = torch.stack([torch.as_tensor(reader), torch.as_tensor(paper),
                     torch.as_tensor((age * 2 + 5).clip(0, 9)).long()], 1)
    x, y = s.arrays(x, torch.as_tensor(clicked))
    model = AutomaticFeatureInteractionModel(np.array([200, 60, 10]), embed_dim=8, num_heads=2, num_layers=2,
                                             mlp_dims=(32, 32), dropouts=(0.1, 0.1, 0.1))
    loss = torch.nn.BCELoss()
    optimizer = s.optimizer("Adam", model.parameters(), 3e-3, weight_decay=1e-6)
    own(s, model, optimizer, s.batches(x, y, s.batch(64), s.steps(150)), lambda x, y: loss(model(x), y))


@program("dagma-nonlinear", "dagma.nonlinear", "single")
def dagma(s):
    """Which of six measures causes which? The package's own loop, in double precision."""
    import numpy as np
    import torch
    from dagma.nonlinear import DagmaMLP, DagmaNonlinear
    draw = np.random.default_rng(0)
    x = draw.normal(size=(s.batch(200), 6))
    for i in range(1, 6):
        x[:, i] += np.tanh(2 * x[:, i - 1]) + (x[:, i - 2] ** 2 if i > 2 else 0)
    torch.manual_seed(s.seed)
    model = DagmaMLP([6, 8, 1], dtype=torch.double)
    s.at_optimizer(lambda: model)
    DagmaNonlinear(model, dtype=torch.double).fit(x - x.mean(0), T=2, warm_iter=s.steps(160),
                                                  max_iter=2, lr=s.rate(2e-3), checkpoint=20)


@program("auton-cox-mixtures", "auton_survival.models.dcm auton_survival.models.dcm.dcm_utilities", "")
def auton(s):
    """Survival as a mixture of proportional hazards: expectation, splines, maximization, in its loop."""
    import numpy as np
    import torch
    from auton_survival.models.dcm import DeepCoxMixtures, dcm_utilities
    draw = np.random.default_rng(0)
    x = draw.normal(size=(600, 6)).astype(np.float32)
    time = np.exp(0.8 * x[:, 0] - x[:, 1] + 1.5) * draw.exponential(size=600) + 0.1
    end = np.minimum(time, draw.uniform(1, 20, 600))
    model = DeepCoxMixtures(k=2, layers=[24], random_seed=s.seed)
    plain = dcm_utilities.train_step

    def seen(net, x, t, e, splines, optimizer, **options):
        if not s.planted:
            s.attach(net, optimizer)
        return plain(net, x, t, e, splines, optimizer, **options)

    dcm_utilities.train_step = seen
    model.fit(x, end.astype(np.float32), (time <= end).astype(np.float32), iters=s.steps(24),
              learning_rate=s.rate(3e-3), batch_size=s.batch(64))


@program("lassonet-path", "lassonet sklearn.datasets", "single targets")
def lassonet(s):
    """Fewer and fewer features: the dense fit, then the package's path of proximal steps."""
    from lassonet import LassoNetRegressor
    x, y = s.arrays(*data.table("diabetes"))
    made = LassoNetRegressor(hidden_dims=(24,), n_iters=(s.steps(20), s.steps(4)), patience=None,
                             batch_size=s.batch(64), lambda_start=0.5, path_multiplier=1.5, verbose=0,
                             torch_seed=s.seed, val_size=0.1, random_state=0)
    s.at_optimizer(lambda: made.model)
    made.fit(x.numpy(), y.numpy())


@program("edl-evidence", "edl_pytorch", SIMPLE)
def evidence(s):
    """A cube with noise and how sure of it: the package's first example."""
    import torch
    from edl_pytorch import NormalInvGamma, evidential_regression
    from torch import nn
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(1000, 1, generator=draw) * 8 - 4
    y = (x ** 3 + 3 * torch.randn(x.shape, generator=draw)) / 30
    model = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), NormalInvGamma(64, 1))
    optimizer = s.optimizer("Adam", model.parameters(), 1e-3)
    train(s, model, optimizer, s.batches(x, y, s.batch(100), s.steps(180)),
          lambda found, y: evidential_regression(found, y, lamb=1e-2))


@program("coral-ordinal", "coral_pytorch.layers coral_pytorch.losses coral_pytorch.dataset sklearn.datasets",
         "single targets inputs batches classes modes")
def coral(s):
    """Diabetes in five grades, in their order; the tutorial's network with batch norm and dropout."""
    import torch
    from coral_pytorch.dataset import levels_from_labelbatch
    from coral_pytorch.layers import CoralLayer
    from coral_pytorch.losses import coral_loss
    from torch import nn
    x, y = data.table("diabetes")
    y = torch.bucketize(y[:, 0], torch.quantile(y, torch.tensor([0.2, 0.4, 0.6, 0.8])))
    model = nn.Sequential(nn.Linear(10, 32), nn.LeakyReLU(), nn.BatchNorm1d(32), nn.Dropout(0.2),
                          nn.Linear(32, 24), nn.LeakyReLU(), nn.BatchNorm1d(24), nn.Dropout(0.2),
                          CoralLayer(24, 5))
    optimizer = s.optimizer("Adam", model.parameters(), 5e-3)
    train(s, model, optimizer, s.batches(x, y, s.batch(32), s.steps(140)),
          lambda found, y: coral_loss(found, levels_from_labelbatch(y, 5).type_as(found)))


@program("spacecutter", "spacecutter.models spacecutter.losses sklearn.datasets",
         "single targets inputs batches classes")
def spacecutter(s):
    """Kinds of wine as if they were grades: cuts that are learnt and kept in order after each step."""
    import torch
    from spacecutter.losses import CumulativeLinkLoss
    from spacecutter.models import OrdinalLogisticModel
    from torch import nn
    x, y = data.table("wine")
    model = OrdinalLogisticModel(nn.Sequential(nn.Linear(13, 24), nn.ELU(), nn.Linear(24, 1)), 3)
    loss = CumulativeLinkLoss()
    optimizer = s.optimizer("SGD", model.parameters(), 2e-2, momentum=0.9)
    s.attach(model, optimizer)
    for inputs, labels in s.batches(x, y, s.batch(16), s.steps(150)):
        optimizer.zero_grad()
        loss(model(inputs), labels[:, None]).backward()
        optimizer.step()
        with torch.no_grad():
            cuts = model.link.cutpoints
            cuts.copy_(torch.sort(cuts)[0])


@program("torchjd-two-tasks", "torchjd torchjd.autojac torchjd.aggregation sklearn.datasets",
         "targets inputs batches")
def jacobian_descent(s):
    """Two tasks on one trunk that may not harm each other: the package's way to add gradients."""
    import torch
    from torch import nn
    from torchjd import autojac
    from torchjd.aggregation import UPGrad
    x, y = data.table("diabetes")
    other = torch.sign(x[:, 2:3]) * x[:, 3:4]
    trunk = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh())
    model = nn.ModuleDict({"trunk": trunk, "first": nn.Linear(16, 1), "second": nn.Linear(16, 1)})
    optimizer = s.optimizer("SGD", model.parameters(), 0.05)
    s.attach(model, optimizer)
    for inputs, targets in s.batches(x, torch.cat([y, other], 1), s.batch(32), s.steps(160)):
        features = trunk(inputs)
        losses = [(model[n](features)[:, 0] - targets[:, i]).pow(2).mean()
                  for i, n in enumerate(("first", "second"))]
        optimizer.zero_grad()
        autojac.mtl_backward(losses, features)
        autojac.jac_to_grad(trunk.parameters(), UPGrad())
        optimizer.step()
        s.score(-sum(v.detach() for v in losses))


@program("bayesian-torch", "bayesian_torch.models.dnn_to_bnn sklearn.datasets", ALL)
def bayesian(s):
    """A plain network turned into one of drawn weights (Flipout), likelihood and prior."""
    import torch
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss
    from torch import nn
    model = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
                          nn.Flatten(), nn.Linear(64, 10))
    dnn_to_bnn(model, {"prior_mu": 0.0, "prior_sigma": 1.0, "posterior_mu_init": 0.0,
                       "posterior_rho_init": -3.0, "type": "Flipout", "moped_enable": False})
    optimizer = s.optimizer("Adam", model.parameters(), 5e-3)
    train(s, model, optimizer, s.batches(*data.digits(), s.batch(32), s.steps(140)),
          lambda found, y: nn.functional.cross_entropy(found, y) + get_kl_loss(model) / 1797)


@program("torchbnn-iris", "torchbnn sklearn.datasets", "single targets inputs batches classes logits")
def torchbnn(s):
    """The package's first example: all of a small table at each step, a loss of the prior."""
    import torch
    import torchbnn as bnn
    from torch import nn
    x, y = data.table("iris")
    model = nn.Sequential(bnn.BayesLinear(prior_mu=0, prior_sigma=0.1, in_features=4, out_features=100),
                          nn.ReLU(), bnn.BayesLinear(prior_mu=0, prior_sigma=0.1, in_features=100, out_features=3))
    prior = bnn.BKLLoss(reduction="mean", last_layer_only=False)
    optimizer = s.optimizer("Adam", model.parameters(), 1e-2)
    train(s, model, optimizer, s.batches(x, y, 150, s.steps(200)),
          lambda found, y: nn.functional.cross_entropy(found, y) + 0.01 * prior(model))


@program("torch-explain", "torch_explain.nn.functional.loss sklearn.datasets",
         "single targets inputs batches classes")
def explain(s):
    """Rules from a network: layers with entropy over concepts, the package's loss beside the first."""
    import torch
    import torch_explain
    from torch import nn
    model = nn.Sequential(torch_explain.nn.EntropyLinear(13, 12, n_classes=3), nn.LeakyReLU(),
                          nn.Linear(12, 8), nn.LeakyReLU(), nn.Linear(8, 1))
    x, y = data.table("wine")
    optimizer = s.optimizer("AdamW", model.parameters(), 5e-3)
    train(s, model, optimizer, s.batches(x.sigmoid(), y, s.batch(32), s.steps(150)),
          lambda found, y: nn.functional.cross_entropy(found.squeeze(-1), y) +
          1e-4 * torch_explain.nn.functional.entropy_logic_loss(model))


@program("deepod-deep-svdd", "deepod.models.tabular sklearn.datasets", "single")
def svdd(s):
    """What is usual lies near one point: Deep SVDD in the package's fit."""
    import torch
    from deepod.models.tabular import DeepSVDD
    x, _ = s.arrays(*data.table("breast_cancer"))
    made = DeepSVDD(epochs=s.steps(10), batch_size=s.batch(32), lr=s.rate(1e-3), rep_dim=16, hidden_dims="32,24",
                    device="cpu", verbose=0, random_state=s.seed)
    plain = torch.optim.Adam

    def seen(parameters, **options):
        optimizer = plain(parameters, **options)
        s.attach(made.net, optimizer)
        return optimizer

    torch.optim.Adam = seen
    made.fit(x.numpy())


@program("probaforms-cvae", "probaforms.models sklearn.datasets", "")
def cvae(s):
    """A conditional autoencoder of moons in the package's fit: two networks, one optimizer."""
    import torch
    from probaforms.models import CVAE
    x, y = data.moons(1000)
    made = CVAE(latent_dim=2, hidden=(32,), batch_size=s.batch(32), n_epochs=s.steps(5), lr=s.rate(3e-3),
                KL_weight=1e-2)
    s.at_optimizer(lambda: torch.nn.ModuleDict({"encoder": made.encoder, "decoder": made.decoder}))
    made.fit(x.numpy(), y[:, None].float().numpy())


@program("pfhedge", "pfhedge.nn pfhedge.instruments", "single modes")
def pfhedge(s):
    """Deep hedging of an option: the package's first example, new paths at every step."""
    import torch
    from pfhedge.instruments import BrownianStock, EuropeanOption
    from pfhedge.nn import ExpectedShortfall, Hedger, MultiLayerPerceptron
    derivative = EuropeanOption(BrownianStock(cost=1e-4), maturity=10 / 365)
    hedger = Hedger(MultiLayerPerceptron(3, 1, n_layers=2, n_units=24),
                    inputs=["log_moneyness", "expiry_time", "volatility"], criterion=ExpectedShortfall(0.1))
    optimizer = s.optimizer("Adam", hedger.model.parameters(), 2e-3)
    s.attach(hedger.model, optimizer)
    hedger.fit(derivative, n_epochs=s.steps(130), n_paths=s.batch(300), optimizer=optimizer, verbose=False,
               validation=False)


@program("learnergy-rbm", "learnergy.models.bernoulli sklearn.datasets", "")
def rbm(s):
    """A restricted Boltzmann machine by contrastive divergence, in the package's fit."""
    import torch
    from learnergy.models.bernoulli import RBM
    x, y = data.digits()
    model = RBM(n_visible=64, n_hidden=32, steps=1, learning_rate=s.rate(0.05), momentum=0.5, decay=1e-4,
                use_gpu=False)
    s.attach(model, model.optimizer)
    plain = model.gibbs_sampling

    def seen(v):
        found = plain(v)
        s.score(-(found[-1].detach() - v).pow(2).mean())
        return found

    model.gibbs_sampling = seen
    made = torch.utils.data.TensorDataset((x.flatten(1) > 0).float(), y)
    model.fit(made, batch_size=s.batch(64), epochs=s.steps(6))
