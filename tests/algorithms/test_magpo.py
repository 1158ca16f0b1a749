"""MAGPO: the guider acts in training and the learners elsewhere; both descend the paper's losses."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from shoal.algorithms import magpo
from shoal.equations.returns import gae
from shoal.errors import InputError
from shoal.learning.optimiser import ByNet
from shoal.networks.body import Body
from shoal.types import Box, EnvSpec, Learner, Scale, Trajectory
from support import naive
from support.selection import quick
from support.trajectories import E, N, Program, T, acted, compiled, make_spec, make_trajectory, program

KEY = jax.random.key(1)
PLAIN: dict[str, Any] = {
    "network": Body((5,), orthogonal=False), "guider_width": 6, "adam_eps": 0.5, "learning_rate": 1.0, "epochs": 1,
    "minibatches": 1, "max_grad_norm": None, "normalise_advantage": "none", "delta": 1.2, "alpha": 0.7, "clip": 0.3,
}  # fmt: skip
SPEC = make_spec()
CASES: dict[str, tuple[EnvSpec, magpo.Config]] = {
    "mat": (SPEC, magpo.Config(**PLAIN, guider="mat", kl_coef=0.2)),
    "sable, recurrent learners": (
        make_spec(action=Box(2, -2.0, 1.0)),
        magpo.Config(**PLAIN | {"network": Body((5,), recurrent=3, orthogonal=False), "sharing": "role"}, heads=2),
    ),
}
every_case = pytest.mark.parametrize("name", quick(CASES, "mat"))


@cache
def played(name: str) -> tuple[Program, Trajectory]:
    spec, config = CASES[name]
    prog = program(spec, config)
    return prog, acted(prog, prog.learner, make_trajectory(spec, carry=prog.algorithm.initial_carry(E)))


def policies_of(name: str, params: ByNet, traj: Trajectory) -> tuple[Any, Any, jax.Array]:
    """(μ, π, V) of a trajectory."""
    spec, config = CASES[name]
    mu, value = magpo.make_guider(spec, config).evaluate_actions(
        params.critic, traj.carry.critic, traj.step, traj.action, traj.extras
    )
    return mu, magpo.make_learners(spec, config).distribution(params.actor, traj.carry.actor, traj.step)[1], value


def both(learner: Learner) -> ByNet:
    return ByNet(learner.policy.actor, learner.critic)


def test_the_double_clip_keeps_the_guider_near_old_and_learner() -> None:
    c = magpo.Config(**PLAIN)
    rng = np.random.default_rng(0)
    log_mu, log_pi, old = (rng.normal(size=200) * 0.4 for _ in range(3))
    advantage = rng.normal(size=200)
    found, outside = magpo.guided_surrogate(c, *map(jnp.asarray, (log_mu, log_pi, old, advantage)))
    slope = jax.vmap(jax.grad(lambda *x: magpo.guided_surrogate(c, *x)[0]))(
        *(jnp.asarray(x, jnp.float32) for x in (log_mu, log_pi, old, advantage))
    )
    for i in range(200):
        mu, pi, before = np.exp(log_mu[i]), np.exp(log_pi[i]), np.exp(old[i])
        near = min(max(mu / pi, 1 / c.delta), c.delta) * pi / before
        clipped = min(max(near, 1 - c.clip), 1 + c.clip)
        assert outside[i] == (not 1 / c.delta <= mu / pi <= c.delta)
        np.testing.assert_allclose(found[i], min(mu / before * advantage[i], clipped * advantage[i]), rtol=1e-4)
        if clipped * advantage[i] < mu / before * advantage[i] and (outside[i] or clipped != near):
            assert slope[i] == 0
    twice = replace(c, dual_clip=1.5)
    bounded = magpo.guided_surrogate(twice, *map(jnp.asarray, (log_mu, log_pi, old, advantage)))[0]
    expected = np.where(advantage < 0, np.maximum(found, 1.5 * advantage), found)
    np.testing.assert_allclose(bounded, expected, rtol=1e-5)
    assert (np.asarray(bounded) > np.asarray(found)).any()
    assert 0.2 < np.mean(outside) < 0.9 and 0.2 < np.mean(np.asarray(slope) == 0) < 0.9


@every_case
def test_the_guider_draws_actions_in_training_and_the_learners_act_elsewhere(name: str) -> None:
    prog, traj = played(name)
    alive = np.asarray(traj.step.alive)
    mu, pi, _ = compiled(lambda params: policies_of(name, params, traj))(both(prog.learner))
    np.testing.assert_allclose(mu.log_prob(traj.action)[alive], traj.extras["log_prob"][alive], rtol=1e-4, atol=1e-5)
    bare = prog.learner._replace(critic=(), statistics=())
    for learner, greedy in ((bare, False), (bare, True), (prog.learner, True)):
        deployed = acted(prog, learner, traj, greedy=greedy)
        if not greedy:
            got, expected = deployed.extras["log_prob"], pi.log_prob(deployed.action)
            np.testing.assert_allclose(got[alive], expected[alive], rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_allclose(deployed.action[alive], pi.mode()[alive], rtol=1e-4, atol=1e-5)


def naive_loss(name: str, learner: Learner, traj: Trajectory) -> Any:
    """parameters -> (L(μ) + L(π), metrics): means over living agents, written out; the parts are constants apart."""
    spec, c = CASES[name]
    alive, out = np.asarray(traj.step.alive), traj.outcome
    guider = magpo.make_guider(spec, c)
    whole = learner._replace(policy=learner.policy._replace(actor=learner.critic))
    found = compiled(guider.evaluate)(whole, traj._replace(carry=traj.carry._replace(actor=traj.carry.critic)))
    value = naive.mask_dead_values(spec, np.asarray(found.value), alive)
    after = naive.mask_dead_values(spec, np.asarray(found.next_value), np.asarray(out.alive))
    gain, target = gae(
        out.reward, out.discount, jnp.asarray(value), jnp.asarray(after), out.last, gamma=c.gamma, lam=c.lam
    )

    def mean(x: jax.Array) -> jax.Array:
        return jnp.where(alive, x, 0).sum() / alive.sum()

    def loss(params: ByNet) -> Any:
        mu, pi, v = policies_of(name, params, traj)
        fixed_mu, fixed_pi, _ = policies_of(name, both(learner), traj)
        log_mu, log_pi, old = mu.log_prob(traj.action), fixed_pi.log_prob(traj.action), traj.extras["log_prob"]
        r, near = jnp.exp(log_mu - old), jnp.clip(log_mu - log_pi, -np.log(c.delta), np.log(c.delta))
        clipped = jnp.clip(jnp.exp(near + log_pi - old), 1 - c.clip, 1 + c.clip)
        apart = 1.0 * (jnp.abs(log_mu - log_pi) > np.log(c.delta))
        of_mu = -mean(jnp.minimum(r * gain, clipped * gain)) + mean(apart * mu.kl(fixed_pi))
        of_mu += c.kl_coef * mean(r - 1 - (log_mu - old)) - c.entropy_coef * mean(mu.entropy())
        near_v = jnp.clip(v, found.value - c.value_clip, found.value + c.value_clip)
        of_v = mean(jnp.maximum((v - target) ** 2, (near_v - target) ** 2) / 2)
        ratio = jnp.exp(pi.log_prob(traj.action) - old)
        imitation = mean(fixed_mu.kl(pi))
        ppo = -mean(jnp.minimum(ratio * gain, jnp.clip(ratio, 1 - c.clip, 1 + c.clip) * gain))
        means = {"imitation": imitation, "apart": mean(apart), "value_loss": of_v, "entropy": mean(mu.entropy())}
        return of_mu + c.value_coef * of_v + imitation + c.alpha * ppo, means

    return loss


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_update_descends_the_paper_s_losses(name: str) -> None:
    prog, traj = played(name)
    noise = 0.3 * np.random.default_rng(0).normal(size=(T, E, N))
    traj = traj._replace(extras={"log_prob": traj.extras["log_prob"] + jnp.asarray(noise, jnp.float32)})
    gradient, expected = compiled(jax.grad(naive_loss(name, prog.learner, traj), has_aux=True))(both(prog.learner))
    after, metrics = prog.update(prog.learner, traj, KEY)
    for metric, x in expected.items():
        np.testing.assert_allclose(metrics[metric], x, rtol=1e-3, atol=1e-5, err_msg=metric)
    assert 0.1 < metrics["apart"] < 0.9
    if name == "mat":  # learners of their own are each trained on the mean over their own agents
        flat = ravel_pytree(gradient)[0]
        moved = ravel_pytree(both(after))[0] - ravel_pytree(both(prog.learner))[0]
        np.testing.assert_allclose(moved, -flat / (jnp.abs(flat) + 0.5), rtol=2e-2, atol=2e-4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"delta": 1.0}, "delta must be above 1"),
        ({"value_norm": "popart"}, "MAGPO's values share their network with its guider"),
        ({"critic_hidden": (8,)}, "MAGPO's guider has the values: leave out critic_hidden"),
        ({"critic_input": "state"}, "local, agent or pruned, not 'state'"),
        ({"heads": 4}, "4 heads do not divide"),
        ({"minibatches": 3}, "do not divide into 3 minibatches"),
    ],
)
def test_invalid_input_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        magpo.make(SPEC, magpo.Config(**PLAIN | changes), Scale(E, T, 10))
