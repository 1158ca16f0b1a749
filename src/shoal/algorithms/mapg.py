"""MAPG: the multi-agent policy gradient with a choice of critic and baseline (Kuba et al. 2021).

    ∇J(θ^a) = E[ ∇ log π_{θ^a}(u^a | h^a) X̂^a ],    X̂^a = Q̂ − b              (Kuba et al. 2021, section 4.3)
    min_φ  E[ ½ (Q_φ − y)² ],    y from TD(λ) and a target network             (Foerster et al. 2018, section 4)

Q̂ is Q(s, u) of a centralised critic, or Q^a(o^a, u^a) of independent ones. The baseline b is one of

    0,    V(s),    Σ_u π(u) Q(s, u^{-a}, u) as in COMA,    E[Q ‖∇ log π‖²] / E[‖∇ log π‖²]      (Theorem 3)

Deviations from the authors' code: no probability is clamped; a time limit bootstraps; the critic is fitted in shuffled
minibatches; Q reads the observations and not the agents' last actions.
Theorems, options and results: docs/algorithms/mapg.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.bounds import Draws, Fraction, Part, Rate, Size, off
from shoal.equations import baselines
from shoal.equations.reduce import explained_variance, mean_and_std
from shoal.equations.returns import td_lambda
from shoal.equations.schedules import annealed
from shoal.equations.surrogate import huber
from shoal.equations.targets import cut_off, learned_from, mask_dead_values, team_mean, team_reward
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.learning.config import QCriticConfig
from shoal.learning.optimiser import ByNet
from shoal.learning.results import shaped
from shoal.models import actor_critic
from shoal.models.action_critic import (
    Options,
    actor_step,
    check_q_critic,
    fit_action_critic,
    init_statistics,
    make_action_critic,
    make_optimisers,
    needs_team,
    next_action,
)
from shoal.models.actor_critic import Carry, Policy, make_actor, make_actor_critic, make_critic
from shoal.models.on_policy import end_update, entropy_coef, make_inspect, scale_of_agents
from shoal.networks.inputs import init_inputs, normalised
from shoal.networks.sharing import policy_of
from shoal.types import Algorithm, Box, EnvSpec, Learner, Metrics, PyTree, Scale, Step, Trajectory

Baseline = Literal["none", "value", "counterfactual", "optimal"]


@dataclass(frozen=True)
class BaselineConfig(QCriticConfig):
    """Adds exploration by a mixture with the uniform policy, and the scale of advantages."""

    epsilon: Part = 0.0
    """Initial ε of a discrete policy: π(u) = (1 − ε) softmax(z)_u + ε / n over the n legal actions. With 1 there is no
    gradient."""
    epsilon_final: Part = 0.0
    """Final ε; 0 with ``epsilon`` 0 for a plain softmax."""
    epsilon_fraction: Fraction = 0.1
    """Fraction of the run over which ε changes linearly from its initial to its final value."""
    scale_advantage: bool = False
    """Divide advantages by their standard deviation over the batch, so that entropy_coef is in fixed units."""


@dataclass(frozen=True)
class Config(BaselineConfig):
    """MAPG's hyper-parameters. "Paper" is Foerster et al. 2018, whose settings Kuba et al. 2021 keep."""

    lam: Fraction = 0.8
    """λ of the critic's TD(λ) targets. Paper: 0.8."""
    learning_rate: Rate = 5e-4
    """Adam's step size for actors. Paper: 5e-4 (RMSprop)."""
    target_interval: Size = 200
    """C: critic steps between copies of the critic to the target network, if ``target_rate`` is None. Paper: 150; code:
    200."""
    critic: Literal["centralised", "independent"] = "centralised"
    """Q(s, u) of the team's reward, or each agent's Q^a(o^a, u^a) of its own reward (critic_input is then not used)."""
    baseline: Baseline = "optimal"
    """b: zero, a learned V(s), COMA's counterfactual baseline, or the one of least variance."""
    draws: Draws = 16
    """K: own actions drawn per timestep for the last two baselines, if actions are continuous."""


def advantage_over(baseline: Baseline, q: Array, options: Options, v: Array | float = 0.0) -> Float[Array, "T E N"]:
    """X̂ = Q̂ − b of each agent's action (Kuba et al. 2021, section 4.3)."""
    if baseline == "value":
        return q - v
    return q if baseline == "none" else q - baseline_of(baseline, options)


def baseline_of(baseline: Baseline, options: Options) -> Float[Array, "T E N"]:
    """b of each agent, counterfactual or optimal, in the units of ``options.q``."""
    if baseline == "counterfactual":
        return baselines.counterfactual(options.q, options.p)
    return baselines.optimal(options.q, options.p, options.square)


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """MAPG for an environment.

    Raises:
        InputError: minibatches or chunks do not divide the rollout, the critic input does not exist or does not fit
            the critic, ε is given for continuous actions, or an option is out of its range.
    """
    config = with_input(config)
    advantage = partial(advantage_over, config.baseline)
    return make_policy_gradient(spec, config, scale, advantage, config.baseline == "value", config.draws)


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    return make_policies(spec, with_input(config))


def with_input(config: Config) -> Config:
    """The options with the ``critic_input`` of an independent critic, which is ``local``.

    Raises:
        InputError: that of a centralised one is.
    """
    if config.critic == "independent":
        return replace(config, critic_input="local")
    needs_team(config.critic_input)
    return config


class Critics(NamedTuple):
    """Parameters of the critics."""

    q: PyTree
    v: PyTree
    """Of V(s); None without it."""


class CriticBatch(NamedTuple):
    """The critic's training data; leaves [items, 1, N ...]."""

    step: Step
    action: Array
    target: Array
    """y, in the normaliser's units."""
    weight: Array


class ActorBatch(NamedTuple):
    """The actors' training data; leaves [items, L, N ...], the carry [items, N, H]."""

    step: Step
    action: Array
    advantage: Array
    weight: Array
    carry: PyTree


Advantage = Callable[[Array, Options, Array | float], Array]
"""(Q of the joint action [T, E, N], every agent's options, V or 0), in rewards' units -> advantages."""


def make_policy_gradient(
    spec: EnvSpec, c: BaselineConfig, scale: Scale, advantage: Advantage, with_value: bool = False, draws: int = 1
) -> Algorithm:
    """The policy gradient with any advantage; a ``critic_input`` of ``local`` makes the critics independent."""
    check_q_critic(c, scale)
    explores = check_exploration(spec, c)
    index, central, body = policy_of(spec, c.sharing), c.critic_input != "local", replace(c.critic_body, recurrent=None)
    actor = make_actor(spec, c.network, index, c.agent_id, c.output_gain, c.log_std, c.squash)
    owner = (0,) * spec.num_agents if central else index
    critic = make_action_critic(spec, body, c.critic_input, owner, c.agent_id)
    state_value = make_critic(spec, body, c.critic_input, owner, central or c.agent_id)
    nets = make_actor_critic(actor, state_value)
    values = scale_of_agents(c.value_norm, critic.group_of, c.value_norm_beta)
    made = lambda q, v: Critics(critic.init(q), state_value.init(v) if with_value else None)  # noqa: E731
    inits = actor.init, lambda key: made(key, key)
    adam, critic_adam = make_optimisers(c, scale, actor.num_policies, critic.num_nets, *inits)

    def epsilon_after(updates: Array) -> Array | None:
        """ε after a number of updates."""
        by_now = annealed(c.epsilon, c.epsilon_final, c.epsilon_fraction, updates, scale.num_updates)
        return by_now if explores else None

    def init(key: PRNGKeyArray) -> Learner:
        key_actor, key_q, key_v = jax.random.split(key, 3)
        policy = Policy(actor.init(key_actor), init_inputs(spec, c.normalise_inputs), epsilon_after(jnp.int32(0)))
        critics = made(key_q, key_v)
        optimisers = ByNet(adam.init(policy.actor), critic_adam.init(critics))
        return Learner(policy, critics, optimisers, init_statistics(c, values.init(), critics), jnp.int32(0))

    def targets(learner: Learner, traj: Trajectory, after: PyTree, key: PRNGKeyArray) -> Array:
        """y [T, E, N]: one for the team under a centralised critic, every agent's own under independent ones."""
        out, kept = traj.outcome, learner.statistics
        policy, outcome = learner.policy, normalised(learner.policy.inputs, out)
        ahead = jax.tree.map(lambda x: x[None], outcome)
        pi = actor.distribution(policy.actor, after, ahead, policy.epsilon)[1]
        next_q = critic.taken(kept.target.q, outcome, next_action(pi, traj, key))
        next_q = values.denormalise(kept.value, next_q)
        if not central:
            next_q = mask_dead_values(next_q, out.alive, spec.reward_groups)
            return td_lambda(out.reward, out.discount, next_q, cut_off(traj), gamma=c.gamma, lam=c.lam)
        team = team_mean(next_q, out.alive)
        y = td_lambda(*team_reward(traj), team, out.last, gamma=c.gamma, lam=c.lam)
        return jnp.broadcast_to(y[..., None], next_q.shape)

    def critic_loss(params: Critics, part: CriticBatch) -> tuple[Array, Metrics]:
        outputs = [critic.taken(params.q, part.step, part.action)]
        if with_value:
            outputs.append(state_value.values(params.v, (), part.step)[1])
        error = [x - part.target for x in outputs]
        losses = [0.5 * jnp.square(e) if c.huber is None else huber(e, c.huber) for e in error]
        loss = jnp.sum(part.weight * sum(losses))
        return loss, {"value_loss": loss}

    def update(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        key_next, key_fit, key_draws = jax.random.split(key, 3)
        policy, kept, alive = learner.policy, learner.statistics, traj.step.alive
        step = normalised(policy.inputs, traj.step)._replace(reward=(), discount=(), last=())  # type: ignore[arg-type]
        weight, epsilon = alive.astype(jnp.float32), policy.epsilon if explores else 0.0
        after, pi = actor.distribution(policy.actor, traj.carry.actor, step, policy.epsilon)

        # THE CRITIC, FITTED TO λ-RETURNS
        y = targets(learner, traj, after, key_next)
        before = values.denormalise(kept.value, critic.taken(learner.critic.q, step, traj.action))
        stats, _ = values.update(kept.value, None, y, alive)
        learner = learner._replace(statistics=kept._replace(value=stats))
        batch = CriticBatch(*sgd.items((step, traj.action, values.normalise(stats, y), weight), 1))
        learner, metrics = fit_action_critic(c, critic_adam, critic_loss, learner, batch, key_fit, critic.group_of)

        # ADVANTAGES X̂ = Q̂ − b, IN UNITS OF REWARD
        reward = lambda x: values.denormalise(stats, x)  # noqa: E731
        q = reward(critic.taken(learner.critic.q, step, traj.action))
        options = critic.options(learner.critic.q, step, traj.action, pi, key_draws, draws, epsilon)
        options = options._replace(q=jnp.moveaxis(reward(jnp.moveaxis(options.q, -1, 0)), 0, -1))
        v = reward(state_value.values(learner.critic.v, (), step)[1]) if with_value else 0.0
        x = shaped("What advantage returns", advantage(q, options, v), q.shape, "[T, E, N]")
        spread = mean_and_std(x, alive)[1]
        others = jnp.square(options.q - (q - x)[..., None])  # X̂² of each of the agent's own actions
        square = mean_and_std(baselines.counterfactual(others * options.square, options.p), alive)[0]

        # THE POLICY GRADIENT
        chunk, sigma = c.chunk or 1, entropy_coef(c, learner, scale)
        rows = step, traj.action, x / (spread + 1e-5) if c.scale_advantage else x, weight
        starts = sgd.chunk_starts(traj.carry.actor, after, chunk)

        def loss(theta: PyTree, part: ActorBatch) -> tuple[Array, Metrics]:
            """−E[log π(u^a | h^a) X̂^a + σ S(π)]."""
            _, pi = actor.distribution(theta, part.carry, part.step, policy.epsilon)
            gain, entropy = pi.log_prob(part.action) * part.advantage, pi.entropy()
            metrics = {"policy_loss": -gain, "entropy": entropy}
            total = -jnp.sum(part.weight * (gain + sigma * entropy))
            return total, {name: jnp.sum(part.weight * x) for name, x in metrics.items()}

        actor_batch = ActorBatch(*sgd.items(rows, chunk), starts)  # pyright: ignore[reportCallIssue]
        learner, of_actor = actor_step(c, adam, loss, learner, actor_batch, actor.policy_of)

        # END OF THE UPDATE
        metrics |= of_actor | {"advantage_std": spread, "gradient_square": square}
        metrics["explained_variance"] = explained_variance(y - before, y, alive)
        metrics |= {"epsilon": jnp.float32(epsilon)} if explores else {}
        learner, metrics = end_update(spec, c, scale, learner, traj, metrics)
        return learner._replace(policy=learner.policy._replace(epsilon=epsilon_after(learner.updates))), metrics

    def value(learner: Learner, carry: Carry, step: Step, action: Array) -> Array:
        """V(s), or without it Q(s, u)."""
        phi = learner.critic
        v = state_value.values(phi.v, (), step)[1] if with_value else critic.taken(phi.q, step, action)
        return mask_dead_values(
            values.denormalise(learner.statistics.value, v),
            step.alive,
            (0,) * spec.num_agents if central else spec.reward_groups,
        )

    return Algorithm(
        init,
        nets.initial_carry,
        nets.act,
        update,
        inspect=make_inspect(actor, value),
        stochastic=True,
        **learned_from(spec, central),
    )


def make_policies(spec: EnvSpec, c: BaselineConfig) -> Algorithm:
    """The policies of :func:`make_policy_gradient`, for acting only."""
    epsilon = jnp.float32(c.epsilon) if check_exploration(spec, c) else None
    return actor_critic.make_policy(spec, c, epsilon, keys=3, **learned_from(spec, c.critic_input != "local"))


def check_exploration(spec: EnvSpec, c: BaselineConfig) -> bool:
    """Whether there is an ε.

    Raises:
        InputError: there is one for continuous actions.
    """
    explores = not (off(c.epsilon) and off(c.epsilon_final))
    if explores and isinstance(spec.action, Box):
        raise InputError(f"epsilon mixes discrete actions evenly; {spec.name} has continuous ones: leave it at 0.")
    return explores
