"""More reinforcement learning, in the loops of other packages."""

from players import learn
from session import program


@program("sb3-qrdqn", "sb3_contrib gymnasium", "")
def qrdqn(s):
    """Quantiles of the return of CartPole, from a buffer, against a network of before."""
    import sb3_contrib
    learn(s, "QRDQN", "CartPole-v1", 7000, package=sb3_contrib, learning_rate=s.rate(2.3e-3),
          batch_size=s.batch(64), buffer_size=20000, learning_starts=500, train_freq=16,
          gradient_steps=6, gamma=0.99,
          target_update_interval=10, exploration_fraction=0.3, exploration_final_eps=0.04,
          policy_kwargs={"net_arch": [48, 48], "n_quantiles": 10})


@program("sb3-trpo", "sb3_contrib gymnasium", "")
def trpo(s):
    """The critic by Adam; the actor by the package's own trust region, without an optimizer."""
    import sb3_contrib
    learn(s, "TRPO", "CartPole-v1", 6144, package=sb3_contrib, learning_rate=s.rate(1e-3), n_steps=512,
          batch_size=s.batch(128), policy_kwargs={"net_arch": [32, 32]})


@program("tianshou-dqn", "tianshou gymnasium tianshou.algorithm tianshou.data tianshou.trainer", "")
def tianshou_dqn(s):
    """DQN with three steps of return, the package's collectors and trainer."""
    import gymnasium
    from tianshou.algorithm import DQN
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, CollectStats, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OffPolicyTrainerParams
    from tianshou.utils.net.common import Net
    envs = DummyVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(4)])
    envs.seed(s.seed)
    space = gymnasium.make("CartPole-v1").action_space
    net = Net(state_shape=(4,), action_shape=2, hidden_sizes=(48, 48))
    policy = DiscreteQLearningPolicy(model=net, action_space=space, eps_training=0.1)
    made = DQN(policy=policy, optim=AdamOptimizerFactory(lr=s.rate(2e-3)), gamma=0.97,
               n_step_return_horizon=3, target_update_freq=50)
    collector = Collector[CollectStats](made, envs, VectorReplayBuffer(10000, 4), exploration_noise=True)
    collector.reset()
    collector.collect(n_step=256)
    plain = collector.collect

    def collect(*arguments, **options):
        found = plain(*arguments, **options)
        for value in found.returns:
            s.score(value)
        return found

    collector.collect = collect
    s.at_optimizer(lambda: net)
    optimizer, = {id(o): o for o in made._optimizers}.values()
    s.attach(net, optimizer._optim)
    made.run_training(OffPolicyTrainerParams(
        max_epochs=1, epoch_num_steps=5000, training_collector=collector, test_collector=None,
        collection_step_num_env_steps=20, update_step_num_gradient_steps_per_sample=0.08,
        batch_size=s.batch(64), show_progress=False, verbose=False))


@program("d3rlpy-cql", "d3rlpy gymnasium", "single")
def cql(s):
    """Conservative Q-learning from what a simple rule did with CartPole."""
    import d3rlpy
    import gymnasium
    import numpy as np
    rows = {"observations": [], "actions": [], "rewards": [], "terminals": [], "timeouts": []}
    world, draw = gymnasium.make("CartPole-v1"), np.random.default_rng(0)
    for episode in range(30):
        seen, _ = world.reset(seed=episode)
        for step in range(100):
            act = int(seen[2] + 0.3 * seen[3] > 0) if draw.uniform() < 0.8 else int(draw.integers(2))
            after, reward, ended, *_ = world.step(act)
            for key, value in zip(rows, (seen, [act], reward, ended, step == 99 and not ended)):
                rows[key].append(value)
            seen = after
            if ended:
                break
    rows = {key: np.array(value, np.float32) for key, value in rows.items()}
    rows["actions"] = rows["actions"].astype(np.int64)
    kept = d3rlpy.dataset.MDPDataset(**rows, action_space=d3rlpy.ActionSpace.DISCRETE, action_size=2)
    made = d3rlpy.algos.DiscreteCQLConfig(
        learning_rate=s.rate(1e-3), batch_size=s.batch(32), target_update_interval=50,
        encoder_factory=d3rlpy.models.encoders.VectorEncoderFactory([32, 32])).create(device="cpu")
    made.build_with_dataset(kept)
    s.attach(made.impl.modules.q_funcs, made.impl.modules.optim.optim)
    made.fit(kept, n_steps=200, n_steps_per_epoch=100, show_progress=False,
             logger_adapter=d3rlpy.logging.NoopAdapterFactory())


@program("torchrl-ppo",
         "torchrl.objectives torchrl.modules torchrl.objectives.value tensordict.nn gymnasium", "single")
def torchrl_ppo(s):
    """The package's loss of PPO and its advantages; batches from CartPole, stepped here."""
    import gymnasium
    import torch
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule
    from torchrl.modules import MLP, OneHotCategorical, ProbabilisticActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE
    net = MLP(in_features=4, out_features=2, num_cells=[32, 32])
    actor = ProbabilisticActor(TensorDictModule(net, ["observation"], ["logits"]), in_keys=["logits"],
                               distribution_class=OneHotCategorical, return_log_prob=True)
    critic = ValueOperator(MLP(in_features=4, out_features=1, num_cells=[32, 32]), ["observation"])
    loss = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=0.01, critic_coeff=0.5)
    advantage = GAE(gamma=0.98, lmbda=0.95, value_network=critic)
    optimizer = torch.optim.Adam(loss.parameters(), s.rate(3e-3))
    worlds = [gymnasium.make("CartPole-v1") for _ in range(4)]
    seen = torch.stack([torch.tensor(w.reset(seed=s.seed * 10 + i)[0]) for i, w in enumerate(worlds)])
    length = torch.zeros(4)
    s.attach(loss, optimizer)
    for _ in range(12):
        steps = []
        for _ in range(128):
            with torch.no_grad():
                now = actor(TensorDict({"observation": seen}, [4]))
            after = [w.step(int(a)) for w, a in zip(worlds, now["action"].argmax(-1))]
            ended = torch.tensor([[a[2] or a[3]] for a in after])
            length += 1
            for i in ended[:, 0].nonzero()[:, 0].tolist():
                s.score(length[i])
                length[i] = 0
            found = torch.stack([torch.tensor(a[0]) for a in after])
            now["next"] = TensorDict({"observation": found, "reward": torch.ones(4, 1), "done": ended,
                                      "terminated": ended}, [4])
            steps.append(now)
            seen = torch.stack([torch.tensor(w.reset()[0]) if e else f
                                for w, f, e in zip(worlds, found, ended[:, 0])])
        rows = torch.stack(steps, 1)
        for _ in range(3):
            with torch.no_grad():
                advantage(rows)
            flat = rows.reshape(-1)
            for chosen in torch.randperm(512).split(s.batch(128)):
                found = loss(flat[chosen])
                optimizer.zero_grad()
                (found["loss_objective"] + found["loss_critic"] + found["loss_entropy"]).backward()
                torch.nn.utils.clip_grad_norm_(loss.parameters(), 1.0)
                optimizer.step()
