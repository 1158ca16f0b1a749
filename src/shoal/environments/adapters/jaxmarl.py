"""``jaxmarl/…``: environments of JaxMARL (Rutherford et al. 2024) on the device, stepped without its auto-reset."""

import contextlib
import io
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.environments.adapters.jaxmarl_families import FAMILIES, Family, arguments_of
from shoal.environments.options import check_number
from shoal.environments.rivals import rivals_of
from shoal.errors import InputError, told, unknown
from shoal.extras import install, lacking
from shoal.game import own_actions
from shoal.spec import Part
from shoal.types import Box, Discrete, Environment, EnvSpec, Step

ALIASES = {"smax": "HeuristicEnemySMAX", "humanoid_9x8": "humanoid_9|8"}
"""Alternative names of environments: the usual SMAX, and one without a shell's special character."""


def make(task: str, *, shaping: float = 0.0, **options: Any) -> Environment:
    """An environment of JaxMARL: ``jaxmarl/ENV`` or ``jaxmarl/ENV/MAP``, with JaxMARL's names.

    For example ``jaxmarl/smax/2s3z`` (``HeuristicEnemySMAX``), ``jaxmarl/hanabi``,
    ``jaxmarl/overcooked_v2/cramped_room``, ``jaxmarl/ant_4x2``, ``jaxmarl/MPE_simple_spread_v3``. Agents have the order
    of ``env.agents``; narrower observations and actions are padded. PRNG keys are passed to JaxMARL's functions
    unchanged.

    JaxMARL's ``done`` is separated into terminations (victory, defeat, a fall) and time limits: 101 steps in SMAX and
    26 in MPE (JaxMARL compares before it counts), 400 in Overcooked, 1000 in MABrax, none in Hanabi. In SMAX a dead
    ally's observation is zero, its only legal action is stop, and the team's reward goes on. Its metrics are ``won``
    (all enemies are dead and an ally is not: when JaxMARL pays ``won_battle_bonus``), ``dead_allies`` and
    ``dead_enemies``; if both armies are played, ``won`` is the allies' victory and ``lost`` the enemies'.

    SMAX is that of JaxMARL 0.2 and newer: cooldowns and last targets are observed as numbers from 0 to 1, and dead
    units neither move nor block others. JaxMARL deprecates ``overcooked`` in favour of ``overcooked_v2``, and MABrax
    because Brax is deprecated.

    The state is ``world_state`` in SMAX and the whole observation of Brax in MABrax, else the concatenation of all
    observations.

    Args:
        task: the name without ``jaxmarl/``.
        shaping: weight of Overcooked's shaped rewards (ingredients, plates and soups picked up), 0 for none.
        options: keyword arguments of ``jaxmarl.make``, for example ``num_agents=3`` in Hanabi, ``max_steps`` in SMAX,
            MPE and Overcooked, ``episode_length`` in MABrax.

    Raises:
        InputError: the environment or map is unknown, an option is invalid, JaxMARL (or Brax) is not installed or
            JaxMARL is older than 0.2, or the agents mix discrete and continuous actions.
    """
    identity, _, chosen = task.partition("/")
    identity = ALIASES.get(identity, identity)
    if identity not in FAMILIES:
        raise unknown("JaxMARL environment", identity, [*FAMILIES, *ALIASES])
    family = FAMILIES[identity]
    shaping = check_number("shaping", shaping, 0.0, 1e6)
    if shaping and not family.shaped:
        raise InputError(f"jaxmarl/{task} has no shaped rewards, so shaping must be 0.")
    with _quiet():
        try:
            import jaxmarl
        except ImportError as error:
            raise InputError(lacking(f"jaxmarl/{task}", "jaxmarl", error, install("jaxmarl"))) from error
        version = getattr(jaxmarl, "__version__", "0")
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < (0, 2):
            raise InputError(f"jaxmarl/{task} needs JaxMARL 0.2 or newer, not {version}: {install('jaxmarl')}.")
        arguments = arguments_of(identity, chosen) | options
        try:
            env = jaxmarl.make(identity, **arguments)
        except ImportError as error:
            if "brax" in str(error) and not isinstance(error, ModuleNotFoundError):  # JaxMARL's own message
                raise InputError(f"jaxmarl/{task} needs brax: {install('mabrax')}.") from error
            raise InputError(lacking(f"jaxmarl/{task}", "brax", error, install("mabrax"))) from error
        except (InputError, MemoryError):
            raise
        except Exception as error:
            raise InputError(f"jaxmarl/{task} cannot be built with these options: {told(error)}") from error
    return environment(f"jaxmarl/{task}", env, family, shaping)


def environment(name: str, env: Any, family: Family, shaping: float = 0.0) -> Environment:
    """A JaxMARL environment as Shoal's.

    Args:
        name: name of the environment.
        env: JaxMARL's environment.
        family: its properties beyond JaxMARL's interface.
        shaping: weight of the shaped rewards in ``info["shaped_reward"]``.
    """
    spec = _describe(name, env, family, shaping)
    agents = spec.agents
    own = jnp.asarray(own_actions(spec))
    masked = family.legal is not None and isinstance(spec.action, Discrete)

    def make_step(
        seen: Mapping[str, Array],
        state: Any,
        alive: Bool[Array, " N"],
        reward: Float[Array, " N"],
        over: Bool[Array, ""],
        last: Bool[Array, ""],
        first: bool,
    ) -> Step:
        rows = [seen[agent].reshape(-1).astype(jnp.float32) for agent in agents]
        legal = own
        if masked:
            assert family.legal is not None
            allowed = family.legal(env, state)
            legal = _stacked([allowed[agent].astype(bool) for agent in agents], spec.action.width)
        whole = jnp.concatenate(rows) if family.world is None else family.world(seen, state).astype(jnp.float32)
        return Step(
            obs=_stacked(rows, spec.obs_dim),
            state=whole,
            legal=legal,
            alive=alive,
            reward=reward,
            discount=jnp.broadcast_to(jnp.where(over, 0.0, 1.0), (len(agents),)),
            first=jnp.asarray(first),
            last=last,
        )

    def reset(key: PRNGKeyArray) -> tuple[Any, Step]:
        seen, state = env.reset(key)
        everyone, nothing, no = jnp.ones(len(agents), bool), jnp.zeros(len(agents)), jnp.asarray(False)
        # Some states hold Python numbers at first.
        return jax.tree.map(jnp.asarray, state), make_step(seen, state, everyone, nothing, no, no, first=True)

    def step(key: PRNGKeyArray, state: Any, action: Array) -> tuple[Any, Step]:
        moves = zip(agents, action, spec.action_dims, strict=True)
        chosen = {agent: move if move.ndim == 0 else move[:width] for agent, move, width in moves}
        seen, state, earned, done, info = env.step_env(key, state, chosen)
        reward = jnp.stack([earned[agent] for agent in agents]).astype(jnp.float32)
        if shaping:
            reward += shaping * jnp.stack([info["shaped_reward"][agent] for agent in agents])
        alive = jnp.ones(len(agents), bool)
        if family.mortal:
            alive = ~jnp.stack([done[agent] for agent in agents])
        last = done["__all__"]
        outcome = make_step(seen, state, alive, reward, family.terminated(env, state, last), last, first=False)
        metrics = [jnp.asarray(metric(env, state), jnp.float32) for metric in family.metrics.values()]
        return state, outcome._replace(metrics=jnp.stack(metrics)) if metrics else outcome

    render = None if family.draw is None else lambda state: family.draw(env, state)  # pyright: ignore[reportOptionalCall]
    return Environment(spec, reset, step, render)


def _describe(name: str, env: Any, family: Family, shaping: float) -> EnvSpec:
    agents = tuple(env.agents)
    seen, state = jax.eval_shape(env.reset, jax.random.key(0))
    widths = tuple(int(np.prod(seen[agent].shape)) for agent in agents)
    whole = sum(widths) if family.world is None else jax.eval_shape(family.world, seen, state).shape[0]
    action, action_dims = _actions(name, [env.action_space(agent) for agent in agents])
    known = family.kinds(env) if family.kinds else (0,) * len(agents)
    named = [agent.rstrip("0123456789") for agent in agents]
    kinds = list(zip(named, known, widths, action_dims, strict=True))
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    shapes = [seen[agent].shape for agent in agents]
    shaped = any(len(shape) > 1 for shape in shapes)  # layers of a grid, as in Overcooked; they are not of colours
    shared = len(agents) == 1 or (family.shared_reward and not shaping)
    return EnvSpec(
        name=name,
        agents=agents,
        obs_dims=widths,
        state_dim=int(whole),
        action=action,
        action_dims=action_dims,
        roles=tuple(numbers[kind] for kind in kinds),
        horizon=family.horizon(env),
        shared_reward=shared,
        score="mean" if family.shared_reward else "sum",
        metrics=tuple(family.metrics),
        novel=() if family.novel is None else family.novel(env),
        parts=tuple((Part(shape),) for shape in shapes) if shaped else None,
        rivals=rivals_of(agents),
    )


def _actions(name: str, spaces: list[Any]) -> tuple[Discrete | Box, tuple[int, ...]]:
    """The padded action space, and each agent's own number of actions or dimensions."""
    discrete = [hasattr(space, "n") for space in spaces]
    if all(discrete):
        widths = tuple(int(space.n) for space in spaces)
        return Discrete(max(widths)), widths
    if any(discrete):
        raise InputError(f"{name} mixes agents with discrete and with continuous actions, which is not supported.")
    widths = tuple(int(np.prod(space.shape)) for space in spaces)
    lows = {float(low) for space in spaces for low in np.ravel(space.low)}
    highs = {float(high) for space in spaces for high in np.ravel(space.high)}
    if len(lows) != 1 or len(highs) != 1:
        raise InputError(f"{name} bounds actions by several numbers ({lows} to {highs}); Shoal needs one for all.")
    return Box(max(widths), lows.pop(), highs.pop()), widths


def _stacked(rows: list[Array], width: int) -> Array:
    """Rows of different lengths as one array [N, width], padded with zeros."""
    return jnp.stack([row if row.size == width else jnp.pad(row, (0, width - row.size)) for row in rows])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress JaxMARL's output on import and its warnings about old environments.

    The import resets ``sys.stdout`` and ``sys.stderr`` to the process's streams, so these are redirected as well.
    """
    out, err = sys.__stdout__, sys.__stderr__
    noise = io.StringIO()
    with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.__stdout__ = sys.__stderr__ = noise  # pyright: ignore[reportConstantRedefinition]
        try:
            yield
        finally:
            sys.__stdout__, sys.__stderr__ = out, err
