"""``rware/…``: the multi-robot warehouse, on the device, or through Jumanji, or on the host through rware.

The tasks of Papoudakis et al. 2021, "Benchmarking Multi-Agent Deep Reinforcement Learning Algorithms in Cooperative
Tasks", and those with colours of Christianos et al. 2021, "Scaling Multi-Agent Reinforcement Learning with Selective
Parameter Sharing". JAX is imported only for the device.
"""

import functools
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from shoal.bounds import LARGEST_INT
from shoal.environments.options import check_choice, check_count, check_steps
from shoal.errors import InputError
from shoal.game import HostEnvironment, HostTimestep
from shoal.spec import EnvSpec, equal_agents
from shoal.system.extras import install, lacking

if TYPE_CHECKING:
    from shoal.types import Environment

SIZES = {"tiny": (1, 3), "small": (2, 3), "medium": (2, 5), "large": (3, 5)}
"""Rows and columns of blocks of shelves."""
HEIGHT = 8
"""Height of a block in shelves."""
REQUESTS = {"-easy": 2.0, "": 1.0, "-hard": 0.5}
"""Shelves requested at any time, per robot."""
PUBLISHED = tuple(f"{size}-{robots}ag{more}" for size in SIZES for robots in (2, 4) for more in REQUESTS)
"""Names of usual tasks, which include those of Papoudakis et al. 2021."""
MAX_COLOURS = 4
_NAME = re.compile(
    r"(?:rware-)?((?:(\d)color-)?(tiny|small|medium|large)-(\d{1,4})ag(-easy|-hard|))(?:-v\d+)?", re.ASCII
)


class Task(NamedTuple):
    """A parsed task name."""

    name: str
    rows: int
    columns: int
    robots: int
    requests: int
    colours: int = 0


def make(
    task: str,
    *,
    backend: Literal["device", "jumanji", "host"] = "device",
    horizon: int = 500,
    reward: Literal["team", "individual"] = "team",
) -> "Environment | HostEnvironment":
    """A warehouse: robots carry requested shelves to the goals and empty ones back.

    Tasks have their usual names: size (``tiny``, ``small``, ``medium``, ``large``), robots, and how many shelves are
    requested at any time, as many as robots, twice (``-easy``) or half as many (``-hard``): ``rware/tiny-2ag``,
    ``rware/small-4ag-hard``. Each delivery earns 1, so a score is the number of deliveries in an episode.

    Actions are none, forward, left, right and load or unload. An observation holds the robot's own position, load and
    direction, and robots and shelves in the 3 x 3 cells around it. The state is the concatenation of all observations.

    ``rware/2color-tiny-4ag`` has robots and shelves of two colours (1 to 4): half of the robots have each, a delivery
    counts only if robot and shelf have the same, and robots of different colours have the numbers of their observations
    and their actions in different orders. Colours are roles. Published results with colours have individual rewards.

    The backends ``device`` and ``host`` have the same rules: robots block each other's way, every action is legal, and
    only the time limit ends an episode. In Jumanji an episode terminates when two robots collide (also when one enters
    a cell that another leaves in the same step but later in the order of robots); a loaded robot may not move into a
    shelf; and there is only a team reward.

    Args:
        task: the name without ``rware/``; ``rware-…-v2`` is understood as well.
        backend: ``device`` is Shoal's own implementation inside the compiled program
            (:mod:`shoal.environments.grid.warehouse`), ``jumanji`` plays Jumanji's there, and ``host`` rware's in
            worker processes.
        horizon: steps after which an episode is cut off.
        reward: ``team`` gives all robots the sum of their rewards, ``individual`` each robot its own (not in Jumanji).

    Raises:
        InputError: the name or an option is invalid, or the library is not installed.
    """
    parsed = parse_rware_task(task)
    chosen = check_choice("backend", backend, ("device", "jumanji", "host"))
    shared = check_choice("reward", reward, ("team", "individual")) == "team"
    check_steps("horizon", horizon)
    if chosen == "device":
        from shoal.environments.grid import warehouse

        spec = warehouse.warehouse_spec(f"rware/{parsed.name}", parsed.robots, parsed.colours, horizon, shared)
        return warehouse.warehouse(spec, parsed.rows, parsed.columns, HEIGHT, parsed.requests, parsed.colours)
    if parsed.colours:
        raise InputError(f"rware/{parsed.name} has colours, which only backend='device' has.")
    if chosen == "host":
        maker = functools.partial(Warehouse, task, horizon, shared)
        built = maker()
        return HostEnvironment(built.spec, maker)
    check_count("horizon", horizon, most=LARGEST_INT - 1)  # Jumanji counts one step more
    if not shared:
        raise InputError("rware/… has no individual rewards in Jumanji; set backend='device' or backend='host'.")
    return _jumanji(parsed, horizon)


def parse_rware_task(task: str) -> Task:
    """Parse the name of a task.

    Raises:
        InputError: it is malformed, or the task cannot be played.
    """
    match = _NAME.fullmatch(task)
    if match is None:
        raise InputError(
            f"There is no warehouse task {task!r}; names look like tiny-2ag, small-4ag-hard or 2color-tiny-4ag."
        )
    name, colours, size, robots, difficulty = match.groups()
    rows, columns = SIZES[size]
    requests = int(int(robots) * REQUESTS[difficulty])
    shelves = 2 * HEIGHT * rows * columns - 2 * HEIGHT  # the block before the goals is left out
    if not 1 <= int(robots) <= 19 or not 1 <= requests < shelves:
        raise InputError(f"rware/{name} needs 1 to 19 robots, and from 1 to {shelves - 1} requested shelves.")
    if colours is not None and not 1 <= int(colours) <= MAX_COLOURS:
        raise InputError(f"rware/{name} needs 1 to {MAX_COLOURS} colours.")
    if int(robots) < int(colours or 0):
        raise InputError(f"rware/{name} has shelves of {colours} colours, so it needs at least {colours} robots.")
    return Task(name, rows, columns, int(robots), requests, int(colours or 0))


def rware_spec(task: Task, horizon: int, shared: bool, width: int) -> EnvSpec:
    """The description that Jumanji's and rware's warehouses share; ``width`` is that of an observation."""
    n = task.robots
    return equal_agents(
        f"rware/{task.name}",
        "robot",
        n,
        obs=width,
        state=width * n,
        actions=5,
        horizon=horizon,
        shared_reward=shared,
        score="mean" if shared else "sum",
        novel=(),
    )


def _jumanji(task: Task, horizon: int) -> "Environment":
    try:
        from jumanji.environments.routing.robot_warehouse.env import RobotWarehouse
        from jumanji.environments.routing.robot_warehouse.generator import RandomGenerator
        from jumanji.environments.routing.robot_warehouse.viewer import RobotWarehouseViewer
    except ImportError as error:
        raise InputError(lacking(f"rware/{task.name} in Jumanji", "jumanji", error, install("rware"))) from error
    from shoal.environments.adapters import jumanji

    generator = RandomGenerator(
        shelf_rows=task.rows,
        shelf_columns=task.columns,
        column_height=HEIGHT,
        num_agents=task.robots,
        sensor_range=1,
        request_queue_size=task.requests,
    )
    side: Any = generator.grid_size
    viewer = RobotWarehouseViewer(side, generator.goals, task.name, render_mode="rgb_array")
    env = RobotWarehouse(generator, time_limit=horizon + 1, viewer=viewer)
    outline = functools.partial(jumanji.warehouse, size=tuple(side), goals=np.asarray(generator.goals))
    return jumanji.jumanji_environment(rware_spec(task, horizon, True, int(env.num_obs_features)), env, outline=outline)


class Warehouse:
    """rware's game on the host. Its only end is the time limit, which it reports as ``terminated``."""

    def __init__(self, task: str, horizon: int, shared: bool, render: bool = False) -> None:
        """``render`` is ignored: rware can only draw on a screen."""
        parsed = parse_rware_task(task)
        try:
            from rware.warehouse import RewardType
            from rware.warehouse import Warehouse as Original
        except ImportError as error:
            raise InputError(lacking(f"rware/{parsed.name} on the host", "rware", error, install("rware"))) from error
        self._env: Any = Original(
            shelf_columns=parsed.columns,
            column_height=HEIGHT,
            shelf_rows=parsed.rows,
            n_agents=parsed.robots,
            msg_bits=0,
            sensor_range=1,
            request_queue_size=parsed.requests,
            max_inactivity_steps=None,
            max_steps=horizon,
            reward_type=RewardType.INDIVIDUAL,
        )
        self.spec = rware_spec(parsed, horizon, shared, self._env.observation_space[0].shape[0])

    def reset(self, seed: int, out: HostTimestep) -> None:
        """Start an episode."""
        observations, _ = self._env.reset(seed=seed)
        self._write_observations(observations, out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        """Play int32 [N]."""
        observations, rewards, over, _, _ = self._env.step(action.tolist())
        self._write_observations(observations, out)
        out.reward[...] = sum(rewards) if self.spec.shared_reward else rewards
        out.last[...] = over

    def _write_observations(self, observations: tuple[np.ndarray, ...], out: HostTimestep) -> None:
        out.obs[...] = observations
        out.state[...] = out.obs.reshape(-1)

    def render(self) -> None:
        """Return None: there is no picture."""

    def close(self) -> None:
        """Do nothing: there are no resources."""
