"""ISAC: independent soft actor-critic, SAC for every agent (Haarnoja et al. 2018).

    min E[ (Q_{i,c}(o_i, a_i) − y_i)² ],  c = 1, 2,   y_i = r_i + γ d_i V_i(o_i')                               (eq. 5)
    V_i(o_i') = min_c Q'_{i,c}(o_i', a_i') − α_i log π_i(a_i'|o_i'),   a_i' ~ π_i                               (eq. 3)
    min_{θ_i}  E[ α_i log π_{θ_i}(a_i|o_i) − min_c Q_{i,c}(o_i, a_i) ],   a_i ~ π_{θ_i}                         (eq. 9)
    min_{α_i}  E[ −log α_i ( log π_i(a_i|o_i) + H̄_i ) ],   a_i ~ π_i                                           (eq. 18)

with Q' the target critics. Each agent learns from its own reward, and no critic reads another agent. For one agent it
is SAC. Policies, draws and temperatures are those of :mod:`shoal.algorithms.hasac`, which has critics of the team;
critics, targets and recurrent nets are as in :mod:`shoal.algorithms.iddpg`.

Deviations from the authors' code (softlearning): discrete actions, which it does not have, are straight-through Gumbel
samples, also in log π, and their H̄_i is ``entropy_share`` times the logarithm of the number of legal actions; before
``learning_starts`` the initial policies act, where the code draws uniformly from the box; output layers start small and
orthogonal. As in the code, eq. 18 has log α_i in place of α_i. Options and results: docs/algorithms/isac.md.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from shoal.algorithms.hasac import (
    SoftStatistics,
    Temperatures,
    make_act,
    make_soft_actor,
    soft_draw,
    soft_policies,
    target_entropy,
)
from shoal.algorithms.maddpg import JointBatch
from shoal.bounds import LARGEST_INT, Bounds, Fraction, Index, Positive, Rate, Size, Tiny
from shoal.equations.reduce import mean
from shoal.equations.targets import init_rewards, mask_dead_values, normalise_reward, update_target
from shoal.learning import sgd
from shoal.learning.config import CriticConfig
from shoal.learning.optimiser import ByNet, Optimiser, frozen_parameters, optimiser
from shoal.learning.replay import (
    ReplayConfig,
    after_burn_in,
    as_trajectory,
    check_replay,
    count_rollout,
    make_replay,
    state_names,
    warmed_up,
    with_state,
)
from shoal.models.actor_critic import Policy
from shoal.models.deterministic import draw_noise, inspect_values, lesser, make_critics, per_net, read_by_all, taken
from shoal.networks.body import Body
from shoal.networks.inputs import init_inputs, normalised
from shoal.networks.sharing import Sharing, policy_of
from shoal.types import Algorithm, EnvSpec, Experience, Learner, Metrics, PyTree, Scale, Step


@dataclass(frozen=True)
class Config(ReplayConfig, CriticConfig):
    """ISAC's hyper-parameters. "Paper" is Haarnoja et al. 2018, "code" its repository (rail-berkeley/softlearning)."""

    sharing: Sharing | tuple[Index, ...] = "independent"
    """Which agents share actor and critics: ``independent``, ``role``, ``shared``, or a vector. Each agent has its own
    temperature."""
    network: Body = field(default_factory=lambda: Body(hidden=(256, 256), activation="relu"))
    """Layers of actors and critics; only actors can have a GRU. Paper: 256, 256, relu."""
    gamma: Fraction = 0.99
    """Discount γ per step. Paper: 0.99."""
    learning_rate: Rate = 3e-4
    """Adam's step size for actors. Paper: 3e-4."""
    adam_eps: Tiny = 1e-8
    """Adam's ε. Code: 1e-8."""
    max_grad_norm: Positive | None = None
    """Largest gradient norm of one actor, critic or temperature. Code: None."""
    batch_size: Size = 256
    """Transitions per gradient step. Paper: 256."""
    buffer_size: Size = 1_000_000
    """Capacity of the replay buffer in environment steps. Paper: 10⁶."""
    learning_starts: Annotated[int, Bounds(least=0, most=LARGEST_INT)] = 1000
    """Environment steps before the first gradient step. Code: 1000, or ten episodes."""
    target_rate: Fraction | None = 0.005
    """τ: target critics move by this fraction at each gradient step. Paper: 0.005."""
    alpha: Positive = 1.0
    """Temperature α of all agents: at the start, or throughout without adapt_alpha. Code: 1 at the start."""
    adapt_alpha: bool = True
    """Adapt each agent's temperature, so that its entropy approaches its target."""
    alpha_learning_rate: Rate = 3e-4
    """Adam's step size for log α. Code: 3e-4."""
    entropy_share: Fraction = 0.98
    """Target entropy of discrete actions, as a share of the logarithm of the number of legal actions. Christodoulou
    2019, which has SAC for discrete actions: 0.98. The target of continuous actions is minus their number."""


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """SAC for every agent of any environment, cooperative or competitive.

    Raises:
        InputError: an option is out of its range, or needs what the environment does not have.
    """
    check_replay(config)
    c, n, space, index = config, spec.num_agents, spec.action, policy_of(spec, config.sharing)
    policies, steps = max(index) + 1, max(1, scale.num_updates * c.gradient_steps)
    actor = make_soft_actor(spec, c)
    critics = make_critics(spec, c.critic_body, index, c.agent_id, kind="local", count=2)
    frozen = frozen_parameters(c, actor.init, critics.init)

    def adam(rate: float, nets: int, frozen: frozenset[str] = frozenset()) -> Optimiser:
        return optimiser(rate, c.lr_final, [steps] * nets, c.max_grad_norm, c.adam_eps, frozen)

    actor_adam = adam(c.learning_rate, policies, frozen.actor)
    critic_adam = adam(c.critic_rate, 2 * policies, frozen.critic)
    alpha_adam = adam(c.alpha_learning_rate, n)

    def init(key: PRNGKeyArray) -> Learner:
        key_actor, key_critic = jax.random.split(key)
        theta, phi = actor.init(key_actor), critics.init(key_critic)
        log_alpha, copy = jnp.full(n, jnp.log(c.alpha), jnp.float32), jax.tree.map(jnp.array, phi)
        alphas = Temperatures(log_alpha, alpha_adam.init(log_alpha))
        statistics = SoftStatistics(copy, jnp.int32(0), init_rewards(c.reward_norm, (n,)), alphas)
        state = ByNet(actor_adam.init(theta), critic_adam.init(phi))
        return Learner(Policy(theta, init_inputs(spec, c.normalise_inputs)), phi, state, statistics, jnp.int32(0))

    def critic_loss(params: PyTree, part: JointBatch) -> tuple[Array, Metrics]:
        q = critics.values(params, part.step, part.joint)
        error = jnp.square(part.target[..., None] - q).sum(-1)  # (eq. 5)
        loss = (error * part.weight).sum()
        return loss, {"critic_loss": loss / policies, "q": (q[..., 0] * part.weight).sum() / policies}

    def actor_loss(params: PyTree, critic: PyTree, part: JointBatch, alpha: Array) -> tuple[Array, Metrics]:
        dist = after_burn_in(actor.distribution, c.burn_in, params, part.carry, part.step)[1]
        u, log_prob = soft_draw(dist, part.noise, part.step.alive)
        q = lesser(critics.values(critic, part.step, read_by_all(u)))
        loss = ((alpha * log_prob - q) * part.weight).sum()  # (eq. 9)
        return loss, {"policy_loss": loss / policies, "entropy": -(log_prob * part.weight).sum() / policies}

    def gradient_step(learner: Learner, turn: tuple[PyTree, PRNGKeyArray]) -> tuple[Learner, Metrics]:
        sample, key = turn
        key_target, key_actor = jax.random.split(key)
        shape, stats = sample.first.shape, learner.statistics
        inputs, theta = learner.policy.inputs, learner.policy.actor
        alpha, done = jnp.exp(stats.coefficients.log_alpha), stats.steps + 1
        traj = as_trajectory(sample, actor.initial_carry(shape[1]))
        step, out = normalised(inputs, traj.step), normalised(inputs, traj.outcome)
        noise, noise_target = (draw_noise(space, k, (*shape, n, space.width)) for k in (key_actor, key_target))

        # POLICIES
        after, now = actor.distribution(theta, traj.carry, step)
        ahead = actor.distribution(theta, after, jax.tree.map(lambda x: x[None], out))[1]
        then = jax.tree.map(lambda x: x[0], ahead)

        # TARGETS
        u, log_prob = soft_draw(then, noise_target, out.alive)
        value = critics.values(stats.target, out, read_by_all(u)).min(-1) - alpha * log_prob  # (eq. 3)
        reward = normalise_reward(c.reward_norm, stats.reward, out.reward)
        y = reward + c.gamma * out.discount * mask_dead_values(value, out.alive, spec.reward_groups)

        # CRITICS
        learned = step.alive & warmed_up(c, shape)[..., None]
        weight = per_net(learned, jnp.array(index), policies)
        batch = JointBatch(step, taken(spec, traj.action, step), {}, y, noise, weight, ())
        rows = sgd.items(batch, shape[0])._replace(carry=traj.carry)
        gradient, metrics = sgd.gradient(critic_loss, learner.critic, rows, c.block)
        critic, critic_state, norm = critic_adam.step(gradient, learner.optimiser.critic, learner.critic)

        # ACTORS
        loss = lambda params, part: actor_loss(params, critic, part, alpha)  # noqa: E731
        gradient, found = sgd.gradient(loss, theta, rows, c.block)
        theta, actor_state, actor_norm = actor_adam.step(gradient, learner.optimiser.actor, theta)
        metrics |= found | {"critic_grad_norm": norm, "actor_grad_norm": actor_norm, "alpha": alpha.mean()}

        # TEMPERATURES
        alphas = stats.coefficients
        if c.adapt_alpha:
            gap = soft_draw(now, noise, step.alive)[1] + target_entropy(spec, c.entropy_share, step)
            slope = -mean(gap, learned, (0, 1))  # (eq. 18)
            alphas = Temperatures(*alpha_adam.step(slope, alphas.optimiser, alphas.log_alpha)[:2])

        # TARGET NETWORKS
        target = update_target(stats.target, critic, done, c.target_interval, c.target_rate)
        stats = stats._replace(target=target, steps=done, coefficients=alphas)
        policy, state = learner.policy._replace(actor=theta), ByNet(actor_state, critic_state)
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
        value = inspect_values(spec, critics, c.reward_norm, learner, step, action)
        return actor.inspect(learner.policy, carry, step) | value

    observe, kept = count_rollout(spec, c, team=False), state_names(c, actor.initial_carry(1))
    replay = make_replay(c, sequences=bool(c.network.recurrent), state=c.normalise_inputs, extras=kept)
    act = with_state(make_act(actor)) if kept else make_act(actor)
    return Algorithm(
        init, actor.initial_carry, act, update,
        replay=replay, inspect=inspect, observe=observe, **FACTS,
    )  # fmt: skip


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    check_replay(config)
    return soft_policies(spec, config, **FACTS)


FACTS: dict[str, Any] = {"learns_from": "own", "stochastic": True}
"""Fields of :class:`shoal.types.Algorithm`: one value for each agent, and policies from which actions are drawn."""
