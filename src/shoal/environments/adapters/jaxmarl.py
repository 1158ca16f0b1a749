"""``jaxmarl/…``: environments of JaxMARL (Rutherford et al. 2024) on the device, stepped without its auto-reset."""

import contextlib
import inspect
import io
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.environments.options import check_number, check_steps
from shoal.environments.spec_rules import rivals_of
from shoal.errors import InputError, told, unknown
from shoal.game import own_actions
from shoal.spec import Part
from shoal.system.extras import install, lacking
from shoal.types import Box, Discrete, Environment, EnvSpec, Scene, Step

# Properties of JaxMARL's environments beyond their common interface.


class Family(NamedTuple):
    """Properties of one kind of environment."""

    horizon: Callable[[Any], int]
    """env -> largest number of steps of an episode."""
    terminated: Callable[[Any, Any, Bool[Array, ""]], Bool[Array, ""]]
    """(env, state, done) -> whether the episode terminated, rather than was truncated."""
    shared_reward: bool = False
    world: Callable[[Mapping[str, Array], Any], Array] | None = None
    """(observations, state) -> the global state; None: the concatenation of all observations."""
    legal: Callable[[Any, Any], Mapping[str, Array]] | None = None
    """(env, state) -> each agent's legal actions; None: all are legal."""
    mortal: bool = False
    """``done`` of an agent means that it died, while the team's reward goes on."""
    novel: Callable[[Any], tuple[int, ...]] | None = None
    """env -> ``EnvSpec.novel``; None: the state contains all features."""
    kinds: Callable[[Any], Sequence[Any]] | None = None
    """env -> kind of each agent; different kinds have different roles. None: roles depend on names and spaces only."""
    shaped: bool = False
    """``info`` holds shaped rewards."""
    draw: Callable[[Any, Any], Scene] | None = None
    """(env, state) -> a picture."""
    metrics: Mapping[str, Callable[[Any, Any], Array]] = MappingProxyType({})
    """Metrics of episodes by name: (env, state) -> the value if the episode ends there."""


def _never(env: Any, state: Any, done: Bool[Array, ""]) -> Bool[Array, ""]:
    return jnp.zeros_like(done)


def _always(env: Any, state: Any, done: Bool[Array, ""]) -> Bool[Array, ""]:
    return done


def _decided(env: Any, state: Any, done: Bool[Array, ""]) -> Bool[Array, ""]:
    """In SMAX: all units of an army are dead."""
    alive = _battle(state).unit_alive
    return ~(alive[: env.num_allies].any() & alive[env.num_allies :].any())


def _dead(env: Any, state: Any) -> tuple[Array, Array]:
    """In SMAX: numbers of dead allies and of dead enemies."""
    dead = ~_battle(state).unit_alive
    return dead[: env.num_allies].sum(), dead[env.num_allies :].sum()


def _won(env: Any, state: Any) -> Array:
    """In SMAX: all enemies are dead and an ally is not, which is when JaxMARL pays its bonus; both may die at once."""
    allies, enemies = _dead(env, state)
    return (enemies == env.num_enemies) & (allies < env.num_allies)


def _lost(env: Any, state: Any) -> Array:
    """In SMAX: all allies are dead and an enemy is not."""
    allies, enemies = _dead(env, state)
    return (allies == env.num_allies) & (enemies < env.num_enemies)


def _fallen(env: Any, state: Any, done: Bool[Array, ""]) -> Bool[Array, ""]:
    """In MABrax: done, and not by the time limit."""
    return done & (state.info["truncation"] == 0)


def _battle(state: Any) -> Any:
    """SMAX's own state, which environments with a built-in enemy wrap."""
    return getattr(state, "state", state)


def _relative(env: Any) -> tuple[int, ...]:
    """In SMAX: the features of other units except health, cooldown and type, which the state contains.

    With ``observation_type`` ``conic`` the position of a unit in the observation varies, so that the state contains
    only an agent's own features.
    """
    own, others = len(env.own_features), env.unit_features
    if env.observation_type != "unit_list":
        return tuple(range(env.obs_size - own))
    held = [name in ("health", "weapon_cooldown") or name.startswith("unit_type") for name in others]
    return tuple(i for i in range(env.obs_size - own) if not held[i % len(others)])


def _unit_types(env: Any) -> list[int]:
    """In SMAX: each agent's unit type; 0 for all if types are drawn for every episode."""
    fixed = env.scenario is not None and not env.smacv2_unit_type_generation
    return np.asarray(env.scenario)[: len(env.agents)].tolist() if fixed else [0] * len(env.agents)


def _hanabi_turns(env: Any) -> int:
    """Upper bound on the moves of a game of Hanabi.

    Plays and discards are limited by the deck and a last round. Hints cost tokens: those at the start, one for each
    discard, and one for each completed colour.
    """
    cards = env.deck_size - env.num_agents * env.hand_size + env.num_agents + 1
    return int(2 * cards + env.max_info_tokens + env.num_colors)


def _draw_battle(env: Any, state: Any) -> Scene:
    battle = _battle(state)
    alive = np.flatnonzero(np.asarray(battle.unit_alive))
    kinds = np.asarray(battle.unit_types)[alive]
    health = np.asarray(battle.unit_health)[alive] / np.asarray(env.unit_type_health)[kinds]
    ally = (alive < env.num_allies)[:, None]
    colours = np.where(ally, [[0.2, 0.4, 0.9]], [[0.85, 0.3, 0.25]])
    half = np.array([env.map_width, env.map_height]) / 2
    return Scene(
        centres=np.asarray(battle.unit_positions)[alive] - half,
        radii=np.asarray(env.unit_type_radiuses)[kinds],
        colours=1.0 - health[:, None] * (1.0 - colours),
        hollow=np.zeros(len(alive), bool),
        labels=tuple(env.unit_type_shorthands[kind] for kind in kinds),
        extent=float(half.max()),
        caption=f"{int(ally.sum())} allies against {int((~ally).sum())} enemies",
    )


_BATTLE = Family(
    horizon=lambda env: env.max_steps + 1,
    terminated=_decided,
    shared_reward=True,
    world=lambda seen, state: seen["world_state"],
    legal=lambda env, state: env.get_avail_actions(state),
    mortal=True,
    novel=lambda env: _relative(env),
    kinds=lambda env: _unit_types(env),
    draw=_draw_battle,
    metrics={
        "won": _won,
        "dead_allies": lambda env, state: _dead(env, state)[0],
        "dead_enemies": lambda env, state: _dead(env, state)[1],
    },
)
_PARTICLES = Family(horizon=lambda env: env.max_steps + 1, terminated=_never)
_READ = frozenset(
    {"rad", "moveable", "silent", "collide", "mass", "accel", "max_speed", "u_noise", "c_noise", "damping"}
    | {"contact_force", "contact_margin"}
)
"""What JaxMARL's particle environments read of their ``**kwargs``."""
_KITCHEN = Family(horizon=lambda env: env.max_steps, terminated=_never, shared_reward=True, shaped=True)
_BODY = Family(
    horizon=lambda env: -(-env.episode_length // env.action_repeat),
    terminated=_fallen,
    shared_reward=True,
    world=lambda seen, state: state.obs,
    kinds=lambda env: range(len(env.agents)),  # as in MA-MuJoCo, no two agents are interchangeable
)
_CARDS = Family(
    horizon=_hanabi_turns,
    terminated=_always,
    shared_reward=True,
    legal=lambda env, state: env.get_legal_moves(state),
)

FAMILIES: dict[str, Family] = {
    "HeuristicEnemySMAX": _BATTLE,
    "LearnedPolicyEnemySMAX": _BATTLE,
    "SMAX": _BATTLE._replace(  # agents play both armies; each army is one role
        shared_reward=False,
        kinds=None,
        metrics={"won": _won, "lost": _lost, **_BATTLE.metrics},
    ),
    "hanabi": _CARDS,
    "overcooked": _KITCHEN,
    "overcooked_v2": _KITCHEN,
    **dict.fromkeys(("ant_4x2", "halfcheetah_6x1", "hopper_3x1", "humanoid_9|8", "walker2d_2x3"), _BODY),
    **{
        f"MPE_simple{scenario}": _PARTICLES
        for scenario in (
            "_v3",
            "_adversary_v3",
            "_crypto_v3",
            "_facmac_v1",
            "_facmac_3a_v1",
            "_facmac_6a_v1",
            "_facmac_9a_v1",
            "_push_v3",
            "_reference_v3",
            "_speaker_listener_v4",
            "_spread_v3",
            "_tag_v3",
            "_world_comm_v3",
        )
    },
}
"""The supported environments."""


def arguments_of(identity: str, chosen: str) -> dict[str, Any]:
    """The keyword arguments of ``jaxmarl.make`` that a map or layout stands for.

    Raises:
        InputError: the environment has no maps, or not this one.
    """
    if FAMILIES[identity] is _BODY:
        if chosen:
            raise InputError(f"jaxmarl/{identity} has no maps, so there is no {chosen!r}.")
        return {"auto_reset": False}  # Brax would replace the last observation
    if not chosen:
        return {}
    if identity.endswith("SMAX"):
        from jaxmarl.environments.smax.smax_env import MAP_NAME_TO_SCENARIO

        return {"scenario": _picked("SMAX map", chosen, MAP_NAME_TO_SCENARIO)}
    if identity == "overcooked":
        from jaxmarl.environments.overcooked import overcooked_layouts

        return {"layout": _picked("Overcooked layout", chosen, overcooked_layouts)}
    if identity == "overcooked_v2":
        from jaxmarl.environments.overcooked_v2 import overcooked_v2_layouts

        return {"layout": _picked("Overcooked layout", chosen, overcooked_v2_layouts)}
    raise InputError(f"jaxmarl/{identity} has no maps, so there is no {chosen!r}.")


def _picked(kind: str, chosen: str, known: Mapping[str, Any]) -> Any:
    if chosen not in known:
        raise unknown(kind, chosen, known)
    return known[chosen]


# Environments.


ALIASES = {"smax": "HeuristicEnemySMAX", "humanoid_9x8": "humanoid_9|8"}
"""Alternative names of environments: the usual SMAX, and one without a shell's special character."""


def make(task: str, /, *, shaping: float = 0.0, **options: Any) -> Environment:
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
        shaping: weight of Overcooked's shaped rewards (ingredients, plates and soups picked up), 0 for none. They are
            part of the return; the metric ``sparse_return`` is the score without them.
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
        for limit in ("max_steps", "episode_length"):
            if limit in options:
                check_steps(limit, options[limit])
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
    if family is _PARTICLES:
        _check_particle_options(type(env), options)
    return jaxmarl_environment(f"jaxmarl/{task}", env, family, shaping)


def _check_particle_options(kind: type, options: Mapping[str, Any]) -> None:
    """Refuse options that no constructor of a particle environment reads; JaxMARL ignores them.

    Raises:
        InputError: there is one.
    """
    known = {name for one in kind.__mro__[:-1] for name in inspect.signature(one).parameters} | _READ
    for name in options:
        if name not in known:
            raise unknown("option", name, known - {"kwargs"})


def jaxmarl_environment(name: str, env: Any, family: Family, shaping: float = 0.0) -> Environment:
    """A JaxMARL environment as Shoal's.

    Args:
        name: name of the environment.
        env: JaxMARL's environment.
        family: its properties beyond JaxMARL's interface.
        shaping: weight of the shaped rewards in ``info["shaped_reward"]``. If not 0, the environment's state is
            (JaxMARL's, the sum so far) and ``sparse_return`` is a metric: the score of the episode without them.
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
        outcome = make_step(seen, state, everyone, nothing, no, no, first=True)
        state = jax.tree.map(jnp.asarray, state)  # some hold Python numbers at first
        return ((state, jnp.zeros(())) if shaping else state), outcome

    def step(key: PRNGKeyArray, state: Any, action: Array) -> tuple[Any, Step]:
        state, sparse = state if shaping else (state, jnp.zeros(()))
        moves = zip(agents, action, spec.action_dims, strict=True)
        chosen = {agent: move if move.ndim == 0 else move[:width] for agent, move, width in moves}
        seen, state, earned, done, info = env.step_env(key, state, chosen)
        reward = jnp.stack([earned[agent] for agent in agents]).astype(jnp.float32)
        if shaping:
            sparse += reward.mean() if spec.score == "mean" else reward.sum()
            reward += shaping * jnp.stack([info["shaped_reward"][agent] for agent in agents])
        alive = jnp.ones(len(agents), bool)
        if family.mortal:
            alive = ~jnp.stack([done[agent] for agent in agents])
        last = done["__all__"]
        outcome = make_step(seen, state, alive, reward, family.terminated(env, state, last), last, first=False)
        metrics = [jnp.asarray(metric(env, state), jnp.float32) for metric in family.metrics.values()]
        metrics += [sparse] if shaping else []
        outcome = outcome._replace(metrics=jnp.stack(metrics)) if metrics else outcome
        return ((state, sparse) if shaping else state), outcome

    def draw(state: Any) -> Scene:
        assert family.draw is not None
        return family.draw(env, state[0] if shaping else state)

    render = None if family.draw is None else draw
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
        metrics=(*family.metrics, *(("sparse_return",) if shaping else ())),
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
