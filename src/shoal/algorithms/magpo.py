"""MAGPO: a policy of the whole team guides decentralised ones, which alone are deployed (Li et al. 2025).

    L(μ) = −E[ min(r A, clip(r̃, 1 ± ε) A) ] + E[ m KL(μ ‖ π) ] − σ S(μ) + c_V L(V),    r = μ(a|ô, a^{1:m−1}) / μ_old
           log r̃ = clip(log μ − log π, ± log δ) + log π − log μ_old,    m = 1 where |log μ − log π| > log δ
    L(π) = E[ KL(μ ‖ π) ] + α L_PPO(π / μ_old)

The guider μ is MAT's or Sable's network (:mod:`shoal.algorithms.mat`, :mod:`shoal.algorithms.sable`), and its encoder
has the values. It draws the actions of the rollouts. The learners π, an actor for each agent on its own observation,
imitate it; μ keeps a ratio to π within (1/δ, δ), so that what it does can be imitated. In L(μ) π is a constant, in
L(π) μ. The joint KL is a sum over agents, with μ conditioned on the actions that were drawn; all means are over living
agents. Evaluation, greedy acting and deployment are π's.

Deviations from the authors' code: a time limit bootstraps; advantages are standardised over the batch, not each
minibatch; guider and learners may have step sizes of their own; the learners are feed-forward unless ``recurrent`` is
set; dead agents and orders are those of the guider's own algorithm. Equations, options and results:
docs/algorithms/magpo.md.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.algorithms import mat, sable
from shoal.algorithms.mappo import clipped_loss
from shoal.bounds import Bounds, Count, Depth, Fraction, Positive, Rate, Weight, Width
from shoal.equations.distributions import Distribution
from shoal.equations.reduce import explained_variance, standardise
from shoal.equations.returns import gae
from shoal.equations.surrogate import clip_fraction, clipped_value_loss, dual_clipped, importance_ratio, kl_penalty
from shoal.equations.targets import ValueNorm, cut_off, make_value_scale, mask_dead_values
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.learning.config import PpoConfig, check_options, no_critic_network
from shoal.learning.optimiser import ByNet, frozen_parameters, optimiser, step_of_both
from shoal.models import actor_critic, on_policy
from shoal.models.actor_critic import Actor, Carry, Policy, make_actor
from shoal.models.on_policy import Batch
from shoal.models.sequence import SequenceTeam
from shoal.networks.body import Body
from shoal.networks.inputs import CriticInput, normalised
from shoal.networks.sharing import policy_of
from shoal.types import Algorithm, EnvSpec, Learner, Metrics, Scale, Step, Trajectory


@dataclass(frozen=True)
class Config(PpoConfig):
    """MAGPO's hyper-parameters. "Code" is its authors' default; they tuned most values for each task.

    There ``gamma`` is 0.99, ``lam`` 0.95, ``entropy_coef`` 0.01 and ``adam_eps`` 1e-5. ``learning_rate`` is that of the
    learners, and ``critic_learning_rate`` that of the guider with its values.
    """

    network: Body = field(default_factory=lambda: Body(hidden=(128, 128), activation="relu"))
    """Layers of the learners. Code: 128, a GRU of 128, 128, ReLU."""
    guider: Literal["sable", "mat"] = "sable"
    """Network of the guider. Code: sable."""
    guider_width: Width = 64
    """Width of the guider. Code: 64."""
    blocks: Depth = 1
    """Blocks of the guider's encoder and of its decoder. Code: 1."""
    heads: Depth = 1
    """Heads of each retention or attention of the guider. Code: 1."""
    memory: bool = True
    """Whether Sable's retention also runs over time. Code: yes."""
    decay: Fraction = 0.8
    """Scale of the factors by which each timestep multiplies Sable's memory. Code: 0.8."""
    critic_input: CriticInput = "local"
    """What the guider reads of each agent: ``local`` own observation, ``agent`` also the global state, ``pruned`` the
    state and the observation features that it lacks. Code: local."""
    delta: Annotated[float, Bounds(above=1.0, most=1e6)] = 1.5
    """δ: the largest ratio between guider and learners, either way. Code: 1.5; tuned 1.1 to 4."""
    alpha: Weight = 1.0
    """α, weight of the learners' own PPO loss beside imitation. Code: 1; tuned 1 to 8."""

    learning_rate: Rate = 2.5e-4
    """Adam's step size for the learners. Code: 2.5e-4."""
    epochs: Count = 4
    """Passes over each batch. Code: 4."""
    minibatches: Count = 2
    """Minibatches per pass. Code: 2."""
    max_grad_norm: Positive | None = 0.5
    """Largest gradient norm of the guider and of each learner; None for no clip. Code: 0.5."""
    value_coef: Weight = 0.5
    """Weight of the value loss. Code: 0.5."""
    value_norm: ValueNorm = "none"
    """Scale of the value targets: ``running`` statistics or ``none``. Code: none."""
    huber: Positive | None = None
    """Width δ of the Huber value loss, in normalised units; None for ½e². Code: ½e²."""


def guided_surrogate(
    c: Config, log_mu: Array, log_pi: Array, log_old: Array, advantage: Array
) -> tuple[Float[Array, "*b"], Float[Array, "*b"]]:
    """min(r A, clip(r̃, 1 ± ε) A), to be maximised, and m, of actions by their log-probabilities; π is a constant.

    ``dual_clip`` bounds it as PPO's objective (:func:`shoal.equations.surrogate.clipped_surrogate`).
    """
    log_pi, bound = jax.lax.stop_gradient(log_pi), jnp.log(c.delta)
    r = importance_ratio(log_mu - log_old)
    near = importance_ratio(jnp.clip(log_mu - log_pi, -bound, bound) + log_pi - log_old)
    outside = (jnp.abs(log_mu - log_pi) > bound).astype(jnp.float32)
    objective = jnp.minimum(r * advantage, jnp.clip(near, 1 - c.clip, 1 + c.clip) * advantage)
    return dual_clipped(objective, advantage, c.dual_clip), outside


def guider_loss(
    c: Config, mu: Distribution, pi: Any, batch: Batch, entropy_coef: Array, kl_coef: Array
) -> tuple[Array, Metrics]:
    """L(μ) without its value loss over one minibatch, and its metrics."""
    log_mu, old = mu.log_prob(batch.action), batch.extras["log_prob"]
    surrogate, outside = guided_surrogate(c, log_mu, pi.log_prob(batch.action), old, batch.advantage)
    entropy, apart, kl = mu.entropy(), outside * mu.kl(jax.lax.stop_gradient(pi)), kl_penalty(log_mu - old)
    loss = jnp.sum(batch.weight * (apart - surrogate - entropy_coef * entropy + kl_coef * kl))
    clipped = clip_fraction(log_mu - old, c.clip)
    metrics = {"policy_loss": -surrogate, "entropy": entropy, "kl": kl, "clip_fraction": clipped, "apart": outside}
    return loss, {name: jnp.sum(batch.weight * x) for name, x in metrics.items()}


def learner_loss(c: Config, mu: Distribution, pi: Any, batch: Batch) -> tuple[Array, Metrics]:
    """L(π) over one minibatch, and its metrics."""
    imitation = jnp.sum(batch.weight * jax.lax.stop_gradient(mu).kl(pi))
    ppo, _ = clipped_loss(
        c, pi.log_prob(batch.action) - batch.extras["log_prob"], pi, batch, jnp.zeros(()), jnp.zeros(())
    )
    return imitation + c.alpha * ppo, {"imitation": imitation}


def make_guider(spec: EnvSpec, c: Config) -> SequenceTeam:
    """The guider's network.

    Raises:
        InputError: as :func:`shoal.algorithms.mat.make_team`.
    """
    shared = {
        "network": Body((c.guider_width,), activation="gelu", layer_norm=True, input_layer_norm=True),
        "blocks": c.blocks, "heads": c.heads, "critic_input": c.critic_input, "agent_id": c.agent_id,
        "output_gain": c.output_gain, "log_std": c.log_std, "squash": c.squash,
    }  # fmt: skip
    if c.guider == "mat":
        return mat.make_team(spec, mat.Config(**shared))
    return sable.make_team(spec, sable.Config(**shared, memory=c.memory, decay=c.decay))


def make_learners(spec: EnvSpec, c: Config) -> Actor:
    """The decentralised policies.

    Raises:
        InputError: an option is out of its range, or the guider would need a critic network or PopArt.
    """
    check_options(c)
    no_critic_network(c, "MAGPO's guider has the values")
    if c.value_norm == "popart":
        raise InputError("MAGPO's values share their network with its guider: value_norm must be running or none.")
    return make_actor(spec, c.network, policy_of(spec, c.sharing), c.agent_id, c.output_gain, c.log_std, c.squash)


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """MAGPO for an environment.

    Raises:
        InputError: minibatches or chunks do not divide the rollout, or as :func:`make_learners` and
            :func:`make_guider`.
    """
    c, actor, guider = config, make_learners(spec, config), make_guider(spec, config)
    remembers = bool(jax.tree.leaves(jax.eval_shape(lambda: guider.initial_carry(1))))
    length = scale.rollout_length if remembers else c.chunk  # Sable is trained on whole rollouts
    sgd.check_items(scale, c.minibatches, length)
    steps, clip, eps = scale.num_updates * c.epochs * c.minibatches, c.max_grad_norm, c.adam_eps
    frozen = frozen_parameters(c, actor.init, guider.init)
    actor_adam = optimiser(c.learning_rate, c.lr_final, [steps] * actor.num_policies, clip, eps, frozen.actor)
    guider_adam = optimiser(c.critic_rate, c.lr_final, [steps], clip, eps, frozen.critic)
    values = make_value_scale(c.value_norm, c.value_norm_beta)

    def init(key: PRNGKeyArray) -> Learner:
        key_actor, key_guider = jax.random.split(key)
        params = ByNet(actor.init(key_actor), guider.init(key_guider))
        state = ByNet(actor_adam.init(params.actor), guider_adam.init(params.critic))
        return on_policy.init_learner(spec, c, values, params, state)

    def as_guider(learner: Learner) -> Learner:
        return learner._replace(policy=Policy(learner.critic, learner.policy.inputs))

    def initial_carry(num_envs: int) -> Carry:
        return Carry(actor.initial_carry(num_envs), guider.initial_carry(num_envs).actor)

    def act(
        learner: Learner, carry: Carry, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[Carry, Array, dict[str, Array]]:
        """The guider draws the actions of rollouts; without it, and greedily, the learners act."""
        if greedy or not learner.critic:
            after, action, extras = actor.act(learner.policy, carry.actor, step, key, greedy)
            return Carry(after, carry.critic), action, extras
        own, action, extras = guider.act(as_guider(learner), Carry(carry.critic, ()), step, key, False)
        after = carry.actor
        if jax.tree.leaves(after):
            after = actor.act(learner.policy, after, step, key, True)[0]
        return Carry(after, own.actor), action, extras

    def evaluate(learner: Learner, traj: Trajectory) -> actor_critic.ValueEstimate:
        found = guider.evaluate(as_guider(learner), traj._replace(carry=Carry(traj.carry.critic, ())))
        after = ()
        if jax.tree.leaves(traj.carry.actor):
            step = normalised(learner.policy.inputs, traj.step)
            after, _ = actor.distribution(learner.policy.actor, traj.carry.actor, step)
        return found._replace(after=Carry(after, found.after.actor))

    def update(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        # VALUES AND ADVANTAGES
        out, alive = traj.outcome, traj.step.alive
        v = on_policy.denormalise_values(spec, values, learner, traj, evaluate(learner, traj))
        advantage, target = gae(out.reward, out.discount, v.now, v.next, cut_off(traj), gamma=c.gamma, lam=c.lam)
        learner = on_policy.update_value_scale(values, learner, target, alive)
        standard = standardise(c.normalise_advantage, advantage, alive)
        batch = on_policy.make_batch(c, values, learner, traj, v, standard, target, length)

        # LOSS
        sigma, kappa = on_policy.entropy_coef(c, learner, scale), learner.statistics.coefficients.kl

        def policies(params: ByNet, part: Batch) -> tuple[Distribution, Distribution, Array]:
            """μ, π and V."""
            mu, value = guider.evaluate_actions(params.critic, part.carry.critic, part.step, part.action, part.extras)
            return mu, actor.distribution(params.actor, part.carry.actor, part.step)[1], value

        def loss(params: ByNet, part: Batch) -> tuple[Array, Metrics]:
            mu, pi, value = policies(params, part)
            loss_mu, metrics = guider_loss(c, mu, pi, part, sigma, kappa)  # L(μ)
            loss_pi, of_learners = learner_loss(c, mu, pi, part)  # L(π)
            error = clipped_value_loss(value, part.value, part.target, c.value_clip, c.huber)
            loss_v = jnp.sum(part.weight * error)  # L(V)
            return loss_mu + loss_pi + c.value_coef * loss_v, metrics | of_learners | {"value_loss": loss_v}

        # EPOCHS × MINIBATCHES
        kl_stop = on_policy.kl_limit(spec, c.kl_stop, traj.step.legal, traj.step.alive)
        params, state, metrics = sgd.sgd(
            loss, step_of_both(actor_adam, guider_adam), ByNet(learner.policy.actor, learner.critic), learner.optimiser,
            batch, key, epochs=c.epochs, minibatches=c.minibatches, block=c.block, net_of=actor.policy_of,
            kl_stop=kl_stop,
        )  # fmt: skip
        learner = learner._replace(
            policy=learner.policy._replace(actor=params.actor), critic=params.critic, optimiser=state
        )

        # END OF THE UPDATE
        def log_ratio(part: Batch) -> Array:
            mu, _, _ = policies(params, part)
            return mu.log_prob(part.action) - part.extras["log_prob"]

        metrics |= on_policy.kl_of_update(c, log_ratio, batch)
        metrics["explained_variance"] = explained_variance(advantage, target, alive)
        return on_policy.end_update(spec, c, scale, learner, traj, metrics)

    def value(learner: Learner, carry: Carry, step: Step, action: Array) -> Float[Array, "1 E N"]:
        _, found = guider.evaluate_actions(learner.critic, carry.critic, step, action, {})
        return mask_dead_values(values.denormalise(learner.statistics.value, found), step.alive, spec.reward_groups)

    inspect = on_policy.make_inspect(actor, value)
    return Algorithm(
        init, initial_carry, act, update, inspect=inspect, learns_from="team", stochastic=True, guided=True
    )


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The learners, for acting only.

    Raises:
        InputError: as :func:`make_learners`.
    """
    make_learners(spec, config)
    return actor_critic.make_policy(spec, config, learns_from="team", guided=True)
