"""Inferred policies: each agent's models of the others, learned from what it saw them do (Lowe et al. 2017, 4.2).

    L(φ_i^j) = −E[ log μ̂_i^j(a_j | o_j) + λ H(μ̂_i^j) ]                                                        (eq. 7)

One gradient step on the newest rollout before each update of the critics, whose targets read a slow copy of φ.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.equations.distributions import Categorical, DiagGaussian
from shoal.equations.targets import follow
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.learning.optimiser import Optimiser
from shoal.models.action_critic import encode
from shoal.models.actor_critic import make_distribution
from shoal.models.deterministic import DpgConfig, draw, relax
from shoal.models.joint_critic import per_net
from shoal.networks.body import build
from shoal.networks.input_statistics import normalised
from shoal.networks.inputs import actor_input
from shoal.networks.sharing import per_agent
from shoal.types import Box, EnvSpec, Learner, Metrics, PyTree, Step, Trajectory


class Models(NamedTuple):
    """Every agent's model of every agent's policy; the model of itself is there and never used."""

    init: Callable[[PRNGKeyArray], PyTree]
    """key -> φ, leaves [N · N, ...]."""
    distribution: Callable[[PyTree, Step], Categorical | DiagGaussian]
    """(φ, normalised step [T E ...]) -> distributions [T E N N ...]: row i is what agent i thinks of the others."""
    guess: Callable[[PyTree, Step, PRNGKeyArray], Float[Array, "L B N N A"]]
    """(slow copy of φ, normalised step [L B ...], key) -> what the others do, as critics read it (eq. 8)."""


class Rows(NamedTuple):
    """A rollout as the models learn from it, [items, 1, ...]."""

    step: Step
    action: Array
    true: Categorical | tuple[()]
    weight: Float[Array, "items 1 N N"]


def make_models(spec: EnvSpec, c: DpgConfig) -> Models:
    """Feed-forward models that read the modelled agent's observation, N · N of them.

    A model of continuous actions is a Gaussian, whose mean stands for the action in targets, as the deterministic
    policy it models would.

    Raises:
        InputError: no critic would read what the models say.
    """
    if c.critic_input == "local" or set(c.local_roles) >= set(spec.roles):
        raise InputError("policies 'inferred' models the others' actions, and critics with a local input read none.")
    n, space = spec.num_agents, spec.action
    source = actor_input(spec, agent_id=False)
    log_std = -1.0 if isinstance(space, Box) else None
    body = replace(c.network, recurrent=None)
    one = build(body, source.width, space.width, output_gain=0.01, log_std=log_std)
    net, to_distribution = per_agent(one, tuple(range(n * n))), make_distribution(spec, False)

    def distribution(params: PyTree, step: Step) -> Any:
        seen = source.features(step)
        lead = seen.shape[:-2]
        x = jnp.broadcast_to(seen[..., None, :, :], (*lead, n, n, source.width))
        y = net.apply(params, (), x.reshape(*lead, n * n, source.width), step.first)[1]
        return to_distribution(y.reshape(*lead, n, n, -1), step.legal[..., None, :, :])

    def guess(params: PyTree, step: Step, key: PRNGKeyArray) -> Float[Array, "L B N N A"]:
        dist = distribution(params, step)
        if isinstance(dist, Categorical):
            sample = relax(space, c, dist.logits, dist.legal, draw(space, key, dist.logits.shape))
            return jnp.where(step.alive[..., None, :, None], sample, 0.0)
        return jax.vmap(lambda mean: encode(space, mean, step), -3, -3)(dist.mode())

    return Models(net.init, distribution, guess)


def inference_loss(log_prob: Array, entropy: Array, coef: float) -> Array:
    """−( log μ̂(a_j | o_j) + λ H(μ̂) ) of each row (Lowe et al. 2017, eq. 7)."""
    return -(log_prob + coef * entropy)


def infer(
    c: Any, models: Models, adam: Optimiser, learner: Learner, newest: Trajectory, true: Categorical | None
) -> tuple[Learner, Metrics]:
    """One step of all models on the newest rollout.

    Args:
        c: MADDPG's configuration.
        models: what learns.
        adam: its optimiser.
        learner: ``critic.models`` is φ, ``statistics.target.models`` its slow copy.
        newest: the rollout [T, E, ...].
        true: the policies [T, E, N ...] that acted, for the metric only; None for continuous ones.

    Returns:
        The learner, and metrics: ``model_loss``, and for discrete actions ``model_kl``, the mean over pairs of agents
        of KL(true ‖ model) in nats.
    """
    step, n = normalised(learner.policy.inputs, newest.step), newest.step.alive.shape[-1]
    others = ~jnp.eye(n, dtype=bool)
    seen = step.alive[..., None, :] & others  # [T, E, model's owner, modelled]
    pairs, count = jnp.arange(n * n), max(n * (n - 1), 1)
    weight = per_net(seen.reshape(*seen.shape[:-2], n * n), pairs, n * n).reshape(seen.shape)
    rows = sgd.items(Rows(step, newest.action, true or (), weight), 1)

    def loss(params: PyTree, part: Rows) -> tuple[Array, Metrics]:
        dist = models.distribution(params, part.step)
        action = jnp.broadcast_to(part.action[:, :, None], (*part.weight.shape, *part.action.shape[3:]))
        cost = inference_loss(dist.log_prob(action), dist.entropy(), c.model_entropy_coef)
        total_cost = (cost * part.weight).sum()
        metrics = {"model_loss": total_cost / count}
        if isinstance(part.true, Categorical) and isinstance(dist, Categorical):
            policy = Categorical(part.true.logits[..., None, :, :], part.true.legal[..., None, :, :])
            metrics["model_kl"] = (policy.kl(dist) * part.weight).sum() / count
        return total_cost, metrics

    gradient, metrics = sgd.gradient(loss, learner.critic.models, rows, c.block)
    phi, state, _ = adam.step(gradient, learner.optimiser.models, learner.critic.models)
    target = learner.statistics.target
    target = target._replace(models=follow(target.models, phi, learner.updates + 1, c.target_interval, c.target_rate))
    return learner._replace(
        critic=learner.critic._replace(models=phi),
        optimiser=learner.optimiser._replace(models=state),
        statistics=learner.statistics._replace(target=target),
    ), metrics
