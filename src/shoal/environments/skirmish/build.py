"""Assembly of an :class:`Environment` from a battle and the way its episodes start, with SMAC's team reward."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.environments.batching import select, single
from shoal.environments.skirmish import engine, observe
from shoal.environments.skirmish.battle import Battle, State, Stats, half
from shoal.environments.skirmish.units import ENERGY, Unit
from shoal.types import Batched, Discrete, Environment, EnvSpec, Outline, Step

DEATH, WIN = 10.0, 200.0
"""Paid for each enemy's death and for a victory, before scaling."""
LARGEST_RETURN = 20.0
"""Rewards are scaled so that all damage, deaths and the victory sum to this."""


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


def reward(battle: Battle, stats: Stats, side: int, before: State, after: State, won: Bool[Array, " E"]) -> Array:
    """Float[E]: the reward of one side for a step.

    The loss of hit points and shields of all opponents that lived before, 10 for each that died and 200 for a victory,
    scaled by 20 over the largest possible sum. The damage of a step pays no less than 0, or with ``smac_reward`` its
    absolute value, so that opponents who regenerate also pay.
    """
    theirs = battle.sides[1 - side]
    lived = before.health[theirs] > 0.0
    died = lived & (after.health[theirs] <= 0.0)
    lost = before.health[theirs] + before.shield[theirs] - after.health[theirs] - after.shield[theirs]
    delta = jnp.where(lived, lost, 0.0).sum(0) + DEATH * died.sum(0)
    delta = jnp.abs(delta) if battle.smac_reward else jnp.maximum(delta, 0.0)
    return (delta + WIN * won) * LARGEST_RETURN / largest(battle, stats, side)


def largest(battle: Battle, stats: Stats, side: int) -> Float[Array, " E"]:
    """SMAC's ``max_reward``: the sum of all that a side can earn without regeneration of the other, before scaling."""
    other = half(stats, battle.sides[1 - side])
    count = battle.counts(side)[1]
    whole = jnp.broadcast_to(other.hit_points + other.shield, (count, other.hit_points.shape[-1]))
    return whole.sum(0) + DEATH * count + WIN


Start = Callable[[PRNGKeyArray, int], State]
"""(key, E) -> states at the start of episodes, leaves [E, ...]."""
LONG_AGO = 1e4
"""Ticks since the last damage at the start: shields are full and no unit is provoked."""


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
        earned = jnp.repeat(_earned(battle, stats, before, after, won), np.array(counts), axis=0).T
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


def _earned(
    battle: Battle, stats: Stats, before: State, after: State, won: Sequence[Bool[Array, " E"]]
) -> Float[Array, "K E"]:
    """The rewards of the K sides that agents play."""
    earned = jnp.stack([reward(battle, stats, k, before, after, won[k]) for k in battle.agent_sides])
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
    )


def begun(battle: Battle, x: Array, y: Array, kind: Array, goal: Array) -> State:
    """States at the start of episodes: all units alive, unhurt and ready.

    Args:
        battle: the battle.
        x: Float[E, U].
        y: Float[E, U].
        kind: Int[E, U].
        goal: Float[E, 2].
    """
    stats = battle.stats(kind.T)
    count, units = x.shape
    agents = sum(battle.counts(side)[0] for side in battle.agent_sides)
    zeros = jnp.zeros((count, units))

    def of_each(values: Array | np.ndarray) -> Array:
        return jnp.broadcast_to(jnp.asarray(values, jnp.float32).T, (count, units))

    return State(
        x=x.astype(jnp.float32),
        y=y.astype(jnp.float32),
        health=of_each(stats.hit_points),
        shield=of_each(stats.shield),
        energy=of_each(stats.heals * ENERGY),
        cooldown=zeros,
        pace=zeros,
        calm=jnp.full((count, units), LONG_AGO),
        target=jnp.full((count, units), -1, jnp.int32),
        turn=zeros,
        shot=jnp.full((count, units), -1, jnp.int32),
        action=jnp.full((count, agents), -1, jnp.int32),
        goal=goal.astype(jnp.float32),
        kind=kind.astype(jnp.int32),
        t=jnp.zeros(count, jnp.int32),
    )


def _last(state: State) -> State:
    """Environments on the last axis."""
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), state)


def _first_of(state: State) -> State:
    return jax.tree.map(_first, state)


def _first(x: Array) -> Array:
    """Environments on the first axis."""
    return jnp.moveaxis(x, -1, 0)
