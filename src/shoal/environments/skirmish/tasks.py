"""``skirmish/…``: SMAC's maps on an engine of Shoal's own, on the device and without StarCraft.

:func:`make` chooses a battle by the task and the options, and :func:`battle_environment` assembles its
:class:`Environment`, with SMAC's team reward.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.environments.batching import select, single
from shoal.environments.options import check_choice, check_flag, check_number, check_steps
from shoal.environments.skirmish import drawing, drawn, engine, observe
from shoal.environments.skirmish.battle import MOVES, Battle, Start, State, Stats, begun, half, multiplayer
from shoal.environments.skirmish.maps import LARGEST_GAP, MAPS, SIDE, Map, check_map, mirrored_axes, starts
from shoal.environments.skirmish.units import Unit
from shoal.errors import InputError, unknown
from shoal.types import Batched, Discrete, Environment, EnvSpec, Outline, Step


def make(
    task: str | Map,
    *,
    reward: Literal["positive", "smac", "losses", "sparse", "difference"] = "positive",
    at_limit: Literal["truncate", "terminate"] = "truncate",
    horizon: int | None = None,
    last_actions: bool = False,
    timestep: bool = False,
    weapons: Literal["liberty", "multiplayer"] = "liberty",
    delay_noise: bool = True,
    target_search: Literal["tick", "step"] = "tick",
    provoked_scan: float = 9.0,
    leash: float = 0.0,
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
        task: the name without ``skirmish/``, or a :class:`shoal.environments.skirmish.maps.Map`; one that has the name
            of another map or of drawn armies is called ``skirmish/own:NAME``.
        reward: ``positive``: at least 0 for the damage of a step; ``smac``: its absolute value, so that regenerating
            enemies also give reward, as in SMAC's code; ``losses``: minus half of what the own army loses, which may be
            negative (SMAC's ``reward_only_positive=False``); ``sparse``: only 1 for a victory and -1 for a defeat,
            scaled like the others (SMAC's ``reward_sparse``); ``difference``: if both armies are agents, ``positive``
            minus the reward of the other army, so that the two rewards sum to 0.
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
        leash: distance in cells, from edge to edge, up to which an enemy chases a target that has left the distance up
            to which it looks for targets, while no other is within that; 0: it gives the target up. Without effect for
            drawn armies, whose enemies follow their targets anyway.
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
        leash=check_number("leash", leash, 0.0, float(SIDE)),
        in_turn=check_choice("damage", damage, ("simultaneous", "sequential")) == "sequential",
        delay_noise=check_flag("delay_noise", delay_noise),
        smac_reward=check_choice("reward", reward, ("positive", "smac", "losses", "sparse", "difference")) == "smac",
        losses=reward == "losses",
        sparse=reward == "sparse",
        zero_sum=reward == "difference",
        limit_terminates=check_choice("at_limit", at_limit, ("truncate", "terminate")) == "terminate",
        last_actions=check_flag("last_actions", last_actions),
        timestep=check_flag("timestep", timestep),
    )
    start = drawn.start_of(battle) if chosen is None else _start(battle, chosen)
    views = drawing.BattlePictures(battle), partial(drawing.battle_outline, battle)
    return battle_environment(f"skirmish/{_called(task)}", battle, start, chosen is not None, *views)


def _called(task: str | Map) -> str:
    """The name of a task. A map of one's own that has the name of another one is not that one, neither for scripts nor
    in records."""
    if isinstance(task, str):
        return task
    taken = MAPS.get(task.name, task) != task or drawn.battle_named(task.name)
    return f"own:{task.name}" if taken else task.name


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
    ends = ends[0] if len(ends) == 1 else ends  # one point in a tuple

    def start(key: PRNGKeyArray, count: int) -> State:
        goal = jnp.broadcast_to(jnp.asarray(ends[0] if ends.ndim == 2 else ends), (count, 2))
        if ends.ndim == 2:
            goal += (ends[1] - ends[0]) * jax.random.uniform(key, (count, 1))
        x, y, kind = (
            jnp.broadcast_to(jnp.asarray(values), (count, len(kinds))) for values in (places[:, 0], places[:, 1], kinds)
        )
        return begun(battle, x, y, kind, goal)

    return start


DEATH, WIN = 10.0, 200.0
"""Paid for each enemy's death and for a victory, before scaling."""
LARGEST_RETURN = 20.0
"""Rewards are scaled so that all damage, deaths and the victory sum to this."""
OWN = 0.5
"""SMAC's ``reward_negative_scale``: the part of the own side's losses that is subtracted with ``losses``."""


class End(NamedTuple):
    """How a battle stands."""

    defeated: tuple[Bool[Array, " E"], Bool[Array, " E"]]
    """Whether the allies, and the enemies, cannot fight any more: all are dead, or only healers are left."""
    over: Bool[Array, " E"]

    def won(self, side: int) -> Bool[Array, " E"]:
        """Whether a side has defeated the other and not been defeated itself."""
        return self.defeated[1 - side] & ~self.defeated[side]


def end_of(battle: Battle, stats: Stats, s: State) -> End:
    """Whether one side, or both, are defeated."""
    fights = (s.health > 0.0) & (stats.heals == 0.0)
    first, second = (~fights[side].any(0) for side in battle.sides)
    return End((first, second), first | second)


def reward(battle: Battle, stats: Stats, side: int, before: State, after: State, end: End) -> Array:
    """Float[E]: the reward of one side for a step.

    The loss of hit points and shields of all opponents that lived before, 10 for each that died and 200 for a victory,
    scaled by 20 over the largest possible sum. The damage of a step pays no less than 0, or with ``smac_reward`` its
    absolute value, so that opponents who regenerate also pay; with ``losses`` half of the own side's losses are
    subtracted instead. With ``sparse`` only 1 for a victory and -1 for a defeat are paid, on the same scale.
    """
    won = end.won(side)
    if battle.sparse:
        # In SMAC an army with medivacs is defeated also if the other one is, and another army is not.
        lost = end.defeated[side] & (~end.defeated[1 - side] | battle.has_healers(side))
        return jnp.where(won, 1.0, jnp.where(lost, -1.0, 0.0)) * LARGEST_RETURN / largest(battle, stats, side)
    delta = _lost(before, after, battle.sides[1 - side])
    if battle.losses:
        delta = delta - OWN * _lost(before, after, battle.sides[side])
    else:
        delta = jnp.abs(delta) if battle.smac_reward else jnp.maximum(delta, 0.0)
    return (delta + WIN * won) * LARGEST_RETURN / largest(battle, stats, side)


def _lost(before: State, after: State, rows: slice) -> Float[Array, " E"]:
    """Hit points and shields that the units of a side lost in a step, and 10 for each that died."""
    lived = before.health[rows] > 0.0
    died = lived & (after.health[rows] <= 0.0)
    lost = before.health[rows] + before.shield[rows] - after.health[rows] - after.shield[rows]
    return jnp.where(lived, lost, 0.0).sum(0) + DEATH * died.sum(0)


def largest(battle: Battle, stats: Stats, side: int) -> Float[Array, " E"]:
    """SMAC's ``max_reward``: the sum of all that a side can earn without regeneration of the other, before scaling."""
    other = half(stats, battle.sides[1 - side])
    count = battle.counts(side)[1]
    whole = jnp.broadcast_to(other.hit_points + other.shield, (count, other.hit_points.shape[-1]))
    return whole.sum(0) + DEATH * count + WIN


def battle_environment(
    name: str,
    battle: Battle,
    start: Start,
    fixed: bool,
    render: Callable[[State], object],
    outline: Callable[[State], Outline] | None = None,
) -> Environment:
    """Assemble a battle.

    Args:
        name: of the environment.
        battle: the armies and rules.
        start: how episodes start.
        fixed: whether all episodes start with the same observations.
        render: state of one environment -> a picture.
        outline: the same -> numbers.
    """
    spec = _spec(name, battle)
    counts = [battle.counts(side)[0] for side in battle.agent_sides]
    widths = [sum(part.size for part in observe.parts(battle, side)) for side in battle.agent_sides]

    def make_step(s: State, earned: Array, over: Bool[Array, " E"], won: Array, first: bool) -> Step:
        stats = battle.stats(s.kind)
        able, seen = [], []
        for side, width in zip(battle.agent_sides, widths, strict=True):
            mine = observe.legal(battle, stats, side, s)
            rows = observe.observations(battle, stats, side, s, mine)
            able.append(jnp.pad(mine, ((0, 0), (0, spec.action.width - mine.shape[1]), (0, 0))))
            seen.append(jnp.pad(rows, ((0, 0), (0, spec.obs_dim - width), (0, 0))))
        timed_out = s.t >= battle.limit
        ends = over | timed_out if battle.limit_terminates else over
        fallen = [(s.health[side] <= 0.0).sum(0) for side in battle.sides]
        metrics = jnp.stack([*won, *fallen], axis=-1).astype(jnp.float32)
        count = s.t.shape[0]
        return Step(
            obs=_first(jnp.concatenate(seen)),
            state=_first(observe.state(battle, stats, s)),
            legal=_first(jnp.concatenate(able)),
            alive=_first(s.health[: spec.num_agents] > 0.0),
            reward=earned,
            discount=jnp.broadcast_to(jnp.where(ends, 0.0, 1.0)[:, None], (count, spec.num_agents)),
            first=jnp.full(count, first),
            last=over | timed_out,
            metrics=metrics,
        )

    def reset(key: PRNGKeyArray, count: int) -> tuple[State, Step]:
        state = start(key, count)
        no, none = jnp.zeros(count, bool), jnp.zeros((len(battle.agent_sides), count))
        return state, make_step(_last(state), jnp.zeros((count, spec.num_agents)), no, none, first=True)

    def step(key: PRNGKeyArray, state: State, action: Int[Array, "E N"]) -> tuple[State, Step]:
        before = _last(state)
        action = action.astype(jnp.int32).T
        orders = [action[battle.sides[side]] for side in battle.agent_sides]
        after = engine.advance_battle(battle, key, before, orders)._replace(action=action, t=before.t + 1)
        stats = battle.stats(before.kind)
        end = end_of(battle, stats, after)
        won = [end.won(side) for side in battle.agent_sides]
        earned = jnp.repeat(_earned(battle, stats, before, after, end), np.array(counts), axis=0).T
        made = make_step(after, earned, end.over, jnp.stack(won), first=False)
        return _first_of(after), made

    def restart(key: PRNGKeyArray, which: Bool[Array, " E"], state: State) -> tuple[State, Step]:
        count = which.shape[0]
        if not fixed:
            fresh, first = reset(key, count)
            return select(which, fresh, state), first
        # Observations at the start are constants of the program.
        first = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape[1:])), reset(key, 1)[1])
        return select(which, start(key, count), state), first

    return single(spec, Batched(reset, step, restart), render, outline)


def _earned(battle: Battle, stats: Stats, before: State, after: State, end: End) -> Float[Array, "K E"]:
    """The rewards of the K sides that agents play."""
    earned = jnp.stack([reward(battle, stats, k, before, after, end) for k in battle.agent_sides])
    return earned - earned[::-1] if battle.zero_sum else earned


def names(battle: Battle, sides: Sequence[int]) -> tuple[str, ...]:
    """The agents' names on some sides."""
    return tuple(f"{('ally', 'enemy')[side]}_{i}" for side in sides for i in range(battle.counts(side)[0]))


def _spec(name: str, battle: Battle) -> EnvSpec:
    sides = battle.agent_sides
    counts = [battle.counts(side)[0] for side in sides]
    kinds: list[tuple[int, Unit | None]] = []
    for side, count in zip(sides, counts, strict=True):
        kinds += [(side, None if battle.units is None else battle.of_side(side)[i]) for i in range(count)]
    roles = list(dict.fromkeys(kinds))
    actions = tuple(battle.num_actions(side) for side, count in zip(sides, counts, strict=True) for _ in range(count))
    parts = tuple(observe.parts(battle, side) for side, count in zip(sides, counts, strict=True) for _ in range(count))
    return EnvSpec(
        name=name,
        agents=names(battle, sides),
        obs_dims=tuple(sum(part.size for part in own) for own in parts),
        state_dim=observe.state_width(battle),
        action=Discrete(max(actions)),
        action_dims=actions,
        roles=tuple(roles.index(kind) for kind in kinds),
        sides=tuple(side for side, _ in kinds) if battle.commanded else None,
        horizon=battle.limit,
        shared_reward=not battle.commanded,
        score="mean",
        metrics=("won", *(["lost"] if battle.commanded else []), "dead_allies", "dead_enemies"),
        parts=parts,
        novel=tuple(sorted({index for side in sides for index in observe.novel(battle, side)})),
        # The same actions of a healer target its own side.
        targets=() if any(map(battle.has_healers, sides)) else (("enemies", MOVES),),
    )


def _last(state: State) -> State:
    """Environments on the last axis."""
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), state)


def _first_of(state: State) -> State:
    return jax.tree.map(_first, state)


def _first(x: Array) -> Array:
    """Environments on the first axis."""
    return jnp.moveaxis(x, -1, 0)
