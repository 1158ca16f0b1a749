"""HADDPG: heterogeneous-agent deep deterministic policy gradients (Zhong et al. 2024).

    min E[ (Q(s, a) − y)² ],   y = Σ_{k<n} γᵏ r_{t+k} + γⁿ d Q'(s_{t+n}, μ_1'(o_1'), …, μ_N'(o_N'))
    max_{θ_{i_m}}  E_{s~D}[ Q(s, μ_new^{i_1:m−1}, μ_{θ_{i_m}}, μ_old^{i_m+1:N}) ]     for m = 1 … N in a random order

One critic for the team. Agents take their gradient steps one after the other, each against the new actions of the
agents before it and the current actions of the others; all actions are those of policies, none is the buffer's.
Gradients pass through discrete actions as Gumbel-softmax samples, as in :mod:`shoal.algorithms.maddpg`.

Deviations from the authors' code (HARL), which has continuous actions only: before ``learning_starts`` agents act with
their initial policies and noise, unless ``random_start``; an n-step return is learned once its n steps are stored, not
cut at the newest; only timesteps at which an agent lives train its actor, and a team without living agents is worth 0;
output layers start small and orthogonal. Equations, options and results: docs/algorithms/hatd3.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.algorithms.happo import Order, order_of
from shoal.algorithms.maddpg import PLAIN, Variant
from shoal.bounds import LARGEST_INT, Bounds, Count, Fraction, Index, Positive, Rate, Size, Tiny, Weight
from shoal.equations.distributions import Categorical
from shoal.equations.targets import (
    normalise_reward,
    of_a_living_team,
    on_unequal_rewards,
    team_mean,
    team_reward,
    update_target,
)
from shoal.learning import sgd
from shoal.learning.config import CriticConfig, ExplorationConfig
from shoal.learning.optimiser import ByNet, Optimiser, frozen_parameters, optimiser
from shoal.learning.replay import (
    ReplayConfig,
    as_trajectory,
    check_windows,
    count_rollout,
    init_targets,
    make_windows,
    window_as_transition,
    window_return,
)
from shoal.models.actor_critic import acting_only
from shoal.models.deterministic import (
    Carry,
    DeterministicPolicy,
    TeamCritics,
    delayed,
    draw_noise,
    end_update,
    gumbel_actions,
    init_policy,
    inspect_team_value,
    make_actors,
    make_team_critics,
)
from shoal.networks.body import Body
from shoal.networks.inputs import encode_actions, normalised
from shoal.networks.sharing import Sharing, policy_of
from shoal.types import Algorithm, Box, Discrete, EnvSpec, Experience, Learner, Metrics, PyTree, Scale, Step


@dataclass(frozen=True)
class TeamConfig(ReplayConfig, CriticConfig):
    """Off-policy agents with critics of the team. "Code" is HARL, the authors' repository, for MuJoCo."""

    sharing: Sharing | tuple[Index, ...] = "independent"
    """Which agents share an actor: ``independent``, ``role``, ``shared``, or a vector. Code: independent."""
    network: Body = field(default_factory=lambda: Body(hidden=(256, 256), activation="relu"))
    """Layers of actors and critics, which are feed-forward. Code: 256, 256, relu."""
    gamma: Fraction = 0.99
    """Discount γ per step. Code: 0.99."""
    learning_rate: Rate = 5e-4
    """Adam's step size for actors. Code: 5e-4."""
    critic_learning_rate: Rate | None = 1e-3
    """Adam's step size for critics; None for the actors'. Code: 1e-3."""
    adam_eps: Tiny = 1e-8
    """Adam's ε. Code: 1e-8."""
    max_grad_norm: Positive | None = None
    """Largest gradient norm of one actor or critic, in HASAC and MASAC also of one temperature. Code: None."""
    batch_size: Size = 1000
    """Transitions per gradient step. Code: 1000."""
    buffer_size: Size = 1_000_000
    """Capacity of the replay buffer in environment steps. Code: 10⁶."""
    learning_starts: Annotated[int, Bounds(least=0, most=LARGEST_INT)] = 10_000
    """Environment steps before the first gradient step. Code: 10⁴."""
    target_rate: Fraction | None = 0.005
    """τ: target networks move by this fraction at each of their steps. Code: 0.005."""
    n_step: Count = 1
    """n: rewards in a target before it bootstraps. Code: 1 to 25 (see the presets)."""
    critic_input: Literal["concat", "state"] = "concat"
    """What Q reads in addition to actions: ``concat`` all observations, or the global ``state``. Code: state."""


@dataclass(frozen=True)
class ActorConfig(TeamConfig, ExplorationConfig):
    """Adds deterministic actors, or discrete ones whose samples pass gradients."""

    relaxation: Literal["straight_through", "soft"] = "straight_through"
    """How gradients pass through discrete actions: one-hot samples with the gradient of the relaxed samples, or the
    relaxed samples themselves."""
    temperature: Annotated[float, Bounds(least=1e-3, most=1e3)] = 1.0
    """τ of the Gumbel-softmax."""
    logit_coef: Weight = 1e-3
    """Weight of the mean square of discrete actors' outputs, which keeps them and Q from diverging."""


@dataclass(frozen=True)
class Config(ActorConfig):
    """HADDPG's hyper-parameters. "Code" is HARL, the authors' repository, for MuJoCo."""

    order: Order = "random"
    """Agents update in a new random order each time, or in their ``fixed`` order."""


class CriticBatch(NamedTuple):
    """Rows of the critics' step, [B, 1, ...]."""

    step: Step
    joint: Float[Array, "B 1 N A"]
    target: Float[Array, "B 1"]
    weight: Float[Array, "B 1"]


class TeamBatch(NamedTuple):
    """Rows of all actors' step, [B, 1, ...]."""

    step: Step
    noise: Float[Array, "B 1 N A"]
    weight: Float[Array, "B 1"]


class TurnBatch(NamedTuple):
    """Rows of one agent's step, [B, 1, ...]."""

    step: Step
    joint: Float[Array, "B 1 N A"]
    """The team's actions as they are at this turn; the agent's own entry is not read."""
    x: Float[Array, "B 1 F"]
    """What its net reads."""
    legal: Array
    noise: Float[Array, "B 1 A"]
    weight: Float[Array, "B 1"]


def own_entry(joint: Float[Array, "*b N A"], i: Int[Array, ""], u: Float[Array, "*b A"]) -> Float[Array, "*b N A"]:
    """The joint action with agent i's entry replaced by u."""
    return jnp.where((jnp.arange(joint.shape[-2]) == i)[:, None], u[..., None, :], joint)


def turn_rows(step: Step, joint: Array, features: Array, noise: Array) -> TurnBatch:
    """Every agent's rows [N, B, 1, ...] from [1, B, N, ...], but for ``step`` and ``joint``, which are the team's."""
    own = sgd.items((features, step.legal, noise, step.alive.astype(jnp.float32)), 1)
    return TurnBatch(*sgd.items((step, joint), 1), *(jnp.moveaxis(x, 2, 0) for x in own))


def one_after_another(
    step: Callable[..., tuple[PyTree, PyTree, Array, Any]],
    theta: PyTree,
    state: PyTree,
    rows: TurnBatch,
    order: Int[Array, " N"],
    index: tuple[int, ...],
    sequential: bool = True,
) -> tuple[PyTree, PyTree, Any]:
    """The agents' steps, as a scan that carries the joint action.

    Args:
        step: of one agent: (parameters of its policy, its optimiser's state, its rows, its index i, that of its policy)
            -> (parameters, optimiser's state, its new actions [B, 1, A], anything else).
        theta: parameters [P ...].
        state: optimiser states [P ...].
        rows: those of :func:`turn_rows`, with the actions of the policies before the first turn.
        order: i_1 … i_N.
        index: the policy of each agent. Agents that share one change it in turn; the actions of those whose turn is
            yet to come stay those of the policy before the first turn.
        sequential: whether later agents see the new actions of earlier ones.

    Returns:
        (parameters, optimiser states, what the steps returned beside, in the order of the turns).
    """
    policy, own = jnp.array(index), rows._replace(step=(), joint=())
    put = lambda tree, p, one: jax.tree.map(lambda leaf, x: leaf.at[p].set(x), tree, one)  # noqa: E731

    def turn(loop: tuple[PyTree, PyTree, Array], i: Array) -> tuple[tuple[PyTree, PyTree, Array], Any]:
        theta, state, joint = loop
        p = policy[i]
        params, optimiser = (jax.tree.map(lambda leaf: leaf[p], tree) for tree in (theta, state))
        part = jax.tree.map(lambda leaf: leaf[i], own)._replace(step=rows.step, joint=joint)
        params, optimiser, u, found = step(params, optimiser, part, i, p)
        joint = own_entry(joint, i, u) if sequential else joint
        return (put(theta, p, params), put(state, p, optimiser), joint), found

    (theta, state, _), found = jax.lax.scan(turn, (theta, state, rows.joint), order)
    return theta, state, found


def critics_optimiser(c: TeamConfig, critics: TeamCritics, steps: int, frozen: frozenset[str]) -> Optimiser:
    """Adam of the critics, each of which takes so many steps in the run."""

    def adam(nets: int, frozen: frozenset[str]) -> Optimiser:
        return optimiser(c.critic_rate, c.lr_final, [steps] * nets, c.max_grad_norm, c.adam_eps, frozen)

    return critics.optimiser(adam, frozen)


def make(spec: EnvSpec, config: Config, scale: Scale, variant: Variant = PLAIN) -> Algorithm:
    """HADDPG for a team.

    Raises:
        InputError: an option is out of its range, or needs what the environment does not have.
    """
    check_windows(config)
    critics = make_team_critics(spec, config.critic_body, config.critic_input, variant.critics)
    return make_ddpg(spec, config, scale, critics, variant, config.order)


def make_ddpg(
    spec: EnvSpec,
    config: ActorConfig,
    scale: Scale,
    critics: TeamCritics,
    variant: Variant = PLAIN,
    order: Order | None = None,
) -> Algorithm:
    """Deterministic actors with critics of the team.

    Args:
        spec: the environment's description.
        config: hyper-parameters, checked.
        scale: sizes of the run.
        critics: of the team.
        variant: the differences of HATD3.
        order: of the agents' turns; None: all actors take one step together.

    Raises:
        InputError: an option needs what the environment does not have.
    """
    c, n, space, index = config, spec.num_agents, spec.action, policy_of(spec, config.sharing)
    actors = make_actors(spec, c.network, index, c.agent_id)
    steps, frozen = max(1, scale.num_updates * c.gradient_steps), frozen_parameters(c, actors.init, critics.init)
    turns = [max(1, steps // variant.delay) * (index.count(p) if order else 1) for p in range(max(index) + 1)]
    actor_adam = optimiser(c.learning_rate, c.lr_final, turns, c.max_grad_norm, c.adam_eps, frozen.actor)
    critic_adam = critics_optimiser(c, critics, steps, frozen.critic)

    def init(key: PRNGKeyArray) -> Learner:
        key_actor, key_critic = jax.random.split(key)
        nets = ByNet(actors.init(key_actor), critics.init(key_critic))
        policy = init_policy(spec, c, nets.actor)
        state = ByNet(actor_adam.init(nets.actor), critic_adam.init(nets.critic))
        noted = ["policy_loss", "actor_grad_norm"]
        noted += ["logit_square", "entropy"] if isinstance(space, Discrete) else []
        statistics = init_targets(nets, c.reward_norm, (), noted if variant.delay > 1 else ())
        return Learner(policy, nets.critic, state, statistics, jnp.int32(0))

    def actions(x: Array, legal: Array, alive: Array, noise: Array) -> Array:
        hard = c.relaxation == "straight_through"
        return gumbel_actions(space, x, legal, alive, noise, temperature=c.temperature, straight_through=hard)

    def joint_actions(theta: PyTree, step: Step, noise: Array) -> Float[Array, "1 B N A"]:
        return actions(actors.output(theta, (), step, {})[1], step.legal, step.alive, noise)

    def of_outputs(x: Array, legal: Array) -> dict[str, Array]:
        """The mean square of discrete actors' logits, and their entropy."""
        if not isinstance(space, Discrete):
            return {}
        square = jnp.where(legal, jnp.square(x), 0.0).sum(-1) / jnp.maximum(legal.sum(-1), 1)
        return {"logit_square": square, "entropy": Categorical(x, legal).entropy()}

    def critic_loss(params: PyTree, part: CriticBatch) -> tuple[Array, Metrics]:
        q = critics.values(params, part.step, part.joint)
        error = jnp.square(part.target[..., None] - q).sum(-1)
        sums = {"critic_loss": (error * part.weight).sum(), "q": (q[..., 0] * part.weight).sum()}
        return sums["critic_loss"], sums

    def actor_loss(params: PyTree, critic: PyTree, part: TurnBatch, i: Array) -> tuple[Array, Metrics]:
        """−Q of agent i's actions, with those of the others as they are at its turn."""
        x = actors.alone(params, part.x, part.step.first)
        u = actions(x, part.legal, part.weight > 0, part.noise)
        cost = -critics.first(critic, part.step, own_entry(part.joint, i, u))
        sums = {name: (y * part.weight).sum() for name, y in of_outputs(x, part.legal).items()}
        sums["policy_loss"] = (cost * part.weight).sum()
        return sums["policy_loss"] + c.logit_coef * sums.get("logit_square", 0.0), sums

    def team_loss(params: PyTree, critic: PyTree, part: TeamBatch) -> tuple[Array, Metrics]:
        """−Q of all agents' actions; squared logits are a mean over the living."""
        step = part.step
        x = actors.output(params, (), step, {})[1]
        u = actions(x, step.legal, step.alive, part.noise)
        found = {name: team_mean(y, step.alive) for name, y in of_outputs(x, step.legal).items()}
        found["policy_loss"] = -critics.first(critic, step, u)
        sums = {name: (y * part.weight).sum() for name, y in found.items()}
        return sums["policy_loss"] + c.logit_coef * sums.get("logit_square", 0.0), sums

    def gradient_step(learner: Learner, turn: tuple[PyTree, PRNGKeyArray]) -> tuple[Learner, Metrics]:
        sample, key = turn
        key_target, key_actors, key_order = jax.random.split(key, 3)
        inputs, stats = learner.policy.inputs, learner.statistics
        window, done = as_trajectory(sample, ()), stats.steps + 1
        traj = window_as_transition(window)
        step, out = normalised(inputs, traj.step), normalised(inputs, traj.outcome)

        # TARGETS
        noise = draw_noise(space, key_target, (*out.alive.shape, space.width))
        joint = joint_actions(stats.target.actor, out, noise)
        if isinstance(space, Box):
            joint = jnp.where(out.legal & out.alive[..., None], variant.smooth(joint, noise), 0.0)
        value = of_a_living_team(critics.values(stats.target.critic, out, joint).min(-1), out.alive)
        reward, discount = team_reward(window)
        reward = normalise_reward(c.reward_norm, stats.reward, reward)
        y = window_return(reward, discount, value, window.outcome.last, c.gamma)

        # CRITICS
        weight = step.alive.any(-1).astype(jnp.float32)
        batch = sgd.whole(sgd.items(CriticBatch(step, encode_actions(space, traj.action, step), y, weight), 1))
        gradient, metrics = sgd.gradient(critic_loss, learner.critic, batch, c.block)
        critic, critic_state, norm = critic_adam.step(gradient, learner.optimiser.critic, learner.critic)

        # ACTORS, ONE AFTER THE OTHER OR TOGETHER, THEN TARGET NETWORKS
        noise = draw_noise(space, key_actors, (*step.alive.shape, space.width))

        def one_agent(params: PyTree, state: PyTree, part: TurnBatch, i: Array, p: Array) -> tuple:
            gradient, metrics = sgd.gradient(lambda q, b: actor_loss(q, critic, b, i), params, sgd.whole(part), c.block)
            params, state, norm = actor_adam.step_one(gradient, state, params, p)
            x = actors.alone(params, part.x, part.step.first)
            u = actions(x, part.legal, part.weight > 0, part.noise)
            return params, state, u, metrics | {"actor_grad_norm": norm}

        def team_step(actor: PyTree, state: PyTree, target: ByNet) -> tuple[PyTree, PyTree, ByNet, Metrics]:
            if order is None:
                together = sgd.whole(sgd.items(TeamBatch(step, noise, weight), 1))
                gradient, found = sgd.gradient(lambda q, b: team_loss(q, critic, b), actor, together, c.block)
                actor, state, found["actor_grad_norm"] = actor_adam.step(gradient, state, actor)
            else:
                rows = turn_rows(step, joint_actions(actor, step, noise), actors.features(step), noise)
                turns = order_of(order, n, key_order)
                actor, state, found = one_after_another(one_agent, actor, state, rows, turns, index)
            nets, number = ByNet(actor, critic), done // variant.delay
            target = update_target(target, nets, number, c.target_interval, c.target_rate)
            return actor, state, target, jax.tree.map(jnp.mean, found)

        before = learner.policy.actor, learner.optimiser.actor, stats.target
        actor, actor_state, target, of_actors = delayed(team_step, variant.delay, done, before, stats.noted)
        stats = stats._replace(target=target, steps=done, noted=of_actors if stats.noted else {})
        policy, state = learner.policy._replace(actor=actor), ByNet(actor_state, critic_state)
        learner = Learner(policy, critic, state, stats, learner.updates)
        return learner, metrics | of_actors | {"critic_grad_norm": norm}

    def update(learner: Learner, experience: Experience, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        learner = observe(learner, experience.newest)
        turns = experience.samples, jax.random.split(key, c.gradient_steps)
        learner, metrics = jax.lax.scan(gradient_step, learner, turns)
        return end_update(learner, c, scale.num_updates), jax.tree.map(jnp.mean, metrics)

    def inspect(
        learner: Learner, carry: Carry, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        value = inspect_team_value(spec, critics, c.reward_norm, learner, step, action)
        return actors.inspect(learner, carry, step, extras) | value

    observe = count_rollout(spec, c, team=True)
    replay = make_windows(c, c.n_step, state=c.critic_input == "state" or c.normalise_inputs)
    return Algorithm(
        init, actors.initial_carry, actors.act, update,
        replay=replay, inspect=inspect, observe=observe, **facts(spec),
    )  # fmt: skip


def make_policy(spec: EnvSpec, config: ActorConfig) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    check_windows(config)
    c, actors = config, make_actors(spec, config.network, policy_of(spec, config.sharing), config.agent_id)

    def init(key: PRNGKeyArray) -> DeterministicPolicy:
        return init_policy(spec, c, actors.init(jax.random.split(key)[0]))

    def inspect(
        learner: Learner, carry: Carry, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        del action
        return actors.inspect(learner, carry, step, extras)

    return acting_only(init, actors.initial_carry, actors.act, inspect=inspect, **facts(spec))


def facts(spec: EnvSpec) -> dict[str, Any]:
    """Fields of :class:`shoal.types.Algorithm`: one value for the team; discrete actions are drawn."""
    stochastic = isinstance(spec.action, Discrete)
    return {"unequal_rewards": on_unequal_rewards(spec), "learns_from": "team", "stochastic": stochastic}
