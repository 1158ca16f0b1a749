"""The types that packages share, with a shape on each field.

The order of axes is always **T** time, **E** environments, **N** agents, then features (**O** observation, **S** state,
**A** actions, **H** hidden). ``*b`` is ``()``, ``(E,)`` or ``(T, E)``. **P** policies is a leading axis of
*parameters*. Seeds and devices never appear in these shapes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

from shoal.game import HostEnvironment
from shoal.spec import Box, Discrete, EnvSpec, Outline, Scene

__all__ = [
    "Algorithm",
    "AnyEnvironment",
    "Batched",
    "Box",
    "Decision",
    "Discrete",
    "EnvSpec",
    "Environment",
    "EpisodeStats",
    "Experience",
    "Learner",
    "Metrics",
    "Outline",
    "Preparation",
    "PyTree",
    "Replay",
    "Scale",
    "Scene",
    "Seconds",
    "Step",
    "Trajectory",
]

PyTree = Any
Metrics = dict[str, Float[Array, ""]]
Seconds = float


class Step(NamedTuple):
    """Observations, reward and flags of all agents at one timestep."""

    obs: Float[Array, "*b N O"] | UInt8[Array, "*b N O"]
    """Observations, zero-padded to the widest agent; bytes where ``EnvSpec.packed``."""
    state: Float[Array, "*b S"]
    """The environment's global state s."""
    legal: Bool[Array, "*b N A"]
    """Legal actions (discrete) or an agent's real action dimensions (box)."""
    alive: Bool[Array, "*b N"]
    """Agents that are alive; dead agents do not affect training."""
    reward: Float[Array, "*b N"]
    """Received on arriving at this timestep; zero at the first timestep of an episode."""
    discount: Float[Array, "*b N"]
    """0 on true termination, 1 otherwise, also at a time limit."""
    first: Bool[Array, "*b"]
    """True at the first timestep of an episode: recurrent state is reset."""
    last: Bool[Array, "*b"]
    """True if the episode ends at this timestep, by termination or by time limit."""
    metrics: Float[Array, "*b M"] | tuple[()] = ()
    """Values of ``EnvSpec.metrics`` if the episode ends here; NaN if unknown. They are read from the outcome that ends
    an episode. Empty if the environment has none, and in everything that algorithms receive."""


class Trajectory(NamedTuple):
    """T steps of E environments. ``outcome[t]`` is the result of ``action[t]``, BEFORE any auto-reset."""

    step: Step
    action: Int[Array, "T E N"] | Float[Array, "T E N A"]
    extras: dict[str, Array]
    """Further outputs of the algorithm's ``act``, for example the log-probability of the action."""
    outcome: Step
    carry: PyTree
    """The policy's recurrent state before ``step[0]``; leaves are [E, N, H], or an empty tuple."""


class Replay(NamedTuple):
    """The replay buffer of an off-policy algorithm and how it is sampled; sizes are per seed."""

    keep: Callable[[Trajectory], PyTree]
    """Trajectory -> the data to store, leaves [T, E, ...]."""
    capacity: int
    """Number of timesteps stored, over all environments; then the oldest are overwritten."""
    warm_up: int
    """Number of timesteps collected before the first update."""
    draws: int
    """G: batches sampled after every rollout."""
    batch: int
    """B: sequences per batch, over all devices."""
    length: int
    """L: timesteps per sequence. A sequence may extend over the end of an episode."""
    period: int
    """Sequences start at multiples of this many stored timesteps."""
    starts: Callable[[PyTree], Bool[Array, "E M"]] | None = None
    """Stored data [E, M, ...] -> timesteps at which sequences may start instead, all equally likely; where no complete
    sequence starts at one of them, at any."""
    cut: Callable[[Callable[[Callable[[PyTree], PyTree], Array], PyTree]], PyTree] | None = None
    """How a sequence is read, if not whole: ``read`` -> a sample, leaves [count, K, ...] with a K of their own, where
    ``read(fields, at)`` is the part ``fields(stored)`` of the stored data at the timesteps ``at``, int[K] or
    int[count, K], of all ``count`` sequences, leaves [count, K, ...]."""
    shares: int = 1
    """K: B is K times ``batch_size``, where K policies of an ensemble divide a batch among them."""


class Experience(NamedTuple):
    """The input of an off-policy update."""

    newest: Trajectory
    """The rollout that was just collected and stored."""
    samples: PyTree
    """Samples from the replay buffers, in a tree like ``Algorithm.replay``; leaves [G, L, B, ...]."""


class EpisodeStats(NamedTuple):
    """Sums over the episodes that ended in one rollout; divide by ``episodes`` for the mean."""

    episodes: Float[Array, ""]
    returns: Float[Array, " N"]
    """Sum over ended episodes of each agent's undiscounted return."""
    lengths: Float[Array, ""]
    metrics: Float[Array, " M"] | tuple[()] = ()
    """Sum over ended episodes of the finite values of ``EnvSpec.metrics``; an empty tuple if there are none."""
    known: Float[Array, " M"] | tuple[()] = ()
    """Number of ended episodes in which each metric is finite."""


class Learner(NamedTuple):
    """The state of an algorithm. Acting needs only ``policy``, which is the only part that is deployed."""

    policy: PyTree
    critic: PyTree
    optimiser: PyTree
    statistics: PyTree
    """Running quantities that are not trained by gradient: normalisers, adaptive coefficients."""
    updates: Int[Array, ""]
    """Number of calls of ``update`` so far."""


class Scale(NamedTuple):
    """The sizes of a run that an algorithm depends on."""

    num_envs: int
    """E, on one device."""
    rollout_length: int
    """T."""
    num_updates: int
    """Number of calls of ``update`` in the whole run, for schedules; without rollouts that only fill a buffer."""


class Algorithm(NamedTuple):
    """An algorithm is three pure functions."""

    init: Callable[[PRNGKeyArray], Learner]
    initial_carry: Callable[[int], PyTree]
    """E -> the policy's recurrent state at the start of an episode."""
    act: Callable[[Learner, PyTree, Step, PRNGKeyArray, bool], tuple[PyTree, Array, dict[str, Array]]]
    """(learner, carry, step [E ...], key, greedy) -> (carry, action [E N ...], extras). In deployment the learner has
    only its policy."""
    update: Callable[[Learner, Any, PRNGKeyArray], tuple[Learner, Metrics]]
    """One update from a :class:`Trajectory`, or from an :class:`Experience` if there is ``replay``. Metrics are a flat
    dict of scalars."""
    acts_on: Literal["own", "team", "state"] = "own"
    """The input of an agent's action: its own observation, all agents' observations, or also the global state."""
    replay: PyTree = ()
    """A :class:`Replay`, or a tuple of them; an empty tuple for an on-policy algorithm."""
    unequal_rewards: str = ""
    """If agents may receive different rewards but do not learn from their own: the reward learned from, as text."""
    inspect: Callable[[Learner, PyTree, Step, Array, dict[str, Array]], dict[str, Array]] | None = None
    """(learner, carry before ``act``, step [E ...], the action and the extras that ``act`` returned) -> what the policy
    considered, by name, as far as the algorithm has it:

    * ``probabilities`` [E N A]: of discrete actions; 0 for illegal ones.
    * ``mean`` and ``std`` [E N A]: of continuous actions; NaN in padded dimensions.
    * ``normal_mean`` and ``normal_std`` [E N A]: of squashed actions, those of the normal before the tanh.
    * ``utilities`` [E N A]: of Q-learning; NaN for illegal actions.
    * ``value`` [E N]: the critic's, in units of reward, if the learner has its critic and statistics; a critic of
      actions is asked for the actions taken.
    * ``attention`` [E N N]: weight of each agent (last axis) for each agent, mean over layers and heads.

    None: the algorithm does not tell."""
    learns_from: Literal["own", "others", "team"] = "others"
    """What the losses of an agent read, beside the observations and the state that its critic reads:

    * ``own``: only its own rewards and actions. One learner can play several sides against itself.
    * ``others``: also actions, policies or representations of other agents.
    * ``team``: one reward, advantage or joint action for all agents. With ``unequal_rewards`` it always is this.

    Where sides compete, algorithms are made for each side separately: in self-play against past selves all but those of
    ``own``, otherwise those of ``team`` (:func:`shoal.runs.build.make_algorithm`)."""
    stochastic: bool = False
    """Whether the policy is a distribution over actions, so that not only its mode but also its draws are a way to act.
    Exploration that is added to a deterministic policy (ε-greedy, noise) is not, unless an option such as
    ``explore_in_evaluation`` makes it a way to act. Evaluations play both (docs/evaluation.md)."""
    observe: Callable[[Learner, Trajectory], Learner] | None = None
    """(learner, rollout) -> the learner with the rollout added to its running statistics, as ``update`` adds
    ``Experience.newest``; called in place of ``update`` for rollouts that only fill the buffer, so that the statistics
    hold what it holds. None: nothing of these rollouts is counted."""
    guided: bool = False
    """Whether a learner with its critic draws actions from another policy than the one that is deployed, as a guide of
    training does. Replays then leave out the critic."""
    alone: "Callable[[int], Algorithm] | None" = None
    """Where several algorithms act in one team, such as those of sides: agent -> an algorithm for acting only, with the
    same learner, which computes the actions of that agent's side and zeros for all others, and acts on what that side
    acts on. None: one algorithm acts for all agents. Call it through :meth:`acting_alone`."""

    def acting_alone(self, agent: int) -> "Algorithm":
        """What acts for one agent, whatever acts for the others: see ``alone``."""
        return self if self.alone is None else self.alone(agent)


class Batched(NamedTuple):
    """The functions of a device environment for E environments at once.

    For environments that run faster so than under ``vmap``, for example because they compute with E on the last axis.
    All leaves of states and steps have E as their first axis.
    """

    reset: Callable[[PRNGKeyArray, int], tuple[PyTree, Step]]
    """(key, E) -> (states, first steps)."""
    step: Callable[[PRNGKeyArray, PyTree, Array], tuple[PyTree, Step]]
    """(key, states, actions [E, N, …]) -> (states, outcomes); never resets."""
    restart: Callable[[PRNGKeyArray, Bool[Array, " E"], PyTree], tuple[PyTree, Step]]
    """(key, which, states) -> (the states, with a new episode where ``which`` is True; first steps, which count only
    there)."""


@dataclass(frozen=True)
class Environment:
    """A device environment: pure functions of one environment; rollouts add the E axis.

    ``step`` never resets; the rollout does, which keeps the observation before the reset.
    """

    spec: EnvSpec
    reset: Callable[[PRNGKeyArray], tuple[PyTree, Step]]
    step: Callable[[PRNGKeyArray, PyTree, Array], tuple[PyTree, Step]]
    """(key, state, action) -> (state, outcome); action is ``Int[N]`` or ``Float[N A]``."""
    render: Callable[[PyTree], "Scene | np.ndarray"] | None = None
    """state -> a :class:`Scene` or an RGB picture ``uint8[height, width, 3]``; with None, a timeline of actions and
    rewards is drawn instead. If it has a method ``fitted``, videos use ``render.fitted(states)``, which draws the same
    states so that they fill the picture."""
    batched: Batched | None = None
    """The same environment E at a time; None: rollouts use ``vmap``. :func:`shoal.environments.batching.single` derives
    ``reset`` and ``step`` from it, so that the two cannot differ."""
    outline: Callable[[PyTree], Outline] | None = None
    """state -> an :class:`Outline`, which replays in a page prefer to ``render``."""


AnyEnvironment = Environment | HostEnvironment
"""A device environment, or a host environment that worker processes step."""


# Experience that some algorithms need before the shapes of their parameters are known. A module may have
# ``prepare(spec, config, scale) -> Preparation | None`` beside ``make``. Training collects the experience, calls
# ``decide``, and makes the algorithm from the resulting configuration. None: nothing is to be decided. Studies do not
# compare the fields of ``Config`` that a decision replaces: those in ``DECIDED``, or without it all.


class Decision(NamedTuple):
    """What :attr:`Preparation.decide` returns."""

    config: Any
    """The algorithm's complete ``Config``; ``run.json`` stores it, so that a resumed run does not decide again."""
    message: str
    """One sentence for the user."""
    report: dict[str, Any]
    """The data behind it, in JSON's types; stored in the run's folder as ``preparation.json``."""


class Preparation(NamedTuple):
    """The experience to collect, and the decision from it."""

    algorithm: Algorithm
    """Acts while it is collected, with its initial parameters."""
    steps: int
    """Environment steps to collect, over all environments."""
    decide: Callable[[Trajectory, PRNGKeyArray], Decision]
    """Trajectory of T steps in E environments -> the decision. Compiles its own functions."""
