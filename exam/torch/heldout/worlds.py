"""Families with sets, graphs, densities, equations and agents."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from data import Classes, Named
from loop import Program


# --- sets and graphs -----------------------------------------------------------------------------


class SetTransformer(Program):
    """The largest number of a set: attention among its members, and a learnt query."""

    labels, rate, loss_op, batch_size, traits = "real", 4e-3, "L1Loss", 24, "floats one column"
    optimizer, steps = "adam", 150

    def build(self):
        m = self.model = nn.Module()
        m.embed = nn.Linear(1, 16)
        m.attn = nn.MultiheadAttention(16, 2, batch_first=True)
        m.norm1, m.fc, m.relu, m.norm2 = nn.LayerNorm(16), nn.Linear(16, 16), nn.ReLU(), \
            nn.LayerNorm(16)
        m.seed = nn.Parameter(torch.randn(1, 1, 16) / 4)
        m.pool, m.out = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 1)

    def batch(self, step, train=True):
        x = 3 * torch.rand(self.batch_size, 7, 1, generator=self.random)
        return {"input": x, "targets": x.amax(1)}

    def losses(self, batch):
        m = self.model
        x = m.embed(batch["input"])
        x = m.norm1(x + m.attn(x, x, x)[0])
        x = m.norm2(x + m.relu(m.fc(x)))
        made = m.out(m.pool(m.seed.expand(len(x), -1, -1), x, x)[0][:, 0])
        self.note("loss_input_0", made, op="", role="input", module="loss")
        return {"loss": F.l1_loss(made, batch["targets"])}


class GraphAttention(Program):
    """A graph of people, attention over their friends, and dropout of 0.5; few labels."""

    labels, rate, optimizer, options = "classes", 1e-2, "adam", {"weight_decay": 5e-4}
    classes, eval_every, traits, steps = 4, 40, "one floats full dropout own-loss", 120

    def build(self):
        n, k = 60, self.classes
        group = self.randint(k, n)
        near = torch.rand(n, n, generator=self.random) < torch.where(
            group[:, None] == group, 0.15, 0.02)
        self.edges = near | near.T | torch.eye(n, dtype=torch.bool)
        x = self.randn(n, 10) + 1.0 * self.randn(k, 10)[group]
        self.fixed = {"input": x, "labels": group}
        m = self.model = nn.Module()
        m.lift, m.left, m.right = nn.Linear(10, 16, bias=False), nn.Linear(16, 1), nn.Linear(16, 1)
        m.leaky, m.elu, m.drop = nn.LeakyReLU(0.2), nn.ELU(), nn.Dropout(0.5)
        m.lift2, m.left2, m.right2 = nn.Linear(16, k, bias=False), nn.Linear(k, 1), nn.Linear(k, 1)

    def batch(self, step, train=True):
        return dict(self.fixed)

    def spread(self, h, left, right):
        scores = self.model.leaky(left(h) + right(h).T).masked_fill(~self.edges, -1e9)
        return scores.softmax(1) @ h

    def losses(self, batch):
        m = self.model
        h = m.drop(m.elu(self.spread(m.lift(batch["input"]), m.left, m.right)))
        scores = self.spread(m.lift2(h), m.left2, m.right2)
        rows = slice(0, 30) if m.training else slice(30, 60)
        self.note("loss_input_0", scores[:30], op="", role="input", module="loss")
        return {"loss": F.cross_entropy(scores[rows], batch["labels"][rows])}


class Molecules(Program):
    """Is there a ring? Sums over neighbors and over all atoms of small graphs (GIN)."""

    labels, classes, rate, batch_size, traits = "classes", 2, 4e-3, 16, "floats one drawn norm"
    eval_every, optimizer, steps = 50, "adam", 150

    def build(self):
        m = self.model = nn.Module()
        m.embed = nn.Linear(3, 12)
        for i in (1, 2):
            m.add_module(f"gin{i}", Named(fc1=nn.Linear(12, 16), norm=nn.BatchNorm1d(16),
                                          relu1=nn.ReLU(), fc2=nn.Linear(16, 12)))
        m.relu, m.out = nn.ReLU(), nn.Linear(12, 2)

        def forward(x, near):
            h = m.embed(x)
            for gin in (m.gin1, m.gin2):
                h = gin((h + near @ h).flatten(0, 1)).view(h.shape).relu()
            return m.out(m.relu(h.sum(1) / 8))

        m.forward = forward

    def batch(self, step, train=True):
        y, n = self.randint(self.classes, self.batch_size), 8
        near = torch.zeros(len(y), n, n)
        for i in range(n - 1):  # a chain; a ring has one bond more and a side chain
            near[:, i, i + 1] = 1
        near[:, 6, 7] = (y == 0).float()
        near[:, 0, 5] = (y == 1).float()
        near[:, 2, 7] = (y == 1).float()
        x = F.one_hot(self.randint(3, len(y), n), 3).float()
        return {"atoms": x, "bonds": near + near.transpose(1, 2), "labels": y}

    def predict(self, batch):
        return self.model.forward(batch["atoms"], batch["bonds"])


# --- densities and equations ---------------------------------------------------------------------


class Energy(Program):
    """Points of two rings: low where they are, high where a walk from noise ends."""

    rate, loss_op, batch_size, traits, rates = 2e-3, "", 32, "floats signed", (0.5, 1.0)
    steps = 150

    def build(self):
        self.model = Named(fc1=nn.Linear(2, 32), act1=nn.SiLU(), fc2=nn.Linear(32, 32),
                           act2=nn.SiLU(), fc3=nn.Linear(32, 1))

    def batch(self, step, train=True):
        angle = 6.28 * torch.rand(self.batch_size, generator=self.random)
        radius = 1.0 + self.randint(2, self.batch_size) + 0.05 * self.randn(self.batch_size)
        return {"input": torch.stack((angle.cos(), angle.sin()), 1) * radius[:, None],
                "starts": 2 * self.randn(self.batch_size, 2)}

    def walk(self, x):
        recorder, self.recorder = self.recorder, None
        for _ in range(8):
            x = x.detach().requires_grad_()
            slope = torch.autograd.grad(self.model(x).sum(), x)[0]
            x = x - 0.1 * slope.clamp(-5, 5) + 0.05 * self.randn(*x.shape)
        self.recorder = recorder
        return x.detach()

    def losses(self, batch):
        fake = self.walk(batch["starts"])
        real, made = self.model(batch["input"]), self.model(fake)
        return {"loss": real.mean() - made.mean() + 0.1 * (real ** 2 + made ** 2).mean()}


class Planar(nn.Module):
    def __init__(self):
        super().__init__()
        self.u, self.w = nn.Parameter(0.1 * torch.randn(2)), nn.Parameter(0.5 * torch.randn(2))
        self.b = nn.Parameter(torch.zeros(1))

    def forward(self, z):
        wu = self.w @ self.u
        u = self.u + (F.softplus(wu) - 1 - wu) * self.w / (self.w @ self.w)
        h = torch.tanh(z @ self.w + self.b)
        self.log_det = (1 + (1 - h ** 2) * (self.w @ u)).abs().log()
        return z + h[:, None] * u


class PlanarFlow(Program):
    """Fits a density that is known but for its size: the free energy falls."""

    rate, loss_op, batch_size, traits, steps = 2e-2, "", 96, "nolayers floats signed", 200

    def build(self):
        self.model = Named(**{f"flow{i}": Planar() for i in range(6)})

    def batch(self, step, train=True):
        return {"noise": self.randn(self.batch_size, 2)}

    def losses(self, batch):
        z, log_q = batch["noise"], -0.5 * (batch["noise"] ** 2).sum(1)
        for flow in self.model.children():
            z = flow(z)
            log_q = log_q - flow.log_det
        energy = 0.5 * ((z.norm(dim=1) - 2) / 0.4) ** 2 - torch.logsumexp(torch.stack(
            (-0.5 * ((z[:, 0] - 2) / 0.6) ** 2, -0.5 * ((z[:, 0] + 2) / 0.6) ** 2)), 0)
        return {"loss": (log_q + energy).mean()}


class NeuralOde(Program):
    """The course of a spiral, by a net that gives the slope at each point."""

    rate, loss_op, batch_size, traits, steps = 1e-2, "MSELoss", 12, "floats one", 150

    def build(self):
        self.model = Named(fc1=nn.Linear(2, 20), tanh=nn.Tanh(), fc2=nn.Linear(20, 2))
        self.turn = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])

    def go(self, slope, x):
        path, h = [], 0.15
        for _ in range(5):
            k1 = slope(x)
            k2 = slope(x + h / 2 * k1)
            k3 = slope(x + h / 2 * k2)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + (slope(x + h * k3)))
            path.append(x)
        return torch.stack(path, 1)

    def batch(self, step, train=True):
        x = 1.5 * self.randn(self.batch_size, 2)
        return {"starts": x, "paths": self.go(lambda x: (x ** 3 / 3).clamp(-3, 3) @ self.turn.T, x)}

    def losses(self, batch):
        made = self.go(lambda x: self.model(x), batch["starts"])
        return {"loss": F.mse_loss(made, batch["paths"])}


class Equilibrium(Classes):
    """A layer that is applied until it changes nothing; gradients through its last step."""

    traits, rate, optimizer, options = "one floats drawn input", 4e-3, "adam", {}

    def build(self):
        self.data()
        m = self.model = nn.Module()
        m.inject, m.cell, m.norm = nn.Linear(16, 24), nn.Linear(24, 24, bias=False), nn.LayerNorm(24)
        m.out = nn.Linear(24, self.classes)
        with torch.no_grad():
            m.cell.weight.mul_(0.5)

        def forward(x):
            x, z = m.inject(x), 0.0
            recorder, self.recorder = self.recorder, None
            with torch.no_grad():
                z = torch.zeros_like(x)
                for _ in range(12):
                    z = torch.tanh(m.norm(m.cell(z) + x))
            self.recorder = recorder
            return m.out(torch.tanh(m.norm(m.cell(z) + x)))

        m.forward = forward


# --- agents --------------------------------------------------------------------------------------


class Cart:
    """A cart on a line that is pushed to the middle; many at once."""

    def __init__(self, program, count):
        self.p, self.n = program, count
        self.reset(torch.ones(count, dtype=torch.bool))

    def reset(self, which):
        fresh = 2 * torch.rand(self.n, 2, generator=self.p.random) - 1
        self.state = torch.where(which[:, None], fresh, getattr(self, "state", fresh))

    def step(self, push):
        at, speed = self.state.unbind(1)
        speed = 0.9 * speed + 0.2 * push
        at = at + 0.3 * speed
        self.state = torch.stack((at, speed), 1)
        done = (at.abs() > 2.5) | (torch.rand(self.n, generator=self.p.random) < 0.05)
        return -at.abs() - 0.05 * push ** 2, done


class Ppo(Program):
    """Clipped ratios, advantages, and four steps for each roll-out."""

    rate, batch_size, batches, rates, clip = 3e-3, 8, (1,), (1.0,), 0.5
    traits, steps, options = "floats agent", 320, {"eps": 1e-5}

    def build(self):
        m = self.model = nn.Module()
        m.actor = Named(fc1=nn.Linear(2, 20), tanh=nn.Tanh(), fc2=nn.Linear(20, 3))
        m.critic = Named(fc1=nn.Linear(2, 20), tanh=nn.Tanh(), fc2=nn.Linear(20, 1))
        for layer in (m.actor.fc1, m.critic.fc1, m.critic.fc2):
            nn.init.orthogonal_(layer.weight, 2 ** 0.5)
        nn.init.orthogonal_(m.actor.fc2.weight, 0.01)
        self.cart, self.rewards = Cart(self, 8), []

    def roll(self):
        rows, returns = [], []
        recorder, self.recorder = self.recorder, None
        with torch.no_grad():
            for _ in range(16):
                state = self.cart.state
                choice = torch.distributions.Categorical(logits=self.model.actor(state))
                action = torch.multinomial(choice.probs, 1, generator=self.random)[:, 0]
                reward, done = self.cart.step((action - 1).float())
                self.cart.reset(done)
                rows.append((state, action, choice.log_prob(action), self.model.critic(state)[:, 0],
                             reward, done.float()))
            following = self.model.critic(self.cart.state)[:, 0]
            gain, advantages = 0.0, []
            for state, action, log, value, reward, done in reversed(rows):
                gain = reward + 0.95 * (1 - done) * following - value + 0.9 * (1 - done) * gain
                advantages.append(gain)
                following = value
        self.recorder = recorder
        self.rewards.append(float(torch.stack([r[4] for r in rows]).mean()))
        advantages = torch.cat(advantages[::-1])
        state, action, log, value = (torch.cat([r[i] for r in rows]) for i in range(4))
        self.seen = {"states": state, "actions": action, "log_probs": log, "advantages": advantages,
                     "returns": advantages + value}
        self.order = torch.randperm(len(state), generator=self.random)

    def batch(self, step, train=True):
        if step % 4 == 0:
            self.roll()
        rows = self.order.view(4, -1)[step % 4]
        return {name: value[rows] for name, value in self.seen.items()}

    def losses(self, batch):
        m = self.model
        choice = torch.distributions.Categorical(logits=m.actor(batch["states"]))
        ratio = (choice.log_prob(batch["actions"]) - batch["log_probs"]).exp()
        gain = batch["advantages"]
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        value = m.critic(batch["states"])[:, 0]
        return {"policy_loss": -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean(),
                "value_loss": 0.5 * F.mse_loss(value, batch["returns"]),
                "entropy_loss": -0.01 * choice.entropy().mean()}


class DoubleDqn(Program):
    """A replay buffer, a greedy share that grows, and a dueling net with a target."""

    rate, loss_op, rates, traits, steps = 2e-3, "SmoothL1Loss", (0.5, 1.0), "floats agent", 200
    clip = 10.0

    def build(self):
        m = self.model = nn.Module()
        for name in ("policy_net", "target_net"):
            m.add_module(name, Named(fc1=nn.Linear(2, 24), relu1=nn.ReLU(), fc2=nn.Linear(24, 24),
                                     relu2=nn.ReLU(), out=nn.Linear(24, 4)))
        m.target_net.load_state_dict(m.policy_net.state_dict())
        m.target_net.requires_grad_(False)
        self.cart, self.buffer, self.rewards = Cart(self, 8), [], []

    def value(self, net, x):
        made = net(x)
        return made[:, :1] + made[:, 1:] - made[:, 1:].mean(1, keepdim=True)

    def batch(self, step, train=True):
        recorder, self.recorder = self.recorder, None
        with torch.no_grad():
            for _ in range(4 if self.buffer else 12):
                state = self.cart.state
                best = self.value(self.model.policy_net, state).argmax(1)
                guess = torch.rand(8, generator=self.random) < max(0.1, 1 - step / 100)
                action = torch.where(guess, self.randint(3, 8), best)
                reward, done = self.cart.step((action - 1).float())
                self.buffer.append((state, action, reward, self.cart.state, done.float()))
                self.cart.reset(done)
        self.recorder = recorder
        self.rewards.append(float(reward.mean()))
        rows = self.randint(8 * len(self.buffer), self.batch_size)
        parts = [torch.cat([b[i] for b in self.buffer])[rows] for i in range(5)]
        return dict(zip(("states", "actions", "rewards", "next_states", "dones"), parts))

    def losses(self, batch):
        m = self.model
        q = self.value(m.policy_net, batch["states"]).gather(1, batch["actions"][:, None])[:, 0]
        with torch.no_grad():
            best = self.value(m.policy_net, batch["next_states"]).argmax(1, keepdim=True)
            ahead = self.value(m.target_net, batch["next_states"]).gather(1, best)[:, 0]
            goal = batch["rewards"] + 0.9 * (1 - batch["dones"]) * ahead
        return {"loss": F.smooth_l1_loss(q, goal)}

    def begin_step(self, step):
        if step % 25 == 0:
            self.model.target_net.load_state_dict(self.model.policy_net.state_dict())


class Ddpg(Program):
    """A continuous push: an actor that climbs its critic, and slow copies of both."""

    rate, rates, traits, steps, batch_size = 5e-3, (0.5, 1.0), "floats agent", 300, 32

    def build(self):
        m = self.model = nn.Module()
        m.actor = Named(fc1=nn.Linear(2, 20), relu=nn.ReLU(), fc2=nn.Linear(20, 1), tanh=nn.Tanh())
        m.critic = Named(fc1=nn.Linear(3, 24), relu=nn.ReLU(), fc2=nn.Linear(24, 1))
        m.actor_target = copy.deepcopy(m.actor).requires_grad_(False)
        m.critic_target = copy.deepcopy(m.critic).requires_grad_(False)
        self.cart, self.buffer, self.rewards = Cart(self, 8), [], []

    def make_optimizers(self):
        self.optimizers = [self.make_optimizer(self.model.critic.parameters()),
                           self.make_optimizer(self.model.actor.parameters())]

    def batch(self, step, train=True):
        recorder, self.recorder = self.recorder, None
        with torch.no_grad():
            for _ in range(2 if self.buffer else 12):
                state = self.cart.state
                push = (self.model.actor(state) + 0.3 * self.randn(8, 1)).clamp(-1, 1)
                reward, done = self.cart.step(push[:, 0])
                self.buffer.append((state, push, reward, self.cart.state, done.float()))
                self.cart.reset(done)
        self.recorder = recorder
        self.rewards.append(float(reward.mean()))
        rows = self.randint(8 * len(self.buffer), self.batch_size)
        parts = [torch.cat([b[i] for b in self.buffer])[rows] for i in range(5)]
        return dict(zip(("states", "actions", "rewards", "next_states", "dones"), parts))

    def critic_loss(self, batch):
        m = self.model
        with torch.no_grad():
            after = batch["next_states"]
            ahead = m.critic_target(torch.cat((after, m.actor_target(after)), 1))[:, 0]
            goal = batch["rewards"] + 0.9 * (1 - batch["dones"]) * ahead
        q = m.critic(torch.cat((batch["states"], batch["actions"]), 1))[:, 0]
        return {"critic_loss": F.mse_loss(q, goal)}

    def actor_loss(self, batch):
        m = self.model
        return {"actor_loss": -m.critic(torch.cat((batch["states"], m.actor(batch["states"])),
                                                  1)).mean()}

    def phases(self):
        return [(self.optimizers[0], self.critic_loss), (self.optimizers[1], self.actor_loss)]

    def begin_step(self, step):
        with torch.no_grad():
            for slow, fast in ((self.model.actor_target, self.model.actor),
                               (self.model.critic_target, self.model.critic)):
                for a, b in zip(slow.parameters(), fast.parameters()):
                    a.lerp_(b, 0.05)


FAMILIES = (SetTransformer, GraphAttention, Molecules, Energy, PlanarFlow, NeuralOde, Equilibrium, Ppo,
            DoubleDqn, Ddpg)
