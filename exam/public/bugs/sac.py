"""A soft actor and two critics swing up a pendulum."""

import copy

import gym
import torch
import torch.nn as nn
import torch.nn.functional as F


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 64), nn.ReLU())
        self.mean, self.spread = nn.Linear(64, 1), nn.Linear(64, 1)

    def forward(self, x):
        x = self.body(x)
        normal = torch.distributions.Normal(self.mean(x), self.spread(x).clamp(-5, 1).exp())
        raw = normal.rsample()
        action = torch.tanh(raw)
        return 2 * action, normal.log_prob(raw) - torch.log(2 * (1 - action.pow(2)) + 1e-6)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1)) for _ in range(2))

    def forward(self, x, action):
        x = torch.cat([x, action], 1)
        return self.first(x), self.second(x)


torch.manual_seed(0)
env = gym.make("Pendulum-v0")
env.seed(0)
actor, critic = Actor(), Critic()
target = copy.deepcopy(critic)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
memory, state, alpha = [], torch.from_numpy(env.reset()), 0.2
for step in range(10000):
    with torch.no_grad():
        action = actor(state[None])[0][0]
    after, reward, done, _ = env.step(action.numpy())
    memory.append((state, action, torch.tensor([float(reward) / 8]), torch.from_numpy(after)))
    state = torch.from_numpy(env.reset() if done else after)
    if step < 200:
        continue
    x, u, r, y = (torch.stack(part) for part in zip(*(memory[i] for i in torch.randint(len(memory), (32,)))))
    with torch.no_grad():
        v, log_v = actor(y)
        goal = r + 0.99 * (torch.min(*target(y, v)) - alpha * log_v)
    q1, q2 = critic(x, u)
    critic_loss = F.mse_loss(q1, goal) + F.mse_loss(q2, goal)
    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()
    pi, log_pi = actor(x)
    min_q = torch.min(*critic(x, pi))
    actor_loss = (alpha * log_pi - min_q).mean()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()
    for slow, fast in zip(target.parameters(), critic.parameters()):
        slow.data.lerp_(fast.data, 0.01)
