"""The settings and hyper-parameters of a run, merged from flags, files, the preset and defaults."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shoal import algorithms
from shoal.bounds import check_value
from shoal.errors import InputError
from shoal.options.flags import check_names, leaves, override
from shoal.presets import preset
from shoal.presets.sizes import sizes_for
from shoal.training.settings import Settings
from shoal.types import EnvSpec

SIZES: Collection[str] = sizes_for(1).keys()
"""Settings that depend on the length of an episode, unless a layer has a value other than None for them."""
PRESET, DEFAULT, EPISODE = "preset", "default", "length of an episode"


class Layer(NamedTuple):
    """Values from one place."""

    flags: Mapping[str, Any]
    """Fields of the settings and of the algorithm's ``Config`` by name, as in :func:`shoal.options.flags.override`."""
    origin: str = "flag"
    """The place, for example the name of a file."""
    named: bool = False
    """Whether messages about the values begin with the place."""
    about: str = ""
    """What these messages say of the place, for example ``" (written for mappo)"``."""


@dataclass(frozen=True)
class Merged:
    """The settings and hyper-parameters of a run."""

    settings: Settings
    """The settings, in which those in :attr:`sized` have no meaning."""
    config: Any
    """The algorithm's ``Config``."""
    sized: frozenset[str]
    """Those of :data:`SIZES` that depend on the length of an episode (:meth:`sized_for`)."""
    origins: Mapping[str, str]
    """Where each value comes from, by flag."""

    def sized_for(self, spec: EnvSpec) -> Settings:
        """The settings for an environment with this spec, without the wrappers of the settings."""
        sizes = sizes_for(min(spec.horizon, self.settings.wrapping.time_limit or spec.horizon))
        return override(self.settings, {name: sizes[name] for name in self.sized})


def merged(algorithm: str, environment: str, layers: Sequence[Layer] = ()) -> Merged:
    """Merge layers over the preset for ``algorithm`` in ``environment``, and that over the defaults.

    Args:
        algorithm: its name, as in :func:`shoal.algorithms.get`.
        environment: its name.
        layers: later ones take precedence.

    Raises:
        InputError: a flag is unknown, or a value has the wrong type; in a layer with ``named`` also if it is out of
            bounds, and the message begins with its origin.
    """
    settings, config = Settings(), algorithms.get(algorithm).Config()
    origins = {leaf.name: DEFAULT for part in (settings, config) for leaf in leaves(part)}
    sized = frozenset(SIZES)
    for layer in (Layer(preset(algorithms.canonical(algorithm), environment), PRESET), *layers):
        try:
            if layer.origin != PRESET:
                check_names(layer.flags, settings, config)
            elif algorithms.own(algorithm) and "+" not in algorithm:  # a side's preset also has settings of whole runs
                check_names(
                    layer.flags,
                    settings,
                    config,
                    of=f"the preset of {algorithms.canonical(algorithm)} for {environment}",
                )
            undecided = {name for name in SIZES if name in layer.flags and layer.flags[name] is None}
            given = {name: value for name, value in layer.flags.items() if name not in undecided}
            settings, config = override(settings, given), override(config, given)
            for leaf in (leaf for part in (settings, config) for leaf in leaves(part)):
                if leaf.name in given or leaf.plain in given:
                    origins[leaf.name] = layer.origin
                    if layer.named and leaf.bounds is not None:
                        check_value(leaf.name, leaf.value, leaf.bounds)
        except InputError as error:
            if layer.named:
                raise InputError(f"{layer.origin}{layer.about}: {error}") from None
            raise
        sized = (sized | undecided).difference(given)
    return Merged(settings, config, sized, origins | dict.fromkeys(sized, EPISODE))
