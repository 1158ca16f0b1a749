"""Assembly of an :class:`Environment` from a particle world, its observation and reward functions, and its outline.

In a picture agents are discs and landmarks rings.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.environments.mpe import core
from shoal.environments.mpe.core import Agent, State, World, letter, letters
from shoal.environments.outlines import GREEN, Colour, body, scene_of
from shoal.environments.spec_rules import rivals_of
from shoal.types import Box, Discrete, Environment, EnvSpec, Outline, Step

PUSHES = ("stay", "left", "right", "down", "up")
"""The names of the moves."""
FORCES = ("no effect", *PUSHES[1:])
"""The names of the components of a continuous move."""


def highlighted(world: World, goals: Int[Array, " G"] | np.ndarray, colours: Sequence[Colour] = (GREEN,)) -> np.ndarray:
    """[L, 3]: the landmarks' own colours, except that goal g has ``colours[g]``; a goal of several is green."""
    painted = np.array([mark.colour for mark in world.landmarks]).reshape(-1, 3)
    chosen = np.asarray(goals).tolist()
    for goal, colour in zip(chosen, colours, strict=True):
        painted[goal] = colour if chosen.count(goal) == 1 else GREEN
    return painted


def particle_outline(
    world: World, state: State, colours: Callable[[State], np.ndarray] | None, features: list[list[str]]
) -> Outline:
    """One unbatched state in numbers; ``features`` [N][O] are names of what each agent observes."""
    marks = colours(state) if colours else [mark.colour for mark in world.landmarks]
    bodies = [body(agent.name, "disc", agent.radius, agent.colour, i) for i, agent in enumerate(world.agents)]
    bodies += [
        body(mark.name, "ring", mark.radius, colour) for mark, colour in zip(world.landmarks, marks, strict=True)
    ]
    comm = np.asarray(state.comm)
    said = tuple(_message(world, comm[i]) if agent.speaks else "" for i, agent in enumerate(world.agents))
    fixed = {
        "box": [-1.2, -1.2, 1.2, 1.2],
        "cell": 0,
        "bodies": bodies,
        "actions": _actions(world),
        "features": features,
    }
    centres = np.concatenate([np.asarray(state.pos), np.asarray(state.landmarks)])
    moving = {"x": centres[:, 0], "y": centres[:, 1]}
    return Outline("bodies", fixed, moving, messages=said if any(agent.speaks for agent in world.agents) else ())


def _actions(world: World) -> list[list[str]]:
    """The names of each agent's actions, or of the components of continuous ones (:meth:`World.action_dims`)."""
    if world.continuous:
        parts = letters(world.vocabulary)
        return [[*FORCES] * agent.moves + parts * agent.speaks for agent in world.agents]
    words = letters(world.vocabulary, "say")

    def names(agent: Agent) -> list[str]:
        if not agent.speaks:
            return list(PUSHES if agent.moves else ("nothing",))
        return [f"{push}, {word}" for word in words for push in PUSHES] if agent.moves else words

    return [names(agent) for agent in world.agents]


def _message(world: World, word: np.ndarray) -> str:
    if not word.any():
        return "nothing"
    if world.continuous:
        return "[" + " ".join(f"{value:.2f}" for value in word) + "]"
    return letter(int(word.argmax()))


def particle_environment(
    name: str,
    world: World,
    *,
    family: str = "mpe",
    observe: Callable[[State], Sequence[Float[Array, "M D"]]],
    reward: Callable[[State], Float[Array, " N"]],
    features: Callable[[State], Float[Array, " S"]],
    names: Callable[[int], Sequence[str]],
    horizon: int,
    shared_reward: bool = False,
    score: Literal["sum", "mean"] = "sum",
    novel: Sequence[int],
    metrics: Mapping[str, Callable[[State], Float[Array, ""]]] = MappingProxyType({}),
    count: Callable[[State], Float[Array, ""]] | None = None,
    colours: Callable[[State], np.ndarray] | None = None,
) -> Environment:
    """Assemble a scenario.

    ``observe`` returns blocks of rows, one block per width, in agent order; they are zero-padded to the widest.
    ``reward`` is a function of the next state. ``features`` is the global state. ``names`` returns what the numbers are
    that agent i observes, for replays. ``colours`` are the landmarks' [L, 3]. ``metrics`` are functions of the
    state at which an episode ends, where ``State.tally`` is the sum of ``count`` over the states after each step.
    Episodes end only by the time limit (``last`` with ``discount`` 1).
    """
    num_agents, dims = len(world.agents), world.action_dims
    start = jax.eval_shape(lambda: core.draw_world(world, jax.random.key(0)))
    blocks = [block.shape for block in jax.eval_shape(lambda s: tuple(observe(s)), start)]
    action = Box(max(dims), 0.0, 1.0) if world.continuous else Discrete(max(dims))
    spec = EnvSpec(
        name=f"{family}/{name}",
        agents=tuple(agent.name for agent in world.agents),
        obs_dims=tuple(width for rows, width in blocks for _ in range(rows)),
        state_dim=jax.eval_shape(features, start).shape[0],
        action=action,
        action_dims=dims,
        roles=tuple(agent.role for agent in world.agents),
        horizon=horizon,
        shared_reward=shared_reward or num_agents == 1,
        score=score,
        novel=tuple(novel),
        metrics=tuple(metrics),
        rivals=rivals_of([agent.name for agent in world.agents]),
    )
    # Made once, for the first outline: there are one for each timestep of a replay.
    observed = functools.cache(lambda: [list(names(i)) for i in range(num_agents)])
    legal = np.arange(action.width) < np.array(dims)[:, None]

    def make_step(state: State, earned: Float[Array, " N"], first: bool) -> Step:
        rows = [jnp.pad(block, ((0, 0), (0, spec.obs_dim - block.shape[1]))) for block in observe(state)]
        return Step(
            obs=rows[0] if len(rows) == 1 else jnp.concatenate(rows),
            state=features(state),
            legal=jnp.asarray(legal),
            alive=jnp.ones(num_agents, bool),
            reward=earned,
            discount=jnp.ones(num_agents),
            first=jnp.asarray(first),
            last=state.t >= horizon,
            # At every step, since a wrapper may end an episode earlier.
            metrics=jnp.stack([measure(state) for measure in metrics.values()]) if metrics else (),
        )

    def reset(key: PRNGKeyArray) -> tuple[State, Step]:
        state = core.draw_world(world, key)
        if count is not None:
            state = state._replace(tally=jnp.zeros(()))
        return state, make_step(state, jnp.zeros(num_agents), first=True)

    def step(key: PRNGKeyArray, state: State, action: Int[Array, " N"] | Float[Array, "N A"]) -> tuple[State, Step]:
        del key  # the dynamics are deterministic
        state = core.advance_world(world, state, action)
        if count is not None:
            state = state._replace(tally=jnp.asarray(state.tally) + count(state))
        return state, make_step(state, reward(state), first=False)

    def outline(state: State) -> Outline:
        return particle_outline(world, state, colours, observed())

    return Environment(spec, reset, step, render=lambda state: scene_of(outline(state)), outline=outline)
