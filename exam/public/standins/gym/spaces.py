"""Spaces of actions and observations."""

import numpy as np


class Space:
    def seed(self, seed=None):
        return None


class Discrete(Space):
    def __init__(self, n):
        self.n, self.shape = n, ()

    def sample(self):
        return int(np.random.randint(self.n))


class Box(Space):
    def __init__(self, low, high, shape=(1,), dtype=np.float32):
        self.low, self.high = (np.full(shape, v, np.float32) for v in (low, high))
        self.shape, self.dtype = shape, dtype

    def sample(self):
        return np.random.uniform(self.low, self.high).astype(np.float32)
