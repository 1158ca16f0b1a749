from typing import Any

import numpy as np
import pytest

pettingzoo = pytest.importorskip("pettingzoo")
gymnasium = pytest.importorskip("gymnasium")

from gymnasium import spaces  # noqa: E402

from shoal.checking import check  # noqa: E402
from shoal.environments import registry  # noqa: E402
from shoal.game import HostEnvironment, blank, own_actions, refresh  # noqa: E402


def started(name, /, **options):
    env = registry.make(name, **options)
    assert isinstance(env, HostEnvironment)
    game, timestep, own = env.make(), blank(env.spec), own_actions(env.spec)
    refresh(timestep, own)
    game.reset(0, timestep)

    def step(action):
        refresh(timestep, own)
        game.step(np.asarray(action), timestep)

    return timestep, step, game


class Rounds(pettingzoo.AECEnv):
    """Each move pays everybody its number; ``p_1`` is out after its first move; all is cut off after ``ends``."""

    metadata = {"name": "rounds", "is_parallelizable": False}  # noqa: RUF012

    def __init__(self, ends: int = 6, dies: bool = True):
        super().__init__()
        self.possible_agents, self.ends, self.dies = ["p_0", "p_1", "p_2"], ends, dies

    def observation_space(self, agent):
        return spaces.Box(0, 99, (1,))

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self, agent):
        return np.full(1, self.time + 1.0)

    def reset(self, seed=None, options=None):
        self.agents, self.time, self.agent_selection = self.possible_agents[:], 0, "p_0"
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}

    def step(self, action):
        mover = self.agent_selection
        if self.terminations[mover] or self.truncations[mover]:
            self._was_dead_step(action)
            return
        self.time += 1
        self._cumulative_rewards[mover] = 0.0
        self.rewards = dict.fromkeys(self.agents, float(self.time))
        self.agent_selection = self.agents[(self.agents.index(mover) + 1) % len(self.agents)]
        self._accumulate_rewards()
        (self.terminations if self.dies else self.truncations)["p_1"] = mover == "p_1"
        if self.time >= self.ends:
            self.truncations = dict.fromkeys(self.agents, True)
        self._deads_step_first()


def test_every_move_pays_once_and_the_dead_leave():
    timestep, step, _ = started(Rounds)
    rows = []
    for _ in range(6):
        assert not timestep.last
        assert timestep.legal.sum() == 4  # both actions of one, and index 0 of two
        step([0, 0, 0])
        rows.append((timestep.reward.tolist(), timestep.alive.tolist(), timestep.discount.tolist()))
    assert timestep.last
    assert [row[0] for row in rows] == [[1, 1, 1], [2, 2, 2], *([t, 0, t] for t in (3, 4, 5, 6))]
    assert [row[1] for row in rows] == [[True] * 3, *([[True, False, True]] * 5)]
    assert rows[1][2] == [1, 0, 1]
    assert rows[5][2] == [1, 1, 1]


def test_a_player_that_is_cut_off_alone_leaves_with_its_last_observation():
    timestep, step, _ = started(Rounds, dies=False)
    rows = []
    for _ in range(3):
        step([0, 0, 0])
        rows.append((timestep.alive.tolist(), timestep.leaving.tolist(), timestep.obs[:, 0].tolist()))
        assert timestep.discount.all()
    assert rows[1] == ([True] * 3, [False, True, False], [3, 3, 3])
    assert rows[2] == ([True, False, True], [False] * 3, [4, 0, 4])


def test_a_time_limit_counts_moves_of_all_agents():
    timestep, step, _ = started(Rounds, ends=3)
    for _ in range(3):
        assert not timestep.last
        step([0, 0, 0])
    assert timestep.last


class Waiting(Rounds):
    """A player that is out is listed, and observed, until it is on turn."""

    def step(self, action):
        super().step(action)
        self.terminations["p_1"] = self.time >= 2

    def _deads_step_first(self):
        return self.agent_selection

    def _was_dead_step(self, action):
        over = self.agent_selection
        self.agent_selection = self.agents[(self.agents.index(over) + 1) % len(self.agents)]
        self.agents.remove(over)
        del self._cumulative_rewards[over]


def test_a_player_that_is_out_and_still_listed_is_zero_in_the_state():
    timestep, step, _ = started(Waiting)
    for t in range(1, 5):
        step([0, 0, 0])
        assert timestep.alive.tolist() == [True, t < 2, True]
        assert timestep.obs[:, 0].tolist() == timestep.state.tolist() == [t + 1, (t + 1) * (t < 2), t + 1]


class Lingering(Rounds):
    """Does nothing where the player on turn has ended."""

    def step(self, action):
        if action is not None:
            super().step(action)


def test_a_player_that_has_ended_and_stays_on_turn_is_an_error_and_no_hang():
    _, step, _ = started(Lingering)
    step([0, 0, 0])
    with pytest.raises(ValueError, match=r"step\(None\) leaves 'p_1', which has ended, in agents and on turn"):
        step([0, 0, 0])


class Unlimited(Rounds):
    """What it calls ``max_steps`` is no limit of rounds."""

    max_steps = 1


@pytest.mark.parametrize(("ends", "counted"), [(6, 0), (99, 1)])
def test_a_game_that_goes_on_after_the_limit_of_an_attribute_is_counted(ends, counted):
    timestep, step, played = started(Unlimited, ends=ends)
    game: Any = played
    while not timestep.last:
        step([0, 0, 0])
    assert game.overran == counted and game.spec.horizon == 3


def test_a_time_limit_counts_moves():
    pytest.importorskip("pettingzoo.classic.connect_four_v3")
    timestep, step, game = started("pettingzoo:classic.connect_four_v3", time_limit=2)
    assert game.spec.horizon == 2
    step([0, 0])
    assert not timestep.last
    step([0, 0])
    assert timestep.last
    assert timestep.discount.all()


class Masked(Rounds):
    """Masks that allow nothing for those who are not on turn, and for ``blocked``."""

    blocked = ""

    def observation_space(self, agent):
        return spaces.Dict(seen=super().observation_space(agent), action_mask=spaces.MultiBinary(2))

    def observe(self, agent):
        allows = agent == self.agent_selection != self.blocked
        return {"seen": super().observe(agent), "action_mask": np.full(2, allows, np.int8)}


class Blocked(Masked):
    blocked = "p_2"


def test_the_check_names_an_empty_mask_of_the_player_on_turn():
    def empty(env):
        return [one for one in check(env, episodes=1, isolate=False).findings if "allows nothing" in one.sentence]

    assert empty(Masked) == []
    (finding,) = empty(Blocked)
    assert finding.sentence.startswith("p_2's action_mask allows nothing at step 2 of episode 1 (seed 0), after the")


class Pair(gymnasium.Env):
    """Masks in observations; the first agent ends on step 2; all is cut off on step 3."""

    metadata = {}  # noqa: RUF012
    observation_space: Any = spaces.Tuple(
        [spaces.Dict({"seen": spaces.Box(0, 9, (1,)), "action_mask": spaces.MultiBinary(2)})] * 2
    )
    action_space: Any = spaces.Tuple([spaces.Discrete(2)] * 2)

    def _seen(self):
        return tuple({"seen": np.full(1, 5.0), "action_mask": np.array([0, 1], np.int8)} for _ in range(2))

    def reset(self, *, seed=None, options=None) -> Any:
        self.time = 0
        return self._seen(), {}

    def step(self, action) -> Any:
        self.time += 1
        return self._seen(), [1.0, 1.0], [self.time == 2, False], self.time == 3, {}


class Steering(Pair):
    """A mask beside actions that are numbers."""

    action_space: Any = spaces.Tuple([spaces.Box(-1, 1, (3,))] * 2)


def test_a_mask_says_nothing_of_numbers():
    timestep, step, _ = started(Steering)
    assert timestep.legal.all()
    step(np.zeros((2, 3)))
    assert timestep.legal.all()
    np.testing.assert_array_equal(timestep.obs, [[5], [5]])


class Endless(Pair):
    max_steps = 1

    def step(self, action) -> Any:
        return self._seen(), [1.0, 1.0], False, False, {}


def test_a_tuple_team_that_never_ends_is_cut_off():
    timestep, step, _ = started(Endless)
    for _ in range(2):
        assert not timestep.last
        step([1, 1])
    assert timestep.last
    assert timestep.discount.all()


class Alone(Pair):
    observation_space: Any = Pair.observation_space[0]
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None) -> Any:
        seen, info = super().reset()
        return seen[0], info

    def step(self, action) -> Any:
        seen, _, _, cut, info = super().step(action)
        return seen[0], 1.0, False, cut, info


def test_a_tuple_team_starts_anew_with_its_masks():
    timestep, step, game = started(Pair)
    for episode in range(2):
        game.reset(episode, timestep)
        for _ in range(3):
            np.testing.assert_array_equal(timestep.legal, [[False, True]] * 2)
            step([1, 1])
            assert timestep.reward[1] == 1
        assert timestep.last
        np.testing.assert_array_equal(timestep.discount, [1, 1])
        np.testing.assert_array_equal(timestep.alive, [False, True])


def test_a_mask_in_the_observation_and_a_cut_of_its_own():
    timestep, step, _ = started(Alone)
    for _ in range(3):
        assert not timestep.last
        np.testing.assert_array_equal(timestep.legal, [[False, True]])
        np.testing.assert_array_equal(timestep.obs, [[5]])
        step([1])
    assert timestep.last
    assert timestep.discount.all()


class Whole(Alone):
    action_space = spaces.Box(0, 4, (2,), np.int32)

    def step(self, action) -> Any:
        np.testing.assert_array_equal(action, [2, 4])
        return super().step(action)


def test_whole_numbers_are_rounded():
    _, step, _ = started(Whole)
    step(np.array([[1.6, 3.7]], np.float32))


def test_an_environment_of_turns_that_can_be_played_at_once_is():
    pytest.importorskip("mpe2")
    timestep, step, _ = started("mpe2.simple_spread_v3:raw_env")
    assert timestep.legal.all()
    step([1, 2, 3])
    assert timestep.reward.all()


class Joins(Rounds):
    """``p_2`` joins after the first move."""

    def reset(self, seed=None, options=None):
        super().reset(seed)
        self.dies = False
        self.agents.remove("p_2")
        for values in (self._cumulative_rewards, self.terminations, self.truncations, self.infos):
            values.pop("p_2")

    def step(self, action):
        if self.time == 0:
            self.agents.append("p_2")
            self._cumulative_rewards["p_2"], self.infos["p_2"] = 0.0, {}
            self.terminations["p_2"] = self.truncations["p_2"] = False
        self.time += 1
        self._cumulative_rewards[self.agent_selection] = 0.0
        self.rewards = dict.fromkeys(self.agents, 1.0)
        self.agent_selection = self.agents[(self.agents.index(self.agent_selection) + 1) % len(self.agents)]
        self._accumulate_rewards()
        if self.time >= self.ends:
            self.truncations = dict.fromkeys(self.agents, True)


def test_a_player_that_joins_later_is_there_from_then_on():
    timestep, step, _ = started(Joins)
    assert timestep.alive.tolist() == [True, True, False]
    for move in range(1, 7):
        step([0, 0, 0])
        assert timestep.alive.all() and timestep.obs[:, 0].tolist() == [move + 1] * 3
        assert timestep.legal.sum() == 4
    assert timestep.last and timestep.discount.all()


class Returns(Joins):
    """All earn 1 with each move; ``p_2`` leaves before the second and is back before the third."""

    def reset(self, seed=None, options=None):
        Rounds.reset(self, seed)

    def step(self, action):
        self.time += 1
        if self.time == 2:
            self.agents.remove("p_2")
            for values in (self._cumulative_rewards, self.terminations, self.truncations, self.infos):
                values.pop("p_2")
        if self.time == 3:
            self.agents.append("p_2")
            self._cumulative_rewards["p_2"], self.infos["p_2"] = 0.0, {}
            self.terminations["p_2"] = self.truncations["p_2"] = False
        self._cumulative_rewards[self.agent_selection] = 0.0
        self.rewards = dict.fromkeys(self.agents, 1.0)
        self.agent_selection = self.agents[(self.agents.index(self.agent_selection) + 1) % len(self.agents)]
        self._accumulate_rewards()


def test_a_player_that_comes_back_earns_from_then_on():
    timestep, step, _ = started(Returns)
    earned = []
    for _ in range(4):
        step([0, 0, 0])
        earned.append(timestep.reward.tolist())
    assert earned == [[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 1, 1]]


class Named(Rounds):
    """Its options have the names of parameters of the functions that make it."""

    def __init__(self, name, task):
        super().__init__(ends=len(name + task))


def test_options_may_be_called_name_and_task():
    timestep, step, _ = started(Named, name="ab", task="c")
    for _ in range(3):
        step([0, 0, 0])
    assert timestep.last


class Boxes(Rounds):
    def action_space(self, agent):
        return spaces.Box(-1, 1, (2,))


def test_players_that_wait_keep_the_dimensions_of_their_actions():
    timestep, step, _ = started(Boxes)
    for _ in range(2):
        assert timestep.legal.all()
        step(np.zeros((3, 2)))
