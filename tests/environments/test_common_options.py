"""Options of every environment: what they do to rewards, discounts and specs, and that each environment takes them."""

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shoal
from shoal.environments.matrix import matrix_game
from shoal.environments.registry import make
from shoal.errors import InputError
from shoal.game import HostEnvironment, HostTimestep, blank, own_actions, refresh
from shoal.spec import Discrete, EnvSpec
from shoal.types import Environment, Step

SPEC = EnvSpec(
    name="script",
    agents=("a", "b", "c"),
    obs_dims=(1, 1, 1),
    state_dim=1,
    action=Discrete(2),
    action_dims=(2, 2, 2),
    roles=(0, 0, 0),
    horizon=9,
    shared_reward=False,
)
# At each timestep: who is alive, who earns what, whose discount is 0; b dies on step 2 and c on step 3.
ALIVE = np.array([[1, 1, 1], [1, 1, 1], [1, 0, 1], [1, 0, 0], [1, 0, 0]], bool)
REWARD = np.array([[0, 0, 0], [1, 2, 6], [0.1, 0.1, 0.1], [4, 0, -1], [3, 0, 0]], np.float32)
DISCOUNT = np.array([[1, 1, 1], [1, 1, 1], [1, 0, 1], [1, 1, 0], [0, 1, 1]], np.float32)
# By hand. On the last step the only one who acted, a, ends: so does the team.
TEAM = np.array([0, 3, 0.1, 1, 1], np.float32)
GOES_ON = np.array([1, 1, 1, 1, 0], np.float32)
END = len(TEAM) - 1


class Script:
    def __init__(self, spec: EnvSpec = SPEC, render: bool = False):
        self.spec = spec

    def reset(self, seed: int, out: HostTimestep) -> None:
        self.t = -1
        self.step(np.zeros(3), out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        self.t += 1
        out.obs[...] = out.state[...] = self.t
        out.alive[...], out.reward[...], out.discount[...] = ALIVE[self.t], REWARD[self.t], DISCOUNT[self.t]
        out.last[...] = self.t == END

    def render(self) -> None:
        return None

    def close(self) -> None:
        pass


def device() -> Environment:
    def shown(t: Any, first: jax.Array) -> tuple[Any, Step]:
        alive, reward, discount = (jnp.asarray(x)[t] for x in (ALIVE, REWARD, DISCOUNT))
        obs, state, legal = jnp.full((3, 1), t * 1.0), jnp.full(1, t * 1.0), jnp.ones((3, 2), bool)
        return t, Step(obs, state, legal, alive, reward, discount, first, t == END)

    def reset(key: Any) -> tuple[Any, Step]:
        return shown(jnp.int32(0), jnp.array(True))

    return Environment(SPEC, reset, lambda key, t, action: shown(t + 1, jnp.array(False)))


def timesteps(env: Any) -> list[Any]:
    if isinstance(env, Environment):
        state, step = env.reset(jax.random.key(0))
        seen = [step]
        for _ in range(END):
            state, step = env.step(jax.random.key(0), state, jnp.zeros(3, jnp.int32))
            seen.append(step)
        return [jax.tree.map(np.asarray, step) for step in seen]
    game, out, seen = env.make(), blank(env.spec), []  # the same memory every time, as worker processes have it
    for t in range(END + 1):
        refresh(out, own_actions(env.spec))
        game.step(np.zeros(3, np.int32), out) if t else game.reset(0, out)
        seen.append(HostTimestep(*(leaf.copy() for leaf in out)))
    return seen


ENVIRONMENTS = {"device": device(), "host": HostEnvironment(SPEC, Script)}


@pytest.mark.parametrize("where", ENVIRONMENTS)
def test_a_shared_reward_is_the_mean_and_agents_stay_until_the_team_ends(where: str) -> None:
    env = make(ENVIRONMENTS[where], shared_reward=True)
    assert env.spec == replace(SPEC, shared_reward=True)
    for t, (was, now) in enumerate(zip(timesteps(ENVIRONMENTS[where]), timesteps(env), strict=True)):
        np.testing.assert_array_equal(now.reward, np.full(3, TEAM[t]))
        np.testing.assert_array_equal(now.discount, np.full(3, GOES_ON[t]))
        for field in ("obs", "state", "legal", "alive", "last"):
            np.testing.assert_array_equal(getattr(now, field), getattr(was, field))
        assert now.reward.dtype == was.reward.dtype and now.discount.dtype == was.discount.dtype


def test_a_shared_reward_keeps_the_score_unless_another_is_chosen() -> None:
    host = ENVIRONMENTS["host"]
    returns = [sum(m.reward for m in timesteps(make(host, **options))) for options in ({}, {"shared_reward": True})]
    assert SPEC.scores(returns[0]) == pytest.approx(SPEC.scores(returns[1]))
    mean = make(host, score="mean").spec
    assert mean == replace(SPEC, score="mean")
    assert make(make(host, score="mean"), score="sum").spec == SPEC


def test_none_stands_for_the_default_of_an_environment_with_such_an_option() -> None:
    assert make("grid/pursuit", shared_reward=None, score=None).spec == make("grid/pursuit").spec


def test_a_spec_with_shared_rewards_is_not_changed() -> None:
    shared = HostEnvironment(replace(SPEC, shared_reward=True), functools.partial(Script, SPEC))
    assert make(shared, shared_reward=True, score="sum") is shared
    assert make(shared, shared_reward=None, score=None) is shared
    assert not make(shared, shared_reward=False).spec.shared_reward


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shared_reward": "yes"}, "shared_reward must be True, False or None, not 'yes'"),
        ({"shared_reward": 1}, "shared_reward must be True"),
        ({"score": "avg"}, "There is no score 'avg'; known: mean, sum"),
        ({"scores": "sum"}, "takes no option 'scores'"),
    ],
)
def test_invalid_input_is_refused(options: dict[str, Any], words: str) -> None:
    for given in (Script, ENVIRONMENTS["host"], "matrix/climbing"):
        with pytest.raises(InputError, match=words):
            make(given, **options)


OWN = '''
"""Environments of every kind that a user may write."""
import gymnasium
from gymnasium import spaces
from test_common_options import SPEC, Script
from shoal.environments.matrix import matrix_game
from shoal.game import HostEnvironment


class Parallel:
    metadata = {"name": "parallel"}
    possible_agents = ["a", "b"]

    def observation_space(self, agent):
        return spaces.Box(0, 1, (1,))

    def action_space(self, agent):
        return spaces.Discrete(2)

    def close(self):
        pass


class Sharing(Parallel):
    """Shares by itself.

    Args:
        shared_reward: its own words.
    """

    def __init__(self, shared_reward: bool = True, score: int = 3):
        self.possible_agents = ["a", "b"] + ["c"] * shared_reward
        assert score == 3


class Lists(gymnasium.Env):
    observation_space = spaces.Tuple([spaces.Box(0, 1, (1,))] * 2)
    action_space = spaces.Tuple([spaces.Discrete(2)] * 2)


def host():
    return HostEnvironment(SPEC, Script)


def device():
    return matrix_game([[0.0, 1.0], [1.0, 0.0]])


def stated(shared_reward=None, score=None):
    return host()


class Stated(Script):
    def __init__(self, shared_reward=None, score=None):
        super().__init__()


def anything(**options):
    assert not options
    return Script()
'''


@pytest.fixture
def own_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gymnasium")
    (tmp_path / "own_kinds.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_kinds", raising=False)


@pytest.mark.usefixtures("own_kinds")
@pytest.mark.parametrize("name", ["Parallel", "Lists", "Script", "host", "device", "anything"])
def test_every_kind_of_user_environment_takes_common_options(name: str) -> None:
    plain = make(f"own_kinds:{name}").spec
    other = "mean" if plain.score == "sum" else "sum"
    spec = make(f"own_kinds:{name}", shared_reward=not plain.shared_reward, score=other).spec
    assert (spec.shared_reward, spec.score) == (not plain.shared_reward, other)
    assert spec.agents == plain.agents


@pytest.mark.usefixtures("own_kinds")
def test_an_option_of_the_class_is_passed_to_it(shoal: Callable) -> None:
    shared = make("own_kinds:Sharing", shared_reward=True).spec
    assert shared.shared_reward and shared.num_agents == 3
    assert make("own_kinds:Sharing", shared_reward=False).spec.num_agents == 2
    assert make("own_kinds:Sharing", score=3).spec.score == "sum"  # not a value of the common option
    _, out, _ = shoal("train", "mappo", "own_kinds:Sharing", "--help")
    assert "its own words" in " ".join(out.split())


def test_an_option_of_a_factory_called_score_may_be_an_array() -> None:
    def game(score: np.ndarray) -> Environment:
        return matrix_game(score)

    assert make(game, score=np.eye(3)).spec.action_dims == (3, 3)


@pytest.mark.usefixtures("own_kinds")
@pytest.mark.parametrize("name", ["stated", "Stated"])
def test_an_option_of_a_factory_that_states_its_spec_is_not_applied_again(name: str) -> None:
    built = make(f"own_kinds:{name}", shared_reward=True, score="mean")
    assert built.spec == SPEC
    earned = [step.reward for step in timesteps(built)]
    np.testing.assert_array_equal(earned[1:], REWARD[1:])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--env.shared-reward"], {"shared_reward": True}),
        (["--env.no-shared-reward"], {"shared_reward": False}),
        (["--env.shared-reward", "True"], {"shared_reward": True}),
        (["--env.shared_reward=false", "--env.score", "mean"], {"shared_reward": False, "score": "mean"}),
        (["--env.shared-reward", "None"], {"shared_reward": None}),
    ],
)
@pytest.mark.parametrize("name", ["test_common_options:Script", "test_common_options:flexible"])
def test_on_the_command_line(
    name: str, words: list[str], said: dict[str, Any], shoal: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def train(found: Any, *_: Any, **__: Any) -> Any:
        asked.append(found.env)
        raise InputError("enough")

    monkeypatch.setattr("shoal.runs.api.train_configured", train)
    assert shoal("train", "mappo", name, *words)[0] == 2
    assert asked == [said]


def flexible(**options: Any) -> Script:
    assert not options
    return Script()


def test_help_explains_them(shoal: Callable) -> None:
    code, out, _ = shoal("check", "test_common_options:Script", "--help")
    text = " ".join(out.replace("│", " ").split())
    assert code == 0 and "--env.shared-reward" in text and "receives the mean of all agents' rewards" in text


def test_run_json_has_common_options(tmp_path: Path) -> None:
    folder, options = tmp_path / "run", {"shared_reward": True, "score": "mean"}
    sizes = {"steps": 8, "num_envs": 2, "rollout_length": 4, "num_workers": 0, "hidden": (4,), "eval_episodes": 2}
    run = shoal.train("ippo", Script, env=options, folder=folder, progress=False, tensorboard=False, **sizes)
    assert run.evaluation is not None and run.evaluation.mean == pytest.approx(TEAM.sum())
    spec = shoal.open_run(folder).env.spec
    assert spec.shared_reward and spec.score == "mean"


@pytest.mark.parametrize(("algorithm", "shared"), [("vdn", False), ("vdn", True), ("ippo", False)])
def test_training_says_first_what_a_team_learns_from(
    algorithm: str, shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    monkeypatch.setattr("shoal.training.trainer.Trainer.run", lambda _: bool(said.append(capsys.readouterr().err)))
    sizes: dict[str, Any] = {"steps": 8, "num_envs": 2, "rollout_length": 4, "num_workers": 0}
    env = {"shared_reward": True} if shared else {}
    shoal.train(algorithm, Script, env=env, folder=tmp_path / "run", progress=False, tensorboard=False, **sizes)
    sentence = "Agents of script may receive different rewards; the team learns from the mean of all agents' rewards"
    assert (sentence in said[0]) == (algorithm == "vdn" and not shared)
