"""Stag hunt: random play beside a plain-Python form of all its rules, and how episodes and turns are drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.grid.field import Field, distinct
from shoal.types import Step
from support.environments import device_env

STAY, CATCH = 4, 5
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
KEY = jax.random.key(0)


class Plain:
    """The rules over lists of (row, column), one after another."""

    def __init__(self, rows: int, columns: int, agents: list, animals: list, stags: int, penalty: float):
        self.size, self.agents, self.animals, self.stags, self.penalty = (
            (rows, columns),
            agents,
            animals,
            stags,
            penalty,
        )

    def around(self, place: tuple[int, int]) -> list[tuple[int, int]]:
        return [(place[0] + down, place[1] + right) for down, right in MOVES]

    def free(self, place: tuple[int, int]) -> bool:
        inside = all(0 <= x < side for x, side in zip(place, self.size, strict=True))
        return inside and place not in self.agents and place not in self.animals

    def step(self, action: np.ndarray, draws: np.ndarray) -> float:
        n, m, reward = len(self.agents), len(self.animals), 0.0
        for i in shuffled(draws[:n]):
            if self.agents[i] and action[i] < STAY and self.free(self.around(self.agents[i])[action[i]]):
                self.agents[i] = self.around(self.agents[i])[action[i]]
        for turn, j in enumerate(shuffled(draws[n : n + m])):
            if not (here := self.animals[j]):
                continue
            hunters = [i for i in range(n) if action[i] == CATCH and self.agents[i] in self.around(here)]
            if len(hunters) >= (2 if j < self.stags else 1):
                reward += 10 if j < self.stags else 1
                self.animals[j] = None
                for i in hunters:
                    self.agents[i] = None
                continue
            reward += self.penalty * (len(hunters) > 0)
            exits = [place for place in self.around(here) if self.free(place)]
            if exits:
                self.animals[j] = exits[int(np.floor(draws[n + m + turn] * np.float32(len(exits))))]
        return reward

    def planes(self, places: list[tuple[int, int]]) -> np.ndarray:
        kinds = [self.agents, self.animals[: self.stags], self.animals[self.stags :]]
        kinds = kinds[: 2 + (len(self.animals) > self.stags)]
        return np.array([[place in kind for kind in kinds] for place in places], float).reshape(-1)

    def check(self, step: Step, view: int) -> None:
        for i, place in enumerate(self.agents):
            assert bool(step.alive[i]) == bool(place)
            if place is None:
                assert not step.obs[i].any() and step.legal[i].tolist() == [False] * 4 + [True, False]
                continue
            side, around = range(-view, view + 1), self.around(place)
            window = [(place[0] + down, place[1] + right) for down in side for right in side]
            np.testing.assert_array_equal(step.obs[i], self.planes(window))
            inside = [0 <= r < self.size[0] and 0 <= c < self.size[1] for r, c in around]
            assert step.legal[i].tolist() == [*inside, True, any(p in self.animals for p in around)]
        field = [(r, c) for r in range(self.size[0]) for c in range(self.size[1])]
        np.testing.assert_array_equal(step.state, self.planes(field))


def shuffled(draws: np.ndarray) -> list[int]:
    left = list(range(len(draws)))
    return [left.pop(int(np.floor(u * np.float32(len(left))))) for u in draws]


@pytest.mark.parametrize(
    ("n", "stags", "hares", "rows", "columns", "view", "penalty"),
    [(8, 8, 0, 10, 10, 2, -2.0), (7, 3, 4, 5, 6, 1, -0.5), (3, 2, 1, 2, 4, 3, 0.0), (2, 0, 2, 5, 1, 0, -1.0)],
)
def test_random_play_is_that_of_a_plain_loop(
    n: int, stags: int, hares: int, rows: int, columns: int, view: int, penalty: float
) -> None:
    m, horizon, rng = stags + hares, 40, np.random.default_rng(n)
    numbers = {"num_agents": n, "num_stags": stags, "num_hares": hares, "penalty": penalty}
    env = device_env("grid/stag_hunt", **numbers, grid=(rows, columns), view=view, horizon=horizon)
    advance = jax.jit(env.step)
    field, captured = Field(rows, columns, max(view, 1)), 0
    for episode in range(6):
        state, step = jax.jit(env.reset)(jax.random.fold_in(KEY, episode))
        places = [list(map(tuple, np.stack(field.place(cells), 1).tolist())) for cells in (state.agents, state.prey)]
        plain = Plain(rows, columns, places[0], places[1], stags, penalty)
        assert step.first and not step.last and not step.reward.any() and (step.discount == 1).all()
        for t in range(1, horizon + 1):
            plain.check(step, view)
            chance = rng.random((n, 6)) + np.asarray(step.legal) + 0.7 * (np.arange(6) == CATCH)
            action = chance.argmax(1) if t % 3 else rng.integers(0, 6, n)  # every third may be illegal
            key = jax.random.fold_in(KEY, 1000 * episode + t)
            reward = plain.step(action, np.asarray(jax.random.uniform(key, (n + 2 * m,))))
            state, step = jax.tree.map(np.asarray, advance(key, state, jnp.asarray(action, jnp.int32)))
            over = not any(plain.agents) or not any(plain.animals)
            np.testing.assert_allclose(step.reward, np.full(n, reward), rtol=1e-6)
            assert bool(step.last) == (over or t == horizon) and not step.first
            assert (step.discount == 1 - over).all() and state.t == t
            if step.last:
                plain.check(step, view)
                break
        captured += plain.animals.count(None)
    assert captured > 0


def test_draws_without_replacement() -> None:
    u = jax.random.uniform(KEY, (6000, 3))
    for among, ways in ((3, 6), (4, 24)):
        drawn = np.asarray(jax.vmap(distinct, (0, None))(u, among))
        sequences, counts = np.unique(drawn, axis=0, return_counts=True)
        assert len(sequences) == ways and sequences.min() == 0 and sequences.max() == among - 1
        assert all(len(set(row)) == 3 for row in sequences.tolist())
        np.testing.assert_allclose(counts * ways / 6000, 1.0, atol=0.25)


def test_everyone_starts_anywhere_and_alone() -> None:
    env = device_env("grid/stag_hunt", num_agents=4, num_stags=2)
    state, step = jax.jit(jax.vmap(env.reset))(jax.random.split(KEY, 4000))
    assert (step.state.sum(1) == 6).all()
    for cells in (state.agents[:, 0], state.prey[:, -1]):
        found, counts = np.unique(np.asarray(cells), return_counts=True)
        assert found.tolist() == [row * 12 + column for row in range(10) for column in range(10)]
        assert counts.min() >= 12 and counts.max() <= 75, "40 on average"
