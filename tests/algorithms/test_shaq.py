"""SHAQ's weighted sum against the paper's equations, agent by agent and coalition by coalition."""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from math import factorial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import shaq
from shoal.errors import InputError
from shoal.networks.body import Body
from shoal.types import Box, Scale, Step
from support.naive_q import at, dense, greedy, team, utilities
from support.trajectories import E, T, compiled, make_spec, make_trajectory, program

KEY = jax.random.key(1)
SPEC = make_spec()
CONFIG = shaq.Config(
    network=Body((6,), activation="relu", orthogonal=False),
    coalitions=4,
    mixing_width=3,
    hyper_width=5,
    adam_eps=0.5,
    learning_rate=0.5,
    alpha_learning_rate=0.25,
)


def weighted(phi: Any, q: np.ndarray, best: np.ndarray, order: np.ndarray, step: Step) -> np.ndarray:
    """Σ_i δ_i Q_i, moment by moment."""
    total = np.zeros(q.shape[:-1])
    for where in np.ndindex(total.shape):
        s, living = np.asarray(step.state, np.float64)[where], np.flatnonzero(np.asarray(step.alive)[where])
        w1, b1 = np.abs(dense(phi["w1"], s)).reshape(2, -1), dense(phi["b1"], s)
        w2, v = np.abs(dense(phi["w2"], s)), dense(phi["v"], s)[0]
        for i in living:
            own, numbers = q[where][i], []
            for places in order[where]:
                coalition = [j for j in living if places[j] < places[i]]
                mean = np.mean([q[where][j] for j in coalition]) if coalition else 0.0
                hidden = mean * w1[0] + own * w1[1] + b1
                numbers.append(abs(np.where(hidden > 0, hidden, np.exp(np.minimum(hidden, 0)) - 1) @ w2 + v))
            total[where] += own * (1.0 if own == best[where][i] else 1.0 + np.mean(numbers))
    return total


def test_values_and_loss_are_those_of_a_loop() -> None:
    prog, traj = program(SPEC, CONFIG), make_trajectory(SPEC, carry=())
    _, metrics = prog.update(prog.learner, traj, KEY)
    actor, frozen, phi = prog.learner.policy.actor, prog.learner.statistics.target.actor, prog.learner.critic
    now = utilities(SPEC, CONFIG, actor, traj)[0]
    chooser, judge = (utilities(SPEC, CONFIG, x, traj)[1] for x in (actor, frozen))
    rows = traj.step._replace(alive=traj.step.alive.swapaxes(0, 1).reshape(1, E * T, -1))  # as the update sees them
    drawn = shaq.make_mixer(SPEC, CONFIG).draw(jax.random.split(KEY, 1)[0], rows)[0]
    order = np.asarray(drawn).reshape(E, T, CONFIG.coalitions, SPEC.num_agents).swapaxes(0, 1)

    reward, discount = team(traj)
    after = at(judge, greedy(chooser, traj.outcome), traj.outcome.alive).sum(-1)  # every δ of a target is 1
    taken, best = (at(now, a, traj.step.alive) for a in (traj.action, greedy(now, traj.step)))
    assert (taken < best).any() and ((taken == best) & np.asarray(traj.step.alive)).any()
    error = reward + CONFIG.gamma * discount * after - weighted(phi, taken, best, order, traj.step)
    error = error[np.asarray(traj.step.alive).any(-1)]
    np.testing.assert_allclose(metrics["td_error"], np.abs(error).mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["td_loss"], (error**2).mean() / 2, rtol=1e-4)


def test_gradients_reach_utilities_also_through_the_weights() -> None:
    """Central differences of the loop, which has no gradient of its own."""
    prog, traj = program(SPEC, CONFIG), make_trajectory(SPEC, carry=())
    rng, alive = np.random.default_rng(3), np.asarray(traj.step.alive)
    q = np.where(alive, rng.normal(size=alive.shape), 0.0)
    best = np.where(rng.random(alive.shape) < 0.5, q, q + alive)
    order = rng.random((T, E, CONFIG.coalitions, SPEC.num_agents))
    phi, mixer = prog.learner.critic, shaq.make_mixer(SPEC, CONFIG)

    def total(q: jax.Array) -> jax.Array:
        return mixer.apply(phi, q, q + jnp.asarray(best - q), traj.action, traj.step, jnp.asarray(order)).sum()

    slope = np.asarray(compiled(jax.grad(total))(jnp.asarray(q, jnp.float32)))
    for t, e, i in [tuple(x) for x in np.argwhere(alive)[:6]]:
        change = np.zeros(q.shape)
        change[t, e, i] = 1e-4
        up, down = (weighted(phi, q + d, best + d, order, traj.step)[t, e] for d in (change, -change))
        assert slope[t, e, i] == pytest.approx((up - down) / 2e-4, rel=5e-3, abs=5e-3)


def test_coalitions_are_drawn_for_each_row_and_step() -> None:
    step = make_trajectory(SPEC, carry=()).step
    first, again, other = (
        np.asarray(shaq.make_mixer(SPEC, CONFIG).draw(jax.random.key(k), step)[0]) for k in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(np.concatenate([first, other]).reshape(2 * T * E, -1), axis=0)) == 2 * T * E


def test_coalitions_have_the_probabilities_of_the_shapley_value() -> None:
    """|C|! (n − |C| − 1)! / n! for a coalition C of the n living agents without i."""
    alive = jnp.array([True, True, False, True, True])
    living, q = (0, 1, 3, 4), jnp.array([1.0, 10.0, 1000.0, 100.0, 0.5])
    order = jax.random.uniform(KEY, (20_000, 5))
    found = Counter(np.round(np.asarray(shaq.coalition_values(q, order, alive)[:, 1], np.float64), 3).tolist())
    others = [j for j in living if j != 1]
    for size in range(len(living)):
        wanted = factorial(size) * factorial(len(living) - size - 1) / factorial(len(living))
        for coalition in combinations(others, size):
            mean = sum(float(q[j]) for j in coalition) / max(size, 1)
            assert found.pop(round(mean, 3)) / 20_000 == pytest.approx(wanted, abs=0.01), coalition
    assert not found


def test_hypernetworks_move_with_a_step_size_of_their_own() -> None:
    prog, traj = program(SPEC, CONFIG), make_trajectory(SPEC, carry=())
    other = program(SPEC, replace(CONFIG, alpha_learning_rate=0.5))
    moved = [p.update(prog.learner, traj, KEY)[0] for p in (prog, other)]
    steps = [jax.tree.map(lambda a, b: a - b, m.critic, prog.learner.critic) for m in moved]
    for slow, fast in zip(*map(jax.tree.leaves, steps), strict=True):
        np.testing.assert_allclose(2 * slow, fast, rtol=1e-4, atol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, moved[0].policy.actor, moved[1].policy.actor)
    assert max(float(jnp.abs(x).max()) for x in jax.tree.leaves(steps[0])) > 1e-3


@pytest.mark.parametrize(
    ("spec", "flags", "words"),
    [
        (make_spec(action=Box(2)), {}, "continuous ones"),
        (make_spec(state_dim=0), {}, "no global state"),
        (SPEC, {"coalitions": 0}, "coalitions must be at least 1"),
    ],
)
def test_invalid_input_is_refused(spec: Any, flags: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        shaq.make(spec, replace(CONFIG, **flags), Scale(E, T, 1))
