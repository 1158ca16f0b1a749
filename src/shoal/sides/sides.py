"""Sides of one environment, each trained by an algorithm of its own, for example predators and prey: ``mappo+ippo``.

Each side's algorithm is made for its own agents alone: it receives their rows of every step, and has a recurrent
state, a learner, a replay buffer and a key of its own. The other sides are a part of its environment, which changes as
they learn. The global state is passed on whole. Which sides agents are on, options and an example: docs/crossplay.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from functools import cache, partial
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from shoal.bounds import Bounds
from shoal.errors import InputError
from shoal.types import Algorithm, Box, EnvSpec, Experience, Learner, Metrics, PyTree, Replay, Scale, Step, Trajectory

MAX_SIDES = 3
"""Largest number of sides."""
MakeOne = Callable[[Any, EnvSpec, Any], Algorithm]
"""(an algorithm's module, spec, config) -> the algorithm."""


@dataclass(frozen=True)
class SidesConfig:
    """Options of all sides; each side has its own ``Config`` of hyper-parameters."""

    sides: tuple[Annotated[int, Bounds(least=1, most=MAX_SIDES)], ...] | None = None
    """The side of each agent, numbered from 1, for example 1 1 1 2. None: the environment's own sides, or side 1 is
    role 0, side 2 is role 1, and so on; the last side has all remaining agents."""


@cache
def join(names: tuple[str, ...], modules: tuple[ModuleType, ...]) -> ModuleType:
    """A module for one algorithm per side, with a ``Config`` and ``make(spec, config, scale)``.

    Args:
        names: of the algorithms, one for each side.
        modules: of the algorithms.

    ``Config`` has :class:`SidesConfig`'s fields and one ``Config`` a side; ``gamma`` sets all, ``side1_gamma`` one.

    Raises:
        InputError: there are too many names, or one cannot be a side.
    """
    if len(names) > MAX_SIDES:
        raise InputError(f"{'+'.join(names)} names {len(names)} sides; there are at most {MAX_SIDES}.")
    for name, module in zip(names, modules, strict=True):
        if hasattr(module, "prepare"):
            raise InputError(f"{name} collects experience before training, so it cannot train one side.")
    listed = ", ".join(f"side {i} by {name}" for i, name in enumerate(names, 1))
    found = ModuleType("+".join(names), f"Sides trained separately, {listed}; each has the others in its environment.")
    configs = [
        (f"side{i}", module.Config, field(default=module.Config(), metadata={"prefix": f"side{i}_"}))
        for i, module in enumerate(modules, 1)
    ]
    vars(found)["Config"] = make_dataclass("Config", configs, bases=(SidesConfig,), frozen=True)
    vars(found)["make"] = partial(make_sides, names, modules)
    vars(found)["make_each"] = partial(make_each, names, modules)
    return found


def members(spec: EnvSpec, count: int, sides: tuple[int, ...] | None) -> tuple[tuple[int, ...], ...]:
    """The agents of each side.

    Raises:
        InputError: a side would be empty, or ``sides`` does not give every agent a side.
    """
    if sides is None:
        teams = max(spec.teams) + 1
        if teams == 1:
            example = tuple(min(i + 1, count) for i in range(spec.num_agents))
            raise InputError(
                f"All agents of {spec.name} have one role: give each of the {spec.num_agents} a side, for "
                f"example --sides {' '.join(map(str, example))} (in Python, sides={example})."
            )
        if teams < count:
            found = f"{teams} {'sides' if spec.sides else 'roles'}"
            raise InputError(f"{spec.name} has {found}, too few for {count} sides.")
        sides = tuple(min(team, count - 1) + 1 for team in spec.teams)
    if len(sides) != spec.num_agents or set(sides) != set(range(1, count + 1)):
        raise InputError(
            f"sides {sides} must give each of the {spec.num_agents} agents a side from 1 to {count}, no side empty."
        )
    return tuple(tuple(i for i, side in enumerate(sides) if side == number) for number in range(1, count + 1))


def narrowed(spec: EnvSpec, who: tuple[int, ...]) -> EnvSpec:
    """The description with the rows of agents ``who``, no wider than they need, and the whole state. They share their
    reward where all agents do, where they are of one side of the environment's, or where there is one.
    """
    obs_dims, action_dims = (tuple(dims[i] for i in who) for dims in (spec.obs_dims, spec.action_dims))
    roles = sorted({spec.roles[i] for i in who})
    return replace(
        spec,
        agents=tuple(spec.agents[i] for i in who),
        obs_dims=obs_dims,
        parts=spec.parts_among(who),
        action=replace(spec.action, **{"dim" if isinstance(spec.action, Box) else "n": max(action_dims)}),
        action_dims=action_dims,
        roles=tuple(roles.index(spec.roles[i]) for i in who),
        shared_reward=spec.shared_reward or len({(spec.sides or spec.agents)[i] for i in who}) == 1,
        novel=spec.novel and tuple(i for i in spec.novel if i < max(obs_dims)),
        sides=spec.sides and _several([spec.sides[i] for i in who]),
        rivals=_several([next(t for t, team in enumerate(spec.competing) if i in team) for i in who]),
        scored=None,
    )


def _several(teams: Sequence[int]) -> tuple[int, ...] | None:
    """The team of each agent, numbered from 0 without gaps; None where all are of one."""
    kinds = sorted(set(teams))
    return tuple(kinds.index(team) for team in teams) if len(kinds) > 1 else None


def divided(
    name: str, module: Any, spec: EnvSpec, config: Any, one: MakeOne, teams: Sequence[tuple[int, ...]]
) -> Algorithm:
    """One algorithm, made for each of several teams separately with the same options.

    Args:
        name: of the algorithm.
        module: of the algorithm.
        spec: of all agents.
        config: the algorithm's, for all agents; ``sharing`` and ``local_roles`` are renumbered for each team.
        one: makes the algorithm of a team.
        teams: the agents of each team, every agent in one.

    Raises:
        InputError: what the algorithm raises for a team, with its number.
    """
    sides = [
        _side(i, name, module, narrowed(spec, who), who, _config_of(config, spec, who), one)
        for i, who in enumerate(teams, 1)
    ]
    return _joined(spec, sides)


def _config_of(config: Any, spec: EnvSpec, who: tuple[int, ...]) -> Any:
    """The options of agents ``who``, from options for all agents of ``spec``."""
    found, sharing = {}, getattr(config, "sharing", None)
    if isinstance(sharing, tuple) and len(sharing) == spec.num_agents:
        policies = sorted({sharing[i] for i in who})
        found["sharing"] = tuple(policies.index(sharing[i]) for i in who)
    if chosen := getattr(config, "local_roles", ()):
        roles = sorted({spec.roles[i] for i in who})
        found["local_roles"] = tuple(roles.index(role) for role in chosen if role in roles)
    return replace(config, **found)


class Side(NamedTuple):
    """One side, with functions that select its part of the data."""

    number: int
    """From 1."""
    who: tuple[int, ...]
    spec: EnvSpec
    """Narrowed to it."""
    algorithm: Algorithm

    @property
    def name(self) -> str:
        """Prefix of its metrics and extras."""
        return f"side{self.number}/"

    def rows(self, x: Array, width: int | None = None) -> Array:
        """Its agents' rows of [..., N], or of [..., N, F] the first ``width`` features."""
        who = np.array(self.who)
        index = slice(who[0], who[-1] + 1) if len(who) == who[-1] - who[0] + 1 else who
        return x[..., index] if width is None else x[..., index, :width]

    def step(self, step: Step) -> Step:
        """Its part of a step."""
        return Step(
            obs=self.rows(step.obs, self.spec.obs_dim),
            state=step.state,
            legal=self.rows(step.legal, self.spec.action.width),
            alive=self.rows(step.alive),
            reward=self.rows(step.reward),
            discount=self.rows(step.discount),
            first=step.first,
            last=step.last,
        )

    def taken(self, action: Array) -> Array:
        """Its agents' actions."""
        return self.rows(action, self.spec.action.width if isinstance(self.spec.action, Box) else None)

    def own(self, extras: dict[str, Array]) -> dict[str, Array]:
        """Its algorithm's extras."""
        return {name.removeprefix(self.name): x for name, x in extras.items() if name.startswith(self.name)}

    def trajectory(self, traj: Trajectory) -> Trajectory:
        """Its part of a rollout."""
        return Trajectory(
            self.step(traj.step),
            self.taken(traj.action),
            self.own(traj.extras),
            self.step(traj.outcome),
            traj.carry[self.number - 1],
        )

    def learner(self, learner: Learner) -> Learner:
        """Its own learner; parts that a deployed learner lacks are empty."""
        parts = (part[self.number - 1] if part else () for part in learner[:-1])
        return Learner(*parts, updates=learner.updates)

    def stored(self) -> PyTree:
        """Its replay, which stores its part of rollouts."""

        def own(one: Replay) -> Replay:
            return one._replace(keep=lambda traj: one.keep(self.trajectory(traj)))

        return jax.tree.map(own, self.algorithm.replay, is_leaf=lambda node: isinstance(node, Replay))

    def experience(self, data: Trajectory | Experience) -> Trajectory | Experience:
        """The data of its algorithm's update; on-policy sides have no samples."""
        if isinstance(data, Trajectory):
            return self.trajectory(data)
        newest = self.trajectory(data.newest)
        return Experience(newest, data.samples[self.number - 1]) if self.algorithm.replay else newest


def make_sides(
    names: tuple[str, ...], modules: tuple[ModuleType, ...], spec: EnvSpec, config: Any, scale: Scale
) -> Algorithm:
    """The algorithms of all sides as one.

    Raises:
        InputError: the agents do not divide into so many sides, or what an algorithm raises, with its side.
    """
    return make_each(names, modules, spec, config, lambda module, spec, config: module.make(spec, config, scale))


def make_each(
    names: tuple[str, ...], modules: tuple[ModuleType, ...], spec: EnvSpec, config: Any, one: MakeOne
) -> Algorithm:
    """:func:`make_sides` with each side's algorithm from ``one``, for example for acting only."""
    teams = members(spec, len(names), config.sides)
    return _joined(
        spec,
        [
            _side(i, name, module, narrowed(spec, who), who, getattr(config, f"side{i}"), one)
            for i, (name, module, who) in enumerate(zip(names, modules, teams, strict=True), 1)
        ],
    )


def _joined(spec: EnvSpec, sides: Sequence[Side]) -> Algorithm:
    def joined(learners: list[Learner]) -> Learner:
        policy, critic, optimiser, statistics, updates = zip(*learners, strict=True)
        return Learner(policy, critic, optimiser, statistics, updates[0])  # all are updated equally often

    def init(key: PRNGKeyArray) -> Learner:
        keys = jax.random.split(key, len(sides))
        return joined([side.algorithm.init(k) for side, k in zip(sides, keys, strict=True)])

    def act(
        learner: Learner, carry: PyTree, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[PyTree, Array, dict[str, Array]]:
        carries, actions, extras = [], [], {}
        for side, own, k in zip(sides, carry, jax.random.split(key, len(sides)), strict=True):
            own, action, noted = side.algorithm.act(side.learner(learner), own, side.step(step), k, greedy)
            carries.append(own)
            actions.append((side.who, action))
            extras |= {side.name + name: x for name, x in noted.items()}
        return tuple(carries), joint_action(spec, actions), extras

    def inspect(
        learner: Learner, carry: PyTree, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        told = []
        for side, own in zip(sides, carry, strict=True):
            part = side.learner(learner), own, side.step(step), side.taken(action), side.own(extras)
            told.append((side.who, side.algorithm.inspect(*part) if side.algorithm.inspect else {}))
        return of_all_sides(spec, step.alive.shape[0], told)

    def update(learner: Learner, data: Trajectory | Experience, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        learners, metrics = [], {}
        for side, k in zip(sides, jax.random.split(key, len(sides)), strict=True):
            one, of_side = side.algorithm.update(side.learner(learner), side.experience(data), k)
            learners.append(one)
            metrics |= {side.name + name: x for name, x in of_side.items()}
        return joined(learners), metrics

    def observe(learner: Learner, traj: Trajectory) -> Learner:
        counted = []
        for side in sides:
            one, count = side.learner(learner), side.algorithm.observe
            counted.append(count(one, side.trajectory(traj)) if count else one)
        return joined(counted)

    def initial_carry(num_envs: int) -> PyTree:
        return tuple(side.algorithm.initial_carry(num_envs) for side in sides)

    replay = tuple(side.stored() for side in sides)
    widest: Any = max((side.algorithm.acts_on for side in sides), key=("own", "team", "state").index)
    unequal = [f"{one} (side {side.number})" for side in sides if (one := side.algorithm.unequal_rewards)]
    replay = replay if any(replay) else ()
    stochastic, guided = (any(getattr(side.algorithm, name) for side in sides) for name in ("stochastic", "guided"))

    def alone(agent: int) -> Algorithm:
        side = next(side for side in sides if agent in side.who)
        return of_one_side(spec, side, agent, side.learner)

    return Algorithm(
        init, initial_carry, act, update, widest, replay, " and ".join(unequal), inspect,
        stochastic=stochastic, guided=guided, observe=observe, alone=alone,
    )  # fmt: skip


def of_one_side(spec: EnvSpec, side: Side, agent: int, own: Callable[[Learner], Learner]) -> Algorithm:
    """``Algorithm.alone`` of a team of sides.

    Args:
        spec: the whole team's.
        side: the side of ``agent``.
        agent: its index in the whole team.
        own: the learner of the side, from the team's.
    """
    algorithm = side.algorithm.acting_alone(side.who.index(agent))
    others = tuple(i for i in range(spec.num_agents) if i not in side.who)

    def act(
        learner: Learner, carry: PyTree, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[PyTree, Array, dict[str, Array]]:
        carry, action, extras = algorithm.act(own(learner), carry, side.step(step), key, greedy)
        zeros = jnp.zeros((action.shape[0], len(others), *action.shape[2:]), action.dtype)
        return carry, joint_action(spec, [(side.who, action), (others, zeros)]), extras

    def inspect(
        learner: Learner, carry: PyTree, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        assert algorithm.inspect is not None
        told = algorithm.inspect(own(learner), carry, side.step(step), side.taken(action), extras)
        return of_all_sides(spec, step.alive.shape[0], [(side.who, told), (others, {})])

    return algorithm._replace(act=act, inspect=inspect if algorithm.inspect else None, alone=None)


def _side(number: int, name: str, module: Any, spec: EnvSpec, who: tuple[int, ...], config: Any, one: MakeOne) -> Side:
    try:
        return Side(number, who, spec, one(module, spec, config))
    except InputError as error:
        raise InputError(f"Side {number} ({name}): {error}") from None


def joint_action(spec: EnvSpec, actions: Sequence[tuple[tuple[int, ...], Array]]) -> Array:
    """The actions of a whole team from its sides'.

    Args:
        spec: the whole team's.
        actions: of each side, its agents and their actions [E, n] or [E, n, A_side]. Every agent is of one side.

    Returns:
        [E, N], or [E, N, A] padded with zeros.
    """
    rows = [action for _, action in actions]
    if isinstance(spec.action, Box):
        rows = [jnp.pad(x, ((0, 0), (0, 0), (0, spec.action.width - x.shape[-1]))) for x in rows]
    return jnp.concatenate(rows, 1)[:, np.argsort(np.concatenate([who for who, _ in actions]))]


def of_all_sides(
    spec: EnvSpec, envs: int, told: Sequence[tuple[tuple[int, ...], Mapping[str, Array]]]
) -> dict[str, Array]:
    """``Algorithm.inspect`` of a whole team from its sides'.

    Args:
        spec: the whole team's.
        envs: E.
        told: of each side, its agents, and what its algorithm tells of them; actions beyond a side's own are illegal.
            Every agent is of one side.

    Returns:
        Everything that any side tells; NaN where a side does not tell it. Attention to agents that a side does not see
        is 0.
    """
    n, found = spec.num_agents, {}
    order = np.argsort(np.concatenate([who for who, _ in told]))

    def widened(name: str, who: tuple[int, ...], x: Array) -> Array:
        if x.ndim < 3 or x.shape[-1] == (width := n if name == "attention" else spec.action.width):
            return x
        beyond = 0.0 if name in ("attention", "probabilities") else jnp.nan
        x = jnp.pad(x, ((0, 0), (0, 0), (0, width - x.shape[-1])), constant_values=beyond)
        return x[..., np.argsort([*who, *(i for i in range(n) if i not in who)])] if name == "attention" else x

    for name in dict.fromkeys(name for _, about in told for name in about):
        rows = [widened(name, who, about[name]) if name in about else None for who, about in told]
        shape = next(x.shape[2:] for x in rows if x is not None)
        rows = [
            jnp.full((envs, len(who), *shape), jnp.nan) if x is None else x
            for (who, _), x in zip(told, rows, strict=True)
        ]
        found[name] = jnp.concatenate(rows, 1)[:, order]
    return found
