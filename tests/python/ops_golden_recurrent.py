"""Cases of tests/golden/ops: recurrent layers; make_ops_golden.py writes them."""
import torch

from ops_golden import NAN, case, poisoned, randn


def recurrent(name, cell, x, units, bias=True, reverse=False, poison=()):
    """One layer in one direction: torch's own output, gates and gradients of a loop like it."""
    kinds = {"rnn": (0, 1), "relu": (1, 1), "lstm": (2, 4), "gru": (3, 3)}
    choice, count = kinds[cell]
    w_ih, w_hh = randn(count * units, x.shape[2]) * 0.5, randn(count * units, units) * 0.5
    b_ih, b_hh = randn(count * units) * 0.3, randn(count * units) * 0.3
    if poison:
        poisoned(x, *poison)
    if not bias:
        b_ih, b_hh = torch.zeros_like(b_ih), torch.zeros_like(b_hh)
    made = {"rnn": torch.nn.RNN, "relu": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
    keys = {"nonlinearity": "relu"} if cell == "relu" else {}
    layer = made[cell](x.shape[2], units, bias=bias, batch_first=True, **keys)
    with torch.no_grad():
        for target, source in zip(layer.parameters(), (w_ih, w_hh, b_ih, b_hh)):
            target.copy_(source)
        y = layer(x.flip(1) if reverse else x)[0]
        y = y.flip(1) if reverse else y
    h, c = torch.zeros(x.shape[0], units), torch.zeros(x.shape[0], units)
    steps = range(x.shape[1])[::-1] if reverse else range(x.shape[1])
    a = (x @ w_ih.T + b_ih).requires_grad_()
    found = {t: None for t in steps}
    for t in steps:
        before, r = h, h @ w_hh.T + b_hh
        if not r.requires_grad:
            r.requires_grad_()
        r.retain_grad()
        s, q = a[:, t].chunk(count, 1), r.chunk(count, 1)
        if cell == "lstm":
            i, f, g, o = (torch.tanh(s[k] + q[k]) if k == 2 else torch.sigmoid(s[k] + q[k])
                          for k in range(4))
            c = f * c + i * g
            h, gates = o * torch.tanh(c), torch.cat((i, f, g, o), 1)
        elif cell == "gru":
            rr, z = torch.sigmoid(s[0] + q[0]), torch.sigmoid(s[1] + q[1])
            n = torch.tanh(s[2] + rr * q[2])
            h, gates = (1 - z) * n + z * h, torch.cat((rr, z, n, q[2]), 1)
        else:
            h = torch.tanh(s[0] + q[0]) if cell == "rnn" else torch.relu(s[0] + q[0])
            gates = h
        found[t] = (h, gates, c, r, before)
    order = [found[t] for t in range(x.shape[1])]
    hs, gates, cells, _, before = (torch.stack([o[k] for o in order], 1) for k in range(5))
    if not poison:
        torch.testing.assert_close(hs, y)
    dy = randn(*y.shape)
    hs.backward(dy)
    dr = torch.stack([o[3].grad for o in order], 1)
    ins = [("x", x), ("wi", w_ih), ("wh", w_hh)] + ([("bi", b_ih), ("bh", b_hh)] if bias else [])
    attrs = dict(units=units, cell=choice, reversed=reverse)
    case(name, "Recurrent", ins, [("y", y), ("g", gates), ("c", cells)], **attrs)
    case(name + ".d", "RecurrentGrad",
         [("dy", dy), ("h", hs.detach()), ("g", gates), ("c", cells), ("wh", w_hh)],
         [("da", a.grad), ("dr", dr), ("p", before)], **attrs)


def recurrents():
    torch.manual_seed(43)
    for cell in ("rnn", "relu", "lstm", "gru"):
        recurrent(f"recurrent.{cell}", cell, randn(3, 5, 4), 6)
        recurrent(f"recurrent.{cell}_back", cell, randn(2, 4, 3), 5, bias=False, reverse=True)
        recurrent(f"recurrent.{cell}_wide", cell, randn(19, 7, 18), 33)
        recurrent(f"recurrent.{cell}_nan", cell, randn(3, 4, 3), 4, poison=((13, NAN),))
