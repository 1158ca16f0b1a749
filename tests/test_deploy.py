"""Deployed policies act as the algorithm does, from local observations alone."""

import importlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shoal
import toys
from shoal.algorithms import mappo
from shoal.deploy import AgentPolicy, Policies
from shoal.errors import InputError
from shoal.options.flags import override
from shoal.runs import open as opening
from shoal.storage.checkpoint import Checkpoints
from shoal.types import Algorithm, Box, Environment, Learner, PyTree, Scale, Step
from support import run_folders

KINDS = {
    "discrete": (toys.busy, {"output_gain": 3.0}),
    "recurrent": (toys.busy, {"output_gain": 3.0, "recurrent": 6, "normalise_inputs": True}),
    "by role": (toys.busy, {"output_gain": 3.0, "recurrent": 6, "sharing": "role"}),
    "continuous": (toys.drift, {"output_gain": 6.0, "log_std": 1.0}),
    "squashed": (toys.drift, {"output_gain": 6.0, "log_std": 1.0, "squash": True}),
}


class Case(NamedTuple):
    env: Environment
    algorithm: Algorithm
    learner: Learner

    def policies(self, greedy: bool = True) -> Policies:
        return Policies(self.env.spec, self.algorithm, self.learner.policy, greedy=greedy)

    def observations(self, seed: int) -> list[np.ndarray]:
        """One row per agent, as wide as it really is."""
        rng = np.random.default_rng(seed)
        return [rng.normal(size=width) for width in self.env.spec.obs_dims]

    def masks(self, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        rows = [rng.random(width) < 0.5 for width in self.env.spec.action_dims]
        for row in rows:
            row[rng.integers(len(row))] = True
        return rows


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest) -> Case:
    make, flags = KINDS[request.param]
    env = make()
    config = override(mappo.Config(), {"hidden": (8,), "chunk_length": 1} | flags)
    algorithm = mappo.make(env.spec, config, Scale(1, 1, 1))
    learner = jax.jit(algorithm.init)(jax.random.key(7))
    if config.normalise_inputs:  # statistics that do something
        obs = learner.policy.inputs.obs._replace(mean=jnp.full(6, 0.3), square=jnp.full(6, 4.0))
        learner = learner._replace(policy=learner.policy._replace(inputs=learner.policy.inputs._replace(obs=obs)))
    return Case(env, algorithm, learner)


def padded(rows: list[np.ndarray], width: int) -> np.ndarray:
    return np.stack([np.pad(np.asarray(row, float), (0, width - len(row))) for row in rows])


def in_training(case: Case, carry: PyTree, seed: int, first: bool) -> tuple[PyTree, np.ndarray]:
    """What the algorithm itself does, with everything that a deployed policy is not told set to noise."""
    spec, rng = case.env.spec, np.random.default_rng(seed + 1000)
    step = Step(
        obs=jnp.asarray(padded(case.observations(seed), spec.obs_dim), jnp.float32)[None],
        state=jnp.asarray(rng.normal(size=(1, spec.state_dim)), jnp.float32),
        legal=jnp.asarray(legal_of(case, seed))[None],
        alive=jnp.ones((1, spec.num_agents), bool),
        reward=jnp.asarray(rng.normal(size=(1, spec.num_agents)), jnp.float32),
        discount=jnp.zeros((1, spec.num_agents)),
        first=jnp.array([first]),
        last=jnp.array([True]),
    )
    carry, action, _ = jax.jit(case.algorithm.act, static_argnums=4)(case.learner, carry, step, jax.random.key(0), True)
    space = spec.action
    return carry, np.clip(action[0], space.low, space.high) if isinstance(space, Box) else np.asarray(action[0])


def legal_of(case: Case, seed: int) -> np.ndarray:
    spec = case.env.spec
    if isinstance(spec.action, Box):
        return np.arange(spec.action.width) < np.array(spec.action_dims)[:, None]
    return padded(case.masks(seed), spec.action.width).astype(bool)


def told(case: Case, seed: int) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
    return case.observations(seed), None if isinstance(case.env.spec.action, Box) else case.masks(seed)


def test_the_team_acts_as_in_training(case: Case) -> None:
    """Two episodes of several steps: recurrent state advances, and is forgotten at a reset."""
    policies, seen = case.policies(), []
    for _ in range(2):
        policies.reset()
        carry = case.algorithm.initial_carry(1)
        for t in range(4):
            carry, expected = in_training(case, carry, t, first=t == 0)
            acted = policies.act(*told(case, t))
            np.testing.assert_allclose(acted, expected, rtol=1e-5, atol=1e-6)
            seen.append(acted)
    assert len(np.unique(np.stack(seen), axis=0)) > 1
    np.testing.assert_array_equal(seen[:4], seen[4:])


def test_each_agent_alone_does_what_it_does_in_the_team(case: Case) -> None:
    team, spec = case.policies(), case.env.spec
    alone = [team.agent(name) for name in spec.agents]
    for episode in range(2):
        team.reset()
        for t in range(3):
            observations, masks = told(case, 10 * episode + t)
            together = team.act(observations, masks)
            for i, agent in enumerate(alone):
                if t == 0:
                    agent.reset()
                acted = agent.act(observations[i], None if masks is None else masks[i])
                expected = together[i][: spec.action_dims[i]] if isinstance(spec.action, Box) else together[i]
                np.testing.assert_array_equal(acted, expected)
                assert isinstance(acted, int) or acted.shape == (spec.action_dims[i],)
    assert [agent.name for agent in alone] == list(team.agents)


def test_nobody_sees_what_others_see(case: Case) -> None:
    """Whatever the others observe, however large, an agent does the same, to the bit, step after step."""
    spec = case.env.spec
    for own in range(spec.num_agents):
        before, after = case.policies(), case.policies()
        for t in range(3):
            observations, masks = told(case, t)
            noise = (1e6, 1e38, -3.0)[t]
            others = [row if i == own else np.full_like(row, noise) for i, row in enumerate(observations)]
            one, two = before.act(observations, masks), after.act(others, masks)
            np.testing.assert_array_equal(one[own], two[own])


def test_forms_of_observations(case: Case) -> None:
    spec = case.env.spec
    rows, masks = told(case, 3)
    as_dict = dict(zip(spec.agents, rows, strict=True)) | {"a stranger": np.zeros(2)}
    legal_dict = None if masks is None else dict(zip(spec.agents, masks, strict=True))
    expected = case.policies().act(rows, masks)
    assert isinstance(expected, np.ndarray) and len(expected) == spec.num_agents
    wide = padded(rows, spec.obs_dim)
    legal = None if masks is None else padded(masks, spec.action.width)
    for given, mask in ((wide, legal), (jnp.asarray(wide), legal), (tuple(map(list, rows)), masks)):
        np.testing.assert_allclose(case.policies().act(given, mask), expected, rtol=1e-5, atol=1e-6)
    named = case.policies().act(as_dict, legal_dict)
    assert list(named) == list(spec.agents)
    for i, name in enumerate(spec.agents):
        if isinstance(spec.action, Box):
            np.testing.assert_array_equal(named[name], expected[i, : spec.action_dims[i]])
        else:
            assert type(named[name]) is int and named[name] == expected[i]


@pytest.mark.parametrize("greedy", [True, False])
def test_actions_are_always_possible(case: Case, greedy: bool) -> None:
    policies, spec = case.policies(greedy), case.env.spec
    seen = []
    for t in range(40):
        observations, masks = told(case, t)
        action = policies.act([30 * row for row in observations], masks)
        seen.append(action)
        if isinstance(spec.action, Box):
            assert action.min() >= spec.action.low and action.max() <= spec.action.high
        else:
            assert masks is not None and all(masks[i][action[i]] for i in range(spec.num_agents))
    if isinstance(spec.action, Box) and greedy:
        assert np.stack(seen).max() > 2.9  # the bound is reached, so clipping has been at work
    if masks is not None:
        for t in range(20):  # without a mask, at least what an agent does not have is never played
            action = policies.act(case.observations(t))
            assert (action < spec.action_dims).all()


def test_sampling_varies(case: Case) -> None:
    policies = case.policies(greedy=False)
    actions = []
    for _ in range(20):
        policies.reset()
        actions.append(policies.act(case.observations(0)))
    assert len(np.unique(np.stack(actions), axis=0)) > 1
    greedy = case.policies()
    first = greedy.act(case.observations(0))
    greedy.reset()
    np.testing.assert_array_equal(first, greedy.act(case.observations(0)))


def test_invalid_input_is_refused(case: Case) -> None:
    policies, spec = case.policies(), case.env.spec
    rows = case.observations(0)
    named = dict(zip(spec.agents, rows, strict=True))
    wrong: list[tuple[Any, str]] = [
        (rows[:-1], f"{spec.num_agents} rows of observation are needed, one per agent, not {spec.num_agents - 1}"),
        ({k: v for k, v in named.items() if k != "agent_1"}, "observation of agent_1 is missing"),
        (named | {"agent_1": np.zeros(99)}, f"agent_1's observation has width {spec.obs_dims[1]}, not 99"),
    ]
    for given, said in wrong:
        with pytest.raises(InputError, match=said):
            policies.act(given)
    for legal in (
        np.zeros((spec.num_agents, spec.action.width)),
        [np.arange(d) < (i != 1) for i, d in enumerate(spec.action_dims)],
    ):
        with pytest.raises(InputError, match=r"agent_[01] has no legal action"):
            policies.act(rows, legal)
    for number in (-np.inf, np.nan):  # as in masks that are added to logits
        with pytest.raises(InputError, match="is 1 for legal actions and 0 for others, and one here has"):
            policies.act(rows, [np.where(np.arange(d) == 0, 0.0, number) for d in spec.action_dims])
    for name in ("agent_9", 9, -1, True):
        with pytest.raises(InputError, match="the agents are agent_0, agent_1"):
            policies.agent(name)
    assert {policies.agent(index).name for index in (1, np.int64(1), "1", "agent_1")} == {"agent_1"}


def test_an_agent_named_by_a_number_is_not_taken_for_the_one_of_that_index() -> None:
    """As of a PettingZoo environment whose agents are 1, 2 and so on."""
    make, _ = next(iter(KINDS.values()))
    spec = make().spec
    spec = replace(spec, agents=("1", *(str(i + 1) for i in range(1, spec.num_agents))))
    team = Policies(spec, mappo.make_policy(spec, mappo.Config()), ())
    assert {team.agent(name).name for name in ("1", 0)} == {"1"}
    assert team.agent(spec.num_agents).name == str(spec.num_agents)
    with pytest.raises(InputError, match=r"1 is the name of one agent and the index of another: give .* '1' or '2'"):
        team.agent(1)


def test_what_is_no_observation_is_refused_in_one_sentence(case: Case) -> None:
    team, good, n = case.policies(), case.observations(0), case.env.spec.num_agents
    for given in (None, 5, np.float64(5), "abc", [["a"]] * n, [None] * n, [[[1], 1]] * n):
        with pytest.raises(InputError, match=r"rows of observation are needed|observation (is no array|has width)"):
            team.act(given)
    with pytest.raises(InputError, match=f"{n} rows of legal actions are needed, one per agent, not 3"):
        team.act(good, legal=3)
    with pytest.raises(InputError, match=f"{n} rows of alive are needed, one per agent, not True"):
        team.act(good, alive=True)


@pytest.mark.parametrize(("number", "said"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_numbers_that_are_not_finite_are_refused(case: Case, number: float, said: str) -> None:
    team, rows = case.policies(), case.observations(0)
    rows[1][-1] = number
    with pytest.raises(InputError, match=f"^agent_1's observation holds {said}\\.$"):
        team.act(rows)
    with pytest.raises(InputError, match=f"^agent_1's observation holds {said}\\.$"):
        team.agent(1).act(rows[1])
    alive = [i != 1 for i in range(case.env.spec.num_agents)]
    assert len(team.act(rows, alive=alive)) == len(rows), "the dead observe nothing"


@pytest.mark.parametrize("case", ["recurrent"], indirect=True)
def test_the_example_plays_legal_actions_and_begins_episodes_anew(
    case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shoal.load", lambda _: case.policies())
    monkeypatch.setattr("shoal.open_run", lambda _: SimpleNamespace(unwrapped_env=case.env))
    begun, reset = [], AgentPolicy.reset
    monkeypatch.setattr(AgentPolicy, "reset", lambda self: (begun.append(self.name), reset(self)))
    importlib.import_module("deploy").main("run", episodes=2)
    scores = [float(line.rpartition(" ")[2]) for line in capsys.readouterr().out.splitlines()]
    assert len(scores) == 2 and min(scores) >= 0, "an illegal action costs 1000"
    assert begun == [*case.env.spec.agents] * 2


@pytest.mark.parametrize("case", ["continuous"], indirect=True)
def test_the_example_joins_actions_of_unequal_widths(
    case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shoal.load", lambda _: case.policies())
    monkeypatch.setattr("shoal.open_run", lambda _: SimpleNamespace(unwrapped_env=case.env))
    importlib.import_module("deploy").main("run", episodes=1)
    assert float(capsys.readouterr().out.rpartition(" ")[2]) < 0


def test_the_example_plays_a_run_whose_agents_see_their_last_actions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folders.run(tmp_path / "run", [1.0], last_action=True, time_limit=2, hidden=(4,))
    run = shoal.open_run(folder, trust=True)
    opening.remember(run)
    policy = jax.jit(run._acting().init)(jax.random.key(0)).policy
    Checkpoints(folder / "policy", run=run._identity()).save(0, jax.tree.map(lambda x: x[None], policy), {})
    importlib.import_module("deploy").main(str(folder), episodes=1)
    assert float(capsys.readouterr().out.rpartition(" ")[2]) >= 0, "an illegal action costs 1000"
    assert run.unwrapped_env.spec.obs_dims == (4, 6, 5) and run.env.spec.obs_dims == (7, 10, 7)


@pytest.mark.parametrize("case", ["discrete"], indirect=True)
@pytest.mark.parametrize("state", ["abc", [[1.0], [1.0, 2.0]], object()])
def test_a_state_that_is_no_array_of_numbers_is_one_sentence(case: Case, state: Any) -> None:
    with pytest.raises(InputError, match=r"^The global state is no array of numbers: "):
        case.policies().act(*told(case, 0), state=state)


@pytest.mark.parametrize("case", ["discrete"], indirect=True)
def test_missing_masks_where_agents_take_turns_are_told_once(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    rows = case.observations(0)
    case.policies().act(rows)
    assert not capsys.readouterr().err
    for title in ("a", "b", "b"):  # two runs may have the same title
        spec = replace(case.env.spec, turns=True)
        team = Policies(spec, case.algorithm, case.learner.policy, title=title)
        team.act(rows, case.masks(0))
        team.agent(0).act(rows[0], turn=False)
        assert not capsys.readouterr().err
        if title == "a":
            team.act(rows)
        team.agent(0).act(rows[0])
        team.act(rows)
        assert capsys.readouterr().err.count("pass legal") == 1


def test_a_seed_of_samples_gives_other_actions(case: Case) -> None:
    def drawn(seed: int) -> list[np.ndarray]:
        policies = (case.algorithm, case.learner.policy)
        agent = Policies(case.env.spec, *policies, greedy=False).agent(0, sample_seed=seed)
        return [np.asarray(agent.act(case.observations(0)[0])) for _ in range(20)]

    first, again, other = (np.stack(drawn(seed)) for seed in (0, 0, 1))
    assert (first == again).all() and (first != other).any()
    with pytest.raises(InputError, match="seed of samples must be a whole number"):
        case.policies().agent(0, sample_seed=-1)
