"""MADDPG: multi-agent deep deterministic policy gradients (Lowe et al. 2017).

    ∇_{θ_i} J = E_{x,a~D}[ ∇ μ_i(o_i) ∇_{a_i} Q_i(x, a_1, …, a_N) |_{a_i = μ_i(o_i)} ]                    (eq. 5)
    min E[ (Q_i(x, a_1, …, a_N) − y_i)² ],   y_i = r_i + γ d_i Q_i'(x', μ_1'(o_1'), …, μ_N'(o_N'))          (eq. 6)

Gradients pass through discrete actions as Gumbel-softmax samples. Section 4's extensions are in other files: inferred
``policies`` (4.2, :mod:`shoal.algorithms.inferred_policies`), and an ``ensemble`` of K sub-policies per agent, each
trained on the episodes in which it acted (4.3, :func:`shoal.models.deterministic.make_ensemble`).

Deviations from the authors' code: one-hot actions in the environment, the buffer and Q (``relaxation="soft"`` relaxes
those of the actors' gradient and the target only); gradients are clipped by the norm of a whole net; inferred policies
and ensembles are not in it. Equations, options and results: docs/algorithms/maddpg.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.bounds import LARGEST_INT, Bounds, Draws, Fraction, Index, Positive, Rate, Size, Weight
from shoal.equations.distributions import Categorical
from shoal.equations.targets import mask_dead_values, normalise_reward, update_target
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.learning.config import ExplorationConfig
from shoal.learning.optimiser import ByNet, Optimiser, frozen_parameters, optimiser
from shoal.learning.replay import (
    ReplayConfig,
    after_burn_in,
    as_trajectory,
    check_replay,
    count_rollout,
    init_targets,
    make_replay,
    state_names,
    warmed_up,
    with_state,
)
from shoal.models.actor_critic import acting_only
from shoal.models.deterministic import (
    Actors,
    Carry,
    DeterministicPolicy,
    delayed,
    draw_noise,
    end_update,
    gumbel_actions,
    init_policy,
    make_actors,
    make_critics,
    make_ensemble,
    make_inspect_critics,
    per_net,
    taken,
)
from shoal.networks.body import Body
from shoal.networks.inputs import normalised
from shoal.networks.sharing import Sharing, policy_of
from shoal.types import Algorithm, Box, Discrete, EnvSpec, Experience, Learner, Metrics, PyTree, Scale, Step, Trajectory


@dataclass(frozen=True)
class Config(ReplayConfig, ExplorationConfig):
    """MADDPG's hyper-parameters. "Paper" is Lowe et al. 2017, "code" its repository (openai/maddpg)."""

    sharing: Sharing | tuple[Index, ...] = "independent"
    """Which agents share actor and critic: ``independent``, ``role``, ``shared``, or a vector. Paper: independent."""
    network: Body = field(default_factory=lambda: Body(activation="relu"))
    """Layers of actors and critics; only actors can have a GRU. Paper: 64, 64, relu."""
    gamma: Fraction = 0.95
    """Discount γ per step. Paper: 0.95."""
    learning_rate: Rate = 1e-2
    """Adam's step size for actors. Paper: 0.01."""
    max_grad_norm: Positive | None = 0.5
    """Largest gradient norm of one actor or critic. Code: 0.5, of every array separately."""
    batch_size: Size = 1024
    """Transitions per gradient step and sub-policy. Paper: 1024."""
    buffer_size: Size = 500_000
    """Capacity of the replay buffer in environment steps. Paper: 10⁶."""
    learning_starts: Annotated[int, Bounds(least=0, most=LARGEST_INT)] = 25_600
    """Environment steps before the first gradient step. Code: 1024 episodes of 25."""
    target_rate: Fraction | None = 0.01
    """τ: target networks move by this fraction at each gradient step of the actors. Paper: 0.01."""
    relaxation: Literal["straight_through", "soft"] = "straight_through"
    """How gradients pass through discrete actions: one-hot samples with the gradient of the relaxed samples, or the
    relaxed samples themselves. Code: soft, and soft in the environment too."""
    temperature: Annotated[float, Bounds(least=1e-3, most=1e3)] = 1.0
    """τ of the Gumbel-softmax. Code: 1."""
    logit_coef: Weight = 1e-3
    """Weight of the mean square of the actors' outputs, which keeps them and Q from diverging. Code: 1e-3."""
    critic_input: Literal["concat", "state", "local"] = "concat"
    """What Q^i reads in addition to actions: ``concat`` all observations, ``state``; or ``local``, only its agent's
    observation and action, which is DDPG. Paper: concat."""
    local_roles: tuple[Index, ...] = ()
    """Roles with local critics, for example for DDPG prey against MADDPG predators. Of one side, or beside frozen
    opponents, they are counted from 0 among the agents that this algorithm trains."""

    policies: Literal["true", "inferred"] = "true"
    """Policies of the other agents in targets: their ``true`` target policies, or ``inferred`` models of them."""
    model_learning_rate: Rate | None = None
    """Adam's step size for inferred models of the others; None for the actors'."""
    model_entropy_coef: Weight = 1e-3
    """λ: weight of the inferred models' entropy. Paper: 0.001."""
    ensemble: Draws = 1
    """K: sub-policies per agent, one of which acts in each episode. Paper: 3."""


class Variant(NamedTuple):
    """The differences of MATD3."""

    critics: int = 1
    """C: critics per agent; targets take the least value, actors the gradient of the first."""
    smooth: Callable[[Array, Array], Array] = lambda action, noise: action
    """(target actions in [-1, 1], standard normal noise) -> target actions; continuous ones only."""
    delay: int = 1
    """Critic steps per step of actors and targets."""


PLAIN = Variant()


class JointBatch(NamedTuple):
    """Rows of one gradient step, [B, L, ...]."""

    step: Step
    joint: Float[Array, "B L N N A"]
    """The actions taken, as each agent's critic reads them."""
    extras: dict[str, Array]
    target: Float[Array, "B L N"]
    noise: Float[Array, "B L N A"]
    weight: Float[Array, "B L N"]
    carry: PyTree
    """Recurrent states of the actors before the rows [B, N, H]."""


Others = Callable[[Step, PRNGKeyArray], Float[Array, "L B N N A"]]
"""(normalised outcome [L B ...], key) -> row i: the others' actions in the outcome by agent i's models."""


def make_nets(spec: EnvSpec, c: Config) -> Actors:
    """Every agent's policy, or ``ensemble`` of sub-policies.

    Raises:
        InputError: continuous actions have no finite box.
    """
    nets = spec, c.network, policy_of(spec, c.sharing), c.agent_id
    return make_ensemble(*nets, c.ensemble) if c.ensemble > 1 else make_actors(*nets)


def make(spec: EnvSpec, config: Config, scale: Scale, variant: Variant = PLAIN) -> Algorithm:
    """MADDPG for any environment, cooperative or competitive.

    Raises:
        InputError: an option is out of its range, or needs what the environment does not have.
    """
    check_replay(config)
    if config.policies != "true":
        raise InputError("policies 'inferred' needs shoal.algorithms.get('maddpg').make in place of maddpg.make.")
    c, n, space, index = config, spec.num_agents, spec.action, policy_of(spec, config.sharing)
    policies, steps = max(index) + 1, scale.num_updates * c.gradient_steps
    actors = make_nets(spec, c)
    critics = make_critics(
        spec, c.critic_body, index, c.agent_id, kind=c.critic_input, local_roles=c.local_roles, count=variant.critics
    )

    frozen = frozen_parameters(c, actors.init, critics.init)

    def adam(rate: float, nets: int, steps: int, frozen: frozenset[str]) -> Optimiser:
        return optimiser(rate, c.lr_final, [max(1, steps)] * nets, c.max_grad_norm, c.adam_eps, frozen)

    actor_adam = adam(c.learning_rate, actors.num_nets, steps // variant.delay, frozen.actor)
    critic_adam = adam(c.critic_rate, policies * variant.critics, steps, frozen.critic)
    own_row = jnp.eye(n, dtype=bool)[..., None]

    def init(key: PRNGKeyArray) -> Learner:
        key_actor, key_critic, _ = jax.random.split(key, 3)
        nets = ByNet(actors.init(key_actor), critics.init(key_critic))
        noted = ["policy_loss", "logit_square", "actor_grad_norm", *([] if isinstance(space, Box) else ["entropy"])]
        statistics = init_targets(nets, c.reward_norm, (n,), noted if variant.delay > 1 else ())
        policy = init_policy(spec, c, nets.actor)
        state = ByNet(actor_adam.init(nets.actor), critic_adam.init(nets.critic))
        return Learner(policy, nets.critic, state, statistics, jnp.int32(0))

    def action_of(x: Array, step: Step, noise: Array) -> Array:
        hard = c.relaxation == "straight_through"
        return gumbel_actions(space, x, step.legal, step.alive, noise, temperature=c.temperature, straight_through=hard)

    def next_actions(theta: PyTree, traj: Trajectory, key: PRNGKeyArray, others: Others | None) -> Array:
        """The target policies' joint actions in the outcomes [L, B, N, N, A]: row i is what agent i's critic reads."""
        key_true, key_others = jax.random.split(key)
        ahead, extras = jax.tree.map(lambda x: x[None], (traj.outcome, traj.extras))
        after = actors.output(theta, traj.carry, traj.step, traj.extras)[0] if jax.tree.leaves(traj.carry) else ()
        x = actors.output(theta, after, ahead, extras)[1][0]
        noise = draw_noise(space, key_true, x.shape)
        true = action_of(x, traj.outcome, noise)
        joint = jnp.broadcast_to(true[..., None, :, :], (*x.shape[:-2], n, *x.shape[-2:]))
        if others is not None:
            joint = jnp.where(own_row, joint, others(traj.outcome, key_others))
        if isinstance(space, Box):
            real = (traj.outcome.legal & traj.outcome.alive[..., None])[..., None, :, :]
            joint = jnp.where(real, variant.smooth(joint, noise[..., None, :, :]), 0.0)
        return joint

    def critic_loss(params: PyTree, part: JointBatch) -> tuple[Array, Metrics]:
        q = critics.values(params, part.step, part.joint)
        error = jnp.square(part.target[..., None] - q).sum(-1)  # (eq. 6)
        loss = (error * part.weight).sum()
        return loss, {"critic_loss": loss / policies, "q": (q[..., 0] * part.weight).sum() / policies}

    def actor_loss(params: PyTree, critic: PyTree, part: JointBatch) -> tuple[Array, Metrics]:
        legal = part.step.legal
        x = after_burn_in(actors.output, c.burn_in, params, part.carry, part.step, part.extras)[1]
        joint = jnp.where(own_row, action_of(x, part.step, part.noise)[..., None, :, :], part.joint)
        q = critics.first(critic, part.step, joint)
        size = jnp.where(legal, jnp.square(x), 0.0).sum(-1) / jnp.maximum(legal.sum(-1), 1)
        metrics = {"policy_loss": -q, "logit_square": size}
        if not isinstance(space, Box):
            metrics["entropy"] = Categorical(x, legal).entropy()
        sums = {name: (y * part.weight).sum() for name, y in metrics.items()}
        loss = sums["policy_loss"] + c.logit_coef * sums["logit_square"]  # (eq. 5, 9)
        return loss, {name: y / actors.num_nets for name, y in sums.items()}

    def gradient_step(learner: Learner, sample: PyTree, key: PRNGKeyArray, others: Any) -> tuple[Learner, Metrics]:
        key_target, key_actor = jax.random.split(key)
        shape, inputs, stats = sample.first.shape, learner.policy.inputs, learner.statistics
        traj = as_trajectory(sample, actors.initial_carry(shape[1]).actor)
        traj = traj._replace(step=normalised(inputs, traj.step), outcome=normalised(inputs, traj.outcome))
        out, done = traj.outcome, stats.steps + 1

        # TARGETS
        joint = next_actions(stats.target.actor, traj, key_target, others)
        value = critics.values(stats.target.critic, out, joint).min(-1)
        reward = normalise_reward(c.reward_norm, stats.reward, out.reward)
        y = reward + c.gamma * out.discount * mask_dead_values(value, out.alive, spec.reward_groups)  # (eq. 6, 8)

        # CRITICS
        learned = traj.step.alive & warmed_up(c, shape)[..., None]
        noise = draw_noise(space, key_actor, (*shape, n, space.width))
        weight = per_net(learned, jnp.array(index), policies)
        u = taken(spec, traj.action, traj.step)
        rows = sgd.items(JointBatch(traj.step, u, traj.extras, y, noise, weight, ()), shape[0])
        rows = rows._replace(carry=traj.carry)
        gradient, metrics = sgd.gradient(critic_loss, learner.critic, rows, c.block)
        critic, critic_state, norm = critic_adam.step(gradient, learner.optimiser.critic, learner.critic)

        # ACTORS AND TARGET NETWORKS
        weight = per_net(learned, actors.net_of(traj.extras), actors.num_nets)
        rows = rows._replace(weight=sgd.items(weight, shape[0]))

        def actor_step(actor: PyTree, state: PyTree, target: ByNet) -> tuple[PyTree, PyTree, ByNet, Metrics]:
            gradient, metrics = sgd.gradient(lambda p, part: actor_loss(p, critic, part), actor, rows, c.block)
            actor, state, norm = actor_adam.step(gradient, state, actor)
            nets, steps = ByNet(actor, critic), done // variant.delay
            target = update_target(target, nets, steps, c.target_interval, c.target_rate)
            return actor, state, target, metrics | {"actor_grad_norm": norm}

        before = learner.policy.actor, learner.optimiser.actor, stats.target
        actor, actor_state, target, of_actors = delayed(actor_step, variant.delay, done, before, stats.noted)
        stats = stats._replace(target=target, steps=done, noted=of_actors if stats.noted else {})
        policy, state = learner.policy._replace(actor=actor), ByNet(actor_state, critic_state)
        learner = Learner(policy, critic, state, stats, learner.updates)
        return learner, metrics | of_actors | {"critic_grad_norm": norm}

    def update(
        learner: Learner, experience: Experience, key: PRNGKeyArray, others: Others | None = None
    ) -> tuple[Learner, Metrics]:
        # RUNNING STATISTICS OF THE NEWEST ROLLOUT
        learner = observe(learner, experience.newest)

        # GRADIENT STEPS
        turns = experience.samples, jax.random.split(key, c.gradient_steps)
        learner, metrics = jax.lax.scan(lambda learner, turn: gradient_step(learner, *turn, others), learner, turns)
        return end_update(learner, c, scale.num_updates), jax.tree.map(jnp.mean, metrics)

    sequences, state = bool(c.network.recurrent), c.critic_input == "state" or c.normalise_inputs
    kept = state_names(c, actors.initial_carry(1).actor)
    replay = make_replay(c, sequences=sequences, state=state, extras=(*actors.extras, *kept), shares=c.ensemble)
    act = with_state(actors.act, lambda carry: carry.actor) if kept else actors.act
    inspect = make_inspect_critics(spec, actors, critics, c.reward_norm)
    observe = count_rollout(spec, c, team=False)
    return Algorithm(
        init, actors.initial_carry, act, update,
        replay=replay, inspect=inspect, observe=observe, **facts(spec, c),
    )  # fmt: skip


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    check_replay(config)
    c, actors = config, make_nets(spec, config)

    def init(key: PRNGKeyArray) -> DeterministicPolicy:
        return init_policy(spec, c, actors.init(jax.random.split(key, 3)[0]))

    def inspect(
        learner: Learner, carry: Carry, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        del action
        return actors.inspect(learner, carry, step, extras)

    return acting_only(init, actors.initial_carry, actors.act, inspect=inspect, **facts(spec, c))


def facts(spec: EnvSpec, c: Config) -> dict[str, Any]:
    """Fields of :class:`shoal.types.Algorithm`: discrete actions are drawn from relaxed distributions, continuous ones
    are deterministic but for their noise."""
    return {"learns_from": learns_from(c), "stochastic": isinstance(spec.action, Discrete)}


def learns_from(c: Config) -> Literal["own", "others"]:
    """``Algorithm.learns_from``: by its critics' input."""
    return "own" if c.critic_input == "local" else "others"
