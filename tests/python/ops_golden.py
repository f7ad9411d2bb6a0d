"""What the makers of tests/golden/ops share: tensors by name, and the lines of cases."""
import math

import torch

INF, NAN = math.inf, math.nan

tensors: dict[str, torch.Tensor] = {}
lines: list[str] = []


def randn(*shape):
    return torch.randn(*shape)


def keep(name, tensor):
    """Stores a tensor under a name; gives the name, or "-" for None."""
    if tensor is None:
        return "-"
    tensors[name] = tensor.detach().clone().contiguous()
    return name


def text(value):
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return ",".join(text(v) for v in value)
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def case(name, kind, ins, outs, **attrs):
    """One line; ins and outs are pairs (short name, tensor or None), stored as name.short.
    A tensor that is stored already is referred to."""
    known = {id(t): n for n, t in stored}

    def names(pairs):
        result = []
        for short, tensor in pairs:
            if tensor is not None and id(tensor) in known:
                result.append(known[id(tensor)])
                continue
            full = keep(f"{name}.{short}", tensor)
            if tensor is not None:
                stored.append((full, tensor))
            result.append(full)
        return ",".join(result)

    words = [name, kind, "in", names(ins) or "none", "out", names(outs)]
    words += [f"{key}={text(value)}" for key, value in attrs.items() if value is not None]
    lines.append(" ".join(words))


stored: list[tuple[str, torch.Tensor]] = []


def grad(y, inputs, dy):
    return torch.autograd.grad(y, inputs, dy, allow_unused=True)


def poisoned(tensor, *places):
    """Puts (flat position, value) pairs into a tensor."""
    for at, value in places:
        tensor.view(-1)[at] = value
    return tensor
