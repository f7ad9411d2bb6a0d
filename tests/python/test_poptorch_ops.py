"""Ops of PyTorch on the engine: outputs, losses and gradients of each against PyTorch's own.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import math
import os
import sys

from harness import check, main, program

BUILD = os.path.abspath(os.environ.get("SONDE_BUILD", "build/release"))
PACKAGE = os.path.join(BUILD, "python")
sys.path[0:0] = [os.path.join(PACKAGE, "sonde", "compat", "poptorch"), PACKAGE]
try:
    import torch
    from torch import nn
    from torch.nn import functional as F
    import poptorch
except ImportError as problem:
    print(problem)
    sys.exit(77)


class Of(nn.Module):
    """Functions, each of a trained tensor of its own times the input; the loss weighs the elements
    of a result differently."""

    def __init__(self, shape, functions):
        super().__init__()
        torch.manual_seed(7)
        self.functions = functions
        self.weights = nn.ParameterList([torch.rand(shape[1:]) + 0.5 for _ in functions])

    def forward(self, x):
        results, loss = {}, 0.0
        for weight, (name, function) in zip(self.weights, self.functions.items()):
            y = results[name] = function(x * weight)
            flat = y.reshape(-1)
            loss = loss + (flat * torch.linspace(0.5, 1.5, flat.numel())).sum()
        return results, loss


def gradients(model, *arguments):
    """Of PyTorch: outputs, and parameters after a step of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    output = model(*arguments)
    loss = output[-1] if isinstance(output, tuple) else output["loss"]
    loss.backward()
    optimizer.step()
    return output


def same(what, model, *arguments, tolerance=1e-5):
    """A step of training on the engine is PyTorch's."""
    torch.manual_seed(3)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    expected = gradients(model, *arguments)
    after = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state)
    for weight in model.parameters():
        weight.grad = None
    wrapped = poptorch.trainingModel(model, None, torch.optim.SGD(model.parameters(), 0.1))
    found = wrapped(*arguments)
    check(f"{what}: on the engine", wrapped._engine is not None)
    pairs = {torch.utils._pytree.keystr(path): (a, b) for (path, a), b in zip(
        torch.utils._pytree.tree_flatten_with_path(found)[0],
        torch.utils._pytree.tree_leaves(expected), strict=True)}
    pairs.update({name: (model.state_dict()[name], value) for name, value in after.items()})
    for name, (a, b) in pairs.items():
        alike = a.shape == b.shape and a.dtype == b.dtype
        a, b = a.double(), b.detach().double()
        off = ((a - b).abs() / (1 + b.abs())).max().item() if alike else "a shape or dtype"
        check(f"{what}, {name}: {off} from PyTorch", isinstance(off, float) and off < tolerance)


def data(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


FUNCTIONS = {
    "relu": F.relu, "relu in place": lambda x: F.relu(x * 1.5, inplace=True),
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "mish": F.mish,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2), "elu": lambda x: F.elu(x, 0.7),
    "celu": lambda x: F.celu(x, 0.7), "selu": F.selu, "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.5), "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish, "hardshrink": F.hardshrink, "softshrink": F.softshrink,
    "tanhshrink": F.tanhshrink, "softplus": lambda x: F.softplus(x, 2.0),
    "softsign": F.softsign, "logsigmoid": F.logsigmoid,
    "threshold": lambda x: F.threshold(x, 0.1, 2.0), "neg": lambda x: -x, "abs": torch.abs,
    "exp": torch.exp, "expm1": torch.expm1, "log": lambda x: torch.log(x.abs() + 1),
    "log1p": lambda x: torch.log1p(x * x), "sqrt": lambda x: torch.sqrt(x * x + 1),
    "rsqrt": lambda x: torch.rsqrt(x * x + 1), "square": torch.square, "sin": torch.sin,
    "reciprocal": lambda x: 1 / (x * x + 1), "cos": torch.cos, "erf": torch.erf,
    "power": lambda x: (x.abs() + 1) ** 1.5, "power of 2": lambda x: x ** 2,
    "clamp": lambda x: x.clamp(-0.5, 0.7), "clamp below": lambda x: torch.clamp(x, min=0.1),
    "add a number": lambda x: x + 3, "alpha": lambda x: torch.add(x, x * x, alpha=0.3),
    "subtract": lambda x: 2 - x - 0.5 * x, "divide": lambda x: x / (x * x + 2) / 3,
    "maximum": lambda x: torch.maximum(x, x * x), "minimum": lambda x: torch.minimum(x, x * x),
    "softmax": lambda x: F.softmax(x, -1), "log_softmax": lambda x: F.log_softmax(x, 0),
    "mean": lambda x: x.mean(), "mean of dims": lambda x: x.mean((1, -1), keepdim=True),
    "sum": lambda x: x.sum(1), "sum of all": torch.sum, "amax": lambda x: x.amax(1),
    "variance": lambda x: x.var(2), "deviation": lambda x: x.std((1, 2), unbiased=False),
    "norm": lambda x: F.normalize(x, dim=1), "view": lambda x: x.view(x.size(0), -1),
    "flatten": lambda x: torch.flatten(x, 1), "unflatten": lambda x: x.unflatten(2, (2, 3)),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1), "permute": lambda x: x.permute(2, 0, 1) * 2,
    "transpose": lambda x: x.transpose(1, 2).contiguous(), "mT": lambda x: x.mT,
    "expand": lambda x: x[:, :, :1].expand(-1, -1, 3), "cat": lambda x: torch.cat([x, x * 2, x], 1),
    "stack": lambda x: torch.stack([x, -x], 1), "slice": lambda x: x[:, 1:, ::2],
    "select": lambda x: x[:, 0] * x[:, -1], "chunk": lambda x: torch.mul(*x.chunk(2, -1)),
    "split": lambda x: sum(part.sum(2) for part in x.split(2, 2)),
    "unbind": lambda x: torch.add(*x.unbind(2)[:2]), "glu": F.glu,
    "where": lambda x: torch.where(x > 0.2, x, x * x), "masked_fill": lambda x: x.masked_fill(
        torch.ones(4, 6).triu().bool(), 2.0), "constants": lambda x: x + torch.arange(6) * 0.5,
    "zeros_like": lambda x: torch.maximum(x, torch.zeros_like(x)),
    "matmul": lambda x: x @ x.mT, "product": lambda x: x[0] @ x[1].T, "bmm": lambda x: torch.bmm(
        x, x.transpose(1, 2)), "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=0.5),
    "layer_norm": lambda x: F.layer_norm(x, (6,)), "rms_norm": lambda x: F.rms_norm(x, (6,)),
    "attention": lambda x: F.scaled_dot_product_attention(x, x * 2, x, is_causal=True),
    "attention, masks": lambda x: F.scaled_dot_product_attention(
        x, x * 2, x, attn_mask=torch.ones(4, 4).tril().bool(), scale=0.3) +
    F.scaled_dot_product_attention(x, x, x, attn_mask=torch.arange(16.0).view(4, 4) * 0.1),
    "attention, broadcast": lambda x: F.scaled_dot_product_attention(x, x[:1], x[:1]),
    "max_pool1d": lambda x: F.max_pool1d(x, 2), "avg_pool1d": lambda x: F.avg_pool1d(x, 3, 1, 1),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x, 4),
    "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x, 4),
    "in place": lambda x: (x * 2).add_(1).mul_(x), "clone": lambda x: x.clone().float(),
    "instance_norm": lambda x: F.instance_norm(x),
    "tan": lambda x: torch.tan(x * 0.3), "asin": lambda x: torch.asin(x.tanh() * 0.9),
    "atan2": lambda x: torch.atan2(x, x * x + 1), "sinh": torch.sinh, "log2": lambda x: (
        x * x + 1).log2(), "exp2": torch.exp2, "rounding": lambda x: x.floor() * x + x.round() +
    torch.trunc(x) * x.sign(), "tensor power": lambda x: (x.abs() + 0.5) ** (x * 0.5),
    "a power": lambda x: 2 ** x, "einsum": lambda x: torch.einsum("bij,bkj->bik", x, x),
    "einsum of three": lambda x: torch.einsum("bij,jk,bik->bi", x, x[0].T, x[..., :4]),
    "a sum of einsum": lambda x: torch.einsum("bij->j", x), "outer": lambda x: torch.outer(
        x[0, 0], x[0, 1]), "mv": lambda x: torch.mv(x[0], x[1, 0]), "lerp": lambda x: torch.lerp(
        x, x * x, 0.3), "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
    "logsumexp": lambda x: x.logsumexp(1), "cosine_similarity": lambda x: F.cosine_similarity(
        x, x * x + 0.1, 2), "distance": lambda x: F.pairwise_distance(x, x * x),
    "as float": lambda x: (x > 0.2).float() * x, "places": lambda x: x * x.argmax(1, True),
    "one_hot": lambda x: F.one_hot(x.argmax(2), 6) * x, "logic": lambda x: torch.where(
        ((x > 0.1) & (x < 1.5)) | ~(x > -0.3), x, x * 2), "nan_to_num": lambda x: torch.nan_to_num(
        x + torch.tensor([math.nan, 0, 0, 0, 0, 0]), 0.5),
    "all": lambda x: x * (x > -9).all(), "softmin": lambda x: F.softmin(x, 1),
    "whole numbers": lambda x: torch.where(x.argmax(2, keepdim=True) == 2, x, -x),
    "reflect": lambda x: F.pad(x, (2, 3), "reflect"), "cut": lambda x: F.pad(x, (-1, 2, 1, -2)),
    "replicate": lambda x: F.pad(x, (1, 0), "replicate"), "circular": lambda x: F.pad(
        x, (2, 1), "circular"), "interpolate": lambda x: F.interpolate(x, 9),
    "linear interpolation": lambda x: F.interpolate(x, scale_factor=1.7, mode="linear"),
    "nearest-exact": lambda x: F.interpolate(x, 4, mode="nearest-exact"),
    "flip": lambda x: x.flip((1, 2)), "roll": lambda x: x.roll((1, -2), (1, 2)),
    "roll of all": lambda x: x.roll(5), "repeat": lambda x: x[0].repeat(2, 1, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "gather": lambda x: x.gather(2, torch.tensor([[[0, 3, 3]]]).expand(3, 4, 3)),
    "index_select": lambda x: x.index_select(1, torch.tensor([3, 0, 3])),
    "index": lambda x: x[:, torch.tensor([[1, 0], [3, 3]])],
    "scatter": lambda x: x.scatter(1, torch.tensor([[[1, 0, 2]]]).expand(3, 1, 3), x[:, :1, :3] * 2),
    "scatter_add": lambda x: x.scatter_add(1, torch.zeros(3, 4, 6, dtype=torch.int64), x * x),
    "index_add": lambda x: x.index_add(0, torch.tensor([2, 2]), x[:2]),
    "sort": lambda x: x.sort(1)[0], "sort down": lambda x: torch.sort(x, descending=True).values,
    "argsort": lambda x: x.gather(1, x.argsort(1, descending=True)),
    "topk": lambda x: x.topk(3).values, "least": lambda x: x.topk(2, 1, largest=False)[0],
    "max": lambda x: x.max(), "max of dim": lambda x: x.max(1)[0] * x.min(1, keepdim=True)[0],
    "median": lambda x: x.median(1).values, "kthvalue": lambda x: x.kthvalue(3, 2).values,
    "cumsum": lambda x: x.cumsum(1),
}
IMAGES = {
    "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1), "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 2),
    "adaptive_max_pool2d, uneven": lambda x: F.adaptive_max_pool2d(x, (4, 5)),
    "upsample": lambda x: F.interpolate(x, scale_factor=2),
    "max_pool3d": lambda x: F.max_pool3d(x[:, None], (2, 3, 2), (1, 2, 2), (1, 1, 0)),
    "avg_pool3d": lambda x: F.avg_pool3d(x[:, None], 2, 1, 1, count_include_pad=False),
    "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(x[:, None], (2, 3, 5)),
    "bilinear": lambda x: F.interpolate(x, (9, 4), mode="bilinear"),
    "corners": lambda x: F.interpolate(x, (9, 4), mode="bilinear", align_corners=True),
    "bicubic": lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "reflect in two": lambda x: F.pad(x, (2, 1, 3, 0), "reflect"),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2), "batch_norm": lambda x: F.batch_norm(
        x, None, None, training=True), "group_norm": lambda x: F.group_norm(x, 2),
}
PART = 30  # functions of one module: a model on the engine has at most 64 outputs
LOSSES = {
    "mse": F.mse_loss, "mse sum": lambda a, b: F.mse_loss(a, b, reduction="sum"),
    "l1": F.l1_loss, "smooth_l1": lambda a, b: F.smooth_l1_loss(a, b, beta=0.5),
    "huber": lambda a, b: F.huber_loss(a, b, delta=0.5), "bce": lambda a, b: F.binary_cross_entropy(
        a.sigmoid(), b.sigmoid()), "bce with logits": lambda a, b:
    F.binary_cross_entropy_with_logits(a, b.sigmoid()), "soft margin": lambda a, b:
    F.soft_margin_loss(a, torch.where(b > 0, 1.0, -1.0)), "kl_div": lambda a, b: F.kl_div(
        F.log_softmax(a, 1), F.softmax(b, 1), reduction="batchmean"),
    "bce with weights": lambda a, b: F.binary_cross_entropy_with_logits(
        a, b.sigmoid(), pos_weight=torch.tensor([1.0, 2.0, 0.5, 3.0]), weight=b.abs()),
    "kl_div of logarithms": lambda a, b: F.kl_div(F.log_softmax(a, 1), F.log_softmax(b, 1),
                                                  log_target=True, reduction="sum"),
    "poisson": lambda a, b: F.poisson_nll_loss(a, b.abs() * 3, full=True),
    "hinge": lambda a, b: F.hinge_embedding_loss(a, torch.where(b > 0, 1.0, -1.0), 0.5),
    "ranking": lambda a, b: F.margin_ranking_loss(a, b, torch.where(b > 0, 1.0, -1.0), 0.1),
    "cosine": lambda a, b: F.cosine_embedding_loss(
        a, b, torch.where(b[:, 0] > 0, 1.0, -1.0), 0.1),
    "triplet": lambda a, b: F.triplet_margin_loss(a, b, b.flip(0), swap=True),
    "none, then mean": lambda a, b: F.mse_loss(a, b, reduction="none").mean(),
}


@program
def functions():
    names = list(FUNCTIONS)
    for begin in range(0, len(names), PART):
        part = {name: FUNCTIONS[name] for name in names[begin:begin + PART]}
        same("functions", Of((3, 4, 6), part), data(3, 4, 6))
    same("functions of images", Of((2, 4, 6, 6), IMAGES), data(2, 4, 6, 6))


@program
def losses():
    class Compared(nn.Module):
        def __init__(self, loss):
            super().__init__()
            torch.manual_seed(7)
            self.fc, self.loss = nn.Linear(6, 4), loss

        def forward(self, x, y):
            z = self.fc(x)
            return z, self.loss(z, y)

    for name, loss in LOSSES.items():
        same(name, Compared(loss), data(5, 6), data(5, 4, seed=2))
    labels = torch.tensor([0, 3, 1, 1, 2])
    weight = torch.tensor([0.5, 1.0, 2.0, 0.1])
    for name, keys in (("plain", {}), ("weights", {"weight": weight}), ("sum", {"reduction": "sum"}),
                       ("smoothing", {"label_smoothing": 0.1}), ("ignored", {"ignore_index": 1})):
        same(f"cross_entropy, {name}", Compared(lambda z, y, keys=keys: F.cross_entropy(
            z, y, **keys)), data(5, 6), labels)
    same("cross_entropy of each", Compared(lambda z, y: (F.cross_entropy(
        z, y, reduction="none", weight=weight) * torch.arange(5)).sum()), data(5, 6),
         torch.tensor([0, 3, -100, 1, 2]))
    same("nll_loss", Compared(lambda z, y: F.nll_loss(F.log_softmax(z, 1), y)), data(5, 6), labels)
    same("labels that are ignored", Compared(F.cross_entropy), data(5, 6),
         torch.tensor([0, -100, 1, -100, 2]))
    same("labels of pixels", Compared(lambda z, y: F.cross_entropy(z.mT, y)), data(5, 3, 6),
         torch.tensor([[0, 1, 2], [3, 3, 0], [1, 1, 1], [2, 0, 2], [0, 1, 3]]))


class Net(nn.Module):
    """Layers, and a loss over their result."""

    def __init__(self, *layers):
        super().__init__()
        torch.manual_seed(5)
        self.layers = nn.Sequential(*[layer() for layer in layers])

    def forward(self, x):
        y = self.layers(x)
        return y, (y * y).mean()


@program
def layers():
    for name, shape, *parts in (
            ("linear", (4, 6), lambda: nn.Linear(6, 3)),
            ("linear without a bias", (4, 6), lambda: nn.Linear(6, 3, bias=False)),
            ("linear of rows", (4, 5, 6), lambda: nn.Linear(6, 3)),
            ("conv2d", (2, 4, 7, 7), lambda: nn.Conv2d(4, 6, 3, 2, 1, groups=2)),
            ("conv2d same", (2, 4, 7, 7), lambda: nn.Conv2d(4, 3, 3, padding="same")),
            ("conv1d", (2, 4, 9), lambda: nn.Conv1d(4, 3, 3, 2, 1)),
            ("conv3d", (2, 2, 5, 6, 4),
             lambda: nn.Conv3d(2, 4, (3, 2, 3), (2, 1, 1), (1, 0, 1), groups=2)),
            ("conv_transpose1d", (2, 4, 5), lambda: nn.ConvTranspose1d(4, 3, 4, 2, 1, 1)),
            ("conv_transpose2d", (2, 4, 5, 3), lambda: nn.ConvTranspose2d(
                4, 6, (3, 2), 2, (1, 0), (1, 0), groups=2, bias=False)),
            ("batch norm", (6, 4, 3, 3), lambda: nn.BatchNorm2d(4)),
            ("batch norm of rows", (6, 4), lambda: nn.BatchNorm1d(4)),
            ("batch norm without statistics", (6, 4, 3, 3),
             lambda: nn.BatchNorm2d(4, track_running_stats=False)),
            ("group norm", (3, 4, 3, 3), lambda: nn.GroupNorm(2, 4)),
            ("instance norm", (3, 4, 3, 3), lambda: nn.InstanceNorm2d(4, affine=True)),
            ("layer norm", (3, 4, 6), lambda: nn.LayerNorm((4, 6))),
            ("prelu", (3, 4, 6), lambda: nn.PReLU(4)),
            ("convolutions", (2, 1, 12, 12), lambda: nn.Conv2d(1, 4, 3), nn.ReLU,
             lambda: nn.MaxPool2d(2), nn.Flatten, lambda: nn.Linear(100, 10), nn.GELU)):
        same(name, Net(*parts), data(*shape), tolerance=3e-5)


@program
def bags():
    class Net(nn.Module):
        def __init__(self, **keys):
            super().__init__()
            torch.manual_seed(5)
            self.bag, self.fc = nn.EmbeddingBag(9, 4, **keys), nn.Linear(4, 3)

        def forward(self, x):
            y = self.fc(self.bag(x))
            return y, (y * y).mean()

    tokens = torch.randint(9, (5, 6), generator=torch.Generator().manual_seed(4))
    for keys in ({}, {"mode": "sum", "padding_idx": 2}, {"mode": "max"}):
        same(f"EmbeddingBag {keys}", Net(**keys), tokens)


@program
def recurrent():
    class Net(nn.Module):
        def __init__(self, kind, **keys):
            super().__init__()
            torch.manual_seed(5)
            self.net = kind(4, 5, **keys)

        def forward(self, x):
            y, last = self.net(x)
            if self.net.num_layers == 1:
                y = y * (last[0] if isinstance(last, tuple) else last).sum()
            return y, (y * y).mean()

    for kind, keys in ((nn.LSTM, {"batch_first": True}), (nn.LSTM, {"bidirectional": True}),
                       (nn.GRU, {"num_layers": 2}), (nn.GRU, {"bias": False}),
                       (nn.RNN, {"nonlinearity": "relu"}), (nn.RNN, {"bidirectional": True})):
        same(f"{kind.__name__} {keys}", Net(kind, **keys), data(3, 6, 4), tolerance=3e-5)


# --- whole networks -------------------------------------------------------------------------------


@program
def transformer():
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(5, 8)
            self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.head = nn.Linear(8, 11, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, x, y=None):
            h = self.tokens(x) + self.places(torch.arange(5))
            mask = nn.Transformer.generate_square_subsequent_mask(5)
            z = self.head(self.block(h, src_mask=mask, is_causal=True))
            if y is None:
                return z
            return z, F.cross_entropy(z.view(-1, 11), y.view(-1))

    tokens = torch.randint(11, (3, 5), generator=torch.Generator().manual_seed(4))
    model = Language()
    same("a language model", model, tokens, tokens.roll(-1, 1), tolerance=3e-5)
    model.eval()
    inference = poptorch.inferenceModel(model)
    with torch.no_grad():
        expected = model(tokens)
    check("inference", torch.allclose(inference(tokens), expected, atol=1e-5) and
          inference._engine is not None)


@program
def residual():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.path = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3),
                                      nn.ReLU(inplace=True))
            self.last = nn.ReLU(inplace=True)

        def forward(self, x):
            y = self.path(self.path(x))
            y = y * 1.0
            y += x
            return self.last(y)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.block, self.fc = Block(), nn.Linear(3, 2)

        def forward(self, pair, scale=1.0):
            y = self.fc(self.block(pair["left"] * scale + pair["right"]).mean((2, 3)))
            return {"logits": y, "loss": y.pow(2).mean(), "kind": "test", "none": None}

    pair = {"left": data(4, 3, 5, 5), "right": data(4, 3, 5, 5, seed=2)}
    model, plain = Net(), Net()
    expected = gradients(plain, pair)
    wrapped = poptorch.trainingModel(model, None, torch.optim.SGD(model.parameters(), 0.1))
    found = wrapped(pair)
    check("nested arguments and results", wrapped._engine is not None and
          found["kind"] == "test" and found["none"] is None and
          torch.allclose(found["logits"], expected["logits"], atol=1e-5))
    check("parameters and statistics", all(
        torch.allclose(a, b, atol=1e-5) for a, b in zip(model.state_dict().values(),
                                                        plain.state_dict().values())))
    names = wrapped.getTensorNames()
    for name in ("block.path.0_output_1", "block.path.1_output_0", "block.last_output_0",
                 "Gradient___model.block.path.0.weight", "model.block.path.1.running_mean"):
        check(f"{name} in {names}", name in names)
    model.eval(), plain.eval()
    inference = poptorch.inferenceModel(model)
    with torch.no_grad():
        check("the running statistics in inference", torch.allclose(
            inference(pair)["logits"], plain(pair)["logits"], atol=1e-5))


@program
def modes():
    """Dropout draws in training alone; a frozen layer stays; a frozen norm uses its statistics."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.norm, self.fc, self.drop = nn.BatchNorm1d(6), nn.Linear(6, 40), nn.Dropout(0.5)
            self.norm.running_mean.fill_(0.3)

        def forward(self, x):
            y = self.drop(self.fc(self.norm(x)))
            return y, y.sum()

    model = Net()
    model.norm.eval()
    model.fc.bias.requires_grad_(False)
    x, bias = data(50, 6), model.fc.bias.clone()
    wrapped = poptorch.trainingModel(model, None, torch.optim.SGD(model.parameters(), 0.0))
    y = wrapped(x)[0]
    share = (y == 0).float().mean().item()
    # 2000 draws: 4 standard deviations are 4 sqrt(0.25 / 2000) = 0.045
    check(f"dropout: {share}", abs(share - 0.5) < 0.045 and wrapped._engine is not None)
    check("drawn anew", not torch.equal(y, wrapped(x)[0]))
    expected = model.fc(F.batch_norm(x, model.norm.running_mean, model.norm.running_var,
                                     model.norm.weight, model.norm.bias))
    kept = y != 0
    check("what is kept is doubled", torch.allclose(y[kept], 2 * expected[kept], atol=1e-5))
    check("frozen", torch.equal(bias, model.fc.bias) and
          "Gradient___model.fc.bias" not in wrapped.getTensorNames())
    model.eval()
    inference = poptorch.inferenceModel(model)
    check("nothing is dropped", torch.allclose(inference(x)[0], expected, atol=1e-5))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
