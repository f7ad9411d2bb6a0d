"""Writes tests/golden/onnx/: small networks as torch.onnx.export writes them, by both of its
exporters, and what PyTorch computes with them.

    python tests/python/make_onnx_golden.py [NAME...]      needs torch, onnx, onnxscript

NAME.onnx is the network; NAME.safetensors has a batch x (and x1, a second input), the output y in eval mode, a target t,
and, after one step of SGD with a rate of 0.1 on the mean squared error in train mode, every
parameter as `after.<name>`.
"""

from __future__ import annotations

import pathlib
import sys
import warnings

import onnx
import torch
from safetensors.torch import save_file
from torch import nn

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "golden" / "onnx"
BATCH = 3
warnings.filterwarnings("ignore")


def linears() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))


class Cnn(nn.Module):
    """Convolutions, pools, a group norm: the network of the CNN that Sonde has."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.pool, self.relu = nn.GroupNorm(2, 4), nn.MaxPool2d(2, 2), nn.ReLU()
        self.fc1, self.fc2 = nn.Linear(16, 6), nn.Linear(6, 3)
        self.log_softmax = nn.LogSoftmax(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.pool(self.conv1(x)))
        x = self.norm(self.relu(self.pool(self.conv2(x))))
        x = self.relu(self.fc1(torch.flatten(x, 1)))
        return self.log_softmax(self.fc2(x))


class Normed(nn.Module):
    """A batch norm, dropout (of nothing, so that steps can be compared), a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.drop, self.fc = nn.Dropout(0.0), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.leaky_relu(self.bn(self.conv(x)), 0.1)
        return self.fc(self.drop((y + x).mean((2, 3))))


class Recurrent(nn.Module):
    def __init__(self, kind: type, last: bool = False, **keys: object) -> None:
        super().__init__()
        self.rnn = kind(4, 5, batch_first=True, **keys)
        self.fc = nn.Linear(10 if keys.get("bidirectional") else 5, 3)
        self.last = last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, last = self.rnn(x)
        return self.fc(last[0][-1] if self.last else states[:, -1])


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Linear(5, 8), nn.Parameter(torch.randn(1, 6, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True,
                                                activation="gelu")
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.norm(self.layer(self.embed(x) + self.position)).mean(1))


class Attention(nn.Module):
    """As in a vision transformer: a token for the class, which is repeated over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj, self.norm = nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8)
        self.token, self.fc = nn.Parameter(torch.randn(1, 1, 8)), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        n, t, c = x.shape
        parts = self.qkv(self.norm(x)).reshape(n, t, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(*parts.unbind(0))
        return self.fc((x + self.proj(y.transpose(1, 2).reshape(n, t, c)))[:, 0])


class Gpt(nn.Module):
    """Tokens, positions, causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.norm, self.qkv = nn.LayerNorm(8), nn.Linear(8, 24, bias=False)
        self.head = nn.Linear(8, 11, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t = x.shape
        y = self.token(x) + self.position(torch.arange(t))
        parts = (part.view(n, t, 2, 4).transpose(1, 2)
                 for part in self.qkv(self.norm(y)).split(8, 2))
        z = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.head(y + z.transpose(1, 2).contiguous().view(n, t, 8))


def transposed() -> nn.Module:
    return nn.Sequential(nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, output_padding=1),
                         nn.ReLU(), nn.ConvTranspose2d(4, 2, (2, 3), groups=2, dilation=(1, 2)),
                         nn.Flatten(2), nn.ConvTranspose1d(2, 3, 4, stride=3, bias=False))


def volume() -> nn.Module:
    return nn.Sequential(nn.Conv3d(2, 4, (2, 3, 3), stride=(1, 2, 1), padding=(1, 0, 1)),
                         nn.ReLU(), nn.Conv3d(4, 4, 2, groups=2, bias=False), nn.Flatten(),
                         nn.Linear(48, 3))


class Bordered(nn.Module):
    """Borders of every kind, and sizes of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 2, 3), nn.Linear(14, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        f = nn.functional
        y = self.conv(f.pad(x, (1, 2, 0, 1), mode="reflect"))
        y = f.pad(f.pad(y, (1, 1, 2, 0), mode="replicate"), (-1, 2, 1, 0), value=0.25)
        y = f.interpolate(y, scale_factor=2, mode="nearest")
        y = f.interpolate(y, size=(9, 7), mode="bilinear")
        y = f.interpolate(y, size=(5, 11), mode="bilinear", align_corners=True)
        return self.fc(f.interpolate(y, size=(8, 7), mode="bicubic").mean(2).flatten(1))


class Placed(nn.Module):
    """Elements by their places, in order, summed up."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(5, 7), nn.Linear(7, 3)
        self.register_buffer("order", torch.arange(68) * 3 % 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.cumsum(self.fc1(x), 2)
        top, places = torch.topk(y, 4, dim=2)
        low, others = torch.topk(y, 4, dim=2, largest=False)
        picked = torch.gather(torch.tanh(y), 2, others) + top * low
        picked = picked + y.index_select(2, self.order).reshape(-1, 2, 17, 4).mean(2)
        return self.fc2(torch.scatter_add(y, 2, places, picked))


class Moved(nn.Module):
    """Places of several dimensions, blocks, repeats, logic, functions without parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        blocks = nn.functional.pixel_unshuffle(nn.functional.pixel_shuffle(x, 2), 2)
        picked = blocks[:, [0, 2, 3], [1, 0, 1]]
        put = x.clone()
        put[:, [1, 2], [0, 1]] = picked[:, :2] * 2
        chosen = torch.where((x > 0) & ~(put > 1) | (x < -1), torch.atan(put), torch.tan(x))
        tiled = torch.floor(x * 3).repeat(1, 2, 1, 1)[:, 2:6]
        together = (chosen + tiled * 0.1).flatten(1, 2)
        classes = nn.functional.one_hot((x[:, 0, 0] > 0).long() + 1, 3).float()
        return self.fc(together).mean(1) + classes.mean(1) + picked.mean((1, 2))[:, None]


class Two(nn.Module):
    """Two inputs: numbers, and tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.left = nn.Embedding(11, 4), nn.Linear(5, 4)
        self.head = nn.Linear(8, 3)

    def forward(self, numbers: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        words = self.embed(tokens).mean(1)
        return self.head(torch.cat([torch.relu(self.left(numbers)), words], 1))


# name: (module, shape of a sample, the exporters that keep PyTorch's parameters)
BOTH = ("old", "new")
CASES = {
    "mlp": (linears, (1, 4, 4), BOTH),
    "digits": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.ReLU(), nn.Linear(8, 10)),
               (1, 28, 28), ("new",)),
    "cnn": (Cnn, (1, 10, 10), BOTH),
    "normed": (Normed, (1, 5, 5), BOTH),
    "rnn": (lambda: Recurrent(nn.RNN), (4, 4), ("old",)),
    "gru": (lambda: Recurrent(nn.GRU), (4, 4), BOTH),
    "lstm": (lambda: Recurrent(nn.LSTM, bidirectional=True, num_layers=2), (3, 4), BOTH),
    "lstm_last": (lambda: Recurrent(nn.LSTM, last=True), (3, 4), BOTH),
    "norms": (lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 4),
                                    nn.LayerNorm(4)), (4,), BOTH),
    "encoder": (Encoder, (6, 5), BOTH),
    "attention": (Attention, (5, 8), BOTH),
    "gpt": (Gpt, (6,), BOTH),
    "transposed": (transposed, (2, 3, 4), BOTH),
    "volume": (volume, (2, 3, 6, 5), BOTH),
    "bordered": (Bordered, (1, 5, 6), BOTH),
    "placed": (Placed, (2, 5), BOTH),
    "moved": (Moved, (4, 2, 8), ("new",)),
    "two": (Two, (5,), BOTH),
    "causal": (lambda: nn.Sequential(nn.ConstantPad1d((2, 0), 0.0), nn.Conv1d(2, 4, 3), nn.ELU(),
                                     nn.ConstantPad1d((4, 0), 0.0), nn.Conv1d(4, 3, 3, dilation=2)),
               (2, 5), ("new",)),
}


def export(module: nn.Module, x: tuple[torch.Tensor, ...], path: pathlib.Path,
           dynamo: bool) -> None:
    names = ["input"] if len(x) == 1 else ["numbers", "tokens"]
    if dynamo:
        batch = torch.export.Dim("batch")
        program = torch.onnx.export(module, x, dynamo=True, verbose=False,
                                    optimize=not isinstance(module, Normed),
                                    dynamic_shapes=tuple({0: batch} for _ in x))
        model = program.model_proto
    else:
        torch.onnx.export(module, x, path, dynamo=False, input_names=names,
                          dynamic_axes={name: {0: "batch"} for name in names},
                          do_constant_folding=False,
                          training=torch.onnx.TrainingMode.PRESERVE)
        model = onnx.load(path)
    for node in model.graph.node:  # names of files of this machine
        for entry in list(node.metadata_props):
            if entry.key != "pkg.torch.onnx.name_scopes":
                node.metadata_props.remove(entry)
    del model.graph.value_info[:]
    del model.graph.metadata_props[:]
    del model.metadata_props[:]
    for value in (*model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    for tensor in model.graph.initializer:
        del tensor.metadata_props[:]
    onnx.save(model, path)


def make(name: str) -> None:
    build, shape, kinds = CASES[name]
    for kind in kinds:
        torch.manual_seed(0)
        module = build()
        x = torch.randint(0, 11, (BATCH, *shape)) if name == "gpt" else \
            torch.randn(BATCH, *shape)
        inputs = (x, torch.randint(0, 11, (BATCH, 6))) if name == "two" else (x,)
        for parameter in module.parameters() if name != "norms" else ():
            nn.init.uniform_(parameter, -0.4, 0.4)
        module.train()
        export(module, tuple(one[:2] for one in inputs), FOLDER / f"{name}_{kind}.onnx", kind == "new")
        module.eval()
        y = module(*inputs).detach()
        target = torch.randn(y.shape)
        module.train()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        nn.functional.mse_loss(module(*inputs), target).backward()
        optimizer.step()
        renamed = kind == "new" and name in ("encoder", "gpt")  # by the exporter
        save_file({"x": x, "y": y, "t": target, **({"x1": inputs[1]} if inputs[1:] else {}),
                   **{f"after.{key}": value.detach().clone()
                      for key, value in module.named_parameters() if not renamed}},
                  FOLDER / f"{name}_{kind}.safetensors")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for one in sys.argv[1:] or CASES:
        make(one)
