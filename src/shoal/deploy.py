"""Trained policies to act with: each agent needs its own observations and nothing else."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from shoal.environments.wrappers import Wrapping, change_of, unwrapped
from shoal.errors import InputError
from shoal.types import Algorithm, Discrete, EnvSpec, Learner, PyTree, Step

Observations = Mapping[str, Any] | Sequence[Any] | np.ndarray | jax.Array


class Policies:
    """A team's trained policies. ``act`` advances recurrent state; ``reset`` starts a new episode.

    Observations are handed over as the environment gives them: frames are stacked and ids appended here.

    Decentralised policies (``Algorithm.acts_on`` is ``own``) read each agent's own row of the observations only, and
    :meth:`agent` gives one agent alone.
    """

    def __init__(
        self,
        spec: EnvSpec,
        algorithm: Algorithm,
        policy: PyTree,
        *,
        greedy: bool = True,
        seed: int = 0,
        wrapping: Wrapping | None = None,
        title: str = "",
    ):
        """Policies to act with.

        Args:
            spec: what ``algorithm`` was made for: the wrapped environment's, where it was wrapped.
            algorithm: the team's.
            policy: its trained ``Learner.policy``.
            greedy: act by the mode rather than by sampling.
            seed: of the samples.
            wrapping: what the environment was wrapped by in training; ``Policies.spec`` is as if it were not.
            title: where they come from, for ``repr``; by default the environment's name.
        """
        self._title = title or spec.name
        self._wrapping = (wrapping or Wrapping()).observing
        self._trained_for, self.spec, self.greedy = spec, unwrapped(spec, self._wrapping), greedy
        self._change, self._memory = change_of(self.spec, self._wrapping), None
        self._learner = Learner(policy, (), (), (), np.int32(0))  # type: ignore[arg-type]
        self._algorithm, self._key = algorithm, jax.random.key(seed)
        self._act = jax.jit(algorithm.act, static_argnums=4)
        self.reset()

    def __repr__(self) -> str:
        spec = self.spec
        names = ", ".join(spec.agents[:4]) + (", …" if spec.num_agents > 4 else "")
        agents = f"{spec.num_agents} agents ({names})" if spec.num_agents > 1 else f"one agent ({names})"
        return f"Policies({self._title}; {agents}; {_spaces(spec, range(spec.num_agents))}; {self._how})"

    @property
    def _how(self) -> str:
        return "greedy" if self.greedy else "sampled"

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents' names, in the order of rows."""
        return self.spec.agents

    def reset(self) -> None:
        """A new episode begins: recurrent state and earlier observations are forgotten."""
        self._carry = self._algorithm.initial_carry(1)
        self._first = True

    def act(
        self,
        observations: Observations,
        legal: Observations | None = None,
        *,
        alive: Mapping[str, Any] | Sequence[Any] | np.ndarray | None = None,
        state: Any = None,
    ) -> Any:
        """One action per agent, in the form that the observations came in.

        Args:
            observations: an array [N, O], a sequence of N arrays [O_i], or a dict from names to arrays.
            legal: which actions are legal, in the same form ([N, A] or [A_i] each); None for all.
            alive: which agents take part, N booleans or a dict of them; None for all. A team that acts as one reads it.
            state: the environment's global state [S], for a team that reads it.

        Returns:
            An array Int[N] (discrete) or Float[N, A] (box), or a dict from names to each agent's own action, without
            padding.

        Raises:
            InputError: a row or the state is missing or has the wrong width, or a living agent has no legal action.
        """
        obs = self._rows(observations, self.spec.obs_dims, self.spec.obs_dim, "observation")
        n, ones = self.spec.num_agents, (1,) * self.spec.num_agents
        living = np.ones(n, bool) if alive is None else self._rows(alive, ones, 1, "alive")[:, 0].astype(bool)
        own = np.arange(self.spec.action.width) < np.array(self.spec.action_dims)[:, None]
        if legal is not None:
            own &= self._rows(legal, self.spec.action_dims, self.spec.action.width, "legal actions").astype(bool)
            able = own.any(-1) | ~living
            if not able.all():
                raise InputError(f"{self.agents[able.argmin()]} has no legal action.")
        step = Step(
            obs=obs.astype(np.float32),  # type: ignore[arg-type]
            state=self._state(state).astype(np.float32),  # type: ignore[arg-type]
            legal=own,  # type: ignore[arg-type]
            alive=living,  # type: ignore[arg-type]
            reward=np.zeros(n, np.float32),  # type: ignore[arg-type]
            discount=np.ones(n, np.float32),  # type: ignore[arg-type]
            first=np.full((), self._first),  # type: ignore[arg-type]
            last=np.zeros((), bool),  # type: ignore[arg-type]
        )
        self._memory, step = self._change.begin(step) if self._first else self._change.follow(self._memory, step)
        self._key, key = jax.random.split(self._key)
        batch = jax.tree.map(lambda x: x[None], step)
        self._carry, action, _ = self._act(self._learner, self._carry, batch, key, self.greedy)
        self._first = False
        rows = np.asarray(action[0])
        space = self.spec.action
        if not isinstance(space, Discrete):
            rows = np.clip(rows, space.low, space.high)
        if not isinstance(observations, Mapping):
            return rows
        if isinstance(space, Discrete):
            return {name: int(rows[i]) for i, name in enumerate(self.agents)}
        return {name: rows[i, : self.spec.action_dims[i]] for i, name in enumerate(self.agents)}

    def agent(self, name: str | int) -> "AgentPolicy":
        """One agent's policy, with recurrent state of its own.

        Raises:
            InputError: there is no such agent, or the team cannot act apart.
        """
        if self._algorithm.acts_on != "own":
            raise InputError("No agent of this team acts alone: each reads all observations; act with the whole team.")
        index = self.agents.index(name) if name in self.agents else name
        if not isinstance(index, int) or not 0 <= index < self.spec.num_agents:
            raise InputError(f"There is no agent {name!r}; the agents are {', '.join(self.agents)}.")
        policy = self._learner.policy
        team = Policies(
            self._trained_for, self._algorithm, policy, greedy=self.greedy, wrapping=self._wrapping, title=self._title
        )
        return AgentPolicy(team, index)

    def _state(self, given: Any) -> np.ndarray:
        width = self.spec.state_dim
        if given is None:
            if self._algorithm.acts_on == "state":
                raise InputError(f"This team reads the global state, {width} numbers: give it as state.")
            return np.zeros(width)
        state = np.asarray(given).reshape(-1)
        if state.size != width:
            raise InputError(f"The global state has width {width}, not {state.size}.")
        return state

    def _rows(self, given: Observations, widths: Sequence[int], width: int, what: str) -> np.ndarray:
        if isinstance(given, Mapping):
            missing = [name for name in self.agents if name not in given]
            if missing:
                raise InputError(f"The {what} of {', '.join(missing)} is missing.")
            given = [given[name] for name in self.agents]
        if len(given) != len(self.agents):
            raise InputError(f"{len(self.agents)} rows of {what} are needed, one per agent, not {len(given)}.")
        rows = np.zeros((len(self.agents), width))
        for i, row in enumerate(given):
            row = np.asarray(row).reshape(-1)
            if row.size not in (widths[i], width):
                raise InputError(f"{self.agents[i]}'s {what} has width {widths[i]}, not {row.size}.")
            rows[i, : row.size] = row
        return rows


class AgentPolicy:
    """One agent's policy: its ``act`` sees nothing of the others."""

    def __init__(self, team: Policies, index: int):
        self._team, self._index = team, index
        self.name = team.agents[index]

    def __repr__(self) -> str:
        team, i = self._team, self._index
        return f"AgentPolicy({self.name} of {team._title}; {_spaces(team.spec, [i])}; {team._how})"

    def reset(self) -> None:
        """A new episode begins."""
        self._team.reset()

    def act(self, observation: Any, legal: Any = None) -> Any:
        """An int (discrete) or Float[A_i] (box) from the agent's own observation [O_i]."""
        spec, i = self._team.spec, self._index
        observations = {name: np.zeros(width) for name, width in zip(spec.agents, spec.obs_dims, strict=True)}
        masks = None
        if legal is not None:
            masks = {name: np.ones(width) for name, width in zip(spec.agents, spec.action_dims, strict=True)}
            masks[spec.agents[i]] = legal
        return self._team.act(observations | {spec.agents[i]: observation}, masks)[self.name]


def _spaces(spec: EnvSpec, which: Iterable[int]) -> str:
    """What these agents see and do, in words."""
    seen, acts = ({dims[i] for i in which} for dims in (spec.obs_dims, spec.action_dims))
    if isinstance(spec.action, Discrete):
        does = f"1 of {_to(acts)} actions"
    else:
        does = f"{_to(acts)} numbers in [{spec.action.low:g}, {spec.action.high:g}]"
    return f"{_to(seen)} numbers observed, {does} chosen"


def _to(numbers: set[int]) -> str:
    """For example ``5``, or ``3 to 7``."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
