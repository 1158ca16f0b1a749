"""Exported models do what the policies do, over episodes with the state that they return.

The oracle is :meth:`shoal.deploy.Policies.act`, which shares no code with the translation.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest

import deploy_onnx
import toys
from shoal.algorithms import NAMES, get
from shoal.deploy import Policies
from shoal.environments import registry
from shoal.environments.interface import acted
from shoal.environments.wrappers import Wrapping, change_of
from shoal.errors import InputError
from shoal.export.function import Port, policy_function
from shoal.export.onnx import to_onnx
from shoal.export.program import traced
from shoal.options.flags import check_names, override
from shoal.runs.build import SavedOpponents, acting_algorithm, opponents_in
from shoal.spec import Box, Discrete, EnvSpec, Part
from shoal.training.settings import Settings

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL: dict[str, Any] = {"hidden": (8,), "orthogonal": False}
PICTURE = (Part((6, 5, 2), "uint8", "screen"),)
LIGHTS = toys.spec_of("toys/lights", (60, 60), Discrete(3), 1, parts=(PICTURE, PICTURE))
MIXED = (Part((4, 4, 1), "uint8", "screen"), Part((2,), "float32", "speed"))
SPEEDS = toys.spec_of("toys/speeds", (24, 24), Discrete(3), 1, parts=(MIXED, MIXED))
ROWS = (Part((4, 3), "float32", "units"), Part((2,), "float32", "own"))
UNITS = toys.spec_of("toys/units", (14, 14), Discrete(3), 1, parts=(ROWS, ROWS))
ENEMIES = toys.spec_of("toys/enemies", (14, 14), Discrete(6), 1, parts=(ROWS, ROWS), targets=(("units", 1),))
ARMS = toys.spec_of("toys/arms", (4, 3), Box(2, -2.0, 1.0), 1)
STEPS = 5


@cache
def policies(algorithm: str, spec: EnvSpec, wrapping: Wrapping | None = None, **flags: Any) -> Policies:
    """An untrained team whose parameters are far from zero, so that its actions differ."""
    module = get(algorithm)
    config = module.Config()
    check_names(flags, config)
    seen = change_of(spec, wrapping or Wrapping()).spec
    made = module.make_policy(seen, override(config, flags))
    policy = jax.jit(made.init)(jax.random.key(3)).policy
    draws = np.random.default_rng(0)
    policy = policy._replace(actor=jax.tree.map(lambda x: x + 0.3 * draws.normal(size=x.shape), policy.actor))
    policy = jax.tree.map(lambda x: np.asarray(x, np.float32) if np.asarray(x).dtype == np.float64 else x, policy)
    return Policies(seen, made, policy, wrapping=wrapping)


def observations(spec: EnvSpec, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Observations [N, O] with padding at 0, and legal actions [N, A], of one timestep after the other."""
    draws, (n, width) = np.random.default_rng(seed), (spec.num_agents, spec.action.width)
    while True:
        if spec.packed:
            obs = draws.integers(0, 256, (n, spec.obs_dim)).astype(np.uint8)
            if spec is SPEEDS:
                numbers = np.array([[0.0, -1.5e-3], [draws.normal(), -1e-40]], np.float32)
                obs[:, 16:] = numbers.view(np.uint8).reshape(n, -1)
        else:
            obs = draws.normal(size=(n, spec.obs_dim)).astype(np.float32)
        obs[np.arange(spec.obs_dim) >= np.array(spec.obs_dims)[:, None]] = 0
        legal = np.arange(width) < np.array(spec.action_dims)[:, None]
        if isinstance(spec.action, Discrete):
            legal &= draws.random((n, width)) < 0.7
            legal[:, 0] = True
        yield obs, legal


class Model:
    """A model with the state that it keeps, for a batch of copies of one episode."""

    def __init__(self, path: Path, batch: int = 3):
        self.about = json.loads(path.with_name(f"{path.name}.json").read_text("utf-8"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.batch, self.first = batch, True
        shapes = {port["name"]: (port["shape"][1:], port["dtype"]) for port in self.about["inputs"]}
        self.state = {name: np.zeros((batch, *shapes[name][0]), shapes[name][1]) for name in self.about["state"]}

    def act(self, **given: np.ndarray) -> dict[str, np.ndarray]:
        """The outputs for the given rows, each repeated over the batch; the state is kept for the next call."""
        names = [port["name"] for port in self.about["inputs"]]
        rows = {name: np.stack([x] * self.batch) for name, x in given.items() if name in names}
        if "first" in names:
            rows["first"] = np.full(self.batch, self.first)
        outputs = [port["name"] for port in self.about["outputs"]]
        found: dict[str, Any] = dict(zip(outputs, self.session.run(outputs, rows | self.state), strict=True))
        self.first, self.state = False, {name: found[after] for name, after in self.about["state"].items()}
        for name, x in found.items():
            neighbours = np.stack([x[0]] * self.batch)
            np.testing.assert_allclose(x, neighbours, rtol=1e-6, atol=1e-6, err_msg=f"{name} depends on its neighbours")
        return found


def check_same(team: Policies, folder: Path) -> Model:
    """Compare the order of inputs and outputs with the description's, and two episodes, the second after a reset."""
    model = Model(team.export(folder / "policy.onnx"))
    for part, found in (("inputs", model.session.get_inputs()), ("outputs", model.session.get_outputs())):
        assert [port["name"] for port in model.about[part]] == [port.name for port in found]
    draws, spec = observations(team.spec, 1), team.spec
    state = np.random.default_rng(2).normal(size=(STEPS, spec.state_dim)).astype(np.float32)
    acted = set()
    for _ in range(2):
        team.reset()
        model.first = True
        for t in range(STEPS):
            obs, legal = next(draws)
            found = model.act(observation=obs, legal=legal, alive=np.ones(spec.num_agents, bool), state=state[t])
            expected = team.act(obs, legal, state=state[t])
            if isinstance(spec.action, Discrete):
                np.testing.assert_array_equal(found["action"][0], expected)
            else:
                np.testing.assert_allclose(found["action"][0], expected, atol=1e-5)
            if "probabilities" in found:
                np.testing.assert_allclose(found["probabilities"][0].sum(-1), 1.0, rtol=1e-5)
                assert (found["probabilities"][0][~legal] == 0).all() or not team._wrapping.action_mask
                possible = np.where(legal, found["probabilities"][0], -1.0)
                np.testing.assert_array_equal(possible.argmax(-1)[legal.all(-1)], expected[legal.all(-1)])
            acted.add(expected.tobytes())
    assert len(acted) > 1, "the team always does the same"
    return model


CHEAP = ("mappo", "qmix", "mat")


@pytest.mark.parametrize("name", [pytest.param(x, marks=() if x in CHEAP else pytest.mark.slow) for x in NAMES])
def test_a_model_acts_as_its_team(name: str, tmp_path: Path) -> None:
    team = policies(name, registry.make("mpe/simple_speaker_listener").spec, **SMALL)
    model = check_same(team, tmp_path)
    assert ("alive" in [port["name"] for port in model.about["inputs"]]) == (
        name in ("commnet", "mat", "sable", "tarmac")
    )


def of_sides(
    name: str, spec: EnvSpec, opponents: SavedOpponents | None = None, side: tuple[str, ...] = ("1", "2"), **flags: Any
) -> Policies:
    """As :func:`policies`, of an algorithm for each side, or of the agents of ``side`` beside opponents."""
    settings = Settings()
    if opponents is not None:
        settings = override(settings, {"opponents": "saved", "side": side})
    config = override(get(name).Config(), SMALL | flags)
    made = acting_algorithm(name, spec, config, settings, opponents)
    draws = np.random.default_rng(0)

    def moved(x: Any) -> np.ndarray:
        return np.asarray(x + 0.3 * draws.normal(size=x.shape), np.float32)

    policy = jax.jit(made.init)(jax.random.key(3)).policy
    several = type(policy) is tuple
    parts = [one._replace(actor=jax.tree.map(moved, one.actor)) for one in (policy if several else (policy,))]
    return Policies(spec, made, tuple(parts) if several else parts[0])


def saved(name: str, spec: EnvSpec, **flags: Any) -> SavedOpponents:
    """The team of :func:`policies` as opponents."""
    config, made = override(get(name).Config(), SMALL | flags), policies(name, spec, **SMALL, **flags)
    one = jax.tree.map(lambda x: np.asarray(x)[None], made._learner.policy)
    return SavedOpponents(name, config, override(Settings(), {"separate_sides": False}), one, None)


SPACES = [[["box", [dim]], ["index", 5, 0]] for dim in (16, 16, 16, 14)]
TAG = replace(registry.make("mpe/simple_tag").spec, interface=json.dumps({"kind": "parallel", "agents": SPACES}))
SIDES: dict[str, Callable[[], Policies]] = {
    "algorithms": lambda: of_sides("mappo+ippo", TAG),
    "algorithms of scattered agents": lambda: of_sides("mappo+iql", TAG, sides=(2, 1, 2, 1)),
    "competing teams": lambda: of_sides("qmix", TAG),
    "competing sequences": lambda: of_sides("mat", TAG),
    "a script": lambda: of_sides("mappo", TAG, opponents_in("constant", TAG)),
    "a saved team": lambda: of_sides("mappo", TAG, saved("mappo", TAG)),
    "a saved team with a memory": lambda: of_sides(
        "mappo", TAG, saved("ippo", TAG, recurrent=4, normalise_inputs=True)
    ),
}
QUICK_SIDES = ("algorithms of scattered agents", "competing teams", "a script")


@pytest.mark.parametrize("name", [pytest.param(x, marks=() if x in QUICK_SIDES else pytest.mark.slow) for x in SIDES])
def test_sides_and_opponents_are_exported(name: str, tmp_path: Path) -> None:
    check_same(SIDES[name](), tmp_path)


ALONE: dict[str, tuple[Callable[[], Policies], int]] = {
    "beside random play": (lambda: of_sides("mappo", TAG, opponents_in("random", TAG), ("0", "2")), 2),
    "beside a sequence model": (lambda: of_sides("mat+mappo", TAG, sides=(2, 1, 2, 1)), 2),
    "beside a saved sequence model": (lambda: of_sides("mappo", TAG, saved("mat", TAG)), 1),
    "a saved one": (lambda: of_sides("mat", TAG, saved("ippo", TAG, recurrent=4)), 3),
}


@pytest.mark.parametrize("name", ALONE)
def test_an_agent_acts_alone_whatever_acts_for_the_other_sides(name: str, tmp_path: Path) -> None:
    """As in the team, and its model has neither the others' observations nor their recurrent states."""
    made, i = ALONE[name]
    team = made()
    alone, spec = team.agent(i), team.spec
    model = Model(team.export(tmp_path / "policy.onnx", agent=i))
    assert len(model.state) == (name == "a saved one")
    draws, acted = observations(spec, 1), set()
    for _ in range(STEPS):
        obs, legal = next(draws)
        wanted = team.act(obs, legal, state=np.zeros(spec.state_dim))[i]
        own, mask = obs[i, : spec.obs_dims[i]], legal[i, : spec.action_dims[i]]
        found = model.act(observation=own, legal=mask, alive=np.ones((), bool))
        assert alone.act(own, mask) == wanted and (found["action"] == wanted).all()
        acted.add(int(wanted))
        possible = np.where(mask, found["probabilities"][0], -1.0)
        assert possible.argmax() == wanted or not mask.all()
    assert len(acted) > 1, "the agent always does the same"


def test_an_agent_beside_others_that_read_more_is_told_apart_from_them() -> None:
    team = of_sides("mappo", TAG, saved("mat", TAG))
    with pytest.raises(InputError, match=r"agent_0 does not act alone: its policy reads all agents' observations"):
        team.agent("agent_0")


@pytest.mark.parametrize("recurrent", [None, 4])
def test_opponents_with_a_memory_are_told_who_is_alive(recurrent: int | None) -> None:
    """The statistics of their inputs make a dead agent's zeros something else in their recurrent states."""
    team = of_sides("mappo", TAG, saved("ippo", TAG, recurrent=recurrent, normalise_inputs=True))
    function = policy_function(team._trained_for, team._algorithm, team._learner.policy)
    assert ("alive" in function.inputs) == (recurrent is not None)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_arrays_are_stacked_along_an_axis(axis: int) -> None:
    """JAX's own ``stack``, as well as the rows of a loop."""
    port = Port((4,), "float32", (), "")
    program = traced(lambda given: {"y": jnp.stack([given["x"], given["x"] + 1], axis)}, {"x": port})
    session = onnxruntime.InferenceSession(to_onnx(program, "stack", {}), providers=["CPUExecutionProvider"])
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(session.run(["y"], {"x": x})[0], np.stack([x, x + 1], axis))


NETS: dict[str, tuple[str, EnvSpec, Wrapping | None, dict[str, Any]]] = {
    "gru": ("mappo", UNITS, None, {"recurrent": 4, "normalise_inputs": True, "layer_norm": True, **SMALL}),
    "lstm": ("qmix", UNITS, None, {"recurrent": 4, "cell": "lstm", **SMALL}),
    "own parameters by role": ("happo", UNITS, None, {"sharing": (0, 0), "activation": "gelu", **SMALL}),
    "entities": ("ippo", UNITS, None, {"network": "entities", "entity_heads": 2, "normalise_inputs": True, **SMALL}),
    "actions from entities": (
        "mappo", ENEMIES, None, {"network": "universal", "entity_heads": 2, "agent_id": False, "recurrent": 4, **SMALL}
    ),
    "convolutions": ("ippo", LIGHTS, None, {"channels": (3, 4), **SMALL}),
    "residual convolutions": ("ippo", LIGHTS, None, {"network": "impala", "channels": (3, 4), **SMALL}),
    "images beside numbers": ("ippo", SPEEDS, None, {"channels": (3,), **SMALL}),
    "gaussian": ("mappo", ARMS, None, SMALL),
    "squashed gaussian": ("happo", ARMS, None, {"squash": True, "recurrent": 3, **SMALL}),
    "deterministic": ("maddpg", ARMS, None, SMALL),
    "sequence of continuous actions": ("mat", ARMS, None, SMALL),
    "stacked frames, last actions and ids": (
        "ippo", UNITS, Wrapping(frame_stack=3, last_action=True, agent_ids=True, action_mask=False), SMALL
    ),
    "blind": ("ippo", UNITS, Wrapping(blind=True), {"agent_id": True, **SMALL}),
}  # fmt: skip
QUICK = ("gru", "gaussian", "stacked frames, last actions and ids")


@pytest.mark.parametrize("name", [pytest.param(x, marks=() if x in QUICK else pytest.mark.slow) for x in NETS])
def test_every_kind_of_network_and_wrapper_is_exported(name: str, tmp_path: Path) -> None:
    algorithm, spec, wrapping, flags = NETS[name]
    model = check_same(policies(algorithm, spec, wrapping, **flags), tmp_path)
    assert bool(model.state) == (bool(flags.get("recurrent")) or wrapping is not None)


COMING: dict[str, tuple[Wrapping | None, dict[str, Any]]] = {
    "last actions": (Wrapping(last_action=True), {}),
    "recurrent with ids": (Wrapping(agent_ids=True), {"recurrent": 4}),
    "recurrent with statistics": (None, {"recurrent": 4, "normalise_inputs": True}),
}


@pytest.mark.parametrize("name", COMING)
def test_an_agent_that_joins_later_or_comes_back_acts_as_in_training(name: str, tmp_path: Path) -> None:
    wrapping, flags = COMING[name]
    made = policies("mappo", ARMS, wrapping, **flags, **SMALL)
    policy = made._learner.policy
    policy = policy._replace(inputs=jax.tree.map(lambda x: x + 1, policy.inputs))  # statistics that do something
    team = Policies(made._trained_for, made._algorithm, policy, wrapping=wrapping)
    model, alone = (Model(team.export(tmp_path / f"{agent}.onnx", agent=agent)) for agent in (None, 1))
    apart, draws = team.agent(1), observations(ARMS, 1)
    for there in (False, False, True, True, False, True, True):
        obs, legal = next(draws)
        alive = np.array([True, there])
        obs[~alive] = 0
        expected = team.act(obs, legal, alive=alive)
        found = model.act(observation=obs, legal=legal, alive=alive)["action"][0]
        np.testing.assert_allclose(found[alive], expected[alive], atol=1e-5)
        one = alone.act(observation=obs[1, : ARMS.obs_dims[1]], legal=legal[1], alive=alive[1])["action"][0]
        separate = apart.act(obs[1, : ARMS.obs_dims[1]], legal[1, : ARMS.action_dims[1]], alive=there)
        if there:
            np.testing.assert_allclose(one, expected[1], atol=1e-5)
            np.testing.assert_allclose(separate, expected[1, : ARMS.action_dims[1]], atol=1e-5)


def test_squashed_actions_can_be_drawn(tmp_path: Path) -> None:
    """The model's normal and the formula of the page on export give the policy's action and its spread."""
    team = policies("isac", ARMS, **SMALL)
    model = Model(team.export(tmp_path / "policy.onnx"))
    obs, legal = next(observations(ARMS, 1))
    found = {name: x[0] for name, x in model.act(observation=obs, legal=legal).items()}
    mean, std, low, high = found["normal_mean"], found["normal_std"], -2.0, 1.0  # the box of ARMS
    assert np.isnan(mean).tolist() == np.isnan(std).tolist() == (~legal).tolist()

    def squashed(x: np.ndarray) -> np.ndarray:
        return (low + (high - low) * (np.tanh(x) + 1) / 2)[legal]

    np.testing.assert_allclose(squashed(mean), team.act(obs, legal)[legal], atol=1e-5)
    np.testing.assert_allclose(squashed(mean), found["mean"][legal], atol=1e-5)
    np.testing.assert_allclose((squashed(mean + std) - squashed(mean - std)) / 2, found["std"][legal], atol=1e-5)
    assert np.ptp(std[legal]) > 0.01


def test_one_agents_model_has_no_padding_and_acts_as_in_the_team(tmp_path: Path) -> None:
    spec = toys.spec_of("toys/unequal", (4, 3), Discrete(3), 1, action_dims=(3, 2))
    team = policies("mappo", spec, recurrent=4, **SMALL)
    models = [Model(team.export(tmp_path / "new" / f"{i}.onnx", agent=name)) for i, name in enumerate(spec.agents)]
    assert [model.about["agents"][0]["name"] for model in models] == list(spec.agents)
    assert [port["shape"][1:] for port in models[1].about["inputs"]] == [[3], [2], [], [4]]
    draws = observations(spec, 1)
    for _ in range(STEPS):
        obs, legal = next(draws)
        expected = team.act(obs, legal)
        for i, model in enumerate(models):
            found = model.act(observation=obs[i, : spec.obs_dims[i]], legal=legal[i, : spec.action_dims[i]])
            assert found["action"][0] == expected[i]
            assert found["probabilities"].shape == (3, spec.action_dims[i])


def test_inputs_are_those_that_the_policy_reads(tmp_path: Path) -> None:
    spec = UNITS
    plain = policies("mappo", spec, **SMALL)
    function = policy_function(spec, plain._algorithm, plain._learner.policy)
    assert list(function.inputs) == ["observation", "legal"]
    assert list(function.outputs) == ["action", "probabilities"]
    lone = policies("mappo", toys.spec_of("toys/lone", (3,), Discrete(3), 1), Wrapping(last_action=True), **SMALL)
    function = policy_function(lone._trained_for, lone._algorithm, lone._learner.policy, lone._wrapping)
    assert "last_action" in function.inputs and "alive" not in function.inputs


def test_what_cannot_be_exported_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    team = policies("mat", registry.make("mpe/simple_speaker_listener").spec, **SMALL)
    with pytest.raises(InputError, match=r"must end in \.onnx; the description is written beside it as \.onnx\.json"):
        team.export(tmp_path / "policy.pt")
    with pytest.raises(InputError, match="does not act alone: its policy reads all agents' observations"):
        team.export(tmp_path / "policy.onnx", agent=0)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"Export to ONNX needs onnx: pip install 'onnx>="):
        policies("ippo", UNITS, **SMALL).export(tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_stablehlo_is_read_by_jax_and_computes_the_same(tmp_path: Path) -> None:
    team = policies("mappo", UNITS, recurrent=4, **SMALL)
    path = team.export(tmp_path / "policy.stablehlo", format="stablehlo")
    about = json.loads((tmp_path / "policy.stablehlo.json").read_text("utf-8"))
    assert (about["format"], about["jax"]) == ("stablehlo", jax.__version__)
    call = jax.export.deserialize(bytearray(path.read_bytes())).call
    names = {port["name"]: port for port in about["inputs"]}
    state = {name: np.zeros((2, *names[name]["shape"][1:]), np.float32) for name in about["state"]}
    draws, first = observations(UNITS, 1), True
    for _ in range(STEPS):
        obs, legal = next(draws)
        given = {"observation": np.stack([obs] * 2), "legal": np.stack([legal] * 2), "first": np.full(2, first)}
        found = call(given | state)
        np.testing.assert_array_equal(found["action"][1], team.act(obs, legal))
        first, state = False, {name: found[after] for name, after in about["state"].items()}


WITHOUT_JAX = """
import sys
sys.modules.update(jax=None, shoal=None, flax=None)  # importing them fails
sys.argv = ["deploy_onnx.py", *sys.argv[1:]]
import runpy
runpy.run_path(PATH, run_name="__main__")
"""


def test_the_example_plays_pettingzoo_without_jax(tmp_path: Path) -> None:
    pytest.importorskip("mpe2")
    task = "mpe2.simple_spread_v3"
    team = policies("mappo", registry.make(f"pettingzoo:{task}").spec, recurrent=4, **SMALL)
    model = team.export(tmp_path / "policy.onnx")
    program = WITHOUT_JAX.replace("PATH", repr(str(EXAMPLES / "deploy_onnx.py")))
    words = [sys.executable, "-W", "ignore", "-c", program, str(model), task]
    out = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout

    env, total = importlib.import_module(task).parallel_env(), 0.0
    found, infos = env.reset(seed=0)
    while env.agents:
        found, rewards, _, _, infos = env.step(team.act(found, infos=infos, alive=env.agents))
        total += sum(rewards.values())
    assert out == f"3 agents; their rewards sum to {total:.4f}\n"


def of_boxes(low: list[float] | None, high: list[float] | None) -> str:
    """The interface of ARMS, with bounds of each agent's own box."""
    spaces = [[["box", [dim]], ["box", [2], low, high, "float32"]] for dim in ARMS.obs_dims]
    return json.dumps({"kind": "parallel", "agents": spaces})


INDICES = json.dumps({"kind": "parallel", "agents": [[["box", [dim]], ["index", 3, 1]] for dim in (4, 3)]})
CHOOSING = toys.spec_of("toys/choosing", (4, 3), Discrete(3), 1, interface=INDICES)
SCALED = replace(ARMS, interface=of_boxes([0.0, 0.0], [10.0, 1.0]), action=Box(2, -1.0, 1.0))


def sampled(folder: Path, spec: EnvSpec, algorithm: str = "mappo", **wrapping: Any) -> tuple[Any, Model]:
    """The example's team of an exported model of the mode ``sampled``, and the same model for comparison."""
    made = policies(algorithm, spec, Wrapping(**wrapping), **SMALL)
    team = Policies(
        made._trained_for, made._algorithm, made._learner.policy, greedy=False, wrapping=Wrapping(**wrapping)
    )
    path = team.export(folder / "policy.onnx")
    return deploy_onnx.Team(str(path)), Model(path, batch=1)


@pytest.mark.parametrize("action_mask", [True, False])
def test_the_example_draws_from_probabilities(action_mask: bool, tmp_path: Path) -> None:
    team, model = sampled(tmp_path, CHOOSING, action_mask=action_mask)
    obs, legal = next(observations(CHOOSING, 1))
    legal = np.array([[False, True, True], [True, True, True]])
    expected = model.act(observation=obs, legal=legal)["probabilities"][0]
    if not action_mask:
        assert expected[0, 0] > 0.01
        expected[0, :2] = 0.0, expected[0, :2].sum()  # the first legal action is taken
    given = {"agent_0": obs[0], "agent_1": obs[1, :3]}
    rows = [team.act(given, {"agent_0": legal[0]}) for _ in range(400)]
    for i, name in enumerate(given):
        counts = np.bincount([row[name] - 1 for row in rows], minlength=3) / 400  # the space starts at 1
        np.testing.assert_allclose(counts, expected[i], atol=0.1)


def test_the_example_knows_agents_that_are_numbers(tmp_path: Path) -> None:
    spec = replace(CHOOSING, agents=("0", "1"))
    path = str(policies("mappo", spec, **SMALL).export(tmp_path / "policy.onnx"))
    (obs, _), mask = next(observations(spec, 1)), np.array([False, False, True])
    named = deploy_onnx.Team(path).act({"0": obs[0], "1": obs[1, :3]}, {"1": mask})
    assert deploy_onnx.Team(path).act({0: obs[0], 1: obs[1, :3]}, {1: mask}) == {0: named["0"], 1: named["1"]}


@pytest.mark.parametrize("algorithm", ["mappo", "masac"])
def test_the_example_draws_from_normals(algorithm: str, tmp_path: Path) -> None:
    """As the page on export says; the last action is the drawn one, and a box's own bounds are respected."""
    spec = SCALED if algorithm == "mappo" else replace(ARMS, interface=of_boxes(None, None))
    team, model = sampled(tmp_path, spec, algorithm, last_action=algorithm == "mappo")
    obs, legal = next(observations(spec, 1))
    found = {name: x[0] for name, x in model.act(observation=obs, legal=legal, alive=np.ones(2, bool)).items()}
    assert isinstance(spec.action, Box)
    noise, low, high = np.random.default_rng(0).standard_normal((2, 2)), spec.action.low, spec.action.high
    if algorithm == "mappo":
        expected = np.clip(found["mean"] + found["std"] * noise, low, high)
    else:
        expected = low + (high - low) * (np.tanh(found["normal_mean"] + found["normal_std"] * noise) + 1) / 2
    assert (np.abs(expected - found["action"]) > 0.01).any()
    actions = team.act({"agent_0": obs[0], "agent_1": obs[1, :3]}, {})
    if algorithm == "mappo":
        np.testing.assert_allclose(team.state["last_action"][0], expected, rtol=1e-5)
        expected = (expected + 1) / 2 * [10.0, 1.0]
    np.testing.assert_allclose([actions["agent_0"], actions["agent_1"]], expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["algorithms of scattered agents", "a script", "a saved team"])
def test_the_example_draws_where_only_some_sides_have_distributions(name: str, tmp_path: Path) -> None:
    made = SIDES[name]()
    team = Policies(made._trained_for, made._algorithm, made._learner.policy, greedy=False)
    path = team.export(tmp_path / "policy.onnx")
    example, model = deploy_onnx.Team(str(path)), Model(path, batch=1)
    obs, _ = next(observations(TAG, 1))
    found = model.act(observation=obs, legal=np.ones((4, 5), bool), alive=np.ones(4, bool))
    given = {agent: row[:size] for agent, row, size in zip(TAG.agents, obs, TAG.obs_dims, strict=True)}
    rows = np.array([list(example.act(given, {}).values()) for _ in range(30)])
    drawn = {"algorithms of scattered agents": [1, 3], "a script": [1, 2], "a saved team": [0, 1, 2, 3]}[name]
    for i in range(4):
        assert (len({*rows[:, i]}) > 1) == (i in drawn), i
        assert i in drawn or (rows[:, i] == found["action"][0, i]).all()
    np.testing.assert_allclose(found["probabilities"].sum(-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("names", ["maddpg+masac", "happo against constant"])
def test_the_example_draws_continuous_actions_of_each_side(names: str, tmp_path: Path) -> None:
    spec = replace(ARMS, interface=of_boxes(None, None))
    if "against" in names:
        made = of_sides("happo", spec, opponents_in("constant", spec), ("0",))
    else:
        made = of_sides(names, spec, sides=(1, 2))
    team = Policies(made._trained_for, made._algorithm, made._learner.policy, greedy=False)
    path = team.export(tmp_path / "policy.onnx")
    example, model = deploy_onnx.Team(str(path)), Model(path, batch=1)
    obs, legal = next(observations(spec, 1))
    found = {name: x[0] for name, x in model.act(observation=obs, legal=legal).items()}
    noise = np.random.default_rng(0).standard_normal((2, 2))
    expected = np.clip(found["mean"] + found["std"] * noise, -2.0, 1.0)
    if "against" in names:
        np.testing.assert_array_equal(expected[1], found["action"][1])
    else:
        x = np.tanh(found["normal_mean"] + found["normal_std"] * noise)
        expected[1] = -2.0 + 3.0 * (x[1] + 1) / 2
    actions = example.act({"agent_0": obs[0], "agent_1": obs[1, :3]}, {})
    np.testing.assert_allclose([actions["agent_0"], actions["agent_1"]], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("bounds", "dtype"),
    [
        (([0, -1], [5, 1]), "int64"),
        ((None, None), "uint8"),
        (([0.0, -1.0], [0.1, 1.0]), "float32"),
        ((None, None), "f8"),
    ],
)
def test_the_examples_actions_are_those_of_the_adapter(bounds: Any, dtype: str) -> None:
    """Whole numbers are the nearest ones, and nothing lies beyond a bound."""
    space, box = ["box", [2, 1], *bounds, dtype], Box(3) if bounds[0] else Box(3, 0.0, 0.9)
    for row in np.array([[-1, 0.5, 0], [0.1, -0.4, 0], [0.8, 1, 0], [1.0000001, -1.0000001, 0]], np.float32):
        found = deploy_onnx.own(space, {"low": box.low, "high": box.high}, row)
        expected = acted(space, box, row)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


class Crane:
    """A Gymnasium environment whose box has other bounds in each dimension, or whose actions are several choices."""

    metadata: dict[str, Any] = {}  # noqa: RUF012
    spec = None

    def __init__(self, choices: bool = False):
        spaces = pytest.importorskip("gymnasium").spaces
        self.observation_space = spaces.Box(-1, 1, (3,))
        box = spaces.Box(np.array([0.0, -1.0], np.float32), np.array([10.0, 1.0], np.float32))
        self.action_space = spaces.MultiDiscrete([2, 3], start=[1, 0]) if choices else box

    def reset(self, seed: Any = None, options: Any = None) -> tuple[Any, dict]:
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, ...]:
        return np.zeros(3, np.float32), 0.0, False, True, {}

    def close(self) -> None:
        pass


@pytest.mark.parametrize("choices", [False, True])
def test_the_description_turns_actions_into_the_environments_own(choices: bool, tmp_path: Path) -> None:
    team = policies("mappo", registry.make(Crane, choices=choices).spec, **SMALL)
    model = Model(team.export(tmp_path / "policy.onnx"))
    (agent,) = model.about["agents"]
    obs = np.array([0.3, -0.7, 0.9], np.float32)
    action = model.act(observation=obs[None], legal=np.ones((1, team.spec.action.width), bool))["action"][0, 0]
    if choices:
        _, _, sizes, starts, _ = agent["space"]
        own = np.array(np.unravel_index(action, sizes)) + starts
    else:
        _, _, low, high, _ = agent["space"]
        own = np.array(low) + (action + 1) / 2 * (np.array(high) - np.array(low))
    np.testing.assert_allclose(own, team.act(obs), rtol=1e-5)
