"""More networks for sonde.check: of kinds that mix, share, freeze, draw or return in other ways
than a plain classifier, and mistakes as other people write them. The form is that of
check_networks.py."""

import collections

import torch
import torch.nn.functional as F
from torch import nn

from check_networks import ROWS, classes, family


def net(*sizes, act=nn.ReLU):
    layers = [layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), act())]
    return nn.Sequential(*layers[:-1])


# --- rows that are compared with each other ----------------------------------------------------


@family(("similarity of wrong rows", "mixing"), ("image tower frozen by detach", "reached"))
def clip_in_the_model(fault):
    """The model returns the similarity of every picture with every text."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.picture, self.text = net(20, 32, 8), net(12, 32, 8)
            self.scale = nn.Parameter(torch.tensor(2.6))

        def forward(self, picture, text):
            a, b = F.normalize(self.picture(picture), dim=-1), F.normalize(self.text(text), dim=-1)
            if fault == "similarity of wrong rows":
                a = a - a.mean(0)
            a = a.detach() if "tower" in fault else a
            logits = self.scale.exp() * a @ b.T
            return logits, logits.T

    def loss(model, batch):
        one, two = model(*batch)
        labels = torch.arange(len(one))
        return (F.cross_entropy(one, labels) + F.cross_entropy(two, labels)) / 2

    return Net(), loss, (torch.randn(ROWS, 20), torch.randn(ROWS, 12))


@family()
def supervised_contrastive(fault):
    def loss(output, labels):
        z = F.normalize(output, dim=1)
        same = (labels[:, None] == labels[None, :]) & ~torch.eye(len(z), dtype=torch.bool)
        logits = (z @ z.T / 0.1).masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
        chance = logits.log_softmax(1)
        return -(chance * same).sum(1).div(same.sum(1).clamp(min=1)).mean()

    return net(16, 32, 8), loss, (torch.randn(ROWS, 16), torch.arange(ROWS) % 3)


@family()
def simclr(fault):
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))

    def loss(model, batch):
        z = F.normalize(model(torch.cat(batch)), dim=1)
        logits = (z @ z.T / 0.5).masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
        return F.cross_entropy(logits, torch.arange(len(z)).roll(len(z) // 2))

    x = torch.randn(ROWS, 16)
    return model, loss, (x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))


@family()
def barlow_twins(fault):
    def loss(model, batch):
        a, b = (one.sub(one.mean(0)).div(one.std(0)) for one in map(model, batch))
        cross = a.T @ b / len(a)
        return (cross - torch.eye(8)).pow(2).sum()

    x = torch.randn(ROWS, 16)
    return net(16, 32, 8), loss, (x, x + 0.1 * torch.randn_like(x))


@family()
def prototypes(fault):
    def loss(model, batch):
        support, query, labels = batch
        centre = model(support).view(3, -1, 8).mean(1)
        return F.cross_entropy(-torch.cdist(model(query), centre), labels)

    return net(16, 32, 8), loss, (torch.randn(6, 16), torch.randn(9, 16), torch.arange(9) % 3)


@family(("one arm only", "reached"))
def byol(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.online, self.predict = net(16, 32, 8), net(8, 16, 8)
            self.target = net(16, 32, 8).requires_grad_(False)

        def forward(self, a, b):
            with torch.no_grad():
                target = self.target(b)
            x = self.online(a)
            return self.predict(x.detach() if fault else x), target

    def loss(model, batch):
        return 2 - 2 * F.cosine_similarity(*model(*batch)).mean()

    return Net(), loss, (torch.randn(ROWS, 16), torch.randn(ROWS, 16))


# --- generators --------------------------------------------------------------------------------


@family(("noise level unused", "output_on_input"))
def diffusion(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.time, self.body = nn.Embedding(20, 16), net(16 + 6, 64, 6, act=nn.SiLU)

        def forward(self, x, t):
            return self.body(torch.cat([x, self.time(t * 0 if fault else t)], 1))

    alpha = torch.linspace(0.99, 0.1, 20)

    def loss(model, x):
        t, noise = torch.randint(20, (len(x),)), torch.randn_like(x)
        a = alpha[t][:, None]
        return F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)

    return Net(), loss, torch.randn(ROWS, 6)


@family(("fakes detached", "reached"))
def gan_generator(fault):
    critic = nn.Sequential(nn.Linear(12, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    model = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 12), nn.Tanh())

    def loss(model, noise):
        fake = model(noise)
        return F.softplus(-critic(fake.detach() if fault else fake)).mean()

    return model, loss, torch.randn(ROWS, 4)


@family(("halves not exchanged", "reached"))
def coupling_flow(fault):
    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.nets = nn.ModuleList(net(3, 32, 6) for _ in range(3))
            for one in self.nets:
                nn.init.zeros_(one[-1].weight)
                nn.init.zeros_(one[-1].bias)

        def forward(self, x):
            a, b = x.chunk(2, 1)
            whole = 0.0
            for one in self.nets:
                shift, scale = one(a).chunk(2, 1)
                scale = scale.tanh()
                if fault == "halves not exchanged" and one is not self.nets[0]:
                    shift, scale = shift.detach(), scale.detach()
                b = b * scale.exp() + shift
                whole = whole + scale.sum(1)
                a, b = b, a
            z = torch.cat([a, b], 1)
            return z, whole

    def loss(model, x):
        z, whole = model(x)
        return (0.5 * z.pow(2).sum(1) - whole).mean()

    return Flow(), loss, torch.randn(ROWS, 6)


@family()
def actnorm_flow(fault):
    """Initial values come from the first batch."""
    class ActNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias, self.logs = nn.Parameter(torch.zeros(6)), nn.Parameter(torch.zeros(6))
            self.register_buffer("ready", torch.tensor(0, dtype=torch.uint8))

        def forward(self, x):
            if self.ready == 0:
                with torch.no_grad():
                    self.bias.copy_(-x.mean(0))
                    self.logs.copy_(-x.std(0).add(1e-6).log())
                    self.ready.fill_(1)
            return (x + self.bias) * self.logs.exp(), self.logs.sum()

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.weight = ActNorm(), nn.Parameter(torch.linalg.qr(torch.randn(6, 6))[0])

        def forward(self, x):
            x, whole = self.norm(x)
            return x @ self.weight, whole + torch.linalg.slogdet(self.weight)[1]

    def loss(output, x):
        z, whole = output
        return 0.5 * z.pow(2).sum(1).mean() - whole

    return Flow(), loss, torch.randn(ROWS, 6)


@family()
def masked_autoencoder(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = net(8, 32, 16), net(16, 32, 8)
            self.hidden = nn.Parameter(torch.zeros(8))

        def forward(self, x):
            hide = torch.rand(x.shape[:2], device=x.device) < 0.5
            return self.decode(self.encode(torch.where(hide[..., None], self.hidden, x))), hide

    def loss(output, x):
        guess, hide = output
        return ((guess - x).pow(2).mean(-1) * hide).sum() / hide.sum()

    return Net(), loss, torch.randn(ROWS, 6, 8)


@family()
def gumbel_codes(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.codes, self.decode = net(16, 32, 8), nn.Linear(8, 4, bias=False), net(4, 16)

        def forward(self, x):
            return self.decode(self.codes(F.gumbel_softmax(self.encode(x), hard=True)))

    return Net(), F.mse_loss, torch.randn(ROWS, 16)


# --- graphs, detection, physics ----------------------------------------------------------------


@family(("layers in a tuple", "registered"), ("labels of all nodes shifted", "labels"))
def graph_network(fault):
    """All nodes of one graph are one batch, and see each other."""
    class Gcn(nn.Module):
        def __init__(self):
            super().__init__()
            layers = nn.Linear(10, 16), nn.Linear(16, 4)
            self.layers = layers if fault == "layers in a tuple" else nn.ModuleList(layers)
            self.head = nn.Linear(4, 4)

        def forward(self, x, adjacency):
            for layer in self.layers:
                x = (adjacency @ layer(x)).relu()
            return self.head(x)

    links = (torch.rand(20, 20) > 0.8).float() + torch.eye(20)
    links = ((links + links.T) > 0).float()
    seen = torch.arange(20) < 12
    labels = torch.arange(20) % 4 + (1 if "shifted" in fault else 0)
    return Gcn(), lambda output, y: F.cross_entropy(output[seen], y[seen]), \
        (torch.randn(20, 10), links / links.sum(1, keepdim=True), labels)


@family()
def edge_list(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(10, 16), nn.Linear(16, 4)

        def forward(self, data):
            x, (source, target) = data["x"], data["edge_index"]
            x = self.one(x).relu()
            return self.two(x + torch.zeros_like(x).index_add(0, target, x[source]))

    def loss(model, data):
        return F.cross_entropy(model(data)[data["train_mask"]], data["y"][data["train_mask"]])

    return Net(), loss, {"x": torch.randn(20, 10), "edge_index": torch.randint(20, (2, 50)),
                         "y": torch.arange(20) % 4, "train_mask": torch.arange(20) < 10}


class Data:
    """A batch that is an object of the program's own class."""

    def __init__(self, **values):
        self.__dict__.update(values)

    def to(self, device):
        return Data(**{name: value.to(device) for name, value in vars(self).items()})


@family(("hidden features detached", "reached"))
def batch_object(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(10, 16), nn.Linear(16, 1)

        def forward(self, data):
            x = self.one(data.x).relu()
            x = x.detach() if fault else x
            return self.two(x.new_zeros(4, 16).index_add(0, data.batch, x)).squeeze(1)

    return Net(), lambda model, data: F.mse_loss(model(data), data.y), \
        Data(x=torch.randn(20, 10), batch=torch.arange(20) // 5, y=torch.randn(4))


@family(("boxes not in the loss", "reached"))
def detection_of_dicts(fault):
    """In training the losses come out, in evaluation the boxes."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Conv2d(3, 8, 3, 2, 1)
            self.kinds, self.boxes = nn.Linear(8, 3), nn.Linear(8, 4)

        def forward(self, images, targets=None):
            x = self.body(torch.stack(images)).relu().mean((2, 3))
            kinds, boxes = self.kinds(x), self.boxes(x)
            if not self.training:
                return [{"labels": k.argmax(-1), "boxes": b} for k, b in zip(kinds, boxes)]
            labels = torch.cat([one["labels"] for one in targets])
            wanted = torch.stack([one["boxes"][0] for one in targets])
            return {"kinds": F.cross_entropy(kinds, labels), "boxes": F.l1_loss(boxes, wanted)}

    def loss(model, batch):
        images, targets = batch
        losses = model(images, targets)
        return losses["kinds"] if fault else sum(losses.values())

    return Net(), loss, ([torch.rand(3, 16, 16) for _ in range(4)],
                         [{"labels": torch.tensor([n % 3]), "boxes": torch.rand(1, 4)} for n in range(4)])


@family(("energy of a constant", "reached", "output_on_input"))
def forces(fault):
    """The output is a derivative by the input."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = net(6, 32, 1, act=nn.Softplus)

        def forward(self, x):
            with torch.enable_grad():
                x = x.requires_grad_()
                energy = self.body(x.detach() if fault else x).sum() + (x.pow(2).sum() if fault else 0)
                return -torch.autograd.grad(energy, x, create_graph=True)[0]

    return Net(), F.mse_loss, (torch.randn(ROWS, 6), torch.randn(ROWS, 6))


@family()
def differential_equation(fault):
    """A loss of derivatives by the input, without targets."""
    def loss(model, x):
        x = x.requires_grad_()
        u = model(x)
        slope = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        return (slope + u).pow(2).mean() + (model(torch.zeros(1, 1)) - 1).pow(2).mean()

    return net(1, 32, 1, act=nn.Tanh), loss, torch.rand(ROWS, 1)


@family()
def fourier_operator(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(1, 8), nn.Linear(8, 1)
            self.weight = nn.Parameter(torch.randn(8, 8, 5, dtype=torch.cfloat) / 8)

        def forward(self, x):
            x = self.up(x).transpose(1, 2)
            high = torch.einsum("bim,iom->bom", torch.fft.rfft(x)[..., :5], self.weight)
            x = F.gelu(x + torch.fft.irfft(high, n=x.shape[-1]))
            return self.down(x.transpose(1, 2))

    return Net(), F.mse_loss, (torch.randn(ROWS, 16, 1), torch.randn(ROWS, 16, 1))


# --- weights of other kinds --------------------------------------------------------------------


@family(("rows of one user", "target_rows"))
def sparse_embeddings(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.user, self.film = (nn.Embedding(30, 8, sparse=True) for _ in range(2))

        def forward(self, user, film):
            return (self.user(user) * self.film(film)).sum(1)

    model = Net()
    y = torch.randint(1, 6, (ROWS,)).float()
    return model, F.mse_loss if not fault else lambda p, y: (p[:, None] - y[None, :]).pow(2).mean(), \
        (torch.randint(30, (ROWS,)), torch.randint(30, (ROWS,)), y), \
        torch.optim.SparseAdam(model.parameters(), 0.01)


@family()
def lazy_layers(fault):
    model = nn.Sequential(nn.LazyConv2d(8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))
    return model, F.cross_entropy, (torch.randn(ROWS, 3, 8, 8), classes(5)), None


@family(("only the head is held", "held"))
def spectral_hook(fault):
    norm = nn.utils.spectral_norm
    model = nn.Sequential(norm(nn.Conv2d(1, 8, 3, 2, 1)), nn.LeakyReLU(0.2), nn.Flatten(),
                          norm(nn.Linear(8 * 16, 1)))
    return model, lambda p, y: F.relu(1 - p[:, 0] * (2 * y - 1)).mean(), \
        (torch.randn(ROWS, 1, 8, 8), classes(2).float()), \
        torch.optim.Adam((model[3] if fault else model).parameters(), 1e-3)


@family(("one layer in double", "dtypes", "runs"))
def low_precision(fault):
    model = net(16, 64, 64, 4).to(torch.bfloat16)
    if fault:
        model[2].double()
    return model, lambda output, y: F.cross_entropy(output.float(), y), \
        (torch.randn(ROWS, 16).to(torch.bfloat16), classes(4))


@family()
def autocast(fault):
    def loss(model, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(model(batch[0]), batch[1])

    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                         nn.Linear(8 * 36, 4)), loss, (torch.randn(ROWS, 3, 8, 8), classes(4))


@family(("adapter before the base", "reached"), ("base held, adapter forgotten", "held"))
def adapter_on_frozen_base(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = net(16, 32, 32).requires_grad_(False).eval()
            self.adapter, self.head = net(32, 4, 32), nn.Linear(32, 5)
            nn.init.zeros_(self.adapter[-1].weight)

        def train(self, mode=True):
            super().train(mode)
            self.base.eval()
            return self

        def forward(self, x):
            with torch.no_grad():
                x = self.base(x)
                if fault == "adapter before the base":
                    x = x + self.adapter(x)
            return self.head(x if fault == "adapter before the base" else x + self.adapter(x))

    model = Net()
    held = model.head if fault.startswith("base held") else model
    return model, F.cross_entropy, (torch.randn(ROWS, 16), classes(5)), \
        torch.optim.Adam([value for value in held.parameters() if value.requires_grad], 1e-3)


@family()
def hypernetwork(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.code, self.make = nn.Parameter(torch.randn(8)), nn.Linear(8, 16 * 4 + 4)
            self.frame = nn.Linear(16, 4).requires_grad_(False)

        def forward(self, x):
            weights = self.make(self.code)
            return torch.func.functional_call(
                self.frame, {"weight": weights[:64].view(4, 16), "bias": weights[64:]}, (x,))

    return Net(), F.cross_entropy, (torch.randn(ROWS, 16), classes(4))


@family(("depth never drawn", "deterministic"))
def stochastic_depth(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(16, 32)
            self.blocks = nn.ModuleList(net(32, 32, 32) for _ in range(3))
            self.head = nn.Linear(32, 4)

        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                if fault:
                    x = x + nn.Dropout(0.2)(block(x))
                elif self.training:
                    keep = (torch.rand(len(x), 1) > 0.2).float() / 0.8
                    x = x + keep * block(x)
                else:
                    x = x + block(x)
            return self.head(x)

    return Net(), F.cross_entropy, (torch.randn(ROWS, 16), classes(4))


@family()
def batch_statistics_kept(fault):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU(),
                          nn.InstanceNorm2d(8, affine=True), nn.Conv2d(8, 4, 3),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return model, F.cross_entropy, (torch.randn(ROWS, 3, 8, 8), classes(4))


@family()
def deep_set(fault):
    """One set is one row: its elements see each other."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.each, self.all = net(3, 16, 16), net(16, 16, 2)

        def forward(self, x):
            return self.all(self.each(x).sum(0, keepdim=True))

    return Net(), F.cross_entropy, (torch.randn(9, 3), torch.tensor([1]))


# --- rewards -----------------------------------------------------------------------------------


Move = collections.namedtuple("Move", "state action reward following")


@family(("column against row", "target_rows"), ("value detached", "reached"))
def q_learning(fault):
    model, target = net(4, 32, 3), net(4, 32, 3)

    def loss(model, move):
        value = model(move.state)
        value = value.gather(1, move.action[:, None])
        value = value.detach() if fault == "value detached" else value if fault else value[:, 0]
        with torch.no_grad():
            wanted = move.reward + 0.9 * target(move.following).max(1)[0]
        return F.smooth_l1_loss(value, wanted) if fault != "value detached" else \
            F.smooth_l1_loss(value[:, 0], wanted)

    return model, loss, Move(torch.randn(ROWS, 4), classes(3), torch.randn(ROWS),
                             torch.randn(ROWS, 4))


@family(("critic forgotten", "reached"))
def actor_critic(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.actor, self.critic = net(4, 32, 32), nn.Linear(32, 3), nn.Linear(32, 1)

        def forward(self, state):
            x = self.body(state).tanh()
            return self.actor(x), self.critic(x)[:, 0]

    def loss(model, move):
        logits, value = model(move.state)
        chance = torch.distributions.Categorical(logits=logits)
        gain = move.reward - value
        actor = -(chance.log_prob(move.action) * gain.detach()).mean() - 0.01 * chance.entropy().mean()
        return actor if fault else actor + 0.5 * gain.pow(2).mean()

    return Net(), loss, Move(torch.randn(ROWS, 4), classes(3), torch.randn(ROWS), torch.randn(ROWS, 4))


@family(("ratio of itself", "reached"))
def clipped_policy(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean, self.log_std = net(4, 32, 2, act=nn.Tanh), nn.Parameter(torch.zeros(2))

        def forward(self, state):
            return torch.distributions.Normal(self.mean(state), self.log_std.exp())

    def loss(model, batch):
        state, action, before, gain = batch
        log = model(state).log_prob(action).sum(1)
        ratio = (log - (log if fault else before)).exp()
        return -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()

    return Net(), loss, (torch.randn(ROWS, 4), torch.randn(ROWS, 2), torch.randn(ROWS) - 3,
                         torch.randn(ROWS))


# --- own gradients, modes, losses ---------------------------------------------------------------


class Swish(torch.autograd.Function):
    fault = ""

    @staticmethod
    def forward(ctx, x, gain):
        ctx.save_for_backward(x, gain)
        return x * torch.sigmoid(x) * gain

    @classmethod
    def slopes(cls, x, gain):
        s = torch.sigmoid(x)
        one = s * (1 + x * (1 - s)) if cls.fault != "product rule forgotten" else s * (1 - s)
        return one * gain, x * s

    @classmethod
    def backward(cls, ctx, gradient):
        by_x, by_gain = cls.slopes(*ctx.saved_tensors)
        if cls.fault == "mean for sum":
            return gradient * by_x, (gradient * by_gain).mean(0)
        if cls.fault == "gain of the input":
            return gradient * by_gain, (gradient * by_x).sum(0)
        return gradient * by_x, (gradient * by_gain).sum(0)


@family(("product rule forgotten", "functions"), ("mean for sum", "functions"),
        ("gain of the input", "functions"))
def own_activation(fault):
    function = type("Swish", (Swish,), {"fault": fault, "__module__": __name__})

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(16, 32), nn.Linear(32, 4)
            self.gain = nn.Parameter(torch.ones(32))

        def forward(self, x):
            return self.two(function.apply(self.one(x), self.gain))

    return Net(), F.cross_entropy, (torch.randn(ROWS, 16), classes(4))


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x * 4).round() / 4

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@family(("rounded without it", "reached"))
def straight_through(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(16, 32), nn.Linear(32, 4)

        def forward(self, x):
            x = self.one(x).tanh()
            return self.two((x * 4).round() / 4 if fault else Rounded.apply(x))

    return Net(), F.cross_entropy, (torch.randn(ROWS, 16), classes(4))


@family(("norm in training alone", "modes"), ("other gain in evaluation", "modes"))
def mode_of_a_norm(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.norm, self.two = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)

        def forward(self, x):
            x = self.one(x)
            x = x if fault.startswith("norm") and not self.training else self.norm(x)
            gain = 2.0 if fault.startswith("other") and not self.training else 1.0
            return self.two(gain * x.relu())

    return Net(), F.cross_entropy, (torch.randn(ROWS, 16), classes(4))


@family(("of the own guess", "loss_on_targets"), ("of counts", "target_rows"),
        ("ones for labels", "loss_on_targets"))
def loss_of_labels(fault):
    def loss(output, y):
        if fault == "of the own guess":
            return F.cross_entropy(output, output.detach().softmax(1))
        if fault == "of counts":
            share = F.one_hot(y, 4).float().mean(0)
            return -(share * output.log_softmax(1).mean(0)).sum()
        return F.cross_entropy(output, torch.ones_like(y) if fault else y)

    return net(16, 32, 4), loss, (torch.randn(ROWS, 16), classes(4))


@family(("softmax of one unit", "output_on_input", "reached"), ("scores of the batch size", "batch"),
        ("largest of all rows", "mixing"))
def attention_pooling(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.score, self.value = nn.Linear(8, 1), nn.Linear(8, 1 if fault.startswith("softmax") else 3)

        def forward(self, x):
            weight = self.score(x).softmax(1)
            out = (weight * self.value(x)).sum(1)
            if fault.startswith("softmax"):
                return out.softmax(-1)
            if fault.startswith("scores"):
                return out * len(x) ** 0.5
            return out / out.abs().max() if fault else out

    return Net(), F.mse_loss if fault.startswith("softmax") else F.cross_entropy, \
        (torch.randn(ROWS, 6, 8), torch.rand(ROWS, 1) if fault.startswith("softmax") else classes(3))


@family(("negative targets", "reachable"), ("sigmoid of grades", "reachable"))
def bounded_output(fault):
    last = nn.Sigmoid() if fault.startswith("sigmoid") else nn.Softplus()
    y = {"negative targets": torch.randn(ROWS, 1), "sigmoid of grades": 1 + classes(5).float()[:, None]}
    return nn.Sequential(net(8, 32, 1), last), F.mse_loss, \
        (torch.randn(ROWS, 8), y.get(fault, torch.rand(ROWS, 1)))
