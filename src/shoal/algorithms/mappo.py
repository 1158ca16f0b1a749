"""MAPPO: multi-agent PPO with a centralised critic (Yu et al. 2022); with ``critic_input="local"`` it is IPPO.

    max_θ  E[ min(r A, clip(r, 1 ± ε) A) + σ S(π_θ) − κ KL(π_old ‖ π_θ) ]      (Yu et al. 2022, appendix A, L(θ): κ = 0)
    min_φ  E[ max(ℓ(V_φ − R), ℓ(clip(V_φ, V_old ± ε) − R)) ]                    (Yu et al. 2022, appendix A, L(φ))

with r = π_θ(a|o) / π_old(a|o), A from GAE (Schulman et al. 2016, eq. 16) and R = A + V. Means are over alive agents,
and a policy's gradient is that of the mean over its own agents. Values are learned on normalised targets.

Deviations from the authors' code: a time limit bootstraps; value statistics change once per update, before the losses
that read them, and count living agents' targets, while the code counts those of dead agents too; V(s) is one output per
agent where rewards differ; V of a dead agent is the mean of the living agents' where the reward is shared and 0 where
it is not, while the code bootstraps on its critic's output for the dead agent's input (``dead_value`` chooses). With
Gaussian actions the code sums the surrogate over action dimensions although each ratio is that of the whole action: its
surrogate is act_dim times this one. Its nets normalise features and layers, which ``layer_norm`` does here. Its hidden
layers have gain 5/3 for tanh (``gain``), and its first update scales V by 0.1, since its value statistics are empty.
Equations, options and results: docs/algorithms/mappo.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from shoal.bounds import Count, Decay, Draws, Fraction, Gain, Positive, Rate, Tiny, Weight
from shoal.equations.distributions import Distribution
from shoal.equations.reduce import explained_variance, standardise
from shoal.equations.returns import gae
from shoal.equations.surrogate import clip_fraction, clipped_surrogate, clipped_value_loss, kl_penalty
from shoal.equations.targets import ValueNorm, cut_off
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.learning.config import EpochsConfig, PpoConfig, ValueConfig, check_options
from shoal.learning.optimiser import ByNet, frozen_parameters, optimiser, step_of_both
from shoal.learning.results import checked_losses, checked_rows
from shoal.models import actor_critic, on_policy
from shoal.models.actor_critic import ActorCritic, make_nets
from shoal.models.on_policy import Batch
from shoal.networks.body import Body
from shoal.networks.inputs import CriticInput, DeadValue
from shoal.networks.sharing import policy_of
from shoal.types import Algorithm, EnvSpec, Learner, Metrics, PyTree, Scale, Trajectory


@dataclass(frozen=True)
class Config(PpoConfig):
    """MAPPO's hyper-parameters. "Paper" is Yu et al. 2022, Tables 7–15, for MPE; "code" its authors' repository."""

    network: Body = field(default_factory=Body)
    """Layers of actors and critics. Paper: 64 wide."""
    critic_input: CriticInput = "concat"
    """What V reads: ``local`` (IPPO), ``concat`` (CL), ``state`` (EP), ``agent`` (AS) or ``pruned`` (FP). Paper: AS/FP
    in SMAC, CL in MPE."""
    gamma: Fraction = 0.99
    """Discount γ per step. Paper: 0.99."""
    lam: Fraction = 0.95
    """GAE's λ. Paper: 0.95."""
    learning_rate: Rate = 7e-4
    """Adam's step size for actors. Paper: 7e-4."""
    adam_eps: Tiny = 1e-5
    """Adam's ε. Paper: 1e-5."""
    max_grad_norm: Positive | None = 10.0
    """Largest gradient norm of one policy or critic; None for no clip. Paper: 10."""
    entropy_coef: Weight = 0.01
    """Weight σ of the entropy bonus. Paper: 0.01."""
    clip: Positive = 0.2
    """ε of the clipped policy loss. Paper: 0.2 (0.05 on hard SMAC maps)."""
    epochs: Count = 10
    """Passes over each batch. Paper: 5 to 15."""
    minibatches: Count = 1
    """Minibatches per pass. Paper: 1."""
    chunk_length: Count = 16
    """L: recurrent nets are trained on chunks of this many steps; it must divide the rollout. Paper: 10."""
    output_gain: Gain = 0.01
    """Gain of the actor's orthogonal output layer. Paper: 0.01."""
    value_norm: ValueNorm = "running"
    """Scale of the value targets: ``running`` statistics, ``popart`` or ``none``. Paper: running."""
    value_norm_beta: Decay = 0.99999
    """Decay per update of the value statistics. Code: 0.99999."""
    value_clip: Positive | None = 0.2
    """ε of the clipped value loss, in normalised units; None for the plain loss. Paper: equal to clip."""
    value_coef: Weight = 1.0
    """Weight of the value loss (it matters only through the gradient-norm clip and Adam's ε). Paper: 1."""
    huber: Positive | None = 10.0
    """Width δ of the Huber value loss, in normalised units; None for ½e². Paper: 10."""

    recompute_advantages: bool = False
    """Recompute values and advantages with the current critic before every epoch but the first (Andrychowicz et al.
    2021); the value clip is then relative to the values at the start of each epoch."""
    baseline: Literal["value", "counterfactual", "optimal"] = "value"
    """``value``: the advantage is GAE's. Otherwise COMA's baseline or the optimal one is subtracted from what
    ``baseline_from`` says, with a Q that is trained in addition to V, on the same targets (Kuba et al. 2021, section
    4.3; ``q_baseline.py``)."""
    baseline_from: Literal["return", "q"] = "return"
    """What those baselines are subtracted from: ``return``, R, on which V and Q are trained (code, whose R is the
    discounted return, that of ``lam`` 1); or ``q``, Q̂ of the joint action, so that the advantage is X̂ (paper)."""
    draws: Draws = 16
    """K: own actions drawn per timestep for those baselines, if actions are continuous."""
    dead_value: DeadValue = "team"
    """V of a dead agent: ``team``, the mean of the living agents' V (0 if each agent has its own reward); ``masked``,
    the critic's output for an input of zeros and the agent's id, the death mask of Yu et al. 2022; or ``unmasked``, its
    output for the agent's unchanged input. The last two train V at dead agents too (``dead_values.py``)."""


def policy_loss(
    c: PpoConfig, pi: Distribution, batch: Any, entropy_coef: Array, kl_coef: Array
) -> tuple[Array, Metrics]:
    """−L(θ) over one minibatch (of the team, or of one agent), and its metrics (Yu et al. 2022, appendix A)."""
    return clipped_loss(c, pi.log_prob(batch.action) - batch.extras["log_prob"], pi, batch, entropy_coef, kl_coef)


def clipped_loss(
    c: PpoConfig, log_ratio: Array, pi: Distribution, batch: Any, entropy_coef: Array, kl_coef: Array
) -> tuple[Array, Metrics]:
    """:func:`policy_loss` for a ratio r given by its logarithm, shaped as ``batch.weight``."""
    surrogate = clipped_surrogate(log_ratio, batch.advantage, c.clip, c.dual_clip)
    entropy, kl = pi.entropy(), kl_penalty(log_ratio)
    loss = -jnp.sum(batch.weight * (surrogate + entropy_coef * entropy - kl_coef * kl))
    clipped = clip_fraction(log_ratio, c.clip)
    metrics = {"policy_loss": -surrogate, "entropy": entropy, "kl": kl, "clip_fraction": clipped}
    return loss, {name: jnp.sum(batch.weight * x) for name, x in metrics.items()}


def value_loss(c: EpochsConfig, nets: ActorCritic, critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:
    """L(φ) over one minibatch, and its metrics (Yu et al. 2022, appendix A)."""
    _, value = nets.critic.values(critic, batch.carry.critic, batch.step)
    loss = jnp.sum(batch.weight * clipped_value_loss(value, batch.value, batch.target, c.value_clip, c.huber))
    return loss, {"value_loss": loss}


def gae_advantage(c: ValueConfig, traj: Trajectory, v: on_policy.TrajectoryValues) -> tuple[Array, Array]:
    """A from GAE (Schulman et al. 2016, eq. 16) and R = A + V, in the rewards' units [T, E, N]."""
    out = traj.outcome
    return gae(out.reward, out.discount, v.now, v.next, cut_off(traj), gamma=c.gamma, lam=c.lam)


_OF_BASELINES = 2**31 - 1
"""Number of the child key that a baseline gets; the epochs have those from 0 on (``jax.random.split``)."""


def make(
    spec: EnvSpec,
    config: Config,
    scale: Scale,
    actor_loss: Callable[..., tuple[Array, Metrics]] = policy_loss,
    *,
    critic_loss: Callable[..., tuple[Array, Metrics]] = value_loss,
    advantage: Callable[..., tuple[Array, Array]] = gae_advantage,
    credit: Callable[[Learner, Trajectory, PRNGKeyArray], Array] | None = None,
    baseline: Callable[[Learner, Trajectory, PRNGKeyArray], Array] | None = None,
    nets: ActorCritic | None = None,
) -> Algorithm:
    """MAPPO for an environment. Each of its parts can be replaced (docs/replace-one-part.md).

    Args:
        spec: the environment's description.
        config: hyper-parameters.
        scale: sizes of the run.
        actor_loss: with the arguments and results of :func:`policy_loss`.
        critic_loss: with the arguments and results of :func:`value_loss`.
        advantage: with the arguments and results of :func:`gae_advantage`.
        credit: (learner with the new value scale, trajectory, key) -> what the actors' loss has in place of A
            [T, E, N], in the rewards' units; None for A.
        baseline: (learner, trajectory, key) -> b [T, E, N], in the critic's units: the actors' loss has R − b in place
            of A, and ``batch.extras["baseline"]`` is b before this update, as ``batch.value`` is V; None for A.
        nets: decentralised actors and a state-value critic; None for those that ``config`` describes.

    Raises:
        InputError: minibatches or chunks do not divide the rollout, the critic input does not exist, PopArt cannot
            rescale the critic of ``nets``, or an option is out of its range or needs :func:`shoal.algorithms.get`.
    """
    c = config
    check_options(c)
    actor_loss, critic_loss = checked_losses(actor_loss=actor_loss, critic_loss=critic_loss)
    advantage, credit, baseline = checked_rows(advantage=advantage, credit=credit, baseline=baseline)
    if nets is None and (c.baseline, c.dead_value) != ("value", "team"):
        raise InputError("baseline and dead_value need shoal.algorithms.get('mappo').make in place of mappo.make.")
    if nets is not None and c.value_norm == "popart":
        on_policy.check_popart(nets.critic)
    nets = nets or make_nets(spec, c, policy_of(spec, c.sharing))
    actor = nets.actor
    sgd.check_items(scale, c.minibatches, c.chunk)
    steps = scale.num_updates * c.epochs * c.minibatches
    frozen, clip, eps = frozen_parameters(c, actor.init, nets.critic.init), c.max_grad_norm, c.adam_eps
    actor_adam = optimiser(c.learning_rate, c.lr_final, [steps] * actor.num_policies, clip, eps, frozen.actor)
    critic_adam = optimiser(c.critic_rate, c.lr_final, [steps] * nets.critic.num_nets, clip, eps, frozen.critic)
    values = on_policy.scale_of_agents(c.value_norm, nets.critic.group_of, c.value_norm_beta)

    def init(key: PRNGKeyArray) -> Learner:
        params = nets.init(key)
        state = ByNet(actor_adam.init(params.actor), critic_adam.init(params.critic))
        return on_policy.init_learner(spec, c, values, params, state)

    def update(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        key, key_own = (key, jax.random.fold_in(key, _OF_BASELINES)) if credit is None else jax.random.split(key)

        # VALUES AND ADVANTAGES
        v = on_policy.value_trajectory(spec, values, nets, learner, traj)
        a, target = advantage(c, traj, v)
        b = None if baseline is None else on_policy.in_both_units(values, learner, baseline(learner, traj, key_own))
        learner = on_policy.update_value_scale(values, learner, target, on_policy.valued(nets, traj))

        def make_batch(
            learner: Learner, v: on_policy.TrajectoryValues, a: Array, target: Array, b: on_policy.BothUnits | None
        ) -> Batch:
            a = a if credit is None else credit(learner, traj, key_own)
            rows = traj
            if b is not None:
                a = target - b.value
                noted = on_policy.before_update(c, values, learner, b.value, b.output)
                rows = traj._replace(extras=traj.extras | {"baseline": noted})
            a = standardise(c.normalise_advantage, a, traj.step.alive)
            return on_policy.make_batch(c, values, learner, rows, v, a, target)

        batch = make_batch(learner, v, a, target, b)

        # LOSS
        sigma, kappa = on_policy.entropy_coef(c, learner, scale), learner.statistics.coefficients.kl

        def loss(params: ByNet, part: Batch) -> tuple[Array, Metrics]:
            _, pi = actor.distribution(params.actor, part.carry.actor, part.step)
            loss_pi, metrics = actor_loss(c, pi, part, sigma, kappa)  # L(θ)
            loss_v, of_critic = critic_loss(c, nets, params.critic, part)  # L(φ)
            return loss_pi + c.value_coef * loss_v, metrics | of_critic

        # EPOCHS × MINIBATCHES
        def recomputed(params: ByNet) -> Batch:
            now = learner._replace(policy=learner.policy._replace(actor=params.actor), critic=params.critic)
            v = on_policy.value_trajectory(spec, values, nets, now, traj)
            b = None if baseline is None else on_policy.in_both_units(values, now, baseline(now, traj, key_own))
            return make_batch(now, v, *advantage(c, traj, v), b)

        kl_stop = on_policy.kl_limit(spec, c.kl_stop, traj.step.legal, traj.step.alive)
        params, state, metrics = sgd.sgd(
            loss, step_of_both(actor_adam, critic_adam), ByNet(learner.policy.actor, learner.critic), learner.optimiser,
            batch, key, epochs=c.epochs, minibatches=c.minibatches, block=c.block, net_of=actor.policy_of,
            refresh=recomputed if c.recompute_advantages else None, kl_stop=kl_stop,
        )  # fmt: skip
        learner = learner._replace(
            policy=learner.policy._replace(actor=params.actor), critic=params.critic, optimiser=state
        )

        # END OF THE UPDATE
        def log_ratio(part: Batch) -> Array:
            _, pi = actor.distribution(params.actor, part.carry.actor, part.step)
            return pi.log_prob(part.action) - part.extras["log_prob"]

        metrics |= on_policy.kl_of_update(c, log_ratio, batch)
        metrics["explained_variance"] = explained_variance(a, target, traj.step.alive)
        return on_policy.end_update(spec, c, scale, learner, traj, metrics)

    inspect = on_policy.make_inspect_values(spec, values, nets)
    return Algorithm(init, nets.initial_carry, nets.act, update, inspect=inspect, learns_from="own", stochastic=True)


def make_policy(spec: EnvSpec, config: ValueConfig) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    return actor_critic.make_policy(spec, config, learns_from="own")
