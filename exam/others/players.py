"""Reinforcement learning, in the loops of Stable-Baselines3, with the defaults of its algorithms but
for the size of networks and buffers."""

from session import program


def learn(s, algorithm, environment, steps, package=None, **options):
    """package: stable_baselines3, or one that adds to it."""
    import gymnasium
    import stable_baselines3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.monitor import Monitor

    class Rewards(BaseCallback):
        def _on_step(self):
            for info in self.locals["infos"]:
                if "episode" in info:
                    s.score(info["episode"]["r"])
            return True

    made = getattr(package or stable_baselines3, algorithm)(
        "MlpPolicy", Monitor(gymnasium.make(environment)), seed=s.seed, device="cpu", **options)
    policy = made.policy
    optimizers = [policy.optimizer] if hasattr(policy, "optimizer") and policy.optimizer else \
        [policy.actor.optimizer, policy.critic.optimizer]
    s.attach(policy, optimizers)
    made.learn(steps, callback=Rewards())


@program("sb3-ppo", "stable_baselines3 gymnasium", "")
def ppo(s):
    learn(s, "PPO", "CartPole-v1", 6144, learning_rate=s.rate(1e-3), n_steps=512, batch_size=s.batch(128),
          policy_kwargs={"net_arch": [32, 32]})


@program("sb3-a2c", "stable_baselines3 gymnasium", "")
def a2c(s):
    learn(s, "A2C", "CartPole-v1", 6000, learning_rate=s.rate(2e-3), n_steps=s.batch(16),
          policy_kwargs={"net_arch": [32, 32]})
