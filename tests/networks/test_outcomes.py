"""The values of outcomes against an evaluation of every outcome by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.networks.body import Body, build_body
from shoal.networks.net import of_outcomes
from shoal.types import Step, Trajectory
from support.small_nets import apply, noise, random

T, E, N, F, H = 6, 4, 2, 3, 5


def steps(obs, first, last):
    nothing = jnp.zeros((T, E, 0))
    return Step(obs, nothing, nothing, nothing, nothing, nothing, first, last)._replace(alive=jnp.ones((T, E, N), bool))


def trajectory(last):
    """Episodes that end where ``last``; an outcome is the next step, unless the episode or the trajectory ends."""
    obs, final = random(T, E, N, F), random(T, E, N, F, seed=3)
    first = jnp.concatenate([jnp.zeros((1, E), bool), last[:-1]])
    outcome = jnp.where(last[..., None, None], final, jnp.concatenate([obs[1:], final[-1:]]))
    no = jnp.zeros((T, E), bool)
    return Trajectory(steps(obs, first, no), jnp.zeros(0), {}, steps(outcome, no, last), ())


ENDS = {
    "none": np.zeros((T, E), bool),
    "few": np.arange(T * E).reshape(T, E) == 9,
    "many": np.random.default_rng(1).random((T, E)) < 0.5,
    "all": np.ones((T, E), bool),
}


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("recurrent", [None, H])
def test_outcomes_have_the_values_of_a_net_that_reads_each(ends, recurrent):
    net = build_body(Body((4,), recurrent=recurrent, orthogonal=False), F, 1)
    params, traj = noise(net), trajectory(jnp.asarray(ENDS[ends]))
    after, y = apply(net, params, net.initial_carry((E, N)), traj.step.obs, traj.step.first)

    def evaluate(carry, step):
        return net.apply(params, carry, step.obs, step.first)[1]

    got = jax.jit(lambda: of_outcomes(evaluate, y, after, traj))()
    for t in range(T):
        carry = jax.tree.map(lambda h, t=t: h[t], after)
        one = apply(net, params, carry, traj.outcome.obs[t : t + 1], np.zeros((1, E), bool))[1]
        np.testing.assert_allclose(got[t], one[0], rtol=1e-5, atol=1e-6)


def test_an_episode_that_starts_without_an_end_is_not_the_outcome_before_it():
    """Where a worker was replaced, or a run resumed into a replay buffer."""
    traj = trajectory(jnp.zeros((T, E), bool))
    first = traj.step.first.at[3, 1].set(True)
    traj = traj._replace(step=traj.step._replace(first=first))
    seen = traj.outcome.obs.at[2, 1].set(7.0)
    traj = traj._replace(outcome=traj.outcome._replace(obs=seen))
    got = of_outcomes(lambda carry, step: step.obs, traj.step.obs, (), traj)
    np.testing.assert_array_equal(got, seen)


def test_no_gradient_flows_into_outcomes():
    traj = trajectory(jnp.asarray(ENDS["few"]))

    def loss(scale):
        values = scale * traj.step.obs
        return jnp.sum(of_outcomes(lambda carry, step: step.obs, values, (), traj))

    assert jax.grad(loss)(2.0) == 0
