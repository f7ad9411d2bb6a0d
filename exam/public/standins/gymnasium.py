"""The environments of gym with the interface of gymnasium."""

import gym
from gym import Env, spaces  # noqa: F401


def make(name, *args, **options):
    made = gym.make(name)
    made.new_interface = True
    return made
