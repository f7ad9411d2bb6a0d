"""More programs about density, doubt, equations and molecules."""

import data
from session import program, train

ALL = "single targets inputs batches"


def fit(s, model, optimizer, x, size, steps, loss):
    """loss: of a batch of samples."""
    s.attach(model, optimizer)
    for inputs, _ in s.batches(x, x[:, 0], s.batch(size), steps):
        optimizer.zero_grad()
        loss(inputs).backward()
        optimizer.step()


@program("zuko-spline-flow", "zuko sklearn.datasets", "single inputs batches")
def zuko_flow(s):
    import torch
    import zuko
    model = zuko.flows.NSF(features=2, transforms=2, hidden_features=(32, 32))
    optimizer = torch.optim.Adam(model.parameters(), s.rate(3e-3))
    fit(s, model, optimizer, data.moons()[0], 64, 140, lambda x: -model().log_prob(x).mean())


@program("freia-coupling", "FrEIA.framework FrEIA.modules sklearn.datasets", "single inputs batches")
def freia(s):
    """The package's first example: coupling blocks that can be turned round."""
    import FrEIA.framework
    import FrEIA.modules
    import torch
    from torch import nn
    model = FrEIA.framework.SequenceINN(2)
    for _ in range(4):
        model.append(FrEIA.modules.AllInOneBlock, permute_soft=True, subnet_constructor=lambda i, o:
                     nn.Sequential(nn.Linear(i, 32), nn.ReLU(), nn.Linear(32, o)))
    optimizer = torch.optim.Adam(model.parameters(), s.rate(1e-3))

    def loss(x):
        z, log_jacobian = model(x)
        return (0.5 * (z ** 2).sum(1) - log_jacobian).mean() / 2

    fit(s, model, optimizer, data.moons()[0], 64, 150, loss)


@program("geomloss-sinkhorn", "geomloss zuko madgrad sklearn.datasets", "single inputs batches")
def sinkhorn(s):
    """A network that moves noise to the moons by the Sinkhorn divergence, with MADGRAD."""
    import geomloss
    import torch
    import zuko
    from madgrad import MADGRAD
    model = zuko.nn.MLP(2, 2, (32, 32), activation=torch.nn.ELU)
    distance = geomloss.SamplesLoss("sinkhorn", p=2, blur=0.1)
    optimizer = MADGRAD(model.parameters(), lr=s.rate(3e-3), momentum=0.9)
    fit(s, model, optimizer, data.moons()[0], 64, 140, lambda x: distance(model(torch.randn(len(x), 2)), x))


@program("flow-matching", "flow_matching.path zuko sklearn.datasets", "single inputs batches")
def matching(s):
    import torch
    import zuko
    from flow_matching.path import CondOTProbPath
    model, path = zuko.nn.MLP(3, 2, (48, 48), activation=torch.nn.SiLU), CondOTProbPath()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(2e-3))

    def loss(x):
        place = path.sample(t=torch.rand(len(x)), x_0=torch.randn_like(x), x_1=x)
        return (model(torch.cat([place.x_t, place.t[:, None]], 1)) - place.dx_t).pow(2).mean()

    fit(s, model, optimizer, data.moons()[0], 128, 160, loss)


@program("torchebm-score", "torchebm.core torchebm.losses sklearn.datasets", "single inputs batches")
def energy(s):
    """An energy whose slope points back to the data: denoising score matching."""
    import torch
    from torch import nn
    from torchebm.core import BaseModel
    from torchebm.losses import DenoisingScoreMatching

    class Energy(BaseModel):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(),
                                     nn.Linear(48, 1))

        def forward(self, x):
            return self.net(x).squeeze(-1)

    model = Energy()
    score = DenoisingScoreMatching(model=model, noise_scale=0.3)
    optimizer = torch.optim.AdamW(model.parameters(), s.rate(5e-3))
    fit(s, model, optimizer, data.moons()[0], 128, 150, score)


@program("egnn-charges", "egnn_pytorch", ALL)
def egnn(s):
    """The energy of five charges from where they are, the same if they are turned."""
    import torch
    from egnn_pytorch import EGNN_Network
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = EGNN_Network(depth=2, dim=16, num_tokens=2, num_nearest_neighbors=4, norm_coors=True)
            self.head = nn.Linear(16, 1)

        def forward(self, places):
            found, _ = self.net(sign.expand(len(places), 5), places)
            return self.head(found).mean(1)

    sign = torch.tensor([[0, 1, 0, 1, 0]])
    x = 1.5 * torch.randn(800, 5, 3, generator=torch.Generator().manual_seed(0))
    charge = 1.0 - 2.0 * sign
    pairs = charge[..., None] * charge[:, None] / (torch.cdist(x, x) + 0.5)
    y = torch.triu(pairs, 1).sum((1, 2))[:, None]
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(2e-3))
    train(s, model, optimizer, s.batches(x, y, s.batch(16), 150), nn.MSELoss())


@program("neurodiffeq-oscillator",
         "neurodiffeq neurodiffeq.solvers neurodiffeq.conditions neurodiffeq.networks", "single")
def oscillator(s):
    """x'' + x = 0 by a network, in the package's solver."""
    import torch
    from neurodiffeq import diff
    from neurodiffeq.conditions import IVP
    from neurodiffeq.generators import Generator1D
    from neurodiffeq.networks import FCNN
    from neurodiffeq.solvers import Solver1D
    net = FCNN(1, 1, hidden_units=(24, 24))
    optimizer = torch.optim.Adam(net.parameters(), s.rate(5e-3))
    solver = Solver1D(lambda u, t: [diff(u, t, order=2) + u], [IVP(0.0, 0.0, 1.0)], 0.0, 3.0, nets=[net],
                      train_generator=Generator1D(s.batch(32), 0.0, 3.0, "equally-spaced-noisy"),
                      optimizer=optimizer, n_batches_valid=0)
    s.attach(net, optimizer)
    solver.fit(200)


@program("blitz-bayesian", "blitz.modules blitz.utils sklearn.datasets", ALL)
def blitz(s):
    """Diabetes, by layers whose weights are drawn at each step; likelihood and prior in one loss."""
    import torch
    from blitz.modules import BayesianLinear
    from blitz.utils import variational_estimator

    @variational_estimator
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = BayesianLinear(10, 24), BayesianLinear(24, 1)

        def forward(self, x):
            return self.last(torch.relu(self.first(x)))

    model = Net()
    x, y = data.table("diabetes")
    optimizer = torch.optim.Adam(model.parameters(), s.rate(1e-2))
    s.attach(model, optimizer)
    for inputs, targets in s.batches(x, y, s.batch(32), 150):
        optimizer.zero_grad()
        model.sample_elbo(inputs=inputs, labels=targets, criterion=torch.nn.MSELoss(), sample_nbr=2,
                          complexity_cost_weight=1 / 442).backward()
        optimizer.step()


@program("vbll-regression", "vbll zuko sklearn.datasets", "single targets inputs batches")
def last_layer(s):
    """A last layer with a distribution of weights in closed form gives the loss itself."""
    import torch
    import vbll
    import zuko
    model = torch.nn.Sequential(zuko.nn.MLP(10, 24, (24,), activation=torch.nn.ELU),
                                vbll.Regression(24, 1, regularization_weight=1 / 442))
    x, y = data.table("diabetes")
    optimizer = torch.optim.AdamW(model.parameters(), s.rate(3e-3))
    train(s, model, optimizer, s.batches(x, y, s.batch(32), 150), lambda found, y: found.train_loss_fn(y))


@program("hypnettorch", "hypnettorch.hnets hypnettorch.mnets sklearn.datasets",
         "single targets inputs batches classes")
def hypernetwork(s):
    """A network gives the weights of another, for two tasks: digits, and digits upside down."""
    import torch
    from hypnettorch.hnets import HMLP
    from hypnettorch.mnets import MLP
    main = MLP(n_in=64, n_out=10, hidden_layers=(24,), no_weights=True, verbose=False)
    model = HMLP(main.param_shapes, cond_in_size=8, layers=(24,), num_cond_embs=2, verbose=False)
    model.apply_hyperfan_init(mnet=main)
    x, y = data.digits()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(2e-3))
    s.attach(model, optimizer)
    for step, (inputs, labels) in enumerate(s.batches(x, y, s.batch(32), 150)):
        inputs = (inputs.flip(2) if step % 2 else inputs).flatten(1)
        optimizer.zero_grad()
        found = main(inputs, weights=model(cond_id=step % 2))
        torch.nn.functional.cross_entropy(found, labels).backward()
        optimizer.step()


@program("higher-maml", "higher zuko", "single")
def maml(s):
    """Learns sines of drawn height and phase from ten points, in two steps, through those steps."""
    import higher
    import torch
    import zuko
    model = zuko.nn.MLP(1, 1, (32, 32), activation=torch.nn.ReLU)
    inner = torch.optim.SGD(model.parameters(), 0.05)
    outer = torch.optim.Adam(model.parameters(), s.rate(5e-3))
    loss = torch.nn.functional.mse_loss
    s.attach(model, outer)
    for _ in range(160):
        outer.zero_grad()
        total = 0.0
        for _ in range(s.batch(4)):
            x = torch.rand(20, 1) * 6 - 3
            y = (1 + torch.rand(1)) * torch.sin(x + torch.rand(1))
            with higher.innerloop_ctx(model, inner, copy_initial_weights=False) as (net, steps):
                for _ in range(2):
                    steps.step(loss(net(x[:10]), y[:10]))
                total = total + loss(net(x[10:]), y[10:])
        (total / s.batch(4)).backward()
        outer.step()


@program("logic-tensor", "ltn zuko sklearn.datasets", "single targets inputs batches")
def logic(s):
    """All wine of a class is of that class: as much as logic is satisfied, the loss is less than 1."""
    import ltn
    import torch
    import zuko
    net = zuko.nn.MLP(13, 3, (24,), activation=torch.nn.ELU)
    chance = ltn.Predicate(func=lambda x, c: (net(x).softmax(1) * c).sum(1))
    every = ltn.Quantifier(ltn.fuzzy_ops.AggregPMeanError(p=2), quantifier="f")
    together = ltn.fuzzy_ops.SatAgg()
    x, y = data.table("wine")
    optimizer = torch.optim.Adam(net.parameters(), s.rate(3e-3))
    s.attach(net, optimizer)
    for inputs, labels in s.batches(x, y, s.batch(32), 140):
        optimizer.zero_grad()
        parts = [every(v := ltn.Variable("x", inputs[labels == c]),
                       chance(v, ltn.Constant(torch.eye(3)[c]))) for c in range(3) if (labels == c).any()]
        (1.0 - together(*parts)).backward()
        optimizer.step()


@program("pennylane-circuit", "pennylane sklearn.datasets", "single targets inputs batches layers")
def circuit(s):
    """A circuit of three qubits between two layers tells the moons apart."""
    import pennylane as qml
    import torch
    from torch import nn
    device = qml.device("default.qubit", wires=3)

    @qml.qnode(device, interface="torch", diff_method="backprop")
    def found(inputs, weights):
        qml.AngleEmbedding(inputs, wires=range(3))
        qml.BasicEntanglerLayers(weights, wires=range(3))
        return [qml.expval(qml.PauliZ(wires=i)) for i in range(3)]

    model = nn.Sequential(nn.Linear(2, 3), qml.qnn.TorchLayer(found, {"weights": (2, 3)}), nn.Linear(3, 1),
                          nn.Flatten(0))
    x, y = data.moons()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(3e-2))
    train(s, model, optimizer, s.batches(x, y.float(), s.batch(32), 120),
          nn.functional.binary_cross_entropy_with_logits)


@program("torchsurv-weibull", "torchsurv.loss.weibull zuko sklearn.datasets", "single inputs batches")
def weibull(s):
    """Drawn times of survival, some of them cut off."""
    import torch
    import zuko
    from torchsurv.loss.weibull import neg_log_likelihood_weibull
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(800, 6, generator=draw)
    time = torch.exp(0.8 * x[:, 0] - x[:, 1] * x[:, 2] + 2.0) * torch.rand(800, generator=draw) + 0.05
    known = torch.rand(800, generator=draw) < 0.7
    model = zuko.nn.MLP(6, 2, (24, 24), activation=torch.nn.ReLU)
    optimizer = torch.optim.Adam(model.parameters(), s.rate(3e-3))
    y = torch.stack([time, known.float()], 1)
    train(s, model, optimizer, s.batches(x, y, s.batch(32), 150),
          lambda found, y: neg_log_likelihood_weibull(found, y[:, 1] > 0, y[:, 0]))


@program("torch-lattice", "pytorch_lattice.layers sklearn.datasets", "single targets inputs batches")
def lattice(s):
    """Calibrators and a lattice that only rises, kept so after each step; in double precision."""
    import torch
    from pytorch_lattice import layers
    from pytorch_lattice.enums import Monotonicity

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            knots = torch.linspace(-3, 3, 8).numpy()
            self.calibrators = torch.nn.ModuleList(
                layers.NumericalCalibrator(knots, output_min=0.0, output_max=1.0,
                                           monotonicity=Monotonicity.INCREASING) for _ in range(4))
            self.lattice = layers.Lattice([2] * 4, output_min=-3.0, output_max=3.0,
                                          monotonicities=[Monotonicity.INCREASING] * 4)

        def forward(self, x):
            return self.lattice(torch.cat([c(x[:, i:i + 1]) for i, c in enumerate(self.calibrators)], 1))

    torch.set_default_dtype(torch.float64)
    x, y = data.table("diabetes")
    x, y, model = x.double(), y.double(), Net()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(2e-2))
    s.attach(model, optimizer)
    for inputs, targets in s.batches(x[:, [2, 3, 8, 9]], y, s.batch(32), 150):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        for part in (*model.calibrators, model.lattice):
            part.apply_constraints()
