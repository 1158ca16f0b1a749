"""The files in the page about replacing one part: each is an algorithm, whose other parts are the original's."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import get, mappo, qmix
from shoal.equations.distributions import Categorical
from shoal.models.utilities import epsilon_greedy
from shoal.options.flags import flags_of, override
from shoal.types import Algorithm, Scale
from support.algorithm_cases import BASE
from support.trajectories import E, T, from_trajectories, make_spec, make_step, make_trajectory

PAGE = Path(__file__).parents[2] / "docs" / "replace-one-part.md"
KEY, SPEC, SCALE = jax.random.key(0), make_spec(), Scale(E, T, 10)
SMALL = {"hidden": (4,), "mixing_width": 3, "hyper_width": 3, "minibatches": 1, "epochs": 1}
ADVANTAGE, CRITIC, MIXER, EXPLORATION, REWARD = range(5)


@cache
def modules() -> list[Any]:
    """The page's blocks, executed."""
    found = []
    for i, block in enumerate(re.findall(r"```python\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL)):
        module = ModuleType(f"block{i}")
        exec(block, vars(module))
        found.append(module)
    return found


def config(module: Any) -> Any:
    known = flags_of(module.Config())
    return override(module.Config(), {flag: value for flag, value in SMALL.items() if flag in known})


def traced(algorithm: Algorithm) -> str:
    """An update as the operations that it is made of."""
    algorithm = from_trajectories(algorithm)
    learner, traj = jax.eval_shape(algorithm.init, KEY), make_trajectory(SPEC, carry=algorithm.initial_carry(E))
    return str(jax.make_jaxpr(algorithm.update)(learner, traj, KEY))


def test_the_page_has_a_file_for_each_part() -> None:
    assert [module.__doc__.split()[0] for module in modules()] == ["MAPPO", "MAPPO", "VDN", "QMIX", "MAPPO"]


@pytest.mark.parametrize("i", range(5))
def test_each_is_an_algorithm_that_acts_and_learns(i: int) -> None:
    module = modules()[i]
    algorithm = module.make(SPEC, config(module), SCALE)
    assert traced(algorithm)
    learner, step = jax.eval_shape(algorithm.init, KEY), make_step(np.random.default_rng(0), SPEC, (E,))
    for greedy in (True, False):
        act = lambda own, greedy=greedy: algorithm.act(own, algorithm.initial_carry(E), step, KEY, greedy)  # noqa: E731
        assert jax.eval_shape(act, learner)[1].shape == (E, SPEC.num_agents)
    if hasattr(module, "make_policy"):
        assert jax.eval_shape(module.make_policy(SPEC, config(module)).init, KEY).policy == learner.policy


def test_with_its_own_parts_an_update_is_the_same() -> None:
    own = mappo.make(SPEC, BASE, SCALE, mappo.policy_loss, critic_loss=mappo.value_loss, advantage=mappo.gae_advantage)
    assert traced(own) == (plain := traced(mappo.make(SPEC, BASE, SCALE)))
    assert traced(modules()[CRITIC].make(SPEC, BASE, SCALE)) != plain
    small = config(qmix)
    own = qmix.make(SPEC, small, SCALE, qmix.make_mixer(SPEC, small), epsilon_greedy)
    assert traced(own) == traced(qmix.make(SPEC, small, SCALE))


def test_one_step_advantages_are_temporal_differences() -> None:
    traj, rng = make_trajectory(SPEC), np.random.default_rng(0)
    now, then = (jnp.array(rng.normal(size=traj.outcome.reward.shape), jnp.float32) for _ in range(2))
    c = modules()[ADVANTAGE].Config(n_step=1)
    a, target = modules()[ADVANTAGE].advantage(c, traj, mappo.on_policy.TrajectoryValues(now, then, now, None))  # type: ignore[arg-type]
    np.testing.assert_allclose(target, traj.outcome.reward + c.gamma * traj.outcome.discount * then, rtol=1e-6)
    np.testing.assert_allclose(a, target - now, rtol=1e-6)


def test_the_temperature_is_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a high one legal actions are drawn evenly, at 0 the best is."""
    step, values = make_step(np.random.default_rng(0), SPEC, (E,)), jnp.arange(4.0)
    seen: list[Any] = []
    monkeypatch.setattr(Categorical, "sample", lambda self, key: seen.append(self.probabilities()) or self.mode())
    act = modules()[EXPLORATION].boltzmann(lambda theta, carry, step: ((), jnp.broadcast_to(values, step.legal.shape)))
    learner = jax.eval_shape(qmix.make_policy(SPEC, config(qmix)).init, KEY)
    for epsilon in (1e6, 0.0):
        policy = learner.policy._replace(epsilon=jnp.float32(epsilon))
        act(learner._replace(policy=policy), (), step, KEY, False)
    legal = np.asarray(step.legal)
    np.testing.assert_allclose(seen[0], legal / legal.sum(-1, keepdims=True), atol=1e-4)
    np.testing.assert_allclose(np.asarray(seen[1]).argmax(-1), np.where(legal, values, -1).argmax(-1))
    assert np.asarray(seen[1]).max(-1).min() > 0.999


def test_agents_share_the_rewards_of_the_living(monkeypatch: pytest.MonkeyPatch) -> None:
    traj, module = make_trajectory(SPEC), modules()[REWARD]
    rewards = lambda learner, traj, key: (learner, {"r": traj.outcome.reward})  # noqa: E731
    plain = mappo.make(SPEC, BASE, SCALE)
    monkeypatch.setattr(mappo, "make", lambda *given: plain._replace(update=rewards))
    made = module.make(SPEC, module.Config(spirit=0.25), SCALE)
    r, alive = np.asarray(traj.outcome.reward, np.float64), np.asarray(traj.step.alive)
    assert np.ptp(r, axis=-1).max() > 0 and not alive.all()
    wanted = 0.75 * r + 0.25 * np.ma.masked_array(r, ~alive).mean(-1).filled(0)[..., None]
    np.testing.assert_allclose(made.update((), traj, KEY)[1]["r"], wanted, rtol=1e-5, atol=1e-6)
    assert made.learns_from == "team"


@pytest.mark.parametrize("name", ["haa2c", "maa2c", "seps"])
def test_a_config_that_adds_a_field_can_be_given_to_the_algorithm_that_it_inherits(name: str) -> None:
    """These pass their configuration on to another algorithm, which has no such field."""

    @dataclass(frozen=True)
    class Mine(get(name).Config):
        bonus: float = 0.1

    get(name).make(SPEC, Mine(), Scale(4, 16, 10))
