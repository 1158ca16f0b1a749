"""Games that a team only learns if the advantage has its sign, the mask holds, time limits bootstrap and memory works.

Each takes a fraction of a second once compiled; what breaks each of them was tried.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shoal
from shoal.models import on_policy
from shoal.models.actor_critic import make_critic
from shoal.networks.sharing import policy_of
from shoal.runs.api import trainer_of
from shoal.storage import log
from shoal.types import Environment, Learner
from support import trained


def train(folder: Path, game: str, updates: int, **flags: Any) -> shoal.Run:
    steps = updates * trained.QUICK["num_envs"] * trained.QUICK["rollout_length"]
    return shoal.train("mappo", f"toys:{game}", folder=folder, **(trained.QUICK | {"steps": steps} | flags))


def test_the_sign_of_the_advantage(tmp_path: Path) -> None:
    """Climbing leads to +1 for each of two agents, descending to −1, standing still to about 0."""
    run = train(tmp_path, "coordination", 25)
    assert run.evaluate(16).per_seed.tolist() == [2.0, 2.0]
    assert np.mean(log.read_log(tmp_path)[-1]["return"]) > 1.8  # it does so when sampling, too


@pytest.fixture(scope="module")
def tempted(tmp_path_factory: pytest.TempPathFactory) -> shoal.Run:
    return train(tmp_path_factory.mktemp("tempted"), "tempting", 45)


def test_illegal_actions_are_taken_neither_in_training_nor_in_evaluation(tempted: shoal.Run) -> None:
    """The best-looking action pays 100 and is illegal: a return above 3, one for each step, gives a cheat away."""
    returns = [x for row in log.read_log(tempted.folder) for x in row["return"] if x is not None]
    assert 2.8 < max(returns) <= 3.0
    assert min(returns) < 1.7
    for greedy in (True, False):
        result = tempted.evaluate(64, greedy=greedy)
        assert (result.returns <= 3.0).all() and result.mean > 2.8
    legal = ~np.eye(4, dtype=bool)
    policies = shoal.load(tempted.folder, greedy=False)
    for bait in list(range(4)) * 8:
        sees = np.eye(4)[[bait, (bait + 1) % 4]]
        action = policies.act(sees, legal[[bait, (bait + 1) % 4]])
        assert action[0] != bait and action[1] != (bait + 1) % 4


def test_the_mask_in_the_ratio_and_the_entropy(tempted: shoal.Run) -> None:
    """Without it, three legal of four equal actions make an entropy of ln 4 and a ratio of 3/4 in the first update."""
    first = log.read_log(tempted.folder)[0]
    assert first["update"] == 1
    for seed in range(2):
        assert np.log(3) - 0.1 < first["entropy"][seed] <= np.log(3) + 1e-6
        assert first["kl"][seed] < 0.03  # −ln(3/4) = 0.29
        assert first["clip_fraction"][seed] < 0.3


@pytest.fixture(scope="module")
def stayed(tmp_path_factory: pytest.TempPathFactory) -> shoal.Run:
    return train(tmp_path_factory.mktemp("stayed"), "stay_or_quit", 120, gamma=0.9, entropy_coef=0.05, lr_final=0.1)


def test_a_time_limit_bootstraps_and_an_end_does_not(stayed: shoal.Run) -> None:
    """See ``toys.stay_or_quit``: every wrong bootstrap does the opposite somewhere."""
    for seed in range(2):
        policies = shoal.load(stayed.folder, seed=seed)
        good, bad = ([int(policies.act([sees])[0])] for sees in ([1.0, 0.0], [0.0, 1.0]))
        assert good == [0], "a time limit was taken for an end, or the next start for the outcome"
        assert bad == [1], "an end was bootstrapped on, or the next start taken for the outcome"


def test_values_at_a_time_limit_and_at_an_end(stayed: shoal.Run) -> None:
    """V(good) = r / (1 − γ) = 10, as if the episode went on for ever; V(bad) = −1.5, what quitting earns."""
    trainer = trainer_of(stayed, False)
    trainer.restore()
    assert trainer.state is not None
    learner = jax.device_get(trainer.state.learner)
    good, bad = jax.jit(jax.vmap(lambda learner: values(stayed, learner, jnp.eye(2)[:, None]), out_axes=1))(learner)
    np.testing.assert_allclose(good, [10.0, 10.0], atol=1.0)
    np.testing.assert_allclose(bad, [-1.5, -1.5], atol=0.3)


def values(run: shoal.Run, learner: Learner, obs: jax.Array) -> jax.Array:
    """V [B] of each observation [B, N, O], in units of reward."""
    env, spec, config = run.env, run.env.spec, run.config
    assert isinstance(env, Environment)
    critic = make_critic(spec, config.network, config.critic_input, policy_of(spec, config.sharing), config.agent_id)
    scale = on_policy.scale_of_agents(config.value_norm, critic.group_of, config.value_norm_beta)
    step = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), len(obs)))[1]._replace(obs=obs)
    _, value = critic.values(learner.critic, (), jax.tree.map(lambda x: x[None], step))
    return scale.denormalise(learner.statistics.value, value)[0, :, 0]


@pytest.mark.slow
def test_recurrent_policies_use_earlier_observations(tmp_path: Path) -> None:
    """A cue is shown once and asked for a step later: 0.5 by guessing, less than 1 if memory leaks between episodes."""
    run = train(tmp_path, "memory", 40, recurrent=8, chunk_length=4)
    assert run.evaluate(64).mean > 0.95
    policies = shoal.load(tmp_path)
    nothing = np.array([0.0, 0.0, 1.0])
    for cues in ((0, 1), (1, 0), (1, 1), (0, 0)):
        policies.reset()
        alone = [policies.agent(i) for i in range(2)]
        policies.act(np.eye(3)[list(cues)])
        assert policies.act([nothing, nothing]).tolist() == list(cues)
        for agent, cue in zip(alone, cues, strict=True):
            agent.act(np.eye(3)[cue])
            assert agent.act(nothing) == cue
