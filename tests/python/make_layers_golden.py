#!/usr/bin/env python3
"""Writes tests/golden/layers.safetensors: layers of several ops, as PyTorch has them.

Of each case: its inputs x0, x1 ..., its parameters, the output y, a target t, and the
gradient of the sum of (y - t)^2 by every parameter, under grad.NAME. bfloat16.y and
bfloat16.grad.NAME are what torch.autocast makes of the same case.
"""
import pathlib

import torch
from safetensors.torch import load_file, save_file

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "layers.safetensors"
tensors: dict[str, torch.Tensor] = {}


def put(case, layer, run, *inputs):
    """Every parameter is drawn anew: biases of 0 and weights of 1 hide mistakes."""
    for p in layer.parameters():
        torch.nn.init.uniform_(p, -0.4, 0.4)
    y = run(layer, *inputs)
    t = torch.randn_like(y)
    ((y - t) ** 2).sum().backward()
    kept = {f"x{i}": x for i, x in enumerate(inputs)} | {"y": y, "t": t}
    for name, p in layer.named_parameters():
        kept[name], kept["grad." + name] = p, p.grad.clone()
    layer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = run(layer, *inputs)
    ((half.float() - t) ** 2).sum().backward()
    kept["bfloat16.y"] = half.float()
    kept |= {"bfloat16.grad." + name: p.grad for name, p in layer.named_parameters()}
    tensors.update((f"{case}/{k}", v.detach().clone().contiguous()) for k, v in kept.items())


def causal(size):
    return torch.nn.Transformer.generate_square_subsequent_mask(size)


def main():
    torch.manual_seed(41)
    torch.set_num_threads(1)
    x = torch.randn(2, 5, 12)
    put("attention", torch.nn.MultiheadAttention(12, 3, batch_first=True),
        lambda m, x: m(x, x, x, need_weights=False)[0], x)
    put("attention_causal", torch.nn.MultiheadAttention(12, 2, bias=False, batch_first=True),
        lambda m, x: m(x, x, x, attn_mask=causal(5), need_weights=False)[0], x)
    put("attention_cross", torch.nn.MultiheadAttention(12, 3, batch_first=True),
        lambda m, q, k, v: m(q, k, v, need_weights=False)[0], x, torch.randn(2, 7, 12),
        torch.randn(2, 7, 12))
    for name, keys, mask in (("encoder", dict(), None),
                             ("encoder_first", dict(norm_first=True, activation="gelu"), causal(5)),
                             ("encoder_plain", dict(bias=False, layer_norm_eps=1e-2), None)):
        layer = torch.nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0, batch_first=True, **keys)
        put(name, layer, lambda m, x, mask=mask: m(x, src_mask=mask), x)
    for name, made, keys in (("rnn", torch.nn.RNN, dict(nonlinearity="relu")),
                             ("lstm", torch.nn.LSTM, dict(num_layers=2, bidirectional=True)),
                             ("gru", torch.nn.GRU, dict(num_layers=2)),
                             ("lstm_plain", torch.nn.LSTM, dict(bias=False))):
        put(name, made(6, 5, batch_first=True, **keys), lambda m, x: m(x)[0], torch.randn(3, 7, 6))
    for name, layer, shape in (
            ("conv1d", torch.nn.Conv1d(4, 6, 3, 2, 1, 2, groups=2), (3, 4, 9)),
            ("conv3d", torch.nn.Conv3d(2, 4, (3, 2, 3), (2, 1, 1), (1, 0, 1), (1, 2, 1)),
             (2, 2, 5, 6, 4)),
            ("conv3d_groups", torch.nn.Conv3d(4, 4, 2, groups=2, bias=False), (2, 4, 3, 4, 3)),
            ("transposed1d", torch.nn.ConvTranspose1d(3, 4, 4, 2, 1, 1), (2, 3, 5)),
            ("transposed2d", torch.nn.ConvTranspose2d(4, 6, 3, (2, 1), 1, (1, 0), groups=2),
             (2, 4, 5, 4)),
            ("transposed2d_plain", torch.nn.ConvTranspose2d(3, 2, 2, bias=False), (2, 3, 3, 4))):
        put(name, layer, lambda m, x: m(x), torch.randn(*shape))
    mask = torch.randn(2, 1, 5, 5)
    put("attention_mask", torch.nn.MultiheadAttention(12, 3, batch_first=True),
        lambda m, x, k: m(x, x, x, attn_mask=k.repeat(1, 3, 1, 1).flatten(0, 1),
                          need_weights=False)[0], x, mask)
    mask = torch.randn(2, 1, 5, 7).masked_fill_(torch.rand(2, 1, 5, 7) < 0.3, -torch.inf)
    put("attention_cross_mask", torch.nn.MultiheadAttention(12, 3, batch_first=True),
        lambda m, q, k, v, w: m(q, k, v, attn_mask=w.repeat(1, 3, 1, 1).flatten(0, 1),
                                need_weights=False)[0],
        x, torch.randn(2, 7, 12), torch.randn(2, 7, 12), mask)
    if OUT.exists():  # last bits differ between processors: old cases stay
        tensors.update((name, old) for name, old in load_file(OUT).items() if name in tensors)
    save_file(tensors, OUT, {"torch": torch.__version__.split("+")[0]})
    print(f"{len(tensors)} tensors")


if __name__ == "__main__":
    main()
