"""Random command lines: what a user could type, sensible and not, drawn from a seed.

Flags are read from the program itself, so a new algorithm, environment or option is drawn without a change here.
"""

import random
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shoal import algorithms
from shoal.cli import train
from shoal.cli.flags import Flag
from shoal.environments import registry
from shoal.errors import InputError
from shoal.options.convert import Anything

RUN, OTHER, NEW = "{run}", "{other}", "{new}"
"""Stand in a case's words for a trained run, another one, and a folder that does not exist yet."""

SMALL = {
    "steps": "64",
    "num_envs": "2",
    "rollout_length": "8",
    "hidden": "8",
    "eval_episodes": "0",
    "tensorboard": None,
    "num_workers": "0",
    "epochs": "1",
    "minibatches": "1",
    "chunk_length": "8",
    "learning_starts": "16",
    "buffer_size": "64",
    "batch_size": "4",
    "sequence_length": "4",
    "mixing_width": "4",
    "hyper_width": "4",
    "gradient_steps": "1",
    "pretraining_steps": "16",
    "blocks": "1",
    "embedding": "8",
}
"""Flags that make training take seconds; each where the command has it. None: the flag that turns a boolean off."""

FOREIGN = (
    "own_environment:meeting",
    "own_game:auction",
    "own_gymnasium:Cart",
    "own_parallel:Meeting",
    "gymnasium:CartPole-v1",
    "gymnasium:Pendulum-v1",
    "pettingzoo:mpe2.simple_tag_v3",
    "pettingzoo:pettingzoo.classic.tictactoe_v3",
    "jaxmarl/smax/3m",
    "lbf/Foraging-5x5-2p-1f-v3",
    "rware/rware-tiny-2ag-v2",
    "hanabi/very-small-2p",
    "mamujoco/Swimmer-2x1",
)
"""Environments by an adapter or of one's own (``examples/`` lies where the commands run)."""

ON_DEVICE = ("jaxmarl/smax/3m", "lbf/Foraging-5x5-2p-1f-v3", "own_environment:meeting", "rware/rware-tiny-2ag-v2")
"""Those of them that are compiled with the update."""

NUMBERS = [
    "nan",
    "inf",
    "-inf",
    "1e30",
    "-1e30",
    "1e-300",
    "1e400",
    "-1",
    "0",
    "1",
    "2",
    "0.5",
    "3",
    "7",
    "1.5",
    "-0.0",
]
NUMBERS += ["2147483648", "99999999999999999999999", "9" * 400, "9" * 5000]
WORDS = [
    "",
    " ",
    "abc",
    "None",
    "True",
    "[1,2]",
    "--",
    "🐟",
    "a b",
    "../..",
    "0x10",
    "1_0",
    "1,5",
    "'",
    "\\",
    "%s",
    "{}",
    "٣",
    "３e2",
    "a\0b",
    "a\udcff",
    "$^{$",
]


NAMES = ["mpe", "mappo+", "+", "mpe/", "os:system", "shoal:train", "json:", ":", "a:", ":b", "..:x"]
NAMES += ["pettingzoo:", "pettingzoo:.", "pettingzoo:..a", "gymnasium:", "gymnasium:a:", "lbf/", "mamujoco/Swimmer-٢x1"]
"""Names that no algorithm and no environment has."""


class Case(NamedTuple):
    """One command, and what is damaged before it."""

    words: tuple[str, ...]
    damage: int | None = None
    """Seed of the damage to the run's folder; None for none."""
    refused: bool = False
    """Some word cannot be read as its flag's type, so that nothing else than a refusal is right."""
    nowhere: bool = False
    """The working directory is deleted before the command starts."""


def draw(seed: int) -> Case:
    """The case of this seed."""
    rng = random.Random(seed)
    kind = rng.choices(["train", "damaged", "look", "nonsense", "check", "nowhere"], [50, 30, 10, 8, 2, 1])[0]
    if kind == "train":
        return _train(rng)
    if kind == "damaged":
        return Case(_look(rng, sound=True), rng.randrange(2**31))
    if kind == "look":
        return Case(_look(rng, sound=False))
    if kind == "nowhere":
        return Case(_look(rng, sound=True), refused=True, nowhere=True)
    if kind == "check":
        return _check(rng)
    return Case(_nonsense(rng))


def _train(rng: random.Random) -> Case:
    environment = rng.choice(FOREIGN) if rng.random() < 0.2 else rng.choice(registry.names())
    algorithm = rng.choice(algorithms.NAMES)
    if rng.random() < 0.1:
        algorithm = "+".join(rng.choices(algorithms.NAMES, k=rng.choice([2, 2, 3])))
    head = [algorithm, environment]
    if rng.random() < 0.03:
        head[rng.randrange(2)] = rng.choice([*WORDS, *NAMES, *NAMES])
    flags = flags_of(*head)
    known = [flag for flag in flags if flag.name not in ("folder", "resume", "address", "workers")]
    drawn = rng.sample(known, min(len(known), rng.choice([0, 1, 1, 2, 3, 5])))
    words, refused = _small(flags, drawn, environment), False
    for flag in drawn:
        said, wrong = _say(rng, flag, nonsense=rng.random() < 0.3)
        words += said
        refused |= wrong
    if drawn and rng.random() < 0.05:  # twice the same flag
        words += _say(rng, drawn[0], nonsense=False)[0]
        refused = True
    if rng.random() < 0.03:
        words.append(rng.choice([*WORDS, "--learning-rat", "--env.x=1", "-h", "--no-steps", "--=", "--steps=1=2"]))
        refused = False
    return Case(("train", *head, *words, "--folder", NEW), refused=refused)


def _check(rng: random.Random) -> Case:
    environment = rng.choice([*FOREIGN[:4], *registry.names()])
    return Case(("check", environment, "--episodes", rng.choice(["1", "0", "-1", "x"]), "--steps", "40"))


def _look(rng: random.Random, sound: bool) -> tuple[str, ...]:
    """A command about a run; ``sound`` ones could succeed."""
    resume = ["train", "--resume", RUN, "--eval-episodes", "0"]
    commands = [
        ["curves", RUN],
        ["curves", RUN, OTHER, "--output", f"{NEW}.png"],
        ["evaluate", RUN, "--episodes", "2"],
        ["replay", RUN, "--episodes", "1", "--output", f"{NEW}.gif"],
        ["crossplay", RUN, OTHER, "--episodes", "2"],
        resume,
        [*resume, "--steps", "96"],
        [*resume, "--help"],
    ]
    words = list(rng.choice(commands))
    if not sound:
        words += rng.choices(
            ["--episodes", "--seed", "--output", "--metrics", "--sampled", "--side", "--steps", "--keep"]
        )
        words += rng.choices([*WORDS, *NUMBERS, RUN], k=rng.choice([0, 1, 1, 2]))
    return tuple(words)


def _nonsense(rng: random.Random) -> tuple[str, ...]:
    commands = ["train", "evaluate", "replay", "curves", "crossplay", "list", "check", "trian", "--help", "--version"]
    pieces = [
        *commands,
        *WORDS,
        *NUMBERS,
        "mappo",
        "mpe/simple_spread",
        "--folder",
        "--resume",
        "--steps",
        RUN,
        "/dev/null",
    ]
    return (rng.choice(commands), *rng.choices(pieces, k=rng.randrange(4)))


def flags_of(algorithm: str, environment: str) -> list[Flag]:
    """The flags of ``shoal train ALGORITHM ENVIRONMENT``; none where the two cannot be named so."""
    try:
        command, _ = train.train([algorithm, environment])
    except InputError:
        return []
    return [flag for flags in command.groups.values() for flag in flags]


def _small(flags: Sequence[Flag], drawn: Sequence[Flag], environment: str) -> list[str]:
    """Small values of the flags that are not drawn; without a recurrent net no length of its chunks, and without worker
    processes no number of them."""
    words = []
    without = {"num_workers"} if environment in registry.names() or environment in ON_DEVICE else set()
    recurrent = any(flag.name.endswith("recurrent") and (flag.default is not None or flag in drawn) for flag in flags)
    for flag in flags:
        if flag.name in without or (flag.name == "chunk_length" and not recurrent):
            continue
        if flag.name in SMALL and not flag.prefix and flag not in drawn:
            small = SMALL[flag.name]
            words += [f"--no-{flag.spelt[2:]}"] if small is None else [flag.spelt, small]
    return words


def _say(rng: random.Random, flag: Flag, nonsense: bool) -> tuple[list[str], bool]:
    """Words for a flag, and whether they cannot be read as its type."""
    hints = _alternatives(flag.hint)
    if flag.name == "steps":  # legal values of it last for hours
        hints, nonsense = [float], False
    if not nonsense:
        return _sensible(rng, flag, rng.choice(hints)), False
    word = rng.choice([*NUMBERS, *WORDS])
    if bool in hints:
        return [f"{flag.spelt}={word}"], False
    numeric = all(hint in (int, float, type(None)) for hint in hints)
    wrong = "\0" in word or (numeric and not _reads(word) and not (word == "None" and type(None) in hints))
    return [flag.spelt, word], wrong


def _sensible(rng: random.Random, flag: Flag, hint: Any) -> list[str]:
    if hint is bool:
        name = flag.spelt[2:]
        head, dot, last = name.rpartition(".")
        return [rng.choice([flag.spelt, f"--{head}{dot}no-{last}"])]
    if typing.get_origin(hint) is typing.Literal:
        return [flag.spelt, str(rng.choice(typing.get_args(hint)))]
    if typing.get_origin(hint) is tuple:
        return [flag.spelt, *(str(rng.choice([1, 2, 8])) for _ in range(rng.randrange(3)))]
    if hint is float:
        default = flag.default if isinstance(flag.default, int | float) and flag.name != "steps" else 100.0
        return [flag.spelt, f"{default * rng.choice([0.0, 0.5, 1.0, 1.1]):g}"]
    if hint is int:
        return [flag.spelt, str(rng.choice([1, 2, 3, 4, 8]))]
    if hint is type(None):
        return [flag.spelt, "None"]
    return [flag.spelt, rng.choice(["1", "x", "2,3"] if hint is Anything else ["x"])]


def _alternatives(hint: Any) -> list[Any]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return [leaf for option in typing.get_args(hint) for leaf in _alternatives(option)]
    return [hint]


def _reads(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return word.isascii()


def filled(words: Sequence[str], run: Path, other: Path, new: Path) -> list[str]:
    """A case's words with folders in them."""
    said = {RUN: run, OTHER: other, NEW: new}
    for stand_in, path in said.items():
        words = [word.replace(stand_in, str(path)) for word in words]
    return list(words)
