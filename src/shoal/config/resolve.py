"""What a run trains: flags take precedence over a configuration file, and that over preset files and defaults."""

import inspect
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from shoal import algorithms
from shoal.bounds import LARGEST_INT, check_bounds, check_value
from shoal.config import config_files
from shoal.config.config_files import ConfigFile, key_to_toml, to_toml
from shoal.environments import names, registry
from shoal.environments.names import hint_of
from shoal.errors import InputError, shortened, unknown
from shoal.networks.architecture import NETWORKS
from shoal.options.convert import Anything, becomes_none, convert_value, from_toml, mapping, takes
from shoal.options.flags import Leaf, check_fields, check_names, flags_of, leaves, options_from_json, override
from shoal.presets import preset, sizes_for
from shoal.security import user_modules
from shoal.sides.opponents import PAST
from shoal.storage.zoo import located
from shoal.training.settings import Settings
from shoal.trust import permission
from shoal.trust.run_file import TRUST, config_of_run, described_run, own_record, why_not_own
from shoal.types import AnyEnvironment, Discrete, Environment, EnvSpec

# Settings and hyper-parameters, merged from layers.


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

    def over(self, layer: Layer) -> "Merged":
        """These values with a layer over them.

        Raises:
            InputError: see :func:`merged`.
        """
        try:
            if layer.named or layer.origin != PRESET:  # a file can be named as PRESET is
                check_names(layer.flags, self.settings, self.config)
            undecided = {name for name in SIZES if name in layer.flags and layer.flags[name] is None}
            given = {name: value for name, value in layer.flags.items() if name not in undecided}
            settings, config = override(self.settings, given), override(self.config, given)
            origins = dict(self.origins)
            for leaf in (leaf for part in (settings, config) for leaf in leaves(part)):
                if leaf.name in given or leaf.plain in given:
                    origins[leaf.name] = layer.origin
                    if layer.named and leaf.bounds is not None:
                        check_value(leaf.name, leaf.value, leaf.bounds)
        except InputError as error:
            if layer.named:
                raise InputError(f"{layer.origin}{layer.about}: {error}") from None
            raise
        sized = (self.sized | undecided).difference(given)
        return Merged(settings, config, sized, origins | dict.fromkeys(sized, EPISODE))


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
    tuned = preset(algorithms.canonical(algorithm), environment)
    if algorithms.own(algorithm) and "+" not in algorithm:  # a side's preset also has settings of whole runs
        check_names(tuned, settings, config, of=f"the preset of {algorithms.canonical(algorithm)} for {environment}")
    check_fields(algorithm, config, settings)
    origins = {leaf.name: DEFAULT for part in (settings, config) for leaf in leaves(part)}
    values = Merged(settings, config, frozenset(SIZES), origins)
    for layer in (Layer(tuned, PRESET), *layers):
        values = values.over(layer)
    return values


# The configuration of a run, from files, presets and flags.


@dataclass(frozen=True)
class Configured:
    """What a run trains."""

    given: str
    """The algorithm as it was named."""
    environment: Any
    """The environment as :func:`shoal.environments.registry.make` takes it."""
    env: dict[str, Any]
    """Options of its factory."""
    values: Merged
    """Settings and hyper-parameters."""
    env_origins: Mapping[str, str]
    """Where each option comes from."""
    flags: Mapping[str, Any]
    """Fields of the settings and of the algorithm's ``Config`` that the call itself gave."""
    trust: bool = False
    """Whether to import what the folder of its opponents names although the run is not of the user's own training."""

    @property
    def algorithm(self) -> str:
        """The algorithm's name in :data:`shoal.algorithms.NAMES`, or of the user's own."""
        return algorithms.canonical(self.given)

    @property
    def name(self) -> str:
        """The environment's name."""
        return registry.called(self.environment)


class Defaults:
    """What a run trains without the flags and options of the call: Shoal's preset, a preset file and a configuration
    file. No environment is built."""

    def __init__(
        self,
        algorithm: str | None,
        environment: Any,
        *,
        config: str | Path | Mapping[str, Any] | None = None,
        preset: str | Path | None = None,
        trust: bool = False,
    ):
        """Read the files; arguments are those of :func:`configured`.

        Raises:
            InputError: an argument is invalid, or a file names a module that is not imported without ``trust``.
        """
        self._file = file = ConfigFile("") if config is None else config_files.read_config(config)
        self._trust = trust
        name = algorithm or file.algorithm
        if name is None or (environment is None and file.environment is None):
            what = "an environment" if name else "an algorithm and an environment"
            if file.run is not None:
                raise InputError(
                    f"{file.name} describes a run in an Environment object; give the name of an environment."
                )
            raise InputError(f"{file.name} does not name {what}." if file.name else f"Training needs {what}.")
        _permit(file, algorithm, environment, trust)
        with _named(file.name if algorithm is None else ""):
            algorithms.check_name(name)
            algorithms.get(name)
        self.algorithm = name
        """The algorithm as it is named."""
        self.environment = file.environment if environment is None else environment
        self.env = _options(file, self.environment)
        """Options of the environment's factory."""
        layers = []
        if config is not None:
            about = _written_for(file.algorithm, name, algorithms.canonical(name))
            given = file.flags if file.run is not None else config_files.typed_flags(file.flags, name)
            layers.append(Layer(given, file.name, True, about))
        if preset is not None:
            layers.insert(0, Layer(config_files.read_preset(preset, name), str(preset), named=True))
        self._layers = layers
        self.values = merged(name, registry.called(self.environment), layers)

    def over(self, flags: Mapping[str, Any], env: Mapping[str, Any]) -> Configured:
        """The configuration with the flags and options of the call, which take precedence.

        Raises:
            InputError: one is invalid; or a file is the ``run.json`` of somebody else's run, and its values would
                import a module or connect to a cluster.
        """
        file, flags = self._file, completed(flags)
        values = self.values.over(Layer(flags))
        if file.run is not None and not self._trust:
            mine = [flags, *(layer.flags for layer in self._layers if layer.origin != file.name)]
            _permit_options(file, mine, values)
            if _uses_cluster(file, values):
                why = why_not_own(file.run, config_of_run(file.run))
                raise InputError(
                    f"{file.run} {why}, and would use a Ray cluster: {TRUST}, or give workers and address yourself."
                )
        origins = dict.fromkeys(self.env, file.name) | dict.fromkeys(env, "flag")
        return Configured(self.algorithm, self.environment, self.env | dict(env), values, origins, flags, self._trust)


def configured(
    algorithm: str | None,
    environment: Any,
    *,
    env: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    preset: str | Path | None = None,
    trust: bool = False,
) -> Configured:
    """What a run trains. No environment is built.

    ``algorithm`` and ``environment`` take precedence over those of ``config``, ``env`` over its options, and ``flags``
    over its flags, these over the flags of ``preset``, and these over Shoal's own preset.

    Args:
        algorithm: its name; None for that of ``config``.
        environment: as for :func:`shoal.environments.registry.make`; None for that of ``config``.
        env: options of the environment's factory.
        flags: fields of the settings and of the algorithm's ``Config``; ``init_from`` and ``opponents`` may be
            a path or an opened run.
        config: see :func:`shoal.config.config_files.read_config`.
        preset: a preset file.
        trust: import what ``config``, if it is the ``run.json`` of somebody else's run, and the folder of opponents
            name.

    Raises:
        InputError: an argument is invalid, or a file names a module that is not imported without ``trust``. For values
            of a file the message names the file and the key.
    """
    env = mapping("env", env)
    return Defaults(algorithm, environment, config=config, preset=preset, trust=trust).over(flags or {}, env)


def completed(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags of a call in the form in which a run keeps them: the folder of a run, ``module:make`` for a script."""
    whole = dict(flags)
    for name in ("init_from", "opponents"):
        source = getattr(whole.get(name), "folder", whole.get(name))
        if isinstance(source, Path):
            whole[name] = str(source)
    name = whole.get("opponents")
    if isinstance(name, str) and name != PAST and not located(name).is_dir():
        whole["opponents"] = algorithms.canonical(name)
    return whole


def _written_for(theirs: str | None, *ours: str) -> str:
    """What messages about a file's values say of the file, if it names another algorithm or environment."""
    return f" (written for {theirs})" if theirs is not None and theirs not in ours else ""


@contextmanager
def _named(file: str) -> Iterator[None]:
    """Begin the message of an InputError with the file, if there is one."""
    try:
        yield
    except InputError as error:
        if not file:
            raise
        raise InputError(f"{file}: {error}") from None


def named_options(found: Configured) -> AbstractContextManager[None]:
    """Begin the message of an InputError with the file that gave options of the environment, if one did."""
    files = [origin for origin in found.env_origins.values() if origin != "flag"]
    return _named(files[0] if files else "")


def _permit(file: ConfigFile, algorithm: str | None, environment: Any, trust: bool) -> None:
    """Check that what a file names, rather than the user, may be imported (``docs/security.md``)."""
    if file.run is None:
        if environment is None:  # the user's own file, or one that the user trusts
            with _named(file.name):
                names.check_name(str(file.environment))
                permission.check_factory(str(file.environment))
        return
    own = algorithms.own(algorithm) if algorithm else []
    if own or (isinstance(environment, str) and permission.own_module(environment)):
        user_modules.reachable()  # typed names are searched in the working directory, wherever the run's modules are
    if algorithm is None or algorithms.canonical(algorithm) == file.algorithm:
        described_run(file.run, trust or algorithm is not None)  # also checks that no key is missing
    if environment is None or file.env:
        named = None if environment is None else registry.called(environment)
        permission.permit(file.run, config_of_run(file.run), trust, named)


def _permit_options(file: ConfigFile, others: Sequence[Mapping[str, Any]], values: Merged) -> None:
    """Check that networks and opponents that a run's folder names, rather than the user, may be imported.

    Raises:
        InputError: the folder is not of the user's own training.
    """
    assert file.run is not None
    given = user_modules.named_in(*others)
    options = flags_of(values.config), flags_of(values.settings)
    theirs = [module for module in user_modules.named_in(*options) if module not in given]
    if not theirs:
        return
    if (record := own_record(file.run, config_of_run(file.run))) is None:
        raise InputError(
            f"{file.run} {why_not_own(file.run, config_of_run(file.run))}, and its options would import the module "
            f"{' and '.join(map(repr, theirs))}: {TRUST}, or name networks and opponents yourself."
        )
    user_modules.instead(record.directory)


def _uses_cluster(file: ConfigFile, values: Merged) -> bool:
    """Whether a folder that is not of the user's own training chooses a Ray cluster."""
    assert file.run is not None
    chosen = {name for name in ("workers", "address") if values.origins[name] == file.name and file.flags[name]}
    if values.settings.workers != "ray" or not chosen:
        return False
    return own_record(file.run, config_of_run(file.run)) is None


def _options(file: ConfigFile, environment: Any) -> dict[str, Any]:
    """A file's options of the environment, converted to the types of its factory's parameters.

    Raises:
        InputError: one is unknown or has the wrong type.
    """
    if not file.env or not (isinstance(environment, str) or callable(environment)):
        return dict(file.env)
    with _named(file.name + _written_for(file.environment, registry.called(environment))):
        known = registry.options_of(environment)
        if not any(option.kind is option.VAR_KEYWORD for option in known.values()):
            for option in file.env:
                if option not in known:
                    raise unknown(f"option of {registry.called(environment)} named", option, known)
        if file.run is not None:  # such a run has trained with them
            return options_from_json(file.env, known)
        return {name: _option(name, value, known.get(name)) for name, value in file.env.items()}


def _hint(parameter: inspect.Parameter | None) -> Any:
    """The type of an environment's option."""
    return Anything if parameter is None else hint_of(parameter, parameter.default)


def _option(name: str, value: Any, parameter: inspect.Parameter | None) -> Any:
    hint = _hint(parameter)
    plain = from_toml(value, hint)
    annotated = parameter is not None and parameter.annotation is not parameter.empty
    return convert_value(name, plain, hint) if annotated and takes(hint) is not None else plain


class _Need(NamedTuple):
    """What an option needs to have an effect."""

    unused: Mapping[str, Container[Any]]
    """Other options, of the settings or of the same algorithm, with the values at which there is no effect; where there
    are several, only if each that the algorithm has is at such a value."""
    sentence: str
    """What the message says after the option's name."""
    algorithm: str = ""
    """The only algorithm where it is needed; empty for all that have the option."""


_OFF = (None, False)
_MEMORY = _Need({"memory": _OFF}, "is that of memory over time: add --memory")
_SABLE = _Need({"guider": ("mat",)}, "is that of Sable's network: choose --guider sable")
_MODELS = _Need({"policies": ("true",)}, "is that of models of the other agents: choose --policies inferred")
_ONE_STEP = tuple(  # not of HAPPO's, where agents that share parameters change each other's ratios
    _Need(
        {"epochs": (1,), "minibatches": (1,)},
        "limits changes since the first gradient step of an update: raise --epochs or --minibatches",
        name,
    )
    for name in ("mappo", "ippo", "mat", "mat_dec", "sable")
)
_BLIND = _Need({"blind": (True,)}, "changes observations that --blind replaces: leave out --blind")
_WITHOUT_IMAGES, _WITHOUT_ENTITIES = ("mlp", "entities", "universal"), ("auto", "mlp", "cnn", "impala")
_IMAGES = _Need(
    {"network": _WITHOUT_IMAGES, "critic_network": (None, *_WITHOUT_IMAGES)},
    "is that of networks for images: choose --network cnn or impala",
)
_ENTITIES = _Need(
    {"network": _WITHOUT_ENTITIES, "critic_network": (None, *_WITHOUT_ENTITIES)},
    "is that of attention among entities: choose --network entities or universal",
)
_Q_BASELINE = (
    *(
        _Need({"baseline": ("value",)}, "is that of baselines of MAPPO that need a Q: choose mappo", name)
        for name in ("commnet", "mat_dec", "poca", "tarmac")
    ),
    _Need({"baseline": ("none", "value")}, "is that of the baselines counterfactual and optimal: choose one"),
)
_LEARNED = _Need(
    {"sharing": ("shared", "role", "independent")}, "is for sharing that is learned: leave out --sharing", "seps"
)
_SHARED = tuple(  # in the others, one net reads the rows of all agents whatever the sharing of actors
    _Need({"sharing": ("independent",)}, "is for agents that share parameters: set --sharing shared or role", name)
    for name in algorithms.NAMES
    if name not in ("magpo", "mat", "mat_dec", "poca", "sable")
)
_NEEDS: dict[str, tuple[_Need, ...]] = {
    **dict.fromkeys(
        ("kl_weight", "latent", *(f"pretrain_{x}" for x in ("batch", "rate", "steps", "updates"))),
        (_LEARNED,),
    ),
    "agent_id": _SHARED,
    "address": (_Need({"workers": ("processes",)}, "is that of a Ray cluster: add --workers ray"),),
    "alpha_learning_rate": (_Need({"adapt_alpha": _OFF}, "is the step size of the temperature: add --adapt-alpha"),),
    "attention_width": (_Need({"attention_layers": (1,)}, "is that of hidden layers: raise --attention-layers"),),
    "curve_episodes": (_Need({"eval_every": _OFF}, "is that of evaluations during training: add --eval-every"),),
    "baseline_from": _Q_BASELINE,
    "channels": (_IMAGES,),
    "chunk_length": (
        _Need(
            {"recurrent": _OFF}, "is that of recurrent nets: set the length of chunks with --retention-chunk", "sable"
        ),
        _Need({"recurrent": _OFF}, "is that of recurrent nets: set their width with --recurrent H"),
        _Need(
            {"guider": ("sable",), "memory": (True,)},
            "is not used with a guider that remembers, since it learns from whole rollouts: add --no-memory",
        ),
    ),
    "criterion": (
        _LEARNED,
        _Need({"clusters": range(1, LARGEST_INT)}, "selects the number of clusters: leave out --clusters"),
    ),
    "critic_input": (
        _Need({"critic": ("independent",)}, "is that of a centralised critic: leave out --critic independent"),
    ),
    "clip": _ONE_STEP,
    "crop": (_BLIND,),
    "decay": (_MEMORY, _SABLE),
    "draws": _Q_BASELINE,
    "entity_blocks": (_ENTITIES,),
    "entity_heads": (_ENTITIES,),
    "entropy_share": (_Need({"adapt_alpha": _OFF}, "is that of adapted temperatures: add --adapt-alpha"),),
    "epsilon_fraction": (
        _Need({"epsilon": (0.0,), "epsilon_final": (0.0,)}, "is that of a change of the exploration: set --epsilon"),
    ),
    "frame_stack": (_BLIND,),
    "gain": (
        _Need(
            {"orthogonal": _OFF, "network": NETWORKS, "critic_network": (None, *NETWORKS)},
            "is that of orthogonal kernels: add --orthogonal",
        ),
    ),
    "greyscale": (_BLIND,),
    "hyper_layers": (_Need({"mixing": ("mlp",)}, "is that of hypernetworks: choose --mixing mix", "lica"),),
    "hyper_width": (_Need({"hyper_layers": (1,)}, "is that of a hidden layer: raise --hyper-layers"),),
    "memory": (_SABLE,),
    "model_entropy_coef": (_MODELS,),
    "model_learning_rate": (_MODELS,),
    "noise_fraction": (_Need({"noise_final": (None,)}, "is that of a change of the noise: set --noise-final"),),
    "order": (
        _Need({"sharing": ("independent",)}, "matters only to agents that share parameters: set --sharing", "masac"),
    ),
    "output_gain": (
        # Networks of one's own may read it, and MAGPO's guider has orthogonal kernels in any case.
        _Need(
            {"orthogonal": _OFF, "network": NETWORKS, "guider": ()}, "is that of an orthogonal kernel: add --orthogonal"
        ),
    ),
    "position": (_MEMORY,),
    "recompute_advantages": (_Need({"epochs": (1,)}, "is for the epochs after the first: raise --epochs"),),
    "resize": (_BLIND,),
    "retention_chunk": (_MEMORY,),
    "sequence_length": (
        *(
            _Need(
                {"recurrent": _OFF}, "is that of sequences, and windows of --n-step are drawn here: set --n-step", name
            )
            for name in ("facmac", "haddpg", "hasac", "hatd3", "masac")
        ),
        _Need(
            {"recurrent": _OFF, "n_step": (1,), "lam": (*_OFF, 0.0)},
            "is that of recurrent nets and of targets over several steps: set --recurrent H",
        ),
    ),
    "signature_width": (_Need({"silent": (True,)}, "is that of messages: leave out --silent"),),
    "reward_clip": (_Need({"normalise_rewards": _OFF}, "clips normalised rewards: add --normalise-rewards"),),
    "target_entropy_rate": (_Need({"target_entropy": (None,)}, "is a step towards --target-entropy: set it"),),
    "value_clip": _ONE_STEP,
    "value_norm_beta": (_Need({"value_norm": ("none",)}, "is that of the statistics of --value-norm: choose running"),),
}
_OF_BOXES = ("draws", "log_std", "noise", "noise_final", "noise_fraction", "target_noise", "target_noise_clip", "value")
_OF_DISCRETE = ("action", "entropy_share", "relaxation", "temperature")
"""Options of Shoal's algorithms that have an effect with one kind of actions only."""
_OF_DISCRETE_IN = {"logit_coef": ("facmac", "haddpg", "hatd3")}
"""Options that have an effect with discrete actions only in these algorithms, and with both kinds in others."""


_OF_WORKERS = ("num_workers", "worker_timeout")
"""Options that have an effect in host environments only."""


def check_effect(
    settings: Settings, config: Any, given: Collection[str], environment: str, build: Callable[[], AnyEnvironment]
) -> None:
    """Refuse options that a command names and that have no effect in its run.

    Those that files, presets and programs give may be unused, so that they suit several runs. Whether workers step an
    environment of the user's own is known only when training has built it, which then prints a note
    (:func:`shoal.training.checks.notes_on_workers`).

    Args:
        settings: the run's.
        config: its algorithm's.
        given: names of the options that the command names.
        environment: the environment's name.
        build: builds it; called for options of workers and of one kind of actions only.

    Raises:
        InputError: one has no effect.
    """
    shipped = names.built_in(environment) or environment.startswith(tuple(names.FAMILIES))
    for name in (name for name in _OF_WORKERS if name in given):
        if name == "worker_timeout" and settings.workers == "processes" and settings.num_workers == 0:
            raise InputError(f"{name} is that of worker processes, and num_workers 0 starts none: leave out {name}.")
        if shipped and isinstance(build(), Environment):
            raise InputError(
                f"{name} is that of worker processes, and {environment} is compiled with the update: leave out {name}."
            )
    unused = without_effect(settings, config, given, environment, lambda: build().spec)
    for said in unused.values():
        raise InputError(said)


def without_effect(
    settings: Settings, config: Any, given: Iterable[str], environment: str, spec: Callable[[], EnvSpec]
) -> dict[str, str]:
    """Those of the options ``given`` that have no effect, with the sentence that says why; see :func:`check_effect`.

    Options of workers are not among them. ``spec`` is called for options of one kind of actions only.
    """
    shipped = names.built_in(environment) or environment.startswith(tuple(names.FAMILIES))
    found = {leaf.name: leaf for part in (settings, config) for leaf in leaves(part)}
    unused: dict[str, str] = {}
    for name in given:
        plain = re.sub("^side[0-9]+_", "", name)
        sides = [leaf.removesuffix(plain) for leaf in found if re.fullmatch(f"(side[0-9]+_)?{name}", leaf)]
        for need in _NEEDS.get(plain, ()):
            if sides and all(_unmet(need, side, found, plain) for side in sides):
                unused.setdefault(name, f"{name} {need.sentence}, or leave out {name}.")
        modules = [found[side + plain].kind.__module__ for side in sides]
        ours = shipped and any(module.startswith("shoal.") for module in modules)
        some = all(module.rpartition(".")[2] in _OF_DISCRETE_IN.get(plain, ()) for module in modules)
        if ours and (some or plain in (*_OF_BOXES, *_OF_DISCRETE)):
            own, other = ("continuous", "discrete") if plain in _OF_BOXES else ("discrete", "continuous")
            if isinstance(spec().action, Discrete) == (plain in _OF_BOXES):
                said = f"{name} is for {own} actions, and {environment} has {other} ones: leave out {name}."
                unused.setdefault(name, said)
    return unused


def _unmet(need: _Need, side: str, found: Mapping[str, Leaf], option: str) -> bool:
    """Whether an option lacks what it needs; ``side`` is the prefix of its side, if it has one."""
    if need.algorithm not in ("", found[side + option].kind.__module__.rpartition(".")[2]):
        return False
    others = [(found[side + other], values) for other, values in need.unused.items() if side + other in found]
    return bool(others) and all(leaf.value in values for leaf, values in others)


def as_toml(found: Configured) -> str:
    """The whole configuration as a file that :func:`configured` reads, with the origin of each value as a comment.

    The environment is built if its spec decides sizes of the run; nothing is compiled.

    Raises:
        InputError: a setting is out of range, the environment cannot be built, or a value has no form in TOML.
    """
    from shoal.training import checks  # imports all that trains

    settings, config = found.values.settings, found.values.config
    checks.check_rewards(settings, config)
    if found.values.sized:
        with named_options(found):
            spec = registry.make(found.environment, **found.env).spec
        algorithms.check_alone(found.given, spec)
        settings = found.values.sized_for(spec)
    settings.check()
    check_bounds(config)
    lines = ["# shoal train --config FILE trains with these values. Each comment says where a value comes from."]
    lines += [f"algorithm = {to_toml(found.algorithm)}", f"environment = {to_toml(found.name)}", "", "[env]"]
    known = registry.options_of(found.environment)
    for name, value in found.env.items():
        lines.append(_line(name, value, _hint(known.get(name)), found.env_origins[name]))
    for name, parameter in known.items():
        if name not in found.env:
            with suppress(InputError):  # there is no default, or it has no form in TOML
                lines.append(f"# {_line(name, parameter.default, _hint(parameter), DEFAULT)}")
    lines += ["", "[flags]"]
    for title, part in (("run", settings), (found.algorithm, config)):
        groups: dict[str, list[Leaf]] = {title: []}
        for leaf in leaves(part):
            groups.setdefault(leaf.group or title, []).append(leaf)
        for group, inside in groups.items():
            lines += [f"# {group}"] * bool(inside)
            lines += [_line(leaf.name, leaf.value, leaf.hint, found.values.origins[leaf.name]) for leaf in inside]
    return "\n".join(lines) + "\n"


def _line(name: str, value: Any, hint: Any, origin: str) -> str:
    if becomes_none(value, hint):
        raise InputError(f"{name} holds the text 'None', which is read as None in a TOML file: choose another text.")
    plain = origin if origin.isprintable() else shortened(origin)
    return f"{key_to_toml(name)} = {to_toml(value)}  # {plain}"
