"""What must be known of JaxMARL's environments beyond their common interface."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from shoal.errors import InputError, unknown
from shoal.types import Scene


class Family(NamedTuple):
    """One kind of environment."""

    horizon: Callable[[Any], int]
    """env -> the step at which an episode is cut off at the latest."""
    terminated: Callable[[Any, Any, Bool[Array, ""]], Bool[Array, ""]]
    """(env, state, done) -> whether the episode truly ended, rather than was cut off."""
    shared_reward: bool = False
    world: Callable[[Mapping[str, Array], Any], Array] | None = None
    """(observations, state) -> the global state; None: all observations, one after another."""
    legal: Callable[[Any, Any], Mapping[str, Array]] | None = None
    """(env, state) -> each agent's legal actions; None: all."""
    mortal: bool = False
    """``done`` of an agent says that it died, while the team's reward goes on."""
    novel: Callable[[Any], tuple[int, ...]] | None = None
    """env -> the features of an observation that ``world`` does not hold; None: it holds all of them."""
    kinds: Callable[[Any], Sequence[Any]] | None = None
    """env -> a kind of each agent; agents of different kinds have different roles. None: names and spaces tell."""
    shaped: bool = False
    """``info`` holds shaped rewards."""
    draw: Callable[[Any, Any], Scene] | None = None
    """(env, state) -> a picture."""
    metrics: Mapping[str, Callable[[Any, Any], Array]] = MappingProxyType({})
    """The episodes' metrics by name: (env, state) -> the value, should the episode end there."""


def _never(env: Any, state: Any, done: Bool[Array, ""]) -> Bool[Array, ""]:
    return jnp.zeros_like(done)


def _always(env: Any, state: Any, done: Bool[Array, ""]) -> Bool[Array, ""]:
    return done


def _decided(env: Any, state: Any, done: Bool[Array, ""]) -> Bool[Array, ""]:
    """In SMAX: one of the armies is gone."""
    alive = _battle(state).unit_alive
    return ~(alive[: env.num_allies].any() & alive[env.num_allies :].any())


def _dead(env: Any, state: Any) -> tuple[Array, Array]:
    """In SMAX: how many allies and how many enemies are dead."""
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
    """In MABrax: done, and not by the wrapper that counts steps."""
    return done & (state.info["truncation"] == 0)


def _battle(state: Any) -> Any:
    """SMAX's own state: those with an enemy of their own wrap it."""
    return getattr(state, "state", state)


def _relative(env: Any) -> tuple[int, ...]:
    """In SMAX: all that is seen of others but health, cooldown and type, which the state holds of every unit.

    With ``observation_type`` ``conic`` the units seen stand at places that depend on where they are, so that the state
    holds an agent's own features alone.
    """
    own, others = len(env.own_features), env.unit_features
    if env.observation_type != "unit_list":
        return tuple(range(env.obs_size - own))
    held = [name in ("health", "weapon_cooldown") or name.startswith("unit_type") for name in others]
    return tuple(i for i in range(env.obs_size - own) if not held[i % len(others)])


def _unit_types(env: Any) -> list[int]:
    """In SMAX: each agent's type of unit; all alike where types are drawn for every episode."""
    fixed = env.scenario is not None and not env.smacv2_unit_type_generation
    return np.asarray(env.scenario)[: len(env.agents)].tolist() if fixed else [0] * len(env.agents)


def _hanabi_turns(env: Any) -> int:
    """No game of Hanabi lasts longer.

    Plays and discards end with the deck and a last round. Hints cost tokens, of which there are those at the start, one
    for each discard, and one for each finished colour.
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
    kinds=lambda env: range(len(env.agents)),  # as in MA-MuJoCo: no two joints pull the same way
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
    "SMAX": _BATTLE._replace(  # both armies are played, and each is one role
        shared_reward=False,
        kinds=None,
        metrics={"allies_won": _won, "enemies_won": _lost} | {k: v for k, v in _BATTLE.metrics.items() if k != "won"},
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
"""What Shoal knows how to tell ends from time limits in."""


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
