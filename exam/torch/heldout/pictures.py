"""Families with pictures: digits in a small type, textures, and masks."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from data import Named
from loop import Program

GLYPHS = ("111101101101111", "010110010010111", "111001111100111", "111001111001111",
          "101101111001001", "111100111001111", "111100111101111", "111001001001001",
          "111101111101111", "111101111001111")


class Digits(Program):
    """A digit near the middle of a noisy picture, normalized as usual."""

    labels, classes, noise, batch_size, size = "classes", 10, 0.25, 16, 8

    def draw(self, y):
        glyphs = torch.tensor([[float(c) for c in g] for g in GLYPHS]).view(10, 5, 3)
        x = torch.zeros(len(y), self.size, self.size)
        down, right = self.randint(2, len(y)) + 1, self.randint(2, len(y)) + 2
        for i, label in enumerate(y):
            x[i, down[i]:down[i] + 5, right[i]:right[i] + 3] = glyphs[label]
        return ((x + self.noise * self.randn(*x.shape) - 0.13) / 0.4)[:, None]

    def batch(self, step, train=True):
        y = self.randint(self.classes, self.batch_size)
        return {"input": self.draw(y), "labels": y}


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.token_mlp = Named(fc1=nn.Linear(tokens, 16), gelu=nn.GELU(), fc2=nn.Linear(16, tokens))
        self.channel_mlp = Named(fc1=nn.Linear(width, 2 * width), gelu=nn.GELU(),
                                 fc2=nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.token_mlp(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel_mlp(self.norm2(x))


class MlpMixer(Digits):
    traits, optimizer, rate, options = "one floats drawn input", "adamw", 1e-2, {"weight_decay": 0.05}
    batch_size, batches, steps, eval_every = 8, (1,), 200, 60

    def build(self):
        self.model = m = nn.Module()
        m.patch = nn.Conv2d(1, 10, 2, stride=2)
        m.block1, m.block2 = MixerBlock(16, 10), MixerBlock(16, 10)
        m.norm, m.head = nn.LayerNorm(10), nn.Linear(10, self.classes)
        m.forward = lambda x: m.head(m.norm(m.block2(m.block1(
            m.patch(x).flatten(2).transpose(1, 2)))).mean(1))

    def make_schedule(self):
        warm = torch.optim.lr_scheduler.LinearLR(self.optimizers[0], 0.1, total_iters=10)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizers[0], self.steps - 10)
        return torch.optim.lr_scheduler.SequentialLR(self.optimizers[0], [warm, cosine], [10])


class ConvNextBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm, self.pwconv1 = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.act, self.pwconv2 = nn.GELU(), nn.Linear(3 * width, width)
        self.gamma = nn.Parameter(1e-6 * torch.ones(width))

    def forward(self, x):
        y = self.dwconv(x).permute(0, 2, 3, 1)
        y = self.gamma * self.pwconv2(self.act(self.pwconv1(self.norm(y))))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(Digits):
    """Blocks that begin as the identity, label smoothing, and a mean of the weights that is
    evaluated."""

    traits, optimizer, rate, options = "one floats drawn input own-loss", "adamw", 8e-3, {"weight_decay": 0.05}
    batch_size, batches, steps = 8, (1,), 180

    def build(self):
        m = self.model = nn.Module()
        m.stem, m.stem_norm = nn.Conv2d(1, 10, 2, stride=2), nn.GroupNorm(1, 10)
        m.block1, m.block2 = ConvNextBlock(10), ConvNextBlock(10)
        m.head_norm, m.head = nn.LayerNorm(10 * 4), nn.Linear(10 * 4, self.classes)
        m.pool = nn.AvgPool2d(2)
        m.forward = lambda x: m.head(m.head_norm(m.pool(m.block2(m.block1(
            m.stem_norm(m.stem(x))))).flatten(1)))

    def losses(self, batch):
        scores = self.predict(batch)
        self.note("loss_input_0", scores, op="", role="input", module="loss")
        return {"loss": F.cross_entropy(scores, batch["labels"], label_smoothing=0.1)}


class Squeeze(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn, self.relu = nn.BatchNorm2d(width), nn.ReLU()
        self.reduce, self.act = nn.Linear(width, width // 2), nn.ReLU()
        self.expand, self.gate = nn.Linear(width // 2, width), nn.Sigmoid()

    def forward(self, x):
        y = self.bn(self.conv(x))
        share = self.gate(self.expand(self.act(self.reduce(y.mean((2, 3))))))
        return self.relu(x + y * share[:, :, None, None])


class SqueezeExcite(Digits):
    traits, optimizer, rate, batch_size = "one floats drawn norm input", "sgd", 0.05, 16
    options = {"momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}
    eval_every = 50

    def build(self):
        self.model = Named(stem=nn.Conv2d(1, 8, 3, stride=2, padding=1), block1=Squeeze(8),
                           block2=Squeeze(8), flat=nn.Flatten(), fc=nn.Linear(128, self.classes))

    def make_schedule(self):
        return torch.optim.lr_scheduler.StepLR(self.optimizers[0], 50, 0.2)


class SuperResolution(Program):
    """Textures at twice their size: instance norm, a pixel shuffle and the absolute error."""

    labels, rate, loss_op, batch_size, steps = None, 3e-3, "L1Loss", 8, 120
    traits = "one floats"

    def build(self):
        self.model = m = nn.Module()
        m.conv1, m.norm1, m.act1 = nn.Conv2d(1, 10, 3, padding=1), nn.InstanceNorm2d(
            10, affine=True), nn.LeakyReLU(0.2)
        m.conv2, m.act2 = nn.Conv2d(10, 8, 3, padding=1), nn.LeakyReLU(0.2)
        m.conv3, m.shuffle = nn.Conv2d(8, 4, 3, padding=1), nn.PixelShuffle(2)
        m.forward = lambda x: m.shuffle(m.conv3(m.act2(m.conv2(m.act1(m.norm1(
            m.conv1(x))))))) + F.interpolate(x, scale_factor=2.0)

    def batch(self, step, train=True):
        at = torch.arange(12.0)
        a, b, c = torch.rand(3, self.batch_size, 1, 1, generator=self.random)
        wide = torch.sin((0.3 + a) * at[:, None] + (0.3 + b) * at + 6 * c)[:, None]
        return {"input": F.avg_pool2d(wide, 2), "targets": wide}

    def losses(self, batch):
        made = self.model.forward(batch["input"])
        self.note("loss_input_0", made, op="", role="input", module="loss")
        return {"loss": F.l1_loss(made, batch["targets"])}


class SharpnessAware(Digits):
    """Group norm; each step goes up to the worst weights nearby, and down from there (SAM)."""

    traits, optimizer, rate, batch_size = "chain one floats drawn relu input twice", "sgd", 0.05, 16
    rho = 0.05

    def build(self):
        self.model = Named(conv1=nn.Conv2d(1, 8, 3), norm1=nn.GroupNorm(2, 8), relu1=nn.ReLU(),
                           conv2=nn.Conv2d(8, 8, 3), norm2=nn.GroupNorm(2, 8), relu2=nn.ReLU(),
                           flat=nn.Flatten(), fc=nn.Linear(128, self.classes))

    def losses(self, batch):
        self.last = batch
        return super().losses(batch)

    def other_backward(self, step):
        params = [p for p in self.model.parameters() if p.grad is not None]
        size = torch.stack([p.grad.norm() for p in params]).norm() + 1e-12
        moves = [self.rho * p.grad / size for p in params]
        recorder, self.recorder = self.recorder, None
        with torch.no_grad():
            for p, move in zip(params, moves):
                p.add_(move)
        self.optimizers[0].zero_grad()
        loss = F.cross_entropy(self.predict(self.last), self.last["labels"])
        (self.sign * self.loss_scale * loss).backward()
        with torch.no_grad():
            for p, move in zip(params, moves):
                p.sub_(move)
        self.recorder = recorder


class MaskedConv(nn.Conv2d):
    """A convolution that sees the pixels before its own only."""

    def __init__(self, kind, *args, **kwargs):
        super().__init__(*args, **kwargs)
        mask = torch.ones(self.kernel_size)
        middle = self.kernel_size[0] // 2
        mask[middle, middle + (kind == "B"):] = 0
        mask[middle + 1:] = 0
        self.register_buffer("mask", mask)

    def forward(self, x):
        return self._conv_forward(x, self.weight * self.mask, self.bias)


class PixelCnn(Digits):
    """One pixel after the other, on or off."""

    labels, rate, loss_op, traits, batch_size = None, 3e-3, "BCEWithLogitsLoss", "one floats", 8
    optimizer = "rmsprop"

    def build(self):
        self.model = Named(conv1=MaskedConv("A", 1, 10, 5, padding=2), relu1=nn.ReLU(),
                           conv2=MaskedConv("B", 10, 10, 3, padding=1), relu2=nn.ReLU(),
                           out=nn.Conv2d(10, 1, 1))

    def batch(self, step, train=True):
        return {"input": (self.draw(self.randint(10, self.batch_size)) > 0.9).float()}

    def losses(self, batch):
        made = self.model(batch["input"])
        self.note("loss_input_0", made, op="", role="input", module="loss")
        return {"loss": F.binary_cross_entropy_with_logits(made, batch["input"])}


class DiceSegmenter(Digits):
    """The strokes of the digits: dilated convolutions, Dice and cross-entropy, RAdam."""

    labels, rate, traits, batch_size, noise, steps = "pixels", 2e-2, "chain one floats relu", 8, 0.5, 160
    optimizer = "radam"

    def build(self):
        self.model = Named(conv1=nn.Conv2d(1, 8, 3, padding=1), relu1=nn.ReLU(),
                           conv2=nn.Conv2d(8, 8, 3, padding=2, dilation=2), relu2=nn.ReLU(),
                           out=nn.Conv2d(8, 1, 1))

    def make_optimizer(self, parameters, scale=1.0):
        return torch.optim.RAdam(parameters, self.rate * scale, **self.options)

    def batch(self, step, train=True):
        x = self.draw(self.randint(10, self.batch_size))
        clean = F.max_pool2d((x > 0.9).float(), 1)
        return {"input": x + 0.2 * self.randn(*x.shape), "masks": clean}

    def losses(self, batch):
        scores, masks = self.model(batch["input"]), batch["masks"]
        self.note("loss_input_0", scores, op="", role="input", module="loss")
        p = scores.sigmoid()
        both = (p * masks).sum((1, 2, 3))
        dice = 1 - ((2 * both + 1) / (p.sum((1, 2, 3)) + masks.sum((1, 2, 3)) + 1)).mean()
        return {"dice_loss": dice, "bce_loss": F.binary_cross_entropy_with_logits(scores, masks)}


class SimClr(Digits):
    """Two views of a picture should be nearer than all other pictures of the batch."""

    labels, rate, traits, loss_op, batch_size = None, 6e-3, "one floats", "CrossEntropyLoss", 16
    options, optimizer, steps = {"weight_decay": 1e-6}, "adam", 150

    def build(self):
        m = self.model = nn.Module()
        m.encoder = Named(conv1=nn.Conv2d(1, 8, 3, stride=2), bn1=nn.BatchNorm2d(8),
                          relu1=nn.ReLU(), conv2=nn.Conv2d(8, 16, 2), bn2=nn.BatchNorm2d(16),
                          relu2=nn.ReLU(), flat=nn.Flatten())
        m.projector = Named(fc1=nn.Linear(64, 16), relu=nn.ReLU(), fc2=nn.Linear(16, 8, bias=False))

    def view(self, x):
        keep = (torch.rand(x.shape, generator=self.random) > 0.1).float()
        return x * keep * (0.8 + 0.4 * torch.rand(len(x), 1, 1, 1, generator=self.random))

    def batch(self, step, train=True):
        x = self.draw(self.randint(10, self.batch_size))
        return {"view1": self.view(x), "view2": self.view(x)}

    def losses(self, batch):
        m, n = self.model, len(batch["view1"])
        z = F.normalize(m.projector(m.encoder(torch.cat((batch["view1"], batch["view2"])))), dim=1)
        scores = (z @ z.T / 0.2).masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
        return {"loss": F.cross_entropy(scores, torch.arange(2 * n).roll(n))}


class Byol(SimClr):
    """A net predicts what a slow copy of it says of the other view; there are no negatives."""

    loss_op, rate, rates = "", 2e-3, (0.5, 1.0)
    options = {}

    def build(self):
        m = self.model = nn.Module()
        m.online = Named(conv1=nn.Conv2d(1, 8, 3, stride=2), bn1=nn.BatchNorm2d(8), relu1=nn.ReLU(),
                         flat=nn.Flatten(), fc=nn.Linear(72, 12))
        m.target = copy.deepcopy(m.online).requires_grad_(False)
        m.predictor = Named(fc1=nn.Linear(12, 24), bn=nn.BatchNorm1d(24), relu=nn.ReLU(),
                            fc2=nn.Linear(24, 12))

    def losses(self, batch):
        m, total = self.model, 0.0
        for a, b in (("view1", "view2"), ("view2", "view1")):
            made = F.normalize(m.predictor(m.online(batch[a])), dim=1)
            with torch.no_grad():
                goal = F.normalize(m.target(batch[b]), dim=1)
            total = total + (2 - 2 * (made * goal).sum(1)).mean()
        return {"loss": total}

    def begin_step(self, step):
        with torch.no_grad():
            for slow, p in zip(self.model.target.parameters(), self.model.online.parameters()):
                slow.lerp_(p, 0.02)


class Captions(Digits):
    """Two towers, one for pictures and one for words, with a learnt temperature (CLIP)."""

    labels, rate, traits, loss_op, optimizer = None, 3e-3, "one floats", "", "adamw"
    options, batch_size, steps = {"weight_decay": 0.1}, 16, 160

    def build(self):
        m = self.model = nn.Module()
        m.image = Named(conv1=nn.Conv2d(1, 8, 3, stride=2), act1=nn.GELU(), flat=nn.Flatten(),
                        fc=nn.Linear(72, 16))
        m.words, m.rnn, m.text = nn.Embedding(24, 10), nn.GRU(10, 14, batch_first=True), nn.Linear(
            14, 16)
        m.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        self.names = 4 + self.randint(20, 10, 4)

    def batch(self, step, train=True):
        y = self.randint(10, self.batch_size)
        words = torch.cat((self.randint(4, len(y), 1), self.names[y]), 1)
        return {"images": self.draw(y), "captions": words}

    def losses(self, batch):
        m = self.model
        a = F.normalize(m.image(batch["images"]), dim=1)
        b = F.normalize(m.text(m.rnn(m.words(batch["captions"]))[0][:, -1]), dim=1)
        scores = m.logit_scale.exp() * a @ b.T
        goal = torch.arange(len(a))
        return {"loss": (F.cross_entropy(scores, goal) + F.cross_entropy(scores.T, goal)) / 2}

    def make_schedule(self):
        return torch.optim.lr_scheduler.LambdaLR(self.optimizers[0],
                                                 lambda step: min(1.0, (step + 1) / 15))


class Transfer(Digits):
    """A trained backbone, whose batch norm stays as it is; the last layer learns new digits,
    and after a third of the steps the backbone learns too, at a tenth of the rate."""

    traits, optimizer, rate, classes, declare_gradients = "floats drawn staged", "adam", 4e-3, 5, False

    def build(self):
        self.model = Named(conv1=nn.Conv2d(1, 8, 3, stride=2), bn1=nn.BatchNorm2d(8),
                           relu1=nn.ReLU(), conv2=nn.Conv2d(8, 16, 2), relu2=nn.ReLU(),
                           flat=nn.Flatten(), head=nn.Linear(64, 5))
        learner = torch.optim.Adam(self.model.parameters(), 4e-3)
        for _ in range(80):
            made = self.batch(0)
            learner.zero_grad()
            F.cross_entropy(self.model(made["input"]), made["labels"]).backward()
            learner.step()
        self.model.zero_grad(set_to_none=True)
        self.model.head = nn.Linear(64, 5)
        self.model.bn1.requires_grad_(False)
        self.model.bn1.eval()
        self.model.bn1.train = lambda mode=True: self.model.bn1
        self.shift = 5
        for layer in (self.model.conv1, self.model.conv2):
            layer.requires_grad_(False)

    shift = 0

    def batch(self, step, train=True):
        y = self.randint(self.classes, self.batch_size)
        return {"input": self.draw(y + self.shift), "labels": y}

    def begin_step(self, step):
        if step == self.steps // 3:
            layers = [self.model.conv1, self.model.conv2]
            for layer in layers:
                layer.requires_grad_(True)
            self.optimizers[0].add_param_group({"params": [
                p for layer in layers for p in layer.parameters()], "lr": self.rate / 10})


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        return (x / scale).round().clamp(-8, 7) * scale

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class RoundedLinear(nn.Linear):
    """Weights of 4 bits in the forward pass; the gradient passes straight through."""

    def forward(self, x):
        return F.linear(x, Rounded.apply(self.weight, self.weight.detach().abs().max() / 7),
                        self.bias)


class Quantized(Digits):
    """Training that is aware of the quantization to come."""

    traits, optimizer, rate, options = "chain one floats drawn input", "adam", 3e-3, {}
    steps = 150

    def build(self):
        self.model = Named(flat=nn.Flatten(), fc1=RoundedLinear(64, 32), relu1=nn.ReLU6(),
                           fc2=RoundedLinear(32, 24), relu2=nn.ReLU6(),
                           fc3=RoundedLinear(24, self.classes))


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).float()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / (1 + 10 * ctx.saved_tensors[0].abs()) ** 2


class Spiking(Digits):
    """Neurons that leak, integrate and fire for some steps of time; Adamax."""

    traits, rate, options, optimizer = "one floats drawn input", 1e-2, {}, "adamax"
    steps, noise = 150, 0.15

    def build(self):
        m = self.model = nn.Module()
        m.fc1, m.fc2 = nn.Linear(64, 40), nn.Linear(40, self.classes)

    def make_optimizer(self, parameters, scale=1.0):
        return torch.optim.Adamax(parameters, self.rate * scale)

    def predict(self, batch):
        m, x = self.model, batch["input"].flatten(1)
        inner, outer, total = 0.0, 0.0, 0.0
        drive = m.fc1(x)
        for _ in range(6):
            inner = 0.9 * inner + drive
            fired = Spike.apply(inner - 1.0)
            inner = inner - fired
            outer = 0.9 * outer + m.fc2(fired)
            total = total + outer
        return total / 6


class Scaled(Digits):
    """float16 by autocast, with a scaled loss as GradScaler does it."""

    traits, optimizer, rate, options = "chain one floats drawn relu input", "adam", 3e-3, {}
    steps = 150

    def build(self):
        self.model = Named(conv1=nn.Conv2d(1, 8, 3, stride=2), relu1=nn.ReLU(), flat=nn.Flatten(),
                           fc1=nn.Linear(72, 32), relu2=nn.ReLU(), fc2=nn.Linear(32, self.classes))
        self.scale, self.good, self.skip = 65536.0, 0, False

    def make_optimizer(self, parameters, scale=1.0):
        program = self

        class Skipping(torch.optim.Adam):
            def step(self):
                return None if program.skip else super().step()

        return Skipping(parameters, self.rate * scale, **self.options)

    def losses(self, batch):
        with torch.autocast("cpu", torch.float16):
            loss = super().losses(batch)["loss"]
        if loss.requires_grad:
            scale = self.scale
            loss.register_hook(lambda gradient: gradient * scale)
        return {"loss": loss}

    def other_backward(self, step):
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        for gradient in gradients:
            gradient.div_(self.scale)
        self.skip = not all(bool(g.isfinite().all()) for g in gradients)
        self.good = 0 if self.skip else self.good + 1
        if self.skip:
            self.scale /= 2
        elif self.good % 2000 == 0:
            self.scale *= 2


class Checkpointed(Digits):
    """Blocks whose activations are computed again in the backward pass."""

    traits, optimizer, rate, batch_size = "one floats drawn input", "adamw", 3e-3, 16

    def build(self):
        m = self.model = nn.Module()
        m.stem = nn.Linear(64, 24)
        for i in (1, 2, 3):
            m.add_module(f"block{i}", Named(norm=nn.LayerNorm(24), fc1=nn.Linear(24, 24),
                                            act=nn.SiLU(), fc2=nn.Linear(24, 24)))
        m.norm, m.head = nn.LayerNorm(24), nn.Linear(24, self.classes)

        def forward(x):
            x = m.stem(x.flatten(1))
            for i in (1, 2, 3):
                x = x + checkpoint(getattr(m, f"block{i}"), x, use_reentrant=False)
            return m.head(m.norm(x))

        m.forward = forward


class ConvGan(Digits):
    """Transposed convolutions against strided ones, with the rates of DCGAN."""

    labels, rate, batch_size, rates, options = None, 2e-3, 8, (0.5, 1.0), {"betas": (0.5, 0.999)}
    traits, steps = "floats", 200

    def build(self):
        m = self.model = nn.Module()
        m.generator = Named(up1=nn.ConvTranspose2d(8, 8, 4, bias=False), bn1=nn.BatchNorm2d(8),
                            relu1=nn.ReLU(), up2=nn.ConvTranspose2d(8, 1, 4, 2, 1), tanh=nn.Tanh())
        m.critic = Named(conv1=nn.Conv2d(1, 8, 4, 2, 1), leaky1=nn.LeakyReLU(0.2),
                         conv2=nn.Conv2d(8, 8, 3, bias=False), bn2=nn.BatchNorm2d(8),
                         leaky2=nn.LeakyReLU(0.2), conv3=nn.Conv2d(8, 1, 2), flat=nn.Flatten())
        for part in list(m.generator.children()) + list(m.critic.children()):
            if isinstance(part, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.normal_(part.weight, 0.0, 0.02)

    def make_optimizers(self):
        self.optimizers = [self.make_optimizer(self.model.critic.parameters()),
                           self.make_optimizer(self.model.generator.parameters())]

    def batch(self, step, train=True):
        real = (self.draw(self.randint(10, self.batch_size)) / 3).clamp(-1, 1)
        return {"images": real, "noise": self.randn(self.batch_size, 8, 1, 1)}

    def judge_loss(self, batch):
        fake = self.model.generator(batch["noise"]).detach()
        real, made = self.model.critic(batch["images"]), self.model.critic(fake)
        return {"errD": F.binary_cross_entropy_with_logits(real, torch.ones_like(real)) +
                F.binary_cross_entropy_with_logits(made, torch.zeros_like(made))}

    def make_loss(self, batch):
        made = self.model.critic(self.model.generator(batch["noise"]))
        return {"errG": F.binary_cross_entropy_with_logits(made, torch.ones_like(made))}

    def phases(self):
        return [(self.optimizers[0], self.judge_loss), (self.optimizers[1], self.make_loss)]


class OneBatch(Digits):
    """The first thing to try with a new network: sixteen pictures by heart."""

    traits, optimizer, rate, options = "chain one floats relu full", "sgd", 0.05, {}

    def build(self):
        self.model = Named(conv=nn.Conv2d(1, 8, 3, stride=2), relu1=nn.ReLU(), flat=nn.Flatten(),
                           fc1=nn.Linear(72, 24), relu2=nn.ReLU(), fc2=nn.Linear(24, self.classes))

    def batch(self, step, train=True):
        if not hasattr(self, "kept"):
            self.kept = super().batch(step)
        return dict(self.kept)


FAMILIES = (MlpMixer, ConvNext, SqueezeExcite, SuperResolution, SharpnessAware, PixelCnn,
            DiceSegmenter, SimClr, Byol, Captions, Transfer, Quantized, Spiking, Scaled,
            Checkpointed, ConvGan, OneBatch)
