"""Individual-global-max (Son et al. 2019, definition 1): agents that act greedily by themselves maximise Q_tot.

Every joint action is listed, for random parameters, states, utilities of both signs, legal actions and deaths.
"""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import qmix, qplex, vdn
from shoal.models.utilities import chosen_utility, greedy_action
from shoal.types import Discrete, PyTree, Step
from support.joint_values import every_value, joint_actions
from toys import spec_of, step_of

SPEC = spec_of("toys/igm", (3, 2, 3), Discrete(3), 5, state_dim=4)
PARAMETERS, MOMENTS = 12, 40
MIXERS = {
    "vdn": vdn.MIX,
    "qmix": qmix.make_mixer(SPEC, qmix.Config(mixing_width=4, hyper_width=8)),
    "qmix of observations": qmix.make_mixer(SPEC, qmix.Config(mixer_input="concat", mixing_width=4, hyper_layers=1)),
    "qplex": qplex.make_mixer(SPEC, qplex.Config(heads=2, hyper_width=8)),
    "qplex deep": qplex.make_mixer(SPEC, qplex.Config(heads=3, hyper_width=8, attention_width=8, attention_layers=3)),
}
every_mixer = pytest.mark.parametrize("name", MIXERS)


class Case(NamedTuple):
    phi: PyTree
    """Leaves [parameters, ...], noise."""
    q: jax.Array
    """[parameters, 1, timesteps, N, A]."""
    step: Step


@cache
def case(name: str) -> Case:
    rng, n, width = np.random.default_rng(3), SPEC.num_agents, SPEC.action.width
    batch = (PARAMETERS, 1, MOMENTS)
    legal = rng.random((*batch, n, width)) > 0.3
    legal[..., 1] |= ~legal.any(-1)
    one = step_of(SPEC, jnp.zeros(3), 0.0, False, False)
    step = jax.tree.map(lambda x: jnp.broadcast_to(x, (*batch, *x.shape)), one)._replace(
        obs=jnp.array(rng.normal(size=(*batch, n, 3)), jnp.float32),
        state=jnp.array(rng.normal(size=(*batch, 4)), jnp.float32),
        legal=jnp.array(legal),
        alive=jnp.array(rng.random((*batch, n)) > 0.3),
    )
    shapes = jax.eval_shape(MIXERS[name].init, jax.random.key(0))
    phi = jax.tree.map(lambda x: jnp.array(rng.normal(size=(PARAMETERS, *x.shape)), jnp.float32), shapes)
    return Case(phi, jnp.array(2 * rng.normal(size=(*batch, n, width)), jnp.float32), step)


@every_mixer
def test_the_best_joint_action_is_everyone_s_own_best(name: str) -> None:
    mixer, (phi, q, step), joint = MIXERS[name], case(name), joint_actions(SPEC)

    def value_of_greedy(phi, q, step):
        action, highest = greedy_action(q, step)
        return mixer.apply(phi, highest, highest, action, step)

    table = np.asarray(jax.jit(jax.vmap(lambda *x: every_value(mixer, x[0], x[1], x[2], joint)))(phi, q, step))[:, :, 0]
    greedy = np.asarray(jax.jit(jax.vmap(value_of_greedy))(phi, q, step))[:, 0]
    assert table.shape == (PARAMETERS, len(joint), MOMENTS)
    legal, alive = np.asarray(step.legal)[:, 0], np.asarray(step.alive)[:, 0]
    allowed = np.stack([(legal[..., np.arange(3), u] | ~alive).all(-1) for u in joint], 1)
    highest = np.where(allowed, table, -np.inf).max(1)
    scale = 1 + np.abs(table).max(1)
    assert (np.abs(highest - greedy) < 1e-5 * scale).all()
    # It is told apart: another joint action is worse, unless nothing else may be done.
    worst = np.where(allowed, table, np.inf).min(1)
    choice = (((legal.sum(-1) > 1) & alive).any(-1), worst < greedy - 1e-3 * scale)
    assert (choice[1] & ~choice[0]).sum() == 0 and choice[1].sum() > 0.9 * choice[0].sum() > 0.8 * choice[0].size
    # What a dead agent does is the same to everybody.
    for i in range(3):
        for u in range(27):
            twin = np.flatnonzero((np.delete(joint, i, 1) == np.delete(joint[u], i)).all(1))[0]
            np.testing.assert_array_equal(table[:, u][~alive[..., i]], table[:, twin][~alive[..., i]])


@pytest.mark.parametrize("name", ["vdn", "qmix", "qmix of observations"])
def test_monotone_mixers_never_fall_with_a_utility(name: str) -> None:
    """∂Q_tot / ∂Q_i ≥ 0 (Rashid et al. 2018, eq. 5), and not by being 0 everywhere."""
    mixer, (phi, q, step) = MIXERS[name], case(name)

    def slopes(phi, q, step):
        action = jnp.zeros(q.shape[:-1], jnp.int32)
        chosen = chosen_utility(q, action, jnp.ones_like(step.alive))
        return jax.grad(lambda chosen: mixer.apply(phi, chosen, chosen, action, step).sum())(chosen)

    slope = np.asarray(jax.jit(jax.vmap(slopes))(phi, q, step))
    assert (slope >= 0).all() and (slope > 1e-3).mean() > 0.9
    if name != "vdn":
        assert slope.std() > 0.1  # the state decides how much


@pytest.mark.parametrize("name", ["qmix", "qplex deep"])
def test_only_qplex_can_fall_where_an_agent_turns_to_an_action_it_likes_better(name: str) -> None:
    """The others' actions held: a monotone mixer never does. So QPLEX has values that no monotone mixer has."""
    mixer, (phi, q, step), joint = MIXERS[name], case(name), joint_actions(SPEC)
    step = step._replace(legal=jnp.ones_like(step.legal), alive=jnp.ones_like(step.alive))
    table = np.asarray(jax.jit(jax.vmap(lambda *x: every_value(mixer, x[0], x[1], x[2], joint)))(phi, q, step))[:, :, 0]
    table = np.moveaxis(table, 1, -1).reshape(PARAMETERS, MOMENTS, 3, 3, 3)
    order = np.argsort(np.asarray(q)[:, 0, :, 0], -1)[..., None, None]
    steps = np.diff(np.take_along_axis(table, np.broadcast_to(order, table.shape), 2), axis=2)
    falls = (steps < -1e-3 * (1 + np.abs(table).max((2, 3, 4), keepdims=True))).mean()
    assert falls == 0 if name == "qmix" else 0.05 < falls < 0.5, falls
