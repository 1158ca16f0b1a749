"""The compiled rollout against a plain Python loop over ``env.reset`` and ``env.step`` with the same keys."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import toys
from shoal.algorithms import mappo
from shoal.options.flags import override
from shoal.rollouts import fused
from shoal.rollouts.fused import SEEDS
from shoal.types import Box, Environment, EpisodeStats, Scale, Step, Trajectory

S, E, T, ROUNDS = 2, 5, 12, 2


def act(policy: Any, carry: Array, step: Step, key: Array, greedy: bool) -> tuple[Array, Array, dict[str, Array]]:
    """A random legal action; the carry counts timesteps since the episode began, the extras tell it."""
    carry = jnp.where(step.first, 0, carry) + 1
    noise = jax.random.uniform(key, step.legal.shape, minval=-1.0)
    if step.legal.shape[-1] == 4:  # toys.busy
        return carry, jnp.where(step.legal, noise, -jnp.inf).argmax(-1), {"age": carry}
    return carry, policy + 4.0 * noise, {"age": carry}


def send(env: Environment, action: Array) -> Array:
    space = env.spec.action
    return jnp.clip(action, space.low, space.high) if isinstance(space, Box) else action


class Played(NamedTuple):
    """One seed: what the compiled rollout made of it, and what plain Python did."""

    env: Environment
    trajectories: list[Trajectory]
    stats: list[EpisodeStats]
    states: list[Any]
    timesteps: list
    """[ROUNDS · T][E] of (step, action, age, outcome)."""
    now: list
    """[E] of (environment state, step) at the end."""
    sums: list[dict[str, Any]]


def naive(env: Environment, calls: tuple, key_init: Array, keys: list[Array]) -> tuple[list, list, list]:
    reset, step, choose = calls
    nothing = np.zeros(env.spec.num_agents)

    def bare(step: Step) -> Step:
        return step._replace(metrics=())  # algorithms are given none

    def begun(key: Array) -> tuple[Any, Step]:
        state, step = reset(key)
        return state, bare(step)

    now = [begun(key) for key in jax.random.split(key_init, E)]
    age, returns, lengths = jnp.zeros(E, int), [nothing] * E, [0] * E
    timesteps, sums = [], []
    for key in keys:
        ended = {"episodes": 0, "returns": nothing, "lengths": 0, "metrics": []}
        for key_t in jax.random.split(key, T):
            key_act, key_step, key_reset = jax.random.split(key_t, 3)
            seen = jax.tree.map(lambda *x: jnp.stack(x), *(s for _, s in now))
            age, action, _ = choose(1.0, age, seen, key_act, False)
            sent, step_keys, reset_keys = send(env, action), *(jax.random.split(k, E) for k in (key_step, key_reset))
            row = []
            for e in range(E):
                state, outcome = step(step_keys[e], now[e][0], sent[e])
                row.append((now[e][1], action[e], age[e], bare(outcome)))
                returns[e], lengths[e] = returns[e] + np.asarray(outcome.reward), lengths[e] + 1
                now[e] = (state, bare(outcome))
                if outcome.last:
                    ended["episodes"] += 1
                    ended["returns"], ended["lengths"] = ended["returns"] + returns[e], ended["lengths"] + lengths[e]
                    ended["metrics"].append([float(x) for x in outcome.metrics])
                    returns[e], lengths[e], now[e] = nothing, 0, begun(reset_keys[e])
            timesteps.append(row)
        sums.append(ended)
    return timesteps, now, sums


@pytest.fixture(scope="module", params=["busy", "drift"])
def played(request: pytest.FixtureRequest) -> list[Played]:
    """Two seeds in one program, two rollouts in a row; and each seed by itself in plain Python."""
    env = getattr(toys, request.param)()
    rollout = fused.make_rollout(env, E, T)
    keys = jax.random.split(jax.random.key(3), (S, 1 + ROUNDS))
    state = jax.jit(jax.vmap(lambda key: rollout.init(key, jnp.zeros(E, int))))(keys[:, 0])
    collect = jax.jit(jax.vmap(lambda s, k: rollout.collect(act, 1.0, s, k), axis_name=SEEDS))
    states, trajectories, stats = [state], [], []
    for i in range(ROUNDS):
        state, trajectory, ended = collect(state, keys[:, 1 + i])
        states, trajectories, stats = [*states, state], [*trajectories, trajectory], [*stats, ended]
    calls = jax.jit(env.reset), jax.jit(env.step), jax.jit(act, static_argnums=4)
    seeds = []
    for s in range(S):
        kept: tuple[Any, Any, Any] = jax.tree.map(lambda x, s=s: x[s], (trajectories, stats, states))
        timesteps, now, sums = naive(env, calls, keys[s, 0], list(keys[s, 1:]))
        seeds.append(Played(env, *kept, timesteps, now, sums))
    return seeds


def close(a: Any, b: Any) -> None:
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5, err_msg=jax.tree_util.keystr(path))


def stacked(rows: list) -> Any:
    return jax.tree.map(lambda *x: jnp.stack(x), *(jax.tree.map(lambda *x: jnp.stack(x), *row) for row in rows))


def test_every_seed_equals_a_plain_loop(played: list[Played]) -> None:
    for seed in played:
        for i, trajectory in enumerate(seed.trajectories):
            step, action, age, outcome = stacked(seed.timesteps[i * T : (i + 1) * T])
            close(trajectory.step, step)
            close(trajectory.action, action)
            close(trajectory.extras["age"], age)
            close(trajectory.outcome, outcome)
            close(trajectory.carry, seed.states[i].carry)
            stats, sums = seed.stats[i], seed.sums[i]
            assert stats.episodes == sums["episodes"] > 0 and stats.lengths == sums["lengths"]
            np.testing.assert_allclose(stats.returns, sums["returns"], rtol=1e-5, atol=1e-5)
            assert trajectory.step.metrics == trajectory.outcome.metrics == ()
            if not seed.env.spec.metrics:
                assert stats.metrics == stats.known == ()
                continue
            metrics, count = np.asarray(stats.metrics), np.asarray(stats.known)
            for m in range(3):
                known = [values[m] for values in sums["metrics"] if not np.isnan(values[m])]
                assert count[m] == len(known)
                np.testing.assert_allclose(metrics[m], sum(known), rtol=1e-5)
            assert count[2] < count[1] == stats.episodes
        env_states = jax.tree.map(lambda *x: jnp.stack(x), *seed.now)
        close((seed.states[-1].env, seed.states[-1].step), env_states)
    ends = [np.asarray(seed.trajectories[0].outcome.last).any(1) for seed in played]
    assert (ends[0] != ends[1]).any()  # so the branch that resets was taken for one seed and not for the other


def test_outcome_stands_before_the_reset_and_step_after_it(played: list[Played]) -> None:
    for trajectory in played[0].trajectories:
        last, first = np.asarray(trajectory.outcome.last), np.asarray(trajectory.step.first)
        np.testing.assert_array_equal(first[1:], last[:-1])
        assert not np.asarray(trajectory.outcome.first).any() and not np.asarray(trajectory.step.last).any()
        going = ~last[:-1]  # where nothing ended, the outcome is the next step, to the bit
        for name in ("obs", "state", "legal", "alive", "reward"):
            outcome, step = np.asarray(getattr(trajectory.outcome, name)), np.asarray(getattr(trajectory.step, name))
            np.testing.assert_array_equal(outcome[:-1][going], step[1:][going])
        before, after = np.asarray(trajectory.outcome.obs)[:-1][~going], np.asarray(trajectory.step.obs)[1:][~going]
        assert (before != after).any(axis=(1, 2)).all()
        assert not np.asarray(trajectory.step.reward)[first].any()
    assert np.asarray(played[0].trajectories[0].step.first)[0].all()


def test_a_time_limit_keeps_the_discount_and_a_termination_does_not(played: list[Played]) -> None:
    outcome = jax.tree.map(lambda *x: np.concatenate(x), *(t.outcome for seed in played for t in seed.trajectories))
    age = np.concatenate([t.extras["age"] for seed in played for t in seed.trajectories])
    horizon = played[0].env.spec.horizon
    limit, ended = outcome.last & (age == horizon), outcome.last & (age < horizon)
    assert limit.any() and ended.any() and (age <= horizon).all()
    assert (outcome.discount[ended] == 0.0).all() and (outcome.discount[~outcome.last] == 1.0).all()
    assert (outcome.discount[limit] == 1.0).any()  # both may come at once


def test_box_actions_are_clipped_on_their_way_and_stored_as_drawn(played: list[Played]) -> None:
    space = played[0].env.spec.action
    if not isinstance(space, Box):
        return
    for seed in played:
        drawn = np.asarray(seed.trajectories[-1].action)
        assert drawn.min() < space.low and drawn.max() > space.high
        going = ~np.asarray(seed.trajectories[-1].outcome.last)[-1]
        arrived = np.asarray(seed.states[-1].env.sent)
        np.testing.assert_array_equal(arrived[going], np.clip(drawn[-1], space.low, space.high)[going])


def test_resetting_is_a_branch_also_over_seeds() -> None:
    """Otherwise every step of every environment would pay for a reset."""
    rollout = fused.make_rollout(toys.busy(), E, 1)
    keys = jax.random.split(jax.random.key(0), 2)
    state = jax.eval_shape(jax.vmap(lambda key: rollout.init(key, jnp.zeros(E, int))), keys)
    collect = jax.vmap(lambda s, k: rollout.collect(act, 1.0, s, k), axis_name=SEEDS)
    assert "cond[" in str(jax.make_jaxpr(collect)(state, keys))


def test_anywhere_asks_every_seed() -> None:
    ended = jnp.array([[False, False], [False, True]])
    assert jax.vmap(fused.anywhere, axis_name=SEEDS)(ended).tolist() == [True, True]
    assert jax.vmap(fused.anywhere, axis_name=SEEDS)(ended[:1]).tolist() == [False]
    assert [bool(fused.anywhere(row)) for row in ended] == [False, True]


def test_a_recurrent_policy_starts_every_episode_anew() -> None:
    """Compared with one that is handed a fresh recurrent state wherever an episode starts."""
    env, length = toys.busy(), 16
    config = override(mappo.Config(), {"hidden": (8,), "recurrent": 4, "chunk_length": 1, "output_gain": 3.0})
    algorithm = mappo.make(env.spec, config, Scale(E, length, 1))
    learner = jax.jit(algorithm.init)(jax.random.key(1))
    rollout = fused.make_rollout(env, E, length, greedy=True)

    def play(key: Array) -> Trajectory:
        state = rollout.init(key, algorithm.initial_carry(E))
        return rollout.collect(algorithm.act, learner, state, key)[1]

    def replay(carry: Any, step: Step) -> tuple[Any, tuple[Array, Array]]:
        """One timestep of one environment, never told that an episode starts."""
        carry, action, extras = algorithm.act(learner, carry, step._replace(first=jnp.zeros(1, bool)), key, True)
        return carry, (action[0], extras["log_prob"][0])

    key = jax.random.key(2)
    trajectory, one = jax.device_get(jax.jit(play)(key)), jax.jit(replay)
    assert np.asarray(trajectory.step.first)[1:].sum() > 3
    for e in range(E):
        carry = algorithm.initial_carry(1)
        for t in range(length):
            step = jax.tree.map(lambda x, t=t, e=e: x[t, e : e + 1], trajectory.step)
            carry = algorithm.initial_carry(1) if step.first[0] else carry
            carry, (action, log_prob) = one(carry, step)
            np.testing.assert_array_equal(action, trajectory.action[t, e], err_msg=f"step {t}")
            np.testing.assert_allclose(log_prob, trajectory.extras["log_prob"][t, e], rtol=1e-4, atol=1e-5)
