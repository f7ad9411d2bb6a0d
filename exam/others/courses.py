"""Trainers, players, guests of a federation and others whose loop is the point, from packages that parts
1 to 4 do not use."""

import data
from pictures import small_net
from scenes import own
from session import program, train

ALL = "single targets inputs batches classes logits"


def digits_loader(s, size=32):
    import torch
    x, y = s.arrays(*data.digits())
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), s.batch(size), shuffle=True)


@program("keras-torch", "keras sklearn.datasets", ALL + " modes")
def keras_loop(s):
    """The guide's loop in PyTorch over a functional model of Keras, with batch norm and dropout."""
    import keras
    import torch
    from keras import layers
    into = keras.Input(shape=(8, 8, 1))
    x = layers.Conv2D(12, 3, activation="relu", padding="same")(into)
    x = layers.BatchNormalization()(x)
    x = layers.MaxPooling2D(2)(x)
    x = layers.Dropout(0.2)(layers.Flatten()(x))
    model = keras.Model(into, layers.Dense(10, name="predictions")(layers.Dense(32, activation="relu")(x)))
    x, y = data.digits()
    optimizer = s.optimizer("Adam", model.parameters(), 2e-3)
    s.attach(model, optimizer)
    for inputs, labels in s.batches(x.permute(0, 2, 3, 1).contiguous(), y, s.batch(32), s.steps(120)):
        loss = torch.nn.functional.cross_entropy(model(inputs, training=model.training), labels)
        model.zero_grad()
        loss.backward()
        optimizer.step()


@program("torchbearer", "torchbearer sklearn.datasets", "single targets relu")
def bearer(s):
    """In the package's trial, with one of its schedules."""
    import torch
    from torchbearer import Trial
    x, y = s.arrays(*data.digits())
    torch.manual_seed(s.seed)
    model = small_net()
    optimizer = s.optimizer("SGD", model.parameters(), 0.05, momentum=0.9)
    s.attach(model, optimizer)
    Trial(model, optimizer, torch.nn.CrossEntropyLoss(), metrics=[], verbose=0).with_train_data(
        x, y, batch_size=s.batch(32)).run(epochs=s.steps(3))


@program("argus", "argus sklearn.datasets", "single targets")
def argus_model(s):
    """In the package's model of models."""
    import argus
    import torch

    class Digits(argus.Model):
        nn_module = {"net": small_net}
        optimizer = {"AdamW": torch.optim.AdamW}
        loss = {"CrossEntropyLoss": torch.nn.CrossEntropyLoss}

    torch.manual_seed(s.seed)
    model = Digits({"nn_module": ("net", {}), "optimizer": ("AdamW", {"lr": s.rate(2e-3)}),
                    "loss": "CrossEntropyLoss", "device": "cpu"})
    argus.utils.setup_logging = lambda *_, **__: None
    s.attach(model.nn_module, model.optimizer)
    model.fit(digits_loader(s), num_epochs=s.steps(3))


@program("torchtnt-auto", "torchtnt.framework torchtnt.framework.auto_unit torchtnt.framework.train "
         "sklearn.datasets", "single targets relu")
def torchtnt(s):
    """In the package's automatic unit: gradients clipped, a rate that decays at each step."""
    import torch
    from torchtnt.framework.auto_unit import AutoUnit
    from torchtnt.framework.train import train as run

    class Unit(AutoUnit):
        def compute_loss(self, state, batch):
            found = self.module(batch[0])
            return torch.nn.functional.cross_entropy(found, batch[1]), found

        def configure_optimizers_and_lr_scheduler(self, module):
            optimizer = s.optimizer("Adam", module.parameters(), 3e-3)
            return optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995)

    torch.manual_seed(s.seed)
    unit = Unit(module=small_net(), device=torch.device("cpu"), step_lr_interval="step", clip_grad_norm=1.0)
    s.attach(unit.module, unit.optimizer)
    run(unit, digits_loader(s), max_epochs=s.steps(3))


@program("art-adversarial", "art.estimators.classification art.defences.trainer sklearn.datasets", "targets relu")
def art(s):
    """Trained on the worst of digits nearby, in the package's trainer."""
    import numpy as np
    import torch
    from art.defences.trainer import AdversarialTrainerMadryPGD
    from art.estimators.classification import PyTorchClassifier
    x, y = s.arrays(*data.digits())
    torch.manual_seed(s.seed)
    model = small_net()
    optimizer = s.optimizer("Adam", model.parameters(), 3e-3)
    made = PyTorchClassifier(model, torch.nn.CrossEntropyLoss(), (1, 8, 8), 10, optimizer=optimizer,
                             clip_values=(-1.0, 1.0), device_type="cpu")
    s.attach(model, optimizer)
    AdversarialTrainerMadryPGD(made, nb_epochs=s.steps(2), batch_size=s.batch(24), eps=0.15, eps_step=0.1,
                               max_iter=2).fit(x.numpy(), np.asarray(y))


@program("pytorch-adapt-dann", "pytorch_adapt.hooks pytorch_adapt.containers sklearn.datasets", "")
def dann(s):
    """Digits to digits on gray: a trunk that hides the domain, the package's first example."""
    import torch
    from pytorch_adapt.containers import Models, Optimizers
    from pytorch_adapt.hooks import DANNHook
    from torch import nn
    G = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten())
    C = nn.Sequential(nn.Linear(64, 10))
    D = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    models = Models({"G": G, "C": C, "D": D})
    optimizers = Optimizers((torch.optim.Adam, {"lr": s.rate(2e-3)}))
    optimizers.create_with(models)
    optimizers = list(optimizers.values())
    hook = DANNHook(optimizers)
    s.attach(nn.ModuleDict({"G": G, "C": C, "D": D}), optimizers)
    x, y = data.digits()
    size = s.batch(32)
    for _ in range(s.steps(130)):
        first, second = (torch.as_tensor(s.draw.integers(0, len(x), size)) for _ in range(2))
        _, losses = hook({**models, "src_imgs": x[first], "src_labels": y[first],
                          "target_imgs": 0.6 * x[second] + 0.3 + 0.2 * torch.randn(size, 1, 8, 8),
                          "src_domain": torch.zeros(size), "target_domain": torch.ones(size)})
        s.score(-losses["total_loss"]["src_c_loss"])


@program("fedlab-average", "fedlab.utils sklearn.datasets", "targets classes relu")
def federated(s):
    """Four guests with digits of their own, four steps each, then the mean of their weights."""
    import torch
    from fedlab.utils import Aggregators, SerializationTool
    x, y = s.arrays(*data.digits())
    model = small_net()
    optimizer = s.optimizer("SGD", model.parameters(), 0.3)
    uneven = y % 4 + 2 * torch.randn(len(y), generator=torch.Generator().manual_seed(0))
    guests = uneven.argsort()[:1796].view(4, 449)
    s.attach(model, optimizer)
    shared = SerializationTool.serialize_model(model)
    for _ in range(s.steps(10)):
        kept = []
        for guest in guests:
            SerializationTool.deserialize_model(model, shared)
            for _ in range(4):
                chosen = guest[torch.as_tensor(s.draw.integers(0, 449, s.batch(32)))]
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
                optimizer.step()
            kept.append(SerializationTool.serialize_model(model))
        shared = Aggregators.fedavg_aggregate(kept)


@program("torchao-qat", "torchao.quantization.qat sklearn.datasets", ALL + " relu")
def torchao(s):
    """As if weights had four bits and activations eight: the package's training for quantization."""
    from torch import nn
    from torchao.quantization.qat import Int8DynActInt4WeightQATQuantizer
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                          nn.Linear(64, 10))
    model = Int8DynActInt4WeightQATQuantizer(groupsize=32).prepare(model)
    optimizer = s.optimizer("AdamW", model.parameters(), 2e-3)
    train(s, model, optimizer, s.batches(*data.digits(), s.batch(32), s.steps(130)), nn.CrossEntropyLoss())


@program("lamb-ema", "torch_optimizer torch_ema sklearn.datasets", ALL + " modes")
def lamb(s):
    """LAMB and a moving average of weights beside, a residual network with layer norms."""
    import torch
    import torch_ema
    import torch_optimizer
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.LayerNorm(48), nn.Linear(48, 48), nn.GELU(), nn.Dropout(0.1),
                                     nn.Linear(48, 48))

        def forward(self, x):
            return x + self.net(x)

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), Block(), Block(), nn.LayerNorm(48), nn.Linear(48, 10))
    optimizer = torch_optimizer.Lamb(model.parameters(), lr=s.rate(1e-2), weight_decay=0.01)
    ema = torch_ema.ExponentialMovingAverage(model.parameters(), 0.98)
    s.attach(model, optimizer)
    for x, y in s.batches(*data.digits(), s.batch(64), s.steps(130)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y, label_smoothing=0.05).backward()
        optimizer.step()
        ema.update()


@program("torch-ac-ppo", "gymnasium", "")
def torch_ac(s):
    """PPO of the package on CartPole, actor and critic in one model."""
    import multiprocessing
    import gymnasium
    import numpy as np
    import torch
    multiprocessing.set_start_method(None, force=True)  # the package sets it, and it may be set once
    import torch_ac
    from torch import nn

    class Model(nn.Module, torch_ac.ACModel):
        recurrent = False

        def __init__(self):
            super().__init__()
            self.actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
            self.critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))

        def forward(self, obs):
            return torch.distributions.Categorical(logits=self.actor(obs).log_softmax(1)), self.critic(obs)[:, 0]

    torch.manual_seed(s.seed)
    model, places = Model(), [gymnasium.make("CartPole-v1")]
    made = torch_ac.PPOAlgo(places, model, num_frames_per_proc=512, lr=s.rate(2e-3), recurrence=1, epochs=4,
                            batch_size=s.batch(128), preprocess_obss=lambda o, device=None: torch.tensor(
                                np.array(o), dtype=torch.float32))
    s.attach(model, made.optimizer)
    for _ in range(s.steps(12)):
        lived, logs = made.collect_experiences()
        made.update_parameters(lived)
        s.score(sum(logs["return_per_episode"]) / max(1, len(logs["return_per_episode"])))


@program("rsl-rl-ppo", "rsl_rl.runners rsl_rl.algorithms rsl_rl.env tensordict", "")
def rsl_rl(s):
    """Sixty-four points at once that are to reach their marks, PPO."""
    import torch
    from rsl_rl.env import VecEnv
    from rsl_rl.runners import OnPolicyRunner
    from tensordict import TensorDict

    class Points(VecEnv):
        num_envs, num_actions, max_episode_length, device, cfg = 64, 2, 40, "cpu", {}

        def __init__(self):
            self.episode_length_buf = torch.zeros(64, dtype=torch.long)
            self.state = torch.randn(64, 4)

        def get_observations(self):
            return TensorDict({"policy": self.state.clone()}, batch_size=[64])

        def step(self, actions):
            self.state = torch.cat([self.state[:, :2] + 0.4 * actions.clamp(-1, 1), self.state[:, 2:]], 1)
            reward = -(self.state[:, :2] - self.state[:, 2:]).norm(dim=1).clamp_max(4.0)
            s.score(reward.mean())
            self.episode_length_buf += 1
            done = self.episode_length_buf >= 40
            self.state[done] = torch.randn(int(done.sum()), 4)
            self.episode_length_buf[done] = 0
            return self.get_observations(), reward, done.long(), {"time_outs": done}

    torch.manual_seed(s.seed)
    net = {"class_name": "MLPModel", "hidden_dims": [32, 32], "activation": "elu"}
    runner = OnPolicyRunner(Points(), {
        "num_steps_per_env": 24, "save_interval": 1000, "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "algorithm": {"class_name": "PPO", "num_learning_epochs": 3,
                      "num_mini_batches": 2 if s.variant == "batch" else 4, "learning_rate": s.rate(2e-3), "schedule": "fixed"},
        "actor": {**net, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}},
        "critic": net}, None, "cpu")
    s.attach(torch.nn.ModuleDict({"actor": runner.alg.actor, "critic": runner.alg.critic}), runner.alg.optimizer)
    runner.learn(s.steps(14), init_at_random_ep_len=True)
