"""A small transformer that reads characters, with accumulated gradients."""

import torch
import torch.nn as nn
import torch.nn.functional as F

LENGTH, WIDTH, HEADS, ACCUMULATE = 32, 64, 4, 4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.dropout = 0.1

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, HEADS, c // HEADS).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batch(count=8):
    starts = torch.randint(len(text) - LENGTH - 1, (count,))
    rows = torch.stack([text[s:s + LENGTH + 1] for s in starts])
    return rows[:, :-1], rows[:, 1:]


torch.manual_seed(0)
with open(F.__file__, encoding="utf-8") as file:
    characters = [c for c in file.read()[:40000] if c.isascii()]
vocabulary = sorted(set(characters))
text = torch.tensor([vocabulary.index(c) for c in characters])
model = Model(len(vocabulary))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(1000):
    model.train()
    optimizer.zero_grad()
    for _ in range(ACCUMULATE):
        x, y = batch()
        logits = model(x)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        (loss / ACCUMULATE).backward()
    optimizer.step()
    if step % 20 == 19:
        model.eval()
        with torch.no_grad():
            x, y = batch(32)
            print(step, F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item())
