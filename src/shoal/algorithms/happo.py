"""HAPPO: agents update one after the other, each accounting for those before it (Kuba et al. 2022, Algorithm 3).

In a random order i_1 … i_n, agent i_m maximises PPO's clipped objective with M in place of the advantage:

    max_θ  E[ min(r M, clip(r, 1 ± ε) M) + σ S(π_θ) ],    r = π_θ(a^{i_m}|o^{i_m}) / π_old(a^{i_m}|o^{i_m})    (line 11)
    M^{i_1} = Â,    M^{i_1:m+1} = π_new(a^{i_m}|o^{i_m}) / π_old(a^{i_m}|o^{i_m}) · M^{i_1:m}                  (line 12)

and the critic is fitted last. By the multi-agent advantage decomposition (Lemma 1) E[r M − M] is agent i_m's advantage
given the new policies of the agents before it, so the joint policy improves although all learn from one batch.
Deviations from the authors' code: only living agents enter M; π_old in M is the policy that acted, while the code takes
the one at the start of the agent's turn, which differs where agents share parameters; recurrent log-probabilities are
recomputed from the same chunks that are trained on; advantages are standardised over the batch; V of a dead agent is
:mod:`shoal.algorithms.mappo`'s. Equations, options and results: docs/algorithms/happo.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from shoal.algorithms.mappo import policy_loss, value_loss
from shoal.bounds import Count, Index, Rate
from shoal.equations.distributions import Distribution
from shoal.equations.reduce import explained_variance, standardise, total
from shoal.equations.returns import gae
from shoal.equations.surrogate import MAX_LOG_RATIO, importance_ratio
from shoal.equations.targets import cut_off
from shoal.learning import sgd
from shoal.learning.config import EpochsConfig, PpoConfig, check_options
from shoal.learning.optimiser import ByNet, Optimiser, frozen_parameters, optimiser, step_of_one
from shoal.learning.results import checked_losses
from shoal.models import actor_critic, on_policy
from shoal.models.actor_critic import Actor, ActorCritic, make_nets
from shoal.models.on_policy import Batch
from shoal.networks.sharing import Sharing, policy_of
from shoal.types import Algorithm, EnvSpec, Learner, Metrics, PyTree, Scale, Trajectory

Order = Literal["random", "fixed"]


@dataclass(frozen=True)
class Config(PpoConfig):
    """HAPPO's hyper-parameters. "Paper" is Kuba et al. 2022; "code" the authors' later one (HARL) for MPE.

    The code has ``gamma`` 0.99, ``lam`` 0.95, ``clip`` and ``value_clip`` 0.2, ``entropy_coef`` 0.01, ``huber`` 10,
    ``max_grad_norm`` 10, ``adam_eps`` 1e-5, ``value_norm`` running, ``minibatches`` 1, ``chunk_length`` 10 and a
    ``network`` of 128, 128 (relu, layer norm). The paper's for SMAC: ``gamma`` 0.95 or 0.99.
    """

    order: Order = "random"
    """Agents update in a new random order each time, or in their ``fixed`` order (the paper's ablation)."""
    sharing: Sharing | tuple[Index, ...] = "independent"
    """Which agents share parameters. Paper: none; sharing is its ablation, without the guarantee of improvement."""
    learning_rate: Rate = 5e-4
    """Adam's step size for actors. Code: 5e-4."""
    epochs: Count = 5
    """Passes over each batch, for every agent and for the critic. Code: 5."""


class AgentBatch(NamedTuple):
    """One agent's rows of a batch, [items, L ...]; with a leading axis N, every agent's."""

    x: Array
    """What the agent's net reads [... F]."""
    legal: Array
    first: Array
    action: Array
    extras: dict[str, Array]
    """The extras of ``act``, among them ``log_prob``."""
    advantage: Array
    weight: Array
    carry: PyTree
    """Recurrent state before each item [items, H]."""


def rows_of_agents(actor: Actor, batch: Batch) -> AgentBatch:
    """A batch with the axis of agents first: leaves [N, items, L ...]."""
    n = len(actor.policy_of)
    own = actor.features(batch.step), batch.step.legal, batch.action, batch.extras, batch.advantage, batch.weight
    x, legal, action, extras, advantage, weight = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 2, 0), own)
    first = jnp.broadcast_to(batch.step.first, (n, *batch.step.first.shape))
    carry = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), batch.carry.actor)
    return AgentBatch(x, legal, first, action, extras, advantage, weight, carry)


def policy_at(actor: Actor, params: PyTree, rows: AgentBatch) -> Distribution:
    """One agent's policy in its time-major rows, [L, items]."""
    return actor.alone(params, rows.carry, rows.x, rows.legal, rows.first)


def sequential(
    step: Callable[[PyTree, PyTree, AgentBatch, Int[Array, ""], PRNGKeyArray], tuple[PyTree, PyTree, Metrics]],
    actor: Actor,
    theta: PyTree,
    state: PyTree,
    rows: AgentBatch,
    order: Int[Array, " N"],
    key: PRNGKeyArray,
) -> tuple[PyTree, PyTree, Metrics]:
    """Lines 9 to 13: one agent after the other, as a scan that carries M.

    Args:
        step: updates one agent: (its policy's parameters, optimiser state, its rows with M as the advantage, the index
            of its policy, key) -> (parameters, optimiser state, metrics).
        actor: the policies.
        theta: parameters [P ...].
        state: optimiser states [P ...].
        rows: [N, items, L ...].
        order: i_1 … i_n, the same on all devices.
        key: for the agents' minibatches.

    Returns:
        (parameters, optimiser states, metrics averaged over all agents' living rows). Agents that share a policy
        change it in turn; the ratio of an earlier one is then that of the end of its own turn to the policy that acted.
    """
    index = jnp.array(actor.policy_of)

    def turn(loop: tuple[PyTree, PyTree, Array], agent: tuple[Array, PRNGKeyArray]) -> tuple[tuple, Metrics]:
        theta, state, factor = loop
        i, key = agent
        p = index[i]
        own = jax.tree.map(lambda leaf: leaf[i], rows)
        params, optimiser = (jax.tree.map(lambda leaf: leaf[p], tree) for tree in (theta, state))
        params, optimiser, metrics = step(params, optimiser, own._replace(advantage=factor * own.advantage), p, key)
        after = policy_at(actor, params, sgd.time_major(own)).log_prob(jnp.swapaxes(own.action, 0, 1))
        ratio = importance_ratio(jnp.swapaxes(after, 0, 1) - own.extras["log_prob"])
        # M has the cap of a single ratio: a product of many capped ones overflows.
        factor = jnp.minimum(factor * jnp.where(own.weight > 0, ratio, 1.0), math.exp(MAX_LOG_RATIO))
        put = lambda tree, one: jax.tree.map(lambda leaf, x: leaf.at[p].set(x), tree, one)  # noqa: E731
        return (put(theta, params), put(state, optimiser), factor), metrics

    start = theta, state, jnp.ones(rows.weight.shape[1:])
    (theta, state, _), metrics = jax.lax.scan(turn, start, (order, jax.random.split(key, order.shape[0])))
    living = total(rows.weight.reshape(order.shape[0], -1).sum(1))[order]
    share = living / jnp.maximum(living.sum(), 1.0)
    return theta, state, jax.tree.map(lambda x: (share * x).sum(), metrics)


def order_of(kind: Order, n: int, key: PRNGKeyArray) -> Int[Array, " N"]:
    """Line 8: the order of the agents' turns."""
    return jax.random.permutation(key, n) if kind == "random" else jnp.arange(n)


def fit_critic(
    c: EpochsConfig, nets: ActorCritic, adam: Optimiser, learner: Learner, batch: Batch, key: PRNGKeyArray
) -> tuple[Learner, Metrics]:
    """Line 16: all epochs of the critic, after those of the actors."""
    # Drop what the critic does not read, so that it is not gathered for every epoch.
    batch = batch._replace(action=(), extras={}, advantage=(), carry=batch.carry._replace(actor=()))  # type: ignore[arg-type]

    def loss(params: PyTree, part: Batch) -> tuple[Array, Metrics]:
        loss, metrics = value_loss(c, nets, params, part)
        return c.value_coef * loss, metrics

    phi, state, metrics = sgd.sgd(
        loss, step_of_one(adam, "critic_grad_norm"), learner.critic, learner.optimiser.critic, batch, key,
        epochs=c.epochs, minibatches=c.minibatches, block=c.block, net_of=nets.actor.policy_of,
    )  # fmt: skip
    return learner._replace(critic=phi, optimiser=learner.optimiser._replace(critic=state)), metrics


def make(
    spec: EnvSpec,
    config: Config,
    scale: Scale,
    actor_loss: Callable[..., tuple[Array, Metrics]] = policy_loss,
) -> Algorithm:
    """HAPPO for an environment.

    Args:
        spec: the environment's description.
        config: hyper-parameters.
        scale: sizes of the run.
        actor_loss: of one agent, whose advantage is M; with the arguments and results of
            :func:`shoal.algorithms.mappo.policy_loss`.

    Raises:
        InputError: minibatches or chunks do not divide the rollout, the critic input does not exist, or an option is
            out of its range.
    """
    c = config
    check_options(c)
    [actor_loss] = checked_losses(actor_loss=actor_loss)
    sgd.check_items(scale, c.minibatches, c.chunk)
    nets = make_nets(spec, c, policy_of(spec, c.sharing))
    actor = nets.actor
    steps = scale.num_updates * c.epochs * c.minibatches
    turns = [actor.policy_of.count(p) for p in range(actor.num_policies)]
    frozen, clip, eps = frozen_parameters(c, actor.init, nets.critic.init), c.max_grad_norm, c.adam_eps
    actor_adam = optimiser(c.learning_rate, c.lr_final, [steps * n for n in turns], clip, eps, frozen.actor)
    critic_adam = optimiser(c.critic_rate, c.lr_final, [steps] * nets.critic.num_nets, clip, eps, frozen.critic)
    values = on_policy.scale_of_agents(c.value_norm, nets.critic.group_of, c.value_norm_beta)

    def init(key: PRNGKeyArray) -> Learner:
        params = nets.init(key)
        state = ByNet(actor_adam.init(params.actor), critic_adam.init(params.critic))
        return on_policy.init_learner(spec, c, values, params, state)

    def update(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        key_order, key_actors, key_critic = jax.random.split(key, 3)

        # VALUES AND ADVANTAGES
        out, alive = traj.outcome, traj.step.alive
        v = on_policy.value_trajectory(spec, values, nets, learner, traj)
        advantage, target = gae(out.reward, out.discount, v.now, v.next, cut_off(traj), gamma=c.gamma, lam=c.lam)
        learner = on_policy.update_value_scale(values, learner, target, alive)
        standard = standardise(c.normalise_advantage, advantage, alive)
        batch = on_policy.make_batch(c, values, learner, traj, v, standard, target)

        # LOSS OF ONE AGENT
        sigma, kappa = on_policy.entropy_coef(c, learner, scale), learner.statistics.coefficients.kl

        def loss(params: PyTree, part: AgentBatch) -> tuple[Array, Metrics]:
            return actor_loss(c, policy_at(actor, params, part), part, sigma, kappa)  # line 11

        # EPOCHS × MINIBATCHES OF ONE AGENT
        def one_agent(params: PyTree, state: PyTree, own: AgentBatch, p: Array, key: PRNGKeyArray) -> tuple:
            def step(gradient: PyTree, state: PyTree, params: PyTree) -> tuple[PyTree, PyTree, Metrics]:
                params, state, norm = actor_adam.step_one(gradient, state, params, p)
                return params, state, {"actor_grad_norm": norm}

            kl_stop = on_policy.kl_limit(spec, c.kl_stop, own.legal, own.weight)
            return sgd.sgd(
                loss, step, params, state, own, key,
                epochs=c.epochs, minibatches=c.minibatches, block=c.block, kl_stop=kl_stop,
            )  # fmt: skip

        # ONE AGENT AFTER THE OTHER
        order, rows = order_of(c.order, spec.num_agents, key_order), rows_of_agents(actor, batch)  # line 8
        theta, state, metrics = sequential(
            one_agent, actor, learner.policy.actor, learner.optimiser.actor, rows, order, key_actors
        )
        learner = learner._replace(
            policy=learner.policy._replace(actor=theta), optimiser=learner.optimiser._replace(actor=state)
        )

        # THE CRITIC
        learner, of_critic = fit_critic(c, nets, critic_adam, learner, batch, key_critic)

        # END OF THE UPDATE
        def log_ratio(part: Batch) -> Array:
            _, pi = actor.distribution(theta, part.carry.actor, part.step)
            return pi.log_prob(part.action) - part.extras["log_prob"]

        metrics |= on_policy.kl_of_update(c, log_ratio, batch) | of_critic
        metrics["explained_variance"] = explained_variance(advantage, target, alive)
        return on_policy.end_update(spec, c, scale, learner, traj, metrics)

    inspect = on_policy.make_inspect_values(spec, values, nets)
    return Algorithm(init, nets.initial_carry, nets.act, update, inspect=inspect, stochastic=True)


def make_policy(spec: EnvSpec, config: EpochsConfig) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    return actor_critic.make_policy(spec, config)
