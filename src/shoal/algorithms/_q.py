"""What IQL, VDN, QMIX, QPLEX and QTRAN share, that is all but the mixer: utilities, ε-greedy acting, targets, the step.

    y_t = r_t + γ d_t Q_tot(outcome_t, argmax_u Q(outcome_t, u; θ); θ^-)                   double Q, one step
    min_θ  E[ (y_t − Q_tot(s_t, u_t; θ))² ]

The discount d_t is that of the outcome: what the action at t led to. Several steps: see :func:`returns`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.algorithms import _batches
from shoal.algorithms._actor_critic import Policy, init_inputs, normalised, update_inputs
from shoal.algorithms._optimiser import optimiser
from shoal.algorithms._replay import ReplayConfig, as_trajectory, check_replay, make_replay, warmed_up
from shoal.algorithms._targets import (
    count,
    follow,
    init_rewards,
    of_a_living_team,
    of_the_team,
    on_unequal_rewards,
    scaled,
    team_reward,
)
from shoal.algorithms._utilities import best, epsilon_greedy, following, make_utilities, utility
from shoal.bounds import Count, Fraction, Positive, Rate
from shoal.equations import normalise
from shoal.equations.returns import n_step_returns, td_lambda
from shoal.equations.surrogate import huber
from shoal.errors import InputError, unknown
from shoal.networks.body import Body
from shoal.networks.inputs import Input, critic_input
from shoal.networks.sharing import policy_of
from shoal.types import Algorithm, Box, EnvSpec, Experience, Learner, Metrics, PyTree, Scale, Step, Trajectory


@dataclass(frozen=True)
class QConfig(ReplayConfig):
    """Hyper-parameters of the family. "Paper" is Rashid et al. 2018 for StarCraft, "code" its repository (pymarl)."""

    network: Body = field(default_factory=lambda: Body(activation="relu"))
    """Layers of the utilities' net. Paper: 64 wide, then a GRU of 64."""
    learning_rate: Rate = 5e-4
    """Adam's step size. Paper: 5e-4 (RMSprop)."""
    double_q: bool = True
    """Let θ choose the next action and θ^- judge it (van Hasselt et al. 2016). Code: yes."""
    n_step: Count = 1
    """Rewards in a target before it bootstraps."""
    lam: Fraction = 0.0
    """λ of Peng's Q(λ) targets; 0 for ``n_step``. Code: 0; its successor pymarl2: 0.6."""
    epsilon: Fraction = 1.0
    """ε of ε-greedy exploration at the start. Paper: 1."""
    epsilon_final: Fraction = 0.05
    """ε in the end, from the fraction ``epsilon_fraction`` of the updates on. Paper: 0.05."""
    epsilon_fraction: Fraction = 0.1
    """Fraction of the updates in which ε falls linearly, from the first gradient step on; there is none before
    ``learning_starts``. Code: the first 50,000 steps."""
    huber: Positive | None = None
    """Width δ of a Huber loss, in rewards' units; None for ½e². Paper: None."""

    @property
    def sequences(self) -> bool:
        """Whether sequences are drawn from the buffer rather than transitions."""
        return bool(self.network.recurrent) or self.lam > 0 or self.n_step > 1


class Mixer(NamedTuple):
    """How utilities become the value of a joint action; all that tells the family's members apart."""

    init: Callable[[PRNGKeyArray], PyTree]
    """key -> parameters, leaves with a leading axis of length 1."""
    apply: Callable[[PyTree, Array, Array, Array, Step], Array]
    """(parameters, utilities of the actions [*b N], the agents' best utilities [*b N], actions Int[*b N], step) ->
    Q_tot [*b]; or Q [*b N] where each agent learns by itself. Utilities of the dead are 0."""
    team: bool = True
    """Whether there is one value for the team."""
    reads_state: bool = False
    """Whether it needs the global state."""
    constraints: Callable[[PyTree, Array, Array, Step], tuple[Array, dict[str, Array]]] | None = None
    """(parameters, utilities of every action [*b N A], actions, step) -> (what is added to the loss [*b], rows of
    metrics [*b]); for a value that the utilities do not make but are fitted to (QTRAN)."""


class Statistics(NamedTuple):
    """What the update keeps beside parameters."""

    target: tuple[PyTree, PyTree]
    """θ^- of utilities and mixer."""
    steps: Int[Array, ""]
    """Gradient steps so far."""
    reward: normalise.Running | tuple[()]
    """Of the rewards, where they are normalised."""


class Batch(NamedTuple):
    """Rows of one gradient step, [B, L, ...]."""

    step: Step
    action: Int[Array, "B L N"]
    target: Float[Array, "B L ..."]
    weight: Float[Array, "B L ..."]


def returns(c: QConfig, reward: Array, discount: Array, next_value: Array, last: Array) -> Array:
    """Targets over one step, n steps, or Peng's λ-returns, never past the end of an episode or of the sample."""
    if c.lam > 0:
        return td_lambda(reward, discount, next_value, last, gamma=c.gamma, lam=c.lam)
    return n_step_returns(reward, discount, next_value, last, gamma=c.gamma, n=c.n_step)


def mixer_input(spec: EnvSpec, kind: str) -> Input:
    """What a mixer reads: the global ``state``, or ``concat``, all agents' observations.

    Raises:
        InputError: there is no such input, or no global state.
    """
    if kind not in ("state", "concat"):
        raise unknown("mixer_input", kind, ("state", "concat"))
    if kind == "state" and spec.state_dim == 0:
        raise InputError(f"{spec.name} has no global state, which the mixer would read; use mixer_input 'concat'.")
    return critic_input(spec, kind, agent_id=False)


def check_q(spec: EnvSpec, config: QConfig) -> None:
    """Refuse what the family cannot do.

    Raises:
        InputError: actions are continuous, or an option is out of its range.
    """
    if isinstance(spec.action, Box):
        raise InputError(f"Q-learning compares all of an agent's actions; {spec.name} has continuous ones: use maddpg.")
    check_replay(config)
    if config.lam > 0 and config.n_step > 1:
        raise InputError("lam and n_step are two kinds of target: give one of them.")


def make_with(spec: EnvSpec, config: Any, scale: Scale, mixer: Mixer) -> Algorithm:
    """Q-learning for a team whose utilities are mixed by ``mixer``.

    Raises:
        InputError: actions are continuous, or an option is out of its range.
    """
    check_q(spec, config)
    c: QConfig = config
    index = policy_of(spec, c.sharing)
    net, q = make_utilities(spec, c.network, index, c.agent_id)
    steps = scale.num_updates * c.gradient_steps
    adam = optimiser(c.learning_rate, c.lr_final, [steps] * (max(index) + 1), c.max_grad_norm, c.adam_eps)
    mixer_adam = optimiser(c.learning_rate, c.lr_final, [steps], c.max_grad_norm, c.adam_eps)

    def epsilon(updates: Array) -> Float[Array, ""]:
        done = jnp.minimum(updates / max(c.epsilon_fraction * scale.num_updates, 1.0), 1.0)
        return jnp.asarray(c.epsilon + (c.epsilon_final - c.epsilon) * done, jnp.float32)

    def init(key: PRNGKeyArray) -> Learner:
        key_net, key_mixer = jax.random.split(key)
        theta, phi = net.init(key_net), mixer.init(key_mixer)
        statistics = Statistics(jax.tree.map(jnp.array, (theta, phi)), jnp.int32(0), init_rewards(c.reward_norm, ()))
        policy = Policy(theta, init_inputs(spec, c.normalise_inputs), jnp.float32(c.epsilon))
        optimisers = adam.init(theta), mixer_adam.init(phi) if phi else ()
        return Learner(policy, phi, optimisers, statistics, jnp.int32(0))

    def mixed(phi: PyTree, values: Array, action: Array, step: Step) -> Array:
        return mixer.apply(phi, utility(values, action, step.alive), best(values, step)[1], action, step)

    def targets(learner: Learner, traj: Trajectory) -> Array:
        theta, phi = learner.statistics.target
        frozen = following(q, theta, traj)
        chooser = following(q, learner.policy.actor, traj) if c.double_q else frozen
        value = mixed(phi, frozen, best(chooser, traj.outcome)[0], traj.outcome)
        outcome = traj.outcome
        if mixer.team:
            value = of_a_living_team(value, outcome.alive)
        else:
            value = of_the_team(value, outcome.alive, spec.shared_reward)
        reward, discount = team_reward(traj) if mixer.team else (outcome.reward, outcome.discount)
        return returns(c, scaled(c.reward_norm, learner.statistics.reward, reward), discount, value, outcome.last)

    def loss(params: tuple[PyTree, PyTree], part: Batch) -> tuple[Array, Metrics]:
        part = _batches.time_major(part)
        values = q(params[0], net.initial_carry(part.action.shape[1:2]), part.step)[1]
        value = mixed(params[1], values, part.action, part.step)
        error = part.target - value
        cost = jnp.square(error) / 2 if c.huber is None else huber(error, c.huber)
        metrics = {"td_loss": cost, "q": value, "td_error": jnp.abs(error)}
        if mixer.constraints is not None:
            added, rows = mixer.constraints(params[1], values, part.action, part.step)
            cost, metrics = cost + added, metrics | rows
        return (cost * part.weight).sum(), {name: (x * part.weight).sum() for name, x in metrics.items()}

    def descend(learner: Learner, sample: Any) -> tuple[Learner, Metrics]:
        traj = as_trajectory(sample, net.initial_carry(sample.first.shape[1:]))
        inputs = learner.policy.inputs
        traj = traj._replace(step=normalised(inputs, traj.step), outcome=normalised(inputs, traj.outcome))
        target = targets(learner, traj)
        acted = traj.step.alive.any(-1) if mixer.team else traj.step.alive
        learned = warmed_up(c, traj.step.first.shape).reshape(*traj.step.first.shape, *(1,) * (acted.ndim - 2))
        batch = Batch(traj.step, traj.action, target, (acted & learned).astype(jnp.float32))
        batch = _batches.whole(_batches.items(batch, traj.step.first.shape[0]))
        params = learner.policy.actor, learner.critic
        gradient, metrics = _batches.gradient(loss, params, batch, c.block, None if mixer.team else index)
        theta, state, norm = adam.step(gradient[0], learner.optimiser[0], params[0])
        phi, mixer_state = learner.critic, ()
        if phi:
            phi, mixer_state, _ = mixer_adam.step(gradient[1], learner.optimiser[1], phi)
        done = learner.statistics.steps + 1
        frozen = follow(c, learner.statistics.target, (theta, phi), done)
        statistics = learner.statistics._replace(target=frozen, steps=done)
        policy = learner.policy._replace(actor=theta)
        return Learner(policy, phi, (state, mixer_state), statistics, learner.updates), metrics | {"grad_norm": norm}

    def update(learner: Learner, experience: Experience, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        del key  # the batches are drawn already
        newest = experience.newest
        reward, alive = (team_reward(newest)[0] if mixer.team else newest.outcome.reward), newest.step.alive
        stats = count(learner.statistics.reward, reward, alive.any(-1) if mixer.team else alive)
        policy = learner.policy._replace(inputs=update_inputs(spec, learner.policy.inputs, newest.step))
        learner = learner._replace(policy=policy, statistics=learner.statistics._replace(reward=stats))
        learner, metrics = jax.lax.scan(descend, learner, experience.samples)
        updates = learner.updates + 1
        explored = learner.policy.floor
        learner = learner._replace(policy=learner.policy._replace(floor=epsilon(updates)), updates=updates)
        return learner, jax.tree.map(jnp.mean, metrics) | {"epsilon": explored}

    replay = make_replay(c, sequences=c.sequences, state=mixer.reads_state or c.normalise_inputs)
    unequal = on_unequal_rewards(spec) if mixer.team else ""
    carry = lambda num_envs: net.initial_carry((num_envs,))  # noqa: E731
    return Algorithm(init, carry, epsilon_greedy(q), update, replay=replay, unequal_rewards=unequal)
