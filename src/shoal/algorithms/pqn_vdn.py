"""PQN-VDN: Q-learning without a replay buffer and without target networks (Gallici et al. 2025), on VDN's sum.

    Q_tot(s, u; θ) = Σ_i Q_i(τ^i, u^i; θ)                                                 (Sunehag et al. 2018, eq. 1)
    G_t = r_t + γ d_t [ (1 − λ) max_u' Q_tot(s_{t+1}, u'; θ) + λ G_{t+1} ]           (Gallici et al. 2025, algorithm 1)
    min_θ  E[ (G_t − Q_tot(s_t, u_t; θ))² ]

The newest rollout of many environments is used for a few epochs, then discarded; layer normalisation in place of target
networks keeps θ from diverging. Feed-forward nets learn from targets that are computed once per rollout, by the θ that
acted. Recurrent nets recompute them in every minibatch by the current θ, over whole rollouts that begin with the
recurrent state of acting. IPQN is this file with another :class:`Mixer`.

Deviations from the authors' code (purejaxql, JaxMARL): a time limit bootstraps, and so does the last step, on its own
outcome; the recurrent code has no outcomes, so its last step only bootstraps and is trained with the next rollout's
window; a dead agent's utility is 0, not the Q of what it observes; layer normalisation follows each activation; no
batch normalisation (``normalise_inputs`` for that of the inputs) and no dueling head.
Equations, options and results: docs/algorithms/pqn.md.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.algorithms.vdn import MIX
from shoal.bounds import Count, Fraction, Positive, Rate, Tiny
from shoal.equations.returns import td_lambda
from shoal.equations.schedules import annealed
from shoal.equations.targets import learned_from, target_parts
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.learning.config import AgentConfig, check_discrete, check_options
from shoal.learning.optimiser import ByNet, frozen_parameters, optimiser, step_of_both
from shoal.models import utilities
from shoal.models.actor_critic import Policy
from shoal.models.utilities import (
    Mixer,
    epsilon_greedy,
    greedy_action,
    make_inspect_utilities,
    make_utilities,
    next_utilities,
    utilities_in_turns,
)
from shoal.networks.body import Body
from shoal.networks.inputs import init_inputs, normalised, update_inputs
from shoal.networks.sharing import policy_of
from shoal.types import Algorithm, EnvSpec, Learner, Metrics, PyTree, Scale, Step, Trajectory


@dataclass(frozen=True)
class Config(AgentConfig):
    """PQN's hyper-parameters. "SMAX" and "MPE" are the settings of JaxMARL's code for these environments."""

    network: Body = field(default_factory=lambda: Body(hidden=(128, 128), activation="relu", layer_norm=True))
    """Layers of the utilities' net. SMAX: 512, 512 and a GRU of 512, batch normalisation; MPE: 256, 256."""
    gamma: Fraction = 0.99
    """Discount γ per step. SMAX: 0.99; MPE: 0.9."""
    lam: Fraction = 0.85
    """λ of the targets. SMAX: 0.85; MPE: 0.3."""
    learning_rate: Rate = 5e-4
    """RAdam's step size. SMAX: 2.5e-4; MPE: 5e-4."""
    lr_final: Fraction = 0.0
    """The learning rate changes linearly to this fraction of itself over the run. SMAX: 0; MPE: 1."""
    adam_eps: Tiny = 1e-8
    """RAdam's ε. Code: 1e-8."""
    max_grad_norm: Positive | None = 1.0
    """Largest gradient norm of one policy; None for no clip. SMAX and MPE: 1."""
    epochs: Count = 4
    """Passes over each rollout. SMAX and MPE: 4."""
    minibatches: Count = 16
    """Gradient steps per pass; for a recurrent net, they must divide the environments. SMAX and MPE: 16."""
    epsilon: Fraction = 1.0
    """ε of ε-greedy exploration at the start. SMAX and MPE: 1."""
    epsilon_final: Fraction = 0.05
    """ε at the end. SMAX: 0.01; MPE: 0.1."""
    epsilon_fraction: Fraction = 0.1
    """Fraction of the updates over which ε decreases linearly. SMAX and MPE: 0.1."""
    explore_in_evaluation: bool = False
    """Whether policies also act with ε when they are evaluated and deployed, where that scores better than their greedy
    actions (docs/evaluation.md). EPyMARL's evaluation_epsilon; where agents can block each other, greedy policies may
    never leave a cycle."""


class Batch(NamedTuple):
    """What the loss reads, cut into items [items, L, ...]: single timesteps, or whole rollouts of a recurrent net."""

    step: Step
    action: Int[Array, "B L N"]
    outcome: Any
    """A :class:`Step`, from which a recurrent net's targets are computed; otherwise empty."""
    target: Any
    """G [B, L], or [B, L, N] where agents learn independently; empty for a recurrent net."""
    weight: Float[Array, "B L ..."]
    carry: PyTree
    """The recurrent state before each item, [items, N, H]."""


def make(spec: EnvSpec, config: Config, scale: Scale, mixer: Mixer = MIX) -> Algorithm:
    """PQN for an environment with discrete actions.

    Args:
        spec: the environment's description.
        config: hyper-parameters.
        scale: sizes of the run.
        mixer: the value of a joint action from the agents' utilities; a sum by default.

    Raises:
        InputError: actions are continuous, minibatches do not divide the rollout, an option is out of its range, or the
            mixer has constraints, random numbers or a step size of its own.
    """
    c, recurrent = config, bool(config.network.recurrent)
    check_options(c)
    if not (mixer.constraints is mixer.draw is mixer.learning_rate is None):
        raise InputError(
            "PQN's mixer cannot have constraints, random numbers or a step size of its own: use qmix.make."
        )
    check_discrete(spec)
    sgd.check_items(scale, c.minibatches, scale.rollout_length if recurrent else None)
    index = policy_of(spec, c.sharing)
    net, q = make_utilities(spec, c.network, index, c.agent_id)
    acting = utilities_in_turns(spec, c.network, index, c.agent_id)
    steps, frozen = scale.num_updates * c.epochs * c.minibatches, frozen_parameters(c, net.init, mixer.init)
    policies, clip, eps = max(index) + 1, c.max_grad_norm, c.adam_eps
    radam = optimiser(c.learning_rate, c.lr_final, [steps] * policies, clip, eps, frozen.actor, rectified=True)
    mixer_radam = optimiser(c.learning_rate, c.lr_final, [steps], clip, eps, frozen.critic, rectified=True)

    def init(key: PRNGKeyArray) -> Learner:
        key_net, key_mixer = jax.random.split(key)
        theta, phi = net.init(key_net), mixer.init(key_mixer)
        policy = Policy(theta, init_inputs(spec, c.normalise_inputs), jnp.float32(c.epsilon))
        state = ByNet(radam.init(theta), mixer_radam.init(phi) if phi else None)
        return Learner(policy, phi, state, statistics=None, updates=jnp.int32(0))

    def lambda_returns(phi: PyTree, after: Array, traj: Trajectory) -> Array:
        """G from the utilities in each outcome."""
        out = traj.outcome
        value = mixer.of_greedy(phi, after, greedy_action(after, out)[0], out)  # max_u' Q_tot(s', u'; θ)
        r, d, value, cut = target_parts(traj, value, mixer.team, spec.reward_groups)
        return td_lambda(r, d, value, cut, gamma=c.gamma, lam=c.lam)

    def update(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        # TARGETS
        policy, params = learner.policy, ByNet(learner.policy.actor, learner.critic)
        step, outcome = normalised(policy.inputs, traj.step), normalised(policy.inputs, traj.outcome)
        seen, target = traj._replace(step=step, outcome=outcome), ()
        if not recurrent:

            def follow(carry: PyTree, steps: tuple[Step, Step]) -> tuple[PyTree, Array]:
                return carry, next_utilities(q, params.actor, seen._replace(step=steps[0], outcome=steps[1]))

            target = lambda_returns(params.critic, sgd.over_time(follow, (), (step, outcome)), seen)

        # LOSS
        def loss(params: ByNet, part: Batch) -> tuple[Array, Metrics]:
            passed, g = q(params.actor, part.carry, part.step), part.target
            if recurrent:
                rollouts = Trajectory(part.step, part.action, {}, part.outcome, part.carry)
                held = jax.lax.stop_gradient(params)
                g = lambda_returns(held.critic, next_utilities(q, held.actor, rollouts, passed), rollouts)
            q_tot = mixer.of_actions(params.critic, passed[1], part.action, part.step)
            metrics = {"td_loss": jnp.square(g - q_tot), "td_error": jnp.abs(g - q_tot), "q": q_tot}
            means = {name: (x * part.weight).sum() for name, x in metrics.items()}  # weights add up to 1
            return means["td_loss"], means

        # EPOCHS × MINIBATCHES
        weight = (step.alive.any(-1) if mixer.team else step.alive).astype(jnp.float32)
        batch = Batch(step, traj.action, outcome if recurrent else (), target, weight, ())
        batch = sgd.items(batch, scale.rollout_length if recurrent else 1)._replace(carry=traj.carry)
        params, state, metrics = sgd.sgd(
            loss, step_of_both(radam, mixer_radam, ("grad_norm", "mixer_grad_norm")), params, learner.optimiser, batch,
            key, epochs=c.epochs, minibatches=c.minibatches, block=c.block, net_of=None if mixer.team else index,
        )  # fmt: skip

        # EXPLORATION
        updates = learner.updates + 1
        epsilon = annealed(c.epsilon, c.epsilon_final, c.epsilon_fraction, updates, scale.num_updates)
        policy = Policy(params.actor, update_inputs(spec, policy.inputs, traj.step, c.freeze), epsilon)
        return Learner(policy, params.critic, state, None, updates), metrics | {"epsilon": learner.policy.epsilon}

    return Algorithm(
        init, lambda num_envs: net.initial_carry((num_envs,)), epsilon_greedy(acting), update,
        inspect=make_inspect_utilities(q, mixer.of_actions, "none", c.explore_in_evaluation),
        stochastic=c.explore_in_evaluation, **learned_from(spec, mixer.team),
    )  # fmt: skip


def make_policy(spec: EnvSpec, config: Config, team: bool = True) -> Algorithm:
    """The policies, for acting only; ``team`` is that of the mixer.

    Raises:
        InputError: actions are continuous, or an option is out of its range.
    """
    check_options(config)
    check_discrete(spec)
    facts = learned_from(spec, team)
    return utilities.make_policy(spec, config, config.epsilon, stochastic=config.explore_in_evaluation, **facts)
