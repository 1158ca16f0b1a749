"""HASAC: heterogeneous-agent soft actor-critic (Liu et al. 2024).

    min E[ (Q_c(s, a) − y)² ],  c = 1, 2,    y = R + γⁿ d ( min_c Q'_c(s', a') − α Σ_j log π_j(a'_j|o_j') )
    max_{θ_i}  E[ min_c Q_c(s, a_new, a^i, a_old) − α_i log π_{θ_i}(a^i|o^i) ]      for the agents i in a random order
    min_{α_i}  E[ −log α_i ( log π_i(a^i|o^i) + H̄_i ) ]

with R the discounted sum of n rewards, a' from the current policies, a_new from the new policies of the agents before
i, and a_old from the current ones of those after it. The critics' α has the sum of the H̄_i as its target. Continuous
actions are tanh of a Gaussian whose log σ is an output of the net; gradients pass through discrete ones, also in log π,
as straight-through Gumbel samples.

Deviations from the authors' code (HARL): H̄_i of discrete actions is ``entropy_share`` times the logarithm of the
number of legal actions (the code has 0, as its product over the empty shape of a discrete space is 1); dead agents are
left out of sums over agents; one draw of noise gives an agent's actions before, in and after its step, where the code
draws three times; all hidden layers have one activation; and those of :mod:`shoal.algorithms.haddpg`. As in the code,
the rewards of an n-step target have no entropy terms. Equations, options and results: docs/algorithms/hasac.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.algorithms.haddpg import (
    CriticBatch,
    TeamConfig,
    TurnBatch,
    critics_optimiser,
    one_after_another,
    own_entry,
    turn_rows,
)
from shoal.algorithms.happo import Order, order_of
from shoal.bounds import Fraction, Positive, Rate
from shoal.equations.distributions import Distribution, TanhGaussian, gumbel_softmax
from shoal.equations.normalise import Running
from shoal.equations.reduce import mean
from shoal.equations.targets import (
    init_rewards,
    normalise_reward,
    of_a_living_team,
    on_unequal_rewards,
    team_reward,
    update_target,
)
from shoal.learning import sgd
from shoal.learning.config import AgentConfig
from shoal.learning.optimiser import ByNet, frozen_parameters, optimiser
from shoal.learning.replay import (
    as_trajectory,
    check_windows,
    count_rollout,
    make_windows,
    window_as_transition,
    window_return,
)
from shoal.models.actor_critic import Actor, Policy, acting_only, make_actor
from shoal.models.deterministic import draw_noise, inspect_team_value, lesser, make_team_critics
from shoal.networks.inputs import encode_actions, init_inputs, normalised
from shoal.networks.sharing import policy_of
from shoal.types import Algorithm, Box, EnvSpec, Experience, Learner, Metrics, PyTree, Scale, Step


@dataclass(frozen=True)
class Config(TeamConfig):
    """HASAC's hyper-parameters. "Code" is HARL, the authors' repository, for MuJoCo."""

    order: Order = "random"
    """Agents update in a new random order each time, or in their ``fixed`` order."""
    learning_rate: Rate = 1e-3
    """Adam's step size for actors. Code: 1e-3 for HalfCheetah and Ant, 5e-4 for Walker."""
    alpha: Positive = 1.0
    """Temperature α of all agents and of the critics: at the start, or throughout without adapt_alpha. Code: 1 at the
    start; 0.2 throughout for Ant and Walker."""
    adapt_alpha: bool = True
    """Adapt each agent's temperature, and that of the critics, so that entropies approach their targets."""
    alpha_learning_rate: Rate = 3e-4
    """Adam's step size for log α. Code: 3e-4."""
    entropy_share: Fraction = 0.98
    """Target entropy of discrete actions, as a share of the logarithm of the number of legal actions. Code: 0, since it
    takes 0.98 times the logarithm of 1. The target of continuous actions is minus their number."""


class Temperatures(NamedTuple):
    """log α of the agents, and in HASAC's last entry, the (N + 1)-th, of the critics."""

    log_alpha: Float[Array, " M"]
    optimiser: PyTree


class SoftStatistics(NamedTuple):
    """State of the update beside parameters."""

    target: PyTree
    """Parameters of the target critics."""
    steps: Int[Array, ""]
    """Gradient steps so far."""
    reward: Running | None
    coefficients: Temperatures


def soft_draw(
    dist: Distribution, noise: Float[Array, "*b A"], alive: Array
) -> tuple[Float[Array, "*b A"], Float[Array, "*b"]]:
    """(a sample as critics read it, its log-probability), both differentiable and 0 for dead agents.

    The density of continuous actions is that of the box [−1, 1].
    """
    if isinstance(dist, TanhGaussian):
        u, log_prob = replace(dist, low=-1.0, high=1.0).with_log_prob(noise)
    else:
        u = gumbel_softmax(dist.logits, dist.legal, noise)  # type: ignore[union-attr]
        log_p = jax.nn.log_softmax(jnp.where(dist.legal, dist.logits, -1e9), -1)  # type: ignore[union-attr]
        log_prob = (u * jnp.where(dist.legal, log_p, 0.0)).sum(-1)  # type: ignore[union-attr]
    return jnp.where(alive[..., None], u, 0.0), jnp.where(alive, log_prob, 0.0)


def target_entropy(spec: EnvSpec, share: float, step: Step) -> Float[Array, "*b N"]:
    """H̄ of every agent, 0 for dead ones."""
    count = step.legal.sum(-1).astype(jnp.float32)
    wanted = -count if isinstance(spec.action, Box) else share * jnp.log(jnp.maximum(count, 1.0))
    return jnp.where(step.alive, wanted, 0.0)


def make_soft_actor(spec: EnvSpec, c: AgentConfig) -> Actor:
    """Policies whose continuous actions are squashed Gaussians with a standard deviation that depends on the input."""
    index, squash = policy_of(spec, c.sharing), isinstance(spec.action, Box)
    return make_actor(spec, c.network, index, c.agent_id, output_gain=0.01, log_std=None, squash=squash)


def make_act(actor: Actor) -> Callable[..., tuple[PyTree, Array, dict[str, Array]]]:
    """The ``Algorithm.act``."""

    def act(
        learner: Learner, carry: PyTree, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[PyTree, Array, dict[str, Array]]:
        carry, action, _ = actor.act(learner.policy, carry, step, key, greedy)
        return carry, action, {}

    return act


def make(spec: EnvSpec, config: Config, scale: Scale, sequential: bool = True) -> Algorithm:
    """HASAC for a team; without ``sequential``, agents do not see each other's new actions.

    Raises:
        InputError: an option is out of its range, or needs what the environment does not have.
    """
    check_windows(config)
    c, n, space, index = config, spec.num_agents, spec.action, policy_of(spec, config.sharing)
    actor, critics = make_soft_actor(spec, c), make_team_critics(spec, c.critic_body, c.critic_input, 2)
    steps, frozen = max(1, scale.num_updates * c.gradient_steps), frozen_parameters(c, actor.init, critics.init)
    turns, clip, eps = [steps * index.count(p) for p in range(max(index) + 1)], c.max_grad_norm, c.adam_eps
    actor_adam = optimiser(c.learning_rate, c.lr_final, turns, clip, eps, frozen.actor)
    critic_adam = critics_optimiser(c, critics, steps, frozen.critic)
    alpha_adam = optimiser(c.alpha_learning_rate, c.lr_final, [steps] * (n + 1), clip, eps)

    def init(key: PRNGKeyArray) -> Learner:
        key_actor, key_critic = jax.random.split(key)
        theta, phi = actor.init(key_actor), critics.init(key_critic)
        log_alpha, copy = jnp.full(n + 1, jnp.log(c.alpha), jnp.float32), jax.tree.map(jnp.array, phi)
        alphas = Temperatures(log_alpha, alpha_adam.init(log_alpha))
        statistics = SoftStatistics(copy, jnp.int32(0), init_rewards(c.reward_norm, ()), alphas)
        state = ByNet(actor_adam.init(theta), critic_adam.init(phi))
        return Learner(Policy(theta, init_inputs(spec, c.normalise_inputs)), phi, state, statistics, jnp.int32(0))

    def draw(theta: PyTree, step: Step, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        """(joint actions [1, B, N, A], log π [1, B, N], their noise)."""
        noise = draw_noise(space, key, (*step.alive.shape, space.width))
        return *soft_draw(actor.distribution(theta, (), step)[1], noise, step.alive), noise

    def critic_loss(params: PyTree, part: CriticBatch) -> tuple[Array, Metrics]:
        q = critics.values(params, part.step, part.joint)
        error = jnp.square(part.target[..., None] - q).sum(-1)
        sums = {"critic_loss": (error * part.weight).sum(), "q": (q[..., 0] * part.weight).sum()}
        return sums["critic_loss"], sums

    def own_draw(params: PyTree, part: TurnBatch) -> tuple[Array, Array]:
        dist = actor.alone(params, (), part.x, part.legal, part.step.first)
        return soft_draw(dist, part.noise, part.weight > 0)

    def actor_loss(params: PyTree, critic: PyTree, part: TurnBatch, i: Array, alpha: Array) -> tuple[Array, Metrics]:
        u, log_prob = own_draw(params, part)
        q = lesser(critics.values(critic, part.step, own_entry(part.joint, i, u)))
        sums = {"policy_loss": alpha * log_prob - q, "entropy": -log_prob}
        sums = {name: (x * part.weight).sum() for name, x in sums.items()}
        return sums["policy_loss"], sums

    def gradient_step(learner: Learner, turn: tuple[PyTree, PRNGKeyArray]) -> tuple[Learner, Metrics]:
        sample, key = turn
        key_target, key_actors, key_order = jax.random.split(key, 3)
        inputs, stats, theta = learner.policy.inputs, learner.statistics, learner.policy.actor
        alpha, done = jnp.exp(stats.coefficients.log_alpha), stats.steps + 1
        window = as_trajectory(sample, ())
        traj = window_as_transition(window)
        step, out = normalised(inputs, traj.step), normalised(inputs, traj.outcome)

        # TARGETS
        joint, log_prob, _ = draw(theta, out, key_target)
        value = critics.values(stats.target, out, joint).min(-1) - alpha[n] * log_prob.sum(-1)
        reward, discount = team_reward(window)
        reward = normalise_reward(c.reward_norm, stats.reward, reward)
        y = window_return(reward, discount, of_a_living_team(value, out.alive), window.outcome.last, c.gamma)

        # CRITICS
        weight = step.alive.any(-1).astype(jnp.float32)
        batch = sgd.whole(sgd.items(CriticBatch(step, encode_actions(space, traj.action, step), y, weight), 1))
        gradient, metrics = sgd.gradient(critic_loss, learner.critic, batch, c.block)
        critic, critic_state, norm = critic_adam.step(gradient, learner.optimiser.critic, learner.critic)

        # ONE AGENT AFTER THE OTHER
        def one_agent(params: PyTree, state: PyTree, part: TurnBatch, i: Array, p: Array) -> tuple:
            rows = sgd.whole(part)
            loss = lambda q, b: actor_loss(q, critic, b, i, alpha[i])  # noqa: E731
            gradient, metrics = sgd.gradient(loss, params, rows, c.block)
            params, state, norm = actor_adam.step_one(gradient, state, params, p)
            return params, state, own_draw(params, part)[0], metrics | {"actor_grad_norm": norm}

        joint, log_prob, noise = draw(theta, step, key_actors)
        rows = turn_rows(step, joint, actor.features(step), noise)
        order = order_of(c.order, n, key_order)
        theta, actor_state, found = one_after_another(
            one_agent, theta, learner.optimiser.actor, rows, order, index, sequential
        )

        # TEMPERATURES
        alphas = stats.coefficients
        if c.adapt_alpha:
            gap, some = log_prob + target_entropy(spec, c.entropy_share, step), step.alive.any(-1, keepdims=True)
            gap = jnp.concatenate([gap, gap.sum(-1, keepdims=True)], -1)
            slope = -mean(gap, jnp.concatenate([step.alive, some], -1), (0, 1))
            alphas = Temperatures(*alpha_adam.step(slope, alphas.optimiser, alphas.log_alpha)[:2])

        # TARGET NETWORKS
        target = update_target(stats.target, critic, done, c.target_interval, c.target_rate)
        stats = stats._replace(target=target, steps=done, coefficients=alphas)
        policy, state = learner.policy._replace(actor=theta), ByNet(actor_state, critic_state)
        metrics |= jax.tree.map(jnp.mean, found) | {"critic_grad_norm": norm, "alpha": alpha[:n].mean()}
        return Learner(policy, critic, state, stats, learner.updates), metrics

    def update(learner: Learner, experience: Experience, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        learner = observe(learner, experience.newest)
        turns = experience.samples, jax.random.split(key, c.gradient_steps)
        learner, metrics = jax.lax.scan(gradient_step, learner, turns)
        return learner._replace(updates=learner.updates + 1), jax.tree.map(jnp.mean, metrics)

    def inspect(
        learner: Learner, carry: PyTree, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        del extras
        value = inspect_team_value(spec, critics, c.reward_norm, learner, step, action)
        return actor.inspect(learner.policy, carry, step) | value

    observe = count_rollout(spec, c, team=True)
    replay = make_windows(c, c.n_step, state=c.critic_input == "state" or c.normalise_inputs)
    return Algorithm(
        init, actor.initial_carry, make_act(actor), update,
        replay=replay, inspect=inspect, observe=observe, **facts(spec),
    )  # fmt: skip


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    check_windows(config)
    return soft_policies(spec, config, **facts(spec))


def soft_policies(spec: EnvSpec, c: AgentConfig, **facts: Any) -> Algorithm:
    """The actors of :func:`make_soft_actor`, for acting only; ``facts`` are further fields of the algorithm."""
    actor = make_soft_actor(spec, c)

    def init_policy(key: PRNGKeyArray) -> Policy:
        return Policy(actor.init(jax.random.split(key)[0]), init_inputs(spec, c.normalise_inputs))

    def inspect(
        learner: Learner, carry: PyTree, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        del action, extras
        return actor.inspect(learner.policy, carry, step)

    return acting_only(init_policy, actor.initial_carry, make_act(actor), inspect=inspect, **facts)


def facts(spec: EnvSpec) -> dict[str, Any]:
    """Fields of :class:`shoal.types.Algorithm`: one value for the team, and policies from which actions are drawn."""
    return {"unequal_rewards": on_unequal_rewards(spec), "learns_from": "team", "stochastic": True}
