"""Behaviour versions of algorithms and environments, which ``run.json`` and the records of studies hold.

A version is a whole number that is raised when the same data and the same random key give other numbers than before: in
an algorithm, what ``benchmarks/frozen.py`` computes; in an environment, its states, observations, rewards or ends of
episodes. Names, messages, speed and rounding do not change it. Version 0 in a record means that it was made before
version 1, or that this is unknown.
"""

import re
from collections.abc import Mapping
from typing import Any

ALGORITHMS: dict[str, int] = {
    "coma": 1,
    "commnet": 1,
    "constant": 1,
    "facmac": 1,
    "haa2c": 1,
    "haddpg": 1,
    "happo": 1,
    "hasac": 1,
    "hatd3": 1,
    "hatrpo": 1,
    "ia2c": 1,
    "iddpg": 1,
    "ippo": 1,
    "ipqn": 1,
    "iql": 1,
    "isac": 1,
    "lica": 1,
    "maa2c": 1,
    "maddpg": 1,
    "magpo": 1,
    "mapg": 1,
    "mappo": 1,
    "masac": 1,
    "mat": 1,
    "mat_dec": 1,
    "matd3": 1,
    "poca": 1,
    "pqn_vdn": 1,
    "qmix": 1,
    "qplex": 1,
    "qtran": 1,
    "random": 1,
    "sable": 1,
    "scripted": 1,
    "seps": 1,
    "shaq": 1,
    "tarmac": 1,
    "vdn": 1,
}
"""By the algorithm's name."""

ENVIRONMENTS: dict[str, int] = {
    "bps/": 1,
    "football/": 1,
    "grid/": 1,
    "gymnasium:": 1,
    "hanabi/": 2,
    "hands/": 1,
    "jaxmarl/": 1,
    "lbf/": 2,
    "mamujoco/": 1,
    "matrix/": 1,
    "mpe/": 1,
    "pettingzoo:": 1,
    "rware/": 2,
    "skirmish/": 2,
    "skirmish/bane_vs_bane": 3,
    "skirmish/protoss_": 4,
    "skirmish/so_many_baneling": 3,
    "skirmish/terran_": 4,
    "skirmish/zerg_": 4,
    "smac/": 1,
}
"""By the beginning of the environment's name: its family, or a part of one with a version of its own. Version 2 of
skirmish changed its crowds, enemies that look for targets at every tick, the weapons (those of the maps' own game
data), collision radii and the spine crawler's regeneration, a medivac's acceleration and a baneling's damage; version 3
of its drawn armies the order of agents, the enemies' orders, which are those of SMACv2's map, and starts near the
border; their version 4 the groups in which enemies start around the allies. In version 4 of drawn zerg and version 3 of
the maps with banelings one that is killed as a step ends explodes in that step. (The cooldown of 2s_vs_1sc's spine
crawler, which is seen only where both armies are agents, has SMAC's scale since; no version was raised for it.)
Version 2 of hanabi deals other cards for a seed, on the device. Version 2 of lbf starts episodes on the device
by lbforaging's rules, where it had Jumanji's starts. Version 2 of rware has the rules of the package on the device,
where it had Jumanji's. (With a ``start_gap`` of 0.4 and more some zerglings of 2c_vs_64zg started behind the cliff, and
with 2 some banelings of so_many_baneling behind a wall; no version was raised for it. In PettingZoo and Gymnasium what
dead agents would observe is zero in a state of all observations since. Of named tasks this concerns Multiwalker with
``terminate_on_fall=False``, at the steps at which walkers fall; no version was raised for it.)"""

OPTIONS: dict[str, int] = {
    "burn_in": 2,
    "normalise_inputs": 3,
    "opponents": 2,
    "reward_norm": 2,
}
"""By the name of a flag of the settings or of a ``Config`` whose own code has changed: counted only in runs in which
the flag is on. A flag that is not listed has version 1.

Version 2 of ``burn_in`` sends no gradient through the burn-in.

Version 2 of ``normalise_inputs`` has a smaller floor of the variance. Version 3 has statistics of each kind of agents
and of each set of entities, and in algorithms with a replay buffer counts the rollouts that only fill it.

Version 2 of ``opponents`` plays policy e mod K in environment e, where each had a block.

Version 2 of ``reward_norm``, which algorithms with a replay buffer alone have, counts the rewards of rollouts that only
fill it, and gives agents that always receive the same reward one scale. Records that it concerns are of the Q family on
``mpe/`` tasks, whose presets set it. Its floor fell too, but the variance of rewards in all recorded tasks lies above
both. ``normalise_rewards`` counts these rollouts as well, but is set in records of other algorithms alone."""
_OFF = (None, False, "none")


def versions(algorithm: str, environment: str, flags: Mapping[str, Any]) -> dict[str, int]:
    """The behaviour versions of what a run consists of; the user's own modules have none.

    Args:
        algorithm: its canonical name; several joined by ``+`` train one side each.
        environment: its name.
        flags: the run's settings and hyper-parameters by name.
    """
    parts = algorithm.split("+")
    keys = ["algorithm"] if len(parts) == 1 else [f"algorithm {i}" for i in range(1, len(parts) + 1)]
    found = {key: ALGORITHMS[part] for key, part in zip(keys, parts, strict=True) if part in ALGORITHMS}
    if (family := family_of(environment)) in ENVIRONMENTS:
        found["environment"] = ENVIRONMENTS[family]
    plain = {flag: re.sub("^side[0-9]+_", "", flag) for flag in flags}
    on = {name for flag, name in plain.items() if name in OPTIONS and flags[flag] not in _OFF}
    return found | {name: version for name, version in OPTIONS.items() if name in on}


def kept(made: Mapping[str, Any]) -> dict[str, int] | None:
    """The versions with which a run was trained; None if they are unknown, as in folders of earlier versions of Shoal.

    Args:
        made: the entry ``made_with`` of its ``run.json``.
    """
    found = made.get("behaviour")
    if isinstance(found, dict) and all(type(version) is int and version >= 0 for version in found.values()):
        return found
    return None


def oldest(before: Mapping[str, int] | None, now: Mapping[str, int]) -> dict[str, int]:
    """The versions of a run that was begun with some versions and may have been continued with others: of each part the
    lower one.

    Args:
        before: those of :func:`kept`; a part that they lack had version 1, and with None every part has version 0.
        now: today's (:func:`versions`).
    """
    return {part: 0 if before is None else min(before.get(part, 1), version) for part, version in now.items()}


def family_of(environment: str) -> str:
    """The key of :data:`ENVIRONMENTS` for an environment, the longest that fits; empty for the user's own."""
    return max((family for family in ENVIRONMENTS if environment.startswith(family)), key=len, default="")


def changes(recorded: Mapping[str, int], algorithm: str, environment: str, flags: Mapping[str, Any]) -> list[str]:
    """For each part of a run whose version is another than today's, a clause such as ``skirmish had behaviour version
    1 and has 2 now``. A record without versions is not compared.

    Args:
        recorded: the versions in the record; a part that it lacks has version 1.
        algorithm, environment, flags: as in :func:`versions`.
    """
    names = algorithm.split("+")
    said = {"environment": family_of(environment).rstrip("/:_"), "algorithm": algorithm}
    said |= {f"algorithm {i}": name for i, name in enumerate(names, 1)}
    if not recorded:
        return []
    found = []
    for part, now in versions(algorithm, environment, flags).items():
        if (was := recorded.get(part, 1)) != now:
            before = f"behaviour version {was}" if was else "an earlier or unknown behaviour version"
            found.append(f"{said.get(part, part)} had {before} and has {now} now")
    return found
