"""Between an environment's own observations and actions and the arrays of a team, as ``EnvSpec.interface`` says.

Deployed policies use it, where the environment is not Shoal's to build: it knows spaces from their forms alone.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from shoal.environments.forms import acted, dim_of, flat, joint_mask, parsed, width_of
from shoal.errors import InputError
from shoal.spec import Discrete, EnvSpec

MASK = "action_mask"
"""The key of a mask of legal actions in an observation or an info."""


class Seen(NamedTuple):
    """What a team of N sees at one timestep."""

    rows: list[np.ndarray | None]
    """Each agent's observation Float[O_i]; None for an agent that is gone."""
    legal: list[np.ndarray | None]
    """Each agent's mask bool [A_i]; None where all actions are legal."""
    alive: np.ndarray
    """bool [N]."""
    names: dict[int, Any]
    """Agents that an action is wanted of, by index, with what the environment calls them."""


class Handover:
    """Reads observations as the environment returns them, and gives actions as it takes them.

    Args:
        spec: the environment's, without wrappers; its ``interface`` is not empty.

    Raises:
        InputError: the interface is not that of this spec.
    """

    def __init__(self, spec: EnvSpec):
        self.spec, said = spec, parsed(spec.interface)
        self.kind, self._observations, self._actions = said
        self.agents, self._dims, self._choices = spec.agents, spec.action_dims, isinstance(spec.action, Discrete)
        here = tuple(map(width_of, said.observations)), tuple(map(dim_of, said.actions))
        if here != (spec.obs_dims, spec.action_dims):
            raise InputError(f"{spec.name}: spec.interface describes other spaces than spec.obs_dims and action_dims.")

    def understands(self, observations: Any) -> bool:
        """Whether observations come as the environment returns them, and not as one row for each agent."""
        if self.kind == "list":
            return isinstance(observations, list | tuple)
        if self.kind != "one":
            return isinstance(observations, Mapping)
        if isinstance(observations, Mapping):
            return set(observations) != set(self.agents)
        form, rows = self._observations[0], (1, width_of(self._observations[0]))
        return form[0] == "tuple" or form == ["box", list(rows)] or np.shape(observations) != rows

    def read(self, observations: Any, infos: Any, legal: Any, alive: Collection[Any] | None, turn: Any) -> Seen:
        """What the team sees.

        Args:
            observations: as the environment's ``reset`` and ``step`` return them; where agents take turns, a dict of
                what ``observe`` gives of each.
            infos: likewise, for the masks in them; None for none.
            legal: masks by agent, in the place of those; None for none.
            alive: names of the agents that are still there; None for all that ``observations`` have.
            turn: whose move it is, where agents take turns.

        Raises:
            InputError: an observation does not fit its space, there is no such agent, or it is nobody's turn.
        """
        given, told, masks = self._given(observations), self._told(infos), self._masks(legal)
        here = set(given) if alive is None else {self.index(name) for name in alive} & set(given)
        agents = range(len(self.agents))
        rows = [self.row(i, given[i][1]) if i in here else None for i in agents]
        legals = [self.legal(i, given[i][1], told.get(i), masks.get(i)) if i in here else None for i in agents]
        names = {i: given[i][0] for i in sorted(here)}
        if self.kind == "turns":
            if turn is None:
                raise InputError("Agents take turns here: say whose move it is, as in turn=env.agent_selection.")
            mover = self.index(turn)
            if mover not in here:
                raise InputError(f"It is the turn of {turn!r}, whose observation is missing.")
            names = {mover: names[mover]}
            legals = [mask if i == mover else _first(self._dims[i]) for i, mask in enumerate(legals)]
        return Seen(rows, legals, np.array([i in here for i in agents]), names)

    def row(self, i: int, seen: Any) -> np.ndarray:
        """An agent's observation as one row Float[O_i], without a mask in it.

        Raises:
            InputError: it does not fit its space.
        """
        return flat(self._observations[i], seen, self.agents[i])

    def legal(self, i: int, seen: Any, info: Any = None, mask: Any = None) -> np.ndarray | None:
        """The mask over an agent's own actions, bool [A_i]: ``mask``, or that in its observation, or that in its info;
        None for none, and for continuous actions. Where nothing is legal, index 0 is, as in training.

        Raises:
            InputError: it does not fit the agent's actions.
        """
        if mask is None:
            found = [one[MASK] for one in (seen, info) if isinstance(one, Mapping) and MASK in one]
            mask = found[0] if found else None
        if mask is None or not self._choices:
            return None
        try:
            row = joint_mask(self._actions[i], mask)
        except (TypeError, ValueError):
            raise InputError(f"{self.agents[i]}'s {MASK} is not a row of numbers.") from None
        if row.size != self._dims[i]:
            raise InputError(f"{self.agents[i]}'s {MASK} has {row.size} entries for {self._dims[i]} actions.")
        return row if row.any() else _first(row.size)

    def action(self, i: int, row: Any) -> Any:
        """An agent's action as the environment takes it, of an index, or of a row of the team's box Float[A]."""
        return acted(self._actions[i], row)

    def index(self, name: Any) -> int:
        """An agent's place in the team.

        Raises:
            InputError: there is no such agent.
        """
        if str(name) not in self.agents:
            raise InputError(f"There is no agent {name!r}; the agents are {', '.join(self.agents)}.")
        return self.agents.index(str(name))

    def _given(self, observations: Any) -> dict[int, tuple[Any, Any]]:
        """What the environment calls each agent, and what it shows it."""
        if self.kind == "one":
            return {0: (self.agents[0], observations)}
        if self.kind == "list":
            if len(observations) != len(self.agents):
                raise InputError(f"{len(self.agents)} observations are needed, one per agent, not {len(observations)}.")
            return {i: (self.agents[i], one) for i, one in enumerate(observations)}
        return {self.index(name): (name, one) for name, one in observations.items()}

    def _told(self, infos: Any) -> dict[int, Any]:
        if self.kind == "one":
            return {0: infos}
        if infos is None or self.kind == "list":  # there one info is about all agents
            return {}
        return {self.index(name): info for name, info in infos.items() if str(name) in self.agents}

    def _masks(self, legal: Any) -> dict[int, Any]:
        if legal is None:
            return {}
        if isinstance(legal, Mapping):
            return {self.index(name): mask for name, mask in legal.items()}
        return {0: legal} if self.kind == "one" else dict(enumerate(legal))


def _first(count: int) -> np.ndarray:
    """A mask that allows index 0 alone."""
    return np.arange(count) == 0
