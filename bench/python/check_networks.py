"""Small networks of many families, healthy, and with a planted fault, for sonde.check.

HEALTHY[name]() and FAULTS[name][0]() return (model, loss_fn, batch, optimizer); FAULTS[name][1]
has the names of the properties any of which the fault breaks. The functions take the name of a
fault as their argument: "" is the healthy network.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

ROWS = 12
HEALTHY, FAULTS = {}, {}


def family(*faults):
    """Registers a function of a network: healthy, and with each fault ("name", properties)."""
    def register(build):
        def made(fault):
            torch.manual_seed(3)
            model, loss_fn, batch, *rest = build(fault)
            optimizer = rest[0] if rest else torch.optim.Adam(
                [value for value in model.parameters() if value.requires_grad], 1e-3)
            return model, loss_fn, batch, optimizer
        HEALTHY[build.__name__] = lambda: made("")
        for name, *properties in faults:
            FAULTS[f"{build.__name__}/{name}"] = (lambda name=name: made(name), set(properties))
        return build
    return register


def classes(count, *shape):
    return torch.randint(count, shape or (ROWS,))


# --- dense networks ---------------------------------------------------------------------------


class Mlp(nn.Module):
    def __init__(self, fault, inputs=20, outputs=5):
        super().__init__()
        self.fault = fault
        self.fc1, self.fc2 = nn.Linear(inputs, 32), nn.Linear(32, 32)
        self.out = nn.Linear(32, outputs)
        if fault == "list":
            self.more = [nn.Linear(32, 32)]
        if fault == "dictionary":
            self.heads = {"a": nn.Linear(32, 32)}
        if fault == "unused":
            self.extra = nn.Linear(32, 32)
        if fault == "plain tensor":
            self.gain = torch.ones(32, requires_grad=True)

    def forward(self, x):
        fault = self.fault
        x = F.relu(self.fc1(x))
        if fault == "detached":
            x = x.detach()
        if fault == "list":
            x = F.relu(self.more[0](x))
        if fault == "dictionary":
            x = F.relu(self.heads["a"](x))
        if fault == "plain tensor":
            x = x * self.gain
        if fault == "dropout in evaluation":
            x = F.dropout(x, 0.3)
        if fault == "batch mean":
            x = x - x.mean(0, keepdim=True)
        if fault == "batch softmax":
            x = x * F.softmax(x, dim=0)
        if fault == "no_grad":
            with torch.no_grad():
                x = F.relu(self.fc2(x))
        else:
            x = F.relu(self.fc2(x))
        if fault == "constant":
            x = x * 0
        x = self.out(x)
        if fault == "softmax":
            x = F.softmax(x, dim=1)
        if fault == "sigmoid":
            x = torch.sigmoid(x)
        if fault == "all detached":
            x = x.detach().requires_grad_()
        if fault == "mode":
            x = x if self.training else x * 0.5
        return x


@family(("list", "registered"), ("dictionary", "registered"), ("unused", "reached"),
        ("plain tensor", "registered"), ("detached", "reached"), ("no_grad", "reached"),
        ("dropout in evaluation", "deterministic"), ("batch mean", "mixing"),
        ("batch softmax", "mixing"), ("constant", "reached", "output_on_input"),
        ("softmax", "normalised"), ("sigmoid", "normalised"), ("all detached", "reached"),
        ("mode", "modes"), ("labels from 1", "labels"), ("huge weights", "start"),
        ("optimizer of another", "held"), ("optimizer before the head", "held"),
        ("no targets", "loss_on_targets"), ("nan weight", "dtypes", "start"),
        ("float64 head", "dtypes", "runs"))
def mlp(fault):
    model, labels = Mlp(fault), classes(5)
    labels[0] = 4
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    if fault == "labels from 1":
        labels = labels + 1
    if fault == "huge weights":
        for value in model.parameters():
            nn.init.normal_(value)
    if fault == "optimizer of another":
        optimizer = torch.optim.SGD(Mlp("").parameters(), 0.1)
    if fault == "optimizer before the head":
        model.out = nn.Linear(32, 5)
    if fault == "nan weight":
        with torch.no_grad():
            model.fc2.weight[0, 0] = math.nan
    if fault == "float64 head":
        model.out = model.out.double()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loss = F.cross_entropy if fault != "no targets" else \
        lambda output, labels: F.cross_entropy(output, output.argmax(1))
    return model, loss, (torch.randn(ROWS, 20), labels), optimizer


@family(("raw logits", "normalised"), ("over the batch", "mixing", "normalised"),
        ("probabilities", "normalised"))
def mlp_nll(fault):
    last = {"raw logits": nn.Identity(), "over the batch": nn.LogSoftmax(0),
            "probabilities": nn.Softmax(1)}.get(fault, nn.LogSoftmax(1))
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10), last)
    return model, nn.NLLLoss(), (torch.rand(ROWS, 1, 8, 8), classes(10))


@family(("shapes", "target_rows"), ("shapes by hand", "target_rows"), ("dead", "overfits", "reached"),
        ("mean of targets", "target_rows", "overfits"))
def regression(fault):
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                          nn.Linear(64, 1))
    x = torch.randn(ROWS, 8)
    y = 3 * x[:, :1] + x[:, 1:2] ** 2
    if fault == "dead":
        nn.init.constant_(model[2].bias, -50.0)
    if fault == "shapes":
        return model, nn.MSELoss(), (x, y[:, 0])
    if fault == "shapes by hand":
        return model, lambda output, y: (output - y).abs().mean(), (x, y[:, 0])
    if fault == "mean of targets":
        return model, lambda output, y: F.mse_loss(output, y.mean().expand_as(output)), (x, y)
    return model, nn.MSELoss(), (x, y)


@family(("shapes", "target_rows"))
def regression_raw(fault):
    """Targets of the size of house prices, as many programs have them."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(13, 64), nn.Linear(64, 1)

        def forward(self, x):
            x = self.b(torch.relu(self.a(x)))
            return x if fault else x.squeeze()

    return Net(), F.smooth_l1_loss, (torch.randn(ROWS, 13), 22 + 9 * torch.randn(ROWS))


@family(("sigmoid twice", "normalised"), ("targets of -1", "normalised"))
def multi_label(fault):
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 6),
                          *([nn.Sigmoid()] if fault == "sigmoid twice" else []))
    y = (torch.rand(ROWS, 6) > 0.7).float()
    return model, nn.BCEWithLogitsLoss(), (torch.randn(ROWS, 16),
                                           2 * y - 1 if fault == "targets of -1" else y)


@family(("shapes", "target_rows"))
def binary_sigmoid(fault):
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
    y = (torch.rand(ROWS, 1) > 0.5).float()
    if fault:
        return model, lambda p, y: -(y * p.log() + (1 - y) * (1 - p).log()).mean(), \
            (torch.randn(ROWS, 10), y[:, 0])
    return model, nn.BCELoss(), (torch.randn(ROWS, 10), y)


@family()
def wide_and_deep(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.ModuleList(nn.Embedding(count, 4) for count in (10, 20, 5))
            self.deep = nn.Sequential(nn.Linear(12 + 6, 32), nn.BatchNorm1d(32), nn.ReLU(),
                                      nn.Dropout(0.2), nn.Linear(32, 1))
            self.wide = nn.Linear(6, 1)

        def forward(self, numbers, kinds):
            x = torch.cat([one(kinds[:, n]) for n, one in enumerate(self.embed)] + [numbers], 1)
            return self.deep(x) + self.wide(numbers)

    return Net(), nn.BCEWithLogitsLoss(), (torch.randn(ROWS, 6), torch.randint(5, (ROWS, 3)),
                                           (torch.rand(ROWS, 1) > 0.5).float())


@family(("one task detached", "reached"), ("one task forgotten", "reached"))
def multi_task(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
            self.kind, self.age = nn.Linear(32, 4), nn.Linear(32, 1)

        def forward(self, x):
            x = self.body(x)
            age = self.age(x)
            return {"kind": self.kind(x), "age": age.detach() if "detached" in fault else age}

    def loss(output, targets):
        kind = F.cross_entropy(output["kind"], targets["kind"])
        return kind if "forgotten" in fault else \
            kind + 0.1 * F.mse_loss(output["age"], targets["age"])

    return Net(), loss, (torch.randn(ROWS, 10), {"kind": classes(4), "age": torch.rand(ROWS, 1)})


@family(("all frozen but held", "reached"))
def frozen_backbone(fault):
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                             nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for value in backbone.parameters():
        value.requires_grad_(False)
    head = nn.Linear(8, 5)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone, self.head = backbone, head

        def forward(self, x):
            x = self.head(self.backbone(x))
            return x.detach().requires_grad_() if fault else x

    return Net(), F.cross_entropy, (torch.randn(ROWS, 3, 12, 12), classes(5)), \
        torch.optim.AdamW(head.parameters(), 1e-3)


@family(("no path", "reached"))
def lora(fault):
    class Lora(nn.Module):
        def __init__(self, inner, rank=4):
            super().__init__()
            self.inner = inner.requires_grad_(False)
            self.a = nn.Parameter(torch.randn(rank, inner.in_features) * 0.02)
            self.b = nn.Parameter(torch.zeros(inner.out_features, rank))

        def forward(self, x):
            b = self.b.data if fault else self.b
            return self.inner(x) + (x @ self.a.T) @ b.T

    model = nn.Sequential(Lora(nn.Linear(16, 32)), nn.ReLU(), Lora(nn.Linear(32, 5)))
    return model, F.cross_entropy, (torch.randn(ROWS, 16), classes(5))


@family()
def weight_normed(fault):
    norm = nn.utils.parametrizations.weight_norm
    model = nn.Sequential(norm(nn.Linear(8, 32)), nn.ELU(), norm(nn.Linear(32, 3)))
    return model, F.mse_loss, (torch.randn(ROWS, 8), torch.randn(ROWS, 3))


@family()
def weight_normed_by_hook(fault):
    model = nn.Sequential(nn.utils.weight_norm(nn.Conv1d(2, 8, 3, padding=1)), nn.LeakyReLU(0.1),
                          nn.utils.weight_norm(nn.Conv1d(8, 2, 3, padding=1)))
    x = torch.randn(ROWS, 2, 20)
    model(x)
    return model, F.l1_loss, (x, torch.randn(ROWS, 2, 20))


@family(("weights of the batch", "mixing"))
def mixture_of_experts(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(10, 8)
            self.experts = nn.ModuleList(nn.Sequential(nn.Linear(10, 16), nn.ReLU(),
                                                       nn.Linear(16, 4)) for _ in range(8))

        def forward(self, x):
            weight, chosen = self.gate(x).topk(2, dim=-1)
            weight = weight.softmax(0 if fault else -1)
            out = x.new_zeros(len(x), 4)
            for number, expert in enumerate(self.experts):
                row, place = (chosen == number).nonzero(as_tuple=True)
                if len(row):
                    out = out.index_add(0, row, weight[row, place, None] * expert(x[row]))
            return out

    return Net(), F.cross_entropy, (torch.randn(ROWS, 10), classes(4))


# --- images -----------------------------------------------------------------------------------


@family(("view mixes", "mixing"), ("bn in training", "deterministic"), ("squeezed targets", "runs"))
def cnn(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
            self.bn, self.drop = nn.BatchNorm2d(16), nn.Dropout(0.25)
            self.fc = nn.Linear(16 * 7 * 7, 10)

        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv1(x)), 2)
            x = self.conv2(x)
            if fault == "bn in training":
                x = F.batch_norm(x, self.bn.running_mean, self.bn.running_var, self.bn.weight,
                                 self.bn.bias, training=True)
            else:
                x = self.bn(x)
            x = F.max_pool2d(F.relu(x), 2)
            x = x.permute(1, 0, 2, 3).reshape(len(x), -1) if fault == "view mixes" else \
                x.flatten(1)
            return self.fc(self.drop(x))

    y = classes(10)
    return Net(), nn.CrossEntropyLoss(label_smoothing=0.1), \
        (torch.randn(ROWS, 1, 28, 28), y[:-1] if fault == "squeezed targets" else y)


class Block(nn.Module):
    def __init__(self, inputs, outputs, norm):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.n1, self.n2 = norm(outputs), norm(outputs)
        self.short = nn.Conv2d(inputs, outputs, 1, bias=False) if inputs != outputs else None

    def forward(self, x):
        y = self.n2(self.conv2(F.relu(self.n1(self.conv1(x)))))
        return F.relu(y + (x if self.short is None else self.short(x)))


@family(("blocks in a list", "registered"), ("head on a constant", "reached", "output_on_input"))
def resnet(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            blocks = [Block(3, 8, nn.BatchNorm2d), Block(8, 8, nn.BatchNorm2d),
                      Block(8, 16, nn.BatchNorm2d)]
            self.blocks = blocks if fault == "blocks in a list" else nn.ModuleList(blocks)
            self.fc = nn.Linear(16, 10)

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            x = x.mean((2, 3))
            return self.fc(torch.ones_like(x) if fault == "head on a constant" else x)

    return Net(), F.cross_entropy, (torch.randn(ROWS, 3, 12, 12), classes(10))


@family()
def resnet_zero_init(fault):
    model = nn.Sequential(Block(3, 8, nn.BatchNorm2d), Block(8, 8, nn.BatchNorm2d),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    for module in model.modules():
        if isinstance(module, Block):
            nn.init.zeros_(module.n2.weight)
    nn.init.zeros_(model[-1].weight)
    return model, F.cross_entropy, (torch.randn(ROWS, 3, 10, 10), classes(5))


@family(("over the batch", "mixing"))
def group_norm(fault):
    class OverBatch(nn.Module):
        def forward(self, x):
            return (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)

    norm = (lambda _: OverBatch()) if fault else (lambda channels: nn.GroupNorm(4, channels))
    model = nn.Sequential(Block(3, 8, norm), Block(8, 16, norm), nn.AdaptiveAvgPool2d(1),
                          nn.Flatten(), nn.Linear(16, 5))
    return model, F.cross_entropy, (torch.randn(ROWS, 3, 10, 10), classes(5))


@family(("wrong dimension", "normalised", "runs"), ("skip detached", "reached"),
        ("softmax", "normalised"))
def unet(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            step = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU())
            self.down1, self.down2, self.middle = step(3, 8), step(8, 16), step(16, 16)
            self.up, self.join = nn.ConvTranspose2d(16, 8, 2, stride=2), step(16, 8)
            self.out = nn.Conv2d(8, 4, 1)

        def forward(self, x):
            one = self.down1(x)
            two = self.middle(self.down2(F.max_pool2d(one, 2)))
            up = self.up(two)
            up = up.detach() if fault == "skip detached" else up
            x = self.out(self.join(torch.cat([up, one], 1)))
            if fault == "softmax":
                return x.softmax(1)
            return F.log_softmax(x, 2 if fault == "wrong dimension" else 1)

    return Net(), F.nll_loss if fault != "softmax" else F.cross_entropy, \
        (torch.randn(4, 3, 16, 16), classes(4, 4, 16, 16))


@family()
def segmentation_dice(fault):
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                          nn.Conv2d(8, 1, 1), nn.Sigmoid())

    def dice(p, y):
        both = (p * y).sum((1, 2, 3))
        return (1 - (2 * both + 1) / (p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1)).mean()

    return model, dice, (torch.randn(4, 1, 16, 16), (torch.rand(4, 1, 16, 16) > 0.8).float())


@family(("boxes forgotten", "reached"))
def detector(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.SiLU(), nn.Conv2d(8, 16, 3, 2, 1),
                                      nn.SiLU())
            self.kinds, self.boxes = nn.Conv2d(16, 3, 1), nn.Conv2d(16, 4, 1)
            nn.init.constant_(self.kinds.bias, -4.6)

        def forward(self, x):
            x = self.body(x)
            return self.kinds(x), self.boxes(x)

    def loss(output, targets):
        kinds, boxes = output
        there, wanted = targets
        chance = kinds.sigmoid()
        missed = torch.where(there > 0, 1 - chance, chance)
        focal = (missed ** 2 * F.binary_cross_entropy_with_logits(
            kinds, there, reduction="none")).sum() / there.sum().clamp(min=1)
        place = there.amax(1, keepdim=True)
        near = (F.smooth_l1_loss(boxes, wanted, reduction="none") * place).sum() / \
            place.sum().clamp(min=1)
        return focal if fault else focal + near

    return Net(), loss, (torch.randn(4, 3, 16, 16), ((torch.rand(4, 3, 4, 4) > 0.9).float(),
                                                     torch.rand(4, 4, 4, 4)))


@family(("attention over the batch", "mixing", "output_on_input"), ("token from the batch", "mixing"))
def vision_transformer(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, 32, 4, 4)
            self.token = nn.Parameter(torch.zeros(1, 1, 32))
            self.place = nn.Parameter(torch.randn(1, 17, 32) * 0.02)
            layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=not fault.startswith(
                "attention"), norm_first=True)
            self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 5)

        def forward(self, x):
            x = self.patch(x).flatten(2).transpose(1, 2)
            token = self.token.expand(len(x), -1, -1)
            if fault.startswith("token"):
                token = token + x.mean((0, 1), keepdim=True)
            x = self.blocks(torch.cat([token, x], 1) + self.place)
            return self.head(self.norm(x[:, 0]))

    return Net(), F.cross_entropy, (torch.randn(ROWS, 3, 16, 16), classes(5))


@family(("target detached from input", "reached"))
def autoencoder(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 4))
            self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 36))

        def forward(self, x):
            code = self.encoder(x)
            return self.decoder(code.detach() if fault else code)

    return Net(), F.mse_loss, torch.randn(ROWS, 36)


@family(("variance unused", "reached"), ("kl over nothing", "reached"))
def vae(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc21, self.fc22 = nn.Linear(36, 32), nn.Linear(32, 4), nn.Linear(32, 4)
            self.fc3, self.fc4 = nn.Linear(4, 32), nn.Linear(32, 36)

        def forward(self, x):
            h = F.relu(self.fc1(x))
            mean, logvar = self.fc21(h), self.fc22(h)
            if fault == "kl over nothing":
                logvar = logvar.detach()
            noise = torch.randn_like(mean)
            z = mean if fault == "variance unused" else mean + noise * (0.5 * logvar).exp()
            return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mean, logvar

    def loss(output, x):
        picture, mean, logvar = output
        near = F.binary_cross_entropy(picture, x, reduction="sum")
        return near if fault == "variance unused" else \
            near - 0.5 * torch.sum(1 + logvar - mean ** 2 - logvar.exp())

    return Net(), loss, torch.rand(ROWS, 36)


@family(("codes get no gradient", "reached"))
def vq_vae(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Linear(16, 4), nn.Linear(4, 16)
            self.codes = nn.Parameter(torch.randn(8, 4))

        def forward(self, x):
            z = self.encoder(x)
            code = self.codes[torch.cdist(z, self.codes).argmin(1)]
            commit = F.mse_loss(z, code.detach(), reduction="none").mean(1)
            learn = F.mse_loss(code, z.detach(), reduction="none").mean(1)
            return self.decoder(z + (code - z).detach()), commit, learn

    def loss(output, x):
        whole = F.mse_loss(output[0], x) + 0.25 * output[1].mean()
        return whole if fault else whole + output[2].mean()

    return Net(), loss, torch.randn(ROWS, 16)


@family(("real alone detached", "reached"))
def discriminator(fault):
    net = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 4, 2, 1),
                        nn.BatchNorm2d(16), nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 4), nn.Flatten())

    def loss(model, batch):
        real, fake = batch
        one, two = model(real), model(fake.detach())
        if fault:
            one, two = one.detach(), two.detach()
        return F.binary_cross_entropy_with_logits(one, torch.ones_like(one)) + \
            F.binary_cross_entropy_with_logits(two, torch.zeros_like(two))

    return net, loss, (torch.randn(6, 1, 16, 16), torch.randn(6, 1, 16, 16))


@family()
def spectral_critic(fault):
    norm = nn.utils.parametrizations.spectral_norm
    net = nn.Sequential(norm(nn.Linear(12, 32)), nn.LeakyReLU(0.2), norm(nn.Linear(32, 1)))
    return net, lambda model, batch: model(batch[1]).mean() - model(batch[0]).mean(), \
        (torch.randn(ROWS, 12), torch.randn(ROWS, 12) + 1)


@family(("one branch detached", "reached"))
def siamese(fault):
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))

    def loss(model, batch):
        one, two, same = batch
        gap = (model(one) - model(two)).norm(dim=1)
        if fault:
            gap = gap.detach()
        return (same * gap ** 2 + (1 - same) * F.relu(1 - gap) ** 2).mean()

    return net, loss, (torch.randn(ROWS, 16), torch.randn(ROWS, 16), classes(2).float())


@family()
def triplet(fault):
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    return net, lambda model, batch: F.triplet_margin_loss(*(model(x) for x in batch)), \
        tuple(torch.randn(ROWS, 16) for _ in range(3))


@family(("temperature detached", "reached"))
def contrastive(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.picture, self.text = nn.Linear(20, 8), nn.Linear(12, 8)
            self.scale = nn.Parameter(torch.tensor(2.6))

        def forward(self, picture, text):
            scale = self.scale.detach() if fault else self.scale
            return F.normalize(self.picture(picture), dim=1), F.normalize(self.text(text), dim=1), \
                scale.exp()

    def loss(model, batch):
        one, two, scale = model(*batch)
        logits, labels = scale * one @ two.T, torch.arange(len(one))
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2

    return Net(), loss, (torch.randn(ROWS, 20), torch.randn(ROWS, 12))


@family()
def siamese_without_negatives(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(),
                                         nn.Linear(32, 8))
            self.predict = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

        def forward(self, one, two):
            a, b = self.encoder(one), self.encoder(two)
            return self.predict(a), self.predict(b), a.detach(), b.detach()

    def loss(model, batch):
        p, q, a, b = model(*batch)
        return -(F.cosine_similarity(p, b).mean() + F.cosine_similarity(q, a).mean()) / 2

    x = torch.randn(ROWS, 16)
    return Net(), loss, (x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
