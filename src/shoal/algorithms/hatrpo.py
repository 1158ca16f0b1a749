"""HATRPO: agents take trust-region steps one after the other (Kuba et al. 2022, Algorithm 2).

In a random order i_1 … i_n, agent i_m maximises its part of the team's advantage within a KL of δ:

    max_θ  L(θ) = E[ r M + σ S(π_θ) ]    subject to    E[ KL(π_θk(·|o^{i_m}) ‖ π_θ(·|o^{i_m})) ] ≤ δ
    g = ∇L(θ_k),    x ≈ (H + ζ I)⁻¹ g by conjugate gradients, H the Hessian of that KL                     (line 11)
    β = sqrt(2 δ / xᵀ(H + ζ I)x)                                                                           (line 12)
    θ_{k+1} = θ_k + α^j β x,    the first j with L(θ_{k+1}) − L(θ_k) ≥ κ α^j β x·g and the true KL ≤ δ      (line 13)

with r = π_θ / π_old of the agent's own action; without such a j, θ does not change. M and the order of turns are
HAPPO's, and the critic is fitted last. Means are over all timesteps of the batch in which the agent is alive.
Deviations from the authors' code: the KL is exact, and over the same rows as the objective; only living agents enter M;
advantages are standardised over the batch; V of a dead agent is :mod:`shoal.algorithms.mappo`'s. Equations, options and
results: docs/algorithms/hatrpo.md.
"""

from dataclasses import dataclass
from typing import Annotated

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PRNGKeyArray

from shoal.algorithms import happo
from shoal.bounds import Bounds, Count, Fraction, Index, Positive, Rate, Weight
from shoal.equations.distributions import Distribution
from shoal.equations.reduce import explained_variance, standardise
from shoal.equations.returns import gae
from shoal.equations.surrogate import importance_ratio
from shoal.equations.targets import cut_off
from shoal.equations.trust_region import (
    conjugate_gradients,
    fisher_vector_product,
    line_search,
    linearise,
    step_length,
)
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.learning.config import EpochsConfig, check_options
from shoal.learning.optimiser import ByNet, frozen_parameters, optimiser
from shoal.models import actor_critic, on_policy
from shoal.models.actor_critic import make_nets
from shoal.networks.sharing import Sharing, policy_of
from shoal.types import Algorithm, EnvSpec, Learner, Metrics, PyTree, Scale, Trajectory


@dataclass(frozen=True)
class Config(EpochsConfig):
    """HATRPO's hyper-parameters. "Paper" is Kuba et al. 2022; "code" the authors' later one (HARL) for MPE.

    The code also has those of :class:`shoal.algorithms.happo.Config` for the critic and the advantages.
    """

    max_kl: Positive = 0.01
    """δ: largest mean KL(old ‖ new) of one agent's step, in nats. Code: 0.005; 0.001 to 0.06 in SMAC."""
    cg_iterations: Count = 10
    """Maximum number of Fisher-vector products in one agent's conjugate gradients. Code: 10."""
    cg_tolerance: Positive = 1e-10
    """Conjugate gradients stop when the squared residual is at most this. Code: 1e-10."""
    damping: Weight = 0.1
    """ζ: added to the Fisher matrix's diagonal. Code: 0.1."""
    line_search_steps: Count = 10
    """L: maximum number of trial steps. Code: 10."""
    backtrack: Annotated[float, Bounds(above=0.0, below=1.0)] = 0.8
    """α: ratio of each trial step to the previous one. Code: 0.8 (0.5 on most SMAC maps)."""
    accept_ratio: Fraction = 0.5
    """κ: smallest accepted ratio of measured to predicted improvement. Code: 0.5."""

    order: happo.Order = "random"
    """Agents update in a new random order each time, or in their ``fixed`` order (the paper's ablation)."""
    sharing: Sharing | tuple[Index, ...] = "independent"
    """Which agents share parameters. Paper: none; sharing is its ablation, without the guarantee of improvement."""
    entropy_coef: Weight = 0.0
    """Weight σ of the entropy bonus. Paper: none."""
    learning_rate: Rate = 5e-4
    """Adam's step size for the critic; actors have none. Code: 5e-4."""
    critic_learning_rate: Rate | None = None
    """If given, the critic's step size; ``learning_rate`` then has no effect."""
    epochs: Count = 5
    """The critic's passes over each batch; every agent takes one step on all of it. Code: 5."""
    minibatches: Count = 1
    """The critic's minibatches per pass. Code: 1."""


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """HATRPO for an environment.

    Raises:
        InputError: minibatches or chunks do not divide the rollout, the critic input does not exist, or an option is
            out of its range.
    """
    c = config
    check_options(c)
    sgd.check_items(scale, c.minibatches, c.chunk)
    nets = make_nets(spec, c, policy_of(spec, c.sharing))
    actor = nets.actor
    steps = [scale.num_updates * c.epochs * c.minibatches] * nets.critic.num_nets
    if part := next((part for part in c.freeze if part.startswith("actor")), None):
        raise InputError(
            f"HATRPO takes one step for each whole actor, so {part} cannot be frozen: freeze only parts of the critic."
        )
    frozen = frozen_parameters(c, None, nets.critic.init)
    critic_adam = optimiser(c.critic_rate, c.lr_final, steps, c.max_grad_norm, c.adam_eps, frozen.critic)
    values = on_policy.scale_of_agents(c.value_norm, nets.critic.group_of, c.value_norm_beta)

    def init(key: PRNGKeyArray) -> Learner:
        # A trust-region step has no state, so actors have no optimiser.
        params = nets.init(key)
        return on_policy.init_learner(spec, c, values, params, ByNet(None, critic_adam.init(params.critic)))

    def update(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        key_order, key_actors, key_critic = jax.random.split(key, 3)

        # VALUES AND ADVANTAGES
        out, alive = traj.outcome, traj.step.alive
        v = on_policy.value_trajectory(spec, values, nets, learner, traj)
        advantage, target = gae(out.reward, out.discount, v.now, v.next, cut_off(traj), gamma=c.gamma, lam=c.lam)
        learner = on_policy.update_value_scale(values, learner, target, alive)
        standard = standardise(c.normalise_advantage, advantage, alive)
        batch = on_policy.make_batch(c, values, learner, traj, v, standard, target)

        # THE TRUST-REGION STEP OF ONE AGENT
        sigma = on_policy.entropy_coef(c, learner, scale)

        def one_agent(params: PyTree, _: PyTree, own: happo.AgentBatch, p: Array, key: PRNGKeyArray) -> tuple:
            own = jax.vmap(sgd.time_major)(sgd.blocks(sgd.whole(own), c.block))
            theta, unravel = ravel_pytree(params)

            def policy(theta: Array) -> Distribution:
                """π_θ in every row, block by block."""
                return jax.lax.map(lambda part: happo.policy_at(actor, unravel(theta), part), own)

            def objective(dist: Distribution) -> Array:
                """r M + σ S in every row; its weighted sum is L(θ)."""
                log_ratio = jnp.where(own.weight > 0, dist.log_prob(own.action) - own.extras["log_prob"], 0.0)
                return importance_ratio(log_ratio) * own.advantage + sigma * dist.entropy()

            old = linearise(policy, theta)

            def product(vector: Array) -> Array:
                return sgd.add_up(fisher_vector_product(old, own.weight, vector)) + c.damping * vector

            def trial(fraction: Array) -> tuple[Array, Array]:
                new = policy(theta + fraction * step)
                improvement = objective(new) - objective(old.here)
                return sgd.add_up((jnp.sum(own.weight * improvement), jnp.sum(own.weight * old.here.kl(new))))

            g = sgd.add_up(old.pull(jax.grad(lambda z: jnp.sum(own.weight * objective(old.at(z))))(old.z)))
            x = conjugate_gradients(product, g, iterations=c.cg_iterations, tolerance=c.cg_tolerance)  # line 11
            max_kl = c.max_kl * on_policy.share_of_decisions(spec, own.legal, own.weight)
            step = step_length(x @ product(x), max_kl) * x  # line 12
            found = line_search(  # line 13
                trial,
                step @ g,
                max_kl=max_kl,
                steps=c.line_search_steps,
                backtrack=c.backtrack,
                accept_ratio=c.accept_ratio,
            )
            accepted = found.fraction > 0
            metrics = {
                "entropy": sgd.add_up(jnp.sum(own.weight * old.here.entropy())),
                "kl": found.kl,
                "improvement": found.improvement,
                "accepted": accepted.astype(jnp.float32),
                "step_fraction": found.fraction,
                "actor_grad_norm": jnp.linalg.norm(g),
            }
            return unravel(jnp.where(accepted, theta + found.fraction * step, theta)), None, metrics

        # ONE AGENT AFTER THE OTHER
        order, rows = happo.order_of(c.order, spec.num_agents, key_order), happo.rows_of_agents(actor, batch)
        theta, _, metrics = happo.sequential(one_agent, actor, learner.policy.actor, None, rows, order, key_actors)
        learner = learner._replace(policy=learner.policy._replace(actor=theta))

        # THE CRITIC
        learner, of_critic = happo.fit_critic(c, nets, critic_adam, learner, batch, key_critic)  # line 16

        # END OF THE UPDATE
        metrics |= of_critic
        metrics["explained_variance"] = explained_variance(advantage, target, alive)
        return on_policy.end_update(spec, c, scale, learner, traj, metrics)

    inspect = on_policy.make_inspect_values(spec, values, nets)
    return Algorithm(init, nets.initial_carry, nets.act, update, inspect=inspect, stochastic=True)


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    return actor_critic.make_policy(spec, config)
