"""An environment's own spaces, ``EnvSpec.interface``, and conversion of their elements to and from a team's arrays.

The spaces are JSON values ("forms"). Needs only NumPy, so that policies can act without Gymnasium. A form is one of:

    observations   ["box", shape]   ["box", shape, "uint8"] (an image)   ["one_hot", sizes, starts]
                   ["dict", [[key, form], …]]   ["tuple", [form, …]]
    choices        ["index", n, start]   ["indices", shape, sizes, starts, dtype]   ["dict", …]   ["tuple", …]
    actions        a choice, or ["box", shape, low, high, dtype] with flat lists of bounds, or null twice

The form of a dict of observations leaves out ``action_mask``. Deployed policies know the spaces only from their forms.
"""

import functools
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.environments.images import arranged_image, check_image_integers
from shoal.environments.rows import as_bytes
from shoal.environments.rows import width_of_part as width_of_part
from shoal.errors import InputError
from shoal.spec import Box, Discrete, EnvSpec, Part

# Forms, and the conversion of their elements to and from arrays.


Form = list[Any]

KINDS = ("parallel", "turns", "one", "list")
"""``parallel`` and ``turns``: a dict by agent, as in PettingZoo. ``one``: a single agent, as in Gymnasium. ``list``: a
sequence over agents."""

_DTYPES = {"bool", "float16", "float32", "float64", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64))}


class Interface(NamedTuple):
    """The parsed ``EnvSpec.interface``."""

    kind: str
    """One of :data:`KINDS`."""
    observations: tuple[Form, ...]
    """Form of each agent's observations."""
    actions: tuple[Form, ...]
    """Form of each agent's actions."""


def parsed(text: str) -> Interface:
    """Parse ``EnvSpec.interface``.

    Raises:
        InputError: it is invalid.
    """
    try:
        entries = json.loads(text)
        kind, pairs = entries["kind"], entries["agents"]
        sound = set(entries) == {"kind", "agents"} and kind in KINDS and isinstance(pairs, list)
        if sound and all(type(x) is list and len(x) == 2 and _observes(x[0]) and _acts(x[1]) for x in pairs):
            return Interface(kind, tuple(x[0] for x in pairs), tuple(x[1] for x in pairs))
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise InputError("spec.interface is not the description of an environment's interface.")


def _observes(form: Any) -> bool:
    match form:
        case ["box", shape] | ["box", shape, "uint8"]:
            return _whole(shape, 0)
        case ["one_hot", sizes, starts]:
            return _whole(sizes, 1) and _whole(starts) and len(sizes) == len(starts)
    return _parts(form, _observes)


def _acts(form: Any) -> bool:
    match form:
        case ["box", shape, None, None, dtype]:
            return _whole(shape, 0) and dtype in _DTYPES
        case ["box", shape, [*low], [*high], dtype]:
            finite = all(type(x) in (int, float) and math.isfinite(x) for x in (*low, *high))
            return finite and _whole(shape, 0) and math.prod(shape) == len(low) == len(high) and dtype in _DTYPES
    return _chooses(form)


def _chooses(form: Any) -> bool:
    match form:
        case ["index", n, start]:
            return _whole([n], 1) and _whole([start])
        case ["indices", shape, sizes, starts, dtype]:
            whole = _whole(shape, 0) and _whole(sizes, 1) and _whole(starts) and dtype in _DTYPES
            return whole and math.prod(shape) == len(sizes) == len(starts)
    return _parts(form, _chooses)


def _parts(form: Any, check: Callable[[Any], bool]) -> bool:
    match form:
        case ["tuple", [*parts]]:
            return all(map(check, parts))
        case ["dict", [*parts]]:
            return all(type(x) is list and len(x) == 2 and type(x[0]) is str and check(x[1]) for x in parts)
    return False


def _whole(numbers: Any, least: int | None = None) -> bool:
    return type(numbers) is list and all(type(n) is int and (least is None or n >= least) for n in numbers)


def pictured(form: Form) -> bool:
    """Whether an observation has an image, so that rows are of bytes."""
    return any(map(pictured, _inner(form))) if form[0] in ("dict", "tuple") else form[0] == "box" and len(form) == 3


def width_of_form(form: Form, packed: bool = False) -> int:
    """Width of a flattened observation: numbers, or bytes if ``packed``."""
    kind, about = form[:2]
    if kind in ("dict", "tuple"):
        return sum(width_of_form(part, packed) for part in _inner(form))
    numbers = sum(about) if kind == "one_hot" else math.prod(about)
    return 4 * numbers if packed and not pictured(form) else numbers


def feature_names(form: Form, above: str = "") -> list[str]:
    """The names of the numbers of a flattened observation, from the keys of dicts and the places in tuples and arrays.

    An observation that is one array, without a key, has no names: empty.
    """
    kind, about = form[:2]
    if kind in ("dict", "tuple"):
        parts = about if kind == "dict" else [(str(i), part) for i, part in enumerate(about)]
        return [name for key, part in parts for name in feature_names(part, f"{above}.{key}" if above else key)]
    if kind == "one_hot":
        marks = [[f"= {start + k}" for k in range(n)] for n, start in zip(about, form[2], strict=True)]
        places = marks[0] if len(marks) == 1 else [f"{i} {mark}" for i, row in enumerate(marks) for mark in row]
    else:
        places = [", ".join(map(str, place)) for place in np.ndindex(*about)] if math.prod(about) != 1 else [""]
    return [f"{above} {place}".rstrip() for place in places] if above else []


def dim_of(form: Form) -> int:
    """Number of actions, or of dimensions of a box."""
    return math.prod(form[1]) if form[0] == "box" else _count(form)


def flat(form: Form, seen: Any, who: str, packed: bool = False) -> np.ndarray:
    """An observation as a row Float64[width], as by ``gymnasium.spaces.flatten``; a flat row is returned unchanged.

    Args:
        form: the form of the observation.
        seen: the observation from the environment.
        who: the agent's name, for errors.
        packed: give a row of bytes, in which four are one number, and images are arranged
            (:mod:`shoal.environments.images`).

    Raises:
        InputError: it does not match its space.
    """
    kind, about = form[:2]
    if (
        packed
        and isinstance(seen, np.ndarray)
        and seen.dtype == np.uint8
        and seen.shape == (width_of_form(form, packed),)
    ):
        return seen
    nothing = np.zeros(0, np.uint8 if packed else np.float64)
    if kind == "dict" and isinstance(seen, Mapping):
        if missing := [key for key, _ in about if key not in seen]:
            raise InputError(f"{who}'s observation lacks {missing[0]!r}.")
        return np.concatenate([nothing, *(flat(part, seen[key], who, packed) for key, part in about)])
    if kind == "tuple" and isinstance(seen, tuple | list) and len(seen) == len(about):
        return np.concatenate([nothing, *(flat(part, x, who, packed) for part, x in zip(about, seen, strict=True))])
    if packed and kind in ("dict", "tuple"):
        raise InputError(f"{who}'s observation is not a {kind} with the parts of its space.")
    if packed:
        return _image(about, seen, who) if pictured(form) else as_bytes(flat(form, seen, who))
    try:
        row = np.asarray(seen, np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise InputError(f"{who}'s observation is a {type(seen).__name__}, not numbers.") from None
    if kind == "one_hot" and row.size == len(about):
        marks = [np.arange(n) == x - start for n, start, x in zip(about, form[2], row, strict=True)]
        if not all(mark.any() for mark in marks):
            raise InputError(f"{who}'s observation {seen} lies outside its space.")
        return np.concatenate([np.zeros(0), *marks])
    if row.size != (width := width_of_form(form)):
        raise InputError(f"{who}'s observation has width {width}, not {row.size}.")
    return row


def _image(shape: list[int], seen: Any, who: str) -> np.ndarray:
    try:
        pixels = np.asarray(seen)
        check_image_integers(pixels)
        return arranged_image(pixels, shape)
    except (TypeError, ValueError) as error:
        raise InputError(f"{who} observes what is not an image of its space: {error}.") from None


def joint_mask(form: Form, mask: Any, joint: bool = False) -> np.ndarray:
    """A mask as bool [number of actions].

    For several choices, ``mask`` may have one entry for each value of each choice: nested as the space, as Gymnasium's
    ``sample`` takes it, where None allows all; or concatenated. A sequence of one array has one entry for each joint
    action. A part of a nested mask may have any of these forms. The choices of a MultiBinary are like those of a
    MultiDiscrete: each has a mask of two entries.

    Args:
        form: the form of the actions.
        mask: the mask.
        joint: whether an array with as many entries as joint actions has one for each of them, even if there are as
            many values of all choices.

    Raises:
        InputError: an array has as many entries as joint actions and as values of all choices, unless ``joint``; a
            nested mask does not match the form; or a number is negative or NaN.
    """
    if mask is None:
        return np.ones(_count(form), bool)
    if form[0] == "index" and isinstance(mask, np.ndarray):  # at almost every step
        return mask_bits(mask)
    nested = _is_nested(mask)
    parts, each = _choices(form) if nested else [], []
    if isinstance(mask, Mapping):
        each = [mask.get(key, ()) for key, _ in form[1]] if form[0] == "dict" else []
    elif nested:
        each = list(mask)
        for _ in form[1][1:] if form[0] == "indices" else ():  # rows of choices
            each = [one for row in each for one in row] if all(map(_is_nested, each)) else each
        if len(each) == 1:
            joint = True
            if len(parts) != 1:
                mask, each = each[0], []
    if len(each) == len(parts) > 0:
        rows, sizes = [joint_mask(*one, joint) for one in zip(parts, each, strict=True)], tuple(map(_count, parts))
        if tuple(map(len, rows)) == sizes:
            return np.asarray(np.concatenate(rows)[_places(sizes)].all(1))
    try:
        row = mask_bits(np.asarray(mask))
    except InputError:
        raise
    except ValueError:  # arrays of several lengths
        row = None
    if row is None or (each and row.size != _count(form)):
        raise InputError(f"An {MASK} has other parts than its action space.")
    sizes = _sizes(form) if form[0] != "index" else ()
    both = len(sizes) > 1 and row.size == sum(sizes) == math.prod(sizes)
    if both and not joint:
        raise InputError(
            f"An {MASK} of {row.size} entries could be of joint actions or of the values of {len(sizes)} choices: "
            f"give a tuple with a mask for each choice, or with the mask of joint actions alone."
        )
    return row if both or row.size != sum(sizes) else np.asarray(row[_places(sizes)].all(1))


def mask_bits(mask: np.ndarray) -> np.ndarray:
    """A mask as a row of booleans.

    Raises:
        InputError: a number is negative or NaN, as in masks that are added to logits, whose 0 is a legal action.
    """
    row = mask.reshape(-1)
    # Masks of bytes, the usual ones, are not added to logits.
    if row.dtype.kind in "if" and row.itemsize > 1 and row.size and not row.min() >= 0:
        raise InputError(f"An {MASK} is 1 for legal actions and 0 for others, and one here has {row.min():g}.")
    return row.astype(bool)


def _is_nested(mask: Any) -> bool:
    if isinstance(mask, tuple | list) and mask:
        return mask[0] is None or isinstance(mask[0], tuple | list | Mapping) or np.ndim(mask[0]) > 0
    return isinstance(mask, Mapping)


def _choices(form: Form) -> list[Form]:
    """The choices, or groups of choices, of which a choice consists; none for one alone."""
    if form[0] == "indices":
        return [["index", n, start] for n, start in zip(form[2], form[3], strict=True)]
    return _inner(form) if form[0] in ("tuple", "dict") else []


def _sizes(form: Form) -> tuple[int, ...]:
    """The number of values of each single choice."""
    if form[0] in ("index", "indices"):
        return (form[1],) if form[0] == "index" else tuple(form[2])
    return tuple(n for part in _inner(form) for n in _sizes(part))


@functools.cache
def _places(sizes: tuple[int, ...]) -> np.ndarray:
    """Positions of the values of each joint index in a mask over all values of all choices: Int[index, choice]."""
    values = np.stack(np.unravel_index(np.arange(math.prod(sizes)), sizes), axis=1)
    return values + np.cumsum([0, *sizes[:-1]])


def acted(form: Form, space: Discrete | Box, row: Any) -> Any:
    """The environment's action for an index, or for a row of at least ``dim_of(form)`` numbers of a box.

    An index enumerates all combinations of several choices, the last varying fastest. Numbers lie in the team's action
    space ``space``, up to single precision; if the form of a box has bounds, they are scaled to these.
    """
    if form[0] != "box":
        return _chosen(form, int(row))
    _, shape, low, high, dtype = form
    row = np.asarray(row)[: math.prod(shape)]
    if low is not None:
        low, high = np.array(low, np.float64), np.array(high, np.float64)
        row = np.clip(low + (row + 1.0) * 0.5 * (high - low), low, high)
    elif isinstance(space, Box) and dtype != "float32":  # whose bounds may lie between two numbers of single precision
        row = np.minimum(np.maximum(row.astype(np.float64), space.low), space.high)
    if np.issubdtype(np.dtype(dtype), np.integer):
        row = np.rint(row)
    return row.astype(dtype).reshape(shape)


def _chosen(form: Form, index: int) -> Any:
    kind, about = form[:2]
    if kind == "index":
        return index + form[2]
    if kind == "indices":
        values = np.array(np.unravel_index(index, form[2])) + np.array(form[3])
        return values.astype(form[4]).reshape(about)
    parts = _inner(form)
    places = np.unravel_index(index, [_count(part) for part in parts])
    chosen = tuple(_chosen(part, int(place)) for part, place in zip(parts, places, strict=True))
    return chosen if kind == "tuple" else dict(zip((key for key, _ in about), chosen, strict=True))


def _count(form: Form) -> int:
    if form[0] == "index":
        return form[1]
    return math.prod(form[2] if form[0] == "indices" else map(_count, _inner(form)))


def _inner(form: Form) -> list[Form]:
    """The forms of the parts of a dict or tuple."""
    return form[1] if form[0] == "tuple" else [part for _, part in form[1]]


# A team's arrays from an environment's own observations, and its own actions from a team's.


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
        rows = tuple(width_of_form(form, self._packed) for form in interface.observations)
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
        form, rows = self._observations[0], (1, width_of_form(self._observations[0], self._packed))
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
            if self._choices:  # the dimensions of boxes are not masked
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
        given = mask is not None
        if not given:
            found = [one[MASK] for one in (observation, info) if isinstance(one, Mapping) and MASK in one]
            mask = found[0] if found else None
        if mask is None or not self._choices:
            return None
        try:
            # That of a single agent may come from action_masks(), which training reads without guessing.
            row = joint_mask(self._actions[i], mask, joint=given and self.kind != "one")
        except InputError:
            raise
        except (TypeError, ValueError):
            raise InputError(f"{self.agents[i]}'s {MASK} is not a row of numbers.") from None
        if row.size != self._dims[i]:
            raise InputError(f"{self.agents[i]}'s {MASK} has {row.size} entries for {self._dims[i]} actions.")
        return row if row.any() else _first(row.size)

    def masks(self, infos: Any) -> list[np.ndarray | None]:
        """Each agent's mask in the environment's infos, as of :meth:`legal`."""
        info_of = self._infos(infos)
        return [self.legal(i, None, info_of.get(i)) for i in range(len(self.agents))]

    def action(self, i: int, row: Any) -> Any:
        """An agent's action in the environment's form, from an index or a row Float[A] of the team's box."""
        return acted(self._actions[i], self.spec.action, row)

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
        kind, about = self._actions[0][:2]
        own = {key for key, _ in about} if self.kind == "one" and kind == "dict" else ()
        if isinstance(legal, Mapping) and not all(name in own for name in legal):
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
