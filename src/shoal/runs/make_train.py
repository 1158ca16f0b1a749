"""Training as pure functions, for loops of the user's own."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from shoal import algorithms
from shoal.bounds import check_bounds, check_value
from shoal.config.resolve import Configured, configured, named_options
from shoal.environments import registry
from shoal.environments.starts import with_starts
from shoal.errors import InputError, shortened
from shoal.options.convert import mapping
from shoal.options.flags import check_names, leaves, override
from shoal.runs.build import build, opponents_of, wrapped_environment
from shoal.system import notices
from shoal.system.forks import check_not_forked
from shoal.training import checks
from shoal.training.evaluation import check_episodes, first_episodes
from shoal.training.program import Stages, TrainState, one_update, stages
from shoal.training.traced import TracedValues, TriedPolicy, with_values
from shoal.types import Algorithm, Environment, EnvSpec, EpisodeStats, Metrics

OF_RUNS = ("seeds", "seed", "devices", "workers", "num_workers", "worker_timeout", "address", "init_from", "rows")
OF_RUNS += ("stop_at", "time_budget", "eval_every", "eval_episodes", "curve_episodes", "checkpoint_seconds", "keep")
OF_RUNS += ("tensorboard",)
"""Settings of runs in folders, which functions do not have."""


class Episodes(NamedTuple):
    """Whole episodes that a policy played."""

    scores: Float[Array, " episodes"]
    """Sum or mean of the returns over agents, by ``EnvSpec.score``."""
    returns: Float[Array, "episodes N"]
    """Undiscounted return of each agent."""
    lengths: Array
    """[episodes] number of steps."""
    metrics: Float[Array, "episodes M"]
    """Values of ``EnvSpec.metrics``; NaN where unknown."""


class Train(NamedTuple):
    """Training of one seed on one device as pure functions: see :func:`make_train`."""

    init: Callable[..., TrainState]
    """(key, hyper-parameters = {}) -> the state before training."""
    update: Callable[[TrainState], tuple[TrainState, tuple[Metrics, EpisodeStats]]]
    """state -> (state after a rollout and an update from it, (the update's metrics, sums over the episodes that ended
    in the rollout)). Until the replay buffer of an off-policy algorithm can be sampled, a call changes no parameter and
    has metrics of 0; ``state.learner.updates`` does not count it."""
    evaluate: Callable[..., Episodes]
    """(state, key, episodes = 32, greedy = True) -> whole episodes of the state's policy; the last two are static."""
    num_updates: int
    """Calls of ``update`` that make ``steps`` environment steps; schedules end with them."""
    env: Environment
    """The environment with its wrappers."""
    config: Any
    """The algorithm's ``Config``."""

    @property
    def spec(self) -> EnvSpec:
        """The environment's spec."""
        return self.env.spec


def make_train(
    algorithm: str | None = None,
    environment: Any = None,
    *,
    env: dict[str, Any] | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    preset: str | Path | None = None,
    trust: bool = False,
    **flags: Any,
) -> Train:
    """Training as pure functions, to be transformed by ``jit``, ``vmap`` and ``scan`` as the caller likes.

    The functions are those of the program that :func:`shoal.train` compiles: ``init(jax.random.key(seed))`` and
    ``num_updates`` calls of ``update`` train the same policy as ``shoal.train(..., seed=seed)`` on one device, up to
    rounding. Called outside of ``jit``, each is compiled by itself. Nothing is written, and no folder is made.

    Floating-point hyper-parameters may be arrays: ``init(key, {"learning_rate": rate})`` keeps them in the state
    (``state.learner.policy.values``), and all functions read them there, so that ``init`` under ``vmap`` over rates
    makes as many learners in one program.

    Args:
        algorithm: as in :func:`shoal.train`.
        environment: as in :func:`shoal.train`; a device environment.
        env: options of the environment's factory.
        config: a configuration file, whose settings that only runs have are not used, or a mapping as such a file has.
        preset: a preset file.
        trust: see :func:`shoal.train`.
        flags: fields of :class:`~shoal.training.settings.Settings` and of the algorithm's ``Config``, except those
            that only runs have (:data:`OF_RUNS`), also in a mapping: seeds are keys, and the loop is the caller's.

    Raises:
        InputError: an argument is invalid, or the environment is stepped by worker processes. ``init`` raises it if a
            hyper-parameter is unknown or not a floating-point number, ``evaluate`` if ``episodes`` is below 1, and both
            if the key is not one PRNG key.
    """
    written = config.get("flags") if isinstance(config, Mapping) else None  # a file may suit runs in folders as well
    named = {*flags, *(written if isinstance(written, Mapping) else ())}
    if wrong := next((name for name in OF_RUNS if name in named), None):
        raise InputError(
            f"{wrong} is a setting of runs in folders, and make_train gives functions of one seed on one device: leave "
            f"out {wrong}."
        )
    found = configured(algorithm, environment, env=env, flags=flags, config=config, preset=preset, trust=trust)
    return _functions(found)


def _functions(found: Configured) -> Train:
    check_not_forked()
    checks.check_rewards(found.values.settings, found.values.config)
    with named_options(found):
        made = registry.make(found.environment, **found.env)
    settings = override(found.values.sized_for(made.spec), {"seeds": 1, "devices": 1})
    settings.check()
    if settings.init_from is not None:
        notices.warn("init_from of the configuration has no effect: init of make_train makes new networks.")
    check_bounds(found.values.config)
    env = wrapped_environment(made, settings)
    if not isinstance(env, Environment):
        raise InputError(
            f"{found.name} is stepped by worker processes, and make_train gives functions that JAX compiles: use "
            f"shoal.train, or choose an environment on the device (shoal list environments)."
        )
    algorithms.check_alone(found.given, env.spec)
    opponents = opponents_of(Path(os.devnull), settings, env.spec, found.trust)
    built = build(found.algorithm, env, found.values.config, settings, opponents=opponents)
    sizes = settings.num_envs, settings.rollout_length

    def make(values: Mapping[str, Any]) -> Algorithm:
        return built.make(override(built.config, values))

    def of(values: TracedValues) -> Stages:
        chosen = with_values(make, values) if values else built.algorithm
        return stages(with_starts(env, settings.num_starts), chosen, *sizes)

    plain = of({})

    def stages_of(state: TrainState) -> Stages:
        policy = state.learner.policy
        return of(policy.values) if isinstance(policy, TriedPolicy) else plain

    # A mesh of one device: random draws that depend on the device are those of a run on one.
    on_device = partial(jax.shard_map, mesh=built.layout.mesh, in_specs=jax.P(), out_specs=jax.P(), check_vma=False)
    plain_init = jax.jit(on_device(plain.init))
    traced_init = jax.jit(on_device(lambda key, values: of(values).init(key, values)))
    update = jax.jit(on_device(lambda state: one_update(stages_of(state))(state)))

    def init(key: PRNGKeyArray, values: Mapping[str, Any] | None = None) -> TrainState:
        _check_key(key, "init")
        return traced_init(key, _arrays(built.config, mapping("values", values))) if values else plain_init(key)

    @partial(jax.jit, static_argnames=("episodes", "greedy"))
    def evaluate(state: TrainState, key: PRNGKeyArray, episodes: int = 32, greedy: bool = True) -> Episodes:
        _check_key(key, "evaluate")
        check_episodes(episodes)
        acting = stages_of(state).algorithm
        learner = state.learner._replace(critic=(), optimiser=(), statistics=())
        play = first_episodes(env, acting.act, acting.initial_carry(episodes), episodes, greedy)
        returns, lengths, metrics = play(learner, key)
        return Episodes(env.spec.scores(returns), returns, lengths, metrics)

    return Train(init, update, evaluate, settings.num_updates, env, built.config)


def _check_key(key: Any, function: str) -> None:
    """Check that a function was given one PRNG key, of either kind that JAX has.

    Raises:
        InputError: it was given something else.
    """
    try:
        jax.eval_shape(jax.random.split, key)
    except (TypeError, ValueError):
        what = f"an array of {key.dtype} of shape {key.shape}" if isinstance(key, jax.Array | np.ndarray) else None
        several = ": map over several by vmap" if what and key.ndim else ""
        raise InputError(
            f"{function} takes one PRNG key, such as jax.random.key(0), not {what or shortened(key)}{several}."
        ) from None


def _arrays(config: Any, values: Mapping[str, Any]) -> TracedValues:
    """Values of hyper-parameters as arrays.

    Raises:
        InputError: one is unknown, not a floating-point number, or out of its bounds; traced values are not compared
            with these.
    """
    check_names(values, config)
    found = {}
    for leaf in leaves(config):
        name = next((name for name in (leaf.name, leaf.plain) if name in values), None)
        if name is None:
            continue
        if not isinstance(leaf.value, float):
            raise InputError(
                f"{name} is {shortened(leaf.value)}, and only floating-point hyper-parameters may be arrays: give it "
                f"to make_train."
            )
        value = values[name]
        try:
            found[name] = jnp.asarray(value, jnp.float32)
        except (TypeError, ValueError):
            raise InputError(f"{name} must be a number, not {shortened(value)}.") from None
        if shape := found[name].shape:
            raise InputError(f"{name} must be one number, not an array of shape {shape}: map over several by vmap.")
        if leaf.bounds is not None and not isinstance(value, Tracer):
            check_value(name, float(value), leaf.bounds)
    return found
