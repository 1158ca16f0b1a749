"""Exact content and width of everything that actors and critics read."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from shoal.equations.normalise import Running
from shoal.errors import InputError
from shoal.models.sequence import team_input
from shoal.networks.inputs import (
    actor_input,
    critic_input,
    init_inputs,
    normalised,
    observation_features,
    update_inputs,
)
from shoal.spec import Part
from shoal.types import Discrete, EnvSpec, Step

SPEC = EnvSpec("toy", ("a", "b", "c"), (4, 4, 3), 2, Discrete(2), (2, 2, 2), (0, 0, 1), 5, True, novel=(3, 1))
OBS = np.arange(24.0).reshape(2, 3, 4) + 1
STATE = np.array([[100.0, 101.0], [102.0, 103.0]])
ALIVE = np.array([[True, True, False], [False, True, True]])
STEP = Step(
    obs=jnp.array(np.where(ALIVE[..., None], OBS, np.nan), jnp.float32),
    state=jnp.array(STATE, jnp.float32),
    legal=jnp.ones((2, 3, 2), bool),
    alive=jnp.array(ALIVE),
    reward=jnp.zeros((2, 3)),
    discount=jnp.ones((2, 3)),
    first=jnp.zeros(2, bool),
    last=jnp.zeros(2, bool),
)
ID = np.eye(3)


def row(kind: str, with_id: bool, e: int, i: int) -> np.ndarray:
    """What agent i reads in environment e, written out."""
    living = float(ALIVE[e, i])
    return {
        "local": np.concatenate([OBS[e, i] * living, ID[i] if with_id else []]),
        "concat": np.concatenate([OBS[e, j] * float(ALIVE[e, j]) for j in range(3)]),
        "state": STATE[e],
        "agent": np.concatenate([STATE[e] * living, OBS[e, i] * living, ID[i]]),
        "pruned": np.concatenate([STATE[e] * living, [OBS[e, i, 3] * living, OBS[e, i, 1] * living], ID[i]]),
    }[kind]


@pytest.mark.parametrize("with_id", [True, False])
@pytest.mark.parametrize(
    ("kind", "width", "per_agent"),
    [("local", 4, True), ("concat", 12, False), ("state", 2, False), ("agent", 9, True), ("pruned", 7, True)],
)
def test_critic_inputs_hold_exactly_these_features(kind, width, per_agent, with_id):
    """Dead agents' observations are NaN here: they must not show, while their ids stay."""
    source = critic_input(SPEC, kind, with_id)
    features = source.features(STEP)
    width += 3 if with_id and kind == "local" else 0
    assert (source.width, source.per_agent) == (width, per_agent)
    assert features.shape == ((2, 3, width) if per_agent else (2, width))
    for e in range(2):
        for i in range(3):
            np.testing.assert_array_equal(features[e, i] if per_agent else features[e], row(kind, with_id, e, i))


@pytest.mark.parametrize("with_id", [True, False])
def test_actors_read_their_own_observation_and_nothing_of_the_others(with_id):
    source = actor_input(SPEC, with_id)
    assert source.per_agent and source.width == 4 + 3 * with_id
    for e in range(2):
        for i in range(3):
            np.testing.assert_array_equal(source.features(STEP)[e, i], row("local", with_id, e, i))


def test_inputs_with_a_leading_axis_of_time_are_the_same():
    twice = jax.tree.map(lambda x: jnp.stack([x, x]), STEP)
    for kind in ("local", "concat", "state", "agent", "pruned"):
        source = critic_input(SPEC, kind, True)
        np.testing.assert_array_equal(source.features(twice)[1], source.features(STEP))


@pytest.mark.parametrize("kind", ["agent", "pruned"])
def test_a_team_without_ids_reads_no_ids_beside_the_state_either(kind):
    """Otherwise policies for any number of agents could not read the state."""
    with_ids, without = (team_input(SPEC, kind, agent_id) for agent_id in (True, False))
    assert with_ids.width == without.width + 3 and "id" not in {part.kind for part in without.layout.parts}
    np.testing.assert_array_equal(without.features(STEP), with_ids.features(STEP)[..., :-3])


def test_pruned_without_novel_features_is_state_and_id():
    source = critic_input(replace(SPEC, novel=()), "pruned", True)
    np.testing.assert_array_equal(source.features(STEP)[0, 1], [100, 101, 0, 1, 0])
    assert source.width == 5


@pytest.mark.parametrize("kind", ["state", "agent", "pruned"])
def test_a_critic_of_a_missing_state_is_refused(kind):
    with pytest.raises(InputError, match=f"toy has no global state: critic_input '{kind}' needs one"):
        critic_input(replace(SPEC, state_dim=0), kind, True)


@pytest.mark.parametrize("kind", ["local", "concat"])
def test_without_a_state_observations_still_serve(kind):
    assert critic_input(replace(SPEC, state_dim=0), kind, False).features(STEP).shape[0] == 2


def test_an_unknown_input_is_refused_rather_than_taken_for_one(as_users_run):
    unknown: Any = "concatenated"
    with pytest.raises(InputError, match="did you mean 'concat'"):
        critic_input(SPEC, unknown, True)


def test_features_of_small_deviation_get_unit_variance_and_constant_ones_stay_small():
    """Deviations of 0.01 and means up to 5; the last feature is constant until it changes."""
    rng, shape = np.random.default_rng(0), (50, 8)
    obs = np.concatenate([rng.normal([0, 1, 5], 0.01, (*shape, 3, 3)), np.full((*shape, 3, 1), 7.0)], -1)
    obs[..., 2, 3] = 0  # padding
    state = rng.normal([-2, 0], 0.01, (*shape, 2))
    alive = jnp.array(rng.uniform(size=(*shape, 3)) > 0.2)
    seen = STEP._replace(obs=jnp.float32(obs), state=jnp.float32(state), alive=alive)
    inputs = update_inputs(SPEC, init_inputs(SPEC, True), seen)
    got = jax.tree.map(np.asarray, normalised(inputs, seen))
    np.testing.assert_allclose(got.state.std((0, 1)), 1, rtol=1e-2)
    np.testing.assert_allclose(got.obs[np.asarray(alive)].std(0)[:3], 1, rtol=0.12)  # 5² in single precision
    assert np.abs(got.obs[..., 3]).max() < 1e-2
    later = normalised(inputs, seen._replace(obs=seen.obs.at[..., :2, 3].add(0.1)))
    np.testing.assert_array_equal(later.obs[..., :2, 3], 10)
    again = normalised(update_inputs(SPEC, inputs, seen._replace(obs=seen.obs.at[..., :2, 3].add(0.1))), seen)
    np.testing.assert_allclose(again.obs[..., :2, 3], -1, rtol=3e-2)  # two values, seen equally often


def test_agents_of_another_role_are_scaled_apart_and_padding_stays_zero():
    """The last agent has features around 100 where the others have 0, and one feature less."""
    rng = np.random.default_rng(0)
    obs = rng.normal(0, 1, (200, 4, 3, 4)) * [[[1], [1], [7]]] + [[[0], [0], [100]]]
    obs[..., 2, 3] = 0
    seen = STEP._replace(
        obs=jnp.float32(obs), state=jnp.zeros((200, 4, 2)), alive=jnp.array(rng.uniform(size=(200, 4, 3)) > 0.2)
    )
    inputs = update_inputs(SPEC, init_inputs(SPEC, True), seen)
    got = np.asarray(normalised(inputs, seen).obs)
    alive = np.asarray(seen.alive)
    for i, features in ((0, 4), (1, 4), (2, 3)):
        own = got[:, :, i, :features][alive[:, :, i]]
        np.testing.assert_allclose(own.mean(0), 0, atol=0.12)
        np.testing.assert_allclose(own.std(0), 1, atol=0.1)
    np.testing.assert_array_equal(got[..., 2, 3], 0)
    assert isinstance(inputs.obs, Running)
    np.testing.assert_array_equal(inputs.obs.mean[0], inputs.obs.mean[1])
    alike = init_inputs(replace(SPEC, obs_dims=(4, 4, 4), roles=(0, 0, 0)), True).obs
    assert isinstance(alike, Running) and alike.mean.shape == (4,)


@pytest.mark.parametrize("roles", [(0, 0, 0), (0, 0, 1)])
def test_absent_entities_stay_absent_and_their_order_does_not_matter(roles):
    """Two vectors and three entities, each less often there than the one before."""
    parts = (Part((1,), name="own"), Part((3, 2), name="units"), Part((2,), name="rest"))
    spec = replace(SPEC, obs_dims=(9, 9, 9), roles=roles, parts=(parts,) * 3)
    rng = np.random.default_rng(1)
    units = rng.normal([3, -20], [1, 5], (200, 4, 3, 3, 2))
    there = rng.uniform(size=units.shape[:-1]) < [0.9, 0.5, 0.2]
    units[~there] = 0
    rest = rng.normal(0, 9, (200, 4, 3, 3))
    alive = rng.uniform(size=(200, 4, 3)) > 0.3

    def scaled(inputs, units):
        obs = np.concatenate([rest[..., :1], units.reshape(200, 4, 3, 6), rest[..., 1:]], -1)
        seen = STEP._replace(obs=jnp.float32(obs), state=jnp.zeros((200, 4, 2)), alive=jnp.array(alive))
        inputs = inputs or update_inputs(spec, init_inputs(spec, True), seen)
        got = np.asarray(normalised(inputs, seen).obs)
        return inputs, got[..., 1:7].reshape(units.shape), got[..., [0, 7, 8]]

    inputs, got, others = scaled(None, units)
    assert isinstance(inputs.obs, tuple) and not isinstance(inputs.obs, Running)
    assert [part.mean.shape[1:] for part in inputs.obs] == [(1,), (3, 2), (2,)]
    np.testing.assert_array_equal(got[~there], 0)
    for who in ([0, 1, 2],) if roles[2] == 0 else ([0, 1], [2]):
        seen = units[..., who, :, :][(there & alive[..., None])[..., who, :]]
        expected = np.clip((units[..., who, :, :] - seen.mean(0)) / seen.std(0), -10, 10)
        np.testing.assert_allclose(got[..., who, :, :][there[..., who, :]], expected[there[..., who, :]], atol=1e-3)
        np.testing.assert_allclose(others[..., who, :][alive[..., who]].std(0), 1, rtol=2e-2)
    np.testing.assert_allclose(scaled(None, units[..., ::-1, :])[1], got[..., ::-1, :], atol=1e-4)
    np.testing.assert_array_equal(scaled(inputs, units[..., ::-1, :])[1], got[..., ::-1, :])


def test_an_entity_that_never_changes_stays_there():
    """Its features are all 0 after normalisation, by which networks would take it for absent."""
    parts = (Part((2, 3), name="units"),)
    spec = replace(SPEC, obs_dims=(6, 6, 6), roles=(0, 0, 0), parts=(parts,) * 3)
    units = np.zeros((50, 4, 3, 2, 3), np.float32)
    units[..., 0, :] = [1.0, 0.5, 2.0]
    seen = STEP._replace(
        obs=jnp.array(units.reshape(50, 4, 3, 6)), state=jnp.zeros((50, 4, 2)), alive=jnp.ones((50, 4, 3), bool)
    )
    got = np.asarray(normalised(update_inputs(spec, init_inputs(spec, True), seen), seen).obs).reshape(units.shape)
    assert (got[..., 0, :] != 0).all() and np.abs(got).max() < 1e-5
    np.testing.assert_array_equal(got[..., 1, :], 0)


# Rows of bytes as features, against NumPy's own view of the same memory.


IMAGE, SPEED = Part((2, 3, 1), "uint8", "image"), Part((2,), "float32", "speed")


def packed(*arrays: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in arrays])


def test_bytes_become_numbers_whatever_the_order_of_parts() -> None:
    rng = np.random.default_rng(0)
    image, speed = rng.integers(0, 256, (2, 3, 1), dtype=np.uint8), rng.normal(size=2).astype(np.float32)
    spec = toys.busy().spec
    own = ((IMAGE, SPEED), (SPEED, IMAGE), (IMAGE,))
    spec = replace(spec, parts=own, obs_dims=(14, 14, 6), novel=None)
    assert (spec.packed, spec.feature_dims, spec.obs_dim) == (True, (8, 8, 6), 14)
    rows = [packed(image, speed), packed(speed, image), np.pad(packed(image), (0, 8))]
    pixels = image.reshape(-1) / 255
    wanted = np.stack([np.r_[pixels, speed], np.r_[speed, pixels], np.r_[pixels, 0, 0]])
    got = observation_features(spec, jnp.array(np.broadcast_to(np.stack(rows), (5, 3, 14))))
    np.testing.assert_allclose(got, np.broadcast_to(wanted, (5, 3, 8)), rtol=1e-6)


def test_unpacked_rows_of_numbers_are_not_changed() -> None:
    spec = toys.busy().spec
    obs = jnp.ones((4, spec.num_agents, spec.obs_dim))
    assert observation_features(spec, obs) is obs
    alike = replace(spec, parts=tuple((Part((d,)),) for d in spec.obs_dims))
    assert not alike.packed and observation_features(alike, obs) is obs
