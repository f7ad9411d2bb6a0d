"""A policy and its critic balance a pole: several updates with clipped ratios for each batch of moves."""

import gym
import torch
import torch.nn as nn
from torch.distributions import Categorical


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh())
        self.policy, self.value = nn.Linear(64, 2), nn.Linear(64, 1)

    def forward(self, x):
        x = self.body(x)
        return self.policy(x), self.value(x)


def play(count):
    global state
    states, actions, rewards, ends = [], [], [], []
    while len(states) < count:
        with torch.no_grad():
            action = Categorical(logits=agent(torch.from_numpy(state))[0]).sample().item()
        states.append(torch.from_numpy(state))
        state, reward, done, _ = env.step(action)
        actions.append(action)
        rewards.append(reward / 10)
        ends.append(done)
        state = env.reset() if done else state
    returns, value = [], 0.0
    for reward, done in zip(reversed(rewards), reversed(ends)):
        value = reward + 0.98 * value * (not done)
        returns.insert(0, value)
    return torch.stack(states), torch.tensor(actions), torch.tensor(returns)


torch.manual_seed(0)
env = gym.make("CartPole-v0")
env.seed(0)
state = env.reset()
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
for episode in range(1000):
    states, actions, returns = play(65)
    with torch.no_grad():
        logits, before = agent(states)
        old = Categorical(logits=logits).log_prob(actions)
    for rows in torch.arange(65).split(64 if episode % 2 else 65):
        logits, values = agent(states[rows])
        ratio = (Categorical(logits=logits).log_prob(actions[rows]) - old[rows]).exp()
        part = returns[rows] - before[rows].squeeze(-1)
        part = (part - part.mean()) / (part.std() + 1e-8) if len(part) > 1 else part
        policy_loss = -torch.min(ratio * part, ratio.clamp(0.8, 1.2) * part).mean()
        value_loss = (returns[rows] - values.squeeze(-1)).pow(2).mean()
        optimizer.zero_grad()
        (policy_loss + 0.5 * value_loss).backward()
        optimizer.step()
