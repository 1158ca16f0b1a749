"""A network whose parameters do not depend on how many agents, entities, and actions on entities there are."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shoal
import toys
from shoal.algorithms import get
from shoal.environments.spec_rules import check_spec
from shoal.errors import InputError
from shoal.networks.architecture import Body
from shoal.networks.body import build_body
from shoal.networks.inputs import (
    InputPart,
    Kind,
    Layout,
    critic_input,
    layout_of_agents,
    observation_layout,
    vector_layout,
)
from shoal.options.flags import spec_to_json
from shoal.runs import init_from
from shoal.spec import Discrete, EnvSpec, Part, equal_agents
from shoal.storage.checkpoint import StoredArrays
from shoal.trust.run_file import spec_of
from shoal.types import Scale
from support.small_nets import apply, layer_norm, noise, random

F, D, MOVES = 3, 8, 2
BODY = Body(hidden=(D,), network="universal", entity_heads=2, orthogonal=False)
FIRST = np.zeros((2, 3), bool)


def layout(enemies: int, friends: int = 2) -> Layout:
    return Layout(
        (
            InputPart((enemies, F), name="enemies", target=MOVES),
            InputPart((4,), name="own"),
            InputPart((friends, F), name="friends"),
        )
    )


def shapes(net):
    return jax.tree.map(lambda x: x.shape, jax.eval_shape(net.init, jax.random.key(0)))


def actor(enemies: int, friends: int = 2, more: int = 0, body: Body = BODY):
    return build_body(body, layout(enemies, friends), MOVES + enemies + more, actions=True)


def logits(enemies: int, x, params=None, more: int = 0):
    net = actor(enemies, more=more)
    return np.asarray(apply(net, noise(net) if params is None else params, (), jnp.asarray(x), FIRST)[1])


def observed(enemies: int, seed: int = 1) -> np.ndarray:
    """Random features, of which those of enemies are the same in the order of the enemies."""
    rest = np.array(random(2, 3, 4 + 2 * F, seed=seed))
    return np.concatenate([np.array(random(2, 3, 9 * F))[..., : enemies * F], rest], axis=-1)


def test_permuting_entities_permutes_the_outputs_of_actions_that_target_them():
    x, order = observed(5), [3, 1, 4, 0, 2]
    moved = np.concatenate([x[..., : 5 * F].reshape(2, 3, 5, F)[..., order, :].reshape(2, 3, -1), x[..., 5 * F :]], -1)
    y, z = logits(5, x), logits(5, moved)
    np.testing.assert_allclose(z[..., :MOVES], y[..., :MOVES], atol=2e-5)
    np.testing.assert_allclose(z[..., MOVES:], y[..., MOVES:][..., order], atol=2e-5)
    assert np.abs(np.diff(y[..., MOVES:], axis=-1)).min() > 1e-4


@pytest.mark.parametrize("first", ["enemies", "friends"])
def test_each_set_has_its_own_actions_in_whatever_order_the_parts_are(first: str) -> None:
    """Two sets of unequal sizes: actions 2 and 3 are on enemies, 4 to 6 on friends."""
    count, action = {"enemies": 2, "friends": 3}, {"enemies": 2, "friends": 4}
    order = [first, *(name for name in count if name != first)]
    parts = tuple(InputPart((count[name], F), name=name, target=action[name]) for name in order)
    net = build_body(BODY, Layout((*parts, InputPart((4,), name="own"))), MOVES + 5, actions=True)
    params, x = noise(net), np.array(random(2, 3, 5 * F + 4))
    y = np.asarray(apply(net, params, (), jnp.asarray(x), FIRST)[1])
    start = 0
    for name in order:
        moved, end, a = x.copy(), start + count[name] * F, action[name]
        moved[..., start:end] = np.roll(x[..., start:end].reshape(2, 3, -1, F), 1, axis=-2).reshape(2, 3, -1)
        z, wanted = np.asarray(apply(net, params, (), jnp.asarray(moved), FIRST)[1]), y.copy()
        wanted[..., a : a + count[name]] = np.roll(y[..., a : a + count[name]], 1, axis=-1)
        np.testing.assert_allclose(z, wanted, atol=2e-5)
        start = end
    assert np.abs(np.diff(y[..., MOVES:], axis=-1)).min() > 1e-4


def test_an_entity_that_is_absent_changes_no_other_output():
    x = observed(5)
    wider = np.concatenate([x[..., : 5 * F], np.zeros((2, 3, F), np.float32), x[..., 5 * F :]], axis=-1)
    np.testing.assert_allclose(logits(6, wider)[..., : MOVES + 5], logits(5, x), atol=2e-5)
    wider[..., 5 * F : 6 * F] = 1
    assert np.abs(logits(6, wider)[..., : MOVES + 5] - logits(5, x)).max(-1).min() > 1e-4


def test_actions_after_those_on_entities_are_outputs_of_the_head():
    x, net = observed(3), actor(3, more=2)
    params = noise(net)
    y = logits(3, x, params, more=2)
    kernel, bias = (np.asarray(params["head"][name]) for name in ("kernel", "bias"))
    assert kernel.shape == (D, MOVES + 2 + D)
    changed = params | {"head": {"kernel": kernel, "bias": bias + (np.arange(len(bias)) == MOVES)}}
    np.testing.assert_allclose(logits(3, x, changed, more=2) - y, np.broadcast_to(np.eye(7)[5], y.shape), atol=1e-5)
    changed = params | {"head": {"kernel": kernel, "bias": bias + (np.arange(len(bias)) >= MOVES + 2)}}
    moved = np.abs(logits(3, x, changed, more=2) - y).max((0, 1))
    assert (moved[[0, 1, 5, 6]] < 1e-5).all() and (moved[[2, 3, 4]] > 1e-4).all()


def test_parameters_do_not_depend_on_numbers():
    recurrent = Body(hidden=(D,), network="universal", entity_heads=2, recurrent=4, orthogonal=False)
    assert shapes(actor(5)) == shapes(actor(9, 4))
    assert shapes(actor(5, body=recurrent)) == shapes(actor(9, 4, body=recurrent))
    critics = [build_body(BODY, layout_of_agents(layout(k), range(n)), 1) for k, n in ((5, 4), (9, 7), (3, 1))]
    assert shapes(critics[0]) == shapes(critics[1]) == shapes(critics[2])


def linear(p, x):
    return x @ np.asarray(p["kernel"], np.float64) + np.asarray(p["bias"], np.float64)


def encoded(params, agent: np.ndarray, enemies: int, friends: int) -> tuple[np.ndarray, np.ndarray]:
    """One agent's summary, and its enemies' embeddings, by loops over elements and heads."""
    p = params["encoder"]
    ends = np.cumsum([enemies * F, 4, friends * F])
    theirs, own, ours = agent[: ends[0]].reshape(-1, F), agent[ends[0] : ends[1]], agent[ends[1] :].reshape(-1, F)
    rows = [(0, own, True), *((1, row, row.any()) for row in theirs), *((2, row, row.any()) for row in ours)]
    embed = [p["self"][0], *p["embed"]]
    tokens = [np.tanh(linear(embed[kind], row)) for kind, row, _ in rows]
    present = [bool(seen) for _, _, seen in rows]
    for block in p["blocks"]:
        a, after = block["attention"], []
        for token in tokens:
            query, mixed = linear(a["query"], token), []
            for head in np.split(np.arange(D), 2):
                weights, values = [], []
                for other, seen in zip(tokens, present, strict=True):
                    memory = linear(a["memory"], other)
                    weights.append(np.exp(query[head] @ memory[:D][head] / np.sqrt(D / 2)) * seen)
                    values.append(memory[D:][head])
                mixed.append(np.average(values, axis=0, weights=weights))
            x = layer_norm(token + linear(a["output"], np.concatenate(mixed)), block["attention_norm"])
            x = layer_norm(x + linear(block["second"], np.tanh(linear(block["first"], x))), block["mlp_norm"])
            after.append(x)
        tokens = after
    others = [token for token, seen in zip(tokens[1:], present[1:], strict=True) if seen]
    mean = np.mean(others, axis=0) if others else np.zeros(D)
    return np.concatenate([tokens[0], mean, own]), np.array(tokens[1 : 1 + enemies])


def test_outputs_are_those_of_a_loop_over_elements():
    net, x = actor(3), observed(3)
    x[0, 1, F : 2 * F] = 0  # an enemy that is not in sight
    params = noise(net)
    y = logits(3, x, params)
    for row in np.ndindex(2, 3):
        seen, enemies = encoded(params, x[row].astype(np.float64), 3, 2)
        out = linear(params["head"], np.tanh(linear(params["layers"][0], seen)))
        expected = [*out[:MOVES], *(enemy @ out[MOVES:] for enemy in enemies)]
        np.testing.assert_allclose(y[row], expected, atol=2e-4)


def test_a_critic_of_the_team_reads_the_mean_of_its_agents_where_the_dead_are_zeros():
    net = build_body(BODY, layout_of_agents(layout(2), range(3)), 1)
    params, x = noise(net), np.array(random(2, 3, 3, layout(2).width))
    x[:, :, 1] = 0
    y = np.asarray(apply(net, params, (), jnp.asarray(x.reshape(2, 3, -1)), FIRST)[1])
    for row in np.ndindex(2, 3):
        seen = sum(encoded(params, x[row][i].astype(np.float64), 2, 2)[0] for i in (0, 2)) / 3
        expected = linear(params["head"], np.tanh(linear(params["layers"][0], seen)))
        np.testing.assert_allclose(y[row], expected, atol=2e-4)


def test_a_living_agent_whose_features_are_all_zero_is_not_a_dead_one_for_a_critic_of_the_team():
    """It sees no entity, and its own features are 0, as normalised ones are at their means."""
    spec = equal_agents("game", "unit", 2, obs=2 * F + 4, state=1, actions=3, horizon=5, shared_reward=True)
    spec = replace(spec, parts=((Part((2, F), name="enemies"), Part((4,), name="own")),) * 2)
    source = critic_input(spec, "concat", False)
    net, obs = build_body(BODY, source.layout, 1), jnp.zeros((2, 2 * F + 4)).at[0].set(random(2 * F + 4))
    params = noise(net)
    each = [encoded(params, np.asarray(row, np.float64), 2, 0)[0] for row in obs]
    for alive, seen in ((True, sum(each) / 2), (False, each[0] / 2)):
        step = toys.step_of(spec, obs, 0.0, False, False, alive=jnp.array([True, alive]))
        x = source.features(jax.tree.map(lambda leaf: leaf[None, None], step))
        expected = linear(params["head"], np.tanh(linear(params["layers"][0], seen)))
        np.testing.assert_allclose(apply(net, params, (), x, FIRST[:1, :1])[1][0, 0], expected, atol=2e-4)
    assert np.abs(each[1]).max() > 0.1


def test_what_depends_on_the_number_of_agents_is_refused():
    refused: dict[Kind, str] = {
        "id": "agent_id to False",
        "state": "critic_input concat or local",
        "action": "this critic reads actions: give critics another",  # all agents' or, as ISAC's, only its own
    }
    for kind, said in refused.items():
        with pytest.raises(InputError, match=f"same parameters for any number of agents, and .*{said}"):
            build_body(BODY, layout(2) + vector_layout(3, kind), 1)
    with pytest.raises(InputError, match="such as critic_network mlp"):  # whose ids no option leaves out
        build_body(BODY, layout(2) + vector_layout(3, "id") + vector_layout(3, "action"), 1)
    with pytest.raises(InputError, match="critic_input concat or local"):
        build_body(BODY, vector_layout(3, "state"), 1)
    with pytest.raises(InputError, match=r"reads vectors and sets of entities, not an array of \(3, 3, 1\)"):
        build_body(BODY, layout(2) + Layout((InputPart((3, 3, 1)),)), 1)
    for name, said in {
        "last_action": r"last_action to False \(--no-last-action\)",
        "agent_id": "agent_ids to False",
    }.items():
        with pytest.raises(InputError, match=f"any number of agents and actions, and this input has .*{said}"):
            build_body(BODY, layout(2) + Layout((InputPart((3,), name=name),)), 1)
    parts = (Part((3, F), name="enemies"),)
    rivals = toys.spec_of("toys/rivals", (3 * F,) * 2, Discrete(5), 1, parts=(parts, parts), shared_reward=False)
    mappo = get("mappo")
    with pytest.raises(InputError, match="gives each agent its own reward, so that the team's critic has an output"):
        mappo.make(rivals, mappo.Config(network=BODY, agent_id=False), Scale(2, 2, 1))


def spec(targets, dims: int = 6, shape: tuple[int, ...] = (3, F)) -> EnvSpec:
    parts = (Part(shape, name="enemies"), Part((2,), name="own"))
    return toys.spec_of(
        "toys/targets", (int(np.prod(shape)) + 2,) * 2, Discrete(dims), 1, parts=(parts, parts), targets=targets
    )


def test_targets_are_read_from_a_runs_file_and_reach_the_layout():
    given = spec((("enemies", 2),))
    assert spec_of(spec_to_json(given)) == given
    assert [part.target for part in observation_layout(given).parts] == [2, None]
    before = spec_to_json(spec(()))
    assert "targets" not in before and spec_of(before) == spec(())


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ("enemies", "must be a tuple of names"),
        ((("enemies", -1),), "does not give each row of a part an action of its own below 6"),
        ((("enemies", 4),), "does not give each row of a part an action of its own below 6"),
        ((("enemies", 0), ("enemies", 2)), "does not give each row of a part an action of its own below 6"),
    ],
)
def test_wrong_targets_are_refused(targets, said, as_users_run):
    del as_users_run
    with pytest.raises(InputError, match=said):
        check_spec(spec(targets))


def learner_of(enemies: int, agents: int, network: str):
    """A MAPPO learner of a spec with so many enemies and agents, as shapes with an axis of one seed."""
    parts = (Part((enemies, F), name="enemies"), Part((2,), name="own"))
    given = toys.spec_of(
        "toys/armies", (enemies * F + 2,) * agents, Discrete(MOVES + enemies), 1, parts=(parts,) * agents,
        targets=(("enemies", MOVES),),
    )  # fmt: skip
    body = Body(hidden=(D,), network=network, entity_heads=2, orthogonal=False)
    mappo = get("mappo")
    made = mappo.make(given, mappo.Config(network=body, agent_id=False), Scale(2, 2, 1))
    learner = jax.eval_shape(made.init, jax.random.key(0))
    return given, jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), learner)


@pytest.mark.parametrize("network", ["universal", "entities"])
def test_a_learner_of_another_size_fits_or_the_account_says_why(network):
    (there, before), (here, now) = learner_of(2, 2, network), learner_of(4, 3, network)
    shapes = {name: x.shape for name, x in init_from.arrays_by_name(before).items()}
    transfer = init_from.match_arrays(shapes, now)
    assert transfer.complete == (network == "universal")
    if not transfer.complete:
        source = init_from.Source(
            Path("runs/two"), "mappo in toys/armies, step 4", there, StoredArrays(Path("runs/two"), 4, {}, {}), {}
        )
        said = init_from.account(source, transfer, here)
        assert (
            "actor.head.kernel is 1 × 8 × 6 here and 1 × 8 × 4 there: there are 6 actions here and 4 there, and only "
            "network 'universal' has no output of its own for each."
        ) in said


@pytest.mark.slow
def test_a_policy_of_a_small_map_plays_a_larger_one_as_it_is(tmp_path):
    flags = {
        "network": "universal", "agent_id": False, "critic_input": "concat", "hidden": (8,), "orthogonal": False,
        "entity_heads": 2, "recurrent": None, "num_envs": 2, "rollout_length": 4, "epochs": 1, "minibatches": 1,
        "eval_episodes": 2, "tensorboard": False, "devices": 1,
    }  # fmt: skip
    small = shoal.train("mappo", "skirmish/3m", steps=16, folder=tmp_path / "small", **flags)
    frozen = {"init_from": small, "freeze": ("actor",), "steps": 1}
    large = shoal.train("mappo", "skirmish/5m_vs_6m", folder=tmp_path / "large", **flags, **frozen)
    actors = [jax.tree.leaves(run._learner().policy.actor) for run in (small, large)]
    assert all((a == b).all() for a, b in zip(*actors, strict=True))
    obs = np.random.default_rng(0).random((5, large.spec.obs_dim))
    assert shoal.load(tmp_path / "large").act(list(obs), legal=np.ones((5, 12), bool)).shape == (5,)
