"""``lbf/…``: level-based foraging, on the device through Jumanji or on the host through lbforaging.

The game of Albrecht and Ramamoorthy 2013, in the tasks of Papoudakis et al. 2021, "Benchmarking Multi-Agent Deep
Reinforcement Learning Algorithms in Cooperative Tasks". JAX is imported only for the device.
"""

import functools
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from shoal.bounds import LARGEST_INT
from shoal.environments.options import check_choice, check_count
from shoal.errors import InputError
from shoal.game import HostEnvironment, HostTimestep
from shoal.spec import EnvSpec, equal_agents
from shoal.system.extras import install, lacking

if TYPE_CHECKING:
    from shoal.types import Environment

MAX_LEVEL = 2
"""The highest level of an agent, as in all registered tasks."""
HIGHEST = 100
"""The highest level that the option ``levels`` takes."""
PUBLISHED = (
    "8x8-2p-2f-coop",
    "2s-8x8-2p-2f-coop",
    "10x10-3p-3f",
    "2s-10x10-3p-3f",
    "15x15-3p-5f",
    "15x15-4p-3f",
    "15x15-4p-5f",
)
"""The tasks of Papoudakis et al. 2021."""
_NAME = re.compile(
    r"(?:Foraging-)?((?:(\d{1,4})s-)?(\d{1,4})x(\d{1,4})-(\d{1,4})p-(\d{1,4})f(-coop)?)(?:-v\d+)?", re.ASCII
)


class Task(NamedTuple):
    """A parsed task name."""

    name: str
    sight: int
    """Cells observed in each direction; the whole field if the name has no ``Ns-``."""
    side: int
    players: int
    foods: int
    coop: bool


def make(
    task: str,
    *,
    backend: Literal["device", "host"] = "device",
    horizon: int | None = None,
    reward: Literal["team", "individual"] = "team",
    levels: tuple[int, ...] | None = None,
) -> "Environment | HostEnvironment":
    """Level-based foraging: agents gather food that requires the sum of several agents' levels.

    Tasks have their usual names: ``lbf/2s-8x8-2p-2f-coop`` is a field of 8 x 8 cells with 2 players who see 2 cells
    far, and 2 foods that each require all players, or of more than three the three weakest together (``coop``); without
    ``2s-`` players see the whole field. With ``levels``, a player as strong as the three weakest gathers it alone.

    Actions are none, north, south, west, east and load; moving into a wall or a food is illegal, and so is loading
    without food nearby. An observation holds row and column within the cells in sight, and level, of every food, of
    the agent and of the others, (-1, -1, 0) if out of sight. The state is the concatenation of all observations. An
    episode terminates when all food is gone.

    Rewards are scaled so that all food of an episode is worth 1 to the team: a score is the fraction of the food that
    was gathered, weighted by level, with either ``reward``. The metrics of an episode are ``won``, 1 if all food was
    gathered, and ``eaten``, the fraction of the number of foods (Jumanji's ``percent_eaten`` / 100).

    The backends are two implementations of the same rules that differ in details. Jumanji's keeps a place for each food
    in the observation, lbforaging's lists the foods in sight first; near a wall lbforaging's players see others further
    off; only in Jumanji's is walking into another player illegal; and where lbforaging finds no place for a food in
    1,000 attempts, it plays without it, but with at least one. Episodes start by the same rules (:class:`Starts`), but
    foods are placed before the players.

    Args:
        task: the name without ``lbf/``; ``Foraging-…-v3`` is understood as well.
        backend: ``device`` plays Jumanji's implementation inside the compiled program, ``host`` lbforaging's in worker
            processes.
        horizon: steps after which an episode is cut off; None: the library's own, 100 (Jumanji) or 50 (lbforaging).
        reward: ``team`` gives all agents the sum of their rewards, ``individual`` each agent its own.
        levels: the level of each player in every episode, for example ``(1, 1, 2, 2)``; players of one level have one
            role (Christianos et al. 2021 play with 12 players on three levels). None: levels of 1 and 2 are drawn for
            each episode.

    Raises:
        InputError: the name or an option is invalid, or the library is not installed.
    """
    parsed = parse_lbf_task(task)
    on_host = check_choice("backend", backend, ("device", "host")) == "host"
    shared = check_choice("reward", reward, ("team", "individual")) == "team"
    limit = (50 if on_host else 100) if horizon is None else horizon
    limit = check_count("horizon", limit, most=LARGEST_INT - 1)  # Jumanji counts one step more
    levels = None if levels is None else _check_levels(levels, parsed.players)
    spec = lbf_spec(parsed, limit, shared, levels)
    if not on_host:
        return _device(spec, parsed, levels)
    maker = functools.partial(Foraging, task, limit, shared, levels)
    maker().close()
    return HostEnvironment(spec, maker)


def parse_lbf_task(task: str) -> Task:
    """Parse the name of a task.

    Raises:
        InputError: it is malformed, or the task cannot be played.
    """
    match = _NAME.fullmatch(task)
    if match is None or match[3] != match[4]:
        raise InputError(f"There is no foraging task {task!r}; names look like 2s-8x8-2p-2f-coop or 10x10-3p-3f.")
    name, sight, side, _, players, foods, coop = match.groups()
    parsed = Task(name, int(sight or side), int(side), int(players), int(foods), coop is not None)
    if parsed.side < 5 or parsed.players < 1 or parsed.foods < 1 or not 1 <= parsed.sight <= parsed.side:
        raise InputError(f"lbf/{name} needs a side of at least 5, a player, a food, and a sight of 1 to {side} cells.")
    if parsed.players >= parsed.side**2:
        raise InputError(f"lbf/{name} has no room for {players} players and a food.")
    return parsed


def _check_levels(levels: tuple[int, ...], players: int) -> tuple[int, ...]:
    """One level for each player; an :class:`InputError` otherwise."""
    given = tuple(levels) if isinstance(levels, tuple | list) else (levels,)
    if len(given) != players:
        raise InputError(f"levels must be one number for each of {players} players, not {len(given)}: {levels!r}.")
    return tuple(check_count("each of levels", level, 1, HIGHEST) for level in given)


def lbf_spec(task: Task, horizon: int, shared: bool, levels: tuple[int, ...] | None = None) -> EnvSpec:
    """The description that both backends share."""
    n = task.players
    width = 3 * (task.foods + n)
    spec = equal_agents(
        f"lbf/{task.name}",
        "player",
        n,
        obs=width,
        state=width * n,
        actions=6,
        horizon=horizon,
        shared_reward=shared,
        score="mean" if shared else "sum",
        metrics=("won", "eaten"),
        novel=(),
    )
    kinds = sorted(set(levels or ()))
    return spec if levels is None else replace(spec, roles=tuple(kinds.index(level) for level in levels))


def _device(spec: EnvSpec, task: Task, levels: tuple[int, ...] | None) -> "Environment":
    # Foods are placed first, and each takes five cells from the others at most.
    if (task.side - 2) ** 2 <= 5 * (task.foods - 1) or task.players + task.foods > task.side**2:
        raise InputError(
            f"{spec.name} may have no room for {task.players} players and {task.foods} foods that lie apart: use "
            "backend 'host', where lbforaging plays without the foods for which it finds no place."
        )
    try:
        from jumanji.environments.routing.lbf.env import LevelBasedForaging
        from jumanji.environments.routing.lbf.viewer import LevelBasedForagingViewer
    except ImportError as error:
        raise InputError(lacking(f"{spec.name} on the device", "jumanji", error, install("lbf"))) from error
    from shoal.environments.adapters import jumanji

    viewer = LevelBasedForagingViewer(task.side, spec.name, render_mode="rgb_array")

    def eaten(state: Any) -> Any:
        import jax.numpy as jnp

        gone = state.food_items.eaten
        return jnp.stack([gone.all().astype(jnp.float32), gone.mean()])

    starts: Any = Starts(task, levels)
    env = LevelBasedForaging(starts, viewer, time_limit=spec.horizon + 1)
    return jumanji.jumanji_environment(spec, env, eaten, functools.partial(jumanji.foraging, side=task.side))


class Starts:
    """Draws the first states of Jumanji's game by lbforaging's rules, but foods before players.

    lbforaging's players start anywhere, and its foods where no player is; here it is the other way round, so that
    4(s − 1)/(s² − foods) of the players start at the border of a field of s × s cells instead of 4(s − 1)/s².

    Jumanji's own generator lets no player start in a row whose number is that of a food's row or column, and puts foods
    so close to each other that one player gathers two at once.
    """

    def __init__(self, task: Task, levels: tuple[int, ...] | None = None) -> None:
        self.grid_size, self.fov, self.num_agents, self.num_food = task.side, task.sight, task.players, task.foods
        self.max_agent_level = max(MAX_LEVEL, *levels) if levels else MAX_LEVEL
        self._levels, self._coop = levels, task.coop

    def __call__(self, key: Any) -> Any:
        """A state with all foods and players."""
        import jax
        import jax.numpy as jnp
        from jumanji.environments.routing.lbf.types import Agent, Food, State

        side, n = self.grid_size, self.num_agents
        key, *keys = jax.random.split(key, 4)
        draws = jax.random.uniform(keys[0], (self.num_food + n,))
        row, column = jnp.divmod(jnp.arange(side**2), side)
        inner = (row % (side - 1) > 0) & (column % (side - 1) > 0)

        def drawn(allowed: Any, share: Any) -> Any:
            """One of the allowed cells, all with equal probability."""
            rank = jnp.cumsum(allowed)
            return jnp.argmax(rank > jnp.floor(share * rank[-1]))

        def place_food(allowed: Any, share: Any) -> tuple[Any, Any]:
            apart, beside = allowed  # where no cell lies apart from the other foods, one that is not beside another
            cell = drawn(jnp.where(apart.any(), apart, beside), share)
            down, right = jnp.abs(row - cell // side), jnp.abs(column - cell % side)
            far, near = jnp.maximum(down, right), jnp.minimum(down, right)
            return (apart & (far > 1) & ((near > 0) | (far > 2)), beside & (far + near > 1)), cell

        def place_player(free: Any, share: Any) -> tuple[Any, Any]:
            cell = drawn(free, share)
            return free.at[cell].set(False), cell

        _, foods = jax.lax.scan(place_food, (inner, inner), draws[: self.num_food])
        _, starts = jax.lax.scan(place_player, jnp.ones(side**2, bool).at[foods].set(False), draws[self.num_food :])
        foods, starts = (jnp.stack(jnp.divmod(cell, side), 1) for cell in (foods, starts))

        if self._levels is None:
            levels = jax.random.randint(keys[1], (n,), 1, MAX_LEVEL + 1)
        else:
            levels = jnp.array(self._levels, jnp.int32)
        most = jnp.sort(levels)[:3].sum()  # of the three weakest together
        required = jax.random.randint(keys[2], (self.num_food,), 1, most + 1)
        required = jnp.full_like(required, most) if self._coop else required
        return State(
            key=key,
            step_count=jnp.array(0, jnp.int32),
            agents=Agent(id=jnp.arange(n), position=starts, level=levels, loading=jnp.zeros(n, bool)),
            food_items=Food(
                id=jnp.arange(self.num_food), position=foods, level=required, eaten=jnp.zeros(self.num_food, bool)
            ),
        )


class Foraging:
    """lbforaging's game on the host.

    lbforaging reports its time limit as ``terminated``; it is distinguished by the remaining food. Its players' initial
    positions depend on their previous ones; here they depend on the seed only.
    """

    def __init__(
        self, task: str, horizon: int, shared: bool, levels: tuple[int, ...] | None = None, render: bool = False
    ) -> None:
        """``render`` is ignored: lbforaging can only draw on a screen."""
        parsed = parse_lbf_task(task)
        try:
            from lbforaging.foraging import ForagingEnv
        except ImportError as error:
            raise InputError(lacking(f"lbf/{parsed.name} on the host", "lbforaging", error, install("lbf"))) from error
        self.spec, self._levels = lbf_spec(parsed, horizon, shared, levels), levels
        self._foods = 0
        self._env: Any = ForagingEnv(
            players=parsed.players,
            min_player_level=1 if levels is None else list(levels),
            max_player_level=MAX_LEVEL if levels is None else list(levels),
            min_food_level=1,
            max_food_level=None,
            field_size=(parsed.side, parsed.side),
            max_num_food=parsed.foods,
            sight=parsed.sight,
            max_episode_steps=horizon,
            force_coop=parsed.coop,
        )

    def reset(self, seed: int, out: HostTimestep) -> None:
        """Start an episode; where lbforaging finds no place for any food, the next one that it draws."""
        observations, draw = (), {"seed": seed}
        self._foods = 0
        while not self._foods:
            for player in self._env.players:
                player.position = None  # otherwise their old positions would count as occupied
            observations, _ = self._env.reset(**draw)
            self._foods, draw = np.count_nonzero(self._env.field), {}
        if self._levels is not None:  # lbforaging gives the players their levels in random order
            for player, level in zip(self._env.players, self._levels, strict=True):
                player.level = level
            observations = self._env._make_gym_obs()
        self._write_observations(observations, out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        """Play int32 [N]."""
        observations, rewards, over, _, _ = self._env.step(action.tolist())
        self._write_observations(observations, out)
        out.reward[...] = sum(rewards) if self.spec.shared_reward else rewards
        out.last[...] = over
        left = np.count_nonzero(self._env.field)
        out.metrics[:] = left == 0, 1 - left / self._foods
        if over and left == 0:
            out.discount[...] = 0.0

    def _write_observations(self, observations: tuple[np.ndarray, ...], out: HostTimestep) -> None:
        out.obs[...] = observations
        out.state[...] = out.obs.reshape(-1)
        out.legal[...] = False
        for legal, player in zip(out.legal, self._env.players, strict=True):
            for action in self._env._valid_actions[player]:
                legal[action.value] = True

    def render(self) -> None:
        """Return None: there is no picture."""

    def close(self) -> None:
        """Do nothing: there are no resources."""
