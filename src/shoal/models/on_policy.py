"""What algorithms with a state-value critic share: initial learner, values, training batch, end of an update."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from shoal.equations import schedules
from shoal.equations.reduce import mean
from shoal.equations.surrogate import kl_penalty
from shoal.equations.targets import Stats, ValueNorm, ValueScale, make_value_scale, mask_dead_values
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.learning.config import PolicyConfig, PpoConfig, ValueConfig
from shoal.learning.optimiser import ByNet
from shoal.models.actor_critic import Actor, ActorCritic, Carry, Critic, Policy, ValueEstimate
from shoal.networks.inputs import init_inputs, normalised, update_inputs
from shoal.types import EnvSpec, Learner, Metrics, PyTree, Scale, Step, Trajectory


class Coefficients(NamedTuple):
    """Adaptive coefficients; that of the entropy is read only where there is a target entropy."""

    log_entropy: Float[Array, ""]
    kl: Float[Array, ""]


class Statistics(NamedTuple):
    """State of the update beside parameters."""

    value: Stats
    coefficients: Coefficients


class TrajectoryValues(NamedTuple):
    """Values of a trajectory; see :func:`denormalise_values`."""

    now: Float[Array, "T E N"]
    """V(step)."""
    next: Float[Array, "T E N"]
    """V(outcome)."""
    output: Float[Array, "T E N"]
    """The critic's output for V(step), in its own units."""
    after: Carry
    """Recurrent states after every timestep."""


class BothUnits(NamedTuple):
    """Outputs of the critic's net for a trajectory."""

    value: Float[Array, "T E N"]
    """In the rewards' units."""
    output: Float[Array, "T E N"]
    """In the critic's own units."""


class Batch(NamedTuple):
    """Training data; leaves are [items, L, N ...], carries [items, N, H]."""

    step: Step
    """With normalised inputs; without reward, discount and last."""
    action: Array
    extras: dict[str, Array]
    """The extras of ``act``, among them ``log_prob``."""
    advantage: Array
    target: Array
    """Value target, in the critic's units."""
    value: Array
    """The critic's output before this update, in its units."""
    weight: Array
    """``alive`` in 0..1; :func:`shoal.learning.sgd.shuffled_minibatches` makes each minibatch's add up to one."""
    carry: Carry
    """Recurrent states before each item."""


def scale_of_agents(kind: ValueNorm, group_of: tuple[int, ...], beta: float) -> ValueScale:
    """The value scale of agents' values [*b N]: those with the same number in ``group_of`` share statistics.

    See :func:`make_value_scale`.
    """
    groups, n = max(group_of) + 1, len(group_of)
    scale, index = make_value_scale(kind, beta, groups), jnp.array(group_of)
    if kind == "none" or groups == 1 or group_of == tuple(range(n)):
        return scale

    def each(stats: Stats) -> Stats:
        return jax.tree.map(lambda x: x[index], stats)

    def update(stats: Stats, params: PyTree, target: Array, alive: Array) -> tuple[Stats, PyTree]:
        member = alive[..., None] & (index[:, None] == jnp.arange(groups))
        return scale.update(stats, params, jnp.broadcast_to(target[..., None], member.shape), member)

    return ValueScale(
        scale.init,
        lambda stats, x: scale.normalise(each(stats), x),
        lambda stats, x: scale.denormalise(each(stats), x),
        update,
    )


def check_popart(critic: Critic) -> None:
    """Check that PopArt can rescale a critic's last layer: its parameters have a ``head`` with a kernel and a bias.

    Raises:
        InputError: they have none, or its outputs are not one for each scale of values.
    """
    match jax.eval_shape(critic.init, jax.random.key(0)):
        case {"head": {"kernel": kernel, "bias": bias, **others}} if not others:
            fits = (*kernel.shape[:1], *kernel.shape[2:]) == bias.shape and bias.size == max(critic.group_of) + 1
        case _:
            fits = False
    if not fits:
        raise InputError(
            "popart rescales the critic's last layer, a kernel [P, H, K] and a bias [P, K] of its parameters called "
            "head, which these nets lack: use value_norm running."
        )


def init_coefficients(c: PolicyConfig) -> Coefficients:
    """The initial coefficients; κ is 0 for an algorithm without a KL penalty."""
    sigma = c.entropy_coef if c.target_entropy is not None else 1.0
    return Coefficients(jnp.log(jnp.float32(sigma)), jnp.float32(c.kl_coef if isinstance(c, PpoConfig) else 0.0))


def init_learner(
    spec: EnvSpec,
    c: ValueConfig,
    values: ValueScale,
    params: ByNet,
    optimiser: ByNet,
) -> Learner:
    """The initial learner with these parameters and optimiser states."""
    policy = Policy(params.actor, init_inputs(spec, c.normalise_inputs))
    return Learner(policy, params.critic, optimiser, Statistics(values.init(), init_coefficients(c)), jnp.int32(0))


def make_inspect(
    actor: Actor, value: Callable[[Learner, Carry, Step, Array], Float[Array, "1 E N"]]
) -> Callable[..., dict[str, Array]]:
    """An ``Algorithm.inspect``: the actors' distributions, and the value if the learner has a critic.

    Args:
        actor: the policies.
        value: (learner, carry, normalised step [1 E ...], action [1 E N ...]) -> value in units of reward.
    """

    def inspect(
        learner: Learner, carry: Carry, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        del extras
        found = actor.inspect(learner.policy, carry.actor, step)
        if learner.critic and learner.statistics:
            seen, taken = jax.tree.map(lambda x: x[None], (normalised(learner.policy.inputs, step), action))
            found["value"] = value(learner, carry, seen, taken)[0]
        return found

    return inspect


def make_inspect_values(spec: EnvSpec, values: ValueScale, nets: ActorCritic) -> Callable[..., dict[str, Array]]:
    """:func:`make_inspect` with the state-value critic of ``nets``."""

    def value(learner: Learner, carry: Carry, step: Step, action: Array) -> Float[Array, "1 E N"]:
        output = values.denormalise(learner.statistics.value, nets.critic.values(learner.critic, carry.critic, step)[1])
        return output if nets.critic.trains_dead else mask_dead_values(output, step.alive, spec.reward_groups)

    return make_inspect(nets.actor, value)


def entropy_coef(c: PolicyConfig, learner: Learner, scale: Scale) -> Float[Array, ""]:
    """σ of this update: constant, linear to ``entropy_final``, or adapted to the target entropy."""
    if c.target_entropy is not None:
        return jnp.exp(learner.statistics.coefficients.log_entropy)
    final = c.entropy_coef if c.entropy_final is None else c.entropy_final
    return schedules.linear(c.entropy_coef, final, learner.updates * (1.0 / scale.num_updates))


def denormalise_values(
    spec: EnvSpec,
    values: ValueScale,
    learner: Learner,
    traj: Trajectory,
    estimate: ValueEstimate,
    trains_dead: bool = False,
) -> TrajectoryValues:
    """V of every timestep and of its outcome in the rewards' units.

    V of a dead agent is that of :func:`mask_dead_values`, or with ``trains_dead`` the critic's output.
    """
    stats, groups = learner.statistics.value, spec.reward_groups
    now, then = (values.denormalise(stats, v) for v in (estimate.value, estimate.next_value))
    if not trains_dead:
        now, then = mask_dead_values(now, traj.step.alive, groups), mask_dead_values(then, traj.outcome.alive, groups)
    return TrajectoryValues(now, then, estimate.value, estimate.after)


def value_trajectory(
    spec: EnvSpec, values: ValueScale, nets: ActorCritic, learner: Learner, traj: Trajectory
) -> TrajectoryValues:
    """V of every timestep and of its outcome under the learner's critic, in the rewards' units."""
    return denormalise_values(spec, values, learner, traj, nets.evaluate(learner, traj), nets.critic.trains_dead)


def in_both_units(values: ValueScale, learner: Learner, output: Float[Array, "T E N"]) -> BothUnits:
    """Outputs of the learner's critic, with what they are in rewards."""
    return BothUnits(values.denormalise(learner.statistics.value, output), output)


def before_update(c: ValueConfig, values: ValueScale, learner: Learner, value: Array, output: Array) -> Array:
    """What a clipped loss compares outputs with: those of before the update, in the units of the critic to be trained.

    The clip refers to the net's own output, whose unit PopArt has just changed.
    """
    return values.normalise(learner.statistics.value, value) if c.value_norm == "popart" else output


def valued(nets: ActorCritic, traj: Trajectory) -> Bool[Array, "T E N"]:
    """Where V is trained: at living agents, and where its output is a dead agent's value, at those too."""
    return jnp.ones_like(traj.step.alive) if nets.critic.trains_dead else traj.step.alive


def update_value_scale(values: ValueScale, learner: Learner, target: Array, alive: Array) -> Learner:
    """Add value targets to the value scale's statistics; PopArt rescales the critic's last layer here."""
    stats, critic = values.update(learner.statistics.value, learner.critic, target, alive)
    return learner._replace(critic=critic, statistics=learner.statistics._replace(value=stats))


def make_batch(
    c: ValueConfig,
    values: ValueScale,
    learner: Learner,
    traj: Trajectory,
    v: TrajectoryValues,
    advantage: Array,
    target: Array,
    length: int | None = None,
) -> Batch:
    """The trajectory as a batch: inputs normalised, targets in the critic's units, carries before chunks.

    Args:
        c: hyper-parameters.
        values: the critic's scale.
        learner: after :func:`update_value_scale`.
        traj: the rollout.
        v: its values.
        advantage: of each action [T, E, N].
        target: of V, in the rewards' units [T, E, N].
        length: timesteps of a chunk; None for ``c.chunk``, or single timesteps without it.
    """
    alive, stats = traj.step.alive, learner.statistics.value
    rows = (
        normalised(learner.policy.inputs, traj.step)._replace(reward=(), discount=(), last=()),  # type: ignore[arg-type]
        traj.action,
        traj.extras,
        advantage,
        values.normalise(stats, target),
        before_update(c, values, learner, v.now, v.output),
        alive.astype(jnp.float32),
    )
    chunk = length or c.chunk or 1
    carry = Carry(*(sgd.chunk_starts(*nets, chunk) for nets in zip(traj.carry, v.after, strict=True)))
    return Batch(*sgd.items(rows, chunk), carry)  # pyright: ignore[reportCallIssue]


def share_of_decisions(spec: EnvSpec, legal: Array, alive: Array, joint: bool = False) -> float | Float[Array, ""]:
    """The share of living agents' timesteps that are decisions: all, but where agents take turns those with a choice.

    An agent that waits has one legal action, so that its entropy and KL are 0. A mean over living agents, divided by
    this, is the mean over decisions, to which targets and limits refer.

    Args:
        spec: the environment's description.
        legal: legal actions [*b, A].
        alive: which agents are alive, or their weights [*b].
        joint: the mean is of one quantity of the whole team, which each of its agents has; it is a decision where one
            of them has a choice. The agents are the last axis of ``alive``.
    """
    if not spec.turns:
        return 1.0
    living = alive > 0
    chooses = living & (legal.sum(-1) > 1)
    if joint:
        chooses = jnp.broadcast_to(chooses.any(-1, keepdims=True), chooses.shape)
    share = mean(chooses, living)
    return jnp.maximum(share, jnp.finfo(share.dtype).tiny)


def kl_limit(
    spec: EnvSpec, kl_stop: float | None, legal: Array, alive: Array, joint: bool = False
) -> float | Array | None:
    """A limit of the KL of a decision as one of the mean KL over living agents; see :func:`share_of_decisions`."""
    return None if kl_stop is None else kl_stop * share_of_decisions(spec, legal, alive, joint)


def kl_of_update(c: PpoConfig, log_ratio: Callable[[Batch], Array], batch: Batch) -> Metrics:
    """``kl_update``, the mean KL(π_old ‖ π) after an update, where ``kl_target`` is given; else no metrics.

    Args:
        c: hyper-parameters.
        log_ratio: time-major part of a batch -> log π(a|o) − log π_old(a|o) of its actions under the updated policy.
        batch: the update's. Its actions are samples of π_old; the estimator is :func:`kl_penalty`.

    Source: Schulman et al. 2017, Proximal Policy Optimization Algorithms, section 4: d is computed after the epochs.
    """
    if c.kl_target is None:
        return {}
    mean = sgd.sums(lambda part: jnp.sum(part.weight * kl_penalty(log_ratio(part))), sgd.whole(batch), c.block)
    return {"kl_update": mean}


def end_update(
    spec: EnvSpec,
    c: PolicyConfig,
    scale: Scale,
    learner: Learner,
    traj: Trajectory,
    metrics: Metrics,
    joint_kl: bool = False,
) -> tuple[Learner, Metrics]:
    """Adapt σ and κ to their targets, add the inputs to their statistics, and count the update.

    Entropy and KL in ``metrics`` are means over living agents; in the result they are means over decisions
    (:func:`share_of_decisions`, with ``joint_kl`` of the joint policy for the KL).

    Raises:
        InputError: with ``target_entropy``, the entropy is not among the metrics.
    """
    coefficients = learner.statistics.coefficients
    metrics = metrics | {"entropy_coef": entropy_coef(c, learner, scale)}
    share = share_of_decisions(spec, traj.step.legal, traj.step.alive)
    of_kl = share_of_decisions(spec, traj.step.legal, traj.step.alive, joint_kl)
    shares = {"entropy": share, "kl": of_kl, "kl_update": of_kl}
    metrics |= {name: metrics[name] / shares[name] for name in shares if name in metrics}
    if c.target_entropy is not None:
        entropy = sgd.read_metric(metrics, "entropy", "target_entropy")
        log_entropy = schedules.towards_entropy(
            coefficients.log_entropy, entropy, c.target_entropy, c.target_entropy_rate, c.entropy_coef
        )
        coefficients = coefficients._replace(log_entropy=log_entropy)
    if isinstance(c, PpoConfig) and c.kl_target is not None:
        metrics["kl_coef"] = coefficients.kl
        kl = schedules.towards_kl(coefficients.kl, metrics["kl_update"], c.kl_target, c.kl_coef)
        coefficients = coefficients._replace(kl=kl)
    inputs = update_inputs(spec, learner.policy.inputs, traj.step, c.freeze)
    return learner._replace(
        policy=learner.policy._replace(inputs=inputs),
        statistics=learner.statistics._replace(coefficients=coefficients),
        updates=learner.updates + 1,
    ), metrics
