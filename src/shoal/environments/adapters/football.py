"""``football/…``: Google Research Football, its academy and its full games.

Does not import JAX.

Kurach et al. 2020, "Google Research Football: A Novel Reinforcement Learning Environment". Observations, players and
rewards are by default those of Yu et al. 2022, "The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games".
``docs/football.md`` says how to install it.
"""

import contextlib
import functools
import io
import warnings
from typing import Any, Literal

import numpy as np

from shoal.environments.options import check_choice, check_count, check_steps
from shoal.errors import InputError, unknown
from shoal.game import HostEnvironment, HostTimestep
from shoal.spec import equal_agents
from shoal.system.shipped import page

PLAYERS = {
    "academy_empty_goal_close": 1,
    "academy_empty_goal": 1,
    "academy_run_to_score": 1,
    "academy_run_to_score_with_keeper": 1,
    "academy_pass_and_shoot_with_keeper": 2,
    "academy_run_pass_and_shoot_with_keeper": 2,
    "academy_3_vs_1_with_keeper": 3,
    "academy_counterattack_easy": 4,
    "academy_counterattack_hard": 4,
    "academy_corner": 10,
    "academy_single_goal_versus_lazy": 11,
    "1_vs_1_easy": 1,
    "5_vs_5": 4,
    "11_vs_11_easy_stochastic": 11,
    "11_vs_11_stochastic": 11,
    "11_vs_11_hard_stochastic": 11,
    "11_vs_11_competition": 11,
    "11_vs_11_kaggle": 11,
}
"""Scenarios with the default number of controlled players: as in Yu et al. if they have it, otherwise the largest."""
ACTIONS = 19
_TEAM = 11
_COMMON = 97  # features before the one-hot of the active player: places and speeds of players and ball, and its owner
_MODES = 7  # features after it

Representation = Literal["simple115v2", "simple115"]


def make(
    task: str,
    *,
    num_agents: int | None = None,
    representation: Representation = "simple115v2",
    rewards: Literal["scoring", "scoring,checkpoints"] = "scoring,checkpoints",
    shared_reward: bool = True,
    time_limit: int | None = None,
) -> HostEnvironment:
    """Football: agents are players of the left team against the game's own players.

    Tasks are gfootball's scenarios, from ``football/academy_empty_goal_close`` to
    ``football/11_vs_11_hard_stochastic``; in the academy an episode ends with a goal, when the ball leaves play and, in
    all but ``academy_corner``, when the other team gets the ball. That is a true termination; the end of the playing
    time is a time limit.

    Observations are 115 numbers: positions and velocities of all players (-1 for missing ones) and of the ball, its
    owner, the player that the agent controls, and the game mode. The state holds the same once, with every agent's
    player: 104 + 11 N numbers. All 19 actions are legal; an agent whose player was sent off can only idle.

    The metrics of an episode are ``won``, 1 if the left team has scored more goals than the right one (in the academy:
    if it has scored), ``goals`` and ``goals_against``.

    With fewer agents than players that can be controlled, gfootball assigns them the players near the ball, including
    the goalkeeper, so that the player of an agent changes within an episode.

    Args:
        task: the name without ``football/``.
        num_agents: number of controlled players; None: as in MAPPO's paper if it has the scenario (3 in
            ``academy_3_vs_1_with_keeper``, 4 in the counter-attacks, 10 at the corner), otherwise the largest number.
        representation: ``simple115v2``, or ``simple115``, without gaps for missing players of a team.
        rewards: ``scoring`` is 1 for a goal and -1 for one against; ``checkpoints`` adds 0.1 for the agent that first
            moves the ball across each of ten lines on the way to the goal.
        shared_reward: give all agents the sum of their rewards, as in MAPPO's paper (a goal is then worth N, or 2 N
            with checkpoints), rather than each its own.
        time_limit: steps after which an episode is cut off, at most the scenario's; None: the scenario's.

    Raises:
        InputError: the scenario is unknown, an option is invalid, or gfootball is not installed.
    """
    known = _scenarios(task)
    if task not in known:
        raise unknown("football scenario", task, known)
    check_choice("representation", representation, ("simple115v2", "simple115"))
    check_choice("rewards", rewards, ("scoring", "scoring,checkpoints"))
    if num_agents is not None:
        check_count("num_agents", num_agents)
    if time_limit is not None:
        check_steps("time_limit", time_limit)
    maker = functools.partial(Match, task, num_agents, representation, rewards, shared_reward, time_limit)
    built = maker()
    built.close()
    return HostEnvironment(built.spec, maker)


def _scenarios(task: str) -> list[str]:
    """All scenarios, also user-defined ones in gfootball's folder; gfootball exits on an unknown one."""
    with quiet():
        try:
            from gfootball.env import scenario_builder  # pyright: ignore[reportMissingImports]
        except ModuleNotFoundError as error:
            raise InputError(
                f"football/{task} needs gfootball, which plain pip cannot install: see {page('docs/football.md')}."
            ) from error
    return [*PLAYERS, *(name for name in scenario_builder.all_scenarios() if name not in PLAYERS)]


@contextlib.contextmanager
def quiet() -> Any:
    """Suppress the notices of the old gym package, which gfootball needs."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


class Match:
    """One game of gfootball.

    gfootball reports any end by ``done``. ``steps_left`` identifies the time limit; the last observation shows whether
    the scenario's rules would have ended the episode anyway. An agent whose player is sent off controls no player from
    then on and counts as dead; the team plays on.
    """

    def __init__(
        self,
        task: str,
        num_agents: int | None,
        representation: Representation,
        rewards: str,
        shared_reward: bool,
        time_limit: int | None,
        render: bool = False,
    ) -> None:
        """``render`` is ignored: gfootball can only draw on a display."""
        with quiet():
            from gfootball.env import config, create_environment  # pyright: ignore[reportMissingImports]

            scenario = config.Config({"level": task}).ScenarioConfig()
            can = int(scenario.controllable_left_players)
            n = num_agents or PLAYERS.get(task, can)
            limit = int(scenario.game_duration) + 1  # the clock starts at one more than the duration
            if n > can:
                raise InputError(f"football/{task} has {can} players to control, so num_agents cannot be {n}.")
            if time_limit is not None and time_limit > limit:
                raise InputError(f"football/{task} ends after {limit} steps, so time_limit cannot be {time_limit}.")
            self._env: Any = create_environment(
                env_name=task,
                representation=representation,
                rewards=rewards,
                number_of_left_players_agent_controls=n,
                dump_frequency=0,
                other_config_options={"game_engine_random_seed": 0},
            )
        self._match: Any = self._env.unwrapped
        self._ends_on_goal = scenario.end_episode_on_score
        self._ends_out_of_play = scenario.end_episode_on_out_of_play
        self._ends_on_loss = scenario.end_episode_on_possession_change
        self._first_owner = -1
        self._steps = 0
        self.spec = equal_agents(
            f"football/{task}",
            "player",
            n,
            obs=_COMMON + _TEAM + _MODES,
            state=_COMMON + _TEAM * n + _MODES,
            actions=ACTIONS,
            horizon=time_limit or limit,
            shared_reward=shared_reward,
            score="mean" if shared_reward else "sum",
            metrics=("won", "goals", "goals_against"),
            novel=(),
        )

    def reset(self, seed: int, out: HostTimestep) -> None:
        """Start an episode."""
        settings = self._match._config
        settings["game_engine_random_seed"] = seed
        # They determine which team is computed first and which kicks off, and would otherwise persist across episodes.
        settings["reverse_team_processing"] = bool(seed % 2)
        settings["episode_number"] = seed // 2
        obs = self._env.reset()
        self._steps = 0
        self._first_owner = self._match.observation()[0]["ball_owned_team"]
        self._write_observations(obs, out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        """Play int32 [N]."""
        obs, reward, done, _ = self._env.step(action)
        self._steps += 1
        self._write_observations(obs, out)
        out.reward[...] = np.sum(reward) if self.spec.shared_reward else reward
        seen = self._match.observation()[0]
        goals, against = seen["score"]
        out.metrics[:] = goals > against, goals, against
        if done:
            out.last[...] = True
            if seen["steps_left"] > 0 or self._ends_anyway(seen):
                out.discount[...] = 0.0
        elif self._steps >= self.spec.horizon:
            out.last[...] = True
        if self._first_owner == -1:
            self._first_owner = seen["ball_owned_team"]

    def _ends_anyway(self, seen: dict[str, Any]) -> bool:
        """Whether the scenario's rules end the episode here, apart from the time limit."""
        if self._ends_on_goal and any(seen["score"]):
            return True
        if self._ends_out_of_play and seen["game_mode"] != 0:
            return True
        # The episode ends when the ball's owner changes for the first time.
        return self._ends_on_loss and seen["ball_owned_team"] not in (-1, self._first_owner) and self._first_owner != -1

    def _write_observations(self, obs: np.ndarray, out: HostTimestep) -> None:
        out.obs[...] = obs
        modes = _COMMON + _TEAM
        players = out.obs[:, _COMMON:modes]
        out.state[:_COMMON] = out.obs[0, :_COMMON]
        out.state[_COMMON:-_MODES].reshape(players.shape)[...] = players
        out.state[-_MODES:] = out.obs[0, modes:]
        np.any(players, axis=1, out=out.alive)
        if not out.alive.all():
            out.obs[~out.alive] = 0.0
            out.legal[~out.alive, 1:] = False

    def render(self) -> np.ndarray | None:
        """Return None: there is no picture."""

    def close(self) -> None:
        """Release the engine, which the next game of this process reuses."""
        self._env.close()
