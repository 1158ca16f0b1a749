"""CoordSum: agents name integers whose sum must be a target that all of them see, without being predictable.

Source: Li et al. 2025, Multi-Agent Guided Policy Optimization, and its authors' code. There an agent observes the
target as one number, here one-hot, and the time limit ends an episode by termination. Its tasks have more targets than
integers to choose from: ``3x10-30``, three agents and ten integers, is ``num_targets`` 30 here.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.environments.options import check_count, check_flag, check_steps
from shoal.types import Discrete, Environment, EnvSpec, Step


class State(NamedTuple):
    """State of a game."""

    target: Int[Array, ""]
    named: Int[Array, "A A"]
    """How often the first agent named each integer at each target below A − 1, and in the last row at all others, in
    this episode."""
    matched: Float[Array, ""]
    """Number of timesteps in which the sum was the target."""
    t: Int[Array, ""]
    """Number of steps."""


def coordsum(
    *,
    num_agents: int = 3,
    num_actions: int = 10,
    num_targets: int | None = None,
    horizon: int = 100,
    guesser: bool = True,
) -> Environment:
    """Each agent names an integer below ``num_actions``; their sum should be the target, drawn at every timestep.

    The target is uniform below ``num_targets``. If the sum is the target, each agent receives 2, or 1 where a
    guesser is right about the first agent's integer: it guesses the one that this agent named most often at this target
    in this episode, the smallest of several and 0 at first. As in the authors' code, whose record has a row for each
    integer, targets of ``num_actions`` − 1 and more have one record. A team of deterministic policies therefore earns
    little more than 1 per timestep, and independent random ones seldom match. The metric ``matched`` is the share of
    timesteps with the right sum.

    Args:
        num_agents: N.
        num_actions: integers to choose from, from 2 to 1000.
        num_targets: targets, from 2 to 1000; None for as many as integers. The authors' tasks have 30 and 50 (three
            agents, 10 and 30 integers), 80 (five, 20) and 100 (eight, 15).
        horizon: steps in an episode, which a time limit ends.
        guesser: whether there is a guesser; without it a right sum earns 1.

    Raises:
        InputError: an option is out of its range.
    """
    check_count("num_agents", num_agents)
    check_count("num_actions", num_actions, least=2, most=1000)
    targets = num_actions if num_targets is None else check_count("num_targets", num_targets, least=2, most=1000)
    check_steps("horizon", horizon)
    check_flag("guesser", guesser)
    spec = EnvSpec(
        name="matrix/coordsum",
        agents=tuple(f"agent_{i}" for i in range(num_agents)),
        obs_dims=(targets,) * num_agents,
        state_dim=targets,
        action=Discrete(num_actions),
        action_dims=(num_actions,) * num_agents,
        roles=(0, *(int(guesser),) * (num_agents - 1)),  # the guesser guesses the first agent's integers alone
        horizon=horizon,
        shared_reward=True,
        score="mean",
        novel=(),
        metrics=("matched",),
    )

    def make_step(state: State, earned: Float[Array, ""], first: bool) -> Step:
        seen = (state.target == jnp.arange(targets)).astype(float)
        return Step(
            obs=jnp.broadcast_to(seen, (num_agents, targets)),
            state=seen,
            legal=jnp.ones((num_agents, num_actions), bool),
            alive=jnp.ones(num_agents, bool),
            reward=jnp.broadcast_to(earned, (num_agents,)),
            discount=jnp.ones(num_agents),
            first=jnp.asarray(first),
            last=state.t >= horizon,
            metrics=(state.matched / jnp.maximum(state.t, 1))[None],
        )

    def draw(key: PRNGKeyArray) -> Int[Array, ""]:
        return jax.random.randint(key, (), 0, targets)

    def reset(key: PRNGKeyArray) -> tuple[State, Step]:
        state = State(draw(key), jnp.zeros((num_actions, num_actions), jnp.int32), jnp.zeros(()), jnp.int32(0))
        return state, make_step(state, jnp.zeros(()), first=True)

    def step(key: PRNGKeyArray, state: State, action: Int[Array, " N"]) -> tuple[State, Step]:
        matched = (action.sum() == state.target).astype(float)
        row = jnp.minimum(state.target, num_actions - 1)
        guessed = state.named[row].argmax() == action[0]
        earned = matched * jnp.where(guessed, 1.0, 2.0) if guesser else matched
        named = state.named.at[row, action[0]].add(1)
        after = State(draw(key), named, state.matched + matched, state.t + 1)
        return after, make_step(after, earned, first=False)

    return Environment(spec, reset, step)
