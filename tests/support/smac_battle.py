"""A little battle on a grid with SMAC's interface, and one with SMAClite's: soldiers of the team against monsters."""

from types import SimpleNamespace
from typing import Any

import numpy as np

SIDE, SIGHT, REACH = 8, 4, 2
NO_OP, STOP, NORTH, ATTACK = 0, 1, 2, 6
MOVES = np.array([(0, 1), (0, -1), (1, 0), (-1, 0)])


class Battlefield:
    """The rules. Refuses illegal actions, and steps after the end."""

    death_tracker_ally: Any = ()
    """What tells that agents die."""

    def __init__(self, soldiers: int = 3, monsters: int = 3, hit: float = 0.5):
        self.n_agents, self.n_enemies, self.hit = soldiers, monsters, hit
        self.n_actions = ATTACK + monsters
        self.obs_size = 4 * (soldiers + monsters)
        self.state_size = 3 * (soldiers + monsters) + soldiers
        self.rng = np.random.default_rng(0)
        self.over = True

    def begin(self) -> None:
        rows = self.rng.permutation(SIDE)
        self.allies = np.stack([np.full(self.n_agents, 1), rows[: self.n_agents]], axis=1)
        self.enemies = np.stack([np.full(self.n_enemies, 5), rows[-self.n_enemies :]], axis=1)
        self.health, self.strength = np.full(self.n_agents, 3), np.full(self.n_enemies, 2)
        self.last_actions = np.zeros(self.n_agents)
        self.over = False

    def play(self, actions: list[int]) -> tuple[float, bool]:
        """The reward, and whether a side is dead."""
        assert not self.over, "the battle is over"
        available = self.get_avail_actions()
        for i, action in enumerate(actions):
            if not available[i][action]:
                raise ValueError(f"Invalid action for agent {i}: {action}")
        reward = 0.0
        self.last_actions = np.array(actions, float)
        for i, action in enumerate(actions):
            if NORTH <= action < ATTACK:
                self.allies[i] += MOVES[action - NORTH]
            elif action >= ATTACK and self.strength[action - ATTACK] > 0:
                self.strength[action - ATTACK] -= 1
                reward += 1.0 + 5.0 * (self.strength[action - ATTACK] == 0)
        for j in np.flatnonzero(self.strength > 0):
            living = np.flatnonzero(self.health > 0)
            if not len(living):
                break
            distance = np.abs(self.allies[living] - self.enemies[j]).sum(axis=1)
            prey = living[distance.argmin()]
            if distance.min() <= REACH:
                self.health[prey] -= self.rng.random() < self.hit
            else:
                self.enemies[j] += np.sign(self.allies[prey] - self.enemies[j])
        self.over = not self.strength.any() or not self.health.any()
        return reward + 10.0 * (not self.strength.any()), self.over

    def get_avail_actions(self) -> list[list[int]]:
        return [self.get_avail_agent_actions(i) for i in range(self.n_agents)]

    def get_avail_agent_actions(self, i: int) -> list[int]:
        if self.health[i] <= 0:
            return [1] + [0] * (self.n_actions - 1)
        moves = [int(((to >= 0) & (to < SIDE)).all()) for to in self.allies[i] + MOVES]
        near = np.abs(self.enemies - self.allies[i]).sum(axis=1) <= REACH
        return [0, 1, *moves, *(near & (self.strength > 0)).astype(int).tolist()]

    def get_obs(self) -> Any:
        units, health = np.concatenate([self.allies, self.enemies]), np.concatenate([self.health, self.strength])
        rows = []
        for place in self.allies:  # the dead see on, as in SMACv2 with some of its options
            seen = (np.abs(units - place).sum(axis=1) <= SIGHT) & (health > 0)
            row = np.concatenate([seen[:, None], (units - place) / SIGHT, health[:, None] / 3], axis=1)
            rows.append((row * seen[:, None]).ravel().astype(np.float32))
        return rows

    def get_state(self) -> np.ndarray:
        units, health = np.concatenate([self.allies, self.enemies]), np.concatenate([self.health, self.strength])
        return np.concatenate([(units / SIDE).ravel(), health / 3, self.last_actions]).astype(np.float32)

    def close(self) -> None:
        """Nothing to free."""


class Uncounted(Battlefield):
    """SMAC's interface, of somebody who seeds every episode and counts no time-outs: the limit is ``terminated``."""

    def __init__(self, limit: int = 25, **rules: Any):
        super().__init__(**rules)
        self.episode_limit, self.says_limit, self.cut = limit, False, False

    def seed(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def get_env_info(self) -> dict[str, int]:
        sizes = {"state_shape": self.state_size, "obs_shape": self.obs_size, "n_actions": self.n_actions}
        return sizes | {"n_agents": self.n_agents, "episode_limit": self.episode_limit}

    def reset(self) -> tuple[Any, np.ndarray]:
        self.steps = 0
        self.begin()
        return self.get_obs(), self.get_state()

    def step(self, actions: Any) -> tuple[float, bool, dict[str, bool]]:
        reward, over = self.play([int(action) for action in actions])
        self.steps += 1
        self.cut = not over and self.steps >= self.episode_limit
        self.over = over or self.cut
        info = {"battle_won": bool(over and not self.strength.any())}
        return reward, bool(self.over), info | ({"episode_limit": True} if self.cut and self.says_limit else {})


class Skirmish(Uncounted):
    """SMAC's interface as in SMAC: seeded when it starts, counting time-outs and crashes."""

    def __init__(self, seed: int | None = None, **options: Any):
        super().__init__(**options)
        self._seed = seed
        self.timeouts = self.force_restarts = 0
        self.crash_at = -1
        self.started = False

    def seed(self) -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._seed

    def reset(self) -> tuple[Any, np.ndarray]:
        if not self.started:
            self.rng, self.started = np.random.default_rng(self._seed), True
        return super().reset()

    def step(self, actions: Any) -> tuple[float, bool, dict[str, bool]]:
        if self.steps == self.crash_at:
            self.force_restarts += 1
            return 0, True, {}
        result = super().step(actions)
        self.timeouts += self.cut
        return result


class Typed(Skirmish):
    """Observations and states with the features of SMAC's own, in its order; each episode draws everyone's type."""

    __module__ = "smac.env.starcraft2.starcraft2"
    obs_instead_of_state = obs_last_action = False
    state_last_action = True

    def __init__(self, map_name: str = "3m", last_action: tuple[bool, bool] = (False, True), **options: Any):
        super().__init__(**options)
        self.map_name = map_name
        self.obs_last_action, self.state_last_action = last_action
        allies = 8 + self.n_actions * self.obs_last_action
        self.obs_size = 4 + 8 * self.n_enemies + allies * (self.n_agents - 1) + 4
        self.state_size = 7 * self.n_agents + 6 * self.n_enemies + self.n_agents * self.n_actions * last_action[1]

    def begin(self) -> None:
        super().begin()
        count = self.n_agents + self.n_enemies
        self.types, self.shields = np.eye(2)[self.rng.integers(2, size=count)], self.rng.random(count)
        self.said = np.zeros((self.n_agents, self.n_actions))

    def play(self, actions: list[int]) -> tuple[float, bool]:
        self.said = np.eye(self.n_actions)[actions]
        return super().play(actions)

    def get_obs(self) -> Any:
        n = self.n_agents
        places = np.concatenate([self.allies + 0.25, self.enemies])  # nobody stands in another's place
        health = np.concatenate([self.health, self.strength])
        own = np.concatenate([health[:, None] / 3, self.shields[:, None], self.types], axis=1)
        rows = []
        for i, can in enumerate(self.get_avail_actions()):
            offsets = (places - places[i]) / 2.5
            distance = np.hypot(*offsets.T)
            first = np.concatenate([np.ones(n), can[ATTACK:]])
            others = np.concatenate([first[:, None], distance[:, None], offsets, own], axis=1)
            others *= ((distance < 1) & (health > 0))[:, None]
            friends = others[:n]
            if self.obs_last_action:
                friends = np.concatenate([friends, self.said * friends[:, :1]], axis=1)
            parts = [can[NORTH:ATTACK], others[n:].ravel(), np.delete(friends, i, axis=0).ravel(), own[i]]
            rows.append(np.concatenate(parts) * (health[i] > 0))
        return rows

    def get_state(self) -> np.ndarray:
        def rows(places: Any, health: Any, shields: Any, types: Any, *more: Any) -> np.ndarray:
            middle = (places - SIDE / 2) / SIDE
            parts = [health[:, None] / 3, *more, middle, shields[:, None], types]
            return (np.concatenate(parts, axis=1) * (health > 0)[:, None]).ravel()

        n = self.n_agents
        allies = rows(
            self.allies + 0.25, self.health, self.shields[:n], self.types[:n], self.steps % 3 * np.ones((n, 1))
        )
        enemies = rows(self.enemies, self.strength, self.shields[n:], self.types[n:])
        acted = self.said.ravel() if self.state_last_action else []
        return np.concatenate([allies, enemies, acted]).astype(np.float32)

    def get_obs_move_feats_size(self) -> int:
        return 4

    def get_obs_enemy_feats_size(self) -> tuple[int, int]:
        return self.n_enemies, 8

    def get_obs_ally_feats_size(self) -> tuple[int, int]:
        return self.n_agents - 1, 8 + self.n_actions * self.obs_last_action

    def get_obs_own_feats_size(self) -> int:
        return 4


class LiteSkirmish(Battlefield):
    """SMAClite's interface: Gymnasium's five values, sizes as attributes, no time limit, Python's integers alone."""

    def __init__(self, map_name: str = "3m", **rules: Any):
        super().__init__(**rules)
        self.map_info = SimpleNamespace(name=map_name)
        self.action_space = self.observation_space = ()
        self.render_mode = "human"

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, bool]]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.begin()
        return tuple(self.get_obs()), {"battle_won": False}

    def step(self, actions: Any) -> tuple[Any, float, bool, bool, dict[str, bool]]:
        assert all(type(action) is int for action in actions)
        reward, over = self.play(actions)
        return tuple(self.get_obs()), reward, bool(over), False, {"battle_won": not self.strength.any()}

    def render(self) -> None:
        raise AssertionError("a window would open")


class Wrapped:
    """What Gymnasium's wrappers look like: only ``unwrapped`` has more than ``reset`` and ``step``."""

    def __init__(self, core: LiteSkirmish):
        self.unwrapped = core
        self.action_space = self.observation_space = ()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        obs, info = self.unwrapped.reset(seed=seed)
        return tuple(2 * row for row in obs), info

    def step(self, action: Any) -> Any:
        obs, *rest = self.unwrapped.step(action)
        return tuple(2 * row for row in obs), *rest

    def close(self) -> None:
        self.unwrapped.close()
