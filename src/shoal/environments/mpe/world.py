"""The particle world: discs on a plane that accelerate, collide, and send messages; and its assembly as an environment.

Lowe et al. 2017, "Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments"; the numbers are those of
the reference code in its two forms: ``mpe2`` (maintained today) and OpenAI's original, which the papers used.
Arrays are stacked on an agent axis; properties that differ between agents are static constants of the program.
In a picture agents are discs and landmarks rings.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.environments.outlines import GREEN, Colour, body, scene_of
from shoal.environments.spec_rules import rivals_of
from shoal.types import Box, Discrete, Environment, EnvSpec, Outline, Step

TIME_STEP = 0.1
DAMPING = 0.25
CONTACT_FORCE = 100.0
CONTACT_MARGIN = 1e-3
MOVES = 5
"""No force, left, right, down, up."""


@dataclass(frozen=True)
class Agent:
    """One agent's fixed properties. Lengths are in world units (the arena is [-1, 1]²); every mass is 1."""

    name: str
    role: int
    radius: float = 0.05
    colour: tuple[float, float, float] = (0.0, 0.0, 0.0)
    collides: bool = False
    moves: bool = True
    speaks: bool = False
    acceleration: float = 5.0
    """Force per unit of action."""
    max_speed: float = math.inf


@dataclass(frozen=True)
class Landmark:
    """One landmark's fixed properties; landmarks never move. Those that collide stand first in a world."""

    name: str
    radius: float = 0.05
    colour: tuple[float, float, float] = (0.6, 0.6, 0.6)
    collides: bool = False


@dataclass(frozen=True)
class World:
    """The static half of a scenario: N agents, L landmarks, and how an episode is drawn."""

    agents: tuple[Agent, ...]
    landmarks: tuple[Landmark, ...]
    vocabulary: int = 0
    """C, the number of words (discrete) or the width of a message (continuous)."""
    num_goals: int = 0
    """G landmarks drawn anew, with replacement, for each episode."""
    landmark_range: float = 1.0
    """Landmarks start uniformly in [-landmark_range, landmark_range]²; agents always in [-1, 1]²."""
    continuous: bool = False
    velocity_first: bool = False
    """Integrate velocity before position, as OpenAI's original does; ``mpe2`` moves first."""

    @property
    def action_dims(self) -> tuple[int, ...]:
        """Each agent's own number of actions, or of action dimensions where actions are continuous."""
        if self.continuous:
            return tuple(MOVES * a.moves + self.vocabulary * a.speaks for a in self.agents)
        return tuple((MOVES if a.moves else 1) * (self.vocabulary if a.speaks else 1) for a in self.agents)


class State(NamedTuple):
    """State of the world."""

    pos: Float[Array, "N 2"]
    vel: Float[Array, "N 2"]
    comm: Float[Array, "N C"]
    """Last message of each agent; zero for agents that cannot speak."""
    landmarks: Float[Array, "L 2"]
    goal: Int[Array, " G"]
    """Indices of goal landmarks; the scenario defines their meaning."""
    t: Int[Array, ""]
    """Number of steps."""
    tally: Float[Array, ""] | tuple[()] = ()
    """What the scenario counts for the metrics, summed over the episode so far; empty if it counts nothing."""


def draw_world(world: World, key: PRNGKeyArray) -> State:
    """The initial state of an episode: agents at rest, positions and goals uniform.

    All random numbers come from one draw: inside a compiled loop, a further draw costs more than a step of the world.
    """
    num_agents, num_landmarks = len(world.agents), len(world.landmarks)
    ends = np.cumsum([2 * num_agents, 2 * num_landmarks])
    places, marks, goals = jnp.split(jax.random.uniform(key, (ends[-1] + world.num_goals,)), ends)
    return State(
        pos=places.reshape(-1, 2) * 2.0 - 1.0,
        vel=jnp.zeros((num_agents, 2)),
        comm=jnp.zeros((num_agents, world.vocabulary)),
        landmarks=(marks.reshape(-1, 2) * 2.0 - 1.0) * world.landmark_range,
        goal=jnp.floor(goals * num_landmarks).astype(jnp.int32),
        t=jnp.zeros((), jnp.int32),
    )


def advance_world(world: World, state: State, action: Int[Array, " N"] | Float[Array, "N A"]) -> State:
    """One step of 0.1 s: forces of actions and contacts, damped velocities, new positions and messages."""
    force, comm = _decode(world, action)
    moves = np.array([a.moves for a in world.agents])
    if not moves.any():
        return state._replace(comm=comm, t=state.t + 1)
    force = force + _contacts(world, state)
    vel = _capped(world, state.vel * (1.0 - DAMPING) + force * TIME_STEP)
    if not moves.all():
        vel = jnp.where(moves[:, None], vel, 0.0)
    pos = state.pos + (vel if world.velocity_first else state.vel) * TIME_STEP
    return state._replace(pos=pos, vel=vel, comm=comm, t=state.t + 1)


def _decode(
    world: World, action: Int[Array, " N"] | Float[Array, "N A"]
) -> tuple[Float[Array, "N 2"], Float[Array, "N C"]]:
    """Forces and messages. A discrete agent that moves and speaks picks ``move + 5 · word``.

    Continuous actions lie in [0, 1] (others are clipped): five pushes (the first does nothing), then the message.
    """
    moves = np.array([a.moves for a in world.agents])
    speaks = np.array([a.speaks for a in world.agents])
    words = np.arange(world.vocabulary)
    if world.continuous:
        action = jnp.clip(action, 0.0, 1.0)
        axes = [action[:, 2] - action[:, 1], action[:, 4] - action[:, 3]] if moves.any() else []
        comm = jnp.zeros((len(world.agents), world.vocabulary), action.dtype)
        if (speaks & moves).any():
            comm = jnp.where((speaks & moves)[:, None], action[:, MOVES : MOVES + len(words)], comm)
        if (speaks & ~moves).any():
            comm = jnp.where((speaks & ~moves)[:, None], action[:, : len(words)], comm)
    else:
        both = speaks & moves
        move = jnp.where(both, action % MOVES, action) if both.any() else action
        word = jnp.where(both, action // MOVES, action) if both.any() else action
        unit = lambda k: (move == k).astype(float)  # noqa: E731
        axes = [unit(2) - unit(1), unit(4) - unit(3)]
        comm = ((word[:, None] == words) & speaks[:, None]).astype(float)
    scale = np.array([a.acceleration * a.moves for a in world.agents])[:, None]
    return (jnp.stack(axes, -1) * scale if axes else jnp.zeros((len(world.agents), 2))), comm


def _contacts(world: World, state: State) -> Float[Array, "N 2"]:
    """The contact force on each agent: 100 · margin · softplus(overlap / margin) away from each body it touches."""
    solid = np.array([a.collides for a in world.agents])
    radius = np.array([a.radius for a in world.agents])
    hard = [mark for mark in world.landmarks if mark.collides]
    total = jnp.zeros_like(state.pos)
    if solid.sum() > 1:
        pairs = np.outer(solid, solid) & ~np.eye(len(solid), dtype=bool)
        total = total + _push(offsets(state.pos, state.pos), np.add.outer(radius, radius), pairs)
    if solid.any() and hard:
        reach = np.add.outer(radius, [mark.radius for mark in hard])
        pairs = np.broadcast_to(solid[:, None], reach.shape)
        total = total + _push(offsets(state.pos, state.landmarks[: len(hard)]), reach, pairs)
    return total


def _push(offset: Float[Array, "N M 2"], reach: np.ndarray, pairs: np.ndarray) -> Float[Array, "N 2"]:
    total = jnp.zeros_like(offset[:, 0])
    # One partner of all agents at a time: as one [N, M] array the exponentials do not vectorise (2.5 times slower).
    for j in range(offset.shape[1]):
        distance = norm(offset[:, j])
        overlap = jnp.logaddexp(0.0, (reach[:, j] - distance) / CONTACT_MARGIN) * CONTACT_MARGIN
        # Coinciding centres have no direction and no force; a division would give NaN.
        apart = pairs[:, j] & (distance > 0.0)
        strength = jnp.where(apart, CONTACT_FORCE * overlap / jnp.where(apart, distance, 1.0), 0.0)
        total = total - strength[:, None] * offset[:, j]
    return total


def _capped(world: World, vel: Float[Array, "N 2"]) -> Float[Array, "N 2"]:
    limit = np.array([a.max_speed for a in world.agents])
    if np.isinf(limit).all():
        return vel
    speed = norm(vel)
    fast = speed > limit
    return vel * jnp.where(fast, limit / jnp.where(fast, speed, 1.0), 1.0)[:, None]


def offsets(origin: Float[Array, "M 2"], target: Float[Array, "K 2"]) -> Float[Array, "M K 2"]:
    """Each target as seen from each origin."""
    return target[None] - origin[:, None]


def norm(vector: Float[Array, "*k 2"]) -> Float[Array, "*k"]:
    """Euclidean length; written out because a reduction over two numbers does not vectorise."""
    return jnp.sqrt(square(vector))


def square(vector: Float[Array, "*k 2"]) -> Float[Array, "*k"]:
    """Squared Euclidean length."""
    return vector[..., 0] ** 2 + vector[..., 1] ** 2


def others(values: Float[Array, "N N *f"]) -> Float[Array, "N M *f"]:
    """Row i without its own entry i, order kept; M = N - 1. Selects with a constant mask, so nothing is gathered."""
    n = values.shape[0]
    before = np.arange(n - 1) < np.arange(n)[:, None]
    return jnp.where(before.reshape(before.shape + (1,) * (values.ndim - 2)), values[:, :-1], values[:, 1:])


def pick(index: Int[Array, " G"], table: Float[Array, "L *f"] | np.ndarray) -> Float[Array, "G *f"]:
    """``table[index]`` as a masked sum, which fuses where a gather would not."""
    chosen = index[:, None] == np.arange(table.shape[0])
    return jnp.where(chosen.reshape(chosen.shape + (1,) * (table.ndim - 1)), table[None], 0.0).sum(1)


def one_hot(index: Int[Array, " G"], num: int) -> Float[Array, " K"]:
    """G indices below ``num`` as one flat vector of K = G · num zeros and ones."""
    return (index[:, None] == np.arange(num)).astype(float).reshape(-1)


# Names of the numbers in observations, and of words.


COLOUR = ("red", "green", "blue")


def own(*what: str) -> list[str]:
    """An agent's own vectors, for example ``own velocity x`` and ``own velocity y``."""
    return [f"own {name} {axis}" for name in what for axis in "xy"]


def relative(*names: str) -> list[str]:
    """The offsets of things from the agent, for example ``landmark_0 dx`` and ``landmark_0 dy``."""
    return of(names, "dx", "dy")


def of(names: tuple[str, ...], *what: str) -> list[str]:
    """Each of ``what`` of each thing, for example ``agent_1 velocity x`` and ``agent_1 velocity y``."""
    return [f"{name} {each}" for name in names for each in what]


def landmarks(world: World) -> tuple[str, ...]:
    """The landmarks' names."""
    return tuple(mark.name for mark in world.landmarks)


def others_of(world: World, i: int, first: int = 0) -> tuple[str, ...]:
    """The names of the agents but agent ``i``, beginning with agent ``first``."""
    return tuple(agent.name for j, agent in enumerate(world.agents) if j != i and j >= first)


def letter(word: int) -> str:
    """A word's name."""
    return chr(ord("A") + word)


def letters(count: int, name: str = "message") -> list[str]:
    """The components of a message or code, for example ``message A`` and ``message B``."""
    return [f"{name} {letter(word)}" for word in range(count)]


# The picture, and the environment from a world with its observation and reward functions.


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
    start = jax.eval_shape(lambda: draw_world(world, jax.random.key(0)))
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
        state = draw_world(world, key)
        if count is not None:
            state = state._replace(tally=jnp.zeros(()))
        return state, make_step(state, jnp.zeros(num_agents), first=True)

    def step(key: PRNGKeyArray, state: State, action: Int[Array, " N"] | Float[Array, "N A"]) -> tuple[State, Step]:
        del key  # the dynamics are deterministic
        state = advance_world(world, state, action)
        if count is not None:
            state = state._replace(tally=jnp.asarray(state.tally) + count(state))
        return state, make_step(state, reward(state), first=False)

    def outline(state: State) -> Outline:
        return particle_outline(world, state, colours, observed())

    return Environment(spec, reset, step, render=lambda state: scene_of(outline(state)), outline=outline)
