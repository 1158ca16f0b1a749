"""Expected SARSA(λ) for a team: on-policy values of an ε-greedy team, on VDN's sum.

    Q_tot(s, u; θ) = Σ_i Q_i(τ^i, u^i; θ)                                             (Sunehag et al. 2018, eq. 1)
    V(s; θ) = Σ_i [ (1 − ε) max_a Q_i(τ^i, a; θ) + ε mean_a Q_i(τ^i, a; θ) ]     (Sutton & Barto 2018, eq. 7.8)
    G_t = r_t + γ d_t [ (1 − λ) V(s_{t+1}; θ) + λ G_{t+1} ]                      (Sutton & Barto 2018, eq. 12.20)
    min_θ  E[ (G_t − Q_tot(s_t, u_t; θ))² ]

The newest rollout of many environments is used for a few epochs, then discarded. Layer normalisation keeps θ from
diverging, in place of target networks (Gallici et al. 2025).

Deviations from the book, which has no nets: minibatches; targets are computed once per rollout. Train in the folder of
this file: shoal train sarsa mpe/simple_spread
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

import shoal
from shoal.bounds import Count, Fraction, Positive, Rate
from shoal.equations.returns import td_lambda
from shoal.equations.schedules import annealed
from shoal.equations.targets import on_unequal_rewards, team_reward
from shoal.learning import sgd
from shoal.learning.config import AgentConfig, check_options
from shoal.learning.optimiser import optimiser, step_of_one
from shoal.models.actor_critic import Policy
from shoal.models.utilities import chosen_utility, epsilon_greedy, greedy_action, make_utilities, next_utilities
from shoal.networks.body import Body
from shoal.networks.inputs import init_inputs, normalised, update_inputs
from shoal.networks.sharing import policy_of
from shoal.types import Algorithm, EnvSpec, Learner, Metrics, PyTree, Scale, Step, Trajectory


@dataclass(frozen=True)
class Config(AgentConfig):
    """Hyper-parameters; those of the authors of PQN, on which this is modelled, in brackets for MPE."""

    network: Body = field(default_factory=lambda: Body(hidden=(128, 128), activation="relu", layer_norm=True))
    """Layers of the utilities' net (256, 256)."""
    gamma: Fraction = 0.99
    """Discount γ per step (0.9)."""
    lam: Fraction = 0.85
    """λ of the targets (0.3)."""
    learning_rate: Rate = 5e-4
    """Adam's step size (5e-4)."""
    lr_final: Fraction = 0.0
    """The rate changes linearly to this fraction of itself over the run (1)."""
    max_grad_norm: Positive | None = 1.0
    """Largest gradient norm of one policy; None for no clip (1)."""
    epochs: Count = 4
    """Passes over each rollout (4)."""
    minibatches: Count = 16
    """Gradient steps per pass (16)."""
    epsilon: Fraction = 1.0
    """ε of ε-greedy exploration at the start (1)."""
    epsilon_final: Fraction = 0.05
    """ε at the end (0.1)."""
    epsilon_fraction: Fraction = 0.1
    """Fraction of the updates over which ε decreases linearly (0.1)."""


class Batch(NamedTuple):
    """What the loss reads, cut into items [items, L, ...]: single timesteps, or whole rollouts of a recurrent net."""

    step: Step
    action: Int[Array, "B L N"]
    target: Float[Array, "B L"]
    weight: Float[Array, "B L"]
    carry: PyTree
    """The recurrent state before each item, [items, N, H]."""


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """Expected SARSA(λ) for an environment with discrete actions.

    Raises:
        InputError: actions are continuous, minibatches do not divide the rollout, or an option is out of its range.
    """
    c = config
    check_options(c)
    if not isinstance(spec.action, shoal.Discrete):
        raise shoal.InputError(f"SARSA compares all of an agent's actions; {spec.name} has continuous ones.")
    length = scale.rollout_length if c.network.recurrent else 1
    sgd.check_items(scale, c.minibatches, length if c.network.recurrent else None)
    index = policy_of(spec, c.sharing)
    net, q = make_utilities(spec, c.network, index, c.agent_id)
    steps = scale.num_updates * c.epochs * c.minibatches
    adam = optimiser(c.learning_rate, c.lr_final, [steps] * (max(index) + 1), c.max_grad_norm, c.adam_eps)

    def init(key: PRNGKeyArray) -> Learner:
        theta = net.init(key)
        policy = Policy(theta, init_inputs(spec, c.normalise_inputs), jnp.float32(c.epsilon))
        return Learner(policy, critic=None, optimiser=adam.init(theta), statistics=None, updates=jnp.int32(0))

    def initial_carry(num_envs: int) -> PyTree:
        return net.initial_carry((num_envs,))

    def update(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        # TARGETS
        policy = learner.policy
        step, outcome = normalised(policy.inputs, traj.step), normalised(policy.inputs, traj.outcome)
        after = next_utilities(q, policy.actor, traj._replace(step=step, outcome=outcome))  # utilities in each outcome
        best = greedy_action(after, outcome)[1]
        evenly = jnp.where(outcome.legal, after, 0.0).sum(-1) / outcome.legal.sum(-1)
        each = (1 - policy.epsilon) * best + policy.epsilon * evenly
        value = jnp.where(outcome.alive, each, 0.0).sum(-1)  # V of the team
        reward, discount = team_reward(traj)
        target = td_lambda(reward, discount, value, outcome.last, gamma=c.gamma, lam=c.lam)

        # LOSS
        def loss(theta: PyTree, part: Batch) -> tuple[Array, Metrics]:
            values = q(theta, part.carry, part.step)[1]
            q_tot = chosen_utility(values, part.action, part.step.alive).sum(-1)
            error = part.target - q_tot
            metrics = {"td_loss": jnp.square(error), "td_error": jnp.abs(error), "q": q_tot}
            means = {name: (x * part.weight).sum() for name, x in metrics.items()}  # weights add up to 1
            return means["td_loss"], means

        # EPOCHS × MINIBATCHES
        weight = step.alive.any(-1).astype(jnp.float32)
        batch = sgd.items(Batch(step, traj.action, target, weight, ()), length)._replace(carry=traj.carry)
        theta, state, metrics = sgd.sgd(
            loss, step_of_one(adam, "grad_norm"), policy.actor, learner.optimiser, batch, key,
            epochs=c.epochs, minibatches=c.minibatches, block=c.block,
        )  # fmt: skip

        # EXPLORATION
        updates = learner.updates + 1
        epsilon = annealed(c.epsilon, c.epsilon_final, c.epsilon_fraction, updates, scale.num_updates)
        policy = Policy(theta, update_inputs(spec, policy.inputs, traj.step), epsilon)
        return Learner(policy, None, state, None, updates), metrics | {"epsilon": learner.policy.epsilon}

    return Algorithm(init, initial_carry, epsilon_greedy(q), update, unequal_rewards=on_unequal_rewards(spec))


PRESETS = {
    "mpe/simple_spread": {
        "steps": 1e6,
        "num_envs": 128,
        "rollout_length": 25,
        "gamma": 0.9,
        "lam": 0.3,
        "learning_rate": 2e-3,
        "minibatches": 64,
    },
}
"""Flags by environment: those of the preset of ``pqn_vdn`` with fewer steps."""


if __name__ == "__main__":
    run = shoal.train("sarsa", "mpe/simple_spread")
    print(run.evaluate())
