"""HAPPO: agents update one after the other, each accounting for those before it (Kuba et al. 2022, Algorithm 3).

In a random order i_1 … i_n, agent i_m maximises PPO's clipped objective with M in place of the advantage:

    max_θ  E[ min(r M, clip(r, 1 ± ε) M) + σ S(π_θ) ],    r = π_θ(a^{i_m}|o^{i_m}) / π_old(a^{i_m}|o^{i_m})    (line 11)
    M^{i_1} = Â,    M^{i_1:m+1} = π_new(a^{i_m}|o^{i_m}) / π_old(a^{i_m}|o^{i_m}) · M^{i_1:m}                  (line 12)

and the critic is fitted last. By the multi-agent advantage decomposition (Lemma 1) E[r M − M] is agent i_m's advantage
given what the agents before it have become, so the joint policy improves although all learn from one batch. Deviations
from the authors' code: only living agents enter M; recurrent log-probabilities are recomputed from the same chunks that
are trained on; advantages are standardised over the batch; V of a dead agent is :mod:`shoal.algorithms.mappo`'s.
Equations, options and results: docs/algorithms/happo.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from shoal.algorithms import _batches, _ppo
from shoal.algorithms._actor_critic import Actor, make_nets
from shoal.algorithms._config import PpoConfig, check_options
from shoal.algorithms.mappo import log_ratio, policy_loss
from shoal.bounds import Count, Index, Rate
from shoal.equations.distributions import Distribution
from shoal.equations.surrogate import importance_ratio
from shoal.networks.sharing import Sharing, policy_of
from shoal.types import Algorithm, EnvSpec, Learner, Metrics, PyTree, Scale, Trajectory

Order = Literal["random", "fixed"]


@dataclass(frozen=True)
class Config(PpoConfig):
    """HAPPO's hyper-parameters. "Paper" is Kuba et al. 2022; "code" the authors' later one (HARL) for MPE."""

    order: Order = "random"
    """Agents update in a fresh random order each time, or in their ``fixed`` order (the paper's ablation)."""
    sharing: Sharing | tuple[Index, ...] = "independent"
    """Which agents share parameters. Paper: none do; sharing is its ablation, and voids the guarantee."""
    learning_rate: Rate = 5e-4
    """Adam's step size for actors. Code: 5e-4."""
    epochs: Count = 5
    """Passes over each batch, for every agent and for the critic. Code: 5."""


class Rows(NamedTuple):
    """One agent's rows of a batch, [items, L ...]; with a leading axis N, every agent's."""

    x: Array
    """What the agent's net reads [... F]."""
    legal: Array
    first: Array
    action: Array
    extras: dict[str, Array]
    """Among it the acting policy's ``log_prob``."""
    advantage: Array
    weight: Array
    carry: PyTree
    """Recurrent state before each item [items, H]."""


def rows_of_agents(actor: Actor, batch: _ppo.Batch) -> Rows:
    """A batch with its agents in front: leaves [N, items, L ...]."""
    n = len(actor.policy_of)
    own = actor.features(batch.step), batch.step.legal, batch.action, batch.extras, batch.advantage, batch.weight
    x, legal, action, extras, advantage, weight = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 2, 0), own)
    first = jnp.broadcast_to(batch.step.first, (n, *batch.step.first.shape))
    carry = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), batch.carry.actor)
    return Rows(x, legal, first, action, extras, advantage, weight, carry)


def policy_at(actor: Actor, params: PyTree, rows: Rows) -> Distribution:
    """One agent's policy in its time-major rows, [L, items]."""
    return actor.alone(params, rows.carry, rows.x, rows.legal, rows.first)


def sequential(
    step: Callable[[PyTree, PyTree, Rows, Int[Array, ""], PRNGKeyArray], tuple[PyTree, PyTree, Metrics]],
    actor: Actor,
    theta: PyTree,
    state: PyTree,
    rows: Rows,
    order: Int[Array, " N"],
    key: PRNGKeyArray,
) -> tuple[PyTree, PyTree, Metrics]:
    """Lines 9 to 13: one agent after the other, M carried along. One agent's program, whatever their number.

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
        (parameters, optimiser states, metrics averaged over agents). Agents that share a policy change it in turn; the
        ratio of an earlier one is then that of the end of its own turn.
    """
    index = jnp.array(actor.policy_of)

    def turn(loop: tuple[PyTree, PyTree, Array], agent: tuple[Array, PRNGKeyArray]) -> tuple[tuple, Metrics]:
        theta, state, factor = loop
        i, key = agent
        p = index[i]
        own = jax.tree.map(lambda leaf: leaf[i], rows)
        params, optimiser = (jax.tree.map(lambda leaf: leaf[p], tree) for tree in (theta, state))
        params, optimiser, metrics = step(params, optimiser, own._replace(advantage=factor * own.advantage), p, key)
        after = policy_at(actor, params, _ppo.time_major(own)).log_prob(jnp.swapaxes(own.action, 0, 1))
        ratio = importance_ratio(jnp.swapaxes(after, 0, 1) - own.extras["log_prob"])
        factor = factor * jnp.where(own.weight > 0, ratio, 1.0)
        put = lambda tree, one: jax.tree.map(lambda leaf, x: leaf.at[p].set(x), tree, one)  # noqa: E731
        return (put(theta, params), put(state, optimiser), factor), metrics

    start = theta, state, jnp.ones(rows.weight.shape[1:])
    (theta, state, _), metrics = jax.lax.scan(turn, start, (order, jax.random.split(key, order.shape[0])))
    return theta, state, jax.tree.map(jnp.mean, metrics)


def order_of(kind: Order, n: int, key: PRNGKeyArray) -> Int[Array, " N"]:
    """Line 8: the order of the agents' turns."""
    return jax.random.permutation(key, n) if kind == "random" else jnp.arange(n)


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """HAPPO for an environment.

    Raises:
        InputError: minibatches or chunks do not divide the roll-out, the critic input does not exist, or an option is
            out of its range.
    """
    c = config
    check_options(c)
    nets = make_nets(spec, c, policy_of(spec, c.sharing))
    actor = nets.actor
    turns = [actor.policy_of.count(p) for p in range(actor.num_policies)]
    team = _ppo.make_team(spec, c, scale, nets, [c.epochs * c.minibatches * count for count in turns])

    def update(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        learner, batch, seen = team.prepare(learner, traj)
        sigma, kappa = team.entropy_coef(learner), learner.statistics.coefficients.kl

        def loss(params: PyTree, part: Rows) -> tuple[Array, Metrics]:
            part = _ppo.time_major(part)
            return policy_loss(c, policy_at(actor, params, part), part, sigma, kappa)  # line 11

        def one_agent(params: PyTree, state: PyTree, own: Rows, p: Array, key: PRNGKeyArray) -> tuple:
            def descend(loop: tuple[PyTree, PyTree], part: Rows) -> tuple[tuple[PyTree, PyTree], Metrics]:
                params, state = loop
                gradient, metrics = _batches.gradient(loss, params, part, c.block)
                params, state, norm = team.actor_adam.step_one(gradient, state, params, p)
                return (params, state), metrics | {"actor_grad_norm": norm}

            def epoch(loop: tuple[PyTree, PyTree], key: PRNGKeyArray) -> tuple[tuple[PyTree, PyTree], dict[str, Array]]:
                return jax.lax.scan(descend, loop, _batches.minibatches(key, own, c.minibatches))

            (params, state), metrics = jax.lax.scan(epoch, (params, state), jax.random.split(key, c.epochs))
            return params, state, jax.tree.map(jnp.mean, metrics)

        key_order, key_actors, key_critic = jax.random.split(key, 3)
        order, rows = order_of(c.order, spec.num_agents, key_order), rows_of_agents(actor, batch)
        theta, state, metrics = sequential(
            one_agent, actor, learner.policy.actor, learner.optimiser[0], rows, order, key_actors
        )
        learner = learner._replace(policy=learner.policy._replace(actor=theta), optimiser=(state, learner.optimiser[1]))
        metrics |= _ppo.kl_of_update(c, partial(log_ratio, actor, theta), batch)
        learner, fitted = team.fit_critic(learner, batch, key_critic)  # line 16
        return team.finish(learner, traj, seen, metrics | fitted)

    return Algorithm(team.init, nets.initial_carry, nets.act, update)
