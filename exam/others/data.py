"""Data that packages bring along, or that is drawn."""

import gzip
import os

import numpy as np


def digits(channels=1, size=8):
    """1,797 scanned digits of scikit-learn, centered, (n, channels, size, size)."""
    import torch
    from sklearn.datasets import load_digits
    x, y = load_digits(return_X_y=True)
    x = torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 8.0 - 1.0
    if size != 8:
        x = torch.nn.functional.interpolate(x, size=(size, size), mode="nearest")
    return x.repeat(1, channels, 1, 1), torch.tensor(y)


def table(name):
    """wine, iris, breast_cancer (classes) or diabetes (a number), standardized."""
    import torch
    import sklearn.datasets
    x, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    if name == "diabetes":
        y = (y - y.mean()) / y.std()
        return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)[:, None]
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def mnist(count=4000):
    """SONDE_DATA's MNIST; the digits of scikit-learn without it."""
    import torch
    folder = os.path.join(os.environ.get("SONDE_DATA", "/nowhere"), "mnist")
    if not os.path.isdir(folder):
        return digits(size=28)
    with gzip.open(os.path.join(folder, "train-images-idx3-ubyte.gz")) as file:
        x = np.frombuffer(file.read(16 + count * 784), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(os.path.join(folder, "train-labels-idx1-ubyte.gz")) as file:
        y = np.frombuffer(file.read(8 + count), np.uint8, offset=8)
    return torch.tensor(x, dtype=torch.float32) / 127.5 - 1.0, torch.tensor(y, dtype=torch.int64)


def letters(length, count=4000, vocabulary=64):
    """Pieces of a licence's text as numbers below `vocabulary`, (count, length)."""
    import torch
    path = "/usr/share/common-licenses/GPL-3"
    text = open(path, encoding="utf-8").read().lower() if os.path.exists(path) else __doc__ * 500
    known = {c: i + 1 for i, c in enumerate(sorted(set(text))[:vocabulary - 1])}
    codes = np.array([known.get(c, 0) for c in text])
    starts = np.random.default_rng(0).integers(0, len(codes) - length, count)
    return torch.tensor(np.stack([codes[s:s + length] for s in starts]))


def moons(count=2000, seed=0):
    import torch
    from sklearn.datasets import make_moons
    x, y = make_moons(count, noise=0.05, random_state=seed)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def sunspots(window):
    """Yearly sunspots of statsmodels: windows and the next value, standardized."""
    import torch
    from statsmodels.datasets import sunspots as data
    y = data.load_pandas().data["SUNACTIVITY"].to_numpy(np.float32)
    y = torch.tensor((y - y.mean()) / y.std())
    x = torch.stack([y[i:i + window] for i in range(len(y) - window)])
    return x, y[window:, None]


def waves(count=1000, points=64):
    """Drawn sums of sines, smooth; and the same one step of heat later."""
    import torch
    draw = np.random.default_rng(0)
    t = np.linspace(0, 2 * np.pi, points, endpoint=False)
    a, k = draw.normal(size=(count, 4)), np.arange(1, 5)
    phase = draw.uniform(0, 2 * np.pi, (count, 4))
    parts = np.sin(k[None, :, None] * t + phase[..., None]) * a[..., None]
    x, y = parts.sum(1), (parts * np.exp(-0.1 * k[None, :, None] ** 2)).sum(1)
    return (torch.tensor(v[:, None], dtype=torch.float32) for v in (x, y))
