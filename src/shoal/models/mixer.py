"""Mixers: the value of a joint action from the agents' utilities."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Array, PRNGKeyArray

from shoal.errors import InputError, unknown
from shoal.networks.inputs import Input, critic_input
from shoal.types import EnvSpec, PyTree, Step


class Mixer(NamedTuple):
    """The value of a joint action from utilities: the one difference between the algorithms of QMIX's family."""

    init: Callable[[PRNGKeyArray], PyTree]
    """key -> parameters, leaves with a leading axis of length 1."""
    apply: Callable[[PyTree, Array, Array, Array, Step], Array]
    """(parameters, utilities of the actions [*b N], the agents' best utilities [*b N], actions Int[*b N], step) ->
    Q_tot [*b]; or Q [*b N] where each agent learns independently. Dead agents' utilities are 0."""
    team: bool = True
    """Whether there is one value for the team."""
    reads_state: bool = False
    """Whether it needs the global state."""
    constraints: Callable[[PyTree, Array, Array, Step], tuple[Array, dict[str, Array]]] | None = None
    """(parameters, utilities of every action [*b N A], actions, step) -> (what is added to the loss [*b], rows of
    metrics [*b]); where the utilities are fitted to a value that is not computed from them (QTRAN)."""


def mixer_input(spec: EnvSpec, kind: str) -> Input:
    """What a mixer reads: the global ``state``, or ``concat``, all agents' observations.

    Raises:
        InputError: there is no such input, or no global state.
    """
    if kind not in ("state", "concat"):
        raise unknown("mixer_input", kind, ("state", "concat"))
    if kind == "state" and spec.state_dim == 0:
        raise InputError(f"{spec.name} has no global state, which the mixer would read; use mixer_input 'concat'.")
    return critic_input(spec, kind, agent_id=False)
