"""LICA: actors maximise a mixing critic of their action probabilities (Zhou et al. 2020, Algorithm 1).

    min_φ  E[ (y_t − Q_φ(s_t, u_t))² ],    y_t = r_t + γ [λ y_{t+1} + (1 − λ) Q_φ⁻(s_{t+1}, u_{t+1})]          (critic)
    max_θ  E[ Q_φ(s, π_θ¹(·|o¹), …, π_θⁿ(·|oⁿ)) + E_i[ ξ H(π_θⁱ) / ⟨H(π_θⁱ)⟩ ] ]                                (actors)

with u one-hot joint actions and ⟨·⟩ a constant to differentiation, so that the bonus has the gradient −ξ (log p + 1) /
H in a probability (the paper's adaptive entropy regularisation, dH_i in its section 3.3): in the logits it does not
vanish as a policy becomes deterministic. Credit is implicit: it is ∂Q/∂π, which depends on the state by the
hypernetworks. The gradient passes through the online critic and changes only the actors. Deviations from the authors'
code: H is each policy's own, as in the paper, where the code divides by the batch's mean; H is taken over legal
actions, as the code's is (the paper's has no masks), and averaged over living agents, where the code includes dead
agents' entropy of 0; the hypernetwork of W₁ has hidden width E, not N·A·E; a time limit bootstraps. Equations, options
and results: docs/algorithms/lica.md.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.bounds import Count, Depth, Gain, Rate, Weight, Width
from shoal.equations.distributions import Categorical
from shoal.equations.reduce import mean
from shoal.equations.returns import td_lambda
from shoal.equations.surrogate import clipped_value_loss
from shoal.equations.targets import make_value_scale, of_a_living_team, on_unequal_rewards, team_mean, team_reward
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.learning.config import QCriticConfig, no_critic_network
from shoal.learning.optimiser import ByNet
from shoal.models import actor_critic
from shoal.models.action_critic import (
    actor_step,
    check_q_critic,
    fit_action_critic,
    init_statistics,
    make_optimisers,
    next_action,
)
from shoal.models.actor_critic import Carry, Policy, make_actor
from shoal.models.on_policy import end_update, entropy_coef, make_inspect
from shoal.networks.hyper import Mixing, mixing_critic
from shoal.networks.inputs import CriticInput, critic_input, init_inputs, normalised
from shoal.networks.sharing import policy_of
from shoal.types import Algorithm, Discrete, EnvSpec, Learner, Metrics, PyTree, Scale, Step, Trajectory

SMALLEST = 1e-5
"""Least entropy in a denominator, in nats: smaller ones are rounding in single precision."""

EntropyScale = Literal["agent", "batch", "none"]


@dataclass(frozen=True)
class Config(QCriticConfig):
    """LICA's hyper-parameters. "Paper" is Zhou et al. 2020 on SMAC; "code" its authors' repository."""

    critic_input: CriticInput = "concat"
    """What the mixing critic reads in addition to actions: ``concat`` all observations, or the environment's ``state``.
    Paper: state."""
    mixing: Mixing = "mix"
    """``mix``, or ``mlp`` for a critic that concatenates state and actions (the paper's ablation)."""
    mixing_width: Width = 64
    """E: width of the mixing layer and of the hypernetworks' hidden layers. Code: 64, and N·A·64 for that of W₁."""
    hyper_layers: Depth = 2
    """Layers of the hypernetworks of ``mix``. Code: 2."""
    entropy_coef: Weight = 0.01
    """ξ, in the critic's units: the bonus's gradient in the logits of a nearly deterministic policy. Paper: 0.03 to
    0.11, for returns of up to 20."""
    entropy_scale: EntropyScale = "agent"
    """Divisor of ξ: ``agent`` each policy's entropy (paper), ``batch`` their mean (code), or ``none`` 1 nat."""
    output_gain: Gain = 1.0
    """Gain of the actor's orthogonal output layer. The objective has no sampling noise that breaks the symmetry of
    initially equal actions, such as messages. Code: PyTorch's default."""
    learning_rate: Rate = 2.5e-3
    """Adam's step size for actors. Code: 2.5e-3."""
    critic_learning_rate: Rate | None = 5e-4
    """Adam's step size for the critic. Code: 5e-4."""
    minibatches: Count = 1
    """Critic steps per pass. Paper: 1."""


class CriticBatch(NamedTuple):
    """The critic's training data; leaves are [items, L, ...]."""

    x: Float[Array, "I L F"]
    action: Float[Array, "I L N A"]
    """One-hot; a dead agent's row is zero."""
    target: Float[Array, "I L"]
    """In the normaliser's units."""
    weight: Float[Array, "I L"]
    """1 where any agent is alive."""


class ActorBatch(NamedTuple):
    """The actors' training data."""

    step: Step
    """Normalised, without reward, discount and last."""
    x: Float[Array, "I L F"]
    weight: Float[Array, "I L"]
    carry: PyTree
    """Recurrent states before each item [items, N, H]."""


def joint(rows: Float[Array, "*b N A"], alive: Array) -> Float[Array, "*b N A"]:
    """Agents' actions as the critic reads them: dead agents' rows are zero."""
    return jnp.where(alive[..., None], rows, 0.0)


def adaptive_entropy(
    scale: EntropyScale, entropy: Float[Array, "*b N"], batch_entropy: Float[Array, ""]
) -> Float[Array, "*b N"]:
    """H / ⟨H⟩, whose gradient in an action's probability p is −(log p + 1) / H (Zhou et al. 2020, section 3.3)."""
    over = {"agent": entropy, "batch": batch_entropy, "none": jnp.ones(())}[scale]
    return entropy / jax.lax.stop_gradient(jnp.maximum(over, SMALLEST))


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """LICA for an environment with discrete actions.

    Raises:
        InputError: actions are continuous, the critic's input differs from agent to agent, minibatches or chunks do not
            divide the rollout, or an option is out of its range.
    """
    c, space = config, spec.action
    check_q_critic(c, scale)
    no_critic_network(c, "lica's critic mixes the agents' actions, and has the widths mixing_width and hyper_layers")
    if not isinstance(space, Discrete):
        raise InputError(f"lica mixes probabilities of discrete actions; {spec.name} has continuous ones.")
    source = critic_input(spec, c.critic_input, agent_id=False)
    if source.per_agent:
        raise InputError(
            f"lica has one critic for the team: critic_input must be 'concat' or 'state', not {c.critic_input!r}."
        )
    actor = make_actor(spec, c.network, policy_of(spec, c.sharing), c.agent_id, c.output_gain, c.log_std, c.squash)
    critic = mixing_critic(c.mixing, source.width, spec.num_agents, space.n, c.mixing_width, c.hyper_layers)
    values = make_value_scale(c.value_norm, c.value_norm_beta)
    actor_adam, critic_adam = make_optimisers(c, scale, actor.num_policies, 1, actor.init, critic.init)

    def init(key: PRNGKeyArray) -> Learner:
        key_actor, key_critic = jax.random.split(key)
        policy = Policy(actor.init(key_actor), init_inputs(spec, c.normalise_inputs))
        phi = critic.init(key_critic)
        optimisers = ByNet(actor_adam.init(policy.actor), critic_adam.init(phi))
        return Learner(policy, phi, optimisers, init_statistics(c, values.init(), phi), jnp.int32(0))

    def act(
        learner: Learner, carry: Carry, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[Carry, Array, dict[str, Array]]:
        after, action, extras = actor.act(learner.policy, carry.actor, step, key, greedy)
        return Carry(after, ()), action, extras

    def one_hot(action: Array, alive: Array) -> Array:
        return joint(jax.nn.one_hot(action, space.n), alive)

    def targets(learner: Learner, traj: Trajectory, outcome: Step, after: PyTree, key: PRNGKeyArray) -> Array:
        """y_t, in the rewards' units."""
        ahead = jax.tree.map(lambda x: x[None], outcome)
        u_next = next_action(actor.distribution(learner.policy.actor, after, ahead)[1], traj, key)
        q = critic.apply(learner.statistics.target, source.features(outcome), one_hot(u_next, traj.outcome.alive))
        q = values.denormalise(learner.statistics.value, q)
        q = of_a_living_team(q, traj.outcome.alive)
        return td_lambda(*team_reward(traj), q, traj.outcome.last, gamma=c.gamma, lam=c.lam)

    def critic_loss(phi: PyTree, part: CriticBatch) -> tuple[Array, Metrics]:
        q = critic.apply(phi, part.x, part.action)
        loss = jnp.sum(part.weight * clipped_value_loss(q, q, part.target, None, c.huber))
        return loss, {"value_loss": loss, "q": jnp.sum(part.weight * q)}

    def actor_loss(theta: PyTree, phi: PyTree, part: ActorBatch, xi: Array, batch_entropy: Array) -> tuple:
        """−J(θ), and its metrics."""
        step, x, weight = part.step, part.x, part.weight
        _, dist = actor.distribution(theta, part.carry, step)
        assert isinstance(dist, Categorical)
        q = critic.apply(phi, x, joint(dist.probabilities(), step.alive))  # Q_φ(s, π_θ¹, …, π_θⁿ)
        entropy = dist.entropy()
        bonus = xi * team_mean(adaptive_entropy(c.entropy_scale, entropy, batch_entropy), step.alive)
        metrics = {"policy_loss": -q, "entropy": team_mean(entropy, step.alive)}
        return -jnp.sum(weight * (q + bonus)), {name: jnp.sum(weight * m) for name, m in metrics.items()}

    def update(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        key_next, key_critic = jax.random.split(key)
        inputs, alive = learner.policy.inputs, traj.step.alive
        step, outcome = normalised(inputs, traj.step), normalised(inputs, traj.outcome)
        x, some = source.features(step), alive.any(-1)
        after, dist = actor.distribution(learner.policy.actor, traj.carry.actor, step)

        # THE CRITIC, FITTED TO λ-RETURNS
        y = targets(learner, traj, outcome, after, key_next)
        stats, _ = values.update(learner.statistics.value, None, y, some)
        learner = learner._replace(statistics=learner.statistics._replace(value=stats))
        y = values.normalise(stats, y)
        weight = some.astype(jnp.float32)
        rows = CriticBatch(x, one_hot(traj.action, alive), y, weight)
        learner, of_critic = fit_action_critic(c, critic_adam, critic_loss, learner, sgd.items(rows, 1), key_critic)

        # THE ACTORS, ALONG THE ONLINE CRITIC'S GRADIENT
        xi = entropy_coef(c, learner, scale)
        batch_entropy = mean(dist.entropy(), alive)
        chunk = c.chunk or 1
        starts = sgd.chunk_starts(traj.carry.actor, after, chunk)
        seen = step._replace(reward=(), discount=(), last=())  # type: ignore[arg-type]
        batch = ActorBatch(*sgd.items((seen, x, weight), chunk), starts)  # pyright: ignore[reportCallIssue]
        phi = learner.critic  # the online critic, a constant to the actors' loss
        loss = lambda theta, part: actor_loss(theta, phi, part, xi, batch_entropy)  # noqa: E731
        learner, of_actor = actor_step(c, actor_adam, loss, learner, batch)

        # END OF THE UPDATE
        return end_update(spec, c, scale, learner, traj, of_critic | of_actor)

    def value(learner: Learner, carry: Carry, step: Step, action: Array) -> Array:
        """Q(s, u), the team's."""
        q = critic.apply(learner.critic, source.features(step), one_hot(action, step.alive))
        q = values.denormalise(learner.statistics.value, q)
        return jnp.broadcast_to(q[..., None], step.alive.shape)

    unequal, inspect = on_unequal_rewards(spec), make_inspect(actor, value)
    return Algorithm(
        init, lambda num_envs: Carry(actor.initial_carry(num_envs), ()), act, update,
        unequal_rewards=unequal, learns_from="team", inspect=inspect, stochastic=True,
    )  # fmt: skip


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    if not isinstance(spec.action, Discrete):
        raise InputError(f"lica mixes probabilities of discrete actions; {spec.name} has continuous ones.")
    return actor_critic.make_policy(spec, config, unequal_rewards=on_unequal_rewards(spec), learns_from="team")
