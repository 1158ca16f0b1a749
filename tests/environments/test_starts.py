"""Training in a few initial states (``num_starts``), with evaluations in any."""

import json
import pickle
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shoal
from shoal.environments.batching import single
from shoal.environments.starts import with_starts
from shoal.game import HostEnvironment, HostTimestep, blank
from shoal.rollouts import fused
from shoal.spec import Discrete, EnvSpec
from shoal.types import Environment, Step

COUNT = 3
SPEC = EnvSpec(
    name="lottery",
    agents=("a",),
    obs_dims=(1,),
    state_dim=1,
    action=Discrete(2),
    action_dims=(2,),
    roles=(0,),
    horizon=2,
    shared_reward=True,
)


def shown(luck: Any, t: Any) -> Step:
    """The initial state decides what is seen, and the reward at the end, two steps later."""
    return Step(
        obs=luck[None, None],
        state=luck[None],
        legal=jnp.ones((1, 2), bool),
        alive=jnp.ones(1, bool),
        reward=jnp.where(t == 2, luck, 0.0)[None],
        discount=jnp.where(t == 2, 0.0, jnp.ones(1)),
        first=t == 0,
        last=t == 2,
    )


def lottery() -> Environment:
    """Episodes return a number that is drawn at their start."""

    def reset(key: Any) -> tuple[Any, Step]:
        luck = jax.random.uniform(key, (), minval=1.0, maxval=2.0)
        return {"luck": luck, "t": jnp.int32(0)}, shown(luck, jnp.int32(0))

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Step]:
        state = state | {"t": jnp.minimum(state["t"] + 1 + action[0], 2)}  # action 1 ends the episode at once
        return state, shown(state["luck"], state["t"])

    return Environment(SPEC, reset, step)


def lucks(count: int) -> np.ndarray:
    """The numbers of the seeds 0 … ``count`` − 1, by the definition."""
    return np.array([jax.random.uniform(jax.random.key(i), (), minval=1.0, maxval=2.0) for i in range(count)])


@pytest.mark.parametrize("form", ["one environment", "batched"])
def test_training_begins_in_the_first_seeds(form: str) -> None:
    env = lottery()
    env = env if form == "one environment" else single(SPEC, fused.vmapped(env))
    limited = with_starts(env, COUNT)
    assert (limited.batched is None) == (form == "one environment")
    rollout = fused.make_rollout(limited, 64, 5)

    def act(policy: Any, carry: Any, step: Step, key: Any, greedy: bool) -> Any:
        return carry, jnp.arange(64)[:, None] % 2, {}

    @jax.jit
    def made(key: Any) -> Any:
        key_init, key_play = jax.random.split(key)
        return rollout.play(act, (), rollout.init(key_init, ()), key_play)[1]

    obs = np.asarray(made(jax.random.key(5)).step.obs)[..., 0, 0]
    expected = {np.asarray(env.reset(jax.random.key(i))[1].obs)[0, 0] for i in range(COUNT)}
    assert set(obs.ravel()) == expected, "the first and the later episodes"
    long = obs[:, ::2]  # of two steps, beside episodes that end at every step
    assert (long[0] == long[1]).all() and (long[2] == long[3]).all(), "only what ended begins again"
    assert (obs[0] != obs[2]).any(), "the next initial state is drawn anew"


class Counter:
    """A game that notes the seeds of its episodes."""

    spec = SPEC

    def __init__(self, render: bool = False):
        self.seeds: list[int] = []

    def reset(self, seed: int, out: HostTimestep) -> None:
        self.seeds.append(seed)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        out.reward[...] = 7.0

    def render(self) -> None:
        return None

    def close(self) -> None:
        self.seeds.clear()


def test_a_game_on_the_host_gets_the_first_seeds() -> None:
    env = pickle.loads(pickle.dumps(with_starts(HostEnvironment(SPEC, Counter), COUNT)))
    game, out = env.make(render=True), blank(SPEC)
    for seed in (0, 2, 3, 11, 2**31 - 1):
        game.reset(seed, out)
    assert game._inner.seeds == [0, 2, 0, 2, (2**31 - 1) % COUNT]
    game.step(np.zeros(1, np.int32), out)
    assert out.reward[0] == 7.0 and game.spec is SPEC and game.render() is None
    game.close()
    assert game._inner.seeds == []


class Lucky(Counter):
    """A game whose episodes return 2 for the seed 0, and 0 for any other."""

    def reset(self, seed: int, out: HostTimestep) -> None:
        self.left, self.reward = 2, float(seed == 0)
        out.obs[...] = out.state[...] = 0.0

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        self.left -= 1
        out.reward[...], out.last[...] = self.reward, self.left == 0
        out.obs[...] = out.state[...] = 0.0


def test_a_run_on_the_host_is_evaluated_anywhere(tmp_path: Path) -> None:
    sizes = {"num_envs": 4, "rollout_length": 4, "steps": 64, "hidden": (4,), "eval_episodes": 8, "tensorboard": False}
    flags: dict[str, Any] = sizes | {"num_starts": 1, "num_workers": 0}
    run = shoal.train("mappo", HostEnvironment(SPEC, Lucky), folder=tmp_path / "run", **flags)
    trained = [json.loads(line)["return"] for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert np.ravel(trained) == pytest.approx(np.full(len(trained), 2.0))
    assert run.evaluation is not None and not run.evaluation.scores.any()
    kept = json.loads((run.folder / "evaluation.json").read_text())
    (run.folder / "evaluation.json").unlink()
    shoal.resume(run.folder, environment=HostEnvironment(SPEC, Lucky))
    assert json.loads((run.folder / "evaluation.json").read_text()) == kept


def test_without_a_number_nothing_changes() -> None:
    env = lottery()
    assert with_starts(env, None) is env


def test_a_run_trains_in_them_and_is_evaluated_anywhere(tmp_path: Path) -> None:
    sizes = {"num_envs": 4, "rollout_length": 4, "steps": 64, "hidden": (4,), "eval_episodes": 32, "tensorboard": False}
    run = shoal.train("mappo", lottery, folder=tmp_path / "run", num_starts=1, **sizes)
    trained = [json.loads(line)["return"] for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert np.ravel(trained) == pytest.approx(np.full(len(trained), lucks(1)[0]), abs=1e-5)
    assert run.evaluation is not None and np.ptp(run.evaluation.scores) > 0.5


def test_functions_of_make_train_do_the_same() -> None:
    sizes = {"num_envs": 4, "rollout_length": 4, "steps": 64, "hidden": (4,)}
    train = shoal.make_train("mappo", lottery, num_starts=1, **sizes)
    state = train.init(jax.random.key(0))
    _, (_, stats) = train.update(state)
    assert float(stats.returns.sum() / stats.episodes) == pytest.approx(float(lucks(1)[0]), abs=1e-5)
