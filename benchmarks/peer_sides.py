"""The other side of ``beside.py``: libraries on PyTorch, driven through their own interfaces.

Runs in an environment in which that library is installed, without Shoal. What is reported about nets and gradient
steps is read from PyTorch's optimisers while they work.
"""

# pyright: reportMissingImports=false, reportMissingModuleSource=false
# These libraries are installed in other environments.
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from alternated import Made

EPISODE = 25
"""Length of an episode of spread."""


class Optimisers:
    """Counts the gradient steps of all optimisers, and knows the layers that they train."""

    def __init__(self) -> None:
        from torch.optim import optimizer

        self.steps: dict[int, int] = {}
        self.parameters: dict[int, Any] = {}
        optimizer.register_optimizer_step_post_hook(self._count)  # pyright: ignore[reportAttributeAccessIssue]

    def _count(self, optimiser: Any, *_: Any) -> None:
        self.steps[id(optimiser)] = self.steps.get(id(optimiser), 0) + 1
        for group in optimiser.param_groups:
            self.parameters |= {id(x): x for x in group["params"]}

    def count(self) -> int:
        """Gradient steps; actor and critic may have an optimiser each."""
        return max(self.steps.values(), default=0)

    def layers(self) -> list[str]:
        """ "inputs x outputs" of every layer."""
        return [f"{x.shape[1]}x{x.shape[0]}" for x in self.parameters.values() if x.dim() == 2]


def make(peer: str, row: dict, seconds: float, checkout: str) -> Made:
    """Build a row.

    Args:
        peer: the library.
        row: what is compared; see ``beside.py``.
        seconds: length of a timed call.
        checkout: path of the library, where it is not installed.

    Returns:
        What is reported, and a function that trains once and returns its time and environment steps.
    """
    import torch

    optimisers = Optimisers()
    train, found = PEERS[peer](row, checkout)

    def timed(count: int) -> float:
        began = time.perf_counter()
        train(count)
        return time.perf_counter() - began

    def time_with(threads: int) -> float:
        torch.set_num_threads(threads)
        if isinstance(train, Loop):
            train.threads = threads
        timed(1)
        return timed(1)

    timed(1)
    tried = {threads: time_with(threads) for threads in (1, os.cpu_count() or 1)}
    for threads in tried:  # again in turns, since other programs may have slowed one of them
        tried[threads] = min(tried[threads], time_with(threads))
    threads = min(tried, key=tried.__getitem__)
    count = max(1, round(seconds / time_with(threads)))
    before = optimisers.count()
    timed(count)
    report = {
        "environments": row["num_envs"],
        "steps per rollout": row["rollout_length"],
        "gradient steps per rollout": (optimisers.count() - before) / count,
        "epochs": row["epochs"],
        "minibatches": row["minibatches"],
        "layers": optimisers.layers(),
        "activation": row["activation"],
        "torch": torch.__version__,
        "threads": threads,
        "updates per call": count,
    }
    return report | found, lambda: (timed(count), count * row["num_envs"] * row["rollout_length"])


class Loop:
    """A loop that trains to its end, made to stop after every number of updates.

    Args:
        run: trains in another thread, and calls its argument after every update.
    """

    def __init__(self, run: Callable[[Callable[[], None]], None]) -> None:
        self.threads = 1
        self.asked, self.done = threading.Semaphore(0), threading.Semaphore(0)
        self.thread = threading.Thread(target=self._body, args=(run,), daemon=True)
        self.thread.start()

    def _wait(self) -> None:
        import torch

        self.asked.acquire()
        torch.set_num_threads(self.threads)  # of this thread

    def _updated(self) -> None:
        self.done.release()
        self._wait()

    def _body(self, run: Callable[[Callable[[], None]], None]) -> None:
        self._wait()
        run(self._updated)

    def __call__(self, count: int) -> None:
        """Train for so many updates."""
        for _ in range(count):
            self.asked.release()
            while not self.done.acquire(timeout=1):
                assert self.thread.is_alive(), "training has ended"


def use_mpe2() -> Any:
    """The package mpe2 under the name that it had in PettingZoo; returns its module of spread."""
    from mpe2 import simple_spread_v3

    sys.modules["pettingzoo.mpe.simple_spread_v3"] = simple_spread_v3
    return simple_spread_v3


def pufferlib(row: dict, _: str) -> tuple[Callable[[int], None], dict]:
    """PuffeRL with a policy of separate actor and critic; its own environment Target, or mpe2's spread."""
    from pufferlib import emulation, pufferl, vector
    from torch import nn

    if row["env"] == "target":
        from pufferlib.ocean.target.target import Target

        envs = vector.make(
            Target, env_kwargs={"num_envs": row["num_envs"], "num_agents": row["num_agents"], "num_goals": 4}
        )
    else:
        spread = use_mpe2()

        def one(buf: Any = None, seed: int = 0) -> Any:
            return emulation.PettingZooPufferEnv(
                env_creator=lambda: spread.parallel_env(max_cycles=EPISODE), buf=buf, seed=seed
            )

        # Its worker processes and its trainer wait for each other in busy loops, which take both of two cores.
        envs = vector.make(one, backend=vector.Serial, num_envs=row["num_envs"])
    space = envs.single_action_space
    heads = [int(n) for n in space.nvec] if hasattr(space, "nvec") else [int(space.n)]
    inputs = int(envs.single_observation_space.shape[0])

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()

            def net(outputs: int) -> nn.Module:
                sizes = [inputs, *row["hidden"]]
                layers = [x for i, o in pairwise(sizes) for x in (nn.Linear(i, o), nn.Tanh())]
                return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))

            self.actor, self.critic = net(sum(heads)), net(1)

        def forward(self, observations: Any, state: Any = None) -> Any:
            logits = self.actor(observations.float())
            return logits if len(heads) == 1 else logits.split(heads, dim=1), self.critic(observations.float())

        forward_eval = forward

    agents = envs.num_agents
    batch = agents * row["rollout_length"]
    assert agents == row["num_envs"] * row["num_agents"]
    pufferl.ADVANTAGE_CUDA = False
    sys.argv = sys.argv[:1]
    config = pufferl.load_config("default")["train"] | {
        "env": row["env"],
        "device": "cpu",
        "optimizer": "adam",
        "bptt_horizon": row["rollout_length"],
        "batch_size": batch,
        "update_epochs": row["epochs"],
        "minibatch_size": batch // row["minibatches"],
        "max_minibatch_size": batch // row["minibatches"],
        "total_timesteps": 10**12,
        "checkpoint_interval": 10**9,
        "use_rnn": False,
        "prio_alpha": 0.0,
    }
    trainer = pufferl.PuffeRL(config, envs, Policy())
    trainer.print_dashboard = lambda *_, **__: None
    trainer.utilization.stop()  # a thread that would outlive the program

    def train(count: int) -> None:
        for _ in range(count):
            trainer.evaluate()
            trainer.train()

    return train, {"agents": agents // row["num_envs"], "version": metadata.version("pufferlib")}


def xuance(row: dict, _: str) -> tuple[Callable[[int], None], dict]:
    """XuanCe's MAPPO on mpe2's spread, environments in two processes."""
    use_mpe2()
    import tempfile

    from xuance.common import get_arguments
    from xuance.environment import REGISTRY_MULTI_AGENT_ENV, SubprocVecMultiAgentEnv, XuanCeMultiAgentEnvWrapper
    from xuance.torch.agents import REGISTRY_Agents

    args = get_arguments("mappo", "mpe", "simple_spread_v3")
    vars(args).update(
        continuous_action=False,
        policy="Categorical_MAAC_Policy",
        activation=row["activation"],
        representation_hidden_size=list(row["hidden"]),
        actor_hidden_size=[],  # the agent's id would be an input of these layers
        critic_hidden_size=[],
        parallels=row["num_envs"],
        buffer_size=row["num_envs"] * row["rollout_length"],
        n_epochs=row["epochs"],
        n_minibatch=row["minibatches"],
        running_steps=10**9,
        env_seed=1,
    )
    del args.normalize

    def one(env_seed: int | None = None) -> Any:
        args.env_seed = env_seed
        return XuanCeMultiAgentEnvWrapper(REGISTRY_MULTI_AGENT_ENV["mpe"](args))

    envs = SubprocVecMultiAgentEnv([one] * row["num_envs"], 1, context="fork", in_series=row["num_envs"] // 2)
    os.chdir(tempfile.mkdtemp())  # for its logs
    agent = REGISTRY_Agents["MAPPO"](args, envs)
    agent.log_infos = lambda *_: None
    envs.reset()
    assert envs.max_episode_steps == EPISODE
    return (
        lambda count: agent.train(count * row["rollout_length"]),
        {"agents": envs.num_agents, "version": metadata.version("xuance")},
    )


def benchmarl(row: dict, _: str) -> tuple[Callable[[int], None], dict]:
    """BenchMARL's MAPPO on VMAS' spread."""
    from benchmarl.algorithms import MappoConfig
    from benchmarl.environments import VmasTask
    from benchmarl.experiment import Callback, Experiment, ExperimentConfig
    from benchmarl.models.mlp import MlpConfig
    from torch import nn

    config = ExperimentConfig.get_from_yaml()
    batch = row["num_envs"] * row["rollout_length"]
    for name, value in {
        "prefer_continuous_actions": False,
        "on_policy_n_envs_per_worker": row["num_envs"],
        "on_policy_collected_frames_per_batch": batch,
        "on_policy_minibatch_size": batch // row["minibatches"],
        "on_policy_n_minibatch_iters": row["epochs"],
        "max_n_frames": 10**12,
        "evaluation": False,
        "render": False,
        "loggers": [],
        "create_json": False,
        "save_folder": tempfile.mkdtemp(prefix="benchmarl-"),  # else it makes one in the working directory
    }.items():
        assert hasattr(config, name)
        setattr(config, name, value)
    task = VmasTask.SIMPLE_SPREAD.get_from_yaml()
    task.config |= {"max_steps": EPISODE, "n_agents": row["num_agents"]}
    net = MlpConfig(num_cells=list(row["hidden"]), layer_class=nn.Linear, activation_class=nn.Tanh)

    def run(updated: Callable[[], None]) -> None:
        class Turns(Callback):
            def on_train_end(self, *_: Any) -> None:
                updated()

            def __reduce__(self) -> Any:  # BenchMARL stores its callbacks
                return Callback, ()

        with tempfile.TemporaryDirectory() as config.save_folder:  # it stores its configuration in any case
            Experiment(
                task=task,
                algorithm_config=MappoConfig.get_from_yaml(),
                model_config=net,
                critic_model_config=net,
                seed=0,
                config=config,
                callbacks=[Turns()],
            ).run()

    found = {"agents": row["num_agents"], "version": metadata.version("benchmarl"), "vmas": metadata.version("vmas")}
    return Loop(run), found


def epymarl(row: dict, checkout: str) -> tuple[Callable[[int], None], dict]:
    """EPyMARL's MAPPO with feed-forward nets on mpe2's spread, a process for each environment."""
    import logging

    import gymnasium
    import yaml

    assert row["rollout_length"] == EPISODE and row["minibatches"] == 1, "EPyMARL trains on all of whole episodes"
    use_mpe2()
    sys.modules["smaclite"] = mock.MagicMock()  # an environment that is not used
    source = Path(checkout).resolve() / "src"
    sys.path.insert(0, str(source))
    config: dict = {}
    for name in ("default", "envs/gymma", "algs/mappo"):
        config |= yaml.safe_load((source / "config" / f"{name}.yaml").read_text())
    config |= {
        "env_args": {"key": "spread-v0", "time_limit": EPISODE, "pretrained_wrapper": None, "seed": 0},
        "hidden_dim": row["hidden"][0],
        "use_rnn": False,
        "epochs": row["epochs"],
        "t_max": 10**12,
        "test_interval": 10**12,
        "use_cuda": False,
        "device": "cpu",
        "common_reward": False,
        **dict.fromkeys(("batch_size_run", "batch_size", "buffer_size", "test_nepisode"), row["num_envs"]),
        **dict.fromkeys(("log_interval", "runner_log_interval", "learner_log_interval"), 10**12),
    }
    import run as program
    from learners import REGISTRY
    from utils.logging import Logger

    gymnasium.register(
        "spread-v0",
        entry_point="envs.pz_wrapper:PettingZooWrapper",
        kwargs={"lib_name": "mpe", "env_name": "simple_spread_v3", "max_cycles": EPISODE},
    )
    original = REGISTRY["ppo_learner"]

    def loop(updated: Callable[[], None]) -> None:
        class Turns(original):
            def train(self, *arguments: Any, **named: Any) -> None:
                super().train(*arguments, **named)
                updated()

        REGISTRY["ppo_learner"] = Turns
        program.run_sequential(SimpleNamespace(**config), Logger(logging.getLogger("epymarl")))

    return Loop(loop), {"agents": row["num_agents"], "version": "cbc38c0"}


PEERS = {"pufferlib": pufferlib, "xuance": xuance, "benchmarl": benchmarl, "epymarl": epymarl}
