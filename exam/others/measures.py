"""Programs about numbers: densities, processes, equations, graphs, geometry."""

import data
from session import program, train


@program("gpytorch", "gpytorch", "single layers")
def gaussian_process(s):
    """The package's first tutorial: an exact process, all points at each step."""
    import gpytorch
    import torch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x = torch.linspace(0, 1, 100)
    y = torch.sin(6.28 * x) + 0.2 * torch.randn(100)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, y, likelihood)
    optimizer = torch.optim.Adam(model.parameters(), s.rate(0.1))
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train()
    likelihood.train()
    s.attach(model, optimizer)
    for _ in range(140):
        optimizer.zero_grad()
        (-objective(model(x), y)).backward()
        optimizer.step()


@program("gpytorch-svgp", "gpytorch sklearn.datasets", "layers single targets inputs batches")
def sparse_process(s):
    """A variational process with learnt inducing points, on diabetes."""
    import gpytorch
    import torch
    from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self, points):
            super().__init__(VariationalStrategy(
                self, points, CholeskyVariationalDistribution(len(points)), True))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x, y = data.table("diabetes")
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x[:30].clone())
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], s.rate(0.02))
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
    model.train()
    s.attach(torch.nn.ModuleDict({"model": model, "likelihood": likelihood}), optimizer)
    for inputs, targets in s.batches(x, y[:, 0], s.batch(64), 150):
        optimizer.zero_grad()
        (-objective(model(inputs), targets)).backward()
        optimizer.step()


@program("pyro-bayesian-net", "pyro pyro.nn pyro.infer pyro.infer.autoguide sklearn.datasets", "single layers")
def bayesian(s):
    """A small network with random weights, by variational inference."""
    import pyro
    import torch
    from pyro.distributions import Normal
    from pyro.infer import Trace_ELBO
    from pyro.infer.autoguide import AutoDiagonalNormal
    from pyro.nn import PyroModule, PyroSample

    class Net(PyroModule):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = PyroModule[torch.nn.Linear](10, 8), PyroModule[torch.nn.Linear](8, 1)
            for layer in (self.fc1, self.fc2):
                layer.weight = PyroSample(Normal(0.0, 1.0).expand(layer.weight.shape).to_event(2))

        def forward(self, x, y=None):
            mean = self.fc2(torch.tanh(self.fc1(x))).squeeze(-1)
            with pyro.plate("data", len(x)):
                pyro.sample("obs", Normal(mean, 0.7), obs=y)
            return mean

    pyro.clear_param_store()
    x, y = data.table("diabetes")
    net = Net()
    guide = AutoDiagonalNormal(net)
    guide(x, y[:, 0])
    model = torch.nn.ModuleDict({"net": net, "guide": guide})
    optimizer = torch.optim.Adam(model.parameters(), s.rate(0.01))
    elbo = Trace_ELBO()
    s.attach(model, optimizer)
    for inputs, targets in s.batches(x, y[:, 0], s.batch(128), 150):
        optimizer.zero_grad()
        elbo.differentiable_loss(net, guide, inputs, targets).backward()
        optimizer.step()


@program("sbi-npe", "sbi.inference sbi.neural_nets sbi.utils", "single targets")
def posterior(s):
    """The package's own trainer of a neural posterior (a masked autoregressive flow)."""
    import torch
    from sbi.inference import NPE
    from sbi.neural_nets import posterior_nn
    from sbi.utils import BoxUniform
    prior = BoxUniform(-2 * torch.ones(3), 2 * torch.ones(3))
    theta = prior.sample((1500,))
    seen = theta + 1.0 + 0.1 * torch.randn(theta.shape)
    theta, seen = s.arrays(theta, seen)
    net = posterior_nn("maf", hidden_features=24, num_transforms=2)
    inference = NPE(prior, density_estimator=net, show_progress_bars=False)
    s.at_optimizer(lambda: inference._neural_net)
    inference.append_simulations(theta, seen).train(
        training_batch_size=s.batch(100), learning_rate=s.rate(5e-4), max_num_epochs=14)


@program("normflows-realnvp", "normflows sklearn.datasets", "single")
def realnvp(s):
    """Two moons by eight affine couplings."""
    import normflows
    import torch
    flows = []
    for _ in range(4):
        net = normflows.nets.MLP([1, 32, 32, 2], init_zeros=True)
        flows += [normflows.flows.AffineCouplingBlock(net), normflows.flows.Permute(2, mode="swap")]
    model = normflows.NormalizingFlow(normflows.distributions.base.DiagGaussian(2), flows)
    x, y = data.moons()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(5e-3), weight_decay=1e-5)
    s.attach(model, optimizer)
    for inputs, _ in s.batches(x, y, s.batch(128), 150):
        optimizer.zero_grad()
        loss = model.forward_kld(inputs)
        if not (torch.isnan(loss) | torch.isinf(loss)):
            loss.backward()
            optimizer.step()


@program("nflows-maf", "nflows.flows nflows.transforms nflows.distributions sklearn.datasets", "single")
def autoregressive_flow(s):
    import torch
    from nflows.distributions import StandardNormal
    from nflows.flows import Flow
    from nflows.transforms import CompositeTransform, MaskedAffineAutoregressiveTransform, \
        ReversePermutation
    parts = []
    for _ in range(3):
        parts += [ReversePermutation(features=2),
                  MaskedAffineAutoregressiveTransform(features=2, hidden_features=16)]
    model = Flow(CompositeTransform(parts), StandardNormal([2]))
    x, y = data.moons()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(2e-3))
    s.attach(model, optimizer)
    for inputs, _ in s.batches(x, y, s.batch(128), 150):
        optimizer.zero_grad()
        (-model.log_prob(inputs).mean()).backward()
        optimizer.step()


@program("torchdiffeq", "torchdiffeq", "single")
def neural_ode(s):
    """The package's demonstration: a spiral's derivative, through its solver."""
    import torch
    from torch import nn
    from torchdiffeq import odeint

    class Derivative(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
            for layer in (self.net[0], self.net[2]):
                nn.init.normal_(layer.weight, std=0.1)
                nn.init.zeros_(layer.bias)

        def forward(self, t, y):
            return self.net(y ** 3)

    times = torch.linspace(0.0, 25.0, 400)
    matrix = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    with torch.no_grad():
        path = odeint(lambda t, y: (y ** 3) @ matrix, torch.tensor([[2.0, 0.0]]), times)
    model = Derivative()
    optimizer = torch.optim.RMSprop(model.parameters(), s.rate(1e-3))
    s.attach(model, optimizer)
    for _ in range(140):
        starts = torch.as_tensor(s.draw.choice(390, s.batch(16), replace=False))
        optimizer.zero_grad()
        found = odeint(model, path[starts], times[:6], method="rk4")
        truth = torch.stack([path[starts + i] for i in range(6)])
        (found - truth).abs().mean().backward()
        optimizer.step()


@program("deepxde", "deepxde", "single")
def physics(s):
    """Poisson's equation in the package's own loop, with its defaults."""
    import deepxde
    import numpy
    import torch

    def equation(x, y):
        return -deepxde.grad.hessian(y, x) - numpy.pi ** 2 * torch.sin(numpy.pi * x)

    line = deepxde.geometry.Interval(-1, 1)
    edge = deepxde.icbc.DirichletBC(line, lambda x: 0, lambda x, on: on)
    points = deepxde.data.PDE(line, equation, edge, num_domain=s.batch(16), num_boundary=2)
    net = deepxde.nn.FNN([1, 20, 20, 20, 1], "tanh", "Glorot uniform")
    model = deepxde.Model(points, net)
    s.at_optimizer(lambda: net)
    model.compile("adam", lr=s.rate(3e-3))
    model.train(iterations=300, display_every=1000)


@program("neuralop-fno", "neuralop.models", "single targets inputs batches")
def fourier_operator(s):
    """A Fourier operator learns a step of heat."""
    import torch
    from neuralop.models import FNO
    model = FNO(n_modes=(8,), in_channels=1, out_channels=1, hidden_channels=12, n_layers=2)
    x, y = data.waves()
    optimizer = torch.optim.AdamW(model.parameters(), s.rate(5e-3), weight_decay=1e-4)
    train(s, model, optimizer, s.batches(x, y, s.batch(16), 130), torch.nn.MSELoss())


@program("e3nn-points", "e3nn.nn.models.gate_points_2101", "single")
def points(s):
    """Shapes of few points, turned at random, by an equivariant network."""
    import torch
    from torch_geometric.data import Batch, Data
    from e3nn.nn.models.gate_points_2101 import Network
    torch.manual_seed(s.seed)
    model = Network(
        irreps_in="1x0e", irreps_hidden="8x0e+4x1o", irreps_out="3x0e", irreps_node_attr="1x0e",
        irreps_edge_attr="0e+1o", layers=2, max_radius=2.5, number_of_basis=6, radial_layers=1,
        radial_neurons=16, num_neighbors=3.0, num_nodes=4.0)
    shapes = torch.tensor([[[0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0]],
                           [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]],
                           [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]]).float()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(1e-2))
    s.attach(model, optimizer)
    for _ in range(140):
        size = s.batch(12)
        labels = torch.as_tensor(s.draw.integers(0, 3, size))
        turns = torch.linalg.qr(torch.randn(size, 3, 3))[0]
        batch = Batch.from_data_list([Data(pos=p, x=torch.ones(4, 1), z=torch.ones(4, 1))
                                      for p in shapes[labels] @ turns])
        found = model({"pos": batch.pos, "x": batch.x, "z": batch.z, "batch": batch.batch})
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(found, labels).backward()
        optimizer.step()


@program("pyg-gcn-karate", "torch_geometric.nn torch_geometric.datasets", "single modes")
def karate(s):
    """Four clubs in one graph, four labeled nodes, all of it at each step."""
    import torch
    from torch_geometric.datasets import KarateClub
    from torch_geometric.nn.models import GCN
    graph = KarateClub()[0]
    model = GCN(graph.num_features, 16, num_layers=2, out_channels=4, dropout=0.2)
    optimizer = torch.optim.Adam(model.parameters(), s.rate(0.01), weight_decay=5e-4)
    s.attach(model, optimizer)
    for _ in range(140):
        model.train()
        optimizer.zero_grad()
        out = model(graph.x, graph.edge_index)
        torch.nn.functional.cross_entropy(out[graph.train_mask], graph.y[graph.train_mask]).backward()
        optimizer.step()


@program("pyg-gin-graphs", "torch_geometric.nn torch_geometric.loader torch_geometric.utils",
         "single targets modes")
def graph_classes(s):
    """Drawn graphs: how dense is each?"""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GIN, global_add_pool
    from torch_geometric.utils import erdos_renyi_graph
    torch.manual_seed(0)
    _, labels = s.arrays(None, torch.arange(400) % 3)
    graphs = [Data(x=torch.ones(12, 1), y=y, edge_index=erdos_renyi_graph(12, (0.15, 0.3, 0.5)[i % 3]))
              for i, y in enumerate(labels)]
    torch.manual_seed(s.seed)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gin, self.fc = GIN(1, 24, num_layers=2, norm="batch_norm"), torch.nn.Linear(24, 3)

        def forward(self, x, edges, batch):
            return self.fc(global_add_pool(self.gin(x, edges), batch))

    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(0.005))
    s.attach(model, optimizer)
    for _ in range(12):
        for batch in DataLoader(graphs, s.batch(32), shuffle=True):
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index, batch.batch)
            torch.nn.functional.cross_entropy(out, batch.y).backward()
            optimizer.step()


@program("pyg-vgae", "torch_geometric.nn torch_geometric.datasets torch_geometric.utils", "single")
def graph_autoencoder(s):
    import torch
    from torch_geometric.datasets import KarateClub
    from torch_geometric.nn import GCNConv, VGAE
    graph = KarateClub()[0]

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = GCNConv(34, 32)
            self.mean, self.logstd = GCNConv(32, 16), GCNConv(32, 16)

        def forward(self, x, edges):
            x = self.conv1(x, edges).relu()
            return self.mean(x, edges), self.logstd(x, edges)

    model = VGAE(Encoder())
    optimizer = torch.optim.Adam(model.parameters(), s.rate(0.01))
    s.attach(model, optimizer)
    for _ in range(140):
        optimizer.zero_grad()
        z = model.encode(graph.x, graph.edge_index)
        (model.recon_loss(z, graph.edge_index) + model.kl_loss() / 34).backward()
        optimizer.step()


@program("geoopt-poincare", "geoopt", "single layers")
def hyperbolic(s):
    """A tree of 31 nodes in the Poincare ball, by Riemannian Adam."""
    import geoopt
    import torch

    class Tree(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.ball = geoopt.PoincareBall()
            self.points = geoopt.ManifoldParameter(0.01 * torch.randn(31, 2), manifold=self.ball)

        def forward(self, a, b):
            return self.ball.dist(self.points[a], self.points[b])

    def far(a, b):
        steps = 0
        while a != b:
            a, b, steps = (a, (b - 1) // 2, steps + 1) if b > a else ((a - 1) // 2, b, steps + 1)
        return steps

    distance = torch.tensor([[far(a, b) for b in range(31)] for a in range(31)]).float()
    model = Tree()
    optimizer = geoopt.optim.RiemannianAdam(model.parameters(), s.rate(0.02))
    s.attach(model, optimizer)
    for _ in range(140):
        a, b = torch.as_tensor(s.draw.integers(0, 31, (2, s.batch(128))))
        a, b = a[a != b], b[a != b]
        optimizer.zero_grad()
        (model(a, b) - distance[a, b]).pow(2).mean().backward()
        optimizer.step()


@program("torchsde", "torchsde", "single")
def latent_sde(s):
    """Drift and noise of a stochastic equation so that its end is two hills."""
    import torch
    import torchsde
    from torch import nn

    class Equation(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.drift = nn.Sequential(nn.Linear(2, 24), nn.Softplus(), nn.Linear(24, 1))
            self.noise = nn.Sequential(nn.Linear(2, 16), nn.Softplus(), nn.Linear(16, 1), nn.Sigmoid())

        def f(self, t, y):
            return self.drift(torch.cat([y, t.expand_as(y)], 1))

        def g(self, t, y):
            return self.noise(torch.cat([y, t.expand_as(y)], 1))

        def forward(self, y):
            return torchsde.sdeint(self, y, torch.tensor([0.0, 1.0]), dt=0.125, method="euler")[-1]

    model = Equation()
    optimizer = torch.optim.Adam(model.parameters(), s.rate(2e-2))
    goal = torch.linspace(0.01, 0.99, 64)
    goal = torch.where(goal < 0.5, torch.erfinv(4 * goal - 1) * 0.3 - 1.5,
                       torch.erfinv(4 * goal - 3) * 0.3 + 1.5)
    s.attach(model, optimizer)
    for _ in range(140):
        optimizer.zero_grad()
        end = model(torch.randn(64 * (s.batch(16) // 16), 1)).sort(0).values
        end = end.view(64, -1).mean(1)
        (end - goal).pow(2).mean().backward()
        optimizer.step()
