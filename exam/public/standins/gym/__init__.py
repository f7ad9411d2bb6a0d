"""Two environments of gym, by their equations, in the interface before and after version 0.26."""

import math

import numpy as np

from . import spaces


class Env:
    new_interface = False
    steps_max = _max_episode_steps = 200
    spec = type("Spec", (), {"max_episode_steps": 200, "reward_threshold": 195.0})
    metadata = {}

    @property
    def unwrapped(self):
        return self

    def seed(self, seed=None):
        self.random = np.random.RandomState(seed)
        return [seed]

    def reset(self, seed=None, options=None):
        if seed is not None or not hasattr(self, "random"):
            self.random = np.random.RandomState(seed if seed is not None else np.random.randint(1 << 30))
        self.count = 0
        self.begin()
        return (self.observed(), {}) if self.new_interface else self.observed()

    def step(self, action):
        self.count += 1
        reward, ended = self.move(action)
        cut = self.count >= self.steps_max
        if self.new_interface:
            return self.observed(), reward, ended, cut, {}
        return self.observed(), reward, ended or cut, {}

    def render(self, *args, **options):
        return np.zeros((8, 8, 3), np.uint8)

    def close(self):
        return None


class CartPole(Env):
    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-5, 5, (4,))

    def begin(self):
        self.state = self.random.uniform(-0.05, 0.05, 4)

    def observed(self):
        return self.state.astype(np.float32)

    def move(self, action):
        x, speed, angle, turn = self.state
        force = 10.0 if int(action) == 1 else -10.0
        push = (force + 0.05 * turn ** 2 * math.sin(angle)) / 1.1
        bend = (9.8 * math.sin(angle) - math.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
        pull = push - 0.05 * bend * math.cos(angle) / 1.1
        self.state = np.array([x + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend])
        return 1.0, bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * math.pi / 180)


class Pendulum(Env):
    action_space = spaces.Box(-2, 2, (1,))
    observation_space = spaces.Box(-8, 8, (3,))

    def begin(self):
        self.angle, self.turn = self.random.uniform(-math.pi, math.pi), self.random.uniform(-1, 1)

    def observed(self):
        return np.array([math.cos(self.angle), math.sin(self.angle), self.turn], np.float32)

    def move(self, action):
        force = float(np.clip(np.asarray(action).reshape(-1)[0], -2, 2))
        bent = (self.angle + math.pi) % (2 * math.pi) - math.pi
        cost = bent ** 2 + 0.1 * self.turn ** 2 + 0.001 * force ** 2
        self.turn = float(np.clip(self.turn + 0.05 * (15 * math.sin(self.angle) + 3 * force), -8, 8))
        self.angle += 0.05 * self.turn
        return -cost, False


def make(name, *args, **options):
    known = {"CartPole": CartPole, "Pendulum": Pendulum}
    kind = known.get(name.split("-")[0])
    if kind is None:
        raise ValueError(f"{name} is no stand-in (expected one of {', '.join(known)})")
    made = kind()
    made.new_interface = Env.new_interface or __name__ == "gymnasium"
    return made
