"""``skirmish/…``: SMAC's maps on an engine of Shoal's own, on the device and without StarCraft."""

from dataclasses import replace
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from shoal.environments.options import check_choice, check_flag, check_number, check_steps
from shoal.environments.skirmish import drawing, drawn
from shoal.environments.skirmish.battle import Battle, State, multiplayer
from shoal.environments.skirmish.build import Start, battle_environment, begun, names
from shoal.environments.skirmish.maps import LARGEST_GAP, MAPS, Map, check_map, mirrored_axes, starts
from shoal.environments.skirmish.terrain import SIDE
from shoal.errors import InputError, unknown
from shoal.types import Environment, EnvSpec


def make(
    task: str | Map,
    *,
    reward: Literal["positive", "smac", "difference"] = "positive",
    at_limit: Literal["truncate", "terminate"] = "truncate",
    horizon: int | None = None,
    last_actions: bool = False,
    timestep: bool = False,
    weapons: Literal["liberty", "multiplayer"] = "liberty",
    delay_noise: bool = True,
    target_search: Literal["tick", "step"] = "tick",
    provoked_scan: float = 9.0,
    damage: Literal["simultaneous", "sequential"] = "simultaneous",
    start_gap: float | None = None,
    both: bool = False,
) -> Environment:
    """A battle of the team's units against enemies under SMAC's orders (Samvelyan et al. 2019).

    Tasks are SMAC's 23 maps, for example ``skirmish/3s5z`` or ``skirmish/corridor``, ``skirmish/5m``, and SMACv2's
    armies drawn at random for every episode, for example ``skirmish/terran_5_vs_5`` or ``skirmish/protoss_10_vs_11``,
    with each type's own sight and range. Armies, positions, terrain, observations, states, actions, rewards and step
    limits are those of SMAC and SMACv2; the engine is Shoal's own, so that scores are not comparable with theirs
    (docs/skirmish.md).

    Actions are no-op (legal for dead agents only), stop, moves to the north, south, east and west, and attacking each
    enemy, or for medivacs healing each ally. A step is half a second of the game. All agents receive the team's reward,
    at most 20 in an episode without regeneration. Victory and defeat are terminations. Dead agents observe zeros, while
    the team's reward goes on. The metrics of an episode are ``won``, ``dead_allies`` and ``dead_enemies``; if both
    armies are agents, ``won`` is the allies' victory, and ``lost`` the enemies'; neither is a draw. What an
    illegal action does is undefined.

    Args:
        task: the name without ``skirmish/``, or a :class:`shoal.environments.skirmish.maps.Map`.
        reward: ``positive``: at least 0 for the damage of a step; ``smac``: its absolute value, so that regenerating
            enemies also give reward, as in SMAC's code; ``difference``: if both armies are agents, ``positive`` minus
            the reward of the other army, so that the two rewards sum to 0.
        at_limit: truncate an episode at the step limit, so that values bootstrap, or terminate it as in SMAC.
        horizon: steps after which an episode ends; None: SMAC's limit of the map.
        last_actions: observations of allies include their last actions (SMAC's ``obs_last_action``).
        timestep: observations and state include the step divided by the limit (SMAC's ``obs_timestep_number``).
        weapons: ``liberty``: of the base game, which the maps of SMAC load; or ``multiplayer``: of Legacy of the Void's
            multiplayer games. Stalkers then deal 13 (+5 to armoured units) every 1.87 s instead of 10 (+4) every
            1.44 s, and colossi twice 10 (+5 to light units) every 1.5 s at a range of 7 instead of twice 20 every
            2.2 s at 6; spine crawlers attack every 1.85 s instead of 1.6 s, and enemies that are marines, marauders,
            stalkers, colossi or hydralisks look for targets half a cell beyond their range.
        delay_noise: each shot is followed by a random delay of -1 to 2 ticks, the game's only noise.
        target_search: the enemies look for targets at every tick of the game, or once in each step of eight ticks, so
            that they walk up to a step's way too far before they fire, and are weaker.
        provoked_scan: distance in cells, from edge to edge, up to which an enemy looks for targets for two seconds
            after it was hurt; without effect if it is at most 5.
        damage: the attacks of a tick are dealt simultaneously, so that two units can kill each other; or sequentially:
            unit after unit in an order drawn anew for each tick, and a unit that was killed before does not attack.
            Sequential damage is slower.
        start_gap: distance in cells, from edge to edge, between neighbours of a group at the start of an episode; None:
            0.05, or what the map states. Drawn armies have none.
        both: the enemies are agents too, with their own rewards and the same observations: if mirroring the map
            exchanges the armies' starts, theirs and their moves are mirrored, so that one policy can play both sides.

    Raises:
        InputError: the map is unknown or invalid, or an option is invalid.
    """
    if reward == "difference" and not both:
        raise InputError("reward 'difference' needs both armies as agents: set both, or use reward positive or smac.")
    battle = drawn.battle_named(task) if isinstance(task, str) else None
    if battle is not None and start_gap is not None:
        raise InputError("start_gap is for the maps of SMAC: drawn armies have starts of their own, so leave it out.")
    chosen = None
    if battle is None:
        if isinstance(task, str) and task not in MAPS:
            raise unknown("map", task, MAPS)
        chosen = MAPS[task] if isinstance(task, str) else task
        if start_gap is not None:
            chosen = replace(chosen, gap=check_number("start_gap", start_gap, 0.0, LARGEST_GAP))
        check_map(chosen)
        battle = battle_on(chosen)
    if check_choice("weapons", weapons, ("liberty", "multiplayer")) == "multiplayer":
        battle = multiplayer(battle)
    battle = replace(
        battle,
        limit=battle.limit if horizon is None else check_steps("horizon", horizon),
        commanded=check_flag("both", both),
        every_tick=check_choice("target_search", target_search, ("tick", "step")) == "tick",
        provoked_scan=check_number("provoked_scan", provoked_scan, 0.0, float(SIDE)),
        in_turn=check_choice("damage", damage, ("simultaneous", "sequential")) == "sequential",
        delay_noise=check_flag("delay_noise", delay_noise),
        smac_reward=check_choice("reward", reward, ("positive", "smac", "difference")) == "smac",
        zero_sum=reward == "difference",
        limit_terminates=check_choice("at_limit", at_limit, ("truncate", "terminate")) == "terminate",
        last_actions=check_flag("last_actions", last_actions),
        timestep=check_flag("timestep", timestep),
    )
    name = f"skirmish/{task if isinstance(task, str) else task.name}"
    start = drawn.start_of(battle) if chosen is None else _start(battle, chosen)
    views = partial(drawing.battle_picture, battle), partial(drawing.battle_outline, battle)
    return battle_environment(name, battle, start, chosen is not None, *views)


def battle_on(chosen: Map) -> Battle:
    """The battle on a map with the default options."""
    units = chosen.ally_units + chosen.enemy_units
    return Battle(
        types=tuple(dict.fromkeys(units)),
        units=units,
        num_allies=len(chosen.ally_units),
        num_enemies=len(chosen.enemy_units),
        terrain=chosen.terrain,
        limit=chosen.limit,
        mirrored=mirrored_axes(chosen),
        marches=chosen.goal is not None,
        hunts=chosen.hunts,
        show_types=len(set(chosen.ally_units)) > 1 or len(set(chosen.enemy_units)) > 1,
    )


def battle_of(spec: EnvSpec) -> tuple[Battle, tuple[int, ...]] | None:
    """The battle of an environment's spec with the default options but ``both``, and the sides that the agents play.

    The agents may be those of one side (:func:`shoal.sides.sides.narrowed`). None if the name or the agents are of
    no map.
    """
    task = spec.name.removeprefix("skirmish/")
    battle = battle_on(MAPS[task]) if task in MAPS else drawn.battle_named(task)
    if battle is None:
        return None
    battle = replace(battle, commanded="lost" in spec.metrics)
    for sides in ((0,), (1,), (0, 1)) if battle.commanded else ((0,),):
        if spec.agents == names(battle, sides):
            return battle, sides
    return None


def _start(battle: Battle, chosen: Map) -> Start:
    """How episodes on a map start."""
    # Enemies that are agents stand in the order in which they see each other, as the allies do.
    enemies = starts(chosen, "enemies", battle.mirrored if battle.commanded and any(battle.mirrored) else None)
    places = np.concatenate([starts(chosen, "allies"), enemies])
    assert battle.units is not None
    kinds = np.array([battle.types.index(unit) for unit in battle.units])
    ends = np.zeros(2) if chosen.goal is None else np.array(chosen.goal)

    def start(key: PRNGKeyArray, count: int) -> State:
        goal = jnp.broadcast_to(jnp.asarray(ends[0] if ends.ndim == 2 else ends), (count, 2))
        if ends.ndim == 2:
            goal += (ends[1] - ends[0]) * jax.random.uniform(key, (count, 1))
        x, y, kind = (
            jnp.broadcast_to(jnp.asarray(values), (count, len(kinds))) for values in (places[:, 0], places[:, 1], kinds)
        )
        return begun(battle, x, y, kind, goal)

    return start
