"""One step of a battle: eight ticks of targets, attacks, healing, deaths and movement."""

from collections.abc import Container, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.environments.skirmish import fighting, motion
from shoal.environments.skirmish.battle import EAST, NORTH, SOUTH, WEST, Battle, State, Stats, half
from shoal.environments.skirmish.fighting import FAR, Aim, Targets, acquired, commanded, distances, first_least, marks
from shoal.environments.skirmish.motion import Course

TICKS = 8
"""Ticks in a step: SMAC's ``step_mul``."""
MOVE = 2.0
"""Distance of a move's goal: SMAC's ``move_amount``."""
FOLLOW = 2.0
"""Distance at which an idle healer of the enemy stays behind the nearest unit that it can heal."""
CROWD, NEXT = 1.2, 0.9
"""A unit with n others nearer to the goal has arrived within (1.2 √n + 0.9) r of it, with the radius r of its body: the
second within 2.1 r, a little more than where it touches the first, and later ones in a loosely filled disc."""
WITHIN = 1e-3
"""How far inside its reach a unit that approaches its target stops, so that rounding leaves no gap."""
LEAST_DELAY, DELAYS = -1, 4
"""A shot is followed by a random delay of -1, 0, 1 or 2 ticks beside its cooldown."""


def advance_battle(battle: Battle, key: PRNGKeyArray, s: State, actions: Sequence[Int[Array, "_ E"]]) -> State:
    """One step from state leaves [U, E]; ``actions`` are those of the sides that agents play."""
    stats = battle.stats(s.kind)
    tick_keys = None
    if battle.in_turn:
        key, key_order = jax.random.split(key)
        tick_keys = jax.random.split(key_order, TICKS)
    delay = jnp.zeros_like(s.x)
    if battle.delay_noise:  # no weapon fires twice within a step
        delay = jnp.floor(jax.random.uniform(key, s.x.shape) * DELAYS) + LEAST_DELAY
    orders = dict(zip(battle.agent_sides, actions, strict=True))
    searching = [side for side in (0, 1) if side not in orders]
    every_tick = battle.every_tick and bool(searching)

    def chosen(side: int) -> Int[Array, "P E"]:
        if side in orders:
            return commanded(battle, stats, side, s, orders[side])
        if battle.ordered:
            return acquired(battle, stats, side, s, order=True)
        return s.target[battle.sides[side]] if every_tick else acquired(battle, stats, side, s)

    at_first = fighting.located(battle, stats, jnp.concatenate([chosen(side) for side in (0, 1)]))
    ways = {side: _way(battle, side, s, action) for side, action in orders.items()}
    rooms = {side: _room(battle, stats, side, s) for side in searching}
    s = s._replace(target=at_first.target, shot=jnp.full_like(s.shot, -1))

    def tick(s: State, tick_key: PRNGKeyArray | None) -> tuple[State, None]:
        targets = at_first
        if every_tick:
            targets = _again(battle, stats, s, searching)
            s = s._replace(target=targets.target)
        aimed = fighting.aim(s, targets)
        away = [ways[side] if side in ways else _march(battle, stats, side, s, rooms[side]) for side in (0, 1)]
        s = _attacks(battle, stats, s, targets, aimed, delay, tick_key)
        course = _course(aimed, Course(*(jnp.concatenate(parts) for parts in zip(*away, strict=True))))
        s, course = _accelerated(battle, stats, s, course)
        return motion.moved(battle, stats, s, course), None

    return _exploded(battle, stats, jax.lax.scan(tick, s, tick_keys, TICKS)[0])


def _again(battle: Battle, stats: Stats, s: State, searching: Container[int]) -> Targets:
    """The targets at a tick, if units that attack-move look for them at every tick; agents keep theirs."""
    chosen = [acquired(battle, stats, k, s) if k in searching else s.target[battle.sides[k]] for k in (0, 1)]
    return fighting.located(battle, stats, jnp.concatenate(chosen))


def _way(battle: Battle, side: int, s: State, action: Int[Array, "P E"]) -> Course:
    """Where a side's move actions lead; length 0 for other actions."""
    mine = battle.sides[side]
    to_east, to_north = (-MOVE if mirrored else MOVE for mirrored in battle.axes(side))
    east = (action == EAST).astype(jnp.float32) - (action == WEST)
    north = (action == NORTH).astype(jnp.float32) - (action == SOUTH)
    moves = (east != 0.0) | (north != 0.0)
    return Course(s.x[mine] + to_east * east, s.y[mine] + to_north * north, jnp.where(moves, MOVE, 0.0), moves)


def _room(battle: Battle, stats: Stats, side: int, s: State) -> Float[Array, "P E"]:
    """The radius of the disc around the goal that those of a side that are nearer to it fill, for each of its units."""
    mine = battle.sides[side]
    if not battle.marches:
        return jnp.zeros_like(s.x[mine])
    square = (s.goal[0] - s.x[mine]) ** 2 + (s.goal[1] - s.y[mine]) ** 2
    square = jnp.where(s.health[mine] > 0.0, square, FAR)
    nearer = (square[None] < square[:, None]).sum(1, dtype=jnp.float32)
    return (CROWD * jnp.sqrt(nearer) + NEXT * jnp.minimum(nearer, 1.0)) * half(stats, mine).body


def _march(battle: Battle, stats: Stats, side: int, s: State, room: Float[Array, "P E"]) -> Course:
    """The way of units that attack-move and have no target: to their goal; healers follow those they can heal.

    A unit has arrived inside the disc around the goal that those of its side fill which were nearer to it as the step
    began.
    """
    mine = battle.sides[side]
    x, y = s.x[mine], s.y[mine]
    winding = jnp.zeros_like(x, bool)
    if not battle.marches:
        return Course(x, y, jnp.zeros_like(x), winding)
    goal_x, goal_y = (jnp.broadcast_to(v[None], x.shape) for v in s.goal)
    if battle.has_healers(side):
        own, rows = half(stats, mine), battle.rows(side, "heals")
        lives = (s.health[mine] > 0.0) & (own.biological > 0.0)
        nearest = first_least(jnp.where(lives[None], distances(x[rows], y[rows], x, y), FAR))
        chosen = marks(nearest, x.shape[0])
        follows = (half(own, rows).heals > 0.0) & (nearest >= 0)
        goal_x, goal_y = (
            goal.at[rows].set(jnp.where(follows, jnp.where(chosen, v[None], 0.0).sum(1), goal[rows]))
            for goal, v in ((goal_x, x), (goal_y, y))
        )
        room = room.at[rows].set(jnp.where(follows, FOLLOW, room[rows]))
    return Course(goal_x, goal_y, jnp.sqrt((goal_x - x) ** 2 + (goal_y - y) ** 2) - room, winding)


def _course(aimed: Aim, away: Course) -> Course:
    """Units with a target approach it until their weapon reaches; the others go their way."""
    near = aimed.gap + WITHIN * (aimed.gap > 0.0)
    return Course(
        jnp.where(aimed.has, aimed.x, away.x),
        jnp.where(aimed.has, aimed.y, away.y),
        jnp.where(aimed.has, near, away.length),
        away.straight & ~aimed.has,
    )


def _accelerated(battle: Battle, stats: Stats, s: State, course: Course) -> tuple[State, Course]:
    """The present speed of units that accelerate, and their courses with the distance of this tick.

    Speed grows evenly within a tick. A unit that has arrived, or holds, has stopped at once; one that needs to cover
    less than it could has slowed down to that. Turns do not change the speed.
    """
    if not any(unit.acceleration for unit in battle.types):
        return s, course
    accelerates = stats.acceleration > 0.0
    wanted = jnp.where(s.health > 0.0, jnp.maximum(course.length, 0.0), 0.0)
    faster = jnp.minimum(s.pace + stats.acceleration, stats.speed)
    length = jnp.minimum((s.pace + faster) / 2.0, wanted)
    pace = jnp.where(accelerates, jnp.minimum(faster, wanted), 0.0)
    return s._replace(pace=pace), course._replace(length=jnp.where(accelerates, length, course.length))


def _attacks(
    battle: Battle,
    stats: Stats,
    s: State,
    targets: Targets,
    aimed: Aim,
    delay: Float[Array, "U E"],
    key: PRNGKeyArray | None,
) -> State:
    """Attacks of both sides, at once or in an order drawn from a key, then healing, regeneration and deaths."""
    before = s.health > 0.0
    cooldown = s.cooldown
    if key is None:
        volleys = [fighting.volley(battle, stats, side, s, s.target, aimed) for side in (0, 1)]
        fires, bursts = (jnp.concatenate(parts) for parts in zip(*((v.fires, v.bursts) for v in volleys), strict=True))
        damage, hits = (jnp.concatenate([getattr(v, name) for v in volleys[::-1]]) for name in ("damage", "hits"))
        s = fighting.wounded(stats, s, damage, hits)
    else:
        order = fighting.turns(key, s.x.shape)
        s, fires, bursts = fighting.in_turn(battle, stats, s, targets, aimed, order)
    # A cooldown that ends within a tick is carried over, so that the mean time between shots is exact.
    cooldown = jnp.maximum(jnp.where(fires, cooldown + stats.cooldown + delay, cooldown) - 1.0, 0.0)
    s = s._replace(cooldown=jnp.where(stats.heals > 0.0, s.cooldown, cooldown))
    for side in (0, 1):
        if battle.has_healers(side):
            s = fighting.healed(battle, stats, side, s, s.target, aimed)
    shown = fires | ((stats.heals > 0.0) & (s.cooldown > 0.0))
    s = fighting.regenerated(battle, stats, s._replace(shot=jnp.where(shown, s.target, s.shot)))
    return _deaths(stats, s, before, bursts)


def _exploded(battle: Battle, stats: Stats, s: State) -> State:
    """The end of a step: units that were killed in its last tick explode, and those that are killed by this.

    The game's explosions follow a death at once. So whether the last unit of an army takes others with it does not
    depend on the tick of its death.
    """
    if not any(unit.attack == "explosion" for unit in battle.types):
        return s

    def explode(s: State) -> State:
        before, bursts = s.health > 0.0, fighting.doomed(s)
        parts = [fighting.explosions(battle, stats, side, s, bursts[battle.sides[side]]) for side in (1, 0)]
        damage, hits = (jnp.concatenate(part) for part in zip(*parts, strict=True))
        after = fighting.wounded(stats, s, damage, hits)
        after = after._replace(calm=jnp.minimum(s.calm, after.calm))  # no time passes
        return _deaths(stats, after, before, bursts)

    return jax.lax.while_loop(lambda s: fighting.doomed(s).any(), explode, s)


def _deaths(stats: Stats, s: State, before: Bool[Array, "U E"], bursts: Bool[Array, "U E"]) -> State:
    """Remove the killed and the exploded; the killed explode in the next tick, or as the step ends."""
    health = jnp.where(bursts, 0.0, s.health)
    dead = health <= 0.0
    pending = dead & before & ~bursts & (stats.explodes > 0.0)
    return s._replace(
        health=health,
        shield=jnp.where(dead, 0.0, s.shield),
        energy=jnp.where(dead, 0.0, s.energy),
        cooldown=jnp.where(dead, jnp.where(pending, -1.0, 0.0), s.cooldown),
        calm=jnp.where(bursts & before, 0.0, s.calm),  # of the dead: ticks since their end
    )
