"""MAPPO: multi-agent PPO with a centralised critic (Yu et al. 2022); with ``critic_input="local"`` it is IPPO.

    max_θ  E[ min(r A, clip(r, 1 ± ε) A) + σ S(π_θ) − κ KL(π_old ‖ π_θ) ]      (Yu et al. 2022, appendix A, L(θ))
    min_φ  E[ max(ℓ(V_φ − R), ℓ(clip(V_φ, V_old ± ε) − R)) ]                    (Yu et al. 2022, appendix A, L(φ))

with r = π_θ(a|o) / π_old(a|o), A from GAE (Schulman et al. 2016, eq. 16) and R = A + V. Means are over alive agents,
and a policy's gradient is that of the mean over its own agents. Values are learned on normalised targets.

Deviations from the authors' code: a time limit bootstraps; value statistics change once per update, before the losses
that read them; V(s) is one output per agent where rewards differ; V of a dead agent is the mean of the living agents'
where the reward is shared and 0 where it is not, while the code bootstraps on its critic's output for the dead agent's
input. With Gaussian actions the code sums the surrogate over action dimensions although each ratio is that of the whole
action, and averages the entropy over them: its objective is act_dim times this one, its entropy 1 / act_dim of ours.
Equations, options and results: docs/algorithms/mappo.md.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from shoal.algorithms import _batches, _ppo
from shoal.algorithms._actor_critic import Actor, ActorCritic, Inputs, Policy, make_nets
from shoal.algorithms._config import PpoConfig, check_options
from shoal.algorithms._credit import Credit, make_credit
from shoal.bounds import Draws
from shoal.equations.distributions import Distribution
from shoal.equations.surrogate import clip_fraction, clipped_surrogate, kl_penalty
from shoal.networks.sharing import policy_of
from shoal.types import Algorithm, EnvSpec, Learner, Metrics, PyTree, Scale, Trajectory


@dataclass(frozen=True)
class Config(PpoConfig):
    """MAPPO's hyper-parameters. "Paper" is Yu et al. 2022, Tables 7–15, for MPE; "code" its authors' repository."""

    recompute_advantages: bool = False
    """Recompute values and advantages with the current critic before every epoch but the first (Andrychowicz et al.
    2021); the value clip then holds each epoch near where it began."""
    baseline: Literal["value", "counterfactual", "optimal"] = "value"
    """``value``: the advantage is GAE's. Otherwise it is X̂ = Q̂ − b with COMA's baseline or the optimal one, from a Q
    that learns beside V on the same targets (Kuba et al. 2021, section 4.3)."""
    draws: Draws = 16
    """K: own actions drawn per moment for those baselines where actions are continuous."""


def log_ratio(actor: Actor, theta: PyTree, part: _ppo.Batch) -> Array:
    """log r = log π_θ(a|o) − log π_old(a|o) [L, items, N] of a time-major part of a batch."""
    _, dist = actor.distribution(Policy(theta, Inputs()), part.carry.actor, part.step)
    return dist.log_prob(part.action) - part.extras["log_prob"]


def policy_loss(
    c: PpoConfig, dist: Distribution, batch: Any, entropy_coef: Array, kl_coef: Array
) -> tuple[Array, Metrics]:
    """−L(θ) over one minibatch (of the team, or of one agent), and its metrics (Yu et al. 2022, appendix A)."""
    log_r = dist.log_prob(batch.action) - batch.extras["log_prob"]
    return clipped_loss(c, log_r, dist, batch, entropy_coef, kl_coef)


def clipped_loss(
    c: PpoConfig, log_ratio: Array, dist: Distribution, batch: Any, entropy_coef: Array, kl_coef: Array
) -> tuple[Array, Metrics]:
    """The same for a ratio given by its logarithm, shaped as ``batch.weight``."""
    surrogate = clipped_surrogate(log_ratio, batch.advantage, c.clip, c.dual_clip)
    entropy, kl = dist.entropy(), kl_penalty(log_ratio)
    loss = -jnp.sum(batch.weight * (surrogate + entropy_coef * entropy - kl_coef * kl))
    clipped = clip_fraction(log_ratio, c.clip)
    metrics = {"policy_loss": -surrogate, "entropy": entropy, "kl": kl, "clip_fraction": clipped}
    return loss, {name: jnp.sum(batch.weight * x) for name, x in metrics.items()}


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """MAPPO for an environment.

    Raises:
        InputError: minibatches or chunks do not divide the roll-out, the critic input does not exist, or an option is
            out of its range.
    """
    check_options(config)
    nets = make_nets(spec, config, policy_of(spec, config.sharing))
    credit = None if config.baseline == "value" else make_credit(spec, config, nets)
    return make_with(spec, config, scale, nets if credit is None else credit.nets, credit)


def make_with(
    spec: EnvSpec, config: Config, scale: Scale, nets: ActorCritic, credit: Credit | None = None
) -> Algorithm:
    """MAPPO with any decentralised actors and state-value critic; ``credit`` takes the place of GAE's advantage."""
    c = config
    steps = c.epochs * c.minibatches
    team = _ppo.make_team(spec, c, scale, nets, [steps] * nets.actor.num_policies)

    def descend(learner: Learner, batch: _ppo.Batch) -> tuple[Learner, Metrics]:
        """One gradient step on one minibatch."""
        sigma, kappa = team.entropy_coef(learner), learner.statistics.coefficients.kl

        def loss(params: tuple, part: _ppo.Batch) -> tuple[Array, Metrics]:
            part = _ppo.time_major(part)
            _, dist = nets.actor.distribution(Policy(params[0], Inputs()), part.carry.actor, part.step)
            loss_pi, metrics = policy_loss(c, dist, part, sigma, kappa)
            loss_v = team.value_loss(params[1], part)
            metrics["value_loss"] = loss_v
            if credit is not None:
                metrics["q_loss"] = credit.loss(params[1], part)
                loss_v += metrics["q_loss"]
            return loss_pi + c.value_coef * loss_v, metrics

        params = learner.policy.actor, learner.critic
        gradients, metrics = _batches.gradient(loss, params, batch, c.block, nets.actor.policy_of)
        learner, norms = team.apply(learner, gradients)
        return learner, metrics | norms

    def update(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        learner, batch, seen = team.prepare(learner, traj)
        key, key_draws = jax.random.split(key) if credit else (key, key)

        def credited(learner: Learner, batch: _ppo.Batch) -> _ppo.Batch:
            return batch if credit is None else credit.replace(learner, traj, batch, key_draws)

        batch = credited(learner, batch)

        def epoch(learner: Learner, turn: tuple[Array, PRNGKeyArray]) -> tuple[Learner, dict[str, Array]]:
            fresh, (index, key) = batch, turn
            if c.recompute_advantages:  # before the first epoch nothing has changed but the unit of value
                again = lambda: credited(learner, team.batch(learner, traj, team.look(learner, traj)))  # noqa: E731
                fresh = jax.lax.cond(index > 0, again, lambda: batch)
            return jax.lax.scan(descend, learner, _batches.minibatches(key, fresh, c.minibatches))

        turns = jnp.arange(c.epochs), jax.random.split(key, c.epochs)
        learner, metrics = jax.lax.scan(epoch, learner, turns)
        ratio = partial(log_ratio, nets.actor, learner.policy.actor)
        metrics = jax.tree.map(jnp.mean, metrics) | _ppo.kl_of_update(c, ratio, batch)
        return team.finish(learner, traj, seen, metrics)

    return Algorithm(team.init, nets.initial_carry, nets.act, update)
