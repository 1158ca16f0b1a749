import functools
import signal
import time
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo")
gymnasium = pytest.importorskip("gymnasium")

from gymnasium import spaces  # noqa: E402

from shoal.checking import check  # noqa: E402
from shoal.environments import registry  # noqa: E402
from shoal.environments.adapters.gymnasium import DEFAULT_LIMIT, limits  # noqa: E402
from shoal.errors import BuildError, InputError  # noqa: E402
from shoal.game import HostEnvironment, blank, own_actions, refresh  # noqa: E402


def made(name, **options) -> HostEnvironment:
    env = registry.make(name, **options)
    assert isinstance(env, HostEnvironment)
    return env


def started(env: HostEnvironment, seed: int = 0):
    game, timestep, own = env.make(), blank(env.spec), own_actions(env.spec)
    refresh(timestep, own)
    game.reset(seed, timestep)

    def step(action):
        refresh(timestep, own)
        game.step(np.asarray(action), timestep)

    return timestep, step, game


class Parade:
    """Two agents until ``ends``; nothing is odd yet."""

    metadata = {"name": "parade"}  # noqa: RUF012
    possible_agents = ("a_0", "a_1")

    def __init__(self, ends: int = 3):
        self.ends = ends

    def observation_space(self, agent):
        return spaces.Box(0, 9, (1,))

    def action_space(self, agent):
        return spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self.time, self.agents = 0, list(self.possible_agents)
        return dict.fromkeys(self.agents, np.ones(1)), {a: {} for a in self.agents}

    def step(self, actions):
        self.time += 1
        here, over = self.agents, self.time >= self.ends
        self.agents = [] if over else here
        seen = {a: np.full(1, self.time + 1.0) for a in here}
        return seen, dict.fromkeys(here, 1.0), dict.fromkeys(here, False), dict.fromkeys(here, over), {}

    def close(self):
        pass


class Late(Parade):
    """Pays on the step after its ``max_cycles``, the last."""

    max_cycles = 2


def test_an_episode_is_not_cut_before_the_step_that_ends_it():
    env = made(Late)
    assert env.spec.horizon == 2
    timestep, step, _ = started(env)
    for t in range(3):
        assert not timestep.last
        step([0, 0])
        np.testing.assert_array_equal(timestep.reward, [1, 1])
        assert timestep.obs[0, 0] == t + 2
    assert timestep.last
    assert timestep.discount.all()


def test_an_episode_that_never_ends_is_cut_off():
    timestep, step, _ = started(made(Late, ends=99))
    for _ in range(3):
        assert not timestep.last
        step([0, 0])
    assert timestep.last
    assert timestep.discount.all()


@pytest.mark.parametrize("options", [{}, {"shared_reward": True}])
@pytest.mark.parametrize("kind", [Late, functools.partial(Late, ends=99)])
def test_a_check_plays_up_to_where_an_episode_is_cut_off(kind, options):
    """A step after the horizon, also beneath an option of all environments."""
    report = check(kind, env=options, episodes=2, isolate=False)
    assert report.ok, str(report)
    assert dict(report.facts)["played"].startswith("2 episodes, 6 steps")


@pytest.mark.parametrize(("ends", "told"), [(3, False), (99, True)])
def test_a_check_tells_of_an_attribute_that_limits_no_episode(ends, told):
    report = check(functools.partial(Late, ends=ends), episodes=2, isolate=False)
    said = "2 of 2 episodes were not over after 2 steps, which an attribute of the environment seems to limit them to"
    assert any(finding.level == "warning" and said in finding.sentence for finding in report.findings) == told


class Endless(gymnasium.Env):
    """Alone, or a team by Tuples; what it calls ``max_steps`` is no limit."""

    max_steps = 2

    def __init__(self, agents: int = 1):
        self.agents, one, seen = agents, spaces.Discrete(2), spaces.Box(0, 1, (1,))
        self.action_space = one if agents == 1 else spaces.Tuple([one] * agents)
        self.observation_space = seen if agents == 1 else spaces.Tuple([seen] * agents)

    def reset(self, *, seed=None, options=None):
        return (np.zeros(1) if self.agents == 1 else (np.zeros(1),) * self.agents), {}

    def step(self, action):
        return self.reset()[0], 0.0 if self.agents == 1 else [0.0] * self.agents, False, False, {}


@pytest.mark.parametrize("agents", [1, 2])
def test_episodes_that_go_on_after_such_a_limit_are_counted(agents):
    timestep, step, played = started(made(Endless, agents=agents))
    game: Any = played
    for _ in range(3):
        assert game.overran == 0
        step([0] * agents)
    assert timestep.last and game.overran == 1


class Silent(Parade):
    """Says nothing of anybody at its end."""

    def step(self, actions):
        told = super().step(actions)
        return told if self.agents else ({}, {}, {}, {}, {})


class Timed(Silent):
    max_cycles = 3


@pytest.mark.parametrize(("kind", "discount"), [(Silent, 0.0), (Timed, 1.0)])
def test_an_agent_without_further_observations_has_ended(kind, discount):
    timestep, step, _ = started(made(kind))
    for _ in range(3):
        assert not timestep.last
        step([0, 0])
    assert timestep.last
    assert (timestep.discount == discount).all()


class Forgetful(Parade):
    """Observes only ``a_1`` on the step of its time limit."""

    def step(self, actions):
        seen, *told = super().step(actions)
        return seen if self.agents else {"a_1": seen["a_1"]}, *told


@pytest.mark.parametrize(("kind", "alive"), [(Timed, [False, False]), (Forgetful, [False, True])])
def test_a_time_limit_does_not_bootstrap_from_an_observation_that_is_missing(kind, alive):
    timestep, step, _ = started(made(kind))
    for _ in range(3):
        assert timestep.alive.all()
        step([0, 0])
    assert timestep.last
    assert timestep.discount.all()
    assert timestep.alive.tolist() == alive


class Leaving(Parade):
    """``a_1`` is taken off the list on step 1, and no flag says so; rewards go on."""

    def step(self, actions):
        told = super().step(actions)
        self.agents = [a for a in self.agents if a != "a_1"]
        return told[0], dict.fromkeys(self.possible_agents, 1.0), *told[2:]


def test_an_agent_that_is_no_longer_listed_is_dead():
    timestep, step, _ = started(made(Leaving))
    step([0, 0])
    np.testing.assert_array_equal(timestep.alive, [True, False])
    np.testing.assert_array_equal(timestep.discount, [1, 0])
    np.testing.assert_array_equal(timestep.state, [2, 0])
    assert not timestep.obs[1].any()
    timestep.obs[...] = timestep.state[...] = 7  # what another game has left there
    step([0, 0])
    np.testing.assert_array_equal(timestep.obs, [[3], [0]])
    np.testing.assert_array_equal(timestep.state, [3, 0])
    np.testing.assert_array_equal(timestep.reward, [1, 0])


class Ghostly(Leaving):
    """``a_1`` is observed as NaN after it was taken off the list."""

    def step(self, actions):
        seen, *told = super().step(actions)
        return seen | {"a_1": np.full(1, np.nan)}, *told


def test_what_is_returned_for_an_agent_that_is_gone_is_in_no_state():
    timestep, step, _ = started(made(Ghostly))
    for t in (1, 2, 3):
        step([0, 0])
        np.testing.assert_array_equal(timestep.obs, [[t + 1], [0]])
        np.testing.assert_array_equal(timestep.state, [t + 1, 0])
    assert timestep.last and check(Ghostly, episodes=2, isolate=False).ok


class Early(Parade):
    """All agents are observed from the start on; ``a_1`` is listed on step 1 only."""

    def reset(self, seed=None, options=None):
        told = super().reset()
        self.agents = ["a_0"]
        return told

    def step(self, actions):
        self.agents = list(self.possible_agents)
        return super().step(actions)


def test_an_agent_that_is_not_listed_yet_observes_zeros():
    timestep, step, _ = started(made(Early))
    np.testing.assert_array_equal(timestep.alive, [True, False])
    np.testing.assert_array_equal(timestep.obs, [[1], [0]])
    np.testing.assert_array_equal(timestep.state, [1, 0])
    step([0, 0])
    np.testing.assert_array_equal(timestep.alive, [True, True])
    np.testing.assert_array_equal(timestep.obs, [[2], [2]])
    np.testing.assert_array_equal(timestep.state, [2, 2])


class Both(Parade):
    def step(self, actions):
        seen, rewards, _, cut, infos = super().step(actions)
        return seen, rewards, dict(cut), cut, infos


def test_a_termination_at_the_time_limit_is_a_termination():
    timestep, step, _ = started(made(Both))
    for _ in range(3):
        step([0, 0])
    assert timestep.last
    assert not timestep.discount.any()


class Masking(Parade):
    """Its infos hold masks from step 1 on, of nothing legal for ``a_1``."""

    def step(self, actions):
        told = super().step(actions)
        return *told[:4], {"a_0": {"action_mask": np.array([0, 1, 1])}, "a_1": {"action_mask": np.zeros(3)}}


def test_masks_may_come_late_and_allow_nothing():
    timestep, step, _ = started(made(Masking))
    assert timestep.legal.all()
    step([0, 0])
    np.testing.assert_array_equal(timestep.legal, [[False, True, True], [True, False, False]])


def empty_masks(env):
    """What the check says of masks that allow nothing."""
    found = check(env, episodes=2, isolate=False).findings
    return [one for one in found if "allows nothing" in one.sentence]


def test_the_check_names_a_mask_that_allows_nothing():
    (finding,) = empty_masks(Masking)
    assert finding.level == "warning"
    assert finding.sentence.startswith("a_1's action_mask allows nothing at step 1 of episode 1 (seed 0), after the")
    assert "so it takes action 0 (and 3 more times); the mask" in finding.sentence


class OverMasking(Parade):
    """The masks of its last step allow nothing."""

    def step(self, actions):
        *told, _ = told_all = super().step(actions)
        over = any(told_all[2].values()) or any(told_all[3].values())
        return *told, {a: {"action_mask": np.full(3, not over)} for a in ("a_0", "a_1")}


def test_masks_after_the_end_may_allow_nothing():
    timestep, step, _ = started(made(OverMasking))
    step([0, 0])
    assert timestep.legal.all() and not timestep.last
    assert empty_masks(OverMasking) == []


class HintingNothing(gymnasium.Env):
    """A single agent whose mask allows nothing."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,))
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {"action_mask": np.zeros(3, np.int8)}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, True, False, {"action_mask": np.zeros(3, np.int8)}


def test_the_check_names_an_empty_mask_of_a_single_agent():
    (finding,) = empty_masks(HintingNothing)
    assert finding.sentence.startswith("agent_0's action_mask allows nothing after reset (episode 1, seed 0)")
    assert "(and 1 more time)" in finding.sentence


class ListedNothing(gymnasium.Env):
    """Two agents in a Tuple, whose masks allow nothing after reset (if so) and at the end."""

    def __init__(self, at_first: bool = False):
        self.at_first = at_first
        seen = spaces.Dict({"x": spaces.Box(0, 9, (1,)), "action_mask": spaces.MultiBinary(3)})
        self.observation_space, self.action_space = spaces.Tuple([seen] * 2), spaces.Tuple([spaces.Discrete(3)] * 2)

    def _seen(self):
        empty = self.time == 3 or (self.at_first and self.time == 0)
        return ({"x": np.ones(1, np.float32), "action_mask": np.full(3, not empty, np.int8)},) * 2

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self._seen(), {}

    def step(self, action):
        self.time += 1
        return self._seen(), [0.0, 0.0], self.time == 3, False, {}


def test_an_empty_mask_in_a_list_counts_at_its_own_timestep_only():
    assert empty_masks(ListedNothing) == []
    (finding,) = empty_masks(functools.partial(ListedNothing, at_first=True))
    assert "allows nothing after reset (episode 1, seed 0), so it takes action 0 (and 3 more times)" in finding.sentence


class Terse(Masking):
    """Gives ``a_1`` no info."""

    def step(self, actions):
        *told, infos = super().step(actions)
        return *told, infos | {"a_1": None}


def test_an_info_may_be_none():
    timestep, step, _ = started(made(Terse))
    step([0, 0])
    np.testing.assert_array_equal(timestep.legal, [[False, True, True], [True, True, True]])


class Hinting(gymnasium.Env):
    """A mask in its info at first, and never again."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,))
    action_space = spaces.Discrete(3, start=1)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1), {"action_mask": np.array([1, 0, 1], np.int8)}

    def step(self, action):
        assert action == 3
        return np.ones(1), 0.0, False, False, {}


def test_a_mask_may_be_missing_again():
    timestep, step, _ = started(made(Hinting))
    np.testing.assert_array_equal(timestep.legal, [[True, False, True]])
    step([2])
    assert timestep.legal.all()


ONLY_LAST = np.array([0, 0, 1], np.int8)


class Unannounced(Parade):
    """Its observations hold masks of which their space does not tell."""

    def observation_space(self, agent):
        return spaces.Dict({"place": spaces.Box(0, 9, (1,))})

    def reset(self, seed=None, options=None):
        seen, infos = super().reset()
        return {a: {"place": x, "action_mask": ONLY_LAST} for a, x in seen.items()}, infos


class Hidden(Hinting):
    """The same, alone, or as a team of two by Tuples; the mask in its info is another."""

    observation_space = spaces.Dict({"place": spaces.Box(0, 9, (1,))})

    def __init__(self, several: bool = False):
        self.several = several
        if several:
            self.observation_space = spaces.Tuple([type(self).observation_space] * 2)
            self.action_space = spaces.Tuple([spaces.Discrete(3)] * 2)

    def reset(self, *, seed=None, options=None):
        seen, info = super().reset()
        shown = {"place": seen, "action_mask": ONLY_LAST}
        return (shown, shown) if self.several else shown, info


@pytest.mark.parametrize(("kind", "options"), [(Unannounced, {}), (Hidden, {}), (Hidden, {"several": True})])
def test_a_mask_that_its_space_does_not_name_is_read(kind, options):
    timestep, _, _ = started(made(kind, **options))
    assert (timestep.legal == ONLY_LAST.astype(bool)).all()


class Contributed(Hinting):
    """Tells its masks by the method of sb3-contrib."""

    def __init__(self, several: bool = False):
        self.time, self.several = 0, several
        self.action_space = spaces.MultiDiscrete([2, 2]) if several else spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1), {}

    def step(self, action):
        self.time += 1
        return np.zeros(1), 0.0, False, False, {}

    def action_masks(self):
        return [1, 0, 1, 1] if self.several else np.arange(3) == self.time


def limited(**options: Any) -> Any:
    return gymnasium.wrappers.TimeLimit(Contributed(**options), 5)


def test_the_method_of_maskable_ppo_gives_the_legal_actions_through_wrappers():
    for kind in (Contributed, limited):
        timestep, step, _ = started(made(kind))
        np.testing.assert_array_equal(timestep.legal, [[True, False, False]])
        step([0])
        np.testing.assert_array_equal(timestep.legal, [[False, True, False]])
    timestep, _, _ = started(made(limited, several=True))
    np.testing.assert_array_equal(timestep.legal, [[True, True, False, False]])


class Mute(Hinting):
    """Without a mask in its observation; its info is no dict."""

    def __init__(self, info: Any = None):
        self.info = info

    def reset(self, *, seed=None, options=None):
        return np.zeros(1), self.info

    def step(self, action):
        return np.ones(1), 0.0, False, False, self.info


def test_gymnasiums_info_may_be_none_and_nothing_else_without_keys():
    timestep, step, _ = started(made(Mute))
    step([0])
    assert timestep.legal.all()
    with pytest.raises(ValueError, match="info is a list, not a dict"):
        started(made(Mute, info=[1]))


class Arrayed(Parade):
    """Names its agents by an array."""

    possible_agents: Any = np.array(["a_0", "a_1"])


def test_an_array_may_name_the_agents():
    assert made(Arrayed).spec.agents == ("a_0", "a_1")


class Broken(Parade):
    """Cannot start an episode, or cannot be closed."""

    def __init__(self, closes: bool = False):
        super().__init__()
        self.closes = closes

    def state(self):
        return np.zeros(1)

    def reset(self, seed=None, options=None):
        if self.closes:
            return super().reset()
        raise KeyError("a map")

    def close(self):
        raise OSError("the lid is stuck")


def test_what_an_environment_raises_while_it_is_built_is_one_sentence():
    with pytest.raises(BuildError, match=r"Broken cannot be built: KeyError: 'a map'\.$") as caught:
        registry.make(Broken)
    assert 'raise KeyError("a map")' in caught.value.trace


def test_an_environment_that_cannot_be_closed_is_built():
    assert made(Broken, closes=True).spec.num_agents == 2


class Clinging(Parade):
    def close(self):
        time.sleep(60)


def test_an_environment_that_hangs_while_it_is_closed_is_built(monkeypatch, capsys):
    monkeypatch.setattr("shoal.game.CLOSING", 0.1)
    alarm = signal.getsignal(signal.SIGALRM)
    assert made(Clinging).spec.num_agents == 2
    assert capsys.readouterr().err.endswith(
        ":Clinging is left open, since its close() did not return within 2 seconds.\n"
    )
    assert signal.getsignal(signal.SIGALRM) is alarm and signal.getitimer(signal.ITIMER_REAL)[0] == 0


class Nameless(Parade):
    possible_agents = None


class Unlisted(Parade):
    def __getattribute__(self, name):
        if name == "possible_agents":
            raise AttributeError(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("kind", [Nameless, Unlisted])
def test_a_team_of_unknown_size_is_refused(kind):
    with pytest.raises(InputError, match="names no possible_agents"):
        registry.make(kind)


class Spaced(Parade):
    """Has its spaces as attributes: ``dict``s by agent here, and none below."""

    action_space: Any = dict.fromkeys(Parade.possible_agents, spaces.Discrete(3))


class Spaceless(Parade):
    observation_space: Any = None


@pytest.mark.parametrize(("kind", "lacking"), [(Spaced, "action_space"), (Spaceless, "observation_space")])
def test_spaces_that_are_no_methods_are_refused(kind, lacking):
    with pytest.raises(InputError, match=rf"{kind.__name__} needs a method {lacking}\(self, agent\), which returns"):
        registry.make(kind)


class Wide(Parade):
    def action_space(self, agent):
        return spaces.Discrete(5000)


def test_an_action_space_is_as_wide_as_it_is():
    assert made(Wide).spec.action_dims == (5000, 5000)


def test_limits_of_a_specification_are_kept_and_others_are_taken_with_care():
    class Plain:
        spec = None

    class Inside(Plain):
        env = Late()

    cart = gymnasium.make("CartPole-v1")
    assert limits(cart, None, "cart") == (500, 500)
    assert limits(cart, 900, "cart") == (500, 500)
    assert limits(cart, 20, "cart") == (20, 20)
    assert limits(Late(), None, "late") == (2, 3)
    assert limits(Late(), 2, "late") == (2, 2)
    assert limits(Late(), 9, "late", moves=2) == (4, 6)
    assert limits(Inside(), None, "inside") == (2, 3)
    plain = gymnasium.wrappers.TimeLimit(Hinting(), 7)
    assert limits(plain, None, "plain") == (7, 8)
    assert limits(gymnasium.wrappers.TimeLimit(plain, 5), None, "plain") == (5, 6)
    assert limits(gymnasium.wrappers.TimeLimit(plain, 9), 3, "plain") == (3, 3)
    assert limits(gymnasium.wrappers.TimeLimit(cart, 20), None, "cart") == (20, 20)
    assert limits(Plain(), None, "plain") == (DEFAULT_LIMIT, DEFAULT_LIMIT)


class Generous(Parade):
    """Observes more than its spaces say."""

    def observation_space(self, agent):
        return spaces.Dict(place=spaces.Dict(x=spaces.Box(0, 9, (1,))))

    def reset(self, seed=None, options=None):
        seen, infos = super().reset(seed)
        return self.more(seen), infos

    def step(self, actions):
        seen, *rest = super().step(actions)
        return self.more(seen), *rest

    def more(self, seen):
        return {
            a: {"place": {"x": row, "y": row}, "speed": row, "action_mask": np.ones(3, np.int8)}
            for a, row in seen.items()
        }


class GenerousOne(gymnasium.Env):
    observation_space = spaces.Dict(x=spaces.Box(0, 9, (1,)))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return {"x": np.zeros(1, np.float32), "y": np.zeros(1)}, {}

    def step(self, action):
        return {"x": np.ones(1, np.float32), "y": np.ones(1)}, 0.0, True, False, {}


@pytest.mark.parametrize(
    ("env", "parts"),
    [
        (
            Generous,
            "a_0's observation['place']['y'], a_0's observation['speed'], a_1's observation['place']['y'], a_1's "
            "observation['speed']",
        ),
        (GenerousOne, "The observation['y']"),
    ],
)
def test_the_check_names_parts_of_observations_that_their_spaces_lack(env, parts):
    (finding,) = [one for one in check(env, episodes=2, isolate=False).findings if "do not see" in one.sentence]
    assert finding.level == "warning" and f"lack these keys: {parts}. Add" in finding.sentence
    assert not any("do not see" in one.sentence for one in check(Parade, episodes=2, isolate=False).findings)
