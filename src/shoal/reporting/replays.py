"""Played episodes as one JSON document for the player of ``assets/player.js``.

The document has

* ``format``: 1. ``notes``: sentences on what was omitted or rounded. ``greedy``: how the policies acted.
* ``same_start``: whether episodes of one index start alike in all runs: equal keys of the initial state and of the
  environment's random numbers.
* ``fixed``: a list to which episodes refer by index: :attr:`Outline.fixed`, with ``actions`` and ``features`` as
  tables {``names``: strings, ``rows`` [N][]: indices into them}.
* ``runs``: for each its ``label``, ``algorithm``, ``environment``, ``agents``, ``dims`` and ``obs_dims`` of each agent
  (0 where images are observed, which are left out), ``space`` {``kind``: ``discrete`` or ``box``, ``n`` or ``low`` and
  ``high``}, ``score`` (``sum`` or ``mean`` of the returns of the agents ``scored``), and ``seeds``: for each its
  ``seed``, ``about`` (why it was chosen) and ``episodes``.

An episode of T steps, of which S are shown, has ``kind`` (``units``, ``bodies``, ``pictures``, ``none``), ``fixed`` (an
index or null), ``length`` T, ``steps`` [S + 1] (the timesteps shown, null for all), ``score``, ``result``, ``metrics``,
``ended``, ``captions`` and ``messages`` (different texts), ``pictures`` (different ``data:`` addresses), and ``packed``
(:mod:`shoal.reporting.replays`): ``rewards`` [S, N], sums over the steps up to the next one shown; ``actions``; the
recorded arrays of decisions [S, N, …]; ``scene/…`` [S + 1, …] from :attr:`Outline.moving`; ``caption`` [S + 1],
``message`` [S + 1, N] and ``picture`` [S + 1], indices of texts and pictures.

The form of :func:`pack`'s result, which ``assets/player_data.js`` reads:

* ``data``: base64 of a zlib stream of bytes.
* ``index``: for each array its ``shape``, ``type``, and ``at``, the position of its first byte. The value of code c is
  ``(first + c) · unit``, so that 0 is exact; both are numbers, or lists with one for each entry of the last axis. The
  largest code of the type is NaN if ``gaps`` is true.

A ``bits`` array has eight entries per byte, the first in the highest bit. Codes of ``u8`` and ``u16`` are stored as
differences, modulo 256 or 65,536, from the codes one step (first axis) before; those of ``u16`` as all high bytes, then
all low bytes. Differences are small and alike, which compresses well.

``floats``, if present, lists entries of the last axis whose codes are 0: their values follow the codes as float32, the
least significant byte first, entry by entry of the list.
"""

import base64
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from shoal.environments.interface import feature_names, parsed
from shoal.environments.wrappers import Wrapping
from shoal.plots.texts import number_text, result_text
from shoal.reporting import scenes
from shoal.reporting.scenes import Seen, seen
from shoal.runs.load import learner_with_critic, seed_index
from shoal.runs.run import Run
from shoal.spec import Discrete, EnvSpec
from shoal.storage import folders
from shoal.system.files import to_json
from shoal.training.episodes import SHOWN_KEY, Drawing, RecordedEpisode, record_each

# Arrays of numbers as short text.


FINE, COARSE = 16, 8
"""Bits of a number: an error of at most 1 / 130,000 or 1 / 500 of the range."""
_WRONG, _MANY_WRONG = 0.01, 0.01
"""A column is stored as float32 if 16 bits would change more than this share of its values by more than this share of
the value: one of 10⁹ that stands for "nothing there" leaves no codes for the others."""


def pack(arrays: Mapping[str, np.ndarray], coarse: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Arrays [T, …] as JSON values.

    Args:
        arrays: by name; truth values, integers or floating-point numbers. Infinities count as NaN.
        coarse: names of arrays whose floating-point numbers have 8 bits. The others have 16 bits, or 32 in columns of
            which 16 bits would falsify many. Both are over the range of each entry of the last axis. Integers are exact
            up to a range of 65,534.
    """
    index, parts, at = {}, [], 0
    for name, values in arrays.items():
        entry, data = _encoded(np.asarray(values), COARSE if name in coarse else FINE)
        index[name] = {"shape": list(np.shape(values)), "at": at} | entry
        parts.append(data)
        at += len(data)
    return {"index": index, "data": base64.b64encode(zlib.compress(b"".join(parts), 9)).decode("ascii")}


def _encoded(x: np.ndarray, bits: int) -> tuple[dict[str, Any], bytes]:
    if x.dtype == bool:
        return {"type": "bits"}, np.packbits(x.reshape(-1)).tobytes()
    whole = np.issubdtype(x.dtype, np.integer)
    x = np.where(np.isfinite(x), x, np.nan).astype(np.float64)
    columns = not whole and x.ndim > 1 and x.size > 0
    low, high = (_edge_of(x, edge, columns) for edge in (np.fmin, np.fmax))
    if whole:
        bits = COARSE if np.max(high - low, initial=0) < 255 else FINE
    codes = 2**bits - 1
    unit = np.asarray(np.ones_like(low)) if whole else _unit_of_codes(low, high, codes - 2)
    first = np.asarray(np.floor(low / unit))
    code = np.where(np.isnan(x), codes, np.clip(np.rint(np.nan_to_num(x) / unit - first), 0, codes - 1))
    floats = _falsified(x, (first + code) * unit, low, high) if columns and bits == FINE else np.zeros(0, int)
    if floats.size:
        code[..., floats] = 0
    change = np.diff(code.astype(np.int64), axis=0, prepend=np.zeros_like(code[:1], np.int64)) % (codes + 1)
    entry = {"type": f"u{bits}", "first": first.tolist(), "unit": unit.tolist(), "gaps": bool(np.isnan(x).any())}
    if bits == COARSE:
        return entry, change.astype(np.uint8).tobytes()
    if floats.size:
        entry["floats"] = floats.tolist()
    kept = np.moveaxis(x[..., floats], -1, 0).astype("<f4") if floats.size else np.zeros(0)
    return entry, (change >> 8).astype(np.uint8).tobytes() + (change & 255).astype(np.uint8).tobytes() + kept.tobytes()


def _falsified(x: np.ndarray, coded: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The columns with many wrong codes, of values other than the ends of the range, which have codes of their own."""
    between = (x > low) & (x < high)
    wrong = between & (np.abs(coded - x) > _WRONG * np.abs(x))
    wrong, between = (part.reshape(-1, x.shape[-1]).sum(0) for part in (wrong, between))
    return np.flatnonzero(wrong > _MANY_WRONG * between)


def _edge_of(x: np.ndarray, edge: np.ufunc, columns: bool) -> np.ndarray:
    """The least or largest number, of the whole or of each column; 0 where all are NaN."""
    if not x.size:
        return np.zeros(())
    found = edge.reduce(x.reshape(-1, x.shape[-1]), axis=0) if columns else edge.reduce(x.reshape(-1))
    return np.asarray(np.nan_to_num(found), np.float64)


def _unit_of_codes(low: np.ndarray, high: np.ndarray, most: int) -> np.ndarray:
    """The step between codes, such that ``most`` steps cover the range, rounded up to few digits."""
    unit = np.asarray(high - low) / most
    unit = np.where(unit > 1e-12 * np.abs(low), unit, np.abs(low))  # all numbers are equal
    unit = np.where(unit > 0.0, unit, 1.0)
    scale = 10.0 ** (6 - np.floor(np.log10(unit)))
    return np.array([float(f"{value:.7g}") for value in np.ravel(np.ceil(unit * scale) / scale)]).reshape(unit.shape)


# Which seeds of a run are played, and their recorded episodes.


MAX_PLAYED_SEEDS = 3
"""Largest number of seeds of a run that are chosen."""

Recorded = Mapping[int, Sequence[RecordedEpisode]]
"""Recorded episodes of a run by seed."""


SECONDS = 5.0
"""Time that the pictures of an episode of a host environment take at most, about."""


def recorded_episodes(
    run: Run, seeds: Iterable[int], episodes: int = 2, greedy: bool | None = None, runs: int = 1
) -> dict[int, list[RecordedEpisode]]:
    """The episodes that ``Run.replay`` shows of each seed, with the policy's decisions; compiled once for all seeds.

    Args:
        run: whose last policies play.
        seeds: seeds of the run; with none, nothing is compiled.
        episodes: number of episodes per seed.
        greedy: act by the mode of the policy rather than by sampling; None for the run's own mode.
        runs: the number of runs on the page, among which the pictures of a host environment are divided.

    Raises:
        InputError: the run does not have a seed, its environment cannot be built, or ``episodes`` is below 1.
        CheckpointError: the run has no intact policy.
    """
    greedy = run.acts_greedily if greedy is None else greedy
    seeds = list(dict.fromkeys(int(seed) for seed in seeds))
    rows = [seed_index(run.settings, seed) for seed in seeds]
    if not rows:
        return {}
    env = run.env  # first, since it raises an error for an untrusted folder's own environment
    algorithm = run._with_critic()
    learner = learner_with_critic(run.folder, algorithm, run.settings.seeds, run._identity())
    if algorithm.guided:  # its critic would act
        learner = learner._replace(critic=())
    each = [jax.tree.map(lambda x, row=row: x[row], learner) for row in rows]
    drawing = Drawing(math.ceil(scenes.PICTURES / runs), SECONDS / runs)
    key = jax.random.key(SHOWN_KEY)
    found = record_each(env, algorithm, each, key, episodes, greedy, decisions=True, drawing=drawing)
    return dict(zip(seeds, found, strict=True))


def chosen_seeds(run: Run) -> list[tuple[int, str]]:
    """The seeds that a report plays, each with the reason: the best, the median and the worst seed of the final
    evaluation, or the first seeds if there is none of the last policies."""
    count, first = run.settings.seeds, run.settings.seed
    scores = folders.final_scores(run.folder, run.settings.steps_per_update, count)
    if count == 1 or scores is None:
        return [(first + i, "") for i in range(min(count, MAX_PLAYED_SEEDS))]
    order = np.argsort(-scores, kind="stable").tolist()
    places = {0: "best", count // 2: "median", count - 1: "worst"}
    if count == 2:
        places = {0: "best", 1: "worst"}
    return [
        (first + order[i], f"{why} of {count}, score {number_text(float(scores[order[i]]))}")
        for i, why in places.items()
    ]


# The document.


# Degrees of detail of replays, from full to low, from which the first is used that fits into a number of bytes.


MAX_SHOWN_STEPS = 600
"""Largest number of steps that are shown of an episode at full detail."""
NUMBERS = frozenset({"obs", "probabilities", "utilities", "mean", "std", "value", "attention"})
"""Arrays that may be rounded to 8 bits."""


class Detail(NamedTuple):
    """One degree of detail."""

    coarse: frozenset[str] = frozenset()
    """Arrays that are rounded to 8 bits."""
    observers: int = 1_000_000
    """Number of agents, from the first, whose observations are kept."""
    most_steps: int = MAX_SHOWN_STEPS
    """Largest number of steps that are shown of an episode."""
    width: int = 360
    """Width of pictures in pixels."""
    picture_stride: int = 1
    """One of this number of pictures is kept."""
    seeds: int = 1_000_000
    """Number of seeds of each run, from the first."""
    episodes: int = 1_000_000
    """Number of episodes of each seed."""

    def steps(self, length: int) -> np.ndarray:
        """The timesteps shown of an episode of ``length`` steps, from 0 to ``length``."""
        stride = max(1, -(-length // self.most_steps))
        return np.append(np.arange(0, length, stride), length)

    def notes(self, played: Sequence[Any]) -> list[str]:
        """Sentences on what is omitted from these episodes (:class:`shoal.reporting.replays.Played`)."""
        every = [one for run in played for of_seed in run.episodes for one in of_seed]
        agents = max(run.run.spec.num_agents for run in played)
        pictures = any(shown.pictures for _, shown in every)
        longest = max(len(episode.rewards) for episode, _ in every)
        found = []
        if stride := -(-longest // self.most_steps) - 1:
            found.append(f"For an episode of {longest:,} steps, every {_th(stride + 1)} step is shown.")
        if not all(episode.ended for episode, _ in every):
            found.append("An episode that did not end is truncated.")
        if self.coarse:
            found.append("Observations, probabilities and values are rounded to 1 / 254 of their range.")
        if not self.observers:
            found.append("Observations are omitted, to keep the file small.")
        elif self.observers < agents:
            found.append(f"Only the first {self.observers} agents' observations are kept, to keep the file small.")
        if pictures and self.width < 360:
            found.append(f"Pictures are {self.width} pixels wide, to keep the file small.")
        if pictures and self.picture_stride > 1:
            found.append(f"Every {_th(self.picture_stride)} picture is kept, to keep the file small.")
        if self.seeds < max(len(run.seeds) for run in played):
            found.append(f"At most {_counted(self.seeds, 'seed')} of each run can be replayed, to keep the file small.")
        if self.episodes < max(len(of_seed) for run in played for of_seed in run.episodes):
            found.append(
                f"At most {_counted(self.episodes, 'episode')} of each seed can be replayed, to keep the file small."
            )
        return found


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _th(number: int) -> str:
    end = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return {2: "second", 3: "third"}.get(number, f"{number}{end}")


_ROUNDED = Detail(NUMBERS)
_SMALL = _ROUNDED._replace(observers=0, width=160)
DETAILS = (
    Detail(),
    _ROUNDED,
    _ROUNDED._replace(observers=5, width=240),
    _ROUNDED._replace(observers=2, width=240, picture_stride=2),
    _SMALL._replace(picture_stride=2),
    _SMALL._replace(picture_stride=2, most_steps=200),
    _SMALL._replace(picture_stride=4, most_steps=200, seeds=2),
    _SMALL._replace(picture_stride=4, most_steps=200, seeds=1),
    _SMALL._replace(picture_stride=8, most_steps=100, seeds=1, episodes=1),
    _SMALL._replace(picture_stride=16, most_steps=25, seeds=1, episodes=1, width=120),
)
"""From full to low detail."""


# Replays.


class Played(NamedTuple):
    """The recorded episodes of one run."""

    label: str
    run: Run
    seeds: list[tuple[int, str]]
    """Each seed and the reason for its choice."""
    episodes: list[list[tuple[RecordedEpisode, Seen]]]
    """By seed."""


def replays(
    runs: Sequence[tuple[str, Run]],
    *,
    episodes: int = 2,
    seeds: Sequence[int] | None = None,
    budget: int = 3_000_000,
    greedy: bool | None = None,
    recorded: Mapping[str, Recorded] | None = None,
) -> dict[str, Any] | None:
    """Play episodes of one or several labelled runs, as a JSON value for the player; None without runs.

    Args:
        runs: labels and runs; episodes of the same environment start alike.
        episodes: number of episodes per seed.
        seeds: seeds of the runs; None for the best, the median and the worst seed in the final evaluation of each.
        budget: largest size of the JSON in bytes. Details are omitted until it fits; ``notes`` of the document says so.
        greedy: act by the mode of the policy rather than by sampling; None for each run's own mode.
        recorded: by label, the result of :func:`shoal.reporting.replays.recorded_episodes` with the same ``episodes``
            and ``greedy``; seeds that it lacks are played.

    Raises:
        InputError: a run does not have a seed, ``episodes`` is below 1, or a value has no JSON form.
        CheckpointError: a run has no intact policy.
    """
    if not runs:
        return None
    known = recorded or {}
    played = [_played(label, run, episodes, seeds, greedy, known.get(label, {}), len(runs)) for label, run in runs]
    document: dict[str, Any] = {}
    for detail in DETAILS:
        document = _document(played, detail, greedy)
        if document_bytes(document) <= budget:
            return document
    smallest = document_bytes(document)
    document["notes"] = [f"The page has no replays: the smallest takes {smallest:,} bytes, and {budget:,} are left."]
    return document | {"runs": [], "fixed": []}


def document_bytes(document: Mapping[str, Any]) -> int:
    """Bytes of a document as compact JSON in ASCII."""
    return len(json.dumps(document, separators=(",", ":")))


def _played(
    label: str, run: Run, episodes: int, seeds: Sequence[int] | None, greedy: bool | None, recorded: Recorded, runs: int
) -> Played:
    chosen = chosen_seeds(run) if seeds is None else [(int(seed), "") for seed in seeds]
    missing = [seed for seed, _ in chosen if seed not in recorded]
    found = {**recorded, **recorded_episodes(run, missing, episodes, greedy, runs)}

    def kept(one: RecordedEpisode) -> tuple[RecordedEpisode, Seen]:
        return one._replace(states=[], frames=None), seen(run.env, one)  # only the smaller pictures stay in memory

    return Played(label, run, chosen, [[kept(one) for one in found[seed]] for seed, _ in chosen])


def _document(played: Sequence[Played], detail: Detail, greedy: bool | None) -> dict[str, Any]:
    fixed: list[dict[str, Any]] = []
    runs = [_run(one, detail, fixed) for one in played]
    specs = [one.run.spec for one in played]
    same = all(one.run.env_options == played[0].run.env_options for one in played) and all(
        (spec.name, spec.agents, spec.horizon) == (specs[0].name, specs[0].agents, specs[0].horizon) for spec in specs
    )
    notes = detail.notes(played)
    greedy = all(one.run.acts_greedily for one in played) if greedy is None else greedy
    document = {"format": 1, "greedy": greedy, "same_start": same, "notes": notes, "fixed": fixed, "runs": runs}
    return to_json(document, "the replays")


def _run(played: Played, detail: Detail, fixed: list[dict[str, Any]]) -> dict[str, Any]:
    run, spec = played.run, played.run.spec
    space = spec.action
    seeds = [
        {
            "seed": seed,
            "about": about,
            "episodes": [_episode(run, *one, detail, fixed) for one in of_seed[: detail.episodes]],
        }
        for (seed, about), of_seed in zip(played.seeds, played.episodes, strict=True)
    ]
    return {
        "label": played.label,
        "algorithm": run.algorithm,
        "environment": run.environment,
        "agents": list(spec.agents),
        "dims": list(spec.action_dims),
        "obs_dims": [0] * spec.num_agents if spec.packed else list(spec.obs_dims),
        "space": {"kind": "discrete", "n": space.n}
        if isinstance(space, Discrete)
        else {"kind": "box", "low": space.low, "high": space.high},
        "score": spec.score,
        "scored": list(range(spec.num_agents)) if spec.scored is None else list(spec.scored),
        "seeds": seeds[: detail.seeds],
    }


def _episode(
    run: Run, episode: RecordedEpisode, shown: Seen, detail: Detail, fixed: list[dict[str, Any]]
) -> dict[str, Any]:
    spec, length = run.spec, len(episode.rewards)
    steps = detail.steps(length)
    acted = steps[:-1]
    arrays = {"rewards": np.add.reduceat(episode.rewards, acted, axis=0), "actions": episode.actions[acted]}
    told = episode.decisions or {}
    left_out = ("obs", "normal_mean", "normal_std")  # the latter are shown as mean and std of the action itself
    arrays |= {name: x[acted] for name, x in told.items() if name not in left_out and not np.isnan(x).all()}
    if "obs" in told and detail.observers:
        arrays["obs"] = told["obs"][acted][:, : detail.observers]
    arrays |= {f"scene/{name}": x[steps] for name, x in shown.moving.items()}
    captions, messages, pictures = [], [], []
    if shown.captions:
        captions, arrays["caption"] = _texts(np.array(shown.captions)[steps])
    if shown.messages:
        messages, arrays["message"] = _texts(np.array(shown.messages)[steps])
    if shown.pictures:
        wanted = np.searchsorted(shown.shown, steps, side="right") - 1  # the picture at each step, or the last before
        kept = np.unique(wanted)[:: detail.picture_stride]
        pictures, numbers = scenes.addresses([shown.pictures[i] for i in kept], detail.width)
        arrays["picture"] = numbers[np.searchsorted(kept, wanted, side="right") - 1]
    return {
        "kind": shown.kind,
        "fixed": _kept(fixed, _fixed(shown.fixed, spec, run.settings.wrapping, features="obs" in arrays)),
        "length": length,
        "steps": None if len(steps) == length + 1 else steps.tolist(),
        "score": float(spec.scores(episode.rewards.sum(0, dtype=np.float64))),
        "result": result_text(episode.metrics),
        "metrics": episode.metrics,
        "ended": episode.ended,
        "captions": captions,
        "messages": messages,
        "pictures": pictures,
        "packed": pack(arrays, detail.coarse),
    }


def _texts(texts: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The distinct texts, and the index of each."""
    different, numbers = np.unique(texts, return_inverse=True)
    return different.tolist(), numbers.reshape(texts.shape)


def _kept(fixed: list[dict[str, Any]], one: dict[str, Any]) -> int | None:
    """The index of a value in a list, to which it is added if it is new; None for an empty value."""
    if not one:
        return None
    if one not in fixed:
        fixed.append(one)
    return fixed.index(one)


def _fixed(fixed: Mapping[str, Any], spec: EnvSpec, wrapping: Wrapping, features: bool) -> dict[str, Any]:
    """:attr:`Outline.fixed` with tables of names, of the wrapped environment, and optionally of its features."""
    found = {name: x for name, x in fixed.items() if name not in ("actions", "features")}
    actions, observed = fixed.get("actions") or [], (fixed.get("features") or _keys(spec)) if features else []
    if [len(row) for row in actions] == list(spec.action_dims):
        found["actions"] = _table(actions)
    if len(observed) == spec.num_agents and (spec.parts is None or wrapping.frame_stack == 1 or wrapping.blind):
        rows = [_extended(list(row), i, spec, wrapping) for i, row in enumerate(observed)]
        if [len(row) for row in rows] == list(spec.obs_dims):
            found["features"] = _table(rows)
    return found


def _keys(spec: EnvSpec) -> list[list[str]]:
    """The names of each agent's features from the keys of its observation, before wrappers add to it; empty if an agent
    observes one array."""
    if spec.interface:
        found = [feature_names(form) for form in parsed(spec.interface).observations]
    else:
        parts = spec.parts or ((),) * spec.num_agents
        forms = [["dict", [[part.name, ["box", list(part.shape)]] for part in own if part.name]] for own in parts]
        found = [feature_names(form) for form in forms]
    return found if all(found) else []


def _extended(names: list[str], agent: int, spec: EnvSpec, wrapping: Wrapping) -> list[str]:
    """The names of an agent's features with those that wrappers add."""
    stack = wrapping.frame_stack
    if wrapping.blind:
        names = ["time / time limit"]
    elif stack > 1:
        names = [
            f"{name}, {stack - 1 - k} steps ago" if k < stack - 1 else name for k in range(stack) for name in names
        ]
    if wrapping.last_action:
        names = names + [f"last action {k}" for k in range(spec.action_dims[agent])]
    return names + ([f"is {name}" for name in spec.agents] if wrapping.agent_ids else [])


def _table(rows: Sequence[Sequence[str]]) -> dict[str, Any]:
    names = list(dict.fromkeys(str(name) for row in rows for name in row))
    at = {name: i for i, name in enumerate(names)}
    return {"names": names, "rows": [[at[str(name)] for name in row] for row in rows]}
