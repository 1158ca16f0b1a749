"""Algorithms: one file per paper, each with its ``Config``, losses and ``make``.

Other packages get an algorithm by its name (:func:`get`), which imports it without the others; an algorithm may reuse
the functions of another one's file.
"""

import difflib
import importlib
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from shoal.errors import InputError, shortened, unknown
from shoal.security import user_modules
from shoal.spec import EnvSpec

NAMES = (
    "coma",
    "commnet",
    "facmac",
    "haa2c",
    "haddpg",
    "happo",
    "hasac",
    "hatd3",
    "hatrpo",
    "ia2c",
    "iddpg",
    "ippo",
    "ipqn",
    "iql",
    "isac",
    "lica",
    "maa2c",
    "maddpg",
    "magpo",
    "mapg",
    "mappo",
    "masac",
    "mat",
    "mat_dec",
    "matd3",
    "poca",
    "pqn_vdn",
    "qmix",
    "qplex",
    "qtran",
    "sable",
    "seps",
    "shaq",
    "tarmac",
    "vdn",
)

ONE_REWARD = (
    "coma",
    "facmac",
    "haddpg",
    "hasac",
    "hatd3",
    "lica",
    "mapg",
    "masac",
    "mat",
    "poca",
    "pqn_vdn",
    "qmix",
    "qplex",
    "qtran",
    "shaq",
    "vdn",
)
"""Algorithms that by default learn from the mean over the team where agents earn different rewards."""

ALONE = {"a2c": "ia2c", "ddpg": "iddpg", "dqn": "iql", "ppo": "ippo", "pqn": "ipqn", "sac": "isac", "td3": "matd3"}
"""Usual names of single-agent algorithms, and the algorithm here that is the same for a team of one."""


SCRIPTED = {
    "constant": "shoal.algorithms.scripts.constant",
    "random": "shoal.algorithms.scripts.random",
    "scripted": "shoal.environments.skirmish.scripts",
}
"""Teams that do not learn, and their modules; all commands accept them as algorithms."""

_OF_MAPPO = {"baseline": ("value", "q_baseline"), "dead_value": ("team", "dead_values")}
_OF_MADDPG = {"policies": ("true", "inferred_policies")}
ABLATIONS = {"mappo": _OF_MAPPO, "ippo": _OF_MAPPO, "maddpg": _OF_MADDPG, "iddpg": _OF_MADDPG, "matd3": _OF_MADDPG}
"""Options of an algorithm that are files of their own: by option, the value without it, and the file. Its ``make`` has
the algorithm's as its first argument; so has its ``make_policy``, where there is one."""


def canonical(name: str) -> str:
    """The name in :data:`NAMES`, or ``module:make`` of the user's own, or those joined by ``+``, that ``name`` means.

    A name that is not in :data:`NAMES` is that of a module of the user's own if Python finds one, which is not imported
    here; otherwise it stays as it is. Run folders hold canonical names, so what a name there means does not depend on
    the modules that are found when the folder is opened.

    Raises:
        InputError: it is no text.
    """
    if not isinstance(name, str):
        raise InputError(f"An algorithm is given by its name, not {shortened(name)}.")
    return "+".join(map(_canonical, name.split("+")))


def _canonical(part: str) -> str:
    if known(part) or ":" in part:
        return ALONE.get(part, part)
    return f"{part}:make" if user_modules.is_importable(part) else part


def known(name: str) -> bool:
    """Whether a name is that of an algorithm here."""
    return ALONE.get(name, name) in (*NAMES, *SCRIPTED)


def alone(name: str) -> bool:
    """Whether a name is that of one algorithm, here or a module of the user's own, rather than an environment's.

    ``module:function`` may be either, and is taken for an environment's.
    """
    return ":" not in name and (known(name) or canonical(name) != name)


def check_alone(name: str, spec: EnvSpec) -> None:
    """Refuse the name of an algorithm for one agent where there are several.

    Raises:
        InputError: naming the algorithm for a team.
    """
    if name in ALONE and spec.num_agents > 1:
        raise InputError(
            f"{name} is for one agent, and {spec.name} has {spec.num_agents}: use {ALONE[name]}, which is {name} for "
            f"each agent of a team, or another of 'shoal list algorithms'."
        )


def check_name(name: str) -> None:
    """Refuse a name that is neither of an algorithm here nor of the user's own, nor several of them joined by ``+``.

    Raises:
        InputError: naming the nearest, and how an algorithm of the user's own is found.
    """
    for part in canonical(name).split("+"):
        if ":" not in part and not known(part):
            user_modules.refuse_file(part, "algorithm")
            where = (
                f"Or did you mean your module {near!r} in the working directory?"
                if (near := near_module(part))
                else "Your own algorithm has the name of its module: my_idea for my_idea.py in the working directory, "
                "or any module that Python can import."
            )
            raise InputError(f"{unknown('algorithm', part, (*NAMES, *ALONE, *SCRIPTED))} {where}")


def near_module(name: str) -> str | None:
    """The most similar name of a module in the working directory that can be imported; None if none is similar."""
    wanted = name.removesuffix(".py").replace("-", "_")
    stems = [path.stem for path in Path().glob("*.py") if path.stem.isidentifier()]
    close = difflib.get_close_matches(wanted, stems, n=1, cutoff=0.7)
    return close[0] if close and user_modules.is_importable(close[0]) else None


def check_written(name: str) -> None:
    """Refuse a name in a run folder that is not canonical; no module is looked for.

    Raises:
        InputError: a part of it is neither an algorithm here nor ``module:make``.
    """
    for part in name.split("+"):
        if ":" not in part and not known(part):
            raise unknown("algorithm", part, (*NAMES, *ALONE, *SCRIPTED))


def own(name: str) -> list[str]:
    """The user's modules in a name; those of a run folder are imported only with permission."""
    return [part.partition(":")[0] for part in name.split("+") if not known(part)]


def get(name: str) -> Any:
    """The algorithm's module, which has a ``Config`` and a ``make(spec, config, scale)``.

    A name in :data:`ALONE` gives the module of the algorithm that it stands for. A module of the user's own, also as
    ``module:make``, is imported. Names joined by ``+`` train one side of the environment each
    (:mod:`shoal.sides.sides`).

    Raises:
        InputError: there is no such algorithm, and the message names the nearest; or the user's own module has no
            ``make`` or no ``Config``.
    """
    if "+" in name:
        from shoal.sides.sides import join

        names = tuple(name.split("+"))
        return join(names, tuple(map(get, names)))
    check_name(name)
    name = canonical(name)
    if ":" in name:
        module = _own_module(name)
        return with_ablations(_inherited(module.Config) or "", module)
    return with_ablations(name, importlib.import_module(SCRIPTED.get(name, f"shoal.algorithms.{name}")))


def inherited(name: str) -> str | None:
    """The algorithm here whose ``Config`` a module of the user's own inherits or uses; None if there is none.

    Raises:
        InputError: as :func:`get`.
    """
    return _inherited(get(name).Config)


def _inherited(config: type) -> str | None:
    for kind in config.__mro__:
        package, _, module = kind.__module__.rpartition(".")
        if package == __name__ and module in NAMES and kind is get(module).Config:
            return module
    return None


class WithAblations(ModuleType):
    """An algorithm's module whose ``make`` and ``make_policy`` are those of :data:`ABLATIONS` where options ask for it.

    All other names are the module's.
    """

    def __init__(self, module: ModuleType, ablations: dict[str, tuple[str, str]]):
        super().__init__(module.__name__, module.__doc__)
        self._module, self._ablations = module, ablations

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        return partial(self._made, name, found) if name in ("make", "make_policy") else found

    def _made(self, name: str, make: Callable[..., Any], spec: EnvSpec, config: Any, *more: Any) -> Any:
        for option, (without, file) in self._ablations.items():
            if getattr(config, option) != without:
                found = getattr(importlib.import_module(f"shoal.algorithms.{file}"), name, None)
                return (
                    found(self._with_parts(make, option), spec, config, *more) if found else make(spec, config, *more)
                )
        return make(spec, config, *more)

    def _with_parts(self, make: Callable[..., Any], option: str) -> Callable[..., Any]:
        """``make``, which may be the user's own and take no parts."""

        def takes(*given: Any, **parts: Any) -> Any:
            try:
                inspect.signature(make).bind(*given, **parts)
            except TypeError:
                raise InputError(
                    f"{option} replaces parts of the algorithm, which make of {self.__name__!r} does not take: leave "
                    f"{option} out, or write def make(spec, config, scale, **parts) and pass **parts on."
                ) from None
            try:
                return make(*given, **parts)
            except TypeError as error:
                if twice := re.search(r"multiple values for keyword argument '(\w+)'", str(error)):
                    raise InputError(
                        f"{option} replaces {twice[1]} of the algorithm, which {self.__name__!r} replaces too: leave "
                        f"{option} out."
                    ) from None
                raise

        return takes


@cache
def with_ablations(name: str, module: Any) -> Any:
    """The module of the algorithm ``name``, or one whose ``Config`` inherits its, with its :data:`ABLATIONS`."""
    return WithAblations(module, ABLATIONS[name]) if name in ABLATIONS else module


def _own_module(name: str) -> Any:
    module, _, function = name.partition(":")
    if function != "make":
        raise InputError(f"Your own algorithm has the name of its module: {module!r}, not {name!r}.")
    user_modules.import_user_object(name, "algorithm")
    config = getattr(sys.modules[module], "Config", None)
    try:
        sound = is_dataclass(config) and isinstance(hash(config()), int)  # type: ignore[operator]
    except TypeError:  # a field without a default, or not frozen
        sound = False
    if not sound:
        raise InputError(f"The module {module!r} needs a frozen dataclass Config whose fields all have defaults.")
    _check_fields(module, config)
    for made_by, arguments in (("make", ("spec", "config", "scale")), ("make_policy", ("spec", "config"))):
        found = getattr(sys.modules[module], made_by, None)
        if found is not None and not user_modules.takes(found, len(arguments)):
            raise InputError(f"{made_by} of {module!r} must take ({', '.join(arguments)}).")
    return sys.modules[module]


def returned(made: Any, module: Any, function: str = "make") -> Any:
    """The ``Algorithm`` that a function of an algorithm's module has returned.

    Raises:
        InputError: it is no ``Algorithm``, for example None, where a function of the user's own does not return it.
    """
    from shoal.types import Algorithm  # imports JAX, which the names of algorithms do not need

    if isinstance(made, Algorithm):
        return made
    what = f"{function} of {module.__name__!r}"
    raise InputError(f"{what} must return a shoal.types.Algorithm, but returned {shortened(made)}.")


def _check_fields(module: str, config: Any) -> None:
    """Refuse attributes that look like fields and are not: their values would be ignored."""
    names = {field.name for field in fields(config)}
    for kind in config.__mro__:
        typed = inspect.get_annotations(kind)
        if "__dataclass_fields__" not in vars(kind):
            lost = [name for name, hint in typed.items() if "ClassVar" not in str(hint)]
            remedy = f"write @dataclass(frozen=True) above the class {kind.__name__}"
        else:
            lost = [name for name in vars(kind) if name in names and name not in typed]
            remedy = "give it a type, as in gamma: float = 0.9"
        if lost:
            raise InputError(f"The Config of {module!r} has the attribute {lost[0]!r}, which is no field: {remedy}.")
