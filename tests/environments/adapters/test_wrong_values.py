"""What others' environments return wrongly is refused by the adapter, and therefore by training and by the check."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo")
gymnasium = pytest.importorskip("gymnasium")

from gymnasium import spaces  # noqa: E402

from shoal.checking import check  # noqa: E402
from shoal.environments import registry  # noqa: E402
from shoal.environments.adapters.teams import checked_number, flag  # noqa: E402
from shoal.errors import InputError  # noqa: E402
from shoal.game import HostEnvironment, blank, own_actions, refresh  # noqa: E402

PAIR = ["a_0", "a_1"]


class Wrong:
    """Two agents, three steps, and one thing wrong from step 2 on."""

    metadata = {"name": "wrong"}  # noqa: RUF012

    def __init__(self, fault: str = ""):
        self.fault, self.possible_agents = fault, list(PAIR)

    def observation_space(self, agent):
        return spaces.Box(-9, 9, (2,))

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.time, self.agents, self.rng = 0, list(PAIR), np.random.default_rng(seed)
        if self.fault == "unseen at first":
            return {"a_0": np.zeros(2)}, {}
        if self.fault == "four at first":
            return self.see()
        if self.fault == "stranger at first":
            self.agents.append("ghost")
        return self.see(), {}

    def see(self):
        return {agent: self.rng.random(2) for agent in PAIR}

    def step(self, actions):
        self.time += 1
        over = self.time == 3
        said = [self.see(), {a: 1.0 + i for i, a in enumerate(PAIR)}, dict.fromkeys(PAIR, over)]
        said += [dict.fromkeys(PAIR, False), {}]
        if self.time >= 2 and self.fault in FAULTS:
            at, change = FAULTS[self.fault]
            said[at] = change(said[at])
        self.agents = [] if over else list(PAIR)
        if self.time >= 2 and self.fault == "stranger":
            self.agents.append("ghost")
        return tuple(said[:4] if self.fault == "four" else said)

    def close(self):
        pass


def reward(x: Any) -> tuple[int, Callable[[Any], Any]]:
    return 1, lambda said: {**said, "a_1": x}


FAULTS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "no rewards": (1, lambda said: {}),
    "no dict of rewards": (1, lambda said: 1.0),
    "one unpaid": (1, lambda said: {"a_0": 1.0}),
    "stranger paid": (1, lambda said: {**said, "ghost": 1.0}),
    "text": reward("1.5"),
    "none": reward(None),
    "array": reward(np.ones(2)),
    "array of one": reward(np.ones(1)),
    "list": reward([1.0]),
    "unseen": (0, lambda said: {"a_0": said["a_0"]}),
    "stranger seen": (0, lambda said: {**said, "ghost": said["a_0"]}),
    "text seen": (0, lambda said: {**said, "a_0": np.array(["1", "2"])}),
    "scalar seen": (0, lambda said: {**said, "a_0": np.float32(1)}),
    "text ends": (2, lambda said: dict.fromkeys(said, "False")),
    "none ends": (3, lambda said: dict.fromkeys(said)),
    "nan ends": (2, lambda said: dict.fromkeys(said, float("nan"))),
    "two ends": (3, lambda said: dict.fromkeys(said, np.int64(2))),
    "no infos": (4, lambda said: None),
    "short mask": (4, lambda said: {"a_1": {"action_mask": np.ones(1, np.int8)}}),
    "outside": (0, lambda said: {**said, "a_1": np.array([0.0, 9.5])}),
}
SAID = {
    "no rewards": "rewards lack 'a_0', which has acted",
    "no dict of rewards": "rewards are a float, not a dict",
    "one unpaid": "rewards lack 'a_1', which has acted",
    "stranger paid": "rewards have the key 'ghost', which is not one of possible_agents",
    "text": "the reward of a_1 is '1.5', not one number",
    "none": "the reward of a_1 is None, not one number",
    "array": r"the reward of a_1 is an array of shape \(2,\), not one number",
    "array of one": r"the reward of a_1 is an array of shape \(1,\), not one number",
    "list": r"the reward of a_1 is \[1.0\], not one number",
    "unseen": "observations lack 'a_1', which agents lists",
    "unseen at first": "observations lack 'a_1', which agents lists",
    "stranger": "agents lists 'ghost', which is not one of possible_agents",
    "stranger at first": "agents lists 'ghost', which is not one of possible_agents",
    "stranger seen": "observations have the key 'ghost'",
    "text seen": "a_0's observation is an array of <U1 with 1 axes",
    "scalar seen": "a_0's observation is an array of float32 with 0 axes",
    "text ends": "the termination of a_0 is 'False', neither True nor False",
    "none ends": "the truncation of a_0 is None, neither True nor False",
    "nan ends": "the termination of a_0 is nan, neither True nor False",
    "two ends": "the truncation of a_0 is 2, neither True nor False",
    "no infos": "infos are a NoneType, not a dict",
    "short mask": "a_1's action_mask has 1 entries for 2 actions",
    "four": r"step returned 4 values, but must return five values: .* \(four are those of Gym before 0.26",
    "four at first": "reset returned a dict, but must return two values",
}


def play(env: Any, action: list[int], steps: int = 3) -> Any:
    assert isinstance(env, HostEnvironment)
    game, timestep, own = env.make(), blank(env.spec), own_actions(env.spec)
    refresh(timestep, own)
    game.reset(0, timestep)
    for _ in range(steps):
        refresh(timestep, own)
        game.step(np.array(action, np.int32), timestep)
    return timestep


@pytest.mark.parametrize("fault", SAID)
def test_a_parallel_environment_is_refused(fault: str) -> None:
    with pytest.raises(ValueError, match=SAID[fault]):
        play(registry.make(Wrong, fault=fault), [0, 1])


def test_the_environment_without_a_fault_is_played() -> None:
    timestep = play(registry.make(Wrong), [0, 1])
    assert timestep.last and not timestep.discount.any() and timestep.reward.tolist() == [1, 2]


@pytest.mark.parametrize("fault", ["no rewards", "stranger", "text", "none", "array", "one unpaid", "short mask"])
def test_the_check_reports_each_wrong_value(fault: str) -> None:
    """One in a process of its own, which takes a second to start."""
    report = check(Wrong, env={"fault": fault}, episodes=2, isolate=fault == "no rewards")
    assert not report.ok and report.verdict.startswith("NOT READY")
    assert any(f.level == "error" and SAID[fault].replace("\\", "") in f.sentence for f in report.findings), str(report)


def test_a_step_of_four_values_is_not_blamed_on_a_file_of_shoal() -> None:
    report = check(Wrong, env={"fault": "four"}, episodes=1, isolate=False)
    (error,) = [finding for finding in report.findings if finding.level == "error"]
    assert "step returned 4 values" in error.sentence and not error.detail


def test_observations_outside_their_space_are_reported() -> None:
    for env, ready in (({"fault": "outside"}, False), ({"fault": "outside", "score": "mean"}, False), ({}, True)):
        report = check(Wrong, env=env, episodes=2, isolate=False)
        found = [finding for finding in report.findings if finding.subject == "observation space"]
        assert report.ok and ready == (not found)
        if found:
            said = "feature 1 of a_1's observation is 9.5 at step 2 of episode 1 (seed 0), after the joint action"
            assert found[0].level == "warning" and said in found[0].sentence
            assert "outside [-9, 9], the bounds of its observation space" in found[0].sentence


def test_an_environment_without_a_time_limit_gets_a_note(shoal: Callable) -> None:
    code, out, _ = shoal("check", "test_wrong_values:Wrong", "--episodes", "2")
    assert code == 0 and "the horizon is 10000 steps, Shoal's default" in " ".join(out.split())
    assert "--num-envs 8 --rollout-length 16 (all episodes ended by step 3; the default for the horizon is 128)" in out
    code, out, _ = shoal("check", "test_wrong_values:Limited", "--episodes", "2")
    assert code == 0 and "Shoal's default for" not in " ".join(out.split())
    assert shoal("check", "test_wrong_values:Wrong", "--env.fault", "text")[0] == 1


class Limited(Wrong):
    max_cycles = 3


class Turns:
    """A game of turns that pays with texts, or forgets to pay."""

    metadata = {"name": "turns", "is_parallelizable": False}  # noqa: RUF012
    possible_agents = PAIR

    def __init__(self, paid: Any = "1", listed: tuple[str, ...] = tuple(PAIR)):
        self.paid, self.listed = paid, list(listed)

    observation_space, action_space, close = Wrong.observation_space, Wrong.action_space, Wrong.close

    def agent_iter(self):
        raise NotImplementedError

    def reset(self, seed=None, options=None):
        self.agents, self.agent_selection, self.infos = list(PAIR), "a_0", {}
        self._cumulative_rewards = dict.fromkeys(PAIR, 0.0)
        self.terminations = self.truncations = dict.fromkeys(PAIR, False)

    def step(self, action):
        self.agents, self.agent_selection = list(self.listed), "a_1"
        self._cumulative_rewards = self.paid if isinstance(self.paid, dict) else dict.fromkeys(PAIR, self.paid)

    def observe(self, agent):
        return np.zeros(2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"paid": "1"}, "the reward of a_0 is '1', not one number"),
        ({"paid": {"a_0": 1.0}}, "the cumulative rewards lack 'a_1'"),
        ({"paid": {"a_0": 1.0, "a_1": 1.0, "ghost": 1.0}}, "the cumulative rewards have the key 'ghost'"),
        ({"paid": 1.0, "listed": (*PAIR, "ghost")}, "agents lists 'ghost'"),
    ],
)
def test_a_game_of_turns_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        play(registry.make(Turns, **options), [0, 0], 1)


class Alone(gymnasium.Env):
    """A team of one, or of two where its spaces are Tuples."""

    def __init__(self, reward: Any = 1.0, terminated: Any = False, several: bool = False, mask: Any = None):
        self.info = {} if mask is None else {"action_mask": mask}
        seen, act = spaces.Box(-9, 9, (2,)), spaces.Discrete(2)
        self.observation_space: Any = spaces.Tuple([seen, seen]) if several else seen
        self.action_space: Any = spaces.Tuple([act, act]) if several else act
        self.reward, self.terminated, self.seen = reward, terminated, np.zeros((2, 2) if several else 2)

    def reset(self, *, seed=None, options=None) -> Any:
        return self.seen, self.info

    def step(self, action) -> Any:
        return self.seen, self.reward, self.terminated, False, self.info


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reward": "2"}, "the reward is '2', not one number"),
        ({"reward": None}, "the reward is None"),
        ({"reward": np.ones(1)}, r"the reward is an array of shape \(1,\)"),
        ({"terminated": "no"}, "terminated is 'no', neither True nor False"),
        ({"terminated": float("nan")}, "terminated is nan, neither True nor False"),
        ({"terminated": 2}, "terminated is 2, neither True nor False"),
        ({"mask": np.ones(1, np.int8)}, "agent_0's action_mask has 1 entries for 2 actions"),
        ({"mask": np.ones(3, np.int8)}, "agent_0's action_mask has 3 entries for 2 actions"),
        ({"several": True}, "must have an entry for each of the 2 agents, since two Tuple spaces of 2 parts each are"),
        ({"several": True, "reward": [1.0]}, "rewards must have an entry for each of the 2 agents"),
        ({"several": True, "reward": [1.0, "2"]}, "the reward of agent 1 is '2'"),
        ({"several": True, "reward": [1, 2], "terminated": ["no", "yes"]}, "terminated of agent 0 is 'no'"),
    ],
)
def test_a_gymnasium_environment_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        play(registry.make(Alone, **options), [0, 0][: 1 + options.get("several", 0)], 1)


@pytest.mark.parametrize("value", [1, True, 2.5, np.float32(2.5), np.int64(3), np.bool_(True), np.array(2.5)])
def test_numbers_of_every_kind_are_numbers(value: Any) -> None:
    assert checked_number(value, "it") == float(value)
    if value == 1:
        assert flag(value, "it") is True
    else:
        with pytest.raises(ValueError, match="neither True nor False"):
            flag(value, "it")
    assert flag(np.array([False]), "it") is False and flag(np.array([1.0]), "it") is True


ONE = """
from test_wrong_values import Wrong

class Relay(Wrong):
    pass
"""
TWO = (
    ONE
    + """
class Race(Wrong):
    pass
"""
)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("relay_one", ONE), ("relay_two", TWO), ("relay_none", "import math\n")):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("modules")
def test_a_module_of_one_class_is_that_class() -> None:
    assert registry.make("pettingzoo:relay_one", fault="").spec.name == "pettingzoo:relay_one"
    with pytest.raises(ValueError, match="not one number"):
        play(registry.make("pettingzoo:relay_one", fault="text"), [0, 1])
    env = registry.make("pettingzoo:relay_one")
    assert isinstance(env, HostEnvironment) and env.make(render=True).render() is None


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pettingzoo:relay_two", "several classes; use relay_two:Relay or relay_two:Race"),
        ("pettingzoo:relay_none", "neither 'parallel_env' nor 'env', nor a class with PettingZoo's interface"),
        ("pettingzoo:relay_one:Relay", "is named without the prefix: relay_one:Relay"),
    ],
)
def test_a_module_of_several_classes_says_how(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        registry.make(name)
