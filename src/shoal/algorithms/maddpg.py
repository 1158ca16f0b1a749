"""MADDPG: multi-agent deep deterministic policy gradients (Lowe et al. 2017).

    ∇_{θ_i} J = E_{x,a~D}[ ∇ μ_i(o_i) ∇_{a_i} Q_i(x, a_1, …, a_N) |_{a_i = μ_i(o_i)} ]                    (eq. 5)
    min E[ (Q_i(x, a_1, …, a_N) − y_i)² ],   y_i = r_i + γ d_i Q_i'(x', μ_1'(o_1'), …, μ_N'(o_N'))          (eq. 6)

``policies="inferred"``: agent i does not know the others' policies but has a model of each,

    L(φ_i^j) = −E[ log μ̂_i^j(a_j | o_j) + λ H(μ̂_i^j) ]                       on the newest samples         (eq. 7)
    ŷ_i = r_i + γ d_i Q_i'(x', μ̂_i'^1(o_1'), …, μ_i'(o_i'), …, μ̂_i'^N(o_N'))                               (eq. 8)

``ensemble=K``: K sub-policies per agent, one drawn per episode; D_i^(k) holds the episodes that agent i's k-th played,

    ∇ J_e(μ_i^(k)) = 1/K E_{x,a~D_i^(k)}[ ∇ μ_i^(k)(o_i) ∇_{a_i} Q_i(x, a_1, …, a_N) |_{a_i = μ_i^(k)(o_i)} ]   (eq. 9)

A discrete action passes its gradient on as a Gumbel-softmax sample. One ring of moments holds every D_i^(k), each row
marked with the sub-policies that made it: a batch of K · B rows has B of each on average, and each sub-policy learns
from its own alone. The factor 1/K is left out: Adam would undo it.

Deviations from the authors' code: one-hot actions in the environment, the buffer and Q (``relaxation="soft"`` relaxes
those of the actors' gradient and the target only); gradients are clipped by the norm of a whole net; inferred policies
and ensembles are not in it. Equations, options and results: docs/algorithms/maddpg.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.bounds import Draws, Rate, Weight
from shoal.equations import normalise
from shoal.equations.distributions import Categorical
from shoal.equations.targets import count, follow, init_rewards, of_the_team, scaled
from shoal.learning import sgd
from shoal.learning.optimiser import optimiser
from shoal.learning.replay import as_trajectory, check_replay, make_replay, warmed_up
from shoal.models import deterministic
from shoal.models.deterministic import Policy, chosen, delayed, draw, make_actors, relax, virtual
from shoal.models.inferred_policies import infer, make_models
from shoal.models.joint_critic import Nets, Trained, make_critics, per_net, taken
from shoal.networks.input_statistics import init_inputs, normalised, update_inputs
from shoal.networks.sharing import policy_of
from shoal.types import Algorithm, Box, EnvSpec, Experience, Learner, Metrics, PyTree, Scale, Step, Trajectory


@dataclass(frozen=True)
class Config(deterministic.DpgConfig):
    """MADDPG's hyper-parameters. "Paper" is Lowe et al. 2017, "code" its repository (openai/maddpg)."""

    policies: Literal["true", "inferred"] = "true"
    """Whose target policies act in the target: the others' ``true`` ones, or ``inferred`` models of them."""
    model_learning_rate: Rate | None = None
    """Adam's step size for inferred models of the others; None for the actors'."""
    model_entropy_coef: Weight = 1e-3
    """λ: weight of the inferred models' entropy. Paper: 0.001."""
    ensemble: Draws = 1
    """K: sub-policies per agent, one of which it plays in an episode. Paper: 3."""


class Variant(NamedTuple):
    """Where MATD3 differs."""

    critics: int = 1
    """C: critics per agent."""
    judge: Callable[[Array], Array] = lambda q: q[..., 0]
    """What the target takes of C critics, [*b N C] -> [*b N]."""
    smooth: Callable[[Array, Array], Array] = lambda action, noise: action
    """(target actions in [-1, 1], standard normal noise) -> target actions; continuous ones only."""
    delay: int = 1
    """Critic steps per step of actors and targets."""


class Statistics(NamedTuple):
    """What the update keeps beside parameters."""

    target: Nets
    steps: Int[Array, ""]
    """Gradient steps so far."""
    reward: normalise.Running | tuple[()]
    """Of each agent's rewards, where they are normalised."""


class Batch(NamedTuple):
    """Rows of one gradient step, [B, L, ...]."""

    step: Step
    joint: Float[Array, "B L N N A"]
    """The actions taken, as each agent's critic reads them."""
    member: Int[Array, "B L N"] | tuple[()]
    target: Float[Array, "B L N"]
    noise: Float[Array, "B L N A"]
    weight: Float[Array, "B L N"]


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """MADDPG for any environment, cooperative or competitive.

    Raises:
        InputError: an option is out of its range, or asks for what the environment does not have.
    """
    return make_with(spec, config, scale, Variant())


def make_with(spec: EnvSpec, config: Any, scale: Scale, variant: Variant) -> Algorithm:
    """MADDPG with what a sibling changes; raises as :func:`make` does."""
    c, n, space = config, spec.num_agents, spec.action
    check_replay(c)
    index, members, inferred = policy_of(spec, c.sharing), c.ensemble, c.policies == "inferred"
    critics, models = make_critics(spec, c, index, variant.critics), make_models(spec, c) if inferred else None
    actors = make_actors(spec, c, index, members)
    steps, policies = scale.num_updates * c.gradient_steps, max(index) + 1

    def adam(rate: float, count: int, steps: int) -> Any:
        return optimiser(rate, c.lr_final, [max(1, steps)] * count, c.max_grad_norm, c.adam_eps)

    actor_adam = adam(c.learning_rate, policies * members, steps // variant.delay)
    critic_adam = adam(c.critic_rate, policies * variant.critics, steps)
    model_adam = adam(c.model_learning_rate or c.learning_rate, n * n, scale.num_updates)
    own_row = jnp.eye(n, dtype=bool)[..., None]

    def init(key: PRNGKeyArray) -> Learner:
        key_actor, key_critic, key_models = jax.random.split(key, 3)
        nets = Nets(actors.init(key_actor), critics.init(key_critic), models.init(key_models) if models else ())
        statistics = Statistics(jax.tree.map(jnp.array, nets), jnp.int32(0), init_rewards(c.reward_norm, (n,)))
        policy = Policy(nets.actor, init_inputs(spec, c.normalise_inputs), jnp.float32(c.noise))
        model_state = model_adam.init(nets.models) if models else ()
        optimisers = Nets(actor_adam.init(nets.actor), critic_adam.init(nets.critic), model_state)
        return Learner(policy, Trained(nets.critic, nets.models), optimisers, statistics, jnp.int32(0))

    def living(x: Array, step: Step) -> Array:
        return jnp.where(step.alive[..., None], x, 0.0)

    def next_actions(target: Nets, traj: Trajectory, member: Any, key: PRNGKeyArray) -> Float[Array, "L B N N A"]:
        """What agents do in the outcome, as each one's critic reads it: row i is agent i's view (eq. 6, 8)."""
        key_true, key_models = jax.random.split(key)
        outcome, ahead = traj.outcome, jax.tree.map(lambda x: x[None], traj.outcome)
        after = actors.output(target.actor, traj.carry, traj.step)[0] if jax.tree.leaves(traj.carry) else ()
        x = chosen(actors.output(target.actor, after, ahead)[1][0], member)
        noise = draw(space, key_true, x.shape)
        true = living(relax(space, c, x, outcome.legal, noise), outcome)
        joint = jnp.broadcast_to(true[..., None, :, :], (*x.shape[:-2], n, *x.shape[-2:]))
        if models:
            joint = jnp.where(own_row, joint, models.guess(target.models, outcome, key_models))
        if isinstance(space, Box):
            real = (outcome.legal & outcome.alive[..., None])[..., None, :, :]
            joint = jnp.where(real, variant.smooth(joint, noise[..., None, :, :]), 0.0)
        return joint

    def critic_loss(params: PyTree, part: Batch) -> tuple[Array, Metrics]:
        q = critics.values(params, part.step, part.joint)
        error = jnp.square(part.target[..., None] - q).sum(-1)  # (eq. 6)
        loss = (error * part.weight).sum()
        return loss, {"critic_loss": loss / policies, "q": (q[..., 0] * part.weight).sum() / policies}

    def actor_loss(params: PyTree, critic: PyTree, part: Batch) -> tuple[Array, Metrics]:
        start = actors.initial_carry(part.weight.shape[1]).actor
        x, legal = chosen(actors.output(params, start, part.step)[1], part.member), part.step.legal
        own = living(relax(space, c, x, legal, part.noise), part.step)
        joint = jnp.where(own_row, own[..., None, :, :], part.joint)
        q = critics.values(critic, part.step, joint)[..., 0]
        size = jnp.where(legal, jnp.square(x), 0.0).sum(-1) / jnp.maximum(legal.sum(-1), 1)
        metrics = {"policy_loss": -q, "logit_square": size}
        if not isinstance(space, Box):
            metrics["entropy"] = Categorical(x, legal).entropy()
        sums = {name: (y * part.weight).sum() for name, y in metrics.items()}
        loss = sums["policy_loss"] + c.logit_coef * sums["logit_square"]  # (eq. 5, 9)
        return loss, {name: y / (policies * members) for name, y in sums.items()}

    def gradient_step(learner: Learner, batch: tuple[Any, PRNGKeyArray]) -> tuple[Learner, Metrics]:
        sample, (key_target, key_actor) = batch[0], jax.random.split(batch[1])
        shape, inputs, stats = sample.first.shape, learner.policy.inputs, learner.statistics
        traj = as_trajectory(sample, actors.initial_carry(shape[1]).actor)
        traj = traj._replace(step=normalised(inputs, traj.step), outcome=normalised(inputs, traj.outcome))
        member, outcome = sample.extras.get("member", ()), traj.outcome
        # TARGETS
        joint = next_actions(stats.target, traj, member, key_target)
        value = variant.judge(critics.values(stats.target.critic, outcome, joint))
        reward = scaled(c.reward_norm, stats.reward, outcome.reward)
        value = of_the_team(value, outcome.alive, spec.shared_reward)
        y = reward + c.gamma * outcome.discount * value  # (eq. 6, 8)

        # CRITICS
        learned = traj.step.alive & warmed_up(c, shape)[..., None]
        noise = draw(space, key_actor, (*shape, n, space.width))
        weight = per_net(learned, jnp.array(index), policies)
        u = taken(spec, traj.action, traj.step)
        rows = sgd.items(Batch(traj.step, u, member, y, noise, weight), shape[0])
        gradient, metrics = sgd.gradient(critic_loss, learner.critic.q, rows, c.block)
        critic, critic_state, norm = critic_adam.step(gradient, learner.optimiser.critic, learner.critic.q)
        metrics["critic_grad_norm"] = norm
        done = stats.steps + 1

        # ACTORS AND TARGET NETWORKS
        own_net = jnp.array(virtual(index, members)).reshape(n, members)[:, 0]
        own_net = own_net if isinstance(member, tuple) else own_net + member
        rows = rows._replace(weight=sgd.items(per_net(learned, own_net, policies * members), shape[0]))

        def actor_step(actor: PyTree, state: PyTree, target: Nets) -> tuple[PyTree, PyTree, Nets, Metrics]:
            gradient, metrics = sgd.gradient(lambda p, part: actor_loss(p, critic, part), actor, rows, c.block)
            actor, state, norm = actor_adam.step(gradient, state, actor)
            target = follow(
                target,
                target._replace(actor=actor, critic=critic),
                done // variant.delay,
                c.target_interval,
                c.target_rate,
            )
            return actor, state, target, metrics | {"actor_grad_norm": norm}

        before = learner.policy.actor, learner.optimiser.actor, stats.target
        actor, actor_state, target, of_actors = delayed(actor_step, variant.delay, done, before)
        policy = learner.policy._replace(actor=actor)
        statistics = stats._replace(target=target, steps=done)
        state = learner.optimiser._replace(actor=actor_state, critic=critic_state)
        trained = learner.critic._replace(q=critic)
        return Learner(policy, trained, state, statistics, learner.updates), metrics | of_actors

    def played(learner: Learner, newest: Trajectory) -> Categorical | None:
        """The policies that acted, where they have probabilities."""
        if isinstance(space, Box):
            return None
        step = normalised(learner.policy.inputs, newest.step)
        x = actors.output(learner.policy.actor, newest.carry.actor, step)[1]
        return Categorical(chosen(x, newest.extras.get("member", ())), step.legal)

    def update(learner: Learner, experience: Experience, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        newest, stats, inferring = experience.newest, learner.statistics, {}
        policy = learner.policy._replace(inputs=update_inputs(spec, learner.policy.inputs, newest.step))
        stats = stats._replace(reward=count(stats.reward, newest.outcome.reward, newest.step.alive))
        learner = learner._replace(policy=policy, statistics=stats)
        if models:
            learner, inferring = infer(c, models, model_adam, learner, newest, played(learner, newest))
        keys = jax.random.split(key, c.gradient_steps)
        learner, metrics = jax.lax.scan(gradient_step, learner, (experience.samples, keys))
        learner = learner._replace(updates=learner.updates + 1)
        return learner, jax.tree.map(jnp.mean, metrics) | inferring

    replay = make_replay(
        c,
        sequences=bool(c.network.recurrent),
        state=c.critic_input == "state" or c.normalise_inputs,
        extras=("member",) if members > 1 else (),
        batch=c.batch_size * members,
    )
    return Algorithm(init, actors.initial_carry, actors.act, update, replay=replay)
