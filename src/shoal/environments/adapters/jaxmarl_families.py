"""Properties of JaxMARL's environments beyond their common interface."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from shoal.errors import InputError, unknown
from shoal.types import Scene


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
