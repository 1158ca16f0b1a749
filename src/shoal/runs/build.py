"""What a run trains with, made from its configuration: environment, algorithm with all that it needs, layout.

:func:`build` is used wherever something trains: by runs, studies, tuning and ``make_train``. :func:`acting_algorithm`
is the part of it that suffices to act.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jaxtyping import PRNGKeyArray

from shoal import algorithms
from shoal.environments import registry
from shoal.environments.changes import scored
from shoal.environments.starts import with_starts
from shoal.environments.wrappers import Wrapping, changed, wrap
from shoal.equations.reduce import DEVICES
from shoal.errors import CheckpointError, IndivisibleError, InputError, shortened
from shoal.learning import results
from shoal.options.flags import SPEC_WORDS, flags_of, games_to_json, override
from shoal.rollouts.host import Parallelism
from shoal.rollouts.ray import actors
from shoal.sides.opponents import PAST, FrozenPolicies, against
from shoal.sides.past_selves import against_past
from shoal.sides.reward_normalisation import normalise_rewards
from shoal.sides.sides import MakeOne, divided, narrowed
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.manifest import identity
from shoal.storage.zoo import located, shown
from shoal.training import checks, feed, hosts, pretraining, sharding
from shoal.training.crossplay import first_side, past_sides
from shoal.training.evaluation import BEST_FOLDER, workers_of
from shoal.training.hosted import host_trajectory_shape
from shoal.training.settings import CHANGEABLE, Settings
from shoal.trust.run_file import described_run
from shoal.types import Algorithm, AnyEnvironment, Decision, Environment, EnvSpec, Metrics, PyTree, Scale

OPPONENTS = "opponents"
"""The folder in a run folder that holds a copy of the run that its opponents come from."""


class SavedOpponents(NamedTuple):
    """Frozen policies and the configuration of their run; other processes unpickle it."""

    algorithm: str
    config: Any
    settings: Settings
    policies: PyTree
    """Leaves [K, ...], in host memory."""
    opponents: "SavedOpponents | None"
    """Those of their own run."""

    def first(self) -> "SavedOpponents":
        """The first policy alone, which plays where there is one environment."""
        return self._replace(
            policies=jax.tree.map(lambda x: x[:1], self.policies),
            opponents=None if self.opponents is None else self.opponents.first(),
        )

    def shared(self, crew: hosts.Crew) -> "SavedOpponents":
        """With the policies of the process that leads; all processes of the run call this at once."""
        theirs = None if self.opponents is None else self.opponents.shared(crew)
        return self._replace(policies=crew.share(self.policies), opponents=theirs)

    def frozen_policies(self, spec: EnvSpec) -> FrozenPolicies:
        """The policies with the algorithm that acts by them."""
        return FrozenPolicies(
            acting_algorithm(self.algorithm, spec, self.config, self.settings, self.opponents), self.policies
        )


class Built(NamedTuple):
    """What a run trains with; nothing is compiled."""

    env: AnyEnvironment
    """The wrapped environment."""
    config: Any
    """The algorithm's ``Config``, after its decision."""
    algorithm: Algorithm
    layout: sharding.Layout
    """Seeds and environments over devices."""
    make: Callable[[Any], Algorithm]
    """``Config`` -> the algorithm for the same sizes; in other processes (it can be pickled), or with traced values."""
    num_updates: int
    """Updates that schedules span: those of the run without rollouts that only fill replay buffers."""
    decision: Decision | None = None
    """The algorithm's decision before training, such as which agents share networks."""


def build(
    algorithm: str,
    env: AnyEnvironment,
    config: Any,
    settings: Settings,
    *,
    opponents: "SavedOpponents | None" = None,
    devices: int | None = None,
) -> Built:
    """Check a configuration, and make its algorithm; an algorithm that needs experience for that collects it.

    Args:
        algorithm: the algorithm's name.
        env: the wrapped environment (:func:`wrapped_environment`).
        config: the algorithm's.
        settings: the run's.
        opponents: the run's copy of its opponents; None loads those that ``settings`` name.
        devices: their number if ``settings.devices`` is None; None for a new run, which may use all.

    Raises:
        InputError: a setting, the configuration or the environment is invalid.
    """
    if hosts.crew():
        check_hosts(algorithm, env, config, settings)
    layout, scale = _layout(env, settings, devices)
    if opponents is not None and devices is None and (crew := hosts.crew()):
        opponents = opponents.shared(crew)  # a new run, whose copy only the process that leads has read
    module, workers = algorithms.get(algorithm), workers_of(env, settings)
    _prepares(algorithm, env, config, settings, scale)
    trained = with_starts(env, settings.num_starts)
    decision = pretraining.decide(module, trained, config, scale, settings.seed, workers)
    config = decision.config if decision else config
    made = partial(_built, algorithm, env, config, settings, opponents)
    return _on_fitting_devices(made, settings, layout, scale, devices)._replace(decision=decision)


def check_build(
    algorithm: str,
    env: AnyEnvironment,
    config: Any,
    settings: Settings,
    *,
    opponents: "SavedOpponents | None" = None,
    devices: int | None = None,
) -> Built | None:
    """What a run trains with, without collecting experience: None if the algorithm decides by it, for a check.

    Raises:
        InputError: a setting, the configuration or the environment is invalid.
    """
    layout, scale = _layout(env, settings, devices)
    if _prepares(algorithm, env, config, settings, scale):
        return None
    made = partial(_built, algorithm, env, config, settings, opponents)
    return _on_fitting_devices(made, settings, layout, scale, devices)


def _prepares(algorithm: str, env: AnyEnvironment, config: Any, settings: Settings, scale: Scale) -> bool:
    """Whether the algorithm collects experience before training.

    Raises:
        InputError: it would, of all agents, where frozen policies play some of them; or an option is out of range, or
            past selves cannot play.
    """
    module, opponents = algorithms.get(algorithm), settings.opponent_options.opponents
    if pretraining.preparation(module, env.spec, config, scale) is None:
        return False
    if opponents not in (None, PAST):
        decided = " and ".join(getattr(module, "DECIDED", ()))
        raise InputError(
            f"{algorithm} collects experience of all agents before training, and opponents {opponents!r} play some of "
            f"them: {f'set {decided}, or ' if decided else ''}leave out opponents."
        )
    if opponents == PAST:  # here too, since _built comes after the experience
        past_sides(env.spec, settings.opponent_options.side, config)
        _check_past(settings, _together(env, settings, scale._replace(num_envs=settings.num_envs)))
    return True


def update_metrics(built: Built, settings: Settings) -> list[str]:
    """The names of the metrics of an update, which is traced; nothing is compiled."""
    algorithm, num_envs = built.algorithm, built.layout.num_envs
    newest = host_trajectory_shape(built.env, algorithm, num_envs, settings)
    source = feed.make_feed(algorithm.replay, newest, num_envs, 1)

    def update(key: PRNGKeyArray, newest: PyTree) -> Metrics:
        return algorithm.update(algorithm.init(key), source.take(source.init(), newest, key), key)[1]

    return list(jax.eval_shape(update, jax.random.key(0), newest))


def _on_fitting_devices(
    built: Callable[[sharding.Layout, Scale], Built],
    settings: Settings,
    layout: sharding.Layout,
    scale: Scale,
    devices: int | None,
) -> Built:
    """What ``built`` makes; where nobody chose the number of devices, on the most on which minibatches are equal.

    Raises:
        IndivisibleError: there is no such number.
    """
    shards, seeds = layout.mesh.shape[DEVICES], layout.mesh.shape[sharding.SEED_SHARDS]
    if settings.devices is None and devices is None and hosts.crew() is None:
        for count in (n for n in range(shards, 1, -1) if shards % n == 0):
            try:
                return built(layout, scale)
            except IndivisibleError:
                fewer = max(n for n in range(1, count) if shards % n == 0)
                layout = sharding.plan_layout(settings.seeds, settings.num_envs, seeds * fewer)
                scale = scale._replace(num_envs=layout.num_envs)
    return built(layout, scale)


def _built(
    name: str,
    env: AnyEnvironment,
    config: Any,
    settings: Settings,
    opponents: "SavedOpponents | None",
    layout: sharding.Layout,
    scale: Scale,
) -> Built:
    make = partial(make_algorithm, name, env.spec, settings=settings, scale=scale, opponents=opponents)
    algorithm = make(config)
    feed.check_batches(algorithm.replay, layout.mesh.shape[DEVICES])
    if settings.opponent_options.opponents == PAST:
        _check_past(settings, _together(env, settings, scale))
    # Only the algorithm knows how much its replay buffers must hold. Its schedules begin with its first update.
    waiting = feed.updates_before_learning(algorithm.replay, settings.num_envs, settings.rollout_length)
    if waiting:
        scale = scale._replace(num_updates=max(1, scale.num_updates - waiting))
        make = partial(make, scale=scale)
        algorithm = make(config)
    if algorithm.stochastic and isinstance(env, Environment):
        checks.check_evaluations(env, settings, modes=2)  # greedy and sampled
    if algorithms.own(name):
        _check_acting(name, env, config, settings, opponents)
    return Built(env, config, algorithm, layout, make, scale.num_updates)


def _check_acting(
    name: str, env: AnyEnvironment, config: Any, settings: Settings, opponents: "SavedOpponents | None"
) -> None:
    """Refuse an algorithm that cannot be made for acting, which would be noticed after training.

    Raises:
        InputError: it is refused.
    """
    try:
        acting_algorithm(name, env.spec, config, settings, opponents)
    except InputError as error:
        raise InputError(
            f"{name} can be trained but not act, for which modules without make_policy are made for one environment "
            f"with one minibatch: {error}"
        ) from None


def _layout(env: AnyEnvironment, settings: Settings, devices: int | None) -> tuple[sharding.Layout, Scale]:
    """The layout over devices and sizes on each of them, after the checks of the environment and its evaluations."""
    devices = settings.devices or devices
    if settings.workers == "ray":
        if isinstance(env, Environment):
            raise InputError(f"{env.spec.name} is compiled with the update, so it cannot use Ray workers.")
        devices = 1  # the actors have the cores
    layout = sharding.plan_layout(settings.seeds, settings.num_envs, devices)
    if isinstance(env, Environment):
        registry.validate(env)
        checks.check_evaluations(env, settings)
    else:
        registry.check_spec(env.spec)
    return layout, Scale(layout.num_envs, settings.rollout_length, settings.schedule_updates)


def _together(env: AnyEnvironment, settings: Settings, scale: Scale) -> int:
    """Number of environments of one seed for which the policies act at once: those of a device, of a part that worker
    processes step while the policies act for another, or of a Ray actor."""
    if isinstance(env, Environment):
        return scale.num_envs
    parallelism = Parallelism(settings.seeds, settings.num_envs, settings.num_workers)
    return settings.num_envs // (actors(parallelism) if settings.workers == "ray" else parallelism.parts)


def _check_past(settings: Settings, together: int) -> None:
    """Check that each past self plays either side, where policies act for ``together`` environments at once.

    Raises:
        InputError: too few of them are for past selves.
    """
    share, window = settings.opponent_options.past_share, settings.opponent_options.past_window
    held = round(share * together)
    if held < 2 * window:
        enough = math.ceil(2 * window / share) * (settings.num_envs // together)
        raise InputError(
            f"Past selves play in {held} of {together} environments in which the policies act at once, and past_window "
            f"{window} needs at least {2 * window}: raise num_envs to {enough} or past_share, or lower past_window."
        )


def check_hosts(algorithm: str, env: AnyEnvironment, config: Any, settings: Settings) -> None:
    """Check that a run can be cut over the devices of several hosts (``--hosts``).

    Raises:
        InputError: it cannot.
    """
    if not isinstance(env, Environment):
        raise InputError(
            f"{env.spec.name} is stepped on the host, and --hosts is for environments that are compiled with the "
            f"update; --workers ray steps it on several hosts."
        )
    if settings.workers == "ray":
        raise InputError(f"{env.spec.name} is compiled with the update, so it cannot use Ray workers.")
    if settings.init_from:
        raise InputError("--hosts cannot start from another run (init_from).")
    scale = Scale(settings.num_envs, settings.rollout_length, settings.schedule_updates)
    if pretraining.preparation(algorithms.get(algorithm), env.spec, config, scale) is not None:
        raise InputError(f"{algorithm} collects experience before training, which --hosts cannot do.")


def wrapped_environment(built: AnyEnvironment, settings: Settings) -> AnyEnvironment:
    """A built environment with the wrappers of training. Where frozen policies play a side, the other makes the score.

    Raises:
        InputError: a wrapper or the side does not fit the environment.
    """
    env, opponent_options = wrap(built, settings.wrapping), settings.opponent_options
    if opponent_options.opponents in (None, PAST):
        return env
    return changed(env, partial(scored, agents=first_side(env.spec, opponent_options.side)))


def make_algorithm(
    name: str,
    spec: EnvSpec,
    config: Any,
    settings: Settings,
    scale: Scale,
    opponents: SavedOpponents | None = None,
) -> Algorithm:
    """The algorithm with the reward normalisation and the opponents that ``settings`` have, for training.

    Args:
        name: the algorithm's.
        spec: the wrapped environment's.
        config: the algorithm's.
        settings: the run's.
        scale: sizes of the run.
        opponents: the run's copy of its opponents; None loads those that ``settings`` name.

    Raises:
        InputError: an option is invalid, or the opponents cannot play.

    Where sides compete, an algorithm that learns from more than an agent's own rewards (``Algorithm.learns_from``) is
    made for each side separately, unless ``settings.separate_sides`` is False.
    """

    def one(module: Any, spec: EnvSpec, config: Any) -> Algorithm:
        return _returned(module.make(spec, config, scale), module, spec)

    return _combined(name, spec, config, settings, one, opponents, scale)


def _returned(made: Any, module: Any, spec: EnvSpec, function: str = "make") -> Algorithm:
    """The algorithm that a function of an algorithm's module has returned; one of the user's own, with checks of what
    its functions return when they are traced."""
    algorithm, name = algorithms.returned(made, module, function), module.__name__
    return algorithm if name.startswith("shoal.") else results.checked(algorithm, spec, name)


def _combined(
    name: str,
    spec: EnvSpec,
    config: Any,
    settings: Settings,
    one: MakeOne,
    opponents: SavedOpponents | None,
    scale: Scale | None,
) -> Algorithm:
    """:func:`make_algorithm` from algorithms that ``one`` makes; ``scale`` is None where past selves do not play."""
    opponent_options = settings.opponent_options
    if opponent_options.opponents is None:
        return _normalised(name, spec, config, settings, one)
    if opponent_options.opponents == PAST:
        dead = [value for flag, value in flags_of(config).items() if flag.endswith("dead_value") and value != "team"]
        if dead:
            raise InputError(
                f"dead_value {dead[0]!r} trains values at dead agents, and past selves' agents are shown as "
                "dead ones: with opponents 'past' leave it at 'team'."
            )
        side, window = past_sides(spec, opponent_options.side, config)[0], opponent_options.past_window
        algorithm, share = _normalised(name, spec, config, settings, one), opponent_options.past_share
        if scale is None:
            return against_past(algorithm, spec, side, window, 1, share, False)
        waiting = settings.schedule_updates - scale.num_updates  # rollouts that only fill replay buffers
        every = opponent_options.every(settings.num_updates - waiting)
        return against_past(algorithm, spec, side, window, every, share, True)
    side = first_side(spec, opponent_options.side)
    opponents = opponents or opponents_in(opponent_options.opponents, spec, wrapping=settings.wrapping)
    if scale is not None:
        _check_learned(opponent_options.opponents, opponents.settings, spec, side)
    algorithm = _normalised(name, narrowed(spec, side), config, settings, one)
    return against(algorithm, spec, side, opponents.frozen_policies(spec))


def _check_learned(name: str, theirs: Settings, spec: EnvSpec, side: tuple[int, ...]) -> None:
    """Refuse opponents that would play agents which their own run did not train."""
    if theirs.opponent_options.opponents in (None, PAST):
        return
    learned = first_side(spec, theirs.opponent_options.side)
    foreign = [spec.agents[i] for i in range(spec.num_agents) if i not in (*side, *learned)]
    if foreign:
        trained = ", ".join(spec.agents[i] for i in learned)
        raise InputError(
            f"{name} trained only {trained}, so it cannot play {', '.join(foreign)}: choose the agents that "
            "learn with side, or take a run that trained the others."
        )


def separate_teams(
    name: str, spec: EnvSpec, config: Any, settings: Settings, algorithm: Algorithm
) -> list[tuple[int, ...]]:
    """The teams for each of which an algorithm is made separately; one team where it is made for all agents.

    Args:
        name: the algorithm's.
        spec: of the agents that learn.
        config: the algorithm's.
        settings: the run's.
        algorithm: made for all agents of ``spec``.
    """
    everybody, past = [tuple(range(spec.num_agents))], settings.opponent_options.opponents == PAST
    of_team = algorithm.learns_from == "team" or bool(algorithm.unequal_rewards)
    if not _may_be_divided(name, spec, settings):
        return everybody
    if not of_team and (algorithm.learns_from == "own" or not past):
        return everybody
    sides = past_sides(spec, settings.opponent_options.side, config) if past else everybody
    parts = [tuple(i for i in side if i in team) for side in sides for team in spec.competing]
    return [team for team in parts if team]


def _may_be_divided(name: str, spec: EnvSpec, settings: Settings) -> bool:
    """Whether sides compete that one algorithm would train."""
    several = len(spec.competing) > 1 or settings.opponent_options.opponents == PAST
    return several and "+" not in name and not spec.shared_reward and settings.separate_sides


def told_of_teams(name: str, spec: EnvSpec, config: Any, settings: Settings) -> list[str]:
    """A line to print when a run starts: which agents are trained as teams of their own; empty for one team."""
    if not _may_be_divided(name, spec, settings) or settings.opponent_options.opponents not in (None, PAST):
        return []
    algorithm = _acting_by(settings)(algorithms.get(name), spec, config)
    teams = separate_teams(name, spec, config, settings, algorithm)
    shown = "; ".join(f"side {i}: {checks.names_of_agents(spec, who)}" for i, who in enumerate(teams, 1))
    return [f"{name} trains competing sides separately, each as a team ({shown})."] if len(teams) > 1 else []


def _for_teams(name: str, spec: EnvSpec, config: Any, settings: Settings, one: MakeOne) -> Algorithm:
    module = algorithms.get(name)
    if "+" in name:
        return module.make_each(spec, config, one)
    algorithm = one(module, spec, config)
    teams = separate_teams(name, spec, config, settings, algorithm)
    return algorithm if len(teams) == 1 else divided(name, module, spec, config, one, teams)


def _normalised(name: str, spec: EnvSpec, config: Any, settings: Settings, one: MakeOne) -> Algorithm:
    algorithm = _for_teams(name, spec, config, settings, one)
    if settings.wrapping.blind and algorithm.acts_on == "state":
        chosen = any(flag.endswith("critic_input") for flag in flags_of(config))
        how = "set critic_input to local" if chosen else "choose an algorithm that acts on observations"
        raise InputError(f"{name} acts on the global state, which blind does not hide: {how}.")
    if not settings.normalise_rewards:
        return algorithm
    gammas = [value for flag, value in flags_of(config).items() if re.fullmatch(r"(side\d+_)?gamma", flag)]
    if not gammas:
        raise InputError(f"normalise_rewards divides by the discounted return, and {name} has no discount gamma.")
    return normalise_rewards(algorithm, spec, max(gammas), settings.reward_clip)  # the largest of all sides


def acting_algorithm(
    name: str, spec: EnvSpec, config: Any, settings: Settings, opponents: SavedOpponents | None = None
) -> Algorithm:
    """The algorithm for acting only, without optimiser and critic: its learner has only a policy."""
    return _combined(name, spec, config, settings, _acting_by(settings), opponents, None)


def with_critic(
    name: str, spec: EnvSpec, config: Any, settings: Settings, opponents: SavedOpponents | None = None
) -> Algorithm:
    """The whole algorithm for acting, whose ``inspect`` tells values too if the learner has its critic."""
    return _combined(name, spec, config, settings, _whole_by(settings), opponents, None)


def _acting_by(settings: Settings) -> MakeOne:
    """``make_policy`` of an algorithm's module, or the whole algorithm where a module of the user's own has none.

    Policies are computed for all agents, also where they take turns: who deploys them may not say which actions of
    others are legal.
    """
    whole = _whole_by(settings)

    def one(module: Any, spec: EnvSpec, config: Any) -> Algorithm:
        spec = replace(spec, turns=False)
        if not hasattr(module, "make_policy"):
            return whole(module, spec, config)
        return _returned(module.make_policy(spec, config), module, spec, "make_policy")

    return one


def _whole_by(settings: Settings) -> MakeOne:
    """``make`` of an algorithm's module; one minibatch, so that no batch size needs to divide, and no early stop, which
    is refused for a single gradient step."""
    scale = Scale(1, settings.rollout_length, 1)

    def one(module: Any, spec: EnvSpec, config: Any) -> Algorithm:
        return _returned(module.make(spec, override(config, {"minibatches": 1, "kl_stop": None}), scale), module, spec)

    return one


def saved_policy(folder: Path, algorithm: Any, seeds: int, run: Mapping[str, Any], best: bool = False) -> PyTree:
    """The newest intact ``Learner.policy`` of a run folder, with a leading seed axis.

    Args:
        folder: the run's.
        algorithm: the run's.
        seeds: number of seeds of the run.
        run: the run's configuration (:func:`shoal.storage.manifest.identity`).
        best: each seed's best policy instead of its last.

    Raises:
        CheckpointError: there is none, or it was trained under another configuration.
    """
    keys = jax.random.split(jax.random.key(0), seeds)
    template = jax.eval_shape(jax.vmap(algorithm.init), keys).policy
    where = folder / (BEST_FOLDER if best else "policy")
    if not where.exists():
        raise CheckpointError(
            f"{shown(folder)} has no best policy; train with --eval-every to keep it."
            if best
            else f"{folder} has no trained policy yet."
        )
    return Checkpoints(where, run=run).restore(template)[0]


def opponents_of(
    folder: Path, settings: Settings, spec: EnvSpec, trust: bool = False, trained: bool = False
) -> SavedOpponents | None:
    """The frozen opponents of a run: the copy in its folder, or those that its settings name before there is one.

    Args:
        folder: the run's.
        settings: the run's.
        spec: its wrapped environment's.
        trust: see :func:`opponents_in`.
        trained: the run has begun, so that it must have a copy of a run folder.

    Raises:
        InputError: see :func:`opponents_in`.
        CheckpointError: ``trained``, and the copy is missing.
    """
    name = settings.opponent_options.opponents
    if name is None or name == PAST:
        return None
    copy = folder / OPPONENTS
    if (
        trained and not copy.is_dir() and folder_of_opponents(name)
    ):  # a run that names itself would be opened without end
        raise CheckpointError(f"{folder} lacks {OPPONENTS}/, the copy of the policies that it was trained against.")
    return opponents_in(str(copy) if copy.is_dir() else name, spec, trust, settings.wrapping)


def folder_of_opponents(name: str) -> Path | None:
    """The run folder that ``name`` means; None if there is none, and for an algorithm that does not learn."""
    return None if name in algorithms.SCRIPTED or not (folder := located(name)).is_dir() else folder


def opponents_in(name: str, spec: EnvSpec, trust: bool = False, wrapping: Wrapping | None = None) -> SavedOpponents:
    """The policies of a run folder, or of an algorithm that does not learn, as opponents.

    Args:
        name: a run folder, or the name of an algorithm that does not learn, which is never a folder.
        spec: the environment that they play in.
        wrapping: the wrappers of that environment.
        trust: import an algorithm ``module:make`` even if the folder is not of your own training.

    Raises:
        InputError: there is no such folder or algorithm, or its policies are for another environment.
        CheckpointError: no saved policy is intact.
    """
    if (folder := folder_of_opponents(name)) is None:
        if not algorithms.known(name) and ":" not in name:
            raise InputError(
                f"opponents {name!r} is neither a run folder, nor 'past', nor the name of an algorithm or of a module."
            )
        config, settings = algorithms.get(name).Config(), Settings()
        learner = acting_algorithm(name, spec, config, settings).init(jax.random.key(0))
        return SavedOpponents(
            name, config, settings, jax.device_get(jax.tree.map(lambda x: x[None], learner.policy)), None
        )
    run = described_run(folder, trust)
    if wrapping is not None:
        ours, their = vars(wrapping.observing), vars(run.settings.wrapping.observing)
        for key in (key for key in ours if ours[key] != their[key] and run.spec.name == spec.name):
            raise InputError(
                f"{name} was trained with {key} {their[key]} and this run has {ours[key]}, so its policies cannot be "
                f"opponents here; give the same wrappers."
            )
    here, there = games_to_json(spec, run.spec)
    if here != there:
        key = next(key for key in here if here[key] != there[key])
        if run.spec.name != spec.name:
            raise InputError(
                f"{name} was trained in {run.spec.name}, so its policies cannot be opponents in {spec.name}."
            )
        options = " ".join(f"{option}={value}" for option, value in run.env.items()) or "no options"
        raise InputError(
            f"The policies of {name} cannot be opponents in {spec.name} as it is configured here: "
            f"{SPEC_WORDS.get(key, key)} differ, {shortened(there[key])} there and {shortened(here[key])} here. Their "
            f"run has the environment with {options}; give the same options and wrappers."
        )
    theirs = opponents_of(folder, run.settings, run.spec, trust, trained=True)
    algorithm = acting_algorithm(run.algorithm, run.spec, run.config, run.settings, theirs)
    policies = saved_policy(folder, algorithm, run.settings.seeds, identity(run.as_json(), CHANGEABLE))
    return SavedOpponents(run.algorithm, run.config, run.settings, jax.device_get(policies), theirs)
