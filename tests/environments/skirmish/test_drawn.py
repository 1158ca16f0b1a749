"""SMACv2's battles, whose armies and starts are drawn, against the distributions of its paper's configurations."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from shoal.environments.skirmish import drawn, observe
from shoal.environments.skirmish.tasks import _last, make
from shoal.environments.validation import validate
from shoal.errors import InputError

COUNT = 4000


def starts(task: str):
    battle = drawn.battle_named(task)
    assert battle is not None
    start = jax.jit(drawn.start_of(battle), static_argnums=1)
    return jax.tree.map(np.asarray, start(jax.random.key(0), COUNT))


@pytest.mark.parametrize(
    ("task", "obs", "state", "actions"),
    [
        ("terran_5_vs_5", 82, 120, 11),
        ("protoss_5_vs_5", 92, 130, 11),
        ("zerg_5_vs_5", 82, 120, 11),
        ("terran_10_vs_11", 170, 306, 17),
        ("zerg_20_vs_23", 346, 858, 29),
    ],
)
def test_sizes_are_those_of_smacv2(task: str, obs: int, state: int, actions: int):
    env = make(task)
    validate(env)  # type: ignore[arg-type]
    assert (env.spec.obs_dim, env.spec.state_dim, env.spec.action.width) == (obs, state, actions)
    assert env.spec.horizon == 200 and set(env.spec.roles) == {0}


def test_types_have_the_published_weights_and_enemies_the_allies_types():
    begun = starts("terran_10_vs_11")
    shares = np.bincount(begun.kind[:, :10].ravel(), minlength=3) / (10 * COUNT)
    np.testing.assert_allclose(shares, [0.45, 0.45, 0.1], atol=0.01)
    np.testing.assert_array_equal(np.sort(begun.kind[:, 10:20]), np.sort(begun.kind[:, :10]))
    # The one further enemy forms an army of its own in SMACv2, so it is never a medivac.
    last = np.bincount(begun.kind[:, 20], minlength=3) / COUNT
    np.testing.assert_allclose(last, [0.5, 0.5, 0.0], atol=0.03)


def test_no_army_consists_of_healers_alone():
    kinds = np.asarray(drawn.team(drawn.battle_named("terran_5_vs_5"), jax.random.key(3), 50_000, 2))  # type: ignore[arg-type]
    assert not (kinds == 2).all(1).any()
    assert 0.005 < ((kinds == 2).sum(1) == 1).mean() < 0.25


def test_half_of_the_starts_are_mirror_images():
    begun = starts("zerg_5_vs_5")
    left, right = np.sort(begun.x[:, :5]), np.sort(32.0 - begun.x[:, 5:])
    mirrored = (np.abs(left - right) < 1e-3).all(1) & (left < 15.0 + 1e-3).all(1)
    assert 0.46 < mirrored.mean() < 0.54
    np.testing.assert_allclose(np.sort(begun.y[mirrored][:, :5]), np.sort(begun.y[mirrored][:, 5:]), atol=1e-4)
    around = ~mirrored
    assert (np.hypot(begun.x[around][:, :5] - 16.0, begun.y[around][:, :5] - 16.0) < 2.0).all()
    # Groups stand on the diagonals, at least 2 from the centre along both axes, beside the lattice of their own units.
    off = np.abs(np.stack([begun.x[around][:, 5:], begun.y[around][:, 5:]], -1) - 16.0)
    assert (off > 0.5).all() and (np.abs(off[..., 0] - off[..., 1]) <= 4.0).all()
    groups = {
        len({(x > 16.0, y > 16.0) for x, y in zip(xs, ys, strict=True)})
        for xs, ys in zip(begun.x[around][:, 5:], begun.y[around][:, 5:], strict=True)
    }
    assert groups == {1, 2, 3, 4}
    # The enemies of a group follow each other in the order in which they were drawn.
    place = 2 * (begun.x[around][:, 5:] > 16.0) + (begun.y[around][:, 5:] > 16.0)
    assert all((np.diff(row) != 0).sum() == len(set(row)) - 1 for row in place.tolist())


def test_units_that_start_together_do_not_coincide():
    begun = starts("protoss_20_vs_23")
    apart = np.hypot(begun.x[:, :, None] - begun.x[:, None], begun.y[:, :, None] - begun.y[:, None])
    assert (apart + 10.0 * np.eye(43)).min() > 1e-6
    assert begun.x.min() >= 0.0 and begun.x.max() < 32.0 and begun.y.min() >= 0.0 and begun.y.max() < 32.0


@pytest.mark.parametrize("both", [False, True])
def test_agents_are_sorted_by_type_and_place_as_in_smacv2(both: bool):
    """SMACv2 numbers types in alphabetical order, and sorts agents by the number, x and y."""
    battle = replace(drawn.battle_named("terran_9_vs_11"), commanded=both)  # type: ignore[type-var]
    begun = jax.tree.map(np.asarray, drawn.start_of(battle)(jax.random.key(5), 200))
    number = np.array([sorted(unit.name for unit in battle.types).index(unit.name) for unit in battle.types])
    for side, x in enumerate([begun.x, 32.0 - begun.x]):
        own = battle.sides[side]
        rows = [
            list(zip(*row, strict=True))
            for row in zip(number[begun.kind[:, own]], x[:, own], begun.y[:, own], strict=True)
        ]
        ordered = [row == sorted(row) for row in rows]
        assert all(ordered) if both or side == 0 else not any(ordered[:50])


def test_each_type_has_its_own_range_and_sight():
    battle = drawn.battle_named("terran_5_vs_5")
    assert battle is not None
    begun = _last(drawn.start_of(battle)(jax.random.key(1), 200))
    stats = battle.stats(begun.kind)
    able = observe.legal(battle, stats, 0, begun)
    legal = np.moveaxis(np.asarray(able), -1, 0)
    obs = np.moveaxis(np.asarray(observe.observations(battle, stats, 0, begun, able)), -1, 0)
    enemies = obs[:, :, 4:44].reshape(200, 5, 5, 8)
    kind = obs[:, :, -3:].argmax(-1)
    for index, (reach, sight) in enumerate([(5.0, 9.0), (6.0, 10.0)]):
        mine = kind == index
        apart = enemies[mine][..., 1] * sight
        seen = enemies[mine][..., 1] > 0.0
        assert (apart[seen] < sight).all() and apart[seen].max() > sight - 1.0
        np.testing.assert_array_equal(legal[mine][:, 6:], seen & (apart <= reach + 1e-5))


def test_names_that_are_none_are_refused():
    for name in ("terran_5_vs", "human_5_vs_5", "terran_0_vs_5"):
        with pytest.raises(InputError, match="There is no map"):
            make(name)
