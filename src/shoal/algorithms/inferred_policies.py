"""Inferred policies: MADDPG with models of the others' policies in its targets (Lowe et al. 2017, section 4.2).

    L(φ_i^j) = −E[ log μ̂_i^j(a_j | o_j) + λ H(μ̂_i^j) ]                       on the newest rollout          (eq. 7)
    ŷ_i = r_i + γ d_i Q_i'(x', μ̂_i'^1(o_1'), …, μ_i'(o_i'), …, μ̂_i'^N(o_N'))                               (eq. 8)

This is :mod:`shoal.algorithms.maddpg` with ``policies="inferred"``: one step of the models before each of its updates.
Its targets read μ̂', slowly updated copies.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.algorithms import maddpg
from shoal.equations.distributions import Categorical, Distribution
from shoal.equations.targets import update_target
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.learning.optimiser import optimiser
from shoal.learning.replay import TargetStatistics
from shoal.models.actor_critic import make_distribution
from shoal.models.deterministic import draw_noise, gumbel_actions, per_net
from shoal.networks.body import Body, build_body
from shoal.networks.inputs import actor_input, encode_actions, normalised, update_inputs
from shoal.networks.sharing import per_agent
from shoal.types import Algorithm, Box, EnvSpec, Experience, Learner, Metrics, PyTree, Scale, Step, Trajectory


class Models(NamedTuple):
    """Every agent's model of every agent's policy; an agent's model of itself is not used."""

    init: Callable[[PRNGKeyArray], PyTree]
    """key -> φ, leaves [N · N, ...]."""
    distribution: Callable[[PyTree, Step], Distribution]
    """(φ, normalised step [T E ...]) -> distributions [T E N N ...]: row i holds agent i's models."""


class ModelStatistics(NamedTuple):
    """State of the update beside parameters."""

    maddpg: TargetStatistics
    models: PyTree
    """φ."""
    target: PyTree
    """φ', a slowly updated copy of φ."""
    optimiser: PyTree


class ModelBatch(NamedTuple):
    """The newest rollout, [items, 1, ...]."""

    step: Step
    action: Array
    true: Categorical | None
    """The policies that acted; None for continuous actions."""
    weight: Float[Array, "items 1 N N"]


def make_models(spec: EnvSpec, body: Body) -> Models:
    """Feed-forward models that read the modelled agent's observation, N · N of them.

    A model of continuous actions is a Gaussian, whose mean is the action in targets.
    """
    n, space = spec.num_agents, spec.action
    source = actor_input(spec, agent_id=False)
    log_std = -1.0 if isinstance(space, Box) else None
    one = build_body(replace(body, recurrent=None), source.layout, space.width, output_gain=0.01, log_std=log_std)
    net, to_distribution = per_agent(one, tuple(range(n * n))), make_distribution(spec, False)

    def distribution(params: PyTree, step: Step) -> Distribution:
        seen = source.features(step)
        lead = seen.shape[:-2]
        x = jnp.broadcast_to(seen[..., None, :, :], (*lead, n, n, source.width))
        y = net.apply(params, (), x.reshape(*lead, n * n, source.width), step.first)[1]
        return to_distribution(y.reshape(*lead, n, n, -1), step.legal[..., None, :, :])

    return Models(net.init, distribution)


def inference_loss(log_prob: Array, entropy: Array, coef: float) -> Array:
    """−( log μ̂(a_j | o_j) + λ H(μ̂) ) of each row (Lowe et al. 2017, eq. 7)."""
    return -(log_prob + coef * entropy)


def make(make_maddpg: Callable[..., Algorithm], spec: EnvSpec, config: maddpg.Config, scale: Scale) -> Algorithm:
    """MADDPG with inferred policies; ``make_maddpg`` is :func:`shoal.algorithms.maddpg.make` or that of a variant.

    Metrics: ``model_loss``, and for discrete actions ``model_kl``, the mean over pairs of agents of KL(true ‖ model).

    Raises:
        InputError: no critic would read the models' actions, or what MADDPG refuses.
    """
    c, n, space = config, spec.num_agents, spec.action
    core, actors = make_maddpg(spec, replace(c, policies="true"), scale), maddpg.make_nets(spec, c)
    if c.critic_input == "local" or set(c.local_roles) >= set(spec.roles):
        raise InputError(
            "policies 'inferred' models the others' actions, but critics with a local input do not read them."
        )
    models = make_models(spec, c.network)
    rate = c.learning_rate if c.model_learning_rate is None else c.model_learning_rate
    adam = optimiser(rate, c.lr_final, [scale.num_updates] * n * n, c.max_grad_norm, c.adam_eps)
    pairs, not_itself = max(n * (n - 1), 1), ~jnp.eye(n, dtype=bool)

    def init(key: PRNGKeyArray) -> Learner:
        learner = core.init(key)
        phi = models.init(jax.random.split(key, 3)[2])  # core uses the other two
        kept = ModelStatistics(learner.statistics, phi, jax.tree.map(jnp.array, phi), adam.init(phi))
        return learner._replace(statistics=kept)

    def loss(params: PyTree, part: ModelBatch) -> tuple[Array, Metrics]:
        dist = models.distribution(params, part.step)
        action = jnp.broadcast_to(part.action[:, :, None], (*part.weight.shape, *part.action.shape[3:]))
        cost = inference_loss(dist.log_prob(action), dist.entropy(), c.model_entropy_coef)
        total = (cost * part.weight).sum()
        metrics = {"model_loss": total / pairs}
        if isinstance(part.true, Categorical) and isinstance(dist, Categorical):
            policy = Categorical(part.true.logits[..., None, :, :], part.true.legal[..., None, :, :])
            metrics["model_kl"] = (policy.kl(dist) * part.weight).sum() / pairs
        return total, metrics

    def guess(phi: PyTree, step: Step, key: PRNGKeyArray) -> Float[Array, "L B N N A"]:
        """The others' actions in a normalised step [L, B, ...] as critics read them: row i by agent i's models."""
        dist = models.distribution(phi, step)
        if isinstance(dist, Categorical):
            noise, hard = draw_noise(space, key, dist.logits.shape), c.relaxation == "straight_through"
            return gumbel_actions(
                space, dist.logits, dist.legal, step.alive[..., None, :], noise,
                temperature=c.temperature, straight_through=hard,
            )  # fmt: skip
        return jax.vmap(lambda mean: encode_actions(space, mean, step), -3, -3)(dist.mode())

    def update(learner: Learner, experience: Experience, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        newest, kept, policy = experience.newest, learner.statistics, learner.policy
        inputs = update_inputs(spec, policy.inputs, newest.step, c.freeze)
        step = normalised(inputs, newest.step)

        # THE MODELS' STEP
        seen = (step.alive[..., None, :] & not_itself).reshape(*step.alive.shape[:-1], n * n)
        weight = per_net(seen, jnp.arange(n * n), n * n).reshape(*step.alive.shape, n)
        true = None
        if not isinstance(space, Box):
            true = Categorical(actors.output(policy.actor, newest.carry.actor, step, newest.extras)[1], step.legal)
        batch = sgd.items(ModelBatch(step, newest.action, true, weight), 1)
        gradient, inferring = sgd.gradient(loss, kept.models, batch, c.block)
        phi, state, _ = adam.step(gradient, kept.optimiser, kept.models)
        target = update_target(kept.target, phi, learner.updates + 1, c.target_interval, c.target_rate)

        # MADDPG'S UPDATE
        inner, others = learner._replace(statistics=kept.maddpg), partial(guess, target)
        learner, metrics = core.update(inner, experience, key, others)  # type: ignore[call-arg]
        kept = ModelStatistics(learner.statistics, phi, target, state)
        return learner._replace(statistics=kept), metrics | inferring

    def observe(learner: Learner, traj: Trajectory) -> Learner:
        kept = learner.statistics
        counted = core.observe(learner._replace(statistics=kept.maddpg), traj)  # type: ignore[misc]
        return counted._replace(statistics=kept._replace(maddpg=counted.statistics))

    def inspect(learner: Learner, *played: Any) -> dict[str, Array]:
        kept = learner.statistics.maddpg if learner.statistics else ()
        return core.inspect(learner._replace(statistics=kept), *played)  # type: ignore[misc]

    return core._replace(init=init, update=update, learns_from="others", inspect=inspect, observe=observe)
