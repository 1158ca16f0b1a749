"""JaxMARL's side of ``beside_jaxmarl.py``: its own training functions, with settings and names replaced from outside.

Runs in an environment where JaxMARL's dependencies are installed, without Shoal; :func:`make` is the entry.
"""

import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from alternated import Made
from arithmetic import from_passes, from_program, kernels

SOURCES = {
    "mappo": ("MAPPO", "mappo_ff_hanabi", "mappo_homogenous_ff_hanabi"),
    "ippo": ("IPPO", "ippo_ff_mpe", "ippo_ff_mpe"),
    "mappo-gru": ("MAPPO", "mappo_rnn_mpe", "mappo_homogenous_rnn_mpe"),
    "smax": ("MAPPO", "mappo_rnn_smax", "mappo_homogenous_rnn_smax"),
    "qmix": ("QLearning", "qmix_rnn", "alg/ql_rnn_mpe"),
    "vdn": ("QLearning", "vdn_rnn", "alg/ql_rnn_mpe"),
}
"""Folder in ``baselines``, module and file of default settings of each kind of row."""
LONGEST, SHORTEST = 4.0, 0.7
"""Seconds of a timed call of two seconds outside which the number of updates is chosen again."""


def make(checkout: str, row: dict, seconds: float, updates: int | None) -> Made:
    """Compile a row.

    A call of JaxMARL's function also makes nets, environments and buffers. The median time of the same program with no
    update is therefore subtracted from every call.

    Args:
        checkout: path of JaxMARL.
        row: what is compared; see ``beside_jaxmarl.py``.
        seconds: length of a call.
        updates: updates per call; None for as many as take that long.

    Returns:
        What is reported, and a function that trains once and returns its time and environment steps.
    """
    import jax
    import jax.experimental

    sys.path.insert(0, checkout)
    # Optional tools of the scripts, which their training functions do not need.
    for name in ("wandb", "hydra", "omegaconf"):
        sys.modules[name] = mock.MagicMock()
    jax.experimental.io_callback = lambda *_, **__: None  # the logging of every update
    kind, per_update = row["kind"], row["num_envs"] * row["rollout_length"]
    module = load(checkout, *SOURCES[kind][:2])
    key = jax.random.PRNGKey(0)

    def compiled(count: int) -> tuple[Any, Any, dict]:
        config = settings(checkout, row) | {"TOTAL_TIMESTEPS": count * per_update}
        train = jax.jit(training_function(checkout, module, kind, config))
        traced = train.trace(key)
        return traced.lower().compile(), from_program(traced.jaxpr.jaxpr), config

    def timed(program: Any) -> tuple[float, Any]:
        began = time.perf_counter()
        out = jax.block_until_ready(program(key))
        return time.perf_counter() - began, out

    empty, flop_of_start, _ = compiled(0)
    timed(empty)
    beginning = sorted(timed(empty)[0] for _ in range(3))[1]
    count = updates or max(1, round(seconds * row["guess"] / per_update))
    while True:
        program, flop, config = compiled(count)
        timed(program)
        took, out = timed(program)
        once = (took - beginning) / count
        better = max(1, round(seconds / once))
        if updates or better == count or SHORTEST * seconds / 2 < took < LONGEST * seconds / 2:
            break
        count = better
    states = train_states(out)
    report = describe(row, config, states, count) | {
        "updates per call": count,
        "seconds without updates": beginning,
        "FLOP per step": flop_per_step(row, config, [state.params for state in states]),
        "FLOP per step of the program": (flop - flop_of_start) / (count * per_update),
    }
    return report, lambda: (timed(program)[0] - beginning, count * per_update)


def load(checkout: str, folder: str, name: str) -> ModuleType:
    """A training script of the checkout as a module."""
    path = Path(checkout) / "baselines" / folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"jaxmarl_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def settings(checkout: str, row: dict) -> dict:
    """The script's default settings, with those of the row in their place."""
    import yaml

    folder, _, file = SOURCES[row["kind"]]
    text = (Path(checkout) / "baselines" / folder / "config" / f"{file}.yaml").read_text()
    config = yaml.safe_load(text)
    for name in ("LR", "TOTAL_TIMESTEPS"):  # YAML reads 1e7 as text
        config[name] = float(config[name])
    config |= {"NUM_ENVS": row["num_envs"], "NUM_STEPS": row["rollout_length"]}
    width = row["hidden"][0]
    if row["kind"] in ("qmix", "vdn"):
        assert row["rollout_length"] == row["sequence_length"], "JaxMARL draws whole rollouts"
        return config | {
            "HIDDEN_SIZE": row["recurrent"],
            "BUFFER_BATCH_SIZE": row["batch_size"],
            "BUFFER_SIZE": row["buffer_size"] // row["rollout_length"],
            "NUM_EPOCHS": row["gradient_steps"],
            "MIXER_EMBEDDING_DIM": row["mixing_width"],
            "MIXER_HYPERNET_HIDDEN_DIM": row["hyper_width"],
            "LEARNING_STARTS": 0,
            "TEST_DURING_TRAINING": False,
            "WANDB_MODE": "disabled",
        }
    config |= {"UPDATE_EPOCHS": row["epochs"], "NUM_MINIBATCHES": row["minibatches"], "ACTIVATION": row["activation"]}
    if row["kind"] == "smax":
        config["MAP_NAME"] = "3m"
    else:
        config |= {"ENV_NAME": "MPE_simple_spread_v3", "ENV_KWARGS": {}}
    return config | {"FC_DIM_SIZE": width, "GRU_HIDDEN_DIM": row.get("recurrent", width)}


def training_function(checkout: str, module: ModuleType, kind: str, config: dict) -> Callable:
    """The function (key) -> results that trains a whole run."""
    if kind == "mappo":
        on_spread(module, load(checkout, *SOURCES["mappo-gru"][:2]))
    if kind in ("qmix", "vdn"):
        import flashbax

        def buffer(**arguments: Any) -> Any:  # sampled from the first rollout on, instead of the 32nd
            return flashbax.make_trajectory_buffer(**arguments | {"min_length_time_axis": 1})

        module.fbx = SimpleNamespace(make_trajectory_buffer=buffer)  # type: ignore[attr-defined]
        return module.make_train(config, module.env_from_config(config)[0])
    return module.make_train(config)


def on_spread(hanabi: Any, mpe: Any) -> None:
    """Let the feed-forward script, which is written for Hanabi, train on MPE.

    Its wrapper of the global state is replaced by that of the recurrent script for MPE, every action is legal, and the
    critic's input, whose width the script holds as a number, has the width of that state.
    """
    import jax.numpy as jnp

    made = []

    class Wrapper(mpe.MPEWorldStateWrapper):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            made.append(self)

        def observation_space(self, agent: str) -> SimpleNamespace:
            return SimpleNamespace(shape=self._env.observation_space(agent).shape[0])

        def get_legal_moves(self, _: Any) -> dict:
            return {agent: jnp.ones(self._env.action_space(agent).n) for agent in self._env.agents}

    hanabi.HanabiWorldStateWrapper = Wrapper
    original = getattr(hanabi, "OriginalCritic", hanabi.CriticFF)

    def critic(config: dict) -> SimpleNamespace:
        net = original(config)
        return SimpleNamespace(
            init=lambda key, _: net.init(key, jnp.zeros(made[-1].world_state_size())), apply=net.apply
        )

    hanabi.OriginalCritic, hanabi.CriticFF = original, critic


def train_states(out: Any) -> list[Any]:
    """Flax's training states within the results, in order."""
    import jax
    from flax.training.train_state import TrainState

    leaves = jax.tree.leaves(out, is_leaf=lambda x: isinstance(x, TrainState))
    return [x for x in leaves if isinstance(x, TrainState)]


def describe(row: dict, config: dict, states: list[Any], count: int) -> dict:
    """Settings as the training function holds them, and what its results show."""
    import jax

    shapes = [shape for state in states for shape in kernels(state.params)]
    report = {
        "environments": config["NUM_ENVS"],
        "steps per rollout": config["NUM_STEPS"],
        "gradient steps per rollout": int(states[0].step) / count,
        "layers": [f"{i}x{o}" for i, o in shapes],
        "devices": f"{len(jax.devices())} x {jax.devices()[0].platform}",
        "jax": jax.__version__,
    }
    if row["kind"] in ("qmix", "vdn"):
        return report | {"sequences per gradient step": config["BUFFER_BATCH_SIZE"], "activation": "relu"}
    # The recurrent nets do not read ACTIVATION: theirs is ReLU.
    return report | {
        "epochs": config["UPDATE_EPOCHS"],
        "minibatches": config["NUM_MINIBATCHES"],
        "agents": config["NUM_ACTORS"] // config["NUM_ENVS"],
        "activation": "relu" if row.get("recurrent") else config["ACTIVATION"],
    }


def flop_per_step(row: dict, config: dict, params: list[Any]) -> float:
    """FLOP of matrix products per environment step, from parameters and passes.

    MAPPO acts and values once per step and agent and once at the end of the rollout, then trains in every epoch.
    Q-learning acts; each step of a sequence has one pass of the target net and one of the trained net with a gradient.
    """
    agents, kind = row["num_agents"], row["kind"]
    if kind in ("qmix", "vdn"):
        drawn = row["gradient_steps"] * row["batch_size"] / row["num_envs"]  # steps of sequences per environment step
        utilities = params[0]["agent"] if kind == "qmix" else params[0]
        mixer = from_passes(params[0]["mixer"], drawn, drawn) if kind == "qmix" else 0.0
        return agents * from_passes(utilities, 1 + drawn, drawn) + mixer
    last = 1 / config["NUM_STEPS"]
    epochs = config["UPDATE_EPOCHS"]
    *actor, critic = params
    return agents * sum([from_passes(net, 1, epochs) for net in actor] + [from_passes(critic, 1 + last, epochs)])
