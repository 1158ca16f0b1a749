"""Policies trained behind wrappers and normalisation are handed what the environment itself gives."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from shoal.algorithms import ippo, mappo
from shoal.deploy import Policies
from shoal.environments.wrappers import Wrapping, change_of, wrap
from shoal.equations import normalise
from shoal.errors import InputError
from shoal.options.flags import override
from shoal.rollouts import fused
from shoal.types import Algorithm, Discrete, Learner, Scale, Step

WRAPPING = Wrapping(time_limit=5, frame_stack=3, last_action=True, agent_ids=True, reward_scale=0.1)


def seeing(learner: Learner, stats: Any) -> Learner:
    """With other statistics of the observations."""
    policy = learner.policy
    return learner._replace(policy=policy._replace(inputs=policy.inputs._replace(obs=stats)))


@pytest.fixture(scope="module")
def trained() -> tuple[Any, Any, Learner]:
    """(wrapped environment, algorithm, learner), with a recurrent state, and statistics that do something."""
    env = wrap(toys.busy(), WRAPPING)
    config = override(mappo.Config(), {"hidden": (8,), "recurrent": 6, "chunk_length": 1, "normalise_inputs": True})
    algorithm = mappo.make(env.spec, config, Scale(1, 1, 1))
    rng, shapes = np.random.default_rng(7), jax.eval_shape(algorithm.init, jax.random.key(0))
    learner = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), shapes)
    seen = learner.policy.inputs.obs
    ramp = jnp.arange(seen.mean.size).reshape(seen.mean.shape) / seen.mean.size
    seen = seen._replace(mean=ramp, square=ramp**2 + 0.1 + ramp, weight=jnp.full(ramp.shape, 9.0))
    return env, algorithm, seeing(learner, seen)


def deployed(trained: tuple[Any, Any, Learner]) -> Policies:
    env, algorithm, learner = trained
    return Policies(env.spec, algorithm, learner.policy, wrapping=WRAPPING)


def test_they_act_as_in_training_on_raw_observations(trained: tuple[Any, Any, Learner]) -> None:
    """Two episodes: what was seen in the first is forgotten. Each agent alone does what it does in the team."""
    env, algorithm, learner = trained
    raw = toys.busy()
    policies, act = deployed(trained), jax.jit(algorithm.act, static_argnums=4)
    assert policies.spec.obs_dims == raw.spec.obs_dims
    alone, step_inner, step_outer = policies.agent("agent_1"), jax.jit(raw.step), jax.jit(env.step)
    taken = []
    for episode in range(2):
        key = jax.random.key(episode)
        policies.reset()
        alone.reset()
        carry, (state, now), (outer, wrapped) = (
            algorithm.initial_carry(1),
            jax.jit(raw.reset)(key),
            jax.jit(env.reset)(key),
        )
        for t in range(4):
            batch = jax.tree.map(lambda x: x[None], wrapped)
            carry, action, _ = act(learner, carry, batch, key, True)
            junk = np.where(np.arange(6) < np.array(raw.spec.obs_dims)[:, None], now.obs, 77.0)
            rows = [row[:width] for row, width in zip(now.obs, raw.spec.obs_dims, strict=True)]
            acted = policies.act(junk if t % 2 else rows, now.legal, alive=list(now.alive))
            np.testing.assert_array_equal(acted, action[0])
            assert alone.act(rows[1], now.legal[1]) == acted[1]
            taken.append(acted)
            turn = jax.random.fold_in(key, t)
            state, now = step_inner(turn, state, action[0])
            outer, wrapped = step_outer(turn, outer, action[0])
    assert len(np.unique(np.stack(taken), axis=0)) > 1


def test_past_frames_actions_ids_and_statistics_matter(trained: tuple[Any, Any, Learner]) -> None:
    """Or the test above would prove nothing."""
    env, algorithm, learner = trained
    raw, rng = toys.busy().spec, np.random.default_rng(0)
    fresh = normalise.init(learner.policy.inputs.obs.mean.shape)
    plain = seeing(learner, fresh)
    others = Policies(env.spec, algorithm, plain.policy, wrapping=WRAPPING)
    anew, going, acted = deployed(trained), deployed(trained), deployed(trained)
    differ = np.zeros(3)
    for _ in range(30):
        rows = [rng.normal(size=width) for width in raw.obs_dims]
        anew.reset()
        others.reset()
        acts = [policies.act(rows) for policies in (anew, going, others)]
        differ += [(acts[0] != acts[1]).any(), (acts[0] != acts[2]).any(), False]
        acted.reset()
        acted.act(rows)
        assert acted._executed is not None
        acted._executed = (acted._executed + 1) % raw.action_dims
        differ[2] += (acted.act(rows) != anew.act(rows)).any()
    assert (differ > 1).all()


def test_an_agent_that_waits_acts_by_its_mask() -> None:
    """Alone as in the team: in Hanabi the only legal action is then the last one, which the agent reads afterwards."""
    wrapping = Wrapping(last_action=True)
    spec = change_of(toys.spec_of("x", (2, 2), Discrete(3), 9, state_dim=1, turns=True), wrapping).spec
    config = override(mappo.Config(), {"hidden": (8,), "output_gain": 5.0, "chunk_length": 1})
    algorithm = mappo.make(spec, config, Scale(1, 1, 1))
    learner = jax.jit(algorithm.init)(jax.random.key(7))
    team = Policies(spec, algorithm, learner.policy, wrapping=wrapping)
    alone, rng = [team.agent(i) for i in range(2)], np.random.default_rng(1)
    for t in range(6):
        rows, mover = rng.normal(size=(2, 2)), t % 2
        masks = np.array([[1, 1, 0] if i == mover else [0, 0, 1] for i in range(2)], bool)
        acted = team.act(rows, masks)
        assert acted[1 - mover] == 2
        assert [one.act(rows[i], masks[i], turn=i == mover) for i, one in enumerate(alone)] == acted.tolist()


def test_turn_leaves_the_others_one_legal_action_where_observations_are_arrays() -> None:
    """Without it, agent 0's policy is the only one that is computed, and the others choose index 0."""
    spec = toys.spec_of("x", (2, 2), Discrete(3), 9, state_dim=1, turns=True)
    algorithm = mappo.make(spec, override(mappo.Config(), {"hidden": (8,), "output_gain": 5.0}), Scale(1, 1, 1))
    learner = jax.jit(algorithm.init)(jax.random.key(7))
    team, rng = Policies(spec, algorithm, learner.policy), np.random.default_rng(1)
    moves = []
    for t in range(12):
        rows, mover = rng.normal(size=(2, 2)), t % 2
        masks = np.array([[1, 1, 1] if i == mover else [1, 0, 0] for i in range(2)], bool)
        acted = team.act(rows, masks).tolist()
        assert team.act(rows, turn=mover).tolist() == team.act(rows, np.ones((2, 3)), turn=mover).tolist() == acted
        assert team.act(dict(zip(team.agents, rows, strict=True)), turn=team.agents[mover]) == dict(
            zip(team.agents, acted, strict=True)
        )
        waits = masks | np.eye(3, dtype=bool)[2]
        waits[1 - mover, 0] = False  # index 2 is the only legal action of the agent that waits
        assert team.act(rows, waits, turn=mover).tolist() == [acted[i] if i == mover else 2 for i in range(2)]
        moves.append(acted[mover])
    assert len(set(moves[1::2])) > 1, "agent 1 never chooses"
    with pytest.raises(InputError, match="There is no agent 'x'; the agents are"):
        team.act(rows, turn="x")
    named = Policies(replace(spec, agents=("1", "0")), algorithm, learner.policy)
    assert [named._mover(turn) for turn in (1, "1", 0, np.int64(0))] == [0, 0, 1, 1], "names come before indices"


def test_a_placeholder_for_an_absent_agents_observation_does_not_stay_in_its_frames() -> None:
    """Of an agent that joins later, NaN is as good as zeros."""
    wrapping, spec = Wrapping(frame_stack=2), toys.spec_of("toys/joining", (4, 3), Discrete(3), 1)
    seen = change_of(spec, wrapping).spec
    config = override(ippo.Config(), {"hidden": (8,), "output_gain": 1.0})
    made = ippo.make_policy(seen, config)
    team = Policies(seen, made, jax.jit(made.init)(jax.random.key(0)).policy, greedy=False, wrapping=wrapping)
    rows = np.random.default_rng(0).normal(size=(8, 2, 4)).astype(np.float32)
    acted: dict[float, list[list[int]]] = {}
    for absent in (0.0, np.nan):
        team._key = jax.random.key(0)
        acted[absent] = []
        for obs in rows:
            team.reset()
            team.act(np.stack([obs[0], np.full(4, absent)]), alive=[True, False])
            acted[absent].append(team.act(obs).tolist())
    assert acted[0.0] == acted[np.nan]


def test_a_wrapped_observation_is_not_taken_for_a_raw_one(trained: tuple[Any, Any, Learner]) -> None:
    with pytest.raises(InputError, match="agent_0's observation has width 4, not 18"):
        deployed(trained).act([np.zeros(width) for width in trained[0].spec.obs_dims])


def test_continuous_actions_are_remembered_as_they_were_executed() -> None:
    """Actions of a rollout, which are stored unclipped, from its raw observations."""
    raw, wrapping = toys.drift(), Wrapping(last_action=True)
    env = wrap(raw, wrapping)

    def act(learner: Learner, carry: Any, step: Step, key: Any, greedy: bool) -> Any:
        seen = step.obs.sum(-1, keepdims=True)
        return carry, 4.0 * jnp.sin(5.0 * seen) * jnp.array([1.0, 0.7]), {}

    algorithm: Any = Algorithm(None, lambda _: (), act, None)  # type: ignore[arg-type]
    rollout = fused.make_rollout(env, 1, 5, greedy=True)
    start = jax.jit(rollout.init)(jax.random.key(3), ())
    _, traj, _ = jax.jit(rollout.collect, static_argnums=0)(act, (), start, jax.random.key(4))
    made = np.asarray(traj.action)[:, 0]
    sent, policies = np.clip(made, -1.0, 3.0), Policies(env.spec, algorithm, (), wrapping=wrapping)
    alone = [policies.agent(i) for i in range(2)]
    assert (made != sent).any() and len(np.unique(sent)) > 4
    for t, step in enumerate(np.asarray(traj.step.obs)[:, 0]):
        if traj.step.first[t, 0]:
            for one in (policies, *alone):
                one.reset()
        rows = [row[:width] for row, width in zip(step, raw.spec.obs_dims, strict=True)]
        acted = policies.act(rows)
        np.testing.assert_allclose(acted, sent[t], rtol=1e-5)
        for i, one in enumerate(alone):
            np.testing.assert_array_equal(one.act(rows[i]), acted[i, : raw.spec.action_dims[i]])
        acted[...] = 0.0  # the array belongs to the caller
