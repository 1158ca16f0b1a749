"""Which agents play against each other, by their names in the particle environments of Lowe et al. 2017 and in SMAX."""

import re
from collections.abc import Sequence
from typing import Any

ADVERSARIES = frozenset({"adversary", "leadadversary", "eve", "enemy"})
"""Names, without numbers, of agents that play against all others."""


def rivals_of(agents: Sequence[Any]) -> tuple[int, ...] | None:
    """``EnvSpec.rivals`` of agents with these names, team 0 that of the first; None where they tell of one team."""
    adverse = [re.sub(r"[\W_]*\d+$", "", str(agent)) in ADVERSARIES for agent in agents]
    return tuple(int(one != adverse[0]) for one in adverse) if len(set(adverse)) > 1 else None
