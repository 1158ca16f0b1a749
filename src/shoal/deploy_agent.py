"""The trained policy of one agent, and the description of spaces as text."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from shoal.types import Discrete, EnvSpec


class AgentPolicy:
    """The policy of one agent, which acts on its own observation only."""

    def __init__(self, team: Any, index: int):
        self._team, self._index = team, index
        self.name = team.agents[index]

    def __repr__(self) -> str:
        team, i = self._team, self._index
        return f"AgentPolicy({self.name} of {team._title}; {spaces_in_words(team.spec, [i])}; {team._how})"

    def reset(self) -> None:
        """Start a new episode."""
        self._team.reset()

    def act(self, observation: Any, legal: Any = None, *, info: Any = None, turn: bool = True) -> Any:
        """The agent's action.

        A policy that is recurrent, blind, stacks frames or reads its last action must be called at every timestep; in a
        turn-based game also for the moves of others (``env.observe(name)``, with ``turn=False``).

        Args:
            observation: the agent's observation [O_i], or that of a PettingZoo or Gymnasium environment, as in
                :meth:`Policies.act`.
            legal: mask of its legal actions [A_i]; None for all, or for the mask in ``observation`` or ``info``.
            info: the agent's info from the environment, for the mask in it.
            turn: False for another agent's move in a turn-based game: as in training, index 0 is the only legal action
                and is not executed.

        Returns:
            An int (discrete) or Float[A_i] (box); for a PettingZoo or Gymnasium environment an action that it accepts.

        Raises:
            InputError: the observation or the mask has the wrong shape.
        """
        team, i = self._team, self._index
        n, converter = team.spec.num_agents, team._converter
        if converter is not None:
            row, mask = converter.row(i, observation), converter.legal(i, observation, info, legal)
        else:
            row = team._row(i, observation, team.spec.obs_dims, team.spec.obs_dim, "observation")
            dims, width = team.spec.action_dims, team.spec.action.width
            mask = None if legal is None else team._row(i, legal, dims, width, "legal actions").astype(bool)
        if not turn:
            mask = np.arange(team.spec.action_dims[i]) == 0
        rows: list[np.ndarray | None] = [None] * n
        masks: list[np.ndarray | None] = [None] * n
        rows[i], masks[i] = row, mask
        chosen = team._choose(rows, masks, None, None)[i]
        if converter is not None:
            return converter.action(i, chosen)
        return int(chosen) if isinstance(team.spec.action, Discrete) else chosen[: team.spec.action_dims[i]]


def check_given(
    team: Any,
    observations: Any,
    legal: Any = None,
    *,
    alive: Any = None,
    infos: Any = None,
    turn: Any = None,
    state: Any = None,
) -> None:
    """Check arguments of :meth:`Policies.act` without acting, which compiles.

    Raises:
        InputError: an observation, a mask or the state is missing or has the wrong shape.
    """
    converter, spec = team._converter, team.spec
    if converter is not None and converter.understands(observations):
        converter.read(observations, infos, legal, team._present(alive), turn)
    else:
        team._rows(observations, spec.obs_dims, spec.obs_dim, "observation")
        if legal is not None:
            team._rows(legal, spec.action_dims, spec.action.width, "legal actions")
    team._state(state)


def spaces_in_words(spec: EnvSpec, which: Iterable[int]) -> str:
    """The observation and action spaces of these agents, as text."""
    observed, acts = ({dims[i] for i in which} for dims in (spec.feature_dims, spec.action_dims))
    if isinstance(spec.action, Discrete):
        does = f"1 of {_to(acts)} actions"
    else:
        does = f"{_to(acts)} numbers in [{spec.action.low:g}, {spec.action.high:g}]"
    return f"{_to(observed)} numbers observed, {does} chosen"


def _to(numbers: set[int]) -> str:
    """A range as text, for example ``5`` or ``3 to 7``."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
