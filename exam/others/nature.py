"""Programs about equations, waves, atoms and genes, from packages that parts 1 to 4 do not use."""

import data
from scenes import own
from session import program, train
from trainers import callbacks

ALL = "single targets inputs batches classes logits"
SIMPLE = "single targets inputs batches"


def quiet(s, **more):
    """Options of Lightning's trainer."""
    return {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
            "enable_model_summary": False, "accelerator": "cpu", "default_root_dir": s.folder,
            "callbacks": callbacks(s), **more}


@program("torchani", "torchani.arch", SIMPLE)
def torchani(s):
    """Energies of drawn shapes of water and methanol's kin: atomic networks on symmetry functions."""
    import torch
    from torchani.arch import simple_ani
    model = simple_ani(["H", "C", "O"], lot="wb97x-631gd", radial_shifts=8, angular_shifts=4, sections=4,
                       repulsion=False)
    draw = torch.Generator().manual_seed(0)
    kinds = torch.tensor([[6, 8, 1, 1, 1, 1]])
    x = torch.tensor([[0., 0, 0], [1.4, 0, 0], [1.7, 0.9, 0], [-0.4, 1, 0],
                      [-0.4, -0.5, 0.9], [-0.4, -0.5, -0.9]])
    x = x + 0.15 * torch.randn(400, 6, 3, generator=draw)
    far = torch.cdist(x, x) + 10 * torch.eye(6)
    y = (1 / far ** 2).sum((1, 2)) / 5
    y = (y - y.mean()) / y.std()
    with torch.no_grad():
        level = model((kinds.expand(50, 6), x[:50])).energies.mean()
    optimizer = s.optimizer("AdamW", model.parameters(), 1e-3)
    own(s, model, optimizer, s.batches(x, y, s.batch(16), s.steps(120)), lambda x, y:
        torch.nn.functional.mse_loss((model((kinds.expand(len(x), 6), x)).energies - level).float(), y))


@program("deepwave-inversion", "deepwave", "single layers")
def inversion(s):
    """What lies below from echoes: the package's example with a speed kept within bounds."""
    import deepwave
    import torch

    class Model(torch.nn.Module):
        def __init__(self, initial):
            super().__init__()
            self.model = torch.nn.Parameter(torch.logit((initial - 1400.0) / 1200.0))

        def forward(self):
            return torch.sigmoid(self.model) * 1200.0 + 1400.0

    true = torch.full((24, 32), 1800.0)
    true[10:16, 12:20] = 2100.0
    shots = s.batch(3)
    sources = torch.zeros(shots, 1, 2, dtype=torch.long)
    sources[:, 0, 1] = torch.linspace(4, 28, shots).long()
    receivers = torch.zeros(shots, 32, 2, dtype=torch.long)
    receivers[:, :, 1] = torch.arange(32)
    wave = deepwave.wavelets.ricker(20, 70, 0.003, 0.05).repeat(shots, 1, 1)

    def echoes(speed):
        return deepwave.scalar(speed, 8.0, 0.003, source_amplitudes=wave, source_locations=sources,
                               receiver_locations=receivers, pml_width=6, pml_freq=20)[-1]

    with torch.no_grad():
        seen = echoes(true)
    model = Model(torch.full((24, 32), 1800.0))
    optimizer = s.optimizer("Adam", model.parameters(), 0.03)
    s.attach(model, optimizer)
    for _ in range(s.steps(110)):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(echoes(model()), seen)
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), torch.quantile(model.model.grad.abs(), 0.98).item())
        optimizer.step()


@program("torchoptics-splitter", "torchoptics torchoptics.elements torchoptics.profiles", "single layers")
def splitter(s):
    """Three plates that split a beam into four, as in the package's example: phases are trained."""
    import torch
    import torchoptics
    from torchoptics import Field, System
    from torchoptics.elements import PhaseModulator
    from torchoptics.profiles import gaussian
    torchoptics.set_default_spacing(10e-6)
    torchoptics.set_default_wavelength(700e-9)
    size = 48
    begin = Field(gaussian(size, 120e-6), z=0)
    wanted = Field(sum(gaussian(size, 60e-6, offset=(y, x)) for y in (-1e-4, 1e-4)
                       for x in (-1e-4, 1e-4)), z=0.12)
    begin, wanted = begin.normalize(), wanted.normalize()
    model = System(*(PhaseModulator(torch.nn.Parameter(0.1 * torch.randn(size, size)), z=z)
                     for z in (0.0, 0.04, 0.08)))
    optimizer = s.optimizer("Adam", model.parameters(), 0.05)
    s.attach(model, optimizer)
    for _ in range(s.steps(110)):
        optimizer.zero_grad()
        found = model.measure_at_z(begin, 0.12)
        (1 - found.inner(wanted).abs().square()).backward()
        optimizer.step()


@program("torchdyn-ode", "torchdyn.core sklearn.datasets", "single targets inputs batches classes")
def torchdyn(s):
    """Moons carried apart by a flow in time: the first tutorial, with the adjoint's gradients."""
    import torch
    from torch import nn
    from torchdyn.core import NeuralODE
    model = NeuralODE(nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2)), sensitivity="adjoint",
                      solver="rk4", atol=1e-3, rtol=1e-3)
    span = torch.linspace(0, 1, 5)
    optimizer = s.optimizer("Adam", model.parameters(), 1e-2)
    own(s, model, optimizer, s.batches(*data.moons(), s.batch(64), s.steps(110)), lambda x, y:
        nn.functional.cross_entropy(model(x, span)[1][-1], y))


@program("torchphysics-poisson", "torchphysics pytorch_lightning sonde.lightning", "single")
def physics(s):
    """u'' = -sin on a line, the ends held: conditions, samplers and solver of the package (Lightning)."""
    import pytorch_lightning
    import torch
    import torchphysics as tp
    X, U = tp.spaces.R1("x"), tp.spaces.R1("u")
    line = tp.domains.Interval(X, 0, 3.14159)
    model = tp.models.FCN(input_space=X, output_space=U, hidden=(24, 24))

    def residual(u, x):
        return tp.utils.laplacian(u, x) + torch.sin(x)

    inside = tp.conditions.PINNCondition(
        module=model, sampler=tp.samplers.RandomUniformSampler(line, n_points=s.batch(64)), residual_fn=residual)
    ends = tp.conditions.PINNCondition(
        module=model, sampler=tp.samplers.RandomUniformSampler(line.boundary, n_points=8),
        residual_fn=lambda u: u, weight=5.0)
    solver = tp.solver.Solver([inside, ends], optimizer_setting=tp.OptimizerSetting(
        torch.optim.Adam, lr=s.rate(3e-3)))
    pytorch_lightning.Trainer(max_steps=s.steps(200), **quiet(s)).fit(solver)


@program("pina-ode", "pina.solver pina.trainer sonde.lightning", "single")
def pina(s):
    """The package's first tutorial: u' = u with u(0) = 1, by a network of ten and ten (Lightning)."""
    import torch
    from pina import Condition, Trainer
    from pina.domain import CartesianDomain
    from pina.equation import Equation
    from pina.model import FeedForward
    from pina.operator import grad
    from pina.optim import TorchOptimizer
    from pina.problem import SpatialProblem
    from pina.solver import PINN

    def derivative(inputs, found):
        return grad(found, inputs, components=["u"], d=["x"]) - found.extract(["u"])

    class Problem(SpatialProblem):
        output_variables = ["u"]
        spatial_domain = CartesianDomain({"x": [0, 1]})
        domains = {"start": CartesianDomain({"x": 0.0}), "line": CartesianDomain({"x": [0, 1]})}
        conditions = {"start": Condition(domain="start", equation=Equation(lambda i, o: o.extract(["u"]) - 1)),
                      "line": Condition(domain="line", equation=Equation(derivative))}

    problem = Problem()
    problem.discretise_domain(1, "grid", domains="start")
    problem.discretise_domain(s.batch(20), "random", domains="line")
    model = FeedForward(layers=[10, 10], func=torch.nn.Tanh, output_dimensions=1, input_dimensions=1)
    solver = PINN(problem, model, optimizer=TorchOptimizer(torch.optim.Adam, lr=s.rate(5e-3)))
    Trainer(solver, max_epochs=s.steps(200), **quiet(s)).train()


@program("bpnet-lite", "bpnetlite.bpnet", "single inputs batches relu")
def bpnet(s):
    """Where along drawn DNA does a motif bind: profiles and counts in one loss."""
    import torch
    from bpnetlite.bpnet import BPNet
    draw = torch.Generator().manual_seed(0)
    letters = torch.randint(0, 4, (500, 160), generator=draw)
    profile = torch.rand(500, 1, 100, generator=draw).mul(0.3)
    for i in range(500):
        at = int(torch.randint(40, 110, (1,), generator=draw))
        letters[i, at:at + 6] = torch.tensor([0, 2, 3, 1, 1, 0])
        profile[i, 0, at - 33:at - 21] += 3.0
    x = torch.nn.functional.one_hot(letters, 4).float().mT.contiguous()
    y = torch.poisson(profile, generator=draw)
    model = BPNet(n_filters=16, n_layers=3, n_outputs=1, n_control_tracks=0, trimming=30, verbose=False)
    optimizer = s.optimizer("AdamW", model.parameters(), 3e-3)

    def loss(x, y):
        profiles, counts = model(x)
        return -(profiles.flatten(1).log_softmax(-1) * y.flatten(1)).sum(1).mean() / 20 + \
            (counts[:, 0] - torch.log1p(y.sum((1, 2)))).pow(2).mean()

    own(s, model, optimizer, s.batches(x, y, s.batch(16), s.steps(120)), loss)


@program("gvp-proteins", "geometric_vector_perceptron", SIMPLE)
def gvp(s):
    """How much room do four arrows enclose? Numbers and arrows through perceptrons that turn with them."""
    import torch
    from geometric_vector_perceptron import GVP
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = GVP(dim_vectors_in=4, dim_vectors_out=16, dim_feats_in=1, dim_feats_out=24,
                             feats_activation=nn.ReLU(), vector_gating=True)
            self.second = GVP(dim_vectors_in=16, dim_vectors_out=8, dim_feats_in=24, dim_feats_out=24,
                              feats_activation=nn.ReLU(), vector_gating=True)
            self.last = nn.Linear(24, 1)

        def forward(self, x):
            found, _ = self.second(self.first((x.norm(dim=-1).mean(1, keepdim=True), x)))
            return self.last(found)

    x = torch.randn(1000, 4, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] * x[:, 1]).sum(1, keepdim=True) + (x[:, 2] - x[:, 3]).norm(dim=1, keepdim=True)
    model = Net()
    optimizer = s.optimizer("Adam", model.parameters(), 3e-3)
    train(s, model, optimizer, s.batches(x, y, s.batch(32), s.steps(160)), nn.MSELoss())


@program("chemprop", "chemprop.models chemprop.nn chemprop.data lightning.pytorch sonde.lightning", "single")
def chemprop(s):
    """How oily are drawn chains of atoms? Messages along bonds, Noam's schedule (Lightning)."""
    import random
    import lightning.pytorch
    import torch
    from chemprop import data as molecules
    from chemprop import models, nn
    from rdkit.Chem import MolFromSmiles
    from rdkit.Chem.Crippen import MolLogP
    draw = random.Random(0)
    names = ["C" + "".join(draw.choice(["C", "C", "O", "N", "C(C)", "C(=O)", "S", "c1ccccc1"])
                           for _ in range(draw.randrange(2, 7))) + draw.choice(["", "Cl", "Br", "O"])
             for _ in range(300)]
    names = [n for n in names if MolFromSmiles(n) is not None]
    points = [molecules.MoleculeDatapoint.from_smi(n, [MolLogP(MolFromSmiles(n))]) for n in names]
    kept = molecules.MoleculeDataset(points)
    kept.normalize_targets()
    loader = molecules.build_dataloader(kept, batch_size=s.batch(16), num_workers=0, seed=s.seed)
    torch.manual_seed(s.seed)
    model = models.MPNN(nn.BondMessagePassing(d_h=32), nn.MeanAggregation(), nn.RegressionFFN(
        input_dim=32, hidden_dim=32), batch_norm=True, init_lr=s.rate(3e-4), max_lr=s.rate(3e-3),
        final_lr=s.rate(3e-4))
    lightning.pytorch.Trainer(max_epochs=s.steps(8), **quiet(s)).fit(model, loader)


@program("torchdeq", "torchdeq sklearn.datasets", ALL)
def torchdeq(s):
    """A layer that is its own fixed point, with gradients by the implicit function."""
    import torch
    from torch import nn
    from torchdeq import get_deq

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.again, self.out = nn.Linear(64, 32), nn.Linear(32, 32), nn.Linear(32, 10)
            nn.init.normal_(self.again.weight, std=0.08)
            self.deq = get_deq(f_solver="fixed_point_iter", b_solver="fixed_point_iter", f_max_iter=12,
                               b_max_iter=12, ift=True)

        def forward(self, x):
            injected = self.into(x.flatten(1))
            z, _ = self.deq(lambda z: torch.tanh(self.again(z) + injected), torch.zeros_like(injected))
            return self.out(z[-1])

    model = Net()
    optimizer = s.optimizer("Adam", model.parameters(), 3e-3)
    train(s, model, optimizer, s.batches(*data.digits(), s.batch(32), s.steps(130)), nn.CrossEntropyLoss())


@program("flowtorch-autoregressive", "flowtorch.bijectors flowtorch.parameters flowtorch.distributions "
         "sklearn.datasets", "single inputs batches")
def flowtorch(s):
    """Density of moons, one measure after the other: the package's first example."""
    import flowtorch.bijectors as bij
    import flowtorch.distributions as dist
    import flowtorch.parameters as params
    import torch
    base = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(2), torch.ones(2)), 1)
    flow = dist.Flow(base, bij.AffineAutoregressive(params_fn=params.DenseAutoregressive(hidden_dims=(32, 32))))
    x, y = data.moons()
    optimizer = s.optimizer("Adam", flow.parameters(), 5e-3)
    own(s, flow, optimizer, s.batches(x, y, s.batch(128), s.steps(150)), lambda x, y: -flow.log_prob(x).mean())


@program("lampe-ratio", "lampe.inference", SIMPLE)
def lampe(s):
    """What cause fits what was seen? The ratio of densities by a network that tells pairs apart."""
    import torch
    from lampe.inference import NRE, NRELoss
    draw = torch.Generator().manual_seed(0)
    cause = torch.rand(2000, 3, generator=draw) * 2 - 1
    seen = torch.cat([cause[:, :2] + cause[:, 2:] ** 2, cause[:, 1:] * cause[:, :2]], 1)
    seen = seen + 0.1 * torch.randn(seen.shape, generator=draw)
    model = NRE(3, 4, hidden_features=[48, 48], activation=torch.nn.ELU)
    loss = NRELoss(model)
    optimizer = s.optimizer("AdamW", model.parameters(), 2e-3)
    own(s, model, optimizer, s.batches(seen, cause, s.batch(128), s.steps(160)), lambda x, y: loss(y, x))


@program("torch-harmonics", "torch_harmonics torch_harmonics.examples.models", SIMPLE)
def harmonics(s):
    """Weather of a drawn globe: what diffusion does, by an operator on spherical harmonics."""
    import torch
    from torch import nn
    from torch_harmonics import InverseRealSHT, RealSHT

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.back = RealSHT(16, 32, grid="equiangular"), InverseRealSHT(16, 32, grid="equiangular")
            self.lift, self.out = nn.Conv2d(1, 8, 1), nn.Conv2d(8, 1, 1)
            self.filter = nn.Parameter(torch.randn(8, 8, self.into.lmax, 2) / 8)
            self.local = nn.Conv2d(8, 8, 1)

        def forward(self, x):
            x = self.lift(x)
            waves = torch.einsum("bilm,iol->bolm", self.into(x), torch.view_as_complex(self.filter))
            return self.out(nn.functional.gelu(self.back(waves) + self.local(x)))

    into, back = RealSHT(16, 32, grid="equiangular"), InverseRealSHT(16, 32, grid="equiangular")
    x = back(into(torch.randn(500, 1, 16, 32, generator=torch.Generator().manual_seed(0))))
    degree = torch.arange(into.lmax)[:, None]
    y = back(into(x) * torch.exp(-0.02 * degree * (degree + 1)))
    y = y / y.std()
    model = Net()
    optimizer = s.optimizer("Adam", model.parameters(), 5e-3)
    train(s, model, optimizer, s.batches(x, y, s.batch(16), s.steps(120)), nn.MSELoss())


@program("botorch-gp", "botorch.models botorch.optim.fit gpytorch.mlls", "single layers")
def botorch(s):
    """A Gaussian process with the package's priors, fitted by its own loop over a torch optimizer."""
    import torch
    from botorch.models import SingleTaskGP
    from botorch.optim.fit import fit_gpytorch_mll_torch
    from botorch.optim.stopping import ExpMAStoppingCriterion
    from gpytorch.mlls import ExactMarginalLogLikelihood
    x = torch.rand(s.batch(24), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(s.seed))
    y = (6 * x[:, :1]).sin() + x[:, 1:2] * x[:, 2:]
    model = SingleTaskGP(x, y)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)

    def made(parameters):
        optimizer = s.optimizer("Adam", parameters, 3e-2)
        s.attach(model, optimizer)
        return optimizer

    fit_gpytorch_mll_torch(mll, step_limit=s.steps(130), optimizer=made, scheduler=None,
                           stopping_criterion=ExpMAStoppingCriterion(rel_tol=-1e9))
