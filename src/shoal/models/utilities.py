"""Utilities, the values of each agent's actions from its own history, ε-greedy acting, and the mixers of utilities."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.equations.distributions import ILLEGAL, Categorical
from shoal.equations.targets import RewardNorm, unscaled
from shoal.errors import InputError, unknown
from shoal.learning.config import AgentConfig
from shoal.learning.results import shaped
from shoal.models.actor_critic import Policy, acting_only
from shoal.networks.body import Body, build_body
from shoal.networks.inputs import Input, actor_input, critic_input, init_inputs, normalised
from shoal.networks.net import Net, last_carry, of_outcomes
from shoal.networks.sharing import in_turns, per_agent, policy_of
from shoal.types import Algorithm, EnvSpec, Learner, PyTree, Step, Trajectory

Utilities = Callable[[PyTree, PyTree, Step], tuple[PyTree, Float[Array, "T E N A"]]]
"""(θ, carry before, normalised step [T E ...]) -> (carry after each timestep, utility of every action)."""


def chosen_utility(
    q: Float[Array, "*b N A"], action: Int[Array, "*b N"], alive: Bool[Array, "*b N"]
) -> Float[Array, "*b N"]:
    """The utilities of the actions, 0 for dead agents."""
    chosen = jnp.where(action[..., None] == jnp.arange(q.shape[-1]), q, 0.0).sum(-1)
    return jnp.where(alive, chosen, 0.0)


def joint_action(action: Int[Array, "*b N"], alive: Bool[Array, "*b N"], width: int) -> Float[Array, "*b N A"]:
    """A one-hot row of ``width`` for each agent's action, 0 for dead agents."""
    return jnp.where(alive[..., None], jax.nn.one_hot(action, width), 0.0)


def greedy_action(q: Float[Array, "*b N A"], step: Step) -> tuple[Int[Array, "*b N"], Float[Array, "*b N"]]:
    """Each agent's best legal action with its utility, 0 for dead agents."""
    q = jnp.where(step.legal, q, ILLEGAL)
    return q.argmax(-1), jnp.where(step.alive, q.max(-1), 0.0)


def next_utilities(
    q: Utilities, params: PyTree, traj: Trajectory, passed: tuple[PyTree, Array] | None = None
) -> Float[Array, "L B N A"]:
    """The utilities in each timestep's outcome, from the recurrent state after that timestep.

    Args:
        q: the net.
        params: its parameters.
        traj: a sample of the buffer.
        passed: what ``q`` gave for ``traj.step``, where that is known.
    """
    after, values = passed or ((), jnp.zeros(0))
    if passed is None and (jax.tree.leaves(traj.carry) or traj.step.first.shape[0] > 1):
        after, values = q(params, traj.carry, traj.step)
    return of_outcomes(lambda carry, step: q(params, carry, step)[1], values, after, traj)


def make_utilities(spec: EnvSpec, body: Body, index: tuple[int, ...], agent_id: bool) -> tuple[Net, Utilities]:
    """Every agent's utilities, from its own observations."""
    source = actor_input(spec, agent_id and max(index) + 1 < spec.num_agents)
    net = per_agent(build_body(body, source.layout, spec.action.width, output_gain=0.01, actions=True), index)
    return net, lambda params, carry, step: net.apply(params, carry, source.features(step), step.first)


def utilities_in_turns(spec: EnvSpec, body: Body, index: tuple[int, ...], agent_id: bool) -> Utilities:
    """Those of :func:`make_utilities` for acting: where agents take turns, only of the agent that has a choice.

    Training needs those of all agents: a mixer adds them, and targets bootstrap from them.
    """
    source = actor_input(spec, agent_id and max(index) + 1 < spec.num_agents)
    output = in_turns(spec, build_body(body, source.layout, spec.action.width, output_gain=0.01, actions=True), index)
    return lambda params, carry, step: output(params, carry, source.features(step), step)


def make_policy(
    spec: EnvSpec,
    config: AgentConfig,
    epsilon: float | Array,
    explore: Callable[[Utilities], Callable] | None = None,
    stochastic: bool = False,
    **facts: Any,
) -> Algorithm:
    """Policies that choose by their utilities, for acting only.

    Args:
        spec: the environment's description.
        config: hyper-parameters.
        epsilon: ε at the start; the algorithm's ``init`` splits its key into two, of which the first is the net's.
        explore: utilities -> an ``Algorithm.act``; None for :func:`epsilon_greedy`.
        stochastic: whether exploring is a way to act in deployment too.
        facts: see :func:`shoal.models.actor_critic.acting_only`.
    """
    c, index = config, policy_of(spec, config.sharing)
    net, q = make_utilities(spec, c.network, index, c.agent_id)
    act = (explore or epsilon_greedy)(utilities_in_turns(spec, c.network, index, c.agent_id))

    def init_policy(key: PRNGKeyArray) -> Policy:
        theta = net.init(jax.random.split(key)[0])
        return Policy(theta, init_inputs(spec, c.normalise_inputs), jnp.float32(epsilon))

    return acting_only(
        init_policy, lambda num_envs: net.initial_carry((num_envs,)), act,
        inspect=make_inspect_utilities(q, None, "none", stochastic and explore in (None, epsilon_greedy)),
        stochastic=stochastic, **facts,
    )  # fmt: skip


def make_inspect_utilities(
    q: Utilities,
    mixed: Callable[[PyTree, Array, Array, Step], Array] | None,
    reward_norm: RewardNorm,
    explores: bool = False,
) -> Callable[..., dict[str, Array]]:
    """An ``Algorithm.inspect``: the utilities, and the mixed value of the action if the learner has a critic.

    Args:
        q: the net.
        mixed: (the mixer's parameters, utilities of every action, actions, normalised step [1 E ...]) -> value [1 E],
            or [1 E N] where each agent has its own; None without a critic.
        reward_norm: the scale of the rewards that ``q`` was trained on.
        explores: whether also the probabilities of ε-greedy actions are told.
    """

    def inspect(
        learner: Learner, carry: PyTree, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        del extras
        seen, taken = jax.tree.map(lambda x: x[None], (normalised(learner.policy.inputs, step), action))
        values = q(learner.policy.actor, carry, seen)[1]
        found = {"utilities": jnp.where(step.legal, values[0], jnp.nan)}
        if explores:
            found["probabilities"] = epsilon_greedy_probabilities(values[0], step, learner.policy.epsilon)
        if mixed is not None and learner.statistics != () and reward_norm != "standardise":
            value = mixed(learner.critic, values, taken, seen)[0]
            value = value if value.ndim == 2 else value[:, None]
            rewards = None if learner.statistics is None else learner.statistics.reward
            found["value"] = jnp.broadcast_to(unscaled(rewards, value), action.shape)
        return found

    return inspect


def epsilon_greedy_probabilities(
    q: Float[Array, "*b N A"], step: Step, epsilon: Float[Array, ""]
) -> Float[Array, "*b N A"]:
    """The probabilities of :func:`epsilon_greedy`'s actions: (1 − ε) 1[u = argmax Q] + ε / |legal| of legal ones."""
    best = jax.nn.one_hot(greedy_action(q, step)[0], q.shape[-1])
    uniform = step.legal / jnp.maximum(step.legal.sum(-1, keepdims=True), 1)
    return (1.0 - epsilon) * best + epsilon * uniform


def epsilon_greedy(q: Utilities) -> Callable[..., tuple[PyTree, Array, dict[str, Array]]]:
    """An ``Algorithm.act``: each agent's best legal action, with probability ``Policy.epsilon`` a random legal one."""

    def act(learner: Learner, carry: PyTree, step: Step, key: PRNGKeyArray, greedy: bool) -> tuple[PyTree, Array, dict]:
        seen = jax.tree.map(lambda x: x[None], normalised(learner.policy.inputs, step))
        after, values = q(learner.policy.actor, carry, seen)
        action = greedy_action(values[0], step)[0]
        if not greedy:
            key_whether, key_which = jax.random.split(key)
            explore = jax.random.uniform(key_whether, action.shape) < learner.policy.epsilon
            anything = Categorical(jnp.zeros_like(values[0]), step.legal).sample(key_which)
            action = jnp.where(explore, anything, action)
        return last_carry(after), action, {}

    return act


# Mixers: the value of a joint action from the agents' utilities.


class Mixer(NamedTuple):
    """The value of a joint action from utilities: the one difference between the algorithms of QMIX's family."""

    init: Callable[[PRNGKeyArray], PyTree]
    """key -> parameters, leaves with a leading axis of length 1."""
    apply: Callable[..., Array]
    """(parameters, utilities of the actions [*b N], the agents' best utilities [*b N], actions Int[*b N], step) ->
    Q_tot [*b]; or Q [*b N] where each agent learns independently. Dead agents' utilities are 0. What ``draw`` returns
    follows the step in training."""
    team: bool = True
    """Whether there is one value for the team."""
    reads_state: bool = False
    """Whether it needs the global state."""
    constraints: Callable[[PyTree, Array, Array, Step], tuple[Array, dict[str, Array]]] | None = None
    """(parameters, utilities of every action [*b N A], actions, step) -> (what is added to the loss [*b], rows of
    metrics [*b]); where the utilities are fitted to a value that is not computed from them (QTRAN)."""
    draw: Callable[[PRNGKeyArray, Step], tuple[Array, ...]] | None = None
    """(key, step [L B ...]) -> random numbers [L B ...] that ``apply`` takes as further arguments in training; without
    them it uses numbers of its own, always the same. None for a mixer without chance."""
    greedy: Callable[[Array], Array] | None = None
    """Utilities of the greedy joint action [*b N] -> its Q_tot [*b] in targets; None for that of ``apply``."""
    learning_rate: float | None = None
    """Adam's step size for the parameters; None for that of the utilities."""

    def of_actions(
        self,
        params: PyTree,
        q: Float[Array, "*b N A"],
        action: Int[Array, "*b N"],
        step: Step,
        drawn: tuple[Array, ...] = (),
    ) -> Array:
        """The value of a joint action from the utilities of every action."""
        chosen = chosen_utility(q, action, step.alive)
        return self._one_each(self.apply(params, chosen, greedy_action(q, step)[1], action, step, *drawn), action)

    def of_greedy(self, params: PyTree, q: Float[Array, "*b N A"], action: Int[Array, "*b N"], step: Step) -> Array:
        """The value, for a target, of the joint action that is greedy by the utilities, or by those of another net."""
        if self.greedy is None:
            return self.of_actions(params, q, action, step)
        return self._one_each(self.greedy(chosen_utility(q, action, step.alive)), action)

    def _one_each(self, value: Any, action: Int[Array, "*b N"]) -> Array:
        """The value, if it is [*b], or [*b N] where agents learn independently: another shape may broadcast in losses.

        Raises:
            InputError: it is not.
        """
        shape = action.shape[:-1] if self.team else action.shape
        return shaped("The value of a mixer", value, shape, "[*b]" if self.team else "[*b N]")


def mixer_input(spec: EnvSpec, kind: str, option: str = "mixer_input") -> Input:
    """What a mixer reads: the global ``state``, or ``concat``, all agents' observations; ``option`` is for messages.

    Raises:
        InputError: there is no such input, or no global state.
    """
    if kind not in ("state", "concat"):
        raise unknown(option, kind, ("state", "concat"))
    if kind == "state" and spec.state_dim == 0:
        raise InputError(f"{spec.name} has no global state, which the mixer would read; use {option} 'concat'.")
    return critic_input(spec, kind, agent_id=False)
