"""Validation of specs, and which agents play against each other by their names. Does not import JAX."""

import functools
import math
import numbers
import re
import types
import typing
from collections.abc import Sequence
from typing import Any

from shoal.environments.interface import dim_of, parsed
from shoal.errors import InputError, shortened
from shoal.options.convert import alternatives
from shoal.spec import Box, Discrete, EnvSpec, Part

COLUMNS = ("step", "update", "seconds", "steps_per_second", "return", "episode_length")
"""Columns of every run's log, which are not allowed as names of metrics."""
_METRIC = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
MAX_STEP_NUMBERS = 2**28
"""Largest number of values in one timestep of an environment, including padding."""
MAX_NAME = 1000
"""Largest number of characters in a name."""


def check_spec(spec: EnvSpec) -> None:
    """Check that the fields of a spec are valid and consistent.

    Raises:
        InputError: they are not; the message names the field.
    """
    _check_tuples(spec)
    if not spec.agents:
        raise InputError(f"{spec.name}: spec.agents is empty, but a team needs at least one agent.")
    for name in (spec.name, *spec.agents):
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= MAX_NAME:
            raise InputError(
                f"{shortened(name)} cannot name an environment or an agent: a name is short printable text."
            )
    _check_types(spec)
    if len(set(spec.agents)) < spec.num_agents:
        raise InputError(f"{spec.name}: spec.agents has a name twice: {shortened(spec.agents)}.")
    for field in ("obs_dims", "action_dims", "roles"):
        length = len(getattr(spec, field))
        if length != spec.num_agents:
            raise InputError(f"{spec.name}: spec.{field} has {length} entries for {spec.num_agents} agents.")
    if min(spec.obs_dims) < 0 or spec.state_dim < 0:
        raise InputError(f"{spec.name}: spec.obs_dims and spec.state_dim cannot be negative.")
    _check_parts(spec)
    if isinstance(spec.action, Box) and not spec.action.low < spec.action.high:
        raise InputError(f"{spec.name}: spec.action.low must be below spec.action.high.")
    if spec.num_agents * max(spec.obs_dim, spec.action.width) + spec.state_dim > MAX_STEP_NUMBERS:
        raise InputError(f"{spec.name}: one step of the environment would hold more than {MAX_STEP_NUMBERS:,} numbers.")
    if spec.horizon < 1:
        raise InputError(f"{spec.name}: spec.horizon must be at least 1, not {spec.horizon}.")
    if min(spec.action_dims) < 1 or max(spec.action_dims) != spec.action.width:
        raise InputError(
            f"{spec.name}: spec.action_dims must lie between 1 and the padded width {spec.action.width} and reach it, "
            f"not {spec.action_dims}."
        )
    if set(spec.roles) != set(range(len(set(spec.roles)))):  # the largest may be very large
        raise InputError(f"{spec.name}: spec.roles must be numbered 0, 1, 2 … without a gap, not {spec.roles}.")
    for field, teams in (("sides", spec.sides), ("rivals", spec.rivals)):
        if teams is not None and (len(teams) != spec.num_agents or set(teams) != set(range(len(set(teams))))):
            raise InputError(
                f"{spec.name}: spec.{field} must be None or give each of the {spec.num_agents} agents a side, numbered "
                f"0, 1, 2 … without a gap, not {teams}."
            )
    if spec.scored is not None and (not spec.scored or not set(spec.scored) <= set(range(spec.num_agents))):
        raise InputError(f"{spec.name}: spec.scored must be None or name some of the agents, not {spec.scored}.")
    if not isinstance(spec.turns, bool) or (spec.turns and not isinstance(spec.action, Discrete)):
        raise InputError(f"{spec.name}: spec.turns must be False, or with discrete actions True, not {spec.turns}.")
    _check_targets(spec)
    for name in spec.metrics:
        if _METRIC.fullmatch(name) is None:
            raise InputError(
                f"{spec.name}: spec.metrics holds {name!r}, but a metric's name is made of letters, digits, '_', '-' "
                f"and '.', and begins with a letter."
            )
        if name in COLUMNS:
            raise InputError(f"{spec.name}: spec.metrics holds {name!r}, which is already another column of the log.")
    if len(set(spec.metrics)) != len(spec.metrics):
        raise InputError(f"{spec.name}: spec.metrics names a metric twice: {', '.join(spec.metrics)}.")
    novel = spec.novel or ()
    if len(set(novel)) != len(novel) or any(index not in range(spec.obs_dim) for index in novel):
        raise InputError(f"{spec.name}: spec.novel must hold distinct indices below {spec.obs_dim}, not {novel}.")
    if not isinstance(spec.interface, str):
        raise InputError(f"{spec.name}: spec.interface must be text, not {shortened(spec.interface)}.")
    if spec.interface:
        actions = parsed(spec.interface).actions
        boxes = {form[0] == "box" for form in actions}
        if tuple(map(dim_of, actions)) != spec.action_dims or boxes != {isinstance(spec.action, Box)}:
            raise InputError(f"{spec.name}: spec.interface describes other actions than spec.action_dims.")


@functools.cache
def _tuples() -> dict[str, tuple[type, bool]]:
    """The fields of a spec that are tuples of names or of whole numbers: (type of the items, whether None is valid)."""
    found = {}
    for name, hint in typing.get_type_hints(EnvSpec).items():
        options = alternatives(hint)
        for option in options:
            if typing.get_origin(option) is tuple and typing.get_args(option)[0] in (str, int):
                found[name] = (typing.get_args(option)[0], types.NoneType in options)
    return found


def _check_tuples(spec: EnvSpec) -> None:
    """Check the types of tuples: the letters of a string, or the keys of a mapping, would pass as their items."""
    for name, (kind, optional) in _tuples().items():
        value = getattr(spec, name)
        if optional and value is None:
            continue
        items = str if kind is str else numbers.Integral  # NumPy's integers too
        if type(value) is not tuple or not all(isinstance(x, items) and not isinstance(x, bool) for x in value):
            what, example = ("names", "('a',)") if kind is str else ("whole numbers", "(3,)")
            raise InputError(
                f"{shortened(spec.name)}: spec.{name} must be a tuple of {what}, such as {example}, not "
                f"{shortened(value)}."
            )


def _check_types(spec: EnvSpec) -> None:
    """Check the types of fields that are no tuples: a horizon of 20.0 would pass as a number, and fail as a length."""
    action = spec.action
    if not isinstance(action, Discrete | Box):
        raise InputError(
            f"{spec.name}: spec.action must be shoal.Discrete(n) or shoal.Box(dim, low, high), not {shortened(action)}."
        )
    whole, real = {"horizon": spec.horizon, "state_dim": spec.state_dim}, {}
    if isinstance(action, Discrete):
        whole["action.n"] = action.n
    else:
        whole["action.dim"] = action.dim
        real = {"action.low": action.low, "action.high": action.high}
    for fields, kind, what in ((whole, numbers.Integral, "a whole number"), (real, numbers.Real, "a number")):
        for name, value in fields.items():
            if not isinstance(value, kind) or isinstance(value, bool):
                raise InputError(f"{spec.name}: spec.{name} must be {what}, not {shortened(value)}.")
    if not isinstance(spec.shared_reward, bool):
        raise InputError(f"{spec.name}: spec.shared_reward must be True or False, not {shortened(spec.shared_reward)}.")
    if spec.score not in ("sum", "mean"):
        raise InputError(f"{spec.name}: spec.score must be 'sum' or 'mean', not {shortened(spec.score)}.")


def _check_parts(spec: EnvSpec) -> None:
    if spec.parts is None:
        return
    # A Part is a tuple too, and lists cannot be hashed.
    if not isinstance(spec.parts, tuple) or not all(
        type(own) is tuple and all(isinstance(part, Part) for part in own) for own in spec.parts
    ):
        raise InputError(
            f"{spec.name}: spec.parts must be a tuple with a tuple of shoal.Part for each agent, such as "
            f"((view, speed),) for one agent that observes two arrays."
        )
    if len(spec.parts) != spec.num_agents:
        raise InputError(f"{spec.name}: spec.parts has {len(spec.parts)} entries for {spec.num_agents} agents.")
    for own, width in zip(spec.parts, spec.obs_dims, strict=True):
        for part in own:
            if not isinstance(part.dtype, str) or part.dtype not in ("float32", "uint8"):
                raise InputError(f"{spec.name}: {shortened(part.dtype)} in spec.parts must be 'float32' or 'uint8'.")
            for shape in (part.shape, part.source or ()):
                if not isinstance(shape, tuple) or not all(isinstance(length, numbers.Integral) for length in shape):
                    raise InputError(
                        f"{spec.name}: the shape {shortened(shape)} in spec.parts must be a tuple of whole numbers, "
                        f"such as (64, 64, 3)."
                    )
                if any(length < 0 for length in shape) or math.prod(shape) > MAX_STEP_NUMBERS or len(shape) > 8:
                    raise InputError(f"{spec.name}: {shortened(shape)} in spec.parts is not the shape of an array.")
            if not isinstance(part.name, str) or len(part.name) > MAX_NAME or not (part.name + " ").isprintable():
                raise InputError(f"{spec.name}: {shortened(part.name)} in spec.parts is not short printable text.")
        sizes = [part.size * (4 if spec.packed and part.dtype == "float32" else 1) for part in own]
        if sum(sizes) != width:
            unit = "bytes" if spec.packed else "numbers"
            raise InputError(f"{spec.name}: spec.parts takes {sum(sizes)} {unit}, but spec.obs_dims says {width}.")
    if spec.packed and spec.novel:
        raise InputError(f"{spec.name}: spec.novel must be None or () where observations are rows of bytes.")


def _check_targets(spec: EnvSpec) -> None:
    form = 'a tuple of names of parts, each with the number of an action, such as (("enemies", 6),)'
    given = spec.targets
    if type(given) is not tuple or not all(
        type(target) is tuple and [type(x) for x in target] == [str, int] for target in given
    ):
        raise InputError(f"{spec.name}: spec.targets must be {form}, not {shortened(given)}.")
    for own in dict.fromkeys(spec.parts or ()):  # armies of unequal sizes see different numbers of enemies
        sizes = [(part.name, part.shape[0]) for part in own if len(part.shape) == 2]
        taken = [range(first, first + count) for name, first in given for other, count in sizes if other == name]
        numbered = sorted(action for actions in taken for action in actions)
        below = not numbered or 0 <= numbered[0] <= numbered[-1] < spec.action.width
        if len(set(numbered)) < len(numbered) or not below:
            raise InputError(
                f"{spec.name}: spec.targets {shortened(given)} does not give each row of a part an action of its own "
                f"below {spec.action.width}."
            )
    if given and not isinstance(spec.action, Discrete):
        raise InputError(f"{spec.name}: spec.targets is for discrete actions.")


# Which agents play against each other, by their names in the particle environments of Lowe et al. 2017 and in SMAX.


ADVERSARIES = frozenset({"adversary", "leadadversary", "eve", "enemy"})
"""Names, without numbers, of agents that play against all others."""


def rivals_of(agents: Sequence[Any]) -> tuple[int, ...] | None:
    """``EnvSpec.rivals`` of agents with these names, team 0 that of the first; None where they tell of one team."""
    adverse = [re.sub(r"[\W_]*\d+$", "", str(agent)) in ADVERSARIES for agent in agents]
    return tuple(int(one != adverse[0]) for one in adverse) if len(set(adverse)) > 1 else None
