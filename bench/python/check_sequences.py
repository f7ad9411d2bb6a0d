"""Sequences for sonde.check, padded, masked and shifted. The form is that of check_networks.py."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

from check_networks import ROWS, classes, family

TOKENS, LENGTH = 13, 10


def lengths_and_mask():
    lengths = torch.tensor([10, 4, 7, 2, 9, 5, 3, 8, 6, 10, 2, 5])
    return lengths, torch.arange(LENGTH)[None, :] < lengths[:, None]


@family(("last of the padding", "padding"), ("rows as time", "mixing"), ("state detached", "reached"))
def packed_lstm(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(TOKENS, 16, padding_idx=0)
            self.lstm = nn.LSTM(16, 24, batch_first=fault != "rows as time", bidirectional=True)
            self.head = nn.Linear(48, 4)

        def forward(self, tokens, lengths):
            x = self.embed(tokens)
            if fault in ("last of the padding", "rows as time"):
                return self.head(self.lstm(x)[0][:, -1])
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True,
                                                       enforce_sorted=False)
            state = self.lstm(packed)[1][0]
            state = state.detach() if fault else state
            return self.head(torch.cat([state[0], state[1]], 1))

    lengths, mask = lengths_and_mask()
    tokens = torch.randint(1, TOKENS, (ROWS, LENGTH)) * mask
    return Net(), F.cross_entropy, (tokens, lengths, classes(4))


@family(("mask not passed", "padding"), ("mean over padding", "padding"), ("mask inverted", "padding"),
        ("batch second", "mixing"))
def padded_transformer(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.place = nn.Embedding(TOKENS, 32), nn.Embedding(LENGTH, 32)
            layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=fault != "batch second")
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(32, 3)

        def forward(self, tokens, mask):
            x = self.embed(tokens) + self.place(torch.arange(tokens.shape[1]))
            pad = {"mask not passed": None, "mask inverted": mask, "batch second": None}.get(fault, ~mask)
            x = self.encoder(x, src_key_padding_mask=pad)
            if fault == "mean over padding":
                return self.head(x.mean(1))
            return self.head((x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))

    mask = lengths_and_mask()[1]
    return Net(), F.cross_entropy, (torch.randint(TOKENS, (ROWS, LENGTH)), mask, classes(3))


@dataclasses.dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor


@family(("padding seen", "padding"), ("labels at the same place", "copying"))
def model_with_its_loss(fault):
    """A language model as in transformers: labels go in, the loss comes out."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(TOKENS, 32)
            self.place = nn.Parameter(torch.randn(LENGTH, 32) * 0.02)
            self.attend = nn.MultiheadAttention(32, 2, batch_first=True)
            self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, TOKENS, bias=False)
            self.head.weight = self.embed.weight
            nn.init.normal_(self.embed.weight, std=0.02)

        def forward(self, input_ids, attention_mask, labels=None):
            x = self.embed(input_ids) + self.place
            later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
            y = self.norm(x)
            x = x + self.attend(y, y, y, attn_mask=later, need_weights=False,
                                key_padding_mask=None if fault else attention_mask == 0)[0]
            if fault == "padding seen":
                x = x + (x.mean(1, keepdim=True) * 0.5)
            logits = self.head(self.norm(x))
            if fault.startswith("labels"):
                loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
            else:
                loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(),
                                       ignore_index=-100)
            return Output(loss, logits)

    mask = lengths_and_mask()[1]
    tokens = torch.randint(TOKENS, (ROWS, LENGTH))
    labels = tokens if fault.startswith("labels") else tokens.masked_fill(~mask, -100)
    return Net(), lambda model, batch: model(**batch).loss, \
        {"input_ids": tokens, "attention_mask": mask.long(), "labels": labels}


def language_model(fault, mixer):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.mix = nn.Embedding(TOKENS, 24), mixer()
            self.head = nn.Linear(24, TOKENS)

        def forward(self, tokens):
            return self.head(self.mix(self.embed(tokens)))

    tokens = torch.randint(TOKENS, (ROWS, LENGTH + 1))

    def loss(logits, wanted):
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())

    return Net(), loss, (tokens[:, :-1], tokens[:, 1:])


@family(("two directions", "leak"), ("time as batch", "mixing", "leak"))
def language_gru(fault):
    class Mix(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRU(24, 12 if fault == "two directions" else 24,
                              batch_first=fault != "time as batch",
                              bidirectional=fault == "two directions")

        def forward(self, x):
            return self.gru(x)[0]

    return language_model(fault, Mix)


@family(("padding on both sides", "leak"), ("norm over time", "leak"))
def language_convolution(fault):
    class Mix(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv1d(24, 24, 3), nn.LayerNorm(24)
            self.over_time = nn.LayerNorm(LENGTH, elementwise_affine=False)

        def forward(self, x):
            pad = (1, 1) if fault == "padding on both sides" else (2, 0)
            y = self.conv(F.pad(x.transpose(1, 2), pad))
            if fault == "norm over time":
                y = self.over_time(y)
            return self.norm(x + y.transpose(1, 2).relu())

    return language_model(fault, Mix)


@family(("mask upside down", "leak"), ("not causal", "leak"), ("softmax over heads", "leak"))
def language_attention(fault):
    class Mix(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 24)

        def forward(self, x):
            q, k, v = (one.unflatten(-1, (2, 12)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
            if fault == "not causal":
                y = F.scaled_dot_product_attention(q, k, v)
            elif fault == "mask upside down":
                seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu()
                y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
            elif fault:
                later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
                y = (q @ k.transpose(-1, -2)).masked_fill(later, -1e9).softmax(-2) @ v
            else:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return x + self.out(y.transpose(1, 2).flatten(2))

    return language_model(fault, Mix)


@family(("answers seen", "leak"))
def forecast(fault):
    """Values of a series, predicted one step ahead at each position."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(3, 16, batch_first=True), nn.Linear(16, 3)

        def forward(self, x):
            x = x - x.mean(1, keepdim=True) if fault else x
            return self.head(self.lstm(x)[0])

    series = torch.randn(ROWS, 16, 3).cumsum(1)
    return Net(), F.mse_loss, (series[:, :-1], series[:, 1:])


@family()
def time_first(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.head = nn.Embedding(TOKENS, 16), nn.RNN(16, 16), nn.Linear(16, TOKENS)

        def forward(self, tokens):
            return self.head(self.rnn(self.embed(tokens))[0])

    tokens = torch.randint(TOKENS, (LENGTH + 1, ROWS))
    return Net(), lambda logits, y: F.cross_entropy(logits.view(-1, TOKENS), y.reshape(-1)), \
        (tokens[:-1], tokens[1:])


@family(("encoder forgotten", "reached", "output_on_input"), ("decoder sees ahead", "leak"))
def translator(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.source, self.target = nn.Embedding(TOKENS, 32), nn.Embedding(TOKENS, 32)
            self.core = nn.Transformer(32, 2, 1, 1, 64, 0.0, batch_first=True)
            self.head = nn.Linear(32, TOKENS)

        def forward(self, src, tgt):
            mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
            src = self.source(torch.zeros_like(src) if fault == "encoder forgotten" else src)
            return self.head(self.core(src, self.target(tgt), tgt_mask=None if "ahead" in fault else mask,
                                       tgt_is_causal=False))

    tgt = torch.randint(TOKENS, (ROWS, LENGTH))
    return Net(), lambda logits, y: F.cross_entropy(logits.transpose(1, 2), y), \
        (torch.randint(TOKENS, (ROWS, 7)), tgt[:, :-1], tgt[:, 1:])


@family()
def ctc(fault):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.GRU(8, 16, batch_first=True, bidirectional=True), nn.Linear(32, 6)

        def forward(self, x):
            return self.head(self.rnn(x)[0]).log_softmax(-1).transpose(0, 1)

    def loss(model, batch):
        x, y = batch
        return F.ctc_loss(model(x), y, torch.full((len(x),), x.shape[1]), torch.full((len(x),), 4))

    return Net(), loss, (torch.randn(ROWS, 16, 8), torch.randint(1, 6, (ROWS, 4)))
