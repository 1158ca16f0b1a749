"""Scripted teams for ``skirmish/…``: baselines without learning, evaluated by the same commands as policies.

    shoal train scripted skirmish/3s5z --script kite

They read only the global state and the legal actions, like a centralised policy.

- ``random``: a uniformly random legal action.
- ``stop``: nothing.
- ``heuristic``: SMAC's own (``heuristic_ai`` of its ``starcraft2.py``). Attack the nearest enemy that the weapon can
  hit, at any distance, until it is dead. Healers heal the nearest hurt unit that is not a healer until it is unhurt or
  dead, and otherwise stay where they are.
- ``attack-nearest``: attack the nearest enemy in range until it is dead, or walk towards the nearest. Healers heal the
  nearest hurt unit, or follow.
- ``focus-fire``: the same, but of the enemies in range the one with the least health and shield, chosen at every step.
- ``kite``: as ``focus-fire`` while the weapon is ready; otherwise away from enemies that are near.
- ``hold``: attack what the weapon reaches, the weakest first, without walking; in corridor, first walk to the neck.

Where both armies are agents they play either side, or both: ``mappo+scripted`` learns against a script.

All scripts but ``heuristic`` choose legal actions. SMAC's heuristic also orders attacks beyond the 6 cells within which
they are legal (unless ``heuristic_rest`` is set there): the unit walks to its target.

They count with the ranges of the default weapons. With ``weapons = multiplayer`` this changes only ``kite``, in which a
colossus does not walk away from units with a range of 6, though its own is then 7.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.environments.skirmish import observe
from shoal.environments.skirmish.battle import MOVES, NO_OP, STOP, Battle, Stats, half
from shoal.environments.skirmish.engine import MOVE
from shoal.environments.skirmish.maps import SIDE
from shoal.environments.skirmish.observe import CENTRE
from shoal.environments.skirmish.tasks import battle_of
from shoal.errors import InputError
from shoal.models.scripted import make_script
from shoal.types import Algorithm, EnvSpec, Scale, Step

Script = Literal["random", "stop", "heuristic", "attack-nearest", "focus-fire", "kite", "hold"]
FAR = 1e4
"""Beyond all distances and hit points, and small enough for single precision to tell scores apart."""
TIE = 0.05
"""Hit points by which each enemy counts as stronger than the one before: all agree on one of equally weak ones."""
EQUAL = 1e-5
"""Cells by which each unit counts as further away than the one before, so that the first of equally near ones is
chosen: more than distances differ by rounding."""
KITED = 3.0
"""Distance, from edge to edge, below which ``kite`` walks away from enemies."""
NEAR = 1.5
"""Distance within which a unit has arrived there."""
NECK = {"corridor": (11.0, 11.0)}
"""Where ``hold`` waits, by terrain."""


@dataclass(frozen=True)
class Config:
    """Which script plays."""

    script: Script = "attack-nearest"
    """random, stop, heuristic (SMAC's own), attack-nearest, focus-fire, kite or hold."""


class Field(NamedTuple):
    """What the global state tells of both sides; leaves [E, allies] and [E, enemies]."""

    x: Float[Array, "E A"]
    y: Float[Array, "E A"]
    health: Float[Array, "E A"]
    """Hit points and shield."""
    hurt: Bool[Array, "E A"]
    waits: Bool[Array, "E A"]
    """Whether the weapon is not ready."""
    stats: Stats
    """Leaves [E or 1, A]."""


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """A scripted team as an algorithm that learns nothing.

    Raises:
        InputError: the environment is not ``skirmish/…``, or a map of one's own, or the agents are no whole army.
    """
    del scale
    found = battle_of(spec)
    if found is None:
        raise InputError(f"scripted plays whole armies on the maps of skirmish/…, not the agents of {spec.name}.")
    battle, sides = found

    def actions(step: Step, key: PRNGKeyArray) -> Int[Array, "E N"]:
        return chosen(battle, config.script, step, key, sides)

    return make_script(actions)._replace(acts_on="state")


def chosen(
    battle: Battle, script: Script, step: Step, key: PRNGKeyArray, sides: Sequence[int] = (0,)
) -> Int[Array, "E N"]:
    """The actions of a script for all agents of some sides."""
    noise = jax.random.uniform(key, step.legal.shape)
    if script == "random":
        return _best(step, noise)
    if script == "stop":
        return _best(step, noise * 1e-3 + (jnp.arange(step.legal.shape[-1]) == STOP))
    if script == "heuristic":
        return jnp.concatenate([_ordered(battle, step.state, side) for side in sides], axis=1)
    scores = [_scores(battle, script, step, side) for side in sides]
    width = step.legal.shape[-1]
    scores = [jnp.pad(x, ((0, 0), (0, 0), (0, width - x.shape[-1])), constant_values=-FAR) for x in scores]
    return _best(step, jnp.concatenate(scores, axis=1) + noise * 1e-3)


def _scores(battle: Battle, script: Script, step: Step, side: int) -> Float[Array, "E P A"]:
    """The worth of each action of one side's agents."""
    own, other = fields(battle, step.state, side)
    apart = jnp.hypot(other.x[:, None] - own.x[..., None], other.y[:, None] - own.y[..., None])  # [E, A, B]
    lives = (other.health > 0.0)[:, None]
    gap = jnp.where(lives, apart - own.stats.radius[..., None] - other.stats.radius[:, None], FAR)
    if script == "attack-nearest":
        worth = jnp.where(_attacked(battle, step.state, side), 0.0, -apart)
    else:
        worth = jnp.broadcast_to((-other.health - TIE * jnp.arange(lives.shape[-1]))[:, None], apart.shape)
    able = (own.stats.hits_air[..., None] > 0.0) | (other.stats.flies[:, None] == 0.0)
    attack = jnp.where(able & lives, worth, -FAR)
    nearest = jnp.where(lives, apart, FAR).argmin(-1)
    moves = _towards(own, _at(nearest, other.x), _at(nearest, other.y))
    if script == "hold":
        attack = jnp.where(gap <= own.stats.reach[..., None], attack, -FAR)
        at = NECK.get(battle.terrain)  # on a terrain without mirrored axes
        waits = jnp.zeros(own.x.shape, bool) if at is None else jnp.hypot(at[0] - own.x, at[1] - own.y) > NEAR
        gather = own if at is None else own._replace(x=jnp.full_like(own.x, at[0]), y=jnp.full_like(own.y, at[1]))
        moves = jnp.where(waits[..., None], _towards(own, gather.x, gather.y), -FAR)
    if script == "kite":
        outranged = jnp.where(other.stats.heals > 0.0, 0.0, other.stats.reach)[:, None] < own.stats.reach[..., None]
        flees = (own.waits & ((gap < KITED) & outranged).any(-1))[..., None]
        attack, moves = jnp.where(flees, -FAR, attack), jnp.where(flees, _away(own, other), moves)
    if battle.has_healers(side):
        moves, attack = _healing(own, moves, attack)
    # Attacks go before moves, and moves before stopping; -FAR marks what the script does not do.
    attack = jnp.where(attack > -FAR, attack + FAR / 2.0, -FAR)
    waiting = jnp.broadcast_to(jnp.array([-FAR, -0.9 * FAR]), (*own.x.shape, 2))
    return jnp.concatenate([waiting, moves, attack], axis=-1)


def _ordered(battle: Battle, state: Float[Array, "E S"], side: int) -> Int[Array, "E P"]:
    """The actions of one side's agents by SMAC's heuristic, which need not be legal.

    ``get_agent_action_heuristic`` of oxwhirl/smac remembers each agent's target; here it is the last action's. SMAC's
    marauders skip medivacs; here every unit skips those that its weapon cannot hit, and healers those that they cannot
    heal, which is the same with the units of SMAC's maps. Without a target SMAC gives no order.
    """
    own, other = fields(battle, state, side)
    able = (own.stats.hits_air[..., None] > 0.0) | (other.stats.flies[:, None] == 0.0)
    target = _kept_or_nearest(own, other, _attacked(battle, state, side), (other.health > 0.0)[:, None] & able)
    if battle.has_healers(side):
        heals = own.stats.heals > 0.0
        treatable = (own.hurt & (own.stats.biological > 0.0))[:, None]  # which healers are not
        patient = _kept_or_nearest(own, own, _healed(battle, state, side), treatable)
        target = jnp.where(heals, patient, target)
    action = jnp.where(target >= 0, MOVES + target, STOP)
    return jnp.where(own.health > 0.0, action, NO_OP).astype(jnp.int32)


def _kept_or_nearest(
    own: Field, units: Field, last: Bool[Array, "E A B"], allowed: Bool[Array, "E _ B"]
) -> Int[Array, "E A"]:
    """The last target while it is allowed, or else the nearest unit that is; -1 if none is."""
    apart = jnp.hypot(units.x[:, None] - own.x[..., None], units.y[:, None] - own.y[..., None])
    cost = jnp.where(last, -1.0, apart + EQUAL * jnp.arange(apart.shape[-1]))
    cost = jnp.where(allowed, cost, FAR)
    return jnp.where(cost.min(-1) < FAR, cost.argmin(-1), -1)


def _best(step: Step, scores: Float[Array, "E N A"]) -> Int[Array, "E N"]:
    return jnp.where(step.legal, scores, -4.0 * FAR).argmax(-1).astype(jnp.int32)


def fields(battle: Battle, state: Float[Array, "E S"], viewer: int = 0) -> tuple[Field, Field]:
    """Read a side and its opponents from the global state (:func:`shoal.environments.skirmish.observe.state`), with
    positions as that side's agents see them."""
    found, at = [], 0
    for side in (0, 1):
        own, acts = battle.counts(side)[0], side in battle.agent_sides
        width = (4 if acts else 3) + battle.has_shields(side) + battle.type_bits
        rows = state[:, at : at + own * width].reshape(-1, own, width)
        at += own * width
        place = 2 if acts else 1
        if battle.units is None:
            stats = battle.stats(rows[..., width - battle.type_bits :].argmax(-1))
        else:
            fixed = half(battle.stats(jnp.zeros((1, 1), jnp.int32)), battle.sides[side])
            stats = Stats(*(jnp.asarray(v).T for v in fixed))
        health = rows[..., 0] * stats.hit_points
        shield = rows[..., place + 2] * stats.shield if battle.has_shields(side) else 0.0
        east, north = (-SIDE if mirrored else SIDE for mirrored in battle.axes(viewer))
        found.append(
            Field(
                x=rows[..., place] * east + CENTRE,
                y=rows[..., place + 1] * north + CENTRE,
                health=health + shield,
                hurt=(health > 0.0) & (rows[..., 0] < 1.0),
                waits=(rows[..., 1] > 0.0) if acts else jnp.zeros(health.shape, bool),
                stats=stats,
            )
        )
    return found[viewer], found[1 - viewer]


def _attacked(battle: Battle, state: Float[Array, "E S"], side: int) -> Bool[Array, "E A B"]:
    """The opponent that each agent of a side attacked last, from the last actions in the state."""
    return _aimed(battle, state, side)[..., : battle.counts(side)[1]]


def _healed(battle: Battle, state: Float[Array, "E S"], side: int) -> Bool[Array, "E A A"]:
    """The same for the unit of its own side that each healer healed last."""
    return _aimed(battle, state, side)[..., : battle.counts(side)[0]]


def _aimed(battle: Battle, state: Float[Array, "E S"], side: int) -> Bool[Array, "E A K"]:
    """The last actions of a side's agents, without the first six."""
    widths = [battle.counts(k)[0] * battle.num_actions(k) for k in battle.agent_sides]
    at = observe.state_width(battle) - sum(widths[side:])
    acted = state[:, at : at + widths[side]].reshape(-1, battle.counts(side)[0], battle.num_actions(side))
    return acted[..., MOVES:] > 0.0


def _at(index: Int[Array, "E A"], values: Float[Array, "E B"]) -> Float[Array, "E A"]:
    return jnp.take_along_axis(values, index, axis=1)


def _ways() -> np.ndarray:
    """Offsets of north, south, east and west."""
    return np.array([[0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [-1.0, 0.0]]) * MOVE / 2.0


def _towards(own: Field, x: Float[Array, "E A"], y: Float[Array, "E A"]) -> Float[Array, "E A 4"]:
    """Worth of each move: less distance to a point is better."""
    to = [(x - own.x)[..., None] - _ways()[:, 0], (y - own.y)[..., None] - _ways()[:, 1]]
    return -jnp.hypot(*to)


def _away(own: Field, other: Field) -> Float[Array, "E A 4"]:
    """Worth of each move: a larger distance to the nearest enemy is better."""
    x, y = own.x[..., None] + _ways()[:, 0], own.y[..., None] + _ways()[:, 1]
    apart = jnp.hypot(other.x[:, None, None] - x[..., None], other.y[:, None, None] - y[..., None])
    return jnp.where((other.health > 0.0)[:, None, None], apart, FAR).min(-1)


def _healing(
    own: Field, moves: Float[Array, "E A 4"], attack: Float[Array, "E A B"]
) -> tuple[Float[Array, "E A 4"], Float[Array, "E A Q"]]:
    """Healers heal the nearest hurt biological unit, or else follow the nearest one that lives."""
    heals = own.stats.heals > 0.0
    lives = (own.health > 0.0) & (own.stats.biological > 0.0)
    apart = jnp.hypot(own.x[:, None] - own.x[..., None], own.y[:, None] - own.y[..., None])
    patient = lives & own.hurt
    cost = jnp.where(patient[:, None], apart, jnp.where(lives[:, None], apart + FAR / 4.0, FAR))
    near = cost.argmin(-1)
    follow = _towards(own, _at(near, own.x), _at(near, own.y))
    treat = jnp.where(patient[:, None], -apart, -FAR)
    width = max(treat.shape[-1], attack.shape[-1])
    treat, attack = (
        jnp.pad(v, ((0, 0), (0, 0), (0, width - v.shape[-1])), constant_values=-FAR) for v in (treat, attack)
    )
    which = jnp.broadcast_to(heals, own.health.shape)[..., None]
    return jnp.where(which, follow, moves), jnp.where(which, treat, attack)
