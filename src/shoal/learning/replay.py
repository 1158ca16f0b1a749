"""Replay: options of the buffer and of target networks, stored timesteps, and samples as trajectories.

A sample of the buffer is time-major, [L, B, ...]: a short :class:`Trajectory` whose recurrent state starts at zero, or
with ``stored_state`` where acting had it. L is 1 for feed-forward nets with one-step targets, and ``sequence_length``
otherwise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.bounds import LARGEST_INT, Bounds, Count, Fraction, Positive, Rate, Size, off
from shoal.equations.normalise import Running
from shoal.equations.returns import Scalar, td_lambda
from shoal.equations.targets import RewardNorm, init_rewards, team_reward, update_reward_stats
from shoal.errors import InputError
from shoal.learning.config import AgentConfig, check_discrete, check_options
from shoal.networks.body import Body
from shoal.networks.inputs import update_inputs
from shoal.networks.net import last_carry
from shoal.types import EnvSpec, Learner, Metrics, PyTree, Replay, Step, Trajectory


@dataclass(frozen=True)
class ReplayConfig(AgentConfig):
    """Adds a replay buffer and target networks."""

    buffer_size: Size = 200_000
    """Capacity of the replay buffer in environment steps; when it is full, the oldest are overwritten."""
    batch_size: Size = 32
    """Sequences per gradient step, or single transitions if ``sequence_length`` does not apply."""
    sequence_length: Count = 25
    """L: steps per sequence, for recurrent nets and for targets over several steps; otherwise transitions are drawn."""
    burn_in: Annotated[int, Bounds(least=0, most=1_000_000)] = 0
    """Steps at the start of a sequence that only update the state of a recurrent net; no gradient flows through them
    (Kapturowski et al. 2019). Needed if sequences start within episodes; they do not if rollouts and sequences are as
    long as episodes. Only complete sequences are drawn, so up to sequence_length − burn_in of an environment's newest
    steps wait for a later rollout."""
    sequence_start: Literal["anywhere", "episode"] = "anywhere"
    """Where the sequences of recurrent nets start: ``anywhere``, at multiples of sequence_length − burn_in of an
    environment's stored steps, or ``episode``, at the first step of an episode, whose recurrent state is known to be
    zero. With a sequence_length of the longest episode these are whole episodes, as in pymarl, followed by the start of
    the next one where pymarl has padding."""
    stored_state: bool = False
    """Start sequences from the recurrent state in which the policy acted, which is stored with each step, and not from
    zeros (Kapturowski et al. 2019, section 3)."""
    learning_starts: Annotated[int, Bounds(least=0, most=LARGEST_INT)] = 1000
    """Environment steps before the first gradient step."""
    gradient_steps: Count = 1
    """Gradient steps after each rollout, each on a new batch."""
    target_interval: Size = 200
    """C: gradient steps (with ``policy_delay``, those of the actors) between copies to target networks, if
    ``target_rate`` is None."""
    target_rate: Fraction | None = None
    """If given, target networks move by this fraction τ towards the trained ones at each gradient step; target_interval
    is then not used."""
    reward_norm: RewardNorm = "none"
    """Learn from rewards divided by their standard deviation over all rollouts so far (``scale``), or also with their
    mean subtracted (``standardise``, which changes the optimal policy if episodes can end early)."""


@dataclass(frozen=True)
class QConfig(ReplayConfig):
    """Adds Q-learning with ε-greedy exploration."""

    network: Body = field(default_factory=lambda: Body(activation="relu"))
    """Layers of the utilities' net."""
    learning_rate: Rate = 5e-4
    """Adam's step size."""
    double_q: bool = True
    """Double Q-learning (van Hasselt et al. 2016): θ selects the next action and θ^- evaluates it."""
    n_step: Count = 1
    """Number of rewards in a target before it bootstraps; at the end of a sequence, those that are left."""
    lam: Fraction = 0.0
    """λ of Peng's Q(λ) targets; 0 for ``n_step`` targets."""
    epsilon: Fraction = 1.0
    """ε of ε-greedy exploration at the start."""
    epsilon_final: Fraction = 0.05
    """Final ε, after the fraction ``epsilon_fraction`` of the updates."""
    epsilon_fraction: Fraction = 0.1
    """Fraction of the updates over which ε decreases linearly, counted from the first gradient step
    (``learning_starts``)."""
    explore_in_evaluation: bool = False
    """Whether policies also act with ε when they are evaluated and deployed, where that scores better than their greedy
    actions (docs/evaluation.md). EPyMARL's evaluation_epsilon; where agents can block each other, greedy policies may
    never leave a cycle."""
    huber: Positive | None = None
    """Width δ of a Huber loss, in units of the reward; None for ½e²."""

    @property
    def several_steps(self) -> bool:
        """Whether targets have the rewards of several steps."""
        return self.n_step > 1 or not off(self.lam)

    @property
    def sequences(self) -> bool:
        """Whether sequences are drawn from the buffer rather than transitions."""
        return bool(self.network.recurrent) or self.several_steps


def check_replay(config: ReplayConfig) -> None:
    """Refuse options that are out of range or have no effect.

    Raises:
        InputError: naming the option and its range.
    """
    check_options(config)
    if config.burn_in >= config.sequence_length:
        raise InputError(f"burn_in {config.burn_in} leaves nothing of sequences of {config.sequence_length} steps.")
    if config.burn_in > 0 and not config.network.recurrent:
        raise InputError("burn_in needs a recurrent network: leave it at 0.")
    if not config.network.recurrent and (config.stored_state or config.sequence_start != "anywhere"):
        raise InputError("stored_state and sequence_start need a recurrent network: leave them out.")
    if config.sequence_start == "episode" and (config.stored_state or config.burn_in > 0):
        raise InputError("sequence_start 'episode' starts from a known state: leave out burn_in and stored_state.")


def check_q(spec: EnvSpec, config: QConfig) -> None:
    """Refuse continuous actions and options that Q-learning cannot combine.

    Raises:
        InputError: actions are continuous, or an option is out of its range.
    """
    check_discrete(spec)
    check_replay(config)
    if config.n_step > 1 and not off(config.lam):
        raise InputError("lam and n_step are two kinds of target: set only one of them.")
    if config.n_step > (trained := config.sequence_length - config.burn_in):
        after = f" after a burn_in of {config.burn_in}" if config.burn_in else ""
        raise InputError(f"n_step {config.n_step} is longer than sequences of {trained} steps{after}.")


class TargetStatistics(NamedTuple):
    """State of an off-policy update beside parameters."""

    target: PyTree
    """Parameters θ^- of the target networks."""
    steps: Int[Array, ""]
    """Gradient steps so far."""
    reward: Running | None
    """Of the rewards; None where they are not normalised."""
    noted: Metrics = {}  # noqa: RUF012
    """The metrics of the last step of delayed actors; empty where actors take a step with the critics."""


def init_targets(
    params: PyTree, reward_norm: RewardNorm, shape: tuple[int, ...], noted: Sequence[str] = ()
) -> TargetStatistics:
    """Target networks that are copies of ``params``, statistics of rewards [*b, *shape], and metrics to be noted."""
    target, rewards = jax.tree.map(jnp.array, params), init_rewards(reward_norm, shape)
    return TargetStatistics(target, jnp.int32(0), rewards, {name: jnp.zeros(()) for name in noted})


def count_rollout(spec: EnvSpec, config: ReplayConfig, team: bool) -> Callable[[Learner, Trajectory], Learner]:
    """An ``Algorithm.observe``: adds a rollout to the statistics of the inputs and of the rewards.

    Agents that always receive the same reward (``EnvSpec.reward_groups``) have the same statistics, of the timesteps at
    which one of them is alive: a dead agent's value is that of the others, in their units. Independent Q-learners have
    one number for all agents.

    Args:
        spec: the environment.
        config: the algorithm's.
        team: whether one reward is learned from, that of :func:`team_reward`, or each agent's.
    """

    same = np.equal.outer(spec.reward_groups, spec.reward_groups)

    def observe(learner: Learner, traj: Trajectory) -> Learner:
        alive, stats = traj.step.alive, learner.statistics
        together = (alive[..., None, :] & same).any(-1)
        reward, weight = (team_reward(traj)[0], alive.any(-1)) if team else (traj.outcome.reward, together)
        inputs = update_inputs(spec, learner.policy.inputs, traj.step, config.freeze)
        stats = stats._replace(reward=update_reward_stats(stats.reward, reward, weight))
        return learner._replace(policy=learner.policy._replace(inputs=inputs), statistics=stats)

    return observe


class StoredTimesteps(NamedTuple):
    """What the buffer stores: steps, actions, and outcomes before any reset."""

    obs: Float[Array, "*b N O"]
    state: Float[Array, "*b S"]
    legal: Bool[Array, "*b N A"]
    alive: Bool[Array, "*b N"]
    first: Bool[Array, "*b"]
    action: Array
    reward: Float[Array, "*b N"]
    discount: Float[Array, "*b N"]
    last: Bool[Array, "*b"]
    next_obs: Float[Array, "*b N O"]
    next_state: Float[Array, "*b S"]
    next_legal: Bool[Array, "*b N A"]
    next_alive: Bool[Array, "*b N"]
    extras: dict[str, Array]


def make_replay(
    config: ReplayConfig, *, sequences: bool, state: bool, extras: tuple[str, ...] = (), shares: int = 1
) -> Replay:
    """The replay buffer of an algorithm.

    Args:
        config: a :class:`ReplayConfig`.
        sequences: whether sequences are drawn rather than transitions.
        state: whether the global state is read, and therefore stored.
        extras: those of ``act`` that training reads.
        shares: sequences per gradient step as a multiple of ``batch_size``.
    """
    length, burn_in = (config.sequence_length, config.burn_in) if sequences else (1, 0)
    return Replay(
        keep=stored_fields(state, extras),
        capacity=config.buffer_size,
        warm_up=config.learning_starts,
        draws=config.gradient_steps,
        batch=config.batch_size * shares,
        length=length,
        period=length - burn_in,
        starts=(lambda stored: stored.first) if config.sequence_start == "episode" else None,
        shares=shares,
    )


def stored_fields(state: bool, extras: tuple[str, ...]) -> Callable[[Trajectory], StoredTimesteps]:
    """The function that selects what is stored; unless ``state``, states are stored with width 0."""

    def of(x: Array) -> Array:
        return x if state else x[..., :0]

    def stored(traj: Trajectory) -> StoredTimesteps:
        step, outcome = traj.step, traj.outcome
        return StoredTimesteps(
            step.obs,
            of(step.state),
            step.legal,
            step.alive,
            step.first,
            traj.action,
            outcome.reward,
            outcome.discount,
            outcome.last,
            outcome.obs,
            of(outcome.state),
            outcome.legal,
            outcome.alive,
            {name: traj.extras[name] for name in extras},
        )

    return stored


STATE = "recurrent_state"
"""Extras of :func:`with_state` have this name with a number."""


def with_state(
    act: Callable[..., tuple[PyTree, Array, dict[str, Array]]], part: Callable[[Any], PyTree] = lambda carry: carry
) -> Callable[..., tuple[PyTree, Array, dict[str, Array]]]:
    """``act`` with ``part`` of the recurrent state before it among its extras."""

    def acted(
        learner: Learner, carry: PyTree, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[PyTree, Array, dict[str, Array]]:
        after, action, extras = act(learner, carry, step, key, greedy)
        return after, action, extras | {f"{STATE}{i}": x for i, x in enumerate(jax.tree.leaves(part(carry)))}

    return acted


def state_names(config: ReplayConfig, carry: PyTree) -> tuple[str, ...]:
    """Names of the extras of :func:`with_state` that are stored; none without ``stored_state``."""
    return tuple(f"{STATE}{i}" for i in range(len(jax.tree.leaves(carry)) if config.stored_state else 0))


def as_trajectory(m: StoredTimesteps, carry: PyTree) -> Trajectory:
    """A sample as a trajectory with the recurrent state before its first timestep: the stored one, or ``carry``."""
    extras = {name: x for name, x in m.extras.items() if not name.startswith(STATE)}
    if len(extras) < len(m.extras):
        leaves, tree = jax.tree.flatten(carry)
        carry = tree.unflatten([m.extras[f"{STATE}{i}"][0] for i in range(len(leaves))])
    nothing, no = jnp.zeros_like(m.reward), jnp.zeros_like(m.first)
    last = ends(m.last, m.first)
    step = Step(m.obs, m.state, m.legal, m.alive, nothing, nothing + 1, m.first, no)
    outcome = Step(m.next_obs, m.next_state, m.next_legal, m.next_alive, m.reward, m.discount, no, last)
    return Trajectory(step, m.action, extras, outcome, carry)


def ends(last: Bool[Array, "L B"], first: Bool[Array, "L B"]) -> Bool[Array, "L B"]:
    """The timesteps at which episodes end, with those after which one starts without an end of the one before it: where
    a run was resumed, or a worker replaced."""
    return last.at[:-1].set(last[:-1] | first[1:])


def warmed_up(config: ReplayConfig, shape: tuple[int, ...]) -> Bool[Array, "L B"]:
    """Timesteps of a sample that are trained on: those after the burn-in."""
    length = shape[0]
    start = config.burn_in if length > 1 else 0
    return jnp.broadcast_to((jnp.arange(length) >= start)[:, None], shape)


def after_burn_in(
    apply: Callable[..., tuple[PyTree, PyTree]], burn_in: int, params: PyTree, carry: PyTree, *rows: PyTree
) -> tuple[PyTree, PyTree]:
    """``apply(params, carry, *rows)`` over a sequence, without gradients through its first ``burn_in`` steps.

    Args:
        apply: (parameters, recurrent state before, rows) -> (state after each step, output), with leaves [L, B, ...].
        burn_in: steps that only update the state, fewer than L.
        params: parameters.
        carry: the recurrent state before the first step.
        rows: trees of arrays [L, B, ...].

    Source: Kapturowski et al. 2019, section 3: the burn-in produces a start state, and the network is only updated on
    the rest of the sequence.
    """
    if not burn_in:
        return apply(params, carry, *rows)
    first, rest = (jax.tree.map(lambda x, cut=cut: x[cut], rows) for cut in (slice(burn_in), slice(burn_in, None)))
    before = jax.lax.stop_gradient(apply(params, carry, *first))
    after = apply(params, last_carry(before[0]), *rest)
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), before, after)


# Targets over several steps of single transitions: windows of n timesteps, of which the first is trained on.


def check_windows(config: ReplayConfig) -> None:
    """Refuse options of recurrent nets, which learn from sequences.

    Raises:
        InputError: naming the option.
    """
    check_replay(config)
    if config.network.recurrent:
        raise InputError("This algorithm trains feed-forward nets on single transitions: leave out recurrent.")


def make_windows(config: ReplayConfig, n: int, *, state: bool) -> Replay:
    """The replay buffer from which windows of n timesteps are drawn, which start at any stored timestep.

    Observations, states, actions and legal actions, which are most of the data, are read of the first timestep and of
    the outcome of :func:`window_as_transition` alone: leaves [1, B, ...].
    """

    def of(*names: str) -> Callable[[StoredTimesteps], list[PyTree]]:
        return lambda stored: [getattr(stored, name) for name in names]

    def cut(read: Callable[..., list[PyTree]]) -> StoredTimesteps:
        every = of("alive", "first", "reward", "discount", "last", "next_alive")
        alive, first, reward, discount, last, next_alive = read(every, jnp.arange(n))
        obs, state, legal, action, extras = read(of("obs", "state", "legal", "action", "extras"), jnp.zeros(1, int))
        end = window_end(ends(last.T, first.T))[:, None]
        now = obs, state, legal, alive, first, action, reward, discount, last
        after = read(of("next_obs", "next_state", "next_legal"), end)
        return StoredTimesteps._make((*now, *after, next_alive, extras))

    return make_replay(config, sequences=False, state=state)._replace(length=n, cut=cut)


def window_end(last: Bool[Array, "n B"]) -> Int[Array, " B"]:
    """The timestep of a window at which its episode ends, or the last one."""
    return last.at[-1].set(True).argmax(0)


def window_as_transition(traj: Trajectory) -> Trajectory:
    """The first timestep of a window [n, B, ...], as a trajectory [1, B, ...] whose outcome is the one from which its
    n-step return bootstraps: that of :func:`window_end`. Leaves [1, B, ...] are already these."""
    end = window_end(traj.outcome.last)
    step, action, extras = jax.tree.map(lambda x: x[:1], (traj.step, traj.action, traj.extras))
    at_end = lambda x: x if x.shape[0] == 1 else x[end, jnp.arange(end.shape[0])][None]  # noqa: E731
    return Trajectory(step, action, extras, jax.tree.map(at_end, traj.outcome), traj.carry)


def window_return(
    reward: Float[Array, "n B"], discount: Float[Array, "n B"], value: Float[Array, "1 B"], last: Array, gamma: Scalar
) -> Float[Array, "1 B"]:
    """The n-step return of the first timestep, from the value of the outcome of :func:`window_as_transition`."""
    values = jnp.broadcast_to(value, reward.shape)
    return td_lambda(reward, discount, values, last, gamma=gamma, lam=1.0)[:1]
