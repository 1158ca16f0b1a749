"""Install commands for optional dependencies.

They name the packages and not Shoal's extras, ``shoal-marl[ray]``: Shoal may have been installed from a checkout,
and the package called ``shoal`` on the Python Package Index is another one.
"""

import re

EXTRAS: dict[str, tuple[str, ...]] = {
    "ray": ("ray>=2.40",),
    "gymnasium": ("gymnasium[mujoco]>=1.0", 'gymnasium[box2d]>=1.0; python_version < "3.14"'),
    "pettingzoo": ("pettingzoo>=1.25", "mpe2>=1.1"),
    "mamujoco": ("gymnasium-robotics>=1.4.2", "gymnasium>=1.2", "mujoco>=3.0"),
    "hands": ("mujoco>=3.3",),
    "hanabi": ("open-spiel>=2.0.2",),
    "lbf": ("jumanji>=1.1", "lbforaging>=2.0"),
    "rware": ("jumanji>=1.1", "rware>=2.0"),
    "jaxmarl": ("jaxmarl>=0.2",),
    "mabrax": ("jaxmarl[mabrax]>=0.2",),
    "optuna": ("optuna>=4.0",),
    "onnx": ("onnx>=1.17",),
    "hub": ("huggingface_hub>=0.30",),
    "wandb": ("wandb>=0.20",),
    "mlflow": ("mlflow>=3.0",),
    "smac": ("gymnasium>=1.0", "pygame>=2.6", "scikit-learn>=1.5", "rtree>=1.4"),
}
"""The requirements of each extra in ``pyproject.toml``."""


def requirements(extra: str) -> list[str]:
    """The names of an extra's packages, for example ``jumanji`` and ``rware``; none if there is no such extra."""
    return list(dict.fromkeys(re.split(r"[\[<>=]", requirement)[0] for requirement in EXTRAS.get(extra, ())))


def install(extra: str) -> str:
    """The command that installs the packages of an extra, for example ``pip install 'jumanji>=1.1' 'rware>=2.0'``."""
    return " ".join(["pip install", *(f"'{requirement}'" for requirement in EXTRAS[extra])])


def lacking(
    what: str, name: str, error: ImportError, command: str, modules: tuple[str, ...] = (), *, needs: str = "needs"
) -> str:
    """The sentence for a library that cannot be imported: it is not installed, or something that it imports is not.

    Args:
        what: what needs the library, for example ``Logging to W&B``.
        name: the library's.
        error: what its import raised.
        command: the command that installs it.
        modules: its modules; by default one called ``name``.
        needs: ``need`` after a plural.
    """
    absent = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    if absent.partition(".")[0] in (modules or (name,)):
        return f"{what} {needs} {name}: {command}."
    if absent:
        return f"{what} {needs} the module {absent!r}, which {name} imports and which is not installed."
    return f"{what} {needs} {name}, which cannot be imported: {' '.join(str(error).split()).rstrip('.')}."
