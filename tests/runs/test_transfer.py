"""What a new learner takes from an earlier one, for learners of every algorithm; nothing is trained."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal import algorithms
from shoal.equations.normalise import Running
from shoal.options.flags import override
from shoal.runs.init_from import (
    UNUSED,
    Transfer,
    arrays_by_name,
    match_arrays,
    parts_of_account,
    with_arrays_of,
    words_of_array,
)
from shoal.sides.past_selves import against_past
from shoal.sides.reward_normalisation import normalise_rewards
from shoal.spec import EnvSpec
from shoal.types import Discrete, Learner, Scale
from support.selection import quick

SPEC = EnvSpec(
    name="toy",
    agents=("a", "b", "c"),
    obs_dims=(4, 4, 4),
    state_dim=5,
    action=Discrete(2),
    action_dims=(2, 2, 2),
    roles=(0, 0, 1),
    horizon=6,
    shared_reward=True,
)
QUICK = ("coma", "hasac", "maddpg", "mappo", "qmix")
"""With and without target networks, of critics, of actors too, and of a mixing net."""
PAIR = replace(SPEC, agents=("a", "b"), obs_dims=(4, 4), action_dims=(2, 2), roles=(0, 1))


@cache
def shapes(name: str, spec: EnvSpec = SPEC, seeds: int = 2, scaled: bool = False, **flags: Any) -> Learner:
    """The learner of an algorithm as ShapeDtypeStructs [S, ...]."""
    config = override(algorithms.get(name).Config(), {"hidden": (3,), "orthogonal": False, "minibatches": 1} | flags)
    algorithm = algorithms.get(name).make(spec, config, Scale(4, 16, 10))
    algorithm = normalise_rewards(algorithm, spec, 0.9, 5.0) if scaled else algorithm
    return jax.eval_shape(jax.vmap(algorithm.init), jax.random.split(jax.random.key(0), seeds))


def learner(like: Learner, seed: int) -> Learner:
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.integers(1, 99, x.shape).astype(x.dtype)), like)


def moved(there: Learner, here: Learner) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], Transfer, Learner]:
    """Arrays by name, of the earlier learner and of the new one, after the transfer."""
    before, new = learner(there, 1), learner(here, 2)
    values = {name: np.asarray(x) for name, x in arrays_by_name(before).items()}
    transfer = match_arrays({name: x.shape for name, x in values.items()}, here)
    after = with_arrays_of(new, transfer, values)
    assert jax.tree.structure(after) == jax.tree.structure(new)
    for x, y in zip(*map(jax.tree.leaves, (after.optimiser, new.optimiser)), strict=True):
        np.testing.assert_array_equal(x, y)
    fresh = {name: np.asarray(x) for name, x in arrays_by_name(new).items()}
    found = {name: np.asarray(x) for name, x in arrays_by_name(after).items()}
    untouched = {name for name in found if (found[name] == fresh[name]).all()}
    assert {"updates"} <= untouched and not untouched & set(transfer.taken)
    assert set(found) - untouched == set(transfer.taken) | {
        x for x, y in transfer.copies.items() if y in transfer.taken
    }
    return values, found, transfer, after


@pytest.mark.parametrize("name", quick([*algorithms.NAMES, "maddpg+iddpg", "mappo+qmix"], *QUICK, "mat", "mappo+qmix"))
def test_the_same_learner_is_taken_whole(name: str) -> None:
    flags = {"maddpg": {"policies": "inferred", "reward_norm": "scale"}, "mapg": {"value_norm": "running"}}
    like = shapes(name, normalise_inputs=True, **flags.get(name, {}))
    values, found, transfer, after = moved(like, like)
    assert transfer.complete
    kept_new = {x for x in found if x.split("/")[-1] in ("epsilon", "noise", "steps", "critic_steps", "updates")}
    kept_new |= {x for x in found if "coefficients" in x or "/optimiser/" in x or "/noted/" in x}
    assert set(transfer.taken) == set(found) - kept_new - set(transfer.copies)
    assert all((found[x] == values[x]).all() for x in transfer.taken)
    assert all((found[x] == found[y]).all() for x, y in transfer.copies.items())
    scales = [x for x in jax.tree.leaves(after, is_leaf=lambda x: isinstance(x, Running)) if isinstance(x, Running)]
    assert len(scales) == sum(name.endswith("/mean") for name in transfer.taken) > 0


@pytest.mark.parametrize("name", quick([*algorithms.NAMES, "maddpg+iddpg"], *QUICK))
def test_target_networks_follow_what_they_are_copies_of_at_the_start(name: str) -> None:
    flags = {"policies": "inferred"} if name == "maddpg" else {}
    config = override(algorithms.get(name).Config(), {"hidden": (3,), "orthogonal": False, "minibatches": 1} | flags)
    algorithm = algorithms.get(name).make(SPEC, config, Scale(4, 16, 10))
    like = jax.eval_shape(algorithm.init, jax.random.key(0))
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), like)
    copies = match_arrays({}, one).copies
    assert {x for x in arrays_by_name(like) if "/target/" in x} == set(copies)
    if not copies:
        return
    found = arrays_by_name(jax.jit(algorithm.init)(jax.random.key(3)))
    for x, y in copies.items():
        np.testing.assert_array_equal(found[x], found[y])


def test_new_seeds_take_old_seeds_counted_round() -> None:
    values, found, transfer, _ = moved(shapes("qmix", seeds=2), shapes("qmix", seeds=5))
    for name in transfer.taken:
        assert (found[name] == values[name][[0, 1, 0, 1, 0]]).all()
    for name in transfer.copies:
        assert (found[name] == found[transfer.copies[name]]).all()


def test_one_shared_policy_starts_several() -> None:
    local = {"agent_id": False, "critic_input": "local"}
    here = shapes("mappo", sharing="independent", **local)
    values, found, transfer, _ = moved(shapes("mappo", **local), here)
    assert transfer.complete
    for name in transfer.taken:
        assert found[name].shape[1] == 3 and values[name].shape[1] == 1
        assert (found[name] == values[name]).all()


def test_several_policies_do_not_start_one_or_another_number() -> None:
    three, two = shapes("ippo", sharing="independent"), shapes("ippo", PAIR, sharing="independent")
    shared = shapes("ippo", agent_id=False)
    for there, here in ((three, shared), (three, two), (two, three)):
        transfer = match_arrays({name: x.shape for name, x in arrays_by_name(there).items()}, here)
        assert not transfer.taken and transfer.networks == 0
        assert transfer.left["policy/actor/head/kernel"][0] != transfer.left["policy/actor/head/kernel"][1]


def test_shared_policies_start_runs_with_another_number_of_agents() -> None:
    with_id, without = ({"agent_id": known, "critic_input": "local"} for known in (True, False))
    assert match_arrays(*_of(shapes("mappo", PAIR, **without), shapes("mappo", **without))).complete
    transfer = match_arrays(*_of(shapes("mappo", PAIR, **with_id), shapes("mappo", **with_id)))
    first = {"policy/actor/layers/0/kernel", "critic/layers/0/kernel"}
    assert {x for x, (here, there) in transfer.left.items() if here != there} == first
    assert transfer.left["policy/actor/layers/0/kernel"] == ((1, 7, 3), (1, 6, 3))
    assert "policy/actor/layers/0/bias" in transfer.left  # a layer is taken whole, or not at all
    assert {"policy/actor/head/kernel", "critic/head/kernel", "statistics/value/mean"} <= transfer.taken.keys()


def test_an_algorithm_takes_another_ones_actors() -> None:
    transfer = moved(shapes("ippo"), shapes("mappo"))[2]
    assert {words_of_array(x) for x in transfer.taken if x.startswith("policy/")} == {
        "actor.head.bias", "actor.head.kernel", "actor.layers.0.bias", "actor.layers.0.kernel"
    }  # fmt: skip
    assert transfer.left.keys() >= {"critic/layers/0/kernel"}
    _, _, from_iql, _ = moved(shapes("iql"), shapes("qmix"))
    assert all(there is None and x.startswith("critic/") for x, (_, there) in from_iql.left.items())
    assert set(from_iql.copies.values()) & set(from_iql.taken)


@pytest.mark.parametrize(("there", "here"), [("running", "none"), ("none", "running")])
def test_a_critics_last_layer_stays_with_the_scale_of_its_values(there: str, here: str) -> None:
    _, _, transfer, _ = moved(shapes("mappo", value_norm=there), shapes("mappo", value_norm=here))
    assert transfer.rescaled == ("critic/head/bias", "critic/head/kernel") and not transfer.left
    assert "critic/layers/0/kernel" in transfer.taken and not [x for x in transfer.taken if x.startswith("statistics")]
    assert match_arrays(*_of(shapes("mappo", value_norm="popart"), shapes("mappo"))).complete  # the same scale


def test_a_scale_is_not_taken_without_the_last_layer() -> None:
    own = replace(SPEC, shared_reward=False)
    _, _, transfer, _ = moved(shapes("mappo", SPEC), shapes("mappo", own))  # one output, and one for each agent
    assert "critic/head/kernel" in transfer.left and "statistics/value/mean" not in transfer.taken


def test_normalisers_that_only_one_run_has_are_named() -> None:
    plain, normal = shapes("mappo"), shapes("mappo", normalise_inputs=True)
    for there, here in ((plain, normal), (normal, plain)):
        transfer = match_arrays(*_of(there, here))
        assert transfer.units == ("policy/inputs/obs", "policy/inputs/state") and not transfer.left
    for there, here in ((plain, shapes("mappo", scaled=True)), (shapes("mappo", scaled=True), plain)):
        transfer = match_arrays(*_of(there, here))  # the scale of values is found inside the other statistics
        assert transfer.units == ("statistics/returns",) and not transfer.left and not transfer.rescaled


@pytest.mark.parametrize(
    ("flags", "lost"),
    [({"recurrent": 3}, "actor.gru."), ({"hidden": (3, 3)}, "actor.layers.1."), ({"layer_norm": True}, "actor.norms.")],
)
def test_layers_that_the_new_networks_lack_are_named(flags: dict[str, Any], lost: str) -> None:
    plain = {"layer_norm": False, "recurrent": None}
    there, here = _of(shapes("mappo", **(plain | flags)), shapes("mappo", **plain))
    transfer = match_arrays(there, here)
    assert not transfer.left and not transfer.complete
    named = parts_of_account(transfer)["not_taken"]
    assert any(lost in name for name in named) and {one["reason"] for one in named.values()} == {UNUSED}
    assert {x for x in there if x.startswith("policy/actor")} == {
        x for x in (*transfer.taken, *transfer.unused) if x.startswith("policy/actor")
    }


def test_the_pool_of_past_selves_begins_with_what_is_taken() -> None:
    config = override(algorithms.get("ippo").Config(), {"hidden": (3,), "minibatches": 1, "normalise_inputs": True})
    algorithm = algorithms.get("ippo").make(SPEC, config, Scale(4, 16, 10))
    algorithm = against_past(algorithm, SPEC, (0,), 2, 5, 0.5, True)
    here = jax.eval_shape(jax.vmap(algorithm.init), jax.random.split(jax.random.key(0), 2))
    values, found, transfer, _ = moved(shapes("ippo", normalise_inputs=True), here)
    assert transfer.complete and "statistics/statistics/value/mean" in transfer.taken
    for name in ("actor/head/kernel", "inputs/obs/mean"):
        pool = found[f"statistics/pool/{name}"]
        assert pool.shape[1] == 2 and (pool == values[f"policy/{name}"][:, None]).all()


def test_policies_are_taken_without_critics() -> None:
    there, here = _of(shapes("qmix", normalise_inputs=True), shapes("qmix", normalise_inputs=True, reward_norm="scale"))
    transfer = match_arrays({name: x for name, x in there.items() if name.startswith("policy/")}, here)
    assert all(x.startswith("critic/") for x in transfer.left) and transfer.units == ()
    assert {x.split("/")[1] for x in transfer.taken} == {"actor", "inputs"}


def test_parameters_are_named_as_users_name_them() -> None:
    assert words_of_array("policy/1/actor/layers/0/kernel") == "side2.actor.layers.0.kernel"
    assert words_of_array("critic/0/head/bias") == "side1.critic.head.bias"
    assert words_of_array("statistics/value/mean") == "statistics.value.mean"


def _of(there: Learner, here: Learner) -> tuple[dict[str, tuple[int, ...]], Learner]:
    return {name: x.shape for name, x in arrays_by_name(there).items()}, here
