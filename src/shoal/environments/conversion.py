"""Conversion between an environment's own observations and actions and a team's arrays, by ``EnvSpec.interface``.

Used by deployed policies, which know the spaces only from their JSON forms.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.environments.forms import acted, dim_of, flat, joint_mask, parsed, pictured, width_of
from shoal.environments.images import check_image_integers
from shoal.environments.rows import as_bytes
from shoal.environments.rows import width_of as width_of_part
from shoal.errors import InputError
from shoal.spec import Discrete, EnvSpec, Part

MASK = "action_mask"
"""The key of a mask of legal actions in an observation or an info."""


class Observed(NamedTuple):
    """Converted observations of N agents at one timestep."""

    rows: list[np.ndarray | None]
    """Each agent's observation Float[O_i], or uint8 [O_i] if there are images; None for a dead agent."""
    legal: list[np.ndarray | None]
    """Each agent's mask bool [A_i]; None if all actions are legal."""
    alive: np.ndarray
    """bool [N]."""
    names: dict[int, Any]
    """The agents to act, from index to the environment's name."""


class Converter:
    """Converts the environment's observations to arrays, and actions to the form that the environment accepts.

    Args:
        spec: the environment's, without wrappers; its ``interface`` is not empty.

    Raises:
        InputError: the interface does not match the spec.
    """

    def __init__(self, spec: EnvSpec):
        self.spec, interface = spec, parsed(spec.interface)
        self.kind, self._observations, self._actions = interface
        self.agents, self._dims, self._choices = spec.agents, spec.action_dims, isinstance(spec.action, Discrete)
        self._packed = any(map(pictured, interface.observations))
        rows = tuple(width_of(form, self._packed) for form in interface.observations)
        dims = tuple(map(dim_of, interface.actions))
        if (rows, dims, self._packed) != (spec.obs_dims, spec.action_dims, spec.packed):
            raise InputError(f"{spec.name}: spec.interface describes other spaces than spec.obs_dims and action_dims.")

    def understands(self, observations: Any) -> bool:
        """Whether observations have the environment's own form, rather than one row per agent."""
        if self.kind == "list":
            return isinstance(observations, list | tuple)
        if self.kind != "one":
            return isinstance(observations, Mapping)
        if isinstance(observations, Mapping):
            return set(observations) != set(self.agents)
        form, rows = self._observations[0], (1, width_of(self._observations[0]))
        return form[0] == "tuple" or form == ["box", list(rows)] or np.shape(observations) != rows

    def read(self, observations: Any, infos: Any, legal: Any, alive: Collection[Any] | None, turn: Any) -> Observed:
        """Convert the observations of one timestep.

        Args:
            observations: as returned by the environment's ``reset`` and ``step``; if agents take turns, a dict of the
                results of ``observe`` for all agents.
            infos: the environment's infos, for the masks in them; or None.
            legal: masks by agent, which override those; or None.
            alive: names of the living agents; None for all agents in ``observations``.
            turn: the agent to move, if agents take turns.

        Raises:
            InputError: an observation does not match its space, an agent is unknown, or ``turn`` is missing.
        """
        given, info_of, masks = self._given(observations), self._infos(infos), self._masks(legal)
        here = set(given) if alive is None else {self.index(name) for name in alive} & set(given)
        agents = range(len(self.agents))
        rows = [self.row(i, given[i][1]) if i in here else None for i in agents]
        legals = [self.legal(i, given[i][1], info_of.get(i), masks.get(i)) if i in here else None for i in agents]
        names = {i: given[i][0] for i in sorted(here)}
        if self.kind == "turns":
            if turn is None:
                raise InputError(
                    "Agents take turns in this environment: pass turn, for example turn=env.agent_selection."
                )
            mover = self.index(turn)
            if mover not in here:
                raise InputError(f"It is the turn of {turn!r}, whose observation is missing.")
            names = {mover: names[mover]}
            legals = [mask if i == mover else _first(self._dims[i]) for i, mask in enumerate(legals)]
        return Observed(rows, legals, np.array([i in here for i in agents]), names)

    def row(self, i: int, observation: Any) -> np.ndarray:
        """An agent's observation as one row Float[O_i] or uint8 [O_i], without its mask.

        Raises:
            InputError: it does not match its space.
        """
        return flat(self._observations[i], observation, self.agents[i], self._packed)

    def legal(self, i: int, observation: Any, info: Any = None, mask: Any = None) -> np.ndarray | None:
        """The mask over an agent's own actions, bool [A_i]: ``mask``, or that in its observation or info.

        None without a mask, and for continuous actions. If no action is legal, index 0 is, as in training.

        Raises:
            InputError: the mask does not match the agent's actions.
        """
        if mask is None:
            found = [one[MASK] for one in (observation, info) if isinstance(one, Mapping) and MASK in one]
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
        """An agent's action in the environment's form, from an index or a row Float[A] of the team's box."""
        return acted(self._actions[i], row)

    def index(self, name: Any) -> int:
        """Index of an agent.

        Raises:
            InputError: the agent is unknown.
        """
        if str(name) not in self.agents:
            raise InputError(f"There is no agent {name!r}; the agents are {', '.join(self.agents)}.")
        return self.agents.index(str(name))

    def _given(self, observations: Any) -> dict[int, tuple[Any, Any]]:
        """From the index of each agent to (the environment's name, its observation)."""
        if self.kind == "one":
            return {0: (self.agents[0], observations)}
        if self.kind == "list":
            if len(observations) != len(self.agents):
                raise InputError(f"{len(self.agents)} observations are needed, one per agent, not {len(observations)}.")
            return {i: (self.agents[i], one) for i, one in enumerate(observations)}
        return {self.index(name): (name, one) for name, one in observations.items()}

    def _infos(self, infos: Any) -> dict[int, Any]:
        if self.kind == "one":
            return {0: infos}
        if infos is None or self.kind == "list":  # a list has one info for all agents
            return {}
        return {self.index(name): info for name, info in infos.items() if str(name) in self.agents}

    def _masks(self, legal: Any) -> dict[int, Any]:
        if legal is None:
            return {}
        if isinstance(legal, Mapping):
            return {self.index(name): mask for name, mask in legal.items()}
        return {0: legal} if self.kind == "one" else dict(enumerate(legal))


def row_of(parts: Sequence[Part], given: Any, who: str) -> np.ndarray:
    """An agent's observation as a row of bytes.

    Args:
        parts: the arrays of which it consists.
        given: the array, or several as a sequence or as a dict by name; or the row itself.
        who: the agent's name, for errors.

    Raises:
        InputError: an array is missing or has another shape, or one for ``uint8`` has no integer type or numbers
            outside 0 to 255.
    """
    width = sum(width_of_part(part, packed=True) for part in parts)
    if isinstance(given, Mapping):
        if missing := [part.name for part in parts if part.name not in given]:
            raise InputError(f"{who}'s observation lacks {missing[0]!r}.")
        given = [given[part.name] for part in parts]
    elif not isinstance(given, list | tuple) or len(parts) == 1:
        row = np.asarray(given)
        if row.dtype == np.uint8 and row.shape == (width,):
            return row
        given = [row]
    if len(given) != len(parts):
        raise InputError(f"{who}'s observation is of {len(parts)} arrays, not of {len(given)}.")
    found = []
    for part, array in zip(parts, map(np.asarray, given), strict=True):
        if array.dtype.kind not in "biuf" or (array.shape != part.shape and array.shape != (part.size,)):
            raise InputError(f"{who}'s observation has an array {part.shape} of {part.dtype}, not {array.shape}.")
        if part.dtype == "uint8":
            try:
                check_image_integers(array)
            except ValueError as error:
                raise InputError(f"{who}'s observation has an image of another type: {error}.") from None
        if part.dtype == "uint8" and not np.isin(array, np.arange(256)).all():
            raise InputError(f"{who}'s observation has an image of whole numbers from 0 to 255, not of {array.dtype}.")
        found.append(array.reshape(-1).astype(np.uint8) if part.dtype == "uint8" else as_bytes(array.reshape(-1)))
    return np.concatenate(found)


def _first(count: int) -> np.ndarray:
    """A mask that allows index 0 only."""
    return np.arange(count) == 0
