"""The warehouse on the device beside rware's, step by step from the same states; colours beside plain loops."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments import registry
from shoal.environments.adapters.rware import parse_rware_task
from shoal.environments.grid import warehouse
from shoal.environments.grid.warehouse import FORWARD, LEFT, NOOP, RIGHT, TOGGLE, State, plan_of
from support.environments import device_env

KEY = jax.random.key(0)


def original(task: str) -> Any:
    package = pytest.importorskip("rware.warehouse")
    parsed = parse_rware_task(task)
    reward = package.RewardType.INDIVIDUAL
    return package.Warehouse(parsed.columns, 8, parsed.rows, parsed.robots, 0, 1, parsed.requests, None, 500, reward)


def state_of(raw: Any) -> State:
    plan = plan_of(raw.grid_size[0] // 9, (raw.grid_size[1] - 1) // 3, 8)
    stride = plan.field.stride

    def number(shelf: Any) -> int:
        return shelf.id - 1

    standing = np.zeros(len(plan.highway), np.int32)
    carried = [number(robot.carrying_shelf) if robot.carrying_shelf else -1 for robot in raw.agents]
    for shelf in raw.shelfs:
        if number(shelf) not in carried:
            standing[shelf.y * stride + shelf.x + plan.before] = number(shelf) + 1
    requested = np.zeros(len(raw.shelfs), bool)
    requested[[number(shelf) for shelf in raw.request_queue]] = True
    return State(
        robots=np.array([robot.y * stride + robot.x for robot in raw.agents], np.int32),  # type: ignore[arg-type]
        facing=np.array([robot.dir.value for robot in raw.agents], np.int32),  # type: ignore[arg-type]
        load=np.array(carried, np.int32),  # type: ignore[arg-type]
        standing=standing,  # type: ignore[arg-type]
        requested=requested,  # type: ignore[arg-type]
        colour=np.zeros(len(raw.shelfs), np.int32),  # type: ignore[arg-type]
        t=np.int32(0),  # type: ignore[arg-type]
    )


def huddle(raw: Any, rng: np.random.Generator) -> None:
    """All shelves in their places, but for those of robots, which are within a few cells at the goals."""
    homes = [(x, y) for y, x in np.argwhere(raw.highways == 0).tolist()]
    for shelf, (x, y) in zip(raw.shelfs, homes, strict=True):
        shelf.x, shelf.y = x, y
    middle, bottom = raw.grid_size[1] // 2, raw.grid_size[0] - 1
    region = [(x, y) for x in range(middle - 2, middle + 2) for y in range(bottom - 3, bottom + 1)]
    # Robots with requested shelves are more frequent than by chance, so that there are deliveries.
    shelves = [*rng.permutation(raw.request_queue), *rng.permutation(raw.shelfs)][: len(raw.agents)]
    for robot, shelf, (x, y) in zip(raw.agents, dict.fromkeys(shelves), rng.permutation(region).tolist(), strict=False):
        robot.x, robot.y, robot.dir, robot.carrying_shelf = x, y, type(robot.dir)(rng.integers(4)), None
        if (x, y) not in homes and rng.random() < 0.5:
            robot.carrying_shelf = shelf
            shelf.x, shelf.y = x, y
    raw._recalc_grid()


def without_ties(raw: Any, action: np.ndarray) -> np.ndarray:
    """Of robots that enter one cell with equally long rows behind them the first alone wants to: which of them moves in
    rware depends on the order in which its graph is walked."""
    changed = action.copy()
    while True:
        goal: dict[int, tuple[int, int]] = {}
        for i, robot in enumerate(raw.agents):
            robot.req_action = raw.action_enum(int(changed[i]))
            target = robot.req_location(raw.grid_size)
            if changed[i] == FORWARD and target != (robot.x, robot.y):
                goal[i] = target
        row = {i: _row(raw, goal, i) for i in goal}
        ties = [j for i in goal for j in goal if i < j and goal[i] == goal[j] and row[i] == row[j]]
        if not ties:
            return changed
        changed[ties[0]] = NOOP


def _row(raw: Any, goal: dict[int, tuple[int, int]], i: int, seen: tuple[int, ...] = ()) -> int:
    """The number of robots in the longest row that robot ``i`` leads."""
    cell = raw.agents[i].x, raw.agents[i].y
    return 1 + max((_row(raw, goal, j, (*seen, i)) for j in goal if goal[j] == cell and j not in seen), default=0)


@pytest.mark.parametrize(("task", "share"), [("tiny-2ag", 0.3), ("tiny-8ag", 0.7), ("small-4ag-easy", 0.3)])
def test_every_step_is_rwares(task: str, share: float) -> None:
    raw, env, rng = original(task), device_env(f"rware/{task}", reward="individual"), np.random.default_rng(0)
    from rware.warehouse import Action

    raw.action_enum = Action
    step, n = jax.jit(env.step), env.spec.num_agents
    raw.reset(seed=0)
    earned, moved, held = 0.0, 0, 0
    for t in range(240):
        if t % 3 == 0:
            huddle(raw, rng)
        before = state_of(raw)
        action = np.where(rng.random(n) < share, FORWARD, rng.integers(0, 5, n)).astype(np.int32)
        action = without_ties(raw, action)
        after, seen = step(jax.random.key(t), before, action)
        observations, rewards, *_ = raw.step([Action(int(a)) for a in action])
        theirs = state_of(raw)
        for name in ("robots", "facing", "load", "standing"):
            np.testing.assert_array_equal(getattr(after, name), getattr(theirs, name), err_msg=f"{name} at {t}")
        np.testing.assert_array_equal(seen.reward, rewards)
        kept = np.asarray(before.requested) & np.asarray(theirs.requested)
        requested = np.asarray(after.requested)
        assert requested.sum() == np.asarray(theirs.requested).sum() and requested[kept].all()
        if not any(rewards):
            np.testing.assert_array_equal(seen.obs, np.stack(observations), err_msg=str(t))
        earned += sum(rewards)
        moved += int((np.asarray(after.robots) != np.asarray(before.robots)).sum())
        held += int(((np.asarray(after.robots) == np.asarray(before.robots)) & (action == FORWARD)).sum())
    assert earned > 1 and moved > 50 and held > 20


def place(task: str, robots: list[tuple[int, int, int]], **changes: Any) -> tuple[Any, State]:
    """An episode's first state with robots at rows and columns, in directions."""
    env = device_env(f"rware/{task}", reward="individual")
    parsed = parse_rware_task(task)
    field = plan_of(parsed.rows, parsed.columns, 8).field
    state, _ = jax.jit(env.reset)(KEY)
    cells = np.array([row * field.stride + column for row, column, _ in robots], np.int32)
    facing = np.array([way for *_, way in robots], np.int32)
    return env, state._replace(robots=jnp.asarray(cells), facing=jnp.asarray(facing), **changes)


def test_of_two_with_equal_rows_the_first_moves() -> None:
    env, state = place("tiny-2ag", [(0, 1, 2), (1, 0, 0)])  # both want to enter the corner
    after, _ = jax.jit(env.step)(KEY, state, np.array([FORWARD, FORWARD], np.int32))
    assert (np.asarray(after.robots != state.robots) == [True, False]).all()


@pytest.mark.parametrize("members", [2, 4])
def test_robots_in_a_ring_move_on_and_two_do_not_exchange_places(members: int) -> None:
    ring = (
        [(0, 0, 3), (0, 1, 1), (1, 1, 2), (1, 0, 0)] if members == 4 else [(0, 0, 3), (0, 1, 2), (5, 0, 0), (7, 0, 0)]
    )
    env, state = place("tiny-4ag", ring)
    after, _ = jax.jit(env.step)(KEY, state, np.full(4, FORWARD, np.int32))
    assert (np.asarray(after.robots != state.robots)[:members] == (members == 4)).all()


def test_episodes_start_as_rwares() -> None:
    env, plan = device_env("rware/tiny-6ag"), plan_of(1, 3, 8)
    starts, seen = jax.jit(jax.vmap(env.reset))(jax.random.split(KEY, 300))
    robots = np.asarray(starts.robots)
    assert all(len(set(row)) == 6 for row in robots.tolist())
    assert set(robots.ravel().tolist()) == set(plan.field.cells.tolist())  # anywhere, also below shelves
    assert set(np.asarray(starts.facing).ravel().tolist()) == {0, 1, 2, 3} and (np.asarray(starts.load) == -1).all()
    assert (np.asarray(starts.requested).sum(1) == 6).all() and np.asarray(starts.requested).any(0).all()
    assert len(plan.shelves) == len(original("tiny-6ag").highways.ravel()) - original("tiny-6ag").highways.sum()
    assert np.asarray(seen.first).all() and not np.asarray(seen.last).any()


def test_only_the_time_limit_ends_an_episode() -> None:
    registry.validate(device_env("rware/tiny-2ag", horizon=5))
    env = device_env("rware/tiny-2ag", horizon=2)
    step = jax.jit(env.step)
    state, _ = jax.jit(env.reset)(KEY)
    state, first = step(KEY, state, np.zeros(2, np.int32))
    _, second = step(KEY, state, np.zeros(2, np.int32))
    assert (bool(first.last), bool(second.last)) == (False, True) and second.discount.all()


COLOURED = "2color-tiny-4ag"


def test_robots_have_colours_as_roles() -> None:
    spec = device_env(f"rware/{COLOURED}").spec
    assert spec.roles == (0, 0, 1, 1) and set(spec.obs_dims) == {8 + 9 * 4}
    assert device_env("rware/3color-tiny-8ag").spec.roles == (
        0,
        0,
        0,
        0,
        1,
        1,
        2,
        2,
    )  # what is left over is of the first
    registry.validate(device_env(f"rware/{COLOURED}", horizon=5, reward="individual"))


def test_actions_are_rotated_by_the_colours_number() -> None:
    plain, coloured = (device_env(f"rware/{task}") for task in ("tiny-4ag", COLOURED))
    state, _ = jax.jit(coloured.reset)(KEY)
    rng = np.random.default_rng(1)
    for _ in range(20):
        action = rng.integers(0, 5, 4).astype(np.int32)
        meant = (action - [0, 0, 1, 1]) % 5
        mine, _ = jax.jit(coloured.step)(KEY, state, action)
        same, _ = jax.jit(plain.step)(KEY, state, meant.astype(np.int32))
        for name in ("robots", "facing", "load", "standing"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(same, name))
        state = mine
    assert (np.asarray(state.facing) != np.asarray(jax.jit(coloured.reset)(KEY)[0].facing)).any()


@pytest.mark.parametrize("same", [False, True])
def test_a_delivery_counts_for_a_shelf_of_the_robots_colour(same: bool) -> None:
    plan = plan_of(1, 3, 8)
    (row, left), right = divmod(plan.goals[0], plan.field.stride), plan.goals[1] % plan.field.stride
    env, state = place(COLOURED, [(0, 0, 0), (0, 3, 0), (row, left, 0), (row, right, 0)])
    requested = jnp.zeros(32, bool).at[jnp.arange(4)].set(True)
    standing = jnp.asarray(np.where(np.isin(np.asarray(state.standing), [1, 2]), 0, np.asarray(state.standing)))
    colour = jnp.ones(32, jnp.int32).at[0].set(1 if same else 0)
    state = state._replace(
        load=jnp.array([-1, -1, 0, 1], jnp.int32), standing=standing, requested=requested, colour=colour
    )
    after, seen = jax.jit(env.step)(KEY, state, np.array([0, 0, 1, 1], np.int32))  # nobody does anything
    np.testing.assert_array_equal(seen.reward, [0, 0, float(same), 1])
    found = np.asarray(after.requested)
    assert found.sum() == 4 and found[2:4].all() and not found[1] and found[0] == (not same)


def test_observations_with_colours_are_those_of_plain_loops() -> None:
    env, plan = device_env(f"rware/{COLOURED}"), plan_of(1, 3, 8)
    state, _ = jax.jit(env.reset)(jax.random.key(3))
    rng, step, stride = np.random.default_rng(0), jax.jit(env.step), plan.field.stride
    carried = 0
    for _ in range(60):
        wanted = rng.choice([FORWARD, FORWARD, LEFT, RIGHT, TOGGLE], 4)
        state, seen = step(KEY, state, ((wanted + np.array([0, 0, 1, 1])) % 5).astype(np.int32))
        robots, load = np.asarray(state.robots).tolist(), np.asarray(state.load).tolist()
        shelf_in = {i - plan.before: x - 1 for i, x in enumerate(np.asarray(state.standing).tolist()) if x}
        shelf_in |= {cell: x for cell, x in zip(robots, load, strict=True) if x >= 0}
        carried += sum(x >= 0 for x in load)
        for i, cell in enumerate(robots):
            row, column = divmod(cell, stride)
            numbers = [column, row, load[i] >= 0, *(way == state.facing[i] for way in range(4))]
            numbers += [cell not in plan.shelves]
            for y in (row - 1, row, row + 1):
                for x in (column - 1, column, column + 1):
                    there = y * stride + x
                    inside = 0 <= y < plan.field.rows and 0 <= x < plan.field.columns
                    shelf = shelf_in.get(there, -1) if inside else -1
                    kind = int(state.colour[shelf]) if shelf >= 0 else -1
                    numbers += [inside and there in robots, kind == 0, kind == 1]
                    numbers += [shelf >= 0 and bool(state.requested[shelf])]
            order = warehouse.order_of(int(i > 1), len(numbers))
            np.testing.assert_array_equal(seen.obs[i], np.array(numbers, float)[order])
    assert carried > 5


def test_pictures_show_requests_directions_and_loads() -> None:
    env: Any = device_env(f"rware/{COLOURED}")
    state, _ = env.reset(jax.random.key(0))
    state = jax.tree.map(np.asarray, state)

    def drawn(changed: warehouse.State) -> set[tuple[float, ...]]:
        scene = env.render(changed)
        there = np.isfinite(scene.centres).all(1)
        return {
            (*np.round(x, 4), *np.round(c, 4)) for x, c in zip(scene.centres[there], scene.colours[there], strict=True)
        }

    before = drawn(state)
    turned = drawn(state._replace(facing=(state.facing + 1) % 4))
    assert len(before - turned) == len(turned - before) == 4  # one sign for each robot
    none = drawn(state._replace(requested=np.zeros_like(state.requested)))
    assert len(before - none) == state.requested.sum() and none < before
    assert not any("shelf" in label for label in env.render(state).labels)
